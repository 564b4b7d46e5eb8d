//! [`Wants`]: groups whose bytes lie in a store that answers later, on their way to the thread of the I/O layer and back.

use std::{collections::HashSet, fmt, ops::Range, sync::Mutex};

use super::Key;
use crate::{
    Error, ErrorKind, Result,
    io::{Bytes, Extent},
    lock,
};

/// Longer extents are asked for in pieces of so many bytes: several requests bring them sooner than one, and what fails is
/// asked for again in part only.
const PIECE: u64 = 8 << 20;

/// A group whose bytes are to be got.
#[derive(Debug)]
pub(crate) struct Want {
    pub(crate) key: Key,
    /// The leaf whose source has it.
    pub(crate) leaf: usize,
    /// What is to be asked for.
    pub(crate) extents: Vec<Extent>,
}

/// What is to be asked for, what was asked for in vain, and the bell of whoever asks.
pub(super) struct Wants {
    queue: Mutex<(Vec<Want>, HashSet<Key>)>,
    ring: Box<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for Wants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wants({})", lock(&self.queue).0.len())
    }
}

impl Wants {
    pub(super) fn new(ring: impl Fn() + Send + Sync + 'static) -> Self {
        Self { queue: Mutex::default(), ring: Box::new(ring) }
    }

    pub(super) fn put(&self, want: Want) {
        lock(&self.queue).0.push(want);
        (self.ring)();
    }

    /// Nobody wants these groups any more.
    pub(super) fn forget(&self, keys: &[Key]) {
        if keys.is_empty() {
            return;
        }
        let mut queue = lock(&self.queue);
        queue.0.retain(|want| !keys.contains(&want.key));
        queue.1.extend(keys);
        drop(queue);
        (self.ring)();
    }

    /// What is new, after what was given up.
    pub(super) fn take(&self) -> (Vec<Want>, HashSet<Key>) {
        std::mem::take(&mut lock(&self.queue))
    }
}

/// The extents as they are asked for, none of them long.
pub(super) fn cut(extents: &[Extent]) -> Vec<Extent> {
    let mut cut = Vec::with_capacity(extents.len());
    for extent in extents {
        match &extent.range {
            Some(range) if range.end - range.start > PIECE => cut.extend(pieces(range).map(|range| Extent {
                path: extent.path.clone(),
                max_bytes: range.end - range.start,
                range: Some(range),
            })),
            _ => cut.push(extent.clone()),
        }
    }
    cut
}

fn pieces(range: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let (start, end) = (range.start, range.end);
    (0..(end - start).div_ceil(PIECE)).map(move |n| start + n * PIECE..(start + (n + 1) * PIECE).min(end))
}

/// The bytes of `extents`, put together of what was asked for.
///
/// # Errors
/// [`ErrorKind::Limit`] if there is no memory.
pub(super) fn join(extents: &[Extent], came: Vec<Bytes>) -> Result<Vec<Bytes>> {
    let mut came = came.into_iter();
    let missing = || Error::new(ErrorKind::Internal, "a piece of a group is missing");
    let mut joined = Vec::with_capacity(extents.len());
    for extent in extents {
        let count = extent.range.as_ref().map_or(1, |range| (range.end - range.start).div_ceil(PIECE).max(1));
        if count == 1 {
            joined.push(came.next().ok_or_else(missing)?);
            continue;
        }
        let mut all = Vec::new();
        let len = extent.range.as_ref().map_or(0, |range| range.end - range.start);
        let no_memory =
            |_| Error::new(ErrorKind::Limit, format!("no memory for {len} bytes of {}", extent.path));
        all.try_reserve_exact(usize::try_from(len).unwrap_or(usize::MAX)).map_err(no_memory)?;
        for _ in 0..count {
            all.extend_from_slice(&came.next().ok_or_else(missing)?);
        }
        joined.push(Bytes::from(all));
    }
    Ok(joined)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_extents_are_cut_and_put_together_again() {
        let lens = [0, 1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 2 * PIECE + 7];
        let extents: Vec<Extent> = lens.iter().map(|len| Extent::range("x", 5, *len)).collect();
        let asked = cut(&extents);
        assert!(asked.iter().all(|extent| extent.max_bytes <= PIECE));
        let bytes = |extent: &Extent| {
            Bytes::from(extent.range.clone().unwrap().map(|at| (at % 251) as u8).collect::<Vec<u8>>())
        };
        let joined = join(&extents, asked.iter().map(bytes).collect()).unwrap();
        for (extent, joined) in extents.iter().zip(&joined) {
            assert_eq!(**joined, *bytes(extent));
        }
        let came = asked.iter().skip(1).map(bytes).collect();
        assert_eq!(join(&extents, came).unwrap_err().kind(), ErrorKind::Internal);
        let whole = [Extent::whole("y", 10)];
        assert_eq!(cut(&whole), whole);
    }
}
