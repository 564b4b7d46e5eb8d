//! HDF5 as data. What reads it is a crate of its own, which makes itself known by [`register`].

use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use super::{Pixels, Source};
use crate::{Error, Result, store::Store};

/// What to open: the files, and which data sets in them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hdf5Spec {
    /// Files: paths with braces or stars, `::` between several in one; or folders of files.
    pub urls: Vec<String>,
    /// The group that paths of data sets begin at. Default: the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Of folders, files whose names begin with it, or the folder of that name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
    /// Names of fields and paths of their data sets, in order. Default: all data sets of the group that have as many rows as
    /// most of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fields: Option<Vec<(String, String)>>,
    /// Whether samples are tuples of the fields, rather than dicts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tuple: bool,
    /// Fields of bytes that are encoded images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images: Option<Vec<String>>,
    /// Which uint8 arrays are images.
    #[serde(default)]
    pub pixels: Pixels,
}

impl Hdf5Spec {
    /// All data sets of one length in the root of the files that `url` stands for.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            urls: vec![url.into()],
            group: None,
            split: None,
            fields: None,
            tuple: false,
            images: None,
            pixels: Pixels::Infer,
        }
    }
}

/// Opens the source that a description names. Plain paths lie in the store.
pub type Opener = fn(Arc<dyn Store>, Hdf5Spec) -> Result<Arc<dyn Source>>;

static OPENER: OnceLock<Opener> = OnceLock::new();

/// Makes the reader of HDF5 known. Further calls do nothing.
pub fn register(open: Opener) {
    OPENER.get_or_init(|| open);
}

/// Opens the source that `spec` describes.
pub(super) fn open(store: Arc<dyn Store>, spec: Hdf5Spec) -> Result<Arc<dyn Source>> {
    match OPENER.get() {
        Some(open) => open(store, spec),
        None => Err(Error::config("hdf5 cannot be opened: this program reads no HDF5")),
    }
}
