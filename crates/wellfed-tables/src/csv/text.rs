//! [`Text`]: the bytes of a file, in its store or unpacked in memory.

use std::sync::Arc;

use wellfed::{Error, ErrorKind, Result, store::Store};

use crate::container::read;

/// The bytes of one file.
#[derive(Clone, Debug)]
pub(super) struct Text {
    pub(super) path: Arc<str>,
    /// Where the first row begins: behind a byte order mark.
    pub(super) start: u64,
    pub(super) size: u64,
    /// All of it, if it was compressed.
    memory: Option<Arc<Vec<u8>>>,
}

impl Text {
    /// A file in its store.
    pub(super) fn stored(path: &str, size: u64) -> Self {
        Self { path: path.into(), start: 0, size, memory: None }
    }

    /// A file that was unpacked.
    pub(super) fn memory(path: &str, bytes: Vec<u8>) -> Self {
        Self { path: path.into(), start: 0, size: bytes.len() as u64, memory: Some(Arc::new(bytes)) }
    }

    /// Whether it was unpacked.
    pub(super) fn is_in_memory(&self) -> bool {
        self.memory.is_some()
    }

    /// `len` bytes from `offset` on.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) fn read(&self, store: &dyn Store, offset: u64, len: u64) -> Result<Vec<u8>> {
        let Some(memory) = &self.memory else { return read(store, &self.path, offset, len) };
        let end = offset.checked_add(len).and_then(|end| usize::try_from(end).ok());
        let bytes = end.and_then(|end| memory.get(offset as usize..end));
        let lost =
            || Error::new(ErrorKind::Internal, format!("{} ends before byte {offset} + {len}", self.path));
        bytes.map(<[u8]>::to_vec).ok_or_else(lost)
    }
}
