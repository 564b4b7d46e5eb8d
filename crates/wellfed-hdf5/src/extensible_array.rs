//! Extensible arrays: section "III.I … Extensible Array Index". Chunks of data sets that can grow along one axis, by their number.
//!
//! The first elements are in the index block; the others in data blocks, which belong to "super blocks" of growing size. Large
//! data blocks are written in pages, of which some may never have been.

use wellfed::Result;

use crate::{cursor::Cursor, file::File, fixed_array::Found};

const WHAT: &str = "an index (extensible array)";

/// What the header says.
struct Array<'f, 'a> {
    file: &'f File<'a>,
    address: u64,
    client: u8,
    /// Bytes of an element.
    size: u64,
    /// Bytes of a block's offset.
    offset_len: usize,
    /// Elements of the smallest data block, and of a page.
    least: u64,
    page: u64,
    /// Elements there are.
    count: u64,
    found: Found,
}

/// As of [`crate::fixed_array::elements`].
pub(crate) fn elements(file: &File<'_>, address: u64, filtered: bool) -> Result<Found> {
    let sizes = file.sizes();
    let bytes = file.pages.checked(address, (16 + 6 * sizes.lengths + sizes.offsets) as u64, WHAT)?;
    let mut cursor = Cursor::new(&bytes, sizes, WHAT, address);
    cursor.begins(b"EAHD", 0)?;
    let client = cursor.u8()?;
    let size = u64::from(cursor.u8()?);
    let bits = u32::from(cursor.u8()?);
    let in_index = u64::from(cursor.u8()?);
    let least = u64::from(cursor.u8()?);
    let pointers = u64::from(cursor.u8()?);
    let page_bits = u32::from(cursor.u8()?);
    // Super blocks and data blocks there are, and their bytes.
    cursor.skip(4 * sizes.lengths)?;
    let count = cursor.length()?;
    cursor.length()?;
    let index = cursor.address()?;
    let sound = least.is_power_of_two() && pointers.is_power_of_two() && bits <= 64 && page_bits <= 32;
    if client != u8::from(filtered) || size < sizes.offsets as u64 || !sound || bits < least.ilog2() {
        return Err(cursor.damaged(&format!("elements of {size} bytes, of kind {client}")));
    }
    let Some(index) = index else { return Ok(Vec::new()) };
    let page = 1_u64 << page_bits;
    let offset_len = bits.div_ceil(8) as usize;
    let mut this = Array { file, address, client, size, offset_len, least, page, count, found: Vec::new() };

    let supers = 1 + u64::from(bits - least.ilog2());
    // Those whose data blocks the index block names itself.
    let direct = (2 * u64::from(pointers.ilog2())).min(supers);
    let (data_blocks, super_blocks) = (2 * (pointers - 1), supers - direct);
    let len =
        6 + sizes.offsets as u64 + in_index * size + (data_blocks + super_blocks) * sizes.offsets as u64 + 4;
    let bytes = file.pages.checked(index, len, WHAT)?;
    let mut cursor = Cursor::new(&bytes, sizes, WHAT, index);
    this.begins(&mut cursor, b"EAIB", None)?;
    this.add(0, cursor.take((in_index * size) as usize)?);
    let mut first = in_index;
    for number in 0..direct {
        let blocks = 1_u64 << (number / 2).min(62);
        for _ in 0..blocks {
            let held = this.held(number);
            if let Some(block) = cursor.address()? {
                this.block(block, first, held, None)?;
            }
            first = first.saturating_add(held);
        }
    }
    for number in direct..supers {
        let blocks = 1_u64 << (number / 2).min(62);
        let all = blocks.saturating_mul(this.held(number));
        if let Some(block) = cursor.address()? {
            this.super_block(block, number, first, in_index)?;
        }
        first = first.saturating_add(all);
    }
    Ok(this.found)
}

impl Array<'_, '_> {
    /// Elements of a data block of super block `number`.
    fn held(&self, number: u64) -> u64 {
        self.least.saturating_mul(1 << number.div_ceil(2).min(62))
    }

    /// Reads the start of a block, which says whose it is and which of its elements come first.
    fn begins(&self, cursor: &mut Cursor<'_>, signature: &[u8; 4], offset: Option<u64>) -> Result<()> {
        cursor.begins(signature, 0)?;
        if cursor.u8()? != self.client || cursor.address()? != Some(self.address) {
            return Err(cursor.damaged("a block of it is another one's"));
        }
        if let Some(offset) = offset
            && cursor.uint(self.offset_len)? != offset
        {
            return Err(cursor.damaged("a block of it belongs elsewhere"));
        }
        Ok(())
    }

    fn add(&mut self, first: u64, bytes: &[u8]) {
        let all = (first..self.count).zip(bytes.chunks_exact(self.size as usize).map(<[u8]>::to_vec));
        self.found.extend(all);
    }

    fn super_block(&mut self, address: u64, number: u64, first: u64, in_index: u64) -> Result<()> {
        let sizes = self.file.sizes();
        let (blocks, held) = (1_u64 << (number / 2).min(62), self.held(number));
        // Bits for the pages of each data block, a whole number of bytes a block.
        let pages = if held > self.page { held / self.page } else { 0 };
        let head = 6 + (sizes.offsets + self.offset_len) as u64;
        let len = pages
            .div_ceil(8)
            .checked_add(sizes.offsets as u64)
            .and_then(|each| each.checked_mul(blocks))
            .and_then(|all| all.checked_add(head + 4));
        let bytes = self.file.pages.checked(address, len.unwrap_or(u64::MAX), WHAT)?;
        let mut cursor = Cursor::new(&bytes, sizes, WHAT, address);
        self.begins(&mut cursor, b"EASB", Some(first - in_index))?;
        let bits = cursor.take((blocks * pages.div_ceil(8)) as usize)?;
        let mut first = first;
        for block in 0..blocks {
            let at = cursor.address()?;
            if let Some(at) = at {
                // The highest bit of a byte comes first; bits of blocks follow each other without a gap.
                let written = |page: u64| {
                    let bit = block * pages + page;
                    bits.get((bit / 8) as usize).is_some_and(|byte| byte & 0x80 >> (bit % 8) != 0)
                };
                let paged = (pages > 0).then_some(&written as &dyn Fn(u64) -> bool);
                self.block(at, first, held, paged)?;
            }
            first = first.saturating_add(held);
        }
        Ok(())
    }

    /// A data block of `held` elements: in pages of which `written` says whether they were, or whole.
    fn block(
        &mut self,
        address: u64,
        first: u64,
        held: u64,
        written: Option<&dyn Fn(u64) -> bool>,
    ) -> Result<()> {
        let sizes = self.file.sizes();
        let head = 6 + (sizes.offsets + self.offset_len) as u64;
        let len = match written {
            Some(_) => head + 4,
            None => held.checked_mul(self.size).and_then(|all| all.checked_add(head + 4)).unwrap_or(u64::MAX),
        };
        let bytes = self.file.pages.checked(address, len, WHAT)?;
        let mut cursor = Cursor::new(&bytes, sizes, WHAT, address);
        self.begins(&mut cursor, b"EADB", None)?;
        // Where its elements begin: for blocks that the index block names, the library counts blocks of smaller ones, too.
        cursor.skip(self.offset_len)?;
        let Some(written) = written else {
            self.add(first, &bytes[cursor.position()..]);
            return Ok(());
        };
        let page_len = self.page * self.size + 4;
        for page in 0..held / self.page {
            let begin = first + page * self.page;
            if begin >= self.count {
                break;
            }
            if written(page) {
                let at = address.saturating_add(head + 4).saturating_add(page.saturating_mul(page_len));
                let bytes = self.file.pages.checked(at, page_len, WHAT)?;
                self.add(begin, &bytes);
            }
        }
        Ok(())
    }
}
