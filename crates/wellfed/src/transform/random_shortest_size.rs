//! `RandomShortestSize`: a smaller edge out of a list, as long as the longer one does not get too long.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

use super::{
    Action, Class, Interpolation, Operation, Shape, Size,
    param::{MAX_SIDE, Repr, check_pixels, python_bool},
    resize::{antialias, check_antialias, resized},
};
use crate::{Error, Result, rng::Rng};

/// Resizes the smaller edge to one of several numbers, each as likely as the others; the aspect ratio stays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomShortestSize {
    /// Smaller edges to choose from: one number or several.
    #[serde(deserialize_with = "edges")]
    pub min_size: Vec<usize>,
    /// Greatest longer edge of the result. Default: none.
    #[serde(default)]
    pub max_size: Option<usize>,
    /// Filter. Default: bilinear.
    #[serde(default)]
    pub interpolation: Interpolation,
    /// Must be true for bilinear, bicubic and lanczos; means nothing for nearest. Default: true.
    #[serde(default = "yes", deserialize_with = "antialias")]
    pub antialias: bool,
}

fn yes() -> bool {
    true
}

fn edges<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<usize>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Given {
        One(usize),
        Many(Vec<usize>),
    }
    match Given::deserialize(deserializer) {
        Ok(Given::One(edge)) => Ok(vec![edge]),
        Ok(Given::Many(edges)) => Ok(edges),
        Err(_) => Err(D::Error::custom("must be one number of pixels, or several")),
    }
}

impl RandomShortestSize {
    /// Smaller edges to choose from.
    pub fn new(min_size: impl Into<Vec<usize>>) -> Self {
        Self {
            min_size: min_size.into(),
            max_size: None,
            interpolation: Interpolation::default(),
            antialias: true,
        }
    }

    /// Sets the greatest longer edge of the result.
    #[must_use]
    pub fn max_size(mut self, max_size: usize) -> Self {
        self.max_size = Some(max_size);
        self
    }

    /// Sets the filter.
    #[must_use]
    pub fn interpolation(mut self, interpolation: Interpolation) -> Self {
        self.interpolation = interpolation;
        self
    }

    /// Height and width of the result, in torchvision's arithmetic: Python's floats, rounded down.
    fn output(&self, edge: usize, size: Size) -> [usize; 2] {
        let (height, width) = (size.height as f64, size.width as f64);
        let mut ratio = edge as f64 / height.min(width);
        if let Some(max) = self.max_size {
            ratio = ratio.min(max as f64 / height.max(width));
        }
        [(height * ratio) as usize, (width * ratio) as usize]
    }
}

impl fmt::Display for RandomShortestSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "RandomShortestSize")
            .field("min_size", format_args!("{:?}", self.min_size))
            .field_if(self.max_size.is_some(), "max_size", self.max_size.unwrap_or(0))
            .field("interpolation", self.interpolation)
            .field("antialias", python_bool(self.antialias))
            .finish()
    }
}

impl Operation for RandomShortestSize {
    fn check(&self) -> Result<()> {
        check_antialias(self.antialias, self.interpolation)?;
        let known = |side: &usize| (1..=MAX_SIDE).contains(side);
        if self.min_size.is_empty() || !self.min_size.iter().all(known) {
            let given = &self.min_size;
            return Err(Error::config(format!(
                "min_size is {given:?}; must be one or more of 1 to {MAX_SIDE}"
            )));
        }
        match self.max_size {
            Some(max) if !known(&max) => {
                Err(Error::config(format!("max_size is {max}; must be 1 to {MAX_SIDE}")))
            }
            _ => Ok(()),
        }
    }

    fn class(&self) -> Class {
        Class::Resize
    }

    fn draws_by_size(&self) -> bool {
        true
    }

    fn leaves_size_open(&self) -> bool {
        self.min_size.len() > 1
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        let sides = match (&self.min_size[..], input.height, input.width) {
            (&[edge], Some(height), Some(width)) if height > 0 && width > 0 => {
                Some(self.output(edge, Size { height, width, channels: input.channels }))
            }
            _ => None,
        };
        Shape { height: sides.map(|s| s[0]), width: sides.map(|s| s[1]), ..input }
    }

    fn draw(&self, size: Size, rng: &mut Rng) -> Result<Action> {
        check_pixels(size)?;
        let edge = self.min_size[rng.below(self.min_size.len() as u64) as usize];
        resized(size, self.output(edge, size), self.interpolation)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn each_edge_is_as_likely_and_the_longer_one_is_bounded() {
        let image = size(20, 60);
        let mut counts = [0; 3];
        for action in draws(RandomShortestSize::new([10, 15, 40]).max_size(100), image, 9_000) {
            let after = action.size(image);
            let at = [(10, 30), (15, 45), (33, 100)]
                .iter()
                .position(|&known| known == (after.height, after.width))
                .unwrap_or_else(|| panic!("{after:?}"));
            counts[at] += 1;
        }
        assert_uniform_counts(&counts);
    }

    #[test]
    fn sizes_round_as_in_torchvision() {
        // (height, width), min_size, max_size, and what torchvision 0.29 makes of it.
        for ((height, width), edge, max, expected) in [
            ((375, 500), 800, 1333, (800, 1066)),
            ((427, 640), 480, 1333, (479, 719)),
            ((480, 640), 640, 1333, (640, 853)),
            ((333, 1000), 800, 1333, (443, 1333)),
            ((500, 375), 608, 1333, (810, 608)),
        ] {
            let action = RandomShortestSize::new([edge]).max_size(max).draw(size(height, width), &mut rng(0));
            let after = action.unwrap().size(size(height, width));
            assert_eq!((after.height, after.width), expected, "{height}x{width} to {edge}");
        }
    }

    #[test]
    fn it_reads_shows_and_checks() {
        assert_eq!(
            read(r#"{"type":"RandomShortestSize","min_size":[4,8],"max_size":9}"#).to_string(),
            "RandomShortestSize(min_size=[4, 8], max_size=9, interpolation=bilinear, antialias=True)"
        );
        assert_eq!(
            read(r#"{"type":"RandomShortestSize","min_size":4}"#),
            RandomShortestSize::new([4]).into()
        );
        assert!(check_error(RandomShortestSize::new([])).starts_with("min_size is []"));
        assert!(check_error(RandomShortestSize::new([5]).max_size(0)).starts_with("max_size is 0"));
        let e = RandomShortestSize::new([1]).max_size(1).draw(size(1, 900), &mut rng(0)).unwrap_err();
        assert!(e.message().starts_with("an image of (1, 900) would become (0, 1)"), "{e}");
    }
}
