//! Where the stages of random plans run, with Python steps put in at random.

use std::ptr;

use proptest::{prelude::*, test_runner::TestCaseResult};
use wellfed::{
    Dataset, ErrorKind,
    plan::{Device, Node, Place, PythonKind, Run, Stage, Work, Workers},
};

/// Puts a Python step above nodes of the tree, as `choices` say.
fn stepped(node: Node, choices: &mut impl Iterator<Item = u32>) -> Node {
    let inputs = node.inputs().iter().map(|input| stepped(input.clone(), choices)).collect();
    let node = node.with_inputs(inputs).unwrap_or_else(|error| panic!("{error}"));
    if choices.next().unwrap_or(0) % 6 != 5 {
        return node;
    }
    Node::Python { kind: PythonKind::Map, name: "step".to_owned(), field: None, input: Box::new(node) }
}

/// All nodes, inputs first, each with whether its batches are undone above it.
fn nodes<'a>(node: &'a Node, undone: bool, found: &mut Vec<(&'a Node, bool)>) {
    let below = undone || matches!(node, Node::Unbatch { .. });
    node.inputs().iter().for_each(|input| nodes(input, below, found));
    found.push((node, undone));
}

/// What is done to data, by name: all other verbs only say in which order it comes.
fn works(node: &Node, undone: bool, python: bool) -> bool {
    match node.name() {
        "source" | "enumerate" | "map" => true,
        "cache" => !python,
        // Also the collate function above a batch.
        "batch" | "padded_batch" | "ragged_batch" | "bucket_by_sequence_length" | "batch_by_tokens" => {
            !undone
        }
        _ => false,
    }
}

/// Every stage has one place, in the order of the plan; segments are its parts; what runs follows them.
pub(crate) fn check_places(data: &Dataset, choices: &[u32]) -> TestCaseResult {
    let mut choices = choices.iter().copied();
    let python = [Workers::Caller, Workers::Processes(2), Workers::Threads(3)]
        [choices.next().unwrap_or(0) as usize % 3];
    let device = [None, Some("meta"), Some("cuda"), Some("cuda:1")][choices.next().unwrap_or(0) as usize % 4];
    let run = Run { python, device: device.map(Device::new) };
    let root = stepped(data.plan().root.clone(), &mut choices);

    let stages = wellfed::plan::Stages::of(&root, &run);
    let all: Vec<&Stage<'_>> = stages.iter().collect();
    let mut found = Vec::new();
    nodes(&root, false, &mut found);
    found.retain(|(node, undone)| works(node, *undone, root.has_python()));
    let (host, copy) = all.split_at(found.len().min(all.len()));
    prop_assert_eq!(host.len(), found.len(), "{:?}", root);
    for (stage, (node, _)) in host.iter().zip(&found) {
        prop_assert!(
            matches!(stage.work, Work::Node(one) if ptr::eq(one, *node)),
            "{stage:?} is not {node:?}"
        );
        let wanted = if root.has_python() { Place::Python(python) } else { Place::Threads };
        prop_assert_eq!(&stage.place, &wanted);
    }
    let copies: Vec<Place> = run.device.iter().cloned().map(Place::Device).collect();
    prop_assert_eq!(copy.iter().map(|stage| stage.place.clone()).collect::<Vec<_>>(), copies);
    prop_assert!(copy.iter().all(|stage| stage.work == Work::Copy));

    let segments: Vec<(&Place, &[Stage<'_>])> = stages.segments().collect();
    prop_assert!(segments.windows(2).all(|pair| pair[0].0 != pair[1].0));
    let parts: Vec<&Stage<'_>> = segments.iter().flat_map(|(_, stages)| stages.iter()).collect();
    prop_assert_eq!(&parts, &all);
    prop_assert!(segments.iter().all(|(place, stages)| stages.iter().all(|stage| stage.place == **place)));
    let streams = device.is_some_and(|name| name.starts_with("cuda"));
    prop_assert_eq!(stages.page_locked(), streams);

    // The engine runs the plan where its first segment is its own, and explains all of it in any case.
    let mut plan = data.plan().clone();
    plan.root = root.clone();
    let placed = match Dataset::with_plan(data.sources().to_vec(), plan) {
        Ok(placed) => placed,
        Err(error) => {
            prop_assert!(root.has_python() || data.loader().is_err(), "{error}");
            return Ok(());
        }
    };
    match placed.loader() {
        Ok(_) => prop_assert!(matches!(segments[0].0, Place::Threads)),
        Err(error) => {
            prop_assert!(root.has_python() || data.loader().is_err(), "{error}");
            prop_assert_eq!(error.kind(), ErrorKind::Config);
        }
    }
    // Not every tree takes a step everywhere.
    let Ok(text) = placed.explain_run(&run) else {
        prop_assert!(root.has_python() || data.loader().is_err(), "{:?}", placed.explain_run(&run));
        return Ok(());
    };
    let lines: Vec<&str> = text
        .lines()
        .skip_while(|line| !line.starts_with("stages"))
        .skip(1)
        .take_while(|line| line.starts_with("  "))
        .collect();
    prop_assert_eq!(lines.len(), all.len() + segments.len(), "{}", text);
    let mut lines = lines.into_iter();
    for (place, stages) in &segments {
        prop_assert!(
            lines.next().is_some_and(|line| line.trim().starts_with(&place.to_string())),
            "{}",
            text
        );
        prop_assert!(lines.by_ref().take(stages.len()).all(|line| line.starts_with("    ")), "{}", text);
    }
    Ok(())
}
