//! [`Allocator`]: where the memory of batches comes from: pageable, or page-locked, which a device reads by itself.
//!
//! Who page-locks is given from outside ([`PageLock`]), as the engine knows no device. Invariants: memory is locked once,
//! when it is made, and unlocked before it is freed; where it cannot be unlocked it is never freed. Where the system
//! refuses, memory is pageable, and [`Allocator::stats`] says how often and why.

use std::{
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use serde::{Deserialize, Serialize};

use super::Memory;
use crate::{Result, lock};

/// Locks memory to its pages, so that a device may read it. Called from any thread, of threads at once, and never while
/// the engine holds a lock that it takes to free memory.
pub trait PageLock: fmt::Debug + Send + Sync {
    /// Locks `len` bytes from `start` on: whole pages, which nothing else lies in.
    ///
    /// # Errors
    /// Why it was refused. Then the memory is used as it is.
    fn lock(&self, start: *mut u8, len: usize) -> Result<()>;

    /// Undoes [`PageLock::lock`]. False if that is not possible: then the memory must stay for good.
    fn unlock(&self, start: *mut u8) -> bool;
}

/// What became of page-locking the memory of batches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PageLockStats {
    /// Buffers that are locked now, those with the consumer included.
    pub buffers: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Buffers that the system refused to lock: they are pageable, and copied once more on their way to a device.
    pub refused: u64,
    /// Why, the first time.
    pub problem: Option<String>,
}

impl fmt::Display for PageLockStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { buffers, bytes, refused, problem } = self;
        write!(f, "page-locked: {buffers} buffers of batches, {:.1} MB", *bytes as f64 / 1e6)?;
        if *refused > 0 {
            write!(
                f,
                "; {refused} were refused and are copied once more: {}",
                problem.as_deref().unwrap_or("?")
            )?;
        }
        Ok(())
    }
}

/// Makes the memory of batches.
#[derive(Debug, Default)]
pub(crate) struct Allocator {
    page_lock: Option<Arc<dyn PageLock>>,
    buffers: AtomicU64,
    bytes: AtomicU64,
    refused: AtomicU64,
    problem: Mutex<Option<String>>,
}

impl Allocator {
    /// Page-locked memory, or pageable memory without `page_lock`.
    pub(crate) fn new(page_lock: Option<Arc<dyn PageLock>>) -> Arc<Self> {
        Arc::new(Self { page_lock, ..Self::default() })
    }

    /// How many bytes to take where `len` are needed now and about as many next time. Page-locking takes as long as writing
    /// the memory once or longer, so that memory which is locked is made up to an eighth larger, and used again; other
    /// memory is made as it is needed.
    pub(crate) fn roomy(&self, len: usize) -> usize {
        const SMALL: usize = 1 << 16;
        if self.page_lock.is_none() || len < SMALL {
            return len;
        }
        let step = len.checked_next_power_of_two().map_or(1, |power| power / 16);
        len.checked_next_multiple_of(step).unwrap_or(len)
    }

    /// `len` bytes of zero. The caller holds no lock that freeing memory needs.
    ///
    /// # Errors
    /// `Limit` if the system does not give them. That they cannot be locked is no error.
    pub(crate) fn zeroed(self: &Arc<Self>, len: usize) -> Result<Block> {
        let Some(page_lock) = &self.page_lock else {
            return Ok(Block { memory: Some(Memory::zeroed(len)?), locked: None });
        };
        let memory = Memory::zeroed_pages(len)?;
        let locked = match page_lock.lock(memory.start(), memory.reserved()) {
            Ok(()) => {
                self.buffers.fetch_add(1, Relaxed);
                self.bytes.fetch_add(memory.size() as u64, Relaxed);
                Some(Locked { allocator: self.clone(), process: std::process::id() })
            }
            Err(error) => {
                self.refused.fetch_add(1, Relaxed);
                // The first reason is as good as another.
                lock(&self.problem).get_or_insert_with(|| error.message().to_owned());
                None
            }
        };
        Ok(Block { memory: Some(memory), locked })
    }

    /// What became of page-locking; `None` where nobody asked for it.
    pub(crate) fn stats(&self) -> Option<PageLockStats> {
        self.page_lock.as_ref().map(|_| PageLockStats {
            buffers: self.buffers.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            refused: self.refused.load(Relaxed),
            problem: lock(&self.problem).clone(),
        })
    }
}

/// Memory of an [`Allocator`].
#[derive(Debug)]
pub(crate) struct Block {
    memory: Option<Memory>,
    locked: Option<Locked>,
}

#[derive(Debug)]
struct Locked {
    allocator: Arc<Allocator>,
    process: u32,
}

impl Block {
    /// A caller's memory, which he may have locked.
    pub(crate) fn lent(memory: Memory) -> Self {
        Self { memory: Some(memory), locked: None }
    }

    fn memory(&self) -> &Memory {
        self.memory.as_ref().expect("only drop takes the memory")
    }

    /// The first byte.
    pub(crate) fn start(&self) -> *mut u8 {
        self.memory().start()
    }

    /// Bytes asked for, at least 1.
    pub(crate) fn size(&self) -> usize {
        self.memory().size()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let (Some(memory), Some(Locked { allocator, process })) = (self.memory.take(), self.locked.take())
        else {
            return;
        };
        let unlocked = process == std::process::id()
            && allocator.page_lock.as_ref().is_some_and(|page_lock| page_lock.unlock(memory.start()));
        if !unlocked {
            // A forked child has no device, and its copy of locked pages may not be there. At the end of the process
            // nobody may be left to unlock it.
            std::mem::forget(memory);
            return;
        }
        allocator.buffers.fetch_sub(1, Relaxed);
        allocator.bytes.fetch_sub(memory.size() as u64, Relaxed);
    }
}

/// A page lock that counts, for tests.
#[cfg(test)]
pub(crate) mod counting {
    use std::collections::BTreeMap;

    use super::*;
    use crate::Error;

    /// Remembers what is locked; refuses memory above `most` bytes.
    #[derive(Debug)]
    pub(crate) struct Counting {
        pub(crate) most: usize,
        pub(crate) unlocks: bool,
        pub(crate) held: Mutex<BTreeMap<usize, usize>>,
        pub(crate) calls: AtomicU64,
    }

    impl Counting {
        pub(crate) fn up_to(most: usize) -> Arc<Self> {
            let (held, calls) = (Mutex::default(), AtomicU64::new(0));
            Arc::new(Self { most, unlocks: true, held, calls })
        }

        pub(crate) fn held(&self) -> usize {
            lock(&self.held).len()
        }
    }

    impl PageLock for Counting {
        fn lock(&self, start: *mut u8, len: usize) -> Result<()> {
            self.calls.fetch_add(1, Relaxed);
            if len > self.most {
                return Err(Error::config("the system says no"));
            }
            assert!(lock(&self.held).insert(start.addr(), len).is_none(), "locked twice");
            Ok(())
        }

        fn unlock(&self, start: *mut u8) -> bool {
            assert!(lock(&self.held).remove(&start.addr()).is_some(), "not locked");
            self.unlocks
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{counting::Counting, *};

    #[test]
    fn memory_is_locked_once_in_pages_of_its_own_and_unlocked_before_it_goes() {
        let page_lock = Counting::up_to(usize::MAX);
        let allocator = Allocator::new(Some(page_lock.clone()));
        let blocks: Vec<Block> = [0, 1, 100, 5000, 3 << 20].map(|len| allocator.zeroed(len).unwrap()).into();
        let pages: Vec<(usize, usize)> = lock(&page_lock.held).iter().map(|(at, len)| (*at, *len)).collect();
        for ((at, len), next) in pages.iter().zip(pages[1..].iter().map(|(at, _)| *at).chain([usize::MAX])) {
            assert_eq!((at % 4096, len % 4096), (0, 0));
            assert!(at + len <= next, "pages are shared");
        }
        let stats = allocator.stats().unwrap();
        assert_eq!((stats.buffers, stats.bytes, stats.refused), (5, 1 + 1 + 100 + 5000 + (3 << 20), 0));
        drop(blocks);
        assert_eq!((page_lock.held(), allocator.stats().unwrap().bytes), (0, 0));
    }

    #[test]
    fn memory_that_is_locked_is_made_a_little_larger_than_it_must_be() {
        let (locked, plain) = (Allocator::new(Some(Counting::up_to(usize::MAX))), Allocator::new(None));
        for len in [1, 5000, 1 << 16, (1 << 16) + 1, 20_000_000, 154_140_672, usize::MAX - 5] {
            assert_eq!(plain.roomy(len), len);
            let roomy = locked.roomy(len);
            assert!(
                roomy >= len && roomy - len <= len / 8 && (len >= 1 << 16 || roomy == len),
                "{len}: {roomy}"
            );
        }
        assert_eq!(locked.roomy(20_000_000), locked.roomy(20_500_000));
    }

    #[test]
    fn what_is_refused_is_pageable_and_said() {
        let page_lock = Counting::up_to(4096 * 16);
        let allocator = Allocator::new(Some(page_lock.clone()));
        let (large, small) = (allocator.zeroed(1 << 20).unwrap(), allocator.zeroed(100).unwrap());
        let stats = allocator.stats().unwrap();
        assert_eq!((stats.buffers, stats.refused), (1, 1));
        assert_eq!(stats.problem.as_deref(), Some("the system says no"));
        drop((large, small));
        assert_eq!(page_lock.held(), 0, "what was not locked is not unlocked");
        assert_eq!(Allocator::new(None).stats(), None);
    }
}
