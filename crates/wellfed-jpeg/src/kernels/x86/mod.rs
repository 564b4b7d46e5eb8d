//! Loads and stores of whole and partial vectors, checked by types and slices instead of addresses.
//!
//! In the kernels that use these, arrays of vectors are filled by loops, not by `map` or `from_fn`: those functions
//! lack the features of the kernels, and where not all of them is inlined, vectors pass through memory.

pub(super) mod avx2;
pub(super) mod avx512;
