//! Colours as OpenCV and Albumentations change them in 8-bit images, bit by bit: OpenCV 4 and 5 on x86-64 with AVX2,
//! Albumentations 2.0 with albucore 0.0.
//!
//! Where both have a vector path and one for the pixels left over, OpenCV's results differ between the two
//! ([`shift_hsv`]): what a pixel becomes depends on its place in the row then, and so it does here, on every machine.
//! For images of 1 or 3 channels.

use std::sync::LazyLock;

use crate::image::Image;
use crate::level::Level;

type Table = [u8; 256];

/// Maps all values by one table.
fn map(image: &mut Image, table: &Table) {
    for v in image.pixels_mut() {
        *v = table[usize::from(*v)];
    }
}

/// `v * factor + value` in float32, cut off at 0 and 255 and truncated (albucore's `multiply_add`).
pub fn multiply_add(image: &mut Image, factor: f64, value: f64) {
    let (factor, value) = (factor as f32, value as f32);
    map(image, &std::array::from_fn(|v| (v as f32 * factor + value).clamp(0.0, 255.0) as u8));
}

/// Multiplies by `factor` (Albumentations' `adjust_brightness_torchvision`).
pub fn brightness(image: &mut Image, factor: f64) {
    multiply_add(image, factor, 0.0);
}

/// Blends with the mean luma (Albumentations' `adjust_contrast_torchvision`).
pub fn contrast(image: &mut Image, factor: f64) {
    if factor == 1.0 {
        return;
    }
    let mean = mean_luma(image);
    if factor == 0.0 {
        image.pixels_mut().fill((mean + 0.5) as u8);
        return;
    }
    multiply_add(image, factor, mean * (1.0 - factor));
}

/// Blends with the grey image (Albumentations' `adjust_saturation_torchvision`, which is `cv2.addWeighted`). Grey images
/// stay as they are.
pub fn saturation(image: &mut Image, factor: f64) {
    if factor == 1.0 || image.channels() != 3 {
        return;
    }
    let (own, grey) = (factor as f32, (1.0 - factor) as f32);
    for pixel in image.pixels_mut().chunks_exact_mut(3) {
        let luma = luma(pixel[0], pixel[1], pixel[2]);
        if factor == 0.0 {
            pixel.fill(luma);
            continue;
        }
        // A fused multiply-add: the product is exact in float64, and so is the sum but for what no byte depends on.
        let base = f64::from(f32::from(luma) * grey);
        for v in pixel {
            let sum = (f64::from(*v) * f64::from(own) + base) as f32;
            *v = sum.round_ties_even().clamp(0.0, 255.0) as u8;
        }
    }
}

/// Shifts the hue by `factor` of the circle (Albumentations' `adjust_hue_torchvision`). Grey images stay as they are.
pub fn hue(image: &mut Image, factor: f64) {
    if factor != 0.0 && image.channels() == 3 {
        through_hsv(image, &hue_table(180.0 * factor), &KEEP, &KEEP);
    }
}

/// Shifts hue (in steps of two degrees), saturation and value (Albumentations' `shift_hsv`) of an image of 3 channels.
pub fn shift_hsv(image: &mut Image, hue: f64, saturation: f64, value: f64) {
    let plus = |shift: f64| -> Table {
        let shift = shift.clamp(-512.0, 512.0) as i32;
        std::array::from_fn(|v| (v as i32 + shift).clamp(0, 255) as u8)
    };
    if image.channels() == 3 && [hue, saturation, value] != [0.0; 3] {
        let mut saturation = plus(saturation);
        // What has no colour gets none.
        saturation[0] = 0;
        through_hsv(image, &hue_table(hue), &saturation, &plus(value));
    }
}

/// Changes nothing.
static KEEP: Table = {
    let mut table = [0; 256];
    let mut v = 0;
    while v < 256 {
        table[v] = v as u8;
        v += 1;
    }
    table
};

/// NumPy's `mod(hue + shift, 180)`, truncated.
fn hue_table(shift: f64) -> Table {
    if shift == 0.0 {
        return KEEP;
    }
    std::array::from_fn(|v| (v as f64 + shift).rem_euclid(180.0) as u8)
}

/// Luma as `cv2.COLOR_RGB2GRAY`: 15-bit fixed point.
fn luma(r: u8, g: u8, b: u8) -> u8 {
    ((u32::from(r) * 9798 + u32::from(g) * 19235 + u32::from(b) * 3735 + (1 << 14)) >> 15) as u8
}

/// Mean luma of an image, not rounded. 0 for an empty image.
pub fn mean_luma(image: &Image) -> f64 {
    let channels = image.channels().max(1);
    let pixels = image.pixels().chunks_exact(channels);
    let count = pixels.len().max(1) as f64;
    let luma = |pixel: &[u8]| match pixel {
        [r, g, b] => u64::from(luma(*r, *g, *b)),
        [v, ..] => u64::from(*v),
        [] => 0,
    };
    pixels.map(luma).sum::<u64>() as f64 / count
}

/// Mean of all values, as `numpy.mean` of the array. 0 for an empty image.
pub fn mean(image: &Image) -> f64 {
    let count = image.pixels().len().max(1) as f64;
    image.pixels().iter().map(|v| u64::from(*v)).sum::<u64>() as f64 / count
}

/// Pixels that OpenCV's vector path of `COLOR_HSV2RGB` takes at once, with AVX2.
const BLOCK: usize = 32;

/// To HSV, through a table a channel, and back (`cv2.COLOR_RGB2HSV` and `COLOR_HSV2RGB`).
fn through_hsv(image: &mut Image, hue: &Table, saturation: &Table, value: &Table) {
    let width = image.width();
    if width == 0 {
        return;
    }
    let fast = Level::best() > Level::Scalar;
    for row in image.pixels_mut().chunks_exact_mut(3 * width) {
        let in_blocks = width / BLOCK * BLOCK * 3;
        for (at, block) in row.chunks_mut(3 * BLOCK).enumerate() {
            let mut hsv = [[0; BLOCK]; 3];
            for (i, pixel) in block.chunks_exact(3).enumerate() {
                let [h, s, v] = to_hsv([pixel[0], pixel[1], pixel[2]]);
                hsv[0][i] = hue[usize::from(h)];
                hsv[1][i] = saturation[usize::from(s)];
                hsv[2][i] = value[usize::from(v)];
            }
            let rgb = if at * 3 * BLOCK < in_blocks {
                match fast {
                    #[cfg(target_arch = "x86_64")]
                    // SAFETY: every level above `Scalar` has AVX2 and FMA.
                    true => unsafe { to_rgb_fused(&hsv) },
                    _ => to_rgb(&hsv, f32::trunc),
                }
            } else {
                to_rgb(&hsv, f32::round_ties_even)
            };
            for (i, pixel) in block.chunks_exact_mut(3).enumerate() {
                pixel.copy_from_slice(&[rgb[0][i], rgb[1][i], rgb[2][i]]);
            }
        }
    }
}

/// `COLOR_RGB2HSV`: 12-bit fixed point with tables of reciprocals (`RGB2HSV_b`).
#[inline]
fn to_hsv([r, g, b]: [u8; 3]) -> [u8; 3] {
    static TABLES: LazyLock<[[i32; 256]; 2]> = LazyLock::new(|| {
        let table = |most: f64, steps: f64| -> [i32; 256] {
            let entry = |i: usize| ((most * 4096.0) / (steps * i as f64)).round_ties_even() as i32;
            std::array::from_fn(|i| if i == 0 { 0 } else { entry(i) })
        };
        [table(180.0, 6.0), table(255.0, 1.0)]
    });
    let [by_chroma, by_value] = &*TABLES;
    let value = r.max(g).max(b);
    let chroma = i32::from(value - r.min(g).min(b));
    let [red, green, blue] = [r, g, b].map(i32::from);
    let hue = if value == r {
        green - blue
    } else if value == g {
        blue - red + 2 * chroma
    } else {
        red - green + 4 * chroma
    };
    let hue = (hue * by_chroma[chroma as usize] + (1 << 11)) >> 12;
    let saturation = (chroma * by_value[usize::from(value)] + (1 << 11)) >> 12;
    [if hue < 0 { hue + 180 } else { hue } as u8, saturation as u8, value]
}

/// `COLOR_HSV2RGB` of some pixels (`HSV2RGB_b`): float32, with fused multiply-adds where OpenCV's compiler made them.
#[inline(always)]
fn to_rgb(hsv: &[[u8; BLOCK]; 3], round: impl Fn(f32) -> f32) -> [[u8; BLOCK]; 3] {
    const SIXTHS: f32 = 6.0 / 180.0;
    const UNIT: f32 = 1.0 / 255.0;
    let mut rgb = [[0; BLOCK]; 3];
    for i in 0..BLOCK {
        let (h, s, v) =
            (f32::from(hsv[0][i]) * SIXTHS, f32::from(hsv[1][i]) * UNIT, f32::from(hsv[2][i]) * UNIT);
        let whole = h.trunc();
        let part = h - whole;
        let low = v * (1.0 - s);
        let falling = v * (-s).mul_add(part, 1.0);
        let rising = v * (-s).mul_add(1.0 - part, 1.0);
        // The hue may be a whole circle.
        let sector = if whole >= 6.0 { 0.0 } else { whole };
        let red = if sector == 0.0 || sector == 5.0 {
            v
        } else if sector == 1.0 {
            falling
        } else if sector == 4.0 {
            rising
        } else {
            low
        };
        let green = if sector == 0.0 {
            rising
        } else if sector < 3.0 {
            v
        } else if sector == 3.0 {
            falling
        } else {
            low
        };
        let blue = if sector < 2.0 {
            low
        } else if sector == 2.0 {
            rising
        } else if sector < 5.0 {
            v
        } else {
            falling
        };
        for (plane, x) in rgb.iter_mut().zip([red, green, blue]) {
            plane[i] = round(x * 255.0).clamp(0.0, 255.0) as u8;
        }
    }
    rgb
}

/// [`to_rgb`] of a whole block, truncated, which the compiler turns into vectors here.
///
/// # Safety
/// The processor has AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn to_rgb_fused(hsv: &[[u8; BLOCK]; 3]) -> [[u8; BLOCK]; 3] {
    to_rgb(hsv, f32::trunc)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(height: usize, width: usize, channels: usize) -> Image {
        let mut image = Image::new();
        let pixels = image.reshape(height, width, channels).unwrap();
        for (i, v) in pixels.iter_mut().enumerate() {
            *v = (i.wrapping_mul(i).wrapping_mul(31) >> 3) as u8 ^ (i % 251) as u8;
        }
        image
    }

    #[test]
    fn neutral_numbers_change_nothing() {
        for channels in [1, 3] {
            let before = image(5, 37, channels);
            let mut after = before.clone();
            brightness(&mut after, 1.0);
            contrast(&mut after, 1.0);
            saturation(&mut after, 1.0);
            hue(&mut after, 0.0);
            shift_hsv(&mut after, 0.0, 0.0, 0.0);
            multiply_add(&mut after, 1.0, 0.0);
            assert_eq!(before, after);
        }
    }

    #[test]
    fn zero_leaves_what_is_blended_with() {
        let (mut flat, mut grey) = (image(4, 5, 3), image(4, 5, 3));
        let mean = mean_luma(&flat);
        contrast(&mut flat, 0.0);
        assert!(flat.pixels().iter().all(|v| *v == (mean + 0.5) as u8));
        saturation(&mut grey, 0.0);
        assert!(grey.pixels().chunks_exact(3).all(|pixel| pixel[0] == pixel[1] && pixel[1] == pixel[2]));
    }

    #[test]
    fn a_third_of_the_circle_turns_red_to_green() {
        let mut one = Image::new();
        one.reshape(1, 2, 3).unwrap().copy_from_slice(&[255, 0, 0, 90, 90, 90]);
        hue(&mut one, 1.0 / 3.0);
        assert_eq!(one.pixels(), [0, 255, 0, 90, 90, 90]);
    }

    #[test]
    fn vectors_give_what_plain_code_gives() {
        for h in 0..=180u8 {
            for v in (0..=255u8).step_by(17) {
                for first in (0..256).step_by(BLOCK) {
                    let saturations = std::array::from_fn(|i| (first + i) as u8);
                    let hsv = [[h; BLOCK], saturations, [v; BLOCK]];
                    let plain = to_rgb(&hsv, f32::trunc);
                    #[cfg(target_arch = "x86_64")]
                    if Level::best() > Level::Scalar {
                        // SAFETY: every level above `Scalar` has AVX2 and FMA.
                        assert_eq!(plain, unsafe { to_rgb_fused(&hsv) }, "{h} {v} {first}");
                    }
                    assert!(plain[0].iter().all(|x| *x <= v), "no colour is brighter than the value");
                }
            }
        }
    }

    #[test]
    fn a_blend_in_float64_is_a_fused_one() {
        for factor in [0.013922728426501996, 0.4, 1.827682737096612, 0.25, 1.9999, 0.8854400820814379] {
            let (own, grey) = (factor as f32, (1.0 - factor) as f32);
            for v in 0..=255u8 {
                for luma in 0..=255u8 {
                    let base = f32::from(luma) * grey;
                    let fused = f32::from(v).mul_add(own, base);
                    let ours = (f64::from(v) * f64::from(own) + f64::from(base)) as f32;
                    assert_eq!(fused.round_ties_even(), ours.round_ties_even(), "{factor} {v} {luma}");
                }
            }
        }
    }

    /// Hashes of what OpenCV 5.0.0 and Albumentations 2.0.8 made of [`image`]s: `tests/golden/opencv.py`.
    #[test]
    fn images_equal_albumentations() {
        for line in include_str!("../tests/golden/opencv.txt").lines() {
            let parts: Vec<&str> = line.split_whitespace().collect();
            let number = |i: usize| parts[i].parse::<f64>().unwrap();
            let mut made = image(number(1) as usize, number(2) as usize, 3);
            match parts[0] {
                "brightness" => brightness(&mut made, number(3)),
                "contrast" => contrast(&mut made, number(3)),
                "saturation" => saturation(&mut made, number(3)),
                "hue" => hue(&mut made, number(3)),
                "hsv" => shift_hsv(&mut made, number(3), number(4), number(5)),
                other => panic!("{other}"),
            }
            let hash = made.pixels().iter().fold(0xCBF2_9CE4_8422_2325u64, |hash, byte| {
                (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3)
            });
            assert_eq!(format!("{hash:016x}"), parts.last().copied().unwrap(), "{line}");
        }
    }
}
