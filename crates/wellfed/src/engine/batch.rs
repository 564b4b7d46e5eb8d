//! What the consumer gets: a [`Batch`] of columns, one per field.

use super::ring::Buffer;
use crate::{sample::DType, transform::Blend};

/// A column of a batch.
#[derive(Debug)]
pub struct Column {
    /// Name of the field.
    pub name: String,
    /// Its values.
    pub data: ColumnData,
    /// Lengths of the values before they were padded, as int64, if the plan asks for them.
    pub lengths: Option<Buffer>,
    /// Which places of each value along the side of lengths are not padding, as bool, if the plan asks for it: as many a value as the
    /// padded side has.
    pub mask: Option<Buffer>,
    /// How a device is to mix the images that it finishes, in order; empty for all others.
    pub blends: Vec<Blend>,
}

/// Values of one field for all samples of a batch.
#[derive(Debug)]
pub enum ColumnData {
    /// Elements in native byte order and C order.
    Array {
        /// Element type.
        dtype: DType,
        /// Shape with the batch dimension first (absent if the plan has no `batch`).
        shape: Vec<usize>,
        /// At least as many bytes as dtype and shape say; the rest has no meaning.
        bytes: Buffer,
    },
    /// Arrays that differ in length, one after the other.
    Ragged {
        /// Element type.
        dtype: DType,
        /// Shape of all values together: the sum of all lengths first.
        shape: Vec<usize>,
        /// At least as many bytes as dtype and shape say.
        bytes: Buffer,
        /// Where values begin, and where the last one ends: int64, one more than there are samples.
        offsets: Buffer,
    },
    /// Arrays of any size, each by itself.
    List {
        /// Element type.
        dtype: DType,
        /// Shape of each.
        shapes: Vec<Vec<usize>>,
        /// Their elements, one array after the other.
        bytes: Buffer,
    },
    /// Text.
    Text(Vec<String>),
    /// JSON texts.
    Json(Vec<String>),
    /// Raw bytes.
    Bytes(Vec<Vec<u8>>),
}

/// Finished samples, in order.
#[derive(Debug)]
pub struct Batch {
    /// One column per field of the source's schema, in its order.
    pub columns: Vec<Column>,
    /// Number of samples; below the batch size at the end of an epoch and where bad samples were skipped.
    pub len: usize,
    /// Epoch it belongs to.
    pub epoch: u64,
    /// Its place in the epoch, from 0.
    pub number: u64,
}

impl Batch {
    /// The column called `name`.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }
}

impl ColumnData {
    /// The bytes that dtype and shape cover, if this is an array, or the values of a ragged one.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            ColumnData::Array { dtype, shape, bytes } | ColumnData::Ragged { dtype, shape, bytes, .. } => {
                Some(&bytes[..dtype.size() * shape.iter().product::<usize>()])
            }
            _ => None,
        }
    }
}

impl ColumnData {
    /// Bytes that all values take.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Array { .. } => self.as_bytes().map_or(0, <[u8]>::len),
            Self::Ragged { offsets, .. } => offsets.len() + self.as_bytes().map_or(0, <[u8]>::len),
            Self::List { dtype, shapes, .. } => {
                shapes.iter().map(|shape| dtype.size() * shape.iter().product::<usize>()).sum()
            }
            Self::Text(texts) | Self::Json(texts) => texts.iter().map(String::capacity).sum(),
            Self::Bytes(all) => all.iter().map(Vec::capacity).sum(),
        }
    }

    /// The consumer holds its buffers from now on.
    pub(crate) fn lend(&mut self) {
        match self {
            Self::Array { bytes, .. } | Self::List { bytes, .. } => bytes.lend(),
            Self::Ragged { bytes, offsets, .. } => {
                bytes.lend();
                offsets.lend();
            }
            Self::Text(_) | Self::Json(_) | Self::Bytes(_) => {}
        }
    }
}
