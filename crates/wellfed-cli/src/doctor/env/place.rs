//! Where data lies: the kind of its file system and disk, free space; and other limits of this process.

use std::{fs, mem::MaybeUninit, path::Path};

use serde::Serialize;

/// File systems that ask another machine, or a program, for everything.
const NETWORK: [&str; 17] = [
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "9p",
    "ceph",
    "lustre",
    "gpfs",
    "beegfs",
    "glusterfs",
    "afs",
    "panfs",
    "wekafs",
    "pvfs2",
    "orangefs",
    "virtiofs",
];

/// The file system of a folder.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Place {
    pub(super) path: String,
    pub(super) size: u64,
    pub(super) free: u64,
    /// Such as `ext4`; empty if unknown.
    pub(super) kind: String,
    pub(super) network: bool,
    /// Whether the disk rotates, if the kernel says.
    pub(super) rotating: Option<bool>,
}

impl Place {
    pub(super) fn describe(&self) -> String {
        let disk = match self.rotating {
            Some(true) => ", rotating disk",
            Some(false) => ", no rotating disk",
            None => "",
        };
        let kind = if self.kind.is_empty() { "file system" } else { &self.kind };
        let (free, size) = (super::gigabytes(self.free), super::gigabytes(self.size));
        format!("{}: {kind}{disk}, {free} of {size} free", self.path)
    }
}

/// That of `path`; `None` if it does not exist.
pub(super) fn of(path: &Path) -> Option<Place> {
    let real = path.canonicalize().ok()?;
    let (size, free) = space(&real)?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let (kind, device) = mount(&mounts, &real).unwrap_or_default();
    let network =
        NETWORK.contains(&kind.as_str()) || kind.starts_with("fuse.") && kind != "fuse.fuse-overlayfs";
    Some(Place { path: path.display().to_string(), size, free, rotating: rotating(&device), kind, network })
}

/// Kind and device number of the file system that `path` lies on: the deepest mount, and of equal ones the last.
fn mount(mountinfo: &str, path: &Path) -> Option<(String, String)> {
    let mounts = mountinfo.lines().filter_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let words: Vec<_> = before.split(' ').collect();
        let point = words.get(4)?.replace("\\040", " ");
        let kind = after.split(' ').next()?;
        path.starts_with(&point).then(|| (point.len(), kind.to_owned(), words[2].to_owned()))
    });
    mounts.max_by_key(|(len, _, _)| *len).map(|(_, kind, device)| (kind, device))
}

fn rotating(device: &str) -> Option<bool> {
    // Disks of virtual machines say that they rotate, whatever they are made of.
    if fs::read_to_string("/proc/cpuinfo").unwrap_or_default().contains(" hypervisor") {
        return None;
    }
    // Parts of disks have no queue of their own, but lie in the folder of the disk.
    let folder = Path::new("/sys/dev/block").join(device);
    let read = |path: &str| fs::read_to_string(folder.join(path)).ok();
    Some(read("queue/rotational").or_else(|| read("../queue/rotational"))?.trim() == "1")
}

/// Bytes of the file system at `path`, and those that are free.
#[cfg(target_os = "linux")]
pub(super) fn space(path: &Path) -> Option<(u64, u64)> {
    wellfed_doctor::system::space(path).map(|space| (space.size, space.free))
}

#[cfg(not(target_os = "linux"))]
pub(super) fn space(_path: &Path) -> Option<(u64, u64)> {
    None
}

/// Bytes that can be had without swapping.
pub(super) fn memory_available() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_ascii_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Files this process may have open: now, and after raising the limit as far as it may.
pub(super) fn open_files() -> Option<(u64, u64)> {
    let mut limit = MaybeUninit::<libc::rlimit>::zeroed();
    // SAFETY: the pointer is valid for a write of one `rlimit`, which is all that getrlimit(2) asks for.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, limit.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the call succeeded and filled it in; it consists of integers anyway.
    let limit = unsafe { limit.assume_init() };
    Some((limit.rlim_cur, limit.rlim_max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_mount_counts() {
        let text = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n\
            2 1 0:50 / /mnt/a\\040b rw shared:1 - nfs4 host:/x rw\n\
            3 1 0:51 / /mnt rw - tmpfs tmpfs rw\n";
        let kind = |path: &str| mount(text, Path::new(path)).unwrap().0;
        assert_eq!(kind("/mnt/a b/c"), "nfs4");
        assert_eq!(kind("/mnt/a"), "tmpfs");
        assert_eq!(kind("/mntx"), "ext4");
        assert_eq!(mount("", Path::new("/")), None);
    }

    #[test]
    fn this_folder_lies_somewhere() {
        let place = of(Path::new(".")).unwrap();
        assert!(place.size >= place.free && place.size > 0, "{place:?}");
        assert!(of(Path::new("no such folder")).is_none());
        let (soft, hard) = open_files().unwrap();
        assert!(soft > 0 && soft <= hard);
        assert!(memory_available().is_some_and(|bytes| bytes > 0));
    }
}
