//! What watching cannot tell is tried: whether storage answers slowly or has few bytes a second. Files that the script read are read
//! again, by one reader and by several at once, after the script ended. A slow answer takes as long in company, and so
//! several readers get several times the bytes; a narrow path gives all of them together what one gets alone.

use std::{
    fs::File,
    io::Read,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::{evidence::Evidence, run_dir::RunDir, system::Reads};

/// Readers that read at once in the second round.
const TOGETHER: u32 = 4;

/// Time for a round.
const ROUND: Duration = Duration::from_millis(600);

/// Bytes of a file that are read at most: enough to tell, and all of most samples.
const MOST: u64 = 4 << 20;

/// Tries storage, if the script's loaders waited for it and it is known which files they read.
pub fn storage(run: &RunDir) -> Vec<Reads> {
    let evidence = Evidence::of(run);
    let loading = &evidence.loading;
    let waits = loading.mean(crate::evidence::Batch::blocked) > 0.3 * loading.mean(|batch| batch.wall);
    if !waits || loading.files.len() < 2 {
        return Vec::new();
    }
    let files: Vec<&str> = loading.files.iter().map(|(path, _)| path.as_str()).collect();
    // No file is read in both rounds, since the second time it would come from memory.
    let (alone, together) = files.split_at(files.len() / 3);
    [(1, alone), (TOGETHER, together)].into_iter().map(|(readers, files)| round(files, readers)).collect()
}

fn round(files: &[&str], readers: u32) -> Reads {
    let next = AtomicUsize::new(0);
    let begin = Instant::now();
    let read = |_| {
        let (mut count, mut bytes, mut time) = (0, 0, Duration::ZERO);
        let mut buffer = Vec::new();
        while begin.elapsed() < ROUND {
            let Some(path) = files.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
            let start = Instant::now();
            // A file that has gone says nothing of storage.
            let Ok(mut file) = File::open(path) else { continue };
            forget(&file);
            // In one call, as a script reads a file: each call may be waited for.
            let size = file.metadata().map_or(0, |data| data.len()).min(MOST);
            buffer.resize(size as usize, 0);
            if size > 0 && file.read_exact(&mut buffer).is_ok() {
                count += 1;
                bytes += buffer.len() as u64;
                time += start.elapsed();
            }
        }
        (count, bytes, time)
    };
    let done: Vec<(u64, u64, Duration)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..readers).map(|number| scope.spawn(move || read(number))).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let count: u64 = done.iter().map(|(count, _, _)| count).sum();
    let time: f64 = done.iter().map(|(_, _, time)| time.as_secs_f64()).sum();
    Reads {
        readers,
        files: count,
        bytes: done.iter().map(|(_, bytes, _)| bytes).sum(),
        time: time / count.max(1) as f64,
        seconds: begin.elapsed().as_secs_f64(),
    }
}

/// Asks the kernel to drop the file's pages, so that storage is read and not memory. It may not, which shows as fast reads.
fn forget(file: &File) {
    #[cfg(target_os = "linux")]
    {
        use std::os::fd::AsRawFd;
        // SAFETY: the descriptor is open for as long as `file` lives; the call reads and writes no memory of ours.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = file;
}

/// Whether several readers together got about as many bytes a second as one: `None` if the rounds cannot tell, or if the reads were so
/// fast that they cannot be what took `wait` seconds a file.
pub fn narrow(rounds: &[Reads], wait: f64) -> Option<bool> {
    let [alone, together] = rounds else { return None };
    if alone.files < 3 || together.files < 3 || alone.time < 0.1 * wait {
        return None;
    }
    let rate = |reads: &Reads| reads.bytes as f64 / reads.seconds.max(1e-9);
    Some(rate(together) < 0.5 * f64::from(TOGETHER) * rate(alone))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(readers: u32, files: u64, time: f64, seconds: f64) -> Reads {
        Reads { readers, files, bytes: files * 100_000, time, seconds }
    }

    #[test]
    fn company_tells_a_narrow_path_from_a_slow_answer() {
        let alone = reads(1, 50, 0.01, 0.5);
        assert_eq!(narrow(&[alone.clone(), reads(4, 200, 0.01, 0.5)], 0.01), Some(false));
        assert_eq!(narrow(&[alone.clone(), reads(4, 55, 0.04, 0.5)], 0.01), Some(true));
        assert_eq!(
            narrow(&[reads(1, 50, 1e-5, 0.1), reads(4, 200, 1e-5, 0.1)], 0.01),
            None,
            "it came from memory"
        );
        assert_eq!(narrow(&[alone], 0.01), None);
    }

    #[test]
    fn files_are_read_and_missing_ones_left_out() {
        let dir = std::env::temp_dir().join(format!("wellfed-proof-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let paths: Vec<String> =
            (0..8).map(|i| dir.join(format!("{i}")).to_string_lossy().into_owned()).collect();
        for path in &paths[1..] {
            std::fs::write(path, vec![7; 1000]).unwrap();
        }
        let files: Vec<&str> = paths.iter().map(String::as_str).collect();
        let reads = round(&files, 3);
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!((reads.files, reads.bytes), (7, 7000));
    }
}
