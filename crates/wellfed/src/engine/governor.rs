//! Tunes workers, prefetch and read-ahead while the loader runs, inside the user's fixed numbers and the budget.
//!
//! [`decide`] is a pure function from what was observed in the last interval to new settings, so that it can be
//! tested without threads. It never changes what comes out, only when.

use std::time::Duration;

/// How often settings are looked at.
pub(crate) const INTERVAL: Duration = Duration::from_millis(200);

/// Reader threads at most: enough to hide 10 ms of latency at 1,500 samples a second.
pub(crate) const MAX_READERS: usize = 16;

/// A consumer that waits for more than this share of the time is starving.
const STARVING: f64 = 0.03;

/// Workers that read for more than this share of their busy time would gain from readers.
const READ_BOUND: f64 = 0.25;

/// Workers that idle for more than this share can do with one less.
const MOSTLY_IDLE: f64 = 0.6;

/// What the governor may set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) workers: usize,
    pub(crate) prefetch: usize,
    pub(crate) readers: usize,
}

/// Bounds on each setting: equal where the user fixed it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) workers: (usize, usize),
    pub(crate) prefetch: (usize, usize),
    pub(crate) readers: (usize, usize),
}

/// Shares of the last interval, each in 0..=1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observation {
    /// Of the consumer's time: waiting for a batch.
    pub(crate) waiting: f64,
    /// Of the active workers' busy time: reading.
    pub(crate) reading: f64,
    /// Of the active workers' time: nothing to do.
    pub(crate) idle: f64,
    /// Mean share of the prefetched batches that lay ready when one was taken.
    pub(crate) ready: f64,
}

/// New settings after an interval.
pub(crate) fn decide(now: Settings, seen: Observation, bounds: &Bounds) -> Settings {
    let mut next = now;
    if seen.waiting > STARVING {
        next.workers += 1;
        if seen.reading > READ_BOUND {
            next.readers = (now.readers * 2).max(2);
        }
        if seen.ready > 0.5 {
            // Plenty lay ready, and yet the consumer waited: it comes in bursts.
            next.prefetch += 1;
        }
    } else if seen.idle > MOSTLY_IDLE {
        // The consumer is the slow side: give it the core.
        next.workers = now.workers.saturating_sub(1);
    }
    let clamp = |value: usize, (low, high): (usize, usize)| value.clamp(low, high.max(low));
    Settings {
        workers: clamp(next.workers, bounds.workers),
        prefetch: clamp(next.prefetch, bounds.prefetch),
        readers: clamp(next.readers, bounds.readers),
    }
}

/// Ranks that a launcher started on this machine, which share its cores and memory: `LOCAL_WORLD_SIZE` of torchrun (and
/// Accelerate, DeepSpeed, Lightning), or the tasks of SLURM's job step here. 1 where neither says.
fn local_ranks(variable: impl Fn(&str) -> Option<String>) -> usize {
    // SLURM writes 4(x2),3 for two nodes of 4 tasks and one of 3. Nodes of fewer tasks have more than they need.
    let number = |name: &str| {
        let text = variable(name)?;
        let digits = text.trim().split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse::<usize>().ok().filter(|ranks| *ranks > 0)
    };
    number("LOCAL_WORLD_SIZE").or_else(|| number("SLURM_STEP_TASKS_PER_NODE")).unwrap_or(1)
}

/// Which of so many ranks are on the machine of `rank`: as many as a launcher says, which numbers those of a machine one after
/// the other; all of them, where none does.
pub(crate) fn ranks_here(rank: u64, ranks: u64) -> std::ops::Range<u64> {
    let known =
        ["LOCAL_WORLD_SIZE", "SLURM_STEP_TASKS_PER_NODE"].iter().any(|name| environment(name).is_some());
    let here = if known { local_ranks(environment) as u64 } else { ranks };
    ranks_beside(rank, ranks, here)
}

fn ranks_beside(rank: u64, ranks: u64, here: u64) -> std::ops::Range<u64> {
    let first = rank / here.max(1) * here;
    first..first.saturating_add(here).min(ranks)
}

fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// This rank's part of `cpus`: all of them where it is alone, what SLURM gave to it, or an equal part.
fn part_of_cpus(cpus: usize, variable: impl Fn(&str) -> Option<String>) -> usize {
    let ranks = local_ranks(&variable);
    let given = variable("SLURM_CPUS_PER_TASK").and_then(|text| text.trim().parse::<usize>().ok());
    match given.filter(|given| ranks > 1 && *given > 0 && variable("LOCAL_WORLD_SIZE").is_none()) {
        Some(given) => cpus.min(given),
        None => (cpus / ranks).max(1),
    }
}

/// CPUs this process may use: affinity and cgroup quota included (as the standard library finds them), divided among
/// the ranks of this machine.
pub(crate) fn available_cpus() -> usize {
    part_of_cpus(std::thread::available_parallelism().map_or(1, usize::from), environment)
}

/// A quarter of the memory this process may use (cgroup v2 limit or physical memory), at most 4 GiB; divided among the
/// ranks of this machine, but at least 64 MiB each.
pub(crate) fn default_budget() -> u64 {
    budget_of(usable_memory(), local_ranks(environment))
}

fn budget_of(memory: u64, ranks: usize) -> u64 {
    (memory / 4 / ranks as u64).clamp(64 << 20, 4 << 30)
}

fn usable_memory() -> u64 {
    let cgroup =
        std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|s| s.trim().parse().ok());
    let physical = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()?.checked_mul(1024)
    });
    [cgroup, physical].into_iter().flatten().min().unwrap_or(4 << 30)
}

/// Memory that nobody uses: of the machine, or of the cgroup (v2) this process is in; divided among the ranks of this
/// machine.
pub(crate) fn available_memory() -> u64 {
    let number = |path: &str| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let limit = number("/sys/fs/cgroup/memory.max");
    let cgroup =
        limit.map(|limit| limit.saturating_sub(number("/sys/fs/cgroup/memory.current").unwrap_or(0)));
    let physical = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("MemAvailable:"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()?.checked_mul(1024)
    });
    let free = [cgroup, physical].into_iter().flatten().min().unwrap_or(2 << 30);
    free / local_ranks(environment) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { workers: (1, 4), prefetch: (2, 8), readers: (0, 16) };
    const START: Settings = Settings { workers: 2, prefetch: 4, readers: 0 };
    const CALM: Observation = Observation { waiting: 0.0, reading: 0.0, idle: 0.1, ready: 0.9 };

    #[test]
    fn ranks_of_a_machine_follow_each_other() {
        assert_eq!((ranks_beside(5, 8, 4), ranks_beside(3, 8, 4)), (4..8, 0..4));
        assert_eq!(
            (ranks_beside(6, 7, 4), ranks_beside(2, 7, 100), ranks_beside(2, 7, 1)),
            (4..7, 0..7, 2..3)
        );
    }

    #[test]
    fn ranks_of_one_machine_share_its_cores_and_its_memory() {
        let with = |set: &'static [(&str, &str)]| {
            move |name: &str| set.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
        };
        for (set, ranks, cpus) in [
            (&[][..], 1, 96),
            (&[("LOCAL_WORLD_SIZE", "8")], 8, 12),
            (&[("LOCAL_WORLD_SIZE", "0")], 1, 96),
            (&[("SLURM_STEP_TASKS_PER_NODE", "4(x2),3")], 4, 24),
            (&[("SLURM_STEP_TASKS_PER_NODE", "4"), ("SLURM_CPUS_PER_TASK", "10")], 4, 10),
            (&[("SLURM_STEP_TASKS_PER_NODE", "1"), ("LOCAL_WORLD_SIZE", "3")], 3, 32),
            (&[("LOCAL_WORLD_SIZE", "1000")], 1000, 1),
        ] {
            assert_eq!((local_ranks(with(set)), part_of_cpus(96, with(set))), (ranks, cpus), "{set:?}");
        }
        assert_eq!([1, 8, 1000].map(|ranks| budget_of(16 << 30, ranks) >> 20), [4096, 512, 64]);
    }

    #[test]
    fn a_fed_consumer_changes_nothing() {
        assert_eq!(decide(START, CALM, &BOUNDS), START);
    }

    #[test]
    fn a_starving_consumer_gets_workers_and_where_reading_is_slow_readers() {
        let starving = Observation { waiting: 0.5, ready: 0.0, ..CALM };
        assert_eq!(decide(START, starving, &BOUNDS), Settings { workers: 3, ..START });
        let slow_disk = Observation { reading: 0.6, ..starving };
        let mut settings = START;
        for _ in 0..10 {
            settings = decide(settings, slow_disk, &BOUNDS);
        }
        assert_eq!(settings, Settings { workers: 4, prefetch: 4, readers: 16 });
    }

    #[test]
    fn bursts_get_a_deeper_queue_and_a_slow_consumer_gets_its_core_back() {
        let bursts = Observation { waiting: 0.2, ready: 0.8, ..CALM };
        assert_eq!(decide(START, bursts, &BOUNDS).prefetch, 5);
        let slow = Observation { idle: 0.9, ..CALM };
        assert_eq!(decide(START, slow, &BOUNDS).workers, 1);
    }

    #[test]
    fn what_the_user_fixed_stays() {
        let fixed = Bounds { workers: (2, 2), prefetch: (4, 4), readers: (0, 0) };
        let starving = Observation { waiting: 1.0, reading: 1.0, idle: 0.0, ready: 1.0 };
        assert_eq!(decide(START, starving, &fixed), START);
    }
}
