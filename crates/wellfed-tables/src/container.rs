//! [`Container`]: a file whose rows come in groups that are decoded at once, whatever its format is.

use std::{
    any::Any,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use arrow_schema::SchemaRef;
use bytes::Bytes;
use wellfed::{Error, ErrorKind, Result, groups::Growth, source::tables::Condition, store::Store};

use crate::{cells::Cells, kinds::Column};

/// One column of a group: cells of so many rows each, but for the last.
#[derive(Debug)]
pub(crate) struct Decoded {
    pub(crate) batch: usize,
    pub(crate) chunks: Vec<Cells>,
    /// Rows that cannot be had, in order, and why: of all columns that were decoded together, noted in the first one. A cell of
    /// each of them is null.
    pub(crate) bad: Vec<(u32, Error)>,
}

impl Decoded {
    /// The cells that hold `row`, and where in them.
    pub(crate) fn at(&self, row: usize) -> Option<(&Cells, usize)> {
        let cells = self.chunks.get(row / self.batch.max(1))?;
        Some((cells, row % self.batch.max(1)))
    }

    pub(crate) fn rows(&self) -> usize {
        self.chunks.iter().map(Cells::rows).sum()
    }

    pub(crate) fn bytes(&self) -> u64 {
        // What an error holds besides is its texts.
        let bad = self.bad.len() as u64 * 512;
        self.chunks.iter().map(|cells| cells.bytes() as u64).sum::<u64>() + bad
    }

    /// Why row `row` cannot be had, if that was noted here.
    pub(crate) fn error(&self, row: u64) -> Option<&Error> {
        let at = self.bad.binary_search_by_key(&row, |(bad, _)| u64::from(*bad)).ok()?;
        Some(&self.bad[at].1)
    }
}

/// A group of rows of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupInfo {
    pub(crate) rows: u64,
    /// Where it begins in the file.
    pub(crate) offset: u64,
}

/// An open file.
pub(crate) trait Container: Send + Sync + fmt::Debug {
    /// Its columns.
    fn schema(&self) -> &SchemaRef;

    /// Its groups, in order.
    fn groups(&self) -> &[GroupInfo];

    /// What is wrong with the end of the file, if rows after the last group may have been lost.
    fn damage(&self) -> Option<&Error> {
        None
    }

    /// Into how many parts a group of so many columns is decoded: one for each, or one for all.
    fn parts(&self, columns: usize) -> usize;

    /// Bytes that decoding these columns of a group takes, as far as that is known.
    fn bytes(&self, group: usize, columns: &[&Column]) -> u64;

    /// Offset and length of what [`Container::decode`] reads of the file for these columns of a group.
    fn ranges(&self, group: usize, columns: &[&Column]) -> Vec<(u64, u64)>;

    /// Decodes columns of a group, each with as many rows as the group has; and says how many bytes they hold.
    ///
    /// # Errors
    /// What is wrong with the group.
    fn decode(
        &self,
        input: Input<'_>,
        group: usize,
        columns: &[&Column],
        growth: &Growth<'_>,
    ) -> Result<(Vec<Decoded>, u64)>;

    /// True if what the file says of a group shows that this condition holds for none of its rows.
    fn excludes(&self, _group: usize, _column: &Column, _condition: &Condition) -> bool {
        false
    }
}

/// Runs a decoder of another library, for which damage may be a panic.
pub(crate) fn guarded<T>(what: &str, run: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let why = message(&*panic);
        Err(Error::corrupt(format!("{what} cannot be decoded: {why}")))
    })
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    text.unwrap_or("the decoder panicked").chars().take(200).collect()
}

/// Where the bytes of a group come from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Input<'a> {
    Store(&'a dyn Store),
    /// They are here: pieces of the file, with the offset of each.
    Pieces(&'a [(u64, wellfed::io::Bytes)]),
}

impl Input<'_> {
    /// `len` bytes of the file at `path` from `offset`. What is read is taken from `growth`; what is here was taken before.
    ///
    /// # Errors
    /// Those of the store, and of `growth`.
    pub(crate) fn read(self, path: &str, (offset, len): (u64, u64), growth: &Growth<'_>) -> Result<Bytes> {
        match self {
            Self::Store(store) => {
                growth.take(len)?;
                read(store, path, offset, len).map(Bytes::from)
            }
            Self::Pieces(pieces) => {
                let piece = pieces.iter().find(|(at, piece)| *at == offset && piece.len() as u64 == len);
                let missing =
                    || Error::new(ErrorKind::Internal, format!("byte {offset} of {path} was not read"));
                piece.map(|(_, piece)| Bytes::from_owner(piece.clone())).ok_or_else(missing)
            }
        }
    }

    /// Gives back `len` bytes that were read and are freed.
    pub(crate) fn give(self, len: u64, growth: &Growth<'_>) {
        if matches!(self, Self::Store(_)) {
            growth.give(len);
        }
    }
}

/// Reads `len` bytes, for which there must be memory.
pub(crate) fn read(store: &dyn Store, path: &str, offset: u64, len: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let len = room(len, path)?;
    store.read_range(path, offset, len, &mut bytes)?;
    Ok(bytes)
}

/// Refuses to allocate what the system has no memory for, which would end the process.
pub(crate) fn room(len: u64, path: &str) -> Result<usize> {
    let fits = usize::try_from(len).ok().filter(|len| Vec::<u8>::new().try_reserve_exact(*len).is_ok());
    fits.ok_or_else(|| Error::new(ErrorKind::Limit, format!("no memory for {len} bytes of {path}")))
}

/// A container, or what is wrong with a file of which nothing can be read.
pub(crate) type Opened = std::result::Result<Arc<dyn Container>, Error>;
