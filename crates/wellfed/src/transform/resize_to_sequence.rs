//! `ResizeToSequence`: timm's transform of that name.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Action, Class, Filters, Operation, Shape, Sides, Size,
    param::{Repr, Tuple, check_pixels, python_bool, sides},
    patches::{Patches, check_max_ratio, default_most, default_patch, yes},
    resize::{check_antialias, resized},
};
use crate::{Result, rng::Rng};

/// Resizes the image to the largest size of which no more than `max_seq_len` patches are made; the aspect ratio stays, as
/// far as patches allow it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResizeToSequence {
    /// Height and width of a patch. Default: 16.
    #[serde(default = "default_patch", deserialize_with = "sides")]
    pub patch_size: [usize; 2],
    /// How many patches an image may have. Default: 1024.
    #[serde(default = "default_most")]
    pub max_seq_len: usize,
    /// Whether sides are multiples of those of a patch. Default: true.
    #[serde(default = "yes")]
    pub divisible_by_patch: bool,
    /// Greatest scale. Default: none.
    #[serde(default)]
    pub max_ratio: Option<f64>,
    /// Filter, or two of which one is drawn. Default: bilinear.
    #[serde(default)]
    pub interpolation: Filters,
}

impl ResizeToSequence {
    /// As many patches of one number (a square) or (height, width).
    pub fn new(patch_size: impl Into<Sides>, max_seq_len: usize) -> Self {
        Self {
            patch_size: patch_size.into().0,
            max_seq_len,
            divisible_by_patch: true,
            max_ratio: None,
            interpolation: Filters::default(),
        }
    }

    fn patches(&self) -> Patches {
        Patches { size: self.patch_size, most: self.max_seq_len, divisible: self.divisible_by_patch }
    }
}

impl fmt::Display for ResizeToSequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "ResizeToSequence")
            .field("patch_size", Tuple(&self.patch_size))
            .field("max_seq_len", self.max_seq_len)
            .field("divisible_by_patch", python_bool(self.divisible_by_patch))
            .field_if(self.max_ratio.is_some(), "max_ratio", self.max_ratio.unwrap_or(0.0))
            .field("interpolation", self.interpolation)
            .finish()
    }
}

impl Operation for ResizeToSequence {
    fn check(&self) -> Result<()> {
        self.patches().check()?;
        check_max_ratio(self.max_ratio)?;
        self.interpolation.each().try_for_each(|filter| check_antialias(true, filter))
    }

    fn class(&self) -> Class {
        Class::Resize
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        let output = match (input.height, input.width) {
            (Some(height), Some(width)) if height > 0 && width > 0 => {
                self.patches().fit([height, width], self.max_ratio).ok()
            }
            _ => None,
        };
        let side = |at: usize| output.map(|(_, sides)| sides[at]);
        Shape { height: side(0), width: side(1), ..input }
    }

    fn draw(&self, size: Size, rng: &mut Rng) -> Result<Action> {
        check_pixels(size)?;
        resized(size, self.patches().sides(size, self.max_ratio)?, self.interpolation.draw(rng))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn it_fills_the_sequence() {
        let image = size(1498, 2388);
        let resize = ResizeToSequence::new(16, 576);
        let after = resize.draw(image, &mut rng(0)).unwrap().size(image);
        assert_eq!((after.height, after.width), (304, 480));
        let known = Shape { height: Some(1498), width: Some(2388), channels: 3 };
        assert_eq!(resize.fixed_size(known).width, Some(480));
        let small = ResizeToSequence { max_ratio: Some(1.0), ..resize };
        assert_eq!(small.draw(size(32, 48), &mut rng(0)).unwrap(), Action::Keep);
    }

    #[test]
    fn it_reads_shows_and_checks() {
        let json = r#"{"type":"ResizeToSequence","patch_size":[8,4],"max_seq_len":9,"max_ratio":2.0}"#;
        assert_eq!(
            read(json).to_string(),
            "ResizeToSequence(patch_size=(8, 4), max_seq_len=9, divisible_by_patch=True, max_ratio=2, \
             interpolation=bilinear)"
        );
        assert_eq!(read(r#"{"type":"ResizeToSequence"}"#), ResizeToSequence::new(16, 1024).into());
        assert!(check_error(ResizeToSequence::new(0, 1)).starts_with("patch_size is"));
        assert!(check_error(ResizeToSequence::new(1, 0)).starts_with("max_seq_len is 0"));
        let none = ResizeToSequence { max_ratio: Some(f64::NAN), ..ResizeToSequence::new(1, 1) };
        assert!(check_error(none).starts_with("max_ratio is NaN"));
    }
}
