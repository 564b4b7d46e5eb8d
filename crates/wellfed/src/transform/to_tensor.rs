//! `ToTensor`: float32 in 0 to 1.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Action, Class, ImageDtype, Operation, Shape, Size, param::Repr};
use crate::{Result, rng::Rng};

/// Turns uint8 0 to 255 into float32 0 to 1, dividing by 255. What is
/// floating point already is not scaled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToTensor {}

impl ToTensor {
    /// The transform; it has no parameters.
    pub fn new() -> Self {
        Self {}
    }
}

impl fmt::Display for ToTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "ToTensor").finish()
    }
}

impl Operation for ToTensor {
    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn class(&self) -> Class {
        Class::Cast
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        input
    }

    fn draw(&self, _size: Size, _rng: &mut Rng) -> Result<Action> {
        Ok(Action::Cast { dtype: ImageDtype::Float32, scale: true, divide: true })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn it_divides_by_255() {
        assert_eq!(
            ToTensor::new().draw(size(3, 4), &mut rng(0)).unwrap(),
            Action::Cast { dtype: ImageDtype::Float32, scale: true, divide: true }
        );
        assert_eq!(read(r#"{"type":"ToTensor"}"#).to_string(), "ToTensor()");
        assert!(refuse(r#"{"type":"ToTensor","p":1}"#).contains("ToTensor: unknown field `p`"));
    }
}
