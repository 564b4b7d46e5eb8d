//! From two looks at a loader to what it did in between.

use serde::Serialize;
use wellfed::meter::{Stats, publish::Snapshot};

use super::attach::Attached;

/// All loaders of a process at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Look {
    pub(super) loaders: Vec<Attached>,
}

/// What is shown. Names and meaning of the fields are kept from release to release.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    pub(super) process: u32,
    pub(super) loaders: Vec<Rates>,
}

/// One loader, over an interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Rates {
    pub(super) source: String,
    /// Seconds that the rates are over; 0 where nothing happened.
    pub(super) seconds: f64,
    pub(super) samples_per_second: f64,
    pub(super) batches_per_second: f64,
    /// Of the time, that the consumer waited for a batch.
    pub(super) wait_share: f64,
    /// Batches that were complete when the consumer asked for the last one.
    pub(super) ready: usize,
    #[serde(rename = "stages")]
    pub(super) phases: Vec<PhaseRates>,
    /// Seconds since 1970 at which the loader last wrote.
    pub(super) time: f64,
    /// All counters since the loader was made, as `loader.stats()` gives them.
    pub(super) stats: Stats,
}

/// One phase, over an interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct PhaseRates {
    pub(super) name: &'static str,
    pub(super) us_per_sample: f64,
    /// Of the time of all workers and readers. What is left is idle.
    pub(super) share: f64,
}

impl Look {
    /// What happened since an earlier look. Of a loader that is new, since it was made.
    pub(super) fn since(&self, before: &Look, process: u32) -> Report {
        let one = |now: &Attached| {
            let earlier = before.loaders.iter().find(|earlier| earlier.file == now.file);
            match earlier {
                Some(earlier) if earlier.sequence == now.sequence => still(&now.snapshot),
                Some(earlier) => rates(&now.snapshot, Some(&earlier.snapshot.stats)),
                None => rates(&now.snapshot, None),
            }
        };
        Report { process, loaders: self.loaders.iter().map(one).collect() }
    }

    /// Averages since the loaders were made.
    pub(super) fn since_the_beginning(&self, process: u32) -> Report {
        self.since(&Look::default(), process)
    }
}

/// A loader that nobody asked for anything: it wrote nothing new.
fn still(now: &Snapshot) -> Rates {
    rates(now, Some(&now.stats))
}

fn rates(now: &Snapshot, before: Option<&Stats>) -> Rates {
    let stats = &now.stats;
    let from = |count: fn(&Stats) -> f64| (count(stats) - before.map_or(0.0, count)).max(0.0);
    let seconds = from(|stats| stats.elapsed);
    let per_second = |count: f64| if seconds > 0.0 { count / seconds } else { 0.0 };
    let threads = (stats.num_workers + stats.read_ahead) as f64;
    let mut busy = 0.0;
    let mut phases: Vec<PhaseRates> = stats
        .phases
        .iter()
        .map(|phase| {
            let earlier = before.and_then(|before| before.phases.iter().find(|s| s.name == phase.name));
            let spent = (phase.seconds - earlier.map_or(0.0, |s| s.seconds)).max(0.0);
            let count = phase.count.saturating_sub(earlier.map_or(0, |s| s.count));
            let share = (per_second(spent) / threads.max(1.0)).min(1.0);
            if phase.name != "idle" {
                busy += share;
            }
            let us_per_sample = if count > 0 { spent * 1e6 / count as f64 } else { 0.0 };
            PhaseRates { name: phase.name, us_per_sample, share }
        })
        .collect();
    // Idling is counted when it ends, which may be long after the interval.
    let samples = from(|stats| stats.samples as f64);
    for idle in phases.iter_mut().filter(|phase| phase.name == "idle") {
        idle.share = (1.0 - busy).max(0.0);
        let spent = idle.share * seconds * threads;
        idle.us_per_sample = if samples > 0.0 { spent * 1e6 / samples } else { 0.0 };
    }
    Rates {
        source: now.source.clone(),
        seconds,
        samples_per_second: per_second(samples),
        batches_per_second: per_second(from(|stats| stats.batches as f64)),
        wait_share: per_second(from(|stats| stats.consumer_wait)).min(1.0),
        ready: now.ready,
        phases,
        time: now.time,
        stats: stats.clone(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use wellfed::meter::PhaseStats;

    use super::*;

    pub(in crate::top) fn snapshot(elapsed: f64, samples: u64, decode: f64) -> Snapshot {
        let phase = |name, seconds, count| PhaseStats { name, seconds, count, bytes: 0 };
        let stats = Stats {
            elapsed,
            batches: samples / 10,
            samples,
            bytes: 0,
            consumer_wait: elapsed / 4.0,
            mean_ready: 0.0,
            num_workers: 2,
            prefetch: 4,
            read_ahead: 0,
            memory: 3_000_000,
            memory_budget: 4_000_000,
            errors: 1,
            row_index: None,
            cache: None,
            page_locked: None,
            requests: None,
            remote_cache: None,
            phases: vec![phase("decode", decode, samples), phase("idle", 0.0, 0)],
        };
        Snapshot { process: 1, time: 0.0, source: "files\u{1b}[2J".to_owned(), ready: 3, stats }
    }

    pub(in crate::top) fn attached(sequence: u64, snapshot: Snapshot) -> Look {
        Look { loaders: vec![Attached { file: 5, sequence, snapshot }] }
    }

    #[test]
    fn rates_are_those_of_the_interval() {
        let (first, second) = (attached(1, snapshot(10.0, 100, 1.0)), attached(3, snapshot(12.0, 300, 4.0)));
        let seen = &second.since(&first, 1).loaders[0];
        assert_eq!((seen.seconds, seen.samples_per_second, seen.batches_per_second), (2.0, 100.0, 10.0));
        assert_eq!((seen.wait_share, seen.ready), (0.25, 3));
        let phases: Vec<_> = seen.phases.iter().map(|s| (s.name, s.us_per_sample, s.share)).collect();
        assert_eq!(phases, [("decode", 15_000.0, 0.75), ("idle", 5_000.0, 0.25)]);
        let all = &second.since_the_beginning(1).loaders[0];
        assert_eq!((all.seconds, all.samples_per_second), (12.0, 25.0));
    }

    #[test]
    fn a_loader_that_stands_still_has_no_rates() {
        let look = attached(1, snapshot(10.0, 100, 1.0));
        let seen = &look.since(&look, 1).loaders[0];
        assert_eq!((seen.seconds, seen.samples_per_second, seen.wait_share), (0.0, 0.0, 0.0));
        assert_eq!(seen.phases[1].share, 1.0);
        assert_eq!(seen.stats.samples, 100);
    }
}
