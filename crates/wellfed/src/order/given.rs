//! An order that the caller gives, batch by batch: samplers of other frameworks, curricula, replayed runs.
//!
//! Invariant: what a sample draws depends on the seed of the pass, its place in the pass and its index, never on how
//! the pass was cut into batches. So a pass goes on from any position in O(1), and a sample that occurs twice draws
//! twice.

use std::{collections::VecDeque, sync::Arc};

use super::{
    Pick, Samples, Span,
    batches::{Position, Upcoming},
};
use crate::{
    Error, ErrorKind, Result,
    rng::{Rng, stage},
    transform::Blend,
};

/// The batches that the caller gives, from submission until they are made.
#[derive(Debug, Default)]
pub(crate) struct Given {
    /// `None` until the first one begins.
    pass: Option<Pass>,
}

/// A pass under way.
#[derive(Debug)]
struct Pass {
    seed: u64,
    /// Place in the pass at which the next batch that is submitted begins.
    position: u64,
    /// Number of the next batch to be submitted.
    number: u64,
    queue: VecDeque<(u64, Span)>,
    /// No batch will follow.
    finished: bool,
}

impl Given {
    /// Begins the pass of `seed`, of which `position` samples came before. What was submitted before is given up.
    pub(crate) fn begin(&mut self, seed: u64, position: u64) {
        self.pass = Some(Pass { seed, position, number: 0, queue: VecDeque::new(), finished: false });
    }

    /// Adds a batch to the pass: `indices` of the source, in this order, and what is done to its images in the end.
    ///
    /// # Errors
    /// [`ErrorKind::State`] if none is under way, or it was said to be complete.
    pub(crate) fn submit(&mut self, indices: Arc<[u64]>, blend: Option<Blend>) -> Result<()> {
        let Some(pass) = self.pass.as_mut().filter(|pass| !pass.finished) else {
            return Err(Error::new(ErrorKind::State, "a batch was submitted outside of a pass")
                .with_hint("begin() starts a pass; none can be added after finish()"));
        };
        let span = span(pass.seed, pass.position, indices, blend);
        pass.position = pass.position.wrapping_add(span.len as u64);
        pass.queue.push_back((pass.number, span));
        pass.number += 1;
        Ok(())
    }

    /// No batch will follow in this pass.
    ///
    /// # Errors
    /// [`ErrorKind::State`] if none is under way.
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.pass.as_mut().ok_or_else(not_begun)?.finished = true;
        Ok(())
    }

    /// Whether the pass is over, if nothing that was taken is still `under_way`.
    ///
    /// # Errors
    /// [`ErrorKind::State`] if nothing is left and the pass is not finished, or has not begun.
    pub(crate) fn is_over(&self, under_way: bool) -> Result<bool> {
        let pass = self.pass.as_ref().ok_or_else(not_begun)?;
        if under_way || !pass.queue.is_empty() {
            return Ok(false);
        }
        if pass.finished {
            return Ok(true);
        }
        Err(Error::new(
            ErrorKind::State,
            "every batch that was submitted has been delivered, and the pass is not finished",
        )
        .with_hint("submit() the next batch before asking for it, or finish() the pass"))
    }

    pub(super) fn take_if(&mut self, fits: impl FnOnce(usize) -> bool) -> Option<Upcoming> {
        let queue = &mut self.pass.as_mut()?.queue;
        // As batches differ in size, all samples count.
        let len = queue.front()?.1.len;
        if !fits(len) {
            return None;
        }
        let (number, span) = queue.pop_front()?;
        let position = Position { epoch: 0, base: 0, number };
        Some(Upcoming { position, span, room: len, counted: len })
    }

    pub(super) fn put_back(&mut self, number: u64, span: Span) {
        if let Some(pass) = &mut self.pass {
            pass.queue.push_front((number, span));
        }
    }
}

fn not_begun() -> Error {
    Error::new(ErrorKind::State, "no pass has begun").with_hint("call begin() first")
}

/// The batch of `indices` at `start` of the pass of `seed`.
fn span(seed: u64, start: u64, indices: Arc<[u64]>, blend: Option<Blend>) -> Span {
    let len = indices.len();
    Span {
        at: 0,
        epoch: 0,
        base: 0,
        start,
        len,
        samples: Samples::Given(GivenSamples { seed, indices, blend }),
    }
}

/// The samples of a batch that the caller gave.
#[derive(Clone, Debug)]
pub(super) struct GivenSamples {
    /// Of the pass.
    seed: u64,
    indices: Arc<[u64]>,
    /// What is done to the images of the finished batch.
    pub(super) blend: Option<Blend>,
}

impl GivenSamples {
    /// Sample `offset` of the batch, at `position` of the pass.
    pub(super) fn pick(&self, offset: usize, position: u64) -> Pick {
        // Draws tell epochs apart by 32 bits: a place in a pass gets as many.
        let epoch = u64::from(Rng::for_stage(self.seed, 0, position, stage::GIVEN).next_u32());
        Pick { leaf: 0, index: self.indices[offset], epoch }
    }

    /// One of them, drawn by `below`, with the random numbers of `draws`.
    pub(super) fn replacement(&self, draws: u64, below: impl FnOnce(u64) -> u64) -> Pick {
        Pick { leaf: 0, index: self.indices[below(self.indices.len() as u64) as usize], epoch: draws }
    }
}

/// The samples of one batch, checked against a source of `len` samples.
///
/// # Errors
/// [`ErrorKind::Config`] for no sample, [`ErrorKind::Index`] for one that does not exist.
pub(crate) fn checked(indices: &[u64], len: u64) -> Result<Arc<[u64]>> {
    if indices.is_empty() {
        return Err(Error::config("a batch was submitted without samples; it must have at least one"));
    }
    if let Some((offset, &index)) = indices.iter().enumerate().find(|(_, index)| **index >= len) {
        return Err(out_of_range(index, offset, len));
    }
    Ok(indices.into())
}

/// The error of asking for sample `index`, number `offset` of a batch, of a source of `len` samples.
pub fn out_of_range(index: impl std::fmt::Display, offset: usize, len: u64) -> Error {
    let range = if len == 0 { "there are none".to_owned() } else { format!("they go from 0 to {}", len - 1) };
    Error::new(ErrorKind::Index, format!("index {index} (place {offset} of its batch) is no sample: {range}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{order::Order, plan::Node, source::SourceSpec};

    fn picks(order: &Order, span: &Span) -> Vec<Pick> {
        let mut all = Vec::new();
        let mut picks = Vec::new();
        for offset in 0..span.len {
            order.pick_in(span, offset, &mut picks);
            all.append(&mut picks);
        }
        all
    }

    #[test]
    fn draws_are_keyed_by_the_place_in_the_pass() {
        let leaf = Node::source(SourceSpec::Custom { name: String::new() });
        let order = Order::new(&leaf, &[10]).unwrap();
        let batch = |seed, start, indices: &[u64]| picks(&order, &span(seed, start, indices.into(), None));
        let whole = batch(5, 0, &[3, 1, 3, 9]);
        assert_eq!(whole.iter().map(|p| p.index).collect::<Vec<_>>(), [3, 1, 3, 9]);
        assert_ne!(whole[0].epoch, whole[2].epoch, "the same sample twice draws twice");
        let cut = [batch(5, 0, &[3]), batch(5, 1, &[1, 3, 9])];
        assert_eq!(cut.concat(), whole, "batches have no part in it");
        assert_eq!(batch(5, 2, &[3, 9]), whole[2..], "nor has what came before");
        assert_ne!(batch(6, 2, &[3, 9]), whole[2..]);
    }

    #[test]
    fn batches_are_taken_in_turn_and_the_last_one_may_be_put_back() {
        let mut given = Given::default();
        assert!(given.submit([1].into(), None).is_err() && given.finish().is_err(), "no pass has begun");
        assert!(given.is_over(false).is_err());
        given.begin(1, 5);
        assert!(given.is_over(false).unwrap_err().message().contains("not finished"));
        assert!(given.take_if(|_| true).is_none());
        given.submit([7, 7].into(), None).unwrap();
        given.submit([2].into(), None).unwrap();
        assert!(given.take_if(|samples| samples < 2).is_none(), "it is asked whether the first one fits");
        let taken = given.take_if(|samples| samples == 2).unwrap();
        assert_eq!((taken.position.number, taken.room, taken.span.position(1)), (0, 2, Some(6)));
        given.put_back(taken.position.number, taken.span);
        let numbers: Vec<u64> =
            std::iter::from_fn(|| given.take_if(|_| true)).map(|taken| taken.position.number).collect();
        assert_eq!(numbers, [0, 1]);
        assert!(!given.is_over(true).unwrap());
        given.finish().unwrap();
        assert!(given.is_over(false).unwrap() && given.submit([6].into(), None).is_err());
    }

    #[test]
    fn what_is_no_sample_is_named() {
        assert_eq!(checked(&[0, 9], 10).unwrap()[..], [0, 9]);
        let e = checked(&[4, 10], 10).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Index);
        assert!(e.message().contains("index 10 (place 1"), "{e}");
        assert_eq!(checked(&[], 10).unwrap_err().kind(), ErrorKind::Config);
        assert!(checked(&[0], 0).unwrap_err().message().contains("none"));
    }
}
