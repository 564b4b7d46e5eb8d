//! What the device does in a step, kernel by kernel: the only evidence that sees the gaps between kernels.

use super::seconds;
pub use crate::report::Kernels;
use crate::{record::Record, run_dir::ProcessRecords};

impl Kernels {
    /// Those of a loader. Notes what was done for them, and what kept them from being known.
    pub(super) fn of(main: &ProcessRecords, loader: u32, notes: &mut Vec<String>) -> Option<Self> {
        let records = main.records.iter().filter_map(|record| match record {
            Record::Kernels(kernels) if kernels.loader == loader => Some(kernels),
            _ => None,
        });
        let mut why = None;
        for kernels in records {
            let steps = kernels.steps as f64;
            if kernels.kernels == 0 || kernels.steps == 0 {
                why = Some(&kernels.why);
                continue;
            }
            notes.push(format!(
                "Kernels were looked at in {} steps by torch's profiler; these, and the {:.1} s that it took in all, count for nothing else.",
                kernels.steps,
                seconds(kernels.t1.saturating_sub(kernels.t0)),
            ));
            return Some(Self {
                steps: kernels.steps,
                count: kernels.kernels as f64 / steps,
                busy: seconds(kernels.busy) / steps,
                each: seconds(kernels.time) / kernels.kernels as f64,
                copies: seconds(kernels.copies) / steps,
                copies_alone: seconds(kernels.alone) / steps,
                profiled: seconds(kernels.profiled) / steps,
            });
        }
        if let Some(why) = why.filter(|why| !why.is_empty()) {
            notes.push(format!(
                "Kernels could not be looked at ({why}): whether the device waits for launches is not known, as its driver calls it busy then, too."
            ));
        }
        None
    }

    /// Share of a step of so many seconds in which a kernel runs.
    pub fn share(&self, step: f64) -> f64 {
        if step > 0.0 { (self.busy / step).min(1.0) } else { 0.0 }
    }
}

/// Time between two writings of what was seen, nanoseconds, and some more: a record that ends so late may begin before.
const WRITING: u64 = 600_000_000;

/// When stacks are not those of usual steps: from begin to end, nanoseconds.
pub(super) fn left_out(main: &ProcessRecords) -> Vec<(u64, u64)> {
    let spans = main.records.iter().filter_map(|record| match record {
        Record::Kernels(kernels) if kernels.last.is_some() => Some((kernels.t0, kernels.t1 + WRITING)),
        _ => None,
    });
    spans.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record;

    fn process(kernels: Vec<record::Kernels>) -> ProcessRecords {
        let records = kernels.into_iter().map(Record::Kernels).collect();
        ProcessRecords { records, ..ProcessRecords::default() }
    }

    #[test]
    fn kernels_are_told_by_the_step() {
        let ended =
            record::Kernels { why: "the loop ended".to_owned(), last: Some(12), ..Default::default() };
        let seen = record::Kernels {
            steps: 20,
            kernels: 20_000,
            busy: 40_000_000,
            time: 44_000_000,
            profiled: 900_000_000,
            t0: 1_000_000_000,
            t1: 3_500_000_000,
            last: Some(50),
            ..Default::default()
        };
        let main = process(vec![ended, seen]);
        let mut notes = Vec::new();
        let kernels = Kernels::of(&main, 0, &mut notes).unwrap();
        assert!((kernels.count - 1000.0).abs() < 1e-9 && (kernels.busy - 0.002).abs() < 1e-12);
        assert!((kernels.each - 2.2e-6).abs() < 1e-12 && (kernels.share(0.033) - 0.0606).abs() < 1e-3);
        assert!(notes.len() == 1 && notes[0].contains("20 steps") && notes[0].contains("2.5 s"), "{notes:?}");
        assert_eq!(left_out(&main)[1], (1_000_000_000, 4_100_000_000));
        assert!(Kernels::of(&main, 1, &mut Vec::new()).is_none(), "another loader's");
    }

    #[test]
    fn why_nothing_is_known_is_noted() {
        let why = "the script uses a profiler itself".to_owned();
        let main = process(vec![record::Kernels { why: why.clone(), ..Default::default() }]);
        let mut notes = Vec::new();
        assert!(Kernels::of(&main, 0, &mut notes).is_none());
        assert!(notes[0].contains(&why), "{notes:?}");
        assert!(left_out(&main).is_empty());
        notes.clear();
        assert!(Kernels::of(&process(Vec::new()), 0, &mut notes).is_none() && notes.is_empty());
    }
}
