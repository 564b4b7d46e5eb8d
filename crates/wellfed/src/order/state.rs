//! Where a loader stands: small, versioned, and independent of the number of ranks.
//!
//! Invariant: what all ranks deliver before a state was taken and after it was loaded is the epoch, on whatever number
//! of ranks and with whatever batch size; where that cannot be, loading it is an error that names the
//! verb.

use serde::{Deserialize, Serialize};

use super::Order;
use crate::{Error, ErrorKind, Result, plan::Outline};

const VERSION: u32 = 3;

/// Positions of data sets without end are below this, so that sums of them do not overflow.
const FARTHEST: u64 = 1 << 60;

/// A position between two batches. O(1) in the data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Version of this format.
    pub version: u32,
    /// Epoch of the next batch. After the last batch of an epoch it is still that one, of which nothing is left.
    pub epoch: u64,
    /// Batches of that epoch already delivered to this rank since `base`.
    pub batch: u64,
    /// Samples of the epoch that all ranks together had consumed when the number of ranks or the batch size last
    /// changed.
    pub base: u64,
    /// Ranks that share the epoch, at least 1.
    pub world_size: u64,
    /// Samples in a full batch, at least 1; 1 where other verbs come after `batch`.
    pub batch_size: u64,
    /// World sizes and batch sizes that other verbs come after, hashed; 0 if there are none.
    pub inner: u64,
    /// Fingerprint of the plan without rank, world size and options.
    pub plan: u64,
    /// Verbs of the plan, with hashes of their arguments: for saying what differs.
    pub verbs: Vec<String>,
}

impl State {
    pub(crate) fn new(order: &Order, plan: &Outline, epoch: u64, base: u64, batch: u64) -> Self {
        Self {
            version: VERSION,
            epoch,
            batch,
            base,
            world_size: order.world_size(),
            batch_size: order.unit_batch(),
            inner: order.top.inner,
            plan: plan.fingerprint,
            verbs: plan.verbs.clone(),
        }
    }

    /// Translates the position to `order`, which may have another number of ranks: (base, batch).
    ///
    /// # Errors
    /// [`ErrorKind::State`] if it belongs to another plan or cannot be carried over, [`ErrorKind::Config`] if it makes no
    /// sense.
    pub(crate) fn restore(&self, order: &Order, plan: &Outline) -> Result<(u64, u64)> {
        if self.version != VERSION {
            return Err(Error::config(format!(
                "state has version {}, this wellfed reads version {VERSION}",
                self.version
            )));
        }
        if self.plan != plan.fingerprint {
            let difference = plan.difference(&self.verbs).unwrap_or_else(|| {
                format!("its fingerprint is {:016x}, this one has {:016x}", self.plan, plan.fingerprint)
            });
            return Err(Error::new(
                ErrorKind::State,
                format!("state belongs to another data set or pipeline: {difference}"),
            )
            .with_hint(
                "number of workers, ranks and the size of batch() may change; sources, order, transforms and the rules \
                 of buckets may not",
            ));
        }
        if self.world_size == 0 || self.batch_size == 0 {
            return Err(Error::config(format!(
                "state has batch_size {} and world_size {}; both must be at least 1",
                self.batch_size, self.world_size
            )));
        }
        let consumed = self.batch.checked_mul(self.batch_size).and_then(|n| n.checked_mul(self.world_size));
        let Some(consumed) = consumed.and_then(|n| n.checked_add(self.base)).filter(|n| *n < FARTHEST) else {
            return Err(Error::config(format!(
                "state is at batch {} of an epoch: that is too far",
                self.batch
            )));
        };
        let (base, batch) = self.carried(order, consumed)?;
        if order.is_cut() {
            // To count batches that are cut by length would take a walk through the epoch.
            return Ok((base, batch));
        }
        match order.len_from(self.epoch, base) {
            Some(len) if batch > len => {
                Err(Error::config(format!("state is at batch {batch} of an epoch that has {len} batches")))
            }
            _ => Ok((base, batch)),
        }
    }

    fn carried(&self, order: &Order, consumed: u64) -> Result<(u64, u64)> {
        let inner = self.inner == order.top.inner;
        if inner && self.world_size == order.world_size() && self.batch_size == order.unit_batch() {
            return Ok((self.base, self.batch));
        }
        if self.base == 0 && self.batch == 0 {
            // Nothing was consumed of this epoch.
            return Ok((0, 0));
        }
        if !inner {
            let (above, below) = order.top.obstacle.unwrap_or(("another verb", "shard"));
            return Err(Error::new(
                ErrorKind::State,
                format!(
                    "state was taken in the middle of an epoch with another number of ranks or batch size, and \
                     {above}() comes after {below}(): which samples are left cannot be said"
                ),
            )
            .with_hint(format!(
                "put {above}() before {below}(), take the state between epochs, or go on with as many ranks and \
                 batches of that size"
            )));
        }
        // The last batch may have been smaller, and shards filled up.
        Ok((order.entries[order.top.unit].len.map_or(consumed, |len| consumed.min(len)), 0))
    }
}
