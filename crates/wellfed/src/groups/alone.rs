//! Groups without a loader: each thread keeps some for itself, so that no lock is taken which a fork could leave locked.

use std::{
    cell::RefCell,
    sync::{Arc, Weak},
};

use super::{Decode, Growth, Owner, Part};
use crate::Result;

/// Bytes that a thread keeps, or one group.
const KEPT: u64 = 256 << 20;

/// One group that a thread keeps by itself.
pub(super) struct Kept {
    id: u64,
    number: u64,
    alive: Weak<()>,
    parts: Arc<[Part]>,
    bytes: u64,
}

thread_local! {
    /// The group used last comes last.
    pub(super) static ALONE: RefCell<Vec<Kept>> = const { RefCell::new(Vec::new()) };
}

/// Group `number` of `owner`, which this thread has or decodes now.
///
/// # Errors
/// Those of `decode`.
pub(super) fn group(owner: &Owner, number: u64, decode: &dyn Decode) -> Result<Arc<[Part]>> {
    let found = ALONE.with_borrow_mut(|all| {
        all.retain(|kept| kept.alive.strong_count() > 0);
        let at = all.iter().position(|kept| kept.id == owner.id && kept.number == number)?;
        let kept = all.remove(at);
        let parts = kept.parts.clone();
        all.push(kept);
        Some(parts)
    });
    if let Some(parts) = found {
        return Ok(parts);
    }
    let wanted = decode.bytes();
    ALONE.with_borrow_mut(|all| make_room(all, wanted));
    let made = (0..decode.parts()).map(|part| decode.decode(part, None, &Growth::unbounded()));
    let (parts, sizes): (Vec<Part>, Vec<u64>) = made.collect::<Result<Vec<_>>>()?.into_iter().unzip();
    let (parts, bytes): (Arc<[Part]>, u64) = (parts.into(), sizes.iter().sum());
    ALONE.with_borrow_mut(|all| {
        make_room(all, bytes);
        let alive = Arc::downgrade(&owner.alive);
        all.push(Kept { id: owner.id, number, alive, parts: parts.clone(), bytes });
    });
    Ok(parts)
}

fn make_room(all: &mut Vec<Kept>, bytes: u64) {
    let mut sum = all.iter().map(|kept| kept.bytes).fold(bytes, u64::saturating_add);
    while sum > KEPT && !all.is_empty() {
        sum -= all.remove(0).bytes;
    }
}
