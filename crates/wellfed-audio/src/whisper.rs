//! The log-mel spectrogram that Whisper models take (A. Radford and others, *Robust Speech Recognition via Large-Scale Weak
//! Supervision*, 2022; `whisper.audio.log_mel_spectrogram`).

use crate::{
    FilterBank, MelScale, MelSpectrogram, Result, Scratch, Spectrogram, SpectrogramOptions, logarithm,
};

/// Hz of what goes in.
pub const SAMPLE_RATE: u32 = 16_000;

/// Samples of a chunk: 30 seconds.
pub const N_SAMPLES: usize = 480_000;

const N_FFT: usize = 400;
const HOP_LENGTH: usize = 160;

/// Decades below the greatest value at which others are cut off.
const RANGE: f32 = 8.0;

/// The transform, to be made once and used for all signals.
#[derive(Clone, Debug)]
pub struct WhisperLogMel {
    mel: MelSpectrogram,
}

impl WhisperLogMel {
    /// With so many mels: 80, or 128 of `large-v3`.
    ///
    /// # Errors
    ///
    /// For no mels, or absurdly many.
    pub fn new(n_mels: usize) -> Result<Self> {
        let options = SpectrogramOptions {
            n_fft: N_FFT,
            hop_length: Some(HOP_LENGTH),
            ..SpectrogramOptions::default()
        };
        let bank = FilterBank::mel(N_FFT / 2 + 1, 0.0, 8_000.0, n_mels, SAMPLE_RATE, true, MelScale::Slaney)?;
        Ok(Self { mel: MelSpectrogram::new(Spectrogram::new(options)?, bank)? })
    }

    /// Frames of so many samples: 3,000 of a chunk.
    pub fn frames(&self, samples: usize) -> usize {
        // Of the spectrogram's frames the last one is left out.
        self.mel.frames(samples).saturating_sub(1)
    }

    /// Fills `out` with the values: mel by mel, [`WhisperLogMel::frames`] each.
    ///
    /// # Errors
    ///
    /// For fewer than 201 samples.
    pub fn apply(&self, samples: &[f32], scratch: &mut Scratch, out: &mut Vec<f32>) -> Result<()> {
        out.resize(self.mel.filters() * self.frames(samples.len()), 0.0);
        self.fill(samples, scratch, out)
    }

    /// The same into a slice of that many values, all of which are written.
    ///
    /// # Errors
    ///
    /// For fewer than 201 samples.
    pub fn fill(&self, samples: &[f32], scratch: &mut Scratch, out: &mut [f32]) -> Result<()> {
        let log = |value: f32| logarithm::log10(value.max(1e-10));
        let least = self.mel.fill_mapped(samples, self.frames(samples.len()), scratch, out, log)? - RANGE;
        logarithm::each(out, |value| (value.max(least) + 4.0) / 4.0);
        Ok(())
    }
}

/// Cuts a signal off at, or fills it with zeros to, so many samples.
pub fn pad_or_trim(samples: &mut Vec<f32>, length: usize) {
    samples.resize(length, 0.0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_has_3000_frames_within_two_units() {
        let whisper = WhisperLogMel::new(80).unwrap();
        let mut samples: Vec<f32> = (0..16_000).map(|i| (i as f32 * 0.3).sin() * 0.5).collect();
        pad_or_trim(&mut samples, N_SAMPLES);
        let mut out = Vec::new();
        whisper.apply(&samples, &mut Scratch::default(), &mut out).unwrap();
        assert_eq!(out.len(), 80 * 3_000);
        let (least, most) = out.iter().fold((f32::MAX, f32::MIN), |(a, b), x| (a.min(*x), b.max(*x)));
        // Eight decades are two units.
        assert!((most - least - 2.0).abs() < 1e-5, "{least} {most}");
    }
}
