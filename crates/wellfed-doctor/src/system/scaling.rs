//! How much more all cores do together than one alone: less than their number where hardware threads share a core.

use std::{hint::black_box, sync::Barrier, thread, time::Duration};

use super::{
    Machine,
    clock::{monotonic, nanoseconds, thread_cpu},
};

/// Time of each of two measurements.
const TIME: Duration = Duration::from_millis(80);

impl Machine {
    /// Measures [`Machine::scaling`]; takes about a sixth of a second of all cores, so not while something else is measured.
    pub fn measure_scaling(&mut self) {
        let threads = self.cores.ceil() as usize;
        if threads < 2 {
            self.scaling = self.cores;
            return;
        }
        let (alone, together) = (speed(1), speed(threads));
        if alone > 0.0 && together > 0.0 {
            self.scaling = (self.cores * together / alone).clamp(1.0, self.cores.max(1.0));
        }
    }
}

/// Work a nanosecond of CPU time that each of `threads` does, mean. Time in which others had the core does not count.
fn speed(threads: usize) -> f64 {
    let barrier = Barrier::new(threads);
    let work = || {
        barrier.wait();
        let (begin, cpu) = (monotonic(), thread_cpu());
        let mut rounds = 0_u64;
        while monotonic().saturating_sub(begin) < nanoseconds(TIME) {
            round();
            rounds += 1;
        }
        rounds as f64 / thread_cpu().saturating_sub(cpu).max(1) as f64
    };
    thread::scope(|scope| {
        let handles: Vec<_> =
            (0..threads).map(|_| thread::Builder::new().spawn_scoped(scope, work)).collect();
        let speeds: Vec<_> = handles.into_iter().flatten().filter_map(|handle| handle.join().ok()).collect();
        speeds.iter().sum::<f64>() / speeds.len().max(1) as f64
    })
}

/// Sums and products of what lies in the first cache, as decoders make them.
fn round() {
    let mut values = [0_i32; 2048];
    for (i, value) in values.iter_mut().enumerate() {
        *value = i as i32;
    }
    for pass in 0..16 {
        for i in 8..values.len() {
            values[i] = values[i].wrapping_mul(77).wrapping_add(values[i - 8] >> 3) ^ pass;
        }
    }
    black_box(values);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_together_do_more_than_one_and_at_most_all() {
        let mut machine = Machine::this();
        machine.measure_scaling();
        assert!(
            machine.scaling >= machine.cores.min(1.0) && machine.scaling <= machine.cores.max(1.0),
            "{machine:?}"
        );
        let mut one = Machine { cores: 1.0, ..Machine::default() };
        one.measure_scaling();
        assert_eq!(one.scaling, 1.0);
    }
}
