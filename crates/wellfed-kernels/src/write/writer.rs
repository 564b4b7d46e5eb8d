//! [`Writer`]: crop and padding without resampling, for rows that come in bands.
//!
//! Each row of the window shows one source row, or none where padding is a constant; it is written when that
//! row arrives. Invariant: every row of the window is written once.

use std::ops::Range;

use super::{GeometryError, Output, PadMode, Sink, Window};
use crate::image::Pixels;
use crate::level::Level;

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

/// Rows with padding are assembled in about this many bytes, to stay in the first-level cache.
const BAND_BYTES: usize = 8192;

/// The positions of a window of `len` from `start` on that lie inside an image side of `side`.
fn inner(start: i64, len: usize, side: usize) -> Range<usize> {
    let begin = (-start).clamp(0, len as i64);
    let end = (side as i64 - start).clamp(begin, len as i64);
    begin as usize..end as usize
}

/// A row of the window, and the source row it shows, if any.
type Row = (usize, Option<usize>);

/// What [`super::write()`] does, for an image whose rows come in bands, top to bottom.
pub struct Writer<'a> {
    sink: Sink<'a>,
    channels: usize,
    source: (usize, usize),
    window: Window,
    pad: PadMode,
    /// Rows and columns of the window that lie inside the image.
    rows: Range<usize>,
    columns: Range<usize>,
    /// Columns of the window outside the image, and those of the image that they show.
    beside: Vec<(usize, usize)>,
    /// Rows outside the image that are still to be written, the last first. Made with the first band, unless
    /// that is the whole image.
    outer: Vec<Row>,
    /// One past the last source row that the window shows, at least 1.
    end: usize,
    /// Rows that can be written now.
    ready: Vec<usize>,
    /// The next source row.
    at: usize,
    /// Where rows are assembled.
    lines: &'a mut Vec<u8>,
}

impl<'a> Writer<'a> {
    /// Gets ready for `channels` channels of `source` = (height, width) pixels. On the fastest instruction set
    /// there is. `slot` is filled with `window`, as [`super::write()`] does. `lines` is memory for rows that are put
    /// together, some kilobytes: given again, it need not be taken anew for each image.
    ///
    /// # Errors
    /// As [`super::write()`].
    pub fn new(
        source: (usize, usize),
        channels: usize,
        window: Window,
        pad: PadMode,
        output: Output<'a>,
        slot: &'a mut [u8],
        lines: &'a mut Vec<u8>,
    ) -> Result<Self, GeometryError> {
        Self::with_level(Level::best(), source, channels, window, pad, output, slot, lines)
    }

    /// [`Writer::new`] on a given instruction set, for tests and benchmarks.
    ///
    /// # Errors
    /// As [`super::write()`].
    #[allow(clippy::too_many_arguments, reason = "a level beside what `new` takes")]
    pub fn with_level(
        level: Level,
        source: (usize, usize),
        channels: usize,
        window: Window,
        pad: PadMode,
        output: Output<'a>,
        slot: &'a mut [u8],
        lines: &'a mut Vec<u8>,
    ) -> Result<Self, GeometryError> {
        const FAR: u64 = 1 << 40;
        let sink = Sink::new(level, output, (window.height, window.width), channels, slot)?;
        if source.0 == 0 || source.1 == 0 {
            return Err(GeometryError::Empty);
        }
        let far = window.top.unsigned_abs().max(window.left.unsigned_abs());
        let far = far.max(source.0 as u64).max(source.1 as u64);
        if far > FAR {
            return Err(GeometryError::TooLarge { side: far as usize });
        }
        let rows = inner(window.top, window.height, source.0);
        let columns = inner(window.left, window.width, source.1);
        let beside = match pad {
            PadMode::Constant(_) => Vec::new(),
            _ => (0..columns.start)
                .chain(columns.end..window.width)
                .filter_map(|x| Some((x, padded(window.left + x as i64, source.1, pad)?)))
                .collect(),
        };
        // A window of nothing but constants is written with the first rows.
        let inside = if rows.is_empty() { 0 } else { (window.top + rows.end as i64) as usize };
        let mut end = inside.max(1);
        if !matches!(pad, PadMode::Constant(_)) {
            let outside = (0..rows.start).chain(rows.end..window.height);
            let shown = outside.filter_map(|y| padded(window.top + y as i64, source.0, pad));
            end = end.max(shown.max().map_or(0, |last| last + 1));
        }
        Ok(Self {
            sink,
            channels,
            source,
            window,
            pad,
            rows,
            columns,
            beside,
            outer: Vec::new(),
            end,
            ready: Vec::new(),
            at: 0,
            lines,
        })
    }

    /// Takes the next rows of the image, all columns of them.
    ///
    /// # Errors
    /// If they have another width or other channels than announced, or there are too many.
    pub fn push<'b>(&mut self, band: impl Into<Pixels<'b>>) -> Result<(), GeometryError> {
        let band = band.into();
        announced(&band, self.channels, self.source.1, self.source.0 - self.at)?;
        let first = self.at;
        self.at += band.height;
        let height = self.window.height;
        let whole = self.columns.len() == self.window.width;
        if self.at == self.source.0 && first == 0 && !(whole && self.rows.len() == height) {
            return self.assemble(0..height, band.broadcast(self.sink.channels()), 0);
        }
        if first == 0 {
            self.outer.extend((0..self.rows.start).chain(self.rows.end..height).map(|y| (y, None)));
            for (y, from) in &mut self.outer {
                *from = padded(self.window.top + *y as i64, self.source.0, self.pad);
            }
            // Constants first: `None` is less than any row.
            self.outer.sort_unstable_by_key(|(y, from)| std::cmp::Reverse((*from, *y)));
        }
        // The window's rows that show rows of this band directly.
        let inside = |source: usize| (source as i64 - self.window.top).max(0) as usize;
        let rows = self.rows.start.max(inside(first))..self.rows.end.min(inside(self.at));
        let more = self.outer.last().is_some_and(|(_, from)| from.is_none_or(|from| from < self.at));
        if whole && !more {
            if !rows.is_empty() {
                let top = (self.window.top + rows.start as i64) as usize - first;
                let band = band.rows(top, rows.len()).columns(self.window.left as usize, self.window.width);
                self.sink.band(rows.start, band);
            }
            return Ok(());
        }
        let mut ready = std::mem::take(&mut self.ready);
        ready.clear();
        ready.extend(rows);
        while let Some((y, _)) = self.outer.pop_if(|(_, from)| from.is_none_or(|from| from < self.at)) {
            ready.push(y);
        }
        ready.sort_unstable();
        let mut rest = &ready[..];
        while let Some(y) = rest.first() {
            let consecutive = rest.iter().zip(*y..).take_while(|(a, b)| *a == b).count();
            self.assemble(*y..*y + consecutive, band.broadcast(self.sink.channels()), first)?;
            rest = &rest[consecutive..];
        }
        self.ready = ready;
        Ok(())
    }

    /// Writes `rows` of the window, which show rows of `band`; its first row is the source's row `first`.
    fn assemble(&mut self, rows: Range<usize>, band: Pixels<'_>, first: usize) -> Result<(), GeometryError> {
        let width = self.window.width;
        let bytes = width * band.channels;
        let at_once = (BAND_BYTES / bytes).clamp(1, rows.len().max(1));
        if self.lines.len() < at_once * bytes {
            let more = at_once * bytes - self.lines.len();
            self.lines.try_reserve_exact(more).map_err(|_| GeometryError::Memory { bytes: more })?;
            self.lines.resize(at_once * bytes, 0);
        }
        // Interleaved rows are one stretch of pixels, planar rows several.
        let pixel = band.pixel;
        let stretches = if pixel == 1 { band.channels } else { 1 };
        let from = (self.window.left + self.columns.start as i64).max(0) as usize;
        for y in rows.clone().step_by(at_once) {
            let count = at_once.min(rows.end - y);
            let lines = &mut self.lines[..count * bytes];
            if let PadMode::Constant(value) = self.pad {
                constant(lines, &value[..band.channels], width, pixel);
            }
            for (line, y) in lines.chunks_exact_mut(bytes).zip(y..) {
                let source = padded(self.window.top + y as i64, self.source.0, self.pad);
                let Some(row) = source else { continue };
                for (c, line) in line.chunks_exact_mut(bytes / stretches).enumerate() {
                    let row = band.line(c, row - first);
                    if !self.columns.is_empty() {
                        let inside = &mut line[self.columns.start * pixel..self.columns.end * pixel];
                        inside.copy_from_slice(&row[from * pixel..][..inside.len()]);
                    }
                    for (to, from) in &self.beside {
                        line[to * pixel..][..pixel].copy_from_slice(&row[from * pixel..][..pixel]);
                    }
                }
            }
            let band = match pixel {
                1 => Pixels::planar(lines, count, width, band.channels, bytes, width),
                _ => Pixels::interleaved(lines, count, width, band.channels, bytes),
            };
            self.sink.band(y, band);
        }
        Ok(())
    }

    /// Whether the slot is complete: further rows would change nothing.
    pub fn is_complete(&self) -> bool {
        self.at >= self.end
    }

    /// Says whether the slot is complete.
    ///
    /// # Errors
    /// If rows are missing; the slot's content is unspecified then.
    pub fn finish(self) -> Result<(), GeometryError> {
        if self.is_complete() {
            return Ok(());
        }
        Err(GeometryError::Missing { what: "rows", start: self.at, end: self.end })
    }
}

/// Whether `band` has the announced channels and width, and no more than `left` rows.
pub(crate) fn announced(
    band: &Pixels<'_>,
    channels: usize,
    width: usize,
    left: usize,
) -> Result<(), GeometryError> {
    if band.channels != channels {
        return Err(GeometryError::Channels { image: band.channels, map: channels });
    }
    if band.width != width {
        return Err(GeometryError::Width { expected: width, actual: band.width });
    }
    if band.height > left {
        return Err(GeometryError::Outside { what: "rows", end: band.height, limit: left });
    }
    Ok(())
}

/// Fills `lines` with copies of one pixel: interleaved, or in planes of `width` (`pixel` is 1).
fn constant(lines: &mut [u8], value: &[u8], width: usize, pixel: usize) {
    if value.iter().all(|v| *v == value[0]) {
        lines.fill(value[0]);
    } else if pixel == 1 {
        for (plane, value) in lines.chunks_exact_mut(width).zip(value.iter().cycle()) {
            plane.fill(*value);
        }
    } else {
        for to in lines.chunks_exact_mut(value.len()) {
            to.copy_from_slice(value);
        }
    }
}
