//! `RandomEqualize`: equalizes the histogram, sometimes.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Action, Class, Operation, Shape, Size,
    adjustment::Adjustment,
    param::{Repr, check_probability},
};
use crate::{Result, rng::Rng};

/// Makes all values of a channel about equally frequent, with probability `p`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RandomEqualize {
    /// Probability, 0 to 1; 0.5 by default.
    pub p: f64,
}

impl RandomEqualize {
    /// Equalizes with probability 0.5.
    pub fn new() -> Self {
        Self { p: 0.5 }
    }

    /// Sets the probability.
    #[must_use]
    pub fn p(mut self, p: f64) -> Self {
        self.p = p;
        self
    }
}

impl Default for RandomEqualize {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for RandomEqualize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "RandomEqualize").field("p", self.p).finish()
    }
}

impl Operation for RandomEqualize {
    fn check(&self) -> Result<()> {
        check_probability(self.p)
    }

    fn class(&self) -> Class {
        Class::Image
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        input
    }

    fn draw(&self, size: Size, rng: &mut Rng) -> Result<Action> {
        Adjustment::Equalize.chance(self.p, size, rng)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;

    #[test]
    fn parameters_are_checked() {
        assert_eq!(read(r#"{"type":"RandomEqualize"}"#).to_string(), "RandomEqualize(p=0.5)");
    }
}
