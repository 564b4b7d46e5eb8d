//! What a loader shows of itself to other processes of its user: its counters, in memory without a name.
//!
//! A `Publisher` writes a [`Snapshot`] into an anonymous file (`memfd`), which lives as long as somebody has it open:
//! nothing stays behind when the process is killed. Others find it among the open files of the process. It has a fixed
//! size, and is rewritten in place while others read. Invariant: what [`read`] gives was written at one time, since a
//! checksum covers all of it.
//!
//! ```text
//! 0 magic "wellfed\0" | 8 version u32 | 12 bytes of JSON u32 | 16 sequence number u64 | 24 CRC-32 u32 | 28 zero | 32 JSON
//! ```
//!
//! Numbers are in native byte order, as both sides are on one machine. The checksum is over bytes 8 to 24 and the JSON.

use std::{
    fs::File,
    io,
    sync::{
        Mutex, TryLockError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};

use super::Stats;
use crate::{Error, ErrorKind, Result, memory::anonymous_file};

/// What the file is called where open files are listed.
pub const NAME: &str = "wellfed-stats";

/// Bytes of the file.
pub const SIZE: usize = 32 << 10;

/// Shortest time between two snapshots. Each takes about 5 us.
pub const INTERVAL: Duration = Duration::from_millis(250);

/// The same for the last one of an epoch, which may be the last one for long.
pub(crate) const LAST_INTERVAL: Duration = Duration::from_millis(25);

const NEVER: u64 = u64::MAX;

const MAGIC: [u8; 8] = *b"wellfed\0";
const VERSION: u32 = 1;
const HEADER: usize = 32;

/// Characters of a text at most: names of folders and messages may be of any length.
const MAX_TEXT: usize = 1000;

/// How often a reader tries again that came upon a half-written snapshot.
const TRIES: usize = 20;

/// A loader at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The process it belongs to, as that process sees itself.
    pub process: u32,
    /// Seconds since 1970.
    pub time: f64,
    /// Where samples come from.
    pub source: String,
    /// Batches that were complete when the consumer asked for the last one.
    pub ready: usize,
    /// Its counters.
    pub stats: Stats,
}

impl Snapshot {
    /// A loader of `source` in this process, now.
    pub(crate) fn now(source: String, ready: usize, stats: Stats) -> Self {
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let mut this = Self { process: std::process::id(), time, source, ready, stats };
        let rows = this.stats.row_index.as_mut().and_then(|rows| rows.problem.as_mut());
        let cache = this.stats.cache.as_mut().map(|cache| [&mut cache.problem, &mut cache.path]);
        let cache = cache.into_iter().flatten().flatten();
        let locks = this.stats.page_locked.as_mut().and_then(|locks| locks.problem.as_mut());
        for text in rows.into_iter().chain(locks).chain(cache).chain([&mut this.source]) {
            if let Some((end, _)) = text.char_indices().nth(MAX_TEXT) {
                text.truncate(end);
                text.push('…');
            }
        }
        this
    }
}

/// Writes snapshots of one loader.
#[derive(Debug)]
pub(crate) struct Publisher {
    file: File,
    /// When the last snapshot was written, in nanoseconds of the loader's clock; `NEVER` at first.
    last: AtomicU64,
    sequence: Mutex<u64>,
}

impl Publisher {
    /// # Errors
    /// Where the system has no such files, or gives none.
    pub(crate) fn new() -> io::Result<Self> {
        let file = anonymous_file(NAME)?;
        file.set_len(SIZE as u64)?;
        Ok(Self { file, last: AtomicU64::new(NEVER), sequence: Mutex::new(0) })
    }

    /// Whether a snapshot is due `now`, in nanoseconds of the loader's clock, as the last one was before `gap`. True for
    /// one caller.
    pub(crate) fn due(&self, now: u64, gap: Duration) -> bool {
        let last = self.last.load(Relaxed);
        let due = last == NEVER || now >= last.saturating_add(gap.as_nanos() as u64);
        due && self.last.compare_exchange(last, now, Relaxed, Relaxed).is_ok()
    }

    /// Writes a snapshot. Does not wait for another thread that is about it.
    pub(crate) fn write(&self, snapshot: &Snapshot) -> io::Result<()> {
        let mut sequence = match self.sequence.try_lock() {
            Ok(sequence) => sequence,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(()),
        };
        *sequence += 1;
        write_at(&self.file, &encode(snapshot, *sequence)?)
    }
}

/// The bytes of a snapshot.
fn encode(snapshot: &Snapshot, sequence: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; HEADER];
    serde_json::to_writer(&mut bytes, snapshot)?;
    if bytes.len() > SIZE {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("a snapshot of {} bytes", bytes.len()),
        ));
    }
    let length = (bytes.len() - HEADER) as u32;
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_ne_bytes());
    bytes[12..16].copy_from_slice(&length.to_ne_bytes());
    bytes[16..24].copy_from_slice(&sequence.to_ne_bytes());
    let sum = checksum(&bytes);
    bytes[24..28].copy_from_slice(&sum.to_ne_bytes());
    Ok(bytes)
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[8..24]);
    hasher.update(&bytes[HEADER..]);
    hasher.finalize()
}

/// What `bytes`, a whole file, say: a snapshot and its number. `None` if they were caught half-written, or nothing was
/// written yet.
fn decode(bytes: &[u8]) -> Result<Option<(u64, Snapshot)>> {
    let word = |at: usize| bytes.get(at..at + 4).map_or(0, |b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]]));
    let strange = |what: String| Err(Error::new(ErrorKind::Unsupported, what));
    if bytes.len() != SIZE {
        return strange(format!("statistics of {} bytes; they should have {SIZE}", bytes.len()));
    }
    if bytes[..8] == [0; 8] {
        return Ok(None);
    }
    if bytes[..8] != MAGIC {
        return strange("these are no statistics of a loader".to_owned());
    }
    if word(8) != VERSION {
        return strange(format!(
            "the loader writes statistics of version {}, this wellfed reads version {VERSION}",
            word(8)
        ));
    }
    let end = HEADER.saturating_add(word(12) as usize);
    if end > SIZE {
        return strange(format!("statistics of {} bytes, of which there are {SIZE}", word(12)));
    }
    if checksum(&bytes[..end]) != word(24) {
        return Ok(None);
    }
    let sequence = u64::from_ne_bytes(std::array::from_fn(|i| bytes[16 + i]));
    match serde_json::from_slice(&bytes[HEADER..end]) {
        Ok(snapshot) => Ok(Some((sequence, snapshot))),
        Err(error) => strange(format!("statistics that cannot be read: {error}")),
    }
}

/// The last snapshot in `file`, with its number: it grows by one from snapshot to snapshot. `None` if there is none yet.
///
/// # Errors
/// [`ErrorKind::Unsupported`] for anything but statistics of this version, [`ErrorKind::Io`] where reading fails.
pub fn read(file: &File) -> Result<Option<(u64, Snapshot)>> {
    let failed = |error| Error::io("read", "the statistics of a loader", error);
    for attempt in 0..TRIES {
        if attempt > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        // Nobody's word on sizes is taken: not more than is expected is read, and not less accepted.
        let len = file.metadata().map_err(failed)?.len();
        if len != SIZE as u64 {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("statistics of {len} bytes; they should have {SIZE}"),
            ));
        }
        let mut bytes = vec![0; SIZE];
        read_at(file, &mut bytes).map_err(failed)?;
        if let Some(found) = decode(&bytes)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

#[cfg(unix)]
fn write_at(file: &File, bytes: &[u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, 0)
}

#[cfg(unix)]
fn read_at(file: &File, bytes: &mut [u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, 0)
}

#[cfg(not(unix))]
fn write_at(_file: &File, _bytes: &[u8]) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(not(unix))]
fn read_at(_file: &File, _bytes: &mut [u8]) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::PageLockStats;
    use crate::meter::{CacheStats, Meter, RemoteCacheStats, RequestStats, RowIndexStats};

    fn snapshot(samples: u64) -> Snapshot {
        let stats = Stats {
            elapsed: 1.5,
            batches: 3,
            samples,
            bytes: 7,
            consumer_wait: 0.25,
            mean_ready: 0.5,
            num_workers: 2,
            prefetch: 4,
            read_ahead: 0,
            memory: 1,
            memory_budget: 2,
            errors: 0,
            row_index: Some(RowIndexStats::default()),
            cache: None,
            page_locked: None,
            requests: Some(RequestStats::default()),
            remote_cache: Some(RemoteCacheStats::default()),
            phases: Meter::new(false).phases(),
        };
        Snapshot::now("image_folder(größe)".to_owned(), 1, stats)
    }

    fn whole(snapshot: &Snapshot, sequence: u64) -> Vec<u8> {
        let mut bytes = encode(snapshot, sequence).unwrap();
        bytes.resize(SIZE, 0xFF);
        bytes
    }

    #[test]
    fn what_was_written_is_read() {
        let written = snapshot(9);
        for sequence in [1, 1 << 40 | 5] {
            assert_eq!(decode(&whole(&written, sequence)).unwrap(), Some((sequence, written.clone())));
        }
        assert_eq!(decode(&[0; SIZE]).unwrap(), None, "nothing was written yet");
    }

    #[test]
    fn a_changed_byte_anywhere_is_no_snapshot() {
        let bytes = whole(&snapshot(9), 1);
        let end = HEADER + u32::from_ne_bytes(bytes[12..16].try_into().unwrap()) as usize;
        for at in (0..28).chain(HEADER..end) {
            let mut torn = bytes.clone();
            torn[at] ^= 1;
            assert!(!matches!(decode(&torn), Ok(Some(_))), "byte {at}");
        }
    }

    #[test]
    fn what_is_something_else_is_named() {
        let bytes = whole(&snapshot(9), 1);
        let message = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = bytes.clone();
            change(&mut bytes);
            decode(&bytes).unwrap_err().to_string()
        };
        assert!(message(&|b| b[0] = b'W').contains("no statistics"));
        assert!(message(&|b| b[8..12].copy_from_slice(&9_u32.to_ne_bytes())).contains("version 9"));
        assert!(message(&|b| b[12..16].fill(0xFF)).contains("4294967295"));
        assert!(message(&|b| b.truncate(100)).contains("100 bytes"));
        let json = |b: &mut Vec<u8>| {
            b[HEADER] = b'[';
            let end = HEADER + u32::from_ne_bytes(b[12..16].try_into().unwrap()) as usize;
            let sum = checksum(&b[..end]);
            b[24..28].copy_from_slice(&sum.to_ne_bytes());
        };
        assert!(message(&json).contains("cannot be read"));
    }

    #[test]
    fn long_texts_are_cut() {
        let mut stats = snapshot(0).stats;
        let long = "\u{1}ä".repeat(SIZE);
        stats.cache = Some(CacheStats {
            path: Some(long.clone()),
            problem: Some(long.clone()),
            ..CacheStats::default()
        });
        stats.row_index.as_mut().unwrap().problem = Some(long.clone());
        stats.page_locked = Some(PageLockStats { problem: Some(long.clone()), ..PageLockStats::default() });
        let cut = Snapshot::now(long, 0, stats);
        assert_eq!(cut.source.chars().count(), MAX_TEXT + 1);
        assert!(encode(&cut, 1).unwrap().len() <= SIZE);
    }

    #[test]
    fn one_caller_an_interval_is_due() {
        let Ok(publisher) = Publisher::new() else { return };
        let gap = Duration::from_nanos(10);
        let seen = [0, 1, 9, 10, 11].map(|now| publisher.due(now, gap));
        assert_eq!(seen, [true, false, false, true, false]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn readers_see_whole_snapshots_while_they_are_written() {
        let publisher = Publisher::new().unwrap();
        assert_eq!(read(&publisher.file).unwrap(), None);
        publisher.write(&snapshot(1)).unwrap();
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for samples in 2.. {
                    if stop.load(Relaxed) {
                        return;
                    }
                    publisher.write(&snapshot(samples)).unwrap();
                }
            });
            let mut last = 0;
            for _ in 0..200 {
                if let Some((sequence, seen)) = read(&publisher.file).unwrap() {
                    assert_eq!(seen.stats.samples, sequence);
                    assert!(sequence >= last);
                    last = sequence;
                }
            }
            stop.store(true, Relaxed);
        });
        assert!(read(&publisher.file).unwrap().is_some());
    }
}
