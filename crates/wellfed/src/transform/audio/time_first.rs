//! `TimeFirst`: spectra frame by frame.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{AudioKernel, AudioOperation, Sound, SoundShape};
use crate::{Result, rng::Rng, transform::param::Repr};

/// Makes `[..., frames, bins]` of a spectrum `[..., bins, frames]`: `spectrum.transpose(-1, -2)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimeFirst {}

impl fmt::Display for TimeFirst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "TimeFirst").finish()
    }
}

impl AudioOperation for TimeFirst {
    fn kernel(&self, _rate: u32) -> Result<Arc<dyn AudioKernel>> {
        Ok(Arc::new(*self))
    }
}

impl AudioKernel for TimeFirst {
    fn becomes(&self, shape: SoundShape) -> Result<SoundShape> {
        shape.spectrum()?;
        Ok(SoundShape { time_first: true, ..shape })
    }

    fn run(&self, sound: &mut Sound, _rng: &mut Rng) -> Result<()> {
        let shape = self.becomes(sound.shape)?;
        if sound.shape.time_first {
            return Ok(());
        }
        let frames = sound.frames();
        sound.replace(shape, |spectrum, _, out| {
            for frame in 0..frames {
                out.extend(spectrum[frame..].iter().step_by(frames.max(1)));
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn frames_and_bins_change_places() {
        let mut two = sound(&[&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[0.0; 6]], 8);
        two.shape = SoundShape { bins: Some(2), frames: Some(3), ..two.shape };
        let turned = run(&TimeFirst {}, two).unwrap();
        assert_eq!(turned.values[..6], [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
        assert_eq!(turned.shape.sides(), [Some(2), Some(3), Some(2)]);
        assert!(TimeFirst {}.follow(SoundShape::file()).is_err());
    }
}
