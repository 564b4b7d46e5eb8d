//! Where samples come from: a [`Source`] enumerates samples and fetches one by index.
//!
//! One file a format. Sources never open files themselves: bytes come from a [`crate::store::Store`].
//! Every source passes the conformance suite in `conformance.rs`.

pub mod annotated;
pub mod array_files;
pub mod audio_files;
pub mod beton;
pub mod cifar;
pub mod coco;
pub mod conformance;
pub(crate) mod counter;
mod datum;
pub mod durations;
pub mod encoded;
mod example;
pub(crate) mod example_writer;
pub mod features;
mod file_list;
pub mod files;
pub mod gather;
pub mod hdf5;
pub mod image_folder;
pub mod jsonl;
pub mod litdata;
pub mod lmdb;
pub mod mds;
pub mod mnist;
mod mp3_part;
mod msgpack;
mod npy;
mod pickle;
mod plain_png;
mod proto_wire;
mod python;
pub mod shards;
pub mod spec;
pub mod tables;
mod tar_header;
mod tar_index;
mod tar_links;
mod tar_shard;
mod tar_sidecar;
pub mod tensor_slices;
pub mod tfrecord;
mod tfrecord_framing;
mod tfrecord_index;
mod tfrecord_sidecar;
mod unpack;
mod unpack_to;
pub mod voc;
mod wav_part;
pub mod webdataset;
mod zip_index;

use std::{fmt, ops::Range, sync::Arc};

pub use annotated::{Annotated, AnnotatedSpec};
pub use array_files::{ArrayFiles, ArrayFilesSpec, ArrayFormat};
pub use audio_files::{AudioFiles, AudioFilesSpec};
pub use beton::{Beton, BetonSpec};
pub use cifar::{Cifar, Cifar10Spec, Cifar100Label, Cifar100Spec};
pub use coco::{CocoDetectionSpec, coco_detection};
pub use durations::{Durations, KeptDurations, durations};
pub use encoded::{EncodedImages, EncodedImagesSpec};
pub use example::FoundFeature;
pub use features::{FeatureDefault, FeatureForm, FeatureSpec, FeatureType};
pub use files::{ImageFiles, ImageFilesSpec};
pub use gather::{Gather, Lists, Wanted};
pub use hdf5::Hdf5Spec;
pub use image_folder::{AUDIO_EXTENSIONS, IMG_EXTENSIONS, ImageFolder, ImageFolderSpec, Labels};
pub use jsonl::{JsonField, JsonLines, JsonLinesSpec};
pub use litdata::{LitData, LitDataSpec};
pub use lmdb::{Lmdb, LmdbKey, LmdbKeys, LmdbSpec, LmdbValue};
pub(crate) use mds::hash_of;
pub use mds::{Mds, MdsSpec};
pub use mnist::{Mnist, MnistSpec};
pub(crate) use npy::file_of as npy_file;
pub(crate) use python::PythonSamples;
pub use python::PythonSpec;
use serde::Serialize;
pub use spec::SourceSpec;
pub use tables::{CsvSpec, TableFormat, TableSpec};
pub(crate) use tar_shard::{CheckScratch, Shard};
pub use tensor_slices::{ArrayData, ArraySpec, Pixels, RaggedData, Rows, TensorSlices, TensorSlicesSpec};
pub use tfrecord::{TfRecord, TfRecordCompression, TfRecordSpec};
pub(crate) use tfrecord_framing::record_frame;
pub use unpack::{unpacked, unpacked_into, whole_files};
pub use voc::{VocSegmentationSpec, voc_segmentation};
pub use webdataset::{IndexMode, WebDataset, WebDatasetSpec};
pub(crate) use webdataset::{PACKED, kind_of as kind_of_extension};

use crate::{
    Error, ErrorKind, Limits, Result,
    groups::{GroupSizes, Warmed},
    io::{Bytes, Extent},
    sample::{FieldKind, FieldSpec, PixelLayout, Record, Schema},
    store::{self, Stat, Store},
};

/// Samples of a source that lie together: in a folder or a shard.
#[derive(Clone, Debug)]
pub struct Part {
    /// Where they lie, as the user wrote it or as a path.
    pub name: String,
    /// What a file that is kept beside them begins with: its extension follows. `None` where there is no such place.
    pub beside: Option<String>,
    /// Where `beside` is.
    pub store: Arc<dyn Store>,
    /// The samples.
    pub samples: Range<u64>,
}

/// A finite, randomly accessible set of samples.
///
/// Implementations are shared by all workers and never change after construction: `fetch` of an index is a
/// pure function of the bytes in the store.
pub trait Source: Send + Sync + fmt::Debug {
    /// How it was asked for, for messages: `image_folder(data/train)`.
    fn name(&self) -> String;

    /// The same with some columns as one field; `None` of what has no columns.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] for columns that there are not, or that the encoding does not fit.
    fn stacked(&self, _stack: &tables::Stack) -> Option<Result<Arc<dyn Source>>> {
        None
    }

    /// How to open it again, as data.
    fn spec(&self) -> SourceSpec {
        SourceSpec::Custom { name: self.name() }
    }

    /// Number of samples.
    fn len(&self) -> u64;

    /// True if there is no sample.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fields of every sample.
    fn schema(&self) -> &Schema;

    /// Stable identity of sample `index` for people: a relative path, a tar key, or the number itself. Unique in
    /// its source. Empty beyond the end.
    fn key(&self, index: u64) -> String;

    /// What sample `index` is called by itself, wherever it lies: what its key in a shard is made of when it is written.
    /// Need not be unique.
    fn own_name(&self, index: u64) -> String {
        self.key(index)
    }

    /// Reads sample `index` into `record`: a value for every field of the schema. No field is larger than
    /// `record.limits` allows.
    ///
    /// # Errors
    /// What is wrong with this one sample, with offset and stage `read`. Other samples stay readable.
    /// `index >= len()` is a [`crate::ErrorKind::NotFound`] error.
    fn fetch(&self, index: u64, record: &mut Record) -> Result<()>;

    /// Where the bytes that [`Source::locate`] names lie. `None`: samples need none, or the source cannot name them.
    fn store(&self) -> Option<&Arc<dyn Store>> {
        None
    }

    /// Appends the byte ranges that sample `index` needs to `extents`. None of them is larger than `limits` allows, as
    /// far as that is known before reading.
    ///
    /// # Errors
    /// As [`Source::fetch`], for what is known to be wrong without the bytes.
    fn locate(&self, index: u64, limits: &Limits, extents: &mut Vec<Extent>) -> Result<()> {
        let _ = (limits, extents);
        Err(cannot_locate(self.name(), index))
    }

    /// Makes the record of sample `index` of the bytes that have arrived: one piece for each range that
    /// [`Source::locate`] named, in its order. Gives what [`Source::fetch`] gives, and does no input or output.
    ///
    /// # Errors
    /// As [`Source::fetch`].
    fn assemble(&self, index: u64, pieces: &[Bytes], record: &mut Record) -> Result<()> {
        let _ = (pieces, record);
        Err(cannot_locate(self.name(), index))
    }

    /// The bytes of `field` of sample `index` that `fetch` left as [`crate::sample::Value::Resident`].
    fn resident(&self, _index: u64, _field: usize) -> Option<&[u8]> {
        None
    }

    /// Length of `field` of sample `index` along its first dimension, if that is known without reading the sample:
    /// what batches are cut by. In O(1).
    fn length(&self, _index: u64, _field: usize) -> Option<u64> {
        None
    }

    /// Where the durations of sounds are kept once they are found out ([`durations()`]). `None`: the source has no sounds, or cannot
    /// look at one of them without much else.
    fn kept_durations(&self) -> Option<&KeptDurations> {
        None
    }

    /// Seconds of the sound in `field` of sample `index`, found out with a look at its file. `record` is memory to work in.
    ///
    /// # Errors
    /// As [`Source::fetch`]; for bytes that are no sound, as decoding says.
    fn duration(&self, index: u64, field: usize, record: &mut Record) -> Result<f64> {
        self.fetch(index, record)?;
        durations::of_record(record, field)
            .map_err(|e| e.with_sample(self.key(index), index).with_source(self.name()))
    }

    /// True if fetching needs no input or output, so that read-ahead would only cost.
    fn in_memory(&self) -> bool {
        false
    }

    /// The parts of the source, in the order of samples, for what is kept beside them. Empty for sources that are
    /// not made of stored images.
    fn parts(&self) -> Vec<Part> {
        Vec::new()
    }

    /// A number that changes when the stored bytes of sample `index` do: a hash of where they lie, their size and
    /// the time of the last change of the file that holds them. Nothing but that is looked at, never the bytes.
    /// `None` where the source cannot say.
    fn stamp(&self, _index: u64) -> Option<u64> {
        None
    }

    /// The number in `field` of sample `index`, if it is known without reading the sample.
    fn number(&self, _index: u64, _field: usize) -> Option<i64> {
        None
    }

    /// What the source has in groups of samples that are decoded at once, if it has. It keeps those it decoded in
    /// [`Record::groups`].
    fn groups(&self) -> Option<GroupSizes> {
        None
    }

    /// The number of the group that sample `index` lies in, if it lies in one.
    fn group_of(&self, _index: u64) -> Option<u64> {
        None
    }

    /// The store that the bytes of groups lie in ([`crate::groups::Decode::extents`]), if it answers later: they are then read
    /// before they are wanted.
    fn groups_store(&self) -> Option<&Arc<dyn Store>> {
        None
    }

    /// Decodes a group before it is wanted, if there is room in [`Record::groups`] (see [`crate::groups::warm`]).
    fn warm(&self, _group: u64, _record: &Record) -> Warmed {
        Warmed::Done
    }

    /// Copies `field` of the samples from `index` on into `into`, which has room for whole samples, as far as that takes no
    /// more than copying memory; gives how many samples were copied. What it cannot copy, [`Source::fetch`] will say. The
    /// field has one fixed size.
    fn copy_rows(&self, _index: u64, _field: usize, _record: &Record, _into: &mut [u8]) -> u64 {
        0
    }

    /// Whether [`Source::gather`] may copy something. Sources that say so without groups have samples of a few kilobytes at most,
    /// in files of this machine.
    fn gathers(&self) -> bool {
        self.groups().is_some()
    }

    /// Whether [`Source::gather`] takes texts and byte strings along, by [`Gather::lists`].
    fn gathers_lists(&self) -> bool {
        false
    }

    /// Copies the samples `wanted`, in any order, into the columns of a batch, as far as that takes no more than copying
    /// memory, or a few files' page cache, and notes which it has copied. What it cannot copy, [`Source::fetch`] will say. All fields have one fixed size, unless [`Source::gathers_lists`];
    /// no field is larger than `record.limits` allows.
    fn gather(&self, wanted: &[Wanted], record: &Record, into: &mut Gather<'_>) {
        gather::by_runs(self, wanted, record, into);
    }

    /// A number that tells this source's content from others': a hash of the schema, names, sizes and the number of samples,
    /// not of where they lie (no absolute path). It keys random draws and is part of a pipeline's fingerprint. Nothing is read
    /// for it that opening did not read.
    fn fingerprint(&self) -> u64 {
        let mut hash = Fingerprint::new(self.schema(), self.len());
        hash.add(self.name().as_bytes());
        hash.finish()
    }

    /// The field that is a class, if there is one.
    fn label(&self) -> Option<usize> {
        // The first whole number is.
        self.schema().fields.iter().position(|field| field.kind == FieldKind::LABEL)
    }

    /// What whoever opens it should know, such as what is left out of it: a sentence each.
    fn notes(&self) -> &[String] {
        &[]
    }

    /// Class names by label, if the source has them.
    fn classes(&self) -> Option<&[String]> {
        None
    }
}

fn cannot_locate(source: String, index: u64) -> Error {
    Error::new(ErrorKind::Internal, format!("{source} cannot say where the bytes of sample {index} lie"))
}

/// Copies the one piece of a sample that is an image file into its first field.
pub(crate) fn copy_image(pieces: &[Bytes], record: &mut Record) -> Result<()> {
    let (Some(piece), Some(value)) = (pieces.first(), record.values.first_mut()) else {
        return Err(Error::new(ErrorKind::Internal, "a piece is missing"));
    };
    let image = value.buffer();
    store::reserve(image, piece.len(), "an image")?;
    image.extend_from_slice(piece);
    Ok(())
}

/// Makes a [`Source::fingerprint`] of the parts of a source, in their order.
pub struct Fingerprint(u64);

impl Fingerprint {
    /// Begins with the schema (names, dtypes and shapes of fields, and their structure) and the number of samples.
    pub fn new(schema: &Schema, len: u64) -> Self {
        let mut this = Self(0);
        for FieldSpec { name, kind } in &schema.fields {
            this.add(name.as_bytes());
            this.json(&match kind {
                // How the pixels of an image lie in memory changes none of its draws.
                FieldKind::Pixels { height, width, channels, .. } => FieldKind::Pixels {
                    height: *height,
                    width: *width,
                    channels: *channels,
                    layout: PixelLayout::Hwc,
                },
                kind => kind.clone(),
            });
        }
        this.json(&schema.structure);
        this.number(len);
        this
    }

    fn json(&mut self, value: &impl Serialize) {
        let text = serde_json::to_string(value).expect("schemas hold only data that JSON can express");
        self.add(text.as_bytes());
    }

    /// Adds a name.
    pub fn add(&mut self, name: &[u8]) {
        self.number(rapidhash::v3::rapidhash_v3(name));
    }

    /// Adds a size or a hash.
    pub fn number(&mut self, number: u64) {
        self.0 = rapidhash::v3::rapidhash_v3(&[self.0.to_le_bytes(), number.to_le_bytes()].concat());
    }

    /// The number.
    pub fn finish(self) -> u64 {
        self.0
    }
}

/// [`Source::stamp`] of what `key` names in a file or shard.
pub fn stamp(key: &str, stat: &Stat) -> u64 {
    let numbers = [&stat.size.to_le_bytes()[..], &stat.modified.to_le_bytes()].concat();
    rapidhash::v3::rapidhash_v3(&[key.as_bytes(), &[0], &numbers].concat())
}

/// Where `path` lies, whatever the current folder is. Of a store with URLs: `path` itself.
pub fn location(path: &str) -> String {
    if path.contains("://") {
        return path.to_owned();
    }
    std::path::absolute(path).map_or(path.to_owned(), |path| path.to_string_lossy().into_owned())
}

/// Adds to `error` which sample of `source` it happened to, and that it was being read.
pub fn located(error: Error, source: &dyn Source, index: u64) -> Error {
    error.with_stage("read").with_sample(source.key(index), index).with_source(source.name())
}

/// The error of `fetch` beyond the end of `source`.
pub fn beyond_the_end(source: &dyn Source, index: u64) -> Error {
    Error::new(
        ErrorKind::NotFound,
        format!("there is no sample {index}: the source has {} samples", source.len()),
    )
    .with_stage("read")
    .with_sample(index.to_string(), index)
    .with_source(source.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::DType;

    #[test]
    fn a_fingerprint_tells_schemas_apart_but_not_layouts_of_pixels() {
        let single = |kind| Fingerprint::new(&Schema::single("x", kind), 5).finish();
        let pixels = |layout| FieldKind::Pixels { height: 4, width: 6, channels: 3, layout };
        let kinds = [
            FieldKind::Scalar { dtype: DType::Int32 },
            FieldKind::Scalar { dtype: DType::Float32 },
            FieldKind::array(DType::Float32, &[2, 3]),
            FieldKind::array(DType::Float32, &[3, 2]),
            FieldKind::Array { dtype: DType::Float32, shape: vec![None, Some(3)] },
            pixels(PixelLayout::Hwc),
            FieldKind::Image,
            FieldKind::Bytes,
        ];
        let mut found: Vec<u64> = kinds.into_iter().map(single).collect();
        let pair = || [("x", FieldKind::LABEL), ("y", FieldKind::LABEL)];
        for schema in [Schema::tuple(pair()), Schema::dict(pair())] {
            found.push(Fingerprint::new(&schema, 5).finish());
        }
        let count = found.len();
        found.sort_unstable();
        found.dedup();
        assert_eq!(found.len(), count, "two schemas have one fingerprint");
        assert_eq!(single(pixels(PixelLayout::Chw)), single(pixels(PixelLayout::Hwc)));
    }
}
