//! [`Filters`]: one filter, or two of which one is drawn.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Interpolation;
use crate::rng::Rng;

/// How pixels between pixels are found: by one filter, or by one of two, drawn for each sample, as timm's
/// `interpolation="random"` has it. In JSON a name, or a list of one or two of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filters {
    one: Interpolation,
    other: Option<Interpolation>,
}

impl Filters {
    /// One of them; nothing is drawn where there is one.
    pub(super) fn draw(self, rng: &mut Rng) -> Interpolation {
        match self.other {
            Some(other) if rng.chance(0.5) => other,
            _ => self.one,
        }
    }

    /// All of them.
    pub(super) fn each(self) -> impl Iterator<Item = Interpolation> {
        [Some(self.one), self.other].into_iter().flatten()
    }
}

impl From<Interpolation> for Filters {
    fn from(one: Interpolation) -> Self {
        Self { one, other: None }
    }
}

impl From<[Interpolation; 2]> for Filters {
    fn from([one, other]: [Interpolation; 2]) -> Self {
        Self { one, other: Some(other) }
    }
}

impl fmt::Display for Filters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.other {
            None => self.one.fmt(f),
            Some(other) => write!(f, "({}, {other})", self.one),
        }
    }
}

impl Serialize for Filters {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.other {
            None => self.one.serialize(serializer),
            Some(other) => [self.one, other].serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Filters {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Names are looked up one by one, so that an error says which are known.
        struct Names;

        impl<'de> serde::de::Visitor<'de> for Names {
            type Value = Filters;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a filter, or a list of one or two")
            }

            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Filters, E> {
                Interpolation::deserialize(serde::de::value::StrDeserializer::new(name)).map(Filters::from)
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> Result<Filters, A::Error> {
                let Some(one) = seq.next_element()? else {
                    return Err(serde::de::Error::invalid_length(0, &self));
                };
                let other = seq.next_element()?;
                if seq.next_element::<Interpolation>()?.is_some() {
                    return Err(serde::de::Error::invalid_length(3, &self));
                }
                Ok(Filters { one, other })
            }
        }

        deserializer.deserialize_any(Names)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn one_is_taken_and_of_two_each_is_as_likely() {
        let two = Filters::from([Interpolation::Bilinear, Interpolation::Bicubic]);
        let hits = (0..20_000).filter(|&i| two.draw(&mut rng(i)) == Interpolation::Bicubic).count();
        assert_probability(hits, 20_000, 0.5);
        assert_eq!(Filters::from(Interpolation::Lanczos).draw(&mut rng(0)), Interpolation::Lanczos);
    }

    #[test]
    fn a_name_and_lists_of_one_and_two_are_read() {
        let read = |json: &str| serde_json::from_str::<Filters>(json).map_err(|e| e.to_string());
        assert_eq!(read("\"bicubic\""), Ok(Interpolation::Bicubic.into()));
        assert_eq!(read("[\"bicubic\"]"), Ok(Interpolation::Bicubic.into()));
        let two = read("[\"bilinear\", \"bicubic\"]").unwrap();
        assert_eq!(two, [Interpolation::Bilinear, Interpolation::Bicubic].into());
        assert_eq!(serde_json::to_string(&two).unwrap(), "[\"bilinear\",\"bicubic\"]");
        assert_eq!(two.to_string(), "(bilinear, bicubic)");
        assert!(read("\"cubic\"").unwrap_err().contains("unknown variant `cubic`"));
        assert!(read("[]").is_err() && read("[\"nearest\",\"nearest\",\"nearest\"]").is_err());
        assert!(read("3").is_err());
    }
}
