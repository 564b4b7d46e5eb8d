//! The fast inverse DCT of two blocks at a time: a 256-bit vector holds one row of both, a block a lane.

use std::arch::x86_64::*;

use super::fast_x86::passes;
use crate::kernels::GROUP;

passes!(
    __m256i,
    "avx2",
    _mm256_mulhi_epi16,
    _mm256_slli_epi16,
    _mm256_set1_epi16,
    _mm256_add_epi16,
    _mm256_sub_epi16,
    _mm256_unpacklo_epi16,
    _mm256_unpackhi_epi16,
    _mm256_unpacklo_epi32,
    _mm256_unpackhi_epi32,
    _mm256_unpacklo_epi64,
    _mm256_unpackhi_epi64,
);

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
