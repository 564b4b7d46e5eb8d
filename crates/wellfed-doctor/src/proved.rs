//! Changes that were tried after the run, and what they did.

use serde::{Deserialize, Serialize};

use crate::report::{Apply, Measured};

/// Name of the file with [`crate::run_dir::RunDir::tried`].
pub const TRIED: &str = "tried.json";

/// A change below this factor is not advised any more: it may as well be none, as two short runs of the same script differ by some percent.
pub const LEAST: f64 = 1.04;

/// What came of a change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tried {
    /// The change.
    pub apply: Apply,
    /// Its title in the report that led to the trial.
    pub title: String,
    /// Seconds a step without it.
    pub before: f64,
    /// Seconds a step with it.
    pub after: f64,
    /// Seconds that trying it took.
    pub seconds: f64,
    /// Why it could not be measured; empty if it was.
    pub problem: String,
}

impl Tried {
    /// What was measured, if anything was.
    pub fn measured(&self) -> Option<Measured> {
        let (before, after) = (self.before, self.after);
        let known = self.problem.is_empty() && before > 0.0 && after > 0.0;
        known.then(|| Measured { factor: before / after, before, after, seconds: self.seconds })
    }

    /// Whether it is no improvement.
    pub fn refuted(&self) -> bool {
        self.measured().is_some_and(|measured| measured.factor < LEAST)
    }

    /// A remark for the report, where the change is not in it any more.
    pub fn note(&self) -> Option<String> {
        if let Some(measured) = self.measured() {
            let factor = measured.factor;
            return (factor < LEAST).then(|| {
                format!(
                    "Tried for {:.0} s and left out: \"{}\" made it {factor:.2} times as fast.",
                    self.seconds, self.title
                )
            });
        }
        (!self.problem.is_empty()).then(|| format!("\"{}\" was not tried: {}.", self.title, self.problem))
    }
}
