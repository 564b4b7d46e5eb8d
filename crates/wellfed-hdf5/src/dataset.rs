//! [`Dataset`]: what is needed to read the rows of a data set, out of the messages of its header: section "IV.A.2".

use wellfed::{Error, ErrorKind, Result};

use crate::{
    chunks::{self, Chunks},
    datatype::{self, Element},
    file::File,
    filters::{self, Filter},
    object_header::{Header, kind},
};

/// Where elements are.
#[derive(Debug)]
pub(crate) enum Storage {
    /// In the header.
    Compact(Vec<u8>),
    /// One after the other from here on in the file; `None`: none was written.
    Contiguous(Option<u64>),
    /// In chunks.
    Chunked(Chunks),
}

/// A data set with at least one axis.
#[derive(Debug)]
pub(crate) struct Dataset {
    pub(crate) element: Element,
    /// Rows first. Sides of elements that are arrays come last.
    pub(crate) shape: Vec<u64>,
    pub(crate) storage: Storage,
    /// In the order in which they were applied.
    pub(crate) filters: Vec<Filter>,
    /// What stands for elements that were not written: bytes that are repeated.
    pub(crate) fill: Vec<u8>,
    /// Bytes of a row.
    pub(crate) row: usize,
}

/// Axes: what the format allows.
const AXES: u8 = 32;

/// Sides of a data set, and how large they can become: `None` is without end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Space {
    pub(crate) shape: Vec<u64>,
    pub(crate) largest: Vec<Option<u64>>,
}

/// The sides of the data set of this header: section "IV.A.2.b". Of a single number there are none.
///
/// # Errors
/// [`ErrorKind::Corrupt`] for damage.
pub(crate) fn space(file: &File<'_>, header: &Header) -> Result<Space> {
    let message = header.get(file, kind::DATASPACE)?.ok_or_else(|| missing("shape"))?;
    let mut cursor = message.cursor(file.sizes(), "a shape");
    let version = cursor.u8()?;
    let (rank, flags) = (cursor.u8()?, cursor.u8()?);
    match version {
        1 => cursor.skip(5)?,
        2 => cursor.skip(1)?,
        _ => return Err(cursor.damaged(&format!("its version is {version}"))),
    }
    if rank > AXES {
        return Err(cursor.damaged(&format!("it has {rank} axes")));
    }
    let shape = (0..rank).map(|_| cursor.length()).collect::<Result<Vec<_>>>()?;
    let endless = u64::MAX >> (64 - 8 * file.sizes().lengths);
    let largest: Vec<Option<u64>> = if flags & 1 == 0 {
        shape.iter().copied().map(Some).collect()
    } else {
        (0..rank)
            .map(|_| cursor.length().map(|most| (most != endless).then_some(most)))
            .collect::<Result<_>>()?
    };
    if shape.iter().zip(&largest).any(|(have, most)| most.is_some_and(|most| *have > most)) {
        return Err(cursor.damaged(&format!("{shape:?} is larger than {largest:?}")));
    }
    Ok(Space { shape, largest })
}

fn missing(what: &str) -> Error {
    Error::corrupt(format!("a data set has no {what}"))
}

impl Dataset {
    /// Reads all that its header says, and where its chunks lie.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for types, filters and layouts that are not read; [`ErrorKind::Corrupt`] for damage.
    pub(crate) fn open(file: &File<'_>, header: &Header) -> Result<Self> {
        let Space { mut shape, largest } = space(file, header)?;
        if shape.is_empty() {
            return Err(Error::config("it is a single number, which has no rows"));
        }
        if header.has(kind::EXTERNAL_FILES) {
            return Err(unsupported("its elements lie in other files (external storage)"));
        }
        let message = header.get(file, kind::DATATYPE)?.ok_or_else(|| missing("type"))?;
        let (element, inner) = datatype::read(&mut message.cursor(file.sizes(), "a type"))?;
        let whole = inner.iter().try_fold(element.size() as u64, |all, side| all.checked_mul(*side));
        let whole = whole.filter(|whole| *whole > 0 && *whole <= u64::from(u32::MAX));
        let whole = whole.ok_or_else(|| Error::corrupt(format!("its elements are arrays of {inner:?}")))?;
        let all = shape.iter().try_fold(whole, |all, side| all.checked_mul(*side));
        let all = all.ok_or_else(|| {
            Error::corrupt(format!("its shape {shape:?} has more bytes than can be counted"))
        })?;
        let row = shape[1..].iter().try_fold(whole, |all, side| all.checked_mul(*side));
        let row = row.and_then(|row| usize::try_from(row).ok());
        let row =
            row.ok_or_else(|| Error::corrupt(format!("its rows of {:?} are too large", &shape[1..])))?;
        let filters = match header.get(file, kind::FILTERS)? {
            Some(message) => filters::read(message.cursor(file.sizes(), "filters"))?,
            None => Vec::new(),
        };
        let mut fill = fill_value(file, header, whole as usize)?;
        element.to_native(&mut fill);
        let storage = storage(file, header, &shape, &largest, (whole, all), !filters.is_empty())?;
        let storage = match storage {
            Storage::Chunked(mut chunks) => {
                chunks.grid.extend(inner.iter().map(|_| 1));
                chunks.sides.extend(&inner);
                Storage::Chunked(chunks)
            }
            other => other,
        };
        shape.extend(inner);
        Ok(Self { element, shape, storage, filters, fill, row })
    }

    pub(crate) fn rows(&self) -> u64 {
        self.shape[0]
    }
}

fn unsupported(what: &str) -> Error {
    Error::new(ErrorKind::Unsupported, what.to_owned()).with_hint("write it again with `h5repack` or h5py")
}

/// What stands for elements that were not written: sections "IV.A.2.e, f". Zeros, unless it is stated.
fn fill_value(file: &File<'_>, header: &Header, size: usize) -> Result<Vec<u8>> {
    let zeros = || vec![0; size];
    let (message, old) = match header.get(file, kind::FILL_VALUE)? {
        Some(message) => (message, false),
        None => match header.get(file, kind::FILL_VALUE_OLD)? {
            Some(message) => (message, true),
            None => return Ok(zeros()),
        },
    };
    let mut cursor = message.cursor(file.sizes(), "a fill value");
    if !old {
        let version = cursor.u8()?;
        let stated = match version {
            1 | 2 => {
                cursor.skip(2)?;
                cursor.u8()? != 0 || version == 1
            }
            3 => cursor.u8()? & 0x20 != 0,
            _ => return Err(cursor.damaged(&format!("its version is {version}"))),
        };
        if !stated {
            return Ok(zeros());
        }
    }
    let len = cursor.u32()?;
    // None at all is written as one of no bytes, or, long ago, of a negative number of them.
    if len == 0 || len > i32::MAX as u32 {
        return Ok(zeros());
    }
    if len as usize != size {
        return Err(cursor.damaged(&format!("it has {len} bytes, not {size}")));
    }
    Ok(cursor.take(size)?.to_vec())
}

/// Reads the layout: section "IV.A.2.i". `sizes` are the bytes of an element and of all of them.
fn storage(
    file: &File<'_>,
    header: &Header,
    shape: &[u64],
    largest: &[Option<u64>],
    sizes: (u64, u64),
    filtered: bool,
) -> Result<Storage> {
    let (element, all) = sizes;
    let message = header.get(file, kind::LAYOUT)?.ok_or_else(|| missing("layout"))?;
    let mut cursor = message.cursor(file.sizes(), "a layout");
    let version = cursor.u8()?;
    let layout = |kind, address, plain_edges, sides| chunks::Layout {
        kind,
        address,
        plain_edges,
        sides,
        shape,
        largest,
        element,
        filtered,
    };
    if !(3..=5).contains(&version) {
        let what = if version < 3 {
            "it was written before HDF5 1.6.3"
        } else {
            "its layout is newer than HDF5 2.0"
        };
        return Err(unsupported(&format!("{what} (version {version} of layouts)")));
    }
    match cursor.u8()? {
        0 => {
            let len = usize::from(cursor.u16()?);
            let bytes = cursor.take(len)?.to_vec();
            if len as u64 != all {
                return Err(cursor.damaged(&format!("{shape:?} has {all} bytes, but {len} are there")));
            }
            Ok(Storage::Compact(bytes))
        }
        1 => {
            let (address, len) = (cursor.address()?, cursor.length()?);
            let Some(address) = address else { return Ok(Storage::Contiguous(None)) };
            if len != all {
                return Err(cursor.damaged(&format!("{shape:?} has {all} bytes, but {len} are there")));
            }
            let offset = file.pages.absolute(address, len);
            let offset = offset.ok_or_else(|| {
                cursor.damaged(&format!("{len} bytes at {address} lie outside of the file"))
            })?;
            Ok(Storage::Contiguous(Some(offset)))
        }
        2 if version == 3 => {
            let rank = usize::from(cursor.u8()?);
            let address = cursor.address()?;
            let mut sides = (0..rank).map(|_| cursor.u32().map(u64::from)).collect::<Result<Vec<_>>>()?;
            // The last one is the size of an element.
            if sides.pop() != Some(element) {
                return Err(cursor.damaged("chunks of elements of another size"));
            }
            Chunks::read(file, layout(chunks::Kind::BTree1, address, false, sides)).map(Storage::Chunked)
        }
        2 => {
            let flags = cursor.u8()?;
            let rank = usize::from(cursor.u8()?);
            let len = usize::from(cursor.u8()?);
            if len == 0 || len > 8 {
                return Err(cursor.damaged(&format!("sides of {len} bytes")));
            }
            let mut sides = (0..rank).map(|_| cursor.uint(len)).collect::<Result<Vec<_>>>()?;
            if sides.pop() != Some(element) {
                return Err(cursor.damaged("chunks of elements of another size"));
            }
            let kind = chunks::kind(&mut cursor, flags)?;
            let address = cursor.address()?;
            Chunks::read(file, layout(kind, address, flags & 1 != 0, sides)).map(Storage::Chunked)
        }
        3 => Err(unsupported("it is a view of other data sets (a virtual data set)")),
        class => Err(unsupported(&format!("its layout is of an unknown class ({class})"))),
    }
}
