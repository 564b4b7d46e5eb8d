//! MDS: the shards of MosaicML's Streaming, read where they lie.
//!
//! ```text
//! index.json    per shard: file, bytes, samples, names, encodings and sizes of columns, compression, hashes
//! shard         samples u32 | offsets u32 [samples + 1] | configuration | samples          numbers little-endian
//! sample        u32 for each column without a fixed size | the columns' bytes
//! ```
//!
//! Format: `streaming/base/format/mds/` of <https://github.com/mosaicml/streaming>. A sample has no checksum, but its sizes
//! are stated twice: a sample is handed out only if the sizes of its columns fill the place that the offsets give it. All
//! samples that the index states are samples here, those of damaged shards as errors. Hashes of whole shards are compared
//! on request, and where a shard is unpacked as a whole. Pickles are refused, since reading them runs what they say.

mod column;
mod hash;

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use column::Column;
pub(crate) use hash::of as hash_of;
use serde::{Deserialize, Serialize};

use super::{
    Fingerprint, Part, Source, SourceSpec, beyond_the_end, located, location, shards, stamp,
    unpack::{Packing, UNPACKED},
};
use crate::{
    Error, ErrorKind, Limits, Result,
    io::{Bytes, Extent},
    sample::{FieldKind, FieldSpec, Record, Schema, Structure},
    store::{Store, join, listing, secrets},
};

/// Bytes of an index at most: it has some hundred for each shard.
const MOST_INDEX: u64 = 1 << 30;

/// What to open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MdsSpec {
    /// Folders with an `index.json`: paths with braces, `::` between several in one; or the indices, also with stars.
    pub urls: Vec<String>,
    /// Folder in each of them, as Streaming calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
    /// Columns to take, in order, handed out as a tuple. Default: a dict of all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fields: Option<Vec<String>>,
    /// The hash by which all shards are checked when they are opened: `sha1`, `sha256`, `md5`, `xxh64` or `xxh3_64`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validate_hash: Option<String>,
}

impl MdsSpec {
    /// All columns of what lies in the folder `url`.
    pub fn new(url: impl Into<String>) -> Self {
        Self { urls: vec![url.into()], split: None, fields: None, validate_hash: None }
    }
}

/// `index.json`, as far as it is needed.
#[derive(Debug, Deserialize)]
struct Index {
    version: u64,
    shards: Vec<Entry>,
}

#[derive(Clone, Debug, Deserialize)]
struct Entry {
    format: String,
    samples: u32,
    column_names: Vec<String>,
    column_encodings: Vec<String>,
    column_sizes: Vec<Option<u32>>,
    compression: Option<String>,
    raw_data: FileInfo,
    zip_data: Option<FileInfo>,
}

#[derive(Clone, Debug, Deserialize)]
struct FileInfo {
    basename: String,
    bytes: u64,
    #[serde(default)]
    hashes: BTreeMap<String, String>,
}

#[derive(Debug)]
struct Shard {
    path: Arc<str>,
    /// Index of its first sample.
    start: u64,
    /// As the index states.
    samples: u32,
    size: u64,
    /// Where samples begin, and where the last one ends.
    offsets: Vec<u32>,
    /// All of it, if it is compressed.
    unpacked: Option<Vec<u8>>,
    /// Why none of its samples can be read.
    damage: Option<Error>,
}

/// Samples in MDS shards.
#[derive(Debug)]
pub struct Mds {
    store: Arc<dyn Store>,
    spec: MdsSpec,
    schema: Schema,
    /// All columns of the shards, each with the field that it is.
    columns: Vec<(Column, Option<usize>)>,
    shards: Vec<Shard>,
    len: u64,
}

impl Mds {
    /// Reads the indices and where the samples of each shard lie.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no index or no shard; [`ErrorKind::Config`] for columns that differ from shard to
    /// shard, or that there are not; [`ErrorKind::Unsupported`] for columns that are pickled and compressions that are not
    /// known; [`ErrorKind::Corrupt`] for an index that is damaged.
    pub fn open(store: Arc<dyn Store>, spec: MdsSpec) -> Result<Self> {
        let name = name_of(&spec);
        Self::build(store, spec).map_err(|e| e.with_source(name))
    }

    fn build(store: Arc<dyn Store>, spec: MdsSpec) -> Result<Self> {
        let (store, roots) = shards::find(&store, &spec.urls)?;
        let mut entries: Vec<(String, Entry)> = Vec::new();
        for root in roots {
            let root = root.strip_suffix("index.json").unwrap_or(&root);
            let root = spec.split.as_ref().map_or(root.to_owned(), |split| join(root, split));
            entries.extend(read_index(&*store, &root)?.into_iter().map(|entry| (root.clone(), entry)));
        }
        Self::of_entries(store, spec, entries)
    }

    /// The one shard of the folder `root` that `entry` describes, as an index does.
    ///
    /// # Errors
    /// As of [`Mds::open`].
    pub(crate) fn open_shard(store: Arc<dyn Store>, root: &str, entry: &serde_json::Value) -> Result<Self> {
        let entry = Entry::deserialize(entry)
            .map_err(|e| Error::corrupt(format!("what is noted of a shard is no entry of an index: {e}")))?;
        Self::of_entries(store, MdsSpec::new(root), vec![(root.to_owned(), entry)])
    }

    fn of_entries(store: Arc<dyn Store>, spec: MdsSpec, entries: Vec<(String, Entry)>) -> Result<Self> {
        let Some((_, first)) = entries.first() else { return Err(Error::config("there is no shard")) };
        let first = first.clone();
        let columns = |entry: &Entry| {
            (entry.column_names.clone(), entry.column_encodings.clone(), entry.column_sizes.clone())
        };
        if let Some((root, other)) = entries.iter().find(|(_, entry)| columns(entry) != columns(&first)) {
            let (a, b) = (&other.raw_data.basename, &first.raw_data.basename);
            return Err(Error::config(format!("shard {} has other columns than {b}", join(root, a))));
        }
        let mut shards = listing::parallel_at(&*store, &entries, |(root, entry)| {
            Shard::open(&*store, root, entry, &spec)
        })?;
        let (mut len, mut held) = (0, 0);
        for shard in &mut shards {
            shard.start = len;
            len += u64::from(shard.samples);
            held += shard.unpacked.as_ref().map_or(0, |bytes| bytes.len() as u64);
            if held > UNPACKED {
                return Err(too_large(&shard.path, held));
            }
        }
        let schema = Schema { fields: Vec::new(), structure: Structure::Field(0) };
        let mut this = Self { store, spec, schema, columns: Vec::new(), shards, len };
        this.take(&first)?;
        Ok(this)
    }

    /// Sets columns and fields.
    fn take(&mut self, entry: &Entry) -> Result<()> {
        let names = &entry.column_names;
        if names.is_empty()
            || entry.column_encodings.len() != names.len()
            || entry.column_sizes.len() != names.len()
        {
            return Err(Error::corrupt("the index has not a name, an encoding and a size for each column"));
        }
        if let Some((_, name)) = names.iter().enumerate().find(|(i, name)| names[..*i].contains(name)) {
            return Err(Error::corrupt(format!("the index has two columns called {name}")));
        }
        let wanted = self.spec.fields.clone().unwrap_or_else(|| names.clone());
        let mut columns = Vec::with_capacity(names.len());
        for ((name, encoding), size) in names.iter().zip(&entry.column_encodings).zip(&entry.column_sizes) {
            let field = wanted.iter().position(|field| field == name);
            let column = Column::new(name, encoding, *size);
            columns.push((
                if field.is_some() { column? } else { column.unwrap_or(Column::skipped(name, *size)) },
                field,
            ));
        }
        self.columns = columns;
        // What has no dtype or shape of its own has those of the first sample that can be read.
        let mut fields: Vec<Option<FieldSpec>> = vec![None; wanted.len()];
        let is_open = |(column, field): &(Column, Option<usize>)| field.is_some() && column.is_open();
        let example = if self.columns.iter().any(is_open) { self.example() } else { None };
        for (number, (column, field)) in self.columns.iter_mut().enumerate() {
            let Some(field) = *field else { continue };
            if let Some((bytes, parts)) = example.as_ref().filter(|_| column.is_open()) {
                let settled = column.settled(bytes.get(parts[number].clone()).unwrap_or_default());
                *column = settled.map_err(|what| Error::corrupt(format!("column {} {what}", column.name)))?;
            }
            fields[field] = Some(FieldSpec { name: column.name.clone(), kind: column.kind() });
        }
        for (name, field) in wanted.iter().zip(fields) {
            let twice = self.schema.fields.iter().any(|other| other.name == *name);
            match field {
                Some(field) => self.schema.fields.push(field),
                None if twice => return Err(Error::config(format!("field {name} is asked for twice"))),
                None => {
                    let there = names.join(", ");
                    return Err(Error::config(format!("there is no column {name}: there are {there}")));
                }
            }
        }
        if self.schema.fields.is_empty() {
            return Err(Error::config("fields is empty"));
        }
        let all = self.schema.fields.iter().enumerate();
        self.schema.structure = if self.spec.fields.is_some() {
            Structure::Tuple(all.map(|(i, _)| Structure::Field(i)).collect())
        } else {
            Structure::Dict(all.map(|(i, field)| (field.name.clone(), Structure::Field(i))).collect())
        };
        Ok(())
    }

    /// The first sample that is whole, and where its columns lie in it.
    fn example(&self) -> Option<(Vec<u8>, Vec<std::ops::Range<usize>>)> {
        let places =
            self.shards.iter().flat_map(|shard| (0..shard.samples as usize).map(move |i| (shard, i)));
        // If so many are damaged, there is no use in a long search.
        places.take(64).find_map(|(shard, i)| {
            let bytes = self.read(shard, i, &Limits::default()).ok()?.into_owned();
            let parts = self.parts_of(shard, i, &bytes).ok()?;
            Some((bytes, parts))
        })
    }

    fn find(&self, index: u64) -> Result<(&Shard, usize)> {
        let beyond = || beyond_the_end(self, index);
        if index >= self.len {
            return Err(beyond());
        }
        let shard =
            self.shards.partition_point(|shard| shard.start <= index).checked_sub(1).ok_or_else(beyond)?;
        let shard = self.shards.get(shard).ok_or_else(beyond)?;
        match &shard.damage {
            Some(e) => Err(located(e.clone(), self, index)),
            None => Ok((shard, usize::try_from(index - shard.start).map_err(|_| beyond())?)),
        }
    }

    fn read<'a>(&self, shard: &'a Shard, sample: usize, limits: &Limits) -> Result<Cow<'a, [u8]>> {
        let (start, end) = shard.place(sample, limits)?;
        if let Some(all) = &shard.unpacked {
            return Ok(Cow::Borrowed(all.get(start as usize..end as usize).unwrap_or_default()));
        }
        let mut bytes = Vec::new();
        self.store.read_range(&shard.path, start, (end - start) as usize, &mut bytes)?;
        Ok(Cow::Owned(bytes))
    }

    /// Where the columns of a sample lie in its bytes, which they must fill.
    fn parts_of(&self, shard: &Shard, sample: usize, bytes: &[u8]) -> Result<Vec<std::ops::Range<usize>>> {
        let mut sizes = Vec::with_capacity(self.columns.len());
        let mut at = 0;
        for (column, _) in &self.columns {
            sizes.push(match column.size {
                Some(size) => size as usize,
                None => {
                    let size = bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes);
                    at += 4;
                    size.ok_or_else(|| shard.corrupt(sample, "it ends within its sizes"))? as usize
                }
            });
        }
        let mut parts = Vec::with_capacity(sizes.len());
        for size in sizes {
            parts.push(at..at.saturating_add(size));
            at = at.saturating_add(size);
        }
        if at != bytes.len() {
            let what = format!("its columns have {at} bytes, but the shard gives it {}", bytes.len());
            return Err(shard.corrupt(sample, &what));
        }
        Ok(parts)
    }

    fn fill(&self, shard: &Shard, sample: usize, bytes: &[u8], record: &mut Record) -> Result<()> {
        record.reset(self.schema.fields.len());
        let start = shard.offsets.get(sample).map_or(0, |offset| u64::from(*offset));
        let parts = self.parts_of(shard, sample, bytes)?;
        for ((column, field), part) in self.columns.iter().zip(parts) {
            let Some(field) = *field else { continue };
            let at = start + part.start as u64;
            record.offsets[field] = at;
            let (value, shape) = (&mut record.values[field], &mut record.shapes[field]);
            column.read(bytes.get(part).unwrap_or_default(), value, shape).map_err(|what| {
                Error::corrupt(format!("column {} of sample {sample} of {} {what}", column.name, shard.path))
                    .with_offset(at)
            })?;
        }
        Ok(())
    }
}

fn too_large(path: &str, bytes: u64) -> Error {
    Error::limit(&format!("what is compressed up to {path}"), bytes, UNPACKED, "bytes")
        .with_hint("unpack the shards (`unzstd *.zstd`): then samples are read by position")
}

fn read_index(store: &dyn Store, root: &str) -> Result<Vec<Entry>> {
    let path = join(root, "index.json");
    let mut bytes = Vec::new();
    store.read(&path, MOST_INDEX, &mut bytes)?;
    let index: Index = serde_json::from_slice(&bytes)
        .map_err(|e| Error::corrupt(format!("{path} is no index of MDS shards: {e}")))?;
    let unsupported = |what: String| Err(Error::new(ErrorKind::Unsupported, format!("{path} has {what}")));
    if index.version != 2 {
        return unsupported(format!("version {}, not 2", index.version));
    }
    for Entry { format, raw_data, zip_data, .. } in &index.shards {
        if format != "mds" {
            return unsupported(format!("a shard of format {format}, not mds"));
        }
        for FileInfo { basename, .. } in [Some(raw_data), zip_data.as_ref()].into_iter().flatten() {
            // Data sets are copied from anywhere: an index names files of its own folder.
            if basename.is_empty()
                || basename.starts_with('/')
                || basename.split(['/', '\\']).any(|part| part == "..")
            {
                return Err(Error::corrupt(format!(
                    "{path} names a shard {basename:?}, which is not in its folder"
                )));
            }
        }
    }
    Ok(index.shards)
}

impl Shard {
    fn open(store: &dyn Store, root: &str, entry: &Entry, spec: &MdsSpec) -> Result<Self> {
        let path = join(root, &entry.raw_data.basename);
        let mut shard = Self {
            path: path.as_str().into(),
            start: 0,
            samples: entry.samples,
            size: 0,
            offsets: Vec::new(),
            unpacked: None,
            damage: None,
        };
        // Streaming itself keeps shards unpacked where it has read them.
        let packed =
            entry.zip_data.as_ref().filter(|_| entry.compression.is_some() && store.stat(&path).is_err());
        let looked = match packed {
            Some(zip) => shard.look_at_packed(store, join(root, &zip.basename), entry, zip, spec),
            None => shard.look_at_plain(store, &path, entry, spec),
        };
        match looked {
            Err(e) if e.kind() == ErrorKind::Corrupt => shard.damage = Some(e),
            looked => looked?,
        }
        Ok(shard)
    }

    fn look_at_plain(&mut self, store: &dyn Store, path: &str, entry: &Entry, spec: &MdsSpec) -> Result<()> {
        self.size = store.size(path)?;
        if let Some(hash) = &spec.validate_hash {
            let mut all = Vec::new();
            store.read(path, entry.raw_data.bytes.max(self.size), &mut all)?;
            hash::check(path, &all, &entry.raw_data.hashes, Some(hash))?;
        }
        let len = self.head_bytes();
        if len > self.size {
            let (size, stated) = (self.size, entry.raw_data.bytes);
            return Err(Error::corrupt(format!(
                "{path} has {size} bytes, and not {stated} as the index states"
            )));
        }
        let mut head = Vec::new();
        store.read_range(path, 0, usize::try_from(len).unwrap_or(usize::MAX), &mut head)?;
        self.read_offsets(&head)
    }

    fn look_at_packed(
        &mut self,
        store: &dyn Store,
        path: String,
        entry: &Entry,
        zip: &FileInfo,
        spec: &MdsSpec,
    ) -> Result<()> {
        self.path = path.as_str().into();
        let name = entry.compression.as_deref().unwrap_or_default();
        let packing = match name.split(':').next() {
            Some("zstd") => Packing::Zstandard,
            Some("gz") => Packing::Gzip,
            _ => {
                return Err(Error::new(ErrorKind::Unsupported, format!("{path} is compressed by {name}"))
                    .with_hint("known are zstd and gz; unpack the shards, or write them anew"));
            }
        };
        let mut packed = Vec::new();
        store.read(&path, UNPACKED, &mut packed)?;
        let asked = spec.validate_hash.as_deref();
        hash::check(&path, &packed, &zip.hashes, asked.filter(|hash| zip.hashes.contains_key(*hash)))?;
        let all = packing.unpack(&path, &packed, UNPACKED).map_err(|e| {
            if e.kind() == ErrorKind::Limit { too_large(&path, e.size().unwrap_or(UNPACKED)) } else { e }
        })?;
        let asked = asked.filter(|hash| !zip.hashes.contains_key(*hash));
        hash::check(&entry.raw_data.basename, &all, &entry.raw_data.hashes, asked)?;
        self.size = all.len() as u64;
        if self.size != entry.raw_data.bytes {
            let (size, stated) = (self.size, entry.raw_data.bytes);
            return Err(Error::corrupt(format!(
                "{path} unpacks to {size} bytes, and not to {stated} as the index states"
            )));
        }
        let head = all.get(..usize::try_from(self.head_bytes()).unwrap_or(usize::MAX));
        let head =
            head.ok_or_else(|| Error::corrupt(format!("{path} ends within the offsets of its samples")))?;
        self.read_offsets(head)?;
        self.unpacked = Some(all);
        Ok(())
    }

    /// Bytes in front of the configuration.
    fn head_bytes(&self) -> u64 {
        4 * (u64::from(self.samples) + 2)
    }

    fn read_offsets(&mut self, head: &[u8]) -> Result<()> {
        let mut numbers = head.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        let found = numbers.next().unwrap_or(0);
        if found != self.samples {
            let (path, stated) = (&self.path, self.samples);
            return Err(Error::corrupt(format!(
                "{path} has {found} samples, and not {stated} as the index states"
            ))
            .with_offset(0));
        }
        self.offsets = numbers.collect();
        Ok(())
    }

    /// Where a sample begins and ends.
    fn place(&self, sample: usize, limits: &Limits) -> Result<(u64, u64)> {
        let pair = self.offsets.get(sample..sample + 2).map(|pair| (u64::from(pair[0]), u64::from(pair[1])));
        let (start, end) = pair.ok_or_else(|| self.corrupt(sample, "it has no place"))?;
        if start < self.head_bytes() || end < start || end > self.size {
            let what = format!("it lies at bytes {start} to {end} of {}", self.size);
            return Err(self
                .corrupt(sample, &what)
                .with_hint("the shard was cut, or the offsets in it are damaged"));
        }
        limits.check_bytes(&format!("sample {sample} of {}", self.path), end - start)?;
        Ok((start, end))
    }

    fn corrupt(&self, sample: usize, what: &str) -> Error {
        let offset = self.offsets.get(sample).map_or(0, |offset| u64::from(*offset));
        Error::corrupt(format!("sample {sample} of {} is damaged: {what}", self.path)).with_offset(offset)
    }
}

impl Source for Mds {
    fn name(&self) -> String {
        name_of(&self.spec)
    }

    fn spec(&self) -> SourceSpec {
        SourceSpec::Mds(self.spec.clone())
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    /// `shard.00000.mds[sample]`.
    fn key(&self, index: u64) -> String {
        if index >= self.len {
            return String::new();
        }
        let shard = self.shards.partition_point(|shard| shard.start <= index).saturating_sub(1);
        self.shards
            .get(shard)
            .map_or_else(String::new, |shard| format!("{}[{}]", shard.path, index - shard.start))
    }

    fn fetch(&self, index: u64, record: &mut Record) -> Result<()> {
        let (shard, sample) = self.find(index)?;
        let read = self.read(shard, sample, &record.limits);
        read.and_then(|bytes| self.fill(shard, sample, &bytes, record)).map_err(|e| located(e, self, index))
    }

    fn store(&self) -> Option<&Arc<dyn Store>> {
        (!self.in_memory()).then_some(&self.store)
    }

    fn locate(&self, index: u64, limits: &Limits, extents: &mut Vec<Extent>) -> Result<()> {
        let (shard, sample) = self.find(index)?;
        let (start, end) = shard.place(sample, limits).map_err(|e| located(e, self, index))?;
        if shard.unpacked.is_none() {
            extents.push(Extent::range(shard.path.clone(), start, end - start));
        }
        Ok(())
    }

    fn assemble(&self, index: u64, pieces: &[Bytes], record: &mut Record) -> Result<()> {
        let (shard, sample) = self.find(index)?;
        if shard.unpacked.is_some() {
            return self.fetch(index, record);
        }
        let piece = pieces.first().ok_or_else(|| Error::new(ErrorKind::Internal, "a piece is missing"))?;
        self.fill(shard, sample, piece, record).map_err(|e| located(e, self, index))
    }

    fn in_memory(&self) -> bool {
        self.shards.iter().all(|shard| shard.unpacked.is_some() || shard.damage.is_some())
    }

    fn fingerprint(&self) -> u64 {
        let mut hash = Fingerprint::new(&self.schema, self.len);
        for shard in &self.shards {
            let path = secrets::identity(&shard.path);
            hash.add(path.rsplit('/').next().unwrap_or_default().as_bytes());
            hash.number(u64::from(shard.samples));
        }
        hash.finish()
    }

    fn parts(&self) -> Vec<Part> {
        let part = |shard: &Shard| Part {
            name: shard.path.to_string(),
            beside: Some(shard.path.to_string()),
            store: self.store.clone(),
            samples: shard.start..shard.start + u64::from(shard.samples),
        };
        let images = self.schema.fields.iter().any(|field| field.kind == FieldKind::Image);
        if images { self.shards.iter().map(part).collect() } else { Vec::new() }
    }

    fn stamp(&self, index: u64) -> Option<u64> {
        let (shard, sample) = self.find(index).ok()?;
        let stat = self.store.stat(&shard.path).ok()?;
        Some(stamp(&format!("{}@{}", location(&shard.path), shard.offsets.get(sample)?), &stat))
    }
}

fn name_of(spec: &MdsSpec) -> String {
    match spec.urls.as_slice() {
        [url] => format!("mds({})", secrets::shown(url)),
        [url, ..] => format!("mds({} and {} more)", secrets::shown(url), spec.urls.len() - 1),
        [] => "mds()".to_owned(),
    }
}

#[cfg(test)]
mod tests;
