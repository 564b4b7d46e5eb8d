//! Stores that answer later: the I/O layer ([`crate::io`]) has hundreds of their requests under way at once.
//!
//! Answers come by callback, from whatever thread the store has: a timer's, a connection's, a worker of an async
//! runtime. So the engine needs no runtime of its own, and a store that has one keeps it to itself.

use std::{fmt, ops::Range, sync::Arc};

use super::Retry;
use crate::Result;

/// Bytes that are wanted of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Path of the object in its store.
    pub path: Arc<str>,
    /// Which of its bytes; `None` is all of them.
    pub range: Option<Range<u64>>,
    /// Larger answers are a [`crate::ErrorKind::Limit`] error. Checked before memory is taken.
    pub max_bytes: u64,
}

/// Which object this is, and what it holds, for all processes and as long as it is not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// A hash of the store's address and the path, without secrets. Another version of the object has the same.
    pub object: u64,
    /// A hash of all that says which version it is: its tag, its size, and the address once more.
    pub content: u64,
}

impl Version {
    /// Of the object `path` of the store at `address`, whose version is told by `tag`.
    pub fn new(address: &str, path: &str, tag: &[u8]) -> Self {
        let hash = |parts: &[&[u8]]| {
            let lengths: Vec<u8> = parts.iter().flat_map(|part| (part.len() as u64).to_le_bytes()).collect();
            rapidhash::v3::rapidhash_v3(&[&parts.concat(), &lengths[..]].concat())
        };
        let (address, path) = (address.as_bytes(), path.as_bytes());
        Self { object: hash(&[address, path]), content: hash(&[b"version", tag, address, path]) }
    }
}

/// Takes the answer.
pub type Done = Box<dyn FnOnce(Result<Vec<u8>>) + Send>;

/// A store whose requests do not block the caller.
pub trait Remote: Send + Sync + fmt::Debug {
    /// Begins `request` and returns at once. `done` is called exactly once, from any thread and also before this
    /// returns, unless [`Pending`] was dropped before. The answer to a range has exactly its length.
    fn begin(&self, request: Request, done: Done) -> Pending;

    /// How requests that fail in a way that may pass are tried again, and when they are given up.
    fn retry(&self) -> Retry {
        Retry::default()
    }

    /// Requests that it takes at once, at most: more would only wait. The I/O layer finds out how many are useful.
    fn connections(&self) -> usize {
        usize::MAX
    }

    /// What an object is, as far as that is known without asking for it: from a list, or from an earlier answer. All answers
    /// from then on are of this version, or errors. `None`, if it is not known, or cannot be told for sure.
    fn version(&self, _path: &str) -> Option<Version> {
        None
    }

    /// How often a server of this store has asked to slow down. The store waits as long as it was asked to, without an
    /// error; the I/O layer asks for less from then on.
    fn throttled(&self) -> u64 {
        0
    }
}

/// A request under way. Dropping it cancels the request: its answer is no longer wanted and may or may not come.
#[must_use]
pub struct Pending(Option<Box<dyn FnOnce() + Send>>);

impl Pending {
    /// `cancel` is called when this is dropped, also after the answer has come.
    pub fn new(cancel: impl FnOnce() + Send + 'static) -> Self {
        Self(Some(Box::new(cancel)))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(cancel) = self.0.take() {
            cancel();
        }
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pending")
    }
}
