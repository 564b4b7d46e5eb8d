//! `wellfed doctor sweep`: good settings of a loader in few short runs.

use std::{ffi::OsString, io::Write, path::PathBuf, time::Instant};

use clap::Args;
use serde::Serialize;
use wellfed::Error;
use wellfed_doctor::{
    report::Apply,
    sweep::{Measured, Search, Settings},
};

use super::{
    Setting,
    trial::{Trial, Trials, duration},
};
use crate::output::{self, Failure};

/// Columns of the longest bar.
const BAR: usize = 32;

/// Seconds a run of a whole grid looks at its steps, unless told.
const SECONDS: f64 = 10.0;

/// Share of that which a run of the sweep takes: the search tells apart what differs by several percent, and looks again
/// where it does not.
const SHORT: f64 = 1.0 / 3.0;

/// Share of the whole grid's time that a sweep takes at most, but for [`LEAST`] runs.
const BUDGET: f64 = 0.2;

/// Runs it may take in any case: of the script as it is, and of what the model says is best.
const LEAST: usize = 2;

/// Find good num_workers, prefetch_factor, persistent_workers and pin_memory in few short runs
///
/// The first run measures the script as it is; a model of its pipeline then says which settings are worth a run.
/// Iterable data sets keep their number of workers if it is 0 or 1.
#[derive(Debug, Args)]
pub(crate) struct Sweep {
    /// End each run after N steps
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    steps: Option<u64>,
    /// Seconds of steps that a run of the whole grid would look at; runs of the sweep take a third of it [default: 10]
    #[arg(long, value_name = "S", value_parser = super::run::seconds)]
    time: Option<f64>,
    /// Measure the whole grid, to see what the sweep leaves out
    #[arg(long)]
    grid: bool,
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

/// What came out, as JSON.
#[derive(Debug, Default, Serialize)]
struct Swept {
    schema: &'static str,
    command: Vec<String>,
    batch_size: f64,
    /// The settings of the script.
    current: Settings,
    /// What was measured, in the order it was first.
    measured: Vec<Measured>,
    /// Of these, what to use.
    best: Measured,
    /// Seconds a step now over seconds a step with the best settings.
    gain: f64,
    /// The same as arguments in the script.
    arguments: String,
    apply: Option<Apply>,
    /// Seconds the sweep took, and those the whole grid would have taken.
    seconds: f64,
    grid_seconds: f64,
    grid_runs: usize,
}

impl Sweep {
    /// Searches; gives the exit status.
    pub(crate) fn run(self, setting: &Setting) -> i32 {
        output::status(self.search(setting))
    }

    fn search(&self, setting: &Setting) -> Result<(), Failure> {
        let whole = self.time.or(if self.steps.is_none() { Some(SECONDS) } else { None });
        let share = if self.grid { 1.0 } else { SHORT };
        let steps = self.steps.map(|steps| ((steps as f64 * share).ceil() as u64).max(8));
        let time = whole.map(|time| time * share);
        let mut trials = Trials::new(&self.command, self.python.as_ref(), setting, steps, time)?;
        let begin = Instant::now();
        output::note("measuring the script as it is");
        let first = trials.long_enough("as it is", None)?;
        let Some(mut search) = Search::begin(&first.evidence) else {
            return Err(cannot_begin(&first).into());
        };
        let current = search.measured[0].settings;
        let grid = search.grid();
        // A run of the whole grid looks longer at its steps; imports and the rest take as long.
        let looked = trials.time().map_or_else(|| observed(&first), |time| time.min(first.seconds));
        let grid_seconds = grid.len() as f64 * (first.seconds - looked + looked / share);
        let mut longest = first.seconds;
        let mut rest = grid.iter().copied();
        loop {
            let next = if self.grid {
                rest.by_ref().find(|at| *at != current)
            } else if search.measured.len() >= LEAST
                && begin.elapsed().as_secs_f64() + longest > BUDGET * grid_seconds
            {
                None
            } else {
                search.next()
            };
            let Some(settings) = next else { break };
            let name = settings.arguments();
            let left = (BUDGET * grid_seconds - begin.elapsed().as_secs_f64()).max(0.0);
            output::note(format_args!(
                "run {}: {name} ({:.0} s; at most {:.0} s more)",
                search.measured.len() + 1,
                longest,
                if self.grid { grid_seconds - begin.elapsed().as_secs_f64() } else { left }.max(longest)
            ));
            match trials.long_enough(&name, Some(&settings.apply())) {
                Ok(trial) if !trial.evidence.steps.steps.is_empty() => {
                    longest = longest.max(trial.seconds);
                    search.observe(settings, trial.time(), trial.wait());
                }
                // A setting with which the script fails (workers that cannot be started, memory) is none to advise.
                Ok(_) => search.refuse(settings),
                Err(error) if trials.interrupted() => return Err(error.into()),
                Err(error) => {
                    output::note(format_args!("{name} is left out: {error}"));
                    search.refuse(settings);
                }
            }
        }
        let best = search.best();
        let swept = Swept {
            schema: "wellfed.doctor.sweep/1",
            command: first.run.run.command.clone(),
            batch_size: first.evidence.batch_size(),
            current,
            gain: search.measured[0].time / best.time.max(1e-12),
            arguments: best.settings.arguments(),
            apply: Some(best.settings.apply()),
            measured: search.measured,
            best,
            seconds: begin.elapsed().as_secs_f64(),
            grid_seconds,
            grid_runs: grid.len(),
        };
        self.say(&swept)
    }

    fn say(&self, swept: &Swept) -> Result<(), Failure> {
        match self.json.as_deref() {
            Some(path) if path.as_os_str() == "-" => {
                output::note(swept.text());
                output::json(swept)
            }
            path => {
                if let Some(path) = path {
                    std::fs::write(path, serde_json::to_vec_pretty(swept)?)
                        .map_err(|error| Error::io("write", path.display().to_string(), error))?;
                }
                let mut out = output::results();
                writeln!(out, "{}", swept.text())?;
                Ok(out.flush()?)
            }
        }
    }
}

/// Why a run is no beginning of a search.
fn cannot_begin(first: &Trial) -> Error {
    let torch = first.evidence.loader().is_some_and(|loader| loader.framework == "torch");
    if torch {
        let steps = first.evidence.steps.steps.len();
        return Error::config(format!("a run shows {steps} steps in its steady state, too few to build on"))
            .with_hint(
                "the script ended by itself; more epochs or more samples would give more steps than that",
            );
    }
    Error::config("the script's busiest loop is not over a torch DataLoader, whose settings a sweep tries")
        .with_hint("wellfed doctor run says what is known of it")
}

/// Seconds of a run that were steps.
fn observed(trial: &Trial) -> f64 {
    let (begin, end) = trial.evidence.steps.window;
    end.saturating_sub(begin) as f64 * 1e-9
}

impl Swept {
    /// The curve, and what to write.
    fn text(&self) -> String {
        let rate = |m: &Measured| self.batch_size / m.time.max(1e-12);
        let most = self.measured.iter().map(rate).fold(0.0, f64::max);
        let mut rows: Vec<&Measured> = self.measured.iter().collect();
        rows.sort_by_key(|m| {
            (
                m.settings.num_workers,
                m.settings.prefetch_factor,
                m.settings.persistent_workers,
                m.settings.pin_memory,
            )
        });
        let names: Vec<String> = rows.iter().map(|m| m.settings.arguments()).collect();
        let width = names.iter().map(String::len).max().unwrap_or(0);
        let mut lines = Vec::new();
        for (m, name) in rows.iter().zip(&names) {
            let bar = "#".repeat(((rate(m) / most * BAR as f64).round() as usize).max(1));
            let note = if m.settings == self.best.settings {
                "  <- best"
            } else if m.settings == self.current {
                "  <- now"
            } else {
                ""
            };
            lines.push(format!(
                "{name:width$}  {bar:BAR$}  {:8.1} samples/s  waits {:3.0} %{note}",
                rate(m),
                100.0 * m.wait / m.time.max(1e-12)
            ));
        }
        if self.best.settings == self.current {
            lines.push("The settings of the script are as good as any that were tried.".to_owned());
        } else {
            lines.push(format!(
                "DataLoader(..., {}): {} a step, {:.2} times as fast as now.",
                self.arguments,
                duration(self.best.time),
                self.gain
            ));
        }
        lines.push(format!(
            "{} of {} settings were measured, in {:.0} s; all of them would take {:.0} s.",
            self.measured.len(),
            self.grid_runs,
            self.seconds,
            self.grid_seconds
        ));
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_curve_names_the_best_and_the_present() {
        let at = |num_workers, time, wait| Measured {
            settings: Settings { num_workers, prefetch_factor: 2, ..Settings::default() },
            time,
            wait,
            predicted: time,
            runs: 1,
        };
        let swept = Swept {
            batch_size: 64.0,
            current: at(0, 0.04, 0.02).settings,
            measured: vec![at(0, 0.04, 0.02), at(2, 0.02, 0.0), at(1, 0.03, 0.01)],
            best: at(2, 0.02, 0.0),
            gain: 2.0,
            arguments: at(2, 0.02, 0.0).settings.arguments(),
            grid_runs: 17,
            ..Swept::default()
        };
        let text = swept.text();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("num_workers=0") && lines[0].ends_with("<- now"), "{text}");
        assert!(lines[1].starts_with("num_workers=1") && lines[2].ends_with("<- best"), "{text}");
        assert!(lines[2].contains(&"#".repeat(BAR)) && lines[2].contains("3200.0 samples/s"), "{text}");
        assert!(
            lines[3].contains("num_workers=2, prefetch_factor=2): 20.00 ms a step, 2.00 times"),
            "{text}"
        );
        assert!(lines[4].starts_with("3 of 17"), "{text}");
    }
}
