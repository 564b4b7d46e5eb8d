//! Powers and amplitudes as decibels: `torchaudio.transforms.AmplitudeToDB`.

use crate::{lanes, logarithm};

/// What a spectrogram's values are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Squares of magnitudes: 10 log10.
    #[default]
    Power,
    /// Magnitudes: 20 log10.
    Magnitude,
}

/// The conversion.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AmplitudeToDb {
    /// What the values are. Default: powers.
    pub stype: Scale,
    /// Decibels below the greatest value of a sample at which others are cut off. Default: none.
    pub top_db: Option<f32>,
}

/// Values below are taken as this.
const AMIN: f32 = 1e-10;

impl AmplitudeToDb {
    /// Converts all values of one sample, of all of its channels.
    pub fn apply(&self, values: &mut [f32]) {
        let multiplier = match self.stype {
            Scale::Power => 10.0,
            Scale::Magnitude => 20.0,
        };
        logarithm::each(values, |value| multiplier * logarithm::log10(value.max(AMIN)));
        if let Some(top_db) = self.top_db {
            let least = lanes::greatest(values) - top_db;
            logarithm::each(values, |value| value.max(least));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decibels_are_cut_off_below_the_greatest() {
        let mut values = [1.0, 100.0, 0.0, 1e-4];
        AmplitudeToDb { stype: Scale::Power, top_db: Some(50.0) }.apply(&mut values);
        assert_eq!(values, [0.0, 20.0, -30.0, -30.0]);
        let mut values = [1.0, 100.0, 0.0];
        AmplitudeToDb { stype: Scale::Magnitude, top_db: None }.apply(&mut values);
        assert_eq!(values, [0.0, 40.0, -200.0]);
    }
}
