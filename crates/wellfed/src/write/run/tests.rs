use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering::SeqCst},
    },
};

use super::*;
use crate::{
    engine::ColumnData,
    plan::Auto,
    sample::{DType, FieldKind, PixelLayout, Record, Structure, Value},
    source::{
        ArrayData, ImageFolder, ImageFolderSpec, IndexMode, Pixels, RaggedData, Rows, Source, TensorSlices,
        WebDataset, WebDatasetSpec,
    },
    store::LocalStore,
    testing::TempFolder,
    transform::{CenterCrop, ImageDtype, RandomHorizontalFlip, ToDtype},
    write::{disk::Output, verify},
};

fn jpeg(width: u16, height: u16, seed: usize) -> Vec<u8> {
    let (rows, columns) = (usize::from(height), usize::from(width));
    let smooth = |i: usize| (i / 3 % columns * 5 + i / 3 / columns * 3 + i % 3 * 20 + seed * 7) % 200;
    let pixels: Vec<u8> = (0..rows * columns * 3).map(|i| smooth(i) as u8).collect();
    let mut bytes = Vec::new();
    let encoder = jpeg_encoder::Encoder::new(&mut bytes, 90);
    encoder.encode(&pixels, width, height, jpeg_encoder::ColorType::Rgb).unwrap();
    bytes
}

/// Three classes of photographs of several sizes; names with dots, of one stem, and too long for a plain header.
fn photos(count: usize) -> TempFolder {
    let folder = TempFolder::new();
    for i in 0..count {
        let class = ["cat", "dog", "gnu"][i % 3];
        let name = match i % 7 {
            0 => format!("{i}.v2"),
            1 => format!("{}{i}", "long".repeat(40)),
            2 => format!("größe {i}"),
            _ => i.to_string(),
        };
        folder.write(&format!("{class}/{name}.jpg"), &jpeg(16 + (i % 5) as u16 * 8, 24, i));
        if i == 3 {
            folder.write(&format!("{class}/{name}.png"), include_bytes!("../../../tests/images/rgba8.png"));
        }
    }
    folder
}

fn open(folder: &TempFolder) -> Dataset {
    let spec = ImageFolderSpec::new(folder.path());
    Dataset::new(Arc::new(ImageFolder::open(Arc::new(LocalStore::new()), spec).unwrap()))
}

fn options() -> WriteOptions {
    WriteOptions { max_bytes: Some(12_000), num_workers: Auto::Fixed(2), ..WriteOptions::default() }
}

fn place(folder: &TempFolder) -> String {
    folder.join("t-{}.tar")
}

fn written(dataset: &Dataset, to: &TempFolder, options: &WriteOptions) -> Written {
    write(dataset, &place(to), options, &Progress::new()).unwrap()
}

/// All files but indexes, which know the times of their shards.
fn files(folder: &TempFolder) -> BTreeMap<String, Vec<u8>> {
    let names = names_in(Path::new(folder.path())).unwrap();
    let names = names.into_iter().filter(|name| !name.ends_with(".wfidx"));
    names.map(|name| (name.clone(), fs::read(folder.join(&name)).unwrap())).collect()
}

fn shards(folder: &TempFolder, fields: Option<&[&str]>) -> WebDataset {
    let fields = fields.map(|fields| fields.iter().map(|field| (*field).to_owned()).collect());
    let spec =
        WebDatasetSpec { fields, index: IndexMode::Sidecar, ..WebDatasetSpec::new(folder.join("*.tar")) };
    WebDataset::open(Arc::new(LocalStore::new()), spec).unwrap()
}

fn values(source: &dyn Source, index: u64) -> Vec<Value> {
    let mut record = Record::default();
    source.fetch(index, &mut record).unwrap();
    record.values
}

#[test]
fn samples_come_back_as_they_were_whatever_the_number_of_threads() {
    let data = photos(40);
    for dataset in [open(&data), open(&data).shuffle(7), open(&data).shuffle(1).skip(3).take(30)] {
        let mut all = Vec::new();
        for threads in [1, 2, 8] {
            let to = TempFolder::new();
            let made =
                written(&dataset, &to, &WriteOptions { num_workers: Auto::Fixed(threads), ..options() });
            assert!(made.shards > 3 && made.skipped.is_empty() && made.shards_before == 0, "{made:?}");
            all.push((files(&to), to));
        }
        assert!(all.windows(2).all(|pair| pair[0].0 == pair[1].0));
        let (source, back) = (dataset.source(), shards(&all[0].1, Some(&["jpg;png", "cls", "__key__"])));
        let order = dataset.sequence().unwrap();
        assert_eq!(Some(back.len()), dataset.len().unwrap());
        let mut keys = std::collections::HashSet::new();
        for position in 0..back.len() {
            let pick = order.batch(0, 0, position).unwrap()[0][0];
            let (there, here) = (values(&**source, pick.index), values(&back, position));
            assert_eq!(here[..2], there[..2], "sample {position}");
            let Value::Bytes(key) = &here[2] else { panic!() };
            let key = String::from_utf8(key.clone()).unwrap();
            let stem = source.key(pick.index).rsplit_once('.').unwrap().0.replace(".v2", "_v2");
            assert_eq!(key.trim_end_matches("~1"), stem);
            keys.insert(key);
        }
        assert!(keys.len() as u64 >= back.len() - 1, "only one stem is there twice, in one shard or in two");
        let sizes = all[0].0.iter().filter(|(name, _)| name.ends_with(".tar")).map(|(_, bytes)| bytes.len());
        assert!(sizes.max().unwrap() <= 12_000);
        // Indexes are those that readers would make.
        let index = fs::read(all[0].1.join("t-000000.tar.wfidx"));
        assert!(index.unwrap().starts_with(b"wellfed-tar\n"));
        let manifest = Manifest::load(Path::new(&all[0].1.join("t.manifest.json")));
        let manifest = manifest.unwrap().unwrap();
        assert_eq!(manifest.classes.as_deref().unwrap(), ["cat", "dog", "gnu"]);
    }
}

/// A disk on which everything fails from the `left`-th step on.
struct Failing {
    left: Arc<AtomicI64>,
    steps: AtomicU64,
}

impl Failing {
    fn new(left: i64) -> Self {
        Self { left: Arc::new(AtomicI64::new(left)), steps: AtomicU64::new(0) }
    }

    fn step(&self) -> io::Result<()> {
        self.steps.fetch_add(1, SeqCst);
        step(&self.left)
    }
}

fn step(left: &AtomicI64) -> io::Result<()> {
    if left.fetch_sub(1, SeqCst) > 0 { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
}

struct FailingFile(Box<dyn Output>, Arc<AtomicI64>);

impl Output for FailingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Err(e) = step(&self.1) {
            // Part of it is there already.
            self.0.write(&bytes[..bytes.len() / 2])?;
            return Err(e);
        }
        self.0.write(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        step(&self.1)?;
        self.0.sync()
    }
}

impl Disk for Failing {
    fn create(&self, path: &Path) -> io::Result<Box<dyn Output>> {
        self.step()?;
        Ok(Box::new(FailingFile(LocalDisk.create(path)?, self.left.clone())))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step()?;
        LocalDisk.rename(from, to)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        LocalDisk.sync_folder(path)
    }

    fn remove(&self, path: &Path) {
        LocalDisk.remove(path);
    }
}

/// Those that need no other crate.
const FORMATS: [Format; 3] = [Format::Tar, Format::Tfrecord, Format::Mds];

#[test]
fn a_full_disk_at_any_step_leaves_nothing_half_written_and_is_gone_on_from() {
    let data = photos(16);
    let dataset = open(&data).shuffle(3);
    for format in FORMATS {
        let base = TempFolder::new();
        let options = WriteOptions { format: Some(format), max_samples: Some(5), ..options() };
        let run = |disk: &dyn Disk, name: &str| {
            write_on(disk, &dataset, &base.join(name), &options, &Progress::new())
        };
        let files = |name: &str| -> BTreeMap<String, Vec<u8>> {
            let folder = base.join(name);
            let names = names_in(Path::new(&folder)).unwrap_or_default();
            let names = names.into_iter().filter(|name| !name.ends_with(".wfidx"));
            names
                .map(|file| (file.replace(name, "t"), fs::read(format!("{folder}/{file}")).unwrap()))
                .collect()
        };
        let plenty = Failing::new(i64::MAX);
        run(&plenty, "qwholeq").unwrap();
        let whole = files("qwholeq");
        let steps = i64::MAX - plenty.left.load(SeqCst);
        assert!(steps > 20 && whole.len() > 3, "{steps} steps");
        for left in 0..steps {
            let name = format!("q{left}q");
            let e = run(&Failing::new(left), &name).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Io, "at {left}: {e}");
            assert!(e.message().contains("cannot write") && e.hint().unwrap().contains("make room"), "{e}");
            for (file, bytes) in files(&name) {
                assert!(!file.starts_with('.'), "{file} is left at {left}");
                if file.ends_with(format.ending()) {
                    assert_eq!(Some(&bytes), whole.get(&file), "at {left}");
                }
            }
            run(&LocalDisk, &name).unwrap();
            // Names of shards are those of folders, and so are those in manifests.
            let named = |files: BTreeMap<String, Vec<u8>>, name: &str| -> BTreeMap<String, Vec<u8>> {
                let rename = |(file, bytes): (String, Vec<u8>)| match String::from_utf8(bytes) {
                    Ok(text) => (file, text.replace(name, "").into_bytes()),
                    Err(e) => (file, e.into_bytes()),
                };
                files.into_iter().map(rename).collect()
            };
            assert_eq!(named(files(&name), &name), named(whole.clone(), "qwholeq"), "after {left}");
        }
    }
}

/// What [`write`] made in a folder, by the source that reads it.
fn reader(format: Format, written: &Written) -> Arc<dyn Source> {
    let store = Arc::new(LocalStore::new());
    match format {
        Format::Tfrecord => {
            let feature = |name: &str, dtype, form| crate::source::FeatureSpec {
                name: name.into(),
                key: None,
                dtype,
                form,
                default: None,
            };
            use crate::source::{FeatureForm::*, FeatureType::*};
            let features = vec![
                feature("image", Image, FixedLen(vec![])),
                feature("label", Int64, FixedLen(vec![])),
                feature("weight", Float32, FixedLen(vec![])),
                feature("points", Float32, FixedLen(vec![2, 3])),
                feature("tokens", Int64, VarLen),
            ];
            let spec = crate::source::TfRecordSpec {
                features: Some(features),
                ..crate::source::TfRecordSpec::new(&written.urls)
            };
            Arc::new(crate::source::TfRecord::open(store, spec).unwrap())
        }
        _ => Arc::new(crate::source::Mds::open(store, crate::source::MdsSpec::new(&written.urls)).unwrap()),
    }
}

#[test]
fn records_and_mds_shards_hold_what_the_source_has() {
    let offsets: Vec<i64> = (0..31)
        .map(|i| i * (i + 1) / 2 % 97 + i * 97)
        .scan(0, |end, length| {
            *end += length % 5;
            Some(*end)
        })
        .collect();
    let count = offsets[29] as usize;
    let ends: Vec<u8> =
        std::iter::once(0).chain(offsets[..30].iter().copied()).flat_map(i64::to_ne_bytes).collect();
    let ends = ArrayData::from_vec(ends, DType::Int64, vec![31]).unwrap();
    let fields: Vec<(String, Rows, Pixels)> = vec![
        ("image".to_owned(), array(DType::UInt8, &[30, 5, 4, 3]).into(), Pixels::Hwc),
        ("label".to_owned(), array(DType::Int64, &[30]).into(), Pixels::Never),
        ("weight".to_owned(), array(DType::Float32, &[30]).into(), Pixels::Never),
        ("points".to_owned(), array(DType::Float32, &[30, 2, 3]).into(), Pixels::Never),
        (
            "tokens".to_owned(),
            RaggedData::new(array(DType::Int64, &[count]), ends).unwrap().into(),
            Pixels::Never,
        ),
    ];
    let source = Arc::new(
        TensorSlices::new(fields, Structure::Tuple((0..5).map(Structure::Field).collect())).unwrap(),
    );
    let dataset = Dataset::new(source.clone()).shuffle(3);
    let order = dataset.sequence().unwrap();
    for format in [Format::Tfrecord, Format::Mds] {
        let mut all = Vec::new();
        for threads in [1, 8] {
            let to = TempFolder::new();
            let options = WriteOptions {
                format: Some(format),
                max_bytes: Some(2_500),
                num_workers: Auto::Fixed(threads),
                ..options()
            };
            let to_there = to.join("t");
            let made = write(&dataset, &to_there, &options, &Progress::new()).unwrap();
            assert!(made.shards > 2 && made.samples == 30, "{made:?}");
            let back = reader(format, &made);
            assert_eq!(back.len(), 30);
            for position in 0..30 {
                let index = order.batch(0, 0, position).unwrap()[0][0].index;
                let found = values(&*back, position);
                let there = |field| source.resident(index, field).unwrap();
                assert_eq!(found[1], Value::Int(i64::from_ne_bytes(there(1).try_into().unwrap())));
                for field in [2, 3, 4] {
                    assert_eq!(
                        found[field],
                        Value::Bytes(there(field).to_vec()),
                        "{format:?} {position} {field}"
                    );
                }
                let Value::Bytes(png) = &found[0] else { panic!() };
                let mut image = wellfed_kernels::image::Image::new();
                let (limits, scratch) = (crate::Limits::default(), &mut crate::codec::Scratch::default());
                let request = crate::codec::Request::default();
                crate::codec::decode_image(png, &request, &limits, scratch, &mut image).unwrap();
                assert_eq!(image.pixels(), there(0));
            }
            let found = verify(&to_there, true, 2, &Progress::new()).unwrap();
            assert_eq!((found.samples, found.problems), (30, vec![]));
            let names = names_in(Path::new(&to_there)).unwrap().into_iter();
            let names = names.filter(|name| !name.ends_with(".wfidx"));
            let files: BTreeMap<String, Vec<u8>> =
                names.map(|name| (name.clone(), fs::read(format!("{to_there}/{name}")).unwrap())).collect();
            assert!(
                files
                    .iter()
                    .filter(|(name, _)| name.ends_with(format.ending()))
                    .all(|(_, f)| f.len() <= 2_500)
            );
            all.push((files, to));
        }
        assert_eq!(all[0].0, all[1].0);
        // A shard that was taken away is made again, and what follows it.
        let (files, to) = &all[1];
        let shard = files.keys().filter(|name| name.ends_with(format.ending())).nth(1).unwrap();
        fs::remove_file(to.join(&format!("t/{shard}"))).unwrap();
        let options = WriteOptions { format: Some(format), max_bytes: Some(2_500), ..options() };
        let again = write(&dataset, &to.join("t"), &options, &Progress::new()).unwrap();
        assert_eq!(again.shards_before, 1);
        assert_eq!(&fs::read(to.join(&format!("t/{shard}"))).unwrap(), &files[shard]);
        // Flips and cuts are found.
        let path = to.join(&format!("t/{shard}"));
        for at in (0..files[shard].len()).step_by(61) {
            let mut bad = files[shard].clone();
            bad[at] ^= 1 << (at % 8);
            fs::write(&path, &bad).unwrap();
            let found = verify(&to.join("t"), true, 1, &Progress::new()).unwrap().problems;
            assert!(!found.is_empty() && found.iter().all(|p| p.path == path), "byte {at}: {found:?}");
        }
        for len in [0, 1, files[shard].len() / 2, files[shard].len() - 1] {
            fs::write(&path, &files[shard][..len]).unwrap();
            assert!(!verify(&to.join("t"), false, 1, &Progress::new()).unwrap().problems.is_empty(), "{len}");
        }
    }
}

#[test]
fn what_a_format_cannot_hold_is_refused_before_anything_is_written() {
    let one = |name: &str, data: ArrayData| {
        Dataset::new(Arc::new(
            TensorSlices::new(vec![(name.to_owned(), data, Pixels::Never)], Structure::Field(0)).unwrap(),
        ))
    };
    let to = TempFolder::new();
    let folder = to.join("new");
    let refused = |dataset: &Dataset, options: WriteOptions| {
        let e = write(dataset, &folder, &options, &Progress::new()).unwrap_err();
        assert!(!Path::new(&folder).exists(), "{e}");
        (e.kind(), e.message().to_owned())
    };
    let with = |format| WriteOptions { format: Some(format), ..options() };
    let doubles = one("x", array(DType::Float64, &[4]));
    let (kind, message) = refused(&doubles, with(Format::Tfrecord));
    assert!(kind == ErrorKind::Config && message.contains("32 bits"), "{message}");
    let huge = ArrayData::from_vec(u64::MAX.to_ne_bytes().to_vec(), DType::UInt64, vec![1]).unwrap();
    let (kind, message) = refused(&one("x", huge), with(Format::Tfrecord));
    assert!(kind == ErrorKind::Unsupported && message.contains("int64_list"), "{message}");
    let (_, message) = refused(&doubles, with(Format::Parquet));
    assert!(message.contains("writes no tables"), "{message}");
    for (wrong, said) in [
        (WriteOptions { packed: true, ..with(Format::Mds) }, "tar shards only"),
        (WriteOptions { row_group_size: Some(3), ..with(Format::Tar) }, "row groups"),
        (WriteOptions { max_bytes: Some(1 << 33), ..with(Format::Mds) }, "at most"),
    ] {
        let (kind, message) = refused(&doubles, wrong);
        assert!(kind == ErrorKind::Config && message.contains(said), "{message}");
    }
    // An index of others is not written over.
    let there = to.join("there");
    fs::create_dir(&there).unwrap();
    fs::write(format!("{there}/index.json"), "{}").unwrap();
    let e = write(&doubles, &there, &with(Format::Mds), &Progress::new()).unwrap_err();
    assert!(e.message().contains("index.json is there already"), "{e}");
    assert_eq!(fs::read(format!("{there}/index.json")).unwrap(), b"{}");
}

#[test]
fn what_was_stopped_goes_on_behind_the_finished_shards() {
    let data = photos(60);
    let dataset = open(&data).shuffle(5);
    let whole = TempFolder::new();
    write(&dataset, &place(&whole), &options(), &Progress::new()).unwrap();
    let mut before = Vec::new();
    for stop_at in [1, 11, 29, 59] {
        let to = TempFolder::new();
        let progress = Progress::new();
        let result = thread::scope(|scope| {
            scope.spawn(|| {
                while progress.now().samples < stop_at {
                    thread::yield_now();
                }
                progress.stop();
            });
            write(&dataset, &place(&to), &options(), &progress)
        });
        if let Err(e) = result {
            assert!(e.kind() == ErrorKind::State && e.message().contains("of 61 samples"), "{e}");
        }
        assert!(files(&to).keys().all(|name| !name.starts_with('.')));
        let again = write(&dataset, &place(&to), &options(), &Progress::new()).unwrap();
        before.push(again.shards_before);
        assert_eq!(files(&to), files(&whole));
        // Nothing is left to do, and nothing is done.
        let once_more = write(&dataset, &place(&to), &options(), &Progress::new()).unwrap();
        assert_eq!((once_more.shards_before, once_more.samples), (once_more.shards, 61));
        // A shard that was taken away is made again, and what follows it.
        fs::remove_file(to.join("t-000001.tar")).unwrap();
        let again = write(&dataset, &place(&to), &options(), &Progress::new()).unwrap();
        assert_eq!((again.shards_before, files(&to)), (1, files(&whole)));
    }
    assert!(before.iter().any(|count| *count > 0), "{before:?}");
}

#[test]
fn bad_samples_end_it_or_are_left_out_and_listed() {
    let data = photos(20);
    data.write("dog/cut.jpg", &jpeg(40, 40, 1)[..10]);
    data.write("cat/page.png", b"<html>");
    let dataset = open(&data);
    let to = TempFolder::new();
    let e = write(&dataset, to.path(), &options(), &Progress::new()).unwrap_err();
    assert!(e.key().is_some_and(|key| key == "cat/page.png") && e.message().contains("web page"), "{e}");
    let skip = WriteOptions { on_error: OnError::Skip, ..options() };
    let mut all = Vec::new();
    for threads in [1, 8] {
        let to = TempFolder::new();
        let made =
            written(&dataset, &to, &WriteOptions { num_workers: Auto::Fixed(threads), ..skip.clone() });
        let keys: Vec<&str> = made.skipped.iter().map(|skipped| &*skipped.key).collect();
        assert_eq!((keys, made.samples), (vec!["cat/page.png", "dog/cut.jpg"], 21));
        let found = verify(to.path(), true, 2, &Progress::new()).unwrap();
        assert_eq!((found.samples, found.skipped, found.problems), (21, 2, vec![]));
        // A run that would have ended there does not go on silently.
        let e = write(&dataset, &place(&to), &options(), &Progress::new()).unwrap_err();
        assert!(e.message().contains("lists 2 samples that were left out"), "{e}");
        all.push(files(&to));
    }
    assert_eq!(all[0], all[1]);
}

#[test]
fn any_flip_and_any_cut_is_found() {
    let data = photos(8);
    let to = TempFolder::new();
    let made = write(
        &open(&data),
        &place(&to),
        &WriteOptions { max_samples: Some(5), max_bytes: Some(1 << 20), ..options() },
        &Progress::new(),
    );
    assert_eq!(made.unwrap().shards, 2);
    let problems = || verify(to.path(), true, 2, &Progress::new()).unwrap().problems;
    assert_eq!(problems(), []);
    let path = to.join("t-000001.tar");
    let good = fs::read(&path).unwrap();
    for at in (0..good.len()).step_by(97) {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        fs::write(&path, &bad).unwrap();
        let found = problems();
        assert!(!found.is_empty() && found.iter().all(|p| p.path == path), "byte {at}: {found:?}");
    }
    for len in [0, 1, 512, good.len() - 1024, good.len() - 1] {
        fs::write(&path, &good[..len]).unwrap();
        assert!(!problems().is_empty(), "{len} bytes");
    }
    fs::remove_file(&path).unwrap();
    assert!(problems()[0].message.contains("cannot"), "{:?}", problems());
    fs::write(&path, &good).unwrap();
    fs::write(to.join("t-000002.tar"), &good).unwrap();
    assert!(problems()[0].message.contains("t-000002.tar lies beside it"), "{:?}", problems());
    assert!(verify(&to.join("none"), true, 1, &Progress::new()).is_err());
}

fn array(dtype: DType, shape: &[usize]) -> ArrayData {
    let size = shape.iter().product::<usize>() * dtype.size();
    ArrayData::from_vec((0..size).map(|i| (i * 7 % 120) as u8).collect(), dtype, shape.to_vec()).unwrap()
}

#[test]
fn arrays_pixels_and_numbers_come_back_with_their_kinds() {
    let fields = vec![
        ("image".to_owned(), array(DType::UInt8, &[9, 5, 4, 3]), Pixels::Hwc),
        ("label".to_owned(), array(DType::Int64, &[9]), Pixels::Never),
        ("weight".to_owned(), array(DType::Float32, &[9]), Pixels::Never),
        ("points".to_owned(), array(DType::Float64, &[9, 2, 3]), Pixels::Never),
        ("chw".to_owned(), array(DType::UInt8, &[9, 3, 4, 5]), Pixels::Chw),
    ];
    let structure = Structure::Tuple((0..5).map(Structure::Field).collect());
    let source = Arc::new(TensorSlices::new(fields, structure).unwrap());
    let to = TempFolder::new();
    written(&Dataset::new(source.clone()), &to, &options());
    let back = shards(&to, Some(&["png", "cls", "weight.npy", "points.npy", "chw.png", "__key__"]));
    assert_eq!(back.schema().fields[2].kind, FieldKind::array(DType::Float32, &[]));
    assert_eq!(back.schema().fields[3].kind, FieldKind::array(DType::Float64, &[2, 3]));
    for index in 0..9 {
        let found = values(&back, index);
        for (field, layout) in [(0, PixelLayout::Hwc), (4, PixelLayout::Chw)] {
            let Value::Bytes(png) = &found[field] else { panic!() };
            let mut image = wellfed_kernels::image::Image::new();
            let request = crate::codec::Request::default();
            let (limits, scratch) = (crate::Limits::default(), &mut crate::codec::Scratch::default());
            crate::codec::decode_image(png, &request, &limits, scratch, &mut image).unwrap();
            let mut stored = source.resident(index, field).unwrap().to_vec();
            if layout == PixelLayout::Chw {
                let plane = stored.len() / 3;
                stored = (0..stored.len()).map(|i| stored[i % 3 * plane + i / 3]).collect();
            }
            assert_eq!(image.pixels(), stored);
        }
        let label = i64::from_ne_bytes(source.resident(index, 1).unwrap().try_into().unwrap());
        assert_eq!(found[1], Value::Int(label));
        for field in [2, 3] {
            assert_eq!(found[field], Value::Bytes(source.resident(index, field).unwrap().to_vec()));
        }
        assert_eq!(found[5], Value::Bytes(index.to_string().into_bytes()));
    }
    let found = verify(to.path(), true, 1, &Progress::new()).unwrap();
    assert_eq!((found.samples, found.problems), (9, vec![]));
}

#[test]
fn rows_of_any_length_are_arrays_of_their_own() {
    let offsets = [0_i64, 4, 4, 10].into_iter().flat_map(i64::to_ne_bytes).collect();
    let offsets = ArrayData::from_vec(offsets, DType::Int64, vec![4]).unwrap();
    let ragged = RaggedData::new(array(DType::Int32, &[10]), offsets).unwrap();
    let fields = vec![("tokens".to_owned(), ragged, Pixels::Never)];
    let source = TensorSlices::new(fields, Structure::Field(0)).unwrap();
    let to = TempFolder::new();
    written(&Dataset::new(Arc::new(source)), &to, &options());
    let all = files(&to);
    let tar = &all["t-000000.tar"];
    let header = |n: usize| String::from_utf8_lossy(&tar[512 + n * 1024..][..128]).into_owned();
    assert!(header(0).contains("'<i4'") && header(0).contains("(4,)"), "{}", header(0));
    assert!(header(1).contains("(0,)") && header(2).contains("(6,)"));
}

#[test]
fn transforms_are_written_as_what_they_make() {
    let data = photos(12);
    let dataset = open(&data).shuffle(2);
    let cropped = dataset.map([CenterCrop::new(16).into(), RandomHorizontalFlip::default().into()]);
    let to = TempFolder::new();
    written(&cropped, &to, &options());
    let back = Dataset::new(Arc::new(shards(&to, Some(&["jpg;png", "cls"]))));
    let packed = TempFolder::new();
    written(&cropped, &packed, &WriteOptions { packed: true, ..options() });
    let packed = Dataset::new(Arc::new(shards(&packed, None)));
    assert_eq!(packed.output().unwrap().names, ["__key__", "jpg", "cls"]);
    for position in 0..13 {
        let pixels = |dataset: &Dataset, column: usize| {
            let batch = dataset.sampler().element(position, 0).unwrap();
            let ColumnData::Array { shape, .. } = &batch.columns[column].data else { panic!() };
            assert_eq!(shape, &[3, 16, 16]);
            batch.columns[column].data.as_bytes().unwrap().to_vec()
        };
        let (made, stored, of_packed) = (pixels(&cropped, 0), pixels(&back, 0), pixels(&packed, 1));
        assert_eq!(stored, of_packed);
        let apart: u64 = made.iter().zip(&stored).map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
        assert!(apart / made.len() as u64 <= 30, "{apart} in sample {position}");
    }
    // No 8-bit image any more: an array.
    let float =
        dataset.map([CenterCrop::new(16).into(), ToDtype::new(ImageDtype::Float32).scale(true).into()]);
    let to = TempFolder::new();
    written(&float, &to, &options());
    assert_eq!(
        shards(&to, Some(&["npy"])).schema().fields[0].kind,
        FieldKind::array(DType::Float32, &[3, 16, 16])
    );
}

#[test]
fn several_sources_are_one_sample() {
    let data = photos(6);
    let numbers = array(DType::Int64, &[7, 2]);
    let source =
        TensorSlices::new(vec![("extra".to_owned(), numbers, Pixels::Never)], Structure::Field(0)).unwrap();
    let both = Dataset::zip(&[open(&data), Dataset::new(Arc::new(source))]).unwrap().enumerate(10);
    let to = TempFolder::new();
    written(&both, &to, &options());
    let names = both.output().unwrap().names;
    let back = shards(&to, None);
    let found: Vec<&str> = back.schema().fields.iter().map(|field| &*field.name).collect();
    assert_eq!(found.len(), names.len() + 1, "{found:?} of {names:?}");
    assert!(back.key(0).contains("cat/0_v2"), "{}", back.key(0));
    let twice = open(&data).repeat(Some(2));
    let to = TempFolder::new();
    assert_eq!(written(&twice, &to, &options()).samples, 14);
    assert_eq!(shards(&to, Some(&["cls"])).len(), 14);
}

#[test]
fn what_cannot_be_written_is_said_before_anything_is() {
    let data = photos(5);
    let dataset = open(&data);
    let to = TempFolder::new();
    let folder = to.join("new");
    let refuse = |dataset: &Dataset, options: &WriteOptions| {
        let e = write(dataset, &folder, options, &Progress::new()).unwrap_err();
        assert!(e.kind() == ErrorKind::Config && !Path::new(&folder).exists(), "{e}");
        e.message().to_owned()
    };
    assert!(refuse(&dataset.batch(2, false), &options()).contains("batches"));
    assert!(refuse(&dataset.repeat(None), &options()).contains("without end"));
    assert!(refuse(&dataset.take(0), &options()).contains("no samples"));
    for wrong in [
        WriteOptions { quality: Some(0), ..options() },
        WriteOptions { max_bytes: Some(0), ..options() },
        WriteOptions { max_samples: Some(0), ..options() },
        WriteOptions { resize_shorter: Some(0), ..options() },
        WriteOptions { on_error: OnError::Replace, ..options() },
    ] {
        refuse(&dataset, &wrong);
    }
    // Shards of others, of other samples or options.
    let place = to.join("there/t-{}.tar");
    write(&dataset, &place, &options(), &Progress::new()).unwrap();
    let again = |dataset: &Dataset, options: &WriteOptions| {
        write(dataset, &place, options, &Progress::new()).unwrap_err().message().to_owned()
    };
    assert!(again(&dataset.shuffle(1), &options()).contains("another pipeline"));
    assert!(again(&dataset.shard(1, 2), &options()).contains("another pipeline"));
    assert!(again(&dataset, &WriteOptions { quality: Some(9), ..options() }).contains("other"));
    fs::remove_file(to.join("there/t.manifest.json")).unwrap();
    assert!(again(&dataset, &options()).contains("is there already"));
    let e = write(&dataset, "s3://bucket/x", &options(), &Progress::new()).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Config);
}

#[test]
fn two_writers_of_one_place_are_refused() {
    let data = photos(3);
    let to = TempFolder::new();
    let held = Folder::open(&Place::parse(&place(&to), None).unwrap().0).unwrap();
    let e = write(&open(&data), &place(&to), &options(), &Progress::new()).unwrap_err();
    assert!(e.message().contains("another process is writing"), "{e}");
    drop(held);
    written(&open(&data), &to, &options());
}
