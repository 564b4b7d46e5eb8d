//! Perspective maps of images, bit-equal to Pillow 13's `Image.transform(size, Image.PERSPECTIVE, ...)`.
//!
//! Every output pixel's centre is mapped into the source in double precision and sampled there as affine maps are.

use super::{Sampling, at, bicubic, bilinear, coordinate, pixel};
use crate::{
    image::{Image, View},
    write::GeometryError,
};

/// Maps `src` into `dst` of `height` x `width` pixels. The coefficients a to h lead from the output to the source:
/// x' = (a*x + b*y + c) / (g*x + h*y + 1), y' = (d*x + e*y + f) / (g*x + h*y + 1); `fill` is the value per channel of
/// what comes in from outside. Nothing is done with a size of zero.
///
/// # Errors
/// [`GeometryError::Memory`] if there is none for the result.
pub fn perspective(
    src: View<'_>,
    coefficients: &[f64; 8],
    sampling: Sampling,
    fill: [u8; 4],
    (height, width): (usize, usize),
    dst: &mut Image,
) -> Result<(), GeometryError> {
    let channels = src.channels();
    let out = dst.reshape(height, width, channels)?;
    if out.is_empty() {
        return Ok(());
    }
    for pixel in out.chunks_exact_mut(channels) {
        pixel.copy_from_slice(&fill[..channels]);
    }
    match (sampling, channels) {
        (Sampling::Nearest, 1) => nearest::<1>(src, coefficients, width, out),
        (Sampling::Nearest, 2) => nearest::<2>(src, coefficients, width, out),
        (Sampling::Nearest, 3) => nearest::<3>(src, coefficients, width, out),
        (Sampling::Nearest, _) => nearest::<4>(src, coefficients, width, out),
        (Sampling::Bilinear, 1) => between(src, coefficients, width, out, bilinear::<1>),
        (Sampling::Bilinear, 2) => between(src, coefficients, width, out, bilinear::<2>),
        (Sampling::Bilinear, 3) => between(src, coefficients, width, out, bilinear::<3>),
        (Sampling::Bilinear, _) => between(src, coefficients, width, out, bilinear::<4>),
        (Sampling::Bicubic, _) => between(src, coefficients, width, out, bicubic),
    }
    Ok(())
}

/// Calls `each` with every pixel of the output, of so many bytes, and the point of the source that belongs to it.
#[inline]
fn points(
    &[a, b, c, d, e, f, g, h]: &[f64; 8],
    (width, channels): (usize, usize),
    out: &mut [u8],
    mut each: impl FnMut([f64; 2], &mut [u8]),
) {
    for (y, row) in out.chunks_exact_mut(width * channels).enumerate() {
        let y = y as f64 + 0.5;
        for (x, to) in row.chunks_exact_mut(channels).enumerate() {
            let x = x as f64 + 0.5;
            let depth = g * x + h * y + 1.0;
            each([(a * x + b * y + c) / depth, (d * x + e * y + f) / depth], to);
        }
    }
}

fn nearest<const N: usize>(src: View<'_>, coefficients: &[f64; 8], width: usize, out: &mut [u8]) {
    points(coefficients, (width, N), out, |[x, y], to| {
        if let Some(from) = pixel::<N>(src, coordinate(x), coordinate(y)) {
            to.copy_from_slice(from);
        }
    });
}

fn between(
    src: View<'_>,
    coefficients: &[f64; 8],
    width: usize,
    out: &mut [u8],
    sample: impl Fn(View<'_>, [i64; 2], [f64; 2], &mut [u8]),
) {
    points(coefficients, (width, src.channels()), out, |point, to| at(src, point, to, &sample));
}

#[cfg(test)]
mod tests {
    use super::{super::affine, *};

    const ALL: [Sampling; 3] = [Sampling::Nearest, Sampling::Bilinear, Sampling::Bicubic];

    fn mapped(coefficients: &[f64; 8], sampling: Sampling) -> Vec<u8> {
        let pixels: Vec<u8> = (0..90).map(|i| (i * 37 % 251) as u8).collect();
        let mut dst = Image::new();
        let src = View::new(&pixels, 5, 6, 3, 18).unwrap();
        perspective(src, coefficients, sampling, [7, 8, 9, 0], (5, 6), &mut dst).unwrap();
        dst.pixels().to_vec()
    }

    #[test]
    fn without_depth_it_is_an_affine_map() {
        let pixels: Vec<u8> = (0..90).map(|i| (i * 37 % 251) as u8).collect();
        let src = View::new(&pixels, 5, 6, 3, 18).unwrap();
        let matrix = [0.9, 0.15, -0.3, -0.2, 1.1, 0.7];
        for sampling in ALL {
            let mut dst = Image::new();
            affine(src, &matrix, sampling, [7, 8, 9, 0], (5, 6), &mut dst).unwrap();
            let [a, b, c, d, e, f] = matrix;
            assert_eq!(mapped(&[a, b, c, d, e, f, 0.0, 0.0], sampling), dst.pixels(), "{sampling:?}");
        }
    }

    /// Of Pillow 13: the sum of all values, each times its place, counted from 1.
    #[test]
    fn pixels_are_pillows() {
        let coefficients = [1.1, 0.2, -0.4, 0.05, 1.3, -0.7, 0.03, 0.04];
        let sum = |sampling| -> u64 {
            (1u64..).zip(mapped(&coefficients, sampling)).map(|(place, v)| place * u64::from(v)).sum()
        };
        assert_eq!(ALL.map(sum), PILLOW);
    }

    /// For nearest, bilinear and bicubic.
    const PILLOW: [u64; 3] = [517748, 512390, 511088];

    #[test]
    fn a_point_at_infinity_is_outside() {
        for sampling in ALL {
            // The depth is 0 in the first row, and the numerators are not: all of it lies at infinity.
            assert_eq!(mapped(&[0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, -2.0], sampling)[..3], [7, 8, 9]);
        }
    }
}
