//! `RandomBrightnessContrast`: Albumentations' change of brightness and contrast.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use wellfed_kernels::{image::Image, opencv};

use super::{
    Action, Class, ImageAction, ImageMemory, Operation, Shape, Size,
    adjustment::check_channels,
    param::{Repr, Tuple, check_range, python_bool},
};
use crate::{Result, rng::Rng};

/// Multiplies values by a random factor and adds a random number, as the transform of this name of Albumentations 2 does
/// where its `p` is 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomBrightnessContrast {
    /// Least and greatest number that is added, as a share of 255 or of the image's mean.
    pub brightness_limit: [f64; 2],
    /// Least and greatest number that the factor exceeds 1 by.
    pub contrast_limit: [f64; 2],
    /// Whether what is added is a share of 255, and not of the image's mean. Default: true.
    #[serde(default = "yes")]
    pub brightness_by_max: bool,
}

fn yes() -> bool {
    true
}

impl RandomBrightnessContrast {
    /// Shares of 255.
    pub fn new(brightness_limit: [f64; 2], contrast_limit: [f64; 2]) -> Self {
        Self { brightness_limit, contrast_limit, brightness_by_max: true }
    }

    /// Sets what brightness is a share of.
    #[must_use]
    pub fn brightness_by_max(mut self, by_max: bool) -> Self {
        self.brightness_by_max = by_max;
        self
    }

    fn drawn(&self, rng: &mut Rng) -> Line {
        let factor = 1.0 + rng.uniform(self.contrast_limit[0], self.contrast_limit[1]);
        let share = rng.uniform(self.brightness_limit[0], self.brightness_limit[1]);
        Line { factor, share, by_max: self.brightness_by_max }
    }
}

impl fmt::Display for RandomBrightnessContrast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "RandomBrightnessContrast")
            .field("brightness_limit", Tuple(&self.brightness_limit))
            .field("contrast_limit", Tuple(&self.contrast_limit))
            .field("brightness_by_max", python_bool(self.brightness_by_max))
            .finish()
    }
}

impl Operation for RandomBrightnessContrast {
    fn check(&self) -> Result<()> {
        check_range("brightness_limit", self.brightness_limit, f64::NEG_INFINITY, f64::INFINITY)?;
        check_range("contrast_limit", self.contrast_limit, f64::NEG_INFINITY, f64::INFINITY)
    }

    fn class(&self) -> Class {
        Class::Image
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        input
    }

    fn draw(&self, size: Size, rng: &mut Rng) -> Result<Action> {
        check_channels(size)?;
        Ok(Action::Image(Arc::new(self.drawn(rng))))
    }
}

/// What a value becomes: `v * factor`, and a share of 255 or of the mean.
#[derive(Debug)]
struct Line {
    factor: f64,
    share: f64,
    by_max: bool,
}

impl ImageAction for Line {
    fn run(&self, image: &mut Image, _memory: &mut ImageMemory) -> Result<()> {
        let of = if self.by_max { 255.0 } else { opencv::mean(image) };
        opencv::multiply_add(image, self.factor, self.share * of);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn factors_and_shares_are_uniform() {
        let change = RandomBrightnessContrast::new([-0.2, 0.4], [-0.1, 0.3]);
        let lines: Vec<Line> = (0..20_000).map(|index| change.drawn(&mut rng(index))).collect();
        assert_uniform(lines.iter().map(|line| line.factor), 0.9, 1.3);
        assert_uniform(lines.iter().map(|line| line.share), -0.2, 0.4);
    }

    #[test]
    fn a_share_is_of_255_or_of_the_mean() {
        for (by_max, expected) in [(true, [151, 171]), (false, [111, 131])] {
            let mut image = Image::new();
            image.reshape(1, 2, 1).unwrap().copy_from_slice(&[50, 60]);
            let line = Line { factor: 2.0, share: 0.2, by_max };
            line.run(&mut image, &mut ImageMemory::default()).unwrap();
            assert_eq!(image.pixels(), expected);
        }
    }

    #[test]
    fn parameters_are_checked() {
        let bad = RandomBrightnessContrast::new([0.2, -0.2], [0.0, 0.0]);
        assert!(check_error(bad).starts_with("brightness_limit is (0.2, -0.2)"));
        let read = read(
            r#"{"type":"RandomBrightnessContrast","brightness_limit":[-0.2,0.2],"contrast_limit":[0,0.5]}"#,
        );
        assert_eq!(read, RandomBrightnessContrast::new([-0.2, 0.2], [0.0, 0.5]).into());
        assert_eq!(
            read.to_string(),
            "RandomBrightnessContrast(brightness_limit=(-0.2, 0.2), contrast_limit=(0.0, 0.5), \
             brightness_by_max=True)"
        );
        let two = Size { channels: 2, ..size(1, 1) };
        assert!(RandomBrightnessContrast::new([0.0; 2], [0.0; 2]).draw(two, &mut rng(0)).is_err());
    }
}
