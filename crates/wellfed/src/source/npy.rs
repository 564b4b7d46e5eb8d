//! Arrays in NumPy's `.npy` format: header, and conversion to C order and native byte order.
//!
//! Format: <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>. Versions 1, 2 and 3.

use crate::{Error, ErrorKind, Result, sample::DType};

/// What the header of an array says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    swapped: bool,
    fortran: bool,
    /// Byte at which the elements start.
    data: usize,
}

/// More dimensions than NumPy knows (it stops at 64) are a lie.
const MAX_DIMENSIONS: usize = 64;

impl Header {
    /// Reads the header at the start of `file`, which must hold all elements too.
    pub(crate) fn parse(file: &[u8]) -> Result<Self> {
        Self::parse_start(file, file.len() as u64)
    }

    /// Reads the header of a file of `size` bytes that begins with `file`.
    pub(crate) fn parse_start(file: &[u8], size: u64) -> Result<Self> {
        let damaged = |what: &str| Error::corrupt(format!("npy array: {what}"));
        let Some(rest) = file.strip_prefix(b"\x93NUMPY") else {
            return Err(damaged("it does not start as NumPy's arrays do"));
        };
        let (length, start) = match rest {
            [1, _, a, b, ..] => (usize::from(u16::from_le_bytes([*a, *b])), 10),
            [2 | 3, _, a, b, c, d, ..] => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, 12),
            [version, _, ..] if !(1..=3).contains(version) => {
                let message = format!("npy array of format version {version}");
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
            _ => return Err(damaged("it ends within its header")),
        };
        let data = start + length;
        let text = file.get(start..data).ok_or_else(|| damaged("it ends within its header"))?;
        let text = std::str::from_utf8(text).map_err(|_| damaged("its header is not text"))?;
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        let mut rest = text.trim().strip_prefix('{').ok_or_else(|| damaged("its header is not a dict"))?;
        loop {
            rest = rest.trim_start();
            if rest.starts_with('}') {
                break;
            }
            let (key, after) =
                quoted(rest).ok_or_else(|| damaged("its header has no key where one belongs"))?;
            rest = after
                .trim_start()
                .strip_prefix(':')
                .ok_or_else(|| damaged("its header has a key without a value"))?
                .trim_start();
            match key {
                "descr" if rest.starts_with('[') => {
                    return Err(Error::new(ErrorKind::Unsupported, "npy array of records"));
                }
                "descr" => {
                    let (value, after) = quoted(rest).ok_or_else(|| damaged("its header has no dtype"))?;
                    (descr, rest) = (Some(value), after);
                }
                "fortran_order" => {
                    let (value, after) = match (rest.strip_prefix("True"), rest.strip_prefix("False")) {
                        (Some(after), _) => (true, after),
                        (_, Some(after)) => (false, after),
                        _ => return Err(damaged("its header has no order")),
                    };
                    (fortran, rest) = (Some(value), after);
                }
                "shape" => {
                    let inner = rest.strip_prefix('(').and_then(|rest| rest.split_once(')'));
                    let (inner, after) = inner.ok_or_else(|| damaged("its header has no shape"))?;
                    let sizes = inner.split(',').map(str::trim).filter(|n| !n.is_empty());
                    // Python 2 wrote long integers with an L.
                    let sizes: Option<Vec<usize>> = sizes
                        .take(MAX_DIMENSIONS + 1)
                        .map(|n| n.trim_end_matches('L').parse().ok())
                        .collect();
                    let sizes = sizes.filter(|sizes| sizes.len() <= MAX_DIMENSIONS);
                    (shape, rest) =
                        (Some(sizes.ok_or_else(|| damaged("its header has no valid shape"))?), after);
                }
                _ => return Err(damaged("its header has an unknown key")),
            }
            rest = rest.trim_start();
            rest = rest.strip_prefix(',').unwrap_or(rest);
        }
        let (Some(descr), Some(fortran), Some(shape)) = (descr, fortran, shape) else {
            return Err(damaged("its header lacks dtype, order or shape"));
        };
        let (dtype, swapped) = dtype_of(descr)?;
        let needed = shape.iter().try_fold(dtype.size(), |size, n| size.checked_mul(*n));
        let given = size.saturating_sub(data as u64);
        match needed {
            Some(needed) if needed as u64 == given => Ok(Self { dtype, shape, swapped, fortran, data }),
            _ => Err(damaged(&format!("{descr} of shape {shape:?} does not have {given} bytes"))),
        }
    }

    /// Byte at which the elements start.
    pub(crate) fn data(&self) -> usize {
        self.data
    }

    /// Whether elements are in the other byte order.
    pub(crate) fn is_swapped(&self) -> bool {
        self.swapped
    }

    /// Whether rows (all elements of one first index) lie one after the other.
    pub(crate) fn has_rows(&self) -> bool {
        !self.fortran || self.shape.len() <= 1
    }

    /// Turns the file that this header was read from into its elements alone: C order, native byte order.
    pub(crate) fn into_elements(self, file: &mut Vec<u8>) {
        file.drain(..self.data.min(file.len()));
        let size = self.dtype.size();
        if self.swapped {
            file.chunks_exact_mut(size).for_each(<[u8]>::reverse);
        }
        if self.fortran && self.shape.len() > 1 && !file.is_empty() {
            *file = to_c_order(file, &self.shape, size);
        }
    }
}

/// A file of these elements: C order, native byte order.
///
/// # Errors
/// [`ErrorKind::Unsupported`] for bfloat16, which NumPy does not know; [`ErrorKind::Internal`] for another number of bytes
/// than dtype and shape say.
pub(crate) fn file_of(dtype: DType, shape: &[usize], elements: &[u8]) -> Result<Vec<u8>> {
    let code = match dtype {
        DType::Bool => "b1",
        DType::UInt8 => "u1",
        DType::Int8 => "i1",
        DType::UInt16 => "u2",
        DType::Int16 => "i2",
        DType::UInt32 => "u4",
        DType::Int32 => "i4",
        DType::UInt64 => "u8",
        DType::Int64 => "i8",
        DType::Float16 => "f2",
        DType::Float32 => "f4",
        DType::Float64 => "f8",
        DType::BFloat16 => {
            return Err(Error::new(ErrorKind::Unsupported, "npy arrays cannot be of dtype bfloat16"));
        }
    };
    let needed = shape.iter().try_fold(dtype.size(), |size, n| size.checked_mul(*n));
    if needed != Some(elements.len()) {
        let (name, given) = (dtype.name(), elements.len());
        let message = format!("{name} of shape {shape:?} does not have {given} bytes");
        return Err(Error::new(ErrorKind::Internal, message));
    }
    let order = match (dtype.size(), cfg!(target_endian = "little")) {
        (1, _) => '|',
        (_, true) => '<',
        (_, false) => '>',
    };
    let sides: String = shape.iter().map(|side| format!("{side}, ")).collect();
    let sides = if shape.len() == 1 { sides.trim_end() } else { sides.trim_end_matches(", ") };
    let mut text = format!("{{'descr': '{order}{code}', 'fortran_order': False, 'shape': ({sides}), }}");
    // Elements begin at a multiple of 64 bytes; the header ends with a line.
    let end = (10 + text.len() + 1).next_multiple_of(64);
    text.extend(std::iter::repeat_n(' ', end - 10 - text.len() - 1));
    text.push('\n');
    let length = u16::try_from(text.len())
        .map_err(|_| Error::new(ErrorKind::Unsupported, format!("an array of {} dimensions", shape.len())))?;
    let mut file = Vec::new();
    crate::store::reserve(&mut file, end + elements.len(), "an array")?;
    file.extend_from_slice(b"\x93NUMPY\x01\0");
    file.extend_from_slice(&length.to_le_bytes());
    file.extend_from_slice(text.as_bytes());
    file.extend_from_slice(elements);
    Ok(file)
}

/// The text between the quotes at the start of `text`, and what follows.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    text[1..].split_once(quote)
}

/// The type that NumPy calls `descr`, and whether its bytes are in the other order.
pub(super) fn dtype_of(descr: &str) -> Result<(DType, bool)> {
    let unsupported = || Error::new(ErrorKind::Unsupported, format!("npy array of dtype {descr}"));
    let (order, code) = match descr.as_bytes().first() {
        Some(b'<' | b'>' | b'|' | b'=') => descr.split_at(1),
        _ => ("=", descr),
    };
    let dtype = match code {
        "b1" | "?" => DType::Bool,
        "u1" => DType::UInt8,
        "i1" => DType::Int8,
        "u2" => DType::UInt16,
        "i2" => DType::Int16,
        "u4" => DType::UInt32,
        "i4" => DType::Int32,
        "u8" => DType::UInt64,
        "i8" => DType::Int64,
        "f2" => DType::Float16,
        "f4" => DType::Float32,
        "f8" => DType::Float64,
        _ => return Err(unsupported()),
    };
    let other = if cfg!(target_endian = "little") { ">" } else { "<" };
    Ok((dtype, dtype.size() > 1 && order == other))
}

/// Elements of `size` bytes in Fortran order (first index fastest), put into C order (last index fastest).
fn to_c_order(from: &[u8], shape: &[usize], size: usize) -> Vec<u8> {
    let mut strides = Vec::with_capacity(shape.len());
    let mut stride = size;
    for n in shape {
        strides.push(stride);
        stride *= n;
    }
    let mut into = Vec::with_capacity(from.len());
    let (mut index, mut at) = (vec![0; shape.len()], 0);
    while into.len() < from.len() {
        into.extend_from_slice(&from[at..at + size]);
        for d in (0..shape.len()).rev() {
            index[d] += 1;
            at += strides[d];
            if index[d] < shape[d] {
                break;
            }
            at -= strides[d] * shape[d];
            index[d] = 0;
        }
    }
    into
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A file as `numpy.save` writes it.
    pub(in crate::source) fn npy(descr: &str, fortran: bool, shape: &str, data: &[u8]) -> Vec<u8> {
        let order = if fortran { "True" } else { "False" };
        let text = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}");
        let mut file = b"\x93NUMPY\x01\x00".to_vec();
        let length = (10 + text.len() + 1).next_multiple_of(64) - 10;
        file.extend_from_slice(&u16::try_from(length).unwrap().to_le_bytes());
        file.extend_from_slice(text.as_bytes());
        file.resize(10 + length - 1, b' ');
        file.push(b'\n');
        file.extend_from_slice(data);
        file
    }

    fn read(mut file: Vec<u8>) -> Result<(DType, Vec<usize>, Vec<u8>)> {
        let header = Header::parse(&file)?;
        let (dtype, shape) = (header.dtype, header.shape.clone());
        header.into_elements(&mut file);
        Ok((dtype, shape, file))
    }

    #[test]
    fn arrays_become_c_ordered_and_native() {
        let data: Vec<u8> = (0..12).collect();
        let (dtype, shape, elements) = read(npy("|u1", false, "(3, 4)", &data)).unwrap();
        assert_eq!((dtype, shape, elements), (DType::UInt8, vec![3, 4], data.clone()));
        let (_, _, elements) = read(npy("|u1", true, "(3, 4)", &data)).unwrap();
        assert_eq!(elements, [0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11]);
        let (_, _, elements) = read(npy("|u1", true, "(2, 3, 2)", &data)).unwrap();
        assert_eq!(elements, [0, 6, 2, 8, 4, 10, 1, 7, 3, 9, 5, 11]);
        let numbers = [1.5_f32, -2.0, 3.25];
        let big: Vec<u8> = numbers.iter().flat_map(|x| x.to_be_bytes()).collect();
        let (dtype, shape, elements) = read(npy(">f4", false, "(3,)", &big)).unwrap();
        let native: Vec<u8> = numbers.iter().flat_map(|x| x.to_ne_bytes()).collect();
        assert_eq!((dtype, shape, elements), (DType::Float32, vec![3], native));
        assert_eq!(read(npy("<i8", false, "()", &[1; 8])).unwrap().1, [0; 0]);
        assert_eq!(read(npy("<f8", true, "(0, 5)", &[])).unwrap().1, [0, 5]);
    }

    #[test]
    fn damage_is_an_error_wherever_it_is() {
        let whole = npy("<f4", false, "(3, 4)", &[7; 48]);
        assert!(read(whole.clone()).is_ok());
        for cut in 0..whole.len() {
            assert!(read(whole[..cut].to_vec()).is_err(), "cut at {cut}");
        }
        for at in 0..whole.len() - 48 {
            for bit in 0..8 {
                let mut bad = whole.clone();
                bad[at] ^= 1 << bit;
                let _ = read(bad);
            }
        }
        for (descr, shape) in [("<f4", "(18446744073709551615, 9)"), ("<f4", "(-1,)"), ("<f4", "3")] {
            assert!(read(npy(descr, false, shape, &[0; 48])).is_err());
        }
        for descr in ["<c8", "|O", "<U3", "<M8[ns]"] {
            let e = read(npy(descr, false, "(3, 4)", &[0; 48])).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Unsupported, "{descr}");
        }
    }
}
