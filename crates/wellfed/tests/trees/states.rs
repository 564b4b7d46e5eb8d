//! States on other numbers of ranks and other batch sizes: the epoch goes on exactly, or loading is refused.

use std::collections::HashMap;

use proptest::{
    prelude::*,
    test_runner::{TestCaseResult, TestRunner},
};
use wellfed::{
    ErrorKind, Options,
    order::State,
    plan::{Node, OnError},
};

use crate::{
    LIMIT, Tally, choices, config,
    generator::{Case, Generator, Given},
    model::{ALL, Element, Model, batch, shard},
    run::{Judge, loader, read},
    sources::Files,
};

/// Ranks, batch size, and batches that every rank takes before it stops.
type Leg = (u64, usize, usize);

#[test]
fn an_epoch_goes_on_exactly_on_other_ranks_or_its_state_is_refused() {
    let (files, tally) = (Files::new(), Tally::default());
    let (refused, carried) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    let legs = proptest::collection::vec((1..4u64, 1..5usize, 0..5usize), 2..5);
    let mut runner = TestRunner::new(config(400));
    let result = runner.run(&(choices(), legs), |(choices, legs)| {
        tally.tried.set(tally.tried.get() + 1);
        let journey = Journey { choices: &choices, files: &files };
        match journey.check(&legs, &tally)? {
            Some(true) => carried.set(carried.get() + 1),
            Some(false) => refused.set(refused.get() + 1),
            None => {}
        }
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
    tally.check();
    let (refused, carried, tried) = (refused.get(), carried.get(), tally.tried.get());
    assert!(
        refused * 20 > tried && carried * 5 > tried,
        "{refused} refused, {carried} carried over of {tried}"
    );
}

struct Journey<'a> {
    choices: &'a [u32],
    files: &'a Files,
}

impl Journey<'_> {
    fn case(&self, rank: u64, ranks: u64, size: usize) -> Case {
        let mut case =
            Generator::new(self.choices, self.files, Some(Given { rank, ranks, size })).shared_plan();
        // Errors take the place of batches, so that positions can be counted.
        case.on_error = OnError::Raise;
        case.data = case.data.with_options(Options::default());
        case
    }

    /// Whether all legs were gone, or the state of one was refused on the next one. `None`: the plan can't be had on all.
    fn check(&self, legs: &[Leg], tally: &Tally) -> Result<Option<bool>, TestCaseError> {
        // Which verbs are refused, and so left out, may depend on ranks and sizes: then these are other plans.
        let mut fingerprint = None;
        for (ranks, size, _) in legs {
            for rank in 0..*ranks {
                let case = self.case(rank, *ranks, *size);
                if case.data.loader().is_err() {
                    return Ok(None);
                }
                let found = case.data.sequence().unwrap().fingerprint();
                if *fingerprint.get_or_insert(found) != found {
                    return Ok(None);
                }
            }
        }
        tally.accept(&self.case(0, legs[0].0, legs[0].1).data.plan().root);
        let mut state: Option<(State, Vec<u64>)> = None;
        let mut base = 0;
        let mut delivered: HashMap<String, usize> = HashMap::new();
        let (mut shared, mut extra, mut dropped) = (true, 0, 0);
        for (at, (ranks, size, taken)) in legs.iter().copied().enumerate() {
            let mut left: Option<(State, Vec<u64>, usize)> = None;
            for rank in 0..ranks {
                let case = self.case(rank, ranks, size);
                let root = &case.data.plan().root;
                let model = Model::new(root, &case.leaves);
                let top = Top::of(root);
                let loader = loader(&case.data, 1 + at % 2, true).unwrap();
                if let Some((state, inner)) = &state {
                    // What was consumed does not say what is left, unless all below is as it was.
                    let fits = state.batch == 0 && state.base == 0 || *inner == sizes(top.unit);
                    if let Err(error) = loader.load_state_dict(state) {
                        prop_assert!(!fits, "{}\n{:?}\n{:?}", error, legs, root);
                        check_refusal(&error, root)?;
                        return Ok(Some(false));
                    }
                    prop_assert!(fits, "a state was loaded that does not fit: {:?}\n{:?}", legs, root);
                }
                let endless = model.is_endless(root, 0);
                let unit = model.elements_of(top.unit, 0, ALL);
                // The last leg goes to the end of the epoch.
                let taken = if at + 1 == legs.len() { ALL } else { taken };
                let taken = if endless { taken.min(LIMIT) } else { taken };
                let size = top.batch.map_or(1, |(size, _)| size);
                if endless && unit.len() < base + (taken * size + 1) * top.ranks {
                    // The model looks at so many samples only, and shards and long batches make few elements of them.
                    return Ok(None);
                }
                let mut expected = top.part(&unit, base);
                expected.truncate(taken);
                loader.start_epoch().unwrap();
                let (items, over) = read(&loader, taken, case.on_error, drop);
                let result = Judge::new(&model, &case.data, case.on_error).compare(&expected, &items);
                prop_assert!(
                    result.is_ok(),
                    "leg {} of {:?}, rank {}: {}\n{:?}",
                    at,
                    legs,
                    rank,
                    result.unwrap_err(),
                    root
                );
                for sample in expected.iter().flat_map(|element| &element.samples) {
                    *delivered.entry(format!("{sample:?}")).or_default() += 1;
                }
                let drops = top.batch.is_some_and(|(_, drops)| drops);
                extra = extra.max(top.ranks - 1);
                dropped = dropped.max(usize::from(drops) * (size * top.ranks - 1));
                shared &= (top.rank as u64, top.ranks as u64) == (rank, ranks) && sizes(top.unit).is_empty();
                if rank + 1 == ranks && over && shared {
                    whole(&unit, &delivered, extra, dropped)?;
                }
                let found = loader.state_dict().unwrap();
                match &left {
                    None => left = Some((found, sizes(top.unit), base + expected.len() * size * top.ranks)),
                    // A filter may leave ranks parts of different lengths.
                    Some((other, ..)) if found.epoch == 0 && other.epoch == 0 => {
                        prop_assert_eq!(other, &found, "all ranks save the same\n{:?}", root);
                    }
                    Some(_) => {}
                }
            }
            let Some((found, inner, next)) = left else { break };
            if found.epoch > 0 {
                // Nothing of the epoch is left for the next leg.
                return Ok(Some(true));
            }
            state = Some((found, inner));
            base = next;
        }
        Ok(Some(true))
    }
}

/// Every element came but for what `drop_last` leaves out, and none twice but for `extra` elements that fill up the parts
/// of ranks. Sources that are there twice make elements that are there twice.
fn whole(
    unit: &[Element],
    delivered: &HashMap<String, usize>,
    extra: usize,
    dropped: usize,
) -> TestCaseResult {
    let mut wanted: HashMap<String, usize> = HashMap::new();
    for sample in unit.iter().flat_map(|element| &element.samples) {
        *wanted.entry(format!("{sample:?}")).or_default() += 1;
    }
    let more = |one: &HashMap<String, usize>, other: &HashMap<String, usize>| -> usize {
        let of = |(sample, times): (&String, &usize)| times.saturating_sub(*other.get(sample).unwrap_or(&0));
        one.iter().map(of).sum()
    };
    let largest = unit.iter().map(|element| element.samples.len()).max().unwrap_or(0);
    let (missing, twice) = (more(&wanted, delivered), more(delivered, &wanted));
    prop_assert!(missing <= dropped, "{} samples did not come", missing);
    prop_assert!(twice <= extra * largest, "{} samples came twice", twice);
    Ok(())
}

/// The verbs next to the root: what ranks share, and how they do.
struct Top<'a> {
    batch: Option<(usize, bool)>,
    rank: usize,
    ranks: usize,
    unit: &'a Node,
}

impl<'a> Top<'a> {
    fn of(root: &'a Node) -> Self {
        let mut this = Self { batch: None, rank: 0, ranks: 1, unit: order(root) };
        if let Node::Batch { batch_size, drop_last, input }
        | Node::PaddedBatch { batch_size, drop_last, input, .. }
        | Node::RaggedBatch { batch_size, drop_last, input } = this.unit
        {
            this.batch = Some((*batch_size, *drop_last));
            this.unit = order(input);
        }
        if let Node::Shard { rank, world_size, input } = this.unit {
            (this.rank, this.ranks) = (*rank as usize, *world_size as usize);
            this.unit = order(input);
        }
        this
    }

    /// What this rank gets after the first `base` elements of `unit`.
    fn part(&self, unit: &[Element], base: usize) -> Vec<Element> {
        let part = shard(unit, base, self.rank, self.ranks);
        self.batch.map_or(part.clone(), |(size, drop_last)| batch(&part, size, drop_last))
    }
}

/// The first verb from `node` down that is about order.
fn order(mut node: &Node) -> &Node {
    while let Node::Map { input, .. } | Node::Cache { input, .. } = node {
        node = input;
    }
    node
}

/// Numbers of ranks and sizes of batches, which may be others for another state.
fn sizes(node: &Node) -> Vec<u64> {
    let own = match node {
        Node::Shard { world_size, .. } => Some(*world_size),
        Node::Batch { batch_size, .. }
        | Node::PaddedBatch { batch_size, .. }
        | Node::RaggedBatch { batch_size, .. } => Some(*batch_size as u64),
        _ => None,
    };
    own.into_iter().chain(node.inputs().iter().flat_map(sizes)).collect()
}

/// A refusal names two verbs of the plan.
fn check_refusal(error: &wellfed::Error, root: &Node) -> TestCaseResult {
    prop_assert_eq!(error.kind(), ErrorKind::State, "{}", error);
    let mut names = Vec::new();
    let mut left = vec![root];
    while let Some(node) = left.pop() {
        names.push(node.name());
        left.extend(node.inputs());
    }
    let (_, said) = error.message().split_once("batch size, and ").unwrap();
    let (above, rest) = said.split_once("() comes after ").unwrap();
    let (below, _) = rest.split_once("()").unwrap();
    let known = |verb: &str| {
        names.contains(&verb) || (verb == "batch" && names.iter().any(|n| n.ends_with("_batch")))
    };
    prop_assert!(known(above) && known(below), "{}\n{:?}", error, root);
    Ok(())
}
