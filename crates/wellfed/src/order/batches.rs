//! [`Batches`]: the batches of a loader, in the order in which they are made: those of the plan, epoch after epoch, or
//! those that the caller gives, pass after pass.
//!
//! Each kind keeps its own state. Whoever makes batches takes one after the other, and may put the last one back.

use std::sync::Arc;

use super::{Order, Span, given::Given};
use crate::{Error, ErrorKind, Result};

/// A place in the sequence of batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) epoch: u64,
    /// Samples of the epoch consumed by an earlier set of ranks.
    pub(crate) base: u64,
    pub(crate) number: u64,
}

impl Position {
    /// Where `epoch` begins.
    pub(crate) fn start_of(epoch: u64) -> Self {
        Self { epoch, base: 0, number: 0 }
    }
}

/// A batch that is to be made.
#[derive(Debug)]
pub(crate) struct Upcoming {
    pub(crate) position: Position,
    pub(crate) span: Span,
    /// Samples that its buffers have room for.
    pub(crate) room: usize,
    /// Samples whose bytes count for the limit of all batches under way.
    pub(crate) counted: usize,
}

/// Where batches come from.
#[derive(Debug)]
pub(crate) enum Batches {
    /// From the plan.
    Planned(Planned),
    /// From the caller.
    Given(Given),
}

impl Batches {
    /// Those of the plan, from its first epoch on.
    pub(crate) fn planned(order: Arc<Order>) -> Self {
        Self::Planned(Planned { order, cursor: Position::start_of(0) })
    }

    /// Those that the caller will give.
    pub(crate) fn given() -> Self {
        Self::Given(Given::default())
    }

    /// Whether samples come as batches, and not one by one.
    pub(crate) fn batched(&self) -> bool {
        match self {
            Self::Planned(planned) => planned.order.batched(),
            Self::Given(_) => true,
        }
    }

    /// Whether the plan says how many samples a batch has at most.
    pub(crate) fn bounded(&self) -> bool {
        matches!(self, Self::Planned(_))
    }

    /// Takes the next batch, if there is one at present and `fits` says so, which is told how many of its samples count.
    pub(crate) fn take_if(&mut self, fits: impl FnOnce(usize) -> bool) -> Option<Upcoming> {
        match self {
            Self::Planned(planned) => planned.take_if(fits),
            Self::Given(given) => given.take_if(fits),
        }
    }

    /// Takes back the batch that was taken last.
    pub(crate) fn put_back(&mut self, position: Position, span: Span) {
        match self {
            Self::Planned(planned) => planned.go_to(position),
            Self::Given(given) => given.put_back(position.number, span),
        }
    }

    /// Those of the plan.
    ///
    /// # Errors
    /// [`ErrorKind::State`] if the caller gives them.
    pub(crate) fn of_plan(&mut self) -> Result<&mut Planned> {
        match self {
            Self::Planned(planned) => Ok(planned),
            Self::Given(_) => Err(no_epochs()),
        }
    }

    /// Those that the caller gives.
    ///
    /// # Errors
    /// [`ErrorKind::State`] if they are those of the plan.
    pub(crate) fn of_caller(&mut self) -> Result<&mut Given> {
        match self {
            Self::Given(given) => Ok(given),
            Self::Planned(_) => Err(Error::new(ErrorKind::State, "this loader has the order of its plan")
                .with_hint("loader_given() makes one that takes batches from the caller")),
        }
    }
}

/// The error of asking for an epoch where the caller gives the order.
pub(crate) fn no_epochs() -> Error {
    Error::new(ErrorKind::State, "this loader takes its order from the caller")
        .with_hint("it has begin(), submit() and finish() instead of epochs and states")
}

/// The batches of the plan, without an end: after the last one of an epoch comes the first one of the next.
#[derive(Debug)]
pub(crate) struct Planned {
    order: Arc<Order>,
    /// The next batch.
    cursor: Position,
}

impl Planned {
    /// The next batch to be taken.
    pub(crate) fn cursor(&self) -> Position {
        self.cursor
    }

    /// Makes `position` the next batch to be taken.
    pub(crate) fn go_to(&mut self, position: Position) {
        self.cursor = position;
    }

    fn take_if(&mut self, fits: impl FnOnce(usize) -> bool) -> Option<Upcoming> {
        let Position { epoch, base, number } = self.cursor;
        if self.order.is_over(epoch, base, number) {
            if self.order.is_empty() {
                return None;
            }
            self.cursor = Position::start_of(epoch + 1);
            if self.order.is_over(epoch + 1, 0, 0) {
                // Of batches that are cut by length, an epoch may have none.
                return None;
            }
        }
        // None counts: as a batch has so many samples at most, a limit of how many are made ahead bounds their bytes.
        let counted = 0;
        if !fits(counted) {
            return None;
        }
        let position = self.cursor;
        self.cursor.number += 1;
        let span = self.order.batch(position.epoch, position.base, position.number);
        // That of a full batch, so that buffers can be used again.
        let room = if self.order.is_cut() { span.len } else { self.order.batch_size() };
        Some(Upcoming { position, span, room, counted })
    }
}
