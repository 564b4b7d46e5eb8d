//! What the values of a database are: said by the caller, or found out from some of them, and then as fields.

use serde::{Deserialize, Serialize};

use crate::{
    Error, ErrorKind, Result, codec,
    sample::{DType, FieldKind, FieldSpec, Record, Structure, Value},
    source::{
        datum::{Datum, Images},
        msgpack::{Item, Message},
        npy,
        tensor_slices::{ArraySpec, Pixels, kind_of},
    },
};

/// How values are written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LmdbValue {
    /// What some of them are.
    #[default]
    Auto,
    /// Bytes that nothing is known of.
    Bytes,
    /// An encoded image.
    Image,
    /// Text (UTF-8).
    Text,
    /// JSON text.
    Json,
    /// A NumPy file.
    Npy,
    /// Caffe's `Datum`.
    Datum,
    /// MessagePack: a dict or list of fields, or one value.
    Msgpack,
    /// Elements of an array in native byte order, and nothing else.
    Array {
        /// Element type.
        dtype: DType,
        /// Shape of all of them.
        shape: Vec<usize>,
    },
}

/// Values of some entries, with their keys as they are shown.
pub(super) type Examples = Vec<(String, Vec<u8>)>;

/// What values are, settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    form: Form,
    /// The fields that a value has.
    pub(super) parts: Vec<FieldSpec>,
    /// How they are handed out.
    pub(super) structure: Structure,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Form {
    /// The bytes as they are.
    Plain,
    Text,
    Json,
    /// Dtype, and the sides that are always the same.
    Npy(DType, Vec<Option<usize>>),
    /// So many bytes.
    Array(usize),
    Datum(Images),
    /// One value.
    PackedValue,
    PackedList,
    PackedDict,
}

impl Layout {
    /// Bytes of each value, where it is the elements of an array and nothing else.
    pub(super) fn array(&self) -> Option<usize> {
        match self.form {
            Form::Array(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// What values are that are written as `value` says. Without an example they are bytes. Examples that are damaged have no
    /// say in it, unless all of them are: they are bad samples when they are read.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for examples of several kinds; [`ErrorKind::Corrupt`] if none is what it should be;
    /// [`ErrorKind::Unsupported`] for pickles.
    pub(super) fn of(value: &LmdbValue, mut examples: Examples) -> Result<Self> {
        let is_whole = |bytes: &[u8]| match value {
            LmdbValue::Npy => npy::Header::parse(bytes).is_ok(),
            LmdbValue::Datum => Datum::parse(bytes).is_ok(),
            LmdbValue::Msgpack => packed(bytes).is_ok(),
            _ => true,
        };
        if examples.iter().any(|(_, bytes)| is_whole(bytes)) {
            examples.retain(|(_, bytes)| is_whole(bytes));
        }
        match value {
            LmdbValue::Auto => Self::found(examples),
            LmdbValue::Bytes => Ok(Self::single(Form::Plain, FieldKind::Bytes)),
            LmdbValue::Image => Ok(Self::single(Form::Plain, FieldKind::Image)),
            LmdbValue::Text => Ok(Self::single(Form::Text, FieldKind::Text)),
            LmdbValue::Json => Ok(Self::single(Form::Json, FieldKind::Json)),
            LmdbValue::Array { dtype, shape } => {
                let bytes =
                    shape.iter().try_fold(dtype.size(), |size, n| size.checked_mul(*n)).filter(|n| *n > 0);
                let bytes = bytes.ok_or_else(|| {
                    Error::config(format!("values of {} {shape:?} have no bytes", dtype.name()))
                })?;
                let kind = rows(*dtype, shape.iter().copied().map(Some).collect())?;
                Ok(Self::single(Form::Array(bytes), kind))
            }
            LmdbValue::Npy | LmdbValue::Datum | LmdbValue::Msgpack if examples.is_empty() => {
                Ok(Self::single(Form::Plain, FieldKind::Bytes))
            }
            LmdbValue::Npy => Self::npy(&examples),
            LmdbValue::Datum => {
                let all = examples.iter().map(|(key, value)| {
                    Datum::parse(value)
                        .map_err(|e| Error::corrupt(format!("the value of {key} {}", e.message())))
                });
                let images = Images::of(&all.collect::<Result<Vec<_>>>()?);
                let images = images.ok_or_else(|| {
                    Error::config(
                        "images of the Datums differ: some are encoded, or differ in their channels",
                    )
                    .with_hint("take those of one kind by keys=, or value=\"bytes\"")
                })?;
                let parts = images.fields();
                let structure = Structure::Tuple((0..parts.len()).map(Structure::Field).collect());
                Ok(Self { form: Form::Datum(images), parts, structure })
            }
            LmdbValue::Msgpack => Self::msgpack(&examples),
        }
    }

    fn single(form: Form, kind: FieldKind) -> Self {
        let parts = vec![FieldSpec { name: "value".to_owned(), kind }];
        Self { form, parts, structure: Structure::Field(0) }
    }

    /// What nearly all of `examples` are.
    fn found(mut examples: Examples) -> Result<Self> {
        let kinds: Vec<Option<LmdbValue>> = examples.iter().map(|(_, value)| guess(value)).collect();
        let of = |kind: &Option<LmdbValue>| kinds.iter().filter(|other| *other == kind).count();
        let Some(most) = kinds.iter().max_by_key(|kind| of(kind)) else {
            return Ok(Self::single(Form::Plain, FieldKind::Bytes));
        };
        // One that is damaged may look like anything; two kinds of samples are for the caller to tell apart.
        if of(most) * 4 < kinds.len() * 3 {
            let other = kinds.iter().position(|kind| *kind != kinds[0]).unwrap_or(0);
            return Err(Error::config(format!(
                "values differ: that of {} is {}, that of {} {}",
                examples[0].0,
                name_of(kinds[0].as_ref()),
                examples[other].0,
                name_of(kinds[other].as_ref())
            ))
            .with_hint("say which entries are samples (keys=\"image-\", a prefix or a list), or what values are (value=\"bytes\")"));
        }
        let Some(value) = most else {
            let key = kinds.iter().position(Option::is_none).and_then(|at| examples.get(at));
            let key = key.map_or("the samples", |(key, _)| key);
            let message = format!("the value of {key} is a pickle, and reading a pickle runs what is in it");
            return Err(Error::new(ErrorKind::Unsupported, message).with_hint(
                "write images, .npy or msgpack instead; value=\"bytes\" gives pickles as they are",
            ));
        };
        let mut same = kinds.iter().map(|kind| kind == most);
        examples.retain(|_| same.next().unwrap_or(false));
        Self::of(value, examples)
    }

    fn npy(examples: &[(String, Vec<u8>)]) -> Result<Self> {
        let mut settled: Option<(DType, Vec<Option<usize>>)> = None;
        for (key, value) in examples {
            let of = |e: &Error| Error::new(e.kind(), format!("the value of {key}: {}", e.message()));
            let header = npy::Header::parse(value).map_err(|e| of(&e))?;
            let sides: Vec<Option<usize>> = header.shape.iter().copied().map(Some).collect();
            settled = Some(match settled {
                None => (header.dtype, sides),
                Some((dtype, _)) if dtype != header.dtype => {
                    let (have, want) = (header.dtype.name(), dtype.name());
                    let first = &examples[0].0;
                    return Err(Error::config(format!(
                        "the array of {key} is {have}, that of {first} {want}"
                    ))
                    .with_hint("take those of one kind by keys=, or value=\"bytes\""));
                }
                Some((dtype, before)) => (dtype, common(&before, &sides)?),
            });
        }
        let Some((dtype, sides)) = settled else { return Ok(Self::single(Form::Plain, FieldKind::Bytes)) };
        let kind = rows(dtype, sides.clone())?;
        Ok(Self::single(Form::Npy(dtype, sides), kind))
    }

    fn msgpack(examples: &[(String, Vec<u8>)]) -> Result<Self> {
        let mut settled: Option<(Form, Vec<FieldSpec>)> = None;
        for (key, value) in examples {
            let of = |what: String| Error::corrupt(format!("the value of {key} {what}"));
            let found = packed(value).map_err(of)?;
            settled = Some(match settled {
                None => found,
                Some(before) => {
                    let names =
                        |fields: &[FieldSpec]| fields.iter().map(|f| f.name.clone()).collect::<Vec<_>>();
                    let (mut a, mut b) = (names(&before.1), names(&found.1));
                    a.sort_unstable();
                    b.sort_unstable();
                    if before.0 != found.0 || a != b {
                        let first = &examples[0].0;
                        return Err(Error::config(format!(
                            "the value of {key} has {b:?}, that of {first} {a:?}"
                        ))
                        .with_hint("take those of one kind by keys=, or value=\"bytes\""));
                    }
                    let merge = |field: FieldSpec| -> Result<FieldSpec> {
                        let other = found.1.iter().find(|other| other.name == field.name);
                        let kind =
                            other.map_or(Ok(field.kind.clone()), |other| merged(&field.kind, &other.kind));
                        let kind = kind.map_err(|what| {
                            Error::config(format!("{} of {key} {what} in others", field.name))
                                .with_hint("take those of one kind by keys=, or value=\"bytes\"")
                        })?;
                        Ok(FieldSpec { kind, ..field })
                    };
                    (before.0, before.1.into_iter().map(merge).collect::<Result<_>>()?)
                }
            });
        }
        let Some((form, parts)) = settled else { return Ok(Self::single(Form::Plain, FieldKind::Bytes)) };
        let all = parts.iter().enumerate();
        let structure = match form {
            Form::PackedDict => {
                Structure::Dict(all.map(|(i, field)| (field.name.clone(), Structure::Field(i))).collect())
            }
            Form::PackedList => Structure::Tuple(all.map(|(i, _)| Structure::Field(i)).collect()),
            _ => Structure::Field(0),
        };
        Ok(Self { form, parts, structure })
    }

    /// True if the bytes of a value are its only field.
    pub(super) fn is_plain(&self) -> bool {
        self.form == Form::Plain
    }

    /// Reads a value into the fields that `into` names for its parts. The error says what is wrong with it.
    pub(super) fn read(
        &self,
        bytes: &[u8],
        into: &[Option<usize>],
        record: &mut Record,
    ) -> Result<(), String> {
        let field = |part: usize| into.get(part).copied().flatten();
        match &self.form {
            Form::PackedList | Form::PackedDict => return self.read_packed(bytes, into, record),
            Form::Datum(images) => {
                let datum = Datum::parse(bytes).map_err(|e| e.message().to_owned())?;
                if let Some(field) = field(0) {
                    images.read(&datum, &mut record.values[field])?;
                }
                if let Some(field) = field(1) {
                    record.values[field] = Value::Int(datum.label());
                }
                return Ok(());
            }
            _ => {}
        }
        let Some(field) = field(0) else { return Ok(()) };
        let (value, shape) = (&mut record.values[field], &mut record.shapes[field]);
        match &self.form {
            Form::Text | Form::Json => {
                let text = std::str::from_utf8(bytes).map_err(|e| format!("is no text: {e}"))?;
                // Python writes and reads NaN and Infinity, which are not JSON: those texts are left to the reader.
                let lenient = text.contains("NaN") || text.contains("Infinity");
                if self.form == Form::Json && !lenient {
                    serde_json::from_str::<serde::de::IgnoredAny>(text)
                        .map_err(|e| format!("is no JSON: {e}"))?;
                }
                copy(bytes, value)
            }
            Form::Array(wanted) if bytes.len() != *wanted => {
                Err(format!("has {} bytes, not {wanted}", bytes.len()))
            }
            Form::Npy(dtype, sides) => {
                let header = npy::Header::parse(bytes).map_err(|e| e.message().to_owned())?;
                check_array(header.dtype, &header.shape, *dtype, sides)?;
                copy(bytes, value)?;
                if sides.iter().filter(|side| side.is_none()).count() > 1 {
                    shape.extend_from_slice(&header.shape);
                }
                header.into_elements(match value {
                    Value::Bytes(bytes) => bytes,
                    _ => return Err("could not be kept".to_owned()),
                });
                to_label(&self.parts[0].kind, value)
            }
            Form::PackedValue => {
                let mut message = Message::new(bytes);
                let item = message.whole()?;
                if !message.is_empty() {
                    return Err("has more behind its value".to_owned());
                }
                read_item(item, &self.parts[0].kind, value, shape)
            }
            _ => {
                copy(bytes, value)?;
                to_label(&self.parts[0].kind, value)
            }
        }
    }

    fn read_packed(&self, bytes: &[u8], into: &[Option<usize>], record: &mut Record) -> Result<(), String> {
        let mut message = Message::new(bytes);
        let mut seen = vec![false; self.parts.len()];
        let items = match (message.next()?, &self.form) {
            (Item::Map(pairs), Form::PackedDict) => pairs,
            (Item::List(items), Form::PackedList) if items == self.parts.len() => items,
            (other, _) => return Err(format!("is {other:?}, but not in the first samples")),
        };
        for number in 0..items {
            let part = if self.form == Form::PackedDict {
                let name = key_of(message.next()?)?;
                // Mostly in the same order.
                let here = self.parts.get(number).is_some_and(|field| field.name == name);
                if here { Some(number) } else { self.parts.iter().position(|field| field.name == name) }
            } else {
                Some(number)
            };
            let item = message.whole()?;
            let Some(part) = part else { continue };
            seen[part] = true;
            let Some(field) = into.get(part).copied().flatten() else { continue };
            let FieldSpec { name, kind } = &self.parts[part];
            let (value, shape) = (&mut record.values[field], &mut record.shapes[field]);
            shape.clear();
            read_item(item, kind, value, shape).map_err(|what| format!("is damaged: {name} {what}"))?;
        }
        if !message.is_empty() {
            return Err("has more behind its value".to_owned());
        }
        match seen.iter().zip(&self.parts).zip(into).find(|((seen, _), into)| !**seen && into.is_some()) {
            Some(((_, field), _)) => Err(format!("has no {}", field.name)),
            None => Ok(()),
        }
    }
}

/// What a value looks like; `None` is a pickle.
fn guess(value: &[u8]) -> Option<LmdbValue> {
    if codec::detect(value).is_some() {
        return Some(LmdbValue::Image);
    }
    if value.starts_with(b"\x93NUMPY") {
        return Some(LmdbValue::Npy);
    }
    // Protocols 2 to 5; they end with a full stop.
    if matches!(value, [0x80, 2..=5, .., b'.']) {
        return None;
    }
    // Any byte could be a small number, and text a list: only what names its fields, or arrays, is taken for granted.
    if let Ok((form, fields)) = packed(value) {
        let is_array = matches!(fields.first(), Some(FieldSpec { kind: FieldKind::Array { .. }, .. }));
        if form == Form::PackedDict || (form == Form::PackedValue && is_array && value[0] >> 4 == 8) {
            return Some(LmdbValue::Msgpack);
        }
        let has_bytes = |f: &FieldSpec| matches!(f.kind, FieldKind::Image | FieldKind::Array { .. });
        if form == Form::PackedList && fields.iter().any(has_bytes) {
            return Some(LmdbValue::Msgpack);
        }
    }
    if Datum::parse(value).is_ok_and(|datum| datum.is_likely()) {
        return Some(LmdbValue::Datum);
    }
    Some(LmdbValue::Bytes)
}

fn name_of(value: Option<&LmdbValue>) -> &'static str {
    match value {
        None => "a pickle",
        Some(LmdbValue::Image) => "an image",
        Some(LmdbValue::Npy) => "a NumPy file",
        Some(LmdbValue::Msgpack) => "MessagePack",
        Some(LmdbValue::Datum) => "a Datum",
        Some(_) => "other bytes",
    }
}

/// An array, as rows of arrays are: images, if it is one of bytes whose shape says so.
fn rows(dtype: DType, sides: Vec<Option<usize>>) -> Result<FieldKind> {
    let pixels = if matches!(sides.len(), 2 | 3) { Pixels::Infer } else { Pixels::Never };
    let shape = [&[Some(1)], &sides[..]].concat();
    kind_of(&ArraySpec { name: "value".to_owned(), dtype, shape, values: None, pixels })
}

/// Sides that two shapes have in common.
fn common(a: &[Option<usize>], b: &[Option<usize>]) -> Result<Vec<Option<usize>>> {
    if a.len() != b.len() {
        let (a, b) = (a.len(), b.len());
        return Err(Error::config(format!("some arrays have {a} sides, others {b}"))
            .with_hint("take those of one kind by keys=, or value=\"bytes\""));
    }
    Ok(a.iter().zip(b).map(|(a, b)| if a == b { *a } else { None }).collect())
}

fn check_array(dtype: DType, shape: &[usize], want: DType, sides: &[Option<usize>]) -> Result<(), String> {
    let fits = shape.len() == sides.len()
        && shape.iter().zip(sides).all(|(n, side)| side.is_none_or(|side| side == *n));
    if dtype != want || !fits {
        let (dtype, want) = (dtype.name(), want.name());
        return Err(format!(
            "is an array of {dtype} {shape:?}, but of {want} {sides:?} in the first samples"
        ));
    }
    Ok(())
}

/// Form and fields of a MessagePack value.
fn packed(value: &[u8]) -> Result<(Form, Vec<FieldSpec>), String> {
    let mut all = Message::new(value);
    let whole = all.whole()?;
    if !all.is_empty() {
        return Err("has more behind its value".to_owned());
    }
    let mut message = whole;
    let single = whole.array()?.is_some();
    let (form, items) = match message.next()? {
        _ if single => (Form::PackedValue, 0),
        Item::Map(pairs) if pairs > 0 => (Form::PackedDict, pairs),
        Item::List(items) if items > 0 => (Form::PackedList, items),
        _ => (Form::PackedValue, 0),
    };
    if form == Form::PackedValue {
        return Ok((form, vec![FieldSpec { name: "value".to_owned(), kind: kind_of_item(whole)? }]));
    }
    let mut fields: Vec<FieldSpec> = Vec::new();
    for number in 0..items {
        let name = if form == Form::PackedDict { key_of(message.next()?)? } else { number.to_string() };
        if fields.iter().any(|field| field.name == name) {
            return Err(format!("has {name} twice"));
        }
        let kind = kind_of_item(message.whole()?).map_err(|what| format!("is damaged: {name} {what}"))?;
        fields.push(FieldSpec { name, kind });
        if fields.len() > 10_000 {
            return Err("has more than 10,000 fields".to_owned());
        }
    }
    Ok((form, fields))
}

fn key_of(item: Item<'_>) -> Result<String, String> {
    let key = match item {
        Item::Text(key) | Item::Bytes(key) => std::str::from_utf8(key).ok(),
        _ => None,
    };
    key.map(str::to_owned).ok_or_else(|| format!("has a key {item:?}, which is no text"))
}

/// What an item of MessagePack is as a field.
fn kind_of_item(item: Message<'_>) -> Result<FieldKind, String> {
    if let Some(array) = item.array()? {
        let sides = array.shape.into_iter().map(Some).collect();
        return rows(array.dtype, sides).map_err(|e| e.message().to_owned());
    }
    let mut rest = item;
    Ok(match rest.next()? {
        Item::Bool(_) => FieldKind::Scalar { dtype: DType::Bool },
        Item::Int(_) => FieldKind::LABEL,
        Item::Float(_) => FieldKind::Scalar { dtype: DType::Float64 },
        Item::Text(text) if std::str::from_utf8(text).is_ok() => FieldKind::Text,
        Item::Text(bytes) | Item::Bytes(bytes) if codec::detect(bytes).is_some() => FieldKind::Image,
        Item::Text(_) | Item::Bytes(_) | Item::Extension(..) => FieldKind::Bytes,
        Item::List(items) => {
            let (mut whole, mut numbers) = (true, true);
            for _ in 0..items {
                match rest.next()? {
                    Item::Int(_) => {}
                    Item::Float(_) => whole = false,
                    _ => {
                        numbers = false;
                        break;
                    }
                }
            }
            let dtype = if whole { DType::Int64 } else { DType::Float64 };
            if numbers { FieldKind::Array { dtype, shape: vec![None] } } else { json_kind(item)? }
        }
        Item::Nil | Item::Large(_) | Item::Map(_) => json_kind(item)?,
    })
}

fn json_kind(item: Message<'_>) -> Result<FieldKind, String> {
    item.json(&mut String::new()).map(|()| FieldKind::Json)
}

/// What holds for values of both kinds.
fn merged(a: &FieldKind, b: &FieldKind) -> Result<FieldKind, String> {
    use FieldKind::{Array, Bytes, Image, Json, Scalar, Text};
    const FLOAT: DType = DType::Float64;
    Ok(match (a, b) {
        _ if a == b => a.clone(),
        (Scalar { dtype: FLOAT }, &FieldKind::LABEL) | (&FieldKind::LABEL, Scalar { dtype: FLOAT }) => {
            Scalar { dtype: FLOAT }
        }
        (Array { dtype: a, shape: x }, Array { dtype: b, shape: y }) if a == b && x.len() == y.len() => {
            Array { dtype: *a, shape: x.iter().zip(y).map(|(x, y)| if x == y { *x } else { None }).collect() }
        }
        // Lists of numbers.
        (
            Array { dtype: DType::Int64 | FLOAT, shape: x },
            Array { dtype: DType::Int64 | FLOAT, shape: y },
        ) if x == &[None] && y == &[None] => Array { dtype: FLOAT, shape: vec![None] },
        (Image | Bytes, Image | Bytes) => Bytes,
        // What JSON has.
        (Json, Scalar { .. } | Text) | (Scalar { .. } | Text, Json | Scalar { .. } | Text) => Json,
        (Json, Array { shape, .. }) | (Array { shape, .. }, Json) if shape == &[None] => Json,
        _ => return Err(format!("is {a:?}, but {b:?}")),
    })
}

/// Reads an item of MessagePack that is to be of one kind.
fn read_item(
    item: Message<'_>,
    kind: &FieldKind,
    value: &mut Value,
    shape: &mut Vec<usize>,
) -> Result<(), String> {
    let mut rest = item;
    match kind {
        FieldKind::Json => {
            let mut text = String::new();
            item.json(&mut text)?;
            *value = Value::Bytes(text.into_bytes());
            return Ok(());
        }
        FieldKind::Array { .. } | FieldKind::Pixels { .. } | FieldKind::Scalar { .. } => {
            if let Some(array) = item.array()? {
                return read_array(&array, kind, value, shape);
            }
        }
        _ => {}
    }
    match (rest.next()?, kind) {
        (Item::Int(number), &FieldKind::LABEL) => *value = Value::Int(number),
        (Item::Float(number), FieldKind::Scalar { dtype: DType::Float64 }) => {
            copy(&number.to_ne_bytes(), value)?
        }
        #[allow(clippy::cast_precision_loss, reason = "Python's float() of the number")]
        (Item::Int(number), FieldKind::Scalar { dtype: DType::Float64 }) => {
            copy(&(number as f64).to_ne_bytes(), value)?;
        }
        (Item::Bool(truth), FieldKind::Scalar { dtype: DType::Bool }) => copy(&[u8::from(truth)], value)?,
        (Item::Text(text) | Item::Bytes(text), FieldKind::Text) => {
            std::str::from_utf8(text).map_err(|e| format!("is no text: {e}"))?;
            copy(text, value)?;
        }
        (
            Item::Text(bytes) | Item::Bytes(bytes) | Item::Extension(_, bytes),
            FieldKind::Bytes | FieldKind::Image,
        ) => {
            copy(bytes, value)?;
        }
        (
            Item::List(items),
            FieldKind::Array { dtype: dtype @ (DType::Int64 | DType::Float64), shape: sides },
        ) if sides.len() == 1 && sides[0].is_none_or(|side| side == items) => {
            let buffer = value.buffer();
            buffer
                .try_reserve_exact(items * 8)
                .map_err(|_| format!("has {items} numbers, for which there is no memory"))?;
            for _ in 0..items {
                match (rest.next()?, dtype) {
                    (Item::Int(number), DType::Int64) => buffer.extend_from_slice(&number.to_ne_bytes()),
                    (Item::Float(number), DType::Float64) => buffer.extend_from_slice(&number.to_ne_bytes()),
                    #[allow(clippy::cast_precision_loss, reason = "Python's float() of the number")]
                    (Item::Int(number), DType::Float64) => {
                        buffer.extend_from_slice(&(number as f64).to_ne_bytes());
                    }
                    (other, _) => return Err(format!("has {other:?} in a list of {}", dtype.name())),
                }
            }
        }
        (other, _) => {
            let mut found = format!("{other:?}");
            found.truncate(found.char_indices().nth(60).map_or(found.len(), |(at, _)| at));
            return Err(format!("is {found}, but {kind:?} in the first samples"));
        }
    }
    Ok(())
}

fn read_array(
    array: &crate::source::msgpack::Array<'_>,
    kind: &FieldKind,
    value: &mut Value,
    shape: &mut Vec<usize>,
) -> Result<(), String> {
    let (dtype, sides) = match kind {
        FieldKind::Array { dtype, shape } => (*dtype, shape.clone()),
        FieldKind::Scalar { dtype } => (*dtype, Vec::new()),
        // Of one shape, which the kind is made of.
        _ => {
            let sides: Vec<Option<usize>> = array.shape.iter().copied().map(Some).collect();
            if rows(array.dtype, sides.clone()).ok().as_ref() != Some(kind) {
                let (dtype, shape) = (array.dtype.name(), &array.shape);
                return Err(format!("is an array of {dtype} {shape:?}, but {kind:?} in the first samples"));
            }
            (array.dtype, sides)
        }
    };
    check_array(array.dtype, &array.shape, dtype, &sides)?;
    copy(array.elements, value)?;
    if let (Value::Bytes(bytes), true) = (&mut *value, array.swapped) {
        bytes.chunks_exact_mut(dtype.size()).for_each(<[u8]>::reverse);
    }
    if sides.iter().filter(|side| side.is_none()).count() > 1 {
        shape.extend_from_slice(&array.shape);
    }
    to_label(kind, value)
}

/// Turns the bytes of a whole number into one.
fn to_label(kind: &FieldKind, value: &mut Value) -> Result<(), String> {
    if *kind == FieldKind::LABEL
        && let Value::Bytes(bytes) = value
    {
        let number = bytes.as_slice().try_into().map_err(|_| format!("has {} bytes, not 8", bytes.len()))?;
        *value = Value::Int(i64::from_ne_bytes(number));
    }
    Ok(())
}

fn copy(bytes: &[u8], value: &mut Value) -> Result<(), String> {
    let buffer = value.buffer();
    buffer
        .try_reserve_exact(bytes.len())
        .map_err(|_| format!("needs {} bytes, for which there is no memory", bytes.len()))?;
    buffer.extend_from_slice(bytes);
    Ok(())
}
