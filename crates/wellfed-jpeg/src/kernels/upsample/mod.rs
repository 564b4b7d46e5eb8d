//! Upsampling of one row: libjpeg's triangle filters ("fancy upsampling", `jdsample.c`) and replication.
//!
//! A sample of the output lies at a quarter of the distance between two inputs, so the nearer counts 3/4 and the
//! farther 1/4. Halves are rounded up and down alternately. Inputs of the horizontal filters have one more sample
//! at either end: the neighbour, or at the border of the image a copy of the outermost sample.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;

use super::supported;
use crate::Level;

/// Doubles a row: `src` of n + 2 samples (with neighbours) becomes `out` of 2n.
///
/// # Panics
/// If the lengths do not fit each other.
pub(crate) fn h2v1(level: Level, src: &[u8], out: &mut [u8]) {
    assert_eq!(out.len() + 4, 2 * src.len(), "n + 2 samples become 2n");
    match supported(level) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level is supported, and the lengths were checked.
        Level::Avx512 => unsafe { avx512::h2v1(src, out) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level is supported, and the lengths were checked.
        Level::Avx2 => unsafe { avx2::h2v1(src, out) },
        #[cfg(target_arch = "aarch64")]
        // SAFETY: the level is supported, and the lengths were checked.
        Level::Neon => unsafe { neon::h2v1(src, out) },
        _ => scalar::h2v1(src, out),
    }
}

/// Doubles in both directions, one output row: `near` and `far`, the nearer and the farther input row of n + 2
/// samples (with neighbours), become `out` of 2n.
///
/// # Panics
/// If the lengths do not fit each other.
pub(crate) fn h2v2(level: Level, near: &[u8], far: &[u8], out: &mut [u8]) {
    assert_eq!(near.len(), far.len(), "the rows have one length");
    assert_eq!(out.len() + 4, 2 * near.len(), "n + 2 samples become 2n");
    match supported(level) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level is supported, and the lengths were checked.
        Level::Avx512 => unsafe { avx512::h2v2(near, far, out) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level is supported, and the lengths were checked.
        Level::Avx2 => unsafe { avx2::h2v2(near, far, out) },
        #[cfg(target_arch = "aarch64")]
        // SAFETY: the level is supported, and the lengths were checked.
        Level::Neon => unsafe { neon::h2v2(near, far, out) },
        _ => scalar::h2v2(near, far, out),
    }
}

/// Doubles vertically, one output row of n samples; `upper` if it is the upper of the two that `near` gives (then
/// `far` is the row above `near`, else the row below).
///
/// # Panics
/// If the lengths differ.
pub(crate) fn h1v2(level: Level, near: &[u8], far: &[u8], upper: bool, out: &mut [u8]) {
    assert!(near.len() == far.len() && near.len() == out.len(), "the rows have one length");
    match supported(level) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level is supported, and the lengths were checked.
        Level::Avx512 => unsafe { avx512::h1v2(near, far, upper, out) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level is supported, and the lengths were checked.
        Level::Avx2 => unsafe { avx2::h1v2(near, far, upper, out) },
        #[cfg(target_arch = "aarch64")]
        // SAFETY: the level is supported, and the lengths were checked.
        Level::Neon => unsafe { neon::h1v2(near, far, upper, out) },
        _ => scalar::h1v2(near, far, upper, out),
    }
}

/// Repeats each sample `factor` times.
///
/// # Panics
/// If `out` is not `factor` times as long as `src`.
pub(crate) fn repeat(src: &[u8], factor: usize, out: &mut [u8]) {
    assert_eq!(src.len() * factor, out.len(), "each sample is repeated");
    scalar::repeat(src, factor, out);
}
