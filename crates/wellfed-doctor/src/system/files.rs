//! Reading the small files in which the kernel tells what it counts: again and again, with as few calls as possible.

use std::{fs::File, io, os::unix::fs::FileExt, path::Path};

/// A file of `/proc` that is kept open: reading it anew costs no walk of its path.
#[derive(Debug)]
pub(super) struct Kept(File);

impl Kept {
    /// Opens a file.
    pub(super) fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        File::open(path).map(Self)
    }

    /// Its text as of now, in `buffer`. The text of a process that is gone is an error.
    pub(super) fn read<'a>(&self, buffer: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
        if buffer.len() < 4096 {
            buffer.resize(4096, 0);
        }
        let mut len = 0;
        loop {
            let read = self.0.read_at(&mut buffer[len..], len as u64)?;
            len += read;
            if read == 0 || len < buffer.len() {
                break;
            }
            buffer.resize(buffer.len() * 2, 0);
        }
        if len == 0 { Err(io::ErrorKind::NotFound.into()) } else { Ok(&buffer[..len]) }
    }
}

/// Nanoseconds of one tick, the kernel's unit of CPU time.
pub(super) fn tick() -> u64 {
    1_000_000_000 / sysconf(libc::_SC_CLK_TCK).unwrap_or(100).max(1)
}

/// Bytes of a page.
pub(super) fn page() -> u64 {
    sysconf(libc::_SC_PAGESIZE).unwrap_or(4096)
}

fn sysconf(name: libc::c_int) -> Option<u64> {
    // SAFETY: sysconf(3) takes any number and touches no memory of ours.
    u64::try_from(unsafe { libc::sysconf(name) }).ok().filter(|value| *value > 0)
}

/// Numbers such as `0-3,8` lists.
pub(super) fn ranges(text: &str) -> Vec<usize> {
    let mut numbers = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) {
            // No machine has more; a text that claims it is not worth the memory.
            numbers.extend(first..=last.min(first.saturating_add(65_535)));
        }
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::{
        super::clock::{monotonic, process_cpu, thread_cpu},
        *,
    };

    #[test]
    fn lists_of_cores() {
        assert_eq!(ranges("0-3,8\n"), [0, 1, 2, 3, 8]);
        assert_eq!(ranges("5"), [5]);
        assert_eq!(ranges(""), [0; 0]);
        assert_eq!(ranges("a-b,3-1,2"), [2]);
    }

    #[test]
    fn a_kept_file_is_read_anew() {
        let file = Kept::open("/proc/self/schedstat").or_else(|_| Kept::open("/proc/self/stat")).unwrap();
        let mut buffer = Vec::new();
        let before = file.read(&mut buffer).unwrap().to_vec();
        let begin = thread_cpu();
        while thread_cpu() < begin + 30_000_000 {}
        assert!(process_cpu() >= 30_000_000 && monotonic() > 0);
        let mut again = Vec::new();
        // The test harness's main thread may have slept all the while: only the form is sure.
        assert_eq!(
            file.read(&mut again).unwrap().iter().filter(|byte| **byte == b' ').count(),
            before.iter().filter(|byte| **byte == b' ').count()
        );
    }

    #[test]
    fn a_file_longer_than_the_buffer_is_read_whole() {
        let mut text = Vec::new();
        let long = Kept::open("/proc/kallsyms").or_else(|_| Kept::open("/proc/self/smaps")).unwrap();
        let bytes = long.read(&mut text).unwrap();
        assert!(!bytes.is_empty());
    }
}
