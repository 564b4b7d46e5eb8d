//! Rotation, bit-equal to Pillow 13's `Image.rotate`.
//!
//! The output pixel's centre is mapped back into the source by the inverse rotation (`PIL/Image.py`), and sampled
//! there by [`crate::affine`]. Quarter turns are exact moves of pixels.

pub use crate::affine::Sampling;
use crate::{
    affine::affine,
    image::{Image, View},
    write::GeometryError,
};

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

impl Rotation {
    /// The same as a map of an image of `height` x `width` to one of `out`, rows and columns: its matrix, as
    /// [`crate::affine::affine`] takes it, and how it finds pixels.
    pub fn as_affine(&self, (height, width): (usize, usize), out: (usize, usize)) -> ([f64; 6], Sampling) {
        let angle = self.angle.rem_euclid(360.0);
        if !self.moves_pixels(height, width) {
            return (matrix((height, width), self, angle, out), self.sampling);
        }
        let (rows, columns) = (height as f64, width as f64);
        // The middles of pixels fall on middles of pixels, exactly.
        let matrix = match angle as u32 {
            0 => [1.0, 0.0, 0.0, 0.0, 1.0, 0.0],
            90 => [0.0, -1.0, columns, 1.0, 0.0, 0.0],
            180 => [-1.0, 0.0, columns, 0.0, -1.0, rows],
            _ => [0.0, 1.0, 0.0, -1.0, 0.0, rows],
        };
        (matrix, Sampling::Nearest)
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
    let angle = rotation.angle.rem_euclid(360.0);
    if rotation.moves_pixels(src.height(), src.width()) {
        let channels = src.channels();
        let out = dst.reshape(height, width, channels)?;
        let (rows, columns) = (src.height(), src.width());
        if out.is_empty() {
            return Ok(());
        }
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
    let matrix = matrix((src.height(), src.width()), rotation, angle, (height, width));
    affine(src, &matrix, rotation.sampling, rotation.fill, (height, width), dst)
}

/// From output to source: x' = a*x + b*y + c, y' = d*x + e*y + f.
fn matrix(
    (rows, columns): (usize, usize),
    rotation: &Rotation,
    angle: f64,
    (height, width): (usize, usize),
) -> [f64; 6] {
    let (w, h) = (columns as f64, rows as f64);
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
    fn every_rotation_is_an_affine_map() {
        let pixels: Vec<u8> = (1..=35).collect();
        for (h, w) in [(5, 7), (5, 5), (7, 5)] {
            let view = View::new(&pixels[..h * w], h, w, 1, w).unwrap();
            let turns = [0.0, 90.0, 180.0, 270.0, -90.0, 33.0, 90.5];
            for (angle, expand) in turns.into_iter().flat_map(|angle| [(angle, false), (angle, true)]) {
                let rotation =
                    Rotation { angle, sampling: Sampling::Bilinear, expand, center: None, fill: [9; 4] };
                let quarter = expand && angle.abs() % 180.0 == 90.0;
                let out = if quarter { (w, h) } else { (h, w) };
                let (mut turned, mut mapped) = (Image::new(), Image::new());
                rotate(view, &rotation, out, &mut turned).unwrap();
                let (matrix, sampling) = rotation.as_affine((h, w), out);
                affine(view, &matrix, sampling, [9; 4], out, &mut mapped).unwrap();
                assert_eq!(turned.pixels(), mapped.pixels(), "{h}x{w} {angle} {expand}");
            }
        }
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
