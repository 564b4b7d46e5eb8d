//! Slower and faster at the same pitch, and another pitch at the same speed: a phase vocoder between a short-time Fourier transform and its
//! inverse (J. Flanagan and R. Golden, *Phase Vocoder*, 1966; M. Dolson, *The Phase Vocoder: A Tutorial*, 1986), with the values of
//! `torchaudio.functional.phase_vocoder` and `pitch_shift`.
//!
//! Phases grow by hundreds of turns a second, and torchaudio has them in float32: its sounds differ from those of exact phases by some
//! thousandths of the greatest value. Phases are rounded here where they are rounded there, so that both round alike.

use std::{f64::consts::PI, sync::Arc};

use realfft::{ComplexToReal, RealFftPlanner, RealToComplex, num_complex::Complex32};

use crate::{Error, Resample, ResampleOptions, Result, Window};

/// Samples that a transform may have.
const MOST: usize = 1 << 20;

/// Sums of squares of windows below which a sample is in no frame: `torch.istft` has none of them either.
const LEAST: f32 = 1e-11;

/// What becomes of a sound that is as many times as fast as a rate says, at the same pitch.
#[derive(Clone)]
pub struct TimeStretch {
    n_fft: usize,
    hop: usize,
    window: Vec<f32>,
    /// By how much a bin's phase grows from frame to frame.
    advance: Vec<f32>,
    forward: Arc<dyn RealToComplex<f32>>,
    back: Arc<dyn ComplexToReal<f32>>,
}

impl std::fmt::Debug for TimeStretch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TimeStretch")
            .field("n_fft", &self.n_fft)
            .field("hop", &self.hop)
            .finish_non_exhaustive()
    }
}

/// Magnitudes and angles of a frame.
#[derive(Clone, Default)]
struct Frame {
    number: Option<usize>,
    spectrum: Vec<Complex32>,
    magnitudes: Vec<f32>,
    angles: Vec<f32>,
}

impl TimeStretch {
    /// With a transform of `n_fft` samples, a window of `win_length` in its middle, and frames `hop_length` samples apart.
    ///
    /// # Errors
    ///
    /// For a transform of 0, 1 or more than 2^20 samples, a window of 0 or more than that, and frames that are so far apart that there are
    /// samples in none.
    pub fn new(n_fft: usize, win_length: usize, hop_length: usize, window: &Window) -> Result<Self> {
        if !(2..=MOST).contains(&n_fft) {
            return Err(Error::argument(format!("n_fft is {n_fft}; must be 2 to {MOST}")));
        }
        if win_length == 0 || win_length > n_fft {
            return Err(Error::argument(format!("win_length is {win_length}; must be 1 to n_fft, {n_fft}")));
        }
        if hop_length == 0 {
            return Err(Error::argument("hop_length is 0; must be at least 1"));
        }
        let mut padded = vec![0.0; n_fft];
        let begin = (n_fft - win_length) / 2;
        padded[begin..begin + win_length].copy_from_slice(&window.values(win_length, true));
        let is_left_out = |at: usize| {
            padded.iter().skip(at).step_by(hop_length).map(|value| value * value).sum::<f32>() < LEAST
        };
        if hop_length > n_fft || (0..hop_length).any(is_left_out) {
            return Err(Error::argument(format!(
                "hop_length is {hop_length}, so that some samples are in no window of {win_length}"
            )));
        }
        let mut planner = RealFftPlanner::new();
        let (bins, whole) = (n_fft / 2 + 1, PI * hop_length as f64);
        // `torch.linspace` of float32.
        let step = whole as f32 / (bins - 1) as f32;
        let advance = (0..bins).map(|bin| {
            if bin < bins / 2 {
                step.mul_add(bin as f32, 0.0)
            } else {
                step.mul_add(-((bins - 1 - bin) as f32), whole as f32)
            }
        });
        Ok(Self {
            n_fft,
            hop: hop_length,
            window: padded,
            advance: advance.collect(),
            forward: planner.plan_fft_forward(n_fft),
            back: planner.plan_fft_inverse(n_fft),
        })
    }

    /// Samples that so many become: the nearest number, and of two the even one.
    pub fn len_of(&self, samples: usize, rate: f64) -> usize {
        (samples as f64 / rate).round_ties_even() as usize
    }

    /// Values that [`TimeStretch::apply`] works in for a sound of so many samples.
    pub fn scratch(&self, samples: usize, rate: f64) -> usize {
        // Sums and windows, and of two frames all that there is of them.
        2 * (self.len_of(samples, rate) + self.n_fft) + 14 * self.n_fft
    }

    /// The sound that is `rate` times as fast.
    ///
    /// # Errors
    ///
    /// For a rate that is not from 0.01 to 100, and a sound that is too short to be mirrored at its ends.
    pub fn apply(&self, samples: &[f32], rate: f64) -> Result<Vec<f32>> {
        if !(0.01..=100.0).contains(&rate) {
            return Err(Error::argument(format!("a rate of {rate}; must be 0.01 to 100")));
        }
        if samples.len() <= self.n_fft / 2 {
            return Err(Error::argument(format!(
                "a sound of {} samples: too few for n_fft={}",
                samples.len(),
                self.n_fft
            )));
        }
        let failed = |_| Error::argument(format!("a transform of {} samples failed", self.n_fft));
        let (bins, len) = (self.n_fft / 2 + 1, self.len_of(samples.len(), rate));
        let frames = samples.len() / self.hop + 1;
        let beyond = self.n_fft / 2;
        let mut sums = vec![0.0f32; len];
        let mut weights = vec![0.0f32; len];
        let mut known = [Frame::default(), Frame::default()];
        let mut phases = vec![0.0f64; bins];
        let mut spectrum = self.back.make_input_vec();
        let mut frame = self.back.make_output_vec();
        for step in 0..(frames as f64 / rate).ceil() as usize {
            let time = (step as f64 * rate) as f32;
            let (first, part) = (time as usize, time % 1.0);
            self.look(samples, frames, first, &mut known)?;
            self.look(samples, frames, (time + 1.0) as usize, &mut known)?;
            let [one, other] = &known;
            let (one, other) = if one.number == Some(first) { (one, other) } else { (other, one) };
            for bin in 0..bins {
                if step == 0 {
                    phases[bin] = f64::from(one.angles[bin]);
                }
                spectrum[bin] = if rate == 1.0 {
                    one.spectrum[bin]
                } else {
                    let magnitude = part * other.magnitudes[bin] + (1.0 - part) * one.magnitudes[bin];
                    Complex32::from_polar(magnitude, phases[bin] as f32)
                };
                // How far the phase is from what its frequency says, by less than half a turn.
                let turn = 2.0 * PI as f32;
                let off = other.angles[bin] - one.angles[bin] - self.advance[bin];
                let off = off - turn * (off / turn).round_ties_even();
                phases[bin] += f64::from(off + self.advance[bin]);
            }
            spectrum[0].im = 0.0;
            if self.n_fft.is_multiple_of(2) {
                spectrum[bins - 1].im = 0.0;
            }
            self.back.process(&mut spectrum, &mut frame).map_err(failed)?;
            // What of the frame lies within the sound.
            let begin = step * self.hop;
            let from = beyond.saturating_sub(begin).min(self.n_fft);
            let place = begin + from - beyond.min(begin + from);
            let places = place.min(len)..len.min((begin + self.n_fft).saturating_sub(beyond));
            let count = places.len();
            let (sums, weights) = (&mut sums[places.clone()], &mut weights[places]);
            let values = frame[from..].iter().zip(&self.window[from..]).take(count);
            for ((value, weight), (sum, all)) in values.zip(sums.iter_mut().zip(weights.iter_mut())) {
                *sum += value / self.n_fft as f32 * weight;
                *all += weight * weight;
            }
        }
        for (sum, weight) in sums.iter_mut().zip(&weights) {
            *sum = if *weight > LEAST { *sum / weight } else { 0.0 };
        }
        Ok(sums)
    }

    /// Makes a frame known, in place of the one of the two that is further back.
    fn look(&self, samples: &[f32], frames: usize, number: usize, known: &mut [Frame; 2]) -> Result<()> {
        if known.iter().any(|frame| frame.number == Some(number)) {
            return Ok(());
        }
        let [one, other] = known;
        let frame = if one.number <= other.number { one } else { other };
        frame.number = Some(number);
        let bins = self.n_fft / 2 + 1;
        frame.spectrum.resize(bins, Complex32::default());
        if number >= frames {
            frame.spectrum.fill(Complex32::default());
        } else {
            let (beyond, last) = ((self.n_fft / 2) as isize, samples.len() as isize - 1);
            let at = |i: usize| {
                let place = (number * self.hop + i) as isize - beyond;
                // Mirrored at its ends, and no further than the sound reaches.
                let place = if place < 0 { -place } else { place };
                let place = if place > last { 2 * last - place } else { place };
                usize::try_from(place).ok().and_then(|place| samples.get(place)).copied().unwrap_or(0.0)
            };
            let mut signal: Vec<f32> = (0..self.n_fft).map(|i| at(i) * self.window[i]).collect();
            self.forward
                .process(&mut signal, &mut frame.spectrum)
                .map_err(|_| Error::argument(format!("a transform of {} samples failed", self.n_fft)))?;
        }
        frame.magnitudes.clear();
        frame.magnitudes.extend(frame.spectrum.iter().map(|value| value.re.hypot(value.im)));
        frame.angles.clear();
        frame.angles.extend(frame.spectrum.iter().map(|value| value.im.atan2(value.re)));
        Ok(())
    }
}

/// Another pitch at the same speed and rate: stretched in time, and then resampled to the length that it had.
#[derive(Clone, Debug)]
pub struct PitchShift {
    stretch: TimeStretch,
    rate: f64,
    resample: Resample,
}

impl PitchShift {
    /// By `n_steps` steps, of which an octave has `bins_per_octave`, at so many Hz.
    ///
    /// # Errors
    ///
    /// For a shift of more than four octaves, a rate of 0, and as [`TimeStretch::new`] and [`Resample::new`].
    pub fn new(sample_rate: u32, n_steps: f64, bins_per_octave: u32, stretch: TimeStretch) -> Result<Self> {
        let octaves = n_steps / f64::from(bins_per_octave);
        if !(-4.0..=4.0).contains(&octaves) {
            return Err(Error::argument(format!(
                "n_steps is {n_steps} of {bins_per_octave} an octave; must be four octaves at most"
            )));
        }
        let rate = 2f64.powf(-octaves);
        let orig_freq = (f64::from(sample_rate) / rate).trunc();
        if !(1.0..=f64::from(u32::MAX)).contains(&orig_freq) {
            return Err(Error::argument(format!("a shift by {n_steps} steps at {sample_rate} Hz")));
        }
        let resample = Resample::new(orig_freq as u32, sample_rate, ResampleOptions::default())?;
        Ok(Self { stretch, rate, resample })
    }

    /// Values that [`PitchShift::apply`] works in for a sound of so many samples.
    pub fn scratch(&self, samples: usize) -> usize {
        let stretched = self.stretch.len_of(samples, self.rate);
        self.stretch.scratch(samples, self.rate) + 3 * stretched + 2 * samples
    }

    /// The sound at its new pitch, as long as it was. `padded` is a place to work in.
    ///
    /// # Errors
    ///
    /// As [`TimeStretch::apply`].
    pub fn apply(&self, samples: &[f32], padded: &mut Vec<f32>) -> Result<Vec<f32>> {
        let stretched = self.stretch.apply(samples, self.rate)?;
        let mut out = Vec::new();
        self.resample.apply(&stretched, padded, &mut out);
        out.resize(samples.len(), 0.0);
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tone(frequency: f64, samples: usize) -> Vec<f32> {
        (0..samples).map(|i| (2.0 * PI * frequency * i as f64 / 16_000.0).sin() as f32).collect()
    }

    /// The frequency of a tone, by its zero crossings, away from its ends.
    fn frequency(samples: &[f32]) -> f64 {
        let inner = &samples[1_000..samples.len() - 1_000];
        let crossings = inner.windows(2).filter(|pair| pair[0] < 0.0 && pair[1] >= 0.0).count();
        crossings as f64 * 16_000.0 / inner.len() as f64
    }

    fn stretch(hop: usize) -> TimeStretch {
        TimeStretch::new(512, 512, hop, &Window::Hann).unwrap()
    }

    #[test]
    fn a_rate_changes_the_length_and_not_the_pitch() {
        for rate in [0.7, 0.9, 1.3, 2.0] {
            let made = stretch(128).apply(&tone(440.0, 16_000), rate).unwrap();
            assert_eq!(made.len(), (16_000.0f64 / rate).round_ties_even() as usize);
            assert!((frequency(&made) - 440.0).abs() < 3.0, "{rate}: {}", frequency(&made));
        }
        let same = stretch(128).apply(&tone(440.0, 4_000), 1.0).unwrap();
        for (found, wanted) in same.iter().zip(tone(440.0, 4_000)) {
            assert!((found - wanted).abs() < 1e-5, "{found} {wanted}");
        }
    }

    #[test]
    fn a_shift_changes_the_pitch_and_not_the_length() {
        for (steps, wanted) in [(12.0, 880.0), (-12.0, 220.0), (4.0, 554.4), (0.0, 440.0)] {
            let shift = PitchShift::new(16_000, steps, 12, stretch(128)).unwrap();
            let made = shift.apply(&tone(440.0, 16_000), &mut Vec::new()).unwrap();
            assert_eq!(made.len(), 16_000);
            assert!((frequency(&made) - wanted).abs() < 5.0, "{steps}: {}", frequency(&made));
        }
    }

    #[test]
    fn parameters_without_sense_are_refused() {
        let message = |n_fft, win, hop| {
            TimeStretch::new(n_fft, win, hop, &Window::Hann).unwrap_err().message().to_owned()
        };
        assert!(message(0, 1, 1).starts_with("n_fft is 0;"));
        assert!(message(512, 513, 1).starts_with("win_length is 513;"));
        assert!(message(512, 512, 0).starts_with("hop_length is 0;"));
        assert!(message(512, 512, 512).contains("in no window of 512"));
        assert!(message(512, 512, usize::MAX).contains("in no window of 512"));
        assert!(
            stretch(128).apply(&[0.0; 256], 1.5).unwrap_err().message().contains("too few for n_fft=512")
        );
        assert!(stretch(128).apply(&[0.0; 999], 0.0).is_err());
        assert!(PitchShift::new(16_000, 99.0, 12, stretch(128)).is_err());
        assert!(PitchShift::new(16_000, 1.0, 0, stretch(128)).is_err());
    }
}
