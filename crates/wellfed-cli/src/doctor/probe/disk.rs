//! What the disk can do with the files of a data set: one after the other, and in random order with several readers.

use std::{
    fs::File,
    io::{self, Write},
    os::unix::fs::FileExt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use serde::Serialize;

use super::files::{Files, forget, from_storage};

/// Readers at once.
const READERS: [usize; 4] = [1, 2, 4, 8];

/// Bytes of one read in order.
const LONG: u64 = 1 << 20;

/// Bytes of one read at random from a large file: about an image.
const SHORT: u64 = 128 << 10;

/// How many more bytes a second show that waiting decided, not the disk's bandwidth.
const MORE: f64 = 1.8;

/// Figures of the disk, bytes a second.
#[derive(Debug, Serialize)]
pub(super) struct DiskReport {
    /// Read in order, by one reader.
    sequential: f64,
    /// Read in random order: readers and bytes a second.
    random: Vec<Random>,
    /// `latency`, `bandwidth`, or `memory` if the files came from there.
    bound: &'static str,
}

#[derive(Debug, Serialize)]
struct Random {
    readers: usize,
    bytes_per_second: f64,
    reads_per_second: f64,
    /// Milliseconds of one read with its opening, mean.
    milliseconds: f64,
}

/// A stretch of a file.
type Extent<'a> = (&'a Path, u64, u64);

struct Figure {
    bytes: f64,
    reads: f64,
    seconds: f64,
    cold: bool,
}

/// Measures for about `time`; `None` if there is no file.
pub(super) fn measure(files: &Files, time: Duration) -> Option<DiskReport> {
    if files.0.is_empty() {
        return None;
    }
    let each = time / 5;
    let in_order: Vec<_> = files.0.iter().flat_map(|(path, size)| extents(path, *size, LONG)).collect();
    let mut shuffled: Vec<_> = files
        .0
        .iter()
        .flat_map(|(path, size)| extents(path, *size, if *size > LONG { SHORT } else { LONG }))
        .collect();
    shuffle(&mut shuffled);
    let sequential = read(&in_order, 1, each);
    let mut cold = sequential.cold;
    let random = READERS.map(|readers| {
        let figure = read(&shuffled, readers, each);
        cold &= figure.cold;
        Random {
            readers,
            bytes_per_second: figure.bytes / figure.seconds,
            reads_per_second: figure.reads / figure.seconds,
            milliseconds: figure.seconds * 1e3 * readers as f64 / figure.reads.max(1.0),
        }
    });
    let mut report = DiskReport {
        sequential: sequential.bytes / sequential.seconds,
        random: random.into(),
        bound: "memory",
    };
    if cold {
        report.bound = report.bound();
    }
    Some(report)
}

fn extents(path: &Path, size: u64, step: u64) -> impl Iterator<Item = Extent<'_>> {
    (0..size.div_ceil(step)).map(move |i| (path, i * step, step.min(size - i * step)))
}

/// The same order every time.
fn shuffle(extents: &mut [Extent<'_>]) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for i in (1..extents.len()).rev() {
        // xorshift64: more is not needed to defeat read-ahead.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        extents.swap(i, (state % (i as u64 + 1)) as usize);
    }
}

/// Reads as many of `extents` as can be read in `time`, which nothing holds in memory before.
fn read(extents: &[Extent<'_>], readers: usize, time: Duration) -> Figure {
    // Forgetting many small files takes time itself.
    let deadline = Instant::now() + time / 4;
    let mut forgotten = 0;
    let mut last: Option<&Path> = None;
    for (path, _, _) in extents {
        if last != Some(path) {
            forget(path);
            last = Some(path);
        }
        forgotten += 1;
        if Instant::now() >= deadline {
            break;
        }
    }
    let extents: Arc<[(std::path::PathBuf, u64, u64)]> =
        extents[..forgotten].iter().map(|(path, offset, len)| (path.to_path_buf(), *offset, *len)).collect();
    let before = from_storage();
    let (next, bytes, reads) =
        (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let begin = Instant::now();
    let deadline = begin + time * 3 / 4;
    let work = || {
        let mut buffer = vec![0; LONG as usize];
        while Instant::now() < deadline {
            let Some((path, offset, len)) = extents.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
            let buffer = &mut buffer[..*len as usize];
            let Ok(read) = File::open(path).and_then(|file| file.read_at(buffer, *offset)) else { continue };
            bytes.fetch_add(read as u64, Ordering::Relaxed);
            reads.fetch_add(1, Ordering::Relaxed);
        }
    };
    thread::scope(|scope| {
        for _ in 1..readers {
            // With fewer threads the figure is lower than it could be, but not wrong.
            drop(thread::Builder::new().spawn_scoped(scope, work));
        }
        work();
    });
    let (bytes, reads) = (bytes.load(Ordering::Relaxed) as f64, reads.load(Ordering::Relaxed) as f64);
    let stored = from_storage().zip(before).map(|(now, before)| now.saturating_sub(before) as f64);
    Figure {
        bytes,
        reads,
        seconds: begin.elapsed().as_secs_f64().max(1e-9),
        cold: stored.is_some_and(|stored| stored > bytes / 2.0),
    }
}

impl DiskReport {
    #[cfg(test)]
    pub(super) fn of(sequential: f64, random: &[(usize, f64)]) -> Self {
        let random = random.iter().map(|(readers, bytes)| Random {
            readers: *readers,
            bytes_per_second: *bytes,
            reads_per_second: 1.0,
            milliseconds: 1.0,
        });
        let mut this = Self { sequential, random: random.collect(), bound: "memory" };
        this.bound = this.bound();
        this
    }

    /// Whether these are no figures of a disk.
    pub(super) fn is_memory(&self) -> bool {
        self.bound == "memory"
    }

    /// Most bytes a second that were seen in random order.
    pub(super) fn best(&self) -> Option<f64> {
        self.random.iter().map(|random| random.bytes_per_second).max_by(f64::total_cmp)
    }

    fn bound(&self) -> &'static str {
        let one = self.random.first().map_or(0.0, |random| random.bytes_per_second);
        if self.best().is_some_and(|best| best > one * MORE) { "latency" } else { "bandwidth" }
    }

    pub(super) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "disk, in order               {:>9.1} MB/s", self.sequential / 1e6)?;
        for random in &self.random {
            writeln!(
                out,
                "disk, random, {} reader{}       {:>9.1} MB/s {:>9.0} reads/s  {:.2} ms each",
                random.readers,
                if random.readers == 1 { " " } else { "s" },
                random.bytes_per_second / 1e6,
                random.reads_per_second,
                random.milliseconds
            )?;
        }
        let text = match self.bound {
            "latency" => {
                "more readers read more: waiting for single reads decides, so read ahead or with more workers"
            }
            "bandwidth" => {
                "more readers do not read more: the bandwidth of the disk (or the processor) decides"
            }
            _ => {
                "the file system kept files in memory though asked not to: these are figures of memory, not of a disk"
            }
        };
        writeln!(out, "{text}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_is_told_from_bandwidth() {
        assert_eq!(DiskReport::of(1.0, &[(1, 10.0), (2, 20.0), (8, 70.0)]).bound, "latency");
        assert_eq!(DiskReport::of(1.0, &[(1, 10.0), (2, 11.0), (8, 9.0)]).bound, "bandwidth");
        assert_eq!(DiskReport::of(1.0, &[(1, 10.0), (2, 11.0)]).best(), Some(11.0));
    }

    #[test]
    fn extents_cover_a_file_once() {
        let path = Path::new("x");
        let lens: Vec<_> = extents(path, 10, 4).map(|(_, offset, len)| (offset, len)).collect();
        assert_eq!(lens, [(0, 4), (4, 4), (8, 2)]);
        let mut all: Vec<_> = extents(path, 1000, 1).collect();
        shuffle(&mut all);
        assert_ne!(all[0].1, 0);
        all.sort_by_key(|extent| extent.1);
        assert!(all.iter().enumerate().all(|(i, extent)| extent.1 == i as u64));
    }

    #[test]
    fn every_byte_is_read() {
        let path = std::env::temp_dir().join(format!("wellfed-disk-{}", std::process::id()));
        std::fs::write(&path, vec![1; 3_000_000]).unwrap();
        let all: Vec<_> = extents(&path, 3_000_000, LONG).collect();
        let figure = read(&all, 2, Duration::from_secs(60));
        assert_eq!((figure.bytes, figure.reads), (3_000_000.0, 3.0));
        std::fs::remove_file(path).unwrap();
    }
}
