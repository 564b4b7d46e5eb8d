//! TFRecord: records of bytes or of `tf.train.Example`, reached directly.
//!
//! Each file is indexed once, when the source is opened, in parallel and by reading lengths only; then any sample is a read by
//! position. A file that is cut, or in which a length is damaged, keeps the records before that place and gets one more, last
//! sample whose fetch says where and how it is damaged; a record whose bytes do not fit their checksum is a bad sample.
//! Compressed files have no positions: they are unpacked once, into a folder that the user names.

use std::{cell::RefCell, io::Read, path::PathBuf, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{
    Fingerprint, IndexMode, Part, Source, SourceSpec, beyond_the_end,
    example::{self, Features, FoundFeature},
    features::FeatureSpec,
    located, location, shards, stamp,
    tfrecord_framing::{FOOTER, HEADER, checked, length},
    tfrecord_index::{Damage, RecordIndex},
    tfrecord_sidecar::{self, Kept},
    unpack::Packing,
    unpack_to,
};
use crate::{
    Error, ErrorKind, Limits, Result,
    io::{Bytes, Extent},
    sample::{FieldKind, FieldSpec, Record, Schema, Structure, Value},
    store::{LocalStore, RetryingStore, Stat, Store, join, listing, reserve, secrets},
};

/// Bytes of memory for records that a thread keeps from sample to sample.
const KEPT: usize = 256 << 10;

/// How files are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TfRecordCompression {
    /// Found out from the first bytes of the files.
    #[default]
    Auto,
    /// Not at all.
    None,
    /// gzip (RFC 1952).
    Gzip,
    /// zlib (RFC 1950).
    Zlib,
}

/// What to open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TfRecordSpec {
    /// Files: paths with braces or stars, as of tar shards.
    pub urls: Vec<String>,
    /// Features of the `Example`s, or of the contexts of `SequenceExample`s. Without these and `sequence_features` a sample
    /// is the bytes of its record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub features: Option<Vec<FeatureSpec>>,
    /// Features of the feature lists of `SequenceExample`s. Samples are then a pair of two dicts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence_features: Option<Vec<FeatureSpec>>,
    /// Fields to take, in order, handed out as a tuple: names of features, `__key__` and `__url__`. Default: a dict of all
    /// features.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fields: Option<Vec<String>>,
    /// How files are compressed.
    #[serde(default)]
    pub compression: TfRecordCompression,
    /// The folder that compressed files are unpacked into.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unpack_to: Option<PathBuf>,
    /// Where indices are kept.
    #[serde(default)]
    pub index: IndexMode,
}

impl TfRecordSpec {
    /// The files `url` stands for, with all defaults.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            urls: vec![url.into()],
            features: None,
            sequence_features: None,
            fields: None,
            compression: TfRecordCompression::Auto,
            unpack_to: None,
            index: IndexMode::Memory,
        }
    }
}

/// A field that is no feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Key,
    Url,
}

/// One file, and the index of its first sample in the source.
#[derive(Debug)]
struct Shard {
    /// As it was named.
    path: Arc<str>,
    /// Where its records are read from: itself, or what it was unpacked to.
    file: Arc<str>,
    start: u64,
    index: RecordIndex,
    /// Its index is of a copy of it, as far as is known.
    copied: bool,
}

impl Shard {
    /// The record in what was read of it.
    ///
    /// # Errors
    /// If its checksum says that it is another.
    fn checked<'a>(&self, framed: &'a [u8]) -> Result<&'a [u8]> {
        checked(framed).map_err(|e| if self.copied { tfrecord_sidecar::of_copy(&self.file, &e) } else { e })
    }
}

/// Records of TFRecord files.
#[derive(Debug)]
pub struct TfRecord {
    store: Arc<dyn Store>,
    spec: TfRecordSpec,
    schema: Schema,
    /// The features come first in a record of the schema.
    features: Option<Features>,
    /// Fields after them.
    others: Vec<Origin>,
    shards: Vec<Shard>,
    len: u64,
}

/// A place in the source.
enum Place<'a> {
    Sample(&'a Shard, usize),
    Damage(&'a Shard),
}

thread_local! {
    /// Memory for records of which nothing is a large byte string.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl TfRecord {
    /// Finds the files and reads the lengths of their records, or kept indices.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] for a file that does not exist; [`ErrorKind::Unsupported`] for a compressed one without a folder
    /// to unpack it to; [`ErrorKind::Config`] for features that cannot be had.
    pub fn open(store: Arc<dyn Store>, spec: TfRecordSpec) -> Result<Self> {
        let name = name_of(&spec);
        Self::build(store, spec).map_err(|e| e.with_source(name))
    }

    fn build(local: Arc<dyn Store>, spec: TfRecordSpec) -> Result<Self> {
        let (schema, features, others) = fields_of(&spec)?;
        let (store, mut paths) = shards::find(&local, &spec.urls)?;
        // Names of TFRecord files have no common end, so that patterns for them match what lies beside them, too.
        paths.retain(|path| !path.ends_with(".wfidx") && !path.ends_with(".wfrows"));
        if paths.is_empty() {
            return Err(Error::new(ErrorKind::NotFound, "there is no file but indices"));
        }
        let opened = listing::parallel_at(&*store, &paths, |path| open_file(&store, path, &spec))?;
        let unpacked = opened.iter().filter(|file| file.unpacked.is_some()).count();
        if unpacked > 0 && unpacked < opened.len() {
            let plain = opened.iter().position(|file| file.unpacked.is_none()).unwrap_or_default();
            return Err(Error::config(format!(
                "{unpacked} of {} files are compressed, and others are not, as {}",
                opened.len(),
                paths[plain]
            ))
            .with_hint("open them apart, and put them together with concatenate or sample_from_datasets"));
        }
        let store: Arc<dyn Store> =
            if unpacked > 0 { RetryingStore::around(Arc::new(LocalStore::new())) } else { store };
        let (mut all, mut len) = (Vec::with_capacity(paths.len()), 0);
        for (path, opened) in paths.into_iter().zip(opened) {
            let start = len;
            len += opened.index.len() as u64 + u64::from(opened.index.damage.is_some());
            let path: Arc<str> = path.into();
            let file = opened.unpacked.map_or_else(|| path.clone(), Arc::from);
            all.push(Shard { path, file, start, index: opened.index, copied: opened.copied });
        }
        Ok(Self { store, spec, schema, features, others, shards: all, len })
    }

    /// Paths of the files, in order.
    pub fn shards(&self) -> impl Iterator<Item = &str> {
        self.shards.iter().map(|shard| &*shard.path)
    }

    /// Whether `path` begins with the length of a record, as the checksum of that says. False if it cannot be read.
    pub fn begins(store: &dyn Store, path: &str) -> bool {
        let mut header = Vec::new();
        let read = store.read_range(path, 0, HEADER as usize, &mut header);
        read.is_ok() && header.first_chunk().is_some_and(|header| length(*header).is_ok())
    }

    /// The features of the first record, by name. Empty if there is no record or it is no `tf.train.Example`.
    pub fn features_of_first(&self) -> Vec<FoundFeature> {
        let Some(shard) = self.shards.iter().find(|shard| shard.index.len() > 0) else { return Vec::new() };
        let mut framed = Vec::new();
        let read = self.read(shard, 0, &Limits::default(), &mut framed);
        let found = read.and_then(|()| checked(&framed).and_then(example::describe)).unwrap_or_default();
        // A name that nobody would give: bytes that happen to be of the form of a message.
        if found.iter().any(|feature| feature.name.is_empty()) { Vec::new() } else { found }
    }

    /// The same files with these features of their records.
    ///
    /// # Errors
    /// As [`TfRecord::open`], for features.
    pub fn with_features(mut self, features: Vec<FeatureSpec>) -> Result<Self> {
        self.spec.features = Some(features);
        (self.schema, self.features, self.others) = fields_of(&self.spec)?;
        Ok(self)
    }

    fn place(&self, index: u64) -> Option<Place<'_>> {
        if index >= self.len {
            return None;
        }
        let shard = self.shards.partition_point(|shard| shard.start <= index).checked_sub(1)?;
        let shard = &self.shards[shard];
        let number = usize::try_from(index - shard.start).ok()?;
        Some(if number < shard.index.len() { Place::Sample(shard, number) } else { Place::Damage(shard) })
    }

    /// Where sample `index` lies.
    fn sample(&self, index: u64) -> Result<(&Shard, usize)> {
        let shard = match self.place(index) {
            None => return Err(beyond_the_end(self, index)),
            Some(Place::Sample(shard, number)) => return Ok((shard, number)),
            Some(Place::Damage(shard)) => shard,
        };
        let error = match &shard.index.damage {
            Some(Damage { offset, message, hint }) => {
                Error::corrupt(format!("file {} is damaged: {message}", shard.path))
                    .with_offset(*offset)
                    .with_hint(*hint)
            }
            None => Error::new(ErrorKind::Internal, "an intact file has a damaged sample"),
        };
        Err(located(error, self, index))
    }

    /// Appends the record and its checksum.
    fn read(&self, shard: &Shard, number: usize, limits: &Limits, into: &mut Vec<u8>) -> Result<()> {
        let (offset, len) = extent(shard, number, limits)?;
        let len =
            usize::try_from(len).map_err(|_| Error::limit("the record", len, usize::MAX as u64, "bytes"))?;
        self.store.read_range(&shard.file, offset, len, into).map_err(|e| e.with_offset(offset))
    }

    /// Makes the values of what lies in `framed`, all of them copies.
    fn fill(&self, shard: &Shard, number: usize, framed: &[u8], record: &mut Record) -> Result<()> {
        let bytes = shard.checked(framed)?;
        match &self.features {
            Some(features) => {
                features.read(bytes, record, false)?;
            }
            None => {
                let value = record.values.first_mut().ok_or_else(no_field)?.buffer();
                reserve(value, bytes.len(), "a record")?;
                value.extend_from_slice(bytes);
            }
        }
        self.finish(shard, number, record)
    }

    /// Fills in what does not come from the bytes of the record.
    fn finish(&self, shard: &Shard, number: usize, record: &mut Record) -> Result<()> {
        let (start, _) = shard.index.record(number).ok_or_else(no_field)?;
        record.offsets.iter_mut().for_each(|offset| *offset += start);
        let first = record.values.len() - self.others.len();
        for (value, origin) in record.values[first..].iter_mut().zip(&self.others) {
            let text = match origin {
                Origin::Key => key_of(shard, number),
                Origin::Url => shard.path.to_string(),
            };
            value.buffer().extend_from_slice(text.as_bytes());
        }
        Ok(())
    }

    /// The field in whose memory the record is read: what stays there needs no copy.
    fn home(&self) -> Option<usize> {
        self.features.as_ref().map_or(Some(0), Features::large)
    }

    /// Reads and makes one sample.
    fn make(&self, shard: &Shard, number: usize, record: &mut Record) -> Result<()> {
        record.reset(self.schema.fields.len());
        let limits = record.limits;
        let Some(home) = self.home() else {
            return SCRATCH.with_borrow_mut(|framed| {
                framed.clear();
                let made = self
                    .read(shard, number, &limits, framed)
                    .and_then(|()| self.fill(shard, number, framed, record));
                if framed.capacity() > KEPT {
                    *framed = Vec::new();
                }
                made
            });
        };
        let mut framed = std::mem::take(record.values[home].buffer());
        let made = self.read(shard, number, &limits, &mut framed).and_then(|()| {
            let bytes = shard.checked(&framed)?;
            match &self.features {
                Some(features) => features.read(bytes, record, true),
                None => Ok(Some(0..bytes.len())),
            }
        });
        // The memory goes back also after an error, for the next sample.
        match &made {
            Ok(Some(place)) => {
                framed.truncate(place.end);
                framed.drain(..place.start);
            }
            Ok(None) => {
                framed.clear();
                framed.extend_from_slice(self.features.as_ref().map_or(&[], Features::large_default));
            }
            Err(_) => framed.clear(),
        }
        record.values[home] = Value::Bytes(framed);
        made?;
        self.finish(shard, number, record)
    }
}

fn no_field() -> Error {
    Error::new(ErrorKind::Internal, "a record has no field")
}

/// A file that was opened.
struct Opened {
    index: RecordIndex,
    /// Where it was unpacked to.
    unpacked: Option<String>,
    copied: bool,
}

fn open_file(store: &Arc<dyn Store>, path: &str, spec: &TfRecordSpec) -> Result<Opened> {
    let stat = store.stat(path)?;
    let sidecar = spec.index == IndexMode::Sidecar;
    let plain = |store: &dyn Store, file: &str, stat: &Stat| -> Result<Kept> {
        let kept =
            (spec.index != IndexMode::Anew).then(|| tfrecord_sidecar::load(store, file, stat)).flatten();
        if let Some(kept) = kept {
            return Ok(kept);
        }
        let index = RecordIndex::scan(store, file)?;
        if sidecar {
            tfrecord_sidecar::save(store, file, stat, &index);
        }
        Ok(Kept { index, copied: false })
    };
    let may_be_plain = matches!(spec.compression, TfRecordCompression::Auto | TfRecordCompression::None);
    if may_be_plain {
        let Kept { index, copied } = plain(&**store, path, &stat)?;
        // Only a file that makes no sense from its first byte on is looked at for what else it may be.
        let strange = index.len() == 0 && index.damage.is_some();
        let packing = if strange { guess(&**store, path)? } else { None };
        match packing {
            None => return Ok(Opened { index, unpacked: None, copied }),
            Some(packing) if spec.compression == TfRecordCompression::None => {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    format!("{path} is compressed with {}", packing.name()),
                )
                .with_hint(format!("compression={:?} reads it", packing.name().to_uppercase())));
            }
            Some(packing) => return unpacked(store, path, &stat, packing, spec, plain),
        }
    }
    let packing = if spec.compression == TfRecordCompression::Gzip { Packing::Gzip } else { Packing::Zlib };
    unpacked(store, path, &stat, packing, spec, plain)
}

/// Compressed bytes that are looked at to find out whether they are.
const FIRST: usize = 64 << 10;

/// What a file that is no TFRecord file is instead: the form in which its first bytes unpack to a record, or to nothing at all.
fn guess(store: &dyn Store, path: &str) -> Result<Option<Packing>> {
    let size = usize::try_from(store.size(path)?).unwrap_or(usize::MAX).min(FIRST);
    let mut first = Vec::new();
    store.read_range(path, 0, size, &mut first)?;
    let unpacks = |packing: &Packing| {
        let mut header = Vec::new();
        packing.decoder(&*first).is_ok_and(|decoder| decoder.take(HEADER).read_to_end(&mut header).is_ok())
            && (header.is_empty() || header.first_chunk().is_some_and(|header| length(*header).is_ok()))
    };
    Ok([Packing::Gzip, Packing::Zlib].into_iter().find(unpacks))
}

fn unpacked(
    store: &Arc<dyn Store>,
    path: &str,
    stat: &Stat,
    packing: Packing,
    spec: &TfRecordSpec,
    plain: impl Fn(&dyn Store, &str, &Stat) -> Result<Kept>,
) -> Result<Opened> {
    let folder = spec.unpack_to.as_ref().ok_or_else(|| unpack_to::refused(path, packing))?;
    let done = unpack_to::unpack(&**store, path, stat, packing, folder, "tfrecord")?;
    let local = LocalStore::new();
    let stat = local.stat(&done.file)?;
    let mut index = plain(&local, &done.file, &stat)?.index;
    if let Some(message) = done.damage {
        // What is missing is missing of the file that was unpacked; its records end where they do because of that.
        let hint = "the file was cut or changed, perhaps during a copy: what comes before is checked record by record";
        index.damage = Some(Damage { offset: index.end, message, hint });
    }
    Ok(Opened { index, unpacked: Some(done.file), copied: false })
}

/// The schema of samples, what is read of records, and the fields after that.
type Fields = (Schema, Option<Features>, Vec<Origin>);

fn fields_of(spec: &TfRecordSpec) -> Result<Fields> {
    let context = spec.features.as_deref().unwrap_or_default();
    let steps = spec.sequence_features.as_deref().unwrap_or_default();
    let all: Vec<(&FeatureSpec, bool)> =
        context.iter().map(|spec| (spec, false)).chain(steps.iter().map(|spec| (spec, true))).collect();
    for (number, (feature, _)) in all.iter().enumerate() {
        if feature.name.starts_with("__") {
            return Err(Error::config(format!("feature {:?}: names with __ are taken", feature.name)));
        }
        if all[..number].iter().any(|(other, _)| other.name == feature.name) {
            return Err(Error::config(format!("feature {} is asked for twice", feature.name)));
        }
    }
    let raw = spec.features.is_none() && spec.sequence_features.is_none();
    let mut kinds = Vec::with_capacity(all.len());
    for (feature, steps) in &all {
        kinds.push(FieldSpec { name: feature.name.clone(), kind: feature.kind(*steps)? });
    }
    if raw {
        kinds.push(FieldSpec { name: "record".to_owned(), kind: FieldKind::Bytes });
    } else if all.is_empty() {
        return Err(Error::config("features is empty"));
    }
    let wanted = |chosen: &[usize]| chosen.iter().map(|i| (all[*i].0.clone(), all[*i].1)).collect();
    let Some(names) = &spec.fields else {
        let dict = |from: usize, to: usize| {
            Structure::Dict((from..to).map(|i| (kinds[i].name.clone(), Structure::Field(i))).collect())
        };
        let structure = if raw {
            Structure::Field(0)
        } else if spec.sequence_features.is_some() {
            Structure::Tuple(vec![dict(0, context.len()), dict(context.len(), all.len())])
        } else {
            dict(0, all.len())
        };
        let features = (!raw).then(|| Features::new(wanted(&(0..all.len()).collect::<Vec<_>>())));
        return Ok((Schema { fields: kinds, structure }, features, Vec::new()));
    };
    if names.is_empty() {
        return Err(Error::config("fields is empty"));
    }
    let (mut chosen, mut others) = (Vec::new(), Vec::new());
    for (number, name) in names.iter().enumerate() {
        if names[..number].contains(name) {
            return Err(Error::config(format!("field {name} is asked for twice")));
        }
        match name.as_str() {
            "__key__" => others.push((Origin::Key, name)),
            "__url__" => others.push((Origin::Url, name)),
            _ => chosen.push(kinds.iter().position(|field| field.name == *name).ok_or_else(|| {
                let there: Vec<&str> = kinds.iter().take(20).map(|field| field.name.as_str()).collect();
                Error::config(format!("fields has {name:?}, but features are {}", there.join(", ")))
            })?),
        }
    }
    if raw && chosen.is_empty() {
        return Err(Error::config("fields has nothing of the record").with_hint("\"record\" is its bytes"));
    }
    let mut fields: Vec<FieldSpec> = chosen.iter().map(|i| kinds[*i].clone()).collect();
    fields.extend(others.iter().map(|(_, name)| FieldSpec { name: (*name).clone(), kind: FieldKind::Text }));
    let place = |name: &String| fields.iter().position(|field| field.name == *name).map(Structure::Field);
    let structure = Structure::Tuple(names.iter().filter_map(place).collect());
    let features = (!raw).then(|| Features::new(wanted(&chosen)));
    Ok((Schema { fields, structure }, features, others.into_iter().map(|(origin, _)| origin).collect()))
}

/// Where the bytes of a record and their checksum lie, if they are not too many.
fn extent(shard: &Shard, number: usize, limits: &Limits) -> Result<(u64, u64)> {
    let (offset, len) = shard
        .index
        .record(number)
        .ok_or_else(|| Error::new(ErrorKind::Internal, "a record is not in the index"))?;
    limits.check_bytes("the record", len).map_err(|e| e.with_offset(offset))?;
    Ok((offset, len + FOOTER))
}

/// `file.tfrecord/number`.
fn key_of(shard: &Shard, number: usize) -> String {
    join(&shard.path, &number.to_string())
}

fn name_of(spec: &TfRecordSpec) -> String {
    match spec.urls.as_slice() {
        [url] => format!("tfrecord({})", secrets::shown(url)),
        [url, ..] => format!("tfrecord({} and {} more)", secrets::shown(url), spec.urls.len() - 1),
        [] => "tfrecord()".to_owned(),
    }
}

impl Source for TfRecord {
    fn name(&self) -> String {
        name_of(&self.spec)
    }

    fn spec(&self) -> SourceSpec {
        SourceSpec::Tfrecord(self.spec.clone())
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    /// `file.tfrecord/number`. Unique unless a file is named twice.
    fn key(&self, index: u64) -> String {
        match self.place(index) {
            None => String::new(),
            Some(Place::Sample(shard, number)) => key_of(shard, number),
            Some(Place::Damage(shard)) => format!("{}/__damaged__@{}", shard.path, shard.index.end),
        }
    }

    fn fetch(&self, index: u64, record: &mut Record) -> Result<()> {
        let (shard, number) = self.sample(index)?;
        self.make(shard, number, record)
            .map_err(|e| at_record(e, shard, number))
            .map_err(|e| located(e, self, index))
    }

    fn store(&self) -> Option<&Arc<dyn Store>> {
        Some(&self.store)
    }

    fn locate(&self, index: u64, limits: &Limits, extents: &mut Vec<Extent>) -> Result<()> {
        let (shard, number) = self.sample(index)?;
        let (offset, len) = extent(shard, number, limits).map_err(|e| located(e, self, index))?;
        extents.push(Extent::range(shard.file.clone(), offset, len));
        Ok(())
    }

    fn assemble(&self, index: u64, pieces: &[Bytes], record: &mut Record) -> Result<()> {
        let (shard, number) = self.sample(index)?;
        record.reset(self.schema.fields.len());
        let piece = pieces.first().ok_or_else(|| Error::new(ErrorKind::Internal, "a piece is missing"));
        piece
            .and_then(|piece| self.fill(shard, number, piece, record))
            .map_err(|e| at_record(e, shard, number))
            .map_err(|e| located(e, self, index))
    }

    fn fingerprint(&self) -> u64 {
        let mut hash = Fingerprint::new(&self.schema, self.len);
        for shard in &self.shards {
            let path = secrets::identity(&shard.path);
            hash.add(path.rsplit('/').next().unwrap_or_default().as_bytes());
            hash.number(shard.index.len() as u64);
            hash.number(shard.index.end);
        }
        hash.finish()
    }

    fn parts(&self) -> Vec<Part> {
        let ends = self.shards.iter().skip(1).map(|shard| shard.start).chain([self.len]);
        let part = |(shard, end): (&Shard, u64)| Part {
            name: shard.path.to_string(),
            beside: Some(shard.file.to_string()),
            store: self.store.clone(),
            samples: shard.start..end,
        };
        self.shards.iter().zip(ends).map(part).collect()
    }

    fn stamp(&self, index: u64) -> Option<u64> {
        let Some(Place::Sample(shard, number)) = self.place(index) else { return None };
        let stat = self.store.stat(&shard.file).ok()?;
        let (offset, _) = shard.index.record(number)?;
        Some(stamp(&format!("{}@{offset}", location(&shard.file)), &stat))
    }
}

/// Says where the record begins, unless it is known better.
fn at_record(e: Error, shard: &Shard, number: usize) -> Error {
    match shard.index.record(number) {
        Some((offset, _)) => e.with_offset(offset),
        None => e,
    }
}

#[cfg(test)]
mod tests;
