//! What a plan gives, worked out in the plainest way: every verb makes a list of a list.
//!
//! Nothing here looks at positions, spans or states. Only the numbers that a shuffle or a mixture draws are asked of
//! wellfed, for a data set that has no other verb, and checked to be a permutation and to take each input in its order.

use std::{cell::RefCell, collections::HashMap};

use wellfed::{
    Dataset,
    order::Pick,
    plan::{Node, Pad},
};

use crate::sources::{Cell, Leaf, blank};

/// More elements than any data set with an end has.
pub(crate) const ALL: usize = 3000;

/// A sample: what is picked of each source that takes part.
pub(crate) type Sample = Vec<Pick>;

/// An element of a data set: a batch, or a single sample.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Element {
    pub(crate) samples: Vec<Sample>,
    /// What its arrays are padded to, if that is not left to the batch.
    pub(crate) pad_to: Option<usize>,
    /// Its sample is too long for any batch.
    pub(crate) refused: bool,
}

impl Element {
    fn of(samples: Vec<Sample>) -> Self {
        Self { samples, pad_to: None, refused: false }
    }
}

/// What a leaf of the plan is.
#[derive(Clone, Copy, Debug)]
enum Source {
    Known(Leaf),
    /// The numbers of `enumerate`.
    Counter(i64),
}

pub(crate) struct Model<'a> {
    root: &'a Node,
    sources: Vec<Source>,
    drawn: RefCell<HashMap<String, Vec<usize>>>,
}

impl<'a> Model<'a> {
    pub(crate) fn new(root: &'a Node, leaves: &[Leaf]) -> Self {
        let mut sources = Vec::new();
        let mut leaves = leaves.iter().copied();
        gather(root, &mut leaves, &mut sources);
        assert!(leaves.next().is_none(), "the plan has fewer sources");
        Self { root, sources, drawn: RefCell::default() }
    }

    /// The first `limit` elements of an epoch.
    pub(crate) fn elements(&self, epoch: u64, limit: usize) -> Vec<Element> {
        self.eval(self.root, 0, epoch, limit)
    }

    /// The first `limit` elements of the data set at `node`, which must be on the way from the root along first inputs.
    pub(crate) fn elements_of(&self, node: &Node, epoch: u64, limit: usize) -> Vec<Element> {
        self.eval(node, 0, epoch, limit)
    }

    /// Names of the columns.
    pub(crate) fn names(&self) -> Vec<String> {
        self.names_of(self.root, 0)
    }

    /// The values of a sample, column by column.
    pub(crate) fn cells(&self, sample: &Sample) -> Vec<Cell> {
        let of = |pick: &Pick| match self.sources[pick.leaf] {
            Source::Known(leaf) => leaf.row(pick.index as usize),
            Source::Counter(start) => vec![Cell::Number(start + pick.index as i64)],
        };
        sample.iter().flat_map(of).collect()
    }

    /// The pick that each column of a sample comes from, and the place of its source among those that are no counters.
    pub(crate) fn origins(&self, sample: &Sample) -> Vec<Option<(usize, Pick)>> {
        let of = |pick: &Pick| match self.sources[pick.leaf] {
            Source::Known(leaf) => {
                let before = &self.sources[..pick.leaf];
                let known = before.iter().filter(|source| matches!(source, Source::Known(_))).count();
                vec![Some((known, *pick)); leaf.columns().len()]
            }
            Source::Counter(_) => vec![None],
        };
        sample.iter().flat_map(of).collect()
    }

    fn names_of(&self, node: &Node, leaf: usize) -> Vec<String> {
        let own = |leaf: usize| match self.sources[leaf] {
            Source::Known(leaf) => leaf.columns().iter().map(|name| (*name).to_owned()).collect(),
            Source::Counter(_) => vec!["index".to_owned()],
        };
        let parts: Vec<Vec<String>> = match node {
            Node::Source { .. } => return own(leaf),
            Node::Enumerate { input, .. } => vec![own(leaf), self.names_of(input, leaf + 1)],
            Node::Zip { .. } => inputs(node, leaf).map(|(input, leaf)| self.names_of(input, leaf)).collect(),
            _ => return self.names_of(&node.inputs()[0], leaf),
        };
        let mut names = Vec::new();
        for (number, part) in parts.iter().enumerate() {
            for name in part {
                let elsewhere = (0..parts.len()).any(|other| other != number && parts[other].contains(name));
                names.push(if elsewhere { format!("{number}.{name}") } else { name.clone() });
            }
        }
        names
    }

    /// The first `limit` elements of `node`, whose first source is `leaf`.
    fn eval(&self, node: &Node, leaf: usize, epoch: u64, limit: usize) -> Vec<Element> {
        let limit = limit.min(ALL);
        let input = |limit: usize| self.eval(&node.inputs()[0], leaf, epoch, limit);
        let all = |limit: usize| -> Vec<Vec<Element>> {
            inputs(node, leaf).map(|(input, leaf)| self.eval(input, leaf, epoch, limit)).collect()
        };
        let mut elements = match node {
            Node::Source { .. } => {
                let Source::Known(known) = self.sources[leaf] else { panic!("leaf {leaf} is a counter") };
                let one = |index| Element::of(vec![vec![Pick { leaf, index, epoch }]]);
                (0..known.len as u64).map(one).collect()
            }
            Node::Map { .. } | Node::Mix { .. } | Node::Cache { .. } => input(limit),
            Node::Take { count, .. } => input(limit.min(*count as usize)),
            Node::Skip { count, .. } => {
                let count = *count as usize;
                input(limit + count).into_iter().skip(count).collect()
            }
            Node::Shuffle { .. } => {
                let input = input(ALL);
                let order = self.permutation(node, input.len(), epoch);
                order.into_iter().map(|at| input[at].clone()).collect()
            }
            Node::Repeat { count, .. } => {
                let mut elements = Vec::new();
                for repetition in 0..count.unwrap_or(u64::MAX) {
                    let epoch = epoch * count.unwrap_or(1) + repetition;
                    let one = self.eval(&node.inputs()[0], leaf, epoch, limit);
                    if one.is_empty() || elements.len() >= limit {
                        break;
                    }
                    elements.extend(one);
                }
                elements
            }
            Node::Shard { rank, world_size, .. } => {
                let (rank, ranks) = (*rank as usize, *world_size as usize);
                shard(&input(limit * ranks), 0, rank, ranks)
            }
            Node::Batch { batch_size, drop_last, .. }
            | Node::PaddedBatch { batch_size, drop_last, .. }
            | Node::RaggedBatch { batch_size, drop_last, .. } => {
                batch(&input(limit * batch_size), *batch_size, *drop_last)
            }
            Node::Unbatch { .. } => {
                let samples = input(limit).into_iter().flat_map(|batch| batch.samples);
                samples.map(|sample| Element::of(vec![sample])).collect()
            }
            Node::BucketBySequenceLength { .. } | Node::BatchByTokens { .. } => {
                self.cut(node, leaf, input(ALL))
            }
            Node::Enumerate { input, .. } => {
                let input = self.eval(input, leaf + 1, epoch, limit);
                let numbered = |(number, element): (usize, Element)| {
                    let number = Pick { leaf, index: number as u64, epoch };
                    Element::of(vec![[vec![number], element.samples[0].clone()].concat()])
                };
                input.into_iter().enumerate().map(numbered).collect()
            }
            Node::Filter { field, values, min, max, input: below } => {
                let column = self.names_of(below, leaf).iter().position(|name| name == field).unwrap();
                let keeps = |element: &Element| {
                    let Cell::Number(number) = self.cells(&element.samples[0])[column] else {
                        panic!("{field}")
                    };
                    values.as_ref().is_none_or(|values| values.contains(&number))
                        && min.is_none_or(|min| min <= number)
                        && max.is_none_or(|max| number <= max)
                };
                input(ALL).into_iter().filter(keeps).collect()
            }
            Node::Zip { .. } => {
                let parts = all(limit);
                let len = parts.iter().map(Vec::len).min().unwrap();
                let one = |at: usize| parts.iter().flat_map(|part| part[at].samples[0].clone()).collect();
                (0..len).map(|at| Element::of(vec![one(at)])).collect()
            }
            Node::Concatenate { .. } => all(limit).concat(),
            Node::Interleave { block_length, .. } => {
                let mut parts: Vec<_> = all(limit).into_iter().map(Vec::into_iter).collect();
                let mut elements = Vec::new();
                loop {
                    let before = elements.len();
                    for part in &mut parts {
                        elements.extend(part.by_ref().take(*block_length as usize));
                    }
                    if elements.len() == before {
                        break elements;
                    }
                }
            }
            Node::SampleFromDatasets { .. } => {
                let parts = all(ALL);
                let len = |((input, leaf), part): ((&Node, usize), &Vec<Element>)| {
                    (!self.is_endless(input, leaf)).then_some(part.len())
                };
                let lens: Vec<Option<usize>> = inputs(node, leaf).zip(&parts).map(len).collect();
                let chosen = self.choices(node, &lens, epoch, limit);
                let mut parts: Vec<_> = parts.into_iter().map(Vec::into_iter).collect();
                let next = |part: usize| {
                    let element = parts[part].next();
                    assert!(element.is_some() || lens[part].is_none(), "input {part} has ended");
                    element
                };
                chosen.into_iter().map_while(next).collect()
            }
            Node::BatchByDuration { .. } => panic!("there are no sounds here"),
            Node::PythonFilter { .. } | Node::Python { .. } => panic!("there is no Python here"),
        };
        elements.truncate(limit);
        elements
    }

    /// Batches by the length of samples.
    fn cut(&self, node: &Node, leaf: usize, input: Vec<Element>) -> Vec<Element> {
        let none = Vec::new();
        let (boundaries, sizes, drop, to_boundary, tokens) = match node {
            Node::BucketBySequenceLength {
                bucket_boundaries,
                bucket_batch_sizes,
                drop_remainder,
                pad_to_bucket_boundary,
                ..
            } => (bucket_boundaries, bucket_batch_sizes, *drop_remainder, *pad_to_bucket_boundary, None),
            Node::BatchByTokens { max_tokens, bucket_boundaries, drop_last, pad, .. } => {
                let rule = (*max_tokens as usize, pad.multiple_of.unwrap_or(1));
                (bucket_boundaries, &none, *drop_last, false, Some(rule))
            }
            _ => panic!("{} does not cut", node.name()),
        };
        let field = match node {
            Node::BucketBySequenceLength { field, .. } | Node::BatchByTokens { field, .. } => field.as_ref(),
            _ => None,
        };
        let names = self.names_of(&node.inputs()[0], leaf);
        let length = |sample: &Sample| {
            let cells = self.cells(sample);
            let chosen = |at: usize| field.is_none_or(|field| *field == names[at]);
            let tokens = cells.iter().enumerate().find_map(|(at, cell)| match cell {
                Cell::Tokens(tokens) if chosen(at) => Some(tokens.len()),
                _ => None,
            });
            tokens.expect("a sample has a length")
        };
        let endless = self.is_endless(&node.inputs()[0], leaf);
        let mut batches = Vec::new();
        let mut buckets: Vec<Vec<Sample>> = vec![Vec::new(); boundaries.len() + 1];
        let finished = |number: usize, samples: Vec<Sample>| {
            let end = boundaries.get(number).filter(|_| to_boundary);
            Element { samples, pad_to: end.map(|end| *end as usize - 1), refused: false }
        };
        for element in input {
            let [sample] = <[Sample; 1]>::try_from(element.samples).unwrap();
            let long = length(&sample);
            let too_long = tokens.is_some_and(|(most, multiple)| long.next_multiple_of(multiple) > most)
                || (to_boundary && boundaries.last().is_some_and(|last| long as u64 >= *last));
            if too_long {
                batches.push(Element { samples: vec![sample], pad_to: None, refused: true });
                continue;
            }
            let number = boundaries.iter().filter(|boundary| **boundary <= long as u64).count();
            let bucket = &mut buckets[number];
            if let Some((most, multiple)) = tokens {
                let longest = bucket.iter().map(length).chain([long, 1]).max().unwrap();
                let cost = longest.next_multiple_of(multiple) * (bucket.len() + 1);
                if !bucket.is_empty() && cost > most {
                    batches.push(finished(number, std::mem::take(bucket)));
                }
            }
            bucket.push(sample);
            if tokens.is_none() && bucket.len() as u64 == sizes[number] {
                batches.push(finished(number, std::mem::take(bucket)));
            }
        }
        if !endless && !drop {
            let left = buckets.into_iter().enumerate().filter(|(_, bucket)| !bucket.is_empty());
            batches.extend(left.map(|(number, bucket)| finished(number, bucket)));
        }
        batches
    }

    /// The order in which a shuffle gives `len` elements.
    fn permutation(&self, node: &Node, len: usize, epoch: u64) -> Vec<usize> {
        let Node::Shuffle { seed, block_size, window, reshuffle_each_iteration, input } = node else {
            panic!("{node:?}")
        };
        let epoch = if *reshuffle_each_iteration { epoch } else { 0 };
        assert!(len < ALL, "a data set without end is shuffled");
        let stage = shuffles(input);
        let key = format!("{len} {seed} {block_size:?} {window} {stage} {epoch}");
        if let Some(known) = self.drawn.borrow().get(&key) {
            return known.clone();
        }
        let below = (0..stage).fold(blank(len), |data, _| data.shuffle(0));
        let above = match block_size {
            None => below.shuffle(*seed),
            Some(size) => below.shuffle_blocks(*seed, *size, *window),
        };
        // Shuffles below count, but are not to be seen: elements have their numbers.
        let place: HashMap<u64, usize> =
            indices(&below, epoch, len).into_iter().enumerate().map(|(at, index)| (index, at)).collect();
        let order: Vec<usize> = indices(&above, epoch, len).iter().map(|index| place[index]).collect();
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..len), "{order:?} is no permutation");
        if block_size.is_none() && len > 20 {
            let other: Vec<usize> =
                indices(&above, epoch + 1, len).into_iter().map(|index| index as usize).collect();
            assert_ne!(indices(&above, epoch, len), other.iter().map(|at| *at as u64).collect::<Vec<_>>());
        }
        self.drawn.borrow_mut().insert(key, order.clone());
        order
    }

    /// The inputs that a mixture takes its first `limit` elements from.
    fn choices(&self, node: &Node, lens: &[Option<usize>], epoch: u64, limit: usize) -> Vec<usize> {
        let Node::SampleFromDatasets { weights, seed, stop_on_empty_dataset: stop, inputs } = node else {
            panic!("{node:?}")
        };
        let stage = inputs.iter().map(shuffles).max().unwrap();
        let blank = |len: &Option<usize>| {
            let data = (0..stage).fold(blank(len.unwrap_or(3)), |data, _| data.shuffle(0));
            if len.is_none() { data.repeat(None) } else { data }
        };
        let blanks: Vec<Dataset> = lens.iter().map(blank).collect();
        let mixture = Dataset::sample_from_datasets(&blanks, weights, *seed, *stop).unwrap();
        let sequence = mixture.sequence().unwrap();
        let len = sequence.len_from(epoch, 0).map_or(limit, |len| len as usize);
        if let (false, Some(lens)) = (*stop, lens.iter().copied().collect::<Option<Vec<_>>>()) {
            assert_eq!(len, lens.iter().sum::<usize>(), "all inputs come whole");
        }
        let choice = |at: usize| sequence.batch(epoch, 0, at as u64).unwrap()[0][0].leaf;
        (0..len.min(limit)).map(choice).collect()
    }

    /// Whether `node`, whose first source is `leaf`, has no end.
    pub(crate) fn is_endless(&self, node: &Node, leaf: usize) -> bool {
        let mut all = inputs(node, leaf + usize::from(matches!(node, Node::Enumerate { .. })))
            .map(|(input, leaf)| self.is_endless(input, leaf));
        match node {
            Node::Source { .. } | Node::Take { .. } => false,
            Node::Repeat { count: None, input } => !self.eval(input, leaf, 0, 1).is_empty(),
            Node::Zip { .. } => all.all(|endless| endless),
            Node::SampleFromDatasets { stop_on_empty_dataset: true, .. } => all.all(|endless| endless),
            _ => all.any(|endless| endless),
        }
    }
}

fn gather(node: &Node, leaves: &mut impl Iterator<Item = Leaf>, out: &mut Vec<Source>) {
    match node {
        Node::Source { .. } => out.push(Source::Known(leaves.next().expect("the plan has more sources"))),
        Node::Enumerate { start, .. } => out.push(Source::Counter(*start)),
        _ => {}
    }
    node.inputs().iter().for_each(|input| gather(input, leaves, out));
}

/// The inputs of a node, each with its first source.
fn inputs(node: &Node, leaf: usize) -> impl Iterator<Item = (&Node, usize)> {
    node.inputs().iter().scan(leaf, |next, input| {
        let first = *next;
        *next += leaves_of(input);
        Some((input, first))
    })
}

fn leaves_of(node: &Node) -> usize {
    let own = usize::from(matches!(node, Node::Source { .. } | Node::Enumerate { .. }));
    own + node.inputs().iter().map(leaves_of).sum::<usize>()
}

/// Shuffles and mixtures one upon the other, which tell their random numbers apart.
fn shuffles(node: &Node) -> usize {
    let own = usize::from(matches!(node, Node::Shuffle { .. } | Node::SampleFromDatasets { .. }));
    own + node.inputs().iter().map(shuffles).max().unwrap_or(0)
}

fn indices(data: &Dataset, epoch: u64, count: usize) -> Vec<u64> {
    let sequence = data.sequence().unwrap();
    (0..count as u64).map(|at| sequence.batch(epoch, 0, at).unwrap()[0][0].index).collect()
}

/// The part of a rank of what comes after the first `base` elements. What is missing for all ranks to have as many is
/// taken from the beginning.
pub(crate) fn shard(all: &[Element], base: usize, rank: usize, ranks: usize) -> Vec<Element> {
    let share = all.len().saturating_sub(base).div_ceil(ranks);
    (0..share).map(|at| all[(base + at * ranks + rank) % all.len()].clone()).collect()
}

/// Batches of `size` samples.
pub(crate) fn batch(samples: &[Element], size: usize, drop_last: bool) -> Vec<Element> {
    samples
        .chunks(size)
        .filter(|chunk| !drop_last || chunk.len() == size)
        .map(|chunk| Element::of(chunk.iter().flat_map(|element| element.samples.clone()).collect()))
        .collect()
}

/// How a plan pads, if it does.
pub(crate) fn padding(node: &Node) -> Option<&Pad> {
    match node {
        Node::PaddedBatch { pad, .. } | Node::BatchByTokens { pad, .. } => Some(pad),
        Node::BucketBySequenceLength { pad, no_padding: false, .. } => Some(pad),
        Node::Batch { .. }
        | Node::RaggedBatch { .. }
        | Node::BucketBySequenceLength { .. }
        | Node::Unbatch { .. } => None,
        _ => node.inputs().first().and_then(padding),
    }
}
