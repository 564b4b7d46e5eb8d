//! Both passes with AVX2.
//!
//! A weight of 22 bits and its sign is split as `high * 2^15 + low` ([`super::axis::halves`]), both of 16
//! bits, so that one multiply-add instruction adds two taps. Integer arithmetic modulo 2^32: the same sum as
//! the scalar code's, whatever the order.

use std::arch::x86_64::*;

use super::axis::{Axis, HALF_BITS, PRECISION, halves};
use super::{Across, Rows, Run};

const HALF: i32 = 1 << (PRECISION - 1);

/// `high * 2^15 + low`, rounded and without the fraction; not yet clamped.
#[inline]
#[target_feature(enable = "avx2")]
fn total(high: __m256i, low: __m256i) -> __m256i {
    let sum = _mm256_add_epi32(_mm256_slli_epi32::<HALF_BITS>(high), low);
    _mm256_srai_epi32::<{ PRECISION as i32 }>(_mm256_add_epi32(sum, _mm256_set1_epi32(HALF)))
}

/// The horizontal pass: 4 output pixels of 4 rows at a time. Each pixel has a 128-bit lane with a word for
/// each channel.
///
/// # Safety
/// The processor has AVX2; the run's rows may be read up to its `reach`, and `to` written.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn across(pass: &Across<'_>, run: &Run) {
    for row in (0..run.rows).step_by(4) {
        let some = Run {
            from: run.from.wrapping_add(row * run.step),
            to: run.to.wrapping_add(row * run.stride),
            ..*run
        };
        // SAFETY: the caller's.
        unsafe {
            match run.rows - row {
                1 => rows::<1>(pass, &some),
                2 => rows::<2>(pass, &some),
                3 => rows::<3>(pass, &some),
                _ => rows::<4>(pass, &some),
            }
        }
    }
}

#[target_feature(enable = "avx2")]
unsafe fn rows<const R: usize>(pass: &Across<'_>, run: &Run) {
    let channels = pass.channels;
    // Word `c` of a lane: two taps of the channel, each in 16 bits. Taps 0 and 1, and taps 2 and 3.
    let gather = [0, 2].map(|first| {
        let bytes: [u8; 16] = std::array::from_fn(|i| {
            let (c, tap) = (i / 4, i % 4 / 2);
            if c < channels && i % 2 == 0 { ((first + tap) * channels + c) as u8 } else { 0x80 }
        });
        // SAFETY: 16 bytes are there.
        _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) })
    });
    // Bytes of pixels 0, 2, 1, 3 to planes of 4.
    let planes = _mm_setr_epi8(0, 8, 4, 12, 1, 9, 5, 13, 2, 10, 6, 14, 3, 11, 7, 15);
    let zero = _mm256_setzero_si256();
    let last = pass.first + pass.width - 1;
    for x in (0..pass.width).step_by(4) {
        let o = [0, 1, 2, 3].map(|i| (pass.first + x + i).min(last));
        let at = o.map(|o| (pass.axis.start(o) - pass.column) * channels);
        // [row][pixels 0 and 1, pixels 2 and 3]
        let mut totals = [[zero; 2]; R];
        for p in 0..2 {
            let mut sums = [[zero; 2]; R];
            for pair in 0..pass.axis.pairs() {
                let (one, two) = (pass.axis.pair(o[2 * p], pair), pass.axis.pair(o[2 * p + 1], pair));
                let weights: [__m256i; 2] = std::array::from_fn(|part| {
                    _mm256_set_m128i(_mm_set1_epi32(two[part] as i32), _mm_set1_epi32(one[part] as i32))
                });
                for (r, sums) in sums.iter_mut().enumerate() {
                    let from = run.from.wrapping_add(r * run.step + pair / 2 * 4 * channels);
                    // SAFETY: at most `reach` bytes of the row are touched.
                    let v = unsafe {
                        let pixel = |i: usize| _mm_loadu_si128(from.wrapping_add(at[i]).cast());
                        _mm256_set_m128i(pixel(2 * p + 1), pixel(2 * p))
                    };
                    let v = _mm256_shuffle_epi8(v, gather[pair % 2]);
                    for (sum, weight) in sums.iter_mut().zip(weights) {
                        *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(v, weight));
                    }
                }
            }
            for (totals, [high, low]) in totals.iter_mut().zip(sums) {
                totals[p] = total(high, low);
            }
        }
        let n = (pass.width - x).min(4);
        for (r, [a, b]) in totals.into_iter().enumerate() {
            let words = _mm256_packs_epi32(a, b);
            let bytes = _mm256_packus_epi16(words, words);
            let bytes =
                _mm_unpacklo_epi64(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256::<1>(bytes));
            let bytes = _mm_shuffle_epi8(bytes, planes);
            let mut out = [0u8; 16];
            // SAFETY: 16 bytes; then `n` bytes of this row's planes, which the run may write.
            unsafe {
                _mm_storeu_si128(out.as_mut_ptr().cast(), bytes);
                for (c, four) in out.as_chunks::<4>().0[..channels].iter().enumerate() {
                    let to = run.to.wrapping_add(r * run.stride + c * pass.width + x);
                    if n == 4 {
                        to.cast::<[u8; 4]>().write_unaligned(*four);
                    } else {
                        std::ptr::copy_nonoverlapping(four.as_ptr(), to, n);
                    }
                }
            }
        }
    }
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
