//! `RandomCropOrPad`: timm's transform of that name.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Action, Class, Operation, PaddingMode, PerChannel, Shape, Sides, Size,
    crop_or_pad::{anywhere, window},
    param::{Repr, Tuple, check_sides, sides},
};
use crate::{Result, rng::Rng};

/// Keeps a window of the image, or puts the image into one, at a place drawn uniformly for each axis, as timm's
/// transform of this name. What is missing is added once: where [`super::RandomCrop`] pads, it does so at both sides.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomCropOrPad {
    /// Height and width of the result.
    #[serde(deserialize_with = "sides")]
    pub size: [usize; 2],
    /// Value of added pixels, under [`PaddingMode::Constant`]. Default: 0.
    #[serde(default)]
    pub fill: PerChannel,
    /// How added pixels are made. Default: constant.
    #[serde(default)]
    pub padding_mode: PaddingMode,
}

impl RandomCropOrPad {
    /// A result of one number (a square) or (height, width).
    pub fn new(size: impl Into<Sides>) -> Self {
        Self { size: size.into().0, fill: PerChannel::default(), padding_mode: PaddingMode::default() }
    }

    /// Sets how added pixels are made.
    #[must_use]
    pub fn padding_mode(mut self, mode: PaddingMode) -> Self {
        self.padding_mode = mode;
        self
    }

    /// Sets the value of added pixels.
    #[must_use]
    pub fn fill(mut self, fill: impl Into<PerChannel>) -> Self {
        self.fill = fill.into();
        self
    }
}

impl fmt::Display for RandomCropOrPad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "RandomCropOrPad")
            .field("size", Tuple(&self.size))
            .field("fill", self.fill)
            .field("padding_mode", self.padding_mode)
            .finish()
    }
}

impl Operation for RandomCropOrPad {
    fn check(&self) -> Result<()> {
        check_sides("size", self.size)?;
        self.fill.check("fill")
    }

    fn class(&self) -> Class {
        Class::Crop
    }

    fn draws_by_size(&self) -> bool {
        true
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        Shape { height: Some(self.size[0]), width: Some(self.size[1]), ..input }
    }

    fn draw(&self, size: Size, rng: &mut Rng) -> Result<Action> {
        window(size, anywhere(size, self.size, rng), self.size, self.padding_mode, self.fill)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn the_image_lies_anywhere_inside_of_the_window() {
        let crop = RandomCropOrPad::new((7, 5)).padding_mode(PaddingMode::Symmetric);
        let mut seen = std::collections::BTreeSet::new();
        for action in draws(crop, size(5, 7), 1000) {
            let Action::PadCrop { top, left, height: 7, width: 5, .. } = action else { panic!("{action:?}") };
            seen.insert((top, left));
        }
        let all = (-2..=0).flat_map(|top| (0..=2).map(move |left| (top, left)));
        assert!(seen.into_iter().eq(all));
    }

    #[test]
    fn it_reads_shows_and_checks() {
        let json = r#"{"type":"RandomCropOrPad","size":[5,6],"padding_mode":"reflect"}"#;
        assert_eq!(read(json).to_string(), "RandomCropOrPad(size=(5, 6), fill=0, padding_mode=reflect)");
        assert!(check_error(RandomCropOrPad::new((0, 2))).starts_with("size is (0, 2)"));
    }
}
