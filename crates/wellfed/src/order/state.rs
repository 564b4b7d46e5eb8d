//! Where a loader stands: small, versioned, and independent of the number of ranks.

use serde::{Deserialize, Serialize};

use super::Order;
use crate::{Error, Result};

const VERSION: u32 = 1;

/// A position between two batches. O(1) in the data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Version of this format.
    pub version: u32,
    /// Epoch of the next batch.
    pub epoch: u64,
    /// Batches of that epoch already delivered to this rank since `base`.
    pub batch: u64,
    /// Samples of the epoch that all ranks together had consumed when the number of ranks last changed.
    pub base: u64,
    /// Ranks that share the epoch.
    pub world_size: u64,
    /// Samples in a full batch.
    pub batch_size: u64,
    /// Fingerprint of the plan without rank, world size and options.
    pub plan: u64,
}

impl State {
    pub(crate) fn new(order: &Order, plan: u64, epoch: u64, base: u64, batch: u64) -> Self {
        Self {
            version: VERSION,
            epoch,
            batch,
            base,
            world_size: order.world_size(),
            batch_size: order.batch_size,
            plan,
        }
    }

    /// Translates the position to `order`, which may have another number of ranks: (base, batch).
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] if the state belongs to another plan, or cannot be carried over.
    pub(crate) fn restore(&self, order: &Order, plan: u64) -> Result<(u64, u64)> {
        if self.version != VERSION {
            return Err(Error::config(format!(
                "state has version {}, this wellfed reads version {VERSION}",
                self.version
            )));
        }
        if self.plan != plan {
            return Err(Error::config(format!(
                "state belongs to another data set or pipeline (fingerprint {:016x}, this one has {plan:016x})",
                self.plan
            ))
            .with_hint("number of workers, batch size and ranks may change; source, order and transforms may not"));
        }
        let same = self.world_size == order.world_size() && self.batch_size == order.batch_size;
        let (base, batch) = if same {
            (self.base, self.batch)
        } else if order.elastic() {
            let consumed =
                self.batch.checked_mul(self.batch_size).and_then(|n| n.checked_mul(self.world_size));
            (consumed.and_then(|n| n.checked_add(self.base)).unwrap_or(u64::MAX), 0)
        } else {
            return Err(Error::config(format!(
                "state was taken with batch_size {} on {} ranks; this loader has batch_size {} on {} ranks, \
                 and the plan has take, skip or repeat after batch",
                self.batch_size,
                self.world_size,
                order.batch_size,
                order.world_size()
            )));
        };
        match order.len_from(base) {
            Some(len) if batch > len => {
                Err(Error::config(format!("state is at batch {batch} of an epoch that has {len} batches")))
            }
            _ => Ok((base, batch)),
        }
    }
}
