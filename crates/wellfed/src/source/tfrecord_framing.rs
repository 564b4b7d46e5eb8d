//! How records lie in a TFRecord file: a length and its checksum, the bytes and theirs.
//!
//! ```text
//! length u64   masked CRC-32C of the 8 bytes of the length u32   the bytes   masked CRC-32C of them u32
//! ```
//!
//! All numbers are little-endian. Format:
//! <https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details>. The file has no head, no end and no count:
//! one that is cut exactly between two records cannot be told from a whole one.

use crate::{Error, Result};

/// Bytes before a record: its length and the checksum of that.
pub(super) const HEADER: u64 = 12;
/// Bytes after a record: its checksum.
pub(super) const FOOTER: u64 = 4;
/// Bytes of a record that is empty.
pub(super) const FRAME: u64 = HEADER + FOOTER;

/// CRC-32C as it stands in files: rotated and shifted, so that a checksum of data that hold checksums is none of them.
pub(super) fn masked_crc(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// `record` as it lies in a file.
pub(crate) fn record_frame(record: &[u8]) -> Vec<u8> {
    let length = (record.len() as u64).to_le_bytes();
    let mut frame = Vec::with_capacity(record.len() + FRAME as usize);
    frame.extend_from_slice(&length);
    frame.extend_from_slice(&masked_crc(&length).to_le_bytes());
    frame.extend_from_slice(record);
    frame.extend_from_slice(&masked_crc(record).to_le_bytes());
    frame
}

/// The length that a header states, if its checksum fits.
pub(super) fn length(header: [u8; 12]) -> std::result::Result<u64, Mismatch> {
    let (length, crc) = header.split_at(8);
    let (stored, computed) = (le_u32(crc), masked_crc(length));
    if stored != computed {
        return Err(Mismatch { stored, computed });
    }
    Ok(length.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// A checksum that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mismatch {
    pub(super) stored: u32,
    pub(super) computed: u32,
}

/// The record in `framed`, which is followed by its checksum.
pub(super) fn checked(framed: &[u8]) -> Result<&[u8]> {
    let Some((record, crc)) = framed.split_last_chunk::<4>() else {
        return Err(Error::corrupt(format!("{} bytes are too few for a checksum", framed.len())));
    };
    let (stored, computed) = (u32::from_le_bytes(*crc), masked_crc(record));
    if stored != computed {
        return Err(Error::corrupt(format!(
            "the checksum of the record's {} bytes is {computed:08x}, but {stored:08x} is stored",
            record.len()
        ))
        .with_hint("the record was changed after it was written: copy the file anew"));
    }
    Ok(record)
}

fn le_u32(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// `records` as they lie in a file.
    pub(crate) fn framed<'a>(records: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
        records.into_iter().flat_map(record_frame).collect()
    }

    #[test]
    fn the_checksum_is_tensorflows() {
        // CRC-32C's check value, and the length that every event file of TensorBoard begins with.
        assert_eq!(crc_fast::crc32_iscsi(b"123456789"), 0xe306_9283);
        let head = [24, 0, 0, 0, 0, 0, 0, 0, 0xa3, 0x7f, 0x4b, 0x22];
        assert_eq!(length(head), Ok(24));
        let file = framed([&b"abc"[..]]);
        assert_eq!((file.len(), length(*file.first_chunk().unwrap())), (19, Ok(3)));
        assert_eq!(checked(&file[12..]).unwrap(), b"abc");
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let file = framed([&b"some record"[..]]);
        for bit in 0..file.len() * 8 {
            let mut bad = file.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(
                length(*bad.first_chunk().unwrap()).is_err() || checked(&bad[12..]).is_err(),
                "bit {bit}"
            );
        }
        for short in 0..4 {
            assert!(checked(&file[..short]).is_err());
        }
    }
}
