//! `HueSaturationValue`: Albumentations' shifts of hue, saturation and value.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use wellfed_kernels::{image::Image, opencv};

use super::{
    Action, Class, ImageAction, ImageMemory, Operation, Shape, Size,
    param::{Repr, Tuple, check_range, impossible},
};
use crate::{Result, rng::Rng};

/// Shifts hue, saturation and value by random numbers, as the transform of this name of Albumentations 2 does where its
/// `p` is 1. Images must have 3 channels.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HueSaturationValue {
    /// Least and greatest shift of the hue, in steps of two degrees.
    pub hue_shift_limit: [f64; 2],
    /// Least and greatest shift of the saturation, of 255.
    pub sat_shift_limit: [f64; 2],
    /// Least and greatest shift of the value, of 255.
    pub val_shift_limit: [f64; 2],
}

impl HueSaturationValue {
    /// Shifts within these limits.
    pub fn new(hue_shift_limit: [f64; 2], sat_shift_limit: [f64; 2], val_shift_limit: [f64; 2]) -> Self {
        Self { hue_shift_limit, sat_shift_limit, val_shift_limit }
    }

    fn limits(&self) -> [(&'static str, [f64; 2]); 3] {
        [
            ("hue_shift_limit", self.hue_shift_limit),
            ("sat_shift_limit", self.sat_shift_limit),
            ("val_shift_limit", self.val_shift_limit),
        ]
    }

    fn drawn(&self, rng: &mut Rng) -> Shifts {
        Shifts(self.limits().map(|(_, [low, high])| rng.uniform(low, high)))
    }
}

impl fmt::Display for HueSaturationValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut repr = Repr::new(f, "HueSaturationValue");
        for (name, limit) in self.limits() {
            repr = repr.field(name, Tuple(&limit));
        }
        repr.finish()
    }
}

impl Operation for HueSaturationValue {
    fn check(&self) -> Result<()> {
        for (name, limit) in self.limits() {
            check_range(name, limit, -1e6, 1e6)?;
        }
        Ok(())
    }

    fn class(&self) -> Class {
        Class::Image
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        input
    }

    fn draw(&self, size: Size, rng: &mut Rng) -> Result<Action> {
        check_colours(size)?;
        Ok(Action::Image(Arc::new(self.drawn(rng))))
    }
}

/// Fails unless the image has three colours.
pub(super) fn check_colours(size: Size) -> Result<()> {
    if size.channels == 3 {
        return Ok(());
    }
    Err(impossible(format!("the image has {} channels; must be 3", size.channels))
        .with_hint("decode as \"RGB\""))
}

/// Shifts of hue, saturation and value.
#[derive(Debug)]
struct Shifts([f64; 3]);

impl ImageAction for Shifts {
    fn run(&self, image: &mut Image, _memory: &mut ImageMemory) -> Result<()> {
        let [hue, saturation, value] = self.0;
        opencv::shift_hsv(image, hue, saturation, value);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn shifts_are_uniform() {
        let change = HueSaturationValue::new([-20.0, 10.0], [-30.0, 30.0], [0.0, 5.0]);
        let drawn: Vec<Shifts> = (0..20_000).map(|index| change.drawn(&mut rng(index))).collect();
        for (i, (_, [low, high])) in change.limits().into_iter().enumerate() {
            assert_uniform(drawn.iter().map(|shifts| shifts.0[i]), low, high);
        }
    }

    #[test]
    fn parameters_are_checked() {
        let bad = HueSaturationValue::new([0.0; 2], [3.0, -3.0], [0.0; 2]);
        assert!(check_error(bad).starts_with("sat_shift_limit is (3.0, -3.0)"));
        let read = read(
            r#"{"type":"HueSaturationValue","hue_shift_limit":[-1,1],"sat_shift_limit":[0,2],"val_shift_limit":[0,0]}"#,
        );
        assert_eq!(
            read.to_string(),
            "HueSaturationValue(hue_shift_limit=(-1.0, 1.0), sat_shift_limit=(0.0, 2.0), \
             val_shift_limit=(0.0, 0.0))"
        );
        let grey = Size { channels: 1, ..size(1, 1) };
        let e = HueSaturationValue::new([0.0; 2], [0.0; 2], [0.0; 2]).draw(grey, &mut rng(0)).unwrap_err();
        assert_eq!(e.message(), "the image has 1 channels; must be 3");
    }
}
