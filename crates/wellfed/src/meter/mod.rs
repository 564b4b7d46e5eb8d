//! Always-on counters: time and bytes per stage, waits, queue occupancy.
//!
//! Each thread writes its own `Lane` with relaxed atomics and nobody else's; readers add lanes up. A stage
//! costs one clock reading (about 25 ns). Where samples take a few microseconds, a worker times one sample of
//! each chunk it claimed and counts it for the whole chunk, which keeps the cost under 1 %.

pub mod publish;
mod stats;
mod trace;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

pub use stats::{CacheStats, RowIndexStats, StageStats, Stats};
pub(crate) use trace::Trace;

use crate::{Result, lock};

/// What a worker's time goes to. Fixed, so that counters are plain arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Stage {
    /// Fetching bytes from the store, by a worker or a reader.
    Read,
    /// Decoding images.
    Decode,
    /// Transforms that need an image of their own.
    Transform,
    /// Resampling, flips, normalization and layout, straight into the batch.
    Write,
    /// Waiting for something to do.
    Idle,
}

impl Stage {
    /// All stages, in the order of the data.
    pub const ALL: [Stage; 5] = [Stage::Read, Stage::Decode, Stage::Transform, Stage::Write, Stage::Idle];

    /// Short lower-case name.
    pub fn name(self) -> &'static str {
        ["read", "decode", "transform", "write", "idle"][self as usize]
    }
}

#[derive(Debug, Default)]
struct Counter {
    nanos: AtomicU64,
    count: AtomicU64,
    bytes: AtomicU64,
}

/// Counters of one thread.
#[derive(Debug)]
pub(crate) struct Lane {
    name: String,
    counters: [Counter; Stage::ALL.len()],
    trace: Option<Trace>,
}

impl Lane {
    /// Adds `nanos` and `bytes` for `count` samples.
    fn add(&self, stage: Stage, nanos: u64, count: u64, bytes: u64) {
        let counter = &self.counters[stage as usize];
        counter.nanos.fetch_add(nanos, Relaxed);
        counter.count.fetch_add(count, Relaxed);
        counter.bytes.fetch_add(bytes, Relaxed);
    }
}

/// Times consecutive stages on one thread: each [`Probe::lap`] ends one and begins the next.
#[derive(Debug)]
pub(crate) struct Probe<'a> {
    lane: &'a Lane,
    last: Option<Instant>,
    weight: u64,
}

impl<'a> Probe<'a> {
    /// Starts the clock. Each lap counts for `weight` samples.
    pub(crate) fn start(lane: &'a Lane, weight: usize) -> Self {
        Self { lane, last: Some(Instant::now()), weight: weight as u64 }
    }

    /// A probe that does nothing, for samples another one of the chunk stands for.
    pub(crate) fn off(lane: &'a Lane) -> Self {
        Self { lane, last: None, weight: 0 }
    }

    /// Whether it does anything: what is handled need not be counted otherwise.
    pub(crate) fn is_on(&self) -> bool {
        self.last.is_some()
    }

    /// Ends `stage` now; it handled `bytes`.
    pub(crate) fn lap(&mut self, stage: Stage, bytes: usize) {
        self.lap_without(stage, bytes, Duration::ZERO);
    }

    /// Ends a part of `stage` now that was done for all samples of the chunk at once.
    pub(crate) fn lap_together(&mut self, stage: Stage) {
        let Some(last) = self.last else { return };
        let now = Instant::now();
        self.lane.add(stage, (now - last).as_nanos() as u64, 0, 0);
        if let Some(trace) = &self.lane.trace {
            trace.span(stage.name(), last, now);
        }
        self.last = Some(now);
    }

    /// Runs a piece of the stage that comes next, while another one is under way, and adds its time to `spent`.
    pub(crate) fn aside<T>(&self, spent: &mut Duration, f: impl FnOnce() -> T) -> T {
        if self.last.is_none() {
            return f();
        }
        let start = Instant::now();
        let result = f();
        *spent += start.elapsed();
        result
    }

    /// Ends `stage` now; it handled `bytes`. The time that was `spent` inside it counts for the stage that comes
    /// next: a trace shows them one after the other.
    pub(crate) fn lap_without(&mut self, stage: Stage, bytes: usize, spent: Duration) {
        let Some(last) = self.last else { return };
        let now = Instant::now();
        let now = now.checked_sub(spent).map_or(last, |now| now.max(last));
        let nanos = (now - last).as_nanos() as u64;
        self.lane.add(stage, nanos * self.weight, self.weight, bytes as u64 * self.weight);
        if let Some(trace) = &self.lane.trace {
            trace.span(stage.name(), last, now);
        }
        self.last = Some(now);
    }
}

/// All counters of one loader.
#[derive(Debug)]
pub(crate) struct Meter {
    start: Instant,
    tracing: bool,
    lanes: Mutex<Vec<Arc<Lane>>>,
    consumer: Arc<Lane>,
    pub(crate) batches: AtomicU64,
    pub(crate) samples: AtomicU64,
    pub(crate) bytes_out: AtomicU64,
    pub(crate) wait_nanos: AtomicU64,
    /// Sum over deliveries of the batches that were ready, for the mean occupancy.
    pub(crate) ready_sum: AtomicU64,
    pub(crate) errors: AtomicU64,
}

impl Meter {
    pub(crate) fn new(tracing: bool) -> Self {
        let start = Instant::now();
        let zero = AtomicU64::default;
        let consumer = Arc::new(new_lane("consumer", tracing, start));
        Self {
            start,
            tracing,
            lanes: Mutex::default(),
            consumer,
            batches: zero(),
            samples: zero(),
            bytes_out: zero(),
            wait_nanos: zero(),
            ready_sum: zero(),
            errors: zero(),
        }
    }

    /// A lane for a new thread.
    pub(crate) fn lane(&self, name: &str) -> Arc<Lane> {
        let lane = Arc::new(new_lane(name, self.tracing, self.start));
        lock(&self.lanes).push(lane.clone());
        lane
    }

    /// The consumer waited from `since` until now.
    pub(crate) fn waited(&self, since: Instant) {
        let now = Instant::now();
        self.wait_nanos.fetch_add((now - since).as_nanos() as u64, Relaxed);
        if let Some(trace) = &self.consumer.trace {
            trace.span("wait for batch", since, now);
        }
    }

    /// Nanoseconds since the loader was made.
    pub(crate) fn elapsed_nanos(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Sums of nanoseconds by stage, over lanes whose name begins with `prefix`.
    pub(crate) fn nanos(&self, prefix: &str) -> [u64; Stage::ALL.len()] {
        let mut sums = [0; Stage::ALL.len()];
        for lane in lock(&self.lanes).iter().filter(|lane| lane.name.starts_with(prefix)) {
            for (sum, counter) in sums.iter_mut().zip(&lane.counters) {
                *sum += counter.nanos.load(Relaxed);
            }
        }
        sums
    }

    /// Time, count and bytes of every stage, over all lanes.
    pub(crate) fn stages(&self) -> Vec<StageStats> {
        let lanes = lock(&self.lanes);
        let sum = |stage: Stage, part: fn(&Counter) -> &AtomicU64| -> u64 {
            lanes.iter().map(|lane| part(&lane.counters[stage as usize]).load(Relaxed)).sum()
        };
        Stage::ALL
            .into_iter()
            .map(|stage| StageStats {
                name: stage.name(),
                seconds: sum(stage, |c| &c.nanos) as f64 * 1e-9,
                count: sum(stage, |c| &c.count),
                bytes: sum(stage, |c| &c.bytes),
            })
            .collect()
    }

    /// Writes all spans as Chrome's trace-event JSON, which Perfetto reads too.
    pub(crate) fn write_trace(&self, path: &std::path::Path) -> Result<()> {
        let lanes = lock(&self.lanes);
        let all = std::iter::once(&self.consumer).chain(lanes.iter());
        trace::write(path, all.filter_map(|lane| Some((lane.name.as_str(), lane.trace.as_ref()?))))
    }
}

fn new_lane(name: &str, tracing: bool, start: Instant) -> Lane {
    Lane { name: name.to_owned(), counters: Default::default(), trace: tracing.then(|| Trace::new(start)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn laps_add_up_by_stage_and_weight() {
        let meter = Meter::new(false);
        let lane = meter.lane("worker 0");
        let mut probe = Probe::start(&lane, 8);
        probe.lap(Stage::Read, 100);
        probe.lap(Stage::Write, 5);
        probe.lap_together(Stage::Read);
        Probe::off(&lane).lap(Stage::Read, 1_000_000);
        Probe::off(&lane).lap_together(Stage::Read);
        let stages = meter.stages();
        assert_eq!((stages[0].count, stages[0].bytes), (8, 800));
        assert_eq!((stages[3].count, stages[3].bytes), (8, 40));
        assert_eq!(meter.nanos("reader"), [0; 5]);
    }

    #[test]
    fn what_is_done_aside_counts_for_the_next_stage() {
        let meter = Meter::new(false);
        let lane = meter.lane("worker 0");
        let mut probe = Probe::start(&lane, 1);
        let mut spent = Duration::ZERO;
        probe.aside(&mut spent, || std::thread::sleep(Duration::from_millis(2)));
        probe.lap_without(Stage::Decode, 1, spent);
        probe.lap(Stage::Write, 1);
        let nanos = meter.nanos("worker");
        assert!(nanos[Stage::Write as usize] >= 2_000_000, "{nanos:?}");
        // More than there was, as clocks may have it, is all there was.
        probe.lap_without(Stage::Decode, 1, Duration::MAX);
        let mut off = Probe::off(&lane);
        off.aside(&mut spent, || ());
        off.lap_without(Stage::Decode, 1, spent);
        assert_eq!(meter.stages()[Stage::Decode as usize].count, 2);
    }
}
