//! [`Text`]: the bytes of a file, in its store, or unpacked in memory or on local disk.

use std::sync::Arc;

use wellfed::{
    Error, ErrorKind, Result,
    store::{LocalStore, Store},
};

use crate::container::read;

/// The bytes of one file.
#[derive(Clone, Debug)]
pub(super) struct Text {
    pub(super) path: Arc<str>,
    /// Where the first row begins: behind a byte order mark.
    pub(super) start: u64,
    pub(super) size: u64,
    /// Where it is, if it was compressed.
    unpacked: Option<Unpacked>,
}

/// What a compressed file was unpacked to.
#[derive(Clone, Debug)]
enum Unpacked {
    Memory(Arc<Vec<u8>>),
    /// A file on local disk.
    File(Arc<str>),
}

impl Text {
    /// A file in its store.
    pub(super) fn stored(path: &str, size: u64) -> Self {
        Self { path: path.into(), start: 0, size, unpacked: None }
    }

    /// A file that was unpacked into memory.
    pub(super) fn memory(path: &str, bytes: Vec<u8>) -> Self {
        let size = bytes.len() as u64;
        Self { path: path.into(), start: 0, size, unpacked: Some(Unpacked::Memory(Arc::new(bytes))) }
    }

    /// A file that was unpacked into another one, on local disk.
    pub(super) fn file(path: &str, file: &str, size: u64) -> Self {
        Self { path: path.into(), start: 0, size, unpacked: Some(Unpacked::File(file.into())) }
    }

    /// Whether its bytes are not those in its store.
    pub(super) fn is_unpacked(&self) -> bool {
        self.unpacked.is_some()
    }

    /// `len` bytes from `offset` on.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) fn read(&self, store: &dyn Store, offset: u64, len: u64) -> Result<Vec<u8>> {
        let memory = match &self.unpacked {
            None => return read(store, &self.path, offset, len),
            Some(Unpacked::File(file)) => return read(&LocalStore::new(), file, offset, len),
            Some(Unpacked::Memory(memory)) => memory,
        };
        let end = offset.checked_add(len).and_then(|end| usize::try_from(end).ok());
        let bytes = end.and_then(|end| memory.get(offset as usize..end));
        let lost =
            || Error::new(ErrorKind::Internal, format!("{} ends before byte {offset} + {len}", self.path));
        bytes.map(<[u8]>::to_vec).ok_or_else(lost)
    }
}
