//! `ResizeNearestNeighbor` with half-pixel centres. Elements keep their type.

use super::{Shape, ratio};

/// Copies the nearest element for each of `size`.
///
/// # Panics
/// If `image` or `out` are not of their shapes, or empty.
pub fn resize_nearest<T: Copy>(image: &[T], shape: Shape, out: &mut [T], size: (usize, usize)) {
    shape.check(image);
    let resized = shape.resized(size);
    resized.check(out);
    let nearest = |input: usize, output: usize| -> Vec<usize> {
        let scale = ratio(input, output);
        (0..output).map(|i| (((i as f32 + 0.5) * scale).floor() as usize).min(input - 1)).collect()
    };
    let xs = nearest(shape.width, size.1);
    let channels = shape.channels;
    for (y, out) in nearest(shape.height, size.0).into_iter().zip(out.chunks_exact_mut(resized.row())) {
        let row = &image[y * shape.row()..][..shape.row()];
        for (&x, out) in xs.iter().zip(out.chunks_exact_mut(channels)) {
            out.copy_from_slice(&row[x * channels..][..channels]);
        }
    }
}
