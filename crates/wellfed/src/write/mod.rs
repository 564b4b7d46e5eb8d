//! [`write()`]: a data set as shards, in the forms that webdataset, TensorFlow, Streaming and readers of Parquet know; and
//! [`verify()`]: whether they are still what was written.
//!
//! ```text
//! order -> make.rs (threads)     -> queue.rs -> shards.rs (one thread) -> part -> sync -> rename -> manifest.rs
//!          fields.rs, images.rs,                names.rs, form/           disk.rs
//!          cell.rs, form/
//! ```
//!
//! Invariant: the bytes of shards depend on the samples, their order and the options alone, not on threads or time; and
//! under its own name a shard is complete, whenever the process or the machine ends.

mod cell;
mod disk;
mod fields;
mod form;
mod images;
mod make;
mod manifest;
mod names;
mod progress;
mod queue;
mod run;
mod shards;
mod tar;
mod verify;

use serde::{Deserialize, Serialize};

pub use self::{
    cell::{Cell, CellKind, Column},
    form::{
        Put,
        table::{MakeTable, TableWriter, register},
    },
    manifest::Skipped,
    progress::{Progress, Snapshot},
    run::write,
    verify::{Problem, Verified, verify},
};
use crate::{
    Error, Result,
    plan::{Auto, OnError},
};

/// The format of shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// Tar shards in the form of WebDataset.
    #[default]
    Tar,
    /// TFRecord files of `tf.train.Example`.
    Tfrecord,
    /// Parquet files.
    Parquet,
    /// MDS shards, as MosaicML's Streaming has them.
    Mds,
}

impl Format {
    /// All there are, and what names of their shards end with.
    pub const ALL: [(Self, &str); 4] = [
        (Self::Tar, ".tar"),
        (Self::Tfrecord, ".tfrecord"),
        (Self::Parquet, ".parquet"),
        (Self::Mds, ".mds"),
    ];

    /// The format of shards that are called `name`, if its ending says so.
    pub fn of_name(name: &str) -> Option<Self> {
        let lower = name.to_ascii_lowercase();
        Self::ALL.into_iter().find(|(_, ending)| lower.ends_with(ending)).map(|(format, _)| format)
    }

    /// What names of its shards end with.
    pub(crate) fn ending(self) -> &'static str {
        Self::ALL.iter().find(|(format, _)| *format == self).map_or("", |(_, ending)| ending)
    }
}

/// How shards are written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WriteOptions {
    /// Default: what the names of shards end with says, or tar.
    pub format: Option<Format>,
    /// Most bytes of a shard, of Parquet before compression; one with a single sample may have more. Default: 1 GB, of MDS,
    /// whose shards are kept in memory while they are made, 64 MiB.
    pub max_bytes: Option<u64>,
    /// Most samples of a shard. Default: as many as its bytes allow.
    pub max_samples: Option<u64>,
    /// Images whose shorter side is longer are made so small, with the pixels of torchvision's `Resize`. Others stay as they
    /// are. Images that are made smaller are compressed anew, of JPEGs with `quality`.
    pub resize_shorter: Option<usize>,
    /// Quality of JPEGs that are made, 1 to 100. Default: 95. Without `resize_shorter` all images are made anew, apart from
    /// those with alpha; images that are PNG or pixels become JPEG only if it is given.
    pub quality: Option<u8>,
    /// JPEGs are written as coefficients without Huffman coding: half as large again, several times faster to decode, to
    /// the same pixels. Only wellfed reads them.
    pub packed: bool,
    /// Rows of a row group of Parquet. Default: 65,536, or as many as have 64 MiB.
    pub row_group_size: Option<usize>,
    /// What happens at a sample that cannot be read or made: `Raise` ends the writing, `Skip` leaves it out and lists it.
    pub on_error: OnError,
    /// Threads that read and make samples.
    pub num_workers: Auto,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self {
            format: None,
            max_bytes: None,
            max_samples: None,
            resize_shorter: None,
            quality: None,
            packed: false,
            row_group_size: None,
            on_error: OnError::Raise,
            num_workers: Auto::Auto,
        }
    }
}

/// Rows of a row group at most: all of them are in memory at once.
const MOST_ROWS: usize = 1 << 24;

impl WriteOptions {
    /// Most bytes of a shard.
    fn shard_bytes(&self, format: Format) -> u64 {
        let usual = if format == Format::Mds { form::mds::SHARD } else { 1_000_000_000 };
        self.max_bytes.unwrap_or(usual)
    }

    fn check(&self, format: Format) -> Result<()> {
        // A member of a shard lies at a number of blocks that has 32 bits.
        const MOST: u64 = 1 << 40;
        let max_bytes = self.shard_bytes(format);
        if !(1..=MOST).contains(&max_bytes) {
            return Err(Error::config(format!("max_bytes is {max_bytes}; must be 1 to {MOST}")));
        }
        if self.packed && format != Format::Tar {
            return Err(Error::config("packed coefficients are written to tar shards only")
                .with_hint("leave out packed, or write tar shards"));
        }
        if self.row_group_size.is_some() && format != Format::Parquet {
            return Err(Error::config("row_group_size is given, and only Parquet has row groups"));
        }
        if self.row_group_size.is_some_and(|rows| rows == 0 || rows > MOST_ROWS) {
            let rows = self.row_group_size.unwrap_or_default();
            return Err(Error::config(format!("row_group_size is {rows}; must be 1 to {MOST_ROWS}")));
        }
        if self.max_samples == Some(0) {
            return Err(Error::config("max_samples is 0; must be 1 or more"));
        }
        if self.resize_shorter == Some(0) {
            return Err(Error::config("resize_shorter is 0; must be 1 or more pixels"));
        }
        if let Some(quality) = self.quality.filter(|quality| !(1..=100).contains(quality)) {
            return Err(Error::config(format!("quality is {quality}; must be 1 to 100")));
        }
        if self.on_error == OnError::Replace {
            return Err(Error::config(
                "on_error is \"replace\"; must be \"raise\" or \"skip\" where samples are written",
            )
            .with_hint("a replacement would be there twice, for good"));
        }
        Ok(())
    }
}

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Written {
    /// Shards, with those of an earlier run.
    pub shards: u64,
    /// Those of an earlier run.
    pub shards_before: u64,
    /// Samples in all shards.
    pub samples: u64,
    /// Bytes of all shards.
    pub bytes: u64,
    /// Samples that were left out.
    pub skipped: Vec<Skipped>,
    /// Paths of the shards, as a pattern that readers here take; of MDS their folder.
    pub urls: String,
    /// The list of all shards.
    pub manifest: String,
}
