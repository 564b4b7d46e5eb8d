//! What the user asked for, as data, and how it is turned into what workers run.
//!
//! [`Plan`] is serializable, versioned and printable. [`Program`] is the plan after the passes in
//! [`optimizer`]; [`explain`] shows both.

mod assembly;
pub mod explain;
pub mod optimizer;
pub mod options;
pub mod program;

pub(crate) use assembly::Assembly;
pub use assembly::{Pad, PadValue};
pub use options::{Auto, Batching, Decoding, OnError, Options, RowIndexing};
pub use program::Program;
use serde::{Deserialize, Serialize};

use crate::{Error, Result, source::SourceSpec, transform::Transform};

/// Version of the plan's JSON form.
pub const PLAN_VERSION: u32 = 1;

/// A pipeline as data: where samples come from, then verbs in the order they were written, then options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// [`PLAN_VERSION`] when it was written.
    pub version: u32,
    /// Where samples come from.
    pub source: SourceSpec,
    /// What happens to them.
    pub verbs: Vec<Verb>,
    /// How it is run. Does not change which samples or pixels come out, except where an option says so.
    pub options: Options,
}

/// One verb on a data set, named as in tf.data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "snake_case", deny_unknown_fields)]
pub enum Verb {
    /// A new global permutation in every epoch.
    Shuffle {
        /// Seed of the permutation.
        seed: u64,
    },
    /// Transforms, one after the other.
    Map {
        /// The field they work on; `None` for every image field.
        field: Option<String>,
        /// What is done.
        transforms: Vec<Transform>,
    },
    /// Samples are kept from the first time they are made on. Stands before `map` and `batch`.
    Cache {
        /// In what form their images are kept.
        decoded: Decoded,
        /// The folder they are kept in; `None` is memory.
        #[serde(default)]
        path: Option<String>,
        /// Bytes that they may take there. `None`: half of the memory that is available, or of `memory_budget` if
        /// that is set; without end on disk.
        #[serde(default)]
        max_bytes: Option<u64>,
    },
    /// Samples are stacked.
    Batch {
        /// Samples in a batch.
        batch_size: usize,
        /// Whether a smaller last batch is left out.
        drop_last: bool,
    },
    /// The data set several times over.
    Repeat {
        /// How often; `None` is without end.
        count: Option<u64>,
    },
    /// At most the first elements.
    Take {
        /// How many.
        count: u64,
    },
    /// All but the first elements.
    Skip {
        /// How many.
        count: u64,
    },
    /// Every `world_size`-th element, beginning with `rank`.
    Shard {
        /// This process, in `0..world_size`.
        rank: u64,
        /// Processes that share the data set.
        world_size: u64,
    },
}

/// How far the images of a cache are decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decoded {
    /// JPEGs are kept as [packed coefficients](wellfed_jpeg::Packed), other formats as they are.
    Coefficients,
}

impl Plan {
    /// How samples are put together; `given` if the caller chooses the samples of each batch.
    pub(crate) fn assembly(&self, given: bool) -> Assembly<'_> {
        let batched = self.verbs.iter().any(|verb| matches!(verb, Verb::Batch { .. }));
        match (given, batched) {
            (true, _) => Assembly::List,
            (false, true) => Assembly::Stacked,
            (false, false) => Assembly::Alone,
        }
    }

    /// The verb `cache`, if there is one.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] for more than one, or one that comes after `map` or `batch`.
    pub(crate) fn cache(&self) -> Result<Option<(Option<&str>, Option<u64>)>> {
        let mut found = None;
        for (place, verb) in self.verbs.iter().enumerate() {
            let Verb::Cache { decoded: Decoded::Coefficients, path, max_bytes } = verb else { continue };
            if found.replace((path.as_deref(), *max_bytes)).is_some() {
                return Err(Error::config("cache() stands twice"));
            }
            let late = |verb: &Verb| matches!(verb, Verb::Map { .. } | Verb::Batch { .. });
            if self.verbs[..place].iter().any(late) {
                return Err(Error::config(
                    "cache(decoded=\"coefficients\") keeps images as they are stored, not as map() makes them",
                )
                .with_hint("put it before map() and batch()"));
            }
        }
        Ok(found)
    }

    /// The seed of the transforms' random numbers: the option, or else the last shuffle's, or else 0.
    pub fn seed(&self) -> u64 {
        let shuffled = self.verbs.iter().rev().find_map(|verb| match verb {
            Verb::Shuffle { seed } => Some(*seed),
            _ => None,
        });
        self.options.seed.or(shuffled).unwrap_or(0)
    }

    /// A fingerprint of what decides samples and order: all but rank, number of ranks, batching, caches and run options.
    /// FNV-1a over the JSON form.
    pub fn fingerprint(&self, source_len: u64) -> u64 {
        let mut verbs = self.verbs.clone();
        verbs.retain(|verb| !matches!(verb, Verb::Cache { .. }));
        for verb in &mut verbs {
            match verb {
                Verb::Shard { rank, world_size } => (*rank, *world_size) = (0, 1),
                Verb::Batch { batch_size, .. } => *batch_size = 1,
                _ => {}
            }
        }
        let text =
            serde_json::to_string(&(&verbs, self.seed(), source_len, self.options.mode, self.options.decode))
                .expect("plans hold only data that JSON can express");
        text.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
        })
    }
}
