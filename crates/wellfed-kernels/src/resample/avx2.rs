//! Both passes with AVX2.
//!
//! A weight of 22 bits and its sign is split as `high * 2^15 + low` ([`super::axis::halves`]), both of 16
//! bits, so that one multiply-add instruction adds two taps. Integer arithmetic modulo 2^32: the same sum as
//! the scalar code's, whatever the order. Means of two samples need no more than 16 bits ([`mix`]).

#![allow(clippy::needless_range_loop, reason = "one index walks weights, indices and sums in step")]

use std::arch::x86_64::*;

use super::axis::{Axis, HALF_BITS, PRECISION, mix, pair};
use super::pass::{Across, Rows, Run};

const HALF: i32 = 1 << (PRECISION - 1);

/// `high * 2^15 + low`, rounded and without the fraction; not yet clamped.
#[inline]
#[target_feature(enable = "avx2")]
fn total(high: __m256i, low: __m256i) -> __m256i {
    let low = _mm256_add_epi32(low, _mm256_set1_epi32(HALF));
    let sum = _mm256_add_epi32(_mm256_slli_epi32::<HALF_BITS>(high), low);
    _mm256_srai_epi32::<{ PRECISION as i32 }>(sum)
}

/// [`mix`] of 16 words.
#[inline]
#[target_feature(enable = "avx2")]
fn mean(a: __m256i, b: __m256i, [high, low]: [__m256i; 2]) -> __m256i {
    let d = _mm256_sub_epi16(b, a);
    let fine = _mm256_add_epi16(_mm256_mulhi_epi16(_mm256_add_epi16(d, d), low), _mm256_set1_epi16(64));
    let sum = _mm256_add_epi16(_mm256_mullo_epi16(d, high), fine);
    _mm256_add_epi16(a, _mm256_srai_epi16::<7>(sum))
}

/// 16 bytes for each lane: those at `from[0]` and `from[1]`.
///
/// # Safety
/// They may be read.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn lanes(from: [*const u8; 2]) -> __m256i {
    // SAFETY: the caller's.
    unsafe {
        let low = _mm256_castsi128_si256(_mm_loadu_si128(from[0].cast()));
        _mm256_inserti128_si256::<1>(low, _mm_loadu_si128(from[1].cast()))
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load(bytes: &[u8; 32]) -> __m256i {
    // SAFETY: 32 bytes are there.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

/// Writes the first `n` of 16 bytes.
///
/// # Safety
/// `n` bytes at `to` may be written.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn store(to: *mut u8, v: __m128i, n: usize) {
    // SAFETY: the caller's.
    unsafe {
        if n >= 16 {
            return _mm_storeu_si128(to.cast(), v);
        }
        let mut bytes = [0u8; 16];
        _mm_storeu_si128(bytes.as_mut_ptr().cast(), v);
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, n);
    }
}

/// The horizontal pass.
///
/// # Safety
/// The processor has AVX2. The run's rows may be read, and their places written; rows have all columns that the
/// pass needs, and at least [`Across::wide`].
#[target_feature(enable = "avx2")]
pub(super) unsafe fn across(pass: &Across<'_>, run: &Run) {
    let axis = pass.axis();
    let [span, wider, ..] = axis.spans();
    // SAFETY: the caller's.
    unsafe {
        if span + 4 > 16 {
            return far(pass, run);
        }
        if let Some(weights) = axis.mix()
            && wider + 2 <= 16
        {
            return mixes(pass, weights, run);
        }
        match (wider + 4 <= 16, axis.pairs()) {
            (true, 1) => blocks::<1, true>(pass, run),
            (true, 2) => blocks::<2, true>(pass, run),
            (true, 3) => blocks::<3, true>(pass, run),
            (false, 1) => blocks::<1, false>(pass, run),
            (false, 2) => blocks::<2, false>(pass, run),
            (false, 3) => blocks::<3, false>(pass, run),
            (_, 4) => blocks::<4, false>(pass, run),
            (_, 5) => blocks::<5, false>(pass, run),
            (_, 6) => blocks::<6, false>(pass, run),
            _ => many(pass, run),
        }
    }
}

/// The column from which 16 bytes are loaded for output pixels that begin `taps` after output pixel `o`, always
/// inside the row, and the distance from there to where they begin.
#[inline]
fn window(pass: &Across<'_>, width: usize, o: usize, taps: usize) -> (usize, usize) {
    // Past the last output pixel there is nothing to store, and any will do.
    let column = pass.axis().starts()[o] as usize - pass.column() + taps;
    let at = column.min(width - 16);
    (at, column - at)
}

/// Each output pixel the mean of two: in 16 bits ([`mix`]), 32 at a time.
#[target_feature(enable = "avx2")]
unsafe fn mixes(pass: &Across<'_>, weights: [&[u16]; 2], run: &Run) {
    let zero = _mm256_setzero_si256();
    for x in (0..pass.width()).step_by(32) {
        let n = (pass.width() - x).min(32);
        let (mut at, mut index, mut weight) = ([[0; 2]; 2], [[zero; 2]; 2], [[zero; 2]; 2]);
        for g in 0..2 {
            let mut bytes = [[0x80; 32]; 2];
            for lane in 0..2 {
                let o = (pass.first() + x + 16 * g + 8 * lane).min(pass.first() + pass.width() - 1);
                let shift;
                (at[g][lane], shift) = window(pass, run.width, o, 0);
                let starts = &pass.axis().starts()[o..][..8];
                for (i, start) in starts.iter().enumerate() {
                    // Bit 7 would make a zero: where the index is too large the weight is zero.
                    let relative = (start - starts[0]) as usize + shift;
                    bytes[0][16 * lane + 2 * i] = relative as u8 & 15;
                    bytes[1][16 * lane + 2 * i] = (relative + 1) as u8 & 15;
                }
            }
            index[g] = [load(&bytes[0]), load(&bytes[1])];
            let o = pass.first() + x + 16 * g;
            // SAFETY: the arrays have 64 entries to spare.
            weight[g] = weights.map(|w| unsafe { _mm256_loadu_si256(w[o..][..16].as_ptr().cast()) });
        }
        for row in 0..run.rows {
            for c in 0..run.channels {
                let from = run.planes[c].wrapping_add(row * run.stride);
                let words: [__m256i; 2] = std::array::from_fn(|g| {
                    // SAFETY: `window` keeps inside the row.
                    let v = unsafe { lanes(at[g].map(|at| from.wrapping_add(at))) };
                    let [a, b] = index[g].map(|index| _mm256_shuffle_epi8(v, index));
                    mean(a, b, weight[g])
                });
                let bytes = _mm256_packus_epi16(words[0], words[1]);
                let bytes = _mm256_permute4x64_epi64::<0b11_01_10_00>(bytes);
                let to = run.to.wrapping_add(row * run.to_stride + c * run.to_plane + x);
                // SAFETY: `n` bytes of this row's plane.
                unsafe {
                    if n == 32 {
                        _mm256_storeu_si256(to.cast(), bytes);
                    } else {
                        store(to, _mm256_castsi256_si128(bytes), n);
                        let rest = n.saturating_sub(16);
                        store(to.wrapping_add(16), _mm256_extracti128_si256::<1>(bytes), rest);
                    }
                }
            }
        }
    }
}

/// What 8 output pixels from `o` on take for taps `2 * p` and `2 * p + 1`: where each lane's 16 bytes are, and
/// the index of each tap's 16 bits. `NEAR`: both lanes' bytes are at the first's place.
#[inline]
#[target_feature(enable = "avx2")]
fn place<const NEAR: bool>(pass: &Across<'_>, width: usize, o: usize, p: usize) -> ([usize; 2], __m256i) {
    // Two pairs of taps are loaded at once.
    let (group, taps) = (p / 2 * 4, p % 2 * 2);
    let last = pass.first() + pass.width() - 1;
    let (mut at, mut bytes) = ([0; 2], [0x80; 32]);
    for lane in 0..2 {
        let base = (o + if NEAR { 0 } else { 4 * lane }).min(last);
        let shift;
        (at[lane], shift) = window(pass, width, base, group);
        let first = pass.axis().starts()[base];
        let starts = &pass.axis().starts()[(o + 4 * lane).min(last)..][..4];
        for (i, start) in starts.iter().enumerate() {
            let relative = (start - first) as usize + shift + taps;
            bytes[16 * lane + 4 * i] = relative as u8 & 15;
            bytes[16 * lane + 4 * i + 2] = (relative + 1) as u8 & 15;
        }
    }
    (at, load(&bytes))
}

/// The high and the low halves of the weights of pair `p` of taps for 8 output pixels from `o` on.
#[inline]
#[target_feature(enable = "avx2")]
fn weights(axis: &Axis, o: usize, p: usize) -> [__m256i; 2] {
    // SAFETY: the arrays have 64 entries to spare.
    [0, 1].map(|part| unsafe { _mm256_loadu_si256(axis.pair_words(p, part)[o..][..8].as_ptr().cast()) })
}

/// 16 output pixels at a time, of which each lane's 4 (or 8: `NEAR`) lie within 16 bytes, with `P` pairs of taps.
#[target_feature(enable = "avx2")]
unsafe fn blocks<const P: usize, const NEAR: bool>(pass: &Across<'_>, run: &Run) {
    let zero = _mm256_setzero_si256();
    for x in (0..pass.width()).step_by(16) {
        let n = (pass.width() - x).min(16);
        let o = pass.first() + x;
        let (mut at, mut index, mut weight) = ([[[0; 2]; P]; 2], [[zero; P]; 2], [[[zero; 2]; P]; 2]);
        for g in 0..2 {
            for p in 0..P {
                (at[g][p], index[g][p]) = place::<NEAR>(pass, run.width, o + 8 * g, p);
                weight[g][p] = weights(pass.axis(), o + 8 * g, p);
            }
        }
        for row in 0..run.rows {
            for c in 0..run.channels {
                let from = run.planes[c].wrapping_add(row * run.stride);
                let totals: [__m256i; 2] = std::array::from_fn(|g| {
                    let (mut sums, mut taps) = ([zero; 2], zero);
                    for p in 0..P {
                        if p % 2 == 0 {
                            // SAFETY: `place` keeps inside the row.
                            taps = unsafe {
                                if NEAR {
                                    let v = _mm_loadu_si128(from.wrapping_add(at[g][p][0]).cast());
                                    _mm256_broadcastsi128_si256(v)
                                } else {
                                    lanes(at[g][p].map(|at| from.wrapping_add(at)))
                                }
                            };
                        }
                        let v = _mm256_shuffle_epi8(taps, index[g][p]);
                        for (sum, weight) in sums.iter_mut().zip(weight[g][p]) {
                            *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(v, weight));
                        }
                    }
                    total(sums[0], sums[1])
                });
                let to = run.to.wrapping_add(row * run.to_stride + c * run.to_plane + x);
                // SAFETY: `n` bytes of this row's plane.
                unsafe { store(to, bytes(totals), n) };
            }
        }
    }
}

/// 16 totals, 4 of each lane and then the other's, clamped.
#[inline]
#[target_feature(enable = "avx2")]
fn bytes([a, b]: [__m256i; 2]) -> __m128i {
    // Words of pixels 0-3, 8-11, 4-7 and 12-15.
    let words = _mm256_packs_epi32(a, b);
    let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(words);
    _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words))
}

/// Any number of taps: 16 output pixels of up to two rows at a time.
#[target_feature(enable = "avx2")]
unsafe fn many(pass: &Across<'_>, run: &Run) {
    const R: usize = 2;
    let lines = run.rows * run.channels;
    // Indices and places of up to 16 output pixels, made once for all rows.
    let pairs = pass.axis().pairs();
    let mut places = Vec::with_capacity(2 * pairs);
    for x in (0..pass.width()).step_by(16) {
        let n = (pass.width() - x).min(16);
        let o = pass.first() + x;
        places.clear();
        for g in 0..2 {
            places.extend((0..pairs).map(|p| place::<false>(pass, run.width, o + 8 * g, p)));
        }
        for first in (0..lines).step_by(R) {
            // The last one again where there is no other.
            let line: [usize; R] = std::array::from_fn(|r| (first + r).min(lines - 1));
            let line = line.map(|line| (line / run.channels, line % run.channels));
            let mut totals = [[_mm256_setzero_si256(); 2]; R];
            for g in 0..2 {
                let mut sums = [[_mm256_setzero_si256(); 2]; R];
                for p in 0..pairs {
                    let (at, index) = places[g * pairs + p];
                    let weights = weights(pass.axis(), o + 8 * g, p);
                    for (sums, (row, c)) in sums.iter_mut().zip(line) {
                        let from = run.planes[c].wrapping_add(row * run.stride);
                        // SAFETY: `place` keeps inside the row.
                        let v = unsafe { lanes(at.map(|at| from.wrapping_add(at))) };
                        let v = _mm256_shuffle_epi8(v, index);
                        for (sum, weight) in sums.iter_mut().zip(weights) {
                            *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(v, weight));
                        }
                    }
                }
                for (totals, [high, low]) in totals.iter_mut().zip(sums) {
                    totals[g] = total(high, low);
                }
            }
            for (totals, (row, c)) in totals.into_iter().zip(line) {
                let to = run.to.wrapping_add(row * run.to_stride + c * run.to_plane + x);
                // SAFETY: `n` bytes of this row's plane.
                unsafe { store(to, bytes(totals), n) };
            }
        }
    }
}

/// Output pixels too far apart to make several at once: one at a time, 16 taps a step.
///
/// # Safety
/// As [`across`]; the axis has [`Axis::far`].
#[target_feature(enable = "avx2")]
pub(super) unsafe fn far(pass: &Across<'_>, run: &Run) {
    let padded = pass.axis().padded();
    for x in 0..pass.width() {
        let o = pass.first() + x;
        let column = pass.axis().start(o) - pass.column();
        let weights = pass.axis().far(o).expect("made where samples are far apart");
        let (high, low) = weights.split_at(padded);
        // Taps past the row's end have weight zero.
        let steps = pass.axis().at(o).1.len().div_ceil(16);
        for row in 0..run.rows {
            for c in 0..run.channels {
                let from = run.planes[c].wrapping_add(row * run.stride);
                let mut sums = [_mm256_setzero_si256(); 2];
                for step in 0..steps {
                    let at = column + 16 * step;
                    // SAFETY: all 16 bytes are in the row, or those that are get copied.
                    let v = unsafe {
                        if at + 16 <= run.width {
                            _mm_loadu_si128(from.wrapping_add(at).cast())
                        } else {
                            let mut some = [0u8; 16];
                            std::ptr::copy_nonoverlapping(
                                from.wrapping_add(at),
                                some.as_mut_ptr(),
                                run.width - at,
                            );
                            _mm_loadu_si128(some.as_ptr().cast())
                        }
                    };
                    let v = _mm256_cvtepu8_epi16(v);
                    for (sum, half) in sums.iter_mut().zip([high, low]) {
                        // SAFETY: 16 weights are there.
                        let weight = unsafe { _mm256_loadu_si256(half[16 * step..][..16].as_ptr().cast()) };
                        *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(v, weight));
                    }
                }
                let sum = _mm256_add_epi32(_mm256_slli_epi32::<HALF_BITS>(sums[0]), sums[1]);
                let sum = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256::<1>(sum));
                let sum = _mm_add_epi32(sum, _mm_shuffle_epi32::<0b01_00_11_10>(sum));
                let sum = _mm_add_epi32(sum, _mm_shuffle_epi32::<0b10_11_00_01>(sum));
                let value = (_mm_cvtsi128_si32(sum).wrapping_add(HALF) >> PRECISION).clamp(0, 255);
                // SAFETY: a byte of this row's plane.
                unsafe { run.to.wrapping_add(row * run.to_stride + c * run.to_plane + x).write(value as u8) };
            }
        }
    }
}

/// Bytes of interleaved pixels to planes: a row of `width` pixels of three channels, at least 32, from `from`.
///
/// # Safety
/// The processor has AVX2. The row may be read, and `width` bytes written at each of `to`.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn split3(from: *const u8, width: usize, to: [*mut u8; 3]) {
    // A channel's bytes lie at other places in each of 3 x 16 bytes: blend them, then sort.
    let blend = [0, 1].map(|k: usize| {
        std::array::from_fn::<_, 3, _>(|c| {
            load(&std::array::from_fn(|i| if (16 * (k + 1) + i % 16) % 3 == c { 0x80 } else { 0 }))
        })
    });
    let sort: [__m256i; 3] =
        std::array::from_fn(|c| load(&std::array::from_fn(|i| ((3 * (i % 16) + c) % 16) as u8)));
    for x in stretches(width) {
        let at = from.wrapping_add(3 * x);
        // SAFETY: 32 pixels from `x` on are in the row.
        unsafe {
            let [a, b, d] = [0, 16, 32].map(|k| lanes([at.wrapping_add(k), at.wrapping_add(48 + k)]));
            for c in 0..3 {
                let v = _mm256_blendv_epi8(_mm256_blendv_epi8(a, b, blend[0][c]), d, blend[1][c]);
                let v = _mm256_shuffle_epi8(v, sort[c]);
                _mm256_storeu_si256(to[c].wrapping_add(x).cast(), v);
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
    const FEW: usize = 32;
    let (start, weights) = axis.at(y);
    let len = dst.len();
    if len < 32 {
        return super::scalar::down(axis, y, src, dst);
    }
    // Rows past the last have weight zero: any row will do. `row` checks that each has all its bytes.
    let row = |t: usize| src.row(start + t.min(weights.len() - 1), len).as_ptr();
    let pairs = weights.len().div_ceil(2);
    let mut few = [std::ptr::null(); FEW];
    let many: Vec<*const u8>;
    let rows = if pairs * 2 <= FEW {
        for (t, to) in few[..pairs * 2].iter_mut().enumerate() {
            *to = row(t);
        }
        &few[..pairs * 2]
    } else {
        many = (0..pairs * 2).map(row).collect();
        &many
    };
    // SAFETY: each of `rows` points to `len` bytes.
    unsafe {
        match pairs {
            1 => match mix(weights) {
                Some(halves) => down_mix([rows[0], rows[1]], halves, dst),
                None => down_rows::<1>(weights, rows, dst),
            },
            2 => down_rows::<2>(weights, rows, dst),
            3 => down_rows::<3>(weights, rows, dst),
            4 => down_rows::<4>(weights, rows, dst),
            _ => down_many(weights, rows, dst),
        }
    }
}

/// First bytes of the stretches of 32 that make `len`, at least 32: the last one may overlap the one before.
#[inline]
fn stretches(len: usize) -> impl Iterator<Item = usize> {
    (0..len).step_by(32).map(move |x| x.min(len - 32))
}

/// The mean of two rows: in 16 bits.
#[target_feature(enable = "avx2")]
unsafe fn down_mix(rows: [*const u8; 2], halves: [i16; 2], dst: &mut [u8]) {
    let weights = halves.map(|half| _mm256_set1_epi16(half));
    let zero = _mm256_setzero_si256();
    for x in stretches(dst.len()) {
        // SAFETY: 32 bytes from `x` on are inside the rows.
        unsafe {
            let [a, b] = rows.map(|row| _mm256_loadu_si256(row.wrapping_add(x).cast()));
            let (a0, b0) = (_mm256_unpacklo_epi8(a, zero), _mm256_unpacklo_epi8(b, zero));
            let (a1, b1) = (_mm256_unpackhi_epi8(a, zero), _mm256_unpackhi_epi8(b, zero));
            let bytes = _mm256_packus_epi16(mean(a0, b0, weights), mean(a1, b1, weights));
            _mm256_storeu_si256(dst.as_mut_ptr().wrapping_add(x).cast(), bytes);
        }
    }
}

/// Adds two rows of 32 bytes, weighted, to four times 8 sums of high and low halves.
///
/// # Safety
/// 32 bytes may be read at each of `rows`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn add_pair(sums: &mut [[__m256i; 2]; 4], rows: [*const u8; 2], weight: [__m256i; 2]) {
    let zero = _mm256_setzero_si256();
    // SAFETY: the caller's.
    let [a, b] = rows.map(|row| unsafe { _mm256_loadu_si256(row.cast()) });
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

/// Four times 8 sums to 32 bytes.
#[inline]
#[target_feature(enable = "avx2")]
fn columns(sums: [[__m256i; 2]; 4]) -> __m256i {
    let [a, b, c, d] = sums.map(|[high, low]| total(high, low));
    _mm256_packus_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d))
}

/// `2 * P` taps.
#[target_feature(enable = "avx2")]
unsafe fn down_rows<const P: usize>(weights: &[i32], rows: &[*const u8], dst: &mut [u8]) {
    let rows: [[*const u8; 2]; P] = std::array::from_fn(|p| [rows[2 * p], rows[2 * p + 1]]);
    let weights: [[__m256i; 2]; P] = std::array::from_fn(|p| {
        pair(&weights[2 * p..(2 * p + 2).min(weights.len())]).map(|word| _mm256_set1_epi32(word as i32))
    });
    for x in stretches(dst.len()) {
        let mut sums = [[_mm256_setzero_si256(); 2]; 4];
        // SAFETY: 32 bytes from `x` on are inside the rows.
        unsafe {
            for p in 0..P {
                add_pair(&mut sums, rows[p].map(|row| row.wrapping_add(x)), weights[p]);
            }
            _mm256_storeu_si256(dst.as_mut_ptr().wrapping_add(x).cast(), columns(sums));
        }
    }
}

/// Any number of taps.
#[target_feature(enable = "avx2")]
unsafe fn down_many(weights: &[i32], rows: &[*const u8], dst: &mut [u8]) {
    for x in stretches(dst.len()) {
        let mut sums = [[_mm256_setzero_si256(); 2]; 4];
        // SAFETY: 32 bytes from `x` on are inside the rows.
        unsafe {
            for (k, rows) in weights.chunks(2).zip(rows.as_chunks::<2>().0) {
                let weight = pair(k).map(|word| _mm256_set1_epi32(word as i32));
                add_pair(&mut sums, rows.map(|row| row.wrapping_add(x)), weight);
            }
            _mm256_storeu_si256(dst.as_mut_ptr().wrapping_add(x).cast(), columns(sums));
        }
    }
}
