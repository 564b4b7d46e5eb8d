//! Batch buffers: aligned memory that goes from workers to the consumer and comes back when the consumer's last
//! array dies.
//!
//! A [`Buffer`] has one owner at any time. Dropping it returns its memory to the [`Pool`] it came from, which
//! keeps a bounded number and frees the rest. Memory that a consumer still holds is never handed out again.

use std::{
    ops::Range,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use crate::{
    Result,
    budget::{Budget, Holder},
    lock,
    memory::{
        Memory,
        allocator::{Allocator, Block},
    },
};

/// Keeps memory for reuse.
#[derive(Debug)]
pub(crate) struct Pool {
    free: Mutex<Vec<Block>>,
    /// Buffers kept at most; more than a ring needs would only hold memory.
    keep: AtomicUsize,
    /// Bytes the loader holds above which nothing is kept.
    limit: AtomicU64,
    /// Bytes that this pool handed out or keeps.
    bytes: AtomicU64,
    /// Of these, bytes that the consumer holds.
    lent: AtomicU64,
    /// Where what the loader holds is counted.
    budget: Arc<Budget>,
    /// Where memory comes from.
    allocator: Arc<Allocator>,
    /// Locks that others held when a child was forked stay locked there.
    process: u32,
}

impl Pool {
    /// A pool by itself.
    pub(crate) fn new(keep: usize) -> Arc<Self> {
        Self::with_budget(keep, Budget::new(), Allocator::new(None))
    }

    /// A pool of memory of `allocator`, whose bytes are counted in `budget`.
    pub(crate) fn with_budget(keep: usize, budget: Arc<Budget>, allocator: Arc<Allocator>) -> Arc<Self> {
        Arc::new(Self {
            budget,
            allocator,
            process: std::process::id(),
            free: Mutex::default(),
            keep: AtomicUsize::new(keep),
            limit: AtomicU64::new(u64::MAX),
            bytes: AtomicU64::new(0),
            lent: AtomicU64::new(0),
        })
    }

    pub(crate) fn set_keep(&self, keep: usize) {
        self.keep.store(keep, Relaxed);
    }

    /// Keeps no buffer that makes the loader hold more than `bytes`, for batches that differ in size; 0 keeps none.
    pub(crate) fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Relaxed);
    }

    /// Where its memory comes from.
    pub(crate) fn allocator(&self) -> &Arc<Allocator> {
        &self.allocator
    }

    /// The budget that bytes are counted in.
    pub(crate) fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// A buffer of `len` bytes. Contents are unspecified but initialized. Whoever calls has made sure of room.
    ///
    /// # Errors
    /// `Limit` if the system has no memory for it.
    pub(crate) fn take(self: &Arc<Self>, len: usize) -> Result<Buffer> {
        let memory = match self.reuse(len) {
            Some(memory) => memory,
            None => {
                // Counted, and room made, before it is taken.
                let size = len.max(1) as u64;
                self.count(size);
                let surplus = self.surplus(&mut lock(&self.free));
                // Unlocking pages may wait for threads that wait for the lock: not under it.
                drop(surplus);
                self.allocator.zeroed(len).inspect_err(|_| self.discount(size))?
            }
        };
        Ok(self.buffer(memory, len))
    }

    /// As [`Pool::take`], but only what the budget has room for; what is kept for the next batches gives way. `None` if
    /// that is not enough.
    ///
    /// # Errors
    /// `Limit` if the system has no memory for it.
    pub(crate) fn take_within(self: &Arc<Self>, len: usize) -> Result<Option<Buffer>> {
        if let Some(memory) = self.reuse_about(len) {
            return Ok(Some(self.buffer(memory, len)));
        }
        // A little more, if there is room for it: the next batch is about as large.
        let roomy = self.allocator.roomy(len.max(1)) as u64;
        let size = if roomy > len as u64 && self.budget.take(roomy, Holder::Batches) {
            roomy
        } else {
            let size = len.max(1) as u64;
            while !self.budget.take(size, Holder::Batches) {
                let oldest = {
                    let mut free = lock(&self.free);
                    (!free.is_empty()).then(|| free.remove(0))
                };
                let Some(oldest) = oldest else { return Ok(None) };
                let freed = oldest.size() as u64;
                drop(oldest);
                self.discount(freed);
            }
            size
        };
        self.bytes.fetch_add(size, Relaxed);
        let memory = self.allocator.zeroed(size as usize).inspect_err(|_| self.discount(size))?;
        Ok(Some(self.buffer(memory, len)))
    }

    /// Frees what is kept for the next batches.
    pub(crate) fn clear(&self) {
        let free = std::mem::take(&mut *lock(&self.free));
        for memory in free {
            let size = memory.size() as u64;
            drop(memory);
            self.discount(size);
        }
    }

    /// A buffer over a caller's memory, for a pool that keeps nothing.
    ///
    /// # Safety
    /// The memory stays valid, and nobody else looks at it, until the buffer is gone.
    pub(crate) unsafe fn lent(self: &Arc<Self>, memory: &mut [u8]) -> Buffer {
        debug_assert_eq!(self.keep.load(Relaxed), 0, "the pool would hand it out again");
        self.count(memory.len() as u64);
        let len = memory.len();
        // SAFETY: the caller's promise.
        self.buffer(Block::lent(unsafe { Memory::lent(memory) }), len)
    }

    fn buffer(self: &Arc<Self>, memory: Block, len: usize) -> Buffer {
        Buffer { memory: Some(memory), len, lent: false, pool: self.clone() }
    }

    /// Memory of this size that was kept.
    fn reuse(&self, len: usize) -> Option<Block> {
        let mut free = lock(&self.free);
        // The last one returned is the most likely to be in cache.
        free.iter().rposition(|m| m.size() == len.max(1)).map(|i| free.remove(i))
    }

    /// Memory that was kept and is large enough, but not much larger; of this size only where it costs little to make.
    fn reuse_about(&self, len: usize) -> Option<Block> {
        let (least, most) = (len.max(1), self.allocator.roomy(len.max(1)));
        let mut free = lock(&self.free);
        let about = |m: &Block| (least..=most + most / 4 * usize::from(most > least)).contains(&m.size());
        free.iter().rposition(about).map(|i| free.remove(i))
    }

    /// Bytes the loader holds: under way, or kept for reuse.
    pub(crate) fn held(&self) -> u64 {
        self.bytes.load(Relaxed).saturating_sub(self.lent.load(Relaxed))
    }

    fn count(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
        self.budget.force(bytes, Holder::Batches);
    }

    fn discount(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Relaxed);
        self.budget.give(bytes, Holder::Batches);
    }

    fn give_back(&self, memory: Block) {
        if self.process != std::process::id() {
            return;
        }
        let mut free = lock(&self.free);
        free.push(memory);
        let surplus = self.surplus(&mut free);
        // Freeing may take long: not under the lock.
        drop(free);
        drop(surplus);
    }

    /// Takes out what is not to be kept, of what was used longest ago first.
    fn surplus(&self, free: &mut Vec<Block>) -> Vec<Block> {
        let (keep, limit) = (self.keep.load(Relaxed), self.limit.load(Relaxed));
        let mut surplus = Vec::new();
        while !free.is_empty() && (free.len() > keep || self.held() > limit) {
            let memory = free.remove(0);
            self.discount(memory.size() as u64);
            surplus.push(memory);
        }
        surplus
    }
}

/// Bytes of one column of a batch, aligned to at least 64.
#[derive(Debug)]
pub struct Buffer {
    memory: Option<Block>,
    len: usize,
    lent: bool,
    pool: Arc<Pool>,
}

impl Buffer {
    fn start(&self) -> *mut u8 {
        self.memory.as_ref().expect("only drop takes the memory").start()
    }

    /// The consumer holds it from now on.
    pub(crate) fn lend(&mut self) {
        self.lent = true;
        self.pool.lent.fetch_add(self.len as u64, Relaxed);
        self.pool.budget.give(self.len as u64, Holder::Batches);
    }

    /// Part `index` of `size` bytes, to write.
    ///
    /// # Safety
    /// Until the returned slice is dead, no other reference to this part may exist.
    #[allow(clippy::mut_from_ref, reason = "workers write disjoint parts of one buffer; see Safety")]
    pub(crate) unsafe fn part(&self, index: usize, size: usize) -> &mut [u8] {
        let at = index.checked_mul(size).expect("inside the buffer");
        assert!(at.checked_add(size).is_some_and(|end| end <= self.len), "part {index} of {size} bytes");
        // SAFETY: inside the allocation (just checked), initialized (zeroed when allocated), and exclusive by the
        // caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start().add(at), size) }
    }

    /// Neighbouring parts of `size` bytes each, to write.
    ///
    /// # Safety
    /// As of [`Buffer::part`], for each of them.
    #[allow(clippy::mut_from_ref, reason = "workers write disjoint parts of one buffer; see Safety")]
    pub(crate) unsafe fn parts(&self, range: Range<usize>, size: usize) -> &mut [u8] {
        let (start, end) = (range.start.checked_mul(size), range.end.checked_mul(size));
        let (start, end) = start.zip(end).expect("inside the buffer");
        assert!(start <= end && end <= self.len, "parts {range:?} of {size} bytes");
        // SAFETY: as of `part`.
        unsafe { std::slice::from_raw_parts_mut(self.start().add(start), end - start) }
    }
}

impl std::ops::Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the allocation has `len` initialized bytes and lives as long as `self`. `part` is only used
        // before a batch is complete, when nobody reads it.
        unsafe { std::slice::from_raw_parts(self.start(), self.len) }
    }
}

impl std::ops::DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` is the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.len) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.lent {
            self.pool.lent.fetch_sub(self.len as u64, Relaxed);
            self.pool.budget.force(self.len as u64, Holder::Batches);
        }
        if let Some(memory) = self.memory.take() {
            self.pool.give_back(memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{HUGE, allocator::counting::Counting};

    #[test]
    fn memory_returns_to_the_pool_only_when_its_owner_is_gone() {
        let pool = Pool::new(2);
        let first = pool.take(1000).unwrap();
        let address = first.as_ptr();
        assert_eq!(address as usize % 64, 0);
        let second = pool.take(1000).unwrap();
        assert_ne!(second.as_ptr(), address);
        drop(first);
        assert_eq!(pool.take(1000).unwrap().as_ptr(), address);
        assert_eq!(pool.take(3 << 20).unwrap().as_ptr() as usize % HUGE, 0);
    }

    #[test]
    fn buffers_of_a_size_no_longer_used_go_first() {
        let pool = Pool::new(2);
        drop((pool.take(10).unwrap(), pool.take(10).unwrap()));
        let (first, second) = (pool.take(30).unwrap(), pool.take(30).unwrap());
        let address = second.as_ptr();
        drop((first, second));
        assert_eq!((pool.held(), pool.take(30).unwrap().as_ptr()), (60, address));
        pool.set_limit(65);
        let other = pool.take(20).unwrap();
        assert_eq!(pool.held(), 50, "one of the two made room");
        drop(other);
        assert_eq!(pool.held(), 50);
    }

    #[test]
    fn locked_memory_of_batches_that_differ_a_little_is_used_again() {
        let page_lock = Counting::up_to(usize::MAX);
        let pool = Pool::with_budget(2, Budget::new(), Allocator::new(Some(page_lock.clone())));
        for len in [1_000_000, 1_010_000, 990_000, 1_020_000, 1_000_001] {
            let buffer = pool.take_within(len).unwrap().unwrap();
            assert_eq!(buffer.len(), len);
        }
        assert_eq!(page_lock.calls.load(Relaxed), 1);
        // Without room for more than what is needed, that is taken.
        let tight = Pool::with_budget(2, Budget::new(), Allocator::new(Some(page_lock.clone())));
        tight.budget().set_cap(Holder::Batches, 1_000_000);
        assert!(tight.take_within(1_000_000).unwrap().is_some());
        assert_eq!(tight.held(), 1_000_000);
    }

    #[test]
    fn what_is_kept_makes_room_within_the_budget_and_what_is_in_use_does_not() {
        let pool = Pool::new(4);
        pool.budget().set_cap(Holder::Batches, 100);
        let used = pool.take_within(40).unwrap().unwrap();
        drop(pool.take_within(30).unwrap());
        drop(pool.take_within(20).unwrap());
        assert_eq!(pool.held(), 90, "two are kept");
        let other = pool.take_within(50).unwrap().unwrap();
        assert_eq!(pool.held(), 90, "both made room");
        assert!(pool.take_within(11).unwrap().is_none());
        drop(used);
        assert!(pool.take_within(11).unwrap().is_some());
        drop(other);
        assert_eq!(pool.budget().used(Holder::Batches), pool.held());
    }

    #[cfg(unix)]
    #[test]
    fn a_forked_child_frees_memory_whatever_was_locked() {
        let pool = Pool::new(2);
        let buffer = pool.take(1000).unwrap();
        let held = lock(&pool.free);
        // SAFETY: the child only frees memory and ends, without running anything else of this process.
        let child = unsafe { libc::fork() };
        if child == 0 {
            drop(buffer);
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(7) };
        }
        drop(held);
        let mut status = 0;
        for _ in 0..1000 {
            // SAFETY: `child` is ours, and `status` is a place for its status.
            if unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } != 0 {
                assert_eq!(libc::WEXITSTATUS(status), 7);
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        // SAFETY: `child` is ours and hangs.
        unsafe { libc::kill(child, libc::SIGKILL) };
        panic!("the child waits for a lock that nobody holds");
    }

    #[test]
    fn the_pool_counts_and_bounds_what_it_keeps() {
        let pool = Pool::new(1);
        let mut buffers = [pool.take(100).unwrap(), pool.take(100).unwrap(), pool.take(100).unwrap()];
        assert_eq!(pool.held(), 300);
        buffers[0].lend();
        assert_eq!(pool.held(), 200);
        drop(buffers);
        assert_eq!(pool.held(), 100);
    }

    #[test]
    fn reused_buffers_are_not_locked_again_and_what_is_freed_is_unlocked() {
        let page_lock = Counting::up_to(usize::MAX);
        let pool = Pool::with_budget(1, Budget::new(), Allocator::new(Some(page_lock.clone())));
        for _ in 0..5 {
            drop(pool.take(100).unwrap());
        }
        assert_eq!((page_lock.calls.load(Relaxed), page_lock.held()), (1, 1));
        let (first, second) = (pool.take(100).unwrap(), pool.take_within(300).unwrap().unwrap());
        assert_eq!((page_lock.calls.load(Relaxed), pool.held()), (2, 400), "bytes are those asked for");
        drop((first, second));
        assert_eq!((page_lock.held(), pool.held()), (1, 300));
        let held = pool.take(300).unwrap();
        drop(pool);
        assert_eq!(page_lock.held(), 1, "a consumer's memory stays locked as long as it is there");
        drop(held);
        assert_eq!(page_lock.held(), 0);
    }
}
