//! Unstuffing of 16 bytes at a time, each vector starting where the one before stopped at a stuffed FF.

use std::arch::aarch64::*;

use super::{CHUNK, scalar};

/// # Safety
/// The features must be available.
#[target_feature(enable = "neon")]
pub(super) unsafe fn unstuff(src: &[u8], out: &mut Vec<u8>, marks: &mut Vec<u32>) -> usize {
    // Each vector is stored whole: 16 bytes, of which only those kept count.
    out.reserve(src.len());
    let mut length = out.len();
    let mut offset = 0;
    let mut next_mark = 0;
    let mut end = None;
    while let Some(chunk) = src[offset..].first_chunk::<18>() {
        // SAFETY: the array is longer than 16 bytes, and as many were reserved from `length` on, because no more
        // was kept than read.
        let ff = unsafe {
            let v = vld1q_u8(chunk.as_ptr());
            vst1q_u8(out.as_mut_ptr().add(length), v);
            vceqq_u8(v, vdupq_n_u8(0xFF))
        };
        // Four bits a byte.
        let ff = vshrn_n_u16::<4>(vreinterpretq_u16_u8(ff));
        let ff = vget_lane_u64::<0>(vreinterpret_u64_u8(ff));
        let (mut kept, mut read) = (16, 16);
        if ff != 0 {
            let at = (ff.trailing_zeros() / 4) as usize;
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
