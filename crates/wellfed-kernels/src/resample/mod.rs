//! Resizing 8-bit images, bit-equal to Pillow 13.
//!
//! Two passes of weighted sums in 22-bit fixed point, rounded to 8 bits between them. Pillow 13
//! (`src/libImaging/Resample.c`, `ImagingResampleInner`) leaves a pass out where that side keeps its length,
//! and takes the vertical pass first where the height loses more than twice as many pixels as the width;
//! see `vertical_first`. Channels are resampled independently. (Pillow premultiplies the modes `LA` and `RGBA`
//! by alpha before it resizes; that is the caller's to do.)
//!
//! Cropping before the resize is [`View::crop`]; what Pillow calls `img.crop(box).resize(size)`, as
//! `torchvision.transforms.functional.resized_crop` does. Only the rows and columns of [`Resize::window`] are
//! computed, from the source rows and columns that they need: [`Resize::source_rows`],
//! [`Resize::source_columns`].

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod axis;
mod cache;
mod scalar;

use std::ops::Range;

use axis::Axis;
pub use axis::Filter;
use cache::Cache;

use crate::image::{Image, Layout, View};
use crate::level::Level;
use crate::points::PointMap;
pub use crate::write::GeometryError;
use crate::write::{Band, Output, Sink};

/// Longest side of a source or an output, in pixels.
pub const MAX_SIDE: usize = 1 << 24;

/// A rectangle inside an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rect {
    /// First row.
    pub top: usize,
    /// First column.
    pub left: usize,
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
}

impl Rect {
    fn rows(self) -> Range<usize> {
        self.top..self.top + self.height
    }

    fn columns(self) -> Range<usize> {
        self.left..self.left + self.width
    }
}

/// An image to resize, of which perhaps only a part is in memory.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    view: View<'a>,
    top: usize,
    left: usize,
    height: usize,
    width: usize,
}

impl<'a> From<View<'a>> for Source<'a> {
    fn from(view: View<'a>) -> Self {
        Self { view, top: 0, left: 0, height: view.height(), width: view.width() }
    }
}

impl<'a> Source<'a> {
    /// `view` is the part at (`top`, `left`) of an image of `height` x `width` pixels.
    ///
    /// # Errors
    /// If the part reaches outside the image.
    pub fn part(
        view: View<'a>,
        (top, left): (usize, usize),
        (height, width): (usize, usize),
    ) -> Result<Self, GeometryError> {
        inside("source", top, view.height(), height)?;
        inside("source", left, view.width(), width)?;
        Ok(Self { view, top, left, height, width })
    }
}

fn inside(what: &'static str, start: usize, len: usize, limit: usize) -> Result<(), GeometryError> {
    match start.checked_add(len) {
        Some(end) if end <= limit => Ok(()),
        end => Err(GeometryError::Outside { what, end: end.unwrap_or(usize::MAX), limit }),
    }
}

/// The size to resize to, and the part of the result that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Resize {
    /// Rows of the whole result.
    pub height: usize,
    /// Columns of the whole result.
    pub width: usize,
    /// Interpolation.
    pub filter: Filter,
    /// The rows and columns that are computed, the same bits as cropping the whole result.
    pub window: Rect,
}

impl Resize {
    /// The whole of `height` x `width` pixels.
    pub fn new(height: usize, width: usize, filter: Filter) -> Self {
        Self { height, width, filter, window: Rect { top: 0, left: 0, height, width } }
    }

    /// Only `window` of the result, for example a `CenterCrop`.
    pub fn window(self, window: Rect) -> Self {
        Self { window, ..self }
    }

    /// The rows of a source of `height` rows that are enough for the window: those it needs, and perhaps one
    /// or two more. Empty if a side is zero or too long or the window is not inside the result.
    pub fn source_rows(&self, height: usize) -> Range<usize> {
        source(height, self.height, self.filter, self.window.top, self.window.height)
    }

    /// The columns of a source of `width` columns that are enough for the window. Empty as [`Resize::source_rows`].
    pub fn source_columns(&self, width: usize) -> Range<usize> {
        source(width, self.width, self.filter, self.window.left, self.window.width)
    }

    fn check(&self) -> Result<(), GeometryError> {
        side(self.height)?;
        side(self.width)?;
        if self.window.height == 0 || self.window.width == 0 {
            return Err(GeometryError::Empty);
        }
        inside("window", self.window.top, self.window.height, self.height)?;
        inside("window", self.window.left, self.window.width, self.width)
    }
}

fn side(side: usize) -> Result<(), GeometryError> {
    match side {
        0 => Err(GeometryError::Empty),
        1..=MAX_SIDE => Ok(()),
        _ => Err(GeometryError::TooLarge { side }),
    }
}

fn source(input: usize, output: usize, filter: Filter, first: usize, len: usize) -> Range<usize> {
    let fits = side(input).is_ok() && side(output).is_ok() && inside("window", first, len, output).is_ok();
    if !fits || len == 0 {
        return 0..0;
    }
    if input == output {
        return first..first + len;
    }
    axis::reach(input, output, filter, first..first + len)
}

/// Whether Pillow 13 takes the vertical pass first: if the height loses rows, and more than twice as many as
/// the width loses columns (`ImagingResampleInner`, which compares lengths and not ratios).
fn vertical_first(input: (usize, usize), output: (usize, usize)) -> bool {
    let rows = input.0 as i64 - output.0 as i64;
    let columns = input.1 as i64 - output.1 as i64;
    rows > 0 && rows > columns * 2
}

/// Rows of bytes at equal distances, perhaps in a ring.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    data: &'a [u8],
    /// Where row 0 begins. Rows before the first that exists are never asked for, so this may wrap around.
    origin: usize,
    stride: usize,
    /// Row `i` lies where row `i % ring` does.
    ring: usize,
}

impl<'a> Rows<'a> {
    /// Row `i` from its first byte to the end of the memory.
    #[inline]
    fn from(&self, i: usize) -> &'a [u8] {
        &self.data[self.origin.wrapping_add((i % self.ring).wrapping_mul(self.stride))..]
    }

    /// The rows from `i` on, where there is no ring.
    fn after(&self, i: usize) -> Self {
        Self { origin: self.origin.wrapping_add(i.wrapping_mul(self.stride)), ..*self }
    }

    #[inline]
    fn row(&self, i: usize, len: usize) -> &'a [u8] {
        &self.from(i)[..len]
    }
}

/// A horizontal pass over some rows: `width` output pixels of `axis` from `first` on, planar.
pub(crate) struct Across<'a> {
    axis: &'a Axis,
    first: usize,
    width: usize,
    channels: usize,
    /// The source column that the rows begin with.
    column: usize,
    /// Bytes from one row of the result to the next.
    stride: usize,
}

impl Across<'_> {
    /// How far past a row's first byte vector loads may touch.
    fn reach(&self) -> usize {
        let last = self.axis.start(self.first + self.width - 1) - self.column;
        (last + self.axis.groups() * 4) * self.channels + 128 + 16
    }
}

/// Rows of a horizontal pass at equal distances, to rows at equal distances.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
struct Run {
    from: *const u8,
    step: usize,
    rows: usize,
    to: *mut u8,
    stride: usize,
}

/// One horizontal pass: rows `range` of `src` to `dst`, `channels` planes of `width` bytes a row, row `i` at
/// `(i % ring) * stride`. `spare` is scratch memory.
fn across(
    level: Level,
    pass: &Across<'_>,
    src: Rows<'_>,
    range: Range<usize>,
    dst: &mut [u8],
    ring: usize,
    spare: &mut Vec<u8>,
) {
    let (stride, bytes) = (pass.stride, pass.channels * pass.width);
    if level == Level::Scalar {
        for i in range {
            let at = (i % ring) * stride;
            scalar::across(pass, src.from(i), &mut dst[at..at + bytes]);
        }
        return;
    }
    let reach = pass.reach();
    let mut start = range.start;
    while start < range.end {
        // Rows to one run: enough bytes behind them, and no wrap-around in either ring.
        let mut end = start;
        while end < range.end
            && src.from(end).len() >= reach
            && (end == start || (!end.is_multiple_of(ring) && !end.is_multiple_of(src.ring)))
        {
            end += 1;
        }
        let at = start % ring * stride;
        let (from, step) = if end > start {
            (src.from(start), src.stride)
        } else {
            let row = src.from(start);
            spare.clear();
            spare.extend_from_slice(&row[..row.len().min(reach)]);
            spare.resize(reach, 0);
            end = start + 1;
            (spare.as_slice(), 0)
        };
        let rows = end - start;
        let out = &mut dst[at..at + rows * stride];
        let run = Run { from: from.as_ptr(), step, rows, to: out.as_mut_ptr(), stride };
        // SAFETY: `Resizer` holds no level that the processor lacks. Every row of the run has `reach` bytes,
        // and `out` has all rows of the run.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            match level {
                Level::Avx512 => avx512::across(pass, &run),
                _ => avx2::across(pass, &run),
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        drop(run);
        start = end;
    }
}

/// One row of the vertical pass: output row `y` of `axis`, `dst.len()` bytes from rows of `src`.
fn down(level: Level, axis: &Axis, y: usize, src: Rows<'_>, dst: &mut [u8]) {
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

/// Bytes in a cache line.
const LINE: usize = 64;

/// Memory that is used again, from a cache line's first byte on.
#[derive(Debug, Default)]
struct Scratch(Vec<u8>);

impl Scratch {
    /// `len` bytes of unspecified content.
    fn aligned(&mut self, len: usize) -> &mut [u8] {
        if self.0.len() < len + LINE {
            self.0.resize(len + LINE, 0);
        }
        let first = self.0.as_ptr().align_offset(LINE).min(LINE);
        &mut self.0[first..first + len]
    }
}

/// Resizes images; keeps weights and scratch memory from one image to the next. One for each thread.
#[derive(Debug)]
pub struct Resizer {
    level: Level,
    cache: Cache,
    /// Rows between the passes.
    ring: Scratch,
    /// Some rows of the result.
    line: Scratch,
    /// A source row that ends too close to the end of its memory.
    spare: Vec<u8>,
}

impl Default for Resizer {
    fn default() -> Self {
        Self::new()
    }
}

/// Rows are made this many at a time, so that weights and tables stay in registers and rows in the
/// first-level cache.
const BAND: usize = 16;

impl Resizer {
    /// On the fastest instruction set there is, with up to 4 MiB of weights kept.
    pub fn new() -> Self {
        Self::with_level(Level::best(), 4 << 20)
    }

    /// On `level` (or the best one there is, if lower), with up to `cache` bytes of weights kept.
    pub fn with_level(level: Level, cache: usize) -> Self {
        let level = level.supported();
        Self {
            level,
            cache: Cache::new(level, cache),
            ring: Scratch::default(),
            line: Scratch::default(),
            spare: Vec::new(),
        }
    }

    /// Bytes kept allocated.
    pub fn capacity(&self) -> usize {
        self.cache.size() + self.ring.0.capacity() + self.line.0.capacity() + self.spare.capacity()
    }

    /// The (rows, columns) of a source of `height` x `width` pixels that the window needs, no more: where
    /// [`Resize::source_rows`] is quick, this makes the weights, and keeps them for the resize itself. Empty as
    /// that.
    pub fn source(
        &mut self,
        resize: &Resize,
        (height, width): (usize, usize),
    ) -> (Range<usize>, Range<usize>) {
        if resize.check().is_err() || side(height).is_err() || side(width).is_err() {
            return (0..0, 0..0);
        }
        let mut needed = |input, output, range: Range<usize>| {
            if input == output { range } else { self.cache.axis(input, output, resize.filter).source(range) }
        };
        let rows = needed(height, resize.height, resize.window.rows());
        (rows, needed(width, resize.width, resize.window.columns()))
    }

    /// Resizes `src` into `dst`, which becomes `resize.window.height` x `resize.window.width` pixels.
    ///
    /// # Errors
    /// If a side is zero or too long, the window is not inside the result, or `src` is a part that lacks
    /// pixels.
    pub fn resize<'a>(
        &mut self,
        src: impl Into<Source<'a>>,
        resize: &Resize,
        dst: &mut Image,
    ) -> Result<(), GeometryError> {
        let src = src.into();
        resize.check()?;
        let Rect { height, width, .. } = resize.window;
        let channels = src.view.channels();
        let map = PointMap::identity(channels).expect("a view has 1 to 4 channels");
        let bytes = height.checked_mul(width).and_then(|n| n.checked_mul(channels));
        if bytes.is_none_or(|n| n > isize::MAX as usize) {
            return Err(GeometryError::TooLarge { side: height.max(width) });
        }
        let slot = dst.reshape(height, width, channels);
        self.resize_write(src, resize, Output::new(&map, Layout::Hwc), slot)
    }

    /// Resizes `src`, flips it, maps its values and writes it to `slot` without an image in between:
    /// `resize.window.height` x `resize.window.width` pixels of `output.map`'s element type in
    /// `output.layout`, densely packed, native byte order. The slot needs no alignment.
    ///
    /// # Errors
    /// As [`Resizer::resize`]; and if the channels differ or the slot has another size.
    pub fn resize_write<'a>(
        &mut self,
        src: impl Into<Source<'a>>,
        resize: &Resize,
        output: Output<'_>,
        slot: &mut [u8],
    ) -> Result<(), GeometryError> {
        let src = src.into();
        resize.check()?;
        side(src.height)?;
        side(src.width)?;
        let window = resize.window;
        let channels = src.view.channels();
        let mut sink = Sink::new(self.level, output, (window.height, window.width), channels, slot)?;

        let vertical =
            (src.height != resize.height).then(|| self.cache.axis(src.height, resize.height, resize.filter));
        let horizontal =
            (src.width != resize.width).then(|| self.cache.axis(src.width, resize.width, resize.filter));
        let rows = vertical.as_ref().map_or(window.rows(), |axis| axis.source(window.rows()));
        let columns = horizontal.as_ref().map_or(window.columns(), |axis| axis.source(window.columns()));
        present("rows", &rows, src.top, src.view.height())?;
        present("columns", &columns, src.left, src.view.width())?;

        // Rows by their number in the whole source, from the first needed column on.
        let first = (columns.start - src.left) * channels;
        let lines = Rows {
            data: src.view.data(),
            origin: first.wrapping_sub(src.top.wrapping_mul(src.view.stride())),
            stride: src.view.stride(),
            ring: usize::MAX,
        };
        let bytes = window.width * channels;
        // Rows between the passes begin at cache lines.
        let stride = bytes.next_multiple_of(LINE);
        let source_bytes = columns.len() * channels;
        let across_pass = horizontal.as_deref().map(|axis| Across {
            axis,
            first: window.left,
            width: window.width,
            channels,
            column: columns.start,
            stride,
        });
        let plane = window.width;

        if resize.filter.is_nearest() {
            let pick = |axis: Option<&Axis>, o| axis.map_or(o, |axis| axis.start(o));
            let lines_out = self.line.aligned(BAND * stride);
            for start in (0..window.height).step_by(BAND) {
                let count = BAND.min(window.height - start);
                for (y, line) in lines_out.chunks_exact_mut(stride).take(count).enumerate() {
                    let row = lines.row(pick(vertical.as_deref(), window.top + start + y), source_bytes);
                    for (x, pixel) in line[..bytes].chunks_exact_mut(channels).enumerate() {
                        let at = (pick(horizontal.as_deref(), window.left + x) - columns.start) * channels;
                        pixel.copy_from_slice(&row[at..at + channels]);
                    }
                }
                sink.band(start, Band::interleaved(lines_out, count, stride, channels));
            }
            return Ok(());
        }

        let level = self.level;
        match (vertical.as_deref(), across_pass) {
            (None, None) => {
                let data = lines.from(window.top);
                sink.band(0, Band::interleaved(data, window.height, lines.stride, channels));
            }
            (Some(axis), None) => {
                let lines_out = self.line.aligned(BAND * stride);
                for start in (0..window.height).step_by(BAND) {
                    let count = BAND.min(window.height - start);
                    for (y, line) in lines_out.chunks_exact_mut(stride).take(count).enumerate() {
                        down(level, axis, window.top + start + y, lines, &mut line[..bytes]);
                    }
                    sink.band(start, Band::interleaved(lines_out, count, stride, channels));
                }
            }
            (None, Some(pass)) => {
                let lines_out = self.line.aligned(BAND * stride);
                for start in (0..window.height).step_by(BAND) {
                    let count = BAND.min(window.height - start);
                    let band = lines.after(window.top + start);
                    across(level, &pass, band, 0..count, lines_out, BAND, &mut self.spare);
                    sink.band(start, Band::planar(lines_out, count, stride, plane));
                }
            }
            (Some(axis), Some(pass))
                if vertical_first((src.height, src.width), (resize.height, resize.width)) =>
            {
                // Some bytes behind the last row, which vector loads may touch.
                let between = self.ring.aligned(BAND * source_bytes + 256);
                let lines_out = self.line.aligned(BAND * stride);
                for start in (0..window.height).step_by(BAND) {
                    let count = BAND.min(window.height - start);
                    for (y, row) in between.chunks_exact_mut(source_bytes).take(count).enumerate() {
                        down(level, axis, window.top + start + y, lines, row);
                    }
                    let band = Rows { data: between, origin: 0, stride: source_bytes, ring: BAND };
                    across(level, &pass, band, 0..count, lines_out, BAND, &mut self.spare);
                    sink.band(start, Band::planar(lines_out, count, stride, plane));
                }
            }
            (Some(axis), Some(pass)) => {
                let ring = axis.taps() + BAND;
                let between = self.ring.aligned(ring * stride);
                let lines_out = self.line.aligned(BAND * stride);
                let mut made = rows.start;
                for start in (0..window.height).step_by(BAND) {
                    let count = BAND.min(window.height - start);
                    for (y, line) in lines_out.chunks_exact_mut(stride).take(count).enumerate() {
                        let y = window.top + start + y;
                        let need = axis.source(y..y + 1);
                        if need.end > made {
                            // As far ahead as leaves the rows that this output row needs.
                            let ahead = rows.end.min(need.start + ring).max(need.end);
                            made = made.max(need.start);
                            across(level, &pass, lines, made..ahead, between, ring, &mut self.spare);
                            made = ahead;
                        }
                        let src = Rows { data: between, origin: 0, stride, ring };
                        down(level, axis, y, src, &mut line[..bytes]);
                    }
                    sink.band(start, Band::planar(lines_out, count, stride, plane));
                }
            }
        }
        Ok(())
    }
}

/// Whether the part from `first` on with `len` rows or columns holds `needed`.
fn present(what: &'static str, needed: &Range<usize>, first: usize, len: usize) -> Result<(), GeometryError> {
    if needed.start >= first && needed.end <= first + len {
        return Ok(());
    }
    Err(GeometryError::Missing { what, start: needed.start, end: needed.end })
}
