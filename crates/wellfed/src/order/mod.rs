//! Which sample comes when: a pure function of (plan, epoch, position), in O(1) memory.
//!
//! [`Order`] answers for any batch which samples it holds, so that shuffling, sharding and resuming need no
//! lists (but for an order that the caller gives, see `given.rs`, and for `filter`). It is a tree like the plan's, kept
//! as a list of `Entry`s: a walk goes from the root to the leaves and translates the position at every verb. Verbs
//! before `batch` permute samples; verbs after it count batches.

mod batches;
mod build;
mod concatenate;
mod cut;
mod cutting;
mod given;
mod interleave;
mod permutation;
mod sample;
mod shuffle;
mod state;

use std::{ops::Range, sync::Arc};

pub(crate) use batches::{Batches, Position, Upcoming, no_epochs};
use concatenate::Concatenate;
use cut::Cut;
pub(crate) use cutting::{Cutting, Fields};
use given::GivenSamples;
pub use given::out_of_range;
pub(crate) use given::{Given, checked};
use interleave::Interleave;
use sample::SampleFrom;
use shuffle::{BlockShuffle, Shuffle};
pub use state::State;

use crate::{
    Error, ErrorKind, Result,
    rng::{Rng, stage},
    transform::Blend,
};

/// One sample to make: of which source, its index in it, and the epoch that keys its random numbers. An element of a
/// data set is one of them, or several under `zip`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pick {
    /// Number of the source among the leaves of the plan, depth first.
    pub leaf: usize,
    /// Index in the source.
    pub index: u64,
    /// Epoch for random draws. Differs from the loader's epoch under `repeat`.
    pub epoch: u64,
}

/// The picks of neighbouring samples of a batch. Its memory is used again.
#[derive(Debug, Default)]
pub(crate) struct Picks {
    /// Offset of the first sample.
    first: usize,
    all: Vec<Pick>,
    /// Where each sample's picks end.
    ends: Vec<usize>,
    /// Positions on their way down to the sources.
    positions: Vec<u64>,
}

impl Picks {
    /// What makes the sample at `offset`.
    pub(crate) fn of(&self, offset: usize) -> &[Pick] {
        let number = offset - self.first;
        let start = if number == 0 { 0 } else { self.ends[number - 1] };
        &self.all[start..self.ends[number]]
    }

    fn clear(&mut self) {
        self.all.clear();
        self.ends.clear();
        self.positions.clear();
    }

    /// The picks of all samples.
    pub(crate) fn all(&self) -> &[Pick] {
        &self.all
    }
}

/// The samples of one batch: positions in an epoch, from which [`Order::pick_in`] finds each sample.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    /// Entry whose positions these are.
    at: usize,
    epoch: u64,
    base: u64,
    start: u64,
    /// Samples in the batch.
    pub(crate) len: usize,
    samples: Samples,
}

/// Which samples a batch holds.
#[derive(Clone, Debug)]
enum Samples {
    /// Those at `start` of the span and after.
    Run,
    /// Those that were cut by length.
    Cut(Cut),
    /// Those that the caller gave. The span starts at their place in the pass.
    Given(GivenSamples),
}

impl Span {
    /// Place of sample `offset` in its pass, if the caller gave the order.
    pub(crate) fn position(&self, offset: usize) -> Option<u64> {
        matches!(self.samples, Samples::Given(_)).then(|| self.start.wrapping_add(offset as u64))
    }

    /// What arrays are padded to, if the plan leaves it to the batch.
    pub(crate) fn pad_to(&self) -> Option<usize> {
        self.cut()?.pad_to
    }

    /// Why its only sample cannot be in any batch.
    pub(crate) fn refused(&self) -> Option<&Error> {
        self.cut()?.refused.as_ref()
    }

    /// Whether the caller gave it, and so expects an answer to it, even if none of its samples is good.
    pub(crate) fn is_answered(&self) -> bool {
        matches!(self.samples, Samples::Given(_))
    }

    /// What is done to it when it is finished, if the caller gave it and says so.
    pub(crate) fn blend(&self) -> Option<Blend> {
        match &self.samples {
            Samples::Given(given) => given.blend,
            Samples::Run | Samples::Cut(_) => None,
        }
    }

    fn cut(&self) -> Option<&Cut> {
        match &self.samples {
            Samples::Cut(cut) => Some(cut),
            Samples::Run | Samples::Given(_) => None,
        }
    }
}

/// How an entry translates a position to one of its inputs.
#[derive(Clone, Debug)]
enum Step {
    Leaf {
        leaf: usize,
    },
    /// The position as it is; only how many there are differs.
    Take {
        count: u64,
    },
    Shuffle(Shuffle),
    BlockShuffle(BlockShuffle),
    Skip {
        count: u64,
    },
    Repeat {
        len: u64,
        count: Option<u64>,
    },
    /// The positions that are kept, in order.
    Filter(Arc<[u64]>),
    Shard(Shard),
    Batch {
        batch_size: u64,
        drop_last: bool,
    },
    /// Batches by the lengths of samples.
    Cut(Arc<Cutting>),
    Unbatch {
        batch_size: u64,
    },
    Zip,
    /// A zip of numbers and elements.
    Enumerate,
    Concatenate(Concatenate),
    Interleave(Interleave),
    Sample(SampleFrom),
}

impl Step {
    /// The verb it comes from.
    fn name(&self) -> &'static str {
        match self {
            Step::Leaf { .. } => "source",
            Step::Take { .. } => "take",
            Step::Shuffle(_) | Step::BlockShuffle(_) => "shuffle",
            Step::Skip { .. } => "skip",
            Step::Filter(_) => "filter",
            Step::Repeat { .. } => "repeat",
            Step::Shard(_) => "shard",
            Step::Batch { .. } => "batch",
            Step::Cut(cutting) => cutting.name(),
            Step::Unbatch { .. } => "unbatch",
            Step::Zip => "zip",
            Step::Enumerate => "enumerate",
            Step::Concatenate(_) => "concatenate",
            Step::Interleave(_) => "interleave",
            Step::Sample(_) => "sample_from_datasets",
        }
    }
}

/// Every `world_size`-th element of `len`, from `rank` on. Without an end there is nothing to fill up.
#[derive(Clone, Copy, Debug)]
struct Shard {
    len: Option<u64>,
    rank: u64,
    world_size: u64,
}

impl Shard {
    /// The element at `position` after `base` that were given before.
    fn at(&self, base: u64, position: u64) -> u64 {
        let global = base + position * self.world_size + self.rank;
        self.len.map_or(global, |len| global % len)
    }
}

/// A verb of the tree.
#[derive(Clone, Debug)]
struct Entry {
    step: Step,
    inputs: Vec<usize>,
    /// Elements; `None` is without end, or differs from epoch to epoch where `cut` says so.
    len: Option<u64>,
    /// Whether elements are batches that were cut by length: only a walk through an epoch tells how many there are.
    cut: bool,
    /// Whether elements are batches.
    batched: bool,
}

/// Elements of a data set without end among which a replacement is drawn.
const ENDLESS: u64 = 1 << 32;

/// The same for batches that are cut by length, which are found by walking there.
const ENDLESS_CUT: u64 = 1 << 10;

/// A position in an epoch.
#[derive(Clone, Copy, Debug)]
struct Place {
    epoch: u64,
    position: u64,
}

/// The order of a plan over sources of known length.
#[derive(Clone, Debug)]
pub struct Order {
    entries: Vec<Entry>,
    root: usize,
    /// Samples in a full batch, the largest where there are several kinds.
    batch_size: u64,
    padded: u64,
    top: Top,
}

/// The verbs next to the root, with which a position can be carried over to another number of ranks or batch size.
#[derive(Clone, Debug)]
struct Top {
    /// Size and whether a smaller last one is left out, if the root is a batch.
    batch: Option<(u64, bool)>,
    /// Where positions of ranks lie, below the batch.
    below: usize,
    /// The shard, if it is there.
    shard: Option<Shard>,
    /// What is shared: elements of all ranks.
    unit: usize,
    /// World sizes and batch sizes below, of which a position must not be carried over to others.
    inner: u64,
    /// The verb that keeps a position from being carried over, and the `shard` or `batch` that it comes after.
    obstacle: Option<(&'static str, &'static str)>,
}

impl Order {
    /// Batches (or samples, if there is no `batch`) of one epoch, the first one where that differs; `None` is without
    /// end.
    pub fn len(&self) -> Option<u64> {
        self.len_of(0)
    }

    /// Batches (or samples, if there is no `batch`) of `epoch`; `None` is without end. Walks through the epoch where
    /// batches are cut by length.
    pub fn len_of(&self, epoch: u64) -> Option<u64> {
        self.count(self.root, epoch)
    }

    /// True if an epoch has no batch.
    pub fn is_empty(&self) -> bool {
        if self.is_cut() { !self.has(self.root, 0, 0) } else { self.len() == Some(0) }
    }

    /// Whether batches are cut by length, and so differ in size.
    pub(crate) fn is_cut(&self) -> bool {
        self.entries[self.root].cut
    }

    /// The field by whose length batches are cut, and the verb that says so.
    pub(crate) fn cut_by(&self) -> Option<(&'static str, &str)> {
        self.entries.iter().find_map(|entry| match &entry.step {
            Step::Cut(cutting) => Some((cutting.name(), cutting.field())),
            _ => None,
        })
    }

    /// Whether batch `number` of `epoch` is beyond its end. `base` is as in [`Order::len_from`].
    pub(crate) fn is_over(&self, epoch: u64, base: u64, number: u64) -> bool {
        if !self.is_cut() {
            return self.len_from(epoch, base).is_some_and(|len| number >= len);
        }
        if base == 0 {
            return !self.has(self.root, epoch, number);
        }
        let ranks = self.world_size();
        !self.has(self.top.unit, epoch, base.saturating_add(number.saturating_mul(ranks)))
    }

    /// Elements of entry `at` in `epoch`.
    fn count(&self, at: usize, epoch: u64) -> Option<u64> {
        let entry = &self.entries[at];
        if !entry.cut {
            return entry.len;
        }
        if let Step::Cut(cutting) = &entry.step {
            let len = self.entries[entry.inputs[0]].len?;
            return Some(
                cutting.cuts.len(epoch, len, &|at, found| self.lengths(entry, cutting, epoch, at, found)),
            );
        }
        let len = self.count(entry.inputs[0], epoch);
        match &entry.step {
            // Batches that are cut from samples without end do not end either.
            Step::Take { count } => Some(len.map_or(*count, |len| len.min(*count))),
            Step::Skip { count } => len.map(|len| len.saturating_sub(*count)),
            Step::Shard(shard) => len.map(|len| len.div_ceil(shard.world_size)),
            _ => len,
        }
    }

    /// Whether an entry that is cut has an element at `position` of `epoch`. Walks no further than there.
    fn has(&self, at: usize, epoch: u64, position: u64) -> bool {
        let entry = &self.entries[at];
        let input = |position| self.has(entry.inputs[0], epoch, position);
        match &entry.step {
            Step::Cut(cutting) => {
                let len = self.entries[entry.inputs[0]].len;
                cutting
                    .cuts
                    .has(epoch, position, len, &|at, found| self.lengths(entry, cutting, epoch, at, found))
            }
            Step::Take { count } => position < *count && input(position),
            Step::Skip { count } => input(position.saturating_add(*count)),
            // All ranks have as many: the last ones get what the first ones had.
            Step::Shard(shard) => input(position.saturating_mul(shard.world_size)),
            _ => entry.len.is_none_or(|len| position < len),
        }
    }

    /// A batch that is cut by length.
    fn cut(&self, entry: &Entry, epoch: u64, number: u64) -> Option<Cut> {
        let Step::Cut(cutting) = &entry.step else { return None };
        let len = self.entries[entry.inputs[0]].len;
        cutting.cuts.get(epoch, number, len, &|at, found| self.lengths(entry, cutting, epoch, at, found))
    }

    /// Lengths of the samples at `positions` below a cut, put into `found`.
    fn lengths(
        &self,
        entry: &Entry,
        cutting: &Cutting,
        epoch: u64,
        positions: Range<u64>,
        found: &mut Vec<Result<u64>>,
    ) {
        let mut picks = Picks { positions: positions.collect(), ..Picks::default() };
        self.walk_all(entry.inputs[0], epoch, &mut picks);
        found.extend((0..picks.ends.len()).map(|sample| {
            let length = picks.of(sample).iter().find_map(|pick| cutting.length(*pick));
            length.unwrap_or_else(|| Err(cutting.unknown()))
        }));
    }

    /// The element of all ranks that is a rank's at `position`, after the first `base`.
    fn sharded_at(&self, entry: &Entry, shard: Shard, epoch: u64, (base, position): (u64, u64)) -> u64 {
        let place = shard.at(base, position);
        if !entry.cut || self.has(entry.inputs[0], epoch, place) {
            return place;
        }
        // The walk has met the end, so that the length is known.
        self.count(entry.inputs[0], epoch).map_or(place, |len| place % len.max(1))
    }

    /// True if elements are batches.
    pub fn batched(&self) -> bool {
        self.entries[self.root].batched
    }

    /// Samples in a full batch (1 without `batch`).
    pub fn batch_size(&self) -> usize {
        self.batch_size as usize
    }

    /// Elements that `shard` repeats at the end of an epoch, over all ranks, so that every rank has as many.
    pub fn padded(&self) -> u64 {
        self.padded
    }

    /// Samples of one element of the order that a state counts: those of a batch if `batch` comes last.
    pub(crate) fn unit_batch(&self) -> u64 {
        self.top.batch.map_or(1, |(size, _)| size)
    }

    /// Whether what [`Order::padded`] counts are batches.
    pub(crate) fn shards_batches(&self) -> bool {
        self.entries.iter().any(|entry| entry.batched && matches!(entry.step, Step::Shard(_)))
    }

    /// Ranks that share an epoch, if sharding comes last (but for `batch`), so that a position can be carried over to
    /// another number of ranks.
    pub(crate) fn world_size(&self) -> u64 {
        self.top.shard.map_or(1, |shard| shard.world_size)
    }

    /// Which rank this is, and of how many, if ranks share the samples.
    pub(crate) fn rank(&self) -> Option<(u64, u64)> {
        self.entries.iter().find_map(|entry| match entry.step {
            Step::Shard(shard) if shard.world_size > 1 => Some((shard.rank, shard.world_size)),
            _ => None,
        })
    }

    /// The order of another one of these ranks.
    pub(crate) fn of_rank(&self, rank: u64) -> Self {
        let mut other = self.clone();
        let of_plan = other.entries.iter_mut().filter_map(|entry| match &mut entry.step {
            Step::Shard(shard) => Some(shard),
            _ => None,
        });
        of_plan
            .chain(&mut other.top.shard)
            .filter(|shard| shard.world_size > rank)
            .for_each(|shard| shard.rank = rank);
        other
    }

    /// Whether ranks wait for each other, and so must get as many batches.
    pub(crate) fn sharded(&self) -> bool {
        self.entries.iter().any(|entry| matches!(entry.step, Step::Shard(shard) if shard.world_size > 1))
    }

    /// Elements of `epoch` that are left for this rank below the batch, when all ranks had `base`.
    fn left(&self, epoch: u64, base: u64) -> Option<u64> {
        let left = self.count(self.top.unit, epoch)?.saturating_sub(base);
        Some(self.top.shard.map_or(left, |shard| left.div_ceil(shard.world_size)))
    }

    /// Batches of `epoch`, of which `base` elements were consumed by an earlier set of ranks. As costly as
    /// [`Order::len_of`].
    pub(crate) fn len_from(&self, epoch: u64, base: u64) -> Option<u64> {
        if base == 0 {
            return self.len_of(epoch);
        }
        let left = self.left(epoch, base)?;
        Some(match self.top.batch {
            None => left,
            Some((size, true)) => left / size,
            Some((size, false)) => left.div_ceil(size),
        })
    }

    /// Where batch `number` of `epoch` lies. `base` is as in [`Order::len_from`].
    pub(crate) fn batch(&self, epoch: u64, base: u64, number: u64) -> Span {
        let place = Place { epoch, position: number };
        if base == 0 {
            return self.span(self.root, place);
        }
        match self.top.batch {
            Some((size, _)) => {
                let start = number * size;
                let end = self.left(epoch, base).map_or(start + size, |left| left.min(start + size));
                let len = end.saturating_sub(start) as usize;
                Span { at: self.top.below, epoch, base, start, len, samples: Samples::Run }
            }
            None => {
                let position = self.above_base(epoch, base, number);
                self.span(self.top.unit, Place { epoch, position })
            }
        }
    }

    /// The element of all ranks at a rank's `position` after `base`.
    fn above_base(&self, epoch: u64, base: u64, position: u64) -> u64 {
        self.top.shard.map_or(base + position, |shard| {
            self.sharded_at(&self.entries[self.top.below], shard, epoch, (base, position))
        })
    }

    /// The samples of the element of entry `at` at `place`.
    fn span(&self, mut at: usize, mut place: Place) -> Span {
        while self.entries[at].batched {
            let entry = &self.entries[at];
            if let Step::Batch { batch_size, .. } = entry.step {
                let at = entry.inputs[0];
                let start = place.position * batch_size;
                let len =
                    self.entries[at].len.map_or(batch_size, |n| n.saturating_sub(start).min(batch_size));
                return Span {
                    at,
                    epoch: place.epoch,
                    base: 0,
                    start,
                    len: len as usize,
                    samples: Samples::Run,
                };
            }
            if let Step::Cut(_) = entry.step {
                let cut = self.cut(entry, place.epoch, place.position);
                let len = cut.as_ref().map_or(0, |cut| cut.positions.len());
                return Span {
                    at: entry.inputs[0],
                    epoch: place.epoch,
                    base: 0,
                    start: 0,
                    len,
                    samples: cut.map_or(Samples::Run, Samples::Cut),
                };
            }
            (at, place) = self.step(entry, place);
        }
        Span { at, epoch: place.epoch, base: 0, start: place.position, len: 1, samples: Samples::Run }
    }

    /// Sample `offset` of a batch: puts what makes it into `picks`, whose memory is used again.
    pub(crate) fn pick_in(&self, span: &Span, offset: usize, picks: &mut Vec<Pick>) {
        picks.clear();
        self.add_pick(span, offset, picks);
    }

    fn add_pick(&self, span: &Span, offset: usize, picks: &mut Vec<Pick>) {
        debug_assert!(offset < span.len);
        if let Samples::Given(given) = &span.samples {
            return picks.push(given.pick(offset, span.start.wrapping_add(offset as u64)));
        }
        let (at, position) = self.position_in(span, offset);
        self.walk(at, Place { epoch: span.epoch, position }, picks);
    }

    /// The entry and the position there of sample `offset` of a batch whose order the plan gives.
    fn position_in(&self, span: &Span, offset: usize) -> (usize, u64) {
        let position = span.cut().map_or(span.start + offset as u64, |cut| cut.positions[offset]);
        if span.base == 0 {
            (span.at, position)
        } else {
            (self.top.unit, self.above_base(span.epoch, span.base, position))
        }
    }

    /// The picks of the samples `offsets` of a batch, put into `picks`.
    pub(crate) fn picks_in(&self, span: &Span, offsets: Range<usize>, picks: &mut Picks) {
        picks.first = offsets.start;
        picks.clear();
        if let Samples::Given(_) = &span.samples {
            for offset in offsets {
                self.add_pick(span, offset, &mut picks.all);
                picks.ends.push(picks.all.len());
            }
            return;
        }
        let at = if span.base == 0 { span.at } else { self.top.unit };
        picks.positions.extend(offsets.map(|offset| self.position_in(span, offset).1));
        self.walk_all(at, span.epoch, picks);
    }

    /// Puts the picks of the elements of entry `at` at `picks.positions` into `picks`: as [`Order::walk`] for one after the
    /// other, but all of them go from verb to verb together, which is several times as fast where one follows the other.
    fn walk_all(&self, mut at: usize, mut epoch: u64, picks: &mut Picks) {
        let mut positions = std::mem::take(&mut picks.positions);
        loop {
            let entry = &self.entries[at];
            match &entry.step {
                Step::Take { .. } => {}
                Step::Shuffle(shuffle) => shuffle.at_all(epoch, &mut positions),
                Step::BlockShuffle(shuffle) => shuffle.at_all(epoch, &mut positions),
                Step::Repeat { len, count } if !positions.is_empty() => {
                    let (first, _) = unrepeat(epoch, positions[0], *len, *count);
                    let same = |position: &u64| unrepeat(epoch, *position, *len, *count).0 == first;
                    if !positions.iter().all(same) {
                        break;
                    }
                    positions.iter_mut().for_each(|position| *position %= len);
                    epoch = first;
                }
                Step::Skip { .. } | Step::Filter(_) | Step::Shard(_) => {
                    for position in &mut positions {
                        *position = self.step(entry, Place { epoch, position: *position }).1.position;
                    }
                }
                _ => break,
            }
            at = entry.inputs[0];
        }
        if let Step::Leaf { leaf } = self.entries[at].step {
            picks.all.extend(positions.iter().map(|index| Pick { leaf, index: *index, epoch }));
            picks.ends.extend(1..=positions.len());
        } else {
            for &position in &positions {
                self.walk(at, Place { epoch, position }, &mut picks.all);
                picks.ends.push(picks.all.len());
            }
        }
        positions.clear();
        picks.positions = positions;
    }

    /// A batch of one sample, for what is made outside of any order.
    pub(crate) fn single(&self) -> Span {
        Span { at: self.root, epoch: 0, base: 0, start: 0, len: 1, samples: Samples::Run }
    }

    /// The picks of the sample at `position` of `epoch`, batches aside.
    ///
    /// # Errors
    /// [`ErrorKind::Index`] beyond the end.
    pub(crate) fn sample_at(&self, position: u64, epoch: u64, picks: &mut Vec<Pick>) -> Result<()> {
        picks.clear();
        let at = match self.entries[self.root].step {
            Step::Batch { .. } | Step::Cut(_) => self.entries[self.root].inputs[0],
            _ if self.batched() => {
                return Err(Error::config("samples of a data set whose batches are changed have no number")
                    .with_hint("ask for samples of the data set before take(), skip(), repeat() or shard() of batches"));
            }
            _ => self.root,
        };
        if let Some(len) = self.entries[at].len
            && position >= len
        {
            return Err(Error::new(ErrorKind::Index, format!("index {position} of {len} samples")));
        }
        self.walk(at, Place { epoch, position }, picks);
        Ok(())
    }

    /// The epoch that keys the random numbers of sample `offset` of a batch: of its first source.
    pub(crate) fn draws_of(&self, span: &Span, offset: usize) -> u64 {
        let mut picks = Vec::new();
        self.pick_in(span, offset, &mut picks);
        picks.first().map_or(span.epoch, |pick| pick.epoch)
    }

    /// The sample of `epoch` that is tried in place of one of `span` that begins with `first`: a pure function of the seed
    /// of its source, its epoch and index, and the number of the attempt. Drawn from all that may come: whatever `take`,
    /// `skip`, `shard` and `filter` leave out stays out. Where the caller gave the order it is one of the same batch, since
    /// nobody else knows which samples may be seen at all; the epoch of `first` then keys its random numbers. So it
    /// is in batches that are cut by length. No picks: this attempt found none.
    pub(crate) fn replacement(
        &self,
        span: &Span,
        (epoch, seed): (u64, u64),
        first: Pick,
        attempt: u64,
        picks: &mut Vec<Pick>,
    ) {
        let mut rng = Rng::for_stage(seed, first.epoch, first.index, stage::REPLACEMENT);
        // A number each is drawn, whatever their bounds: so attempts are told apart.
        for _ in 0..2 * attempt {
            rng.next_u64();
        }
        let mut below = |bound| rng.below(bound);
        if let Samples::Given(given) = &span.samples {
            picks.clear();
            return picks.push(given.replacement(first.epoch, below));
        }
        if span.cut().is_some() && span.len > 1 {
            // One of the same batch is no longer than the longest in it: the batch keeps its size.
            below(1);
            return self.pick_in(span, below(span.len as u64) as usize, picks);
        }
        let other = self.batch(epoch, 0, below(self.reach(epoch)));
        self.pick_in(&other, below(other.len as u64) as usize, picks);
        if other.refused().is_some() || !self.fits(span, picks) {
            // No sample that may come here: the next attempt may find one.
            picks.clear();
        }
    }

    /// Whether a sample is not too long for what its arrays are padded to in `span`.
    fn fits(&self, span: &Span, picks: &[Pick]) -> bool {
        let Some(most) = span.pad_to() else { return true };
        let above = self.entries.iter().filter(|entry| entry.inputs.first() == Some(&span.at));
        let cutting = above.filter_map(|entry| match &entry.step {
            Step::Cut(cutting) => Some(cutting),
            _ => None,
        });
        let mut lengths = cutting.flat_map(|cutting| picks.iter().filter_map(|pick| cutting.length(*pick)));
        lengths.all(|length| length.is_ok_and(|length| length <= most as u64))
    }

    /// Elements of `epoch` among which a replacement is drawn.
    fn reach(&self, epoch: u64) -> u64 {
        let len = self.len_of(epoch).unwrap_or(ENDLESS);
        let mut at = self.root;
        while self.entries[at].cut && !matches!(self.entries[at].step, Step::Cut(_)) {
            at = self.entries[at].inputs[0];
        }
        let entry = &self.entries[at];
        let endless = entry.cut && self.entries[entry.inputs[0]].len.is_none();
        if endless { len.min(ENDLESS_CUT) } else { len }
    }

    /// The picks of the element of entry `at` at `place`.
    fn walk(&self, at: usize, place: Place, picks: &mut Vec<Pick>) {
        self.visit(at, place, &mut |pick| picks.push(pick));
    }

    /// Calls `f` with each pick of the element of entry `at` at `place`.
    fn visit<F: FnMut(Pick)>(&self, mut at: usize, mut place: Place, f: &mut F) {
        loop {
            let entry = &self.entries[at];
            match entry.step {
                Step::Leaf { leaf } => {
                    f(Pick { leaf, index: place.position, epoch: place.epoch });
                    return;
                }
                Step::Zip | Step::Enumerate => {
                    for &input in &entry.inputs {
                        self.visit(input, place, f);
                    }
                    return;
                }
                _ => (at, place) = self.step(entry, place),
            }
        }
    }

    /// Follows an entry that takes each element from one of its inputs.
    fn step(&self, entry: &Entry, Place { epoch, position }: Place) -> (usize, Place) {
        let first = |position| (entry.inputs[0], Place { epoch, position });
        let one_of = |(input, position): (usize, u64)| (entry.inputs[input], Place { epoch, position });
        match &entry.step {
            Step::Leaf { .. }
            | Step::Zip
            | Step::Enumerate
            | Step::Batch { .. }
            | Step::Cut(_)
            | Step::Take { .. } => first(position),
            Step::Shuffle(shuffle) => first(shuffle.at(epoch, position)),
            Step::BlockShuffle(shuffle) => first(shuffle.at(epoch, position)),
            Step::Skip { count } => first(position.saturating_add(*count)),
            Step::Filter(kept) => first(kept[position as usize]),
            Step::Repeat { len, count } => {
                let (epoch, position) = unrepeat(epoch, position, *len, *count);
                (entry.inputs[0], Place { epoch, position })
            }
            Step::Shard(shard) => first(self.sharded_at(entry, *shard, epoch, (0, position))),
            Step::Unbatch { batch_size } => {
                let place = Place { epoch, position: position / batch_size };
                let span = self.span(entry.inputs[0], place);
                (span.at, Place { epoch: span.epoch, position: span.start + position % batch_size })
            }
            Step::Concatenate(concatenate) => one_of(concatenate.at(position)),
            Step::Interleave(interleave) => one_of(interleave.at(position)),
            Step::Sample(sample) => one_of(sample.at(epoch, position)),
        }
    }
}

/// Undoes `repeat`: the position inside one repetition, and the epoch of that repetition.
fn unrepeat(epoch: u64, position: u64, len: u64, count: Option<u64>) -> (u64, u64) {
    (epoch.wrapping_mul(count.unwrap_or(1)).wrapping_add(position / len), position % len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        plan::{Node, Outline},
        source::SourceSpec,
    };

    fn leaf() -> Node {
        Node::source(SourceSpec::Custom { name: String::new() })
    }

    fn order(node: Node, lens: &[u64]) -> Order {
        Order::new(&node, lens).unwrap()
    }

    fn all(order: &Order, epoch: u64, base: u64) -> Vec<u64> {
        (0..order.len_from(epoch, base).unwrap()).flat_map(|number| one(order, epoch, base, number)).collect()
    }

    fn one(order: &Order, epoch: u64, base: u64, number: u64) -> Vec<u64> {
        picks(order, epoch, base, number).into_iter().map(|pick| pick.index).collect()
    }

    fn picks(order: &Order, epoch: u64, base: u64, number: u64) -> Vec<Pick> {
        let span = order.batch(epoch, base, number);
        let (mut picks, mut all) = (Vec::new(), Vec::new());
        let mut together = Picks::default();
        order.picks_in(&span, 0..span.len, &mut together);
        for offset in 0..span.len {
            order.pick_in(&span, offset, &mut picks);
            assert_eq!(together.of(offset), picks, "one by one and together");
            all.append(&mut picks);
        }
        all
    }

    #[test]
    fn without_verbs_samples_come_in_order() {
        let order = order(leaf(), &[5]);
        assert_eq!((order.len(), order.batched()), (Some(5), false));
        assert_eq!(all(&order, 0, 0), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn verbs_apply_in_the_order_they_are_written() {
        assert_eq!(all(&order(leaf().skip(2).take(3), &[9]), 0, 0), [2, 3, 4]);
        assert_eq!(all(&order(leaf().take(3).skip(2), &[9]), 0, 0), [2]);
        assert_eq!(all(&order(leaf().batch(2, false).skip(1).take(2), &[9]), 0, 0), [2, 3, 4, 5]);
        assert_eq!(
            all(&order(leaf().batch(4, true).repeat(Some(2)), &[9]), 0, 0),
            [0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7]
        );
        assert_eq!(all(&order(leaf().batch(4, false).shard(1, 2), &[9]), 0, 0), [4, 5, 6, 7, 0, 1, 2, 3]);
    }

    #[test]
    fn each_epoch_and_repetition_is_shuffled_anew() {
        let order = order(leaf().shuffle(1).repeat(Some(2)), &[100]);
        let (first, second) = (all(&order, 0, 0), all(&order, 1, 0));
        let (a, b) = first.split_at(100);
        assert_ne!(a, b);
        assert_ne!(first, second);
        for part in [a, b] {
            let mut sorted = part.to_vec();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..100).collect::<Vec<_>>());
        }
        assert_eq!(first, all(&order, 0, 0));
    }

    #[test]
    fn ranks_share_an_epoch_without_overlap_but_for_the_padding() {
        for (len, world_size) in [(10, 3), (12, 4), (1, 4), (101, 8)] {
            let mut seen = vec![0u32; len as usize];
            let mut lengths = Vec::new();
            for rank in 0..world_size {
                let order = order(leaf().shuffle(5).shard(rank, world_size).batch(2, false), &[len]);
                assert_eq!(order.padded(), len.div_ceil(world_size) * world_size - len);
                lengths.push(order.len());
                all(&order, 0, 0).into_iter().for_each(|i| seen[i as usize] += 1);
            }
            assert!(lengths.windows(2).all(|w| w[0] == w[1]));
            assert!(seen.iter().all(|&n| n >= 1));
            let extra: u64 = seen.iter().map(|&n| u64::from(n - 1)).sum();
            assert_eq!(extra, len.div_ceil(world_size) * world_size - len);
        }
    }

    #[test]
    fn an_epoch_goes_on_with_other_ranks_and_batch_sizes() {
        for (before, after) in [((2, 3), (3, 5)), ((3, 4), (1, 7)), ((1, 1), (4, 2))] {
            let (old_ranks, old_size) = before;
            let make =
                |rank, ranks, size| order(leaf().shuffle(5).shard(rank, ranks).batch(size, false), &[101]);
            let mut seen = Vec::new();
            for rank in 0..old_ranks {
                let order = make(rank, old_ranks, old_size);
                (0..3).for_each(|number| seen.extend(one(&order, 0, 0, number)));
            }
            let state = State::new(&make(0, old_ranks, old_size), &Outline::default(), 0, 0, 3);
            let mut padded = 0;
            for rank in 0..after.0 {
                let order = make(rank, after.0, after.1);
                let (base, number) = state.restore(&order, &Outline::default()).unwrap();
                assert_eq!((base, number), (old_ranks * old_size as u64 * 3, 0));
                seen.extend(all(&order, 0, base));
                padded = (101 - base).div_ceil(after.0) * after.0 - (101 - base);
            }
            let len = seen.len() as u64;
            seen.sort_unstable();
            seen.dedup();
            assert_eq!((seen.len(), len - padded), (101, 101));
        }
    }

    #[test]
    fn a_zip_takes_from_all_and_a_concatenation_from_one() {
        let zip = order(Node::Zip { inputs: vec![leaf().shuffle(1), leaf().shuffle(1), leaf()] }, &[7, 7, 9]);
        assert_eq!(zip.len(), Some(7));
        for number in 0..7 {
            let picks = picks(&zip, 3, 0, number);
            assert_eq!(picks.iter().map(|pick| pick.leaf).collect::<Vec<_>>(), [0, 1, 2]);
            assert_eq!(picks[0].index, picks[1].index, "equal shuffles stay aligned");
            assert_eq!(picks[2].index, number);
        }
        let both = Node::Concatenate { inputs: vec![leaf(), leaf().take(2), leaf().repeat(None)] };
        let order = order(both, &[3, 5, 2]);
        assert_eq!(order.len(), None);
        let found: Vec<(usize, u64, u64)> =
            (0..9).flat_map(|n| picks(&order, 0, 0, n)).map(|p| (p.leaf, p.index, p.epoch)).collect();
        assert_eq!(
            found,
            [
                (0, 0, 0),
                (0, 1, 0),
                (0, 2, 0),
                (1, 0, 0),
                (1, 1, 0),
                (2, 0, 0),
                (2, 1, 0),
                (2, 0, 1),
                (2, 1, 1)
            ]
        );
    }

    #[test]
    fn unbatch_undoes_batch() {
        let undo = |node: Node| Node::Unbatch { input: Box::new(node) };
        for drop_last in [false, true] {
            let expected = all(&order(leaf().batch(4, drop_last), &[10]), 0, 0);
            assert_eq!(all(&order(undo(leaf().batch(4, drop_last)), &[10]), 0, 0), expected);
        }
        assert_eq!(all(&order(undo(leaf().batch(4, false).skip(1)), &[10]), 0, 0), [4, 5, 6, 7, 8, 9]);
        assert_eq!(
            all(&order(undo(leaf().batch(4, false).take(2)), &[10]), 0, 0),
            (0..8).collect::<Vec<_>>()
        );
        assert_eq!(all(&order(undo(leaf().batch(4, false).skip(2).take(9)), &[10]), 0, 0), [8, 9]);
        let shuffled = order(undo(leaf().batch(5, false).shuffle(1)).batch(3, false), &[20]);
        let mut found = all(&shuffled, 0, 0);
        assert!(found.chunks(5).all(|block| block[0] % 5 == 0 && block.windows(2).all(|w| w[0] + 1 == w[1])));
        found.sort_unstable();
        assert_eq!(found, (0..20).collect::<Vec<_>>());
        assert!(Order::new(&undo(leaf().batch(4, false).repeat(Some(2))), &[10]).is_err());
        // Of batches that are taken apart no memory is asked for.
        assert_eq!(order(undo(leaf().batch(400, false)), &[10]).batch_size(), 1);
        assert_eq!(order(undo(leaf().batch(400, false)).batch(2, false), &[10]).batch_size(), 2);
    }

    #[test]
    fn a_replacement_is_one_of_those_that_may_come() {
        for node in [
            leaf().skip(3).take(4).batch(2, false),
            leaf().skip(3).shuffle(1).batch(2, false).take(2),
            leaf().skip(3).take(4).repeat(None).batch(3, false),
            leaf().shard(1, 4).batch(2, false),
        ] {
            let order = order(node, &[20]);
            let mut allowed = Vec::new();
            (0..order.len().unwrap_or(20)).for_each(|n| allowed.extend(one(&order, 0, 0, n)));
            let span = order.batch(0, 0, 0);
            let bad = Pick { leaf: 0, index: 3, epoch: 0 };
            let mut picks = Vec::new();
            for attempt in 0..100 {
                order.replacement(&span, (0, 1), bad, attempt, &mut picks);
                assert!(allowed.contains(&picks[0].index), "{picks:?} of {allowed:?}");
            }
        }
    }

    #[test]
    fn senseless_verbs_are_refused_with_a_hint() {
        let zip = |inputs| Node::Concatenate { inputs };
        for node in [
            leaf().batch(0, false),
            leaf().batch(2, false).batch(2, false),
            leaf().repeat(None).shuffle(0),
            leaf().repeat(None).repeat(None),
            leaf().shard(2, 2),
            leaf().repeat(Some(u64::MAX)),
            zip(vec![leaf().repeat(None), leaf()]),
        ] {
            assert!(Order::new(&node, &[10, 10]).is_err(), "{node:?}");
        }
        assert_eq!(order(leaf().repeat(None).batch(4, false), &[0]).len(), Some(0));
        assert_eq!(order(leaf().repeat(None).batch(4, false), &[3]).len(), None);
    }
}
