//! Arrow's own format, as files (which Feather, version 2, is as well) and as streams, which Hugging Face's `datasets` writes.
//!
//! Where record batches begin is known from a file's footer, or found by going from message to message, which a stream needs,
//! and a file that lost its footer. Format: <https://arrow.apache.org/docs/format/Columnar.html#serialization-and-interprocess-communication-ipc>.

use std::sync::Arc;

use arrow_buffer::Buffer;
use arrow_ipc::{
    Block, MessageHeader, MetadataVersion, convert::try_fb_to_schema, reader::FileDecoder, root_as_footer,
    root_as_message,
};
use arrow_schema::SchemaRef;
use wellfed::{Error, ErrorKind, Result, groups::Growth, store::Store};

use crate::{
    cells::Cells,
    container::{Container, Decoded, GroupInfo, Input, Opened, guarded, read, room},
    kinds::Column,
    parquet::named,
};

const MAGIC: &[u8; 6] = b"ARROW1";

/// Bytes of the description of a message or a file's footer at most: more is a lie.
const MAX_METADATA: u64 = 256 << 20;

/// Where a message lies.
#[derive(Clone, Copy, Debug)]
struct Message {
    offset: u64,
    /// Bytes of its description, with what stands before it.
    metadata: u64,
    body: u64,
}

impl Message {
    fn len(self) -> u64 {
        self.metadata + self.body
    }

    fn block(self) -> Block {
        // Both were i32 and i64 when they were read.
        Block::new(self.offset as i64, self.metadata as i32, self.body as i64)
    }
}

/// An open file or stream.
#[derive(Debug)]
pub(crate) struct ArrowFile {
    path: Arc<str>,
    schema: SchemaRef,
    version: MetadataVersion,
    groups: Vec<GroupInfo>,
    /// The message of each group, and how many of the dictionaries belong to it.
    batches: Vec<(Message, usize)>,
    dictionaries: Vec<Message>,
    damage: Option<Error>,
}

/// Opens the file at `path`.
///
/// # Errors
/// Those of the store. What is wrong with the file itself is the inner error.
pub(crate) fn open(store: &dyn Store, path: &str) -> Result<Opened> {
    match guarded("the description of a file", || ArrowFile::new(store, path)) {
        Ok(file) => Ok(Ok(Arc::new(file))),
        Err(e) if matches!(e.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported) => Ok(Err(e)),
        Err(e) => Err(e),
    }
}

impl ArrowFile {
    fn new(store: &dyn Store, path: &str) -> Result<Self> {
        let size = store.size(path)?;
        if size < 8 {
            return Err(Error::corrupt(format!("{path} has {size} bytes and is no Arrow file or stream")));
        }
        let head = read(store, path, 0, 8)?;
        match &head[..] {
            start if start.starts_with(MAGIC) => {
                let lost = match Self::footer(store, path, size) {
                    Err(e) if e.kind() == ErrorKind::Corrupt => e,
                    found => return found,
                };
                // What stands before the footer is a stream.
                let mut found = Self::stream(store, path, 8, size)?;
                found.damage.get_or_insert(lost);
                Ok(found)
            }
            start if start.starts_with(b"FEA1") => {
                Err(Error::new(ErrorKind::Unsupported, format!("{path} is Feather, version 1"))
                    .with_hint("write it again with version=2"))
            }
            _ => Self::stream(store, path, 0, size),
        }
    }

    fn footer(store: &dyn Store, path: &str, size: u64) -> Result<Self> {
        let damaged =
            |what: &str| Error::corrupt(format!("{path} is no whole Arrow file: {what}")).with_offset(size);
        let end = read(store, path, size.saturating_sub(10), size.min(10))?;
        let length =
            end.strip_suffix(MAGIC).and_then(|length| length.try_into().ok()).map(i32::from_le_bytes);
        let length = length.ok_or_else(|| damaged("it does not end as they do, and may have been cut"))?;
        let length =
            u64::try_from(length).ok().filter(|length| *length <= size.saturating_sub(18).min(MAX_METADATA));
        let length = length.ok_or_else(|| damaged("its footer has no valid length"))?;
        let bytes = read(store, path, size - 10 - length, length)?;
        let footer = root_as_footer(&bytes).map_err(|e| damaged(&format!("its footer is damaged: {e}")))?;
        let schema = footer.schema().ok_or_else(|| damaged("its footer has no schema"))?;
        let schema = Arc::new(try_fb_to_schema(schema).map_err(|e| damaged(&e.to_string()))?);
        let message = |block: &Block| {
            let offset = u64::try_from(block.offset()).ok()?;
            let metadata = u64::try_from(block.metaDataLength())
                .ok()
                .filter(|length| (8..=MAX_METADATA).contains(length))?;
            let body = u64::try_from(block.bodyLength()).ok()?;
            let end = offset.checked_add(metadata)?.checked_add(body)?;
            (end <= size).then_some(Message { offset, metadata, body })
        };
        let messages = |blocks: Vec<Block>| -> Result<Vec<Message>> {
            let one = |block| message(block).ok_or_else(|| damaged("its footer names a batch outside of it"));
            blocks.iter().map(one).collect()
        };
        let dictionaries = messages(footer.dictionaries().iter().flatten().copied().collect())?;
        let (mut groups, mut batches) = (Vec::new(), Vec::new());
        for message in messages(footer.recordBatches().iter().flatten().copied().collect())? {
            let start = read(store, path, message.offset, message.metadata)?;
            let prefix = if start.starts_with(&[0xff; 4]) { 8 } else { 4 };
            let (rows, body) = match described(&start[prefix..])? {
                Described::Batch { rows, body } => (rows, body),
                _ => return Err(damaged("its footer names a batch that is none")),
            };
            if body != message.body {
                return Err(damaged("its footer and a batch differ in length"));
            }
            groups.push(GroupInfo { rows, offset: message.offset });
            batches.push((message, dictionaries.len()));
        }
        let version = footer.version();
        Ok(Self { path: path.into(), schema, version, groups, batches, dictionaries, damage: None })
    }

    fn stream(store: &dyn Store, path: &str, start: u64, size: u64) -> Result<Self> {
        let mut at = start;
        let (mut schema, mut version) = (None, MetadataVersion::V5);
        let (mut groups, mut batches, mut dictionaries) = (Vec::new(), Vec::new(), Vec::new());
        let damage = loop {
            let damaged = |what: &str| Error::corrupt(format!("{path}: {what}")).with_offset(at);
            if size - at < 8 {
                break Some(damaged("the stream has no end mark, and may have been cut"));
            }
            let head = read(store, path, at, 8)?;
            let long = head.starts_with(&[0xff; 4]);
            let length = head[if long { 4 } else { 0 }..][..4].try_into().map_or(-1, i32::from_le_bytes);
            if length == 0 {
                break None;
            }
            let prefix = if long { 8 } else { 4 };
            let length =
                u64::try_from(length).ok().filter(|length| *length <= MAX_METADATA.min(size - at - prefix));
            let Some(length) = length else { break Some(damaged("a message has no valid length")) };
            let bytes = read(store, path, at + prefix, length)?;
            let metadata = prefix + length;
            let message = |body: u64| {
                let end = at.checked_add(metadata)?.checked_add(body)?;
                (end <= size).then_some(Message { offset: at, metadata, body })
            };
            let cut = || damaged("the last message is not whole: the stream was cut, or is damaged");
            let found = match described(&bytes) {
                Err(e) => break Some(damaged(e.message())),
                Ok(Described::Schema(found, of)) if schema.is_none() => {
                    schema = Some(found);
                    version = of;
                    message(0)
                }
                Ok(_) if schema.is_none() => break Some(damaged("a stream begins with its schema")),
                Ok(Described::Schema(..)) => break Some(damaged("there is a second schema")),
                Ok(Described::Dictionary { body }) => {
                    message(body).inspect(|message| dictionaries.push(*message))
                }
                Ok(Described::Batch { rows, body }) => message(body).inspect(|message| {
                    groups.push(GroupInfo { rows, offset: at });
                    batches.push((*message, dictionaries.len()));
                }),
            };
            match found {
                Some(message) => at += message.len(),
                None => break Some(cut()),
            }
        };
        match (schema, damage) {
            (Some(schema), damage) => {
                Ok(Self { path: path.into(), schema, version, groups, batches, dictionaries, damage })
            }
            (None, Some(damage)) => Err(damage),
            (None, None) => Err(Error::corrupt(format!("{path} is an Arrow stream without a schema"))),
        }
    }

    fn read_batch(
        &self,
        input: Input<'_>,
        group: usize,
        columns: &[&Column],
        growth: &Growth<'_>,
    ) -> Result<(Vec<Decoded>, u64)> {
        let (message, dictionaries) = self.batches[group];
        let projection: Vec<usize> = columns.iter().map(|column| column.root).collect();
        let mut decoder = FileDecoder::new(self.schema.clone(), self.version).with_projection(projection);
        let damaged = |e: &dyn std::fmt::Display| Error::corrupt(e.to_string());
        let mut taken = 0;
        for dictionary in &self.dictionaries[..dictionaries] {
            let (bytes, more) = self.message(input, *dictionary, growth)?;
            taken += more;
            decoder.read_dictionary(&dictionary.block(), &bytes).map_err(|e| damaged(&e))?;
        }
        let (bytes, more) = self.message(input, message, growth)?;
        taken += more;
        let batch = decoder.read_record_batch(&message.block(), &bytes).map_err(|e| damaged(&e))?;
        let batch = batch.ok_or_else(|| Error::corrupt("it is no batch"))?;
        let (found, rows) = (batch.num_rows() as u64, self.groups[group].rows);
        if found != rows {
            return Err(Error::corrupt(format!("it has {found} rows, not {rows}")));
        }
        let one = |column: &&Column| {
            let array = batch.column_by_name(&column.name);
            let array = array.ok_or_else(|| Error::corrupt(format!("it has no column {:?}", column.name)))?;
            Ok(Decoded { batch: batch.num_rows(), chunks: vec![Cells::of(array)?], bad: Vec::new() })
        };
        let made = columns.iter().map(one).collect::<Result<Vec<Decoded>>>()?;
        // Values that are not compressed lie in the message itself, of which all is kept as long as one column is.
        let held = made.iter().map(Decoded::bytes).sum::<u64>();
        growth.take(held.saturating_sub(taken))?;
        Ok((made, held.max(taken)))
    }

    /// The bytes of a message, and how much was taken for them and what they are decompressed to.
    fn message(&self, input: Input<'_>, message: Message, growth: &Growth<'_>) -> Result<(Buffer, u64)> {
        let bytes = input.read(&self.path, (message.offset, message.len()), growth)?;
        let prefix = if bytes.starts_with(&[0xff; 4]) { 8 } else { 4 };
        let more = self.decompressed(&bytes, prefix, message)?;
        growth.take(more)?;
        Ok((Buffer::from(bytes), message.len() + more))
    }

    /// Bytes that the buffers of a message say they are decompressed to, all of which fit into memory.
    fn decompressed(&self, bytes: &[u8], prefix: usize, message: Message) -> Result<u64> {
        let damaged = |e: &dyn std::fmt::Display| Error::corrupt(e.to_string());
        let described = root_as_message(bytes.get(prefix..).unwrap_or_default()).map_err(|e| damaged(&e))?;
        let batch = match described.header_type() {
            MessageHeader::DictionaryBatch => {
                described.header_as_dictionary_batch().and_then(|batch| batch.data())
            }
            _ => described.header_as_record_batch(),
        };
        let Some(batch) = batch.filter(|batch| batch.compression().is_some()) else { return Ok(0) };
        let mut sum = 0_u64;
        for buffer in batch.buffers().iter().flatten() {
            let at = u64::try_from(buffer.offset()).ok().and_then(|at| at.checked_add(message.metadata));
            let range = at.zip(u64::try_from(buffer.length()).ok()).and_then(|(at, length)| {
                let end = at.checked_add(length).filter(|end| *end <= bytes.len() as u64)?;
                Some(at as usize..end as usize)
            });
            let Some(range) = range else { return Err(Error::corrupt("a buffer lies outside of its batch")) };
            if range.is_empty() {
                continue;
            }
            let length = bytes[range].first_chunk::<8>().map(|length| i64::from_le_bytes(*length));
            match length {
                Some(-1) => {}
                Some(length) if length >= 0 => sum = sum.saturating_add(length.unsigned_abs()),
                _ => return Err(Error::corrupt("a compressed buffer has no valid length")),
            }
        }
        room(sum, &self.path).map(|_| sum)
    }
}

/// What a message is.
enum Described {
    Schema(SchemaRef, MetadataVersion),
    Dictionary { body: u64 },
    Batch { rows: u64, body: u64 },
}

fn described(bytes: &[u8]) -> Result<Described> {
    let message = root_as_message(bytes).map_err(|e| Error::corrupt(format!("a message is damaged: {e}")))?;
    let body =
        u64::try_from(message.bodyLength()).map_err(|_| Error::corrupt("a message has no valid length"))?;
    match message.header_type() {
        MessageHeader::Schema => {
            let schema = message.header_as_schema().ok_or_else(|| Error::corrupt("a schema is damaged"))?;
            let schema = try_fb_to_schema(schema).map_err(|e| Error::corrupt(e.to_string()))?;
            Ok(Described::Schema(Arc::new(schema), message.version()))
        }
        MessageHeader::DictionaryBatch => Ok(Described::Dictionary { body }),
        MessageHeader::RecordBatch => {
            let batch =
                message.header_as_record_batch().ok_or_else(|| Error::corrupt("a batch is damaged"))?;
            let rows = u32::try_from(batch.length())
                .map_err(|_| Error::corrupt("a batch has no valid number of rows"))?;
            Ok(Described::Batch { rows: rows.into(), body })
        }
        _ => Err(Error::corrupt("a message is of an unknown kind")),
    }
}

impl Container for ArrowFile {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn groups(&self) -> &[GroupInfo] {
        &self.groups
    }

    fn damage(&self) -> Option<&Error> {
        self.damage.as_ref()
    }

    fn parts(&self, _columns: usize) -> usize {
        1
    }

    fn bytes(&self, group: usize, _columns: &[&Column]) -> u64 {
        let (message, dictionaries) = self.batches[group];
        let all = self.dictionaries[..dictionaries].iter().chain([&message]);
        all.map(|message| message.len()).sum()
    }

    fn ranges(&self, group: usize, _columns: &[&Column]) -> Vec<(u64, u64)> {
        let (message, dictionaries) = self.batches[group];
        let all = self.dictionaries[..dictionaries].iter().chain([&message]);
        all.map(|message| (message.offset, message.len())).collect()
    }

    fn decode(
        &self,
        input: Input<'_>,
        group: usize,
        columns: &[&Column],
        growth: &Growth<'_>,
    ) -> Result<(Vec<Decoded>, u64)> {
        guarded("it", || self.read_batch(input, group, columns, growth)).map_err(|e| {
            let what = format!("batch {group} of {}: ", self.path);
            named(&e, &what).with_offset(self.groups[group].offset)
        })
    }
}
