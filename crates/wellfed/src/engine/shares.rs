//! [`Shares`]: who may hold how much of a loader's budget, usually and while one batch is made by itself ("solo").
//!
//! Invariants: the shares of each kind add up to no more than the budget, but for the least of each holder, and no share
//! of a solo batch is smaller than the usual one: what fits beside others fits alone.

use super::exec::Executor;
use crate::{
    budget::{Budget, Holder},
    column::ColumnSpec,
};

/// Batches made ahead at most.
pub(super) const MAX_PREFETCH: usize = 64;

/// The least that there is for samples being made and for lists, so that a budget for tiny batches can decode photographs.
const LEAST: u64 = 4 << 20;

/// Who may hold how much of the budget.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shares {
    pub(super) batches: u64,
    pub(super) lists: u64,
    pub(super) records: u64,
    pub(super) samples: u64,
    /// All that there is for them together.
    total: u64,
    /// Some columns are put together after the last sample of a batch: as lists or otherwise.
    has_lists: bool,
    /// Of these, some lie in buffers.
    has_stacked: bool,
}

impl Shares {
    /// Half at most is for what is under way: no more than all batches made ahead can use, and no less than two batches.
    /// Lists, and values that are put together later, have half of that. An eighth each is for row indexes and for
    /// records read ahead, where there are such. All else is for samples being made. `bounded` says whether no batch
    /// takes more than `batch_bytes`.
    pub(super) fn new(
        columns: &[ColumnSpec],
        batch_bytes: u64,
        bounded: bool,
        executor: &Executor,
        budget: u64,
    ) -> Self {
        let indexed = executor.leaves().iter().any(|leaf| leaf.caches().row_indexes.is_some());
        Self::divide(columns, batch_bytes, bounded, (executor.in_memory(), indexed), budget)
    }

    fn divide(
        columns: &[ColumnSpec],
        batch_bytes: u64,
        bounded: bool,
        (in_memory, indexed): (bool, bool),
        budget: u64,
    ) -> Self {
        let has_lists = columns.iter().any(|column| column.sample_bytes() == 0);
        // Their buffers are as large as the values of a batch make them.
        let has_stacked = columns.iter().any(|column| column.is_stacked() && !column.is_list());
        let bounded = bounded && !has_stacked;
        let has_arrays = !bounded || batch_bytes > 0;
        let half = budget / 2;
        let lists = match (has_lists, has_arrays) {
            (true, true) => half / 2,
            (true, false) => half,
            (false, _) => 0,
        };
        let ahead = if bounded { batch_bytes.saturating_mul(MAX_PREFETCH as u64 + 1) } else { u64::MAX };
        let batches = (half - lists).min(ahead).max(batch_bytes.saturating_mul(2));
        let total = budget.saturating_sub(if indexed { budget / 8 } else { 0 });
        let lists = if has_lists { lists.min(total.saturating_sub(batches)).max(LEAST) } else { 0 };
        let left = budget.saturating_sub(batches).saturating_sub(lists);
        let eighth = (budget / 8).min(left / 4);
        let records = if in_memory { 0 } else { eighth };
        let row_indexes = if indexed { eighth } else { 0 };
        let samples = left.saturating_sub(records + row_indexes).max(LEAST);
        Self { batches, lists, records, samples, total, has_lists, has_stacked }
    }

    /// Those of a batch that is made solo, whose arrays of fixed size take `array_bytes`. What is left beside these is for
    /// its samples, one after the other, and later, in the same place, for the columns that are put together; half of it
    /// is for lists and other values in between, if it has any.
    pub(super) fn solo(&self, array_bytes: u64) -> Self {
        let rest = self.total.saturating_sub(array_bytes);
        let half = rest / 2;
        let samples = match (self.has_lists, self.has_stacked) {
            (false, _) => rest,
            (true, false) => half,
            (true, true) => half.max(self.batches.saturating_sub(array_bytes)).min(rest),
        };
        let lists = if self.has_lists { rest.saturating_sub(samples).max(self.lists) } else { 0 };
        let columns = if self.has_stacked { samples } else { 0 };
        let batches = array_bytes.saturating_add(columns);
        Self { batches, lists, records: 0, samples: samples.max(self.samples / 2), ..*self }
    }

    /// What `who` may hold.
    pub(super) fn of(&self, who: Holder) -> u64 {
        match who {
            Holder::Batches => self.batches,
            Holder::Lists => self.lists,
            Holder::Records => self.records,
            Holder::Samples => self.samples,
            Holder::RowIndexes | Holder::Cache | Holder::Groups => 0,
        }
    }

    pub(super) fn set(self, budget: &Budget) {
        for who in [Holder::Batches, Holder::Lists, Holder::Records, Holder::Samples] {
            budget.set_cap(who, self.of(who));
        }
    }

    /// So much for each, of columns of any kind.
    #[cfg(test)]
    pub(super) fn each(bytes: u64) -> Self {
        Self {
            batches: bytes,
            lists: bytes,
            records: bytes,
            samples: bytes,
            total: 4 * bytes,
            has_lists: true,
            has_stacked: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        column::{ColumnKind, Stacking},
        sample::DType,
    };

    fn column(kind: ColumnKind) -> ColumnSpec {
        ColumnSpec { name: "x".into(), kind }
    }

    fn varying() -> ColumnSpec {
        let stacking = Stacking::Ragged;
        column(ColumnKind::Varying { dtype: DType::UInt8, shape: vec![None], stacking })
    }

    fn array() -> ColumnSpec {
        column(ColumnKind::Array { dtype: DType::UInt8, shape: vec![7] })
    }

    #[test]
    fn shares_fit_into_the_budget_and_a_solo_batch_has_no_less_than_others() {
        let budget = 1 << 30;
        let kinds = [
            vec![array()],
            vec![column(ColumnKind::Bytes)],
            vec![varying()],
            vec![array(), column(ColumnKind::Text)],
            vec![array(), varying()],
            vec![array(), varying(), column(ColumnKind::Text)],
        ];
        for columns in kinds {
            let has_arrays = columns.iter().any(|column| column.sample_bytes() > 0);
            for percent in if has_arrays { vec![1, 10, 25, 33, 40, 49] } else { vec![0] } {
                for bounded in [true, false] {
                    for (in_memory, indexed) in [(true, false), (false, false), (false, true)] {
                        if indexed && !has_arrays {
                            // Row indexes are of images, which are arrays.
                            continue;
                        }
                        let arrays = budget / 100 * percent;
                        let usual = Shares::divide(&columns, arrays, bounded, (in_memory, indexed), budget);
                        let solo = usual.solo(arrays);
                        if 2 * arrays > usual.total {
                            // Two batches have all of it, which is the least that a loader is made with.
                            continue;
                        }
                        let sum = |s: &Shares| s.batches + s.lists + s.records + s.samples;
                        let what = format!("{columns:?}, {percent} %: {usual:?}, {solo:?}");
                        assert!(sum(&usual) <= budget + 2 * LEAST, "{what}");
                        // Samples and the columns that are put together later have the same place.
                        assert!(arrays + solo.lists + solo.samples <= usual.total + 2 * LEAST, "{what}");
                        assert!(solo.batches + solo.lists <= usual.total + 2 * LEAST, "{what}");
                        assert!(solo.lists >= usual.lists && solo.samples >= usual.samples / 2, "{what}");
                        assert!(!usual.has_stacked || solo.batches >= usual.batches, "{what}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_budget_of_two_or_three_times_the_batch_is_enough() {
        // The record, and what is left over when bytes are halved.
        let (bytes, more) = (1_000_000_000_u64, 2);
        let solo = |columns: &[ColumnSpec], arrays: u64, budget: u64| {
            Shares::divide(columns, arrays, true, (false, false), budget).solo(arrays)
        };
        let lists = solo(&[column(ColumnKind::Bytes)], 0, 2 * bytes + more);
        assert!(lists.lists >= bytes && lists.samples >= bytes, "{lists:?}");
        let ragged = solo(&[varying()], 0, 2 * bytes + more);
        assert!(ragged.lists >= bytes && ragged.batches >= bytes && ragged.samples >= bytes, "{ragged:?}");
        let dense = solo(&[array()], bytes, 2 * bytes + more);
        assert!(dense.samples >= bytes, "{dense:?}");
        let mixed = solo(&[array(), column(ColumnKind::Text)], bytes, 3 * bytes + more);
        assert!(mixed.samples >= bytes && mixed.lists >= bytes, "{mixed:?}");
    }
}
