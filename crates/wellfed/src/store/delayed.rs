//! A store that is far away: every request takes a time, and all of them share a bandwidth. For tests and benchmarks.
//!
//! By URL: `delayed+file:///data?latency_ms=20&bandwidth=200MB`, and as of other stores `max_pool_connections=16`: requests that it is
//! asked for at once. Bandwidth is a token bucket: bytes of one answer go out after those of the requests before it. Answers come from one thread, which ends with the store.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    fmt,
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread,
    time::{Duration, Instant},
};

use super::{
    Done, Entry, LocalStore, Pending, Remote, Request, Stat, Store, Version, registry::Located, secrets,
};
use crate::{Error, Result, lock};

/// Another store, seen from afar.
pub struct DelayedStore {
    inner: Arc<dyn Store>,
    latency: Duration,
    bytes_per_second: f64,
    connections: usize,
    timer: Arc<Timer>,
}

/// When answers are due, and who waits for them.
#[derive(Default)]
struct Timer {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The process whose thread gives the answers; 0 before there is one.
    process: u32,
    shutdown: bool,
    number: u64,
    /// When the bandwidth is free again.
    free: Option<Instant>,
    due: BinaryHeap<Reverse<(Instant, u64)>>,
    waiting: HashMap<u64, (Request, Done)>,
}

impl fmt::Debug for DelayedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (latency, bandwidth) = (self.latency, self.bytes_per_second);
        write!(f, "DelayedStore({:?}, {latency:?}, {bandwidth} B/s)", self.inner)
    }
}

impl DelayedStore {
    /// `inner`, each of whose requests takes `latency` longer, and all of which together pass `bytes_per_second`.
    pub fn new(inner: Arc<dyn Store>, latency: Duration, bytes_per_second: f64) -> Self {
        Self { inner, latency, bytes_per_second, connections: usize::MAX, timer: Arc::default() }
    }

    /// What `path?latency_ms=20&bandwidth=200MB` of a URL names: a store around the local one, and the path in it.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] for anything else after the question mark.
    pub fn from_url(rest: &str) -> Result<Located> {
        let (path, query) = rest.rsplit_once('?').unwrap_or((rest, ""));
        let (mut latency, mut bandwidth, mut connections) = (Duration::ZERO, f64::INFINITY, usize::MAX);
        // Whoever opens a source keeps back what may be a secret by its name, as that of connections.
        for (name, value) in secrets::options(query)? {
            let bad = || {
                Error::config(format!("{name}={value} is no setting of a delayed store"))
                    .with_hint("write ?latency_ms=20&bandwidth=200MB")
            };
            let digits = value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
            let unit = match &value[digits.len()..] {
                "" | "B" => 1.0,
                "kB" | "KB" => 1e3,
                "MB" => 1e6,
                "GB" => 1e9,
                _ => return Err(bad()),
            };
            let number = digits.parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0).ok_or_else(bad)?;
            match name.as_str() {
                "latency_ms" if unit == 1.0 && number < 1e9 => {
                    latency = Duration::from_secs_f64(number / 1e3)
                }
                "bandwidth" if number * unit >= 1.0 => bandwidth = number * unit,
                "max_pool_connections" if unit == 1.0 && (1.0..=4096.0).contains(&number) => {
                    connections = number as usize
                }
                _ => return Err(bad()),
            }
        }
        let mut store = Self::new(Arc::new(LocalStore::new()), latency, bandwidth);
        store.connections = connections;
        Ok(Located {
            store: Arc::new(store),
            path: path.to_owned(),
            address: format!("delayed+file:{query}"),
        })
    }

    /// When an answer of `bytes` that is asked for now has come. Takes its share of the bandwidth.
    fn arrival(&self, state: &mut MutexGuard<'_, State>, bytes: u64) -> Instant {
        let now = Instant::now();
        let begin = state.free.filter(|free| *free > now).unwrap_or(now);
        let end = begin + Duration::from_secs_f64(bytes as f64 / self.bytes_per_second);
        state.free = Some(end);
        end.max(now + self.latency)
    }

    /// Lets the calling thread wait as long as an answer of `bytes` takes.
    fn wait(&self, bytes: u64) {
        let due = self.arrival(&mut lock(&self.timer.state), bytes);
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
}

impl Store for DelayedStore {
    fn stat(&self, path: &str) -> Result<Stat> {
        self.wait(0);
        self.inner.stat(path)
    }

    fn read(&self, path: &str, max_bytes: u64, into: &mut Vec<u8>) -> Result<()> {
        self.wait(self.inner.size(path).unwrap_or(0));
        self.inner.read(path, max_bytes, into)
    }

    fn read_range(&self, path: &str, offset: u64, len: usize, into: &mut Vec<u8>) -> Result<()> {
        self.wait(len as u64);
        self.inner.read_range(path, offset, len, into)
    }

    fn list(&self, path: &str, entry: &mut dyn FnMut(Entry<'_>) -> Result<()>) -> Result<()> {
        self.wait(0);
        self.inner.list(path, entry)
    }

    fn write(&self, path: &str, bytes: &[u8]) -> Result<()> {
        self.wait(bytes.len() as u64);
        self.inner.write(path, bytes)
    }

    fn remote(&self) -> Option<&dyn Remote> {
        Some(self)
    }
}

impl Remote for DelayedStore {
    /// As the file is now: what it stands for is as near as that.
    fn version(&self, path: &str) -> Option<Version> {
        let Stat { size, modified, identity, .. } = self.inner.stat(path).ok()?;
        let (device, inode) = identity?;
        let tag =
            [&modified.to_le_bytes()[..], &size.to_le_bytes(), &device.to_le_bytes(), &inode.to_le_bytes()];
        Some(Version::new("delayed", path, &tag.concat()))
    }

    fn begin(&self, request: Request, done: Done) -> Pending {
        let bytes = match &request.range {
            Some(range) => range.end.saturating_sub(range.start),
            None => self.inner.size(&request.path).unwrap_or(0),
        };
        let mut state = lock(&self.timer.state);
        let process = std::process::id();
        if state.process != process {
            // In a forked child the thread is missing, and what it was asked for is nobody's.
            *state = State { process, ..State::default() };
            let (inner, timer) = (self.inner.clone(), self.timer.clone());
            let started = thread::Builder::new()
                .name("wellfed-delayed".to_owned())
                .spawn(move || timer.answer(&*inner));
            if let Err(e) = started {
                state.process = 0;
                drop(state);
                done(Err(Error::io("start", "a thread", e)));
                return Pending::new(|| {});
            }
        }
        let due = self.arrival(&mut state, bytes);
        state.number += 1;
        let number = state.number;
        state.due.push(Reverse((due, number)));
        state.waiting.insert(number, (request, done));
        drop(state);
        self.timer.changed.notify_one();
        let timer = self.timer.clone();
        Pending::new(move || timer.cancel(number))
    }

    fn connections(&self) -> usize {
        self.connections
    }
}

impl Timer {
    fn cancel(&self, number: u64) {
        let cancelled = lock(&self.state).waiting.remove(&number);
        // The callback may own anything: it is dropped outside of the lock.
        drop(cancelled);
    }

    /// Gives answers when they are due, until shutdown.
    fn answer(&self, inner: &dyn Store) {
        let mut state = lock(&self.state);
        while !state.shutdown {
            let now = Instant::now();
            match state.due.peek() {
                Some(Reverse((due, _))) if *due <= now => {}
                Some(Reverse((due, _))) => {
                    let timeout = due.saturating_duration_since(now);
                    let waited = self.changed.wait_timeout(state, timeout);
                    state = waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
                    continue;
                }
                None => {
                    state = self.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
                    continue;
                }
            }
            let number = state.due.pop().map_or(0, |Reverse((_, number))| number);
            let Some((request, done)) = state.waiting.remove(&number) else { continue };
            drop(state);
            done(read(inner, &request));
            state = lock(&self.state);
        }
    }
}

fn read(store: &dyn Store, request: &Request) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match &request.range {
        None => store.read(&request.path, request.max_bytes, &mut bytes)?,
        Some(range) => {
            let len = range.end.saturating_sub(range.start);
            let len = usize::try_from(len.min(request.max_bytes)).unwrap_or(usize::MAX);
            store.read_range(&request.path, range.start, len, &mut bytes)?;
        }
    }
    Ok(bytes)
}

impl Drop for DelayedStore {
    fn drop(&mut self) {
        let mut state = lock(&self.timer.state);
        state.shutdown = true;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        self.timer.changed.notify_all();
        drop(waiting);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{store::conformance, testing::TempFolder};

    #[test]
    fn it_passes_the_conformance_suite() {
        let folder = TempFolder::new();
        let store = DelayedStore::new(Arc::new(LocalStore::new()), Duration::from_micros(50), 1e9);
        conformance::check(&store, folder.path());
    }

    #[test]
    fn answers_share_the_bandwidth_and_each_takes_the_latency() {
        let store = DelayedStore::new(Arc::new(LocalStore::new()), Duration::from_millis(20), 1e6);
        let mut state = lock(&store.timer.state);
        let begun = Instant::now();
        let small = store.arrival(&mut state, 1000);
        assert!(small >= begun + Duration::from_millis(20));
        let large = store.arrival(&mut state, 1_000_000);
        assert!(large >= begun + Duration::from_millis(1001));
        assert!(store.arrival(&mut state, 0) >= large);
    }

    #[test]
    fn a_url_names_its_settings() {
        let found = DelayedStore::from_url("/data/{0..3}.tar?latency_ms=2.5&bandwidth=200MB").unwrap();
        assert_eq!(found.path, "/data/{0..3}.tar");
        let text = format!("{:?}", found.store);
        assert!(text.contains("2.5ms") && text.contains("200000000 B/s"), "{text}");
        assert_eq!(DelayedStore::from_url("/data").unwrap().path, "/data");
        let connections = |url| DelayedStore::from_url(url).unwrap().store.remote().unwrap().connections();
        assert_eq!((connections("/data"), connections("/data?max_pool_connections=3")), (usize::MAX, 3));
        let sealed = secrets::seal("delayed+file:///data?latency_ms=1&max_pool_connections=3");
        assert!(sealed.contains("sealed="), "{sealed}");
        assert_eq!(connections(sealed.strip_prefix("delayed+file://").unwrap()), 3);
        for bad in [
            "x?latency",
            "x?latency_ms=",
            "x?latency_ms=1MB",
            "x?bandwidth=0",
            "x?speed=3",
            "x?bandwidth=1XB",
            "x?max_pool_connections=0",
            "x?max_pool_connections=1MB",
        ] {
            assert!(DelayedStore::from_url(bad).is_err(), "{bad}");
        }
    }
}
