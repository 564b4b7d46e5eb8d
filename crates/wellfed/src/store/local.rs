//! Files of this machine.
//!
//! A whole file costs one open, one `fstat` and one read straight into the caller's buffer, which is not zeroed
//! first. Ranges are read by position from a bounded set of open files, so that shards are not opened for every
//! sample. Files are opened non-blocking: a named pipe among the images is an error, not a hang.

use std::{
    collections::HashMap,
    fs::{self, File},
    io,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, UNIX_EPOCH},
};

use super::{Entry, EntryKind, Stat, Store, reserve, row_of};
use crate::{Error, ErrorKind, Limits, Result};

/// A range that takes longer than this does not come from the page cache: others are then asked for together, so that the disk
/// has many at a time.
#[cfg(unix)]
const FROM_DISK: Duration = Duration::from_micros(100);

/// Tells the system that a range will be read.
#[cfg(target_os = "linux")]
fn will_need(file: &File, offset: u64, len: usize) {
    use std::os::fd::AsRawFd;

    let (Ok(offset), Ok(len)) = (libc::off_t::try_from(offset), libc::off_t::try_from(len)) else { return };
    // SAFETY: the descriptor is open; nothing else is handed over. Whether the advice is taken does not matter.
    let _ = unsafe { libc::posix_fadvise(file.as_raw_fd(), offset, len, libc::POSIX_FADV_WILLNEED) };
}

#[cfg(all(unix, not(target_os = "linux")))]
fn will_need(_: &File, _: u64, _: usize) {}

/// The local file system. Paths are used as they are, relative ones from the working folder.
#[derive(Debug)]
pub struct LocalStore {
    open: Mutex<OpenFiles>,
    /// Whose threads may hold the lock: in a forked child nobody gives it back.
    process: u32,
}

/// The most recently used files of [`LocalStore::read_range`].
#[derive(Debug)]
struct OpenFiles {
    files: HashMap<String, (Arc<File>, u64)>,
    clock: u64,
    capacity: usize,
}

impl Default for LocalStore {
    fn default() -> Self {
        Self::new()
    }
}

impl LocalStore {
    /// A store that keeps up to 128 files open for ranges: an eighth of the usual limit of 1,024 a process.
    pub fn new() -> Self {
        Self::with_open_files(128)
    }

    /// A store that keeps up to `capacity` files (at least one) open for ranges.
    pub fn with_open_files(capacity: usize) -> Self {
        let capacity = capacity.max(1);
        let open = OpenFiles { files: HashMap::new(), clock: 0, capacity };
        Self { open: Mutex::new(open), process: std::process::id() }
    }

    fn shared(&self, path: &str) -> Result<Arc<File>> {
        if self.process != std::process::id() {
            let file = Arc::new(open_file(path)?);
            return regular(&file, path).map(|_| file);
        }
        // A panic cannot leave the table half changed, so a poisoned lock is as good as any.
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = open.get(path) {
            return Ok(file);
        }
        drop(open);
        let file = Arc::new(open_file(path)?);
        regular(&file, path)?;
        open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.put(path, Arc::clone(&file));
        Ok(file)
    }
}

impl OpenFiles {
    fn get(&mut self, path: &str) -> Option<Arc<File>> {
        self.clock += 1;
        let (file, used) = self.files.get_mut(path)?;
        *used = self.clock;
        Some(Arc::clone(file))
    }

    fn put(&mut self, path: &str, file: Arc<File>) {
        while self.files.len() >= self.capacity {
            let Some(oldest) = self.files.iter().min_by_key(|(_, (_, used))| *used).map(|(p, _)| p.clone())
            else {
                break;
            };
            self.files.remove(&oldest);
        }
        self.clock += 1;
        self.files.insert(path.to_owned(), (file, self.clock));
    }
}

impl Store for LocalStore {
    fn stat(&self, path: &str) -> Result<Stat> {
        let meta = fs::metadata(path).map_err(|e| Error::io("look at", path, e))?;
        Ok(stat_of(&meta))
    }

    fn read(&self, path: &str, max_bytes: u64, into: &mut Vec<u8>) -> Result<()> {
        let file = open_file(path)?;
        let size = regular(&file, path)?;
        Limits { max_bytes, ..Limits::default() }.check_bytes(path, size)?;
        let before = into.len();
        let result = read_whole(&file, path, size, into);
        if result.is_err() {
            into.truncate(before);
        }
        result
    }

    fn read_range(&self, path: &str, offset: u64, len: usize, into: &mut Vec<u8>) -> Result<()> {
        let file = self.shared(path)?;
        let before = into.len();
        reserve(into, len, path)?;
        let result = fill(&file, Some(offset), len, into).map_err(|e| Error::io("read", path, e));
        let got = match result {
            Ok(got) => got,
            Err(e) => {
                into.truncate(before);
                return Err(e.with_offset(offset));
            }
        };
        if got < len {
            into.truncate(before);
            return Err(Error::corrupt(format!(
                "{path} ends after {got} of the {len} bytes wanted from byte {offset}"
            ))
            .with_offset(offset));
        }
        Ok(())
    }

    #[cfg(unix)]
    fn read_rows(&self, path: &str, rows: &[(u64, usize)], size: usize, into: &mut [u8]) -> Result<()> {
        use std::os::unix::fs::FileExt;

        let file = self.shared(path)?;
        let mut advised = false;
        for (number, (offset, row)) in rows.iter().enumerate() {
            let begun = Instant::now();
            file.read_exact_at(row_of(into, *row, size)?, *offset).map_err(|e| match e.kind() {
                io::ErrorKind::UnexpectedEof => Error::corrupt(format!(
                    "{path} ends before the {size} bytes wanted from byte {offset} are over"
                ))
                .with_offset(*offset),
                _ => Error::io("read", path, e).with_offset(*offset),
            })?;
            if !advised && begun.elapsed() > FROM_DISK {
                advised = true;
                for (offset, _) in &rows[number + 1..] {
                    will_need(&file, *offset, size);
                }
            }
        }
        Ok(())
    }

    fn list(&self, path: &str, entry: &mut dyn FnMut(Entry<'_>) -> Result<()>) -> Result<()> {
        let folder = if path.is_empty() { "." } else { path };
        for item in fs::read_dir(folder).map_err(|e| Error::io("list", path, e))? {
            let item = item.map_err(|e| Error::io("list", path, e))?;
            // The kind comes with the name on most file systems. Only links cost a look at their target.
            let kind = item.file_type().map_err(|e| Error::io("list", path, e))?;
            let folder = if kind.is_symlink() {
                fs::metadata(item.path()).is_ok_and(|m| m.is_dir())
            } else {
                kind.is_dir()
            };
            let name = item.file_name();
            let kind = if folder { EntryKind::Folder } else { EntryKind::File };
            entry(Entry { name: name.as_encoded_bytes(), kind })?;
        }
        Ok(())
    }

    fn write(&self, path: &str, bytes: &[u8]) -> Result<()> {
        // A name of its own per process and call, so that two writers never share a temporary file.
        static COUNT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let temporary = format!("{path}.{}.{count}.tmp", std::process::id());
        fs::write(&temporary, bytes).and_then(|()| fs::rename(&temporary, path)).map_err(|e| {
            let _ = fs::remove_file(&temporary);
            Error::io("write", path, e)
        })
    }
}

fn open_file(path: &str) -> Result<File> {
    let mut options = fs::OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK);
    options.open(Path::new(path)).map_err(|e| Error::io("open", path, e))
}

/// Size of `file`, which must be a regular one.
fn regular(file: &File, path: &str) -> Result<u64> {
    let meta = file.metadata().map_err(|e| Error::io("look at", path, e))?;
    if !meta.is_file() {
        let what = if meta.is_dir() { "a folder" } else { "a pipe, socket or device" };
        return Err(Error::new(ErrorKind::Io, format!("cannot read {path}: it is {what}, not a file")));
    }
    Ok(meta.len())
}

fn stat_of(meta: &fs::Metadata) -> Stat {
    let modified = meta.modified().map_or(0, |time| match time.duration_since(UNIX_EPOCH) {
        Ok(after) => after.as_nanos() as i128,
        Err(before) => -(before.duration().as_nanos() as i128),
    });
    #[cfg(unix)]
    let identity = {
        use std::os::unix::fs::MetadataExt;
        Some((meta.dev(), meta.ino()))
    };
    #[cfg(not(unix))]
    let identity = None;
    let kind = if meta.is_dir() { EntryKind::Folder } else { EntryKind::File };
    Stat { kind, size: meta.len(), modified, identity }
}

fn read_whole(file: &File, path: &str, size: u64, into: &mut Vec<u8>) -> Result<()> {
    let len = usize::try_from(size).map_err(|_| Error::limit(path, size, usize::MAX as u64, "bytes"))?;
    // One byte more than the file has: if it arrives, somebody is still writing.
    let room = len.saturating_add(1);
    reserve(into, room, path)?;
    let got = fill(file, None, room, into).map_err(|e| Error::io("read", path, e))?;
    match got.cmp(&len) {
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Less => {
            Err(Error::corrupt(format!("{path} shrank from {size} to {got} bytes while it was read"))
                .with_hint("something is still writing to this file"))
        }
        std::cmp::Ordering::Greater => {
            Err(Error::corrupt(format!("{path} grew beyond {size} bytes while it was read"))
                .with_hint("something is still writing to this file"))
        }
    }
}

/// Appends up to `len` bytes of `file`, from `offset` or from its cursor, to `into`, which has room for them.
/// Fewer bytes mean that the file ended.
#[cfg(unix)]
fn fill(file: &File, offset: Option<u64>, len: usize, into: &mut Vec<u8>) -> io::Result<usize> {
    use std::os::fd::AsRawFd;

    let start = into.len();
    let mut got = 0;
    while got < len {
        let at = match offset {
            Some(offset) => {
                let at = offset.checked_add(got as u64).and_then(|at| libc::off_t::try_from(at).ok());
                Some(at.ok_or_else(|| io::Error::from_raw_os_error(libc::EOVERFLOW))?)
            }
            None => None,
        };
        let spare = &mut into.spare_capacity_mut()[..len - got];
        let (fd, pointer, room) = (file.as_raw_fd(), spare.as_mut_ptr().cast(), spare.len());
        // SAFETY: `fd` is open as long as `file` is borrowed, and `pointer` is valid for writes of `room` bytes,
        // the vector's own spare capacity. Reading there saves zeroing the buffer of every sample first.
        let count = unsafe {
            match at {
                Some(at) => libc::pread(fd, pointer, room, at),
                None => libc::read(fd, pointer, room),
            }
        };
        match usize::try_from(count) {
            Ok(0) => break,
            Ok(count) => {
                got += count;
                debug_assert!(got <= len);
                // SAFETY: the kernel has written `count` bytes after the `start + got - count` initialized ones,
                // within the capacity that the slice above was taken from.
                unsafe { into.set_len(start + got) };
                // Regular files come short only at their end: that saves a call for a file read whole.
                if offset.is_none() && got + 1 == len {
                    break;
                }
            }
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(got)
}

/// Appends up to `len` bytes of `file`, from `offset` or from its cursor, to `into`, which has room for them.
/// Fewer bytes mean that the file ended.
#[cfg(not(unix))]
fn fill(file: &File, offset: Option<u64>, len: usize, into: &mut Vec<u8>) -> io::Result<usize> {
    use std::io::{Read, Seek, SeekFrom};

    // The cursor is shared by all who read this file, and only the lock keeps them apart.
    static CURSOR: Mutex<()> = Mutex::new(());
    let _guard = CURSOR.lock().unwrap_or_else(PoisonError::into_inner);
    let mut file = file;
    if let Some(offset) = offset {
        file.seek(SeekFrom::Start(offset))?;
    }
    file.take(len as u64).read_to_end(into)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempFolder;

    #[test]
    fn it_passes_the_conformance_suite() {
        let folder = TempFolder::new();
        super::super::conformance::check(&LocalStore::new(), folder.path());
        super::super::conformance::check(&LocalStore::with_open_files(1), folder.path());
    }

    #[test]
    fn only_so_many_files_stay_open() {
        let folder = TempFolder::new();
        let store = LocalStore::with_open_files(3);
        for i in 0..10 {
            let path = folder.write(&format!("{i}.tar"), &[i; 8]);
            let mut bytes = Vec::new();
            store.read_range(&path, 3, 2, &mut bytes).unwrap();
            assert_eq!(bytes, [i, i]);
        }
        assert_eq!(store.open.lock().unwrap().files.len(), 3);
    }

    #[test]
    fn a_file_that_lies_about_its_size_is_an_error() {
        let folder = TempFolder::new();
        let path = folder.write("a", &[7; 100]);
        let file = open_file(&path).unwrap();
        let e = read_whole(&file, &path, 50, &mut Vec::new()).unwrap_err();
        assert!(e.message().contains("grew"), "{e}");
        let file = open_file(&path).unwrap();
        let e = read_whole(&file, &path, 200, &mut Vec::new()).unwrap_err();
        assert!(e.message().contains("shrank from 200 to 100"), "{e}");
    }

    #[cfg(unix)]
    #[test]
    fn a_pipe_is_an_error_and_not_a_hang() {
        let folder = TempFolder::new();
        let path = folder.join("pipe.jpg");
        let name = std::ffi::CString::new(path.as_str()).unwrap();
        // SAFETY: `name` is a valid C string for the time of the call.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let e = LocalStore::new().read(&path, 10, &mut Vec::new()).unwrap_err();
        assert!(e.message().contains("pipe"), "{e}");
        assert_eq!(
            LocalStore::new().read_range(&path, 0, 1, &mut Vec::new()).unwrap_err().kind(),
            ErrorKind::Io
        );
    }

    #[test]
    fn a_number_too_large_for_the_system_is_an_error() {
        let folder = TempFolder::new();
        let path = folder.write("a", b"abc");
        assert!(LocalStore::new().read_range(&path, u64::MAX, 1, &mut Vec::new()).is_err());
        assert!(LocalStore::new().read_range(&path, 0, usize::MAX, &mut Vec::new()).is_err());
    }
}
