//! [`Share`]: a part of the byte budget that a cache fills.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes that may be taken, and those that are.
#[derive(Debug)]
pub(crate) struct Share {
    limit: u64,
    used: AtomicU64,
}

impl Share {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, used: AtomicU64::new(0) }
    }

    /// Takes `bytes` if there are as many left.
    pub(crate) fn take(&self, bytes: u64) -> bool {
        let add = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.limit);
        self.used.fetch_update(Relaxed, Relaxed, add).is_ok()
    }

    /// Gives back what was taken.
    pub(crate) fn give(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Relaxed);
    }

    pub(crate) fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_more_than_the_limit() {
        let share = Share::new(10);
        assert!(share.take(7) && !share.take(4) && share.take(3) && !share.take(1) && share.take(0));
        share.give(3);
        assert!(!share.take(u64::MAX) && share.take(3));
        assert_eq!((share.used(), share.limit()), (10, 10));
    }
}
