//! Columns of MDS shards: what their encodings are as fields, and values of them.

use crate::{
    Error, ErrorKind, Result,
    sample::{DType, FieldKind, Value},
    source::plain_png,
};

/// One column of all shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) name: String,
    encoding: Encoding,
    /// Bytes of a value, if all have as many.
    pub(super) size: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Encoding {
    Bytes,
    Text,
    /// An encoded image.
    Image,
    /// The pixels of a Pillow image: they become a PNG without compression.
    Pillow,
    Json,
    Scalar(DType),
    IntText,
    FloatText,
    /// An array: dtype and shape are in front of its elements where they are not given. `sides` is what is handed out.
    Array {
        dtype: Option<DType>,
        shape: Option<Vec<usize>>,
        settled: Option<(DType, Vec<Option<usize>>)>,
    },
    /// One that is not read.
    Skipped,
}

/// Names of dtypes, and the numbers that stand for them in front of an array.
const DTYPES: [(u8, &str, DType); 11] = [
    (8, "uint8", DType::UInt8),
    (9, "int8", DType::Int8),
    (16, "uint16", DType::UInt16),
    (17, "int16", DType::Int16),
    (18, "float16", DType::Float16),
    (32, "uint32", DType::UInt32),
    (33, "int32", DType::Int32),
    (34, "float32", DType::Float32),
    (64, "uint64", DType::UInt64),
    (65, "int64", DType::Int64),
    (66, "float64", DType::Float64),
];

fn dtype(name: &str) -> Option<DType> {
    DTYPES.iter().find(|(_, known, _)| *known == name).map(|(.., dtype)| *dtype)
}

impl Column {
    /// The column `name` of an index.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for encodings that are not read; [`ErrorKind::Corrupt`] for a size that cannot be.
    pub(super) fn new(name: &str, encoding: &str, size: Option<u32>) -> Result<Self> {
        let refused = |why: &str| {
            let message = format!("column {name} is encoded as {encoding}, {why}");
            Err(Error::new(ErrorKind::Unsupported, message)
                .with_hint("name the columns to take: fields=[...]"))
        };
        let (kind, rest) = encoding.split_once(':').unwrap_or((encoding, ""));
        let encoding = match kind {
            "bytes" => Encoding::Bytes,
            "str" | "str_decimal" => Encoding::Text,
            "int" => Encoding::Scalar(DType::Int64),
            "str_int" => Encoding::IntText,
            "str_float" => Encoding::FloatText,
            "jpeg" | "png" => Encoding::Image,
            "pil" => Encoding::Pillow,
            "json" => Encoding::Json,
            "ndarray" => match array(rest) {
                Some(array) => array,
                None => return refused("which is no array that is known"),
            },
            "pkl" => return refused("and reading a pickle runs what is in it"),
            _ => match dtype(kind) {
                Some(dtype) => Encoding::Scalar(dtype),
                None => return refused("which is not known"),
            },
        };
        let fixed = match &encoding {
            Encoding::Scalar(dtype) => Some(dtype.size()),
            Encoding::Array { dtype: Some(dtype), shape: Some(shape), .. } => {
                shape.iter().try_fold(dtype.size(), |size, n| size.checked_mul(*n))
            }
            _ => None,
        };
        if fixed != size.map(|size| size as usize) {
            return Err(Error::corrupt(format!(
                "column {name} has values of {size:?} bytes in the index, not {fixed:?}"
            )));
        }
        Ok(Self { name: name.to_owned(), encoding, size })
    }

    /// One that is only stepped over.
    pub(super) fn skipped(name: &str, size: Option<u32>) -> Self {
        Self { name: name.to_owned(), encoding: Encoding::Skipped, size }
    }

    /// True if dtype or number of sides are only known from a value.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.encoding, Encoding::Array { settled: None, .. })
    }

    /// This column with the dtype and the number of sides of `value`.
    pub(super) fn settled(&self, value: &[u8]) -> Result<Self, String> {
        let mut this = self.clone();
        if let Encoding::Array { dtype, shape, settled } = &mut this.encoding {
            let (found, sides, _) = elements(*dtype, shape.as_deref(), value)?;
            let sides =
                if shape.is_some() { sides.into_iter().map(Some).collect() } else { vec![None; sides.len()] };
            *settled = Some((found, sides));
        }
        Ok(this)
    }

    /// What the field is.
    pub(super) fn kind(&self) -> FieldKind {
        match &self.encoding {
            Encoding::Text => FieldKind::Text,
            Encoding::Image | Encoding::Pillow => FieldKind::Image,
            Encoding::Json => FieldKind::Json,
            Encoding::Scalar(dtype) => FieldKind::Scalar { dtype: *dtype },
            Encoding::IntText => FieldKind::LABEL,
            Encoding::FloatText => FieldKind::Scalar { dtype: DType::Float64 },
            Encoding::Array { settled: Some((dtype, shape)), .. } => {
                FieldKind::Array { dtype: *dtype, shape: shape.clone() }
            }
            // An array of which there is no value.
            Encoding::Array { .. } | Encoding::Bytes | Encoding::Skipped => FieldKind::Bytes,
        }
    }

    /// Reads `bytes` into `value`; `shape` gets that of an array with several sides that vary. The error says what is wrong
    /// with them.
    pub(super) fn read(&self, bytes: &[u8], value: &mut Value, shape: &mut Vec<usize>) -> Result<(), String> {
        match &self.encoding {
            Encoding::Text | Encoding::Json => {
                let text = std::str::from_utf8(bytes).map_err(|e| format!("is no text: {e}"))?;
                // Python writes and reads NaN and Infinity, which are not JSON: those texts are left to the reader.
                let lenient = text.contains("NaN") || text.contains("Infinity");
                if self.encoding == Encoding::Json && !lenient {
                    serde_json::from_str::<serde::de::IgnoredAny>(text)
                        .map_err(|e| format!("is no JSON: {e}"))?;
                }
                copy(bytes, value)?;
            }
            Encoding::Bytes | Encoding::Image | Encoding::Skipped => copy(bytes, value)?,
            Encoding::Pillow => *value = Value::Bytes(plain_png::of_pillow(bytes)?),
            Encoding::Scalar(DType::Int64) => {
                let number = bytes.try_into().map_err(|_| format!("has {} bytes, not 8", bytes.len()))?;
                *value = Value::Int(i64::from_le_bytes(number));
            }
            Encoding::Scalar(dtype) if bytes.len() != dtype.size() => {
                return Err(format!("has {} bytes, not {}", bytes.len(), dtype.size()));
            }
            Encoding::Scalar(dtype) => {
                copy(bytes, value)?;
                to_native(value, *dtype);
            }
            Encoding::IntText => *value = Value::Int(parsed(bytes, "whole number of 64 bits")?),
            Encoding::FloatText => copy(&parsed::<f64>(bytes, "number")?.to_ne_bytes(), value)?,
            Encoding::Array { dtype, shape: given, settled } => {
                let (found, sides, data) = elements(*dtype, given.as_deref(), bytes)?;
                if let Some((want, wanted)) = settled {
                    let fits = wanted.len() == sides.len();
                    if found != *want || !fits {
                        let (found, want, n) = (found.name(), want.name(), wanted.len());
                        return Err(format!(
                            "is {found} {sides:?}, but {want} with {n} sides in the first sample"
                        ));
                    }
                    copy(data, value)?;
                    to_native(value, found);
                    if wanted.iter().filter(|side| side.is_none()).count() > 1 {
                        shape.extend(sides);
                    }
                } else {
                    copy(bytes, value)?;
                }
            }
        }
        Ok(())
    }
}

fn copy(bytes: &[u8], value: &mut Value) -> Result<(), String> {
    let buffer = value.buffer();
    buffer
        .try_reserve_exact(bytes.len())
        .map_err(|_| format!("needs {} bytes, for which there is no memory", bytes.len()))?;
    buffer.extend_from_slice(bytes);
    Ok(())
}

fn to_native(value: &mut Value, dtype: DType) {
    if let (Value::Bytes(bytes), true) = (value, cfg!(target_endian = "big")) {
        bytes.chunks_exact_mut(dtype.size()).for_each(<[u8]>::reverse);
    }
}

fn parsed<T: std::str::FromStr>(bytes: &[u8], what: &str) -> Result<T, String> {
    let text = String::from_utf8_lossy(bytes.get(..100).unwrap_or(bytes));
    text.trim().parse().map_err(|_| format!("is {text:?}, which is no {what}"))
}

/// An array with what stands behind `ndarray:`: nothing, a dtype, or dtype and shape.
fn array(rest: &str) -> Option<Encoding> {
    let (name, sides) = rest.split_once(':').map_or((rest, None), |(name, sides)| (name, Some(sides)));
    let given = if name.is_empty() { None } else { Some(dtype(name)?) };
    let shape = match sides {
        Some(sides) => {
            Some(sides.split(',').map(|n| n.parse().ok().filter(|n| *n > 0)).collect::<Option<Vec<_>>>()?)
        }
        None => None,
    };
    let settled = match (given, &shape) {
        (Some(dtype), Some(shape)) => Some((dtype, shape.iter().copied().map(Some).collect())),
        _ => None,
    };
    Some(Encoding::Array { dtype: given, shape, settled })
}

/// Dtype, shape and elements of an array, which must be as many as the shape needs.
fn elements<'a>(
    given: Option<DType>,
    shape: Option<&[usize]>,
    mut bytes: &'a [u8],
) -> Result<(DType, Vec<usize>, &'a [u8]), String> {
    let ends = || "ends within its shape".to_owned();
    let dtype = match given {
        Some(dtype) => dtype,
        None => {
            let (number, rest) = bytes.split_first().ok_or_else(ends)?;
            bytes = rest;
            let known = DTYPES.iter().find(|(known, ..)| known == number);
            known
                .map(|(.., dtype)| *dtype)
                .ok_or_else(|| format!("has a dtype {number}, which is not known"))?
        }
    };
    let shape = match shape {
        Some(shape) => shape.to_vec(),
        None => {
            let (head, rest) = bytes.split_first().ok_or_else(ends)?;
            let (sides, width) = (usize::from(head >> 2), 1_usize << (head & 3));
            let (numbers, rest) = rest.split_at_checked(sides * width).ok_or_else(ends)?;
            bytes = rest;
            let number = |n: &[u8]| {
                n.iter().rev().try_fold(0_usize, |all, b| Some(all.checked_mul(256)? + usize::from(*b)))
            };
            numbers
                .chunks_exact(width)
                .map(number)
                .collect::<Option<_>>()
                .ok_or("has a side that is too large")?
        }
    };
    let needed = shape.iter().try_fold(dtype.size(), |size, n| size.checked_mul(*n));
    if needed != Some(bytes.len()) {
        return Err(format!("is {} {shape:?}, which does not have {} bytes", dtype.name(), bytes.len()));
    }
    Ok((dtype, shape, bytes))
}
