//! Both passes with AVX-512 VBMI and VNNI.
//!
//! A weight of 22 bits and its sign is split into three signed bytes ([`Axis::words`]), so that one
//! dot-product instruction adds four taps: `sum = ((d2 << 8) + d1 << 8) + d0` with `d` the dot products of
//! each byte. Integer arithmetic modulo 2^32: the same sum as the scalar code's, whatever the order.

#![allow(clippy::needless_range_loop, reason = "one index walks weights, indices and sums in step")]

use std::arch::x86_64::*;

use super::axis::{Axis, HALF_BITS, PRECISION, halves};
use super::{Across, Rows, Run};

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

/// The horizontal pass.
///
/// # Safety
/// The processor has AVX-512 F, BW, DQ, VL, VBMI and VNNI. The run's rows may be read up to the pass's reach,
/// and all of its rows written.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
pub(super) unsafe fn across(pass: &Across<'_>, run: &Run) {
    // The widest group of 16 output pixels, in source pixels from its first.
    let starts = &pass.axis.starts()[pass.first..];
    let widest = (0..pass.width).step_by(16).map(|x| starts[(x + 15).min(pass.width - 1)] - starts[x]).max();
    let span = (widest.unwrap_or(0) as usize + pass.axis.taps().min(4) - 1) * pass.channels + 1;
    // SAFETY: the caller's.
    unsafe {
        match (span, pass.axis.groups()) {
            (..=64, 1) => blocks::<1, false>(pass, run),
            (..=64, 2) => blocks::<2, false>(pass, run),
            (..=64, 3) => blocks::<3, false>(pass, run),
            (65..=128, 1) => blocks::<1, true>(pass, run),
            (65..=128, 2) => blocks::<2, true>(pass, run),
            (65..=128, 3) => blocks::<3, true>(pass, run),
            _ => quads(pass, run),
        }
    }
}

/// 64 output pixels at a time, weights and indices in registers: for groups of 16 whose bytes lie within one
/// register (or two: `PAIR`), with up to `T` times 4 taps.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
unsafe fn blocks<const T: usize, const PAIR: bool>(pass: &Across<'_>, run: &Run) {
    let mut x = 0;
    while x < pass.width {
        let n = (pass.width - x).min(64);
        // SAFETY: the caller's.
        unsafe {
            match n.div_ceil(16) {
                1 => block::<T, PAIR, 1>(pass, run, x, n),
                2 => block::<T, PAIR, 2>(pass, run, x, n),
                3 => block::<T, PAIR, 3>(pass, run, x, n),
                _ => block::<T, PAIR, 4>(pass, run, x, n),
            }
        }
        x += n;
    }
}

/// Output pixels `x..x + n` of all rows of the run: `G` groups of 16.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
unsafe fn block<const T: usize, const PAIR: bool, const G: usize>(
    pass: &Across<'_>,
    run: &Run,
    x: usize,
    n: usize,
) {
    let channels = pass.channels;
    let zero = _mm512_setzero_si512();
    let mut weights = [[[zero; 3]; T]; G];
    let mut index = [zero; G];
    let mut at = [0usize; G];
    // Byte `t` of each word: tap `t`, so `t` pixels on.
    let taps = _mm512_set1_epi32(i32::from_le_bytes([0, 1, 2, 3].map(|t| t * channels as u8)));
    for g in 0..G {
        let o = pass.first + x + 16 * g;
        let first = pass.axis.starts()[o];
        at[g] = (first as usize - pass.column) * channels;
        // SAFETY: the arrays have 64 entries to spare.
        unsafe {
            let starts = _mm512_loadu_si512(pass.axis.starts()[o..].as_ptr().cast());
            // Pixels from the group's first, times channels, in every byte. Past the row's end there is
            // nothing to store, and the index may be anything.
            let distance =
                _mm512_and_si512(_mm512_sub_epi32(starts, _mm512_set1_epi32(first)), _mm512_set1_epi32(127));
            let spread = _mm512_mullo_epi32(distance, _mm512_set1_epi32(0x0101_0101 * channels as i32));
            index[g] = _mm512_add_epi8(spread, taps);
            for t in 0..T {
                for b in 0..3 {
                    weights[g][t][b] = _mm512_loadu_si512(pass.axis.words(t, b)[o..].as_ptr().cast());
                }
            }
        }
    }
    let half = _mm512_set1_epi32(HALF);
    let transpose = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    for row in 0..run.rows {
        for c in 0..channels {
            let from = run.from.wrapping_add(row * run.step + c);
            let mut sums = [zero; 4];
            let mut v = [[zero; T]; G];
            for g in 0..G {
                sums[g] = half;
                for t in 0..T {
                    let from = from.wrapping_add(at[g] + 4 * t * channels);
                    // SAFETY: at most `reach` bytes of the row are touched.
                    v[g][t] = unsafe {
                        if PAIR {
                            let above = _mm512_loadu_si512(from.wrapping_add(64).cast());
                            _mm512_permutex2var_epi8(_mm512_loadu_si512(from.cast()), index[g], above)
                        } else {
                            _mm512_permutexvar_epi8(index[g], _mm512_loadu_si512(from.cast()))
                        }
                    };
                }
            }
            for b in 0..3 {
                for g in 0..G {
                    for t in 0..T {
                        sums[g] = _mm512_dpbusd_epi32(sums[g], v[g][t], weights[g][t][b]);
                    }
                    if b < 2 {
                        sums[g] = _mm512_slli_epi32::<8>(sums[g]);
                    }
                }
            }
            let bytes = _mm512_permutexvar_epi32(transpose, clip(sums));
            let to = run.to.wrapping_add(row * run.stride + c * pass.width + x);
            // SAFETY: `n` bytes of this row's plane, which `out` holds.
            unsafe { store(to, bytes, n) };
        }
    }
}

/// Any scale and any number of taps: four output pixels at a time, each in its own 128-bit lane with a word
/// for each channel; four rows at a time, so that the weights are spread once for four.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
unsafe fn quads(pass: &Across<'_>, run: &Run) {
    let mut row = 0;
    while row < run.rows {
        let rest = Run {
            from: run.from.wrapping_add(row * run.step),
            to: run.to.wrapping_add(row * run.stride),
            ..*run
        };
        // SAFETY: the caller's.
        unsafe {
            match run.rows - row {
                1 => quad_rows::<1>(pass, &rest),
                2 | 3 => quad_rows::<2>(pass, &rest),
                _ => quad_rows::<4>(pass, &rest),
            }
        }
        row += match run.rows - row {
            1 => 1,
            2 | 3 => 2,
            _ => 4,
        };
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
unsafe fn quad_rows<const R: usize>(pass: &Across<'_>, run: &Run) {
    let channels = pass.channels;
    // Word `c` of a lane: the channel's 4 taps.
    let gather: [u8; 16] = std::array::from_fn(|i| {
        let (c, tap) = (i / 4, i % 4);
        if c < channels { (tap * channels + c) as u8 } else { 0x80 }
    });
    // To planes: byte `4 * c + pixel`.
    let planes: [u8; 16] = std::array::from_fn(|i| (i % 4 * 4 + i / 4) as u8);
    // SAFETY: 16 bytes each.
    let (gather, planes) = unsafe {
        (
            _mm512_broadcast_i32x4(_mm_loadu_si128(gather.as_ptr().cast())),
            _mm_loadu_si128(planes.as_ptr().cast()),
        )
    };
    let lanes = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    let firsts = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    let zero = _mm512_setzero_si512();
    for x in (0..pass.width).step_by(4) {
        let o = pass.first + x;
        let last = pass.first + pass.width - 1;
        let at = [0, 1, 2, 3].map(|i| (pass.axis.start((o + i).min(last)) - pass.column) * channels);
        let mut sums = [[_mm512_set1_epi32(HALF), zero, zero]; R];
        for t in 0..pass.axis.groups() {
            // SAFETY: the arrays have 64 entries to spare.
            let weights = [0, 1, 2].map(|b| unsafe {
                let words = _mm_loadu_si128(pass.axis.words(t, b)[o..].as_ptr().cast());
                _mm512_permutexvar_epi32(lanes, _mm512_castsi128_si512(words))
            });
            for (r, sums) in sums.iter_mut().enumerate() {
                let from = run.from.wrapping_add(r * run.step + 4 * t * channels);
                // SAFETY: at most `reach` bytes of the row are touched.
                let v = unsafe {
                    let pixel = |i: usize| _mm_loadu_si128(from.wrapping_add(at[i]).cast());
                    let v = _mm512_castsi128_si512(pixel(0));
                    let v = _mm512_inserti32x4::<1>(v, pixel(1));
                    let v = _mm512_inserti32x4::<2>(v, pixel(2));
                    _mm512_inserti32x4::<3>(v, pixel(3))
                };
                let v = _mm512_shuffle_epi8(v, gather);
                for (sum, weight) in sums.iter_mut().zip(weights) {
                    *sum = _mm512_dpbusd_epi32(*sum, v, weight);
                }
            }
        }
        let n = (pass.width - x).min(4);
        for (r, sums) in sums.iter().enumerate() {
            let sum = _mm512_add_epi32(_mm512_slli_epi32::<8>(sums[0]), sums[1]);
            let sum = _mm512_add_epi32(_mm512_slli_epi32::<8>(sum), sums[2]);
            let bytes = clip([sum; 4]);
            let bytes = _mm512_castsi512_si128(_mm512_permutexvar_epi32(firsts, bytes));
            let bytes = _mm_shuffle_epi8(bytes, planes);
            let mut out = [0u8; 16];
            // SAFETY: 16 bytes; then `n` bytes of this row's planes, which `out` holds.
            unsafe {
                _mm_storeu_si128(out.as_mut_ptr().cast(), bytes);
                for c in 0..channels {
                    let to = run.to.wrapping_add(r * run.stride + c * pass.width + x);
                    if n == 4 {
                        to.cast::<[u8; 4]>().write_unaligned([0, 1, 2, 3].map(|i| out[4 * c + i]));
                    } else {
                        for i in 0..n {
                            to.add(i).write(out[4 * c + i]);
                        }
                    }
                }
            }
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
