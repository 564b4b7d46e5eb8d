//! Leaves of LitData's items: what their formats are as fields, and values of them.

use std::fmt::Write;

use crate::{
    Error, ErrorKind, Result,
    sample::{DType, FieldKind, Value},
    source::{
        plain_png,
        tensor_slices::{ArraySpec, Pixels, kind_of},
    },
};

/// One leaf of all items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leaf {
    pub(super) name: String,
    format: Format,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Format {
    Bytes,
    Text,
    /// An encoded image.
    Image,
    /// The pixels of a Pillow image: they become a PNG without compression.
    Pillow,
    /// JSON, or LitData's own form of it.
    Json,
    Int,
    Float,
    Bool,
    /// An array behind its head.
    Array {
        head: Head,
        settled: Option<(DType, Vec<Option<usize>>)>,
    },
    /// One that is not read.
    Skipped,
}

/// What stands in front of the elements of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Head {
    /// Number of torch's dtype and the sides, the highest byte first.
    Torch,
    /// Number of NumPy's dtype and the sides, the lowest byte first.
    Numpy,
    /// Nothing: elements of this type, in one dimension.
    None(DType),
}

/// torch's dtypes by the numbers that LitData gives them.
fn torch_dtype(number: u32) -> Option<DType> {
    Some(match number {
        0 | 1 => DType::Float32,
        2 | 3 => DType::Float64,
        8 | 9 => DType::Float16,
        10 => DType::BFloat16,
        11 => DType::UInt8,
        12 => DType::Int8,
        13 | 14 => DType::Int16,
        15 | 16 => DType::Int32,
        17 | 18 => DType::Int64,
        19 => DType::Bool,
        20 => DType::UInt16,
        _ => return None,
    })
}

/// NumPy's. Beyond the plain numbers they differ from version to version.
fn numpy_dtype(number: u32) -> Option<DType> {
    Some(match number {
        0 => DType::Int8,
        1 => DType::Int16,
        2 => DType::Int32,
        3 => DType::Int64,
        4 => DType::UInt8,
        5 => DType::UInt16,
        6 => DType::UInt32,
        7 => DType::UInt64,
        8 => DType::Float16,
        9 => DType::Float32,
        10 => DType::Float64,
        _ => return None,
    })
}

impl Leaf {
    /// The leaf `name`, of a format as an index names it.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for formats that are not read.
    pub(super) fn new(name: &str, format: &str) -> Result<Self> {
        let refused = |why: &str| {
            let message = format!("field {name} is written as {format}, {why}");
            Err(Error::new(ErrorKind::Unsupported, message)
                .with_hint("name the fields to take: fields=[...]"))
        };
        let (kind, rest) = format.split_once(':').unwrap_or((format, ""));
        let array = |head| Format::Array { head, settled: None };
        let number = rest.parse().ok();
        let format = match kind {
            "int" => Format::Int,
            "float" => Format::Float,
            "bool" => Format::Bool,
            "str" | "text" => Format::Text,
            "jpeg" | "image" => Format::Image,
            "file" if matches!(rest, "jpg" | "jpeg" | "png") => Format::Image,
            "pil" => Format::Pillow,
            "json" => Format::Json,
            "tensor" => array(Head::Torch),
            "numpy" => array(Head::Numpy),
            "no_header_tensor" | "no_header_numpy" => {
                let known = if kind == "no_header_tensor" { torch_dtype } else { numpy_dtype };
                match number.and_then(known) {
                    Some(dtype) => array(Head::None(dtype)),
                    None => return refused("a dtype that is not known"),
                }
            }
            "bytes" | "file" | "video" | "audio" | "nifti" | "mesh" | "pdf" | "tiff" | "tifffile" => {
                Format::Bytes
            }
            "pickle" => return refused("and reading a pickle runs what is in it"),
            _ => return refused("which is not read"),
        };
        Ok(Self { name: name.to_owned(), format })
    }

    /// One that is only stepped over.
    pub(super) fn skipped(name: &str) -> Self {
        Self { name: name.to_owned(), format: Format::Skipped }
    }

    /// Tokens of a format of LitData's `TokensLoader`.
    pub(super) fn tokens(&self) -> Option<DType> {
        match self.format {
            Format::Array { head: Head::None(dtype), .. } => Some(dtype),
            _ => None,
        }
    }

    /// True if dtype or number of sides are only known from values.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.format, Format::Array { .. })
    }

    /// This leaf with what its values have in common. Those that are damaged have no say in it, unless all of them are.
    pub(super) fn settled(mut self, values: &[&[u8]]) -> Result<Self> {
        if let Format::Array { head, settled } = &mut self.format {
            let mut found: Vec<_> = values.iter().map(|value| elements(*head, value)).collect();
            if found.iter().any(|value| value.is_ok()) {
                found.retain(|value| value.is_ok());
            }
            for value in found {
                let wrong = |what: String| Error::corrupt(format!("field {} {what}", self.name));
                let (dtype, sides, _) = value.map_err(wrong)?;
                let sides: Vec<Option<usize>> = sides.into_iter().map(Some).collect();
                *settled = Some(match settled.take() {
                    None => (dtype, sides),
                    Some((before, common)) if before == dtype && common.len() == sides.len() => (
                        dtype,
                        common.into_iter().zip(sides).map(|(a, b)| if a == b { a } else { None }).collect(),
                    ),
                    Some((before, common)) => {
                        let (a, b, n, m) = (before.name(), dtype.name(), common.len(), sides.len());
                        return Err(Error::config(format!(
                            "field {} is {a} with {n} sides in some samples, {b} with {m} in others",
                            self.name
                        )));
                    }
                });
            }
        }
        Ok(self)
    }

    /// Makes its first side one that varies, or one of this length.
    pub(super) fn with_length(mut self, dtype: DType, length: Option<usize>) -> Self {
        if let Format::Array { settled, .. } = &mut self.format {
            *settled = Some((dtype, vec![length]));
        }
        self
    }

    /// What the field is.
    pub(super) fn kind(&self) -> Result<FieldKind> {
        Ok(match &self.format {
            Format::Text => FieldKind::Text,
            Format::Image | Format::Pillow => FieldKind::Image,
            Format::Json => FieldKind::Json,
            Format::Int => FieldKind::LABEL,
            Format::Float => FieldKind::Scalar { dtype: DType::Float64 },
            Format::Bool => FieldKind::Scalar { dtype: DType::Bool },
            Format::Array { settled: Some((dtype, sides)), .. } => {
                let (dtype, shape) = (*dtype, [&[Some(1)], &sides[..]].concat());
                let pixels = if sides.len() == 3 { Pixels::Infer } else { Pixels::Never };
                kind_of(&ArraySpec { name: self.name.clone(), dtype, shape, values: None, pixels })?
            }
            // An array of which there is no value.
            Format::Array { .. } | Format::Bytes | Format::Skipped => FieldKind::Bytes,
        })
    }

    /// Reads `bytes` into `value`; `shape` gets that of an array with several sides that vary. The error says what is wrong
    /// with them.
    pub(super) fn read(&self, bytes: &[u8], value: &mut Value, shape: &mut Vec<usize>) -> Result<(), String> {
        let wrong = |wanted: usize| format!("has {} bytes, not {wanted}", bytes.len());
        match &self.format {
            Format::Text => {
                std::str::from_utf8(bytes).map_err(|e| format!("is no text: {e}"))?;
                copy(bytes, value)
            }
            Format::Bytes | Format::Image | Format::Skipped => copy(bytes, value),
            Format::Pillow => {
                *value = Value::Bytes(plain_png::of_pillow(bytes)?);
                Ok(())
            }
            Format::Json => {
                let mut text = String::new();
                json(bytes, &mut text)?;
                *value = Value::Bytes(text.into_bytes());
                Ok(())
            }
            Format::Int => {
                *value = Value::Int(i64::from_le_bytes(bytes.try_into().map_err(|_| wrong(8))?));
                Ok(())
            }
            Format::Float => {
                copy(&f64::from_le_bytes(bytes.try_into().map_err(|_| wrong(8))?).to_ne_bytes(), value)
            }
            Format::Bool => match bytes {
                [byte] => copy(&[u8::from(*byte != 0)], value),
                _ => Err(wrong(1)),
            },
            Format::Array { settled: None, .. } => copy(bytes, value),
            Format::Array { head, settled: Some((want, wanted)) } => {
                let (dtype, sides, data) = elements(*head, bytes)?;
                let fits = sides.len() == wanted.len()
                    && sides.iter().zip(wanted).all(|(n, side)| side.is_none_or(|side| side == *n));
                if dtype != *want || !fits {
                    let (dtype, want) = (dtype.name(), want.name());
                    return Err(format!("is {dtype} {sides:?}, but {want} {wanted:?} in the first samples"));
                }
                copy(data, value)?;
                if let (Value::Bytes(bytes), true) = (&mut *value, cfg!(target_endian = "big")) {
                    bytes.chunks_exact_mut(dtype.size()).for_each(<[u8]>::reverse);
                }
                if wanted.iter().filter(|side| side.is_none()).count() > 1 {
                    shape.extend(sides);
                }
                // A single number of this type is a label.
                if let (Value::Bytes(bytes), DType::Int64, true) = (&*value, dtype, wanted.is_empty()) {
                    *value =
                        Value::Int(i64::from_ne_bytes(bytes.as_slice().try_into().map_err(|_| wrong(8))?));
                }
                Ok(())
            }
        }
    }
}

/// Dtype, shape and elements of an array, which must be as many as the shape needs.
fn elements(head: Head, bytes: &[u8]) -> Result<(DType, Vec<usize>, &[u8]), String> {
    let (dtype, sides, data) = match head {
        Head::None(dtype) => {
            if !bytes.len().is_multiple_of(dtype.size()) {
                return Err(format!(
                    "has {} bytes, which are no whole elements of {}",
                    bytes.len(),
                    dtype.name()
                ));
            }
            (dtype, vec![bytes.len() / dtype.size()], bytes)
        }
        Head::Torch | Head::Numpy => {
            let number = |at: usize| {
                let four = bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
                Some(if head == Head::Torch { u32::from_be_bytes(four) } else { u32::from_le_bytes(four) })
            };
            let ends = || "ends within its shape".to_owned();
            let (code, rank) = number(0).zip(number(4)).ok_or_else(ends)?;
            let known = if head == Head::Torch { torch_dtype } else { numpy_dtype };
            let dtype = known(code).ok_or_else(|| format!("has a dtype {code}, which is not known"))?;
            let start = usize::try_from(rank)
                .ok()
                .and_then(|rank| rank.checked_mul(4)?.checked_add(8))
                .ok_or_else(ends)?;
            let data = bytes.get(start..).ok_or_else(ends)?;
            let sides: Option<Vec<usize>> =
                (8..start).step_by(4).map(|at| number(at).map(|side| side as usize)).collect();
            (dtype, sides.ok_or_else(ends)?, data)
        }
    };
    let needed = sides.iter().try_fold(dtype.size(), |size, n| size.checked_mul(*n));
    if needed != Some(data.len()) {
        return Err(format!("is {} {sides:?}, which does not have {} bytes", dtype.name(), data.len()));
    }
    Ok((dtype, sides, data))
}

fn copy(bytes: &[u8], value: &mut Value) -> Result<(), String> {
    let buffer = value.buffer();
    buffer
        .try_reserve_exact(bytes.len())
        .map_err(|_| format!("needs {} bytes, for which there is no memory", bytes.len()))?;
    buffer.extend_from_slice(bytes);
    Ok(())
}

/// Nested lists and dicts: JSON, or LitData's own tags (`_nested_dumps` in its `serializers.py`), as JSON.
fn json(bytes: &[u8], into: &mut String) -> Result<(), String> {
    // No JSON begins with one of the tags.
    if bytes.first().is_none_or(|tag| *tag > 0x20) {
        let text = std::str::from_utf8(bytes).map_err(|e| format!("is no text: {e}"))?;
        // Python writes and reads NaN and Infinity, which are not JSON: those texts are left to the reader.
        if !(text.contains("NaN") || text.contains("Infinity")) {
            serde_json::from_str::<serde::de::IgnoredAny>(text).map_err(|e| format!("is no JSON: {e}"))?;
        }
        into.push_str(text);
        return Ok(());
    }
    let mut nested = Nested(bytes);
    nested.item(into, 0)?;
    if nested.0.is_empty() { Ok(()) } else { Err("has more behind its value".to_owned()) }
}

/// Lists in lists in lists: more of them are no data set.
const DEEPEST: usize = 64;

struct Nested<'a>(&'a [u8]);

impl<'a> Nested<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self
            .0
            .split_at_checked(len)
            .ok_or_else(|| format!("announces {len} bytes where only {} are left", self.0.len()))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        self.take(N)?.try_into().map_err(|_| "ends within a number".to_owned())
    }

    /// A number of items, of which each has at least `bytes`.
    fn count(&mut self, bytes: usize) -> Result<usize, String> {
        let count = u32::from_le_bytes(self.array()?) as usize;
        if count.saturating_mul(bytes) > self.0.len() {
            return Err(format!("announces {count} items where only {} bytes are left", self.0.len()));
        }
        Ok(count)
    }

    fn text(&mut self, into: &mut String) -> Result<(), String> {
        let len = self.count(1)?;
        let text = std::str::from_utf8(self.take(len)?).map_err(|e| format!("has text that is none: {e}"))?;
        into.push_str(&serde_json::to_string(text).map_err(|e| format!("has text that is none: {e}"))?);
        Ok(())
    }

    fn float(&mut self, into: &mut String) -> Result<(), String> {
        let number = f64::from_le_bytes(self.array()?);
        // As Python's `json` writes them.
        let _ = match number {
            n if n.is_nan() => into.write_str("NaN"),
            n if n.is_infinite() => into.write_str(if n > 0.0 { "Infinity" } else { "-Infinity" }),
            n => write!(into, "{n:?}"),
        };
        Ok(())
    }

    fn int(&mut self, into: &mut String) -> Result<(), String> {
        let _ = write!(into, "{}", i64::from_le_bytes(self.array()?));
        Ok(())
    }

    fn truth(&mut self, into: &mut String) -> Result<(), String> {
        into.push_str(if self.take(1)?[0] == 0 { "false" } else { "true" });
        Ok(())
    }

    /// A list of `count` items.
    fn list(
        &mut self,
        count: usize,
        into: &mut String,
        mut item: impl FnMut(&mut Self, &mut String) -> Result<(), String>,
    ) -> Result<(), String> {
        into.push('[');
        for number in 0..count {
            if number > 0 {
                into.push_str(", ");
            }
            item(self, into)?;
        }
        into.push(']');
        Ok(())
    }

    fn item(&mut self, into: &mut String, depth: usize) -> Result<(), String> {
        if depth > DEEPEST {
            return Err(format!("has dicts in dicts, more than {DEEPEST} deep"));
        }
        match self.take(1)?[0] {
            0 => {
                let len = self.count(1)?;
                let text = self.take(len)?;
                // Text, not another tag.
                if text.first().is_none_or(|first| *first <= 0x20) {
                    return Err("is no JSON".to_owned());
                }
                json(text, into)
            }
            1 => {
                let count = self.count(4)?;
                self.list(count, into, Self::text)
            }
            2 => {
                let count = self.count(8)?;
                self.list(count, into, Self::int)
            }
            3 => {
                let count = self.count(8)?;
                self.list(count, into, Self::float)
            }
            4 => {
                let count = self.count(1)?;
                self.list(count, into, Self::truth)
            }
            5 => {
                let count = self.count(5)?;
                into.push('{');
                for number in 0..count {
                    if number > 0 {
                        into.push_str(", ");
                    }
                    self.text(into)?;
                    into.push_str(": ");
                    self.item(into, depth + 1)?;
                }
                into.push('}');
                Ok(())
            }
            6 => self.records(into),
            7 => self.text(into),
            8 => self.int(into),
            9 => self.float(into),
            10 => self.truth(into),
            11 => {
                into.push_str("null");
                Ok(())
            }
            tag => Err(format!("has a tag {tag}, which is not known")),
        }
    }

    /// A list of dicts with the same keys.
    fn records(&mut self, into: &mut String) -> Result<(), String> {
        let rows = self.count(1)?;
        let keys = self.count(4)?;
        let mut names = Vec::with_capacity(keys);
        for _ in 0..keys {
            let mut name = String::new();
            self.text(&mut name)?;
            names.push(name);
        }
        if keys == 0 {
            return Err("has dicts without keys".to_owned());
        }
        self.list(rows, into, |this, into| {
            for (number, name) in names.iter().enumerate() {
                into.push_str(if number == 0 { "{" } else { ", " });
                into.push_str(name);
                into.push_str(": ");
                match this.take(1)?[0] {
                    0x10 => into.push_str("null"),
                    0x11 => this.text(into)?,
                    0x12 => this.int(into)?,
                    0x13 => this.float(into)?,
                    0x14 => this.truth(into)?,
                    tag => return Err(format!("has a tag {tag}, which is not known")),
                }
            }
            into.push('}');
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(format: &str, bytes: &[u8]) -> Result<(FieldKind, Value, Vec<usize>), String> {
        let leaf = Leaf::new("x", format).map_err(|e| e.message().to_owned())?;
        let leaf = leaf.settled(&[bytes]).map_err(|e| e.message().to_owned())?;
        let (mut value, mut shape) = (Value::Empty, Vec::new());
        leaf.read(bytes, &mut value, &mut shape)?;
        Ok((leaf.kind().unwrap(), value, shape))
    }

    #[test]
    fn formats_are_fields() {
        let plain = |format: &str, bytes: &[u8]| {
            let (kind, value, _) = read(format, bytes).unwrap();
            (kind, if let Value::Bytes(bytes) = value { bytes } else { panic!("{value:?}") })
        };
        assert_eq!(read("int", &(-3_i64).to_le_bytes()).unwrap().1, Value::Int(-3));
        assert_eq!(plain("float", &0.5_f64.to_le_bytes()).1, 0.5_f64.to_ne_bytes());
        assert_eq!(plain("bool", &[1]), (FieldKind::Scalar { dtype: DType::Bool }, vec![1]));
        assert_eq!(plain("str", "ü".as_bytes()), (FieldKind::Text, "ü".as_bytes().to_vec()));
        assert_eq!(plain("jpeg", b"abc"), (FieldKind::Image, b"abc".to_vec()));
        assert_eq!(plain("file:png", b"abc").0, FieldKind::Image);
        assert_eq!(plain("video:mp4", b"abc").0, FieldKind::Bytes);
        let torch = [16_u32, 2, 2, 1].map(u32::to_be_bytes).concat();
        let (kind, bytes) = plain("tensor", &[&torch[..], &[1, 0, 0, 0, 2, 0, 0, 0]].concat());
        assert_eq!(kind, FieldKind::array(DType::Int32, &[2, 1]));
        assert_eq!(bytes, [1_i32, 2].map(i32::to_ne_bytes).concat());
        let numpy = [9_u32, 1, 1].map(u32::to_le_bytes).concat();
        let (kind, bytes) = plain("numpy", &[&numpy[..], &0.5_f32.to_le_bytes()].concat());
        assert_eq!((kind, bytes), (FieldKind::array(DType::Float32, &[1]), 0.5_f32.to_ne_bytes().to_vec()));
        assert_eq!(plain("no_header_tensor:20", &[1, 0]).0, FieldKind::array(DType::UInt16, &[1]));
        assert_eq!(plain("no_header_numpy:4", &[1, 0]).0, FieldKind::array(DType::UInt8, &[2]));
        let scalar = [18_u32, 0].map(u32::to_be_bytes).concat();
        let (kind, value, _) = read("tensor", &[scalar, 7_i64.to_le_bytes().to_vec()].concat()).unwrap();
        assert_eq!((kind, value), (FieldKind::LABEL, Value::Int(7)));
        for (format, bytes, what) in [
            ("pickle", &[][..], "runs what is in it"),
            ("graph", &[], "not read"),
            ("no_header_tensor:4", &[], "dtype"),
            ("int", &[1], "1 bytes, not 8"),
            ("str", &[255], "no text"),
            ("tensor", &torch, "does not have 0 bytes"),
            ("tensor", &torch[..9], "within its shape"),
            ("numpy", &[255; 12], "dtype 4294967295"),
            ("no_header_tensor:16", &[1], "no whole elements"),
        ] {
            assert!(read(format, bytes).unwrap_err().contains(what), "{format}");
        }
    }

    #[test]
    fn sides_that_differ_vary() {
        let array = |sides: [u32; 2]| {
            let head = [11, 2, sides[0], sides[1]].map(u32::to_be_bytes).concat();
            [head, vec![5; (sides[0] * sides[1]) as usize]].concat()
        };
        let values = [array([2, 3]), array([1, 3]), array([2, 1])];
        let leaf = |values: &[&[u8]]| Leaf::new("x", "tensor").unwrap().settled(values).unwrap();
        let one = leaf(&[&values[0], &values[1]]);
        assert_eq!(one.kind().unwrap(), FieldKind::Array { dtype: DType::UInt8, shape: vec![None, Some(3)] });
        let (mut value, mut shape) = (Value::Empty, Vec::new());
        assert!(
            one.read(&values[2], &mut value, &mut shape)
                .unwrap_err()
                .contains("[2, 1], but uint8 [None, Some(3)]")
        );
        let both = leaf(&[&values[0], &values[1], &values[2]]);
        both.read(&values[2], &mut value, &mut shape).unwrap();
        assert_eq!((value, shape), (Value::Bytes(vec![5, 5]), vec![2, 1]));
        // One that is damaged has no say.
        assert_eq!(leaf(&[&values[0], &values[1][..7], &values[1]]), one);
        assert!(Leaf::new("x", "tensor").unwrap().settled(&[&values[1][..7]]).is_err());
        let other = [16_u32, 1, 0].map(u32::to_be_bytes).concat();
        assert!(Leaf::new("x", "tensor").unwrap().settled(&[&values[0], &other]).is_err());
    }

    #[test]
    fn nested_values_become_json() {
        let text = |text: &str| [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat();
        let head = |tag: u8, count: u32| [&[tag][..], &count.to_le_bytes()].concat();
        let of = |bytes: &[u8]| {
            let mut into = String::new();
            json(bytes, &mut into).map(|()| into)
        };
        let records = [
            head(6, 2),
            2_u32.to_le_bytes().to_vec(),
            text("a"),
            text("b"),
            [&[0x10, 0x11][..], &text("x"), &[0x14, 1, 0x13], &f64::NAN.to_le_bytes()].concat(),
        ]
        .concat();
        let all = [
            head(5, 7),
            [text("s"), vec![7], text("ü\"")].concat(),
            [text("l"), head(1, 2), text("a"), text("")].concat(),
            [&text("i")[..], &head(2, 1), &(-1_i64).to_le_bytes()].concat(),
            [&text("f")[..], &head(3, 1), &1_f64.to_le_bytes()].concat(),
            [&text("t")[..], &head(4, 2), &[0, 1]].concat(),
            [text("r"), records].concat(),
            [text("j"), head(0, 4), b"[{}]".to_vec()].concat(),
        ]
        .concat();
        assert_eq!(
            of(&all).unwrap(),
            r#"{"s": "ü\"", "l": ["a", ""], "i": [-1], "f": [1.0], "t": [false, true], "r": [{"a": null, "b": "x"}, {"a": true, "b": NaN}], "j": [{}]}"#
        );
        assert_eq!(of(b"{\"a\": 1}").unwrap(), "{\"a\": 1}");
        assert_eq!(of(&[11]).unwrap(), "null");
        for cut in 0..all.len() {
            assert!(of(&all[..cut]).is_err(), "{cut}");
        }
        let deep: Vec<u8> = (0..100).flat_map(|_| [head(5, 1), text("a")].concat()).chain([11]).collect();
        assert!(of(&deep).unwrap_err().contains("64 deep"));
        for bad in [&[12][..], &[8, 1], &[1, 255, 255, 255, 255], b"{", &[11, 11]] {
            assert!(of(bad).is_err(), "{bad:?}");
        }
    }
}
