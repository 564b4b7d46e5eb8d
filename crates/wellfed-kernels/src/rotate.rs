//! Rotation, bit-equal to Pillow 13's `Image.rotate`.
//!
//! The output pixel's centre is mapped back into the source by the inverse rotation (`PIL/Image.py`), and sampled
//! there as `src/libImaging/Geometry.c` does: in 16.16 fixed point for nearest, in double precision for bilinear
//! and bicubic (a = -1, without antialiasing, truncated to 8 bits). Quarter turns are exact moves of pixels.

use crate::{
    image::{Image, View},
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

/// What is rotated how.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rotation {
    /// Degrees counter-clockwise.
    pub angle: f64,
    /// Filter.
    pub sampling: Sampling,
    /// Whether the output is large enough for the whole rotated image.
    pub expand: bool,
    /// Centre (x, y) in pixels from the upper left corner; `None` is the middle.
    pub center: Option<[f64; 2]>,
    /// Value of what comes in from outside, per channel.
    pub fill: [u8; 4],
}

impl Rotation {
    /// Whether every pixel of an image of `height` x `width` moves to a place of its own: no or half a turn about the
    /// middle, or a quarter turn whose result has room.
    pub fn moves_pixels(&self, height: usize, width: usize) -> bool {
        let angle = self.angle.rem_euclid(360.0);
        let quarter = angle == 90.0 || angle == 270.0;
        self.center.is_none()
            && (angle == 0.0 || angle == 180.0 || quarter && (self.expand || height == width))
    }
}

/// Rotates `src` into `dst` of `height` x `width` pixels: the size of `src`, or under `expand` the size that
/// Pillow's rule gives. Nothing is done with a size of zero.
///
/// # Errors
/// [`GeometryError::Memory`] if there is none for the result.
pub fn rotate(
    src: View<'_>,
    rotation: &Rotation,
    (height, width): (usize, usize),
    dst: &mut Image,
) -> Result<(), GeometryError> {
    let channels = src.channels();
    let out = dst.reshape(height, width, channels)?;
    if out.is_empty() {
        return Ok(());
    }
    let angle = rotation.angle.rem_euclid(360.0);
    if rotation.moves_pixels(src.height(), src.width()) {
        let (rows, columns) = (src.height(), src.width());
        for (y, row) in out.chunks_exact_mut(width * channels).enumerate() {
            for (x, pixel) in row.chunks_exact_mut(channels).enumerate() {
                let (y, x) = match angle as u32 {
                    0 => (y, x),
                    90 => (x, columns - 1 - y),
                    180 => (rows - 1 - y, columns - 1 - x),
                    _ => (rows - 1 - x, y),
                };
                pixel.copy_from_slice(&src.row(y)[x * channels..][..channels]);
            }
        }
        return Ok(());
    }
    for pixel in out.chunks_exact_mut(channels) {
        pixel.copy_from_slice(&rotation.fill[..channels]);
    }
    let matrix = matrix(src, rotation, angle, (height, width));
    match rotation.sampling {
        Sampling::Nearest => nearest(src, &matrix, (height, width), out),
        Sampling::Bilinear => generic(src, &matrix, width, out, bilinear),
        Sampling::Bicubic => generic(src, &matrix, width, out, bicubic),
    }
    Ok(())
}

/// From output to source: x' = a*x + b*y + c, y' = d*x + e*y + f.
fn matrix(src: View<'_>, rotation: &Rotation, angle: f64, (height, width): (usize, usize)) -> [f64; 6] {
    let (w, h) = (src.width() as f64, src.height() as f64);
    let [cx, cy] = rotation.center.unwrap_or([w / 2.0, h / 2.0]);
    let angle = -angle.to_radians();
    let (sin, cos) = (round_15(angle.sin()), round_15(angle.cos()));
    let minus_sin = round_15(-angle.sin());
    let mut c = cos * -cx + sin * -cy + 0.0;
    let mut f = minus_sin * -cx + cos * -cy + 0.0;
    c += cx;
    f += cy;
    if rotation.expand {
        let (x, y) = (-(width as f64 - w) / 2.0, -(height as f64 - h) / 2.0);
        (c, f) = (cos * x + sin * y + c, minus_sin * x + cos * y + f);
    }
    [cos, sin, c, minus_sin, cos, f]
}

/// Rounds to 15 decimals as Python's `round(x, 15)` does: both round the exact decimal value, half to even.
fn round_15(x: f64) -> f64 {
    format!("{x:.15}").parse().unwrap_or(x)
}

/// C's conversion to `int` of a coordinate, with everything negative outside.
fn coordinate(v: f64) -> i64 {
    if v < 0.0 { -1 } else { v as i64 }
}

fn pixel<'a>(src: View<'a>, x: i64, y: i64) -> Option<&'a [u8]> {
    let (x, y) = (usize::try_from(x).ok()?, usize::try_from(y).ok()?);
    (x < src.width() && y < src.height()).then(|| &src.row(y)[x * src.channels()..][..src.channels()])
}

fn nearest(src: View<'_>, matrix: &[f64; 6], (height, width): (usize, usize), out: &mut [u8]) {
    let [a, b, c, d, e, f] = *matrix;
    let channels = src.channels();
    let rows = out.chunks_exact_mut(width * channels);
    if b == 0.0 && d == 0.0 {
        // Positions are added up pixel by pixel, rounding as Pillow's does.
        let (mut x, mut y) = (c + a * 0.5, f + e * 0.5);
        let columns: Vec<i64> = (0..width).map(|_| (coordinate(x), x += a).0).collect();
        for row in rows {
            for (to, &column) in row.chunks_exact_mut(channels).zip(&columns) {
                if let Some(from) = pixel(src, column, coordinate(y)) {
                    to.copy_from_slice(from);
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
            for to in row.chunks_exact_mut(channels) {
                if let Some(from) = pixel(src, i64::from(x >> 16), i64::from(y >> 16)) {
                    to.copy_from_slice(from);
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
        for to in row.chunks_exact_mut(channels) {
            if let Some(from) = pixel(src, coordinate(x), coordinate(y)) {
                to.copy_from_slice(from);
            }
            (x, y) = (x + a, y + d);
        }
        (x0, y0) = (x0 + b, y0 + e);
    }
}

/// Samples every output pixel whose point lies inside the source. `sample` gets the point, half a pixel up and
/// left, as whole and fractional parts.
fn generic(
    src: View<'_>,
    matrix: &[f64; 6],
    width: usize,
    out: &mut [u8],
    sample: impl Fn(View<'_>, [i64; 2], [f64; 2], &mut [u8]),
) {
    let [a, b, c, d, e, f] = *matrix;
    let channels = src.channels();
    let (rows, columns) = (src.height() as f64, src.width() as f64);
    for (j, row) in out.chunks_exact_mut(width * channels).enumerate() {
        let y = j as f64 + 0.5;
        for (i, to) in row.chunks_exact_mut(channels).enumerate() {
            let x = i as f64 + 0.5;
            let (x, y) = (a * x + b * y + c, d * x + e * y + f);
            if x < 0.0 || x >= columns || y < 0.0 || y >= rows {
                continue;
            }
            let (x, y) = (x - 0.5, y - 0.5);
            let whole = [x.floor(), y.floor()];
            sample(src, whole.map(|v| v as i64), [x - whole[0], y - whole[1]], to);
        }
    }
}

/// The value of `channel` in column `x` (clipped to the row).
fn value(row: &[u8], src: View<'_>, x: i64, channel: usize) -> f64 {
    let x = x.clamp(0, src.width() as i64 - 1) as usize;
    f64::from(row[x * src.channels() + channel])
}

fn bilinear(src: View<'_>, [x, y]: [i64; 2], [dx, dy]: [f64; 2], to: &mut [u8]) {
    let last = src.height() as i64 - 1;
    let rows = [src.row(y.clamp(0, last) as usize), src.row((y + 1).clamp(0, last) as usize)];
    for (channel, out) in to.iter_mut().enumerate() {
        let across = |row: &[u8]| {
            let (left, right) = (value(row, src, x, channel), value(row, src, x + 1, channel));
            left + (right - left) * dx
        };
        let upper = across(rows[0]);
        let lower = if (0..=last).contains(&(y + 1)) { across(rows[1]) } else { upper };
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

    fn rotated(pixels: &[u8], (h, w): (usize, usize), angle: f64, out: (usize, usize)) -> Vec<u8> {
        let rotation = Rotation {
            angle,
            sampling: Sampling::Nearest,
            expand: out != (h, w),
            center: None,
            fill: [9; 4],
        };
        let mut dst = Image::new();
        rotate(View::new(pixels, h, w, 1, w).unwrap(), &rotation, out, &mut dst).unwrap();
        dst.pixels().to_vec()
    }

    #[test]
    fn quarter_turns_move_pixels_counter_clockwise() {
        let image = [1, 2, 3, 4, 5, 6];
        assert_eq!(rotated(&image, (2, 3), 90.0, (3, 2)), [3, 6, 2, 5, 1, 4]);
        assert_eq!(rotated(&image, (2, 3), 270.0, (3, 2)), [4, 1, 5, 2, 6, 3]);
        assert_eq!(rotated(&image, (2, 3), 180.0, (2, 3)), [6, 5, 4, 3, 2, 1]);
        assert_eq!(rotated(&image, (2, 3), -360.0, (2, 3)), image);
    }

    #[test]
    fn what_comes_from_outside_is_filled() {
        let image = [5; 16];
        let turned = rotated(&image, (4, 4), 45.0, (4, 4));
        assert_eq!([turned[0], turned[5], turned[15]], [9, 5, 9]);
    }

    /// Hashes made by `tests/golden/rotate.py` with Pillow 13.
    #[test]
    fn pixels_equal_pillow_s() {
        let (h, w) = (23, 31);
        let pixels: Vec<u8> = (0..h * w * 3).map(|i: usize| (i * i / 11 + i * 7) as u8).collect();
        let view = View::new(&pixels, h, w, 3, w * 3).unwrap();
        for line in include_str!("../tests/golden/rotate.txt").lines() {
            let parts: Vec<&str> = line.split_whitespace().collect();
            let number = |i: usize| parts[i].parse::<f64>().unwrap();
            let sampling = match parts[1] {
                "nearest" => Sampling::Nearest,
                "bilinear" => Sampling::Bilinear,
                _ => Sampling::Bicubic,
            };
            let center = (parts[3] != "none").then(|| [number(3), number(4)]);
            let rotation = Rotation {
                angle: number(0),
                sampling,
                expand: parts[2] == "True",
                center,
                fill: [7, 8, 9, 0],
            };
            let mut dst = Image::new();
            rotate(view, &rotation, (number(5) as usize, number(6) as usize), &mut dst).unwrap();
            let hash = dst.pixels().iter().fold(0xCBF2_9CE4_8422_2325u64, |hash, byte| {
                (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3)
            });
            assert_eq!(format!("{hash:016x}"), parts[7], "{line}");
        }
    }
}
