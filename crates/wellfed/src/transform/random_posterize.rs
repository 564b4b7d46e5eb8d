//! `RandomPosterize`: keeps the highest bits of every value, sometimes.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Action, Class, Operation, Shape, Size,
    adjustment::Adjustment,
    param::{Repr, check_probability},
};
use crate::{Error, Result, rng::Rng};

/// Keeps the highest `bits` bits of every value, with probability `p`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomPosterize {
    /// Bits to keep, 1 to 8: as Pillow's `ImageOps.posterize`.
    pub bits: u32,
    /// Probability, 0 to 1; 0.5 by default.
    #[serde(default = "half")]
    pub p: f64,
}

fn half() -> f64 {
    0.5
}

impl RandomPosterize {
    /// Keeps `bits` bits with probability 0.5.
    pub fn new(bits: u32) -> Self {
        Self { bits, p: 0.5 }
    }

    /// Sets the probability.
    #[must_use]
    pub fn p(mut self, p: f64) -> Self {
        self.p = p;
        self
    }
}

impl fmt::Display for RandomPosterize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "RandomPosterize").field("bits", self.bits).field("p", self.p).finish()
    }
}

impl Operation for RandomPosterize {
    fn check(&self) -> Result<()> {
        if !(1..=8).contains(&self.bits) {
            return Err(Error::config(format!("bits is {}; must be 1 to 8", self.bits)));
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
        Adjustment::Posterize(self.bits).chance(self.p, size, rng)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn parameters_are_checked() {
        assert_eq!(check_error(RandomPosterize::new(0)), "bits is 0; must be 1 to 8");
        assert!(RandomPosterize::new(9).check().is_err());
        assert_eq!(
            read(r#"{"type":"RandomPosterize","bits":4}"#).to_string(),
            "RandomPosterize(bits=4, p=0.5)"
        );
    }
}
