//! Weighted sums with AVX2: eight elements at a time.
//!
//! The same operations as the scalar code, none of them fused: the same bits.

use std::arch::x86_64::*;

use super::Weights;
use crate::image::Dtype;

/// Elements that are mixed at once.
const LANES: usize = 8;

/// Mixes elements of `own` with those of `previous` in groups of [`LANES`], and says how many bytes that were.
///
/// # Safety
/// The processor has AVX2 and F16C.
#[target_feature(enable = "avx2,f16c")]
pub(super) unsafe fn part(own: &mut [u8], previous: &[u8], dtype: Dtype, weights: Weights) -> usize {
    let weights = (_mm256_set1_ps(weights.previous), _mm256_set1_ps(weights.own));
    match dtype {
        Dtype::F32 => float32(own, previous, weights),
        Dtype::F16 => halves::<false>(own, previous, weights),
        Dtype::Bf16 => halves::<true>(own, previous, weights),
        Dtype::U8 => 0,
    }
}

#[target_feature(enable = "avx2,f16c")]
fn float32(own: &mut [u8], previous: &[u8], (of_previous, of_own): (__m256, __m256)) -> usize {
    let (own, _) = own.as_chunks_mut::<{ 4 * LANES }>();
    let (previous, _) = previous.as_chunks::<{ 4 * LANES }>();
    let groups = own.len().min(previous.len());
    for (own, previous) in own.iter_mut().zip(previous) {
        // SAFETY: both are 32 bytes, and nothing is said of where they begin.
        unsafe {
            let one = _mm256_mul_ps(_mm256_loadu_ps(previous.as_ptr().cast()), of_previous);
            let other = _mm256_mul_ps(_mm256_loadu_ps(own.as_ptr().cast()), of_own);
            _mm256_storeu_ps(own.as_mut_ptr().cast(), _mm256_add_ps(one, other));
        }
    }
    groups * 4 * LANES
}

/// Of bfloat16 if `BRAIN`, else of float16.
#[target_feature(enable = "avx2,f16c")]
fn halves<const BRAIN: bool>(
    own: &mut [u8],
    previous: &[u8],
    (of_previous, of_own): (__m256, __m256),
) -> usize {
    let (own, _) = own.as_chunks_mut::<{ 2 * LANES }>();
    let (previous, _) = previous.as_chunks::<{ 2 * LANES }>();
    let groups = own.len().min(previous.len());
    for (own, previous) in own.iter_mut().zip(previous) {
        // SAFETY: both are 16 bytes, and nothing is said of where they begin.
        let (one, other) =
            unsafe { (_mm_loadu_si128(previous.as_ptr().cast()), _mm_loadu_si128(own.as_ptr().cast())) };
        let one = narrowed::<BRAIN>(_mm256_mul_ps(widened::<BRAIN>(one), of_previous));
        let other = narrowed::<BRAIN>(_mm256_mul_ps(widened::<BRAIN>(other), of_own));
        let sum = narrowed::<BRAIN>(_mm256_add_ps(widened::<BRAIN>(one), widened::<BRAIN>(other)));
        // SAFETY: as above.
        unsafe { _mm_storeu_si128(own.as_mut_ptr().cast(), sum) };
    }
    groups * 2 * LANES
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
fn widened<const BRAIN: bool>(values: __m128i) -> __m256 {
    if !BRAIN {
        return _mm256_cvtph_ps(values);
    }
    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(values)))
}

/// Rounded to the nearest, halves to even; no number becomes a quiet one.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn narrowed<const BRAIN: bool>(values: __m256) -> __m128i {
    if !BRAIN {
        return _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(values);
    }
    let bits = _mm256_castps_si256(values);
    let upper = _mm256_srli_epi32::<16>(bits);
    let odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    let rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
    let quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
    let is_nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(values, values));
    let narrow = _mm256_blendv_epi8(_mm256_srli_epi32::<16>(rounded), quiet, is_nan);
    let packed = _mm256_packus_epi32(narrow, narrow);
    _mm256_castsi256_si128(_mm256_permute4x64_epi64::<0b1000>(packed))
}
