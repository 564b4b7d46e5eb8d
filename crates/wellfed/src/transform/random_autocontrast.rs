//! `RandomAutocontrast`: spreads the values of every channel, sometimes.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Action, Class, Operation, Shape, Size,
    adjustment::Adjustment,
    param::{Repr, check_probability},
};
use crate::{Result, rng::Rng};

/// Spreads the values of every channel over 0 to 255, with probability `p`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RandomAutocontrast {
    /// Probability, 0 to 1; 0.5 by default.
    pub p: f64,
}

impl RandomAutocontrast {
    /// Spreads values with probability 0.5.
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

impl Default for RandomAutocontrast {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for RandomAutocontrast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "RandomAutocontrast").field("p", self.p).finish()
    }
}

impl Operation for RandomAutocontrast {
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
        Adjustment::Autocontrast.chance(self.p, size, rng)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;

    #[test]
    fn parameters_are_checked() {
        assert_eq!(read(r#"{"type":"RandomAutocontrast"}"#).to_string(), "RandomAutocontrast(p=0.5)");
    }
}
