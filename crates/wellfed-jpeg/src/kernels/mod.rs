//! Arithmetic on slices: inverse DCT, upsampling, colour conversion, unstuffing.
//!
//! Every kernel is a safe function that takes a [`Level`], checks the lengths of its slices once and then runs
//! the code of that level. The scalar code is the oracle: all levels give its bits for all inputs.

#[cfg(test)]
mod bench;
mod color;
mod idct;
#[cfg(test)]
mod tests;
mod unpack;
mod unstuff;
mod upsample;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::sync::OnceLock;

use crate::Level;

pub(crate) use color::{interleave3, interleave4, ycc_to_interleaved, ycc_to_planar, ycck_to_cmyk};
pub(crate) use idct::{fast_multipliers, idct, idct_fast, idct_scaled};
#[cfg(test)]
pub(crate) use unpack::unpack;
pub(crate) use unpack::{HEAD, Head, RUN, Run, unpack_fast, unpack_idct, unpack_scaled};
pub(crate) use unstuff::unstuff;
pub(crate) use upsample::{h1v2, h2v1, h2v2, repeat};

/// Number of coefficients in a group: four horizontally neighbouring blocks of 8x8.
pub(crate) const GROUP: usize = 256;

/// `level` if the processor has it, else [`Level::Scalar`]: what makes the dispatch of every kernel sound.
#[inline]
fn supported(level: Level) -> Level {
    static AVAILABLE: OnceLock<u8> = OnceLock::new();
    let available = AVAILABLE.get_or_init(|| Level::available().fold(0, |mask, l| mask | 1 << l as u8));
    if available >> level as u8 & 1 == 1 { level } else { Level::Scalar }
}
