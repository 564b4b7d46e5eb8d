//! [`Area`]: shrinking by the mean over each pixel's area, as OpenCV does it to 8-bit images, bit by bit.
//!
//! `cv2.resize` with `INTER_AREA` where neither side grows (OpenCV 4 and 5, `modules/imgproc/src/resize.cpp`). Where
//! both scales are whole numbers, bytes are added up and multiplied by the reciprocal of their count
//! (`resizeAreaFast_`); halves round to even, but up for 2 x 2 of 1, 3 or 4 channels, which has a path of its own.
//! Else samples are weighted by the share of them that is covered, in float32: along rows first, then down
//! (`ResizeArea_Invoker`). The order of additions decides the last bit, so there is no other.

use std::ops::Range;

use super::bands::Bands;
use super::opencv_linear::grow;
use super::{GeometryError, Rect};
use crate::image::Pixels;
use crate::write::Sink;

/// Rows of the result are written this many at a time.
const BAND: usize = 16;

/// A source sample's share of an output sample.
#[derive(Clone, Copy, Debug)]
struct Share {
    from: usize,
    to: usize,
    weight: f32,
}

/// How many source samples an output sample has, if that is a whole number.
fn whole(input: usize, output: usize) -> Option<usize> {
    let scale = scale(input, output);
    let rounded = scale.round_ties_even();
    ((scale - rounded).abs() < f64::EPSILON).then_some(rounded as usize)
}

fn scale(input: usize, output: usize) -> f64 {
    1.0 / (output as f64 / input as f64)
}

/// The shares of one output sample, in order (`computeResizeAreaTab`).
fn shares(o: usize, input: usize, output: usize, mut push: impl FnMut(usize, f32)) {
    // Smaller shares are left out.
    const LEAST: f64 = 1e-3;
    let scale = scale(input, output);
    let (begin, end) = (o as f64 * scale, o as f64 * scale + scale);
    let cell = scale.min(input as f64 - begin);
    let last = (end.floor() as usize).min(input - 1);
    let first = (begin.ceil() as usize).min(last);
    if first as f64 - begin > LEAST {
        push(first - 1, ((first as f64 - begin) / cell) as f32);
    }
    for from in first..last {
        push(from, (1.0 / cell) as f32);
    }
    if end - last as f64 > LEAST {
        push(last, ((end - last as f64).min(1.0).min(cell) / cell) as f32);
    }
}

/// The source samples that output samples `range` (not empty) need.
pub(super) fn reach(input: usize, output: usize, range: Range<usize>) -> Range<usize> {
    let bounds = |o| {
        let (mut low, mut high) = (input, 0);
        shares(o, input, output, |from, _| (low, high) = (low.min(from), high.max(from + 1)));
        (low, high)
    };
    bounds(range.start).0..bounds(range.end - 1).1
}

/// What is kept between images.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    columns: Vec<Share>,
    rows: Vec<Share>,
    /// One source row, weighted along the row, and the sum of such rows.
    row: Vec<f32>,
    sum: Vec<f32>,
    /// Sums of bytes, where both scales are whole numbers.
    count: Vec<u32>,
    lines: Vec<u8>,
}

impl Scratch {
    /// Bytes kept allocated.
    pub(super) fn capacity(&self) -> usize {
        size_of::<Share>() * (self.columns.capacity() + self.rows.capacity())
            + 4 * (self.row.capacity() + self.sum.capacity() + self.count.capacity())
            + self.lines.capacity()
    }
}

/// What sums of bytes are turned into one by.
#[derive(Clone, Copy, Debug)]
enum Mean {
    /// The reciprocal of their number.
    Times(f32),
    /// A quarter, halves up.
    QuarterUp,
}

impl Mean {
    fn byte(self, sum: u32) -> u8 {
        match self {
            Mean::Times(factor) => byte(sum as f32 * factor),
            Mean::QuarterUp => ((sum + 2) >> 2) as u8,
        }
    }
}

/// Rounds to the nearest, halves to even.
fn byte(value: f32) -> u8 {
    value.round_ties_even().clamp(0.0, 255.0) as u8
}

/// A resize under way.
pub(super) struct Area<'a> {
    window: Rect,
    bands: Bands,
    /// The next entry of `rows`, and the output row whose sum was begun.
    next: usize,
    begun: bool,
    made: usize,
    held: usize,
    /// Where both scales are whole numbers.
    mean: Option<Mean>,
    sink: Sink<'a>,
    scratch: &'a mut Scratch,
}

impl<'a> Area<'a> {
    /// Gets ready for the rows `part` of a source of `source` (height, width) that becomes `output`, neither side of
    /// which is larger; `window` of it is wanted. All of it was checked.
    pub(super) fn new(
        source: (usize, usize),
        output: (usize, usize),
        window: Rect,
        part: Rect,
        channels: usize,
        sink: Sink<'a>,
        scratch: &'a mut Scratch,
    ) -> Result<Self, GeometryError> {
        let mean = match (whole(source.0, output.0), whole(source.1, output.1)) {
            (Some(2), Some(2)) if channels != 2 => Some(Mean::QuarterUp),
            (Some(rows), Some(columns)) => Some(Mean::Times(1.0 / (rows * columns) as f32)),
            _ => None,
        };
        let Scratch { columns, rows, row, sum, count, lines } = &mut *scratch;
        for (list, range, (input, output)) in
            [(columns, window.columns(), (source.1, output.1)), (rows, window.rows(), (source.0, output.0))]
        {
            list.clear();
            let most = reach(input, output, range.clone()).len().saturating_add(2 * range.len());
            let bytes = most.saturating_mul(size_of::<Share>());
            list.try_reserve_exact(most).map_err(|_| GeometryError::Memory { bytes })?;
            for (to, o) in range.enumerate() {
                shares(o, input, output, |from, weight| {
                    list.push(Share { from, to, weight });
                });
            }
        }
        let len = window.width.checked_mul(channels);
        if mean.is_some() {
            grow(count, len)?;
        } else {
            grow(row, len)?;
            grow(sum, len)?;
        }
        grow(lines, len.and_then(|len| len.checked_mul(BAND.min(window.height))))?;
        Ok(Self {
            window,
            bands: Bands::new(part, channels),
            next: 0,
            begun: false,
            made: 0,
            held: 0,
            mean,
            sink,
            scratch,
        })
    }

    /// As [`super::Stream::push`].
    pub(super) fn push(&mut self, band: Pixels<'_>) -> Result<(), GeometryError> {
        let first = self.bands.take(&band)?;
        // The source row that `row` holds: the last one of an output row may be the first one of the next.
        let mut weighted = None;
        while let Some(&Share { from, to, weight }) = self.scratch.rows.get(self.next) {
            if from >= self.bands.at {
                break;
            }
            if from < first {
                return Err(GeometryError::Missing { what: "rows", start: from, end: first });
            }
            let len = self.window.width * self.bands.channels;
            if self.mean.is_some() {
                if !self.begun {
                    self.scratch.count[..len].fill(0);
                }
                self.add(band, from - first);
            } else {
                if weighted != Some(from) {
                    self.across(band, from - first);
                    weighted = Some(from);
                }
                let Scratch { row, sum, .. } = &mut *self.scratch;
                for (sum, v) in sum[..len].iter_mut().zip(&row[..len]) {
                    *sum = if self.begun { *sum + weight * v } else { weight * v };
                }
            }
            self.begun = true;
            self.next += 1;
            if self.scratch.rows.get(self.next).is_none_or(|share| share.to != to) {
                self.line_made();
            }
        }
        Ok(())
    }

    pub(super) fn is_complete(&self) -> bool {
        self.made == self.window.height
    }

    /// As [`super::Stream::finish`].
    pub(super) fn finish(self) -> Result<(), GeometryError> {
        if self.is_complete() {
            return Ok(());
        }
        let end = self.scratch.rows.last().map_or(0, |share| share.from + 1);
        Err(GeometryError::Missing { what: "rows", start: self.bands.at, end })
    }

    /// Weights row `y` of `band` along the row.
    fn across(&mut self, band: Pixels<'_>, y: usize) {
        let width = self.window.width;
        let Scratch { row, columns, .. } = &mut *self.scratch;
        for (c, to) in row.chunks_exact_mut(width).take(self.bands.channels).enumerate() {
            let from = &band.planes[c][y * band.stride..];
            to.fill(0.0);
            for share in columns.iter() {
                to[share.to] +=
                    f32::from(from[(share.from - self.bands.part.left) * band.pixel]) * share.weight;
            }
        }
    }

    /// Adds row `y` of `band` to the sums of bytes.
    fn add(&mut self, band: Pixels<'_>, y: usize) {
        let width = self.window.width;
        let Scratch { count, columns, .. } = &mut *self.scratch;
        for (c, to) in count.chunks_exact_mut(width).take(self.bands.channels).enumerate() {
            let from = &band.planes[c][y * band.stride..];
            for share in columns.iter() {
                // OpenCV's sums are of 32 bits, too.
                let byte = u32::from(from[(share.from - self.bands.part.left) * band.pixel]);
                to[share.to] = to[share.to].wrapping_add(byte);
            }
        }
    }

    fn line_made(&mut self) {
        let (width, channels) = (self.window.width, self.bands.channels);
        let len = width * channels;
        let Scratch { sum, count, lines, .. } = &mut *self.scratch;
        let to = &mut lines[self.held * len..][..len];
        match self.mean {
            Some(mean) => {
                for (to, count) in to.iter_mut().zip(&count[..len]) {
                    *to = mean.byte(*count);
                }
            }
            None => {
                for (to, sum) in to.iter_mut().zip(&sum[..len]) {
                    *to = byte(*sum);
                }
            }
        }
        self.begun = false;
        self.made += 1;
        self.held += 1;
        if self.held == BAND || self.is_complete() {
            let count = self.held;
            let band = Pixels::planar(&self.scratch.lines, count, width, channels, len, width);
            self.sink.band(self.made - count, band);
            self.held = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Filter, Resize, Resizer};
    use super::*;
    use crate::image::{Image, View};
    use crate::level::Level;

    #[test]
    fn known_pixels_of_opencv() {
        // cv2.resize with INTER_AREA of OpenCV 5.0.0 on ((np.arange(h * w * c) * 167) >> 2).astype(np.uint8).
        for (from, to, channels, known) in KNOWN {
            let (height, width) = from;
            let data: Vec<u8> = (0..height * width * channels).map(|i| ((i * 167) >> 2) as u8).collect();
            let view = View::new(&data, height, width, channels, width * channels).unwrap();
            let mut image = Image::new();
            let resize = Resize::new(to.0, to.1, Filter::OpenCvArea);
            Resizer::with_level(Level::Scalar, 0).resize(view, &resize, &mut image).unwrap();
            assert_eq!(image.pixels(), known, "{from:?} {to:?} {channels}");
        }
    }

    type Known = ((usize, usize), (usize, usize), usize, &'static [u8]);
    #[test]
    fn bytes_of_a_large_area_are_added_up_exactly() {
        // Their sum has more bits than float32.
        let (height, width) = (700, 600);
        let mut data = vec![128u8; height * width];
        data[..height * width / 2].fill(127);
        let view = View::new(&data, height, width, 1, width).unwrap();
        let mut image = Image::new();
        Resizer::new().resize(view, &Resize::new(1, 1, Filter::OpenCvArea), &mut image).unwrap();
        // 127.5, which is rounded to even.
        assert_eq!(image.pixels(), [128]);
        data[0] = 126;
        let view = View::new(&data, height, width, 1, width).unwrap();
        Resizer::new().resize(view, &Resize::new(1, 1, Filter::OpenCvArea), &mut image).unwrap();
        let sum = 127u32 * 210_000 + 128 * 210_000 - 1;
        assert_eq!(image.pixels(), [byte(sum as f32 * (1.0 / 420_000f32))]);
    }

    const KNOWN: [Known; 6] = [
        (
            (4, 6),
            (2, 3),
            3,
            &[118, 96, 138, 177, 90, 132, 171, 85, 127, 149, 127, 105, 144, 121, 99, 138, 180, 94],
        ),
        ((4, 6), (2, 3), 2, &[100, 78, 203, 116, 114, 156, 142, 56, 181, 94, 92, 134]),
        ((6, 6), (2, 3), 1, &[100, 98, 182, 126, 82, 166]),
        ((5, 7), (2, 3), 1, &[59, 154, 162, 145, 139, 88]),
        (
            (7, 5),
            (3, 4),
            3,
            &[
                99, 90, 131, 176, 94, 135, 173, 90, 132, 177, 80, 121, 155, 138, 100, 145, 157, 104, 141,
                154, 101, 145, 129, 90, 124, 166, 68, 113, 155, 116, 110, 152, 113, 114, 156, 146,
            ],
        ),
        ((5, 5), (5, 2), 1, &[33, 133, 190, 86, 195, 90, 147, 145, 100, 200]),
    ];

    #[test]
    fn shares_make_one_and_stay_inside() {
        for (input, output) in [(1, 1), (9, 1), (9, 9), (640, 224), (1000, 7), (7, 5), (224, 223)] {
            for o in 0..output {
                let (mut sum, mut last) = (0.0, 0);
                shares(o, input, output, |from, weight| {
                    assert!(from < input && from >= last && weight > 0.0);
                    (sum, last) = (sum + weight, from);
                });
                assert!((sum - 1.0).abs() < 1e-2, "{input} {output} {o}: {sum}");
            }
        }
    }
}
