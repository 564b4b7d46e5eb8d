//! `RandomSolarize`: turns bright values around, sometimes.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Action, Class, Operation, Shape, Size,
    adjustment::Adjustment,
    param::{Repr, check_probability},
};
use crate::{Error, Result, rng::Rng};

/// Turns values of at least `threshold` around, with probability `p`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomSolarize {
    /// Least value that becomes `255 - v`, on the scale 0 to 255.
    pub threshold: f64,
    /// Probability, 0 to 1; 0.5 by default.
    #[serde(default = "half")]
    pub p: f64,
}

fn half() -> f64 {
    0.5
}

impl RandomSolarize {
    /// Inverts values from `threshold` on with probability 0.5.
    pub fn new(threshold: f64) -> Self {
        Self { threshold, p: 0.5 }
    }

    /// Sets the probability.
    #[must_use]
    pub fn p(mut self, p: f64) -> Self {
        self.p = p;
        self
    }
}

impl fmt::Display for RandomSolarize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "RandomSolarize").field("threshold", self.threshold).field("p", self.p).finish()
    }
}

impl Operation for RandomSolarize {
    fn check(&self) -> Result<()> {
        if !self.threshold.is_finite() {
            return Err(Error::config(format!("threshold is {}; must be a finite number", self.threshold)));
        }
        check_probability(self.p)
    }

    fn class(&self) -> Class {
        Class::Image
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        input
    }

    fn draw(&self, size: Size, rng: &mut Rng) -> Result<Action> {
        Adjustment::Solarize(self.threshold).chance(self.p, size, rng)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn parameters_are_checked() {
        assert_eq!(check_error(RandomSolarize::new(f64::NAN)), "threshold is NaN; must be a finite number");
        assert_eq!(
            read(r#"{"type":"RandomSolarize","threshold":192.5}"#).to_string(),
            "RandomSolarize(threshold=192.5, p=0.5)"
        );
    }
}
