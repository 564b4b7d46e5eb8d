//! `RandomResizedCrop`: a random part of random area and aspect ratio, resized.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Action, Class, Filters, Operation, Rect, Shape, Sides, Size,
    param::{Repr, Tuple, check_pixels, check_positive_range, check_range, check_sides, python_bool, sides},
    resize::{antialias, check_antialias},
};
use crate::{Result, rng::Rng};

/// Crops a random part of the image and resizes it to `size`, as torchvision's transform of this name.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomResizedCrop {
    /// Height and width of the result, in pixels.
    #[serde(deserialize_with = "sides")]
    pub size: [usize; 2],
    /// Least and greatest share of the area that is kept.
    #[serde(default = "default_scale")]
    pub scale: [f64; 2],
    /// Least and greatest aspect ratio (width / height) of the part.
    #[serde(default = "default_ratio")]
    pub ratio: [f64; 2],
    /// Filter, or two of which one is drawn.
    #[serde(default)]
    pub interpolation: Filters,
    /// Must be true for bilinear, bicubic and lanczos; means nothing for the others. Default: true.
    #[serde(default = "yes", deserialize_with = "antialias")]
    pub antialias: bool,
}

fn yes() -> bool {
    true
}

fn default_scale() -> [f64; 2] {
    [0.08, 1.0]
}

fn default_ratio() -> [f64; 2] {
    [3.0 / 4.0, 4.0 / 3.0]
}

impl RandomResizedCrop {
    /// A result of one number (a square) or (height, width), with torchvision's defaults.
    pub fn new(size: impl Into<Sides>) -> Self {
        Self {
            size: size.into().0,
            scale: default_scale(),
            ratio: default_ratio(),
            interpolation: Filters::default(),
            antialias: true,
        }
    }

    /// Sets the least and greatest share of the area that is kept.
    #[must_use]
    pub fn scale(mut self, scale: [f64; 2]) -> Self {
        self.scale = scale;
        self
    }

    /// Sets the least and greatest aspect ratio (width / height).
    #[must_use]
    pub fn ratio(mut self, ratio: [f64; 2]) -> Self {
        self.ratio = ratio;
        self
    }

    /// Sets the filter, or two of which one is drawn.
    #[must_use]
    pub fn interpolation(mut self, interpolation: impl Into<Filters>) -> Self {
        self.interpolation = interpolation.into();
        self
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

impl fmt::Display for RandomResizedCrop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "RandomResizedCrop")
            .field("size", Tuple(&self.size))
            .field("scale", Tuple(&self.scale))
            .field("ratio", Tuple(&self.ratio))
            .field("interpolation", self.interpolation)
            .field("antialias", python_bool(self.antialias))
            .finish()
    }
}

impl Operation for RandomResizedCrop {
    fn check(&self) -> Result<()> {
        check_sides("size", self.size)?;
        check_range("scale", self.scale, 0.0, f64::INFINITY)?;
        check_positive_range("ratio", self.ratio)?;
        self.interpolation.each().try_for_each(|filter| check_antialias(self.antialias, filter))
    }

    fn class(&self) -> Class {
        Class::Resize
    }

    fn draws_by_size(&self) -> bool {
        true
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        Shape { height: Some(self.size[0]), width: Some(self.size[1]), ..input }
    }

    fn draw(&self, size: Size, rng: &mut Rng) -> Result<Action> {
        check_pixels(size)?;
        let crop = self.part(size, rng);
        Ok(Action::Resize {
            crop,
            cropped: true,
            height: self.size[0],
            width: self.size[1],
            interpolation: self.interpolation.draw(rng),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    fn parts(crop: RandomResizedCrop, size: Size, n: u64) -> impl Iterator<Item = Rect> {
        draws(crop, size, n).map(|action| match action {
            Action::Resize { crop, .. } => crop,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn areas_ratios_and_places_are_those_of_torchvision() {
        // Small shares of a large image: neither rounding nor rejected attempts show.
        let side = 100_000;
        let crop = RandomResizedCrop::new(8).scale([0.05, 0.4]).ratio([0.5, 2.0]);
        let parts: Vec<_> = parts(crop, size(side, side), 20_000).collect();
        let area = (side * side) as f64;
        assert_uniform(
            parts.iter().map(|r| ((r.height * r.width) as f64 / area).clamp(0.05, 0.4)),
            0.05,
            0.4,
        );
        let log_ratio = |r: &Rect| (r.width as f64 / r.height as f64).ln().clamp(-(2f64.ln()), 2f64.ln());
        assert_uniform(parts.iter().map(log_ratio), -(2f64.ln()), 2f64.ln());
        assert_uniform(parts.iter().map(|r| r.top as f64 / (side - r.height) as f64), 0.0, 1.0);
        assert_uniform(parts.iter().map(|r| r.left as f64 / (side - r.width) as f64), 0.0, 1.0);
    }

    #[test]
    fn after_ten_attempts_it_is_the_middle_within_the_ratio() {
        // Far too wide or too high: no attempt fits.
        let crop = RandomResizedCrop::new(8).scale([1.0, 1.0]);
        let one = |height, width| parts(crop, size(height, width), 1).next().unwrap();
        assert_eq!(one(10, 1000), Rect { top: 0, left: 493, height: 10, width: 13 });
        assert_eq!(one(1000, 10), Rect { top: 493, left: 0, height: 13, width: 10 });
        let square = crop.ratio([2.0, 2.0]);
        assert_eq!(
            parts(square, size(1, 1), 1).next().unwrap(),
            Rect { top: 0, left: 0, height: 1, width: 1 }
        );
    }

    #[test]
    fn parameters_are_checked() {
        assert!(check_error(RandomResizedCrop::new((3, 0))).starts_with("size is (3, 0)"));
        assert!(check_error(RandomResizedCrop::new(3).scale([0.5, 0.1])).starts_with("scale is (0.5, 0.1)"));
        assert!(check_error(RandomResizedCrop::new(3).ratio([0.0, 1.0])).starts_with("ratio is (0.0, 1.0)"));
        let rough = RandomResizedCrop { antialias: false, ..RandomResizedCrop::new(3) };
        assert!(check_error(rough).contains("antialias is False"));
    }

    #[test]
    fn it_reads_and_shows_as_in_torchvision() {
        assert_eq!(
            read(r#"{"type":"RandomResizedCrop","size":224}"#).to_string(),
            "RandomResizedCrop(size=(224, 224), scale=(0.08, 1.0), ratio=(0.75, 1.3333333333333333), \
             interpolation=bilinear, antialias=True)"
        );
    }
}
