//! `ColorJitter`: brightness, contrast, saturation and hue, changed at random in random order.

use std::{fmt, ops::Deref, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize};
use wellfed_kernels::{color, hue, image::Image, recipe::PixelOp};

use super::{
    Action, Class, ImageAction, ImageMemory, Operation, Shape, Size, Spread,
    param::{Repr, Tuple, check_range, impossible},
};
use crate::{Result, rng::Rng};

/// Changes colours by factors drawn uniformly, in an order drawn uniformly.
///
/// One number `x` means (max(0, 1 - x), 1 + x), for hue (-x, x); `None` leaves the property alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ColorJitter {
    /// Range of the factor of brightness, at least 0.
    #[serde(deserialize_with = "read_factor")]
    pub brightness: Option<[f64; 2]>,
    /// Range of the factor of contrast, at least 0.
    #[serde(deserialize_with = "read_factor")]
    pub contrast: Option<[f64; 2]>,
    /// Range of the factor of saturation, at least 0.
    #[serde(deserialize_with = "read_factor")]
    pub saturation: Option<[f64; 2]>,
    /// Range of the shift of hue, as a fraction of the circle, within -0.5 to 0.5.
    #[serde(deserialize_with = "read_hue")]
    pub hue: Option<[f64; 2]>,
}

/// The range of a factor; `None` if it changes nothing. Only a range given by one number is cut off at 0.
fn factor(spread: Spread) -> Option<[f64; 2]> {
    let mut range = spread.around(1.0);
    if let Spread::By(_) = spread {
        range[0] = range[0].max(0.0);
    }
    (range != [1.0, 1.0]).then_some(range)
}

fn shift(spread: Spread) -> Option<[f64; 2]> {
    let range = spread.around(0.0);
    (range != [0.0, 0.0]).then_some(range)
}

fn read_factor<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<[f64; 2]>, D::Error> {
    Ok(Option::<Spread>::deserialize(deserializer)?.and_then(factor))
}

fn read_hue<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<[f64; 2]>, D::Error> {
    Ok(Option::<Spread>::deserialize(deserializer)?.and_then(shift))
}

impl ColorJitter {
    /// Changes nothing until a property is set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how brightness changes.
    #[must_use]
    pub fn brightness(mut self, spread: impl Into<Spread>) -> Self {
        self.brightness = factor(spread.into());
        self
    }

    /// Sets how contrast changes.
    #[must_use]
    pub fn contrast(mut self, spread: impl Into<Spread>) -> Self {
        self.contrast = factor(spread.into());
        self
    }

    /// Sets how saturation changes.
    #[must_use]
    pub fn saturation(mut self, spread: impl Into<Spread>) -> Self {
        self.saturation = factor(spread.into());
        self
    }

    /// Sets how hue changes.
    #[must_use]
    pub fn hue(mut self, spread: impl Into<Spread>) -> Self {
        self.hue = shift(spread.into());
        self
    }

    fn ranges(&self) -> [(&'static str, Option<[f64; 2]>); 4] {
        [
            ("brightness", self.brightness),
            ("contrast", self.contrast),
            ("saturation", self.saturation),
            ("hue", self.hue),
        ]
    }
}

impl fmt::Display for ColorJitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut repr = Repr::new(f, "ColorJitter");
        for (name, range) in self.ranges() {
            if let Some(range) = range {
                repr = repr.field(name, Tuple(&range));
            }
        }
        repr.finish()
    }
}

impl Operation for ColorJitter {
    fn check(&self) -> Result<()> {
        for (name, range) in self.ranges() {
            let (least, most) = if name == "hue" { (-0.5, 0.5) } else { (0.0, f64::INFINITY) };
            range.map_or(Ok(()), |range| check_range(name, range, least, most))?;
        }
        Ok(())
    }

    fn class(&self) -> Class {
        if self.ranges().iter().all(|(_, range)| range.is_none()) { Class::Identity } else { Class::Image }
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        input
    }

    fn draw(&self, size: Size, rng: &mut Rng) -> Result<Action> {
        if self.class() == Class::Identity {
            return Ok(Action::Keep);
        }
        if size.channels != 1 && size.channels != 3 {
            return Err(impossible(format!("the image has {} channels; must be 1 or 3", size.channels))
                .with_hint("decode as \"RGB\" or \"L\""));
        }
        let steps = self.steps(size, rng);
        Ok(if steps.is_empty() { Action::Keep } else { Action::Image(Arc::new(steps)) })
    }
}

impl ColorJitter {
    fn steps(&self, size: Size, rng: &mut Rng) -> ColorSteps {
        let mut order = [0, 1, 2, 3];
        rng.shuffle(&mut order);
        let mut drawn = |range: Option<[f64; 2]>| range.map(|[low, high]| rng.uniform(low, high));
        let color = size.channels == 3;
        let steps = [
            drawn(self.brightness).map(ColorStep::Brightness),
            drawn(self.contrast).map(ColorStep::Contrast),
            // Grey has neither saturation nor hue.
            drawn(self.saturation).filter(|_| color).map(ColorStep::Saturation),
            drawn(self.hue).filter(|_| color).map(ColorStep::Hue),
        ];
        ColorSteps::new(order.into_iter().filter_map(|i: usize| steps[i]))
    }
}

/// One colour adjustment with its drawn factor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ColorStep {
    /// Blend with black.
    Brightness(f64),
    /// Blend with the mean luma.
    Contrast(f64),
    /// Blend with the grey image.
    Saturation(f64),
    /// Shift of hue, as a fraction of the circle in -0.5 to 0.5.
    Hue(f64),
}

/// Up to four colour adjustments in order: what [`ColorJitter`] does to an image.
#[derive(Clone, Copy)]
pub struct ColorSteps {
    steps: [ColorStep; 4],
    len: u8,
}

impl ColorSteps {
    /// The first four of `steps`.
    pub fn new(steps: impl IntoIterator<Item = ColorStep>) -> Self {
        let mut this = Self { steps: [ColorStep::Brightness(1.0); 4], len: 0 };
        for (slot, step) in this.steps.iter_mut().zip(steps) {
            *slot = step;
            this.len += 1;
        }
        this
    }
}

impl Deref for ColorSteps {
    type Target = [ColorStep];

    fn deref(&self) -> &[ColorStep] {
        &self.steps[..usize::from(self.len)]
    }
}

impl PartialEq for ColorSteps {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl fmt::Debug for ColorSteps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl ImageAction for ColorSteps {
    fn pixel_ops(&self, _input: Size) -> Option<Vec<PixelOp>> {
        let op = |step: &ColorStep| match *step {
            ColorStep::Brightness(factor) => PixelOp::Brightness(factor),
            ColorStep::Contrast(factor) => PixelOp::Contrast(factor),
            ColorStep::Saturation(factor) => PixelOp::Saturation(factor),
            ColorStep::Hue(factor) => PixelOp::Hue(factor),
        };
        Some(self.iter().map(op).collect())
    }

    fn run(&self, image: &mut Image, _memory: &mut ImageMemory) -> Result<()> {
        for step in self.iter() {
            match *step {
                ColorStep::Brightness(factor) => color::brightness(image, factor),
                ColorStep::Contrast(factor) => color::contrast(image, factor),
                ColorStep::Saturation(factor) => color::saturation(image, factor),
                ColorStep::Hue(factor) => hue::hue(image, factor),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    fn steps(jitter: ColorJitter, n: u64) -> impl Iterator<Item = ColorSteps> {
        (0..n).map(move |index| jitter.steps(size(2, 2), &mut rng(index)))
    }

    fn full() -> ColorJitter {
        ColorJitter::new().brightness(0.4).contrast([0.2, 3.0]).saturation(1.5).hue(0.1)
    }

    #[test]
    fn all_24_orders_are_equally_likely() {
        let mut counts = [0; 256];
        for steps in steps(full(), 24_000) {
            let code = steps.iter().fold(0, |code, step| {
                code * 4
                    + match step {
                        ColorStep::Brightness(_) => 0,
                        ColorStep::Contrast(_) => 1,
                        ColorStep::Saturation(_) => 2,
                        ColorStep::Hue(_) => 3,
                    }
            });
            assert_eq!(steps.len(), 4);
            counts[code] += 1;
        }
        let counts: Vec<u64> = counts.into_iter().filter(|&c| c > 0).collect();
        assert_eq!(counts.len(), 24);
        assert_uniform_counts(&counts);
    }

    #[test]
    fn factors_are_uniform_in_their_ranges() {
        let mut values = [const { Vec::new() }; 4];
        for step in steps(full(), 10_000).flat_map(|steps| steps.to_vec()) {
            match step {
                ColorStep::Brightness(x) => values[0].push(x),
                ColorStep::Contrast(x) => values[1].push(x),
                ColorStep::Saturation(x) => values[2].push(x),
                ColorStep::Hue(x) => values[3].push(x),
            }
        }
        for (values, [low, high]) in values.into_iter().zip([[0.6, 1.4], [0.2, 3.0], [0.0, 2.5], [-0.1, 0.1]])
        {
            assert_uniform(values, low, high);
        }
    }

    #[test]
    fn what_is_not_asked_for_is_not_done() {
        assert!(steps(ColorJitter::new().hue(0.2), 100).all(|s| matches!(*s, [ColorStep::Hue(_)])));
        let none = ColorJitter::new().brightness(0.0).hue(0.0);
        assert_eq!(none, ColorJitter::default());
        assert_eq!(
            (none.class(), none.draw(size(1, 1), &mut rng(0)).unwrap()),
            (Class::Identity, Action::Keep)
        );
        let gray = Size { channels: 1, ..size(1, 1) };
        assert_eq!(ColorJitter::new().hue(0.2).draw(gray, &mut rng(0)).unwrap(), Action::Keep);
        assert!(full().draw(Size { channels: 4, ..gray }, &mut rng(0)).is_err());
    }

    #[test]
    fn parameters_are_checked() {
        assert_eq!(
            check_error(ColorJitter::new().hue(0.6)),
            "hue is (-0.6, 0.6); must be (low, high) with low <= high, low at least -0.5, high at most 0.5"
        );
        assert!(check_error(ColorJitter::new().contrast([-0.1, 1.0])).contains("low at least 0"));
        assert!(check_error(ColorJitter::new().brightness(-0.5)).starts_with("brightness is (1.5, 0.5)"));
    }

    #[test]
    fn it_reads_and_shows_as_in_torchvision() {
        let jitter =
            read(r#"{"type":"ColorJitter","brightness":0.5,"contrast":[0.5,1.5],"saturation":null}"#);
        assert_eq!(jitter, ColorJitter::new().brightness(0.5).contrast([0.5, 1.5]).into());
        assert_eq!(jitter.to_string(), "ColorJitter(brightness=(0.5, 1.5), contrast=(0.5, 1.5))");
        assert!(
            refuse(r#"{"type":"ColorJitter","hue":[1,2,3]}"#).contains("hue is [1,2,3]; must be one number")
        );
    }
}
