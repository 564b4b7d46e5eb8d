//! Elastic displacements, as torchvision's `ElasticTransform` makes them: noise, blurred by a Gaussian.
//!
//! Noise is a function of the place, so that the displacement of one pixel can be found without those of the others:
//! points follow by it. All ways to find one add up the same numbers in the same order.

use super::grid::{Rule, sample};
use crate::{
    blur::{reflect, weights},
    image::{Image, View},
    write::GeometryError,
};

/// How far every pixel of an image moves.
#[derive(Clone, Debug)]
pub struct Field<Noise> {
    /// Rows and columns.
    pub size: (usize, usize),
    /// Strength along x and y: noise of 1 moves a pixel by half of it.
    pub alpha: [f64; 2],
    /// Standard deviations along x and y, in pixels: both above 0, or both 0 for noise that is not blurred.
    pub sigma: [f64; 2],
    /// Uniform numbers from -1 to 1, for an axis (0 is x), a row, and four columns of it: those from four times the last
    /// argument on.
    pub noise: Noise,
}

impl<Noise: Fn(usize, usize, usize) -> [f32; 4]> Field<Noise> {
    /// Elements of working memory that [`Field::fill`] takes.
    pub fn memory(&self) -> usize {
        let (height, width) = self.size;
        let most = self.sigma.map(kernel_size).into_iter().max().unwrap_or(1);
        (3 * height * width).saturating_add(width).saturating_add(most)
    }

    /// Whether the mirrored border is wide enough for the blur.
    pub fn fits(&self) -> bool {
        let (height, width) = self.size;
        (0..2).all(|axis| kernel_size(self.sigma[axis]) / 2 < height.min(width))
    }

    /// Kernels across and down for the noise of `axis`. Both have the length that belongs to the deviation along it.
    fn kernels(&self, axis: usize) -> [Vec<f32>; 2] {
        let size = kernel_size(self.sigma[axis]);
        self.sigma.map(|sigma| if size == 1 { vec![1.0] } else { weights(size, sigma) })
    }

    /// By how much blurred noise is scaled, in a grid's coordinates.
    fn scaled(&self, axis: usize, value: f32) -> f32 {
        let side = if axis == 0 { self.size.1 } else { self.size.0 };
        value * self.alpha[axis] as f32 / side as f32
    }

    /// Displacements along x of all pixels, then those along y, in a grid's coordinates. `memory` is working memory, whose
    /// beginning they are left in.
    ///
    /// # Errors
    /// [`GeometryError::Memory`] if there is none.
    pub fn fill<'a>(&self, memory: &'a mut Vec<f32>) -> Result<[&'a [f32]; 2], GeometryError> {
        let (height, width) = self.size;
        let area = height * width;
        let len = self.memory();
        memory.clear();
        memory.try_reserve_exact(len).map_err(|_| GeometryError::Memory { bytes: 4 * len })?;
        memory.resize(len, 0.0);
        let (made, rest) = memory.split_at_mut(2 * area);
        let (across, line) = rest.split_at_mut(area);
        for (axis, made) in made.chunks_exact_mut(area.max(1)).enumerate() {
            let [x, y] = self.kernels(axis);
            let line = &mut line[..width + x.len() - 1];
            for (row, out) in across.chunks_exact_mut(width.max(1)).enumerate() {
                let radius = x.len() / 2;
                for (four, to) in line[radius..][..width].chunks_mut(4).enumerate() {
                    to.copy_from_slice(&(self.noise)(axis, row, four)[..to.len()]);
                }
                for at in (0..radius).chain(radius + width..line.len()) {
                    line[at] = line[radius + reflected(at, x.len(), width)];
                }
                out.fill(0.0);
                for (shift, weight) in x.iter().enumerate() {
                    for (to, from) in out.iter_mut().zip(&line[shift..]) {
                        *to += weight * from;
                    }
                }
            }
            for (row, out) in made.chunks_exact_mut(width.max(1)).enumerate() {
                for (shift, weight) in y.iter().enumerate() {
                    let from = reflected(row + shift, y.len(), height);
                    for (to, from) in out.iter_mut().zip(&across[from * width..][..width]) {
                        *to += weight * from;
                    }
                }
                for value in out {
                    *value = self.scaled(axis, *value);
                }
            }
        }
        let (x, y) = memory[..2 * area].split_at(area);
        Ok([x, y])
    }

    /// The displacement of one pixel: the same bits that [`Field::fill`] has for it.
    pub fn at(&self, row: usize, column: usize) -> [f32; 2] {
        let (height, width) = self.size;
        [0, 1].map(|axis| {
            let [x, y] = self.kernels(axis);
            let mut sum = 0.0;
            for (down, weight) in y.iter().enumerate() {
                let row = reflected(row + down, y.len(), height);
                let mut across = 0.0;
                for (right, weight) in x.iter().enumerate() {
                    let column = reflected(column + right, x.len(), width);
                    across += weight * (self.noise)(axis, row, column / 4)[column % 4];
                }
                sum += weight * across;
            }
            self.scaled(axis, sum)
        })
    }

    /// The point of the grid that does not move anything, for a pixel.
    pub fn still(&self, row: usize, column: usize) -> [f32; 2] {
        still(self.size, row, column)
    }
}

/// Where the grid that does not move anything has a pixel: `torch.linspace((1 - n) / n, (n - 1) / n, n)`.
fn still((height, width): (usize, usize), row: usize, column: usize) -> [f32; 2] {
    let place = |i: usize, n: usize| {
        let end = ((n as f64 - 1.0) / n as f64) as f32;
        if n < 2 {
            return 0.0;
        }
        let step = (end + end) / (n - 1) as f32;
        if i < n / 2 { step.mul_add(i as f32, -end) } else { (-step).mul_add((n - 1 - i) as f32, end) }
    };
    [place(column, width), place(row, height)]
}

/// Place `i` of a row with half a kernel of mirrored pixels at both ends.
fn reflected(i: usize, kernel: usize, side: usize) -> usize {
    reflect(i as isize - (kernel / 2) as isize, side)
}

/// Length of the kernel for a deviation; 1 for none.
fn kernel_size(sigma: f64) -> usize {
    // Odd.
    (8.0 * sigma + 1.0) as usize | 1
}

/// Moves `src` into `dst` by the displacements of all pixels along x and along y, in a grid's coordinates.
///
/// # Errors
/// [`GeometryError::Memory`] if there is none for the result.
pub fn displace(
    src: View<'_>,
    [x, y]: [&[f32]; 2],
    rule: Rule,
    dst: &mut Image,
) -> Result<(), GeometryError> {
    let size @ (_, width) = (src.height(), src.width());
    sample(src, rule, dst, |column, row| {
        let at = row * width + column;
        let [u, v] = still(size, row, column);
        [u + x[at], v + y[at]]
    })
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            Api,
            grid::Mode,
            tests::{image, sum},
        },
        *,
    };

    fn noise(axis: usize, row: usize, four: usize) -> [f32; 4] {
        [0, 1, 2, 3].map(|i| ((axis * 31 + row * 7 + (4 * four + i) * 13) % 17) as f32 / 8.0 - 1.0)
    }

    #[test]
    fn one_pixel_by_itself_gets_the_bits_of_all_together() {
        for sigma in [[0.0, 0.0], [0.4, 0.4], [0.7, 0.3], [0.2, 0.8]] {
            let field = Field { size: (9, 7), alpha: [3.0, 5.0], sigma, noise };
            assert!(field.fits());
            let mut memory = Vec::new();
            let [x, y] = field.fill(&mut memory).unwrap();
            for row in 0..9 {
                for column in 0..7 {
                    let at = row * 7 + column;
                    assert_eq!(field.at(row, column), [x[at], y[at]], "{sigma:?} {row} {column}");
                }
            }
        }
    }

    #[test]
    fn a_kernel_must_fit() {
        let fits = |sigma| Field { size: (21, 40), alpha: [1.0; 2], sigma: [sigma; 2], noise }.fits();
        assert!(fits(5.0) && !fits(5.25) && fits(0.0));
        assert_eq!([0.0, 0.1, 0.125, 5.0, 5.2].map(kernel_size), [1, 1, 3, 41, 43]);
    }

    #[test]
    fn noise_that_is_not_blurred_is_scaled_by_the_side() {
        let field = Field { size: (4, 5), alpha: [10.0, 8.0], sigma: [0.0; 2], noise };
        assert_eq!(field.at(2, 3), [noise(0, 2, 0)[3] * 10.0 / 5.0, noise(1, 2, 0)[3] * 8.0 / 4.0]);
    }

    #[test]
    fn displaced_pixels_are_torchvisions() {
        let shift = |by: usize| -> Vec<f32> {
            (0..42).map(|i| (((i % 7) * 7 + (i / 7) * by) % 5) as f32 / 8.0 - 0.25).collect()
        };
        let (x, y) = (shift(3), shift(4));
        let mut made = Vec::new();
        for channels in [3, 1] {
            for mode in [Mode::Nearest, Mode::Bilinear] {
                for fill in [None, Some([200.0; 4])] {
                    let rule = Rule { mode, fill, api: Api::V2 };
                    let mut dst = Image::new();
                    displace(image(channels).view(), [&x, &y], rule, &mut dst).unwrap();
                    made.push(sum(&dst));
                }
            }
        }
        assert_eq!(made, TORCHVISION);
    }

    /// Of torchvision 0.29's `elastic_image`.
    const TORCHVISION: [u64; 8] = [832456, 1038256, 827240, 1015612, 102592, 125792, 102073, 123503];
}
