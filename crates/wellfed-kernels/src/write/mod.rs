//! The last step of a sample: pixels to their place in the batch.
//!
//! [`write()`] crops, pads, flips, maps values ([`PointMap`]) and transposes to the batch's [`Layout`] in one pass. Images
//! that are resized take the same last step row by row from [`crate::resample`]. Every byte of the slot is written,
//! once; the slot needs no alignment.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod scalar;

use std::fmt;

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
    /// Mirrored at the outermost pixels, which are not repeated. Repeats if the padding is larger than the image.
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

/// One row of pixels, interleaved or planar: channel `c` of pixel `x` is `data[x * pixel + c * plane]`.
/// `pixel` is 1 (planar) or the number of channels, with `plane` 1 (interleaved).
#[derive(Clone, Copy)]
pub(crate) struct Row<'a> {
    pub(crate) data: &'a [u8],
    pub(crate) pixel: usize,
    pub(crate) plane: usize,
}

impl<'a> Row<'a> {
    pub(crate) fn interleaved(data: &'a [u8], channels: usize) -> Self {
        Self { data, pixel: channels, plane: 1 }
    }

    pub(crate) fn planar(data: &'a [u8], plane: usize) -> Self {
        Self { data, pixel: 1, plane }
    }
}

/// A slot being filled row by row. Every row is `width` pixels.
pub(crate) struct Sink<'a> {
    level: Level,
    output: Output<'a>,
    height: usize,
    width: usize,
    slot: &'a mut [u8],
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
        Ok(Self { level: level.supported(), output, height, width, slot })
    }

    /// Writes row `y` of the image before its flips.
    ///
    /// # Panics
    /// If `row` is shorter than `width` pixels or `y` is not below the height.
    #[inline]
    pub(crate) fn row(&mut self, y: usize, row: Row<'_>) {
        let channels = self.output.map.channels();
        let last = (self.width - 1) * row.pixel + (channels - 1) * row.plane;
        assert!(y < self.height && last < row.data.len(), "a row of the image");
        let y = if self.output.flip_v { self.height - 1 - y } else { y };
        let place = Place { slot: self.slot, y, height: self.height, width: self.width };
        match self.level {
            Level::Scalar => scalar::row(row, &self.output, place),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `new` lowered the level to what the processor has, the row was checked above, and `new` checked
            // that the slot has exactly `height` rows of `width` pixels.
            Level::Avx2 => unsafe { avx2::row(row, &self.output, place) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Level::Avx512 => unsafe { avx512::row(row, &self.output, place) },
            #[cfg(not(target_arch = "x86_64"))]
            _ => scalar::row(row, &self.output, place),
        }
    }
}

/// Where a row goes: the slot of `height` x `width` pixels, and the row after flips.
pub(crate) struct Place<'a> {
    pub(crate) slot: &'a mut [u8],
    pub(crate) y: usize,
    pub(crate) height: usize,
    pub(crate) width: usize,
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

/// Crops `window` out of `src` (padding what lies outside), flips it and writes it to `slot`: `window.height` x
/// `window.width` pixels of `output.map`'s channels and element type in `output.layout`, densely packed, native
/// byte order.
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
    let (height, width) = (window.height as i64, window.width as i64);
    // Columns of the window that show the image: [inside, outside).
    let inside = (-window.left).clamp(0, width) as usize;
    let outside = (src.width() as i64 - window.left).clamp(inside as i64, width) as usize;
    let first = (window.left + inside as i64).max(0) as usize * channels;
    if inside == 0 && outside == window.width {
        let bytes = window.width * channels;
        let mut blank = Blank::default();
        for y in 0..height {
            let data = match padded(window.top + y, src.height(), pad) {
                Some(row) => &src.row(row)[first..first + bytes],
                None => blank.row(bytes, channels, pad),
            };
            sink.row(y as usize, Row::interleaved(data, channels));
        }
        return Ok(());
    }
    // Padding to the sides: rows are assembled first. Constant borders are laid down once.
    let mut line = Vec::new();
    constant(&mut line, window.width * channels, channels, pad);
    let mut blank = Blank::default();
    let columns: Vec<(usize, usize)> = match pad {
        PadMode::Constant(_) => Vec::new(),
        _ => (0..inside)
            .chain(outside..window.width)
            .filter_map(|x| Some((x, padded(window.left + x as i64, src.width(), pad)?)))
            .collect(),
    };
    let bytes = (outside - inside) * channels;
    for y in 0..height {
        let Some(row) = padded(window.top + y, src.height(), pad) else {
            let data = blank.row(window.width * channels, channels, pad);
            sink.row(y as usize, Row::interleaved(data, channels));
            continue;
        };
        let row = src.row(row);
        if bytes > 0 {
            line[inside * channels..outside * channels].copy_from_slice(&row[first..first + bytes]);
        }
        for (to, from) in &columns {
            for c in 0..channels {
                line[to * channels + c] = row[from * channels + c];
            }
        }
        sink.row(y as usize, Row::interleaved(&line, channels));
    }
    Ok(())
}

/// Fills `line` with `bytes` bytes of the constant pixel (zeros in the other modes).
fn constant(line: &mut Vec<u8>, bytes: usize, channels: usize, pad: PadMode) {
    line.clear();
    match pad {
        PadMode::Constant(value) if value[..channels].iter().any(|v| *v != value[0]) => {
            line.extend(value[..channels].iter().copied().cycle().take(bytes));
        }
        PadMode::Constant(value) => line.resize(bytes, value[0]),
        _ => line.resize(bytes, 0),
    }
}

/// A row of nothing but padding, made when first needed.
#[derive(Default)]
struct Blank(Vec<u8>);

impl Blank {
    fn row(&mut self, bytes: usize, channels: usize, pad: PadMode) -> &[u8] {
        if self.0.is_empty() {
            constant(&mut self.0, bytes, channels, pad);
        }
        &self.0
    }
}
