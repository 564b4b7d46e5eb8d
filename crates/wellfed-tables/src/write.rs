//! Parquet files as they are written: rows become arrays of Arrow, group by group.
//!
//! Images are structs of `bytes` and `path`, and the metadata say what Hugging Face's `datasets` reads: which columns are images,
//! and how classes are called. Nothing in a file depends on when, where and by how many threads it was made.

use std::{
    collections::HashMap,
    io::{self, Write},
    sync::{Arc, Mutex, PoisonError},
};

use ::parquet::{
    arrow::ArrowWriter,
    basic::{Compression, ZstdLevel},
    file::{
        metadata::KeyValue,
        properties::{EnabledStatistics, WriterProperties},
    },
    schema::types::ColumnPath,
};
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, FixedSizeListArray, ListArray, PrimitiveArray, RecordBatch,
    StringArray, StructArray,
    types::{
        Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type,
        UInt16Type, UInt32Type, UInt64Type,
    },
};
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef};
use serde_json::json;
use wellfed::{
    Error, ErrorKind, Result,
    sample::DType,
    write::{Cell, CellKind, Column, Put, TableWriter},
};

use crate::container::guarded;

/// Bytes of one column that become one array: offsets have 31 bits.
const ARRAY_BYTES: usize = 1 << 30;

/// Bytes of images and other byte strings are written so many values at a time, between which a page may end.
const LARGE_VALUES: usize = 16;

/// Lists in lists that one value may have, beside one for each of its bytes.
const LISTS: usize = 1 << 16;

/// Begins a file with these columns.
///
/// # Errors
/// [`ErrorKind::Config`] for dtypes that there are not.
pub(crate) fn make(columns: &[Column]) -> Result<Box<dyn TableWriter>> {
    for (i, Column { name, .. }) in columns.iter().enumerate() {
        if columns[..i].iter().any(|other| other.name == *name) {
            return Err(Error::config(format!("two columns would be called {name}")));
        }
    }
    let fields = columns
        .iter()
        .map(|column| Ok(Field::new(&column.name, data_type(column)?, true)))
        .collect::<Result<Vec<_>>>()?;
    let note = note(columns);
    let metadata: HashMap<String, String> =
        note.iter().map(|note| ("huggingface".to_owned(), note.clone())).collect();
    let schema: SchemaRef = Arc::new(Schema::new_with_metadata(fields, metadata));
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        // Groups end where they are told to.
        .set_max_row_group_row_count(None)
        .set_max_row_group_bytes(None)
        .set_key_value_metadata(note.map(|note| vec![KeyValue::new("huggingface".to_owned(), note)]));
    for Column { name, kind, .. } in columns {
        let path = match kind {
            CellKind::Image => vec![name.clone(), "bytes".to_owned()],
            CellKind::Bytes => vec![name.clone()],
            _ => continue,
        };
        let path = ColumnPath::new(path);
        properties = properties
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_statistics_enabled(path.clone(), EnabledStatistics::None)
            .set_write_batch_size(LARGE_VALUES);
        if *kind == CellKind::Image {
            // They are compressed already.
            properties = properties.set_column_compression(path, Compression::UNCOMPRESSED);
        }
    }
    let out = Bytes::default();
    let writer = ArrowWriter::try_new(out.clone(), schema.clone(), Some(properties.build()));
    let writer = writer.map_err(|e| failed(&e))?;
    let columns = columns.iter().map(Cells::new).collect();
    Ok(Box::new(Table { schema, columns, rows: 0, writer, out }))
}

fn failed(e: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::Internal, format!("rows cannot be written to a Parquet file: {e}"))
}

/// The note of Hugging Face's `datasets`. Of all that it leaves out, types are those of the columns.
fn note(columns: &[Column]) -> Option<String> {
    let feature = |column: &Column| match (&column.kind, &column.classes) {
        (CellKind::Image, _) => Some(json!({ "_type": "Image" })),
        (_, Some(names)) => Some(json!({ "names": names, "_type": "ClassLabel" })),
        _ => None,
    };
    let features: serde_json::Map<String, serde_json::Value> =
        columns.iter().filter_map(|column| Some((column.name.clone(), feature(column)?))).collect();
    (!features.is_empty()).then(|| json!({ "info": { "features": features } }).to_string())
}

fn image() -> Fields {
    Fields::from(vec![Field::new("bytes", DataType::Binary, true), Field::new("path", DataType::Utf8, true)])
}

fn data_type(column: &Column) -> Result<DataType> {
    Ok(match &column.kind {
        CellKind::Image => DataType::Struct(image()),
        CellKind::Text | CellKind::Json => DataType::Utf8,
        CellKind::Bytes => DataType::Binary,
        CellKind::Scalar(dtype) => number(*dtype, &column.name)?,
        CellKind::Array(dtype, sides) => {
            let inner = number(*dtype, &column.name)?;
            sides.iter().rev().fold(inner, |inner, side| {
                let item = Arc::new(Field::new_list_field(inner, true));
                match fixed(*side) {
                    Some(side) => DataType::FixedSizeList(item, side),
                    None => DataType::List(item),
                }
            })
        }
    })
}

/// The size of lists of one size. That of empty ones is not: of those nobody could say how many there are.
fn fixed(side: Option<usize>) -> Option<i32> {
    i32::try_from(side?).ok().filter(|side| *side > 0)
}

fn number(dtype: DType, column: &str) -> Result<DataType> {
    Ok(match dtype {
        DType::Bool => DataType::Boolean,
        DType::UInt8 => DataType::UInt8,
        DType::Int8 => DataType::Int8,
        DType::UInt16 => DataType::UInt16,
        DType::Int16 => DataType::Int16,
        DType::UInt32 => DataType::UInt32,
        DType::Int32 => DataType::Int32,
        DType::UInt64 => DataType::UInt64,
        DType::Int64 => DataType::Int64,
        DType::Float16 => DataType::Float16,
        DType::Float32 => DataType::Float32,
        DType::Float64 => DataType::Float64,
        DType::BFloat16 => {
            let message = format!("column {column} cannot be written: Parquet knows no bfloat16");
            return Err(Error::config(message).with_hint("convert it to float32"));
        }
    })
}

/// What the library has written and nobody has taken yet.
#[derive(Clone, Debug, Default)]
struct Bytes(Arc<Mutex<Vec<u8>>>);

impl Bytes {
    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Write for Bytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Values of one column that have not become an array yet.
struct Cells {
    kind: CellKind,
    bytes: Vec<u8>,
    /// Where each byte string ends.
    ends: Vec<i32>,
    /// Names of images.
    paths: Vec<String>,
    /// For each side that differs, the lengths of its lists.
    lengths: Vec<Vec<usize>>,
}

impl Cells {
    fn new(column: &Column) -> Self {
        let sides = if let CellKind::Array(_, sides) = &column.kind { sides.len() } else { 0 };
        Self {
            kind: column.kind.clone(),
            bytes: Vec::new(),
            ends: Vec::new(),
            paths: Vec::new(),
            lengths: vec![Vec::new(); sides],
        }
    }

    fn add(&mut self, name: &str, cell: Cell) -> Result<()> {
        match (&self.kind, cell) {
            (CellKind::Image, Cell::Image(what, bytes)) => {
                self.string(&bytes);
                self.paths.push(path_of(name, what));
            }
            (CellKind::Text | CellKind::Json, Cell::Bytes(bytes)) => {
                std::str::from_utf8(&bytes)
                    .map_err(|e| Error::new(ErrorKind::Internal, format!("a text is not UTF-8: {e}")))?;
                self.string(&bytes);
            }
            (CellKind::Bytes, Cell::Bytes(bytes)) => self.string(&bytes),
            (CellKind::Scalar(_), Cell::Int(number)) => self.bytes.extend_from_slice(&number.to_ne_bytes()),
            (CellKind::Scalar(_), Cell::Array(_, _, bytes)) => self.bytes.extend_from_slice(&bytes),
            (CellKind::Array(_, sides), Cell::Array(_, shape, bytes)) => {
                let mut lists = 1_usize;
                for ((side, length), lengths) in sides.iter().zip(shape).zip(&mut self.lengths) {
                    if fixed(*side).is_none() {
                        if lists > bytes.len().saturating_add(LISTS) {
                            let what = format!("{lists} lists for {} bytes", bytes.len());
                            return Err(Error::new(ErrorKind::Unsupported, what));
                        }
                        lengths.extend(std::iter::repeat_n(length, lists));
                    }
                    lists = lists.saturating_mul(length);
                }
                self.bytes.extend_from_slice(&bytes);
            }
            (kind, _) => return Err(Error::new(ErrorKind::Internal, format!("a value is no {kind:?}"))),
        }
        Ok(())
    }

    fn string(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        // There are fewer than `ARRAY_BYTES`, and one more value, which was looked at.
        self.ends.push(self.bytes.len() as i32);
    }

    /// The values as an array; then there are none.
    fn array(&mut self) -> Result<ArrayRef> {
        let wrong = |e: arrow_schema::ArrowError| failed(&e);
        let bytes = std::mem::take(&mut self.bytes);
        let ends = std::mem::take(&mut self.ends);
        let offsets = OffsetBuffer::new(std::iter::once(0).chain(ends).collect::<ScalarBuffer<i32>>());
        Ok(match &self.kind {
            CellKind::Image => {
                let bytes = BinaryArray::try_new(offsets, Buffer::from_vec(bytes), None).map_err(wrong)?;
                let paths = StringArray::from_iter_values(std::mem::take(&mut self.paths));
                let columns: Vec<ArrayRef> = vec![Arc::new(bytes), Arc::new(paths)];
                Arc::new(StructArray::try_new(image(), columns, None).map_err(wrong)?)
            }
            CellKind::Text | CellKind::Json => {
                Arc::new(StringArray::try_new(offsets, Buffer::from_vec(bytes), None).map_err(wrong)?)
            }
            CellKind::Bytes => {
                Arc::new(BinaryArray::try_new(offsets, Buffer::from_vec(bytes), None).map_err(wrong)?)
            }
            CellKind::Scalar(dtype) => numbers(*dtype, &bytes),
            CellKind::Array(dtype, sides) => {
                let mut array = numbers(*dtype, &bytes);
                for (side, lengths) in sides.iter().zip(&mut self.lengths).rev() {
                    let item = Arc::new(Field::new_list_field(array.data_type().clone(), true));
                    array = match fixed(*side) {
                        Some(size) => {
                            Arc::new(FixedSizeListArray::try_new(item, size, array, None).map_err(wrong)?)
                        }
                        None => {
                            let offsets = OffsetBuffer::from_lengths(lengths.drain(..));
                            Arc::new(ListArray::try_new(item, offsets, array, None).map_err(wrong)?)
                        }
                    };
                }
                array
            }
        })
    }
}

/// What an image is called: the last part of its sample's name, with what it is.
fn path_of(name: &str, what: &str) -> String {
    let last = name.rsplit('/').next().unwrap_or_default();
    let known = [".jpg", ".jpeg", ".png"];
    if known.iter().any(|ending| last.to_ascii_lowercase().ends_with(ending)) {
        last.to_owned()
    } else {
        format!("{last}.{what}")
    }
}

fn numbers(dtype: DType, bytes: &[u8]) -> ArrayRef {
    macro_rules! array {
        ($kind:ty, $native:ty) => {{
            let number = |bytes: &[u8]| bytes.try_into().map(<$native>::from_ne_bytes).unwrap_or_default();
            let all = bytes.chunks_exact(size_of::<$native>()).map(number);
            Arc::new(PrimitiveArray::<$kind>::from_iter_values(all))
        }};
    }
    match dtype {
        DType::Bool => Arc::new(bytes.iter().map(|byte| Some(*byte != 0)).collect::<BooleanArray>()),
        DType::UInt8 => array!(UInt8Type, u8),
        DType::Int8 => array!(Int8Type, i8),
        DType::UInt16 => array!(UInt16Type, u16),
        DType::Int16 => array!(Int16Type, i16),
        DType::UInt32 => array!(UInt32Type, u32),
        DType::Int32 => array!(Int32Type, i32),
        DType::UInt64 => array!(UInt64Type, u64),
        DType::Int64 => array!(Int64Type, i64),
        // Those of bfloat16 were refused.
        DType::Float16 | DType::BFloat16 => array!(Float16Type, half::f16),
        DType::Float32 => array!(Float32Type, f32),
        DType::Float64 => array!(Float64Type, f64),
    }
}

/// A file that is being written.
struct Table {
    schema: SchemaRef,
    columns: Vec<Cells>,
    /// Rows that have not become arrays yet.
    rows: usize,
    writer: ArrowWriter<Bytes>,
    out: Bytes,
}

impl Table {
    /// Gives the rows to the library.
    fn write(&mut self) -> Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        self.rows = 0;
        let arrays = self.columns.iter_mut().map(Cells::array).collect::<Result<Vec<_>>>()?;
        let batch = RecordBatch::try_new(self.schema.clone(), arrays).map_err(|e| failed(&e))?;
        self.writer.write(&batch).map_err(|e| failed(&e))
    }
}

impl TableWriter for Table {
    fn add(&mut self, name: &str, cells: Vec<Cell>) -> Result<()> {
        if cells.len() != self.columns.len() {
            return Err(Error::new(ErrorKind::Internal, "a row has not a value for each column"));
        }
        if let Some(large) = cells.iter().map(Cell::len).find(|len| *len > ARRAY_BYTES) {
            return Err(Error::limit("a value in a Parquet file", large as u64, ARRAY_BYTES as u64, "bytes"));
        }
        let full = |(column, cell): (&Cells, &Cell)| column.bytes.len() + cell.len() > ARRAY_BYTES;
        if self.columns.iter().zip(&cells).any(full) {
            guarded("rows", || self.write())?;
        }
        for (column, cell) in self.columns.iter_mut().zip(cells) {
            column.add(name, cell)?;
        }
        self.rows += 1;
        Ok(())
    }

    fn end_group(&mut self, put: &mut Put<'_>) -> Result<()> {
        guarded("rows", || {
            self.write()?;
            self.writer.flush().map_err(|e| failed(&e))
        })?;
        put(&self.out.take())
    }

    fn end(self: Box<Self>, put: &mut Put<'_>) -> Result<()> {
        let Self { writer, out, .. } = *self;
        guarded("a footer", || writer.close().map(drop).map_err(|e| failed(&e)))?;
        put(&out.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_called_after_their_samples() {
        for (name, what, path) in [
            ("cat/1.jpg", "jpg", "1.jpg"),
            ("cat/1.JPEG", "jpg", "1.JPEG"),
            ("17", "png", "17.png"),
            ("a/b.c", "jpg", "b.c.jpg"),
        ] {
            assert_eq!(path_of(name, what), path);
        }
    }
}
