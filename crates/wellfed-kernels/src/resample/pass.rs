//! One pass over some rows, on the instruction set asked for.

use super::axis::Axis;
use super::scalar;
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};
use crate::image::Pixels;
use crate::level::Level;

/// Rows of bytes by their number: some in a ring, those from `first` on at equal distances.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    /// Row `i` before `first` lies at `i % count * step`.
    pub(super) ring: &'a [u8],
    pub(super) count: usize,
    pub(super) step: usize,
    pub(super) first: usize,
    pub(super) data: &'a [u8],
    pub(super) stride: usize,
}

impl<'a> Rows<'a> {
    /// The first `len` bytes of row `i`.
    #[inline]
    pub(super) fn row(&self, i: usize, len: usize) -> &'a [u8] {
        if i < self.first {
            &self.ring[i % self.count * self.step..][..len]
        } else {
            &self.data[(i - self.first) * self.stride..][..len]
        }
    }
}

/// A horizontal pass: `width` output samples of `axis` from `first` on.
#[derive(Clone, Copy)]
pub(crate) struct Across<'a> {
    pub(super) axis: &'a Axis,
    pub(super) first: usize,
    pub(super) width: usize,
    /// The source column that rows begin with.
    pub(super) column: usize,
}

/// Columns that a row should have for the horizontal pass: vectors are loaded whole. Shorter ones are copied.
pub(super) const WIDE: usize = 128;

/// The horizontal pass over all rows of planar `src`. Row `i` of the result has its planes, `pass.width` bytes
/// each, one after the other at `i * stride` of `dst`.
///
/// # Panics
/// If `src` is interleaved, lacks columns that the pass needs, or `dst` is too short.
pub(super) fn across(level: Level, pass: &Across<'_>, src: Pixels<'_>, dst: &mut [u8], stride: usize) {
    assert!(
        src.pixel == 1
            && pass.axis.source(pass.first..pass.first + pass.width).end <= pass.column + src.width
    );
    assert!((src.height - 1) * stride + src.channels * pass.width <= dst.len());
    for y in 0..src.height {
        for c in 0..src.channels {
            scalar::across(pass, src.line(c, y), &mut dst[y * stride + c * pass.width..][..pass.width]);
        }
    }
    let _ = level;
}

/// One row of the vertical pass: output row `y` of `axis`, `dst.len()` bytes from rows of `src`.
pub(super) fn down(level: Level, axis: &Axis, y: usize, src: Rows<'_>, dst: &mut [u8]) {
    match level {
        Level::Scalar => scalar::down(axis, y, src, dst),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `Resizer` holds no level that the processor lacks.
        Level::Avx2 => unsafe { avx2::down(axis, y, src, dst) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Level::Avx512 => unsafe { avx512::down(axis, y, src, dst) },
        #[cfg(not(target_arch = "x86_64"))]
        _ => scalar::down(axis, y, src, dst),
    }
}
