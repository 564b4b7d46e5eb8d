//! Random plans of all verbs over all kinds of sources.
//!
//! A plan is made of a list of numbers, each of which is one choice, so that shortening the list and lowering its numbers
//! makes plans simpler: a choice of 0 is the simplest one, and so is one that the list has no number for.

use wellfed::{
    Dataset, ErrorKind, Options,
    plan::{Decoded, Node, OnError, Pad, PadValue},
    sample::FieldKind,
    source::SourceSpec,
    transform::{
        ClampBoundingBoxes, ColorJitter, ElasticTransform, GaussianNoise, RandomCrop, RandomErasing,
        RandomHorizontalFlip, RandomIoUCrop, RandomResize, RandomResizedCrop, RandomShortestSize,
        RandomZoomOut, Resize, SanitizeBoundingBoxes, Transform,
    },
};

use crate::sources::{Files, Kind, Leaf, MOST};

/// Elements that a part of a plan has at most, so that whole epochs stay small.
const LONGEST: u64 = 60;

/// Elements that a plan has at most, if it has an end.
const LONGEST_PLAN: u64 = 36;

/// Sources, as often as they are drawn: those whose samples differ in length can have all verbs.
const KINDS: [Kind; 14] = [
    Kind::Pixels,
    Kind::Tokens,
    Kind::Tokens,
    Kind::Encoded,
    Kind::Tokens,
    Kind::Folder,
    Kind::Tar,
    Kind::Tokens,
    Kind::Annotated,
    Kind::Voc,
    Kind::Coco,
    Kind::Files,
    Kind::Records,
    Kind::Annotated,
];

/// What differs from rank to rank, and may be another one when a state is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) rank: u64,
    pub(crate) ranks: u64,
    pub(crate) size: usize,
}

/// A plan and what is known of it.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) data: Dataset,
    pub(crate) leaves: Vec<Leaf>,
    pub(crate) on_error: OnError,
}

/// The fields of samples.
#[derive(Clone, Debug)]
enum Shape {
    Of(Kind),
    Zip(Vec<Shape>),
    Numbered(Box<Shape>, i64),
}

impl Shape {
    fn varies(&self) -> bool {
        match self {
            Shape::Of(kind) => *kind == Kind::Tokens,
            Shape::Zip(parts) => parts.iter().any(Shape::varies),
            Shape::Numbered(inner, _) => inner.varies(),
        }
    }
}

/// How samples become batches: the same in all of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Stacked,
    Padded { multiple_of: Option<usize>, lengths: bool, value: bool },
    Ragged,
}

pub(crate) struct Generator<'a> {
    choices: &'a [u32],
    next: usize,
    files: &'a Files,
    given: Option<Given>,
    style: Style,
    leaves: Vec<Leaf>,
}

impl<'a> Generator<'a> {
    /// With `given`, some verbs have its rank, number of ranks, and batch size.
    pub(crate) fn new(choices: &'a [u32], files: &'a Files, given: Option<Given>) -> Self {
        Self { choices, next: 0, files, given, style: Style::Stacked, leaves: Vec::new() }
    }

    fn below(&mut self, bound: u32) -> u32 {
        let choice = self.choices.get(self.next).copied().unwrap_or(0);
        self.next += 1;
        choice % bound
    }

    /// Once in `bound` times.
    fn seldom(&mut self, bound: u32) -> bool {
        self.below(bound) == bound - 1
    }

    /// Any plan.
    pub(crate) fn plan(mut self) -> Case {
        let shape = self.begin();
        let data = if self.seldom(5) { self.samples(&shape, 4) } else { self.batches(&shape, 4) };
        let mut data = self.shortened(data, LONGEST_PLAN);
        if self.seldom(8) {
            data = self.wild(&data);
        }
        self.finish(data)
    }

    /// A plan that ranks share, in most cases so that a state can be carried over to others.
    pub(crate) fn shared_plan(mut self) -> Case {
        let shape = self.begin();
        let way = self.below(10);
        let mut data = match way {
            // The verbs below have no size that may change.
            0..=6 => {
                let given = self.given.take();
                let data = self.samples(&shape, 3);
                self.given = given;
                let data = self.shortened(data, LONGEST);
                match way {
                    0 | 1 => {
                        let data = self.given_shard(data);
                        self.given_batch(data)
                    }
                    2 => {
                        let data = self.given_batch(data);
                        self.given_shard(data)
                    }
                    3 => self.given_shard(data),
                    4 => self.given_batch(data),
                    _ => {
                        let mut data = self.cut(data);
                        for _ in 0..self.below(3) {
                            data = self.part(data);
                        }
                        self.given_shard(data)
                    }
                }
            }
            7 => {
                let data = self.samples(&shape, 3);
                let data = self.given_shard(data);
                self.given_batch(data)
            }
            8 => self.samples(&shape, 4),
            _ => self.batches(&shape, 4),
        };
        if self.seldom(3) {
            data = self.verb_of_all(data);
        }
        let data = self.shortened(data, LONGEST);
        self.finish(data)
    }

    fn begin(&mut self) -> Shape {
        let shape = self.shape(2);
        let padded = |this: &mut Self| Style::Padded {
            multiple_of: [None, Some(1), Some(4)][this.below(3) as usize],
            lengths: this.seldom(2),
            value: this.seldom(2),
        };
        self.style = match self.below(5) {
            0 | 1 if !shape.varies() => Style::Stacked,
            0..=3 => padded(self),
            _ => Style::Ragged,
        };
        shape
    }

    fn finish(mut self, data: Dataset) -> Case {
        let on_error = match self.below(6) {
            4 => OnError::Skip,
            5 => OnError::Replace,
            _ => OnError::Raise,
        };
        let data = data.with_options(Options { on_error, ..Options::default() });
        Case { data, leaves: self.leaves, on_error }
    }

    fn shape(&mut self, depth: u32) -> Shape {
        let kind = |this: &mut Self| Shape::Of(KINDS[this.below(KINDS.len() as u32) as usize]);
        match self.below(8) {
            6 if depth > 0 => Shape::Zip((0..1 + self.below(2)).map(|_| self.shape(depth - 1)).collect()),
            7 if depth > 0 => Shape::Numbered(Box::new(self.shape(depth - 1)), i64::from(self.below(3)) * 7),
            _ => kind(self),
        }
    }

    fn shortened(&mut self, data: Dataset, most: u64) -> Dataset {
        match data.len().unwrap() {
            // It may be one of the lengths that a state must not be carried over in silence for.
            Some(len) if len > most => self.verb(data, |input| Node::Take { count: most, input }),
            _ => data,
        }
    }

    /// The data set with one more verb, or without it if it is refused.
    fn verb(&mut self, data: Dataset, make: impl FnOnce(Box<Node>) -> Node) -> Dataset {
        match data.verb(make(hole())) {
            Ok(data) => data,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Config, "{error}");
                data
            }
        }
    }

    /// A leaf, or what has the fields of several.
    fn base(&mut self, shape: &Shape, depth: u32) -> Dataset {
        let below = depth.saturating_sub(1);
        match shape {
            Shape::Of(kind) => {
                let first = 1000 * (self.leaves.len() as i64 + 1);
                let len = [7, MOST as u32, 5, 8, 3, MOST as u32, 6, 7, 8, 1, 4, 0][self.below(12) as usize];
                let leaf = Leaf::new(*kind, first, len as usize);
                self.leaves.push(leaf);
                let data = leaf.open(self.files);
                match kind {
                    Kind::Pixels | Kind::Tokens => data,
                    Kind::Annotated | Kind::Voc | Kind::Coco => {
                        let data = if self.seldom(4) { self.cached(data) } else { data };
                        // Pixels of image and mask stay comparable where none is resampled.
                        let crop = || Transform::from(RandomCrop::new(6).pad_if_needed(true));
                        let zoom = || Transform::from(RandomZoomOut::new().side_range([1.0, 2.0]));
                        let around: Transform = RandomIoUCrop::new().into();
                        let sized: Vec<Transform> = match self.below(7) {
                            0 | 1 => vec![RandomCrop::new(6).into()],
                            2 => vec![zoom(), crop()],
                            3 => vec![RandomResize::new(5, 15).into(), crop()],
                            4 => vec![RandomShortestSize::new([7, 12]).max_size(20).into(), crop()],
                            5 if *kind != Kind::Voc => vec![zoom(), around, crop()],
                            _ => vec![RandomResizedCrop::new(6).into()],
                        };
                        data.map(sized)
                    }
                    Kind::Encoded | Kind::Folder | Kind::Tar | Kind::Files | Kind::Records => {
                        let data = if self.seldom(2) { self.cached(data) } else { data };
                        let sized: Transform = match self.below(2) {
                            0 => Resize::new([6, 6]).into(),
                            _ => RandomResizedCrop::new(6).into(),
                        };
                        data.map([sized])
                    }
                }
            }
            Shape::Zip(parts) => {
                let parts: Vec<Dataset> = parts.iter().map(|part| self.samples(part, below)).collect();
                Dataset::zip(&parts).unwrap()
            }
            Shape::Numbered(inner, start) => {
                let inner = self.samples(inner, below);
                inner.verb(Node::Enumerate { start: *start, input: hole() }).unwrap()
            }
        }
    }

    fn cached(&mut self, data: Dataset) -> Dataset {
        if !data.output().unwrap().kinds.contains(&FieldKind::Image) {
            return data;
        }
        // What lies in memory is not kept on disk.
        let in_memory = data.sources().iter().any(|source| matches!(source.spec(), SourceSpec::Encoded(_)));
        let path = (self.seldom(2) && !in_memory).then(|| self.files.cache());
        let max_bytes = [Some(1 << 20), Some(1 << 20), Some(2000), None][self.below(4) as usize];
        // Without a limit it is half of the machine's memory, which tests must not ask for again and again.
        let max_bytes = max_bytes.or(path.is_none().then_some(1 << 16));
        self.verb(data, |input| Node::Cache { decoded: Decoded::Coefficients, path, max_bytes, input })
    }

    /// Samples.
    fn samples(&mut self, shape: &Shape, depth: u32) -> Dataset {
        if depth == 0 {
            return self.base(shape, 0);
        }
        let below = depth - 1;
        let data = match self.below(20) {
            0..=3 => self.base(shape, depth),
            4..=10 => {
                let data = self.samples(shape, below);
                self.verb_of_all(data)
            }
            11 | 12 => {
                let start = self.leaves.len();
                let data = self.batches(shape, below);
                data.verb(Node::Unbatch { input: hole() }).unwrap_or_else(|error| {
                    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
                    self.leaves.truncate(start);
                    self.base(shape, 0)
                })
            }
            13 | 14 => {
                let data = self.samples(shape, below);
                self.filtered(data)
            }
            15 => {
                let data = self.samples(shape, below);
                self.cached(data)
            }
            16 => {
                let data = self.samples(shape, below);
                self.mapped(data)
            }
            _ => self.several(|this| this.samples(shape, below)),
        };
        self.shortened(data, LONGEST)
    }

    /// Batches.
    fn batches(&mut self, shape: &Shape, depth: u32) -> Dataset {
        let below = depth.saturating_sub(1);
        let data = match self.below(12) {
            8 | 9 if depth > 1 => self.several(|this| this.batches(shape, below)),
            5..=7 if depth > 1 => {
                let data = self.batches(shape, below);
                self.verb_of_all(data)
            }
            10 | 11 if matches!(shape, Shape::Zip(_)) => self.zipped(shape, below),
            _ => {
                let data = self.samples(shape, below);
                self.batched(data)
            }
        };
        self.shortened(data, LONGEST)
    }

    /// A zip of batches.
    fn zipped(&mut self, shape: &Shape, depth: u32) -> Dataset {
        let Shape::Zip(parts) = shape else { panic!("{shape:?}") };
        let (size, drop_last) = (1 + self.below(4) as usize, self.below(2) == 0);
        let parts: Vec<Dataset> = parts.iter().map(|part| self.samples(part, depth)).collect();
        let batches: Vec<Dataset> = parts.iter().map(|part| part.batch(size, drop_last)).collect();
        let zipped = match self.style {
            Style::Stacked => Dataset::zip(&batches).ok(),
            Style::Padded { .. } | Style::Ragged => None,
        };
        zipped.unwrap_or_else(|| self.batch_of(Dataset::zip(&parts).unwrap(), size, drop_last))
    }

    /// A verb that samples and batches can have alike.
    fn verb_of_all(&mut self, data: Dataset) -> Dataset {
        match self.below(12) {
            0..=2 => self.part(data),
            3 | 4 => {
                let (seed, anew) = (u64::from(self.below(4)), self.below(4) > 0);
                self.verb(data, |input| shuffle(seed, None, 16, anew, input))
            }
            5 => {
                let (seed, size, window) = (self.below(4), 1 + self.below(5), 1 + self.below(3));
                let (block_size, window) = (Some(u64::from(size)), u64::from(window));
                let anew = self.below(4) > 0;
                self.verb(data, |input| shuffle(seed.into(), block_size, window, anew, input))
            }
            6 | 7 => {
                let count = Some([2, 3, 2, 4, 3, 1, 0][self.below(7) as usize]);
                self.verb(data, |input| Node::Repeat { count, input })
            }
            8 => self.verb(data, |input| Node::Repeat { count: None, input }),
            _ => {
                let given = self.given.filter(|_| self.below(2) == 0);
                let (rank, world_size) = given.map_or_else(
                    || {
                        let ranks = u64::from(1 + self.below(3));
                        (u64::from(self.below(3)) % ranks, ranks)
                    },
                    |given| (given.rank, given.ranks),
                );
                self.verb(data, |input| Node::Shard { rank, world_size, input })
            }
        }
    }

    /// A part of the elements.
    fn part(&mut self, data: Dataset) -> Dataset {
        if self.seldom(2) {
            let count = [1, 2, 4, 11][self.below(4) as usize];
            self.verb(data, |input| Node::Skip { count, input })
        } else {
            let count = [12, 20, 7, 30, 2, 15, 9, 0][self.below(8) as usize];
            self.verb(data, |input| Node::Take { count, input })
        }
    }

    fn given_shard(&mut self, data: Dataset) -> Dataset {
        let Some(Given { rank, ranks, .. }) = self.given else { return data };
        self.verb(data, |input| Node::Shard { rank, world_size: ranks, input })
    }

    fn given_batch(&mut self, data: Dataset) -> Dataset {
        let size = self.given.map_or(1, |given| given.size);
        let drop_last = self.seldom(3);
        self.batch_of(data, size, drop_last)
    }

    fn filtered(&mut self, data: Dataset) -> Dataset {
        let output = data.output().unwrap();
        let fields: Vec<&String> = output
            .names
            .iter()
            .zip(&output.kinds)
            .filter(|(_, kind)| **kind == FieldKind::LABEL)
            .map(|(name, _)| name)
            .collect();
        if fields.is_empty() {
            return data;
        }
        let field = fields[self.below(fields.len() as u32) as usize].clone();
        let leaf = self.below(self.leaves.len() as u32) as usize;
        let leaf = self.leaves[leaf];
        let number = |this: &mut Self| {
            let number = i64::from(this.below(9));
            if leaf.kind.is_stored() || field.ends_with("index") { number } else { leaf.first + number }
        };
        let (mut values, mut min, mut max) = (None, None, None);
        match self.below(4) {
            0 => min = Some(number(self)),
            1 => max = Some(number(self)),
            2 => (min, max) = (Some(number(self)), Some(number(self))),
            _ => values = Some((0..5).map(|_| number(self)).collect()),
        }
        self.verb(data, |input| Node::Filter { field, values, min, max, input })
    }

    fn mapped(&mut self, data: Dataset) -> Dataset {
        let transforms = vec![match self.below(8) {
            0 => Transform::from(RandomHorizontalFlip::default()),
            1 => RandomCrop::new(6).padding(2).into(),
            2 => ColorJitter::new().brightness(0.4).into(),
            3 => RandomErasing::new(0.7).into(),
            4 => SanitizeBoundingBoxes::default().into(),
            5 => GaussianNoise::default().into(),
            6 => ElasticTransform::new().alpha([2.0, 1.0]).sigma([0.0; 2]).into(),
            _ => ClampBoundingBoxes::default().into(),
        }];
        self.verb(data, |input| Node::Map { field: None, transforms, input })
    }

    /// Several data sets of the same fields as one.
    fn several(&mut self, mut one: impl FnMut(&mut Self) -> Dataset) -> Dataset {
        let start = self.leaves.len();
        let mut inputs = vec![one(self)];
        let first = self.leaves.len();
        for _ in 0..[1, 2, 1, 2, 0][self.below(5) as usize] {
            if self.seldom(4) {
                // The same sources once more.
                inputs.push(inputs[0].clone());
                self.leaves.extend_from_within(start..first);
            } else {
                inputs.push(one(self));
            }
        }
        let verb = match self.below(5) {
            0 | 1 => Node::Concatenate { inputs: Vec::new() },
            2 => Node::Interleave { block_length: u64::from(1 + self.below(3)), inputs: Vec::new() },
            _ => Node::SampleFromDatasets {
                weights: inputs.iter().map(|_| f64::from(1 + self.below(9))).collect(),
                seed: self.below(5).into(),
                stop_on_empty_dataset: self.seldom(2),
                inputs: Vec::new(),
            },
        };
        Dataset::combine(verb, &inputs).unwrap_or_else(|error| {
            assert_eq!(error.kind(), ErrorKind::Config, "{error}");
            self.leaves.truncate(first);
            inputs.swap_remove(0)
        })
    }

    fn batched(&mut self, data: Dataset) -> Dataset {
        if self.below(5) > 1 {
            return self.cut(data);
        }
        let given = self.given.filter(|_| self.below(2) == 0);
        let size = given.map_or_else(|| 1 + self.below(4) as usize, |given| given.size);
        let drop_last = self.seldom(3);
        self.batch_of(data, size, drop_last)
    }

    /// Batches that are cut by length, or others if nothing has a length.
    fn cut(&mut self, data: Dataset) -> Dataset {
        let output = data.output().unwrap();
        let varying: Vec<&String> = output
            .names
            .iter()
            .zip(&output.kinds)
            .filter(|(_, kind)| kind.varies())
            .map(|(name, _)| name)
            .collect();
        let size = 1 + self.below(4) as usize;
        if varying.is_empty() || self.style == Style::Stacked {
            return self.batch_of(data, size, false);
        }
        let field = varying[self.below(varying.len() as u32) as usize].clone();
        let field = (varying.len() > 1 || self.seldom(2)).then_some(field);
        let bucket_boundaries = [vec![5], vec![3, 8], vec![], vec![2, 4, 14]][self.below(4) as usize].clone();
        let drop = self.seldom(3);
        let pad = self.pad(&data);
        let cut = if self.style != Style::Ragged && self.seldom(2) {
            let max_tokens = u64::from(12 + self.below(30)) - if self.seldom(3) { 4 } else { 0 };
            self.verb(data.clone(), |input| Node::BatchByTokens {
                max_tokens,
                field,
                bucket_boundaries,
                drop_last: drop,
                pad,
                input,
            })
        } else {
            let bucket_batch_sizes =
                (0..=bucket_boundaries.len()).map(|_| u64::from(1 + self.below(4))).collect();
            let pad_to_bucket_boundary = self.seldom(4);
            let no_padding = self.style == Style::Ragged;
            self.verb(data.clone(), |input| Node::BucketBySequenceLength {
                field,
                bucket_boundaries,
                bucket_batch_sizes,
                drop_remainder: drop,
                pad_to_bucket_boundary,
                no_padding,
                pad,
                input,
            })
        };
        if cut.output().unwrap().batched { cut } else { self.batch_of(data, size, drop) }
    }

    fn pad(&self, data: &Dataset) -> Pad {
        let Style::Padded { multiple_of, lengths, value } = self.style else { return Pad::default() };
        let kinds = data.output().unwrap().kinds;
        let values = || kinds.iter().map(|kind| kind.varies().then_some(PadValue::Int(-1))).collect();
        Pad { multiple_of, lengths, mask: lengths, padding_values: value.then(values), padded_shapes: None }
    }

    fn batch_of(&mut self, data: Dataset, batch_size: usize, drop_last: bool) -> Dataset {
        let input = hole();
        let verb = match self.style {
            Style::Stacked => Node::Batch { batch_size, drop_last, input },
            Style::Padded { .. } => Node::PaddedBatch { batch_size, drop_last, pad: self.pad(&data), input },
            Style::Ragged => Node::RaggedBatch { batch_size, drop_last, input },
        };
        data.verb(verb).unwrap_or_else(|error| panic!("{error}\n{:?}", data.plan().root))
    }

    /// A verb that may make no sense here: that is found out when the loader is made.
    fn wild(&mut self, data: &Dataset) -> Dataset {
        match self.below(9) {
            0 => data.batch(2, false),
            1 => data.unbatch(),
            2 => data.map([RandomHorizontalFlip::default().into()]),
            3 => data.enumerate(0),
            4 => data.shuffle(1),
            5 => data.repeat(None),
            6 => data.shard(self.below(3).into(), self.below(3).into()),
            7 => data.map([RandomCrop::new(5).into()]),
            _ => data.cache(None, Some(1 << 16)),
        }
    }
}

/// What is put in the place of an input until there is one.
fn hole() -> Box<Node> {
    Box::new(Node::Concatenate { inputs: Vec::new() })
}

fn shuffle(seed: u64, block_size: Option<u64>, window: u64, anew: bool, input: Box<Node>) -> Node {
    Node::Shuffle { seed, block_size, window, reshuffle_each_iteration: anew, input }
}
