//! [`verify()`]: whether shards are what was written.

use std::{
    fs::{self, File},
    io::Read as _,
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
};

use crc32fast::Hasher;
use serde::Serialize;

use super::{
    Progress,
    manifest::{Listed, Manifest},
    names::MANIFEST,
};
use crate::{
    Error, ErrorKind, Limits, Result, lock,
    source::{CheckScratch, Shard},
    store::LocalStore,
};

/// Bytes that are read at once.
const PIECE: usize = 1 << 20;

/// Samples of one shard whose problems are listed one by one.
const MOST_LISTED: usize = 100;

/// What [`verify()`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// Manifests that were looked at.
    pub manifests: Vec<String>,
    /// Shards that were read.
    pub shards: u64,
    /// Samples in them.
    pub samples: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Samples that were left out when the shards were written.
    pub skipped: u64,
    /// What is wrong; in the order of the shards.
    pub problems: Vec<Problem>,
}

/// Something that is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Where: the path of a shard or manifest.
    pub path: String,
    /// The key of a sample, and the extension of a file of it.
    pub key: Option<String>,
    /// What is wrong.
    pub message: String,
}

/// Reads all shards that the manifests at `path` list, a folder or one manifest, and compares sizes, check sums, headers and
/// numbers of samples with what was written. `full` makes of every file what a reader would: decodes every image.
///
/// # Errors
/// [`ErrorKind::NotFound`] where there is no manifest; those of a manifest that cannot be read. What is wrong with shards is no
/// error, but found.
pub fn verify(path: &str, full: bool, workers: usize, progress: &Progress) -> Result<Verified> {
    let mut found = Verified::default();
    let mut tasks: Vec<(PathBuf, Listed)> = Vec::new();
    let mut general = Vec::new();
    for path in manifests(Path::new(path.strip_prefix("file://").unwrap_or(path)))? {
        let shown = path.to_string_lossy().into_owned();
        let Some(manifest) = Manifest::load(&path)? else {
            return Err(Error::new(ErrorKind::NotFound, format!("there is no manifest {shown}")));
        };
        general.extend(own_problems(&manifest, &path, &shown));
        found.skipped += manifest.skipped.len() as u64;
        found.manifests.push(shown);
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        tasks.extend(manifest.shards.into_iter().map(|listed| (folder.join(&listed.name), listed)));
    }
    progress.begin(tasks.iter().map(|(_, listed)| listed.samples).sum(), 0);
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        let mut scratch = CheckScratch::default();
        while let Some((path, listed)) = tasks.get(next.fetch_add(1, Relaxed)) {
            if progress.is_stopped() {
                break;
            }
            let number = next.load(Relaxed);
            let checked = check(path, listed, full, &mut scratch, progress);
            lock(&done).push((path, number, checked));
        }
    };
    thread::scope(|scope| {
        for _ in 1..workers.max(1).min(tasks.len().max(1)) {
            // Without more threads it only takes longer.
            drop(thread::Builder::new().spawn_scoped(scope, work));
        }
        work();
    });
    if progress.is_stopped() {
        return Err(Error::new(ErrorKind::State, "verifying was stopped"));
    }
    let mut done = done.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    done.sort_by_key(|(path, ..)| *path);
    found.problems = general;
    for (path, _, checked) in done {
        found.shards += 1;
        found.samples += checked.samples;
        found.bytes += checked.bytes;
        let path = path.to_string_lossy();
        let problem = |(key, message)| Problem { path: path.clone().into_owned(), key, message };
        found.problems.extend(checked.problems.into_iter().map(problem));
    }
    Ok(found)
}

/// The manifests at a path.
fn manifests(path: &Path) -> Result<Vec<PathBuf>> {
    let shown = &path.to_string_lossy();
    if !path.is_dir() {
        return if path.to_string_lossy().ends_with(MANIFEST) {
            Ok(vec![path.to_owned()])
        } else {
            Err(Error::new(ErrorKind::NotFound, format!("{shown} is no folder and no manifest"))
                .with_hint("give the folder that the shards were written to, or its manifest.json"))
        };
    }
    let failed = |e: std::io::Error| Error::io("list", shown, e);
    let mut found = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') && (name == MANIFEST || name.ends_with(&format!(".{MANIFEST}"))) {
            found.push(path.join(name));
        }
    }
    if found.is_empty() {
        return Err(Error::new(ErrorKind::NotFound, format!("there is no manifest of shards in {shown}"))
            .with_hint("shards that others wrote have none: wellfed inspect reads those"));
    }
    found.sort();
    Ok(found)
}

/// What a manifest says of itself that cannot be.
fn own_problems(manifest: &Manifest, path: &Path, shown: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut note = |message: String| problems.push(Problem { path: shown.to_owned(), key: None, message });
    let folder = path.parent().unwrap_or(Path::new(""));
    if !manifest.complete {
        let (end, all) = (manifest.end(), manifest.elements);
        note(format!(
            "writing has not ended: shards hold {end} of {all} samples; run the same command again"
        ));
    }
    let mut at = 0;
    for Listed { name, start, end, samples, .. } in &manifest.shards {
        let left_out =
            manifest.skipped.iter().filter(|s| (*start..*end).contains(&s.position)).count() as u64;
        if *start != at || end.checked_sub(*start) != Some(*samples + left_out) {
            note(format!(
                "shard {name} holds samples {start} to {end}, and {samples} of them, behind sample {at}"
            ));
        }
        at = *end;
    }
    // Shards of the same names that no list has would be read with the others.
    if let Some(first) = manifest.shards.first() {
        let digits = |name: &str| name.replace(|c: char| c.is_ascii_digit(), "0");
        let listed: std::collections::HashSet<&str> = manifest.shards.iter().map(|s| &*s.name).collect();
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if digits(&name) == digits(&first.name) && !listed.contains(&*name) {
                note(format!("shard {name} lies beside it and is not listed"));
            }
        }
    }
    problems
}

#[derive(Default)]
struct Checked {
    samples: u64,
    bytes: u64,
    problems: Vec<(Option<String>, String)>,
}

fn check(
    path: &Path,
    listed: &Listed,
    full: bool,
    scratch: &mut CheckScratch,
    progress: &Progress,
) -> Checked {
    let mut checked = Checked::default();
    if let Err(e) = check_into(path, listed, full, scratch, progress, &mut checked) {
        checked.problems.push((e.key().map(str::to_owned), e.message().to_owned()));
    }
    checked
}

fn check_into(
    path: &Path,
    listed: &Listed,
    full: bool,
    scratch: &mut CheckScratch,
    progress: &Progress,
    into: &mut Checked,
) -> Result<()> {
    let shown = path.to_string_lossy();
    let (bytes, crc32) = read(path, progress)?;
    into.bytes = bytes;
    if bytes != listed.bytes {
        into.problems.push((None, format!("it has {bytes} bytes; {} were written", listed.bytes)));
    }
    if crc32 != listed.crc32 && bytes == listed.bytes {
        into.problems.push((None, format!("its bytes have CRC-32 {crc32}; {} was written", listed.crc32)));
    }
    let store = LocalStore::with_open_files(1);
    let shard = Shard::open(&store, &shown)?;
    into.samples = shard.len();
    if shard.len() != listed.samples {
        into.problems
            .push((None, format!("it has {} samples; {} were written", shard.len(), listed.samples)));
    }
    let mut bad = 0;
    for sample in 0..shard.len() {
        if progress.is_stopped() {
            break;
        }
        let entries = if full { Some(shard.entries(sample)) } else { None };
        for entry in entries.into_iter().flatten() {
            if let Err(e) = shard.check(&store, entry, &Limits::default(), scratch) {
                bad += 1;
                if bad <= MOST_LISTED {
                    let key = format!("{}.{}", entry.key, entry.extension);
                    into.problems.push((Some(key), e.message().to_owned()));
                }
            }
        }
        progress.wrote(0);
    }
    if bad > MOST_LISTED {
        into.problems.push((None, format!("and {} more files", bad - MOST_LISTED)));
    }
    Ok(())
}

/// Length and CRC-32 of a file.
fn read(path: &Path, progress: &Progress) -> Result<(u64, String)> {
    let failed = |e: std::io::Error| Error::io("read", path.display(), e);
    let mut file = File::open(path).map_err(failed)?;
    let (mut piece, mut crc, mut bytes) = (vec![0; PIECE], Hasher::new(), 0);
    loop {
        let got = file.read(&mut piece).map_err(failed)?;
        if got == 0 || progress.is_stopped() {
            return Ok((bytes, format!("{:08x}", crc.finalize())));
        }
        crc.update(&piece[..got]);
        bytes += got as u64;
    }
}
