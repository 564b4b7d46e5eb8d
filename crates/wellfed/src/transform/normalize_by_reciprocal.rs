//! `NormalizeByReciprocal`: normalization as Albumentations rounds it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Action, Class, Normalize, Operation, PerChannel, Shape, Size, param::Repr};
use crate::{Result, rng::Rng};

/// `(x - mean) * (1 / std)` per channel, on floating point images: [`Normalize`] with another rounding, since the
/// reciprocal is rounded first. `Normalize` of Albumentations 2 is this on values of 0 to 255, with a `mean` and a `std` of
/// that range.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NormalizeByReciprocal {
    /// One mean, or one per channel.
    pub mean: PerChannel,
    /// One standard deviation, or one per channel.
    pub std: PerChannel,
}

impl NormalizeByReciprocal {
    /// Normalizes by `mean` and `std`, in the value range of the image.
    pub fn new(mean: impl Into<PerChannel>, std: impl Into<PerChannel>) -> Self {
        Self { mean: mean.into(), std: std.into() }
    }

    fn plain(&self) -> Normalize {
        Normalize { mean: self.mean, std: self.std }
    }
}

impl fmt::Display for NormalizeByReciprocal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "NormalizeByReciprocal")
            .field("mean", format_args!("{:?}", self.mean))
            .field("std", format_args!("{:?}", self.std))
            .finish()
    }
}

impl Operation for NormalizeByReciprocal {
    fn check(&self) -> Result<()> {
        self.plain().check()
    }

    fn class(&self) -> Class {
        Class::Normalize
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        input
    }

    fn draw(&self, size: Size, rng: &mut Rng) -> Result<Action> {
        let drawn = self.plain().draw(size, rng)?;
        Ok(match drawn {
            Action::Normalize { mean, std, .. } => Action::Normalize { mean, std, by_reciprocal: true },
            other => other,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn it_is_checked_as_normalize_is() {
        assert!(check_error(NormalizeByReciprocal::new([1.0; 3], 0.0)).starts_with("std is (0.0)"));
        let same = NormalizeByReciprocal::new([1.0, 2.0, 3.0], 4.0);
        let action = same.draw(size(1, 1), &mut rng(0)).unwrap();
        let expected = [1.0, 2.0, 3.0].into();
        assert_eq!(action, Action::Normalize { mean: expected, std: 4.0.into(), by_reciprocal: true });
        let read = read(r#"{"type":"NormalizeByReciprocal","mean":[1,2,3],"std":4}"#);
        assert_eq!(read, same.into());
        assert_eq!(read.to_string(), "NormalizeByReciprocal(mean=[1.0, 2.0, 3.0], std=[4.0])");
    }
}
