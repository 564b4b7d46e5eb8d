//! `RandomCrop`: a window of fixed size at a random place.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Action, Class, Operation, Padding, PaddingMode, PerChannel, Rect, Shape, Sides, Size,
    param::{Repr, Tuple, check_mask_fill, check_pixels, check_sides, impossible, python_bool, sides},
};
use crate::{Result, rng::Rng};

/// Crops a window of `size` at a place drawn uniformly, after padding if asked for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomCrop {
    /// Height and width of the result.
    #[serde(deserialize_with = "sides")]
    pub size: [usize; 2],
    /// Pixels added at each border before cropping: one number, (left and right, top and bottom), or
    /// (left, top, right, bottom). Default: none.
    #[serde(default)]
    pub padding: Padding,
    /// Add as much as is missing, at both sides, where the image is smaller than `size`. Default: false.
    #[serde(default)]
    pub pad_if_needed: bool,
    /// Value of added pixels, under [`PaddingMode::Constant`]. Default: 0.
    #[serde(default)]
    pub fill: PerChannel,
    /// Value of added pixels of masks, under [`PaddingMode::Constant`]. Default: `fill`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mask_fill: Option<f64>,
    /// How added pixels are made. Default: constant.
    #[serde(default)]
    pub padding_mode: PaddingMode,
}

impl RandomCrop {
    /// Crops to one number (a square) or (height, width), without padding.
    pub fn new(size: impl Into<Sides>) -> Self {
        Self {
            size: size.into().0,
            padding: Padding::default(),
            pad_if_needed: false,
            fill: PerChannel::default(),
            mask_fill: None,
            padding_mode: PaddingMode::default(),
        }
    }

    /// Sets the pixels that are added at each border before cropping.
    #[must_use]
    pub fn padding(mut self, padding: impl Into<Padding>) -> Self {
        self.padding = padding.into();
        self
    }

    /// Sets whether an image that is too small is padded.
    #[must_use]
    pub fn pad_if_needed(mut self, pad: bool) -> Self {
        self.pad_if_needed = pad;
        self
    }

    /// Sets the value of added pixels.
    #[must_use]
    pub fn fill(mut self, fill: impl Into<PerChannel>) -> Self {
        self.fill = fill.into();
        self
    }

    /// Sets the value of added pixels of masks.
    #[must_use]
    pub fn mask_fill(mut self, fill: f64) -> Self {
        self.mask_fill = Some(fill);
        self
    }

    /// Sets how added pixels are made.
    #[must_use]
    pub fn padding_mode(mut self, mode: PaddingMode) -> Self {
        self.padding_mode = mode;
        self
    }

    /// First row or column of the window, for one axis; `None` if the window does not fit. What is missing is
    /// added before *and* after, as torchvision does, so the image may lie anywhere in the window.
    fn start(&self, image: usize, before: usize, after: usize, crop: usize, rng: &mut Rng) -> Option<i64> {
        let (mut before, mut padded) = (before, image + before + after);
        if padded < crop && self.pad_if_needed {
            let missing = crop - padded;
            before += missing;
            padded += 2 * missing;
        }
        let room = padded.checked_sub(crop)?;
        Some(rng.below(room as u64 + 1) as i64 - before as i64)
    }
}

impl fmt::Display for RandomCrop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "RandomCrop")
            .field("size", Tuple(&self.size))
            .field_if(!self.padding.is_zero(), "padding", self.padding)
            .field("pad_if_needed", python_bool(self.pad_if_needed))
            .field("fill", self.fill)
            .field_if(self.mask_fill.is_some(), "mask_fill", self.mask_fill.unwrap_or(0.0))
            .field("padding_mode", self.padding_mode)
            .finish()
    }
}

impl Operation for RandomCrop {
    fn check(&self) -> Result<()> {
        check_sides("size", self.size)?;
        self.padding.check()?;
        check_mask_fill(self.mask_fill)?;
        self.fill.check("fill")
    }

    fn class(&self) -> Class {
        Class::Crop
    }

    fn draws_by_size(&self) -> bool {
        true
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        Shape { height: Some(self.size[0]), width: Some(self.size[1]), ..input }
    }

    fn draw(&self, size: Size, rng: &mut Rng) -> Result<Action> {
        let [height, width] = self.size;
        let Padding { left, top, right, bottom } = self.padding;
        let start = (
            self.start(size.height, top, bottom, height, rng),
            self.start(size.width, left, right, width, rng),
        );
        let (Some(top), Some(left)) = start else {
            let padded = if self.padding.is_zero() { "" } else { "padded " };
            let (h, w) = (size.height + top + bottom, size.width + left + right);
            return Err(impossible(format!(
                "size {} is larger than the {padded}image, which is {}",
                Tuple(&self.size),
                Tuple(&[h, w])
            ))
            .with_hint("resize first, or set pad_if_needed=True"));
        };
        // What is added where it is needed, so that boxes are cut where torchvision cuts them.
        let missing = |image: usize, before: usize, after: usize, crop: usize| {
            if self.pad_if_needed { crop.saturating_sub(image + before + after) } else { 0 }
        };
        let Padding { left: before, top: above, right, bottom } = self.padding;
        let (y, x) = (missing(size.height, above, bottom, height), missing(size.width, before, right, width));
        let added = Padding { left: before + x, top: above + y, right: right + x, bottom: bottom + y };
        if added.is_zero() && [height, width] == [size.height, size.width] {
            return Ok(Action::Keep);
        }
        let inside = |start: i64, crop: usize, image: usize| start >= 0 && start as usize + crop <= image;
        let within = inside(top, height, size.height) && inside(left, width, size.width);
        if within && added.is_zero() {
            return Ok(Action::Crop(Rect { top: top as usize, left: left as usize, height, width }));
        }
        if !within {
            check_pixels(size)?;
            self.fill.check_channels("fill", size.channels)?;
        }
        Ok(Action::PadCrop {
            top,
            left,
            height,
            width,
            mode: self.padding_mode,
            fill: self.fill,
            mask_fill: self.mask_fill,
            added: Some(added),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    fn corner(action: &Action) -> (i64, i64) {
        match *action {
            Action::Crop(Rect { top, left, .. }) => (top as i64, left as i64),
            Action::PadCrop { top, left, .. } => (top, left),
            ref other => panic!("{other:?}"),
        }
    }

    /// Counts drawn corners, which must be uniform over `tops` x `lefts`.
    fn assert_uniform_corners(
        crop: RandomCrop,
        image: Size,
        tops: std::ops::RangeInclusive<i64>,
        lefts: std::ops::RangeInclusive<i64>,
    ) {
        let (rows, columns) = (tops.end() - tops.start() + 1, lefts.end() - lefts.start() + 1);
        let mut counts = vec![0; (rows * columns) as usize];
        for action in draws(crop, image, 40_000) {
            let (top, left) = corner(&action);
            assert!(tops.contains(&top) && lefts.contains(&left), "{top} {left}");
            counts[((top - tops.start()) * columns + left - lefts.start()) as usize] += 1;
            let window = action.size(image);
            assert_eq!([window.height, window.width], crop.size);
        }
        assert_uniform_counts(&counts);
    }

    #[test]
    fn corners_are_uniform_over_the_padded_image() {
        assert_uniform_corners(RandomCrop::new(32).padding(4), size(32, 32), -4..=4, -4..=4);
        assert_uniform_corners(RandomCrop::new((5, 9)), size(10, 11), 0..=5, 0..=2);
        assert_uniform_corners(RandomCrop::new(8).padding([1, 2, 3, 4]), size(8, 9), -2..=4, -1..=4);
        // Too small by 2 rows: two are added above and two below.
        assert_uniform_corners(RandomCrop::new(8).pad_if_needed(true), size(6, 10), -2..=0, 0..=2);
    }

    #[test]
    fn what_is_added_is_known_and_no_crop_is_none() {
        for action in draws(RandomCrop::new(4).padding(2), size(6, 6), 1000) {
            assert!(matches!(action, Action::PadCrop { added: Some(added), .. } if added == 2.into()));
        }
        assert!(draws(RandomCrop::new(4), size(6, 6), 100).all(|action| matches!(action, Action::Crop(_))));
        assert_eq!(RandomCrop::new(7).draw(size(7, 7), &mut rng(0)).unwrap(), Action::Keep);
        let needed = RandomCrop::new((7, 9)).pad_if_needed(true).draw(size(5, 9), &mut rng(0)).unwrap();
        assert!(matches!(needed, Action::PadCrop { added: Some(added), .. } if added == [0, 2].into()));
    }

    #[test]
    fn an_image_that_is_too_small_is_an_error_with_sizes() {
        let e = RandomCrop::new((8, 4)).draw(size(7, 5), &mut rng(0)).unwrap_err();
        assert_eq!(e.message(), "size (8, 4) is larger than the image, which is (7, 5)");
        let e = RandomCrop::new(9).padding([0, 0, 3, 0]).draw(size(8, 5), &mut rng(0)).unwrap_err();
        assert_eq!(e.message(), "size (9, 9) is larger than the padded image, which is (8, 8)");
        assert_eq!((e.kind(), e.stage()), (crate::ErrorKind::Shape, None));
    }

    #[test]
    fn it_reads_and_shows_as_in_torchvision() {
        let full = r#"{"type":"RandomCrop","size":[32,32],"padding":[4,4,4,4],"pad_if_needed":false,"fill":[1,2,3],
                       "padding_mode":"constant"}"#;
        let crop = read(full);
        assert_eq!(crop, RandomCrop::new(32).padding(4).fill([1.0, 2.0, 3.0]).into());
        assert_eq!(
            crop.to_string(),
            "RandomCrop(size=(32, 32), padding=[4, 4, 4, 4], pad_if_needed=False, fill=(1, 2, 3), \
             padding_mode=constant)"
        );
        assert_eq!(read(r#"{"type":"RandomCrop","size":8,"padding":null}"#), RandomCrop::new(8).into());
        let e = refuse(r#"{"type":"RandomCrop","size":8,"paddding":4}"#);
        assert!(
            e.starts_with("RandomCrop: unknown field `paddding`, expected one of `size`, `padding`"),
            "{e}"
        );
        assert!(check_error(RandomCrop::new((0, 3))).contains("size is (0, 3)"));
    }
}
