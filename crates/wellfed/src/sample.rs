//! What a source hands to the engine: a [`Record`] of fields, described by a [`Schema`].
//!
//! A record is reused from sample to sample, so that fetching allocates nothing once buffers have grown.

use serde::{Deserialize, Serialize};

pub use crate::engine::Kept;
use crate::{Limits, transform::BoxFormat};

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

/// What one field of every sample is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FieldKind {
    /// An encoded image (JPEG, PNG), decoded by the engine. In a batch: an array of images.
    Image,
    /// An array of fixed dtype and shape. In a batch: one more dimension in front.
    Array {
        /// Element type.
        dtype: DType,
        /// Shape of one sample, without the batch dimension.
        shape: Vec<usize>,
    },
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
    /// A whole number, such as a class. In a batch: int64.
    Int,
    /// Text (UTF-8). In a batch: a list of strings.
    Text,
    /// JSON text. In a batch: a list of parsed objects (in Rust: of texts).
    Json,
    /// Raw bytes. In a batch: a list of byte strings.
    Bytes,
}

/// Name and kind of one field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldSpec {
    /// Name, such as `image`, `label`, `jpg` or `cls`.
    pub name: String,
    /// What it holds.
    pub kind: FieldKind,
}

/// How the fields of a batch are handed to the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Structure {
    /// The only field itself.
    Single,
    /// A tuple in field order.
    Tuple,
    /// A dict by field name.
    Dict,
}

/// The fields every sample of a source has, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schema {
    /// Fields in order.
    pub fields: Vec<FieldSpec>,
    /// Shape of what the user gets.
    pub structure: Structure,
}

impl Schema {
    /// A schema from (name, kind) pairs.
    pub fn new(structure: Structure, fields: impl IntoIterator<Item = (&'static str, FieldKind)>) -> Self {
        let fields =
            fields.into_iter().map(|(name, kind)| FieldSpec { name: name.to_owned(), kind }).collect();
        Self { fields, structure }
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
    Shared(Kept),
    /// A whole number.
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
    /// One value per field of the schema, in its order.
    pub values: Vec<Value>,
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
