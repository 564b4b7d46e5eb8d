//! Rows of numbers and texts from decoded groups into the columns of a batch: a column after the other, and in each a loop that only
//! loads and stores, so that many rows which are not in the processor's cache are on their way at a time.

use wellfed::source::Gather;

use crate::{cells::Cells, container::Decoded};

/// A row that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Picked {
    /// The number of its group among those of the source.
    pub(crate) group: u32,
    /// Its number in that group.
    pub(crate) row: u32,
    /// Its row in the columns of the batch.
    pub(crate) place: usize,
}

/// Copies `rows` of one group, of which `column` gives the columns; notes in `into` which were copied. Rows in which something
/// is null or finds no room, and all rows if some column has values that are neither of one size nor texts, are left.
pub(crate) fn gather<'a>(
    rows: &[Picked],
    column: impl Fn(usize) -> Option<&'a Decoded>,
    most: u64,
    into: &mut Gather<'_>,
) {
    let Some(last) = rows.iter().map(|picked| picked.row).max() else { return };
    let sizes: Vec<usize> = (0..into.columns.len()).map(|field| into.size(field)).collect();
    let mut columns = Vec::with_capacity(sizes.len());
    for (field, size) in sizes.iter().enumerate() {
        let plain = |decoded: &&Decoded| {
            let all = |cells: &Cells| cells.plain(*size).is_some();
            // Without a size it is text, if those are asked for.
            (*size == 0 && into.lists.is_some())
                || (*size > 0 && *size as u64 <= most && decoded.chunks.iter().all(all))
        };
        let Some(decoded) = column(field).filter(plain) else { return };
        if last as usize >= decoded.rows() {
            return;
        }
        columns.push(decoded);
    }
    let whole: Vec<Picked>;
    let rows = if columns.iter().any(|decoded| decoded.chunks.iter().any(Cells::has_nulls)) {
        let null = |decoded: &&Decoded, row: u32| {
            decoded.at(row as usize).is_none_or(|(cells, at)| cells.is_null(at))
        };
        let is_whole = |picked: &&Picked| !columns.iter().any(|decoded| null(decoded, picked.row));
        whole = rows.iter().filter(is_whole).copied().collect();
        &whole
    } else {
        rows
    };
    let follow = |pair: &[Picked]| pair[0].row + 1 == pair[1].row && pair[0].place + 1 == pair[1].place;
    let together = rows.windows(2).all(follow);
    let mut lost = Vec::new();
    for (field, ((decoded, size), to)) in columns.into_iter().zip(&sizes).zip(&mut into.columns).enumerate() {
        match (together, *size) {
            (_, 0) => {
                for Picked { row, place, .. } in rows {
                    let bytes = decoded.at(*row as usize).and_then(|(cells, at)| cells.slice(at).ok());
                    let bytes = bytes.filter(|bytes| bytes.len() as u64 <= most).zip(into.lists);
                    if !bytes.is_some_and(|(bytes, lists)| lists.set(field, *place, bytes)) {
                        lost.push(*place);
                    }
                }
            }
            (true, _) => neighbours(decoded, rows, *size, to),
            (_, 1) => each::<1>(decoded, rows, to),
            (_, 2) => each::<2>(decoded, rows, to),
            (_, 4) => each::<4>(decoded, rows, to),
            (_, 8) => each::<8>(decoded, rows, to),
            (_, 12) => each::<12>(decoded, rows, to),
            (_, 16) => each::<16>(decoded, rows, to),
            (_, size) => others(decoded, rows, size, to),
        }
    }
    rows.iter().for_each(|picked| into.copied[picked.place] = true);
    lost.iter().for_each(|place| into.copied[*place] = false);
}

/// Rows that follow each other, both in the group and in the batch.
fn neighbours(decoded: &Decoded, rows: &[Picked], size: usize, to: &mut [u8]) {
    let Some(first) = rows.first() else { return };
    let (mut row, end) = (first.row as usize, first.row as usize + rows.len());
    let mut place = first.place;
    while row < end {
        let Some((cells, at)) = decoded.at(row) else { return };
        let count = (cells.rows() - at).min(end - row);
        let from = cells.plain(size).and_then(|all| all.get(at * size..(at + count) * size));
        let into = to.get_mut(place * size..(place + count) * size);
        // `gather` has checked that all rows are there.
        let (Some(from), Some(into), true) = (from, into, count > 0) else { return };
        into.copy_from_slice(from);
        (row, place) = (row + count, place + count);
    }
}

/// Rows of `N` bytes.
fn each<const N: usize>(decoded: &Decoded, rows: &[Picked], to: &mut [u8]) {
    let (to, _) = to.as_chunks_mut::<N>();
    if let [cells] = &decoded.chunks[..] {
        let from = plain::<N>(cells);
        for Picked { row, place, .. } in rows {
            to[*place] = from[*row as usize];
        }
        return;
    }
    let chunks: Vec<&[[u8; N]]> = decoded.chunks.iter().map(plain::<N>).collect();
    // Rows of a group are counted in 32 bits.
    let batch = u32::try_from(decoded.batch).unwrap_or(u32::MAX).max(1);
    for Picked { row, place, .. } in rows {
        to[*place] = chunks[(row / batch) as usize][(row % batch) as usize];
    }
}

/// The values of some rows of `N` bytes each.
fn plain<const N: usize>(cells: &Cells) -> &[[u8; N]] {
    cells.plain(N).map_or(&[], |bytes| bytes.as_chunks::<N>().0)
}

/// Rows of any number of bytes.
fn others(decoded: &Decoded, rows: &[Picked], size: usize, to: &mut [u8]) {
    for Picked { row, place, .. } in rows {
        let from = decoded.at(*row as usize).and_then(|(cells, at)| cells.slice(at).ok());
        if let (Some(from), Some(to)) = (from, to.get_mut(place * size..(place + 1) * size)) {
            to.copy_from_slice(from);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, FixedSizeBinaryArray, Int16Array, UInt8Array};

    use super::*;

    /// Chunks of three rows, the last one of two. Row 6 of the second column is null if it is asked for.
    fn columns(null: bool) -> [Decoded; 3] {
        let made = |array: ArrayRef| {
            let chunks = [(0, 3), (3, 3), (6, 2)].map(|(at, n)| Cells::of(&array.slice(at, n)).unwrap());
            Decoded { batch: 3, chunks: chunks.into(), bad: Vec::new() }
        };
        let bytes: Vec<u8> = (0..40).collect();
        let rows = bytes.chunks_exact(5);
        [
            made(Arc::new(UInt8Array::from_iter_values(0..8))),
            made(Arc::new((0..8).map(|i| (!null || i != 6).then_some(i * 100)).collect::<Int16Array>())),
            made(Arc::new(FixedSizeBinaryArray::try_from_iter(rows).unwrap())),
        ]
    }

    fn gathered(columns: &[Decoded; 3], rows: &[u32], sizes: [usize; 3], most: u64) -> Vec<Option<u32>> {
        let count = rows.len() + 1;
        let mut made: Vec<Vec<u8>> = sizes.iter().map(|size| vec![0xEE; size * count]).collect();
        let mut copied = vec![false; count];
        let picked: Vec<Picked> =
            rows.iter().zip(1..).map(|(row, place)| Picked { group: 0, row: *row, place }).collect();
        let mut into = Gather {
            columns: made.iter_mut().map(Vec::as_mut_slice).collect(),
            copied: &mut copied,
            lists: None,
        };
        gather(&picked, |field| columns.get(field), most, &mut into);
        let found = |place: usize| {
            if !copied[place] {
                return None;
            }
            let row = made[0][place];
            assert_eq!(made[1][place * 2..place * 2 + 2], (i16::from(row) * 100).to_ne_bytes());
            let bytes: Vec<u8> = (row * 5..row * 5 + 5).collect();
            assert_eq!(made[2][place * 5..place * 5 + 5], bytes);
            Some(u32::from(row))
        };
        assert!(made.iter().zip(sizes).all(|(column, size)| column[..size].iter().all(|b| *b == 0xEE)));
        (1..count).map(found).collect()
    }

    #[test]
    fn rows_come_in_any_order_and_over_chunks() {
        for rows in [&[0, 1, 2, 3, 4, 5, 6, 7][..], &[2, 3], &[7, 0, 3, 3, 5], &[4], &[6, 7]] {
            let expected: Vec<_> = rows.iter().copied().map(Some).collect();
            assert_eq!(gathered(&columns(false), rows, [1, 2, 5], 100), expected, "{rows:?}");
        }
    }

    #[test]
    fn what_is_null_or_does_not_fit_is_left() {
        let null = columns(true);
        assert_eq!(gathered(&null, &[7, 6, 0], [1, 2, 5], 100), [Some(7), None, Some(0)]);
        assert_eq!(gathered(&null, &[4, 5, 6, 7], [1, 2, 5], 100), [Some(4), Some(5), None, Some(7)]);
        let all = columns(false);
        assert_eq!(gathered(&all, &[0, 8], [1, 2, 5], 100), [None, None], "there is no row 8");
        assert_eq!(gathered(&all, &[0], [1, 4, 5], 100), [None], "of another size");
        assert_eq!(gathered(&all, &[0], [1, 2, 5], 4), [None], "larger than is allowed");
    }
}
