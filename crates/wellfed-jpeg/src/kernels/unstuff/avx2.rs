//! Unstuffing of 32 bytes at a time, each vector starting where the one before stopped at a stuffed FF.

use std::arch::x86_64::*;

use super::{CHUNK, scalar};

/// # Safety
/// The features must be available.
#[target_feature(enable = "avx2,bmi1")]
pub(super) unsafe fn unstuff(src: &[u8], out: &mut Vec<u8>, marks: &mut Vec<u32>) -> usize {
    // Each vector is stored whole: 32 bytes, of which only those kept count.
    out.reserve(src.len());
    let mut length = out.len();
    let mut offset = 0;
    let mut next_mark = 0;
    let mut end = None;
    while let Some(chunk) = src[offset..].first_chunk::<34>() {
        // SAFETY: the array is longer than 32 bytes, and as many were reserved from `length` on, because no more
        // was kept than read.
        let ff = unsafe {
            let v = _mm256_loadu_si256(chunk.as_ptr().cast());
            _mm256_storeu_si256(out.as_mut_ptr().add(length).cast(), v);
            _mm256_movemask_epi8(_mm256_cmpeq_epi8(v, _mm256_set1_epi8(-1))) as u32
        };
        let (mut kept, mut read) = (32, 32);
        if ff != 0 {
            let at = ff.trailing_zeros() as usize;
            if chunk[at + 1] != 0 {
                end = Some(offset + at);
                (kept, read) = (at, at + 1);
            } else {
                (kept, read) = (at + 1, at + 2);
            }
        }
        if next_mark < offset + read {
            marks.push((length + (next_mark - offset).min(kept)) as u32);
            next_mark += CHUNK;
        }
        length += kept;
        offset += read;
        if end.is_some() {
            break;
        }
    }
    // SAFETY: the bytes up to `length` were written.
    unsafe { out.set_len(length) };
    end.unwrap_or_else(|| scalar::unstuff(src, offset, out, marks))
}
