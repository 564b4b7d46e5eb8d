//! [`Place`]: where a stage of the plan runs. It is decided here, and nowhere else.
//!
//! [`Stages`] are what is done to data, in the order of the plan: inputs first, and what `device=` asks for last. Verbs of
//! order (`shuffle`, `take`, ...) are none: they say which samples come, and the order is asked wherever a batch is made.
//!
//! Invariant: each stage has one place, and neighbours that have the same one are a segment, which one executor runs:
//! the engine's program, Python's workers, or a device. A batch is handed over between segments and nowhere else, so who
//! reads it next decides in what memory it is made ([`Stages::page_locked`]).

use std::fmt;

use super::Node;

/// Where a stage runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Native code, in threads of the engine.
    Threads,
    /// Python, and the native code between its steps.
    Python(Workers),
    /// A device that batches are copied to.
    Device(Device),
}

/// Who runs Python steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Workers {
    /// The process that iterates, in the thread that asks for a batch.
    #[default]
    Caller,
    /// So many processes.
    Processes(u64),
    /// So many threads of the process that iterates.
    Threads(u64),
}

/// A device, by the name that torch gives it, such as `cuda:0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device(String);

impl Device {
    /// That of this name.
    pub fn new(name: &str) -> Self {
        Self(name.to_owned())
    }

    /// Whether it reads page-locked memory of the host by itself, on a stream beside those that compute: then a batch is
    /// copied while the one before it is used. Others copy when a batch is asked for.
    pub fn has_streams(&self) -> bool {
        self.0.split(':').next() == Some("cuda")
    }
}

/// What of a run decides where stages run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Who runs Python steps, if there are any.
    pub python: Workers,
    /// Where batches are to be; `None` is where they are made.
    pub device: Option<Device>,
}

/// What a stage does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Work<'a> {
    /// What this node asks for.
    Node(&'a Node),
    /// Copies batches to the device.
    Copy,
}

/// One thing that is done to data.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage<'a> {
    /// What it does.
    pub work: Work<'a>,
    /// Where.
    pub place: Place,
}

/// The stages of a plan, in its order.
#[derive(Clone, Debug, PartialEq)]
pub struct Stages<'a>(Vec<Stage<'a>>);

impl<'a> Stages<'a> {
    /// Those of the tree below `root`, run as `run` says.
    pub fn of(root: &'a Node, run: &Run) -> Self {
        // Native parts of samples are made where the Python is that they go through: handing them over from threads of
        // the engine would copy each once more.
        let host = if root.has_python() { Place::Python(run.python) } else { Place::Threads };
        let mut stages = Vec::new();
        work(root, matches!(host, Place::Python(_)), false, &mut |node| {
            stages.push(Stage { work: Work::Node(node), place: host.clone() });
        });
        let copy = |device: &Device| Stage { work: Work::Copy, place: Place::Device(device.clone()) };
        stages.extend(run.device.as_ref().map(copy));
        Self(stages)
    }

    /// All of them.
    pub fn iter(&self) -> std::slice::Iter<'_, Stage<'a>> {
        self.0.iter()
    }

    /// Neighbours that have one place, with that place.
    pub fn segments(&self) -> impl Iterator<Item = (&Place, &[Stage<'a>])> {
        let segments = self.0.chunk_by(|one, next| one.place == next.place);
        segments.map(|stages| (&stages[0].place, stages))
    }

    /// Whether the engine runs all that is done on the host.
    pub(crate) fn native(&self) -> bool {
        !self.0.iter().any(|stage| matches!(stage.place, Place::Python(_)))
    }

    /// Whether batches are made in page-locked memory: where the stage that comes next is on a device that reads it.
    pub fn page_locked(&self) -> bool {
        self.segments().skip(1).any(|(place, _)| matches!(place, Place::Device(to) if to.has_streams()))
    }
}

/// Calls `found` for the nodes below `node`, and it, that do something to data: inputs first. Batches that are `undone`
/// again are never put together, and with `python` nothing is cached.
fn work<'a>(node: &'a Node, python: bool, undone: bool, found: &mut dyn FnMut(&'a Node)) {
    let undone = undone || matches!(node, Node::Unbatch { .. });
    node.inputs().iter().for_each(|input| work(input, python, undone, found));
    let works = match node {
        Node::Source { .. }
        | Node::Map { .. }
        | Node::Mix { .. }
        | Node::Enumerate { .. }
        | Node::Python { .. } => true,
        Node::Cache { .. } => !python,
        Node::Batch { .. }
        | Node::PaddedBatch { .. }
        | Node::RaggedBatch { .. }
        | Node::BucketBySequenceLength { .. }
        | Node::BatchByTokens { .. }
        | Node::BatchByDuration { .. } => !undone,
        Node::Shuffle { .. }
        | Node::Unbatch { .. }
        | Node::Filter { .. }
        | Node::Repeat { .. }
        | Node::Take { .. }
        | Node::Skip { .. }
        | Node::Shard { .. }
        | Node::PythonFilter { .. }
        | Node::Zip { .. }
        | Node::Concatenate { .. }
        | Node::Interleave { .. }
        | Node::SampleFromDatasets { .. } => false,
    };
    if works {
        found(node);
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Threads => write!(f, "threads of the engine"),
            Place::Python(workers) => workers.fmt(f),
            Place::Device(device) => f.write_str(&device.0),
        }
    }
}

impl fmt::Display for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, one, more) = match self {
            Workers::Caller => return write!(f, "the calling process"),
            Workers::Processes(count) => (count, "process", "processes"),
            Workers::Threads(count) => (count, "thread", "threads"),
        };
        write!(f, "{count} worker {}", if *count == 1 { one } else { more })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{plan::PythonKind, source::SourceSpec};

    fn source() -> Node {
        Node::source(SourceSpec::Custom { name: "x".to_owned() })
    }

    fn python(input: Node) -> Node {
        Node::Python { kind: PythonKind::Map, name: "f".to_owned(), field: None, input: Box::new(input) }
    }

    fn names(stages: &Stages<'_>) -> Vec<&'static str> {
        let name = |stage: &Stage<'_>| match stage.work {
            Work::Node(node) => node.name(),
            Work::Copy => "copy",
        };
        stages.iter().map(name).collect()
    }

    #[test]
    fn all_of_a_plan_runs_in_threads_or_with_its_python_and_the_copy_on_the_device() {
        let run = Run { python: Workers::Processes(2), device: Some(Device::new("cuda:1")) };
        let plain = source().shuffle(0).batch(4, false).repeat(None);
        let stages = Stages::of(&plain, &run);
        assert_eq!(names(&stages), ["source", "batch", "copy"]);
        let places: Vec<String> = stages.segments().map(|(place, _)| place.to_string()).collect();
        assert_eq!(places, ["threads of the engine", "cuda:1"]);
        assert!(stages.native() && stages.page_locked());
        let stepped = python(source()).batch(4, false);
        let stages = Stages::of(&stepped, &run);
        let places: Vec<String> = stages.segments().map(|(place, _)| place.to_string()).collect();
        assert_eq!(places, ["2 worker processes", "cuda:1"]);
        assert!(!stages.native());
    }

    #[test]
    fn batches_that_are_undone_are_no_stage() {
        let node = Node::Unbatch { input: Box::new(source().batch(4, false)) }.batch(2, false);
        assert_eq!(names(&Stages::of(&node, &Run::default())), ["source", "batch"]);
    }

    #[test]
    fn memory_is_page_locked_for_devices_that_read_it() {
        let node = source().batch(4, false);
        for (device, locked) in
            [(None, false), (Some("cuda"), true), (Some("mps"), false), (Some("cudax"), false)]
        {
            let run = Run { device: device.map(Device::new), ..Run::default() };
            assert_eq!(Stages::of(&node, &run).page_locked(), locked, "{device:?}");
        }
    }
}
