//! What the engine of a wellfed loader counted while the loop was in its steady state.

use super::StageTime;
use crate::{
    record::{self, Record},
    run_dir::ProcessRecords,
    stage,
};

/// The engine's work for one batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Engine {
    /// Worker threads, at the end.
    pub workers: u32,
    /// Seconds a batch of each stage, all threads together; of waiting for work, nothing.
    pub stages: Vec<(&'static str, f64)>,
    /// Bytes it held at the end, and may hold.
    pub memory: (f64, f64),
    /// Its requests to stores that answer later, if there were any.
    pub requests: Option<Requests>,
}

/// Requests of the window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Requests {
    /// Requests a batch.
    pub per_batch: f64,
    /// Bytes a batch.
    pub bytes_per_batch: f64,
    /// Requests a second.
    pub rate: f64,
    /// Bytes a second.
    pub bytes_rate: f64,
    /// How many were under way, mean.
    pub under_way: f64,
    /// How many the engine had found useful, mean.
    pub limit: f64,
    /// How many there may be; 0 if that is not known.
    pub connections: f64,
    /// Bytes that may be under way or wait for workers.
    pub ahead: f64,
    /// Made again because they failed.
    pub retried: f64,
    /// How often a server asked to slow down.
    pub throttled: f64,
    /// Seconds that one takes: median, and what 95 % do not exceed.
    pub times: (f64, f64),
}

impl Requests {
    /// From the counters of one engine, in the order of time: those at the begin of the window, those in it.
    fn of(seen: &[&record::Engine], batches: f64) -> Option<Self> {
        let (first, last) = (seen.first()?, seen.last()?);
        // Counters begin at 0.
        let (begin, end) = (first.requests.clone().unwrap_or_default(), last.requests.as_ref()?);
        let time = super::seconds(last.t.checked_sub(first.t).filter(|&time| time > 0)?);
        let count = end.requests.checked_sub(begin.requests).filter(|&count| count > 0)? as f64;
        let bytes = end.bytes.saturating_sub(begin.bytes) as f64;
        let all = || seen.iter().filter_map(|engine| engine.requests.as_ref());
        let busy = end.seconds - begin.seconds;
        Some(Self {
            per_batch: count / batches,
            bytes_per_batch: bytes / batches,
            rate: count / time,
            bytes_rate: bytes / time,
            // Little's law; an engine that does not tell it was looked at now and then.
            under_way: if busy > 0.0 {
                busy / time
            } else {
                super::mean(all().map(|each| each.in_flight as f64))
            },
            limit: super::mean(all().map(|each| each.limit as f64)),
            connections: end.connections as f64,
            ahead: end.ahead as f64,
            retried: end.retried.saturating_sub(begin.retried) as f64,
            throttled: end.throttled.saturating_sub(begin.throttled) as f64,
            times: (end.p50, end.p95),
        })
    }

    /// Bytes of one, mean.
    pub fn size(&self) -> f64 {
        self.bytes_rate / self.rate.max(1e-9)
    }
}

/// Stages of [`stage::LOADING`], and those of the engine that they are. What resizes and normalizes writes into the batch at once.
const NAMES: [(&str, &[&str]); 3] =
    [("read", &["read"]), ("decode", &["decode"]), ("augment", &["transform", "write"])];

impl Engine {
    /// From the counters at the begin and at the end of the window.
    pub(super) fn of(main: &ProcessRecords, loader: u32, window: (u64, u64)) -> Option<Self> {
        let seen: Vec<&record::Engine> = main
            .records
            .iter()
            .filter_map(|record| match record {
                Record::Engine(engine) if engine.loader == loader && engine.t <= window.1 => Some(engine),
                _ => None,
            })
            .collect();
        let last = *seen.last()?;
        // Of the same engine: a new one counts from 0. The last before the window, or the first inside of it.
        let begin = seen.iter().rposition(|engine| engine.batches > last.batches).map_or(0, |i| i + 1);
        let same = &seen[begin..];
        let at = same.iter().rposition(|engine| engine.t <= window.0).unwrap_or(0);
        let first = same.get(at)?;
        let batches = last.batches.checked_sub(first.batches).filter(|&batches| batches > 0)? as f64;
        let seconds = |engine: &record::Engine, names: &[&str]| {
            let stages = engine.stages.iter().filter(|stage| names.contains(&stage.name.as_str()));
            stages.map(|stage| stage.seconds).sum::<f64>()
        };
        let stages = NAMES
            .iter()
            .map(|&(stage, names)| (stage, (seconds(last, names) - seconds(first, names)) / batches))
            .filter(|&(_, time)| time > 0.0)
            .collect();
        Some(Self {
            workers: last.num_workers,
            stages,
            memory: (last.memory as f64, last.memory_budget as f64),
            requests: Requests::of(&same[at..], batches),
        })
    }

    /// Seconds a batch takes, all threads together.
    pub fn work(&self) -> f64 {
        self.stages.iter().map(|(_, time)| time).sum()
    }

    /// Its stages, if a batch takes `cpu` CPU seconds of it. What is not processor time is waiting for storage, as only reading waits.
    pub(super) fn stage_times(&self, cpu: f64) -> Vec<StageTime> {
        let idle = (self.work() - cpu).max(0.0);
        let find = |name: &str| self.stages.iter().find(|(stage, _)| *stage == name).map(|&(_, time)| time);
        stage::LOADING
            .iter()
            .filter_map(|&name| {
                let time = find(name)?;
                let blocked = if name == "read" { idle.min(time) } else { 0.0 };
                Some(StageTime { name, cpu: time - blocked, blocked, ..StageTime::default() })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(t: u64, batches: u64, read: f64, decode: f64) -> Record {
        let stage = |name: &str, seconds| record::EngineStage { name: name.to_owned(), seconds };
        Record::Engine(record::Engine {
            t,
            batches,
            num_workers: 2,
            stages: vec![stage("read", read), stage("decode", decode), stage("idle", 9.0)],
            ..record::Engine::default()
        })
    }

    /// Counters of a store after so many seconds, in which ten batches came a second.
    fn asked(second: u64, requests: Option<record::Requests>) -> Record {
        Record::Engine(record::Engine {
            t: second * 1_000_000_000,
            batches: 10 * second,
            num_workers: 2,
            requests,
            ..record::Engine::default()
        })
    }

    #[test]
    fn requests_are_those_of_the_window() {
        let at = |second: u64| {
            let counted = record::Requests {
                requests: 100 * second,
                bytes: 1_000_000 * second,
                in_flight: 7,
                limit: 4,
                connections: 4,
                // Two were under way in the first three seconds, then four.
                seconds: 2.0 * second as f64 + 2.0 * second.saturating_sub(3) as f64,
                throttled: second,
                p50: 0.04,
                ..record::Requests::default()
            };
            asked(second, Some(counted))
        };
        let of = |records: Vec<Record>, window| {
            let main = ProcessRecords { records, ..ProcessRecords::default() };
            Engine::of(&main, 0, window).unwrap().requests
        };
        let window = (3_500_000_000, 7_500_000_000);
        let seen = of((1..10).map(at).collect(), window).unwrap();
        assert_eq!((seen.per_batch, seen.bytes_per_batch, seen.rate), (10.0, 100_000.0, 100.0));
        assert_eq!((seen.bytes_rate, seen.under_way, seen.throttled), (1e6, 4.0, 4.0));
        assert_eq!((seen.limit, seen.connections, seen.times.0), (4.0, 4.0, 0.04));
        assert!((seen.size() - 10_000.0).abs() < 1e-6);
        // An engine that does not tell how long all of them took.
        let older = (1..10).map(at).map(|mut record| {
            if let Record::Engine(engine) = &mut record {
                engine.requests.as_mut().unwrap().seconds = 0.0;
            }
            record
        });
        assert_eq!(of(older.collect(), window).unwrap().under_way, 7.0);
        // Samples that lie near, and a store that was asked for nothing.
        assert_eq!(of((1..10).map(|second| asked(second, None)).collect(), window), None);
        let idle = Some(record::Requests::default());
        assert_eq!(of((1..10).map(|second| asked(second, idle.clone())).collect(), window), None);
    }

    #[test]
    fn work_is_that_of_the_window_and_of_one_engine() {
        let main = ProcessRecords {
            records: vec![
                counted(1, 500, 7.0, 7.0),
                counted(2, 10, 1.0, 2.0),
                counted(3, 20, 2.0, 4.0),
                counted(5, 40, 4.0, 10.0),
                counted(9, 80, 90.0, 90.0),
            ],
            ..ProcessRecords::default()
        };
        let engine = Engine::of(&main, 0, (3, 6)).unwrap();
        assert_eq!((engine.workers, engine.stages.len()), (2, 2));
        assert!((engine.work() - 0.4).abs() < 1e-9);
        let stages = engine.stage_times(0.35);
        assert_eq!((stages[0].name, stages[1].name), ("read", "decode"));
        assert!((stages[0].blocked - 0.05).abs() < 1e-9 && (stages[1].cpu - 0.3).abs() < 1e-9);
        assert!(Engine::of(&main, 1, (3, 6)).is_none());
    }
}
