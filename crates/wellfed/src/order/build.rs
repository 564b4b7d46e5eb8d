//! Makes an [`Order`] from the plan's tree: lengths from the leaves upward, and what makes no sense is refused.

use std::sync::Arc;

use super::{
    BlockShuffle, Concatenate, Cutting, Entry, Fields, Interleave, Order, SampleFrom, Shard, Shuffle, Step,
    Top,
};
use crate::{
    Error, Result,
    plan::{Kept, Node},
};

impl Order {
    /// Follows the ordering verbs of a plan over sources of `lens` samples: those of the leaves, depth first.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] for a verb that makes no sense where it stands.
    pub fn new(root: &Node, lens: &[u64]) -> Result<Self> {
        Self::over(root, lens, &Fields::default(), &[])
    }

    /// As [`Order::new`], for plans that cut batches by the lengths of `fields`, and with the positions that each `filter`
    /// keeps: those further down first.
    pub(crate) fn over(root: &Node, lens: &[u64], fields: &Fields, kept: &[Arc<[u64]>]) -> Result<Self> {
        let mut building =
            Building { lens, fields, next: 0, kept: kept.iter(), entries: Vec::new(), padded: 0 };
        let root = building.node(root)?;
        let Building { entries, padded, .. } = building;
        let top = top(&entries, root.at);
        let batch_size = largest_batch(&entries, root.at);
        Ok(Self { root: root.at, top, padded, batch_size, entries })
    }
}

struct Building<'a> {
    lens: &'a [u64],
    fields: &'a Fields,
    next: usize,
    kept: std::slice::Iter<'a, Arc<[u64]>>,
    entries: Vec<Entry>,
    padded: u64,
}

/// An entry that was made, and the shuffles below it.
#[derive(Clone, Copy)]
struct Made {
    at: usize,
    len: Option<u64>,
    batched: bool,
    shuffles: u32,
}

impl Building<'_> {
    fn push(&mut self, step: Step, inputs: &[Made], len: Option<u64>, batched: bool) -> Made {
        let shuffles = inputs.iter().map(|input| input.shuffles).max().unwrap_or(0);
        let inputs: Vec<usize> = inputs.iter().map(|input| input.at).collect();
        let cut = matches!(step, Step::Cut(_)) || inputs.iter().any(|input| self.entries[*input].cut);
        self.entries.push(Entry { step, inputs, len, cut, batched });
        Made { at: self.entries.len() - 1, len, batched, shuffles }
    }

    fn leaf(&mut self) -> Result<Made> {
        let leaf = self.next;
        let len =
            *self.lens.get(leaf).ok_or_else(|| Error::config("the plan has more sources than lengths"))?;
        self.next += 1;
        Ok(self.push(Step::Leaf { leaf }, &[], Some(len), false))
    }

    /// The input of a verb.
    fn input(&mut self, verb: &Node, input: &Node) -> Result<Made> {
        let made = self.node(input)?;
        let counted = !matches!(
            verb,
            Node::Map { .. }
                | Node::Mix { .. }
                | Node::Cache { .. }
                | Node::Python { .. }
                | Node::Take { .. }
                | Node::Skip { .. }
                | Node::Shard { .. }
        );
        if counted && self.entries[made.at].cut {
            let (verb, below) = (verb.name(), self.cut_below(made.at));
            return Err(Error::config(format!(
                "{verb}() comes after {below}(), of which only a walk through an epoch tells how many batches it makes"
            ))
            .with_hint(format!("call {verb}() before {below}()")));
        }
        Ok(made)
    }

    /// The verb that cuts batches by length from which entry `at` comes.
    fn cut_below(&self, mut at: usize) -> &'static str {
        while let (Some(input), false) =
            (self.entries[at].inputs.first(), matches!(self.entries[at].step, Step::Cut(_)))
        {
            at = *input;
        }
        self.entries[at].step.name()
    }

    /// Whether ranks have parts of their own in what entry `at` gives.
    fn shared_out(&self, at: usize) -> bool {
        let entry = &self.entries[at];
        matches!(entry.step, Step::Shard(shard) if shard.world_size > 1)
            || entry.inputs.iter().any(|input| self.shared_out(*input))
    }

    /// Fails for a verb that gives as much as the samples make of it, where each rank has others: ranks that train
    /// together would wait for ever for the one that is through first.
    fn check_shared(&self, verb: &str, what: &str, at: usize) -> Result<()> {
        if !self.shared_out(at) {
            return Ok(());
        }
        Err(Error::config(format!(
            "{verb}() comes after shard(): ranks would get different numbers of {what}"
        ))
        .with_hint(format!("call shard() after {verb}(): then it deals its {what}")))
    }

    fn node(&mut self, node: &Node) -> Result<Made> {
        match node {
            Node::Source { .. } => self.leaf(),
            Node::Enumerate { input, .. } => {
                let number = self.leaf()?;
                let input = self.input(node, input)?;
                Ok(self.push(Step::Enumerate, &[number, input], input.len, false))
            }
            Node::Map { input, .. } | Node::Mix { input, .. } | Node::Cache { input, .. } => {
                self.input(node, input)
            }
            Node::Python { input, .. } => self.input(node, input),
            Node::PythonFilter { name, kept, input } => {
                let input = self.input(node, input)?;
                self.filter(name, kept, input)
            }
            Node::Zip { inputs } => {
                let inputs = self.all(node, inputs)?;
                let len = inputs.iter().filter_map(|input| input.len).min();
                Ok(self.push(Step::Zip, &inputs, len, false))
            }
            Node::Concatenate { inputs } => {
                let inputs = self.all(node, inputs)?;
                self.concatenate(&inputs)
            }
            Node::Interleave { block_length: 0, .. } => {
                Err(Error::config("block_length is 0; it must be at least 1"))
            }
            Node::Interleave { block_length, inputs } => {
                let inputs = self.all(node, inputs)?;
                let lens: Vec<Option<u64>> = inputs.iter().map(|input| input.len).collect();
                let len = total("interleave", &lens)?;
                let step = Step::Interleave(Interleave::new(*block_length, &lens));
                Ok(self.push(step, &inputs, len, batched(&inputs)))
            }
            Node::SampleFromDatasets { weights, seed, stop_on_empty_dataset, inputs } => {
                let inputs = self.all(node, inputs)?;
                let lens: Vec<Option<u64>> = inputs.iter().map(|input| input.len).collect();
                check_weights(weights, lens.len())?;
                total("sample_from_datasets", &lens)?;
                let stage = inputs.iter().map(|input| input.shuffles).max().unwrap_or(0);
                let sample = SampleFrom::new(weights, &lens, *seed, stage, *stop_on_empty_dataset);
                let len = sample.len();
                let made = self.push(Step::Sample(sample), &inputs, len, batched(&inputs));
                Ok(Made { shuffles: made.shuffles + 1, ..made })
            }
            Node::Shuffle { seed, block_size, window, reshuffle_each_iteration, input } => {
                let input = self.input(node, input)?;
                self.shuffle(*seed, *reshuffle_each_iteration, *block_size, *window, input)
            }
            Node::Take { count, input } => {
                let input = self.input(node, input)?;
                let len = input.len.map_or(*count, |n| n.min(*count));
                let len = (!self.entries[input.at].cut).then_some(len);
                Ok(self.push(Step::Take { count: *count }, &[input], len, input.batched))
            }
            Node::Skip { count, input } => {
                let input = self.input(node, input)?;
                let len = input.len.map(|n| n.saturating_sub(*count));
                Ok(self.push(Step::Skip { count: *count }, &[input], len, input.batched))
            }
            Node::Filter { input, .. } => {
                let input = self.node(input)?;
                if input.shuffles > 0 {
                    return Err(Error::config("filter() comes after shuffle() or sample_from_datasets(): which positions it keeps would change with every epoch")
                        .with_hint("call filter() before them"));
                }
                if input.len.is_none() {
                    return Err(endless("filter", "filter before repeat()"));
                }
                self.check_shared("filter", "samples", input.at)?;
                let kept = self.kept.next().cloned().unwrap_or_default();
                let len = kept.len() as u64;
                Ok(self.push(Step::Filter(kept), &[input], Some(len), false))
            }
            Node::Repeat { count, input } => {
                let input = self.input(node, input)?;
                let len = input.len.ok_or_else(|| endless("repeat", "repeat() once is enough"))?;
                let repeated = repeated(len, *count)?;
                Ok(self.push(Step::Repeat { len, count: *count }, &[input], repeated, input.batched))
            }
            Node::Shard { rank, world_size, input } => {
                let input = self.input(node, input)?;
                self.shard(*rank, *world_size, input)
            }
            Node::BucketBySequenceLength { input, .. }
            | Node::BatchByTokens { input, .. }
            | Node::BatchByDuration { input, .. } => {
                let input = self.input(node, input)?;
                let name = node.name();
                if input.batched {
                    return Err(Error::config(format!(
                        "{name}() comes after batch(), where it would work on whole batches"
                    ))
                    .with_hint("call unbatch() in between"));
                }
                self.check_shared(name, "batches", input.at)?;
                let cutting = Cutting::new(node, self.fields)?;
                Ok(self.push(Step::Cut(Arc::new(cutting)), &[input], None, true))
            }
            Node::Batch { batch_size: 0, .. }
            | Node::PaddedBatch { batch_size: 0, .. }
            | Node::RaggedBatch { batch_size: 0, .. } => {
                Err(Error::config("batch_size is 0; it must be at least 1"))
            }
            Node::Batch { batch_size, drop_last, input }
            | Node::PaddedBatch { batch_size, drop_last, input, .. }
            | Node::RaggedBatch { batch_size, drop_last, input } => {
                let input = self.input(node, input)?;
                if input.batched {
                    return Err(Error::config(
                        "batch() comes after batch(), where it would work on whole batches",
                    )
                    .with_hint("call unbatch() in between"));
                }
                let batch_size = *batch_size as u64;
                let batches = |n: u64| if *drop_last { n / batch_size } else { n.div_ceil(batch_size) };
                let step = Step::Batch { batch_size, drop_last: *drop_last };
                Ok(self.push(step, &[input], input.len.map(batches), true))
            }
            Node::Unbatch { input } => {
                let input = self.input(node, input)?;
                self.unbatch(input)
            }
        }
    }

    fn all(&mut self, verb: &Node, inputs: &[Node]) -> Result<Vec<Made>> {
        inputs.iter().map(|input| self.input(verb, input)).collect()
    }

    fn concatenate(&mut self, inputs: &[Made]) -> Result<Made> {
        let lens: Vec<Option<u64>> = inputs.iter().map(|input| input.len).collect();
        if lens.iter().rev().skip(1).any(Option::is_none) {
            return Err(Error::config("concatenate(): a data set without end is not the last one")
                .with_hint("nothing would ever come of those after it"));
        }
        let len = total("concatenate", &lens)?;
        let ends = lens.iter().filter_map(|len| *len).scan(0, |end, len| {
            *end += len;
            Some(*end)
        });
        let step = Step::Concatenate(Concatenate { ends: ends.collect() });
        Ok(self.push(step, inputs, len, batched(inputs)))
    }

    fn shuffle(
        &mut self,
        seed: u64,
        anew: bool,
        block_size: Option<u64>,
        window: u64,
        input: Made,
    ) -> Result<Made> {
        let len = input.len.ok_or_else(|| endless("shuffle", "shuffle before repeat()"))?;
        let whole = Shuffle { len, seed, stage: input.shuffles, anew };
        let step = match block_size {
            None => Step::Shuffle(whole),
            Some(block_size) if block_size == 0 || window == 0 => {
                return Err(Error::config(format!(
                    "shuffle(block_size={block_size}, window={window}): both must be at least 1"
                )));
            }
            Some(block_size) => Step::BlockShuffle(BlockShuffle { whole, block_size, window }),
        };
        let made = self.push(step, &[input], Some(len), input.batched);
        Ok(Made { shuffles: made.shuffles + 1, ..made })
    }

    fn shard(&mut self, rank: u64, world_size: u64, input: Made) -> Result<Made> {
        if world_size == 0 || rank >= world_size {
            return Err(Error::config(format!(
                "shard(rank={rank}, world_size={world_size}): rank must be in 0..world_size"
            )));
        }
        let share = input.len.map(|len| len.div_ceil(world_size));
        if let (Some(share), Some(len)) = (share, input.len) {
            self.padded = self.padded.saturating_add((share * world_size).saturating_sub(len));
        }
        let step = Step::Shard(Shard { len: input.len, rank, world_size });
        Ok(self.push(step, &[input], share, input.batched))
    }

    fn filter(&mut self, name: &str, kept: &Kept, input: Made) -> Result<Made> {
        self.check_shared("filter", "samples", input.at)?;
        if input.len != Some(kept.of()) {
            let len = input.len.map_or("no end".to_owned(), |len| format!("{len} elements"));
            return Err(Error::config(format!(
                "filter({name}) was asked about {} elements, and the data set has {len}",
                kept.of()
            )));
        }
        let positions = kept.positions().clone();
        let len = positions.len() as u64;
        Ok(self.push(Step::Filter(positions), &[input], Some(len), false))
    }

    /// All batches but the last must be full, so that a sample's number tells its batch.
    fn unbatch(&mut self, input: Made) -> Result<Made> {
        let (mut at, mut moved) = (input.at, false);
        let batch_size = loop {
            let entry = &self.entries[at];
            match entry.step {
                Step::Batch { batch_size, .. } => break batch_size,
                Step::Take { .. } | Step::Skip { .. } => {}
                Step::Repeat { .. } | Step::Shuffle(_) | Step::BlockShuffle(_) | Step::Shard(_) => {
                    moved = true
                }
                _ => {
                    return Err(Error::config("unbatch() of batches that come from several data sets")
                        .with_hint("unbatch() each of them, and then put them together"));
                }
            }
            at = entry.inputs[0];
        };
        let batch = &self.entries[at];
        let samples = self.entries[batch.inputs[0]].len;
        let full = samples
            .is_none_or(|samples| samples % batch_size == 0 || batch.len == Some(samples / batch_size));
        if moved && !full {
            return Err(Error::config(format!(
                "unbatch(): the last batch has fewer than {batch_size} samples, and does not come last any more"
            ))
            .with_hint("use batch(..., drop_last=True), or shuffle, repeat and shard samples, not batches"));
        }
        let len = match (input.len, batch.len, samples) {
            (None, ..) => None,
            (Some(0), ..) => Some(0),
            // The smaller last batch is there unless it was taken away.
            (Some(batches), Some(all), Some(samples)) if !full => {
                let last = self.skipped(input.at) + batches == all;
                let whole = batches * batch_size;
                Some(if last { whole - (all * batch_size - samples) } else { whole })
            }
            (Some(batches), ..) => Some(batches.checked_mul(batch_size).ok_or_else(|| {
                Error::config(format!("unbatch() of {batches} batches of {batch_size} overflows 64 bits"))
            })?),
        };
        Ok(self.push(Step::Unbatch { batch_size }, &[input], len, false))
    }

    /// Batches that were skipped between entry `at` and its batch.
    fn skipped(&self, mut at: usize) -> u64 {
        let mut skipped = 0;
        loop {
            match self.entries[at].step {
                Step::Skip { count } => skipped += count,
                Step::Take { .. } => {}
                _ => return skipped,
            }
            at = self.entries[at].inputs[0];
        }
    }
}

fn batched(inputs: &[Made]) -> bool {
    inputs.iter().any(|input| input.batched)
}

/// Samples in the largest batch that comes of entry `at`; batches that are taken apart again do not count.
fn largest_batch(entries: &[Entry], at: usize) -> u64 {
    let entry = &entries[at];
    match &entry.step {
        Step::Batch { batch_size, .. } => *batch_size,
        Step::Cut(cutting) => cutting.batch_size,
        _ if !entry.batched => 1,
        _ => entry.inputs.iter().map(|input| largest_batch(entries, *input)).max().unwrap_or(1),
    }
}

/// What can be carried over to other ranks and batch sizes, and what stands against it.
fn top(entries: &[Entry], root: usize) -> Top {
    let mut batch = None;
    let mut below = root;
    if let Step::Batch { batch_size, drop_last } = entries[root].step {
        below = entries[root].inputs[0];
        batch = Some((batch_size, drop_last));
    }
    let (mut shard, mut unit) = (None, below);
    if let Step::Shard(found) = entries[below].step {
        shard = Some(found);
        unit = entries[below].inputs[0];
    }
    let above = match (shard, batch) {
        (Some(_), _) => "shard",
        (None, Some(_)) => "batch",
        (None, None) => "",
    };
    let mut sizes = Sizes { inner: 0, obstacle: None };
    sizes.note(entries, unit, above);
    Top { batch, below, shard, unit, inner: sizes.inner, obstacle: sizes.obstacle }
}

/// World sizes and batch sizes below the unit that all ranks share.
struct Sizes {
    inner: u64,
    obstacle: Option<(&'static str, &'static str)>,
}

impl Sizes {
    /// Mixes in all from entry `at` down, which `above` comes after.
    fn note(&mut self, entries: &[Entry], at: usize, above: &'static str) {
        let entry = &entries[at];
        let name = entry.step.name();
        let size = match entry.step {
            Step::Shard(shard) => Some(shard.world_size),
            Step::Batch { batch_size, .. } => Some(batch_size),
            _ => None,
        };
        if let Some(size) = size {
            self.inner = (self.inner ^ size).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
            self.obstacle.get_or_insert((above, name));
        }
        for &input in &entry.inputs {
            self.note(entries, input, name);
        }
    }
}

fn total(verb: &str, lens: &[Option<u64>]) -> Result<Option<u64>> {
    let Some(lens) = lens.iter().copied().collect::<Option<Vec<u64>>>() else { return Ok(None) };
    let total = lens.iter().try_fold(0u64, |sum, len| sum.checked_add(*len));
    total.map(Some).ok_or_else(|| Error::config(format!("{verb}(): the lengths {lens:?} overflow 64 bits")))
}

fn check_weights(weights: &[f64], inputs: usize) -> Result<()> {
    if weights.len() != inputs {
        return Err(Error::config(format!("{} weights were given for {inputs} data sets", weights.len())));
    }
    if let Some((at, weight)) = weights.iter().enumerate().find(|(_, w)| !w.is_finite() || **w < 0.0) {
        return Err(Error::config(format!(
            "weight {at} is {weight}; weights must be finite and not negative"
        )));
    }
    let sum: f64 = weights.iter().sum();
    if sum <= 0.0 || !sum.is_finite() {
        return Err(Error::config(format!(
            "the weights {weights:?} add up to {sum}; the sum must be positive"
        )));
    }
    Ok(())
}

fn repeated(len: u64, count: Option<u64>) -> Result<Option<u64>> {
    match count {
        _ if len == 0 => Ok(Some(0)),
        None => Ok(None),
        Some(count) => len.checked_mul(count).map(Some).ok_or_else(|| {
            Error::config(format!("repeat(count={count}) of {len} elements overflows 64 bits"))
                .with_hint("repeat() without a count goes on without end")
        }),
    }
}

fn endless(verb: &str, hint: &str) -> Error {
    Error::config(format!("{verb}() of a data set without end")).with_hint(hint)
}
