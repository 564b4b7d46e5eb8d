//! What a source hands to the engine: a [`Record`] of fields, described by a [`Schema`].
//!
//! A record is reused from sample to sample, so that fetching allocates nothing once buffers have grown.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Limits, groups::Groups, memory::SharedBytes};

/// Element type of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the names are NumPy's and torch's")]
pub enum DType {
    Bool,
    UInt8,
    Int8,
    UInt16,
    Int16,
    UInt32,
    Int32,
    UInt64,
    Int64,
    Float16,
    BFloat16,
    Float32,
    Float64,
}

impl DType {
    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self {
            DType::Bool | DType::UInt8 | DType::Int8 => 1,
            DType::UInt16 | DType::Int16 | DType::Float16 | DType::BFloat16 => 2,
            DType::UInt32 | DType::Int32 | DType::Float32 => 4,
            DType::UInt64 | DType::Int64 | DType::Float64 => 8,
        }
    }

    /// NumPy's and torch's name of it.
    pub fn name(self) -> &'static str {
        match self {
            DType::Bool => "bool",
            DType::UInt8 => "uint8",
            DType::Int8 => "int8",
            DType::UInt16 => "uint16",
            DType::Int16 => "int16",
            DType::UInt32 => "uint32",
            DType::Int32 => "int32",
            DType::UInt64 => "uint64",
            DType::Int64 => "int64",
            DType::Float16 => "float16",
            DType::BFloat16 => "bfloat16",
            DType::Float32 => "float32",
            DType::Float64 => "float64",
        }
    }
}

/// Order of the elements of one image in a source's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PixelLayout {
    /// Interleaved pixels: `[height, width, channels]`.
    Hwc,
    /// Channel planes: `[channels, height, width]`.
    Chw,
}

impl From<PixelLayout> for wellfed_kernels::image::Layout {
    fn from(layout: PixelLayout) -> Self {
        match layout {
            PixelLayout::Hwc => Self::Hwc,
            PixelLayout::Chw => Self::Chw,
        }
    }
}

/// What the four numbers of a box are, named as torchvision's `BoundingBoxFormat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum BoxFormat {
    /// Left, top, right, bottom.
    #[default]
    Xyxy,
    /// Left, top, width, height.
    Xywh,
    /// Middle (x, y), width, height.
    Cxcywh,
}

impl std::fmt::Display for BoxFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            BoxFormat::Xyxy => "XYXY",
            BoxFormat::Xywh => "XYWH",
            BoxFormat::Cxcywh => "CXCYWH",
        })
    }
}

/// What one field of every sample is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FieldKind {
    /// An encoded image (JPEG, PNG), decoded by the engine. In a batch: an array of images.
    Image,
    /// An array of fixed dtype, whose sides may vary from sample to sample. In a batch: one more dimension in front; if
    /// a side varies, what the plan says of it: padded, ragged, or a list.
    Array {
        /// Element type.
        dtype: DType,
        /// Shape of one sample, without the batch dimension. `None` is a side that varies.
        shape: Vec<Option<usize>>,
    },
    /// An encoded sound (WAV, FLAC, MP3, Ogg Vorbis, Opus, AAC, AIFF), decoded by the engine. In a batch: an array of float32
    /// `[channels, frames]`, or of what its operations make.
    Audio,
    /// A decoded 8-bit image of fixed size, as rows of an array in memory. Transforms run on it as on a decoded
    /// file. In a batch: an array of images.
    Pixels {
        /// Rows.
        height: usize,
        /// Columns.
        width: usize,
        /// Channels: 1 (grey), 3 (RGB) or 4 (RGBA).
        channels: usize,
        /// Order of the elements of one image.
        layout: PixelLayout,
    },
    /// An encoded mask, one number a pixel: a PNG with a palette, whose indices are kept, or in grey. Geometry moves it
    /// with the image, by nearest neighbours; nothing else changes it. In a batch: an array `[n, 1, height, width]`.
    Mask {
        /// Element type: uint8 for palettes and 8-bit grey, uint16 for 16-bit grey, bool for one bit.
        dtype: DType,
        /// Whether any image is taken, and turned into 8-bit grey as images are: then indices are not kept.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        grey: bool,
    },
    /// Boxes in pixels of the image, `[n, 4]`, any number a sample. In a batch: a list of arrays.
    Boxes {
        /// What the four numbers are.
        format: BoxFormat,
        /// Element type: float32 or int64.
        dtype: DType,
    },
    /// One entry for each of the boxes, such as their classes: what `SanitizeBoundingBoxes` removes with them. In a
    /// batch: a list of arrays.
    BoxLabels {
        /// Element type.
        dtype: DType,
    },
    /// Points in pixels of the image, float32 `[n, 2]`, any number a sample. In a batch: a list of arrays.
    Keypoints,
    /// One number: a class ([`FieldKind::LABEL`]), a weight, an id. In a batch: one dimension.
    Scalar {
        /// Its type.
        dtype: DType,
    },
    /// Text (UTF-8). In a batch: a list of strings.
    Text,
    /// JSON text. In a batch: a list of parsed objects (in Rust: of texts).
    Json,
    /// Raw bytes. In a batch: a list of byte strings.
    Bytes,
}

impl FieldKind {
    /// A class or another whole number, as int64.
    pub const LABEL: Self = Self::Scalar { dtype: DType::Int64 };

    /// An array of one shape.
    pub fn array(dtype: DType, shape: &[usize]) -> Self {
        Self::Array { dtype, shape: shape.iter().copied().map(Some).collect() }
    }

    /// True if the size of a sample's value is not known before it is read.
    pub fn varies(&self) -> bool {
        matches!(self, Self::Array { shape, .. } if shape.contains(&None))
    }
}

/// Name and kind of one field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldSpec {
    /// Name, such as `image`, `label`, `jpg` or `cls`.
    pub name: String,
    /// What it holds.
    pub kind: FieldKind,
}

/// How the fields of a sample or batch are handed to the user: a tree whose leaves are fields, by their place in
/// [`Schema::fields`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Structure {
    /// One field.
    Field(usize),
    /// A tuple.
    Tuple(Vec<Structure>),
    /// A list.
    List(Vec<Structure>),
    /// A dict, in the order of its keys.
    Dict(Vec<(String, Structure)>),
}

impl Structure {
    /// The fields it hands out, from left to right.
    pub fn fields(&self) -> Vec<usize> {
        let mut found = Vec::new();
        self.collect(&mut found);
        found
    }

    fn collect(&self, into: &mut Vec<usize>) {
        match self {
            Self::Field(field) => into.push(*field),
            Self::Tuple(items) | Self::List(items) => items.iter().for_each(|item| item.collect(into)),
            Self::Dict(items) => items.iter().for_each(|(_, item)| item.collect(into)),
        }
    }

    /// The same tree over fields that stand `by` places later: for schemas that are put together.
    #[must_use]
    pub fn shifted(&self, by: usize) -> Self {
        let each = |items: &[Self]| items.iter().map(|item| item.shifted(by)).collect();
        match self {
            Self::Field(field) => Self::Field(field + by),
            Self::Tuple(items) => Self::Tuple(each(items)),
            Self::List(items) => Self::List(each(items)),
            Self::Dict(items) => {
                Self::Dict(items.iter().map(|(key, item)| (key.clone(), item.shifted(by))).collect())
            }
        }
    }
}

/// The fields every sample of a source has, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schema {
    /// Fields in order.
    pub fields: Vec<FieldSpec>,
    /// Shape of what the user gets. Every field is in it once.
    pub structure: Structure,
}

impl Schema {
    /// Samples that are one value.
    pub fn single(name: &str, kind: FieldKind) -> Self {
        Self { fields: named([(name, kind)]), structure: Structure::Field(0) }
    }

    /// Samples that are tuples.
    pub fn tuple<'a>(fields: impl IntoIterator<Item = (&'a str, FieldKind)>) -> Self {
        let fields = named(fields);
        let structure = Structure::Tuple((0..fields.len()).map(Structure::Field).collect());
        Self { fields, structure }
    }

    /// Samples that are dicts by the fields' names.
    pub fn dict<'a>(fields: impl IntoIterator<Item = (&'a str, FieldKind)>) -> Self {
        let fields = named(fields);
        let keys = fields.iter().enumerate().map(|(i, field)| (field.name.clone(), Structure::Field(i)));
        let structure = Structure::Dict(keys.collect());
        Self { fields, structure }
    }
}

fn named<'a>(fields: impl IntoIterator<Item = (&'a str, FieldKind)>) -> Vec<FieldSpec> {
    fields.into_iter().map(|(name, kind)| FieldSpec { name: name.to_owned(), kind }).collect()
}

/// Part of a sound, in seconds from its beginning, as manifests of speech have it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Span {
    /// Where it begins.
    pub offset: f64,
    /// How long it is; `None`: all from there on.
    pub duration: Option<f64>,
}

impl Span {
    /// Its first frame and the number of its frames at this rate. Parts of a frame do not count, as librosa and NeMo have it.
    pub fn frames(&self, sample_rate: u32) -> (u64, Option<u64>) {
        let frames = |seconds: f64| (seconds * f64::from(sample_rate)) as u64;
        (frames(self.offset), self.duration.map(frames))
    }
}

/// One value of a fetched sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Value {
    /// Nothing was fetched into this field yet.
    #[default]
    Empty,
    /// Owned bytes: an encoded image, text, JSON, raw bytes, or the elements of an array in native byte order,
    /// C order, of the schema's dtype and shape.
    Bytes(Vec<u8>),
    /// As `Bytes`, but held by a cache as well.
    Shared(SharedBytes),
    /// A whole number: the value of a [`FieldKind::LABEL`]. Scalars of other types are the bytes of one element.
    Int(i64),
    /// The value lies in the source's own memory; [`crate::source::Source::resident`] gives it without a copy.
    Resident,
}

impl Value {
    /// Bytes of this value, if it holds any.
    pub fn len(&self) -> usize {
        match self {
            Value::Bytes(bytes) => bytes.len(),
            Value::Shared(bytes) => bytes.len(),
            _ => 0,
        }
    }

    /// True if this value holds no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The reusable byte buffer of this field, emptied. Turns any other value into one.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        if !matches!(self, Value::Bytes(_)) {
            *self = Value::Bytes(Vec::new());
        }
        match self {
            Value::Bytes(bytes) => {
                bytes.clear();
                bytes
            }
            _ => unreachable!("made a byte buffer above"),
        }
    }
}

/// One sample as fetched: a value per field of the schema. Reused from sample to sample.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// What a source may allocate for one field of this record. Set by the engine, kept by [`Record::reset`].
    pub limits: Limits,
    /// Where the source keeps what it decodes for many samples at once. Set by the engine, kept by [`Record::reset`];
    /// without it the source keeps little by itself.
    pub groups: Option<Arc<Groups>>,
    /// One value per field of the schema, in its order.
    pub values: Vec<Value>,
    /// Shapes of the arrays that vary, where they have more than one varying side. With one, the bytes tell it; so
    /// an empty shape is one that is left to be worked out.
    pub shapes: Vec<Vec<usize>>,
    /// Of sounds: the part that the sample is, where it is not all of what was fetched. May be shorter than the fields.
    pub spans: Vec<Option<Span>>,
    /// Byte offset of each field in the file or shard it was read from (0 for a whole file).
    pub offsets: Vec<u64>,
    /// It came from a cache or is in one: packed coefficients in it are sound.
    pub(crate) cached: bool,
}

impl Record {
    /// Makes room for `fields` values, keeping the buffers of earlier ones.
    pub fn reset(&mut self, fields: usize) {
        self.cached = false;
        self.values.resize_with(fields, Value::default);
        self.shapes.resize_with(fields, Vec::new);
        self.shapes.iter_mut().for_each(Vec::clear);
        self.spans.clear();
        self.offsets.clear();
        self.offsets.resize(fields, 0);
    }

    /// Bytes of all values.
    pub fn len(&self) -> usize {
        self.values.iter().map(Value::len).sum()
    }

    /// True if no value holds bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes this record keeps allocated.
    pub fn capacity(&self) -> usize {
        self.values.iter().map(|v| if let Value::Bytes(b) = v { b.capacity() } else { 0 }).sum()
    }
}
