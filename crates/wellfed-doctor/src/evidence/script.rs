//! The whole script from its first loop on: what part of its time each loop takes, and what is done beside the batches.

use std::collections::HashMap;

use super::{LoaderUse, seconds};
use crate::{
    edit::Edit,
    record::{Frame, Record, Stacks},
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
    const WORDS: [&str; 9] = [
        "torch.save(",
        "save_file(",
        "save_checkpoint(",
        "save_state(",
        "save_pretrained(",
        "save_weights(",
        "pickle.dump(",
        "checkpoint",
        "ckpt",
    ];
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

/// Stacks that were seen: from outside where there are such, since looks from inside find where a thread gives the interpreter's lock up
/// and not where it is.
fn stacks(main: &ProcessRecords) -> impl Iterator<Item = &Stacks> {
    let all = || {
        main.records.iter().filter_map(|record| match record {
            Record::Stacks(stacks) => Some(stacks),
            _ => None,
        })
    };
    let outside = all().any(|stacks| stacks.outside);
    all().filter(move |stacks| stacks.outside == outside)
}

/// Share of a function's time in stacks that ask for batches or train from which on it is one that loops over them. A stack that was
/// read while it changed may show as much by mistake, but seldom.
const STEPS: f64 = 0.05;

/// Leaves out functions that loop over batches, whatever they are called: they were seen to ask for them, or to train.
pub(super) fn leave_out_steps(edits: &mut Vec<Edit>, main: &ProcessRecords) {
    if edits.iter().all(|edit| edit.kind != "loops") {
        return;
    }
    let frames = frames(main);
    // Time in each of the functions, and how much of it belongs to steps.
    let mut spent = vec![(0u64, 0u64); edits.len()];
    for stacks in stacks(main) {
        for stack in &stacks.rows {
            let list: Vec<&Frame> = stack.frames.iter().filter_map(|id| frames.get(id).copied()).collect();
            if list.is_empty() {
                continue;
            }
            let steps =
                asks(&list) || ["forward", "backward", "optimizer"].contains(&stage::looping(&list).0);
            for (edit, (all, in_steps)) in edits.iter().zip(&mut spent) {
                if edit.kind == "loops" && list.iter().any(|frame| edit.is_at(frame)) {
                    *all += stack.wall;
                    *in_steps += if steps { stack.wall } else { 0 };
                }
            }
        }
    }
    let mut spent = spent.into_iter();
    edits.retain(|edit| {
        let (all, steps) = spent.next().unwrap_or_default();
        edit.kind != "loops" || steps as f64 <= STEPS * all as f64
    });
}

impl Script {
    pub(super) fn of(main: &ProcessRecords, span: (u64, u64), edits: &[Edit]) -> Self {
        let frames = frames(main);
        let (mut all, mut saving, mut python, mut logging) = (0u64, 0u64, 0u64, 0u64);
        for stacks in stacks(main) {
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

/// Whether a frame is in a function of the script in which nothing is done again and again: it takes no time itself.
pub fn straight(frame: &Frame, edits: &[Edit]) -> bool {
    // A function within another one is told for itself.
    let around = |kind: &str| {
        let of_kind = edits.iter().filter(|edit| edit.kind == kind && edit.is_at(frame));
        of_kind.map(|edit| edit.last.saturating_sub(edit.line)).min()
    };
    around("straight").is_some_and(|lines| around("loops").is_none_or(|other| lines <= other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Frames, Stack};

    fn frame(id: u32, file: &str, func: &str, line: u32) -> Frame {
        Frame { id, file: file.to_owned(), func: func.to_owned(), line, ..Frame::default() }
    }

    /// Looks at a script whose `accuracy` loops in Python: rows of frames and their time, from outside of the process or from inside.
    fn seen(looks: &[(bool, &[u32], u64)]) -> ProcessRecords {
        let rows = vec![
            frame(0, "train.py", "<module>", 30),
            frame(1, "train.py", "accuracy", 5),
            frame(2, "/lib/site-packages/torch/_tensor.py", "Tensor.backward", 600),
            frame(
                3,
                "/lib/site-packages/torch/utils/data/dataloader.py",
                "_BaseDataLoaderIter.__next__",
                700,
            ),
        ];
        let mut records = vec![Record::Frames(Frames { rows })];
        records.extend(looks.iter().map(|(outside, frames, wall)| {
            let rows =
                vec![Stack { frames: frames.to_vec(), n: 1, wall: *wall, cpu: *wall, ..Stack::default() }];
            Record::Stacks(Stacks { t: 50, thread: "MainThread".to_owned(), rows, outside: *outside })
        }));
        ProcessRecords { records, ..ProcessRecords::default() }
    }

    fn accuracy() -> Vec<Edit> {
        let (kind, func) = ("loops".to_owned(), "accuracy".to_owned());
        vec![Edit { kind, func, file: "train.py".to_owned(), line: 4, last: 8, ..Edit::default() }]
    }

    #[test]
    fn where_a_thread_gives_up_the_lock_is_not_where_it_spends_its_time() {
        let main = seen(&[(true, &[1, 0], 75), (true, &[0], 25), (false, &[2, 0], 100)]);
        let script = Script::of(&main, (0, 100), &accuracy());
        assert!((script.metrics / script.time - 0.75).abs() < 1e-9, "{script:?}");
        // Where nobody looked from outside, looks from inside are all there is.
        let main = seen(&[(false, &[1, 0], 10), (false, &[0], 90)]);
        let script = Script::of(&main, (0, 100), &accuracy());
        assert!((script.metrics / script.time - 0.1).abs() < 1e-9, "{script:?}");
    }

    #[test]
    fn a_stack_of_two_moments_makes_no_step_of_a_function() {
        let mut edits = accuracy();
        leave_out_steps(&mut edits, &seen(&[(true, &[1, 0], 970), (true, &[2, 1, 0], 30)]));
        assert_eq!(edits.len(), 1);
        // One that trains, or asks for batches, does so in more of them.
        for inner in [2, 3] {
            let mut edits = accuracy();
            leave_out_steps(&mut edits, &seen(&[(true, &[1, 0], 900), (true, &[inner, 1, 0], 100)]));
            assert!(edits.is_empty());
        }
    }
}
