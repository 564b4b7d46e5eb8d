//! Vocal tract length normalization: a warp of filters' frequencies, as Kaldi has it (`vtln_warp_freq` of `torchaudio.compliance.kaldi`).

use crate::{Error, Result};

/// A warp of frequencies: linear in three pieces, so that both ends of the range stay where they are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Vtln {
    /// What frequencies in the middle are divided by, above 0: 1 for no warp.
    pub warp: f64,
    /// Hz at which the middle begins. torchaudio's default: 100.
    pub low: f64,
    /// Hz at which it ends; below 0 for so much below the Nyquist frequency. torchaudio's default: -500.
    pub high: f64,
}

impl Default for Vtln {
    fn default() -> Self {
        Self { warp: 1.0, low: 100.0, high: -500.0 }
    }
}

/// The warp of mels between two frequencies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Warp {
    factor: f64,
    /// Hz of the range of filters.
    range: (f64, f64),
    /// Hz of the middle, before the warp.
    middle: (f64, f64),
}

impl Warp {
    /// `None` if nothing is warped.
    pub(super) fn new(vtln: Vtln, range: (f64, f64), nyquist: f64) -> Result<Option<Self>> {
        let Vtln { warp: factor, low, high } = vtln;
        if factor == 1.0 {
            return Ok(None);
        }
        let high = if high < 0.0 { high + nyquist } else { high };
        let middle = (low * factor.max(1.0), high * factor.min(1.0));
        let is_within = range.0 < low && low < high && high < range.1;
        if !(factor > 0.0 && is_within && middle.0 > range.0 && middle.1 < range.1 && middle.1 > 0.0) {
            return Err(Error::argument(format!(
                "fbank: vtln_warp={factor} from vtln_low={low} to vtln_high={high} Hz; it lies within the filters' {} to {} Hz",
                range.0, range.1
            )));
        }
        Ok(Some(Self { factor, range, middle }))
    }

    /// In float32, as torchaudio.
    pub(super) fn mels(&self, mels: f32) -> f32 {
        let hz = 700.0 * (f64::from(mels / 1127.0).exp() as f32 - 1.0);
        let scale = 1.0 / self.factor;
        let ((low, high), (begin, end)) = (self.range, self.middle);
        let of_low = (scale * begin - low) / (begin - low);
        let of_high = (high - scale * end) / (high - end);
        let hz = if hz < low as f32 || hz > high as f32 {
            hz
        } else if hz < begin as f32 {
            low as f32 + of_low as f32 * (hz - low as f32)
        } else if hz < end as f32 {
            scale as f32 * hz
        } else {
            high as f32 + of_high as f32 * (hz - high as f32)
        };
        super::fbank::mels(hz)
    }
}
