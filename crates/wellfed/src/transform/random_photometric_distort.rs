//! `RandomPhotometricDistort`: colours and the order of channels, changed at random.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use wellfed_kernels::{color::permute, image::Image, recipe::PixelOp};

use super::{
    Action, Class, ColorStep, ColorSteps, ImageAction, ImageMemory, Operation, Shape, Size,
    adjustment::check_channels,
    param::{Repr, Tuple, check_probability, check_range},
    sequence::sequence,
};
use crate::{Result, rng::Rng};

/// Changes brightness, contrast, saturation, hue and the order of channels, each with probability `p`: Liu et al., "SSD:
/// Single Shot MultiBox Detector" (2016), as torchvision has it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RandomPhotometricDistort {
    /// Range of the factor of brightness, at least 0. Default: (0.875, 1.125).
    pub brightness: [f64; 2],
    /// Range of the factor of contrast, at least 0. Default: (0.5, 1.5).
    pub contrast: [f64; 2],
    /// Range of the factor of saturation, at least 0. Default: (0.5, 1.5).
    pub saturation: [f64; 2],
    /// Range of the shift of hue, as a fraction of the circle, within -0.5 to 0.5. Default: (-0.05, 0.05).
    pub hue: [f64; 2],
    /// Probability of each, 0 to 1; 0.5 by default.
    pub p: f64,
}

impl Default for RandomPhotometricDistort {
    fn default() -> Self {
        Self {
            brightness: [0.875, 1.125],
            contrast: [0.5, 1.5],
            saturation: [0.5, 1.5],
            hue: [-0.05, 0.05],
            p: 0.5,
        }
    }
}

impl RandomPhotometricDistort {
    /// Changes each with probability 0.5.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the probability.
    #[must_use]
    pub fn p(mut self, p: f64) -> Self {
        self.p = p;
        self
    }

    fn ranges(&self) -> [(&'static str, [f64; 2]); 4] {
        [
            ("brightness", self.brightness),
            ("contrast", self.contrast),
            ("saturation", self.saturation),
            ("hue", self.hue),
        ]
    }

    /// What is done to colours, and then to the order of channels.
    fn distortion(&self, size: Size, rng: &mut Rng) -> (ColorSteps, Option<Permutation>) {
        let [brightness, contrast, saturation, hue] =
            self.ranges().map(|(_, [low, high])| rng.chance(self.p).then(|| rng.uniform(low, high)));
        let first = rng.chance(0.5);
        let permutation = rng.chance(self.p).then(|| {
            let mut order = [0, 1, 2];
            rng.shuffle(&mut order);
            Permutation(order)
        });
        let color = size.channels == 3;
        let contrast = contrast.map(ColorStep::Contrast);
        let steps = [
            brightness.map(ColorStep::Brightness),
            contrast.filter(|_| first),
            // Grey has neither saturation nor hue.
            saturation.filter(|_| color).map(ColorStep::Saturation),
            hue.filter(|_| color).map(ColorStep::Hue),
            contrast.filter(|_| !first),
        ];
        let moved = permutation.filter(|p| color && p.0 != [0, 1, 2]);
        (ColorSteps::new(steps.into_iter().flatten()), moved)
    }
}

impl fmt::Display for RandomPhotometricDistort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut repr = Repr::new(f, "RandomPhotometricDistort");
        for (name, range) in self.ranges() {
            repr = repr.field(name, Tuple(&range));
        }
        repr.field("p", self.p).finish()
    }
}

impl Operation for RandomPhotometricDistort {
    fn check(&self) -> Result<()> {
        for (name, range) in self.ranges() {
            let (least, most) = if name == "hue" { (-0.5, 0.5) } else { (0.0, f64::INFINITY) };
            check_range(name, range, least, most)?;
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
        check_channels(size)?;
        let (steps, moved) = self.distortion(size, rng);
        let mut actions: Vec<Arc<dyn ImageAction>> = Vec::new();
        if !steps.is_empty() {
            actions.push(Arc::new(steps));
        }
        if let Some(moved) = moved {
            actions.push(Arc::new(moved));
        }
        Ok(sequence(actions))
    }
}

/// Channel `i` of the result is channel `.0[i]` of the image.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Permutation([usize; 3]);

impl ImageAction for Permutation {
    fn pixel_ops(&self, _input: Size) -> Option<Vec<PixelOp>> {
        Some(vec![PixelOp::Permute(self.0)])
    }

    fn run(&self, image: &mut Image, _memory: &mut ImageMemory) -> Result<()> {
        permute(image, &self.0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    fn all(p: f64, n: u64) -> impl Iterator<Item = (ColorSteps, Option<Permutation>)> {
        let distort = RandomPhotometricDistort::new().p(p);
        (0..n).map(move |index| distort.distortion(size(2, 2), &mut rng(index)))
    }

    /// 0 for brightness and so on.
    fn kind(step: &ColorStep) -> usize {
        match step {
            ColorStep::Brightness(_) => 0,
            ColorStep::Contrast(_) => 1,
            ColorStep::Saturation(_) => 2,
            ColorStep::Hue(_) => 3,
        }
    }

    #[test]
    fn each_happens_with_probability_p() {
        for p in [0.0, 0.3, 1.0] {
            let mut counts = [0; 5];
            for (steps, moved) in all(p, 20_000) {
                steps.iter().for_each(|step| counts[kind(step)] += 1);
                counts[4] += usize::from(moved.is_some());
            }
            for count in &counts[..4] {
                assert_probability(*count, 20_000, p);
            }
            // One of the six orders is that of the image.
            assert_probability(counts[4], 20_000, p * 5.0 / 6.0);
        }
    }

    #[test]
    fn contrast_comes_second_or_last_and_all_orders_of_channels_come_up() {
        let (mut second, mut orders) = (0, std::collections::HashMap::new());
        for (steps, moved) in all(1.0, 12_000) {
            let order: Vec<usize> = steps.iter().map(kind).collect();
            assert!(order == [0, 1, 2, 3] || order == [0, 2, 3, 1], "{order:?}");
            second += usize::from(order[1] == 1);
            *orders.entry(moved.map(|p| p.0)).or_insert(0) += 1;
        }
        assert_probability(second, 12_000, 0.5);
        assert_eq!(orders.len(), 6);
        assert_uniform_counts(&orders.into_values().collect::<Vec<_>>());
    }

    #[test]
    fn factors_are_uniform_in_their_ranges() {
        let mut values = [const { Vec::new() }; 4];
        for (steps, _) in all(0.8, 10_000) {
            for step in steps.iter() {
                let (ColorStep::Brightness(x)
                | ColorStep::Contrast(x)
                | ColorStep::Saturation(x)
                | ColorStep::Hue(x)) = *step;
                values[kind(step)].push(x);
            }
        }
        for (values, [low, high]) in
            values.into_iter().zip([[0.875, 1.125], [0.5, 1.5], [0.5, 1.5], [-0.05, 0.05]])
        {
            assert_uniform(values, low, high);
        }
    }

    #[test]
    fn grey_keeps_its_colours_and_its_channel() {
        let gray = Size { channels: 1, ..size(2, 2) };
        let distort = RandomPhotometricDistort::new().p(1.0);
        for index in 0..50 {
            let (steps, moved) = distort.distortion(gray, &mut rng(index));
            assert_eq!((steps.len(), moved), (2, None));
        }
        assert!(distort.draw(Size { channels: 4, ..gray }, &mut rng(0)).is_err());
    }

    #[test]
    fn parameters_are_checked() {
        let hue = RandomPhotometricDistort { hue: [-0.6, 0.1], ..Default::default() };
        assert!(check_error(hue).starts_with("hue is (-0.6, 0.1); must be"));
        let contrast = RandomPhotometricDistort { contrast: [1.0, 0.5], ..Default::default() };
        assert!(check_error(contrast).starts_with("contrast is (1.0, 0.5)"));
        assert!(check_error(RandomPhotometricDistort::new().p(2.0)).starts_with("p is 2"));
        assert_eq!(
            read(r#"{"type":"RandomPhotometricDistort","p":0.25}"#).to_string(),
            "RandomPhotometricDistort(brightness=(0.875, 1.125), contrast=(0.5, 1.5), saturation=(0.5, 1.5), \
             hue=(-0.05, 0.05), p=0.25)"
        );
    }
}
