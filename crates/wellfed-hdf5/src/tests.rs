//! Files that h5py wrote, in both of the library's formats: values, damage of every kind, and what is refused.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use wellfed::{
    Dataset, ErrorKind, Options,
    plan::options::Auto,
    sample::{DType, FieldKind, PixelLayout, Record, Value},
    source::{Pixels, Source, conformance, hdf5::Hdf5Spec},
    store::{LocalStore, Store},
};

use crate::{
    chunks::Chunk,
    dataset::{self, Storage},
    file::File,
    filters::{self, Filter},
    source::open,
};

const ROWS: u64 = 10;
const FORMATS: [&str; 2] = ["earliest", "latest"];

/// A folder that is removed at the end of its test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Relaxed);
        let path = std::env::temp_dir().join(format!("wellfed-hdf5-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn file(format: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files").join(format!("{format}.h5"))
}

fn spec(path: &Path) -> Hdf5Spec {
    Hdf5Spec { pixels: Pixels::Never, ..Hdf5Spec::new(path.to_str().unwrap()) }
}

fn with_fields(path: &Path, fields: &[&str]) -> Hdf5Spec {
    let fields = fields.iter().map(|name| ((*name).to_owned(), (*name).to_owned())).collect();
    Hdf5Spec { fields: Some(fields), tuple: true, ..spec(path) }
}

fn opened(spec: Hdf5Spec) -> wellfed::Result<Arc<dyn Source>> {
    let local: Arc<dyn Store> = Arc::new(LocalStore::new());
    open(local, spec)
}

/// Elements `first..first + count` of `make.py`, as this dtype.
fn numbers(dtype: DType, first: u64, count: u64) -> Vec<u8> {
    let of = |i: u64| (i * 7 + 3) % 251;
    (first..first + count)
        .flat_map(|i| match dtype {
            DType::UInt8 => vec![of(i) as u8],
            DType::Int16 => (of(i) as i16).to_ne_bytes().to_vec(),
            DType::UInt16 => (of(i) as u16).to_ne_bytes().to_vec(),
            DType::Int32 => (of(i) as i32).to_ne_bytes().to_vec(),
            DType::UInt32 => (of(i) as u32).to_ne_bytes().to_vec(),
            DType::UInt64 => of(i).to_ne_bytes().to_vec(),
            DType::Int64 => (of(i) as i64).to_ne_bytes().to_vec(),
            DType::Float32 => (of(i) as f32).to_ne_bytes().to_vec(),
            DType::Float64 => (of(i) as f64).to_ne_bytes().to_vec(),
            other => panic!("{other:?}"),
        })
        .collect()
}

/// What field `name` has in `row`.
fn expected(name: &str, row: u64) -> Value {
    let (dtype, count) = match name {
        "image" => (DType::UInt8, 20),
        "label" => return Value::Int(((row * 7 + 3) % 251) as i64),
        "gzip" => (DType::Float32, 3),
        "sum" => (DType::UInt16, 3),
        "lzf" => (DType::Int32, 6),
        "one" => (DType::Float64, 2),
        "plain" => (DType::Int16, 3),
        "single" | "link" => (DType::UInt8, 2),
        "grows" | "both" => (DType::UInt32, 2),
        "across" => (DType::UInt8, 4),
        "some" if (4..7).contains(&row) => return Value::Bytes([-9_i32, -9].map(i32::to_ne_bytes).concat()),
        "some" => (DType::Int32, 2),
        "none" => return Value::Bytes(2.5_f32.to_ne_bytes().to_vec()),
        "flag" => return Value::Bytes(vec![u8::from(row.is_multiple_of(3))]),
        "text" => return Value::Bytes(format!("row {row}").into_bytes()),
        "compact" => (DType::Int16, 2),
        other => panic!("{other}"),
    };
    Value::Bytes(numbers(dtype, row * count, count))
}

#[test]
fn rows_are_what_was_written() {
    for format in FORMATS {
        let source = opened(spec(&file(format))).unwrap();
        conformance::check(&*source);
        assert_eq!(source.len(), ROWS);
        let fields = &source.schema().fields;
        assert_eq!(fields.len(), 17, "{fields:?}");
        let mut record = Record::default();
        for row in [3, 0, 9, 4, 5, 6, 1, 8, 2, 7] {
            source.fetch(row, &mut record).unwrap();
            for (field, value) in fields.iter().zip(&record.values) {
                assert_eq!(*value, expected(&field.name, row), "{} of row {row} in {format}", field.name);
            }
        }
        let kind = |name: &str| fields.iter().find(|field| field.name == name).unwrap().kind.clone();
        assert_eq!(kind("flag"), FieldKind::Scalar { dtype: DType::Bool });
        assert_eq!(kind("text"), FieldKind::Text);
        assert_eq!(kind("gzip"), FieldKind::array(DType::Float32, &[3]));
        let [note] = source.notes() else { panic!("{:?}", source.notes()) };
        assert!(note.contains("short [3]") && note.contains("10 rows"), "{note}");
    }
}

#[test]
fn elements_of_variable_length() {
    let folder = Folder::new();
    for format in FORMATS {
        let group = |path: &Path| Hdf5Spec { group: Some("varying".to_owned()), ..spec(path) };
        let source = opened(group(&file(format))).unwrap();
        conformance::check(&*source);
        let kinds: Vec<FieldKind> = source.schema().fields.iter().map(|field| field.kind.clone()).collect();
        assert_eq!(kinds, [FieldKind::Array { dtype: DType::Int32, shape: vec![None] }, FieldKind::Text]);
        let mut record = Record::default();
        for row in 0..ROWS {
            source.fetch(row, &mut record).unwrap();
            assert_eq!(record.values[0], Value::Bytes(numbers(DType::Int32, 0, row % 4)));
            let name = format!("name {row}").repeat((row % 3) as usize);
            assert_eq!(record.values[1], Value::Bytes(name.into_bytes()));
        }
        let whole = fs::read(file(format)).unwrap();
        let (path, mut state) = (folder.0.join("bad.h5"), 0xABCD_EF01);
        for _ in 0..500 {
            let mut bad = whole.clone();
            let at = random(&mut state) as usize % bad.len();
            bad[at] = random(&mut state) as u8;
            fs::write(&path, bad).unwrap();
            let Ok(source) = opened(group(&path)) else { continue };
            for row in 0..source.len().min(ROWS) {
                if let Err(e) = source.fetch(row, &mut record) {
                    assert_ne!(e.kind(), ErrorKind::Internal, "{e}");
                }
            }
        }
    }
}

#[test]
fn fields_are_chosen_by_path_and_group() {
    for format in FORMATS {
        let path = file(format);
        let source = opened(with_fields(&path, &["train/x", "label"])).unwrap();
        conformance::check(&*source);
        assert_eq!(source.schema().fields[0].name, "train/x");
        let of_group = opened(Hdf5Spec { group: Some("/train".to_owned()), ..spec(&path) }).unwrap();
        conformance::check(&*of_group);
        assert_eq!(of_group.schema().fields[0].name, "x");
        let image = Hdf5Spec { pixels: Pixels::Infer, ..with_fields(&path, &["image"]) };
        let layout = PixelLayout::Hwc;
        let kind = FieldKind::Pixels { height: 4, width: 5, channels: 1, layout };
        assert_eq!(opened(image).unwrap().schema().fields[0].kind, kind);
        let error = |fields: &[&str]| opened(with_fields(&path, fields)).unwrap_err();
        let e = error(&["nothing"]);
        assert!(e.kind() == ErrorKind::Config && e.message().contains("both, compact"), "{e}");
        let e = error(&["label", "short"]);
        assert!(e.message().contains("label has 10, short has 3"), "{e}");
        for bad in [&["train"][..], &["label/x"], &["train/y"], &["label", "label"], &[]] {
            assert_eq!(error(bad).kind(), ErrorKind::Config, "{bad:?}");
        }
    }
}

#[test]
fn rows_of_several_files_follow_each_other() {
    let folder = Folder::new();
    for (number, format) in FORMATS.iter().enumerate() {
        fs::copy(file(format), folder.0.join(format!("train-{number}.h5"))).unwrap();
        fs::copy(file(format), folder.0.join(format!("test-{number}.h5"))).unwrap();
    }
    fs::write(folder.0.join("README"), "").unwrap();
    let fields = ["gzip", "image", "label"];
    let split =
        |split: Option<&str>| Hdf5Spec { split: split.map(str::to_owned), ..with_fields(&folder.0, &fields) };
    let source = opened(split(Some("train"))).unwrap();
    conformance::check(&*source);
    assert_eq!((source.len(), opened(split(None)).unwrap().len()), (2 * ROWS, 4 * ROWS));
    assert_eq!(opened(split(Some("val"))).unwrap_err().kind(), ErrorKind::NotFound);
    let mut record = Record::default();
    for row in 0..2 * ROWS {
        source.fetch(row, &mut record).unwrap();
        for (name, value) in fields.iter().zip(&record.values) {
            assert_eq!(*value, expected(name, row % ROWS));
        }
    }
    let pattern = with_fields(&folder.0.join("t*-{0,1}.h5"), &["gzip"]);
    assert_eq!(opened(pattern).unwrap().len(), 4 * ROWS);
}

/// What a loader gives: rows of bytes, field by field.
fn loaded(dataset: Dataset, workers: usize) -> Vec<Vec<u8>> {
    let options = Options { num_workers: Auto::Fixed(workers), ..Options::default() };
    let loader = dataset.batch(3, false).with_options(options).loader().unwrap();
    let mut all: Vec<Vec<u8>> = Vec::new();
    for batch in loader.epoch().unwrap() {
        let batch = batch.unwrap();
        for (field, column) in batch.columns.iter().enumerate() {
            all.resize(all.len().max(field + 1), Vec::new());
            all[field].extend_from_slice(column.data.as_bytes().unwrap());
        }
    }
    all
}

#[test]
fn loaders_give_the_same_however_rows_are_reached() {
    let fields =
        ["image", "gzip", "sum", "lzf", "one", "plain", "grows", "across", "both", "some", "compact"];
    for format in FORMATS {
        let path = file(format);
        let wanted: Vec<Vec<u8>> = (fields.iter())
            .map(|name| {
                let rows = (0..ROWS).map(|row| match expected(name, row) {
                    Value::Bytes(bytes) => bytes,
                    other => panic!("{other:?}"),
                });
                rows.flatten().collect()
            })
            .collect();
        for workers in [1, 3] {
            // In order: rows are copied together.
            let source = opened(with_fields(&path, &fields)).unwrap();
            assert_eq!(loaded(Dataset::new(source), workers), wanted, "{format}");
            // Far away: by the I/O layer.
            let far = PathBuf::from(format!("delayed+file://{}?latency_ms=1", path.display()));
            let source = opened(with_fields(&far, &fields)).unwrap();
            conformance::check(&*source);
            assert_eq!(loaded(Dataset::new(source), workers), wanted, "{format}, delayed");
        }
    }
}

/// Opens the bytes of a file that may be damaged, and reads all of it. Gives the rows of a field, or where it ended.
fn all_of(
    folder: &Folder,
    bytes: &[u8],
    fields: Option<&[&str]>,
) -> wellfed::Result<Vec<Result<Vec<Value>, ErrorKind>>> {
    let path = folder.0.join("bad.h5");
    fs::write(&path, bytes).unwrap();
    let source = opened(fields.map_or_else(|| spec(&path), |fields| with_fields(&path, fields)))?;
    let mut record = Record::default();
    // Rows that a damaged shape has made up are not all read.
    let row = |row| source.fetch(row, &mut record).map(|()| record.values.clone()).map_err(|e| e.kind());
    Ok((0..source.len().min(2 * ROWS)).map(row).collect())
}

#[test]
fn a_file_that_was_cut_is_an_error() {
    let folder = Folder::new();
    for format in FORMATS {
        let whole = fs::read(file(format)).unwrap();
        for cut in (0..whole.len()).step_by(whole.len() / 97).chain(whole.len() - 3..whole.len()) {
            let e = all_of(&folder, &whole[..cut], None).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Corrupt, "{format} cut at {cut}: {e}");
        }
    }
}

/// Numbers that seem random, the same in every run.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn bytes_that_changed_are_no_panic() {
    let folder = Folder::new();
    let mut state = 0x9E37_79B9_7F4A_7C15;
    for format in FORMATS {
        let whole = fs::read(file(format)).unwrap();
        let mut found = 0;
        for _ in 0..1000 {
            let mut bad = whole.clone();
            for _ in 0..=random(&mut state) % 2 {
                let at = random(&mut state) as usize % bad.len();
                bad[at] = random(&mut state) as u8;
            }
            let rows = all_of(&folder, &bad, None);
            found += usize::from(rows.is_err_and(|e| e.kind() != ErrorKind::Internal));
        }
        assert!(found > 50, "only {found} of 1,000 were found in {format}");
    }
}

#[test]
fn with_checksums_no_change_is_silent() {
    let folder = Folder::new();
    let whole = fs::read(file("latest")).unwrap();
    let mut state = 0x1234_5678_9ABC_DEF1;
    for name in ["sum", "across", "grows"] {
        for _ in 0..400 {
            let mut bad = whole.clone();
            let at = random(&mut state) as usize % bad.len();
            bad[at] ^= (1 + random(&mut state) % 255) as u8;
            let Ok(rows) = all_of(&folder, &bad, Some(&[name])) else { continue };
            assert_eq!(rows.len() as u64, ROWS, "byte {at}");
            for (row, values) in (0..).zip(rows) {
                assert!(
                    values.is_err_and(|kind| kind == ErrorKind::Corrupt) || {
                        let source = opened(with_fields(&folder.0.join("bad.h5"), &[name])).unwrap();
                        let mut record = Record::default();
                        source.fetch(row, &mut record).unwrap();
                        record.values[0] == expected(name, row)
                    },
                    "row {row} of {name} changed with byte {at}"
                );
            }
        }
    }
}

#[test]
fn damage_of_a_chunk_is_named() {
    let folder = Folder::new();
    let mut bytes = fs::read(file("latest")).unwrap();
    let path = folder.0.join("bad.h5");
    fs::write(&path, &bytes).unwrap();
    let mut record = Record::default();
    opened(with_fields(&path, &["sum"])).unwrap().fetch(5, &mut record).unwrap();
    let at = record.offsets[0];
    bytes[at as usize + 5] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let source = opened(with_fields(&path, &["sum"])).unwrap();
    conformance::check(&*source);
    for row in 0..ROWS {
        match source.fetch(row, &mut record) {
            Ok(()) => assert!(!(4..8).contains(&row)),
            Err(e) => {
                assert!((4..8).contains(&row) && e.kind() == ErrorKind::Corrupt, "{e}");
                assert!(e.message().contains("chunk 1 of sum") && e.message().contains("checksum"), "{e}");
                assert_eq!(e.offset(), Some(at));
            }
        }
    }
}

#[test]
fn what_is_no_hdf5_file_says_so() {
    let folder = Folder::new();
    for (bytes, part) in
        [(&b""[..], "no HDF5 file"), (&[7; 3000], "no HDF5 file"), (b"\x89HDF\r\n\x1a\n", "superblock")]
    {
        let e = all_of(&folder, bytes, None).unwrap_err();
        assert!(e.kind() == ErrorKind::Corrupt && e.message().contains(part), "{e}");
    }
    // What a user put in front of it: addresses count from where it begins.
    for format in FORMATS {
        for before in [512, 2048] {
            let mut bytes = vec![0; before];
            bytes.extend(fs::read(file(format)).unwrap());
            let rows = all_of(&folder, &bytes, Some(&["gzip", "image", "plain"])).unwrap();
            assert!(
                rows.iter()
                    .zip(0..)
                    .all(|(values, row)| values.as_ref().unwrap()[0] == expected("gzip", row))
            );
            assert!(all_of(&folder, &bytes[..bytes.len() - 1], None).is_err());
        }
    }
    // Marked as open for writing, with a checksum that fits.
    let mut bytes = fs::read(file("latest")).unwrap();
    bytes[11] = 1;
    let sum = crate::checksum::lookup3(&bytes[..44]);
    bytes[44..48].copy_from_slice(&sum.to_le_bytes());
    let e = all_of(&folder, &bytes, None).unwrap_err();
    assert!(e.kind() == ErrorKind::Unsupported && e.message().contains("open for writing"), "{e}");
}

/// The chunks of a data set as they are stored.
pub(crate) struct Packed {
    pub(crate) filters: Vec<Filter>,
    /// Bytes of a chunk, unpacked.
    pub(crate) bytes: usize,
    /// Which filters were left out, and what is stored.
    pub(crate) chunks: Vec<(u32, Vec<u8>)>,
}

/// All data sets of the file that plugins wrote.
pub(crate) fn of_plugins() -> impl Iterator<Item = (String, Packed)> {
    let path = file("plugins");
    let source = opened(spec(&path)).unwrap();
    let names: Vec<String> = source.schema().fields.iter().map(|field| field.name.clone()).collect();
    names.into_iter().map(move |name| {
        let packed = stored(&path, &name);
        (name, packed)
    })
}

fn stored(path: &Path, name: &str) -> Packed {
    let (store, path) = (LocalStore::new(), path.to_str().unwrap());
    let file = File::open(&store, path, fs::metadata(path).unwrap().len()).unwrap();
    let dataset = dataset::Dataset::open(&file, &file.find(name).unwrap()).unwrap();
    let Storage::Chunked(chunks) = &dataset.storage else { panic!("{name}") };
    let all = (0..chunks.grid.iter().product()).filter_map(|number| chunks.get(number));
    let read = |chunk: Chunk| {
        let mut bytes = Vec::new();
        store.read_range(path, chunk.offset, chunk.size as usize, &mut bytes).unwrap();
        (chunk.mask, bytes)
    };
    Packed { bytes: chunks.bytes as usize, chunks: all.map(read).collect(), filters: dataset.filters }
}

fn undone(filters: &[Filter], mask: u32, chunk: usize, stored: &[u8]) -> wellfed::Result<Vec<u8>> {
    let mut into = Vec::new();
    let read = |packed: &mut Vec<u8>| {
        packed.extend_from_slice(stored);
        Ok(())
    };
    filters::undo(filters, mask, chunk, read, &mut into).map(|()| into)
}

#[test]
fn filters_of_plugins_are_undone() {
    let path = file("plugins");
    let source = opened(spec(&path)).unwrap();
    conformance::check(&*source);
    assert_eq!((source.len(), source.notes()), (ROWS, &[][..]));
    let fields = &source.schema().fields;
    assert_eq!(fields.len(), 51);
    let mut record = Record::default();
    for row in 0..ROWS {
        source.fetch(row, &mut record).unwrap();
        for (field, value) in fields.iter().zip(&record.values) {
            let FieldKind::Array { dtype, shape } = &field.kind else { panic!("{field:?}") };
            let count: u64 = shape.iter().map(|side| side.unwrap() as u64).product();
            let wanted = Value::Bytes(numbers(*dtype, row * count, count));
            assert_eq!(*value, wanted, "{} of row {row}", field.name);
        }
    }
}

#[test]
fn damage_behind_filters_of_plugins_is_no_panic() {
    let mut state = 0x0123_4567_89AB_CDEF;
    for (name, Packed { filters, bytes, chunks }) in of_plugins() {
        let (mask, whole) = &chunks[0];
        let wanted = undone(&filters, *mask, bytes, whole).unwrap();
        // Bytes of scaleoffset are more than its bits need.
        let same = |found: wellfed::Result<Vec<u8>>| match found {
            Ok(found) => name.starts_with("scaleoffset") && found == wanted,
            Err(e) => e.kind() == ErrorKind::Corrupt && e.message().contains(|c: char| c.is_ascii_digit()),
        };
        for cut in 0..whole.len() {
            let found = undone(&filters, *mask, bytes, &whole[..cut]);
            assert!(same(found.clone()), "{name} cut at {cut} of {}: {:?}", whole.len(), found.err());
        }
        for _ in 0..1000 {
            let mut bad = whole.clone();
            // Heads more often than their part of all.
            let among = if random(&mut state).is_multiple_of(3) { bad.len().min(24) } else { bad.len() };
            let at = random(&mut state) as usize % among;
            bad[at] ^= 1 << (random(&mut state) % 8);
            match undone(&filters, *mask, bytes, &bad) {
                Ok(found) => assert_eq!(found.len(), bytes),
                Err(e) => assert_eq!(e.kind(), ErrorKind::Corrupt, "{name}: {e}"),
            }
        }
        assert_eq!(undone(&filters, *mask, bytes, whole).unwrap(), wanted, "{name} after damage");
    }
}
