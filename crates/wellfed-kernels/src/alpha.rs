//! Premultiplied alpha, as Pillow 13 converts between `RGBA` and `RGBa` (and `LA` and `La`) around resampling,
//! so that the colour of invisible pixels does not bleed into visible ones (`src/libImaging/Convert.c`).

use crate::image::Image;

/// Multiplies colours by alpha, the last channel of 2 or 4.
pub fn premultiply(image: &mut Image) {
    each(image, |v, alpha| {
        let product = u32::from(v) * u32::from(alpha) + 128;
        (((product >> 8) + product) >> 8) as u8
    });
}

/// Undoes [`premultiply`], as far as 8 bits allow.
pub fn unpremultiply(image: &mut Image) {
    each(image, |v, alpha| match alpha {
        0 | 255 => v,
        _ => (255 * u32::from(v) / u32::from(alpha)).min(255) as u8,
    });
}

fn each(image: &mut Image, f: impl Fn(u8, u8) -> u8) {
    let channels = image.channels();
    if channels != 2 && channels != 4 {
        return;
    }
    for pixel in image.pixels_mut().chunks_exact_mut(channels) {
        if let Some((&mut alpha, colours)) = pixel.split_last_mut() {
            for v in colours {
                *v = f(*v, alpha);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opaque_pixels_stay_and_others_are_scaled() {
        let mut image = Image::new();
        image.reshape(1, 3, 4).unwrap().copy_from_slice(&[10, 20, 30, 255, 100, 200, 255, 128, 9, 9, 9, 0]);
        premultiply(&mut image);
        assert_eq!(image.pixels(), [10, 20, 30, 255, 50, 100, 128, 128, 0, 0, 0, 0]);
        unpremultiply(&mut image);
        assert_eq!(image.pixels(), [10, 20, 30, 255, 99, 199, 255, 128, 0, 0, 0, 0]);
    }
}
