//! Loads and stores of whole and partial vectors, checked by types and slices instead of addresses.

pub(super) mod avx2;
pub(super) mod avx512;
