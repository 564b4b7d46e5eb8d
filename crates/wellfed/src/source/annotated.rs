//! Image files with what belongs to each: masks in files, boxes, labels, numbers. What the layouts of VOC and COCO are
//! read into, and what callers list themselves.
//!
//! Names and rows are held in memory: a sample of ten boxes takes about 300 bytes. Files are looked at when they are read.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{ArrayData, Fingerprint, Part, Source, SourceSpec, beyond_the_end, located, stamp};
use crate::{
    Error, ErrorKind, Limits, Result,
    io::{Bytes, Extent},
    sample::{DType, FieldKind, FieldSpec, Record, Schema, Structure, Value},
    store::{RetryingStore, Store, registry, reserve},
};

/// Listed images and what belongs to them, as data. The lists themselves are no part of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnnotatedSpec {
    /// Number of images.
    pub count: u64,
    /// What belongs to each image: masks, boxes, labels of boxes, points and whole numbers.
    pub fields: Vec<FieldSpec>,
    /// Options of the store that paths with a scheme lie in: any URL of that scheme which has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<String>,
}

/// What belongs to the images of a source, under one name.
#[derive(Clone, Debug)]
pub enum Annotation {
    /// A file of each image.
    Files(Vec<String>),
    /// Rows of numbers, any number an image.
    Rows {
        /// Elements of all images, in native byte order.
        bytes: Vec<u8>,
        /// For each image, where its elements end in `bytes`.
        ends: Vec<usize>,
    },
    /// One number of each image.
    Whole(Vec<i64>),
}

/// How a sample is handed out.
#[derive(Clone, Copy, Debug)]
pub(super) enum Nested {
    /// A dict of all fields.
    Dict,
    /// The image and the only other field.
    Pair,
    /// The image and a dict of the rest.
    Target,
}

impl Nested {
    fn structure(self, fields: &[FieldSpec]) -> Structure {
        let entry = |(at, field): (usize, &FieldSpec)| (field.name.clone(), Structure::Field(at));
        let entries =
            |skip: usize| Structure::Dict(fields.iter().enumerate().skip(skip).map(entry).collect());
        match self {
            Self::Dict => entries(0),
            Self::Pair => Structure::Tuple((0..fields.len()).map(Structure::Field).collect()),
            Self::Target => Structure::Tuple(vec![Structure::Field(0), entries(1)]),
        }
    }
}

/// Image files and what belongs to them. Fields: `image`, and those given.
#[derive(Debug)]
pub struct Annotated {
    store: Arc<dyn Store>,
    name: String,
    spec: SourceSpec,
    schema: Schema,
    images: Vec<String>,
    annotations: Vec<Annotation>,
    /// Length of what the names of all images begin with, up to and with a `/`.
    common: usize,
}

impl Annotated {
    /// Images in `store` with what belongs to each.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] if the numbers of entries differ.
    pub(super) fn new(
        store: Arc<dyn Store>,
        (name, spec, nested): (String, SourceSpec, Nested),
        images: Vec<String>,
        annotations: Vec<(FieldSpec, Annotation)>,
    ) -> Result<Self> {
        let mut fields = vec![FieldSpec { name: "image".to_owned(), kind: FieldKind::Image }];
        let mut given = Vec::with_capacity(annotations.len());
        for (field, annotation) in annotations {
            let entries = match &annotation {
                Annotation::Files(files) => files.len(),
                Annotation::Rows { ends, .. } => ends.len(),
                Annotation::Whole(numbers) => numbers.len(),
            };
            if entries != images.len() {
                let what = format!("{} has {entries} entries for {} images", field.name, images.len());
                return Err(Error::config(what).with_source(name));
            }
            if let Annotation::Rows { bytes, ends } = &annotation
                && (!ends.is_sorted() || ends.last().copied().unwrap_or(0) != bytes.len())
            {
                let what = format!("the rows of {} do not add up to its {} bytes", field.name, bytes.len());
                return Err(Error::config(what).with_source(name));
            }
            fields.push(field);
            given.push(annotation);
        }
        let folder = |path: &str| path.rfind('/').map_or(0, |at| at + 1);
        let common = images.first().map_or(0, |first| {
            images.iter().fold(folder(first), |common, path| {
                if path.get(..common) == first.get(..common) {
                    return common;
                }
                let same = first.bytes().zip(path.bytes()).take_while(|(a, b)| a == b).count();
                first[..same.min(common)].rfind('/').map_or(0, |at| at + 1)
            })
        });
        let schema = Schema { structure: nested.structure(&fields), fields };
        Ok(Self { store, name, spec, schema, images, annotations: given, common })
    }

    /// Listed by the caller: the paths of images, then for each field paths (uint8, with a zero byte between each two),
    /// rows and where they end (int64, in rows), or numbers (int64).
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] if the arrays are not what `spec` says.
    pub fn open(store: Arc<dyn Store>, spec: AnnotatedSpec, arrays: Vec<ArrayData>) -> Result<Self> {
        let name = format!("annotated_images({} paths)", spec.count);
        let mut arrays = arrays.into_iter();
        let mut next = |what: &str| {
            arrays
                .next()
                .ok_or_else(|| Error::config(format!("there is no array of {what}")).with_source(&name))
        };
        let images = paths(&next("images")?)?;
        if images.len() as u64 != spec.count {
            return Err(Error::config(format!(
                "{} paths were given for {} samples",
                images.len(),
                spec.count
            )));
        }
        let mut annotations = Vec::with_capacity(spec.fields.len());
        for field in &spec.fields {
            let first = next(&field.name)?;
            let annotation = match &field.kind {
                FieldKind::Mask { .. } => Annotation::Files(paths(&first)?),
                FieldKind::Boxes { dtype, .. } => rows(&first, &next(&field.name)?, *dtype, &[4])?,
                FieldKind::Keypoints => rows(&first, &next(&field.name)?, DType::Float32, &[2])?,
                FieldKind::BoxLabels { dtype } => rows(&first, &next(&field.name)?, *dtype, &[])?,
                FieldKind::Scalar { dtype: DType::Int64 } => {
                    Annotation::Whole((0..first.rows()).map(|i| first.whole(i)).collect::<Result<_>>()?)
                }
                other => {
                    return Err(Error::config(format!("{} is {other:?}, which is not read", field.name)));
                }
            };
            annotations.push((field.clone(), annotation));
        }
        let masks = annotations.iter().flat_map(|(_, annotation)| match annotation {
            Annotation::Files(files) => files.as_slice(),
            _ => &[],
        });
        let listed = images.iter().chain(masks).map(String::as_str);
        let store = registry::locate_listed(listed, spec.storage.as_deref(), &store)
            .map_err(|e| e.with_source(&name))?;
        let store = RetryingStore::around(store);
        Self::new(store, (name, SourceSpec::Annotated(spec), Nested::Dict), images, annotations)
    }
}

impl Annotated {
    /// Makes the record of sample `index`; `read` gets the bytes of its files, the image first.
    fn fill(
        &self,
        index: u64,
        record: &mut Record,
        mut read: impl FnMut(&str, &mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        let Some(image) = self.images.get(at) else { return Err(beyond_the_end(self, index)) };
        record.reset(self.schema.fields.len());
        let (first, rest) = record.values.split_at_mut(1);
        read(image, first[0].buffer()).map_err(|e| located(e, self, index))?;
        for (value, annotation) in rest.iter_mut().zip(&self.annotations) {
            match annotation {
                Annotation::Files(files) => {
                    read(&files[at], value.buffer()).map_err(|e| located(e, self, index))?;
                }
                Annotation::Rows { bytes, ends } => {
                    let start = at.checked_sub(1).map_or(0, |before| ends[before]);
                    value.buffer().extend_from_slice(&bytes[start..ends[at]]);
                }
                Annotation::Whole(numbers) => *value = Value::Int(numbers[at]),
            }
        }
        Ok(())
    }
}

/// Paths with a zero byte between each two.
fn paths(text: &ArrayData) -> Result<Vec<String>> {
    let text = std::str::from_utf8(text.bytes())
        .map_err(|e| Error::config(format!("paths are not UTF-8: byte {} is invalid", e.valid_up_to())))?;
    Ok(if text.is_empty() { Vec::new() } else { text.split('\0').map(str::to_owned).collect() })
}

/// Rows of `dtype` and shape `row`, and after how many rows each image's end.
fn rows(values: &ArrayData, ends: &ArrayData, dtype: DType, row: &[usize]) -> Result<Annotation> {
    if values.dtype() != dtype || values.shape().get(1..) != Some(row) {
        let what = format!("rows are {values:?} instead of {} [n, {row:?}]", dtype.name());
        return Err(Error::config(what));
    }
    let size = dtype.size() * row.iter().product::<usize>();
    let end = |i: usize| {
        let end = ends.whole(i)?;
        usize::try_from(end)
            .ok()
            .filter(|&end| end <= values.rows())
            .map(|end| end * size)
            .ok_or_else(|| Error::config(format!("rows of image {i} end at {end}, of {}", values.rows())))
    };
    Ok(Annotation::Rows {
        bytes: values.bytes().to_vec(),
        ends: (0..ends.rows()).map(end).collect::<Result<_>>()?,
    })
}

impl Source for Annotated {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn spec(&self) -> SourceSpec {
        self.spec.clone()
    }

    fn len(&self) -> u64 {
        self.images.len() as u64
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The path of the image below the folder of all, with its number, since a file may be listed twice.
    fn key(&self, index: u64) -> String {
        let path = usize::try_from(index).ok().and_then(|index| self.images.get(index));
        path.map_or_else(String::new, |path| format!("{}#{index}", &path[self.common..]))
    }

    fn own_name(&self, index: u64) -> String {
        let path = usize::try_from(index).ok().and_then(|index| self.images.get(index));
        path.map_or_else(String::new, |path| path[self.common..].to_owned())
    }

    fn fetch(&self, index: u64, record: &mut Record) -> Result<()> {
        let max_bytes = record.limits.max_bytes;
        self.fill(index, record, |path, into| self.store.read(path, max_bytes, into))
    }

    fn store(&self) -> Option<&Arc<dyn Store>> {
        Some(&self.store)
    }

    fn locate(&self, index: u64, limits: &Limits, extents: &mut Vec<Extent>) -> Result<()> {
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        let Some(image) = self.images.get(at) else { return Err(beyond_the_end(self, index)) };
        let masks = self.annotations.iter().filter_map(|annotation| match annotation {
            Annotation::Files(files) => Some(&files[at]),
            _ => None,
        });
        extents.extend([image].into_iter().chain(masks).map(|path| Extent::whole(&**path, limits.max_bytes)));
        Ok(())
    }

    fn assemble(&self, index: u64, pieces: &[Bytes], record: &mut Record) -> Result<()> {
        let mut pieces = pieces.iter();
        self.fill(index, record, |path, into| {
            let piece = pieces.next().ok_or_else(|| Error::new(ErrorKind::Internal, "a piece is missing"))?;
            reserve(into, piece.len(), path)?;
            into.extend_from_slice(piece);
            Ok(())
        })
    }

    fn number(&self, index: u64, field: usize) -> Option<i64> {
        match self.annotations.get(field.checked_sub(1)?)? {
            Annotation::Whole(numbers) => numbers.get(usize::try_from(index).ok()?).copied(),
            _ => None,
        }
    }

    fn parts(&self) -> Vec<Part> {
        let folder = self.images.first().map_or("", |first| &first[..self.common]);
        vec![Part {
            name: if folder.is_empty() { ".".to_owned() } else { folder.to_owned() },
            beside: (!matches!(folder, "" | "/")).then(|| folder.to_owned()),
            store: self.store.clone(),
            samples: 0..self.len(),
        }]
    }

    fn fingerprint(&self) -> u64 {
        let mut hash = Fingerprint::new(&self.schema, self.len());
        self.images.iter().for_each(|path| hash.add(&path.as_bytes()[self.common..]));
        for annotation in &self.annotations {
            match annotation {
                // They lie where the images do, or not: their last names tell them apart.
                Annotation::Files(files) => files
                    .iter()
                    .for_each(|path| hash.add(path.rsplit('/').next().unwrap_or_default().as_bytes())),
                Annotation::Rows { bytes, ends } => {
                    hash.add(bytes);
                    ends.iter().for_each(|end| hash.add(&end.to_ne_bytes()));
                }
                Annotation::Whole(numbers) => numbers.iter().for_each(|n| hash.add(&n.to_ne_bytes())),
            }
        }
        hash.finish()
    }

    fn stamp(&self, index: u64) -> Option<u64> {
        let path = self.images.get(usize::try_from(index).ok()?)?;
        Some(stamp(path, &self.store.stat(path).ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{sample::BoxFormat, source::conformance, store::LocalStore, testing::TempFolder};

    fn text(paths: &[String]) -> ArrayData {
        let text = paths.join("\0").into_bytes();
        let len = text.len();
        ArrayData::from_vec(text, DType::UInt8, vec![len]).unwrap()
    }

    fn whole(numbers: &[i64]) -> ArrayData {
        let bytes = numbers.iter().flat_map(|n| n.to_ne_bytes()).collect();
        ArrayData::from_vec(bytes, DType::Int64, vec![numbers.len()]).unwrap()
    }

    #[test]
    fn what_belongs_to_an_image_comes_with_it() {
        let folder = TempFolder::new();
        for name in ["x/a.jpg", "x/b.jpg", "m/a.png", "m/b.png"] {
            folder.write(name, name.as_bytes());
        }
        let field = |name: &str, kind| FieldSpec { name: name.to_owned(), kind };
        let spec = AnnotatedSpec {
            count: 2,
            fields: vec![
                field("mask", FieldKind::Mask { dtype: DType::UInt8, grey: false }),
                field("boxes", FieldKind::Boxes { format: BoxFormat::Xyxy, dtype: DType::Float32 }),
                field("labels", FieldKind::BoxLabels { dtype: DType::Int64 }),
                field("id", FieldKind::LABEL),
            ],
            storage: None,
        };
        let boxes: Vec<u8> = (0..8).flat_map(|v| (v as f32).to_ne_bytes()).collect();
        let arrays = |ends: &[i64]| {
            vec![
                text(&["x/a.jpg", "x/b.jpg"].map(|p| folder.join(p))),
                text(&["m/a.png", "m/b.png"].map(|p| folder.join(p))),
                ArrayData::from_vec(boxes.clone(), DType::Float32, vec![2, 4]).unwrap(),
                whole(ends),
                whole(&[7, 8]),
                whole(ends),
                whole(&[70, 80]),
            ]
        };
        let store = || Arc::new(LocalStore::new());
        let source = Annotated::open(store(), spec.clone(), arrays(&[0, 2])).unwrap();
        conformance::check(&source);
        assert_eq!(source.key(1), "b.jpg#1");
        let mut record = Record::default();
        source.fetch(0, &mut record).unwrap();
        assert_eq!(record.values[2], Value::Bytes(Vec::new()));
        source.fetch(1, &mut record).unwrap();
        assert_eq!(record.values[1], Value::Bytes(b"m/b.png".to_vec()));
        assert_eq!((record.values[2].len(), &record.values[4]), (32, &Value::Int(80)));
        assert_eq!((source.number(1, 4), source.number(1, 3), source.number(2, 4)), (Some(80), None, None));
        for ends in [&[0, 1][..], &[0, 3], &[2, 0], &[2]] {
            assert!(Annotated::open(store(), spec.clone(), arrays(ends)).is_err(), "{ends:?}");
        }
    }
}
