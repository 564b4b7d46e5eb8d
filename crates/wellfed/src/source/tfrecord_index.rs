//! Where each record of one TFRecord file lies: built by reading lengths only, then used for random access.
//!
//! The invariant: every record in the index lies wholly inside the file, and what could not be read, because the file is cut
//! or a length is damaged, is recorded as [`Damage`]. Whether the bytes of a record are sound is seen when it is read.

use super::tfrecord_framing::{FRAME, HEADER, length};
use crate::{
    Error, ErrorKind, Result,
    store::{EntryKind, Store},
};

/// Bytes read at once while hopping from length to length: to begin with, at least, and at most.
const WINDOW: u64 = 8192;
const LEAST: u64 = 512;
const MOST: u64 = 256 << 10;

/// The same of a store that answers later.
const FAR: u64 = 512 << 10;
const FAR_MOST: u64 = 8 << 20;

/// Where a file stops making sense, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Damage {
    pub(super) offset: u64,
    pub(super) message: String,
    pub(super) hint: &'static str,
}

const CUT: &str = "the file was cut, perhaps during a copy, or is still being written: all records before this byte are there";
const LOST: &str = "all records before this byte are there; what follows cannot be found without this length";

/// The records of one file: 8 bytes each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RecordIndex {
    /// Where each record's length lies.
    pub(super) starts: Vec<u64>,
    /// Where the last record ends.
    pub(super) end: u64,
    pub(super) damage: Option<Damage>,
}

impl RecordIndex {
    /// Number of records, without the damage.
    pub(super) fn len(&self) -> usize {
        self.starts.len()
    }

    /// Where the bytes of record `number` begin, and how many there are.
    pub(super) fn record(&self, number: usize) -> Option<(u64, u64)> {
        let start = *self.starts.get(number)?;
        let next = self.starts.get(number + 1).copied().unwrap_or(self.end);
        Some((start + HEADER, next.checked_sub(start + FRAME)?))
    }

    /// Reads the lengths in the file `path`.
    ///
    /// # Errors
    /// Only what keeps the whole file from being read: it is missing, or storage fails. A cut or damaged file is no error.
    pub(super) fn scan(store: &dyn Store, path: &str) -> Result<Self> {
        let stat = store.stat(path)?;
        if stat.kind == EntryKind::Folder {
            return Err(Error::config(format!("{path} is a folder, not a TFRecord file"))
                .with_hint(format!("{path}/* names the files in it")));
        }
        let far = store.remote().is_some();
        let (reach, most) = if far { (FAR, FAR_MOST) } else { (WINDOW, MOST) };
        let mut window = Window { store, path, size: stat.size, start: 0, bytes: Vec::new(), reach, most };
        let mut this = Self::default();
        this.damage = this.run(&mut window)?;
        this.starts.shrink_to_fit();
        Ok(this)
    }

    fn run(&mut self, window: &mut Window<'_>) -> Result<Option<Damage>> {
        let size = window.size;
        while self.end < size {
            let (at, rest) = (self.end, size - self.end);
            let damage = |message, hint| Ok(Some(Damage { offset: at, message, hint }));
            let number = self.starts.len();
            if rest < HEADER {
                return damage(format!("it ends at byte {size}, inside the length of record {number}"), CUT);
            }
            let Some(header) = window.header(at)? else {
                return damage(format!("it became shorter than {size} bytes while it was read"), CUT);
            };
            let length = match length(header) {
                Ok(length) => length,
                Err(e) => {
                    let (stored, computed) = (e.stored, e.computed);
                    return damage(
                        format!(
                            "the checksum of the length of record {number} is {computed:08x}, but {stored:08x} is stored"
                        ),
                        LOST,
                    );
                }
            };
            if length > rest.saturating_sub(FRAME) || rest < FRAME {
                return damage(
                    format!("it ends at byte {size}, inside record {number}, which has {length} bytes"),
                    CUT,
                );
            }
            self.starts.push(at);
            self.end = at + FRAME + length;
        }
        Ok(None)
    }
}

/// A part of the file, from which lengths are read.
struct Window<'a> {
    store: &'a dyn Store,
    path: &'a str,
    size: u64,
    start: u64,
    bytes: Vec<u8>,
    /// Bytes that are read at once.
    reach: u64,
    most: u64,
}

impl Window<'_> {
    /// The header at `at`, which lies inside the file. `None` if that has become shorter since.
    fn header(&mut self, at: u64) -> Result<Option<[u8; 12]>> {
        let end = self.start + self.bytes.len() as u64;
        if at < self.start || at + HEADER > end {
            // Records that lie close together are read along, as one long read takes less time than many short ones. Where
            // they are far apart, reading more than the length would be for nothing.
            if end > 0 {
                let near = at.saturating_sub(end) <= self.reach;
                self.reach = if near { (self.reach * 2).min(self.most) } else { (self.reach / 2).max(LEAST) };
            }
            self.bytes.clear();
            self.start = at;
            let want = self.reach.min(self.size - at);
            let want = usize::try_from(want).unwrap_or(usize::MAX);
            match self.store.read_range(self.path, at, want, &mut self.bytes) {
                Ok(()) => {}
                Err(e) if e.kind() == ErrorKind::Corrupt => return Ok(None),
                Err(e) => return Err(e),
            }
        }
        // The window starts at or before `at` and, having been filled above if need be, holds the header.
        let from = (at - self.start) as usize;
        Ok(self.bytes.get(from..).and_then(|bytes| bytes.first_chunk()).copied())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tfrecord_framing::tests::framed, *};
    use crate::{store::LocalStore, testing::TempFolder};

    #[test]
    fn records_of_all_sizes_are_found() {
        let folder = TempFolder::new();
        let sizes = [0, 1, 5, 100_000, 3, 20_000, 0, 700_000, 0, 12];
        let records: Vec<Vec<u8>> = sizes.iter().map(|size| vec![7; *size]).collect();
        let file = framed(records.iter().map(Vec::as_slice));
        let path = folder.write("x", &file);
        let index = RecordIndex::scan(&LocalStore::new(), &path).unwrap();
        assert_eq!((index.len(), index.end, &index.damage), (sizes.len(), file.len() as u64, &None));
        for (number, size) in sizes.iter().enumerate() {
            let (start, len) = index.record(number).unwrap();
            assert_eq!(len, *size as u64);
            assert_eq!(&file[start as usize..][..len as usize], records[number]);
        }
        assert_eq!(index.record(sizes.len()), None);
        let empty = folder.write("empty", b"");
        assert_eq!(RecordIndex::scan(&LocalStore::new(), &empty).unwrap(), RecordIndex::default());
        assert!(RecordIndex::scan(&LocalStore::new(), folder.path()).is_err());
    }

    #[test]
    fn a_cut_is_damage_unless_it_is_between_two_records() {
        let folder = TempFolder::new();
        let file = framed([&b"first"[..], b"", b"third one"]);
        let ends = [0, 21, 37, file.len()];
        for cut in 0..=file.len() {
            let path = folder.write("x", &file[..cut]);
            let index = RecordIndex::scan(&LocalStore::new(), &path).unwrap();
            let whole = ends.iter().filter(|end| **end <= cut).count() - 1;
            assert_eq!(index.len(), whole, "cut at {cut}");
            assert_eq!(index.damage.is_none(), ends.contains(&cut), "cut at {cut}");
            if let Some(damage) = index.damage {
                assert_eq!(damage.offset, ends[whole] as u64);
            }
        }
    }

    #[test]
    fn a_length_that_reaches_beyond_the_file_is_damage_not_an_allocation() {
        let folder = TempFolder::new();
        for length in [1_u64, 1 << 40, u64::MAX - 15, u64::MAX] {
            let bytes = length.to_le_bytes();
            let crc = super::super::tfrecord_framing::masked_crc(&bytes).to_le_bytes();
            let path = folder.write("x", &[&bytes[..], &crc, &[0; 4]].concat());
            let index = RecordIndex::scan(&LocalStore::new(), &path).unwrap();
            assert!(index.len() == 0 && index.damage.is_some(), "{length}");
        }
    }
}
