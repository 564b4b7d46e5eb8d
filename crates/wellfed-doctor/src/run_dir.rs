//! A run as it lies in its directory: `run.json`, `system.json`, and one file of records a process.

use std::{
    fs,
    io::{self, Error, ErrorKind},
    path::Path,
};

use serde::{Deserialize, Serialize};

use crate::{
    record::{self, Record},
    report::Exit,
    system::Trace,
};

/// What the starter of the script knows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Run {
    /// What was run.
    pub command: Vec<String>,
    /// Process id of the script.
    pub pid: u32,
    /// `CLOCK_MONOTONIC` at its start, nanoseconds.
    pub t0: u64,
    /// And at its end.
    pub t1: u64,
    /// How it ended.
    pub exit: Exit,
}

/// Records of one process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessRecords {
    /// Process id.
    pub pid: u32,
    /// Records, as they were written.
    pub records: Vec<Record>,
    /// Lines that could not be read: of a process that was killed, or of another version.
    pub broken: usize,
    /// What went wrong inside of the probes, if anything did.
    pub error: Option<String>,
}

/// A whole run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunDir {
    /// `run.json`.
    pub run: Run,
    /// `system.json`.
    pub trace: Trace,
    /// The probes' files, by process id.
    pub processes: Vec<ProcessRecords>,
}

impl RunDir {
    /// Reads a directory. Missing files of probes are no error: a script may have had no loader, or no Python.
    ///
    /// # Errors
    ///
    /// If `run.json` or `system.json` is missing or makes no sense, or the directory cannot be read; the error names the file.
    pub fn read(dir: &Path) -> io::Result<Self> {
        let mut processes = Vec::new();
        for entry in fs::read_dir(dir).map_err(|error| at(dir, error))? {
            let path = entry?.path();
            let Some(pid) =
                path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok())
            else {
                continue;
            };
            if path.extension().is_some_and(|extension| extension == "jsonl") {
                let (records, broken) = record::read(&path).map_err(|error| at(&path, error))?;
                let error = fs::read_to_string(path.with_extension("error")).ok();
                processes.push(ProcessRecords { pid, records, broken, error });
            }
        }
        processes.sort_by_key(|process| process.pid);
        Ok(Self { run: json(&dir.join("run.json"))?, trace: json(&dir.join("system.json"))?, processes })
    }
}

fn json<T: for<'a> Deserialize<'a>>(path: &Path) -> io::Result<T> {
    let text = fs::read(path).map_err(|error| at(path, error))?;
    serde_json::from_slice(&text).map_err(|error| at(path, Error::new(ErrorKind::InvalidData, error)))
}

fn at(path: &Path, error: Error) -> Error {
    Error::new(error.kind(), format!("{}: {error}", path.display()))
}
