//! [`RowIndexes`]: row indexes of all sources of a data set, which several processes record and use together.
//!
//! One process makes them, and the others attach to its memory: a forked child has it already, any other one gets the
//! file. With a table for each process, each would have to decode an image in full before it knew its rows.

use std::{fs::File, sync::Arc};

use super::{RowIndexCache, row_index_table::RowIndexTable};
use crate::{
    Error, ErrorKind, Result,
    memory::{SharedMemory, WORD},
    meter::RowIndexStats,
    plan::RowIndexing,
    sample::FieldKind,
    source::Source,
};

/// Most bytes that an index is expected to take, with those it grew out of: what memory is reserved by, and not taken.
const MOST_OF_AN_IMAGE: u64 = 8 << 10;

/// Row indexes of a data set's sources, shared by processes.
#[derive(Debug)]
pub struct RowIndexes {
    memory: Arc<SharedMemory>,
    limit: u64,
    /// By source, depth first; sources without images have none.
    caches: Vec<Option<Arc<RowIndexCache>>>,
}

impl RowIndexes {
    /// Those of `sources`, within `limit` bytes in all; what files have of them may take a part of that once more in each of
    /// `processes` processes. `None` where none are wanted, where nothing has images, and where the system shares no
    /// memory.
    pub(crate) fn new(
        sources: &[Arc<dyn Source>],
        mode: &RowIndexing,
        limit: u64,
        processes: u64,
    ) -> Result<Option<Self>> {
        if *mode == RowIndexing::Off || !sources.iter().any(|source| has_images(&**source)) {
            return Ok(None);
        }
        let words: u64 = sizes(sources, limit).iter().sum();
        let bytes = usize::try_from(words).ok().and_then(|words| words.checked_mul(WORD));
        let Some(memory) = bytes.and_then(|bytes| SharedMemory::new(bytes).ok()) else { return Ok(None) };
        Self::over(memory, sources, mode, limit, processes).map(Some)
    }

    /// As [`RowIndexes::new`] with the same arguments, in the memory of a process that called it.
    ///
    /// # Errors
    /// Those of the system; [`ErrorKind::Internal`] for a file of another data set.
    pub(crate) fn attach(
        file: &File,
        sources: &[Arc<dyn Source>],
        mode: &RowIndexing,
        limit: u64,
        processes: u64,
    ) -> Result<Self> {
        let memory = SharedMemory::attach(file).map_err(|e| Error::io("map", "shared row indexes", e))?;
        Self::over(memory, sources, mode, limit, processes)
    }

    fn over(
        memory: SharedMemory,
        sources: &[Arc<dyn Source>],
        mode: &RowIndexing,
        limit: u64,
        processes: u64,
    ) -> Result<Self> {
        let memory = Arc::new(memory);
        let sizes = sizes(sources, limit);
        let images = sizes.iter().filter(|words| **words > 0).count().max(1) as u64;
        let mut caches = Vec::new();
        let mut at = 0;
        for (source, words) in sources.iter().zip(sizes) {
            let end = at + words as usize;
            if end > memory.words().len() {
                return Err(Error::new(ErrorKind::Internal, "shared row indexes are of another data set"));
            }
            let opened = match words {
                0 => None,
                _ => RowIndexCache::open(source.clone(), mode, limit / images / processes.max(1))?,
            };
            let count = source.len().saturating_mul(source.schema().fields.len().max(1) as u64);
            let table = |cache: RowIndexCache| {
                Arc::new(cache.in_table(RowIndexTable::new(memory.clone(), at..end, count)))
            };
            caches.push(opened.map(table));
            at = end;
        }
        Ok(Self { memory, limit, caches })
    }

    /// The file that the memory is, for a process that is to attach to it. Only whoever made it has it.
    pub fn file(&self) -> Option<&File> {
        self.memory.file()
    }

    /// Bytes that they may take.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// What all processes recorded and used together.
    pub fn stats(&self) -> Option<RowIndexStats> {
        self.caches.iter().flatten().map(|cache| cache.stats()).reduce(RowIndexStats::and)
    }

    /// Writes what was recorded to files, if it is kept in some and is not there yet. Trouble is reported in the
    /// statistics.
    pub fn save(&self) {
        self.caches.iter().flatten().for_each(|cache| cache.save());
    }

    /// Those of a source.
    pub(crate) fn of(&self, source: usize) -> Option<&Arc<RowIndexCache>> {
        self.caches.get(source)?.as_ref()
    }
}

fn has_images(source: &dyn Source) -> bool {
    source.schema().fields.iter().any(|field| field.kind == FieldKind::Image)
}

/// Words of memory of each source: of those with images equal parts of `limit`, but no more than they need.
fn sizes(sources: &[Arc<dyn Source>], limit: u64) -> Vec<u64> {
    let images = sources.iter().filter(|source| has_images(&***source)).count().max(1) as u64;
    let part = limit / images / WORD as u64;
    let one = |source: &Arc<dyn Source>| {
        let fields = source.schema().fields.iter().filter(|field| field.kind == FieldKind::Image).count();
        let count = source.len().saturating_mul(fields as u64);
        if fields == 0 { 0 } else { RowIndexTable::size(count, MOST_OF_AN_IMAGE).min(part).max(64) }
    };
    sources.iter().map(one).collect()
}
