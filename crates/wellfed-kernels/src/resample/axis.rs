//! [`Axis`]: which source samples make an output sample along one axis, and with what weights.
//!
//! Weights are Pillow 13's (`src/libImaging/Resample.c`, `precompute_coeffs` and `normalize_coeffs_8bpc`):
//! the filter at double precision, stretched by the scale when shrinking, normalized to a sum of one, then
//! rounded to 22 fractional bits. torch's (`aten/src/ATen/native/cpu/UpSampleKernel.cpp`,
//! `_compute_index_ranges_int16_weights`) are the same, rounded to as many bits as the largest of the axis leaves in 16:
//! sums of such weights, shifted to 22 bits, round as torch's do. Weights that round to zero at either end are left out: they do not change
//! the sum. Invariant: `start` never decreases from one output sample to the next, and `start + taps` stays
//! inside the source.

use std::f64::consts::PI;
use std::ops::Range;

use crate::level::Level;

/// Fractional bits of a weight: 32 less 8 for the result and 2 for overshoot.
pub(crate) const PRECISION: u32 = 32 - 8 - 2;

/// Interpolation, named as in `torchvision.transforms.InterpolationMode`. Shrinking always antialiases (as
/// Pillow does), except with the two nearest modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Filter {
    /// Pillow's `NEAREST`: the sample under the output pixel's centre.
    Nearest,
    /// torch's `nearest-exact`: the same rule in float32, with another rounding.
    NearestExact,
    /// torch's `nearest`: the sample under the output pixel's first corner, in float32.
    NearestCorner,
    /// The mean over the output pixel's area.
    Box,
    /// A triangle of one pixel to each side.
    Bilinear,
    /// A Hamming window of one pixel to each side.
    Hamming,
    /// Cubic convolution with a = -0.5.
    Bicubic,
    /// A sinc windowed by a sinc, three pixels to each side.
    Lanczos,
    /// `cv2.INTER_NEAREST`: the sample under the output pixel's first corner, in float64.
    OpenCvNearest,
    /// `cv2.INTER_LINEAR`: two samples to each side whatever the scale, see `opencv_linear`.
    OpenCvLinear,
    /// [`Filter::Bilinear`] with the pixels of torch's `interpolate(antialias=True)` of 8-bit tensors.
    TorchBilinear,
    /// [`Filter::Bicubic`] with the pixels of torch's `interpolate(antialias=True)` of 8-bit tensors.
    TorchBicubic,
    /// `cv2.INTER_AREA`: the mean over the output pixel's area, or, where a side grows, a kind of linear.
    OpenCvArea,
}

impl Filter {
    /// Whether each output sample is one source sample.
    pub(crate) fn is_nearest(self) -> bool {
        matches!(self, Filter::Nearest | Filter::NearestExact | Filter::NearestCorner | Filter::OpenCvNearest)
    }

    /// Whether pixels are torch's, and not Pillow's.
    pub(crate) fn is_torch(self) -> bool {
        matches!(self, Filter::TorchBilinear | Filter::TorchBicubic)
    }

    /// Whether it is not Pillow's.
    pub(crate) fn is_foreign(self) -> bool {
        matches!(
            self,
            Filter::NearestExact
                | Filter::NearestCorner
                | Filter::OpenCvNearest
                | Filter::OpenCvLinear
                | Filter::OpenCvArea
                | Filter::TorchBilinear
                | Filter::TorchBicubic
        )
    }

    /// Half the width of the filter, in output pixels when shrinking.
    fn support(self) -> f64 {
        match self {
            // The corner lies half an output pixel from the centre.
            Filter::NearestCorner | Filter::OpenCvNearest => 0.5,
            Filter::Nearest | Filter::NearestExact => 0.0,
            Filter::Box => 0.5,
            Filter::Bilinear
            | Filter::TorchBilinear
            | Filter::Hamming
            | Filter::OpenCvLinear
            | Filter::OpenCvArea => 1.0,
            Filter::Bicubic | Filter::TorchBicubic => 2.0,
            Filter::Lanczos => 3.0,
        }
    }
}

/// A side of a source and the part of it that is resampled. Its ends are float32, as Pillow's `box` has them, kept as bits
/// so that spans can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Span {
    /// Samples of the side, at least 1.
    pub(crate) len: usize,
    from: u32,
    to: u32,
}

impl Span {
    /// All of a side.
    pub(crate) fn whole(len: usize) -> Self {
        Self::new(len, 0.0, len as f32)
    }

    /// What lies between two places, which count in samples from the side's beginning.
    pub(crate) fn new(len: usize, from: f32, to: f32) -> Self {
        // Of the two zeros the plain one.
        Self { len, from: (from + 0.0).to_bits(), to: to.to_bits() }
    }

    fn from(self) -> f64 {
        f64::from(f32::from_bits(self.from))
    }

    /// Source samples that an output sample stands for. Pillow subtracts in float32.
    fn scale(self, output: usize) -> f64 {
        f64::from(f32::from_bits(self.to) - f32::from_bits(self.from)) / output as f64
    }

    /// Whether `output` samples are those of the side itself.
    pub(crate) fn keeps(self, output: usize) -> bool {
        self.len == output && self == Self::whole(output)
    }
}

fn box_(x: f64) -> f64 {
    if x > -0.5 && x <= 0.5 { 1.0 } else { 0.0 }
}

fn bilinear(x: f64) -> f64 {
    let x = x.abs();
    if x < 1.0 { 1.0 - x } else { 0.0 }
}

fn hamming(x: f64) -> f64 {
    let x = x.abs();
    if x == 0.0 {
        return 1.0;
    }
    if x >= 1.0 {
        return 0.0;
    }
    let x = x * PI;
    // Pillow's constants are float literals.
    x.sin() / x * (f64::from(0.54f32) + f64::from(0.46f32) * x.cos())
}

fn bicubic(x: f64) -> f64 {
    const A: f64 = -0.5;
    let x = x.abs();
    if x < 1.0 {
        ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        (((x - 5.0) * x + 8.0) * x - 4.0) * A
    } else {
        0.0
    }
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 {
        return 1.0;
    }
    let x = x * PI;
    x.sin() / x
}

fn lanczos(x: f64) -> f64 {
    if (-3.0..3.0).contains(&x) { sinc(x) * sinc(x / 3.0) } else { 0.0 }
}

/// Four weights as bytes: `k = b2 * 2^16 + b1 * 2^8 + b0` with each `b` in -128..=127, one word of four taps
/// a byte. This is what the dot products of AVX-512 VNNI take.
pub(crate) type Bytes = [u32; 3];

/// Fractional bits below the upper half of a weight.
pub(crate) const HALF_BITS: i32 = 15;

/// A weight as `[high, low]`: `k = high * 2^15 + low`, both within 16 bits. This is what AVX2's multiply-adds
/// take.
#[inline]
pub(crate) fn halves(k: i32) -> [i16; 2] {
    let high = (k + (1 << (HALF_BITS - 1))) >> HALF_BITS;
    [high as i16, (k - (high << HALF_BITS)) as i16]
}

/// One or two weights as `[high, low]`, the second's halves in the upper 16 bits.
#[inline]
pub(crate) fn pair(two: &[i32]) -> [u32; 2] {
    let (one, two) = (halves(two[0]), halves(two.get(1).copied().unwrap_or(0)));
    [0, 1].map(|part| u32::from(one[part] as u16) | u32::from(two[part] as u16) << 16)
}

/// The `[high, low]` of the second of two weights whose sum is exactly one and that lie between zero and one:
/// `w = high * 2^15 + low`. Then `a * (1 - w) + b * w`, rounded, is `a + ((d * high + (d * low >> 15) + 64) >>
/// 7)` with `d = b - a`: all in 16 bits, and exact, since rounding down twice is rounding down once.
#[inline]
pub(crate) fn mix(weights: &[i32]) -> Option<[i16; 2]> {
    const ONE: i32 = 1 << PRECISION;
    let second = match weights {
        [ONE] => 0,
        [a, b] if a + b == ONE && *a >= 0 && *b >= 0 => *b,
        _ => return None,
    };
    Some([(second >> HALF_BITS) as i16, (second & ((1 << HALF_BITS) - 1)) as i16])
}

/// Fractional bits with which weights up to `largest` stay within 16 bits: torch's choice.
fn bits_in_16(largest: f64) -> u32 {
    let next = |bits: u32| (0.5 + largest * f64::from(1 << (bits + 1))) as i32;
    (0..PRECISION).find(|bits| next(*bits) >= 1 << 15).unwrap_or(PRECISION)
}

/// Which source samples make output samples, and with what weights, as plain tables for kernels that run elsewhere.
/// Neither `starts` nor the ends, `starts + lens`, decrease from one output sample to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AxisTable {
    /// First source sample of each output sample.
    pub starts: Vec<i32>,
    /// Source samples of each output sample, 1 to `taps`.
    pub lens: Vec<i32>,
    /// The most source samples that an output sample has.
    pub taps: usize,
    /// `taps` weights for each output sample, in units of 2^-22: zero from its `lens` on. The rounded sum, shifted by
    /// 22 bits and cut off at 0 and 255, is the output sample.
    pub weights: Vec<i32>,
}

impl AxisTable {
    /// The table that takes `input` samples to those of `window` out of `output`.
    pub(super) fn new(input: usize, output: usize, filter: Filter, window: Range<usize>) -> Self {
        let axis = Axis::new(Span::whole(input), output, filter, Level::Scalar);
        let starts: Vec<i32> = window.clone().map(|o| axis.starts[o]).collect();
        // Weights that were left out at the end come back as zeros where ends would decrease.
        let mut end = 0;
        let ends = window.clone().map(|o| {
            end = end.max(axis.starts[o] + axis.lens[o] as i32);
            end
        });
        let lens: Vec<i32> = ends.zip(&starts).map(|(end, start)| end - start).collect();
        let taps = lens.iter().copied().max().unwrap_or(1) as usize;
        let mut weights = vec![0; taps * lens.len()];
        for (row, o) in weights.chunks_exact_mut(taps).zip(window) {
            if filter.is_nearest() {
                row[0] = 1 << PRECISION;
            } else {
                let of = axis.at(o).1;
                row[..of.len()].copy_from_slice(of);
            }
        }
        Self { starts, lens, taps, weights }
    }
}

/// Weights along one axis, for every output sample.
#[derive(Debug, Default)]
pub(crate) struct Axis {
    /// First source sample of each output sample.
    starts: Vec<i32>,
    /// Source samples of each output sample, at most `taps`.
    lens: Vec<u32>,
    /// The largest of `lens`, at least 1.
    taps: usize,
    /// `taps` weights for each output sample; those past its `len` are zero.
    weights: Vec<i32>,
    /// For each group of 4 taps, for each of 3 bytes (high first), for each output sample: the four bytes.
    bytes: Vec<u32>,
    /// For each pair of taps, for the high halves and the low ones, for each output sample: both taps' halves,
    /// the second tap's in the upper 16 bits.
    pairs: Vec<u32>,
    /// If every output sample lies between two source samples, see [`Axis::mix`]: the high and the low half of
    /// the second one's weight, for each output sample.
    mix: Vec<u16>,
    /// For each output sample, `padded` high halves of weights and as many low ones; only where output samples
    /// are too far apart for the kernels that make several at once.
    far: Vec<i16>,
    /// The most source samples from the first one of an output sample to that of the 3rd, 7th, 15th and 31st
    /// after it.
    spans: [usize; 4],
    /// Whether no weight is negative.
    positive: bool,
}

/// The source samples that output samples `range` (not empty) may need: at least those of [`Axis::source`], found
/// without making weights, since this is asked once per image and its cost would show.
pub(crate) fn reach(input: Span, output: usize, filter: Filter, range: Range<usize>) -> Range<usize> {
    let scale = input.scale(output);
    // One more on each side covers the rounding of nearest filters and of trimmed weights.
    let stretch = if filter == Filter::OpenCvLinear { 1.0 } else { scale.max(1.0) };
    let support = filter.support() * stretch + 1.0;
    let center = |o: usize| input.from() + (o as f64 + 0.5) * scale;
    let first = (center(range.start) - support).max(0.0) as usize;
    let last = (center(range.end - 1) + support).ceil() as usize;
    first.min(input.len - 1)..last.clamp(1, input.len)
}

/// Spare output samples at the end of each array, so that kernels may load a whole vector of 16 anywhere.
pub(crate) const SPARE: usize = 64;

impl Axis {
    /// Builds the weights that take `input` to `output` samples, at least 1, in the forms that `level` uses.
    pub(crate) fn new(input: Span, output: usize, filter: Filter, level: Level) -> Self {
        let mut axis = Axis::default();
        if filter.is_nearest() {
            axis.nearest(input, output, filter);
            return axis;
        }
        match filter {
            // Picked above, or made without an axis.
            Filter::Nearest
            | Filter::NearestExact
            | Filter::NearestCorner
            | Filter::OpenCvNearest
            | Filter::OpenCvLinear
            | Filter::OpenCvArea => {}
            Filter::Box => axis.weigh(input, output, filter, box_),
            Filter::Bilinear | Filter::TorchBilinear => axis.weigh(input, output, filter, bilinear),
            Filter::Hamming => axis.weigh(input, output, filter, hamming),
            Filter::Bicubic | Filter::TorchBicubic => axis.weigh(input, output, filter, bicubic),
            Filter::Lanczos => axis.weigh(input, output, filter, lanczos),
        }
        if level != Level::Scalar {
            axis.vectors(level);
        }
        axis
    }

    /// Fills what the vector kernels of `level` take.
    fn vectors(&mut self, level: Level) {
        let samples = self.len();
        self.positive = self.weights.iter().all(|k| *k >= 0);
        self.spans = [4, 8, 16, 32].map(|n| {
            let ends = self.starts[(n - 1).min(samples - 1)..].iter();
            ends.zip(&self.starts).map(|(end, start)| end - start).max().unwrap_or(0) as usize
        });
        if self.taps <= 2 && (0..samples).all(|o| mix(self.at(o).1).is_some()) {
            let weights = |o| mix(self.at(o).1).unwrap_or([0; 2]);
            let spare = [0; SPARE];
            let [high, low] =
                [0, 1].map(|part| (0..samples).map(move |o| weights(o)[part] as u16).chain(spare));
            self.mix = high.chain(low).collect();
        }
        let reach = match level {
            Level::Avx512 => {
                self.split();
                self.spans[2] + 4 > 128
            }
            _ => {
                self.pair_up();
                self.spans[0] + 4 > 16
            }
        };
        if reach {
            let padded = self.padded();
            self.far = vec![0; samples * 2 * padded];
            for (weights, to) in
                self.weights.chunks_exact(self.taps).zip(self.far.chunks_exact_mut(2 * padded))
            {
                for (t, k) in weights.iter().enumerate() {
                    [to[t], to[padded + t]] = halves(*k);
                }
            }
        }
        let last = self.starts.last().copied().unwrap_or(0);
        self.starts.resize(samples + SPARE, last);
    }

    fn nearest(&mut self, span: Span, output: usize, filter: Filter) {
        let input = span.len;
        let last = input as i32 - 1;
        self.taps = 1;
        self.lens = vec![1; output];
        self.starts = if filter == Filter::Nearest {
            // ImagingScaleAffine adds up the step, and so must we: a product rounds differently.
            let step = span.scale(output);
            let mut at = span.from() + step * 0.5;
            let mut next = || {
                let index = at as i32;
                at += step;
                index.min(last)
            };
            (0..output).map(|_| next()).collect()
        } else if filter == Filter::OpenCvNearest {
            let step = 1.0 / (output as f64 / input as f64);
            (0..output).map(|o| ((o as f64 * step).floor() as i32).min(last)).collect()
        } else {
            let (scale, at) =
                (input as f32 / output as f32, if filter == Filter::NearestExact { 0.5 } else { 0.0 });
            (0..output).map(|o| (((o as f32 + at) * scale).floor() as i32).min(last)).collect()
        };
    }

    fn weigh(&mut self, input: Span, output: usize, filter: Filter, value: impl Fn(f64) -> f64) {
        let scale = input.scale(output);
        let stretch = scale.max(1.0);
        let support = filter.support() * stretch;
        let inverse = 1.0 / stretch;
        let widest = support.ceil() as usize * 2 + 1;
        // Fills in the weights of output sample `o`; says which source sample is the first, and how many there are.
        let weights_of = |o: usize, exact: &mut [f64]| {
            let center = input.from() + (o as f64 + 0.5) * scale;
            let first = ((center - support + 0.5) as i64).max(0);
            let last = ((center + support + 0.5) as i64).min(input.len as i64);
            let count = ((last - first).max(0) as usize).min(widest);
            let exact = &mut exact[..count];
            let mut sum = 0.0;
            for (i, w) in exact.iter_mut().enumerate() {
                *w = value(((i as i64 + first) as f64 - center + 0.5) * inverse);
                sum += *w;
            }
            if sum != 0.0 {
                for w in exact.iter_mut() {
                    *w /= sum;
                }
            }
            (first, count)
        };
        let mut exact = vec![0.0f64; widest];
        let bits = if filter.is_torch() {
            let largest = (0..output).map(|o| {
                let (_, count) = weights_of(o, &mut exact);
                exact[..count].iter().copied().fold(0.0, f64::max)
            });
            bits_in_16(largest.fold(0.0, f64::max))
        } else {
            PRECISION
        };
        let mut weights = vec![0i32; output * widest];
        self.starts.reserve(output + SPARE);
        self.lens.reserve(output);
        self.taps = 1;
        for (o, rounded) in weights.chunks_exact_mut(widest).enumerate() {
            let (first, count) = weights_of(o, &mut exact);
            for (k, w) in rounded.iter_mut().zip(&exact[..count]) {
                let scaled = w * f64::from(1 << bits);
                let whole = if *w < 0.0 { (scaled - 0.5) as i32 } else { (scaled + 0.5) as i32 };
                *k = whole << (PRECISION - bits);
            }
            let end = rounded.iter().rposition(|k| *k != 0).map_or(0, |i| i + 1);
            let begin = rounded.iter().position(|k| *k != 0).unwrap_or(0);
            rounded.copy_within(begin..end, 0);
            rounded[end - begin..].fill(0);
            let end = end.max(begin + 1);
            self.starts.push(first as i32 + begin as i32);
            self.lens.push((end - begin) as u32);
        }
        // Trimming must not make `start` decrease from one sample to the next: give a zero weight back where
        // it does.
        for o in (0..output.saturating_sub(1)).rev() {
            let back = self.starts[o] - self.starts[o + 1];
            if back > 0 {
                let (back, len) = (back as usize, self.lens[o] as usize);
                let row = &mut weights[o * widest..(o + 1) * widest];
                row.copy_within(..len, back);
                row[..back].fill(0);
                self.starts[o] -= back as i32;
                self.lens[o] += back as u32;
            }
        }
        self.taps = self.lens.iter().copied().max().unwrap_or(1) as usize;
        self.weights.reserve_exact(output * self.taps);
        for row in weights.chunks_exact(widest) {
            self.weights.extend_from_slice(&row[..self.taps]);
        }
    }

    /// Fills `bytes` from `weights`.
    fn split(&mut self) {
        let output = self.lens.len();
        let padded = output + SPARE;
        self.bytes = vec![0; self.groups() * 3 * padded];
        for (o, weights) in self.weights.chunks_exact(self.taps).enumerate() {
            for (g, four) in weights.chunks(4).enumerate() {
                let mut words = [0u32; 3];
                for (t, k) in four.iter().enumerate() {
                    let low = *k as i8;
                    let rest = (k - i32::from(low)) >> 8;
                    let middle = rest as i8;
                    let high = (rest - i32::from(middle)) >> 8;
                    debug_assert_eq!(high, i32::from(high as i8), "a weight fits three signed bytes");
                    for (word, byte) in words.iter_mut().zip([high as i8, middle, low]) {
                        *word |= u32::from(byte as u8) << (8 * t);
                    }
                }
                for (b, word) in words.into_iter().enumerate() {
                    self.bytes[(g * 3 + b) * padded + o] = word;
                }
            }
        }
    }

    /// Fills `pairs` from `weights`.
    fn pair_up(&mut self) {
        let padded = self.len() + SPARE;
        self.pairs = vec![0; self.pairs() * 2 * padded];
        for (o, weights) in self.weights.chunks_exact(self.taps).enumerate() {
            for (p, two) in weights.chunks(2).enumerate() {
                for (part, word) in pair(two).into_iter().enumerate() {
                    self.pairs[(p * 2 + part) * padded + o] = word;
                }
            }
        }
    }

    /// Output samples.
    pub(crate) fn len(&self) -> usize {
        self.lens.len()
    }

    /// The most source samples that an output sample has.
    pub(crate) fn taps(&self) -> usize {
        self.taps
    }

    /// Whether each output sample is one source sample; then there are no weights.
    pub(crate) fn picks(&self) -> bool {
        self.weights.is_empty()
    }

    /// Groups of 4 taps.
    pub(crate) fn groups(&self) -> usize {
        self.taps.div_ceil(4)
    }

    /// First source sample and weights of output sample `o`.
    #[inline]
    pub(crate) fn at(&self, o: usize) -> (usize, &[i32]) {
        let first = o * self.taps;
        (self.starts[o] as usize, &self.weights[first..first + self.lens[o] as usize])
    }

    /// First source sample of output sample `o`.
    #[inline]
    pub(crate) fn start(&self, o: usize) -> usize {
        self.starts[o] as usize
    }

    /// First source samples, [`SPARE`] more of them than output samples.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub(crate) fn starts(&self) -> &[i32] {
        &self.starts
    }

    /// For tap group `g` and byte `b` (high first): a word for each output sample, and [`SPARE`] zeros.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub(crate) fn words(&self, g: usize, b: usize) -> &[u32] {
        let padded = self.len() + SPARE;
        &self.bytes[(g * 3 + b) * padded..][..padded]
    }

    /// The three words of output sample `o` in tap group `g`.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub(crate) fn group(&self, g: usize, o: usize) -> Bytes {
        [0, 1, 2].map(|b| self.words(g, b)[o])
    }

    /// Pairs of taps.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub(crate) fn pairs(&self) -> usize {
        self.taps.div_ceil(2)
    }

    /// For pair `p` of taps and the high halves (`part` 0) or the low ones (1): a word for each output sample, and
    /// [`SPARE`] zeros.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub(crate) fn pair_words(&self, p: usize, part: usize) -> &[u32] {
        let padded = self.len() + SPARE;
        &self.pairs[(p * 2 + part) * padded..][..padded]
    }

    /// The high and the low half of the second weight of each output sample, and [`SPARE`] zeros, if each is a
    /// mean of two source samples as [`mix`] says.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub(crate) fn mix(&self) -> Option<[&[u16]; 2]> {
        let (high, low) = self.mix.split_at(self.mix.len() / 2);
        (!high.is_empty()).then_some([high, low])
    }

    /// Whether no weight is negative: then every weighted sum is between 0 and 255.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub(crate) fn is_positive(&self) -> bool {
        self.positive
    }

    /// Taps rounded up to what [`Axis::far`] has.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub(crate) fn padded(&self) -> usize {
        self.taps.next_multiple_of(16)
    }

    /// The high halves of output sample `o`'s weights, then the low ones, [`Axis::padded`] each; where output
    /// samples are far apart.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub(crate) fn far(&self, o: usize) -> Option<&[i16]> {
        let padded = self.padded();
        self.far.get(o * 2 * padded..(o + 1) * 2 * padded)
    }

    /// The most source samples from the first of an output sample to the first of the 3rd, 7th, 15th and 31st
    /// output sample after it.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub(crate) fn spans(&self) -> [usize; 4] {
        self.spans
    }

    /// Source samples that output sample `o` needs.
    #[inline]
    pub(crate) fn needs(&self, o: usize) -> Range<usize> {
        let start = self.starts[o] as usize;
        start..start + self.lens[o] as usize
    }

    /// Source samples that the output samples of `range` need. Empty for an empty range.
    pub(crate) fn source(&self, range: Range<usize>) -> Range<usize> {
        let ends = range.clone().map(|o| self.starts[o] as usize + self.lens[o] as usize);
        match (self.starts[range].first(), ends.max()) {
            (Some(first), Some(end)) => *first as usize..end,
            _ => 0..0,
        }
    }

    /// Bytes of memory.
    pub(crate) fn size(&self) -> usize {
        let words =
            self.starts.capacity() + self.lens.capacity() + self.weights.capacity() + self.bytes.capacity();
        4 * (words + self.pairs.capacity()) + 2 * (self.mix.capacity() + self.far.capacity())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMOOTH: [Filter; 7] = [
        Filter::Box,
        Filter::Bilinear,
        Filter::Hamming,
        Filter::Bicubic,
        Filter::Lanczos,
        Filter::TorchBilinear,
        Filter::TorchBicubic,
    ];

    #[test]
    fn reach_covers_every_weight_and_little_more() {
        for filter in SMOOTH.into_iter().chain([Filter::Nearest, Filter::NearestExact, Filter::NearestCorner])
        {
            for (input, output) in [(1, 9), (7, 3), (3, 7), (270, 224), (500, 341), (1000, 13), (31, 4096)] {
                let axis = Axis::new(Span::whole(input), output, filter, Level::Scalar);
                for range in [0..1, 0..output, output / 3..output / 2 + 1, output - 1..output] {
                    let (exact, reach) = (
                        axis.source(range.clone()),
                        reach(Span::whole(input), output, filter, range.clone()),
                    );
                    assert!(reach.start <= exact.start && exact.end <= reach.end && reach.end <= input);
                    assert!(
                        reach.len() <= exact.len() + 6 + input / output,
                        "{filter:?} {input} {output} {range:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn weights_sum_to_one_and_stay_inside() {
        for filter in SMOOTH {
            for (input, output) in
                [(1, 1), (1, 9), (7, 3), (3, 7), (270, 224), (500, 341), (1000, 13), (64, 32)]
            {
                let axis = Axis::new(Span::whole(input), output, filter, Level::Scalar);
                assert_eq!(axis.len(), output);
                let mut before = 0;
                for o in 0..output {
                    let (start, weights) = axis.at(o);
                    let sum: i32 = weights.iter().sum();
                    // torch's have 13 bits at least.
                    let unit = if filter.is_torch() { 1 << (PRECISION - 13) } else { 1 };
                    let off = (sum - (1 << PRECISION)).unsigned_abs() as usize;
                    assert!(off <= unit * weights.len(), "{filter:?}");
                    assert!(
                        start >= before && start + weights.len() <= input,
                        "{filter:?} {input} {output} {o}"
                    );
                    before = start;
                }
            }
        }
    }

    #[test]
    fn weights_of_torch_fill_16_bits() {
        assert_eq!([0.1, 0.25, 0.5, 0.99996, 1.0].map(bits_in_16), [18, 16, 15, 15, 14]);
        for (input, output, bits) in [(64, 32, 16), (33, 70, 14), (1000, 10, 21)] {
            let axis = Axis::new(Span::whole(input), output, Filter::TorchBilinear, Level::Scalar);
            let all = || (0..output).flat_map(|o| axis.at(o).1);
            assert!(all().all(|k| k.trailing_zeros() >= PRECISION - bits), "{input} to {output}");
            assert!(all().any(|k| k.trailing_zeros() == PRECISION - bits), "{input} to {output}");
        }
    }

    #[test]
    fn words_hold_the_weights() {
        for filter in SMOOTH {
            let axis = Axis::new(Span::whole(97), 31, filter, Level::Avx512);
            for o in 0..axis.len() {
                let (_, weights) = axis.at(o);
                for (t, k) in weights.iter().enumerate() {
                    let words = axis.group(t / 4, o);
                    let sum = words
                        .iter()
                        .fold(0, |sum, w| sum * 256 + i32::from((w >> (8 * (t % 4))) as u8 as i8));
                    assert_eq!(sum, *k);
                }
            }
        }
    }

    #[test]
    fn nearest_takes_the_middle() {
        let axis = Axis::new(Span::whole(4), 2, Filter::Nearest, Level::Scalar);
        assert_eq!((axis.start(0), axis.start(1)), (1, 3));
        let axis = Axis::new(Span::whole(5), 2, Filter::NearestCorner, Level::Scalar);
        assert_eq!(axis.starts, [0, 2]);
        let axis = Axis::new(Span::whole(2), 4, Filter::NearestExact, Level::Scalar);
        assert_eq!([0, 1, 2, 3].map(|o| axis.start(o)), [0, 0, 1, 1]);
    }
}
