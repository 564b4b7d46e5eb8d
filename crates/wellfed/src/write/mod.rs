//! [`write()`]: a data set as tar shards, as the webdataset library writes them, and [`verify()`]: whether they are still
//! what was written.
//!
//! ```text
//! order -> make.rs (threads) -> queue.rs -> shards.rs (one thread) -> part -> sync -> rename -> manifest.rs
//!          fields.rs, images.rs             names.rs, tar.rs          disk.rs
//! ```
//!
//! Invariant: the bytes of shards depend on the samples, their order and the options alone, not on threads or time; and
//! under its own name a shard is complete, whenever the process or the machine ends.

mod disk;
mod fields;
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
    manifest::Skipped,
    progress::{Progress, Snapshot},
    run::write,
    verify::{Problem, Verified, verify},
};
use crate::{
    Error, Result,
    plan::{Auto, OnError},
};

/// How shards are written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WriteOptions {
    /// Most bytes of a shard; one with a single sample may have more. Default: 1 GB.
    pub max_bytes: u64,
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
    /// What happens at a sample that cannot be read or made: `Raise` ends the writing, `Skip` leaves it out and lists it.
    pub on_error: OnError,
    /// Threads that read and make samples.
    pub num_workers: Auto,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self {
            max_bytes: 1_000_000_000,
            max_samples: None,
            resize_shorter: None,
            quality: None,
            packed: false,
            on_error: OnError::Raise,
            num_workers: Auto::Auto,
        }
    }
}

impl WriteOptions {
    fn check(&self) -> Result<()> {
        // A member of a shard lies at a number of blocks that has 32 bits.
        const MOST: u64 = 1 << 40;
        if !(1..=MOST).contains(&self.max_bytes) {
            return Err(Error::config(format!("max_bytes is {}; must be 1 to {MOST}", self.max_bytes)));
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
    /// Paths of the shards, as a pattern that `webdataset` takes.
    pub urls: String,
    /// The list of all shards.
    pub manifest: String,
}
