//! `ResizeBicubic` with half-pixel centres: Keys' kernel from a table of 1024 steps. What lies outside of the image has
//! weight 0, and the other weights are made to sum up to 1.

use std::sync::LazyLock;

use super::{Sample, Shape, at_best_level, ratio};

const STEPS: usize = 1 << 10;

/// For each step the weights of the nearer and of the farther neighbour.
static TABLE: LazyLock<Vec<[f32; 2]>> = LazyLock::new(|| {
    let a = -0.5f64;
    let weights = |i: usize| {
        let near = f64::from((i as f64 / STEPS as f64) as f32);
        let far = f64::from((near + 1.0) as f32);
        let near = ((a + 2.0) * near - (a + 3.0)) * near * near + 1.0;
        let far = ((a * far - 5.0 * a) * far + 8.0 * a) * far - 4.0 * a;
        [near as f32, far as f32]
    };
    (0..=STEPS).map(weights).collect()
});

/// Four neighbours and their weights.
#[derive(Clone, Copy, Debug)]
struct Taps {
    at: [usize; 4],
    weights: [f32; 4],
}

fn taps(input: usize, output: usize) -> Vec<Taps> {
    let scale = ratio(input, output);
    let one = |i: usize| {
        let at = (i as f32 + 0.5) * scale - 0.5;
        let floor = at.floor();
        let first = floor as i64;
        let step = ((at - first as f32) * STEPS as f32).round_ties_even() as usize;
        let raw = [TABLE[step][1], TABLE[step][0], TABLE[STEPS - step][0], TABLE[STEPS - step][1]];
        let mut taps = Taps { at: [0; 4], weights: [0.0; 4] };
        for (k, weight) in raw.into_iter().enumerate() {
            let wanted = first - 1 + k as i64;
            let inside = wanted.clamp(0, input as i64 - 1);
            taps.at[k] = inside as usize;
            taps.weights[k] = if inside == wanted { weight } else { 0.0 };
        }
        let [a, b, c, d] = taps.weights;
        let sum = a + b + c + d;
        if sum.abs() >= 1000.0 * f32::MIN_POSITIVE {
            let by = 1.0 / sum;
            taps.weights = taps.weights.map(|weight| weight * by);
        }
        taps
    };
    (0..output).map(one).collect()
}

at_best_level! {
    /// Resamples `image` to `size` by cubic interpolation of 4 x 4 neighbours.
    ///
    /// # Panics
    /// If `image` or `out` are not of their shapes, or empty.
    resize_bicubic = run<T>(image: &[T], shape: Shape, out: &mut [f32], size: (usize, usize))
}

#[inline(always)]
fn run<T: Sample>(image: &[T], shape: Shape, out: &mut [f32], size: (usize, usize)) {
    shape.check(image);
    let resized = shape.resized(size);
    resized.check(out);
    let (ys, xs) = (taps(shape.height, size.0), taps(shape.width, size.1));
    let mut column = vec![0.0f32; shape.row()];
    for (y, out) in ys.iter().zip(out.chunks_exact_mut(resized.row())) {
        let [a, b, c, d] = y.at.map(|at| &image[at * shape.row()..][..shape.row()]);
        let w = y.weights;
        for i in 0..shape.row() {
            column[i] = a[i].float() * w[0] + b[i].float() * w[1] + c[i].float() * w[2] + d[i].float() * w[3];
        }
        for (x, out) in xs.iter().zip(out.chunks_exact_mut(shape.channels)) {
            let w = x.weights;
            let at = x.at.map(|at| at * shape.channels);
            for (c, out) in out.iter_mut().enumerate() {
                *out = column[at[0] + c] * w[0]
                    + column[at[1] + c] * w[1]
                    + column[at[2] + c] * w[2]
                    + column[at[3] + c] * w[3];
            }
        }
    }
}
