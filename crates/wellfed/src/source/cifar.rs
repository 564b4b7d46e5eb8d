//! CIFAR-10 and CIFAR-100, binary or Python version: <https://www.cs.toronto.edu/~kriz/cifar.html>.
//!
//! ```text
//! binary   CIFAR-10:   label u8,            3072 bytes of red, green and blue plane, 32 x 32 each
//!          CIFAR-100:  coarse u8, fine u8,  3072 bytes
//! Python   a pickled dict: `data` uint8 [n, 3072], `labels` (`fine_labels`, `coarse_labels`) a list of n numbers
//! ```
//!
//! Both have the same images in the same order, so a data set is the same in either version. Pickles are read as data, and
//! nothing in them is run (`pickle.rs`).
//!
//! All images are read when the source is opened (154 MB for 50,000) and kept as interleaved pixels, the order in
//! which crops and flips touch the fewest rows.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Fingerprint, Source, SourceSpec, beyond_the_end, pickle::Pickle};
use crate::{
    Error, ErrorKind, Limits, Result,
    sample::{FieldKind, PixelLayout, Record, Schema, Value},
    store::{EntryKind, RetryingStore, Store, join, registry, secrets},
};

const SIDE: usize = 32;
const PLANE: usize = SIDE * SIDE;
const IMAGE: usize = 3 * PLANE;
const IMAGE_U64: u64 = IMAGE as u64;

/// Which labels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cifar100Label {
    /// One of 100 classes.
    #[default]
    Fine,
    /// One of 20 superclasses.
    Coarse,
}

/// What to open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cifar10Spec {
    /// The folder with `data_batch_1.bin` (Python version: `data_batch_1`) and so on, or the one with
    /// `cifar-10-batches-bin` or `cifar-10-batches-py`: a path or URL. Of both versions the binary one is read.
    pub root: String,
    /// The 50,000 images for training, or the 10,000 for testing.
    pub train: bool,
}

/// What to open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cifar100Spec {
    /// The folder with `train.bin` and `test.bin` (Python version: `train` and `test`), or the one with
    /// `cifar-100-binary` or `cifar-100-python`: a path or URL. Of both versions the binary one is read.
    pub root: String,
    /// The 50,000 images for training, or the 10,000 for testing.
    pub train: bool,
    /// Which labels.
    #[serde(default)]
    pub label: Cifar100Label,
}

/// Images of 32 x 32 pixels in memory. Fields: `image` (resident, interleaved RGB) and `label`.
#[derive(Debug)]
pub struct Cifar {
    spec: SourceSpec,
    name: String,
    schema: Schema,
    classes: Option<Vec<String>>,
    pixels: Vec<u8>,
    labels: Vec<u8>,
}

impl Cifar {
    /// Reads CIFAR-10.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if a file is missing, [`ErrorKind::Corrupt`] if one is no whole number of images or has
    /// a label above 9.
    pub fn open_10(store: &Arc<dyn Store>, spec: Cifar10Spec) -> Result<Self> {
        let name = format!("cifar10({})", secrets::shown(&spec.root));
        let files: Vec<String> = if spec.train {
            (1..=5).map(|i| format!("data_batch_{i}")).collect()
        } else {
            vec!["test_batch".to_owned()]
        };
        let format = Format {
            labels: 1,
            label: 0,
            classes: 10,
            key: "labels",
            folders: ["cifar-10-batches-bin", "cifar-10-batches-py"],
            names: ["batches.meta.txt", "batches.meta"],
            names_key: "label_names",
        };
        let spec_of = SourceSpec::Cifar10(spec.clone());
        Self::open(store, &spec.root, &files, &format, spec_of, name.clone()).map_err(|e| e.with_source(name))
    }

    /// Reads CIFAR-100.
    ///
    /// # Errors
    /// As [`Cifar::open_10`], with 100 (20) classes.
    pub fn open_100(store: &Arc<dyn Store>, spec: Cifar100Spec) -> Result<Self> {
        let name = format!("cifar100({})", secrets::shown(&spec.root));
        let files = [if spec.train { "train" } else { "test" }.to_owned()];
        let folders = ["cifar-100-binary", "cifar-100-python"];
        let format = match spec.label {
            Cifar100Label::Coarse => Format {
                labels: 2,
                label: 0,
                classes: 20,
                key: "coarse_labels",
                folders,
                names: ["coarse_label_names.txt", "meta"],
                names_key: "coarse_label_names",
            },
            Cifar100Label::Fine => Format {
                labels: 2,
                label: 1,
                classes: 100,
                key: "fine_labels",
                folders,
                names: ["fine_label_names.txt", "meta"],
                names_key: "fine_label_names",
            },
        };
        let spec_of = SourceSpec::Cifar100(spec.clone());
        Self::open(store, &spec.root, &files, &format, spec_of, name.clone()).map_err(|e| e.with_source(name))
    }

    fn open(
        store: &Arc<dyn Store>,
        root: &str,
        files: &[String],
        format: &Format,
        spec: SourceSpec,
        name: String,
    ) -> Result<Self> {
        let located = registry::locate(root, store)?;
        let store = &*RetryingStore::around(located.store);
        let (version, folder) = find(store, &located.path, &files[0], format);
        let (mut images, mut raw) = (Images::default(), Vec::new());
        for file in files {
            let path = match version {
                Version::Binary => join(&folder, &format!("{file}.bin")),
                Version::Python => join(&folder, file),
            };
            raw.clear();
            store
                .read(&path, Limits::default().max_bytes, &mut raw)
                .map_err(|e| missing(e, format.folders))?;
            match version {
                Version::Binary => images.take_records(&raw, &path, format)?,
                Version::Python => images.take_pickle(&raw, &path, format)?,
            }
        }
        let image = FieldKind::Pixels { height: SIDE, width: SIDE, channels: 3, layout: PixelLayout::Hwc };
        let schema = Schema::tuple([("image", image), ("label", FieldKind::LABEL)]);
        let classes = class_names(store, &folder, version, format);
        Ok(Self { spec, name, schema, classes, pixels: images.pixels, labels: images.labels })
    }
}

/// In which form a data set is distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    Binary,
    Python,
}

/// How the records of a data set look.
struct Format {
    /// Label bytes before the pixels in the binary version, and which of them is wanted.
    labels: usize,
    label: usize,
    classes: u8,
    /// What the wanted labels are called in the Python version.
    key: &'static str,
    /// Names of the folders in the archives as distributed, and of their files of class names: binary and Python version.
    folders: [&'static str; 2],
    names: [&'static str; 2],
    /// What the names are called in the Python version.
    names_key: &'static str,
}

/// The version that lies in `root`, and its folder; the binary version where there is none, to say what is missing.
fn find(store: &dyn Store, root: &str, file: &str, format: &Format) -> (Version, String) {
    for (version, name) in [Version::Binary, Version::Python].into_iter().zip(format.folders) {
        let inner = join(root, name);
        if store.is_folder(&inner) {
            return (version, inner);
        }
    }
    let there = |name: &str| store.stat(&join(root, name)).is_ok_and(|stat| stat.kind != EntryKind::Folder);
    let python = there(file) && !there(&format!("{file}.bin"));
    (if python { Version::Python } else { Version::Binary }, root.to_owned())
}

fn missing(e: Error, folders: [&str; 2]) -> Error {
    if e.kind() != ErrorKind::NotFound {
        return e;
    }
    let [binary, python] = folders;
    e.with_hint(format!(
        "unpack the archive there; its folder is {binary} (binary version) or {python} (Python version)"
    ))
}

/// What has been read.
#[derive(Debug, Default)]
struct Images {
    pixels: Vec<u8>,
    labels: Vec<u8>,
}

impl Images {
    /// Takes the images of a file of the binary version.
    fn take_records(&mut self, raw: &[u8], path: &str, format: &Format) -> Result<()> {
        let record = format.labels + IMAGE;
        if raw.is_empty() || !raw.len().is_multiple_of(record) {
            let size = raw.len();
            return Err(Error::corrupt(format!("{path} has {size} bytes, which is no multiple of {record}"))
                .with_offset((size - size % record) as u64)
                .with_hint("the file was cut, or is not the binary version of this data set"));
        }
        self.reserve(raw.len() / record, path)?;
        for (i, record) in raw.chunks_exact(record).enumerate() {
            let (head, planes) = record.split_at(format.labels);
            let label = head[format.label];
            if label >= format.classes {
                let offset = i * record.len() + format.label;
                return Err(no_class(path, i64::from(label), i, format).with_offset(offset as u64));
            }
            self.push(label, planes);
        }
        Ok(())
    }

    /// Takes the images of a file of the Python version.
    fn take_pickle(&mut self, raw: &[u8], path: &str, format: &Format) -> Result<()> {
        let pickle = Pickle::parse(raw).map_err(|e| in_file(path, &e))?;
        let lacks = |what: &str| {
            Error::corrupt(format!("{path} has no {what}"))
                .with_hint("it is not the Python version of this data set")
        };
        let data = pickle.array("data").ok_or_else(|| lacks("array `data`"))?;
        let &[count, IMAGE_U64] = data.shape.as_slice() else {
            return Err(lacks(&format!("images of {IMAGE} bytes: its array has the shape {:?}", data.shape)));
        };
        let labels = pickle.whole_numbers(format.key);
        let labels = labels.ok_or_else(|| lacks(&format!("list of numbers `{}`", format.key)))?;
        if labels.len() as u64 != count || labels.is_empty() {
            let found = labels.len();
            return Err(Error::corrupt(format!("{path} has {found} labels for {count} images")));
        }
        self.reserve(labels.len(), path)?;
        for (i, (label, planes)) in labels.iter().zip(data.bytes.chunks_exact(IMAGE)).enumerate() {
            let known = u8::try_from(*label).ok().filter(|label| *label < format.classes);
            self.push(known.ok_or_else(|| no_class(path, *label, i, format))?, planes);
        }
        Ok(())
    }

    fn reserve(&mut self, count: usize, path: &str) -> Result<()> {
        let no_memory = |_| Error::new(ErrorKind::Limit, format!("no memory for {count} images of {path}"));
        self.labels.try_reserve(count).map_err(no_memory)?;
        self.pixels.try_reserve(count * IMAGE).map_err(no_memory)
    }

    /// Adds an image of three planes, pixel by pixel.
    fn push(&mut self, label: u8, planes: &[u8]) {
        self.labels.push(label);
        let (red, rest) = planes.split_at(PLANE);
        let (green, blue) = rest.split_at(PLANE);
        let rgb = red.iter().zip(green).zip(blue).flat_map(|((r, g), b)| [*r, *g, *b]);
        self.pixels.extend(rgb);
    }
}

/// What is wrong with a pickle, and in which file.
fn in_file(path: &str, e: &Error) -> Error {
    let mut said = Error::corrupt(format!("{path} cannot be read: {}", e.message()));
    if let Some(offset) = e.offset() {
        said = said.with_offset(offset);
    }
    match e.hint() {
        Some(hint) => said.with_hint(hint),
        None => said,
    }
}

fn no_class(path: &str, label: i64, image: usize, format: &Format) -> Error {
    let most = format.classes - 1;
    Error::corrupt(format!("{path} has label {label}, which is not in 0 to {most}, in image {image}"))
}

/// Names of all classes, if the file of names is there and has them.
fn class_names(store: &dyn Store, folder: &str, version: Version, format: &Format) -> Option<Vec<String>> {
    let mut file = Vec::new();
    let names = match version {
        Version::Binary => {
            store.read(&join(folder, format.names[0]), 1 << 16, &mut file).ok()?;
            let text = String::from_utf8(file).ok()?;
            text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
        }
        Version::Python => {
            store.read(&join(folder, format.names[1]), 1 << 16, &mut file).ok()?;
            Pickle::parse(&file).ok()?.texts(format.names_key)?
        }
    };
    (names.len() == usize::from(format.classes)).then_some(names)
}

impl Source for Cifar {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn spec(&self) -> SourceSpec {
        self.spec.clone()
    }

    fn len(&self) -> u64 {
        self.labels.len() as u64
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn key(&self, index: u64) -> String {
        if index < self.len() { index.to_string() } else { String::new() }
    }

    fn fetch(&self, index: u64, record: &mut Record) -> Result<()> {
        let label = usize::try_from(index).ok().and_then(|i| self.labels.get(i));
        let label = label.ok_or_else(|| beyond_the_end(self, index))?;
        record.reset(2);
        record.values[0] = Value::Resident;
        record.values[1] = Value::Int(i64::from(*label));
        Ok(())
    }

    fn resident(&self, index: u64, field: usize) -> Option<&[u8]> {
        let start = usize::try_from(index).ok()?.checked_mul(IMAGE)?;
        if field == 0 { self.pixels.get(start..start.checked_add(IMAGE)?) } else { None }
    }

    fn fingerprint(&self) -> u64 {
        let mut hash = Fingerprint::new(&self.schema, self.len());
        hash.add(&self.labels);
        hash.finish()
    }

    fn in_memory(&self) -> bool {
        true
    }

    fn classes(&self) -> Option<&[String]> {
        self.classes.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        source::{conformance, pickle::tests as pickled},
        store::LocalStore,
        testing::TempFolder,
    };

    /// `count` records whose planes are constant: red = seed + record, green = 100, blue = 200.
    fn records(labels: &[u8], count: u8, seed: u8) -> Vec<u8> {
        let mut bytes = Vec::new();
        for i in 0..count {
            bytes.extend(labels.iter().map(|label| label + i));
            bytes.extend([[seed + i; PLANE], [100; PLANE], [200; PLANE]].concat());
        }
        bytes
    }

    fn local() -> Arc<dyn Store> {
        Arc::new(LocalStore::new())
    }

    fn cifar10(root: &str, train: bool) -> Result<Cifar> {
        Cifar::open_10(&local(), Cifar10Spec { root: root.to_owned(), train })
    }

    #[test]
    fn cifar10_is_read_in_order_and_interleaved() {
        let folder = TempFolder::new();
        for i in 1..=5_u8 {
            folder.write(&format!("cifar-10-batches-bin/data_batch_{i}.bin"), &records(&[0], 2, i * 10));
        }
        folder.write("cifar-10-batches-bin/test_batch.bin", &records(&[4], 3, 1));
        for root in [folder.path().to_owned(), folder.join("cifar-10-batches-bin")] {
            let train = cifar10(&root, true).unwrap();
            conformance::check(&train);
            assert_eq!((train.len(), train.classes()), (10, None));
            assert_eq!(train.resident(5, 0).unwrap()[..6], [31, 100, 200, 31, 100, 200]);
            assert_eq!(cifar10(&root, false).unwrap().len(), 3);
        }
        let names = "airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n\n";
        folder.write("cifar-10-batches-bin/batches.meta.txt", names.as_bytes());
        assert_eq!(cifar10(folder.path(), false).unwrap().classes().unwrap()[9], "truck");
    }

    #[test]
    fn cifar100_has_fine_and_coarse_labels() {
        let folder = TempFolder::new();
        folder.write("train.bin", &records(&[3, 77], 2, 5));
        for (label, expected) in [(Cifar100Label::Fine, 78), (Cifar100Label::Coarse, 4)] {
            let spec = Cifar100Spec { root: folder.path().to_owned(), train: true, label };
            let source = Cifar::open_100(&local(), spec).unwrap();
            conformance::check(&source);
            let mut record = Record::default();
            source.fetch(1, &mut record).unwrap();
            assert_eq!(record.values[1], Value::Int(expected));
            assert_eq!(source.resident(1, 0).unwrap()[..3], [6, 100, 200]);
        }
    }

    #[test]
    fn missing_cut_and_wrong_files_are_errors() {
        let folder = TempFolder::new();
        let e = cifar10(folder.path(), false).unwrap_err();
        assert!(e.kind() == ErrorKind::NotFound && e.hint().is_some(), "{e}");
        let whole = records(&[4], 3, 1);
        for size in [0, 1, 3072, 3074, whole.len() - 1] {
            folder.write("test_batch.bin", &whole[..size]);
            let e = cifar10(folder.path(), false).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Corrupt, "{e}");
        }
        folder.write("test_batch.bin", &records(&[8], 3, 1));
        let e = cifar10(folder.path(), false).unwrap_err();
        assert_eq!((e.kind(), e.offset()), (ErrorKind::Corrupt, Some(2 * 3073)), "{e}");
    }

    /// The images of a file of the binary version, and their labels at `place`, as a file of the Python version.
    fn repickled(binary: &[u8], labels: usize, keys: &[(&str, usize)]) -> Vec<u8> {
        let records = || binary.chunks_exact(labels + IMAGE);
        let images: Vec<u8> = records().flat_map(|record| record[labels..].to_vec()).collect();
        let of: Vec<Vec<u8>> =
            keys.iter().map(|(_, place)| records().map(|record| record[*place]).collect()).collect();
        let named: Vec<(&str, &[u8])> =
            keys.iter().zip(&of).map(|((key, _), labels)| (*key, labels.as_slice())).collect();
        pickled::batch(&named, &images)
    }

    #[test]
    fn the_python_version_is_the_same_data_set() {
        let (binary, python) = (TempFolder::new(), TempFolder::new());
        for i in 1..=5_u8 {
            let file = records(&[0], 3, i * 10);
            binary.write(&format!("cifar-10-batches-bin/data_batch_{i}.bin"), &file);
            python.write(
                &format!("cifar-10-batches-py/data_batch_{i}"),
                &repickled(&file, 1, &[("labels", 0)]),
            );
        }
        let classes = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
        python.write("cifar-10-batches-py/batches.meta", &pickled::names("label_names", &classes));
        let expected = cifar10(binary.path(), true).unwrap();
        for root in [python.path().to_owned(), python.join("cifar-10-batches-py")] {
            let source = cifar10(&root, true).unwrap();
            conformance::check(&source);
            assert_eq!((&source.pixels, &source.labels), (&expected.pixels, &expected.labels));
            assert_eq!(source.fingerprint(), expected.fingerprint(), "states fit both");
            assert_eq!(source.classes().unwrap()[9], "j");
        }
        // Where both lie side by side, what was read before there was a choice.
        python.write("cifar-10-batches-bin/test_batch.bin", &records(&[4], 2, 1));
        assert_eq!(cifar10(python.path(), false).unwrap().len(), 2);
    }

    #[test]
    fn the_python_version_of_cifar100_has_fine_and_coarse_labels() {
        let folder = TempFolder::new();
        folder.write(
            "train",
            &repickled(&records(&[3, 77], 2, 5), 2, &[("coarse_labels", 0), ("fine_labels", 1)]),
        );
        for (label, expected) in [(Cifar100Label::Fine, 78), (Cifar100Label::Coarse, 4)] {
            let spec = Cifar100Spec { root: folder.path().to_owned(), train: true, label };
            let source = Cifar::open_100(&local(), spec).unwrap();
            conformance::check(&source);
            assert_eq!((source.labels[1], source.classes()), (expected, None));
        }
    }

    #[test]
    fn damaged_files_of_the_python_version_are_errors() {
        let folder = TempFolder::new();
        let file = repickled(&records(&[4], 2, 1), 1, &[("labels", 0)]);
        for (file, words) in [
            (&file[..file.len() - 2000], "test_batch"),
            (b"\x80\x02cos\nsystem\nU\x04true\x85R.", "os.system"),
            (&pickled::batch(&[("labels", &[1])], &[0; 2 * IMAGE]), "1 labels for 2 images"),
            (
                &pickled::batch(&[("labels", &[1, 10])], &[0; 2 * IMAGE]),
                "label 10, which is not in 0 to 9, in image 1",
            ),
            (&pickled::batch(&[("fine_labels", &[1, 1])], &[0; 2 * IMAGE]), "no list of numbers `labels`"),
            (&pickled::names("labels", &["a"]), "no array `data`"),
        ] {
            folder.write("test_batch", file);
            let e = cifar10(folder.path(), false).unwrap_err();
            assert!(e.kind() == ErrorKind::Corrupt && e.message().contains(words), "{e}");
        }
    }
}
