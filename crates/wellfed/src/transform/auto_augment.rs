//! `AutoAugment`: pairs of operations that were learned on a data set.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Action, Class, Interpolation, Operation, PerChannel, Shape, Size, Takes,
    augment::{
        Op::{self, *},
        Outside, Space, Thresholds,
    },
    param::Repr,
    random_affine::check_sampling,
};
use crate::{Result, rng::Rng};

/// What the operations were learned on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the names are those of data sets")]
pub enum AutoAugmentPolicy {
    #[default]
    ImageNet,
    Cifar10,
    Svhn,
}

/// Draws one of 25 pairs of operations and does each of the two with the probability and the magnitude that it has there,
/// with a random sign: Cubuk, Zoph, Mane, Vasudevan, Le, "AutoAugment" (2018), as torchvision has it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AutoAugment {
    /// What the pairs were learned on. Default: ImageNet.
    pub policy: AutoAugmentPolicy,
    /// Filter: nearest, bilinear or bicubic. Default: nearest.
    pub interpolation: Interpolation,
    /// Value of what comes in from outside. Default: 0.
    pub fill: PerChannel,
    /// Whose thresholds `Solarize` takes. Default: those of v2.
    #[serde(skip_serializing_if = "Thresholds::is_default")]
    pub thresholds: Thresholds,
}

impl Default for AutoAugment {
    fn default() -> Self {
        Self::new(AutoAugmentPolicy::ImageNet)
    }
}

impl AutoAugment {
    /// Pairs that were learned on `policy`.
    pub fn new(policy: AutoAugmentPolicy) -> Self {
        Self {
            policy,
            interpolation: Interpolation::Nearest,
            fill: PerChannel::default(),
            thresholds: Thresholds::default(),
        }
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
        let pairs = self.policy.pairs();
        let pair = pairs[rng.below(pairs.len() as u64) as usize];
        let mut ops = Vec::with_capacity(2);
        for (op, probability, bin) in pair {
            if rng.chance(probability) {
                let magnitude = Space::NARROW.magnitude(op, (bin, BINS), size, self.thresholds);
                ops.push((op, if op.is_signed() && rng.chance(0.5) { -magnitude } else { magnitude }));
            }
        }
        ops
    }
}

impl fmt::Display for AutoAugmentPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AutoAugmentPolicy::ImageNet => "imagenet",
            AutoAugmentPolicy::Cifar10 => "cifar10",
            AutoAugmentPolicy::Svhn => "svhn",
        })
    }
}

impl fmt::Display for AutoAugment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "AutoAugment")
            .field("policy", self.policy)
            .field("interpolation", self.interpolation)
            .field("fill", self.fill)
            .field_if(!self.thresholds.is_default(), "thresholds", self.thresholds)
            .finish()
    }
}

impl Operation for AutoAugment {
    fn check(&self) -> Result<()> {
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

/// Magnitudes that there are.
const BINS: usize = 10;

/// An operation, its probability and its magnitude.
type Pair = [(Op, f64, usize); 2];

impl AutoAugmentPolicy {
    fn pairs(self) -> &'static [Pair; 25] {
        match self {
            AutoAugmentPolicy::ImageNet => &IMAGENET,
            AutoAugmentPolicy::Cifar10 => &CIFAR10,
            AutoAugmentPolicy::Svhn => &SVHN,
        }
    }
}

// The tables are those of the paper, in torchvision's order. Operations without a magnitude have 0.

const IMAGENET: [Pair; 25] = [
    [(Posterize, 0.4, 8), (Rotate, 0.6, 9)],
    [(Solarize, 0.6, 5), (AutoContrast, 0.6, 0)],
    [(Equalize, 0.8, 0), (Equalize, 0.6, 0)],
    [(Posterize, 0.6, 7), (Posterize, 0.6, 6)],
    [(Equalize, 0.4, 0), (Solarize, 0.2, 4)],
    [(Equalize, 0.4, 0), (Rotate, 0.8, 8)],
    [(Solarize, 0.6, 3), (Equalize, 0.6, 0)],
    [(Posterize, 0.8, 5), (Equalize, 1.0, 0)],
    [(Rotate, 0.2, 3), (Solarize, 0.6, 8)],
    [(Equalize, 0.6, 0), (Posterize, 0.4, 6)],
    [(Rotate, 0.8, 8), (Color, 0.4, 0)],
    [(Rotate, 0.4, 9), (Equalize, 0.6, 0)],
    [(Equalize, 0.0, 0), (Equalize, 0.8, 0)],
    [(Invert, 0.6, 0), (Equalize, 1.0, 0)],
    [(Color, 0.6, 4), (Contrast, 1.0, 8)],
    [(Rotate, 0.8, 8), (Color, 1.0, 2)],
    [(Color, 0.8, 8), (Solarize, 0.8, 7)],
    [(Sharpness, 0.4, 7), (Invert, 0.6, 0)],
    [(ShearX, 0.6, 5), (Equalize, 1.0, 0)],
    [(Color, 0.4, 0), (Equalize, 0.6, 0)],
    [(Equalize, 0.4, 0), (Solarize, 0.2, 4)],
    [(Solarize, 0.6, 5), (AutoContrast, 0.6, 0)],
    [(Invert, 0.6, 0), (Equalize, 1.0, 0)],
    [(Color, 0.6, 4), (Contrast, 1.0, 8)],
    [(Equalize, 0.8, 0), (Equalize, 0.6, 0)],
];

const CIFAR10: [Pair; 25] = [
    [(Invert, 0.1, 0), (Contrast, 0.2, 6)],
    [(Rotate, 0.7, 2), (TranslateX, 0.3, 9)],
    [(Sharpness, 0.8, 1), (Sharpness, 0.9, 3)],
    [(ShearY, 0.5, 8), (TranslateY, 0.7, 9)],
    [(AutoContrast, 0.5, 0), (Equalize, 0.9, 0)],
    [(ShearY, 0.2, 7), (Posterize, 0.3, 7)],
    [(Color, 0.4, 3), (Brightness, 0.6, 7)],
    [(Sharpness, 0.3, 9), (Brightness, 0.7, 9)],
    [(Equalize, 0.6, 0), (Equalize, 0.5, 0)],
    [(Contrast, 0.6, 7), (Sharpness, 0.6, 5)],
    [(Color, 0.7, 7), (TranslateX, 0.5, 8)],
    [(Equalize, 0.3, 0), (AutoContrast, 0.4, 0)],
    [(TranslateY, 0.4, 3), (Sharpness, 0.2, 6)],
    [(Brightness, 0.9, 6), (Color, 0.2, 8)],
    [(Solarize, 0.5, 2), (Invert, 0.0, 0)],
    [(Equalize, 0.2, 0), (AutoContrast, 0.6, 0)],
    [(Equalize, 0.2, 0), (Equalize, 0.6, 0)],
    [(Color, 0.9, 9), (Equalize, 0.6, 0)],
    [(AutoContrast, 0.8, 0), (Solarize, 0.2, 8)],
    [(Brightness, 0.1, 3), (Color, 0.7, 0)],
    [(Solarize, 0.4, 5), (AutoContrast, 0.9, 0)],
    [(TranslateY, 0.9, 9), (TranslateY, 0.7, 9)],
    [(AutoContrast, 0.9, 0), (Solarize, 0.8, 3)],
    [(Equalize, 0.8, 0), (Invert, 0.1, 0)],
    [(TranslateY, 0.7, 9), (AutoContrast, 0.9, 0)],
];

const SVHN: [Pair; 25] = [
    [(ShearX, 0.9, 4), (Invert, 0.2, 0)],
    [(ShearY, 0.9, 8), (Invert, 0.7, 0)],
    [(Equalize, 0.6, 0), (Solarize, 0.6, 6)],
    [(Invert, 0.9, 0), (Equalize, 0.6, 0)],
    [(Equalize, 0.6, 0), (Rotate, 0.9, 3)],
    [(ShearX, 0.9, 4), (AutoContrast, 0.8, 0)],
    [(ShearY, 0.9, 8), (Invert, 0.4, 0)],
    [(ShearY, 0.9, 5), (Solarize, 0.2, 6)],
    [(Invert, 0.9, 0), (AutoContrast, 0.8, 0)],
    [(Equalize, 0.6, 0), (Rotate, 0.9, 3)],
    [(ShearX, 0.9, 4), (Solarize, 0.3, 3)],
    [(ShearY, 0.8, 8), (Invert, 0.7, 0)],
    [(Equalize, 0.9, 0), (TranslateY, 0.6, 6)],
    [(Invert, 0.9, 0), (Equalize, 0.6, 0)],
    [(Contrast, 0.3, 3), (Rotate, 0.8, 4)],
    [(Invert, 0.8, 0), (TranslateY, 0.0, 2)],
    [(ShearY, 0.7, 6), (Solarize, 0.4, 8)],
    [(Invert, 0.6, 0), (Rotate, 0.8, 4)],
    [(ShearY, 0.3, 7), (TranslateX, 0.9, 3)],
    [(ShearX, 0.1, 6), (Invert, 0.6, 0)],
    [(Solarize, 0.7, 2), (TranslateY, 0.6, 7)],
    [(ShearY, 0.8, 4), (Invert, 0.8, 0)],
    [(ShearX, 0.7, 9), (TranslateY, 0.8, 3)],
    [(ShearY, 0.8, 5), (AutoContrast, 0.7, 0)],
    [(ShearX, 0.7, 2), (Invert, 0.1, 0)],
];

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn pairs_are_equally_likely_and_done_with_their_probabilities() {
        let augment = AutoAugment::new(AutoAugmentPolicy::Svhn);
        let n = 40_000u64;
        let mut counts = (0usize, 0usize);
        for index in 0..n {
            let ops = augment.ops(size(32, 32), &mut rng(index));
            counts.0 += usize::from(ops.first().is_some_and(|op| op.0 == ShearX));
            counts.1 += usize::from(ops.is_empty());
        }
        // Pairs that begin with ShearX have 0.9, 0.9, 0.9, 0.1, 0.7, 0.7.
        assert_probability(counts.0, n, 4.2 / 25.0);
        let none = SVHN.iter().map(|pair| (1.0 - pair[0].1) * (1.0 - pair[1].1)).sum::<f64>() / 25.0;
        assert_probability(counts.1, n, none);
    }

    #[test]
    fn signs_and_magnitudes_are_those_of_the_table() {
        let augment = AutoAugment::default();
        let mut angles = [0usize; 2];
        for index in 0..20_000 {
            for (op, magnitude) in augment.ops(size(32, 32), &mut rng(index)) {
                if op == Rotate && (magnitude.abs() - 30.0).abs() < 1e-9 {
                    angles[usize::from(magnitude < 0.0)] += 1;
                }
            }
        }
        let all = (angles[0] + angles[1]) as u64;
        assert_probability(angles[1], all, 0.5);
        // Magnitude 9 in two pairs: of 0.6 and 0.4.
        assert_probability(all as usize, 20_000, 1.0 / 25.0);
    }

    #[test]
    fn it_reads_and_shows_as_in_torchvision() {
        let augment = read(r#"{"type":"AutoAugment","policy":"cifar10","fill":null}"#);
        assert_eq!(augment, AutoAugment::new(AutoAugmentPolicy::Cifar10).into());
        assert_eq!(augment.to_string(), "AutoAugment(policy=cifar10, interpolation=nearest, fill=0)");
        assert!(refuse(r#"{"type":"AutoAugment","policy":"mnist"}"#).contains("mnist"));
        let lanczos = AutoAugment::default().interpolation(Interpolation::Lanczos);
        assert!(check_error(lanczos).contains("must be nearest, bilinear or bicubic"));
    }
}
