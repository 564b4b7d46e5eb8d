//! Random plans: the same bits whatever runs them and from any position, those that a plain model gives, and states that
//! are exact or refused on other numbers of ranks and other batch sizes.
//!
//! `PROPTEST_CASES` says how many plans are tried.

mod generator;
mod model;
mod named;
mod places;
mod run;
mod sources;
mod states;

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
};

use generator::{Case, Generator};
use model::{ALL, Model};
use proptest::{
    collection::vec,
    prelude::*,
    test_runner::{TestCaseResult, TestRunner},
};
use run::{Item, Judge, epoch, loader, read};
use sources::Files;
use wellfed::{
    Dataset, ErrorKind, Plan,
    order::State,
    plan::{Node, OnError},
};

/// Batches that are looked at where an epoch has no end.
const LIMIT: usize = 16;

/// Plans that are tried, unless `PROPTEST_CASES` says another number.
fn config(cases: u32) -> ProptestConfig {
    let asked = std::env::var_os("PROPTEST_CASES").map(|_| ProptestConfig::default().cases);
    ProptestConfig { cases: asked.unwrap_or(cases), failure_persistence: None, ..ProptestConfig::default() }
}

/// Verbs of the plans that a test looked at. Says at the end whether there were enough.
#[derive(Default)]
struct Tally {
    tried: Cell<u32>,
    accepted: Cell<u32>,
    verbs: RefCell<BTreeMap<&'static str, u32>>,
}

impl Tally {
    fn accept(&self, node: &Node) {
        self.accepted.set(self.accepted.get() + 1);
        let mut verbs = self.verbs.borrow_mut();
        let mut left = vec![node];
        while let Some(node) = left.pop() {
            *verbs.entry(node.name()).or_default() += 1;
            left.extend(node.inputs());
        }
    }

    fn check(&self) {
        let (tried, accepted) = (self.tried.get(), self.accepted.get());
        assert!(accepted * 2 > tried, "only {accepted} of {tried} plans were accepted");
        let verbs = self.verbs.borrow();
        let wanted = [
            "shuffle",
            "map",
            "cache",
            "batch",
            "padded_batch",
            "ragged_batch",
            "bucket_by_sequence_length",
            "batch_by_tokens",
            "unbatch",
            "enumerate",
            "filter",
            "repeat",
            "take",
            "skip",
            "shard",
            "zip",
            "concatenate",
            "interleave",
            "sample_from_datasets",
        ];
        for verb in wanted {
            assert!(verbs.contains_key(verb), "no plan had {verb}(): {verbs:?}");
        }
    }
}

fn choices() -> impl Strategy<Value = Vec<u32>> {
    vec(any::<u32>(), 0..160)
}

#[test]
fn plans_give_the_same_bits_whatever_runs_them_and_from_every_position() {
    let (files, tally) = (Files::new(), Tally::default());
    let mut runner = TestRunner::new(config(400));
    let result = runner.run(&choices(), |choices| {
        let case = Generator::new(&choices, &files, None).plan();
        tally.tried.set(tally.tried.get() + 1);
        check(&case, &tally)
    });
    result.unwrap_or_else(|error| panic!("{error}"));
    tally.check();
}

#[test]
fn every_stage_has_one_place_in_the_order_of_the_plan_and_segments_follow_them() {
    let files = Files::new();
    let mut runner = TestRunner::new(config(300));
    let result = runner.run(&(choices(), vec(any::<u32>(), 0..40)), |(choices, steps)| {
        let case = Generator::new(&choices, &files, None).plan();
        places::check_places(&case.data, &steps)
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}

/// A loader's first two epochs.
struct Epochs {
    items: [Vec<Item>; 2],
    /// After each item of the first one.
    states: Vec<State>,
}

fn check(case: &Case, tally: &Tally) -> TestCaseResult {
    let Case { data, leaves, on_error } = case;
    let on_error = *on_error;
    let root = &data.plan().root;
    let first = match loader(data, 1, true) {
        Ok(loader) => loader,
        Err(error) => {
            prop_assert_eq!(error.kind(), ErrorKind::Config, "{}\n{:?}", error, root);
            return Ok(());
        }
    };
    tally.accept(root);
    let model = Model::new(root, leaves);
    let endless = model.is_endless(root, 0);
    let limit = if endless { LIMIT } else { ALL };

    let mut states = vec![first.state_dict().unwrap()];
    first.start_epoch().unwrap();
    let (one, over) = read(&first, limit, on_error, |state| states.push(state));
    prop_assert!(over != endless || on_error == OnError::Skip, "{:?}", root);
    let after = first.state_dict().unwrap();
    let expected = Epochs { items: [one, epoch(&first, limit, on_error)], states };

    let mut judge = Judge::new(&model, data, on_error);
    for (number, items) in expected.items.iter().enumerate() {
        let elements = model.elements(number as u64, limit);
        // Where batches are skipped, those that came of an epoch without end are fewer; and the model looks at so many samples
        // of one only.
        let few = endless && (on_error == OnError::Skip || elements.len() < limit);
        if !few {
            let result = judge.compare(&elements, items);
            prop_assert!(result.is_ok(), "epoch {}: {}\n{:?}", number, result.unwrap_err(), root);
        }
        check_order(data, number as u64, &elements, endless)?;
        if number == 0 {
            let len = (!endless).then_some(elements.len() as u64);
            prop_assert_eq!(data.len().unwrap(), len, "{:?}", root);
            prop_assert_eq!(loader(data, 1, true).unwrap().len(), len, "{:?}", root);
        }
    }
    for (workers, optimize) in [(2, true), (3, true), (8, true), (2, false)] {
        let other = loader(data, workers, optimize).unwrap();
        for items in &expected.items {
            let found = epoch(&other, limit, on_error);
            prop_assert_eq!(&found, items, "{} workers, optimize: {}\n{:?}", workers, optimize, root);
        }
    }
    check_plan(data)?;
    check_resumed(data, on_error, limit, &expected)?;
    if over {
        let resumed = loader(data, 2, true).unwrap();
        resumed.load_state_dict(&after).unwrap();
        prop_assert_eq!(&epoch(&resumed, limit, on_error), &expected.items[1], "after the end\n{:?}", root);
    }
    Ok(())
}

/// From every position the rest of the epoch comes, and then the next one, with the states that the first loader had.
fn check_resumed(data: &Dataset, on_error: OnError, limit: usize, expected: &Epochs) -> TestCaseResult {
    let root = &data.plan().root;
    for (position, state) in expected.states.iter().enumerate() {
        let state: State = serde_json::from_str(&serde_json::to_string(state).unwrap()).unwrap();
        let resumed = loader(data, 1 + position % 3, true).unwrap();
        resumed.load_state_dict(&state).unwrap();
        resumed.start_epoch().unwrap();
        let mut states = Vec::new();
        let (items, _) = read(&resumed, limit.saturating_sub(position), on_error, |state| states.push(state));
        prop_assert_eq!(&items[..], &expected.items[0][position..], "from {}\n{:?}", position, root);
        prop_assert_eq!(&states[..], &expected.states[position + 1..], "from {}\n{:?}", position, root);
        if position >= limit {
            // Without an end, and nothing was taken of what is left: it would begin again.
            continue;
        }
        let next = epoch(&resumed, limit, on_error);
        prop_assert_eq!(&next, &expected.items[1], "the epoch after, from {}\n{:?}", position, root);
    }
    Ok(())
}

/// The order without a loader is the model's, too.
fn check_order(data: &Dataset, epoch: u64, elements: &[model::Element], endless: bool) -> TestCaseResult {
    let root = &data.plan().root;
    let sequence = data.sequence().unwrap();
    prop_assert_eq!(sequence.len_from(epoch, 0), (!endless).then_some(elements.len() as u64), "{:?}", root);
    for (number, element) in elements.iter().enumerate() {
        let picks = sequence.batch(epoch, 0, number as u64).unwrap();
        prop_assert_eq!(&picks, &element.samples, "batch {} of epoch {}\n{:?}", number, epoch, root);
    }
    if !endless {
        prop_assert!(sequence.batch(epoch, 0, elements.len() as u64).is_err());
    }
    Ok(())
}

/// A plan is the same one after it was written, and can be explained.
fn check_plan(data: &Dataset) -> TestCaseResult {
    let plan: Plan = serde_json::from_str(&serde_json::to_string(data.plan()).unwrap()).unwrap();
    prop_assert_eq!(&plan, data.plan());
    let again = Dataset::with_plan(data.sources().to_vec(), plan).unwrap();
    prop_assert_eq!(again.sequence().unwrap().fingerprint(), data.sequence().unwrap().fingerprint());
    let (one, other) = (data.sequence().unwrap(), again.sequence().unwrap());
    prop_assert_eq!(one.len_from(0, 0), other.len_from(0, 0));
    for number in 0..one.len_from(0, 0).unwrap_or(LIMIT as u64) {
        prop_assert_eq!(one.batch(0, 0, number).unwrap(), other.batch(0, 0, number).unwrap());
    }
    prop_assert!(data.explain().is_ok(), "{:?}", data.explain());
    Ok(())
}
