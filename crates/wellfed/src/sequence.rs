//! [`Sequence`]: the order of a data set, for whoever makes its samples elsewhere.
//!
//! Invariant: the same picks, replacements and states as a [`crate::Loader`] of the data set would have. Nothing here has
//! a lock or a thread, so it works after a fork.

use std::fmt;

use crate::{
    Dataset, Error, ErrorKind, Result,
    order::{Order, Pick, State},
    plan::{Outline, lower::Lowered},
};

/// Which samples come when, and where a pass over them stands. Made by [`Dataset::sequence`].
pub struct Sequence {
    lowered: Lowered,
    order: Order,
    seeds: Vec<u64>,
    plan: Outline,
}

impl fmt::Debug for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sequence").field("plan", &self.plan.fingerprint).finish_non_exhaustive()
    }
}

impl Sequence {
    pub(crate) fn new(dataset: &Dataset) -> Result<Self> {
        let lowered = dataset.identified()?;
        let order = dataset.order(&lowered)?;
        let seeds = (0..lowered.leaves.len()).map(|leaf| dataset.leaf_seed(&lowered, leaf)).collect();
        let plan = dataset.outline(&lowered);
        Ok(Self { lowered, order, seeds, plan })
    }

    /// Batches of `epoch` (samples, without `batch`), of which all ranks had `base` samples before; `None` is without end.
    /// Epochs differ where batches are cut by length.
    pub fn len_from(&self, epoch: u64, base: u64) -> Option<u64> {
        self.order.len_from(epoch, base)
    }

    /// The fingerprint of the pipeline, as in states.
    pub fn fingerprint(&self) -> u64 {
        self.plan.fingerprint
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
        if let Some(len) = self.order.len_from(epoch, base).filter(|len| number >= *len) {
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
    pub fn replacement(
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
        let span = self.order.batch(epoch, base, number);
        let mut picks = Vec::new();
        self.order.replacement(&span, (epoch, self.seeds[first.leaf]), first, attempt, &mut picks);
        Ok(picks)
    }

    /// The position before batch `number`.
    pub fn state(&self, epoch: u64, base: u64, number: u64) -> State {
        State::new(&self.order, &self.plan, epoch, base, number)
    }

    /// (epoch, base, number) of a state, which may be of another number of ranks or batch size.
    ///
    /// # Errors
    /// [`ErrorKind::State`] if it belongs to another plan or cannot be carried over, [`ErrorKind::Config`] if it makes no sense.
    pub fn restore(&self, state: &State) -> Result<(u64, u64, u64)> {
        let (base, number) = state.restore(&self.order, &self.plan)?;
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        plan::{Kept, Node, Pad, PythonKind},
        sample::DType,
        source::{ArrayData, Pixels, TensorSlices},
    };

    fn numbers(count: usize) -> Dataset {
        let bytes = (0..count as u8).collect();
        let array = ArrayData::from_vec(bytes, DType::UInt8, vec![count]).unwrap();
        let fields = vec![("x".to_owned(), array, Pixels::Never)];
        Dataset::new(Arc::new(TensorSlices::new(fields, crate::sample::Structure::Field(0)).unwrap()))
    }

    fn hole() -> Box<Node> {
        Box::new(Node::source(crate::source::SourceSpec::Custom { name: String::new() }))
    }

    fn step(name: &str) -> Node {
        Node::Python { kind: PythonKind::Map, name: name.to_owned(), field: None, input: hole() }
    }

    fn indices(dataset: &Dataset) -> Vec<u64> {
        let sequence = dataset.sequence().unwrap();
        let batches = 0..sequence.len_from(0, 0).unwrap();
        batches.flat_map(|n| sequence.batch(0, 0, n).unwrap()).map(|picks| picks[0].index).collect()
    }

    #[test]
    fn the_order_passes_through_python_steps() {
        let plain = numbers(20).shuffle(3).skip(2).batch(4, false);
        let steps = numbers(20).verb(step("f")).unwrap().shuffle(3).skip(2).batch(4, false);
        assert_eq!(indices(&plain), indices(&steps));
        let error = steps.loader().unwrap_err();
        assert!(error.to_string().contains("Python steps"), "{error}");
        let other = numbers(20).verb(step("g")).unwrap().shuffle(3).skip(2).batch(4, false);
        let state = steps.sequence().unwrap().state(1, 0, 2);
        assert_eq!(steps.sequence().unwrap().restore(&state).unwrap(), (1, 0, 2));
        assert!(other.sequence().unwrap().restore(&state).is_err());
    }

    #[test]
    fn what_a_function_kept_is_an_order() {
        let filter = |of| Node::PythonFilter {
            name: "f".to_owned(),
            kept: Kept::new(of, vec![1, 4, 6]).unwrap(),
            input: hole(),
        };
        let kept = numbers(8).verb(filter(8)).unwrap();
        assert_eq!(indices(&kept), [1, 4, 6]);
        let error = numbers(9).verb(filter(8)).unwrap_err();
        assert!(
            error.to_string().contains("8 elements") && error.to_string().contains("9 elements"),
            "{error}"
        );
        assert!(numbers(8).batch(2, false).verb(filter(8)).is_err());
    }

    #[test]
    fn a_step_on_batches_that_python_cannot_make_is_refused() {
        let pad = Pad::default();
        let padded =
            numbers(8).verb(Node::PaddedBatch { batch_size: 3, drop_last: false, pad, input: hole() });
        let padded = padded.unwrap();
        for data in [padded.clone(), padded.take(2), padded.concatenate(&padded).unwrap()] {
            let error = data.verb(step("f")).unwrap_err();
            assert!(error.message().contains("comes after padded_batch()"), "{error}");
        }
        assert!(padded.unbatch().verb(step("f")).is_ok());
        assert!(numbers(8).batch(3, false).verb(step("f")).is_ok());
    }

    #[test]
    fn replacements_come_from_what_verbs_leave() {
        let sequence = numbers(100).take(10).batch(5, false).sequence().unwrap();
        let drawn: Vec<u64> =
            (0..16).map(|attempt| sequence.replacement((0, 0, 1), 2, attempt).unwrap()[0].index).collect();
        assert!(
            drawn.iter().all(|index| *index < 10) && drawn.iter().any(|index| *index != drawn[0]),
            "{drawn:?}"
        );
        assert!(sequence.batch(0, 0, 2).is_err());
        assert!(sequence.replacement((0, 0, 1), 7, 0).is_err());
    }
}
