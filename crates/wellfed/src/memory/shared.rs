//! [`SharedMemory`]: words that several processes read and write, in an anonymous file.
//!
//! Invariant: all access is atomic and one word at a time, so whatever other processes do there is no data race. The
//! memory is there as long as some process has it mapped, and takes pages only where it was touched.

use std::{fs::File, io, ptr::NonNull, sync::atomic::AtomicU64};

/// Bytes of a word.
pub(crate) const WORD: usize = 8;

/// An anonymous file, mapped. A forked child has it too.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    start: NonNull<AtomicU64>,
    words: usize,
    /// Where it was made.
    file: Option<File>,
}

// SAFETY: the mapping belongs to this value, and is not tied to a thread.
unsafe impl Send for SharedMemory {}
// SAFETY: shared access gives nothing but atomics.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// At least `bytes` bytes of zero.
    ///
    /// # Errors
    /// Those of the system, which may have no such files.
    pub(crate) fn new(bytes: usize) -> io::Result<Self> {
        let file = anonymous_file("wellfed-shared")?;
        let bytes = bytes.max(1).next_multiple_of(WORD);
        file.set_len(bytes as u64)?;
        let mut this = Self::attach(&file)?;
        this.file = Some(file);
        Ok(this)
    }

    /// All of a file that [`SharedMemory::new`] made, maybe in another process.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn attach(file: &File) -> io::Result<Self> {
        let bytes = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        let start = map(file, bytes)?;
        Ok(Self { start, words: bytes / WORD, file: None })
    }

    /// All words.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has so many words, begins at a page, lives as long as `self`, and nobody has any
        // reference to it but atomics. The file has no seals and is made shorter by nobody.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }

    /// The file, for another process. Only whoever made it has it open.
    pub(crate) fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: mapped in `attach` with this length; nobody can look at it any more.
        #[cfg(unix)]
        unsafe {
            libc::munmap(self.start.as_ptr().cast(), self.words * WORD);
        }
    }
}

#[cfg(unix)]
fn map(file: &File, bytes: usize) -> io::Result<NonNull<AtomicU64>> {
    use std::os::fd::AsRawFd;
    if bytes == 0 || !bytes.is_multiple_of(WORD) {
        return Err(io::Error::other(format!("{bytes} bytes are no whole number of words")));
    }
    // SAFETY: a new mapping at a place of the system's choice touches no other memory.
    let start = unsafe {
        let how = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(std::ptr::null_mut(), bytes, how, libc::MAP_SHARED, file.as_raw_fd(), 0)
    };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))
}

#[cfg(not(unix))]
fn map(_file: &File, _bytes: usize) -> io::Result<NonNull<AtomicU64>> {
    Err(io::ErrorKind::Unsupported.into())
}

/// A file in memory that is gone with the last process that has it open. `name` is what others see of it.
///
/// # Errors
/// Those of the system, which may have no such files.
#[cfg(target_os = "linux")]
pub(crate) fn anonymous_file(name: &str) -> io::Result<File> {
    use std::{ffi::CString, os::fd::FromRawFd};
    let name = CString::new(name)?;
    // SAFETY: the name is a C string that lives through the call.
    let descriptor = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made, and nobody else knows of it.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}

/// As on Linux, where there are such files.
#[cfg(not(target_os = "linux"))]
pub(crate) fn anonymous_file(_name: &str) -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    fn what_one_mapping_writes_the_other_reads() {
        let memory = SharedMemory::new(1001).unwrap();
        let other = SharedMemory::attach(memory.file().unwrap()).unwrap();
        assert_eq!((memory.words().len(), other.words().len()), (126, 126));
        assert!(memory.words().iter().all(|word| word.load(Relaxed) == 0));
        memory.words()[125].store(7, Relaxed);
        assert_eq!(other.words()[125].load(Relaxed), 7);
        drop(memory);
        assert_eq!(other.words()[125].load(Relaxed), 7);
    }

    #[test]
    fn a_file_of_no_whole_words_is_refused() {
        assert!(SharedMemory::attach(&anonymous_file("x").unwrap()).is_err());
        let file = anonymous_file("x").unwrap();
        file.set_len(9).unwrap();
        assert!(SharedMemory::attach(&file).is_err());
    }
}
