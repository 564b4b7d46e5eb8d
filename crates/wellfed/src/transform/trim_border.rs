//! `TrimBorder`: timm's transform of that name.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Action, Class, Operation, Rect, Shape, Size,
    param::{MAX_SIDE, Repr, Tuple, impossible},
};
use crate::{Error, Result, rng::Rng};

/// Cuts off as many pixels at each border, as timm's transform of this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrimBorder {
    /// How many.
    pub border_size: usize,
}

impl TrimBorder {
    /// Cuts off so many at each side.
    pub fn new(border_size: usize) -> Self {
        Self { border_size }
    }
}

impl fmt::Display for TrimBorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "TrimBorder").field("border_size", self.border_size).finish()
    }
}

impl Operation for TrimBorder {
    fn check(&self) -> Result<()> {
        if self.border_size <= MAX_SIDE {
            return Ok(());
        }
        Err(Error::config(format!("border_size is {}; must be 0 to {MAX_SIDE}", self.border_size)))
    }

    fn class(&self) -> Class {
        if self.border_size == 0 { Class::Identity } else { Class::Crop }
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        let left = |side: usize| side.saturating_sub(self.border_size.saturating_mul(2));
        Shape { height: input.height.map(left), width: input.width.map(left), ..input }
    }

    fn draw(&self, size: Size, _rng: &mut Rng) -> Result<Action> {
        if self.border_size == 0 {
            return Ok(Action::Keep);
        }
        let border = self.border_size;
        let (height, width) = (size.height.saturating_sub(2 * border), size.width.saturating_sub(2 * border));
        if height == 0 || width == 0 {
            return Err(impossible(format!(
                "border_size is {border}; of an image of {} nothing would be left",
                Tuple(&[size.height, size.width])
            )));
        }
        Ok(Action::Crop(Rect { top: border, left: border, height, width }))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn borders_are_cut_off() {
        let rect = Rect { top: 3, left: 3, height: 4, width: 1 };
        assert_eq!(TrimBorder::new(3).draw(size(10, 7), &mut rng(0)).unwrap(), Action::Crop(rect));
        let e = TrimBorder::new(3).draw(size(10, 6), &mut rng(0)).unwrap_err();
        assert_eq!(e.message(), "border_size is 3; of an image of (10, 6) nothing would be left");
        assert_eq!(TrimBorder::new(0).draw(size(1, 1), &mut rng(0)).unwrap(), Action::Keep);
        assert_eq!(TrimBorder::new(0).class(), Class::Identity);
    }

    #[test]
    fn it_reads_shows_and_checks() {
        assert_eq!(read(r#"{"type":"TrimBorder","border_size":4}"#).to_string(), "TrimBorder(border_size=4)");
        assert!(check_error(TrimBorder::new(usize::MAX)).starts_with("border_size is"));
    }
}
