//! [`Stream`]: both of Pillow's passes over rows that come in bands.
//!
//! Rows wait in a ring of as many as one output row takes, behind the horizontal pass or before it, as the
//! order of passes has it; there is no image in between. Rows of the result are collected until there are
//! [`BAND`] of them, so that what the last step prepares serves several.
//! Invariant: an output row is made as soon as its last source row has come, and made once.

use std::ops::Range;
use std::sync::Arc;

use super::axis::Axis;
use super::bands::Bands;
use super::pass::{Across, Rows, WIDE, across, down};
use super::split::split;
use super::{GeometryError, Rect};
use crate::image::Pixels;
use crate::level::Level;
use crate::write::Sink;

/// Rows are made this many at a time, so that weights and tables stay in registers and rows in the
/// first-level cache.
const BAND: usize = 16;

/// Bytes in a cache line.
const LINE: usize = 64;

/// Memory that is used again, from a cache line's first byte on.
#[derive(Debug, Default)]
struct Memory(Vec<u8>);

impl Memory {
    /// Makes room for `rows` rows of `bytes` bytes.
    fn reserve(&mut self, rows: usize, bytes: usize) -> Result<(), GeometryError> {
        let len = rows.checked_mul(bytes).and_then(|n| n.checked_add(LINE));
        let len = len.ok_or(GeometryError::Memory { bytes: usize::MAX })?;
        if self.0.len() < len {
            let more = len - self.0.len();
            self.0.try_reserve_exact(more).map_err(|_| GeometryError::Memory { bytes: len })?;
            self.0.resize(len, 0);
        }
        Ok(())
    }

    /// All of it, of unspecified content.
    fn aligned(&mut self) -> &mut [u8] {
        let first = self.0.as_ptr().align_offset(LINE).min(self.0.len());
        &mut self.0[first..]
    }
}

/// What a [`super::Resizer`] keeps between images.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// Rows that output rows still need.
    ring: Memory,
    /// Rows of the result.
    lines: Memory,
    /// Rows between a vertical pass and the horizontal one after it.
    between: Memory,
    /// Rows in planes with room for whole vectors.
    flat: Memory,
}

impl Scratch {
    /// Bytes kept allocated.
    pub(super) fn capacity(&self) -> usize {
        [&self.ring, &self.lines, &self.between, &self.flat].map(|memory| memory.0.capacity()).iter().sum()
    }
}

/// The passes of a resize; `None` where a side keeps its length.
pub(super) struct Plan {
    /// Samples are picked, not weighted.
    pub(super) nearest: bool,
    pub(super) vertical: Option<Arc<Axis>>,
    pub(super) horizontal: Option<Arc<Axis>>,
    /// Whether the vertical pass comes first where there are two.
    pub(super) down_first: bool,
}

/// A resize under way.
pub(super) struct Stream<'a> {
    level: Level,
    plan: Plan,
    window: Rect,
    bands: Bands,
    /// The source rows and columns that the window needs.
    rows: Range<usize>,
    columns: Range<usize>,
    /// Rows of the window made so far. The last `held` of them are not written yet.
    made: usize,
    held: usize,
    /// Rows in the ring, and bytes of a row there, in `lines`, and in `between`.
    ring: usize,
    step: usize,
    stride: usize,
    raw: usize,
    sink: Sink<'a>,
    scratch: &'a mut Scratch,
}

impl<'a> Stream<'a> {
    #[allow(clippy::too_many_arguments, reason = "called once, with everything that was checked there")]
    pub(super) fn new(
        level: Level,
        plan: Plan,
        window: Rect,
        part: Rect,
        (rows, columns): (Range<usize>, Range<usize>),
        channels: usize,
        sink: Sink<'a>,
        scratch: &'a mut Scratch,
    ) -> Result<Self, GeometryError> {
        let overflow = || GeometryError::Memory { bytes: usize::MAX };
        // Rows begin at cache lines.
        let stride = window.width.checked_mul(channels).and_then(|n| n.checked_next_multiple_of(LINE));
        let raw = columns.len().checked_mul(channels).and_then(|n| n.checked_next_multiple_of(LINE));
        let (stride, raw) = (stride.ok_or_else(overflow)?, raw.ok_or_else(overflow)?);
        let (mut ring, mut step) = (1, 0);
        if !plan.nearest {
            match (&plan.vertical, &plan.horizontal) {
                (Some(axis), Some(_)) if !plan.down_first => {
                    // Bands are often of 8 or 16 rows: they seldom wrap around then.
                    (ring, step) = ((axis.taps() + BAND).next_multiple_of(8), stride);
                }
                (Some(axis), _) => (ring, step) = (axis.taps(), raw),
                _ => {}
            }
            if plan.horizontal.is_some() {
                let wide = columns.len().max(WIDE);
                scratch.flat.reserve(BAND * channels, wide)?;
            }
            if plan.horizontal.is_some() && plan.down_first {
                scratch.between.reserve(BAND, raw)?;
            }
        }
        ring = ring.min(rows.len());
        scratch.ring.reserve(ring, step)?;
        scratch.lines.reserve(BAND, stride)?;
        Ok(Self {
            level,
            plan,
            window,
            bands: Bands::new(part, channels),
            rows,
            columns,
            made: 0,
            held: 0,
            ring,
            step,
            stride,
            raw,
            sink,
            scratch,
        })
    }

    /// As [`super::Stream::push`].
    pub(super) fn push(&mut self, band: Pixels<'_>) -> Result<(), GeometryError> {
        let first = self.bands.take(&band)?;
        let (start, end) = (first.max(self.rows.start), self.bands.at.min(self.rows.end));
        if start >= end || self.is_complete() {
            return Ok(());
        }
        let left = self.columns.start - self.bands.part.left;
        let band = band.rows(start - first, end - start).columns(left, self.columns.len());
        if self.plan.nearest {
            self.pick(band, start);
            return Ok(());
        }
        match (self.plan.vertical.clone(), self.plan.horizontal.clone()) {
            (None, None) => {
                self.sink.band(self.made, band);
                self.made += band.height;
            }
            (None, Some(axis)) => {
                for (top, count) in chunks(band.height, BAND) {
                    self.lines(&axis, band.rows(top, count));
                }
            }
            (Some(axis), None) => self.down(&axis, None, band, start),
            (Some(axis), Some(second)) if self.plan.down_first => {
                self.down(&axis, Some(&second), band, start);
            }
            (Some(axis), Some(first)) => self.across_down(&axis, &first, band, start),
        }
        Ok(())
    }

    /// As [`super::Stream::is_complete`].
    pub(super) fn is_complete(&self) -> bool {
        self.made == self.window.height
    }

    /// As [`super::Stream::finish`].
    pub(super) fn finish(self) -> Result<(), GeometryError> {
        if self.is_complete() {
            return Ok(());
        }
        Err(GeometryError::Missing { what: "rows", start: self.bands.at, end: self.rows.end })
    }

    /// A row of the result was added to `lines`, planar if `pixel` is 1.
    fn line_made(&mut self, pixel: usize) {
        self.made += 1;
        self.held += 1;
        if self.held == BAND || self.is_complete() {
            let (count, width, channels) = (self.held, self.window.width, self.bands.channels);
            let lines = self.scratch.lines.aligned();
            let band = match pixel {
                1 => Pixels::planar(lines, count, width, channels, self.stride, width),
                _ => Pixels::interleaved(lines, count, width, channels, self.stride),
            };
            self.sink.band(self.made - count, band);
            self.held = 0;
        }
    }

    /// Nearest: `band` begins with source row `start`.
    fn pick(&mut self, band: Pixels<'_>, start: usize) {
        let pick = |axis: &Option<Arc<Axis>>, o| axis.as_ref().map_or(o, |axis| axis.start(o));
        let width = self.window.width;
        while !self.is_complete() {
            let row = pick(&self.plan.vertical, self.window.top + self.made);
            if row >= start + band.height {
                break;
            }
            let line = &mut self.scratch.lines.aligned()[self.held * self.stride..];
            for (c, line) in line.chunks_exact_mut(width).take(self.bands.channels).enumerate() {
                let row = &band.planes[c][(row - start) * band.stride..];
                for (x, to) in line.iter_mut().enumerate() {
                    let column = pick(&self.plan.horizontal, self.window.left + x) - self.columns.start;
                    *to = row[column * band.pixel];
                }
            }
            self.line_made(1);
        }
    }

    /// The horizontal pass alone, over at most [`BAND`] rows.
    fn lines(&mut self, axis: &Axis, band: Pixels<'_>) {
        for (top, count) in [(0, band.height.min(BAND - self.held)), (BAND - self.held, BAND)] {
            let count = count.min(band.height.saturating_sub(top));
            if count == 0 {
                break;
            }
            let Scratch { lines, flat, .. } = &mut *self.scratch;
            let lines = &mut lines.aligned()[self.held * self.stride..];
            let pass = Across::new(axis, self.window.columns(), &self.columns);
            across_all(self.level, &pass, band.rows(top, count), lines, self.stride, flat);
            for _ in 0..count {
                self.line_made(1);
            }
        }
    }

    /// The vertical pass over rows as they come, and perhaps a horizontal one after it.
    fn down(&mut self, axis: &Axis, then: Option<&Axis>, band: Pixels<'_>, start: usize) {
        let end = start + band.height;
        // A stretch is a plane's row, or an interleaved one.
        let bytes = band.width * band.pixel;
        let stretches = if band.pixel == 1 { self.bands.channels } else { 1 };
        // Rows in `between`.
        let mut waiting = 0;
        while self.made + waiting < self.window.height {
            let y = self.window.top + self.made + waiting;
            if axis.needs(y).end > end {
                break;
            }
            let Scratch { lines, between, ring, .. } = &mut *self.scratch;
            let to = match then {
                Some(_) => &mut between.aligned()[waiting * self.raw..],
                None => &mut lines.aligned()[self.held * self.stride..],
            };
            let ring = ring.aligned();
            for (c, to) in to.chunks_exact_mut(bytes).take(stretches).enumerate() {
                let rows = Rows {
                    ring: &ring[c * bytes..],
                    count: self.ring,
                    step: self.step,
                    first: start,
                    data: band.planes[c],
                    stride: band.stride,
                };
                down(self.level, axis, y, rows, to);
            }
            match then {
                None => self.line_made(band.pixel),
                Some(then) => {
                    waiting += 1;
                    if waiting == BAND {
                        self.between(then, waiting);
                        waiting = 0;
                    }
                }
            }
        }
        if let Some(then) = then
            && waiting > 0
        {
            self.between(then, waiting);
        }
        if self.is_complete() {
            return;
        }
        let ring = self.scratch.ring.aligned();
        for i in axis.start(self.window.top + self.made).max(start)..end {
            for (c, to) in
                ring[i % self.ring * self.step..].chunks_exact_mut(bytes).take(stretches).enumerate()
            {
                to.copy_from_slice(band.line(c, i - start));
            }
        }
    }

    /// The horizontal pass over the first `count` rows of `between`.
    fn between(&mut self, axis: &Axis, count: usize) {
        let mut between = std::mem::take(&mut self.scratch.between);
        let (data, width) = (between.aligned(), self.columns.len());
        let band = match self.bands.pixel {
            1 => Pixels::planar(data, count, width, self.bands.channels, self.raw, width),
            _ => Pixels::interleaved(data, count, width, self.bands.channels, self.raw),
        };
        self.lines(axis, band);
        self.scratch.between = between;
    }

    /// The horizontal pass into the ring, and the vertical one from there.
    fn across_down(&mut self, axis: &Axis, first: &Axis, band: Pixels<'_>, start: usize) {
        let end = start + band.height;
        let bytes = self.bands.channels * self.window.width;
        let pass = Across::new(first, self.window.columns(), &self.columns);
        let mut taken = start;
        loop {
            let Scratch { ring, lines, flat, .. } = &mut *self.scratch;
            let ring = ring.aligned();
            let y = self.window.top + self.made;
            let need = axis.needs(y);
            if need.end <= taken {
                let line = &mut lines.aligned()[self.held * self.stride..][..bytes];
                let rows =
                    Rows { ring, count: self.ring, step: self.step, first: usize::MAX, data: &[], stride: 0 };
                down(self.level, axis, y, rows, line);
                self.line_made(1);
                if self.is_complete() {
                    return;
                }
                continue;
            }
            // As far ahead as leaves the rows that this output row needs.
            taken = taken.max(need.start).min(end);
            let ahead = end.min(need.start + self.ring);
            if taken >= ahead {
                return;
            }
            while taken < ahead {
                let at = taken % self.ring;
                let count = (ahead - taken).min(self.ring - at);
                let rows = band.rows(taken - start, count);
                across_all(self.level, &pass, rows, &mut ring[at * self.step..], self.step, flat);
                taken += count;
            }
        }
    }
}

/// Runs of at most `most` of `len`: first and count.
fn chunks(len: usize, most: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..len).step_by(most).map(move |first| (first, most.min(len - first)))
}

/// The horizontal pass over all rows of `band`, which are made planar and long enough where they are not.
fn across_all(
    level: Level,
    pass: &Across<'_>,
    band: Pixels<'_>,
    dst: &mut [u8],
    stride: usize,
    flat: &mut Memory,
) {
    if band.pixel == 1 && band.width >= pass.wide(level) {
        return across(level, pass, band, dst, stride);
    }
    for (top, count) in chunks(band.height, BAND) {
        let rows = split(level, band.rows(top, count), flat.aligned());
        across(level, pass, rows, &mut dst[top * stride..], stride);
    }
}
