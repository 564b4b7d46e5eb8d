//! The queueing model: what a training loop would do if something were different.
//!
//! A [`Pipeline`] has the costs of batches and steps as they were measured, one by one, not as means: a slow sample in two hundred
//! delays others only if workers cannot make up for it. [`Pipeline::time`] plays the loop event by event. Cores are
//! shared equally by whoever wants to run, bandwidth by whoever reads, batches arrive in order as torch's loader gives them.

mod play;

/// How often a step's time is computed anew from the cores that workers have left.
const SETTLES: usize = 8;

/// How many times as much threads wait at most as they did.
const MOST_CROWDED: f64 = 2.0;

/// What a piece of work needs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Seconds of waiting that needs no core: storage latency, sleep, a device.
    pub blocked: f64,
    /// Core-seconds, on a core whose neighbours are idle.
    pub cpu: f64,
    /// Cores it can use at once, at least 1.
    pub parallel: f64,
    /// Bytes through the shared bandwidth.
    pub bytes: f64,
}

impl Cost {
    /// Seconds alone on the machine.
    pub fn alone(&self) -> f64 {
        self.blocked + self.cpu / self.parallel.max(1.0)
    }
}

/// Waiting of threads that share out a step's work: for the one of them that has no core, because a worker has it. It is as much as
/// workers compute.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stall {
    /// Share of the step.
    pub share: f64,
    /// Cores that workers used meanwhile.
    pub crowd: f64,
}

/// A training loop and its loader.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pipeline {
    /// Cores there are.
    pub cores: f64,
    /// Work all cores do together, as a multiple of one alone: at most `cores`.
    pub scaling: f64,
    /// Threads of others that want to run all the time.
    pub neighbours: f64,
    /// Workers; 0 makes batches inline.
    pub workers: usize,
    /// Batches asked of each worker ahead.
    pub prefetch: usize,
    /// Whether batches come in the order they were asked for.
    pub in_order: bool,
    /// Bytes a second that all readers share, if that is what limits them.
    pub bandwidth: Option<f64>,
    /// Costs of batches, as measured.
    pub make: Vec<Cost>,
    /// What the main process does with a batch that comes from a worker, core-seconds.
    pub receive: f64,
    /// Costs of steps, as measured.
    pub step: Vec<Cost>,
    /// What of a step its threads wait for each other, where workers have the cores.
    pub stall: Option<Stall>,
    /// Seconds that the end of an epoch and the beginning of the next add.
    pub restart: f64,
    /// Steps an epoch; 0 if epochs do not matter.
    pub steps_per_epoch: f64,
}

impl Pipeline {
    /// Seconds a step, in the steady state and with its share of the epoch's beginning.
    pub fn time(&self) -> f64 {
        self.time_of(0)
    }

    /// The same, beginning elsewhere among the measured costs.
    pub fn time_of(&self, seed: u64) -> f64 {
        let restart = if self.steps_per_epoch >= 1.0 { self.restart / self.steps_per_epoch } else { 0.0 };
        self.settled(seed) + restart
    }

    /// Seconds a step. Where threads of the step wait for workers, how much they do depends on how long a step takes.
    fn settled(&self, seed: u64) -> f64 {
        let mut time = play::play(self, seed);
        let Some(stall) = self.stall else { return time };
        for _ in 0..SETTLES {
            let crowd = self.crowd(time) / stall.crowd.max(1e-9);
            let left = 1.0 - stall.share + stall.share * crowd.min(MOST_CROWDED);
            let changed =
                self.with_step(|cost| Cost { blocked: left * cost.blocked, cpu: left * cost.cpu, ..*cost });
            time = 0.5 * (time + play::play(&changed, seed));
        }
        time
    }

    /// Cores that making batches uses where a step takes so many seconds.
    pub fn crowd(&self, time: f64) -> f64 {
        let make = self.make.iter().map(|cost| cost.cpu).sum::<f64>() / self.make.len().max(1) as f64;
        make / time.max(1e-12)
    }

    /// The same pipeline whose data is always there.
    pub fn without_input(&self) -> Self {
        Self { make: vec![Cost::default()], receive: 0.0, restart: 0.0, bandwidth: None, ..self.clone() }
    }

    /// The same with every batch's cost changed.
    pub fn with_make(&self, change: impl Fn(&Cost) -> Cost) -> Self {
        Self { make: self.make.iter().map(change).collect(), ..self.clone() }
    }

    /// The same with every step's cost changed.
    pub fn with_step(&self, change: impl Fn(&Cost) -> Cost) -> Self {
        Self { step: self.step.iter().map(change).collect(), ..self.clone() }
    }

    /// How fast one core is while `busy` of them are, relative to one alone: hardware threads share cores.
    pub fn speed(&self, busy: f64) -> f64 {
        if self.cores <= 1.0 || self.scaling <= 0.0 {
            return 1.0;
        }
        let all = (self.scaling / self.cores).clamp(0.1, 1.0);
        let others = ((busy - 1.0) / (self.cores - 1.0)).clamp(0.0, 1.0);
        1.0 - (1.0 - all) * others
    }

    /// The smallest number of workers up to `limit` that is within 2 % of the best, and its time.
    pub fn best_workers(&self, limit: usize) -> (usize, f64) {
        let times: Vec<f64> =
            (1..=limit.max(1)).map(|workers| Self { workers, ..self.clone() }.time()).collect();
        let best = times.iter().copied().fold(f64::INFINITY, f64::min);
        let at = times.iter().position(|&time| time <= best * 1.02).unwrap_or(0);
        (at + 1, times[at])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(super) fn pipeline(workers: usize, make: Cost, step: Cost) -> Pipeline {
        Pipeline {
            cores: 2.0,
            scaling: 2.0,
            workers,
            prefetch: 2,
            in_order: true,
            make: vec![make],
            step: vec![step],
            ..Pipeline::default()
        }
    }

    fn cpu(cpu: f64) -> Cost {
        Cost { cpu, parallel: 1.0, ..Cost::default() }
    }

    fn blocked(blocked: f64) -> Cost {
        Cost { blocked, parallel: 1.0, ..Cost::default() }
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 0.02 * b
    }

    #[test]
    fn inline_loading_adds_up_and_workers_overlap() {
        assert!(close(pipeline(0, cpu(0.03), blocked(0.02)).time(), 0.05));
        assert!(close(pipeline(1, cpu(0.03), blocked(0.02)).time(), 0.03));
        assert!(close(pipeline(2, cpu(0.03), blocked(0.02)).time(), 0.02));
        assert!(close(pipeline(2, cpu(0.06), blocked(0.02)).time(), 0.03));
        assert!(close(pipeline(8, cpu(0.06), blocked(0.02)).time(), 0.03), "two cores are two cores");
        assert!(close(pipeline(8, blocked(0.08), blocked(0.005)).time(), 0.01), "waiting needs no core");
    }

    #[test]
    fn who_shares_cores_slows_the_other_down() {
        // 20 ms of CPU in the loop and 30 ms in a worker for each step, on two cores: 25 ms at best, 30 for one worker.
        assert!(close(pipeline(1, cpu(0.03), cpu(0.02)).time(), 0.03));
        assert!(close(pipeline(2, cpu(0.03), cpu(0.02)).time(), 0.025));
        let busy = Pipeline { neighbours: 2.0, ..pipeline(1, cpu(0.03), blocked(0.001)) };
        assert!(close(busy.time(), 0.045), "three want two cores: {}", busy.time());
        let shared = Pipeline { scaling: 1.2, ..pipeline(2, cpu(0.06), blocked(0.02)) };
        assert!(close(shared.time(), 0.05), "hardware threads: {}", shared.time());
    }

    #[test]
    fn bandwidth_is_shared() {
        let make = Cost { bytes: 1e6, parallel: 1.0, ..Cost::default() };
        for workers in [1, 2, 8] {
            let pipeline = Pipeline { bandwidth: Some(1e8), ..pipeline(workers, make, blocked(0.001)) };
            assert!(close(pipeline.time(), 0.01), "{workers} workers: {}", pipeline.time());
        }
    }

    #[test]
    fn a_slow_batch_holds_up_the_others_in_order() {
        let mut slow = pipeline(2, blocked(0.01), blocked(0.006));
        slow.make = vec![blocked(0.01); 20];
        slow.make[7] = blocked(0.4);
        let without = Pipeline { make: vec![blocked(0.01)], ..slow.clone() };
        assert!(slow.time() > 1.3 * without.time());
    }

    #[test]
    fn threads_that_workers_hold_up_wait_less_where_workers_do_less() {
        // Half of a step of 20 ms is waiting for the core of a worker.
        let mut p = pipeline(1, cpu(0.015), blocked(0.02));
        let plain = p.time();
        p.stall = Some(Stall { share: 0.5, crowd: p.crowd(plain) });
        assert!(close(p.time(), plain), "as it was measured: {} {plain}", p.time());
        let less = |left: f64| p.with_make(|cost| Cost { cpu: left * cost.cpu, ..*cost }).time();
        assert!(close(less(0.0), 0.01), "nobody is in the way: {}", less(0.0));
        let half = less(0.5);
        assert!(half < 0.95 * plain && half > less(0.25) && less(0.25) > less(0.0), "{half} {}", less(0.25));
    }

    #[test]
    fn the_beginning_of_an_epoch_counts_by_its_share() {
        let pipeline =
            Pipeline { restart: 1.0, steps_per_epoch: 20.0, ..pipeline(2, cpu(0.001), blocked(0.05)) };
        assert!(close(pipeline.time(), 0.1));
    }

    #[test]
    fn workers_are_not_added_for_nothing() {
        assert_eq!(pipeline(1, cpu(0.06), blocked(0.02)).best_workers(8).0, 2);
        assert_eq!(pipeline(1, cpu(0.001), blocked(0.02)).best_workers(8).0, 1);
        assert_eq!(pipeline(1, blocked(0.06), blocked(0.02)).best_workers(8).0, 3);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        /// Nothing gets faster than its slowest part allows, and never slower than doing all in a row.
        #[test]
        fn bounds_hold(
            workers in 0usize..6, b in 0.0f64..0.05, c in 0.001f64..0.05, d in 0.0f64..0.05, m in 0.0f64..0.02
        ) {
            let make = Cost { blocked: b, cpu: c, parallel: 1.0, bytes: 0.0 };
            let step = Cost { blocked: d, cpu: m, parallel: 1.0, bytes: 0.0 };
            let time = pipeline(workers, make, step).time();
            let one_by_one = b + c + d + m;
            prop_assert!(time <= one_by_one * 1.03, "{time} > {one_by_one}");
            let floor = f64::max(d + m, (c + m) / 2.0).max((b + c) / workers.max(1) as f64);
            prop_assert!(time >= floor * 0.97, "{time} < {floor}");
        }
    }
}
