//! The filters on 8 input samples at a time; what is left of a row goes to the scalar code.

use std::arch::aarch64::*;

use super::scalar;

/// Eight samples from `i` on.
#[inline]
#[target_feature(enable = "neon")]
fn load(src: &[u8], i: usize) -> uint8x8_t {
    let src: &[u8; 8] = src[i..].first_chunk().expect("8 samples are there");
    // SAFETY: the array is 8 bytes long.
    unsafe { vld1_u8(src.as_ptr()) }
}

/// Stores eight pairs.
#[inline]
#[target_feature(enable = "neon")]
fn store_pairs(out: &mut [u8; 16], first: uint8x8_t, second: uint8x8_t) {
    // SAFETY: the array is 16 bytes long.
    unsafe { vst2_u8(out.as_mut_ptr(), uint8x8x2_t(first, second)) };
}

/// # Safety
/// The features must be available.
#[target_feature(enable = "neon")]
pub(super) unsafe fn h2v1(src: &[u8], out: &mut [u8]) {
    let (whole, rest) = out.as_chunks_mut();
    let done = whole.len() * 8;
    for (i, out) in whole.iter_mut().enumerate() {
        let (left, center, right) = (load(src, i * 8), load(src, i * 8 + 1), load(src, i * 8 + 2));
        let first = vmlal_u8(vaddl_u8(left, vdup_n_u8(1)), center, vdup_n_u8(3));
        let second = vmlal_u8(vaddl_u8(right, vdup_n_u8(2)), center, vdup_n_u8(3));
        store_pairs(out, vshrn_n_u16::<2>(first), vshrn_n_u16::<2>(second));
    }
    scalar::h2v1(&src[done..], rest);
}

/// # Safety
/// The features must be available.
#[target_feature(enable = "neon")]
pub(super) unsafe fn h2v2(near: &[u8], far: &[u8], out: &mut [u8]) {
    let (whole, rest) = out.as_chunks_mut();
    let done = whole.len() * 8;
    for (i, out) in whole.iter_mut().enumerate() {
        let down = |i| vmlal_u8(vmovl_u8(load(far, i)), load(near, i), vdup_n_u8(3));
        let (left, center, right) = (down(i * 8), down(i * 8 + 1), down(i * 8 + 2));
        let first = vaddq_u16(vmlaq_n_u16(left, center, 3), vdupq_n_u16(8));
        let second = vaddq_u16(vmlaq_n_u16(right, center, 3), vdupq_n_u16(7));
        store_pairs(out, vshrn_n_u16::<4>(first), vshrn_n_u16::<4>(second));
    }
    scalar::h2v2(&near[done..], &far[done..], rest);
}

/// # Safety
/// The features must be available.
#[target_feature(enable = "neon")]
pub(super) unsafe fn h1v2(near: &[u8], far: &[u8], upper: bool, out: &mut [u8]) {
    let bias = vdup_n_u8(if upper { 1 } else { 2 });
    let (whole, rest) = out.as_chunks_mut::<8>();
    let done = whole.len() * 8;
    for (i, out) in whole.iter_mut().enumerate() {
        let sum = vmlal_u8(vaddl_u8(load(far, i * 8), bias), load(near, i * 8), vdup_n_u8(3));
        // SAFETY: the array is 8 bytes long.
        unsafe { vst1_u8(out.as_mut_ptr(), vshrn_n_u16::<2>(sum)) };
    }
    scalar::h1v2(&near[done..], &far[done..], upper, rest);
}
