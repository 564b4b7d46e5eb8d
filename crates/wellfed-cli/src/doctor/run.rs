//! `wellfed doctor run`: a script as it is, measured.

use std::{
    ffi::OsString,
    fs,
    io::{self, IsTerminal},
    path::PathBuf,
};

use clap::Args;
use wellfed_doctor::{proved::TRIED, run_dir::RunDir, show::live::possible};

use super::{
    Setting,
    launch::{Directory, Launch, begins_as_python, code},
    prove::Prover,
    report::{self, Output},
};
use crate::output;

/// Run a script unchanged and report what slows it down
///
/// Words after the script are its own. Its output and exit status stay what they are (128 + N if signal N ended it); the
/// report goes to standard error. Exit status 3 says that --fail-under was not met.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// End the script after N steps of its busiest loader
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    steps: Option<u64>,
    /// End the script S seconds after its first step
    #[arg(long, value_name = "S", value_parser = seconds)]
    time: Option<f64>,
    /// Keep all that was measured in DIR, for `wellfed doctor report`
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
    /// Show a live view, though the script writes to this terminal too: its output is shown in part, and whole at the end
    #[arg(long, conflicts_with = "no_live")]
    live: bool,
    /// Show nothing while the script runs
    #[arg(long)]
    no_live: bool,
    /// Do not run the script again for some seconds, unable to change anything, to try the fix
    #[arg(long, conflicts_with = "trial")]
    no_trial: bool,
    /// Try the fix, also where standard error is no terminal [default: if it is one]
    #[arg(long)]
    trial: bool,
    /// Interpreter for scripts and modules [default: the one that runs this command]
    #[arg(long, value_name = "EXE")]
    python: Option<OsString>,
    /// SCRIPT.py, -m MODULE, or any command, and its arguments
    #[arg(value_name = "SCRIPT", trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<OsString>,
}

pub(super) fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok(number),
        Ok(_) => Err("must be more than 0".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Keeps what trials showed, for another report on the same run.
fn keep(directory: &Directory, run: &RunDir) {
    if !run.tried.is_empty() {
        // Where it cannot be written, this report has it all the same.
        let text = serde_json::to_vec(&run.tried).unwrap_or_default();
        drop(fs::write(directory.path().join(TRIED), text));
    }
}

impl Run {
    /// Runs it; gives the exit status.
    pub(crate) fn run(self, setting: &Setting) -> i32 {
        let launch = match Launch::new(&self.command, self.python.as_deref(), setting) {
            Ok(launch) => {
                let live = if self.no_live { None } else { possible(self.live) };
                Launch { steps: self.steps, time: self.time, live, ..launch }
            }
            Err(error) => {
                output::note(format_args!("error: {error}"));
                return 2;
            }
        };
        let directory = match &self.keep {
            Some(path) => Directory::keep(path),
            None => Directory::private(),
        };
        // A folder of --keep is there now, in which they may lie.
        if let Err(error) = self.output.check() {
            output::note(format_args!("error: {error}"));
            return 2;
        }
        let ended = directory.and_then(|directory| Ok((launch.run(&directory)?, directory)));
        let (status, directory) = match ended {
            Ok(ended) => ended,
            Err(error) => return output::status(Err(error.into())),
        };
        let code = code(status);
        // What goes wrong from here on is no reason to change what the script says of itself.
        let tried = directory.read().map(|mut run| {
            // It is the interpreter that confines the script.
            if begins_as_python(&self.command) && !self.no_trial && (self.trial || io::stderr().is_terminal())
            {
                let prover = Prover { words: &self.command, python: self.python.as_ref(), setting };
                prover.prove(&mut run);
                keep(&directory, &run);
            }
            run
        });
        match tried.and_then(|run| self.output.show(&run)) {
            Ok(met) => {
                if let Some(path) = &self.keep {
                    output::note(format_args!("kept in {}", path.display()));
                }
                if code == 0 && !met { report::NOT_MET } else { code }
            }
            Err(error) => {
                output::note(format_args!("error: {error}"));
                if code == 0 { 1 } else { code }
            }
        }
    }
}
