//! Another process's memory, read while it runs: it is neither stopped nor asked.

use std::io;

/// Longest text or table that is read, bytes.
const MOST: usize = 1 << 20;

/// The memory of a process that this one may look into: one of its descendants, or any of the same user where the kernel allows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    pid: libc::pid_t,
}

impl Memory {
    /// That of a process.
    pub(super) fn of(pid: u32) -> Self {
        Self { pid: libc::pid_t::try_from(pid).unwrap_or(-1) }
    }

    /// Fills `bytes` from `address` on.
    ///
    /// # Errors
    ///
    /// If there is no such memory, no such process, or it may not be read.
    pub(super) fn read(self, address: u64, bytes: &mut [u8]) -> io::Result<()> {
        let wanted = bytes.len();
        let address = usize::try_from(address).map_err(|_| io::ErrorKind::InvalidInput)?;
        let here = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: wanted };
        let there = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: wanted };
        // SAFETY: `here` describes `bytes`, which is borrowed for writing as long as the call lasts. `there` is an address of the
        // other process, which the kernel checks.
        let read = unsafe { libc::process_vm_readv(self.pid, &raw const here, 1, &raw const there, 1, 0) };
        match usize::try_from(read) {
            Ok(read) if read == wanted => Ok(()),
            Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(_) => Err(io::Error::last_os_error()),
        }
    }

    /// An array of `N` bytes at `address`.
    pub(super) fn array<const N: usize>(self, address: u64) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.read(address, &mut bytes)?;
        Ok(bytes)
    }

    /// The number at `address`, often a pointer.
    pub(super) fn word(self, address: u64) -> io::Result<u64> {
        self.array(address).map(u64::from_ne_bytes)
    }

    /// So many bytes from `address` on.
    ///
    /// # Errors
    ///
    /// As [`Memory::read`], and if there are more than a table of Python's ever has: then it is none.
    pub(super) fn bytes(self, address: u64, len: u64) -> io::Result<Vec<u8>> {
        let len = usize::try_from(len).ok().filter(|len| *len <= MOST).ok_or(io::ErrorKind::InvalidData)?;
        let mut bytes = vec![0; len];
        self.read(address, &mut bytes)?;
        Ok(bytes)
    }
}

/// The number at `offset` of a piece of memory; 0 beyond its end.
pub(super) fn word(bytes: &[u8], offset: u64) -> u64 {
    let at = usize::try_from(offset).unwrap_or(usize::MAX);
    let found = bytes.get(at..at.saturating_add(8)).and_then(|bytes| bytes.try_into().ok());
    found.map_or(0, u64::from_ne_bytes)
}

/// The number of 32 bits at `offset` of a piece of memory; 0 beyond its end.
pub(super) fn half(bytes: &[u8], offset: u64) -> u32 {
    let at = usize::try_from(offset).unwrap_or(usize::MAX);
    let found = bytes.get(at..at.saturating_add(4)).and_then(|bytes| bytes.try_into().ok());
    found.map_or(0, u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_and_what_is_none_is_an_error() {
        let text = *b"some bytes of this very process";
        let memory = Memory::of(std::process::id());
        let address = text.as_ptr() as u64;
        assert_eq!(memory.array::<31>(address).unwrap(), text);
        assert_eq!(memory.bytes(address + 5, 5).unwrap(), b"bytes");
        assert!(memory.word(8).is_err() && memory.bytes(address, 1 << 40).is_err());
        assert_eq!((word(&7u64.to_ne_bytes(), 0), word(&[1; 8], 1), half(&[0; 4], u64::MAX)), (7, 0, 0));
    }
}
