//! Row indexes of the images of a source: recorded when an image is decoded, used from then on. They lie in the memory of
//! this process, or in a table that several processes share.
//!
//! Workers never wait here: indexes lie in many small maps, and a worker that finds one of them in use decodes
//! without. An index is only ever a hint. It knows its image by length and checksum, so whatever is kept here can
//! make a decode faster, but never change a pixel.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use wellfed_jpeg::RowIndex;

use super::{
    row_index_file::{self, RowIndexFile},
    row_index_table::{Counter, Put, RowIndexTable},
    share::Share,
};
use crate::{
    Error, Result,
    budget::{Budget, Holder},
    codec::RowHint,
    lock,
    meter::RowIndexStats,
    plan::RowIndexing,
    sample::{FieldKind, FieldSpec},
    source::{Part, Source},
    store::{LocalStore, Store, listing},
};

/// Maps that indexes are spread over.
const SHARDS: usize = 64;

/// Bytes that an index takes beside its own: its place in a map that is between half and nearly full, and the
/// allocator's.
const OVERHEAD: u64 = 64;

/// The row indexes of one source.
#[derive(Debug)]
pub(crate) struct RowIndexCache {
    source: Arc<dyn Source>,
    shards: Vec<Mutex<HashMap<u64, Box<[u8]>>>>,
    /// In place of `shards` where other processes have a part in it.
    table: Option<RowIndexTable>,
    /// Changes of the table that were written to files.
    saved: AtomicU64,
    files: Vec<PartFile>,
    share: Share,
    /// The share was used up: nothing more is recorded.
    full: AtomicBool,
    kept: AtomicU64,
    used: AtomicU64,
    refused: AtomicU64,
    unsaved: AtomicBool,
    saving: Mutex<()>,
    problem: Mutex<Option<String>>,
}

/// Where the indexes of a part of the source are kept.
#[derive(Debug)]
struct PartFile {
    store: Arc<dyn Store>,
    path: String,
    /// What keys begin with that tells nothing within the part.
    part: String,
    samples: Range<u64>,
    /// What it held when it was opened.
    read: Option<RowIndexFile>,
}

impl RowIndexCache {
    /// Opens what is kept of `source`, if anything is to be, and takes up to `limit` bytes of memory.
    ///
    /// # Errors
    /// `Config` if files are wanted where they cannot be.
    pub(crate) fn open(source: Arc<dyn Source>, mode: &RowIndexing, limit: u64) -> Result<Option<Self>> {
        let places = match mode {
            RowIndexing::Off => return Ok(None),
            RowIndexing::Memory => Vec::new(),
            RowIndexing::Beside | RowIndexing::Folder(_) => places(&*source, mode)?,
        };
        let share = Share::new(limit);
        let full = AtomicBool::new(false);
        let files = listing::parallel(&places, |(store, path, part, samples)| {
            let size = store.size(path).unwrap_or(0);
            let read = if share.take(size) {
                let read = RowIndexFile::load(&**store, path, size);
                // What cannot be used takes no memory.
                share.give(size - read.as_ref().map_or(0, RowIndexFile::size));
                read
            } else {
                full.store(true, Relaxed);
                None
            };
            let (store, samples) = (store.clone(), samples.clone());
            Ok(PartFile { store, path: path.clone(), part: part.clone(), samples, read })
        })?;
        let kept = files.iter().filter_map(|f| f.read.as_ref()).map(|read| read.len() as u64).sum();
        Ok(Some(Self {
            source,
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            table: None,
            saved: AtomicU64::new(0),
            files,
            share,
            full,
            kept: AtomicU64::new(kept),
            used: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            unsaved: AtomicBool::new(false),
            saving: Mutex::default(),
            problem: Mutex::default(),
        }))
    }

    /// Counts what is taken in `budget`.
    pub(crate) fn counted(self, budget: &Arc<Budget>) -> Self {
        Self { share: self.share.counted(budget, Holder::RowIndexes), ..self }
    }

    /// Keeps what is recorded in `table`.
    pub(crate) fn in_table(self, table: RowIndexTable) -> Self {
        Self { table: Some(table), ..self }
    }

    /// Runs `decode` with what is known of the image in `field` of sample `index`, and keeps what it finds out.
    pub(crate) fn decode(
        &self,
        index: u64,
        field: usize,
        mut decode: impl FnMut(RowHint) -> (Result<()>, Option<RowIndex>),
    ) -> Result<()> {
        let known = self.get(index, field);
        let had = known.is_some();
        let (mut result, mut found) = decode(RowHint { record: self.records(had), known, found: None });
        if result.is_err() && had {
            // Should an index ever be the reason, the image is as good as without.
            self.forget(index, field);
            (result, found) = decode(RowHint::default());
        }
        if let Some(found) = found.filter(|_| result.is_ok()) {
            self.put(index, field, &found);
        }
        result
    }

    /// What is known of the image in `field` of sample `index`.
    pub(crate) fn get(&self, index: u64, field: usize) -> Option<RowIndex> {
        let id = self.id(index, field);
        let found = match &self.table {
            // One that another process writes just now is none.
            Some(table) => table.get(id).map(|bytes| RowIndex::from_bytes(&bytes)).filter(Result::is_ok),
            None => match self.shard(id).try_lock() {
                Ok(shard) => shard.get(&id).map(|bytes| RowIndex::from_bytes(bytes)),
                Err(_) => return None,
            },
        };
        let found = match found {
            Some(found) => found,
            None => RowIndex::from_bytes(self.file(index)?.read.as_ref()?.find(self.hash(index, field))?),
        };
        found.ok().inspect(|_| match &self.table {
            Some(table) => table.add(Counter::Used),
            None => drop(self.used.fetch_add(1, Relaxed)),
        })
    }

    /// Whether a new index is wanted, or a longer one of an image that has one.
    fn records(&self, has_one: bool) -> bool {
        let records = match &self.table {
            Some(table) => !table.is_full(),
            None => !self.full.load(Relaxed),
        };
        if !records && !has_one {
            match &self.table {
                Some(table) => table.add(Counter::Refused),
                None => drop(self.refused.fetch_add(1, Relaxed)),
            }
        }
        records
    }

    /// Keeps `found` for the image in `field` of sample `index`, in place of what was kept.
    pub(crate) fn put(&self, index: u64, field: usize, found: &RowIndex) {
        let id = self.id(index, field);
        let bytes = found.to_bytes().into_boxed_slice();
        if let Some(table) = &self.table {
            if table.put(id, &bytes) == Put::New && !self.is_in_file(index, field) {
                table.add(Counter::Images);
            }
            return;
        }
        let Ok(mut shard) = self.shard(id).try_lock() else { return };
        let old = shard.get(&id).map(|old| old.len() as u64 + OVERHEAD);
        // The old one is given back first, so that growing by a few bytes never fails for want of twice the room.
        let taken = bytes.len() as u64 + OVERHEAD;
        self.share.give(old.unwrap_or(0));
        if !self.share.take(taken) {
            self.full.store(true, Relaxed);
            self.refused.fetch_add(1, Relaxed);
            if shard.remove(&id).is_some() {
                self.kept.fetch_sub(1, Relaxed);
            }
            return;
        }
        shard.insert(id, bytes);
        drop(shard);
        if old.is_none() && !self.is_in_file(index, field) {
            self.kept.fetch_add(1, Relaxed);
        }
        self.unsaved.store(true, Relaxed);
    }

    /// Forgets what was recorded for an image that it turned out not to fit.
    pub(crate) fn forget(&self, index: u64, field: usize) {
        let id = self.id(index, field);
        if let Some(table) = &self.table {
            return table.forget(id);
        }
        if let Some(old) = lock(self.shard(id)).remove(&id) {
            self.share.give(old.len() as u64 + OVERHEAD);
            self.kept.fetch_sub(1, Relaxed);
        }
    }

    /// Whether something is to be written.
    pub(crate) fn unsaved(&self) -> bool {
        let changed = match &self.table {
            Some(table) => table.count(Counter::Changes) != self.saved.load(Relaxed),
            None => self.unsaved.load(Relaxed),
        };
        !self.files.is_empty() && changed
    }

    /// Writes what was recorded since the last time, if it is kept in files. Reports trouble in the statistics:
    /// the images can be used without.
    pub(crate) fn save(&self) {
        let _one_at_a_time = lock(&self.saving);
        if !self.unsaved() {
            return;
        }
        self.unsaved.store(false, Relaxed);
        let mut by_file: BTreeMap<usize, BTreeMap<u64, Box<[u8]>>> = BTreeMap::new();
        let fields = self.fields();
        let mut add = |id: u64, bytes: Box<[u8]>| {
            let (index, field) = (id / fields, (id % fields) as usize);
            if let Some(file) = self.file_number(index) {
                by_file.entry(file).or_default().insert(self.hash(index, field), bytes);
            }
        };
        for shard in &self.shards {
            lock(shard).iter().for_each(|(id, bytes)| add(*id, bytes.clone()));
        }
        if let Some(table) = &self.table {
            self.saved.store(table.count(Counter::Changes), Relaxed);
            // Those that are being written, or belong to images that the source does not have, wait or go.
            let whole = table.iter().filter(|(_, bytes)| RowIndex::from_bytes(bytes).is_ok());
            whole.for_each(|(id, bytes)| add(id, bytes.into_boxed_slice()));
        }
        self.write(by_file);
    }

    /// Writes what was recorded since the last time, and keeps it in files only.
    pub(crate) fn save_and_forget(&self) {
        let _one_at_a_time = lock(&self.saving);
        let fields = self.fields();
        let mut by_file: BTreeMap<usize, BTreeMap<u64, Box<[u8]>>> = BTreeMap::new();
        for shard in &self.shards {
            for (id, bytes) in std::mem::take(&mut *lock(shard)) {
                self.share.give(bytes.len() as u64 + OVERHEAD);
                let (index, field) = (id / fields, (id % fields) as usize);
                if let Some(file) = self.file_number(index) {
                    by_file.entry(file).or_default().insert(self.hash(index, field), bytes);
                }
            }
        }
        self.write(by_file);
    }

    fn write(&self, by_file: BTreeMap<usize, BTreeMap<u64, Box<[u8]>>>) {
        for (file, indexes) in by_file {
            let PartFile { store, path, .. } = &self.files[file];
            if let Err(error) = row_index_file::merge(&**store, path, indexes) {
                *lock(&self.problem) = Some(error.message().to_owned());
            }
        }
    }

    /// The files that indexes are kept in.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(|file| file.path.as_str())
    }

    pub(crate) fn stats(&self) -> RowIndexStats {
        let count = |counter| self.table.as_ref().map_or(0, |table| table.count(counter));
        RowIndexStats {
            images: self.kept.load(Relaxed) + count(Counter::Images),
            used: self.used.load(Relaxed) + count(Counter::Used),
            bytes: self.share.used() + self.table.as_ref().map_or(0, RowIndexTable::used),
            limit: self.table.as_ref().map_or(self.share.limit(), RowIndexTable::limit),
            refused: self.refused.load(Relaxed) + count(Counter::Refused),
            problem: lock(&self.problem).clone(),
        }
    }

    fn fields(&self) -> u64 {
        self.source.schema().fields.len().max(1) as u64
    }

    fn id(&self, index: u64, field: usize) -> u64 {
        index.wrapping_mul(self.fields()).wrapping_add(field as u64)
    }

    fn shard(&self, id: u64) -> &Mutex<HashMap<u64, Box<[u8]>>> {
        &self.shards[(id % SHARDS as u64) as usize]
    }

    fn file_number(&self, index: u64) -> Option<usize> {
        let after = self.files.partition_point(|file| file.samples.start <= index);
        let number = after.checked_sub(1)?;
        self.files[number].samples.contains(&index).then_some(number)
    }

    fn file(&self, index: u64) -> Option<&PartFile> {
        Some(&self.files[self.file_number(index)?])
    }

    fn is_in_file(&self, index: u64, field: usize) -> bool {
        let read = self.file(index).and_then(|file| file.read.as_ref());
        read.is_some_and(|read| read.find(self.hash(index, field)).is_some())
    }

    /// Does not depend on how a part's path is written, nor on the names of fields.
    fn hash(&self, index: u64, field: usize) -> u64 {
        let is_image = |field: &&FieldSpec| field.kind == FieldKind::Image;
        let image = self.source.schema().fields.iter().take(field).filter(is_image).count();
        let key = self.source.key(index);
        let part = self.file(index).map_or("", |file| file.part.as_str());
        row_index_file::hash(key.strip_prefix(part).unwrap_or(&key), image as u64)
    }
}

/// Store, path of the file, name of the part, its samples.
type Place = (Arc<dyn Store>, String, String, Range<u64>);

/// Where the indexes of each part of `source` are kept, in the order of samples.
fn places(source: &dyn Source, mode: &RowIndexing) -> Result<Vec<Place>> {
    let parts = source.parts();
    let local: Arc<dyn Store> = Arc::new(LocalStore::new());
    if parts.is_empty() {
        return Err(Error::config(format!("row indexes of {} cannot be kept in files", source.name()))
            .with_hint("use row_index=\"memory\""));
    }
    if let RowIndexing::Folder(folder) = mode {
        std::fs::create_dir_all(folder).map_err(|e| Error::io("make the folder", folder, e))?;
    }
    parts
        .into_iter()
        .map(|Part { name, beside, store, samples }| match mode {
            RowIndexing::Folder(folder) => {
                Ok((local.clone(), format!("{folder}/{}.wfrows", file_name(&name)), name, samples))
            }
            _ => match beside {
                Some(beside) => Ok((store, format!("{beside}.wfrows"), name, samples)),
                None => Err(Error::config(format!(
                    "row_index=\"beside\" needs a folder or shards, and {} is a pattern",
                    source.name()
                ))
                .with_hint("name a folder to keep row indexes in: row_index=\"path/to/folder\"")),
            },
        })
        .collect()
}

/// A file name that stands for the path `name`: its last part for people, and a hash of all of it.
fn file_name(name: &str) -> String {
    let full = std::fs::canonicalize(name).map_or(name.to_owned(), |p| p.to_string_lossy().into_owned());
    let hash = rapidhash::v3::rapidhash_v3(full.as_bytes());
    let last = full.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let plain: String = last
        .chars()
        .take(40)
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_') { c } else { '_' })
        .collect();
    format!("{plain}-{hash:016x}")
}
