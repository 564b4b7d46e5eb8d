//! [`Future`]: when each sample comes next, in the epochs whose order is known.
//!
//! An epoch is a sorted list of numbers, each a sample and a batch in which it comes: 8 bytes for each time that a sample comes.

use std::collections::BTreeMap;

use super::policy::{Moment, SOMETIME};

/// Bits of a batch's number beside a sample's.
const BATCH: u32 = 28;

/// The moment of a batch. Never 0.
pub fn moment(epoch: u64, batch: u64) -> Moment {
    (epoch.min(u64::from(u32::MAX) / 2) << 32 | batch.min(u64::from(u32::MAX - 1))) + 1
}

/// Which sample comes in which batch, as one number. `None`, if one of them is too large for that.
pub fn visit(sample: u64, batch: u64) -> Option<u64> {
    (sample >> (64 - BATCH) == 0 && batch >> BATCH == 0).then_some(sample << BATCH | batch)
}

/// The epochs that are known.
#[derive(Debug, Default)]
pub struct Future {
    epochs: BTreeMap<u64, Vec<u64>>,
}

impl Future {
    /// Takes in what comes in an epoch, as [`visit`] gives it, in any order. `first`: earlier epochs are forgotten.
    pub fn know(&mut self, epoch: u64, first: u64, mut visits: Vec<u64>) {
        visits.sort_unstable();
        self.epochs.insert(epoch, visits);
        self.epochs.retain(|known, _| *known >= first);
    }

    /// Whether the order of an epoch is known.
    pub fn knows(&self, epoch: u64) -> bool {
        self.epochs.contains_key(&epoch)
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.epochs.clear();
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> u64 {
        self.epochs.values().map(|visits| 8 * visits.capacity() as u64).sum()
    }

    /// When a sample comes first, from a moment on.
    pub fn next(&self, sample: u64, from: Moment) -> Moment {
        let from = from.saturating_sub(1);
        let (first, batch) = (from >> 32, from & u64::from(u32::MAX));
        for (epoch, visits) in self.epochs.range(first..) {
            let batch = if *epoch == first { batch } else { 0 };
            // A batch beyond all of them: it comes in a later epoch.
            let Some(wanted) = visit(sample, batch.min((1 << BATCH) - 1)) else { continue };
            let found = visits.get(visits.partition_point(|visit| *visit < wanted));
            if let Some(found) = found.filter(|found| **found >> BATCH == sample) {
                return moment(*epoch, found & ((1 << BATCH) - 1));
            }
        }
        SOMETIME
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_not_known_comes_some_day() {
        let mut future = Future::default();
        assert_eq!(future.next(3, moment(0, 0)), SOMETIME);
        future.know(4, 4, vec![visit(3, 7).unwrap(), visit(2, 1).unwrap()]);
        assert_eq!((future.next(3, moment(0, 0)), future.next(4, 0)), (moment(4, 7), SOMETIME));
        assert_eq!((future.next(3, moment(4, 7)), future.next(3, moment(4, 8))), (moment(4, 7), SOMETIME));
        assert_eq!((visit(1 << 36, 0), visit(0, 1 << 28)), (None, None));
        assert!(visit((1 << 36) - 1, (1 << 28) - 1).is_some());
        assert_eq!(future.next(u64::MAX, 0), SOMETIME);
        assert!(moment(u64::MAX, u64::MAX) < SOMETIME && moment(0, 0) > 0);
        future.know(6, 5, Vec::new());
        assert!(!future.knows(4) && future.knows(6));
    }

    proptest! {
        #[test]
        fn it_is_the_first_one_that_a_search_finds(
            epochs in prop::collection::vec(prop::collection::vec((0..8_u64, 0..6_u64), 0..20), 0..4),
            sample in 0..8_u64, from in (0..4_u64, 0..7_u64),
        ) {
            let mut future = Future::default();
            for (epoch, visits) in epochs.iter().enumerate() {
                let visits = visits.iter().map(|(sample, batch)| visit(*sample, *batch).unwrap()).collect();
                future.know(epoch as u64, 0, visits);
            }
            let all = epochs.iter().enumerate().flat_map(|(epoch, visits)| {
                visits.iter().filter(|(other, _)| *other == sample).map(move |(_, batch)| moment(epoch as u64, *batch))
            });
            let first = all.filter(|at| *at >= moment(from.0, from.1)).min();
            prop_assert_eq!(future.next(sample, moment(from.0, from.1)), first.unwrap_or(SOMETIME));
        }
    }
}
