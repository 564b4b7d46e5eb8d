//! `MelSpectrogram`: a spectrum by filters that are as wide as ears hear.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use wellfed_audio::{FilterBank, MelScale};

use super::{
    AudioKernel, AudioOperation, Sound, SoundShape, refused,
    spectrogram::{Beyond, Normalization, Stft, WindowFn},
};
use crate::{Error, Result, rng::Rng, transform::param::Repr};

/// The scale of mels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Scale {
    #[default]
    Htk,
    Slaney,
}

/// What filters are divided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Norm {
    Slaney,
}

/// A mel spectrum of the waveform of each channel: `[channels, n_mels, frames]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MelSpectrogram {
    /// Rate of what comes in, Hz; another one is an error. Default: 16,000.
    pub(super) sample_rate: u32,
    /// Samples of a transform. Default: 400.
    n_fft: usize,
    /// Samples of a window. Default: `n_fft`.
    win_length: Option<usize>,
    /// Samples from one frame to the next. Default: half of a window.
    hop_length: Option<usize>,
    /// Lowest frequency, Hz. Default: 0.
    f_min: f64,
    /// Highest frequency, Hz. Default: half of the rate.
    f_max: Option<f64>,
    /// Zeros on either side of the signal. Default: 0.
    pad: usize,
    /// Filters. Default: 128.
    pub(super) n_mels: usize,
    window_fn: WindowFn,
    /// Exponent of the magnitude. Default: 2.
    power: f32,
    normalized: Normalization,
    /// Whether frame `t` has sample `t * hop_length` in its middle. Default: true.
    center: bool,
    pad_mode: Beyond,
    norm: Option<Norm>,
    mel_scale: Scale,
}

impl Default for MelSpectrogram {
    fn default() -> Self {
        Self {
            sample_rate: 16_000,
            n_fft: 400,
            win_length: None,
            hop_length: None,
            f_min: 0.0,
            f_max: None,
            pad: 0,
            n_mels: 128,
            window_fn: WindowFn::default(),
            power: 2.0,
            normalized: Normalization::default(),
            center: true,
            pad_mode: Beyond::default(),
            norm: None,
            mel_scale: Scale::default(),
        }
    }
}

impl fmt::Display for MelSpectrogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let win_length = self.win_length.unwrap_or(self.n_fft);
        Repr::new(f, "MelSpectrogram")
            .field("sample_rate", self.sample_rate)
            .field("n_fft", self.n_fft)
            .field("win_length", win_length)
            .field("hop_length", self.hop_length.unwrap_or(win_length / 2))
            .field("n_mels", self.n_mels)
            .finish()
    }
}

impl MelSpectrogram {
    /// Makes windows, plans and filters.
    pub(super) fn make(&self) -> Result<Filtered> {
        let stft = Stft {
            n_fft: self.n_fft,
            win_length: self.win_length,
            hop_length: self.hop_length,
            pad: self.pad,
            window_fn: self.window_fn,
            power: self.power,
            normalized: self.normalized,
            center: self.center,
            pad_mode: self.pad_mode,
            onesided: true,
        };
        let spectrogram = stft.make()?;
        let bank = mel_bank(
            spectrogram.bins(),
            (self.f_min, self.f_max),
            self.n_mels,
            self.sample_rate,
            self.norm,
            self.mel_scale,
        )?;
        Filtered::new(self.sample_rate, spectrogram, bank)
    }
}

/// Filters over so many bins.
///
/// # Errors
/// For frequencies that are not in order, no filters, and more than there may be.
pub(super) fn mel_bank(
    bins: usize,
    (f_min, f_max): (f64, Option<f64>),
    n_mels: usize,
    sample_rate: u32,
    norm: Option<Norm>,
    mel_scale: Scale,
) -> Result<FilterBank> {
    let f_max = f_max.unwrap_or(f64::from(sample_rate / 2));
    if !(f_min.is_finite() && f_min <= f_max && f_max.is_finite()) {
        return Err(Error::config(format!(
            "f_min is {f_min} and f_max {f_max}; f_min must not be above f_max"
        )));
    }
    let scale = match mel_scale {
        Scale::Htk => MelScale::Htk,
        Scale::Slaney => MelScale::Slaney,
    };
    FilterBank::mel(bins, f_min, f_max, n_mels, sample_rate, norm.is_some(), scale).map_err(refused)
}

/// A spectrum whose bins go through filters.
#[derive(Debug)]
pub(super) struct Filtered {
    sample_rate: u32,
    spectrum: wellfed_audio::MelSpectrogram,
}

impl Filtered {
    pub(super) fn new(
        sample_rate: u32,
        spectrogram: wellfed_audio::Spectrogram,
        bank: FilterBank,
    ) -> Result<Self> {
        let spectrum = wellfed_audio::MelSpectrogram::new(spectrogram, bank).map_err(refused)?;
        Ok(Self { sample_rate, spectrum })
    }

    /// Values of a frame.
    pub(super) fn filters(&self) -> usize {
        self.spectrum.filters()
    }
}

impl AudioOperation for MelSpectrogram {
    fn kernel(&self, _rate: u32) -> Result<Arc<dyn AudioKernel>> {
        Ok(Arc::new(self.make()?))
    }
}

impl AudioKernel for Filtered {
    fn becomes(&self, shape: SoundShape) -> Result<SoundShape> {
        let shape = shape.waveform()?.at_rate(self.sample_rate)?;
        let frames = shape.frames.map(|samples| self.spectrum.frames(samples));
        Ok(SoundShape { bins: Some(self.filters()), frames, ..shape })
    }

    fn run(&self, sound: &mut Sound, _rng: &mut Rng) -> Result<()> {
        let shape = self.becomes(sound.shape)?;
        sound.rewrite(shape, |samples, scratch, out| self.spectrum.fill(samples, scratch, out))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};
    use crate::ErrorKind;

    #[test]
    fn a_spectrum_goes_through_filters() {
        let noise: Vec<f32> = (0..1600).map(|i| ((i * 7919) % 101) as f32 / 101.0 - 0.5).collect();
        let mel = MelSpectrogram { n_mels: 20, ..MelSpectrogram::default() };
        let made = run(&mel, sound(&[&noise], 16_000)).unwrap();
        assert_eq!(made.shape.sides(), [Some(1), Some(20), Some(9)]);
        let whole = run(&super::super::Spectrogram::default(), sound(&[&noise], 16_000)).unwrap();
        let frame: Vec<f32> = (0..201).map(|bin| whole.values[bin * 9 + 3]).collect();
        let bank = FilterBank::mel(201, 0.0, 8_000.0, 20, 16_000, false, MelScale::Htk).unwrap();
        let expected: Vec<f32> = bank.apply(&frame).collect();
        assert_eq!((0..20).map(|bin| made.values[bin * 9 + 3]).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn another_rate_than_the_filters_are_for_is_an_error() {
        let error = run(&MelSpectrogram::default(), sound(&[&[0.0; 999]], 8_000)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Shape);
        assert_eq!(error.message(), "a sound of 8000 Hz, and sample_rate is 16000");
        let upside_down = MelSpectrogram { f_min: 9_000.0, ..MelSpectrogram::default() };
        assert!(AudioOperation::check(&upside_down).unwrap_err().message().starts_with("f_min is 9000"));
    }
}
