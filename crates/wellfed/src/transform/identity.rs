//! `Identity`: nothing, under torchvision's name for it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Action, Class, Operation, Shape, Size, param::Repr};
use crate::{Result, rng::Rng};

/// Leaves the image as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {}

impl Identity {
    /// The transform; it has no parameters.
    pub fn new() -> Self {
        Self {}
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "Identity").finish()
    }
}

impl Operation for Identity {
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
        assert_eq!(Identity::new().draw(size(3, 4), &mut rng(0)).unwrap(), Action::Keep);
        assert_eq!(read(r#"{"type":"Identity"}"#).to_string(), "Identity()");
        assert!(refuse(r#"{"type":"Identity","p":1}"#).contains("Identity: unknown field `p`"));
    }
}
