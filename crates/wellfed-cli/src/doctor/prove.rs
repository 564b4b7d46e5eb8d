//! The trial after a run: what can be changed from outside is tried for some seconds, in the script that was run.
//!
//! Invariant: a trial overwrites nothing. The script runs confined (`wellfed_probe/confine.py`): it cannot write outside of the run's own
//! folder, `/dev` and `/proc`, connect by TCP, or send signals; where the kernel cannot see to that, it does not run. UDP and Unix
//! sockets in the file system are beyond what the kernel forbids. What it writes into its own folders is kept in memory and forgotten,
//! where the kernel can cover them (`wellfed_probe/cover.py`). What needs more than that is
//! tried with `wellfed doctor try`, by whoever knows that the script may run again.

use std::{ffi::OsString, time::Duration};

use wellfed_doctor::{
    diagnose,
    evidence::Evidence,
    proved::Tried,
    record::Record,
    report::{Fix, Report},
    run_dir::RunDir,
};

use super::{Setting, trial::Trials};
use crate::output;

/// Seconds that all trials after a run take at most.
const MOST: f64 = 20.0;

/// Seconds that a run takes beside its start and its steps.
const ENDING: f64 = 0.7;

/// Steps that a trial should have, besides those in which batches are still there from before.
const STEPS: f64 = 24.0;

/// The shortest and the longest time of a trial's steps.
const SECONDS: (f64, f64) = (0.5, 6.0);

/// How long the runs of a trial are.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Length {
    /// Seconds of steps.
    time: f64,
    /// Whether the script is run without the change, too; else the run itself is what the change is compared with.
    both: bool,
}

/// Runs of the script that may begin after it has ended.
#[derive(Debug)]
pub(super) struct Prover<'a> {
    pub(super) words: &'a [OsString],
    pub(super) python: Option<&'a OsString>,
    pub(super) setting: &'a Setting,
}

impl Prover<'_> {
    /// Tries the fix, and if it is refuted the next; notes in `run` what came of it.
    pub(super) fn prove(&self, run: &mut RunDir) {
        let begin = std::time::Instant::now();
        if !matches!(run.run.exit.reason.as_str(), "finished" | "steps" | "time")
            || run.run.exit.code != Some(0)
        {
            return;
        }
        let evidence = Evidence::of(run);
        let Some(start) = start(run, &evidence) else { return };
        let most = MOST.min(2.0 * evidence.duration);
        for _ in 0..2 {
            let report = diagnose(run);
            let Some(fix) = next(&report, &run.tried) else { return };
            let left = most - begin.elapsed().as_secs_f64();
            let mut tried = Tried {
                apply: fix.apply.clone().unwrap_or_default(),
                title: fix.title.clone(),
                ..Tried::default()
            };
            let lengths = length(start, evidence.steps.whole(), least(&report, &evidence), left);
            let several = evidence.loaders.iter().filter(|used| used.steps > 0).count() > 1;
            let problem = match lengths {
                // Some seconds may not come to the loop that this is about.
                _ if several => {
                    Err("the script has several loops; `wellfed doctor try` takes its time".to_owned())
                }
                Some(length) => self.compare(&mut tried, start, length, &evidence),
                None => {
                    let needed = start + ENDING + least(&report, &evidence);
                    Err(format!(
                        "a trial would take {needed:.0} s, {left:.0} s are left for it; `wellfed doctor try` takes that time"
                    ))
                }
            };
            tried.problem = problem.err().unwrap_or_default();
            let done = tried.refuted();
            run.tried.push(tried);
            if !done {
                return;
            }
        }
    }

    fn compare(
        &self,
        tried: &mut Tried,
        start: f64,
        length: Length,
        evidence: &Evidence,
    ) -> Result<(), String> {
        let runs = if length.both { 2.0 } else { 1.0 };
        let whole = runs * (start + length.time + ENDING);
        output::note(format_args!(
            "trying for {whole:.0} s: {} (--no-trial leaves it out, Ctrl-C ends it)",
            tried.title
        ));
        let begin = std::time::Instant::now();
        let deadline = Duration::from_secs_f64(2.0 * (start + ENDING) + length.time + 1.0);
        let error = |error: wellfed::Error| error.to_string().lines().next().unwrap_or_default().to_owned();
        let mut trials =
            Trials::new(self.words, self.python, self.setting, None, Some(length.time)).map_err(error)?;
        trials.confine(deadline);
        tried.after = trials.run("with the change", Some(&tried.apply)).map_err(error)?.time();
        tried.before = if length.both {
            trials.run("as it is", None).map_err(error)?.time()
        } else {
            evidence.steps.whole()
        };
        tried.seconds = begin.elapsed().as_secs_f64();
        Ok(())
    }
}

/// The first fix that can be applied from outside and was not tried yet: of the verdict, or of what comes right after it.
fn next<'a>(report: &'a Report, tried: &[Tried]) -> Option<&'a Fix> {
    let verdicts = [Some(&report.verdict), report.runner_up.as_ref()];
    verdicts
        .into_iter()
        .flatten()
        .filter_map(|verdict| verdict.fix.as_ref())
        .find(|fix| fix.apply.as_ref().is_some_and(|apply| tried.iter().all(|tried| tried.apply != *apply)))
}

/// Seconds from the script's start to its first step.
fn start(run: &RunDir, evidence: &Evidence) -> Option<f64> {
    let loader = evidence.loader()?.loader;
    let records = run.processes.iter().flat_map(|process| &process.records);
    let first = records.filter_map(|record| match record {
        Record::Iter(iter) if iter.loader == loader => Some(iter.t0),
        _ => None,
    });
    first.min().map(|t| t.saturating_sub(run.run.t0) as f64 * 1e-9)
}

/// Seconds of steps that a trial needs to show anything.
fn least(report: &Report, evidence: &Evidence) -> f64 {
    let ahead = evidence.loader().map_or(0.0, |loader| loader.num_workers.max(2) as f64 * 3.0);
    let step = evidence.steps.whole();
    let epoch = evidence.steps.steps_per_epoch * step;
    // What is paid at the begin of an epoch shows where there are several.
    let epochs = if report.verdict.id == "worker-restart" { 3.2 * epoch } else { 0.0 };
    ((STEPS + ahead) * step).max(epochs).max(SECONDS.0)
}

/// How long runs may be that begin `start` seconds before their first step; nothing if there is no time for one of `least`.
fn length(start: f64, step: f64, least: f64, left: f64) -> Option<Length> {
    let room = |runs: f64| left / runs - start - ENDING;
    let time = |room: f64| room.min(SECONDS.1.max(least)).max(least);
    let fits = |runs: f64| step > 0.0 && room(runs) >= least;
    if fits(2.0) {
        Some(Length { time: time(room(2.0)), both: true })
    } else if fits(1.0) {
        Some(Length { time: time(room(1.0)), both: false })
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trials_are_as_long_as_there_is_time_for() {
        assert_eq!(length(1.0, 0.01, 0.5, 20.0), Some(Length { time: 6.0, both: true }));
        let two = length(3.0, 0.01, 0.5, 10.0).unwrap();
        assert!(two.both && (two.time - (5.0 - 3.0 - ENDING)).abs() < 1e-9);
        assert!(!length(3.0, 0.05, 1.8, 6.0).unwrap().both);
        assert_eq!(length(3.0, 1.0, 30.0, 20.0), None);
    }

    #[test]
    fn a_fix_is_tried_once() {
        let apply = wellfed_doctor::report::Apply { feed: true, ..Default::default() };
        let mut report = Report::default();
        assert!(next(&report, &[]).is_none());
        report.verdict.fix = Some(Fix { apply: Some(apply.clone()), ..Fix::default() });
        assert!(next(&report, &[]).is_some());
        assert!(next(&report, &[Tried { apply, ..Tried::default() }]).is_none());
    }
}
