//! Luma, as Pillow's `convert("L")`: ITU-R 601-2 in 16-bit fixed point.

use crate::{image::Image, write::GeometryError};

/// Luma of one pixel: `(19595 R + 38470 G + 7471 B + 2^15) / 2^16` (Pillow, `src/libImaging/Convert.c`).
#[inline]
pub fn luma(r: u8, g: u8, b: u8) -> u8 {
    ((u32::from(r) * 19595 + u32::from(g) * 38470 + u32::from(b) * 7471 + 0x8000) >> 16) as u8
}

/// Luma of a pixel of 1 to 4 channels; with 1 or 2 the first is grey already.
#[inline]
fn luma_of(pixel: &[u8]) -> u8 {
    match pixel {
        [r, g, b, ..] => luma(*r, *g, *b),
        [v, ..] => *v,
        [] => 0,
    }
}

/// Makes `image` grey, on `channels` channels: luma, repeated on 3; 2 and 4 have an alpha behind, which is kept or
/// opaque. `spare` is working memory.
///
/// # Errors
/// [`GeometryError::Memory`] if there is none for it.
pub fn to_gray(image: &mut Image, spare: &mut Image, channels: usize) -> Result<(), GeometryError> {
    let from = image.channels();
    let out = spare.reshape(image.height(), image.width(), channels)?;
    for (to, pixel) in out.chunks_exact_mut(channels).zip(image.pixels().chunks_exact(from)) {
        to.fill(luma_of(pixel));
        if channels.is_multiple_of(2) {
            to[channels - 1] = if from.is_multiple_of(2) { pixel[from - 1] } else { 255 };
        }
    }
    std::mem::swap(image, spare);
    Ok(())
}

/// Mean luma of an image, rounded half up, as `ImageEnhance.Contrast` takes it. 0 for an empty image.
pub(crate) fn mean_luma(image: &Image) -> u8 {
    let pixels = image.pixels().chunks_exact(image.channels().max(1));
    let count = pixels.len() as f64;
    let sum: u64 = pixels.map(|pixel| u64::from(luma_of(pixel))).sum();
    (sum as f64 / count.max(1.0) + 0.5) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn luma_of_pure_colours_is_pillow_s() {
        assert_eq!(
            [luma(255, 0, 0), luma(0, 255, 0), luma(0, 0, 255), luma(255, 255, 255)],
            [76, 150, 29, 255]
        );
    }

    #[test]
    fn channels_are_repeated_and_alpha_is_kept() {
        let mut spare = Image::new();
        for (channels, expected) in
            [(1, vec![76]), (2, vec![76, 9]), (3, vec![76, 76, 76]), (4, vec![76, 76, 76, 9])]
        {
            let mut image = Image::new();
            image.reshape(1, 1, 4).unwrap().copy_from_slice(&[255, 0, 0, 9]);
            to_gray(&mut image, &mut spare, channels).unwrap();
            assert_eq!((image.pixels(), image.channels()), (expected.as_slice(), channels));
        }
    }
}
