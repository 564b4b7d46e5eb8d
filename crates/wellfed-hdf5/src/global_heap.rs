//! The global heap: section "III.E". Elements of variable length lie there, and a data set only says in which collection.
//!
//! A collection is read as far as it takes to find an object: of small ones at once, else from head to head.

use wellfed::{Error, Result, store::Store};

use crate::cursor::{Cursor, Sizes};

/// Bytes of a collection that are read first: the smallest ones have as many.
const FIRST: u64 = 4096;

const WHAT: &str = "a collection of elements of variable length";

/// A file, while rows are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heaps<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) path: &'a str,
    pub(crate) size: u64,
    pub(crate) base: u64,
    pub(crate) sizes: Sizes,
}

/// Where an element lies in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

/// What a data set has of an element: how many values, and which object of which collection has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    pub(crate) count: u64,
    /// `None`: there are none.
    pub(crate) object: Option<(u64, u32)>,
}

/// Reads an element as a data set has it.
///
/// # Errors
/// [`wellfed::ErrorKind::Corrupt`] for one of another size.
pub(crate) fn reference(bytes: &[u8], sizes: Sizes) -> Result<Reference> {
    let mut cursor = Cursor::new(bytes, sizes, "an element of variable length", 0);
    let (count, address, index) = (u64::from(cursor.u32()?), cursor.address()?, cursor.u32()?);
    let object = address.filter(|address| count > 0 && *address > 0).map(|address| (address, index));
    if count > 0 && object.is_none() {
        return Err(cursor.damaged("it has values that lie nowhere"));
    }
    Ok(Reference { count, object })
}

impl Heaps<'_> {
    /// Finds object `index` of the collection at `address`.
    ///
    /// # Errors
    /// [`wellfed::ErrorKind::Corrupt`] if there is none; those of the store.
    pub(crate) fn find(&self, address: u64, index: u32) -> Result<Object> {
        let damaged = |why: &str| Error::corrupt(format!("{WHAT} is damaged: {why}")).with_offset(address);
        let start = address.checked_add(self.base).filter(|start| *start < self.size);
        let start = start.ok_or_else(|| damaged("it lies outside of the file"))?;
        let mut first = Vec::new();
        self.store.read_range(self.path, start, (self.size - start).min(FIRST) as usize, &mut first)?;
        let mut cursor = Cursor::new(&first, self.sizes, WHAT, address);
        cursor.begins(b"GCOL", 1)?;
        cursor.skip(3)?;
        let size = cursor.length()?;
        let end = start.checked_add(size).filter(|end| *end <= self.size);
        let end = end.ok_or_else(|| damaged("it reaches beyond the end of the file"))?;
        let head = 8 + self.sizes.lengths as u64;
        let mut at = start + head;
        // Each turn goes on by at least a head, and each object has a number of its own.
        for _ in 0..=u16::MAX {
            if at + head > end {
                break;
            }
            let within = (at - start) as usize;
            let mut read = Vec::new();
            let bytes = match first.get(within..within + head as usize) {
                Some(bytes) => bytes,
                None => {
                    self.store.read_range(self.path, at, head as usize, &mut read)?;
                    &read
                }
            };
            let mut cursor = Cursor::new(bytes, self.sizes, WHAT, address);
            let number = u32::from(cursor.u16()?);
            cursor.skip(6)?;
            let len = cursor.length()?;
            let data = at + head;
            let after = len.checked_next_multiple_of(8).and_then(|len| data.checked_add(len));
            // Number 0 is what is free, up to the end.
            if number == 0 {
                break;
            }
            if data.checked_add(len).is_none_or(|last| last > end) {
                return Err(damaged(&format!("object {number} of it has {len} bytes")));
            }
            if number == index {
                return Ok(Object { offset: data, len });
            }
            at = after.ok_or_else(|| damaged("it has no end"))?;
        }
        Err(damaged(&format!("it has no object {index}")))
    }
}
