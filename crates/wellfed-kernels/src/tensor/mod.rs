//! What torchvision 0.29 does to 8-bit tensors, where that is not what Pillow does to images: bit-equal to torch on
//! processors that fuse multiplication and addition, which torch uses where they are there.
//!
//! Arithmetic is float32. torch casts back by cutting off, so that every rounding shows: sums are fused here exactly
//! where torch's vectorized kernels fuse them. The two versions of torchvision's functions differ in that.

pub mod elastic;
pub mod grid;

use crate::{
    image::{Image, View},
    write::GeometryError,
};

/// Which of torchvision's functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// Of `torchvision.transforms`.
    V1,
    /// Of `torchvision.transforms.v2`.
    V2,
}

impl Api {
    /// `ratio * value + rest * other`, as an 8-bit value. `rest` is 1 - `ratio`, subtracted in double precision.
    #[inline(always)]
    fn blend(self, value: f32, other: f32, [ratio, rest]: [f32; 2]) -> u8 {
        let sum = match self {
            Api::V1 => ratio * value + rest * other,
            Api::V2 => other.mul_add(rest, value * ratio),
        };
        sum.clamp(0.0, 255.0) as u8
    }

    /// Luma, rounded down.
    #[inline(always)]
    fn gray(self, r: u8, g: u8, b: u8) -> f32 {
        let [r, g, b] = [r, g, b].map(f32::from);
        match self {
            Api::V1 => 0.2989 * r + 0.587 * g + 0.114 * b,
            Api::V2 => b.mul_add(0.114, g.mul_add(0.587, r * 0.2989)),
        }
        .floor()
    }
}

fn shares(factor: f64) -> [f32; 2] {
    [factor as f32, (1.0 - factor) as f32]
}

/// Maps all values by one table.
fn map(image: &mut Image, value: impl Fn(f32) -> u8) {
    let table: [u8; 256] = std::array::from_fn(|v| value(v as f32));
    for v in image.pixels_mut() {
        *v = table[usize::from(*v)];
    }
}

/// Multiplies all values.
pub fn brightness(image: &mut Image, factor: f64) {
    map(image, |v| (v * factor as f32).clamp(0.0, 255.0) as u8);
}

/// Blends with the mean luma: 0 is flat grey, 1 leaves the image alone.
///
/// torch adds up lumas in float32. That is exact, as it is here, up to a sum of 2^24, which images of 65,793 pixels cannot
/// exceed; beyond, the mean may differ in its last bit.
pub fn contrast(image: &mut Image, factor: f64, api: Api) {
    let (pixels, channels) = (image.pixels(), image.channels());
    if pixels.is_empty() {
        return;
    }
    let sum: u64 = match channels {
        3 => pixels.as_chunks::<3>().0.iter().map(|&[r, g, b]| api.gray(r, g, b) as u64).sum(),
        _ => pixels.iter().map(|&v| u64::from(v)).sum(),
    };
    let mean = sum as f32 / (pixels.len() / channels) as f32;
    map(image, |v| api.blend(v, mean, shares(factor)));
}

/// Blends with the grey image: 0 is grey, 1 leaves the image alone. Grey images stay as they are.
pub fn saturation(image: &mut Image, factor: f64, api: Api) {
    if image.channels() != 3 {
        return;
    }
    let shares = shares(factor);
    for pixel in image.pixels_mut().as_chunks_mut::<3>().0 {
        let gray = api.gray(pixel[0], pixel[1], pixel[2]);
        *pixel = pixel.map(|v| api.blend(f32::from(v), gray, shares));
    }
}

/// Blends with the smoothed image: 0 is smooth, 1 leaves the image alone. `spare` is working memory for as many bytes as
/// the image has.
///
/// # Errors
/// [`GeometryError::Memory`] if there is none for it.
pub fn sharpness(image: &mut Image, factor: f64, api: Api, spare: &mut Image) -> Result<(), GeometryError> {
    let (height, width, channels) = (image.height(), image.width(), image.channels());
    if height < 3 || width < 3 {
        return Ok(());
    }
    spare.copy_from(image.view())?;
    let (shares, row) = (shares(factor), width * channels);
    let before = spare.pixels();
    for (y, out) in image.pixels_mut().chunks_exact_mut(row).enumerate() {
        for (i, to) in out.iter_mut().enumerate() {
            let at = y * row + i;
            let value = f32::from(before[at]);
            let border = y == 0 || y == height - 1 || i < channels || i >= row - channels;
            *to = match api {
                // The smoothed image has the same border, and its blend is rounded.
                Api::V1 if border => api.blend(value, value, shares),
                Api::V2 if border => continue,
                Api::V1 => api.blend(value, smooth(before, at, row, channels), shares),
                Api::V2 => {
                    let change = smooth(before, at, row, channels) - value;
                    change.mul_add(shares[1], value).clamp(0.0, 255.0) as u8
                }
            };
        }
    }
    Ok(())
}

/// The rounded mean of a value and its eight neighbours, in which the value itself counts five times. A sum of whole
/// numbers is never as near to a tie as torch's rounding errors are large: its 13th part is 1/26 away.
fn smooth(pixels: &[u8], at: usize, row: usize, channels: usize) -> f32 {
    let across =
        |at: usize| [at - channels, at, at + channels].map(|i| u32::from(pixels[i])).iter().sum::<u32>();
    let sum = across(at - row) + across(at) + across(at + row) + 4 * u32::from(pixels[at]);
    ((2 * sum + 13) / 26) as f32
}

/// Spreads the values of every channel over 0 to 255, linearly.
pub fn autocontrast(image: &mut Image, api: Api) {
    let channels = image.channels();
    if image.pixels().is_empty() {
        return;
    }
    let mut tables = [[0u8; 256]; 4];
    for (c, table) in tables.iter_mut().take(channels).enumerate() {
        let (low, high) = image
            .pixels()
            .iter()
            .skip(c)
            .step_by(channels)
            .fold((u8::MAX, u8::MIN), |(low, high), &v| (low.min(v), high.max(v)));
        let (low, range) = (f32::from(low), f32::from(high - low));
        for (v, to) in table.iter_mut().enumerate() {
            let v_ = v as f32;
            let spread = match api {
                _ if range == 0.0 => v_,
                // torch divides a number by a tensor so.
                Api::V1 => (v_ - low) * (1.0 / range * 255.0),
                Api::V2 => (v_ - low) / (range * (1.0 / 255.0) as f32),
            };
            *to = spread.clamp(0.0, 255.0) as u8;
        }
    }
    for pixel in image.pixels_mut().chunks_exact_mut(channels) {
        for (v, table) in pixel.iter_mut().zip(&tables) {
            *v = table[usize::from(*v)];
        }
    }
}

/// Adds `weight` times the values of an image to as many sums.
pub fn add_weighted(sums: &mut [f32], image: View<'_>, weight: f32) {
    let row = image.width() * image.channels();
    if row == 0 {
        return;
    }
    for (y, sums) in sums.chunks_exact_mut(row).enumerate().take(image.height()) {
        for (sum, &v) in sums.iter_mut().zip(image.row(y)) {
            *sum += weight * f32::from(v);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 6 x 7 pixels of all kinds of values.
    pub(super) fn image(channels: usize) -> Image {
        let mut image = Image::new();
        let pixels: Vec<u8> = (0..42 * channels).map(|i| (i * i * 7 + i * 13) as u8).collect();
        image.reshape(6, 7, channels).unwrap().copy_from_slice(&pixels);
        image
    }

    /// Every value times its place, counted from 1, added up.
    pub(super) fn sum(image: &Image) -> u64 {
        (1u64..).zip(image.pixels()).map(|(place, &v)| place * u64::from(v)).sum()
    }

    fn done(channels: usize, f: impl Fn(&mut Image)) -> u64 {
        let mut image = image(channels);
        f(&mut image);
        sum(&image)
    }

    /// Sums of torchvision 0.29, for colour and grey: of `torchvision.transforms.functional` and of its `v2`.
    #[test]
    fn values_are_torchvisions() {
        for (api, want) in [(Api::V1, V1), (Api::V2, V2)] {
            for (channels, want) in [3, 1].into_iter().zip(want) {
                let made = [
                    done(channels, |image| brightness(image, 1.3)),
                    done(channels, |image| contrast(image, 0.35, api)),
                    done(channels, |image| saturation(image, 1.7, api)),
                    done(channels, |image| sharpness(image, 1.9, api, &mut Image::new()).unwrap()),
                    done(channels, |image| sharpness(image, 0.1, api, &mut Image::new()).unwrap()),
                    done(channels, |image| {
                        brightness(image, 0.5);
                        autocontrast(image, api);
                    }),
                ];
                assert_eq!(made, want, "{api:?} {channels}");
            }
        }
    }

    const V1: [[u64; 6]; 2] =
        [[1221056, 988311, 978067, 963791, 999973, 998881], [144555, 116018, 117308, 117887, 114652, 120152]];
    const V2: [[u64; 6]; 2] = [
        [1221056, 988311, 978067, 965242, 1001002, 998776],
        [144555, 116018, 117308, 117937, 114792, 120127],
    ];

    #[test]
    fn flat_empty_and_narrow_images_stay() {
        for api in [Api::V1, Api::V2] {
            let mut flat = Image::new();
            flat.reshape(2, 5, 3).unwrap().fill(99);
            autocontrast(&mut flat, api);
            sharpness(&mut flat, 2.0, api, &mut Image::new()).unwrap();
            assert_eq!(flat.pixels(), [99; 30]);
            let mut none = Image::new();
            none.reshape(0, 5, 3).unwrap();
            autocontrast(&mut none, api);
            contrast(&mut none, 0.5, api);
            saturation(&mut none, 0.5, api);
            assert!(none.pixels().is_empty());
        }
    }

    #[test]
    fn sums_are_weighted() {
        let mut sums = vec![1.0; 42];
        let image = image(1);
        add_weighted(&mut sums, image.view(), 0.5);
        for (sum, &v) in sums.iter().zip(image.pixels()) {
            assert_eq!(*sum, 1.0 + 0.5 * f32::from(v));
        }
    }
}
