//! The inverse DCT of two blocks at a time: a 256-bit vector holds one row of both.
//!
//! The method, its pairs of inputs, its shortcuts and the bounds on inputs 0 and 4 are those of the AVX-512 code.

use std::arch::x86_64::*;

use super::constants::*;
use super::scalar;
use crate::kernels::GROUP;
use crate::kernels::x86::CacheAligned;

/// Two 16-bit constants side by side, for multiply-adds of pairs.
#[inline]
#[target_feature(enable = "avx2")]
fn pair(low: i16, high: i16) -> __m256i {
    _mm256_set1_epi32(i32::from(low) & 0xFFFF | i32::from(high) << 16)
}

/// One-dimensional transforms of eight columns (or rows) given as pairs of inputs; the results have `offset`
/// added and are not yet shifted.
#[inline]
#[target_feature(enable = "avx2")]
fn transform([in04, in26, in71, in35]: [__m256i; 4], offset: __m256i) -> [__m256i; 8] {
    let z = _mm256_add_epi16(in71, in35);
    let z3 = _mm256_madd_epi16(z, pair(F_1_175 - F_1_961, F_1_175));
    let z4 = _mm256_madd_epi16(z, pair(F_1_175, F_1_175 - F_0_390));
    let odd = [
        _mm256_add_epi32(z4, _mm256_madd_epi16(in71, pair(-F_0_899, F_1_501 - F_0_899))),
        _mm256_add_epi32(z3, _mm256_madd_epi16(in35, pair(F_3_072 - F_2_562, -F_2_562))),
        _mm256_add_epi32(z4, _mm256_madd_epi16(in35, pair(-F_2_562, F_2_053 - F_2_562))),
        _mm256_add_epi32(z3, _mm256_madd_epi16(in71, pair(F_0_298 - F_0_899, -F_0_899))),
    ];
    let sum = _mm256_add_epi32(offset, _mm256_madd_epi16(in04, pair(1 << 13, 1 << 13)));
    let difference = _mm256_add_epi32(offset, _mm256_madd_epi16(in04, pair(1 << 13, -1 << 13)));
    let outer = _mm256_madd_epi16(in26, pair(F_0_541 + F_0_765, F_0_541));
    let inner = _mm256_madd_epi16(in26, pair(F_0_541, F_0_541 - F_1_847));
    let even = [
        _mm256_add_epi32(sum, outer),
        _mm256_add_epi32(difference, inner),
        _mm256_sub_epi32(difference, inner),
        _mm256_sub_epi32(sum, outer),
    ];
    butterfly(even, odd)
}

/// [`transform`] where inputs 4 to 7 are zero.
#[inline]
#[target_feature(enable = "avx2")]
fn transform_low(in02: __m256i, in13: __m256i, offset: __m256i) -> [__m256i; 8] {
    let even = [
        _mm256_add_epi32(offset, _mm256_madd_epi16(in02, pair(1 << 13, F_0_541 + F_0_765))),
        _mm256_add_epi32(offset, _mm256_madd_epi16(in02, pair(1 << 13, F_0_541))),
        _mm256_add_epi32(offset, _mm256_madd_epi16(in02, pair(1 << 13, -F_0_541))),
        _mm256_add_epi32(offset, _mm256_madd_epi16(in02, pair(1 << 13, -F_0_541 - F_0_765))),
    ];
    let odd = [
        _mm256_madd_epi16(in13, pair(F_1_501 - F_0_899 + F_1_175 - F_0_390, F_1_175)),
        _mm256_madd_epi16(in13, pair(F_1_175, F_3_072 - F_2_562 + F_1_175 - F_1_961)),
        _mm256_madd_epi16(in13, pair(F_1_175 - F_0_390, F_1_175 - F_2_562)),
        _mm256_madd_epi16(in13, pair(F_1_175 - F_0_899, F_1_175 - F_1_961)),
    ];
    butterfly(even, odd)
}

/// Sums, then differences in reverse order.
#[inline]
#[target_feature(enable = "avx2")]
fn butterfly(even: [__m256i; 4], odd: [__m256i; 4]) -> [__m256i; 8] {
    [
        _mm256_add_epi32(even[0], odd[0]),
        _mm256_add_epi32(even[1], odd[1]),
        _mm256_add_epi32(even[2], odd[2]),
        _mm256_add_epi32(even[3], odd[3]),
        _mm256_sub_epi32(even[3], odd[3]),
        _mm256_sub_epi32(even[2], odd[2]),
        _mm256_sub_epi32(even[1], odd[1]),
        _mm256_sub_epi32(even[0], odd[0]),
    ]
}

/// The pairs of the second pass for four rows of the first's results (columns in order).
#[inline]
#[target_feature(enable = "avx2")]
fn transposed_pairs(rows: [__m256i; 4]) -> [__m256i; 4] {
    // Columns 0, 4, 2, 6, 7, 1, 3, 5.
    let order =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 8, 9, 4, 5, 12, 13, 14, 15, 2, 3, 6, 7, 10, 11));
    let [a, b] = [_mm256_shuffle_epi8(rows[0], order), _mm256_shuffle_epi8(rows[1], order)];
    let [c, d] = [_mm256_shuffle_epi8(rows[2], order), _mm256_shuffle_epi8(rows[3], order)];
    let even01 = _mm256_unpacklo_epi32(a, b);
    let even23 = _mm256_unpacklo_epi32(c, d);
    let odd01 = _mm256_unpackhi_epi32(a, b);
    let odd23 = _mm256_unpackhi_epi32(c, d);
    [
        _mm256_unpacklo_epi64(even01, even23),
        _mm256_unpackhi_epi64(even01, even23),
        _mm256_unpacklo_epi64(odd01, odd23),
        _mm256_unpackhi_epi64(odd01, odd23),
    ]
}

/// The pairs of the second pass, 0 with 2 and 1 with 3, for four rows of columns 0 to 3 of the first's unshifted
/// results.
#[inline]
#[target_feature(enable = "avx2")]
fn transposed_low_pairs(a: __m256i, b: __m256i, c: __m256i, d: __m256i) -> [__m256i; 2] {
    let order =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
    let ab = _mm256_packs_epi32(_mm256_srai_epi32::<11>(a), _mm256_srai_epi32::<11>(b));
    let cd = _mm256_packs_epi32(_mm256_srai_epi32::<11>(c), _mm256_srai_epi32::<11>(d));
    let (ab, cd) = (_mm256_shuffle_epi8(ab, order), _mm256_shuffle_epi8(cd, order));
    [_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd)]
}

/// Samples of four rows of the blocks, as two vectors of two rows of 16 each, from the unshifted results of the
/// second pass (element i of a lane is row i of that block, vector x is column x).
#[inline]
#[target_feature(enable = "avx2")]
fn samples(columns: [__m256i; 8]) -> [__m256i; 2] {
    // The upper halves of two columns' 32-bit results, side by side; then 2 of the 18 bits are left to shift.
    let two = |x: usize| {
        let both = _mm256_blend_epi16::<0xAA>(_mm256_srli_epi32::<16>(columns[x]), columns[x + 1]);
        _mm256_srai_epi16::<2>(both)
    };
    let outer = _mm256_packus_epi16(two(0), two(4));
    let inner = _mm256_packus_epi16(two(2), two(6));
    let left = _mm256_unpacklo_epi16(outer, inner);
    let right = _mm256_unpackhi_epi16(outer, inner);
    [
        _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_unpacklo_epi32(left, right)),
        _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_unpackhi_epi32(left, right)),
    ]
}

/// # Safety
/// The features must be available, `groups` be whole groups and `out` hold eight rows of 32 samples a group.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn idct(groups: &mut [i16], quant: &[u16; 64], out: &mut [u8], stride: usize) {
    let mut quant_rows = [_mm256_setzero_si256(); 8];
    for (row, q) in quant_rows.iter_mut().zip(quant.as_chunks::<8>().0) {
        // SAFETY: a row of the table is 16 bytes.
        *row = _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(q.as_ptr().cast()) });
    }
    let quant_rows = CacheAligned::new(quant_rows);
    let quant_rows = quant_rows.get();
    for (g, group) in groups.chunks_exact_mut(GROUP).enumerate() {
        for first in [0, 2] {
            // SAFETY: as the caller promises.
            let done =
                unsafe { two_blocks(group, first, quant_rows, &mut out[g * 32 + first * 8..], stride) };
            if !done {
                scalar::idct_blocks(group, first..first + 2, quant, &mut out[g * 32..], stride);
            }
        }
    }
}

/// Transforms blocks `first` and `first + 1`; false, with nothing done, if an input is out of bounds.
///
/// # Safety
/// The features must be available, `group` be a group, `first` 0 or 2, and `out` hold eight rows of 16 samples.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn two_blocks(
    group: &mut [i16],
    first: usize,
    quant: &[__m256i; 8],
    out: &mut [u8],
    stride: usize,
) -> bool {
    let rows = group[first * 8..].as_mut_ptr();
    // SAFETY: a group is eight rows of 64 bytes, and two blocks are the first or last 32 of each.
    let load = |r: usize| unsafe { _mm256_loadu_si256(rows.add(r * 32).cast()) };
    // SAFETY: as above.
    let clear = |r: usize| unsafe { _mm256_storeu_si256(rows.add(r * 32).cast(), _mm256_setzero_si256()) };
    let out = out.as_mut_ptr();
    // SAFETY: the caller promises 16 samples in each of eight rows.
    let put = |r: usize, v: __m128i| unsafe { _mm_storeu_si128(out.add(r * stride).cast(), v) };
    let c = [load(0), load(1), load(2), load(3), load(4), load(5), load(6), load(7)];

    // Where inputs lie in -8192..8192, adding 8192 leaves the upper two bits clear.
    let bias = _mm256_set1_epi16(8192);
    let bounds = _mm256_set1_epi16(0xC000u16 as i16);

    // All but rows and columns 0 to 3, then all but the DC coefficients.
    let below = or(or(c[4], c[5]), or(c[6], c[7]));
    let left = or(or(c[1], c[2]), c[3]);
    let right_lanes = _mm256_setr_epi32(0, 0, -1, -1, 0, 0, -1, -1);
    let high = or(below, _mm256_and_si256(or(c[0], left), right_lanes));
    let only_low = _mm256_testz_si256(high, high) == 1;
    let dc_lanes = _mm256_setr_epi32(0xFFFF, 0, 0, 0, 0xFFFF, 0, 0, 0);
    let ac = or(left, _mm256_andnot_si256(dc_lanes, c[0]));
    if only_low && _mm256_testz_si256(ac, ac) == 1 {
        let dc = _mm256_slli_epi16::<2>(_mm256_mullo_epi16(c[0], quant[0]));
        let level = _mm256_srai_epi16::<5>(_mm256_adds_epi16(dc, _mm256_set1_epi16(16)));
        let level = _mm256_add_epi16(level, _mm256_set1_epi16(128));
        let level = _mm256_shuffle_epi8(_mm256_packus_epi16(level, level), _mm256_setzero_si256());
        let (left, right) = (_mm256_castsi256_si128(level), _mm256_extracti128_si256::<1>(level));
        let row = _mm_unpacklo_epi64(left, right);
        for r in 0..8 {
            put(r, row);
        }
        clear(0);
        return true;
    }

    let offset = _mm256_set1_epi32(1 << 10);
    // Rounding of the second pass, and the level shift of 128.
    let offset2 = _mm256_set1_epi32((1 << 17) + (128 << 18));
    if only_low {
        let x0 = _mm256_mullo_epi16(c[0], quant[0]);
        let x1 = _mm256_mullo_epi16(c[1], quant[1]);
        let x2 = _mm256_mullo_epi16(c[2], quant[2]);
        let x3 = _mm256_mullo_epi16(c[3], quant[3]);
        if _mm256_testz_si256(_mm256_add_epi16(x0, bias), bounds) == 0 {
            return false;
        }
        for r in 0..4 {
            clear(r);
        }
        let y = transform_low(_mm256_unpacklo_epi16(x0, x2), _mm256_unpacklo_epi16(x1, x3), offset);
        let upper = transposed_low_pairs(y[0], y[1], y[2], y[3]);
        let lower = transposed_low_pairs(y[4], y[5], y[6], y[7]);
        for (r, [in02, in13]) in [(0, upper), (4, lower)] {
            let [top, bottom] = samples(transform_low(in02, in13, offset2));
            put(r, _mm256_castsi256_si128(top));
            put(r + 1, _mm256_extracti128_si256::<1>(top));
            put(r + 2, _mm256_castsi256_si128(bottom));
            put(r + 3, _mm256_extracti128_si256::<1>(bottom));
        }
        return true;
    }

    let mut x = [_mm256_setzero_si256(); 8];
    for r in 0..8 {
        x[r] = _mm256_mullo_epi16(c[r], quant[r]);
    }
    let low = transform(
        [
            _mm256_unpacklo_epi16(x[0], x[4]),
            _mm256_unpacklo_epi16(x[2], x[6]),
            _mm256_unpacklo_epi16(x[7], x[1]),
            _mm256_unpacklo_epi16(x[3], x[5]),
        ],
        offset,
    );
    let high = transform(
        [
            _mm256_unpackhi_epi16(x[0], x[4]),
            _mm256_unpackhi_epi16(x[2], x[6]),
            _mm256_unpackhi_epi16(x[7], x[1]),
            _mm256_unpackhi_epi16(x[3], x[5]),
        ],
        offset,
    );
    let mut y = [_mm256_setzero_si256(); 8];
    for r in 0..8 {
        y[r] = _mm256_packs_epi32(_mm256_srai_epi32::<11>(low[r]), _mm256_srai_epi32::<11>(high[r]));
    }
    let upper = transposed_pairs([y[0], y[1], y[2], y[3]]);
    let lower = transposed_pairs([y[4], y[5], y[6], y[7]]);

    // Inputs 0 and 4 of both passes.
    let first = or(_mm256_add_epi16(x[0], bias), _mm256_add_epi16(x[4], bias));
    let second = or(_mm256_add_epi16(upper[0], bias), _mm256_add_epi16(lower[0], bias));
    if _mm256_testz_si256(or(first, second), bounds) == 0 {
        return false;
    }
    for r in 0..8 {
        clear(r);
    }

    for (r, pairs) in [(0, upper), (4, lower)] {
        let [top, bottom] = samples(transform(pairs, offset2));
        put(r, _mm256_castsi256_si128(top));
        put(r + 1, _mm256_extracti128_si256::<1>(top));
        put(r + 2, _mm256_castsi256_si128(bottom));
        put(r + 3, _mm256_extracti128_si256::<1>(bottom));
    }
    true
}

#[inline]
#[target_feature(enable = "avx2")]
fn or(a: __m256i, b: __m256i) -> __m256i {
    _mm256_or_si256(a, b)
}
