//! The filters on 32 or 64 output samples at a time. Sums are in 16-bit lanes, the two outputs of an input in the
//! two bytes of a lane. What does not fill a vector at the end of a row is left to the scalar code.

use std::arch::x86_64::*;

use super::scalar;
use crate::kernels::x86::avx2::{load, padded, starts, store};

/// The lower byte of each lane of `low`, the upper byte of `high`.
#[inline]
#[target_feature(enable = "avx2")]
fn bytes(low: __m256i, high: __m256i) -> __m256i {
    _mm256_blendv_epi8(low, high, _mm256_set1_epi16(0xFF00u16 as i16))
}

/// # Safety
/// The features must be available, and `src` hold half as many samples as `out` and two more.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn h2v1(src: &[u8], out: &mut [u8]) {
    let n = out.len() / 2;
    let across = |left: __m256i, right: __m256i| {
        let left = _mm256_maddubs_epi16(left, _mm256_set1_epi16(3 << 8 | 1));
        let right = _mm256_maddubs_epi16(right, _mm256_set1_epi16(1 << 8 | 3));
        let left = _mm256_srli_epi16::<2>(_mm256_add_epi16(left, _mm256_set1_epi16(1)));
        let right = _mm256_slli_epi16::<6>(_mm256_add_epi16(right, _mm256_set1_epi16(2)));
        bytes(left, right)
    };
    if n < 32 {
        scalar::h2v1(src, out);
    }
    for i in starts(n) {
        let (left, center, right) = (load(&src[i..]), load(&src[i + 1..]), load(&src[i + 2..]));
        let low = across(_mm256_unpacklo_epi8(left, center), _mm256_unpacklo_epi8(center, right));
        let high = across(_mm256_unpackhi_epi8(left, center), _mm256_unpackhi_epi8(center, right));
        store(&mut out[2 * i..], _mm256_permute2x128_si256::<0x20>(low, high));
        store(&mut out[2 * i + 32..], _mm256_permute2x128_si256::<0x31>(low, high));
    }
}

/// 3 near + far + 2 of 32 samples, of which the lower and upper halves of the lanes come apart: the 2 makes 8 when
/// four of these are added.
#[inline]
#[target_feature(enable = "avx2")]
fn down(near: &[u8], far: &[u8]) -> [__m256i; 2] {
    let (near, far) = (load(near), load(far));
    let weights = _mm256_set1_epi16(1 << 8 | 3);
    let low = _mm256_maddubs_epi16(_mm256_unpacklo_epi8(near, far), weights);
    let high = _mm256_maddubs_epi16(_mm256_unpackhi_epi8(near, far), weights);
    [_mm256_add_epi16(low, _mm256_set1_epi16(2)), _mm256_add_epi16(high, _mm256_set1_epi16(2))]
}

/// # Safety
/// The features must be available, and the inputs hold half as many samples as `out` and two more.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn h2v2(near: &[u8], far: &[u8], out: &mut [u8]) {
    let n = out.len() / 2;
    let across = |left: __m256i, center: __m256i, right: __m256i| {
        let center = _mm256_add_epi16(_mm256_add_epi16(center, center), center);
        let low = _mm256_add_epi16(center, left);
        let high = _mm256_add_epi16(_mm256_add_epi16(center, right), _mm256_set1_epi16(-1));
        bytes(_mm256_srli_epi16::<4>(low), _mm256_slli_epi16::<4>(high))
    };
    if n < 32 {
        scalar::h2v2(near, far, out);
    }
    for i in starts(n) {
        let left = down(&near[i..], &far[i..]);
        let center = down(&near[i + 1..], &far[i + 1..]);
        let right = down(&near[i + 2..], &far[i + 2..]);
        let low = across(left[0], center[0], right[0]);
        let high = across(left[1], center[1], right[1]);
        store(&mut out[2 * i..], _mm256_permute2x128_si256::<0x20>(low, high));
        store(&mut out[2 * i + 32..], _mm256_permute2x128_si256::<0x31>(low, high));
    }
}

/// # Safety
/// The features must be available, and the rows have one length.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn h1v2(near: &[u8], far: &[u8], upper: bool, out: &mut [u8]) {
    let bias = _mm256_set1_epi16(if upper { 1 } else { 2 });
    let weights = _mm256_set1_epi16(1 << 8 | 3);
    let blend = |near: __m256i, far: __m256i| {
        let low = _mm256_maddubs_epi16(_mm256_unpacklo_epi8(near, far), weights);
        let high = _mm256_maddubs_epi16(_mm256_unpackhi_epi8(near, far), weights);
        let low = _mm256_srli_epi16::<2>(_mm256_add_epi16(low, bias));
        let high = _mm256_srli_epi16::<2>(_mm256_add_epi16(high, bias));
        _mm256_packus_epi16(low, high)
    };
    if out.len() < 32 {
        let mut few = [0; 32];
        store(&mut few, blend(load(&padded(near)), load(&padded(far))));
        out.copy_from_slice(&few[..out.len()]);
    }
    for i in starts(out.len()) {
        store(&mut out[i..], blend(load(&near[i..]), load(&far[i..])));
    }
}
