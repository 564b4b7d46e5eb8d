//! Transforms that need a whole image: colour, grey, blur, rotation on 8-bit pixels, and erasing.

use wellfed_kernels::{
    alpha::{premultiply, unpremultiply},
    blur::{BlurError, gaussian_blur},
    color, erase, gray, hue,
    image::{Dtype, Image, Layout},
    resample,
    rotate::{Rotation, Sampling, rotate},
};

use super::kernel::geometry;
use crate::{
    Error, ErrorKind, Result,
    transform::{Action, ColorStep, EraseValue, Interpolation, Rect, Size},
};

/// Working memory of these transforms.
#[derive(Debug, Default)]
pub(crate) struct WholeScratch {
    spare: Image,
    floats: Vec<f32>,
}

impl WholeScratch {
    pub(crate) fn capacity(&self) -> usize {
        self.spare.capacity() + 4 * self.floats.capacity()
    }
}

/// Bytes of working memory that `action` takes for an image of size `before` that becomes one of `after`.
pub(crate) fn memory(action: &Action, before: Size, after: Size) -> usize {
    let elements = |size: Size| size.height * size.width * size.channels;
    match action {
        Action::Gray { .. } | Action::Rotate { .. } => elements(after),
        // Rows of float32, and one with borders.
        Action::Blur { kernel, .. } => 4 * (elements(before) + (before.width + kernel[0]) * before.channels),
        _ => 0,
    }
}

/// Applies `action` to `image`.
pub(crate) fn run(action: &mut Action, image: &mut Image, scratch: &mut WholeScratch) -> Result<()> {
    let size = Size { height: image.height(), width: image.width(), channels: image.channels() };
    let after = action.size(size);
    match action {
        Action::Keep => {}
        Action::Color(steps) => {
            for step in steps.iter() {
                match *step {
                    ColorStep::Brightness(factor) => color::brightness(image, factor),
                    ColorStep::Contrast(factor) => color::contrast(image, factor),
                    ColorStep::Saturation(factor) => color::saturation(image, factor),
                    ColorStep::Hue(factor) => hue::hue(image, factor),
                }
            }
        }
        Action::Gray { channels } => {
            gray::to_gray(image, &mut scratch.spare, *channels).map_err(geometry)?;
        }
        Action::Blur { kernel, sigma } => gaussian_blur(image, *kernel, *sigma, &mut scratch.floats)
            .map_err(|e| match e {
                BlurError::Memory { bytes } => Error::memory(bytes, "pixels"),
                BlurError::Reach { .. } => Error::new(ErrorKind::Shape, e.to_string()),
            })?,
        &mut Action::Rotate { angle, interpolation, expand, center, ref fill } => {
            let sampling = match interpolation {
                Interpolation::Nearest | Interpolation::NearestExact | Interpolation::NearestCorner => {
                    Sampling::Nearest
                }
                Interpolation::Bilinear => Sampling::Bilinear,
                Interpolation::Bicubic => Sampling::Bicubic,
                Interpolation::Lanczos => {
                    return Err(Error::config("rotation takes nearest, bilinear or bicubic, not lanczos"));
                }
            };
            let fill =
                std::array::from_fn(|c| fill.channel(c.min(size.channels - 1)).clamp(0.0, 255.0) as u8);
            let rotation = Rotation { angle, sampling, expand, center, fill };
            // Pillow interpolates images with alpha premultiplied, but not where a turn only moves pixels.
            let alpha = matches!(size.channels, 2 | 4)
                && sampling != Sampling::Nearest
                && !rotation.moves_pixels(size.height, size.width);
            if alpha {
                premultiply(image);
            }
            rotate(image.view(), &rotation, (after.height, after.width), &mut scratch.spare)
                .map_err(geometry)?;
            std::mem::swap(image, &mut scratch.spare);
            if alpha {
                unpremultiply(image);
            }
        }
        erase @ Action::Erase { .. } => erase_slot(erase, size, Dtype::U8, Layout::Hwc, image.pixels_mut()),
        other => {
            return Err(Error::new(
                ErrorKind::Internal,
                format!("{other:?} is no transform of whole images"),
            ));
        }
    }
    Ok(())
}

/// Erases a rectangle of a finished image. Any action but [`Action::Erase`] leaves it alone.
pub(crate) fn erase_slot(action: &mut Action, size: Size, dtype: Dtype, layout: Layout, slot: &mut [u8]) {
    let Action::Erase { rect, value } = action else { return };
    let Rect { top, left, height, width } = *rect;
    let rect = resample::Rect { top, left, height, width };
    let shape = (size.height, size.width, size.channels);
    match value {
        EraseValue::Constant(values) => {
            erase::erase(slot, shape, dtype, layout, rect, |channel| values.channel(channel) as f32);
        }
        EraseValue::Noise(noise) => erase::erase(slot, shape, dtype, layout, rect, |_| noise.normal() as f32),
    }
}
