//! 512-bit loads and stores.

use std::arch::x86_64::*;

#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn load(src: &[u8; 64]) -> __m512i {
    // SAFETY: the array is 64 bytes long.
    unsafe { _mm512_loadu_si512(src.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn store(out: &mut [u8; 64], v: __m512i) {
    // SAFETY: the array is 64 bytes long.
    unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), v) }
}

/// Bits 0 to n - 1.
#[inline]
pub(crate) fn low_bits(n: usize) -> u64 {
    if n >= 64 { !0 } else { !(!0 << n) }
}

/// The first 64 bytes of `src`, zeros where it is shorter.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(crate) fn load_part(src: &[u8]) -> __m512i {
    // SAFETY: bytes past the end of the slice are masked off, and masked lanes are not accessed.
    unsafe { _mm512_maskz_loadu_epi8(low_bits(src.len()), src.as_ptr().cast()) }
}

/// As [`load_part`]; full vectors without a mask.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(crate) fn load_up_to(src: &[u8]) -> __m512i {
    match src.first_chunk() {
        Some(chunk) => load(chunk),
        None => load_part(src),
    }
}

/// Stores as many bytes as `out` takes, at most 64.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(crate) fn store_part(out: &mut [u8], v: __m512i) {
    // SAFETY: bytes past the end of the slice are masked off, and masked lanes are not accessed.
    unsafe { _mm512_mask_storeu_epi8(out.as_mut_ptr().cast(), low_bits(out.len()), v) }
}

/// A vector of the 64 bytes that `f` gives for each position, computed at compile time where it is a constant.
pub(crate) const fn permutation(table: [u8; 64]) -> __m512i {
    // SAFETY: both are 64 bytes without invalid values.
    unsafe { std::mem::transmute(table) }
}
