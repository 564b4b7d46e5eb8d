//! What `RandAugment`, `TrivialAugmentWide` and `AutoAugment` share: their operations, and how strong each is.
//!
//! Operations, magnitudes and signs are those of torchvision's `autoaugment.py` (`_augmentation_space`, `_apply_op`) on
//! Pillow images. Magnitudes are taken from tables of float32, which are made as `torch.linspace` makes them where
//! processors fuse multiplication and addition: every digit counts, since whole numbers are cut from them.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{
    Action, ColorStep, ColorSteps, ImageAction, Interpolation, PerChannel, RandomRotation, Size,
    adjustment::{Adjustment, check_channels},
    random_affine::{Affine, sampling},
    sequence::sequence,
};
use crate::Result;

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are torchvision's")]
pub(super) enum Op {
    Identity,
    ShearX,
    ShearY,
    TranslateX,
    TranslateY,
    Rotate,
    Brightness,
    Color,
    Contrast,
    Sharpness,
    Posterize,
    Solarize,
    AutoContrast,
    Equalize,
    Invert,
}

impl Op {
    /// What `RandAugment` and `TrivialAugmentWide` choose from.
    pub(super) const CHOICE: [Op; 14] = [
        Op::Identity,
        Op::ShearX,
        Op::ShearY,
        Op::TranslateX,
        Op::TranslateY,
        Op::Rotate,
        Op::Brightness,
        Op::Color,
        Op::Contrast,
        Op::Sharpness,
        Op::Posterize,
        Op::Solarize,
        Op::AutoContrast,
        Op::Equalize,
    ];

    /// Whether its magnitude is negative half of the time.
    pub(super) fn is_signed(self) -> bool {
        use Op::*;
        matches!(
            self,
            ShearX | ShearY | TranslateX | TranslateY | Rotate | Brightness | Color | Contrast | Sharpness
        )
    }

    /// Whether there is a table of its magnitudes.
    pub(super) fn has_magnitude(self) -> bool {
        self.is_signed() || matches!(self, Op::Posterize | Op::Solarize)
    }

    /// What it does to an image of `size`; `None` is nothing.
    pub(super) fn action(self, magnitude: f64, outside: Outside, size: Size) -> Option<Arc<dyn ImageAction>> {
        let Outside { interpolation, fill } = outside;
        let affine = |translate, shear, center| Affine {
            angle: 0.0,
            translate,
            scale: 1.0,
            shear,
            center,
            sampling: sampling(interpolation),
            fill,
        };
        // torchvision gives an angle, of which the tangent is taken again.
        let slant = magnitude.atan().to_degrees();
        let corner = Some([0.0, 0.0]);
        let color = |step| Some(Arc::new(ColorSteps::new([step])) as Arc<dyn ImageAction>);
        let adjust = |adjustment: Adjustment| Some(Arc::new(adjustment) as Arc<dyn ImageAction>);
        match self {
            Op::Identity => None,
            Op::ShearX => Some(Arc::new(affine([0.0; 2], [slant, 0.0], corner))),
            Op::ShearY => Some(Arc::new(affine([0.0; 2], [0.0, slant], corner))),
            Op::TranslateX => Some(Arc::new(affine([magnitude.trunc(), 0.0], [0.0; 2], None))),
            Op::TranslateY => Some(Arc::new(affine([0.0, magnitude.trunc()], [0.0; 2], None))),
            Op::Rotate => {
                let rotation =
                    RandomRotation { fill, ..RandomRotation::new(0.0).interpolation(interpolation) };
                Some(Arc::new(rotation.rotation(magnitude)))
            }
            Op::Brightness => color(ColorStep::Brightness(1.0 + magnitude)),
            // Grey has no saturation.
            Op::Color if size.channels == 1 => None,
            Op::Color => color(ColorStep::Saturation(1.0 + magnitude)),
            Op::Contrast => color(ColorStep::Contrast(1.0 + magnitude)),
            Op::Sharpness => adjust(Adjustment::Sharpness(1.0 + magnitude)),
            Op::Posterize => adjust(Adjustment::Posterize(magnitude as u32)),
            Op::Solarize => adjust(Adjustment::Solarize(magnitude)),
            Op::AutoContrast => adjust(Adjustment::Autocontrast),
            Op::Equalize => adjust(Adjustment::Equalize),
            Op::Invert => adjust(Adjustment::Invert),
        }
    }
}

/// How pixels between pixels, and those outside of the image are found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outside {
    pub(super) interpolation: Interpolation,
    pub(super) fill: PerChannel,
}

impl Outside {
    /// The operations that `draw` gives, with their magnitudes, one after the other on an image of `size`.
    pub(super) fn draw<Ops: IntoIterator<Item = (Op, f64)>>(
        self,
        size: Size,
        draw: impl FnOnce() -> Ops,
    ) -> Result<Action> {
        check_channels(size)?;
        self.fill.check_channels("fill", size.channels)?;
        let actions = draw().into_iter().filter_map(|(op, by)| op.action(by, self, size));
        Ok(sequence(actions.collect()))
    }
}

/// Whose thresholds `Solarize` takes. Those of torchvision's older classes count down from 255, those of its v2 classes
/// are 255 times what counts down from 1: some of them are rounded to another whole number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Thresholds {
    /// Of `torchvision.transforms`.
    V1,
    /// Of `torchvision.transforms.v2`.
    #[default]
    V2,
}

impl Thresholds {
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for Thresholds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Thresholds::V1 => "v1",
            Thresholds::V2 => "v2",
        })
    }
}

/// The greatest magnitude of every operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Space {
    shear: f64,
    /// Pixels, if the move is not a share of the image's side.
    translate: Option<f64>,
    rotate: f64,
    enhance: f64,
    /// Bits that are dropped.
    posterize: f64,
}

impl Space {
    /// That of `RandAugment` and `AutoAugment`.
    pub(super) const NARROW: Space =
        Space { shear: 0.3, translate: None, rotate: 30.0, enhance: 0.9, posterize: 4.0 };
    /// That of `TrivialAugmentWide`.
    pub(super) const WIDE: Space =
        Space { shear: 0.99, translate: Some(32.0), rotate: 135.0, enhance: 0.99, posterize: 6.0 };

    /// Number `bin` of `bins` magnitudes of `op` for an image of `size`, without a sign.
    pub(super) fn magnitude(
        &self,
        op: Op,
        (bin, bins): (usize, usize),
        size: Size,
        thresholds: Thresholds,
    ) -> f64 {
        let up_to = |most: f64| linspace(0.0, most as f32, (bin, bins));
        let share = |side: usize| up_to(self.translate.unwrap_or(150.0 / 331.0 * side as f64));
        match op {
            Op::ShearX | Op::ShearY => up_to(self.shear),
            Op::TranslateX => share(size.width),
            Op::TranslateY => share(size.height),
            Op::Rotate => up_to(self.rotate),
            Op::Brightness | Op::Color | Op::Contrast | Op::Sharpness => up_to(self.enhance),
            Op::Posterize => {
                let dropped = bin as f32 / ((bins - 1) as f64 / self.posterize) as f32;
                8.0 - f64::from(dropped.round_ties_even())
            }
            Op::Solarize if thresholds == Thresholds::V1 => linspace(255.0, 0.0, (bin, bins)),
            Op::Solarize => 255.0 * linspace(1.0, 0.0, (bin, bins)),
            Op::Identity | Op::AutoContrast | Op::Equalize | Op::Invert => 0.0,
        }
    }
}

/// Number `i` of the `n` numbers of `torch.linspace(start, end, n)` (`RangeFactoriesKernel.cpp`): counted from the start
/// in the first half, from the end in the second.
pub(super) fn linspace(start: f32, end: f32, (i, n): (usize, usize)) -> f64 {
    let step = (end - start) / (n - 1) as f32;
    f64::from(if i < n / 2 {
        step.mul_add(i as f32, start)
    } else {
        (-step).mul_add((n - 1 - i) as f32, end)
    })
}

#[cfg(test)]
mod tests {
    use super::{super::testing::size, *};

    #[test]
    fn magnitudes_are_torchvisions() {
        let narrow = |op, bin| Space::NARROW.magnitude(op, (bin, 31), size(100, 331), Thresholds::V2);
        // Of torch 2.15: torch.linspace(0.0, 150.0, 31)[9], and so on.
        assert_eq!(narrow(Op::TranslateX, 9), 45.0);
        assert_eq!(narrow(Op::TranslateY, 9), 13.595_166_206_359_863);
        assert_eq!(narrow(Op::ShearX, 9), f64::from(0.09f32));
        assert_eq!(narrow(Op::Rotate, 30), 30.0);
        let bits: Vec<f64> = (0..31).map(|bin| narrow(Op::Posterize, bin)).collect();
        assert_eq!(bits[..8], [8.0, 8.0, 8.0, 8.0, 7.0, 7.0, 7.0, 7.0]);
        assert_eq!(bits[27..], [4.0; 4]);
        let wide = |op, bin| Space::WIDE.magnitude(op, (bin, 31), size(100, 331), Thresholds::V2);
        assert_eq!(wide(Op::Posterize, 30), 2.0);
        assert_eq!(wide(Op::TranslateX, 30), 32.0);
    }

    #[test]
    fn thresholds_of_the_two_versions_differ_in_the_last_digits() {
        let threshold =
            |bin, version| Space::NARROW.magnitude(Op::Solarize, (bin, 10), size(1, 1), version).ceil();
        assert_eq!([threshold(3, Thresholds::V1), threshold(3, Thresholds::V2)], [170.0, 171.0]);
        assert_eq!([threshold(0, Thresholds::V1), threshold(0, Thresholds::V2)], [255.0, 255.0]);
    }

    #[test]
    fn identity_and_the_colour_of_grey_do_nothing() {
        let outside = Outside { interpolation: Interpolation::Nearest, fill: 0.0.into() };
        assert!(Op::Identity.action(0.0, outside, size(2, 2)).is_none());
        let gray = Size { channels: 1, ..size(2, 2) };
        assert!(Op::Color.action(0.5, outside, gray).is_none());
        assert!(Op::CHOICE[1..].iter().all(|op| op.action(3.0, outside, size(2, 2)).is_some()));
    }
}
