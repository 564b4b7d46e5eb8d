//! `RandomScale`: Albumentations' transform of that name.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Action, Class, Interpolation, Operation, Shape, Size,
    param::{Repr, Tuple, check_pixels, check_positive_range, check_probability},
    resize::resized,
};
use crate::{Result, rng::Rng};

/// Resizes both sides by one random factor and cuts them to whole pixels, sometimes, as `RandomScale` of Albumentations 2.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomScale {
    /// Least and greatest factor, above 0.
    pub scale: [f64; 2],
    /// Filter.
    pub interpolation: Interpolation,
    /// Probability, 0 to 1; 1 by default.
    #[serde(default = "always")]
    pub p: f64,
}

fn always() -> f64 {
    1.0
}

impl RandomScale {
    /// Factors between these two, always.
    pub fn new(scale: [f64; 2]) -> Self {
        Self { scale, interpolation: Interpolation::OpenCvLinear, p: always() }
    }
}

impl fmt::Display for RandomScale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "RandomScale")
            .field("scale", Tuple(&self.scale))
            .field("interpolation", self.interpolation)
            .field("p", self.p)
            .finish()
    }
}

impl Operation for RandomScale {
    fn check(&self) -> Result<()> {
        check_positive_range("scale", self.scale)?;
        check_probability(self.p)
    }

    fn class(&self) -> Class {
        Class::Resize
    }

    fn draws_by_size(&self) -> bool {
        true
    }

    fn leaves_size_open(&self) -> bool {
        true
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        Shape { height: None, width: None, ..input }
    }

    fn draw(&self, size: Size, rng: &mut Rng) -> Result<Action> {
        check_pixels(size)?;
        if !rng.chance(self.p) {
            return Ok(Action::Keep);
        }
        let factor = rng.uniform(self.scale[0], self.scale[1]);
        resized(
            size,
            [size.height, size.width].map(|side| (side as f64 * factor) as usize),
            self.interpolation,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn the_factor_is_uniform_and_sides_are_cut_off() {
        let scale = RandomScale::new([0.25, 0.75]);
        let sizes: Vec<[usize; 2]> = draws(scale, size(10_000, 999), 20_000)
            .map(|action| match action {
                Action::Resize { height, width, .. } => [height, width],
                other => panic!("{other:?}"),
            })
            .collect();
        assert_uniform(sizes.iter().map(|[height, _]| *height as f64), 2500.0, 7500.0);
        let exact = draws(RandomScale::new([0.75, 0.75]), size(10, 999), 1).next();
        assert!(matches!(exact, Some(Action::Resize { height: 7, width: 749, .. })));
        let some = RandomScale { p: 0.3, ..RandomScale::new([0.5, 0.6]) };
        let resized = draws(some, size(99, 99), 20_000).filter(|action| *action != Action::Keep).count();
        assert_probability(resized, 20_000, 0.3);
    }

    #[test]
    fn parameters_are_checked() {
        assert!(check_error(RandomScale::new([0.0, 1.0])).starts_with("scale is (0.0, 1.0)"));
        assert!(
            RandomScale::new([0.1, 0.1]).draw(size(9, 20), &mut rng(0)).is_err(),
            "a side without pixels"
        );
        let json =
            serde_json::to_string(&super::super::Transform::from(RandomScale::new([0.5, 2.0]))).unwrap();
        assert_eq!(read(&json), RandomScale::new([0.5, 2.0]).into());
    }
}
