//! Affine maps of 8-bit images as `cv2.warpAffine` of OpenCV 5 does them on x86-64 with AVX2, bit by bit.
//!
//! OpenCV maps every output pixel into the source in float32 (`modules/imgproc/src/warp_kernels.simd.hpp`): 16 columns at a
//! time by one fused operation on what the row comes to, and the columns left over in another order. Nearest takes the pixel
//! that the point rounds to; linear mixes four by two fused operations along x and one along y, and rounds halves to even.
//! Earlier versions have fixed point arithmetic, and other pixels.

#[cfg(target_arch = "x86_64")]
mod avx2;

use super::pixel;
use crate::{
    image::{Image, View},
    level::Level,
    write::GeometryError,
};

/// Columns that OpenCV maps at a time.
const LANES: usize = 16;

/// How pixels between pixels are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// `INTER_NEAREST`.
    Nearest,
    /// `INTER_LINEAR`.
    Linear,
}

/// What lies outside of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Border {
    /// `BORDER_CONSTANT`: one value a channel.
    Constant([u8; 4]),
    /// `BORDER_REFLECT_101`: the image mirrored, its outermost pixels once.
    Reflect101,
}

/// Maps `src` into `dst`, which gets its size. `matrix` leads from the source to the output: x' = a*x + b*y + c,
/// y' = d*x + e*y + f. One that cannot be inverted takes all pixels from one place, as in OpenCV.
///
/// # Errors
/// [`GeometryError::Memory`] if there is none for the result.
pub fn warp(
    src: View<'_>,
    matrix: &[f64; 6],
    sampling: Sampling,
    border: Border,
    dst: &mut Image,
) -> Result<(), GeometryError> {
    warp_at(Level::best(), src, matrix, sampling, border, dst)
}

/// [`warp`] on the instruction set `level`, or the best there is below it.
///
/// # Errors
/// Those of [`warp`].
pub fn warp_at(
    level: Level,
    src: View<'_>,
    matrix: &[f64; 6],
    sampling: Sampling,
    border: Border,
    dst: &mut Image,
) -> Result<(), GeometryError> {
    let width = src.width();
    let out = dst.reshape(src.height(), width, src.channels())?;
    if out.is_empty() {
        return Ok(());
    }
    let (warp, level) =
        (Warp { src, matrix: inverse(matrix).map(|v| v as f32), sampling, border }, level.supported());
    match src.channels() {
        1 => warp.rows::<1>(level, width, out),
        2 => warp.rows::<2>(level, width, out),
        3 => warp.rows::<3>(level, width, out),
        _ => warp.rows::<4>(level, width, out),
    }
    Ok(())
}

/// From the output to the source, as OpenCV inverts it.
fn inverse(&[a, b, c, d, e, f]: &[f64; 6]) -> [f64; 6] {
    let determinant = a * e - b * d;
    let scale = if determinant == 0.0 { 0.0 } else { 1.0 / determinant };
    let [a, b, d, e] = [e * scale, b * -scale, d * -scale, a * scale];
    [a, b, -a * c - b * f, d, e, -d * c - e * f]
}

/// A map under way.
struct Warp<'a> {
    src: View<'a>,
    /// From the output to the source.
    matrix: [f32; 6],
    sampling: Sampling,
    border: Border,
}

impl Warp<'_> {
    fn rows<const N: usize>(&self, level: Level, width: usize, out: &mut [u8]) {
        for (y, row) in out.chunks_exact_mut(width * N).enumerate() {
            let (row, _) = row.as_chunks_mut::<N>();
            #[cfg(target_arch = "x86_64")]
            if level >= Level::Avx2 {
                // SAFETY: the processor has AVX2 and FMA.
                unsafe { avx2::row(self, y, row) };
                continue;
            }
            let _ = level;
            self.row(y, row);
        }
    }

    fn row<const N: usize>(&self, y: usize, row: &mut [[u8; N]]) {
        let (y, [a, b, c, d, e, f]) = (y as f32, self.matrix);
        let (along_x, along_y) = (b * y + c, e * y + f);
        let whole = row.len() / LANES * LANES;
        for (x, to) in row.iter_mut().enumerate() {
            let column = x as f32;
            let point = if x < whole {
                [a.mul_add(column, along_x), d.mul_add(column, along_y)]
            } else {
                [a.mul_add(column, b * y) + c, d.mul_add(column, e * y) + f]
            };
            *to = match self.sampling {
                Sampling::Nearest => self.nearest(point),
                Sampling::Linear => self.linear(point),
            };
        }
    }

    fn nearest<const N: usize>(&self, [x, y]: [f32; 2]) -> [u8; N] {
        let (x, y) = (x.round_ties_even() as i32, y.round_ties_even() as i32);
        self.pixel(i64::from(x), i64::from(y))
    }

    fn linear<const N: usize>(&self, [x, y]: [f32; 2]) -> [u8; N] {
        let (left, top) = (x.floor(), y.floor());
        let (right, down) = (x - left, y - top);
        let (x, y) = (left as i32, top as i32);
        let (x, y) = (i64::from(x), i64::from(y));
        let four: [[u8; N]; 4] =
            [self.pixel(x, y), self.pixel(x + 1, y), self.pixel(x, y + 1), self.pixel(x + 1, y + 1)];
        let mut mixed = [0; N];
        for (channel, to) in mixed.iter_mut().enumerate() {
            let [p, q, r, s] = four.map(|pixel| f32::from(pixel[channel]));
            let (upper, lower) = (right.mul_add(q - p, p), right.mul_add(s - r, r));
            *to = down.mul_add(lower - upper, upper).round_ties_even() as u8;
        }
        mixed
    }

    /// The pixel in column `x` of row `y`, or what stands for it outside.
    fn pixel<const N: usize>(&self, x: i64, y: i64) -> [u8; N] {
        if let Some(pixel) = pixel::<N>(self.src, x, y) {
            return *pixel;
        }
        match self.border {
            Border::Constant(fill) => std::array::from_fn(|channel| fill[channel]),
            Border::Reflect101 => {
                let (x, y) = (reflected(x, self.src.width()), reflected(y, self.src.height()));
                pixel::<N>(self.src, x, y).copied().unwrap_or([0; N])
            }
        }
    }
}

/// Where `at` lies in `len` samples that are mirrored at both ends, again and again.
fn reflected(at: i64, len: usize) -> i64 {
    let last = len as i64 - 1;
    if last == 0 {
        return 0;
    }
    let place = at.rem_euclid(2 * last);
    place.min(2 * last - place)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(len: usize) -> Vec<u8> {
        (0..len as u64).map(|i| (i.wrapping_mul(6_364_136_223_846_793_005) >> 33) as u8).collect()
    }

    #[test]
    fn every_level_makes_the_same_pixels() {
        let pixels = noise(29 * 37 * 4);
        for channels in 1..=4 {
            let src = View::new(&pixels, 29, 37, channels, 37 * channels).unwrap();
            for sampling in [Sampling::Nearest, Sampling::Linear] {
                for border in [Border::Reflect101, Border::Constant([7, 8, 9, 10])] {
                    for matrix in [[0.9, 0.3, -4.5, -0.2, 1.2, 3.0], [2.0, 0.0, -90.0, 0.5, 0.1, 200.0]] {
                        let made = |level| {
                            let mut dst = Image::new();
                            warp_at(level, src, &matrix, sampling, border, &mut dst).unwrap();
                            dst.pixels().to_vec()
                        };
                        for level in Level::available() {
                            assert_eq!(made(level), made(Level::Scalar), "{level:?} {sampling:?} {border:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn borders_are_filled_or_mirrored() {
        let row = [10, 20, 30, 40];
        let moved = |by: f64, sampling, border| {
            let mut dst = Image::new();
            let src = View::new(&row, 1, 4, 1, 4).unwrap();
            warp(src, &[1.0, 0.0, by, 0.0, 1.0, 0.0], sampling, border, &mut dst).unwrap();
            dst.pixels().to_vec()
        };
        let fill = Border::Constant([99; 4]);
        assert_eq!(moved(2.0, Sampling::Nearest, fill), [99, 99, 10, 20]);
        assert_eq!(moved(2.0, Sampling::Nearest, Border::Reflect101), [30, 20, 10, 20]);
        assert_eq!(moved(-9.0, Sampling::Nearest, Border::Reflect101), [40, 30, 20, 10]);
        assert_eq!(moved(-0.5, Sampling::Linear, Border::Reflect101), [15, 25, 35, 35]);
        // A half is rounded to the even number: 54.5 of 10 and 99.
        assert_eq!(moved(0.5, Sampling::Linear, fill), [54, 15, 25, 35]);
        assert_eq!((0..9).map(|at| reflected(at - 4, 3)).collect::<Vec<_>>(), [0, 1, 2, 1, 0, 1, 2, 1, 0]);
        assert_eq!([-3, 0, 5].map(|at| reflected(at, 1)), [0; 3]);
    }

    #[test]
    fn what_lies_far_outside_is_outside() {
        let pixels = noise(5 * 6 * 3);
        let src = View::new(&pixels, 5, 6, 3, 18).unwrap();
        for matrix in [[1e-12, 0.0, 1e30, 0.0, 1e-12, -1e30], [f64::NAN; 6], [0.0; 6]] {
            for sampling in [Sampling::Nearest, Sampling::Linear] {
                let mut dst = Image::new();
                warp(src, &matrix, sampling, Border::Reflect101, &mut dst).unwrap();
                warp(src, &matrix, sampling, Border::Constant([3; 4]), &mut dst).unwrap();
                assert_eq!((dst.height(), dst.width()), (5, 6));
            }
        }
    }
}
