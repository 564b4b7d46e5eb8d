//! Samples that take much of the memory budget: whatever really fits is delivered, within the budget, and what is an error
//! depends on sizes only.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use wellfed::{
    Batch, ColumnData, Dataset, ErrorKind, Limits, Loader, Next, Options, Result,
    io::Extent,
    plan::{Auto, Node, OnError, Pad},
    sample::{DType, FieldKind, Record, Schema, Value},
    source::Source,
};

const KB: usize = 1 << 10;
const MB: usize = 1 << 20;

/// How values become a column.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Column {
    Bytes,
    Text,
    /// All samples are as large as the first one.
    Dense,
    Ragged,
    Padded,
}

const COLUMNS: [Column; 5] = [Column::Bytes, Column::Text, Column::Dense, Column::Ragged, Column::Padded];

/// Records of given sizes that are read: a letter each, repeated.
#[derive(Debug)]
struct Records {
    schema: Schema,
    sizes: Vec<usize>,
    /// Whether sizes are known before reading, and there is another field that is read: without, a source that has
    /// several needs the room of the largest for each.
    located: bool,
    /// Bytes that were read.
    read: AtomicU64,
}

impl Records {
    fn new(column: Column, sizes: &[usize], located: bool) -> Arc<Self> {
        let kind = match column {
            Column::Bytes => FieldKind::Bytes,
            Column::Text => FieldKind::Text,
            Column::Dense => FieldKind::array(DType::UInt8, &[sizes[0]]),
            Column::Ragged | Column::Padded => FieldKind::Array { dtype: DType::UInt8, shape: vec![None] },
        };
        let fields = [("name", FieldKind::Text), ("x", kind), ("y", FieldKind::LABEL)];
        let schema = Schema::tuple(fields.into_iter().skip(usize::from(!located)));
        Arc::new(Self { schema, sizes: sizes.to_vec(), located, read: AtomicU64::new(0) })
    }
}

impl Source for Records {
    fn name(&self) -> String {
        "records".to_owned()
    }

    fn len(&self) -> u64 {
        self.sizes.len() as u64
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn key(&self, index: u64) -> String {
        index.to_string()
    }

    fn fetch(&self, index: u64, record: &mut Record) -> Result<()> {
        let fields = self.schema.fields.len();
        record.reset(fields);
        let size = self.sizes[index as usize];
        let limits = record.limits;
        if self.located {
            record.values[0].buffer().extend_from_slice(index.to_string().as_bytes());
        }
        limits.check_bytes("x", size as u64)?;
        let bytes = record.values[fields - 2].buffer();
        bytes.reserve_exact(size);
        bytes.resize(size, b'a' + (index % 26) as u8);
        record.values[fields - 1] = Value::Int(index as i64);
        self.read.fetch_add(size as u64, Relaxed);
        Ok(())
    }

    fn locate(&self, index: u64, limits: &Limits, extents: &mut Vec<Extent>) -> Result<()> {
        let size = self.sizes[index as usize] as u64;
        limits.check_bytes("x", size)?;
        let extent = if self.located { Extent::range("x", 0, size) } else { Extent::whole("x", size) };
        extents.push(extent);
        Ok(())
    }
}

fn dataset(source: &Arc<Records>, column: Column, batch_size: usize, options: Options) -> Dataset {
    let dataset = Dataset::new(source.clone());
    let input = Box::new(dataset.plan().root.clone());
    let dataset = match column {
        Column::Ragged => dataset.verb(Node::RaggedBatch { batch_size, drop_last: false, input }).unwrap(),
        Column::Padded => {
            let pad = Pad::default();
            dataset.verb(Node::PaddedBatch { batch_size, drop_last: false, pad, input }).unwrap()
        }
        _ => dataset.batch(batch_size, false),
    };
    dataset.with_options(options)
}

fn options(budget: usize, workers: usize) -> Options {
    Options {
        memory_budget: Some(budget as u64),
        num_workers: Auto::Fixed(workers),
        prefetch: Auto::Fixed(8),
        on_error: OnError::Skip,
        ..Options::default()
    }
}

/// What came of an epoch: for each batch its numbers, or what went wrong; and the bad samples with their errors.
type Outcome = (Vec<std::result::Result<Vec<i64>, ErrorKind>>, Vec<(String, String)>);

/// Takes one epoch, with a look at the counters after every batch.
fn epoch(loader: &Loader, source: &Records, budget: usize, pause: Duration) -> Outcome {
    let mut batches = Vec::new();
    loader.start_epoch().unwrap();
    loop {
        let found = loader.next(Duration::from_secs(120));
        let memory = loader.stats().memory;
        assert!(memory as f64 <= 1.1 * budget as f64, "{memory} of {budget}");
        match found {
            Ok(Next::EpochEnd) => break,
            Ok(Next::Pending) => {}
            Ok(Next::Batch(batch)) => {
                let numbers = check(&batch, source);
                batches.push(Ok(numbers));
            }
            Err(error) => batches.push(Err(error.kind())),
        }
        std::thread::sleep(pause);
    }
    let errors = loader.errors().unwrap();
    let errors =
        errors.iter().map(|bad| (bad.error.key().unwrap_or_default().to_owned(), bad.error.to_string()));
    (batches, errors.collect())
}

/// The numbers of the samples of a batch, of which every value has its size, and its letter from end to end.
fn check(batch: &Batch, source: &Records) -> Vec<i64> {
    let [.., values, numbers] = &batch.columns[..] else { panic!("columns are missing") };
    let (data, numbers) = (&values.data, numbers.data.as_i64().unwrap());
    let same = |bytes: &[u8], number: i64| {
        let letter = b'a' + (number % 26) as u8;
        assert_eq!(bytes.len(), source.sizes[number as usize], "sample {number}");
        assert!(bytes.iter().all(|byte| *byte == letter), "sample {number}");
    };
    match data {
        ColumnData::Bytes(all) => all.iter().zip(&numbers).for_each(|(bytes, n)| same(bytes, *n)),
        ColumnData::Text(all) => all.iter().zip(&numbers).for_each(|(text, n)| same(text.as_bytes(), *n)),
        ColumnData::Ragged { .. } => {
            let mut bytes = data.as_bytes().unwrap();
            for &number in &numbers {
                let (value, rest) = bytes.split_at(source.sizes[number as usize]);
                same(value, number);
                bytes = rest;
            }
        }
        _ => {
            let bytes = data.as_bytes().unwrap();
            for (row, &number) in bytes.chunks_exact(bytes.len() / numbers.len()).zip(&numbers) {
                same(&row[..source.sizes[number as usize]], number);
            }
        }
    }
    numbers
}

fn sizes(column: Column, large: usize) -> Vec<usize> {
    let sizes = [1000, large, 20, large, large, 3000, 1, 50_000, large, 7];
    if column == Column::Dense { vec![large; 5] } else { sizes.to_vec() }
}

#[test]
fn a_quarter_of_the_budget_is_delivered_in_columns_of_every_kind() {
    let large = 10 * MB;
    for column in COLUMNS {
        for workers in [1, 2, 8] {
            for located in [true, false] {
                let source = Records::new(column, &sizes(column, large), located);
                let (budget, batch_size) = (4 * large + MB, 1);
                let loader = dataset(&source, column, batch_size, options(budget, workers)).loader().unwrap();
                for pause in [0, 3] {
                    let (batches, errors) = epoch(&loader, &source, budget, Duration::from_millis(pause));
                    let what = format!("{column:?}, {workers} workers, located: {located}: {errors:?}");
                    assert!(errors.is_empty(), "{what}");
                    let all: Vec<_> = (0..source.sizes.len() as i64).map(|i| Ok(vec![i])).collect();
                    assert_eq!(batches, all, "{what}");
                }
            }
        }
    }
}

#[test]
fn a_little_more_than_is_documented_is_enough_and_less_is_an_error_with_numbers() {
    let large = 20 * MB;
    // Dense arrays stand beside texts here; two batches of them must fit in any case.
    for (column, times) in
        [(Column::Bytes, 2), (Column::Text, 2), (Column::Dense, 3), (Column::Ragged, 2), (Column::Padded, 2)]
    {
        let source = Records::new(column, &sizes(column, large), true);
        let enough = times * large + 512 * KB;
        let loader = dataset(&source, column, 1, options(enough, 2)).loader().unwrap();
        let (batches, errors) = epoch(&loader, &source, enough, Duration::ZERO);
        assert_eq!((batches.len(), errors), (source.sizes.len(), vec![]), "{column:?}");
        let little = times * large - MB;
        let loader = dataset(&source, column, 1, options(little, 2)).loader().unwrap();
        if column == Column::Dense {
            // Without a good sample the epoch is an error.
            loader.start_epoch().unwrap();
            while loader.errors().unwrap().len() < 5 {
                drop(loader.next(Duration::from_secs(60)));
            }
        } else {
            let (batches, _) = epoch(&loader, &source, little, Duration::ZERO);
            assert_eq!(batches.len(), 6, "{column:?}");
        }
        let bad = loader.errors().unwrap();
        let text = bad[0].error.to_string();
        for part in ["one sample takes at least", "memory budget has for one", "memory_budget="] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(bad[0].error.kind(), ErrorKind::Limit);
    }
}

/// A message without the number of bytes that a sample takes at least.
fn without_least(text: &str) -> String {
    let (before, after) = text.split_once("at least ").unwrap();
    format!("{before}{}", after.trim_start_matches(|c: char| c.is_ascii_digit()))
}

#[test]
fn errors_depend_on_sizes_only() {
    // Sizes around every bound of a budget of 48 MB, in all neighbourhoods: one alone is too large, some batches are.
    let budget = 48 * MB;
    let mut sizes: Vec<usize> = (0..48_usize)
        .map(|i| match i * 7 % 12 {
            0 => 30 * MB,
            1 | 2 => 23 * MB,
            3 => 14 * MB,
            4 | 5 => 7 * MB,
            6 => 0,
            k => k * 100 * KB,
        })
        .collect();
    // Each of these fits, but not both in one batch.
    (sizes[45], sizes[47]) = (20 * MB, 7 * MB);
    for (column, located) in [(Column::Bytes, true), (Column::Ragged, true), (Column::Padded, false)] {
        let mut first: Option<Outcome> = None;
        for (workers, readers, pause) in [(1, 0, 0), (2, 1, 0), (8, 4, 0), (8, 0, 2)] {
            let source = Records::new(column, &sizes, located);
            let options = Options { read_ahead: Auto::Fixed(readers), ..options(budget, workers) };
            let loader = dataset(&source, column, 3, options).loader().unwrap();
            let mut outcome = epoch(&loader, &source, budget, Duration::from_millis(pause));
            // "At least" so many bytes: what a thread still holds of the sample before counts as there already.
            outcome.1.iter_mut().for_each(|(_, text)| *text = without_least(text));
            let (batches, errors) = &outcome;
            let bad: Vec<&str> = errors.iter().map(|(key, _)| key.as_str()).collect();
            assert_eq!(bad, ["0", "12", "24", "36"], "those above half of the budget");
            let whole = batches.iter().filter(|batch| batch.is_err()).count();
            assert_eq!(whole, if column == Column::Padded { 12 } else { 1 }, "{batches:?}");
            let expected = first.get_or_insert_with(|| outcome.clone());
            assert_eq!(&outcome, expected, "{column:?}, {workers} workers, {readers} readers");
        }
    }
}

#[test]
fn two_large_records_in_one_batch_fit_where_both_do() {
    let (large, budget) = (8 * MB, 40 * MB);
    let sizes = [10, large, large, 10, 20, large, 10, 10];
    for workers in [1, 8] {
        let source = Records::new(Column::Bytes, &sizes, true);
        let loader = dataset(&source, Column::Bytes, 4, options(budget, workers)).loader().unwrap();
        let (batches, errors) = epoch(&loader, &source, budget, Duration::ZERO);
        assert_eq!((batches, errors), (vec![Ok(vec![0, 1, 2, 3]), Ok(vec![4, 5, 6, 7])], vec![]));
    }
}

#[test]
fn a_jump_while_a_large_batch_is_made_leaves_nothing_behind() {
    let (large, budget) = (12 * MB, 30 * MB);
    let sizes: Vec<usize> = (0..24).map(|i| if i % 3 == 1 { large } else { 100 * i }).collect();
    let source = Records::new(Column::Ragged, &sizes, true);
    let loader = dataset(&source, Column::Ragged, 1, options(budget, 4)).loader().unwrap();
    for round in 0..40_u64 {
        loader.set_epoch(round * 2).unwrap();
        loader.start_epoch().unwrap();
        for _ in 0..round % 5 {
            assert!(matches!(loader.next(Duration::from_secs(120)), Ok(Next::Batch(_))));
        }
        std::thread::sleep(Duration::from_micros(300 * round));
    }
    loader.set_epoch(1000).unwrap();
    let (batches, errors) = epoch(&loader, &source, budget, Duration::ZERO);
    assert_eq!((batches.len(), errors), (24, vec![]));
    // One that is dropped in the middle ends as well.
    loader.start_epoch().unwrap();
    drop(loader.next(Duration::from_secs(120)));
    drop(loader);
}

#[test]
fn batches_of_the_caller_are_made_solo_as_well() {
    let (large, budget) = (12 * MB, 30 * MB);
    let sizes: Vec<usize> = (0..12).map(|i| if i % 2 == 1 { large } else { 100 }).collect();
    let source = Records::new(Column::Bytes, &sizes, true);
    let loader = Dataset::new(source.clone()).with_options(options(budget, 3)).loader_given().unwrap();
    for pass in 0..3 {
        loader.begin(pass, 0).unwrap();
        for index in [1, 3, 0, 2, 5, 4] {
            loader.submit(&[index]).unwrap();
        }
        if pass == 1 {
            // Given up in the middle.
            drop(loader.next(Duration::from_secs(120)).unwrap());
            continue;
        }
        loader.finish().unwrap();
        let mut seen = Vec::new();
        while let Next::Batch(batch) = loader.next(Duration::from_secs(120)).unwrap() {
            seen.extend(check(&batch, &source));
        }
        assert_eq!(seen, [1, 3, 0, 2, 5, 4]);
    }
}

#[test]
fn after_a_large_batch_others_are_made_ahead_again() {
    let budget = 40 * MB;
    let sizes: Vec<usize> = (0..200).map(|i| if i == 3 { 12 * MB } else { 10 * KB }).collect();
    let source = Records::new(Column::Bytes, &sizes, true);
    let loader = dataset(&source, Column::Bytes, 1, options(budget, 2)).loader().unwrap();
    loader.start_epoch().unwrap();
    let mut ahead = 0;
    for number in 0..200 {
        assert!(matches!(loader.next(Duration::from_secs(120)), Ok(Next::Batch(_))));
        if number > 100 && ahead == 0 {
            // Given time, all batches that may be are made before they are asked for.
            let before = source.read.load(Relaxed);
            for _ in 0..1000 {
                std::thread::sleep(Duration::from_millis(5));
                ahead = source.read.load(Relaxed) - before;
                if ahead > 0 {
                    break;
                }
            }
            ahead = ahead.max(u64::from(before >= (number + 8) * 10 * KB as u64));
            assert!(ahead > 0, "nothing is made ahead");
        }
    }
}
