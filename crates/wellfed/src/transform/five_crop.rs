//! `FiveCrop`: the corners and the middle of the image.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Action, Class, Crops, Operation, Shape, Sides, Size, Takes,
    param::{Repr, Tuple, check_sides, sides},
};
use crate::{Result, rng::Rng};

/// Makes five images of one: top left, top right, bottom left, bottom right, middle. They lie side by side in their
/// sample, `[5, channels, height, width]`. Casts and normalization may follow, nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FiveCrop {
    /// Height and width of each crop; the image must be no smaller.
    #[serde(deserialize_with = "sides")]
    pub size: [usize; 2],
}

impl FiveCrop {
    /// Crops of one number (a square) or (height, width).
    pub fn new(size: impl Into<Sides>) -> Self {
        Self { size: size.into().0 }
    }

    fn crops(&self) -> Crops {
        Crops { size: self.size, mirrored: None }
    }
}

impl fmt::Display for FiveCrop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "FiveCrop").field("size", Tuple(&self.size)).finish()
    }
}

impl Operation for FiveCrop {
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
    fn it_makes_five_of_its_size() {
        let action = FiveCrop::new((4, 6)).draw(size(9, 11), &mut rng(0)).unwrap();
        assert_eq!(action, Action::Crops(Crops { size: [4, 6], mirrored: None }));
        assert_eq!(action.size(size(9, 11)), size(4, 6));
        assert_eq!(FiveCrop::new(3).class(), Class::Crops(5));
    }

    #[test]
    fn a_size_of_zero_is_refused() {
        assert!(check_error(FiveCrop::new(0)).starts_with("size is (0, 0); both sides must be 1 to "));
        assert_eq!(read(r#"{"type":"FiveCrop","size":[3]}"#), FiveCrop::new(3).into());
    }
}
