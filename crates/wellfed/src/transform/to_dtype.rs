//! `ToDtype`: another element type.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Action, Class, ImageDtype, Operation, Shape, Size, Takes,
    param::{Repr, python_bool},
};
use crate::{Result, rng::Rng};

/// Changes the element type; with `scale` the value range too (uint8: 0 to 255, floating point: 0 to 1). Sounds are floating
/// point, and stay so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToDtype {
    /// New type.
    pub dtype: ImageDtype,
    /// Scale values to the range of the new type. Default: false.
    #[serde(default)]
    pub scale: bool,
}

impl ToDtype {
    /// Changes to `dtype` without scaling.
    pub fn new(dtype: ImageDtype) -> Self {
        Self { dtype, scale: false }
    }

    /// Sets whether values are scaled to the range of the new type.
    #[must_use]
    pub fn scale(mut self, scale: bool) -> Self {
        self.scale = scale;
        self
    }
}

impl fmt::Display for ToDtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "ToDtype").field("dtype", self.dtype).field("scale", python_bool(self.scale)).finish()
    }
}

impl Operation for ToDtype {
    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn class(&self) -> Class {
        Class::Cast
    }

    fn takes(&self) -> Takes {
        Takes::Types
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        input
    }

    fn draw(&self, _size: Size, _rng: &mut Rng) -> Result<Action> {
        Ok(Action::Cast { dtype: self.dtype, scale: self.scale, divide: false })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn it_casts_and_scales_on_request() {
        let action = ToDtype::new(ImageDtype::Float16).scale(true).draw(size(1, 1), &mut rng(0)).unwrap();
        assert_eq!(action, Action::Cast { dtype: ImageDtype::Float16, scale: true, divide: false });
        let read = read(r#"{"type":"ToDtype","dtype":"bfloat16"}"#);
        assert_eq!(read, ToDtype::new(ImageDtype::BFloat16).into());
        assert_eq!(read.to_string(), "ToDtype(dtype=bfloat16, scale=False)");
        assert!(
            refuse(r#"{"type":"ToDtype","dtype":"int7"}"#).contains("dtype is \"int7\"; unknown variant")
        );
        assert!(refuse(r#"{"type":"ToDtype"}"#).contains("ToDtype: missing field `dtype`"));
    }
}
