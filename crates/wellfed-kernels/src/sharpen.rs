//! Sharpness, bit-equal to Pillow 13's `ImageEnhance.Sharpness`, which torchvision uses on PIL images: a blend of the
//! image with a smoothed one.
//!
//! Pillow smooths in float32: a sum of nine products with 1/13 and 5/13, and one half to round. Its error is far below
//! the 1/26 that any such sum is away from a tie, so whole numbers give the same.

use crate::{color::blend, image::Image, write::GeometryError};

/// Blends with the smoothed image: 0 is smooth, 1 leaves the image alone, 2 is sharp. Pixels at the border stay, and
/// alpha, the last channel of 2 or 4. `spare` is working memory for as many bytes as the image has.
///
/// # Errors
/// [`GeometryError::Memory`] if there is none for it.
pub fn sharpness(image: &mut Image, factor: f64, spare: &mut Image) -> Result<(), GeometryError> {
    let (height, width, channels) = (image.height(), image.width(), image.channels());
    let factor = factor as f32;
    if height < 3 || width < 3 || factor == 1.0 {
        return Ok(());
    }
    let out = spare.reshape(height, width, channels)?;
    let pixels = image.pixels();
    out.copy_from_slice(pixels);
    let row = width * channels;
    let inner = row - 2 * channels;
    for y in 1..height - 1 {
        // The pixel itself and its neighbours to the left and right, in three rows.
        let part = |y: usize, column: usize| &pixels[y * row + column * channels..][..inner];
        let line = |y: usize| [part(y, 0), part(y, 1), part(y, 2)];
        let [above, here, below] = [line(y - 1), line(y), line(y + 1)];
        let to = &mut out[y * row + channels..][..inner];
        for (i, to) in to.iter_mut().enumerate() {
            let across =
                |line: [&[u8]; 3]| u16::from(line[0][i]) + u16::from(line[1][i]) + u16::from(line[2][i]);
            let sum = across(above) + across(here) + across(below) + 4 * u16::from(here[1][i]);
            *to = blend(((2 * sum + 13) / 26) as u8, here[1][i], factor);
        }
        if channels.is_multiple_of(2) {
            let alphas = here[1].chunks_exact(channels);
            for (to, from) in to.chunks_exact_mut(channels).zip(alphas) {
                to[channels - 1] = from[channels - 1];
            }
        }
    }
    std::mem::swap(image, spare);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sharpened(pixels: &[u8], (height, width, channels): (usize, usize, usize), factor: f64) -> Vec<u8> {
        let mut image = Image::new();
        image.reshape(height, width, channels).unwrap().copy_from_slice(pixels);
        sharpness(&mut image, factor, &mut Image::new()).unwrap();
        image.pixels().to_vec()
    }

    #[test]
    fn the_middle_is_blended_with_its_neighbours() {
        let pixels = [10, 10, 10, 10, 140, 10, 10, 10, 10];
        // (8 * 10 + 5 * 140) / 13 = 60.
        assert_eq!(sharpened(&pixels, (3, 3, 1), 0.0)[4], 60);
        assert_eq!(sharpened(&pixels, (3, 3, 1), 0.5)[4], 100);
        assert_eq!(sharpened(&pixels, (3, 3, 1), 1.0), pixels);
        assert_eq!(sharpened(&pixels, (3, 3, 1), 1.5)[4], 180);
        assert_eq!(sharpened(&pixels, (3, 3, 1), 2.0)[4], 220);
        assert_eq!(sharpened(&pixels, (3, 3, 1), 9.0)[4], 255);
    }

    #[test]
    fn borders_small_images_and_alpha_stay() {
        let pixels: Vec<u8> = (0..36).map(|i| (i * i) as u8).collect();
        assert_eq!(sharpened(&pixels, (2, 6, 3), 0.0), pixels);
        assert_eq!(sharpened(&pixels, (9, 2, 2), 0.0), pixels);
        let out = sharpened(&pixels, (3, 3, 4), 0.0);
        assert_eq!((out[..16].to_vec(), &out[20..]), (pixels[..16].to_vec(), &pixels[20..]));
        assert_eq!(out[19], pixels[19]);
        assert_ne!(out[16..19], pixels[16..19]);
    }

    #[test]
    fn whole_numbers_round_as_float32_does() {
        let (one, five) = (1.0f32 / 13.0, 5.0f32 / 13.0);
        for sum in 0..=8 * 255u16 {
            for here in [0u16, 1, 77, 128, 254, 255] {
                let float = 0.5 + f32::from(sum) * one + f32::from(here) * five;
                assert_eq!(((2 * (sum + 5 * here) + 13) / 26) as u8, float as u8, "{sum} {here}");
            }
        }
    }
}
