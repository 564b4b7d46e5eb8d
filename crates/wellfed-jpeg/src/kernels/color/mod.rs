//! Colour conversion of one row, and interleaving of planes (libjpeg's `jdcolor.c`).
//!
//! With cb and cr less 128, R = y + 1.402 cr, G = y - 0.34414 cb - 0.71414 cr, B = y + 1.772 cb; the constants
//! have 16 fractional bits, each sum of products is rounded once (half up) and then added to y and clamped.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;

use super::supported;
use crate::Level;

/// Converts YCbCr to planes of R, G and B.
///
/// # Panics
/// If the rows differ in length.
pub(crate) fn ycc_to_planar(level: Level, y: &[u8], cb: &[u8], cr: &[u8], out: [&mut [u8]; 3]) {
    check(y, cb, cr, &out);
    match supported(level) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level is supported, and the lengths were checked.
        Level::Avx512 => unsafe { avx512::ycc_to_planar(y, cb, cr, out) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level is supported, and the lengths were checked.
        Level::Avx2 => unsafe { avx2::ycc_to_planar(y, cb, cr, out) },
        #[cfg(target_arch = "aarch64")]
        // SAFETY: the level is supported, and the lengths were checked.
        Level::Neon => unsafe { neon::ycc_to_planar(y, cb, cr, out) },
        _ => scalar::ycc_to_planar(y, cb, cr, out),
    }
}

/// Converts YCbCr to interleaved RGB, three bytes a pixel.
///
/// # Panics
/// If the rows differ in length, or `out` is not three times as long.
pub(crate) fn ycc_to_interleaved(level: Level, y: &[u8], cb: &[u8], cr: &[u8], out: &mut [u8]) {
    assert!(cb.len() == y.len() && cr.len() == y.len() && out.len() == 3 * y.len(), "the lengths fit");
    match supported(level) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level is supported, and the lengths were checked.
        Level::Avx512 => unsafe { avx512::ycc_to_interleaved(y, cb, cr, out) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level is supported, and the lengths were checked.
        Level::Avx2 => unsafe { avx2::ycc_to_interleaved(y, cb, cr, out) },
        #[cfg(target_arch = "aarch64")]
        // SAFETY: the level is supported, and the lengths were checked.
        Level::Neon => unsafe { neon::ycc_to_interleaved(y, cb, cr, out) },
        _ => scalar::ycc_to_interleaved(y, cb, cr, out),
    }
}

/// Converts the colours of YCCK to planes of C, M and Y, each 255 less what [`ycc_to_planar`] gives; K needs no
/// conversion.
///
/// # Panics
/// If the rows differ in length.
pub(crate) fn ycck_to_cmyk(level: Level, y: &[u8], cb: &[u8], cr: &[u8], out: [&mut [u8]; 3]) {
    check(y, cb, cr, &out);
    match supported(level) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level is supported, and the lengths were checked.
        Level::Avx512 => unsafe { avx512::ycck_to_cmyk(y, cb, cr, out) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level is supported, and the lengths were checked.
        Level::Avx2 => unsafe { avx2::ycck_to_cmyk(y, cb, cr, out) },
        #[cfg(target_arch = "aarch64")]
        // SAFETY: the level is supported, and the lengths were checked.
        Level::Neon => unsafe { neon::ycck_to_cmyk(y, cb, cr, out) },
        _ => scalar::ycck_to_cmyk(y, cb, cr, out),
    }
}

/// Interleaves three planes.
///
/// # Panics
/// If the rows differ in length, or `out` is not three times as long.
pub(crate) fn interleave3(level: Level, planes: [&[u8]; 3], out: &mut [u8]) {
    assert!(planes.iter().all(|p| 3 * p.len() == out.len()), "the lengths fit");
    match supported(level) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level is supported, and the lengths were checked.
        Level::Avx512 => unsafe { avx512::interleave3(planes, out) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level is supported, and the lengths were checked.
        Level::Avx2 => unsafe { avx2::interleave3(planes, out) },
        #[cfg(target_arch = "aarch64")]
        // SAFETY: the level is supported, and the lengths were checked.
        Level::Neon => unsafe { neon::interleave3(planes, out) },
        _ => scalar::interleave(planes, out),
    }
}

/// Interleaves four planes.
///
/// # Panics
/// If the rows differ in length, or `out` is not four times as long.
pub(crate) fn interleave4(level: Level, planes: [&[u8]; 4], out: &mut [u8]) {
    assert!(planes.iter().all(|p| 4 * p.len() == out.len()), "the lengths fit");
    match supported(level) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level is supported, and the lengths were checked.
        Level::Avx512 => unsafe { avx512::interleave4(planes, out) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level is supported, and the lengths were checked.
        Level::Avx2 => unsafe { avx2::interleave4(planes, out) },
        #[cfg(target_arch = "aarch64")]
        // SAFETY: the level is supported, and the lengths were checked.
        Level::Neon => unsafe { neon::interleave4(planes, out) },
        _ => scalar::interleave(planes, out),
    }
}

fn check(y: &[u8], cb: &[u8], cr: &[u8], out: &[&mut [u8]; 3]) {
    let n = y.len();
    assert!(cb.len() == n && cr.len() == n && out.iter().all(|p| p.len() == n), "the rows have one length");
}
