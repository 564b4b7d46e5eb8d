//! `MaxSize`: Albumentations' `SmallestMaxSize` and `LongestMaxSize`.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Action, Class, Interpolation, Operation, Rect, Shape, Size,
    param::{MAX_SIDE, Repr, Tuple, check_pixels, impossible, python_bool},
};
use crate::{Error, Result, rng::Rng};

/// Resizes so that the smaller or the longer side has a given length and the aspect ratio stays, as `SmallestMaxSize` and
/// `LongestMaxSize` of Albumentations 2 do: the other side is rounded to the nearest, where [`super::Resize`] cuts it off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MaxSize {
    /// Length of the side, in pixels.
    pub size: usize,
    /// Whether it is the longer side.
    pub longest: bool,
    /// Filter.
    pub interpolation: Interpolation,
}

impl MaxSize {
    /// The smaller side becomes this long.
    pub fn smallest(size: usize) -> Self {
        Self { size, longest: false, interpolation: Interpolation::OpenCvLinear }
    }

    /// The longer side becomes this long.
    pub fn longest(size: usize) -> Self {
        Self { longest: true, ..Self::smallest(size) }
    }

    fn output(&self, height: usize, width: usize) -> [usize; 2] {
        let side = if self.longest { height.max(width) } else { height.min(width) };
        let scale = self.size as f64 / side as f64;
        [height, width].map(|side| ((side as f64 * scale).round_ties_even() as usize).max(1))
    }
}

impl fmt::Display for MaxSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "MaxSize")
            .field("size", self.size)
            .field("longest", python_bool(self.longest))
            .field("interpolation", self.interpolation)
            .finish()
    }
}

impl Operation for MaxSize {
    fn check(&self) -> Result<()> {
        if (1..=MAX_SIDE).contains(&self.size) {
            return Ok(());
        }
        Err(Error::config(format!("size is {}; must be 1 to {MAX_SIDE}", self.size)))
    }

    fn class(&self) -> Class {
        Class::Resize
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        let output = match (input.height, input.width) {
            (Some(height), Some(width)) if height > 0 && width > 0 => Some(self.output(height, width)),
            _ => None,
        };
        Shape { height: output.map(|o| o[0]), width: output.map(|o| o[1]), ..input }
    }

    fn draw(&self, size: Size, _rng: &mut Rng) -> Result<Action> {
        check_pixels(size)?;
        let [height, width] = self.output(size.height, size.width);
        if height.max(width) > MAX_SIDE {
            return Err(impossible(format!(
                "an image of {} would become {}; both sides must be 1 to {MAX_SIDE}",
                Tuple(&[size.height, size.width]),
                Tuple(&[height, width])
            )));
        }
        if (height, width) == (size.height, size.width) {
            return Ok(Action::Keep);
        }
        let crop = Rect { top: 0, left: 0, height: size.height, width: size.width };
        Ok(Action::Resize { crop, cropped: false, height, width, interpolation: self.interpolation })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn the_other_side_is_rounded_to_the_nearest() {
        let draw = |resize: MaxSize, height, width| {
            let result = resize.draw(size(height, width), &mut rng(0)).unwrap().size(size(height, width));
            (result.height, result.width)
        };
        assert_eq!(draw(MaxSize::smallest(256), 375, 500), (256, 341));
        assert_eq!(draw(MaxSize::smallest(256), 500, 333), (384, 256));
        assert_eq!(draw(MaxSize::longest(100), 333, 500), (67, 100));
        assert_eq!(draw(MaxSize::longest(3), 1000, 1), (3, 1));
        assert_eq!(draw(MaxSize::smallest(7), 7, 9), (7, 9));
        assert!(MaxSize::smallest(1 << 20).draw(size(1, 1000), &mut rng(0)).is_err());
    }

    #[test]
    fn parameters_are_checked() {
        assert!(check_error(MaxSize::smallest(0)).starts_with("size is 0; must be 1 to"));
        let read = read(r#"{"type":"MaxSize","size":9,"longest":true,"interpolation":"opencv-area"}"#);
        assert_eq!(read.to_string(), "MaxSize(size=9, longest=True, interpolation=opencv-area)");
    }
}
