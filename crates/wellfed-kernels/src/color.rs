//! Brightness, contrast and saturation, bit-equal to Pillow 13's `ImageEnhance`, which torchvision uses on PIL
//! images: a blend of the image with black, with its mean luma, or with its luma.
//!
//! Alpha, the last channel of 2 or 4, is left alone.

use crate::{
    gray::{luma, mean_luma},
    image::{Image, View},
};

/// `Image.blend(degenerate, image, factor)` of one value: float32, truncated, clipped where it extrapolates
/// (`src/libImaging/Blend.c`).
#[inline]
pub(crate) fn blend(degenerate: u8, value: u8, factor: f32) -> u8 {
    let x = f32::from(degenerate) + factor * (f32::from(value) - f32::from(degenerate));
    // Inside 0..=1 the result is in range; clamping changes nothing there.
    x.clamp(0.0, 255.0) as u8
}

/// Blends every value with one constant, by a table of 256.
fn blend_with(image: &mut Image, constant: u8, factor: f64) {
    let factor = factor as f32;
    let table: [u8; 256] = std::array::from_fn(|v| blend(constant, v as u8, factor));
    let channels = image.channels();
    if channels.is_multiple_of(2) && channels > 0 {
        for pixel in image.pixels_mut().chunks_exact_mut(channels) {
            for v in &mut pixel[..channels - 1] {
                *v = table[usize::from(*v)];
            }
        }
    } else {
        for v in image.pixels_mut() {
            *v = table[usize::from(*v)];
        }
    }
}

/// Blends with black: 0 is black, 1 leaves the image alone, 2 doubles.
pub fn brightness(image: &mut Image, factor: f64) {
    blend_with(image, 0, factor);
}

/// Blends with the image's mean luma: 0 is flat grey, 1 leaves the image alone.
pub fn contrast(image: &mut Image, factor: f64) {
    blend_with(image, mean_luma(image), factor);
}

/// Blends with the grey image: 0 is grey, 1 leaves the image alone. Grey images stay as they are.
pub fn saturation(image: &mut Image, factor: f64) {
    let (factor, channels) = (factor as f32, image.channels());
    if channels < 3 || factor == 1.0 {
        return;
    }
    for pixel in image.pixels_mut().chunks_exact_mut(channels) {
        let gray = luma(pixel[0], pixel[1], pixel[2]);
        for v in &mut pixel[..3] {
            *v = blend(gray, *v, factor);
        }
    }
}

/// Blends every value with that of `other` at its place: 0 leaves the image alone, 1 is the other one. `other` must have
/// its size; what it lacks stays.
pub fn blend_with_image(image: &mut Image, other: View<'_>, factor: f32) {
    let row = image.width() * image.channels();
    if row == 0 || (other.width(), other.channels()) != (image.width(), image.channels()) {
        return;
    }
    for (y, values) in image.pixels_mut().chunks_exact_mut(row).enumerate().take(other.height()) {
        for (v, &to) in values.iter_mut().zip(other.row(y)) {
            *v = blend(*v, to, factor);
        }
    }
}

/// Puts channel `order[i]` in the place of channel `i`, for as many as there are in `order`.
pub fn permute(image: &mut Image, order: &[usize]) {
    let channels = image.channels();
    if channels == 0 || order.len() > channels || order.iter().any(|&from| from >= channels) {
        return;
    }
    for pixel in image.pixels_mut().chunks_exact_mut(channels) {
        let mut before = [0; 4];
        before[..channels].copy_from_slice(pixel);
        for (to, &from) in pixel.iter_mut().zip(order) {
            *to = before[from];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(f: fn(&mut Image, f64), pixels: &[u8], channels: usize, factor: f64) -> Vec<u8> {
        let mut image = Image::new();
        image.reshape(1, pixels.len() / channels, channels).unwrap().copy_from_slice(pixels);
        f(&mut image, factor);
        image.pixels().to_vec()
    }

    #[test]
    fn a_factor_of_one_changes_nothing_and_zero_leaves_the_degenerate() {
        let pixels = [10, 200, 77, 255, 0, 128];
        for f in [brightness, contrast, saturation] {
            assert_eq!(applied(f, &pixels, 3, 1.0), pixels);
        }
        assert_eq!(applied(brightness, &pixels, 3, 0.0), [0; 6]);
        assert_eq!(applied(saturation, &[255, 0, 0], 3, 0.0), [76; 3]);
        // Lumas 129 and 91: their mean is 110.
        assert_eq!(applied(contrast, &pixels, 3, 0.0), [110; 6]);
    }

    #[test]
    fn extrapolation_is_clipped_and_alpha_kept() {
        assert_eq!(applied(brightness, &[10, 100, 200, 40], 4, 2.0), [20, 200, 255, 40]);
        assert_eq!(applied(brightness, &[10, 40], 2, 2.0), [20, 40]);
        assert_eq!(applied(saturation, &[250, 10, 10, 7], 4, 3.0), [255, 0, 0, 7]);
        assert_eq!(applied(saturation, &[50], 1, 3.0), [50]);
    }

    #[test]
    fn a_blend_is_float32_and_truncated() {
        // 0.7f32 * 10 is 6.9999995 in float32 and 7 in exact arithmetic.
        assert_eq!(applied(brightness, &[10], 1, 0.7), [(10.0f32 * 0.7f32) as u8]);
        assert_eq!(applied(brightness, &[3, 255], 1, 0.5), [1, 127]);
    }

    #[test]
    fn two_images_are_blended_value_by_value() {
        let (mut image, mut other) = (Image::new(), Image::new());
        other.reshape(1, 2, 3).unwrap().copy_from_slice(&[0, 255, 10, 20, 30, 40]);
        for (factor, expected) in [
            (0.0, [10, 20, 30, 40, 50, 60]),
            (1.0, [0, 255, 10, 20, 30, 40]),
            (0.5, [5, 137, 20, 30, 40, 50]),
        ] {
            image.reshape(1, 2, 3).unwrap().copy_from_slice(&[10, 20, 30, 40, 50, 60]);
            blend_with_image(&mut image, other.view(), factor);
            assert_eq!(image.pixels(), expected);
        }
    }

    #[test]
    fn channels_change_places_as_far_as_there_are_some() {
        let mut image = Image::new();
        image.reshape(1, 2, 4).unwrap().copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
        permute(&mut image, &[2, 0, 1]);
        assert_eq!(image.pixels(), [3, 1, 2, 4, 7, 5, 6, 8]);
        image.reshape(1, 2, 1).unwrap().copy_from_slice(&[1, 2]);
        permute(&mut image, &[2, 0, 1]);
        permute(&mut image, &[1]);
        assert_eq!(image.pixels(), [1, 2]);
    }
}
