//! [`Shards`]: samples in order into tar shards, each of which appears complete or not at all.
//!
//! A shard ends where one more sample would make it too large; that is known of the samples alone, so that the same
//! samples give the same bytes. While one shard is made safe from a crash, the next one is being written.

use std::{
    sync::{
        Mutex,
        mpsc::{Receiver, SyncSender},
    },
    time::Instant,
};

use crc32fast::Hasher;

use super::{
    Progress,
    disk::{Disk, Part},
    make::Made,
    manifest::{Listed, Manifest, Skipped},
    names::{Keys, Place},
    tar,
};
use crate::{Error, ErrorKind, Result, lock, source::Shard, store::LocalStore};

/// Bytes that are handed to the system at once.
const BUFFER: usize = 1 << 20;

/// Where shards end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Most {
    pub(super) bytes: u64,
    pub(super) samples: u64,
}

/// A shard with all of its samples, that has not its own name yet.
pub(super) struct Closed<'a> {
    part: Part<'a>,
    listed: Listed,
    skipped: Vec<Skipped>,
}

/// Writes shards, one after the other.
pub(super) struct Shards<'a> {
    pub(super) disk: &'a dyn Disk,
    pub(super) place: &'a Place,
    pub(super) most: Most,
    pub(super) progress: &'a Progress,
    /// Where closed shards go.
    pub(super) closed: SyncSender<Closed<'a>>,
    /// Number of the next shard.
    pub(super) number: u64,
    /// The position at which it begins.
    pub(super) start: u64,
    pub(super) open: Option<Open<'a>>,
    pub(super) keys: Keys,
    /// Since the last shard was closed.
    pub(super) skipped: Vec<Skipped>,
}

/// A shard that is being written.
pub(super) struct Open<'a> {
    part: Part<'a>,
    buffer: Vec<u8>,
    bytes: u64,
    samples: u64,
    crc: Hasher,
}

impl Open<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes += bytes.len() as u64;
        if self.buffer.len() + bytes.len() > BUFFER {
            self.flush()?;
        }
        if bytes.len() >= BUFFER {
            self.crc.update(bytes);
            return self.part.write(bytes);
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.crc.update(&self.buffer);
        self.part.write(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}

impl Shards<'_> {
    /// Appends the sample at `position`.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn add(&mut self, position: u64, sample: &Made) -> Result<()> {
        let (mut key, mut headers) = self.headers(sample)?;
        let data: u64 = sample.files.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        let padding: usize = sample.files.iter().map(|(_, bytes)| tar::padding(bytes.len() as u64)).sum();
        let size =
            |headers: &[Vec<u8>]| data + (padding + headers.iter().map(Vec::len).sum::<usize>()) as u64;
        let full = self.open.as_ref().is_some_and(|open| {
            open.samples >= self.most.samples
                || open.bytes + size(&headers) + tar::END as u64 > self.most.bytes
        });
        if full {
            self.close(position)?;
            // In another shard the key may be free.
            (key, headers) = self.headers(sample)?;
        }
        let open = match &mut self.open {
            Some(open) => open,
            None => {
                let part = Part::create(self.disk, &self.place.folder, &self.place.shard(self.number))?;
                let buffer = Vec::with_capacity(BUFFER);
                self.open.insert(Open { part, buffer, bytes: 0, samples: 0, crc: Hasher::new() })
            }
        };
        for (header, (_, bytes)) in headers.iter().zip(&sample.files) {
            open.put(header)?;
            open.put(bytes)?;
            open.put(&[0; tar::BLOCK][..tar::padding(bytes.len() as u64)])?;
        }
        open.samples += 1;
        self.keys.take(key);
        self.progress.wrote(size(&headers));
        Ok(())
    }

    /// The key of a sample in this shard, and a header for each of its files.
    fn headers(&self, sample: &Made) -> Result<(String, Vec<Vec<u8>>)> {
        let key = self.keys.unique(&sample.name);
        let headers = sample.files.iter().map(|(extension, bytes)| {
            let mut header = Vec::with_capacity(tar::BLOCK);
            tar::header(&format!("{key}.{extension}"), bytes.len() as u64, &mut header)?;
            Ok(header)
        });
        let headers = headers.collect::<Result<_>>()?;
        Ok((key, headers))
    }

    /// Leaves out the sample at `position`.
    pub(super) fn skip(&mut self, position: u64, error: &Error) {
        self.skipped.push(Skipped {
            position,
            key: error.key().unwrap_or_default().to_owned(),
            kind: error.kind().name().to_owned(),
            message: error.message().to_owned(),
        });
        self.progress.skipped();
    }

    /// Ends the shard before the sample at `end`.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn close(&mut self, end: u64) -> Result<()> {
        let Some(mut open) = self.open.take() else { return Ok(()) };
        open.put(&[0; tar::END])?;
        open.flush()?;
        let Open { part, bytes, samples, crc, .. } = open;
        let crc32 = format!("{:08x}", crc.finalize());
        let name = self.place.shard(self.number);
        let listed = Listed { name, start: self.start, end, samples, bytes, crc32 };
        let closed = Closed { part, listed, skipped: std::mem::take(&mut self.skipped) };
        (self.number, self.start) = (self.number + 1, end);
        self.keys.clear();
        // Where it is not taken, something has failed there, and that is the error.
        self.closed.send(closed).map_err(|_| Error::new(ErrorKind::State, "shards are no longer taken"))
    }
}

/// Gives closed shards their names, and lists them.
///
/// # Errors
/// Those of the system; what the shard's reader says of it.
pub(super) fn finish(
    closed: Receiver<Closed<'_>>,
    manifest: &Mutex<Manifest>,
    disk: &dyn Disk,
    place: &Place,
    progress: &Progress,
) -> Result<()> {
    let store = LocalStore::with_open_files(1);
    for Closed { part, listed, skipped } in closed {
        let start = Instant::now();
        let path = part.finish()?;
        // Read as it will be read, by the headers alone: a shard that is listed is one that can be read.
        let shard = Shard::open(&store, &path.to_string_lossy())?;
        if shard.len() != listed.samples {
            let message =
                format!("shard {} holds {} samples, and not {}", listed.name, shard.len(), listed.samples);
            return Err(Error::new(ErrorKind::Internal, message));
        }
        shard.keep_index(&store);
        let mut manifest = lock(manifest);
        manifest.shards.push(listed);
        manifest.skipped.extend(skipped);
        manifest.save(disk, place)?;
        progress.finished(start.elapsed());
    }
    Ok(())
}
