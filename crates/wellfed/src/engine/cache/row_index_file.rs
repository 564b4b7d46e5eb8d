//! A file of row indexes, kept beside the images or shards they belong to, or in a folder of the user's.
//!
//! It is trusted no more than what it describes: its table has a checksum, each index has its own, and an index
//! knows its image by length and checksum. Whatever does not fit is not used and recorded anew. Files are replaced
//! as a whole, never changed in place, so that several processes may read and write them at any time.
//!
//! ```text
//! "WFROWS\0" version u8  number of indexes u64
//! table, sorted: { hash of key and image u64, end of the index in what follows the table u64 }
//! rapidhash of all before u64
//! indexes, as wellfed_jpeg::RowIndex::to_bytes gives them         all numbers little-endian
//! ```

use std::{collections::BTreeMap, fs::File, path::Path, thread, time::Duration};

use wellfed_jpeg::RowIndex;

use crate::{Result, store::Store};

const MAGIC: &[u8; 8] = b"WFROWS\0\x01";
const HEADER: usize = 16;
const ROW: usize = 16;
const CHECKSUM: usize = 8;

/// How often a lock that another process holds is asked for, and how long is waited in between.
const LOCK_TRIES: (u32, Duration) = (100, Duration::from_millis(20));

/// What an index is found by: a hash of the sample's key and the number of the image in the sample.
pub(crate) fn hash(key: &str, image: u64) -> u64 {
    rapidhash::v3::rapidhash_v3(&[key.as_bytes(), &image.to_le_bytes()].concat())
}

/// A file as read.
#[derive(Debug, Default)]
pub(crate) struct RowIndexFile {
    bytes: Vec<u8>,
    len: usize,
}

impl RowIndexFile {
    /// The file at `path`, of `max_bytes` at most; `None` if there is none that can be used.
    pub(crate) fn load(store: &dyn Store, path: &str, max_bytes: u64) -> Option<Self> {
        let mut bytes = Vec::new();
        store.read(path, max_bytes, &mut bytes).ok()?;
        Self::parse(bytes)
    }

    fn parse(bytes: Vec<u8>) -> Option<Self> {
        let len = usize::try_from(u64_at(&bytes, 8)?).ok()?;
        let table = len.checked_mul(ROW)?.checked_add(HEADER)?;
        let start = table.checked_add(CHECKSUM)?;
        let indexes = bytes.len().checked_sub(start)?;
        let sum = rapidhash::v3::rapidhash_v3(&bytes[..table]);
        if !bytes.starts_with(MAGIC) || u64_at(&bytes, table)? != sum {
            return None;
        }
        let this = Self { bytes, len };
        let ends = || (0..len).map(|i| this.end(i));
        let sorted = (1..len).all(|i| this.hash(i - 1) < this.hash(i));
        let sound = sorted && ends().is_sorted() && ends().next_back().unwrap_or(0) == indexes;
        sound.then_some(this)
    }

    fn hash(&self, i: usize) -> u64 {
        u64_at(&self.bytes, HEADER + i * ROW).expect("rows of the table were counted")
    }

    fn end(&self, i: usize) -> usize {
        u64_at(&self.bytes, HEADER + i * ROW + 8).expect("rows of the table were counted") as usize
    }

    fn get(&self, i: usize) -> &[u8] {
        let start = HEADER + self.len * ROW + CHECKSUM;
        let from = if i == 0 { 0 } else { self.end(i - 1) };
        &self.bytes[start + from..start + self.end(i)]
    }

    /// The index with this [`hash`], as bytes.
    pub(crate) fn find(&self, hash: u64) -> Option<&[u8]> {
        let (mut low, mut high) = (0, self.len);
        while low < high {
            let middle = (low + high) / 2;
            match self.hash(middle).cmp(&hash) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Some(self.get(middle)),
            }
        }
        None
    }

    /// Number of indexes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes in memory.
    pub(crate) fn size(&self) -> u64 {
        self.bytes.len() as u64
    }
}

/// Adds indexes to the file at `path`, or makes it. Of two for the same image the one of more rows stays.
///
/// # Errors
/// Those of writing. The old file is whole then.
pub(crate) fn merge(store: &dyn Store, path: &str, mut ours: BTreeMap<u64, Box<[u8]>>) -> Result<()> {
    let _lock = lock_folder(path);
    let old = RowIndexFile::load(store, path, u64::MAX).unwrap_or_default();
    for i in 0..old.len() {
        let theirs = old.get(i);
        ours.entry(old.hash(i))
            .and_modify(|ours| {
                if is_longer(theirs, ours) {
                    *ours = theirs.into();
                }
            })
            .or_insert_with(|| theirs.into());
    }
    drop(old);
    store.write(path, &encode(&ours))
}

/// True if `a` and `b` belong to the same image and `a` has more rows, or if `b` is no index.
fn is_longer(a: &[u8], b: &[u8]) -> bool {
    match (RowIndex::from_bytes(a), RowIndex::from_bytes(b)) {
        (Ok(a), Ok(b)) => a.extends(&b),
        (a, b) => a.is_ok() && b.is_err(),
    }
}

fn encode(indexes: &BTreeMap<u64, Box<[u8]>>) -> Vec<u8> {
    let payload: usize = indexes.values().map(|index| index.len()).sum();
    let mut bytes = Vec::with_capacity(HEADER + indexes.len() * ROW + CHECKSUM + payload);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&(indexes.len() as u64).to_le_bytes());
    let mut end = 0;
    for (hash, index) in indexes {
        end += index.len() as u64;
        bytes.extend_from_slice(&hash.to_le_bytes());
        bytes.extend_from_slice(&end.to_le_bytes());
    }
    let sum = rapidhash::v3::rapidhash_v3(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    indexes.values().for_each(|index| bytes.extend_from_slice(index));
    bytes
}

/// Keeps other processes from merging into files of the same folder until the file is dropped.
///
/// Best effort: where a folder cannot be locked, or another process does not let go of it, the last one to write
/// wins, and what the others had is recorded anew later.
fn lock_folder(path: &str) -> Option<File> {
    let folder = Path::new(path).parent().filter(|p| !p.as_os_str().is_empty());
    let file = File::open(folder.unwrap_or(Path::new("."))).ok()?;
    for _ in 0..LOCK_TRIES.0 {
        match file.try_lock() {
            Ok(()) => return Some(file),
            Err(std::fs::TryLockError::WouldBlock) => thread::sleep(LOCK_TRIES.1),
            Err(std::fs::TryLockError::Error(_)) => return None,
        }
    }
    None
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{store::LocalStore, testing::TempFolder};

    fn some(names: &[(&str, &[u8])]) -> BTreeMap<u64, Box<[u8]>> {
        names.iter().map(|(name, bytes)| (hash(name, 0), (*bytes).into())).collect()
    }

    #[test]
    fn what_was_merged_is_found() {
        let folder = TempFolder::new();
        let (store, path) = (LocalStore::new(), folder.join("x.wfrows"));
        merge(&store, &path, some(&[("a", b"1"), ("b", b""), ("c", b"345")])).unwrap();
        merge(&store, &path, some(&[("d", b"67"), ("a", b"new")])).unwrap();
        let file = RowIndexFile::load(&store, &path, u64::MAX).unwrap();
        assert_eq!(file.len(), 4);
        let find = |name| file.find(hash(name, 0));
        assert_eq!(
            [find("a"), find("b"), find("c"), find("d")].map(Option::unwrap),
            [b"new".as_slice(), b"", b"345", b"67"]
        );
        assert!(find("e").is_none() && file.find(hash("a", 1)).is_none());
        assert!(RowIndexFile::load(&store, &path, 10).is_none());
    }

    #[test]
    fn a_damaged_file_is_none_or_gives_what_was_put_in() {
        let indexes = some(&[("a", b"first index"), ("b", b"second")]);
        let good = encode(&indexes);
        for cut in 0..good.len() {
            assert!(RowIndexFile::parse(good[..cut].to_vec()).is_none(), "cut at {cut}");
        }
        let table = HEADER + 2 * ROW + CHECKSUM;
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 4;
            // Damage of an index is its own to notice.
            assert_eq!(RowIndexFile::parse(bad.clone()).is_some(), at >= table, "flipped at {at}");
            // A table whose checksum was made to fit must not break anything.
            let sum = rapidhash::v3::rapidhash_v3(&bad[..table - CHECKSUM]);
            bad[table - CHECKSUM..table].copy_from_slice(&sum.to_le_bytes());
            if let Some(file) = RowIndexFile::parse(bad) {
                (0..file.len()).for_each(|i| assert!(file.get(i).len() <= good.len()));
            }
        }
    }

    #[test]
    fn writers_at_the_same_time_lose_nothing() {
        let folder = TempFolder::new();
        let path = folder.join("x.wfrows");
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let path = &path;
                scope.spawn(move || {
                    for i in 0..10 {
                        merge(&LocalStore::new(), path, some(&[(&format!("{writer} {i}"), b"x")])).unwrap();
                    }
                });
            }
        });
        assert_eq!(RowIndexFile::load(&LocalStore::new(), &path, u64::MAX).unwrap().len(), 40);
    }
}
