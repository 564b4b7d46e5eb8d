//! [`Share`]: a part of the byte budget that a cache fills.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use crate::budget::{Budget, Holder};

/// Bytes that may be taken, and those that are.
#[derive(Debug)]
pub(crate) struct Share {
    limit: u64,
    used: AtomicU64,
    /// Where bytes of memory are counted with all others.
    counted: Option<(Arc<Budget>, Holder)>,
}

impl Share {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, used: AtomicU64::new(0), counted: None }
    }

    /// Counts what is taken as what `who` holds of `budget`.
    pub(crate) fn counted(self, budget: &Arc<Budget>, who: Holder) -> Self {
        budget.force(self.used(), who);
        Self { counted: Some((budget.clone(), who)), ..self }
    }

    /// The same with another limit, counted nowhere.
    pub(crate) fn with_limit(self, limit: u64) -> Self {
        Self { limit, counted: None, ..self }
    }

    /// Takes `bytes` if there are as many left.
    pub(crate) fn take(&self, bytes: u64) -> bool {
        let add = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.limit);
        let taken = self.used.fetch_update(Relaxed, Relaxed, add).is_ok();
        if let (true, Some((budget, who))) = (taken, &self.counted) {
            budget.force(bytes, *who);
        }
        taken
    }

    /// Gives back what was taken.
    pub(crate) fn give(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Relaxed);
        if let Some((budget, who)) = &self.counted {
            budget.give(bytes, *who);
        }
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
