//! How long requests take: when one is among the slowest percent, and percentiles for whoever looks.
//!
//! Large answers take longer than small ones, so times are kept by size.

use std::time::Duration;

/// Times that are remembered of each class of sizes.
const RECENT: usize = 256;

/// A class that has fewer says nothing of a slowest percent.
const ENOUGH: usize = 100;

/// Times are looked at again after so many new ones.
const AGAIN: usize = 16;

/// What takes less is never slow.
const LEAST: Duration = Duration::from_millis(10);

/// Classes of sizes: up to 64 KiB, and then each twice as large as the one before.
const CLASSES: usize = 9;

/// Buckets of percentiles: eight for each doubling of the time, from 10 us on.
const BUCKETS: usize = 8 * 27;
const SHORTEST: f64 = 1e-5;

/// So many times count; then all of them count half, so that percentiles are of the recent ones.
const REMEMBERED: u64 = 8192;

#[derive(Debug, Default)]
struct Class {
    recent: Vec<f64>,
    next: usize,
    /// New ones since the last look.
    new: usize,
    slow: Option<Duration>,
}

#[derive(Debug)]
pub(super) struct Times {
    classes: [Class; CLASSES],
    buckets: Vec<u64>,
    count: u64,
}

impl Default for Times {
    fn default() -> Self {
        Self { classes: Default::default(), buckets: vec![0; BUCKETS], count: 0 }
    }
}

fn class(bytes: u64) -> usize {
    ((bytes >> 16).checked_ilog2().map_or(0, |log| log as usize + 1)).min(CLASSES - 1)
}

impl Times {
    /// A request for so many bytes took so long.
    pub(super) fn add(&mut self, bytes: u64, took: Duration) {
        let seconds = took.as_secs_f64();
        let class = &mut self.classes[class(bytes)];
        match class.recent.get_mut(class.next) {
            Some(old) => *old = seconds,
            None => class.recent.push(seconds),
        }
        class.next = (class.next + 1) % RECENT;
        class.new += 1;
        if class.recent.len() >= ENOUGH && (class.new >= AGAIN || class.slow.is_none()) {
            class.look();
        }
        let bucket = (8.0 * (seconds / SHORTEST).max(1.0).log2()) as usize;
        self.buckets[bucket.min(BUCKETS - 1)] += 1;
        self.count += 1;
        if self.count >= REMEMBERED {
            self.buckets.iter_mut().for_each(|count| *count /= 2);
            self.count = self.buckets.iter().sum();
        }
    }

    /// A request for so many bytes that takes longer is one of the slowest percent. `None`, if that is not known.
    pub(super) fn slow(&self, bytes: u64) -> Option<Duration> {
        self.classes[class(bytes)].slow
    }

    /// The time in seconds that this part of the requests did not exceed, within a twentieth of it. 0 before there was one.
    pub(super) fn percentile(all: &[&Self], part: f64) -> f64 {
        let count: u64 = all.iter().map(|times| times.count).sum();
        let wanted = ((count as f64 * part).ceil() as u64).max(1);
        let mut seen = 0;
        for bucket in 0..BUCKETS {
            seen += all.iter().map(|times| times.buckets[bucket]).sum::<u64>();
            if seen >= wanted {
                return SHORTEST * ((bucket as f64 + 0.5) / 8.0).exp2();
            }
        }
        0.0
    }
}

impl Class {
    fn look(&mut self) {
        self.new = 0;
        let mut sorted = self.recent.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let at = |part: usize| sorted[(sorted.len() * part / 100).min(sorted.len() - 1)];
        // Where all take about the same time, there is nothing to gain by asking twice.
        let slow = at(99).max(2.0 * at(50));
        self.slow = Some(Duration::from_secs_f64(slow).max(LEAST));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_near_the_true_ones() {
        let mut times = Times::default();
        assert_eq!(Times::percentile(&[&times], 0.5), 0.0);
        for ms in 1..=1000 {
            times.add(1000, Duration::from_millis(ms));
        }
        for (part, wanted) in [(0.5, 0.5), (0.95, 0.95), (0.99, 0.99)] {
            let found = Times::percentile(&[&times, &Times::default()], part);
            assert!((found / wanted - 1.0).abs() < 0.05, "{found} for {wanted}");
        }
        for _ in 0..100_000 {
            times.add(1000, Duration::from_micros(1));
        }
        assert!(Times::percentile(&[&times], 0.99) < 2e-5, "those of long ago count no more");
        times.add(1000, Duration::from_secs(1_000_000));
    }

    #[test]
    fn the_slowest_percent_is_one_of_its_size() {
        let mut times = Times::default();
        for number in 0..99 {
            times.add(100, Duration::from_millis(20 + number % 10));
        }
        assert_eq!(times.slow(100), None, "too few to tell");
        for number in 0..500 {
            times.add(100, Duration::from_millis(if number % 200 == 0 { 900 } else { 20 + number % 10 }));
            times.add(8 << 20, Duration::from_millis(700));
        }
        let slow = |bytes| times.slow(bytes).map(|slow| slow.as_millis());
        assert!((48..900).contains(&slow(64).unwrap()), "{:?}", slow(64));
        assert_eq!((slow(9 << 20), slow(1 << 40), slow(1 << 20)), (Some(1400), Some(1400), None));
        for _ in 0..300 {
            times.add(1 << 20, Duration::from_micros(300));
        }
        assert_eq!(times.slow(1 << 20), Some(LEAST));
    }
}
