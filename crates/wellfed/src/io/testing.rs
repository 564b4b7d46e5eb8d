//! A store whose answers a test gives by hand.

use std::{
    collections::BTreeMap,
    sync::{Arc, Condvar, Mutex},
};

use crate::{
    Error, ErrorKind, Result, lock,
    store::{Done, Entry, Pending, Remote, Request, Stat, Store, Version},
};

/// Takes requests and keeps them until the test answers. Everything else is refused, so that whoever reads past the
/// I/O layer fails.
#[derive(Default)]
pub(crate) struct ManualStore {
    state: Arc<(Mutex<State>, Condvar)>,
}

#[derive(Default)]
struct State {
    begun: u64,
    cancelled: u64,
    throttled: u64,
    open: BTreeMap<u64, (Request, Done)>,
}

impl std::fmt::Debug for ManualStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ManualStore")
    }
}

impl ManualStore {
    /// Requests that were ever begun.
    pub(crate) fn begun(&self) -> u64 {
        lock(&self.state.0).begun
    }

    /// Requests that were cancelled before their answer.
    pub(crate) fn cancelled(&self) -> u64 {
        lock(&self.state.0).cancelled
    }

    /// Lets the server ask to slow down.
    pub(crate) fn slow_down(&self) {
        lock(&self.state.0).throttled += 1;
    }

    /// Numbers of the requests under way, in the order in which they began.
    pub(crate) fn open(&self) -> Vec<u64> {
        lock(&self.state.0).open.keys().copied().collect()
    }

    /// Waits until `count` requests are under way at once.
    pub(crate) fn wait_for(&self, count: usize) {
        let mut state = lock(&self.state.0);
        while state.open.len() < count {
            state = self.state.1.wait(state).unwrap();
        }
    }

    /// Waits until `count` requests were cancelled.
    pub(crate) fn wait_for_cancelled(&self, count: u64) {
        let mut state = lock(&self.state.0);
        while state.cancelled < count {
            state = self.state.1.wait(state).unwrap();
        }
    }

    /// Answers one request, if it is under way.
    pub(crate) fn answer(&self, number: u64, result: impl Fn(&Request) -> Result<Vec<u8>>) {
        let open = lock(&self.state.0).open.remove(&number);
        if let Some((request, done)) = open {
            done(result(&request));
        }
    }
}

fn refused<T>() -> Result<T> {
    Err(Error::new(ErrorKind::Internal, "this store is only for the I/O layer"))
}

impl Store for ManualStore {
    fn stat(&self, _: &str) -> Result<Stat> {
        refused()
    }

    fn read(&self, _: &str, _: u64, _: &mut Vec<u8>) -> Result<()> {
        refused()
    }

    fn read_range(&self, _: &str, _: u64, _: usize, _: &mut Vec<u8>) -> Result<()> {
        refused()
    }

    fn list(&self, _: &str, _: &mut dyn FnMut(Entry<'_>) -> Result<()>) -> Result<()> {
        refused()
    }

    fn remote(&self) -> Option<&dyn Remote> {
        Some(self)
    }
}

impl Remote for ManualStore {
    /// What it holds never changes.
    fn version(&self, path: &str) -> Option<Version> {
        Some(Version::new("manual", path, b"1"))
    }

    fn throttled(&self) -> u64 {
        lock(&self.state.0).throttled
    }

    fn begin(&self, request: Request, done: Done) -> Pending {
        let mut state = lock(&self.state.0);
        state.begun += 1;
        let number = state.begun;
        state.open.insert(number, (request, done));
        drop(state);
        self.state.1.notify_all();
        let state = self.state.clone();
        Pending::new(move || {
            let mut guard = lock(&state.0);
            if guard.open.remove(&number).is_some() {
                guard.cancelled += 1;
                state.1.notify_all();
            }
        })
    }
}
