//! Another sample rate: convolution with a windowed sinc, one set of coefficients for each phase.
//!
//! Coefficients and values are those of `torchaudio.transforms.Resample` (torchaudio 2.11, `functional.resample`), after J. O. Smith,
//! *Digital Audio Resampling*, <https://ccrma.stanford.edu/~jos/resample/>.

use std::f64::consts::PI;

use crate::{Error, Result};

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
}

impl Default for ResampleOptions {
    fn default() -> Self {
        Self { lowpass_filter_width: 6, rolloff: 0.99, method: ResamplingMethod::SincInterpHann }
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
    /// Coefficients of each phase: a multiple of [`LANES`].
    taps: usize,
    /// Samples that a round looks at.
    span: usize,
    phases: Vec<Phase>,
    coefficients: Vec<f32>,
}

/// One of the places between two samples that there are at the new rate.
#[derive(Clone, Copy, Debug)]
struct Phase {
    /// The first sample whose coefficient is not 0, counted from [`Resample::width`] samples before those of this round on.
    first: usize,
}

impl Resample {
    /// From `orig_freq` to `new_freq`, Hz.
    ///
    /// # Errors
    ///
    /// For a rate of 0, a filter width of 0, a rolloff outside of (0, 1], and rates whose filters would take more than 256 MiB.
    pub fn new(orig_freq: u32, new_freq: u32, options: ResampleOptions) -> Result<Self> {
        let ResampleOptions { lowpass_filter_width, rolloff, method } = options;
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
            taps: (taps as usize).next_multiple_of(LANES),
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
                this.phases.push(Phase { first });
                this.span = this.span.max(first + this.taps);
                for tap in first..first + this.taps {
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

    /// Samples that so many become.
    pub fn len_of(&self, samples: usize) -> usize {
        usize::try_from((samples as u128 * self.to as u128).div_ceil(self.from as u128)).unwrap_or(usize::MAX)
    }

    /// Appends the samples at the new rate. `padded` is a place to work in.
    pub fn apply(&self, samples: &[f32], padded: &mut Vec<f32>, out: &mut Vec<f32>) {
        if self.from == self.to {
            out.extend_from_slice(samples);
            return;
        }
        padded.clear();
        padded.resize(self.width, 0.0);
        padded.extend_from_slice(samples);
        padded.resize(padded.len() + self.from + self.span, 0.0);
        let mut left = self.len_of(samples.len());
        out.reserve(left);
        for round in padded.windows(self.span).step_by(self.from) {
            let phases = self.phases.iter().zip(self.coefficients.chunks_exact(self.taps)).take(left);
            out.extend(phases.map(|(phase, coefficients)| dot(coefficients, &round[phase.first..])));
            left = left.saturating_sub(self.to);
            if left == 0 {
                break;
            }
        }
    }
}

/// Lanes that are summed side by side, so that the compiler keeps them in vector registers.
const LANES: usize = 8;

/// The sum of products: of as many as `a` has, a multiple of [`LANES`].
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0f32; LANES];
    for (a, b) in a.chunks_exact(LANES).zip(b.chunks_exact(LANES)) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    let [a, b, c, d, e, f, g, h] = sums;
    ((a + e) + (c + g)) + ((b + f) + (d + h))
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
