//! Which settings of a loader to measure next, to find good ones in few runs.
//!
//! The whole grid is `num_workers` x `prefetch_factor` x `persistent_workers` x `pin_memory`. Most of it need not be run: the
//! model says what workers would do, no setting of the loader can gain more than the time the loop still waits, and what
//! the machine lacks (a device to pin memory for, epochs whose workers could be kept) cannot matter.

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    evidence::Evidence,
    model::Pipeline,
    report::Apply,
    verdict::{judge, most_workers, with_workers},
};

/// Difference between two runs that means nothing.
const SAME: f64 = 1.02;

/// Share of the time a loop may wait while it counts as fed.
const FED: f64 = 0.03;

/// How much worse than the best prediction a setting may look and still be worth a run: as far as predictions are off.
const UNSURE: f64 = 1.4;

/// Share of a step that goes into taking batches over from workers from which on none are tried, too.
const HANDED: f64 = 0.1;

/// How much worse that may look and still be worth a run: collating into memory to be shared, and what the model misses besides,
/// end with the workers.
const NOT_HANDED: f64 = 1.5;

const PREFETCH: [usize; 4] = [1, 2, 4, 8];

/// Arguments of a loader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Settings {
    /// `num_workers`.
    pub num_workers: usize,
    /// `prefetch_factor`; 2 without workers, where it means nothing.
    pub prefetch_factor: usize,
    /// `persistent_workers`.
    pub persistent_workers: bool,
    /// `pin_memory`.
    pub pin_memory: bool,
}

impl Settings {
    /// The same without what means nothing.
    fn canonical(self) -> Self {
        if self.num_workers > 0 {
            self
        } else {
            Self { prefetch_factor: 2, persistent_workers: false, ..self }
        }
    }

    /// As changes that the probes make.
    pub fn apply(self) -> Apply {
        let mut loader =
            vec![("num_workers", json!(self.num_workers)), ("pin_memory", json!(self.pin_memory))];
        if self.num_workers > 0 {
            loader.push(("prefetch_factor", json!(self.prefetch_factor)));
            loader.push(("persistent_workers", json!(self.persistent_workers)));
        }
        Apply {
            loader: loader.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            ..Apply::default()
        }
    }

    /// As arguments in a script.
    pub fn arguments(self) -> String {
        let mut arguments = vec![format!("num_workers={}", self.num_workers)];
        if self.num_workers > 0 {
            arguments.push(format!("prefetch_factor={}", self.prefetch_factor));
            if self.persistent_workers {
                arguments.push("persistent_workers=True".to_owned());
            }
        }
        if self.pin_memory {
            arguments.push("pin_memory=True".to_owned());
        }
        arguments.join(", ")
    }
}

/// A setting that was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// What was set.
    pub settings: Settings,
    /// Seconds a step, with the step's share of what beginnings of epochs cost; mean over the runs.
    pub time: f64,
    /// Of that, waiting for data.
    pub wait: f64,
    /// What the model expected.
    pub predicted: f64,
    /// Runs.
    pub runs: u32,
}

impl Measured {
    /// Whether the loop waits for data still.
    fn waits(&self) -> bool {
        self.wait > FED * self.time
    }
}

/// The search.
#[derive(Clone, Debug)]
pub struct Search {
    pipeline: Pipeline,
    /// Measured seconds over those of the model, for the settings the script has.
    misfit: f64,
    workers: Vec<usize>,
    epochs: bool,
    device: bool,
    current: Settings,
    /// What was measured, in the order it was.
    pub measured: Vec<Measured>,
}

impl Search {
    /// Begins with a run of the script as it is; nothing if it had no torch loader whose steps repeat.
    pub fn begin(e: &Evidence) -> Option<Self> {
        let loader = e.loader().filter(|loader| loader.framework == "torch")?;
        let pipeline = judge(e).pipeline?;
        let current = Settings {
            num_workers: loader.num_workers.max(0) as usize,
            prefetch_factor: loader.prefetch_factor.unwrap_or(2) as usize,
            persistent_workers: loader.persistent_workers,
            pin_memory: loader.pin_memory,
        };
        let most = most_workers(&pipeline);
        let epochs = !e.steps.starts.is_empty();
        let time = e.steps.whole();
        let wait = e.steps.wait() + e.steps.restart();
        Some(Self::new(pipeline, most, epochs, !e.machine.gpus.is_empty(), current, time, wait))
    }

    fn new(
        pipeline: Pipeline,
        most: usize,
        epochs: bool,
        device: bool,
        current: Settings,
        time: f64,
        wait: f64,
    ) -> Self {
        let mut search = Self {
            pipeline,
            misfit: 1.0,
            workers: counts(most),
            epochs,
            device,
            current: current.canonical(),
            measured: Vec::new(),
        };
        let expected = search.predicted(search.current);
        search.misfit = if expected > 0.0 && time > 0.0 { time / expected } else { 1.0 };
        search.observe(search.current, time, wait);
        search
    }

    /// All that a search without a model would measure.
    pub fn grid(&self) -> Vec<Settings> {
        let mut grid = Vec::new();
        for &num_workers in &self.workers {
            for prefetch_factor in PREFETCH {
                for persistent_workers in [false, true] {
                    for pin_memory in [false, true] {
                        let at = Settings { num_workers, prefetch_factor, persistent_workers, pin_memory };
                        let pins = self.device || pin_memory == self.current.pin_memory;
                        let keeps = self.epochs || persistent_workers || num_workers == 0;
                        if pins && keeps && !grid.contains(&at.canonical()) {
                            grid.push(at.canonical());
                        }
                    }
                }
            }
        }
        grid
    }

    /// Seconds a step that the model expects.
    pub fn predicted(&self, settings: Settings) -> f64 {
        let mut p = with_workers(&self.pipeline, settings.num_workers);
        p.prefetch = settings.prefetch_factor;
        if settings.persistent_workers || settings.num_workers == 0 {
            p.restart = 0.0;
        }
        // What a loop with workers takes beyond the model is mostly the hand-over, which ends without them.
        let misfit = if settings.num_workers == 0 && self.current.num_workers > 0 {
            self.misfit.min(1.0)
        } else {
            self.misfit
        };
        misfit * (0..4).map(|seed| p.time_of(seed)).sum::<f64>() / 4.0
    }

    /// Adds a measurement.
    pub fn observe(&mut self, settings: Settings, time: f64, wait: f64) {
        let settings = settings.canonical();
        if let Some(old) = self.measured.iter_mut().find(|measured| measured.settings == settings) {
            let n = f64::from(old.runs);
            old.time = (old.time * n + time) / (n + 1.0);
            old.wait = (old.wait * n + wait) / (n + 1.0);
            old.runs += 1;
        } else {
            let predicted = self.predicted(settings);
            self.measured.push(Measured { settings, time, wait, predicted, runs: 1 });
        }
    }

    /// The best so far; of those that are as good, the one with the fewest workers.
    pub fn best(&self) -> Measured {
        let fastest = self.measured.iter().map(|measured| measured.time).fold(f64::INFINITY, f64::min);
        let good = self.measured.iter().filter(|measured| measured.time <= fastest * SAME);
        let key = |m: &&Measured| (m.settings.num_workers, m.settings.prefetch_factor, m.settings.pin_memory);
        good.min_by_key(key).copied().unwrap_or_default()
    }

    /// What to measure next; `None` if nothing is expected to be better than what was found.
    pub fn next(&self) -> Option<Settings> {
        let new = |settings: &Settings| !self.measured.iter().any(|m| m.settings == *settings);
        // How many workers: what the model says first, then its neighbours.
        let expected: Vec<(Settings, f64)> =
            self.workers.iter().map(|&n| self.with(n)).map(|at| (at, self.predicted(at))).collect();
        let fastest = expected.iter().map(|(_, time)| *time).fold(f64::INFINITY, f64::min);
        let first = expected.iter().find(|(_, time)| *time <= fastest * SAME)?.0;
        let untried = self.measured.len() == 1 && !self.as_good_as_current(first);
        if untried && new(&first) {
            return Some(first);
        }
        let best = self.best();
        let at = self.workers.iter().position(|&n| n == best.settings.num_workers);
        if let Some(at) = at {
            let fewer = at.checked_sub(1).map(|i| expected[i]);
            let more = expected.get(at + 1).copied();
            // What was measured says more than what is predicted: both are seen relative to the best.
            let here = self.predicted(best.settings);
            let mut steps: Vec<(Settings, f64)> = Vec::new();
            let none = expected.iter().find(|(at, time)| at.num_workers == 0 && *time <= here * NOT_HANDED);
            if let Some((none, _)) = none
                && new(none)
                && best.waits()
                && self.pipeline.receive > HANDED * here
            {
                return Some(*none);
            }
            steps.extend(more.filter(|(_, time)| best.waits() && *time <= here * UNSURE));
            steps.extend(fewer.filter(|(_, time)| *time <= here * if best.waits() { UNSURE } else { 1.05 }));
            steps.retain(|(settings, _)| {
                new(settings) && !self.measured.iter().any(|m| m.settings.num_workers == settings.num_workers)
            });
            if let Some((settings, _)) = steps.into_iter().min_by(|a, b| a.1.total_cmp(&b.1)) {
                return Some(settings);
            }
        }
        self.refine(best).filter(new)
    }

    /// Settings besides the number of workers, once that is found.
    fn refine(&self, best: Measured) -> Option<Settings> {
        let settings = best.settings;
        // More workers than make sense are not made better by other settings.
        if !best.waits() || !self.workers.contains(&settings.num_workers) {
            return None;
        }
        let new = |settings: &Settings| !self.measured.iter().any(|m| m.settings == *settings);
        if settings.num_workers > 0 {
            if self.epochs && !settings.persistent_workers {
                return Some(Settings { persistent_workers: true, ..settings }).filter(new);
            }
            let deeper = Settings { prefetch_factor: (2 * settings.prefetch_factor).min(8), ..settings };
            // A deeper queue helps against batches that take different times; once it did not, twice that will not.
            let shallower = Settings { prefetch_factor: settings.prefetch_factor / 2, ..settings };
            let helped = |m: &Measured| m.settings == shallower && m.time > best.time * SAME;
            if new(&deeper) && (settings.prefetch_factor <= 2 || self.measured.iter().any(helped)) {
                return Some(deeper);
            }
        }
        let pinned = Settings { pin_memory: true, ..settings };
        Some(pinned).filter(|pinned| self.device && new(pinned))
    }

    /// The script's settings with other workers, which stay from epoch to epoch: that never takes longer.
    fn with(&self, num_workers: usize) -> Settings {
        let keep = self.epochs || self.current.persistent_workers;
        let prefetch_factor =
            if PREFETCH.contains(&self.current.prefetch_factor) { self.current.prefetch_factor } else { 2 };
        Settings {
            num_workers,
            prefetch_factor: prefetch_factor.max(2),
            persistent_workers: keep,
            pin_memory: self.current.pin_memory,
        }
        .canonical()
    }

    fn as_good_as_current(&self, settings: Settings) -> bool {
        settings.num_workers == self.current.num_workers
            && (settings.persistent_workers == self.current.persistent_workers)
    }
}

/// Numbers of workers worth trying: all small ones, then ever larger steps.
fn counts(most: usize) -> Vec<usize> {
    let mut counts: Vec<usize> = (0..=most.min(4)).collect();
    let mut next = 6;
    while next < most {
        counts.push(next);
        next += next.next_power_of_two() / 4;
    }
    if most > 4 {
        counts.push(most);
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Cost;

    /// Numbers from 0 to 1 that look random.
    struct Dice(u64);

    impl Dice {
        fn roll(&mut self) -> f64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 11) as f64 / (1u64 << 53) as f64
        }

        /// From `low` to `high`, as many in each order of magnitude.
        fn log(&mut self, low: f64, high: f64) -> f64 {
            low * (high / low).powf(self.roll())
        }

        /// Around 1, with this standard deviation.
        fn near(&mut self, deviation: f64) -> f64 {
            (deviation * (self.roll() + self.roll() + self.roll() - 1.5) * 2.0).exp()
        }
    }

    fn time(p: &Pipeline, settings: Settings) -> f64 {
        let mut p = with_workers(p, settings.num_workers);
        p.prefetch = settings.prefetch_factor;
        if settings.persistent_workers || settings.num_workers == 0 {
            p.restart = 0.0;
        }
        (0..4).map(|seed| p.time_of(seed)).sum::<f64>() / 4.0
    }

    /// Loops whose costs the model knows only roughly, and measurements that vary.
    #[test]
    fn few_runs_find_settings_that_are_nearly_the_best() {
        let mut dice = Dice(7);
        let (mut regrets, mut shares) = (Vec::new(), Vec::new());
        for _ in 0..60 {
            let (cpu, blocked) =
                (dice.log(0.002, 0.1), if dice.roll() < 0.4 { dice.log(0.002, 0.1) } else { 0.0 });
            let spread = if dice.roll() < 0.3 { 1.0 } else { 0.1 };
            let make = (0..40).map(|_| {
                let factor = dice.near(spread);
                Cost { cpu: cpu * factor, blocked: blocked * factor, parallel: 1.0, bytes: 0.0 }
            });
            let make: Vec<Cost> = make.collect();
            let step = Cost {
                cpu: dice.log(0.0005, 0.02),
                blocked: dice.log(0.002, 0.08),
                parallel: 1.0,
                bytes: 0.0,
            };
            let epochs = dice.roll() < 0.5;
            let truth = Pipeline {
                cores: 2.0,
                scaling: 1.7,
                workers: (dice.roll() * 4.0) as usize,
                prefetch: 2,
                in_order: true,
                make,
                step: vec![step],
                restart: if epochs { 0.3 } else { 0.0 },
                steps_per_epoch: if epochs { 100.0 } else { 0.0 },
                ..Pipeline::default()
            };
            let (a, b) = (dice.near(0.08), dice.near(0.08));
            let known = truth
                .with_make(|c| Cost { cpu: c.cpu * a, blocked: c.blocked * b, ..*c })
                .with_step(|c| Cost { cpu: c.cpu * b, ..*c });
            let current = Settings { num_workers: truth.workers, prefetch_factor: 2, ..Settings::default() }
                .canonical();
            let ideal = time(&truth.without_input(), Settings { persistent_workers: true, ..current });
            let mut measure = |settings| time(&truth, settings) * dice.near(0.015);
            let wait = |time: f64| (time - ideal).max(0.0);
            let first = measure(current);
            let most = most_workers(&truth);
            let mut search = Search::new(known, most, epochs, false, current, first, wait(first));
            while let Some(settings) = search.next() {
                assert!(settings.num_workers <= most);
                assert_eq!(settings, settings.canonical());
                let seconds = measure(settings);
                let before = search.measured.len();
                search.observe(settings, seconds, wait(seconds));
                assert_eq!(search.measured.len(), before + 1, "each run is of something new");
            }
            let grid = search.grid();
            let best = grid.iter().map(|&at| time(&truth, at)).fold(f64::INFINITY, f64::min);
            regrets.push(time(&truth, search.best().settings) / best - 1.0);
            shares.push(search.measured.len() as f64 / grid.len() as f64);
        }
        regrets.sort_by(f64::total_cmp);
        shares.sort_by(f64::total_cmp);
        assert!(regrets[30] <= 0.02, "median regret {}", regrets[30]);
        assert!(regrets[54] <= 0.1, "ninth of ten regrets {}", regrets[54]);
        // The runs of a sweep are shorter than those of a grid, besides.
        assert!(shares[30] <= 0.3, "median share of runs {}", shares[30]);
    }

    #[test]
    fn a_loop_that_does_not_wait_is_left_alone() {
        let cost = |cpu, blocked| Cost { cpu, blocked, parallel: 1.0, bytes: 0.0 };
        let fed = Pipeline {
            cores: 2.0,
            scaling: 2.0,
            workers: 1,
            prefetch: 2,
            in_order: true,
            make: vec![cost(0.002, 0.0)],
            step: vec![cost(0.0, 0.05)],
            ..Pipeline::default()
        };
        let current = Settings { num_workers: 1, prefetch_factor: 2, ..Settings::default() };
        let search = Search::new(fed, 2, false, false, current, 0.05, 0.0);
        assert_eq!(search.next().map(|settings| settings.num_workers), Some(0));
        assert_eq!(search.best().settings, current);
    }

    /// Two workers whose batches take longer to hand over than the model knows.
    #[test]
    fn a_loop_that_waits_for_the_hand_over_is_tried_without() {
        let cost = |cpu| Cost { cpu, blocked: 0.0, parallel: 1.0, bytes: 0.0 };
        let known = Pipeline {
            cores: 2.0,
            scaling: 2.0,
            workers: 2,
            prefetch: 2,
            in_order: true,
            make: vec![cost(0.009)],
            step: vec![cost(0.006)],
            receive: 0.003,
            ..Pipeline::default()
        };
        let current =
            Settings { num_workers: 2, prefetch_factor: 2, persistent_workers: true, ..Settings::default() };
        let mut search = Search::new(known, 2, true, false, current, 0.0146, 0.008);
        let mut tried = Vec::new();
        while let Some(settings) = search.next() {
            tried.push(settings.num_workers);
            let time = if settings.num_workers == 0 { 0.0116 } else { 0.0146 };
            search.observe(settings, time, time - 0.0066);
        }
        assert!(tried.contains(&0) && tried.len() <= 3, "{tried:?}");
        assert_eq!(search.best().settings.num_workers, 0);
    }

    #[test]
    fn counts_end_at_the_most() {
        assert_eq!(counts(1), [0, 1]);
        assert_eq!(counts(3), [0, 1, 2, 3]);
        assert_eq!(counts(5), [0, 1, 2, 3, 4, 5]);
        assert_eq!(counts(16), [0, 1, 2, 3, 4, 6, 8, 10, 14, 16]);
    }

    #[test]
    fn without_workers_what_belongs_to_them_is_not_set() {
        let settings =
            Settings { num_workers: 0, prefetch_factor: 8, persistent_workers: true, pin_memory: false };
        assert_eq!(settings.canonical().arguments(), "num_workers=0");
        assert_eq!(settings.apply().loader.len(), 2);
    }
}
