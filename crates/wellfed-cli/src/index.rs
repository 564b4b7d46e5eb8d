//! `wellfed index`: makes row indexes ahead of training, so that the first epoch has them.

use std::{
    io::Write,
    sync::{Mutex, PoisonError},
    time::Instant,
};

use clap::Args;
use serde::Serialize;
use wellfed::{
    engine::{Indexed, index_rows},
    plan::RowIndexing,
};

use crate::{
    detect,
    output::{self, Failure, printable},
    progress::Progress,
};

/// Bad samples that are printed; JSON has all.
const MAX_LISTED: usize = 20;

/// Note where the rows of every JPEG begin, so that training decodes only the rows it needs
#[derive(Debug, Args)]
pub(crate) struct Index {
    /// Class folders, a flat folder, a pattern in quotes, or tar shards
    #[arg(value_parser = detect::argument)]
    path: String,
    /// Folder for the index files [default: beside the images or shards]
    #[arg(long, value_name = "FOLDER")]
    into: Option<String>,
    /// Threads [default: as many as the process may use]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    workers: Option<u16>,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

/// What was done. Names and meaning of the fields are kept from release to release.
#[derive(Debug, Serialize)]
struct Report {
    version: &'static str,
    path: String,
    format: &'static str,
    samples: u64,
    seconds: f64,
    /// Images whose index was made or completed.
    new: u64,
    /// Images whose index was there.
    known: u64,
    /// Progressive JPEGs, which have none.
    without_rows: u64,
    /// Images of other formats.
    others: u64,
    /// Where the indexes are.
    files: Vec<String>,
    bad_samples: Vec<Bad>,
}

#[derive(Debug, Serialize)]
struct Bad {
    index: u64,
    key: String,
    kind: &'static str,
    message: String,
}

impl Index {
    /// Makes them and reports.
    pub(crate) fn run(self) -> Result<(), Failure> {
        let detected = detect::open(&self.path)?;
        output::note(detect::describe(&self.path, &detected));
        let source = detected.source;
        let row_index = self.into.map_or(RowIndexing::Beside, RowIndexing::Folder);
        let workers = self
            .workers
            .map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from);
        let mut bar = Progress::new(source.len());
        bar.start("indexing".to_owned());
        let bar = Mutex::new(bar);
        let start = Instant::now();
        let done = index_rows(source.clone(), &row_index, workers, &|samples| {
            bar.lock().unwrap_or_else(PoisonError::into_inner).add(samples);
        })?;
        drop(bar);
        let Indexed { new, known, without_rows, others, bad, problem, files } = done;
        if let Some(problem) = problem {
            return Err(wellfed::Error::new(wellfed::ErrorKind::Io, problem)
                .with_hint("keep the indexes elsewhere with --into FOLDER")
                .into());
        }
        let bad_samples = bad.into_iter().map(|(index, error)| Bad {
            index,
            key: source.key(index),
            kind: error.kind().name(),
            message: error.message().to_owned(),
        });
        let report = Report {
            version: env!("CARGO_PKG_VERSION"),
            path: self.path,
            format: detected.format,
            samples: source.len(),
            seconds: start.elapsed().as_secs_f64(),
            new,
            known,
            without_rows,
            others,
            files,
            bad_samples: bad_samples.collect(),
        };
        if self.json { output::json(&report) } else { Ok(report.print()?) }
    }
}

impl Report {
    fn print(&self) -> std::io::Result<()> {
        let mut out = output::results();
        let Self { new, known, without_rows, others, seconds, .. } = self;
        writeln!(out, "indexed: {new} in {seconds:.1} s")?;
        writeln!(out, "indexed before: {known}")?;
        if *without_rows > 0 {
            writeln!(out, "progressive, always decoded as a whole: {without_rows}")?;
        }
        if *others > 0 {
            writeln!(out, "of other formats: {others}")?;
        }
        match self.files.as_slice() {
            [file] => writeln!(out, "kept in {}", printable(file))?,
            [first, .., last] => {
                let (first, last) = (printable(first), printable(last));
                writeln!(out, "kept in {} files, {first} to {last}", self.files.len())?;
            }
            [] => {}
        }
        if !self.bad_samples.is_empty() {
            writeln!(out, "\nbad samples: {}", self.bad_samples.len())?;
            for bad in self.bad_samples.iter().take(MAX_LISTED) {
                writeln!(out, "  {}: {}", printable(&bad.key), printable(&bad.message))?;
            }
            if let Some(more @ 1..) = self.bad_samples.len().checked_sub(MAX_LISTED) {
                writeln!(out, "  and {more} more")?;
            }
        }
        out.flush()
    }
}
