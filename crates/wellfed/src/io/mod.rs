//! The I/O layer: between sources, which say which bytes they need, and stores that answer later.
//!
//! A source names the [`Extent`]s of a sample (`locate`) and makes a record of the [`Bytes`] that have arrived
//! (`assemble`). Between the two, `layer::Layer` owns everything about getting bytes: how many requests are under way
//! (`window.rs`, one for the `line.rs` of each store), second requests for what is slow (`times.rs`), neighbouring ranges as
//! one request (`coalesce.rs`), what is tried again and when it is given up ([`crate::store::Retry`]), cancellation, and
//! bytes that are kept for later (`blocks.rs`), or on local disk (`cache/`). It is driven by one thread of
//! a loader (`engine/remote.rs`), which walks ahead along the order. Nothing in it blocks or looks at a clock by itself.

mod blocks;
pub mod cache;
mod coalesce;
pub(crate) mod layer;
pub(crate) mod line;
#[cfg(test)]
mod simulation;
#[cfg(test)]
pub(crate) mod testing;
mod times;
mod window;

#[cfg(test)]
pub(crate) use window::FIRST;

use std::{ops::Range, sync::Arc};

pub(crate) use cache::Need;

use crate::{
    Result,
    store::{Retry, Store},
};

/// How the layer gets the bytes of a store with this `retry`, one fact a line, for `explain()`.
pub(crate) fn describe(retry: &Retry, connections: usize) -> [String; 4] {
    let (attempts, total) = (retry.attempts, retry.total.as_secs_f64());
    [
        format!(
            "as many requests at once as link and server bear: {} at first, up to {} while more bring more, half as many \
             when the server asks to slow down",
            window::FIRST.min(connections),
            line::MOST.min(connections),
        ),
        format!(
            "ranges of one object with at most {} KiB between them are one request of at most {} MiB",
            coalesce::GAP >> 10,
            coalesce::MERGED >> 20
        ),
        format!(
            "a request without an answer for {} s has failed; what failed is tried {attempts} times within {total} s; \
             of the slowest percent a second one is made",
            retry.deadline.as_secs_f64()
        ),
        "what has arrived is kept in what read-ahead leaves of its part of memory_budget, and is not asked for again"
            .to_owned(),
    ]
}

/// Bytes of one object that a sample needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Path of the object in its store.
    pub path: Arc<str>,
    /// Which of its bytes; `None` is all of them.
    pub range: Option<Range<u64>>,
    /// The object may have so many bytes at most, where all of them are wanted.
    pub max_bytes: u64,
}

impl Extent {
    /// All bytes of `path`, unless there are more than `max_bytes`.
    pub fn whole(path: impl Into<Arc<str>>, max_bytes: u64) -> Self {
        Self { path: path.into(), range: None, max_bytes }
    }

    /// `len` bytes of `path` from `offset`. The caller answers for `len`.
    pub fn range(path: impl Into<Arc<str>>, offset: u64, len: u64) -> Self {
        Self { path: path.into(), range: Some(offset..offset.saturating_add(len)), max_bytes: len }
    }

    /// Reads these bytes in the calling thread.
    ///
    /// # Errors
    /// Those of the store.
    pub fn read(&self, store: &dyn Store) -> Result<Bytes> {
        let mut bytes = Vec::new();
        match &self.range {
            None => store.read(&self.path, self.max_bytes, &mut bytes)?,
            Some(range) => {
                let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
                store.read_range(&self.path, range.start, len, &mut bytes)?;
            }
        }
        Ok(Bytes::from(bytes))
    }
}

/// An extent of one of several stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Located {
    /// Number of the store among those of the layer.
    pub(crate) store: usize,
    /// What is wanted of it.
    pub(crate) extent: Extent,
    /// By which sample, and when.
    pub(crate) need: Need,
}

/// Bytes that have arrived: a part of a block that others may use as well.
#[derive(Clone, Debug)]
pub struct Bytes {
    block: Arc<Vec<u8>>,
    range: Range<usize>,
}

impl Bytes {
    /// A part of `block`, if it lies inside.
    pub(crate) fn of(block: &Arc<Vec<u8>>, range: Range<usize>) -> Option<Self> {
        block.get(range.clone())?;
        Some(Self { block: block.clone(), range })
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self { range: 0..bytes.len(), block: Arc::new(bytes) }
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl std::ops::Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // Inside the block, as was checked when it was made.
        self.block.get(self.range.clone()).unwrap_or_default()
    }
}
