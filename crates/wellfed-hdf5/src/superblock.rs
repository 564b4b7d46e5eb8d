//! The superblock: section "II.A. Disk Format: Level 0A". Versions 0 to 3.

use wellfed::{Error, ErrorKind, Result};

use crate::{
    cursor::{Cursor, Sizes},
    pages::{Pages, check},
};

const SIGNATURE: &[u8; 8] = b"\x89HDF\r\n\x1a\n";

/// What is needed of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Superblock {
    pub(crate) sizes: Sizes,
    /// What addresses count from: where the superblock lies, whatever it says of that, as the library has it. So a file to which
    /// something was put in front stays the same.
    pub(crate) base: u64,
    /// Address of the object header of the root group.
    pub(crate) root: u64,
}

/// Finds and reads the superblock.
///
/// # Errors
/// [`ErrorKind::Corrupt`] for what is no HDF5 file, or damaged or cut; [`ErrorKind::Unsupported`] for files of several parts, and
/// those that are being written.
pub(crate) fn read(pages: &Pages<'_>) -> Result<Superblock> {
    let start = find(pages)?;
    // Those of version 1 with addresses of 8 bytes are the longest: 100 bytes.
    let bytes = pages.read(start, (pages.size() - start).min(160))?;
    let none = Sizes { offsets: 0, lengths: 0 };
    let mut cursor = Cursor::new(&bytes, none, "the superblock", start);
    cursor.skip(8)?;
    let version = cursor.u8()?;
    let sizes = |cursor: &mut Cursor<'_>| {
        let (offsets, lengths) = (usize::from(cursor.u8()?), usize::from(cursor.u8()?));
        let known = |size| matches!(size, 2 | 4 | 8);
        if !known(offsets) || !known(lengths) {
            return Err(cursor.damaged(&format!("addresses of {offsets} bytes, lengths of {lengths}")));
        }
        Ok(Sizes { offsets, lengths })
    };
    let (found, stated, end) = match version {
        0 | 1 => {
            cursor.skip(4)?;
            let sizes = sizes(&mut cursor)?;
            // Sizes of nodes, which nodes state themselves, and flags that are not used; then a size of version 1.
            cursor.skip(if version == 0 { 9 } else { 13 })?;
            let at = cursor.position();
            let mut cursor = Cursor::new(&bytes, sizes, "the superblock", start);
            cursor.skip(at)?;
            let base = cursor.defined()?;
            cursor.address()?;
            let end = cursor.defined()?;
            if cursor.address()?.is_some() {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    "it is one part of an HDF5 file that lies in several (a driver such as family or split)",
                )
                .with_hint("put it together with h5repart, or write it again as one file"));
            }
            cursor.skip(sizes.offsets)?;
            (Superblock { sizes, base: start, root: cursor.defined()? }, base, end)
        }
        2 | 3 => {
            let sizes = sizes(&mut cursor)?;
            let flags = cursor.u8()?;
            let at = cursor.position();
            let mut whole = bytes.get(..at + 4 * sizes.offsets + 4).unwrap_or_default().to_vec();
            check(&mut whole, "the superblock", start)?;
            let mut cursor = Cursor::new(&bytes, sizes, "the superblock", start);
            cursor.skip(at)?;
            let base = cursor.defined()?;
            cursor.address()?;
            let end = cursor.defined()?;
            if version == 3 && flags & 0b101 != 0 {
                let how = if flags & 0b100 == 0 { "" } else { " (SWMR)" };
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    format!("it is open for writing{how}, or its writer ended without closing it"),
                )
                .with_hint("close it first; `h5clear -s` takes the mark off a file whose writer is gone"));
            }
            (Superblock { sizes, base: start, root: cursor.defined()? }, base, end)
        }
        version => {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("it is an HDF5 file with a superblock of version {version}: known are 0 to 3"),
            ));
        }
    };
    // It counts from the base that the writer knew.
    let end = end.saturating_sub(stated).saturating_add(start);
    if end > pages.size() {
        return Err(Error::corrupt(format!(
            "it is an HDF5 file of {end} bytes that has only {}: it was cut",
            pages.size()
        )));
    }
    Ok(found)
}

/// It may lie behind what a user put in front of it: at 0, 512, 1024, and so on.
fn find(pages: &Pages<'_>) -> Result<u64> {
    let mut at = 0;
    while at + 8 <= pages.size() {
        if pages.read(at, 8)? == SIGNATURE {
            return Ok(at);
        }
        at = if at == 0 { 512 } else { at * 2 };
    }
    Err(Error::corrupt("it is no HDF5 file: it does not begin as those do"))
}
