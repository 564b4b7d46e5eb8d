//! The inverse DCT of one block at a time, a row in a 128-bit vector.

use std::arch::aarch64::*;

use super::constants::*;
use crate::kernels::GROUP;

/// # Safety
/// The features must be available, `groups` be whole groups and `out` hold eight rows of 32 samples a group.
#[target_feature(enable = "neon")]
pub(super) unsafe fn idct(groups: &mut [i16], quant: &[u16; 64], out: &mut [u8], stride: usize) {
    for (g, group) in groups.chunks_exact_mut(GROUP).enumerate() {
        for b in 0..4 {
            // SAFETY: a group is eight rows of four times eight coefficients; the caller promises 32 samples a
            // group in each of eight rows.
            unsafe {
                block(group.as_mut_ptr().add(b * 8), quant, out.as_mut_ptr().add(g * 32 + b * 8), stride)
            };
        }
    }
}

/// # Safety
/// The features must be available. Eight coefficients in each of eight rows, 32 apart, can be read and written at `block`, and eight bytes in each
/// of eight rows, `stride` apart, be written at `out`.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn block(block: *mut i16, quant: &[u16; 64], out: *mut u8, stride: usize) {
    let zero = vdupq_n_s16(0);
    let mut rows = [zero; 8];
    let mut below = zero;
    for (r, q) in quant.as_chunks::<8>().0.iter().enumerate() {
        // SAFETY: as the caller promises; a row of the table is eight numbers.
        let (row, q) = unsafe { (vld1q_s16(block.add(r * 32)), vld1q_u16(q.as_ptr())) };
        // SAFETY: as the caller promises.
        unsafe { vst1q_s16(block.add(r * 32), zero) };
        below = if r > 0 { vorrq_s16(below, row) } else { below };
        rows[r] = vmulq_s16(row, vreinterpretq_s16_u16(q));
    }
    let columns = if vmaxvq_u16(vreinterpretq_u16_s16(below)) == 0 {
        // The shortcut: what `pass` gives, but it wraps where `pass` saturates.
        [vshlq_n_s16::<2>(rows[0]); 8]
    } else {
        pass::<11>(rows)
    };
    let samples = transpose(pass::<18>(transpose(columns)));
    for (r, &row) in samples.iter().enumerate() {
        let row = veor_u8(vreinterpret_u8_s8(vqmovn_s16(row)), vdup_n_u8(0x80));
        // SAFETY: as the caller promises.
        unsafe { vst1_u8(out.add(r * stride), row) };
    }
}

/// One-dimensional transforms of the eight columns, rounded and shifted right by `SHIFT`, saturated to 16 bits.
#[inline]
#[target_feature(enable = "neon")]
fn pass<const SHIFT: i32>(x: [int16x8_t; 8]) -> [int16x8_t; 8] {
    let sum = vaddq_s16(x[0], x[4]);
    let difference = vsubq_s16(x[0], x[4]);
    let z3 = vaddq_s16(x[7], x[3]);
    let z4 = vaddq_s16(x[5], x[1]);
    // Four columns; `$half` takes them out of a vector.
    macro_rules! four {
        ($half:ident) => {{
            // Sums of products with constants.
            let dot2 = |a, ca, b, cb| vmlal_n_s16(vmull_n_s16($half(a), ca), $half(b), cb);
            let dot3 = |start, a, ca, b, cb| vmlal_n_s16(vmlal_n_s16(start, $half(a), ca), $half(b), cb);
            let rounding = vdupq_n_s32(1 << (SHIFT - 1));
            let even0 = vaddq_s32(vshll_n_s16::<13>($half(sum)), rounding);
            let even1 = vaddq_s32(vshll_n_s16::<13>($half(difference)), rounding);
            let even2 = dot2(x[2], F_0_541, x[6], F_0_541 - F_1_847);
            let even3 = dot2(x[2], F_0_541 + F_0_765, x[6], F_0_541);
            let even = [
                vaddq_s32(even0, even3),
                vaddq_s32(even1, even2),
                vsubq_s32(even1, even2),
                vsubq_s32(even0, even3),
            ];
            let odd3 = dot2(z3, F_1_175 - F_1_961, z4, F_1_175);
            let odd4 = dot2(z3, F_1_175, z4, F_1_175 - F_0_390);
            let odd = [
                dot3(odd4, x[7], -F_0_899, x[1], F_1_501 - F_0_899),
                dot3(odd3, x[5], -F_2_562, x[3], F_3_072 - F_2_562),
                dot3(odd4, x[5], F_2_053 - F_2_562, x[3], -F_2_562),
                dot3(odd3, x[7], F_0_298 - F_0_899, x[1], -F_0_899),
            ];
            let narrow = |v| vqmovn_s32(vshrq_n_s32::<SHIFT>(v));
            [
                narrow(vaddq_s32(even[0], odd[0])),
                narrow(vaddq_s32(even[1], odd[1])),
                narrow(vaddq_s32(even[2], odd[2])),
                narrow(vaddq_s32(even[3], odd[3])),
                narrow(vsubq_s32(even[3], odd[3])),
                narrow(vsubq_s32(even[2], odd[2])),
                narrow(vsubq_s32(even[1], odd[1])),
                narrow(vsubq_s32(even[0], odd[0])),
            ]
        }};
    }
    let (low, high) = (four!(vget_low_s16), four!(vget_high_s16));
    let mut out = x;
    for k in 0..8 {
        out[k] = vcombine_s16(low[k], high[k]);
    }
    out
}

#[inline]
#[target_feature(enable = "neon")]
fn transpose(m: [int16x8_t; 8]) -> [int16x8_t; 8] {
    // Swaps blocks of one, then two, then four elements across the diagonal.
    let mut a = m;
    for i in [0, 2, 4, 6] {
        a[i] = vtrn1q_s16(m[i], m[i + 1]);
        a[i + 1] = vtrn2q_s16(m[i], m[i + 1]);
    }
    let mut b = a;
    for i in [0, 1, 4, 5] {
        let (x, y) = (vreinterpretq_s32_s16(a[i]), vreinterpretq_s32_s16(a[i + 2]));
        b[i] = vreinterpretq_s16_s32(vtrn1q_s32(x, y));
        b[i + 2] = vreinterpretq_s16_s32(vtrn2q_s32(x, y));
    }
    let mut c = b;
    for i in 0..4 {
        let (x, y) = (vreinterpretq_s64_s16(b[i]), vreinterpretq_s64_s16(b[i + 4]));
        c[i] = vreinterpretq_s16_s64(vtrn1q_s64(x, y));
        c[i + 4] = vreinterpretq_s16_s64(vtrn2q_s64(x, y));
    }
    c
}
