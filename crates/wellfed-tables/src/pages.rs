//! Pages of a Parquet column chunk, checked before and while they are decoded: their checksums where they have some, and the
//! numbers in them by which the decoder allocates memory.
//!
//! Formats: <https://parquet.apache.org/docs/file-format/data-pages/>, headers in Thrift's compact protocol.

use ::parquet::{
    basic::{Encoding, Type},
    column::page::{Page, PageMetadata, PageReader},
    errors::{ParquetError, Result as ParquetResult},
};
use wellfed::{Error, Result};

/// Structs inside of structs that a header may have. Those that there are have two.
const MAX_DEPTH: usize = 16;

/// What the headers of a chunk say.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Walked {
    /// Values of all data pages, nulls included.
    pub(crate) values: u64,
    /// Bytes of the dictionary, decompressed.
    pub(crate) dictionary: u64,
    /// Pages whose checksum was compared.
    pub(crate) checked: u64,
}

/// Goes through the pages of a chunk, whose first byte is at `start` in its file, and compares checksums. `most` is what a
/// page may have when decompressed.
///
/// # Errors
/// [`wellfed::ErrorKind::Corrupt`], with the offset of the page.
pub(crate) fn walk(chunk: &[u8], start: u64, most: u64) -> Result<Walked> {
    let mut walked = Walked::default();
    let mut at = 0;
    while at < chunk.len() {
        let damaged = |what: String| Error::corrupt(what).with_offset(start + at as u64);
        let (header, length) = Header::read(&chunk[at..])
            .ok_or_else(|| damaged("the header of a page is damaged".to_owned()))?;
        let size = usize::try_from(header.compressed).ok();
        let end = size.and_then(|size| (at + length).checked_add(size)).filter(|end| *end <= chunk.len());
        let Some(end) = end else {
            let rest = chunk.len() - at - length;
            return Err(damaged(format!(
                "a page has {} bytes, and its column {rest} more",
                header.compressed
            )));
        };
        if header.uncompressed < 0 || header.uncompressed.unsigned_abs() > most {
            return Err(damaged(format!(
                "a page has {} bytes when decompressed, and its column {most}",
                header.uncompressed
            )));
        }
        let page = &chunk[at + length..end];
        if let Some(expected) = header.crc {
            let found = crc32fast::hash(page);
            if found != expected {
                return Err(damaged(format!("a page has checksum {found:08x}, not {expected:08x}")));
            }
            walked.checked += 1;
        }
        match header.kind {
            0 | 3 => walked.values += u64::try_from(header.values).unwrap_or(0),
            2 => walked.dictionary += header.uncompressed.unsigned_abs(),
            _ => {}
        }
        at = end;
    }
    Ok(walked)
}

/// What a page's header says, as far as it matters here.
#[derive(Debug, Default)]
struct Header {
    /// 0: data, 2: dictionary, 3: data, version 2.
    kind: i64,
    uncompressed: i64,
    compressed: i64,
    crc: Option<u32>,
    values: i64,
}

impl Header {
    /// The header at the start of `bytes`, and its length.
    fn read(bytes: &[u8]) -> Option<(Self, usize)> {
        let (mut this, mut thrift) = (Self::default(), Thrift { bytes, at: 0 });
        let (mut field, mut seen) = (0, 0_u32);
        while let Some(kind) = thrift.field(&mut field)? {
            match (field, kind) {
                (1, 5) => this.kind = thrift.zigzag()?,
                (2, 5) => this.uncompressed = thrift.zigzag()?,
                (3, 5) => this.compressed = thrift.zigzag()?,
                (4, 5) => this.crc = Some(thrift.zigzag()? as u32),
                (5 | 7 | 8, 12) => {
                    let mut inner = 0;
                    while let Some(kind) = thrift.field(&mut inner)? {
                        match (inner, kind) {
                            (1, 5) => this.values = thrift.zigzag()?,
                            _ => thrift.skip(kind, 1)?,
                        }
                    }
                }
                _ => thrift.skip(kind, 0)?,
            }
            seen |= 1_u32.checked_shl(u32::from(field.unsigned_abs())).unwrap_or(0);
        }
        // Kind and sizes are required.
        (seen & 0b1110 == 0b1110).then_some((this, thrift.at))
    }
}

/// Thrift's compact protocol.
struct Thrift<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Thrift<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn zigzag(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// Type of the next field, whose number becomes `field`; `Some(None)` at the end of a struct.
    fn field(&mut self, field: &mut i16) -> Option<Option<u8>> {
        let byte = self.byte()?;
        if byte == 0 {
            return Some(None);
        }
        *field = match byte >> 4 {
            0 => i16::try_from(self.zigzag()?).ok()?,
            delta => field.checked_add(i16::from(delta))?,
        };
        Some(Some(byte & 15))
    }

    fn skip(&mut self, kind: u8, depth: usize) -> Option<()> {
        if depth > MAX_DEPTH {
            return None;
        }
        match kind {
            // Booleans are in the type, but for those in lists.
            1 | 2 => {}
            3 => drop(self.byte()?),
            4..=6 => drop(self.varint()?),
            7 => self.at = self.at.checked_add(8)?,
            8 => {
                let length = usize::try_from(self.varint()?).ok()?;
                self.at = self.at.checked_add(length)?;
            }
            9 | 10 => {
                let head = self.byte()?;
                let count = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
                for _ in 0..count {
                    match head & 15 {
                        1 | 2 => drop(self.byte()?),
                        inner => self.skip(inner, depth + 1)?,
                    }
                }
            }
            12 => {
                let mut field = 0;
                while let Some(inner) = self.field(&mut field)? {
                    self.skip(inner, depth + 1)?;
                }
            }
            _ => return None,
        }
        (self.at <= self.bytes.len()).then_some(())
    }
}

/// Hands on the pages of another reader, if the decoder can take their numbers at their word.
pub(crate) struct Checked<P> {
    pub(crate) inner: P,
    pub(crate) physical: Type,
    /// Bytes of a value of fixed length.
    pub(crate) length: usize,
    /// Levels of repetition and definition at most.
    pub(crate) levels: (i16, i16),
}

impl<P: PageReader> Checked<P> {
    fn check(&self, page: &Page) -> ParquetResult<()> {
        let damaged = |what: &str| Err(ParquetError::General(what.to_owned()));
        match page {
            Page::DictionaryPage { buf, num_values, .. } => {
                let least = match self.physical {
                    Type::BYTE_ARRAY | Type::INT32 | Type::FLOAT => 4,
                    Type::INT64 | Type::DOUBLE => 8,
                    Type::INT96 => 12,
                    Type::FIXED_LEN_BYTE_ARRAY => self.length,
                    Type::BOOLEAN => return damaged("a dictionary of booleans"),
                };
                if (*num_values as usize).saturating_mul(least) > buf.len() {
                    return damaged("a dictionary has fewer bytes than its values take");
                }
                Ok(())
            }
            Page::DataPage { buf, num_values, encoding, def_level_encoding, rep_level_encoding, .. } => {
                if !is_delta(*encoding) {
                    return Ok(());
                }
                let mut values = &buf[..];
                for (most, encoding) in
                    [(self.levels.0, rep_level_encoding), (self.levels.1, def_level_encoding)]
                {
                    if most == 0 {
                        continue;
                    }
                    if *encoding != Encoding::RLE {
                        return damaged("levels beside delta-encoded values are not of the encoding RLE");
                    }
                    let Some((length, rest)) = values.split_first_chunk::<4>() else {
                        return damaged("a page ends within its levels");
                    };
                    let Some(rest) = rest.get(u32::from_le_bytes(*length) as usize..) else {
                        return damaged("a page ends within its levels");
                    };
                    values = rest;
                }
                check_delta(*encoding, values, u64::from(*num_values))
            }
            Page::DataPageV2 {
                buf, num_values, encoding, def_levels_byte_len, rep_levels_byte_len, ..
            } => {
                let levels = (*def_levels_byte_len as usize).saturating_add(*rep_levels_byte_len as usize);
                let Some(values) = buf.get(levels..) else { return damaged("a page ends within its levels") };
                if is_delta(*encoding) {
                    check_delta(*encoding, values, u64::from(*num_values))
                } else {
                    Ok(())
                }
            }
        }
    }
}

fn is_delta(encoding: Encoding) -> bool {
    matches!(
        encoding,
        Encoding::DELTA_BINARY_PACKED | Encoding::DELTA_LENGTH_BYTE_ARRAY | Encoding::DELTA_BYTE_ARRAY
    )
}

/// The decoder makes room for as many values as delta-encoded numbers say there are.
fn check_delta(encoding: Encoding, values: &[u8], most: u64) -> ParquetResult<()> {
    let checked = || -> Option<()> {
        let end = delta_end(values, most)?;
        if encoding == Encoding::DELTA_BYTE_ARRAY {
            // Lengths of prefixes, and then of suffixes.
            delta_end(values.get(end..)?, most)?;
        }
        Some(())
    };
    let damaged =
        || ParquetError::General("delta-encoded values have more values than their page".to_owned());
    checked().ok_or_else(damaged)
}

/// Where delta-encoded numbers end, of which there are at most `most`.
fn delta_end(bytes: &[u8], most: u64) -> Option<usize> {
    let mut thrift = Thrift { bytes, at: 0 };
    let (block, minis) = (thrift.varint()?, thrift.varint()?);
    let mut left = thrift.varint()?;
    thrift.zigzag()?;
    if left > most {
        return None;
    }
    left = left.saturating_sub(1);
    let each = block.checked_div(minis).filter(|each| *each > 0)?;
    while left > 0 {
        thrift.zigzag()?;
        let widths = bytes.get(thrift.at..thrift.at.checked_add(usize::try_from(minis).ok()?)?)?;
        thrift.at += widths.len();
        for width in widths {
            if left == 0 {
                break;
            }
            let length = each.checked_mul(u64::from(*width))?.div_ceil(8);
            // The last one may be cut short.
            thrift.at = thrift.at.saturating_add(usize::try_from(length).ok()?).min(bytes.len());
            left = left.saturating_sub(each);
        }
    }
    Some(thrift.at)
}

impl<P: PageReader> Iterator for Checked<P> {
    type Item = ParquetResult<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl<P: PageReader> PageReader for Checked<P> {
    fn get_next_page(&mut self) -> ParquetResult<Option<Page>> {
        let page = self.inner.get_next_page()?;
        if let Some(page) = &page {
            self.check(page)?;
        }
        Ok(page)
    }

    fn peek_next_page(&mut self) -> ParquetResult<Option<PageMetadata>> {
        self.inner.peek_next_page()
    }

    fn skip_next_page(&mut self) -> ParquetResult<()> {
        self.inner.skip_next_page()
    }

    fn at_record_boundary(&mut self) -> ParquetResult<bool> {
        self.inner.at_record_boundary()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header as writers make it: kind, sizes, checksum, and so many values.
    fn header(kind: u8, size: u8, crc: Option<u32>, values: u8) -> Vec<u8> {
        let zigzag = |value: u8| {
            let value = u64::from(value) << 1;
            assert!(value < 1 << 14);
            if value < 128 { vec![value as u8] } else { vec![value as u8 | 0x80, (value >> 7) as u8] }
        };
        let mut out = vec![0x15];
        out.extend(zigzag(kind));
        out.push(0x15);
        out.extend(zigzag(size));
        out.push(0x15);
        out.extend(zigzag(size));
        let mut delta = 2;
        if let Some(crc) = crc {
            let value = i64::from(crc as i32);
            let mut value = ((value << 1) ^ (value >> 63)) as u64 & 0xffff_ffff;
            out.push(0x15);
            loop {
                out.push((value & 0x7f) as u8 | if value > 0x7f { 0x80 } else { 0 });
                value >>= 7;
                if value == 0 {
                    break;
                }
            }
            delta = 1;
        }
        out.push(delta << 4 | 12);
        out.push(0x15);
        out.extend(zigzag(values));
        out.extend([0x15, 0, 0, 0]);
        out
    }

    #[test]
    fn pages_are_counted_and_checksums_compared() {
        let data = [7_u8; 40];
        let mut chunk = header(0, 40, Some(crc32fast::hash(&data)), 10);
        chunk.extend(data);
        let first = chunk.len();
        chunk.extend(header(0, 40, None, 5));
        chunk.extend(data);
        let walked = walk(&chunk, 1000, 100).unwrap();
        assert_eq!(walked, Walked { values: 15, dictionary: 0, checked: 1 });
        for at in first - 40..first {
            for bit in 0..8 {
                let mut bad = chunk.clone();
                bad[at] ^= 1 << bit;
                let e = walk(&bad, 1000, 100).unwrap_err();
                assert!(e.message().contains("checksum") && e.offset() == Some(1000), "{e}");
            }
        }
        assert!(walk(&chunk, 0, 39).unwrap_err().message().contains("39"));
        for cut in 1..chunk.len() {
            let whole = cut == first;
            assert_eq!(walk(&chunk[..cut], 0, 100).is_ok(), whole, "cut at {cut}");
        }
    }

    #[test]
    fn rubbish_is_no_header() {
        for seed in 0..2000_u32 {
            let rubbish: Vec<u8> = (0..64_u32)
                .map(|i| (seed.wrapping_mul(2_654_435_761).wrapping_add(i * 40_503) >> 7) as u8)
                .collect();
            let _ = walk(&rubbish, 0, 1 << 20);
        }
        let nested = [0x5c; 200];
        assert!(Header::read(&nested).is_none());
    }

    #[test]
    fn delta_encoded_numbers_end_where_their_blocks_do() {
        // Block of 128 in 4 parts, 3 values, first 1; then delta 1, widths 0.
        let bytes = [0x80, 1, 4, 3, 2, 2, 0, 0, 0, 0, 99];
        assert_eq!(delta_end(&bytes, 3), Some(10));
        assert_eq!(delta_end(&bytes, 2), None);
        assert_eq!(delta_end(&bytes[..7], 3), None);
        assert_eq!(delta_end(&[0x80, 1, 0, 3, 2], 3), None);
    }
}
