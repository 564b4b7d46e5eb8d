//! MessagePack, read where it lies: one item after the other.
//!
//! Format: <https://github.com/msgpack/msgpack/blob/master/spec.md>. Lengths are checked against what is there; nothing is copied
//! or allocated, and nothing recurses deeper than [`DEEPEST`].

use std::fmt::Write;

use super::npy;
use crate::sample::DType;

/// Lists in lists in lists: more of them are no data set.
const DEEPEST: usize = 64;

/// One item. The items of lists and maps follow it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Item<'a> {
    Nil,
    Bool(bool),
    Int(i64),
    /// One that int64 does not hold.
    Large(u64),
    Float(f64),
    Text(&'a [u8]),
    Bytes(&'a [u8]),
    /// So many items.
    List(usize),
    /// So many pairs of items.
    Map(usize),
    /// Of a type of the writer's own.
    Extension(i8, &'a [u8]),
}

/// What is left of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message<'a>(&'a [u8]);

/// An array as the Python package msgpack-numpy writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Array<'a> {
    pub(super) dtype: DType,
    /// Whether elements are in the other byte order.
    pub(super) swapped: bool,
    pub(super) shape: Vec<usize>,
    pub(super) elements: &'a [u8],
}

impl<'a> Message<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self
            .0
            .split_at_checked(len)
            .ok_or_else(|| format!("announces {len} bytes where only {} are left", self.0.len()))?;
        self.0 = rest;
        Ok(taken)
    }

    /// A number of `len` bytes, the highest first.
    fn number(&mut self, len: usize) -> Result<u64, String> {
        Ok(self.take(len)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn length(&mut self, len: usize) -> Result<usize, String> {
        // At most 32 bits.
        self.number(len).map(|n| n as usize)
    }

    /// Takes the next item.
    pub(super) fn next(&mut self) -> Result<Item<'a>, String> {
        let code = self.take(1)?[0];
        Ok(match code {
            0x00..=0x7F => Item::Int(i64::from(code)),
            0x80..=0x8F => self.holds(Item::Map(usize::from(code & 15)))?,
            0x90..=0x9F => self.holds(Item::List(usize::from(code & 15)))?,
            0xA0..=0xBF => Item::Text(self.take(usize::from(code & 31))?),
            0xC0 => Item::Nil,
            0xC1 => return Err("has a code 0xc1, which there is not".to_owned()),
            0xC2 | 0xC3 => Item::Bool(code == 0xC3),
            0xC4..=0xC6 => {
                let len = self.length(1 << (code - 0xC4))?;
                Item::Bytes(self.take(len)?)
            }
            0xC7..=0xC9 => {
                let len = self.length(1 << (code - 0xC7))?;
                self.extension(len)?
            }
            0xCA => Item::Float(f64::from(f32::from_bits(self.number(4)? as u32))),
            0xCB => Item::Float(f64::from_bits(self.number(8)?)),
            0xCC..=0xCF => {
                let number = self.number(1 << (code - 0xCC))?;
                i64::try_from(number).map_or(Item::Large(number), Item::Int)
            }
            0xD0 => Item::Int(i64::from(self.number(1)? as u8 as i8)),
            0xD1 => Item::Int(i64::from(self.number(2)? as u16 as i16)),
            0xD2 => Item::Int(i64::from(self.number(4)? as u32 as i32)),
            0xD3 => Item::Int(self.number(8)?.cast_signed()),
            0xD4..=0xD8 => self.extension(1 << (code - 0xD4))?,
            0xD9..=0xDB => {
                let len = self.length(1 << (code - 0xD9))?;
                Item::Text(self.take(len)?)
            }
            0xDC | 0xDD => {
                let len = self.length(if code == 0xDC { 2 } else { 4 })?;
                self.holds(Item::List(len))?
            }
            0xDE | 0xDF => {
                let len = self.length(if code == 0xDE { 2 } else { 4 })?;
                self.holds(Item::Map(len))?
            }
            0xE0..=0xFF => Item::Int(i64::from(code as i8)),
        })
    }

    fn extension(&mut self, len: usize) -> Result<Item<'a>, String> {
        let kind = self.take(1)?[0] as i8;
        Ok(Item::Extension(kind, self.take(len)?))
    }

    /// A list or map, if there are enough bytes for its items.
    fn holds(&self, item: Item<'a>) -> Result<Item<'a>, String> {
        let items = match item {
            Item::Map(pairs) => 2 * pairs,
            Item::List(items) => items,
            _ => 0,
        };
        if items > self.0.len() {
            return Err(format!("announces {items} items where only {} bytes are left", self.0.len()));
        }
        Ok(item)
    }

    /// Takes the next item with all that is in it.
    pub(super) fn whole(&mut self) -> Result<Message<'a>, String> {
        let all = self.0;
        let mut left = 1_usize;
        while left > 0 {
            left -= 1;
            match self.next()? {
                Item::List(items) => left += items,
                Item::Map(pairs) => left += 2 * pairs,
                _ => {}
            }
        }
        Ok(Message(&all[..all.len() - self.0.len()]))
    }

    /// The array that the message is, if it is one of msgpack-numpy's; an error if it only begins as one.
    pub(super) fn array(mut self) -> Result<Option<Array<'a>>, String> {
        let Ok(Item::Map(pairs)) = self.next() else { return Ok(None) };
        let (mut is_array, mut dtype, mut shape, mut elements) = (false, None, None, None);
        for pair in 0..pairs {
            let (Item::Text(key) | Item::Bytes(key)) = self.next()? else { return Ok(None) };
            match key {
                b"nd" => is_array = self.next()? == Item::Bool(true),
                // That is what it begins with.
                _ if pair == 0 => return Ok(None),
                b"type" => {
                    let (Item::Text(name) | Item::Bytes(name)) = self.next()? else {
                        return Err("has an array of records, which is not read".to_owned());
                    };
                    dtype = Some(
                        npy::dtype_of(&String::from_utf8_lossy(name))
                            .map_err(|e| format!("has an {}", e.message()))?,
                    );
                }
                b"shape" => {
                    let Item::List(sides) = self.next()? else {
                        return Err("has an array without a shape".to_owned());
                    };
                    let side = |_| -> Result<usize, String> {
                        match self.next()? {
                            Item::Int(side) => usize::try_from(side)
                                .map_err(|_| format!("has an array with a side of {side}")),
                            other => Err(format!("has an array with a side that is {other:?}")),
                        }
                    };
                    shape = Some((0..sides).map(side).collect::<Result<Vec<_>, _>>()?);
                }
                b"data" => {
                    let (Item::Text(data) | Item::Bytes(data)) = self.next()? else {
                        return Err("has an array without elements".to_owned());
                    };
                    elements = Some(data);
                }
                _ => {
                    self.whole()?;
                }
            }
        }
        if !is_array {
            return Ok(None);
        }
        let (Some((dtype, swapped)), Some(shape), Some(elements)) = (dtype, shape, elements) else {
            return Err("has an array without dtype, shape or elements".to_owned());
        };
        let needed = shape.iter().try_fold(dtype.size(), |size, n| size.checked_mul(*n));
        if needed != Some(elements.len()) {
            let (name, given) = (dtype.name(), elements.len());
            return Err(format!("has an array of {name} {shape:?}, which does not have {given} bytes"));
        }
        Ok(Some(Array { dtype, swapped, shape, elements }))
    }

    /// The message as JSON, as Python's `json` writes it: with NaN and infinities.
    pub(super) fn json(mut self, into: &mut String) -> Result<(), String> {
        self.json_item(into, 0)
    }

    fn json_item(&mut self, into: &mut String, depth: usize) -> Result<(), String> {
        if depth > DEEPEST {
            return Err(format!("has lists in lists, more than {DEEPEST} deep"));
        }
        let written = match self.next()? {
            Item::Nil => into.write_str("null"),
            Item::Bool(value) => write!(into, "{value}"),
            Item::Int(number) => write!(into, "{number}"),
            Item::Large(number) => write!(into, "{number}"),
            Item::Float(number) if number.is_nan() => into.write_str("NaN"),
            Item::Float(number) if number.is_infinite() => {
                into.write_str(if number > 0.0 { "Infinity" } else { "-Infinity" })
            }
            // With a point or an exponent, so that it stays a float.
            Item::Float(number) => write!(into, "{number:?}"),
            Item::Text(text) => json_text(text, into),
            Item::Bytes(_) => return Err("has bytes in a list or dict, which JSON does not have".to_owned()),
            Item::Extension(kind, _) => {
                return Err(format!("has an extension of type {kind}, which is not known"));
            }
            Item::List(items) => {
                into.push('[');
                for item in 0..items {
                    if item > 0 {
                        into.push_str(", ");
                    }
                    self.json_item(into, depth + 1)?;
                }
                into.write_str("]")
            }
            Item::Map(pairs) => {
                into.push('{');
                for pair in 0..pairs {
                    if pair > 0 {
                        into.push_str(", ");
                    }
                    let key = match self.next()? {
                        Item::Text(key) | Item::Bytes(key) => json_text(key, into),
                        // As Python's `json` writes keys that are numbers.
                        Item::Int(key) => write!(into, "\"{key}\""),
                        other => return Err(format!("has a dict with a key {other:?}")),
                    };
                    key.map_err(|_| "has text that is not UTF-8")?;
                    into.push_str(": ");
                    self.json_item(into, depth + 1)?;
                }
                into.write_str("}")
            }
        };
        written.map_err(|_| "has text that is not UTF-8".to_owned())
    }
}

fn json_text(text: &[u8], into: &mut String) -> std::fmt::Result {
    let text = std::str::from_utf8(text).map_err(|_| std::fmt::Error)?;
    into.push_str(&serde_json::to_string(text).map_err(|_| std::fmt::Error)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(bytes: &[u8]) -> Result<Vec<Item<'_>>, String> {
        let mut message = Message::new(bytes);
        let mut found = Vec::new();
        while !message.is_empty() {
            found.push(message.next()?);
        }
        Ok(found)
    }

    #[test]
    fn all_codes_are_items() {
        let floats = [&[0xCA][..], &0.5_f32.to_be_bytes(), &[0xCB], &(-2.25_f64).to_be_bytes()].concat();
        assert_eq!(items(&floats).unwrap(), [Item::Float(0.5), Item::Float(-2.25)]);
        let numbers = [
            &[0x07, 0xE0, 0xFF, 0xCC, 200, 0xCD, 1, 0, 0xCE, 0, 1, 0, 0, 0xD0, 0x80, 0xD1, 0xFF, 0xFE][..],
            &[0xD2, 0xFF, 0xFF, 0xFF, 0xFD, 0xD3],
            &(-5_i64).to_be_bytes(),
            &[0xCF],
            &u64::MAX.to_be_bytes(),
        ]
        .concat();
        let expected = [7, -32, -1, 200, 256, 65536, -128, -2, -3, -5].map(Item::Int);
        assert_eq!(items(&numbers).unwrap(), [&expected[..], &[Item::Large(u64::MAX)]].concat());
        let others =
            [
                &[
                    0xC0, 0xC2, 0xC3, 0xA2, b'h', b'i', 0xD9, 1, b'x', 0xDA, 0, 1, b'y', 0xDB, 0, 0, 0, 1,
                    b'z',
                ][..],
                &[0xC4, 1, 9, 0xC5, 0, 1, 8, 0xC6, 0, 0, 0, 1, 7, 0xD4, 5, 6, 0xC7, 2, 0xFF, 1, 2],
            ]
            .concat();
        let expected = [
            Item::Nil,
            Item::Bool(false),
            Item::Bool(true),
            Item::Text(b"hi"),
            Item::Text(b"x"),
            Item::Text(b"y"),
            Item::Text(b"z"),
            Item::Bytes(&[9]),
            Item::Bytes(&[8]),
            Item::Bytes(&[7]),
            Item::Extension(5, &[6]),
            Item::Extension(-1, &[1, 2]),
        ];
        assert_eq!(items(&others).unwrap(), expected);
        let nested = [0x82, 0xA1, b'a', 0x92, 1, 0x90, 0xA1, b'b', 0x80, 5];
        let mut message = Message::new(&nested);
        assert_eq!(message.whole().unwrap().0.len(), nested.len() - 1);
        assert_eq!(message.next(), Ok(Item::Int(5)));
        for cut in 0..others.len() {
            let _ = items(&others[..cut]);
        }
        for bad in [
            &[0xC1][..],
            &[0xA3, b'x'],
            &[0x93, 1],
            &[0xDD, 255, 255, 255, 255, 0],
            &[0xDF, 255, 255, 255, 255],
        ] {
            assert!(items(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn lists_and_dicts_become_json() {
        let json = |bytes: &[u8]| {
            let mut text = String::new();
            Message::new(bytes).json(&mut text).map(|()| text)
        };
        let nested = [
            &[0x83, 0xA1, b'a', 0x93, 1, 0xC0, 0xCB][..],
            &f64::NAN.to_be_bytes(),
            &[3, 0xA1, b'"', 0xA1, b'b', 0xCB],
            &1_f64.to_be_bytes(),
        ]
        .concat();
        assert_eq!(json(&nested).unwrap(), r#"{"a": [1, null, NaN], "3": "\"", "b": 1.0}"#);
        assert!(json(&[0x91, 0xC4, 0]).unwrap_err().contains("bytes"));
        assert!(json(&[0xA1, 0xFF]).unwrap_err().contains("UTF-8"));
        assert!(json(&[0x91; 200]).is_err());
        let deep = [vec![0x91; 100], vec![0xC0]].concat();
        assert!(json(&deep).unwrap_err().contains("64 deep"));
    }

    #[test]
    fn arrays_of_msgpack_numpy_are_found() {
        let array = |dtype: &[u8], sides: &[u8], data: &[u8]| {
            let mut all = vec![
                0x85,
                0xC4,
                2,
                b'n',
                b'd',
                0xC3,
                0xC4,
                4,
                b't',
                b'y',
                b'p',
                b'e',
                0xA0 + dtype.len() as u8,
            ];
            all.extend(dtype);
            all.extend([0xC4, 4, b'k', b'i', b'n', b'd', 0xC4, 0, 0xC4, 5, b's', b'h', b'a', b'p', b'e']);
            all.push(0x90 + sides.len() as u8);
            all.extend(sides);
            all.extend([0xC4, 4, b'd', b'a', b't', b'a', 0xC4, data.len() as u8]);
            all.extend(data);
            all
        };
        let good = array(b"<i2", &[2, 1], &[1, 0, 2, 0]);
        let found = Message::new(&good).array().unwrap().unwrap();
        assert_eq!((found.dtype, found.shape, found.elements), (DType::Int16, vec![2, 1], &[1, 0, 2, 0][..]));
        assert!(Message::new(&array(b">i2", &[1], &[0, 1])).array().unwrap().unwrap().swapped);
        assert!(Message::new(&array(b"<i2", &[3], &[0, 1])).array().unwrap_err().contains("2 bytes"));
        assert!(Message::new(&array(b"<c8", &[1], &[0; 8])).array().unwrap_err().contains("c8"));
        for other in [&[0x81, 0xA1, b'a', 1][..], &[1], &[0x80], &[0x81, 0xA2, b'n', b'd', 0xC2]] {
            assert_eq!(Message::new(other).array(), Ok(None), "{other:?}");
        }
        for cut in 1..good.len() {
            assert!(!matches!(Message::new(&good[..cut]).array(), Ok(Some(_))));
        }
    }
}
