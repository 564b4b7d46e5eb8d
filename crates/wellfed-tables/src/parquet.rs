//! Parquet files: the footer is read when a file is opened; then row groups are read column by column.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use ::parquet::{
    arrow::{
        FieldLevels, ProjectionMask,
        arrow_reader::{ParquetRecordBatchReader, RowGroups},
        parquet_to_arrow_field_levels, parquet_to_arrow_schema,
    },
    column::page::{PageIterator, PageReader},
    errors::{ParquetError, Result as ParquetResult},
    file::{
        metadata::{ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData},
        reader::{ChunkReader, Length},
        serialized_reader::SerializedPageReader,
        statistics::Statistics,
    },
};
use arrow_schema::{DataType, SchemaRef};
use bytes::{Buf, Bytes};
use wellfed::{Error, ErrorKind, Result, groups::Growth, source::tables::Condition, store::Store};

use crate::{
    cells::Cells,
    container::{Container, Decoded, GroupInfo, Input, Opened, guarded, read},
    filter::{self, Bounds, Scalar},
    kinds::Column,
    pages::{Checked, walk},
};

/// Bytes read at the end of a file at first: most footers are smaller.
const TAIL: u64 = 64 << 10;

/// Rows that are decoded at once, where that is not too much memory.
const BATCH: u64 = 64 << 10;

/// Bytes that a batch of decoded rows should have at most.
const BATCH_BYTES: u64 = 32 << 20;

/// An open file.
#[derive(Debug)]
pub(crate) struct ParquetFile {
    path: Arc<str>,
    meta: Arc<ParquetMetaData>,
    schema: SchemaRef,
    groups: Vec<GroupInfo>,
}

/// Opens the file at `path`.
///
/// # Errors
/// Those of the store. What is wrong with the file itself is the inner error.
pub(crate) fn open(store: &dyn Store, path: &str) -> Result<Opened> {
    match footer(store, path).and_then(|(meta, size)| ParquetFile::new(path, meta, size)) {
        Ok(file) => Ok(Ok(Arc::new(file))),
        Err(e) if matches!(e.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported) => Ok(Err(e)),
        Err(e) => Err(e),
    }
}

fn footer(store: &dyn Store, path: &str) -> Result<(ParquetMetaData, u64)> {
    let damaged = |what: &str, at: u64| {
        Error::corrupt(format!("{path} is no whole Parquet file: {what}")).with_offset(at)
    };
    let size = store.size(path)?;
    if size < 12 {
        return Err(damaged(&format!("it has {size} bytes"), 0));
    }
    let mut tail = read(store, path, size - TAIL.min(size), TAIL.min(size))?;
    let end = tail.len() - 8;
    match &tail[end + 4..] {
        b"PAR1" => {}
        b"PARE" => return Err(Error::new(ErrorKind::Unsupported, format!("{path} is encrypted"))),
        _ => return Err(damaged("it does not end as they do, and may have been cut", size - 4)),
    }
    let length = tail[end..end + 4].try_into().map_or(0, u32::from_le_bytes);
    let length = u64::from(length);
    if length > size - 12 {
        return Err(damaged(&format!("its footer has {length} bytes, and it {size}"), size - 8));
    }
    if length + 8 > tail.len() as u64 {
        tail = read(store, path, size - 8 - length, length + 8)?;
    }
    let footer = &tail[tail.len() - 8 - length as usize..tail.len() - 8];
    let meta = guarded("the footer", || {
        ParquetMetaDataReader::decode_metadata(footer)
            .map_err(|e| damaged(&format!("its footer is damaged: {e}"), size - 8 - length))
    })?;
    Ok((meta, size))
}

impl ParquetFile {
    fn new(path: &str, meta: ParquetMetaData, size: u64) -> Result<Self> {
        let damaged = |what: String| Error::corrupt(format!("the footer of {path} is damaged: {what}"));
        let described = meta.file_metadata();
        let schema = guarded("the schema", || {
            parquet_to_arrow_schema(described.schema_descr(), described.key_value_metadata())
                .map_err(|e| damaged(e.to_string()))
        })?;
        let leaves = described.schema_descr().num_columns();
        let mut groups = Vec::with_capacity(meta.num_row_groups());
        let mut rows = 0_i64;
        for (number, group) in meta.row_groups().iter().enumerate() {
            let count = group.num_rows();
            rows = rows.saturating_add(count);
            if group.columns().len() != leaves || !(0..=i64::from(u32::MAX)).contains(&count) {
                let columns = group.columns().len();
                return Err(damaged(format!("row group {number} has {count} rows of {columns} columns")));
            }
            let mut offset = size;
            for chunk in group.columns() {
                let (start, length) = place(chunk)
                    .filter(|(start, length)| start.checked_add(*length).is_some_and(|end| end <= size))
                    .ok_or_else(|| {
                        let name = chunk.column_path();
                        damaged(format!(
                            "column {name} of row group {number} lies outside of the file's {size} bytes"
                        ))
                    })?;
                if chunk.uncompressed_size() < 0 || chunk.num_values() < 0 || (count > 0 && length == 0) {
                    return Err(damaged(format!("a column of row group {number} has no size")));
                }
                offset = offset.min(start);
            }
            groups.push(GroupInfo { rows: count.unsigned_abs(), offset });
        }
        if rows != described.num_rows() {
            let all = described.num_rows();
            return Err(damaged(format!("its row groups have {rows} rows, and it {all}")));
        }
        Ok(Self { path: path.into(), meta: Arc::new(meta), schema: Arc::new(schema), groups })
    }

    /// The leaves of a column that are read: all, but of images only the bytes.
    fn leaves(&self, column: &Column) -> Vec<usize> {
        let schema = self.meta.file_metadata().schema_descr();
        (0..schema.num_columns())
            .filter(|leaf| schema.get_column_root_idx(*leaf) == column.root)
            .filter(|leaf| {
                let parts = schema.column(*leaf);
                !column.is_struct() || parts.path().parts().get(1).is_some_and(|part| part == "bytes")
            })
            .collect()
    }

    fn chunks(&self, group: usize, column: &Column) -> impl Iterator<Item = &ColumnChunkMetaData> {
        let group = self.meta.row_group(group);
        self.leaves(column).into_iter().map(move |leaf| group.column(leaf))
    }

    fn column(
        &self,
        input: Input<'_>,
        group: usize,
        column: &Column,
        growth: &Growth<'_>,
    ) -> Result<Decoded> {
        let leaves = self.leaves(column);
        let described = self.meta.file_metadata().schema_descr();
        let rows = self.groups[group].rows;
        let (mut chunks, mut read_bytes, mut dictionary) = (HashMap::new(), 0, 0);
        for leaf in &leaves {
            let meta = self.meta.row_group(group).column(*leaf);
            let (start, length) = place(meta).ok_or_else(|| Error::corrupt("a column has no place"))?;
            let bytes = input.read(&self.path, (start, length), growth)?;
            read_bytes += length;
            let most = u64::try_from(meta.uncompressed_size()).unwrap_or(0);
            let walked = walk(&bytes, start, most)?;
            if i64::try_from(walked.values) != Ok(meta.num_values()) {
                let (found, all) = (walked.values, meta.num_values());
                return Err(
                    Error::corrupt(format!("its pages have {found} values, and it {all}")).with_offset(start)
                );
            }
            dictionary = walked.dictionary.max(dictionary);
            chunks.insert(*leaf, (bytes, start));
        }
        let mask = ProjectionMask::leaves(described, leaves.iter().copied());
        let levels = parquet_to_arrow_field_levels(described, mask, Some(self.schema.fields()))
            .map_err(|e| Error::corrupt(e.to_string()))?;
        let decoded: u64 = self.chunks(group, column).map(|chunk| decoded_bytes(chunk, rows)).sum();
        // A value may be as large as the dictionary, and all rows may have it.
        let largest = (decoded / rows.max(1)).max(if column.size == 1 { dictionary } else { 0 });
        let mut batch = (BATCH_BYTES / largest.max(1)).clamp(1, BATCH);
        let group = OneGroup { meta: self.meta.clone(), group, chunks };
        let result = loop {
            match decode(&levels, &group, batch as usize, rows, growth) {
                // Values of one batch are counted in 31 bits.
                Err(e) if batch > 1 && e.message().contains("overflow") => batch = (batch / 16).max(1),
                result => break result,
            }
        };
        input.give(read_bytes, growth);
        result
    }
}

/// Where a chunk lies: first byte and length.
fn place(chunk: &ColumnChunkMetaData) -> Option<(u64, u64)> {
    let start = chunk.dictionary_page_offset().unwrap_or(chunk.data_page_offset());
    Some((u64::try_from(start).ok()?, u64::try_from(chunk.compressed_size()).ok()?))
}

/// Bytes of a chunk when decoded, as far as the footer tells: dictionaries make files smaller than what they stand for.
fn decoded_bytes(chunk: &ColumnChunkMetaData, rows: u64) -> u64 {
    use ::parquet::basic::Type;
    let values = u64::try_from(chunk.num_values()).unwrap_or(0);
    let bytes = u64::try_from(chunk.uncompressed_size()).unwrap_or(0);
    let wide = match chunk.column_type() {
        Type::BOOLEAN => values,
        // Small numbers are kept as such, and dates become wider.
        Type::INT32 | Type::FLOAT | Type::INT64 | Type::DOUBLE | Type::INT96 => values.saturating_mul(8),
        Type::FIXED_LEN_BYTE_ARRAY => {
            let length = u64::try_from(chunk.column_descr().type_length()).unwrap_or(0);
            values.saturating_mul(length)
        }
        Type::BYTE_ARRAY => {
            let known = chunk.unencoded_byte_array_data_bytes().and_then(|bytes| u64::try_from(bytes).ok());
            known.unwrap_or(0).max(bytes).saturating_add(values.saturating_mul(8))
        }
    };
    wide.saturating_add(rows.saturating_mul(8))
}

fn decode(
    levels: &FieldLevels,
    group: &OneGroup,
    batch: usize,
    rows: u64,
    growth: &Growth<'_>,
) -> Result<Decoded> {
    guarded("it", || {
        let damaged = |e: &dyn std::fmt::Display| Error::corrupt(e.to_string());
        let reader = ParquetRecordBatchReader::try_new_with_row_groups(levels, group, batch, None);
        let mut made = Decoded { batch, chunks: Vec::new(), bad: Vec::new() };
        for batch in reader.map_err(|e| damaged(&e))? {
            let batch = batch.map_err(|e| damaged(&e))?;
            let array = batch.columns().first().ok_or_else(|| Error::corrupt("a batch has no column"))?;
            let cells = Cells::of(array)?;
            growth.take(cells.bytes() as u64)?;
            made.chunks.push(cells);
        }
        let found = made.rows() as u64;
        let uneven = made.chunks.iter().rev().skip(1).any(|cells| cells.rows() != made.batch);
        if found != rows || uneven {
            return Err(Error::corrupt(format!("it has {found} rows, and its row group {rows}")));
        }
        Ok(made)
    })
}

impl Container for ParquetFile {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn groups(&self) -> &[GroupInfo] {
        &self.groups
    }

    fn parts(&self, columns: usize) -> usize {
        columns
    }

    fn bytes(&self, group: usize, columns: &[&Column]) -> u64 {
        let rows = self.groups[group].rows;
        let chunks = columns.iter().flat_map(|column| self.chunks(group, column));
        chunks.map(|chunk| decoded_bytes(chunk, rows) + place(chunk).map_or(0, |(_, length)| length)).sum()
    }

    fn ranges(&self, group: usize, columns: &[&Column]) -> Vec<(u64, u64)> {
        columns.iter().flat_map(|column| self.chunks(group, column)).filter_map(place).collect()
    }

    fn decode(
        &self,
        input: Input<'_>,
        group: usize,
        columns: &[&Column],
        growth: &Growth<'_>,
    ) -> Result<(Vec<Decoded>, u64)> {
        let one = |column: &&Column| {
            guarded("it", || self.column(input, group, column, growth)).map_err(|e| {
                let what = format!("column {:?} of row group {group} of {}: ", column.name, self.path);
                named(&e, &what).with_offset(self.groups[group].offset)
            })
        };
        let made = columns.iter().map(one).collect::<Result<Vec<Decoded>>>()?;
        let held = made.iter().map(Decoded::bytes).sum();
        Ok((made, held))
    }

    fn excludes(&self, group: usize, column: &Column, condition: &Condition) -> bool {
        let leaves = self.leaves(column);
        let ([leaf], false) = (&leaves[..], column.is_struct()) else { return false };
        let chunk = self.meta.row_group(group).column(*leaf);
        let descr = chunk.column_descr();
        if descr.max_rep_level() > 0 {
            return false;
        }
        let Some(bounds) = chunk.statistics().and_then(|found| bounds(found, &column.data_type)) else {
            return false;
        };
        filter::excludes(condition, &bounds)
    }
}

/// `error`, whose fact is said of `what`.
pub(crate) fn named(error: &Error, what: &str) -> Error {
    let mut named = Error::new(error.kind(), format!("{what}{}", error.message()));
    if let Some(offset) = error.offset() {
        named = named.with_offset(offset);
    }
    match error.hint() {
        Some(hint) => named.with_hint(hint),
        None => named,
    }
}

/// The least and the greatest value of a chunk, if both are known to be bounds.
fn bounds(statistics: &Statistics, data_type: &DataType) -> Option<Bounds> {
    if statistics.is_min_max_deprecated() {
        return None;
    }
    let unsigned = data_type.is_unsigned_integer();
    let small = |value: i32| if unsigned { i128::from(value as u32) } else { i128::from(value) };
    let large = |value: i64| if unsigned { i128::from(value as u64) } else { i128::from(value) };
    // Times may be kept in another unit than that of the values.
    let whole = data_type.is_integer() || matches!(data_type, DataType::Date32);
    let (least, greatest) = match statistics {
        Statistics::Int32(found) if whole => {
            (Scalar::Int(small(*found.min_opt()?)), Scalar::Int(small(*found.max_opt()?)))
        }
        Statistics::Int64(found) if whole => {
            (Scalar::Int(large(*found.min_opt()?)), Scalar::Int(large(*found.max_opt()?)))
        }
        Statistics::Float(found) => {
            (Scalar::Float((*found.min_opt()?).into()), Scalar::Float((*found.max_opt()?).into()))
        }
        Statistics::Double(found) => (Scalar::Float(*found.min_opt()?), Scalar::Float(*found.max_opt()?)),
        Statistics::ByteArray(found)
            if matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View) =>
        {
            let text =
                |bytes: &[u8]| std::str::from_utf8(bytes).ok().map(|text| Scalar::Text(text.to_owned()));
            (text(found.min_opt()?.data())?, text(found.max_opt()?.data())?)
        }
        _ => return None,
    };
    Some(Bounds { least, greatest })
}

/// The chunks of one row group that were read.
struct OneGroup {
    meta: Arc<ParquetMetaData>,
    group: usize,
    /// Bytes by leaf, and where they begin in the file.
    chunks: HashMap<usize, (Bytes, u64)>,
}

impl RowGroups for OneGroup {
    fn num_rows(&self) -> usize {
        usize::try_from(self.meta.row_group(self.group).num_rows()).unwrap_or(0)
    }

    fn column_chunks(&self, leaf: usize) -> ParquetResult<Box<dyn PageIterator>> {
        let missing = || ParquetError::General(format!("column {leaf} was not read"));
        let (bytes, start) = self.chunks.get(&leaf).ok_or_else(missing)?;
        let meta = self.meta.row_group(self.group).column(leaf);
        let reader = Arc::new(Chunk { bytes: bytes.clone(), start: *start });
        let pages = SerializedPageReader::new(reader, meta, self.num_rows(), None)?;
        let descr = meta.column_descr();
        let pages: Box<dyn PageReader> = Box::new(Checked {
            inner: pages,
            physical: descr.physical_type(),
            length: usize::try_from(descr.type_length()).unwrap_or(0),
            levels: (descr.max_rep_level(), descr.max_def_level()),
        });
        Ok(Box::new(One(Mutex::new(Some(pages)))))
    }

    fn row_groups(&self) -> Box<dyn Iterator<Item = &RowGroupMetaData> + '_> {
        Box::new(std::iter::once(self.meta.row_group(self.group)))
    }

    fn metadata(&self) -> &ParquetMetaData {
        &self.meta
    }
}

/// The pages of the one chunk of a column that there is.
struct One(Mutex<Option<Box<dyn PageReader>>>);

impl Iterator for One {
    type Item = ParquetResult<Box<dyn PageReader>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner).take().map(Ok)
    }
}

impl PageIterator for One {}

/// The bytes of a chunk, at their place in the file.
struct Chunk {
    bytes: Bytes,
    start: u64,
}

impl Chunk {
    fn from(&self, start: u64) -> ParquetResult<Bytes> {
        let at = start.checked_sub(self.start).and_then(|at| usize::try_from(at).ok());
        match at.filter(|at| *at <= self.bytes.len()) {
            Some(at) => Ok(self.bytes.slice(at..)),
            None => Err(ParquetError::EOF(format!("byte {start} lies outside of the column"))),
        }
    }
}

impl Length for Chunk {
    fn len(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

impl ChunkReader for Chunk {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> ParquetResult<Self::T> {
        Ok(self.from(start)?.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        let rest = self.from(start)?;
        if length > rest.len() {
            return Err(ParquetError::EOF(format!(
                "{length} bytes at byte {start} lie outside of the column"
            )));
        }
        Ok(rest.slice(..length))
    }
}
