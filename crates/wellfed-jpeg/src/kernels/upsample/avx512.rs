//! The filters on 64 output samples at a time. Sums are in 16-bit lanes, the two outputs of an input in the two
//! bytes of a lane.

use std::arch::x86_64::*;

use crate::kernels::x86::avx512::{load, load_part, load_up_to, permutation, store, store_part};

/// Bytes i + first and i + first + 1 in lane i.
const fn neighbours(first: usize) -> __m512i {
    let mut table = [0; 64];
    let mut i = 0;
    while i < 64 {
        table[i] = (first + i / 2 + i % 2) as u8;
        i += 1;
    }
    permutation(table)
}

/// Lanes 1 to 32, or 2 to 33, of two vectors.
const fn later(first: usize) -> __m512i {
    let mut table = [0; 64];
    let mut i = 0;
    while i < 32 {
        table[2 * i] = (first + i) as u8;
        i += 1;
    }
    permutation(table)
}

/// The lower byte of each lane of `low`, the upper byte of `high`.
#[inline]
#[target_feature(enable = "avx512f")]
fn bytes(low: __m512i, high: __m512i) -> __m512i {
    _mm512_ternarylogic_epi32::<0xD8>(low, high, _mm512_set1_epi16(0xFF00u16 as i16))
}

/// 64 samples from 34.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn across(x: __m512i) -> __m512i {
    let left = _mm512_permutexvar_epi8(const { neighbours(0) }, x);
    let right = _mm512_permutexvar_epi8(const { neighbours(1) }, x);
    let left = _mm512_maddubs_epi16(left, _mm512_set1_epi16(3 << 8 | 1));
    let right = _mm512_maddubs_epi16(right, _mm512_set1_epi16(1 << 8 | 3));
    let left = _mm512_srli_epi16::<2>(_mm512_add_epi16(left, _mm512_set1_epi16(1)));
    let right = _mm512_slli_epi16::<6>(_mm512_add_epi16(right, _mm512_set1_epi16(2)));
    bytes(left, right)
}

/// # Safety
/// The features must be available.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) unsafe fn h2v1(src: &[u8], out: &mut [u8]) {
    let (whole, rest) = out.as_chunks_mut();
    let mut src = src;
    for out in whole {
        store(out, across(load_up_to(src)));
        src = &src[32..];
    }
    if !rest.is_empty() {
        store_part(rest, across(load_part(src)));
    }
}

/// 3 near + far + 2 of 32 samples: the 2 makes 8 when four of these are added.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn down(near: &[u8], far: &[u8]) -> __m512i {
    let near = _mm512_cvtepu8_epi16(half(near));
    let far = _mm512_cvtepu8_epi16(half(far));
    let far = _mm512_add_epi16(far, _mm512_set1_epi16(2));
    _mm512_add_epi16(_mm512_add_epi16(near, near), _mm512_add_epi16(near, far))
}

/// The first 32 bytes, zeros where there are fewer.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn half(src: &[u8]) -> __m256i {
    match src.first_chunk::<32>() {
        // SAFETY: the array is 32 bytes long.
        Some(src) => unsafe { _mm256_loadu_si256(src.as_ptr().cast()) },
        None => _mm512_castsi512_si256(load_part(src)),
    }
}

/// # Safety
/// The features must be available.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn h2v2(near: &[u8], far: &[u8], out: &mut [u8]) {
    let (whole, rest) = out.as_chunks_mut();
    let (mut near, mut far) = (near, far);
    let mut left = down(near, far);
    let mut next = || {
        (near, far) = (near.get(32..).unwrap_or(&[]), far.get(32..).unwrap_or(&[]));
        let new = down(near, far);
        let center = _mm512_permutex2var_epi16(left, const { later(1) }, new);
        let right = _mm512_permutex2var_epi16(left, const { later(2) }, new);
        let center = _mm512_add_epi16(_mm512_add_epi16(center, center), center);
        let low = _mm512_add_epi16(center, left);
        let high = _mm512_add_epi16(_mm512_add_epi16(center, right), _mm512_set1_epi16(-1));
        left = new;
        bytes(_mm512_srli_epi16::<4>(low), _mm512_slli_epi16::<4>(high))
    };
    for out in whole {
        store(out, next());
    }
    if !rest.is_empty() {
        store_part(rest, next());
    }
}

/// # Safety
/// The features must be available.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn h1v2(near: &[u8], far: &[u8], upper: bool, out: &mut [u8]) {
    let bias = _mm512_set1_epi16(if upper { 1 } else { 2 });
    let weights = _mm512_set1_epi16(1 << 8 | 3);
    let blend = |near: __m512i, far: __m512i| {
        let low = _mm512_maddubs_epi16(_mm512_unpacklo_epi8(near, far), weights);
        let high = _mm512_maddubs_epi16(_mm512_unpackhi_epi8(near, far), weights);
        let low = _mm512_srli_epi16::<2>(_mm512_add_epi16(low, bias));
        let high = _mm512_srli_epi16::<2>(_mm512_add_epi16(high, bias));
        _mm512_packus_epi16(low, high)
    };
    let ((near, near_rest), (far, far_rest)) = (near.as_chunks(), far.as_chunks());
    let (whole, rest) = out.as_chunks_mut();
    for ((near, far), out) in near.iter().zip(far).zip(whole) {
        store(out, blend(load(near), load(far)));
    }
    if !rest.is_empty() {
        store_part(rest, blend(load_part(near_rest), load_part(far_rest)));
    }
}
