//! Tables (Parquet, Arrow) as data. What reads them is a crate of its own, which makes itself known by [`register`], so that
//! the engine is built and tested without the libraries of these formats.

use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use super::Source;
use crate::{Error, Result, store::Store};

/// The format of a table's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TableFormat {
    /// Apache Parquet.
    Parquet,
    /// Apache Arrow: files (Feather, version 2) and streams, and the folders of `save_to_disk` of Hugging Face.
    Arrow,
}

impl TableFormat {
    /// Name of the function that opens it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Parquet => "parquet",
            Self::Arrow => "arrow",
        }
    }
}

/// What to open: the files, which columns to take, and which rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableSpec {
    /// The format of the files.
    pub format: TableFormat,
    /// Files: paths with braces or stars, `::` between several in one; or folders of files.
    pub urls: Vec<String>,
    /// Of folders, the part of the data set: files whose names begin with it, or the folder of that name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
    /// Columns in order. Default: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<Vec<String>>,
    /// Whether samples are tuples of the columns, rather than dicts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tuple: bool,
    /// Columns of bytes that are encoded images. Default: those that the file's metadata calls images, and structs of `bytes`
    /// and `path`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images: Option<Vec<String>>,
    /// Only rows for which one of these lists holds: of conditions (column, operator, value) that all hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<Vec<Condition>>,
}

impl TableSpec {
    /// All columns and rows of the files that `url` stands for.
    pub fn new(format: TableFormat, url: impl Into<String>) -> Self {
        let urls = vec![url.into()];
        Self { format, urls, split: None, columns: None, tuple: false, images: None, filters: Vec::new() }
    }
}

/// What must hold for a column of a row: `(column, operator, value)`, as pyarrow writes filters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition(pub String, pub Comparison, pub serde_json::Value);

/// How the value in the row compares to the one given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are Python's operators")]
pub enum Comparison {
    #[serde(rename = "==", alias = "=")]
    Equal,
    #[serde(rename = "!=")]
    NotEqual,
    #[serde(rename = "<")]
    Less,
    #[serde(rename = "<=")]
    LessOrEqual,
    #[serde(rename = ">")]
    Greater,
    #[serde(rename = ">=")]
    GreaterOrEqual,
    #[serde(rename = "in")]
    In,
    #[serde(rename = "not in")]
    NotIn,
}

/// Opens the source that a description names. Plain paths lie in the store.
pub type Opener = fn(Arc<dyn Store>, TableSpec) -> Result<Arc<dyn Source>>;

static OPENER: OnceLock<Opener> = OnceLock::new();

/// Makes the reader of tables known. Further calls do nothing.
pub fn register(open: Opener) {
    OPENER.get_or_init(|| open);
}

/// Opens the source that `spec` describes.
pub(super) fn open(store: Arc<dyn Store>, spec: TableSpec) -> Result<Arc<dyn Source>> {
    match OPENER.get() {
        Some(open) => open(store, spec),
        None => Err(Error::config(format!(
            "{} cannot be opened: this program reads no tables",
            spec.format.name()
        ))),
    }
}
