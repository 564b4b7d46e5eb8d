//! `SpecAugment`: several bands of a spectrum, of frames and of bins, get one value (D. Park and others, *SpecAugment*, 2019).

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use wellfed_audio::SpecAugment as Masks;

use super::{AudioKernel, AudioOperation, Sound, SoundShape, impossible};
use crate::{
    Error, Result,
    rng::Rng,
    transform::param::{Repr, check_probability, python_bool},
};

/// Masks bands of frames and bins.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpecAugment {
    /// Bands of frames.
    n_time_masks: usize,
    /// Each has fewer frames than this.
    time_mask_param: usize,
    /// Bands of bins.
    n_freq_masks: usize,
    /// Each has fewer bins than this.
    freq_mask_param: usize,
    /// Whether each channel has bands of its own. Default: true.
    #[serde(default = "yes")]
    iid_masks: bool,
    /// Share of all frames, or bins, that one band has at most. Default: 1.
    #[serde(default = "one")]
    p: f64,
    /// Whether they become 0, and not the mean of all values. Default: false.
    #[serde(default)]
    zero_masking: bool,
}

fn yes() -> bool {
    true
}

fn one() -> f64 {
    1.0
}

/// Bands of one kind that may be asked for: a draw of 64 channels with so many of both kinds has numbers enough (see [`Rng::for_stage`]).
const MOST: usize = 1_000;

impl fmt::Display for SpecAugment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "SpecAugment")
            .field("n_time_masks", self.n_time_masks)
            .field("time_mask_param", self.time_mask_param)
            .field("n_freq_masks", self.n_freq_masks)
            .field("freq_mask_param", self.freq_mask_param)
            .field_if(!self.iid_masks, "iid_masks", python_bool(self.iid_masks))
            .field("p", self.p)
            .field("zero_masking", python_bool(self.zero_masking))
            .finish()
    }
}

impl AudioOperation for SpecAugment {
    fn kernel(&self, _rate: u32) -> Result<Arc<dyn AudioKernel>> {
        check_probability(self.p)?;
        for (name, count) in [("n_time_masks", self.n_time_masks), ("n_freq_masks", self.n_freq_masks)] {
            if count > MOST {
                return Err(Error::config(format!("{name} is {count}; must be at most {MOST}")));
            }
        }
        Ok(Arc::new(*self))
    }
}

impl SpecAugment {
    fn masks(&self) -> Masks {
        Masks {
            n_time_masks: self.n_time_masks,
            time_mask_param: self.time_mask_param,
            n_freq_masks: self.n_freq_masks,
            freq_mask_param: self.freq_mask_param,
            p: self.p,
            zero_masking: self.zero_masking,
        }
    }
}

impl AudioKernel for SpecAugment {
    fn becomes(&self, shape: SoundShape) -> Result<SoundShape> {
        shape.spectrum()?;
        Ok(shape)
    }

    fn run(&self, sound: &mut Sound, rng: &mut Rng) -> Result<()> {
        let (bins, frames) = (sound.shape.spectrum()?, sound.frames());
        if bins == 0 || frames == 0 {
            return Ok(());
        }
        let masks = self.masks();
        let value = masks.value(&sound.values);
        let mut draws = vec![0.0; masks.draws()];
        for (channel, values) in sound.values.chunks_exact_mut(bins * frames).enumerate() {
            if self.iid_masks || channel == 0 {
                draws.iter_mut().for_each(|draw| *draw = rng.unit_single());
            }
            let row = if sound.shape.time_first { bins } else { frames };
            masks.mask(values, row, sound.shape.time_first, value, &draws).map_err(impossible)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: SpecAugment = SpecAugment {
        n_time_masks: 2,
        time_mask_param: 4,
        n_freq_masks: 1,
        freq_mask_param: 3,
        iid_masks: true,
        p: 1.0,
        zero_masking: true,
    };

    fn spectrum(time_first: bool) -> Sound {
        let shape = SoundShape {
            channels: Some(2),
            bins: Some(6),
            frames: Some(20),
            time_first,
            rate: Some(8),
            ..SoundShape::file()
        };
        let at = |channel: usize, bin: usize, frame: usize| (1 + channel * 120 + bin * 20 + frame) as f32;
        let values = (0..240).map(|i| {
            let (channel, i) = (i / 120, i % 120);
            if time_first { at(channel, i % 6, i / 6) } else { at(channel, i / 20, i % 20) }
        });
        Sound { values: values.collect(), shape, ..Sound::default() }
    }

    /// Which frames and bins of a channel are the value as a whole.
    fn masked(sound: &Sound, channel: usize, value: f32) -> (Vec<usize>, Vec<usize>) {
        let at = |bin: usize, frame: usize| {
            let place = if sound.shape.time_first { frame * 6 + bin } else { bin * 20 + frame };
            sound.values[channel * 120 + place] == value
        };
        let frames = (0..20).filter(|frame| (0..6).all(|bin| at(bin, *frame))).collect();
        (frames, (0..6).filter(|bin| (0..20).all(|frame| at(*bin, frame))).collect())
    }

    #[test]
    fn bands_are_of_each_channel_or_of_all_whatever_the_order_of_sides() {
        let (mut most, mut differ) = ((0, 0), 0);
        for index in 0..200 {
            let mut both = [spectrum(false), spectrum(true)];
            for sound in &mut both {
                ALL.run(sound, &mut Rng::for_stage(0, 0, index, 0)).unwrap();
            }
            let found = masked(&both[0], 0, 0.0);
            assert_eq!(found, masked(&both[1], 0, 0.0));
            differ += usize::from(found != masked(&both[0], 1, 0.0));
            // Nothing else is touched.
            let zeros = both[0].values[..120].iter().filter(|value| **value == 0.0).count();
            assert_eq!(zeros, found.0.len() * 6 + found.1.len() * 20 - found.0.len() * found.1.len());
            most = (most.0.max(found.0.len()), most.1.max(found.1.len()));
            let mut same = spectrum(false);
            let alike = SpecAugment { iid_masks: false, ..ALL };
            alike.run(&mut same, &mut Rng::for_stage(0, 0, index, 0)).unwrap();
            assert_eq!(masked(&same, 0, 0.0), masked(&same, 1, 0.0));
        }
        assert_eq!(most, (6, 2));
        assert!(differ > 150, "{differ}");
    }

    #[test]
    fn the_mean_of_all_channels_is_what_is_masked_with() {
        let mut sound = spectrum(false);
        let mean = sound.values.iter().sum::<f32>() / 240.0;
        let masks = SpecAugment { zero_masking: false, time_mask_param: 19, ..ALL };
        masks.run(&mut sound, &mut Rng::for_stage(0, 0, 1, 0)).unwrap();
        assert!(!masked(&sound, 0, mean).0.is_empty() && !masked(&sound, 1, mean).0.is_empty());
    }

    #[test]
    fn parameters_without_sense_are_refused() {
        assert!(AudioOperation::check(&SpecAugment { p: 1.5, ..ALL }).is_err());
        let many = SpecAugment { n_time_masks: 1_001, ..ALL };
        let error = AudioOperation::check(&many).unwrap_err();
        assert_eq!(error.message(), "n_time_masks is 1001; must be at most 1000");
        let share = SpecAugment { p: 0.1, n_freq_masks: 0, ..ALL };
        for index in 0..100 {
            let mut sound = spectrum(false);
            share.run(&mut sound, &mut Rng::for_stage(0, 0, index, 0)).unwrap();
            assert!(masked(&sound, 0, 0.0).0.len() <= 2);
        }
    }
}
