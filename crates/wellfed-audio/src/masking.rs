//! Masks over spectrograms: `torchaudio.transforms.TimeMasking`, `FrequencyMasking` and `SpecAugment` (D. Park and others, *SpecAugment*,
//! 2019). What is drawn is an argument: values from 0 to below 1, so that a draw that belongs to a sample gives the same mask each time.

use std::ops::Range;

use crate::{Error, Result};

/// A range of so many steps of an axis, from two draws: less than `mask_param` of them, and no more than the share `p` of all.
///
/// The first draw is the length, the second one the place, in float32, as `torchaudio.functional.mask_along_axis` has it.
///
/// # Errors
///
/// For a share that is not from 0 to 1.
pub fn mask_range(length: usize, mask_param: usize, p: f64, draws: [f32; 2]) -> Result<Range<usize>> {
    if !(0.0..=1.0).contains(&p) {
        return Err(Error::argument(format!("a mask's p is from 0 to 1, and {p} was given")));
    }
    let most = if p == 1.0 { mask_param } else { mask_param.min((length as f64 * p) as usize) };
    let masked = draws[0] * most as f32;
    let begin = (draws[1] * (length as f32 - masked)).max(0.0) as usize;
    Ok(begin.min(length)..begin.saturating_add(masked as usize).min(length))
}

/// Sets a range of each row to a value: times of a spectrogram that lies bin by bin, or bins of one that lies frame by frame.
pub fn mask_within_rows(values: &mut [f32], row: usize, range: Range<usize>, value: f32) {
    if row > 0 {
        let within = range.start.min(row)..range.end.min(row);
        values.chunks_exact_mut(row).for_each(|row| row[within.clone()].fill(value));
    }
}

/// Sets whole rows to a value: bins of a spectrogram that lies bin by bin, or times of one that lies frame by frame.
pub fn mask_rows(values: &mut [f32], row: usize, range: Range<usize>, value: f32) {
    let rows = values.len().checked_div(row).unwrap_or(0);
    let range = range.start.min(rows)..range.end.min(rows);
    values[range.start * row..range.end * row].fill(value);
}

/// Several masks of both axes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpecAugment {
    /// Masks of times.
    pub n_time_masks: usize,
    /// Each has less frames than this.
    pub time_mask_param: usize,
    /// Masks of frequencies.
    pub n_freq_masks: usize,
    /// Each has less bins than this.
    pub freq_mask_param: usize,
    /// Share of an axis that one mask may have, from 0 to 1. torchaudio's default: 1.
    pub p: f64,
    /// Whether what is masked becomes 0, and not the mean of all values. torchaudio's default: false.
    pub zero_masking: bool,
}

impl SpecAugment {
    /// Draws that there are: two a mask, of times first.
    pub fn draws(&self) -> usize {
        2 * (self.n_time_masks + self.n_freq_masks)
    }

    /// What is masked gets this value, of the values of all channels.
    pub fn value(&self, values: &[f32]) -> f32 {
        if self.zero_masking {
            return 0.0;
        }
        let sum: f64 = values.iter().map(|value| f64::from(*value)).sum();
        (sum / values.len().max(1) as f64) as f32
    }

    /// Masks a spectrogram that lies bin by bin, of so many frames a bin. Draws beyond [`SpecAugment::draws`] are not looked at.
    ///
    /// # Errors
    ///
    /// For fewer draws, for values that are no whole bins, and as [`mask_range`].
    pub fn apply(&self, values: &mut [f32], frames: usize, draws: &[f32]) -> Result<()> {
        let value = self.value(values);
        self.mask(values, frames, false, value, draws)
    }

    /// The same of one channel of several, with a [`SpecAugment::value`]: its rows are of so many values, bins, or with `time_first`
    /// frames.
    ///
    /// # Errors
    ///
    /// As [`SpecAugment::apply`].
    pub fn mask(
        &self,
        values: &mut [f32],
        row: usize,
        time_first: bool,
        value: f32,
        draws: &[f32],
    ) -> Result<()> {
        if draws.len() < self.draws() {
            let text = format!("{} draws for {} masks, which take two each", draws.len(), self.draws() / 2);
            return Err(Error::argument(text));
        }
        if row == 0 || !values.len().is_multiple_of(row) {
            return Err(Error::argument(format!("{} values in rows of {row}", values.len())));
        }
        let rows = values.len() / row;
        let (draws, _) = draws.as_chunks::<2>();
        let (times, frequencies) = draws.split_at(self.n_time_masks);
        let axes = [
            (times, self.time_mask_param, time_first),
            (&frequencies[..self.n_freq_masks], self.freq_mask_param, !time_first),
        ];
        for (draws, mask_param, is_rows) in axes {
            for draws in draws {
                let range = mask_range(if is_rows { rows } else { row }, mask_param, self.p, *draws)?;
                if is_rows {
                    mask_rows(values, row, range, value);
                } else {
                    mask_within_rows(values, row, range, value);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_where_they_were_drawn() {
        assert_eq!(mask_range(100, 40, 1.0, [0.5, 0.5]).unwrap(), 40..60);
        assert_eq!(mask_range(100, 40, 0.1, [0.99, 0.0]).unwrap(), 0..9);
        assert_eq!(mask_range(10, 40, 1.0, [0.9, 0.5]).unwrap(), 0..10);
        assert_eq!(mask_range(0, 40, 1.0, [0.9, 0.5]).unwrap(), 0..0);
        assert!(mask_range(10, 4, 1.5, [0.0, 0.0]).is_err());
    }

    #[test]
    fn both_axes_are_masked() {
        let augment = SpecAugment {
            n_time_masks: 1,
            time_mask_param: 4,
            n_freq_masks: 1,
            freq_mask_param: 4,
            p: 1.0,
            zero_masking: true,
        };
        let mut values = [1.0; 5 * 6];
        augment.apply(&mut values, 6, &[0.5, 0.0, 0.25, 0.99]).unwrap();
        // Two frames from 0 on, and one bin from 3 on.
        for (i, value) in values.iter().enumerate() {
            assert_eq!(*value == 0.0, i % 6 < 2 || i / 6 == 3, "bin {} of frame {}", i / 6, i % 6);
        }
        let mut values: Vec<f32> = (0..30).map(|i| i as f32).collect();
        SpecAugment { zero_masking: false, ..augment }.apply(&mut values, 6, &[0.5, 0.0, 0.0, 0.0]).unwrap();
        assert_eq!(values[..3], [14.5, 14.5, 2.0]);
        assert!(augment.apply(&mut values, 6, &[0.5]).unwrap_err().message().contains("1 draws for 2 masks"));
        assert!(augment.apply(&mut values, 7, &[0.5; 4]).is_err());
        // The other way round: frame by frame.
        let mut values = [1.0; 5 * 6];
        augment.mask(&mut values, 5, true, 0.0, &[0.5, 0.0, 0.25, 0.99]).unwrap();
        for (i, value) in values.iter().enumerate() {
            assert_eq!(*value == 0.0, i / 5 < 2 || i % 5 == 3, "bin {} of frame {}", i % 5, i / 5);
        }
    }
}
