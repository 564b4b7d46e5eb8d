//! 256-bit loads and stores.

use std::arch::x86_64::*;

/// The first 32 bytes of `src`, which must be that long.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn load(src: &[u8]) -> __m256i {
    let src: &[u8; 32] = src.first_chunk().expect("32 bytes are there");
    // SAFETY: the array is 32 bytes long.
    unsafe { _mm256_loadu_si256(src.as_ptr().cast()) }
}

/// Stores to the first 32 bytes of `out`, which must be that long.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn store(out: &mut [u8], v: __m256i) {
    let out: &mut [u8; 32] = out.first_chunk_mut().expect("there is room for 32 bytes");
    // SAFETY: the array is 32 bytes long.
    unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), v) }
}

/// Where vectors of 32 start that cover `n` elements: every 32, the last so that it ends with the data (what it
/// shares with the one before is computed twice). None if there are fewer than 32.
pub(crate) fn starts(n: usize) -> impl Iterator<Item = usize> {
    (0..n / 32).map(|i| i * 32).chain((n > 32 && !n.is_multiple_of(32)).then(|| n - 32))
}

/// Fewer than 32 bytes, filled up with zeros.
pub(crate) fn padded(src: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    out[..src.len()].copy_from_slice(src);
    out
}
