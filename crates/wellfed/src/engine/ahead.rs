//! [`Ahead`]: which groups of samples are wanted next, found by walking along the order in front of the batches that are open.
//! What reads them is in `warm.rs`.

use std::collections::VecDeque;

use super::exec::Executor;
use crate::{
    budget::{Budget, Holder},
    order::{Order, Picks, Position},
};

/// Samples of the order that are looked at at once, and batches ahead of the next one at most.
const SAMPLES: usize = 1 << 16;
const BATCHES: u64 = 1 << 14;

/// Groups that are read ahead, at most.
const GROUPS: u64 = 16;

/// Groups that room is left for beside those: what is in use.
const IN_USE: u64 = 2;

/// A group that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Coming {
    /// The first batch that wants it.
    batch: u64,
    leaf: usize,
    group: u64,
    what: State,
}

/// What is left to do for a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It is to be begun, or decoded if its bytes have come.
    ToDo,
    /// It was asked for in this round.
    Asked,
    Done,
}

/// How far it was looked ahead, and what was found.
#[derive(Debug)]
pub(crate) struct Ahead {
    /// Groups that are read ahead at most: as many as have room beside those in use.
    most: usize,
    /// The first batch that was not looked at.
    walked: Option<Position>,
    generation: u64,
    coming: VecDeque<Coming>,
    picks: Picks,
}

impl Ahead {
    pub(crate) fn new(executor: &Executor, budget: &Budget) -> Self {
        let fit = budget.cap(Holder::Groups).checked_div(executor.largest_far_group()).unwrap_or(0);
        let most = fit.saturating_sub(IN_USE).min(GROUPS) as usize;
        Self { most, walked: None, generation: 0, coming: VecDeque::new(), picks: Picks::default() }
    }

    /// Whether there is anything to be read ahead.
    pub(crate) fn is_useful(&self) -> bool {
        self.most > 0
    }

    /// The next group to begin or to decode, where `next` is the batch to be opened next. Walks on until as many are known as there
    /// is room for. `None` ends a round, after which those that were asked for are looked at again.
    pub(crate) fn next(
        &mut self,
        (next, generation): (Position, u64),
        order: &Order,
        executor: &Executor,
    ) -> Option<(usize, u64)> {
        let goes_on = |walked: &Position| (walked.epoch, walked.base) == (next.epoch, next.base);
        let mut walked = match self.walked.filter(goes_on) {
            Some(walked) if generation == self.generation => walked,
            _ => {
                self.coming.clear();
                executor.forget_ahead();
                next
            }
        };
        self.generation = generation;
        // Groups of batches that are open are the workers'.
        walked.number = walked.number.max(next.number);
        while self.coming.front().is_some_and(|coming| coming.batch < next.number) {
            self.coming.pop_front();
        }
        let mut looked = 0;
        while self.coming.len() < self.most && looked < SAMPLES && walked.number < next.number + BATCHES {
            if order.is_over(walked.epoch, walked.base, walked.number) {
                break;
            }
            let span = order.batch(walked.epoch, walked.base, walked.number);
            order.picks_in(&span, 0..span.len, &mut self.picks);
            for pick in self.picks.all() {
                let Some(group) = executor.group_of(*pick) else { continue };
                let known = |coming: &Coming| (coming.leaf, coming.group) == (pick.leaf, group);
                if !self.coming.iter().rev().any(known) {
                    let coming = Coming { batch: walked.number, leaf: pick.leaf, group, what: State::ToDo };
                    self.coming.push_back(coming);
                }
            }
            looked += span.len.max(1);
            walked.number += 1;
        }
        self.walked = Some(walked);
        let first = self.coming.iter().take(self.most).find(|coming| coming.what == State::ToDo).copied();
        if first.is_none() {
            self.coming.iter_mut().filter(|coming| coming.what == State::Asked).for_each(|coming| {
                coming.what = State::ToDo;
            });
        }
        first.map(|first| (first.leaf, first.group))
    }

    /// Notes that there is nothing left to do for a group.
    pub(crate) fn done(&mut self, group: (usize, u64)) {
        self.note(group, State::Done);
    }

    /// Notes that a group was asked for.
    pub(crate) fn asked(&mut self, group: (usize, u64)) {
        self.note(group, State::Asked);
    }

    fn note(&mut self, of: (usize, u64), what: State) {
        if let Some(coming) = self.coming.iter_mut().find(|coming| (coming.leaf, coming.group) == of) {
            coming.what = what;
        }
    }

    /// The first batch that wants a group, if it was looked at.
    pub(crate) fn batch_of(&self, of: (usize, u64)) -> Option<u64> {
        let found = self.coming.iter().find(|coming| (coming.leaf, coming.group) == of);
        found.map(|coming| coming.batch)
    }
}
