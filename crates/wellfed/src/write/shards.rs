//! [`Shards`]: samples in order into shards, each of which appears complete or not at all.
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
    form::{Form, OpenShard},
    make::Made,
    manifest::{Listed, Manifest, Skipped},
    names::Place,
};
use crate::{Error, ErrorKind, Result, lock};

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
    pub(super) form: &'a dyn Form,
    pub(super) most: Most,
    pub(super) progress: &'a Progress,
    /// Where closed shards go.
    pub(super) closed: SyncSender<Closed<'a>>,
    /// Number of the next shard.
    pub(super) number: u64,
    /// The position at which it begins.
    pub(super) start: u64,
    pub(super) open: Option<Open<'a>>,
    /// Since the last shard was closed.
    pub(super) skipped: Vec<Skipped>,
}

/// A shard that is being written.
pub(super) struct Open<'a> {
    shard: Box<dyn OpenShard>,
    out: Out<'a>,
    samples: u64,
}

/// Where its bytes go.
struct Out<'a> {
    part: Part<'a>,
    buffer: Vec<u8>,
    bytes: u64,
    crc: Hasher,
}

impl Out<'_> {
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
    pub(super) fn add(&mut self, position: u64, sample: Made) -> Result<()> {
        if let Some(open) = &mut self.open
            && (open.samples >= self.most.samples || open.shard.size_with(&sample)? > self.most.bytes)
        {
            self.close(position)?;
        }
        let open = match &mut self.open {
            Some(open) => open,
            None => {
                let part = Part::create(self.disk, &self.place.folder, &self.place.shard(self.number))?;
                let buffer = Vec::with_capacity(BUFFER);
                let out = Out { part, buffer, bytes: 0, crc: Hasher::new() };
                self.open.insert(Open { shard: self.form.begin()?, out, samples: 0 })
            }
        };
        let out = &mut open.out;
        let bytes = open.shard.add(sample, &mut |bytes| out.put(bytes))?;
        open.samples += 1;
        self.progress.wrote(bytes);
        Ok(())
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
        let Some(Open { shard, mut out, samples }) = self.open.take() else { return Ok(()) };
        let about = shard.end(&mut |bytes| out.put(bytes))?;
        out.flush()?;
        let Out { part, bytes, crc, .. } = out;
        let crc32 = format!("{:08x}", crc.finalize());
        let name = self.place.shard(self.number);
        let listed = Listed { name, start: self.start, end, samples, bytes, crc32, about };
        let closed = Closed { part, listed, skipped: std::mem::take(&mut self.skipped) };
        (self.number, self.start) = (self.number + 1, end);
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
    form: &dyn Form,
    progress: &Progress,
) -> Result<()> {
    for Closed { part, listed, skipped } in closed {
        let start = Instant::now();
        let path = part.finish()?;
        // Looked at as it will be read: a shard that is listed is one that can be read.
        let found = form.look(&path, &listed)?;
        if found != listed.samples {
            let message = format!("shard {} holds {found} samples, and not {}", listed.name, listed.samples);
            return Err(Error::new(ErrorKind::Internal, message));
        }
        let mut manifest = lock(manifest);
        manifest.shards.push(listed);
        manifest.skipped.extend(skipped);
        manifest.save(disk, place)?;
        progress.finished(start.elapsed());
    }
    Ok(())
}
