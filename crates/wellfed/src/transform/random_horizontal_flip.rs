//! `RandomHorizontalFlip`: mirrors the image, sometimes.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Action, Class, Operation, Shape, Size,
    param::{Repr, check_probability},
};
use crate::{Result, rng::Rng};

/// Swaps left and right with probability `p`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RandomHorizontalFlip {
    /// Probability, 0 to 1; 0.5 by default.
    pub p: f64,
}

impl RandomHorizontalFlip {
    /// Flips with probability `p`.
    pub fn new(p: f64) -> Self {
        Self { p }
    }
}

impl Default for RandomHorizontalFlip {
    fn default() -> Self {
        Self::new(0.5)
    }
}

impl fmt::Display for RandomHorizontalFlip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "RandomHorizontalFlip").field("p", self.p).finish()
    }
}

impl Operation for RandomHorizontalFlip {
    fn check(&self) -> Result<()> {
        check_probability(self.p)
    }

    fn class(&self) -> Class {
        Class::Flip
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        input
    }

    fn draw(&self, _size: Size, rng: &mut Rng) -> Result<Action> {
        Ok(if rng.chance(self.p) { Action::Flip { horizontal: true, vertical: false } } else { Action::Keep })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn it_flips_with_probability_p() {
        let flip = Action::Flip { horizontal: true, vertical: false };
        for p in [0.0, 0.2, 0.5, 1.0] {
            let flips =
                draws(RandomHorizontalFlip::new(p), size(4, 4), 20_000).filter(|a| *a == flip).count();
            assert_probability(flips, 20_000, p);
        }
    }

    #[test]
    fn p_must_be_a_probability() {
        assert_eq!(RandomHorizontalFlip::new(2.0).check().unwrap_err().message(), "p is 2; must be 0 to 1");
        assert_eq!(read(r#"{"type":"RandomHorizontalFlip"}"#).to_string(), "RandomHorizontalFlip(p=0.5)");
    }
}
