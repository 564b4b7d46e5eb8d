//! TFRecord files of `tf.train.Example`: a feature for each field.
//!
//! Whole numbers and booleans are `int64_list`, floats `float_list`, all else `bytes_list`. An Example knows neither shapes nor
//! dtypes: an array with more than one side that varies has a second feature, `NAME/shape`, and what `float_list` would make
//! less precise is refused.

use std::{path::Path, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Form, OpenShard, Put, refuse_packed, samples_of};
use crate::{
    Error, ErrorKind, Result,
    sample::DType,
    source::{
        FeatureForm, FeatureSpec, FeatureType, IndexMode, Source, TfRecord, TfRecordSpec, example_writer,
        record_frame,
    },
    store::LocalStore,
    write::{
        cell::{Cell, CellKind, Column},
        make::{Body, Made},
        manifest::Listed,
    },
};

/// Bytes around a record.
const FRAME: u64 = 16;

/// TFRecord files with these features.
pub(in crate::write) struct TfRecordForm {
    columns: Vec<Column>,
}

/// What the manifest says of a field.
#[derive(Debug, Serialize, Deserialize)]
struct Described {
    #[serde(flatten)]
    column: Column,
    /// How it is read again.
    features: Vec<FeatureSpec>,
}

impl TfRecordForm {
    /// # Errors
    /// [`ErrorKind::Config`] for dtypes that an Example cannot hold.
    pub(super) fn new(columns: Vec<Column>) -> Result<Self> {
        for Column { name, kind, .. } in &columns {
            let (CellKind::Scalar(dtype) | CellKind::Array(dtype, _)) = kind else { continue };
            if *dtype == DType::Float64 {
                let message = format!("field {name} cannot be written: TFRecord has floats of 32 bits only");
                return Err(Error::config(message).with_hint(
                    "convert it to float32 where that is enough, or write tar shards, MDS or Parquet",
                ));
            }
            let inner = if let CellKind::Array(_, sides) = kind { &sides[..] } else { &[] };
            if inner.iter().flatten().any(|side| *side == 0) {
                return Err(Error::config(format!("field {name} cannot be written: its arrays are empty")));
            }
        }
        for (i, Column { name, .. }) in columns.iter().enumerate() {
            let taken = |other: &Column| other.name == *name || shape_of(other).as_ref() == Some(name);
            if columns[..i].iter().any(taken)
                || columns[i + 1..].iter().any(|c| shape_of(c).as_ref() == Some(name))
            {
                return Err(Error::config(format!("two features would be called {name}"))
                    .with_hint("give the fields other names"));
            }
        }
        Ok(Self { columns })
    }
}

/// The feature that has the shapes of a column.
fn shape_of(column: &Column) -> Option<String> {
    match &column.kind {
        CellKind::Array(_, sides) if sides.iter().skip(1).any(Option::is_none) => {
            Some(format!("{}/shape", column.name))
        }
        _ => None,
    }
}

/// How a column is read again.
fn features_of(column: &Column) -> Vec<FeatureSpec> {
    let feature = |name: String, dtype, form| FeatureSpec { name, key: None, dtype, form, default: None };
    let number = |dtype: DType| if is_float(dtype) { FeatureType::Float32 } else { FeatureType::Int64 };
    let (dtype, form) = match &column.kind {
        CellKind::Image => (FeatureType::Image, FeatureForm::FixedLen(Vec::new())),
        CellKind::Text => (FeatureType::Text, FeatureForm::FixedLen(Vec::new())),
        CellKind::Json => (FeatureType::Json, FeatureForm::FixedLen(Vec::new())),
        CellKind::Bytes => (FeatureType::String, FeatureForm::FixedLen(Vec::new())),
        CellKind::Scalar(dtype) => (number(*dtype), FeatureForm::FixedLen(Vec::new())),
        CellKind::Array(dtype, sides) => {
            let fixed: Option<Vec<usize>> = sides.iter().copied().collect();
            let rows: Option<Vec<usize>> = sides.iter().skip(1).copied().collect();
            let form = match (fixed, rows) {
                (Some(shape), _) => FeatureForm::FixedLen(shape),
                (None, Some(rows)) if !rows.is_empty() => FeatureForm::Rows(rows),
                _ => FeatureForm::VarLen,
            };
            (number(*dtype), form)
        }
    };
    let shape = shape_of(column)
        .map(|name| feature(name, FeatureType::Int64, FeatureForm::FixedLen(vec![sides(column)])));
    [Some(feature(column.name.clone(), dtype, form)), shape].into_iter().flatten().collect()
}

fn sides(column: &Column) -> usize {
    if let CellKind::Array(_, sides) = &column.kind { sides.len() } else { 0 }
}

fn is_float(dtype: DType) -> bool {
    matches!(dtype, DType::Float16 | DType::BFloat16 | DType::Float32 | DType::Float64)
}

impl Form for TfRecordForm {
    fn prepare(&self, cells: Vec<Cell>) -> Result<Body> {
        let mut example = example_writer::Features::default();
        for (column, cell) in self.columns.iter().zip(cells) {
            column.check(&cell)?;
            let name = &column.name;
            match cell {
                Cell::Image(what, bytes) => {
                    refuse_packed(name, what)?;
                    example.bytes(name, &bytes);
                }
                Cell::Bytes(bytes) => example.bytes(name, &bytes),
                Cell::Int(number) => example.ints(name, [number]),
                Cell::Array(dtype, shape, bytes) => {
                    if is_float(dtype) {
                        example.floats(name, floats(dtype, &bytes));
                    } else {
                        example.ints(name, ints(name, dtype, &bytes)?);
                    }
                    if let Some(name) = shape_of(column) {
                        example.ints(&name, shape.iter().map(|side| *side as i64));
                    }
                }
            }
        }
        Ok(Body::Record(record_frame(&example.finish())))
    }

    fn begin(&self) -> Result<Box<dyn OpenShard>> {
        Ok(Box::<RecordShard>::default())
    }

    fn fields(&self) -> serde_json::Value {
        let described =
            |column: &Column| json!(Described { column: column.clone(), features: features_of(column) });
        self.columns.iter().map(described).collect()
    }

    fn look(&self, path: &Path, _listed: &Listed) -> Result<u64> {
        let spec = TfRecordSpec { index: IndexMode::Sidecar, ..TfRecordSpec::new(path.to_string_lossy()) };
        samples_of(&TfRecord::open(Arc::new(LocalStore::with_open_files(1)), spec)?)
    }
}

/// Reads a file again, with all features, and all lengths of records, which an index beside it would spare.
pub(super) fn reader(
    store: Arc<LocalStore>,
    fields: &serde_json::Value,
    path: &str,
) -> Result<Arc<dyn Source>> {
    let described: Vec<Described> = serde_json::from_value(fields.clone())
        .map_err(|e| Error::corrupt(format!("the manifest names no features: {e}")))?;
    let features = described.into_iter().flat_map(|described| described.features).collect();
    let spec = TfRecordSpec { features: Some(features), index: IndexMode::Anew, ..TfRecordSpec::new(path) };
    Ok(Arc::new(TfRecord::open(store, spec)?))
}

/// Numbers of 32 bits that these floats are.
fn floats(dtype: DType, bytes: &[u8]) -> impl Iterator<Item = f32> {
    let size = dtype.size();
    bytes.chunks_exact(size).map(move |number| match (dtype, number) {
        (DType::Float16, [a, b]) => half::f16::from_ne_bytes([*a, *b]).to_f32(),
        (DType::BFloat16, [a, b]) => half::bf16::from_ne_bytes([*a, *b]).to_f32(),
        (_, [a, b, c, d]) => f32::from_ne_bytes([*a, *b, *c, *d]),
        // Others were refused.
        _ => f32::NAN,
    })
}

/// The whole numbers.
///
/// # Errors
/// [`ErrorKind::Unsupported`] for one above the largest that has 64 bits and a sign.
fn ints(name: &str, dtype: DType, bytes: &[u8]) -> Result<Vec<i64>> {
    macro_rules! each {
        ($kind:ty) => {
            bytes
                .chunks_exact(size_of::<$kind>())
                .map(|n| n.try_into().map(<$kind>::from_ne_bytes).unwrap_or_default())
        };
    }
    Ok(match dtype {
        DType::Int8 => each!(i8).map(i64::from).collect(),
        DType::Int16 => each!(i16).map(i64::from).collect(),
        DType::Int32 => each!(i32).map(i64::from).collect(),
        DType::Int64 => each!(i64).collect(),
        DType::UInt16 => each!(u16).map(i64::from).collect(),
        DType::UInt32 => each!(u32).map(i64::from).collect(),
        DType::UInt64 => {
            let large = |number: u64| {
                let message = format!("field {name} is {number}, which int64_list cannot hold");
                Error::new(ErrorKind::Unsupported, message)
            };
            each!(u64).map(|n| i64::try_from(n).map_err(|_| large(n))).collect::<Result<_>>()?
        }
        _ => bytes.iter().copied().map(i64::from).collect(),
    })
}

/// A TFRecord file that is being written.
#[derive(Default)]
struct RecordShard {
    bytes: u64,
}

pub(super) fn record(sample: &Made) -> Result<&[u8]> {
    match &sample.body {
        Body::Record(bytes) => Ok(bytes),
        _ => Err(Error::new(ErrorKind::Internal, "a sample has no record")),
    }
}

impl OpenShard for RecordShard {
    fn size_with(&mut self, sample: &Made) -> Result<u64> {
        Ok(self.bytes + record(sample)?.len() as u64)
    }

    fn add(&mut self, sample: Made, put: &mut Put<'_>) -> Result<u64> {
        let record = record(&sample)?;
        debug_assert!(record.len() as u64 >= FRAME, "a record has a frame");
        put(record)?;
        self.bytes += record.len() as u64;
        Ok(record.len() as u64)
    }

    fn end(self: Box<Self>, _put: &mut Put<'_>) -> Result<Option<serde_json::Value>> {
        Ok(None)
    }
}
