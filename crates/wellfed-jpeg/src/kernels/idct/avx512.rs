//! The inverse DCT of one group at a time: a 512-bit vector holds one row of all four blocks.
//!
//! Both passes work on pairs of 16-bit inputs side by side (0 with 4, 2 with 6, 7 with 1, 3 with 5), so that one
//! multiply-add gives a 32-bit sum of two products. The first pass makes the pairs by interleaving rows, the
//! transposition between the passes makes them for the second, and the second's results are transposed as bytes.
//!
//! Where a group has only DC coefficients, or only those of rows and columns 0 to 3 (a third of the groups of
//! photographs of high quality), most of that falls away.
//!
//! The sum of inputs 0 and 4 is taken in 32 bits, where the contract wraps it to 16, and the shortcut for blocks
//! without rows 1 to 7 is not taken. Neither makes a difference while those inputs lie in -8192..8192, as those
//! of every sane image do; a group where they do not is left to the scalar code.

use std::arch::x86_64::*;

use super::constants::*;
use super::scalar;
use crate::kernels::GROUP;
use crate::kernels::x86::{CacheAligned, avx512::permutation};

/// Two 16-bit constants side by side, for multiply-adds of pairs.
#[inline]
#[target_feature(enable = "avx512f")]
fn pair(low: i16, high: i16) -> __m512i {
    _mm512_set1_epi32(i32::from(low) & 0xFFFF | i32::from(high) << 16)
}

/// One-dimensional transforms of sixteen columns (or rows) given as pairs of inputs; the results have `offset`
/// added and are not yet shifted.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn transform(in04: __m512i, in26: __m512i, in71: __m512i, in35: __m512i, offset: __m512i) -> [__m512i; 8] {
    let z = _mm512_add_epi16(in71, in35);
    let z3 = _mm512_madd_epi16(z, pair(F_1_175 - F_1_961, F_1_175));
    let z4 = _mm512_madd_epi16(z, pair(F_1_175, F_1_175 - F_0_390));
    let odd = [
        _mm512_add_epi32(z4, _mm512_madd_epi16(in71, pair(-F_0_899, F_1_501 - F_0_899))),
        _mm512_add_epi32(z3, _mm512_madd_epi16(in35, pair(F_3_072 - F_2_562, -F_2_562))),
        _mm512_add_epi32(z4, _mm512_madd_epi16(in35, pair(-F_2_562, F_2_053 - F_2_562))),
        _mm512_add_epi32(z3, _mm512_madd_epi16(in71, pair(F_0_298 - F_0_899, -F_0_899))),
    ];
    let sum = _mm512_add_epi32(offset, _mm512_madd_epi16(in04, pair(1 << 13, 1 << 13)));
    let difference = _mm512_add_epi32(offset, _mm512_madd_epi16(in04, pair(1 << 13, -1 << 13)));
    let outer = _mm512_madd_epi16(in26, pair(F_0_541 + F_0_765, F_0_541));
    let inner = _mm512_madd_epi16(in26, pair(F_0_541, F_0_541 - F_1_847));
    let even = [
        _mm512_add_epi32(sum, outer),
        _mm512_add_epi32(difference, inner),
        _mm512_sub_epi32(difference, inner),
        _mm512_sub_epi32(sum, outer),
    ];
    butterfly(even, odd)
}

/// [`transform`] where inputs 4 to 7 are zero.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn transform_low(in02: __m512i, in13: __m512i, offset: __m512i) -> [__m512i; 8] {
    let even = [
        _mm512_add_epi32(offset, _mm512_madd_epi16(in02, pair(1 << 13, F_0_541 + F_0_765))),
        _mm512_add_epi32(offset, _mm512_madd_epi16(in02, pair(1 << 13, F_0_541))),
        _mm512_add_epi32(offset, _mm512_madd_epi16(in02, pair(1 << 13, -F_0_541))),
        _mm512_add_epi32(offset, _mm512_madd_epi16(in02, pair(1 << 13, -F_0_541 - F_0_765))),
    ];
    let odd = [
        _mm512_madd_epi16(in13, pair(F_1_501 - F_0_899 + F_1_175 - F_0_390, F_1_175)),
        _mm512_madd_epi16(in13, pair(F_1_175, F_3_072 - F_2_562 + F_1_175 - F_1_961)),
        _mm512_madd_epi16(in13, pair(F_1_175 - F_0_390, F_1_175 - F_2_562)),
        _mm512_madd_epi16(in13, pair(F_1_175 - F_0_899, F_1_175 - F_1_961)),
    ];
    butterfly(even, odd)
}

/// Sums, then differences in reverse order.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn butterfly(even: [__m512i; 4], odd: [__m512i; 4]) -> [__m512i; 8] {
    [
        _mm512_add_epi32(even[0], odd[0]),
        _mm512_add_epi32(even[1], odd[1]),
        _mm512_add_epi32(even[2], odd[2]),
        _mm512_add_epi32(even[3], odd[3]),
        _mm512_sub_epi32(even[3], odd[3]),
        _mm512_sub_epi32(even[2], odd[2]),
        _mm512_sub_epi32(even[1], odd[1]),
        _mm512_sub_epi32(even[0], odd[0]),
    ]
}

/// The pairs of the second pass for four rows of the first's results (columns in order).
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn transposed_pairs(rows: [__m512i; 4]) -> [__m512i; 4] {
    // Per 128-bit lane, out of two rows: pairs (0, 4) and (2, 6) of both, and pairs (7, 1) and (3, 5) of both.
    let even = const { words([0, 4, 32, 36, 2, 6, 34, 38]) };
    let odd = const { words([7, 1, 39, 33, 3, 5, 35, 37]) };
    let even01 = _mm512_permutex2var_epi16(rows[0], even, rows[1]);
    let even23 = _mm512_permutex2var_epi16(rows[2], even, rows[3]);
    let odd01 = _mm512_permutex2var_epi16(rows[0], odd, rows[1]);
    let odd23 = _mm512_permutex2var_epi16(rows[2], odd, rows[3]);
    [
        _mm512_unpacklo_epi64(even01, even23),
        _mm512_unpackhi_epi64(even01, even23),
        _mm512_unpacklo_epi64(odd01, odd23),
        _mm512_unpackhi_epi64(odd01, odd23),
    ]
}

/// Indexes for a permutation of 16-bit words that does the same in each lane.
const fn words(lane: [u8; 8]) -> __m512i {
    let mut table = [0; 64];
    let mut i = 0;
    while i < 32 {
        table[2 * i] = lane[i % 8] + (i / 8 * 8) as u8;
        i += 1;
    }
    permutation(table)
}

/// The pairs of the second pass, 0 with 2 and 1 with 3, for four rows of columns 0 to 3 of the first's unshifted
/// results.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn transposed_low_pairs(a: __m512i, b: __m512i, c: __m512i, d: __m512i) -> [__m512i; 2] {
    let ab = _mm512_packs_epi32(_mm512_srai_epi32::<11>(a), _mm512_srai_epi32::<11>(b));
    let cd = _mm512_packs_epi32(_mm512_srai_epi32::<11>(c), _mm512_srai_epi32::<11>(d));
    [
        _mm512_permutex2var_epi16(ab, const { words([0, 2, 4, 6, 32, 34, 36, 38]) }, cd),
        _mm512_permutex2var_epi16(ab, const { words([1, 3, 5, 7, 33, 35, 37, 39]) }, cd),
    ]
}

/// Samples of four rows of the blocks, as two vectors of two rows of 32 each, from the unshifted results of the
/// second pass (element i of a lane is row i of that block, vector x is column x).
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn samples(columns: [__m512i; 8]) -> [__m512i; 2] {
    // The upper halves of two columns' 32-bit results, side by side; then 2 of the 18 bits are left to shift.
    let two = |x: usize| {
        let both =
            _mm512_mask_alignr_epi8::<2>(columns[x + 1], 0x3333_3333_3333_3333, columns[x], columns[x]);
        _mm512_srai_epi16::<2>(both)
    };
    let left = _mm512_packus_epi16(two(0), two(2));
    let right = _mm512_packus_epi16(two(4), two(6));
    [
        _mm512_permutex2var_epi8(left, const { sample_order(0) }, right),
        _mm512_permutex2var_epi8(left, const { sample_order(2) }, right),
    ]
}

/// Where [`samples`] finds row `first` and the row below it.
const fn sample_order(first: usize) -> __m512i {
    let mut table = [0; 64];
    let mut i = 0;
    while i < 64 {
        let (row, block, column) = (first + i / 32, i % 32 / 8, i % 8);
        table[i] = (column / 4 * 64 + block * 16 + column % 4 / 2 * 8 + row * 2 + column % 2) as u8;
        i += 1;
    }
    permutation(table)
}

/// # Safety
/// The features must be available, `groups` be whole groups and `out` hold eight rows of 32 samples a group.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
pub(super) unsafe fn idct(groups: &mut [i16], quant: &[u16; 64], out: &mut [u8], stride: usize) {
    let zero = _mm512_setzero_si512();
    let quant_rows = quant_rows(quant);
    let quant_rows = quant_rows.get();
    for (g, group) in groups.chunks_exact_mut(GROUP).enumerate() {
        let rows = group.as_mut_ptr();
        let samples_at = out[g * 32..].as_mut_ptr();
        // SAFETY: a group is eight rows of 64 bytes.
        let load = |r: usize| unsafe { _mm512_loadu_si512(rows.add(r * 32).cast()) };
        let c = [load(0), load(1), load(2), load(3), load(4), load(5), load(6), load(7)];
        // SAFETY: the caller promises 32 samples a group in each of eight rows.
        let filled = match unsafe { idct_rows::<false>(c, quant_rows, samples_at, stride) } {
            Done::Flat => 1,
            Done::Low => 4,
            Done::All => 8,
            Done::Nothing => {
                scalar::idct_blocks(group, 0..4, quant, &mut out[g * 32..], stride);
                0
            }
        };
        for r in 0..filled {
            // SAFETY: a group is eight rows of 64 bytes.
            unsafe { _mm512_storeu_si512(rows.add(r * 32).cast(), zero) };
        }
    }
}

/// The rows of a quantization table, each in all four lanes.
#[inline]
#[target_feature(enable = "avx512f")]
pub(in crate::kernels) fn quant_rows(quant: &[u16; 64]) -> CacheAligned<[__m512i; 8]> {
    let mut rows = [_mm512_setzero_si512(); 8];
    for (row, q) in rows.iter_mut().zip(quant.as_chunks::<8>().0) {
        // SAFETY: a row of the table is 16 bytes.
        *row = _mm512_broadcast_i32x4(unsafe { _mm_loadu_si128(q.as_ptr().cast()) });
    }
    CacheAligned::new(rows)
}

/// What became of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::kernels) enum Done {
    /// Transformed; it had DC coefficients only.
    Flat,
    /// Transformed; rows 4 to 7 were zero.
    Low,
    /// Transformed.
    All,
    /// Not transformed: its values are of a size that only [`scalar::idct_blocks`] handles.
    Nothing,
}

/// Transforms the group whose rows are `c`. `PACKED` says who calls: with a function for each of its callers, the
/// compiler inlines them, and vectors stay in registers.
///
/// # Safety
/// The features must be available, and eight rows of 32 bytes, `stride` apart, be writable from `out` on.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
pub(in crate::kernels) unsafe fn idct_rows<const PACKED: bool>(
    c: [__m512i; 8],
    quant_rows: &[__m512i; 8],
    out: *mut u8,
    stride: usize,
) -> Done {
    let zero = _mm512_setzero_si512();
    // SAFETY: the caller promises 32 samples in each of eight rows.
    let put = |r: usize, v: __m256i| unsafe {
        _mm256_storeu_si256(out.add(r * stride).cast(), v);
    };

    // Where inputs lie in -8192..8192, adding 8192 leaves the upper two bits clear.
    let bias = _mm512_set1_epi16(8192);
    let bounds = _mm512_set1_epi16(0xC000u16 as i16);

    // All but rows and columns 0 to 3: zero in a third of the groups of photographs.
    let below = or3(or3(c[4], c[5], c[6]), c[7], c[7]);
    let right_lanes = _mm512_set4_epi32(-1, -1, 0, 0);
    let right = _mm512_and_si512(or3(or3(c[0], c[1], c[2]), c[3], c[3]), right_lanes);
    let high = _mm512_or_si512(below, right);
    let only_low = _mm512_test_epi32_mask(high, high) == 0;

    // All but the DC coefficients: zero in flat parts of an image, often in chroma.
    let dc_lanes = _mm512_set4_epi32(0, 0, 0, 0xFFFF);
    let ac = or3(or3(c[1], c[2], c[3]), _mm512_andnot_si512(dc_lanes, c[0]), zero);
    if only_low && _mm512_test_epi32_mask(ac, ac) == 0 {
        let dc = _mm512_slli_epi16::<2>(_mm512_mullo_epi16(c[0], quant_rows[0]));
        let level = _mm512_srai_epi16::<5>(_mm512_adds_epi16(dc, _mm512_set1_epi16(16)));
        let level = _mm512_add_epi16(level, _mm512_set1_epi16(128));
        let level = _mm512_packus_epi16(level, level);
        let row = _mm512_castsi512_si256(_mm512_permutexvar_epi8(const { flat_order() }, level));
        for r in 0..8 {
            put(r, row);
        }
        return Done::Flat;
    }

    let offset = _mm512_set1_epi32(1 << 10);
    // Rounding of the second pass, and the level shift of 128.
    let offset2 = _mm512_set1_epi32((1 << 17) + (128 << 18));
    if only_low {
        let x0 = _mm512_mullo_epi16(c[0], quant_rows[0]);
        let x1 = _mm512_mullo_epi16(c[1], quant_rows[1]);
        let x2 = _mm512_mullo_epi16(c[2], quant_rows[2]);
        let x3 = _mm512_mullo_epi16(c[3], quant_rows[3]);
        if _mm512_test_epi16_mask(_mm512_add_epi16(x0, bias), bounds) == 0 {
            let y = transform_low(_mm512_unpacklo_epi16(x0, x2), _mm512_unpacklo_epi16(x1, x3), offset);
            let upper = transposed_low_pairs(y[0], y[1], y[2], y[3]);
            let lower = transposed_low_pairs(y[4], y[5], y[6], y[7]);
            for (first, [in02, in13]) in [(0, upper), (4, lower)] {
                let [top, bottom] = samples(transform_low(in02, in13, offset2));
                put(first, _mm512_castsi512_si256(top));
                put(first + 1, _mm512_extracti64x4_epi64::<1>(top));
                put(first + 2, _mm512_castsi512_si256(bottom));
                put(first + 3, _mm512_extracti64x4_epi64::<1>(bottom));
            }
            return Done::Low;
        }
    }

    let mut x = [zero; 8];
    for r in 0..8 {
        x[r] = _mm512_mullo_epi16(c[r], quant_rows[r]);
    }
    let [low, high] = [
        transform(
            _mm512_unpacklo_epi16(x[0], x[4]),
            _mm512_unpacklo_epi16(x[2], x[6]),
            _mm512_unpacklo_epi16(x[7], x[1]),
            _mm512_unpacklo_epi16(x[3], x[5]),
            offset,
        ),
        transform(
            _mm512_unpackhi_epi16(x[0], x[4]),
            _mm512_unpackhi_epi16(x[2], x[6]),
            _mm512_unpackhi_epi16(x[7], x[1]),
            _mm512_unpackhi_epi16(x[3], x[5]),
            offset,
        ),
    ];
    let mut y = [zero; 8];
    for r in 0..8 {
        y[r] = _mm512_packs_epi32(_mm512_srai_epi32::<11>(low[r]), _mm512_srai_epi32::<11>(high[r]));
    }
    let upper = transposed_pairs([y[0], y[1], y[2], y[3]]);
    let lower = transposed_pairs([y[4], y[5], y[6], y[7]]);

    // Inputs 0 and 4 of both passes.
    let first = _mm512_or_si512(_mm512_add_epi16(x[0], bias), _mm512_add_epi16(x[4], bias));
    let wide = or3(first, _mm512_add_epi16(upper[0], bias), _mm512_add_epi16(lower[0], bias));
    if _mm512_test_epi16_mask(wide, bounds) != 0 {
        return Done::Nothing;
    }
    for (first, [in04, in26, in71, in35]) in [(0, upper), (4, lower)] {
        let [top, bottom] = samples(transform(in04, in26, in71, in35, offset2));
        put(first, _mm512_castsi512_si256(top));
        put(first + 1, _mm512_extracti64x4_epi64::<1>(top));
        put(first + 2, _mm512_castsi512_si256(bottom));
        put(first + 3, _mm512_extracti64x4_epi64::<1>(bottom));
    }
    Done::All
}

#[inline]
#[target_feature(enable = "avx512f")]
fn or3(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
    _mm512_ternarylogic_epi32::<0xFE>(a, b, c)
}

/// The first byte of each lane, eight times.
const fn flat_order() -> __m512i {
    let mut table = [0; 64];
    let mut i = 0;
    while i < 64 {
        table[i] = (i % 32 / 8 * 16) as u8;
        i += 1;
    }
    permutation(table)
}
