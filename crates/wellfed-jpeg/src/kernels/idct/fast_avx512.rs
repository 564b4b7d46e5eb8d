//! The fast inverse DCT of one group at a time: a 512-bit vector holds one row of all four blocks, a block a lane.

use std::arch::x86_64::*;

use super::fast_x86::passes;
use crate::kernels::GROUP;

passes!(
    __m512i,
    "avx512f,avx512bw",
    _mm512_mulhi_epi16,
    _mm512_slli_epi16,
    _mm512_set1_epi16,
    _mm512_add_epi16,
    _mm512_sub_epi16,
    _mm512_unpacklo_epi16,
    _mm512_unpackhi_epi16,
    _mm512_unpacklo_epi32,
    _mm512_unpackhi_epi32,
    _mm512_unpacklo_epi64,
    _mm512_unpackhi_epi64,
);

/// # Safety
/// The features must be available, `groups` be whole groups and `out` hold eight rows of 32 samples a group.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn idct(groups: &mut [i16], multipliers: &[u16; 64], out: &mut [u8], stride: usize) {
    let mut factors = [_mm512_setzero_si512(); 8];
    for (row, q) in factors.iter_mut().zip(multipliers.as_chunks::<8>().0) {
        // SAFETY: a row of the table is 16 bytes.
        *row = _mm512_broadcast_i32x4(unsafe { _mm_loadu_si128(q.as_ptr().cast()) });
    }
    // Two rows of samples of the blocks in turn become one row of all blocks, and the next.
    let rows_apart = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    let center = _mm512_set1_epi8(-128);
    for (g, group) in groups.chunks_exact_mut(GROUP).enumerate() {
        let rows = group.as_mut_ptr();
        let mut x = [_mm512_setzero_si512(); 8];
        for r in 0..8 {
            // SAFETY: a group is eight rows of 64 bytes.
            unsafe {
                let row: *mut __m512i = rows.add(r * 32).cast();
                x[r] = _mm512_mullo_epi16(_mm512_loadu_si512(row), factors[r]);
                _mm512_storeu_si512(row, _mm512_setzero_si512());
            }
        }
        let y = transpose(pass(transpose(pass(x))));
        let to = out[g * 32..].as_mut_ptr();
        for r in (0..8).step_by(2) {
            let both = _mm512_packs_epi16(_mm512_srai_epi16::<5>(y[r]), _mm512_srai_epi16::<5>(y[r + 1]));
            let both = _mm512_permutexvar_epi64(rows_apart, _mm512_xor_si512(both, center));
            // SAFETY: the caller promises 32 samples in each of eight rows.
            unsafe {
                _mm256_storeu_si256(to.add(r * stride).cast(), _mm512_castsi512_si256(both));
                _mm256_storeu_si256(to.add((r + 1) * stride).cast(), _mm512_extracti64x4_epi64::<1>(both));
            }
        }
    }
}
