//! Both passes with AVX-512 VBMI and VNNI.
//!
//! A weight of 22 bits and its sign is split into three signed bytes ([`Axis::words`]), so that one
//! dot-product instruction adds four taps: `sum = ((d2 << 8) + d1 << 8) + d0` with `d` the dot products of
//! each byte. Integer arithmetic modulo 2^32: the same sum as the scalar code's, whatever the order.

#![allow(clippy::needless_range_loop, reason = "one index walks weights, indices and sums in step")]

use std::arch::x86_64::*;

use super::axis::{Axis, HALF_BITS, PRECISION, halves};
use super::pass::Rows;

/// Half of the last place, before the two shifts by 8.
const HALF: i32 = 1 << (PRECISION - 1 - 16);

#[inline]
fn low(n: usize) -> u64 {
    if n >= 64 { u64::MAX } else { (1 << n) - 1 }
}

/// Four vectors of 16 sums to 64 bytes: shift out the fraction, clamp. Lane by lane: 4 bytes of each vector.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn clip(sums: [__m512i; 4]) -> __m512i {
    let [a, b, c, d] = sums.map(|sum| _mm512_srai_epi32::<PRECISION>(sum));
    _mm512_packus_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d))
}

/// Stores the first `n` bytes, at most 64.
///
/// # Safety
/// `n` bytes at `to` may be written.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
unsafe fn store(to: *mut u8, v: __m512i, n: usize) {
    // SAFETY: the caller's.
    unsafe {
        if n >= 64 {
            _mm512_storeu_si512(to.cast(), v);
        } else {
            _mm512_mask_storeu_epi8(to.cast(), low(n), v);
        }
    }
}

/// One row of the vertical pass.
///
/// # Safety
/// The processor has AVX-512 F, BW, DQ, VL, VBMI and VNNI.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
pub(super) unsafe fn down(axis: &Axis, y: usize, src: Rows<'_>, dst: &mut [u8]) {
    const FEW: usize = 32;
    let (start, weights) = axis.at(y);
    let groups = weights.len().div_ceil(4);
    // Rows past the last have weight zero: any row will do. `row` checks that each has all its bytes.
    let row = |t: usize| src.row(start + t.min(weights.len() - 1), dst.len()).as_ptr();
    let mut few = [std::ptr::null(); FEW];
    let many: Vec<*const u8>;
    let rows = if groups * 4 <= FEW {
        for (t, to) in few[..groups * 4].iter_mut().enumerate() {
            *to = row(t);
        }
        &few[..groups * 4]
    } else {
        many = (0..groups * 4).map(row).collect();
        &many
    };
    // SAFETY: each of `rows` points to `dst.len()` bytes.
    unsafe {
        match groups {
            1 if weights.len() <= 2 => down_two([rows[0], rows[1]], weights, dst),
            1 => down_rows::<1>(axis, y, rows, dst),
            2 => down_rows::<2>(axis, y, rows, dst),
            3 => down_rows::<3>(axis, y, rows, dst),
            _ => down_many(axis, y, rows, dst),
        }
    }
}

/// Four rows of 64 bytes to 4 vectors of 16 words, each a column's four bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn columns(r: [__m512i; 4]) -> [__m512i; 4] {
    let (a, b) = (_mm512_unpacklo_epi8(r[0], r[1]), _mm512_unpackhi_epi8(r[0], r[1]));
    let (c, d) = (_mm512_unpacklo_epi8(r[2], r[3]), _mm512_unpackhi_epi8(r[2], r[3]));
    [
        _mm512_unpacklo_epi16(a, c),
        _mm512_unpackhi_epi16(a, c),
        _mm512_unpacklo_epi16(b, d),
        _mm512_unpackhi_epi16(b, d),
    ]
}

/// `4 * T` taps.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
unsafe fn down_rows<const T: usize>(axis: &Axis, y: usize, rows: &[*const u8], dst: &mut [u8]) {
    let rows: [[*const u8; 4]; T] = std::array::from_fn(|t| std::array::from_fn(|i| rows[4 * t + i]));
    let weights: [[__m512i; 3]; T] =
        std::array::from_fn(|t| axis.group(t, y).map(|w| _mm512_set1_epi32(w as i32)));
    let half = _mm512_set1_epi32(HALF);
    let mut x = 0;
    while x < dst.len() {
        let mask = low(dst.len() - x);
        // SAFETY: masked bytes are neither read nor written; the others are inside their rows.
        unsafe {
            let v: [[__m512i; 4]; T] = std::array::from_fn(|t| {
                columns(rows[t].map(|row| _mm512_maskz_loadu_epi8(mask, row.wrapping_add(x).cast())))
            });
            let sums: [__m512i; 4] = std::array::from_fn(|q| {
                let mut sum = half;
                for b in 0..3 {
                    for t in 0..T {
                        sum = _mm512_dpbusd_epi32(sum, v[t][q], weights[t][b]);
                    }
                    if b < 2 {
                        sum = _mm512_slli_epi32::<8>(sum);
                    }
                }
                sum
            });
            store(dst.as_mut_ptr().wrapping_add(x), clip(sums), dst.len() - x);
        }
        x += 64;
    }
}

/// Two taps, of which most output rows of a mild bilinear reduction have no more: weights in halves of 16
/// bits take fewer instructions than in three bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
unsafe fn down_two(rows: [*const u8; 2], weights: &[i32], dst: &mut [u8]) {
    let (one, two) = (halves(weights[0]), halves(weights.get(1).copied().unwrap_or(0)));
    let [high, low_half] = [0, 1].map(|part| {
        _mm512_set1_epi32((u32::from(one[part] as u16) | u32::from(two[part] as u16) << 16) as i32)
    });
    let half = _mm512_set1_epi32(1 << (PRECISION as i32 - 1 - HALF_BITS));
    let zero = _mm512_setzero_si512();
    let mut x = 0;
    while x < dst.len() {
        let mask = low(dst.len() - x);
        // SAFETY: masked bytes are neither read nor written; the others are inside their rows.
        unsafe {
            let [a, b] = rows.map(|row| _mm512_maskz_loadu_epi8(mask, row.wrapping_add(x).cast()));
            let (below, above) = (_mm512_unpacklo_epi8(a, b), _mm512_unpackhi_epi8(a, b));
            let columns = [
                _mm512_unpacklo_epi8(below, zero),
                _mm512_unpackhi_epi8(below, zero),
                _mm512_unpacklo_epi8(above, zero),
                _mm512_unpackhi_epi8(above, zero),
            ];
            let sums = columns.map(|v| {
                let sum = _mm512_slli_epi32::<{ HALF_BITS as u32 }>(_mm512_dpwssd_epi32(half, v, high));
                _mm512_dpwssd_epi32(sum, v, low_half)
            });
            store(dst.as_mut_ptr().wrapping_add(x), clip(sums), dst.len() - x);
        }
        x += 64;
    }
}

/// Any number of taps.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
unsafe fn down_many(axis: &Axis, y: usize, rows: &[*const u8], dst: &mut [u8]) {
    let zero = _mm512_setzero_si512();
    let mut x = 0;
    while x < dst.len() {
        let mask = low(dst.len() - x);
        let mut sums = [[_mm512_set1_epi32(HALF); 4], [zero; 4], [zero; 4]];
        for (t, four) in rows.chunks_exact(4).enumerate() {
            // SAFETY: masked bytes are not read; the others are inside their rows.
            let v = columns(
                [0, 1, 2, 3]
                    .map(|i| unsafe { _mm512_maskz_loadu_epi8(mask, four[i].wrapping_add(x).cast()) }),
            );
            for (sums, word) in sums.iter_mut().zip(axis.group(t, y)) {
                let weight = _mm512_set1_epi32(word as i32);
                for (sum, v) in sums.iter_mut().zip(v) {
                    *sum = _mm512_dpbusd_epi32(*sum, v, weight);
                }
            }
        }
        let total = std::array::from_fn(|q| {
            let sum = _mm512_add_epi32(_mm512_slli_epi32::<8>(sums[0][q]), sums[1][q]);
            _mm512_add_epi32(_mm512_slli_epi32::<8>(sum), sums[2][q])
        });
        // SAFETY: masked bytes are not written.
        unsafe { store(dst.as_mut_ptr().wrapping_add(x), clip(total), dst.len() - x) };
        x += 64;
    }
}
