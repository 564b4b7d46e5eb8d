//! Chosen trees of sources and verbs, those among them that once went wrong.

use std::{collections::HashMap, sync::Arc};

use wellfed::{
    Batch, ColumnData, Dataset, ErrorKind, Loader, Options,
    plan::{Auto, Node, OnError, Pad},
    sample::{DType, Structure},
    source::{ArrayData, Pixels, TensorSlices},
    transform::{RandomCrop, RandomHorizontalFlip, Resize, Transform},
};

use crate::sources::{Files, Kind, Leaf};

/// Nine arrays of 5, 9, 6, 9, 5, 7, 2, 3 and 10 tokens, and their numbers.
fn tokens() -> Dataset {
    Leaf::new(Kind::Tokens, 1000, 9).open(&Files::new())
}

fn hole() -> Box<Node> {
    Box::new(Node::Concatenate { inputs: Vec::new() })
}

fn by_tokens(data: &Dataset, max_tokens: u64) -> Dataset {
    let (field, bucket_boundaries, pad) = (None, Vec::new(), Pad::default());
    let verb =
        Node::BatchByTokens { max_tokens, field, bucket_boundaries, drop_last: false, pad, input: hole() };
    data.verb(verb).unwrap()
}

/// Two in a batch, of one of the buckets between `boundaries`.
fn in_buckets(
    data: &Dataset,
    boundaries: &[u64],
    drop_remainder: bool,
    pad_to_bucket_boundary: bool,
) -> Dataset {
    let verb = Node::BucketBySequenceLength {
        field: None,
        bucket_boundaries: boundaries.to_vec(),
        bucket_batch_sizes: vec![2; boundaries.len() + 1],
        drop_remainder,
        pad_to_bucket_boundary,
        no_padding: false,
        pad: Pad::default(),
        input: hole(),
    };
    data.verb(verb).unwrap()
}

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

fn numbers(batches: &[Seen]) -> Vec<i64> {
    batches.iter().flat_map(|batch| batch.0.clone()).collect()
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
        .concatenate(&Dataset::zip(std::slice::from_ref(&some)).unwrap())
        .unwrap();
    assert_eq!(both.len().unwrap(), Some(23));
    // What filters keep is found out anew where a plan is opened.
    for data in [&both, &some.concatenate(&more).unwrap()] {
        let again = Dataset::with_plan(data.sources().to_vec(), data.plan().clone()).unwrap();
        assert_eq!(all(&again), all(data));
        assert_eq!(all(data).len(), 23);
    }
    let mut found = all(&more.shuffle(1).repeat(Some(2)));
    found.sort_unstable();
    assert_eq!(found, [25, 25, 26, 26, 104, 104]);
    assert!(more.explain().unwrap().contains("3 of 20 samples"), "{}", more.explain().unwrap());
    let late = data.shuffle(1).filter("number ", None, None, Some(3)).unwrap_err();
    assert!(late.message().contains("after shuffle()"), "{late}");
    assert!(data.filter("image ", None, None, None).is_err());
    assert!(data.filter("label", None, None, None).unwrap_err().message().contains("label"));
}

#[test]
fn a_bad_sample_of_token_batches_without_end_is_replaced() {
    let data = by_tokens(&tokens().repeat(None), 8);
    let data = data.with_options(Options { on_error: OnError::Replace, ..Options::default() });
    let loader = data.loader().unwrap();
    for batch in loader.epoch().unwrap().take(40) {
        let batch = batch.unwrap();
        for number in batch.columns[1].data.as_i64().unwrap() {
            assert!(![1001, 1003, 1008].contains(&number), "{number} is too long for any batch");
        }
    }
    assert!(loader.errors().unwrap().len() > 5);
}

#[test]
fn a_part_of_batches_without_end_has_a_length() {
    let data = by_tokens(&tokens().repeat(None), 20);
    let length = |data: Dataset| {
        let loader = data.loader().unwrap();
        let len = data.len().unwrap();
        assert_eq!((loader.len(), data.sequence().unwrap().len_from(1, 0)), (len, len));
        len
    };
    assert_eq!(length(data.clone()), None);
    assert_eq!(length(data.skip(2)), None);
    assert_eq!(length(data.take(7)), Some(7));
    assert_eq!(length(data.skip(2).take(7).shard(0, 2)), Some(4));
    assert_eq!(length(data.take(7).skip(2).take(3)), Some(3));
}

#[test]
fn epochs_of_batches_by_length_may_differ_in_length_and_be_empty() {
    let data = in_buckets(&tokens().shuffle(1).take(2), &[6], true, false);
    for workers in [1, 4] {
        let loader = loader(&data, workers, true);
        let mut lens = Vec::new();
        for epoch in 0..20 {
            let batches: Vec<Batch> = loader.epoch().unwrap().map(Result::unwrap).collect();
            assert!(batches.iter().all(|batch| batch.epoch == epoch));
            assert_eq!(data.sequence().unwrap().len_from(epoch, 0), Some(batches.len() as u64));
            lens.push(batches.len());
        }
        assert!(lens.contains(&0) && lens.contains(&1), "{lens:?}");
    }
}

#[test]
fn what_is_left_after_other_ranks_is_counted_for_batches_by_length() {
    for ranks in 1..4 {
        let sequence = by_tokens(&tokens().shuffle(3), 20).shard(0, ranks).sequence().unwrap();
        for epoch in 0..4 {
            let all = by_tokens(&tokens().shuffle(3), 20).sequence().unwrap().len_from(epoch, 0).unwrap();
            for base in 0..=all {
                assert_eq!(sequence.len_from(epoch, base), Some((all - base).div_ceil(ranks)));
            }
            assert!(sequence.batch(epoch, all, 0).is_err());
        }
    }
}

#[test]
fn a_state_does_not_fit_other_rules_of_buckets() {
    let base = tokens().shuffle(2);
    let rules = [
        in_buckets(&base, &[6], false, false),
        in_buckets(&base, &[6], true, false),
        // Samples beyond the last boundary are in no batch.
        in_buckets(&base, &[6], false, true),
        by_tokens(&base, 20),
        by_tokens(&base, 30),
    ];
    for (at, data) in rules.iter().enumerate() {
        let first = loader(data, 1, true);
        first.epoch().unwrap().next();
        let state = first.state_dict().unwrap();
        for (other, data) in rules.iter().enumerate() {
            let loaded = loader(data, 1, true).load_state_dict(&state);
            assert_eq!(loaded.is_ok(), at == other, "{at} {other}");
            if let Err(error) = loaded {
                assert_eq!(error.kind(), ErrorKind::State);
                let cuts = (at < 3) == (other < 3);
                let said = if cuts { " was " } else { "its verbs are source, shuffle, b" };
                assert!(error.message().contains(said), "{error}");
            }
        }
    }
}

#[test]
fn a_replacement_is_not_too_long_for_its_batch() {
    // The image beside the fifth array cannot be decoded.
    let images = Leaf::new(Kind::Encoded, 1000, 9).open(&Files::new()).map([Resize::new([6, 6]).into()]);
    let pairs = Dataset::zip(&[tokens(), images]).unwrap().shuffle(5);
    let options = Options { on_error: OnError::Replace, ..Options::default() };
    let (mut lone, mut replaced) = (0, 0);
    for data in [by_tokens(&pairs, 20), in_buckets(&pairs.take(8), &[6, 11], false, true)] {
        let loader = data.with_options(options.clone()).loader().unwrap();
        for _ in 0..20 {
            for batch in loader.epoch().unwrap() {
                let batch = batch.unwrap();
                let ColumnData::Array { shape, .. } = &batch.columns[0].data else { panic!("padded") };
                assert!(shape[0] * shape[1] <= 20, "{shape:?}");
                lone += usize::from(shape[0] == 1);
            }
        }
        replaced += loader.errors().unwrap().iter().filter(|bad| bad.replaced).count();
    }
    assert!(replaced >= 20 && lone > 0, "{replaced} {lone}");
}

#[test]
fn zipped_batches_are_those_of_each() {
    let flip = || -> Vec<Transform> { vec![RandomHorizontalFlip::default().into()] };
    let parts = |drop_last| {
        [
            source("a", 11, 0).shuffle(1).map(flip()).batch(4, drop_last),
            source("b", if drop_last { 30 } else { 11 }, 100).shuffle(2).map(flip()).batch(4, drop_last),
        ]
    };
    for drop_last in [true, false] {
        let parts = parts(drop_last);
        let zipped = Dataset::zip(&parts).unwrap();
        assert_eq!(zipped.len().unwrap(), Some(if drop_last { 2 } else { 3 }));
        let zipped = loader(&zipped, 2, true);
        let each = parts.map(|part| loader(&part, 1, true));
        for _ in 0..2 {
            let each = each.each_ref().map(|part| part.epoch().unwrap().map(Result::unwrap));
            let [mut a, mut b] = each;
            for batch in zipped.epoch().unwrap() {
                let alone = [a.next().unwrap(), b.next().unwrap()];
                let alone =
                    alone.iter().flat_map(|batch| &batch.columns).map(|column| column.data.as_bytes());
                assert!(batch.unwrap().columns.iter().map(|column| column.data.as_bytes()).eq(alone));
            }
        }
    }
    let [a, _] = parts(true);
    for b in [source("b", 11, 0).batch(3, true), source("b", 11, 0).batch(4, false), source("b", 11, 0)] {
        assert_eq!(Dataset::zip(&[a.clone(), b]).unwrap_err().kind(), ErrorKind::Config);
    }
    let shorter = source("b", 10, 0).batch(4, false);
    let error = Dataset::zip(&[source("a", 11, 0).batch(4, false), shorter]).unwrap_err();
    assert!(error.message().contains("zip() of batches that differ in size"), "{error}");
}

#[test]
fn a_state_that_cannot_be_carried_over_names_enumerate() {
    let make = |ranks| source("", 30, 0).shard(0, ranks).enumerate(0).batch(2, false);
    let first = make(2).loader().unwrap();
    first.epoch().unwrap().next();
    let error = make(3).loader().unwrap().load_state_dict(&first.state_dict().unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::State);
    assert!(error.message().contains("enumerate() comes after shard()"), "{error}");
}
