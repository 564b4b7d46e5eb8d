//! `GaussianBlur`: blurs with a random deviation.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize};
use wellfed_kernels::{
    blur::{BlurError, gaussian_blur},
    image::Image,
    recipe::PixelOp,
};

use super::{
    Action, Class, ImageAction, ImageMemory, Operation, Shape, Sides, Size, Spread,
    image_action::elements,
    param::{Repr, Tuple, check_positive_range, check_sides, impossible, sides},
};
use crate::{Error, ErrorKind, Result, rng::Rng};

/// Blurs with a Gaussian whose standard deviation is drawn uniformly from `sigma`, the same along x and y.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GaussianBlur {
    /// Size of the kernel (x, y) in pixels, odd; one number for both.
    #[serde(deserialize_with = "sides")]
    pub kernel_size: [usize; 2],
    /// Least and greatest standard deviation in pixels; one number is both. Default: (0.1, 2).
    #[serde(default = "default_sigma", deserialize_with = "read_sigma")]
    pub sigma: [f64; 2],
}

fn default_sigma() -> [f64; 2] {
    [0.1, 2.0]
}

fn read_sigma<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[f64; 2], D::Error> {
    Ok(match Spread::deserialize(deserializer)? {
        Spread::By(fixed) => [fixed, fixed],
        Spread::Between(range) => range,
    })
}

impl GaussianBlur {
    /// Blurs with a kernel of one number, or (x, y), and a deviation of 0.1 to 2.
    pub fn new(kernel_size: impl Into<Sides>) -> Self {
        Self { kernel_size: kernel_size.into().0, sigma: default_sigma() }
    }

    /// Sets the least and greatest standard deviation in pixels.
    #[must_use]
    pub fn sigma(mut self, sigma: [f64; 2]) -> Self {
        self.sigma = sigma;
        self
    }
}

impl fmt::Display for GaussianBlur {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "GaussianBlur")
            .field("kernel_size", Tuple(&self.kernel_size))
            .field("sigma", format_args!("{:?}", self.sigma))
            .finish()
    }
}

impl Operation for GaussianBlur {
    fn check(&self) -> Result<()> {
        check_sides("kernel_size", self.kernel_size)?;
        if self.kernel_size.iter().any(|side| side % 2 == 0) {
            let kernel = Tuple(&self.kernel_size);
            return Err(Error::config(format!("kernel_size is {kernel}; both sides must be odd")));
        }
        check_positive_range("sigma", self.sigma)
    }

    fn class(&self) -> Class {
        Class::Image
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        input
    }

    fn draw(&self, size: Size, rng: &mut Rng) -> Result<Action> {
        // The border is mirrored without repeating its pixel, so half a kernel must fit into the image.
        let [x, y] = self.kernel_size;
        if x / 2 >= size.width || y / 2 >= size.height {
            return Err(impossible(format!(
                "kernel_size {} (x, y) needs an image of at least {}, this one is {}",
                Tuple(&self.kernel_size),
                Tuple(&[y / 2 + 1, x / 2 + 1]),
                Tuple(&[size.height, size.width])
            )));
        }
        Ok(Action::Image(Arc::new(Blur { kernel: self.kernel_size, sigma: self.draw_sigma(rng) })))
    }
}

impl GaussianBlur {
    fn draw_sigma(&self, rng: &mut Rng) -> f64 {
        rng.uniform(self.sigma[0], self.sigma[1])
    }
}

/// A blur with a drawn deviation, the same along x and y.
#[derive(Debug)]
struct Blur {
    /// Size of the kernel (x, y), odd.
    kernel: [usize; 2],
    sigma: f64,
}

impl ImageAction for Blur {
    fn memory(&self, input: Size) -> usize {
        // Rows of float32, and one with borders.
        4 * (elements(input) + (input.width + self.kernel[0]) * input.channels)
    }

    fn pixel_ops(&self, _input: Size) -> Option<Vec<PixelOp>> {
        Some(vec![PixelOp::Blur { kernel: self.kernel, sigma: [self.sigma; 2] }])
    }

    fn run(&self, image: &mut Image, memory: &mut ImageMemory) -> Result<()> {
        gaussian_blur(image, self.kernel, [self.sigma; 2], &mut memory.floats).map_err(|e| match e {
            BlurError::Memory { bytes } => Error::memory(bytes, "pixels"),
            BlurError::Reach { .. } => Error::new(ErrorKind::Shape, e.to_string()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn sigma_is_uniform() {
        let sigmas = (0..20_000).map(|index| GaussianBlur::new((5, 9)).draw_sigma(&mut rng(index)));
        assert_uniform(sigmas, 0.1, 2.0);
    }

    #[test]
    fn half_a_kernel_must_fit() {
        let blur = GaussianBlur::new((3, 7));
        assert!(blur.draw(size(4, 2), &mut rng(0)).is_ok());
        let e = blur.draw(size(3, 2), &mut rng(0)).unwrap_err();
        assert_eq!(
            e.message(),
            "kernel_size (3, 7) (x, y) needs an image of at least (4, 2), this one is (3, 2)"
        );
    }

    #[test]
    fn parameters_are_checked() {
        assert_eq!(check_error(GaussianBlur::new((3, 4))), "kernel_size is (3, 4); both sides must be odd");
        assert!(check_error(GaussianBlur::new(0)).starts_with("kernel_size is (0, 0)"));
        assert!(
            check_error(GaussianBlur::new(3).sigma([0.0, 1.0])).starts_with("sigma is (0.0, 1.0); must be")
        );
        let blur = read(r#"{"type":"GaussianBlur","kernel_size":3,"sigma":2}"#);
        assert_eq!(blur.to_string(), "GaussianBlur(kernel_size=(3, 3), sigma=[2.0, 2.0])");
    }
}
