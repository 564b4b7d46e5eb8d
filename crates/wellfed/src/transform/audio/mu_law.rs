//! `MuLawEncoding` and `MuLawDecoding`: samples as numbers of a logarithmic scale, and back (ITU-T G.711's curve, without its segments).

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use wellfed_audio::effects;

use super::{AudioKernel, AudioOperation, Sound, SoundShape};
use crate::{Error, ErrorKind, Result, rng::Rng, transform::param::Repr};

/// Numbers that float32, which sounds are under way, tells apart.
const MOST: u32 = 1 << 24;

fn check(quantization_channels: u32) -> Result<()> {
    if (2..=MOST).contains(&quantization_channels) {
        return Ok(());
    }
    Err(Error::config(format!("quantization_channels is {quantization_channels}; must be 2 to {MOST}")))
}

fn default_channels() -> u32 {
    256
}

/// Makes whole numbers from 0 to `quantization_channels - 1` of samples from -1 to 1. Batches have them as int64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MuLawEncoding {
    /// How many numbers there are. Default: 256.
    #[serde(default = "default_channels")]
    quantization_channels: u32,
}

impl fmt::Display for MuLawEncoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "MuLawEncoding").field("quantization_channels", self.quantization_channels).finish()
    }
}

impl AudioOperation for MuLawEncoding {
    fn kernel(&self, _rate: u32) -> Result<Arc<dyn AudioKernel>> {
        check(self.quantization_channels)?;
        Ok(Arc::new(*self))
    }
}

impl AudioKernel for MuLawEncoding {
    fn becomes(&self, shape: SoundShape) -> Result<SoundShape> {
        Ok(SoundShape { codes: Some(self.quantization_channels), ..shape.waveform()? })
    }

    fn run(&self, sound: &mut Sound, _rng: &mut Rng) -> Result<()> {
        sound.shape = self.becomes(sound.shape)?;
        for values in sound.values.chunks_mut(1 << 10) {
            let mut samples = [0.0; 1 << 10];
            let samples = &mut samples[..values.len()];
            samples.copy_from_slice(values);
            let numbers = effects::mu_law_encode(samples, self.quantization_channels);
            values.iter_mut().zip(numbers).for_each(|(value, number)| *value = number as f32);
        }
        Ok(())
    }
}

/// Makes samples of such numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MuLawDecoding {
    /// How many numbers there are: those of the `MuLawEncoding` before it. Default: 256.
    #[serde(default = "default_channels")]
    quantization_channels: u32,
}

impl fmt::Display for MuLawDecoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "MuLawDecoding").field("quantization_channels", self.quantization_channels).finish()
    }
}

impl AudioOperation for MuLawDecoding {
    fn kernel(&self, _rate: u32) -> Result<Arc<dyn AudioKernel>> {
        check(self.quantization_channels)?;
        Ok(Arc::new(*self))
    }
}

impl AudioKernel for MuLawDecoding {
    fn becomes(&self, shape: SoundShape) -> Result<SoundShape> {
        match shape.codes {
            Some(codes) if codes == self.quantization_channels => Ok(SoundShape { codes: None, ..shape }),
            Some(codes) => Err(Error::new(
                ErrorKind::Shape,
                format!(
                    "numbers of {codes} quantization channels, and quantization_channels is {}",
                    self.quantization_channels
                ),
            )),
            None => {
                Err(Error::config("it works on what MuLawEncoding makes, and what comes to it is not that")
                    .with_hint("put MuLawEncoding before it: samples of files are decoded already"))
            }
        }
    }

    fn run(&self, sound: &mut Sound, _rng: &mut Rng) -> Result<()> {
        sound.shape = self.becomes(sound.shape)?;
        for values in sound.values.chunks_mut(1 << 10) {
            let mut numbers = [0; 1 << 10];
            let numbers = &mut numbers[..values.len()];
            numbers.iter_mut().zip(&*values).for_each(|(number, value)| *number = *value as i64);
            let samples = effects::mu_law_decode(numbers, self.quantization_channels);
            values.iter_mut().zip(samples).for_each(|(value, sample)| *value = sample);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn samples_become_numbers_and_samples_again() {
        let wave: Vec<f32> = (0..3_000).map(|i| (i as f32 * 0.37).sin()).collect();
        let encoding = MuLawEncoding { quantization_channels: 256 };
        let numbers = run(&encoding, sound(&[&wave, &wave[..]], 8_000)).unwrap();
        assert!(numbers.values.iter().all(|n| n.fract() == 0.0 && (0.0..256.0).contains(n)));
        let expected: Vec<f32> = effects::mu_law_encode(&wave, 256).map(|number| number as f32).collect();
        assert_eq!(numbers.values, [&expected[..], &expected].concat());
        assert_eq!(numbers.shape.codes, Some(256));
        let back = run(&MuLawDecoding { quantization_channels: 256 }, numbers).unwrap();
        for (found, wanted) in back.values.iter().zip(wave.iter().chain(&wave)) {
            assert!((found - wanted).abs() < 0.025, "{found} {wanted}");
        }
        assert_eq!(back.shape.codes, None);
    }

    #[test]
    fn numbers_are_no_samples() {
        let encoding = MuLawEncoding { quantization_channels: 256 };
        let numbers = encoding.becomes(SoundShape::file()).unwrap();
        let error = encoding.becomes(numbers).unwrap_err();
        assert!(error.message().contains("works on samples"), "{error}");
        let error = MuLawDecoding { quantization_channels: 128 }.becomes(numbers).unwrap_err();
        let expected = "numbers of 256 quantization channels, and quantization_channels is 128";
        assert_eq!(error.message(), expected);
        assert!(MuLawDecoding { quantization_channels: 256 }.becomes(SoundShape::file()).is_err());
        for bad in [0, 1, MOST + 1] {
            let error = AudioOperation::check(&MuLawEncoding { quantization_channels: bad }).unwrap_err();
            assert!(error.message().starts_with(&format!("quantization_channels is {bad};")), "{error}");
        }
        assert_eq!(encoding.to_string(), "MuLawEncoding(quantization_channels=256)");
    }
}
