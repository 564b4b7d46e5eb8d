//! Disks and network: what came from them, from `/proc/diskstats` and `/proc/net/dev`.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
};

use procfs_core::DiskStat;

use super::{Disk, files::Kept};

/// Bytes of a sector in the kernel's counts, whatever the disk's own are.
const SECTOR: u64 = 512;

#[derive(Debug)]
pub(super) struct Disks {
    file: Option<Kept>,
    /// Whether a name is a disk to count.
    counts: HashMap<String, bool>,
    before: BTreeMap<String, DiskStat>,
    buffer: Vec<u8>,
}

impl Disks {
    pub(super) fn new() -> Self {
        let file = Kept::open("/proc/diskstats").ok();
        let mut this = Self { file, counts: HashMap::new(), before: BTreeMap::new(), buffer: Vec::new() };
        this.look(0);
        this
    }

    /// Whether the kernel says anything.
    pub(super) fn known(&self) -> bool {
        !self.before.is_empty()
    }

    /// What happened in the last `passed` nanoseconds.
    pub(super) fn look(&mut self, passed: u64) -> Disk {
        let text = self.file.as_ref().and_then(|file| file.read(&mut self.buffer).ok()).unwrap_or_default();
        let counts = &mut self.counts;
        let now = parse(text, |name| {
            *counts
                .entry(name.to_owned())
                .or_insert_with(|| counted(name, &|path| Path::new("/sys/block").join(path).exists()))
        });
        let look = since(&self.before, &now, passed);
        self.before = now;
        look
    }
}

/// Whether `name` is a whole disk. Parts of disks, and disks made of others, would count everything twice.
fn counted(name: &str, exists: &dyn Fn(&str) -> bool) -> bool {
    let made = ["loop", "ram", "zram", "dm-", "md", "fd", "sr"];
    if made.iter().any(|prefix| name.starts_with(prefix)) {
        return false;
    }
    // Where /sys is hidden, parts are told by their names.
    if exists("") { exists(&name.replace('/', "!")) } else { !is_part(name) }
}

fn is_part(name: &str) -> bool {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let numbered = stem.len() < name.len();
    let many = name.starts_with("nvme") || name.starts_with("mmcblk");
    numbered && if many { stem.ends_with('p') } else { true }
}

fn parse(text: &[u8], mut counted: impl FnMut(&str) -> bool) -> BTreeMap<String, DiskStat> {
    let text = String::from_utf8_lossy(text);
    let mut disks = BTreeMap::new();
    for line in text.lines() {
        let name = line.split_ascii_whitespace().nth(2).unwrap_or_default();
        if counted(name)
            && let Ok(disk) = DiskStat::from_line(line)
        {
            disks.insert(name.to_owned(), disk);
        }
    }
    disks
}

fn since(before: &BTreeMap<String, DiskStat>, now: &BTreeMap<String, DiskStat>, passed: u64) -> Disk {
    let mut all = Disk::default();
    let passed_ms = (passed as f64 / 1e6).max(1e-6);
    for (name, now) in now {
        let Some(before) = before.get(name) else { continue };
        all.bytes += now.sectors_read.saturating_sub(before.sectors_read).saturating_mul(SECTOR);
        all.reads += now.reads.saturating_sub(before.reads);
        // The kernel counts milliseconds in 32 bits, which overflow.
        let milliseconds = |now: u64, before: u64| (now as u32).wrapping_sub(before as u32);
        all.read_time += u64::from(milliseconds(now.time_reading, before.time_reading)) * 1_000_000;
        let busy = f64::from(milliseconds(now.time_in_progress, before.time_in_progress)) / passed_ms;
        all.busy = all.busy.max(busy.min(1.0) as f32);
        let queue = milliseconds(now.weighted_time_in_progress, before.weighted_time_in_progress);
        all.queue += (f64::from(queue) / passed_ms) as f32;
    }
    if passed == 0 { Disk::default() } else { all }
}

/// Bytes that came over the network.
#[derive(Debug)]
pub(super) struct Network {
    file: Option<Kept>,
    before: Option<u64>,
    buffer: Vec<u8>,
}

impl Network {
    pub(super) fn new() -> Self {
        let mut this = Self { file: Kept::open("/proc/net/dev").ok(), before: None, buffer: Vec::new() };
        this.look();
        this
    }

    /// Bytes since the look before.
    pub(super) fn look(&mut self) -> u64 {
        let text = self.file.as_ref().and_then(|file| file.read(&mut self.buffer).ok()).unwrap_or_default();
        let now = received(text);
        let before = self.before.replace(now);
        now.saturating_sub(before.unwrap_or(now))
    }
}

fn received(text: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(text);
    let bytes = |line: &str| line.split_once(':')?.1.split_ascii_whitespace().next()?.parse::<u64>().ok();
    text.lines().filter_map(bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &[u8] = b"   7       0 loop0 9 0 90 0 0 0 0 0 0 0 0\n \
        259       0 nvme0n1 100 5 2000 50 0 0 0 0 0 40 60 0 0 0 0 0 0\n \
        259       1 nvme0n1p1 100 5 2000 50 0 0 0 0 0 40 60 0 0 0 0 0 0\n";
    const AFTER: &[u8] = b" 259       0 nvme0n1 150 5 4000 150 0 0 0 0 0 90 260 0 0 0 0 0 0\n";

    #[test]
    fn only_whole_disks_count() {
        let sys = |path: &str| ["", "sda", "nvme0n1", "cciss!c0d0"].contains(&path);
        let no_sys = |_: &str| false;
        for (name, expected) in
            [("sda", true), ("sda1", false), ("nvme0n1", true), ("nvme0n1p2", false), ("dm-0", false)]
        {
            assert_eq!(counted(name, &sys), expected, "{name}");
            assert_eq!(counted(name, &no_sys), expected, "{name}");
        }
        assert!(counted("cciss/c0d0", &sys));
    }

    #[test]
    fn reads_since() {
        let whole = |name: &str| counted(name, &|_| false);
        let look = since(&parse(BEFORE, whole), &parse(AFTER, whole), 100_000_000);
        let expected = Disk { bytes: 2000 * 512, reads: 50, read_time: 100_000_000, busy: 0.5, queue: 2.0 };
        assert_eq!(look, expected);
        assert!(parse(b"8 0 sda\n\nx", |_| true).is_empty());
    }

    #[test]
    fn counters_that_overflow_go_on() {
        let at = |ms: u64| {
            let line = format!("8 0 sda 1 0 8 {ms} 0 0 0 0 0 {ms} {ms}");
            BTreeMap::from([("sda".to_owned(), DiskStat::from_line(&line).unwrap())])
        };
        let look = since(&at(u64::from(u32::MAX)), &at(9), 20_000_000);
        assert_eq!((look.read_time, look.busy), (10_000_000, 0.5));
    }

    #[test]
    fn the_network_adds_up() {
        let text = b"Inter-|   Receive\n face |bytes packets\n    lo: 100 1 0 0\n  eth0:250 2 0 0\n";
        assert_eq!(received(text), 350);
        assert!(Network::new().before.is_some());
    }
}
