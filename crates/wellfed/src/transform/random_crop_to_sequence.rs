//! `RandomCropToSequence`: timm's transform of that name.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Action, Class, Operation, PaddingMode, PerChannel, Shape, Sides, Size,
    crop_or_pad::{anywhere, window},
    param::{Repr, Tuple, check_pixels, python_bool, sides},
    patches::{Patches, default_most, default_patch, yes},
    resize::check_output,
};
use crate::{Result, rng::Rng};

/// Keeps a window of the image at a random place, of as many patches as the image would have if it were scaled down to the
/// largest size that fits: timm's transform of this name. Where sides are rounded up to patches, the image is padded.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomCropToSequence {
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

impl RandomCropToSequence {
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

impl fmt::Display for RandomCropToSequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "RandomCropToSequence")
            .field("patch_size", Tuple(&self.patch_size))
            .field("max_seq_len", self.max_seq_len)
            .field("divisible_by_patch", python_bool(self.divisible_by_patch))
            .field("fill", self.fill)
            .field("padding_mode", self.padding_mode)
            .finish()
    }
}

impl Operation for RandomCropToSequence {
    fn check(&self) -> Result<()> {
        self.patches().check()?;
        self.fill.check("fill")
    }

    fn class(&self) -> Class {
        Class::Crop
    }

    fn draws_by_size(&self) -> bool {
        true
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        let output = match (input.height, input.width) {
            (Some(height), Some(width)) if height > 0 && width > 0 => {
                self.patches().fit([height, width], Some(1.0)).ok()
            }
            _ => None,
        };
        let side = |at: usize| output.map(|(_, sides)| sides[at]);
        Shape { height: side(0), width: side(1), ..input }
    }

    fn draw(&self, size: Size, rng: &mut Rng) -> Result<Action> {
        check_pixels(size)?;
        let target = self.patches().sides(size, Some(1.0))?;
        check_output([size.height, size.width], target)?;
        window(size, anywhere(size, target, rng), target, self.padding_mode, self.fill)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn the_window_has_the_sides_of_the_scaled_image() {
        let crop = RandomCropToSequence::new(16, 576);
        let mut tops = std::collections::BTreeSet::new();
        for action in draws(crop, size(1498, 2388), 200) {
            assert_eq!(action.size(size(1498, 2388)), size(304, 480));
            let Action::Crop(rect) = action else { panic!("{action:?}") };
            tops.insert(rect.top);
        }
        assert!(tops.len() > 100);
        // An image that fits is not enlarged, but padded to whole patches.
        for action in draws(crop, size(30, 40), 100) {
            assert!(matches!(
                action,
                Action::PadCrop { top: -2..=0, left: -8..=0, height: 32, width: 48, .. }
            ));
        }
        assert!(matches!(crop.draw(size(32, 48), &mut rng(0)).unwrap(), Action::Crop(_)));
    }

    #[test]
    fn it_reads_shows_and_checks() {
        let json =
            r#"{"type":"RandomCropToSequence","patch_size":[8,4],"max_seq_len":9,"padding_mode":"edge"}"#;
        assert_eq!(
            read(json).to_string(),
            "RandomCropToSequence(patch_size=(8, 4), max_seq_len=9, divisible_by_patch=True, fill=0, \
             padding_mode=edge)"
        );
        assert!(check_error(RandomCropToSequence::new(0, 1)).starts_with("patch_size is"));
    }
}
