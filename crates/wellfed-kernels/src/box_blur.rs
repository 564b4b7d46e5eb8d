//! Pillow 13's `ImageFilter.GaussianBlur`, bit for bit: three box blurs along rows, and three along columns
//! (`src/libImaging/BoxBlur.c`). Borders repeat the last pixel.
//!
//! Boxes have fractional ends: the pixel behind each end counts in part. Sums are of 32 bits with 24 bits behind the point.

use crate::image::Image;

/// How often a box is taken: what Pillow does unless told otherwise.
const PASSES: usize = 3;

/// Blurs `image` by a Gaussian of standard deviation `radius`, approximately. `lines` is working memory, as much as
/// [`memory`] says. A radius of 0 or less leaves the image as it is.
pub fn gaussian_blur(image: &mut Image, radius: f32, lines: &mut Vec<u8>) {
    let (height, width, channels) = (image.height(), image.width(), image.channels());
    if radius <= 0.0 || !radius.is_finite() || image.pixels().is_empty() {
        return;
    }
    let box_radius = box_radius(radius);
    lines.clear();
    lines.resize(2 * height.max(width), 0);
    let row = width * channels;
    for y in 0..height {
        for channel in 0..channels {
            blur_line(image.pixels_mut(), (y * row + channel, channels, width), box_radius, lines);
        }
    }
    for column in 0..row {
        blur_line(image.pixels_mut(), (column, row, height), box_radius, lines);
    }
}

/// Bytes of working memory for an image of `height` and `width`.
pub fn memory(height: usize, width: usize) -> usize {
    2 * height.max(width)
}

/// Radius of the boxes that come to a Gaussian of standard deviation `radius`: `_gaussian_blur_radius`, in C's types.
fn box_radius(radius: f32) -> f32 {
    let variance = radius * radius / PASSES as f32;
    let length = (12.0 * f64::from(variance) + 1.0).sqrt() as f32;
    let whole = ((f64::from(length) - 1.0) / 2.0).floor() as f32;
    let mut part = (2.0 * whole + 1.0) * (whole * (whole + 1.0) - 3.0 * variance);
    part /= 6.0 * (variance - (whole + 1.0) * (whole + 1.0));
    whole + part
}

/// Blurs the `len` bytes that begin at `first` and lie `step` apart.
fn blur_line(pixels: &mut [u8], (first, step, len): (usize, usize, usize), radius: f32, lines: &mut [u8]) {
    let (mut from, mut to) = lines.split_at_mut(len);
    to = &mut to[..len];
    for (to, &v) in from.iter_mut().zip(pixels[first..].iter().step_by(step)) {
        *to = v;
    }
    for _ in 0..PASSES {
        box_line(from, to, radius);
        std::mem::swap(&mut from, &mut to);
    }
    for (to, &v) in pixels[first..].iter_mut().step_by(step).zip(&*from) {
        *to = v;
    }
}

/// One box over a line.
fn box_line(from: &[u8], to: &mut [u8], radius: f32) {
    let last = from.len() - 1;
    let reach = radius as usize;
    let inner = ((1 << 24) as f32 / (radius * 2.0 + 1.0)) as u32;
    let outer = (1u32 << 24).wrapping_sub((reach as u32 * 2 + 1).wrapping_mul(inner)) / 2;
    let at = |x: isize| u32::from(from[x.clamp(0, last as isize) as usize]);
    let reach = reach as isize;
    // The sum of the box around the pixel before the first one.
    let mut sum: u32 = (-reach - 1..reach).fold(0u32, |sum, x| sum.wrapping_add(at(x)));
    for (x, to) in to.iter_mut().enumerate() {
        let x = x as isize;
        sum = sum.wrapping_add(at(x + reach)).wrapping_sub(at(x - reach - 1));
        let ends = at(x - reach - 1).wrapping_add(at(x + reach + 1));
        let all = sum.wrapping_mul(inner).wrapping_add(ends.wrapping_mul(outer));
        *to = (all.wrapping_add(1 << 23) >> 24) as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blurred(pixels: &[u8], (height, width, channels): (usize, usize, usize), radius: f32) -> Vec<u8> {
        let mut image = Image::new();
        image.reshape(height, width, channels).unwrap().copy_from_slice(pixels);
        gaussian_blur(&mut image, radius, &mut Vec::new());
        image.pixels().to_vec()
    }

    #[test]
    fn flat_images_stay_flat_whatever_the_radius() {
        for radius in [0.1, 0.5, 1.0, 2.0, 7.5, 100.0] {
            assert_eq!(blurred(&[77; 60], (5, 4, 3), radius), [77; 60], "{radius}");
            assert_eq!(blurred(&[255], (1, 1, 1), radius), [255]);
        }
        assert_eq!(blurred(&[1, 9], (1, 2, 1), 0.0), [1, 9]);
    }

    #[test]
    fn a_spot_spreads_as_pillow_spreads_it() {
        let mut spot = [0; 49];
        spot[24] = 255;
        // Image.frombytes("L", (7, 7), spot).filter(ImageFilter.GaussianBlur(1)), Pillow 13.
        let out = blurred(&spot, (7, 7, 1), 1.0);
        assert_eq!(out[21..28], [1, 6, 24, 42, 24, 6, 1]);
        assert_eq!(out.iter().map(|&v| u32::from(v)).sum::<u32>(), 244);
    }

    #[test]
    fn channels_are_blurred_one_by_one_and_the_same_along_both_sides() {
        let one: Vec<u8> = (0..30).map(|i| (i * 37 % 256) as u8).collect();
        let gray = blurred(&one, (5, 6, 1), 1.7);
        let three: Vec<u8> = one.iter().flat_map(|&v| [v, 0, v]).collect();
        let out = blurred(&three, (5, 6, 3), 1.7);
        assert!(out.chunks_exact(3).zip(&gray).all(|(pixel, &v)| pixel == [v, 0, v]));
    }
}
