//! What `keras.layers.RandomContrast` and `RandomBrightness` do on TensorFlow.

use super::Shape;

/// Columns that TensorFlow adds up at once, on processors with AVX.
const PACKET: usize = 8;

/// `x + delta`, kept within `range`.
pub fn brightness(delta: f32, range: [f32; 2], values: &mut [f32]) {
    for x in values {
        *x = kept(*x + delta, range);
    }
}

/// `(x - mean) * factor + mean` with the mean of each channel, kept within `range`.
///
/// # Panics
/// If `values` are not of `shape`, or empty.
pub fn contrast(factor: f32, range: [f32; 2], values: &mut [f32], shape: Shape) {
    let means = means(values, shape);
    match *means {
        [mean] => {
            for x in values {
                *x = kept((*x - mean) * factor + mean, range);
            }
        }
        [a, b, c] => {
            let change = |x: f32, mean: f32| kept((x - mean) * factor + mean, range);
            for pixel in values.as_chunks_mut::<3>().0 {
                *pixel = [change(pixel[0], a), change(pixel[1], b), change(pixel[2], c)];
            }
        }
        _ => {
            for pixel in values.chunks_exact_mut(shape.channels) {
                for (x, mean) in pixel.iter_mut().zip(&means) {
                    *x = kept((*x - mean) * factor + mean, range);
                }
            }
        }
    }
}

#[inline(always)]
fn kept(x: f32, [low, high]: [f32; 2]) -> f32 {
    let x = if high < x { high } else { x };
    if x < low { low } else { x }
}

/// The mean of each channel: of columns, then of these means, added up in TensorFlow's order. It adds whole packets of
/// columns up in four sums where there are at least 16 rows, and others in one.
fn means(values: &[f32], shape: Shape) -> Vec<f32> {
    shape.check(values);
    let row = shape.row();
    let packed = if shape.height < 16 { 0 } else { row / PACKET * PACKET };
    let mut sums = vec![0.0; 4 * row];
    let (first, others) = sums.split_at_mut(row);
    let fours = shape.height / 4 * 4;
    for (y, line) in values.chunks_exact(row).enumerate().take(fours) {
        let to = if y % 4 == 0 { &mut *first } else { &mut others[(y % 4 - 1) * row..][..row] };
        add(&mut to[..packed], &line[..packed]);
        add(&mut first[packed..], &line[packed..]);
    }
    for other in others.chunks_exact(row) {
        add(&mut first[..packed], &other[..packed]);
    }
    for line in values.chunks_exact(row).skip(fours) {
        add(first, line);
    }
    let mut means = vec![0.0; shape.channels];
    for pixel in first.chunks_exact(shape.channels) {
        for (mean, sum) in means.iter_mut().zip(pixel) {
            *mean += sum / shape.height as f32;
        }
    }
    for mean in &mut means {
        *mean /= shape.width as f32;
    }
    means
}

#[inline(always)]
fn add(to: &mut [f32], from: &[f32]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to += from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_those_of_channels() {
        for (height, width) in [(1, 1), (5, 3), (16, 8), (19, 13)] {
            let shape = Shape { height, width, channels: 3 };
            let values: Vec<f32> = (0..shape.elements()).map(|i| (i * 37 % 101) as f32).collect();
            let mut sums = [0.0f64; 3];
            for pixel in values.chunks_exact(3) {
                sums.iter_mut().zip(pixel).for_each(|(sum, &x)| *sum += f64::from(x));
            }
            for (found, sum) in means(&values, shape).into_iter().zip(sums) {
                let expected = sum / (height * width) as f64;
                assert!((f64::from(found) - expected).abs() < 1e-4, "{found} for {expected} of {shape:?}");
            }
        }
    }

    #[test]
    fn values_are_spread_about_the_mean_and_kept_within_the_range() {
        for channels in [1, 2, 3] {
            let shape = Shape { height: 1, width: 2, channels };
            let mut values = [vec![100.0; channels], vec![200.0; channels]].concat();
            contrast(2.0, [0.0, 240.0], &mut values, shape);
            assert_eq!(values, [vec![50.0; channels], vec![240.0; channels]].concat());
        }
        let mut values = [0.0, 100.0, 250.0];
        brightness(-20.0, [0.0, 255.0], &mut values);
        assert_eq!(values, [0.0, 80.0, 230.0]);
        brightness(100.0, [0.0, 255.0], &mut values);
        assert_eq!(values, [100.0, 180.0, 255.0]);
    }
}
