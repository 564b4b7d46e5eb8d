//! `MelScale`: filters that are as wide as ears hear, on a spectrum that there is already.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use wellfed_audio::FilterBank;

use super::{
    AudioKernel, AudioOperation, Sound, SoundShape,
    mel_spectrogram::{Norm, Scale, mel_bank},
};
use crate::{Error, ErrorKind, Result, rng::Rng, transform::param::Repr};

/// The mel spectrum of a spectrum: `[channels, n_stft, frames]` becomes `[channels, n_mels, frames]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MelScale {
    /// Filters. Default: 128.
    n_mels: usize,
    /// Rate of the waveform, Hz; another one is an error. Default: 16,000.
    sample_rate: u32,
    /// Lowest frequency, Hz. Default: 0.
    f_min: f64,
    /// Highest frequency, Hz. Default: half of the rate.
    f_max: Option<f64>,
    /// Bins of the spectrum. Default: 201, those of `n_fft=400`.
    n_stft: usize,
    norm: Option<Norm>,
    mel_scale: Scale,
}

impl Default for MelScale {
    fn default() -> Self {
        Self {
            n_mels: 128,
            sample_rate: 16_000,
            f_min: 0.0,
            f_max: None,
            n_stft: 201,
            norm: None,
            mel_scale: Scale::default(),
        }
    }
}

impl fmt::Display for MelScale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "MelScale")
            .field("n_mels", self.n_mels)
            .field("sample_rate", self.sample_rate)
            .field("n_stft", self.n_stft)
            .finish()
    }
}

impl AudioOperation for MelScale {
    fn kernel(&self, _rate: u32) -> Result<Arc<dyn AudioKernel>> {
        let Self { n_mels, sample_rate, f_min, f_max, n_stft, norm, mel_scale } = *self;
        let bank = mel_bank(n_stft, (f_min, f_max), n_mels, sample_rate, norm, mel_scale)?;
        Ok(Arc::new(Filters { sample_rate, bank }))
    }
}

#[derive(Debug)]
struct Filters {
    sample_rate: u32,
    bank: FilterBank,
}

impl AudioKernel for Filters {
    fn becomes(&self, shape: SoundShape) -> Result<SoundShape> {
        let (bins, wanted) = (shape.spectrum()?, self.bank.bins());
        if bins != wanted {
            let what = format!("a spectrum of {bins} bins, and n_stft is {wanted}");
            return Err(Error::new(ErrorKind::Shape, what)
                .with_hint(format!("set n_stft={bins}: a spectrum has n_fft // 2 + 1 bins")));
        }
        Ok(SoundShape { bins: Some(self.bank.filters()), ..shape.at_rate(self.sample_rate)? })
    }

    fn run(&self, sound: &mut Sound, _rng: &mut Rng) -> Result<()> {
        let shape = self.becomes(sound.shape)?;
        let (frames, time_first) = (sound.frames(), shape.time_first);
        sound.rewrite(shape, |values, _, out| {
            if !time_first {
                self.bank.apply_rows(values, frames, out);
                return Ok(());
            }
            let filters = self.bank.filters();
            for (frame, out) in values.chunks_exact(self.bank.bins()).zip(out.chunks_exact_mut(filters)) {
                out.iter_mut().zip(self.bank.apply(frame)).for_each(|(out, value)| *out = value);
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{MelSpectrogram, Spectrogram, TimeFirst, testing::*},
        *,
    };

    #[test]
    fn a_spectrum_through_filters_is_a_mel_spectrum() {
        let noise: Vec<f32> = (0..1600).map(|i| ((i * 7919) % 101) as f32 / 101.0 - 0.5).collect();
        let both = || sound(&[&noise, &noise[..]], 16_000);
        let whole: MelSpectrogram = serde_json::from_str(r#"{"n_mels":23,"norm":"slaney"}"#).unwrap();
        let expected = run(&whole, both()).unwrap();
        let scale: MelScale = serde_json::from_str(r#"{"n_mels":23,"norm":"slaney"}"#).unwrap();
        let found = run(&scale, run(&Spectrogram::default(), both()).unwrap()).unwrap();
        assert_eq!(found.shape, expected.shape);
        let most = expected.values.iter().copied().fold(0.0, f32::max);
        for (found, expected) in found.values.iter().zip(&expected.values) {
            assert!((found - expected).abs() <= 1e-6 * most, "{found} {expected}");
        }
        let turned = run(&TimeFirst::default(), run(&Spectrogram::default(), both()).unwrap()).unwrap();
        let turned = run(&scale, turned).unwrap();
        let expected = run(&TimeFirst::default(), found).unwrap();
        for (found, expected) in turned.values.iter().zip(&expected.values) {
            assert!((found - expected).abs() <= 1e-6 * most, "{found} {expected}");
        }
    }

    #[test]
    fn spectra_of_other_bins_or_rates_are_refused() {
        let spectrum = |rate| run(&Spectrogram::default(), sound(&[&[0.1; 999]], rate)).unwrap();
        let few = MelScale { n_stft: 257, ..MelScale::default() };
        let error = run(&few, spectrum(16_000)).unwrap_err();
        assert_eq!(error.message(), "a spectrum of 201 bins, and n_stft is 257");
        let error = run(&MelScale::default(), spectrum(8_000)).unwrap_err();
        assert_eq!(error.message(), "a sound of 8000 Hz, and sample_rate is 16000");
        let error = run(&MelScale::default(), sound(&[&[0.1; 999]], 16_000)).unwrap_err();
        assert!(error.message().contains("works on spectra"), "{error}");
        let upside_down = MelScale { f_min: 9_000.0, ..MelScale::default() };
        assert!(AudioOperation::check(&upside_down).unwrap_err().message().starts_with("f_min is 9000"));
        assert_eq!(MelScale::default().to_string(), "MelScale(n_mels=128, sample_rate=16000, n_stft=201)");
    }
}
