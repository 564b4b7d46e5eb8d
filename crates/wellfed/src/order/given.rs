//! An order that the caller gives, batch by batch: samplers of other frameworks, curricula, replayed runs.
//!
//! Invariant: what a sample draws depends on the seed of the pass, its place in the pass and its index, never on how
//! the pass was cut into batches. So a pass goes on from any position in O(1), and a sample that occurs twice draws
//! twice.

use std::sync::Arc;

use super::{Pick, Span};
use crate::{Error, ErrorKind, Result, rng::Rng};

/// Stage number that keys the draws of a pass; transforms count up from 0.
const STAGE: u32 = 0xFFFE;

/// A pass under way: where the next batch that is submitted begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pass {
    seed: u64,
    position: u64,
}

impl Pass {
    /// The pass of `seed`, of which `position` samples came before.
    pub(crate) fn new(seed: u64, position: u64) -> Self {
        Self { seed, position }
    }

    /// The next batch: `indices` of the source, in this order.
    pub(crate) fn batch(&mut self, indices: Arc<[u64]>) -> Span {
        let (start, len) = (self.position, indices.len());
        self.position = start.wrapping_add(len as u64);
        Span { at: 0, epoch: self.seed, base: 0, start, len, given: Some(indices) }
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

/// Sample `offset` of a batch that starts at `start` of the pass of `seed`.
pub(super) fn pick(seed: u64, start: u64, offset: usize, index: u64) -> Pick {
    let position = start.wrapping_add(offset as u64);
    // Draws tell epochs apart by 32 bits: a place in a pass gets as many.
    let epoch = u64::from(Rng::for_stage(seed, 0, position, STAGE).next_u32());
    Pick { leaf: 0, index, epoch }
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
        let mut pass = Pass::new(5, 0);
        let whole = picks(&order, &pass.batch([3, 1, 3, 9].into()));
        assert_eq!(whole.iter().map(|p| p.index).collect::<Vec<_>>(), [3, 1, 3, 9]);
        assert_ne!(whole[0].epoch, whole[2].epoch, "the same sample twice draws twice");
        let mut pass = Pass::new(5, 0);
        let cut = [picks(&order, &pass.batch([3].into())), picks(&order, &pass.batch([1, 3, 9].into()))];
        assert_eq!(cut.concat(), whole, "batches have no part in it");
        assert_eq!(
            picks(&order, &Pass::new(5, 2).batch([3, 9].into())),
            whole[2..],
            "nor has what came before"
        );
        assert_ne!(picks(&order, &Pass::new(6, 2).batch([3, 9].into())), whole[2..]);
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
