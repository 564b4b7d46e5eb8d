//! What the user asked for, as data, and how it is turned into what workers run.
//!
//! [`Plan`] is serializable, versioned and printable. [`Program`] is the plan after the passes in
//! [`optimizer`]; [`explain`] shows both.

pub mod explain;
pub mod optimizer;
pub mod options;
pub mod program;

pub use options::{Auto, Batching, OnError, Options, RowIndexing};
pub use program::Program;
use serde::{Deserialize, Serialize};

use crate::{source::SourceSpec, transform::Transform};

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

impl Plan {
    /// The seed of the transforms' random numbers: the option, or else the last shuffle's, or else 0.
    pub fn seed(&self) -> u64 {
        let shuffled = self.verbs.iter().rev().find_map(|verb| match verb {
            Verb::Shuffle { seed } => Some(*seed),
            _ => None,
        });
        self.options.seed.or(shuffled).unwrap_or(0)
    }

    /// A fingerprint of what decides samples and order: all but rank, number of ranks, batching and run options.
    /// FNV-1a over the JSON form.
    pub fn fingerprint(&self, source_len: u64) -> u64 {
        let mut verbs = self.verbs.clone();
        for verb in &mut verbs {
            match verb {
                Verb::Shard { rank, world_size } => (*rank, *world_size) = (0, 1),
                Verb::Batch { batch_size, .. } => *batch_size = 1,
                _ => {}
            }
        }
        let text = serde_json::to_string(&(&verbs, self.seed(), source_len, self.options.mode))
            .expect("plans hold only data that JSON can express");
        text.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
        })
    }
}
