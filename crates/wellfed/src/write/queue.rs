//! [`Queue`]: threads take positions in order and make their samples at the same time; one thread takes what was made, in
//! order again.
//!
//! Invariant: made samples that wait take no more memory than is allowed, apart from those that were being made when that
//! was reached. Whoever makes the next sample to be taken never waits, so that nothing can stand still.

use std::{
    collections::HashMap,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::make::Made;
use crate::{Result, lock};

/// Longest time between two looks at whether all is to end.
const PATIENCE: Duration = Duration::from_millis(50);

/// Positions and what is made of them.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// There is room for more.
    room: Condvar,
    /// Something was made.
    ready: Condvar,
    end: u64,
    /// Positions that are taken at once.
    chunk: u64,
    /// Positions ahead of the one that is taken next.
    window: u64,
    /// Bytes of made samples.
    budget: u64,
}

#[derive(Debug)]
struct State {
    /// The first position that nobody makes yet.
    next: u64,
    /// The first position that was not taken yet.
    head: u64,
    /// By their first position.
    made: HashMap<u64, Vec<Result<Made>>>,
    bytes: u64,
    ended: bool,
}

impl Queue {
    pub(super) fn new(start: u64, end: u64, chunk: u64, window: u64, budget: u64) -> Self {
        let state = State { next: start, head: start, made: HashMap::new(), bytes: 0, ended: false };
        Self {
            state: Mutex::new(state),
            room: Condvar::new(),
            ready: Condvar::new(),
            end,
            chunk,
            window,
            budget,
        }
    }

    /// The next positions to make; `None` if there are no more, or all is to end.
    pub(super) fn claim(&self) -> Option<std::ops::Range<u64>> {
        let mut state = lock(&self.state);
        loop {
            if state.ended || state.next >= self.end {
                return None;
            }
            let ahead = state.next - state.head;
            if state.next == state.head || (ahead < self.window && state.bytes < self.budget) {
                let start = state.next;
                state.next = start.saturating_add(self.chunk).min(self.end);
                return Some(start..state.next);
            }
            state = wait(&self.room, state);
        }
    }

    /// Hands over what was made from position `start` on.
    pub(super) fn hand_over(&self, start: u64, made: Vec<Result<Made>>) {
        let mut state = lock(&self.state);
        state.bytes += bytes(&made);
        state.made.insert(start, made);
        if state.head == start {
            self.ready.notify_all();
        }
    }

    /// What was made next, with its first position; `None` at the end. `stop` is asked from time to time.
    pub(super) fn take(&self, stop: &dyn Fn() -> bool) -> Option<(u64, Vec<Result<Made>>)> {
        let mut state = lock(&self.state);
        loop {
            if state.ended || state.head >= self.end || stop() {
                return None;
            }
            let start = state.head;
            if let Some(made) = state.made.remove(&start) {
                state.bytes -= bytes(&made);
                state.head += made.len() as u64;
                self.room.notify_all();
                return Some((start, made));
            }
            state = wait(&self.ready, state);
        }
    }

    /// Nobody makes or takes anything any more.
    pub(super) fn end(&self) {
        lock(&self.state).ended = true;
        self.room.notify_all();
        self.ready.notify_all();
    }
}

fn wait<'a>(condition: &Condvar, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
    condition.wait_timeout(state, PATIENCE).unwrap_or_else(PoisonError::into_inner).0
}

fn bytes(made: &[Result<Made>]) -> u64 {
    made.iter().flatten().map(Made::capacity).sum()
}
