//! `FloorCenterCrop`: Albumentations' `CenterCrop`.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Action, Class, Operation, Rect, Shape, Sides, Size,
    param::{Repr, Tuple, check_sides, impossible, sides},
};
use crate::{Result, rng::Rng};

/// Cuts out the middle, as `CenterCrop` of Albumentations 2 does: where a side does not halve, the half is rounded down
/// ([`super::CenterCrop`] rounds it to even). The image must not be smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FloorCenterCrop {
    /// Height and width of the result, in pixels.
    #[serde(deserialize_with = "sides")]
    pub size: [usize; 2],
}

impl FloorCenterCrop {
    /// A result of one number (a square) or (height, width).
    pub fn new(size: impl Into<Sides>) -> Self {
        Self { size: size.into().0 }
    }
}

impl fmt::Display for FloorCenterCrop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "FloorCenterCrop").field("size", Tuple(&self.size)).finish()
    }
}

impl Operation for FloorCenterCrop {
    fn check(&self) -> Result<()> {
        check_sides("size", self.size)
    }

    fn class(&self) -> Class {
        Class::Crop
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        Shape { height: Some(self.size[0]), width: Some(self.size[1]), ..input }
    }

    fn draw(&self, size: Size, _rng: &mut Rng) -> Result<Action> {
        let [height, width] = self.size;
        if height > size.height || width > size.width {
            return Err(impossible(format!(
                "size is {}; the image has {} pixels",
                Tuple(&self.size),
                Tuple(&[size.height, size.width])
            )));
        }
        Ok(Action::Crop(Rect {
            top: (size.height - height) / 2,
            left: (size.width - width) / 2,
            height,
            width,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn halves_are_rounded_down() {
        let crop = FloorCenterCrop::new((4, 3));
        let draw = |height, width| crop.draw(size(height, width), &mut rng(0));
        let rect = |top, left| Action::Crop(Rect { top, left, height: 4, width: 3 });
        assert_eq!(draw(4, 3).unwrap(), rect(0, 0));
        assert_eq!(draw(7, 10).unwrap(), rect(1, 3));
        assert_eq!(draw(11, 6).unwrap(), rect(3, 1));
        assert_eq!(draw(3, 9).unwrap_err().message(), "size is (4, 3); the image has (3, 9) pixels");
    }

    #[test]
    fn parameters_are_checked() {
        assert!(check_error(FloorCenterCrop::new((3, 0))).starts_with("size is (3, 0)"));
        let read = read(r#"{"type":"FloorCenterCrop","size":[2,3]}"#);
        assert_eq!(read.to_string(), "FloorCenterCrop(size=(2, 3))");
    }
}
