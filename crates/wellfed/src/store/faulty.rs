//! A store that misbehaves on demand. For tests: of error policies, of determinism under delays, of bad storage.

use std::{fmt, io, sync::Arc, time::Duration};

use super::{Entry, Retry, Stat, Store};
use crate::{Error, Result};

/// What is about to be done to a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call<'a> {
    /// Which method.
    pub operation: Operation,
    /// Of which object.
    pub path: &'a str,
    /// Start of the range, for [`Operation::ReadRange`], else 0.
    pub offset: u64,
    /// Bytes of the range, for [`Operation::ReadRange`], else 0.
    pub len: usize,
}

/// A method of [`Store`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the methods")]
pub enum Operation {
    Stat,
    Read,
    ReadRange,
    List,
    Write,
}

/// How a call goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It does not.
    None,
    /// It takes this much longer, and then succeeds.
    Delay(Duration),
    /// It fails with this error of the operating system.
    Error(io::ErrorKind),
    /// The object seems to end after so many bytes. Affects `stat`, `read` and `read_range`.
    Truncate(u64),
    /// The lowest bit of this byte of the object is flipped. Affects `read` and `read_range`.
    FlipBit(u64),
}

/// Decides the fault of each call.
type Decide = dyn Fn(&Call<'_>) -> Fault + Send + Sync;

/// A store that asks a function how each call shall fail, and is otherwise the `inner` one. For tests only.
#[derive(Clone)]
pub struct FaultyStore {
    inner: Arc<dyn Store>,
    decide: Arc<Decide>,
    retry: Retry,
}

impl fmt::Debug for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyStore").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl FaultyStore {
    /// Wraps `inner`; `decide` is called before each call, from any thread.
    pub fn new(inner: Arc<dyn Store>, decide: impl Fn(&Call<'_>) -> Fault + Send + Sync + 'static) -> Self {
        Self { inner, decide: Arc::new(decide), retry: Retry::default() }
    }

    /// The same store, whose errors that may pass are tried again as `retry` says.
    #[must_use]
    pub fn with_retry(self, retry: Retry) -> Self {
        Self { retry, ..self }
    }

    /// Wraps `inner` so that each read takes up to `most` longer, by a hash of `seed`, path and offset: the same
    /// call is always delayed by the same time.
    pub fn delayed(inner: Arc<dyn Store>, seed: u64, most: Duration) -> Self {
        Self::new(inner, move |call| {
            if !matches!(call.operation, Operation::Read | Operation::ReadRange) {
                return Fault::None;
            }
            // FNV-1a, 64 bits: http://www.isthe.com/chongo/tech/comp/fnv/
            let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ seed;
            for byte in call.path.bytes().chain(call.offset.to_le_bytes()) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
            }
            Fault::Delay(most.mul_f64((hash >> 11) as f64 / (1_u64 << 53) as f64))
        })
    }

    /// The fault of a call that it lets happen, after any delay.
    fn fault(&self, operation: Operation, path: &str, offset: u64, len: usize) -> Result<Fault> {
        match (self.decide)(&Call { operation, path, offset, len }) {
            Fault::Delay(time) => {
                std::thread::sleep(time);
                Ok(Fault::None)
            }
            Fault::Error(kind) => Err(Error::io("use", path, kind.into())),
            fault => Ok(fault),
        }
    }
}

fn flip(bytes: &mut [u8], at: u64) {
    if let Some(byte) = usize::try_from(at).ok().and_then(|at| bytes.get_mut(at)) {
        *byte ^= 1;
    }
}

impl Store for FaultyStore {
    fn stat(&self, path: &str) -> Result<Stat> {
        let fault = self.fault(Operation::Stat, path, 0, 0)?;
        let mut stat = self.inner.stat(path)?;
        if let Fault::Truncate(size) = fault {
            stat.size = stat.size.min(size);
        }
        Ok(stat)
    }

    fn read(&self, path: &str, max_bytes: u64, into: &mut Vec<u8>) -> Result<()> {
        let fault = self.fault(Operation::Read, path, 0, 0)?;
        let before = into.len();
        self.inner.read(path, max_bytes, into)?;
        match fault {
            Fault::Truncate(size) => {
                into.truncate(before.saturating_add(usize::try_from(size).unwrap_or(usize::MAX)));
            }
            Fault::FlipBit(at) => flip(&mut into[before..], at),
            _ => {}
        }
        Ok(())
    }

    fn read_range(&self, path: &str, offset: u64, len: usize, into: &mut Vec<u8>) -> Result<()> {
        let fault = self.fault(Operation::ReadRange, path, offset, len)?;
        if let Fault::Truncate(size) = fault
            && offset.saturating_add(len as u64) > size
        {
            let got = size.saturating_sub(offset);
            return Err(Error::corrupt(format!(
                "{path} ends after {got} of the {len} bytes wanted from byte {offset}"
            ))
            .with_offset(offset));
        }
        let before = into.len();
        self.inner.read_range(path, offset, len, into)?;
        if let Fault::FlipBit(at) = fault
            && at >= offset
        {
            flip(&mut into[before..], at - offset);
        }
        Ok(())
    }

    fn list(&self, path: &str, entry: &mut dyn FnMut(Entry<'_>) -> Result<()>) -> Result<()> {
        self.fault(Operation::List, path, 0, 0)?;
        self.inner.list(path, entry)
    }

    fn write(&self, path: &str, bytes: &[u8]) -> Result<()> {
        self.fault(Operation::Write, path, 0, bytes.len())?;
        self.inner.write(path, bytes)
    }

    fn retry(&self) -> Option<Retry> {
        Some(self.retry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ErrorKind, store::LocalStore, testing::TempFolder};

    #[test]
    fn without_faults_it_passes_the_conformance_suite() {
        let folder = TempFolder::new();
        let inner: Arc<dyn Store> = Arc::new(LocalStore::new());
        super::super::conformance::check(
            &FaultyStore::new(Arc::clone(&inner), |_| Fault::None),
            folder.path(),
        );
        let delayed = FaultyStore::delayed(inner, 7, Duration::from_micros(50));
        super::super::conformance::check(&delayed, folder.path());
    }

    #[test]
    fn faults_happen_where_they_are_wanted() {
        let folder = TempFolder::new();
        let path = folder.write("a", b"abcdef");
        let store = |fault| FaultyStore::new(Arc::new(LocalStore::new()), move |_| fault);
        let mut bytes = Vec::new();
        store(Fault::Truncate(2)).read(&path, 100, &mut bytes).unwrap();
        store(Fault::FlipBit(3)).read_range(&path, 2, 3, &mut bytes).unwrap();
        assert_eq!(bytes, b"abcee");
        assert_eq!(store(Fault::Truncate(2)).size(&path).unwrap(), 2);
        let e = store(Fault::Truncate(2)).read_range(&path, 0, 3, &mut bytes).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Corrupt);
        let e = store(Fault::Error(io::ErrorKind::TimedOut)).read(&path, 100, &mut bytes).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Transient);
    }
}
