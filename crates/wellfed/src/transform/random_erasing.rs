//! `RandomErasing`: overwrites a random rectangle (Zhong et al., "Random Erasing Data Augmentation", 2017).

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use super::{
    Action, Class, EraseValue, Noise, Operation, Patch, PerChannel, Rect, Shape, Size,
    param::{Repr, Tuple, check_positive_range, check_probability, check_range},
};
use crate::{Error, Result, rng::Rng};

/// What [`RandomErasing`] writes. In JSON a number, one number per channel, `"random"` or `"random-color"`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Erasure {
    /// These values.
    Constant(PerChannel),
    /// Standard normal noise, another number for each element.
    Random,
    /// One standard normal number for each channel of a rectangle: timm's mode `rand`.
    RandomColor,
}

impl Default for Erasure {
    fn default() -> Self {
        Self::Constant(PerChannel::default())
    }
}

impl<T: Into<PerChannel>> From<T> for Erasure {
    fn from(value: T) -> Self {
        Self::Constant(value.into())
    }
}

impl Serialize for Erasure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Erasure::Constant(value) => value.serialize(serializer),
            Erasure::Random => serializer.serialize_str("random"),
            Erasure::RandomColor => serializer.serialize_str("random-color"),
        }
    }
}

impl<'de> Deserialize<'de> for Erasure {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Given {
            Text(String),
            Constant(PerChannel),
        }
        match Given::deserialize(deserializer) {
            Ok(Given::Text(text)) if text == "random" => Ok(Self::Random),
            Ok(Given::Text(text)) if text == "random-color" => Ok(Self::RandomColor),
            Ok(Given::Constant(value)) => Ok(Self::Constant(value)),
            _ => Err(D::Error::custom(
                "must be one number, one per channel (1 to 4 of them), \"random\" or \"random-color\"",
            )),
        }
    }
}

/// Overwrites a rectangle of random area, aspect ratio and place with probability `p`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RandomErasing {
    /// Probability, 0 to 1; 0.5 by default.
    pub p: f64,
    /// Least and greatest share of the area that is overwritten. Default: (0.02, 0.33).
    pub scale: [f64; 2],
    /// Least and greatest aspect ratio (height / width). Default: (0.3, 3.3).
    pub ratio: [f64; 2],
    /// What is written. Default: 0.
    pub value: Erasure,
    /// Means nothing here, where images are always changed in place.
    pub inplace: bool,
    /// Least and greatest number of rectangles, which share the area that is drawn for each: timm's `min_count` and
    /// `max_count`. Default: (1, 1).
    #[serde(skip_serializing_if = "is_one")]
    pub count: [usize; 2],
}

fn is_one(count: &[usize; 2]) -> bool {
    *count == [1, 1]
}

impl Default for RandomErasing {
    fn default() -> Self {
        Self {
            p: 0.5,
            scale: [0.02, 0.33],
            ratio: [0.3, 3.3],
            value: Erasure::default(),
            inplace: false,
            count: [1, 1],
        }
    }
}

impl RandomErasing {
    /// Most rectangles of one image.
    const MOST: usize = 1000;

    /// Writes zeros with probability `p`.
    pub fn new(p: f64) -> Self {
        Self { p, ..Self::default() }
    }

    /// Sets the least and greatest share of the area.
    #[must_use]
    pub fn scale(mut self, scale: [f64; 2]) -> Self {
        self.scale = scale;
        self
    }

    /// Sets the least and greatest aspect ratio (height / width).
    #[must_use]
    pub fn ratio(mut self, ratio: [f64; 2]) -> Self {
        self.ratio = ratio;
        self
    }

    /// Sets what is written.
    #[must_use]
    pub fn value(mut self, value: impl Into<Erasure>) -> Self {
        self.value = value.into();
        self
    }

    /// Writes standard normal noise.
    #[must_use]
    pub fn random(mut self) -> Self {
        self.value = Erasure::Random;
        self
    }

    /// Sets the least and greatest number of rectangles.
    #[must_use]
    pub fn count(mut self, count: [usize; 2]) -> Self {
        self.count = count;
        self
    }

    /// One of `count` rectangles: ten attempts, then nothing. Both sides are smaller than the image's.
    fn part(&self, size: Size, count: usize, rng: &mut Rng) -> Option<Rect> {
        let area = size.height as f64 * size.width as f64;
        let (log_low, log_high) = (self.ratio[0].ln(), self.ratio[1].ln());
        for _ in 0..10 {
            let area = area * rng.uniform(self.scale[0], self.scale[1]) / count as f64;
            let ratio = rng.uniform(log_low, log_high).exp();
            let height = (area * ratio).sqrt().round_ties_even() as usize;
            let width = (area / ratio).sqrt().round_ties_even() as usize;
            if height < size.height && width < size.width {
                let top = rng.below((size.height - height + 1) as u64) as usize;
                let left = rng.below((size.width - width + 1) as u64) as usize;
                return Some(Rect { top, left, height, width }).filter(|r| r.height > 0 && r.width > 0);
            }
        }
        None
    }
}

impl fmt::Display for RandomErasing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let repr = Repr::new(f, "RandomErasing")
            .field("p", self.p)
            .field("scale", Tuple(&self.scale))
            .field("ratio", Tuple(&self.ratio));
        match self.value {
            Erasure::Constant(value) => repr.field("value", format_args!("{value:?}")),
            Erasure::Random => repr.field("value", "random"),
            Erasure::RandomColor => repr.field("value", "random-color"),
        }
        .field_if(!is_one(&self.count), "count", Tuple(&self.count))
        .finish()
    }
}

impl Operation for RandomErasing {
    fn check(&self) -> Result<()> {
        check_probability(self.p)?;
        check_range("scale", self.scale, 0.0, 1.0)?;
        check_positive_range("ratio", self.ratio)?;
        let [least, most] = self.count;
        if !(1..=most).contains(&least) || most > Self::MOST {
            let what = format!("count is {}; must be (low, high) of 1 to {}", Tuple(&self.count), Self::MOST);
            return Err(Error::config(what));
        }
        match self.value {
            Erasure::Constant(value) => value.check("value"),
            Erasure::Random | Erasure::RandomColor => Ok(()),
        }
    }

    fn class(&self) -> Class {
        Class::Erase
    }

    fn draws_by_size(&self) -> bool {
        true
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        input
    }

    fn draw(&self, size: Size, rng: &mut Rng) -> Result<Action> {
        if !rng.chance(self.p) {
            return Ok(Action::Keep);
        }
        if let Erasure::Constant(value) = self.value {
            value.check_channels("value", size.channels)?;
        }
        let [least, most] = self.count;
        // One number is not drawn: what was drawn before there were several stays.
        let count = if least == most { least } else { least + rng.below((most - least + 1) as u64) as usize };
        let mut patches = Vec::with_capacity(count);
        for _ in 0..count {
            let Some(rect) = self.part(size, count, rng) else { continue };
            let value = match self.value {
                Erasure::Constant(value) => EraseValue::Constant(value),
                Erasure::Random => EraseValue::Noise(Noise::new(rng.next_u64())),
                Erasure::RandomColor => {
                    let color: Vec<f64> = (0..size.channels).map(|_| rng.normal()).collect();
                    EraseValue::Constant(PerChannel::new(&color)?)
                }
            };
            patches.push(Patch { rect, value });
        }
        Ok(if patches.is_empty() { Action::Keep } else { Action::Erase(patches.into()) })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    fn rects(erasing: RandomErasing, size: Size, n: u64) -> Vec<Rect> {
        let rect = |action| match action {
            Action::Erase(patches) => Some(patches[0].rect),
            _ => None,
        };
        draws(erasing, size, n).filter_map(rect).collect()
    }

    #[test]
    fn it_erases_with_probability_p() {
        for p in [0.0, 0.3, 1.0] {
            assert_probability(
                rects(RandomErasing::new(p).scale([0.02, 0.1]), size(500, 500), 20_000).len(),
                20_000,
                p,
            );
        }
    }

    #[test]
    fn areas_ratios_and_places_are_those_of_torchvision() {
        // So large and so small that rounding and rejected attempts do not show.
        let (side, erasing) = (100_000, RandomErasing::new(1.0).scale([0.02, 0.2]).ratio([0.5, 2.0]));
        let rects = rects(erasing, size(side, side), 20_000);
        assert_eq!(rects.len(), 20_000);
        let area = (side * side) as f64;
        assert_uniform(
            rects.iter().map(|r| ((r.height * r.width) as f64 / area).clamp(0.02, 0.2)),
            0.02,
            0.2,
        );
        let log_ratio = |r: &Rect| (r.height as f64 / r.width as f64).ln().clamp(-(2f64.ln()), 2f64.ln());
        assert_uniform(rects.iter().map(log_ratio), -(2f64.ln()), 2f64.ln());
        assert_uniform(rects.iter().map(|r| r.top as f64 / (side - r.height) as f64), 0.0, 1.0);
        assert_uniform(rects.iter().map(|r| r.left as f64 / (side - r.width) as f64), 0.0, 1.0);
    }

    #[test]
    fn sides_are_smaller_than_the_image_or_nothing_happens() {
        for rect in rects(RandomErasing::new(1.0).scale([0.0, 1.0]), size(7, 9), 5000) {
            assert!((1..7).contains(&rect.height) && (1..9).contains(&rect.width), "{rect:?}");
            assert!(rect.top + rect.height <= 7 && rect.left + rect.width <= 9, "{rect:?}");
        }
        assert!(
            rects(RandomErasing::new(1.0).scale([1.0, 1.0]).ratio([1.0, 1.0]), size(8, 8), 100).is_empty()
        );
        assert!(rects(RandomErasing::new(1.0), size(1, 1), 100).is_empty());
    }

    #[test]
    fn noise_differs_from_sample_to_sample() {
        let noise: Vec<_> = draws(RandomErasing::new(1.0).random(), size(32, 32), 2)
            .map(|action| match action {
                Action::Erase(patches) => match &patches[0].value {
                    EraseValue::Noise(noise) => noise.clone().normal(),
                    other => panic!("{other:?}"),
                },
                other => panic!("{other:?}"),
            })
            .collect();
        assert_ne!(noise[0], noise[1]);
    }

    #[test]
    fn several_rectangles_share_the_area_and_have_a_colour_each() {
        let erasing = RandomErasing::new(1.0).scale([0.1, 0.1]).ratio([1.0, 1.0]).count([1, 4]);
        let mut counts = [0; 4];
        let mut colors = Vec::new();
        for action in draws(erasing.value(Erasure::RandomColor), size(1000, 1000), 8000) {
            let Action::Erase(patches) = action else { panic!("{action:?}") };
            counts[patches.len() - 1] += 1;
            for patch in &*patches {
                let side = (1e5 / patches.len() as f64).sqrt();
                assert!((patch.rect.height as f64 - side).abs() < 1.0, "{patch:?}");
                let EraseValue::Constant(values) = patch.value else { panic!("{patch:?}") };
                assert_eq!(values.len(), 3);
                colors.extend(values.iter());
            }
        }
        assert_uniform_counts(&counts);
        let n = colors.len() as f64;
        let mean = colors.iter().sum::<f64>() / n;
        let variance = colors.iter().map(|v| v * v).sum::<f64>() / n;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.03, "{mean} {variance}");
    }

    #[test]
    fn parameters_are_checked() {
        for count in [[0, 1], [2, 1], [1, 1001]] {
            assert!(check_error(RandomErasing::new(1.0).count(count)).starts_with("count is ("));
        }
        assert!(check_error(RandomErasing::new(1.1)).contains("p is 1.1"));
        assert!(check_error(RandomErasing::new(1.0).scale([0.1, 1.1])).contains("high at most 1"));
        assert!(check_error(RandomErasing::new(1.0).ratio([0.0, 1.0])).starts_with("ratio is (0.0, 1.0)"));
        assert!(check_error(RandomErasing::new(1.0).value(f64::NAN)).starts_with("value is NaN"));
        let gray = Size { channels: 1, ..size(9, 9) };
        assert!(RandomErasing::new(1.0).value([1.0; 3]).draw(gray, &mut rng(0)).is_err());
    }

    #[test]
    fn it_reads_and_shows_as_in_torchvision() {
        assert_eq!(
            read(r#"{"type":"RandomErasing","value":"random"}"#).to_string(),
            "RandomErasing(p=0.5, scale=(0.02, 0.33), ratio=(0.3, 3.3), value=random)"
        );
        assert_eq!(
            read(r#"{"type":"RandomErasing","value":"random-color","count":[1,3]}"#).to_string(),
            "RandomErasing(p=0.5, scale=(0.02, 0.33), ratio=(0.3, 3.3), value=random-color, count=(1, 3))"
        );
        let erasing = read(r#"{"type":"RandomErasing","value":[1,2,3],"p":1}"#);
        assert_eq!(erasing, RandomErasing::new(1.0).value([1.0, 2.0, 3.0]).into());
        let e = refuse(r#"{"type":"RandomErasing","value":"noise"}"#);
        assert!(e.contains("value is \"noise\"; must be one number, one per channel"), "{e}");
    }
}
