//! `ScaleJitter`: a random scale of what fits a size.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Action, Class, Interpolation, Operation, Shape, Sides, Size,
    param::{Repr, Tuple, check_pixels, check_positive_range, check_sides, python_bool, sides},
    resize::{antialias, check_antialias, resized},
};
use crate::{Result, rng::Rng};

/// Resizes to a random multiple of the size that fits `target_size`; the aspect ratio stays.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScaleJitter {
    /// The size that scale 1 fits. torchvision divides its second number by the height and its first by the width.
    #[serde(deserialize_with = "sides")]
    pub target_size: [usize; 2],
    /// Least and greatest scale. Default: (0.1, 2.0).
    #[serde(default = "default_range")]
    pub scale_range: [f64; 2],
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

fn default_range() -> [f64; 2] {
    [0.1, 2.0]
}

impl ScaleJitter {
    /// Scales 0.1 to 2 of what fits `target_size`.
    pub fn new(target_size: impl Into<Sides>) -> Self {
        Self {
            target_size: target_size.into().0,
            scale_range: default_range(),
            interpolation: Interpolation::default(),
            antialias: true,
        }
    }

    /// Sets the least and greatest scale.
    #[must_use]
    pub fn scale_range(mut self, range: [f64; 2]) -> Self {
        self.scale_range = range;
        self
    }

    /// Sets the filter.
    #[must_use]
    pub fn interpolation(mut self, interpolation: Interpolation) -> Self {
        self.interpolation = interpolation;
        self
    }
}

impl fmt::Display for ScaleJitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "ScaleJitter")
            .field("target_size", Tuple(&self.target_size))
            .field("scale_range", Tuple(&self.scale_range))
            .field("interpolation", self.interpolation)
            .field("antialias", python_bool(self.antialias))
            .finish()
    }
}

impl Operation for ScaleJitter {
    fn check(&self) -> Result<()> {
        check_sides("target_size", self.target_size)?;
        check_positive_range("scale_range", self.scale_range)?;
        check_antialias(self.antialias, self.interpolation)
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

    /// torchvision's numbers are float32 here, since its scale is a tensor.
    fn draw(&self, size: Size, rng: &mut Rng) -> Result<Action> {
        check_pixels(size)?;
        let scale = rng.uniform_single(self.scale_range);
        let [first, second] = self.target_size.map(|side| side as f64);
        let fits = (second / size.height as f64).min(first / size.width as f64);
        let ratio = fits as f32 * scale;
        let side = |side: usize| (side as f32 * ratio) as usize;
        resized(size, [side(size.height), side(size.width)], self.interpolation)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn the_scale_is_uniform_and_relative_to_what_fits() {
        let image = size(1000, 2000);
        let jitter = ScaleJitter::new((4000, 8000)).scale_range([0.5, 1.5]);
        // 8000 / 1000 and 4000 / 2000: the smaller is 2.
        let scales = draws(jitter, image, 10_000).map(|action| {
            let after = action.size(image);
            assert!(after.width.abs_diff(2 * after.height) <= 1, "{after:?}");
            after.height as f64 / 2000.0
        });
        assert_uniform(scales, 0.499, 1.5);
    }

    #[test]
    fn it_reads_shows_and_checks() {
        assert_eq!(
            read(r#"{"type":"ScaleJitter","target_size":[512,512]}"#).to_string(),
            "ScaleJitter(target_size=(512, 512), scale_range=(0.1, 2.0), interpolation=bilinear, antialias=True)"
        );
        let none = ScaleJitter::new(4).scale_range([0.0, 1.0]);
        assert!(check_error(none).starts_with("scale_range is (0.0, 1.0)"));
        assert!(check_error(ScaleJitter::new(0)).starts_with("target_size is (0, 0)"));
        let tiny = ScaleJitter::new(1).scale_range([0.1, 0.1]);
        assert!(tiny.draw(size(9, 9), &mut rng(0)).unwrap_err().message().contains("would become (0, 0)"));
    }
}
