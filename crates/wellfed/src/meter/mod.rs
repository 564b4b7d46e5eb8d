//! Always-on counters: time and bytes per phase, waits, queue occupancy.
//!
//! Each thread writes its own `Lane` with relaxed atomics and nobody else's; readers add lanes up. A phase
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

pub use stats::{CacheStats, PhaseStats, RemoteCacheStats, RequestStats, RowIndexStats, Stats};
pub(crate) use trace::Trace;

use crate::{Result, lock};

/// What a worker's time goes to. Fixed, so that counters are plain arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Phase {
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

impl Phase {
    /// All phases, in the order of the data.
    pub const ALL: [Phase; 5] = [Phase::Read, Phase::Decode, Phase::Transform, Phase::Write, Phase::Idle];

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
    counters: [Counter; Phase::ALL.len()],
    trace: Option<Trace>,
}

impl Lane {
    /// Adds `nanos` and `bytes` for `count` samples.
    fn add(&self, phase: Phase, nanos: u64, count: u64, bytes: u64) {
        let counter = &self.counters[phase as usize];
        counter.nanos.fetch_add(nanos, Relaxed);
        counter.count.fetch_add(count, Relaxed);
        counter.bytes.fetch_add(bytes, Relaxed);
    }
}

/// Times consecutive phases on one thread: each [`Probe::lap`] ends one and begins the next.
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

    /// Ends `phase` now; it handled `bytes`.
    pub(crate) fn lap(&mut self, phase: Phase, bytes: usize) {
        self.lap_without(phase, bytes, Duration::ZERO);
    }

    /// Ends a part of `phase` now that was done for all samples of the chunk at once.
    pub(crate) fn lap_together(&mut self, phase: Phase) {
        let Some(last) = self.last else { return };
        let now = Instant::now();
        self.lane.add(phase, (now - last).as_nanos() as u64, 0, 0);
        if let Some(trace) = &self.lane.trace {
            trace.span(phase.name(), last, now);
        }
        self.last = Some(now);
    }

    /// Runs a piece of the phase that comes next, while another one is under way, and adds its time to `spent`.
    pub(crate) fn aside<T>(&self, spent: &mut Duration, f: impl FnOnce() -> T) -> T {
        if self.last.is_none() {
            return f();
        }
        let start = Instant::now();
        let result = f();
        *spent += start.elapsed();
        result
    }

    /// Ends `phase` now; it handled `bytes`. The time that was `spent` inside it counts for the phase that comes
    /// next: a trace shows them one after the other.
    pub(crate) fn lap_without(&mut self, phase: Phase, bytes: usize, spent: Duration) {
        let Some(last) = self.last else { return };
        let now = Instant::now();
        let now = now.checked_sub(spent).map_or(last, |now| now.max(last));
        let nanos = (now - last).as_nanos() as u64;
        self.lane.add(phase, nanos * self.weight, self.weight, bytes as u64 * self.weight);
        if let Some(trace) = &self.lane.trace {
            trace.span(phase.name(), last, now);
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

    /// Sums of nanoseconds by phase, over lanes whose name begins with `prefix`.
    pub(crate) fn nanos(&self, prefix: &str) -> [u64; Phase::ALL.len()] {
        let mut sums = [0; Phase::ALL.len()];
        for lane in lock(&self.lanes).iter().filter(|lane| lane.name.starts_with(prefix)) {
            for (sum, counter) in sums.iter_mut().zip(&lane.counters) {
                *sum += counter.nanos.load(Relaxed);
            }
        }
        sums
    }

    /// Time, count and bytes of every phase, over all lanes.
    pub(crate) fn phases(&self) -> Vec<PhaseStats> {
        let lanes = lock(&self.lanes);
        let sum = |phase: Phase, part: fn(&Counter) -> &AtomicU64| -> u64 {
            lanes.iter().map(|lane| part(&lane.counters[phase as usize]).load(Relaxed)).sum()
        };
        Phase::ALL
            .into_iter()
            .map(|phase| PhaseStats {
                name: phase.name(),
                seconds: sum(phase, |c| &c.nanos) as f64 * 1e-9,
                count: sum(phase, |c| &c.count),
                bytes: sum(phase, |c| &c.bytes),
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
    fn laps_add_up_by_phase_and_weight() {
        let meter = Meter::new(false);
        let lane = meter.lane("worker 0");
        let mut probe = Probe::start(&lane, 8);
        probe.lap(Phase::Read, 100);
        probe.lap(Phase::Write, 5);
        probe.lap_together(Phase::Read);
        Probe::off(&lane).lap(Phase::Read, 1_000_000);
        Probe::off(&lane).lap_together(Phase::Read);
        let phases = meter.phases();
        assert_eq!((phases[0].count, phases[0].bytes), (8, 800));
        assert_eq!((phases[3].count, phases[3].bytes), (8, 40));
        assert_eq!(meter.nanos("reader"), [0; 5]);
    }

    #[test]
    fn what_is_done_aside_counts_for_the_next_phase() {
        let meter = Meter::new(false);
        let lane = meter.lane("worker 0");
        let mut probe = Probe::start(&lane, 1);
        let mut spent = Duration::ZERO;
        probe.aside(&mut spent, || std::thread::sleep(Duration::from_millis(2)));
        probe.lap_without(Phase::Decode, 1, spent);
        probe.lap(Phase::Write, 1);
        let nanos = meter.nanos("worker");
        assert!(nanos[Phase::Write as usize] >= 2_000_000, "{nanos:?}");
        // More than there was, as clocks may have it, is all there was.
        probe.lap_without(Phase::Decode, 1, Duration::MAX);
        let mut off = Probe::off(&lane);
        off.aside(&mut spent, || ());
        off.lap_without(Phase::Decode, 1, spent);
        assert_eq!(meter.phases()[Phase::Decode as usize].count, 2);
    }
}
