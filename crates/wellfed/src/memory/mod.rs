//! `Memory`: one aligned allocation, in huge pages where it is large. `Slab` hands out parts of such, which
//! [`SharedBytes`] are. `SharedMemory` is of several processes. `Allocator` makes the memory of batches, which may be
//! page-locked.
//!
//! Batches and caches are tens of megabytes that are walked through once, so with small pages every few kilobytes
//! cost a walk of the page tables. Invariant: huge pages are asked for before the first byte is touched; asked for
//! later, the system has long given small ones.

pub(crate) mod allocator;
mod shared;
mod slab;

use std::{
    alloc::{Layout, alloc, dealloc},
    ptr::NonNull,
};

pub use allocator::{PageLock, PageLockStats};
pub(crate) use shared::{SharedMemory, WORD, anonymous_file};
pub use slab::SharedBytes;
pub(crate) use slab::Slab;

use crate::{Error, Result};

/// Alignment of small allocations: a cache line, and the widest vector there is.
pub(crate) const ALIGN: usize = 64;

/// Allocations from this size on are aligned to huge pages and ask for them.
pub(crate) const HUGE: usize = 2 << 20;

/// Memory from the allocator, freed on drop, or a caller's.
#[derive(Debug)]
pub(crate) struct Memory {
    start: NonNull<u8>,
    layout: Layout,
    /// Bytes asked for.
    size: usize,
    owned: bool,
}

// SAFETY: `Memory` owns its allocation like a `Box<[u8]>`, or was lent it by whoever called `lent`; the pointer is not
// tied to a thread.
unsafe impl Send for Memory {}
// SAFETY: shared access only reads the pointer; writing through it is governed by its owners.
unsafe impl Sync for Memory {}

impl Memory {
    /// `len` bytes, not initialized, and without pages behind them until they are touched.
    ///
    /// # Errors
    /// `Limit` if the system does not give them.
    pub(crate) fn new(len: usize) -> Result<Self> {
        Self::aligned(len, len.max(1), ALIGN)
    }

    /// `len` of `reserved` bytes, aligned at least to `align`.
    fn aligned(len: usize, reserved: usize, align: usize) -> Result<Self> {
        let align = if len >= HUGE { HUGE } else { align };
        let none = || Error::memory(len, "batches or caches");
        let layout = Layout::from_size_align(reserved, align).map_err(|_| none())?;
        // SAFETY: the layout has a size of at least 1.
        let start = unsafe { alloc(layout) };
        let start = NonNull::new(start).ok_or_else(none)?;
        #[cfg(target_os = "linux")]
        if len >= HUGE {
            // A refusal changes nothing.
            // SAFETY: the range is ours, and the advice does not change its contents.
            unsafe { libc::madvise(start.as_ptr().cast(), len, libc::MADV_HUGEPAGE) };
        }
        Ok(Self { start, layout, size: len.max(1), owned: true })
    }

    /// The caller's memory, to be written to.
    ///
    /// # Safety
    /// It stays valid, and nobody else looks at it, until this value is gone.
    pub(crate) unsafe fn lent(memory: &mut [u8]) -> Self {
        let layout = Layout::for_value(memory);
        Self { start: NonNull::from(&mut *memory).cast(), layout, size: layout.size(), owned: false }
    }

    /// `len` bytes of zero.
    ///
    /// # Errors
    /// As [`Memory::new`].
    pub(crate) fn zeroed(len: usize) -> Result<Self> {
        let memory = Self::new(len)?;
        memory.clear();
        Ok(memory)
    }

    /// `len` bytes of zero, in pages that nothing else lies in.
    ///
    /// # Errors
    /// As [`Memory::new`].
    pub(crate) fn zeroed_pages(len: usize) -> Result<Self> {
        let page = page_size();
        let reserved = len.max(1).checked_next_multiple_of(page);
        let reserved = reserved.ok_or_else(|| Error::memory(len, "batches or caches"))?;
        let memory = Self::aligned(len, reserved, page)?;
        memory.clear();
        Ok(memory)
    }

    fn clear(&self) {
        // SAFETY: only called before anybody else knows of the allocation, which has so many bytes.
        unsafe { self.start.as_ptr().write_bytes(0, self.layout.size()) };
    }

    /// The first byte.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Bytes asked for, at least 1 where they are not a caller's.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Bytes of the allocation: more than were asked for, where it has pages of its own.
    pub(crate) fn reserved(&self) -> usize {
        self.layout.size()
    }
}

/// Bytes of a page of the system.
fn page_size() -> usize {
    #[cfg(unix)]
    // SAFETY: it only asks for a number.
    if let Ok(size @ 1..) = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }) {
        return size.next_power_of_two();
    }
    4096
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: allocated in `new` with this layout, freed once.
            unsafe { dealloc(self.start.as_ptr(), self.layout) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_there_is_is_an_error() {
        assert!(Memory::new(isize::MAX as usize - HUGE).is_err() && Memory::new(usize::MAX).is_err());
    }

    #[test]
    fn large_memory_begins_at_a_huge_page_and_small_at_a_cache_line() {
        for (len, align) in [(0, ALIGN), (1, ALIGN), (HUGE - 1, ALIGN), (HUGE, HUGE), (HUGE + 1, HUGE)] {
            let memory = Memory::zeroed(len).unwrap();
            assert_eq!((memory.start() as usize % align, memory.size()), (0, len.max(1)));
        }
    }
}
