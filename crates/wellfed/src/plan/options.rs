//! How a plan is run. Everything has a default that works; `auto` is left to the governor.

use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Error, Limits, Result, codec::Mode};

/// A number, or `"auto"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Auto {
    /// The governor finds and adapts it.
    #[default]
    Auto,
    /// As the user says.
    Fixed(usize),
}

impl Auto {
    /// The fixed number, if there is one.
    pub fn fixed(self) -> Option<usize> {
        match self {
            Auto::Auto => None,
            Auto::Fixed(n) => Some(n),
        }
    }
}

impl Serialize for Auto {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Auto::Auto => serializer.serialize_str("auto"),
            Auto::Fixed(n) => serializer.serialize_u64(*n as u64),
        }
    }
}

impl<'de> Deserialize<'de> for Auto {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "\"auto\" or a number")]
        enum Form {
            Number(usize),
            Text(String),
        }
        match Form::deserialize(deserializer)? {
            Form::Number(n) => Ok(Auto::Fixed(n)),
            Form::Text(text) if text == "auto" => Ok(Auto::Auto),
            Form::Text(text) => {
                Err(serde::de::Error::custom(format!("{text:?} is neither \"auto\" nor a number")))
            }
        }
    }
}

/// What happens to a sample that cannot be read, decoded or transformed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnError {
    /// Its batch is an error.
    #[default]
    Raise,
    /// It is left out: its batch is smaller, and left out if nothing is left of it. Counted and listed.
    Skip,
    /// Another sample takes its place, chosen by (seed, epoch, sample). Counted and listed.
    Replace,
}

/// Where row indexes of JPEGs are kept: where in a file its rows begin, so that a decode can start at the first row
/// that it needs. In JSON and Python: `"memory"`, `"off"`, `"beside"` or a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum RowIndexing {
    /// None are made.
    Off,
    /// Made in the first epoch, used while the loader lives.
    #[default]
    Memory,
    /// Also in files beside the images: `.wfrows` in the root of an image folder, `<shard>.wfrows`.
    Beside,
    /// Also in files of this folder.
    Folder(String),
}

impl RowIndexing {
    /// Refuses a folder that does not exist and looks like a word misspelt.
    pub(crate) fn check(&self) -> Result<()> {
        match self {
            Self::Folder(name) if !name.contains(std::path::is_separator) && !Path::new(name).is_dir() => {
                Err(Error::config(format!(
                    "row_index is {name:?}: neither \"memory\", \"off\" nor \"beside\", nor a folder"
                ))
                .with_hint(format!("write ./{name} if a folder is to be made")))
            }
            _ => Ok(()),
        }
    }
}

impl From<String> for RowIndexing {
    fn from(text: String) -> Self {
        match text.as_str() {
            "off" => Self::Off,
            "memory" => Self::Memory,
            "beside" => Self::Beside,
            _ => Self::Folder(text),
        }
    }
}

impl From<RowIndexing> for String {
    fn from(mode: RowIndexing) -> Self {
        match mode {
            RowIndexing::Off => "off".to_owned(),
            RowIndexing::Memory => "memory".to_owned(),
            RowIndexing::Beside => "beside".to_owned(),
            RowIndexing::Folder(folder) => folder,
        }
    }
}

/// How exactly images are decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decoding {
    /// The pixels of Pillow, bit for bit.
    #[default]
    Exact,
    /// A JPEG that a resize shrinks at least by 2, 4 or 8 in both directions is decoded at a half, a quarter or an
    /// eighth of its size and resized from there. Corners of crops move to the nearest pixel of that scale. Pixels
    /// differ a little.
    Fast,
}

/// What of an image is left to the device that batches are for. The pixels are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnDevice {
    /// Nothing: batches are finished, and copied.
    #[default]
    Copy,
    /// Resizing, flips, normalization and layout.
    Resize,
    /// As `Resize`, and of JPEGs all but Huffman decoding.
    Decode,
    /// Nothing but the map of values, or as `Decode`, by a share of samples that may change while batches are made.
    Auto,
    /// As `Resize`, and JPEGs of common kinds as they are, for nvJPEG: its pixels differ a little.
    Nvjpeg,
}

/// Memory layout of image batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Batching {
    /// `[batch, channels, height, width]`.
    #[default]
    #[serde(rename = "NCHW")]
    Nchw,
    /// `[batch, height, width, channels]`.
    #[serde(rename = "NHWC")]
    Nhwc,
}

/// Options of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Worker threads. Auto: as many as the process may use (affinity and cgroup limits), adapted while running.
    pub num_workers: Auto,
    /// Batches made ahead of the consumer.
    pub prefetch: Auto,
    /// Threads that read samples ahead of the workers; 0 lets workers read for themselves.
    pub read_ahead: Auto,
    /// Bytes that batches under way, samples read ahead and scratch memory may take together. `None`: a quarter
    /// of the memory the process may use, at most 4 GiB. Batches the consumer holds are the consumer's.
    ///
    /// What does not fit beside other batches is made by itself, without read-ahead. Then a little more than twice the
    /// bytes of the largest batch are enough, or three times, where arrays of one size stand beside texts, bytes or
    /// arrays that vary. The bytes of a batch are those of its values, padding included; images count as what they
    /// become, and need the same again, or more, while the largest is decoded. Caches in memory have parts of the budget
    /// of their own: `cache` half, row indexes an eighth.
    pub memory_budget: Option<u64>,
    /// What happens to bad samples.
    pub on_error: OnError,
    /// Seed of the transforms; by default the seed of `shuffle`.
    pub seed: Option<u64>,
    /// Layout of image batches.
    pub layout: Batching,
    /// Colour mode that images are decoded to.
    pub mode: Mode,
    /// How exactly images are decoded. Without `optimize` always exactly.
    pub decode: Decoding,
    /// What of an image is left to the device that batches are for. Whoever asks for it gets records and finishes them.
    pub on_device: OnDevice,
    /// Turn images upright by their EXIF orientation. Off by default, as Pillow and torchvision leave them.
    pub exif_orientation: bool,
    /// Refuse sounds of which a float32 does not have all bits, and those without frames: what is left of PCM and FLAC, every decoder
    /// decodes alike.
    pub lossless: bool,
    /// Fuse and push down work. Off runs every transform by itself, for the same bits.
    pub optimize: bool,
    /// Where row indexes of JPEGs are kept. They change no pixel.
    pub row_index: RowIndexing,
    /// A folder for what was read of remote stores, shared by all processes of the machine: what is needed last goes first.
    /// `None`: what `WELLFED_CACHE` of the environment names, if anything; `"off"`: none. Files on local disks are not kept.
    pub remote_cache: Option<String>,
    /// Bytes that it may take. `None`: what `WELLFED_CACHE_BYTES` says, or half of what is free on its disk when it is opened,
    /// and what it has.
    pub remote_cache_bytes: Option<u64>,
    /// Keep a span for every piece of work, for [`crate::Loader::write_trace`].
    pub trace: bool,
    /// Upper bounds on one sample.
    pub limits: Limits,
}

/// A folder for what was read of remote stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteCache {
    /// Where it is.
    pub path: String,
    /// Bytes that it may take; `None` is half of what is free.
    pub max_bytes: Option<u64>,
}

impl RemoteCache {
    /// The one that the environment names: `WELLFED_CACHE`, with `WELLFED_CACHE_BYTES` at most.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) for what is no number of bytes.
    pub fn from_environment() -> Result<Option<Self>> {
        Self::given(None, None, |name| std::env::var(name).ok())
    }

    fn given(
        path: Option<&str>,
        max_bytes: Option<u64>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>> {
        let path = path.map(str::to_owned).or_else(|| variable("WELLFED_CACHE"));
        let Some(path) = path.filter(|path| !path.is_empty() && path != "off") else { return Ok(None) };
        let max_bytes = match (max_bytes, variable("WELLFED_CACHE_BYTES").filter(|text| !text.is_empty())) {
            (Some(bytes), _) => Some(bytes),
            (None, Some(text)) => Some(bytes_of(&text).ok_or_else(|| {
                Error::config(format!("WELLFED_CACHE_BYTES is {text:?}, which is no number of bytes"))
                    .with_hint("write 500000000000 or 500GB")
            })?),
            (None, None) => None,
        };
        // A script may change its folder before the first epoch.
        let path = std::path::absolute(&path)
            .ok()
            .and_then(|path| path.into_os_string().into_string().ok())
            .unwrap_or(path);
        Ok(Some(Self { path, max_bytes }))
    }
}

/// A number of bytes, as people write it: `1000`, `64MB`, `1.5TB`, `2GiB`.
pub fn bytes_of(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic()).trim_end();
    let unit = text[digits.len()..].trim().to_ascii_lowercase();
    let power = |letter: &str| ["", "k", "m", "g", "t", "p"].iter().position(|known| *known == letter);
    let factor = match unit.strip_suffix('b').unwrap_or(&unit) {
        binary if binary.ends_with('i') => 1024_f64.powi(power(&binary[..binary.len() - 1])? as i32),
        decimal => 1000_f64.powi(power(decimal)? as i32),
    };
    let bytes = digits.parse::<f64>().ok()? * factor;
    // Beyond that a float is no whole number.
    (bytes.is_finite() && (0.0..9e15).contains(&bytes)).then_some(bytes as u64)
}

impl Options {
    /// The cache of remote bytes that these options or the environment name.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) for what is no number of bytes.
    pub(crate) fn remote_cache(&self) -> Result<Option<RemoteCache>> {
        RemoteCache::given(self.remote_cache.as_deref(), self.remote_cache_bytes, |name| {
            std::env::var(name).ok()
        })
    }

    /// These and those of another data set that is put together with this one. What was left as it is by default does
    /// not count, unless it decides what samples look like.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if they disagree.
    pub(crate) fn merged(&self, other: &Self) -> crate::Result<Self> {
        const DECIDE: [&str; 6] = ["seed", "layout", "mode", "decode", "exif_orientation", "lossless"];
        let parts = |options: &Self| match serde_json::to_value(options) {
            Ok(serde_json::Value::Object(parts)) => Ok(parts),
            _ => Err(Error::config("options cannot be written as JSON")),
        };
        let (mut merged, others, defaults) = (parts(self)?, parts(other)?, parts(&Self::default())?);
        for (name, value) in others {
            let known = merged.get(&name).cloned().unwrap_or_default();
            if known == value || (defaults.get(&name) == Some(&value) && !DECIDE.contains(&name.as_str())) {
                continue;
            }
            if defaults.get(&name) != Some(&known) || DECIDE.contains(&name.as_str()) {
                return Err(Error::config(format!(
                    "the data sets have different options: {name} is {known} in one and {value} in another"
                ))
                .with_hint("call with_options() after they were put together"));
            }
            merged.insert(name, value);
        }
        serde_json::from_value(serde_json::Value::Object(merged)).map_err(|e| Error::config(e.to_string()))
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            num_workers: Auto::Auto,
            prefetch: Auto::Auto,
            read_ahead: Auto::Auto,
            memory_budget: None,
            on_error: OnError::default(),
            seed: None,
            layout: Batching::default(),
            mode: Mode::default(),
            decode: Decoding::default(),
            on_device: OnDevice::default(),
            exif_orientation: false,
            lossless: false,
            optimize: true,
            row_index: RowIndexing::default(),
            remote_cache: None,
            remote_cache_bytes: None,
            trace: false,
            limits: Limits::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remote_cache_is_that_of_the_options_or_of_the_environment() {
        let variable = |name: &str| match name {
            "WELLFED_CACHE" => Some("/cache".to_owned()),
            "WELLFED_CACHE_BYTES" => Some("1.5 GB".to_owned()),
            _ => None,
        };
        let cache = |path: &str, max_bytes| Some(RemoteCache { path: path.to_owned(), max_bytes });
        let given = |path, bytes| RemoteCache::given(path, bytes, variable).unwrap();
        assert_eq!(given(None, None), cache("/cache", Some(1_500_000_000)));
        assert_eq!(given(Some("/other"), Some(7)), cache("/other", Some(7)));
        assert_eq!((given(Some("off"), None), given(Some(""), None)), (None, None));
        assert_eq!(RemoteCache::given(None, Some(7), |_| None).unwrap(), None);
        assert_eq!(RemoteCache::given(Some("/x"), None, |_| None).unwrap(), cache("/x", None));
        let wrong = RemoteCache::given(Some("/x"), None, |_| Some("much".to_owned())).unwrap_err();
        assert!(wrong.message().contains("WELLFED_CACHE_BYTES is \"much\""), "{wrong}");
        let sizes = ["0", "12", "3kB", "2 GiB", "1T", "5b"].map(bytes_of);
        assert_eq!(sizes, [0, 12, 3000, 2 << 30, 1_000_000_000_000, 5].map(Some));
        assert_eq!(["", "-1", "1XB", "GB", "1e30", "nan", "1 ib x"].map(bytes_of), [None; 7]);
    }

    #[test]
    fn options_survive_json_and_name_what_is_wrong() {
        let options = Options { num_workers: Auto::Fixed(3), layout: Batching::Nhwc, ..Options::default() };
        let json = serde_json::to_string(&options).unwrap();
        assert!(json.contains("\"num_workers\":3") && json.contains("\"prefetch\":\"auto\""), "{json}");
        assert_eq!(serde_json::from_str::<Options>(&json).unwrap(), options);
        let error = serde_json::from_str::<Options>(r#"{"num_workers":"many"}"#).unwrap_err().to_string();
        assert!(error.contains("many") && error.contains("auto"), "{error}");
        assert!(serde_json::from_str::<Options>(r#"{"worker":1}"#).is_err());
    }
}
