//! Hue, as torchvision's `adjust_hue` on PIL images: to Pillow's 8-bit HSV, a shift that wraps around, and back.
//! Bit-equal to Pillow 13's conversions (`src/libImaging/Convert.c`), whose mix of float32 and double is kept.

use crate::image::Image;

/// Shifts the hue by `factor` of the circle, -0.5 to 0.5. Grey images stay as they are; alpha becomes opaque, which is what
/// the way there and back does to it in torchvision.
pub fn hue(image: &mut Image, factor: f64) {
    let channels = image.channels();
    if channels.is_multiple_of(2) {
        for pixel in image.pixels_mut().chunks_exact_mut(channels.max(1)) {
            pixel[channels - 1] = 255;
        }
    }
    if channels < 3 {
        return;
    }
    let shift = (factor * 255.0) as i32 as u8;
    for pixel in image.pixels_mut().chunks_exact_mut(channels) {
        let [h, s, v] = to_hsv([pixel[0], pixel[1], pixel[2]]);
        pixel[..3].copy_from_slice(&to_rgb([h.wrapping_add(shift), s, v]));
    }
}

fn to_hsv([r, g, b]: [u8; 3]) -> [u8; 3] {
    let (max, min) = (r.max(g).max(b), r.min(g).min(b));
    if max == min {
        return [0, 0, max];
    }
    let chroma = f32::from(max - min);
    let s = chroma / f32::from(max);
    let part = |v: u8| f32::from(max - v) / chroma;
    let (rc, gc, bc) = (part(r), part(g), part(b));
    let h: f32 = if r == max {
        bc - gc
    } else if g == max {
        (2.0 + f64::from(rc) - f64::from(bc)) as f32
    } else {
        (4.0 + f64::from(gc) - f64::from(rc)) as f32
    };
    let h = ((f64::from(h) / 6.0 + 1.0) % 1.0) as f32;
    [(f64::from(h) * 255.0) as u8, (f64::from(s) * 255.0) as u8, max]
}

fn to_rgb([h, s, v]: [u8; 3]) -> [u8; 3] {
    if s == 0 {
        return [v; 3];
    }
    let sector = f64::from(h) * 6.0 / 255.0;
    let whole = sector.floor();
    let f = (sector - whole) as f32;
    let fs = (f64::from(s) / 255.0) as f32;
    let level = |share: f64| (f64::from(v) * (1.0 - share)).round() as u8;
    let p = level(f64::from(fs));
    let q = level(f64::from(fs * f));
    let t = level(f64::from(fs) * (1.0 - f64::from(f)));
    match whole as u8 % 6 {
        0 => [v, t, p],
        1 => [q, v, p],
        2 => [p, v, t],
        3 => [p, q, v],
        4 => [t, p, v],
        _ => [v, p, q],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_of_the_circle_turns_red_to_green() {
        let mut image = Image::new();
        image.reshape(1, 2, 3).unwrap().copy_from_slice(&[255, 0, 0, 90, 90, 90]);
        hue(&mut image, 1.0 / 3.0);
        assert_eq!(image.pixels(), [0, 255, 0, 90, 90, 90]);
    }

    /// Hashes made by `tests/golden/color.py` with Pillow 13 over a grid of 35,937 colours.
    #[test]
    fn all_colours_of_a_grid_equal_pillow_s() {
        let levels = (0..33u32).map(|i| (i * 8).min(255) as u8);
        let mut grid = Vec::new();
        for r in levels.clone() {
            for g in levels.clone() {
                grid.extend(levels.clone().flat_map(|b| [r, g, b]));
            }
        }
        for line in include_str!("../tests/golden/color.txt").lines() {
            let parts: Vec<&str> = line.split_whitespace().collect();
            let factor: f64 = parts[1].parse().unwrap();
            let mut image = Image::new();
            image.reshape(33 * 33, 33, 3).unwrap().copy_from_slice(&grid);
            match parts[0] {
                "hue" => hue(&mut image, factor),
                "brightness" => crate::color::brightness(&mut image, factor),
                "contrast" => crate::color::contrast(&mut image, factor),
                "saturation" => crate::color::saturation(&mut image, factor),
                _ => crate::gray::to_gray(&mut image, &mut Image::new(), 3).unwrap(),
            }
            let hash = image.pixels().iter().fold(0xCBF2_9CE4_8422_2325u64, |hash, byte| {
                (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3)
            });
            assert_eq!(format!("{hash:016x}"), parts[2], "{line}");
        }
    }
}
