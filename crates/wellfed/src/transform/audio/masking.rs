//! `FrequencyMasking` and `TimeMasking`: bands of a spectrum become zeros (SpecAugment, D. Park and others, 2019).

use std::{fmt, ops::Range, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{AudioKernel, AudioOperation, Sound, SoundShape};
use crate::{
    Error, Result,
    rng::Rng,
    transform::param::{Repr, check_probability},
};

/// Of `size` bins or frames those that are masked, drawn as torchaudio's `mask_along_axis` does.
fn band(mask_param: usize, size: usize, rng: &mut Rng) -> Range<usize> {
    let value = rng.unit_single() * mask_param as f32;
    let start = rng.unit_single() * (size as f32 - value);
    let start = start.max(0.0) as usize;
    start.min(size)..(start + value as usize).min(size)
}

/// Makes a band of bins zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FrequencyMasking {
    /// Bins that are fewer than this are masked.
    freq_mask_param: usize,
}

impl fmt::Display for FrequencyMasking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "FrequencyMasking").field("freq_mask_param", self.freq_mask_param).finish()
    }
}

impl AudioOperation for FrequencyMasking {
    fn kernel(&self, _rate: u32) -> Result<Arc<dyn AudioKernel>> {
        Ok(Arc::new(*self))
    }
}

impl AudioKernel for FrequencyMasking {
    fn becomes(&self, shape: SoundShape) -> Result<SoundShape> {
        shape.spectrum()?;
        Ok(shape)
    }

    fn run(&self, sound: &mut Sound, rng: &mut Rng) -> Result<()> {
        let bins = sound.shape.spectrum()?;
        let masked = band(self.freq_mask_param, bins, rng);
        mask(sound, &masked, sound.shape.time_first);
        Ok(())
    }
}

/// Makes a band of frames zeros.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimeMasking {
    /// Frames that are fewer than this are masked.
    time_mask_param: usize,
    /// At most this part of all frames. Default: 1.
    #[serde(default = "one")]
    p: f64,
}

fn one() -> f64 {
    1.0
}

impl fmt::Display for TimeMasking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "TimeMasking").field("time_mask_param", self.time_mask_param).field("p", self.p).finish()
    }
}

impl AudioOperation for TimeMasking {
    fn kernel(&self, _rate: u32) -> Result<Arc<dyn AudioKernel>> {
        check_probability(self.p)?;
        if self.p == 0.0 {
            return Err(Error::config("p is 0; must be above 0"));
        }
        Ok(Arc::new(*self))
    }
}

impl AudioKernel for TimeMasking {
    fn becomes(&self, shape: SoundShape) -> Result<SoundShape> {
        shape.spectrum()?;
        Ok(shape)
    }

    fn run(&self, sound: &mut Sound, rng: &mut Rng) -> Result<()> {
        let frames = sound.frames();
        let most = if self.p < 1.0 { (frames as f64 * self.p) as usize } else { usize::MAX };
        let masked = band(self.time_mask_param.min(most), frames, rng);
        mask(sound, &masked, !sound.shape.time_first);
        Ok(())
    }
}

/// Makes zeros of a range of the last side, or of the one before it.
fn mask(sound: &mut Sound, masked: &Range<usize>, last: bool) {
    let (bins, frames) = (sound.shape.bins.unwrap_or(1), sound.frames());
    let (rows, row) = if sound.shape.time_first { (frames, bins) } else { (bins, frames) };
    if rows == 0 || row == 0 {
        return;
    }
    for (number, values) in sound.values.chunks_exact_mut(row).enumerate() {
        if last {
            values[masked.clone()].fill(0.0);
        } else if masked.contains(&(number % rows)) {
            values.fill(0.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spectrum(time_first: bool) -> Sound {
        let shape = SoundShape {
            channels: Some(2),
            bins: Some(6),
            frames: Some(9),
            time_first,
            rate: Some(8),
            ..SoundShape::file()
        };
        Sound { values: vec![1.0; 2 * 6 * 9], shape, ..Sound::default() }
    }

    /// Whether bins and frames of a channel are masked as a whole.
    fn masked(sound: &Sound, channel: usize) -> (Vec<bool>, Vec<bool>) {
        let at = |bin: usize, frame: usize| {
            let place = if sound.shape.time_first { frame * 6 + bin } else { bin * 9 + frame };
            sound.values[channel * 54 + place] == 0.0
        };
        let bins = (0..6).map(|bin| (0..9).all(|frame| at(bin, frame))).collect();
        let frames = (0..9).map(|frame| (0..6).all(|bin| at(bin, frame))).collect();
        (bins, frames)
    }

    #[test]
    fn one_band_is_masked_in_all_channels_whatever_the_order_of_sides() {
        let kernels: [&dyn AudioKernel; 2] =
            [&FrequencyMasking { freq_mask_param: 4 }, &TimeMasking { time_mask_param: 5, p: 1.0 }];
        for (number, kernel) in kernels.into_iter().enumerate() {
            let mut widths = std::collections::BTreeSet::new();
            for index in 0..300 {
                let mut both = [spectrum(false), spectrum(true)];
                for sound in &mut both {
                    kernel.run(sound, &mut Rng::for_stage(0, 0, index, 0)).unwrap();
                }
                let found = masked(&both[0], 0);
                assert_eq!(found, masked(&both[0], 1));
                assert_eq!(found, masked(&both[1], 0));
                let [along, across] = if number == 0 { [found.0, found.1] } else { [found.1, found.0] };
                assert!(across.iter().all(|masked| !masked));
                let width = along.iter().filter(|masked| **masked).count();
                let zeros = both[0].values.iter().filter(|value| **value == 0.0).count();
                assert_eq!(zeros, 2 * width * across.len());
                widths.insert(width);
            }
            assert_eq!(widths.into_iter().collect::<Vec<_>>(), (0..4 + number).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_part_of_all_frames_bounds_what_is_masked() {
        for index in 0..100 {
            let mut sound = spectrum(false);
            let few = TimeMasking { time_mask_param: 100, p: 0.25 };
            few.run(&mut sound, &mut Rng::for_stage(0, 0, index, 0)).unwrap();
            assert!(masked(&sound, 0).1.iter().filter(|masked| **masked).count() <= 2);
        }
        assert!(AudioOperation::check(&TimeMasking { time_mask_param: 1, p: 2.0 }).is_err());
        assert!(FrequencyMasking { freq_mask_param: 1 }.follow_waveform().is_err());
    }

    impl FrequencyMasking {
        fn follow_waveform(self) -> Result<SoundShape> {
            AudioKernel::becomes(&self, SoundShape::file())
        }
    }
}
