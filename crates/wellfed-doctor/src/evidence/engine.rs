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
        let first = same.iter().rfind(|engine| engine.t <= window.0).or(same.first())?;
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
        Some(Self { workers: last.num_workers, stages })
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
