//! What was asked for, as data: enough to open the same source again, in another process or on another day.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    Annotated, AnnotatedSpec, ArrayData, ArrayFiles, ArrayFilesSpec, AudioFiles, AudioFilesSpec, Beton,
    BetonSpec, Cifar, Cifar10Spec, Cifar100Spec, CocoDetectionSpec, EncodedImages, EncodedImagesSpec,
    Hdf5Spec, ImageFiles, ImageFilesSpec, ImageFolder, ImageFolderSpec, JsonLines, JsonLinesSpec, LitData,
    LitDataSpec, Lmdb, LmdbSpec, Mds, MdsSpec, Mnist, MnistSpec, PythonSamples, PythonSpec, Source,
    TableSpec, TensorSlices, TensorSlicesSpec, TfRecord, TfRecordSpec, VocSegmentationSpec, WebDataset,
    WebDatasetSpec, coco_detection, hdf5, tables, voc_segmentation,
};
use crate::{
    Error, Result,
    store::{LocalStore, Store, secrets},
};

/// A source as data. Part of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SourceSpec {
    /// Image files in folders.
    ImageFolder(ImageFolderSpec),
    /// Audio files in folders.
    AudioFolder(ImageFolderSpec),
    /// Samples in tar shards.
    Webdataset(WebDatasetSpec),
    /// Records in TFRecord files.
    Tfrecord(TfRecordSpec),
    /// CIFAR-10, binary version.
    Cifar10(Cifar10Spec),
    /// CIFAR-100, binary version.
    Cifar100(Cifar100Spec),
    /// MNIST and what comes in its format.
    Mnist(MnistSpec),
    /// Arrays in memory: their names, dtypes and shapes. The elements themselves are no part of a plan.
    TensorSlices(TensorSlicesSpec),
    /// Image files by their paths.
    Files(ImageFilesSpec),
    /// Audio files, or parts of them, by their paths.
    AudioFiles(AudioFilesSpec),
    /// Encoded images in memory.
    Encoded(EncodedImagesSpec),
    /// Image files with masks, boxes and numbers, by lists.
    Annotated(AnnotatedSpec),
    /// Segmentation in the layout of Pascal VOC.
    VocSegmentation(VocSegmentationSpec),
    /// Detection in the layout of COCO.
    CocoDetection(CocoDetectionSpec),
    /// Rows of tables.
    Table(Box<TableSpec>),
    /// Data sets in HDF5 files.
    Hdf5(Hdf5Spec),
    /// Arrays in files.
    ArrayFiles(ArrayFilesSpec),
    /// Lines of JSON.
    Jsonl(JsonLinesSpec),
    /// Shards of MosaicML's Streaming.
    Mds(MdsSpec),
    /// Files of FFCV.
    Beton(BetonSpec),
    /// Chunks of LitData.
    Litdata(LitDataSpec),
    /// Entries of LMDB databases.
    Lmdb(LmdbSpec),
    /// A data set of Python's.
    Python(PythonSpec),
    /// A source of another crate, known by its name only.
    Custom {
        /// [`Source::name`] of it.
        name: String,
    },
}

impl SourceSpec {
    /// Keeps all secrets in URLs in this process instead: see [`secrets`].
    pub fn seal(&mut self) {
        let seal = |url: &mut String| *url = secrets::seal(url);
        let seal_all = |urls: &mut Vec<String>| {
            for url in urls {
                *url = url.split("::").map(secrets::seal).collect::<Vec<_>>().join("::");
            }
        };
        match self {
            Self::ImageFolder(spec) | Self::AudioFolder(spec) => seal(&mut spec.root),
            Self::Webdataset(WebDatasetSpec { urls, .. })
            | Self::Tfrecord(TfRecordSpec { urls, .. })
            | Self::Hdf5(Hdf5Spec { urls, .. })
            | Self::Jsonl(JsonLinesSpec { urls, .. })
            | Self::ArrayFiles(ArrayFilesSpec { urls, .. })
            | Self::Mds(MdsSpec { urls, .. })
            | Self::Beton(BetonSpec { urls, .. })
            | Self::Litdata(LitDataSpec { urls, .. })
            | Self::Lmdb(LmdbSpec { urls, .. }) => seal_all(urls),
            Self::Table(spec) => seal_all(&mut spec.urls),
            Self::Cifar10(spec) => seal(&mut spec.root),
            Self::Cifar100(spec) => seal(&mut spec.root),
            Self::Mnist(spec) => seal(&mut spec.root),
            Self::VocSegmentation(spec) => seal(&mut spec.root),
            Self::CocoDetection(spec) => {
                seal(&mut spec.root);
                seal(&mut spec.annotations);
            }
            Self::Files(spec) => spec.storage = spec.storage.as_deref().map(secrets::seal),
            Self::AudioFiles(spec) => spec.storage = spec.storage.as_deref().map(secrets::seal),
            Self::Annotated(spec) => spec.storage = spec.storage.as_deref().map(secrets::seal),
            Self::TensorSlices(_) | Self::Encoded(_) | Self::Python(_) | Self::Custom { .. } => {}
        }
    }

    /// Opens a source that lies in `store`.
    ///
    /// # Errors
    /// What the source says; [`crate::ErrorKind::Config`] for those that are not made of stored objects.
    pub fn open(mut self, store: Arc<dyn Store>) -> Result<Arc<dyn Source>> {
        self.seal();
        Ok(match self {
            Self::ImageFolder(spec) => Arc::new(ImageFolder::open(store, spec)?),
            Self::AudioFolder(spec) => Arc::new(ImageFolder::open_audio(store, spec)?),
            Self::Webdataset(spec) => Arc::new(WebDataset::open(store, spec)?),
            Self::Tfrecord(spec) => Arc::new(TfRecord::open(store, spec)?),
            Self::Cifar10(spec) => Arc::new(Cifar::open_10(&store, spec)?),
            Self::Cifar100(spec) => Arc::new(Cifar::open_100(&store, spec)?),
            Self::Mnist(spec) => Arc::new(Mnist::open(&store, spec)?),
            Self::Table(spec) => tables::open(store, *spec)?,
            Self::Hdf5(spec) => hdf5::open(store, spec)?,
            Self::ArrayFiles(spec) => Arc::new(ArrayFiles::open(store, spec)?),
            Self::Mds(spec) => Arc::new(Mds::open(store, spec)?),
            Self::Beton(spec) => Arc::new(Beton::open(store, spec)?),
            Self::Litdata(spec) => Arc::new(LitData::open(store, spec)?),
            Self::Lmdb(spec) => Arc::new(Lmdb::open(store, spec)?),
            Self::Jsonl(spec) => Arc::new(JsonLines::open(store, spec)?),
            Self::Python(spec) => Arc::new(PythonSamples::new(spec)),
            Self::TensorSlices(_) => {
                return Err(Error::config("from_tensor_slices cannot be opened without its arrays"));
            }
            Self::Files(_) => {
                return Err(Error::config("image_files cannot be opened without its paths"));
            }
            Self::AudioFiles(_) => {
                return Err(Error::config("audio_files cannot be opened without its paths"));
            }
            Self::Encoded(_) => {
                return Err(Error::config("encoded_images cannot be opened without its data"));
            }
            Self::VocSegmentation(spec) => Arc::new(voc_segmentation(store, spec)?),
            Self::CocoDetection(spec) => Arc::new(coco_detection(store, spec)?),
            Self::Annotated(_) => {
                return Err(Error::config("annotated_images cannot be opened without its lists"));
            }
            Self::Custom { name } => {
                return Err(Error::config(format!("{name} cannot be opened from its description")));
            }
        })
    }

    /// Opens a source of which a part is arrays in memory, given in the order of the fields; for image files those are
    /// their paths and labels.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] if this is no such source, or the arrays differ from the description.
    pub fn open_arrays(mut self, arrays: Vec<ArrayData>) -> Result<Arc<dyn Source>> {
        self.seal();
        match self {
            Self::TensorSlices(spec) => Ok(Arc::new(TensorSlices::open(spec, arrays)?)),
            Self::Files(spec) => {
                Ok(Arc::new(ImageFiles::open(Arc::new(LocalStore::default()), spec, arrays)?))
            }
            Self::AudioFiles(spec) => {
                let store: Arc<dyn Store> = Arc::new(LocalStore::default());
                Ok(Arc::new(AudioFiles::open(&store, spec, arrays)?))
            }
            Self::Annotated(spec) => {
                Ok(Arc::new(Annotated::open(Arc::new(LocalStore::default()), spec, arrays)?))
            }
            Self::Encoded(spec) => Ok(Arc::new(EncodedImages::open(spec, arrays)?)),
            other => Err(Error::config(format!("{other:?} takes no arrays"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_survives_json() {
        for json in [
            r#"{"type":"image_folder","root":"data"}"#,
            r#"{"type":"image_folder","root":"d","extensions":[".png"],"allow_empty":true,"labels":"none"}"#,
            r#"{"type":"webdataset","urls":["a-{0..3}.tar"],"fields":["jpg;png","cls"],"index":"sidecar"}"#,
            r#"{"type":"tfrecord","urls":["a*"]}"#,
            r#"{"type":"tfrecord","urls":["a"],"compression":"gzip","unpack_to":"d","features":[
                {"name":"x","dtype":"float32","form":{"fixed_len":[2]},"default":{"float32_bits":[0,1]}},
                {"name":"y","key":"z","dtype":"int64","form":"var_len"},
                {"name":"i","dtype":"image","form":{"fixed_len":[]}}],"sequence_features":[
                {"name":"s","dtype":"text","form":{"sequence":{"shape":[],"allow_missing":true}}}]}"#,
            r#"{"type":"cifar10","root":"d","train":true}"#,
            r#"{"type":"cifar100","root":"d","train":false,"label":"coarse"}"#,
            r#"{"type":"mnist","root":"d","train":true}"#,
            r#"{"type":"files","count":3,"labels":true}"#,
            r#"{"type":"files","count":3,"labels":true,"storage":"s3://b?region=eu"}"#,
            r#"{"type":"audio_folder","root":"data","labels":"none"}"#,
            r#"{"type":"audio_files","count":3,"labels":true,"offsets":true}"#,
            r#"{"type":"encoded","count":3,"chunks":2,"labels":false}"#,
            r#"{"type":"voc_segmentation","root":"d","year":"2012","image_set":"train"}"#,
            r#"{"type":"coco_detection","root":"d","annotations":"a.json"}"#,
            r#"{"type":"annotated","count":1,"fields":[{"name":"mask","kind":{"mask":{"dtype":"uint8"}}}]}"#,
            r#"{"type":"table","format":"arrow","urls":["a/*.arrow"],"columns":["x"],"tuple":true}"#,
            r#"{"type":"table","format":"parquet","urls":["a"],"filters":[[["x","not in",[1,2]],["y","==","z"]]]}"#,
            r#"{"type":"jsonl","urls":["a-{0..3}.jsonl"],"fields":[{"name":"x","default":[1]}]}"#,
            r#"{"type":"jsonl","urls":["a"],"fields":[{"name":"x","kind":{"scalar":{"dtype":"int64"}}}]}"#,
            r#"{"type":"hdf5","urls":["a-{0..3}.h5"]}"#,
            r#"{"type":"hdf5","urls":["a"],"group":"train","fields":[["x","images"]],"tuple":true,"pixels":"chw"}"#,
            r#"{"type":"beton","urls":["a"],"fields":["image"]}"#,
            r#"{"type":"litdata","urls":["a"],"block_size":2049}"#,
            r#"{"type":"lmdb","urls":["a"],"db":"x","keys":{"prefix":"image-"},"value":{"array":{"dtype":"uint8","shape":[2]}}}"#,
            r#"{"type":"lmdb","urls":["a"],"keys":{"list":["a",[255,0]]},"value":"msgpack","fields":["__key__"]}"#,
            r#"{"type":"custom","name":"mine"}"#,
            r#"{"type":"python","name":"Squares","count":3}"#,
        ] {
            let spec: SourceSpec = serde_json::from_str(json).unwrap();
            let again = serde_json::to_string(&spec).unwrap();
            assert_eq!(serde_json::from_str::<SourceSpec>(&again).unwrap(), spec);
        }
    }
}
