//! Dequantization and inverse DCT of a block row, as libjpeg-turbo computes them.
//!
//! The transform is the accurate integer one (`jidctint`, after Loeffler, Ligtenberg and Moschytz, ICASSP 1989)
//! with 13-bit constants and two extra bits between the passes. What libjpeg-turbo's AVX2 code does with
//! coefficients that no encoder writes is part of the contract: 16-bit products and sums wrap, results of the
//! first pass saturate to 16 bits, and a block whose rows 1 to 7 are zero takes a shortcut that wraps instead.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
pub(super) mod avx512;
pub(super) mod fast;
#[cfg(target_arch = "x86_64")]
mod fast_avx2;
#[cfg(target_arch = "x86_64")]
mod fast_avx512;
#[cfg(target_arch = "x86_64")]
mod fast_x86;
#[cfg(target_arch = "aarch64")]
mod neon;
pub(super) mod scalar;
mod scaled;

use super::{GROUP, supported};
use crate::Level;
pub(crate) use fast::{fast_multipliers, idct_fast};

/// Fixed-point constants with 13 fractional bits, named after their values.
pub(super) mod constants {
    pub(super) const F_0_298: i16 = 2446;
    pub(super) const F_0_390: i16 = 3196;
    pub(super) const F_0_541: i16 = 4433;
    pub(super) const F_0_765: i16 = 6270;
    pub(super) const F_0_899: i16 = 7373;
    pub(super) const F_1_175: i16 = 9633;
    pub(super) const F_1_501: i16 = 12299;
    pub(super) const F_1_847: i16 = 15137;
    pub(super) const F_1_961: i16 = 16069;
    pub(super) const F_2_053: i16 = 16819;
    pub(super) const F_2_562: i16 = 20995;
    pub(super) const F_3_072: i16 = 25172;
}

/// Transforms a block row: `groups` of 256 coefficients (row r, column c of block b at `r * 32 + b * 8 + c`, not
/// dequantized) become eight rows of 32 samples a group, row r at `out[r * stride..]`; `quant` is in natural
/// order. The groups are left zeroed.
///
/// # Panics
/// If `groups` is not whole groups, or `out` is too short for eight rows at `stride`.
pub(crate) fn idct(level: Level, groups: &mut [i16], quant: &[u16; 64], out: &mut [u8], stride: usize) {
    check(groups, 8, out, stride);
    match supported(level) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level is supported, and the lengths were checked.
        Level::Avx512 => unsafe { avx512::idct(groups, quant, out, stride) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level is supported, and the lengths were checked.
        Level::Avx2 => unsafe { avx2::idct(groups, quant, out, stride) },
        #[cfg(target_arch = "aarch64")]
        // SAFETY: the level is supported, and the lengths were checked.
        Level::Neon => unsafe { neon::idct(groups, quant, out, stride) },
        _ => scalar::idct(groups, quant, out, stride),
    }
}

/// Transforms a block row at reduced size: each block becomes `size` x `size` samples, `size` being 4, 2 or 1
/// (libjpeg's `jidctred`), so that a group becomes `size` rows of `4 * size` samples. The groups are left zeroed.
///
/// # Panics
/// If `size` is none of these, `groups` is not whole groups, or `out` is too short for the rows at `stride`.
pub(crate) fn idct_scaled(
    _level: Level,
    groups: &mut [i16],
    quant: &[u16; 64],
    size: usize,
    out: &mut [u8],
    stride: usize,
) {
    assert!(matches!(size, 1 | 2 | 4), "a block is reduced to 4, 2 or 1 samples a side");
    check(groups, size, out, stride);
    scaled::idct(groups, quant, size, out, stride);
}

fn check(groups: &[i16], size: usize, out: &[u8], stride: usize) {
    assert!(groups.len().is_multiple_of(GROUP), "coefficients come in whole groups");
    let width = groups.len() / GROUP * 4 * size;
    let needed = stride.checked_mul(size - 1).and_then(|n| n.checked_add(width));
    assert!(stride >= width && needed.is_some_and(|n| n <= out.len()), "the rows fit the output");
}
