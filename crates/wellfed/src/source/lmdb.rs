//! LMDB: the entries of a memory-mapped database as samples, read by position.
//!
//! All keys are listed once, when the database is opened, with the place of their value: after that a sample is one read of its
//! bytes, and no page of the tree is looked at again. Nothing is mapped and nothing locked: bytes go from the page cache into the
//! record, files may lie in any store, and one that is damaged or cut is an error, not a signal.
//!
//! What is opened is the state after one transaction. LMDB does not write to pages of it until the second transaction after it is
//! complete. Every read looks at the transactions in the file afterwards, so that bytes of others are never handed out:
//! a sample is then an error of [`ErrorKind::Changed`]. Stores in the cloud know their objects by entity tags instead.

mod pages;
mod value;

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use pages::{Entries, NOWHERE, OVERFLOW_HEAD, Place, Snapshot};
use serde::{Deserialize, Serialize};
pub use value::LmdbValue;
use value::{Examples, Layout};

use super::{
    Fingerprint, Gather, Part, Source, SourceSpec, Wanted, beyond_the_end, located, location, shards, stamp,
};
use crate::{
    Error, ErrorKind, Limits, Result,
    io::{Bytes, Extent},
    sample::{FieldKind, FieldSpec, Record, Schema, Structure},
    store::{Store, join, listing, secrets},
};

/// Entries whose values are looked at to find out what values are.
const EXAMPLES: usize = 64;

/// Bytes of them together, after which no further one is looked at.
const EXAMPLE_BYTES: u64 = 64 << 20;

/// Values that are copied many at a time, in bytes at most. Of larger ones each is worth a read of its own, ahead of the workers.
const GATHERED: usize = 16 << 10;

/// Keys that others keep the number of samples, or a list of them, under.
const NO_SAMPLES: [&[u8]; 2] = [b"__len__", b"__keys__"];

/// What to open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LmdbSpec {
    /// Folders with a `data.mdb`, or files: paths with braces or stars, `::` between several in one.
    pub urls: Vec<String>,
    /// The named database in each of them. Default: the one without a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub db: Option<String>,
    /// Which entries are samples. Default: all but `__len__` and `__keys__`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<LmdbKeys>,
    /// How values are written.
    #[serde(default)]
    pub value: LmdbValue,
    /// Fields to take, in order, handed out as a tuple: those of the values, and `__key__`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fields: Option<Vec<String>>,
}

impl LmdbSpec {
    /// All entries of the database `url`, values as they are found to be.
    pub fn new(url: impl Into<String>) -> Self {
        Self { urls: vec![url.into()], db: None, keys: None, value: LmdbValue::Auto, fields: None }
    }
}

/// Which entries are samples.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LmdbKeys {
    /// Those whose keys begin so.
    Prefix(LmdbKey),
    /// Those with these keys, in this order.
    List(Vec<LmdbKey>),
}

/// A key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum LmdbKey {
    /// One of text (UTF-8).
    Text(String),
    /// Any other.
    Bytes(Vec<u8>),
}

impl LmdbKey {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// One file.
#[derive(Debug)]
struct Shard {
    path: Arc<str>,
    snapshot: Snapshot,
    integer_keys: bool,
    entries: Entries,
    /// Index of its first sample.
    start: u64,
    /// Samples, those included whose entries are lost.
    samples: u64,
}

/// Samples in LMDB databases.
#[derive(Debug)]
pub struct Lmdb {
    store: Arc<dyn Store>,
    spec: LmdbSpec,
    schema: Schema,
    layout: Layout,
    /// Field of each part of the layout.
    into: Vec<Option<usize>>,
    /// The field that is the key.
    key: Option<usize>,
    shards: Vec<Shard>,
    len: u64,
    /// Whether files may change while they are read.
    watched: bool,
}

impl Lmdb {
    /// Lists the entries of all files, and finds out what their values are.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] for a file, a named database or a key that there is not; [`ErrorKind::Config`] for values or fields
    /// that do not go together; [`ErrorKind::Unsupported`] for keys with several values and pickles; [`ErrorKind::Corrupt`] for a
    /// file that is damaged where its entries cannot be told; [`ErrorKind::Changed`] for one that is written too fast.
    pub fn open(store: Arc<dyn Store>, spec: LmdbSpec) -> Result<Self> {
        let name = name_of(&spec);
        Self::build(store, spec).map_err(|e| e.with_source(name))
    }

    fn build(store: Arc<dyn Store>, spec: LmdbSpec) -> Result<Self> {
        let (store, paths) = shards::find(&store, &spec.urls)?;
        let watched = store.remote().is_none();
        let mut opened = listing::parallel(&paths, |path| Shard::open(&*store, path, &spec, watched))?;
        let mut len = 0;
        for shard in &mut opened {
            shard.start = len;
            len += shard.samples;
        }
        if let Some(LmdbKeys::List(keys)) = &spec.keys {
            opened = vec![listed(opened, keys)?];
            len = opened.iter().map(|shard| shard.samples).sum();
        }
        let schema = Schema { fields: Vec::new(), structure: Structure::Field(0) };
        let layout = Layout::of(&LmdbValue::Bytes, Vec::new())?;
        let mut this =
            Self { store, spec, schema, layout, into: Vec::new(), key: None, shards: opened, len, watched };
        // What is said needs no example, unless it has a shape of its own.
        let open = matches!(
            this.spec.value,
            LmdbValue::Auto | LmdbValue::Npy | LmdbValue::Datum | LmdbValue::Msgpack
        );
        let examples = if open { this.examples()? } else { Vec::new() };
        this.layout = Layout::of(&this.spec.value, examples)?;
        this.take()?;
        Ok(this)
    }

    /// Values from all over the data set, those that can be read.
    fn examples(&self) -> Result<Examples> {
        let count = self.len.min(EXAMPLES as u64);
        // The first and the last one among them.
        let numbers: Vec<u64> =
            (0..count).map(|i| if count > 1 { i * (self.len - 1) / (count - 1) } else { i }).collect();
        let mut left = EXAMPLE_BYTES;
        let mut wanted = Vec::with_capacity(numbers.len());
        for number in numbers {
            let Ok((_, _, place)) = self.find(number) else { continue };
            wanted.push(number);
            match left.checked_sub(u64::from(place.bytes)) {
                Some(rest) => left = rest,
                None => break,
            }
        }
        let read = |number: &u64| {
            let mut value = Vec::new();
            let read = self
                .find(*number)
                .and_then(|(shard, _, place)| self.read(shard, place, &Limits::default(), &mut value));
            match read {
                Ok(()) => Ok(Some((self.key(*number), value))),
                Err(e) if e.kind() == ErrorKind::Transient => Err(e),
                Err(_) => Ok(None),
            }
        };
        Ok(listing::parallel(&wanted, read)?.into_iter().flatten().collect())
    }

    /// Sets the fields.
    fn take(&mut self) -> Result<()> {
        let parts = &self.layout.parts;
        let Some(fields) = &self.spec.fields else {
            self.schema = Schema { fields: parts.clone(), structure: self.layout.structure.clone() };
            self.into = (0..parts.len()).map(Some).collect();
            return Ok(());
        };
        if fields.is_empty() {
            return Err(Error::config("fields is empty"));
        }
        self.into = vec![None; parts.len()];
        let mut taken = Vec::with_capacity(fields.len());
        for (number, field) in fields.iter().enumerate() {
            let part = parts.iter().position(|part| part.name == *field);
            let before = match part {
                Some(part) => self.into[part].replace(number),
                None if field == "__key__" => self.key.replace(number),
                None => {
                    let there: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
                    return Err(Error::config(format!(
                        "there is no field {field}: there are __key__, {}",
                        there.join(", ")
                    )));
                }
            };
            if before.is_some() {
                return Err(Error::config(format!("field {field} is asked for twice")));
            }
            let kind = part.map_or(FieldKind::Text, |part| parts[part].kind.clone());
            taken.push(FieldSpec { name: field.clone(), kind });
        }
        let structure = Structure::Tuple((0..taken.len()).map(Structure::Field).collect());
        self.schema = Schema { fields: taken, structure };
        Ok(())
    }

    fn shard_of(&self, index: u64) -> Option<(&Shard, u64)> {
        if index >= self.len {
            return None;
        }
        let shard = self.shards.partition_point(|shard| shard.start <= index).checked_sub(1)?;
        let shard = self.shards.get(shard)?;
        Some((shard, index - shard.start))
    }

    /// Where the value of a sample lies.
    fn find(&self, index: u64) -> Result<(&Shard, usize, Place)> {
        let (shard, number) = self.shard_of(index).ok_or_else(|| beyond_the_end(self, index))?;
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        match shard.entries.place(number) {
            Some(place) if place.offset() == NOWHERE => {
                let (path, key) = (&shard.path, shard.shown(number));
                let message = format!("the value of {key} lies outside of {path}: its page is damaged");
                Err(located(Error::corrupt(message), self, index))
            }
            Some(place) => Ok((shard, number, place)),
            None => {
                let lost = shard.entries.lost;
                let what = shard.entries.damage.as_ref().map_or("", |e| e.message());
                let message = format!("one of {lost} entries that are lost: {what}");
                Err(located(Error::corrupt(message), self, index))
            }
        }
    }

    /// Appends the bytes of a value to `into`, which is empty.
    fn read(&self, shard: &Shard, place: Place, limits: &Limits, into: &mut Vec<u8>) -> Result<()> {
        limits.check_bytes("the value", u64::from(place.bytes))?;
        let (path, offset) = (&*shard.path, place.offset());
        if place.has_own_pages() {
            let head = OVERFLOW_HEAD as usize;
            self.store.read_range(path, offset - OVERFLOW_HEAD, head, into)?;
            // What a writer put there meanwhile is no damage.
            let checked = shard.check_head(into, place);
            if checked.is_err() && self.watched {
                shard.snapshot.check(&*self.store, path)?;
            }
            checked?;
            into.clear();
        }
        self.store.read_range(path, offset, place.bytes as usize, into).map_err(|e| e.with_offset(offset))?;
        if self.watched {
            shard.snapshot.check(&*self.store, path)?;
        }
        Ok(())
    }

    /// Reads values of one file into the rows of a column.
    fn gather_from(
        &self,
        shard: &Shard,
        rows: &[(usize, Place, usize)],
        size: usize,
        column: &mut [u8],
    ) -> Result<()> {
        let path = &*shard.path;
        let own: Vec<Place> =
            rows.iter().map(|(_, place, _)| *place).filter(|place| place.has_own_pages()).collect();
        let length = OVERFLOW_HEAD as usize;
        let mut heads = vec![0; own.len() * length];
        let at: Vec<(u64, usize)> =
            own.iter().enumerate().map(|(row, place)| (place.offset() - OVERFLOW_HEAD, row)).collect();
        self.store.read_rows(path, &at, length, &mut heads)?;
        for (head, place) in heads.chunks_exact(length).zip(own) {
            shard.check_head(head, place)?;
        }
        let at: Vec<(u64, usize)> = rows.iter().map(|(_, place, row)| (place.offset(), *row)).collect();
        self.store.read_rows(path, &at, size, column)?;
        shard.snapshot.check(&*self.store, path)
    }

    fn fill(
        &self,
        shard: &Shard,
        number: usize,
        place: Place,
        value: &[u8],
        record: &mut Record,
    ) -> Result<()> {
        self.layout.read(value, &self.into, record).map_err(|what| {
            let (path, key) = (&shard.path, shard.shown(number));
            Error::corrupt(format!("the value of {key} in {path} {what}")).with_offset(place.offset())
        })?;
        self.finish(shard, number, place, record);
        Ok(())
    }

    /// Sets what is not read: the key, and places.
    fn finish(&self, shard: &Shard, number: usize, place: Place, record: &mut Record) {
        record.offsets.fill(place.offset());
        if let Some(key) = self.key {
            record.values[key].buffer().extend_from_slice(shard.shown(number).as_bytes());
            record.offsets[key] = 0;
        }
    }
}

impl Shard {
    fn open(store: &dyn Store, path: &str, spec: &LmdbSpec, watched: bool) -> Result<Self> {
        let path = if store.is_folder(path) { join(path, "data.mdb") } else { path.to_owned() };
        let mut tries = 0;
        loop {
            let snapshot = Snapshot::newest(store, &path)?;
            let opened = Self::list(store, &path, snapshot, spec);
            if !watched || snapshot.check(store, &path).is_ok() {
                return opened;
            }
            // A writer was faster than the list.
            tries += 1;
            if tries == 10 {
                return Err(pages::changing(&path));
            }
        }
    }

    fn list(store: &dyn Store, path: &str, snapshot: Snapshot, spec: &LmdbSpec) -> Result<Self> {
        let mut tree = snapshot.main;
        let mut entries = pages::entries(store, path, &snapshot, &tree)?;
        let mut there: Vec<String> =
            entries.named.iter().map(|(name, _)| name.escape_ascii().to_string()).collect();
        if let Some(db) = &spec.db {
            let named = entries.named.iter().find(|(name, _)| name == db.as_bytes());
            let Some((_, named)) = named else {
                let message = format!("{path} has no database {db}: there are {}", some_of(&mut there));
                return Err(Error::new(ErrorKind::NotFound, message));
            };
            tree = *named;
            entries = pages::entries(store, path, &snapshot, &tree)?;
        } else if entries.len() == 0 && !there.is_empty() {
            let message = format!("{path} has entries in named databases only: {}", some_of(&mut there));
            return Err(Error::config(message).with_hint("say which one to read: db=\"...\""));
        }
        let entries = match &spec.keys {
            None => entries.filtered(|key| !NO_SAMPLES.contains(&key)),
            Some(LmdbKeys::Prefix(prefix)) => entries.filtered(|key| key.starts_with(prefix.bytes())),
            Some(LmdbKeys::List(_)) => entries,
        };
        let samples = entries.len() as u64 + entries.lost;
        Ok(Self {
            path: path.into(),
            snapshot,
            integer_keys: tree.has_integer_keys(),
            entries,
            start: 0,
            samples,
        })
    }

    /// A key as people read it. Two keys of a database are never shown as the same.
    fn shown(&self, number: usize) -> Cow<'_, str> {
        let key = self.entries.key(number);
        if self.integer_keys && matches!(key.len(), 4 | 8) {
            return key.iter().rev().fold(0_u64, |all, byte| all << 8 | u64::from(*byte)).to_string().into();
        }
        match std::str::from_utf8(key) {
            Ok(text) if !text.contains(|c: char| c.is_control() || c == '\\') => text.into(),
            _ => key.escape_ascii().to_string().into(),
        }
    }

    fn check_head(&self, head: &[u8], place: Place) -> Result<()> {
        let (page_size, at) = (self.snapshot.page_size, place.offset() - OVERFLOW_HEAD);
        if pages::is_overflow(head, at / page_size, u64::from(place.bytes), page_size) {
            return Ok(());
        }
        let (path, page) = (&self.path, at / page_size);
        let message = format!("page {page} of {path} is damaged: it does not begin as that of a value does");
        Err(Error::corrupt(message).with_offset(at))
    }
}

/// The entries that are listed, in the order of the list.
fn listed(mut shards: Vec<Shard>, keys: &[LmdbKey]) -> Result<Shard> {
    let Some(mut shard) = shards.pop().filter(|_| shards.is_empty()) else {
        return Err(Error::config("keys is a list, but there are several files")
            .with_hint("open them one by one, and put them together with concatenate"));
    };
    let all: HashMap<&[u8], usize> = (0..shard.entries.len()).map(|n| (shard.entries.key(n), n)).collect();
    let mut numbers = Vec::with_capacity(keys.len());
    let mut taken = std::collections::HashSet::with_capacity(keys.len());
    for key in keys {
        let shown = key.bytes().escape_ascii();
        let Some(number) = all.get(key.bytes()) else {
            // It may be among those that are lost, of which no key is known.
            if let Some(damage) = &shard.entries.damage {
                return Err(damage.clone());
            }
            let message = format!("{} has no key {shown}", shard.path);
            return Err(Error::new(ErrorKind::NotFound, message));
        };
        if !taken.insert(*number) {
            return Err(Error::config(format!("keys has {shown} twice")));
        }
        numbers.push(*number);
    }
    drop(all);
    shard.entries = shard.entries.chosen(numbers);
    // All that are wanted are there.
    shard.entries.lost = 0;
    shard.samples = shard.entries.len() as u64;
    shard.start = 0;
    Ok(shard)
}

fn some_of(names: &mut Vec<String>) -> String {
    if names.is_empty() {
        return "none".to_owned();
    }
    let more = names.len().saturating_sub(20);
    names.truncate(20);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    names.join(", ") + &more
}

impl Source for Lmdb {
    fn name(&self) -> String {
        name_of(&self.spec)
    }

    fn spec(&self) -> SourceSpec {
        SourceSpec::Lmdb(self.spec.clone())
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The key in the database; of several files `data.mdb[key]`.
    fn key(&self, index: u64) -> String {
        let Some((shard, number)) = self.shard_of(index) else { return String::new() };
        let known = shard.entries.len() as u64;
        let key = match usize::try_from(number) {
            Ok(number) if (number as u64) < known => shard.shown(number),
            // No key is shown like this.
            _ => format!("\\lost {}", number - known).into(),
        };
        if self.shards.len() > 1 { format!("{}[{key}]", shard.path) } else { key.into_owned() }
    }

    fn own_name(&self, index: u64) -> String {
        match self.find(index) {
            Ok((shard, number, _)) => shard.shown(number).into_owned(),
            Err(_) => self.key(index),
        }
    }

    fn fetch(&self, index: u64, record: &mut Record) -> Result<()> {
        let (shard, number, place) = self.find(index)?;
        record.reset(self.schema.fields.len());
        let limits = record.limits;
        let done = match self.into.first().copied().flatten() {
            // Straight into the record.
            Some(field) if self.layout.is_plain() => self
                .read(shard, place, &limits, record.values[field].buffer())
                .map(|()| self.finish(shard, number, place, record)),
            _ => {
                let mut value = Vec::new();
                self.read(shard, place, &limits, &mut value)
                    .and_then(|()| self.fill(shard, number, place, &value, record))
            }
        };
        done.map_err(|e| located(e, self, index))
    }

    fn gathers(&self) -> bool {
        let array = self.layout.array().is_some_and(|bytes| bytes <= GATHERED);
        let numbers =
            |field: &FieldSpec| matches!(field.kind, FieldKind::Array { .. } | FieldKind::Scalar { .. });
        self.watched && array && self.into == [Some(0)] && self.schema.fields.iter().all(numbers)
    }

    /// Arrays, file by file: one look at the transactions for all of them.
    fn gather(&self, wanted: &[Wanted], record: &Record, into: &mut Gather<'_>) {
        let size = into.size(0);
        if !self.gathers() || into.columns.len() != 1 || self.layout.array() != Some(size) {
            return;
        }
        if record.limits.check_bytes("the value", size as u64).is_err() {
            return;
        }
        let mut found: Vec<(usize, Place, usize)> = Vec::with_capacity(wanted.len());
        for Wanted { index, row } in wanted {
            // What is lost or of another size, `fetch` will say.
            let Ok((_, _, place)) = self.find(*index) else { continue };
            let number = self.shards.partition_point(|shard| shard.start <= *index) - 1;
            if place.bytes as usize == size && *row < into.copied.len() {
                found.push((number, place, *row));
            }
        }
        found.sort_unstable_by_key(|(shard, place, _)| (*shard, place.offset()));
        for rows in found.chunk_by(|one, next| one.0 == next.0) {
            let Some(shard) = rows.first().and_then(|(shard, ..)| self.shards.get(*shard)) else { continue };
            if self.gather_from(shard, rows, size, into.columns[0]).is_ok() {
                rows.iter().for_each(|(_, _, row)| into.copied[*row] = true);
            }
        }
    }

    fn store(&self) -> Option<&Arc<dyn Store>> {
        Some(&self.store)
    }

    fn locate(&self, index: u64, limits: &Limits, extents: &mut Vec<Extent>) -> Result<()> {
        let (shard, _, place) = self.find(index)?;
        let bytes = u64::from(place.bytes);
        limits.check_bytes("the value", bytes).map_err(|e| located(e, self, index))?;
        let head = if place.has_own_pages() { OVERFLOW_HEAD } else { 0 };
        extents.push(Extent::range(shard.path.clone(), place.offset() - head, bytes + head));
        Ok(())
    }

    fn assemble(&self, index: u64, pieces: &[Bytes], record: &mut Record) -> Result<()> {
        let (shard, number, place) = self.find(index)?;
        let piece = pieces.first().ok_or_else(|| Error::new(ErrorKind::Internal, "a piece is missing"))?;
        record.reset(self.schema.fields.len());
        let head = if place.has_own_pages() { OVERFLOW_HEAD as usize } else { 0 };
        let (head, value) = piece.split_at_checked(head).unwrap_or_default();
        let checked = if place.has_own_pages() { shard.check_head(head, place) } else { Ok(()) };
        checked
            .and_then(|()| self.fill(shard, number, place, value, record))
            .map_err(|e| located(e, self, index))
    }

    fn fingerprint(&self) -> u64 {
        let mut hash = Fingerprint::new(&self.schema, self.len);
        for shard in &self.shards {
            for number in 0..shard.entries.len() {
                hash.add(shard.entries.key(number));
                hash.number(shard.entries.place(number).map_or(0, |place| u64::from(place.bytes)));
            }
        }
        hash.finish()
    }

    fn parts(&self) -> Vec<Part> {
        let part = |shard: &Shard| Part {
            name: shard.path.to_string(),
            beside: Some(shard.path.to_string()),
            store: self.store.clone(),
            samples: shard.start..shard.start + shard.samples,
        };
        let images = self.schema.fields.iter().any(|field| field.kind == FieldKind::Image);
        if images { self.shards.iter().map(part).collect() } else { Vec::new() }
    }

    fn stamp(&self, index: u64) -> Option<u64> {
        let (shard, _, place) = self.find(index).ok()?;
        let stat = self.store.stat(&shard.path).ok()?;
        Some(stamp(&format!("{}@{}", location(&shard.path), place.offset()), &stat))
    }
}

fn name_of(spec: &LmdbSpec) -> String {
    let db = spec.db.as_ref().map_or_else(String::new, |db| format!(", db={db:?}"));
    match spec.urls.as_slice() {
        [url] => format!("lmdb({}{db})", secrets::shown(url)),
        [url, ..] => format!("lmdb({} and {} more{db})", secrets::shown(url), spec.urls.len() - 1),
        [] => "lmdb()".to_owned(),
    }
}

#[cfg(test)]
mod tests;
