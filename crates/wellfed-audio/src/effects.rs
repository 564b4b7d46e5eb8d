//! What is done to samples before a spectrum: loudness, fades, noise, rooms, companding. Names and values are torchaudio's.

use std::f32::consts::PI;

use crate::{Error, Result};

/// How a gain is told: `torchaudio.transforms.Vol`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gain {
    /// A factor of samples.
    Amplitude(f32),
    /// A factor of their squares.
    Power(f32),
    /// Decibels.
    Db(f32),
}

impl Gain {
    /// The factor of samples.
    fn factor(self) -> f32 {
        match self {
            Self::Amplitude(factor) => factor,
            Self::Power(factor) => factor.sqrt(),
            Self::Db(decibels) => 10.0f32.powf(decibels / 20.0),
        }
    }
}

/// Makes a signal louder or softer, and cuts it off at -1 and 1, as `Vol` does.
pub fn vol(samples: &mut [f32], gain: Gain) {
    let factor = gain.factor();
    samples.iter_mut().for_each(|sample| *sample = (*sample * factor).clamp(-1.0, 1.0));
}

/// Takes its mean from a signal, and divides it by the root of its variance and `eps`: `zero_mean_unit_var_norm` of Hugging Face's
/// `Wav2Vec2FeatureExtractor`, whose `eps` is 1e-7.
pub fn standardize(samples: &mut [f32], eps: f32) {
    // In float64, which is nearer to the true sums than the float32 of NumPy, that adds in blocks.
    let len = samples.len() as f64;
    let mean = samples.iter().map(|sample| f64::from(*sample)).sum::<f64>() / len;
    let squares = samples.iter().map(|sample| (f64::from(*sample) - mean).powi(2)).sum::<f64>();
    let (mean, deviation) = (mean as f32, ((squares / len) as f32 + eps).sqrt());
    samples.iter_mut().for_each(|sample| *sample = (*sample - mean) / deviation);
}

/// The curve of a fade: `torchaudio.transforms.Fade`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are torchaudio's")]
pub enum FadeShape {
    #[default]
    Linear,
    Exponential,
    Logarithmic,
    QuarterSine,
    HalfSine,
}

impl FadeShape {
    /// The factor at a part of the way in, from 0 to 1.
    fn fade_in(self, at: f32) -> f32 {
        let factor = match self {
            Self::Linear => at,
            Self::Exponential => 2.0f32.powf(at - 1.0) * at,
            Self::Logarithmic => (0.1 + at).log10() + 1.0,
            Self::QuarterSine => (at * PI / 2.0).sin(),
            Self::HalfSine => (at * PI - PI / 2.0).sin() / 2.0 + 0.5,
        };
        factor.clamp(0.0, 1.0)
    }

    /// The same on the way out.
    fn fade_out(self, at: f32) -> f32 {
        let factor = match self {
            Self::Linear => 1.0 - at,
            Self::Exponential => 2.0f32.powf(-at) * (1.0 - at),
            Self::Logarithmic => (1.1 - at).log10() + 1.0,
            Self::QuarterSine => (at * PI / 2.0 + PI / 2.0).sin(),
            Self::HalfSine => (at * PI + PI / 2.0).sin() / 2.0 + 0.5,
        };
        factor.clamp(0.0, 1.0)
    }
}

/// Fades a signal in and out.
///
/// # Errors
///
/// For a fade that is longer than the signal.
pub fn fade(samples: &mut [f32], fade_in_len: usize, fade_out_len: usize, shape: FadeShape) -> Result<()> {
    let len = samples.len();
    if fade_in_len > len || fade_out_len > len {
        return Err(Error::argument(format!(
            "a fade of {fade_in_len} samples in and {fade_out_len} out, and the sound has {len}"
        )));
    }
    // `torch.linspace(0, 1, n)`.
    let part = |i: usize, n: usize| if n == 1 { 0.0 } else { i as f32 / (n - 1) as f32 };
    for (i, sample) in samples[..fade_in_len].iter_mut().enumerate() {
        *sample *= shape.fade_in(part(i, fade_in_len));
    }
    for (i, sample) in samples[len - fade_out_len..].iter_mut().enumerate() {
        *sample *= shape.fade_out(part(i, fade_out_len));
    }
    Ok(())
}

/// Adds noise of the same length, so loud that the signal is `snr` decibels above it: `torchaudio.functional.add_noise`. Silence as
/// noise changes nothing, where torchaudio gives what is no number.
///
/// # Errors
///
/// For noise of another length.
pub fn add_noise(samples: &mut [f32], noise: &[f32], snr: f32) -> Result<()> {
    if samples.len() != noise.len() {
        let text = format!("noise of {} samples for a sound of {}", noise.len(), samples.len());
        return Err(Error::argument(text));
    }
    let energy = |values: &[f32]| values.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>();
    let of_noise = energy(noise);
    if of_noise == 0.0 {
        return Ok(());
    }
    let above = 10.0 * (energy(samples) / of_noise).log10();
    let scale = 10.0f64.powf((above - f64::from(snr)) / 20.0) as f32;
    samples.iter_mut().zip(noise).for_each(|(sample, noise)| *sample += scale * noise);
    Ok(())
}

/// Numbers of µ-law with so many values: `torchaudio.transforms.MuLawEncoding`.
pub fn mu_law_encode(samples: &[f32], quantization_channels: u32) -> impl Iterator<Item = i64> {
    let mu = quantization_channels.saturating_sub(1) as f32;
    samples.iter().map(move |sample| {
        let companded = sample.signum() * (mu * sample.abs()).ln_1p() / mu.ln_1p();
        let companded = if *sample == 0.0 { 0.0 } else { companded };
        ((companded + 1.0) / 2.0 * mu + 0.5) as i64
    })
}

/// The samples of such numbers: `torchaudio.transforms.MuLawDecoding`.
pub fn mu_law_decode(numbers: &[i64], quantization_channels: u32) -> impl Iterator<Item = f32> {
    let mu = quantization_channels.saturating_sub(1) as f32;
    numbers.iter().map(move |number| {
        let companded = *number as f32 / mu * 2.0 - 1.0;
        companded.signum() * ((companded.abs() * mu.ln_1p()).exp() - 1.0) / mu
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_standardized() {
        let mut samples = [1.0, 3.0, 1.0, 3.0];
        standardize(&mut samples, 3.0);
        assert_eq!(samples, [-0.5, 0.5, -0.5, 0.5]);
        let mut silence = [0.25; 3];
        standardize(&mut silence, 1e-7);
        assert_eq!(silence, [0.0; 3]);
        standardize(&mut [], 1e-7);
    }

    #[test]
    fn gains_are_cut_off() {
        for gain in [Gain::Amplitude(2.0), Gain::Power(4.0), Gain::Db(6.020_6)] {
            let mut samples = [0.25, -0.25, 0.75, -1.0];
            vol(&mut samples, gain);
            for (found, wanted) in samples.iter().zip([0.5, -0.5, 1.0, -1.0]) {
                assert!((found - wanted).abs() < 1e-5, "{gain:?}: {found}");
            }
        }
    }

    #[test]
    fn fades_go_from_silence_to_silence() {
        use FadeShape::{Exponential, HalfSine, Linear, Logarithmic, QuarterSine};
        for shape in [Linear, Exponential, Logarithmic, QuarterSine, HalfSine] {
            let mut samples = [1.0; 30];
            fade(&mut samples, 10, 10, shape).unwrap();
            assert!(samples[0] < 1e-6 && samples[29] < 1e-6, "{shape:?}");
            assert!(samples[..10].is_sorted() && samples[20..].is_sorted_by(|a, b| a >= b), "{shape:?}");
            assert_eq!(samples[10..20], [1.0; 10]);
        }
        assert!(fade(&mut [0.0; 5], 6, 0, Linear).is_err());
    }

    #[test]
    fn noise_is_as_loud_as_asked() {
        let mut samples = vec![0.5; 100];
        let noise: Vec<f32> = (0..100).map(|i| if i % 2 == 0 { 0.1 } else { -0.1 }).collect();
        add_noise(&mut samples, &noise, 20.0).unwrap();
        // A tenth of the signal.
        assert!((samples[0] - 0.55).abs() < 1e-6 && (samples[1] - 0.45).abs() < 1e-6);
        add_noise(&mut samples, &[0.0; 100], 20.0).unwrap();
        assert!(samples.iter().all(|sample| sample.is_finite()));
        assert!(add_noise(&mut samples, &noise[1..], 20.0).is_err());
    }

    #[test]
    fn companding_keeps_what_it_can() {
        let samples = [-1.0, -0.5, -0.01, 0.0, 0.01, 0.5, 1.0];
        let numbers: Vec<i64> = mu_law_encode(&samples, 256).collect();
        assert_eq!((numbers[0], numbers[3], numbers[6]), (0, 128, 255));
        for (found, wanted) in mu_law_decode(&numbers, 256).zip(samples) {
            assert!((found - wanted).abs() < 0.02, "{found} {wanted}");
        }
    }
}
