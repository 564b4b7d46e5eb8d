//! `RandomIoUCrop`: a part of the image that overlaps some of its boxes well.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Action, Class, Operation, Rect, Shape, Size,
    boxes::overlap,
    param::{Repr, check_pixels, check_positive_range, check_range, impossible},
};
use crate::{Error, ErrorKind, Result, rng::Rng};

/// Crops a random part that some box overlaps by at least a share drawn from `sampler_options`. Boxes whose middle lies
/// outside become empty: `SanitizeBoundingBoxes` removes them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RandomIoUCrop {
    /// Least share of height and of width that is kept.
    pub min_scale: f64,
    /// Greatest share of height and of width that is kept.
    pub max_scale: f64,
    /// Least aspect ratio (width / height) of the part.
    pub min_aspect_ratio: f64,
    /// Greatest aspect ratio (width / height) of the part.
    pub max_aspect_ratio: f64,
    /// Least overlaps (Jaccard) to draw from; 1 or more keeps the image as it is.
    pub sampler_options: Vec<f64>,
    /// Parts that are tried for an overlap before another one is drawn.
    pub trials: usize,
}

/// Parts that are tried in all. torchvision tries for ever, where none can be found and no option keeps the image.
const MOST_TRIALS: usize = 20_000;

/// Overlaps that are drawn in all: a part may be refused before it takes a random number.
const MOST_ROUNDS: usize = 10_000;

impl Default for RandomIoUCrop {
    fn default() -> Self {
        Self {
            min_scale: 0.3,
            max_scale: 1.0,
            min_aspect_ratio: 0.5,
            max_aspect_ratio: 2.0,
            sampler_options: vec![0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0],
            trials: 40,
        }
    }
}

impl RandomIoUCrop {
    /// torchvision's defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the least overlaps to draw from.
    #[must_use]
    pub fn sampler_options(mut self, options: impl Into<Vec<f64>>) -> Self {
        self.sampler_options = options.into();
        self
    }

    /// One part, in torchvision's float32; `None` for one of another aspect ratio, or without pixels.
    fn part(&self, size: Size, rng: &mut Rng) -> Option<Rect> {
        let (least, more) = (self.min_scale as f32, (self.max_scale - self.min_scale) as f32);
        let mut side = |side: usize| (side as f32 * (least + more * rng.unit_single())) as usize;
        let (width, height) = (side(size.width), side(size.height));
        if width == 0 || height == 0 {
            return None;
        }
        let ratio = width as f64 / height as f64;
        if !(self.min_aspect_ratio..=self.max_aspect_ratio).contains(&ratio) {
            return None;
        }
        // Rounding up in float32 could make a side larger by one: only of sides that it does not hold.
        let (width, height) = (width.min(size.width), height.min(size.height));
        let left = ((size.width - width) as f32 * rng.unit_single()) as usize;
        let top = ((size.height - height) as f32 * rng.unit_single()) as usize;
        Some(Rect { top: top.min(size.height - height), left: left.min(size.width - width), height, width })
    }
}

impl fmt::Display for RandomIoUCrop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "RandomIoUCrop")
            .field("min_scale", self.min_scale)
            .field("max_scale", self.max_scale)
            .field("min_aspect_ratio", self.min_aspect_ratio)
            .field("max_aspect_ratio", self.max_aspect_ratio)
            .field("sampler_options", format_args!("{:?}", self.sampler_options))
            .field("trials", self.trials)
            .finish()
    }
}

impl Operation for RandomIoUCrop {
    fn check(&self) -> Result<()> {
        check_range("(min_scale, max_scale)", [self.min_scale, self.max_scale], 0.0, 1.0)?;
        check_positive_range(
            "(min_aspect_ratio, max_aspect_ratio)",
            [self.min_aspect_ratio, self.max_aspect_ratio],
        )?;
        if self.sampler_options.is_empty() || self.sampler_options.iter().any(|option| option.is_nan()) {
            let given = &self.sampler_options;
            return Err(Error::config(format!("sampler_options is {given:?}; must be one number or more")));
        }
        if self.trials == 0 {
            return Err(Error::config("trials is 0; must be at least 1"));
        }
        Ok(())
    }

    fn class(&self) -> Class {
        Class::Crop
    }

    fn draws_by_size(&self) -> bool {
        true
    }

    fn leaves_size_open(&self) -> bool {
        true
    }

    fn sees_boxes(&self) -> bool {
        true
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        Shape { height: None, width: None, ..input }
    }

    fn draw(&self, _size: Size, _rng: &mut Rng) -> Result<Action> {
        Err(Error::new(ErrorKind::Config, "it looks at boxes, and there are none beside the image")
            .with_hint("use it on samples with boxes, by map() without field="))
    }

    fn draw_around(&self, size: Size, boxes: &[[f32; 4]], rng: &mut Rng) -> Result<Action> {
        check_pixels(size)?;
        let mut tried = 0;
        for _ in 0..MOST_ROUNDS {
            let least = self.sampler_options[rng.below(self.sampler_options.len() as u64) as usize];
            if least >= 1.0 {
                return Ok(Action::Keep);
            }
            for _ in 0..self.trials {
                if tried == MOST_TRIALS {
                    break;
                }
                tried += 1;
                let Some(part) = self.part(size, rng) else { continue };
                let most = boxes.iter().filter_map(|&corners| overlap(corners, part)).reduce(f32::max);
                // torch compares in float32.
                if most.is_some_and(|most| most >= least as f32) {
                    return Ok(Action::CropAround(part));
                }
            }
            if tried == MOST_TRIALS {
                break;
            }
        }
        Err(impossible(format!("none of {tried} parts overlaps one of {} boxes well enough", boxes.len()))
            .with_hint("sampler_options with a number of 1 or more keep the image in such a case"))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    const BOXES: [[f32; 4]; 3] =
        [[10.0, 10.0, 60.0, 70.0], [120.0, 20.0, 190.0, 90.0], [5.0, 60.0, 25.0, 95.0]];

    fn crops(crop: &RandomIoUCrop, n: u64) -> Vec<Action> {
        crop.check().unwrap();
        (0..n).map(|i| crop.draw_around(size(100, 200), &BOXES, &mut rng(i)).unwrap()).collect()
    }

    #[test]
    fn parts_overlap_a_box_and_have_the_aspect_ratio() {
        for least in [0.0, 0.3, 0.5] {
            for action in crops(&RandomIoUCrop::new().sampler_options([least]), 500) {
                let Action::CropAround(rect) = action else { panic!("{action:?}") };
                assert!(rect.top + rect.height <= 100 && rect.left + rect.width <= 200);
                assert!((30..=100).contains(&rect.height) && (60..=200).contains(&rect.width));
                assert!((0.5..=2.0).contains(&(rect.width as f64 / rect.height as f64)));
                let most = BOXES.iter().filter_map(|&b| overlap(b, rect)).fold(-1.0, f32::max);
                assert!(most >= least as f32, "{most} {least}");
            }
        }
    }

    #[test]
    fn options_are_drawn_uniformly_and_one_keeps_the_image() {
        let kept = crops(&RandomIoUCrop::new().sampler_options([0.0, 0.0, 1.0]), 9_000)
            .iter()
            .filter(|action| **action == Action::Keep)
            .count();
        assert_probability(kept, 9_000, 1.0 / 3.0);
    }

    #[test]
    fn what_cannot_be_found_is_an_error_and_not_an_endless_search() {
        let never = RandomIoUCrop::new().sampler_options([0.1]);
        let e = never.draw_around(size(50, 50), &[], &mut rng(0)).unwrap_err();
        assert_eq!(e.message(), "none of 20000 parts overlaps one of 0 boxes well enough");
        let keeps = RandomIoUCrop::new().draw_around(size(50, 50), &[], &mut rng(0)).unwrap();
        assert_eq!(keeps, Action::Keep);
        assert!(never.draw(size(5, 5), &mut rng(0)).is_err());
    }

    #[test]
    fn it_reads_shows_and_checks() {
        assert_eq!(
            read(r#"{"type":"RandomIoUCrop","trials":3,"sampler_options":[0.5,2]}"#).to_string(),
            "RandomIoUCrop(min_scale=0.3, max_scale=1, min_aspect_ratio=0.5, max_aspect_ratio=2, \
             sampler_options=[0.5, 2.0], trials=3)"
        );
        let wide = RandomIoUCrop { max_scale: 1.5, ..RandomIoUCrop::new() };
        assert!(check_error(wide).starts_with("(min_scale, max_scale) is (0.3, 1.5)"));
        assert!(check_error(RandomIoUCrop::new().sampler_options([])).starts_with("sampler_options is []"));
        assert!(check_error(RandomIoUCrop { trials: 0, ..RandomIoUCrop::new() }).starts_with("trials is 0"));
    }
}
