//! CIFAR-10 and CIFAR-100, binary version: <https://www.cs.toronto.edu/~kriz/cifar.html>.
//!
//! ```text
//! CIFAR-10:   label u8,            3072 bytes of red, green and blue plane, 32 x 32 each
//! CIFAR-100:  coarse u8, fine u8,  3072 bytes
//! ```
//!
//! All images are read when the source is opened (154 MB for 50,000) and kept as interleaved pixels, the order in
//! which crops and flips touch the fewest rows.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Fingerprint, Source, SourceSpec, beyond_the_end};
use crate::{
    Error, ErrorKind, Limits, Result,
    sample::{FieldKind, PixelLayout, Record, Schema, Value},
    store::{RetryingStore, Store, join, registry},
};

const SIDE: usize = 32;
const PLANE: usize = SIDE * SIDE;
const IMAGE: usize = 3 * PLANE;

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
    /// The folder with `data_batch_1.bin` and so on, or the one with `cifar-10-batches-bin`: a path or URL.
    pub root: String,
    /// The 50,000 images for training, or the 10,000 for testing.
    pub train: bool,
}

/// What to open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cifar100Spec {
    /// The folder with `train.bin` and `test.bin`, or the one with `cifar-100-binary`: a path or URL.
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
        let name = format!("cifar10({})", spec.root);
        let files: Vec<String> = if spec.train {
            (1..=5).map(|i| format!("data_batch_{i}.bin")).collect()
        } else {
            vec!["test_batch.bin".to_owned()]
        };
        let format = Format {
            labels: 1,
            label: 0,
            classes: 10,
            folder: "cifar-10-batches-bin",
            names: "batches.meta.txt",
        };
        let spec_of = SourceSpec::Cifar10(spec.clone());
        Self::open(store, &spec.root, &files, &format, spec_of, name.clone()).map_err(|e| e.with_source(name))
    }

    /// Reads CIFAR-100.
    ///
    /// # Errors
    /// As [`Cifar::open_10`], with 100 (20) classes.
    pub fn open_100(store: &Arc<dyn Store>, spec: Cifar100Spec) -> Result<Self> {
        let name = format!("cifar100({})", spec.root);
        let files = [if spec.train { "train.bin" } else { "test.bin" }.to_owned()];
        let folder = "cifar-100-binary";
        let format = match spec.label {
            Cifar100Label::Coarse => {
                Format { labels: 2, label: 0, classes: 20, folder, names: "coarse_label_names.txt" }
            }
            Cifar100Label::Fine => {
                Format { labels: 2, label: 1, classes: 100, folder, names: "fine_label_names.txt" }
            }
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
        let inner = join(&located.path, format.folder);
        let folder = if store.is_folder(&inner) { inner } else { located.path };
        let (mut pixels, mut labels, mut raw) = (Vec::new(), Vec::new(), Vec::new());
        for file in files {
            let path = join(&folder, file);
            raw.clear();
            store
                .read(&path, Limits::default().max_bytes, &mut raw)
                .map_err(|e| missing(e, format.folder))?;
            take_records(&raw, &path, format, &mut pixels, &mut labels)?;
        }
        let image = FieldKind::Pixels { height: SIDE, width: SIDE, channels: 3, layout: PixelLayout::Hwc };
        let schema = Schema::tuple([("image", image), ("label", FieldKind::LABEL)]);
        let classes = class_names(store, &join(&folder, format.names), format.classes);
        Ok(Self { spec, name, schema, classes, pixels, labels })
    }
}

/// How the records of a version look.
struct Format {
    /// Label bytes before the pixels, and which of them is wanted.
    labels: usize,
    label: usize,
    classes: u8,
    /// Name of the folder in the archive as distributed, and of its file of class names.
    folder: &'static str,
    names: &'static str,
}

fn missing(e: Error, folder: &str) -> Error {
    if e.kind() != ErrorKind::NotFound {
        return e;
    }
    e.with_hint(format!(
        "unpack the binary version, whose folder is {folder}; the Python version is not read"
    ))
}

fn take_records(
    raw: &[u8],
    path: &str,
    format: &Format,
    pixels: &mut Vec<u8>,
    labels: &mut Vec<u8>,
) -> Result<()> {
    let record = format.labels + IMAGE;
    if raw.is_empty() || !raw.len().is_multiple_of(record) {
        let size = raw.len();
        return Err(Error::corrupt(format!("{path} has {size} bytes, which is no multiple of {record}"))
            .with_offset((size - size % record) as u64)
            .with_hint("the file was cut, or is not the binary version of this data set"));
    }
    let count = raw.len() / record;
    pixels
        .try_reserve(count * IMAGE)
        .map_err(|_| Error::new(ErrorKind::Limit, format!("no memory for {count} images of {path}")))?;
    for (i, record) in raw.chunks_exact(record).enumerate() {
        let (head, planes) = record.split_at(format.labels);
        let label = head[format.label];
        if label >= format.classes {
            let offset = i * record.len() + format.label;
            let most = format.classes - 1;
            return Err(Error::corrupt(format!("{path} has label {label}, above {most}, in image {i}"))
                .with_offset(offset as u64));
        }
        labels.push(label);
        let (red, rest) = planes.split_at(PLANE);
        let (green, blue) = rest.split_at(PLANE);
        let rgb = red.iter().zip(green).zip(blue).flat_map(|((r, g), b)| [*r, *g, *b]);
        pixels.extend(rgb);
    }
    Ok(())
}

/// Names of all classes, if the file of names is there and has them.
fn class_names(store: &dyn Store, path: &str, classes: u8) -> Option<Vec<String>> {
    let mut text = Vec::new();
    store.read(path, 1 << 16, &mut text).ok()?;
    let text = String::from_utf8(text).ok()?;
    let names: Vec<String> =
        text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect();
    (names.len() == usize::from(classes)).then_some(names)
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
    use crate::{source::conformance, store::LocalStore, testing::TempFolder};

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
}
