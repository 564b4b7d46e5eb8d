//! Trials after a run: what can be changed from outside, and edits of known forms, are tried for some seconds, in the script that was run.
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
    leave,
    patch::Changed,
    proved::Tried,
    record::{Loader, Record},
    report::{Apply, Report},
    run_dir::RunDir,
    verdict::FED,
};

use super::{
    Setting,
    trial::{Trial, Trials},
};
use crate::output;

/// Seconds that all trials after a run take at most.
const MOST: f64 = 20.0;

/// Seconds that trials take at most in which statements are left out, and how many there are of them.
const LEAVING: (f64, usize) = (24.0, 4);

/// Seconds that a run takes beside its start and its steps.
const ENDING: f64 = 0.7;

/// Steps that a trial should have, besides those in which batches are still there from before.
const STEPS: f64 = 24.0;

/// The shortest and the longest time of a trial's steps.
const SECONDS: (f64, f64) = (0.5, 6.0);

/// Share of a step that loading must take for wellfed's loader to be worth a trial.
const WORTH_FEEDING: f64 = 0.08;

/// How long the runs of a trial are.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Length {
    /// Seconds of steps.
    time: f64,
    /// Whether the script is run without the change, too; else the run itself is what the change is compared with.
    both: bool,
}

/// What earlier trials showed.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// Seconds a step of the script as it is, once a trial has measured that.
    before: Option<f64>,
    /// Whether another trial would be in vain: somebody pressed Ctrl-C, or the script does not run as trials run it.
    over: bool,
}

/// Runs of the script that may begin after it has ended.
#[derive(Debug)]
pub(super) struct Prover<'a> {
    pub(super) words: &'a [OsString],
    pub(super) python: Option<&'a OsString>,
    pub(super) setting: &'a Setting,
}

impl Prover<'_> {
    /// Tries the fix, and if it is refuted the next, and wellfed's loader in any case; notes in `run` what came of it.
    pub(super) fn prove(&self, run: &mut RunDir) {
        if !matches!(run.run.exit.reason.as_str(), "finished" | "steps" | "time")
            || run.run.exit.code != Some(0)
        {
            return;
        }
        let evidence = Evidence::of(run);
        let Some(start) = start(run, &evidence) else { return };
        let mut known = Known::default();
        self.fixes(run, &evidence, start, &mut known);
        if begins_first(run, &evidence) {
            self.leave_out(run, &evidence, start, &mut known);
        }
    }

    /// Tries fixes.
    fn fixes(&self, run: &mut RunDir, evidence: &Evidence, start: f64, known: &mut Known) {
        let begin = std::time::Instant::now();
        let most = MOST.min(2.0 * evidence.duration);
        for _ in 0..3 {
            let report = diagnose(run);
            let refuted = run.tried.iter().all(Tried::refuted);
            let feed = feed(&report, evidence, &run.tried);
            let fix = next(&report, &run.tried).filter(|_| refuted);
            // Of what is left, each trial that is to come gets its part.
            let both = fix.as_ref().zip(feed.as_ref()).is_some_and(|(fix, feed)| !fix.is(feed));
            let coming = if both { 2.0 } else { 1.0 };
            let Some(mut tried) = fix.or(feed) else { return };
            let left = most - begin.elapsed().as_secs_f64();
            let least = least(&report, evidence);
            let lengths = length(start, evidence.steps.whole(), least, left, coming, known.before.is_some());
            let problem = match lengths {
                // Some seconds do not come to a loop that begins behind another one.
                _ if !begins_first(run, evidence) => Err(
                    "it is about a loop that begins behind another one; `wellfed doctor try` takes its time"
                        .to_owned(),
                ),
                Some(length) => self.compare(&mut tried, start, length, evidence, known),
                None => {
                    let needed = start + ENDING + least;
                    Err(format!(
                        "a trial would take {needed:.0} s, {left:.0} s are left for it; `wellfed doctor try` takes that time"
                    ))
                }
            };
            tried.problem = problem.err().unwrap_or_default();
            // What an edit cannot do, a setting still may.
            let end = known.over || !tried.problem.is_empty() && tried.edit.is_none();
            run.tried.push(tried);
            if end {
                return;
            }
        }
    }

    /// Leaves out what takes most time in the script's own lines, one statement after the other, to measure what each can gain.
    fn leave_out(&self, run: &mut RunDir, evidence: &Evidence, start: f64, known: &mut Known) {
        let begin = std::time::Instant::now();
        let most = LEAVING.0.min(2.0 * evidence.duration);
        let least = least(&diagnose(run), evidence);
        for number in 0..LEAVING.1 {
            if known.over {
                return;
            }
            let Some(mut tried) = leave::next(evidence, &run.tried) else { return };
            let left = most - begin.elapsed().as_secs_f64();
            let coming = LEAVING.1 - number;
            let Some(length) = (1..=coming)
                .rev()
                .find_map(|trials| each(start, least, left, trials, known.before.is_some()))
            else {
                return;
            };
            // A statement that cannot be left out says nothing.
            tried.problem =
                self.compare(&mut tried, start, length, evidence, known).err().unwrap_or_default();
            run.tried.push(tried);
        }
    }

    fn compare(
        &self,
        tried: &mut Tried,
        start: f64,
        length: Length,
        evidence: &Evidence,
        known: &mut Known,
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
        let loader = evidence.loader().ok_or("there is no loop")?;
        let time = |trial: Trial, loader: &Loader| {
            trial.time_of(loader).ok_or("a trial shows too few steps of the loop".to_owned())
        };
        let whole = evidence.steps.whole();
        // The run itself was as it is, too: of both, each is off by some percent on its own.
        let mean = |again: f64| (again * whole).sqrt();
        let with = trials.edited("with the change", Some(&tried.apply), tried.edit.as_ref());
        if with.is_err() {
            // A setting may be tried where lines cannot.
            let whatever = tried.edit.is_none() || tried.left.is_some();
            known.over = trials.interrupted() || whatever && trials.refused();
            let failed = tried.edit.is_some() && trials.failed();
            if failed && known.before.is_none() {
                // Whether it is the change's fault.
                let again = trials.run("as it is", None);
                known.over = again.is_err();
                known.before = again.ok().and_then(|trial| time(trial, loader).ok()).map(|(t, _)| mean(t));
            }
            if failed && tried.left.is_none() && !known.over {
                tried.fails = true;
                return Err("the script fails with it".to_owned());
            }
        }
        let (after, samples) = time(with.map_err(error)?, &moved(loader, tried.edit.as_ref()))?;
        // As long as it takes for as many samples as before.
        tried.after = after * evidence.batch_size() / samples;
        if length.both {
            let (again, _) = time(trials.run("as it is", None).map_err(error)?, loader)?;
            known.before = Some(mean(again));
        }
        tried.before = known.before.unwrap_or(whole);
        tried.seconds = begin.elapsed().as_secs_f64();
        Ok(())
    }
}

/// The loader, at the line where it is made once the script is edited.
fn moved(loader: &Loader, edit: Option<&Changed>) -> Loader {
    let mut loader = loader.clone();
    if let (Some(place), Some(edit)) = (&mut loader.place, edit)
        && place.file == edit.file
    {
        place.line = edit.line(place.line);
    }
    loader
}

/// The first fix that can be tried and was not yet: of the verdict, or of what comes right after it.
fn next(report: &Report, tried: &[Tried]) -> Option<Tried> {
    let verdicts = [Some(&report.verdict), report.runner_up.as_ref()];
    let mut changes =
        verdicts.into_iter().flatten().filter(|verdict| verdict.gain.is_some()).filter_map(Tried::of);
    changes.find(|change| !tried.iter().any(|tried| tried.is(change)))
}

/// wellfed's loader, where it takes the script's and loading costs something: what it spares no look shows, a trial does.
fn feed(report: &Report, evidence: &Evidence, tried: &[Tried]) -> Option<Tried> {
    let fits = evidence.loader().is_some_and(|loader| loader.framework == "torch")
        && evidence.fed.as_ref().is_some_and(|fed| fed.plan != "refused");
    let costs = report.steps.efficiency > 0.0 && report.steps.efficiency < 1.0 - WORTH_FEEDING;
    (fits && costs && tried.iter().all(|tried| !tried.apply.feed)).then(|| Tried {
        title: FED.to_owned(),
        apply: Apply { feed: true, ..Apply::default() },
        ..Tried::default()
    })
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

/// Whether no other loop begins before the one that a report is about.
fn begins_first(run: &RunDir, evidence: &Evidence) -> bool {
    let used = |id: u32| evidence.loaders.iter().any(|used| used.steps > 0 && used.loader.loader == id);
    let records = run.processes.iter().flat_map(|process| &process.records);
    let first = records
        .filter_map(|record| match record {
            Record::Iter(iter) if used(iter.loader) => Some((iter.t0, iter.loader)),
            _ => None,
        })
        .min();
    first.map(|(_, loader)| loader) == evidence.loader().map(|loader| loader.loader)
}

/// Seconds of steps that a trial needs to show anything.
fn least(report: &Report, evidence: &Evidence) -> f64 {
    let ahead = evidence.loader().map_or(0.0, |loader| loader.num_workers.max(2) as f64 * 3.0);
    // Other loops take their part of the time.
    let step = evidence.steps.whole() / evidence.share().max(0.1);
    let epoch = evidence.steps.steps_per_epoch * step;
    // What is paid at the begin of an epoch shows where there are several.
    let epochs = if report.verdict.id == "worker-restart" { 3.2 * epoch } else { 0.0 };
    ((STEPS + ahead) * step).max(epochs).max(SECONDS.0)
}

/// How long runs may be that begin `start` seconds before their first step, where `trials` are to come and the script `as_it_is` may
/// have been measured already; nothing if there is no time for one of `least`.
fn length(start: f64, step: f64, least: f64, left: f64, trials: f64, as_it_is: bool) -> Option<Length> {
    let room = |runs: f64| left / runs - start - ENDING;
    let time = |room: f64| room.min(SECONDS.1.max(least)).max(least);
    let fits = |runs: f64| step > 0.0 && room(runs) >= least;
    // Rather one trial that is compared with a run like it than two that are not.
    let both = [trials + 1.0, 2.0].into_iter().find(|&runs| !as_it_is && fits(runs));
    let alone = [trials, 1.0].into_iter().find(|&runs| fits(runs));
    let of = |runs: f64, both: bool| Length { time: time(room(runs)), both };
    both.map(|runs| of(runs, true)).or_else(|| alone.map(|runs| of(runs, false)))
}

/// How long each of some trials may be, and one run of the script as it is where that is not measured yet; nothing if one of `least`
/// does not fit.
fn each(start: f64, least: f64, left: f64, trials: usize, as_it_is: bool) -> Option<Length> {
    let runs = trials as f64 + if as_it_is { 0.0 } else { 1.0 };
    let room = left / runs - start - ENDING;
    (room >= least).then(|| Length { time: room.min(SECONDS.1.max(least)), both: !as_it_is })
}

#[cfg(test)]
mod tests {
    use wellfed_doctor::{
        evidence::LoaderUse,
        record::{self, Place},
        report::{Fix, Gain, Lines},
    };

    use super::*;

    #[test]
    fn trials_are_as_long_as_there_is_time_for() {
        let one = |start, step, least, left| length(start, step, least, left, 1.0, false);
        assert_eq!(one(1.0, 0.01, 0.5, 20.0), Some(Length { time: 6.0, both: true }));
        let two = one(3.0, 0.01, 0.5, 10.0).unwrap();
        assert!(two.both && (two.time - (5.0 - 3.0 - ENDING)).abs() < 1e-9);
        assert!(!one(3.0, 0.05, 1.8, 6.0).unwrap().both);
        assert_eq!(one(3.0, 1.0, 30.0, 20.0), None);
        // Two trials share the time, and the second one what the first was compared with.
        let first = length(2.0, 0.01, 0.5, 20.0, 2.0, false).unwrap();
        assert!(first.both && (first.time - (20.0 / 3.0 - 2.0 - ENDING)).abs() < 1e-9);
        let second = length(2.0, 0.01, 0.5, 7.0, 1.0, true).unwrap();
        assert!(!second.both && (second.time - (7.0 - 2.0 - ENDING)).abs() < 1e-9);
        // Where there is no time for both, the first one has it.
        assert!(length(3.0, 0.01, 0.5, 10.0, 2.0, false).unwrap().both);
    }

    #[test]
    fn trials_that_leave_something_out_share_their_time() {
        // Four of them, and the script as it is.
        let all = each(1.0, 0.5, 24.0, 4, false).unwrap();
        assert!(all.both && (all.time - (24.0 / 5.0 - 1.0 - ENDING)).abs() < 1e-9);
        assert!(5.0 * (all.time + 1.0 + ENDING) <= 24.0 + 1e-9);
        // What is measured already is not measured again.
        let next = each(1.0, 0.5, 24.0, 4, true).unwrap();
        assert!(!next.both && (next.time - (6.0 - 1.0 - ENDING)).abs() < 1e-9);
        assert_eq!(each(0.1, 0.5, 24.0, 1, true).unwrap().time, SECONDS.1);
        // Of a script that starts slowly, fewer fit.
        assert!(each(9.0, 0.5, 24.0, 2, false).is_none());
        assert!(each(9.0, 0.5, 24.0, 1, false).is_some());
        assert!(each(9.0, 4.0, 24.0, 1, false).is_none());
    }

    #[test]
    fn loading_is_tried_with_wellfed_where_it_costs_something() {
        let mut report = Report::default();
        report.steps.efficiency = 0.5;
        let of = |plan: &str, framework: &str| {
            let loader = record::Loader { framework: framework.to_owned(), ..record::Loader::default() };
            let fed = Some(record::Fed { plan: plan.to_owned(), ..record::Fed::default() });
            let loaders = vec![LoaderUse { loader, ..LoaderUse::default() }];
            Evidence { fed, loaders, subject: Some(0), ..Evidence::default() }
        };
        let fix = feed(&report, &of("python", "torch"), &[]).unwrap();
        assert!(feed(&report, &of("refused", "torch"), &[]).is_none());
        assert!(feed(&report, &of("python", "tf.data"), &[]).is_none());
        assert!(feed(&report, &of("python", "torch"), &[fix]).is_none());
        report.steps.efficiency = 0.99;
        assert!(feed(&report, &of("python", "torch"), &[]).is_none());
    }

    #[test]
    fn a_fix_is_tried_once() {
        let apply = Apply { feed: true, ..Apply::default() };
        let mut report = Report::default();
        assert!(next(&report, &[]).is_none());
        report.verdict.gain = Some(Gain::default());
        report.verdict.fix = Some(Fix { apply: Some(apply), ..Fix::default() });
        let tried = next(&report, &[]).unwrap();
        assert!(next(&report, &[tried]).is_none());
        // An edit is one if it changes lines.
        let mut place = Place { file: "train.py".to_owned(), line: 3, ..Place::default() };
        let edit = |place: &Place, change: &str| Fix {
            place: Some(place.clone()),
            change: change.to_owned(),
            ..Fix::default()
        };
        report.verdict.fix = Some(edit(&place, "x = 1"));
        assert!(next(&report, &[]).is_none());
        place.call = Some([0, 1]);
        report.verdict.fix = Some(edit(&place, "# x"));
        assert!(next(&report, &[]).is_none());
        report.verdict.fix = Some(edit(&place, "x = 1"));
        let tried = next(&report, &[]).unwrap();
        assert_eq!(tried.edit.as_ref().unwrap().lines[0].line, 3);
        assert!(next(&report, &[tried]).is_none());
    }

    #[test]
    fn a_loader_is_found_where_an_edit_moved_it() {
        let place = Place { file: "train.py".to_owned(), line: 9, ..Place::default() };
        let loader = Loader { place: Some(place), ..Loader::default() };
        let lines = vec![Lines { line: 2, code: "a".to_owned(), change: "a\nb".to_owned() }];
        let edit = |file: &str| Changed { file: file.to_owned(), lines: lines.clone() };
        let at = |edit: Option<&Changed>| moved(&loader, edit).place.unwrap().line;
        assert_eq!([at(None), at(Some(&edit("other.py"))), at(Some(&edit("train.py")))], [9, 9, 10]);
    }
}
