//! `wellfed doctor try`: the fix, applied from outside, against the script as it is.

use std::{ffi::OsString, io::Write, path::PathBuf};

use clap::Args;
use serde::Serialize;
use wellfed_doctor::{
    diagnose,
    report::{Apply, Gain, Report, Verdict},
};

use super::{
    Setting,
    trial::{Trials, duration, median},
};
use crate::output::{self, Failure};

/// Seconds of steps a run looks at, if nothing else is said.
const SECONDS: f64 = 15.0;

/// Run a script with the doctor's fix and without, in turn, and compare what was predicted with what happens
///
/// The fix is applied from outside: arguments of the loader, environment variables, or wellfed's loader in place of
/// torch's. The script's output is only shown if it fails.
#[derive(Debug, Args)]
pub(crate) struct Try {
    /// Runs of each kind, in the order A B B A
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=50))]
    rounds: u32,
    /// End each run after N steps
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    steps: Option<u64>,
    /// End each run S seconds after its first step [default: 15, unless --steps is given]
    #[arg(long, value_name = "S", value_parser = super::run::seconds)]
    time: Option<f64>,
    /// Try this change, not the doctor's: JSON such as {"loader": {"num_workers": 2}}
    #[arg(long, value_name = "JSON", value_parser = change)]
    apply: Option<Apply>,
    /// Write the result as JSON; - is standard output
    #[arg(long, value_name = "FILE", value_parser = super::report::target)]
    json: Option<PathBuf>,
    /// Interpreter for scripts and modules [default: the one that runs this command]
    #[arg(long, value_name = "EXE")]
    python: Option<OsString>,
    /// SCRIPT.py, -m MODULE, or any command, and its arguments
    #[arg(value_name = "SCRIPT", trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<OsString>,
}

fn change(text: &str) -> Result<Apply, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

/// What came out, as JSON.
#[derive(Debug, Default, Serialize)]
struct Tried {
    schema: &'static str,
    command: Vec<String>,
    /// Verdict whose fix was tried; `given` if the user said what to try.
    verdict: String,
    title: String,
    change: String,
    apply: Option<Apply>,
    predicted: Option<Gain>,
    /// Seconds a step in each run, in the order they ran.
    before: Vec<f64>,
    after: Vec<f64>,
    /// Medians' ratio; absent if nothing could be tried.
    actual: Option<f64>,
    /// Smallest and largest ratio of two neighbouring runs.
    spread: Option<[f64; 2]>,
    /// Whether `actual` lies in the predicted interval.
    inside: Option<bool>,
}

/// What is to be tried.
#[derive(Debug, Default)]
struct Remedy {
    verdict: String,
    title: String,
    change: String,
    apply: Apply,
    gain: Option<Gain>,
}

impl Try {
    /// Tries; gives the exit status.
    pub(crate) fn run(self, setting: &Setting) -> i32 {
        output::status(self.compare(setting))
    }

    fn compare(&self, setting: &Setting) -> Result<(), Failure> {
        let time = self.time.or(if self.steps.is_none() { Some(SECONDS) } else { None });
        let mut trials = Trials::new(&self.command, self.python.as_ref(), setting, self.steps, time)?;
        output::note("measuring the script as it is");
        let first = trials.long_enough("as it is", None)?;
        let report = diagnose(&first.run);
        let mut tried = Tried {
            schema: "wellfed.doctor.try/1",
            command: report.command.clone(),
            before: vec![first.time()],
            ..Tried::default()
        };
        let remedy = match &self.apply {
            Some(apply) => Some(Remedy {
                verdict: "given".to_owned(),
                title: "The change that was asked for".to_owned(),
                change: serde_json::to_string(apply).unwrap_or_default(),
                apply: apply.clone(),
                gain: None,
            }),
            None => remedy(&report),
        };
        let Some(remedy) = remedy else {
            tried.verdict = report.verdict.id.clone();
            tried.title = report.verdict.title.clone();
            return self.say(&tried, &nothing(&report));
        };
        let runs = 2 * self.rounds - 1;
        output::note(format_args!("{runs} more runs, {:.0} s in all", f64::from(runs) * first.seconds));
        for round in 0..self.rounds {
            // A B, then B A: what changes slowly meanwhile weighs on both alike. The first A has run.
            for with in if round % 2 == 0 { [false, true] } else { [true, false] } {
                if round == 0 && !with {
                    continue;
                }
                let (name, apply) =
                    if with { ("with the change", Some(&remedy.apply)) } else { ("as it is", None) };
                output::note(format_args!("round {} of {}: {name}", round + 1, self.rounds));
                let trial = trials.run(name, apply)?;
                if with { &mut tried.after } else { &mut tried.before }.push(trial.time());
            }
        }
        tried.judge(remedy);
        self.say(&tried, &tried.text())
    }

    fn say(&self, tried: &Tried, text: &str) -> Result<(), Failure> {
        match self.json.as_deref() {
            Some(path) if path.as_os_str() == "-" => {
                output::note(text);
                output::json(tried)
            }
            path => {
                if let Some(path) = path {
                    std::fs::write(path, serde_json::to_vec_pretty(tried)?)
                        .map_err(|error| wellfed::Error::io("write", path.display().to_string(), error))?;
                }
                let mut out = output::results();
                writeln!(out, "{text}")?;
                Ok(out.flush()?)
            }
        }
    }
}

/// The fix with the verdict, or the next one that can be applied from outside.
fn remedy(report: &Report) -> Option<Remedy> {
    let all = [&report.verdict].into_iter().chain(&report.runner_up).chain(&report.others);
    all.filter_map(|verdict: &Verdict| {
        let fix = verdict.fix.as_ref()?;
        Some(Remedy {
            verdict: verdict.id.clone(),
            title: fix.title.clone(),
            change: fix.change.clone(),
            apply: fix.apply.clone()?,
            gain: verdict.gain,
        })
    })
    .next()
}

/// What is said if nothing can be tried.
fn nothing(report: &Report) -> String {
    let mut text = report.verdict.title.clone();
    match &report.verdict.fix {
        Some(fix) => {
            text += &format!(
                "\nThe fix takes an edit of the script, which cannot be tried from outside: {}",
                fix.title
            );
            if !fix.change.is_empty() {
                text += &format!("\n  {}", fix.change.replace('\n', "\n  "));
            }
        }
        None => text += "\nThere is nothing to try.",
    }
    text
}

impl Tried {
    fn judge(&mut self, remedy: Remedy) {
        let actual = median(&self.before) / median(&self.after).max(1e-12);
        let ratios: Vec<f64> = self.before.iter().zip(&self.after).map(|(a, b)| a / b.max(1e-12)).collect();
        let low = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let high = ratios.iter().copied().fold(0.0, f64::max);
        self.actual = Some(actual);
        self.spread = Some([low, high]);
        self.inside = remedy.gain.map(|gain| (gain.low..=gain.high).contains(&actual));
        self.predicted = remedy.gain;
        self.verdict = remedy.verdict;
        self.title = remedy.title;
        self.change = remedy.change;
        self.apply = Some(remedy.apply);
    }

    fn text(&self) -> String {
        let mut lines = vec![self.title.clone(), format!("  {}", self.change.replace('\n', "\n  "))];
        let runs = |times: &[f64]| {
            let list: Vec<_> = times.iter().map(|&time| duration(time)).collect();
            format!("{} a step   (runs: {})", duration(median(times)), list.join(", "))
        };
        lines.push(format!("as it is         {}", runs(&self.before)));
        lines.push(format!("with the change  {}", runs(&self.after)));
        if let (Some(actual), Some([low, high])) = (self.actual, self.spread) {
            lines.push(format!(
                "actual           {actual:.2} times as fast, {low:.2} to {high:.2} from round to round"
            ));
        }
        if let Some(gain) = self.predicted {
            let verdict = if self.inside == Some(true) { "met" } else { "missed" };
            lines.push(format!(
                "predicted        {:.2} times as fast, {:.2} to {:.2}: {verdict}",
                gain.factor, gain.low, gain.high
            ));
        }
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use wellfed_doctor::report::Fix;

    use super::*;

    fn verdict(id: &str, workers: Option<u32>) -> Verdict {
        let apply = workers
            .map(|n| Apply { loader: [("num_workers".to_owned(), n.into())].into(), ..Apply::default() });
        let fix = Fix { title: format!("fix {id}"), change: "x = 1".to_owned(), apply, ..Fix::default() };
        let gain = Some(Gain { factor: 2.0, low: 1.8, high: 2.2 });
        Verdict { id: id.to_owned(), title: format!("is {id}"), fix: Some(fix), gain, ..Verdict::default() }
    }

    #[test]
    fn the_first_fix_that_can_be_applied_is_tried() {
        let mut report = Report {
            verdict: verdict("a", None),
            runner_up: Some(verdict("b", None)),
            others: vec![verdict("c", Some(2)), verdict("d", Some(3))],
            ..Report::default()
        };
        assert_eq!(remedy(&report).unwrap().verdict, "c");
        report.others.clear();
        assert!(remedy(&report).is_none());
        assert!(nothing(&report).contains("takes an edit"));
    }

    #[test]
    fn predictions_are_compared_with_medians() {
        let mut tried =
            Tried { before: vec![0.04, 0.05, 0.042], after: vec![0.02, 0.021, 0.03], ..Tried::default() };
        tried.judge(remedy(&Report { verdict: verdict("c", Some(2)), ..Report::default() }).unwrap());
        assert!((tried.actual.unwrap() - 2.0).abs() < 1e-9);
        assert_eq!(tried.inside, Some(true));
        let text = tried.text();
        assert!(text.contains("2.00 times as fast, 1.40 to 2.38"), "{text}");
        assert!(text.contains("1.80 to 2.20: met"), "{text}");
    }

    #[test]
    fn changes_that_make_no_sense_are_refused() {
        assert!(change("{\"loader\": {\"num_workers\": 2}}").is_ok());
        assert!(change("{\"workers\": 2}").is_err());
    }
}
