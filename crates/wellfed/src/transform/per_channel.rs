//! [`PerChannel`]: one number for all channels or one per channel, held inline so that draws do not allocate.

use std::{fmt, ops::Deref};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use super::param::numbers;
use crate::{Error, ErrorKind, Result};

/// One number for all channels, or one per channel (1 to 4), in the value range of the image (u8: 0 to 255).
///
/// In JSON a number, or a list of numbers; `null` is 0, as torchvision's `fill=None`.
#[derive(Clone, Copy)]
pub struct PerChannel {
    values: [f64; 4],
    len: u8,
}

impl PerChannel {
    /// Takes one number or one per channel.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] unless there are 1 to 4 numbers, all finite.
    pub fn new(numbers: &[f64]) -> Result<Self> {
        let error = || {
            Error::config(format!("{numbers:?} must be one number or one per channel (1 to 4), all finite"))
        };
        if !(1..=4).contains(&numbers.len()) || numbers.iter().any(|n| !n.is_finite()) {
            return Err(error());
        }
        let mut values = [0.0; 4];
        values[..numbers.len()].copy_from_slice(numbers);
        Ok(Self { values, len: numbers.len() as u8 })
    }

    /// The value of `channel`. Channels past the last are given the last value.
    pub fn channel(&self, channel: usize) -> f64 {
        self.values[channel.min(usize::from(self.len) - 1)]
    }

    /// Values of an 8-bit pixel of so many channels, cut off at 0 and 255.
    pub(super) fn bytes(&self, channels: usize) -> [u8; 4] {
        std::array::from_fn(|c| self.channel(c.min(channels - 1)).clamp(0.0, 255.0) as u8)
    }

    /// Fails unless all numbers are finite.
    pub(super) fn check(&self, name: &str) -> Result<()> {
        if self.iter().all(|n| n.is_finite()) {
            return Ok(());
        }
        Err(Error::config(format!("{name} is {self}; every number must be finite")))
    }

    /// Fails unless there is one number or one for each of `channels`.
    pub(super) fn check_channels(&self, name: &str, channels: usize) -> Result<()> {
        if self.len() == 1 || self.len() == channels {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Shape,
            format!(
                "{name} has {} values and the image {channels} channels; give one value, or one per channel",
                self.len()
            ),
        ))
    }
}

impl Default for PerChannel {
    fn default() -> Self {
        0.0.into()
    }
}

impl Deref for PerChannel {
    type Target = [f64];

    fn deref(&self) -> &[f64] {
        &self.values[..usize::from(self.len)]
    }
}

impl PartialEq for PerChannel {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl fmt::Debug for PerChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// As Python prints it: `0`, or `(1, 2, 0.5)`.
impl fmt::Display for PerChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [one] = **self {
            return write!(f, "{one}");
        }
        for (i, value) in self.iter().enumerate() {
            write!(f, "{}{value}", if i == 0 { "(" } else { ", " })?;
        }
        f.write_str(")")
    }
}

impl From<f64> for PerChannel {
    fn from(value: f64) -> Self {
        Self { values: [value, 0.0, 0.0, 0.0], len: 1 }
    }
}

impl From<[f64; 3]> for PerChannel {
    fn from([r, g, b]: [f64; 3]) -> Self {
        Self { values: [r, g, b, 0.0], len: 3 }
    }
}

impl From<[f64; 4]> for PerChannel {
    fn from(values: [f64; 4]) -> Self {
        Self { values, len: 4 }
    }
}

impl Serialize for PerChannel {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match **self {
            [one] => one.serialize(serializer),
            ref many => many.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for PerChannel {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let allowed = "must be one number, or one per channel (1 to 4 of them)";
        let given = numbers::<f64, D>(deserializer, &[0, 1, 2, 3, 4], allowed)?;
        match given.as_slice() {
            [] => Ok(Self::default()),
            values => Self::new(values).map_err(D::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_number_is_a_number_and_several_are_a_list() {
        for (json, text) in
            [("0.0", "0"), ("[1.0,2.0,0.5]", "(1, 2, 0.5)"), ("[1.0,2.0,3.0,4.0]", "(1, 2, 3, 4)")]
        {
            let value: PerChannel = serde_json::from_str(json).unwrap();
            assert_eq!(
                (serde_json::to_string(&value).unwrap().as_str(), value.to_string().as_str()),
                (json, text)
            );
        }
        assert_eq!(serde_json::from_str::<PerChannel>("null").unwrap(), 0.0.into());
        assert_eq!(serde_json::from_str::<PerChannel>("[7]").unwrap(), 7.0.into());
        assert!(serde_json::from_str::<PerChannel>("[1,2,3,4,5]").is_err());
        assert!(serde_json::from_str::<PerChannel>("\"red\"").is_err());
    }

    #[test]
    fn numbers_must_be_finite_and_fit_the_channels() {
        assert!(PerChannel::new(&[]).is_err() && PerChannel::new(&[f64::NAN]).is_err());
        let three = PerChannel::from([1.0, 2.0, 3.0]);
        assert!(
            three.check_channels("fill", 3).is_ok()
                && PerChannel::from(1.0).check_channels("fill", 3).is_ok()
        );
        let e = three.check_channels("fill", 1).unwrap_err();
        assert!(e.message().contains("fill has 3 values and the image 1 channels"), "{e}");
        assert_eq!((three.channel(1), three.channel(3), PerChannel::from(5.0).channel(2)), (2.0, 3.0, 5.0));
        assert!(PerChannel::from(f64::INFINITY).check("fill").is_err());
    }
}
