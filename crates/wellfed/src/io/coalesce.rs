//! Neighbouring byte ranges as one request.
//!
//! Invariant: every extent that goes in comes out in exactly one merged request, which covers it.

use std::{ops::Range, sync::Arc};

use super::{Extent, Located};

/// Ranges of one object are read together if no more than so many bytes between them are read in vain: a tar header
/// and the padding of small members, but not another sample.
pub(super) const GAP: u64 = 16 << 10;

/// Bytes of a merged request at most. Larger ones would arrive as one piece late.
pub(super) const MERGED: u64 = 8 << 20;

/// Who gets which part of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Taker {
    /// Whose extent it is.
    pub(super) want: u64,
    /// Which of its extents.
    pub(super) piece: usize,
    /// Its bytes in the answer. The end is not known before the answer, where an object is read as a whole.
    pub(super) part: Option<Range<usize>>,
}

/// One request, and who waits for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Merged {
    pub(super) store: usize,
    pub(super) path: Arc<str>,
    pub(super) range: Option<Range<u64>>,
    pub(super) max_bytes: u64,
    pub(super) takers: Vec<Taker>,
}

/// Merges `extents`, each given with its want and its number there. Requests come in the order of their first extent,
/// so that what is wanted first is asked for first.
pub(super) fn merge(extents: Vec<(u64, usize, Located)>) -> Vec<Merged> {
    let mut numbered: Vec<(usize, (u64, usize, Located))> = extents.into_iter().enumerate().collect();
    // By object and offset; whole objects (no range) come first.
    numbered.sort_by(|(_, (_, _, a)), (_, (_, _, b))| {
        let key = |e: &Extent| e.range.as_ref().map(|range| (range.start, range.end));
        let place = (a.store, &a.extent.path).cmp(&(b.store, &b.extent.path));
        place.then_with(|| key(&a.extent).cmp(&key(&b.extent)))
    });
    let mut merged: Vec<(usize, Merged)> = Vec::new();
    for (number, (want, piece, located)) in numbered {
        let same = |last: &Merged| last.store == located.store && last.path == located.extent.path;
        let last = merged.last_mut().filter(|(_, last)| same(last));
        let joined = last.and_then(|(first, last)| {
            join(last, &located.extent).map(|part| {
                *first = number.min(*first);
                last.takers.push(Taker { want, piece, part });
            })
        });
        if joined.is_none() {
            merged.push((number, alone(want, piece, located)));
        }
    }
    merged.sort_by_key(|(first, _)| *first);
    merged.into_iter().map(|(_, merged)| merged).collect()
}

/// A request for one extent.
pub(super) fn alone(want: u64, piece: usize, Located { store, extent, .. }: Located) -> Merged {
    let part = extent.range.as_ref().map(|range| 0..length(range));
    let takers = vec![Taker { want, piece, part }];
    Merged { store, path: extent.path, range: extent.range, max_bytes: extent.max_bytes, takers }
}

/// Widens `merged` by `extent` of the same object, if that is worth it. Gives the extent's place in it.
fn join(merged: &mut Merged, extent: &Extent) -> Option<Option<Range<usize>>> {
    let (Some(range), Some(wanted)) = (&mut merged.range, &extent.range) else {
        let same = merged.range.is_none() && extent.range.is_none();
        // The smaller limit is checked by whoever gives the bytes out.
        merged.max_bytes = merged.max_bytes.max(if same { extent.max_bytes } else { 0 });
        return same.then_some(None);
    };
    let end = range.end.max(wanted.end);
    // Sorted by start: `wanted` begins at or after the beginning of `range`.
    if wanted.start > range.end.saturating_add(GAP) || end - range.start > MERGED.max(range.end - range.start)
    {
        return None;
    }
    range.end = end;
    merged.max_bytes = end - range.start;
    let start = length(&(range.start..wanted.start));
    Some(Some(start..start + length(wanted)))
}

fn length(range: &Range<u64>) -> usize {
    usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::Need, *};

    fn extent(path: &str, offset: u64, len: u64) -> Located {
        Located { store: 0, extent: Extent::range(path, offset, len), need: Need::default() }
    }

    fn whole(path: &str, max_bytes: u64) -> Located {
        Located { store: 0, extent: Extent::whole(path, max_bytes), need: Need::default() }
    }

    #[test]
    fn neighbours_are_one_request_and_strangers_are_not() {
        let wanted = vec![
            (0, 0, extent("b", 500_000, 10)),
            (0, 1, extent("a", 2000, 100)),
            (1, 0, extent("a", 0, 512)),
            (1, 1, extent("a", 900_000, 5)),
            (2, 0, whole("a", 50)),
            (3, 0, whole("a", 70)),
            (4, 0, Located { store: 1, ..extent("a", 0, 512) }),
        ];
        let merged = merge(wanted);
        let seen: Vec<_> = merged.iter().map(|m| (&*m.path, m.range.clone(), m.takers.len())).collect();
        assert_eq!(
            seen,
            [
                ("b", Some(500_000..500_010), 1),
                ("a", Some(0..2100), 2),
                ("a", Some(900_000..900_005), 1),
                ("a", None, 2),
                ("a", Some(0..512), 1),
            ]
        );
        assert_eq!(merged[1].takers[1], Taker { want: 0, piece: 1, part: Some(2000..2100) });
        assert_eq!(merged[3].max_bytes, 70);
    }

    proptest! {
        #[test]
        fn every_extent_is_covered_once(ranges in prop::collection::vec((0..3_u8, 0..40_000_000_u64, 0..9_000_000_u64), 0..60)) {
            let wanted: Vec<_> = ranges
                .iter()
                .enumerate()
                .map(|(i, (path, start, len))| (i as u64, 0, extent(&path.to_string(), *start, *len)))
                .collect();
            let mut seen = vec![0; wanted.len()];
            for request in merge(wanted.clone()) {
                let range = request.range.clone().unwrap();
                prop_assert!(range.end - range.start <= MERGED || request.takers.iter().any(|t| t.part == Some(0..length(&range))));
                for taker in &request.takers {
                    seen[taker.want as usize] += 1;
                    let extent = &wanted[taker.want as usize].2.extent;
                    let part = taker.part.clone().unwrap();
                    prop_assert_eq!(&extent.path, &request.path);
                    let at = range.start + part.start as u64;
                    prop_assert_eq!(extent.range.clone().unwrap(), at..at + part.len() as u64);
                    prop_assert!(at + part.len() as u64 <= range.end);
                }
            }
            prop_assert!(seen.iter().all(|n| *n == 1));
        }
    }
}
