//! [`RowIndex`]: where each row of MCUs begins in a file, so that later decodes start at the first row they need.
//!
//! Its form as bytes, version 1 (numbers little-endian, checksums rapidhash v3):
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 4 | `WFRI` |
//! | 4 | 1 | version: 1 |
//! | 5 | 1 | components: 1 to 4 |
//! | 6 | 2 | rows |
//! | 8 | 8 | length of the file |
//! | 16 | 8 | checksum of the file |
//! | 24 | 2 to 12 each | rows: the bit of the file at which the row begins, then the DC predictor of each component, all as differences to the row before (to 0 for the first) |
//! | end | 8 | checksum of all bytes before |
//!
//! Differences are LEB128 (seven bits a byte, the lowest first); signed ones are folded first (0, -1, 1, -2, …).

use crate::entropy::Predictors;
use crate::{Error, Result};

const MAGIC: &[u8; 4] = b"WFRI";
const VERSION: u8 = 1;
const HEADER: usize = 24;
const TRAILER: usize = 8;

/// Bits of the longest row: what four bytes of seven bits hold. No 8-bit image has a row of 32 MiB.
const MAX_ROW_BITS: u32 = 1 << 28;

/// Predictors are below this in size: a DC coefficient of an 8-bit image has 11 bits and a sign (T.81 F.1.2.1),
/// and differences of 13 bits and a sign take two bytes.
const MAX_PREDICTOR: i32 = 1 << 12;

/// Where the rows of MCUs of one file begin, recorded while it was decoded.
///
/// About six bytes a row as [`RowIndex::to_bytes`], never more than twelve. It knows its file by length and
/// checksum: with any other file a decoder takes no notice of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowIndex {
    length: u64,
    checksum: u64,
    components: usize,
    /// For each row the bit of the file, and the predictors of its components.
    bits: Vec<u32>,
    predictors: Vec<i16>,
}

impl RowIndex {
    pub(crate) fn new(bytes: &[u8], components: usize) -> Self {
        RowIndex {
            length: bytes.len() as u64,
            checksum: checksum(bytes),
            components,
            bits: Vec::new(),
            predictors: Vec::new(),
        }
    }

    /// True if this was recorded from these bytes.
    pub fn matches(&self, bytes: &[u8]) -> bool {
        self.length == bytes.len() as u64 && self.checksum == checksum(bytes)
    }

    /// True if both belong to the same file and this one knows more rows.
    pub fn extends(&self, other: &RowIndex) -> bool {
        let same = (self.length, self.checksum) == (other.length, other.checksum);
        same && self.components == other.components && self.rows() > other.rows()
    }

    /// Rows of MCUs whose beginning is known: the first ones.
    pub fn rows(&self) -> usize {
        self.bits.len()
    }

    /// Notes the next row; false, and nothing noted, if its numbers are larger than this form holds.
    pub(crate) fn push(&mut self, bit: usize, predictors: &Predictors) -> bool {
        let Ok(bit) = u32::try_from(bit) else { return false };
        let last = self.bits.last().copied();
        let follows = match bit.checked_sub(last.unwrap_or(0)) {
            Some(0) => last.is_none(),
            Some(difference) => last.is_none() || difference < MAX_ROW_BITS,
            None => false,
        };
        let fits = predictors.iter().all(|&p| p.abs() < MAX_PREDICTOR);
        if !follows || !fits || self.bits.len() == usize::from(u16::MAX) {
            return false;
        }
        self.bits.push(bit);
        self.predictors.extend(predictors[..self.components].iter().map(|&p| p as i16));
        true
    }

    pub(crate) fn get(&self, row: usize) -> Option<(usize, Predictors)> {
        let bit = *self.bits.get(row)? as usize;
        let mut predictors = [0; 4];
        let stored = &self.predictors[row * self.components..][..self.components];
        for (to, from) in predictors.iter_mut().zip(stored) {
            *to = i32::from(*from);
        }
        Some((bit, predictors))
    }

    pub(crate) fn components(&self) -> usize {
        self.components
    }

    /// Bytes in memory.
    pub fn size(&self) -> usize {
        size_of::<Self>() + 4 * self.bits.len() + 2 * self.predictors.len()
    }
}

impl RowIndex {
    /// The versioned form for keeping it: 32 bytes, and about six for each row.
    ///
    /// ```
    /// # let bytes = include_bytes!("../tests/images/grey.jpg");
    /// use wellfed_jpeg::{Decoder, Options, RowIndex};
    ///
    /// let mut decoder = Decoder::new();
    /// decoder.decode(bytes, &Options { record: true, ..Options::default() })?;
    /// let index = decoder.take_index().expect("a sequential file");
    /// let kept = index.to_bytes();
    /// let index = RowIndex::from_bytes(&kept)?;
    /// assert!(index.matches(bytes));
    /// decoder.decode(bytes, &Options { index: Some(&index), ..Options::default() })?;
    /// # Ok::<(), wellfed_jpeg::Error>(())
    /// ```
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER + TRAILER + self.bits.len() * (4 + 2 * self.components));
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&[VERSION, self.components as u8]);
        out.extend_from_slice(&(self.bits.len() as u16).to_le_bytes());
        out.extend_from_slice(&self.length.to_le_bytes());
        out.extend_from_slice(&self.checksum.to_le_bytes());
        let (mut bit, mut before) = (0, [0; 4]);
        for (row, predictors) in self.bits.iter().zip(self.predictors.chunks_exact(self.components)) {
            put(&mut out, row - bit);
            bit = *row;
            for (before, &now) in before.iter_mut().zip(predictors) {
                put(&mut out, fold(i32::from(now) - *before));
                *before = i32::from(now);
            }
        }
        let sum = checksum(&out);
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }

    /// Reads what [`RowIndex::to_bytes`] wrote.
    ///
    /// # Errors
    /// `Corrupt` for anything else: another version, damage, numbers that no file has. Never allocates more than
    /// a few times what is there.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        Self::parse(bytes).ok_or_else(|| Error::corrupt("row index is damaged, or of another version"))
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (body, sum) = bytes.split_at_checked(bytes.len().checked_sub(TRAILER)?)?;
        let (header, mut rest) = body.split_at_checked(HEADER)?;
        let number = |at: usize| Some(u64::from_le_bytes(header.get(at..at + 8)?.try_into().ok()?));
        let components = usize::from(header[5]);
        let rows = usize::from(u16::from_le_bytes([header[6], header[7]]));
        let sound = header.starts_with(MAGIC)
            && header[4] == VERSION
            && (1..=4).contains(&components)
            && rest.len() >= rows * (1 + components)
            && sum == checksum(body).to_le_bytes();
        if !sound {
            return None;
        }
        let (length, file) = (number(8)?, number(16)?);
        let mut this = RowIndex {
            length,
            checksum: file,
            components,
            bits: Vec::with_capacity(rows),
            predictors: Vec::with_capacity(rows * components),
        };
        let (mut bit, mut predictors) = (0usize, [0; 4]);
        for _ in 0..rows {
            bit = bit.checked_add(take(&mut rest)? as usize)?;
            for predictor in &mut predictors[..components] {
                *predictor = unfold(take(&mut rest)?).checked_add(*predictor)?;
            }
            if bit as u64 / 8 >= length || !this.push(bit, &predictors) {
                return None;
            }
        }
        rest.is_empty().then_some(this)
    }
}

/// A checksum of a whole file, at several bytes a cycle.
fn checksum(bytes: &[u8]) -> u64 {
    rapidhash::v3::rapidhash_v3(bytes)
}

/// Small numbers of either sign as small numbers.
fn fold(value: i32) -> u32 {
    ((value << 1) ^ (value >> 31)) as u32
}

fn unfold(value: u32) -> i32 {
    (value >> 1) as i32 ^ -((value & 1) as i32)
}

fn put(out: &mut Vec<u8>, mut value: u32) {
    while value > 0x7F {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The next number, of 28 bits at most but for the first one of a file, which may have 32.
fn take(from: &mut &[u8]) -> Option<u32> {
    let mut value = 0u64;
    for shift in (0..35).step_by(7) {
        let (&byte, rest) = from.split_first()?;
        *from = rest;
        value |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return u32::try_from(value).ok();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FILE: &[u8] = &[7; 70_000];

    /// Indexes of `FILE`, as decoding it might make them.
    fn indexes() -> impl Strategy<Value = RowIndex> {
        let rows = prop::collection::vec((1usize..3000, prop::array::uniform4(-4095i32..4096)), 0..180);
        (1usize..5, rows).prop_map(|(components, rows)| {
            let mut index = RowIndex::new(FILE, components);
            let mut bit = 600;
            for (bits, mut predictors) in rows {
                bit += bits;
                predictors[components..].fill(0);
                assert!(index.push(bit, &predictors));
            }
            index
        })
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_and_is_small(index in indexes()) {
            let bytes = index.to_bytes();
            prop_assert!(bytes.len() <= 32 + 12 * index.rows());
            prop_assert_eq!(RowIndex::from_bytes(&bytes).unwrap(), index);
        }

        #[test]
        fn every_change_of_a_byte_is_noticed(index in indexes(), at: prop::sample::Index, bit in 0..8u32) {
            let mut bytes = index.to_bytes();
            let at = at.index(bytes.len());
            bytes[at] ^= 1u8 << bit;
            prop_assert!(RowIndex::from_bytes(&bytes).is_err());
            prop_assert!(RowIndex::from_bytes(&bytes[..at]).is_err());
        }

        /// Where the checksum was made to fit, what is read is none, or at least something a file may have.
        #[test]
        fn lies_do_no_harm(index in indexes(), at: prop::sample::Index, with: u8, cut in 0usize..3) {
            let mut bytes = index.to_bytes();
            bytes.truncate(bytes.len() - TRAILER);
            let at = at.index(bytes.len());
            bytes[at] = with;
            bytes.truncate(bytes.len().saturating_sub(cut));
            let sum = checksum(&bytes);
            bytes.extend_from_slice(&sum.to_le_bytes());
            if let Ok(read) = RowIndex::from_bytes(&bytes) {
                prop_assert!(read.bits.is_sorted_by(|a, b| a < b));
                prop_assert!(read.bits.iter().all(|bit| u64::from(*bit) / 8 < read.length));
                prop_assert_eq!(read.predictors.len(), read.rows() * read.components);
            }
        }

        #[test]
        fn anything_can_be_read(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            prop_assert!(RowIndex::from_bytes(&bytes).is_err());
        }
    }

    #[test]
    fn numbers_that_no_photograph_has_end_an_index() {
        let mut index = RowIndex::new(FILE, 3);
        assert!(index.push(5000, &[1, 2, 3, 0]));
        assert!(!index.push(5000, &[1, 2, 3, 0]));
        assert!(!index.push(4000, &[1, 2, 3, 0]));
        assert!(!index.push(5001, &[5000, 2, 3, 0]));
        assert!(!index.push(5000 + (1 << 28), &[1, 2, 3, 0]));
        assert!(!index.push(1 << 40, &[1, 2, 3, 0]));
        assert!(index.push(5001, &[-4095, 4095, 3, 0]));
        assert_eq!(RowIndex::from_bytes(&index.to_bytes()).unwrap(), index);
    }

    #[test]
    fn another_file_does_not_match() {
        let index = RowIndex::new(FILE, 3);
        let mut other = FILE.to_vec();
        assert!(index.matches(&other));
        other[69_999] ^= 1;
        assert!(!index.matches(&other) && !index.matches(&FILE[1..]));
    }
}
