//! [`Cursor`]: numbers out of bytes that may be damaged, never beyond their end. All numbers of the format are little-endian.

use wellfed::{Error, Result};

/// How many bytes addresses and lengths have in a file, as its superblock says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub(crate) offsets: usize,
    pub(crate) lengths: usize,
}

/// Reads numbers one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    sizes: Sizes,
    /// What is read, for messages.
    what: &'static str,
    /// Where it begins in the file.
    address: u64,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8], sizes: Sizes, what: &'static str, address: u64) -> Self {
        Self { bytes, at: 0, sizes, what, address }
    }

    /// The error that these bytes are damaged.
    pub(crate) fn damaged(&self, why: &str) -> Error {
        Error::corrupt(format!("{} is damaged: {why}", self.what)).with_offset(self.address)
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let end = self.at.checked_add(count);
        let found = end.and_then(|end| self.bytes.get(self.at..end));
        let found =
            found.ok_or_else(|| self.damaged(&format!("{} bytes are not all of it", self.bytes.len())))?;
        self.at += count;
        Ok(found)
    }

    pub(crate) fn skip(&mut self, count: usize) -> Result<()> {
        self.take(count).map(|_| ())
    }

    /// A number of so many bytes. Those above the eighth must be zero.
    pub(crate) fn uint(&mut self, size: usize) -> Result<u64> {
        let bytes = self.take(size)?;
        let (low, high) = bytes.split_at(size.min(8));
        if high.iter().any(|byte| *byte != 0) {
            return Err(self.damaged("a number does not fit 64 bits"));
        }
        let mut number = [0; 8];
        number[..low.len()].copy_from_slice(low);
        Ok(u64::from_le_bytes(number))
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        Ok(self.uint(1)? as u8)
    }

    pub(crate) fn u16(&mut self) -> Result<u16> {
        Ok(self.uint(2)? as u16)
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        Ok(self.uint(4)? as u32)
    }

    pub(crate) fn length(&mut self) -> Result<u64> {
        self.uint(self.sizes.lengths)
    }

    /// `None`: the undefined address, all of whose bits are set.
    pub(crate) fn address(&mut self) -> Result<Option<u64>> {
        let bytes = self.take(self.sizes.offsets)?;
        if bytes.iter().all(|byte| *byte == 0xFF) {
            return Ok(None);
        }
        self.at -= bytes.len();
        self.uint(bytes.len()).map(Some)
    }

    /// An address that must be there.
    pub(crate) fn defined(&mut self) -> Result<u64> {
        self.address()?.ok_or_else(|| self.damaged("an address in it is undefined"))
    }

    /// Four bytes that say what follows, and the version behind them.
    pub(crate) fn begins(&mut self, signature: &[u8; 4], version: u8) -> Result<()> {
        if self.take(4)? != signature {
            return Err(self.damaged("it does not begin as it should"));
        }
        let found = self.u8()?;
        if found != version {
            return Err(self.damaged(&format!("its version is {found}, not {version}")));
        }
        Ok(())
    }

    /// Bytes up to the next zero, which is read as well.
    pub(crate) fn text(&mut self) -> Result<&'a [u8]> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let end =
            rest.iter().position(|byte| *byte == 0).ok_or_else(|| self.damaged("a name in it has no end"))?;
        self.at += end + 1;
        Ok(&rest[..end])
    }

    pub(crate) fn position(&self) -> usize {
        self.at
    }

    pub(crate) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }
}

/// Bytes that it takes to write numbers up to `limit`.
pub(crate) fn bytes_of(limit: u64) -> usize {
    limit.checked_ilog2().unwrap_or(0) as usize / 8 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_read_beyond_the_end() {
        let sizes = Sizes { offsets: 4, lengths: 8 };
        let bytes = [1, 2, 0, 0xFF, 0xFF, 0xFF, 0xFF, b'a', 0, b'b'];
        let mut cursor = Cursor::new(&bytes, sizes, "a test", 7);
        assert_eq!((cursor.u8().unwrap(), cursor.u16().unwrap()), (1, 2));
        assert_eq!(cursor.address().unwrap(), None);
        assert_eq!(cursor.text().unwrap(), b"a");
        assert!(cursor.clone().text().is_err());
        assert_eq!(cursor.left(), 1);
        let e = cursor.length().unwrap_err();
        assert!(e.offset() == Some(7) && e.message().contains("a test"), "{e}");
        assert!(Cursor::new(&[0, 0, 0, 0, 0, 0, 0, 0, 1], sizes, "", 0).uint(9).is_err());
        let of: Vec<usize> = [0, 1, 255, 256, 65_535, 65_536].map(bytes_of).to_vec();
        assert_eq!(of, [1, 1, 1, 2, 2, 3]);
    }
}
