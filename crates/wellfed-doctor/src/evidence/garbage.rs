//! Collections of garbage: the time that Python looks for objects which refer to each other and to which nobody else does.

use super::{Loading, Loop, seconds};
use crate::{
    record::{self, Record},
    run_dir::{ProcessRecords, RunDir},
};

/// CPU seconds they take.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Garbage {
    /// Of a batch that a worker makes.
    pub making: f64,
    /// Of a step, in the training process: with the batch, where that makes it.
    pub training: f64,
}

impl Garbage {
    pub(super) fn of(run: &RunDir, main: &ProcessRecords, loading: &Loading, steps: &Loop) -> Self {
        let (begin, end) = steps.window;
        let length = seconds(end.saturating_sub(begin));
        if length <= 0.0 || steps.whole() <= 0.0 {
            return Self::default();
        }
        let a_step = steps.whole() / length;
        let is_within = |garbage: &&record::Garbage| garbage.t >= begin && garbage.t <= end;
        let of = |process: &ProcessRecords| {
            let all = process.records.iter().filter_map(|record| match record {
                Record::Garbage(garbage) => Some(garbage),
                _ => None,
            });
            all.filter(is_within).map(|garbage| seconds(garbage.cpu)).sum::<f64>() * a_step
        };
        let workers = run.processes.iter().filter(|process| process.pid != main.pid);
        Self {
            making: workers.filter(|process| loading.pids.contains(&process.pid)).map(of).sum(),
            training: of(main),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::Step;

    #[test]
    fn collections_of_the_window_are_told_by_the_step() {
        let collected = |t: u64, cpu: u64| Record::Garbage(record::Garbage { t, n: 1, cpu });
        let process =
            |pid: u32, records: Vec<Record>| ProcessRecords { pid, records, ..ProcessRecords::default() };
        let second = 1_000_000_000;
        let main = process(1, vec![collected(second, second), collected(5 * second, second / 2)]);
        let worker = process(2, vec![collected(6 * second, second), collected(30 * second, second)]);
        let run = RunDir { processes: vec![main, worker], ..RunDir::default() };
        let step = Step { wait: 0.5, compute: 0.5, ..Step::default() };
        let steps = Loop { steps: vec![step; 10], window: (2 * second, 12 * second), ..Loop::default() };
        let loading = Loading { pids: vec![2], in_workers: true, ..Loading::default() };
        let garbage = Garbage::of(&run, &run.processes[0], &loading, &steps);
        assert!((garbage.training - 0.05).abs() < 1e-9 && (garbage.making - 0.1).abs() < 1e-9, "{garbage:?}");
    }
}
