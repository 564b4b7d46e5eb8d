//! [`SeenRows`]: row indexes of images that no source lists, as they are opened one by one. An image is known again by its
//! bytes, so it does not matter under which name it comes.
//!
//! They lie in memory that processes share: workers that are forked after it was made use what one of them found out.
//! As all row indexes they are hints: the decoder compares length and checksum of the file.

use std::{fs::File, sync::Arc};

use wellfed_jpeg::RowIndex;

use super::row_index_table::{Counter, Put, RowIndexTable};
use crate::{
    Error, Result,
    codec::RowHint,
    memory::{SharedMemory, WORD},
    meter::RowIndexStats,
};

/// Bytes at the end of a file that it is known again by. Those are pixels, which no two photographs have in common.
const TAIL: usize = 512;

/// Files that are shorter are decoded as fast without.
const LEAST: usize = 4 << 10;

/// Row indexes of images that were seen before.
#[derive(Debug)]
pub struct SeenRows {
    memory: Arc<SharedMemory>,
    table: RowIndexTable,
}

impl SeenRows {
    /// None yet, and never more than `limit` bytes, which are taken as images come. `None` where the system shares no memory.
    pub fn new(limit: usize) -> Option<Self> {
        SharedMemory::new(limit).ok().map(Self::over)
    }

    /// Those in the memory of another process.
    ///
    /// # Errors
    /// Those of the system.
    pub fn attach(file: &File) -> Result<Self> {
        let memory = SharedMemory::attach(file).map_err(|e| Error::io("map", "shared row indexes", e))?;
        Ok(Self::over(memory))
    }

    fn over(memory: SharedMemory) -> Self {
        let memory = Arc::new(memory);
        let words = memory.words().len();
        // Nobody knows how many images come, so there are as many rows as the table takes.
        Self { table: RowIndexTable::new(memory.clone(), 0..words, u64::MAX), memory }
    }

    /// The file that the memory is, for a process that is to attach to it. Only whoever made it has it.
    pub fn file(&self) -> Option<&File> {
        self.memory.file()
    }

    /// What all processes recorded and used together.
    pub fn stats(&self) -> RowIndexStats {
        RowIndexStats {
            images: self.table.count(Counter::Images),
            used: self.table.count(Counter::Used),
            bytes: self.table.used(),
            limit: (self.memory.words().len() * WORD) as u64,
            refused: self.table.count(Counter::Refused),
            problem: None,
        }
    }

    /// Runs `decode` of the image in `bytes` with what is known of it, and keeps what it finds out.
    pub(crate) fn decode(
        &self,
        bytes: &[u8],
        mut decode: impl FnMut(RowHint) -> (Result<()>, Option<RowIndex>),
    ) -> Result<()> {
        if bytes.len() < LEAST {
            return decode(RowHint::default()).0;
        }
        let id = id(bytes);
        let known = self.get(id);
        let had = known.is_some();
        let record = had || !self.table.is_full();
        let (mut result, mut found) = decode(RowHint { record, known, found: None });
        if result.is_err() && had {
            // Should an index ever be the reason, the image is as good as without.
            places(id).into_iter().for_each(|id| self.table.forget(id));
            (result, found) = decode(RowHint::default());
        }
        if let Some(found) = found.filter(|_| result.is_ok()) {
            self.put(id, &found);
        }
        result
    }

    fn get(&self, id: u64) -> Option<RowIndex> {
        let found = places(id).into_iter().find_map(|id| self.table.get(id))?;
        // One that another process writes just now is none.
        let known = RowIndex::from_bytes(&found).ok();
        known.inspect(|_| self.table.add(Counter::Used))
    }

    fn put(&self, id: u64, found: &RowIndex) {
        let bytes = found.to_bytes();
        for id in places(id) {
            match self.table.put(id, &bytes) {
                Put::New => return self.table.add(Counter::Images),
                Put::Again => return,
                Put::Refused => {}
            }
        }
    }
}

/// What an image is known by.
fn id(bytes: &[u8]) -> u64 {
    let tail = &bytes[bytes.len().saturating_sub(TAIL)..];
    rapidhash::v3::rapidhash_v3(tail).wrapping_add(bytes.len() as u64)
}

/// Where an image may lie: where another one has its first place, there is a second.
fn places(id: u64) -> [u64; 2] {
    [id, id.rotate_left(32)]
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::{Error, ErrorKind};

    fn image(seed: u8) -> Vec<u8> {
        (0..2 * LEAST).map(|i| (i as u8).wrapping_mul(seed)).collect()
    }

    /// An index of a real file, whichever.
    fn index() -> RowIndex {
        let bytes = include_bytes!("../../../../wellfed-jpeg/tests/images/grey.jpg");
        let mut decoder = wellfed_jpeg::Decoder::new();
        let options = wellfed_jpeg::Options { record: true, ..Default::default() };
        decoder.decode(bytes, &options).unwrap();
        decoder.take_index().unwrap()
    }

    fn knows(rows: &SeenRows, bytes: &[u8]) -> bool {
        let mut known = false;
        let looked = rows.decode(bytes, |hint| {
            known = hint.known.is_some();
            (Ok(()), None)
        });
        looked.is_ok() && known
    }

    #[test]
    fn what_one_process_found_out_another_one_uses() {
        let ours = SeenRows::new(1 << 20).unwrap();
        let theirs = SeenRows::attach(ours.file().unwrap()).unwrap();
        let (first, second) = (image(3), image(5));
        let none = ours.decode(&first, |hint| {
            assert!(hint.known.is_none() && hint.record);
            (Ok(()), Some(index()))
        });
        none.unwrap();
        theirs
            .decode(&first, |hint| {
                assert_eq!(hint.known, Some(index()));
                (Ok(()), None)
            })
            .unwrap();
        assert!(!knows(&theirs, &second));
        let stats = ours.stats();
        assert_eq!((stats.images, stats.used, stats.refused), (1, 1, 0));
    }

    #[test]
    fn an_index_that_does_not_help_is_forgotten_and_the_image_decoded_without() {
        let rows = SeenRows::new(1 << 20).unwrap();
        let bytes = image(7);
        rows.decode(&bytes, |_| (Ok(()), Some(index()))).unwrap();
        let mut calls = Vec::new();
        let result = rows.decode(&bytes, |hint| {
            calls.push(hint.known.is_some());
            let error = Error::new(ErrorKind::Corrupt, "no");
            (if hint.known.is_some() { Err(error) } else { Ok(()) }, None)
        });
        assert!(result.is_ok());
        assert_eq!(calls, [true, false]);
        assert!(!knows(&rows, &bytes));
        // What fails without an index is an error, and nothing is kept of it.
        let failed = rows.decode(&image(9), |_| (Err(Error::new(ErrorKind::Corrupt, "no")), Some(index())));
        assert!(failed.is_err() && rows.stats().images == 1);
    }

    #[test]
    fn memory_is_bounded_and_small_files_take_none() {
        let rows = SeenRows::new(64 << 10).unwrap();
        for seed in 0..=255 {
            rows.decode(&image(seed), |_| (Ok(()), Some(index()))).unwrap();
        }
        let stats = rows.stats();
        assert!(stats.images > 0 && stats.refused > 0 && stats.bytes <= stats.limit, "{stats:?}");
        let few = SeenRows::new(64 << 10).unwrap();
        few.decode(&image(3)[..LEAST - 1], |hint| {
            assert!(!hint.record);
            (Ok(()), Some(index()))
        })
        .unwrap();
        assert_eq!(few.stats().images, 0);
    }
}
