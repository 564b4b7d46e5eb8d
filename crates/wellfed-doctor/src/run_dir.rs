//! A run as it lies in its directory: `run.json`, `system.json`, and one file of records a process.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Error, ErrorKind},
    path::Path,
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};

use crate::{
    edit::Edit,
    exit::Exit,
    proved::{TRIED, Tried},
    record::{self, Record},
    remade,
    source::Sources,
    system::Trace,
};

/// Name of the file with [`RunDir::edits`].
pub const EDITS: &str = "edits.json";

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
    /// `edits.json`: what the syntax trees of the script's files show, if they were looked at.
    pub edits: Vec<Edit>,
    /// `tried.json`: changes that were tried after the run.
    pub tried: Vec<Tried>,
}

impl RunDir {
    /// Reads a directory, and the sources that its records mention. Missing files of probes are no error: a script may have had no
    /// loader, or no Python.
    ///
    /// # Errors
    ///
    /// If `run.json` or `system.json` is missing or makes no sense, or the directory cannot be read; the error names the file.
    pub fn read(dir: &Path) -> io::Result<Self> {
        let mut processes: BTreeMap<u32, ProcessRecords> = BTreeMap::new();
        for entry in fs::read_dir(dir).map_err(|error| at(dir, error))? {
            let path = entry?.path();
            let Some(pid) =
                path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok())
            else {
                continue;
            };
            // A probe that failed before its first record leaves only the error.
            let process = match path.extension().and_then(|extension| extension.to_str()) {
                Some("jsonl") => {
                    let (records, broken) = record::read(&path).map_err(|error| at(&path, error))?;
                    let process = processes.entry(pid).or_default();
                    process.records.splice(0..0, records);
                    process.broken += broken;
                    process
                }
                // What was seen of it from outside.
                Some("looks") => {
                    let (records, broken) = record::read(&path).map_err(|error| at(&path, error))?;
                    let process = processes.entry(pid).or_default();
                    process.records.extend(records);
                    process.broken += broken;
                    process
                }
                Some("error") => {
                    let process = processes.entry(pid).or_default();
                    process.error = fs::read_to_string(&path).ok();
                    process
                }
                _ => continue,
            };
            process.pid = pid;
        }
        let mut processes: Vec<_> = processes.into_values().collect();
        remade::join(&mut processes);
        let (run, trace) = (json(&dir.join("run.json"))?, json(&dir.join("system.json"))?);
        let mut sources = Sources::new(began(dir, &run));
        for process in &mut processes {
            sources.quote(&mut process.records);
        }
        // Runs that were kept by earlier versions have none.
        let edits = json(&dir.join(EDITS)).unwrap_or_default();
        let tried = json(&dir.join(TRIED)).unwrap_or_default();
        Ok(Self { run, trace, processes, edits, tried })
    }
}

/// When the script began; `run.json` is written at its end.
fn began(dir: &Path, run: &Run) -> Option<SystemTime> {
    let end = fs::metadata(dir.join("run.json")).and_then(|about| about.modified()).ok()?;
    end.checked_sub(Duration::from_nanos(run.t1.saturating_sub(run.t0)))
}

fn json<T: for<'a> Deserialize<'a>>(path: &Path) -> io::Result<T> {
    let text = fs::read(path).map_err(|error| at(path, error))?;
    serde_json::from_slice(&text).map_err(|error| at(path, Error::new(ErrorKind::InvalidData, error)))
}

fn at(path: &Path, error: Error) -> Error {
    Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_and_errors_are_those_of_their_process() {
        let dir = std::env::temp_dir().join(format!("wellfed-run-dir-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let write = |name: &str, text: &str| fs::write(dir.join(name), text).unwrap();
        write("run.json", "{}");
        write("system.json", "{}");
        write("7.jsonl", "{\"k\":\"hello\",\"pid\":7}\n{\"k\":\"loa");
        write("7.error", "a defect");
        write("9.error", "no record was written");
        write("7.loader", "0");
        write("notes.txt", "");
        let run = RunDir::read(&dir);
        fs::remove_dir_all(&dir).unwrap();
        let run = run.unwrap();
        let seen: Vec<_> =
            run.processes.iter().map(|p| (p.pid, p.records.len(), p.broken, p.error.as_deref())).collect();
        assert_eq!(seen, [(7, 1, 1, Some("a defect")), (9, 0, 0, Some("no record was written"))]);
    }
}
