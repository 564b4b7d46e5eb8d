//! A loader whose samples the caller chooses: the same bits whatever runs, positions, abandoned passes, errors.

use std::{sync::Arc, time::Duration};

use wellfed::{
    ColumnData, Dataset, Error, ErrorKind, Loader, Next, Options, Result,
    plan::{Auto, OnError},
    sample::{DType, FieldKind, PixelLayout, Record, Schema, Structure, Value},
    source::Source,
    transform::{Blend, ImageDtype, RandomCrop, RandomHorizontalFlip, RandomResize, ToDtype, Transform},
};

/// Small images, every sixth of them slow; some may be bad.
#[derive(Debug)]
struct Images {
    schema: Schema,
    bad: Vec<u64>,
}

const LEN: u64 = 40;

impl Images {
    fn new(bad: &[u64]) -> Arc<Self> {
        let pixels = FieldKind::Pixels { height: 8, width: 8, channels: 3, layout: PixelLayout::Hwc };
        let schema = Schema::tuple([("image", pixels), ("label", FieldKind::LABEL)]);
        Arc::new(Self { schema, bad: bad.to_vec() })
    }
}

impl Source for Images {
    fn name(&self) -> String {
        "images".to_owned()
    }

    fn len(&self) -> u64 {
        LEN
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn key(&self, index: u64) -> String {
        format!("sample-{index}")
    }

    fn fetch(&self, index: u64, record: &mut Record) -> Result<()> {
        std::thread::sleep(Duration::from_micros(if index.is_multiple_of(6) { 400 } else { 0 }));
        if self.bad.contains(&index) {
            return Err(Error::corrupt("bytes are damaged"));
        }
        record.reset(2);
        record.values[0].buffer().extend((0..8 * 8 * 3u64).map(|i| (i * 7 + index) as u8));
        record.values[1] = Value::Int(index as i64);
        Ok(())
    }
}

fn loader(bad: &[u64], options: Options) -> Loader {
    let transforms: Vec<Transform> = vec![
        RandomCrop::new(8).padding(3).into(),
        RandomHorizontalFlip::default().into(),
        ToDtype::new(ImageDtype::Float32).scale(true).into(),
    ];
    Dataset::new(Images::new(bad)).map(transforms).with_options(options).loader_given().unwrap()
}

fn workers(workers: usize, readers: usize) -> Options {
    Options { num_workers: Auto::Fixed(workers), read_ahead: Auto::Fixed(readers), ..Options::default() }
}

/// Labels and pixels of every batch.
type Seen = Vec<(Vec<i64>, Vec<u8>)>;

fn drain(loader: &Loader) -> Result<Seen> {
    let mut seen = Vec::new();
    loop {
        match loader.next(Duration::from_secs(60))? {
            Next::Batch(batch) => {
                let labels = batch.columns[1].data.as_i64().unwrap();
                assert_eq!((labels.len(), batch.number), (batch.len, seen.len() as u64));
                seen.push((labels, batch.columns[0].data.as_bytes().unwrap().to_vec()));
            }
            Next::EpochEnd => return Ok(seen),
            Next::Pending => panic!("a minute passed"),
        }
    }
}

fn run(loader: &Loader, seed: u64, position: u64, batches: &[Vec<u64>]) -> Seen {
    loader.begin(seed, position).unwrap();
    batches.iter().for_each(|batch| loader.submit(batch).unwrap());
    loader.finish().unwrap();
    drain(loader).unwrap()
}

/// Batches of one to seven samples, some of them twice.
fn batches() -> Vec<Vec<u64>> {
    (0..12u64).map(|b| (0..b % 7 + 1).map(|i| (b * 11 + i * 17) % LEN).collect()).collect()
}

#[test]
fn the_same_bits_whatever_the_number_of_workers_and_readers() {
    let expected = run(&loader(&[], workers(1, 0)), 7, 0, &batches());
    let labels: Vec<Vec<i64>> = expected.iter().map(|(labels, _)| labels.clone()).collect();
    let wanted: Vec<Vec<i64>> =
        batches().iter().map(|batch| batch.iter().map(|i| *i as i64).collect()).collect();
    assert_eq!(labels, wanted);
    for (n, readers) in [(2, 0), (3, 0), (3, 2)] {
        let loader = loader(&[], workers(n, readers));
        assert!(run(&loader, 7, 0, &batches()) == expected, "{n} workers, {readers} readers");
        assert!(run(&loader, 7, 0, &batches()) == expected, "again");
        assert!(run(&loader, 8, 0, &batches()) != expected, "another seed");
    }
}

/// Shapes and values of the images of every batch, each by itself.
fn lists(loader: &Loader, batches: &[Vec<u64>]) -> Vec<Vec<(Vec<usize>, Vec<u8>)>> {
    loader.begin(7, 0).unwrap();
    batches.iter().for_each(|batch| loader.submit(batch).unwrap());
    loader.finish().unwrap();
    let mut seen = Vec::new();
    while let Next::Batch(batch) = loader.next(Duration::from_secs(60)).unwrap() {
        let ColumnData::List { dtype, shapes, bytes } = &batch.columns[0].data else { panic!("a list") };
        let mut at = 0;
        let one = |shape: &Vec<usize>| {
            let size = dtype.size() * shape.iter().product::<usize>();
            at += size;
            (shape.clone(), bytes[at - size..at].to_vec())
        };
        seen.push(shapes.iter().map(one).collect());
    }
    seen
}

#[test]
fn images_that_differ_in_size_come_as_lists_of_the_same_bits() {
    let make = |options: Options| {
        let transforms: [Transform; 2] =
            [RandomResize::new(3, 12).into(), ToDtype::new(ImageDtype::Float32).scale(true).into()];
        Dataset::new(Images::new(&[4])).map(transforms).with_options(options)
    };
    let skip = |workers, readers| Options { on_error: OnError::Skip, ..self::workers(workers, readers) };
    let expected = lists(&make(skip(1, 0)).loader_given_lists().unwrap(), &batches());
    let sides: std::collections::HashSet<usize> =
        expected.iter().flatten().map(|(shape, _)| shape[1]).collect();
    assert_eq!(sides, (3..12).collect());
    let bad: usize = batches().iter().flatten().filter(|index| **index == 4).count();
    let given: usize = batches().iter().map(Vec::len).sum();
    assert_eq!(expected.iter().map(Vec::len).sum::<usize>(), given - bad, "one image is damaged");
    for (n, readers) in [(2, 0), (3, 2)] {
        let loader = make(skip(n, readers)).loader_given_lists().unwrap();
        assert!(lists(&loader, &batches()) == expected, "{n} workers, {readers} readers");
    }
    // A plan that leaves sizes open gives lists in batches of its own order, too; one that settles them does not.
    let batch =
        make(workers(2, 0)).take(4).batch(4, false).loader().unwrap().epoch().unwrap().next().unwrap();
    assert!(matches!(batch.unwrap().columns[0].data, ColumnData::List { .. }));
    let settled = make(workers(2, 0)).map([RandomCrop::new(3).into()]).loader_given_lists().unwrap();
    settled.begin(0, 0).unwrap();
    settled.submit(&[1, 2]).unwrap();
    settled.finish().unwrap();
    let Next::Batch(batch) = settled.next(Duration::from_secs(60)).unwrap() else { panic!("a batch") };
    assert!(matches!(batch.columns[0].data, ColumnData::Array { .. }));
}

#[test]
fn finished_batches_are_mixed_as_their_caller_says() {
    let corners = [1, 2, 7, 5];
    let blends = [Some(Blend::Sum { lam: 0.25 }), None, Some(Blend::Box { corners, lam: 1.0 })];
    let of = |number: usize| blends[number % blends.len()];
    let skip = |n| Options { on_error: OnError::Skip, ..workers(n, 0) };
    for bad in [&[][..], &[3, 11, 28]] {
        let plain = run(&loader(bad, skip(1)), 7, 0, &batches());
        let expected: Vec<_> = plain
            .into_iter()
            .enumerate()
            .map(|(number, (labels, images))| {
                let values: Vec<f32> =
                    images.chunks_exact(4).map(|four| f32::from_ne_bytes(four.try_into().unwrap())).collect();
                let mut mixed = Vec::new();
                for (at, &own) in values.iter().enumerate() {
                    let before = values[(at + values.len() - 3 * 8 * 8) % values.len()];
                    let (x, y) = (at % 8, at / 8 % 8);
                    mixed.extend(
                        match of(number) {
                            None => own,
                            Some(Blend::Sum { .. }) => before * 0.75 + own * 0.25,
                            Some(Blend::Box { .. }) if (1..7).contains(&x) && (2..5).contains(&y) => before,
                            Some(Blend::Box { .. }) => own,
                        }
                        .to_ne_bytes(),
                    );
                }
                (labels, mixed)
            })
            .collect();
        for n in [1, 3] {
            let loader = loader(bad, skip(n));
            assert_eq!(loader.image_size(), Some([3, 8, 8]));
            loader.begin(7, 0).unwrap();
            for (number, batch) in batches().iter().enumerate() {
                loader.submit_mixed(batch, of(number)).unwrap();
            }
            loader.finish().unwrap();
            assert!(drain(&loader).unwrap() == expected, "{n} workers, {bad:?}");
        }
    }
    let wrong = |loader: &Loader, blend| {
        loader.begin(0, 0).unwrap();
        loader.submit_mixed(&[1], Some(blend)).unwrap_err().message().to_owned()
    };
    let floats = loader(&[], workers(1, 0));
    assert!(
        wrong(&floats, Blend::Box { corners: [0, 0, 9, 8], lam: 1.0 }).contains("no rectangle of images")
    );
    assert!(
        wrong(&floats, Blend::Box { corners: [5, 0, 4, 8], lam: 1.0 }).contains("no rectangle of images")
    );
    assert!(wrong(&floats, Blend::Sum { lam: f64::NAN }).contains("lam is NaN"));
    let bytes = Dataset::new(Images::new(&[])).loader_given().unwrap();
    assert!(wrong(&bytes, Blend::Sum { lam: 0.5 }).contains("these are uint8"));
    let open = Dataset::new(Images::new(&[])).map([RandomResize::new(3, 12).into()]);
    let open = open.loader_given_lists().unwrap();
    assert_eq!(open.image_size(), None);
    assert!(wrong(&open, Blend::Sum { lam: 0.5 }).contains("differ in size"));
}

#[test]
fn a_sample_that_occurs_twice_draws_twice() {
    let seen = run(&loader(&[], workers(2, 0)), 0, 0, &[vec![5; 8]]);
    let images: std::collections::HashSet<&[u8]> = seen[0].1.chunks_exact(8 * 8 * 3 * 4).collect();
    assert!(images.len() > 4, "{} different images of 8", images.len());
}

#[test]
fn a_pass_goes_on_from_any_position() {
    let loader = loader(&[], workers(2, 0));
    let all = run(&loader, 3, 0, &batches());
    let mut position = 0;
    for at in 0..batches().len() {
        assert!(run(&loader, 3, position, &batches()[at..]) == all[at..], "position {position}");
        position += batches()[at].len() as u64;
    }
}

#[test]
fn an_abandoned_pass_leaves_nothing_behind() {
    let loader = loader(&[], workers(3, 1));
    let expected = run(&loader, 1, 0, &batches());
    for taken in 0..3 {
        loader.begin(99, 0).unwrap();
        (0..30).for_each(|_| loader.submit(&[0, 6, 12, 18]).unwrap());
        for _ in 0..taken {
            assert!(matches!(loader.next(Duration::from_secs(60)).unwrap(), Next::Batch(_)));
        }
        assert!(run(&loader, 1, 0, &batches()) == expected);
    }
}

#[test]
fn calls_out_of_turn_and_indices_out_of_range_are_errors() {
    let loader = loader(&[], workers(2, 0));
    let state = |result: Result<()>| assert_eq!(result.unwrap_err().kind(), ErrorKind::State);
    let next = || loader.next(Duration::from_secs(60)).map(|_| ());
    state(next());
    state(loader.submit(&[0]));
    state(loader.finish());
    state(loader.start_epoch());
    loader.begin(0, 0).unwrap();
    state(next());
    let error = loader.submit(&[3, LEN]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Index);
    assert!(error.message().contains("index 40 (place 1"), "{error}");
    assert_eq!(loader.submit(&[]).unwrap_err().kind(), ErrorKind::Config);
    loader.finish().unwrap();
    state(loader.submit(&[0]));
    assert_eq!(drain(&loader).unwrap().len(), 0);
    let planned = Dataset::new(Images::new(&[])).loader().unwrap();
    state(planned.begin(0, 0));
    let error = Dataset::new(Images::new(&[])).shuffle(1).loader_given().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
}

#[test]
fn batches_are_held_to_the_budget_one_by_one() {
    let one = 8 * 8 * 3 * 4 + 8;
    let loader = loader(&[], Options { memory_budget: Some(20 * one), ..workers(2, 0) });
    loader.begin(0, 0).unwrap();
    let error = loader.submit(&[0; 11]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Limit);
    let sizes = [10, 1, 3, 10, 9, 1, 1, 5];
    sizes.iter().for_each(|size| loader.submit(&vec![1; *size]).unwrap());
    loader.finish().unwrap();
    let seen = drain(&loader).unwrap();
    assert_eq!(seen.iter().map(|(labels, _)| labels.len()).collect::<Vec<_>>(), sizes);
}

#[test]
fn bad_samples_are_raised_skipped_or_replaced_and_listed_with_their_place() {
    let make = |on_error| loader(&[3, 11], Options { on_error, ..workers(3, 0) });
    let given = [vec![1, 3, 2], vec![11], vec![4, 11, 4]];
    let raise = make(OnError::Raise);
    raise.begin(0, 100).unwrap();
    given.iter().for_each(|batch| raise.submit(batch).unwrap());
    let results: Vec<_> = given.iter().map(|_| raise.next(Duration::from_secs(60))).collect();
    assert!(results.iter().all(Result::is_err));
    assert_eq!(results[1].as_ref().unwrap_err().index(), Some(11));

    let labels = |loader: &Loader| -> Vec<Vec<i64>> {
        run(loader, 0, 100, &given).into_iter().map(|(labels, _)| labels).collect()
    };
    let skip = make(OnError::Skip);
    assert_eq!(labels(&skip), [vec![1, 2], vec![], vec![4, 4]], "every batch is answered");
    for loader in [&raise, &skip] {
        let listed: Vec<_> =
            loader.errors().unwrap().iter().map(|bad| (bad.error.index(), bad.position, bad.batch)).collect();
        assert_eq!(listed, [(Some(3), Some(101), 0), (Some(11), Some(103), 1), (Some(11), Some(105), 2)]);
    }

    let replace = make(OnError::Replace);
    replace.begin(0, 0).unwrap();
    [&given[0], &given[2], &given[1]].iter().for_each(|batch| replace.submit(batch).unwrap());
    let Next::Batch(first) = replace.next(Duration::from_secs(60)).unwrap() else { panic!("a batch") };
    let labels = first.columns[1].data.as_i64().unwrap();
    assert!(labels.len() == 3 && [1, 2].contains(&labels[1]), "of the same batch: {labels:?}");
    let Next::Batch(second) = replace.next(Duration::from_secs(60)).unwrap() else { panic!("a batch") };
    assert_eq!(second.columns[1].data.as_i64().unwrap(), [4, 4, 4]);
    assert!(replace.next(Duration::from_secs(60)).is_err(), "a batch of one has no replacement");
}

#[test]
fn who_waits_for_microseconds_gets_all_batches_in_order() {
    use wellfed::source::{ArrayData, Pixels, TensorSlices};
    let rows: Vec<u8> = (0..512i32).flat_map(i32::to_ne_bytes).collect();
    let array = ArrayData::from_vec(rows, DType::Int32, vec![512]).unwrap();
    let source =
        TensorSlices::new(vec![("x".to_owned(), array, Pixels::Never)], Structure::Field(0)).unwrap();
    let loader = Dataset::new(Arc::new(source)).with_options(workers(2, 0)).loader_given().unwrap();
    loader.begin(0, 0).unwrap();
    let order: Vec<u64> = (0..512).map(|i| i * 5 % 512).collect();
    // Enough batches of a few samples that the consumer comes to wait for several at once.
    order.chunks(2).for_each(|batch| loader.submit(batch).unwrap());
    loader.finish().unwrap();
    let (mut got, mut timeouts) = (Vec::new(), (0..5).map(|n| Duration::from_micros(n * 60)).cycle());
    loop {
        match loader.next(timeouts.next().unwrap()).unwrap() {
            Next::Batch(batch) => got.extend(batch.columns[0].data.as_bytes().unwrap().to_vec()),
            Next::Pending => {}
            Next::EpochEnd => break,
        }
    }
    let wanted: Vec<u8> = order.iter().flat_map(|i| (*i as i32).to_ne_bytes()).collect();
    assert!(got == wanted);
}

#[test]
fn rows_in_memory_are_claimed_in_pieces_and_come_in_order() {
    use wellfed::source::{ArrayData, Pixels, TensorSlices};
    let rows: Vec<u8> = (0..1000i32).flat_map(i32::to_ne_bytes).collect();
    let array = ArrayData::from_vec(rows, DType::Int32, vec![1000]).unwrap();
    let source =
        TensorSlices::new(vec![("x".to_owned(), array, Pixels::Never)], Structure::Field(0)).unwrap();
    let loader = Dataset::new(Arc::new(source)).with_options(workers(3, 0)).loader_given().unwrap();
    loader.begin(0, 0).unwrap();
    let order: Vec<u64> = (0..1000).map(|i| i * 7 % 1000).collect();
    order.chunks(300).for_each(|batch| loader.submit(batch).unwrap());
    loader.finish().unwrap();
    let mut got = Vec::new();
    while let Next::Batch(batch) = loader.next(Duration::from_secs(60)).unwrap() {
        got.extend(batch.columns[0].data.as_bytes().unwrap().to_vec());
    }
    let wanted: Vec<u8> = order.iter().flat_map(|i| (*i as i32).to_ne_bytes()).collect();
    assert!(got == wanted);
}
