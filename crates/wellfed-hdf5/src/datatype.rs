//! Types of elements: section "IV.A.2.d". Those that are fields of samples, as what they become there.

use wellfed::{Error, ErrorKind, Result, sample::DType};

use crate::cursor::Cursor;

/// How a text of fixed length ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Padding {
    /// At the first zero, if there is one.
    Terminated,
    /// With zeros.
    Zeros,
    /// With spaces.
    Spaces,
}

/// One element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    /// A number, in the other byte order if it is `swapped`.
    Number { dtype: DType, swapped: bool },
    /// Text of so many bytes.
    Text { len: usize, padding: Padding },
    /// So many bytes.
    Opaque { len: usize },
    /// Any number of values, of which so many bytes say where they are: text, or numbers.
    Varying { size: usize, of: Option<(DType, bool)> },
}

impl Element {
    /// Bytes of one.
    pub(crate) fn size(self) -> usize {
        match self {
            Self::Number { dtype, .. } => dtype.size(),
            Self::Text { len, .. } | Self::Opaque { len } | Self::Varying { size: len, .. } => len,
        }
    }

    /// Turns stored elements into those of this machine.
    pub(crate) fn to_native(self, bytes: &mut [u8]) {
        match self {
            // What is not zero is true.
            Self::Number { dtype: DType::Bool, .. } => {
                bytes.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
            }
            Self::Number { dtype, swapped: true } => match dtype.size() {
                2 => bytes.as_chunks_mut::<2>().0.iter_mut().for_each(|one| one.reverse()),
                4 => bytes.as_chunks_mut::<4>().0.iter_mut().for_each(|one| one.reverse()),
                _ => bytes.as_chunks_mut::<8>().0.iter_mut().for_each(|one| one.reverse()),
            },
            _ => {}
        }
    }

    /// Whether stored elements are those of this machine.
    pub(crate) fn is_native(self) -> bool {
        !matches!(self, Self::Number { dtype: DType::Bool, .. } | Self::Number { swapped: true, .. })
    }

    /// The part of a text that is none of its padding.
    pub(crate) fn text(self, bytes: &[u8]) -> &[u8] {
        let Self::Text { padding, .. } = self else { return bytes };
        match padding {
            Padding::Terminated => bytes.split(|byte| *byte == 0).next().unwrap_or_default(),
            Padding::Zeros | Padding::Spaces => {
                let pad = if padding == Padding::Zeros { 0 } else { b' ' };
                let end = bytes.iter().rposition(|byte| *byte != pad).map_or(0, |last| last + 1);
                &bytes[..end]
            }
        }
    }
}

/// A type: an element, and the sides of an array of them if each value is one.
pub(crate) type Found = (Element, Vec<u64>);

/// Types in types, at most.
const DEPTH: usize = 4;

/// Reads the type that begins here. What is not supported is an error that says what it is.
///
/// # Errors
/// [`ErrorKind::Unsupported`] for types that are no field; [`ErrorKind::Corrupt`] for damage.
pub(crate) fn read(cursor: &mut Cursor<'_>) -> Result<Found> {
    within(cursor, DEPTH)
}

fn unsupported(what: &str) -> Error {
    Error::new(ErrorKind::Unsupported, what.to_owned())
}

fn within(cursor: &mut Cursor<'_>, depth: usize) -> Result<Found> {
    if depth == 0 {
        return Err(unsupported("its type is made of too many others"));
    }
    let class_and_version = cursor.u8()?;
    let (class, version) = (class_and_version & 0xF, class_and_version >> 4);
    let bits = cursor.uint(3)?;
    let size = cursor.u32()? as usize;
    if size == 0 {
        return Err(cursor.damaged("elements of no bytes"));
    }
    let alone = |element| Ok((element, Vec::new()));
    let other = if cfg!(target_endian = "little") { 1 } else { 0 };
    let swapped = |big: u64| size > 1 && big == other;
    match class {
        0 | 4 => {
            let (offset, precision) = (cursor.u16()?, usize::from(cursor.u16()?));
            let dtype = match (size, class == 0 && bits & 8 != 0) {
                (1, false) => DType::UInt8,
                (1, true) => DType::Int8,
                (2, false) => DType::UInt16,
                (2, true) => DType::Int16,
                (4, false) => DType::UInt32,
                (4, true) => DType::Int32,
                (8, false) => DType::UInt64,
                (8, true) => DType::Int64,
                _ => return Err(unsupported(&format!("its numbers have {size} bytes"))),
            };
            if offset != 0 || precision != size * 8 {
                return Err(unsupported(&format!("its numbers have {precision} bits in {size} bytes")));
            }
            alone(Element::Number { dtype, swapped: swapped(bits & 1) })
        }
        1 => {
            let (offset, precision) = (cursor.u16()?, usize::from(cursor.u16()?));
            let parts = [cursor.u8()?, cursor.u8()?, cursor.u8()?, cursor.u8()?];
            let bias = cursor.u32()?;
            // Where exponent and mantissa are, and how long.
            let dtype = match (size, parts, bias) {
                (2, [10, 5, 0, 10], 15) => DType::Float16,
                (2, [7, 8, 0, 7], 127) => DType::BFloat16,
                (4, [23, 8, 0, 23], 127) => DType::Float32,
                (8, [52, 11, 0, 52], 1023) => DType::Float64,
                _ => {
                    return Err(unsupported(&format!(
                        "its floating-point numbers of {size} bytes are of no known form"
                    )));
                }
            };
            if offset != 0 || precision != size * 8 || bits & 0x40 != 0 {
                return Err(unsupported(&format!(
                    "its floating-point numbers have {precision} bits in {size} bytes"
                )));
            }
            alone(Element::Number { dtype, swapped: swapped(bits & 1) })
        }
        3 => {
            let padding = match bits & 0xF {
                0 => Padding::Terminated,
                1 => Padding::Zeros,
                2 => Padding::Spaces,
                _ => return Err(cursor.damaged("text with an unknown end")),
            };
            alone(Element::Text { len: size, padding })
        }
        5 => alone(Element::Opaque { len: size }),
        8 => {
            let count = (bits & 0xFFFF) as usize;
            let (base, sides) = within(cursor, depth - 1)?;
            let Element::Number { .. } = base else {
                return Err(cursor.damaged("an enumeration of no numbers"));
            };
            if base.size() != size || !sides.is_empty() {
                return Err(cursor.damaged("an enumeration of other numbers"));
            }
            // h5py's bool is an enumeration of FALSE and TRUE.
            let mut names = Vec::new();
            for _ in 0..count {
                let start = cursor.position();
                names.push(cursor.text()?.to_vec());
                let read = cursor.position() - start;
                cursor.skip(if version < 3 { read.next_multiple_of(8) - read } else { 0 })?;
            }
            let values = cursor.take(count.saturating_mul(size))?;
            if size == 1 && names == [b"FALSE".to_vec(), b"TRUE".to_vec()] && values == [0, 1] {
                return alone(Element::Number { dtype: DType::Bool, swapped: false });
            }
            alone(base)
        }
        10 => {
            let rank = cursor.u8()?;
            cursor.skip(if version < 3 { 3 } else { 0 })?;
            let sides = (0..rank).map(|_| cursor.u32().map(u64::from)).collect::<Result<Vec<_>>>()?;
            cursor.skip(if version < 3 { 4 * usize::from(rank) } else { 0 })?;
            let (base, inner) = within(cursor, depth - 1)?;
            let sides = [sides, inner].concat();
            let bytes = sides.iter().try_fold(base.size() as u64, |bytes, side| bytes.checked_mul(*side));
            if bytes != Some(size as u64) {
                return Err(cursor.damaged("arrays of another size than they state"));
            }
            Ok((base, sides))
        }
        2 => Err(unsupported("its elements are times")),
        6 => Err(unsupported("its elements are compound (records, or complex numbers)")),
        7 => Err(unsupported("its elements are references")),
        9 if bits & 0xF == 1 => alone(Element::Varying { size, of: None }),
        9 => match within(cursor, depth - 1)? {
            (Element::Number { dtype, swapped }, sides) if sides.is_empty() => {
                alone(Element::Varying { size, of: Some((dtype, swapped)) })
            }
            _ => Err(unsupported("its elements are lists of other things than numbers")),
        },
        11 => Err(unsupported("its elements are complex numbers")),
        class => Err(unsupported(&format!("its elements are of an unknown class ({class})"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cursor::Sizes;

    fn of(bytes: &[u8]) -> Result<Found> {
        read(&mut Cursor::new(bytes, Sizes { offsets: 8, lengths: 8 }, "a type", 0))
    }

    #[test]
    fn numbers_of_either_order() {
        let i32_le = [0x10, 8, 0, 0, 4, 0, 0, 0, 0, 0, 32, 0];
        assert_eq!(of(&i32_le).unwrap().0, Element::Number { dtype: DType::Int32, swapped: false });
        let mut u16_be = [0x10, 1, 0, 0, 2, 0, 0, 0, 0, 0, 16, 0];
        let element = of(&u16_be).unwrap().0;
        assert_eq!(element, Element::Number { dtype: DType::UInt16, swapped: true });
        let mut bytes = [1, 2, 3, 4];
        element.to_native(&mut bytes);
        assert_eq!(bytes, [2, 1, 4, 3]);
        u16_be[10] = 12;
        assert_eq!(of(&u16_be).unwrap_err().kind(), ErrorKind::Unsupported);
        for cut in 0..12 {
            assert_eq!(of(&i32_le[..cut]).unwrap_err().kind(), ErrorKind::Corrupt);
        }
    }

    #[test]
    fn what_is_padding_is_no_text() {
        let text = |padding, bytes: &'static [u8]| Element::Text { len: bytes.len(), padding }.text(bytes);
        assert_eq!(text(Padding::Terminated, b"ab\0c\0"), b"ab");
        assert_eq!(text(Padding::Zeros, b"a\0b\0\0"), b"a\0b");
        assert_eq!(text(Padding::Spaces, b" ab  "), b" ab");
        assert_eq!(text(Padding::Zeros, b"\0\0"), b"");
    }
}
