//! Gaussian blur as torchvision's `gaussian_blur`: reflected borders, float32 weights, rounded half to even.
//!
//! torchvision convolves with the outer product of two kernels; this runs the two one after the other, which
//! differs by float32 rounding before the last step (1 level, in fewer than one pixel of a thousand).
//! The weights are `softmax(-(x / sigma)^2)` over `linspace(-r, r)` with `r = (k - 1) / (2 sqrt 2)`
//! (`_get_gaussian_kernel1d` in `torchvision/transforms/v2/functional/_misc.py`).

use std::fmt;

use crate::image::{Image, View};

/// Why an image cannot be blurred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlurError {
    /// The kernel reaches too far: reflection needs more pixels than its radius.
    Reach {
        /// Kernel length.
        kernel: usize,
        /// Pixels of that side of the image.
        side: usize,
    },
    /// There is no memory for so many bytes between the two passes.
    Memory {
        /// Bytes needed.
        bytes: usize,
    },
}

impl fmt::Display for BlurError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BlurError::Reach { kernel, side } => write!(
                f,
                "a blur kernel of {kernel} pixels needs an image side of more than {}, this one has {side}",
                kernel / 2,
            ),
            BlurError::Memory { bytes } => {
                write!(f, "no memory for {bytes} bytes between the passes of a blur")
            }
        }
    }
}

impl std::error::Error for BlurError {}

/// Blurs `image` in place with a kernel of (x, y) odd lengths and standard deviations above 0, in pixels.
/// `scratch` is working memory.
///
/// # Errors
/// If a side of the image is not longer than half the kernel, or there is no memory.
pub fn gaussian_blur(
    image: &mut Image,
    kernel: [usize; 2],
    sigma: [f64; 2],
    scratch: &mut Vec<f32>,
) -> Result<(), BlurError> {
    let (height, width, channels) = (image.height(), image.width(), image.channels());
    for (kernel, side) in [(kernel[0], width), (kernel[1], height)] {
        if kernel / 2 >= side {
            return Err(BlurError::Reach { kernel, side });
        }
    }
    let (across, down) = (weights(kernel[0], sigma[0]), weights(kernel[1], sigma[1]));
    let row = width * channels;
    // Two buffers: all rows after the horizontal pass, and one row with its borders.
    let padded = row + 2 * (kernel[0] / 2) * channels;
    let len = height * row + padded.max(row);
    scratch.clear();
    scratch.try_reserve_exact(len).map_err(|_| BlurError::Memory { bytes: 4 * len })?;
    scratch.resize(len, 0.0);
    let (rows, line) = scratch.split_at_mut(height * row);
    for (y, out) in rows.chunks_exact_mut(row).enumerate() {
        border(image.view(), y, kernel[0] / 2, &mut line[..padded]);
        for (weight, shift) in across.iter().zip(0..) {
            let shifted = &line[shift * channels..][..row];
            for (out, x) in out.iter_mut().zip(shifted) {
                *out += weight * x;
            }
        }
    }
    let radius = kernel[1] / 2;
    let line = &mut line[..row];
    for (y, out) in image.pixels_mut().chunks_exact_mut(row).enumerate() {
        line.fill(0.0);
        for (weight, i) in down.iter().zip(0..) {
            let from = reflect(y as isize + i as isize - radius as isize, height);
            for (sum, x) in line.iter_mut().zip(&rows[from * row..][..row]) {
                *sum += weight * x;
            }
        }
        for (out, x) in out.iter_mut().zip(&*line) {
            *out = x.round_ties_even() as u8;
        }
    }
    Ok(())
}

/// Row `y` as float32, with `radius` reflected pixels at both ends.
fn border(view: View<'_>, y: usize, radius: usize, line: &mut [f32]) {
    let (row, channels) = (view.row(y), view.channels());
    for (i, out) in line.chunks_exact_mut(channels).enumerate() {
        let x = reflect(i as isize - radius as isize, view.width());
        for (out, v) in out.iter_mut().zip(&row[x * channels..]) {
            *out = f32::from(*v);
        }
    }
}

/// Mirrors at the outermost pixels, which are not repeated. `i` is at most one side away.
pub(crate) fn reflect(i: isize, side: usize) -> usize {
    let last = side as isize - 1;
    (if i < 0 {
        -i
    } else if i > last {
        2 * last - i
    } else {
        i
    }) as usize
}

/// The weights of one side of [`gaussian_blur`]: of a `kernel` of so many pixels with standard deviation `sigma`.
pub fn weights(kernel: usize, sigma: f64) -> Vec<f32> {
    let limit = (kernel - 1) as f64 / (2.0 * std::f64::consts::SQRT_2);
    let step = if kernel > 1 { (2.0 * limit / (kernel - 1) as f64) as f32 } else { 0.0 };
    let sigma = sigma as f32;
    let exp = |i: usize| {
        let x = (-limit as f32) + step * i as f32;
        (-(x / sigma) * (x / sigma)).exp()
    };
    let sum: f32 = (0..kernel).map(exp).sum();
    (0..kernel).map(|i| exp(i) / sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blurred(pixels: Vec<u8>, (h, w): (usize, usize), kernel: [usize; 2], sigma: f64) -> Vec<u8> {
        let mut image = Image::new();
        image.copy_from(View::new(&pixels, h, w, 1, w).unwrap()).unwrap();
        gaussian_blur(&mut image, kernel, [sigma, sigma], &mut Vec::new()).unwrap();
        image.pixels().to_vec()
    }

    #[test]
    fn weights_are_a_gaussian_that_adds_up_to_one() {
        let w = weights(5, 1.3);
        assert!((w.iter().sum::<f32>() - 1.0).abs() < 1e-6);
        assert!((w[0] - w[4]).abs() < 1e-6 && w[2] > w[1]);
        let ratio = f64::from(w[1] / w[2]);
        assert!((ratio - (-1.0f64 / (2.0 * 1.3 * 1.3)).exp()).abs() < 1e-6);
    }

    #[test]
    fn a_flat_image_stays_and_a_point_spreads_evenly() {
        assert_eq!(blurred(vec![200; 35], (5, 7), [5, 3], 1.0), vec![200; 35]);
        let mut point = vec![0; 25];
        point[12] = 255;
        let out = blurred(point, (5, 5), [3, 3], 0.8);
        assert!(out[12] > out[11] && out[11] == out[13] && out[7] == out[17] && out[6] < out[7]);
        assert_eq!(out[0], 0);
    }

    #[test]
    fn a_kernel_larger_than_reflection_allows_is_refused() {
        let mut image = Image::new();
        image.reshape(3, 3, 1).unwrap();
        let error = gaussian_blur(&mut image, [7, 3], [1.0, 1.0], &mut Vec::new()).unwrap_err();
        assert_eq!(error, BlurError::Reach { kernel: 7, side: 3 });
    }
}
