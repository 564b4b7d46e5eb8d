//! Another sample rate: convolution with a windowed sinc, one set of coefficients for each phase.
//!
//! Coefficients and values are those of `torchaudio.transforms.Resample` (torchaudio 2.11) or, if computed in single precision, of
//! `torchaudio.functional.resample` of a float32 waveform. After J. O. Smith, *Digital Audio Resampling*, <https://ccrma.stanford.edu/~jos/resample/>.

use std::f64::consts::PI;

use crate::{
    Error, Result,
    lanes::{self, Kernel, Lanes},
    tile,
};

/// The window over the sinc.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ResamplingMethod {
    /// A squared cosine.
    SincInterpHann,
    /// Kaiser's window with this beta. torchaudio's default is [`KAISER_BETA`].
    SincInterpKaiser(f64),
}

/// Beta of Kaiser's window that torchaudio takes by default.
pub const KAISER_BETA: f64 = 14.769_656_459_379_492;

/// Parameters, as torchaudio's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ResampleOptions {
    /// Zero crossings of the sinc on either side. Default: 6.
    pub lowpass_filter_width: u32,
    /// Share of the Nyquist frequency at which the filter ends, above 0, at most 1. Default: 0.99.
    pub rolloff: f64,
    /// Default: [`ResamplingMethod::SincInterpHann`].
    pub method: ResamplingMethod,
    /// Whether coefficients are computed in float32, as torchaudio does with `dtype=torch.float32` and in `functional.resample`. They
    /// are up to 1.5e-5 from those that are computed in float64 and rounded then. Default: false.
    pub single: bool,
}

impl Default for ResampleOptions {
    fn default() -> Self {
        Self {
            lowpass_filter_width: 6,
            rolloff: 0.99,
            method: ResamplingMethod::SincInterpHann,
            single: false,
        }
    }
}

/// Coefficients that one filter may have: those of 48,000 to 47,999 Hz with 6 zero crossings are 4.6 million.
const MOST_COEFFICIENTS: u64 = 1 << 26;

/// A change of rate with its coefficients, to be made once and used for all samples.
#[derive(Clone, Debug)]
pub struct Resample {
    /// Rates without their common divisor.
    from: usize,
    to: usize,
    /// Samples before the first one that is looked at.
    width: usize,
    /// Coefficients of each phase.
    taps: usize,
    /// Samples that a round looks at.
    span: usize,
    phases: Vec<Phase>,
    coefficients: Vec<f32>,
}

/// One of the places between two samples that there are at the new rate: where the first sample lies whose coefficient is not 0.
#[derive(Clone, Copy, Debug)]
struct Phase {
    /// Rounds after its own.
    round: usize,
    /// Place in that round.
    place: usize,
}

impl Resample {
    /// From `orig_freq` to `new_freq`, Hz.
    ///
    /// # Errors
    ///
    /// For a rate of 0, a filter width of 0, a rolloff outside of (0, 1], and rates whose filters would take more than 256 MiB.
    pub fn new(orig_freq: u32, new_freq: u32, options: ResampleOptions) -> Result<Self> {
        let ResampleOptions { lowpass_filter_width, rolloff, method, single } = options;
        if orig_freq == 0 || new_freq == 0 {
            return Err(Error::argument(format!(
                "resample from {orig_freq} to {new_freq} Hz: rates are above 0"
            )));
        }
        if lowpass_filter_width == 0 {
            return Err(Error::argument("resample: lowpass_filter_width is at least 1, and 0 was given"));
        }
        if !(rolloff > 0.0 && rolloff <= 1.0) {
            return Err(Error::argument(format!(
                "resample: rolloff is above 0 and at most 1, and {rolloff} was given"
            )));
        }
        let divisor = gcd(orig_freq, new_freq);
        let (from, to) = (orig_freq / divisor, new_freq / divisor);
        let lowpass = f64::from(lowpass_filter_width);
        let base = f64::from(from.min(to)) * rolloff;
        // Samples on either side of a place whose coefficients are not 0.
        let reach = lowpass * f64::from(from) / base;
        let width = reach.ceil();
        let taps = (2.0 * width + 1.0).max(1.0);
        if from != to && taps * f64::from(to) > MOST_COEFFICIENTS as f64 {
            return Err(Error::argument(format!(
                "resample from {orig_freq} to {new_freq} Hz takes {to} filters of {taps} coefficients; the limit is \
                 {MOST_COEFFICIENTS} in all"
            )));
        }
        let mut this = Self {
            from: from as usize,
            to: to as usize,
            width: width as usize,
            taps: taps as usize,
            span: 0,
            phases: Vec::new(),
            coefficients: Vec::new(),
        };
        if from != to {
            let scale = base / f64::from(from);
            let window = Window::new(method, lowpass);
            this.coefficients.reserve_exact(this.to * this.taps);
            for phase in 0..to {
                let place = f64::from(phase) * f64::from(from) / f64::from(to);
                let first = (place - reach).ceil() as i64 + width as i64;
                let first = usize::try_from(first).unwrap_or(0);
                this.phases.push(Phase { round: first / this.from, place: first % this.from });
                this.span = this.span.max(first + this.taps);
                for tap in first..first + this.taps {
                    if single {
                        let place = tap as f32 - width as f32;
                        let time = -(phase as f32) / to as f32 + place / from as f32;
                        this.coefficients.push(window.single(
                            time * base as f32,
                            lowpass as f32,
                            scale as f32,
                        ));
                        continue;
                    }
                    let time = (tap as f64 - width) / f64::from(from) - f64::from(phase as f32 / to as f32);
                    let t = time * base;
                    let coefficient = if t.abs() < lowpass {
                        let sinc = if t == 0.0 { 1.0 } else { (t * PI).sin() / (t * PI) };
                        sinc * window.at(t) * scale
                    } else {
                        0.0
                    };
                    this.coefficients.push(coefficient as f32);
                }
            }
        }
        Ok(this)
    }

    /// `torchaudio.transforms.Speed`: a sound of so many Hz that is `factor` times as fast, and as high, at the same rate. Of several
    /// factors `SpeedPerturbation` draws one.
    ///
    /// # Errors
    ///
    /// For a factor that is not above 0 or makes a rate of 0, and as [`Resample::new`].
    pub fn speed(orig_freq: u32, factor: f64) -> Result<Self> {
        let source = (factor * f64::from(orig_freq)).trunc();
        if !(1.0..=f64::from(u32::MAX)).contains(&source) {
            return Err(Error::argument(format!("a speed of {factor} at {orig_freq} Hz")));
        }
        Self::new(source as u32, orig_freq, ResampleOptions::default())
    }

    /// Samples that so many become.
    pub fn len_of(&self, samples: usize) -> usize {
        usize::try_from((samples as u128 * self.to as u128).div_ceil(self.from as u128)).unwrap_or(usize::MAX)
    }

    /// Appends the samples at the new rate. `padded` is a place to work in.
    pub fn apply(&self, samples: &[f32], padded: &mut Vec<f32>, out: &mut Vec<f32>) {
        if self.from == self.to || samples.is_empty() {
            out.extend_from_slice(samples);
            return;
        }
        let (begin, len) = (out.len(), self.len_of(samples.len()));
        out.resize(begin + len, 0.0);
        lanes::run(Rounds { resample: self, samples, work: padded, out: &mut out[begin..] });
    }
}

/// Samples that are worked on at a time, so that they stay in the second level of cache.
const BLOCK: usize = 1 << 14;

/// Registers of rounds that are computed side by side: a coefficient is spread over a register once for all of them.
const SIDE: usize = 4;

/// The work of [`Resample::apply`]: samples at the same place of several rounds lie side by side, so that a round is a lane, and a
/// coefficient is the same for all lanes.
struct Rounds<'a> {
    resample: &'a Resample,
    samples: &'a [f32],
    work: &'a mut Vec<f32>,
    out: &'a mut [f32],
}

impl Kernel for Rounds<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Resample { from, to, width, taps, span, ref phases, ref coefficients } = *self.resample;
        let (rounds, group) = (self.out.len().div_ceil(to), SIDE * L::N);
        // Of few rounds, no more than there are, and whole groups.
        let block = (BLOCK / from.max(to)).clamp(group, 1 << 12).min(rounds).next_multiple_of(group);
        // A row has one place of each round. Rows are an odd number of registers apart: not all in the same lines of cache.
        let used = block + span.div_ceil(from);
        let row = used.next_multiple_of(L::N);
        let row = if row.is_multiple_of(2 * L::N) { row + L::N } else { row };
        // What is not written by `fill` or below is not read.
        self.work.resize(from * row + to * block, 0.0);
        let (places, values) = self.work.split_at_mut(from * row);
        let mut offsets = Vec::with_capacity(taps);
        for first in (0..rounds).step_by(block) {
            // Sample `i` of what is at `begin` has place `i % from` in round `i / from`.
            fill(places, row, used, from, self.samples, (first * from) as isize - width as isize);
            for ((phase, coefficients), values) in
                phases.iter().zip(coefficients.chunks_exact(taps)).zip(values.chunks_exact_mut(block))
            {
                offsets.clear();
                let (mut place, mut round) = (phase.place, phase.round);
                for _ in 0..taps {
                    offsets.push(place * row + round);
                    place += 1;
                    if place == from {
                        (place, round) = (0, round + 1);
                    }
                }
                for (number, group) in values.chunks_exact_mut(group).enumerate() {
                    let places = &places[number * SIDE * L::N..];
                    let mut sums = [L::ZERO; SIDE];
                    for (offset, coefficient) in offsets.iter().zip(coefficients) {
                        let samples = &places[*offset..][..SIDE * L::N];
                        for (sum, samples) in sums.iter_mut().zip(samples.chunks_exact(L::N)) {
                            *sum = *sum + L::read(samples) * *coefficient;
                        }
                    }
                    sums.into_iter().zip(group.chunks_exact_mut(L::N)).for_each(|(sum, out)| sum.write(out));
                }
            }
            let out = &mut self.out[first * to..];
            let len = out.len().min(block * to);
            put_together(&mut out[..len], to, values, block);
        }
    }
}

/// Phases side by side, as many of each as there are rounds.
#[inline(always)]
fn put_together(out: &mut [f32], to: usize, values: &[f32], block: usize) {
    // Of two phases the compiler does several at once, if it knows that there are two.
    if to == 2 {
        let (pairs, rest) = out.as_chunks_mut::<2>();
        let (one, other) = values.split_at(block);
        for (pair, (one, other)) in pairs.iter_mut().zip(one.iter().zip(other)) {
            *pair = [*one, *other];
        }
        let last = pairs.len();
        rest.iter_mut().for_each(|value| *value = one[last]);
        return;
    }
    for (round, out) in out.chunks_mut(to).enumerate() {
        for (value, row) in out.iter_mut().zip(values.chunks_exact(block)) {
            *value = row[round];
        }
    }
}

/// Fills the first `used` places of rows with every `from`th sample, from `begin` on; what lies beyond the signal is 0.
#[inline(always)]
fn fill(places: &mut [f32], row: usize, used: usize, from: usize, samples: &[f32], begin: isize) {
    // Rounds before the first that has all of its samples, and those that have.
    let before = if begin < 0 { begin.unsigned_abs().div_ceil(from).min(used) } else { 0 };
    let start = usize::try_from(begin + (before * from) as isize).unwrap_or(usize::MAX);
    let within = samples.get(start..).unwrap_or_default();
    let count = (within.len() / from).min(used - before);
    for round in (0..before).chain(before + count..used) {
        for (place, values) in places.chunks_exact_mut(row).enumerate() {
            let at = begin + (round * from + place) as isize;
            values[round] = usize::try_from(at).ok().and_then(|at| samples.get(at)).copied().unwrap_or(0.0);
        }
    }
    let within = &within[..count * from];
    match from {
        1 => places[before..][..count].copy_from_slice(within),
        // The compiler does several at once, if it knows that it is every second one.
        2 => {
            for (place, values) in places.chunks_exact_mut(row).enumerate() {
                let pairs = within.as_chunks::<2>().0;
                values[before..][..count]
                    .iter_mut()
                    .zip(pairs)
                    .for_each(|(value, pair)| *value = pair[place]);
            }
        }
        _ => {
            let fours = within.chunks_exact(tile::SIDE * from);
            let done = before + count - count % tile::SIDE;
            for (round, values) in (done..).zip(fours.remainder().chunks_exact(from)) {
                places.chunks_exact_mut(row).zip(values).for_each(|(places, value)| places[round] = *value);
            }
            for (number, four) in fours.enumerate() {
                let (a, rest) = four.split_at(from);
                let (b, rest) = rest.split_at(from);
                let (c, d) = rest.split_at(from);
                tile::turn([a, b, c, d], places, row, before + number * tile::SIDE);
            }
        }
    }
}

/// A window as a function of the position between its zeros.
enum Window {
    Hann { lowpass: f64 },
    Kaiser { lowpass: f64, beta: f64, at_0: f64 },
}

impl Window {
    fn new(method: ResamplingMethod, lowpass: f64) -> Self {
        match method {
            ResamplingMethod::SincInterpHann => Self::Hann { lowpass },
            ResamplingMethod::SincInterpKaiser(beta) => Self::Kaiser { lowpass, beta, at_0: bessel_i0(beta) },
        }
    }

    fn at(&self, t: f64) -> f64 {
        match *self {
            Self::Hann { lowpass } => (t * PI / lowpass / 2.0).cos().powi(2),
            Self::Kaiser { lowpass, beta, at_0 } => {
                let root = (1.0 - (t / lowpass).powi(2)).max(0.0).sqrt();
                bessel_i0(beta * root) / at_0
            }
        }
    }

    /// A coefficient in float32, in torchaudio's order of operations: each of them rounds.
    fn single(&self, t: f32, lowpass: f32, scale: f32) -> f32 {
        use std::f32::consts::PI;

        if t.abs() >= lowpass {
            return 0.0;
        }
        let window = match *self {
            Self::Hann { .. } => (t * PI / lowpass / 2.0).cos().powi(2),
            Self::Kaiser { beta, .. } => {
                let root = (1.0 - (t / lowpass).powi(2)).sqrt();
                let at = |x: f32| bessel_i0(f64::from(x)) as f32;
                at(beta as f32 * root) / at(beta as f32)
            }
        };
        let angle = t * PI;
        let sinc = if angle == 0.0 { 1.0 } else { angle.sin() / angle };
        sinc * (window * scale)
    }
}

/// The modified Bessel function of the first kind and order 0, by its power series (M. Abramowitz and I. Stegun, *Handbook of
/// Mathematical Functions*, 9.6.12).
fn bessel_i0(x: f64) -> f64 {
    let quarter = x * x / 4.0;
    let (mut sum, mut term) = (1.0, 1.0);
    let mut k = 1.0;
    while term > sum * 1e-17 {
        term *= quarter / (k * k);
        sum += term;
        k += 1.0;
    }
    sum
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_every_sample_at_its_place_and_zeros_beside_them() {
        for from in [1, 2, 3, 4, 5, 8, 13, 441] {
            for len in [0, 1, from, 7 * from + 1, 20 * from - 1, 90 * from] {
                let samples: Vec<f32> = (0..len).map(|i| 1.0 + i as f32).collect();
                for begin in [-(3 * from as isize) - 1, -(from as isize), -1, 0, 5, len as isize, 1 << 40] {
                    for (row, used) in [(1, 1), (16, 9), (37, 37), (64, 50)] {
                        let mut places = vec![9.0; from * row];
                        fill(&mut places, row, used, from, &samples, begin);
                        for (i, found) in places.iter().enumerate().filter(|(i, _)| i % row < used) {
                            let at = begin + (i % row * from + i / row) as isize;
                            let sample = usize::try_from(at).ok().and_then(|at| samples.get(at));
                            assert_eq!(
                                *found,
                                sample.copied().unwrap_or(0.0),
                                "{from} {len} {begin} {row} {i}"
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn lengths_are_rounded_up() {
        let resample = Resample::new(44_100, 16_000, ResampleOptions::default()).unwrap();
        for (samples, wanted) in [(0, 0), (1, 1), (441, 160), (442, 161), (44_100, 16_000)] {
            assert_eq!(resample.len_of(samples), wanted);
            let mut out = Vec::new();
            resample.apply(&vec![0.5; samples], &mut Vec::new(), &mut out);
            assert_eq!(out.len(), wanted);
        }
    }

    #[test]
    fn a_tone_below_both_rates_stays_one() {
        for (from, to) in [(8_000, 16_000), (16_000, 8_000), (44_100, 16_000), (22_050, 24_000)] {
            let tone = |rate: u32, i: usize| (2.0 * PI * 440.0 * i as f64 / f64::from(rate)).sin();
            let samples: Vec<f32> = (0..from as usize).map(|i| tone(from, i) as f32).collect();
            let resample = Resample::new(from, to, ResampleOptions::default()).unwrap();
            let mut out = Vec::new();
            resample.apply(&samples, &mut Vec::new(), &mut out);
            let inner = 200..out.len() - 200;
            let worst = inner.map(|i| (f64::from(out[i]) - tone(to, i)).abs()).fold(0.0, f64::max);
            assert!(worst < 5e-3, "{from} to {to}: {worst}");
        }
    }

    #[test]
    fn equal_rates_change_nothing() {
        let resample = Resample::new(16_000, 16_000, ResampleOptions::default()).unwrap();
        let mut out = Vec::new();
        resample.apply(&[0.25, -1.0, 3.0], &mut Vec::new(), &mut out);
        assert_eq!(out, [0.25, -1.0, 3.0]);
    }

    #[test]
    fn parameters_without_sense_are_refused() {
        let with = |change: fn(&mut ResampleOptions)| {
            let mut options = ResampleOptions::default();
            change(&mut options);
            Resample::new(8_000, 16_000, options).map(drop)
        };
        assert!(with(|options| options.rolloff = 0.0).is_err());
        assert!(with(|options| options.rolloff = f64::NAN).is_err());
        assert!(with(|options| options.lowpass_filter_width = 0).is_err());
        assert!(Resample::new(0, 16_000, ResampleOptions::default()).is_err());
        let options = ResampleOptions { lowpass_filter_width: 1_000, ..ResampleOptions::default() };
        let error = Resample::new(96_001, 95_999, options).unwrap_err();
        assert!(error.message().contains("95999 filters of 2023 coefficients"), "{error}");
    }

    #[test]
    fn the_bessel_function_has_its_tabulated_values() {
        // Abramowitz and Stegun, table 9.8.
        for (x, wanted) in [(0.0, 1.0), (1.0, 1.266_065_878), (5.0, 27.239_871_823)] {
            assert!((bessel_i0(x) - wanted).abs() < 1e-8 * wanted, "{x}");
        }
    }
}
