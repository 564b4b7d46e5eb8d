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

/// Difference between two short runs that another look may turn around.
const CLOSE: f64 = 1.06;

/// How often one setting is run at most.
const RUNS: u32 = 2;

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
    /// Settings that the script did not run with.
    refused: Vec<Settings>,
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
            refused: Vec::new(),
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

    /// The script did not run with these settings: they are not asked for again.
    pub fn refuse(&mut self, settings: Settings) {
        self.refused.push(settings.canonical());
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
        // How many workers: what the model says first.
        let expected: Vec<(Settings, f64)> =
            self.workers.iter().map(|&n| self.with(n)).map(|at| (at, self.predicted(at))).collect();
        let fastest = expected.iter().map(|(_, time)| *time).fold(f64::INFINITY, f64::min);
        let first = expected.iter().find(|(_, time)| *time <= fastest * SAME)?.0;
        let untried = self.measured.len() == 1 && !self.as_good_as_current(first);
        if untried && self.is_new(first) {
            return Some(first);
        }
        let best = self.best();
        // More workers than make sense are not made better by other settings.
        if !self.workers.contains(&best.settings.num_workers) {
            return None;
        }
        let here = self.predicted(best.settings);
        let none = expected.iter().find(|(at, time)| at.num_workers == 0 && *time <= here * NOT_HANDED);
        if let Some((none, _)) = none
            && self.is_new(*none)
            && best.waits()
            && self.pipeline.receive > HANDED * here
        {
            return Some(*none);
        }
        self.step_from(best).or_else(|| self.again(best))
    }

    /// What differs from the best in one argument, and looks best of these.
    fn step_from(&self, best: Measured) -> Option<Settings> {
        let mut steps: Vec<(Settings, f64)> = Vec::new();
        for at in self.around(best.settings).into_iter().filter(|at| self.is_new(*at)) {
            let time = self.calibrated(at);
            // A loop that is fed can only be spared workers.
            let worth = match best.waits() {
                true => time <= best.time * UNSURE,
                false => at.num_workers < best.settings.num_workers && time <= best.time * 1.05,
            };
            if worth {
                steps.push((at, time));
            }
        }
        // Of what looks alike the first: `around` begins with what matters most.
        let fastest = steps.iter().map(|(_, time)| *time).fold(f64::INFINITY, f64::min);
        steps.into_iter().find(|(_, time)| *time <= fastest * SAME).map(|(at, _)| at)
    }

    /// Settings that differ in one argument. Workers stay from epoch to epoch, as that never takes longer.
    fn around(&self, settings: Settings) -> Vec<Settings> {
        let mut around = Vec::new();
        if settings.num_workers > 0 && self.epochs && !settings.persistent_workers {
            around.push(Settings { persistent_workers: true, ..settings });
        }
        if let Some(at) = self.workers.iter().position(|&n| n == settings.num_workers) {
            // Beyond a number that was tried, too: where all cores are busy, one worker may be worse than none, and two better.
            let untried = |n: &&usize| !self.measured.iter().any(|m| m.settings.num_workers == **n);
            let (fewer, more) = (&self.workers[..at], &self.workers[at + 1..]);
            let counts = [more.iter().find(untried), fewer.iter().rev().find(untried)];
            for &num_workers in counts.into_iter().flatten() {
                // With as many batches ahead; what is new begins as `with` has it.
                let prefetch_factor = match settings.num_workers {
                    0 => self.with(num_workers).prefetch_factor,
                    _ => settings.prefetch_factor,
                };
                around.push(Settings { prefetch_factor, ..self.with(num_workers) }.canonical());
            }
        }
        if settings.num_workers > 0 {
            // Deeper queues help against batches that take different times, shallower ones where caches matter.
            let deeper = PREFETCH.into_iter().filter(|&factor| factor > settings.prefetch_factor);
            let shallower = PREFETCH.into_iter().rev().filter(|&factor| factor < settings.prefetch_factor);
            around.extend(
                deeper.chain(shallower).map(|prefetch_factor| Settings { prefetch_factor, ..settings }),
            );
        }
        if self.device {
            around.push(Settings { pin_memory: !settings.pin_memory, ..settings });
        }
        around
    }

    /// The best or what is nearly as good, once more: a short run differs from the next one by some percent.
    fn again(&self, best: Measured) -> Option<Settings> {
        let close = |m: &&Measured| {
            m.time <= best.time * CLOSE && best.time <= m.time * CLOSE && !self.refused.contains(&m.settings)
        };
        let close: Vec<&Measured> = self.measured.iter().filter(close).collect();
        let seldom = close.iter().filter(|m| m.runs < RUNS).min_by_key(|m| m.runs)?;
        (close.len() > 1).then_some(seldom.settings)
    }

    fn is_new(&self, settings: Settings) -> bool {
        !self.measured.iter().any(|m| m.settings == settings) && !self.refused.contains(&settings)
    }

    /// Seconds a step that the model expects, seen relative to what was measured with as many workers, or else to the best.
    fn calibrated(&self, settings: Settings) -> f64 {
        let alike = self.measured.iter().filter(|m| m.settings.num_workers == settings.num_workers);
        let off: Vec<f64> = alike.map(|m| m.time / m.predicted.max(1e-12)).collect();
        let off = match off.len() {
            0 => {
                let best = self.best();
                best.time / best.predicted.max(1e-12)
            }
            n => off.iter().sum::<f64>() / n as f64,
        };
        off * self.predicted(settings)
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

    #[test]
    fn what_does_not_run_is_not_asked_for_again_and_the_search_ends() {
        let cost = Cost { cpu: 0.05, blocked: 0.0, parallel: 1.0, bytes: 0.0 };
        let step = Cost { cpu: 0.001, ..cost };
        let p = Pipeline { make: vec![cost], step: vec![step], cores: 8.0, ..Pipeline::default() };
        let mut search = Search::new(p, 8, true, true, Settings::default(), 0.051, 0.05);
        let mut asked = Vec::new();
        while let Some(settings) = search.next() {
            assert!(!asked.contains(&settings), "{settings:?}");
            asked.push(settings);
            // Nothing with workers runs.
            search.refuse(settings);
        }
        assert!(!asked.is_empty());
        assert_eq!(search.best().settings, Settings::default().canonical());
    }

    /// Loops whose costs the model knows only roughly, and measurements that vary.
    #[test]
    fn few_runs_find_settings_that_are_nearly_the_best() {
        let mut dice = Dice(7);
        let mut regrets = Vec::new();
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
            let mut measure = |settings| time(&truth, settings) * dice.near(0.03);
            let wait = |time: f64| (time - ideal).max(0.0);
            let first = measure(current);
            let most = most_workers(&truth);
            let mut search = Search::new(known, most, epochs, false, current, first, wait(first));
            // A sweep takes a fifth of the grid's time; its runs are shorter, about half as long with all that is around.
            let grid = search.grid();
            let runs = (grid.len() * 2 / 5).max(2);
            for _ in 1..runs {
                let Some(settings) = search.next() else { break };
                assert!(settings.num_workers <= most || settings == current);
                assert_eq!(settings, settings.canonical());
                let seconds = measure(settings);
                search.observe(settings, seconds, wait(seconds));
            }
            assert!(search.measured.iter().all(|m| m.runs <= RUNS));
            let best = grid.iter().map(|&at| time(&truth, at)).fold(f64::INFINITY, f64::min);
            regrets.push(time(&truth, search.best().settings) / best - 1.0);
        }
        regrets.sort_by(f64::total_cmp);
        assert!(regrets[30] <= 0.02, "median regret {}", regrets[30]);
        assert!(regrets[54] <= 0.06, "ninth of ten regrets {}", regrets[54]);
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

    /// Two workers, and one batch in 20 that takes much longer than the others.
    fn with_a_tail() -> (Pipeline, Settings) {
        let cost = |cpu, blocked| Cost { cpu, blocked, parallel: 1.0, bytes: 0.0 };
        let make = (0..40).map(|i| cost(0.001, if i % 20 == 7 { 0.08 } else { 0.004 })).collect();
        let step = vec![cost(0.0, 0.006)];
        let tail = Pipeline {
            cores: 2.0,
            scaling: 2.0,
            workers: 2,
            prefetch: 2,
            in_order: true,
            make,
            step,
            ..Pipeline::default()
        };
        let current =
            Settings { num_workers: 2, prefetch_factor: 2, persistent_workers: true, ..Settings::default() };
        (tail, current)
    }

    #[test]
    fn a_deep_queue_is_found_at_once_where_batches_differ() {
        let (tail, current) = with_a_tail();
        let first = time(&tail, current);
        let mut search = Search::new(tail.clone(), 2, false, false, current, first, first - 0.006);
        let mut tried = Vec::new();
        while let Some(settings) = search.next().filter(|_| tried.len() < 3) {
            tried.push(settings.prefetch_factor);
            let seconds = time(&tail, settings);
            search.observe(settings, seconds, seconds - 0.006);
        }
        assert_eq!(tried[0], 8, "{tried:?}");
        assert!(search.best().time < 0.95 * first, "{:?}", search.measured);
    }

    #[test]
    fn what_is_nearly_as_good_is_run_again_and_its_mean_counts() {
        let (tail, current) = with_a_tail();
        let mut search = Search::new(tail, 2, false, false, current, 0.0100, 0.004);
        let deep = Settings { prefetch_factor: 8, ..current };
        let mut runs = 0;
        while let Some(settings) = search.next() {
            runs += 1;
            assert!(runs < 20, "{:?}", search.measured);
            let again = search.measured.iter().any(|m| m.settings == settings);
            // The script's settings looked better by chance.
            let seconds = match settings {
                at if at == current => 0.0110,
                at if at == deep => {
                    if again {
                        0.0100
                    } else {
                        0.0101
                    }
                }
                _ => 0.0130,
            };
            search.observe(settings, seconds, seconds - 0.006);
        }
        let of = |at| search.measured.iter().find(|m| m.settings == at).unwrap();
        assert_eq!((of(current).runs, of(deep).runs), (2, 2));
        assert!((of(current).time - 0.0105).abs() < 1e-9);
        assert_eq!(search.best().settings, deep);
    }

    /// As a script had it whose training process decodes, and whose operations use all cores.
    #[test]
    fn two_workers_are_tried_where_one_is_worse_than_none() {
        let cost = |cpu| Cost { cpu, blocked: 0.0, parallel: 1.0, bytes: 0.0 };
        let inline = Pipeline {
            cores: 2.0,
            scaling: 1.0,
            workers: 0,
            make: vec![cost(0.058)],
            step: vec![cost(0.005)],
            ..Pipeline::default()
        };
        let current = Settings { num_workers: 0, ..Settings::default() }.canonical();
        let mut search = Search::new(inline, 2, false, false, current, 0.063, 0.058);
        while let Some(settings) = search.next() {
            let seconds = [0.063, 0.075, 0.048][settings.num_workers];
            search.observe(settings, seconds, seconds / 2.0);
        }
        assert_eq!(search.best().settings.num_workers, 2, "{:?}", search.measured);
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
