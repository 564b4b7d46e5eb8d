//! Damaged files of every format: errors and no more, in bounded time and memory.
//!
//! The short run is part of the tests. The long one:
//!
//!     cargo test --release -p wellfed-audio --test damage -- --ignored --nocapture

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use wellfed_audio::{Head, Limits, Segment, decode};

/// Numbers by G. Marsaglia's xorshift.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound.max(1)
    }

    /// A place in a file: every second time in its head.
    fn place(&mut self, len: usize) -> usize {
        let bound = if self.below(2) == 0 { len.min(256) } else { len };
        self.below(bound)
    }
}

fn damaged(bytes: &[u8], draw: &mut Draw) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..1 + draw.below(4) {
        let (at, len) = (draw.place(bytes.len()), bytes.len());
        match draw.below(6) {
            0 => bytes.truncate(at),
            1 => {
                bytes.drain(at..len.min(at + 1 + draw.below(64)));
            }
            2 => {
                let again = bytes[at..len.min(at + 1 + draw.below(64))].to_vec();
                bytes.splice(at..at, again);
            }
            3 => {
                let value = [0, 0x7f, 0x80, 0xff][draw.below(4)];
                bytes[at..len.min(at + 1 + draw.below(8))].fill(value);
            }
            4 => bytes[at..len.min(at + 1)].iter_mut().for_each(|byte| *byte ^= 1 << draw.below(8)),
            _ => bytes[at..len.min(at + 1 + draw.below(4))].fill_with(|| draw.below(256) as u8),
        }
        if bytes.is_empty() {
            break;
        }
    }
    bytes
}

#[derive(Default)]
struct Count {
    files: usize,
    decoded: usize,
    slowest: Duration,
}

fn format(path: &Path) -> Option<&str> {
    path.extension()?
        .to_str()
        .filter(|extension| ["wav", "aiff", "flac", "ogg", "mp3", "m4a", "aac", "opus"].contains(extension))
}

/// Damages the files of each format in turn.
fn run(each: usize) -> BTreeMap<String, Count> {
    // Panics that are caught say nothing.
    std::panic::set_hook(Box::new(|_| {}));
    let mut files: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sounds")).unwrap() {
        let path = entry.unwrap().path();
        if let Some(format) = format(&path) {
            files.entry(format.to_owned()).or_default().push(path.clone());
        }
    }
    let limits = Limits { max_samples: 1 << 20, max_channels: 16 };
    let mut counts = BTreeMap::new();
    for (format, mut paths) in files {
        paths.sort();
        let sounds: Vec<Vec<u8>> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
        let (mut count, mut draw) = (Count::default(), Draw(0x9e37_79b9_7f4a_7c15));
        for number in 0..each {
            let bytes = damaged(&sounds[number % sounds.len()], &mut draw);
            let offset = if draw.below(3) == 0 { draw.below(60_000) as u64 } else { 0 };
            let since = Instant::now();
            let head = Head::parse(&bytes, &limits);
            if let Ok(sound) = decode(&bytes, Segment { offset, frames: None }, &limits) {
                count.decoded += 1;
                assert!(sound.frames() * sound.channels.len() <= 1 << 20, "{format} {number}");
                assert!(head.is_ok(), "{format} {number}: decoded without a head");
            }
            count.slowest = count.slowest.max(since.elapsed());
            count.files += 1;
        }
        counts.insert(format, count);
    }
    drop(std::panic::take_hook());
    counts
}

#[test]
fn damaged_files_are_errors_and_no_more() {
    for (format, count) in run(60) {
        assert_eq!(count.files, 60, "{format}");
        assert!(count.decoded < count.files, "{format}: nothing was found to be damaged");
    }
}

#[test]
#[ignore = "40,000 files"]
#[allow(clippy::print_stdout, reason = "the figures are what it is run for")]
fn thousands_of_damaged_files_take_bounded_time_and_memory() {
    for (format, Count { files, decoded, slowest }) in run(5_000) {
        println!("{format}: {files} damaged files, {decoded} decoded, the slowest took {slowest:?}");
        // Machines pause; a file that is decoded for ever does not get here.
        assert!(slowest < Duration::from_secs(120), "{format}: {slowest:?}");
    }
    if let Ok(status) = fs::read_to_string("/proc/self/status") {
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
        let kilobytes: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap_or(0);
        println!("at most {} MiB of memory", kilobytes >> 10);
        assert!(kilobytes < 256 << 10, "{kilobytes} kB");
    }
}
