//! Threads that begin groups of samples before they are wanted, so that their bytes are asked for, and decode what has come: the
//! row groups of tables in stores that answer later.
//!
//! What they decode is kept by [`crate::groups`], in its part of the budget, and never in place of a group that is in use or was
//! read ahead itself.

use std::time::Duration;

use super::{
    shared::{Shared, guard},
    threads::in_storage,
};
use crate::{groups::Warmed, lock, sample::Record};

/// Threads that decode ahead. Workers decode what they want before it is there.
const THREADS: usize = 2;

/// Time until it is looked again whether batches were opened.
const LOOK: Duration = Duration::from_millis(10);

impl Shared {
    /// Threads that decode groups ahead.
    pub(crate) fn ahead_threads(&self) -> usize {
        if lock(&self.ahead).is_useful() { THREADS } else { 0 }
    }

    /// The loop of a thread that decodes groups ahead, until shutdown.
    pub(crate) fn run_ahead(&self) {
        let mut record = Record::default();
        loop {
            let place = {
                let mut schedule = self.lock();
                if schedule.shutdown {
                    return;
                }
                schedule.next_place()
            };
            let wanted = place.and_then(|place| lock(&self.ahead).next(place, &self.order, &self.executor));
            let warmed = wanted.map(|(leaf, group)| {
                // What is wrong with it, whoever wants it will hear.
                let run = || Ok(in_storage(|| self.executor.warm(leaf, group, &mut record)));
                guard("read", run).unwrap_or(Warmed::Done)
            });
            match (wanted, warmed) {
                (Some(group), Some(Warmed::Done)) => {
                    lock(&self.ahead).done(group);
                }
                (Some(group), Some(Warmed::Coming)) => {
                    lock(&self.ahead).asked(group);
                }
                // There is nothing to do, or no room yet.
                _ => {
                    let schedule = self.lock();
                    if schedule.shutdown {
                        return;
                    }
                    drop(self.wait_ahead(schedule, LOOK));
                }
            }
        }
    }
}
