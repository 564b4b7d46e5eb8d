//! The whole script from its first loop on: what part of its time each loop takes, and what is done beside the batches.

use std::collections::{BTreeSet, HashMap};

use super::{LoaderUse, seconds};
use crate::{
    edit::Edit,
    record::{Frame, Record},
    run_dir::ProcessRecords,
    stage,
};

/// What a loop over a loader is for, as far as names tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// Batches that are learnt from.
    Training,
    /// Batches that a model is judged by.
    Evaluation,
    /// Names do not tell.
    #[default]
    Unknown,
}

impl Purpose {
    /// Of a loader, by the words of the lines that made it.
    pub fn of(used: &LoaderUse) -> Self {
        let Some(place) = &used.loader.place else { return Self::Unknown };
        let text = place.code.to_lowercase();
        let words: Vec<&str> = text.split(|c: char| !c.is_ascii_alphabetic()).collect();
        let any = |known: &[&str]| words.iter().any(|word| known.contains(word));
        if any(&["train", "training", "trainset"]) {
            Self::Training
        } else if any(&[
            "val",
            "valid",
            "validation",
            "valset",
            "eval",
            "evaluation",
            "test",
            "testset",
            "dev",
        ]) {
            Self::Evaluation
        } else {
            Self::Unknown
        }
    }

    /// `evaluation`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Training => "training",
            Self::Evaluation => "evaluation",
            Self::Unknown => "loop",
        }
    }
}

/// What is done beside the batches, in seconds of the script.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Script {
    /// From the first loop's begin to the last one's end, or to that of the run if something was done after it.
    pub time: f64,
    /// Writing checkpoints.
    pub checkpoints: f64,
    /// Functions of the script that loop in Python: metrics, mostly.
    pub metrics: f64,
    /// Printing and logging.
    pub logging: f64,
}

/// Whether a frame writes a checkpoint: of a library that does, or an expression that says so.
pub fn saves(frame: &Frame) -> bool {
    const WORDS: [&str; 6] =
        ["torch.save(", "save_file(", "save_checkpoint(", "save_state(", "save_pretrained(", "save_weights("];
    let file = frame.file.replace('\\', "/");
    let writes = frame.func.rsplit('.').next().is_some_and(|name| name.contains("save"));
    let library = file.ends_with("/torch/serialization.py") || file.contains("/safetensors/");
    (library && writes) || WORDS.iter().any(|word| frame.call.contains(word))
}

/// The frames of a process by their numbers.
fn frames(main: &ProcessRecords) -> HashMap<u32, &Frame> {
    let new = main.records.iter().filter_map(|record| match record {
        Record::Frames(new) => Some(&new.rows),
        _ => None,
    });
    new.flatten().map(|frame| (frame.id, frame)).collect()
}

/// Whether a stack asks a loader for a batch.
fn asks(list: &[&Frame]) -> bool {
    list.iter().any(|frame| stage::library(frame) && frame.func.ends_with("__next__"))
}

/// Leaves out functions that loop over batches, whatever they are called: they were seen to ask for them, or to train.
pub(super) fn leave_out_steps(edits: &mut Vec<Edit>, main: &ProcessRecords) {
    if edits.iter().all(|edit| edit.kind != "loops") {
        return;
    }
    let frames = frames(main);
    let mut seen: BTreeSet<u32> = BTreeSet::new();
    for record in &main.records {
        let Record::Stacks(stacks) = record else { continue };
        for stack in &stacks.rows {
            let list: Vec<&Frame> = stack.frames.iter().filter_map(|id| frames.get(id).copied()).collect();
            let trains =
                |list: &[&Frame]| ["forward", "backward", "optimizer"].contains(&stage::looping(list).0);
            if !list.is_empty() && (asks(&list) || trains(&list)) {
                seen.extend(&stack.frames);
            }
        }
    }
    let steps: Vec<&Frame> = seen.iter().filter_map(|id| frames.get(id).copied()).collect();
    edits.retain(|edit| edit.kind != "loops" || !steps.iter().any(|frame| edit.is_at(frame)));
}

impl Script {
    pub(super) fn of(main: &ProcessRecords, span: (u64, u64), edits: &[Edit]) -> Self {
        let frames = frames(main);
        let (mut all, mut saving, mut python, mut logging) = (0u64, 0u64, 0u64, 0u64);
        for record in &main.records {
            let Record::Stacks(stacks) = record else { continue };
            if stacks.thread != "MainThread" || stacks.t < span.0 || stacks.t > span.1 {
                continue;
            }
            for stack in &stacks.rows {
                all += stack.wall;
                let list: Vec<&Frame> =
                    stack.frames.iter().filter_map(|id| frames.get(id).copied()).collect();
                // What makes batches is no part of what is done besides.
                if list.is_empty() || asks(&list) {
                    continue;
                }
                if list.iter().any(|frame| saves(frame)) {
                    saving += stack.wall;
                } else if list.iter().any(|frame| loops(frame, edits)) {
                    python += stack.wall;
                } else if stage::looping(&list).0 == "log" {
                    logging += stack.wall;
                }
            }
        }
        let time = seconds(span.1.saturating_sub(span.0));
        let of = |part: u64| if all > 0 { time * part as f64 / all as f64 } else { 0.0 };
        Self { time, checkpoints: of(saving), metrics: of(python), logging: of(logging) }
    }
}

/// Whether a frame is in a function of the script that loops in Python, and not over batches.
pub fn loops(frame: &Frame, edits: &[Edit]) -> bool {
    edits.iter().any(|edit| edit.kind == "loops" && edit.is_at(frame))
}
