//! How fast batches come, and so how many the consumer waits for at once.
//!
//! To wake a thread takes about as long as to make a batch of a few microseconds, and on few cores a consumer that is
//! woken for each batch takes the core from a worker each time. So a consumer that has to wait for such batches waits for
//! several, of which more are then made ahead. It never changes what comes out, only when.

use std::time::{Duration, Instant};

/// The consumer waits so long at most for more than one batch.
pub(crate) const LINGER: Duration = Duration::from_micros(500);

/// Batches that the consumer waits for at once, at most.
const MOST: usize = 8;

/// Batches over which the pace is measured, at least.
const WINDOW: u32 = 16;

/// The pace at which the consumer gets batches.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// End of a wait, and batches that were delivered since.
    last: Option<(Instant, u32)>,
    /// Time of one batch when last measured, with all that the consumer did meanwhile.
    batch: Option<Duration>,
}

impl Pace {
    /// A batch was delivered, for which the consumer did not have to wait.
    pub(crate) fn delivered(&mut self) {
        if let Some((_, batches)) = &mut self.last {
            *batches = batches.saturating_add(1);
        }
    }

    /// A batch was delivered `now`, for which the consumer waited.
    pub(crate) fn waited(&mut self, now: Instant) {
        match self.last {
            // Workers that begin together end together: the time between two batches says little.
            Some((then, batches)) if batches >= WINDOW => {
                self.batch = Some(now.duration_since(then) / batches);
                self.last = Some((now, 1));
            }
            Some(_) => self.delivered(),
            None => self.last = Some((now, 1)),
        }
    }

    /// Batches that come within [`LINGER`].
    fn quick(&self) -> usize {
        let within = |batch: Duration| LINGER.as_nanos() / batch.as_nanos().max(1);
        self.batch.map_or(1, |batch| usize::try_from(within(batch)).map_or(MOST, |n| n.clamp(1, MOST)))
    }

    /// Batches to wait for, of `prefetch` under way: workers have the other half to go on with meanwhile.
    pub(crate) fn batches(&self, prefetch: usize) -> usize {
        self.quick().min(prefetch / 2).max(1)
    }

    /// Batches that should be under way, so that as many are made while the consumer takes those that it waited for.
    pub(crate) fn prefetch(&self) -> usize {
        2 * self.quick()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_are_waited_for_only_where_they_come_within_the_time() {
        let mut now = Instant::now();
        let mut pace = Pace::default();
        assert_eq!((pace.batches(16), pace.prefetch()), (1, 2), "nothing is known");
        pace.delivered();
        pace.waited(now);
        // Time of so many batches, for the last of which the consumer waited.
        for (micros, batches, waits, prefetch) in [
            (0, 8, 1, 2),
            (6400, 8, 1, 2),
            (16 * 200, 16, 2, 4),
            (20 * 50, 20, 8, 16),
            (0, 16, 8, 16),
            (1, 1000, 8, 16),
            (500_000, 3, 8, 16),
            (500_000, 13, 1, 2),
        ] {
            (1..batches).for_each(|_| pace.delivered());
            now += Duration::from_micros(micros);
            pace.waited(now);
            assert_eq!((pace.batches(16), pace.prefetch()), (waits, prefetch), "{micros} us, {batches}");
        }
        (0..WINDOW).for_each(|_| pace.waited(now));
        assert_eq!([1, 2, 4, 5, 64].map(|prefetch| pace.batches(prefetch)), [1, 1, 2, 2, 8]);
    }
}
