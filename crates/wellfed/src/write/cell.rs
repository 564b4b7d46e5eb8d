//! [`Cell`]: the value of one field of a sample that is to be written, and [`Column`]: what all of a field's cells are, for
//! the formats that say so before the first sample.

use serde::{Deserialize, Serialize};

use super::fields::Field;
use crate::{
    Error, ErrorKind, Result,
    sample::{DType, FieldKind},
};

/// One value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    /// An encoded image or mask, and what it is: `jpg`, `png` or, packed, `wfpc`.
    Image(&'static str, Vec<u8>),
    /// A whole number of 64 bits.
    Int(i64),
    /// A text, JSON or other bytes.
    Bytes(Vec<u8>),
    /// Numbers: their dtype, shape and bytes. One by itself has no side.
    Array(DType, Vec<usize>, Vec<u8>),
}

impl Cell {
    /// Bytes of the value.
    pub fn len(&self) -> usize {
        match self {
            Self::Image(_, bytes) | Self::Bytes(bytes) | Self::Array(_, _, bytes) => bytes.len(),
            Self::Int(_) => 8,
        }
    }

    /// True if it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that it keeps allocated.
    pub(super) fn capacity(&self) -> usize {
        match self {
            Self::Image(_, bytes) | Self::Bytes(bytes) | Self::Array(_, _, bytes) => bytes.capacity(),
            Self::Int(_) => 0,
        }
    }
}

/// What the cells of a column are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CellKind {
    /// Encoded images.
    Image,
    /// UTF-8.
    Text,
    /// JSON.
    Json,
    /// Bytes.
    Bytes,
    /// One number each.
    Scalar(DType),
    /// Arrays of one dtype and number of sides; `None` for sides that differ.
    Array(DType, Vec<Option<usize>>),
}

/// A field of all samples.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// What it is called.
    pub name: String,
    /// What its values are.
    pub kind: CellKind,
    /// Names of classes, if that is what its numbers stand for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classes: Option<Vec<String>>,
}

/// The columns that `fields` become, of which a first sample has the values `first`.
pub(super) fn columns(fields: &[Field], first: &[Cell]) -> Vec<Column> {
    let column = |(field, cell): (&Field, &Cell)| Column {
        name: field.name.clone(),
        kind: kind_of(&field.kind, cell),
        classes: None,
    };
    fields.iter().zip(first).map(column).collect()
}

fn kind_of(kind: &FieldKind, cell: &Cell) -> CellKind {
    let (dtype, count) = match cell {
        Cell::Image(..) => return CellKind::Image,
        Cell::Int(_) => return CellKind::Scalar(DType::Int64),
        Cell::Bytes(_) => {
            return match kind {
                FieldKind::Text => CellKind::Text,
                FieldKind::Json => CellKind::Json,
                _ => CellKind::Bytes,
            };
        }
        Cell::Array(dtype, shape, _) => (*dtype, shape.len()),
    };
    let sides = match kind {
        FieldKind::Scalar { .. } => Vec::new(),
        FieldKind::Array { shape, .. } => shape.clone(),
        FieldKind::Boxes { .. } => vec![None, Some(4)],
        FieldKind::BoxLabels { .. } => vec![None],
        FieldKind::Keypoints => vec![None, Some(2)],
        // An image that a transform has made numbers of.
        _ => vec![None; count],
    };
    match (sides.len() == count, count) {
        (_, 0) => CellKind::Scalar(dtype),
        (true, _) => CellKind::Array(dtype, sides),
        (false, _) => CellKind::Array(dtype, vec![None; count]),
    }
}

impl Column {
    /// # Errors
    /// [`ErrorKind::Shape`] for a value that is none of this column.
    pub(super) fn check(&self, cell: &Cell) -> Result<()> {
        let fits = match (&self.kind, cell) {
            (CellKind::Image, Cell::Image(..))
            | (CellKind::Bytes, Cell::Bytes(_))
            | (CellKind::Scalar(DType::Int64), Cell::Int(_)) => true,
            (CellKind::Text | CellKind::Json, Cell::Bytes(bytes)) => {
                std::str::from_utf8(bytes).map_err(|e| {
                    let message =
                        format!("field {} is not UTF-8: byte {} is invalid", self.name, e.valid_up_to());
                    Error::corrupt(message)
                })?;
                true
            }
            (CellKind::Scalar(dtype), Cell::Array(own, shape, bytes)) => {
                dtype == own && shape.is_empty() && bytes.len() == dtype.size()
            }
            (CellKind::Array(dtype, sides), Cell::Array(own, shape, bytes)) => {
                let size = shape.iter().try_fold(dtype.size(), |size, side| size.checked_mul(*side));
                dtype == own
                    && size == Some(bytes.len())
                    && sides.len() == shape.len()
                    && sides.iter().zip(shape).all(|(want, have)| want.is_none_or(|want| want == *have))
            }
            _ => false,
        };
        if fits {
            return Ok(());
        }
        let found = match cell {
            Cell::Image(what, _) => format!("an image ({what})"),
            Cell::Int(_) => "a whole number".to_owned(),
            Cell::Bytes(bytes) => format!("{} bytes", bytes.len()),
            Cell::Array(dtype, shape, _) => format!("{} {shape:?}", dtype.name()),
        };
        let message = format!("field {} is {found}, and by the first sample {:?}", self.name, self.kind);
        Err(Error::new(ErrorKind::Shape, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_sample_says_what_columns_are_and_others_are_held_to_it() {
        let array = |dtype, shape: &[usize]| {
            let size = shape.iter().product::<usize>() * DType::size(dtype);
            Cell::Array(dtype, shape.to_vec(), vec![0; size])
        };
        let varying = FieldKind::Array { dtype: DType::Int32, shape: vec![None, Some(2)] };
        for (kind, first, expected, good, bad) in [
            (
                FieldKind::Image,
                Cell::Image("jpg", vec![1]),
                CellKind::Image,
                Cell::Image("png", vec![]),
                Cell::Bytes(vec![1]),
            ),
            (
                FieldKind::Image,
                array(DType::Float32, &[3, 4, 4]),
                CellKind::Array(DType::Float32, vec![None; 3]),
                array(DType::Float32, &[3, 9, 1]),
                array(DType::Float32, &[3, 9]),
            ),
            (
                FieldKind::LABEL,
                Cell::Int(3),
                CellKind::Scalar(DType::Int64),
                Cell::Int(-1),
                array(DType::Int32, &[]),
            ),
            (
                varying,
                array(DType::Int32, &[0, 2]),
                CellKind::Array(DType::Int32, vec![None, Some(2)]),
                array(DType::Int32, &[7, 2]),
                array(DType::Int32, &[2, 3]),
            ),
            (
                FieldKind::Keypoints,
                array(DType::Float32, &[1, 2]),
                CellKind::Array(DType::Float32, vec![None, Some(2)]),
                array(DType::Float32, &[5, 2]),
                array(DType::Float64, &[5, 2]),
            ),
            (FieldKind::Json, Cell::Bytes(b"{}".to_vec()), CellKind::Json, Cell::Bytes(vec![]), Cell::Int(1)),
        ] {
            let field = Field { column: 0, name: "x".into(), kind };
            let columns = columns(&[field], &[first]);
            assert_eq!(columns[0].kind, expected);
            columns[0].check(&good).unwrap();
            let e = columns[0].check(&bad).unwrap_err();
            assert!(e.kind() == ErrorKind::Shape && e.message().contains("field x is"), "{e}");
        }
        let column =
            Column { name: "x".into(), kind: CellKind::Array(DType::Int16, vec![None]), classes: None };
        assert!(column.check(&Cell::Array(DType::Int16, vec![2], vec![0; 3])).is_err(), "too few bytes");
    }
}
