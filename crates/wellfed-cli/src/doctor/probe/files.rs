//! The files a data set consists of, and making the kernel forget what it has of them in memory.

use std::{
    collections::VecDeque,
    fs::{self, File},
    os::fd::AsRawFd,
    path::{Path, PathBuf},
};

use wellfed::{
    Error,
    store::{LocalStore, brace, glob},
};

use super::Paths;

/// Files that are looked at; a sample of a larger set is as good.
const MAX_FILES: usize = 20_000;

/// Files and their sizes.
#[derive(Debug)]
pub(super) struct Files(pub(super) Paths);

impl Files {
    /// Those at `path`: a folder with all below it, a file, a pattern, or shards with braces.
    pub(super) fn of(path: &str) -> Result<Self, Error> {
        let mut found = Vec::new();
        if Path::new(path).is_dir() {
            walk(path.into(), &mut found);
        } else if path.contains(['{', '}']) || path.contains("::") {
            for part in path.split("::") {
                brace::expand(part)?.into_iter().for_each(|name| add(name.into(), &mut found));
            }
        } else if glob::has_magic(path) {
            for listing in glob::files(&LocalStore::new(), path)? {
                for i in 0..listing.files.len() {
                    add(Path::new(&listing.path).join(listing.files.get(i)), &mut found);
                }
            }
        } else {
            add(path.into(), &mut found);
        }
        Ok(Self(found))
    }

    /// Asks the kernel to keep nothing of them in memory; whether there is any file to ask for.
    pub(super) fn forget(&self) -> bool {
        self.0.iter().filter(|(path, _)| forget(path)).count() > 0
    }
}

fn add(path: PathBuf, found: &mut Paths) {
    if found.len() < MAX_FILES
        && let Ok(meta) = fs::metadata(&path)
        && meta.is_file()
        && meta.len() > 0
    {
        found.push((path, meta.len()));
    }
}

fn walk(root: PathBuf, found: &mut Paths) {
    let mut folders = VecDeque::from([root]);
    while let Some(folder) = folders.pop_front() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if found.len() >= MAX_FILES {
                return;
            }
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && !hidden => folders.push_back(entry.path()),
                Ok(kind) if !kind.is_dir() && !hidden => add(entry.path(), found),
                _ => {}
            }
        }
    }
}

#[cfg(target_os = "linux")]
pub(super) fn forget(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    // What was not written yet stays in memory; of files that nobody changed there is none.
    drop(file.sync_data());
    // SAFETY: the descriptor is open, and no memory of ours is touched.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) == 0 }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn forget(_path: &Path) -> bool {
    false
}

/// Bytes this process has had from storage so far, if the kernel says.
pub(super) fn from_storage() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("read_bytes: "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_folders_patterns_and_lists() {
        let root = std::env::temp_dir().join(format!("wellfed-probe-{}", std::process::id()));
        fs::create_dir_all(root.join("a/b")).unwrap();
        for (name, text) in
            [("a/1.jpg", "x"), ("a/b/2.jpg", "xy"), ("a/.hidden", "x"), ("a/empty", ""), ("t-0.tar", "x")]
        {
            fs::write(root.join(name), text).unwrap();
        }
        let count = |name: &str| Files::of(root.join(name).to_str().unwrap()).unwrap().0.len();
        assert_eq!(count("a"), 2);
        assert_eq!(count("a/*.jpg"), 1);
        assert_eq!(count("t-{0..1}.tar"), 1);
        assert_eq!(count("t-0.tar"), 1);
        assert_eq!(count("nothing"), 0);
        assert!(Files::of(root.join("a").to_str().unwrap()).unwrap().forget());
        fs::remove_dir_all(root).unwrap();
    }
}
