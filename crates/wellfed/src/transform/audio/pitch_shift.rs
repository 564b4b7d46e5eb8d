//! `PitchShift`: higher or lower at the same speed.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{AudioKernel, AudioOperation, Sound, SoundShape, refused, spectrogram::WindowFn};
use crate::{Error, Result, rng::Rng, transform::param::Repr};

/// Shifts the pitch of a waveform by so many steps; its length stays.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PitchShift {
    /// Rate of the waveform, Hz; another one is an error.
    sample_rate: u32,
    /// Steps upwards; downwards where negative.
    n_steps: f64,
    /// Steps of an octave. Default: 12.
    #[serde(default = "twelve")]
    bins_per_octave: u32,
    /// Samples of a transform. Default: 512.
    #[serde(default = "n_fft")]
    n_fft: usize,
    /// Samples of a window. Default: `n_fft`.
    #[serde(default)]
    win_length: Option<usize>,
    /// Samples from one frame to the next. Default: a quarter of a window.
    #[serde(default)]
    hop_length: Option<usize>,
    #[serde(default)]
    window_fn: WindowFn,
}

fn twelve() -> u32 {
    12
}

fn n_fft() -> usize {
    512
}

impl fmt::Display for PitchShift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "PitchShift")
            .field("sample_rate", self.sample_rate)
            .field("n_steps", self.n_steps)
            .field("bins_per_octave", self.bins_per_octave)
            .field("n_fft", self.n_fft)
            .finish()
    }
}

impl AudioOperation for PitchShift {
    fn kernel(&self, _rate: u32) -> Result<Arc<dyn AudioKernel>> {
        if self.sample_rate == 0 || self.bins_per_octave == 0 {
            return Err(Error::config(format!(
                "sample_rate is {} and bins_per_octave {}; both must be at least 1",
                self.sample_rate, self.bins_per_octave
            )));
        }
        let win_length = self.win_length.unwrap_or(self.n_fft);
        let hop_length = self.hop_length.unwrap_or(win_length / 4);
        let window = self.window_fn.into();
        let stretch = wellfed_audio::TimeStretch::new(self.n_fft, win_length, hop_length, &window);
        let shift = wellfed_audio::PitchShift::new(
            self.sample_rate,
            self.n_steps,
            self.bins_per_octave,
            stretch.map_err(refused)?,
        );
        Ok(Arc::new(Shifter { sample_rate: self.sample_rate, shift: shift.map_err(refused)? }))
    }
}

#[derive(Debug)]
struct Shifter {
    sample_rate: u32,
    shift: wellfed_audio::PitchShift,
}

impl AudioKernel for Shifter {
    fn becomes(&self, shape: SoundShape) -> Result<SoundShape> {
        shape.waveform()?.at_rate(self.sample_rate)
    }

    fn scratch(&self, shape: SoundShape) -> usize {
        self.shift.scratch(shape.frames.unwrap_or(0))
    }

    fn run(&self, sound: &mut Sound, _rng: &mut Rng) -> Result<()> {
        let shape = sound.shape;
        sound.replace(shape, |samples, places, out| {
            out.extend_from_slice(&self.shift.apply(samples, places.padded)?);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn each_channel_is_shifted_and_keeps_its_length() {
        let shift: PitchShift = serde_json::from_str(r#"{"sample_rate":16000,"n_steps":12}"#).unwrap();
        let tone = |frequency: f32| -> Vec<f32> {
            (0..8_000).map(|i| (2.0 * std::f32::consts::PI * frequency * i as f32 / 16_000.0).sin()).collect()
        };
        let made = run(&shift, sound(&[&tone(300.0), &tone(500.0)], 16_000)).unwrap();
        for (channel, wanted) in made.values.chunks_exact(8_000).zip([600.0, 1_000.0]) {
            let inner = &channel[1_000..7_000];
            let crossings = inner.windows(2).filter(|pair| pair[0] < 0.0 && pair[1] >= 0.0).count();
            let found = crossings as f32 * 16_000.0 / 6_000.0;
            assert!((found - wanted).abs() < 10.0, "{found} {wanted}");
        }
        let short = run(&shift, sound(&[&[0.0; 256]], 16_000)).unwrap_err();
        assert!(short.message().contains("too few for n_fft=512"), "{short}");
    }

    #[test]
    fn parameters_without_sense_are_refused() {
        let message = |json: &str| {
            let shift: PitchShift = serde_json::from_str(json).unwrap();
            AudioOperation::check(&shift).unwrap_err().message().to_owned()
        };
        assert!(message(r#"{"sample_rate":0,"n_steps":1}"#).starts_with("sample_rate is 0"));
        assert!(message(r#"{"sample_rate":8000,"n_steps":60}"#).starts_with("n_steps is 60"));
        assert!(
            message(r#"{"sample_rate":8000,"n_steps":1,"hop_length":600}"#).starts_with("hop_length is 600")
        );
        let shift: PitchShift = serde_json::from_str(r#"{"sample_rate":8000,"n_steps":-1}"#).unwrap();
        let error = run(&shift, sound(&[&[0.0; 999]], 16_000)).unwrap_err();
        assert_eq!(error.message(), "a sound of 16000 Hz, and sample_rate is 8000");
        assert_eq!(
            shift.to_string(),
            "PitchShift(sample_rate=8000, n_steps=-1, bins_per_octave=12, n_fft=512)"
        );
    }
}
