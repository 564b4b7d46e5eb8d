//! LitData: the chunks that `litdata.optimize` writes, read where they lie.
//!
//! ```text
//! index.json    per chunk: file, items, bytes; of all: formats of the leaves of an item, their structure, compression
//! chunk         items u32 | offsets u32 [items + 1] | items                                numbers little-endian
//! item          u32 for each leaf: its bytes | the leaves
//! ```
//!
//! Format: `litdata/streaming/writer.py`, `item_loader.py` and `framed_zstd.py` of <https://github.com/Lightning-AI/litData>. An item
//! has no checksum, but its sizes are stated twice: one is handed out only if its leaves fill the place that the offsets give it.
//! All items that the index states are samples here, those of damaged chunks as errors. Chunks that are compressed as a whole, or
//! many items at a time, are unpacked when they are opened. Pickles are refused, since reading them runs what they say.

mod leaf;

use std::{borrow::Cow, ops::Range, sync::Arc};

use leaf::Leaf;
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

/// Bytes of an index at most: it has some hundred for each chunk.
const MOST_INDEX: u64 = 1 << 30;

/// Items that are looked at to find out what shapes arrays have.
const EXAMPLES: u64 = 64;

/// Begins a chunk whose items are compressed many at a time.
const FRAMED: &[u8; 8] = b"LDFZ01\0\0";

/// Ends a chunk whose items are rows of Arrow.
const ARROW: &[u8; 8] = b"LDARW01\0";

/// What to open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LitDataSpec {
    /// Folders with an `index.json`: paths with braces, `::` between several in one; or the indices, also with stars.
    pub urls: Vec<String>,
    /// Fields to take, in order, handed out as a tuple. Default: all, in the structure of the items.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fields: Option<Vec<String>>,
    /// Of tokens: how many are a sample, as LitData's `TokensLoader` cuts them. Default: what was written as an item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_size: Option<u64>,
}

impl LitDataSpec {
    /// All fields of what lies in the folder `url`.
    pub fn new(url: impl Into<String>) -> Self {
        Self { urls: vec![url.into()], fields: None, block_size: None }
    }
}

/// `index.json`, as far as it is needed.
#[derive(Debug, Deserialize)]
struct Index {
    chunks: Vec<Entry>,
    config: Config,
}

#[derive(Clone, Debug, Deserialize)]
struct Entry {
    filename: String,
    /// Items.
    chunk_size: u32,
    /// Tokens.
    dim: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Config {
    compression: Option<String>,
    compression_level: Option<String>,
    data_format: Vec<String>,
    data_spec: Option<String>,
    #[serde(default)]
    encryption: Option<serde_json::Value>,
    item_loader: Option<String>,
}

/// How items lie in their chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrap {
    /// As they are.
    None,
    /// Each compressed by itself.
    Item,
    /// In frames of many, or the chunk as a whole.
    Many,
}

#[derive(Debug)]
struct Chunk {
    path: Arc<str>,
    /// Index of its first sample.
    start: u64,
    samples: u64,
    items: u32,
    size: u64,
    /// Where items begin, and where the last one ends.
    offsets: Vec<u32>,
    /// What the offsets point into, if it is compressed.
    unpacked: Option<Vec<u8>>,
    /// Why none of its samples can be read.
    damage: Option<Error>,
}

/// Items in LitData chunks.
#[derive(Debug)]
pub struct LitData {
    store: Arc<dyn Store>,
    spec: LitDataSpec,
    schema: Schema,
    /// All leaves of an item, each with the field that it is.
    leaves: Vec<(Leaf, Option<usize>)>,
    wrap: Wrap,
    /// Items are tokens, and nothing else: bytes of one, and of a sample if items are cut.
    tokens: Option<(u64, Option<u64>)>,
    chunks: Vec<Chunk>,
    len: u64,
}

impl LitData {
    /// Reads the indices and where the items of each chunk lie.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no index or no chunk; [`ErrorKind::Config`] for items that differ, or fields that there
    /// are not; [`ErrorKind::Unsupported`] for leaves that are pickled, other loaders and encryption; [`ErrorKind::Corrupt`] for an
    /// index that is damaged.
    pub fn open(store: Arc<dyn Store>, spec: LitDataSpec) -> Result<Self> {
        let name = name_of(&spec);
        Self::build(store, spec).map_err(|e| e.with_source(name))
    }

    fn build(store: Arc<dyn Store>, spec: LitDataSpec) -> Result<Self> {
        let (store, roots) = shards::find(&store, &spec.urls)?;
        let mut entries: Vec<(String, Entry)> = Vec::new();
        let mut first: Option<(String, Config)> = None;
        for root in roots {
            let root = root.strip_suffix("index.json").unwrap_or(&root).to_owned();
            let Index { chunks, config } = read_index(&*store, &root)?;
            match &first {
                Some((other, before)) if *before != config => {
                    return Err(Error::config(format!(
                        "items of {root} are written otherwise than those of {other}"
                    ))
                    .with_hint("open the data sets one by one, and put them together with concatenate"));
                }
                Some(_) => {}
                None => first = Some((root.clone(), config)),
            }
            entries.extend(chunks.into_iter().map(|entry| (root.clone(), entry)));
        }
        let Some((root, config)) = first else { return Err(Error::config("there is no index")) };
        let wrap = check_config(&join(&root, "index.json"), &config)?;
        let is_tokens = config.item_loader.as_deref() == Some("TokensLoader");
        let (structure, leaves) = items_of(&config, spec.fields.as_deref())?;
        let tokens = match (is_tokens, leaves.as_slice()) {
            (false, _) if spec.block_size.is_none() => None,
            (true, [(leaf, _)]) if spec.block_size != Some(0) => {
                leaf.tokens().map(|dtype| (dtype, spec.block_size))
            }
            (true, _) => None,
            (false, _) => {
                return Err(Error::config("block_size is given, but the items are no tokens")
                    .with_hint("only what was written with TokensLoader is cut into blocks"));
            }
        };
        if is_tokens && tokens.is_none() {
            return Err(Error::config("tokens are one array of numbers, cut into blocks of one at least"));
        }
        let size_of = |(dtype, block): (crate::sample::DType, Option<u64>)| {
            let token = dtype.size() as u64;
            Some((token, block.map_or(Some(None), |block| block.checked_mul(token).map(Some))?))
        };
        let sizes = match tokens {
            Some(tokens) => Some(size_of(tokens).ok_or_else(|| Error::config("block_size is too large"))?),
            None => None,
        };
        let mut chunks = listing::parallel_at(&*store, &entries, |(root, entry)| {
            Chunk::open(&*store, root, entry, wrap, sizes)
        })?;
        let (mut len, mut held) = (0, 0);
        for chunk in &mut chunks {
            chunk.start = len;
            len += chunk.samples;
            held += chunk.unpacked.as_ref().map_or(0, |bytes| bytes.len() as u64);
            if held > UNPACKED {
                return Err(too_large(&chunk.path, held));
            }
        }
        let schema = Schema { fields: Vec::new(), structure };
        let mut this = Self { store, spec, schema, leaves, wrap, tokens: sizes, chunks, len };
        if let Some((dtype, block)) = tokens {
            let length = block.and_then(|block| usize::try_from(block).ok());
            this.leaves = this
                .leaves
                .into_iter()
                .map(|(leaf, field)| (leaf.with_length(dtype, length), field))
                .collect();
        } else {
            this.settle()?;
        }
        this.take()?;
        Ok(this)
    }

    /// Finds out what shapes arrays have.
    fn settle(&mut self) -> Result<()> {
        if !self.leaves.iter().any(|(leaf, field)| field.is_some() && leaf.is_open()) {
            return Ok(());
        }
        let count = self.len.min(EXAMPLES);
        // The first and the last one among them.
        let numbers: Vec<u64> =
            (0..count).map(|i| if count > 1 { i * (self.len - 1) / (count - 1) } else { i }).collect();
        let read = |number: &u64| {
            let read = self.find(*number).and_then(|(chunk, sample)| {
                let bytes = self.read(chunk, sample, &Limits::default())?.into_owned();
                self.parts_of(chunk, sample, &bytes).map(|parts| (bytes, parts))
            });
            match read {
                Err(e) if e.kind() == ErrorKind::Transient => Err(e),
                read => Ok(read.ok()),
            }
        };
        let examples: Vec<(Vec<u8>, Vec<Range<usize>>)> =
            listing::parallel(&numbers, read)?.into_iter().flatten().collect();
        for number in 0..self.leaves.len() {
            let (leaf, field) = self.leaves[number].clone();
            if field.is_none() {
                continue;
            }
            let value = |(bytes, parts): &'_ (Vec<u8>, Vec<Range<usize>>)| {
                parts
                    .get(number)
                    .and_then(|part| bytes.get(part.clone()))
                    .map(<[u8]>::to_vec)
                    .unwrap_or_default()
            };
            let values: Vec<Vec<u8>> = examples.iter().map(value).collect();
            let values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
            self.leaves[number].0 = leaf.settled(&values)?;
        }
        Ok(())
    }

    /// Sets the fields.
    fn take(&mut self) -> Result<()> {
        let count = self.leaves.iter().filter(|(_, field)| field.is_some()).count();
        let mut fields: Vec<Option<FieldSpec>> = vec![None; count];
        for (leaf, field) in &self.leaves {
            if let Some(field) = *field {
                fields[field] = Some(FieldSpec { name: leaf.name.clone(), kind: leaf.kind()? });
            }
        }
        self.schema.fields = fields.into_iter().flatten().collect();
        Ok(())
    }

    fn find(&self, index: u64) -> Result<(&Chunk, u64)> {
        let beyond = || beyond_the_end(self, index);
        if index >= self.len {
            return Err(beyond());
        }
        let chunk =
            self.chunks.partition_point(|chunk| chunk.start <= index).checked_sub(1).ok_or_else(beyond)?;
        let chunk = self.chunks.get(chunk).ok_or_else(beyond)?;
        match &chunk.damage {
            Some(e) => Err(located(e.clone(), self, index)),
            None => Ok((chunk, index - chunk.start)),
        }
    }

    /// Where a sample begins and ends.
    fn place(&self, chunk: &Chunk, sample: u64, limits: &Limits) -> Result<(u64, u64)> {
        let (start, end) = match self.tokens {
            Some((_, Some(block))) => {
                let start = chunk.offsets.first().map_or(0, |start| u64::from(*start)) + sample * block;
                (start, start + block)
            }
            _ => {
                let at = usize::try_from(sample).unwrap_or(usize::MAX);
                let pair = chunk.offsets.get(at..at.saturating_add(2));
                let pair = pair.ok_or_else(|| chunk.corrupt(sample, "it has no place"))?;
                (u64::from(pair[0]), u64::from(pair[1]))
            }
        };
        let head = if chunk.unpacked.is_some() { 0 } else { chunk.head_bytes() };
        if start < head || end < start || end > chunk.size {
            let what = format!("it lies at bytes {start} to {end} of {}", chunk.size);
            return Err(chunk
                .corrupt(sample, &what)
                .with_hint("the chunk was cut, or the offsets in it are damaged"));
        }
        limits.check_bytes(&format!("item {sample} of {}", chunk.path), end - start)?;
        Ok((start, end))
    }

    fn read<'a>(&self, chunk: &'a Chunk, sample: u64, limits: &Limits) -> Result<Cow<'a, [u8]>> {
        let (start, end) = self.place(chunk, sample, limits)?;
        if let Some(all) = &chunk.unpacked {
            return Ok(Cow::Borrowed(all.get(start as usize..end as usize).unwrap_or_default()));
        }
        let mut bytes = Vec::new();
        self.store.read_range(&chunk.path, start, (end - start) as usize, &mut bytes)?;
        self.unpacked(chunk, sample, &bytes, limits).map(|unpacked| Cow::Owned(unpacked.unwrap_or(bytes)))
    }

    /// An item that is compressed by itself; `None` for others.
    fn unpacked(&self, chunk: &Chunk, sample: u64, bytes: &[u8], limits: &Limits) -> Result<Option<Vec<u8>>> {
        if self.wrap != Wrap::Item {
            return Ok(None);
        }
        let name = format!("item {sample} of {}", chunk.path);
        Packing::Zstandard.unpack(&name, bytes, limits.max_bytes).map(Some)
    }

    /// Where the leaves of an item lie in its bytes, which they must fill.
    fn parts_of(&self, chunk: &Chunk, sample: u64, bytes: &[u8]) -> Result<Vec<Range<usize>>> {
        if self.tokens.is_some() {
            return Ok(std::iter::once(0..bytes.len()).collect());
        }
        let mut at = 4 * self.leaves.len();
        let sizes = bytes.get(..at).ok_or_else(|| chunk.corrupt(sample, "it ends within its sizes"))?;
        let mut parts = Vec::with_capacity(self.leaves.len());
        for size in sizes.chunks_exact(4) {
            let size = u32::from_le_bytes([size[0], size[1], size[2], size[3]]) as usize;
            parts.push(at..at.saturating_add(size));
            at = at.saturating_add(size);
        }
        if at != bytes.len() {
            let what = format!("its fields have {at} bytes, but the chunk gives it {}", bytes.len());
            return Err(chunk.corrupt(sample, &what));
        }
        Ok(parts)
    }

    fn fill(&self, chunk: &Chunk, sample: u64, bytes: &[u8], record: &mut Record) -> Result<()> {
        record.reset(self.schema.fields.len());
        let (start, _) = self.place(chunk, sample, &Limits { max_bytes: u64::MAX, ..record.limits })?;
        let parts = self.parts_of(chunk, sample, bytes)?;
        for ((leaf, field), part) in self.leaves.iter().zip(parts) {
            let Some(field) = *field else { continue };
            let at = start + if self.wrap == Wrap::None { part.start as u64 } else { 0 };
            record.offsets[field] = at;
            let (value, shape) = (&mut record.values[field], &mut record.shapes[field]);
            leaf.read(bytes.get(part).unwrap_or_default(), value, shape).map_err(|what| {
                Error::corrupt(format!("field {} of item {sample} of {} {what}", leaf.name, chunk.path))
                    .with_offset(at)
            })?;
        }
        Ok(())
    }
}

fn too_large(path: &str, bytes: u64) -> Error {
    Error::limit(&format!("what is compressed up to {path}"), bytes, UNPACKED, "bytes")
        .with_hint("write the data set without compression, or with compression_level=\"sample\": then items are read by position")
}

fn read_index(store: &dyn Store, root: &str) -> Result<Index> {
    let path = join(root, "index.json");
    let mut bytes = Vec::new();
    store.read(&path, MOST_INDEX, &mut bytes)?;
    let index: Index = serde_json::from_slice(&bytes)
        .map_err(|e| Error::corrupt(format!("{path} is no index of LitData chunks: {e}")))?;
    for Entry { filename, .. } in &index.chunks {
        // Data sets are copied from anywhere: an index names files of its own folder.
        if filename.is_empty()
            || filename.starts_with('/')
            || filename.split(['/', '\\']).any(|part| part == "..")
        {
            return Err(Error::corrupt(format!(
                "{path} names a chunk {filename:?}, which is not in its folder"
            )));
        }
    }
    Ok(index)
}

/// Whether chunks are read, and how items lie in them.
fn check_config(path: &str, config: &Config) -> Result<Wrap> {
    let unsupported = |what: String, hint: &str| {
        Err(Error::new(ErrorKind::Unsupported, format!("{path} has {what}")).with_hint(hint))
    };
    if config.encryption.as_ref().is_some_and(|e| !e.is_null()) {
        return unsupported("chunks that are encrypted".to_owned(), "write the data set without encryption");
    }
    match config.item_loader.as_deref() {
        None | Some("PyTreeLoader" | "TokensLoader") => {}
        Some("ParquetLoader") => {
            return unsupported("Parquet files".to_owned(), "read them with wf.parquet");
        }
        Some(other) => {
            return unsupported(format!("chunks of {other}"), "PyTreeLoader and TokensLoader are known");
        }
    }
    match (config.compression.as_deref(), config.compression_level.as_deref()) {
        (None, _) => Ok(Wrap::None),
        (Some(name), level) if name.split(':').next() == Some("zstd") => match level {
            None | Some("" | "chunk" | "batch") => Ok(Wrap::Many),
            Some("sample") => Ok(Wrap::Item),
            Some(other) => {
                unsupported(format!("items compressed by {other}"), "chunk, batch and sample are known")
            }
        },
        (Some(other), _) => unsupported(format!("chunks compressed by {other}"), "zstd is known"),
    }
}

/// How items are handed out, and their leaves with the fields that they are.
type Items = (Structure, Vec<(Leaf, Option<usize>)>);

fn items_of(config: &Config, fields: Option<&[String]>) -> Result<Items> {
    let mut names = Vec::new();
    let spec = match &config.data_spec {
        None => serde_json::Value::Null,
        Some(text) => {
            let spec: (u64, serde_json::Value) = serde_json::from_str(text)
                .map_err(|e| Error::corrupt(format!("the index has a structure that is none: {e}")))?;
            if spec.0 != 1 {
                let message = format!("the index has a structure of version {}, not 1", spec.0);
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
            spec.1
        }
    };
    let structure = structure_of(&spec, "", &mut names)?;
    if names.len() != config.data_format.len() {
        let (names, formats) = (names.len(), config.data_format.len());
        return Err(Error::corrupt(format!("the index has {formats} formats for {names} fields")));
    }
    if let Some((_, name)) = names.iter().enumerate().find(|(i, name)| names[..*i].contains(name)) {
        return Err(Error::corrupt(format!("the index has two fields called {name}")));
    }
    let wanted = fields.map_or_else(|| names.clone(), <[String]>::to_vec);
    if let Some(field) = wanted.iter().find(|field| !names.contains(field)) {
        return Err(Error::config(format!("there is no field {field}: there are {}", names.join(", "))));
    }
    if let Some((_, name)) = wanted.iter().enumerate().find(|(i, name)| wanted[..*i].contains(name)) {
        return Err(Error::config(format!("field {name} is asked for twice")));
    }
    if wanted.is_empty() {
        return Err(Error::config("there are no fields to take"));
    }
    let mut leaves = Vec::with_capacity(names.len());
    for (name, format) in names.iter().zip(&config.data_format) {
        let field = wanted.iter().position(|field| field == name);
        let leaf = if field.is_some() { Leaf::new(name, format)? } else { Leaf::skipped(name) };
        leaves.push((leaf, field));
    }
    let structure = match fields {
        Some(_) => Structure::Tuple((0..wanted.len()).map(Structure::Field).collect()),
        None => structure,
    };
    Ok((structure, leaves))
}

/// A structure as torch's `treespec_dumps` writes it; `names` gets those of its leaves: keys and places, with dots between.
fn structure_of(spec: &serde_json::Value, path: &str, names: &mut Vec<String>) -> Result<Structure> {
    let damaged = || Error::corrupt(format!("the index has a structure that is none at {path:?}"));
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    let Some(kind) = spec.get("type").and_then(serde_json::Value::as_str) else {
        names.push(if path.is_empty() { "value".to_owned() } else { path.to_owned() });
        return Ok(Structure::Field(names.len() - 1));
    };
    let children = spec.get("children_spec").and_then(serde_json::Value::as_array).ok_or_else(damaged)?;
    match kind {
        "builtins.dict" | "collections.OrderedDict" => {
            let keys = spec.get("context").and_then(serde_json::Value::as_str).ok_or_else(damaged)?;
            let keys: Vec<serde_json::Value> = serde_json::from_str(keys).map_err(|_| damaged())?;
            if keys.len() != children.len() {
                return Err(damaged());
            }
            let mut items = Vec::with_capacity(keys.len());
            for (key, child) in keys.iter().zip(children) {
                let key = key.as_str().map_or_else(|| key.to_string(), str::to_owned);
                let item = structure_of(child, &below(&key), names)?;
                items.push((key, item));
            }
            Ok(Structure::Dict(items))
        }
        "builtins.list" | "builtins.tuple" => {
            let items = (children.iter().enumerate())
                .map(|(place, child)| structure_of(child, &below(&place.to_string()), names))
                .collect::<Result<_>>()?;
            Ok(if kind == "builtins.list" { Structure::List(items) } else { Structure::Tuple(items) })
        }
        other => {
            Err(Error::new(ErrorKind::Unsupported, format!("items are {other}, of which nothing is known"))
                .with_hint("dicts, lists and tuples are read"))
        }
    }
}

impl Chunk {
    fn open(
        store: &dyn Store,
        root: &str,
        entry: &Entry,
        wrap: Wrap,
        tokens: Option<(u64, Option<u64>)>,
    ) -> Result<Self> {
        let path = join(root, &entry.filename);
        let samples = match tokens {
            Some((token, Some(block))) => {
                let dim =
                    entry.dim.ok_or_else(|| Error::corrupt(format!("the index has no tokens for {path}")))?;
                dim / (block / token)
            }
            _ => u64::from(entry.chunk_size),
        };
        let mut chunk = Self {
            path: path.as_str().into(),
            start: 0,
            samples,
            items: entry.chunk_size,
            size: 0,
            offsets: Vec::new(),
            unpacked: None,
            damage: None,
        };
        let looked = match wrap {
            Wrap::Many => chunk.look_at_packed(store, &path),
            Wrap::None | Wrap::Item => chunk.look_at_plain(store, &path),
        };
        let looked = looked.and_then(|()| match (tokens, entry.dim) {
            (Some((token, Some(_))), Some(dim)) => chunk.check_tokens(token, dim),
            _ => Ok(()),
        });
        match looked {
            Err(e) if e.kind() == ErrorKind::Corrupt => chunk.damage = Some(e),
            looked => looked?,
        }
        Ok(chunk)
    }

    fn look_at_plain(&mut self, store: &dyn Store, path: &str) -> Result<()> {
        self.size = store.size(path)?;
        let len = self.head_bytes();
        if len > self.size {
            let size = self.size;
            return Err(Error::corrupt(format!(
                "{path} has {size} bytes, not even the {len} of its offsets"
            )));
        }
        let mut head = Vec::new();
        store.read_range(path, 0, usize::try_from(len).unwrap_or(usize::MAX), &mut head)?;
        self.read_offsets(&head)?;
        if self.items > 0 && self.offsets.first() == self.offsets.last() && self.size > len + 12 {
            let mut end = Vec::new();
            store.read_range(path, self.size - 8, 8, &mut end)?;
            if end == ARROW {
                let message = format!("{path} keeps its items as rows of Arrow");
                return Err(Error::new(ErrorKind::Unsupported, message)
                    .with_hint("write rows of nested lists as Parquet, and read them with wf.parquet"));
            }
        }
        Ok(())
    }

    fn look_at_packed(&mut self, store: &dyn Store, path: &str) -> Result<()> {
        let mut packed = Vec::new();
        store.read(path, UNPACKED, &mut packed)?;
        if packed.starts_with(FRAMED) {
            return self.unpack_frames(path, &packed);
        }
        let all = Packing::Zstandard.unpack(path, &packed, UNPACKED).map_err(|e| {
            if e.kind() == ErrorKind::Limit { too_large(path, e.size().unwrap_or(UNPACKED)) } else { e }
        })?;
        self.size = all.len() as u64;
        let head = all.get(..usize::try_from(self.head_bytes()).unwrap_or(usize::MAX));
        let head =
            head.ok_or_else(|| Error::corrupt(format!("{path} ends within the offsets of its items")))?;
        self.read_offsets(head)?;
        self.unpacked = Some(all);
        Ok(())
    }

    /// Unpacks a chunk whose items are compressed many at a time.
    fn unpack_frames(&mut self, path: &str, packed: &[u8]) -> Result<()> {
        let cut = || Error::corrupt(format!("{path} ends within the places of its items"));
        let number = |at: usize| {
            let four = packed.get(at..at.checked_add(4)?)?.try_into().ok()?;
            Some(u32::from_le_bytes(four))
        };
        let (version, items, frames) =
            number(8).zip(number(12)).zip(number(20)).map(|((a, b), c)| (a, b, c)).ok_or_else(cut)?;
        if version != 1 {
            let message = format!("{path} has frames of version {}; 1 is read", version & 0xFFFF);
            return Err(Error::corrupt(message).with_offset(8));
        }
        self.check_count(path, items)?;
        let start = 24 + 4 * (u64::from(items) + 1);
        let end = start + 24 * u64::from(frames);
        let head = usize::try_from(end).ok().and_then(|end| packed.get(24..end)).ok_or_else(cut)?;
        let (offsets, places) = head.split_at(usize::try_from(start - 24).map_err(|_| cut())?);
        self.offsets = numbers(offsets).collect();
        let wanted = self.offsets.last().map_or(0, |end| u64::from(*end));
        if wanted > UNPACKED {
            return Err(too_large(path, wanted));
        }
        let mut all: Vec<u8> = Vec::new();
        let mut item = 0_u64;
        for place in places.chunks_exact(24) {
            let mut fields = numbers(place).map(u64::from);
            let mut next = || fields.next().unwrap_or(0);
            let (first, count) = (next(), next());
            let at = next() | next() << 32;
            let (len, unpacked) = (next(), next());
            let bytes = usize::try_from(at).ok().and_then(|at| packed.get(at..at.checked_add(len as usize)?));
            let follows = first == item
                && self.offsets.get(item as usize).is_some_and(|offset| *offset as usize == all.len());
            let Some(bytes) = bytes.filter(|_| follows && all.len() as u64 + unpacked <= wanted) else {
                return Err(Error::corrupt(format!(
                    "{path} has a frame that does not follow the one before"
                ))
                .with_offset(at));
            };
            let frame = Packing::Zstandard.unpack(path, bytes, unpacked).map_err(|e| {
                // It has more than it states.
                if e.kind() == ErrorKind::Limit { Error::corrupt(e.message()) } else { e }
            })?;
            if frame.len() as u64 != unpacked {
                let given = frame.len();
                return Err(Error::corrupt(format!("{path} has a frame of {given} bytes, not {unpacked}"))
                    .with_offset(at));
            }
            all.extend_from_slice(&frame);
            item += count;
        }
        if item != u64::from(items) || all.len() as u64 != wanted {
            return Err(Error::corrupt(format!("{path} has frames of {item} items, not {items}")));
        }
        self.size = all.len() as u64;
        self.unpacked = Some(all);
        Ok(())
    }

    /// Bytes in front of the items.
    fn head_bytes(&self) -> u64 {
        4 * (u64::from(self.items) + 2)
    }

    fn read_offsets(&mut self, head: &[u8]) -> Result<()> {
        let mut numbers = numbers(head);
        let found = numbers.next().unwrap_or(0);
        self.offsets = numbers.collect();
        self.check_count(&self.path, found)
    }

    fn check_count(&self, path: &str, found: u32) -> Result<()> {
        if found == self.items {
            return Ok(());
        }
        let stated = self.items;
        Err(Error::corrupt(format!("{path} has {found} items, and not {stated} as the index states"))
            .with_offset(0))
    }

    fn check_tokens(&self, token: u64, dim: u64) -> Result<()> {
        let ends = self.offsets.first().zip(self.offsets.last());
        let bytes = ends.and_then(|(start, end)| end.checked_sub(*start)).map(u64::from);
        if bytes == dim.checked_mul(token) {
            return Ok(());
        }
        let path = &self.path;
        Err(Error::corrupt(format!(
            "{path} has {bytes:?} bytes of tokens, which are not the {dim} that the index states"
        )))
    }

    fn corrupt(&self, sample: u64, what: &str) -> Error {
        let offset =
            usize::try_from(sample).ok().and_then(|at| self.offsets.get(at)).map_or(0, |at| u64::from(*at));
        Error::corrupt(format!("item {sample} of {} is damaged: {what}", self.path)).with_offset(offset)
    }
}

fn numbers(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

impl Source for LitData {
    fn name(&self) -> String {
        name_of(&self.spec)
    }

    fn spec(&self) -> SourceSpec {
        SourceSpec::Litdata(self.spec.clone())
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    /// `chunk-0-0.bin[item]`.
    fn key(&self, index: u64) -> String {
        if index >= self.len {
            return String::new();
        }
        let chunk = self.chunks.partition_point(|chunk| chunk.start <= index).saturating_sub(1);
        self.chunks
            .get(chunk)
            .map_or_else(String::new, |chunk| format!("{}[{}]", chunk.path, index - chunk.start))
    }

    fn fetch(&self, index: u64, record: &mut Record) -> Result<()> {
        let (chunk, sample) = self.find(index)?;
        let read = self.read(chunk, sample, &record.limits);
        read.and_then(|bytes| self.fill(chunk, sample, &bytes, record)).map_err(|e| located(e, self, index))
    }

    fn store(&self) -> Option<&Arc<dyn Store>> {
        (!self.in_memory()).then_some(&self.store)
    }

    fn locate(&self, index: u64, limits: &Limits, extents: &mut Vec<Extent>) -> Result<()> {
        let (chunk, sample) = self.find(index)?;
        let (start, end) = self.place(chunk, sample, limits).map_err(|e| located(e, self, index))?;
        if chunk.unpacked.is_none() {
            extents.push(Extent::range(chunk.path.clone(), start, end - start));
        }
        Ok(())
    }

    fn assemble(&self, index: u64, pieces: &[Bytes], record: &mut Record) -> Result<()> {
        let (chunk, sample) = self.find(index)?;
        if chunk.unpacked.is_some() {
            return self.fetch(index, record);
        }
        let piece = pieces.first().ok_or_else(|| Error::new(ErrorKind::Internal, "a piece is missing"))?;
        let limits = record.limits;
        self.unpacked(chunk, sample, piece, &limits)
            .and_then(|unpacked| self.fill(chunk, sample, unpacked.as_deref().unwrap_or(piece), record))
            .map_err(|e| located(e, self, index))
    }

    fn in_memory(&self) -> bool {
        self.chunks.iter().all(|chunk| chunk.unpacked.is_some() || chunk.damage.is_some())
    }

    fn fingerprint(&self) -> u64 {
        let mut hash = Fingerprint::new(&self.schema, self.len);
        for chunk in &self.chunks {
            let path = secrets::identity(&chunk.path);
            hash.add(path.rsplit('/').next().unwrap_or_default().as_bytes());
            hash.number(chunk.samples);
        }
        hash.finish()
    }

    fn parts(&self) -> Vec<Part> {
        let part = |chunk: &Chunk| Part {
            name: chunk.path.to_string(),
            beside: Some(chunk.path.to_string()),
            store: self.store.clone(),
            samples: chunk.start..chunk.start + chunk.samples,
        };
        let images = self.schema.fields.iter().any(|field| field.kind == FieldKind::Image);
        if images { self.chunks.iter().map(part).collect() } else { Vec::new() }
    }

    fn stamp(&self, index: u64) -> Option<u64> {
        let (chunk, sample) = self.find(index).ok()?;
        let stat = self.store.stat(&chunk.path).ok()?;
        Some(stamp(&format!("{}@{sample}", location(&chunk.path)), &stat))
    }
}

fn name_of(spec: &LitDataSpec) -> String {
    match spec.urls.as_slice() {
        [url] => format!("litdata({})", secrets::shown(url)),
        [url, ..] => format!("litdata({} and {} more)", secrets::shown(url), spec.urls.len() - 1),
        [] => "litdata()".to_owned(),
    }
}

#[cfg(test)]
mod tests;
