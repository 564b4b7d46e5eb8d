//! `ImageProjectiveTransformV3` of affine maps, which `keras.ops.image.affine_transform` runs on TensorFlow.

use super::{Sample, Shape, at_best_level};

/// What lies outside of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// `d c b a | a b c d | d c b a`
    Reflect,
    /// `a b c d | a b c d | a b c d`
    Wrap,
    /// [`Warp::value`], also for neighbours of pixels at the edge.
    Constant,
    /// `a a a a | a b c d | d d d d`
    Nearest,
}

/// Where pixels come from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Warp {
    /// A pixel at (x, y) of the result is that at (`m[0] x + m[1] y + m[2]`, `m[3] x + m[4] y + m[5]`).
    pub matrix: [f32; 6],
    /// Between four neighbours; else the nearest one.
    pub bilinear: bool,
    /// What lies outside.
    pub fill: Fill,
    /// With [`Fill::Constant`].
    pub value: f32,
}

/// Pixels whose places are computed at once.
const BLOCK: usize = 32;

at_best_level! {
    /// Writes an image of the same shape.
    ///
    /// # Panics
    /// If `image` or `out` are not of `shape`, or empty, or a side is not below 2^24.
    affine = run<T>(image: &[T], shape: Shape, warp: &Warp, out: &mut [f32])
}

#[inline(always)]
fn run<T: Sample>(image: &[T], shape: Shape, warp: &Warp, out: &mut [f32]) {
    shape.check(image);
    shape.check(out);
    assert!(shape.height.max(shape.width) < 1 << 24, "an image of {shape:?}");
    match warp.fill {
        Fill::Reflect => filled(image, shape, warp, reflected, out),
        Fill::Wrap => filled(image, shape, warp, wrapped, out),
        Fill::Constant => filled(image, shape, warp, |at, _| at, out),
        Fill::Nearest => filled(image, shape, warp, clamped, out),
    }
}

#[inline(always)]
fn clamped(at: f32, side: f32) -> f32 {
    let at = if at < 0.0 { 0.0 } else { at };
    if side - 1.0 < at { side - 1.0 } else { at }
}

/// TensorFlow counts periods in whole numbers. Floats hold them, or round their products in the same way.
#[inline(always)]
fn reflected(at: f32, side: f32) -> f32 {
    let period = 2.0 * side;
    let below = period * (-at / period).trunc() + at;
    let below = if below < -side { below + period } else { -below - 1.0 };
    let above = at - period * (at / period).trunc();
    let above = if above >= side { period - above - 1.0 } else { above };
    inside_or(at, side, below, above)
}

#[inline(always)]
fn wrapped(at: f32, side: f32) -> f32 {
    let gaps = side - 1.0;
    let below = at + side * ((-at / gaps).trunc() + 1.0);
    let above = at - side * (at / gaps).trunc();
    inside_or(at, side, below, above)
}

#[inline(always)]
fn inside_or(at: f32, side: f32, below: f32, above: f32) -> f32 {
    if side <= 1.0 {
        return 0.0;
    }
    let above = if at > side - 1.0 { above } else { at };
    clamped(if at < 0.0 { below } else { above }, side)
}

#[inline(always)]
fn filled<T: Sample>(
    image: &[T],
    shape: Shape,
    warp: &Warp,
    map: impl Fn(f32, f32) -> f32 + Copy,
    out: &mut [f32],
) {
    match shape.channels {
        3 => pixels::<T, 3>(image, shape, warp, map, out),
        1 => pixels::<T, 1>(image, shape, warp, map, out),
        4 => pixels::<T, 4>(image, shape, warp, map, out),
        channels => any_pixels(image, channels, shape, warp, map, out),
    }
}

/// The places of pixels from `x` on in row `y`, along both sides.
#[inline(always)]
fn places(
    shape: Shape,
    [a, b, c, d, e, f]: [f32; 6],
    map: impl Fn(f32, f32) -> f32 + Copy,
    (x, y): (usize, usize),
) -> [[f32; BLOCK]; 2] {
    let one = |by_x: f32, by_y: f32, offset: f32, side: usize| {
        let (down, side) = (by_y * y as f32, side as f32);
        let mut found: [f32; BLOCK] = std::array::from_fn(|i| by_x * (x + i) as i32 as f32 + down + offset);
        // Places grow or fall along a row, and those inside the image stay where they are.
        let ends = [found[0], found[BLOCK - 1]];
        if !ends.iter().all(|at| (0.0..=side - 1.0).contains(at)) {
            for at in &mut found {
                *at = map(*at, side);
            }
        }
        found
    };
    [one(a, b, c, shape.width), one(d, e, f, shape.height)]
}

/// A whole number, kept near to images, which have less than 2^24 pixels along a side.
#[inline(always)]
fn index(whole: f32) -> i32 {
    let near = whole.max(-2.0).min((1 << 24) as f32);
    // SAFETY: it lies between these two; what is no number becomes the first.
    unsafe { near.to_int_unchecked() }
}

/// Neighbours along one side: the lower one, and the weights of both.
#[inline(always)]
fn neighbours(places: &[f32; BLOCK]) -> ([i32; BLOCK], [[f32; BLOCK]; 2]) {
    let (mut lower, mut weights) = ([0; BLOCK], [[0.0; BLOCK]; 2]);
    for (i, &at) in places.iter().enumerate() {
        let floor = at.floor();
        lower[i] = index(floor);
        weights[0][i] = floor + 1.0 - at;
        weights[1][i] = at - floor;
    }
    (lower, weights)
}

#[inline(always)]
fn pixels<T: Sample, const C: usize>(
    image: &[T],
    shape: Shape,
    warp: &Warp,
    map: impl Fn(f32, f32) -> f32 + Copy,
    out: &mut [f32],
) {
    let image = image.as_chunks::<C>().0;
    let (width, height) = (shape.width as i32, shape.height as i32);
    let read = |x: i32, y: i32| {
        if (0..width).contains(&x) && (0..height).contains(&y) {
            image[y as usize * shape.width + x as usize].map(T::float)
        } else {
            [warp.value; C]
        }
    };
    for (y, row) in out.as_chunks_mut::<C>().0.chunks_exact_mut(shape.width).enumerate() {
        for (block, out) in row.chunks_mut(BLOCK).enumerate() {
            let [xs, ys] = places(shape, warp.matrix, map, (block * BLOCK, y));
            if !warp.bilinear {
                let [xs, ys] = [xs, ys].map(|places| places.map(|at| index(at.round())));
                for (i, out) in out.iter_mut().enumerate() {
                    *out = read(xs[i], ys[i]);
                }
                continue;
            }
            let ((xs, x_weights), (ys, y_weights)) = (neighbours(&xs), neighbours(&ys));
            for (i, out) in out.iter_mut().enumerate() {
                let (x, y) = (xs[i], ys[i]);
                let (right, below) = (x + 1, y + 1);
                let [top, bottom] = if x >= 0 && right < width && y >= 0 && below < height {
                    let at = y as usize * shape.width + x as usize;
                    let pair = |at: usize| [image[at].map(T::float), image[at + 1].map(T::float)];
                    [pair(at), pair(at + shape.width)]
                } else {
                    [[read(x, y), read(right, y)], [read(x, below), read(right, below)]]
                };
                for c in 0..C {
                    let across =
                        |pair: [[f32; C]; 2]| x_weights[0][i] * pair[0][c] + x_weights[1][i] * pair[1][c];
                    out[c] = y_weights[0][i] * across(top) + y_weights[1][i] * across(bottom);
                }
            }
        }
    }
}

/// [`pixels`] of any number of channels, one after the other.
#[inline(always)]
fn any_pixels<T: Sample>(
    image: &[T],
    channels: usize,
    shape: Shape,
    warp: &Warp,
    map: impl Fn(f32, f32) -> f32 + Copy,
    out: &mut [f32],
) {
    let single = Shape { channels: 1, ..shape };
    let (mut plane, mut warped) = (Vec::with_capacity(single.elements()), vec![0.0; single.elements()]);
    for c in 0..channels {
        plane.clear();
        plane.extend(image.iter().skip(c).step_by(channels).map(|x| x.float()));
        pixels::<f32, 1>(&plane, single, warp, map, &mut warped);
        for (to, &x) in out.iter_mut().skip(c).step_by(channels).zip(&warped) {
            *to = x;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// TensorFlow's steps for one side, in whole numbers as it has them.
    fn oracle_place(fill: Fill, at: f32, side: i64) -> f32 {
        let mut now = at;
        let outside = if now < 0.0 { -1 } else { i32::from(now > (side - 1) as f32) };
        match (fill, outside) {
            (Fill::Constant, _) => return at,
            (Fill::Reflect | Fill::Wrap, 1 | -1) if side <= 1 => now = 0.0,
            (Fill::Reflect, -1) => {
                let period = 2 * side;
                now += (period * (-now / period as f32) as i64) as f32;
                now = if now < -side as f32 { now + period as f32 } else { -now - 1.0 };
            }
            (Fill::Reflect, 1) => {
                let period = 2 * side;
                now -= (period * (now / period as f32) as i64) as f32;
                if now >= side as f32 {
                    now = period as f32 - now - 1.0;
                }
            }
            (Fill::Wrap, -1) => now += (side * ((-now / (side - 1) as f32) as i64 + 1)) as f32,
            (Fill::Wrap, 1) => now -= (side * (now / (side - 1) as f32) as i64) as f32,
            _ => {}
        }
        now.max(0.0).min((side - 1) as f32)
    }

    fn oracle(image: &[f32], shape: Shape, warp: &Warp) -> Vec<f32> {
        let [a, b, c, d, e, f] = warp.matrix;
        let (height, width) = (shape.height as i64, shape.width as i64);
        let mut out = Vec::new();
        for y in 0..height {
            for x in 0..width {
                for channel in 0..shape.channels {
                    let read = |y: f32, x: f32| {
                        let (y, x) = (y as i64, x as i64);
                        if y < 0 || x < 0 || y >= height || x >= width {
                            return warp.value;
                        }
                        image[(y * width + x) as usize * shape.channels + channel]
                    };
                    let at_x = oracle_place(warp.fill, a * x as f32 + b * y as f32 + c, width);
                    let at_y = oracle_place(warp.fill, d * x as f32 + e * y as f32 + f, height);
                    if !warp.bilinear {
                        out.push(read(at_y.round(), at_x.round()));
                        continue;
                    }
                    let (x0, y0) = (at_x.floor(), at_y.floor());
                    let across = |y: f32| (x0 + 1.0 - at_x) * read(y, x0) + (at_x - x0) * read(y, x0 + 1.0);
                    out.push((y0 + 1.0 - at_y) * across(y0) + (at_y - y0) * across(y0 + 1.0));
                }
            }
        }
        out
    }

    proptest! {
        #[test]
        fn bits_are_those_of_the_steps_one_by_one(
            (height, width, channels) in (1usize..9, prop_oneof![1usize..9, 60usize..70], 1usize..6),
            turn in prop::array::uniform4(-2.0f32..2.0),
            shift in prop::array::uniform2(-200.0f32..200.0),
            whole in any::<bool>(),
            (bilinear, fill) in (any::<bool>(), 0usize..4),
            seed in any::<u32>(),
        ) {
            let shape = Shape { height, width, channels };
            let bytes: Vec<u8> = (0..shape.elements() as u32)
                .map(|i| (i.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 24) as u8)
                .collect();
            let floats: Vec<f32> = bytes.iter().map(|&x| f32::from(x)).collect();
            let mut matrix = [turn[0], turn[1], shift[0], turn[2], turn[3], shift[1]];
            if whole {
                // Places halfway between pixels, at edges, and on pixels.
                matrix = matrix.map(|x| (x * 2.0).round() / 2.0);
            }
            let fill = [Fill::Reflect, Fill::Wrap, Fill::Constant, Fill::Nearest][fill];
            let warp = Warp { matrix, bilinear, fill, value: 7.5 };
            let expected = oracle(&floats, shape, &warp);
            let mut found = vec![0.0; shape.elements()];
            affine(&bytes, shape, &warp, &mut found);
            prop_assert_eq!(&found, &expected);
            affine(&floats, shape, &warp, &mut found);
            prop_assert_eq!(&found, &expected);
        }
    }

    #[test]
    fn the_identity_changes_nothing() {
        let shape = Shape { height: 5, width: 7, channels: 3 };
        let image: Vec<f32> = (0..shape.elements()).map(|i| i as f32).collect();
        for bilinear in [false, true] {
            for fill in [Fill::Reflect, Fill::Wrap, Fill::Constant, Fill::Nearest] {
                let warp = Warp { matrix: [1.0, 0.0, 0.0, 0.0, 1.0, 0.0], bilinear, fill, value: 3.0 };
                let mut out = vec![0.0; shape.elements()];
                affine(&image, shape, &warp, &mut out);
                assert_eq!(out, image, "{warp:?}");
            }
        }
    }
}
