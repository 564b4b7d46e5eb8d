//! The last step of a sample: pixels to their place in the batch.
//!
//! [`write()`] crops, pads, flips, maps values ([`PointMap`]) and transposes to the batch's [`Layout`] in one
//! pass. Images that are resized take the same last step row by row from [`crate::resample`]. Every byte of
//! the slot is written, once; the slot needs no alignment.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod scalar;

use std::fmt;
use std::ops::Range;

use crate::image::{Layout, View};
use crate::level::Level;
use crate::points::PointMap;

/// What becomes of the pixels after crop or resize.
#[derive(Clone, Copy, Debug)]
pub struct Output<'a> {
    /// Mirror left and right.
    pub flip_h: bool,
    /// Mirror top and bottom.
    pub flip_v: bool,
    /// The function applied to each value; its channels are the image's.
    pub map: &'a PointMap,
    /// Order of the elements in the slot.
    pub layout: Layout,
}

impl<'a> Output<'a> {
    /// No flips.
    pub fn new(map: &'a PointMap, layout: Layout) -> Self {
        Self { flip_h: false, flip_v: false, map, layout }
    }

    /// Bytes of a slot that takes `height` x `width` pixels; `None` if that overflows.
    pub fn slot_len(&self, height: usize, width: usize) -> Option<usize> {
        height.checked_mul(width)?.checked_mul(self.map.channels())?.checked_mul(self.map.dtype().size())
    }
}

/// A rectangle that may reach outside the image: what lies outside is padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// First row; negative above the image.
    pub top: i64,
    /// First column; negative left of the image.
    pub left: i64,
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
}

impl Window {
    /// The whole of an image of this size.
    pub fn full(view: View<'_>) -> Self {
        Self { top: 0, left: 0, height: view.height(), width: view.width() }
    }
}

/// What lies outside the image, named as in `v2.functional.pad`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PadMode {
    /// One value a channel.
    Constant([u8; 4]),
    /// The nearest pixel of the image.
    Edge,
    /// Mirrored at the outermost pixels, which are not repeated. Repeats if the padding is larger than the
    /// image.
    Reflect,
    /// Mirrored at the image's border: the outermost pixels are repeated.
    Symmetric,
}

/// Why a kernel cannot do what was asked: configuration and sizes, never pixels.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GeometryError {
    /// A side of the output or of the window is zero.
    Empty,
    /// A side is longer than [`crate::resample::MAX_SIDE`].
    TooLarge {
        /// The side's length.
        side: usize,
    },
    /// The slot has the wrong size.
    Slot {
        /// Bytes needed.
        expected: usize,
        /// Bytes given.
        actual: usize,
    },
    /// The image and the [`PointMap`] have different numbers of channels.
    Channels {
        /// Channels of the image.
        image: usize,
        /// Channels of the map.
        map: usize,
    },
    /// The output window is not inside the output, or the source part not inside the source.
    Outside {
        /// `"window"` or `"source"`.
        what: &'static str,
        /// First row or column past it.
        end: usize,
        /// Rows or columns there are.
        limit: usize,
    },
    /// The part of the source that was given lacks rows or columns that the output needs.
    Missing {
        /// `"rows"` or `"columns"`.
        what: &'static str,
        /// First one needed.
        start: usize,
        /// One past the last one needed.
        end: usize,
    },
}

impl fmt::Display for GeometryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GeometryError::Empty => write!(f, "an image side of 0 pixels"),
            GeometryError::TooLarge { side } => write!(f, "an image side of {side} pixels is too long"),
            GeometryError::Slot { expected, actual } => {
                write!(f, "the image takes {expected} bytes, its place in the batch has {actual}")
            }
            GeometryError::Channels { image, map } => {
                write!(f, "the image has {image} channels, the transform is made for {map}")
            }
            GeometryError::Outside { what, end, limit } => {
                write!(f, "the {what} ends at {end}, past the image's {limit}")
            }
            GeometryError::Missing { what, start, end } => {
                write!(f, "resampling needs the source's {what} {start}..{end}, which are not all there")
            }
        }
    }
}

impl std::error::Error for GeometryError {}

/// Rows of pixels at equal distances, interleaved or planar: channel `c` of pixel `x` of row `r` is `data[r *
/// stride + x * pixel + c * plane]`. `pixel` is 1 (planar) or the number of channels, with `plane` 1
/// (interleaved).
#[derive(Clone, Copy)]
pub(crate) struct Band<'a> {
    pub(crate) data: &'a [u8],
    pub(crate) rows: usize,
    pub(crate) stride: usize,
    pub(crate) pixel: usize,
    pub(crate) plane: usize,
}

impl<'a> Band<'a> {
    pub(crate) fn interleaved(data: &'a [u8], rows: usize, stride: usize, channels: usize) -> Self {
        Self { data, rows, stride, pixel: channels, plane: 1 }
    }

    pub(crate) fn planar(data: &'a [u8], rows: usize, stride: usize, plane: usize) -> Self {
        Self { data, rows, stride, pixel: 1, plane }
    }
}

/// Slots from this many bytes on are stored past the caches if they are aligned to 64 bytes: batches of them
/// do not fit there anyway, and a store through the cache reads the memory first. 602 KB slots of a batch,
/// Zen 4: 63 us an image instead of 91 (`bench_kernels`, "cold").
const PAST: usize = 128 << 10;

/// A slot being filled, some rows at a time. Every row is `width` pixels.
pub(crate) struct Sink<'a> {
    level: Level,
    output: Output<'a>,
    height: usize,
    width: usize,
    slot: &'a mut [u8],
    past: bool,
}

impl<'a> Sink<'a> {
    /// Checks the slot's size and the channels; lowers `level` to what the processor has.
    pub(crate) fn new(
        level: Level,
        output: Output<'a>,
        (height, width): (usize, usize),
        channels: usize,
        slot: &'a mut [u8],
    ) -> Result<Self, GeometryError> {
        if height == 0 || width == 0 {
            return Err(GeometryError::Empty);
        }
        if channels != output.map.channels() {
            return Err(GeometryError::Channels { image: channels, map: output.map.channels() });
        }
        let expected =
            output.slot_len(height, width).ok_or(GeometryError::TooLarge { side: height.max(width) })?;
        if slot.len() != expected {
            return Err(GeometryError::Slot { expected, actual: slot.len() });
        }
        let past = slot.len() >= PAST;
        Ok(Self { level: level.supported(), output, height, width, slot, past })
    }

    /// Writes rows `y..y + band.rows` of the image before its flips.
    ///
    /// # Panics
    /// If a row of the band is shorter than `width` pixels, or the rows are not below the height.
    #[inline]
    pub(crate) fn band(&mut self, y: usize, band: Band<'_>) {
        if band.rows == 0 {
            return;
        }
        let channels = self.output.map.channels();
        let last =
            (band.rows - 1) * band.stride + (self.width - 1) * band.pixel + (channels - 1) * band.plane;
        assert!(last < band.data.len() && y + band.rows <= self.height, "rows of the image");
        let y = if self.output.flip_v { self.height - 1 - y } else { y };
        let past = self.past;
        let place = Place { slot: self.slot, y, height: self.height, width: self.width, past };
        match self.level {
            Level::Scalar => scalar::band(band, &self.output, place),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `new` lowered the level to what the processor has, the rows were checked above, and
            // `new` checked that the slot has exactly `height` rows of `width` pixels.
            Level::Avx2 => unsafe { avx2::band(band, &self.output, place) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Level::Avx512 => unsafe { avx512::band(band, &self.output, place) },
            #[cfg(not(target_arch = "x86_64"))]
            _ => scalar::band(band, &self.output, place),
        }
    }
}

#[cfg(target_arch = "x86_64")]
impl Drop for Sink<'_> {
    fn drop(&mut self) {
        if self.past && self.level == Level::Avx512 {
            // SAFETY: SSE is part of x86-64. Stores past the caches are not ordered with later ones; whoever
            // is told that the slot is full must see them.
            unsafe { std::arch::x86_64::_mm_sfence() };
        }
    }
}

/// Where rows go: the slot of `height` x `width` pixels, and the first row's place after flips. The next
/// one's is below it, or above it with `flip_v`.
pub(crate) struct Place<'a> {
    pub(crate) slot: &'a mut [u8],
    pub(crate) y: usize,
    pub(crate) height: usize,
    pub(crate) width: usize,
    /// Whether the slot is too large for its bytes to be read from a cache later.
    pub(crate) past: bool,
}

/// The image pixel that position `at` of a padded axis shows; `None` is the constant.
fn padded(at: i64, len: usize, pad: PadMode) -> Option<usize> {
    let n = len as i64;
    if (0..n).contains(&at) {
        return Some(at as usize);
    }
    match pad {
        PadMode::Constant(_) => None,
        PadMode::Edge => Some(at.clamp(0, n - 1) as usize),
        PadMode::Reflect => {
            let period = 2 * (n - 1).max(1);
            let at = at.rem_euclid(period);
            Some((if at < n { at } else { period - at }).min(n - 1) as usize)
        }
        PadMode::Symmetric => {
            let at = at.rem_euclid(2 * n);
            Some(if at < n { at } else { 2 * n - 1 - at } as usize)
        }
    }
}

/// Crops `window` out of `src` (padding what lies outside), flips it and writes it to `slot`: `window.height`
/// x `window.width` pixels of `output.map`'s channels and element type in `output.layout`, densely packed,
/// native byte order.
///
/// # Errors
/// If the window is empty or unreasonably far away, the channels differ, or the slot has another size.
pub fn write(
    src: View<'_>,
    window: Window,
    pad: PadMode,
    output: Output<'_>,
    slot: &mut [u8],
) -> Result<(), GeometryError> {
    write_at(Level::best(), src, window, pad, output, slot)
}

/// [`write()`] on a given instruction set, for tests and benchmarks.
///
/// # Errors
/// As [`write()`].
pub fn write_at(
    level: Level,
    src: View<'_>,
    window: Window,
    pad: PadMode,
    output: Output<'_>,
    slot: &mut [u8],
) -> Result<(), GeometryError> {
    const FAR: u64 = 1 << 40;
    let channels = src.channels();
    let mut sink = Sink::new(level, output, (window.height, window.width), channels, slot)?;
    if window.top.unsigned_abs() > FAR || window.left.unsigned_abs() > FAR {
        let far = window.top.unsigned_abs().max(window.left.unsigned_abs());
        return Err(GeometryError::TooLarge { side: far as usize });
    }
    let (rows, columns) =
        (inner(window.top, window.height, src.height()), inner(window.left, window.width, src.width()));
    let first = (window.left + columns.start as i64).max(0) as usize * channels;
    if rows.len() == window.height && columns.len() == window.width {
        let data = &src.data()[window.top as usize * src.stride() + first..];
        sink.band(0, Band::interleaved(data, window.height, src.stride(), channels));
        return Ok(());
    }
    // Some rows at a time are assembled with their padding.
    let bytes = window.width * channels;
    let at_once = (BAND_BYTES / bytes).clamp(1, window.height);
    let mut lines = vec![0; at_once * bytes];
    let beside: Vec<(usize, usize)> = match pad {
        PadMode::Constant(_) => Vec::new(),
        _ => (0..columns.start)
            .chain(columns.end..window.width)
            .filter_map(|x| Some((x, padded(window.left + x as i64, src.width(), pad)?)))
            .collect(),
    };
    for y in (0..window.height).step_by(at_once) {
        let count = at_once.min(window.height - y);
        let lines = &mut lines[..count * bytes];
        if let PadMode::Constant(value) = pad {
            constant(lines, &value[..channels]);
        }
        for (i, line) in lines.chunks_exact_mut(bytes).enumerate() {
            let Some(row) = padded(window.top + (y + i) as i64, src.height(), pad) else { continue };
            let row = src.row(row);
            if !columns.is_empty() {
                let inside = &mut line[columns.start * channels..columns.end * channels];
                inside.copy_from_slice(&row[first..first + inside.len()]);
            }
            for (to, from) in &beside {
                line[to * channels..][..channels].copy_from_slice(&row[from * channels..][..channels]);
            }
        }
        sink.band(y, Band::interleaved(lines, count, bytes, channels));
    }
    Ok(())
}

/// Rows with padding are assembled in about this many bytes, to stay in the first-level cache.
const BAND_BYTES: usize = 8192;

/// The positions of a window of `len` from `start` on that lie inside an image side of `side`.
fn inner(start: i64, len: usize, side: usize) -> Range<usize> {
    let begin = (-start).clamp(0, len as i64);
    let end = (side as i64 - start).clamp(begin, len as i64);
    begin as usize..end as usize
}

/// Fills `lines` with copies of one pixel.
fn constant(lines: &mut [u8], pixel: &[u8]) {
    if pixel.iter().all(|v| *v == pixel[0]) {
        lines.fill(pixel[0]);
    } else {
        for to in lines.chunks_exact_mut(pixel.len()) {
            to.copy_from_slice(pixel);
        }
    }
}
