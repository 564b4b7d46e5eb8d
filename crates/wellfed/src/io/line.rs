//! [`Line`]: the way to one store: what waits for its turn, how much may be under way, and how long it takes.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{times::Times, window::Window};
use crate::store::{Remote, Retry, Store};

/// Requests under way at one store, whatever it bears: each is a connection, and so an open file.
pub(crate) const MOST: usize = 512;

/// Of so many requests, one may be asked for a second time because it is slow.
const SECONDS: f64 = 100.0;

/// Second requests that may be saved up.
const SAVED: f64 = 4.0;

/// After a server asked to slow down, nothing is asked twice for so long.
const CALM: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Line {
    pub(super) store: Arc<dyn Store>,
    pub(super) retry: Retry,
    pub(super) window: Window,
    pub(super) times: Times,
    /// Calls that have not begun, in order.
    pub(super) queue: VecDeque<u64>,
    /// Calls that have, less their second requests.
    pub(super) under_way: usize,
    /// Second requests that may be made.
    saved: f64,
    /// How often the server had asked to slow down: at first, and when it was last looked at.
    throttled: (u64, u64),
    /// When it last did.
    warned: Option<Instant>,
}

/// How often a server of this store has asked to slow down.
fn throttled(store: &dyn Store) -> u64 {
    store.remote().map_or(0, Remote::throttled)
}

impl Line {
    /// A line with at most `most` requests under way.
    pub(super) fn new(store: Arc<dyn Store>, retry: Retry, most: usize) -> Self {
        let most = store.remote().map_or(1, |remote| remote.connections()).min(most);
        let count = throttled(&*store);
        Self {
            store,
            retry,
            window: Window::new(most),
            times: Times::default(),
            queue: VecDeque::new(),
            under_way: 0,
            saved: 0.0,
            throttled: (count, count),
            warned: None,
        }
    }

    /// Whether as many requests are under way as may be.
    pub(super) fn is_full(&self) -> bool {
        self.under_way >= self.window.limit()
    }

    /// How often the server has asked this line to slow down.
    pub(super) fn slowed(&self) -> u64 {
        self.throttled.1 - self.throttled.0
    }

    /// Looks whether the server asked to slow down since the last look.
    pub(super) fn look(&mut self, now: Instant) {
        let count = throttled(&*self.store);
        if count > self.throttled.1 {
            self.throttled.1 = count;
            self.warned = Some(now);
            self.saved = 0.0;
            self.window.throttled(now);
        }
    }

    /// A request begins: when it will be slow, if it may be asked for a second time then.
    pub(super) fn begins(&mut self, bytes: u64, now: Instant) -> Option<Instant> {
        self.under_way += 1;
        if self.warned.is_some_and(|at| now.saturating_duration_since(at) < CALM) {
            return None;
        }
        self.saved = (self.saved + 1.0 / SECONDS).min(SAVED);
        self.times.slow(bytes).map(|slow| now + slow)
    }

    /// Whether the server has asked to slow down since then.
    pub(super) fn slowed_since(&self, then: Option<Instant>) -> bool {
        self.warned.is_some_and(|at| then.is_none_or(|then| at >= then))
    }

    /// Takes leave to ask for something slow once more.
    pub(super) fn ask_twice(&mut self) -> bool {
        let may = self.saved >= 1.0;
        self.saved -= f64::from(u8::from(may));
        may
    }
}
