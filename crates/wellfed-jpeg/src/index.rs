//! [`RowIndex`]: where each row of MCUs begins in a file, so that later decodes start at the first row they need.

use crate::entropy::Predictors;

/// Where the rows of MCUs of one file begin, recorded while it was decoded.
///
/// Ten bytes a row of a colour image. It knows its file by length and checksum: with any other file a decoder
/// takes no notice of it.
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

    /// Rows of MCUs whose beginning is known: the first ones.
    pub fn rows(&self) -> usize {
        self.bits.len()
    }

    /// Notes the next row; false, and nothing noted, if its numbers are larger than this form holds.
    pub(crate) fn push(&mut self, bit: usize, predictors: &Predictors) -> bool {
        let Ok(bit) = u32::try_from(bit) else { return false };
        if predictors.iter().any(|&p| i16::try_from(p).is_err()) {
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

/// A checksum of a whole file, at several bytes a cycle.
fn checksum(bytes: &[u8]) -> u64 {
    rapidhash::v3::rapidhash_v3(bytes)
}
