//! `Vol`, `Fade` and `Standardize`: how loud a sound is.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use wellfed_audio::effects;

use super::{AudioKernel, AudioOperation, Sound, SoundShape, impossible};
use crate::{Error, Result, rng::Rng, transform::param::Repr};

/// What a gain is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum GainType {
    /// A factor of samples.
    #[default]
    Amplitude,
    /// A factor of their squares.
    Power,
    /// Decibels.
    Db,
}

/// Makes a waveform louder or softer, and cuts it off at -1 and 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vol {
    /// How much: above 0 for amplitudes and powers.
    gain: f32,
    /// What it is. Default: a factor of samples.
    #[serde(default)]
    gain_type: GainType,
}

impl fmt::Display for Vol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.gain_type {
            GainType::Amplitude => "'amplitude'",
            GainType::Power => "'power'",
            GainType::Db => "'db'",
        };
        Repr::new(f, "Vol").field("gain", self.gain).field("gain_type", kind).finish()
    }
}

impl AudioOperation for Vol {
    fn kernel(&self, _rate: u32) -> Result<Arc<dyn AudioKernel>> {
        let least = if self.gain_type == GainType::Db { f32::NEG_INFINITY } else { 0.0 };
        if !self.gain.is_finite() || self.gain < least {
            return Err(Error::config(format!(
                "gain is {}; must be finite, and at least 0 unless gain_type is 'db'",
                self.gain
            )));
        }
        Ok(Arc::new(*self))
    }
}

impl AudioKernel for Vol {
    fn becomes(&self, shape: SoundShape) -> Result<SoundShape> {
        shape.waveform()
    }

    fn run(&self, sound: &mut Sound, _rng: &mut Rng) -> Result<()> {
        effects::vol(
            &mut sound.values,
            match self.gain_type {
                GainType::Amplitude => effects::Gain::Amplitude(self.gain),
                GainType::Power => effects::Gain::Power(self.gain),
                GainType::Db => effects::Gain::Db(self.gain),
            },
        );
        Ok(())
    }
}

/// The curve of a fade.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Curve {
    #[default]
    Linear,
    Exponential,
    Logarithmic,
    QuarterSine,
    HalfSine,
}

impl Curve {
    fn name(self) -> &'static str {
        match self {
            Curve::Linear => "'linear'",
            Curve::Exponential => "'exponential'",
            Curve::Logarithmic => "'logarithmic'",
            Curve::QuarterSine => "'quarter_sine'",
            Curve::HalfSine => "'half_sine'",
        }
    }

    fn shape(self) -> effects::FadeShape {
        match self {
            Curve::Linear => effects::FadeShape::Linear,
            Curve::Exponential => effects::FadeShape::Exponential,
            Curve::Logarithmic => effects::FadeShape::Logarithmic,
            Curve::QuarterSine => effects::FadeShape::QuarterSine,
            Curve::HalfSine => effects::FadeShape::HalfSine,
        }
    }
}

/// Fades a waveform in and out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Fade {
    /// Samples. Default: 0.
    fade_in_len: usize,
    /// Samples. Default: 0.
    fade_out_len: usize,
    /// Default: linear.
    fade_shape: Curve,
}

impl fmt::Display for Fade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "Fade")
            .field("fade_in_len", self.fade_in_len)
            .field("fade_out_len", self.fade_out_len)
            .field("fade_shape", self.fade_shape.name())
            .finish()
    }
}

impl AudioOperation for Fade {
    fn kernel(&self, _rate: u32) -> Result<Arc<dyn AudioKernel>> {
        Ok(Arc::new(*self))
    }
}

impl AudioKernel for Fade {
    fn becomes(&self, shape: SoundShape) -> Result<SoundShape> {
        shape.waveform()
    }

    fn run(&self, sound: &mut Sound, _rng: &mut Rng) -> Result<()> {
        let frames = sound.frames();
        if frames == 0 {
            return Ok(());
        }
        let Fade { fade_in_len, fade_out_len, fade_shape } = *self;
        for channel in sound.values.chunks_exact_mut(frames) {
            effects::fade(channel, fade_in_len, fade_out_len, fade_shape.shape()).map_err(impossible)?;
        }
        Ok(())
    }
}

/// Takes the mean of each channel from it, and divides it by its standard deviation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Standardize {
    /// Added to the variance, so that silence is not divided by 0. Default: 1e-7.
    eps: f32,
}

impl Default for Standardize {
    fn default() -> Self {
        Self { eps: 1e-7 }
    }
}

impl fmt::Display for Standardize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "Standardize").field("eps", self.eps).finish()
    }
}

impl AudioOperation for Standardize {
    fn kernel(&self, _rate: u32) -> Result<Arc<dyn AudioKernel>> {
        if !self.eps.is_finite() || self.eps <= 0.0 {
            return Err(Error::config(format!("eps is {}; must be finite and above 0", self.eps)));
        }
        Ok(Arc::new(*self))
    }
}

impl AudioKernel for Standardize {
    fn becomes(&self, shape: SoundShape) -> Result<SoundShape> {
        shape.waveform()
    }

    fn run(&self, sound: &mut Sound, _rng: &mut Rng) -> Result<()> {
        // Of a sound without frames there are no channels either.
        let frames = sound.frames().max(1);
        for channel in sound.values.chunks_exact_mut(frames) {
            effects::standardize(channel, self.eps);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn channels_are_standardized_each_by_itself() {
        let made = run(&Standardize { eps: 3.0 }, sound(&[&[1.0, 3.0], &[-1.0, -1.0]], 8)).unwrap();
        assert_eq!(made.values, [-0.5, 0.5, 0.0, 0.0]);
        assert!(run(&Standardize::default(), sound(&[&[]], 8)).unwrap().values.is_empty());
        let error = AudioOperation::check(&Standardize { eps: 0.0 }).unwrap_err();
        assert_eq!(error.message(), "eps is 0; must be finite and above 0");
    }

    #[test]
    fn every_channel_gets_louder_and_fades() {
        let loud = run(&Vol { gain: 6.0, gain_type: GainType::Db }, sound(&[&[0.1], &[0.9]], 8)).unwrap();
        assert!((loud.values[0] - 0.19953).abs() < 1e-5 && loud.values[1] == 1.0, "{:?}", loud.values);
        let fade = Fade { fade_in_len: 2, ..Fade::default() };
        let faded = run(&fade, sound(&[&[1.0, 1.0, 1.0], &[2.0, 2.0, 2.0]], 8)).unwrap();
        assert_eq!(faded.values, [0.0, 1.0, 1.0, 0.0, 2.0, 2.0]);
        let error = run(&fade, sound(&[&[1.0]], 8)).unwrap_err();
        assert!(error.message().contains("the sound has 1"), "{error}");
        assert!(AudioOperation::check(&Vol { gain: -1.0, gain_type: GainType::Power }).is_err());
        assert_eq!(fade.to_string(), "Fade(fade_in_len=2, fade_out_len=0, fade_shape='linear')");
    }
}
