//! Colour conversion of 8 pixels at a time, interleaving of 16; what is left of a row goes to the scalar code.

use std::arch::aarch64::*;

use super::scalar;

/// R, G and B of 8 pixels.
#[inline]
#[target_feature(enable = "neon")]
fn convert(y: &[u8; 8], cb: &[u8; 8], cr: &[u8; 8]) -> uint8x8x3_t {
    // SAFETY: the arrays are 8 bytes long.
    let (y, cb, cr) = unsafe { (vld1_u8(y.as_ptr()), vld1_u8(cb.as_ptr()), vld1_u8(cr.as_ptr())) };
    let y = vreinterpretq_s16_u16(vmovl_u8(y));
    let center = vdup_n_u8(128);
    let cb = vreinterpretq_s16_u16(vsubl_u8(cb, center));
    let cr = vreinterpretq_s16_u16(vsubl_u8(cr, center));
    // The constants less a multiple of 2^16, so that they fit 16 bits; the multiple is added to the rounded result.
    let red = vcombine_s16(
        vrshrn_n_s32::<16>(vmull_n_s16(vget_low_s16(cr), 26345)),
        vrshrn_n_s32::<16>(vmull_n_s16(vget_high_s16(cr), 26345)),
    );
    let blue = vcombine_s16(
        vrshrn_n_s32::<16>(vmull_n_s16(vget_low_s16(cb), -14942)),
        vrshrn_n_s32::<16>(vmull_n_s16(vget_high_s16(cb), -14942)),
    );
    let green_low = vmlal_n_s16(vmull_n_s16(vget_low_s16(cb), -22554), vget_low_s16(cr), 18734);
    let green_high = vmlal_n_s16(vmull_n_s16(vget_high_s16(cb), -22554), vget_high_s16(cr), 18734);
    let green = vcombine_s16(vrshrn_n_s32::<16>(green_low), vrshrn_n_s32::<16>(green_high));
    uint8x8x3_t(
        vqmovun_s16(vaddq_s16(y, vaddq_s16(red, cr))),
        vqmovun_s16(vaddq_s16(y, vsubq_s16(green, cr))),
        vqmovun_s16(vaddq_s16(y, vaddq_s16(blue, vaddq_s16(cb, cb)))),
    )
}

/// # Safety
/// The features must be available.
#[target_feature(enable = "neon")]
pub(super) unsafe fn ycc_to_planar(y: &[u8], cb: &[u8], cr: &[u8], out: [&mut [u8]; 3]) {
    let [r, g, b] = out;
    let ((y, y_rest), (cb, cb_rest), (cr, cr_rest)) = (y.as_chunks(), cb.as_chunks(), cr.as_chunks());
    let ((r, r_rest), (g, g_rest), (b, b_rest)) =
        (r.as_chunks_mut::<8>(), g.as_chunks_mut::<8>(), b.as_chunks_mut::<8>());
    for (((y, cb), cr), ((r, g), b)) in y.iter().zip(cb).zip(cr).zip(r.iter_mut().zip(g).zip(b)) {
        let rgb = convert(y, cb, cr);
        // SAFETY: the arrays are 8 bytes long.
        unsafe {
            vst1_u8(r.as_mut_ptr(), rgb.0);
            vst1_u8(g.as_mut_ptr(), rgb.1);
            vst1_u8(b.as_mut_ptr(), rgb.2);
        }
    }
    scalar::ycc_to_planar(y_rest, cb_rest, cr_rest, [r_rest, g_rest, b_rest]);
}

/// # Safety
/// The features must be available.
#[target_feature(enable = "neon")]
pub(super) unsafe fn ycck_to_cmyk(y: &[u8], cb: &[u8], cr: &[u8], out: [&mut [u8]; 3]) {
    let [c, m, k] = out;
    // SAFETY: as the caller promises.
    unsafe { ycc_to_planar(y, cb, cr, [&mut *c, &mut *m, &mut *k]) };
    for plane in [c, m, k] {
        plane.iter_mut().for_each(|x| *x = !*x);
    }
}

/// # Safety
/// The features must be available.
#[target_feature(enable = "neon")]
pub(super) unsafe fn ycc_to_interleaved(y: &[u8], cb: &[u8], cr: &[u8], out: &mut [u8]) {
    let ((y, y_rest), (cb, cb_rest), (cr, cr_rest)) = (y.as_chunks(), cb.as_chunks(), cr.as_chunks());
    let (pixels, rest) = out.split_at_mut(24 * y.len());
    for (((y, cb), cr), pixels) in y.iter().zip(cb).zip(cr).zip(pixels.as_chunks_mut::<24>().0) {
        // SAFETY: the array is 24 bytes long.
        unsafe { vst3_u8(pixels.as_mut_ptr(), convert(y, cb, cr)) };
    }
    scalar::ycc_to_interleaved(y_rest, cb_rest, cr_rest, rest);
}

/// # Safety
/// The features must be available.
#[target_feature(enable = "neon")]
pub(super) unsafe fn interleave3([r, g, b]: [&[u8]; 3], out: &mut [u8]) {
    let ((r, r_rest), (g, g_rest), (b, b_rest)) =
        (r.as_chunks::<16>(), g.as_chunks::<16>(), b.as_chunks::<16>());
    let (pixels, rest) = out.split_at_mut(48 * r.len());
    for (((r, g), b), pixels) in r.iter().zip(g).zip(b).zip(pixels.as_chunks_mut::<48>().0) {
        // SAFETY: the arrays are 16 and 48 bytes long.
        unsafe {
            let rgb = uint8x16x3_t(vld1q_u8(r.as_ptr()), vld1q_u8(g.as_ptr()), vld1q_u8(b.as_ptr()));
            vst3q_u8(pixels.as_mut_ptr(), rgb);
        }
    }
    scalar::interleave([r_rest, g_rest, b_rest], rest);
}

/// # Safety
/// The features must be available.
#[target_feature(enable = "neon")]
pub(super) unsafe fn interleave4([a, b, c, d]: [&[u8]; 4], out: &mut [u8]) {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<16>(), b.as_chunks::<16>());
    let ((c, c_rest), (d, d_rest)) = (c.as_chunks::<16>(), d.as_chunks::<16>());
    let (pixels, rest) = out.split_at_mut(64 * a.len());
    for ((((a, b), c), d), pixels) in a.iter().zip(b).zip(c).zip(d).zip(pixels.as_chunks_mut::<64>().0) {
        // SAFETY: the arrays are 16 and 64 bytes long.
        unsafe {
            let (a, b) = (vld1q_u8(a.as_ptr()), vld1q_u8(b.as_ptr()));
            let (c, d) = (vld1q_u8(c.as_ptr()), vld1q_u8(d.as_ptr()));
            vst4q_u8(pixels.as_mut_ptr(), uint8x16x4_t(a, b, c, d));
        }
    }
    scalar::interleave([a_rest, b_rest, c_rest, d_rest], rest);
}
