//! [`index_rows`]: row indexes of a whole source, made ahead of training.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use wellfed_jpeg::{Decoder, Format, Header, Options, Region};

use super::RowIndexCache;
use crate::{
    Error, ErrorKind, Limits, Result,
    codec::{self, is_jpeg, jpeg_error},
    lock,
    plan::RowIndexing,
    sample::{FieldKind, Record, Value},
    source::Source,
};

/// Samples a thread takes at once.
const CHUNK: u64 = 16;

/// How often what was found is written, so that little is lost if this is ended early.
const SAVE_EVERY: Duration = Duration::from_secs(20);

/// What [`index_rows`] did.
#[derive(Debug, Default)]
pub struct Indexed {
    /// Images whose index was made or completed.
    pub new: u64,
    /// Images whose index was complete.
    pub known: u64,
    /// Progressive JPEGs, and those whose components lie in several scans: they are decoded as a whole.
    pub without_rows: u64,
    /// Images of other formats.
    pub others: u64,
    /// Samples that could not be read or decoded, by index.
    pub bad: Vec<(u64, Error)>,
    /// Why files could not be written, if they could not.
    pub problem: Option<String>,
    /// The files that hold the indexes.
    pub files: Vec<String>,
}

impl Indexed {
    fn add(&mut self, other: Self) {
        self.new += other.new;
        self.known += other.known;
        self.without_rows += other.without_rows;
        self.others += other.others;
        self.bad.extend(other.bad);
    }
}

/// Makes the row indexes of all JPEGs of `source` on `workers` threads and keeps them in files as `row_index` says,
/// where loaders with the same option find them. What such files hold already is checked against the images and
/// kept. `progress` is told how many samples were looked at since it was last called.
///
/// # Errors
/// [`ErrorKind::Config`] if `row_index` names no files, or files are not possible for this source.
pub fn index_rows(
    source: Arc<dyn Source>,
    row_index: &RowIndexing,
    workers: usize,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Indexed> {
    let cache = match row_index {
        RowIndexing::Off | RowIndexing::Memory => None,
        // What is found goes to files often, so that memory needs no limit.
        _ => RowIndexCache::open(source.clone(), row_index, u64::MAX)?,
    };
    let Some(cache) = cache else {
        return Err(Error::config("indexes made ahead are kept in files: beside the images or in a folder"));
    };
    let fields: Vec<usize> = (source.schema().fields.iter().enumerate())
        .filter(|(_, field)| field.kind == FieldKind::Image)
        .map(|(number, _)| number)
        .collect();
    if fields.is_empty() {
        return Err(Error::config(format!("{} has no encoded images", source.name())));
    }
    let (next, saved) = (AtomicU64::new(0), Mutex::new(Instant::now()));
    let (saving, all) = (AtomicBool::new(false), Mutex::new(Indexed::default()));
    let work = || {
        let mut indexer = Indexer::new(&*source, &cache, &fields);
        loop {
            let start = next.fetch_add(CHUNK, Relaxed);
            let end = start.saturating_add(CHUNK).min(source.len());
            if start >= end {
                break;
            }
            (start..end).for_each(|index| indexer.sample(index));
            progress(end - start);
            if lock(&saved).elapsed() >= SAVE_EVERY && !saving.swap(true, Relaxed) {
                cache.save_and_forget();
                *lock(&saved) = Instant::now();
                saving.store(false, Relaxed);
            }
        }
        lock(&all).add(indexer.done);
    };
    thread::scope(|scope| {
        for _ in 1..workers.max(1) {
            // Without more threads it only takes longer.
            drop(thread::Builder::new().spawn_scoped(scope, work));
        }
        work();
    });
    cache.save_and_forget();
    let mut all = all.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    all.bad.sort_by_key(|(index, _)| *index);
    all.problem = cache.stats().problem;
    all.files = cache.paths().map(str::to_owned).collect();
    Ok(all)
}

/// Looks at samples one by one, with memory of its own.
struct Indexer<'a> {
    source: &'a dyn Source,
    cache: &'a RowIndexCache,
    fields: &'a [usize],
    record: Record,
    decoder: Decoder,
    done: Indexed,
}

impl<'a> Indexer<'a> {
    fn new(source: &'a dyn Source, cache: &'a RowIndexCache, fields: &'a [usize]) -> Self {
        let (record, decoder, done) = (Record::default(), Decoder::new(), Indexed::default());
        Self { source, cache, fields, record, decoder, done }
    }

    fn sample(&mut self, index: u64) {
        let looked = catch_unwind(AssertUnwindSafe(|| self.look(index)));
        let looked = looked.unwrap_or_else(|_| {
            (self.record, self.decoder) = (Record::default(), Decoder::new());
            Err(Error::new(ErrorKind::Internal, "the decoder panicked").with_stage("decode"))
        });
        if let Err(error) = looked {
            self.done.bad.push((index, error));
        }
    }

    fn look(&mut self, index: u64) -> Result<()> {
        self.source.fetch(index, &mut self.record)?;
        let mut result = Ok(());
        for &field in self.fields {
            let bytes = match self.record.values.get(field) {
                Some(Value::Bytes(bytes)) => bytes.as_slice(),
                _ => self.source.resident(index, field).unwrap_or_default(),
            };
            if !is_jpeg(bytes) {
                match codec::require(bytes) {
                    Ok(_) => self.done.others += 1,
                    Err(error) => result = result.and(Err(error.with_stage("decode"))),
                }
                continue;
            }
            let image = image(bytes, self.cache, index, field, &self.record.limits, &mut self.decoder);
            match image {
                Ok(Found::New) => self.done.new += 1,
                Ok(Found::Known) => self.done.known += 1,
                Ok(Found::None) => self.done.without_rows += 1,
                Err(error) => {
                    let offset = self.record.offsets.get(field).copied().unwrap_or(0);
                    let error = error.with_stage("decode").within(offset);
                    result = result.and(Err(error));
                }
            }
        }
        result
    }
}

enum Found {
    New,
    Known,
    None,
}

/// Makes or completes the index of one JPEG.
fn image(
    bytes: &[u8],
    cache: &RowIndexCache,
    index: u64,
    field: usize,
    limits: &Limits,
    decoder: &mut Decoder,
) -> Result<Found> {
    let Header { width, height, .. } = Header::parse(bytes).map_err(jpeg_error)?;
    limits.check_pixels(height, width)?;
    let known = cache.get(index, field).filter(|known| known.matches(bytes));
    // The last pixel: every row before it is passed over and noted.
    let options = Options {
        region: Some(Region { left: width - 1, top: height - 1, width: 1, height: 1 }),
        format: Format::Native,
        index: known.as_ref(),
        record: true,
        ..Options::default()
    };
    decoder.decode(bytes, &options).map_err(jpeg_error)?;
    Ok(match decoder.take_index() {
        Some(found) => {
            cache.put(index, field, &found);
            Found::New
        }
        None if known.is_some() => Found::Known,
        None => Found::None,
    })
}
