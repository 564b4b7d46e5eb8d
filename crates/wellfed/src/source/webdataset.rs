//! WebDataset: samples in tar shards, reached directly. Zip archives are shards, too: their directory is the index
//! (`zip_index.rs`), and their members are unpacked and checked when they are read.
//!
//! Compressed shards (`.tar.gz`, `.tar.zst`) have no positions: they are unpacked once, into a folder that the user names.
//!
//! Each shard is indexed once, when the source is opened, in parallel and by reading headers only; then any sample is
//! a read by position. How members become samples is in `tar_index.rs`. A shard that is cut or damaged keeps its
//! intact samples and gets one more, last sample whose fetch says where and how it is damaged.

use std::{collections::HashMap, fs, ops::Range, path::PathBuf, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{
    Fingerprint, KeptDurations, Part, Source, SourceSpec, beyond_the_end, located, location, npy, shards,
    stamp,
    tar_header::BLOCK,
    tar_index::{Damage, Member, ShardIndex},
    tar_sidecar::{self, Kept},
    unpack::Packing,
    unpack_to, zip_index,
};
use crate::{
    Error, ErrorKind, Limits, Result,
    io::{Bytes, Extent},
    sample::{FieldKind, FieldSpec, Record, Schema, Structure, Value},
    store::{
        EntryKind, LocalStore, RetryingStore, Stat, Store, join, listing, reserve, secrets,
        zip::{self, Directory},
    },
};

/// Extensions of encoded images that are one field unless fields are named. `PACKED` is that of packed coefficients, which
/// only shards of our own have.
const IMAGES: [&str; 13] =
    ["jpg", "jpeg", "png", PACKED, "webp", "bmp", "gif", "tif", "tiff", "ppm", "pgm", "pbm", "pnm"];

/// The usual ones of them: a field of images takes them wherever a sample has one.
const COMMON: [&str; 3] = ["jpg", "jpeg", "png"];

/// Extensions of sounds that WebDataset's `torch_audio` decodes, and others of the formats that are decoded here.
const SOUNDS: [&str; 10] = ["wav", "flac", "mp3", "ogg", "oga", "opus", "m4a", "aac", "aif", "aiff"];

/// Extension of packed coefficients ([`crate::codec::PackedJpeg`]).
pub(crate) const PACKED: &str = "wfpc";

/// Digits that an integer field may have, with blanks.
const MAX_INT_BYTES: u64 = 64;

/// Where shard indices are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IndexMode {
    /// In memory, or read from a file `<shard>.wfidx` beside each shard, where there is one that fits. Nothing is written beside
    /// the data unasked.
    #[default]
    Memory,
    /// Also kept in such a file, and rebuilt when size or time of the shard differ. A folder that cannot be written is no error.
    Sidecar,
    /// Made anew, whatever is kept, and not written: for those who check a shard.
    Anew,
}

/// What to open: the shards, and which fields to take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebDatasetSpec {
    /// Shards: paths with braces or stars, `::` between several in one.
    pub urls: Vec<String>,
    /// Extensions of the fields, in order, handed out as a tuple; `;` between those that stand for one field, as in
    /// `jpg;png`. `__key__` and `__url__` are texts. Default: a dict of `__key__` and the fields of the samples, which
    /// must all have the same ones, jpg, jpeg and png being one (and wfpc, which are
    /// packed coefficients).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fields: Option<Vec<String>>,
    /// Where shard indices are kept.
    #[serde(default)]
    pub index: IndexMode,
    /// Whether to refuse shards in which the webdataset library, which reads them as streams, finds other samples: it has
    /// other rules for links and hidden files, and no samples for damage.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub as_streamed: bool,
    /// The folder that compressed shards are unpacked into, each once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unpack_to: Option<PathBuf>,
}

impl WebDatasetSpec {
    /// The shards `url` stands for, with all defaults.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            urls: vec![url.into()],
            fields: None,
            index: IndexMode::Memory,
            as_streamed: false,
            unpack_to: None,
        }
    }
}

/// Where the value of a field comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Origin {
    Key,
    Url,
    /// The member with the first of these extensions that the sample has.
    Members(Vec<String>),
}

/// One shard, and the index of its first sample in the source.
#[derive(Debug)]
struct Shard {
    path: Arc<str>,
    /// Where it is read from: itself, or what it was unpacked to.
    file: Arc<str>,
    start: u64,
    index: ShardIndex,
    /// Of a zip archive: where its members lie. Those of the index are numbers in it.
    zip: Option<Directory>,
    /// Its index is of a copy of it: headers are read and checked.
    copied: bool,
}

impl Shard {
    /// The bytes that are read of a member of a tar shard.
    fn range(&self, member: Member) -> Range<u64> {
        let header = if self.copied { BLOCK } else { 0 };
        member.offset() - header..member.offset() + member.size()
    }

    /// The data in those bytes.
    ///
    /// # Errors
    /// As [`tar_sidecar::fits_header`].
    fn data<'a>(&self, sample: usize, member: Member, bytes: &'a [u8]) -> Result<&'a [u8]> {
        if !self.copied {
            return Ok(bytes);
        }
        let (header, data) = bytes.split_at_checked(BLOCK as usize).unwrap_or((bytes, &[]));
        let name = (&*self.file, self.index.keys.get(sample), self.index.extension(member));
        tar_sidecar::fits_header(header, name, member).map(|()| data)
    }

    /// Where `member` lies.
    fn offset(&self, member: Member) -> u64 {
        self.zip.as_ref().map_or(member.offset(), |zip| zip.offset(member.block as usize))
    }
}

/// Samples in tar shards.
#[derive(Debug)]
pub struct WebDataset {
    store: Arc<dyn Store>,
    spec: WebDatasetSpec,
    schema: Schema,
    origins: Vec<Origin>,
    shards: Vec<Shard>,
    len: u64,
    durations: KeptDurations,
}

/// A place in the source.
enum Place<'a> {
    Sample(&'a Shard, usize),
    Damage(&'a Shard),
}

impl WebDataset {
    /// Finds the shards and reads their headers, or kept indices.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] for a shard that does not exist; [`ErrorKind::Unsupported`] for a compressed one without
    /// `unpack_to`;
    /// [`ErrorKind::Config`] for fields that no sample has or that mix kinds, and, unless fields are named, for samples
    /// that differ in their fields; [`ErrorKind::Unsupported`] with `as_streamed` for shards that a stream reads otherwise.
    pub fn open(store: Arc<dyn Store>, spec: WebDatasetSpec) -> Result<Self> {
        let name = name_of(&spec);
        Self::build(store, spec).map_err(|e| e.with_source(name))
    }

    fn build(store: Arc<dyn Store>, spec: WebDatasetSpec) -> Result<Self> {
        let (store, paths) = shards::find(&store, &spec.urls)?;
        let opened = listing::parallel_at(&*store, &paths, |path| open_shard(&store, path, &spec))?;
        let unpacked = opened.iter().filter(|shard| shard.unpacked.is_some()).count();
        if unpacked > 0 && unpacked < opened.len() {
            let plain = opened.iter().position(|shard| shard.unpacked.is_none()).unwrap_or_default();
            return Err(Error::config(format!(
                "{unpacked} of {} shards are compressed, and others are not, as {}",
                opened.len(),
                paths[plain]
            ))
            .with_hint("make a data set of each kind, and concatenate them"));
        }
        let store = if unpacked > 0 { RetryingStore::around(Arc::new(LocalStore::new())) } else { store };
        let (mut shards, mut len) = (Vec::with_capacity(paths.len()), 0);
        for (path, Opened { index, zip, unpacked, copied }) in paths.into_iter().zip(opened) {
            let unlike =
                || zip.as_ref().map(|_| "no stream: it is a zip archive").or(index.unlike_a_stream());
            if let Some(what) = spec.as_streamed.then(unlike).flatten() {
                return Err(Error::new(ErrorKind::Unsupported, format!("shard {path} has {what}"))
                    .with_hint("read as a stream, it has other samples"));
            }
            let start = len;
            len += index.len() as u64 + u64::from(index.damage.is_some());
            let path: Arc<str> = path.into();
            let file = unpacked.map_or_else(|| path.clone(), Arc::from);
            shards.push(Shard { path, file, start, index, zip, copied });
        }
        let schema = Schema { fields: Vec::new(), structure: Structure::Dict(Vec::new()) };
        let durations = KeptDurations::default();
        let mut this = Self { store, spec, schema, origins: Vec::new(), shards, len, durations };
        match this.spec.fields.clone() {
            Some(fields) => this.take_fields(&fields)?,
            None => this.find_fields()?,
        }
        Ok(this)
    }

    /// Paths of the shards, in order.
    pub fn shards(&self) -> impl Iterator<Item = &str> {
        self.shards.iter().map(|shard| &*shard.path)
    }

    /// Regular files in the shards that belong to no sample: hidden, without extension, or in a `__meta__` folder.
    pub fn ignored(&self) -> u64 {
        self.shards.iter().map(|shard| shard.index.ignored).sum()
    }

    /// Extensions that some samples have, in order of appearance, whether or not they are fields.
    pub fn extensions(&self) -> Vec<&str> {
        let mut all: Vec<&str> = Vec::new();
        for extension in self.shards.iter().flat_map(|shard| shard.index.extensions.iter()) {
            if all.len() < 1000 && !all.contains(&extension) {
                all.push(extension);
            }
        }
        all
    }

    fn has_extension(&self, wanted: &str) -> bool {
        self.shards.iter().any(|shard| shard.index.extensions.iter().any(|extension| extension == wanted))
    }

    /// Sets the fields that were asked for.
    fn take_fields(&mut self, fields: &[String]) -> Result<()> {
        if fields.is_empty() {
            return Err(Error::config("fields is empty"));
        }
        let empty = self.shards.iter().all(|shard| shard.index.len() == 0);
        for field in fields {
            let alternatives: Vec<String> =
                field.split(';').map(|e| e.trim().trim_start_matches('.').to_lowercase()).collect();
            let (name, origin) = match alternatives.first().map(String::as_str) {
                Some("__key__") if alternatives.len() == 1 => ("__key__", Origin::Key),
                Some("__url__") if alternatives.len() == 1 => ("__url__", Origin::Url),
                Some(first) if alternatives.iter().all(|e| !e.is_empty()) => {
                    if !empty && !alternatives.iter().any(|e| self.has_extension(e)) {
                        let there = self.extensions().into_iter().take(20).collect::<Vec<_>>().join(", ");
                        return Err(Error::config(format!(
                            "no sample has a field {field}: there are {there}"
                        )));
                    }
                    (first, Origin::Members(alternatives.clone()))
                }
                _ => return Err(Error::config(format!("{field:?} names no field"))),
            };
            self.push_field(name, origin)?;
        }
        let fields = (0..self.schema.fields.len()).map(Structure::Field);
        self.schema.structure = Structure::Tuple(fields.collect());
        Ok(())
    }

    /// Takes the fields that the samples have. What only some of them have is for the user to decide: a label that is
    /// missing here and there must not vanish from all.
    fn find_fields(&mut self) -> Result<()> {
        self.push_field("__key__", Origin::Key)?;
        let found = Fields::of(&self.shards);
        if let Some(rare) = found.fields.iter().find(|field| field.samples < found.samples) {
            return Err(self.differing(&found, rare));
        }
        for Field { alternatives, .. } in found.fields {
            // There is at least the one that it was made for.
            let name = alternatives[0].clone();
            self.push_field(&name, Origin::Members(alternatives))?;
        }
        Ok(())
    }

    fn differing(&self, found: &Fields, rare: &Field) -> Error {
        let all = found.samples;
        let field = |f: &Field| format!("{} is in {} of {all}", f.alternatives.join("/"), f.samples);
        let counts: Vec<String> = found.fields.iter().take(20).map(field).collect();
        let more = if found.fields.len() > 20 { ", …" } else { "" };
        let name = rare.alternatives.join("/");
        let example = |place: Option<(usize, usize)>| {
            place.map_or_else(String::new, |(shard, i)| shown_key(&self.shards[shard], i))
        };
        let (with, without) = (example(rare.first_with), example(found.first_without(&self.shards, rare)));
        let common: Vec<String> = (found.fields.iter().filter(|f| f.samples == all).take(5))
            .map(|f| format!("{:?}", f.alternatives.join(";")))
            .collect();
        Error::config(format!(
            "samples differ in their fields: {}{more}. The first with {name} is {with}, the first without it {without}",
            counts.join(", ")
        ))
        .with_hint(format!(
            "name the fields to take: fields=[{}]. A sample that lacks one of them is then a bad sample; see on_error",
            common.join(", ")
        ))
    }

    fn push_field(&mut self, name: &str, origin: Origin) -> Result<()> {
        if self.schema.fields.iter().any(|field| field.name == name) {
            return Err(Error::config(format!("field {name} is asked for twice")));
        }
        let kind = match &origin {
            Origin::Key | Origin::Url => FieldKind::Text,
            Origin::Members(alternatives) => {
                let arrays = alternatives.iter().filter(|e| last_part(e) == "npy").count();
                if arrays > 0 && arrays == alternatives.len() {
                    self.array_kind(alternatives)?
                } else {
                    let mut kinds = alternatives.iter().map(|e| kind_of(e));
                    let first = kinds.next().unwrap_or(FieldKind::Bytes);
                    if arrays > 0 || kinds.any(|kind| kind != first) {
                        let all = alternatives.join(";");
                        return Err(Error::config(format!("field {all} mixes different kinds of values")));
                    }
                    first
                }
            }
        };
        if let Structure::Dict(items) = &mut self.schema.structure {
            items.push((name.to_owned(), Structure::Field(self.schema.fields.len())));
        }
        self.schema.fields.push(FieldSpec { name: name.to_owned(), kind });
        self.origins.push(origin);
        Ok(())
    }

    /// Dtype and shape of the first array that can be read.
    fn array_kind(&self, alternatives: &[String]) -> Result<FieldKind> {
        let mut failure = None;
        let samples = self.shards.iter().flat_map(|shard| (0..shard.index.len()).map(move |i| (shard, i)));
        let found = samples.filter_map(|(shard, i)| Some((shard, i, find(shard, i, alternatives).ok()??)));
        // If so many are damaged, the first one's error tells more than a long search.
        for (shard, i, member) in found.take(16) {
            let mut file = Vec::new();
            let member = whole(shard, member).map(|()| member);
            let header = member
                .and_then(|member| self.read((shard, i), member, &Limits::default(), &mut file))
                .and_then(|()| npy::Header::parse(&file));
            match header {
                Ok(header) => return Ok(FieldKind::array(header.dtype, &header.shape)),
                Err(e) if e.kind() == ErrorKind::Transient => return Err(e),
                Err(e) => {
                    let index = shard.start + i as u64;
                    failure.get_or_insert_with(|| located(e, self, index));
                }
            }
        }
        match failure {
            Some(e) => Err(e),
            // No sample has one; the caller has made sure that this happens only where there are no samples.
            None => Ok(FieldKind::Bytes),
        }
    }

    /// Where sample `index` lies.
    fn sample(&self, index: u64) -> Result<(&Shard, usize)> {
        let shard = match self.place(index) {
            None => return Err(beyond_the_end(self, index)),
            Some(Place::Sample(shard, sample)) => return Ok((shard, sample)),
            Some(Place::Damage(shard)) => shard,
        };
        let error = match &shard.index.damage {
            Some(damage) => Error::corrupt(format!("shard {} is damaged: {}", shard.path, damage.message))
                .with_offset(damage.offset)
                .with_hint(damage.hint),
            None => Error::new(ErrorKind::Internal, "an intact shard has a damaged sample"),
        };
        Err(located(error, self, index))
    }

    fn place(&self, index: u64) -> Option<Place<'_>> {
        if index >= self.len {
            return None;
        }
        let shard = self.shards.partition_point(|shard| shard.start <= index).checked_sub(1)?;
        let shard = &self.shards[shard];
        let sample = usize::try_from(index - shard.start).ok()?;
        Some(if sample < shard.index.len() { Place::Sample(shard, sample) } else { Place::Damage(shard) })
    }

    fn read(
        &self,
        (shard, sample): (&Shard, usize),
        member: Member,
        limits: &Limits,
        into: &mut Vec<u8>,
    ) -> Result<()> {
        if let Some(zip) = &shard.zip {
            return zip.read_member(&*self.store, member.block as usize, limits, into);
        }
        checked(shard, member, limits)?;
        let (offset, range) = (member.offset(), shard.range(member));
        let read = |into: &mut Vec<u8>| {
            let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
            self.store.read_range(&shard.file, range.start, len, into).map_err(|e| e.with_offset(offset))
        };
        if !shard.copied {
            return read(into);
        }
        let mut bytes = Vec::new();
        read(&mut bytes)?;
        into.extend_from_slice(shard.data(sample, member, &bytes)?);
        Ok(())
    }

    /// The members that the fields of a sample are made of, in the order of the fields; `None` for fields without.
    fn members(&self, shard: &Shard, sample: usize) -> impl Iterator<Item = Result<Option<Member>>> {
        self.origins.iter().map(move |origin| {
            let Origin::Members(alternatives) = origin else { return Ok(None) };
            let member = find(shard, sample, alternatives)?;
            let member = member.ok_or_else(|| self.lacks(shard, sample, alternatives))?;
            whole(shard, member).map(|()| Some(member))
        })
    }

    /// Makes the record of a sample; `read` gives the bytes of one member after the other.
    fn fill(
        &self,
        shard: &Shard,
        sample: usize,
        record: &mut Record,
        mut read: impl FnMut(Member, &Limits, &mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        record.reset(self.origins.len());
        let limits = record.limits;
        for (field, member) in self.members(shard, sample).enumerate() {
            let value = &mut record.values[field];
            let Some(member) = member? else {
                let text = match &self.origins[field] {
                    Origin::Url => &*shard.path,
                    _ => shard.index.keys.get(sample),
                };
                value.buffer().extend_from_slice(text.as_bytes());
                continue;
            };
            record.offsets[field] = shard.offset(member);
            let kind = &self.schema.fields[field].kind;
            let result = if *kind == FieldKind::LABEL {
                int(shard, member, &mut read).map(|number| *value = Value::Int(number))
            } else {
                let buffer = value.buffer();
                read(member, &limits, buffer).and_then(|()| convert(kind, buffer))
            };
            result.map_err(|e| e.with_offset(shard.offset(member)))?;
        }
        Ok(())
    }

    fn lacks(&self, shard: &Shard, sample: usize, alternatives: &[String]) -> Error {
        let wanted = alternatives.join(" or ");
        let members = shard.index.sample(sample);
        let there: Vec<&str> = members.iter().take(20).map(|m| shard.index.extension(*m)).collect();
        let e = Error::corrupt(format!("the sample lacks field {wanted}: it has {}", there.join(", ")))
            .with_offset(members.first().map_or(0, |m| shard.offset(*m)));
        match &shard.index.damage {
            Some(damage) if sample + 1 == shard.index.len() => {
                let (path, at) = (&shard.path, damage.offset);
                e.with_hint(format!("it is the last one before shard {path} is damaged, at byte {at}"))
            }
            _ => e,
        }
    }
}

impl Source for WebDataset {
    fn name(&self) -> String {
        name_of(&self.spec)
    }

    fn spec(&self) -> SourceSpec {
        SourceSpec::Webdataset(self.spec.clone())
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    /// `shard.tar/key`, with the offset where one shard has a key several times. Unique unless a shard is named twice.
    fn key(&self, index: u64) -> String {
        match self.place(index) {
            None => String::new(),
            Some(Place::Damage(shard)) => {
                let offset = shard.index.damage.as_ref().map_or(0, |damage| damage.offset);
                format!("{}/__damaged__@{offset}", shard.path)
            }
            Some(Place::Sample(shard, sample)) => {
                let key = shown_key(shard, sample);
                let repeated =
                    u32::try_from(sample).is_ok_and(|i| shard.index.repeated.binary_search(&i).is_ok());
                match shard.index.sample(sample).first() {
                    // Links may share their data.
                    Some(member) if repeated && member.is_link() => {
                        format!("{key}@{}#{sample}", member.offset())
                    }
                    Some(member) if repeated => format!("{key}@{}", member.offset()),
                    _ => key,
                }
            }
        }
    }

    /// The key of the sample in its shard.
    fn own_name(&self, index: u64) -> String {
        match self.place(index) {
            Some(Place::Sample(shard, sample)) => shard.index.keys.get(sample).to_owned(),
            _ => self.key(index),
        }
    }

    fn fetch(&self, index: u64, record: &mut Record) -> Result<()> {
        let (shard, sample) = self.sample(index)?;
        let read =
            |member, limits: &Limits, into: &mut Vec<u8>| self.read((shard, sample), member, limits, into);
        self.fill(shard, sample, record, read).map_err(|e| located(e, self, index))
    }

    fn store(&self) -> Option<&Arc<dyn Store>> {
        Some(&self.store)
    }

    fn locate(&self, index: u64, limits: &Limits, extents: &mut Vec<Extent>) -> Result<()> {
        let (shard, sample) = self.sample(index)?;
        for (member, field) in self.members(shard, sample).zip(&self.schema.fields) {
            let Some(member) = member.map_err(|e| located(e, self, index))? else { continue };
            let number = field.kind == FieldKind::LABEL;
            let fits =
                if number { int_bytes(shard, member) } else { checked(shard, member, limits).map(drop) };
            let range = fits.and_then(|()| match &shard.zip {
                Some(zip) => zip.extent(member.block as usize, limits),
                None => Ok(shard.range(member)),
            });
            let range = range.map_err(|e| located(e.with_offset(shard.offset(member)), self, index))?;
            extents.push(Extent::range(shard.file.clone(), range.start, range.end - range.start));
        }
        Ok(())
    }

    fn assemble(&self, index: u64, pieces: &[Bytes], record: &mut Record) -> Result<()> {
        let (shard, sample) = self.sample(index)?;
        let mut pieces = pieces.iter();
        let read = |member: Member, _: &Limits, into: &mut Vec<u8>| {
            let piece = pieces.next().ok_or_else(|| Error::new(ErrorKind::Internal, "a piece is missing"))?;
            if let Some(zip) = &shard.zip {
                return zip.unpack(member.block as usize, piece, into);
            }
            let data = shard.data(sample, member, piece)?;
            reserve(into, data.len(), &shard.path)?;
            into.extend_from_slice(data);
            Ok(())
        };
        self.fill(shard, sample, record, read).map_err(|e| located(e, self, index))
    }

    fn kept_durations(&self) -> Option<&KeptDurations> {
        Some(&self.durations)
    }

    fn fingerprint(&self) -> u64 {
        let mut hash = Fingerprint::new(&self.schema, self.len);
        for shard in &self.shards {
            let path = secrets::identity(&shard.path);
            hash.add(path.rsplit('/').next().unwrap_or_default().as_bytes());
            let (keys, _) = shard.index.keys.parts();
            hash.add(keys.as_bytes());
            hash.number(shard.index.len() as u64);
            hash.number(
                shard.index.members.iter().fold(0, |sum, m| sum.wrapping_mul(31).wrapping_add(m.size())),
            );
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
        let Some(Place::Sample(shard, sample)) = self.place(index) else { return None };
        let stat = self.store.stat(&shard.file).ok()?;
        let first = shard.index.sample(sample).first()?;
        Some(stamp(&format!("{}@{}", location(&self.key(index)), shard.offset(*first)), &stat))
    }
}

/// A shard that was opened.
struct Opened {
    index: ShardIndex,
    zip: Option<Directory>,
    /// Where it was unpacked to.
    unpacked: Option<String>,
    /// Its index is of a copy of it.
    copied: bool,
}

fn open_shard(store: &Arc<dyn Store>, path: &str, spec: &WebDatasetSpec) -> Result<Opened> {
    if zip::is_zip(path) {
        let directory = Directory::read(&**store, path)?;
        let index = zip_index::index(&directory)?;
        return Ok(Opened { index, zip: Some(directory), unpacked: None, copied: false });
    }
    let tar = |store: &dyn Store, file: &str| -> Result<Kept> {
        let stat = store.stat(file)?;
        let kept = (spec.index != IndexMode::Anew).then(|| tar_sidecar::load(store, file, &stat)).flatten();
        if let Some(kept) = kept {
            return Ok(kept);
        }
        let index = ShardIndex::scan(store, file)?;
        if spec.index == IndexMode::Sidecar {
            tar_sidecar::save(store, file, &stat, &index);
        }
        Ok(Kept { index, copied: false })
    };
    if let Some(folder) = &spec.unpack_to {
        let stat = store.stat(path)?;
        if let Some(packing) = packing(&**store, path, &stat)? {
            let done = unpack_to::unpack(&**store, path, &stat, packing, folder, "tar")?;
            let index = match done.damage {
                None => tar(&LocalStore::new(), &done.file)?.index,
                // Files in a tar have no checksums: which of them the damage is in, nobody knows.
                Some(message) => {
                    // Only half of it would be left.
                    let _ = fs::remove_file(&done.file);
                    let hint = "it was cut or changed, perhaps during a copy: none of its samples is used";
                    let damage = Some(Damage { offset: 0, message, hint });
                    ShardIndex { damage, ..ShardIndex::default() }
                }
            };
            return Ok(Opened { index, zip: None, unpacked: Some(done.file), copied: false });
        }
    }
    let Kept { index, copied } = tar(&**store, path)?;
    Ok(Opened { index, zip: None, unpacked: None, copied })
}

/// How the shard `path` is compressed.
fn packing(store: &dyn Store, path: &str, stat: &Stat) -> Result<Option<Packing>> {
    let mut first = Vec::new();
    if stat.kind != EntryKind::Folder {
        store.read_range(path, 0, stat.size.min(4) as usize, &mut first)?;
    }
    Ok(Packing::of(path, &first))
}

fn name_of(spec: &WebDatasetSpec) -> String {
    match spec.urls.as_slice() {
        [url] => format!("webdataset({})", secrets::shown(url)),
        [url, ..] => format!("webdataset({} and {} more)", secrets::shown(url), spec.urls.len() - 1),
        [] => "webdataset()".to_owned(),
    }
}

/// `shard.tar/key`.
fn shown_key(shard: &Shard, sample: usize) -> String {
    join(&shard.path, shard.index.keys.get(sample))
}

/// Refuses a link that leads nowhere.
fn whole(shard: &Shard, member: Member) -> Result<()> {
    let Some(number) = member.broken() else { return Ok(()) };
    let extension = shard.index.extension(member);
    let e = Error::corrupt(format!("field {extension} has no data: {}", shard.index.broken.get(number)));
    Err(e
        .with_offset(member.offset())
        .with_hint("write the shard with its links followed: tar --dereference"))
}

/// Bytes of a member that can be read and is not too large.
fn checked(shard: &Shard, member: Member, limits: &Limits) -> Result<usize> {
    let (offset, size) = (shard.offset(member), member.size());
    let extension = shard.index.extension(member);
    if member.is_sparse() {
        let message = format!("field {extension} is a file with holes, which is not supported");
        return Err(Error::new(ErrorKind::Unsupported, message).with_offset(offset));
    }
    limits.check_bytes(&format!("field {extension}"), size).map_err(|e| e.with_offset(offset))?;
    usize::try_from(size).map_err(|_| Error::limit("field", size, usize::MAX as u64, "bytes"))
}

/// Refuses what is too long for a whole number.
fn int_bytes(shard: &Shard, member: Member) -> Result<()> {
    let (extension, size) = (shard.index.extension(member), member.size());
    if size > MAX_INT_BYTES {
        return Err(Error::corrupt(format!("field {extension} has {size} bytes and is no whole number")));
    }
    checked(shard, member, &Limits::default()).map(drop)
}

fn int(
    shard: &Shard,
    member: Member,
    read: &mut impl FnMut(Member, &Limits, &mut Vec<u8>) -> Result<()>,
) -> Result<i64> {
    int_bytes(shard, member)?;
    let mut text = Vec::with_capacity(member.size() as usize);
    read(member, &Limits::default(), &mut text)?;
    let number = std::str::from_utf8(&text).ok().and_then(|text| text.trim().parse().ok());
    number.ok_or_else(|| {
        let (extension, text) = (shard.index.extension(member), String::from_utf8_lossy(&text));
        Error::corrupt(format!("field {extension} is {text:?}, which is no whole number"))
    })
}

/// The fields of all samples, as far as those are surely complete.
#[derive(Debug)]
struct Fields {
    /// In order of appearance.
    fields: Vec<Field>,
    /// Samples that were looked at.
    samples: u64,
}

/// One extension, or all of images.
#[derive(Debug)]
struct Field {
    alternatives: Vec<String>,
    /// How many samples have it.
    samples: u64,
    /// Shard and sample of the first one.
    first_with: Option<(usize, usize)>,
}

impl Fields {
    fn of(shards: &[Shard]) -> Self {
        // The last sample before a cut may lack fields, and must not decide which fields the others have. It does if
        // there is no other.
        let complete = |shard: &Shard| {
            shard.index.len() - usize::from(shard.index.damage.is_some()).min(shard.index.len())
        };
        let any = shards.iter().any(|shard| complete(shard) > 0);
        let looked_at = |shard: &Shard| if any { complete(shard) } else { shard.index.len() };
        // Those that any file of images may have, and of the others those that are there.
        let there = |extension: &str| {
            COMMON.contains(&extension)
                || shards.iter().any(|shard| shard.index.extensions.iter().any(|e| e == extension))
        };
        let one = !shards.iter().any(|shard| (0..looked_at(shard)).any(|i| images(&shard.index, i) > 1));
        let (mut fields, mut numbers) = (Vec::<Field>::new(), HashMap::<String, usize>::new());
        let mut samples = 0;
        for (number, shard) in shards.iter().enumerate() {
            let index = &shard.index;
            // What each extension of this shard is.
            let known: Vec<usize> = (index.extensions.iter())
                .map(|extension| {
                    let image = one && IMAGES.contains(&extension);
                    let name = if image { IMAGES[0] } else { extension };
                    *numbers.entry(name.to_owned()).or_insert_with(|| {
                        // Packed or not, a field of images is called as that of the files is.
                        let first = if image && extension == PACKED { name } else { extension };
                        let mut alternatives = vec![first.to_owned()];
                        if image {
                            let others = IMAGES.iter().filter(|e| **e != first && there(e));
                            alternatives.extend(others.map(|e| (*e).to_owned()));
                        }
                        fields.push(Field { alternatives, samples: 0, first_with: None });
                        fields.len() - 1
                    })
                })
                .collect();
            for i in 0..looked_at(shard) {
                samples += 1;
                let members = index.sample(i);
                for (at, member) in members.iter().enumerate() {
                    let of = |member: &Member| known[member.extension as usize];
                    // A field that a sample has twice counts once: reading it will say what is wrong.
                    if !members[..at].iter().any(|earlier| of(earlier) == of(member)) {
                        let field = &mut fields[of(member)];
                        field.samples += 1;
                        field.first_with.get_or_insert((number, i));
                    }
                }
            }
        }
        // Those that only incomplete samples have.
        fields.retain(|field| field.samples > 0);
        Self { fields, samples }
    }

    /// Shard and sample of the first one that lacks `field`.
    fn first_without(&self, shards: &[Shard], field: &Field) -> Option<(usize, usize)> {
        let all =
            shards.iter().enumerate().flat_map(|(n, shard)| (0..shard.index.len()).map(move |i| (n, i)));
        let lacks = |(n, i): &(usize, usize)| {
            let index = &shards[*n].index;
            !index.sample(*i).iter().any(|m| field.alternatives.iter().any(|e| e == index.extension(*m)))
        };
        all.into_iter().find(lacks)
    }
}

/// Members of a sample that are images by their extensions.
fn images(index: &ShardIndex, sample: usize) -> usize {
    index.sample(sample).iter().filter(|member| IMAGES.contains(&index.extension(**member))).count()
}

/// The member of a sample with the first of these extensions that it has.
fn find(shard: &Shard, sample: usize, alternatives: &[String]) -> Result<Option<Member>> {
    let index = &shard.index;
    let members = index.sample(sample);
    for wanted in alternatives {
        let mut found = members.iter().filter(|member| index.extension(**member) == wanted);
        if let Some(first) = found.next() {
            return match found.next() {
                None => Ok(Some(*first)),
                Some(second) => {
                    let (a, b) = (shard.offset(*first), shard.offset(*second));
                    let message = format!("the sample has field {wanted} twice, at bytes {a} and {b}");
                    Err(Error::corrupt(message).with_offset(b))
                }
            };
        }
    }
    Ok(None)
}

/// `png` of `seg.png`: WebDataset decides by this part.
fn last_part(extension: &str) -> &str {
    extension.rsplit('.').next().unwrap_or(extension)
}

/// What WebDataset's decoders make of an extension (`webdataset/autodecode.py`), arrays apart.
pub(crate) fn kind_of(extension: &str) -> FieldKind {
    match last_part(extension) {
        part if IMAGES.contains(&part) => FieldKind::Image,
        part if SOUNDS.contains(&part) => FieldKind::Audio,
        "cls" | "cls2" | "class" | "count" | "index" | "inx" | "id" => FieldKind::LABEL,
        "txt" | "text" | "transcript" => FieldKind::Text,
        "json" | "jsn" => FieldKind::Json,
        _ => FieldKind::Bytes,
    }
}

/// Checks the bytes of a member, and turns those of an array into its elements.
pub(super) fn convert(kind: &FieldKind, bytes: &mut Vec<u8>) -> Result<()> {
    match kind {
        FieldKind::Array { dtype, shape } => {
            let header = npy::Header::parse(bytes)?;
            let fits = shape.len() == header.shape.len()
                && shape.iter().zip(&header.shape).all(|(want, have)| want.is_none_or(|want| want == *have));
            if header.dtype != *dtype || !fits {
                let (found, wanted) = (header.dtype.name(), dtype.name());
                return Err(Error::new(
                    ErrorKind::Shape,
                    format!(
                        "array is {found} {:?}, but {wanted} {:?} in the first sample",
                        header.shape,
                        shape.iter().copied().flatten().collect::<Vec<_>>()
                    ),
                ));
            }
            header.into_elements(bytes);
        }
        FieldKind::Text | FieldKind::Json => {
            let text = std::str::from_utf8(bytes)
                .map_err(|e| Error::corrupt(format!("text is not UTF-8 from byte {} on", e.valid_up_to())))?;
            // Python writes and reads NaN and Infinity, which are not JSON: those texts are left to the reader.
            let lenient = text.contains("NaN") || text.contains("Infinity");
            if *kind == FieldKind::Json && !lenient {
                serde_json::from_str::<serde::de::IgnoredAny>(text)
                    .map_err(|e| Error::corrupt(format!("text is not JSON: {e}")))?;
            }
        }
        _ => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests;
