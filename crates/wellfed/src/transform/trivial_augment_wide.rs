//! `TrivialAugmentWide`: one operation drawn at random, with a magnitude drawn at random.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Action, Class, Interpolation, Operation, PerChannel, Shape, Size, Takes,
    augment::{Op, Outside, Space, Thresholds},
    param::Repr,
    rand_augment::check_bins,
    random_affine::check_sampling,
};
use crate::{Result, rng::Rng};

/// Does one operation, drawn uniformly from 14 of them, with a magnitude drawn uniformly and a random sign: Müller and
/// Hutter, "TrivialAugment" (2021), as torchvision has it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrivialAugmentWide {
    /// How many magnitudes there are, at least 2. Default: 31.
    pub num_magnitude_bins: usize,
    /// Filter: nearest, bilinear or bicubic. Default: nearest.
    pub interpolation: Interpolation,
    /// Value of what comes in from outside. Default: 0.
    pub fill: PerChannel,
    /// Whose thresholds `Solarize` takes. Default: those of v2.
    #[serde(skip_serializing_if = "Thresholds::is_default")]
    pub thresholds: Thresholds,
}

impl Default for TrivialAugmentWide {
    fn default() -> Self {
        Self {
            num_magnitude_bins: 31,
            interpolation: Interpolation::Nearest,
            fill: PerChannel::default(),
            thresholds: Thresholds::default(),
        }
    }
}

impl TrivialAugmentWide {
    /// One of 31 magnitudes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how many magnitudes there are.
    #[must_use]
    pub fn num_magnitude_bins(mut self, num_magnitude_bins: usize) -> Self {
        self.num_magnitude_bins = num_magnitude_bins;
        self
    }

    /// Sets the filter.
    #[must_use]
    pub fn interpolation(mut self, interpolation: Interpolation) -> Self {
        self.interpolation = interpolation;
        self
    }

    /// Sets the value of what comes in from outside.
    #[must_use]
    pub fn fill(mut self, fill: impl Into<PerChannel>) -> Self {
        self.fill = fill.into();
        self
    }

    /// Sets whose thresholds `Solarize` takes.
    #[must_use]
    pub fn thresholds(mut self, thresholds: Thresholds) -> Self {
        self.thresholds = thresholds;
        self
    }

    /// The operation for an image of `size`, with its magnitude.
    fn op(&self, size: Size, rng: &mut Rng) -> (Op, f64) {
        let op = Op::CHOICE[rng.below(Op::CHOICE.len() as u64) as usize];
        if !op.has_magnitude() {
            return (op, 0.0);
        }
        let bin = rng.below(self.num_magnitude_bins as u64) as usize;
        let magnitude = Space::WIDE.magnitude(op, (bin, self.num_magnitude_bins), size, self.thresholds);
        (op, if op.is_signed() && rng.chance(0.5) { -magnitude } else { magnitude })
    }
}

impl fmt::Display for TrivialAugmentWide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "TrivialAugmentWide")
            .field("num_magnitude_bins", self.num_magnitude_bins)
            .field("interpolation", self.interpolation)
            .field("fill", self.fill)
            .field_if(!self.thresholds.is_default(), "thresholds", self.thresholds)
            .finish()
    }
}

impl Operation for TrivialAugmentWide {
    fn check(&self) -> Result<()> {
        check_bins(self.num_magnitude_bins)?;
        check_sampling(self.interpolation)?;
        self.fill.check("fill")
    }

    fn class(&self) -> Class {
        Class::Image
    }

    fn takes(&self) -> Takes {
        Takes::ImagesAlone
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        input
    }

    fn draw(&self, size: Size, rng: &mut Rng) -> Result<Action> {
        let outside = Outside { interpolation: self.interpolation, fill: self.fill };
        outside.draw(size, || [self.op(size, rng)])
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn operations_magnitudes_and_signs_are_equally_likely() {
        let augment = TrivialAugmentWide::new().num_magnitude_bins(5);
        let mut counts = [0; 14];
        let mut shears = [0; 5];
        let (mut negative, mut rotations) = (0, 0);
        for index in 0..40_000 {
            let (op, magnitude) = augment.op(size(9, 9), &mut rng(index));
            counts[Op::CHOICE.iter().position(|&other| other == op).unwrap()] += 1;
            match op {
                Op::ShearX => shears[(magnitude.abs() / 0.99 * 4.0).round() as usize] += 1,
                Op::Rotate if magnitude != 0.0 => {
                    rotations += 1;
                    negative += usize::from(magnitude < 0.0);
                }
                _ => {}
            }
        }
        assert_uniform_counts(&counts);
        assert_uniform_counts(&shears);
        assert_probability(negative, rotations, 0.5);
    }

    #[test]
    fn parameters_are_checked() {
        let none = TrivialAugmentWide::new().num_magnitude_bins(0);
        assert!(check_error(none).starts_with("num_magnitude_bins is 0; must be 2 to"));
        let gray = Size { channels: 1, ..size(2, 2) };
        assert!(TrivialAugmentWide::new().fill([1.0; 3]).draw(gray, &mut rng(0)).is_err());
        assert_eq!(
            read(r#"{"type":"TrivialAugmentWide","interpolation":"bilinear"}"#).to_string(),
            "TrivialAugmentWide(num_magnitude_bins=31, interpolation=bilinear, fill=0)"
        );
    }
}
