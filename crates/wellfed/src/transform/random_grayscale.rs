//! `RandomGrayscale`: luma instead of colours, sometimes.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Action, Class, Operation, Shape, Size,
    grayscale::gray,
    param::{Repr, check_probability},
};
use crate::{Result, rng::Rng};

/// Turns the image grey with probability `p`. The number of channels stays.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RandomGrayscale {
    /// Probability, 0 to 1; 0.1 by default.
    pub p: f64,
}

impl RandomGrayscale {
    /// Turns the image grey with probability `p`.
    pub fn new(p: f64) -> Self {
        Self { p }
    }
}

impl Default for RandomGrayscale {
    fn default() -> Self {
        Self::new(0.1)
    }
}

impl fmt::Display for RandomGrayscale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "RandomGrayscale").field("p", self.p).finish()
    }
}

impl Operation for RandomGrayscale {
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
        if rng.chance(self.p) { gray(size, size.channels) } else { Ok(Action::Keep) }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn it_turns_grey_with_probability_p() {
        for p in [0.0, 0.1, 1.0] {
            let grey = draws(RandomGrayscale::new(p), size(4, 4), 20_000)
                .filter(|action| *action != Action::Keep)
                .count();
            assert_probability(grey, 20_000, p);
        }
    }

    #[test]
    fn the_number_of_channels_stays() {
        let draw = |channels| RandomGrayscale::new(1.0).draw(Size { channels, ..size(1, 1) }, &mut rng(0));
        assert_eq!(draw(1).unwrap(), Action::Keep);
        assert!(draw(4).is_err());
        assert!(check_error(RandomGrayscale::new(-0.1)).contains("p is -0.1"));
        assert_eq!(read(r#"{"type":"RandomGrayscale"}"#).to_string(), "RandomGrayscale(p=0.1)");
    }
}
