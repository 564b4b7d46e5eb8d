//! How the samples of a batch are put together, as data, and what that makes of each field's column.

use super::{
    Node,
    field::FieldProgram,
    pad::{Pad, PadValue},
};
use crate::{
    Error, Result,
    column::{ColumnKind, Padding, Stacking},
    sample::{DType, FieldKind, FieldSpec},
};

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
    /// Values that differ in size come as a list. Of images, only if `images` says so: otherwise all have the size of the
    /// first one.
    List { images: bool },
}

impl<'a> Assembly<'a> {
    /// How the elements of `node` are put together.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] if that differs from element to element.
    pub(crate) fn of(node: &'a Node) -> Result<Self> {
        match node {
            Node::Batch { .. } => Ok(Self::Stacked),
            Node::PaddedBatch { pad, .. }
            | Node::BatchByTokens { pad, .. }
            | Node::BatchByDuration { pad, .. } => Ok(Self::Padded(pad)),
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
        if let Self::Padded(pad) = self
            && !matches!(field.kind, FieldKind::Array { .. })
            && let Some(sides) = padded_shape(pad, number).filter(|sides| !sides.is_empty())
        {
            return Err(Error::config(format!(
                "padded_shapes: {} is no array, and cannot be padded to {}",
                field.name,
                text(sides)
            ))
            .with_hint("give it [] or None"));
        }
        match &field.kind {
            FieldKind::Array { dtype, shape } => {
                let stacking = match self {
                    Self::Padded(pad) => Some(padding(pad, number, field, *dtype, shape)?),
                    _ if !field.kind.varies() => None,
                    Self::Alone => Some(Stacking::Alone),
                    Self::List { .. } => Some(Stacking::List),
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
                        if padding.lengths.is_none()
                            && padding.mask.is_none()
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
            | FieldKind::Audio
            | FieldKind::Mask { .. }
            | FieldKind::Boxes { .. }
            | FieldKind::BoxLabels { .. }
            | FieldKind::Keypoints => {
                Err(Error::config(format!("{} belongs to images or sounds, and has operations", field.name)))
            }
        }
    }
}

/// The shape that field `number` is padded to, if one was given.
fn padded_shape(pad: &Pad, number: usize) -> Option<&Vec<Option<usize>>> {
    pad.padded_shapes.as_ref()?.get(number)?.as_ref()
}

fn padding(
    pad: &Pad,
    number: usize,
    field: &FieldSpec,
    dtype: DType,
    shape: &[Option<usize>],
) -> Result<Stacking> {
    let sides = padded_shape(pad, number).map_or_else(|| shape.to_vec(), Clone::clone);
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
    let side = (shape.first() == Some(&None)).then_some(0);
    Ok(Stacking::Padded(Padding {
        shape: sides,
        value,
        multiple_of: pad.multiple_of.unwrap_or(1),
        lengths: side.filter(|_| pad.lengths),
        mask: side.filter(|_| pad.mask),
    }))
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
        let label = FieldSpec { name: "y".into(), kind: FieldKind::LABEL };
        let no_array = kind(Assembly::Padded(&to(1)), &label).unwrap_err().to_string();
        assert!(no_array.contains("y is no array, and cannot be padded to [1]"), "{no_array}");
        let single = Pad { padded_shapes: Some(vec![Some(vec![])]), ..Pad::default() };
        assert!(matches!(kind(Assembly::Padded(&single), &label), Ok(ColumnKind::Array { .. })));
    }
}
