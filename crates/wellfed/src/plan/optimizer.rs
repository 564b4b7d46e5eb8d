//! The passes over an image program, in the order they run. Each fits on a screen and says what it did.
//!
//! No pass may change a bit of the result: the kernels that run fused steps are bit-equal to their parts, and a
//! property test compares optimized with unoptimized programs over random plans.

use wellfed_kernels::points::PointMap;

use super::field::{ImageProgram, Input, Step};
use super::options::OnDevice;
use crate::{
    Result,
    transform::{Class, Shape, runs_on_devices},
};

/// What a pass did to a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) field: String,
    pub(crate) pass: &'static str,
    pub(crate) change: String,
}

type Pass = fn(&mut ImageProgram) -> Result<Option<String>>;

/// The passes with their names. Order matters: dropping identities lets neighbours meet, the write is formed before
/// geometry is fused so that geometry next to it goes into the write, and decoding looks at the final first step.
const PASSES: [(&str, Pass); 4] = [
    ("drop identities", drop_identities),
    ("fuse into write", fuse_write),
    ("fuse geometry", fuse_geometry),
    ("decode region", decode_region),
];

/// Runs all passes over `program`, the image program of `field`.
pub(crate) fn optimize(program: &mut ImageProgram, field: &str, notes: &mut Vec<Note>) -> Result<()> {
    for (pass, run) in PASSES {
        if let Some(change) = run(program)? {
            notes.push(Note { field: field.to_owned(), pass, change });
        }
    }
    Ok(())
}

/// Leaves the last step to the device that batches are for, if it is one that devices run.
pub(crate) fn leave(program: &mut ImageProgram, on_device: OnDevice, field: &str, notes: &mut Vec<Note>) {
    let pass = "leave to the device";
    let refuse = |why: &str| Note { field: field.to_owned(), pass, change: format!("not possible: {why}") };
    if program.probed {
        return notes.push(refuse("the transforms do not settle the size of its images"));
    }
    if program.varies || program.several().is_some() || program.mask.is_some() || program.shape.channels == 2
    {
        return notes.push(refuse("its images differ in size, are masks, or are several of one"));
    }
    let Some((first, end, map)) = leavable(program) else {
        return notes.push(refuse("its last transform is one that only the host runs"));
    };
    let mut left = program.steps.split_off(first);
    let operations = match &left[0] {
        Step::Geometry(range) | Step::Write { operations: range, .. } => range.clone(),
        Step::Whole(at) => *at..*at,
        _ => end..end,
    };
    if !operations.is_empty() || matches!(left[0], Step::Geometry(_) | Step::Write { .. }) {
        left.remove(0);
    }
    let what = format!("{} is done there", program.names_left(&operations, &left));
    program.steps.push(Step::Leave { operations, rest: left, map, from: on_device });
    notes.push(Note { field: field.to_owned(), pass, change: what });
}

/// The first of the last steps that devices run, where they end with a write; the place of its first operation, and the
/// map of values. Before what changes values, or looks around, stands geometry after which all images have one size.
fn leavable(program: &ImageProgram) -> Option<(usize, usize, PointMap)> {
    let end = program.steps.iter().rposition(|step| !matches!(step, Step::Erase(_)))?;
    let Step::Write { operations, map } = &program.steps[end] else { return None };
    let begins = |step: &Step| match step {
        Step::Geometry(range) | Step::Write { operations: range, .. } => Some(range.clone()),
        _ => None,
    };
    let mut found = (end + 1 == program.steps.len()).then(|| (end, operations.start, map.clone()));
    // Recipes have no alpha, and images of a mode that does not say how many channels they have may have some.
    let channels = match program.input {
        Input::Encoded { mode, .. } => [1, 3, 4].map(|stored| mode.channels(stored)),
        Input::Pixels { channels, .. } => [channels; 3],
    };
    if !matches!(channels, [1, 1, 1] | [3, 3, 3]) {
        return found;
    }
    let fixed = |until: usize| {
        let (height, width) = match program.input {
            Input::Pixels { height, width, .. } => (Some(height), Some(width)),
            Input::Encoded { .. } => (None, None),
        };
        let shape = Shape { height, width, channels: channels[0] };
        let before = program.operations[..until].iter();
        let shape = before.fold(shape, |shape, planned| planned.transform.as_operation().fixed_size(shape));
        shape.height.is_some() && shape.width.is_some()
    };
    for at in (0..=end).rev() {
        let step = &program.steps[at];
        match (begins(step), step) {
            (Some(range), _) if fixed(range.end) => found = Some((at, range.start, map.clone())),
            (Some(_), _) => {}
            (None, Step::Whole(i)) if runs_on_devices(&program.operations[*i].transform) => {
                if *i == 0 && fixed(0) {
                    found = Some((at, 0, map.clone()));
                }
            }
            _ => break,
        }
    }
    found
}

/// Removes steps that never do anything.
fn drop_identities(program: &mut ImageProgram) -> Result<Option<String>> {
    let before = program.steps.len();
    let operations = &program.operations;
    program.steps.retain(|step| {
        !matches!(step, Step::Geometry(range) if range.clone().all(|i| operations[i].class == Class::Identity))
    });
    let dropped = before - program.steps.len();
    Ok((dropped > 0).then(|| format!("{dropped} steps that do nothing")))
}

/// Casts, normalization, flips and crops after the cast commute with each other value by value: they become one
/// write. Erasing that comes last is done in the batch.
fn fuse_write(program: &mut ImageProgram) -> Result<Option<String>> {
    let Some(Step::Float(tail)) = program.steps.last().cloned() else { return Ok(None) };
    let class = |i: usize| program.operations[i].class;
    let erase = tail.clone().find(|&i| class(i) == Class::Erase).unwrap_or(tail.end);
    // Padding after a cast fills with a float, which the write's 8-bit input cannot hold. Noise is no map of values.
    let fusable = tail.clone().all(|i| {
        if i < erase {
            !matches!(class(i), Class::Crop | Class::Noise)
        } else {
            matches!(class(i), Class::Erase | Class::Identity)
        }
    });
    if !fusable {
        return Ok(Some(format!("not possible: {} must run one by one", program.names(tail))));
    }
    program.steps.pop();
    let map = program.map(tail.start..erase)?;
    program.steps.push(Step::Write { operations: tail.start..erase, map });
    program.steps.extend((erase..tail.end).filter(|&i| class(i) == Class::Erase).map(Step::Erase));
    Ok(Some(format!("{} in one pass", program.names(tail.start..erase))))
}

/// Neighbouring geometry becomes one kernel, and joins the write if it is next to it. A resize goes first in its
/// kernel, since resampling does not commute with what is before it, crops apart.
fn fuse_geometry(program: &mut ImageProgram) -> Result<Option<String>> {
    let mut fused: Vec<Step> = Vec::new();
    let mut joined = 0;
    for step in std::mem::take(&mut program.steps) {
        let class = |i: usize| program.operations[i].class;
        let range = match &step {
            Step::Geometry(range) | Step::Write { operations: range, .. } => range.clone(),
            _ => {
                fused.push(step);
                continue;
            }
        };
        let Some(Step::Geometry(before)) = fused.last() else {
            fused.push(step);
            continue;
        };
        let all = before.start..range.end;
        // Crops may come before a resize; anything else must come after it.
        let resize = range.clone().find(|&i| class(i) == Class::Resize);
        let plain = |i: usize| matches!(class(i), Class::Crop | Class::Identity);
        if before.end <= range.start && resize.is_none_or(|at| (before.start..at).all(plain)) {
            joined += 1;
            fused.pop();
            fused.push(match step {
                Step::Write { map, .. } => Step::Write { operations: all, map },
                _ => Step::Geometry(all),
            });
        } else {
            fused.push(step);
        }
    }
    program.steps = fused;
    Ok((joined > 0).then(|| format!("{joined} intermediate images less")))
}

/// Sizes come from the header, so crops are drawn before decoding, and what no later stage needs is not decoded.
fn decode_region(program: &mut ImageProgram) -> Result<Option<String>> {
    let [Step::Decode, Step::Geometry(operations) | Step::Write { operations, .. }, ..] = &program.steps[..]
    else {
        return Ok(None);
    };
    program.decode_region =
        operations.clone().any(|i| matches!(program.operations[i].class, Class::Crop | Class::Resize));
    program.steps.remove(0);
    Ok(program.decode_region.then(|| "crops are drawn from the header, before decoding".to_owned()))
}
