//! `CenterCrop`: the middle of the image.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Action, Class, Operation, PaddingMode, PerChannel, Rect, Shape, Sides, Size,
    param::{Repr, Tuple, check_sides, sides},
};
use crate::{Result, rng::Rng};

/// Keeps the middle of the image; where the image is smaller than `size`, zeros are added around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CenterCrop {
    /// Height and width of the result.
    #[serde(deserialize_with = "sides")]
    pub size: [usize; 2],
}

impl CenterCrop {
    /// Crops to one number (a square) or (height, width).
    pub fn new(size: impl Into<Sides>) -> Self {
        Self { size: size.into().0 }
    }
}

/// First row or column. torchvision rounds the crop's offset half to even and the padding's down, and an axis
/// is either padded or cropped.
pub(super) fn start(image: usize, crop: usize) -> i64 {
    if crop > image {
        -(((crop - image) / 2) as i64)
    } else {
        let twice = image - crop;
        let half = twice / 2;
        (half + (twice % 2) * (half % 2)) as i64
    }
}

impl fmt::Display for CenterCrop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "CenterCrop").field("size", Tuple(&self.size)).finish()
    }
}

impl Operation for CenterCrop {
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
        let (top, left) = (start(size.height, height), start(size.width, width));
        Ok(if height <= size.height && width <= size.width {
            Action::Crop(Rect { top: top as usize, left: left as usize, height, width })
        } else {
            let (mode, fill) = (PaddingMode::Constant, PerChannel::default());
            Action::PadCrop { top, left, height, width, mode, fill, mask_fill: None, added: None }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn offsets_round_as_in_torchvision() {
        // (image, crop, start) of one axis, from torchvision 0.29: half to even for crops, down for padding.
        for (image, crop, expected) in [
            (10, 10, 0),
            (11, 10, 0),
            (13, 10, 2),
            (12, 10, 1),
            (15, 10, 2),
            (17, 10, 4),
            (5, 10, -2),
            (4, 10, -3),
        ] {
            let action = CenterCrop::new((crop, 1)).draw(size(image, 1), &mut rng(0)).unwrap();
            match action {
                Action::Crop(rect) => assert_eq!((rect.top as i64, rect.height), (expected, crop)),
                Action::PadCrop { top, height, .. } => assert_eq!((top, height), (expected, crop)),
                other => panic!("{other:?}"),
            }
        }
        // One axis padded, the other cropped.
        let action = CenterCrop::new((10, 3)).draw(size(5, 9), &mut rng(0)).unwrap();
        assert!(
            matches!(action, Action::PadCrop { top: -2, left: 3, height: 10, width: 3, .. }),
            "{action:?}"
        );
    }

    #[test]
    fn a_size_of_zero_is_refused() {
        assert!(check_error(CenterCrop::new(0)).starts_with("size is (0, 0); both sides must be 1 to "));
        assert_eq!(read(r#"{"type":"CenterCrop","size":[3]}"#), CenterCrop::new(3).into());
        let e = refuse(r#"{"type":"CenterCrop","size":[-3,4]}"#);
        assert_eq!(e, "CenterCrop: size is [-3,4]; must be one number of pixels, or (height, width)");
    }
}
