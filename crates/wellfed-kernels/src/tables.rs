//! Value tables of Pillow 13's `ImageOps`, which torchvision uses on PIL images: posterize, solarize, invert,
//! autocontrast and equalize. Every channel has a table of 256 values; those of the last two come from its histogram.
//!
//! For images of 1 or 3 channels: `ImageOps` takes no others.

use crate::image::Image;

type Table = [u8; 256];

fn table(value: impl Fn(u8) -> u8) -> Table {
    std::array::from_fn(|v| value(v as u8))
}

/// Maps all values by one table.
fn map(image: &mut Image, table: &Table) {
    for v in image.pixels_mut() {
        *v = table[usize::from(*v)];
    }
}

/// Turns values around: `v` becomes `255 - v`.
pub fn invert(image: &mut Image) {
    for v in image.pixels_mut() {
        *v = !*v;
    }
}

/// Keeps the `bits` highest bits of every value, 0 to 8.
pub fn posterize(image: &mut Image, bits: u32) {
    let mask = 0xFF00u16.wrapping_shr(bits.min(8)) as u8;
    for v in image.pixels_mut() {
        *v &= mask;
    }
}

/// Turns values of at least `threshold` around.
pub fn solarize(image: &mut Image, threshold: f64) {
    map(image, &table(|v| if f64::from(v) < threshold { v } else { !v }));
}

/// Adds `add` to values below 128, up to 255: timm's `solarize_add`.
pub fn solarize_add(image: &mut Image, add: u8) {
    map(image, &table(|v| if v < 128 { v.saturating_add(add) } else { v }));
}

/// Spreads the values of every channel over 0 to 255, linearly.
pub fn autocontrast(image: &mut Image) {
    by_histogram(image, |histogram| {
        let low = histogram.iter().position(|&n| n > 0)?;
        let high = histogram.iter().rposition(|&n| n > 0)?;
        if high == low {
            return None;
        }
        let scale = 255.0 / (high - low) as f64;
        let offset = -(low as f64) * scale;
        Some(table(|v| (f64::from(v) * scale + offset).clamp(0.0, 255.0) as u8))
    });
}

/// Maps the values of every channel so that they are about equally frequent.
pub fn equalize(image: &mut Image) {
    by_histogram(image, |histogram| {
        let last = histogram.iter().rev().find(|&&n| n > 0)?;
        let step = (histogram.iter().sum::<u64>() - last) / 255;
        if step == 0 {
            return None;
        }
        let mut below = step / 2;
        let mut table = [0; 256];
        for (to, n) in table.iter_mut().zip(histogram) {
            // Steps are rounded down, so that there may be more than 255 of them; Pillow cuts them off, too.
            *to = (below / step).min(255) as u8;
            below += n;
        }
        Some(table)
    });
}

/// Maps every channel by the table that `make` has for its histogram; `None` leaves it as it is.
fn by_histogram(image: &mut Image, make: impl Fn(&[u64; 256]) -> Option<Table>) {
    match image.channels() {
        1 => channels::<1>(image, make),
        3 => channels::<3>(image, make),
        _ => {}
    }
}

fn channels<const N: usize>(image: &mut Image, make: impl Fn(&[u64; 256]) -> Option<Table>) {
    // Two histograms, used in turns: neighbours are often equal, and an addition waits for the one before it.
    let mut counts = [[[0u32; 256]; N]; 2];
    let pixels = image.pixels().as_chunks::<N>().0;
    // A count of 32 bits: images have fewer than 2^32 pixels in every part that is counted at once.
    let mut histograms = [[0u64; 256]; N];
    for part in pixels.chunks(1 << 30) {
        for (i, pixel) in part.iter().enumerate() {
            for (count, &v) in counts[i % 2].iter_mut().zip(pixel) {
                count[usize::from(v)] += 1;
            }
        }
        for (c, histogram) in histograms.iter_mut().enumerate() {
            for (v, n) in histogram.iter_mut().enumerate() {
                *n += u64::from(counts[0][c][v]) + u64::from(counts[1][c][v]);
            }
        }
        counts = [[[0; 256]; N]; 2];
    }
    let tables = histograms.map(|histogram| make(&histogram).unwrap_or_else(|| table(|v| v)));
    for pixel in image.pixels_mut().as_chunks_mut::<N>().0 {
        for (v, table) in pixel.iter_mut().zip(&tables) {
            *v = table[usize::from(*v)];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(f: impl Fn(&mut Image), pixels: &[u8], channels: usize) -> Vec<u8> {
        let mut image = Image::new();
        image.reshape(1, pixels.len() / channels, channels).unwrap().copy_from_slice(pixels);
        f(&mut image);
        image.pixels().to_vec()
    }

    #[test]
    fn values_are_masked_and_turned_around() {
        let pixels = [0, 1, 127, 128, 200, 255];
        assert_eq!(applied(invert, &pixels, 3), [255, 254, 128, 127, 55, 0]);
        assert_eq!(applied(|i| posterize(i, 8), &pixels, 3), pixels);
        assert_eq!(applied(|i| posterize(i, 4), &pixels, 3), [0, 0, 112, 128, 192, 240]);
        assert_eq!(applied(|i| posterize(i, 1), &pixels, 3), [0, 0, 0, 128, 128, 128]);
        assert_eq!(applied(|i| posterize(i, 0), &pixels, 3), [0; 6]);
        assert_eq!(applied(|i| solarize_add(i, 110), &pixels, 3), [110, 111, 237, 128, 200, 255]);
        assert_eq!(applied(|i| solarize_add(i, 200), &pixels, 3), [200, 201, 255, 128, 200, 255]);
        assert_eq!(applied(|i| solarize(i, 128.0), &pixels, 3), [0, 1, 127, 127, 55, 0]);
        assert_eq!(applied(|i| solarize(i, 127.5), &pixels, 1), [0, 1, 127, 127, 55, 0]);
        assert_eq!(applied(|i| solarize(i, 256.0), &pixels, 1), pixels);
        assert_eq!(applied(|i| solarize(i, 0.0), &pixels, 1), applied(invert, &pixels, 1));
    }

    #[test]
    fn contrast_is_spread_channel_by_channel() {
        assert_eq!(applied(autocontrast, &[100, 125, 151], 1), [0, 125, 255]);
        // As in Pillow: 200 * 2.55 - 255 is a little less than 255.
        assert_eq!(applied(autocontrast, &[100, 150, 200], 1), [0, 127, 254]);
        // The second channel has one value, and stays.
        assert_eq!(applied(autocontrast, &[10, 7, 0, 20, 7, 255], 3), [0, 7, 0, 255, 7, 255]);
        assert_eq!(applied(autocontrast, &[], 3), []);
    }

    #[test]
    fn an_equalized_histogram_is_flat() {
        // 510 pixels below the last value are two a step.
        let pixels: Vec<u8> = (0..510).map(|i| (i / 51) as u8).chain([10]).collect();
        let out = applied(equalize, &pixels, 1);
        assert_eq!((out[0], out[51], out[510]), (0, 26, 255));
        assert_eq!(applied(equalize, &pixels[..200], 1), pixels[..200], "too few pixels for a step");
        assert_eq!(applied(equalize, &[3; 600], 1), [3; 600]);
    }
}
