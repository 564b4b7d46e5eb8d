//! Where bytes come from. Sources name objects by path; a [`Store`] reads and lists them.
//!
//! One file a store. Every store and every wrapper passes the conformance suite in `conformance.rs`.

pub mod brace;
pub mod conformance;
pub mod delayed;
pub mod faulty;
pub mod glob;
pub mod listing;
pub mod local;
pub mod registry;
pub mod remote;
pub mod retry;
pub mod secrets;
pub mod zip;

use std::fmt;

pub use delayed::DelayedStore;
pub use faulty::{Call, Fault, FaultyStore, Operation};
pub use local::LocalStore;
pub use remote::{Done, Pending, Remote, Request, Version};
pub use retry::{Retry, RetryingStore};
pub use zip::ZipStore;

use crate::{Error, ErrorKind, Result};

/// A place that holds named byte objects, in folders. Paths are separated by `/`.
///
/// Every error names the operation and the path.
pub trait Store: Send + Sync + fmt::Debug {
    /// Size and time of change of the object, whatever it is.
    fn stat(&self, path: &str) -> Result<Stat>;

    /// Size of the object in bytes.
    fn size(&self, path: &str) -> Result<u64> {
        self.stat(path).map(|stat| stat.size)
    }

    /// True if `path` is a folder that can be listed.
    fn is_folder(&self, path: &str) -> bool {
        self.stat(path).is_ok_and(|stat| stat.kind == EntryKind::Folder)
    }

    /// Appends the whole object to `into`, unless it is larger than `max_bytes`: then nothing is allocated and a
    /// [`crate::ErrorKind::Limit`] error says so.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Corrupt`] if the object grows or shrinks while it is read. After an error `into` holds
    /// what it held before.
    fn read(&self, path: &str, max_bytes: u64, into: &mut Vec<u8>) -> Result<()>;

    /// Appends exactly `len` bytes from `offset` to `into`.
    ///
    /// The caller answers for `len`: it is reserved before anything is read.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Corrupt`] if the object ends before `offset + len`. After an error `into` holds what it
    /// held before.
    fn read_range(&self, path: &str, offset: u64, len: usize, into: &mut Vec<u8>) -> Result<()>;

    /// Reads many ranges of one object, each of `size` bytes: for each `(offset, row)` of `rows` those from `offset` on, into row
    /// `row` of `into`, which is `size` bytes for each row. Rows that are not read stay as they are.
    ///
    /// # Errors
    /// As [`Store::read_range`]; what `into` holds then is unspecified.
    fn read_rows(&self, path: &str, rows: &[(u64, usize)], size: usize, into: &mut [u8]) -> Result<()> {
        let mut bytes = Vec::new();
        for (offset, row) in rows {
            bytes.clear();
            self.read_range(path, *offset, size, &mut bytes)?;
            row_of(into, *row, size)?.copy_from_slice(&bytes);
        }
        Ok(())
    }

    /// Calls `entry` for each thing in the folder `path`, in no particular order, symbolic links followed.
    ///
    /// Links that lead nowhere and things that are neither folder nor regular file are given as files: reading
    /// them will say what is wrong.
    fn list(&self, path: &str, entry: &mut dyn FnMut(Entry<'_>) -> Result<()>) -> Result<()>;

    /// Replaces the object `path` by `bytes`, all or nothing. A store that cannot write says so.
    fn write(&self, path: &str, _bytes: &[u8]) -> Result<()> {
        Err(Error::new(ErrorKind::Unsupported, format!("cannot write {path}: this store only reads")))
    }

    /// How [`RetryingStore`] and the I/O layer try again what failed in a way that may pass. `None`: the store does
    /// it itself.
    fn retry(&self) -> Option<Retry> {
        Some(Retry::default())
    }

    /// This store as one that answers later, if reading from it takes so long that many requests must be under way at
    /// once. Its samples are then read by the I/O layer, never by workers. The methods above block all the same.
    fn remote(&self) -> Option<&dyn Remote> {
        None
    }
}

/// What a store says about an object without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Folder or file.
    pub kind: EntryKind,
    /// Bytes.
    pub size: u64,
    /// Time of the last change in nanoseconds since 1970, or 0 where unknown.
    pub modified: i128,
    /// Identity of the object where the store has one (device and inode), to recognize loops of links.
    pub identity: Option<(u64, u64)>,
}

/// Folder or file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// Can be listed.
    Folder,
    /// Anything else.
    File,
}

/// One thing in a folder.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Its name in the folder. Not always UTF-8: what to do about that is the caller's decision.
    pub name: &'a [u8],
    /// Folder or file.
    pub kind: EntryKind,
}

/// `folder/name`, without doubling the separator.
pub fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() {
        return name.to_owned();
    }
    let separator = if folder.ends_with('/') { "" } else { "/" };
    [folder, separator, name].concat()
}

/// Row `row` of rows of `size` bytes.
fn row_of(rows: &mut [u8], row: usize, size: usize) -> Result<&mut [u8]> {
    let start = row.checked_mul(size);
    let end = start.and_then(|start| start.checked_add(size));
    start
        .zip(end)
        .and_then(|(start, end)| rows.get_mut(start..end))
        .ok_or_else(|| Error::new(ErrorKind::Internal, format!("there is no row {row} of {size} bytes")))
}

/// Makes room for `extra` more bytes, or says that there is no memory for them.
pub(crate) fn reserve(into: &mut Vec<u8>, extra: usize, path: &str) -> Result<()> {
    into.try_reserve_exact(extra).map_err(|_| {
        Error::new(ErrorKind::Limit, format!("no memory for {extra} bytes of {path}"))
            .with_hint("lower max_bytes if such files should be refused")
    })
}
