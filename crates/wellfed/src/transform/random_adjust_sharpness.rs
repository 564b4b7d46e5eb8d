//! `RandomAdjustSharpness`: smooths or sharpens, sometimes.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Action, Class, Operation, Shape, Size,
    adjustment::Adjustment,
    param::{Repr, check_probability},
};
use crate::{Error, Result, rng::Rng};

/// Changes sharpness by `sharpness_factor` with probability `p`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomAdjustSharpness {
    /// 0 is smooth, 1 leaves the image alone, 2 is sharp; at least 0.
    pub sharpness_factor: f64,
    /// Probability, 0 to 1; 0.5 by default.
    #[serde(default = "half")]
    pub p: f64,
}

fn half() -> f64 {
    0.5
}

impl RandomAdjustSharpness {
    /// Changes sharpness with probability 0.5.
    pub fn new(sharpness_factor: f64) -> Self {
        Self { sharpness_factor, p: 0.5 }
    }

    /// Sets the probability.
    #[must_use]
    pub fn p(mut self, p: f64) -> Self {
        self.p = p;
        self
    }
}

impl fmt::Display for RandomAdjustSharpness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "RandomAdjustSharpness")
            .field("sharpness_factor", self.sharpness_factor)
            .field("p", self.p)
            .finish()
    }
}

impl Operation for RandomAdjustSharpness {
    fn check(&self) -> Result<()> {
        if !(self.sharpness_factor >= 0.0 && self.sharpness_factor.is_finite()) {
            let factor = self.sharpness_factor;
            return Err(Error::config(format!(
                "sharpness_factor is {factor}; must be at least 0 and finite"
            )));
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
        Adjustment::Sharpness(self.sharpness_factor).chance(self.p, size, rng)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn parameters_are_checked() {
        let e = check_error(RandomAdjustSharpness::new(-1.0));
        assert_eq!(e, "sharpness_factor is -1; must be at least 0 and finite");
        assert_eq!(
            read(r#"{"type":"RandomAdjustSharpness","sharpness_factor":2.5}"#).to_string(),
            "RandomAdjustSharpness(sharpness_factor=2.5, p=0.5)"
        );
    }
}
