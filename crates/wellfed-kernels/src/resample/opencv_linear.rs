//! [`Linear`]: bilinear resizing as OpenCV does it to 8-bit images, bit by bit.
//!
//! `cv2.resize` with `INTER_LINEAR` (OpenCV 4 and 5, `modules/imgproc/src/resize.cpp`: `HResizeLinear`,
//! `VResizeLinear`) takes two samples along each axis whatever the scale, so that nothing is antialiased. Weights have
//! 11 fractional bits. Rows are weighted first and keep 7 of them; two such rows are added with products cut to 16
//! bits, and rounded. `INTER_AREA` takes the same passes with other weights where a side grows. Where OpenCV takes
//! another way for speed (exactly half the size), it gives the same pixels.
//!
//! Rows may come in bands: two weighted rows wait for what is below them. The same bits on every [`Level`].

use super::bands::Bands;
use super::{GeometryError, Rect};
use crate::image::Pixels;
use crate::level::Level;
use crate::write::Sink;

/// Fractional bits of a weight.
const BITS: u32 = 11;

/// Rows of the result are written this many at a time.
const BAND: usize = 16;

/// One output sample along an axis: two source samples and their weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tap {
    pub(super) at: [usize; 2],
    pub(super) weights: [i16; 2],
}

impl Tap {
    /// A sample that lies `fraction` behind the first of two. A sample without weight is not looked at.
    fn new([first, second]: [usize; 2], fraction: f32) -> Self {
        let weights = [1.0 - fraction, fraction].map(|w| (w * (1 << BITS) as f32).round_ties_even() as i16);
        Self { at: [first, if weights[1] == 0 { first } else { second }], weights }
    }
}

/// Where weights come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// `INTER_LINEAR`: centres of pixels lie on each other.
    Centre,
    /// `INTER_AREA` that makes a side longer: corners of pixels lie on each other.
    Area,
}

impl Rule {
    /// The first source sample of output sample `o`, perhaps outside, and how far it lies behind it.
    fn place(self, o: usize, input: usize, output: usize) -> (i64, f32) {
        let grown = output as f64 / input as f64;
        let scale = 1.0 / grown;
        match self {
            Rule::Centre => {
                let at = ((o as f64 + 0.5) * scale - 0.5) as f32;
                (at.floor() as i64, at - at.floor())
            }
            Rule::Area => {
                let first = (o as f64 * scale).floor();
                let at = ((o as f64 + 1.0) - (first + 1.0) * grown) as f32;
                (first as i64, if at <= 0.0 { 0.0 } else { at - at.floor() })
            }
        }
    }

    /// Output sample `o` of columns: outside of the source the first or the last one has all the weight.
    fn column(self, o: usize, input: usize, output: usize) -> Tap {
        let (first, fraction) = self.place(o, input, output);
        let last = input as i64 - 1;
        let (first, fraction) = if first < 0 || first >= last { (first, 0.0) } else { (first, fraction) };
        Tap::new([first, first + 1].map(|x| x.clamp(0, last) as usize), fraction)
    }

    /// Output sample `o` of rows: outside of the source the first or the last one is taken twice.
    fn row(self, o: usize, input: usize, output: usize) -> Tap {
        let (first, fraction) = self.place(o, input, output);
        let at = [first, first + 1].map(|y| y.clamp(0, input as i64 - 1) as usize);
        Tap::new(at, fraction)
    }
}

/// The source samples that output samples `range` (not empty) need.
pub(super) fn reach(
    rule: Rule,
    input: usize,
    output: usize,
    range: std::ops::Range<usize>,
) -> std::ops::Range<usize> {
    rule.row(range.start, input, output).at[0]..rule.row(range.end - 1, input, output).at[1] + 1
}

/// What is kept between images.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    columns: Vec<Tap>,
    /// Distance of the first of two samples from the beginning of a row, in bytes, and both weights in one word.
    offsets: Vec<i32>,
    pairs: Vec<i32>,
    rows: Vec<Tap>,
    /// Two weighted rows.
    weighted: Vec<i16>,
    /// Rows of the result.
    lines: Vec<u8>,
}

impl Scratch {
    /// Bytes kept allocated.
    pub(super) fn capacity(&self) -> usize {
        size_of::<Tap>() * (self.columns.capacity() + self.rows.capacity())
            + 4 * (self.offsets.capacity() + self.pairs.capacity())
            + 2 * self.weighted.capacity()
            + self.lines.capacity()
    }
}

/// Makes `memory` at least `len` long.
pub(super) fn grow<T: Clone + Default>(memory: &mut Vec<T>, len: Option<usize>) -> Result<(), GeometryError> {
    let bytes = len.and_then(|len| len.checked_mul(size_of::<T>())).unwrap_or(usize::MAX);
    let len = len.ok_or(GeometryError::Memory { bytes })?;
    if memory.len() < len {
        let more = len - memory.len();
        memory.try_reserve_exact(more).map_err(|_| GeometryError::Memory { bytes })?;
        memory.resize(len, T::default());
    }
    Ok(())
}

/// A resize under way.
pub(super) struct Linear<'a> {
    level: Level,
    window: Rect,
    bands: Bands,
    /// Rows made so far. The last `held` of them are not written yet.
    made: usize,
    held: usize,
    /// Which source rows are weighted: row `y` at place `y % 2`.
    weighted: [Option<usize>; 2],
    sink: Sink<'a>,
    scratch: &'a mut Scratch,
}

impl<'a> Linear<'a> {
    /// Gets ready for the rows `part` of a source of `source` (height, width) that becomes `output`, of which
    /// `window` is wanted. All of it was checked.
    #[allow(clippy::too_many_arguments, reason = "called once, with everything that was checked there")]
    pub(super) fn new(
        level: Level,
        rule: Rule,
        source: (usize, usize),
        output: (usize, usize),
        window: Rect,
        part: Rect,
        channels: usize,
        sink: Sink<'a>,
        scratch: &'a mut Scratch,
    ) -> Result<Self, GeometryError> {
        scratch.columns.clear();
        scratch.rows.clear();
        for (taps, count) in [(&mut scratch.columns, window.width), (&mut scratch.rows, window.height)] {
            let bytes = count.saturating_mul(size_of::<Tap>());
            taps.try_reserve_exact(count).map_err(|_| GeometryError::Memory { bytes })?;
        }
        scratch.columns.extend(window.columns().map(|x| rule.column(x, source.1, output.1)));
        scratch.rows.extend(window.rows().map(|y| rule.row(y, source.0, output.0)));
        let row = window.width.checked_mul(channels);
        grow(&mut scratch.weighted, row.and_then(|row| row.checked_mul(2)))?;
        grow(&mut scratch.lines, row.and_then(|row| row.checked_mul(BAND.min(window.height))))?;
        scratch.offsets.clear();
        scratch.pairs.clear();
        for memory in [&mut scratch.offsets, &mut scratch.pairs] {
            let bytes = window.width.saturating_mul(4);
            memory.try_reserve_exact(window.width).map_err(|_| GeometryError::Memory { bytes })?;
        }
        let pair = |tap: &Tap| i32::from(tap.weights[0]) | i32::from(tap.weights[1]) << 16;
        scratch.pairs.extend(scratch.columns.iter().map(pair));
        Ok(Self {
            level,
            window,
            bands: Bands::new(part, channels),
            made: 0,
            held: 0,
            weighted: [None; 2],
            sink,
            scratch,
        })
    }

    /// As [`super::Stream::push`].
    pub(super) fn push(&mut self, band: Pixels<'_>) -> Result<(), GeometryError> {
        let is_first = self.bands.pixel == 0;
        let first = self.bands.take(&band)?;
        if is_first {
            let offset = |tap: &Tap| ((tap.at[0] - self.bands.part.left) * band.pixel) as i32;
            self.scratch.offsets.extend(self.scratch.columns.iter().map(offset));
        }
        while !self.is_complete() {
            let row = self.scratch.rows[self.made];
            for y in row.at {
                if self.weighted[y % 2] == Some(y) {
                    continue;
                }
                if y >= self.bands.at {
                    return Ok(());
                }
                self.across(band, y - first, y % 2);
                self.weighted[y % 2] = Some(y);
            }
            self.down(row);
        }
        Ok(())
    }

    pub(super) fn is_complete(&self) -> bool {
        self.made == self.window.height
    }

    /// As [`super::Stream::finish`].
    pub(super) fn finish(self) -> Result<(), GeometryError> {
        match self.scratch.rows.get(self.made) {
            None => Ok(()),
            Some(_) => {
                let end = self.scratch.rows.last().map_or(0, |tap| tap.at[1] + 1);
                Err(GeometryError::Missing { what: "rows", start: self.bands.at, end })
            }
        }
    }

    /// Weights row `y` of `band` into a place for weighted rows.
    fn across(&mut self, band: Pixels<'_>, y: usize, place: usize) {
        let width = self.window.width;
        let len = width * self.bands.channels;
        let Scratch { columns, offsets, pairs, weighted, .. } = &mut *self.scratch;
        let to = &mut weighted[place * len..][..len];
        for (c, to) in to.chunks_exact_mut(width).enumerate() {
            let row = &band.planes[c][y * band.stride..];
            let done = match self.level {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: `Resizer` holds no level that the processor lacks.
                Level::Avx2 | Level::Avx512 if band.pixel < 4 => unsafe {
                    avx2::across(row, offsets, pairs, band.pixel, to)
                },
                _ => 0,
            };
            for (tap, to) in columns[done..].iter().zip(&mut to[done..]) {
                let [a, b] = tap.at.map(|x| i32::from(row[(x - self.bands.part.left) * band.pixel]));
                let [wa, wb] = tap.weights.map(i32::from);
                *to = ((a * wa + b * wb) >> 4) as i16;
            }
        }
    }

    /// Makes the next row of the result from the weighted rows.
    fn down(&mut self, row: Tap) {
        let len = self.window.width * self.bands.channels;
        let Scratch { weighted, lines, .. } = &mut *self.scratch;
        let (even, odd) = weighted[..2 * len].split_at(len);
        let [a, b] = row.at.map(|y| if y % 2 == 0 { even } else { odd });
        let to = &mut lines[self.held * len..][..len];
        match self.level {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `Resizer` holds no level that the processor lacks.
            Level::Avx2 | Level::Avx512 => unsafe { avx2::down(a, b, row.weights, to) },
            _ => down(a, b, row.weights, to),
        }
        self.made += 1;
        self.held += 1;
        if self.held == BAND || self.is_complete() {
            let (count, width, channels) = (self.held, self.window.width, self.bands.channels);
            let band = Pixels::planar(&self.scratch.lines, count, width, channels, len, width);
            self.sink.band(self.made - count, band);
            self.held = 0;
        }
    }
}

/// Adds two weighted rows: products lose 16 bits, and two remain to be rounded.
#[inline(always)]
fn down(a: &[i16], b: &[i16], weights: [i16; 2], to: &mut [u8]) {
    let [wa, wb] = weights.map(i32::from);
    for ((to, a), b) in to.iter_mut().zip(a).zip(b) {
        let sum = ((i32::from(*a) * wa) >> 16) + ((i32::from(*b) * wb) >> 16);
        *to = ((sum + 2) >> 2).clamp(0, 255) as u8;
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    /// Weighted samples of one plane, as many as can be loaded from inside `row`; says how many that were.
    ///
    /// A load of four bytes has both samples of an output sample: `pixel` (1 to 3) bytes lie between them.
    ///
    /// # Safety
    /// The processor has AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn across(
        row: &[u8],
        offsets: &[i32],
        pairs: &[i32],
        pixel: usize,
        to: &mut [i16],
    ) -> usize {
        let inside = offsets.partition_point(|offset| *offset as usize + 4 <= row.len());
        let count = inside.min(pairs.len()).min(to.len()) / 16 * 16;
        let (low, shift) = (_mm256_set1_epi32(255), _mm_cvtsi32_si128(8 * pixel as i32));
        for first in (0..count).step_by(16) {
            // SAFETY: sixteen offsets, pairs and places follow `first`, and four bytes each offset, since offsets
            // never decrease.
            unsafe {
                let half = |at: usize| {
                    let offsets = _mm256_loadu_si256(offsets.as_ptr().add(at).cast());
                    let four = _mm256_i32gather_epi32::<1>(row.as_ptr().cast(), offsets);
                    let second = _mm256_and_si256(_mm256_srl_epi32(four, shift), low);
                    let both = _mm256_or_si256(_mm256_and_si256(four, low), _mm256_slli_epi32::<16>(second));
                    let weights = _mm256_loadu_si256(pairs.as_ptr().add(at).cast());
                    _mm256_srai_epi32::<4>(_mm256_madd_epi16(both, weights))
                };
                let packed = _mm256_packs_epi32(half(first), half(first + 8));
                let ordered = _mm256_permute4x64_epi64::<0b11_01_10_00>(packed);
                _mm256_storeu_si256(to.as_mut_ptr().add(first).cast(), ordered);
            }
        }
        count
    }

    /// [`super::down`], which the compiler turns into vectors here.
    ///
    /// # Safety
    /// The processor has AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn down(a: &[i16], b: &[i16], weights: [i16; 2], to: &mut [u8]) {
        super::down(a, b, weights, to);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Filter, Resize, Resizer, Source};
    use super::*;
    use crate::image::{Image, Layout, View};
    use crate::points::PointMap;
    use crate::write::Output;

    fn resized(level: Level, filter: Filter, view: View<'_>, height: usize, width: usize) -> Image {
        let mut image = Image::new();
        let resize = Resize::new(height, width, filter);
        Resizer::with_level(level, 0).resize(view, &resize, &mut image).unwrap();
        image
    }

    #[test]
    fn known_pixels_of_opencv() {
        // cv2.resize of OpenCV 5.0.0 on np.arange(15, dtype=np.uint8).reshape(3, 5) * 17.
        let data: Vec<u8> = (0..15).map(|v| v * 17).collect();
        let view = View::new(&data, 3, 5, 1, 5).unwrap();
        let linear = resized(Level::Scalar, Filter::OpenCvLinear, view, 2, 3);
        assert_eq!(linear.pixels(), KNOWN_LINEAR);
        let area = resized(Level::Scalar, Filter::OpenCvArea, view, 4, 7);
        assert_eq!(area.pixels(), KNOWN_AREA);
    }

    const KNOWN_LINEAR: &[u8] = &[27, 55, 83, 154, 183, 211];
    const KNOWN_AREA: &[u8] = &[
        0, 10, 20, 34, 48, 58, 68, 57, 67, 77, 91, 104, 114, 124, 113, 123, 133, 147, 161, 171, 181, 170,
        180, 190, 204, 218, 228, 238,
    ];

    #[test]
    fn the_first_and_the_last_sample_are_not_passed() {
        for (input, output) in [(1, 1), (1, 9), (9, 1), (2, 3), (3, 2), (640, 224), (7, 1000)] {
            for rule in [Rule::Centre, Rule::Area] {
                for o in 0..output {
                    for tap in [rule.column(o, input, output), rule.row(o, input, output)] {
                        assert!(tap.at[0] <= tap.at[1] && tap.at[1] < input, "{input} {output} {tap:?}");
                        assert!(tap.weights.iter().all(|w| (0..=2048).contains(w)), "{tap:?}");
                    }
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        /// The same bits on every level, in bands of any height, interleaved or planar, and as a window of the whole.
        #[test]
        fn it_makes_no_difference_how_it_is_done(
            (height, width) in (1usize..60, 1usize..90),
            (rows, columns) in (1usize..60, 1usize..90),
            channels in 1usize..=4,
            band in 1usize..20,
            corner in (0.0..1.0, 0.0..1.0),
            area: bool,
            seed: u8,
        ) {
            let filter = if area { Filter::OpenCvArea } else { Filter::OpenCvLinear };
            let byte = |i: usize| (i.wrapping_mul(167).wrapping_add(usize::from(seed)) >> 2) as u8 ^ (i >> 7) as u8;
            let data: Vec<u8> = (0..height * width * channels).map(byte).collect();
            let view = View::new(&data, height, width, channels, width * channels).unwrap();
            let whole = resized(Level::Scalar, filter, view, rows, columns);
            let fast = resized(Level::best(), filter, view, rows, columns);
            prop_assert_eq!(&whole, &fast);

            let (top, left) = ((corner.0 * rows as f64) as usize, (corner.1 * columns as f64) as usize);
            let window = Rect { top, left, height: rows - top, width: columns - left };
            let resize = Resize::new(rows, columns, filter).window(window);
            let planes: Vec<u8> =
                (0..channels).flat_map(|c| data.iter().skip(c).step_by(channels).copied()).collect();
            let planar = Pixels::planar(&planes, height, width, channels, width, height * width);
            let map = PointMap::identity(channels).unwrap();
            for (level, pixels) in [(Level::Scalar, planar), (Level::best(), planar), (Level::best(), view.into())] {
                let mut slot = vec![0; window.height * window.width * channels];
                let mut resizer = Resizer::with_level(level, 0);
                let needed = resizer.source(&resize, (height, width));
                prop_assert!(resize.source_rows(height).start <= needed.0.start);
                prop_assert!(resize.source_rows(height).end >= needed.0.end);
                prop_assert!(resize.source_columns(width).start <= needed.1.start);
                prop_assert!(resize.source_columns(width).end >= needed.1.end);
                let part = Rect {
                    top: needed.0.start,
                    left: needed.1.start,
                    height: needed.0.len(),
                    width: needed.1.len(),
                };
                let pixels = pixels.rows(part.top, part.height).columns(part.left, part.width);
                let output = Output::new(&map, Layout::Hwc);
                let mut stream =
                    resizer.stream(&resize, (height, width), part, channels, output, &mut slot).unwrap();
                for first in (0..part.height).step_by(band) {
                    stream.push(pixels.rows(first, band.min(part.height - first))).unwrap();
                }
                stream.finish().unwrap();
                let cut = whole.view().crop(top, left, window.height, window.width).unwrap();
                let cut: Vec<u8> = (0..window.height).flat_map(|y| cut.row(y).to_vec()).collect();
                prop_assert_eq!(&slot, &cut);
            }
            prop_assert!(Source::part(view, (0, 0), (height, width)).is_ok());
        }
    }
}
