//! `TenCrop`: the corners and the middle of the image and of the mirrored image.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Action, Class, Crops, Operation, Shape, Sides, Size, Takes,
    crops::Mirror,
    param::{Repr, Tuple, check_sides, python_bool, sides},
};
use crate::{Result, rng::Rng};

/// Makes ten images of one: those of [`super::FiveCrop`], and the same of the mirrored image. They lie side by side in
/// their sample, `[10, channels, height, width]`. Casts and normalization may follow, nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenCrop {
    /// Height and width of each crop; the image must be no smaller.
    #[serde(deserialize_with = "sides")]
    pub size: [usize; 2],
    /// Mirror top and bottom for the last five, and not left and right.
    #[serde(default)]
    pub vertical_flip: bool,
}

impl TenCrop {
    /// Crops of one number (a square) or (height, width).
    pub fn new(size: impl Into<Sides>) -> Self {
        Self { size: size.into().0, vertical_flip: false }
    }

    /// Sets [`TenCrop::vertical_flip`].
    pub fn vertical_flip(self, vertical_flip: bool) -> Self {
        Self { vertical_flip, ..self }
    }

    fn crops(&self) -> Crops {
        let mirror = if self.vertical_flip { Mirror::Vertical } else { Mirror::Horizontal };
        Crops { size: self.size, mirrored: Some(mirror) }
    }
}

impl fmt::Display for TenCrop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "TenCrop")
            .field("size", Tuple(&self.size))
            .field("vertical_flip", python_bool(self.vertical_flip))
            .finish()
    }
}

impl Operation for TenCrop {
    fn check(&self) -> Result<()> {
        check_sides("size", self.size)
    }

    fn class(&self) -> Class {
        Class::Crops(self.crops().count())
    }

    fn takes(&self) -> Takes {
        // torchvision defines it for images alone.
        Takes::ImagesAlone
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        Shape { height: Some(self.size[0]), width: Some(self.size[1]), ..input }
    }

    fn draw(&self, size: Size, _rng: &mut Rng) -> Result<Action> {
        self.crops().check_image(size)?;
        Ok(Action::Crops(self.crops()))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn it_makes_ten_of_its_size() {
        let ten = TenCrop::new(4).vertical_flip(true);
        let action = ten.draw(size(9, 11), &mut rng(0)).unwrap();
        assert_eq!(action, Action::Crops(Crops { size: [4, 4], mirrored: Some(Mirror::Vertical) }));
        assert_eq!(action.size(size(9, 11)), size(4, 4));
        assert_eq!(ten.class(), Class::Crops(10));
        assert!(ten.draw(size(3, 11), &mut rng(0)).is_err());
    }

    #[test]
    fn it_mirrors_left_and_right_unless_told_otherwise() {
        assert_eq!(read(r#"{"type":"TenCrop","size":3}"#), TenCrop::new(3).into());
        assert_eq!(TenCrop::new(3).to_string(), "TenCrop(size=(3, 3), vertical_flip=False)");
    }
}
