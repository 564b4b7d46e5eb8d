//! FFCV: the `.beton` files that its `DatasetWriter` writes, read where they lie.
//!
//! ```text
//! file         header | fields | a row of numbers for each sample | pages of data | allocations
//! header       version u16 | fields u16 | bytes of a page u32 | samples u64 | place of the allocations u64
//! field        type u8 | name [16] | arguments [1024]
//! row          of each field its numbers, those of 8 bytes at multiples of 8; images and bytes are packed
//! allocation   sample u64 | place u64 | bytes u64                                          numbers little-endian
//! ```
//!
//! Format: `ffcv/types.py`, `fields/` and `memory_allocator.py` of <https://github.com/libffcv/ffcv>, version 2. Data has no checksum,
//! but every piece of it is stated twice: a sample is handed out only if the allocations have the places that its row names, with the
//! sizes that they need, inside of the data. Rows and allocations are read when a file is opened; then a sample is a read by position
//! for each of its fields.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    Fingerprint, Part, Source, SourceSpec, beyond_the_end, located, location, npy, plain_png, shards, stamp,
    tensor_slices::{ArraySpec, Pixels, kind_of},
};
use crate::{
    Error, ErrorKind, Limits, Result,
    io::{Bytes, Extent},
    sample::{DType, FieldKind, FieldSpec, PixelLayout, Record, Schema, Structure, Value},
    store::{Store, listing, secrets},
};

const HEADER: u64 = 24;
const FIELD: u64 = 1 + 16 + 1024;
const ALLOCATION: u64 = 24;

/// What to open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BetonSpec {
    /// Files: paths with braces or stars, `::` between several in one. All have the same fields.
    pub urls: Vec<String>,
    /// Fields to take, in order. Default: all. Samples are tuples of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fields: Option<Vec<String>>,
}

impl BetonSpec {
    /// All fields of the file `url`.
    pub fn new(url: impl Into<String>) -> Self {
        Self { urls: vec![url.into()], fields: None }
    }
}

/// One field of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    name: String,
    kind: Kind,
    /// Where its numbers are in a row.
    at: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Float,
    Int,
    /// JPEG or pixels.
    Image,
    Bytes,
    Json,
    /// Dtype, whether it is in the other byte order, and shape.
    Array(DType, bool, Vec<usize>),
    /// An array of something else: why it is not read.
    Other(String),
}

impl Kind {
    /// Bytes of its numbers in a row, and what their place is a multiple of.
    fn numbers(&self) -> (usize, usize) {
        match self {
            Self::Float | Self::Int | Self::Array(..) | Self::Other(_) => (8, 8),
            Self::Image => (13, 1),
            Self::Bytes | Self::Json => (16, 1),
        }
    }
}

/// Where the value of a field lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In the row itself.
    Row,
    Data {
        at: u64,
        bytes: u64,
    },
    /// The pixels of an image.
    Pixels {
        at: u64,
        bytes: u64,
        width: u16,
        height: u16,
    },
}

impl Place {
    fn range(self) -> Option<(u64, u64)> {
        match self {
            Self::Row => None,
            Self::Data { at, bytes } | Self::Pixels { at, bytes, .. } => Some((at, bytes)),
        }
    }
}

#[derive(Debug)]
struct Shard {
    path: Arc<str>,
    /// Index of its first sample.
    start: u64,
    samples: u64,
    fields: Vec<Field>,
    row: usize,
    rows: Vec<u8>,
    /// Sample, place and bytes, in that order.
    allocations: Vec<(u64, u64, u64)>,
    /// Where pages of data are.
    data: std::ops::Range<u64>,
}

/// Samples in `.beton` files.
#[derive(Debug)]
pub struct Beton {
    store: Arc<dyn Store>,
    spec: BetonSpec,
    schema: Schema,
    /// Fields of the files that are taken, in the order of the schema.
    taken: Vec<usize>,
    shards: Vec<Shard>,
    len: u64,
}

impl Beton {
    /// Reads headers, rows and allocations of all files.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] for a file that there is not; [`ErrorKind::Config`] for files or fields that do not go together;
    /// [`ErrorKind::Unsupported`] for other versions and fields of the writer's own; [`ErrorKind::Corrupt`] for a file that was cut
    /// within its rows, or is none of FFCV's.
    pub fn open(store: Arc<dyn Store>, spec: BetonSpec) -> Result<Self> {
        let name = name_of(&spec);
        Self::build(store, spec).map_err(|e| e.with_source(name))
    }

    fn build(store: Arc<dyn Store>, spec: BetonSpec) -> Result<Self> {
        let (store, paths) = shards::find(&store, &spec.urls)?;
        let mut shards = listing::parallel_at(&*store, &paths, |path| Shard::open(&*store, path))?;
        let mut len = 0;
        for shard in &mut shards {
            shard.start = len;
            len += shard.samples;
        }
        let Some(first) = shards.first() else { return Err(Error::config("there is no file")) };
        if let Some(other) = shards.iter().find(|shard| shard.fields != first.fields) {
            return Err(Error::config(format!("{} has other fields than {}", other.path, first.path)));
        }
        let names: Vec<&str> = first.fields.iter().map(|field| field.name.as_str()).collect();
        let wanted: Vec<&str> = match &spec.fields {
            Some(fields) => fields.iter().map(String::as_str).collect(),
            None => names.clone(),
        };
        if wanted.is_empty() {
            return Err(Error::config("there are no fields to take"));
        }
        let mut taken = Vec::with_capacity(wanted.len());
        for name in &wanted {
            let Some(number) = names.iter().position(|there| there == name) else {
                return Err(Error::config(format!(
                    "there is no field {name}: there are {}",
                    names.join(", ")
                )));
            };
            if taken.contains(&number) {
                return Err(Error::config(format!("field {name} is asked for twice")));
            }
            taken.push(number);
        }
        let fields = taken.iter().map(|number| {
            let field = &first.fields[*number];
            Ok(FieldSpec { name: field.name.clone(), kind: kind_in(field, &shards)? })
        });
        let fields = fields.collect::<Result<Vec<_>>>()?;
        let structure = Structure::Tuple((0..fields.len()).map(Structure::Field).collect());
        let schema = Schema { fields, structure };
        Ok(Self { store, spec, schema, taken, shards, len })
    }

    fn find(&self, index: u64) -> Result<(&Shard, u64)> {
        let beyond = || beyond_the_end(self, index);
        if index >= self.len {
            return Err(beyond());
        }
        let shard =
            self.shards.partition_point(|shard| shard.start <= index).checked_sub(1).ok_or_else(beyond)?;
        let shard = self.shards.get(shard).ok_or_else(beyond)?;
        Ok((shard, index - shard.start))
    }

    /// Makes the record of a sample; `read` gives the bytes at a place.
    fn fill(
        &self,
        shard: &Shard,
        sample: u64,
        record: &mut Record,
        mut read: impl FnMut(u64, usize, &mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        record.reset(self.schema.fields.len());
        for (number, field) in self.taken.iter().map(|number| &shard.fields[*number]).enumerate() {
            let place = shard.place(field, sample, &record.limits)?;
            let value = &mut record.values[number];
            let kind = &self.schema.fields[number].kind;
            let Some((at, bytes)) = place.range() else {
                record.offsets[number] = shard.row_at(sample) + field.at as u64;
                let numbers = shard.numbers(field, sample);
                let bits = u64_at(numbers, 0);
                match field.kind {
                    Kind::Int => *value = Value::Int(bits.cast_signed()),
                    _ => value.buffer().extend_from_slice(&f64::from_bits(bits).to_ne_bytes()),
                }
                continue;
            };
            record.offsets[number] = at;
            if let FieldKind::Pixels { height, width, channels, .. } = kind
                && field.kind == Kind::Image
                && bytes != (height * width * channels) as u64
            {
                let what =
                    format!("has {bytes} bytes, and not the {height}x{width} pixels that the others have");
                return Err(shard.corrupt(field, sample, &what).with_offset(at));
            }
            let buffer = value.buffer();
            read(at, bytes as usize, buffer)?;
            match (&field.kind, place) {
                (Kind::Image, Place::Pixels { width, height, .. }) if *kind == FieldKind::Image => {
                    let png = plain_png::of_pixels(u32::from(width), u32::from(height), 3, buffer);
                    *value = Value::Bytes(
                        png.map_err(|what| shard.corrupt(field, sample, &what).with_offset(at))?,
                    );
                }
                (Kind::Json, _) => {
                    // The writer ends it by a zero.
                    let end = buffer.iter().position(|byte| *byte == 0).unwrap_or(buffer.len());
                    buffer.truncate(end);
                    let text = std::str::from_utf8(buffer)
                        .map_err(|e| shard.corrupt(field, sample, &format!("is no text: {e}")))?;
                    // Python writes NaN and Infinity, which are not JSON: those texts are left to the reader.
                    if !(text.contains("NaN") || text.contains("Infinity")) {
                        serde_json::from_str::<serde::de::IgnoredAny>(text).map_err(|e| {
                            shard.corrupt(field, sample, &format!("is no JSON: {e}")).with_offset(at)
                        })?;
                    }
                }
                (Kind::Array(dtype, true, _), _) => {
                    buffer.chunks_exact_mut(dtype.size()).for_each(<[u8]>::reverse)
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// What a field of all files is.
fn kind_in(field: &Field, shards: &[Shard]) -> Result<FieldKind> {
    Ok(match &field.kind {
        Kind::Float => FieldKind::Scalar { dtype: DType::Float64 },
        Kind::Int => FieldKind::LABEL,
        Kind::Bytes => FieldKind::Bytes,
        Kind::Json => FieldKind::Json,
        Kind::Array(dtype, _, sides) => {
            let shape = std::iter::once(Some(1)).chain(sides.iter().copied().map(Some)).collect();
            let pixels = if matches!(sides.len(), 2 | 3) { Pixels::Infer } else { Pixels::Never };
            kind_of(&ArraySpec { name: field.name.clone(), dtype: *dtype, shape, values: None, pixels })?
        }
        Kind::Image => {
            // Pixels of one size are taken as they lie; others become PNGs. A row that is damaged has no say in it.
            let all = Limits { max_bytes: u64::MAX, ..Limits::default() };
            let place = |shard: &Shard, sample| shard.place(field, sample, &all).ok();
            let mut samples =
                shards.iter().flat_map(|shard| (0..shard.samples).map(move |sample| (shard, sample)));
            let first = samples.find_map(|(shard, sample)| {
                place(shard, sample).map(|place| (place, shard.numbers(field, sample)))
            });
            match first {
                Some((Place::Pixels { width, height, .. }, first)) => {
                    let mut others = samples.filter(|(shard, sample)| {
                        shard.numbers(field, *sample)[..5] != first[..5] && place(shard, *sample).is_some()
                    });
                    let (width, height) = (usize::from(width), usize::from(height));
                    match others.next() {
                        None => FieldKind::Pixels { height, width, channels: 3, layout: PixelLayout::Hwc },
                        Some(_) => FieldKind::Image,
                    }
                }
                _ => FieldKind::Image,
            }
        }
        Kind::Other(why) => {
            let message = format!("field {} {why}", field.name);
            return Err(Error::new(ErrorKind::Unsupported, message)
                .with_hint("name the fields to take: fields=[...]"));
        }
    })
}

/// Modes of images.
const JPEG: u8 = 0;
const RAW: u8 = 1;

impl Shard {
    fn open(store: &dyn Store, path: &str) -> Result<Self> {
        let size = store.size(path)?;
        let corrupt =
            |what: String| Error::corrupt(format!("{path} is no file of FFCV, or is damaged: {what}"));
        let cut = |needs: u64| {
            corrupt(format!("it has {size} bytes, not {needs}"))
                .with_hint("it was cut, perhaps during a copy")
        };
        if size < HEADER {
            return Err(cut(HEADER));
        }
        let mut head = Vec::new();
        store.read_range(path, 0, HEADER as usize, &mut head)?;
        let (version, count) = (u16_at(&head, 0), u16_at(&head, 2));
        let (page, samples, allocations) = (u64::from(u32_at(&head, 4)), u64_at(&head, 8), u64_at(&head, 16));
        if version != 2 {
            let message = format!("{path} has version {version} of FFCV's format; 2 is read");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        if count == 0 || !page.is_power_of_two() {
            return Err(corrupt(format!("it states {count} fields and pages of {page} bytes")));
        }
        if allocations == 0 {
            return Err(corrupt("its writer did not come to the end".to_owned()));
        }
        let fields_end = HEADER + u64::from(count) * FIELD;
        if fields_end > size {
            return Err(cut(fields_end));
        }
        let mut described = Vec::new();
        store.read_range(path, HEADER, (fields_end - HEADER) as usize, &mut described)?;
        let (fields, row) = fields_of(path, &described)?;
        let rows_end = samples.checked_mul(row as u64).and_then(|bytes| bytes.checked_add(fields_end));
        let rows_end = rows_end.filter(|end| *end <= size);
        let rows_end =
            rows_end.ok_or_else(|| corrupt(format!("it has {size} bytes, too few for {samples} samples")))?;
        let whole = (rows_end..=size).contains(&allocations)
            && (size - allocations).is_multiple_of(ALLOCATION)
            // Data comes in whole pages, if there is any.
            && (allocations == rows_end || allocations.is_multiple_of(page));
        if !whole {
            return Err(corrupt(format!("its allocations begin at byte {allocations} of {size}"))
                .with_hint("it was cut, perhaps during a copy"));
        }
        let mut rows = Vec::new();
        store.read_range(path, fields_end, (rows_end - fields_end) as usize, &mut rows)?;
        let mut table = Vec::new();
        store.read_range(path, allocations, (size - allocations) as usize, &mut table)?;
        let entry = |bytes: &[u8]| (u64_at(bytes, 0), u64_at(bytes, 8), u64_at(bytes, 16));
        let mut table: Vec<(u64, u64, u64)> = table.chunks_exact(ALLOCATION as usize).map(entry).collect();
        table.sort_unstable();
        if table.binary_search_by_key(&samples, |entry| entry.0).is_ok() {
            return Err(corrupt(format!("it states {samples} samples, but has data of more")));
        }
        Ok(Self {
            path: path.into(),
            start: 0,
            samples,
            fields,
            row,
            rows,
            allocations: table,
            data: rows_end..allocations,
        })
    }

    fn row_at(&self, sample: u64) -> u64 {
        self.data.start - self.rows.len() as u64 + sample * self.row as u64
    }

    /// The numbers of a field in the row of a sample.
    fn numbers(&self, field: &Field, sample: u64) -> &[u8] {
        let start = sample as usize * self.row + field.at;
        self.rows.get(start..start + field.kind.numbers().0).unwrap_or(&[0; 16])
    }

    /// Where a value lies, if the allocations say the same.
    fn place(&self, field: &Field, sample: u64, limits: &Limits) -> Result<Place> {
        let numbers = self.numbers(field, sample);
        // A file of more than 2^64 bytes there is not.
        let (at, wanted) = match &field.kind {
            Kind::Float | Kind::Int => return Ok(Place::Row),
            Kind::Other(why) => return Err(self.corrupt(field, sample, why)),
            Kind::Bytes | Kind::Json => (u64_at(numbers, 0), Some(u64_at(numbers, 8))),
            Kind::Array(dtype, _, shape) => {
                (u64_at(numbers, 0), Some(shape.iter().product::<usize>() as u64 * dtype.size() as u64))
            }
            Kind::Image => {
                let (width, height) = (u64::from(u16_at(numbers, 1)), u64::from(u16_at(numbers, 3)));
                match numbers[0] {
                    JPEG => (u64_at(numbers, 5), None),
                    RAW => (u64_at(numbers, 5), Some(3 * width * height)),
                    mode => {
                        return Err(self.corrupt(
                            field,
                            sample,
                            &format!("is an image of mode {mode}, not 0 or 1"),
                        ));
                    }
                }
            }
        };
        // All that begin there: one without bytes begins where the next one does.
        let from = self.allocations.partition_point(|entry| *entry < (sample, at, 0));
        let mut here = self.allocations[from..].iter().take_while(|entry| (entry.0, entry.1) == (sample, at));
        let found = match wanted {
            Some(wanted) => here.find(|entry| entry.2 == wanted),
            None => here.last(),
        };
        let Some((_, _, bytes)) = found.copied() else {
            let wanted = wanted.map_or_else(String::new, |wanted| format!(" of {wanted} bytes"));
            let what = format!("lies at byte {at}, where the sample has no allocation{wanted}");
            return Err(self.corrupt(field, sample, &what).with_offset(self.row_at(sample)));
        };
        let end = at.checked_add(bytes);
        if at < self.data.start || end.is_none_or(|end| end > self.data.end) {
            let data = &self.data;
            let what =
                format!("has {bytes} bytes at {at}, outside of the data at {} to {}", data.start, data.end);
            return Err(self.corrupt(field, sample, &what).with_offset(at));
        }
        limits.check_bytes(&format!("field {} of sample {sample} of {}", field.name, self.path), bytes)?;
        Ok(match &field.kind {
            Kind::Image if numbers[0] == RAW => {
                Place::Pixels { at, bytes, width: u16_at(numbers, 1), height: u16_at(numbers, 3) }
            }
            _ => Place::Data { at, bytes },
        })
    }

    fn corrupt(&self, field: &Field, sample: u64, what: &str) -> Error {
        Error::corrupt(format!("field {} of sample {sample} of {} {what}", field.name, self.path))
    }
}

/// Fields by their descriptions, and bytes of a row.
fn fields_of(path: &str, described: &[u8]) -> Result<(Vec<Field>, usize)> {
    let mut fields: Vec<Field> = Vec::new();
    let (mut at, mut align) = (0_usize, 1);
    for bytes in described.chunks_exact(FIELD as usize) {
        let name: Vec<u8> = bytes[1..17].iter().copied().take_while(|byte| *byte != 0).collect();
        let Ok(name) = String::from_utf8(name) else {
            return Err(Error::corrupt(format!("{path} has a field whose name is no text")));
        };
        if name.is_empty() || fields.iter().any(|field| field.name == name) {
            return Err(Error::corrupt(format!("{path} has a field without a name of its own: {name:?}")));
        }
        let kind = match bytes[0] {
            0 => Kind::Float,
            1 => Kind::Int,
            2 => Kind::Image,
            3 => Kind::Bytes,
            4 | 6 => array_of(&bytes[17..]),
            5 => Kind::Json,
            other => {
                let message = format!("{path} has a field {name} of type {other}, of which nothing is known");
                return Err(Error::new(ErrorKind::Unsupported, message).with_hint(
                    "where the other fields lie depends on it: write the file without this field",
                ));
            }
        };
        let (size, multiple) = kind.numbers();
        align = align.max(multiple);
        at = at.next_multiple_of(multiple);
        fields.push(Field { name, kind, at });
        at += size;
    }
    Ok((fields, at.next_multiple_of(align)))
}

/// An array by its arguments: 32 sides, of which those that are 0 at the end do not count, and NumPy's description of the dtype.
fn array_of(arguments: &[u8]) -> Kind {
    let mut shape: Vec<usize> =
        (0..32).map(|side| usize::try_from(u64_at(arguments, 8 * side)).unwrap_or(usize::MAX)).collect();
    while shape.last() == Some(&0) {
        shape.pop();
    }
    let len = usize::try_from(u64_at(arguments, 256)).unwrap_or(usize::MAX);
    let text = arguments.get(264..264_usize.saturating_add(len)).unwrap_or_default();
    let described: Result<Vec<(String, String)>, _> = serde_json::from_slice(text);
    let dtype = match described.as_deref() {
        Ok([(_, name)]) => npy::dtype_of(name).ok(),
        _ => None,
    };
    let Some((dtype, swapped)) = dtype else {
        let text = String::from_utf8_lossy(text.get(..60).unwrap_or(text)).into_owned();
        return Kind::Other(format!("is an array of {text}, which is not read"));
    };
    let size = shape.iter().try_fold(dtype.size(), |size, n| size.checked_mul(*n));
    if shape.is_empty() || size.is_none_or(|size| size == 0) {
        return Kind::Other(format!("is an array of {shape:?}, which is not read"));
    }
    Kind::Array(dtype, swapped, shape)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).and_then(|b| b.try_into().ok()).map_or(0, u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

impl Source for Beton {
    fn name(&self) -> String {
        name_of(&self.spec)
    }

    fn spec(&self) -> SourceSpec {
        SourceSpec::Beton(self.spec.clone())
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    /// `train.beton[sample]`.
    fn key(&self, index: u64) -> String {
        self.find(index).map_or_else(|_| String::new(), |(shard, sample)| format!("{}[{sample}]", shard.path))
    }

    fn fetch(&self, index: u64, record: &mut Record) -> Result<()> {
        let (shard, sample) = self.find(index)?;
        let read = |at: u64, len: usize, into: &mut Vec<u8>| {
            self.store.read_range(&shard.path, at, len, into).map_err(|e| e.with_offset(at))
        };
        self.fill(shard, sample, record, read).map_err(|e| located(e, self, index))
    }

    fn store(&self) -> Option<&Arc<dyn Store>> {
        (!self.in_memory()).then_some(&self.store)
    }

    fn locate(&self, index: u64, limits: &Limits, extents: &mut Vec<Extent>) -> Result<()> {
        let (shard, sample) = self.find(index)?;
        for number in &self.taken {
            let place = shard.place(&shard.fields[*number], sample, limits);
            if let Some((at, bytes)) = place.map_err(|e| located(e, self, index))?.range() {
                extents.push(Extent::range(shard.path.clone(), at, bytes));
            }
        }
        Ok(())
    }

    fn assemble(&self, index: u64, pieces: &[Bytes], record: &mut Record) -> Result<()> {
        let (shard, sample) = self.find(index)?;
        let mut pieces = pieces.iter();
        let read = |_, _, into: &mut Vec<u8>| {
            let piece = pieces.next().ok_or_else(|| Error::new(ErrorKind::Internal, "a piece is missing"))?;
            crate::store::reserve(into, piece.len(), "a field")?;
            into.extend_from_slice(piece);
            Ok(())
        };
        self.fill(shard, sample, record, read).map_err(|e| located(e, self, index))
    }

    fn in_memory(&self) -> bool {
        let number = |kind: &FieldKind| matches!(kind, FieldKind::Scalar { .. });
        // Numbers that are fields of their own lie in the rows.
        self.schema.fields.iter().all(|field| number(&field.kind))
    }

    fn number(&self, index: u64, field: usize) -> Option<i64> {
        let (shard, sample) = self.find(index).ok()?;
        let field = shard.fields.get(*self.taken.get(field)?)?;
        (field.kind == Kind::Int).then(|| u64_at(shard.numbers(field, sample), 0).cast_signed())
    }

    fn fingerprint(&self) -> u64 {
        let mut hash = Fingerprint::new(&self.schema, self.len);
        for shard in &self.shards {
            let path = secrets::identity(&shard.path);
            hash.add(path.rsplit('/').next().unwrap_or_default().as_bytes());
            hash.number(shard.samples);
            hash.add(&shard.rows);
        }
        hash.finish()
    }

    fn parts(&self) -> Vec<Part> {
        let part = |shard: &Shard| Part {
            name: shard.path.to_string(),
            beside: Some(shard.path.to_string()),
            store: self.store.clone(),
            samples: shard.start..shard.start + shard.samples,
        };
        let images = self.schema.fields.iter().any(|field| field.kind == FieldKind::Image);
        if images { self.shards.iter().map(part).collect() } else { Vec::new() }
    }

    fn stamp(&self, index: u64) -> Option<u64> {
        let (shard, sample) = self.find(index).ok()?;
        let stat = self.store.stat(&shard.path).ok()?;
        Some(stamp(&format!("{}@{sample}", location(&shard.path)), &stat))
    }
}

fn name_of(spec: &BetonSpec) -> String {
    match spec.urls.as_slice() {
        [url] => format!("beton({})", secrets::shown(url)),
        [url, ..] => format!("beton({} and {} more)", secrets::shown(url), spec.urls.len() - 1),
        [] => "beton()".to_owned(),
    }
}

#[cfg(test)]
mod tests;
