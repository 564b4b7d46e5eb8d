//! [`Cut`]: how rows of a data set are put together of its chunks.

use wellfed::{Error, ErrorKind, Result};

use crate::{chunks::Chunks, dataset::Dataset};

/// Axes, those of elements that are arrays included.
const AXES: usize = 64;

/// Chunks that a row may lie in.
const MOST: u64 = 1 << 20;

/// The axes of rows, as chunks cut them.
#[derive(Debug)]
pub(crate) struct Cut {
    /// Rows of a chunk.
    pub(crate) rows: u64,
    /// Chunks side by side in which a row lies.
    pub(crate) parts: usize,
    /// Bytes of a chunk.
    pub(crate) bytes: usize,
    /// Bytes of a row of a chunk.
    row: usize,
    /// Sides of a row of the data set, of a row of a chunk, and chunks along each of them.
    shape: Vec<usize>,
    sides: Vec<usize>,
    grid: Vec<usize>,
    /// Bytes of an element.
    size: usize,
    /// Whether rows of chunks are rows of the data set.
    whole: bool,
}

impl Cut {
    /// # Errors
    /// [`ErrorKind::Unsupported`] for rows in too many chunks, or of too many axes.
    pub(crate) fn new(dataset: &Dataset, chunks: &Chunks) -> Result<Self> {
        let unsupported = |what: String| Error::new(ErrorKind::Unsupported, what);
        let all = |sides: &[u64]| -> Result<Vec<usize>> {
            let sides = sides[1..].iter().map(|side| usize::try_from(*side).ok());
            sides.collect::<Option<_>>().ok_or_else(|| unsupported("its sides are too large".to_owned()))
        };
        let (shape, sides, grid) = (all(&dataset.shape)?, all(&chunks.sides)?, all(&chunks.grid)?);
        if shape.len() > AXES {
            return Err(unsupported(format!("its rows have {} axes", shape.len())));
        }
        let parts = grid.iter().try_fold(1_u64, |all, side| all.checked_mul(*side as u64));
        let parts = parts.filter(|parts| *parts <= MOST);
        let parts =
            parts.ok_or_else(|| unsupported(format!("a row of it lies in more than {MOST} chunks")))?;
        let bytes =
            usize::try_from(chunks.bytes).map_err(|_| unsupported("its chunks are too large".to_owned()))?;
        Ok(Self {
            rows: chunks.sides[0],
            parts: parts as usize,
            bytes,
            // Sides are at least 1, and so divide.
            row: bytes / usize::try_from(chunks.sides[0]).unwrap_or(usize::MAX),
            whole: parts == 1 && shape == sides,
            shape,
            sides,
            grid,
            size: dataset.element.size(),
        })
    }

    /// Whether a row is one piece of one chunk.
    pub(crate) fn is_whole(&self) -> bool {
        self.whole
    }

    /// The bytes of rows of a chunk, from `row` on.
    pub(crate) fn rows_of<'a>(&self, chunk: &'a [u8], row: u64) -> &'a [u8] {
        let start = usize::try_from(row).ok().and_then(|row| row.checked_mul(self.row));
        start.and_then(|start| chunk.get(start..)).unwrap_or_default()
    }

    /// Puts row `row` of a block of chunks together in `into`, which has the bytes of one. `part` gives a chunk, or nothing for one
    /// that was not written: its elements are `fill`.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] if a chunk is too small.
    pub(crate) fn gather<'a>(
        &self,
        row: u64,
        part: impl Fn(usize) -> Option<&'a [u8]>,
        fill: &[u8],
        into: &mut [u8],
    ) -> Result<()> {
        for number in 0..self.parts {
            let Some(chunk) = part(number) else {
                if self.whole {
                    repeat(fill, into);
                } else {
                    self.runs(number, |at, _, len| into.get_mut(at..at + len).map(|run| repeat(fill, run)));
                }
                continue;
            };
            let chunk = self.rows_of(chunk, row);
            let copied = if self.whole {
                chunk.get(..into.len()).map(|found| into.copy_from_slice(found))
            } else {
                self.runs(number, |at, from, len| {
                    into.get_mut(at..at + len)?.copy_from_slice(chunk.get(from..from + len)?);
                    Some(())
                })
            };
            copied.ok_or_else(|| Error::new(ErrorKind::Internal, "a chunk has not all of its elements"))?;
        }
        Ok(())
    }

    /// Calls `run` with (place in the row, place in the chunk's row, bytes) for all that chunk `number` has of a row.
    fn runs(&self, number: usize, mut run: impl FnMut(usize, usize, usize) -> Option<()>) -> Option<()> {
        let Some(last) = self.shape.len().checked_sub(1) else { return run(0, 0, self.size) };
        let (mut origin, mut extent, mut at) = ([0; AXES], [0; AXES], [0; AXES]);
        let mut left = number;
        for axis in (0..=last).rev() {
            origin[axis] = left % self.grid[axis] * self.sides[axis];
            left /= self.grid[axis];
            // What of it lies beyond the edge is no part of the row.
            extent[axis] = self.sides[axis].min(self.shape[axis] - origin[axis]);
        }
        loop {
            let to = self.shape.iter().zip(&origin).zip(&at);
            let to = to.fold(0, |to, ((side, origin), at)| to * side + origin + at);
            let from = self.sides.iter().zip(&at).fold(0, |from, (side, at)| from * side + at);
            run(to * self.size, from * self.size, extent[last] * self.size)?;
            let mut axis = last;
            loop {
                if axis == 0 {
                    return Some(());
                }
                axis -= 1;
                at[axis] += 1;
                if at[axis] < extent[axis] {
                    break;
                }
                at[axis] = 0;
            }
        }
    }
}

/// Fills `into` with copies of `pattern`.
pub(crate) fn repeat(pattern: &[u8], into: &mut [u8]) {
    match pattern {
        [] => into.fill(0),
        [first, rest @ ..] if rest.iter().all(|byte| byte == first) => into.fill(*first),
        _ => into.chunks_mut(pattern.len()).for_each(|one| one.copy_from_slice(&pattern[..one.len()])),
    }
}
