//! `RandAugment`: some operations drawn at random, all of one magnitude.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Action, Class, Interpolation, Operation, PerChannel, Shape, Size, Takes,
    augment::{Op, Outside, Space, Thresholds},
    param::Repr,
    random_affine::check_sampling,
};
use crate::{Error, Result, rng::Rng};

/// Does `num_ops` operations one after the other, each drawn uniformly from 14 of them, with one magnitude and a random
/// sign: Cubuk, Zoph, Shlens, Le, "RandAugment" (2019), as torchvision has it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RandAugment {
    /// How many operations. Default: 2.
    pub num_ops: usize,
    /// Which of the magnitudes, from 0. Default: 9.
    pub magnitude: usize,
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

impl Default for RandAugment {
    fn default() -> Self {
        Self {
            num_ops: 2,
            magnitude: 9,
            num_magnitude_bins: 31,
            interpolation: Interpolation::Nearest,
            fill: PerChannel::default(),
            thresholds: Thresholds::default(),
        }
    }
}

impl RandAugment {
    /// Most operations of one sample.
    const MAX_OPS: usize = 1000;

    /// Two operations of magnitude 9 of 31.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how many operations are done.
    #[must_use]
    pub fn num_ops(mut self, num_ops: usize) -> Self {
        self.num_ops = num_ops;
        self
    }

    /// Sets the magnitude, below the number of bins.
    #[must_use]
    pub fn magnitude(mut self, magnitude: usize, num_magnitude_bins: usize) -> Self {
        (self.magnitude, self.num_magnitude_bins) = (magnitude, num_magnitude_bins);
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

    /// The operations for an image of `size`, with their magnitudes.
    fn ops(&self, size: Size, rng: &mut Rng) -> Vec<(Op, f64)> {
        let bin = (self.magnitude, self.num_magnitude_bins);
        (0..self.num_ops)
            .map(|_| {
                let op = Op::CHOICE[rng.below(Op::CHOICE.len() as u64) as usize];
                let magnitude = Space::NARROW.magnitude(op, bin, size, self.thresholds);
                (op, if op.is_signed() && rng.chance(0.5) { -magnitude } else { magnitude })
            })
            .collect()
    }
}

/// Fails unless there are enough magnitudes, and not too many.
pub(super) fn check_bins(bins: usize) -> Result<()> {
    if (2..=1 << 20).contains(&bins) {
        return Ok(());
    }
    Err(Error::config(format!("num_magnitude_bins is {bins}; must be 2 to {}", 1 << 20)))
}

impl fmt::Display for RandAugment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "RandAugment")
            .field("num_ops", self.num_ops)
            .field("magnitude", self.magnitude)
            .field("num_magnitude_bins", self.num_magnitude_bins)
            .field("interpolation", self.interpolation)
            .field("fill", self.fill)
            .field_if(!self.thresholds.is_default(), "thresholds", self.thresholds)
            .finish()
    }
}

impl Operation for RandAugment {
    fn check(&self) -> Result<()> {
        if self.num_ops > Self::MAX_OPS {
            let most = Self::MAX_OPS;
            return Err(Error::config(format!("num_ops is {}; must be 0 to {most}", self.num_ops)));
        }
        check_bins(self.num_magnitude_bins)?;
        if self.magnitude >= self.num_magnitude_bins {
            let (magnitude, bins) = (self.magnitude, self.num_magnitude_bins);
            let what = format!("magnitude is {magnitude}; must be below num_magnitude_bins, which is {bins}");
            return Err(Error::config(what));
        }
        check_sampling(self.interpolation)?;
        self.fill.check("fill")
    }

    fn class(&self) -> Class {
        Class::Image
    }

    fn takes(&self) -> Takes {
        Takes::ImagesAlone
    }

    fn draws_by_size(&self) -> bool {
        true
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        input
    }

    fn draw(&self, size: Size, rng: &mut Rng) -> Result<Action> {
        let outside = Outside { interpolation: self.interpolation, fill: self.fill };
        outside.draw(size, || self.ops(size, rng))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn all_operations_are_equally_likely_and_half_are_negative() {
        let augment = RandAugment::new();
        let mut counts = [0; 14];
        let mut negative = 0;
        let mut signed = 0;
        for index in 0..20_000 {
            let ops = augment.ops(size(331, 331), &mut rng(index));
            assert_eq!(ops.len(), 2);
            for (op, magnitude) in ops {
                counts[Op::CHOICE.iter().position(|&other| other == op).unwrap()] += 1;
                negative += usize::from(magnitude < 0.0);
                signed += u64::from(op.is_signed());
                match op {
                    Op::TranslateX => assert_eq!(magnitude.abs(), 45.0),
                    Op::Posterize => assert_eq!(magnitude, 7.0),
                    _ => {}
                }
            }
        }
        assert_uniform_counts(&counts);
        assert_probability(negative, signed, 0.5);
    }

    #[test]
    fn parameters_are_checked() {
        assert_eq!(
            check_error(RandAugment::new().magnitude(31, 31)),
            "magnitude is 31; must be below num_magnitude_bins, which is 31"
        );
        assert!(check_error(RandAugment::new().magnitude(0, 1)).starts_with("num_magnitude_bins is 1"));
        assert!(check_error(RandAugment::new().num_ops(5000)).starts_with("num_ops is 5000"));
        let lanczos = RandAugment::new().interpolation(Interpolation::Lanczos);
        assert!(check_error(lanczos).contains("must be nearest, bilinear or bicubic"));
        let rgba = Size { channels: 4, ..size(2, 2) };
        assert!(RandAugment::new().draw(rgba, &mut rng(0)).is_err());
        assert_eq!(RandAugment::new().num_ops(0).draw(size(2, 2), &mut rng(0)).unwrap(), Action::Keep);
    }

    #[test]
    fn it_reads_and_shows_as_in_torchvision() {
        let augment = read(r#"{"type":"RandAugment","magnitude":5,"fill":[1,2,3],"thresholds":"v1"}"#);
        let same = RandAugment::new().magnitude(5, 31).fill([1.0, 2.0, 3.0]).thresholds(Thresholds::V1);
        assert_eq!(augment, same.into());
        assert!(augment.to_string().ends_with(", fill=(1, 2, 3), thresholds=v1)"), "{augment}");
        assert_eq!(
            read(r#"{"type":"RandAugment"}"#).to_string(),
            "RandAugment(num_ops=2, magnitude=9, num_magnitude_bins=31, interpolation=nearest, fill=0)"
        );
    }
}
