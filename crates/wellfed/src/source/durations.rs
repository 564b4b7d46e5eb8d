//! How long the sounds of a source are, which batches are cut by: found out once, from the heads of files or from what a list says.
//!
//! Invariant: a failure that may pass is an error of the whole pass, and nothing of it is kept. So durations are the same in
//! every pass over the same bytes.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use wellfed_audio::{Head, Segment};

use super::{Source, wav_part};
use crate::{
    Error, ErrorKind, Limits, Result, lock,
    sample::{FieldKind, Record, Span, Value},
    store::Store,
};

/// Samples that a thread looks at before it takes more.
const CHUNK: u64 = 32;

/// Threads that look at files of this machine at most. Those of a store that answers later wait most of the time.
const THREADS: usize = 16;
const REMOTE_THREADS: usize = 32;

/// Bytes at the start of a file that its head is looked for in.
const HEAD: usize = 4096;

/// The durations of all samples.
#[derive(Debug, Default)]
pub struct Durations {
    nanoseconds: Vec<u64>,
    /// Sounds whose duration cannot be told, and why.
    failed: BTreeMap<u64, Error>,
}

impl Durations {
    /// Nanoseconds of sample `index`.
    ///
    /// # Errors
    /// What is wrong with that one sample.
    pub fn get(&self, index: u64) -> Result<u64> {
        if let Some(error) = self.failed.get(&index) {
            return Err(error.clone());
        }
        let found = usize::try_from(index).ok().and_then(|index| self.nanoseconds.get(index));
        found.copied().ok_or_else(|| Error::new(ErrorKind::NotFound, format!("there is no sample {index}")))
    }

    /// A hash of all of them, and of which samples failed.
    pub fn fingerprint(&self) -> u64 {
        let bytes: Vec<u8> =
            self.nanoseconds.iter().chain(self.failed.keys()).flat_map(|n| n.to_le_bytes()).collect();
        rapidhash::v3::rapidhash_v3(&bytes)
    }
}

/// The durations that a source found out, by field.
#[derive(Debug, Default)]
pub struct KeptDurations(Mutex<Vec<(usize, Arc<Durations>)>>);

/// The durations of `field` of all samples, if it is one of sounds whose durations `source` can tell. The first call looks at all
/// samples, on several threads; later ones give what it found.
///
/// # Errors
/// Those that may pass: an outage of the store.
pub fn durations(source: &dyn Source, field: usize) -> Result<Option<Arc<Durations>>> {
    let is_sound = source.schema().fields.get(field).is_some_and(|spec| spec.kind == FieldKind::Audio);
    let Some(kept) = source.kept_durations().filter(|_| is_sound) else { return Ok(None) };
    let mut kept = lock(&kept.0);
    if let Some((_, found)) = kept.iter().find(|(known, _)| *known == field) {
        return Ok(Some(found.clone()));
    }
    let found = Arc::new(find(source, field)?);
    kept.push((field, found.clone()));
    Ok(Some(found))
}

fn find(source: &dyn Source, field: usize) -> Result<Durations> {
    let len = source.len();
    let remote = source.store().is_some_and(|store| store.remote().is_some());
    let most = if remote { REMOTE_THREADS } else { THREADS };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let threads = if remote { most } else { cores.min(most) };
    let threads = threads.min(usize::try_from(len.div_ceil(CHUNK)).unwrap_or(most));
    let (next, outage) = (AtomicU64::new(0), AtomicBool::new(false));
    let parts = Mutex::new(Vec::new());
    let work = || {
        let mut record = Record::default();
        while !outage.load(Ordering::Relaxed) {
            let start = next.fetch_add(CHUNK, Ordering::Relaxed);
            let end = start.saturating_add(CHUNK).min(len);
            if start >= end {
                break;
            }
            let found: Vec<Result<f64>> =
                (start..end).map(|index| source.duration(index, field, &mut record)).collect();
            if found.iter().flat_map(|one| one.as_ref().err()).any(|e| e.kind() == ErrorKind::Transient) {
                outage.store(true, Ordering::Relaxed);
            }
            lock(&parts).push((start, found));
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            // Without more threads it only takes longer.
            drop(thread::Builder::new().name("wellfed-heads".to_owned()).spawn_scoped(scope, work));
        }
        work();
    });
    let mut parts = std::mem::take(&mut *lock(&parts));
    parts.sort_by_key(|(start, _)| *start);
    let mut all = Durations::default();
    for (index, found) in parts.into_iter().flat_map(|(start, found)| (start..).zip(found)) {
        let nanoseconds = match found {
            Ok(seconds) => nanoseconds(seconds),
            Err(error) if error.kind() == ErrorKind::Transient => return Err(error),
            Err(error) => {
                all.failed.insert(index, error);
                0
            }
        };
        all.nanoseconds.push(nanoseconds);
    }
    Ok(all)
}

/// Seconds as whole nanoseconds, which can be added and compared without rounding.
pub fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

/// Seconds of the part `span` of a file at `path`, of which no more is read than it takes: of WAV and FLAC the head.
///
/// # Errors
/// Those of the store; [`ErrorKind::Corrupt`] and others for bytes that are no sound.
pub(super) fn of_file(
    store: &dyn Store,
    path: &str,
    span: Option<Span>,
    buffer: &mut Vec<u8>,
) -> Result<f64> {
    // What a list says needs no look: the sample ends there.
    if let Some(Span { duration: Some(seconds), .. }) = span {
        return Ok(seconds);
    }
    let size = store.stat(path)?.size;
    buffer.clear();
    store.read_range(path, 0, HEAD.min(usize::try_from(size).unwrap_or(HEAD)), buffer)?;
    let whole = match wav_part::seconds(buffer, size).or_else(|| flac_seconds(buffer)) {
        Some(whole) => whole,
        None => {
            buffer.clear();
            store.read(path, Limits::default().max_bytes, buffer)?;
            return of_bytes(buffer, span);
        }
    };
    Ok(after(whole, span))
}

/// Seconds of the part `span` of a sound whose file these bytes are.
///
/// # Errors
/// [`ErrorKind::Corrupt`] and others for bytes that are no sound.
pub(super) fn of_bytes(bytes: &[u8], span: Option<Span>) -> Result<f64> {
    if let Some(Span { duration: Some(seconds), .. }) = span {
        return Ok(seconds);
    }
    let limits = wellfed_audio::Limits::default();
    let unknown = |error: wellfed_audio::Error| {
        let kind = match error.kind() {
            wellfed_audio::ErrorKind::Unsupported => ErrorKind::Unsupported,
            wellfed_audio::ErrorKind::Limit => ErrorKind::Limit,
            _ => ErrorKind::Corrupt,
        };
        Error::new(kind, error.message()).with_stage("decode")
    };
    let head = Head::parse(bytes, &limits).map_err(unknown)?;
    let whole = match head.duration() {
        Some(whole) => whole,
        // A file that does not tell is decoded.
        None => {
            let sound = wellfed_audio::decode(bytes, Segment::default(), &limits).map_err(unknown)?;
            sound.frames() as f64 / f64::from(head.sample_rate)
        }
    };
    Ok(after(whole, span))
}

/// Seconds of the sound in a field that was fetched.
///
/// # Errors
/// As [`of_bytes`].
pub(super) fn of_record(record: &Record, field: usize) -> Result<f64> {
    let bytes = match record.values.get(field) {
        Some(Value::Bytes(bytes)) => bytes.as_slice(),
        Some(Value::Shared(bytes)) => bytes,
        _ => return Err(Error::new(ErrorKind::Internal, "a sound has no bytes")),
    };
    of_bytes(bytes, record.spans.get(field).copied().flatten())
}

/// What is left from the beginning of a span on.
fn after(whole: f64, span: Option<Span>) -> f64 {
    (whole - span.map_or(0.0, |span| span.offset)).max(0.0)
}

/// Seconds of a FLAC file by its first block; `None` where that does not tell, and for other files.
fn flac_seconds(head: &[u8]) -> Option<f64> {
    let info = head.get(8..42).filter(|_| head.starts_with(b"fLaC") && head[4] & 0x7F == 0)?;
    // 20 bits of rate, 3 of channels, 5 of sample size, 36 of the number of frames.
    let bits = u64::from_be_bytes(info.get(10..18)?.try_into().ok()?);
    let (rate, frames) = (bits >> 44, bits & 0xF_FFFF_FFFF);
    (rate > 0 && frames > 0).then(|| frames as f64 / rate as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        source::{AudioFiles, AudioFilesSpec, ImageFolder, ImageFolderSpec},
        store::LocalStore,
        testing::TempFolder,
    };

    const SOUNDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../wellfed-audio/tests/sounds");

    #[test]
    fn heads_tell_what_decoding_gives() {
        let store = LocalStore::new();
        let (mut seen, mut buffer) = (Vec::new(), Vec::new());
        for entry in std::fs::read_dir(SOUNDS).unwrap() {
            let path = entry.unwrap().path();
            let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default().to_owned();
            let bytes = std::fs::read(&path).unwrap();
            let Ok(sound) = wellfed_audio::decode(&bytes, Segment::default(), &Default::default()) else {
                continue;
            };
            let decoded = sound.frames() as f64 / f64::from(sound.sample_rate);
            let path = path.to_str().unwrap();
            let found = of_file(&store, path, None, &mut buffer).unwrap();
            // What codecs with a delay add at the end is not always in the head.
            let near = if matches!(&*ending, "mp3" | "ogg") { 0.06 } else { 1e-9 };
            assert!((found - decoded).abs() <= near, "{path}: {found} instead of {decoded} seconds");
            let part = Span { offset: 0.01, duration: None };
            let rest = of_file(&store, path, Some(part), &mut buffer).unwrap();
            assert!((rest - (found - 0.01)).abs() < 1e-9, "{path}");
            let said = Span { offset: 0.01, duration: Some(7.5) };
            assert_eq!(of_file(&store, path, Some(said), &mut buffer).unwrap(), 7.5);
            seen.push(ending);
        }
        seen.sort();
        seen.dedup();
        assert_eq!(seen, ["aac", "aiff", "flac", "m4a", "mp3", "ogg", "opus", "wav"]);
    }

    #[test]
    fn samples_that_cannot_be_read_fail_alone_and_are_found_once() {
        let folder = TempFolder::new();
        let sound = std::fs::read(format!("{SOUNDS}/s16.wav")).unwrap();
        for (name, bytes) in [("a.wav", &*sound), ("b.wav", b"no sound"), ("c.wav", &*sound)] {
            folder.write(name, bytes);
        }
        let spec =
            ImageFolderSpec { labels: crate::source::Labels::None, ..ImageFolderSpec::new(folder.join("")) };
        let source = ImageFolder::open_audio(Arc::new(LocalStore::new()), spec).unwrap();
        let found = durations(&source, 0).unwrap().unwrap();
        assert!(found.get(0).unwrap() > 0);
        assert_eq!(found.get(0).unwrap(), found.get(2).unwrap());
        assert_eq!(found.get(1).unwrap_err().key(), Some("b.wav"));
        assert_eq!(found.get(3).unwrap_err().kind(), ErrorKind::NotFound);
        std::fs::remove_file(folder.join("a.wav")).unwrap();
        assert!(Arc::ptr_eq(&found, &durations(&source, 0).unwrap().unwrap()));
        assert!(durations(&source, 1).unwrap().is_none());
    }

    #[test]
    fn what_a_list_says_is_believed() {
        let array = |values: &[f64]| {
            let bytes = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
            crate::source::ArrayData::from_vec(bytes, crate::sample::DType::Float64, vec![values.len()])
                .unwrap()
        };
        let path = format!("{SOUNDS}/s16.wav\0none.wav");
        let text = crate::source::ArrayData::from_vec(
            path.clone().into_bytes(),
            crate::sample::DType::UInt8,
            vec![path.len()],
        );
        let spec = AudioFilesSpec { count: 2, durations: true, ..AudioFilesSpec::default() };
        let store: Arc<dyn Store> = Arc::new(LocalStore::new());
        let source = AudioFiles::open(&store, spec, vec![text.unwrap(), array(&[f64::NAN, 2.5])]).unwrap();
        let found = durations(&source, 0).unwrap().unwrap();
        assert_eq!(found.get(1).unwrap(), 2_500_000_000);
        assert!(found.get(0).unwrap() > 0);
    }
}
