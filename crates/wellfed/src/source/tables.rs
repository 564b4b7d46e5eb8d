//! Tables (Parquet, Arrow, CSV) as data. What reads them is a crate of its own, which makes itself known by [`register`], so that
//! the engine is built and tested without the libraries of these formats.

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use serde::{Deserialize, Serialize};

use super::Source;
use crate::{Error, Result, sample::DType, store::Store};

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
    /// Columns of bytes that are encoded sounds. Default: those that the file's metadata calls audio.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audio: Option<Vec<String>>,
    /// Only rows for which one of these lists holds: of conditions (column, operator, value) that all hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<Vec<Condition>>,
    /// A column that is no part of the dict: samples are pairs of the dict and this column.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// How CSV is read. Default: that of [`CsvSpec`]. Other formats have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub csv: Option<CsvSpec>,
    /// Columns that become one field each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stacks: Vec<Stack>,
}

/// Some columns as one field: an array of so many numbers a row, as they are encoded. It takes their place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stack {
    /// Name of the field.
    pub name: String,
    /// Type of its numbers: float32, float64, int32 or int64.
    pub dtype: DType,
    /// What it is made of, in order.
    pub columns: Vec<Stacked>,
}

/// One column of a [`Stack`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stacked {
    /// Its name.
    pub column: String,
    /// How its values become numbers. Default: as they are.
    #[serde(default)]
    pub encoding: Encoding,
}

/// How the values of a column become numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Encoding {
    /// A number `x` as `(x - mean) / std`, which is calculated in float64: one number.
    Number {
        /// What is subtracted.
        #[serde(default)]
        mean: f64,
        /// What it is divided by, not 0.
        #[serde(default = "one")]
        std: f64,
        /// What stands for null and NaN, before it is standardized. Without it, null makes the row a bad one, and NaN stays.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        missing: Option<f64>,
        /// Whether a second number says that the first is missing: 1, else 0.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        indicator: bool,
    },
    /// The place of a text or a whole number in a vocabulary, counted from `num_oov_indices` on: values that are not in it, and
    /// null, are 0 if there is an index for them, and else make the row a bad one.
    Vocabulary {
        /// Texts; of columns of whole numbers these numbers as text. None comes twice.
        vocabulary: Vec<String>,
        /// 0 or 1: indices for what is not in the vocabulary.
        num_oov_indices: u8,
        /// Whether it becomes as many numbers as there are indices, of which one is 1 and the others are 0.
        one_hot: bool,
    },
    /// The bin of a text or a whole number: its hash (rapidhash, version 3, of the text) modulo the number of bins. Null is an
    /// empty text.
    Hash {
        /// Number of bins, at least 1.
        num_bins: u32,
        /// As of a vocabulary.
        one_hot: bool,
    },
    /// Parts of a date, or of a date with a time of day: a number each. With a time zone or an offset they are those of UTC.
    Date {
        /// In order.
        parts: Vec<DatePart>,
        /// How texts are written, as of `strftime`. Default: ISO 8601.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        format: Option<String>,
        /// What stands for each part of null and of an empty text, which else make the row a bad one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        missing: Option<f64>,
        /// Whether one more number says that the date is missing: 1, else 0.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        indicator: bool,
    },
}

/// A number of a date, with the names that pandas has for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DatePart {
    /// The year.
    Year,
    /// 1 to 4.
    Quarter,
    /// 1 to 12.
    Month,
    /// 1 to 31.
    Day,
    /// 1 to 366.
    DayOfYear,
    /// 0 is Monday.
    DayOfWeek,
    /// 0 to 23.
    Hour,
    /// 0 to 59.
    Minute,
    /// 0 to 59; whole ones.
    Second,
    /// Seconds since 1970, with their fractions where numbers have them.
    Timestamp,
}

/// No number in it is NaN: [`Stack::check`] refuses that.
impl Eq for Encoding {}

fn one() -> f64 {
    1.0
}

impl Default for Encoding {
    fn default() -> Self {
        Self::Number { mean: 0.0, std: 1.0, missing: None, indicator: false }
    }
}

/// The most numbers that a row of a stack may have.
const MOST_STACKED: u64 = 1 << 20;

impl Encoding {
    /// Numbers that one value becomes.
    pub fn width(&self) -> u64 {
        match self {
            Self::Number { indicator, .. } => 1 + u64::from(*indicator),
            Self::Vocabulary { vocabulary, num_oov_indices, one_hot: true } => {
                vocabulary.len() as u64 + u64::from(*num_oov_indices)
            }
            Self::Hash { num_bins, one_hot: true } => u64::from(*num_bins),
            Self::Date { parts, indicator, .. } => parts.len() as u64 + u64::from(*indicator),
            Self::Vocabulary { .. } | Self::Hash { .. } => 1,
        }
    }

    /// Whether it makes sense, and `dtype` holds what comes of it.
    fn check(&self, dtype: DType) -> std::result::Result<(), String> {
        // Up to here all whole numbers can be told from each other.
        let most = match dtype {
            DType::Float32 => 1_u64 << 24,
            DType::Int32 => i32::MAX as u64,
            _ => 1 << 53,
        };
        let indices = match self {
            Self::Vocabulary { vocabulary, one_hot: false, .. } => vocabulary.len() as u64 + 1,
            Self::Hash { num_bins, one_hot: false } => u64::from(*num_bins),
            _ => 0,
        };
        if indices > most {
            return Err(format!("{indices} indices, of which {} holds {most}", dtype.name()));
        }
        let whole = matches!(dtype, DType::Int32 | DType::Int64);
        match self {
            Self::Number { mean, std, missing, .. } => {
                let finite = mean.is_finite() && std.is_finite() && missing.is_none_or(f64::is_finite);
                match (finite, *std == 0.0, missing) {
                    (false, ..) => Err("mean, std and missing must be finite".to_owned()),
                    (_, true, _) => Err("std is 0".to_owned()),
                    (_, _, Some(value)) if whole && value.abs() > most as f64 => {
                        Err(format!("missing is {value:e}, which {} does not hold", dtype.name()))
                    }
                    _ => Ok(()),
                }
            }
            Self::Vocabulary { vocabulary, num_oov_indices, .. } => {
                if *num_oov_indices > 1 {
                    return Err(format!("num_oov_indices is {num_oov_indices}; it must be 0 or 1"));
                }
                if vocabulary.is_empty() {
                    return Err("the vocabulary is empty".to_owned());
                }
                let mut sorted: Vec<&String> = vocabulary.iter().collect();
                sorted.sort_unstable();
                match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
                    Some(pair) => Err(format!("the vocabulary has {:?} twice", pair[0])),
                    None => Ok(()),
                }
            }
            Self::Hash { num_bins: 0, .. } => Err("num_bins is 0".to_owned()),
            Self::Hash { .. } => Ok(()),
            Self::Date { parts, missing, .. } => {
                let cut = |value: f64| {
                    !value.is_finite() || whole && (value.fract() != 0.0 || value.abs() > most as f64)
                };
                match missing {
                    _ if parts.is_empty() => Err("no part of the date is asked for".to_owned()),
                    _ if parts.contains(&DatePart::Timestamp)
                        && matches!(dtype, DType::Float32 | DType::Int32) =>
                    {
                        Err(format!(
                            "{} does not hold seconds since 1970: take float64 or int64",
                            dtype.name()
                        ))
                    }
                    Some(value) if cut(*value) => {
                        Err(format!("missing is {value:e}, which {} does not hold", dtype.name()))
                    }
                    _ => Ok(()),
                }
            }
        }
    }
}

impl Stack {
    /// Numbers a row.
    pub fn width(&self) -> u64 {
        self.columns.iter().map(|stacked| stacked.encoding.width()).sum()
    }

    /// Whether it makes sense by itself.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] for no columns, too many numbers a row, other dtypes, and encodings that cannot be.
    pub fn check(&self) -> Result<()> {
        let refused = |what: String| Err(Error::config(format!("stack {:?}: {what}", self.name)));
        if self.columns.is_empty() {
            return refused("no column is given".to_owned());
        }
        if !matches!(self.dtype, DType::Float32 | DType::Float64 | DType::Int32 | DType::Int64) {
            let dtype = self.dtype.name();
            return refused(format!("dtype is {dtype}; it must be float32, float64, int32 or int64"));
        }
        for Stacked { column, encoding } in &self.columns {
            if let Err(what) = encoding.check(self.dtype) {
                return refused(format!("column {column:?}: {what}"));
            }
        }
        match self.width() {
            width if width > MOST_STACKED => {
                refused(format!("{width} numbers a row, at most {MOST_STACKED}"))
            }
            _ => Ok(()),
        }
    }
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
            audio: None,
            filters: Vec::new(),
            label: None,
            csv: None,
            stacks: Vec::new(),
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
    /// A folder on local disk into which compressed files are unpacked, once. Default: into memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unpack_to: Option<PathBuf>,
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
            unpack_to: None,
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
