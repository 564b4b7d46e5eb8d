//! Loads and stores of whole and partial vectors, checked by types and slices instead of addresses.
//!
//! In the kernels that use these, arrays of vectors are filled by loops, not by `map` or `from_fn`: those functions
//! lack the features of the kernels, and where not all of them is inlined, vectors pass through memory.

use std::hint::black_box;

pub(super) mod avx2;
pub(super) mod avx512;

/// Runs with a stack frame aligned to cache lines, if inlined: `keep` lives in it. Compilers do not align frames
/// for the vectors that they spill, and those that cross cache lines double the time of a kernel with many.
#[repr(align(64))]
pub(super) struct CacheAligned<T>(T);

impl<T> CacheAligned<T> {
    #[inline(always)]
    pub(super) fn new(value: T) -> Self {
        CacheAligned(value)
    }

    /// The value, in memory: without this, it would be taken apart into registers.
    #[inline(always)]
    pub(super) fn get(&self) -> &T {
        &black_box(self).0
    }
}
