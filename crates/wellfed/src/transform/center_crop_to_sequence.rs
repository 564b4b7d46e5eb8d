//! `CenterCropToSequence`: timm's transform of that name.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Action, Class, Operation, PaddingMode, PerChannel, Shape, Sides, Size,
    crop_or_pad::{middle, window},
    param::{Repr, Tuple, check_pixels, python_bool, sides},
    patches::{Patches, default_most, default_patch, yes},
    resize::check_output,
};
use crate::{Result, rng::Rng};

/// Keeps the middle of the image, of as many patches as the image would have if it were scaled to the largest size that
/// fits: timm's transform of this name. A smaller image is padded.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CenterCropToSequence {
    /// Height and width of a patch. Default: 16.
    #[serde(default = "default_patch", deserialize_with = "sides")]
    pub patch_size: [usize; 2],
    /// How many patches an image may have. Default: 1024.
    #[serde(default = "default_most")]
    pub max_seq_len: usize,
    /// Whether sides are multiples of those of a patch. Default: true.
    #[serde(default = "yes")]
    pub divisible_by_patch: bool,
    /// Value of added pixels, under [`PaddingMode::Constant`]. Default: 0.
    #[serde(default)]
    pub fill: PerChannel,
    /// How added pixels are made. Default: constant.
    #[serde(default)]
    pub padding_mode: PaddingMode,
}

impl CenterCropToSequence {
    /// As many patches of one number (a square) or (height, width).
    pub fn new(patch_size: impl Into<Sides>, max_seq_len: usize) -> Self {
        Self {
            patch_size: patch_size.into().0,
            max_seq_len,
            divisible_by_patch: true,
            fill: PerChannel::default(),
            padding_mode: PaddingMode::default(),
        }
    }

    fn patches(&self) -> Patches {
        Patches { size: self.patch_size, most: self.max_seq_len, divisible: self.divisible_by_patch }
    }
}

impl fmt::Display for CenterCropToSequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "CenterCropToSequence")
            .field("patch_size", Tuple(&self.patch_size))
            .field("max_seq_len", self.max_seq_len)
            .field("divisible_by_patch", python_bool(self.divisible_by_patch))
            .field("fill", self.fill)
            .field("padding_mode", self.padding_mode)
            .finish()
    }
}

impl Operation for CenterCropToSequence {
    fn check(&self) -> Result<()> {
        self.patches().check()?;
        self.fill.check("fill")
    }

    fn class(&self) -> Class {
        Class::Crop
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        let output = match (input.height, input.width) {
            (Some(height), Some(width)) if height > 0 && width > 0 => {
                self.patches().fit([height, width], None).ok()
            }
            _ => None,
        };
        let side = |at: usize| output.map(|(_, sides)| sides[at]);
        Shape { height: side(0), width: side(1), ..input }
    }

    fn draw(&self, size: Size, _rng: &mut Rng) -> Result<Action> {
        check_pixels(size)?;
        let target = self.patches().sides(size, None)?;
        check_output([size.height, size.width], target)?;
        window(size, middle(size, target), target, self.padding_mode, self.fill)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn the_middle_has_the_sides_of_the_scaled_image() {
        let crop = CenterCropToSequence::new(16, 576);
        // The sides that `ResizeToSequence` gives it.
        let action = crop.draw(size(1498, 2388), &mut rng(0)).unwrap();
        assert!(matches!(action, Action::Crop(rect) if (rect.top, rect.left) == (597, 954)), "{action:?}");
        assert_eq!(action.size(size(1498, 2388)), size(304, 480));
        let small = CenterCropToSequence::new(16, 4).draw(size(10, 10), &mut rng(0)).unwrap();
        assert!(matches!(small, Action::PadCrop { top: -11, left: -11, height: 32, width: 32, .. }));
    }

    #[test]
    fn it_reads_shows_and_checks() {
        let json =
            r#"{"type":"CenterCropToSequence","patch_size":[8,4],"max_seq_len":9,"padding_mode":"edge"}"#;
        assert_eq!(
            read(json).to_string(),
            "CenterCropToSequence(patch_size=(8, 4), max_seq_len=9, divisible_by_patch=True, fill=0, \
             padding_mode=edge)"
        );
        assert!(check_error(CenterCropToSequence::new(0, 1)).starts_with("patch_size is"));
    }
}
