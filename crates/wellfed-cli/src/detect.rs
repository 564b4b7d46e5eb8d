//! Finds out what kind of data set a path is, from names, and of TFRecords that have none from the first bytes.

use std::{path::PathBuf, sync::Arc};

use wellfed::{
    Error, ErrorKind, Result,
    source::{
        AUDIO_EXTENSIONS, ArrayFilesSpec, ArrayFormat, BetonSpec, Cifar10Spec, Cifar100Label, Cifar100Spec,
        CsvSpec, FeatureForm, FeatureSpec, FeatureType, FoundFeature, Hdf5Spec, IMG_EXTENSIONS,
        ImageFolderSpec, JsonLinesSpec, Labels, LitDataSpec, LmdbSpec, MdsSpec, MnistSpec, Pixels, Source,
        SourceSpec, TableFormat, TableSpec, TfRecord, TfRecordSpec, WebDatasetSpec,
    },
    store::{EntryKind, LocalStore, RetryingStore, Store, glob, join, listing, registry, secrets, zip},
};

/// An open data set and what it is.
#[derive(Debug)]
pub(crate) struct Detected {
    /// The samples.
    pub(crate) source: Arc<dyn Source>,
    /// `image_folder`, `flat_folder`, `audio_folder`, `flat_audio_folder`, `glob`, `webdataset`, `tfrecord`, `parquet`, `arrow`, `csv`, `jsonl`, `npy`,
    /// `npz`, `hdf5`, `mds`, `litdata`, `lmdb`, `beton`, `cifar10`, `cifar100` or `mnist`.
    pub(crate) format: &'static str,
    /// Of TFRecords: the features of the first record.
    pub(crate) features: Vec<FoundFeature>,
}

/// Opens what lies at `path`.
///
/// # Errors
/// [`ErrorKind::NotFound`] if there is nothing, or nothing that is known; else those of opening the source.
pub(crate) fn open(path: &str) -> Result<Detected> {
    open_with(path, None)
}

/// The same, with a folder that compressed shards and records are unpacked into.
pub(crate) fn open_with(path: &str, unpack_to: Option<PathBuf>) -> Result<Detected> {
    let local: Arc<dyn Store> = Arc::new(LocalStore::new());
    // `::` stands between several URLs, and names shards by itself.
    let first = path.split("::").next().unwrap_or(path);
    // A pattern of archives is no archive.
    let archive = !glob::has_magic(path) && !path.contains(['{', '}']);
    let located = if archive { zip::locate(first, &local) } else { registry::locate(first, &local) };
    let store = RetryingStore::around(located?.store);
    let (format, mut spec) = detect(&*store, path)?;
    if let SourceSpec::Webdataset(WebDatasetSpec { unpack_to: of, .. })
    | SourceSpec::Tfrecord(TfRecordSpec { unpack_to: of, .. }) = &mut spec
    {
        *of = unpack_to;
    }
    if let SourceSpec::Tfrecord(spec) = spec {
        return open_records(TfRecord::open(local, spec)?, format);
    }
    match spec.open(local) {
        Err(error) if format == "glob" && error.kind() == ErrorKind::NotFound => {
            Err(Error::new(ErrorKind::NotFound, format!("no file matches {}", secrets::shown(path)))
                .with_hint("* stands for names within a folder, ** for folders of any depth"))
        }
        opened => Ok(Detected { source: opened?, format, features: Vec::new() }),
    }
}

/// Records with their image and label, if the first one has them; else as bytes.
fn open_records(records: TfRecord, format: &'static str) -> Result<Detected> {
    let features = records.features_of_first();
    let of = |dtype, named: &dyn Fn(&str) -> bool| {
        let found = features.iter().find(|feature| feature.single == Some(dtype) && named(&feature.name))?;
        let (name, form) = (found.name.clone(), FeatureForm::FixedLen(Vec::new()));
        Some(FeatureSpec { name, key: None, dtype, form, default: None })
    };
    let is_label = |name: &str| name.rsplit('/').next() == Some("label");
    let source: Arc<dyn Source> = match of(FeatureType::Image, &|_| true) {
        Some(image) => {
            let label = of(FeatureType::Int64, &is_label);
            Arc::new(records.with_features([image].into_iter().chain(label).collect())?)
        }
        None => Arc::new(records),
    };
    Ok(Detected { source, format, features })
}

/// What lies at `path`, a path or URL whose store is `store`.
fn detect(store: &dyn Store, path: &str) -> Result<(&'static str, SourceSpec)> {
    // Options of a URL belong to what is opened, not to what is looked at.
    let (path, options) = if path.contains("::") { (path, "") } else { secrets::split(path) };
    let whole = |path: &str| secrets::with_options(path, options);
    let images = |root: &str, labels| {
        let root = whole(root);
        SourceSpec::ImageFolder(ImageFolderSpec { labels, allow_empty: false, ..ImageFolderSpec::new(root) })
    };
    let sounds = |root: &str, labels| {
        let root = whole(root);
        SourceSpec::AudioFolder(ImageFolderSpec { labels, allow_empty: false, ..ImageFolderSpec::new(root) })
    };
    let records = |urls: Vec<String>| {
        let urls = urls.iter().map(|url| whole(url)).collect();
        ("tfrecord", SourceSpec::Tfrecord(TfRecordSpec { urls, ..TfRecordSpec::new("") }))
    };
    let table = |format: TableFormat, url: String| {
        let tabs = format == TableFormat::Csv && is_tsv(&secrets::shown(&url));
        let csv = tabs.then(|| CsvSpec { delimiter: '\t', ..CsvSpec::default() });
        (format.name(), SourceSpec::Table(Box::new(TableSpec { csv, ..TableSpec::new(format, url) })))
    };
    if !store.is_folder(path) {
        if let Some(format) = table_format(&secrets::shown(path)) {
            return Ok(table(format, whole(path)));
        }
        if is_tfrecord(&secrets::shown(path)) {
            return Ok(records(vec![path.to_owned()]));
        }
        if is_jsonl(&secrets::shown(path)) {
            return Ok(("jsonl", SourceSpec::Jsonl(JsonLinesSpec::new(whole(path)))));
        }
        if let Some((name, format)) = arrays(&secrets::shown(path)) {
            let spec = ArrayFilesSpec { urls: vec![whole(path)], format, pixels: Pixels::Infer };
            return Ok((name, SourceSpec::ArrayFiles(spec)));
        }
        if is_hdf5(&secrets::shown(path)) {
            return Ok(("hdf5", SourceSpec::Hdf5(Hdf5Spec::new(whole(path)))));
        }
        if secrets::shown(path).ends_with(".beton") {
            return Ok(("beton", SourceSpec::Beton(BetonSpec::new(whole(path)))));
        }
        if is_lmdb(&secrets::shown(path)) {
            return Ok(("lmdb", SourceSpec::Lmdb(LmdbSpec::new(whole(path)))));
        }
        if path.ends_with("/index.json") {
            return Ok(("mds", SourceSpec::Mds(MdsSpec::new(whole(path)))));
        }
        let shards = || is_tar(&secrets::shown(path)) || zip::is_zip(&secrets::shown(path));
        if path.contains(['{', '}']) || path.contains("::") || shards() {
            return Ok(("webdataset", SourceSpec::Webdataset(WebDatasetSpec::new(whole(path)))));
        }
        if glob::has_magic(path) {
            // TFRecords often have no extension: then the first match is looked into, unless names say what it is.
            // What cannot be listed says so when it is opened.
            let found = glob::files(store, path).unwrap_or_default();
            let first = found.iter().flat_map(|l| l.files.iter().map(|name| join(&l.path, name))).next();
            return Ok(match first.filter(|first| !is_image(first) && TfRecord::begins(store, first)) {
                Some(_) => records(vec![path.to_owned()]),
                None => ("glob", images(path, Labels::None)),
            });
        }
        store.stat(path)?;
        if TfRecord::begins(store, path) {
            return Ok(records(vec![path.to_owned()]));
        }
        return Err(Error::new(
            ErrorKind::NotFound,
            format!("{path} is a file, but no tar shard and no TFRecord file"),
        )
        .with_hint("give a folder, a pattern in quotes, tar shards, a zip archive, or files of tables, records or lines"));
    }

    let seen = Contents::of(store, path)?;
    let any = |test: &dyn Fn(&str) -> bool| seen.files.iter().any(|name| test(name));
    let root = || whole(path);
    if seen.has("index.json") && seen.files.iter().any(|name| name.contains(".mds")) {
        return Ok(("mds", SourceSpec::Mds(MdsSpec::new(root()))));
    }
    if seen.has("data.mdb") {
        return Ok(("lmdb", SourceSpec::Lmdb(LmdbSpec::new(root()))));
    }
    if seen.has("index.json") && any(&|name| name.starts_with("chunk-") && name.ends_with(".bin")) {
        return Ok(("litdata", SourceSpec::Litdata(LitDataSpec::new(root()))));
    }
    // CIFAR and MNIST may also lie one folder deeper, where their archives put them.
    let deeper = |folder: &str| -> Result<Contents> {
        let folder = join(path, folder);
        if store.is_folder(&folder) { Contents::of(store, &folder) } else { Ok(Contents::default()) }
    };
    let cifar10 = deeper("cifar-10-batches-bin")?.cifar10().or(deeper("cifar-10-batches-py")?.cifar10());
    if let Some(train) = seen.cifar10().or(cifar10) {
        return Ok(("cifar10", SourceSpec::Cifar10(Cifar10Spec { root: root(), train })));
    }
    let cifar100 = deeper("cifar-100-binary")?.cifar100().or(deeper("cifar-100-python")?.cifar100());
    if let Some(train) = seen.cifar100().or(cifar100) {
        let label = Cifar100Label::Fine;
        return Ok(("cifar100", SourceSpec::Cifar100(Cifar100Spec { root: root(), train, label })));
    }
    if let Some(train) = seen.mnist().or(deeper("raw")?.mnist()).or(deeper("MNIST/raw")?.mnist()) {
        return Ok(("mnist", SourceSpec::Mnist(MnistSpec { root: root(), train })));
    }
    // In an archive, files of another kind beside images belong to their samples.
    if zip::is_zip(path) && any(&is_image) && any(&|name| name.contains('.') && !is_image(name)) {
        return Ok(("webdataset", SourceSpec::Webdataset(WebDatasetSpec::new(whole(path)))));
    }
    if any(&is_image) {
        return Ok(("flat_folder", images(path, Labels::None)));
    }
    if let Some(files) = seen.pattern(path, &SHARDS) {
        return Ok(("webdataset", SourceSpec::Webdataset(WebDatasetSpec::new(whole(&files)))));
    }
    let saved = seen.has("state.json") || seen.has("dataset_dict.json");
    let tables = || seen.files.iter().filter(|name| !is_csv(name)).find_map(|name| table_format(name));
    if let Some(format) = saved.then_some(TableFormat::Arrow).or_else(tables) {
        return Ok(table(format, root()));
    }
    if any(&is_hdf5) {
        return Ok(("hdf5", SourceSpec::Hdf5(Hdf5Spec::new(root()))));
    }
    if deeper("data")?.files.iter().any(|name| table_format(name) == Some(TableFormat::Parquet)) {
        return Ok(table(TableFormat::Parquet, root()));
    }
    let mut named: Vec<&String> =
        seen.files.iter().filter(|name| is_tfrecord(name) || is_numbered(name)).collect();
    named.sort_unstable();
    let begins = |name: &&String| is_tfrecord(name) || TfRecord::begins(store, &join(path, name));
    if named.first().is_some_and(begins) {
        return Ok(records(named.iter().map(|name| join(path, name)).collect()));
    }
    if let Some(files) = seen.pattern(path, &LINES) {
        return Ok(("jsonl", SourceSpec::Jsonl(JsonLinesSpec::new(whole(&files)))));
    }
    if any(&is_sound) {
        return Ok(("flat_audio_folder", sounds(path, Labels::None)));
    }
    let holds_sounds = |folder: &String| -> Result<bool> {
        Ok(Contents::of(store, &join(path, folder))?.files.iter().any(|name| is_sound(name)))
    };
    // Folders of sounds are not read from archives.
    let plain = seen.folders > 0 && !zip::is_zip(path);
    if plain && listing::folders(store, path)?.first().map_or(Ok(false), holds_sounds)? {
        return Ok(("audio_folder", sounds(path, Labels::Folders)));
    }
    if seen.folders > 0 {
        return Ok(("image_folder", images(path, Labels::Folders)));
    }
    // Beside anything else, a table in text describes it.
    if let Some(files) = seen.pattern(path, &ROWS) {
        return Ok(table(TableFormat::Csv, whole(&files)));
    }
    Err(Error::new(ErrorKind::NotFound, format!("{path} holds no data set that is known")).with_hint(
        "known are folders of images or sounds (one a class, or flat), of images also in zip archives, tar shards, TFRecords, tables in Parquet, \
         Arrow and CSV, lines of JSON, HDF5, MDS shards, LitData chunks, LMDB, files of FFCV, and the files of CIFAR and MNIST",
    ))
}

/// An argument that names data: what is secret in a URL goes no further than here.
pub(crate) fn argument(text: &str) -> Result<String, std::convert::Infallible> {
    Ok(secrets::seal(text))
}

/// What the name of a file says of the table in it.
fn table_format(name: &str) -> Option<TableFormat> {
    if is_csv(name) {
        return Some(TableFormat::Csv);
    }
    match name.rsplit_once('.')?.1 {
        "parquet" | "pq" => Some(TableFormat::Parquet),
        "arrow" | "feather" => Some(TableFormat::Arrow),
        _ => None,
    }
}

fn is_tar(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SHARDS.iter().any(|ending| name.ends_with(ending))
}

/// Endings of tar shards, of those with positions first.
const SHARDS: [&str; 5] = [".tar", ".tar.gz", ".tgz", ".tar.zst", ".tzst"];

/// `.tfrecord`, `.tfrecords`, `.tfrec`, also with `-00000-of-00010` or `.gz` behind it.
fn is_tfrecord(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let name = name.rsplit('/').next().unwrap_or_default();
    name.contains(".tfrec") && !name.ends_with(".wfidx")
}

/// `train-00000-of-01024`: how TensorFlow's tools name shards.
fn is_numbered(name: &str) -> bool {
    let digits = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    let mut parts = name.rsplitn(4, '-');
    parts.next().is_some_and(digits) && parts.next() == Some("of") && parts.next().is_some_and(digits)
}

/// `data.mdb`, or how files of a database without a folder are called.
fn is_lmdb(name: &str) -> bool {
    name.ends_with(".mdb") || name.ends_with(".lmdb")
}

/// The format of files of arrays by their name.
fn arrays(name: &str) -> Option<(&'static str, ArrayFormat)> {
    let name = name.to_ascii_lowercase();
    if name.ends_with(".npy") {
        Some(("npy", ArrayFormat::Npy))
    } else {
        name.ends_with(".npz").then_some(("npz", ArrayFormat::Npz { fields: None }))
    }
}

/// The usual names of HDF5 files.
fn is_hdf5(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    [".h5", ".hdf5", ".hdf", ".he5"].iter().any(|ending| name.ends_with(ending))
}

/// Names of files of JSON lines.
const LINES: [&str; 6] = [".jsonl", ".jsonl.gz", ".jsonl.zst", ".ndjson", ".ndjson.gz", ".ndjson.zst"];

/// Names of files of CSV, and of the same with tabs.
const ROWS: [&str; 6] = [".csv", ".csv.gz", ".csv.zst", ".tsv", ".tsv.gz", ".tsv.zst"];

fn is_csv(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ROWS.iter().any(|ending| name.ends_with(ending))
}

fn is_tsv(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ROWS[3..].iter().any(|ending| name.ends_with(ending))
}

fn is_jsonl(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    LINES.iter().any(|ending| name.ends_with(ending))
}

fn is_image(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    IMG_EXTENSIONS.iter().any(|extension| name.ends_with(extension))
}

fn is_sound(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    AUDIO_EXTENSIONS.iter().any(|extension| name.ends_with(extension))
}

/// Names in a folder, hidden ones left out.
#[derive(Debug, Default)]
struct Contents {
    files: Vec<String>,
    folders: usize,
}

impl Contents {
    fn of(store: &dyn Store, path: &str) -> Result<Self> {
        let mut this = Self::default();
        store.list(path, &mut |entry| {
            if entry.name.starts_with(b".") {
            } else if entry.kind == EntryKind::Folder {
                this.folders += 1;
            } else {
                this.files.push(String::from_utf8_lossy(entry.name).into_owned());
            }
            Ok(())
        })?;
        Ok(this)
    }

    /// A pattern of the files with the first of these endings that some have: others are not looked at.
    fn pattern(&self, path: &str, endings: &[&str]) -> Option<String> {
        let has = |ending: &str| self.files.iter().any(|name| name.to_ascii_lowercase().ends_with(ending));
        endings.iter().find(|ending| has(ending)).map(|ending| join(path, &format!("*{ending}")))
    }

    fn has(&self, name: &str) -> bool {
        self.files.iter().any(|file| file == name)
    }

    /// `Some(true)` for the file of the training part, `Some(false)` if there is only that of the test part.
    fn part(&self, train: &str, test: &str) -> Option<bool> {
        if self.has(train) { Some(true) } else { self.has(test).then_some(false) }
    }

    fn cifar10(&self) -> Option<bool> {
        let python = || self.part("data_batch_1", "test_batch");
        self.part("data_batch_1.bin", "test_batch.bin").or_else(python)
    }

    fn cifar100(&self) -> Option<bool> {
        // The names alone are too common.
        let named = self.has("fine_label_names.txt") || self.has("coarse_label_names.txt");
        let python = || if self.has("meta") { self.part("train", "test") } else { None };
        self.part("train.bin", "test.bin").filter(|train| *train || named).or_else(python)
    }

    fn mnist(&self) -> Option<bool> {
        let has = |part: &str| {
            ["-", "."].iter().any(|dash| {
                let name = format!("{part}-images{dash}idx3-ubyte");
                self.has(&name) || self.has(&format!("{name}.gz"))
            })
        };
        if has("train") { Some(true) } else { has("t10k").then_some(false) }
    }
}

/// What was detected, for people.
pub(crate) fn describe(path: &str, detected: &Detected) -> String {
    let kind = match detected.format {
        "image_folder" => "a folder of class folders",
        "flat_folder" => "a folder of images without classes",
        "audio_folder" => "a folder of class folders of sounds",
        "flat_audio_folder" => "a folder of sounds without classes",
        "glob" => "a pattern of image files",
        "webdataset" => "samples by key in tar or zip shards",
        "tfrecord" => "TFRecord files",
        "parquet" => "a table in Parquet files",
        "arrow" => "a table in Arrow files",
        "csv" => "a table in CSV files",
        "jsonl" => "lines of JSON",
        "npy" | "npz" => "arrays in files",
        "hdf5" => "data sets in HDF5 files",
        "mds" => "MDS shards of MosaicML's Streaming",
        "beton" => "samples in files of FFCV",
        "litdata" => "LitData chunks",
        "lmdb" => "entries of an LMDB database",
        "cifar10" => "CIFAR-10",
        "cifar100" => "CIFAR-100",
        "mnist" => "MNIST",
        other => other,
    };
    let classes = detected.source.classes().map_or_else(String::new, |c| format!(", {} classes", c.len()));
    format!("{}: {kind}, {} samples{classes}", secrets::shown(path), detected.source.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(names: &[&str]) -> Result<&'static str> {
        static COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("wellfed-detect-{}-{number}", std::process::id()));
        for name in names {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, b"").unwrap();
        }
        std::fs::create_dir_all(&root).unwrap();
        let result = detect(&LocalStore::new(), root.to_str().unwrap()).map(|(format, _)| format);
        std::fs::remove_dir_all(root).unwrap();
        result
    }

    #[test]
    fn folders_are_told_apart_by_their_names() {
        assert_eq!(found(&["cat/1.jpg", "dog/2.png"]).unwrap(), "image_folder");
        assert_eq!(found(&["no/1.wav", "yes/2.flac"]).unwrap(), "audio_folder");
        assert_eq!(found(&["1.wav", "notes.txt"]).unwrap(), "flat_audio_folder");
        assert_eq!(found(&["1.JPEG", "more/2.jpg"]).unwrap(), "flat_folder");
        assert_eq!(found(&["a-0.tar", "a-1.tar", "README"]).unwrap(), "webdataset");
        assert_eq!(found(&["a-0.tar.gz", "a-1.tar.gz"]).unwrap(), "webdataset");
        assert_eq!(found(&["a.tfrecord", "a.tfrecord.wfidx"]).unwrap(), "tfrecord");
        assert_eq!(found(&["a.tfrec-00000-of-00002", "README"]).unwrap(), "tfrecord");
        assert_eq!(found(&["train-00000-of-00001.parquet", "README.md"]).unwrap(), "parquet");
        assert_eq!(found(&["data/train-00000-of-00001.parquet"]).unwrap(), "parquet");
        assert_eq!(found(&["state.json", "data-00000-of-00001.arrow"]).unwrap(), "arrow");
        assert_eq!(found(&["dataset_dict.json", "train/state.json"]).unwrap(), "arrow");
        assert_eq!(found(&["index.json", "shard.00000.mds.zstd"]).unwrap(), "mds");
        assert_eq!(found(&["a.h5", "b.h5", "README"]).unwrap(), "hdf5");
        assert_eq!(found(&["index.json", "chunk-0-0.zstd.bin"]).unwrap(), "litdata");
        assert_eq!(found(&["data.mdb", "lock.mdb"]).unwrap(), "lmdb");
        assert_eq!(found(&["a.jsonl.gz", "b.jsonl.gz", "more/x"]).unwrap(), "jsonl");
        assert_eq!(found(&["a.csv", "b.CSV", "README"]).unwrap(), "csv");
        assert_eq!(found(&["a.tsv.gz"]).unwrap(), "csv");
        assert_eq!(found(&["labels.csv", "cat/1.jpg"]).unwrap(), "image_folder");
        assert_eq!(found(&["labels.csv", "1.jpg"]).unwrap(), "flat_folder");
        assert_eq!(found(&["labels.csv", "a.parquet"]).unwrap(), "parquet");
        assert_eq!(found(&["data_batch_1.bin", "test_batch.bin"]).unwrap(), "cifar10");
        assert_eq!(found(&["cifar-10-batches-bin/test_batch.bin"]).unwrap(), "cifar10");
        assert_eq!(found(&["cifar-10-batches-py/data_batch_1", "more/x"]).unwrap(), "cifar10");
        assert_eq!(found(&["train.bin", "test.bin"]).unwrap(), "cifar100");
        assert_eq!(found(&["cifar-100-python/train", "cifar-100-python/meta"]).unwrap(), "cifar100");
        assert_eq!(found(&["train-images-idx3-ubyte.gz"]).unwrap(), "mnist");
        assert_eq!(found(&["MNIST/raw/t10k-images-idx3-ubyte"]).unwrap(), "mnist");
        for empty in [&[][..], &[".hidden.jpg"], &["notes.txt", "test.bin"], &["train", "test"]] {
            let error = found(empty).unwrap_err();
            assert!(error.kind() == ErrorKind::NotFound && error.hint().is_some(), "{error}");
        }
    }

    #[test]
    fn what_is_no_folder_goes_by_its_form() {
        let store = LocalStore::new();
        let of = |path| detect(&store, path).map(|(format, _)| format);
        assert_eq!(of("none/a-{000..003}.tar").unwrap(), "webdataset");
        assert_eq!(of("none/*.tar").unwrap(), "webdataset");
        assert_eq!(of("none/*.tfrecord-00*").unwrap(), "tfrecord");
        assert_eq!(of("none/*.parquet").unwrap(), "parquet");
        assert_eq!(of("none/a-{0..3}.feather").unwrap(), "arrow");
        assert_eq!(of("none/*.csv.gz").unwrap(), "csv");
        assert_eq!(of("none/a.tsv").unwrap(), "csv");
        assert_eq!(of("none/a-{0..3}.zip").unwrap(), "webdataset");
        assert_eq!(of("none/*.tgz").unwrap(), "webdataset");
        assert_eq!(of("none/a-{0..3}.jsonl").unwrap(), "jsonl");
        assert_eq!(of("none/a-{0..3}.npy").unwrap(), "npy");
        assert_eq!(of("none/a.npz").unwrap(), "npz");
        assert_eq!(of("none/a-{0..3}.hdf5").unwrap(), "hdf5");
        assert_eq!(of("none/*/index.json").unwrap(), "mds");
        assert_eq!(of("none/a-{0..3}.lmdb").unwrap(), "lmdb");
        assert_eq!(of("none/*.beton").unwrap(), "beton");
        assert_eq!(of("none/*.jpg").unwrap(), "glob");
        assert_eq!(of("none/a").unwrap_err().kind(), ErrorKind::NotFound);
    }
}
