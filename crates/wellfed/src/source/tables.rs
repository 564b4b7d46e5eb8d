//! Tables (Parquet, Arrow, CSV) as data. What reads them is a crate of its own, which makes itself known by [`register`], so that
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
    /// Text whose lines are rows and whose fields a delimiter separates (RFC 4180).
    Csv,
}

impl TableFormat {
    /// Name of the function that opens it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Parquet => "parquet",
            Self::Arrow => "arrow",
            Self::Csv => "csv",
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
    /// A column that is no part of the dict: samples are pairs of the dict and this column.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// How CSV is read. Default: that of [`CsvSpec`]. Other formats have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub csv: Option<CsvSpec>,
}

impl TableSpec {
    /// All columns and rows of the files that `url` stands for.
    pub fn new(format: TableFormat, url: impl Into<String>) -> Self {
        let urls = vec![url.into()];
        Self {
            format,
            urls,
            split: None,
            columns: None,
            tuple: false,
            images: None,
            filters: Vec::new(),
            label: None,
            csv: None,
        }
    }
}

/// How CSV is read: the arguments of `tf.data.experimental.make_csv_dataset` that are about values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CsvSpec {
    /// What separates fields: one ASCII character.
    pub delimiter: char,
    /// Whether fields may be quoted. Else quotes are characters as others.
    pub quotes: bool,
    /// Whether the first row of each file has names.
    pub header: bool,
    /// Names of all columns. Default: those of the header, which must be the same in all files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub names: Option<Vec<String>>,
    /// Columns to take; they come in the order of the file. Default: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub select: Option<Vec<CsvColumn>>,
    /// Types of the columns that are taken, in the order of the file, or of some by name. Default: those of the first rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub types: Option<CsvTypes>,
    /// A text that stands for a missing value, as an empty field does.
    pub missing: String,
    /// How many rows say what types columns have; all of them without a number.
    pub look_at: Option<u64>,
    /// How files are compressed.
    pub compression: CsvCompression,
}

impl Default for CsvSpec {
    fn default() -> Self {
        Self {
            delimiter: ',',
            quotes: true,
            header: true,
            names: None,
            select: None,
            types: None,
            missing: String::new(),
            look_at: Some(100),
            compression: CsvCompression::Auto,
        }
    }
}

/// One column, by name or by its place in the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CsvColumn {
    /// Its place, from 0.
    Index(u64),
    /// Its name.
    Name(String),
}

/// What columns are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CsvTypes {
    /// All that are taken.
    All(Vec<CsvType>),
    /// Some of them, by name.
    Some(std::collections::BTreeMap<String, CsvType>),
}

/// What one column is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CsvType {
    /// The type of its values.
    pub dtype: CsvDType,
    /// What stands for a missing value, as text. Without it such rows are bad.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
}

/// Types of values, from the least permissive to the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the names are NumPy's")]
pub enum CsvDType {
    Int32,
    Int64,
    Float32,
    Float64,
    /// Text.
    String,
}

/// How files are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CsvCompression {
    /// As names and first bytes say: gzip, Zstandard, or not at all.
    #[default]
    Auto,
    /// Not at all.
    None,
    /// RFC 1952.
    Gzip,
    /// RFC 1950.
    Zlib,
    /// RFC 8878.
    Zstd,
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
