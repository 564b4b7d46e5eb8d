//! Fixed arrays: section "III.H … Fixed Array Index". Chunks of data sets that cannot grow, by their number.

use wellfed::Result;

use crate::{cursor::Cursor, file::File};

/// Elements by their number.
pub(crate) type Found = Vec<(u64, Vec<u8>)>;

const WHAT: &str = "an index (fixed array)";

/// All elements of the array whose header is at `address`, with the number of each; those of pages that were never written are
/// left out. Elements of `filtered` chunks have more than an address.
///
/// # Errors
/// [`wellfed::ErrorKind::Corrupt`] for damage.
pub(crate) fn elements(file: &File<'_>, address: u64, filtered: bool) -> Result<Found> {
    let sizes = file.sizes();
    let bytes = file.pages.checked(address, (12 + sizes.lengths + sizes.offsets) as u64, WHAT)?;
    let mut cursor = Cursor::new(&bytes, sizes, WHAT, address);
    cursor.begins(b"FAHD", 0)?;
    let client = cursor.u8()?;
    let size = u64::from(cursor.u8()?);
    let page_bits = cursor.u8()?;
    let count = cursor.length()?;
    let data = cursor.address()?;
    if client != u8::from(filtered) || size < sizes.offsets as u64 || page_bits > 32 {
        return Err(cursor.damaged(&format!("elements of {size} bytes, of kind {client}")));
    }
    let Some(data) = data.filter(|_| count > 0) else { return Ok(Vec::new()) };
    // More elements than the file has bytes are a lie.
    if count > file.pages.size() {
        return Err(cursor.damaged(&format!("it states {count} elements")));
    }
    let page = 1_u64 << page_bits;
    let head = 6 + sizes.offsets as u64;
    let begins = |bytes: &[u8]| {
        let mut cursor = Cursor::new(bytes, sizes, WHAT, data);
        cursor.begins(b"FADB", 0)?;
        if cursor.u8()? != client || cursor.address()? != Some(address) {
            return Err(cursor.damaged("its elements are another one's"));
        }
        Ok(cursor.position())
    };
    let mut found = Vec::new();
    let mut add = |first: u64, bytes: &[u8]| {
        found.extend((first..).zip(bytes.chunks_exact(size as usize).map(<[u8]>::to_vec)));
    };
    if count <= page {
        let bytes = file.pages.checked(data, head + count * size + 4, WHAT)?;
        add(0, &bytes[begins(&bytes)?..]);
        return Ok(found);
    }
    let pages = count.div_ceil(page);
    let start = file.pages.checked(data, head + pages.div_ceil(8) + 4, WHAT)?;
    let written = &start[begins(&start)?..];
    let first = data + head + pages.div_ceil(8) + 4;
    for number in 0..pages {
        // The highest bit of a byte comes first.
        if written[(number / 8) as usize] & 0x80 >> (number % 8) == 0 {
            continue;
        }
        let held = page.min(count - number * page);
        let at = first.saturating_add(number * (page * size + 4));
        add(number * page, &file.pages.checked(at, held * size + 4, WHAT)?);
    }
    Ok(found)
}
