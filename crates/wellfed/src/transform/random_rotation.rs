//! `RandomRotation`: turns the image by a random angle.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

use super::{
    Action, Class, Interpolation, Operation, PerChannel, Shape, Size, Spread,
    param::{MAX_SIDE, Repr, Tuple, check_range, python_bool},
};
use crate::{Error, Result, rng::Rng};

/// Rotates counter-clockwise by an angle drawn uniformly from `degrees`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomRotation {
    /// Least and greatest angle; one number `d` means (-d, d).
    #[serde(deserialize_with = "degrees")]
    pub degrees: [f64; 2],
    /// Filter: nearest, bilinear or bicubic. Default: nearest.
    #[serde(default = "nearest")]
    pub interpolation: Interpolation,
    /// Enlarge the image so that all of it stays visible. Default: false.
    #[serde(default)]
    pub expand: bool,
    /// Centre (x, y) in pixels from the upper left corner. Default: the middle.
    #[serde(default)]
    pub center: Option<[f64; 2]>,
    /// Value of what comes in from outside. Default: 0.
    #[serde(default)]
    pub fill: PerChannel,
}

fn nearest() -> Interpolation {
    Interpolation::Nearest
}

fn degrees<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[f64; 2], D::Error> {
    Ok(Spread::deserialize(deserializer)?.around(0.0))
}

impl RandomRotation {
    /// Rotates by up to `degrees` either way, or between two angles.
    pub fn new(degrees: impl Into<Spread>) -> Self {
        Self {
            degrees: degrees.into().around(0.0),
            interpolation: nearest(),
            expand: false,
            center: None,
            fill: PerChannel::default(),
        }
    }

    /// Sets the filter.
    #[must_use]
    pub fn interpolation(mut self, interpolation: Interpolation) -> Self {
        self.interpolation = interpolation;
        self
    }

    /// Sets whether the image grows so that all of it stays visible.
    #[must_use]
    pub fn expand(mut self, expand: bool) -> Self {
        self.expand = expand;
        self
    }

    /// Sets the centre (x, y).
    #[must_use]
    pub fn center(mut self, center: [f64; 2]) -> Self {
        self.center = Some(center);
        self
    }

    /// Sets the value of what comes in from outside.
    #[must_use]
    pub fn fill(mut self, fill: impl Into<PerChannel>) -> Self {
        self.fill = fill.into();
        self
    }
}

impl fmt::Display for RandomRotation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "RandomRotation")
            .field("degrees", format_args!("{:?}", self.degrees))
            .field("interpolation", self.interpolation)
            .field("expand", python_bool(self.expand))
            .field("fill", self.fill)
            .field_if(self.center.is_some(), "center", Tuple(self.center.as_ref().map_or(&[], |c| &c[..])))
            .finish()
    }
}

impl Operation for RandomRotation {
    fn check(&self) -> Result<()> {
        check_range("degrees", self.degrees, f64::NEG_INFINITY, f64::INFINITY)?;
        self.fill.check("fill")?;
        if self.interpolation == Interpolation::Lanczos {
            return Err(Error::config("interpolation is lanczos; must be nearest, bilinear or bicubic"));
        }
        match self.center {
            Some(center) if !center.iter().all(|c| c.abs() <= MAX_SIDE as f64) => {
                Err(Error::config(format!(
                    "center is {}; both numbers must be between {} and {MAX_SIDE}",
                    Tuple(&center),
                    -(MAX_SIDE as i64)
                )))
            }
            _ => Ok(()),
        }
    }

    fn class(&self) -> Class {
        Class::Rotate
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        if !self.expand {
            return input;
        }
        match (self.degrees, input.height, input.width) {
            ([low, high], Some(height), Some(width)) if low == high => {
                let size = Size { height, width, channels: input.channels };
                let rotated = self.action(low).size(size);
                Shape { height: Some(rotated.height), width: Some(rotated.width), ..input }
            }
            _ => Shape { height: None, width: None, ..input },
        }
    }

    fn draw(&self, size: Size, rng: &mut Rng) -> Result<Action> {
        self.fill.check_channels("fill", size.channels)?;
        Ok(self.action(rng.uniform(self.degrees[0], self.degrees[1])))
    }
}

impl RandomRotation {
    fn action(&self, angle: f64) -> Action {
        Action::Rotate {
            angle,
            // Pillow knows one kind of nearest, and torchvision maps both names to it.
            interpolation: match self.interpolation {
                Interpolation::NearestExact => Interpolation::Nearest,
                other => other,
            },
            expand: self.expand,
            center: self.center,
            fill: self.fill,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn angles_are_uniform() {
        let angles =
            draws(RandomRotation::new([-10.0, 40.0]), size(5, 6), 20_000).map(|action| match action {
                Action::Rotate { angle, .. } => angle,
                other => panic!("{other:?}"),
            });
        assert_uniform(angles, -10.0, 40.0);
    }

    #[test]
    fn the_size_is_fixed_unless_it_expands_by_a_random_angle() {
        let shape = Shape { height: Some(10), width: Some(20), channels: 3 };
        assert_eq!(RandomRotation::new(30.0).fixed_size(shape), shape);
        let expanding = RandomRotation::new(30.0).expand(true);
        assert_eq!(expanding.fixed_size(shape), Shape { height: None, width: None, ..shape });
        let quarter = RandomRotation::new([90.0, 90.0]).expand(true);
        assert_eq!(quarter.fixed_size(shape), Shape { height: Some(20), width: Some(10), ..shape });
    }

    #[test]
    fn parameters_are_checked() {
        assert!(
            check_error(RandomRotation::new(-3.0)).starts_with("degrees is (3.0, -3.0); must be (low, high)")
        );
        assert!(check_error(RandomRotation::new(f64::INFINITY)).starts_with("degrees"));
        assert!(
            check_error(RandomRotation::new(1.0).center([f64::NAN, 1.0])).starts_with("center is (NaN, 1.0)")
        );
        let lanczos = RandomRotation::new(1.0).interpolation(Interpolation::Lanczos);
        assert!(check_error(lanczos).contains("must be nearest, bilinear or bicubic"));
        let gray = Size { channels: 1, ..size(1, 1) };
        assert!(RandomRotation::new(1.0).fill([1.0; 3]).draw(gray, &mut rng(0)).is_err());
    }

    #[test]
    fn it_reads_and_shows_as_in_torchvision() {
        let rotation = read(r#"{"type":"RandomRotation","degrees":30,"center":[1,2],"fill":3}"#);
        assert_eq!(rotation, RandomRotation::new(30.0).center([1.0, 2.0]).fill(3.0).into());
        assert_eq!(
            rotation.to_string(),
            "RandomRotation(degrees=[-30.0, 30.0], interpolation=nearest, expand=False, fill=3, center=(1.0, 2.0))"
        );
    }
}
