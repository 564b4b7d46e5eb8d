//! [`Outline`]: what of a plan decides samples and order, so that states of other plans are told, and why.
//!
//! Invariant: ranks, the number of ranks, batch sizes, caches and run options have no part in it.

use serde_json::{Value, json};

use super::{Node, Plan};

/// What tells a plan from others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outline {
    /// A hash of everything below, in full.
    pub(crate) fingerprint: u64,
    /// Each verb, those further down first, as `name:arguments`: for verbs that cut batches by length a JSON object, for
    /// all others a hash, so that states stay small. The last one is named `options`.
    pub(crate) verbs: Vec<String>,
}

impl Outline {
    /// Of a plan over sources with these identities, depth first.
    pub(crate) fn new(plan: &Plan, identities: &[u64]) -> Self {
        let mut verbs = Vec::new();
        let tree = note(&plan.root, &mut identities.iter().copied(), &mut verbs);
        let options = &plan.options;
        let options = json!([options.seed, options.mode, options.decode, options.exif_orientation]);
        verbs.push(format!("options:{}", short(&options)));
        Self { fingerprint: hash(&json!([tree, options])), verbs }
    }

    /// The first thing in which this plan differs from the one with the `verbs` of a state; `None` if that cannot be told.
    pub(crate) fn difference(&self, verbs: &[String]) -> Option<String> {
        let (now, then) = (split(&self.verbs)?, split(verbs)?);
        let names = |verbs: &[(&str, &str)]| -> String {
            let verbs = verbs.iter().map(|(name, _)| *name).filter(|name| *name != "options");
            verbs.collect::<Vec<_>>().join(", ")
        };
        if !now.iter().map(|(name, _)| name).eq(then.iter().map(|(name, _)| name)) {
            return Some(format!("its verbs are {}, and this one has {}", names(&then), names(&now)));
        }
        let (at, (now, then)) = now.iter().zip(&then).enumerate().find(|(_, (now, then))| now != then)?;
        let sources = self.verbs[..at].iter().filter(|verb| verb.starts_with("source:")).count();
        Some(match (now.0, arguments(now.1), arguments(then.1)) {
            ("source", ..) => format!("source {sources} has other samples or fields"),
            ("options", ..) => "seed, mode, decode or exif_orientation is another one".to_owned(),
            (verb, Some(now), Some(then)) => {
                let (name, value) = now.iter().find(|(name, value)| then.get(*name) != Some(*value))?;
                let before = then.get(name).unwrap_or(&Value::Null);
                format!("{name} of {verb}() was {before}, and is {value} here")
            }
            (verb, ..) => format!("{verb}() has other arguments"),
        })
    }
}

fn split(verbs: &[String]) -> Option<Vec<(&str, &str)>> {
    verbs.iter().map(|verb| verb.split_once(':')).collect()
}

fn arguments(text: &str) -> Option<serde_json::Map<String, Value>> {
    serde_json::from_str(text).ok()
}

/// FNV-1a over the JSON form.
fn hash(value: &Value) -> u64 {
    value.to_string().bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

fn short(value: &Value) -> String {
    let hash = hash(value);
    format!("{:08x}", (hash >> 32 ^ hash) as u32)
}

/// A tree as JSON, of which only what decides samples and order is left. Adds its verbs to `verbs`.
fn note(node: &Node, identities: &mut impl Iterator<Item = u64>, verbs: &mut Vec<String>) -> Value {
    let inputs: Vec<Value> = node.inputs().iter().map(|input| note(input, identities, verbs)).collect();
    let arguments = match node {
        Node::Source { .. } => Value::from(identities.next().unwrap_or(0)),
        Node::Cache { .. } => return inputs.into_iter().next().unwrap_or_default(),
        Node::Batch { drop_last, .. }
        | Node::PaddedBatch { drop_last, .. }
        | Node::RaggedBatch { drop_last, .. } => json!([drop_last]),
        Node::BucketBySequenceLength {
            field,
            bucket_boundaries,
            bucket_batch_sizes,
            drop_remainder,
            pad_to_bucket_boundary,
            ..
        } => json!({
            "field": field,
            "bucket_boundaries": bucket_boundaries,
            "bucket_batch_sizes": bucket_batch_sizes,
            "drop_remainder": drop_remainder,
            // Then samples beyond the last boundary are in no bucket.
            "pad_to_bucket_boundary": pad_to_bucket_boundary,
        }),
        Node::BatchByTokens { max_tokens, field, bucket_boundaries, drop_last, pad, .. } => json!({
            "max_tokens": max_tokens,
            "field": field,
            "bucket_boundaries": bucket_boundaries,
            "drop_last": drop_last,
            "multiple_of": pad.multiple_of,
        }),
        Node::BatchByDuration { max_duration, field, max_samples, bucket_boundaries, drop_last, .. } => {
            json!({
                "max_duration": max_duration,
                "field": field,
                "max_samples": max_samples,
                "bucket_boundaries": bucket_boundaries,
                "drop_last": drop_last,
            })
        }
        Node::Shard { .. } | Node::Unbatch { .. } | Node::Zip { .. } | Node::Concatenate { .. } => {
            Value::Null
        }
        Node::Map { field, transforms, .. } => json!([field, transforms]),
        Node::Mix { transforms, .. } => json!(transforms),
        Node::Shuffle { seed, block_size, window, reshuffle_each_iteration: true, .. } => {
            json!([seed, block_size.map(|size| (size, window))])
        }
        Node::Shuffle { seed, block_size, window, .. } => {
            json!([seed, block_size.map(|size| (size, window)), "reshuffle_each_iteration=False"])
        }
        Node::PythonFilter { name, kept, .. } => json!([name, kept]),
        Node::Python { kind, name, field, .. } => json!([kind, name, field]),
        Node::Enumerate { start, .. } => json!([start]),
        Node::Filter { field, values, min, max, .. } => json!([field, values, min, max]),
        Node::Repeat { count, .. } => json!([count]),
        Node::Take { count, .. } | Node::Skip { count, .. } => json!([count]),
        Node::Interleave { block_length, .. } => json!([block_length]),
        Node::SampleFromDatasets { weights, seed, stop_on_empty_dataset, .. } => {
            json!([weights, seed, stop_on_empty_dataset])
        }
    };
    let shown = if arguments.is_object() { arguments.to_string() } else { short(&arguments) };
    verbs.push(format!("{}:{shown}", node.name()));
    json!([node.name(), arguments, inputs])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{plan::Options, source::SourceSpec};

    fn leaf() -> Node {
        Node::source(SourceSpec::Custom { name: String::new() })
    }

    fn outline(root: Node, identities: &[u64]) -> Outline {
        Outline::new(&Plan { version: 2, root, options: Options::default() }, identities)
    }

    fn buckets(boundaries: &[u64]) -> Node {
        Node::BucketBySequenceLength {
            field: None,
            bucket_boundaries: boundaries.to_vec(),
            bucket_batch_sizes: vec![2; boundaries.len() + 1],
            drop_remainder: false,
            pad_to_bucket_boundary: false,
            no_padding: false,
            pad: crate::plan::Pad::default(),
            input: Box::new(leaf()),
        }
    }

    #[test]
    fn what_may_change_has_no_part_in_it() {
        let of = |rank, ranks, size| outline(leaf().shuffle(1).shard(rank, ranks).batch(size, true), &[7]);
        assert_eq!(of(0, 1, 4), of(2, 3, 5));
    }

    #[test]
    fn the_first_difference_is_named() {
        let says = |now: Outline, then: Outline| {
            assert_ne!(now.fingerprint, then.fingerprint);
            now.difference(&then.verbs).unwrap()
        };
        let plain = || outline(leaf().shuffle(1).batch(2, false), &[7]);
        assert_eq!(
            says(outline(leaf().shuffle(2).batch(2, false), &[7]), plain()),
            "shuffle() has other arguments"
        );
        assert_eq!(
            says(outline(leaf().shuffle(1).batch(2, false), &[8]), plain()),
            "source 0 has other samples or fields"
        );
        assert_eq!(
            says(outline(leaf().batch(2, false), &[7]), plain()),
            "its verbs are source, shuffle, batch, and this one has source, batch"
        );
        assert_eq!(
            says(outline(buckets(&[3, 8]), &[7]), outline(buckets(&[5, 8]), &[7])),
            "bucket_boundaries of bucket_by_sequence_length() was [5,8], and is [3,8] here"
        );
        let options = Options { seed: Some(3), ..Options::default() };
        let plan = Plan { version: 2, root: leaf().shuffle(1).batch(2, false), options };
        assert!(says(Outline::new(&plan, &[7]), plain()).starts_with("seed, mode"));
        assert_eq!(plain().difference(&plain().verbs), None);
        assert_eq!(plain().difference(&["rubbish".to_owned()]), None);
    }
}
