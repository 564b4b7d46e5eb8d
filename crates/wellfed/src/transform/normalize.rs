//! `Normalize`: zero mean and unit deviation per channel.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Action, Class, Operation, PerChannel, Shape, Size,
    param::{Repr, Tuple},
};
use crate::{Error, Result, rng::Rng};

/// `(x - mean) / std` per channel, on floating point images.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Normalize {
    /// One mean, or one per channel.
    pub mean: PerChannel,
    /// One standard deviation, or one per channel.
    pub std: PerChannel,
}

impl Normalize {
    /// Normalizes by `mean` and `std`, in the value range of the image.
    pub fn new(mean: impl Into<PerChannel>, std: impl Into<PerChannel>) -> Self {
        Self { mean: mean.into(), std: std.into() }
    }
}

impl fmt::Display for Normalize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "Normalize")
            .field("mean", format_args!("{:?}", self.mean))
            .field("std", format_args!("{:?}", self.std))
            .finish()
    }
}

impl Operation for Normalize {
    fn check(&self) -> Result<()> {
        self.mean.check("mean")?;
        self.std.check("std")?;
        // Division is in float32, where a smaller number would be 0.
        if self.std.iter().any(|&s| s as f32 == 0.0) {
            return Err(Error::config(format!("std is {}; no value may be 0", Tuple(&self.std))));
        }
        if self.mean.len() != self.std.len() && self.mean.len() != 1 && self.std.len() != 1 {
            return Err(Error::config(format!(
                "mean is {} and std is {}; they must have as many values as the image has channels, or one",
                Tuple(&self.mean),
                Tuple(&self.std)
            )));
        }
        Ok(())
    }

    fn class(&self) -> Class {
        Class::Normalize
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        input
    }

    fn draw(&self, size: Size, _rng: &mut Rng) -> Result<Action> {
        self.mean.check_channels("mean", size.channels)?;
        self.std.check_channels("std", size.channels)?;
        Ok(Action::Normalize { mean: self.mean, std: self.std, by_reciprocal: false })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn it_carries_its_numbers() {
        let t = read(r#"{"type":"Normalize","mean":[0.5,0.1,0.2],"std":[1,1,2]}"#);
        assert_eq!(t, Normalize::new([0.5, 0.1, 0.2], [1.0, 1.0, 2.0]).into());
        assert_eq!(t.to_string(), "Normalize(mean=[0.5, 0.1, 0.2], std=[1.0, 1.0, 2.0])");
        let action = t.as_operation().draw(size(1, 1), &mut rng(0)).unwrap();
        let (mean, std) = ([0.5, 0.1, 0.2].into(), [1.0, 1.0, 2.0].into());
        assert_eq!(action, Action::Normalize { mean, std, by_reciprocal: false });
        let gray = Size { channels: 1, ..size(1, 1) };
        let e = t.as_operation().draw(gray, &mut rng(0)).unwrap_err();
        assert!(e.message().contains("mean has 3 values and the image 1 channels"), "{e}");
    }

    #[test]
    fn a_deviation_of_zero_is_refused() {
        assert_eq!(
            check_error(Normalize::new(0.5, [1.0, 0.0, 1.0])),
            "std is (1.0, 0.0, 1.0); no value may be 0"
        );
        assert!(check_error(Normalize::new(0.5, 1e-60)).contains("no value may be 0"));
        assert!(check_error(Normalize::new([0.5; 3], [1.0; 4])).contains("as many values"));
        assert!(check_error(Normalize::new(f64::NAN, 1.0)).contains("mean is NaN"));
        assert!(Normalize::new(0.5, [1.0; 3]).check().is_ok());
    }
}
