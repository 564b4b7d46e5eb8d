//! The verb `cache(decoded="coefficients")`: samples as records whose JPEGs are packed coefficients, so that later
//! epochs neither read nor entropy-decode them.
//!
//! A sample is cached by the worker that makes it first, which then makes it from what it cached. Packed
//! coefficients give the pixels of their JPEG bit for bit, so a cached epoch equals an uncached one. What finds no
//! room is made as without a cache, every time; nothing is pushed out, since in random order what was used least
//! lately is as likely to come next as anything.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use wellfed_jpeg::{Ask, Options};

use super::{
    disk::{Blob, Disk},
    share::Share,
};
use crate::{
    Error, Result,
    budget::{Budget, Holder},
    codec::{self, is_jpeg},
    lock,
    memory::Slab,
    meter::CacheStats,
    sample::{FieldKind, Record, Value},
    source::{Source, location},
    store,
};

/// Maps that samples are spread over.
const SHARDS: usize = 64;

/// Bytes that a sample takes beside its values: its place in a map, counters of its values, the allocator's.
const OVERHEAD: u64 = 160;

/// The cached samples of one source.
#[derive(Debug)]
pub(crate) struct CoefficientCache {
    source: Arc<dyn Source>,
    /// Places of encoded images among the fields.
    images: Vec<usize>,
    shards: Vec<Mutex<HashMap<u64, Slot>>>,
    /// Where samples in memory are.
    slab: Slab,
    disk: Option<Disk>,
    /// The folder that keys are relative to, if it is one.
    folder: Option<String>,
    share: Share,
    full: AtomicBool,
    kept: AtomicU64,
    /// Samples without a JPEG that can be packed.
    passed: AtomicU64,
    hits: AtomicU64,
}

/// What is known of a sample.
#[derive(Clone, Debug)]
enum Slot {
    /// In memory: its values, and their offsets in the file or shard.
    Held(Arc<[(Value, u64)]>),
    /// On disk, and known to be of the sample as it is stored now.
    Stored,
    /// Not to be cached.
    Passed,
}

impl CoefficientCache {
    /// An empty cache of up to `limit` bytes of memory, or what is in the folder `path`, up to `limit` bytes there.
    ///
    /// # Errors
    /// `Config` for a source without encoded images, or one that cannot say whether its samples changed; those of
    /// opening the folder.
    pub(crate) fn open(source: Arc<dyn Source>, path: Option<&str>, limit: u64) -> Result<Self> {
        let fields = source.schema().fields.iter().enumerate();
        let images: Vec<usize> = fields.filter(|(_, f)| f.kind == FieldKind::Image).map(|(i, _)| i).collect();
        if images.is_empty() {
            return Err(Error::config(format!("cache(): {} has no encoded images", source.name())));
        }
        let share = Share::new(limit);
        let disk = match path {
            None => None,
            Some(_) if !source.is_empty() && (0..source.len().min(8)).all(|i| source.stamp(i).is_none()) => {
                return Err(Error::config(format!(
                    "cache(): {} cannot tell whether its samples change, so nothing of it is kept on disk",
                    source.name()
                ))
                .with_hint("cache it in memory: leave path away"));
            }
            Some(path) => Some(Disk::open(path)?),
        };
        let folder = match disk.as_ref().map(|_| source.parts()).as_deref() {
            Some([part]) => Some(part.name.clone()),
            _ => None,
        };
        let used = disk.as_ref().map_or(0, Disk::bytes);
        let full = !share.take(used);
        Ok(Self {
            source,
            images,
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            slab: Slab::default(),
            disk,
            folder,
            share,
            full: AtomicBool::new(full),
            kept: AtomicU64::new(0),
            passed: AtomicU64::new(0),
            hits: AtomicU64::new(0),
        })
    }

    /// Counts what is taken of memory in `budget`.
    pub(crate) fn counted(self, budget: &Arc<Budget>) -> Self {
        match self.disk {
            None => Self { share: self.share.counted(budget, Holder::Cache), ..self },
            Some(_) => self,
        }
    }

    /// For another loader, with up to `limit` bytes, which are no fewer than there are.
    pub(crate) fn handed_on(self, limit: u64) -> Self {
        Self {
            share: self.share.with_limit(limit),
            full: AtomicBool::new(false),
            hits: AtomicU64::new(0),
            ..self
        }
    }

    /// Bytes that are taken.
    pub(crate) fn bytes(&self) -> u64 {
        self.share.used()
    }

    /// Fills `record` with sample `index`, if that is cached.
    pub(crate) fn restore(&self, index: u64, record: &mut Record) -> bool {
        let slot = lock(self.shard(index)).get(&index).cloned();
        let found = match (slot, &self.disk) {
            (Some(Slot::Held(values)), _) => {
                record.reset(values.len());
                for (i, (value, offset)) in values.iter().enumerate() {
                    record.values[i].clone_from(value);
                    record.offsets[i] = *offset;
                }
                true
            }
            (Some(Slot::Passed), _) | (None, None) => false,
            (slot, Some(disk)) => self.read(disk, index, slot.is_some(), record),
            (Some(Slot::Stored), None) => false,
        };
        record.cached = found;
        self.hits.fetch_add(u64::from(found), Relaxed);
        found
    }

    /// Reads from disk what is there of the sample, after a check, once, that the sample has not changed.
    fn read(&self, disk: &Disk, index: u64, known: bool, record: &mut Record) -> bool {
        let key = self.key(index);
        let stamp = if known { None } else { Some(self.source.stamp(index)) };
        let current = match stamp {
            Some(None) => false,
            Some(Some(stamp)) => disk.stamp(key) == Some(stamp),
            None => true,
        };
        record.reset(self.source.schema().fields.len());
        let found = current && disk.read(key, record);
        let mut shard = lock(self.shard(index));
        // Another worker may have found the same meanwhile: each sample counts once.
        if found && !known && shard.insert(index, Slot::Stored).is_none() {
            self.kept.fetch_add(1, Relaxed);
        }
        // Damaged: the sample is cached anew.
        if !found && known && shard.remove(&index).is_some() {
            self.kept.fetch_sub(1, Relaxed);
        }
        drop(shard);
        if !found {
            disk.forget(key);
        }
        found
    }

    /// Caches a sample that was read from its source, and puts what was cached into `record`.
    pub(crate) fn admit(&self, index: u64, record: &mut Record, scratch: &mut codec::Scratch) {
        if record.cached || self.full.load(Relaxed) || lock(self.shard(index)).contains_key(&index) {
            return;
        }
        let limits = wellfed_jpeg::Limits { max_pixels: record.limits.max_pixels, ..Default::default() };
        let room = scratch.room().cloned();
        let allowed = |bytes| room.as_ref().is_none_or(|room| room.take(bytes).is_ok());
        let options = Options { limits, ask: Ask::new(&allowed), ..Options::default() };
        let mut packed = Vec::new();
        for &field in &self.images {
            let bytes = match record.values.get(field) {
                Some(Value::Bytes(bytes)) => Some(bytes.as_slice()),
                Some(Value::Resident) => self.source.resident(index, field),
                _ => None,
            };
            if let Some(bytes) = bytes.filter(|bytes| is_jpeg(bytes)) {
                match scratch.decoder().pack_with(bytes, &options) {
                    Ok(record) => packed.push((field, record)),
                    // There may be room another time, and there must be for the sample itself.
                    Err(e) if e.kind() == wellfed_jpeg::ErrorKind::Memory => return,
                    // Whatever is wrong with it, making the sample will say so, in every epoch.
                    Err(_) => return self.pass(index),
                }
            }
        }
        if packed.is_empty() {
            return self.pass(index);
        }
        let kept = match &self.disk {
            Some(disk) => self.store(disk, index, record, &packed),
            None => self.hold(index, record, &packed),
        };
        if kept {
            for (field, bytes) in packed {
                // What is held is shared with the record; what is on disk is in memory once more.
                record.values[field] = Value::Bytes(bytes);
            }
            record.cached = true;
        }
    }

    fn hold(&self, index: u64, record: &Record, packed: &[(usize, Vec<u8>)]) -> bool {
        let replaced = |i: usize| packed.iter().find(|(field, _)| *field == i).map(|(_, bytes)| bytes);
        let sizes =
            (record.values.iter().enumerate()).map(|(i, v)| replaced(i).map_or(v.len(), Vec::len) + 64);
        let size: usize = sizes.sum();
        // Memory of a slab is not given back, so room is made sure of before anything is copied there.
        if !self.share.take(size as u64 + OVERHEAD) {
            self.full.store(true, Relaxed);
            return false;
        }
        let values: Result<Arc<[(Value, u64)]>> = (record.values.iter().enumerate())
            .map(|(i, value)| {
                let value = match (replaced(i), value) {
                    (Some(bytes), _) | (None, Value::Bytes(bytes)) => Value::Shared(self.slab.keep(bytes)?),
                    (None, value) => value.clone(),
                };
                Ok((value, record.offsets.get(i).copied().unwrap_or(0)))
            })
            .collect();
        let Ok(values) = values else {
            // The system has less memory than the cache was promised.
            self.share.give(size as u64 + OVERHEAD);
            self.full.store(true, Relaxed);
            return false;
        };
        self.keep(index, Slot::Held(values))
    }

    fn store(&self, disk: &Disk, index: u64, record: &Record, packed: &[(usize, Vec<u8>)]) -> bool {
        let Some(stamp) = self.source.stamp(index) else { return false };
        let blobs: Vec<Blob<'_>> = (record.values.iter().enumerate())
            .map(|(i, value)| {
                let offset = record.offsets.get(i).copied().unwrap_or(0);
                match packed.iter().find(|(field, _)| *field == i) {
                    Some((_, bytes)) => Blob::Bytes { bytes, offset },
                    None => Blob::of(value, offset),
                }
            })
            .collect();
        let size = disk.size(&blobs);
        if !self.share.take(size) {
            self.full.store(true, Relaxed);
            return false;
        }
        if disk.append(self.key(index), stamp, &blobs).is_err() {
            // The disk is full, or was taken away. What is there stays.
            self.share.give(size);
            self.full.store(true, Relaxed);
            return false;
        }
        self.keep(index, Slot::Stored)
    }

    /// Notes where the sample is. Another worker may have been faster: what one of them wrote is used then, and the
    /// bytes of both stay taken, as neither memory nor disk is given back.
    fn keep(&self, index: u64, slot: Slot) -> bool {
        if lock(self.shard(index)).insert(index, slot).is_none() {
            self.kept.fetch_add(1, Relaxed);
        }
        true
    }

    fn pass(&self, index: u64) {
        if lock(self.shard(index)).insert(index, Slot::Passed).is_none() {
            self.passed.fetch_add(1, Relaxed);
        }
    }

    /// Writes what is not yet on disk, and looks at what other processes wrote.
    pub(crate) fn save(&self) {
        if let Some(disk) = &self.disk {
            disk.flush();
            disk.refresh();
        }
    }

    /// Whether [`CoefficientCache::save`] has something to do.
    pub(crate) fn unsaved(&self) -> bool {
        self.disk.is_some()
    }

    pub(crate) fn stats(&self) -> CacheStats {
        let (samples, passed) = (self.kept.load(Relaxed), self.passed.load(Relaxed));
        let full = self.full.load(Relaxed);
        let left = self.source.len().saturating_sub(samples).saturating_sub(passed);
        CacheStats {
            path: self.disk.as_ref().map(|disk| disk.folder().to_owned()),
            samples,
            bytes: self.share.used(),
            limit: self.share.limit(),
            passed,
            left_out: if full { left } else { 0 },
            hits: self.hits.load(Relaxed),
            problem: self.disk.as_ref().and_then(Disk::problem),
        }
    }

    fn shard(&self, index: u64) -> &Mutex<HashMap<u64, Slot>> {
        &self.shards[(index % SHARDS as u64) as usize]
    }

    /// What a sample is found by on disk: where it lies and the fields it has. Keys alone are the same in folders of the
    /// same form, such as those for training and validation.
    fn key(&self, index: u64) -> u64 {
        let mut text = self.source.key(index);
        text = location(&match &self.folder {
            Some(folder) if !text.starts_with(folder.as_str()) => store::join(folder, &text),
            _ => text,
        });
        for field in &self.source.schema().fields {
            text.push('\0');
            text.push_str(&field.name);
        }
        rapidhash::v3::rapidhash_v3(text.as_bytes())
    }
}
