//! `ResizeArea`: each output pixel is the mean of the input under it.

use super::{Sample, Shape, at_best_level, ratio};

/// The pixels under an output pixel, and how much of each.
#[derive(Debug)]
struct Span {
    at: Vec<usize>,
    parts: Vec<f32>,
}

fn spans(input: usize, output: usize) -> Vec<Span> {
    let scale = ratio(input, output);
    let one = |i: usize| {
        let (from, to) = (i as f32 * scale, (i + 1) as f32 * scale);
        let (start, end) = (from.floor() as i64, to.ceil() as i64);
        let part = |i: i64| {
            let (i, next) = (i as f32, (i + 1) as f32);
            match (i < from, next > to) {
                (true, true) => scale,
                (true, false) => next - from,
                (false, true) => to - i,
                (false, false) => 1.0,
            }
        };
        let at = (start..end).map(|i| i.clamp(0, input as i64 - 1) as usize).collect();
        Span { at, parts: (start..end).map(part).collect() }
    };
    (0..output).map(one).collect()
}

at_best_level! {
    /// Resamples `image` to `size` by means of areas.
    ///
    /// # Panics
    /// If `image` or `out` are not of their shapes, or empty.
    resize_area = run<T>(image: &[T], shape: Shape, out: &mut [f32], size: (usize, usize))
}

#[inline(always)]
fn run<T: Sample>(image: &[T], shape: Shape, out: &mut [f32], size: (usize, usize)) {
    shape.check(image);
    let resized = shape.resized(size);
    resized.check(out);
    let (ys, xs) = (spans(shape.height, size.0), spans(shape.width, size.1));
    let scale = ratio(shape.height, size.0) * ratio(shape.width, size.1);
    let scale = (1.0 / f64::from(scale)) as f32;
    let channels = shape.channels;
    for (y, out) in ys.iter().zip(out.chunks_exact_mut(resized.row())) {
        out.fill(0.0);
        for (&row, &weight) in y.at.iter().zip(&y.parts) {
            let row = &image[row * shape.row()..][..shape.row()];
            for (x, out) in xs.iter().zip(out.chunks_exact_mut(channels)) {
                let (Some(&first), Some(&last)) = (x.at.first(), x.at.last()) else { continue };
                for (c, out) in out.iter_mut().enumerate() {
                    let mut sum = row[first * channels + c].float() * x.parts[0];
                    if x.at.len() > 1 {
                        // Whole pixels between the first and the last.
                        for &at in &x.at[1..x.at.len() - 1] {
                            sum += row[at * channels + c].float();
                        }
                        sum += row[last * channels + c].float() * x.parts[x.at.len() - 1];
                    }
                    *out += sum * weight;
                }
            }
        }
        out.iter_mut().for_each(|out| *out *= scale);
    }
}
