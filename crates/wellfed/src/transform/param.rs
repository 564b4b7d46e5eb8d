//! Parameters that several transforms share: how they are read, checked and shown.
//!
//! Reading is as lenient as torchvision's constructors (one number where a pair may stand); what is stored and
//! written is always the full form.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use super::Size;
use crate::{Error, ErrorKind, Result};

/// Greatest side or padding that a parameter may ask for, so that sizes never overflow. Whether so many pixels
/// may be made is up to [`crate::Limits`].
pub(super) const MAX_SIDE: usize = 1 << 24;

/// Two sides, (height, width) for sizes and (x, y) for kernels: one number means both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sides(pub [usize; 2]);

impl From<usize> for Sides {
    fn from(side: usize) -> Self {
        Self([side, side])
    }
}

impl From<[usize; 2]> for Sides {
    fn from(sides: [usize; 2]) -> Self {
        Self(sides)
    }
}

impl From<(usize, usize)> for Sides {
    fn from(sides: (usize, usize)) -> Self {
        Self(sides.into())
    }
}

/// A range to draw from: a number spreads around the value that changes nothing, a pair is (low, high).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spread {
    /// As far below as above the neutral value.
    By(f64),
    /// Least and greatest.
    Between([f64; 2]),
}

impl Spread {
    /// The range, for a parameter that changes nothing at `neutral`.
    pub(super) fn around(self, neutral: f64) -> [f64; 2] {
        match self {
            Spread::By(by) => [neutral - by, neutral + by],
            Spread::Between(range) => range,
        }
    }
}

impl From<f64> for Spread {
    fn from(by: f64) -> Self {
        Self::By(by)
    }
}

impl From<[f64; 2]> for Spread {
    fn from(range: [f64; 2]) -> Self {
        Self::Between(range)
    }
}

impl<'de> Deserialize<'de> for Spread {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let given = numbers::<f64, D>(deserializer, &[1, 2], "must be one number, or (low, high)")?;
        Ok(match given[..] {
            [low, high] => Self::Between([low, high]),
            _ => Self::By(given[0]),
        })
    }
}

/// Pixels to add at each border. Read from one number, (left and right, top and bottom), or
/// (left, top, right, bottom); written as the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Padding {
    pub left: usize,
    pub top: usize,
    pub right: usize,
    pub bottom: usize,
}

impl Padding {
    /// True if nothing is added.
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn check(&self) -> Result<()> {
        if [self.left, self.top, self.right, self.bottom].iter().all(|&side| side <= MAX_SIDE) {
            return Ok(());
        }
        Err(Error::config(format!("padding is {self}; each number must be 0 to {MAX_SIDE}")))
    }
}

impl From<usize> for Padding {
    fn from(all: usize) -> Self {
        Self { left: all, top: all, right: all, bottom: all }
    }
}

impl From<[usize; 2]> for Padding {
    fn from([x, y]: [usize; 2]) -> Self {
        Self { left: x, top: y, right: x, bottom: y }
    }
}

impl From<[usize; 4]> for Padding {
    fn from([left, top, right, bottom]: [usize; 4]) -> Self {
        Self { left, top, right, bottom }
    }
}

impl fmt::Display for Padding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {}, {}, {}]", self.left, self.top, self.right, self.bottom)
    }
}

impl Serialize for Padding {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        [self.left, self.top, self.right, self.bottom].serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Padding {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let allowed = "must be one number of pixels, (left and right, top and bottom) or \
                       (left, top, right, bottom), none negative";
        let given = numbers::<usize, D>(deserializer, &[0, 1, 2, 4], allowed)?;
        Ok(match given[..] {
            [] => Self::default(),
            [all] => all.into(),
            [x, y] => [x, y].into(),
            _ => [given[0], given[1], given[2], given[3]].into(),
        })
    }
}

/// Reads one number as a list of one, `null` as an empty list, and a list as it is, if its length is among
/// `lengths`; `allowed` says what was expected.
pub(super) fn numbers<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
    lengths: &[usize],
    allowed: &str,
) -> Result<Vec<T>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Given<T> {
        None,
        One(T),
        Many(Vec<T>),
    }
    let given = match Given::<T>::deserialize(deserializer) {
        Ok(Given::None) => vec![],
        Ok(Given::One(one)) => vec![one],
        Ok(Given::Many(many)) if !many.is_empty() => many,
        _ => return Err(D::Error::custom(allowed)),
    };
    if lengths.contains(&given.len()) { Ok(given) } else { Err(D::Error::custom(allowed)) }
}

/// Reads one number of pixels or (height, width).
pub(super) fn sides<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[usize; 2], D::Error> {
    let given = numbers(deserializer, &[1, 2], "must be one number of pixels, or (height, width)")?;
    Ok([given[0], given[given.len() - 1]])
}

/// Fails unless both sides are at least 1 and sane.
pub(super) fn check_sides(name: &str, sides: [usize; 2]) -> Result<()> {
    if sides.iter().all(|side| (1..=MAX_SIDE).contains(side)) {
        return Ok(());
    }
    Err(Error::config(format!("{name} is {}; both sides must be 1 to {MAX_SIDE}", Tuple(&sides))))
}

/// Fails unless `p` is a probability.
pub(super) fn check_probability(p: f64) -> Result<()> {
    if (0.0..=1.0).contains(&p) {
        return Ok(());
    }
    Err(Error::config(format!("p is {p}; must be 0 to 1")))
}

/// Fails unless the fill of masks is a number, if it is given.
pub(super) fn check_mask_fill(fill: Option<f64>) -> Result<()> {
    match fill {
        Some(fill) if !fill.is_finite() => Err(Error::config(format!("mask_fill is {fill}; must be finite"))),
        _ => Ok(()),
    }
}

/// Fails unless `range` is (low, high) with `least <= low <= high <= most`.
pub(super) fn check_range(name: &str, range: [f64; 2], least: f64, most: f64) -> Result<()> {
    let [low, high] = range;
    if least <= low && low <= high && high <= most && low.is_finite() && high.is_finite() {
        return Ok(());
    }
    let mut allowed = String::from("must be (low, high) with low <= high");
    if least.is_finite() {
        allowed += &format!(", low at least {least}");
    }
    if most.is_finite() {
        allowed += &format!(", high at most {most}");
    }
    Err(Error::config(format!("{name} is {}; {allowed}", Tuple(&range))))
}

/// As [`check_range`], with 0 < low.
pub(super) fn check_positive_range(name: &str, range: [f64; 2]) -> Result<()> {
    if range[0] > 0.0 && range[0] <= range[1] && range[1].is_finite() {
        return Ok(());
    }
    Err(Error::config(format!("{name} is {}; must be (low, high) with 0 < low <= high", Tuple(&range))))
}

/// A fact about one image that makes a transform impossible.
pub(super) fn impossible(message: String) -> Error {
    Error::new(ErrorKind::Shape, message)
}

/// Fails for an image of height or width 0, of which nothing can be resampled or repeated.
pub(super) fn check_pixels(size: Size) -> Result<()> {
    if size.height > 0 && size.width > 0 {
        return Ok(());
    }
    Err(impossible(format!("an image of {} has no pixels", Tuple(&[size.height, size.width]))))
}

/// Shows as a Python tuple.
pub(super) struct Tuple<'a, T>(pub(super) &'a [T]);

impl<T: fmt::Debug> fmt::Display for Tuple<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, item) in self.0.iter().enumerate() {
            write!(f, "{}{item:?}", if i == 0 { "(" } else { ", " })?;
        }
        f.write_str(")")
    }
}

/// Shows as a Python bool.
pub(super) fn python_bool(value: bool) -> &'static str {
    if value { "True" } else { "False" }
}

/// Writes `Name(field=value, ...)`, as torchvision's `__repr__`.
pub(super) struct Repr<'a, 'f> {
    f: &'a mut fmt::Formatter<'f>,
    separator: &'static str,
    result: fmt::Result,
}

impl<'a, 'f> Repr<'a, 'f> {
    pub(super) fn new(f: &'a mut fmt::Formatter<'f>, name: &str) -> Self {
        let result = write!(f, "{name}(");
        Self { f, separator: "", result }
    }

    pub(super) fn field(mut self, name: &str, value: impl fmt::Display) -> Self {
        if self.result.is_ok() {
            self.result = write!(self.f, "{}{name}={value}", self.separator);
        }
        self.separator = ", ";
        self
    }

    pub(super) fn field_if(self, show: bool, name: &str, value: impl fmt::Display) -> Self {
        if show { self.field(name, value) } else { self }
    }

    pub(super) fn finish(self) -> fmt::Result {
        self.result.and_then(|()| self.f.write_str(")"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_read_in_the_order_of_torchvision() {
        for (json, padding) in [
            ("3", [3, 3, 3, 3]),
            ("[3]", [3, 3, 3, 3]),
            ("[1,2]", [1, 2, 1, 2]),
            ("[1,2,3,4]", [1, 2, 3, 4]),
            ("null", [0; 4]),
        ] {
            let read: Padding = serde_json::from_str(json).unwrap();
            assert_eq!(read, Padding::from(padding), "{json}");
            assert_eq!(serde_json::to_value(read).unwrap(), serde_json::to_value(padding).unwrap());
        }
        for json in ["-1", "[1,2,3]", "[]", "1.5", "\"a\""] {
            let e = serde_json::from_str::<Padding>(json).unwrap_err();
            assert!(e.to_string().contains("(left, top, right, bottom), none negative"), "{json}: {e}");
        }
        assert!(Padding::from(MAX_SIDE).check().is_ok() && Padding::from(MAX_SIDE + 1).check().is_err());
    }

    #[test]
    fn ranges_name_the_parameter_its_value_and_what_is_allowed() {
        let e = check_range("scale", [0.5, 2.0], 0.0, 1.0).unwrap_err();
        assert_eq!(
            e.message(),
            "scale is (0.5, 2.0); must be (low, high) with low <= high, low at least 0, high at most 1"
        );
        assert!(check_range("x", [2.0, 1.0], f64::NEG_INFINITY, f64::INFINITY).is_err());
        assert!(check_range("x", [f64::NAN, 1.0], f64::NEG_INFINITY, f64::INFINITY).is_err());
        assert!(check_range("x", [0.0, f64::INFINITY], 0.0, f64::INFINITY).is_err());
        assert!(check_positive_range("x", [0.0, 1.0]).is_err());
        assert_eq!(check_probability(1.5).unwrap_err().message(), "p is 1.5; must be 0 to 1");
        assert!(check_probability(f64::NAN).is_err());
    }
}
