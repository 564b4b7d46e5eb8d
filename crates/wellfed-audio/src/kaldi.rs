//! Kaldi's filter bank energies and cepstral coefficients: `torchaudio.compliance.kaldi.fbank` and `mfcc`.

use std::{f64::consts::PI, sync::Arc};

use realfft::{RealFftPlanner, RealToComplex, num_complex::Complex32};

use crate::{Cosine, Error, FilterBank, Result, Window};

/// Parameters of both, as torchaudio's. There is no dither, which is noise, and no vocal tract length warping.
#[derive(Clone, Debug, PartialEq)]
pub struct KaldiOptions {
    /// Hz. Default: 16,000.
    pub sample_frequency: f64,
    /// Milliseconds of a frame. Default: 25.
    pub frame_length: f64,
    /// Milliseconds from one frame to the next. Default: 10.
    pub frame_shift: f64,
    /// Whether only frames that lie in the signal count; else it is mirrored beyond its ends. Default: true.
    pub snip_edges: bool,
    /// Whether a frame's mean is taken from it. Default: true.
    pub remove_dc_offset: bool,
    /// Share of the sample before that is taken from each. Default: 0.97.
    pub preemphasis_coefficient: f32,
    /// Default: [`Window::Povey`].
    pub window_type: Window,
    /// Whether frames are filled with zeros to a power of two. Default: true.
    pub round_to_power_of_two: bool,
    /// Default: 23.
    pub num_mel_bins: usize,
    /// Hz. Default: 20.
    pub low_freq: f64,
    /// Hz; at most 0 for so much below the Nyquist frequency. Default: 0.
    pub high_freq: f64,
    /// Whether energies are squares of magnitudes. Default: true.
    pub use_power: bool,
    /// Whether the logarithm is taken. Default: true; cepstral coefficients always take it.
    pub use_log_fbank: bool,
    /// Whether a frame's energy comes with it: before the filters, or after them where `htk_compat`; of cepstral coefficients it is the
    /// first. Default: false.
    pub use_energy: bool,
    /// Whether that is the energy before pre-emphasis and window. Default: true.
    pub raw_energy: bool,
    /// Energies below this are taken as this; 0 for none. Default: 1.
    pub energy_floor: f32,
    /// Whether the energy comes last. Default: false.
    pub htk_compat: bool,
    /// Whether each column's mean is taken from it. Default: false.
    pub subtract_mean: bool,
}

impl Default for KaldiOptions {
    fn default() -> Self {
        Self {
            sample_frequency: 16_000.0,
            frame_length: 25.0,
            frame_shift: 10.0,
            snip_edges: true,
            remove_dc_offset: true,
            preemphasis_coefficient: 0.97,
            window_type: Window::Povey,
            round_to_power_of_two: true,
            num_mel_bins: 23,
            low_freq: 20.0,
            high_freq: 0.0,
            use_power: true,
            use_log_fbank: true,
            use_energy: false,
            raw_energy: true,
            energy_floor: 1.0,
            htk_compat: false,
            subtract_mean: false,
        }
    }
}

/// Frames that are longer are refused: a second at 1 MHz.
const MOST: f64 = 1e6;

/// Energies below are taken as this before a logarithm: float32's step at 1.
const EPSILON: f32 = f32::EPSILON;

/// Filter bank energies of one channel, to be made once and used for all signals.
#[derive(Clone)]
pub struct KaldiFbank {
    options: KaldiOptions,
    shift: usize,
    window: Vec<f32>,
    padded: usize,
    bank: FilterBank,
    plan: Arc<dyn RealToComplex<f32>>,
}

impl std::fmt::Debug for KaldiFbank {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KaldiFbank").field("options", &self.options).finish_non_exhaustive()
    }
}

impl KaldiFbank {
    /// From its parameters.
    ///
    /// # Errors
    ///
    /// For frames of no sample or more than a million, and for filters that do not lie below the Nyquist frequency.
    pub fn new(options: KaldiOptions) -> Result<Self> {
        let rate = options.sample_frequency;
        let samples = |name: &str, milliseconds: f64| {
            let samples = (rate * milliseconds * 0.001).trunc();
            if (1.0..=MOST).contains(&samples) {
                return Ok(samples as usize);
            }
            Err(Error::argument(format!(
                "fbank: {name}={milliseconds} ms at {rate} Hz are {samples} samples"
            )))
        };
        let (size, shift) =
            (samples("frame_length", options.frame_length)?, samples("frame_shift", options.frame_shift)?);
        let padded = if options.round_to_power_of_two { size.next_power_of_two() } else { size };
        let nyquist = 0.5 * rate;
        let high = if options.high_freq <= 0.0 { options.high_freq + nyquist } else { options.high_freq };
        let low = options.low_freq;
        if !(low >= 0.0 && low < high && high <= nyquist) {
            return Err(Error::argument(format!(
                "fbank: filters from {low} to {high} Hz; they lie between 0 and {nyquist} Hz"
            )));
        }
        let bins = options.num_mel_bins;
        if bins < 4 || bins.saturating_mul(padded) > 1 << 26 {
            return Err(Error::argument(format!("fbank: num_mel_bins is at least 4, and {bins} was given")));
        }
        // As torchaudio: bounds and distances in double precision, each bin in float32.
        let mel = |frequency: f64| 1127.0 * (1.0 + frequency / 700.0).ln();
        let (begin, step) = (mel(low), (mel(high) - mel(low)) / (bins + 1) as f64);
        let corner = |i: usize| (begin + i as f64 * step) as f32;
        let width = rate / padded as f64;
        let mels: Vec<f32> =
            (0..padded / 2).map(|bin| 1127.0 * (1.0 + (width * bin as f64) as f32 / 700.0).ln()).collect();
        let bank = FilterBank::of(bins, padded / 2, |filter, bin| {
            let (left, center, right) = (corner(filter), corner(filter + 1), corner(filter + 2));
            let (up, down) = ((mels[bin] - left) / (center - left), (right - mels[bin]) / (right - center));
            up.min(down).max(0.0)
        });
        let window = options.window_type.values(size, false);
        let plan = RealFftPlanner::new().plan_fft_forward(padded);
        Ok(Self { options, shift, window, padded, bank, plan })
    }

    /// Values of a frame.
    pub fn columns(&self) -> usize {
        self.bank.filters() + usize::from(self.options.use_energy)
    }

    /// Frames of a signal.
    pub fn frames(&self, samples: usize) -> usize {
        let size = self.window.len();
        match self.options.snip_edges {
            true if samples < size => 0,
            true => 1 + (samples - size) / self.shift,
            false => (samples + self.shift / 2) / self.shift,
        }
    }

    /// Appends the values of each frame, one frame after the other; `samples` are in the range of 16-bit integers where Kaldi's own
    /// values are wanted.
    ///
    /// # Errors
    ///
    /// For a signal of fewer samples than a frame.
    pub fn apply(&self, samples: &[f32], out: &mut Vec<f32>) -> Result<()> {
        let begin = out.len();
        let log = self.options.use_log_fbank;
        self.each(samples, |energy, values| {
            let energy_first = self.options.use_energy && !self.options.htk_compat;
            out.extend(energy_first.then_some(energy));
            out.extend(values.map(|value| if log { value.max(EPSILON).ln() } else { value }));
            out.extend((self.options.use_energy && self.options.htk_compat).then_some(energy));
        })?;
        self.subtract_mean(&mut out[begin..], self.columns());
        Ok(())
    }

    fn subtract_mean(&self, values: &mut [f32], columns: usize) {
        if !self.options.subtract_mean || values.is_empty() {
            return;
        }
        let rows = (values.len() / columns) as f32;
        for column in 0..columns {
            let mean = values.iter().skip(column).step_by(columns).sum::<f32>() / rows;
            values.iter_mut().skip(column).step_by(columns).for_each(|value| *value -= mean);
        }
    }

    /// Calls `each` with each frame's logarithm of energy, and what its filters let through.
    fn each(&self, samples: &[f32], mut each: impl FnMut(f32, &mut dyn Iterator<Item = f32>)) -> Result<()> {
        let KaldiOptions { remove_dc_offset, preemphasis_coefficient, raw_energy, use_power, .. } =
            self.options;
        let size = self.window.len();
        if samples.len() < size {
            return Err(Error::argument(format!("fbank of {} samples; a frame has {size}", samples.len())));
        }
        let mut frame = vec![0.0f32; self.padded];
        let mut spectrum = vec![Complex32::default(); self.padded / 2 + 1];
        let mut work = vec![Complex32::default(); self.plan.get_scratch_len()];
        let mut powers = vec![0.0; spectrum.len()];
        for number in 0..self.frames(samples.len()) {
            self.cut(samples, number, &mut frame[..size]);
            frame[size..].fill(0.0);
            let within = &mut frame[..size];
            if remove_dc_offset {
                let mean = within.iter().sum::<f32>() / size as f32;
                within.iter_mut().for_each(|sample| *sample -= mean);
            }
            let mut energy = self.log_energy(within);
            if preemphasis_coefficient != 0.0 {
                for i in (1..size).rev() {
                    within[i] -= preemphasis_coefficient * within[i - 1];
                }
                within[0] -= preemphasis_coefficient * within[0];
            }
            within.iter_mut().zip(&self.window).for_each(|(sample, weight)| *sample *= weight);
            if !raw_energy {
                energy = self.log_energy(within);
            }
            // Only lengths can be wrong, and they are the plan's.
            if self.plan.process_with_scratch(&mut frame, &mut spectrum, &mut work).is_err() {
                return Err(Error::argument(format!("a transform of {} samples failed", self.padded)));
            }
            for (power, value) in powers.iter_mut().zip(&spectrum) {
                *power = if use_power { value.norm_sqr() } else { value.norm() };
            }
            each(energy, &mut self.bank.apply(&powers));
        }
        Ok(())
    }

    /// The samples of a frame; those beyond the signal's ends are its mirror image.
    fn cut(&self, samples: &[f32], number: usize, frame: &mut [f32]) {
        let size = frame.len();
        if self.options.snip_edges {
            frame.copy_from_slice(&samples[number * self.shift..][..size]);
            return;
        }
        let (len, before) = (samples.len() as isize, size as isize / 2 - self.shift as isize / 2);
        for (i, place) in frame.iter_mut().enumerate() {
            let at = (number * self.shift + i) as isize - before;
            let at = if at < 0 {
                -1 - at
            } else if at >= len {
                2 * len - 1 - at
            } else {
                at
            };
            *place = usize::try_from(at).ok().and_then(|at| samples.get(at)).copied().unwrap_or(0.0);
        }
    }

    fn log_energy(&self, frame: &[f32]) -> f32 {
        let energy = frame.iter().map(|sample| sample * sample).sum::<f32>().max(EPSILON).ln();
        match self.options.energy_floor {
            0.0 => energy,
            floor => energy.max(floor.ln()),
        }
    }
}

/// Cepstral coefficients of one channel: the cosine transform of filter bank energies.
#[derive(Clone, Debug)]
pub struct KaldiMfcc {
    bank: KaldiFbank,
    cosine: Cosine,
    lifter: Vec<f32>,
}

impl KaldiMfcc {
    /// The first `num_ceps` coefficients, of which higher ones are raised as `cepstral_lifter` says (Kaldi: 13 and 22; 0 for none).
    ///
    /// # Errors
    ///
    /// As [`KaldiFbank::new`], and for more coefficients than filters.
    pub fn new(options: KaldiOptions, num_ceps: usize, cepstral_lifter: f64) -> Result<Self> {
        let bank = KaldiFbank::new(options)?;
        let cosine = Cosine::new(num_ceps, bank.bank.filters(), true)?;
        let raise = |i: usize| match cepstral_lifter {
            0.0 => 1.0,
            lifter => 1.0 + 0.5 * lifter * (PI * i as f64 / lifter).sin(),
        };
        let lifter = (0..num_ceps).map(|i| raise(i) as f32).collect();
        Ok(Self { bank, cosine, lifter })
    }

    /// Frames of a signal.
    pub fn frames(&self, samples: usize) -> usize {
        self.bank.frames(samples)
    }

    /// Appends the coefficients of each frame.
    ///
    /// # Errors
    ///
    /// As [`KaldiFbank::apply`].
    pub fn apply(&self, samples: &[f32], out: &mut Vec<f32>) -> Result<()> {
        let KaldiOptions { use_energy, htk_compat, .. } = self.bank.options;
        let begin = out.len();
        let mut logs = Vec::new();
        self.bank.each(samples, |energy, values| {
            logs.clear();
            logs.extend(values.map(|value| value.max(EPSILON).ln()));
            let row = out.len();
            out.extend(self.cosine.apply(&logs).zip(&self.lifter).map(|(value, raise)| value * raise));
            if use_energy {
                out[row] = energy;
            }
            if htk_compat {
                // HTK's first coefficient is larger, and comes last.
                if !use_energy {
                    out[row] *= std::f32::consts::SQRT_2;
                }
                out[row..].rotate_left(1);
            }
        })?;
        self.bank.subtract_mean(&mut out[begin..], self.lifter.len());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(samples: usize) -> Vec<f32> {
        (0..samples as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 16) as f32 - 32_768.0).collect()
    }

    #[test]
    fn frames_are_counted_as_kaldi_does() {
        let snipped = KaldiFbank::new(KaldiOptions::default()).unwrap();
        assert_eq!([snipped.frames(399), snipped.frames(400), snipped.frames(560)], [0, 1, 2]);
        let mirrored =
            KaldiFbank::new(KaldiOptions { snip_edges: false, ..KaldiOptions::default() }).unwrap();
        assert_eq!([mirrored.frames(400), mirrored.frames(16_000)], [3, 100]);
        for bank in [snipped, mirrored] {
            let mut out = Vec::new();
            bank.apply(&noise(1_000), &mut out).unwrap();
            assert_eq!(out.len(), bank.frames(1_000) * bank.columns());
            assert!(out.iter().all(|value| value.is_finite()));
        }
    }

    #[test]
    fn energy_comes_first_or_last() {
        let columns = |htk_compat: bool| {
            let options = KaldiOptions { use_energy: true, htk_compat, ..KaldiOptions::default() };
            let mut out = Vec::new();
            KaldiFbank::new(options).unwrap().apply(&noise(400), &mut out).unwrap();
            out
        };
        let (first, last) = (columns(false), columns(true));
        assert_eq!(first[1..], last[..23]);
        assert_eq!(first[0], last[23]);
    }

    #[test]
    fn means_are_taken_away() {
        let options = KaldiOptions { subtract_mean: true, ..KaldiOptions::default() };
        let mfcc = KaldiMfcc::new(options, 13, 22.0).unwrap();
        let mut out = Vec::new();
        mfcc.apply(&noise(4_000), &mut out).unwrap();
        let rows = mfcc.frames(4_000);
        assert_eq!(out.len(), rows * 13);
        for column in 0..13 {
            let sum: f32 = out.iter().skip(column).step_by(13).sum();
            assert!(sum.abs() < 1e-2, "{column}: {sum}");
        }
    }

    #[test]
    fn filters_beyond_the_nyquist_frequency_are_refused() {
        let options =
            KaldiOptions { sample_frequency: 8_000.0, high_freq: 7_000.0, ..KaldiOptions::default() };
        let error = KaldiFbank::new(options).unwrap_err();
        assert!(error.message().contains("from 20 to 7000 Hz"), "{error}");
        let short = KaldiFbank::new(KaldiOptions::default()).unwrap().apply(&[0.0; 10], &mut Vec::new());
        assert!(short.unwrap_err().message().contains("10 samples; a frame has 400"));
    }
}
