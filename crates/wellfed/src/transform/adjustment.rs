//! [`Adjustment`]: what is done to the values of an image by `RandomInvert` and its neighbours.

use std::sync::Arc;

use wellfed_kernels::{image::Image, sharpen, tables};

use super::{Action, ImageAction, ImageMemory, Size, image_action::elements, param::impossible};
use crate::{Result, rng::Rng};

/// A change of values, as Pillow's `ImageOps` and `ImageEnhance.Sharpness` make it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Adjustment {
    Invert,
    /// Highest bits to keep, 1 to 8.
    Posterize(u32),
    /// Least value that is turned around.
    Solarize(f64),
    /// 0 is smooth, 1 leaves the image alone.
    Sharpness(f64),
    Autocontrast,
    Equalize,
}

impl Adjustment {
    /// This with probability `p`, for an image of `size`.
    pub(super) fn chance(self, p: f64, size: Size, rng: &mut Rng) -> Result<Action> {
        check_channels(size)?;
        Ok(if rng.chance(p) { Action::Image(Arc::new(self)) } else { Action::Keep })
    }
}

impl ImageAction for Adjustment {
    fn memory(&self, input: Size) -> usize {
        if matches!(self, Adjustment::Sharpness(_)) { elements(input) } else { 0 }
    }

    fn run(&self, image: &mut Image, memory: &mut ImageMemory) -> Result<()> {
        match *self {
            Adjustment::Invert => tables::invert(image),
            Adjustment::Posterize(bits) => tables::posterize(image, bits),
            Adjustment::Solarize(threshold) => tables::solarize(image, threshold),
            Adjustment::Sharpness(factor) => sharpen::sharpness(image, factor, &mut memory.spare)?,
            Adjustment::Autocontrast => tables::autocontrast(image),
            Adjustment::Equalize => tables::equalize(image),
        }
        Ok(())
    }
}

/// Fails unless the image is grey or has three colours: Pillow's functions take no others.
pub(super) fn check_channels(size: Size) -> Result<()> {
    if matches!(size.channels, 1 | 3) {
        return Ok(());
    }
    Err(impossible(format!("the image has {} channels; must be 1 or 3", size.channels))
        .with_hint("decode as \"RGB\" or \"L\""))
}
