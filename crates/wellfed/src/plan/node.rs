//! [`Node`]: one entry of the plan's tree, named as in tf.data.

use serde::{Deserialize, Serialize};

use super::{kept::Kept, pad::Pad};
use crate::{
    Error, Result,
    source::SourceSpec,
    transform::{Mixing, Transform},
};

/// Nodes on the way from the root to a leaf at most: what JSON readers take.
const MAX_DEPTH: usize = 100;

/// One entry of the plan's tree: a source, a verb with one input, or a verb with several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "node", rename_all = "snake_case", deny_unknown_fields)]
pub enum Node {
    /// Where samples come from: a leaf of the tree.
    Source {
        /// How it is opened.
        spec: SourceSpec,
    },
    /// A permutation, a new one in every epoch.
    Shuffle {
        /// Seed of the permutation.
        seed: u64,
        /// `None`: one permutation of everything. Otherwise blocks of so many neighbours stay together: the order of
        /// blocks is permuted, and what is in a window of [`Node::Shuffle::window`] blocks.
        #[serde(default)]
        block_size: Option<u64>,
        /// Blocks of a window.
        #[serde(default = "default_window")]
        window: u64,
        /// Whether every epoch, and every repetition, has a permutation of its own; otherwise all have that of epoch 0.
        #[serde(default = "yes", skip_serializing_if = "is_yes")]
        reshuffle_each_iteration: bool,
        /// What is shuffled.
        input: Box<Node>,
    },
    /// Transforms, one after the other.
    Map {
        /// The field they work on; `None` for every image field.
        field: Option<String>,
        /// What is done.
        transforms: Vec<Transform>,
        /// What is transformed.
        input: Box<Node>,
    },
    /// Finished batches are mixed, one transform after the other.
    Mix {
        /// What is done.
        transforms: Vec<Mixing>,
        /// Batches.
        input: Box<Node>,
    },
    /// Samples are kept from the first time they are made on. Stands before `map` and `batch`.
    Cache {
        /// In what form their images are kept.
        decoded: Decoded,
        /// The folder they are kept in; `None` is memory.
        #[serde(default)]
        path: Option<String>,
        /// Bytes that they may take there. `None`: half of the memory that is available, or of `memory_budget` if
        /// that is set; without end on disk. Several sources below share it.
        #[serde(default)]
        max_bytes: Option<u64>,
        /// What is kept.
        input: Box<Node>,
    },
    /// Samples are stacked.
    Batch {
        /// Samples in a batch.
        batch_size: usize,
        /// Whether a smaller last batch is left out.
        drop_last: bool,
        /// Samples.
        input: Box<Node>,
    },
    /// Samples are stacked, and arrays that differ in size padded.
    PaddedBatch {
        /// Samples in a batch.
        batch_size: usize,
        /// Whether a smaller last batch is left out.
        drop_last: bool,
        /// To what, and with what.
        #[serde(default)]
        pad: Pad,
        /// Samples.
        input: Box<Node>,
    },
    /// Samples are stacked, and arrays that differ in length put one after the other.
    RaggedBatch {
        /// Samples in a batch.
        batch_size: usize,
        /// Whether a smaller last batch is left out.
        drop_last: bool,
        /// Samples.
        input: Box<Node>,
    },
    /// Batches of samples of similar length.
    BucketBySequenceLength {
        /// The field whose length counts; `None` if only one differs in length.
        field: Option<String>,
        /// Lengths from which on the next bucket begins.
        bucket_boundaries: Vec<u64>,
        /// Samples in a batch, for each bucket: one more than there are boundaries.
        bucket_batch_sizes: Vec<u64>,
        /// Whether the smaller batches at the end of an epoch are left out.
        drop_remainder: bool,
        /// Whether arrays are padded to one less than the boundary of their bucket.
        pad_to_bucket_boundary: bool,
        /// Whether arrays are not padded, but put one after the other.
        no_padding: bool,
        /// To what, and with what.
        #[serde(default)]
        pad: Pad,
        /// Samples.
        input: Box<Node>,
    },
    /// Batches of as many samples as have so many tokens.
    BatchByTokens {
        /// Tokens in a batch at most, padding included.
        max_tokens: u64,
        /// The field whose length counts; `None` if only one differs in length.
        field: Option<String>,
        /// Lengths from which on the next bucket begins; without, there is one bucket.
        #[serde(default)]
        bucket_boundaries: Vec<u64>,
        /// Whether the batches that are not full at the end of an epoch are left out.
        drop_last: bool,
        /// To what, and with what.
        #[serde(default)]
        pad: Pad,
        /// Samples.
        input: Box<Node>,
    },
    /// Batches of sounds of so many seconds or samples.
    BatchByDuration {
        /// Seconds in a batch at most, padding included; `None` is any number of them.
        max_duration: Option<f64>,
        /// The field whose duration counts; `None` if there is only one of sounds.
        field: Option<String>,
        /// Samples in a batch at most: none is any number, one holds for all buckets, or there is one for each.
        #[serde(default)]
        max_samples: Vec<u64>,
        /// Seconds from which on the next bucket begins; without, there is one bucket.
        #[serde(default)]
        bucket_boundaries: Vec<f64>,
        /// Whether the batches that are not full at the end of an epoch are left out.
        drop_last: bool,
        /// To what, and with what.
        #[serde(default)]
        pad: Pad,
        /// Samples.
        input: Box<Node>,
    },
    /// Batches become samples again.
    Unbatch {
        /// Batches.
        input: Box<Node>,
    },
    /// Each sample comes with its number.
    Enumerate {
        /// The first number.
        start: i64,
        /// What is numbered.
        input: Box<Node>,
    },
    /// Samples whose number in a field is one of some, or in a range. Found out with one pass over that field.
    Filter {
        /// A field of whole numbers.
        field: String,
        /// The numbers that are kept; `None` is all.
        #[serde(default)]
        values: Option<Vec<i64>>,
        /// The least that is kept.
        #[serde(default)]
        min: Option<i64>,
        /// The greatest that is kept.
        #[serde(default)]
        max: Option<i64>,
        /// What is filtered.
        input: Box<Node>,
    },
    /// The data set several times over.
    Repeat {
        /// How often; `None` is without end.
        count: Option<u64>,
        /// What is repeated.
        input: Box<Node>,
    },
    /// At most the first elements.
    Take {
        /// How many.
        count: u64,
        /// What they are taken from.
        input: Box<Node>,
    },
    /// All but the first elements.
    Skip {
        /// How many.
        count: u64,
        /// What they are left out of.
        input: Box<Node>,
    },
    /// Every `world_size`-th element, beginning with `rank`.
    Shard {
        /// This process, in `0..world_size`.
        rank: u64,
        /// Processes that share the data set.
        world_size: u64,
        /// What is shared.
        input: Box<Node>,
    },
    /// What a function of Python kept. Which elements those are is part of the plan.
    PythonFilter {
        /// What the function is called.
        name: String,
        /// The elements.
        kept: Kept,
        /// What it was asked about.
        input: Box<Node>,
    },
    /// A function of Python's, which travels beside the plan. It changes elements, and never their order.
    Python {
        /// What it works on.
        kind: PythonKind,
        /// What it is called.
        name: String,
        /// The field it works on; `None` is the whole element.
        #[serde(default)]
        field: Option<String>,
        /// What it is called with.
        input: Box<Node>,
    },
    /// Tuples of what the inputs give, as long as the shortest of them.
    Zip {
        /// At least one.
        inputs: Vec<Node>,
    },
    /// One input after the other.
    Concatenate {
        /// At least one.
        inputs: Vec<Node>,
    },
    /// A block of each input in turn; what has ended drops out.
    Interleave {
        /// Neighbours of one input that stay together.
        block_length: u64,
        /// At least one.
        inputs: Vec<Node>,
    },
    /// Each element from an input that is chosen at random.
    SampleFromDatasets {
        /// How often each input is chosen, in proportion.
        weights: Vec<f64>,
        /// Seed of the choice.
        seed: u64,
        /// Whether the first input that has ended ends it all. Otherwise the others go on.
        stop_on_empty_dataset: bool,
        /// At least one.
        inputs: Vec<Node>,
    },
}

fn default_window() -> u64 {
    16
}

fn yes() -> bool {
    true
}

/// Plans in which each epoch has its own order are written as they were before there were others.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_yes(value: &bool) -> bool {
    *value
}

/// What a function of Python's works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PythonKind {
    /// An element: a sample, or a batch after `batch`.
    Map,
    /// The samples of a batch: stands directly above it.
    Collate,
}

/// How far the images of a cache are decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decoded {
    /// JPEGs are kept as [packed coefficients](wellfed_jpeg::Packed), other formats as they are.
    Coefficients,
}

/// The inputs of a node, borrowed as `$as` and `$from` say: to be read, or to be changed.
macro_rules! inputs {
    ($node:expr, $as:ident, $from:ident) => {
        match $node {
            Node::Source { .. } => Default::default(),
            Node::Shuffle { input, .. }
            | Node::Map { input, .. }
            | Node::Mix { input, .. }
            | Node::Cache { input, .. }
            | Node::Batch { input, .. }
            | Node::PaddedBatch { input, .. }
            | Node::RaggedBatch { input, .. }
            | Node::BucketBySequenceLength { input, .. }
            | Node::BatchByTokens { input, .. }
            | Node::BatchByDuration { input, .. }
            | Node::Unbatch { input }
            | Node::Enumerate { input, .. }
            | Node::Filter { input, .. }
            | Node::Repeat { input, .. }
            | Node::Take { input, .. }
            | Node::Skip { input, .. }
            | Node::Shard { input, .. }
            | Node::PythonFilter { input, .. }
            | Node::Python { input, .. } => std::slice::$from(input.$as()),
            Node::Zip { inputs }
            | Node::Concatenate { inputs }
            | Node::Interleave { inputs, .. }
            | Node::SampleFromDatasets { inputs, .. } => inputs,
        }
    };
}

impl Node {
    /// What it takes its elements from.
    pub fn inputs(&self) -> &[Node] {
        inputs!(self, as_ref, from_ref)
    }

    /// As [`Node::inputs`], to be changed.
    pub fn inputs_mut(&mut self) -> &mut [Node] {
        inputs!(self, as_mut, from_mut)
    }

    /// This verb on other inputs.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] if it takes another number of inputs.
    pub fn with_inputs(mut self, given: Vec<Node>) -> Result<Self> {
        if let Node::Zip { inputs }
        | Node::Concatenate { inputs }
        | Node::Interleave { inputs, .. }
        | Node::SampleFromDatasets { inputs, .. } = &mut self
        {
            *inputs = given;
            return Ok(self);
        }
        let taken = self.inputs_mut();
        if taken.len() != given.len() {
            let (taken, given) = (taken.len(), given.len());
            return Err(Error::config(format!("{}() takes {taken} data sets, not {given}", self.name())));
        }
        taken.iter_mut().zip(given).for_each(|(input, given)| *input = given);
        Ok(self)
    }

    /// Whether batches are cut by the durations of sounds somewhere in this tree.
    pub(crate) fn cuts_by_duration(&self) -> bool {
        matches!(self, Node::BatchByDuration { .. })
            || self.inputs().iter().any(|input| input.cuts_by_duration())
    }

    /// What it is called in Python.
    pub fn name(&self) -> &'static str {
        match self {
            Node::Source { .. } => "source",
            Node::Shuffle { .. } => "shuffle",
            Node::Map { .. } | Node::Mix { .. } => "map",
            Node::Cache { .. } => "cache",
            Node::Batch { .. } => "batch",
            Node::PaddedBatch { .. } => "padded_batch",
            Node::RaggedBatch { .. } => "ragged_batch",
            Node::BucketBySequenceLength { .. } => "bucket_by_sequence_length",
            Node::BatchByTokens { .. } => "batch_by_tokens",
            Node::BatchByDuration { .. } => "batch_by_duration",
            Node::Unbatch { .. } => "unbatch",
            Node::Enumerate { .. } => "enumerate",
            Node::Filter { .. } => "filter",
            Node::Repeat { .. } => "repeat",
            Node::Take { .. } => "take",
            Node::Skip { .. } => "skip",
            Node::Shard { .. } => "shard",
            Node::PythonFilter { .. } => "filter",
            Node::Python { kind: PythonKind::Map, .. } => "map",
            Node::Python { kind: PythonKind::Collate, .. } => "batch",
            Node::Zip { .. } => "zip",
            Node::Concatenate { .. } => "concatenate",
            Node::Interleave { .. } => "interleave",
            Node::SampleFromDatasets { .. } => "sample_from_datasets",
        }
    }

    /// Whether it puts data sets together.
    pub(crate) fn takes_several(&self) -> bool {
        matches!(
            self,
            Node::Zip { .. }
                | Node::Concatenate { .. }
                | Node::Interleave { .. }
                | Node::SampleFromDatasets { .. }
        )
    }

    /// The descriptions of all sources, depth first.
    pub fn sources(&self) -> Vec<&SourceSpec> {
        match self {
            Node::Source { spec } => vec![spec],
            _ => self.inputs().iter().flat_map(Node::sources).collect(),
        }
    }

    /// Whether it says which samples come when, of one data set, and nothing of what they are.
    pub(crate) fn only_orders(&self) -> bool {
        matches!(
            self,
            Node::Source { .. }
                | Node::Shuffle { .. }
                | Node::Take { .. }
                | Node::Skip { .. }
                | Node::Shard { .. }
                | Node::Repeat { .. }
        )
    }

    /// The first node, from the root down, of which that is true.
    pub(crate) fn first_that(&self, is: impl Fn(&Node) -> bool + Copy) -> Option<&Node> {
        if is(self) { Some(self) } else { self.inputs().iter().find_map(|input| input.first_that(is)) }
    }

    /// Puts another source in the place of the only one.
    pub(crate) fn replace_source(&mut self, new: SourceSpec) {
        match self {
            Node::Source { spec } => *spec = new,
            other => {
                for input in other.inputs_mut() {
                    input.replace_source(new.clone());
                }
            }
        }
    }

    /// Keeps all secrets in URLs of sources in this process instead: see [`crate::store::secrets`].
    pub(crate) fn seal(&mut self) {
        if let Node::Source { spec } = self {
            spec.seal();
        }
        self.inputs_mut().iter_mut().for_each(Node::seal);
    }

    /// Whether samples are made by Python, wholly or in part.
    pub fn has_python(&self) -> bool {
        matches!(self, Node::Python { .. } | Node::Source { spec: SourceSpec::Python(_) })
            || self.inputs().iter().any(Node::has_python)
    }

    /// Nodes on the longest way to a leaf.
    fn depth(&self) -> usize {
        1 + self.inputs().iter().map(Node::depth).max().unwrap_or(0)
    }

    /// Checks what holds for every tree.
    pub(crate) fn check(&self) -> Result<()> {
        let depth = self.depth();
        if depth > MAX_DEPTH {
            return Err(Error::config(format!(
                "the pipeline has {depth} verbs one upon the other; at most {MAX_DEPTH} can be"
            ))
            .with_hint("concatenate() and its siblings take many data sets at once"));
        }
        self.check_inputs()
    }

    fn check_inputs(&self) -> Result<()> {
        if self.inputs().is_empty() && !matches!(self, Node::Source { .. }) {
            return Err(Error::config(format!("{}() needs at least one data set", self.name())));
        }
        self.inputs().iter().try_for_each(Node::check_inputs)
    }
}

/// Verbs as they are written one after the other.
impl Node {
    /// A leaf.
    pub fn source(spec: SourceSpec) -> Self {
        Node::Source { spec }
    }

    fn boxed(self) -> Box<Self> {
        Box::new(self)
    }

    /// See [`Node::Shuffle`].
    #[must_use]
    pub fn shuffle(self, seed: u64) -> Self {
        Node::Shuffle {
            seed,
            block_size: None,
            window: default_window(),
            reshuffle_each_iteration: true,
            input: self.boxed(),
        }
    }

    /// See [`Node::Batch`].
    #[must_use]
    pub fn batch(self, batch_size: usize, drop_last: bool) -> Self {
        Node::Batch { batch_size, drop_last, input: self.boxed() }
    }

    /// See [`Node::Take`].
    #[must_use]
    pub fn take(self, count: u64) -> Self {
        Node::Take { count, input: self.boxed() }
    }

    /// See [`Node::Skip`].
    #[must_use]
    pub fn skip(self, count: u64) -> Self {
        Node::Skip { count, input: self.boxed() }
    }

    /// See [`Node::Repeat`].
    #[must_use]
    pub fn repeat(self, count: Option<u64>) -> Self {
        Node::Repeat { count, input: self.boxed() }
    }

    /// See [`Node::Shard`].
    #[must_use]
    pub fn shard(self, rank: u64, world_size: u64) -> Self {
        Node::Shard { rank, world_size, input: self.boxed() }
    }
}
