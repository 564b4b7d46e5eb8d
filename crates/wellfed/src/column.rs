//! What one column of every batch is: what the plan decides of it, and buffers are made for.

use crate::sample::DType;

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
    /// Sizes differ from sample to sample, or are filled up.
    Varying {
        dtype: DType,
        shape: Vec<Option<usize>>,
        stacking: Stacking,
    },
    Text,
    Json,
    Bytes,
}

impl ColumnSpec {
    /// Sides of one sample behind the first, of a column that varies.
    pub(crate) fn inner(&self) -> &[Option<usize>] {
        match &self.kind {
            ColumnKind::Varying { shape, .. } => shape.get(1..).unwrap_or_default(),
            _ => &[],
        }
    }

    /// True if it is put together after the last sample.
    pub(crate) fn is_stacked(&self) -> bool {
        !matches!(self.kind, ColumnKind::Array { .. })
    }

    /// True for values that do not lie in buffers of the pool.
    pub(crate) fn is_list(&self) -> bool {
        matches!(self.kind, ColumnKind::Text | ColumnKind::Json | ColumnKind::Bytes)
    }

    /// Bytes of one sample in the ring; 0 where they are not known before it is read.
    pub(crate) fn sample_bytes(&self) -> usize {
        match &self.kind {
            ColumnKind::Array { dtype, shape } => dtype.size() * shape.iter().product::<usize>(),
            _ => 0,
        }
    }
}

/// How the arrays of a batch that differ in size become one column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stacking {
    /// There is one sample, without a batch.
    Alone,
    /// Each is filled up to the largest, or to a given size.
    Padded(Padding),
    /// One after the other, with offsets.
    Ragged,
    /// Each by itself.
    List,
}

/// What arrays are filled up to, and with what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Padding {
    /// Sides of the finished array; `None` is that of the largest in the batch.
    pub(crate) shape: Vec<Option<usize>>,
    /// One element, in native byte order.
    pub(crate) value: Vec<u8>,
    /// Sides that are not given are rounded up to a multiple of this.
    pub(crate) multiple_of: usize,
    /// Whether the lengths before padding are handed out as well.
    pub(crate) lengths: bool,
}
