//! `AmplitudeToDB`: powers and magnitudes as decibels.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use wellfed_audio::{AmplitudeToDb, Scale};

use super::{AudioKernel, AudioOperation, Sound, SoundShape};
use crate::{Error, Result, rng::Rng, transform::param::Repr};

/// What values are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Stype {
    #[default]
    Power,
    Magnitude,
}

/// Turns the values of a spectrum into decibels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AmplitudeToDB {
    stype: Stype,
    /// Decibels below the greatest value of a sample at which others are cut off. Default: none.
    top_db: Option<f32>,
}

impl fmt::Display for AmplitudeToDB {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stype = match self.stype {
            Stype::Power => "'power'",
            Stype::Magnitude => "'magnitude'",
        };
        let top_db = self.top_db.map_or("None".to_owned(), |top_db| top_db.to_string());
        Repr::new(f, "AmplitudeToDB").field("stype", stype).field("top_db", top_db).finish()
    }
}

impl AudioOperation for AmplitudeToDB {
    fn kernel(&self, _rate: u32) -> Result<Arc<dyn AudioKernel>> {
        if let Some(top_db) = self.top_db.filter(|top_db| !(*top_db >= 0.0 && top_db.is_finite())) {
            return Err(Error::config(format!("top_db is {top_db}; must be at least 0")));
        }
        Ok(Arc::new(*self))
    }
}

impl AudioKernel for AmplitudeToDB {
    fn becomes(&self, shape: SoundShape) -> Result<SoundShape> {
        shape.samples()
    }

    fn run(&self, sound: &mut Sound, _rng: &mut Rng) -> Result<()> {
        let stype = match self.stype {
            Stype::Power => Scale::Power,
            Stype::Magnitude => Scale::Magnitude,
        };
        AmplitudeToDb { stype, top_db: self.top_db }.apply(&mut sound.values);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn values_become_decibels_cut_off_below_the_greatest_of_all_channels() {
        let to_db = AmplitudeToDB { top_db: Some(30.0), ..AmplitudeToDB::default() };
        let made = run(&to_db, sound(&[&[1.0, 0.1], &[100.0, 0.0]], 8)).unwrap();
        assert_eq!(made.values, [0.0, -10.0, 20.0, -10.0]);
        assert_eq!(to_db.to_string(), "AmplitudeToDB(stype='power', top_db=30)");
        let negative = AmplitudeToDB { top_db: Some(-1.0), ..AmplitudeToDB::default() };
        assert!(AudioOperation::check(&negative).is_err());
    }
}
