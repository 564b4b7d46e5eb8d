//! Where bytes come from. Sources name objects by path; a [`Store`] reads them, whole or in part.

use std::fmt;

use crate::Result;

/// A place that holds named byte objects.
///
/// Every error names the operation and the path.
pub trait Store: Send + Sync + fmt::Debug {
    /// Size of the object in bytes.
    fn size(&self, path: &str) -> Result<u64>;

    /// Appends the whole object to `into`, unless it is larger than `max_bytes`: then nothing is allocated and a
    /// [`crate::ErrorKind::Limit`] error says so.
    fn read(&self, path: &str, max_bytes: u64, into: &mut Vec<u8>) -> Result<()>;

    /// Appends exactly `len` bytes from `offset` to `into`.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Corrupt`] if the object ends before `offset + len`.
    fn read_range(&self, path: &str, offset: u64, len: usize, into: &mut Vec<u8>) -> Result<()>;
}
