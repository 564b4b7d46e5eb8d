//! Opens what a loader keeps from epoch to epoch, and says what of its budget is left.

use std::sync::Arc;

use super::{
    cache::{Caches, CoefficientCache, KeptCaches, RowIndexCache},
    exec::Executor,
    governor,
};
use crate::{
    Result,
    budget::{Budget, Holder},
    groups::Groups,
    io::layer::Mailbox,
    plan::{Options, lower::LeafCache},
};

/// The least that groups which sources decode are given beside their own size, as far as the budget has it: bytes.
const LEAST_GROUPS: u64 = 16 << 20;

/// Opens what is to be kept from epoch to epoch, for every source what its cache says. Of the budget it gives back what
/// is left for everything else, and how much there is in all.
pub(crate) fn with_caches(
    mut executor: Executor,
    options: &Options,
    (wanted, kept): (&[Option<LeafCache>], &KeptCaches),
    counted: &Arc<Budget>,
    mailbox: &Arc<Mailbox>,
) -> Result<(Executor, u64, u64)> {
    options.row_index.check()?;
    let given = options.memory_budget;
    let mut budget = given.unwrap_or_else(governor::default_budget);
    let mut total = budget;
    // Sources that share a limit have equal parts of it, and all caches without a limit share half of what there is.
    let unlimited =
        wanted.iter().flatten().filter(|c| c.path.is_none() && c.max_bytes.is_none()).count() as u64;
    // What an earlier loader left is not available, but ours.
    let left = || {
        let sources = executor.leaves().iter().map(|leaf| kept.bytes(leaf.shared_source()));
        governor::available_memory().saturating_add(sources.sum())
    };
    let half = given.unwrap_or_else(left) / 2;
    if unlimited > 0 {
        if given.is_some() {
            budget -= half;
        } else {
            total = total.saturating_add(half);
        }
    }
    let mut limits = Vec::new();
    for cache in wanted {
        limits.push(cache.as_ref().map(|cache| match (&cache.path, cache.max_bytes) {
            (Some(_), limit) => limit.map_or(u64::MAX, |limit| limit / cache.shared_by),
            (None, Some(limit)) => {
                let part = limit / cache.shared_by;
                total = total.saturating_add(part);
                part
            }
            (None, None) => half / unlimited,
        }));
    }
    // Groups that sources decode have room for all of them, as far as that is half of what there is.
    let sizes = executor.leaves().iter().filter_map(|leaf| leaf.shared_source().groups());
    if let Some(all) = sizes.map(|sizes| sizes.all.max(sizes.largest)).reduce(u64::saturating_add) {
        // What decoding takes in between counts as well.
        let part = all.saturating_mul(2).saturating_add(LEAST_GROUPS).min(budget / 2);
        budget -= part;
        counted.set_cap(Holder::Groups, part);
        let far = executor.leaves().iter().any(|leaf| leaf.shared_source().groups_store().is_some());
        let groups = if far {
            let mailbox = mailbox.clone();
            Groups::far(counted.clone(), move || mailbox.ring())
        } else {
            Groups::new(counted.clone())
        };
        let leaves = executor.leaves_mut().iter_mut().enumerate();
        leaves.for_each(|(number, leaf)| leaf.set_groups(groups.of_leaf(number)));
    }
    let regions = executor.leaves().iter().filter(|leaf| leaf.program().decodes_regions()).count() as u64;
    for (number, leaf) in executor.leaves_mut().iter_mut().enumerate() {
        let source = leaf.shared_source();
        let mut caches = Caches::default();
        if let Some(cache) = wanted.get(number).and_then(Option::as_ref) {
            let limit = limits[number].unwrap_or(0);
            let path = cache.path.as_deref();
            let open = || CoefficientCache::open(source.clone(), path, limit);
            caches.coefficients = Some(match path {
                None => kept.take(source, limit, counted, open)?,
                Some(_) => Arc::new(open()?),
            });
        }
        if leaf.program().decodes_regions() {
            // An eighth: see `Shares`.
            let opened = RowIndexCache::open(source.clone(), &options.row_index, budget / 8 / regions)?;
            caches.row_indexes = opened.map(|cache| Arc::new(cache.counted(counted)));
        }
        leaf.set_caches(caches);
    }
    Ok((executor, budget, total))
}
