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

/// What one column of every batch looks like, for those who must know before the first batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnShape {
    /// Name of the field.
    pub name: String,
    /// What its values are.
    pub form: ColumnForm,
}

/// Form of the values of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ColumnForm {
    /// One array. `sides` are those of one sample; `None` differs from batch to batch.
    Array {
        /// Type of its elements.
        dtype: DType,
        /// Sides of one sample.
        sides: Vec<Option<usize>>,
        /// Whether the lengths before padding come with it.
        lengths: bool,
        /// The side of a sample whose mask comes with it.
        mask: Option<usize>,
    },
    /// Arrays one after the other, which differ in their first side.
    Ragged {
        /// Type of their elements.
        dtype: DType,
        /// Their other sides.
        inner: Vec<Option<usize>>,
    },
    /// A list of arrays, each by itself.
    List {
        /// Type of their elements.
        dtype: DType,
    },
    /// Text.
    Text,
    /// Values out of JSON.
    Json,
    /// Bytes.
    Bytes,
}

impl From<&ColumnSpec> for ColumnShape {
    fn from(spec: &ColumnSpec) -> Self {
        let form = match &spec.kind {
            ColumnKind::Array { dtype, shape } => ColumnForm::Array {
                dtype: *dtype,
                sides: shape.iter().copied().map(Some).collect(),
                lengths: false,
                mask: None,
            },
            ColumnKind::Varying { dtype, shape, stacking } => match stacking {
                Stacking::Alone => {
                    ColumnForm::Array { dtype: *dtype, sides: shape.clone(), lengths: false, mask: None }
                }
                Stacking::Padded(padding) => ColumnForm::Array {
                    dtype: *dtype,
                    sides: padding.shape.clone(),
                    lengths: padding.lengths.is_some(),
                    mask: padding.mask,
                },
                Stacking::Ragged => ColumnForm::Ragged { dtype: *dtype, inner: spec.inner().to_vec() },
                Stacking::List => ColumnForm::List { dtype: *dtype },
            },
            ColumnKind::Text => ColumnForm::Text,
            ColumnKind::Json => ColumnForm::Json,
            ColumnKind::Bytes => ColumnForm::Bytes,
        };
        Self { name: spec.name.clone(), form }
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
    /// The side whose lengths before padding are handed out as well.
    pub(crate) lengths: Option<usize>,
    /// The side along which a mask is handed out as well: which places are not padding.
    pub(crate) mask: Option<usize>,
}
