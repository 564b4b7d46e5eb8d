//! `ScaleAndTranslate` without a translation: what `tf.image.resize` runs with `antialias` and for the kernels that
//! TensorFlow 1 did not have. Rows are summed up first, then columns.

use super::{Sample, Shape, at_best_level};

/// A kernel, as `tf.image.ResizeMethod` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// `bilinear`.
    Triangle,
    /// `bicubic`: Keys' with a = -0.5.
    KeysCubic,
    /// `lanczos3`.
    Lanczos3,
    /// `lanczos5`.
    Lanczos5,
    /// `gaussian`: of standard deviation 0.5 and radius 1.5.
    Gaussian,
    /// `mitchellcubic`.
    MitchellCubic,
}

impl Kernel {
    fn radius(self) -> f32 {
        match self {
            Kernel::Triangle => 1.0,
            Kernel::KeysCubic | Kernel::MitchellCubic => 2.0,
            Kernel::Lanczos3 => 3.0,
            Kernel::Lanczos5 => 5.0,
            Kernel::Gaussian => 1.5,
        }
    }

    fn weight(self, x: f32) -> f32 {
        let x = x.abs();
        match self {
            Kernel::Triangle => {
                if x < 1.0 {
                    1.0 - x
                } else {
                    0.0
                }
            }
            Kernel::KeysCubic if x >= 2.0 => 0.0,
            Kernel::KeysCubic if x >= 1.0 => ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0,
            Kernel::KeysCubic => ((1.5 * x - 2.5) * x) * x + 1.0,
            Kernel::MitchellCubic if x >= 2.0 => 0.0,
            Kernel::MitchellCubic if x >= 1.0 => {
                (((-7.0 / 18.0) * x + 2.0) * x - 10.0 / 3.0) * x + 16.0 / 9.0
            }
            Kernel::MitchellCubic => (((7.0 / 6.0) * x - 2.0) * x) * x + 8.0 / 9.0,
            Kernel::Lanczos3 | Kernel::Lanczos5 => {
                const PI: f32 = std::f32::consts::PI;
                let radius = self.radius();
                if x > radius {
                    0.0
                } else if f64::from(x) <= 1e-3 {
                    1.0
                } else {
                    radius * (PI * x).sin() * (PI * x / radius).sin() / (PI * PI * x * x)
                }
            }
            Kernel::Gaussian if x >= 1.5 => 0.0,
            Kernel::Gaussian => {
                let sigma = f64::from(0.5f32);
                (f64::from(-x * x) / (2.0 * sigma * sigma)).exp() as f32
            }
        }
    }
}

/// The first pixel that each output pixel looks at, and `length` weights from there on.
struct Spans {
    length: usize,
    starts: Vec<usize>,
    weights: Vec<f32>,
}

fn spans(kernel: Kernel, input: usize, output: usize, antialias: bool) -> Spans {
    let scale = output as f32 / input as f32;
    let inverse = (1.0 / f64::from(scale)) as f32;
    let kernel_scale = if antialias { inverse.max(1.0) } else { 1.0 };
    let reach = kernel.radius() * kernel_scale;
    let length = (2 * reach.ceil() as usize + 1).min(input);
    let narrow = 1.0 / kernel_scale;
    let mut spans = Spans { length, starts: vec![0; output], weights: vec![0.0; length * output] };
    for x in 0..output {
        let sample = (x as f32 + 0.5) * inverse;
        if sample < 0.0 || sample > input as f32 {
            continue;
        }
        let last = input as i64 - 1;
        let start = ((sample - reach - 0.5).ceil() as i64).clamp(0, last) as usize;
        let end = ((sample + reach - 0.5).floor() as i64).clamp(0, last) as usize + 1;
        let raw = |source: usize| kernel.weight(((source as f32 + 0.5 - sample) * narrow).abs());
        let mut sum = 0.0f32;
        (start..end).for_each(|source| sum += raw(source));
        if sum.abs() >= 1000.0 * f32::MIN_POSITIVE {
            let by = 1.0 / sum;
            for (weight, source) in spans.weights[x * length..][..length].iter_mut().zip(start..end) {
                *weight = raw(source) * by;
            }
        }
        spans.starts[x] = start;
    }
    spans
}

at_best_level! {
    /// Resamples `image` to `size` by `kernel`, made wider where the image is shrunk if `antialias` is set. `rows` is
    /// memory.
    ///
    /// # Panics
    /// If `image` or `out` are not of their shapes, or empty.
    resize_kernel = run<T>(
        kernel: Kernel,
        antialias: bool,
        image: &[T],
        shape: Shape,
        out: &mut [f32],
        size: (usize, usize),
        rows: &mut Vec<f32>,
    )
}

#[inline(always)]
fn run<T: Sample>(
    kernel: Kernel,
    antialias: bool,
    image: &[T],
    shape: Shape,
    out: &mut [f32],
    size: (usize, usize),
    rows: &mut Vec<f32>,
) {
    shape.check(image);
    let resized = shape.resized(size);
    resized.check(out);
    let ys = spans(kernel, shape.height, size.0, antialias);
    let xs = spans(kernel, shape.width, size.1, antialias);
    let channels = shape.channels;
    rows.clear();
    rows.resize(shape.row(), 0.0);
    for (y, out) in out.chunks_exact_mut(resized.row()).enumerate() {
        rows.fill(0.0);
        let start = ys.starts[y];
        let count = ys.length.min(shape.height - start);
        for (k, &weight) in ys.weights[y * ys.length..][..count].iter().enumerate() {
            let row = &image[(start + k) * shape.row()..][..shape.row()];
            for (sum, &x) in rows.iter_mut().zip(row) {
                *sum += weight * x.float();
            }
        }
        for (x, out) in out.chunks_exact_mut(channels).enumerate() {
            out.fill(0.0);
            let start = xs.starts[x];
            let count = xs.length.min(shape.width - start);
            let weights = &xs.weights[x * xs.length..][..count];
            for (&weight, pixel) in weights.iter().zip(rows[start * channels..].chunks_exact(channels)) {
                for (sum, &x) in out.iter_mut().zip(pixel) {
                    *sum += weight * x;
                }
            }
        }
    }
}
