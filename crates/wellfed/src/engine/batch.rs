//! What the consumer gets: a [`Batch`] of columns, one per field.

use super::ring::Buffer;
use crate::sample::DType;

/// A column of a batch.
#[derive(Debug)]
pub struct Column {
    /// Name of the field.
    pub name: String,
    /// Its values.
    pub data: ColumnData,
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
    /// One array a sample, of as many rows as it has.
    Arrays {
        /// Element type.
        dtype: DType,
        /// Shape of one row.
        row: Vec<usize>,
        /// Elements of each sample, in native byte order and C order.
        values: Vec<Vec<u8>>,
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
    /// The bytes that dtype and shape cover, if this is an array.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            ColumnData::Array { dtype, shape, bytes } => {
                Some(&bytes[..dtype.size() * shape.iter().product::<usize>()])
            }
            _ => None,
        }
    }
}

/// What one column of every batch is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ColumnSpec {
    pub(crate) name: String,
    pub(crate) kind: ColumnKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ColumnKind {
    /// Fixed size per sample.
    Array {
        dtype: DType,
        shape: Vec<usize>,
    },
    /// Any number of rows per sample.
    Arrays {
        dtype: DType,
        row: Vec<usize>,
    },
    Text,
    Json,
    Bytes,
}

impl ColumnSpec {
    /// Bytes of one sample in the ring; 0 for lists.
    pub(crate) fn sample_bytes(&self) -> usize {
        match &self.kind {
            ColumnKind::Array { dtype, shape } => dtype.size() * shape.iter().product::<usize>(),
            _ => 0,
        }
    }
}
