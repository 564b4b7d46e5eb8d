//! Filter banks over spectrograms in one pass: `torchaudio.transforms.MelSpectrogram`, and the first part of `LFCC`.
//!
//! No spectrogram is stored: powers of eight frames stay in the first level of cache until their filters have been applied.

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
        self.apply_to(samples, self.frames(samples.len()), scratch, out)
    }

    /// The same of the first frames only.
    pub(crate) fn apply_to(
        &self,
        samples: &[f32],
        frames: usize,
        scratch: &mut Scratch,
        out: &mut Vec<f32>,
    ) -> Result<()> {
        out.clear();
        out.resize(self.filters() * frames, 0.0);
        let values = &mut vec![Lanes::ZERO; self.filters()];
        let bins = Bins { out, frames };
        self.spectrogram.groups(samples, scratch, Filtered { bank: &self.bank, values, bins })
    }
}

/// Writes what the filters let through.
struct Filtered<'a> {
    bank: &'a FilterBank,
    values: &'a mut [Lanes],
    bins: Bins<'a>,
}

impl Sink for Filtered<'_> {
    #[inline(always)]
    fn take(&mut self, first: usize, count: usize, powers: &[Lanes]) {
        self.bank.apply_lanes(powers, self.values);
        self.bins.take(first, count, self.values);
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
