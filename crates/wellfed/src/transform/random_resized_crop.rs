//! `RandomResizedCrop`: a random part of random area and aspect ratio, resized.

use serde::{Deserialize, Serialize};

use super::{Action, Class, Interpolation, Rect, Shape, Size, Stage};
use crate::{Error, Result, rng::Rng};

/// Crops a random part of the image and resizes it to `size`, as torchvision's transform of this name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomResizedCrop {
    /// Height and width of the result, in pixels.
    pub size: [usize; 2],
    /// Least and greatest share of the area that is kept.
    #[serde(default = "default_scale")]
    pub scale: [f64; 2],
    /// Least and greatest aspect ratio (width / height) of the part.
    #[serde(default = "default_ratio")]
    pub ratio: [f64; 2],
    /// Filter.
    #[serde(default)]
    pub interpolation: Interpolation,
}

fn default_scale() -> [f64; 2] {
    [0.08, 1.0]
}

fn default_ratio() -> [f64; 2] {
    [3.0 / 4.0, 4.0 / 3.0]
}

impl RandomResizedCrop {
    /// A square result of `size` x `size` with torchvision's defaults.
    pub fn new(size: usize) -> Self {
        Self {
            size: [size, size],
            scale: default_scale(),
            ratio: default_ratio(),
            interpolation: Interpolation::default(),
        }
    }

    /// torchvision's `get_params`: ten attempts, then the largest central part within `ratio`.
    fn part(&self, size: Size, rng: &mut Rng) -> Rect {
        let (height, width) = (size.height as f64, size.width as f64);
        let (log_low, log_high) = (self.ratio[0].ln(), self.ratio[1].ln());
        for _ in 0..10 {
            let area = height * width * rng.uniform(self.scale[0], self.scale[1]);
            let ratio = rng.uniform(log_low, log_high).exp();
            let w = (area * ratio).sqrt().round_ties_even() as usize;
            let h = (area / ratio).sqrt().round_ties_even() as usize;
            if (1..=size.width).contains(&w) && (1..=size.height).contains(&h) {
                let top = rng.below((size.height - h + 1) as u64) as usize;
                let left = rng.below((size.width - w + 1) as u64) as usize;
                return Rect { top, left, height: h, width: w };
            }
        }
        let ratio = width / height;
        let (w, h) = if ratio < self.ratio[0] {
            (size.width, ((width / self.ratio[0]).round_ties_even() as usize).clamp(1, size.height))
        } else if ratio > self.ratio[1] {
            (((height * self.ratio[1]).round_ties_even() as usize).clamp(1, size.width), size.height)
        } else {
            (size.width, size.height)
        };
        Rect { top: (size.height - h) / 2, left: (size.width - w) / 2, height: h, width: w }
    }
}

impl Stage for RandomResizedCrop {
    fn check(&self) -> Result<()> {
        let ordered = |r: [f64; 2]| r[0] > 0.0 && r[0] <= r[1] && r[1].is_finite();
        if self.size.contains(&0) {
            return Err(Error::config(format!("size is {:?}; both sides must be at least 1", self.size)));
        }
        if !ordered(self.scale) || !ordered(self.ratio) {
            return Err(Error::config(format!(
                "scale is {:?} and ratio is {:?}; each must be (low, high) with 0 < low <= high",
                self.scale, self.ratio
            )));
        }
        Ok(())
    }

    fn class(&self) -> Class {
        Class::Resize
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        Shape { height: Some(self.size[0]), width: Some(self.size[1]), ..input }
    }

    fn draw(&self, size: Size, rng: &mut Rng) -> Result<Action> {
        Ok(Action::Resize {
            crop: self.part(size, rng),
            height: self.size[0],
            width: self.size[1],
            interpolation: self.interpolation,
        })
    }
}
