//! `wellfed doctor`: why training waits. The measuring and judging is done by crates/wellfed-doctor.

mod attach;
mod env;
mod launch;
mod live;
mod pictures;
mod probe;
mod prove;
mod report;
mod run;
mod signals;
mod sweep;
mod trial;
mod try_;

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, Subcommand};

use crate::output;

/// Measure an unmodified training script and say what slows it down, and what to change
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    #[command(flatten)]
    setting: Setting,
    #[command(subcommand)]
    command: Command,
}

/// What the Python package knows of itself, and passes on before the command's name.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Setting {
    /// Interpreter of the Python package.
    #[arg(long = "interpreter", hide = true)]
    interpreter: Option<OsString>,
    /// Folder with the probes that go into the script's processes [default: that of the Python package]
    #[arg(long, value_name = "DIR", env = "WELLFED_DOCTOR_INJECT", hide = true)]
    inject: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Run),
    Report(report::Again),
    Env(env::Env),
    Attach(attach::Attach),
    Probe(probe::Probe),
    Try(try_::Try),
    Sweep(sweep::Sweep),
}

impl Doctor {
    /// Does what was asked for; gives the exit status.
    pub(crate) fn run(self) -> i32 {
        match self.command {
            Command::Run(run) => run.run(&self.setting),
            Command::Report(again) => again.run(),
            Command::Probe(probe) => output::status(probe.run()),
            Command::Attach(attach) => output::status(attach.run()),
            Command::Env(env) => output::status(env.run(&self.setting)),
            Command::Try(attempt) => attempt.run(&self.setting),
            Command::Sweep(sweep) => sweep.run(&self.setting),
        }
    }
}
