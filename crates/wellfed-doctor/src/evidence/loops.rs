//! Loops over loaders: which one matters, and its steady state.

use std::collections::BTreeMap;

use super::{LoaderUse, mean, seconds};
use crate::{
    record::{self, Record},
    run_dir::ProcessRecords,
};

/// Steps that are enough to judge.
pub const FEWEST: usize = 3;

/// A first epoch that takes no more than this times as long a step as later ones is like them.
const LIKE_THE_REST: f64 = 1.05;

/// Seconds that noting a step may take at most: what recorded steps take longer than counted ones, up to that, is the probe's.
const NOTING: f64 = 10e-6;

/// A turn of the loop.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Step {
    /// Begin of the wait, nanoseconds.
    pub t0: u64,
    /// Seconds waited for the batch.
    pub wait: f64,
    /// Seconds until the next batch was asked for.
    pub compute: f64,
    /// CPU seconds of the thread in the wait.
    pub wait_cpu: f64,
    /// CPU seconds of the thread in the computation.
    pub thread_cpu: f64,
    /// CPU seconds of the process in the computation: all threads.
    pub process_cpu: f64,
    /// Part of the wait in which the batch was rebuilt from what a worker sent.
    pub unpickle: f64,
}

/// The steady state of a loop.
#[derive(Clone, Debug, Default)]
pub struct Loop {
    /// Steps, without the first one of each epoch.
    pub steps: Vec<Step>,
    /// From begin to end of what was looked at, nanoseconds.
    pub window: (u64, u64),
    /// Seconds from the begin of an epoch to its first batch, for each epoch in the window.
    pub starts: Vec<f64>,
    /// The same of the very first epoch.
    pub first_start: f64,
    /// Seconds computed in the first step of each epoch, when the device has nothing left to do.
    pub first_steps: Vec<f64>,
    /// Seconds the end of an epoch took (workers are shut down), for each.
    pub ends: Vec<f64>,
    /// Steps an epoch, mean.
    pub steps_per_epoch: f64,
    /// Seconds a step in the first epoch over seconds a step later, if both are known.
    pub first_epoch: Option<f64>,
}

impl Loop {
    /// Seconds a step, mean, without beginnings of epochs.
    pub fn time(&self) -> f64 {
        self.wait() + self.compute()
    }

    /// Seconds waited a step, mean.
    pub fn wait(&self) -> f64 {
        mean(self.steps.iter().map(|step| step.wait))
    }

    /// Seconds computed a step, mean.
    pub fn compute(&self) -> f64 {
        mean(self.steps.iter().map(|step| step.compute))
    }

    /// Seconds a step with its share of beginnings and ends of epochs.
    pub fn whole(&self) -> f64 {
        self.time() + self.restart()
    }

    /// Seconds that beginnings and ends of epochs add to a step, beyond the wait a step has anyway.
    pub fn restart(&self) -> f64 {
        if self.steps_per_epoch < 1.0 || self.starts.is_empty() {
            return 0.0;
        }
        ((mean(self.starts.iter().copied()) - self.wait()).max(0.0) + mean(self.ends.iter().copied()))
            / self.steps_per_epoch
    }
}

#[derive(Clone, Debug, Default)]
struct Epoch {
    t0: u64,
    /// When the iterator was there: its workers are started, say.
    t1: u64,
    steps: record::Steps,
    /// Number of each recorded step: of short ones, some are only counted.
    numbers: Vec<u64>,
    /// First and last number of steps that are not like others, since the device's kernels were looked at in them.
    left_out: Vec<(u64, u64)>,
    /// Begin and end of the last call, and the number of steps before it, if that was told.
    end: Option<(u64, u64, Option<u64>)>,
}

impl Epoch {
    fn first_batch(&self) -> Option<u64> {
        self.steps.t1.first().copied()
    }

    /// Nanoseconds until its first batch; if that did not come any more, until its iterator was there.
    fn start(&self) -> u64 {
        self.first_batch().unwrap_or(self.t1).saturating_sub(self.t0)
    }

    /// Steps, also those that were only counted.
    fn count(&self) -> u64 {
        let recorded = self.numbers.last().map_or(0, |last| last + 1);
        self.end.and_then(|(_, _, steps)| steps).map_or(recorded, |steps| steps.max(recorded))
    }

    /// Whether a step from the first of these numbers to the last is one that does not count.
    fn is_left_out(&self, first: u64, last: u64) -> bool {
        self.left_out.iter().any(|&(from, to)| first <= to && last >= from)
    }

    /// When the step after the `i`-th recorded one began; nothing if that was not recorded.
    fn next(&self, i: usize) -> Option<u64> {
        let number = self.numbers[i] + 1;
        match self.numbers.get(i + 1) {
            Some(&next) => (next == number).then(|| self.steps.t0[i + 1]),
            None => self
                .end
                .filter(|&(_, _, steps)| steps.is_none_or(|steps| steps == number))
                .map(|(t0, _, _)| t0),
        }
    }

    /// Seconds, and how many steps there were, where steps were only counted: between two recorded ones all is known but their
    /// parts. Those take what the script takes, without what recording costs.
    fn spans(&self) -> impl Iterator<Item = (f64, f64)> {
        (1..self.numbers.len()).filter_map(|i| {
            if self.is_left_out(self.numbers[i - 1], self.numbers[i].saturating_sub(1)) {
                return None;
            }
            let steps = self.numbers[i].saturating_sub(self.numbers[i - 1]);
            let time = self.steps.t0[i].saturating_sub(self.steps.t0[i - 1]);
            (steps > 1).then(|| (seconds(time), steps as f64))
        })
    }

    /// The sums of these.
    fn counted(&self) -> (f64, f64) {
        self.spans().fold((0.0, 0.0), |sum, span| (sum.0 + span.0, sum.1 + span.1))
    }

    fn last(&self) -> u64 {
        self.end.map(|(_, t, _)| t).or_else(|| self.steps.t1.last().copied()).unwrap_or(self.t0)
    }
}

/// All loops of a process.
pub(super) struct Loops {
    loaders: BTreeMap<u32, record::Loader>,
    epochs: BTreeMap<u32, Vec<Epoch>>,
}

impl Loops {
    pub(super) fn of(main: &ProcessRecords) -> Self {
        let mut loaders = BTreeMap::new();
        let mut epochs: BTreeMap<u32, BTreeMap<u32, Epoch>> = BTreeMap::new();
        for record in &main.records {
            match record {
                Record::Loader(loader) => {
                    loaders.insert(loader.loader, loader.clone());
                }
                Record::Iter(iter) => {
                    let epoch = epochs.entry(iter.loader).or_default().entry(iter.iter).or_default();
                    (epoch.t0, epoch.t1) = (iter.t0, iter.t1);
                }
                Record::Steps(steps) => {
                    let epoch = epochs.entry(steps.loader).or_default().entry(steps.iter).or_default();
                    extend(epoch, steps);
                    if epoch.t0 == 0 {
                        epoch.t0 = steps.t0.first().copied().unwrap_or(0);
                    }
                }
                Record::Kernels(kernels) => {
                    if let Some(last) = kernels.last {
                        let loader = epochs.entry(kernels.loader).or_default();
                        loader.entry(kernels.iter).or_default().left_out.push((kernels.first, last));
                    }
                }
                Record::End(end) => {
                    epochs.entry(end.loader).or_default().entry(end.iter).or_default().end =
                        Some((end.t0, end.t, end.steps));
                }
                _ => {}
            }
        }
        for &loader in epochs.keys() {
            loaders.entry(loader).or_insert_with(|| record::Loader { loader, ..record::Loader::default() });
        }
        let epochs =
            epochs.into_iter().map(|(loader, epochs)| (loader, epochs.into_values().collect())).collect();
        Self { loaders, epochs }
    }

    pub(super) fn uses(&self) -> Vec<LoaderUse> {
        self.loaders
            .iter()
            .map(|(id, loader)| {
                let epochs = self.epochs.get(id).map_or(&[][..], Vec::as_slice);
                LoaderUse {
                    loader: loader.clone(),
                    steps: epochs.iter().map(Epoch::count).sum(),
                    epochs: epochs.len() as u32,
                    own: epochs.iter().map(|epoch| self.own(*id, epoch)).sum(),
                    whole: epochs.iter().map(|epoch| seconds(epoch.last().saturating_sub(epoch.t0))).sum(),
                }
            })
            .collect()
    }

    /// From the begin of the first loop of all to the end of the last, nanoseconds.
    pub(super) fn span(&self) -> (u64, u64) {
        let all = || self.epochs.values().flatten();
        (all().map(|epoch| epoch.t0).min().unwrap_or(0), all().map(Epoch::last).max().unwrap_or(0))
    }

    /// Seconds of an epoch without loops of other loaders that began and ended within it.
    fn own(&self, id: u32, epoch: &Epoch) -> f64 {
        let inner: u64 = self
            .epochs
            .iter()
            .filter(|&(&other, _)| other != id)
            .flat_map(|(_, epochs)| epochs)
            .filter(|other| other.t0 > epoch.t0 && other.last() < epoch.last())
            .map(|other| other.last() - other.t0)
            .sum();
        seconds(epoch.last().saturating_sub(epoch.t0).saturating_sub(inner))
    }

    /// The loader most of the time is spent on.
    pub(super) fn subject(&self) -> Option<usize> {
        let uses = self.uses();
        (0..uses.len()).filter(|&i| uses[i].steps > 1).max_by(|&a, &b| uses[a].own.total_cmp(&uses[b].own))
    }

    pub(super) fn steady(&self, subject: usize, loader: &record::Loader, notes: &mut Vec<String>) -> Loop {
        let Some((id, _)) = self.loaders.iter().nth(subject) else { return Loop::default() };
        let Some(epochs) = self.epochs.get(id) else { return Loop::default() };
        let noting = noting(epochs);
        let mut epochs: Vec<(usize, Vec<Step>)> = epochs
            .iter()
            .enumerate()
            .map(|(i, epoch)| (i, steps(epoch, noting)))
            .filter(|(_, steps)| !steps.is_empty())
            .collect();
        let all = &self.epochs[id];
        let time = |steps: &[Step]| mean(steps.iter().map(|step| step.wait + step.compute));
        let mut first_epoch = None;
        if epochs.len() > 1 {
            let later: Vec<Step> = epochs[1..].iter().flat_map(|(_, steps)| steps.clone()).collect();
            if later.len() >= 8 {
                let ratio = time(&epochs[0].1) / time(&later);
                first_epoch = Some(ratio);
                // A first epoch that fills caches is not what the rest will be like. One that is may be most of what there is.
                let enough = later.len() >= 40 && (ratio > LIKE_THE_REST || later.len() >= epochs[0].1.len());
                if ratio > 1.15 || enough {
                    epochs.remove(0);
                }
                if ratio > 1.3 {
                    notes.push(format!(
                        "The first epoch took {ratio:.1}x the time a step of the later ones, which this is about."
                    ));
                }
            }
        }
        if epochs.first().is_some_and(|&(i, _)| i == 0) {
            // What workers made ahead before the first step is gone after so many steps.
            let ahead = loader.num_workers.max(0) as usize * loader.prefetch_factor.unwrap_or(2) as usize;
            if let Some((_, steps)) = epochs.first_mut() {
                let most = (steps.len() / 2).min(steps.len().saturating_sub(FEWEST));
                let warm = (ahead + 2).max(steps.len() / 7).min(most);
                steps.drain(..warm);
            }
        }
        to_the_mean(&mut epochs, all);
        let begin = epochs.iter().flat_map(|(_, steps)| steps).map(|step| step.t0).min().unwrap_or(0);
        let end = epochs.iter().map(|&(i, _)| all[i].last()).max().unwrap_or(0);
        // The begin of the first of all is not like that of others: modules are imported, files read for the first time.
        let first = epochs.first().map_or(0, |&(i, _)| i);
        let started = all.iter().skip(first.max(1));
        let complete: Vec<&Epoch> = all.iter().filter(|epoch| epoch.end.is_some()).collect();
        Loop {
            window: (begin, end),
            starts: started.map(|epoch| seconds(epoch.start())).filter(|&start| start > 0.0).collect(),
            first_steps: all
                .iter()
                .filter_map(|epoch| {
                    Some(seconds(epoch.steps.t0.get(1)?.saturating_sub(epoch.first_batch()?)))
                })
                .collect(),
            first_start: all.first().map_or(0.0, |epoch| seconds(epoch.start())),
            ends: all
                .iter()
                .skip(first)
                .filter_map(|epoch| epoch.end)
                .map(|(t0, t, _)| seconds(t.saturating_sub(t0)))
                .collect(),
            steps_per_epoch: if complete.is_empty() {
                loader.length.map_or(0.0, |length| length as f64)
            } else {
                mean(complete.iter().map(|epoch| epoch.count() as f64))
            },
            steps: epochs.into_iter().flat_map(|(_, steps)| steps).collect(),
            first_epoch,
        }
    }
}

/// Seconds that noting costs a recorded step, by what those take that were only counted.
fn noting(epochs: &[Epoch]) -> f64 {
    let (time, count) =
        epochs.iter().map(Epoch::counted).fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    let recorded: Vec<f64> =
        epochs.iter().flat_map(|epoch| steps(epoch, 0.0)).map(|step| step.wait + step.compute).collect();
    if count < 1.0 || recorded.is_empty() {
        return 0.0;
    }
    (mean(recorded) - time / count).clamp(0.0, NOTING)
}

/// Counted steps from which on their mean is known better than that of the recorded ones.
const COUNTED: f64 = 512.0;

/// How many times as long as usual a stretch of counted steps takes that has a pause in it. A busy machine makes some a few times as long.
const PAUSE: f64 = 12.0;

/// Makes recorded steps as long, in the mean, as those that were only counted, where those are more: where steps take microseconds,
/// what is recorded is what was disturbed, by noting it and by whatever writes it down.
fn to_the_mean(epochs: &mut [(usize, Vec<Step>)], all: &[Epoch]) {
    let mut spans: Vec<(f64, f64)> = epochs.iter().flat_map(|&(i, _)| all[i].spans()).collect();
    // A pause of the script lies in one of them, and is no step.
    spans.sort_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1)));
    let Some(&(time, steps)) = spans.get(spans.len() / 2) else { return };
    spans.retain(|span| span.0 / span.1 < PAUSE * time / steps);
    let (time, count) = spans.iter().fold((0.0, 0.0), |sum, span| (sum.0 + span.0, sum.1 + span.1));
    let recorded = || epochs.iter().flat_map(|(_, steps)| steps);
    let mean = mean(recorded().map(|step| step.wait + step.compute));
    if count < COUNTED.max(recorded().count() as f64) || mean <= 0.0 {
        return;
    }
    let by = time / count / mean;
    for step in epochs.iter_mut().flat_map(|(_, steps)| steps) {
        for part in [
            &mut step.wait,
            &mut step.compute,
            &mut step.wait_cpu,
            &mut step.thread_cpu,
            &mut step.process_cpu,
            &mut step.unpickle,
        ] {
            *part *= by;
        }
    }
}

/// Steps of an epoch but the first one, whose wait is the epoch's start; each without the `noting` seconds that it took to record it.
/// One before steps that were only counted is left out, as its end is not known.
fn steps(epoch: &Epoch, noting: f64) -> Vec<Step> {
    let s = &epoch.steps;
    let count = s.t0.len().min(s.t1.len()).min(epoch.numbers.len());
    let at = |list: &[u64], i: usize| list.get(i).copied();
    let difference = |a: Option<u64>, b: Option<u64>| match (a, b) {
        (Some(a), Some(b)) => seconds(b.saturating_sub(a)),
        _ => 0.0,
    };
    (1..count)
        .filter(|&i| !epoch.is_left_out(epoch.numbers[i], epoch.numbers[i]))
        .filter_map(|i| {
            let compute = seconds(epoch.next(i)?.saturating_sub(s.t1[i]));
            // It is noted right after the wait.
            let noting = noting.min(0.5 * compute);
            Some(Step {
                t0: s.t0[i],
                wait: seconds(s.t1[i].saturating_sub(s.t0[i])),
                compute: compute - noting,
                wait_cpu: difference(at(&s.c0, i), at(&s.c1, i)),
                thread_cpu: (difference(at(&s.c1, i), at(&s.c0, i + 1)) - noting).max(0.0),
                process_cpu: (difference(at(&s.p1, i), at(&s.p0, i + 1)) - noting).max(0.0),
                unpickle: at(&s.unpickle, i).map_or(0.0, seconds),
            })
        })
        .collect()
}

fn extend(epoch: &mut Epoch, from: &record::Steps) {
    let into = &mut epoch.steps;
    epoch.numbers.extend((from.first..).take(from.t0.len().min(from.t1.len())));
    into.t0.extend(&from.t0);
    into.t1.extend(&from.t1);
    into.c0.extend(&from.c0);
    into.c1.extend(&from.c1);
    into.p0.extend(&from.p0);
    into.p1.extend(&from.p1);
    into.unpickle.extend(&from.unpickle);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Epochs of `n` steps that wait `wait` and compute `compute` milliseconds; the first batch of each takes `start`.
    pub(crate) fn process(
        loader: u32,
        at: u64,
        epochs: u32,
        n: u64,
        wait: u64,
        compute: u64,
        start: u64,
    ) -> Vec<Record> {
        const MS: u64 = 1_000_000;
        let mut records = vec![Record::Loader(record::Loader { loader, ..record::Loader::default() })];
        let mut t = at * MS;
        for iter in 0..epochs {
            records.push(Record::Iter(record::Iter { loader, iter, t0: t, t1: t }));
            let mut steps = record::Steps { loader, iter, ..record::Steps::default() };
            for i in 0..n {
                steps.t0.push(t);
                t += if i == 0 { start } else { wait } * MS;
                steps.t1.push(t);
                t += compute * MS;
            }
            records.push(Record::Steps(steps));
            records.push(Record::End(record::End { loader, iter, t0: t, t: t + MS, steps: Some(n) }));
            t += MS;
        }
        records
    }

    /// The same epochs with numbers that are one higher.
    fn after_another(mut records: Vec<Record>) -> Vec<Record> {
        for record in &mut records {
            match record {
                Record::Iter(iter) => iter.iter += 1,
                Record::Steps(steps) => steps.iter += 1,
                Record::End(end) => end.iter += 1,
                _ => {}
            }
        }
        records
    }

    fn loops(records: Vec<Record>) -> Loops {
        Loops::of(&ProcessRecords { records, ..ProcessRecords::default() })
    }

    #[test]
    fn the_steady_state_leaves_beginnings_out() {
        let loops = loops(process(0, 5, 3, 30, 2, 8, 500));
        let steady = loops.steady(0, &record::Loader::default(), &mut Vec::new());
        assert!((steady.wait() - 0.002).abs() < 1e-9 && (steady.compute() - 0.008).abs() < 1e-9);
        assert!((steady.starts[0] - 0.5).abs() < 1e-9);
        assert!((steady.restart() - (0.498 + 0.001) / 30.0).abs() < 1e-9);
    }

    /// Steps of 37 us, of which bursts of 256 are recorded with 4 us of noting each, and as many as a quarter of a second has are
    /// only counted.
    fn bursts(bursts: u64) -> Loop {
        const WAIT: u64 = 12_000;
        const COMPUTE: u64 = 25_000;
        const NOTING: u64 = 4_000;
        let skipped = 250_000_000 / (WAIT + COMPUTE);
        let loader = 0;
        let mut records = vec![Record::Loader(record::Loader { loader, ..record::Loader::default() })];
        let (mut t, mut number) = (1_000_000_000, 0);
        records.push(Record::Iter(record::Iter { loader, iter: 0, t0: t, t1: t }));
        for _ in 0..bursts {
            let mut steps = record::Steps { loader, first: number, ..record::Steps::default() };
            for _ in 0..256 {
                steps.t0.push(t);
                steps.t1.push(t + WAIT);
                t += WAIT + COMPUTE + NOTING;
            }
            records.push(Record::Steps(steps));
            t += skipped * (WAIT + COMPUTE);
            number += 256 + skipped;
        }
        records.push(Record::End(record::End { loader, iter: 0, t0: t, t, steps: Some(number) }));
        let loops = loops(records);
        assert_eq!(loops.uses()[0].steps, number);
        loops.steady(0, &record::Loader::default(), &mut Vec::new())
    }

    #[test]
    fn steps_of_microseconds_are_timed_where_most_are_only_counted() {
        let steady = bursts(5);
        assert!((steady.time() / 37e-6 - 1.0).abs() < 1e-3, "{}", steady.time());
        assert!((steady.wait() / 12e-6 - 1.0).abs() < 1e-3, "{}", steady.wait());
        assert!(steady.steps.iter().all(|step| step.compute < 1e-4));
    }

    #[test]
    fn steps_in_which_kernels_were_looked_at_are_no_steps() {
        let mut records = process(0, 5, 1, 100, 2, 8, 50);
        let looked = record::Kernels { first: 40, last: Some(60), ..record::Kernels::default() };
        records.push(Record::Kernels(looked.clone()));
        // The profiler starts in the first of them.
        for record in &mut records {
            if let Record::End(end) = record {
                (end.t0, end.t) = (end.t0 + 2_000_000_000, end.t + 2_000_000_000);
            }
            if let Record::Steps(steps) = record {
                let later = steps.first..steps.first + steps.t0.len() as u64;
                for (number, (t0, t1)) in later.zip(steps.t0.iter_mut().zip(&mut steps.t1)) {
                    if number > 40 {
                        (*t0, *t1) = (*t0 + 2_000_000_000, *t1 + 2_000_000_000);
                    }
                }
            }
        }
        let steady = loops(records).steady(0, &record::Loader::default(), &mut Vec::new());
        // Without the first of all, and a seventh of the rest for warming up.
        assert_eq!(steady.steps.len(), 99 - 21 - (99 - 21) / 7);
        assert!((steady.time() - 0.01).abs() < 1e-9, "{}", steady.time());
        let epoch = |left_out| Epoch {
            steps: record::Steps { t0: vec![0, 9_000], t1: vec![1, 9_001], ..record::Steps::default() },
            numbers: vec![35, 44],
            left_out,
            ..Epoch::default()
        };
        assert_eq!(epoch(vec![(40, 60)]).counted(), (0.0, 0.0), "nor where they were only counted");
        assert!(epoch(vec![(44, 60)]).counted().1 > 8.5);
    }

    #[test]
    fn recorded_steps_that_were_disturbed_take_as_long_as_the_counted_ones() {
        for micro in [5_000, 37_000] {
            let mut records = Vec::new();
            let (mut t, mut number) = (0, 0);
            records.push(Record::Iter(record::Iter::default()));
            for burst in 0..8 {
                let mut steps = record::Steps { first: number, ..record::Steps::default() };
                for _ in 0..256 {
                    // Fifty times as long as the others; two thirds of it waiting.
                    steps.t0.push(t);
                    steps.t1.push(t + 34 * micro);
                    t += 50 * micro;
                }
                records.push(Record::Steps(steps));
                // The script pauses once.
                t += 6_000 * micro + if burst == 3 { 9_000_000_000 } else { 0 };
                number += 256 + 6_000;
            }
            let end = record::End { t0: t, t, steps: Some(number), ..record::End::default() };
            records.push(Record::End(end));
            let steady = loops(records).steady(0, &record::Loader::default(), &mut Vec::new());
            // What precedes a span is one of the recorded steps.
            let expected = micro as f64 * 1e-9 * (6_000.0 + 50.0) / 6_001.0;
            assert!((steady.time() / expected - 1.0).abs() < 0.01, "{} {expected}", steady.time());
            // Noting is taken for a part of the computation, not of the wait.
            assert!((0.67..0.72).contains(&(steady.wait() / steady.time())));
        }
    }

    #[test]
    fn a_pause_among_counted_steps_is_no_cost_of_noting_and_no_step() {
        let mut records = process(0, 5, 1, 30, 2, 8, 2);
        let Record::End(end) = records.pop().unwrap() else { unreachable!() };
        let later = record::Steps {
            first: 100,
            t0: vec![9_000_000_000],
            t1: vec![9_002_000_000],
            ..record::Steps::default()
        };
        records.push(Record::Steps(later));
        records.push(Record::End(record::End {
            t0: 9_010_000_000,
            t: 9_010_000_000,
            steps: Some(101),
            ..end
        }));
        let steady = loops(records).steady(0, &record::Loader::default(), &mut Vec::new());
        assert!((steady.time() - 0.01).abs() < 1e-9, "{}", steady.time());
    }

    #[test]
    fn of_few_steps_enough_are_left() {
        // The first step's wait is the epoch's start.
        for (taken, left) in [(3, 2), (4, 3), (5, 3), (6, 3), (8, 5), (21, 18)] {
            let loops = loops(process(0, 5, 1, taken, 150, 900, 160));
            let steady = loops.steady(0, &record::Loader::default(), &mut Vec::new());
            assert_eq!(steady.steps.len(), left, "of {taken}");
        }
    }

    #[test]
    fn a_slow_first_epoch_is_left_out_and_told() {
        let mut records = process(0, 5, 1, 30, 50, 8, 50);
        records.extend(after_another(process(0, 5_000, 2, 30, 2, 8, 2)));
        let mut notes = Vec::new();
        let steady = loops(records).steady(0, &record::Loader::default(), &mut notes);
        assert!((steady.wait() - 0.002).abs() < 1e-9);
        assert!(steady.first_epoch.unwrap() > 5.0);
        assert_eq!(notes.len(), 1);
    }

    #[test]
    fn a_long_first_epoch_like_the_rest_counts() {
        let two = |first: u64, wait: u64| {
            let mut records = process(0, 5, 1, first, wait, 8, 50);
            records.extend(after_another(process(0, 50_000, 1, 51, 2, 8, 2)));
            loops(records).steady(0, &record::Loader::default(), &mut Vec::new())
        };
        // Without its first steps, and the first of each epoch.
        let both = two(351, 2);
        assert_eq!((both.steps.len(), both.starts.len()), (350 - 50 + 50, 1));
        assert_eq!(two(351, 3).steps.len(), 50, "a tenth slower");
        assert_eq!(two(51, 2).steps.len(), 50, "the later one is as long");
    }

    #[test]
    fn an_epoch_that_only_begins_tells_what_a_begin_takes() {
        let mut records = process(0, 5, 1, 100, 2, 8, 4_000);
        let t0 = 10_000_000_000;
        records.push(Record::Iter(record::Iter {
            iter: 1,
            t0,
            t1: t0 + 3_000_000_000,
            ..record::Iter::default()
        }));
        let steady = loops(records).steady(0, &record::Loader::default(), &mut Vec::new());
        assert_eq!((steady.starts.len(), steady.ends.len()), (1, 1));
        assert!((steady.starts[0] - 3.0).abs() < 1e-9, "the first of all is not like the others");
        assert!((steady.restart() - (2.998 + 0.001) / 100.0).abs() < 1e-9);
        assert!((steady.whole() - steady.time() - steady.restart()).abs() < 1e-12);
    }

    #[test]
    fn of_nested_loops_the_one_that_takes_the_time_counts() {
        // An outer loop of one step, in which an inner one runs.
        let mut records = process(0, 0, 1, 3, 1, 4_000, 1);
        records.extend(process(1, 10, 1, 300, 5, 5, 5));
        let loops = loops(records);
        assert_eq!(loops.subject(), Some(0), "the outer loop has 12 s, the inner one 3 s of them");
        let mut records = process(0, 0, 1, 3, 1, 4_000, 1);
        records.extend(process(1, 10, 1, 1_100, 5, 5, 5));
        assert_eq!(self::loops(records).subject(), Some(1));
    }
}
