//! An explicit list of image files, with or without labels: samples that somebody else has listed.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    ArrayData, Fingerprint, Part, Source, SourceSpec, beyond_the_end, copy_image, file_list::FileList,
    located,
};
use crate::{
    Error, Limits, Result,
    io::{Bytes, Extent},
    sample::{DType, FieldKind, Record, Schema, Value},
    store::Store,
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
    spec: ImageFilesSpec,
    schema: Schema,
    files: FileList,
    labels: Option<ArrayData>,
}

impl ImageFiles {
    /// The files of `text` (uint8: paths in UTF-8, with a zero byte between each two) in `store`, or in the one store that
    /// all of them name by URL, with their labels (int64).
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] if text and labels are not what `spec` says, or a path is empty or no UTF-8; what
    /// [`crate::store::registry::locate_listed`] says.
    pub fn open(store: Arc<dyn Store>, spec: ImageFilesSpec, arrays: Vec<ArrayData>) -> Result<Self> {
        Self::build(&store, spec, arrays).map_err(|e| e.with_source("image_files"))
    }

    fn build(store: &Arc<dyn Store>, spec: ImageFilesSpec, arrays: Vec<ArrayData>) -> Result<Self> {
        let mut arrays = arrays.into_iter();
        let (text, labels, rest) = (arrays.next(), arrays.next(), arrays.next());
        let Some(text) = text.filter(|text| text.dtype() == DType::UInt8 && rest.is_none()) else {
            return Err(Error::config("needs the paths as one array of uint8, and labels"));
        };
        check_labels(labels.as_ref(), spec.labels, spec.count)?;
        let files = FileList::open(store, spec.storage.as_deref(), text, spec.count)?;
        let schema = image_schema(spec.labels);
        Ok(Self { spec, schema, files, labels })
    }

    fn set_label(&self, index: u64, record: &mut Record) -> Result<()> {
        if let (Some(value), Some(labels)) = (record.values.get_mut(1), &self.labels) {
            *value = Value::Int(labels.whole(index as usize).map_err(|e| located(e, self, index))?);
        }
        Ok(())
    }

    /// Path of sample `index`, as given.
    pub fn path(&self, index: u64) -> Option<&str> {
        self.files.path(index)
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
        self.files.key(index)
    }

    fn own_name(&self, index: u64) -> String {
        self.files.own_name(index)
    }

    fn fetch(&self, index: u64, record: &mut Record) -> Result<()> {
        let Some(path) = self.path(index) else { return Err(beyond_the_end(self, index)) };
        record.reset(self.schema.fields.len());
        let max_bytes = record.limits.max_bytes;
        let image = record.values[0].buffer();
        self.files.store().read(path, max_bytes, image).map_err(|e| located(e, self, index))?;
        self.set_label(index, record)
    }

    fn store(&self) -> Option<&Arc<dyn Store>> {
        Some(self.files.store())
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
        let folder = self.files.folder();
        let beside = !matches!(folder, "" | "/");
        vec![Part {
            name: if folder.is_empty() { ".".to_owned() } else { folder.to_owned() },
            beside: beside.then(|| folder.to_owned()),
            store: self.files.store().clone(),
            samples: 0..self.spec.count,
        }]
    }

    fn number(&self, index: u64, field: usize) -> Option<i64> {
        let labels = self.labels.as_ref().filter(|_| field == 1)?;
        labels.whole(usize::try_from(index).ok()?).ok()
    }

    fn fingerprint(&self) -> u64 {
        let mut hash = Fingerprint::new(&self.schema, self.spec.count);
        self.files.identify(&mut hash);
        hash.finish()
    }

    fn stamp(&self, index: u64) -> Option<u64> {
        let label = self.labels.as_ref().and_then(|labels| labels.whole(index as usize).ok());
        self.files.stamp(index, &format!("{label:?}"))
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
