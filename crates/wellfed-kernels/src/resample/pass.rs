//! One pass over some rows, on the instruction set asked for.

use std::ops::Range;

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
    axis: &'a Axis,
    first: usize,
    width: usize,
    /// The source column that rows begin with, and how many they have: all that the samples need.
    column: usize,
    columns: usize,
}

impl<'a> Across<'a> {
    /// Samples `range`, which is not empty, from rows of the columns `source`: [`Axis::source`] of the range.
    pub(super) fn new(axis: &'a Axis, range: Range<usize>, source: &Range<usize>) -> Self {
        debug_assert_eq!(axis.source(range.clone()), *source);
        Self { axis, first: range.start, width: range.len(), column: source.start, columns: source.len() }
    }

    pub(super) fn axis(&self) -> &'a Axis {
        self.axis
    }

    pub(super) fn first(&self) -> usize {
        self.first
    }

    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub(super) fn width(&self) -> usize {
        self.width
    }

    pub(super) fn column(&self) -> usize {
        self.column
    }

    /// Columns that a row must have so that vectors can be loaded whole from inside it.
    pub(super) fn wide(&self, level: Level) -> usize {
        match level {
            Level::Scalar => 0,
            Level::Avx2 => 16,
            Level::Avx512 if self.axis.spans()[2] + 4 <= 64 => 64,
            Level::Avx512 => WIDE,
        }
    }
}

/// The largest [`Across::wide`].
pub(super) const WIDE: usize = 128;

/// Rows of a horizontal pass: `rows` rows of `width` bytes in each of `channels` planes, and where row `i` of
/// plane `c` goes, `i * to_stride + c * to_plane` after `to`.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
#[derive(Clone, Copy)]
pub(super) struct Run {
    pub(super) planes: [*const u8; 4],
    pub(super) channels: usize,
    pub(super) rows: usize,
    pub(super) width: usize,
    pub(super) stride: usize,
    pub(super) to: *mut u8,
    pub(super) to_stride: usize,
    pub(super) to_plane: usize,
}

/// The horizontal pass over all rows of planar `src`. Row `i` of the result has its planes, `pass.width()` bytes
/// each, one after the other at `i * stride` of `dst`.
///
/// # Panics
/// If `src` is interleaved, has fewer columns than the pass needs or [`Across::wide`] says, or `dst` is too short.
pub(super) fn across(level: Level, pass: &Across<'_>, src: Pixels<'_>, dst: &mut [u8], stride: usize) {
    let (width, channels) = (pass.width, src.channels);
    assert!(src.pixel == 1 && src.width >= pass.columns.max(pass.wide(level)), "rows of planes");
    let used = (src.height - 1) * src.stride + src.width;
    assert!(src.planes[..channels].iter().all(|plane| used <= plane.len()), "planes hold their rows");
    assert!(channels * width <= stride && (src.height - 1) * stride + channels * width <= dst.len());
    if level == Level::Scalar {
        for y in 0..src.height {
            for c in 0..channels {
                scalar::across(pass, src.line(c, y), &mut dst[y * stride + c * width..][..width]);
            }
        }
        return;
    }
    let run = Run {
        planes: src.planes.map(<[u8]>::as_ptr),
        channels,
        rows: src.height,
        width: src.width,
        stride: src.stride,
        to: dst.as_mut_ptr(),
        to_stride: stride,
        to_plane: width,
    };
    // SAFETY: `Resizer` holds no level that the processor lacks. Rows and their places were checked above.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        match level {
            Level::Avx512 => avx512::across(pass, &run),
            _ => avx2::across(pass, &run),
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = run;
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
