//! [`verify()`]: whether shards are what was written.

use std::{
    fs::{self, File},
    io::Read as _,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
};

use crc32fast::Hasher;
use serde::Serialize;

use super::{
    Format, Progress, form,
    manifest::{Listed, Manifest},
    names::MANIFEST,
};
use crate::{
    Error, ErrorKind, Limits, Result, lock,
    sample::{FieldKind, Record, Value},
    source::{CheckScratch, Shard, Source},
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
    let mut tasks: Vec<Task> = Vec::new();
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
        let (format, fields) = (manifest.settings.format, Arc::new(manifest.fields));
        tasks.extend(manifest.shards.into_iter().map(|listed| {
            let path = folder.join(&listed.name);
            Task { path, listed, format, fields: fields.clone() }
        }));
    }
    progress.begin(tasks.iter().map(|task| task.listed.samples).sum(), 0);
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        let mut scratch = CheckScratch::default();
        while let Some(task) = tasks.get(next.fetch_add(1, Relaxed)) {
            if progress.is_stopped() {
                break;
            }
            let number = next.load(Relaxed);
            let checked = check(task, full, &mut scratch, progress);
            lock(&done).push((&task.path, number, checked));
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
    if manifest.settings.format == Format::Mds && manifest.complete {
        let index = form::mds::index(&manifest.shards).ok();
        if fs::read(folder.join(form::mds::INDEX)).ok() != index {
            note(format!("{} beside it is missing or was changed", form::mds::INDEX));
        }
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

/// A shard to look at.
struct Task {
    path: PathBuf,
    listed: Listed,
    format: Format,
    /// What the manifest says of fields.
    fields: Arc<serde_json::Value>,
}

#[derive(Default)]
struct Checked {
    samples: u64,
    bytes: u64,
    problems: Vec<(Option<String>, String)>,
}

fn check(task: &Task, full: bool, scratch: &mut CheckScratch, progress: &Progress) -> Checked {
    let mut checked = Checked::default();
    if let Err(e) = check_into(task, full, scratch, progress, &mut checked) {
        checked.problems.push((e.key().map(str::to_owned), e.message().to_owned()));
    }
    checked
}

fn check_into(
    task: &Task,
    full: bool,
    scratch: &mut CheckScratch,
    progress: &Progress,
    into: &mut Checked,
) -> Result<()> {
    let Task { path, listed, format, fields } = task;
    let (bytes, crc32) = read(path, progress)?;
    into.bytes = bytes;
    if bytes != listed.bytes {
        into.problems.push((None, format!("it has {bytes} bytes; {} were written", listed.bytes)));
    }
    if crc32 != listed.crc32 && bytes == listed.bytes {
        into.problems.push((None, format!("its bytes have CRC-32 {crc32}; {} was written", listed.crc32)));
    }
    let mut bad = Bad { count: 0, into };
    if *format == Format::Tar {
        let store = LocalStore::with_open_files(1);
        let shard = Shard::open(&store, &path.to_string_lossy())?;
        bad.count_samples(shard.len(), listed);
        for sample in (0..shard.len()).take_while(|_| !progress.is_stopped()) {
            let entries = if full { Some(shard.entries(sample)) } else { None };
            for entry in entries.into_iter().flatten() {
                if let Err(e) = shard.check(&store, entry, &Limits::default(), scratch) {
                    bad.note(format!("{}.{}", entry.key, entry.extension), &e);
                }
            }
            progress.wrote(0);
        }
    } else {
        let source = form::reader(*format, fields, path, listed)?;
        bad.count_samples(source.len(), listed);
        let mut record = Record::default();
        for sample in (0..source.len()).take_while(|_| !progress.is_stopped()) {
            if full && let Err(e) = check_sample(&*source, sample, &mut record, scratch) {
                bad.note(source.key(sample), &e);
            }
            progress.wrote(0);
        }
    }
    bad.finish();
    Ok(())
}

/// Reads a sample as any reader would, and decodes its images.
fn check_sample(
    source: &dyn Source,
    sample: u64,
    record: &mut Record,
    scratch: &mut CheckScratch,
) -> Result<()> {
    source.fetch(sample, record)?;
    for (field, value) in source.schema().fields.iter().zip(&record.values) {
        if let (FieldKind::Image | FieldKind::Mask { .. }, Value::Bytes(bytes)) = (&field.kind, value) {
            scratch.decode(bytes, &Limits::default())?;
        }
    }
    Ok(())
}

/// Problems of single samples.
struct Bad<'a> {
    count: usize,
    into: &'a mut Checked,
}

impl Bad<'_> {
    fn count_samples(&mut self, found: u64, listed: &Listed) {
        self.into.samples = found;
        if found != listed.samples {
            let what = format!("it has {found} samples; {} were written", listed.samples);
            self.into.problems.push((None, what));
        }
    }

    fn note(&mut self, key: String, error: &Error) {
        self.count += 1;
        if self.count <= MOST_LISTED {
            self.into.problems.push((Some(key), error.message().to_owned()));
        }
    }

    fn finish(self) {
        if self.count > MOST_LISTED {
            self.into.problems.push((None, format!("and {} more files", self.count - MOST_LISTED)));
        }
    }
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
