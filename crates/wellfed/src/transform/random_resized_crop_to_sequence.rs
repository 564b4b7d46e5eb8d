//! `RandomResizedCropToSequence`: timm's transform of that name.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Action, Class, Filters, Operation, Rect, Shape, Sides, Size,
    param::{Repr, Tuple, check_pixels, check_positive_range, check_range, python_bool, sides},
    patches::{Patches, default_most, default_patch, yes},
    ratio_jitter::rounded,
    resize::{check_antialias, check_output},
};
use crate::{Error, Result, rng::Rng};

/// Crops a random part of random area and aspect ratio, and resizes it to the largest size of which no more than
/// `max_seq_len` patches are made, or to a drawn share of it: timm's transform of this name.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomResizedCropToSequence {
    /// Height and width of a patch. Default: 16.
    #[serde(default = "default_patch", deserialize_with = "sides")]
    pub patch_size: [usize; 2],
    /// How many patches an image may have. Default: 1024.
    #[serde(default = "default_most")]
    pub max_seq_len: usize,
    /// Least and greatest share of the area that is kept. Default: (0.08, 1.0).
    #[serde(default = "default_area")]
    pub scale: [f64; 2],
    /// Least and greatest factor of the image's aspect ratio. Default: (0.8, 1.25).
    #[serde(default = "default_ratio")]
    pub ratio: [f64; 2],
    /// Filter, or two of which one is drawn. Default: bilinear.
    #[serde(default)]
    pub interpolation: Filters,
    /// Whether sides are multiples of those of a patch. Default: true.
    #[serde(default = "yes")]
    pub divisible_by_patch: bool,
    /// Least and greatest share of the largest size. Default: all of it.
    #[serde(default)]
    pub final_scale_range: Option<[f64; 2]>,
    /// How often a part is drawn before the middle is taken. Default: 10.
    #[serde(default = "ten")]
    pub attempts: usize,
}

/// More attempts would be more random numbers than a stage has.
const MOST_ATTEMPTS: usize = 1000;

fn default_area() -> [f64; 2] {
    [0.08, 1.0]
}

fn default_ratio() -> [f64; 2] {
    [0.8, 1.25]
}

fn ten() -> usize {
    10
}

impl RandomResizedCropToSequence {
    /// As many patches of one number (a square) or (height, width), with timm's defaults.
    pub fn new(patch_size: impl Into<Sides>, max_seq_len: usize) -> Self {
        Self {
            patch_size: patch_size.into().0,
            max_seq_len,
            scale: default_area(),
            ratio: default_ratio(),
            interpolation: Filters::default(),
            divisible_by_patch: true,
            final_scale_range: None,
            attempts: ten(),
        }
    }

    fn patches(&self) -> Patches {
        Patches { size: self.patch_size, most: self.max_seq_len, divisible: self.divisible_by_patch }
    }

    /// What is cut out: some attempts, then the largest central part within `ratio`.
    fn part(&self, size: Size, rng: &mut Rng) -> Rect {
        let (height, width) = (size.height as f64, size.width as f64);
        let own = width / height;
        let [low, high] = self.ratio.map(f64::ln);
        for _ in 0..self.attempts {
            let area = height * width * rng.uniform(self.scale[0], self.scale[1]);
            let ratio = own * rng.uniform(low, high).exp();
            let [h, w] = rounded([(area / ratio).sqrt(), (area * ratio).sqrt()]);
            if (1..=size.width).contains(&w) && (1..=size.height).contains(&h) {
                let top = rng.below((size.height - h + 1) as u64) as usize;
                let left = rng.below((size.width - w + 1) as u64) as usize;
                return Rect { top, left, height: h, width: w };
            }
        }
        let [narrow, wide] = self.ratio.map(|ratio| own * ratio);
        let [h, w] = if own < narrow {
            [((width / narrow).round_ties_even() as usize).clamp(1, size.height), size.width]
        } else if own > wide {
            [size.height, ((height * wide).round_ties_even() as usize).clamp(1, size.width)]
        } else {
            [size.height, size.width]
        };
        Rect { top: (size.height - h) / 2, left: (size.width - w) / 2, height: h, width: w }
    }

    /// Height and width of the result for a part of these sides.
    fn output(&self, part: [usize; 2], rng: &mut Rng) -> Result<[usize; 2]> {
        let patches = self.patches();
        let (ratio, most) = patches.fit(part, None)?;
        let Some([low, high]) = self.final_scale_range else { return Ok(most) };
        let factor = rng.uniform(low, high).clamp(0.0, 1.0);
        let raw = part.map(|side| side as f64 * ratio * factor);
        let sides = if self.divisible_by_patch { patches.up(raw) } else { raw.map(f64::round_ties_even) };
        let sides = patches.at_least(sides).map(|side| side as usize);
        Ok(if patches.count(sides) > patches.most { most } else { sides })
    }
}

impl fmt::Display for RandomResizedCropToSequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let repr = Repr::new(f, "RandomResizedCropToSequence")
            .field("patch_size", Tuple(&self.patch_size))
            .field("max_seq_len", self.max_seq_len)
            .field("scale", Tuple(&self.scale))
            .field("ratio", Tuple(&self.ratio))
            .field("interpolation", self.interpolation)
            .field("divisible_by_patch", python_bool(self.divisible_by_patch));
        match self.final_scale_range {
            Some(range) => repr.field("final_scale_range", Tuple(&range)),
            None => repr,
        }
        .field("attempts", self.attempts)
        .finish()
    }
}

impl Operation for RandomResizedCropToSequence {
    fn check(&self) -> Result<()> {
        self.patches().check()?;
        check_range("scale", self.scale, 0.0, f64::INFINITY)?;
        check_positive_range("ratio", self.ratio)?;
        if let Some(range) = self.final_scale_range {
            check_range("final_scale_range", range, 0.0, f64::INFINITY)?;
        }
        if self.attempts > MOST_ATTEMPTS {
            return Err(Error::config(format!(
                "attempts is {}; must be 0 to {MOST_ATTEMPTS}",
                self.attempts
            )));
        }
        self.interpolation.each().try_for_each(|filter| check_antialias(true, filter))
    }

    fn class(&self) -> Class {
        Class::Resize
    }

    fn draws_by_size(&self) -> bool {
        true
    }

    fn leaves_size_open(&self) -> bool {
        true
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        Shape { height: None, width: None, ..input }
    }

    fn draw(&self, size: Size, rng: &mut Rng) -> Result<Action> {
        check_pixels(size)?;
        let crop = self.part(size, rng);
        let [height, width] = self.output([crop.height, crop.width], rng)?;
        check_output([crop.height, crop.width], [height, width])?;
        let interpolation = self.interpolation.draw(rng);
        Ok(Action::Resize { crop, cropped: true, height, width, interpolation })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    fn parts(
        crop: RandomResizedCropToSequence,
        size: Size,
        n: u64,
    ) -> impl Iterator<Item = (Rect, [usize; 2])> {
        draws(crop, size, n).map(|action| match action {
            Action::Resize { crop, height, width, .. } => (crop, [height, width]),
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn areas_ratios_and_places_are_those_of_timm() {
        let (high, wide) = (100_000, 200_000);
        let crop = RandomResizedCropToSequence {
            scale: [0.05, 0.4],
            ratio: [0.5, 2.0],
            ..RandomResizedCropToSequence::new(1, 1000)
        };
        let parts: Vec<Rect> = parts(crop, size(high, wide), 10_000).map(|(part, _)| part).collect();
        let area = (high * wide) as f64;
        assert_uniform(
            parts.iter().map(|r| ((r.height * r.width) as f64 / area).clamp(0.05, 0.4)),
            0.05,
            0.4,
        );
        // Relative to the image's own, which is 2.
        let log = |r: &Rect| (r.width as f64 / r.height as f64 / 2.0).ln().clamp(-(2f64.ln()), 2f64.ln());
        assert_uniform(parts.iter().map(log), -(2f64.ln()), 2f64.ln());
        assert_uniform(parts.iter().map(|r| r.top as f64 / (high - r.height) as f64), 0.0, 1.0);
        assert_uniform(parts.iter().map(|r| r.left as f64 / (wide - r.width) as f64), 0.0, 1.0);
    }

    #[test]
    fn results_are_made_of_patches_and_fit() {
        let crop = RandomResizedCropToSequence::new((8, 16), 100);
        for (part, [height, width]) in parts(crop, size(300, 170), 1000) {
            assert!(height % 8 == 0 && width % 16 == 0 && (height / 8) * (width / 16) <= 100);
            let patches = Patches { size: [8, 16], most: 100, divisible: true };
            assert_eq!(patches.fit([part.height, part.width], None).unwrap().1, [height, width]);
        }
        let smaller = RandomResizedCropToSequence { final_scale_range: Some([0.2, 0.5]), ..crop };
        let all: Vec<[usize; 2]> = parts(smaller, size(300, 170), 1000).map(|(_, sides)| sides).collect();
        assert!(all.iter().all(|[h, w]| h % 8 == 0 && w % 16 == 0 && (h / 8) * (w / 16) <= 49));
        let loose = RandomResizedCropToSequence { divisible_by_patch: false, ..smaller };
        assert!(parts(loose, size(300, 170), 100).any(|(_, [h, _])| h % 8 != 0));
    }

    #[test]
    fn without_attempts_it_is_the_middle_within_the_ratio() {
        let none = RandomResizedCropToSequence { attempts: 0, ..RandomResizedCropToSequence::new(1, 10_000) };
        let one =
            |ratio| parts(RandomResizedCropToSequence { ratio, ..none }, size(30, 61), 1).next().unwrap().0;
        assert_eq!(one([0.8, 1.25]), Rect { top: 0, left: 0, height: 30, width: 61 });
        assert_eq!(one([2.0, 3.0]), Rect { top: 7, left: 0, height: 15, width: 61 });
        assert_eq!(one([0.2, 0.5]), Rect { top: 0, left: 15, height: 30, width: 30 });
    }

    #[test]
    fn it_reads_shows_and_checks() {
        let json = r#"{"type":"RandomResizedCropToSequence","patch_size":8,"final_scale_range":[0.5,1.0]}"#;
        assert_eq!(
            read(json).to_string(),
            "RandomResizedCropToSequence(patch_size=(8, 8), max_seq_len=1024, scale=(0.08, 1.0), ratio=(0.8, 1.25), \
             interpolation=bilinear, divisible_by_patch=True, final_scale_range=(0.5, 1.0), attempts=10)"
        );
        let plain = RandomResizedCropToSequence::new(8, 9);
        assert!(check_error(RandomResizedCropToSequence { ratio: [0.0, 1.0], ..plain }).starts_with("ratio"));
        assert!(
            check_error(RandomResizedCropToSequence { scale: [-1.0, 1.0], ..plain }).starts_with("scale")
        );
        assert!(check_error(RandomResizedCropToSequence { attempts: 1001, ..plain }).starts_with("attempts"));
        let finals = RandomResizedCropToSequence { final_scale_range: Some([1.0, 0.0]), ..plain };
        assert!(check_error(finals).starts_with("final_scale_range"));
    }
}
