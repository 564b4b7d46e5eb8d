//! Changes for slow code of known forms, found in the syntax trees of the script's files after it ended.
//!
//! Python's own parser finds them (`wellfed_probe/edits.py`), so that a change is right for the Python that runs the script. What
//! is here only says which files to look at, and which change belongs to a line that takes time.

use std::{collections::BTreeSet, path::Path};

use serde::{Deserialize, Serialize};

use crate::{
    record::{Frame, Record},
    report::Lines,
    run_dir::RunDir,
    stage,
};

/// Files that are looked at, at most.
const MOST_FILES: usize = 200;

/// Slow code of a known form, and the lines to change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Edit {
    /// `map`, `rows`, `threads`, `every`, `connect`, `open`, `lazy`, `pad`, `share` or `async`; `loops`, `straight` or `same`, which are
    /// no changes; see `edits.py`.
    pub kind: String,
    /// File, as the probes name it.
    pub file: String,
    /// First line of what is slow.
    pub line: u32,
    /// Its last line.
    pub last: u32,
    /// The function it is in; with its class before it for `lazy` and `share`.
    pub func: String,
    /// The lines to change.
    pub hunks: Vec<Lines>,
}

impl Edit {
    /// Whether it is about the line that a frame is at.
    pub fn is_at(&self, frame: &Frame) -> bool {
        self.file == frame.file && (self.line..=self.last).contains(&frame.line)
    }
}

/// The script's own files that were seen to run, as the probes name them, and where they are.
pub fn files(run: &RunDir) -> Vec<(String, std::path::PathBuf)> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for process in &run.processes {
        let cwd = process.records.iter().find_map(|record| match record {
            Record::Hello(hello) => Some(hello.cwd.as_str()),
            _ => None,
        });
        let frames = process.records.iter().flat_map(|record| match record {
            Record::Frames(frames) => frames.rows.as_slice(),
            _ => &[],
        });
        for frame in frames.filter(|frame| !stage::library(frame) && frame.file.ends_with(".py")) {
            if found.len() < MOST_FILES && seen.insert(frame.file.clone()) {
                found.push((frame.file.clone(), Path::new(cwd.unwrap_or("")).join(&frame.file)));
            }
        }
    }
    found
}
