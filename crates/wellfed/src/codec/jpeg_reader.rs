//! The bytes of a JPEG as zune-jpeg reads them: a rewritten header, then the scans where they lie in the file.
//!
//! zune-jpeg is generic over its input, and reading is its hottest path. This reader, in place of the crate's
//! own `ZCursor`, saves a copy of the file, a call of `memcpy` for every four bytes (3 % of a decode), and, for
//! files of one scan, the byte-wise search for the next marker after the last row that was wanted.

use memchr::memchr;
use zune_core::bytestream::{ZByteIoError, ZByteReaderTrait, ZSeekFrom};

/// Reads `head`, then `tail`.
#[derive(Debug)]
pub(crate) struct JpegReader<'a> {
    current: &'a [u8],
    at: usize,
    /// What follows `current`; `None` once it is current.
    tail: Option<&'a [u8]>,
    /// Length of what was current before.
    base: usize,
    /// `tail` is a single scan: single bytes are then read only to find the next marker.
    single_scan: bool,
}

impl<'a> JpegReader<'a> {
    pub(crate) fn new(head: &'a [u8], tail: &'a [u8], single_scan: bool) -> Self {
        Self { current: head, at: 0, tail: Some(tail), base: 0, single_scan }
    }

    /// Goes on with the tail if the head was read to its end exactly.
    #[cold]
    fn advance(&mut self) -> bool {
        if self.at != self.current.len() {
            return false;
        }
        let Some(tail) = self.tail.take() else { return false };
        (self.base, self.current, self.at) = (self.current.len(), tail, 0);
        true
    }

    /// Skips entropy-coded data up to the next marker, as `get_marker` of zune-jpeg would byte by byte.
    #[cold]
    fn skip_to_marker(&mut self) {
        if self.at.checked_sub(1).and_then(|last| self.current.get(last)) == Some(&0xFF) {
            return; // Inside a marker: the byte that follows its prefix is wanted.
        }
        while let Some(found) = self.current.get(self.at..).and_then(|rest| memchr(0xFF, rest)) {
            self.at += found;
            if self.current.get(self.at + 1) != Some(&0) {
                return;
            }
            self.at += 2;
        }
        self.at = self.current.len();
    }

    fn short(&self, wanted: usize) -> ZByteIoError {
        ZByteIoError::NotEnoughBytes(self.current.len().saturating_sub(self.at), wanted)
    }
}

impl ZByteReaderTrait for JpegReader<'_> {
    #[inline(always)]
    fn read_byte_no_error(&mut self) -> u8 {
        if let Some(&byte) = self.current.get(self.at) {
            self.at += 1;
            return byte;
        }
        self.advance();
        let byte = self.current.get(self.at).copied().unwrap_or(0);
        self.at += 1; // Beyond the end, too: `is_eof` then says so.
        byte
    }

    #[inline(always)]
    fn read_exact_bytes(&mut self, buf: &mut [u8]) -> Result<(), ZByteIoError> {
        if buf.len() == 1 && self.single_scan && self.tail.is_none() {
            self.skip_to_marker();
        }
        loop {
            // In bounds of `usize`: `at` is at most a little beyond a slice.
            if let Some(from) = self.current.get(self.at..self.at + buf.len()) {
                buf.copy_from_slice(from);
                self.at += buf.len();
                return Ok(());
            }
            if !self.advance() {
                return Err(self.short(buf.len()));
            }
        }
    }

    fn read_bytes(&mut self, buf: &mut [u8]) -> Result<usize, ZByteIoError> {
        let n = self.peek_bytes(buf)?;
        self.at += n;
        Ok(n)
    }

    fn peek_bytes(&mut self, buf: &mut [u8]) -> Result<usize, ZByteIoError> {
        self.advance();
        let rest = self.current.get(self.at..).unwrap_or_default();
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }

    fn peek_exact_bytes(&mut self, buf: &mut [u8]) -> Result<(), ZByteIoError> {
        let n = self.peek_bytes(buf)?;
        if n == buf.len() { Ok(()) } else { Err(self.short(buf.len())) }
    }

    #[inline(always)]
    fn z_seek(&mut self, from: ZSeekFrom) -> Result<u64, ZByteIoError> {
        // zune-jpeg seeks by a few bytes back, or by the length of a segment forward.
        let ZSeekFrom::Current(by) = from else {
            return Err(ZByteIoError::SeekError("only relative seeks"));
        };
        let to = self.at.checked_add_signed(by as isize);
        self.at = to.ok_or(ZByteIoError::SeekError("seek before the start"))?;
        self.z_position()
    }

    #[inline(always)]
    fn is_eof(&mut self) -> Result<bool, ZByteIoError> {
        Ok(self.at >= self.current.len() && self.tail.is_none_or(<[u8]>::is_empty))
    }

    fn z_position(&mut self) -> Result<u64, ZByteIoError> {
        Ok((self.base + self.at) as u64)
    }

    fn read_remaining(&mut self, sink: &mut Vec<u8>) -> Result<usize, ZByteIoError> {
        let before = sink.len();
        loop {
            sink.extend_from_slice(self.current.get(self.at..).unwrap_or_default());
            self.at = self.current.len();
            if !self.advance() {
                return Ok(sink.len() - before);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_and_tail_read_as_one() {
        let mut reader = JpegReader::new(&[1, 2, 3], &[4, 5, 6, 7, 8], false);
        let mut four = [0; 4];
        let mut read = |n: usize| reader.read_exact_bytes(&mut four[..n]).map(|()| four[..n].to_vec()).ok();
        assert_eq!(read(3), Some(vec![1, 2, 3]));
        assert_eq!(read(4), Some(vec![4, 5, 6, 7]));
        assert_eq!(read(4), None);
        assert!(!reader.is_eof().unwrap());
        assert_eq!(reader.z_seek(ZSeekFrom::Current(-2)).unwrap(), 5);
        assert_eq!((reader.read_byte_no_error(), reader.z_position().unwrap()), (6, 6));
        assert_eq!((reader.read_byte_no_error(), reader.read_byte_no_error()), (7, 8));
        assert!(reader.is_eof().unwrap());
        assert_eq!(reader.read_byte_no_error(), 0);
    }

    #[test]
    fn a_single_byte_in_a_single_scan_is_the_next_marker() {
        let mut reader = JpegReader::new(&[1], &[9, 9, 0xFF, 0, 9, 0xFF, 0xD9], true);
        let mut one = [0];
        reader.read_exact_bytes(&mut one).unwrap();
        assert_eq!(one, [1]);
        assert_eq!(reader.read_byte_no_error(), 9);
        reader.read_exact_bytes(&mut one).unwrap();
        assert_eq!((one, reader.z_position().unwrap()), ([0xFF], 7));
        reader.read_exact_bytes(&mut one).unwrap();
        assert_eq!(one, [0xD9]);
    }
}
