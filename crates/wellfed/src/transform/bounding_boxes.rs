//! `ClampBoundingBoxes`, `SanitizeBoundingBoxes`, `ConvertBoundingBoxFormat`: what is done to boxes alone.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Action, Class, Operation, Shape, Size, param::Repr};
use crate::{Error, Result, rng::Rng, sample::BoxFormat};

/// Cuts boxes at the border of their image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClampBoundingBoxes {}

/// Turns boxes into another format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConvertBoundingBoxFormat {
    /// New format.
    pub format: BoxFormat,
}

/// Removes boxes that are too small or reach outside their image, and their labels.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SanitizeBoundingBoxes {
    /// Least width and height, at least 1. Default: 1.
    pub min_size: f64,
    /// Least area, at least 1. Default: 1.
    pub min_area: f64,
    /// What else is removed with a box: `"default"` is its label, `null` nothing.
    pub labels_getter: Option<Labels>,
}

/// What belongs to boxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Labels {
    /// All fields of one number a box.
    Default,
}

impl Default for SanitizeBoundingBoxes {
    fn default() -> Self {
        Self { min_size: 1.0, min_area: 1.0, labels_getter: Some(Labels::Default) }
    }
}

impl fmt::Display for ClampBoundingBoxes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClampBoundingBoxes()")
    }
}

impl fmt::Display for ConvertBoundingBoxFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "ConvertBoundingBoxFormat").field("format", self.format).finish()
    }
}

impl fmt::Display for SanitizeBoundingBoxes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels = if self.labels_getter.is_some() { "default" } else { "None" };
        Repr::new(f, "SanitizeBoundingBoxes")
            .field("min_size", self.min_size)
            .field("min_area", self.min_area)
            .field("labels_getter", labels)
            .finish()
    }
}

impl Operation for ClampBoundingBoxes {
    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn class(&self) -> Class {
        Class::Boxes
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        input
    }

    fn draw(&self, _size: Size, _rng: &mut Rng) -> Result<Action> {
        Ok(Action::ClampBoxes)
    }
}

impl Operation for ConvertBoundingBoxFormat {
    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn class(&self) -> Class {
        Class::Boxes
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        input
    }

    fn draw(&self, _size: Size, _rng: &mut Rng) -> Result<Action> {
        Ok(Action::ConvertBoxes(self.format))
    }
}

impl Operation for SanitizeBoundingBoxes {
    fn check(&self) -> Result<()> {
        for (name, value) in [("min_size", self.min_size), ("min_area", self.min_area)] {
            if !(value >= 1.0 && value.is_finite()) {
                return Err(Error::config(format!("{name} is {value}; must be at least 1")));
            }
        }
        Ok(())
    }

    fn class(&self) -> Class {
        Class::Boxes
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        input
    }

    fn draw(&self, _size: Size, _rng: &mut Rng) -> Result<Action> {
        Ok(Action::SanitizeBoxes {
            min_size: self.min_size,
            min_area: self.min_area,
            labels: self.labels_getter.is_some(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn they_read_and_show_as_in_torchvision() {
        assert_eq!(read(r#"{"type":"ClampBoundingBoxes"}"#).to_string(), "ClampBoundingBoxes()");
        let convert = read(r#"{"type":"ConvertBoundingBoxFormat","format":"CXCYWH"}"#);
        assert_eq!(convert.to_string(), "ConvertBoundingBoxFormat(format=CXCYWH)");
        assert_eq!(
            read(r#"{"type":"SanitizeBoundingBoxes","labels_getter":null}"#).to_string(),
            "SanitizeBoundingBoxes(min_size=1, min_area=1, labels_getter=None)"
        );
        let small = SanitizeBoundingBoxes { min_size: 0.5, ..SanitizeBoundingBoxes::default() };
        assert_eq!(check_error(small), "min_size is 0.5; must be at least 1");
    }
}
