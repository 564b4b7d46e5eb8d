//! `CenterCropOrPad`: timm's transform of that name.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Action, Class, Operation, PaddingMode, PerChannel, Shape, Sides, Size,
    crop_or_pad::{middle, window},
    param::{Repr, Tuple, check_sides, sides},
};
use crate::{Result, rng::Rng};

/// Keeps the middle of the image, and adds what is missing around it, as timm's transform of this name: a
/// [`super::CenterCrop`] that can pad in all ways.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CenterCropOrPad {
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

impl CenterCropOrPad {
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

impl fmt::Display for CenterCropOrPad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "CenterCropOrPad")
            .field("size", Tuple(&self.size))
            .field("fill", self.fill)
            .field("padding_mode", self.padding_mode)
            .finish()
    }
}

impl Operation for CenterCropOrPad {
    fn check(&self) -> Result<()> {
        check_sides("size", self.size)?;
        self.fill.check("fill")
    }

    fn class(&self) -> Class {
        Class::Crop
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        Shape { height: Some(self.size[0]), width: Some(self.size[1]), ..input }
    }

    fn draw(&self, size: Size, _rng: &mut Rng) -> Result<Action> {
        window(size, middle(size, self.size), self.size, self.padding_mode, self.fill)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn what_is_missing_is_added_on_both_sides() {
        let crop = CenterCropOrPad::new((10, 8)).padding_mode(PaddingMode::Reflect);
        // Rounded half to even where it is cut off, and down where it is added.
        assert!(matches!(
            crop.draw(size(5, 13), &mut rng(0)).unwrap(),
            Action::PadCrop { top: -2, left: 2, height: 10, width: 8, mode: PaddingMode::Reflect, .. }
        ));
        assert!(matches!(crop.draw(size(11, 8), &mut rng(0)).unwrap(), Action::Crop(rect) if rect.top == 0));
    }

    #[test]
    fn it_reads_shows_and_checks() {
        let json = r#"{"type":"CenterCropOrPad","size":5,"fill":[1,2,3],"padding_mode":"edge"}"#;
        assert_eq!(read(json).to_string(), "CenterCropOrPad(size=(5, 5), fill=(1, 2, 3), padding_mode=edge)");
        assert!(check_error(CenterCropOrPad::new(0)).starts_with("size is (0, 0)"));
        assert!(check_error(CenterCropOrPad::new(1).fill(f64::NAN)).starts_with("fill is"));
    }
}
