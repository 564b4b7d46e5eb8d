//! [`Kept`]: what a `filter` left, as part of a plan.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{Error, Result};

/// Elements that a filter kept: found by one pass over its input, and so a list. In JSON it is the number of elements
/// that were looked at and a bit for each, least significant first, as hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    of: u64,
    positions: Arc<[u64]>,
}

impl Kept {
    /// Of `of` elements those at `positions`, which must rise.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] if they do not rise, or one is not below `of`.
    pub fn new(of: u64, positions: Vec<u64>) -> Result<Self> {
        let rising = positions.windows(2).all(|pair| pair[0] < pair[1]);
        if !rising || positions.last().is_some_and(|last| *last >= of) {
            return Err(Error::config(format!("positions that a filter kept must rise, and be below {of}")));
        }
        Ok(Self { of, positions: positions.into() })
    }

    /// Elements that were looked at.
    pub fn of(&self) -> u64 {
        self.of
    }

    /// Positions of those that were kept.
    pub fn positions(&self) -> &Arc<[u64]> {
        &self.positions
    }
}

impl Serialize for Kept {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut bits = vec![0u8; usize::try_from(self.of.div_ceil(8)).unwrap_or(0)];
        for &position in &*self.positions {
            bits[(position / 8) as usize] |= 1 << (position % 8);
        }
        let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or('0');
        let text: String = bits.iter().flat_map(|byte| [digit(byte & 15), digit(byte >> 4)]).collect();
        (self.of, text).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Kept {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let (of, text) = <(u64, String)>::deserialize(deserializer)?;
        let mut positions = Vec::new();
        for (at, digit) in text.chars().enumerate() {
            let value = digit.to_digit(16).ok_or_else(|| de::Error::custom("not a hexadecimal digit"))?;
            positions.extend((0..4).filter(|bit| value >> bit & 1 == 1).map(|bit| 4 * at as u64 + bit));
        }
        Self::new(of, positions).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_survives_json() {
        for (of, positions) in
            [(0, vec![]), (1, vec![0]), (9, vec![0, 3, 8]), (40, vec![]), (64, (0..64).collect())]
        {
            let kept = Kept::new(of, positions).unwrap();
            let json = serde_json::to_string(&kept).unwrap();
            assert_eq!(serde_json::from_str::<Kept>(&json).unwrap(), kept, "{json}");
        }
        assert_eq!(serde_json::to_string(&Kept::new(9, vec![0, 3, 8]).unwrap()).unwrap(), "[9,\"9010\"]");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert!(Kept::new(3, vec![1, 1]).is_err());
        assert!(Kept::new(3, vec![3]).is_err());
        assert!(serde_json::from_str::<Kept>("[3,\"f\"]").is_err());
        assert!(serde_json::from_str::<Kept>("[3,\"x\"]").is_err());
    }
}
