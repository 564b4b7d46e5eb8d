//! [`RowIndexTable`]: row indexes that several processes keep together, in shared memory and without a lock.
//!
//! ```text
//! counters (see `Counter`)   rows: where the entry of the image with `id % rows` begins, or 0
//! entries: id   room in words << 32 | bytes   the index, as wellfed_jpeg::RowIndex::to_bytes gives it
//! ```
//!
//! Room for entries is handed out from the front and never taken back. Two processes may write one entry at a time, and
//! a third may read it meanwhile: an index has a checksum, so what comes out of that is no index, and is recorded anew.
//! Nothing that is read here is believed before it was compared with the size of the memory.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{
            AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
};

use crate::memory::{SharedMemory, WORD};

/// Words before the rows, one for each [`Counter`]: a cache line.
const COUNTERS: usize = 8;

/// Words of an entry before its index.
const HEAD: usize = 2;

/// Of the memory, rows take one in so many words at most.
const ROWS: usize = 16;

/// What all processes count together.
#[derive(Clone, Copy)]
pub(crate) enum Counter {
    /// Images that have an index.
    Images,
    /// Decodes that had one.
    Used,
    /// Decodes whose index found no room.
    Refused,
    /// Indexes that were put in.
    Changes,
    /// Words of entries that were handed out.
    Taken,
    /// Whether there is no room any more.
    Full,
}

/// What became of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Put {
    /// Its image had none.
    New,
    /// It took the place of another one.
    Again,
    /// There is no room.
    Refused,
}

/// Row indexes of the images of one source.
#[derive(Debug)]
pub(crate) struct RowIndexTable {
    memory: Arc<SharedMemory>,
    words: Range<usize>,
    rows: usize,
}

impl RowIndexTable {
    /// The table in these words of `memory`, of a source of so many images. Words of zero are an empty one.
    pub(crate) fn new(memory: Arc<SharedMemory>, words: Range<usize>, images: u64) -> Self {
        let most = (words.len() / ROWS).max(1);
        Self { memory, words, rows: usize::try_from(images).unwrap_or(most).clamp(1, most) }
    }

    /// Words that so many images take, should each index take `bytes`.
    pub(crate) fn size(images: u64, bytes: u64) -> u64 {
        let each = 1 + HEAD as u64 + bytes.div_ceil(WORD as u64);
        images.saturating_mul(each).saturating_add(COUNTERS as u64)
    }

    pub(crate) fn count(&self, counter: Counter) -> u64 {
        self.counter(counter).load(Relaxed)
    }

    /// Counts one more.
    pub(crate) fn add(&self, counter: Counter) {
        self.counter(counter).fetch_add(1, Relaxed);
    }

    /// Whether a new index would find no room.
    pub(crate) fn is_full(&self) -> bool {
        self.count(Counter::Full) != 0
    }

    /// Bytes that were touched, about.
    pub(crate) fn used(&self) -> u64 {
        (self.count(Counter::Taken) + (COUNTERS + self.rows) as u64) * WORD as u64
    }

    pub(crate) fn limit(&self) -> u64 {
        (self.words.len() * WORD) as u64
    }

    /// What is kept for the image `id`.
    pub(crate) fn get(&self, id: u64) -> Option<Vec<u8>> {
        let entry = self.entry(self.row(id).load(Acquire))?;
        (entry[0].load(Relaxed) == id).then(|| Self::bytes(entry))
    }

    /// Keeps `bytes` for the image `id`.
    pub(crate) fn put(&self, id: u64, bytes: &[u8]) -> Put {
        let row = self.row(id);
        let at = row.load(Acquire);
        if let Some(entry) = self.entry(at) {
            if entry[0].load(Relaxed) != id {
                // Of two images with one row the first one has it.
                self.add(Counter::Refused);
                return Put::Refused;
            }
            if bytes.len() <= (entry.len() - HEAD) * WORD {
                Self::write(entry, bytes);
                self.add(Counter::Changes);
                return Put::Again;
            }
        }
        let Some((place, entry)) = self.take(bytes.len()) else {
            self.counter(Counter::Full).store(1, Relaxed);
            self.add(Counter::Refused);
            return Put::Refused;
        };
        entry[0].store(id, Relaxed);
        Self::write(entry, bytes);
        self.add(Counter::Changes);
        // Whoever reads the row finds the whole entry. Where another process was faster its index is as good.
        let new = row.compare_exchange(at, place, Release, Relaxed).is_ok() && at == 0;
        if new { Put::New } else { Put::Again }
    }

    /// Forgets what is kept for the image `id`; its room stays with it.
    pub(crate) fn forget(&self, id: u64) {
        if let Some(entry) = self.entry(self.row(id).load(Acquire))
            && entry[0].load(Relaxed) == id
        {
            Self::write(entry, &[]);
        }
    }

    /// All that is kept, with the images it belongs to.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, Vec<u8>)> {
        let rows = &self.all()[COUNTERS..][..self.rows];
        let entries = rows.iter().filter_map(|row| self.entry(row.load(Acquire)));
        entries.map(|entry| (entry[0].load(Relaxed), Self::bytes(entry)))
    }

    fn all(&self) -> &[AtomicU64] {
        &self.memory.words()[self.words.clone()]
    }

    fn counter(&self, counter: Counter) -> &AtomicU64 {
        &self.all()[counter as usize]
    }

    fn row(&self, id: u64) -> &AtomicU64 {
        &self.all()[COUNTERS + (id % self.rows as u64) as usize]
    }

    /// The words of the entry at `place`, as many as it has room.
    fn entry(&self, place: u64) -> Option<&[AtomicU64]> {
        let place = usize::try_from(place).ok().filter(|place| *place >= COUNTERS + self.rows)?;
        let words = self.all().get(place..)?;
        let room = words.get(1)?.load(Relaxed) >> 32;
        words.get(..HEAD + room as usize)
    }

    /// A new entry with room for so many bytes, and a quarter more, as later decodes may see more rows.
    fn take(&self, bytes: usize) -> Option<(u64, &[AtomicU64])> {
        let room = u32::try_from((bytes + bytes / 4).div_ceil(WORD)).ok()?;
        let (words, most) = (HEAD as u64 + u64::from(room), (self.words.len() - COUNTERS - self.rows) as u64);
        let add = |taken: u64| taken.checked_add(words).filter(|sum| *sum <= most);
        let taken = self.counter(Counter::Taken).fetch_update(Relaxed, Relaxed, add).ok()?;
        let place = (COUNTERS + self.rows) as u64 + taken;
        self.all()[place as usize + 1].store(u64::from(room) << 32, Relaxed);
        Some((place, self.entry(place)?))
    }

    fn bytes(entry: &[AtomicU64]) -> Vec<u8> {
        let len = entry[1].load(Acquire) as u32 as usize;
        let mut bytes: Vec<u8> = Vec::with_capacity(len.next_multiple_of(WORD));
        let words = entry[HEAD..].iter().take(len.div_ceil(WORD));
        words.for_each(|word| bytes.extend_from_slice(&word.load(Relaxed).to_ne_bytes()));
        bytes.truncate(len);
        bytes
    }

    fn write(entry: &[AtomicU64], bytes: &[u8]) {
        for (word, part) in entry[HEAD..].iter().zip(bytes.chunks(WORD)) {
            let mut whole = [0; WORD];
            whole[..part.len()].copy_from_slice(part);
            word.store(u64::from_ne_bytes(whole), Relaxed);
        }
        let room = entry[1].load(Relaxed) >> 32 << 32;
        entry[1].store(room | bytes.len() as u64, Release);
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    fn table(words: usize, images: u64) -> RowIndexTable {
        let memory = Arc::new(SharedMemory::new(words * WORD).unwrap());
        RowIndexTable::new(memory, 0..words, images)
    }

    #[test]
    fn what_was_put_in_is_found_by_whoever_maps_the_memory() {
        let ours = table(4096, 100);
        let file = ours.memory.file().unwrap();
        let theirs = RowIndexTable::new(Arc::new(SharedMemory::attach(file).unwrap()), 0..4096, 100);
        assert_eq!(ours.get(5), None);
        assert_eq!(ours.put(5, b"a row index"), Put::New);
        assert_eq!(theirs.get(5).unwrap(), b"a row index");
        assert_eq!(theirs.put(5, b"a better one"), Put::Again);
        assert_eq!(theirs.put(5, &[7; 1000]), Put::Again, "there was no room for it in its place");
        assert_eq!(ours.get(5).unwrap(), [7; 1000]);
        assert_eq!(ours.put(0, b""), Put::New);
        let mut all: Vec<_> = theirs.iter().map(|(id, bytes)| (id, bytes.len())).collect();
        all.sort_unstable();
        assert_eq!(all, [(0, 0), (5, 1000)]);
        assert_eq!(theirs.count(Counter::Changes), 4);
        ours.forget(5);
        assert_eq!(theirs.get(5).unwrap(), b"");
    }

    #[test]
    fn no_more_than_the_memory_is_taken_and_images_of_one_row_are_told_apart() {
        let table = table(1024, 1 << 40);
        assert_eq!(table.rows, 64);
        assert_eq!(table.put(3, b"x"), Put::New);
        assert_eq!((table.put(3 + 64, b"y"), table.get(3 + 64)), (Put::Refused, None));
        assert!(!table.is_full());
        let put = (0..1000).filter(|id| table.put(*id, &[1; 200]) != Put::Refused).count();
        assert!((20..64).contains(&put) && table.is_full(), "{put}");
        assert!(table.used() <= table.limit());
        assert!((0..64).filter_map(|id| table.get(id)).all(|bytes| bytes == [1; 200] || bytes.is_empty()));
    }

    #[test]
    fn whatever_lies_in_the_memory_nothing_beyond_it_is_touched() {
        let table = table(64, 2);
        for (place, head) in
            [(u64::MAX, 0), (63, 0), (62, u64::MAX), (20, u64::MAX), (20, (43 << 32) | 999_999)]
        {
            table.all()[COUNTERS].store(place, Relaxed);
            if let Some(word) = table.all().get((place as usize).saturating_add(1)) {
                word.store(head, Relaxed);
            }
            assert!(table.get(0).is_none_or(|bytes| bytes.len() <= 64 * WORD), "{place} {head}");
            table.put(0, b"some bytes");
            table.forget(0);
            assert!(table.iter().count() <= 2);
        }
    }

    #[test]
    fn threads_that_write_and_read_at_once_find_whole_entries_or_torn_ones_of_their_own_image() {
        let table = table(1 << 16, 32);
        std::thread::scope(|scope| {
            for thread in 0..4_u8 {
                let table = &table;
                scope.spawn(move || {
                    for round in 0..2000_u64 {
                        let id = round % 32;
                        if table.put(id, &[id as u8; 64][..32 + usize::from(thread) * 8]) == Put::New {
                            table.add(Counter::Images);
                        }
                        let found = table.get(id).unwrap();
                        assert!(found.iter().all(|byte| u64::from(*byte) == id), "{id} {found:?}");
                    }
                });
            }
        });
        assert_eq!(table.count(Counter::Images), 32);
    }
}
