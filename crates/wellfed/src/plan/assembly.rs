//! How the samples of a batch are put together, as data, and what that makes of each field's column.

use half::{bf16, f16};
use serde::{Deserialize, Serialize};

use super::{Node, program::FieldProgram};
use crate::{
    Error, Result,
    engine::{
        ColumnKind,
        stack::{Padding, Stacking},
    },
    sample::{DType, FieldKind, FieldSpec},
};

/// What arrays that differ in size are padded to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Pad {
    /// Shape of each field, in order; `None` as a side is that of the largest array of the batch, `None` as a shape
    /// leaves all sides that vary to the batch.
    pub padded_shapes: Option<Vec<Option<Vec<Option<usize>>>>>,
    /// What each field is filled up with, in order. `None` is 0.
    pub padding_values: Option<Vec<Option<PadValue>>>,
    /// Sides that are left to the batch are rounded up to a multiple of this. `None` is 1.
    pub multiple_of: Option<usize>,
    /// Whether the lengths of arrays before padding are handed out beside them.
    pub lengths: bool,
}

/// A number to pad with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PadValue {
    /// A whole number, negative perhaps.
    Int(i64),
    /// One that is larger.
    Unsigned(u64),
    /// Another number.
    Float(f64),
    /// What JSON has no number for: `nan`, `inf`, `-inf`.
    Named(String),
}

impl PadValue {
    /// One element of `dtype`, in native byte order.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] for a number that `dtype` cannot hold.
    pub(crate) fn element(&self, dtype: DType) -> Result<Vec<u8>> {
        let refused = || {
            let text = match self {
                Self::Int(value) => value.to_string(),
                Self::Unsigned(value) => value.to_string(),
                Self::Float(value) => value.to_string(),
                Self::Named(name) => name.clone(),
            };
            Error::config(format!("padding value {text} is no {}", dtype.name()))
        };
        let whole = match self {
            Self::Int(value) => Some(i128::from(*value)),
            Self::Unsigned(value) => Some(i128::from(*value)),
            Self::Float(value) if value.fract() == 0.0 && value.abs() < 1e18 => Some(*value as i128),
            Self::Float(_) | Self::Named(_) => None,
        };
        let float = match self {
            Self::Int(value) => Some(*value as f64),
            Self::Unsigned(value) => Some(*value as f64),
            Self::Float(value) => Some(*value),
            Self::Named(name) => match name.as_str() {
                "nan" => Some(f64::NAN),
                "inf" => Some(f64::INFINITY),
                "-inf" => Some(f64::NEG_INFINITY),
                _ => None,
            },
        };
        macro_rules! whole {
            ($type:ty) => {
                whole
                    .and_then(|value| <$type>::try_from(value).ok())
                    .map(|value| value.to_ne_bytes().to_vec())
            };
        }
        let bytes = match dtype {
            DType::Bool => whole.filter(|value| matches!(value, 0 | 1)).map(|value| vec![value as u8]),
            DType::UInt8 => whole!(u8),
            DType::Int8 => whole!(i8),
            DType::UInt16 => whole!(u16),
            DType::Int16 => whole!(i16),
            DType::UInt32 => whole!(u32),
            DType::Int32 => whole!(i32),
            DType::UInt64 => whole!(u64),
            DType::Int64 => whole!(i64),
            DType::Float16 => float.map(|value| f16::from_f64(value).to_ne_bytes().to_vec()),
            DType::BFloat16 => float.map(|value| bf16::from_f64(value).to_ne_bytes().to_vec()),
            DType::Float32 => float.map(|value| (value as f32).to_ne_bytes().to_vec()),
            DType::Float64 => float.map(|value| value.to_ne_bytes().to_vec()),
        };
        bytes.ok_or_else(refused)
    }
}

/// How the samples of a batch are put together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Assembly<'a> {
    /// There is one sample, without a batch.
    Alone,
    /// All values of a field have one size.
    Stacked,
    /// Values that differ in size are padded.
    Padded(&'a Pad),
    /// Values that differ in size come one after the other.
    Ragged,
    /// Values that differ in size come as a list.
    List,
}

impl<'a> Assembly<'a> {
    /// How the elements of `node` are put together.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] if that differs from element to element.
    pub(crate) fn of(node: &'a Node) -> Result<Self> {
        match node {
            Node::Batch { .. } => Ok(Self::Stacked),
            Node::PaddedBatch { pad, .. } | Node::BatchByTokens { pad, .. } => Ok(Self::Padded(pad)),
            Node::BucketBySequenceLength { no_padding: true, .. } | Node::RaggedBatch { .. } => {
                Ok(Self::Ragged)
            }
            Node::BucketBySequenceLength { pad, .. } => Ok(Self::Padded(pad)),
            Node::Unbatch { .. } => Ok(Self::Alone),
            _ => {
                let mut found = None;
                for input in node.inputs() {
                    let other = Self::of(input)?;
                    if *found.get_or_insert(other) != other {
                        return Err(Error::config(format!(
                            "{}(): samples are put together in one way in some data sets and in another in others",
                            node.name()
                        ))
                        .with_hint("batch after it"));
                    }
                }
                Ok(found.unwrap_or(Self::Alone))
            }
        }
    }

    /// Checks what does not depend on fields.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] for shapes or values of another number of fields.
    pub(crate) fn check(&self, fields: usize) -> Result<()> {
        let Self::Padded(pad) = self else { return Ok(()) };
        if pad.multiple_of == Some(0) {
            return Err(Error::config("multiple_of is 0; it must be at least 1"));
        }
        let counts = [
            ("padded_shapes", pad.padded_shapes.as_ref().map(Vec::len)),
            ("padding_values", pad.padding_values.as_ref().map(Vec::len)),
        ];
        for (name, count) in counts {
            if let Some(count) = count.filter(|count| *count != fields) {
                return Err(Error::config(format!("{name} has {count} entries for {fields} fields")));
            }
        }
        Ok(())
    }

    /// How the values of a field that has no operations get into its column. `number` is its place in the schema.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] where they cannot.
    pub(crate) fn column(&self, number: usize, field: &FieldSpec) -> Result<(FieldProgram, ColumnKind)> {
        let fixed = |shape: Vec<usize>, dtype| ColumnKind::Array { dtype, shape };
        match &field.kind {
            FieldKind::Array { dtype, shape } => {
                let stacking = match self {
                    Self::Padded(pad) => Some(padding(pad, number, field, *dtype, shape)?),
                    _ if !field.kind.varies() => None,
                    Self::Alone => Some(Stacking::Alone),
                    Self::List => Some(Stacking::List),
                    Self::Ragged if !shape[1..].contains(&None) => Some(Stacking::Ragged),
                    Self::Ragged => {
                        return Err(Error::config(format!(
                            "ragged_batch(): {} varies in more than its first dimension",
                            field.name
                        ))
                        .with_hint("padded_batch() takes arrays of any shape"));
                    }
                    Self::Stacked => {
                        return Err(Error::config(format!(
                            "batch(): {} differs in size from sample to sample",
                            field.name
                        ))
                        .with_hint("use padded_batch(), ragged_batch(), or bucket_by_sequence_length()"));
                    }
                };
                let sides: Option<Vec<usize>> = shape.iter().copied().collect();
                Ok(match (stacking, sides) {
                    (Some(Stacking::Padded(padding)), Some(sides))
                        if !padding.lengths
                            && padding.shape.iter().zip(&sides).all(|(to, have)| *to == Some(*have)) =>
                    {
                        (FieldProgram::Copy, fixed(sides, *dtype))
                    }
                    (Some(stacking), _) => (
                        FieldProgram::Varying,
                        ColumnKind::Varying { dtype: *dtype, shape: shape.clone(), stacking },
                    ),
                    (None, sides) => (FieldProgram::Copy, fixed(sides.unwrap_or_default(), *dtype)),
                })
            }
            &FieldKind::LABEL => Ok((FieldProgram::Int, fixed(Vec::new(), DType::Int64))),
            FieldKind::Scalar { dtype } => Ok((FieldProgram::Copy, fixed(Vec::new(), *dtype))),
            FieldKind::Text => Ok((FieldProgram::List { utf8: true }, ColumnKind::Text)),
            FieldKind::Json => Ok((FieldProgram::List { utf8: true }, ColumnKind::Json)),
            FieldKind::Bytes => Ok((FieldProgram::List { utf8: false }, ColumnKind::Bytes)),
            FieldKind::Image
            | FieldKind::Pixels { .. }
            | FieldKind::Mask { .. }
            | FieldKind::Boxes { .. }
            | FieldKind::BoxLabels { .. }
            | FieldKind::Keypoints => {
                Err(Error::config(format!("{} belongs to images, and has operations", field.name)))
            }
        }
    }
}

fn padding(
    pad: &Pad,
    number: usize,
    field: &FieldSpec,
    dtype: DType,
    shape: &[Option<usize>],
) -> Result<Stacking> {
    let given = pad.padded_shapes.as_ref().and_then(|shapes| shapes.get(number)).and_then(Option::as_ref);
    let sides = given.map_or_else(|| shape.to_vec(), Clone::clone);
    let fits = sides.len() == shape.len()
        && sides.iter().zip(shape).all(|(to, have)| match (to, have) {
            (Some(to), Some(have)) => to >= have,
            _ => true,
        });
    if !fits {
        return Err(Error::config(format!(
            "padded_shapes: {} of shape {} cannot be padded to {}",
            field.name,
            text(shape),
            text(&sides)
        )));
    }
    // A side that does not vary needs no look at the batch.
    let sides = sides.iter().zip(shape).map(|(to, have)| to.or(*have)).collect();
    let value = pad.padding_values.as_ref().and_then(|values| values.get(number)).and_then(Option::as_ref);
    let value =
        value.unwrap_or(&PadValue::Int(0)).element(dtype).map_err(|e| e.with_hint(field.name.clone()))?;
    let lengths = pad.lengths && shape.first() == Some(&None);
    Ok(Stacking::Padded(Padding { shape: sides, value, multiple_of: pad.multiple_of.unwrap_or(1), lengths }))
}

fn text(shape: &[Option<usize>]) -> String {
    let sides: Vec<String> =
        shape.iter().map(|side| side.map_or("None".to_owned(), |side| side.to_string())).collect();
    format!("[{}]", sides.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_padding_value_is_an_element_of_its_type_or_refused() {
        let element = |value: PadValue, dtype| value.element(dtype).ok();
        assert_eq!(element(PadValue::Int(-1), DType::Int16), Some((-1_i16).to_ne_bytes().to_vec()));
        assert_eq!(element(PadValue::Int(-1), DType::UInt16), None);
        assert_eq!(element(PadValue::Int(256), DType::UInt8), None);
        assert_eq!(element(PadValue::Unsigned(u64::MAX), DType::UInt64), Some(vec![255; 8]));
        assert_eq!(element(PadValue::Unsigned(u64::MAX), DType::Int64), None);
        assert_eq!(element(PadValue::Float(0.5), DType::Int64), None);
        assert_eq!(element(PadValue::Float(2.0), DType::Int8), Some(vec![2]));
        assert_eq!(element(PadValue::Int(2), DType::Bool), None);
        let inf = f32::NEG_INFINITY.to_ne_bytes().to_vec();
        assert_eq!(element(PadValue::Named("-inf".into()), DType::Float32), Some(inf));
        assert_eq!(element(PadValue::Named("none".into()), DType::Float32), None);
    }

    #[test]
    fn every_kind_of_field_has_a_column_or_a_reason() {
        let array = |shape: &[Option<usize>]| FieldSpec {
            name: "x".into(),
            kind: FieldKind::Array { dtype: DType::Int32, shape: shape.to_vec() },
        };
        let kind =
            |assembly: Assembly<'_>, field: &FieldSpec| assembly.column(0, field).map(|(_, kind)| kind);
        let (varying, fixed) = (array(&[None]), array(&[Some(3)]));
        assert!(kind(Assembly::Stacked, &varying).unwrap_err().to_string().contains("padded_batch"));
        assert!(matches!(kind(Assembly::Ragged, &fixed), Ok(ColumnKind::Array { .. })));
        assert!(kind(Assembly::Ragged, &array(&[None, None])).is_err());
        let pad = Pad::default();
        assert!(matches!(kind(Assembly::Padded(&pad), &fixed), Ok(ColumnKind::Array { .. })));
        assert!(matches!(kind(Assembly::Padded(&pad), &varying), Ok(ColumnKind::Varying { .. })));
        let to = |side| Pad { padded_shapes: Some(vec![Some(vec![Some(side)])]), ..Pad::default() };
        assert!(matches!(kind(Assembly::Padded(&to(5)), &fixed), Ok(ColumnKind::Varying { .. })));
        assert!(kind(Assembly::Padded(&to(2)), &fixed).is_err());
        assert!(Assembly::Padded(&to(2)).check(2).is_err());
    }
}
