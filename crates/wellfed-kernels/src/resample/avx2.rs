//! Both passes with AVX2.
//!
//! A weight of 22 bits and its sign is split as `high * 2^15 + low` ([`super::axis::halves`]), both of 16
//! bits, so that one multiply-add instruction adds two taps. Integer arithmetic modulo 2^32: the same sum as
//! the scalar code's, whatever the order.

use std::arch::x86_64::*;

use super::axis::{Axis, HALF_BITS, PRECISION, halves};
use super::pass::Rows;

const HALF: i32 = 1 << (PRECISION - 1);

/// `high * 2^15 + low`, rounded and without the fraction; not yet clamped.
#[inline]
#[target_feature(enable = "avx2")]
fn total(high: __m256i, low: __m256i) -> __m256i {
    let sum = _mm256_add_epi32(_mm256_slli_epi32::<HALF_BITS>(high), low);
    _mm256_srai_epi32::<{ PRECISION as i32 }>(_mm256_add_epi32(sum, _mm256_set1_epi32(HALF)))
}

/// One row of the vertical pass: 32 bytes at a time.
///
/// # Safety
/// The processor has AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn down(axis: &Axis, y: usize, src: Rows<'_>, dst: &mut [u8]) {
    let (start, weights) = axis.at(y);
    let len = dst.len();
    let row = |t: usize| src.row(start + t.min(weights.len() - 1), len).as_ptr();
    let mut x = 0;
    while x < len {
        if len - x < 32 {
            // The last bytes again, together with some before them; or byte by byte where there are none.
            if len < 32 {
                return super::scalar::down(axis, y, src, dst);
            }
            x = len - 32;
        }
        let zero = _mm256_setzero_si256();
        let mut sums = [[zero; 2]; 4];
        for (pair, k) in weights.chunks(2).enumerate() {
            let (one, two) = (halves(k[0]), halves(k.get(1).copied().unwrap_or(0)));
            let weight = [0, 1].map(|part| {
                _mm256_set1_epi32((one[part] as u16 as u32 | (two[part] as u16 as u32) << 16) as i32)
            });
            // SAFETY: `x + 32 <= len`, and `row` has checked that each row has `len` bytes.
            let (a, b) = unsafe {
                let load = |t: usize| _mm256_loadu_si256(row(t).wrapping_add(x).cast());
                (load(2 * pair), load(2 * pair + 1))
            };
            let (low, high) = (_mm256_unpacklo_epi8(a, b), _mm256_unpackhi_epi8(a, b));
            let columns = [
                _mm256_unpacklo_epi8(low, zero),
                _mm256_unpackhi_epi8(low, zero),
                _mm256_unpacklo_epi8(high, zero),
                _mm256_unpackhi_epi8(high, zero),
            ];
            for (sums, v) in sums.iter_mut().zip(columns) {
                for (sum, weight) in sums.iter_mut().zip(weight) {
                    *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(v, weight));
                }
            }
        }
        let [a, b, c, d] = sums.map(|[high, low]| total(high, low));
        let bytes = _mm256_packus_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
        // SAFETY: `x + 32 <= len`.
        unsafe { _mm256_storeu_si256(dst.as_mut_ptr().wrapping_add(x).cast(), bytes) };
        x += 32;
    }
}
