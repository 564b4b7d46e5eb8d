//! Filter banks over spectrograms in one pass: `torchaudio.transforms.MelSpectrogram`, and the first part of `LFCC`.
//!
//! No spectrogram is stored: powers of a group of frames stay in the first level of cache until their filters have been applied.

use crate::{
    Error, FilterBank, Result, Scratch, Spectrogram,
    lanes::Lanes,
    spectrogram::{Bins, Sink},
};

/// A spectrogram through a bank of filters, to be made once and used for all signals.
#[derive(Clone, Debug)]
pub struct MelSpectrogram {
    spectrogram: Spectrogram,
    bank: FilterBank,
}

impl MelSpectrogram {
    /// Of a spectrogram and a bank over as many bins.
    ///
    /// # Errors
    ///
    /// For a bank over another number of bins.
    pub fn new(spectrogram: Spectrogram, bank: FilterBank) -> Result<Self> {
        let (bins, wanted) = (spectrogram.bins(), bank.bins());
        if bins != wanted {
            let text = format!("a filter bank over {wanted} bins for a spectrogram of {bins}");
            return Err(Error::argument(text));
        }
        Ok(Self { spectrogram, bank })
    }

    /// Values of a frame.
    pub fn filters(&self) -> usize {
        self.bank.filters()
    }

    /// Frames of so many samples.
    pub fn frames(&self, samples: usize) -> usize {
        self.spectrogram.frames(samples)
    }

    /// Fills `out` with the values: filter by filter, [`MelSpectrogram::frames`] each, as torchaudio's tensors have them.
    ///
    /// # Errors
    ///
    /// As [`Spectrogram::each`].
    pub fn apply(&self, samples: &[f32], scratch: &mut Scratch, out: &mut Vec<f32>) -> Result<()> {
        out.resize(self.filters() * self.frames(samples.len()), 0.0);
        self.fill(samples, scratch, out)
    }

    /// The same into a slice of that many values, all of which are written.
    ///
    /// # Errors
    ///
    /// As [`Spectrogram::each`].
    pub fn fill(&self, samples: &[f32], scratch: &mut Scratch, out: &mut [f32]) -> Result<()> {
        self.fill_mapped(samples, self.frames(samples.len()), scratch, out, |value| value).map(drop)
    }

    /// The same of the first frames only, each value replaced by `map` of it. Gives the greatest of them.
    pub(crate) fn fill_mapped(
        &self,
        samples: &[f32],
        frames: usize,
        scratch: &mut Scratch,
        out: &mut [f32],
        map: impl Fn(f32) -> f32,
    ) -> Result<f32> {
        let mut greatest = f32::NEG_INFINITY;
        let bins = Bins { out, frames };
        let sink = Filtered { bank: &self.bank, bins, map, greatest: &mut greatest };
        self.spectrogram.groups(samples, scratch, sink)?;
        Ok(greatest)
    }
}

/// Writes what is made of what the filters let through.
struct Filtered<'a, F> {
    bank: &'a FilterBank,
    bins: Bins<'a>,
    map: F,
    greatest: &'a mut f32,
}

impl<F: Fn(f32) -> f32> Sink for Filtered<'_, F> {
    #[inline(always)]
    fn take<L: Lanes>(&mut self, first: usize, count: usize, powers: &[L], values: &mut Vec<L>) {
        values.resize(self.bank.filters(), L::ZERO);
        self.bank.apply_lanes(powers, values);
        let mut most = L::splat(f32::NEG_INFINITY);
        for value in values.iter_mut() {
            *value = value.map(&self.map);
            most = value.max(most);
        }
        let written = count.min(self.bins.frames.saturating_sub(first));
        *self.greatest = most.values()[..written].iter().copied().fold(*self.greatest, f32::max);
        self.bins.put(first, count, values);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MelScale, SpectrogramOptions};

    #[test]
    fn one_pass_gives_what_two_give() {
        let spectrogram = Spectrogram::new(SpectrogramOptions::default()).unwrap();
        let bank = FilterBank::mel(201, 0.0, 8_000.0, 40, 16_000, false, MelScale::Htk).unwrap();
        let samples: Vec<f32> =
            (0..4_321u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / 1e7 - 0.8).collect();
        let (mut scratch, mut found) = (Scratch::default(), Vec::new());
        let mel = MelSpectrogram::new(spectrogram.clone(), bank.clone()).unwrap();
        mel.apply(&samples, &mut scratch, &mut found).unwrap();
        let frames = mel.frames(samples.len());
        assert_eq!(found.len(), 40 * frames);
        spectrogram
            .each(&samples, &mut scratch, |frame, powers| {
                for (filter, wanted) in bank.apply(powers).enumerate() {
                    assert_eq!(found[filter * frames + frame], wanted, "filter {filter} of frame {frame}");
                }
            })
            .unwrap();
        let other = FilterBank::linear(200, 0.0, 8_000.0, 40, 16_000).unwrap();
        assert!(MelSpectrogram::new(spectrogram, other).unwrap_err().message().contains("over 200 bins"));
    }
}
