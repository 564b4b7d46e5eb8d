//! Compressed TFRecord files, tar shards and CSV files, unpacked once into a folder (`unpack_to`): there every sample has a position.
//!
//! The file there is named by where the compressed one lies, its size and its time of change, and appears whole or not at all.
//! Of a stream that is damaged what could be unpacked is kept under another name, and unpacked anew each time.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Read, Write},
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use super::{location, stamp, unpack::Packing};
use crate::{
    Error, ErrorKind, Result,
    store::{Stat, Store, secrets},
};

/// Compressed bytes that are read at once.
const CHUNK: usize = 1 << 20;

/// An unpacked file.
pub(super) struct Unpacked {
    pub(super) file: String,
    /// What is wrong with the compressed one: `file` is what came before that.
    pub(super) damage: Option<String>,
}

/// That a compressed file cannot be read, as there is no folder to unpack it into.
pub(super) fn refused(path: &str, packing: Packing) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!("{path} is compressed with {}, and so cannot be read by position", packing.name()),
    )
    .with_hint(
        "unpack_to=\"folder\" (--unpack-to folder) keeps it there unpacked, where it is read from then on",
    )
}

/// Unpacks the file `path` into `folder`, under a name that ends in `extension`, unless it is there.
pub(super) fn unpack(
    store: &dyn Store,
    path: &str,
    stat: &Stat,
    packing: Packing,
    folder: &Path,
    extension: &str,
) -> Result<Unpacked> {
    let identity = secrets::identity(path);
    let name = identity.rsplit(['/', '\\']).next().unwrap_or_default();
    let hash = stamp(&location(&identity), stat);
    let whole = folder.join(format!("{name}.{hash:016x}.{extension}"));
    let text = |path: &Path| {
        path.to_str().map(str::to_owned).ok_or_else(|| {
            Error::config(format!("the folder {} is not UTF-8", folder.display()))
                .with_hint("name another one")
        })
    };
    if whole.is_file() {
        return Ok(Unpacked { file: text(&whole)?, damage: None });
    }
    fs::create_dir_all(folder).map_err(|e| Error::io("create", folder.display(), e))?;
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let part = folder.join(format!(".{name}.{hash:016x}.{}-{number}.part", std::process::id()));
    let result = unpack_to(store, path, stat, packing, &part).and_then(|damage| {
        let damaged = folder.join(format!("{name}.{hash:016x}.damaged"));
        let file = if damage.is_some() { damaged } else { whole };
        fs::rename(&part, &file).map_err(|e| Error::io("rename", part.display(), e))?;
        Ok(Unpacked { file: text(&file)?, damage })
    });
    if result.is_err() {
        // Only half of a file would be left.
        let _ = fs::remove_file(&part);
    }
    result
}

fn unpack_to(
    store: &dyn Store,
    path: &str,
    stat: &Stat,
    packing: Packing,
    part: &Path,
) -> Result<Option<String>> {
    let file = File::create(part).map_err(|e| Error::io("create", part.display(), e))?;
    let mut out = BufWriter::with_capacity(CHUNK, file);
    let mut from = Packed { store, path, size: stat.size, at: 0, chunk: Vec::new(), used: 0, failed: None };
    let mut buffer = vec![0; CHUNK];
    let mut wrong = None;
    'streams: while wrong.is_none() && from.left() {
        let mut decoder = match packing.decoder(&mut from) {
            Ok(decoder) => decoder,
            Err(e) => {
                wrong = Some(e.to_string());
                break;
            }
        };
        loop {
            match decoder.read(&mut buffer) {
                Ok(0) => continue 'streams,
                Ok(len) => {
                    out.write_all(&buffer[..len]).map_err(|e| Error::io("write", part.display(), e))?
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    wrong = Some(e.to_string());
                    break;
                }
            }
        }
    }
    // What storage could not give is no damage of the file.
    if let Some(e) = from.failed.take()
        && e.kind() != ErrorKind::Corrupt
    {
        return Err(e);
    }
    let file = out.into_inner().map_err(|e| Error::io("write", part.display(), e.into_error()))?;
    file.sync_all().map_err(|e| Error::io("write", part.display(), e))?;
    if stat.size == 0 {
        wrong = Some("it is empty".to_owned());
    }
    Ok(wrong.map(|e| {
        format!("its {} stream of {} bytes cannot be unpacked to its end: {e}", packing.name(), stat.size)
    }))
}

/// The compressed bytes, chunk by chunk.
struct Packed<'a> {
    store: &'a dyn Store,
    path: &'a str,
    size: u64,
    at: u64,
    chunk: Vec<u8>,
    used: usize,
    failed: Option<Error>,
}

impl Packed<'_> {
    /// Whether there are bytes that were not taken.
    fn left(&self) -> bool {
        self.failed.is_none() && (self.used < self.chunk.len() || self.at < self.size)
    }
}

impl io::BufRead for Packed<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.used >= self.chunk.len() && self.at < self.size {
            self.chunk.clear();
            self.used = 0;
            let len = (self.size - self.at).min(CHUNK as u64) as usize;
            if let Err(e) = self.store.read_range(self.path, self.at, len, &mut self.chunk) {
                let text = e.message().to_owned();
                self.failed = Some(e);
                return Err(io::Error::other(text));
            }
            self.at += len as u64;
        }
        Ok(&self.chunk[self.used..])
    }

    fn consume(&mut self, len: usize) {
        self.used += len;
    }
}

impl Read for Packed<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        use io::BufRead as _;
        let available = self.fill_buf()?;
        let len = available.len().min(into.len());
        into[..len].copy_from_slice(&available[..len]);
        self.consume(len);
        Ok(len)
    }
}
