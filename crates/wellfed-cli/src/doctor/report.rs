//! `wellfed doctor report`: what is said about a run, now or again.

use std::path::PathBuf;

use clap::Args;
use wellfed::Error;
use wellfed_doctor::{record::Record, run_dir::RunDir};

use super::launch;
use crate::output;

/// Exit status if `--fail-under` is not met.
pub(crate) const NOT_MET: i32 = 3;

/// Where the report goes besides standard error, and what it must say.
#[derive(Debug, Default, Args)]
pub(crate) struct Output {
    /// Write the report as a page for browsers
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Write the report as JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Exit with status 3 unless steps run at X of the speed they would have if data were always there (0.9 or 90%)
    #[arg(long, value_name = "X", value_parser = share)]
    pub(crate) fail_under: Option<f64>,
}

fn share(text: &str) -> Result<f64, String> {
    let (number, unit) = match text.strip_suffix('%') {
        Some(number) => (number, 100.0),
        None => (text, 1.0),
    };
    match number.trim().parse::<f64>() {
        Ok(number) if (0.0..=unit).contains(&number) => Ok(number / unit),
        Ok(_) => Err("must be from 0 to 1, or from 0% to 100%".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Report on a run that was kept, again
#[derive(Debug, Args)]
pub(crate) struct Again {
    /// Folder that was given to --keep
    directory: PathBuf,
    #[command(flatten)]
    output: Output,
}

impl Again {
    /// Reports; gives the exit status.
    pub(crate) fn run(self) -> i32 {
        match launch::read(&self.directory).and_then(|run| self.output.show(&run)) {
            Ok(true) => 0,
            Ok(false) => NOT_MET,
            Err(error) => output::status(Err(error.into())),
        }
    }
}

impl Output {
    /// Shows what there is to say of `run`; whether `--fail-under` is met.
    pub(crate) fn show(&self, run: &RunDir) -> Result<bool, Error> {
        output::note(summary(run));
        Ok(true)
    }
}

/// Steps and waits of each loader.
fn summary(run: &RunDir) -> String {
    let mut lines = vec![format!(
        "{} processes with probes, {:.1} s",
        run.processes.len(),
        run.run.t1.saturating_sub(run.run.t0) as f64 * 1e-9
    )];
    for process in &run.processes {
        for record in &process.records {
            if let Record::Loader(loader) = record {
                let all = process.records.iter().filter_map(|record| match record {
                    Record::Steps(steps) if steps.loader == loader.loader => Some(steps),
                    _ => None,
                });
                let (mut count, mut wait) = (0, 0);
                for steps in all {
                    count += steps.t0.len();
                    wait +=
                        steps.t0.iter().zip(&steps.t1).map(|(t0, t1)| t1.saturating_sub(*t0)).sum::<u64>();
                }
                lines.push(format!(
                    "{}: {count} steps, {:.3} s of waiting",
                    loader.class,
                    wait as f64 * 1e-9
                ));
            }
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_percentages() {
        assert_eq!(share("0.9"), Ok(0.9));
        assert_eq!(share("90%"), Ok(0.9));
        assert!(share("90").is_err() && share("-1").is_err() && share("x").is_err() && share("NaN").is_err());
    }
}
