//! Fractal heaps: section "III.G". Names of large groups lie in them, as messages. Only managed objects of heaps without
//! filters are read, and tiny ones: names are never larger.

use wellfed::{Error, ErrorKind, Result};

use crate::{
    cursor::{Cursor, bytes_of},
    file::File,
};

/// What the header of a heap says.
#[derive(Debug)]
pub(crate) struct Heap<'f, 'a> {
    file: &'f File<'a>,
    address: u64,
    /// Bytes of an object's offset and length in its identifier.
    offset_len: usize,
    length_len: usize,
    checksums: bool,
    width: u64,
    start: u64,
    max_direct: u64,
    root: Option<u64>,
    /// Rows of the root block; 0 if it is a direct one.
    rows: u64,
}

impl<'f, 'a> Heap<'f, 'a> {
    /// Reads the header at `address`.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] for damage; [`ErrorKind::Unsupported`] for heaps with filters.
    pub(crate) fn open(file: &'f File<'a>, address: u64) -> Result<Self> {
        let sizes = file.sizes();
        let len = 26 + 3 * sizes.offsets + 12 * sizes.lengths;
        // The checksum comes last; those with filters have more, and are refused.
        let bytes = file.pages.read(address, len as u64)?;
        let mut cursor = Cursor::new(&bytes, sizes, "a heap", address);
        cursor.begins(b"FRHP", 0)?;
        cursor.skip(2)?;
        if cursor.u16()? != 0 {
            return Err(Error::new(ErrorKind::Unsupported, "the names of a group are compressed"));
        }
        let bytes = file.pages.checked(address, len as u64, "a heap")?;
        let mut cursor = Cursor::new(&bytes, sizes, "a heap", address);
        cursor.skip(9)?;
        let flags = cursor.u8()?;
        let max_managed = u64::from(cursor.u32()?);
        cursor.skip(10 * sizes.lengths + 2 * sizes.offsets)?;
        let width = u64::from(cursor.u16()?);
        let (start, max_direct) = (cursor.length()?, cursor.length()?);
        let bits = usize::from(cursor.u16()?);
        cursor.skip(2)?;
        let root = cursor.address()?;
        let rows = u64::from(cursor.u16()?);
        let sound = width.is_power_of_two() && start.is_power_of_two() && max_direct.is_power_of_two();
        if !sound
            || start > max_direct
            || bits > 64
            || bits == 0
            || rows > 64
            || width.checked_mul(start).is_none()
        {
            return Err(cursor.damaged("sizes of its blocks make no sense"));
        }
        let length_len = (max_direct.ilog2() as usize).div_ceil(8).min(bytes_of(max_managed)).max(1);
        Ok(Self {
            file,
            address,
            offset_len: bits.div_ceil(8),
            length_len,
            checksums: flags & 2 != 0,
            width,
            start,
            max_direct,
            root,
            rows,
        })
    }

    fn damaged(&self, why: &str) -> Error {
        Error::corrupt(format!("a heap is damaged: {why}")).with_offset(self.address)
    }

    /// The object with this identifier.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if there is none.
    pub(crate) fn get(&self, id: &[u8]) -> Result<Vec<u8>> {
        let mut cursor = Cursor::new(id, self.file.sizes(), "an identifier of a heap", self.address);
        let flags = cursor.u8()?;
        match flags >> 4 {
            0 => {
                let (offset, len) = (cursor.uint(self.offset_len)?, cursor.uint(self.length_len)?);
                self.managed(offset, len)
            }
            2 => {
                let len = usize::from(flags & 0xF) + 1;
                Ok(cursor.take(len)?.to_vec())
            }
            _ => Err(Error::new(
                ErrorKind::Unsupported,
                "a name of a group is kept in a form that is not known",
            )),
        }
    }

    fn managed(&self, offset: u64, len: u64) -> Result<Vec<u8>> {
        let (mut block, mut rows) = (self.root.ok_or_else(|| self.damaged("it is empty"))?, self.rows);
        let (mut begin, mut size) = (0, self.start);
        // Each turn goes one block further down, and those get smaller.
        for _ in 0..64 {
            if rows == 0 {
                return self.direct(block, begin, size, offset, len);
            }
            let within = offset - begin;
            let first = self.width * self.start;
            let row = match within / first {
                0 => 0,
                ratio => u64::from(ratio.ilog2()) + 1,
            };
            if row >= rows {
                return Err(self.damaged(&format!("there is nothing at {offset}")));
            }
            // Blocks of the first two rows are of one size, then of twice that of the row before.
            let scale = 1_u64 << row.saturating_sub(1).min(63);
            let row_begin = if row == 0 { 0 } else { first.saturating_mul(scale) };
            let row_size = self.start.checked_mul(scale).filter(|_| row_begin < u64::MAX);
            let row_size = row_size.ok_or_else(|| self.damaged(&format!("there is nothing at {offset}")))?;
            let column = (within - row_begin) / row_size;
            let direct_rows = u64::from(self.max_direct.ilog2() - self.start.ilog2()) + 2;
            let child = self.child(block, begin, rows, row * self.width + column)?;
            block = child.ok_or_else(|| self.damaged(&format!("there is nothing at {offset}")))?;
            begin += row_begin + column * row_size;
            size = row_size;
            rows = if row < direct_rows {
                0
            } else {
                u64::from((row_size / first).checked_ilog2().unwrap_or(0)) + 1
            };
        }
        Err(self.damaged("its blocks go round in circles"))
    }

    /// Child `number` of an indirect block.
    fn child(&self, block: u64, begin: u64, rows: u64, number: u64) -> Result<Option<u64>> {
        let sizes = self.file.sizes();
        let head = 5 + sizes.offsets + self.offset_len;
        let len = head as u64 + rows * self.width * sizes.offsets as u64 + 4;
        let bytes = self.file.pages.checked(block, len, "a block of a heap")?;
        let mut cursor = Cursor::new(&bytes, sizes, "a block of a heap", block);
        cursor.begins(b"FHIB", 0)?;
        if cursor.address()? != Some(self.address) || cursor.uint(self.offset_len)? != begin {
            return Err(cursor.damaged("it belongs elsewhere"));
        }
        cursor.skip(usize::try_from(number).unwrap_or(usize::MAX).saturating_mul(sizes.offsets))?;
        cursor.address()
    }

    fn direct(&self, block: u64, begin: u64, size: u64, offset: u64, len: u64) -> Result<Vec<u8>> {
        let sizes = self.file.sizes();
        let mut bytes = self.file.pages.read(block, size)?;
        let mut cursor = Cursor::new(&bytes, sizes, "a block of a heap", block);
        cursor.begins(b"FHDB", 0)?;
        if cursor.address()? != Some(self.address) || cursor.uint(self.offset_len)? != begin {
            return Err(cursor.damaged("it belongs elsewhere"));
        }
        if self.checksums {
            // It is counted with zeros where it stands itself.
            let at = cursor.position();
            let stated = cursor.u32()?;
            bytes[at..at + 4].fill(0);
            if crate::checksum::lookup3(&bytes) != stated {
                let why = "a block of it has another checksum";
                return Err(self.damaged(why));
            }
        }
        let from = usize::try_from(offset - begin).unwrap_or(usize::MAX);
        let end = usize::try_from(len).ok().and_then(|len| from.checked_add(len));
        let found = end.and_then(|end| bytes.get(from..end));
        found.map(<[u8]>::to_vec).ok_or_else(|| self.damaged(&format!("there is nothing at {offset}")))
    }
}
