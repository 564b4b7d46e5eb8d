//! The loader from outside: the same bits whatever runs, epochs, positions, errors and memory.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use wellfed::{
    Batch, ColumnData, Dataset, Error, ErrorKind, Loader, Next, Options, Place,
    plan::{Auto, OnError},
    rng::{Rng, stage::RESERVED},
    sample::{DType, FieldKind, PixelLayout, Record, Schema, Structure, Value},
    source::{ArrayData, Pixels, Source, TensorSlices},
    transform::{Identity, ImageDtype, Normalize, RandomCrop, RandomHorizontalFlip, ToDtype, Transform},
};

/// Images that are slow, in a random way, and of which some are bad.
#[derive(Debug)]
struct Flaky {
    len: u64,
    schema: Schema,
    bad: Vec<u64>,
    delay_micros: u64,
    calls: AtomicU64,
}

impl Flaky {
    fn new(len: u64, bad: &[u64], delay_micros: u64) -> Arc<Self> {
        let pixels = FieldKind::Pixels { height: 8, width: 8, channels: 3, layout: PixelLayout::Hwc };
        let schema = Schema::tuple([("image", pixels), ("label", FieldKind::LABEL)]);
        Arc::new(Self { len, schema, bad: bad.to_vec(), delay_micros, calls: AtomicU64::new(0) })
    }
}

impl Source for Flaky {
    fn name(&self) -> String {
        "flaky".to_owned()
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn key(&self, index: u64) -> String {
        format!("sample-{index}")
    }

    fn fetch(&self, index: u64, record: &mut Record) -> wellfed::Result<()> {
        // The delay depends on when this is called, as on a real disk: no two runs are alike.
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let delay = Rng::for_stage(call, 0, 0, 0).below(self.delay_micros + 1);
        std::thread::sleep(Duration::from_micros(delay));
        if self.bad.contains(&index) {
            return Err(Error::corrupt("bytes are damaged").with_offset(17));
        }
        record.reset(2);
        let mut rng = Rng::for_stage(1, 0, index, 0);
        record.values[0].buffer().extend((0..8 * 8 * 3).map(|_| rng.next_u32() as u8));
        record.values[1] = Value::Int(index as i64);
        Ok(())
    }
}

fn train() -> Vec<Transform> {
    vec![
        RandomCrop::new(8).padding(2).into(),
        RandomHorizontalFlip::default().into(),
        ToDtype::new(ImageDtype::Float32).scale(true).into(),
        Normalize::new([0.5, 0.4, 0.3], [0.2, 0.3, 0.4]).into(),
    ]
}

fn options(workers: usize) -> Options {
    Options { num_workers: Auto::Fixed(workers), ..Options::default() }
}

fn pipeline(source: Arc<dyn Source>) -> Dataset {
    Dataset::new(source).shuffle(7).map(train()).batch(5, false)
}

type Seen = (u64, u64, Vec<i64>, Vec<u8>);

fn seen(batch: &Batch) -> Seen {
    let labels = batch.columns[1].data.as_i64().unwrap();
    (batch.epoch, batch.number, labels, batch.columns[0].data.as_bytes().unwrap().to_vec())
}

fn epoch(loader: &Loader) -> Vec<Seen> {
    loader.epoch().unwrap().map(|batch| seen(&batch.unwrap())).collect()
}

#[test]
fn the_same_bits_whatever_the_number_of_workers_and_readers() {
    let run = |workers: usize, readers: usize, delay: u64| {
        let options = Options { read_ahead: Auto::Fixed(readers), ..options(workers) };
        let loader = pipeline(Flaky::new(33, &[], delay)).with_options(options).loader().unwrap();
        (0..3).flat_map(|_| epoch(&loader)).collect::<Vec<_>>()
    };
    let expected = run(1, 0, 0);
    assert_eq!(expected.len(), 21);
    for (workers, readers) in [(1, 2), (2, 0), (3, 0), (3, 3), (8, 0), (8, 5)] {
        assert!(run(workers, readers, 300) == expected, "{workers} workers, {readers} readers");
    }
}

#[test]
fn samples_made_one_by_one_have_the_same_bits() {
    let dataset =
        pipeline(Flaky::new(33, &[4], 0)).with_options(Options { on_error: OnError::Skip, ..options(2) });
    let loader = dataset.loader().unwrap();
    let sampler = dataset.sampler();
    for number in 0..2 {
        for (_, _, labels, bytes) in epoch(&loader) {
            let size = bytes.len() / labels.len();
            for (label, expected) in labels.iter().zip(bytes.chunks_exact(size)) {
                let made = sampler.sample(0, *label as u64, number).unwrap();
                assert_eq!(made.columns[0].data.as_bytes().unwrap(), expected);
                assert_eq!(made.columns[1].data.as_i64().unwrap(), [*label]);
            }
            assert_eq!(sampler.sample(0, 4, number).unwrap_err().key(), Some("sample-4"));
        }
    }
}

#[test]
fn samples_lie_where_the_caller_wants_them_if_they_fit_there() {
    let dataset = pipeline(Flaky::new(33, &[4], 0)).with_options(options(1));
    let sampler = dataset.sampler();
    let expected = sampler.sample(0, 7, 1).unwrap();
    let ColumnData::Array { dtype, shape, bytes } = &expected.columns[0].data else { panic!("no array") };
    let mut memory = vec![0xAA; 3 * bytes.len()];
    let (before, rest) = memory.split_at_mut(bytes.len());
    let (at, after) = rest.split_at_mut(bytes.len());
    let place = Place { column: 0, dtype: *dtype, shape, memory: at };
    let (batch, placed) = sampler.sample_into(0, 7, 1, &mut [place]).unwrap();
    assert_eq!(placed, [0]);
    assert_eq!(batch.columns.len(), 1, "the label");
    assert_eq!(batch.columns[0].data.as_i64().unwrap(), [7]);
    assert!(*at == **bytes && before.iter().chain(&*after).all(|byte| *byte == 0xAA));

    let turned: Vec<usize> = shape.iter().rev().copied().collect();
    let other = if *dtype == DType::UInt8 { DType::Int8 } else { DType::UInt8 };
    for (column, dtype, shape, len) in [
        (0, *dtype, &turned, bytes.len()),
        (0, other, shape, bytes.len()),
        (0, *dtype, shape, bytes.len() - 1),
        (1, *dtype, shape, bytes.len()),
        (9, *dtype, shape, bytes.len()),
    ] {
        let mut memory = vec![0xAA; len];
        let place = Place { column, dtype, shape, memory: &mut memory };
        let (batch, placed) = sampler.sample_into(0, 7, 1, &mut [place]).unwrap();
        assert!(placed.is_empty() && memory.iter().all(|byte| *byte == 0xAA));
        assert_eq!(batch.columns[0].data.as_bytes().unwrap(), &**bytes);
    }
    let place = Place { column: 0, dtype: *dtype, shape, memory: at };
    assert_eq!(sampler.sample_into(0, 4, 1, &mut [place]).unwrap_err().key(), Some("sample-4"));
}

#[test]
fn resuming_anywhere_gives_the_rest_bit_for_bit() {
    let make = || pipeline(Flaky::new(33, &[], 50)).with_options(options(3)).loader().unwrap();
    let loader = make();
    let all: Vec<Seen> = (0..3).flat_map(|_| epoch(&loader)).collect();
    for position in 0..all.len() {
        let first = make();
        let mut taken = 0;
        let mut state = first.state_dict().unwrap();
        'outer: loop {
            for batch in first.epoch().unwrap() {
                if taken == position {
                    break 'outer;
                }
                drop(batch.unwrap());
                taken += 1;
                state = first.state_dict().unwrap();
            }
            if taken == position {
                break;
            }
        }
        let json = serde_json::to_string(&state).unwrap();
        let second = make();
        second.load_state_dict(&serde_json::from_str(&json).unwrap()).unwrap();
        assert_eq!(second.state_dict().unwrap(), state);
        let rest: Vec<Seen> = std::iter::repeat_with(|| epoch(&second))
            .take_while(|epoch| epoch.first().is_none_or(|first| first.0 < 3))
            .flatten()
            .collect();
        assert!(rest == all[position..], "position {position}");
    }
}

#[test]
fn set_epoch_and_a_broken_off_epoch_lead_where_they_should() {
    let loader = pipeline(Flaky::new(20, &[], 0)).with_options(options(2)).loader().unwrap();
    let first = epoch(&loader);
    loader.epoch().unwrap().next().unwrap().unwrap();
    let after_break: Vec<u64> = epoch(&loader).iter().map(|seen| seen.0).collect();
    assert_eq!(after_break, [2; 4], "epoch 1 was broken off");
    loader.set_epoch(0).unwrap();
    assert!(epoch(&loader) == first);
    assert_eq!(epoch(&loader)[0].0, 1);
}

#[test]
fn the_rest_of_an_epoch_is_not_lost_by_beginning_it_twice() {
    let make = || pipeline(Flaky::new(20, &[], 0)).with_options(options(2)).loader().unwrap();
    let loader = make();
    let whole = epoch(&loader);
    loader.set_epoch(0).unwrap();
    loader.epoch().unwrap().next().unwrap().unwrap();
    let again = make();
    again.load_state_dict(&loader.state_dict().unwrap()).unwrap();
    again.start_epoch().unwrap();
    assert!(epoch(&again) == whole[1..], "nothing was taken of the rest of epoch 0, so it comes");
    assert_eq!(epoch(&again)[0].0, 1);
}

#[test]
fn bad_samples_are_raised_skipped_or_replaced_and_always_listed() {
    let make = |on_error| {
        let options = Options { on_error, ..options(3) };
        let source = Flaky::new(20, &[3, 11], 100);
        Dataset::new(source).map(train()).batch(5, false).with_options(options).loader().unwrap()
    };
    let raise = make(OnError::Raise);
    let results: Vec<_> = raise.epoch().unwrap().collect();
    assert_eq!(results.iter().map(Result::is_ok).collect::<Vec<_>>(), [false, true, false, true]);
    let error = results[0].as_ref().unwrap_err();
    assert_eq!((error.kind(), error.index(), error.key()), (ErrorKind::Corrupt, Some(3), Some("sample-3")));
    assert_eq!((error.stage(), error.offset(), error.source_name()), (Some("read"), Some(17), Some("flaky")));

    let skip = make(OnError::Skip);
    let labels: Vec<Vec<i64>> = epoch(&skip).into_iter().map(|seen| seen.2).collect();
    assert_eq!(labels[0], [0, 1, 2, 4]);
    assert_eq!(labels[2], [10, 12, 13, 14]);

    let replace = make(OnError::Replace);
    let replaced = epoch(&replace);
    assert!(replaced.iter().all(|seen| seen.2.len() == 5));
    assert!(replaced == epoch(&make(OnError::Replace)), "replacements are reproducible");
    for loader in [raise, skip, replace] {
        let errors = loader.errors().unwrap();
        let indices: Vec<_> = errors.iter().take(2).map(|bad| bad.error.index()).collect();
        assert_eq!(indices, [Some(3), Some(11)]);
        assert!(loader.stats().errors >= 2);
    }
}

#[test]
fn batches_a_consumer_keeps_never_change() {
    let loader = pipeline(Flaky::new(40, &[], 0)).with_options(options(2)).loader().unwrap();
    let kept: Vec<Batch> =
        (0..5).flat_map(|_| loader.epoch().unwrap().map(Result::unwrap).collect::<Vec<_>>()).collect();
    let again = pipeline(Flaky::new(40, &[], 0)).with_options(options(2)).loader().unwrap();
    for batch in &kept {
        if batch.number == 0 {
            again.set_epoch(batch.epoch).unwrap();
            again.start_epoch().unwrap();
        }
        let Next::Batch(fresh) = again.next(Duration::from_secs(60)).unwrap() else { panic!("a batch") };
        assert!(seen(batch) == seen(&fresh));
    }
}

#[test]
fn memory_stays_in_the_budget_while_the_consumer_sleeps() {
    let source = Flaky::new(100_000, &[], 0);
    let options = Options { memory_budget: Some(1 << 20), ..options(4) };
    let loader = pipeline(source).with_options(options).loader().unwrap();
    let mut batches = loader.epoch().unwrap();
    for _ in 0..20 {
        drop(batches.next().unwrap().unwrap());
        std::thread::sleep(Duration::from_millis(2));
        let stats = loader.stats();
        assert!(stats.memory <= stats.memory_budget, "{} of {}", stats.memory, stats.memory_budget);
    }
}

#[test]
fn a_batch_above_the_budget_is_refused_with_numbers() {
    let options = Options { memory_budget: Some(1000), ..Options::default() };
    let error = pipeline(Flaky::new(10, &[], 0)).with_options(options).loader().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Limit);
    assert!(error.to_string().contains("1000"), "{error}");
}

#[test]
fn a_loader_dropped_in_the_middle_stops_its_threads() {
    let source = Flaky::new(1000, &[], 1000);
    let loader = pipeline(source.clone()).with_options(options(4)).loader().unwrap();
    loader.epoch().unwrap().next().unwrap().unwrap();
    drop(loader);
    assert_eq!(Arc::strong_count(&source), 1, "no thread holds the source");
}

#[test]
fn arrays_in_memory_come_out_as_they_went_in() {
    let images: Vec<u8> = (0..6 * 4 * 4 * 3).map(|i| (i % 251) as u8).collect();
    let labels: Vec<u8> = (0..6i64).flat_map(i64::to_ne_bytes).collect();
    let source = TensorSlices::new(
        vec![
            (
                "x".into(),
                ArrayData::from_vec(images.clone(), DType::UInt8, vec![6, 4, 4, 3]).unwrap(),
                Pixels::Infer,
            ),
            ("y".into(), ArrayData::from_vec(labels, DType::Int64, vec![6]).unwrap(), Pixels::Infer),
        ],
        Structure::Tuple(vec![Structure::Field(0), Structure::Field(1)]),
    )
    .unwrap();
    let loader = Dataset::new(Arc::new(source)).batch(4, false).loader().unwrap();
    let batches: Vec<Seen> = epoch(&loader);
    assert_eq!(batches[1].2, [4, 5]);
    // NHWC in, NCHW out.
    assert_eq!(batches[0].3[..16], images[..48].iter().step_by(3).copied().collect::<Vec<_>>());
}

#[test]
fn an_empty_source_has_empty_epochs() {
    let loader = pipeline(Flaky::new(0, &[], 0)).with_options(options(2)).loader().unwrap();
    assert_eq!(epoch(&loader).len(), 0);
    assert_eq!(loader.len(), Some(0));
}

#[test]
fn stats_and_trace_tell_what_happened() {
    let options = Options { trace: true, ..options(2) };
    let loader = pipeline(Flaky::new(20, &[], 0)).with_options(options).loader().unwrap();
    epoch(&loader);
    let stats = loader.stats();
    assert_eq!((stats.samples, stats.batches), (20, 4));
    assert_eq!(stats.bytes, 20 * (8 * 8 * 3 * 4 + 8));
    assert!(stats.phases.iter().any(|phase| phase.name == "write" && phase.count >= 20));
    let path = std::env::temp_dir().join(format!("wellfed-trace-{}.json", std::process::id()));
    loader.write_trace(&path).unwrap();
    let trace: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(trace["traceEvents"].as_array().unwrap().len() > 20);
}

#[test]
fn a_replacement_is_one_of_the_samples_that_the_plan_lets_through() {
    let options = Options { on_error: OnError::Replace, ..options(2) };
    let source = Flaky::new(100, &[3, 11], 0);
    let loader =
        Dataset::new(source).take(20).map(train()).batch(20, false).with_options(options).loader().unwrap();
    for _ in 0..5 {
        let labels: Vec<i64> = epoch(&loader).into_iter().flat_map(|seen| seen.2).collect();
        assert_eq!(labels.len(), 20);
        assert!(labels.iter().all(|label| *label < 20), "{labels:?}");
    }
}

#[test]
fn a_loader_and_a_sequence_choose_the_same_replacements() {
    let bad = [3, 11, 12, 13, 14, 15, 16, 17];
    let options = Options { on_error: OnError::Replace, ..options(2) };
    let data = pipeline(Flaky::new(20, &bad, 0)).with_options(options);
    let sequence = data.sequence().unwrap();
    for (number, seen) in (0..).zip(epoch(&data.loader().unwrap())) {
        let picks = sequence.batch(0, 0, number).unwrap();
        for (offset, label) in seen.2.iter().enumerate() {
            let mut index = picks[offset][0].index;
            let mut attempts = (0..).map(|n| sequence.replacement((0, 0, number), offset, n).unwrap());
            while bad.contains(&index) {
                index = attempts.next().unwrap()[0].index;
            }
            assert_eq!(*label, index as i64, "sample {offset} of batch {number}");
        }
    }
}

#[test]
fn transforms_have_no_reserved_stage() {
    let none = |count| vec![Identity::default().into(); count];
    let data = |count| Dataset::new(Flaky::new(4, &[], 0)).map(train()).map(none(count));
    let most = RESERVED as usize - train().len();
    assert!(data(most).explain().is_ok());
    let error = data(most + 1).explain().unwrap_err();
    assert!(error.message().contains("more than 65280 transforms"), "{error}");
}

#[test]
fn an_epoch_without_a_good_sample_is_an_error_also_without_end() {
    let all: Vec<u64> = (0..10).collect();
    for endless in [false, true] {
        let data = Dataset::new(Flaky::new(10, &all, 0));
        let data = if endless { data.repeat(None) } else { data };
        let options = Options { on_error: OnError::Skip, ..options(2) };
        let loader = data.map(train()).batch(4, false).with_options(options).loader().unwrap();
        let error = loader.epoch().unwrap().next().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.message().contains("bytes are damaged"), "{error}");
    }
}

#[test]
fn a_state_after_the_last_batch_is_of_that_epoch() {
    let make = || pipeline(Flaky::new(20, &[], 0)).with_options(options(2)).loader().unwrap();
    let loader = make();
    let mut batches = loader.epoch().unwrap();
    for _ in 0..4 {
        batches.next().unwrap().unwrap();
    }
    let before = loader.state_dict().unwrap();
    assert!(batches.next().is_none());
    let after = loader.state_dict().unwrap();
    assert_eq!((before.epoch, before.batch, after.epoch, after.batch), (0, 4, 1, 0));
    let (one, two) = (make(), make());
    one.load_state_dict(&before).unwrap();
    two.load_state_dict(&after).unwrap();
    assert_eq!(epoch(&one).len(), 0, "nothing is left of the epoch");
    let next = epoch(&one);
    assert_eq!(next[0].0, 1);
    assert!(next == epoch(&two));
    let wrong = wellfed::order::State { batch_size: 0, ..after };
    assert_eq!(one.load_state_dict(&wrong).unwrap_err().kind(), ErrorKind::Config);
}
