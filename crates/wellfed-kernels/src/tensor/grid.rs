//! Images sampled at the points of a grid, as torch's `grid_sample(..., padding_mode="zeros", align_corners=False)` does
//! it, under torchvision's rules for what comes in from outside.
//!
//! A grid's coordinates are -1 at the left or upper border and 1 at the right or lower one.

use super::Api;
use crate::{
    image::{Image, View},
    level::Level,
    write::GeometryError,
};

/// How pixels between pixels are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The pixel nearest to the point.
    Nearest,
    /// Weighted mean of 2x2 pixels.
    Bilinear,
}

/// How an image is sampled.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// How pixels between pixels are found.
    pub mode: Mode,
    /// Values of what comes in from outside; `None` is black, into which bilinear sampling fades in the same way.
    pub fill: Option<[f32; 4]>,
    /// Whose rule of filling it is.
    pub api: Api,
}

/// Maps `src` into `dst` of its size by an affine map around the middle, in pixels, that leads from the output to the
/// source: x' = a*x + b*y + c, y' = d*x + e*y + f.
///
/// # Errors
/// [`GeometryError::Memory`] if there is none for the result.
pub fn affine(src: View<'_>, matrix: &[f64; 6], rule: Rule, dst: &mut Image) -> Result<(), GeometryError> {
    let (height, width) = (src.height(), src.width());
    let half = [width, height].map(|side| (0.5 * side as f64) as f32);
    let [a, b, c, d, e, f] = matrix.map(|x| x as f32);
    let (across, down) = ([a, b, c].map(|x| x / half[0]), [d, e, f].map(|x| x / half[1]));
    let middle = |side: usize| (side as f32 - 1.0) * 0.5;
    let middle = [middle(width), middle(height)];
    // torch multiplies few rows in a simple loop, and more of them in MKL, which fuses on Intel's processors alone (seen with
    // MKL 2024.2 on Xeons, and on EPYC).
    let fused = height * width * 6 >= 400 && intel();
    let product = move |[p, q, r]: [f32; 3], [x, y]: [f32; 2]| {
        if fused { y.mul_add(q, x * p) + r } else { (x * p + y * q) + r }
    };
    sample(src, rule, dst, move |x, y| {
        let point = [x as f32 - middle[0], y as f32 - middle[1]];
        [product(across, point), product(down, point)]
    })
}

/// Whether the processor is one of Intel's.
fn intel() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use std::{arch::x86_64::__cpuid, sync::LazyLock};
        // Asked once: a virtual machine leaves the guest for it.
        static INTEL: LazyLock<bool> = LazyLock::new(|| {
            // SAFETY: every x86-64 processor has the instruction. (Newer compilers know.)
            #[allow(unused_unsafe)]
            let id = unsafe { __cpuid(0) };
            [id.ebx, id.edx, id.ecx].map(u32::to_le_bytes).concat() == b"GenuineIntel"
        });
        *INTEL
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Fills `dst`, of the size of `src`, with what `src` has at `grid(column, row)`.
///
/// # Errors
/// [`GeometryError::Memory`] if there is none for the result.
pub fn sample(
    src: View<'_>,
    rule: Rule,
    dst: &mut Image,
    grid: impl Fn(usize, usize) -> [f32; 2],
) -> Result<(), GeometryError> {
    let out = dst.reshape(src.height(), src.width(), src.channels())?;
    if out.is_empty() {
        return Ok(());
    }
    #[cfg(target_arch = "x86_64")]
    if Level::best() >= Level::Avx2 {
        // SAFETY: the processor has AVX2 and FMA.
        unsafe { fused(src, rule, out, grid) };
        return Ok(());
    }
    plain(src, rule, out, grid);
    Ok(())
}

/// [`plain`], compiled for processors on which `mul_add` is one instruction.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn fused(src: View<'_>, rule: Rule, out: &mut [u8], grid: impl Fn(usize, usize) -> [f32; 2]) {
    plain(src, rule, out, grid);
}

#[inline(always)]
fn plain(src: View<'_>, rule: Rule, out: &mut [u8], grid: impl Fn(usize, usize) -> [f32; 2]) {
    let channels = src.channels();
    let half = [src.width(), src.height()].map(|side| side as f32 / 2.0);
    for (y, row) in out.chunks_exact_mut(src.width() * channels).enumerate() {
        for (x, to) in row.chunks_exact_mut(channels).enumerate() {
            let [u, v] = grid(x, y);
            let point = [(u + 1.0).mul_add(half[0], -0.5), (v + 1.0).mul_add(half[1], -0.5)];
            match rule.mode {
                Mode::Nearest => nearest(src, rule, point, to),
                Mode::Bilinear => bilinear(src, rule, point, to),
            }
        }
    }
}

/// The pixel at (x, y), if there is one.
#[inline(always)]
fn pixel<'a>(src: View<'a>, [x, y]: [f32; 2]) -> Option<&'a [u8]> {
    let inside = x >= 0.0 && x < src.width() as f32 && y >= 0.0 && y < src.height() as f32;
    inside.then(|| &src.row(y as usize)[x as usize * src.channels()..][..src.channels()])
}

#[inline(always)]
fn nearest(src: View<'_>, rule: Rule, point: [f32; 2], to: &mut [u8]) {
    match (pixel(src, point.map(f32::round_ties_even)), rule.fill) {
        (Some(from), _) => to.copy_from_slice(from),
        (None, fill) => {
            for (to, value) in to.iter_mut().zip(fill.unwrap_or_default()) {
                *to = round(value);
            }
        }
    }
}

#[inline(always)]
fn bilinear(src: View<'_>, rule: Rule, [x, y]: [f32; 2], to: &mut [u8]) {
    let (left, top) = (x.floor(), y.floor());
    let ([w, n], [e, s]) = ([x - left, y - top], [1.0 - (x - left), 1.0 - (y - top)]);
    let weights = [s * e, s * w, n * e, n * w];
    let corners =
        [[left, top], [left + 1.0, top], [left, top + 1.0], [left + 1.0, top + 1.0]].map(|at| pixel(src, at));
    // How much of what is seen lies inside.
    let inside = weighted(corners.map(|corner| if corner.is_some() { 1.0 } else { 0.0 }), weights);
    for (channel, to) in to.iter_mut().enumerate() {
        let value = weighted(corners.map(|corner| corner.map_or(0.0, |at| f32::from(at[channel]))), weights);
        *to = round(match rule.fill {
            None => value,
            Some(fill) => match rule.api {
                Api::V1 => value * inside + (1.0 - inside) * fill[channel],
                Api::V2 => (value - fill[channel]) * inside + fill[channel],
            },
        });
    }
}

#[inline(always)]
fn weighted(values: [f32; 4], weights: [f32; 4]) -> f32 {
    let mut sum = values[0] * weights[0];
    for i in 1..4 {
        sum = values[i].mul_add(weights[i], sum);
    }
    sum
}

#[inline(always)]
fn round(value: f32) -> u8 {
    value.round_ties_even() as u8
}

#[cfg(test)]
mod tests {
    use super::{
        super::tests::{image, sum},
        *,
    };

    const MATRIX: [f64; 6] = [0.9, 0.2, 0.6, -0.1, 1.05, -0.8];

    #[test]
    fn pixels_are_torchvisions() {
        let mut made = Vec::new();
        for channels in [3, 1] {
            for mode in [Mode::Nearest, Mode::Bilinear] {
                for (fill, api) in [(None, Api::V1), (Some([200.0; 4]), Api::V1), (Some([200.0; 4]), Api::V2)]
                {
                    let mut dst = Image::new();
                    affine(image(channels).view(), &MATRIX, Rule { mode, fill, api }, &mut dst).unwrap();
                    made.push(sum(&dst));
                }
            }
        }
        assert_eq!(made, TORCHVISION);
    }

    /// Of torchvision 0.29's `_apply_grid_transform` of each version, on the grid of the matrix.
    const TORCHVISION: [u64; 12] =
        [857036, 1040636, 1040636, 827281, 970264, 970264, 116476, 137476, 137476, 114661, 131057, 131057];

    #[test]
    fn both_ways_to_compile_it_give_the_same_bits() {
        let image = image(3);
        for mode in [Mode::Nearest, Mode::Bilinear] {
            let rule = Rule { mode, fill: Some([1.0, 2.0, 3.0, 4.0]), api: Api::V2 };
            let grid = |x: usize, y: usize| [x as f32 * 0.31 - 1.0, y as f32 * 0.37 - 1.1];
            let mut dst = Image::new();
            sample(image.view(), rule, &mut dst, grid).unwrap();
            let mut scalar = vec![0; dst.pixels().len()];
            plain(image.view(), rule, &mut scalar, grid);
            assert_eq!(dst.pixels(), scalar, "{mode:?}");
        }
    }

    #[test]
    fn points_outside_of_all_numbers_are_outside() {
        let image = image(1);
        for mode in [Mode::Nearest, Mode::Bilinear] {
            let rule = Rule { mode, fill: Some([7.0; 4]), api: Api::V2 };
            for far in [f32::INFINITY, -1e30, 5.0] {
                let mut dst = Image::new();
                sample(image.view(), rule, &mut dst, |_, _| [far, 0.0]).unwrap();
                // Infinity has no place between pixels: torch gives no number there, which becomes 0.
                let want = if far.is_finite() || mode == Mode::Nearest { 7 } else { 0 };
                assert_eq!(dst.pixels()[0], want, "{far} {mode:?}");
            }
        }
    }
}
