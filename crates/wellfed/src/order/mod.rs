//! Which sample comes when: a pure function of (plan, epoch, position), in O(1) memory.
//!
//! [`Order`] answers for any batch which samples it holds, so that shuffling, sharding and resuming need no
//! lists (but for an order that the caller gives, see `given.rs`). Verbs before `batch` permute samples; verbs after it (`repeat`, `take`, `skip`) count batches.

mod cut;
mod given;
mod permutation;
mod state;

use std::sync::Arc;

pub use given::out_of_range;
pub(crate) use given::{Pass, checked};
use permutation::Permutation;
pub use state::State;

use crate::{Error, Result, plan::Verb};

/// One sample to make: its index in the source and the epoch that keys its random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pick {
    /// Index in the source.
    pub index: u64,
    /// Epoch for random draws. Differs from the loader's epoch under `repeat`.
    pub epoch: u64,
}

/// The samples of one batch: positions in an epoch, from which [`Order::pick_in`] finds each sample.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    /// Under a given order: the seed of the pass.
    epoch: u64,
    base: u64,
    start: u64,
    /// Samples in the batch.
    pub(crate) len: usize,
    /// What arrays are padded to that vary, if the plan leaves it to the batch.
    pub(crate) pad_to: Option<usize>,
    /// The samples, if the caller gave them.
    given: Option<Arc<[u64]>>,
}

impl Span {
    /// Place of sample `offset` in its pass, if the caller gave the order.
    pub(crate) fn position(&self, offset: usize) -> Option<u64> {
        self.given.as_ref().map(|_| self.start.wrapping_add(offset as u64))
    }

    /// The samples, if the caller gave them.
    pub(crate) fn given(&self) -> Option<&[u64]> {
        self.given.as_deref()
    }
}

/// A verb on samples, with the length of what it works on.
#[derive(Clone, Copy, Debug)]
enum Step {
    Shuffle { len: u64, seed: u64, stage: u32 },
    Skip { count: u64 },
    Repeat { len: u64, count: Option<u64> },
    Shard { len: u64, rank: u64, world_size: u64 },
}

/// A verb on batches.
#[derive(Clone, Copy, Debug)]
enum BatchStep {
    Skip { count: u64 },
    Repeat { len: u64, count: Option<u64> },
}

/// The order of a plan over a source of known length.
#[derive(Clone, Debug)]
pub struct Order {
    steps: Vec<Step>,
    batch_steps: Vec<BatchStep>,
    /// Samples of one epoch on this rank before batching; `None` is without end.
    samples: Option<u64>,
    batch_size: u64,
    batched: bool,
    drop_last: bool,
    /// Batches of one epoch; `None` is without end.
    batches: Option<u64>,
    padded: u64,
}

impl Order {
    /// Follows the ordering verbs of a plan over `source_len` samples.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] for a verb that makes no sense where it stands.
    pub fn new(source_len: u64, verbs: &[Verb]) -> Result<Self> {
        let mut this = Self {
            steps: Vec::new(),
            batch_steps: Vec::new(),
            samples: Some(source_len),
            batch_size: 1,
            batched: false,
            drop_last: false,
            batches: None,
            padded: 0,
        };
        // A cache has no part in the order, not even in the numbers of stages.
        let ordering = verbs.iter().filter(|verb| !matches!(verb, Verb::Cache { .. }));
        for (stage, verb) in ordering.enumerate() {
            if this.batched { this.after_batch(verb)? } else { this.before_batch(verb, stage as u32)? }
        }
        if !this.batched {
            this.batches = this.samples;
        }
        Ok(this)
    }

    fn before_batch(&mut self, verb: &Verb, stage: u32) -> Result<()> {
        match *verb {
            Verb::Map { .. } | Verb::Cache { .. } => {}
            Verb::Shuffle { seed } => {
                let len = self.samples.ok_or_else(|| endless("shuffle", "shuffle before repeat()"))?;
                self.steps.push(Step::Shuffle { len, seed, stage });
            }
            Verb::Take { count } => self.samples = Some(self.samples.map_or(count, |n| n.min(count))),
            Verb::Skip { count } => {
                self.samples = self.samples.map(|n| n.saturating_sub(count));
                self.steps.push(Step::Skip { count });
            }
            Verb::Repeat { count } => {
                let len = self.samples.ok_or_else(|| endless("repeat", "repeat() once is enough"))?;
                self.samples = repeated(len, count)?;
                self.steps.push(Step::Repeat { len, count });
            }
            Verb::Shard { rank, world_size } => {
                if world_size == 0 || rank >= world_size {
                    return Err(Error::config(format!(
                        "shard(rank={rank}, world_size={world_size}): rank must be in 0..world_size"
                    )));
                }
                let len = self.samples.ok_or_else(|| endless("shard", "shard before repeat()"))?;
                let share = len.div_ceil(world_size);
                self.padded = share * world_size - len;
                self.samples = Some(share);
                self.steps.push(Step::Shard { len, rank, world_size });
            }
            Verb::Batch { batch_size, drop_last } => {
                if batch_size == 0 {
                    return Err(Error::config("batch_size is 0; it must be at least 1"));
                }
                self.batched = true;
                self.batch_size = batch_size as u64;
                self.drop_last = drop_last;
                self.batches = self.samples.map(|n| self.batches_of(n));
            }
        }
        Ok(())
    }

    fn after_batch(&mut self, verb: &Verb) -> Result<()> {
        let before = |name: &str| {
            Err(Error::config(format!("{name}() comes after batch(), where it would work on whole batches"))
                .with_hint(format!("call {name}() before batch()")))
        };
        match *verb {
            Verb::Map { .. } => return before("map"),
            Verb::Cache { .. } => {}
            Verb::Shuffle { .. } => return before("shuffle"),
            Verb::Shard { .. } => return before("shard"),
            Verb::Batch { .. } => return before("batch"),
            Verb::Take { count } => self.batches = Some(self.batches.map_or(count, |n| n.min(count))),
            Verb::Skip { count } => {
                self.batches = self.batches.map(|n| n.saturating_sub(count));
                self.batch_steps.push(BatchStep::Skip { count });
            }
            Verb::Repeat { count } => {
                let len = self.batches.ok_or_else(|| endless("repeat", "repeat() once is enough"))?;
                self.batches = repeated(len, count)?;
                self.batch_steps.push(BatchStep::Repeat { len, count });
            }
        }
        Ok(())
    }

    fn batches_of(&self, samples: u64) -> u64 {
        if self.drop_last { samples / self.batch_size } else { samples.div_ceil(self.batch_size) }
    }

    /// Batches (or samples, if there is no `batch`) of one epoch; `None` is without end.
    pub fn len(&self) -> Option<u64> {
        self.batches
    }

    /// True if an epoch has no batch.
    pub fn is_empty(&self) -> bool {
        self.batches == Some(0)
    }

    /// True if the plan has a `batch` verb.
    pub fn batched(&self) -> bool {
        self.batched
    }

    /// Samples in a full batch (1 without `batch`).
    pub fn batch_size(&self) -> usize {
        self.batch_size as usize
    }

    /// Samples that `shard` repeats at the end of an epoch, over all ranks, so that every rank has as many.
    pub fn padded(&self) -> u64 {
        self.padded
    }

    /// Ranks that share an epoch, if sharding is the last verb on samples, so that a position can be carried
    /// over to another number of ranks.
    pub(crate) fn world_size(&self) -> u64 {
        match self.steps.last() {
            Some(&Step::Shard { world_size, .. }) => world_size,
            _ => 1,
        }
    }

    /// Whether an epoch can go on from a number of samples consumed by all ranks together, on any number of
    /// ranks.
    pub(crate) fn elastic(&self) -> bool {
        self.batch_steps.is_empty()
            && self.steps.iter().filter(|s| matches!(s, Step::Shard { .. })).count() <= 1
            && self.samples.is_some()
    }

    /// Batches of an epoch of which `base` samples were consumed by an earlier set of ranks.
    pub(crate) fn len_from(&self, base: u64) -> Option<u64> {
        if base == 0 {
            return self.batches;
        }
        let left = match self.steps.last() {
            Some(&Step::Shard { len, world_size, .. }) => len.saturating_sub(base).div_ceil(world_size),
            _ => self.samples?.saturating_sub(base),
        };
        Some(self.batches_of(left))
    }

    /// Where batch `number` of `epoch` lies. `base` is as in [`Order::len_from`].
    pub(crate) fn batch(&self, epoch: u64, base: u64, number: u64) -> Span {
        let (mut epoch, mut number) = (epoch, number);
        for step in self.batch_steps.iter().rev() {
            match *step {
                BatchStep::Skip { count } => number += count,
                BatchStep::Repeat { len, count } => (epoch, number) = unrepeat(epoch, number, len, count),
            }
        }
        let samples = match (base, self.steps.last()) {
            (0, _) => self.samples,
            (_, Some(&Step::Shard { len, world_size, .. })) => {
                Some(len.saturating_sub(base).div_ceil(world_size))
            }
            _ => self.samples.map(|n| n.saturating_sub(base)),
        };
        let start = number * self.batch_size;
        let end = samples.map_or(start + self.batch_size, |n| n.min(start + self.batch_size));
        Span { epoch, base, start, len: end.saturating_sub(start) as usize, pad_to: None, given: None }
    }

    /// Sample `offset` of a batch.
    pub(crate) fn pick_in(&self, span: &Span, offset: usize) -> Pick {
        debug_assert!(offset < span.len);
        if let Some(given) = &span.given {
            return given::pick(span.epoch, span.start, offset, given[offset]);
        }
        self.pick(span.epoch, span.base, span.start + offset as u64)
    }

    fn pick(&self, epoch: u64, base: u64, position: u64) -> Pick {
        let (mut epoch, mut position) = (epoch, position);
        // The base counts samples of all ranks: it goes in before the shard is undone, or at once without one.
        let mut base = Some(base);
        if !matches!(self.steps.last(), Some(Step::Shard { .. })) {
            position += base.take().unwrap_or(0);
        }
        for step in self.steps.iter().rev() {
            match *step {
                Step::Shuffle { len, seed, stage } => {
                    position = Permutation::new(len, seed, epoch, stage).at(position);
                }
                Step::Skip { count } => position += count,
                Step::Repeat { len, count } => (epoch, position) = unrepeat(epoch, position, len, count),
                Step::Shard { len, rank, world_size } => {
                    position = (base.take().unwrap_or(0) + position * world_size + rank) % len;
                }
            }
        }
        Pick { index: position, epoch }
    }
}

/// Undoes `repeat`: the position inside one repetition, and the epoch of that repetition.
fn unrepeat(epoch: u64, position: u64, len: u64, count: Option<u64>) -> (u64, u64) {
    (epoch.wrapping_mul(count.unwrap_or(1)).wrapping_add(position / len), position % len)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn all(order: &Order, epoch: u64, base: u64) -> Vec<u64> {
        (0..order.len_from(base).unwrap()).flat_map(|number| one(order, epoch, base, number)).collect()
    }

    fn one(order: &Order, epoch: u64, base: u64, number: u64) -> Vec<u64> {
        let span = order.batch(epoch, base, number);
        (0..span.len).map(|i| order.pick_in(&span, i).index).collect()
    }

    fn batch(batch_size: usize, drop_last: bool) -> Verb {
        Verb::Batch { batch_size, drop_last }
    }

    #[test]
    fn without_verbs_samples_come_in_order() {
        let order = Order::new(5, &[]).unwrap();
        assert_eq!((order.len(), order.batched()), (Some(5), false));
        assert_eq!(all(&order, 0, 0), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn verbs_apply_in_the_order_they_are_written() {
        let verbs = [Verb::Skip { count: 2 }, Verb::Take { count: 3 }];
        assert_eq!(all(&Order::new(9, &verbs).unwrap(), 0, 0), [2, 3, 4]);
        let verbs = [Verb::Take { count: 3 }, Verb::Skip { count: 2 }];
        assert_eq!(all(&Order::new(9, &verbs).unwrap(), 0, 0), [2]);
        let verbs = [batch(2, false), Verb::Skip { count: 1 }, Verb::Take { count: 2 }];
        assert_eq!(all(&Order::new(9, &verbs).unwrap(), 0, 0), [2, 3, 4, 5]);
        let verbs = [batch(4, true), Verb::Repeat { count: Some(2) }];
        assert_eq!(
            all(&Order::new(9, &verbs).unwrap(), 0, 0),
            [0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7]
        );
    }

    #[test]
    fn each_epoch_and_repetition_is_shuffled_anew() {
        let order = Order::new(100, &[Verb::Shuffle { seed: 1 }, Verb::Repeat { count: Some(2) }]).unwrap();
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
                let verbs = [Verb::Shuffle { seed: 5 }, Verb::Shard { rank, world_size }, batch(2, false)];
                let order = Order::new(len, &verbs).unwrap();
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
    fn an_epoch_goes_on_with_another_number_of_ranks() {
        let verbs =
            |rank, world_size| [Verb::Shuffle { seed: 5 }, Verb::Shard { rank, world_size }, batch(3, false)];
        let mut seen = Vec::new();
        for rank in 0..4 {
            seen.extend(one(&Order::new(60, &verbs(rank, 4)).unwrap(), 2, 0, 0));
        }
        for rank in 0..6 {
            seen.extend(all(&Order::new(60, &verbs(rank, 6)).unwrap(), 2, 12));
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..60).collect::<Vec<_>>());
    }

    #[test]
    fn senseless_verbs_are_refused_with_a_hint() {
        for verbs in [
            vec![batch(2, false), Verb::Shuffle { seed: 0 }],
            vec![batch(0, false)],
            vec![Verb::Repeat { count: None }, Verb::Shuffle { seed: 0 }],
            vec![Verb::Shard { rank: 2, world_size: 2 }],
            vec![Verb::Repeat { count: Some(u64::MAX) }],
        ] {
            assert!(Order::new(10, &verbs).is_err(), "{verbs:?}");
        }
        assert_eq!(Order::new(0, &[Verb::Repeat { count: None }, batch(4, false)]).unwrap().len(), Some(0));
        assert_eq!(Order::new(3, &[Verb::Repeat { count: None }, batch(4, false)]).unwrap().len(), None);
    }
}
