//! Removal of byte stuffing from entropy-coded data (ITU-T T.81, F.1.2.3), with a map between the two positions.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;

use super::supported;
use crate::Level;

/// Number of source bytes between two marks.
pub(crate) const CHUNK: usize = 64;

/// Appends the entropy-coded bytes at the start of `src` to `out`, without the 00 that follows each FF, and returns
/// the offset of the first FF of the marker that ends them, or `src.len()`.
///
/// An FF followed by anything but 00 ends the data: also one followed by FF (a fill byte before a marker), and one
/// that is the last byte. For each i with `64 * i <= end` and `64 * i < src.len()`, `end` being what is returned, the
/// length that `out` had when offset `64 * i` was reached is appended to `marks`; where that offset is a stuffed 00,
/// the FF before it counts as written. Bytes between `out`'s length and its capacity may be overwritten.
pub(crate) fn unstuff(level: Level, src: &[u8], out: &mut Vec<u8>, marks: &mut Vec<u32>) -> usize {
    marks.reserve(src.len().div_ceil(CHUNK));
    match supported(level) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level is supported, and the lengths were checked.
        Level::Avx512 => unsafe { avx512::unstuff(src, out, marks) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level is supported, and the lengths were checked.
        Level::Avx2 => unsafe { avx2::unstuff(src, out, marks) },
        #[cfg(target_arch = "aarch64")]
        // SAFETY: the level is supported, and the lengths were checked.
        Level::Neon => unsafe { neon::unstuff(src, out, marks) },
        _ => scalar::unstuff(src, 0, out, marks),
    }
}
