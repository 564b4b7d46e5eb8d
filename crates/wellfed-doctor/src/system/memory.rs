//! Memory: what is free, what caches files, what is swapped, what `/dev/shm` holds, and who waits for it.

use std::{ffi::CString, mem::MaybeUninit, os::unix::ffi::OsStrExt, path::Path};

use super::{
    Pressure,
    files::{Kept, page},
};

/// Gauges, and since the look before: bytes swapped in, and faults that were given huge pages.
#[derive(Debug, Default, PartialEq)]
pub(super) struct MemoryLook {
    pub(super) available: u64,
    pub(super) page_cache: u64,
    pub(super) swap_in: u64,
    pub(super) huge_faults: u64,
    pub(super) shm_used: u64,
}

#[derive(Debug)]
pub(super) struct Memory {
    meminfo: Option<Kept>,
    vmstat: Option<Kept>,
    swapped: Option<u64>,
    huge_faults: Option<u64>,
    buffer: Vec<u8>,
}

impl Memory {
    pub(super) fn new() -> Self {
        let mut this = Self {
            meminfo: Kept::open("/proc/meminfo").ok(),
            vmstat: Kept::open("/proc/vmstat").ok(),
            swapped: None,
            huge_faults: None,
            buffer: Vec::new(),
        };
        this.look();
        this
    }

    pub(super) fn look(&mut self) -> MemoryLook {
        let mut look = MemoryLook::default();
        if let Some(text) = self.meminfo.as_ref().and_then(|file| file.read(&mut self.buffer).ok()) {
            let kilobytes = |name| value(text, name).unwrap_or(0).saturating_mul(1024);
            look.available = kilobytes("MemAvailable:");
            // Files in shared memory are counted as cache, but are nobody's to drop.
            look.page_cache =
                kilobytes("Cached:").saturating_sub(kilobytes("Shmem:")) + kilobytes("Buffers:");
        }
        if let Some(text) = self.vmstat.as_ref().and_then(|file| file.read(&mut self.buffer).ok()) {
            let swapped = value(text, "pswpin");
            if let (Some(before), Some(now)) = (self.swapped, swapped) {
                look.swap_in = now.saturating_sub(before).saturating_mul(page());
            }
            self.swapped = swapped;
            let huge = value(text, "thp_fault_alloc");
            if let (Some(before), Some(now)) = (self.huge_faults, huge) {
                look.huge_faults = now.saturating_sub(before);
            }
            self.huge_faults = huge;
        }
        look.shm_used = shm().map_or(0, |space| space.size - space.free.min(space.size));
        look
    }
}

/// The number after `name` at the begin of a line.
pub(super) fn value(text: &[u8], name: &str) -> Option<u64> {
    let line = text.split(|byte| *byte == b'\n').find_map(|line| {
        let rest = line.strip_prefix(name.as_bytes())?;
        rest.first().is_some_and(u8::is_ascii_whitespace).then_some(rest)
    })?;
    std::str::from_utf8(line).ok()?.split_ascii_whitespace().next()?.parse().ok()
}

/// Bytes of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// All of them.
    pub size: u64,
    /// Those this user may still write.
    pub free: u64,
}

/// `/dev/shm`, if it is a file system of its own.
pub(super) fn shm() -> Option<Space> {
    space(Path::new("/dev/shm"))
}

/// The file system that `path` lies on; `None` if the path does not exist.
pub fn space(path: &Path) -> Option<Space> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    let mut stat = MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: the path ends in a zero byte, and the other pointer is valid for a write of one `statvfs`.
    if unsafe { libc::statvfs(path.as_ptr(), stat.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the call succeeded and filled it in; it consists of integers anyway.
    let stat = unsafe { stat.assume_init() };
    let unit = stat.f_frsize;
    Some(Space { size: stat.f_blocks.saturating_mul(unit), free: stat.f_bavail.saturating_mul(unit) })
}

/// `/proc/pressure`, where the kernel has it.
#[derive(Debug)]
pub(super) struct Stalls {
    files: Option<[Kept; 3]>,
    before: Option<[u64; 3]>,
    buffer: Vec<u8>,
}

impl Stalls {
    pub(super) fn new() -> Self {
        let open = |name: &str| Kept::open(format!("/proc/pressure/{name}")).ok();
        let files = open("cpu").zip(open("io")).zip(open("memory")).map(|((a, b), c)| [a, b, c]);
        let mut this = Self { files, before: None, buffer: Vec::new() };
        this.look(0);
        this
    }

    /// Whether the kernel says anything.
    pub(super) fn known(&self) -> bool {
        self.before.is_some()
    }

    /// Shares of the last `passed` nanoseconds.
    pub(super) fn look(&mut self, passed: u64) -> Option<Pressure> {
        let mut now = [0; 3];
        for (total, file) in now.iter_mut().zip(self.files.as_ref()?) {
            *total = stalled(file.read(&mut self.buffer).ok()?)?;
        }
        let before = self.before.replace(now)?;
        let share = |i: usize| {
            let microseconds = now[i].saturating_sub(before[i]) as f64;
            (microseconds * 1e3 / passed.max(1) as f64).min(1.0) as f32
        };
        (passed > 0).then(|| Pressure { cpu: share(0), io: share(1), memory: share(2) })
    }
}

/// Microseconds in which some task waited.
fn stalled(text: &[u8]) -> Option<u64> {
    let some = text.split(|byte| *byte == b'\n').find(|line| line.starts_with(b"some "))?;
    std::str::from_utf8(some).ok()?.rsplit_once("total=")?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_by_their_whole_names() {
        let text = b"MemTotal:   100 kB\nSwapCached:   7 kB\nCached:    50 kB\npswpin 12\npswpout 4\n";
        assert_eq!(value(text, "Cached:"), Some(50));
        assert_eq!(value(text, "pswpin"), Some(12));
        assert_eq!(value(text, "pswp"), None);
        assert_eq!(value(b"Cached: x kB", "Cached:"), None);
    }

    #[test]
    fn stalls_of_some() {
        let text =
            b"some avg10=0.12 avg60=0.05 avg300=0.01 total=123456\nfull avg10=0 avg60=0 avg300=0 total=99\n";
        assert_eq!(stalled(text), Some(123_456));
        assert_eq!(stalled(b"full total=1"), None);
    }

    #[test]
    fn this_machine_has_memory() {
        let look = Memory::new().look();
        assert!(look.available > 0, "{look:?}");
        let here = space(Path::new("/")).unwrap();
        assert!(here.free <= here.size && here.size > 0);
        assert_eq!(space(Path::new("/no such folder")), None);
    }

    #[test]
    fn pressure_is_a_share() {
        let mut stalls = Stalls::new();
        if let Some(pressure) = stalls.look(1_000_000_000) {
            assert!([pressure.cpu, pressure.io, pressure.memory].iter().all(|s| (0.0..=1.0).contains(s)));
        }
    }
}
