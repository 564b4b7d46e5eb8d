//! `ToImage`: what is decoded is an image tensor already.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Action, Class, Operation, Shape, Size, param::Repr};
use crate::{Result, rng::Rng};

/// Leaves the image as it is: in torchvision it turns a Pillow image into a uint8 tensor, which this engine has from the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToImage {}

impl ToImage {
    /// The transform; it has no parameters.
    pub fn new() -> Self {
        Self {}
    }
}

impl fmt::Display for ToImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "ToImage").finish()
    }
}

impl Operation for ToImage {
    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn class(&self) -> Class {
        Class::Identity
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        input
    }

    fn draw(&self, _size: Size, _rng: &mut Rng) -> Result<Action> {
        Ok(Action::Keep)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn it_keeps_the_image() {
        assert_eq!(ToImage::new().draw(size(3, 4), &mut rng(0)).unwrap(), Action::Keep);
        assert_eq!(read(r#"{"type":"ToImage"}"#).to_string(), "ToImage()");
        assert!(refuse(r#"{"type":"ToImage","p":1}"#).contains("ToImage: unknown field `p`"));
    }
}
