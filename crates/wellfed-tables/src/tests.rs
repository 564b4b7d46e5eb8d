//! Tables against what was written: all types, both formats, damage of every kind.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use ::parquet::{
    arrow::ArrowWriter,
    basic::{Compression, ZstdLevel},
    file::properties::{EnabledStatistics, WriterProperties, WriterVersion},
};
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, DictionaryArray, FixedSizeListArray, Float64Array, Int32Array,
    Int64Array, ListArray, RecordBatch, StringArray, StructArray, types::Int8Type,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_ipc::{
    CompressionType,
    writer::{FileWriter, IpcWriteOptions, StreamWriter},
};
use arrow_schema::{DataType, Field, Schema};
use serde_json::json;
use wellfed::{
    Dataset, ErrorKind,
    sample::{Record, Value},
    source::{
        Gather, Source, TableFormat, TableSpec, Wanted, conformance,
        tables::{Comparison, Condition},
    },
    store::{Done, Entry, LocalStore, Pending, Remote, Request, Stat, Store},
};

use crate::table::open;

/// A folder that is removed at the end of its test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Relaxed);
        let path = std::env::temp_dir().join(format!("wellfed-tables-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Rows `first..first + count` of a table of many types.
fn batch(first: i64, count: i64) -> RecordBatch {
    let rows = || first..first + count;
    let ends = |length: fn(i64) -> i64| {
        let mut ends = vec![0_i32];
        ends.extend(rows().scan(0, |end, row| {
            *end += length(row);
            Some(*end as i32)
        }));
        OffsetBuffer::new(ends.into())
    };
    let item = |data_type| Arc::new(Field::new("item", data_type, true));
    let tokens: Vec<i32> = rows().flat_map(|row| (0..row % 4).map(move |i| (row * 10 + i) as i32)).collect();
    let tokens =
        ListArray::new(item(DataType::Int32), ends(|row| row % 4), Arc::new(Int32Array::from(tokens)), None);
    let points: Vec<f64> = rows().flat_map(|row| [row as f64, -(row as f64)]).collect();
    let points =
        FixedSizeListArray::new(item(DataType::Float64), 2, Arc::new(Float64Array::from(points)), None);
    let names: Vec<String> = rows().map(|row| format!("row {row}")).collect();
    let kinds: DictionaryArray<Int8Type> = rows().map(|row| ["a", "bb", "ccc"][row as usize % 3]).collect();
    let images: Vec<Vec<u8>> = rows().map(|row| vec![row as u8; row as usize % 50]).collect();
    let fields = vec![
        Arc::new(Field::new("bytes", DataType::Binary, true)),
        Arc::new(Field::new("path", DataType::Utf8, true)),
    ];
    let paths: ArrayRef = Arc::new(StringArray::from(names.clone()));
    let images: ArrayRef = Arc::new(BinaryArray::from_iter_values(&images));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from_iter_values(rows()))),
        ("small", Arc::new(Int32Array::from_iter_values(rows().map(|row| (row % 100) as i32)))),
        ("x", Arc::new(Float64Array::from_iter_values(rows().map(|row| row as f64 / 2.0)))),
        ("flag", Arc::new(rows().map(|row| Some(row % 3 == 0)).collect::<BooleanArray>())),
        ("name", Arc::new(StringArray::from(names))),
        ("kind", Arc::new(kinds)),
        ("tokens", Arc::new(tokens)),
        ("point", Arc::new(points)),
        ("image", Arc::new(StructArray::new(fields.into(), vec![images, paths], None))),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

fn check_row(source: &dyn Source, index: u64, row: i64) {
    let mut record = Record::default();
    source.fetch(index, &mut record).unwrap();
    let bytes = |field: usize| match &record.values[field] {
        Value::Bytes(bytes) => bytes.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(record.values[0], Value::Int(row));
    assert_eq!(bytes(1), ((row % 100) as i32).to_ne_bytes());
    assert_eq!(bytes(2), (row as f64 / 2.0).to_ne_bytes());
    assert_eq!(bytes(3), [u8::from(row % 3 == 0)]);
    assert_eq!(bytes(4), format!("row {row}").into_bytes());
    assert_eq!(bytes(5), ["a", "bb", "ccc"][row as usize % 3].as_bytes());
    let tokens: Vec<u8> = (0..row % 4).flat_map(|i| ((row * 10 + i) as i32).to_ne_bytes()).collect();
    assert_eq!(bytes(6), tokens);
    assert_eq!(bytes(7), [row as f64, -(row as f64)].map(f64::to_ne_bytes).concat());
    assert_eq!(bytes(8), vec![row as u8; row as usize % 50]);
}

fn parquet_bytes(
    batches: &[RecordBatch],
    group: usize,
    properties: ::parquet::file::properties::WriterPropertiesBuilder,
) -> Vec<u8> {
    let properties = properties.set_max_row_group_row_count(Some(group)).build();
    let mut out = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut out, batches[0].schema(), Some(properties)).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.close().unwrap();
    out
}

fn ipc_bytes(batches: &[RecordBatch], stream: bool, compression: Option<CompressionType>) -> Vec<u8> {
    let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
    let mut out = Vec::new();
    let schema = batches[0].schema();
    if stream {
        let mut writer = StreamWriter::try_new_with_options(&mut out, &schema, options).unwrap();
        batches.iter().for_each(|batch| writer.write(batch).unwrap());
        writer.finish().unwrap();
    } else {
        let mut writer = FileWriter::try_new_with_options(&mut out, &schema, options).unwrap();
        batches.iter().for_each(|batch| writer.write(batch).unwrap());
        writer.finish().unwrap();
    }
    out
}

fn spec(format: TableFormat, path: &Path) -> TableSpec {
    TableSpec::new(format, path.to_str().unwrap())
}

fn open_spec(spec: TableSpec) -> wellfed::Result<Arc<dyn Source>> {
    open(Arc::new(LocalStore::new()) as Arc<dyn Store>, spec)
}

/// Files of 100 rows, in every way that there is to write them.
fn variants() -> Vec<(&'static str, TableFormat, Vec<u8>)> {
    let (whole, parts) = ([batch(0, 100)], [batch(0, 40), batch(40, 40), batch(80, 20)]);
    // Files have one dictionary for all batches, streams may have another for each.
    let slices = [(0, 40), (40, 40), (80, 20)].map(|(first, count)| whole[0].slice(first, count));
    let plain = WriterProperties::builder;
    vec![
        ("plain", TableFormat::Parquet, parquet_bytes(&whole, 40, plain())),
        (
            "statistics in pages",
            TableFormat::Parquet,
            parquet_bytes(&whole, 40, plain().set_write_page_header_statistics(true)),
        ),
        (
            "snappy 2",
            TableFormat::Parquet,
            parquet_bytes(
                &whole,
                40,
                plain().set_compression(Compression::SNAPPY).set_writer_version(WriterVersion::PARQUET_2_0),
            ),
        ),
        (
            "zstd, no dictionaries, no statistics",
            TableFormat::Parquet,
            parquet_bytes(
                &whole,
                40,
                plain()
                    .set_compression(Compression::ZSTD(ZstdLevel::default()))
                    .set_dictionary_enabled(false)
                    .set_statistics_enabled(EnabledStatistics::None),
            ),
        ),
        (
            "lz4",
            TableFormat::Parquet,
            parquet_bytes(&whole, 40, plain().set_compression(Compression::LZ4_RAW)),
        ),
        (
            "gzip",
            TableFormat::Parquet,
            parquet_bytes(&whole, 40, plain().set_compression(Compression::GZIP(Default::default()))),
        ),
        (
            "brotli",
            TableFormat::Parquet,
            parquet_bytes(&whole, 40, plain().set_compression(Compression::BROTLI(Default::default()))),
        ),
        ("file", TableFormat::Arrow, ipc_bytes(&slices, false, None)),
        ("stream", TableFormat::Arrow, ipc_bytes(&parts, true, None)),
        ("file, lz4", TableFormat::Arrow, ipc_bytes(&slices, false, Some(CompressionType::LZ4_FRAME))),
        ("stream, zstd", TableFormat::Arrow, ipc_bytes(&parts, true, Some(CompressionType::ZSTD))),
    ]
}

#[test]
fn all_types_come_back_from_all_formats() {
    let folder = Folder::new();
    for (name, format, bytes) in variants() {
        let path = folder.at("table");
        fs::write(&path, bytes).unwrap();
        let source = open_spec(spec(format, &path)).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(source.len(), 100, "{name}");
        for row in [0, 99, 40, 39, 1, 80, 50] {
            check_row(&*source, row as u64, row);
        }
        conformance::check(&*source);
        assert_eq!(source.key(41), format!("{}#41", path.display()));
        let sizes = source.groups().unwrap();
        assert_eq!(sizes.samples, 40, "{name}: {sizes:?}");
        assert!(sizes.largest > 0 && sizes.all >= sizes.largest, "{name}: {sizes:?}");
        let again = open_spec(match source.spec() {
            wellfed::source::SourceSpec::Table(spec) => *spec,
            other => panic!("{other:?}"),
        });
        assert_eq!(again.unwrap().fingerprint(), source.fingerprint());
    }
}

#[test]
fn columns_are_chosen_and_rows_are_copied_many_at_a_time() {
    let folder = Folder::new();
    for (name, format, bytes) in variants() {
        let path = folder.at("table");
        fs::write(&path, bytes).unwrap();
        let columns = ["x", "point", "id", "flag"].map(str::to_owned).to_vec();
        let source =
            open_spec(TableSpec { columns: Some(columns), tuple: true, ..spec(format, &path) }).unwrap();
        let orders: [Vec<u64>; 3] =
            [(35..95).collect(), (0..100).map(|i| i * 37 % 100).collect(), vec![99, 0, 40, 39, 39]];
        for order in orders {
            let mut columns: Vec<Vec<u8>> = [8, 16, 8, 1].map(|size| vec![0; size * order.len()]).into();
            let mut copied = vec![false; order.len()];
            let columns = columns.iter_mut().map(Vec::as_mut_slice).collect();
            let mut into = Gather { columns, copied: &mut copied, lists: None };
            let wanted: Vec<Wanted> =
                order.iter().zip(0..).map(|(index, row)| Wanted { index: *index, row }).collect();
            source.gather(&wanted, &Record::default(), &mut into);
            let points = order.iter().map(|row| *row as f64).flat_map(|x| [x, -x]).flat_map(f64::to_ne_bytes);
            assert!(points.eq(into.columns[1].iter().copied()), "{name}");
            assert!(order.iter().flat_map(|row| row.to_ne_bytes()).eq(into.columns[2].iter().copied()));
            assert!(order.iter().map(|row| u8::from(row % 3 == 0)).eq(into.columns[3].iter().copied()));
            assert_eq!(copied, vec![true; order.len()], "{name}");
        }
        conformance::check(&*source);
    }
}

/// Everything that can be asked of damaged bytes: it is an error or a value, and never the end of the process.
fn survives(format: TableFormat, path: &Path) -> (u64, u64) {
    let Ok(source) = open_spec(spec(format, path)) else { return (0, 1) };
    let mut record = Record::default();
    let (mut good, mut bad) = (0, 0);
    for index in 0..source.len().min(500) {
        match source.fetch(index, &mut record) {
            Ok(()) => good += 1,
            Err(e) => {
                assert_eq!(e.index(), Some(index), "{e}");
                bad += 1;
            }
        }
    }
    // Without columns of varying size there is something to gather.
    let numbers = TableSpec { columns: Some(["id", "x"].map(str::to_owned).to_vec()), ..spec(format, path) };
    if let Ok(source) = open_spec(numbers) {
        let (mut id, mut x, mut copied) = (vec![0; 8 * 50], vec![0; 8 * 50], vec![false; 50]);
        let wanted: Vec<Wanted> =
            (0..50).map(|row| Wanted { index: row as u64 * 7 % source.len().max(1), row }).collect();
        let mut into = Gather { columns: vec![&mut id[..], &mut x[..]], copied: &mut copied, lists: None };
        source.gather(&wanted, &record, &mut into);
        for (row, wanted) in wanted.iter().enumerate().filter(|(row, _)| copied[*row]) {
            source.fetch(wanted.index, &mut record).unwrap();
            let Value::Int(number) = record.values[0] else { panic!("{:?}", record.values) };
            assert_eq!(id[row * 8..row * 8 + 8], number.to_ne_bytes());
        }
    }
    (good, bad)
}

#[test]
fn a_cut_file_is_never_taken_for_a_whole_one() {
    let folder = Folder::new();
    let path = folder.at("table");
    for (name, format, bytes) in variants() {
        let step = if bytes.len() > 4000 { bytes.len() / 400 } else { 1 };
        for cut in (0..bytes.len()).step_by(step).chain(bytes.len().saturating_sub(24)..bytes.len()) {
            fs::write(&path, &bytes[..cut]).unwrap();
            let (good, bad) = survives(format, &path);
            assert!(bad > 0, "{name}: cut at {cut} of {}: {good} good rows", bytes.len());
        }
    }
}

#[test]
fn flipped_bits_are_errors_or_values() {
    let folder = Folder::new();
    let path = folder.at("table");
    let mut seed = 1_u64;
    let mut next = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    for (_, format, bytes) in variants() {
        // More than a thousand of each format.
        for _ in 0..if format == TableFormat::Arrow { 260 } else { 150 } {
            let mut bad = bytes.clone();
            let at = next(bad.len());
            bad[at] ^= 1 << next(8);
            fs::write(&path, &bad).unwrap();
            survives(format, &path);
        }
    }
}

#[test]
fn damage_of_one_file_leaves_the_others() {
    let folder = Folder::new();
    let bytes = parquet_bytes(&[batch(0, 100)], 40, WriterProperties::builder());
    fs::write(folder.at("a.parquet"), &bytes[..bytes.len() - 5]).unwrap();
    fs::write(folder.at("b.parquet"), &bytes).unwrap();
    let source = open_spec(spec(TableFormat::Parquet, &folder.at("*.parquet"))).unwrap();
    assert_eq!(source.len(), 101);
    let e = source.fetch(0, &mut Record::default()).unwrap_err();
    assert!(e.kind() == ErrorKind::Corrupt && e.message().contains("a.parquet"), "{e}");
    check_row(&*source, 1, 0);
    let stream = ipc_bytes(&[batch(0, 40), batch(40, 40)], true, None);
    fs::write(folder.at("c.arrow"), &stream[..stream.len() - 100]).unwrap();
    let source = open_spec(spec(TableFormat::Arrow, &folder.at("c.arrow"))).unwrap();
    assert_eq!(source.len(), 41, "what was written before the cut is there");
    check_row(&*source, 39, 39);
    assert!(source.fetch(40, &mut Record::default()).unwrap_err().message().contains("cut"));
    conformance::check(&*source);
}

#[test]
fn filters_take_the_rows_that_hold_them() {
    use Comparison::{Equal, Greater, In, Less, NotEqual, NotIn};
    let folder = Folder::new();
    let condition = |column: &str, comparison, value| Condition(column.into(), comparison, value);
    type Holds = fn(i64) -> bool;
    let cases: Vec<(Vec<Vec<Condition>>, Holds)> = vec![
        (vec![vec![condition("id", Greater, json!(70))]], |row| row > 70),
        (vec![vec![condition("id", Greater, json!(10.5)), condition("x", Less, json!(20))]], |row| {
            row > 10 && row < 40
        }),
        (vec![vec![condition("kind", Equal, json!("bb"))], vec![condition("id", Less, json!(3))]], |row| {
            row % 3 == 1 || row < 3
        }),
        (vec![vec![condition("name", In, json!(["row 7", "row 77"]))]], |row| row == 7 || row == 77),
        (vec![vec![condition("small", NotIn, json!([1, 2]))]], |row| row != 1 && row != 2),
        (vec![vec![condition("flag", Equal, json!(true))]], |row| row % 3 == 0),
        (vec![vec![condition("id", NotEqual, json!(5))]], |row| row != 5),
        (vec![vec![condition("id", Greater, json!(1000))]], |_| false),
    ];
    for (name, format, bytes) in variants() {
        let path = folder.at("table");
        fs::write(&path, bytes).unwrap();
        for (filters, holds) in &cases {
            let filters = filters.clone();
            let source = open_spec(TableSpec { filters: filters.clone(), ..spec(format, &path) }).unwrap();
            let expected: Vec<i64> = (0..100).filter(|row| holds(*row)).collect();
            assert_eq!(source.len(), expected.len() as u64, "{name}: {filters:?}");
            for (index, row) in (0..).zip(&expected) {
                check_row(&*source, index, *row);
            }
            // What is filtered by need not be read.
            let columns = Some(vec!["x".to_owned()]);
            let narrow = open_spec(TableSpec { filters, columns, ..spec(format, &path) }).unwrap();
            assert_eq!(narrow.len(), expected.len() as u64);
        }
    }
    for bad in [
        condition("id", Equal, json!("text")),
        condition("tokens", Equal, json!(1)),
        condition("none", Equal, json!(1)),
        condition("id", In, json!(1)),
    ] {
        let path = folder.at("table");
        let filters = vec![vec![bad]];
        assert_eq!(
            open_spec(TableSpec { filters, ..spec(TableFormat::Arrow, &path) }).unwrap_err().kind(),
            ErrorKind::Config
        );
    }
}

#[test]
fn a_null_is_the_error_of_its_row() {
    let folder = Folder::new();
    let x: ArrayRef = Arc::new(Int64Array::new(
        (0..6).collect(),
        Some(NullBuffer::from(vec![true, false, true, true, true, true])),
    ));
    let inner = Int32Array::from(vec![Some(1), None, Some(3), Some(4)]);
    let field = Arc::new(Field::new("item", DataType::Int32, true));
    let offsets = OffsetBuffer::new(vec![0, 1, 1, 2, 3, 4, 4].into());
    let list: ArrayRef = Arc::new(ListArray::new(field, offsets, Arc::new(inner), None));
    let batch = RecordBatch::try_from_iter([("x", x), ("list", list)]).unwrap();
    for (format, bytes) in [
        (TableFormat::Parquet, parquet_bytes(std::slice::from_ref(&batch), 100, WriterProperties::builder())),
        (TableFormat::Arrow, ipc_bytes(std::slice::from_ref(&batch), false, None)),
    ] {
        let path = folder.at("table");
        fs::write(&path, bytes).unwrap();
        let source = open_spec(spec(format, &path)).unwrap();
        conformance::check(&*source);
        let errors: Vec<Option<String>> = (0..6)
            .map(|i| source.fetch(i, &mut Record::default()).err().map(|e| e.message().to_owned()))
            .collect();
        assert!(errors[1].as_ref().unwrap().contains("\"x\" is null in row 1"), "{errors:?}");
        assert!(errors[2].as_ref().unwrap().contains("\"list\" is null in row 2"), "{errors:?}");
        assert_eq!(errors.iter().flatten().count(), 2);
        // Without the list all others are copied together, which the suite compares with reading them one by one.
        let numbers = TableSpec { columns: Some(vec!["x".into()]), ..spec(format, &path) };
        conformance::check(&*open_spec(numbers).unwrap());
        let filters = vec![vec![Condition("x".into(), Comparison::NotEqual, json!(0))]];
        assert_eq!(open_spec(TableSpec { filters, ..spec(format, &path) }).unwrap().len(), 4);
    }
}

#[test]
fn a_loader_gives_every_row_once_in_any_order_and_little_memory() {
    let folder = Folder::new();
    let path = folder.at("table");
    fs::write(&path, parquet_bytes(&[batch(0, 1000)], 90, WriterProperties::builder())).unwrap();
    for columns in [&["id", "x"][..], &["id", "name"]] {
        let columns = Some(columns.iter().map(|name| (*name).to_owned()).collect());
        let source =
            open_spec(TableSpec { columns, tuple: true, ..spec(TableFormat::Parquet, &path) }).unwrap();
        for shuffled in [false, true] {
            for budget in [None, Some(1_u64 << 20)] {
                for workers in [1, 3] {
                    let mut options =
                        wellfed::Options { memory_budget: budget, ..wellfed::Options::default() };
                    options.num_workers = wellfed::plan::options::Auto::Fixed(workers);
                    let mut dataset = Dataset::new(source.clone()).with_options(options);
                    if shuffled {
                        dataset = dataset.shuffle(3);
                    }
                    let loader = dataset.batch(64, false).loader().unwrap();
                    let mut ids: Vec<i64> = Vec::new();
                    for batch in loader.epoch().unwrap() {
                        let batch = batch.unwrap();
                        let wellfed::ColumnData::Array { bytes, .. } = &batch.columns[0].data else {
                            panic!()
                        };
                        // The last batch has room for more.
                        let ids_of = &bytes[..batch.len * 8];
                        ids.extend(
                            ids_of.chunks_exact(8).map(|id| i64::from_ne_bytes(id.try_into().unwrap())),
                        );
                    }
                    if !shuffled {
                        assert!(ids.iter().copied().eq(0..1000), "{ids:?}");
                    }
                    ids.sort_unstable();
                    assert!(ids.into_iter().eq(0..1000));
                }
            }
        }
    }
}

#[test]
fn a_schema_without_columns_and_other_types_in_another_file_are_refused() {
    let folder = Folder::new();
    let one: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let other: ArrayRef = Arc::new(Float64Array::from(vec![1.0]));
    for (name, column) in [("a.parquet", one), ("b.parquet", other)] {
        let batch = RecordBatch::try_from_iter([("x", column)]).unwrap();
        fs::write(folder.at(name), parquet_bytes(&[batch], 10, WriterProperties::builder())).unwrap();
    }
    let e = open_spec(spec(TableFormat::Parquet, &folder.0)).unwrap_err();
    assert!(e.kind() == ErrorKind::Config && e.message().contains("b.parquet"), "{e}");
    let empty = RecordBatch::new_empty(Arc::new(Schema::empty()));
    fs::write(folder.at("c.arrow"), ipc_bytes(&[empty], false, None)).unwrap();
    assert_eq!(
        open_spec(spec(TableFormat::Arrow, &folder.at("c.arrow"))).unwrap_err().kind(),
        ErrorKind::Config
    );
}

/// A store that is far away, by its own word, and notes what is read of it: how often by a thread that waits, and which ranges
/// were asked for.
#[derive(Debug, Default)]
struct Far {
    near: LocalStore,
    reads: AtomicU64,
    asked: Mutex<Vec<std::ops::Range<u64>>>,
}

impl Store for Far {
    fn stat(&self, path: &str) -> wellfed::Result<Stat> {
        self.near.stat(path)
    }

    fn read(&self, path: &str, max_bytes: u64, into: &mut Vec<u8>) -> wellfed::Result<()> {
        self.near.read(path, max_bytes, into)
    }

    fn read_range(&self, path: &str, offset: u64, len: usize, into: &mut Vec<u8>) -> wellfed::Result<()> {
        self.reads.fetch_add(1, Relaxed);
        self.near.read_range(path, offset, len, into)
    }

    fn list(
        &self,
        path: &str,
        entry: &mut dyn FnMut(Entry<'_>) -> wellfed::Result<()>,
    ) -> wellfed::Result<()> {
        self.near.list(path, entry)
    }

    fn remote(&self) -> Option<&dyn Remote> {
        Some(self)
    }
}

impl Remote for Far {
    fn begin(&self, request: Request, done: Done) -> Pending {
        let range = request.range.unwrap();
        let mut bytes = Vec::new();
        let len = (range.end - range.start) as usize;
        let read = self.near.read_range(&request.path, range.start, len, &mut bytes);
        self.asked.lock().unwrap().push(range);
        done(read.map(|()| bytes));
        Pending::new(|| {})
    }
}

/// The column `id` of all batches.
fn ids(loader: &wellfed::Loader) -> Vec<i64> {
    let mut ids = Vec::new();
    for batch in loader.epoch().unwrap() {
        let batch = batch.unwrap();
        let wellfed::ColumnData::Array { bytes, .. } = &batch.columns[0].data else { panic!() };
        let bytes = &bytes[..batch.len * 8];
        ids.extend(bytes.chunks_exact(8).map(|id| i64::from_ne_bytes(id.try_into().unwrap())));
    }
    ids
}

#[test]
fn groups_of_a_far_store_are_read_before_they_are_wanted() {
    let folder = Folder::new();
    let path = folder.at("table");
    fs::write(&path, parquet_bytes(&[batch(0, 1000)], 100, WriterProperties::builder())).unwrap();
    let columns = Some(["id", "x"].map(str::to_owned).to_vec());
    let spec = || TableSpec { columns: columns.clone(), tuple: true, ..spec(TableFormat::Parquet, &path) };
    let far = Arc::new(Far::default());
    let source = open(far.clone(), spec()).unwrap();
    let near = open_spec(spec()).unwrap();
    let one = |memory_budget| wellfed::Options {
        memory_budget,
        num_workers: wellfed::plan::options::Auto::Fixed(1),
        prefetch: wellfed::plan::options::Auto::Fixed(1),
        ..wellfed::Options::default()
    };
    let loader = Dataset::new(source.clone()).with_options(one(None)).batch(10, false).loader().unwrap();
    let before = far.reads.load(Relaxed);
    loader.start_epoch().unwrap();
    // Batches of the first group alone are made until somebody takes them.
    let bytes = || far.asked.lock().unwrap().iter().map(|range| range.end - range.start).sum::<u64>();
    let all = fs::metadata(&path).unwrap().len();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while bytes() < all / 4 {
        assert!(std::time::Instant::now() < deadline, "{} of {all} bytes", bytes());
        std::thread::yield_now();
    }
    assert!(ids(&loader).into_iter().eq(0..1000));
    assert!(bytes() <= all, "nothing is read twice");
    let stats = loader.stats().requests.unwrap();
    assert!(stats.requests >= 1 && stats.bytes == bytes(), "{stats:?}");
    drop(loader);
    // In little room, and from any place on, all is as it is near.
    for budget in [None, Some(1_u64 << 20)] {
        for block in [None, Some(100)] {
            let loader = |source: &Arc<dyn Source>| {
                let dataset = Dataset::new(source.clone()).with_options(one(budget));
                let shuffled = match block {
                    Some(size) => dataset.shuffle_blocks(5, size, 2),
                    None => dataset.shuffle(5),
                };
                shuffled.batch(64, false).loader().unwrap()
            };
            let (far, near) = (loader(&source), loader(&near));
            assert_eq!(ids(&far), ids(&near));
            for loader in [&far, &near] {
                loader.set_epoch(3).unwrap();
            }
            assert_eq!(ids(&far), ids(&near));
        }
    }
    assert_eq!(far.reads.load(Relaxed), before, "no thread waits for the store");
}
