//! Actions that need a whole image: those that bring their own code, noise, and erasing.

use wellfed_kernels::{
    erase,
    image::{Dtype, Image, Layout},
    resample,
};

use crate::{
    Error, ErrorKind, Result,
    transform::{Action, EraseValue, ImageMemory, Patch, Rect, Size},
};

/// Bytes of working memory that `action` takes for an image of size `before`.
pub(crate) fn memory(action: &Action, before: Size) -> usize {
    match action {
        Action::Image(action) => action.memory(before),
        _ => 0,
    }
}

/// Applies `action` to `image`.
pub(crate) fn run(action: &mut Action, image: &mut Image, memory: &mut ImageMemory) -> Result<()> {
    let size = Size { height: image.height(), width: image.width(), channels: image.channels() };
    match action {
        Action::Keep => Ok(()),
        Action::Image(action) => action.run(image, memory),
        Action::AddNoise(noise) => {
            let mut noisy = noise.on_bytes();
            image.pixels_mut().iter_mut().for_each(|v| *v = noisy(*v));
            Ok(())
        }
        erase @ Action::Erase(_) => {
            erase_slot(erase, size, Dtype::U8, Layout::Hwc, image.pixels_mut());
            Ok(())
        }
        other => {
            let what = format!("{other:?} is no action on whole images");
            Err(Error::new(ErrorKind::Internal, what))
        }
    }
}

/// Erases rectangles of a finished image. Any action but [`Action::Erase`] leaves it alone.
pub(crate) fn erase_slot(action: &Action, size: Size, dtype: Dtype, layout: Layout, slot: &mut [u8]) {
    let Action::Erase(patches) = action else { return };
    let shape = (size.height, size.width, size.channels);
    for Patch { rect, value } in &**patches {
        let &Rect { top, left, height, width } = rect;
        let rect = resample::Rect { top, left, height, width };
        match value {
            EraseValue::Constant(values) => {
                erase::erase(slot, shape, dtype, layout, rect, |channel| values.channel(channel) as f32);
            }
            EraseValue::Noise(noise) => {
                let mut noise = noise.clone();
                erase::erase(slot, shape, dtype, layout, rect, |_| noise.normal() as f32);
            }
        }
    }
}
