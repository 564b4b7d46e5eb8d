//! An explicit list of image files, with or without labels: samples that somebody else has listed.
//!
//! Paths lie in one text, which the caller keeps; a million of them take 8 MB beside it. Nothing is looked at before a
//! sample is fetched.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    ArrayData, Fingerprint, Part, Source, SourceSpec, beyond_the_end, copy_image, located, location, stamp,
};
use crate::{
    Error, Limits, Result,
    io::{Bytes, Extent},
    sample::{DType, FieldKind, Record, Schema, Value},
    store::{RetryingStore, Store, registry, secrets},
};

/// A list of files as data. The paths themselves are no part of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageFilesSpec {
    /// Number of files.
    pub count: u64,
    /// Whether samples are (image, label).
    pub labels: bool,
    /// Options of the store that paths with a scheme lie in: any URL of that scheme which has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<String>,
}

/// Image files by their paths. Fields: `image`, and `label` if there are labels.
#[derive(Debug)]
pub struct ImageFiles {
    store: Arc<dyn Store>,
    spec: ImageFilesSpec,
    schema: Schema,
    /// Paths, each but the last followed by a zero byte.
    text: ArrayData,
    /// Where each path ends in the text.
    ends: Vec<u64>,
    /// Samples whose path occurred before, so that keys stay unique.
    again: Vec<u64>,
    labels: Option<ArrayData>,
    /// Length of the folder that all files have in common, up to and with its `/`.
    common: usize,
}

impl ImageFiles {
    /// The files of `text` (uint8: paths in UTF-8, with a zero byte between each two) in `store`, or in the one store that
    /// all of them name by URL, with their labels (int64).
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] if text and labels are not what `spec` says, or a path is empty or no UTF-8; what
    /// [`registry::locate_listed`] says.
    pub fn open(store: Arc<dyn Store>, spec: ImageFilesSpec, arrays: Vec<ArrayData>) -> Result<Self> {
        Self::build(store, spec, arrays).map_err(|e| e.with_source("image_files"))
    }

    fn build(store: Arc<dyn Store>, spec: ImageFilesSpec, arrays: Vec<ArrayData>) -> Result<Self> {
        let mut arrays = arrays.into_iter();
        let (text, labels, rest) = (arrays.next(), arrays.next(), arrays.next());
        let Some(text) = text.filter(|text| text.dtype() == DType::UInt8 && rest.is_none()) else {
            return Err(Error::config("needs the paths as one array of uint8, and labels"));
        };
        check_labels(labels.as_ref(), spec.labels, spec.count)?;
        let bytes = text.bytes();
        std::str::from_utf8(bytes).map_err(|e| {
            let index = bytes[..e.valid_up_to()].iter().filter(|byte| **byte == 0).count();
            Error::config(format!("path {index} is not UTF-8"))
                .with_hint("rename it, for example with convmv")
        })?;
        let paths = || bytes.split(|byte| *byte == 0).take(if spec.count == 0 { 0 } else { usize::MAX });
        let mut ends = Vec::with_capacity(usize::try_from(spec.count).unwrap_or(0).min(bytes.len() + 1));
        let mut end = 0;
        for path in paths() {
            if path.is_empty() {
                return Err(Error::config(format!("path {} is empty", ends.len())));
            }
            end += path.len() as u64;
            ends.push(end);
            end += 1;
        }
        if ends.len() as u64 != spec.count || (spec.count == 0 && !bytes.is_empty()) {
            let found = ends.len();
            return Err(Error::config(format!("{found} paths were given for {} samples", spec.count))
                .with_hint("a path cannot contain a zero byte"));
        }
        let again = repeated(paths());
        let common = common_folder(paths());
        let schema = image_schema(spec.labels);
        let listed = paths().map(|path| std::str::from_utf8(path).unwrap_or_default());
        let store = registry::locate_listed(listed, spec.storage.as_deref(), &store)?;
        let store = RetryingStore::around(store);
        Ok(Self { store, spec, schema, text, ends, again, labels, common })
    }

    fn set_label(&self, index: u64, record: &mut Record) -> Result<()> {
        if let (Some(value), Some(labels)) = (record.values.get_mut(1), &self.labels) {
            *value = Value::Int(labels.whole(index as usize).map_err(|e| located(e, self, index))?);
        }
        Ok(())
    }

    /// Path of sample `index`, as given.
    pub fn path(&self, index: u64) -> Option<&str> {
        let index = usize::try_from(index).ok()?;
        let end = *self.ends.get(index)?;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before] + 1);
        // Both lie in the text, which was UTF-8 when it was opened.
        std::str::from_utf8(self.text.bytes().get(start as usize..end as usize)?).ok()
    }
}

/// Schema of a source of encoded images.
pub(super) fn image_schema(labels: bool) -> Schema {
    if labels {
        Schema::tuple([("image", FieldKind::Image), ("label", FieldKind::LABEL)])
    } else {
        Schema::single("image", FieldKind::Image)
    }
}

/// Checks that labels are there if they are wanted, one int64 a sample.
pub(super) fn check_labels(labels: Option<&ArrayData>, wanted: bool, count: u64) -> Result<()> {
    let given = labels.map(|array| (array.dtype(), array.shape().to_vec()));
    let expected = wanted.then(|| (DType::Int64, vec![usize::try_from(count).unwrap_or(usize::MAX)]));
    if given == expected {
        return Ok(());
    }
    Err(Error::config(match (labels, wanted) {
        (Some(labels), true) => format!("labels are {labels:?} instead of int64 [{count}]"),
        (Some(_), false) => "labels were given for samples without".to_owned(),
        (None, _) => format!("there are no labels for {count} samples"),
    }))
}

/// Indices, in order, of paths that occurred before.
fn repeated<'a>(paths: impl Iterator<Item = &'a [u8]>) -> Vec<u64> {
    // Two paths of one hash are so unlikely that a needless mark on a key does not matter.
    let mut hashes: Vec<(u64, u64)> = paths.map(rapidhash::v3::rapidhash_v3).zip(0..).collect();
    hashes.sort_unstable();
    let mut again: Vec<u64> =
        hashes.windows(2).filter(|pair| pair[0].0 == pair[1].0).map(|pair| pair[1].1).collect();
    again.sort_unstable();
    again
}

/// Length of the longest folder, with its `/`, that all paths begin with.
fn common_folder<'a>(mut paths: impl Iterator<Item = &'a [u8]>) -> usize {
    let Some(first) = paths.next() else { return 0 };
    let folder = |path: &[u8]| path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    paths.fold(folder(first), |common, path| {
        let same = first[..common].iter().zip(path).take_while(|(a, b)| a == b).count();
        if same == common { common } else { folder(&first[..same]) }
    })
}

impl Source for ImageFiles {
    fn name(&self) -> String {
        format!("image_files({} paths)", self.spec.count)
    }

    fn spec(&self) -> SourceSpec {
        SourceSpec::Files(self.spec.clone())
    }

    fn len(&self) -> u64 {
        self.spec.count
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn key(&self, index: u64) -> String {
        // Keys are shown and kept.
        let path = secrets::masked(self.path(index).unwrap_or_default());
        if self.again.binary_search(&index).is_ok() { format!("{path}#{index}") } else { path }
    }

    fn own_name(&self, index: u64) -> String {
        secrets::masked(self.path(index).unwrap_or_default()).to_string()
    }

    fn fetch(&self, index: u64, record: &mut Record) -> Result<()> {
        let Some(path) = self.path(index) else { return Err(beyond_the_end(self, index)) };
        record.reset(self.schema.fields.len());
        let max_bytes = record.limits.max_bytes;
        let image = record.values[0].buffer();
        self.store.read(path, max_bytes, image).map_err(|e| located(e, self, index))?;
        self.set_label(index, record)
    }

    fn store(&self) -> Option<&Arc<dyn Store>> {
        Some(&self.store)
    }

    fn locate(&self, index: u64, limits: &Limits, extents: &mut Vec<Extent>) -> Result<()> {
        let Some(path) = self.path(index) else { return Err(beyond_the_end(self, index)) };
        extents.push(Extent::whole(path, limits.max_bytes));
        Ok(())
    }

    fn assemble(&self, index: u64, pieces: &[Bytes], record: &mut Record) -> Result<()> {
        if index >= self.len() {
            return Err(beyond_the_end(self, index));
        }
        record.reset(self.schema.fields.len());
        copy_image(pieces, record).map_err(|e| located(e, self, index))?;
        self.set_label(index, record)
    }

    /// One part: the folder that all files lie in, under the name that `image_folder` gives it, so that both find the
    /// same row indexes.
    fn parts(&self) -> Vec<Part> {
        let folder = self.path(0).and_then(|path| path.get(..self.common)).unwrap_or_default();
        let beside = !matches!(folder, "" | "/");
        vec![Part {
            name: if folder.is_empty() { ".".to_owned() } else { folder.to_owned() },
            beside: beside.then(|| folder.to_owned()),
            store: self.store.clone(),
            samples: 0..self.spec.count,
        }]
    }

    fn number(&self, index: u64, field: usize) -> Option<i64> {
        let labels = self.labels.as_ref().filter(|_| field == 1)?;
        labels.whole(usize::try_from(index).ok()?).ok()
    }

    fn fingerprint(&self) -> u64 {
        let mut hash = Fingerprint::new(&self.schema, self.spec.count);
        let far = self.path(0).is_some_and(|path| path.contains("://"));
        for path in self.text.bytes().split(|byte| *byte == 0) {
            let path = path.get(self.common..).unwrap_or_default();
            if far {
                // The part that is common says that it is a URL, and of which kind.
                let common = self.path(0).and_then(|first| first.get(..self.common)).unwrap_or_default();
                let name = secrets::identity(&format!("{common}{}", String::from_utf8_lossy(path)));
                hash.add(name.get(self.common..).unwrap_or_default().as_bytes());
            } else {
                hash.add(path);
            }
        }
        hash.finish()
    }

    fn stamp(&self, index: u64) -> Option<u64> {
        let path = self.path(index)?;
        let label = self.labels.as_ref().and_then(|labels| labels.whole(index as usize).ok());
        Some(stamp(&format!("{}\0{label:?}", location(path)), &self.store.stat(path).ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Structure;
    use crate::{ErrorKind, source::conformance, store::LocalStore, testing::TempFolder};

    fn open(paths: &[&str], labels: Option<&[i64]>) -> Result<ImageFiles> {
        let text = paths.join("\0").into_bytes();
        let len = text.len();
        let mut arrays = vec![ArrayData::from_vec(text, DType::UInt8, vec![len])?];
        if let Some(labels) = labels {
            let bytes = labels.iter().flat_map(|label| label.to_ne_bytes()).collect();
            arrays.push(ArrayData::from_vec(bytes, DType::Int64, vec![labels.len()])?);
        }
        let spec = ImageFilesSpec { count: paths.len() as u64, labels: labels.is_some(), storage: None };
        ImageFiles::open(Arc::new(LocalStore::new()), spec, arrays)
    }

    #[test]
    fn files_come_as_listed_also_twice_and_missing_ones_are_errors() {
        let folder = TempFolder::new();
        folder.write("x/b.jpg", b"bb");
        folder.write("x/a.jpg", b"a");
        folder.write("x/y/é.png", b"ccc");
        let paths: Vec<String> =
            ["x/b.jpg", "x/a.jpg", "x/none.jpg", "x/b.jpg", "x/y/é.png"].map(|p| folder.join(p)).to_vec();
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        let source = open(&paths, Some(&[5, -1, 7, 5, 0])).unwrap();
        conformance::check(&source);
        assert_eq!(source.len(), 5);
        assert_eq!((source.key(1), source.key(3)), (paths[1].to_owned(), format!("{}#3", paths[0])));
        let mut record = Record::default();
        source.fetch(1, &mut record).unwrap();
        assert_eq!(record.values, [Value::Bytes(b"a".to_vec()), Value::Int(-1)]);
        let error = source.fetch(2, &mut record).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.message().contains(paths[2]), "{error}");
        assert_eq!(source.parts()[0].beside.as_deref(), Some(&*folder.join("x/")));
        assert!(source.stamp(0).is_some() && source.stamp(2).is_none());
        assert_eq!(source.stamp(0), source.stamp(3));

        let bare = open(&paths[..2], None).unwrap();
        conformance::check(&bare);
        assert_eq!(bare.schema().structure, Structure::Field(0));
        conformance::check(&open(&[], None).unwrap());
    }

    #[test]
    fn the_common_folder_ends_with_a_separator() {
        let common = |paths: &[&str]| common_folder(paths.iter().map(|path| path.as_bytes()));
        assert_eq!(common(&["d/train/a/1", "d/train/b/1"]), "d/train/".len());
        assert_eq!(common(&["d/train/ab", "d/train/abc"]), "d/train/".len());
        assert_eq!(common(&["d/ab/1", "d/a/1", "d/ab/1"]), "d/".len());
        assert_eq!(common(&["a", "b"]), 0);
        assert_eq!(common(&["/a/1", "/b/1"]), 1);
        assert_eq!(common(&[]), 0);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let message = |result: Result<ImageFiles>| result.unwrap_err().to_string();
        assert!(message(open(&["a", "", "b"], None)).contains("path 1 is empty"));
        assert!(message(open(&["a\0b"], None)).contains("2 paths were given for 1"));
        assert!(message(open(&["a", "b"], Some(&[1]))).contains("int64 [1] instead of int64 [2]"));
        let text = ArrayData::from_vec(b"a\0\xff".to_vec(), DType::UInt8, vec![3]).unwrap();
        let spec = ImageFilesSpec { count: 2, labels: false, storage: None };
        let store = Arc::new(LocalStore::new());
        assert!(
            message(ImageFiles::open(store.clone(), spec.clone(), vec![text]))
                .contains("path 1 is not UTF-8")
        );
        assert!(ImageFiles::open(store, spec, vec![]).is_err());
    }
}
