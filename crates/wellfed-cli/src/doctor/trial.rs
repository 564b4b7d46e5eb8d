//! Runs of one script under different changes, for `try` and `sweep`: captured, measured, and told on standard error.

use std::{ffi::OsString, fs, time::Instant};

use wellfed::Error;
use wellfed_doctor::{evidence::Evidence, report::Apply, run_dir::RunDir};

use super::{
    Setting,
    launch::{Directory, Launch, OUTPUT, code},
};
use crate::output;

/// Bytes of a failed script's output that are shown.
const TAIL: usize = 4000;

/// A script, and how long to look at it.
#[derive(Debug)]
pub(crate) struct Trials(Launch);

/// A run that ended well.
#[derive(Debug)]
pub(crate) struct Trial {
    /// Everything that was recorded.
    pub(crate) run: RunDir,
    /// What it shows.
    pub(crate) evidence: Evidence,
    /// Seconds it took, with imports and all.
    pub(crate) seconds: f64,
}

impl Trial {
    /// Seconds a step, with its share of what beginnings of epochs cost.
    pub(crate) fn time(&self) -> f64 {
        self.evidence.steps.time() + self.evidence.steps.restart()
    }

    /// Of that, waiting for data.
    pub(crate) fn wait(&self) -> f64 {
        self.evidence.steps.wait() + self.evidence.steps.restart()
    }
}

impl Trials {
    /// Runs of what `words` stand for, each until `steps` or `time` is reached, or to its end.
    ///
    /// # Errors
    ///
    /// If there is nothing to run, or no probe that could end it.
    pub(crate) fn new(
        words: &[OsString],
        python: Option<&OsString>,
        setting: &Setting,
        steps: Option<u64>,
        time: Option<f64>,
    ) -> Result<Self, Error> {
        let launch = Launch::new(words, python.map(OsString::as_os_str), setting)?;
        if launch.inject.is_none() {
            // No limit and no change would reach the script.
            return Err(Error::config("the folder of the probes is not known")
                .with_hint("run it as python -m wellfed doctor, or set WELLFED_DOCTOR_INJECT"));
        }
        Ok(Self(Launch { steps, time, captured: true, ..launch }))
    }

    /// Runs the script with a change; `name` says which run this is.
    ///
    /// # Errors
    ///
    /// If the script fails or no loop was seen; what it wrote is shown then.
    pub(crate) fn run(&self, name: &str, apply: Option<&Apply>) -> Result<Trial, Error> {
        let mut launch = self.0.clone();
        let text = apply.map(serde_json::to_string).transpose().map_err(std::io::Error::from);
        let text = text.map_err(|error| Error::io("describe", "a change", error))?.unwrap_or_default();
        // Empty: what a doctor around this one asks for is not for us.
        launch.env.insert("WELLFED_DOCTOR_APPLY".into(), text.into());
        for (variable, value) in apply.iter().flat_map(|apply| &apply.env) {
            launch.env.insert(variable.into(), value.into());
        }
        let directory = Directory::private()?;
        let begin = Instant::now();
        let status = launch.run(&directory)?;
        let seconds = begin.elapsed().as_secs_f64();
        let run = directory.read()?;
        let complain = |what: String| {
            let written = fs::read(directory.path().join(OUTPUT)).unwrap_or_default();
            let text = String::from_utf8_lossy(&written[written.len().saturating_sub(TAIL)..]).into_owned();
            if !text.trim().is_empty() {
                output::note(format_args!("what the script wrote in this run:\n{}", text.trim_end()));
            }
            Error::config(what)
        };
        if code(status) != 0 {
            return Err(complain(format!(
                "the script failed with exit status {} in the run {name}",
                code(status)
            )));
        }
        if run.run.exit.reason == "interrupt" {
            return Err(Error::config(format!("interrupted in the run {name}")));
        }
        let evidence = Evidence::of(&run);
        if evidence.steps.steps.is_empty() {
            let what =
                format!("the run {name} shows no training loop over a data loader in its steady state");
            return Err(complain(what).with_hint(
                "does it train for more than a few steps? --steps and --time say when a run ends",
            ));
        }
        Ok(Trial { run, evidence, seconds })
    }
}

/// `0.0123` as `12.3 ms`.
pub(crate) fn duration(seconds: f64) -> String {
    if seconds >= 1.0 { format!("{seconds:.2} s") } else { format!("{:.2} ms", 1e3 * seconds) }
}

/// The one in the middle, or the mean of the two in the middle; 0 of none.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => 0.5 * (sorted[n / 2 - 1] + sorted[n / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_probes_nothing_is_run() {
        let words = [OsString::from("train.py")];
        let error = Trials::new(&words, None, &Setting::default(), None, Some(1.0)).unwrap_err();
        assert!(error.to_string().contains("probes"), "{error}");
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn durations() {
        assert_eq!(duration(0.01234), "12.34 ms");
        assert_eq!(duration(2.5), "2.50 s");
    }
}
