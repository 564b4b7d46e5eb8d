//! The fast inverse DCT of two blocks at a time: a 256-bit vector holds one row of both, a block a lane.

use std::arch::x86_64::*;

use crate::kernels::GROUP;

/// Upper halves of products with a constant of eight fractional bits, as the portable code has them.
#[inline]
#[target_feature(enable = "avx2")]
fn times(x: __m256i, constant: i16) -> __m256i {
    _mm256_mulhi_epi16(_mm256_slli_epi16::<2>(x), _mm256_set1_epi16(constant << 6))
}

#[inline]
#[target_feature(enable = "avx2")]
fn add(a: __m256i, b: __m256i) -> __m256i {
    _mm256_add_epi16(a, b)
}

#[inline]
#[target_feature(enable = "avx2")]
fn sub(a: __m256i, b: __m256i) -> __m256i {
    _mm256_sub_epi16(a, b)
}

/// One-dimensional transforms of all columns.
#[inline]
#[target_feature(enable = "avx2")]
fn pass([x0, x1, x2, x3, x4, x5, x6, x7]: [__m256i; 8]) -> [__m256i; 8] {
    let (sum04, difference04) = (add(x0, x4), sub(x0, x4));
    let sum26 = add(x2, x6);
    let difference26 = sub(times(sub(x2, x6), 362), sum26);
    let (even0, even3) = (add(sum04, sum26), sub(sum04, sum26));
    let (even1, even2) = (add(difference04, difference26), sub(difference04, difference26));
    let (z13, z10) = (add(x5, x3), sub(x5, x3));
    let (z11, z12) = (add(x1, x7), sub(x1, x7));
    let odd7 = add(z11, z13);
    let sum = times(sub(z11, z13), 362);
    let z5 = times(add(z10, z12), 473);
    let odd6 = sub(add(sub(times(z10, -413), z10), z5), odd7);
    let odd5 = sub(sum, odd6);
    let odd4 = add(sub(times(z12, 277), z5), odd5);
    [
        add(even0, odd7),
        add(even1, odd6),
        add(even2, odd5),
        sub(even3, odd4),
        add(even3, odd4),
        sub(even2, odd5),
        sub(even1, odd6),
        sub(even0, odd7),
    ]
}

/// Transposes the block in each lane.
#[inline]
#[target_feature(enable = "avx2")]
fn transpose([r0, r1, r2, r3, r4, r5, r6, r7]: [__m256i; 8]) -> [__m256i; 8] {
    let (a0, a1) = (_mm256_unpacklo_epi16(r0, r1), _mm256_unpackhi_epi16(r0, r1));
    let (a2, a3) = (_mm256_unpacklo_epi16(r2, r3), _mm256_unpackhi_epi16(r2, r3));
    let (a4, a5) = (_mm256_unpacklo_epi16(r4, r5), _mm256_unpackhi_epi16(r4, r5));
    let (a6, a7) = (_mm256_unpacklo_epi16(r6, r7), _mm256_unpackhi_epi16(r6, r7));
    let (b0, b1) = (_mm256_unpacklo_epi32(a0, a2), _mm256_unpackhi_epi32(a0, a2));
    let (b2, b3) = (_mm256_unpacklo_epi32(a1, a3), _mm256_unpackhi_epi32(a1, a3));
    let (b4, b5) = (_mm256_unpacklo_epi32(a4, a6), _mm256_unpackhi_epi32(a4, a6));
    let (b6, b7) = (_mm256_unpacklo_epi32(a5, a7), _mm256_unpackhi_epi32(a5, a7));
    [
        _mm256_unpacklo_epi64(b0, b4),
        _mm256_unpackhi_epi64(b0, b4),
        _mm256_unpacklo_epi64(b1, b5),
        _mm256_unpackhi_epi64(b1, b5),
        _mm256_unpacklo_epi64(b2, b6),
        _mm256_unpackhi_epi64(b2, b6),
        _mm256_unpacklo_epi64(b3, b7),
        _mm256_unpackhi_epi64(b3, b7),
    ]
}

/// # Safety
/// The features must be available, `groups` be whole groups and `out` hold eight rows of 32 samples a group.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn idct(groups: &mut [i16], multipliers: &[u16; 64], out: &mut [u8], stride: usize) {
    let mut factors = [_mm256_setzero_si256(); 8];
    for (row, q) in factors.iter_mut().zip(multipliers.as_chunks::<8>().0) {
        // SAFETY: a row of the table is 16 bytes.
        *row = _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(q.as_ptr().cast()) });
    }
    for (g, group) in groups.chunks_exact_mut(GROUP).enumerate() {
        for first in [0, 2] {
            let rows = group[first * 8..].as_mut_ptr();
            let mut x = [_mm256_setzero_si256(); 8];
            for r in 0..8 {
                // SAFETY: a group is eight rows of 64 bytes, and two blocks are the first or last 32 of each.
                unsafe {
                    let row: *mut __m256i = rows.add(r * 32).cast();
                    x[r] = _mm256_mullo_epi16(_mm256_loadu_si256(row), factors[r]);
                    _mm256_storeu_si256(row, _mm256_setzero_si256());
                }
            }
            let y = transpose(pass(transpose(pass(x))));
            let to = out[g * 32 + first * 8..].as_mut_ptr();
            let center = _mm256_set1_epi8(-128);
            for r in (0..8).step_by(2) {
                let both = _mm256_packs_epi16(_mm256_srai_epi16::<5>(y[r]), _mm256_srai_epi16::<5>(y[r + 1]));
                // Of each lane, that is a block: eight samples of this row, and eight of the next.
                let both = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_xor_si256(both, center));
                // SAFETY: the caller promises 16 samples in each of eight rows.
                unsafe {
                    _mm_storeu_si128(to.add(r * stride).cast(), _mm256_castsi256_si128(both));
                    _mm_storeu_si128(to.add((r + 1) * stride).cast(), _mm256_extracti128_si256::<1>(both));
                }
            }
        }
    }
}
