//! `AdjustContrastv2`, `AdjustSaturation`, `AdjustHue`, and the product of pixels with weights that `rgb_to_grayscale` is.

/// Values that are moved at the same time: whole pixels and whole vector registers.
const BLOCK: usize = 24;

/// Moves every channel away from its mean, or towards it: `(x - mean) * factor + mean`.
///
/// TensorFlow adds the second half of the pixels to the first one until there is one pixel left.
///
/// # Panics
/// If `values` are no pixels of `channels`, or there are none.
pub fn adjust_contrast(factor: f32, channels: usize, values: &mut [f32], scratch: &mut Vec<f32>) {
    assert!(channels > 0 && !values.is_empty() && values.len().is_multiple_of(channels), "no pixels");
    let pixels = values.len() / channels;
    let left = pixels.div_ceil(2) * channels;
    let right = values.len() - left;
    scratch.clear();
    scratch.extend(values.iter().zip(&values[left..]).map(|(first, second)| first + second));
    scratch.extend_from_slice(&values[right..left]);
    let mut rest = left;
    while rest > channels {
        let left = (rest / channels).div_ceil(2) * channels;
        let (first, second) = scratch[..rest].split_at_mut(left);
        add(first, second);
        rest = left;
    }
    let scale = 1.0 / pixels as f32;
    let means = &mut scratch[..channels];
    means.iter_mut().for_each(|sum| *sum *= scale);
    if BLOCK.is_multiple_of(channels) {
        let means: [f32; BLOCK] = std::array::from_fn(|i| means[i % channels]);
        let (blocks, rest) = values.as_chunks_mut::<BLOCK>();
        for block in blocks {
            block.iter_mut().zip(&means).for_each(|(x, mean)| *x = (*x - mean) * factor + mean);
        }
        rest.iter_mut().zip(&means).for_each(|(x, mean)| *x = (*x - mean) * factor + mean);
    } else {
        for pixel in values.chunks_exact_mut(channels) {
            pixel.iter_mut().zip(&*means).for_each(|(x, mean)| *x = (*x - mean) * factor + mean);
        }
    }
}

fn add(to: &mut [f32], values: &[f32]) {
    to.iter_mut().zip(values).for_each(|(to, x)| *to += x);
}

/// Multiplies the saturation of RGB pixels, which ends at 1, by way of HSV.
pub fn adjust_saturation(factor: f32, values: &mut [f32]) {
    for pixel in values.as_chunks_mut::<3>().0 {
        let (hue, saturation, value) = hsv(*pixel);
        let scaled = saturation * factor;
        let above = if 0.0 < scaled { scaled } else { 0.0 };
        *pixel = rgb(hue, if above < 1.0 { above } else { 1.0 }, value);
    }
}

/// Hue in turns, saturation and value.
fn hsv([r, g, b]: [f32; 3]) -> (f32, f32, f32) {
    // Of two that are equal, the first: zeros have signs.
    let larger = |x: f32, y: f32| if x < y { y } else { x };
    let lesser = |x: f32, y: f32| if y < x { y } else { x };
    let value = larger(r, larger(g, b));
    let range = value - lesser(r, lesser(g, b));
    let saturation = if value > 0.0 { range / value } else { 0.0 };
    let norm = 1.0 / (6.0 * range);
    // The sums are computed in float64.
    let third = |x: f32, thirds: f64| (f64::from(x) + thirds / 3.0) as f32;
    let hue = match () {
        () if range <= 0.0 => 0.0,
        () if r == value => norm * (g - b),
        () if g == value => third(norm * (b - r), 1.0),
        () => third(norm * (r - g), 2.0),
    };
    (if hue < 0.0 { hue + 1.0 } else { hue }, saturation, value)
}

fn rgb(hue: f32, saturation: f32, value: f32) -> [f32; 3] {
    let chroma = saturation * value;
    let least = value - chroma;
    let sixth = hue * 6.0;
    // Sixths are 0 to 6; what is no number, or beyond, has no colour.
    let category = if (0.0..7.0).contains(&sixth) { sixth as u32 } else { 6 };
    let mut pair = sixth;
    while (2.0..7.0).contains(&pair) {
        pair -= 2.0;
    }
    let middle = chroma * (1.0 - (pair - 1.0).abs());
    let [r, g, b] = match category {
        0 => [chroma, middle, 0.0],
        1 => [middle, chroma, 0.0],
        2 => [0.0, chroma, middle],
        3 => [0.0, middle, chroma],
        4 => [middle, 0.0, chroma],
        5 => [chroma, 0.0, middle],
        _ => [0.0; 3],
    };
    [r + least, g + least, b + least]
}

/// Turns the hue of RGB pixels by `delta` turns, which must be -1 to 1. The largest and the least channel stay.
pub fn adjust_hue(delta: f32, values: &mut [f32]) {
    let turned = delta * 6.0;
    for pixel in values.as_chunks_mut::<3>().0 {
        let (category, most, middle, least) = sorted(*pixel);
        let mut hue = if most == least {
            0.0
        } else {
            let ratio = (middle - least) / (most - least);
            category as f32 + if category.is_multiple_of(2) { ratio } else { 1.0 - ratio }
        };
        hue += turned;
        while hue < 0.0 {
            hue += 6.0;
        }
        // Beyond 12 there is nothing that is a number.
        while (6.0..=12.0).contains(&hue) {
            hue -= 6.0;
        }
        let category = hue as u32;
        let part = hue - category as f32;
        let ratio = if category.is_multiple_of(2) { part } else { 1.0 - part };
        let middle = least + ratio * (most - least);
        *pixel = match category {
            0 => [most, middle, least],
            1 => [middle, most, least],
            2 => [least, most, middle],
            3 => [least, middle, most],
            4 => [middle, least, most],
            _ => [most, least, middle],
        };
    }
}

/// The sixth of the colour wheel, and the channels from the largest to the least. TensorFlow's choice where two are equal.
fn sorted([r, g, b]: [f32; 3]) -> (u32, f32, f32, f32) {
    if r < g {
        if b < r {
            (1, g, r, b)
        } else if b > g {
            (3, b, g, r)
        } else {
            (2, g, b, r)
        }
    } else if b < g {
        (0, r, g, b)
    } else if b > r {
        (4, b, r, g)
    } else {
        (5, r, b, g)
    }
}

/// One number for each RGB pixel: its luma.
///
/// # Panics
/// If there are not as many numbers as pixels.
pub fn grayscale(values: &[f32], out: &mut [f32]) {
    let (pixels, rest) = values.as_chunks::<3>();
    assert!(rest.is_empty() && pixels.len() == out.len(), "{} values for {}", values.len(), out.len());
    let [red, green, blue] = [0.2989, 0.5870, 0.1140];
    if let ([to], [[r, g, b]]) = (&mut *out, pixels) {
        // A product of two vectors is not that of a matrix: it is computed with fused multiply-adds.
        *to = b.mul_add(blue, g.mul_add(green, r * red));
        return;
    }
    for (to, [r, g, b]) in out.iter_mut().zip(pixels) {
        *to = r * red + g * green + b * blue;
    }
}
