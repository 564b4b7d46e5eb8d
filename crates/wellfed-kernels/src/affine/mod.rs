//! Affine maps of images, bit-equal to Pillow 13's `Image.transform(size, Image.AFFINE, ...)`.
//!
//! Every output pixel's centre is mapped into the source and sampled there as `src/libImaging/Geometry.c` does: in
//! 16.16 fixed point for nearest, in double precision for bilinear and bicubic (a = -1, without antialiasing, truncated
//! to 8 bits). Moves by whole pixels are copied, which is what all of this comes to for them.

#[cfg(target_arch = "x86_64")]
mod avx2;
pub mod opencv;
mod perspective;

pub use perspective::perspective;

use crate::{
    image::{Image, View},
    level::Level,
    write::GeometryError,
};

/// How pixels between pixels are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// The pixel whose area holds the point.
    Nearest,
    /// Weighted mean of 2x2 pixels.
    Bilinear,
    /// Cubic convolution of 4x4 pixels.
    Bicubic,
}

/// Maps `src` into `dst` of `height` x `width` pixels. `matrix` leads from the output to the source:
/// x' = a*x + b*y + c, y' = d*x + e*y + f; `fill` is the value per channel of what comes in from outside. Nothing is
/// done with a size of zero.
///
/// # Errors
/// [`GeometryError::Memory`] if there is none for the result.
pub fn affine(
    src: View<'_>,
    matrix: &[f64; 6],
    sampling: Sampling,
    fill: [u8; 4],
    size: (usize, usize),
    dst: &mut Image,
) -> Result<(), GeometryError> {
    affine_at(Level::best(), src, matrix, sampling, fill, size, dst)
}

/// [`affine`] on the instruction set `level`, or the best there is below it.
///
/// # Errors
/// Those of [`affine`].
pub fn affine_at(
    level: Level,
    src: View<'_>,
    matrix: &[f64; 6],
    sampling: Sampling,
    fill: [u8; 4],
    (height, width): (usize, usize),
    dst: &mut Image,
) -> Result<(), GeometryError> {
    let level = level.supported();
    let channels = src.channels();
    let out = dst.reshape(height, width, channels)?;
    if out.is_empty() {
        return Ok(());
    }
    for pixel in out.chunks_exact_mut(channels) {
        pixel.copy_from_slice(&fill[..channels]);
    }
    if let Some(offset) = whole_move(matrix) {
        copy(src, offset, width, out);
        return Ok(());
    }
    match (sampling, channels) {
        (Sampling::Nearest, 1) => nearest::<1>(src, matrix, (height, width), out),
        (Sampling::Nearest, 2) => nearest::<2>(src, matrix, (height, width), out),
        (Sampling::Nearest, 3) => nearest::<3>(src, matrix, (height, width), out),
        (Sampling::Nearest, _) => nearest::<4>(src, matrix, (height, width), out),
        (Sampling::Bilinear, 1) => bilinears::<1>(level, src, matrix, width, out),
        (Sampling::Bilinear, 2) => bilinears::<2>(level, src, matrix, width, out),
        (Sampling::Bilinear, 3) => bilinears::<3>(level, src, matrix, width, out),
        (Sampling::Bilinear, _) => bilinears::<4>(level, src, matrix, width, out),
        (Sampling::Bicubic, _) => generic(src, matrix, width, out, bicubic),
    }
    Ok(())
}

/// By how many columns and rows a map moves the image, if it does nothing else.
fn whole_move(&[a, b, c, d, e, f]: &[f64; 6]) -> Option<[i64; 2]> {
    // Below this, halves are exact numbers at every place of an image.
    let whole = |v: f64| (v.fract() == 0.0 && v.abs() < (1u64 << 40) as f64).then_some(v as i64);
    if [a, b, d, e] != [1.0, 0.0, 0.0, 1.0] {
        return None;
    }
    Some([whole(c)?, whole(f)?])
}

/// Copies what the source has at `offset` (columns, rows) of the output.
fn copy(src: View<'_>, [right, down]: [i64; 2], width: usize, out: &mut [u8]) {
    let channels = src.channels();
    // Columns of the output that lie inside of the source.
    let inside = |x: i64| x.clamp(0, width as i64) as usize;
    let (start, end) = (inside(-right), inside(src.width() as i64 - right));
    if start >= end {
        return;
    }
    let from = (start as i64 + right) as usize * channels;
    for (y, row) in (down..).zip(out.chunks_exact_mut(width * channels)) {
        if (0..src.height() as i64).contains(&y) {
            let to = &mut row[start * channels..end * channels];
            to.copy_from_slice(&src.row(y as usize)[from..][..to.len()]);
        }
    }
}

/// C's conversion to `int` of a coordinate, with everything negative outside.
fn coordinate(v: f64) -> i64 {
    if v < 0.0 { -1 } else { v as i64 }
}

/// The pixel of `N` bytes at (x, y), if there is one.
#[inline]
fn pixel<const N: usize>(src: View<'_>, x: i64, y: i64) -> Option<&[u8; N]> {
    let (x, y) = (usize::try_from(x).ok()?, usize::try_from(y).ok()?);
    if x >= src.width() || y >= src.height() {
        return None;
    }
    src.data()[y * src.stride() + x * N..].first_chunk()
}

/// Nearest neighbours of an image of `N` channels.
fn nearest<const N: usize>(
    src: View<'_>,
    matrix: &[f64; 6],
    (height, width): (usize, usize),
    out: &mut [u8],
) {
    let [a, b, c, d, e, f] = *matrix;
    let rows = out.chunks_exact_mut(width * N);
    if b == 0.0 && d == 0.0 {
        // Positions are added up pixel by pixel, rounding as Pillow's does.
        let (mut x, mut y) = (c + a * 0.5, f + e * 0.5);
        let columns: Vec<i64> = (0..width).map(|_| (coordinate(x), x += a).0).collect();
        for row in rows {
            let from = coordinate(y);
            for (to, &column) in row.as_chunks_mut::<N>().0.iter_mut().zip(&columns) {
                if let Some(from) = pixel(src, column, from) {
                    *to = *from;
                }
            }
            y += e;
        }
        return;
    }
    let (w, h) = (width as f64, height as f64);
    let small = |x: f64, y: f64| (x * a + y * b + c).abs() < 32768.0 && (x * d + y * e + f).abs() < 32768.0;
    if small(0.0, 0.0) && small(w, h) && small(0.0, h) && small(w, 0.0) {
        let fix = |v: f64| (v * 65536.0 + 0.5).floor() as i32;
        let (dx, dy) = ((fix(a), fix(d)), (fix(b), fix(e)));
        let (mut x0, mut y0) = (fix(c + a * 0.5 + b * 0.5), fix(f + d * 0.5 + e * 0.5));
        for row in rows {
            let (mut x, mut y) = (x0, y0);
            for to in row.as_chunks_mut::<N>().0 {
                if let Some(from) = pixel(src, i64::from(x >> 16), i64::from(y >> 16)) {
                    *to = *from;
                }
                (x, y) = (x.wrapping_add(dx.0), y.wrapping_add(dx.1));
            }
            (x0, y0) = (x0.wrapping_add(dy.0), y0.wrapping_add(dy.1));
        }
        return;
    }
    let (mut x0, mut y0) = (c + b * 0.5 + a * 0.5, f + e * 0.5 + d * 0.5);
    for row in rows {
        let (mut x, mut y) = (x0, y0);
        for to in row.as_chunks_mut::<N>().0 {
            if let Some(from) = pixel(src, coordinate(x), coordinate(y)) {
                *to = *from;
            }
            (x, y) = (x + a, y + d);
        }
        (x0, y0) = (x0 + b, y0 + e);
    }
}

/// Samples an image of `N` channels by bilinear interpolation.
fn bilinears<const N: usize>(level: Level, src: View<'_>, matrix: &[f64; 6], width: usize, out: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if level >= Level::Avx2 {
        for (y, row) in out.chunks_exact_mut(width * N).enumerate() {
            // SAFETY: the processor has AVX2.
            unsafe { avx2::row::<N>(src, matrix, y as f64 + 0.5, row) };
        }
        return;
    }
    let _ = level;
    generic(src, matrix, width, out, bilinear::<N>);
}

/// Samples every output pixel whose point lies inside the source.
fn generic(
    src: View<'_>,
    matrix: &[f64; 6],
    width: usize,
    out: &mut [u8],
    sample: impl Fn(View<'_>, [i64; 2], [f64; 2], &mut [u8]),
) {
    for (y, row) in out.chunks_exact_mut(width * src.channels()).enumerate() {
        span(src, matrix, y as f64 + 0.5, 0, row, &sample);
    }
}

/// Samples the pixels of an output row, of which `out` has those from `first` on; `y` is the row's middle. `sample` gets
/// the point, half a pixel up and left, as whole and fractional parts.
#[inline]
fn span(
    src: View<'_>,
    matrix: &[f64; 6],
    y: f64,
    first: usize,
    out: &mut [u8],
    sample: impl Fn(View<'_>, [i64; 2], [f64; 2], &mut [u8]),
) {
    let [a, b, c, d, e, f] = *matrix;
    for (i, to) in (first..).zip(out.chunks_exact_mut(src.channels())) {
        let x = i as f64 + 0.5;
        at(src, [a * x + b * y + c, d * x + e * y + f], to, &sample);
    }
}

/// Samples the point (x, y), if it lies inside the source. `sample` gets it half a pixel up and left, as whole and
/// fractional parts.
#[inline]
fn at(
    src: View<'_>,
    [x, y]: [f64; 2],
    to: &mut [u8],
    sample: impl Fn(View<'_>, [i64; 2], [f64; 2], &mut [u8]),
) {
    let (rows, columns) = (src.height() as f64, src.width() as f64);
    if x < 0.0 || x >= columns || y < 0.0 || y >= rows {
        return;
    }
    let (x, y) = (x - 0.5, y - 0.5);
    // Without floor(), which is a call of a function where SSE 4.1 is not taken for granted.
    let whole = [x, y].map(|v| v as i64 - i64::from(v < 0.0));
    sample(src, whole, [x - whole[0] as f64, y - whole[1] as f64], to);
}

/// The value of `channel` in column `x` (clipped to the row).
fn value(row: &[u8], src: View<'_>, x: i64, channel: usize) -> f64 {
    let x = x.clamp(0, src.width() as i64 - 1) as usize;
    f64::from(row[x * src.channels() + channel])
}

fn bilinear<const N: usize>(src: View<'_>, [x, y]: [i64; 2], [dx, dy]: [f64; 2], to: &mut [u8]) {
    // Beyond the border its pixels are repeated.
    let (right, bottom) = (src.width() as i64 - 1, src.height() as i64 - 1);
    let columns = [x.clamp(0, right), (x + 1).clamp(0, right)];
    let rows = [y.clamp(0, bottom), (y + 1).clamp(0, bottom)];
    let at = |row: usize, column: usize| pixel::<N>(src, columns[column], rows[row]);
    let (Some(a), Some(b), Some(c), Some(d)) = (at(0, 0), at(0, 1), at(1, 0), at(1, 1)) else { return };
    for (channel, out) in to.iter_mut().enumerate() {
        let across = |left: u8, right: u8| f64::from(left) + (f64::from(right) - f64::from(left)) * dx;
        let (upper, lower) = (across(a[channel], b[channel]), across(c[channel], d[channel]));
        *out = (upper + (lower - upper) * dy) as u8;
    }
}

fn bicubic(src: View<'_>, [x, y]: [i64; 2], [dx, dy]: [f64; 2], to: &mut [u8]) {
    let last = src.height() as i64 - 1;
    let (x, y) = (x - 1, y - 1);
    for (channel, out) in to.iter_mut().enumerate() {
        let across = |y: i64| {
            let row = src.row(y.clamp(0, last) as usize);
            cubic([0, 1, 2, 3].map(|i| value(row, src, x + i, channel)), dx)
        };
        let mut lines = [across(y); 4];
        for i in 1..4 {
            // A row outside repeats the result of the one before it.
            let inside = (0..=last).contains(&(y + i as i64));
            lines[i] = if inside { across(y + i as i64) } else { lines[i - 1] };
        }
        *out = cubic(lines, dy).clamp(0.0, 255.0) as u8;
    }
}

fn cubic([v1, v2, v3, v4]: [f64; 4], d: f64) -> f64 {
    let p2 = -v1 + v3;
    let p3 = 2.0 * (v1 - v2) + v3 - v4;
    let p4 = -v1 + v2 - v3 + v4;
    v2 + d * (p2 + d * (p3 + d * p4))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(matrix: [f64; 6], sampling: Sampling) -> Vec<u8> {
        let pixels: Vec<u8> = (1..=12).collect();
        let mut dst = Image::new();
        let src = View::new(&pixels, 3, 4, 1, 4).unwrap();
        affine(src, &matrix, sampling, [99; 4], (3, 4), &mut dst).unwrap();
        dst.pixels().to_vec()
    }

    #[test]
    fn what_comes_from_outside_is_filled() {
        let right = moved([1.0, 0.0, -1.0, 0.0, 1.0, 0.0], Sampling::Nearest);
        assert_eq!(right, [99, 1, 2, 3, 99, 5, 6, 7, 99, 9, 10, 11]);
        assert_eq!(moved([1.0, 0.0, 9.0, 0.0, 1.0, 0.0], Sampling::Bilinear), [99; 12]);
    }

    #[test]
    fn a_shear_moves_rows_by_different_amounts() {
        // x' = x - y: row 1 starts half a pixel further than half, which rounds up.
        let sheared = moved([1.0, -1.0, 0.0, 0.0, 1.0, 0.0], Sampling::Nearest);
        assert_eq!(sheared, [1, 2, 3, 4, 99, 5, 6, 7, 99, 99, 9, 10]);
    }

    #[test]
    fn all_filters_keep_an_image_that_does_not_move() {
        for sampling in [Sampling::Nearest, Sampling::Bilinear, Sampling::Bicubic] {
            let kept: Vec<u8> = (1..=12).collect();
            assert_eq!(moved([1.0, 0.0, 0.0, 0.0, 1.0, 0.0], sampling), kept, "{sampling:?}");
        }
    }

    #[test]
    fn a_move_by_whole_pixels_is_what_sampling_gives() {
        let pixels: Vec<u8> = (1..=12).collect();
        let src = View::new(&pixels, 3, 4, 1, 4).unwrap();
        for (right, down) in (-5i64..=5).flat_map(|x| (-4i64..=4).map(move |y| (x, y))) {
            let matrix = [1.0, 0.0, right as f64, -0.0, 1.0, down as f64];
            let mut sampled = vec![99; 5 * 6];
            generic(src, &matrix, 6, &mut sampled, bilinear::<1>);
            let mut cubic = vec![99; 5 * 6];
            generic(src, &matrix, 6, &mut cubic, bicubic);
            let mut near = vec![99; 5 * 6];
            nearest::<1>(src, &matrix, (5, 6), &mut near);
            let mut moved = Image::new();
            affine(src, &matrix, Sampling::Bilinear, [99; 4], (5, 6), &mut moved).unwrap();
            for other in [sampled, cubic, near] {
                assert_eq!(moved.pixels(), other, "{right} {down}");
            }
        }
        assert_eq!(whole_move(&[1.0, 0.0, 0.5, 0.0, 1.0, 0.0]), None);
        assert_eq!(whole_move(&[1.0, 0.0, f64::NAN, 0.0, 1.0, 0.0]), None);
        assert_eq!(whole_move(&[1.0, 0.0, 1e300, 0.0, 1.0, 0.0]), None);
    }

    #[test]
    fn coordinates_that_do_not_fit_fixed_point_are_sampled_in_double_precision() {
        let far = moved([1.0, 1e-9, 40_000.0, 0.0, 1.0, 0.0], Sampling::Nearest);
        assert_eq!(far, [99; 12]);
        // Half of the corners fit: (x * 1e4) leaves 16 bits at the right end.
        let wide = moved([1e4, 1e-9, 0.0, 0.0, 1.0, 0.0], Sampling::Nearest);
        assert_eq!(wide, [99; 12]);
    }
}
