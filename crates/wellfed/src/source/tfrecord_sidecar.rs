//! The index of a TFRecord file as a file beside it, so that opening a large data set reads no lengths.
//!
//! It is trusted no more than the data: a version, size and time of change of the data, and a checksum must fit, and every
//! offset is checked. Whatever does not fit means that the index is built anew.
//!
//! An upload gives a file another time. In a store that answers later, where building an index means to download the file, an index
//! that fits but for the time is taken, too: its records fill the file exactly, and each is checked by its CRC when it is read.
//!
//! ```text
//! "wellfed-tfr\n"  version u32  file size u64  file time i128  records u64  CRC-32C of what follows u32
//! lengths of the records, each a varint (7 bits a byte, the lowest first)      all numbers little-endian
//! ```

use super::{tfrecord_framing::FRAME, tfrecord_index::RecordIndex};
use crate::{
    Error, ErrorKind,
    store::{Stat, Store},
};

const MAGIC: &[u8; 12] = b"wellfed-tfr\n";
const VERSION: u32 = 1;
const HEADER: usize = 12 + 4 + 8 + 16 + 8 + 4;

/// Where the index of `file` is kept.
pub(super) fn path_of(file: &str) -> String {
    format!("{file}.wfidx")
}

/// An index that was kept.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) index: RecordIndex,
    /// It is of a copy of the file, as far as is known.
    pub(super) copied: bool,
}

/// The kept index of `file`, if there is one and it fits.
pub(super) fn load(store: &dyn Store, file: &str, stat: &Stat) -> Option<Kept> {
    // No index is larger than what it is of: a length takes less than the 16 bytes around its record, and its record.
    let most = stat.size.saturating_add(HEADER as u64);
    let mut kept = Vec::new();
    store.read(&path_of(file), most, &mut kept).ok()?;
    decode(&kept, stat).filter(|kept| !kept.copied || store.remote().is_some())
}

/// What is wrong with a record whose place is known of an index of a copy.
pub(super) fn of_copy(file: &str, error: &Error) -> Error {
    Error::new(ErrorKind::Changed, format!("{} does not fit: {}", path_of(file), error.message()))
        .with_offset(error.offset().unwrap_or(0))
        .with_hint("the file is damaged, or the index is not of this file: remove it, and index=\"sidecar\" makes it anew")
}

/// Keeps the index of `file`. A folder that cannot be written is no error: the next run builds the index again.
pub(super) fn save(store: &dyn Store, file: &str, stat: &Stat, index: &RecordIndex) {
    // A damaged file may still be being written.
    if index.damage.is_none() && index.end == stat.size {
        let _ = store.write(&path_of(file), &encode(stat, index));
    }
}

fn encode(stat: &Stat, index: &RecordIndex) -> Vec<u8> {
    let mut lengths = Vec::new();
    for number in 0..index.len() {
        let mut length = index.record(number).map_or(0, |(_, length)| length);
        while length >= 0x80 {
            lengths.push(length as u8 | 0x80);
            length >>= 7;
        }
        lengths.push(length as u8);
    }
    let mut file = Vec::with_capacity(HEADER + lengths.len());
    file.extend_from_slice(MAGIC);
    file.extend_from_slice(&VERSION.to_le_bytes());
    file.extend_from_slice(&stat.size.to_le_bytes());
    file.extend_from_slice(&stat.modified.to_le_bytes());
    file.extend_from_slice(&(index.len() as u64).to_le_bytes());
    file.extend_from_slice(&crc_fast::crc32_iscsi(&lengths).to_le_bytes());
    file.extend_from_slice(&lengths);
    file
}

fn decode(kept: &[u8], stat: &Stat) -> Option<Kept> {
    let (header, lengths) = kept.split_at_checked(HEADER)?;
    let part = |from: usize, len: usize| header.get(from..from + len);
    let fits = part(0, 12)? == MAGIC
        && part(12, 4)? == VERSION.to_le_bytes()
        && part(16, 8)? == stat.size.to_le_bytes()
        && part(48, 4)? == crc_fast::crc32_iscsi(lengths).to_le_bytes();
    let count = u64::from_le_bytes(part(40, 8)?.try_into().ok()?);
    // A length is at least one byte.
    if !fits || count > lengths.len() as u64 {
        return None;
    }
    let mut starts = Vec::with_capacity(usize::try_from(count).ok()?);
    let (mut end, mut length, mut shift) = (0_u64, 0_u64, 0);
    for byte in lengths {
        length |= u64::from(byte & 0x7f).checked_shl(shift).filter(|_| shift < 63)?;
        shift += 7;
        if byte & 0x80 == 0 {
            starts.push(end);
            end = end.checked_add(length)?.checked_add(FRAME)?;
            (length, shift) = (0, 0);
        }
    }
    let copied = part(24, 16)? != stat.modified.to_le_bytes();
    let index = RecordIndex { starts, end, damage: None };
    (shift == 0 && index.starts.len() as u64 == count && end == stat.size).then_some(Kept { index, copied })
}

#[cfg(test)]
mod tests {
    use super::{super::tfrecord_framing::tests::framed, *};
    use crate::{store::LocalStore, testing::TempFolder};

    #[test]
    fn a_kept_index_is_used_until_it_no_longer_fits() {
        let folder = TempFolder::new();
        let store = LocalStore::new();
        let records = [vec![1; 300], vec![], vec![2; 127], vec![3; 128], vec![4; 20_000]];
        let path = folder.write("x.tfrecord", &framed(records.iter().map(Vec::as_slice)));
        let stat = store.stat(&path).unwrap();
        assert!(load(&store, &path, &stat).is_none());
        let index = RecordIndex::scan(&store, &path).unwrap();
        save(&store, &path, &stat, &index);
        assert_eq!(load(&store, &path, &stat).unwrap(), Kept { index, copied: false });
        for other in [Stat { size: stat.size + 1, ..stat }, Stat { modified: stat.modified + 1, ..stat }] {
            assert!(load(&store, &path, &other).is_none());
        }
        let good = std::fs::read(path_of(&path)).unwrap();
        for cut in 0..good.len() {
            assert!(decode(&good[..cut], &stat).is_none(), "cut at {cut}");
        }
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                let of_time = (24..40).contains(&at);
                assert!(decode(&bad, &stat).is_none_or(|kept| of_time && kept.copied), "flipped at {at}");
                // The same with a checksum that fits: it may be believed, but must stay inside the file.
                let sum = crc_fast::crc32_iscsi(&bad[HEADER..]).to_le_bytes();
                bad[HEADER - 4..HEADER].copy_from_slice(&sum);
                if let Some(Kept { index, .. }) = decode(&bad, &stat) {
                    let inside = |number| index.record(number).is_some_and(|(at, len)| at + len <= stat.size);
                    assert!((0..index.len()).all(inside), "flipped at {at}");
                }
            }
        }
    }

    #[test]
    fn a_damaged_file_keeps_no_index() {
        let folder = TempFolder::new();
        let store = LocalStore::new();
        let path = folder.write("x", &framed([&b"abc"[..], b"def"])[..25]);
        let index = RecordIndex::scan(&store, &path).unwrap();
        save(&store, &path, &store.stat(&path).unwrap(), &index);
        assert!(index.len() == 1 && !std::path::Path::new(&path_of(&path)).exists());
    }
}
