//! `WhisperLogMel`: what OpenAI's Whisper models take.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use wellfed_audio::whisper;

use super::{AudioKernel, AudioOperation, Sound, SoundShape, refused};
use crate::{Result, rng::Rng, transform::param::Repr};

/// Whisper's `log_mel_spectrogram` of each channel of 16 kHz: `[channels, n_mels, frames]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WhisperLogMel {
    /// 80, or 128 of `large-v3`. Default: 80.
    n_mels: usize,
}

impl Default for WhisperLogMel {
    fn default() -> Self {
        Self { n_mels: 80 }
    }
}

impl fmt::Display for WhisperLogMel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "WhisperLogMel").field("n_mels", self.n_mels).finish()
    }
}

impl AudioOperation for WhisperLogMel {
    fn kernel(&self, _rate: u32) -> Result<Arc<dyn AudioKernel>> {
        let transform = whisper::WhisperLogMel::new(self.n_mels).map_err(refused)?;
        Ok(Arc::new(LogMel { transform, n_mels: self.n_mels }))
    }
}

#[derive(Debug)]
struct LogMel {
    transform: whisper::WhisperLogMel,
    n_mels: usize,
}

impl AudioKernel for LogMel {
    fn becomes(&self, shape: SoundShape) -> Result<SoundShape> {
        let shape = shape.waveform()?.at_rate(whisper::SAMPLE_RATE)?;
        let frames = shape.frames.map(|samples| self.transform.frames(samples));
        Ok(SoundShape { bins: Some(self.n_mels), frames, ..shape })
    }

    fn run(&self, sound: &mut Sound, _rng: &mut Rng) -> Result<()> {
        let shape = self.becomes(sound.shape)?;
        sound.rewrite(shape, |samples, scratch, out| self.transform.fill(samples, scratch, out))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn every_channel_has_a_spectrum_at_16_khz() {
        let tone: Vec<f32> = (0..3200).map(|i| (i as f32 / 5.0).sin()).collect();
        let made = run(&WhisperLogMel::default(), sound(&[&tone, &tone], 16_000)).unwrap();
        assert_eq!(made.shape.sides(), [Some(2), Some(80), Some(20)]);
        assert_eq!(made.values[..1600], made.values[1600..]);
        let error = run(&WhisperLogMel::default(), sound(&[&tone], 44_100)).unwrap_err();
        assert!(error.message().contains("44100"), "{error}");
    }
}
