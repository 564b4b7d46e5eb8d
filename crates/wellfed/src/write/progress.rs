//! [`Progress`]: how far writing has come, and what it waits for. Read by other threads while it goes on.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use serde::Serialize;

/// How far writing has come; also what stops it.
#[derive(Debug, Default)]
pub struct Progress {
    total: AtomicU64,
    before: AtomicU64,
    samples: AtomicU64,
    bytes: AtomicU64,
    skipped: AtomicU64,
    shards: AtomicU64,
    reading: AtomicU64,
    making: AtomicU64,
    writing: AtomicU64,
    waiting: AtomicU64,
    stopped: AtomicBool,
}

/// [`Progress`] at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Snapshot {
    /// Samples of the whole pipeline.
    pub total: u64,
    /// Those that an earlier run dealt with.
    pub before: u64,
    /// Samples that were written or left out by this run.
    pub samples: u64,
    /// Bytes of shards that were written by this run.
    pub bytes: u64,
    /// Samples that were left out by this run.
    pub skipped: u64,
    /// Shards that this run has finished.
    pub shards: u64,
    /// What it waits for most: `reading`, `encoding` or `writing`.
    pub held_back_by: &'static str,
}

impl Progress {
    /// Nothing done yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends the writing soon, with an error. Finished shards stay.
    pub fn stop(&self) {
        self.stopped.store(true, Relaxed);
    }

    /// How far it is.
    pub fn now(&self) -> Snapshot {
        let [reading, making, writing, waiting] =
            [&self.reading, &self.making, &self.writing, &self.waiting].map(|time| time.load(Relaxed));
        Snapshot {
            total: self.total.load(Relaxed),
            before: self.before.load(Relaxed),
            samples: self.samples.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            skipped: self.skipped.load(Relaxed),
            shards: self.shards.load(Relaxed),
            held_back_by: match () {
                // Samples wait for the writer, and not the writer for them.
                () if writing > waiting => "writing",
                () if reading > making => "reading",
                () => "encoding",
            },
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Relaxed)
    }

    pub(super) fn begin(&self, total: u64, before: u64) {
        self.total.store(total, Relaxed);
        self.before.store(before, Relaxed);
    }

    pub(super) fn wrote(&self, bytes: u64) {
        self.samples.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }

    pub(super) fn skipped(&self) {
        self.samples.fetch_add(1, Relaxed);
        self.skipped.fetch_add(1, Relaxed);
    }

    pub(super) fn finished(&self, took: Duration) {
        self.shards.fetch_add(1, Relaxed);
        add(&self.writing, took);
    }

    pub(super) fn made(&self, reading: Duration, making: Duration) {
        add(&self.reading, reading);
        add(&self.making, making);
    }

    pub(super) fn waited(&self, waiting: Duration, writing: Duration) {
        add(&self.waiting, waiting);
        add(&self.writing, writing);
    }
}

fn add(to: &AtomicU64, time: Duration) {
    to.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Relaxed);
}
