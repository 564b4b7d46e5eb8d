//! Both passes with AVX-512 VBMI and VNNI.
//!
//! A weight of 22 bits and its sign is split into three signed bytes ([`Axis::words`]), so that one
//! dot-product instruction adds four taps: `sum = ((d2 << 8) + d1 << 8) + d0` with `d` the dot products of
//! each byte. Integer arithmetic modulo 2^32: the same sum as the scalar code's, whatever the order.

#![allow(clippy::needless_range_loop, reason = "one index walks weights, indices and sums in step")]

use std::arch::x86_64::*;

use super::axis::{Axis, HALF_BITS, PRECISION, mix, pair};
use super::pass::{Across, Rows, Run};

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

/// As [`clip`] for sums that need no clamping, and in another order: word `4 * q + k` has the bytes of elements
/// `2 * q` and `2 * q + 1` of `sums[k]`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn take(sums: [__m512i; 4]) -> __m512i {
    // 8 bits from bit 22 of each half of a quadword on.
    let bits = _mm512_set1_epi16(i16::from_le_bytes([PRECISION as u8, 32 + PRECISION as u8]));
    let v = _mm512_multishift_epi64_epi8(bits, sums[0]);
    let v = _mm512_mask_multishift_epi64_epi8(v, 0x0c0c_0c0c_0c0c_0c0c, bits, sums[1]);
    let v = _mm512_mask_multishift_epi64_epi8(v, 0x3030_3030_3030_3030, bits, sums[2]);
    _mm512_mask_multishift_epi64_epi8(v, 0xc0c0_c0c0_c0c0_c0c0, bits, sums[3])
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
/// The processor has AVX-512 F, BW, DQ, VL, VBMI and VNNI. The run's rows may be read, and their places written;
/// rows have all columns that the pass needs, and at least [`Across::wide`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
pub(super) unsafe fn across(pass: &Across<'_>, run: &Run) {
    let axis = pass.axis();
    let [_, _, span, wider] = axis.spans();
    // SAFETY: the caller's.
    unsafe {
        if let Some(weights) = axis.mix()
            && wider + 2 <= 64
        {
            return mixes(pass, weights, run);
        }
        match (span + 4, axis.groups()) {
            (..=64, 1) if axis.is_positive() => blocks::<1, false, true>(pass, run),
            (..=64, 1) => blocks::<1, false, false>(pass, run),
            (..=64, 2) => blocks::<2, false, false>(pass, run),
            (..=64, 3) => blocks::<3, false, false>(pass, run),
            (..=64, _) => blocks::<0, false, false>(pass, run),
            (65..=128, 1) => blocks::<1, true, false>(pass, run),
            (65..=128, 2) => blocks::<2, true, false>(pass, run),
            (65..=128, 3) => blocks::<3, true, false>(pass, run),
            (65..=128, _) => blocks::<0, true, false>(pass, run),
            _ => super::avx2::far(pass, run),
        }
    }
}

/// Each output pixel the mean of two: in 16 bits ([`mix`]), 64 at a time.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
unsafe fn mixes(pass: &Across<'_>, [high, low_half]: [&[u16]; 2], run: &Run) {
    let zero = _mm512_setzero_si512();
    let rounding = _mm512_set1_epi16(64);
    let order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    let even = 0x5555_5555_5555_5555;
    for x in (0..pass.width()).step_by(64) {
        let n = (pass.width() - x).min(64);
        let halves = n.div_ceil(32);
        let (mut index, mut weights, mut at) = ([zero; 2], [[zero; 2]; 2], [0; 2]);
        for g in 0..halves {
            let o = pass.first() + x + 32 * g;
            let first = pass.axis().start(o);
            at[g] = (first - pass.column()).min(run.width - 64);
            let shift = (first - pass.column() - at[g]) as i32;
            // SAFETY: the arrays have 64 entries to spare.
            unsafe {
                let starts = pass.axis().starts()[o..][..32].as_ptr();
                let relative = |i: usize| {
                    let starts = _mm512_loadu_si512(starts.add(i).cast());
                    let relative = _mm512_sub_epi32(starts, _mm512_set1_epi32(first as i32 - shift));
                    _mm512_cvtepi32_epi16(relative)
                };
                index[g] = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(relative(0)), relative(16));
                weights[g] = [high, low_half].map(|w| _mm512_loadu_si512(w[o..][..32].as_ptr().cast()));
            }
        }
        for row in 0..run.rows {
            for c in 0..run.channels {
                let from = run.planes[c].wrapping_add(row * run.stride);
                let mut words = [zero; 2];
                for g in 0..halves {
                    // SAFETY: 64 bytes from there on are in the row.
                    let v = unsafe { _mm512_loadu_si512(from.wrapping_add(at[g]).cast()) };
                    let a = _mm512_maskz_permutexvar_epi8(even, index[g], v);
                    let next = _mm512_add_epi16(index[g], _mm512_set1_epi16(1));
                    let b = _mm512_maskz_permutexvar_epi8(even, next, v);
                    words[g] = mean(a, b, weights[g], rounding);
                }
                let bytes = _mm512_permutexvar_epi64(order, _mm512_packus_epi16(words[0], words[1]));
                let to = run.to.wrapping_add(row * run.to_stride + c * run.to_plane + x);
                // SAFETY: `n` bytes of this row's plane.
                unsafe { store(to, bytes, n) };
            }
        }
    }
}

/// [`mix`] of 32 words.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn mean(a: __m512i, b: __m512i, [high, low]: [__m512i; 2], rounding: __m512i) -> __m512i {
    let d = _mm512_sub_epi16(b, a);
    let fine = _mm512_add_epi16(_mm512_mulhi_epi16(_mm512_add_epi16(d, d), low), rounding);
    let sum = _mm512_add_epi16(_mm512_mullo_epi16(d, high), fine);
    _mm512_add_epi16(a, _mm512_srai_epi16::<7>(sum))
}

/// 64 output pixels at a time, weights and indices in registers: for groups of 16 whose bytes lie within one
/// register (or two: `PAIR`), with up to `T` times 4 taps; any number if `T` is 0. `POSITIVE`: no
/// weight is negative.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
unsafe fn blocks<const T: usize, const PAIR: bool, const POSITIVE: bool>(pass: &Across<'_>, run: &Run) {
    for x in (0..pass.width()).step_by(64) {
        let n = (pass.width() - x).min(64);
        // SAFETY: the caller's.
        unsafe {
            match n.div_ceil(16) {
                _ if T == 0 => many::<PAIR>(pass, run, x, n),
                1 => block::<T, PAIR, POSITIVE, 1>(pass, run, x, n),
                2 => block::<T, PAIR, POSITIVE, 2>(pass, run, x, n),
                3 => block::<T, PAIR, POSITIVE, 3>(pass, run, x, n),
                _ => block::<T, PAIR, POSITIVE, 4>(pass, run, x, n),
            }
        }
    }
}

/// Where the bytes of taps `4 * t..4 * t + 4` of 16 output pixels from `o` on are: the column from which a
/// register (or two) is loaded, always inside the row, and the index of each byte from there.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn window<const PAIR: bool>(pass: &Across<'_>, width: usize, o: usize, t: usize) -> (usize, __m512i) {
    let first = pass.axis().start(o);
    let column = first - pass.column() + 4 * t;
    let at = column.min(width - if PAIR { 128 } else { 64 });
    // SAFETY: the array has 64 entries to spare.
    let starts = unsafe { _mm512_loadu_si512(pass.axis().starts()[o..][..16].as_ptr().cast()) };
    // Where there is nothing to store or the weight is zero, the index may be anything.
    let shift = (column - at) as i32;
    let relative = _mm512_sub_epi32(starts, _mm512_set1_epi32(first as i32 - shift));
    let relative = _mm512_and_si512(relative, _mm512_set1_epi32(127));
    let spread = _mm512_shuffle_epi8(relative, _mm512_set4_epi32(0x0c0c_0c0c, 0x0808_0808, 0x0404_0404, 0));
    (at, _mm512_add_epi8(spread, _mm512_set1_epi32(0x0302_0100)))
}

/// The bytes that `index` names from `from` on.
///
/// # Safety
/// 64 bytes, or 128 with `PAIR`, may be read there.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
unsafe fn gather<const PAIR: bool>(from: *const u8, index: __m512i) -> __m512i {
    // SAFETY: the caller's.
    unsafe {
        let v = _mm512_loadu_si512(from.cast());
        if PAIR {
            _mm512_permutex2var_epi8(v, index, _mm512_loadu_si512(from.wrapping_add(64).cast()))
        } else {
            _mm512_permutexvar_epi8(index, v)
        }
    }
}

/// Output pixels `x..x + n` of all rows of the run: `G` groups of 16.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
unsafe fn block<const T: usize, const PAIR: bool, const POSITIVE: bool, const G: usize>(
    pass: &Across<'_>,
    run: &Run,
    x: usize,
    n: usize,
) {
    let zero = _mm512_setzero_si512();
    let mut weights = [[[zero; 3]; T]; G];
    let mut index = [[zero; T]; G];
    let mut at = [[0usize; T]; G];
    for g in 0..G {
        let o = pass.first() + x + 16 * g;
        for t in 0..T {
            (at[g][t], index[g][t]) = window::<PAIR>(pass, run.width, o, t);
            for b in 0..3 {
                // SAFETY: the arrays have 64 entries to spare.
                weights[g][t][b] =
                    unsafe { _mm512_loadu_si512(pass.axis().words(t, b)[o..][..16].as_ptr().cast()) };
            }
        }
    }
    let half = _mm512_set1_epi32(HALF);
    let transpose = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    let words: [u16; 32] = std::array::from_fn(|i| (i % 8 * 4 + i / 8) as u16);
    // SAFETY: 64 bytes are there.
    let words = unsafe { _mm512_loadu_si512(words.as_ptr().cast()) };
    for row in 0..run.rows {
        for c in 0..run.channels {
            let from = run.planes[c].wrapping_add(row * run.stride);
            let mut sums = [zero; 4];
            let mut v = [[zero; T]; G];
            for g in 0..G {
                sums[g] = half;
                for t in 0..T {
                    // SAFETY: `window` keeps inside the row.
                    v[g][t] = unsafe { gather::<PAIR>(from.wrapping_add(at[g][t]), index[g][t]) };
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
            let bytes = if POSITIVE {
                _mm512_permutexvar_epi16(words, take(sums))
            } else {
                _mm512_permutexvar_epi32(transpose, clip(sums))
            };
            let to = run.to.wrapping_add(row * run.to_stride + c * run.to_plane + x);
            // SAFETY: `n` bytes of this row's plane.
            unsafe { store(to, bytes, n) };
        }
    }
}

/// Output pixels `x..x + n` of all rows of the run, any number of taps: 16 at a time, of up to four rows.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
unsafe fn many<const PAIR: bool>(pass: &Across<'_>, run: &Run, x: usize, n: usize) {
    const R: usize = 4;
    let zero = _mm512_setzero_si512();
    for x in (x..x + n).step_by(16) {
        let o = pass.first() + x;
        let n = (pass.width() - x).min(16);
        let lines = run.rows * run.channels;
        for first in (0..lines).step_by(R) {
            // The last ones again where there are fewer than `R`.
            let line: [usize; R] = std::array::from_fn(|r| (first + r).min(lines - 1));
            let place = line.map(|line| (line / run.channels, line % run.channels));
            let mut sums = [[_mm512_set1_epi32(HALF), zero, zero]; R];
            for t in 0..pass.axis().groups() {
                let (at, index) = window::<PAIR>(pass, run.width, o, t);
                // SAFETY: the arrays have 64 entries to spare.
                let weights = [0, 1, 2].map(|b| unsafe {
                    _mm512_loadu_si512(pass.axis().words(t, b)[o..][..16].as_ptr().cast())
                });
                for (sums, (row, c)) in sums.iter_mut().zip(place) {
                    let from = run.planes[c].wrapping_add(row * run.stride + at);
                    // SAFETY: `window` keeps inside the row.
                    let v = unsafe { gather::<PAIR>(from, index) };
                    for (sum, weight) in sums.iter_mut().zip(weights) {
                        *sum = _mm512_dpbusd_epi32(*sum, v, weight);
                    }
                }
            }
            for (sums, (row, c)) in sums.iter().zip(place) {
                let sum = _mm512_add_epi32(_mm512_slli_epi32::<8>(sums[0]), sums[1]);
                let sum = _mm512_add_epi32(_mm512_slli_epi32::<8>(sum), sums[2]);
                let sum = _mm512_max_epi32(_mm512_srai_epi32::<PRECISION>(sum), zero);
                let to = run.to.wrapping_add(row * run.to_stride + c * run.to_plane + x);
                // SAFETY: `n` bytes of this row's plane.
                unsafe { _mm512_mask_cvtusepi32_storeu_epi8(to.cast(), low(n) as u16, sum) };
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
    if dst.len() < 64 {
        // SAFETY: the caller's.
        return unsafe { super::avx2::down(axis, y, src, dst) };
    }
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
            1 if weights.len() <= 2 => match mix(weights) {
                Some(halves) => down_mix([rows[0], rows[1]], halves, dst),
                None => down_two([rows[0], rows[1]], weights, dst),
            },
            1 if axis.is_positive() => down_rows::<1, true>(axis, y, rows, dst),
            1 => down_rows::<1, false>(axis, y, rows, dst),
            2 if axis.is_positive() => down_rows::<2, true>(axis, y, rows, dst),
            2 => down_rows::<2, false>(axis, y, rows, dst),
            3 => down_rows::<3, false>(axis, y, rows, dst),
            _ => down_many(axis, y, rows, dst),
        }
    }
}

/// Bytes of interleaved pixels to planes: a row of `width` pixels of three channels, at least 64, from `from`.
///
/// # Safety
/// The processor has AVX-512 F, BW, DQ, VL, VBMI and VNNI. The row may be read, and `width` bytes written at each
/// of `to`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
pub(super) unsafe fn split3(from: *const u8, width: usize, to: [*mut u8; 3]) {
    let index: [__m512i; 3] = std::array::from_fn(|c| {
        let bytes: [u8; 64] = std::array::from_fn(|i| (3 * i + c) as u8);
        // SAFETY: 64 bytes are there.
        unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
    });
    for x in stretches(width) {
        // SAFETY: 64 pixels from `x` on are in the row.
        unsafe {
            let [a, b, c] = [0, 64, 128].map(|k| _mm512_loadu_si512(from.wrapping_add(3 * x + k).cast()));
            for (to, index) in to.into_iter().zip(index) {
                let v = _mm512_permutex2var_epi8(a, index, b);
                // Bit 7 of an index chooses the third register.
                let v = _mm512_mask_permutexvar_epi8(v, _mm512_movepi8_mask(index), index, c);
                _mm512_storeu_si512(to.wrapping_add(x).cast(), v);
            }
        }
    }
}

/// First bytes of the stretches of 64 that make `len`, at least 64: the last one may overlap the one before.
#[inline]
fn stretches(len: usize) -> impl Iterator<Item = usize> {
    (0..len).step_by(64).map(move |x| x.min(len - 64))
}

/// 64 bytes of each row.
///
/// # Safety
/// They may be read.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
unsafe fn load<const N: usize>(rows: [*const u8; N], x: usize) -> [__m512i; N] {
    // SAFETY: the caller's.
    rows.map(|row| unsafe { _mm512_loadu_si512(row.wrapping_add(x).cast()) })
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

/// `4 * T` taps. `POSITIVE`: no weight is negative.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
unsafe fn down_rows<const T: usize, const POSITIVE: bool>(
    axis: &Axis,
    y: usize,
    rows: &[*const u8],
    dst: &mut [u8],
) {
    let rows: [[*const u8; 4]; T] = std::array::from_fn(|t| std::array::from_fn(|i| rows[4 * t + i]));
    let weights: [[__m512i; 3]; T] =
        std::array::from_fn(|t| axis.group(t, y).map(|w| _mm512_set1_epi32(w as i32)));
    let half = _mm512_set1_epi32(HALF);
    // Within each 128 bits: word `2 * q + h` is word `4 * h + q` of `take`'s.
    let order = _mm512_set4_epi32(0x0f0e_0706, 0x0d0c_0504, 0x0b0a_0302, 0x0908_0100);
    for x in stretches(dst.len()) {
        // SAFETY: 64 bytes from `x` on are inside the rows.
        unsafe {
            let v: [[__m512i; 4]; T] = std::array::from_fn(|t| columns(load(rows[t], x)));
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
            let bytes = if POSITIVE { _mm512_shuffle_epi8(take(sums), order) } else { clip(sums) };
            store(dst.as_mut_ptr().wrapping_add(x), bytes, 64);
        }
    }
}

/// The mean of two rows, of which most output rows of a mild bilinear reduction are made: in 16 bits.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
unsafe fn down_mix(rows: [*const u8; 2], halves: [i16; 2], dst: &mut [u8]) {
    let weights = halves.map(|half| _mm512_set1_epi16(half));
    let (zero, rounding) = (_mm512_setzero_si512(), _mm512_set1_epi16(64));
    for x in stretches(dst.len()) {
        // SAFETY: 64 bytes from `x` on are inside the rows.
        unsafe {
            let [a, b] = load(rows, x);
            let (a0, b0) = (_mm512_unpacklo_epi8(a, zero), _mm512_unpacklo_epi8(b, zero));
            let (a1, b1) = (_mm512_unpackhi_epi8(a, zero), _mm512_unpackhi_epi8(b, zero));
            let words = [mean(a0, b0, weights, rounding), mean(a1, b1, weights, rounding)];
            store(dst.as_mut_ptr().wrapping_add(x), _mm512_packus_epi16(words[0], words[1]), 64);
        }
    }
}

/// Two taps that are no mean: weights in halves of 16 bits take fewer instructions than in three bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
unsafe fn down_two(rows: [*const u8; 2], weights: &[i32], dst: &mut [u8]) {
    let [high, low_half] = pair(weights).map(|word| _mm512_set1_epi32(word as i32));
    let half = _mm512_set1_epi32(1 << (PRECISION as i32 - 1 - HALF_BITS));
    let zero = _mm512_setzero_si512();
    for x in stretches(dst.len()) {
        // SAFETY: 64 bytes from `x` on are inside the rows.
        unsafe {
            let [a, b] = load(rows, x);
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
            store(dst.as_mut_ptr().wrapping_add(x), clip(sums), 64);
        }
    }
}

/// Any number of taps.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
unsafe fn down_many(axis: &Axis, y: usize, rows: &[*const u8], dst: &mut [u8]) {
    let zero = _mm512_setzero_si512();
    for x in stretches(dst.len()) {
        let mut sums = [[_mm512_set1_epi32(HALF); 4], [zero; 4], [zero; 4]];
        for (t, four) in rows.chunks_exact(4).enumerate() {
            // SAFETY: 64 bytes from `x` on are inside the rows.
            let v = columns(unsafe { load([0, 1, 2, 3].map(|i| four[i]), x) });
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
        // SAFETY: 64 bytes from `x` on are inside the row.
        unsafe { store(dst.as_mut_ptr().wrapping_add(x), clip(total), 64) };
    }
}
