//! Which features of `tf.train.Example` and `tf.train.SequenceExample` a sample has, as data, and what they become.
//!
//! The forms are those of `tf.io.parse_example`: `FixedLenFeature`, `VarLenFeature`, `RaggedFeature`, and
//! `FixedLenSequenceFeature`.

use serde::{Deserialize, Serialize};

use crate::{
    Error, Result,
    sample::{DType, FieldKind},
};

/// Elements that one feature of a fixed shape may have.
const MOST: usize = 1 << 30;

/// One feature of a sample.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeatureSpec {
    /// Name of the field.
    pub name: String,
    /// Name of the feature in the record, if it is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// What its values are.
    pub dtype: FeatureType,
    /// How many there are.
    pub form: FeatureForm,
    /// Values for records that lack it. Of `fixed_len` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<FeatureDefault>,
}

/// What the values of a feature are: numbers, or byte strings that are taken for something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeatureType {
    /// `int64_list`.
    Int64,
    /// `float_list`.
    Float32,
    /// `bytes_list`: byte strings as they are.
    String,
    /// UTF-8 texts.
    Text,
    /// JSON texts, parsed.
    Json,
    /// Encoded images (JPEG, PNG).
    Image,
    /// Encoded masks: PNGs of one channel, with a palette or in grey.
    Mask,
}

impl FeatureType {
    /// Whether values are in a `bytes_list`.
    pub(super) fn is_bytes(self) -> bool {
        !matches!(self, Self::Int64 | Self::Float32)
    }

    /// As the user writes it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Int64 => "int64",
            Self::Float32 => "float32",
            Self::String => "string",
            Self::Text => "text",
            Self::Json => "json",
            Self::Image => "image",
            Self::Mask => "mask",
        }
    }
}

/// How many values a feature has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeatureForm {
    /// As many as the shape has elements (`FixedLenFeature`).
    FixedLen(Vec<usize>),
    /// Any number (`VarLenFeature`, `RaggedFeature`), or none where the record lacks it.
    VarLen,
    /// Any number of rows of this shape (`RaggedFeature` with `UniformRowLength`s).
    Rows(Vec<usize>),
    /// Any number of steps of this shape (`FixedLenSequenceFeature`): in an `Example` one behind the other, in the
    /// feature lists of a `SequenceExample` one feature each.
    Sequence {
        /// Shape of one step.
        shape: Vec<usize>,
        /// Whether a record that lacks it has no steps, instead of being an error.
        #[serde(default)]
        allow_missing: bool,
    },
}

/// Values that stand for a missing feature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeatureDefault {
    /// Of int64.
    Int64(Vec<i64>),
    /// Of float32: their bits, as JSON has no NaN.
    Float32Bits(Vec<u32>),
    /// Of a byte string.
    Bytes(Vec<u8>),
}

impl FeatureDefault {
    fn len(&self) -> usize {
        match self {
            Self::Int64(values) => values.len(),
            Self::Float32Bits(values) => values.len(),
            Self::Bytes(_) => 1,
        }
    }
}

impl FeatureSpec {
    /// Name of the feature in the record.
    pub(super) fn key(&self) -> &str {
        self.key.as_deref().unwrap_or(&self.name)
    }

    /// Sizes of the sides that are fixed.
    pub(super) fn inner(&self) -> &[usize] {
        match &self.form {
            FeatureForm::FixedLen(shape) | FeatureForm::Rows(shape) => shape,
            FeatureForm::Sequence { shape, .. } => shape,
            FeatureForm::VarLen => &[],
        }
    }

    /// Values in one row or step.
    pub(super) fn row(&self) -> usize {
        self.inner().iter().product()
    }

    pub(super) fn is_fixed(&self) -> bool {
        matches!(self.form, FeatureForm::FixedLen(_))
    }

    /// Whether it is one byte string.
    pub(super) fn is_one_string(&self) -> bool {
        self.dtype.is_bytes() && matches!(&self.form, FeatureForm::FixedLen(shape) if shape.is_empty())
    }

    /// What it becomes; `steps`: of feature lists.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] for what cannot be done, with a way that can.
    pub(super) fn kind(&self, steps: bool) -> Result<FieldKind> {
        let (name, dtype) = (&self.name, self.dtype);
        let refuse = |what: String| Err(Error::config(format!("feature {name}: {what}")));
        let elements = self.inner().iter().try_fold(1_usize, |n, side| n.checked_mul(*side));
        if elements.is_none_or(|elements| elements > MOST) {
            return refuse(format!("shape {:?} has too many elements", self.inner()));
        }
        if elements == Some(0) {
            return refuse(format!("shape {:?} has no elements", self.inner()));
        }
        if steps && !matches!(self.form, FeatureForm::Sequence { .. }) {
            return refuse(
                "a feature list is read as FixedLenSequenceFeature: each step has a fixed shape".to_owned(),
            )
            .map_err(|e| e.with_hint("FixedLenSequenceFeature([], dtype) is for one value a step"));
        }
        if !steps && matches!(self.form, FeatureForm::Sequence { allow_missing: false, .. }) {
            return refuse(
                "FixedLenSequenceFeature needs allow_missing=True, as in tf.io.parse_example".to_owned(),
            );
        }
        if let Some(default) = &self.default {
            let fits = match default {
                FeatureDefault::Int64(_) => dtype == FeatureType::Int64,
                FeatureDefault::Float32Bits(_) => dtype == FeatureType::Float32,
                FeatureDefault::Bytes(_) => dtype.is_bytes(),
            };
            if !self.is_fixed() || !fits || default.len() != self.row() {
                return refuse(format!("the default has {} values that are not of its form", default.len()));
            }
        }
        let number = match dtype {
            FeatureType::Int64 => DType::Int64,
            FeatureType::Float32 => DType::Float32,
            bytes if self.is_one_string() => {
                return Ok(match bytes {
                    FeatureType::Text => FieldKind::Text,
                    FeatureType::Json => FieldKind::Json,
                    FeatureType::Image => FieldKind::Image,
                    FeatureType::Mask => FieldKind::Mask { dtype: DType::UInt8, grey: false },
                    _ => FieldKind::Bytes,
                });
            }
            // Several texts are a list, which JSON can be.
            FeatureType::Text if self.inner().len() <= usize::from(self.is_fixed()) => {
                if self.default.is_some() {
                    return refuse("a list of texts has no default".to_owned());
                }
                return Ok(FieldKind::Json);
            }
            other => {
                return refuse(format!("several values of dtype {:?} in one sample are not supported", other.name()))
                    .map_err(|e| {
                        e.with_hint(
                            "FixedLenFeature([], \"string\") is one byte string, VarLenFeature(\"text\") a list of \
                             texts",
                        )
                    });
            }
        };
        Ok(match &self.form {
            FeatureForm::FixedLen(shape) if shape.is_empty() => FieldKind::Scalar { dtype: number },
            FeatureForm::FixedLen(shape) => FieldKind::array(number, shape),
            _ => {
                let shape = std::iter::once(None).chain(self.inner().iter().copied().map(Some)).collect();
                FieldKind::Array { dtype: number, shape }
            }
        })
    }
}
