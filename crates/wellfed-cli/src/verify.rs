//! `wellfed verify`: whether shards are still what `wellfed convert` wrote.

use std::{io::Write, thread, time::Instant};

use clap::Args;
use indicatif::HumanBytes;
use serde::Serialize;
use wellfed::write::{Problem, Progress, Verified, verify};

use crate::{
    convert::shown,
    output::{self, Failure, printable},
};

/// Problems that are printed; JSON has all.
const MAX_LISTED: usize = 50;

/// Read all shards that were converted, and compare them with what was written
///
/// The exit status is 1 if something is wrong.
#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// The folder that the shards were written to, or its manifest.json
    #[arg(value_name = "DST")]
    path: String,
    /// Also decode all images, and read all numbers, texts and arrays
    #[arg(long)]
    full: bool,
    /// Threads [default: as many as the process may use]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    workers: Option<u16>,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

/// What was found. Names and meaning of the fields are kept from release to release.
#[derive(Debug, Serialize)]
struct Report {
    version: &'static str,
    path: String,
    full: bool,
    seconds: f64,
    #[serde(flatten)]
    verified: Verified,
}

impl Verify {
    /// Reads and reports.
    pub(crate) fn run(self) -> Result<(), Failure> {
        let cores = || thread::available_parallelism().map_or(1, usize::from);
        let workers = self.workers.map_or_else(cores, usize::from);
        let (start, progress) = (Instant::now(), Progress::new());
        let verified = shown("verifying", &progress, || verify(&self.path, self.full, workers, &progress))?;
        let good = verified.problems.is_empty();
        let seconds = start.elapsed().as_secs_f64();
        let report = Report {
            version: env!("CARGO_PKG_VERSION"),
            path: self.path,
            full: self.full,
            seconds,
            verified,
        };
        if self.json {
            output::json(&report)?;
        } else {
            report.print()?;
        }
        if good { Ok(()) } else { Err(Failure::Found) }
    }
}

impl Report {
    fn print(&self) -> std::io::Result<()> {
        let mut out = output::results();
        let Verified { shards, samples, bytes, skipped, problems, .. } = &self.verified;
        let what = if self.full { "read and decoded" } else { "read" };
        writeln!(
            out,
            "{samples} samples in {shards} shards, {}, {what} in {:.1} s",
            HumanBytes(*bytes),
            self.seconds
        )?;
        if *skipped > 0 {
            writeln!(out, "left out when they were written: {skipped}")?;
        }
        if problems.is_empty() {
            writeln!(out, "all as it was written")?;
        } else {
            writeln!(out, "\nproblems: {}", problems.len())?;
            for Problem { path, key, message } in problems.iter().take(MAX_LISTED) {
                let key = key.as_ref().map_or_else(String::new, |key| format!(" {}", printable(key)));
                writeln!(out, "  {}{key}: {}", printable(path), printable(message))?;
            }
            if let Some(more @ 1..) = problems.len().checked_sub(MAX_LISTED) {
                writeln!(out, "  and {more} more")?;
            }
        }
        out.flush()
    }
}
