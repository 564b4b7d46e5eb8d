//! `Slab`: memory that a cache fills and never takes back, in large blocks of huge pages.
//!
//! A cache in memory reads its samples in random order, each once an epoch: with small pages the page tables alone
//! would be too large for the processor's caches. Invariant: a part of a block is handed out once, and written
//! before anyone else sees it.

use std::{
    fmt,
    ops::Deref,
    sync::{Arc, Mutex},
};

use super::{ALIGN, Memory};
use crate::{Result, lock};

/// Bytes of a block. What is not used of the last one has no pages.
const BLOCK: usize = 32 << 20;

/// Bytes from this size on have a block of their own, so that no more than a quarter of any block is left over.
const OWN: usize = BLOCK / 4;

/// Memory for bytes that stay.
#[derive(Debug, Default)]
pub(crate) struct Slab {
    /// The block under way, and how much of it was handed out.
    open: Mutex<Option<(Arc<Memory>, usize)>>,
}

impl Slab {
    /// A copy of `bytes`.
    ///
    /// # Errors
    /// `Limit` if the system has no memory for it.
    pub(crate) fn keep(&self, bytes: &[u8]) -> Result<SharedBytes> {
        let (block, at) = self.part(bytes.len())?;
        // SAFETY: `part` gave these bytes of the block to nobody else, and nobody reads them before this returns.
        unsafe { block.start().add(at).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(SharedBytes { block, at, len: bytes.len() })
    }

    /// `len` bytes that nobody has: of which block, and where in it.
    fn part(&self, len: usize) -> Result<(Arc<Memory>, usize)> {
        if len >= OWN {
            return Ok((Arc::new(Memory::new(len)?), 0));
        }
        let mut open = lock(&self.open);
        let (block, at) = match open.take() {
            Some((block, at)) if len <= block.size() - at => (block, at),
            _ => (Arc::new(Memory::new(BLOCK)?), 0),
        };
        let next = (at + len).next_multiple_of(ALIGN).min(block.size());
        *open = Some((block.clone(), next));
        Ok((block, at))
    }
}

/// Bytes in a cache's memory. A clone is the same bytes; the memory is freed with the last that lies in its block.
#[derive(Clone)]
pub struct SharedBytes {
    block: Arc<Memory>,
    at: usize,
    len: usize,
}

impl Deref for SharedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `Slab::keep` initialized these bytes of the block, and nobody writes to them again.
        unsafe { std::slice::from_raw_parts(self.block.start().add(self.at), self.len) }
    }
}

impl PartialEq for SharedBytes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for SharedBytes {}

impl fmt::Debug for SharedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{} bytes in a cache>", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_stays_whole_and_apart() {
        let slab = Slab::default();
        let lens = [0, 1, 63, 64, 65, OWN - 1, OWN - 1, OWN, OWN - 1, OWN - 1, OWN - 1, BLOCK + 1, 7];
        let kept: Vec<SharedBytes> =
            (0u8..).zip(lens).map(|(i, len)| slab.keep(&vec![i; len]).unwrap()).collect();
        drop(slab);
        for ((i, len), kept) in (0u8..).zip(lens).zip(&kept) {
            assert_eq!(kept.len(), len);
            assert!(kept.iter().all(|byte| *byte == i), "part {i} of {len} bytes");
            assert_eq!(kept.clone(), *kept);
        }
    }

    #[test]
    fn threads_get_parts_of_their_own() {
        let slab = Slab::default();
        std::thread::scope(|scope| {
            for i in 0..4u8 {
                let slab = &slab;
                scope.spawn(move || {
                    let kept: Vec<SharedBytes> =
                        (0..200).map(|len| slab.keep(&vec![i; len * 97]).unwrap()).collect();
                    assert!(kept.iter().all(|kept| kept.iter().all(|byte| *byte == i)));
                });
            }
        });
    }
}
