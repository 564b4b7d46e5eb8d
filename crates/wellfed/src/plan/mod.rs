//! What the user asked for, as data, and how it is turned into what workers run.
//!
//! [`Plan`] is serializable, versioned and printable: a tree of [`Node`]s. [`lower`] pushes what happens to samples
//! down to the sources, so that each has one [`Program`], the plan after the passes in [`optimizer`]; what is left of
//! the tree is the [`crate::order`].

mod assembly;
pub(crate) mod field;
mod kept;
pub mod lower;
mod node;
pub mod optimizer;
pub mod options;
mod pad;
pub mod program;

pub(crate) use assembly::Assembly;
pub use kept::Kept;
pub use node::{Decoded, Node, PythonKind};
pub use options::{Auto, Batching, Decoding, OnError, Options, RowIndexing};
pub use pad::{Pad, PadValue};
pub use program::Program;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Version of the plan's JSON form.
pub const PLAN_VERSION: u32 = 2;

/// A pipeline as data: a tree of sources and verbs, and options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// [`PLAN_VERSION`] when it was written.
    pub version: u32,
    /// The last verb, or the source.
    pub root: Node,
    /// How it is run. Does not change which samples or pixels come out, except where an option says so.
    pub options: Options,
}

impl Plan {
    /// A fingerprint of what decides samples and order: sources by their names and sizes (`identities`, depth first),
    /// and all else but rank, number of ranks, batch sizes, caches and run options. FNV-1a over the JSON form.
    pub(crate) fn fingerprint(&self, identities: &[u64]) -> u64 {
        let options = &self.options;
        let tree = essence(&self.root, &mut identities.iter().copied());
        let text = serde_json::to_string(&(
            tree,
            options.seed,
            options.mode,
            options.decode,
            options.exif_orientation,
        ))
        .expect("plans hold only data that JSON can express");
        text.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
        })
    }
}

/// A tree as JSON, of which only what decides samples and order is left.
fn essence(node: &Node, identities: &mut impl Iterator<Item = u64>) -> Value {
    let inputs: Vec<Value> = node.inputs().iter().map(|input| essence(input, identities)).collect();
    let parameters = match node {
        Node::Source { .. } => return Value::from(identities.next().unwrap_or(0)),
        Node::Cache { .. } => return inputs.into_iter().next().unwrap_or_default(),
        Node::Batch { drop_last, .. }
        | Node::PaddedBatch { drop_last, .. }
        | Node::RaggedBatch { drop_last, .. } => serde_json::json!({ "drop_last": drop_last }),
        Node::BucketBySequenceLength {
            field,
            bucket_boundaries,
            bucket_batch_sizes,
            drop_remainder,
            pad_to_bucket_boundary,
            ..
        } => {
            // Then samples beyond the last boundary are in no bucket. Others keep the fingerprint they always had.
            let refuses = pad_to_bucket_boundary.then_some("pad_to_bucket_boundary");
            let rule = (field, bucket_boundaries, bucket_batch_sizes, drop_remainder);
            refuses.map_or(serde_json::json!(rule), |refuses| serde_json::json!([rule, refuses]))
        }
        Node::BatchByTokens { max_tokens, field, bucket_boundaries, drop_last, pad, .. } => {
            serde_json::json!([max_tokens, field, bucket_boundaries, drop_last, pad.multiple_of])
        }
        Node::Shard { .. } | Node::Unbatch { .. } | Node::Zip { .. } | Node::Concatenate { .. } => {
            Value::Null
        }
        Node::Map { field, transforms, .. } => serde_json::json!([field, transforms]),
        Node::Shuffle { seed, block_size, window, .. } => {
            serde_json::json!([seed, block_size.map(|size| (size, window))])
        }
        Node::PythonFilter { name, kept, .. } => serde_json::json!([name, kept]),
        Node::Python { kind, name, field, .. } => serde_json::json!([kind, name, field]),
        Node::Enumerate { start, .. } => Value::from(*start),
        Node::Filter { field, values, min, max, .. } => serde_json::json!([field, values, min, max]),
        Node::Repeat { count, .. } => serde_json::json!(count),
        Node::Take { count, .. } | Node::Skip { count, .. } => Value::from(*count),
        Node::Interleave { block_length, .. } => Value::from(*block_length),
        Node::SampleFromDatasets { weights, seed, stop_on_empty_dataset, .. } => {
            serde_json::json!([weights, seed, stop_on_empty_dataset])
        }
    };
    serde_json::json!([node.name(), parameters, inputs])
}
