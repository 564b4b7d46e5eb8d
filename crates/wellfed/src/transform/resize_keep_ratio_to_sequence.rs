//! `ResizeKeepRatioToSequence`: timm's transform of that name.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Action, Class, Filters, Operation, Shape, Sides, Size,
    param::{Repr, Tuple, check_pixels, python_bool, sides},
    patches::{Patches, check_max_ratio, default_most, default_patch, yes},
    ratio_jitter::{RatioJitter, between, check_longest, rounded},
    resize::{check_antialias, resized},
    resize_keep_ratio::{default_aspect, default_scale},
};
use crate::{Result, rng::Rng};

/// Resizes the image to a size of which no more than `max_seq_len` patches are made, with a drawn scale and aspect ratio:
/// a [`super::ResizeKeepRatio`] that aims at the size of [`super::ResizeToSequence`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResizeKeepRatioToSequence {
    /// Height and width of a patch. Default: 16.
    #[serde(default = "default_patch", deserialize_with = "sides")]
    pub patch_size: [usize; 2],
    /// How many patches an image may have. Default: 1024.
    #[serde(default = "default_most")]
    pub max_seq_len: usize,
    /// Whether sides are multiples of those of a patch. Default: true.
    #[serde(default = "yes")]
    pub divisible_by_patch: bool,
    /// Greatest scale. Default: none.
    #[serde(default)]
    pub max_ratio: Option<f64>,
    /// Which side decides where rounding to patches makes a difference: 0 the one that is scaled less. Default: 0.
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

impl ResizeKeepRatioToSequence {
    /// As many patches of one number (a square) or (height, width); nothing is drawn.
    pub fn new(patch_size: impl Into<Sides>, max_seq_len: usize) -> Self {
        Self {
            patch_size: patch_size.into().0,
            max_seq_len,
            divisible_by_patch: true,
            max_ratio: None,
            longest: 0.0,
            interpolation: Filters::default(),
            random_scale_prob: 0.0,
            random_scale_range: default_scale(),
            random_scale_area: false,
            random_aspect_prob: 0.0,
            random_aspect_range: default_aspect(),
        }
    }

    fn patches(&self) -> Patches {
        Patches { size: self.patch_size, most: self.max_seq_len, divisible: self.divisible_by_patch }
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
    fn output(&self, image: [usize; 2], factors: [f64; 2]) -> Result<[usize; 2]> {
        let patches = self.patches();
        let (_, target) = patches.fit(image, self.max_ratio)?;
        let ratios = [target[0] as f64 / image[0] as f64, target[1] as f64 / image[1] as f64];
        let ratio = between(ratios, self.longest);
        let whole = |sides: [usize; 2]| sides.map(|side| side as f64);
        let sides = rounded([image[0] as f64 * ratio * factors[0], image[1] as f64 * ratio * factors[1]]);
        let sides = patches.up(patches.at_least(whole(sides))).map(|side| side as usize);
        let count = patches.count(sides);
        if count <= patches.most {
            return Ok(sides);
        }
        let back = (patches.most as f64 / count as f64).sqrt();
        let cut = whole(sides).map(|side| (side * back).floor());
        Ok(patches.up(cut).map(|side| side as usize))
    }
}

impl fmt::Display for ResizeKeepRatioToSequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let repr = Repr::new(f, "ResizeKeepRatioToSequence")
            .field("patch_size", Tuple(&self.patch_size))
            .field("max_seq_len", self.max_seq_len)
            .field("divisible_by_patch", python_bool(self.divisible_by_patch))
            .field_if(self.max_ratio.is_some(), "max_ratio", self.max_ratio.unwrap_or(0.0))
            .field("longest", self.longest)
            .field("interpolation", self.interpolation);
        self.jitter().show(repr).finish()
    }
}

impl Operation for ResizeKeepRatioToSequence {
    fn check(&self) -> Result<()> {
        self.patches().check()?;
        check_max_ratio(self.max_ratio)?;
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
                self.output([height, width], [1.0, 1.0]).ok()
            }
            _ => None,
        };
        Shape { height: output.map(|o| o[0]), width: output.map(|o| o[1]), ..input }
    }

    fn draw(&self, size: Size, rng: &mut Rng) -> Result<Action> {
        check_pixels(size)?;
        let output = self.output([size.height, size.width], self.jitter().draw(rng))?;
        resized(size, output, self.interpolation.draw(rng))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn sizes_are_those_of_timm() {
        // (height, width), patch, most, divisible, longest, scale, aspect ratio and what get_params gave (timm 1.0).
        for ((height, width), patch, most, divisible, longest, scale, aspect, expected) in KNOWN {
            let resize = ResizeKeepRatioToSequence {
                divisible_by_patch: divisible,
                longest,
                random_scale_prob: 1.0,
                random_scale_range: [scale, scale],
                random_aspect_prob: 1.0,
                random_aspect_range: [aspect, aspect],
                ..ResizeKeepRatioToSequence::new(patch, most)
            };
            resize.check().unwrap();
            let image = size(height, width);
            let after = resize.draw(image, &mut rng(0)).unwrap().size(image);
            assert_eq!([after.height, after.width], expected, "{height}x{width} {resize}");
        }
    }

    #[test]
    fn it_reads_shows_and_checks() {
        assert_eq!(
            read(r#"{"type":"ResizeKeepRatioToSequence","patch_size":8,"longest":0.5}"#).to_string(),
            "ResizeKeepRatioToSequence(patch_size=(8, 8), max_seq_len=1024, divisible_by_patch=True, longest=0.5, \
             interpolation=bilinear)"
        );
        let plain = ResizeKeepRatioToSequence::new(8, 9);
        assert!(
            check_error(ResizeKeepRatioToSequence { max_seq_len: 0, ..plain }).starts_with("max_seq_len")
        );
        let scaled = ResizeKeepRatioToSequence { random_scale_range: [0.0, 1.0], ..plain };
        assert!(check_error(scaled).starts_with("random_scale_range"));
        assert!(!plain.leaves_size_open());
        let image = Shape { height: Some(100), width: Some(100), channels: 3 };
        assert_eq!(plain.fixed_size(image).height, Some(24));
    }

    type Row = ((usize, usize), [usize; 2], usize, bool, f64, f64, f64, [usize; 2]);

    const KNOWN: [Row; 20] = [
        ((1276, 524), [8, 16], 7, false, 0.0, 1.15, 1.85, [40, 30]),
        ((1176, 511), [16, 16], 128, true, 0.0, 1.42, 1.65, [224, 160]),
        ((260, 271), [16, 16], 7, true, 0.0, 1.46, 0.75, [48, 48]),
        ((1282, 420), [14, 14], 128, false, 1.0, 0.8, 1.04, [235, 80]),
        ((1236, 1201), [16, 16], 256, true, 1.0, 1.32, 1.22, [240, 288]),
        ((1, 1924), [8, 16], 576, true, 1.0, 0.87, 1.37, [8, 12032]),
        ((403, 244), [14, 14], 576, true, 1.0, 1.39, 0.88, [462, 252]),
        ((606, 76), [1, 1], 7, true, 0.5, 1.11, 1.88, [6, 1]),
        ((649, 628), [14, 14], 7, false, 0.5, 1.19, 2.0, [30, 58]),
        ((832, 66), [14, 14], 256, false, 1.0, 1.15, 0.72, [1036, 59]),
        ((425, 268), [14, 14], 576, true, 1.0, 0.87, 0.59, [490, 182]),
        ((17, 1999), [1, 1], 576, false, 1.0, 0.98, 0.94, [2, 274]),
        ((1966, 368), [1, 1], 256, true, 1.0, 0.77, 1.67, [22, 7]),
        ((1423, 1204), [16, 16], 256, true, 0.5, 1.17, 1.75, [224, 320]),
        ((697, 1331), [14, 14], 7, true, 1.0, 0.83, 0.91, [28, 42]),
        ((561, 1320), [8, 16], 576, true, 0.0, 1.37, 1.53, [144, 512]),
        ((341, 407), [8, 16], 576, true, 0.0, 1.22, 1.6, [200, 384]),
        ((20, 620), [8, 16], 7, true, 0.5, 0.94, 1.48, [8, 160]),
        ((966, 464), [14, 14], 7, false, 0.0, 0.82, 0.77, [53, 19]),
        ((1253, 148), [14, 14], 128, false, 1.0, 0.5, 1.11, [225, 29]),
    ];
}
