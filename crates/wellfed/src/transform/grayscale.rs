//! `Grayscale`: luma instead of colours.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use wellfed_kernels::{gray::to_gray, image::Image, recipe::PixelOp};

use super::{
    Action, Class, ImageAction, ImageMemory, Operation, Shape, Size,
    image_action::elements,
    param::{Repr, impossible},
};
use crate::{Error, Result, rng::Rng};

/// Turns the image grey.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Grayscale {
    /// Channels of the result, 1 (the default) or 3 equal ones.
    pub num_output_channels: usize,
}

impl Grayscale {
    /// Gives 1 or 3 channels.
    pub fn new(num_output_channels: usize) -> Self {
        Self { num_output_channels }
    }
}

impl Default for Grayscale {
    fn default() -> Self {
        Self::new(1)
    }
}

/// To grey with `channels`; nothing if the image is grey and has that many.
pub(super) fn gray(size: Size, channels: usize) -> Result<Action> {
    match size.channels {
        1 if channels == 1 => Ok(Action::Keep),
        1 | 3 => Ok(Action::Image(Arc::new(Luma { channels }))),
        other => Err(impossible(format!("the image has {other} channels; must be 1 or 3"))
            .with_hint("decode as \"RGB\" or \"L\"")),
    }
}

/// Luma on one or three equal channels.
#[derive(Debug)]
pub(super) struct Luma {
    pub(super) channels: usize,
}

impl ImageAction for Luma {
    fn pixel_ops(&self, _input: Size) -> Option<Vec<PixelOp>> {
        Some(vec![PixelOp::Gray(self.channels)])
    }

    fn size(&self, input: Size) -> Size {
        Size { channels: self.channels, ..input }
    }

    fn memory(&self, input: Size) -> usize {
        elements(self.size(input))
    }

    fn run(&self, image: &mut Image, memory: &mut ImageMemory) -> Result<()> {
        to_gray(image, &mut memory.spare, self.channels).map_err(Error::from)
    }
}

impl fmt::Display for Grayscale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "Grayscale").field("num_output_channels", self.num_output_channels).finish()
    }
}

impl Operation for Grayscale {
    fn check(&self) -> Result<()> {
        match self.num_output_channels {
            1 | 3 => Ok(()),
            other => Err(Error::config(format!("num_output_channels is {other}; must be 1 or 3"))),
        }
    }

    fn class(&self) -> Class {
        Class::Image
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        Shape { channels: self.num_output_channels, ..input }
    }

    fn draw(&self, size: Size, _rng: &mut Rng) -> Result<Action> {
        gray(size, self.num_output_channels)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn it_gives_one_or_three_channels() {
        let draw = |out, channels| Grayscale::new(out).draw(Size { channels, ..size(1, 1) }, &mut rng(0));
        let luma = |channels| Action::Image(Arc::new(Luma { channels }));
        assert_eq!(draw(1, 3).unwrap(), luma(1));
        assert_eq!(draw(3, 3).unwrap(), luma(3));
        assert_eq!(draw(3, 1).unwrap(), luma(3));
        assert_eq!(luma(1).size(size(4, 5)), Size { channels: 1, ..size(4, 5) });
        assert_eq!(draw(1, 1).unwrap(), Action::Keep);
        assert_eq!(draw(1, 4).unwrap_err().message(), "the image has 4 channels; must be 1 or 3");
    }

    #[test]
    fn other_numbers_of_channels_are_refused() {
        assert_eq!(check_error(Grayscale::new(2)), "num_output_channels is 2; must be 1 or 3");
        assert_eq!(read(r#"{"type":"Grayscale"}"#).to_string(), "Grayscale(num_output_channels=1)");
    }
}
