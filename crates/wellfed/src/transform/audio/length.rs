//! `PadOrTrim` and `RandomSegment`: how long a sound is.

use std::{fmt, ops::Range, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{AudioKernel, AudioOperation, Sound, SoundShape};
use crate::{
    Error, Result,
    rng::Rng,
    transform::param::{Repr, python_bool},
};

/// Greatest length that a parameter may ask for. Whether there may be so many values is up to [`crate::Limits`].
const MOST: usize = 1 << 40;

fn check_length(name: &str, length: usize) -> Result<()> {
    if (1..=MOST).contains(&length) {
        return Ok(());
    }
    Err(Error::config(format!("{name} is {length}; must be 1 to {MOST}")))
}

/// Cuts sounds off at so many frames, or fills them with zeros, as Whisper's `pad_or_trim` does. Of a spectrum its frames count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PadOrTrim {
    /// Samples of a waveform, frames of a spectrum. Default: 480,000, which are 30 seconds at 16 kHz.
    pub length: usize,
}

impl Default for PadOrTrim {
    fn default() -> Self {
        Self { length: wellfed_audio::whisper::N_SAMPLES }
    }
}

impl fmt::Display for PadOrTrim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "PadOrTrim").field("length", self.length).finish()
    }
}

impl AudioOperation for PadOrTrim {
    fn kernel(&self, _rate: u32) -> Result<Arc<dyn AudioKernel>> {
        check_length("length", self.length)?;
        Ok(Arc::new(*self))
    }
}

impl AudioKernel for PadOrTrim {
    fn becomes(&self, shape: SoundShape) -> Result<SoundShape> {
        Ok(SoundShape { frames: Some(self.length), ..shape })
    }

    fn run(&self, sound: &mut Sound, _rng: &mut Rng) -> Result<()> {
        sound.cut(0, self.length);
        Ok(())
    }

    fn window(&self, frames: u64, _rng: &mut Rng) -> Option<Range<u64>> {
        Some(0..frames.min(self.length as u64))
    }
}

/// Cuts a segment of so many frames out at random. A sound that is shorter stays whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomSegment {
    /// Samples of a waveform, frames of a spectrum.
    pub num_frames: usize,
    /// Whether a shorter sound is filled with zeros at its end. Default: false.
    #[serde(default)]
    pub pad_if_needed: bool,
}

impl RandomSegment {
    fn start(&self, frames: u64, rng: &mut Rng) -> u64 {
        match frames.checked_sub(self.num_frames as u64) {
            Some(room) => rng.below(room + 1),
            None => 0,
        }
    }
}

impl fmt::Display for RandomSegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "RandomSegment")
            .field("num_frames", self.num_frames)
            .field("pad_if_needed", python_bool(self.pad_if_needed))
            .finish()
    }
}

impl AudioOperation for RandomSegment {
    fn kernel(&self, _rate: u32) -> Result<Arc<dyn AudioKernel>> {
        check_length("num_frames", self.num_frames)?;
        Ok(Arc::new(*self))
    }
}

impl AudioKernel for RandomSegment {
    fn becomes(&self, shape: SoundShape) -> Result<SoundShape> {
        let frames = match shape.frames {
            _ if self.pad_if_needed => Some(self.num_frames),
            frames => frames.map(|frames| frames.min(self.num_frames)),
        };
        Ok(SoundShape { frames, ..shape })
    }

    fn run(&self, sound: &mut Sound, rng: &mut Rng) -> Result<()> {
        let frames = sound.frames();
        let start = self.start(frames as u64, rng) as usize;
        sound.cut(start, if self.pad_if_needed { self.num_frames } else { frames.min(self.num_frames) });
        Ok(())
    }

    fn window(&self, frames: u64, rng: &mut Rng) -> Option<Range<u64>> {
        let start = self.start(frames, rng);
        Some(start..frames.min(start + self.num_frames as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn sounds_are_cut_off_or_filled_up() {
        let three = || sound(&[&[1.0, 2.0, 3.0]], 8);
        assert_eq!(run(&PadOrTrim { length: 2 }, three()).unwrap().values, [1.0, 2.0]);
        assert_eq!(run(&PadOrTrim { length: 4 }, three()).unwrap().values, [1.0, 2.0, 3.0, 0.0]);
        let error = AudioOperation::check(&PadOrTrim { length: 0 }).unwrap_err();
        assert_eq!(error.message(), "length is 0; must be 1 to 1099511627776");
    }

    #[test]
    fn every_start_of_a_segment_is_as_likely_and_its_window_is_the_same() {
        let values: Vec<f32> = (0..10).map(|i| i as f32).collect();
        let segment = RandomSegment { num_frames: 7, pad_if_needed: false };
        let mut starts = [0; 4];
        for index in 0..4000 {
            let rng = || Rng::for_stage(1, 0, index, 0);
            let mut sound = sound(&[&values], 8);
            segment.run(&mut sound, &mut rng()).unwrap();
            let first = sound.values[0] as usize;
            assert_eq!(sound.values, values[first..first + 7]);
            assert_eq!(segment.window(10, &mut rng()), Some(first as u64..first as u64 + 7));
            starts[first] += 1;
        }
        assert!(starts.iter().all(|count| (900..1100).contains(count)), "{starts:?}");
    }

    #[test]
    fn what_is_too_short_for_a_segment_stays_or_is_filled_up() {
        let short = || sound(&[&[1.0, 2.0]], 8);
        let segment = |pad_if_needed| RandomSegment { num_frames: 3, pad_if_needed };
        assert_eq!(run(&segment(false), short()).unwrap().values, [1.0, 2.0]);
        assert_eq!(run(&segment(true), short()).unwrap().values, [1.0, 2.0, 0.0]);
        assert_eq!(segment(true).window(2, &mut Rng::for_stage(0, 0, 0, 0)), Some(0..2));
        assert_eq!(segment(true).to_string(), "RandomSegment(num_frames=3, pad_if_needed=True)");
    }
}
