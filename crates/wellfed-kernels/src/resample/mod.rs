//! Resizing 8-bit images, bit-equal to Pillow 13, and for some [`Filter`]s to OpenCV or torch.
//!
//! Two passes of weighted sums in 22-bit fixed point, rounded to 8 bits between them. Pillow 13
//! (`src/libImaging/Resample.c`, `ImagingResampleInner`) leaves a pass out where that side keeps its length,
//! and takes the vertical pass first where the height loses more than twice as many pixels as the width;
//! see `vertical_first`; torch never does. Channels are resampled independently. (Pillow premultiplies the modes `LA` and `RGBA`
//! by alpha before it resizes; that is the caller's to do.)
//!
//! [`Resizer::resize_write`] takes an image that is all in memory, [`Resizer::stream`] one whose rows come in
//! bands; the first is the second with one band. Rows may be interleaved or planar; horizontal passes read
//! planes, so that interleaved rows are split first, some at a time. One plane fills every channel of the map.
//! The same bits in all these cases, on every [`Level`].
//!
//! What Pillow calls `img.resize(size, box=box)` is [`Resize::region`]. Cropping before the resize is [`View::crop`]; what Pillow calls `img.crop(box).resize(size)`, as
//! `torchvision.transforms.functional.resized_crop` does. Only the rows and columns of [`Resize::window`] are
//! computed, from the source rows and columns that they need: [`Resize::source_rows`],
//! [`Resize::source_columns`].

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod axis;
mod bands;
mod cache;
mod opencv_area;
mod opencv_linear;
mod pass;
mod scalar;
mod split;
mod stream;
mod weights;

use std::ops::Range;

use axis::Span;
pub use axis::{AxisTable, Filter};
use cache::Cache;
use opencv_area::Area;
use opencv_linear::{Linear, Rule};
use stream::Scratch;

use crate::image::{Image, Layout, Pixels, Planes, View};
use crate::level::Level;
use crate::points::PointMap;
pub use crate::write::GeometryError;
use crate::write::{Output, Sink};
pub use weights::{AxisWeights, Weights};

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

    /// Whether it lies inside `height` x `width` pixels.
    fn check(self, what: &'static str, (height, width): (usize, usize)) -> Result<(), GeometryError> {
        inside(what, self.top, self.height, height)?;
        inside(what, self.left, self.width, width)
    }
}

/// An image to resize, of which perhaps only a part is in memory.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    pixels: Pixels<'a>,
    part: Rect,
    height: usize,
    width: usize,
}

impl<'a> From<Pixels<'a>> for Source<'a> {
    fn from(pixels: Pixels<'a>) -> Self {
        let (height, width) = (pixels.height(), pixels.width());
        Self { pixels, part: Rect { top: 0, left: 0, height, width }, height, width }
    }
}

impl<'a> From<View<'a>> for Source<'a> {
    fn from(view: View<'a>) -> Self {
        Pixels::from(view).into()
    }
}

impl<'a> From<Planes<'a>> for Source<'a> {
    fn from(planes: Planes<'a>) -> Self {
        Pixels::from(planes).into()
    }
}

impl<'a> Source<'a> {
    /// `pixels` are the part at (`top`, `left`) of an image of `height` x `width` pixels.
    ///
    /// # Errors
    /// If the part reaches outside the image.
    pub fn part(
        pixels: impl Into<Pixels<'a>>,
        (top, left): (usize, usize),
        (height, width): (usize, usize),
    ) -> Result<Self, GeometryError> {
        let pixels = pixels.into();
        let part = Rect { top, left, height: pixels.height(), width: pixels.width() };
        part.check("source", (height, width))?;
        Ok(Self { pixels, part, height, width })
    }
}

fn inside(what: &'static str, start: usize, len: usize, limit: usize) -> Result<(), GeometryError> {
    match start.checked_add(len) {
        Some(end) if end <= limit => Ok(()),
        end => Err(GeometryError::Outside { what, end: end.unwrap_or(usize::MAX), limit }),
    }
}

/// What is resampled of a source, in pixels that need not be whole: Pillow's `box`. Filters reach outside of it, up to the
/// source's border.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Region {
    /// Where it begins, from the first row's upper edge.
    pub top: f32,
    /// Where it begins, from the first column's left edge.
    pub left: f32,
    /// Where it ends.
    pub bottom: f32,
    /// Where it ends.
    pub right: f32,
}

impl Region {
    /// Whether it lies inside an image of `height` x `width` pixels, and has some of it.
    pub fn is_inside(&self, height: usize, width: usize) -> bool {
        0.0 <= self.top
            && self.top < self.bottom
            && self.bottom <= height as f32
            && 0.0 <= self.left
            && self.left < self.right
            && self.right <= width as f32
    }
}

/// The size to resize to, and the part of the result that is wanted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Resize {
    /// Rows of the whole result.
    pub height: usize,
    /// Columns of the whole result.
    pub width: usize,
    /// Interpolation.
    pub filter: Filter,
    /// The rows and columns that are computed, the same bits as cropping the whole result.
    pub window: Rect,
    /// What is resampled; `None` for all. With Pillow's filters only.
    pub region: Option<Region>,
}

impl Resize {
    /// The whole of `height` x `width` pixels.
    pub fn new(height: usize, width: usize, filter: Filter) -> Self {
        Self { height, width, filter, window: Rect { top: 0, left: 0, height, width }, region: None }
    }

    /// Only `window` of the result, for example a `CenterCrop`.
    pub fn window(self, window: Rect) -> Self {
        Self { window, ..self }
    }

    /// Resamples no more than `region`.
    pub fn region(self, region: Option<Region>) -> Self {
        Self { region, ..self }
    }

    fn rows(&self, height: usize) -> Span {
        self.region.map_or(Span::whole(height), |region| Span::new(height, region.top, region.bottom))
    }

    fn columns(&self, width: usize) -> Span {
        self.region.map_or(Span::whole(width), |region| Span::new(width, region.left, region.right))
    }

    /// The rows of a source of `height` rows that are enough for the window: those it needs, and perhaps one
    /// or two more. Empty if a side is zero or too long or the window is not inside the result.
    pub fn source_rows(&self, height: usize) -> Range<usize> {
        source(self.rows(height), self.height, self.filter, self.window.top, self.window.height)
    }

    /// The columns of a source of `width` columns that are enough for the window. Empty as [`Resize::source_rows`].
    pub fn source_columns(&self, width: usize) -> Range<usize> {
        source(self.columns(width), self.width, self.filter, self.window.left, self.window.width)
    }

    fn check(&self, (height, width): (usize, usize)) -> Result<(), GeometryError> {
        [self.height, self.width, height, width].into_iter().try_for_each(side)?;
        if self.window.height == 0 || self.window.width == 0 {
            return Err(GeometryError::Empty);
        }
        self.window.check("window", (self.height, self.width))?;
        match self.region {
            Some(region) if self.filter.is_foreign() || !region.is_inside(height, width) => {
                let end = region.bottom.max(region.right).clamp(0.0, MAX_SIDE as f32).ceil() as usize;
                Err(GeometryError::Outside { what: "region", end, limit: height.min(width) })
            }
            _ => Ok(()),
        }
    }
}

fn side(side: usize) -> Result<(), GeometryError> {
    match side {
        0 => Err(GeometryError::Empty),
        1..=MAX_SIDE => Ok(()),
        _ => Err(GeometryError::TooLarge { side }),
    }
}

fn source(input: Span, output: usize, filter: Filter, first: usize, len: usize) -> Range<usize> {
    let fits =
        side(input.len).is_ok() && side(output).is_ok() && inside("window", first, len, output).is_ok();
    if !fits || len == 0 {
        return 0..0;
    }
    if input.keeps(output) {
        return first..first + len;
    }
    // Whether an axis is shrunk by `INTER_AREA` depends on the other one as well.
    axis::reach(input, output, filter, first..first + len)
}

/// The weights that take one side of an image from `input` to `output` samples, of which `window` is wanted; `None`
/// where pixels are no sums of such weights (OpenCV's filters but its nearest), or a side or the window does not fit.
/// A side that keeps its length is copied, with whatever filter: it needs no table.
pub fn axis_table(input: usize, output: usize, filter: Filter, window: Range<usize>) -> Option<AxisTable> {
    let weighted = !matches!(filter, Filter::OpenCvLinear | Filter::OpenCvArea);
    let fits = side(input).is_ok() && side(output).is_ok() && window.end <= output && !window.is_empty();
    (weighted && fits).then(|| AxisTable::new(input, output, filter, window))
}

/// Whether the vertical pass comes before the horizontal one in a resize from `input` to `output`, each (height, width).
pub fn passes_down_first(input: (usize, usize), output: (usize, usize), filter: Filter) -> bool {
    !filter.is_torch() && vertical_first(input, output)
}

/// Whether Pillow 13 takes the vertical pass first: if the height loses rows, and more than twice as many as
/// the width loses columns (`ImagingResampleInner`, which compares lengths and not ratios, and those of the whole image where a region is resampled).
fn vertical_first(input: (usize, usize), output: (usize, usize)) -> bool {
    let rows = input.0 as i64 - output.0 as i64;
    let columns = input.1 as i64 - output.1 as i64;
    rows > 0 && rows > columns * 2
}

/// Resizes images; keeps weights and scratch memory from one image to the next. One for each thread.
#[derive(Debug)]
pub struct Resizer {
    level: Level,
    cache: Cache,
    scratch: Scratch,
    linear: opencv_linear::Scratch,
    area: opencv_area::Scratch,
}

impl Default for Resizer {
    fn default() -> Self {
        Self::new()
    }
}

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
            scratch: Scratch::default(),
            linear: opencv_linear::Scratch::default(),
            area: opencv_area::Scratch::default(),
        }
    }

    /// Bytes kept allocated.
    pub fn capacity(&self) -> usize {
        self.cache.size() + self.scratch.capacity() + self.linear.capacity() + self.area.capacity()
    }

    /// The (rows, columns) of a source of `height` x `width` pixels that the window needs, no more: where
    /// [`Resize::source_rows`] is quick, this makes the weights, and keeps them for the resize itself. Empty as
    /// that.
    pub fn source(
        &mut self,
        resize: &Resize,
        (height, width): (usize, usize),
    ) -> (Range<usize>, Range<usize>) {
        if resize.check((height, width)).is_err() {
            return (0..0, 0..0);
        }
        let way = Way::of(resize, (height, width));
        let mut needed = |input: Span, output, range: Range<usize>| match way {
            _ if input.keeps(output) => range,
            Way::Weighted => self.cache.axis(input, output, resize.filter).source(range),
            Way::Linear(rule) => opencv_linear::reach(rule, input.len, output, range),
            Way::Area => opencv_area::reach(input.len, output, range),
        };
        let rows = needed(resize.rows(height), resize.height, resize.window.rows());
        (rows, needed(resize.columns(width), resize.width, resize.window.columns()))
    }

    /// Resizes `src` into `dst`, which becomes `resize.window.height` x `resize.window.width` pixels.
    ///
    /// # Errors
    /// If a side is zero or too long, the window is not inside the result, `src` is a part that lacks pixels,
    /// or there is no memory for the rows between the passes.
    pub fn resize<'a>(
        &mut self,
        src: impl Into<Source<'a>>,
        resize: &Resize,
        dst: &mut Image,
    ) -> Result<(), GeometryError> {
        let src = src.into();
        resize.check((src.height, src.width))?;
        let Rect { height, width, .. } = resize.window;
        let channels = src.pixels.channels();
        let map = PointMap::identity(channels).expect("a view has 1 to 4 channels");
        let bytes = height.checked_mul(width).and_then(|n| n.checked_mul(channels));
        if bytes.is_none_or(|n| n > isize::MAX as usize) {
            return Err(GeometryError::TooLarge { side: height.max(width) });
        }
        let slot = dst.reshape(height, width, channels)?;
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
        let Source { pixels, part, height, width } = src.into();
        let mut stream = self.stream(resize, (height, width), part, pixels.channels(), output, slot)?;
        stream.push(pixels)?;
        stream.finish()
    }

    /// What [`Resizer::resize_write`] does, for rows that come in bands: the rows and columns `part` of a source
    /// of `height` x `width` pixels, with `channels` channels. [`Stream::push`] takes them, top to bottom.
    ///
    /// # Errors
    /// As [`Resizer::resize_write`]; what `part` must hold is what [`Resizer::source`] says.
    pub fn stream<'a>(
        &'a mut self,
        resize: &Resize,
        (height, width): (usize, usize),
        part: Rect,
        channels: usize,
        output: Output<'a>,
        slot: &'a mut [u8],
    ) -> Result<Stream<'a>, GeometryError> {
        resize.check((height, width))?;
        part.check("source", (height, width))?;
        let (source, window) = ((height, width), resize.window);
        let way = Way::of(resize, source);
        if way != Way::Weighted {
            let (rows, columns) = self.source(resize, source);
            present("rows", &rows, part.rows())?;
            present("columns", &columns, part.columns())?;
            let sink = Sink::new(self.level, output, (window.height, window.width), channels, slot)?;
            let whole = (resize.height, resize.width);
            return Ok(Stream(match way {
                Way::Linear(rule) => {
                    let scratch = &mut self.linear;
                    let linear =
                        Linear::new(self.level, rule, source, whole, window, part, channels, sink, scratch);
                    Under::Linear(linear?)
                }
                _ => Under::Area(Area::new(source, whole, window, part, channels, sink, &mut self.area)?),
            }));
        }
        let mut axis = |input: Span, output| {
            (!input.keeps(output)).then(|| self.cache.axis(input, output, resize.filter))
        };
        let vertical = axis(resize.rows(height), resize.height);
        let horizontal = axis(resize.columns(width), resize.width);
        let rows = vertical.as_ref().map_or(window.rows(), |axis| axis.source(window.rows()));
        let columns = horizontal.as_ref().map_or(window.columns(), |axis| axis.source(window.columns()));
        present("rows", &rows, part.rows())?;
        present("columns", &columns, part.columns())?;
        let down_first = passes_down_first((height, width), (resize.height, resize.width), resize.filter);
        let plan = stream::Plan { nearest: resize.filter.is_nearest(), vertical, horizontal, down_first };
        let sink = Sink::new(self.level, output, (window.height, window.width), channels, slot)?;
        let scratch = &mut self.scratch;
        let weighted =
            stream::Stream::new(self.level, plan, window, part, (rows, columns), channels, sink, scratch)?;
        Ok(Stream(Under::Weighted(weighted)))
    }
}

/// Which code makes the pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Pillow's passes, and all that picks samples.
    Weighted,
    /// OpenCV's two samples along each axis.
    Linear(Rule),
    /// OpenCV's means over areas.
    Area,
}

impl Way {
    fn of(resize: &Resize, (height, width): (usize, usize)) -> Self {
        match resize.filter {
            Filter::OpenCvLinear => Way::Linear(Rule::Centre),
            Filter::OpenCvArea if resize.height <= height && resize.width <= width => Way::Area,
            Filter::OpenCvArea => Way::Linear(Rule::Area),
            _ => Way::Weighted,
        }
    }
}

/// A resize whose source rows come in bands; made by [`Resizer::stream`].
pub struct Stream<'a>(Under<'a>);

/// A resize under way.
#[allow(clippy::large_enum_variant, reason = "there is one for each image, on the stack")]
enum Under<'a> {
    Weighted(stream::Stream<'a>),
    Linear(Linear<'a>),
    Area(Area<'a>),
}

impl Stream<'_> {
    /// Takes the next rows of the part, all columns of them. Rows that the window does not need may be pushed
    /// or, once [`Stream::is_complete`], left out.
    ///
    /// # Errors
    /// If they have another width or other channels than announced, some bands are interleaved and some
    /// planar, or there are too many.
    pub fn push<'b>(&mut self, band: impl Into<Pixels<'b>>) -> Result<(), GeometryError> {
        match &mut self.0 {
            Under::Weighted(stream) => stream.push(band.into()),
            Under::Linear(stream) => stream.push(band.into()),
            Under::Area(stream) => stream.push(band.into()),
        }
    }

    /// Whether the slot is complete: further rows would change nothing.
    pub fn is_complete(&self) -> bool {
        match &self.0 {
            Under::Weighted(stream) => stream.is_complete(),
            Under::Linear(stream) => stream.is_complete(),
            Under::Area(stream) => stream.is_complete(),
        }
    }

    /// Says whether the slot is complete.
    ///
    /// # Errors
    /// If rows are missing; the slot's content is unspecified then.
    pub fn finish(self) -> Result<(), GeometryError> {
        match self.0 {
            Under::Weighted(stream) => stream.finish(),
            Under::Linear(stream) => stream.finish(),
            Under::Area(stream) => stream.finish(),
        }
    }
}

/// Whether the rows or columns that are given hold `needed`.
fn present(what: &'static str, needed: &Range<usize>, given: Range<usize>) -> Result<(), GeometryError> {
    if needed.start >= given.start && needed.end <= given.end {
        return Ok(());
    }
    Err(GeometryError::Missing { what, start: needed.start, end: needed.end })
}
