//! Errors that may pass ([`ErrorKind::Transient`]) are tried again, a bounded number of times within a bounded time, and
//! then raised.
//!
//! Every source that opens through a store wraps it here, so that listing, indexing and reading behave alike.
//! [`crate::io`] uses the same [`Retry`] for requests that are under way together.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use super::{Entry, Remote, Stat, Store};
use crate::{Error, ErrorKind, Result};

/// How often, and for how long, something that failed is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Calls in all, the first one included. Default: 6.
    pub attempts: u32,
    /// Pause after the first call; it doubles with every further one. Default: 0.1 s.
    pub first: Duration,
    /// Longest pause. Default: 5 s.
    pub most: Duration,
    /// No further call is made later than this after the first one began. Default: 120 s.
    pub total: Duration,
    /// A request of the I/O layer without an answer for so long is given up, and counts as a failed call. Blocking
    /// reads have no such end. Default: 30 s.
    pub deadline: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            attempts: 6,
            first: Duration::from_millis(100),
            most: Duration::from_secs(5),
            total: Duration::from_secs(120),
            deadline: Duration::from_secs(30),
        }
    }
}

/// Calls to a store that has never answered: who mistyped an address waits for ten seconds, not for as long as an outage may last.
const FIRST_CONTACT: u32 = 8;

impl Retry {
    /// Pause before the next call, after `failed` (at least one) calls that took `elapsed` in all. `None`: no more.
    ///
    /// The pause is between a half and the whole of the doubled one, by a hash of `what` and of this process: ranks
    /// that failed together do not come back together.
    pub fn pause(&self, what: &str, failed: u32, elapsed: Duration) -> Option<Duration> {
        if failed >= self.attempts {
            return None;
        }
        let whole = self.first.saturating_mul(1 << failed.saturating_sub(1).min(20)).min(self.most);
        let key = [what.as_bytes(), &failed.to_le_bytes(), &std::process::id().to_le_bytes()].concat();
        let hash = rapidhash::v3::rapidhash_v3(&key);
        let pause = whole.mul_f64(0.5 + 0.5 * (hash >> 11) as f64 / (1_u64 << 53) as f64);
        (elapsed.saturating_add(pause) < self.total).then_some(pause)
    }

    /// Adds to an error how often it was met.
    pub fn exhausted(&self, error: Error, failed: u32, elapsed: Duration) -> Error {
        error.with_hint(format!(
            "storage failed {failed} times in {:.1} s. It says nothing about the sample, so on_error does not apply",
            elapsed.as_secs_f64()
        ))
    }

    /// Runs `call` until it succeeds, fails for good, or has failed too often.
    ///
    /// # Errors
    /// That of the last call.
    pub fn run<T>(&self, what: &str, mut call: impl FnMut() -> Result<T>) -> Result<T> {
        let mut error = match call() {
            Err(error) if error.kind() == ErrorKind::Transient => error,
            result => return result,
        };
        // The clock is looked at only now: almost every call succeeds.
        let since = Instant::now();
        for failed in 1.. {
            let Some(pause) = self.pause(what, failed, since.elapsed()) else {
                return Err(self.exhausted(error, failed, since.elapsed()));
            };
            thread::sleep(pause);
            error = match call() {
                Err(error) if error.kind() == ErrorKind::Transient => error,
                result => return result,
            };
        }
        Err(error)
    }
}

/// Another store whose errors that may pass are tried again.
pub struct RetryingStore {
    inner: Arc<dyn Store>,
    retry: Retry,
    /// Whether a call succeeded, or failed for good.
    answered: AtomicBool,
}

impl fmt::Debug for RetryingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl RetryingStore {
    /// Wraps `inner` as it wants to be ([`Store::retry`]); a store that is wrapped already is given back as it is.
    pub fn around(inner: Arc<dyn Store>) -> Arc<dyn Store> {
        match inner.retry() {
            Some(retry) => Arc::new(Self { inner, retry, answered: AtomicBool::new(false) }),
            None => inner,
        }
    }

    fn run<T>(&self, what: &str, call: impl FnMut() -> Result<T>) -> Result<T> {
        let known = self.answered.load(Relaxed);
        let attempts = if known { self.retry.attempts } else { self.retry.attempts.min(FIRST_CONTACT) };
        let result = Retry { attempts, ..self.retry }.run(what, call);
        if !known && !matches!(&result, Err(error) if error.kind() == ErrorKind::Transient) {
            self.answered.store(true, Relaxed);
        }
        result
    }
}

impl Store for RetryingStore {
    fn stat(&self, path: &str) -> Result<Stat> {
        self.run(path, || self.inner.stat(path))
    }

    fn read(&self, path: &str, max_bytes: u64, into: &mut Vec<u8>) -> Result<()> {
        self.run(path, || self.inner.read(path, max_bytes, into))
    }

    fn read_range(&self, path: &str, offset: u64, len: usize, into: &mut Vec<u8>) -> Result<()> {
        self.run(path, || self.inner.read_range(path, offset, len, into))
    }

    fn read_rows(&self, path: &str, rows: &[(u64, usize)], size: usize, into: &mut [u8]) -> Result<()> {
        self.run(path, || self.inner.read_rows(path, rows, size, into))
    }

    fn list(&self, path: &str, entry: &mut dyn FnMut(Entry<'_>) -> Result<()>) -> Result<()> {
        // The callback must not see a name twice, and so sees none before all of them have come.
        let (mut names, mut ends) = (Vec::new(), Vec::new());
        self.run(path, || {
            names.clear();
            ends.clear();
            self.inner.list(path, &mut |found| {
                names.extend_from_slice(found.name);
                ends.push((names.len(), found.kind));
                Ok(())
            })
        })?;
        let mut start = 0;
        ends.into_iter().try_for_each(|(end, kind)| {
            let name = &names[std::mem::replace(&mut start, end)..end];
            entry(Entry { name, kind })
        })
    }

    fn write(&self, path: &str, bytes: &[u8]) -> Result<()> {
        self.run(path, || self.inner.write(path, bytes))
    }

    fn retry(&self) -> Option<Retry> {
        None
    }

    fn remote(&self) -> Option<&dyn Remote> {
        self.inner.remote()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::atomic::{AtomicU32, Ordering::Relaxed},
    };

    use super::*;
    use crate::{
        store::{Fault, FaultyStore, LocalStore, conformance},
        testing::TempFolder,
    };

    const QUICK: Retry = Retry {
        attempts: 4,
        first: Duration::ZERO,
        most: Duration::ZERO,
        total: Duration::from_secs(3600),
        deadline: Duration::from_secs(3600),
    };

    /// A store whose calls fail where `fails` of their number, and the number of its calls.
    fn failing(
        fails: impl Fn(u32) -> bool + Send + Sync + 'static,
        kind: io::ErrorKind,
        retry: Retry,
    ) -> (Arc<dyn Store>, Arc<AtomicU32>) {
        let calls = Arc::new(AtomicU32::new(0));
        let counted = calls.clone();
        let faulty = FaultyStore::new(Arc::new(LocalStore::new()), move |_| {
            if fails(counted.fetch_add(1, Relaxed)) { Fault::Error(kind) } else { Fault::None }
        });
        (RetryingStore::around(Arc::new(faulty.with_retry(retry))), calls)
    }

    /// One whose first `first` calls fail.
    fn store(first: u32, kind: io::ErrorKind) -> (Arc<dyn Store>, Arc<AtomicU32>) {
        failing(move |call| call < first, kind, QUICK)
    }

    #[test]
    fn it_passes_the_conformance_suite() {
        let folder = TempFolder::new();
        conformance::check(&*store(0, io::ErrorKind::Other).0, folder.path());
        conformance::check(&*store(3, io::ErrorKind::TimedOut).0, folder.path());
    }

    #[test]
    fn what_may_pass_is_tried_a_bounded_number_of_times() {
        let folder = TempFolder::new();
        let path = folder.write("a", b"abc");
        let read = |store: &dyn Store| {
            let mut bytes = Vec::new();
            store.read(&path, 10, &mut bytes).map(|()| bytes)
        };
        let (passing, calls) = store(3, io::ErrorKind::ConnectionReset);
        assert_eq!((read(&*passing).unwrap(), calls.load(Relaxed)), (b"abc".to_vec(), 4));
        let (failing, calls) = store(u32::MAX, io::ErrorKind::TimedOut);
        let e = read(&*failing).unwrap_err();
        assert_eq!((e.kind(), calls.load(Relaxed)), (ErrorKind::Transient, 4));
        assert!(e.hint().unwrap().contains("failed 4 times"), "{e}");
        let (denied, calls) = store(u32::MAX, io::ErrorKind::PermissionDenied);
        assert_eq!((read(&*denied).unwrap_err().kind(), calls.load(Relaxed)), (ErrorKind::Io, 1));
        let wrapped = RetryingStore::around(passing.clone());
        assert!(Arc::ptr_eq(&wrapped, &passing), "retries are not multiplied");
    }

    #[test]
    fn a_store_that_has_answered_is_waited_for_longer() {
        let folder = TempFolder::new();
        let path = folder.write("a", b"abc");
        let long = Retry { attempts: 14, ..QUICK };
        for answers in [0, 1] {
            let (store, calls) = failing(move |call| call >= answers, io::ErrorKind::ConnectionRefused, long);
            for _ in 0..answers {
                store.stat(&path).unwrap();
            }
            store.stat(&path).unwrap_err();
            let attempts = if answers == 0 { FIRST_CONTACT } else { long.attempts };
            assert_eq!(calls.load(Relaxed), answers + attempts);
        }
    }

    #[test]
    fn pauses_double_with_jitter_up_to_their_bounds() {
        let retry = Retry::default();
        let mut elapsed = Duration::ZERO;
        let pauses: Vec<Duration> = (1..)
            .map_while(|failed| {
                let pause = retry.pause("a", failed, elapsed)?;
                elapsed += pause;
                Some(pause)
            })
            .collect();
        assert_eq!(pauses.len(), 5);
        for (i, pause) in pauses.iter().enumerate() {
            let whole = retry.first * (1 << i);
            assert!(*pause >= whole / 2 && *pause <= whole, "{pause:?} of {whole:?}");
        }
        assert_eq!(retry.pause("a", 1, retry.total), None, "the time is bounded, too");
        let many = Retry { attempts: 100, ..retry };
        assert!(many.pause("a", 90, Duration::ZERO).unwrap() <= retry.most);
    }
}
