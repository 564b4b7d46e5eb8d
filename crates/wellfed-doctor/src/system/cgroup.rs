//! What control groups (version 1 and 2) grant this process: limits of processor and memory, and how much of them is used.
//!
//! A limit may sit on the group itself or on any group around it; the tightest counts.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{files::Kept, memory::value};

/// Where the groups of one controller are, from this process's own outwards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Groups {
    version: u8,
    folders: Vec<PathBuf>,
}

/// The groups this process is in.
#[derive(Debug, Default)]
pub(super) struct Cgroups {
    cpu: Groups,
    memory: Groups,
    usage: Option<Kept>,
    statistics: Option<Kept>,
    throttled: Option<u64>,
    buffer: Vec<u8>,
}

/// What happened since the look before.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CgroupLook {
    /// Bytes in use now.
    pub(super) memory: Option<u64>,
    /// Nanoseconds it was throttled.
    pub(super) throttled: u64,
}

impl Cgroups {
    /// Those of this process.
    pub(super) fn own() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let (membership, mounts) = (read("/proc/self/cgroup"), read("/proc/self/mountinfo"));
        let cpu = groups(&membership, &mounts, "cpu");
        let memory = groups(&membership, &mounts, "memory");
        let usage = if memory.version == 2 { "memory.current" } else { "memory.usage_in_bytes" };
        let mut this = Self {
            usage: memory.tightest(Groups::memory_limit_of).and_then(|d| Kept::open(d.join(usage)).ok()),
            statistics: cpu.tightest(Groups::quota_of).and_then(|d| Kept::open(d.join("cpu.stat")).ok()),
            cpu,
            memory,
            ..Self::default()
        };
        this.look();
        this
    }

    /// Cores that are granted, if they are limited.
    pub(super) fn cores(&self) -> Option<f64> {
        self.cpu.folders.iter().filter_map(|folder| self.cpu.quota_of(folder)).min_by(f64::total_cmp)
    }

    /// Bytes of memory that are granted, if they are limited.
    pub(super) fn memory_limit(&self) -> Option<u64> {
        let limits = self.memory.folders.iter().filter_map(|folder| self.memory.memory_limit_of(folder));
        limits.min_by(f64::total_cmp).map(|bytes| bytes as u64)
    }

    pub(super) fn look(&mut self) -> CgroupLook {
        let usage = self.usage.as_ref().and_then(|file| number(file.read(&mut self.buffer).ok()?));
        let text = self.statistics.as_ref().and_then(|file| file.read(&mut self.buffer).ok());
        let now = text.and_then(throttled);
        let passed = now.unwrap_or(0).saturating_sub(self.throttled.or(now).unwrap_or(0));
        self.throttled = now;
        CgroupLook { memory: usage, throttled: passed }
    }
}

impl Groups {
    fn quota_of(&self, folder: &Path) -> Option<f64> {
        let read = |name| fs::read_to_string(folder.join(name)).ok();
        if self.version == 2 {
            return quota_2(&read("cpu.max")?);
        }
        quota_1(&read("cpu.cfs_quota_us")?, &read("cpu.cfs_period_us")?)
    }

    fn memory_limit_of(&self, folder: &Path) -> Option<f64> {
        let name = if self.version == 2 { "memory.max" } else { "memory.limit_in_bytes" };
        let bytes = number(&fs::read(folder.join(name)).ok()?)?;
        // Version 1 says "none" with the greatest number of whole pages.
        (bytes < 1 << 62).then_some(bytes as f64)
    }

    /// The group with the smallest limit; the process's own where there is none.
    fn tightest(&self, limit: fn(&Self, &Path) -> Option<f64>) -> Option<&PathBuf> {
        let limited = self.folders.iter().filter_map(|folder| Some((limit(self, folder)?, folder)));
        limited.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, folder)| folder).or(self.folders.first())
    }
}

/// Folders of `controller`, from `/proc/self/cgroup` and `/proc/self/mountinfo`.
fn groups(membership: &str, mountinfo: &str, controller: &str) -> Groups {
    let lists = |list: &str| list.split(',').any(|name| name == controller);
    // A controller belongs to one hierarchy: of version 1 if one names it.
    let path = |version: u8| {
        membership.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':');
            let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            let found = if version == 1 { lists(controllers) } else { number == "0" };
            found.then_some(path)
        })
    };
    for version in [1, 2] {
        let Some(path) = path(version) else { continue };
        let mount = mountinfo.lines().find_map(|line| {
            let (before, after) = line.split_once(" - ")?;
            let mut words = before.split(' ').skip(3);
            let (root, point) = (words.next()?, words.next()?);
            let mut words = after.split(' ');
            let (kind, options) = (words.next()?, words.nth(1)?);
            let found = if version == 1 { kind == "cgroup" && lists(options) } else { kind == "cgroup2" };
            found.then(|| (unescaped(root), unescaped(point)))
        });
        let Some((root, point)) = mount else { continue };
        // A container may see its group as the root of the mount, or a path that is not mounted at all.
        let below = Path::new(path).strip_prefix(&root).unwrap_or(Path::new(""));
        let below = below.strip_prefix("/").unwrap_or(below);
        let point = PathBuf::from(point);
        let folders = below.ancestors().map(|part| point.join(part)).collect();
        return Groups { version, folders };
    }
    Groups::default()
}

/// Spaces and the like are written as octal numbers there.
fn unescaped(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

fn quota_1(quota: &str, period: &str) -> Option<f64> {
    let (quota, period): (f64, f64) = (quota.trim().parse().ok()?, period.trim().parse().ok()?);
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

fn quota_2(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ').unwrap_or((text.trim(), "100000"));
    quota_1(quota, period)
}

/// Nanoseconds, of either version.
fn throttled(text: &[u8]) -> Option<u64> {
    value(text, "throttled_usec").map(|us| us.saturating_mul(1000)).or_else(|| value(text, "throttled_time"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
        24 1 0:21 / /proc rw - proc proc rw\n\
        30 24 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n\
        31 30 0:27 /docker/ab /sys/fs/cgroup/cpu,cpuacct ro,nosuid master:1 - cgroup cgroup rw,cpu,cpuacct\n\
        32 30 0:28 /docker/ab /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n\
        33 30 0:29 / /sys/fs/cgroup/a\\040b rw - cgroup2 cgroup rw\n";

    fn folders(groups: &Groups) -> Vec<&str> {
        groups.folders.iter().map(|folder| folder.to_str().unwrap()).collect()
    }

    #[test]
    fn version_1_in_a_container() {
        let membership = "5:cpu,cpuacct:/docker/ab/job\n4:memory:/elsewhere\n0::/x\n";
        let cpu = groups(membership, MOUNTS, "cpu");
        assert_eq!(cpu.version, 1);
        assert_eq!(folders(&cpu), ["/sys/fs/cgroup/cpu,cpuacct/job", "/sys/fs/cgroup/cpu,cpuacct/"]);
        // Not below what is mounted: the mount itself.
        assert_eq!(folders(&groups(membership, MOUNTS, "memory")), ["/sys/fs/cgroup/memory/"]);
    }

    #[test]
    fn version_2_with_groups_around() {
        let found = groups("0::/user.slice/job.scope\n", MOUNTS, "cpu");
        assert_eq!(found.version, 2);
        let expected = ["/sys/fs/cgroup/a b/user.slice/job.scope", "/sys/fs/cgroup/a b/user.slice"];
        assert_eq!(folders(&found)[..2], expected);
        assert_eq!(found.folders.len(), 3);
        assert_eq!(groups("", MOUNTS, "cpu"), Groups::default());
        assert_eq!(groups("0::/\n", "nonsense", "cpu"), Groups::default());
    }

    #[test]
    fn limits() {
        assert_eq!(quota_1("-1\n", "100000\n"), None);
        assert_eq!(quota_1("150000\n", "100000\n"), Some(1.5));
        assert_eq!(quota_2("max 100000\n"), None);
        assert_eq!(quota_2("50000 100000\n"), Some(0.5));
        assert_eq!(quota_2(""), None);
        assert_eq!(throttled(b"nr_periods 1\nthrottled_time 77\n"), Some(77));
        assert_eq!(throttled(b"usage_usec 5\nthrottled_usec 7\n"), Some(7000));
        assert_eq!(throttled(b""), None);
    }

    #[test]
    fn the_tightest_group_around_counts() {
        let root = std::env::temp_dir().join(format!("wellfed-cgroup-{}", std::process::id()));
        let inner = root.join("outer/inner");
        fs::create_dir_all(&inner).unwrap();
        let write = |path: &str, text: &str| fs::write(root.join(path), text).unwrap();
        write("outer/cpu.max", "200000 100000\n");
        write("outer/inner/cpu.max", "max 100000\n");
        write("outer/inner/memory.max", "1000\n");
        write("outer/memory.max", "max\n");
        let groups = Groups { version: 2, folders: inner.ancestors().take(3).map(Path::to_owned).collect() };
        let this = Cgroups { cpu: groups.clone(), memory: groups.clone(), ..Cgroups::default() };
        assert_eq!((this.cores(), this.memory_limit()), (Some(2.0), Some(1000)));
        assert_eq!(groups.tightest(Groups::quota_of), Some(&root.join("outer")));
        assert_eq!(groups.tightest(Groups::memory_limit_of), Some(&inner));
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn those_of_this_process_can_be_asked() {
        let mut own = Cgroups::own();
        assert!(own.cores().is_none_or(|cores| cores > 0.0));
        assert!(own.look().memory.is_none_or(|bytes| bytes > 0));
    }
}
