//! `ToMono`: the mean of all channels.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{AudioKernel, AudioOperation, Sound, SoundShape};
use crate::{
    Result,
    rng::Rng,
    transform::param::{Repr, python_bool},
};

/// Makes one channel of all: `waveform.mean(0, keepdim=keepdim)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ToMono {
    /// Whether the channel stays a side of the array. Default: true.
    pub keepdim: bool,
}

impl Default for ToMono {
    fn default() -> Self {
        Self { keepdim: true }
    }
}

impl fmt::Display for ToMono {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "ToMono").field("keepdim", python_bool(self.keepdim)).finish()
    }
}

impl AudioOperation for ToMono {
    fn kernel(&self, _rate: u32) -> Result<Arc<dyn AudioKernel>> {
        Ok(Arc::new(*self))
    }
}

impl AudioKernel for ToMono {
    fn becomes(&self, shape: SoundShape) -> Result<SoundShape> {
        let shape = shape.samples()?;
        let has_channels = shape.has_channels && self.keepdim;
        Ok(SoundShape { channels: Some(1), has_channels, ..shape })
    }

    fn run(&self, sound: &mut Sound, _rng: &mut Rng) -> Result<()> {
        let channels = sound.channels();
        if channels > 1 {
            let len = sound.values.len() / channels;
            let (first, others) = sound.values.split_at_mut(len);
            for other in others.chunks_exact(len.max(1)) {
                first.iter_mut().zip(other).for_each(|(sum, value)| *sum += value);
            }
            // As `torch.mean` has it: a quotient, no product with a reciprocal.
            first.iter_mut().for_each(|sum| *sum /= channels as f32);
            sound.values.truncate(len);
        }
        sound.shape = self.becomes(sound.shape)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn channels_become_their_mean() {
        let three = || sound(&[&[1.0, 2.0], &[3.0, 5.0], &[5.0, 2.0]], 8);
        assert_eq!(run(&ToMono::default(), three()).unwrap().values, [3.0, 3.0]);
        let flat = run(&ToMono { keepdim: false }, three()).unwrap();
        assert_eq!(flat.shape.sides(), [Some(2)]);
        let one = run(&ToMono::default(), sound(&[&[0.5, 0.25]], 8)).unwrap();
        assert_eq!((one.values.as_slice(), one.shape.sides()), (&[0.5, 0.25][..], vec![Some(1), Some(2)]));
        assert_eq!(ToMono::default().to_string(), "ToMono(keepdim=True)");
    }
}
