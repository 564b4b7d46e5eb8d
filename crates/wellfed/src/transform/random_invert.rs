//! `RandomInvert`: turns values around, sometimes.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Action, Class, Operation, Shape, Size,
    adjustment::Adjustment,
    param::{Repr, check_probability},
};
use crate::{Result, rng::Rng};

/// Turns values around, `255 - v`, with probability `p`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RandomInvert {
    /// Probability, 0 to 1; 0.5 by default.
    pub p: f64,
}

impl RandomInvert {
    /// Inverts with probability 0.5.
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

impl Default for RandomInvert {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for RandomInvert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "RandomInvert").field("p", self.p).finish()
    }
}

impl Operation for RandomInvert {
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
        Adjustment::Invert.chance(self.p, size, rng)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;

    #[test]
    fn parameters_are_checked() {
        assert_eq!(read(r#"{"type":"RandomInvert"}"#).to_string(), "RandomInvert(p=0.5)");
    }
}
