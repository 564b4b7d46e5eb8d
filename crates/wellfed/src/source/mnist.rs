//! MNIST and what comes in its format (Fashion-MNIST, KMNIST): IDX files, plain or `.gz`.
//!
//! ```text
//! images: 0 0 8 3  count u32  rows u32  columns u32  pixels u8        numbers big-endian
//! labels: 0 0 8 1  count u32  labels u8
//! ```
//!
//! Format: <http://yann.lecun.com/exdb/mnist/>. Sizes are checked against the file (plain) or the limit (compressed)
//! before memory is taken; all images are kept in memory, 47 MB for the 60,000 of MNIST.

use std::{io::Read, sync::Arc};

use flate2::read::MultiGzDecoder;
use serde::{Deserialize, Serialize};

use super::{Fingerprint, Source, SourceSpec, beyond_the_end};
use crate::{
    Error, ErrorKind, Limits, Result,
    sample::{FieldKind, PixelLayout, Record, Schema, Value},
    store::{
        RetryingStore, Store, join,
        registry::{self, Located},
        reserve, secrets,
    },
};

/// Folders below the root in which torchvision and others keep the files, in the order in which they are tried.
const FOLDERS: [&str; 5] = ["", "raw", "MNIST/raw", "FashionMNIST/raw", "KMNIST/raw"];

/// What to open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MnistSpec {
    /// The folder with `train-images-idx3-ubyte` and so on, plain or `.gz`; or the one torchvision was given: a path
    /// or URL.
    pub root: String,
    /// The images for training (`train-*`), or for testing (`t10k-*`).
    pub train: bool,
}

/// Grey images in memory. Fields: `image` (resident) and `label`.
#[derive(Debug)]
pub struct Mnist {
    spec: MnistSpec,
    schema: Schema,
    classes: Vec<String>,
    pixels: Vec<u8>,
    image_bytes: usize,
    labels: Vec<u8>,
}

impl Mnist {
    /// Reads images and labels.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if a file is missing; [`ErrorKind::Config`] if the root holds several such data sets;
    /// [`ErrorKind::Corrupt`] if a file is damaged, or there are not as many labels as images.
    pub fn open(store: &Arc<dyn Store>, spec: MnistSpec) -> Result<Self> {
        let name = name_of(&spec);
        Self::read(store, spec).map_err(|e| e.with_source(name))
    }

    fn read(store: &Arc<dyn Store>, spec: MnistSpec) -> Result<Self> {
        let Located { store, path: root, .. } = registry::locate(&spec.root, store)?;
        let store = &*RetryingStore::around(store);
        let part = if spec.train { "train" } else { "t10k" };
        let images = find(store, &root, &format!("{part}-images"), "idx3-ubyte")?;
        let labels = find(store, &root, &format!("{part}-labels"), "idx1-ubyte")?;
        let (sizes, pixels) = read_idx(store, &images, 3, &Limits::default())?;
        let (label_sizes, labels_read) = read_idx(store, &labels, 1, &Limits::default())?;
        if label_sizes[0] != sizes[0] {
            let (l, i) = (label_sizes[0], sizes[0]);
            return Err(Error::corrupt(format!("{labels} has {l} labels for the {i} images of {images}")));
        }
        let (height, width) = (sizes[1], sizes[2]);
        let image = FieldKind::Pixels { height, width, channels: 1, layout: PixelLayout::Hwc };
        let schema = Schema::tuple([("image", image), ("label", FieldKind::LABEL)]);
        let count = labels_read.iter().max().map_or(0, |most| usize::from(*most) + 1).max(10);
        let classes = (0..count).map(|class| class.to_string()).collect();
        Ok(Self { spec, schema, classes, pixels, image_bytes: height * width, labels: labels_read })
    }
}

fn name_of(spec: &MnistSpec) -> String {
    format!("mnist({})", secrets::shown(&spec.root))
}

/// The file `{stem}-{kind}` or `{stem}.{kind}`, plain rather than compressed.
fn find(store: &dyn Store, root: &str, stem: &str, kind: &str) -> Result<String> {
    let mut found: Vec<String> = Vec::new();
    for folder in FOLDERS {
        let folder = if folder.is_empty() { root.to_owned() } else { join(root, folder) };
        let names = ["-", "."].map(|dash| format!("{stem}{dash}{kind}"));
        let names = names.iter().cloned().chain(names.iter().map(|name| format!("{name}.gz")));
        let mut paths = names.map(|name| join(&folder, &name));
        found.extend(paths.find(|path| store.stat(path).is_ok()));
        // Files in the root itself are meant, whatever else lies below.
        if folder == root && !found.is_empty() {
            break;
        }
    }
    match found.as_slice() {
        [path] => Ok(path.clone()),
        [] => Err(Error::new(
            ErrorKind::NotFound,
            format!("there is no {stem}-{kind} or {stem}-{kind}.gz in {root}"),
        )
        .with_hint("the files are not downloaded: put them there as they are distributed")),
        several => Err(Error::config(format!("{root} holds several data sets: {}", several.join(", ")))
            .with_hint("give the folder of one of them")),
    }
}

/// Sizes and elements of an IDX file of bytes with `dimensions` dimensions.
fn read_idx(
    store: &dyn Store,
    path: &str,
    dimensions: usize,
    limits: &Limits,
) -> Result<(Vec<usize>, Vec<u8>)> {
    let mut file = Vec::new();
    store.read(path, limits.max_bytes, &mut file)?;
    if file.starts_with(&[0x1f, 0x8b]) {
        return parse_idx(MultiGzDecoder::new(file.as_slice()), None, path, dimensions, limits);
    }
    parse_idx(file.as_slice(), Some(file.len() as u64), path, dimensions, limits)
}

fn parse_idx(
    mut from: impl Read,
    size: Option<u64>,
    path: &str,
    dimensions: usize,
    limits: &Limits,
) -> Result<(Vec<usize>, Vec<u8>)> {
    let cut = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::UnexpectedEof => {
            Error::corrupt(format!("{path} ends before the data its header announces"))
        }
        _ => Error::corrupt(format!("{path} cannot be unpacked: {e}")),
    };
    let mut magic = [0; 4];
    from.read_exact(&mut magic).map_err(cut)?;
    if magic != [0, 0, 8, dimensions as u8] {
        return Err(Error::corrupt(format!(
            "{path} starts with {magic:02x?} instead of [00, 00, 08, {dimensions:02x}], as a file of bytes in \
             {dimensions} dimensions does"
        )));
    }
    let mut sizes = Vec::with_capacity(dimensions);
    for _ in 0..dimensions {
        let mut number = [0; 4];
        from.read_exact(&mut number).map_err(cut)?;
        sizes.push(u32::from_be_bytes(number) as usize);
    }
    let total = sizes.iter().try_fold(1_u64, |n, size| n.checked_mul(*size as u64)).unwrap_or(u64::MAX);
    let header = 4 + 4 * dimensions as u64;
    if let Some(size) = size
        && size.saturating_sub(header) != total
    {
        return Err(Error::corrupt(format!(
            "{path} has {size} bytes, but its header announces {total} after {header}"
        ))
        .with_offset(size.min(total.saturating_add(header))));
    }
    limits.check_bytes(path, total)?;
    let len = usize::try_from(total).map_err(|_| Error::limit(path, total, usize::MAX as u64, "bytes"))?;
    let mut elements = Vec::new();
    // One byte more than announced tells whether anything is left over.
    reserve(&mut elements, len.saturating_add(1), path)?;
    from.take(total + 1).read_to_end(&mut elements).map_err(cut)?;
    match elements.len().cmp(&len) {
        std::cmp::Ordering::Less => Err(cut(std::io::ErrorKind::UnexpectedEof.into())),
        std::cmp::Ordering::Greater => {
            Err(Error::corrupt(format!("{path} has more than the {total} bytes its header announces")))
        }
        std::cmp::Ordering::Equal => Ok((sizes, elements)),
    }
}

impl Source for Mnist {
    fn name(&self) -> String {
        name_of(&self.spec)
    }

    fn spec(&self) -> SourceSpec {
        SourceSpec::Mnist(self.spec.clone())
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
        if field != 0 || index >= self.len() {
            return None;
        }
        let start = usize::try_from(index).ok()?.checked_mul(self.image_bytes)?;
        self.pixels.get(start..start.checked_add(self.image_bytes)?)
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
        Some(&self.classes)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::{source::conformance, store::LocalStore, testing::TempFolder};

    fn local() -> Arc<dyn Store> {
        Arc::new(LocalStore::new())
    }

    fn idx(sizes: &[u32], data: &[u8]) -> Vec<u8> {
        let mut file = vec![0, 0, 8, sizes.len() as u8];
        sizes.iter().for_each(|size| file.extend_from_slice(&size.to_be_bytes()));
        file.extend_from_slice(data);
        file
    }

    fn gz(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn open(root: &str, train: bool) -> Result<Mnist> {
        Mnist::open(&local(), MnistSpec { root: root.to_owned(), train })
    }

    fn images() -> Vec<u8> {
        idx(&[3, 4, 5], &(0..60).collect::<Vec<u8>>())
    }

    #[test]
    fn plain_and_compressed_files_give_the_same() {
        let folder = TempFolder::new();
        folder.write("a/train-images-idx3-ubyte", &images());
        folder.write("a/train-labels-idx1-ubyte", &idx(&[3], &[7, 0, 9]));
        folder.write("b/MNIST/raw/t10k-images.idx3-ubyte.gz", &gz(&images()));
        folder.write("b/MNIST/raw/t10k-labels-idx1-ubyte.gz", &gz(&idx(&[3], &[7, 0, 9])));
        for source in [open(&folder.join("a"), true).unwrap(), open(&folder.join("b"), false).unwrap()] {
            conformance::check(&source);
            let layout = PixelLayout::Hwc;
            let kind = FieldKind::Pixels { height: 4, width: 5, channels: 1, layout };
            assert_eq!(source.schema().fields[0].kind, kind);
            assert_eq!(source.resident(2, 0).unwrap(), (40..60).collect::<Vec<u8>>());
            assert_eq!((source.len(), source.classes().unwrap().len()), (3, 10));
        }
        let e = open(&folder.join("a"), false).unwrap_err();
        assert!(e.kind() == ErrorKind::NotFound && e.message().contains("t10k-images-idx3-ubyte"), "{e}");
        folder.write("b/FashionMNIST/raw/t10k-images-idx3-ubyte", &images());
        assert_eq!(open(&folder.join("b"), false).unwrap_err().kind(), ErrorKind::Config);
    }

    #[test]
    fn damage_is_an_error_and_allocates_nothing() {
        let folder = TempFolder::new();
        folder.write("train-labels-idx1-ubyte", &idx(&[3], &[7, 0, 9]));
        let fails = |bytes: &[u8]| {
            folder.write("train-images-idx3-ubyte", bytes);
            open(folder.path(), true).unwrap_err()
        };
        let whole = images();
        for cut in 0..whole.len() {
            assert_eq!(fails(&whole[..cut]).kind(), ErrorKind::Corrupt, "cut at {cut}");
        }
        assert!(fails(&[whole.as_slice(), b"x"].concat()).message().contains("77"));
        let packed = gz(&whole);
        for cut in 2..packed.len() {
            assert_eq!(fails(&packed[..cut]).kind(), ErrorKind::Corrupt, "cut at {cut}");
        }
        assert_eq!(fails(&gz(&[whole.as_slice(), b"x"].concat())).kind(), ErrorKind::Corrupt);
        assert_eq!(fails(&gz(&idx(&[u32::MAX; 3], b""))).kind(), ErrorKind::Limit);
        assert_eq!(fails(&idx(&[u32::MAX; 3], b"")).kind(), ErrorKind::Corrupt);
        assert_eq!(fails(&idx(&[3], &[1, 2, 3])).kind(), ErrorKind::Corrupt);
        let e = fails(&idx(&[2, 4, 5], &[0; 40]));
        assert!(e.message().contains("3 labels for the 2 images"), "{e}");
    }
}
