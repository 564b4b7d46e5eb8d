//! Banks of triangular filters over a spectrum: torchaudio's `melscale_fbanks` and `linear_fbanks`.
//!
//! torchaudio computes them in float32, and so does this: filters are narrow, and in double precision their slopes would differ from
//! torchaudio's by more than 1e-5.

use crate::{Error, Result, lanes::Lanes};

/// What the scale of mels is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MelScale {
    /// 2595 log10(1 + f / 700), as HTK has it.
    #[default]
    Htk,
    /// Linear up to 1,000 Hz and logarithmic above, as M. Slaney's Auditory Toolbox and librosa have it.
    Slaney,
}

impl MelScale {
    /// Slaney's: mels to 1,000 Hz, and the logarithm of the step above.
    const LINEAR: f64 = 15.0;
    const STEP: f64 = 200.0 / 3.0;

    fn log_step() -> f64 {
        6.4f64.ln() / 27.0
    }

    /// Mels of a frequency, Hz.
    pub fn of_hz(self, frequency: f64) -> f64 {
        match self {
            Self::Htk => 2595.0 * (1.0 + frequency / 700.0).log10(),
            Self::Slaney if frequency >= 1000.0 => {
                Self::LINEAR + (frequency / 1000.0).ln() / Self::log_step()
            }
            Self::Slaney => frequency / Self::STEP,
        }
    }

    /// The frequency of mels, Hz.
    pub fn to_hz(self, mels: f32) -> f32 {
        match self {
            Self::Htk => 700.0 * (10.0f64.powf(f64::from(mels / 2595.0)) as f32 - 1.0),
            Self::Slaney if f64::from(mels) >= Self::LINEAR => {
                let steps = Self::log_step() as f32 * (mels - Self::LINEAR as f32);
                1000.0 * f64::from(steps).exp() as f32
            }
            Self::Slaney => Self::STEP as f32 * mels,
        }
    }
}

/// Filters that overlap by half: each a few weights for neighbouring bins.
#[derive(Clone, Debug, PartialEq)]
pub struct FilterBank {
    filters: Vec<Filter>,
    bins: usize,
    weights: Vec<f32>,
}

#[derive(Clone, Debug, PartialEq)]
struct Filter {
    /// First bin.
    bin: usize,
    /// Its weights.
    weights: std::ops::Range<usize>,
}

/// Filters times bins that a bank may have.
const MOST: usize = 1 << 26;

impl FilterBank {
    /// `melscale_fbanks(n_freqs, f_min, f_max, n_mels, sample_rate, norm, mel_scale)`: `is_slaney_normed` is `norm="slaney"`, which
    /// makes all filters' areas equal.
    ///
    /// # Errors
    ///
    /// For no filters or bins, and for frequencies that are not in order.
    pub fn mel(
        n_freqs: usize,
        f_min: f64,
        f_max: f64,
        n_mels: usize,
        sample_rate: u32,
        is_slaney_normed: bool,
        scale: MelScale,
    ) -> Result<Self> {
        let points = Self::points("mel", n_freqs, f_min, f_max, n_mels)?;
        let mels = linspace(scale.of_hz(f_min) as f32, scale.of_hz(f_max) as f32, points);
        let points: Vec<f32> = mels.into_iter().map(|mels| scale.to_hz(mels)).collect();
        Ok(Self::triangles(n_freqs, sample_rate, &points, is_slaney_normed))
    }

    /// `linear_fbanks(n_freqs, f_min, f_max, n_filter, sample_rate)`.
    ///
    /// # Errors
    ///
    /// As [`FilterBank::mel`].
    pub fn linear(n_freqs: usize, f_min: f64, f_max: f64, n_filter: usize, sample_rate: u32) -> Result<Self> {
        let points = Self::points("linear", n_freqs, f_min, f_max, n_filter)?;
        Ok(Self::triangles(n_freqs, sample_rate, &linspace(f_min as f32, f_max as f32, points), false))
    }

    /// How many corners the filters have together.
    fn points(what: &str, n_freqs: usize, f_min: f64, f_max: f64, filters: usize) -> Result<usize> {
        if filters == 0 || n_freqs == 0 || filters.saturating_mul(n_freqs) > MOST {
            return Err(Error::argument(format!(
                "a {what} filter bank of {filters} filters over {n_freqs} bins"
            )));
        }
        if !(f_min >= 0.0 && f_min < f_max && f_max.is_finite()) {
            return Err(Error::argument(format!(
                "a {what} filter bank from {f_min} to {f_max} Hz: f_min is at least 0, and f_max above it"
            )));
        }
        Ok(filters + 2)
    }

    fn triangles(n_freqs: usize, sample_rate: u32, points: &[f32], is_slaney_normed: bool) -> Self {
        let frequencies = linspace(0.0, (sample_rate / 2) as f32, n_freqs);
        Self::of(points.len() - 2, n_freqs, |filter, bin| {
            let (left, middle, right) = (points[filter], points[filter + 1], points[filter + 2]);
            let (up, down) =
                ((frequencies[bin] - left) / (middle - left), (right - frequencies[bin]) / (right - middle));
            let area = if is_slaney_normed { 2.0 / (right - left) } else { 1.0 };
            up.min(down).max(0.0) * area
        })
    }

    /// By the weight of each bin for each filter, above 0 for neighbouring bins only.
    pub(crate) fn of(filters: usize, bins: usize, weight: impl Fn(usize, usize) -> f32) -> Self {
        let mut this = Self { filters: Vec::new(), bins, weights: Vec::new() };
        for filter in 0..filters {
            let bin = (0..bins).find(|bin| weight(filter, *bin) > 0.0).unwrap_or(0);
            let begin = this.weights.len();
            this.weights
                .extend((bin..bins).map(|bin| weight(filter, bin)).take_while(|weight| *weight > 0.0));
            this.filters.push(Filter { bin, weights: begin..this.weights.len() });
        }
        this
    }

    /// How many filters there are.
    pub fn filters(&self) -> usize {
        self.filters.len()
    }

    /// Bins of the spectra that they are for.
    pub fn bins(&self) -> usize {
        self.bins
    }

    /// Numbers of filters without a weight, of which nothing ever comes: too many for so few bins.
    pub fn empty(&self) -> impl Iterator<Item = usize> {
        self.filters
            .iter()
            .enumerate()
            .filter(|(_, filter)| filter.weights.is_empty())
            .map(|(number, _)| number)
    }

    /// What each filter lets through of a spectrum.
    ///
    /// # Panics
    ///
    /// If the spectrum has fewer bins.
    pub fn apply(&self, spectrum: &[f32]) -> impl Iterator<Item = f32> {
        assert!(spectrum.len() >= self.bins, "{} bins for a filter bank over {}", spectrum.len(), self.bins);
        self.filters.iter().map(move |filter| {
            let weights = &self.weights[filter.weights.clone()];
            let powers = &spectrum[filter.bin..][..weights.len()];
            let (groups, rest) = weights.as_chunks::<SUMS>();
            let (of_groups, of_rest) = powers.as_chunks::<SUMS>();
            let mut sums = [0.0; SUMS];
            for (weights, powers) in groups.iter().zip(of_groups) {
                for (sum, (weight, power)) in sums.iter_mut().zip(weights.iter().zip(powers)) {
                    *sum += power * weight;
                }
            }
            for (sum, (weight, power)) in sums.iter_mut().zip(rest.iter().zip(of_rest)) {
                *sum += power * weight;
            }
            (sums[0] + sums[1]) + (sums[2] + sums[3])
        })
    }

    /// What each filter lets through of a spectrogram that lies bin by bin, of so many frames a bin: `out` has filter by filter.
    ///
    /// # Panics
    ///
    /// If the spectrogram has fewer bins.
    pub fn apply_rows(&self, spectrogram: &[f32], frames: usize, out: &mut [f32]) {
        let bins = spectrogram.len().checked_div(frames).unwrap_or(self.bins);
        assert!(bins >= self.bins, "{bins} bins for a filter bank over {}", self.bins);
        for (filter, out) in self.filters.iter().zip(out.chunks_exact_mut(frames.max(1))) {
            out.fill(0.0);
            let weights = &self.weights[filter.weights.clone()];
            let rows = spectrogram.get(filter.bin * frames..).unwrap_or_default().chunks_exact(frames.max(1));
            for (weight, row) in weights.iter().zip(rows) {
                out.iter_mut().zip(row).for_each(|(sum, value)| *sum += weight * value);
            }
        }
    }

    /// As [`FilterBank::apply`] of several spectra, bit for bit.
    #[inline(always)]
    pub(crate) fn apply_lanes<L: Lanes>(&self, spectra: &[L], out: &mut [L]) {
        for (filter, out) in self.filters.iter().zip(out) {
            let weights = &self.weights[filter.weights.clone()];
            let powers = &spectra[filter.bin..][..weights.len()];
            let (groups, rest) = weights.as_chunks::<SUMS>();
            let (of_groups, of_rest) = powers.as_chunks::<SUMS>();
            let mut sums = [L::ZERO; SUMS];
            for (weights, powers) in groups.iter().zip(of_groups) {
                for i in 0..SUMS {
                    sums[i] = sums[i] + powers[i] * weights[i];
                }
            }
            for (i, (weight, power)) in rest.iter().zip(of_rest).enumerate() {
                sums[i] = sums[i] + *power * *weight;
            }
            *out = (sums[0] + sums[1]) + (sums[2] + sums[3]);
        }
    }
}

/// Sums that are kept side by side, because one addition has to wait for the one before it.
const SUMS: usize = 4;

/// `torch.linspace` of float32: from both ends to the middle, with one rounding of a product and its sum, as torch has it on processors
/// that can multiply and add at once.
fn linspace(start: f32, end: f32, steps: usize) -> Vec<f32> {
    if steps == 1 {
        return vec![start];
    }
    let step = (end - start) / (steps - 1) as f32;
    (0..steps)
        .map(|i| {
            if i < steps / 2 {
                step.mul_add(i as f32, start)
            } else {
                step.mul_add(-((steps - 1 - i) as f32), end)
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_each_others_inverse() {
        for scale in [MelScale::Htk, MelScale::Slaney] {
            for frequency in [0.0, 60.0, 999.0, 1000.0, 4000.0, 8000.0] {
                let back = f64::from(scale.to_hz(scale.of_hz(frequency) as f32));
                assert!((back - frequency).abs() < 0.01, "{scale:?}: {frequency} Hz came back as {back}");
            }
        }
        // 1,000 Hz are 1,000 mels of HTK, to a few parts in a hundred thousand, and 15 of Slaney's.
        assert!((MelScale::Htk.of_hz(1000.0) - 1000.0).abs() < 0.02);
        assert!((MelScale::Slaney.of_hz(1000.0) - 15.0).abs() < 1e-9);
    }

    #[test]
    fn a_flat_spectrum_gives_areas() {
        let bank = FilterBank::linear(201, 0.0, 8000.0, 9, 16_000).unwrap();
        // Corners are 800 Hz apart, bins 40: a triangle's weights sum to 20.
        for sum in bank.apply(&[1.0; 201]) {
            assert!((sum - 20.0).abs() < 1e-3, "{sum}");
        }
        let normed = FilterBank::mel(1025, 0.0, 8000.0, 40, 16_000, true, MelScale::Slaney).unwrap();
        let sums: Vec<f32> = normed.apply(&[1.0; 1025]).collect();
        // Areas are 1 by Hz; a bin is 7.8 Hz.
        assert!(sums.iter().all(|sum| (sum * 8000.0 / 1024.0 - 1.0).abs() < 0.05), "{sums:?}");
    }

    #[test]
    fn rows_go_through_filters_as_frames_do() {
        let bank = FilterBank::mel(129, 20.0, 7_000.0, 23, 16_000, true, MelScale::Htk).unwrap();
        let frame = |frame: usize, bin: usize| ((frame * 131 + bin * 7919) % 101) as f32 / 101.0;
        let rows: Vec<f32> = (0..129 * 5).map(|i| frame(i % 5, i / 5)).collect();
        let mut out = vec![f32::NAN; 23 * 5];
        bank.apply_rows(&rows, 5, &mut out);
        for t in 0..5 {
            let spectrum: Vec<f32> = (0..129).map(|bin| frame(t, bin)).collect();
            for (filter, wanted) in bank.apply(&spectrum).enumerate() {
                let found = out[filter * 5 + t];
                assert!(
                    (found - wanted).abs() <= 1e-6 * wanted.abs(),
                    "filter {filter} of {t}: {found} {wanted}"
                );
            }
        }
        bank.apply_rows(&[], 0, &mut []);
    }

    #[test]
    fn more_filters_than_bins_are_empty_in_part() {
        let bank = FilterBank::mel(65, 0.0, 8000.0, 128, 16_000, false, MelScale::Htk).unwrap();
        assert!(bank.empty().count() > 10);
        assert_eq!(
            FilterBank::mel(513, 0.0, 8000.0, 40, 16_000, false, MelScale::Htk).unwrap().empty().count(),
            0
        );
    }

    #[test]
    fn frequencies_out_of_order_are_refused() {
        let error = FilterBank::mel(201, 4000.0, 4000.0, 40, 16_000, false, MelScale::Htk).unwrap_err();
        assert!(error.message().contains("from 4000 to 4000 Hz"), "{error}");
        assert!(FilterBank::linear(201, 0.0, f64::NAN, 40, 16_000).is_err());
        assert!(FilterBank::linear(201, 0.0, 8000.0, 0, 16_000).is_err());
    }
}
