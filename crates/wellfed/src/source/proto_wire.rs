//! The wire format of protocol buffers, read where it lies: fields of a message, one after the other.
//!
//! Format: <https://protobuf.dev/programming-guides/encoding/>. Lengths are checked against what is there; nothing is copied or
//! allocated. Groups, which proto3 does not have, are refused.

use crate::{Error, Result};

/// A part of a message, and where it begins in the whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Part<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
}

/// The value of one field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wire<'a> {
    Varint(u64),
    Fixed32([u8; 4]),
    Fixed64,
    Bytes(Part<'a>),
}

impl<'a> Part<'a> {
    /// All of a message.
    pub(super) fn whole(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Takes the next field: its number and value. `None` at the end.
    #[inline]
    pub(super) fn field(&mut self) -> Result<Option<(u64, Wire<'a>)>> {
        if self.bytes.is_empty() {
            return Ok(None);
        }
        let at = self.at;
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Wire::Varint(self.varint()?),
            1 => self.take(8).map(|_| Wire::Fixed64)?,
            2 => {
                let len = self.varint()?;
                let len = usize::try_from(len).unwrap_or(usize::MAX);
                Wire::Bytes(self.take(len)?)
            }
            5 => Wire::Fixed32(self.take(4)?.bytes.first_chunk().copied().unwrap_or_default()),
            kind => {
                return Err(Error::corrupt(format!(
                    "the message has a field of wire type {kind} at byte {at} of the record, which is not supported"
                )));
            }
        };
        Ok(Some((tag >> 3, value)))
    }

    #[inline]
    fn take(&mut self, len: usize) -> Result<Self> {
        let Some((taken, rest)) = self.bytes.split_at_checked(len) else {
            return Err(Error::corrupt(format!(
                "the message announces {len} bytes at byte {} of the record, where only {} are left",
                self.at,
                self.bytes.len()
            )));
        };
        let taken = Self { bytes: taken, at: self.at };
        *self = Self { bytes: rest, at: self.at + len };
        Ok(taken)
    }

    /// Takes a number of 7 bits a byte, the lowest first.
    #[inline]
    pub(super) fn varint(&mut self) -> Result<u64> {
        match self.bytes {
            [byte, rest @ ..] if *byte < 0x80 => {
                *self = Self { bytes: rest, at: self.at + 1 };
                Ok(u64::from(*byte))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64> {
        let mut number = 0;
        for (place, byte) in self.bytes.iter().enumerate().take(10) {
            // What of the tenth byte is beyond 64 bits is dropped, as by protobuf.
            number |= u64::from(byte & 0x7f) << (7 * place);
            if byte & 0x80 == 0 {
                *self = Self { bytes: &self.bytes[place + 1..], at: self.at + place + 1 };
                return Ok(number);
            }
        }
        Err(Error::corrupt(format!("the message has a number without end at byte {} of the record", self.at)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_one_after_the_other() {
        let bytes = [0x08, 0x96, 0x01, 0x12, 2, b'h', b'i', 0x1d, 1, 2, 3, 4, 0x21, 0, 0, 0, 0, 0, 0, 0, 0];
        let mut part = Part::whole(&bytes);
        assert_eq!(part.field().unwrap(), Some((1, Wire::Varint(150))));
        assert_eq!(part.field().unwrap(), Some((2, Wire::Bytes(Part { bytes: b"hi", at: 5 }))));
        assert_eq!(part.field().unwrap(), Some((3, Wire::Fixed32([1, 2, 3, 4]))));
        assert_eq!(part.field().unwrap(), Some((4, Wire::Fixed64)));
        assert_eq!(part.field().unwrap(), None);
    }

    #[test]
    fn what_is_cut_or_unknown_is_an_error() {
        for bad in [
            &[0x08][..],
            &[0x12, 3, 1, 2],
            &[0x1d, 1, 2],
            &[0x21, 1],
            &[0x0b],
            &[0x80; 11],
            &[0x12, 0xff, 0xff],
        ] {
            assert!(Part::whole(bad).field().is_err(), "{bad:?}");
        }
        let all = [0xff; 9].iter().copied().chain([1]).collect::<Vec<u8>>();
        assert_eq!(Part::whole(&all).varint().unwrap(), u64::MAX);
    }
}
