//! `Pad`: a border around the image.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Action, Class, Operation, Padding, PaddingMode, PerChannel, Shape, Size,
    param::{Repr, check_mask_fill, check_pixels},
};
use crate::{Result, rng::Rng};

/// Adds pixels at each border.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pad {
    /// Pixels to add: one number, (left and right, top and bottom), or (left, top, right, bottom).
    pub padding: Padding,
    /// Value of the new pixels, under [`PaddingMode::Constant`]. Default: 0.
    #[serde(default)]
    pub fill: PerChannel,
    /// Value of added pixels of masks, under [`PaddingMode::Constant`]. Default: `fill`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mask_fill: Option<f64>,
    /// How new pixels are made. Default: constant.
    #[serde(default)]
    pub padding_mode: PaddingMode,
}

impl Pad {
    /// Adds zeros.
    pub fn new(padding: impl Into<Padding>) -> Self {
        Self {
            padding: padding.into(),
            fill: PerChannel::default(),
            mask_fill: None,
            padding_mode: PaddingMode::default(),
        }
    }

    /// Sets the value of the new pixels.
    #[must_use]
    pub fn fill(mut self, fill: impl Into<PerChannel>) -> Self {
        self.fill = fill.into();
        self
    }

    /// Sets the value of the new pixels of masks.
    #[must_use]
    pub fn mask_fill(mut self, fill: f64) -> Self {
        self.mask_fill = Some(fill);
        self
    }

    /// Sets how new pixels are made.
    #[must_use]
    pub fn padding_mode(mut self, mode: PaddingMode) -> Self {
        self.padding_mode = mode;
        self
    }
}

impl fmt::Display for Pad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "Pad")
            .field("padding", self.padding)
            .field("fill", self.fill)
            .field_if(self.mask_fill.is_some(), "mask_fill", self.mask_fill.unwrap_or(0.0))
            .field("padding_mode", self.padding_mode)
            .finish()
    }
}

impl Operation for Pad {
    fn check(&self) -> Result<()> {
        self.padding.check()?;
        check_mask_fill(self.mask_fill)?;
        self.fill.check("fill")
    }

    fn class(&self) -> Class {
        if self.padding.is_zero() { Class::Identity } else { Class::Crop }
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        let Padding { left, top, right, bottom } = self.padding;
        Shape {
            height: input.height.map(|height| height + top + bottom),
            width: input.width.map(|width| width + left + right),
            ..input
        }
    }

    fn draw(&self, size: Size, _rng: &mut Rng) -> Result<Action> {
        if self.padding.is_zero() {
            return Ok(Action::Keep);
        }
        check_pixels(size)?;
        self.fill.check_channels("fill", size.channels)?;
        let Padding { left, top, right, bottom } = self.padding;
        Ok(Action::PadCrop {
            top: -(top as i64),
            left: -(left as i64),
            height: size.height + top + bottom,
            width: size.width + left + right,
            mode: self.padding_mode,
            fill: self.fill,
            mask_fill: self.mask_fill,
            added: Some(self.padding),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn the_window_reaches_out_by_the_padding() {
        let pad = read(r#"{"type":"Pad","padding":[1,2,3,4],"fill":[1,2,3],"padding_mode":"reflect"}"#);
        assert_eq!(pad.to_string(), "Pad(padding=[1, 2, 3, 4], fill=(1, 2, 3), padding_mode=reflect)");
        let action = pad.as_operation().draw(size(10, 20), &mut rng(0)).unwrap();
        let (mode, fill) = (PaddingMode::Reflect, [1.0, 2.0, 3.0].into());
        assert_eq!(
            action,
            Action::PadCrop {
                top: -2,
                left: -1,
                height: 16,
                width: 24,
                mode,
                fill,
                mask_fill: None,
                added: Some([1, 2, 3, 4].into())
            }
        );
        assert_eq!(Pad::new(0).draw(size(1, 1), &mut rng(0)).unwrap(), Action::Keep);
        assert_eq!(Pad::new(0).class(), Class::Identity);
    }

    #[test]
    fn bad_parameters_are_refused() {
        assert!(check_error(Pad::new(usize::MAX)).starts_with("padding is ["));
        assert!(check_error(Pad::new(1).mask_fill(f64::NAN)).contains("mask_fill is NaN; must be finite"));
        assert!(check_error(Pad::new(1).fill(f64::NAN)).contains("fill is NaN; every number must be finite"));
        let gray = Size { channels: 1, ..size(1, 1) };
        assert!(Pad::new(1).fill([1.0, 2.0, 3.0]).draw(gray, &mut rng(0)).is_err());
        let e = refuse(r#"{"type":"Pad","padding":1,"padding_mode":"mirror"}"#);
        assert!(e.contains("Pad: padding_mode is \"mirror\"; unknown variant"), "{e}");
    }
}
