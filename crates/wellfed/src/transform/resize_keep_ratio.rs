//! `ResizeKeepRatio`: timm's transform of that name.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Action, Class, Filters, Operation, Shape, Sides, Size,
    param::{Repr, Tuple, check_pixels, check_sides, sides},
    ratio_jitter::{RatioJitter, between, check_longest, rounded},
    resize::{check_antialias, resized},
};
use crate::{Result, rng::Rng};

/// Resizes so that the image covers a size, or fits into it, and the aspect ratio stays, but for what is drawn: timm's
/// transform of this name. Sides are rounded to the nearest, where [`super::Resize`] cuts them off.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResizeKeepRatio {
    /// Height and width to reach.
    #[serde(deserialize_with = "sides")]
    pub size: [usize; 2],
    /// 0: the result covers `size`; 1: it fits into it; others lie between. Default: 0.
    #[serde(default)]
    pub longest: f64,
    /// Filter, or two of which one is drawn. Default: bilinear.
    #[serde(default)]
    pub interpolation: Filters,
    /// Probability that the scale is drawn. Default: 0.
    #[serde(default)]
    pub random_scale_prob: f64,
    /// Least and greatest factor of both sides. Default: (0.85, 1.05).
    #[serde(default = "default_scale")]
    pub random_scale_range: [f64; 2],
    /// Whether the scale is a share of the area: less of it is a larger picture. Default: false.
    #[serde(default)]
    pub random_scale_area: bool,
    /// Probability that the aspect ratio is drawn. Default: 0.
    #[serde(default)]
    pub random_aspect_prob: f64,
    /// Least and greatest factor of the aspect ratio. Default: (0.9, 1.11).
    #[serde(default = "default_aspect")]
    pub random_aspect_range: [f64; 2],
}

pub(super) fn default_scale() -> [f64; 2] {
    [0.85, 1.05]
}

pub(super) fn default_aspect() -> [f64; 2] {
    [0.9, 1.11]
}

impl ResizeKeepRatio {
    /// Covers one number (a square) or (height, width); nothing is drawn.
    pub fn new(size: impl Into<Sides>) -> Self {
        Self {
            size: size.into().0,
            longest: 0.0,
            interpolation: Filters::default(),
            random_scale_prob: 0.0,
            random_scale_range: default_scale(),
            random_scale_area: false,
            random_aspect_prob: 0.0,
            random_aspect_range: default_aspect(),
        }
    }

    fn jitter(&self) -> RatioJitter {
        RatioJitter {
            scale_prob: self.random_scale_prob,
            scale_range: self.random_scale_range,
            scale_area: self.random_scale_area,
            aspect_prob: self.random_aspect_prob,
            aspect_range: self.random_aspect_range,
        }
    }

    /// Height and width of the result, in timm's arithmetic.
    fn output(&self, sides: [usize; 2], factors: [f64; 2]) -> [usize; 2] {
        let [height, width] = sides.map(|side| side as f64);
        let ratio = between([height / self.size[0] as f64, width / self.size[1] as f64], self.longest);
        rounded([height * factors[0] / ratio, width * factors[1] / ratio])
    }
}

impl fmt::Display for ResizeKeepRatio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let repr = Repr::new(f, "ResizeKeepRatio")
            .field("size", Tuple(&self.size))
            .field("longest", self.longest)
            .field("interpolation", self.interpolation);
        self.jitter().show(repr).finish()
    }
}

impl Operation for ResizeKeepRatio {
    fn check(&self) -> Result<()> {
        check_sides("size", self.size)?;
        check_longest(self.longest)?;
        self.jitter().check()?;
        self.interpolation.each().try_for_each(|filter| check_antialias(true, filter))
    }

    fn class(&self) -> Class {
        Class::Resize
    }

    fn draws_by_size(&self) -> bool {
        self.leaves_size_open()
    }

    fn leaves_size_open(&self) -> bool {
        self.jitter().is_random()
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        let output = match (input.height, input.width) {
            (Some(height), Some(width)) if height > 0 && width > 0 && !self.leaves_size_open() => {
                Some(self.output([height, width], [1.0, 1.0]))
            }
            _ => None,
        };
        Shape { height: output.map(|o| o[0]), width: output.map(|o| o[1]), ..input }
    }

    fn draw(&self, size: Size, rng: &mut Rng) -> Result<Action> {
        check_pixels(size)?;
        let output = self.output([size.height, size.width], self.jitter().draw(rng));
        resized(size, output, self.interpolation.draw(rng))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn it_covers_a_size_or_fits_into_it() {
        let sides = |longest, height, width| {
            let resize = ResizeKeepRatio { longest, ..ResizeKeepRatio::new((30, 40)) };
            let after = resize.draw(size(height, width), &mut rng(0)).unwrap().size(size(height, width));
            (after.height, after.width)
        };
        assert_eq!(sides(0.0, 60, 120), (30, 60));
        assert_eq!(sides(1.0, 60, 120), (20, 40));
        assert_eq!(sides(0.0, 100, 100), (40, 40));
        assert_eq!(sides(0.5, 60, 120), (24, 48));
        // Half to even, of 22.5 and 23.5.
        assert_eq!((sides(1.0, 45, 80), sides(1.0, 47, 80)), ((22, 40), (24, 40)));
        assert_eq!(sides(0.0, 30, 40), (30, 40));
        assert_eq!(ResizeKeepRatio::new(7).draw(size(7, 9), &mut rng(0)).unwrap(), Action::Keep);
    }

    #[test]
    fn drawn_scales_are_of_the_area() {
        let image = size(1_000_000, 2_000_000);
        let resize = ResizeKeepRatio {
            random_scale_prob: 1.0,
            random_scale_range: [0.25, 1.0],
            random_scale_area: true,
            ..ResizeKeepRatio::new(100_000)
        };
        let shares = draws(resize, image, 10_000).map(|action| {
            let after = action.size(image);
            assert!(after.width.abs_diff(2 * after.height) <= 1, "{after:?}");
            (100_000.0 / after.height as f64).powi(2)
        });
        assert_uniform(shares.map(|share| share.clamp(0.25, 1.0)), 0.25, 1.0);
        let blind = Shape { height: Some(10), width: Some(20), channels: 3 };
        assert_eq!(resize.fixed_size(blind).height, None);
        assert_eq!(ResizeKeepRatio::new(5).fixed_size(blind).width, Some(10));
    }

    #[test]
    fn it_reads_shows_and_checks() {
        assert_eq!(
            read(r#"{"type":"ResizeKeepRatio","size":[3,4],"longest":1.0}"#).to_string(),
            "ResizeKeepRatio(size=(3, 4), longest=1, interpolation=bilinear)"
        );
        let random = r#"{"type":"ResizeKeepRatio","size":9,"interpolation":["bilinear","bicubic"],
            "random_scale_prob":0.5,"random_scale_area":true}"#;
        assert!(read(random).to_string().ends_with(
            "interpolation=(bilinear, bicubic), random_scale_prob=0.5, random_scale_range=(0.85, 1.05), \
             random_scale_area=True, random_aspect_prob=0, random_aspect_range=(0.9, 1.11))"
        ));
        assert!(check_error(ResizeKeepRatio::new(0)).starts_with("size is (0, 0)"));
        assert!(
            check_error(ResizeKeepRatio { longest: f64::NAN, ..ResizeKeepRatio::new(1) })
                .starts_with("longest")
        );
        let e = ResizeKeepRatio { longest: 1.0, ..ResizeKeepRatio::new(4) }.draw(size(1, 100), &mut rng(0));
        assert!(e.unwrap_err().message().contains("would become (0, 4)"));
    }
}
