//! Runs of one script under different changes, for `try` and `sweep`: captured, measured, and told on standard error.

use std::{
    ffi::OsString,
    fs,
    io::Write as _,
    time::{Duration, Instant},
};

use wellfed::Error;
use wellfed_doctor::{evidence::Evidence, patch::Changed, record::Loader, report::Apply, run_dir::RunDir};

use super::{
    Setting,
    launch::{Directory, Launch, OUTPUT, code},
};
use crate::output;

/// Bytes of a failed script's output that are shown: whole tracebacks, also those of worker processes.
const TAIL: usize = 64 << 10;

/// Steps in the steady state that are enough to compare settings by.
pub(crate) const ENOUGH: usize = 8;

/// How many times as long as was asked a run is made where too few steps fit into it.
const LONGER: f64 = 12.0;

/// A script, and how long to look at it.
#[derive(Debug)]
pub(crate) struct Trials {
    launch: Launch,
    /// Whether somebody pressed Ctrl-C.
    interrupted: bool,
    /// Whether the script is confined: then what it says when it fails is nobody's business, either.
    confined: bool,
    /// Whether the last run was ended by the script's own failure.
    failed: bool,
    /// Whether the last run did not begin, as this system cannot confine or cover it.
    refused: bool,
}

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

    /// The same of the loop over a certain loader of a script with several, and its samples a step, if it took enough steps.
    pub(crate) fn time_of(&self, loader: &Loader) -> Option<(f64, f64)> {
        let used: Vec<usize> =
            (0..self.evidence.loaders.len()).filter(|&i| self.evidence.loaders[i].steps > 0).collect();
        let place = |loader: &Loader| loader.place.as_ref().map(|place| (place.file.clone(), place.line));
        let same = |&&i: &&usize| place(&self.evidence.loaders[i].loader) == place(loader);
        let subject = match used.as_slice() {
            [only] => Some(*only),
            several => several.iter().find(same).copied(),
        }?;
        let evidence = Evidence::about(&self.run, Some(subject));
        let (steps, samples) = (&evidence.steps, evidence.batch_size());
        (steps.steps.len() >= ENOUGH && samples > 0.0).then(|| (steps.time() + steps.restart(), samples))
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
        Ok(Self {
            launch: Launch { steps, time, captured: true, ..launch },
            interrupted: false,
            confined: false,
            failed: false,
            refused: false,
        })
    }

    /// From now on the script is confined (`confine.py`), and ends after `deadline` at the latest.
    pub(crate) fn confine(&mut self, deadline: Duration) {
        self.confined = true;
        self.launch.deadline = Some(deadline);
        self.launch.env.insert("WELLFED_DOCTOR_CONFINED".into(), "1".into());
    }

    /// Runs the script with a change; `name` says which run this is.
    ///
    /// # Errors
    ///
    /// If the script fails or no loop was seen; what it wrote is shown then.
    pub(crate) fn run(&mut self, name: &str, apply: Option<&Apply>) -> Result<Trial, Error> {
        self.edited(name, apply, None)
    }

    /// The same with lines of one of its files changed, in the copy in memory that a confined script sees (`edited.py`).
    ///
    /// # Errors
    ///
    /// As for [`Trials::run`], and if the file cannot be covered.
    pub(crate) fn edited(
        &mut self,
        name: &str,
        apply: Option<&Apply>,
        edit: Option<&Changed>,
    ) -> Result<Trial, Error> {
        let mut launch = self.launch.clone();
        let text = edit.map(serde_json::to_string).transpose().map_err(std::io::Error::from);
        let text = text.map_err(|error| Error::io("describe", "an edit", error))?.unwrap_or_default();
        launch.env.insert("WELLFED_DOCTOR_EDIT".into(), text.into());
        let text = apply.map(serde_json::to_string).transpose().map_err(std::io::Error::from);
        let text = text.map_err(|error| Error::io("describe", "a change", error))?.unwrap_or_default();
        // Empty: what a doctor around this one asks for is not for us.
        launch.env.insert("WELLFED_DOCTOR_APPLY".into(), text.into());
        for (variable, value) in apply.iter().flat_map(|apply| &apply.env) {
            launch.env.insert(variable.into(), value.into());
        }
        let directory = Directory::private()?;
        if self.confined {
            // A short name: paths of sockets have 107 bytes at most.
            let temporary = directory.path().join("t");
            fs::create_dir(&temporary)
                .map_err(|error| Error::io("make", temporary.display().to_string(), error))?;
            launch.env.insert("TMPDIR".into(), temporary.into());
        }
        let begin = Instant::now();
        (self.failed, self.refused) = (false, false);
        let status = launch.run(&directory)?;
        self.failed = !matches!(code(status), 0 | 97 | 98 | 137);
        self.refused = self.confined && matches!(code(status), 97 | 98);
        let seconds = begin.elapsed().as_secs_f64();
        let run = directory.read()?;
        let complain = |what: String| {
            if self.confined {
                return Error::config(what);
            }
            let written = fs::read(directory.path().join(OUTPUT)).unwrap_or_default();
            show(&written);
            Error::config(what)
        };
        if run.run.exit.reason == "interrupt" {
            self.interrupted = true;
            return Err(Error::config(format!("interrupted in the run {name}")));
        }
        if self.confined && code(status) != 0 {
            return Err(Error::config(match code(status) {
                98 => "the file of the edit cannot be covered with a changed one".to_owned(),
                97 => "this system cannot keep a script from changing anything (Landlock), as a trial needs".to_owned(),
                137 => "the script took too long when it was run again".to_owned(),
                _ => "the script failed when it was run again without permission to write files or connect; `wellfed doctor try` runs it with it".to_owned(),
            }));
        }
        if code(status) != 0 {
            return Err(complain(format!(
                "the script failed with exit status {} in the run {name}",
                code(status)
            )));
        }
        let evidence = Evidence::of(&run);
        if evidence.steps.steps.is_empty() && evidence.subject.is_none() {
            let what =
                format!("the run {name} shows no training loop over a data loader in its steady state");
            return Err(complain(what).with_hint(
                "does it train for more than a few steps? --steps and --time say when a run ends",
            ));
        }
        Ok(Trial { run, evidence, seconds })
    }

    /// Runs the script with a change, and again for longer where too few steps fitted into the time. What runs take from then on
    /// stays as long.
    ///
    /// # Errors
    ///
    /// As for [`Trials::run`], and if there are too few steps still; that says how long it would take.
    pub(crate) fn long_enough(&mut self, name: &str, apply: Option<&Apply>) -> Result<Trial, Error> {
        let asked = (self.launch.steps, self.launch.time);
        loop {
            let trial = self.run(name, apply)?;
            let (steps, time) = match self.short(&trial) {
                None => return Ok(trial),
                Some(longer) => longer,
            };
            let limited = |now: Option<f64>, then: Option<f64>| {
                now.zip(then).is_some_and(|(now, then)| now > LONGER * then)
            };
            if limited(time, asked.1) || limited(steps.map(|n| n as f64), asked.0.map(|n| n as f64)) {
                let options = options(steps, time);
                let seen = trial.evidence.steps.steps.len();
                return Err(Error::config(format!(
                    "a run shows {seen} steps in its steady state, too few to build on"
                ))
                .with_hint(format!("{options} would be enough, for each run")));
            }
            output::note(format_args!(
                "{} steps are too few to compare; runs take {} from now on",
                trial.evidence.steps.steps.len(),
                match time {
                    Some(time) => format!("{time:.0} s of steps"),
                    None => format!("{} steps", steps.unwrap_or_default()),
                }
            ));
            (self.launch.steps, self.launch.time) = (steps, time);
        }
    }

    /// Whether the last run was ended by the script's own failure.
    pub(crate) fn failed(&self) -> bool {
        self.failed
    }

    /// Whether the last run did not begin, as this system cannot confine or cover it.
    pub(crate) fn refused(&self) -> bool {
        self.refused
    }

    /// Whether a run was interrupted: then no other one is to begin.
    pub(crate) fn interrupted(&self) -> bool {
        self.interrupted
    }

    /// Seconds of steps after which runs end.
    pub(crate) fn time(&self) -> Option<f64> {
        self.launch.time
    }

    /// Steps and seconds that a run would need which was ended before it had enough steps; nothing if it had, or if the script
    /// ended by itself.
    fn short(&self, trial: &Trial) -> Option<(Option<u64>, Option<f64>)> {
        let seen = trial.evidence.steps.steps.len();
        let ended = matches!(trial.run.run.exit.reason.as_str(), "steps" | "time");
        if seen >= ENOUGH || !ended {
            return None;
        }
        // Of what was seen, the first steps are not of the steady state.
        let all = trial.evidence.subject.map_or(0, |subject| trial.evidence.loaders[subject].steps);
        let missing = (ENOUGH - seen) as f64 * 1.5;
        let more = 1.0 + missing / all.max(1) as f64;
        Some((
            self.launch.steps.map(|steps| (steps as f64 * more).ceil() as u64),
            self.launch.time.map(|time| time * more.max(1.5)),
        ))
    }
}

/// What a script wrote, as it wrote it, at the end of what there is; from the beginning of a line.
fn show(written: &[u8]) {
    let mut from = written.len().saturating_sub(TAIL);
    if from > 0 {
        from += written[from..].iter().position(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    }
    if written[from..].iter().all(u8::is_ascii_whitespace) {
        return;
    }
    output::note("what the script wrote in this run:");
    let mut out = std::io::stderr().lock();
    let line = if written.ends_with(b"\n") { &b""[..] } else { b"\n" };
    // Where standard error is closed there is nobody to tell.
    drop(out.write_all(&written[from..]).and_then(|()| out.write_all(line)));
}

/// `--time 40` for limits of runs.
pub(crate) fn options(steps: Option<u64>, time: Option<f64>) -> String {
    let steps = steps.map(|steps| format!("--steps {steps}"));
    let time = time.map(|time| format!("--time {:.0}", time.ceil()));
    steps.into_iter().chain(time).collect::<Vec<_>>().join(" and ")
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

    /// A run of which so many steps of so many were in the steady state.
    fn trial(seen: usize, all: u64, reason: &str) -> Trial {
        let steps = vec![wellfed_doctor::evidence::Step::default(); seen];
        let evidence = Evidence {
            loaders: vec![wellfed_doctor::evidence::LoaderUse { steps: all, ..Default::default() }],
            subject: Some(0),
            steps: wellfed_doctor::evidence::Loop { steps, ..Default::default() },
            ..Evidence::default()
        };
        let mut run = RunDir::default();
        run.run.exit.reason = reason.to_owned();
        Trial { run, evidence, seconds: 1.0 }
    }

    #[test]
    fn runs_get_as_long_as_it_takes() {
        let launch = |steps, time| Trials {
            launch: Launch { steps, time, ..Launch::default() },
            interrupted: false,
            confined: false,
            failed: false,
            refused: false,
        };
        let trials = launch(None, Some(3.0));
        assert_eq!(trials.short(&trial(ENOUGH, 20, "time")), None);
        // What ended by itself gets no longer by another limit.
        assert_eq!(trials.short(&trial(2, 9, "finished")), None);
        let (steps, time) = trials.short(&trial(2, 9, "time")).unwrap();
        assert_eq!((steps, time), (None, Some(6.0)));
        // Each round is longer, so that it ends.
        assert!(trials.short(&trial(7, 1000, "time")).unwrap().1.unwrap() >= 4.0);
        let (steps, time) = launch(Some(8), None).short(&trial(0, 8, "steps")).unwrap();
        assert_eq!((steps, time), (Some(20), None));
        assert_eq!(options(Some(20), Some(6.2)), "--steps 20 and --time 7");
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
