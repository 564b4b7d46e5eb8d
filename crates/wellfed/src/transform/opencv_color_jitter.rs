//! `OpenCvColorJitter`: Albumentations' `ColorJitter`.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use wellfed_kernels::{image::Image, opencv};

use super::{
    Action, Class, ImageAction, ImageMemory, Operation, Shape, Size,
    hue_saturation_value::check_colours,
    param::{Repr, Tuple, check_range},
};
use crate::{Result, rng::Rng};

/// Changes brightness, contrast, saturation and hue by random numbers in random order, as `ColorJitter` of Albumentations
/// 2 does where its `p` is 1: with OpenCV's rounding, and not Pillow's. Images must have 3 channels.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenCvColorJitter {
    /// Least and greatest factor of brightness, at least 0.
    pub brightness: [f64; 2],
    /// Least and greatest factor of contrast, at least 0.
    pub contrast: [f64; 2],
    /// Least and greatest factor of saturation, at least 0.
    pub saturation: [f64; 2],
    /// Least and greatest shift of hue, as a fraction of the circle, within -0.5 to 0.5.
    pub hue: [f64; 2],
}

impl OpenCvColorJitter {
    /// Changes within these ranges.
    pub fn new(brightness: [f64; 2], contrast: [f64; 2], saturation: [f64; 2], hue: [f64; 2]) -> Self {
        Self { brightness, contrast, saturation, hue }
    }

    fn ranges(&self) -> [(&'static str, [f64; 2]); 4] {
        [
            ("brightness", self.brightness),
            ("contrast", self.contrast),
            ("saturation", self.saturation),
            ("hue", self.hue),
        ]
    }

    fn drawn(&self, rng: &mut Rng) -> Steps {
        let numbers = self.ranges().map(|(_, [low, high])| rng.uniform(low, high));
        let mut order = [0, 1, 2, 3];
        rng.shuffle(&mut order);
        Steps { numbers, order }
    }
}

impl fmt::Display for OpenCvColorJitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut repr = Repr::new(f, "OpenCvColorJitter");
        for (name, range) in self.ranges() {
            repr = repr.field(name, Tuple(&range));
        }
        repr.finish()
    }
}

impl Operation for OpenCvColorJitter {
    fn check(&self) -> Result<()> {
        for (name, range) in self.ranges() {
            let (least, most) = if name == "hue" { (-0.5, 0.5) } else { (0.0, f64::INFINITY) };
            check_range(name, range, least, most)?;
        }
        Ok(())
    }

    fn class(&self) -> Class {
        Class::Image
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        input
    }

    fn draw(&self, size: Size, rng: &mut Rng) -> Result<Action> {
        check_colours(size)?;
        Ok(Action::Image(Arc::new(self.drawn(rng))))
    }
}

/// What is changed by how much, and in which order.
#[derive(Debug)]
struct Steps {
    /// Of brightness, contrast, saturation and hue.
    numbers: [f64; 4],
    order: [usize; 4],
}

impl ImageAction for Steps {
    fn run(&self, image: &mut Image, _memory: &mut ImageMemory) -> Result<()> {
        for step in self.order {
            let number = self.numbers[step];
            match step {
                0 => opencv::brightness(image, number),
                1 => opencv::contrast(image, number),
                2 => opencv::saturation(image, number),
                _ => opencv::hue(image, number),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    fn jitter() -> OpenCvColorJitter {
        OpenCvColorJitter::new([0.8, 1.2], [0.5, 1.0], [0.0, 2.0], [-0.5, 0.5])
    }

    #[test]
    fn numbers_and_orders_are_uniform() {
        let drawn: Vec<Steps> = (0..20_000).map(|index| jitter().drawn(&mut rng(index))).collect();
        for (i, (_, [low, high])) in jitter().ranges().into_iter().enumerate() {
            assert_uniform(drawn.iter().map(|steps| steps.numbers[i]), low, high);
        }
        let first = drawn.iter().filter(|steps| steps.order[0] == 2).count();
        assert_probability(first, 20_000, 0.25);
    }

    #[test]
    fn parameters_are_checked() {
        let bad = OpenCvColorJitter { hue: [-0.6, 0.0], ..jitter() };
        assert!(check_error(bad).starts_with("hue is (-0.6, 0.0)"));
        let bad = OpenCvColorJitter { contrast: [-0.1, 0.0], ..jitter() };
        assert!(check_error(bad).starts_with("contrast is (-0.1, 0.0)"));
        let json = serde_json::to_string(&super::super::Transform::from(jitter())).unwrap();
        assert_eq!(read(&json), jitter().into());
        assert_eq!(
            jitter().to_string(),
            "OpenCvColorJitter(brightness=(0.8, 1.2), contrast=(0.5, 1.0), saturation=(0.0, 2.0), \
             hue=(-0.5, 0.5))"
        );
        assert!(jitter().draw(Size { channels: 1, ..size(1, 1) }, &mut rng(0)).is_err());
    }
}
