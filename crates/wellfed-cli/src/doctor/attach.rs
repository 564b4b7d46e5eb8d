//! `wellfed doctor attach`: watches the machine for a process that measures itself, as `wellfed.doctor()` in Python does.

use std::{
    fs,
    io::{self, Read},
    path::PathBuf,
};

use clap::Args;
use wellfed::Error;
use wellfed_doctor::system::Monitor;

use super::launch::INTERVAL;
use crate::output::Failure;

/// Watch the machine and a process until standard input ends, and write what was seen
#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct Attach {
    /// Process; those that it starts are watched, too
    pid: u32,
    /// File to write, such as `system.json` of a run
    file: PathBuf,
}

impl Attach {
    /// Watches; whoever closes the other end of standard input, or ends, ends this.
    pub(crate) fn run(self) -> Result<(), Failure> {
        let monitor = Monitor::start(self.pid, INTERVAL, self.file.parent())
            .map_err(|error| Error::io("watch", self.pid.to_string(), error))?;
        let mut rest = io::stdin().lock();
        let mut piece = [0; 64];
        // Nothing is said there: only its end matters.
        while rest.read(&mut piece).is_ok_and(|n| n > 0) {}
        let text = serde_json::to_vec(&monitor.stop()).map_err(io::Error::from);
        let written = text.and_then(|text| fs::write(&self.file, text));
        Ok(written.map_err(|error| Error::io("write", self.file.display().to_string(), error))?)
    }
}
