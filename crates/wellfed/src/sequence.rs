//! [`Sequence`]: the order of a data set, for whoever makes its samples elsewhere.
//!
//! Invariant: the same picks, substitutes and states as a [`crate::Loader`] of the data set would have. Nothing here has
//! a lock or a thread, so it works after a fork.

use std::fmt;

use crate::{
    Dataset, Error, ErrorKind, Result,
    dataset::Lowered,
    order::{Order, Pick, State},
    rng::Rng,
};

/// As in the engine: numbers from here choose substitutes.
const SUBSTITUTES: u32 = 0xFFFE;

/// Which samples come when, and where a pass over them stands. Made by [`Dataset::sequence`].
pub struct Sequence {
    lowered: Lowered,
    order: Order,
    seeds: Vec<u64>,
    plan: u64,
}

impl fmt::Debug for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sequence").field("plan", &self.plan).finish_non_exhaustive()
    }
}

impl Sequence {
    pub(crate) fn new(dataset: &Dataset) -> Result<Self> {
        let lowered = dataset.identified()?;
        let order = dataset.order(&lowered)?;
        let seeds = (0..lowered.leaves.len()).map(|leaf| dataset.leaf_seed(&lowered, leaf)).collect();
        let plan = dataset.fingerprint(&lowered);
        Ok(Self { lowered, order, seeds, plan })
    }

    /// Batches of an epoch (samples, without `batch`) of which all ranks had `base` samples before; `None` is without
    /// end.
    pub fn len_from(&self, base: u64) -> Option<u64> {
        self.order.len_from(base)
    }

    /// The fingerprint of the pipeline, as in states.
    pub fn fingerprint(&self) -> u64 {
        self.plan
    }

    /// Whether ranks share the data set, and so wait for each other.
    pub fn sharded(&self) -> bool {
        self.order.sharded()
    }

    /// What makes each sample of a batch: one pick, or several where data sets are zipped.
    ///
    /// # Errors
    /// [`ErrorKind::Index`] beyond the end.
    pub fn batch(&self, epoch: u64, base: u64, number: u64) -> Result<Vec<Vec<Pick>>> {
        if let Some(len) = self.order.len_from(base).filter(|len| number >= *len) {
            return Err(Error::new(ErrorKind::Index, format!("there is no batch {number}: there are {len}")));
        }
        let span = self.order.batch(epoch, base, number);
        let one = |offset| {
            let mut picks = Vec::new();
            self.order.pick_in(&span, offset, &mut picks);
            picks
        };
        Ok((0..span.len).map(one).collect())
    }

    /// The sample that is tried in place of a bad one: drawn from all that may come in this epoch, by a pure function of
    /// seed, epoch, sample and attempt.
    ///
    /// # Errors
    /// As [`Sequence::batch`].
    pub fn substitute(
        &self,
        (epoch, base, number): (u64, u64, u64),
        offset: usize,
        attempt: u64,
    ) -> Result<Vec<Pick>> {
        let bad = self.batch(epoch, base, number)?;
        let first =
            bad.get(offset).and_then(|picks| picks.first()).copied().ok_or_else(|| {
                Error::new(ErrorKind::Index, format!("batch {number} has no sample {offset}"))
            })?;
        let mut rng = Rng::for_stage(self.seeds[first.leaf], first.epoch, first.index, SUBSTITUTES);
        for _ in 0..2 * attempt {
            rng.next_u64();
        }
        let span = self.order.batch(epoch, base, number);
        let mut picks = Vec::new();
        self.order.substitute(&span, (epoch, first.epoch), |bound| rng.below(bound), &mut picks);
        Ok(picks)
    }

    /// The position before batch `number`.
    pub fn state(&self, epoch: u64, base: u64, number: u64) -> State {
        State::new(&self.order, self.plan, epoch, base, number)
    }

    /// (epoch, base, number) of a state, which may be of another number of ranks or batch size.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if it belongs to another plan, [`ErrorKind::State`] if it cannot be carried over.
    pub fn restore(&self, state: &State) -> Result<(u64, u64, u64)> {
        let (base, number) = state.restore(&self.order, self.plan)?;
        Ok((state.epoch, base, number))
    }

    /// Seed of the random numbers of a leaf; differs from leaf to leaf.
    ///
    /// # Errors
    /// [`ErrorKind::Index`] if there is no such leaf.
    pub fn leaf_seed(&self, leaf: usize) -> Result<u64> {
        self.seeds.get(leaf).copied().ok_or_else(|| self.no_leaf(leaf))
    }

    /// Names of a leaf's source and of a sample in it.
    ///
    /// # Errors
    /// [`ErrorKind::Index`] if there is no such leaf.
    pub fn name_of(&self, leaf: usize, index: u64) -> Result<(String, String)> {
        let source = self.lowered.sources.get(leaf).ok_or_else(|| self.no_leaf(leaf))?;
        Ok((source.name(), source.key(index)))
    }

    fn no_leaf(&self, leaf: usize) -> Error {
        let count = self.seeds.len();
        Error::new(ErrorKind::Index, format!("there is no source {leaf}: the plan has {count}"))
    }
}

impl Dataset {
    /// The order of this data set, without what makes its samples.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for verbs that make no sense where they stand.
    pub fn sequence(&self) -> Result<Sequence> {
        Sequence::new(self)
    }
}
