//! Changes that were tried after the run, and what they did.

use serde::{Deserialize, Serialize};

use crate::{
    leave::Left,
    patch::Changed,
    report::{Apply, Measured, Verdict},
};

/// Name of the file with [`crate::run_dir::RunDir::tried`].
pub const TRIED: &str = "tried.json";

/// A change below this factor is not advised any more: it may as well be none, as two short runs of the same script differ by some percent.
pub const LEAST: f64 = 1.07;

/// By how much the logarithm of a trial's factor and that of whole runs differ: a standard deviation of so much, and so much more for
/// each e-fold. Of 32 trials of composed scripts (`benches/doctor/compose`) 80 % were off by less than 0.113.
const NOISE: (f64, f64) = (0.08, 0.12);

/// What came of a change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tried {
    /// The change, if it is one from outside.
    pub apply: Apply,
    /// The change, if it is an edit.
    pub edit: Option<Changed>,
    /// The statement, if it is one that was left out: then the edit is no change for the user, and its factor a bound of those.
    pub left: Option<Left>,
    /// Its title in the report that led to the trial.
    pub title: String,
    /// Seconds a step without it.
    pub before: f64,
    /// Seconds that as many samples take with it.
    pub after: f64,
    /// Seconds that trying it took.
    pub seconds: f64,
    /// Why it could not be measured; empty if it was.
    pub problem: String,
    /// Whether the script fails with it, and does not without.
    pub fails: bool,
}

impl Tried {
    /// A verdict's fix, to be tried: what is set from outside, or else the lines that it changes.
    pub fn of(verdict: &Verdict) -> Option<Self> {
        let fix = verdict.fix.as_ref()?;
        let edit = if fix.apply.is_none() { Some(Changed::of(verdict)?) } else { None };
        let apply = fix.apply.clone().unwrap_or_default();
        Some(Self { apply, edit, title: fix.title.clone(), ..Self::default() })
    }

    /// Whether the other one is the same change.
    pub fn is(&self, other: &Self) -> bool {
        (&self.apply, &self.edit) == (&other.apply, &other.edit)
    }

    /// What was measured, if anything was.
    pub fn measured(&self) -> Option<Measured> {
        let (before, after) = (self.before, self.after);
        let known = self.problem.is_empty() && before > 0.0 && after > 0.0;
        known.then(|| {
            let factor = before / after;
            // 80 % of a normal distribution lie within 1.2816 standard deviations.
            let by = (1.2816 * NOISE.0.hypot(NOISE.1 * factor.ln())).exp();
            Measured { factor, low: factor / by, high: factor * by, before, after, seconds: self.seconds }
        })
    }

    /// Whether it is no improvement.
    pub fn refuted(&self) -> bool {
        self.fails || self.measured().is_some_and(|measured| measured.factor < LEAST)
    }

    /// A remark for the report, where the change is not in it any more.
    pub fn note(&self) -> Option<String> {
        if self.left.is_some() {
            return None;
        }
        if self.fails {
            return Some(format!("Left out: with \"{}\" the script failed when it was tried.", self.title));
        }
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
