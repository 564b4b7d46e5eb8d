//! Unstuffing of 64 bytes at a time: comparisons find the stuffed zeros, a compression drops them.

use std::arch::x86_64::*;

use super::CHUNK;
use crate::kernels::x86::avx512::{load_up_to, low_bits};

/// # Safety
/// The features must be available.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,bmi1,bmi2,popcnt")]
pub(super) unsafe fn unstuff(src: &[u8], out: &mut Vec<u8>, marks: &mut Vec<u32>) -> usize {
    // Each chunk is stored as 64 bytes, of which only those kept count.
    out.reserve(src.len() + CHUNK);
    let mut length = out.len();
    let mut end = src.len();
    // 1 if the last byte of the chunk before was an FF (and the next is its 00).
    let mut stuffed = 0;
    for offset in (0..src.len()).step_by(CHUNK) {
        marks.push(length as u32);
        let chunk = &src[offset..];
        let v = load_up_to(chunk);
        let ff = _mm512_cmpeq_epi8_mask(v, _mm512_set1_epi8(-1));
        // Zeros past the end of the data are none.
        let mut inside = low_bits(chunk.len());
        let zero = _mm512_testn_epi8_mask(v, v) & inside;
        let zero_after = zero >> 1 | u64::from(chunk.get(CHUNK) == Some(&0)) << 63;
        let markers = ff & !zero_after;
        if markers != 0 {
            let at = markers.trailing_zeros() as usize;
            end = offset + at;
            inside = low_bits(at);
        }
        let keep = inside & !(ff << 1 | stuffed);
        // SAFETY: at most `offset` bytes were kept before, so that 64 more fit what was reserved.
        unsafe {
            let kept = _mm512_maskz_compress_epi8(keep, v);
            _mm512_storeu_si512(out.as_mut_ptr().add(length).cast(), kept);
        }
        length += keep.count_ones() as usize;
        if markers != 0 {
            break;
        }
        stuffed = ff >> 63;
    }
    // SAFETY: the bytes up to `length` were written.
    unsafe { out.set_len(length) };
    end
}
