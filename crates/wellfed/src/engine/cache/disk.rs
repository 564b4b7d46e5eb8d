//! Cached samples on disk: a folder of segments, each an append-only data file and the list of what is in it.
//!
//! Every segment has at most one writer, the process that holds a lock on its list; all processes read all
//! segments. Data are written before the entry that names them, so that a process may die at any moment: what is in
//! the data file behind the last whole entry is overwritten by the next writer. Nothing is believed without a
//! checksum: entries, the head of a record and each of its values have one.
//!
//! ```text
//! NNN.list: "WFLIST\0\1"  entries: key u64  stamp u64  offset u64  length u64  rapidhash of these 32 bytes u64
//! NNN.data: "WFDATA\0\1"  records: head  values, each followed by its rapidhash u64
//! head: key u64  stamp u64  values u64
//!       for each value: what u64 (0 nothing, 1 bytes, 2 number)  offset in the file or shard u64  length or number u64
//!       rapidhash of the head u64                                      all numbers little-endian
//! ```

use std::{
    collections::HashMap,
    fs::{self, File, OpenOptions},
    io::{self, Seek, SeekFrom, Write},
    path::Path,
    sync::Mutex,
};

use crate::{
    Error, Result, lock,
    sample::{Record, Value},
    store::{LocalStore, Store},
};

const DATA_MAGIC: &[u8; 8] = b"WFDATA\0\x01";
const LIST_MAGIC: &[u8; 8] = b"WFLIST\0\x01";
const ENTRY: usize = 40;

/// Entries written at once.
const FLUSH: usize = 64 * ENTRY;

/// Segments at most: processes that write to one folder at the same time, and crashed file systems' leftovers.
const MAX_SEGMENTS: u32 = 1000;

/// A value to store.
#[derive(Clone, Copy, Debug)]
pub(super) enum Blob<'a> {
    Empty,
    Bytes { bytes: &'a [u8], offset: u64 },
    Int { value: i64, offset: u64 },
}

impl<'a> Blob<'a> {
    pub(super) fn of(value: &'a Value, offset: u64) -> Self {
        match value {
            Value::Bytes(bytes) => Blob::Bytes { bytes, offset },
            Value::Shared(bytes) => Blob::Bytes { bytes, offset },
            Value::Int(value) => Blob::Int { value: *value, offset },
            Value::Empty | Value::Resident => Blob::Empty,
        }
    }

    fn numbers(&self) -> [u64; 3] {
        match *self {
            Blob::Empty => [0, 0, 0],
            Blob::Bytes { bytes, offset } => [1, offset, bytes.len() as u64],
            Blob::Int { value, offset } => [2, offset, value as u64],
        }
    }
}

/// Where a sample is.
#[derive(Clone, Copy, Debug)]
struct Location {
    segment: u32,
    stamp: u64,
    offset: u64,
    length: u64,
}

#[derive(Debug)]
pub(super) struct Disk {
    folder: String,
    store: LocalStore,
    found: Mutex<HashMap<u64, Location>>,
    /// How much of each segment's list was read.
    read: Mutex<HashMap<u32, u64>>,
    writer: Mutex<Writer>,
    problem: Mutex<Option<String>>,
}

/// The segment of this process.
#[derive(Debug)]
enum Writer {
    /// None was needed yet.
    Idle,
    Open {
        segment: u32,
        data: File,
        end: u64,
        /// Also holds the lock.
        list: File,
        /// Up to where the list is whole.
        listed: u64,
        /// Entries that are not yet in the list.
        pending: Vec<u8>,
    },
    /// Writing failed.
    Closed,
}

impl Disk {
    /// Opens the folder, or makes it.
    ///
    /// # Errors
    /// That of making or listing it.
    pub(super) fn open(folder: &str) -> Result<Self> {
        if !is_usable(folder) {
            return Err(Error::config(format!("cache(): {folder} holds something else than a cache"))
                .with_hint("name an empty folder, or one that does not exist"));
        }
        fs::create_dir_all(folder).map_err(|e| Error::io("make the folder", folder, e))?;
        let this = Self {
            folder: folder.trim_end_matches('/').to_owned(),
            store: LocalStore::new(),
            found: Mutex::default(),
            read: Mutex::default(),
            writer: Mutex::new(Writer::Idle),
            problem: Mutex::default(),
        };
        this.refresh();
        Ok(this)
    }

    pub(super) fn folder(&self) -> &str {
        &self.folder
    }

    pub(super) fn problem(&self) -> Option<String> {
        lock(&self.problem).clone()
    }

    fn data_path(&self, segment: u32) -> String {
        format!("{}/{segment:03}.data", self.folder)
    }

    fn list_path(&self, segment: u32) -> String {
        format!("{}/{segment:03}.list", self.folder)
    }

    /// Bytes of all data that are listed.
    pub(super) fn bytes(&self) -> u64 {
        lock(&self.found).values().map(|location| location.length + ENTRY as u64).sum()
    }

    /// Reads what was added to the lists since the last time.
    pub(super) fn refresh(&self) {
        let mut read = lock(&self.read);
        for segment in 0..MAX_SEGMENTS {
            let Ok(size) = self.store.size(&self.list_path(segment)) else { break };
            let known = read.get(&segment).copied().unwrap_or(0);
            // The own list is known; one that shrank was cut by a new writer, who found its end damaged.
            let from = if known > size { 0 } else { known };
            let Some(length) = usize::try_from(size - from).ok() else { continue };
            let mut bytes = Vec::new();
            if length == 0
                || self.store.read_range(&self.list_path(segment), from, length, &mut bytes).is_err()
            {
                continue;
            }
            let mut entries = bytes.as_slice();
            if from == 0 {
                match entries.strip_prefix(LIST_MAGIC) {
                    Some(rest) => entries = rest,
                    None => continue,
                }
            }
            let whole: Vec<_> = entries.chunks_exact(ENTRY).map_while(|e| parse_entry(e, segment)).collect();
            let header = if from == 0 { LIST_MAGIC.len() } else { 0 };
            read.insert(segment, from + (header + whole.len() * ENTRY) as u64);
            lock(&self.found).extend(whole);
        }
    }

    /// The stamp that the sample had when it was stored.
    pub(super) fn stamp(&self, key: u64) -> Option<u64> {
        lock(&self.found).get(&key).map(|location| location.stamp)
    }

    /// Forgets a sample that turned out to be damaged or of another time.
    pub(super) fn forget(&self, key: u64) {
        lock(&self.found).remove(&key);
    }

    /// Reads a sample into `record`, whose fields are reset; false if it is not here or damaged.
    pub(super) fn read(&self, key: u64, record: &mut Record) -> bool {
        let location = lock(&self.found).get(&key).copied();
        location.is_some_and(|location| self.read_at(key, location, record).is_some())
    }

    fn read_at(&self, key: u64, location: Location, record: &mut Record) -> Option<()> {
        let Location { segment, stamp, offset, length } = location;
        let path = self.data_path(segment);
        let fields = record.values.len();
        let head_len = 32 + 24 * fields;
        let mut head = Vec::new();
        if length < head_len as u64 {
            return None;
        }
        self.store.read_range(&path, offset, head_len, &mut head).ok()?;
        let (numbers, sum) = head.split_at(head_len - 8);
        let sum_fits = sum == rapidhash::v3::rapidhash_v3(numbers).to_le_bytes();
        let numbers: Vec<u64> = numbers.as_chunks().0.iter().map(|n| u64::from_le_bytes(*n)).collect();
        if !sum_fits || numbers[..3] != [key, stamp, fields as u64] {
            return None;
        }
        let mut at = offset + head_len as u64;
        let end = offset + length;
        for (i, numbers) in numbers[3..].chunks_exact(3).enumerate() {
            let &[what, place, number] = numbers else { return None };
            record.offsets[i] = place;
            match what {
                0 => record.values[i] = Value::Empty,
                2 => record.values[i] = Value::Int(number as i64),
                1 => {
                    let next = at.checked_add(number)?.checked_add(8).filter(|next| *next <= end)?;
                    if number / 8 > record.limits.max_bytes {
                        return None;
                    }
                    let buffer = record.values[i].buffer();
                    self.store.read_range(&path, at, usize::try_from(number).ok()? + 8, buffer).ok()?;
                    let (bytes, sum) = buffer.split_last_chunk::<8>()?;
                    if *sum != rapidhash::v3::rapidhash_v3(bytes).to_le_bytes() {
                        return None;
                    }
                    buffer.truncate(number as usize);
                    at = next;
                }
                _ => return None,
            }
        }
        Some(())
    }

    /// Bytes on disk of a sample.
    pub(super) fn size(&self, blobs: &[Blob<'_>]) -> u64 {
        let values = blobs.iter().map(|blob| match blob {
            Blob::Bytes { bytes, .. } => bytes.len() as u64 + 8,
            _ => 0,
        });
        (32 + 24 * blobs.len() + ENTRY) as u64 + values.sum::<u64>()
    }

    /// Stores a sample.
    ///
    /// # Errors
    /// That of writing; nothing is written after it.
    pub(super) fn append(&self, key: u64, stamp: u64, blobs: &[Blob<'_>]) -> io::Result<()> {
        let mut head = Vec::with_capacity(32 + 24 * blobs.len());
        let numbers = [key, stamp, blobs.len() as u64].into_iter();
        for number in numbers.chain(blobs.iter().flat_map(Blob::numbers)) {
            head.extend_from_slice(&number.to_le_bytes());
        }
        put_sum(&mut head, 0);
        let sums: Vec<[u8; 8]> = blobs
            .iter()
            .map(|blob| match blob {
                Blob::Bytes { bytes, .. } => rapidhash::v3::rapidhash_v3(bytes).to_le_bytes(),
                _ => [0; 8],
            })
            .collect();
        let mut writer = lock(&self.writer);
        let result = self.write(&mut writer, key, stamp, &head, blobs, &sums);
        if let Err(error) = &result {
            *lock(&self.problem) = Some(format!("cannot write to {}: {error}", self.folder));
            *writer = Writer::Closed;
        }
        result
    }

    fn write(
        &self,
        writer: &mut Writer,
        key: u64,
        stamp: u64,
        head: &[u8],
        blobs: &[Blob<'_>],
        sums: &[[u8; 8]],
    ) -> io::Result<()> {
        if matches!(writer, Writer::Idle) {
            *writer = self.start_writing()?;
        }
        let Writer::Open { segment, data, end, list, listed, pending } = writer else {
            return Err(io::Error::other("writing failed before"));
        };
        let offset = *end;
        data.write_all(head)?;
        let mut length = head.len() as u64;
        for (blob, sum) in blobs.iter().zip(sums) {
            if let Blob::Bytes { bytes, .. } = blob {
                data.write_all(bytes)?;
                data.write_all(sum)?;
                length += bytes.len() as u64 + 8;
            }
        }
        *end += length;
        let start = pending.len();
        for number in [key, stamp, offset, length] {
            pending.extend_from_slice(&number.to_le_bytes());
        }
        put_sum(pending, start);
        let location = Location { segment: *segment, stamp, offset, length };
        if pending.len() >= FLUSH {
            write_entries(list, listed, pending)?;
        }
        lock(&self.found).insert(key, location);
        Ok(())
    }

    /// Takes the first segment that nobody writes to, or a new one, and cuts off what is not whole.
    fn start_writing(&self) -> io::Result<Writer> {
        for segment in 0..MAX_SEGMENTS {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false);
            let mut list = options.open(self.list_path(segment))?;
            match list.try_lock() {
                Ok(()) => {}
                Err(fs::TryLockError::WouldBlock) => continue,
                // Without locks another process may be writing to what exists.
                Err(fs::TryLockError::Error(_)) if list.metadata()?.len() > 0 => continue,
                Err(fs::TryLockError::Error(_)) => {}
            }
            let mut data = options.open(self.data_path(segment))?;
            let bytes = fs::read(self.list_path(segment))?;
            let entries = bytes.strip_prefix(LIST_MAGIC).unwrap_or_default();
            let whole: Vec<_> = entries.chunks_exact(ENTRY).map_while(|e| parse_entry(e, segment)).collect();
            let ends = whole.iter().map(|(_, location)| location.offset.saturating_add(location.length));
            let end = ends.max().unwrap_or(0).max(DATA_MAGIC.len() as u64);
            let listed = (LIST_MAGIC.len() + whole.len() * ENTRY) as u64;
            list.set_len(listed)?;
            list.write_all(LIST_MAGIC)?;
            // Longer data were not listed; shorter ones lost what was: their checksums will not fit.
            data.set_len(end)?;
            data.write_all(DATA_MAGIC)?;
            data.seek(SeekFrom::Start(end))?;
            return Ok(Writer::Open { segment, data, end, list, listed, pending: Vec::new() });
        }
        Err(io::Error::other(format!("more than {MAX_SEGMENTS} processes write to {}", self.folder)))
    }

    /// Lists what was stored.
    pub(super) fn flush(&self) {
        if let Writer::Open { list, listed, pending, segment, .. } = &mut *lock(&self.writer) {
            match write_entries(list, listed, pending) {
                // What this process wrote is known to it.
                Ok(()) => drop(lock(&self.read).insert(*segment, *listed)),
                Err(error) => {
                    *lock(&self.problem) = Some(format!("cannot write to {}: {error}", self.folder));
                }
            }
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Writes `pending` behind what is `listed`, and empties it. What an earlier attempt wrote in part, on a full disk, is
/// overwritten, so that entries stay where readers look for them.
fn write_entries(list: &mut (impl Write + Seek), listed: &mut u64, pending: &mut Vec<u8>) -> io::Result<()> {
    list.seek(SeekFrom::Start(*listed))?;
    list.write_all(pending)?;
    *listed += pending.len() as u64;
    pending.clear();
    Ok(())
}

/// Appends the checksum of what begins at `start`.
fn put_sum(bytes: &mut Vec<u8>, start: usize) {
    let sum = rapidhash::v3::rapidhash_v3(&bytes[start..]);
    bytes.extend_from_slice(&sum.to_le_bytes());
}

fn parse_entry(entry: &[u8], segment: u32) -> Option<(u64, Location)> {
    let (numbers, sum) = entry.split_last_chunk::<8>()?;
    if *sum != rapidhash::v3::rapidhash_v3(numbers).to_le_bytes() {
        return None;
    }
    let number = |i: usize| Some(u64::from_le_bytes(*numbers.as_chunks().0.get(i)?));
    let (offset, length) = (number(2)?, number(3)?);
    offset.checked_add(length)?;
    Some((number(0)?, Location { segment, stamp: number(1)?, offset, length }))
}

/// True if `path` may hold a cache: it does not exist, is empty, or has a segment of one.
fn is_usable(path: &str) -> bool {
    let Ok(mut entries) = fs::read_dir(path) else { return !Path::new(path).exists() };
    entries.next().is_none() || Path::new(path).join("000.list").exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file on a disk that is full at `room` bytes.
    struct Full {
        bytes: io::Cursor<Vec<u8>>,
        room: usize,
    }

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let left = self.room.saturating_sub(self.bytes.position() as usize);
            if left == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.bytes.write(&bytes[..bytes.len().min(left)])
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Seek for Full {
        fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
            self.bytes.seek(to)
        }
    }

    #[test]
    fn entries_that_were_written_in_part_do_not_shift_later_ones() {
        let entry = |key: u64| {
            let mut entry: Vec<u8> = [key, 2, 3, 4].into_iter().flat_map(u64::to_le_bytes).collect();
            put_sum(&mut entry, 0);
            entry
        };
        let mut list = Full { bytes: io::Cursor::new(LIST_MAGIC.to_vec()), room: 70 };
        let (mut listed, mut pending) = (8, [entry(1), entry(2)].concat());
        assert!(write_entries(&mut list, &mut listed, &mut pending).is_err());
        assert_eq!((listed, pending.len(), list.bytes.get_ref().len()), (8, 2 * ENTRY, 70));
        list.room = 1000;
        pending.extend(entry(3));
        write_entries(&mut list, &mut listed, &mut pending).unwrap();
        let entries = &list.bytes.get_ref()[8..];
        let keys: Vec<_> = entries.chunks(ENTRY).map(|e| parse_entry(e, 0).map(|(key, _)| key)).collect();
        assert_eq!((keys, pending.len()), (vec![Some(1), Some(2), Some(3)], 0));
    }
}
