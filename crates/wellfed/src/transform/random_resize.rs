//! `RandomResize`: a smaller edge of random length.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Action, Class, Interpolation, Operation, Resize, Shape, Size,
    param::{MAX_SIDE, Repr, python_bool},
    resize::{antialias, check_antialias},
};
use crate::{Error, Result, rng::Rng};

/// Resizes the smaller edge to a whole number drawn uniformly; the aspect ratio stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomResize {
    /// Least smaller edge.
    pub min_size: usize,
    /// The smaller edge stays below this, as torchvision's does.
    pub max_size: usize,
    /// Filter. Default: bilinear.
    #[serde(default)]
    pub interpolation: Interpolation,
    /// Must be true for bilinear, bicubic and lanczos; means nothing for nearest. Default: true.
    #[serde(default = "yes", deserialize_with = "antialias")]
    pub antialias: bool,
}

fn yes() -> bool {
    true
}

impl RandomResize {
    /// Smaller edges from `min_size` to `max_size - 1`.
    pub fn new(min_size: usize, max_size: usize) -> Self {
        Self { min_size, max_size, interpolation: Interpolation::default(), antialias: true }
    }

    /// Sets the filter.
    #[must_use]
    pub fn interpolation(mut self, interpolation: Interpolation) -> Self {
        self.interpolation = interpolation;
        self
    }
}

impl fmt::Display for RandomResize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "RandomResize")
            .field("min_size", self.min_size)
            .field("max_size", self.max_size)
            .field("interpolation", self.interpolation)
            .field("antialias", python_bool(self.antialias))
            .finish()
    }
}

impl Operation for RandomResize {
    fn check(&self) -> Result<()> {
        check_antialias(self.antialias, self.interpolation)?;
        let (min, max) = (self.min_size, self.max_size);
        if 1 <= min && min < max && max <= MAX_SIDE {
            return Ok(());
        }
        Err(Error::config(format!(
            "min_size is {min} and max_size is {max}; must be 1 <= min_size < max_size <= {MAX_SIDE}"
        )))
    }

    fn class(&self) -> Class {
        Class::Resize
    }

    fn leaves_size_open(&self) -> bool {
        true
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        Shape { height: None, width: None, ..input }
    }

    fn draw(&self, size: Size, rng: &mut Rng) -> Result<Action> {
        let edge = self.min_size + rng.below((self.max_size - self.min_size) as u64) as usize;
        Resize { antialias: self.antialias, ..Resize::new(edge) }
            .interpolation(self.interpolation)
            .draw(size, rng)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn edges_are_uniform_and_stay_below_the_greatest() {
        let mut counts = [0; 12];
        for action in draws(RandomResize::new(10, 22), size(15, 30), 24_000) {
            let after = action.size(size(15, 30));
            assert_eq!(after.width, 2 * after.height);
            counts[after.height - 10] += 1;
        }
        assert_uniform_counts(&counts);
    }

    #[test]
    fn fields_of_other_sizes_have_the_same_edge() {
        for index in 0..100 {
            let edge = |h, w| {
                RandomResize::new(5, 50).draw(size(h, w), &mut rng(index)).unwrap().size(size(h, w)).height
            };
            assert_eq!(edge(7, 70), edge(80, 81));
        }
    }

    #[test]
    fn it_reads_shows_and_checks() {
        assert_eq!(
            read(r#"{"type":"RandomResize","min_size":4,"max_size":9,"interpolation":"bicubic"}"#)
                .to_string(),
            "RandomResize(min_size=4, max_size=9, interpolation=bicubic, antialias=True)"
        );
        assert!(
            check_error(RandomResize::new(5, 5))
                .contains("min_size is 5 and max_size is 5; must be 1 <= min")
        );
        assert!(
            RandomResize::new(0, 5).check().is_err() && RandomResize::new(1, usize::MAX).check().is_err()
        );
        assert!(RandomResize::new(1, 2).draw(size(0, 4), &mut rng(0)).is_err());
    }
}
