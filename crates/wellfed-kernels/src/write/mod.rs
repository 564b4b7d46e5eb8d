//! The last step of a sample: pixels to their place in the batch.
//!
//! [`write()`] crops, pads, flips, maps values ([`PointMap`]) and transposes to the batch's [`Layout`] in one
//! pass; [`Writer`] does the same while rows come from a decoder. Images that are resized take the same last
//! step row by row from [`crate::resample`]. Every byte of the slot is written, once; the slot needs no
//! alignment.
//!
//! An image of one channel fills every channel of the map.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod scalar;
mod writer;

use std::fmt;

use crate::image::{Layout, Pixels, View};
use crate::level::Level;
use crate::points::PointMap;
pub use writer::Writer;
pub(crate) use writer::announced;

/// What becomes of the pixels after crop or resize.
#[derive(Clone, Copy, Debug)]
pub struct Output<'a> {
    /// Mirror left and right.
    pub flip_h: bool,
    /// Mirror top and bottom.
    pub flip_v: bool,
    /// The function applied to each value; its channels are the image's, or any number for an image of one.
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
        /// Channels of the image, or of rows pushed.
        image: usize,
        /// Channels of the map, or announced.
        map: usize,
    },
    /// The output window is not inside the output, the source part not inside the source, or more rows were
    /// pushed than announced.
    Outside {
        /// `"window"`, `"source"` or `"rows"`.
        what: &'static str,
        /// First row or column past it.
        end: usize,
        /// Rows or columns there are.
        limit: usize,
    },
    /// Rows that were pushed have another width than was announced.
    Width {
        /// Columns announced.
        expected: usize,
        /// Columns pushed.
        actual: usize,
    },
    /// The system does not give the memory for the result, or for rows between the passes.
    Memory {
        /// Bytes needed; `usize::MAX` if the number overflows.
        bytes: usize,
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
            GeometryError::Width { expected, actual } => {
                write!(f, "rows of {actual} pixels, where {expected} were announced")
            }
            GeometryError::Memory { bytes } => write!(f, "no memory for {bytes} bytes of pixels"),
            GeometryError::Missing { what, start, end } => {
                write!(f, "resampling needs the source's {what} {start}..{end}, which are not all there")
            }
        }
    }
}

impl std::error::Error for GeometryError {}

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
        if channels != output.map.channels() && channels != 1 {
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

    /// For a slot that is read next: stores stay in the caches.
    pub(crate) fn near(self) -> Self {
        let mut sink = self;
        sink.past = false;
        sink
    }

    /// Channels of the map.
    pub(crate) fn channels(&self) -> usize {
        self.output.map.channels()
    }

    /// Writes rows `y..y + band.height` of the image before its flips: the first `width` columns of the band,
    /// and its one channel to all that the map has if there are more.
    ///
    /// # Panics
    /// If the band is narrower, has other channels, or the rows are not below the height.
    #[inline]
    pub(crate) fn band(&mut self, y: usize, band: Pixels<'_>) {
        if band.height == 0 {
            return;
        }
        let channels = self.output.map.channels();
        let band = band.broadcast(channels);
        let last = (band.height - 1) * band.stride + (self.width - 1) * band.pixel;
        let inside = |plane: &&[u8]| last < plane.len();
        assert!(
            band.planes[..channels].iter().all(inside) && y + band.height <= self.height,
            "rows of the image"
        );
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
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub(crate) past: bool,
}

/// Crops `window` out of `src` (padding what lies outside), flips it and writes it to `slot`: `window.height`
/// x `window.width` pixels of `output.map`'s channels and element type in `output.layout`, densely packed,
/// native byte order.
///
/// # Errors
/// If the window is empty or unreasonably far away, the channels differ, or the slot has another size.
pub fn write<'a>(
    src: impl Into<Pixels<'a>>,
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
pub fn write_at<'a>(
    level: Level,
    src: impl Into<Pixels<'a>>,
    window: Window,
    pad: PadMode,
    output: Output<'_>,
    slot: &mut [u8],
) -> Result<(), GeometryError> {
    let src = src.into();
    let (size, mut lines) = ((src.height, src.width), Vec::new());
    let mut writer = Writer::with_level(level, size, src.channels, window, pad, output, slot, &mut lines)?;
    writer.push(src)?;
    writer.finish()
}
