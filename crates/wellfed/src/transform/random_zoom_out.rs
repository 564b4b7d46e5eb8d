//! `RandomZoomOut`: the image somewhere in a larger one.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Action, Class, Operation, Padding, PaddingMode, PerChannel, Rect, Shape, Size,
    param::{MAX_SIDE, Repr, Tuple, check_mask_fill, check_pixels, check_probability, impossible},
};
use crate::{Error, Result, rng::Rng};

/// Pads the image with probability `p`, so that it lies at a random place of a canvas of random size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RandomZoomOut {
    /// Value of added pixels. Default: 0.
    pub fill: PerChannel,
    /// Value of added pixels of masks. Default: `fill`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mask_fill: Option<f64>,
    /// Least and greatest size of the canvas, as a multiple of the image's. Default: (1.0, 4.0).
    pub side_range: [f64; 2],
    /// Probability, 0 to 1; 0.5 by default.
    pub p: f64,
}

impl Default for RandomZoomOut {
    fn default() -> Self {
        Self { fill: PerChannel::default(), mask_fill: None, side_range: [1.0, 4.0], p: 0.5 }
    }
}

impl RandomZoomOut {
    /// Canvases up to four times as high and wide, for half of the images.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the value of added pixels.
    #[must_use]
    pub fn fill(mut self, fill: impl Into<PerChannel>) -> Self {
        self.fill = fill.into();
        self
    }

    /// Sets least and greatest size of the canvas.
    #[must_use]
    pub fn side_range(mut self, range: [f64; 2]) -> Self {
        self.side_range = range;
        self
    }

    /// Sets the probability.
    #[must_use]
    pub fn p(mut self, p: f64) -> Self {
        self.p = p;
        self
    }
}

impl fmt::Display for RandomZoomOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "RandomZoomOut")
            .field("fill", self.fill)
            .field_if(self.mask_fill.is_some(), "mask_fill", self.mask_fill.unwrap_or(0.0))
            .field("side_range", Tuple(&self.side_range))
            .field("p", self.p)
            .finish()
    }
}

impl Operation for RandomZoomOut {
    fn check(&self) -> Result<()> {
        check_probability(self.p)?;
        self.fill.check("fill")?;
        check_mask_fill(self.mask_fill)?;
        let [low, high] = self.side_range;
        if 1.0 <= low && low <= high && high.is_finite() {
            return Ok(());
        }
        let given = Tuple(&self.side_range);
        Err(Error::config(format!("side_range is {given}; must be (low, high) with 1 <= low <= high")))
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

    fn fixed_size(&self, input: Shape) -> Shape {
        Shape { height: None, width: None, ..input }
    }

    /// torchvision's numbers are float32 here, since its random numbers are tensors.
    fn draw(&self, size: Size, rng: &mut Rng) -> Result<Action> {
        if !rng.chance(self.p) {
            return Ok(Action::Keep);
        }
        check_pixels(size)?;
        self.fill.check_channels("fill", size.channels)?;
        let ratio = rng.uniform_single(self.side_range);
        // Never smaller than the image: with a ratio of 1 the product is exact.
        let canvas = [size.height, size.width].map(|side| ((side as f32 * ratio) as usize).max(side));
        if canvas.iter().any(|side| *side > MAX_SIDE) {
            return Err(impossible(format!(
                "an image of {} would become {}; both sides must be 1 to {MAX_SIDE}",
                Tuple(&[size.height, size.width]),
                Tuple(&canvas)
            )));
        }
        let (height, width) = (canvas[0], canvas[1]);
        let left = ((width - size.width) as f32 * rng.unit_single()) as usize;
        let top = ((height - size.height) as f32 * rng.unit_single()) as usize;
        let (right, bottom) = (width - size.width - left, height - size.height - top);
        let added = Padding { left, top, right, bottom };
        if added.is_zero() {
            // Nothing is added, but boxes are cut at the border all the same.
            return Ok(Action::Crop(Rect { top: 0, left: 0, height, width }));
        }
        Ok(Action::PadCrop {
            top: -(top as i64),
            left: -(left as i64),
            height,
            width,
            mode: PaddingMode::Constant,
            fill: self.fill,
            mask_fill: self.mask_fill,
            added: Some(added),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn the_image_lies_anywhere_in_a_canvas_of_uniform_size() {
        let image = size(1000, 2000);
        let mut ratios = Vec::new();
        let mut places = Vec::new();
        for action in draws(RandomZoomOut::new().p(1.0).side_range([2.0, 4.0]), image, 10_000) {
            let Action::PadCrop { top, left, height, width, added: Some(added), .. } = action else {
                panic!("{action:?}")
            };
            assert!(width.abs_diff(2 * height) <= 1);
            assert_eq!((added.left as i64, added.top as i64), (-left, -top));
            assert_eq!(added.top + 1000 + added.bottom, height);
            assert_eq!(added.left + 2000 + added.right, width);
            ratios.push(height as f64 / 1000.0);
            places.push(-top as f64 / (height - 1000) as f64);
        }
        assert_uniform(ratios, 1.999, 4.0);
        assert_uniform(places, -0.001, 1.0);
    }

    #[test]
    fn it_is_done_with_probability_p() {
        for p in [0.0, 0.3, 1.0] {
            let hits = draws(RandomZoomOut::new().p(p).side_range([2.0, 2.0]), size(10, 10), 10_000)
                .filter(|action| *action != Action::Keep)
                .count();
            assert_probability(hits, 10_000, p);
        }
    }

    #[test]
    fn a_canvas_of_the_same_size_still_cuts_boxes() {
        let same = RandomZoomOut::new().p(1.0).side_range([1.0, 1.0]);
        let whole = Rect { top: 0, left: 0, height: 7, width: 9 };
        assert_eq!(same.draw(size(7, 9), &mut rng(0)).unwrap(), Action::Crop(whole));
    }

    #[test]
    fn it_reads_shows_and_checks() {
        assert_eq!(
            read(r#"{"type":"RandomZoomOut","fill":[1,2,3],"mask_fill":255}"#).to_string(),
            "RandomZoomOut(fill=(1, 2, 3), mask_fill=255, side_range=(1.0, 4.0), p=0.5)"
        );
        assert!(
            check_error(RandomZoomOut::new().side_range([0.5, 2.0])).starts_with("side_range is (0.5, 2.0)")
        );
        assert!(check_error(RandomZoomOut::new().p(2.0)).starts_with("p is 2"));
        let giant = RandomZoomOut::new().p(1.0).side_range([1e30, 1e30]);
        assert!(giant.draw(size(9, 9), &mut rng(0)).unwrap_err().message().contains("would become"));
    }
}
