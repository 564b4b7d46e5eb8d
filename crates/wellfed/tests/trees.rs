//! Random trees of sources and verbs: the same bits whatever runs them, from any position, on any number of ranks.

use std::{collections::HashMap, sync::Arc};

use proptest::{collection::vec, prelude::*};
use wellfed::{
    Batch, Dataset, ErrorKind, Loader, Options,
    order::State,
    plan::{Auto, Node},
    sample::{DType, Structure},
    source::{ArrayData, Pixels, TensorSlices},
    transform::{RandomCrop, RandomHorizontalFlip, Transform},
};

/// Small images with a number of their own.
fn source(name: &str, len: usize, first: i64) -> Dataset {
    let pixels = (0..len * 4 * 4 * 3).map(|i| (i * 7 + first as usize) as u8).collect();
    let pixels = ArrayData::from_vec(pixels, DType::UInt8, vec![len, 4, 4, 3]).unwrap();
    let numbers = (first..first + len as i64).flat_map(i64::to_ne_bytes).collect();
    let numbers = ArrayData::from_vec(numbers, DType::Int64, vec![len]).unwrap();
    let fields = vec![
        (format!("image {name}"), pixels, Pixels::Infer),
        (format!("number {name}"), numbers, Pixels::Infer),
    ];
    Dataset::new(Arc::new(
        TensorSlices::new(fields, Structure::Tuple(vec![Structure::Field(0), Structure::Field(1)])).unwrap(),
    ))
}

/// A tree as a recipe, from which data sets are made.
#[derive(Clone, Debug)]
enum Tree {
    Source(usize),
    Shuffle(Box<Tree>, u64),
    Blocks(Box<Tree>, u64, u64),
    Take(Box<Tree>, u64),
    Skip(Box<Tree>, u64),
    Repeat(Box<Tree>, u64),
    Unbatched(Box<Tree>, usize, bool),
    Concatenate(Vec<Tree>),
    Interleave(Vec<Tree>, u64),
    Sample(Vec<Tree>, Vec<f64>, bool),
}

fn trees() -> impl Strategy<Value = Tree> {
    let leaf = (0..14usize).prop_map(Tree::Source);
    leaf.prop_recursive(4, 12, 3, |inner| {
        let one = || inner.clone().prop_map(Box::new);
        prop_oneof![
            (one(), 0..4u64).prop_map(|(t, seed)| Tree::Shuffle(t, seed)),
            (one(), 1..6u64, 1..4u64).prop_map(|(t, size, window)| Tree::Blocks(t, size, window)),
            (one(), 0..20u64).prop_map(|(t, n)| Tree::Take(t, n)),
            (one(), 0..8u64).prop_map(|(t, n)| Tree::Skip(t, n)),
            (one(), 0..4u64).prop_map(|(t, n)| Tree::Repeat(t, n)),
            (one(), 1..5usize, any::<bool>()).prop_map(|(t, n, drop)| Tree::Unbatched(t, n, drop)),
            vec(inner.clone(), 1..4).prop_map(Tree::Concatenate),
            (vec(inner.clone(), 1..4), 1..4u64).prop_map(|(t, n)| Tree::Interleave(t, n)),
            (vec((inner, 1..10u32), 1..4), any::<bool>()).prop_map(|(parts, stop)| {
                let (trees, weights) = parts.into_iter().map(|(t, w)| (t, f64::from(w))).unzip();
                Tree::Sample(trees, weights, stop)
            }),
        ]
    })
}

impl Tree {
    fn build(&self, next: &mut i64) -> Dataset {
        let mut all = |trees: &[Tree]| trees.iter().map(|tree| tree.build(next)).collect::<Vec<_>>();
        match self {
            Tree::Source(len) => {
                *next += 1000;
                source("", *len, *next)
            }
            Tree::Shuffle(tree, seed) => tree.build(next).shuffle(*seed),
            Tree::Blocks(tree, size, window) => tree.build(next).shuffle_blocks(1, *size, *window),
            Tree::Take(tree, n) => tree.build(next).take(*n),
            Tree::Skip(tree, n) => tree.build(next).skip(*n),
            Tree::Repeat(tree, n) => tree.build(next).repeat(Some(*n)),
            Tree::Unbatched(tree, n, drop_last) => tree.build(next).batch(*n, *drop_last).unbatch(),
            Tree::Concatenate(trees) => {
                Dataset::combine(Node::Concatenate { inputs: Vec::new() }, &all(trees)).unwrap()
            }
            Tree::Interleave(trees, n) => Dataset::interleave(&all(trees), *n).unwrap(),
            Tree::Sample(trees, weights, stop) => {
                Dataset::sample_from_datasets(&all(trees), weights, 5, *stop).unwrap()
            }
        }
    }

    fn dataset(&self) -> Dataset {
        self.build(&mut 0)
    }
}

fn crops() -> Vec<Transform> {
    vec![RandomCrop::new(3).padding(1).into(), RandomHorizontalFlip::default().into()]
}

fn loader(data: &Dataset, workers: usize, optimize: bool) -> Loader {
    let options = Options { num_workers: Auto::Fixed(workers), optimize, ..Options::default() };
    data.with_options(options).loader().unwrap()
}

type Seen = (Vec<i64>, Vec<u8>);

fn seen(batch: &Batch) -> Seen {
    let images = batch.columns[0].data.as_bytes().unwrap().to_vec();
    (batch.columns[1].data.as_i64().unwrap(), images)
}

fn epoch(loader: &Loader) -> Vec<Seen> {
    loader.epoch().unwrap().map(|batch| seen(&batch.unwrap())).collect()
}

fn count(numbers: &[i64]) -> HashMap<i64, usize> {
    let mut counts = HashMap::new();
    numbers.iter().for_each(|number| *counts.entry(*number).or_default() += 1);
    counts
}

fn numbers(batches: &[Seen]) -> Vec<i64> {
    batches.iter().flat_map(|batch| batch.0.clone()).collect()
}

/// Delivers `taken` batches of the first epoch, and gives them with the state after them.
fn head(data: &Dataset, taken: usize) -> (Vec<Seen>, State) {
    let loader = loader(data, 1, true);
    let mut batches = Vec::new();
    if taken > 0 {
        batches.extend(loader.epoch().unwrap().take(taken).map(|batch| seen(&batch.unwrap())));
    }
    let state = loader.state_dict().unwrap();
    (batches, state)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn trees_give_the_same_bits_whatever_runs_them_and_from_any_position(
        tree in trees(), size in 1..6usize, drop_last in any::<bool>(), repeated in 1..3u64, workers in 1..9usize,
    ) {
        let data = tree.dataset().map(crops()).batch(size, drop_last).repeat(Some(repeated));
        let first = loader(&data, 1, true);
        let expected = [epoch(&first), epoch(&first)];
        for (workers, optimize) in [(workers, true), (2, false)] {
            let other = loader(&data, workers, optimize);
            prop_assert_eq!(&[epoch(&other), epoch(&other)], &expected);
        }
        for position in (0..=expected[0].len()).step_by(1 + expected[0].len() / 6) {
            let (batches, state) = head(&data, position);
            prop_assert_eq!(&batches[..], &expected[0][..position]);
            let resumed = loader(&data, 2, true);
            resumed.load_state_dict(&state).unwrap();
            prop_assert_eq!(&epoch(&resumed)[..], &expected[0][position..]);
            prop_assert_eq!(&epoch(&resumed), &expected[1]);
        }
    }

    #[test]
    fn an_epoch_is_whole_on_other_ranks_or_its_state_is_refused(
        tree in trees(), before in (1..4u64, 1..5usize), after in (1..5u64, 1..5usize), taken in 0..4usize,
        above in 0..6usize,
    ) {
        // Verbs that come after shard() or batch() keep a position from being carried over.
        let make = |rank, ranks, size| {
            let data = tree.dataset().shuffle(3).shard(rank, ranks);
            match above {
                0 => data.shuffle(1).batch(size, false),
                1 => data.take(9).batch(size, false),
                2 => data.batch(size, false).take(3),
                3 => data.batch(size, false).repeat(Some(2)),
                _ => data.batch(size, false),
            }
        };
        let length = make(0, before.0, before.1).len().unwrap().unwrap() as usize;
        let taken = taken.min(length);
        let mut delivered = Vec::new();
        let mut states = Vec::new();
        for rank in 0..before.0 {
            let (batches, state) = head(&make(rank, before.0, before.1), taken);
            delivered.extend(numbers(&batches));
            states.push(state);
        }
        prop_assert!(states.windows(2).all(|pair| pair[0] == pair[1]), "all ranks save the same");
        let mut refused = 0;
        for rank in 0..after.0 {
            let loader = loader(&make(rank, after.0, after.1), 1, true);
            match loader.load_state_dict(&states[0]) {
                Ok(()) => delivered.extend(numbers(&epoch(&loader))),
                Err(error) => {
                    prop_assert_eq!(error.kind(), ErrorKind::State, "{}", error);
                    refused += 1;
                }
            }
        }
        if before != after && taken > 0 && above < 4 {
            // A batch of another size alone does not matter below the shard, nor does a world size above.
            prop_assert!(refused == after.0 || refused == 0);
            prop_assert!(refused > 0 || (above < 2 && before.0 == after.0) , "{} {:?} {:?}", above, before, after);
            return Ok(());
        }
        prop_assert_eq!(refused, 0);
        if above < 4 {
            return Ok(());
        }
        let whole = count(&numbers(&epoch(&loader(&tree.dataset().batch(3, false), 1, true))));
        let total: usize = whole.values().sum();
        let found = count(&delivered);
        for (number, times) in &whole {
            prop_assert!(found.get(number) >= Some(times), "{number} is missing");
        }
        let padding = (before.0.max(after.0)) as usize;
        prop_assert!(delivered.len() >= total && delivered.len() < total + padding, "{} of {total}", delivered.len());
    }
}

#[test]
fn a_sibling_changes_nobodys_draws() {
    let make = |len, first| source("", len, first).shuffle(1).map(crops());
    let alone: HashMap<i64, Vec<u8>> =
        epoch(&loader(&make(40, 0), 2, true)).into_iter().map(|s| (s.0[0], s.1)).collect();
    let pair = make(40, 0).concatenate(&make(30, 5000)).unwrap();
    let three = Dataset::sample_from_datasets(
        &[make(40, 0), make(25, 5000), make(7, 9000)],
        &[1.0, 2.0, 0.5],
        9,
        false,
    );
    for mixed in [pair, three.unwrap()] {
        let mut found = 0;
        for (number, image) in epoch(&loader(&mixed, 3, true)) {
            if let Some(expected) = alone.get(&number[0]) {
                assert_eq!(expected, &image, "{number:?}");
                found += 1;
            }
        }
        assert_eq!(found, 40);
    }
}

#[test]
fn equal_sources_draw_each_for_itself() {
    let pixels = |data: &Dataset| epoch(&loader(data, 1, true)).into_iter().map(|s| s.1).collect::<Vec<_>>();
    let twice = source("", 40, 0).map(crops()).concatenate(&source("", 40, 0).map(crops())).unwrap();
    let pixels = pixels(&twice);
    assert_ne!(pixels[..40], pixels[40..]);
}

#[test]
fn a_zip_has_the_columns_of_all_and_numbers() {
    let data = Dataset::zip(&[source("a", 9, 0).shuffle(2), source("b", 9, 100).shuffle(2)]).unwrap();
    let data = data.enumerate(5).batch(4, false);
    let batches: Vec<Batch> = loader(&data, 2, true).epoch().unwrap().map(Result::unwrap).collect();
    let column = |batch: &Batch, name: &str| batch.column(name).unwrap().data.as_i64().unwrap();
    let mut next = 5;
    for batch in &batches {
        for (i, index) in column(batch, "index").into_iter().enumerate() {
            assert_eq!(index, next);
            next += 1;
            assert_eq!(column(batch, "number a")[i] + 100, column(batch, "number b")[i]);
        }
    }
    assert_eq!(next, 14);
}

#[test]
fn what_cannot_be_put_together_is_named() {
    let error = source("a", 3, 0).concatenate(&source("b", 3, 0)).unwrap_err();
    assert!(error.message().contains("image a") && error.message().contains("image b"), "{error}");
    let small = source("", 3, 0).map([RandomCrop::new(2).into()]);
    let error = small.concatenate(&source("", 3, 0)).unwrap().batch(2, false).loader().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("[3, 2, 2]") && error.to_string().contains("[3, 4, 4]"), "{error}");
    let weights = Dataset::sample_from_datasets(&[source("", 3, 0)], &[-1.0], 0, false).unwrap_err();
    assert!(weights.message().contains("-1"), "{weights}");
}

#[test]
fn a_filter_keeps_what_it_says_wherever_it_stands() {
    let data = source("", 30, 0).concatenate(&source("", 30, 100)).unwrap();
    let some = data.filter("number ", None, Some(20), Some(109)).unwrap();
    assert_eq!(some.len().unwrap(), Some(20));
    let more = some.filter("number ", Some(&[25, 26, 104, 999]), None, None).unwrap();
    let all = |data: &Dataset| numbers(&epoch(&loader(&data.batch(4, false), 2, true)));
    assert_eq!(all(&more), [25, 26, 104]);
    let both = Dataset::zip(std::slice::from_ref(&more))
        .unwrap()
        .concatenate(&Dataset::zip(&[some]).unwrap())
        .unwrap();
    assert_eq!(both.len().unwrap(), Some(23));
    let mut found = all(&more.shuffle(1).repeat(Some(2)));
    found.sort_unstable();
    assert_eq!(found, [25, 25, 26, 26, 104, 104]);
    assert!(more.explain().unwrap().contains("3 of 20 samples"), "{}", more.explain().unwrap());
    let late = data.shuffle(1).filter("number ", None, None, Some(3)).unwrap_err();
    assert!(late.message().contains("after shuffle()"), "{late}");
    assert!(data.filter("image ", None, None, None).is_err());
    assert!(data.filter("label", None, None, None).unwrap_err().message().contains("label"));
}
