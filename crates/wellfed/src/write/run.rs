//! [`write()`]: checks, threads, and what is left when something fails.

use std::{
    fs::{self, File, TryLockError},
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::sync_channel,
    },
    thread,
    time::Instant,
};

use super::{
    Format, Progress, WriteOptions, Written,
    cell::Cell,
    disk::{Disk, LocalDisk, Part},
    fields::fields,
    form::{self, Form},
    images::Images,
    make::{Body, Made, MakeScratch, Maker},
    manifest::{Manifest, Settings, VERSION},
    names::Place,
    queue::Queue,
    shards::{Most, Shards, finish},
};
use crate::{
    Dataset, Error, ErrorKind, Result,
    order::Order,
    plan::{Node, OnError, lower::Lowered},
};

/// Threads that read from stores that answer late.
const FAR: usize = 32;

/// Samples that are made before anything is written, until one of them succeeds.
const TRIALS: u64 = 16;

/// Bytes of made samples that may wait to be written.
const WAITING: u64 = 256 << 20;

/// Writes the samples of one epoch of `dataset`, in its order, as shards to `destination`: a folder, or a path such as
/// `out/train-{:06d}.tar`. What an earlier call has written there of the same samples with the same options stays, and
/// is gone on from. Beside the shards lie their indexes (for [`crate::source::IndexMode::Sidecar`]), and a manifest: a list of the
/// shards, their check sums, names of classes and the samples that were left out.
///
/// ```
/// use std::sync::Arc;
///
/// use wellfed::{
///     Dataset,
///     sample::{DType, Structure},
///     source::{ArrayData, Pixels, TensorSlices},
///     write::{Progress, WriteOptions, verify, write},
/// };
///
/// let numbers = ArrayData::from_vec((0..40).collect(), DType::UInt8, vec![10, 4])?;
/// let source = TensorSlices::new(vec![("x".into(), numbers, Pixels::Never)], Structure::Field(0))?;
/// let folder = std::env::temp_dir().join(format!("wellfed-write-{}", std::process::id()));
/// let to = folder.to_str().unwrap();
/// let options = WriteOptions { max_samples: Some(4), ..WriteOptions::default() };
/// let written = write(&Dataset::new(Arc::new(source)).shuffle(7), to, &options, &Progress::new())?;
/// assert_eq!((written.shards, written.samples), (3, 10));
/// assert!(verify(to, true, 2, &Progress::new())?.problems.is_empty());
/// # std::fs::remove_dir_all(folder).unwrap();
/// # Ok::<(), wellfed::Error>(())
/// ```
///
/// # Errors
/// [`ErrorKind::Config`] for what cannot be written, and for shards of other samples or options that are there, before
/// anything is written; [`ErrorKind::Io`] if the disk is full; those of a bad sample, unless they are left out. Finished
/// shards stay, and nothing half-written.
pub fn write(
    dataset: &Dataset,
    destination: &str,
    options: &WriteOptions,
    progress: &Progress,
) -> Result<Written> {
    write_on(&LocalDisk, dataset, destination, options, progress)
}

pub(super) fn write_on(
    disk: &dyn Disk,
    dataset: &Dataset,
    destination: &str,
    options: &WriteOptions,
    progress: &Progress,
) -> Result<Written> {
    let (place, format) = Place::parse(destination, options.format)?;
    options.check(format)?;
    let lowered = dataset.identified()?;
    let order = dataset.order(&lowered)?;
    let elements = check_plan(&lowered, &order)?;
    let fields = fields(&lowered.output.names, &lowered.output.kinds)?;
    let sampler = dataset.sampler();
    let sources = dataset.sources();
    let known = |leaf: usize| sources.iter().position(|s| std::sync::Arc::ptr_eq(s, &lowered.sources[leaf]));
    let known = known_leaves((0..lowered.sources.len()).map(known));
    let images = Images {
        resize_shorter: options.resize_shorter,
        quality: options.quality,
        packed: options.packed,
        limits: dataset.options().limits,
    };
    let layout = dataset.options().layout;
    let maker =
        Maker { lowered: &lowered, order: &order, sampler: &sampler, known, fields: &fields, images, layout };
    let classes = dataset.source().classes().map(<[String]>::to_vec).filter(|_| sources.len() == 1);
    let (name, cells) = try_first(&maker, elements, options.on_error)?;
    let form = form::of(format, &fields, &cells, classes.as_deref(), options)?;
    let first = Made { name, body: form.prepare(cells).map_err(|e| e.with_stage("write"))? };
    let plan = identity(dataset, &lowered, &maker, elements, &first)?;
    let manifest = Manifest {
        version: VERSION,
        complete: false,
        plan,
        settings: Settings {
            max_bytes: options.shard_bytes(format),
            max_samples: options.max_samples,
            resize_shorter: options.resize_shorter,
            quality: options.quality,
            packed: options.packed,
            format,
            row_group_size: options.row_group_size,
        },
        elements,
        seed: seed(&dataset.plan().root),
        classes,
        fields: form.fields(),
        shards: Vec::new(),
        skipped: Vec::new(),
    };
    let folder = Folder::open(&place)?;
    let (manifest, before) = begin(disk, &place, manifest, options.on_error)?;
    progress.begin(elements, manifest.end().max(if manifest.complete { elements } else { 0 }));
    let manifest = Mutex::new(manifest);
    let result = if lock_of(&manifest).complete {
        Ok(())
    } else {
        fill(disk, &place, &maker, &*form, &manifest, options, progress)
    };
    let manifest = manifest.into_inner().unwrap_or_else(PoisonError::into_inner);
    let none = || names_in(&place.folder).is_ok_and(|names| !names.iter().any(|name| place.is_shard(name)));
    if result.is_err() && manifest.shards.is_empty() && none() {
        // Nothing was written, so nothing is said of it. A shard that was finished, but not listed yet, is there to be
        // written once more, and belongs to this manifest.
        disk.remove(&place.folder.join(place.manifest()));
    }
    drop(folder);
    result?;
    let last = manifest.shards.len().saturating_sub(1) as u64;
    Ok(Written {
        shards: manifest.shards.len() as u64,
        shards_before: before,
        samples: manifest.samples(),
        bytes: manifest.shards.iter().map(|shard| shard.bytes).sum(),
        urls: match format {
            Format::Mds => place.folder.clone(),
            _ => place.folder.join(place.range(last)),
        }
        .to_string_lossy()
        .into_owned(),
        manifest: place.folder.join(place.manifest()).to_string_lossy().into_owned(),
        skipped: manifest.skipped,
    })
}

fn lock_of(manifest: &Mutex<Manifest>) -> std::sync::MutexGuard<'_, Manifest> {
    crate::lock(manifest)
}

/// The number among the sources of the plan of every leaf that is one: a source that is there twice has two.
fn known_leaves(found: impl Iterator<Item = Option<usize>>) -> Vec<Option<usize>> {
    let mut next = 0;
    found
        .map(|found| {
            found?;
            next += 1;
            Some(next - 1)
        })
        .collect()
}

/// The number of samples of a plan that can be written.
fn check_plan(lowered: &Lowered, order: &Order) -> Result<u64> {
    let output = &lowered.output;
    if output.python {
        return Err(Error::config("a pipeline with Python steps cannot be written").with_hint(
            "write the data set without them, or samples of your own with webdataset's TarWriter",
        ));
    }
    if output.batched || !output.mixed.is_empty() {
        return Err(Error::config("batches cannot be written, only samples")
            .with_hint("write the data set before batch()"));
    }
    match order.len() {
        None => Err(Error::config("a data set that repeats without end cannot be written")
            .with_hint("give repeat() a count, or leave it out")),
        Some(0) => Err(Error::config("the data set has no samples to write")),
        Some(elements) => Ok(elements),
    }
}

/// Makes one sample, so that what cannot be written is known before anything is written.
fn try_first(maker: &Maker<'_>, elements: u64, on_error: OnError) -> Result<(String, Vec<Cell>)> {
    let scratch = &mut MakeScratch::default();
    let mut first = None;
    // Bad samples often lie together, as in a folder that was not copied.
    let elsewhere = (1..=TRIALS).map(|nth| u128::from(elements) * u128::from(nth) / u128::from(TRIALS + 1));
    for position in (0..elements.min(TRIALS)).chain(elsewhere.map(|position| position as u64)) {
        match guarded(|| maker.cells(position, scratch)) {
            Ok(made) => return Ok(made),
            Err(e) if on_error == OnError::Skip && is_bad_sample(&e) => first = first.or(Some(e)),
            Err(e) => return Err(e),
        }
    }
    let e = first.unwrap_or_else(|| Error::config("the data set has no samples to write"));
    Err(e.with_hint(format!(
        "of {} samples that were tried none can be written",
        elements.min(TRIALS) + TRIALS
    )))
}

/// Whether an error is the sample's own. An outage is not, nor a defect, nor what cannot be written at all.
fn is_bad_sample(error: &Error) -> bool {
    !matches!(error.kind(), ErrorKind::Transient | ErrorKind::Config | ErrorKind::State | ErrorKind::Internal)
}

/// What tells these samples in this order from others: the fingerprint of the plan, some picks of its order, since a
/// fingerprint leaves ranks out, and a sample, since it does not know what is in memory.
fn identity(
    dataset: &Dataset,
    lowered: &Lowered,
    maker: &Maker<'_>,
    elements: u64,
    first: &Made,
) -> Result<String> {
    const PICKS: u64 = 64;
    let mut picks = Vec::new();
    let mut content = Vec::new();
    for nth in 0..PICKS.min(elements) {
        let position = (u128::from(elements) * u128::from(nth) / u128::from(PICKS.min(elements))) as u64;
        maker.order.sample_at(position, 0, &mut picks)?;
        for pick in &picks {
            for number in [pick.leaf as u64, pick.index, pick.epoch] {
                content.extend_from_slice(&number.to_le_bytes());
            }
        }
    }
    let mut add = |what: &str, bytes: &[u8]| {
        content.extend_from_slice(what.as_bytes());
        content.extend_from_slice(&rapidhash::v3::rapidhash_v3(bytes).to_le_bytes());
    };
    match &first.body {
        Body::Files(files) => files.iter().for_each(|(extension, bytes)| add(extension, bytes)),
        Body::Record(bytes) => add("", bytes),
        Body::Cells(cells) => cells.iter().for_each(|cell| match cell {
            Cell::Image(_, bytes) | Cell::Bytes(bytes) | Cell::Array(_, _, bytes) => add("", bytes),
            Cell::Int(number) => add("", &number.to_le_bytes()),
        }),
    }
    content.extend_from_slice(first.name.as_bytes());
    content.extend_from_slice(format!("{:?}", maker.layout).as_bytes());
    let plan = dataset.outline(lowered).fingerprint;
    Ok(format!("{plan:016x}{:016x}", rapidhash::v3::rapidhash_v3(&content)))
}

/// Of the shuffle next to the end.
fn seed(node: &Node) -> Option<u64> {
    match node {
        Node::Shuffle { seed, .. } => Some(*seed),
        _ => node.inputs().first().and_then(seed),
    }
}

/// The folder, locked: two runs that write the same shards would mix theirs.
struct Folder {
    lock: PathBuf,
    _file: File,
    made: Option<PathBuf>,
}

impl Folder {
    fn open(place: &Place) -> Result<Self> {
        let made = (!place.folder.exists()).then(|| place.folder.clone());
        fs::create_dir_all(&place.folder)
            .map_err(|e| Error::io("make the folder", place.folder.display(), e))?;
        let lock = place.folder.join(place.lock());
        for _ in 0..10 {
            let file = File::create(&lock).map_err(|e| Error::io("create", lock.display(), e))?;
            match file.try_lock() {
                Err(TryLockError::WouldBlock) => {
                    let what =
                        format!("another process is writing {}", place.folder.join(place.shard(0)).display());
                    return Err(Error::config(what).with_hint("wait for it, or write under another name"));
                }
                // File systems without locks: there is none to be had.
                Ok(()) | Err(TryLockError::Error(_)) => {}
            }
            // The one that was locked may have been removed by the process that had it.
            if same_file(&file, &lock) {
                return Ok(Self { lock, _file: file, made });
            }
        }
        Err(Error::config(format!("{} cannot be locked", lock.display())))
    }
}

#[cfg(unix)]
fn same_file(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let one = file.metadata().map(|meta| (meta.dev(), meta.ino()));
    let other = fs::metadata(path).map(|meta| (meta.dev(), meta.ino()));
    matches!((one, other), (Ok(one), Ok(other)) if one == other)
}

#[cfg(not(unix))]
fn same_file(_: &File, path: &Path) -> bool {
    path.exists()
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.lock);
        if let Some(made) = &self.made {
            // If nothing is in it.
            let _ = fs::remove_dir(made);
        }
    }
}

/// The manifest to go on with, and the number of shards that are there.
fn begin(disk: &dyn Disk, place: &Place, new: Manifest, on_error: OnError) -> Result<(Manifest, u64)> {
    let path = place.folder.join(place.manifest());
    let there = names_in(&place.folder)?;
    for part in &there {
        let whole = Place::whole(part);
        let index = part.split_once(".wfidx.").filter(|(_, rest)| rest.ends_with(".tmp"));
        let written = whole
            .is_some_and(|name| place.is_shard(name) || name == place.manifest() || name == form::mds::INDEX);
        if written || index.is_some_and(|(shard, _)| place.is_shard(shard)) {
            disk.remove(&place.folder.join(part));
        }
    }
    let manifest = match Manifest::load(&path)? {
        Some(mut earlier) if !earlier.shards.is_empty() => {
            new.check_goes_on(&earlier, place)?;
            earlier.keep_what_is_there(&place.folder);
            if new.settings.format == Format::Mds && !earlier.complete {
                // An index would say that shards are there which are not.
                disk.remove(&place.folder.join(form::mds::INDEX));
            }
            if on_error == OnError::Raise && !earlier.skipped.is_empty() {
                let count = earlier.skipped.len();
                return Err(Error::config(format!(
                    "{} lists {count} samples that were left out",
                    path.display()
                ))
                .with_hint("go on with on_error=\"skip\", or write to another folder"));
            }
            earlier
        }
        earlier => {
            let taken = there.iter().find(|name| place.is_shard(name));
            if let (None, Some(name)) = (&earlier, taken) {
                let shown = place.folder.join(name);
                return Err(Error::config(format!(
                    "{} is there already, and no {}",
                    shown.display(),
                    place.manifest()
                ))
                .with_hint("write to another folder or under other names, or remove those shards"));
            }
            if earlier.is_none() {
                place.check_beside(new.settings.format, &there)?;
            }
            new.save(disk, place)?;
            new
        }
    };
    let before = manifest.shards.len() as u64;
    Ok((manifest, before))
}

fn names_in(folder: &Path) -> Result<Vec<String>> {
    let list = || -> io::Result<Vec<String>> {
        let entries = fs::read_dir(folder)?;
        entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    };
    list().map_err(|e| Error::io("list", folder.display(), e))
}

/// Writes what is not there yet.
fn fill(
    disk: &dyn Disk,
    place: &Place,
    maker: &Maker<'_>,
    form: &dyn Form,
    manifest: &Mutex<Manifest>,
    options: &WriteOptions,
    progress: &Progress,
) -> Result<()> {
    let (start, number, elements) = {
        let manifest = lock_of(manifest);
        (manifest.end(), manifest.shards.len() as u64, manifest.elements)
    };
    let sources = &maker.lowered.sources;
    let far = sources.iter().any(|source| source.store().is_some_and(|store| store.remote().is_some()));
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let threads = options.num_workers.fixed().unwrap_or(if far { cores.max(FAR) } else { cores }).max(1);
    let chunk = if sources.iter().all(|source| source.in_memory()) { 16 } else { 1 };
    let window = (threads as u64).saturating_mul(chunk).saturating_mul(32);
    let queue = Queue::new(start, elements, chunk, window, WAITING);
    let failed = AtomicBool::new(false);
    let work = || {
        let mut scratch = MakeScratch::default();
        while let Some(positions) = queue.claim() {
            let start = positions.start;
            let made =
                positions.map(|position| guarded(|| maker.make(position, form, &mut scratch))).collect();
            progress.made(std::mem::take(&mut scratch.reading), std::mem::take(&mut scratch.making));
            queue.hand_over(start, made);
        }
    };
    let (closed, taken) = sync_channel(1);
    let (written, finished) = thread::scope(|scope| {
        let named = |name: &str| thread::Builder::new().name(name.to_owned());
        let finisher = named("wellfed-finish").spawn_scoped(scope, || {
            let result = guarded(|| finish(taken, manifest, disk, place, form, progress));
            failed.store(result.is_err(), Relaxed);
            result
        });
        let finisher = match finisher {
            Ok(finisher) => finisher,
            Err(e) => return (Err(Error::io("start", "a thread", e)), Ok(())),
        };
        let started =
            (0..threads).filter(|_| named("wellfed-make").spawn_scoped(scope, work).is_ok()).count();
        let mut shards = Shards {
            disk,
            place,
            form,
            most: Most {
                bytes: lock_of(manifest).settings.max_bytes,
                samples: options.max_samples.unwrap_or(u64::MAX),
            },
            progress,
            closed,
            number,
            start,
            open: None,
            skipped: Vec::new(),
        };
        let written = if started == 0 {
            Err(Error::new(ErrorKind::Io, "no thread can be started"))
        } else {
            let stop = || progress.is_stopped() || failed.load(Relaxed);
            guarded(|| drain(&queue, &mut shards, elements, options.on_error, &stop))
        };
        queue.end();
        let skipped = std::mem::take(&mut shards.skipped);
        // What is not closed vanishes, and the finisher gets no more.
        drop(shards);
        let finished =
            finisher.join().unwrap_or_else(|_| Err(Error::new(ErrorKind::Internal, "a thread panicked")));
        (written.map(|()| skipped), finished)
    });
    // What failed in finishing is why no more shards were taken.
    finished?;
    let skipped = written?;
    let mut manifest = lock_of(manifest);
    manifest.skipped.extend(skipped);
    if let Some((name, bytes)) = form.beside(&manifest.shards)? {
        let mut part = Part::create(disk, &place.folder, name)?;
        part.write(&bytes)?;
        part.finish()?;
    }
    manifest.complete = true;
    manifest.save(disk, place)
}

/// Writes what comes out of the queue, in order.
fn drain(
    queue: &Queue,
    shards: &mut Shards<'_>,
    elements: u64,
    on_error: OnError,
    stop: &dyn Fn() -> bool,
) -> Result<()> {
    let mut start = Instant::now();
    let mut next = shards.start;
    while let Some((position, made)) = queue.take(stop) {
        let waited = start.elapsed();
        let taken = Instant::now();
        for (position, sample) in (position..).zip(made) {
            match sample {
                Ok(sample) => shards.add(position, sample)?,
                Err(e) if on_error == OnError::Skip && is_bad_sample(&e) => shards.skip(position, &e),
                Err(e) => return Err(e),
            }
            next = position + 1;
        }
        start = Instant::now();
        shards.progress.waited(waited, start - taken);
    }
    if next < elements {
        return Err(Error::new(
            ErrorKind::State,
            format!("writing was stopped after {next} of {elements} samples"),
        )
        .with_hint("the same call goes on behind the finished shards"));
    }
    shards.close(elements)
}

/// Runs `work`, and makes an error of a panic.
fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    // What a panic leaves half-done is not looked at again, or replaced before it is used.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(Error::new(ErrorKind::Internal, format!("wellfed panicked: {text}")))
    })
}

#[cfg(test)]
mod tests;
