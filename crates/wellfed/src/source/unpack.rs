//! Files that are compressed as a whole, unpacked into memory: gzip and Zstandard. `unpack_to.rs` unpacks to a disk.
//!
//! Such a stream cannot be entered in its middle, so that samples in it are reached only where all of it is unpacked. What
//! does not unpack to its end, or has another checksum than it states, is an error: no byte of it is used.

use std::{
    io::{self, BufRead, Read},
    path::Path,
};

use flate2::bufread::{MultiGzDecoder, ZlibDecoder};

use super::{tables::CsvCompression, unpack_to};
use crate::{
    Error, ErrorKind, Result,
    store::{LocalStore, Store, reserve},
};

/// Bytes that a source keeps in memory of files that cannot be read by position, of all of them together.
pub(super) const UNPACKED: u64 = 4 << 30;

/// All of the file `path` when it is unpacked, for sources of other crates; `None` if it is not compressed. Takes its bytes from
/// `left`: first [`whole_files`].
///
/// # Errors
/// Those of the store; [`crate::ErrorKind::Corrupt`] for what does not unpack; [`crate::ErrorKind::Limit`] beyond `left`.
pub fn unpacked(
    store: &dyn Store,
    path: &str,
    compression: CsvCompression,
    left: &mut u64,
) -> Result<Option<Vec<u8>>> {
    let Some(packing) = packing(store, path, compression)? else { return Ok(None) };
    let hint = |e: Error| match e.kind() {
        ErrorKind::Limit => {
            e.with_hint("unpack_to=\"folder\" keeps files on local disk instead of in memory")
        }
        _ => e,
    };
    let mut packed = Vec::new();
    store.read(path, *left, &mut packed).map_err(hint)?;
    let bytes = packing.unpack(path, &packed, *left).map_err(hint)?;
    *left -= bytes.len() as u64;
    Ok(Some(bytes))
}

/// The local file that `path` is unpacked into, in `folder` and with a name that ends in `extension`, and its size; `None` if it
/// is not compressed. One that is there already is taken as it is.
///
/// # Errors
/// Those of the store and of the disk; [`ErrorKind::Corrupt`] for what does not unpack to its end.
pub fn unpacked_into(
    store: &dyn Store,
    path: &str,
    compression: CsvCompression,
    folder: &Path,
    extension: &str,
) -> Result<Option<(String, u64)>> {
    let Some(packing) = packing(store, path, compression)? else { return Ok(None) };
    let done = unpack_to::unpack(store, path, &store.stat(path)?, packing, folder, extension)?;
    if let Some(damage) = done.damage {
        return Err(Error::corrupt(format!("{path}: {damage}"))
            .with_hint("the file was cut or changed, perhaps during a copy"));
    }
    let size = LocalStore::new().size(&done.file)?;
    Ok(Some((done.file, size)))
}

fn packing(store: &dyn Store, path: &str, compression: CsvCompression) -> Result<Option<Packing>> {
    Ok(match compression {
        CsvCompression::None => None,
        CsvCompression::Gzip => Some(Packing::Gzip),
        CsvCompression::Zlib => Some(Packing::Zlib),
        CsvCompression::Zstd => Some(Packing::Zstandard),
        CsvCompression::Auto => {
            let (size, mut start) = (store.size(path)?, Vec::new());
            store.read_range(path, 0, size.min(4) as usize, &mut start)?;
            Packing::of(path, &start)
        }
    })
}

/// Bytes that a source keeps in memory of files that are compressed, of all of them together.
pub fn whole_files() -> u64 {
    UNPACKED
}

/// How a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    /// RFC 1952: has a CRC-32 and the length.
    Gzip,
    /// RFC 1950: has an Adler-32. Its two first bytes do not tell it: no file is taken for it by them.
    Zlib,
    /// RFC 8878: has a checksum if its writer wanted one (the command `zstd` does).
    Zstandard,
}

impl Packing {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zlib => "zlib",
            Self::Zstandard => "zstd",
        }
    }

    /// Gives what `packed` is when it is unpacked, to the end of its last stream, or of the first one of zlib.
    pub(super) fn decoder<'a>(self, packed: impl BufRead + 'a) -> io::Result<Box<dyn Read + 'a>> {
        Ok(match self {
            Self::Gzip => Box::new(MultiGzDecoder::new(packed)),
            Self::Zlib => Box::new(ZlibDecoder::new(packed)),
            Self::Zstandard => Box::new(zstd::stream::read::Decoder::with_buffer(packed)?),
        })
    }

    /// That of a file called `path` whose first bytes are `start`. One that is damaged at its start goes by its name.
    pub(super) fn of(path: &str, start: &[u8]) -> Option<Self> {
        let name = path.to_ascii_lowercase();
        if start.starts_with(b"\x1f\x8b") || name.ends_with(".gz") {
            Some(Self::Gzip)
        } else if start.starts_with(b"\x28\xb5\x2f\xfd") || name.ends_with(".zst") || name.ends_with(".zstd")
        {
            Some(Self::Zstandard)
        } else {
            None
        }
    }

    /// `packed`, the whole of the file `path`, unpacked: at most `max_bytes`.
    pub(super) fn unpack(self, path: &str, packed: &[u8], max_bytes: u64) -> Result<Vec<u8>> {
        let damaged = |e: std::io::Error| {
            Error::corrupt(format!("{path} cannot be unpacked: {e}"))
                .with_hint("it was cut or changed, perhaps during a copy: no part of it is used")
        };
        let mut unpacked = Vec::new();
        let mut from = self.decoder(packed).map_err(damaged)?;
        // No empty file is compressed: it was cut.
        if packed.is_empty() {
            return Err(damaged(std::io::ErrorKind::UnexpectedEof.into()));
        }
        loop {
            let room = unpacked.capacity().clamp(64 << 10, 64 << 20);
            reserve(&mut unpacked, room, path)?;
            let got = from.by_ref().take(room as u64).read_to_end(&mut unpacked).map_err(damaged)?;
            if unpacked.len() as u64 > max_bytes {
                return Err(Error::limit(
                    path,
                    unpacked.len() as u64,
                    max_bytes,
                    "bytes when it is unpacked",
                )
                .with_hint("unpack the files with `gunzip` or `unzstd`: then they are read by position"));
            }
            if got < room {
                unpacked.shrink_to_fit();
                return Ok(unpacked);
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Write;

    use super::*;

    pub(in crate::source) fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    /// With a checksum.
    pub(in crate::source) fn zstandard(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
        encoder.include_checksum(true).unwrap();
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn files_are_unpacked_whole_or_not_at_all() {
        let whole: Vec<u8> = (0..200_000_u32).flat_map(|i| (i % 977).to_le_bytes()).collect();
        for (name, packed) in [("a.gz", gzip(&whole)), ("a.zst", zstandard(&whole))] {
            let packing = Packing::of("a", &packed).unwrap();
            assert_eq!(Packing::of(name, b""), Some(packing));
            assert_eq!(packing.unpack(name, &packed, 1 << 20).unwrap(), whole);
            let twice = [packed.clone(), packed.clone()].concat();
            assert_eq!(
                packing.unpack(name, &twice, 1 << 21).unwrap(),
                [whole.clone(), whole.clone()].concat()
            );
            let e = packing.unpack(name, &packed, 1000).unwrap_err();
            assert_eq!(e.kind(), crate::ErrorKind::Limit);
            for cut in (0..packed.len()).step_by(7) {
                assert!(packing.unpack(name, &packed[..cut], 1 << 20).is_err(), "{name} cut at {cut}");
            }
            let mut random = crate::rng::Rng::for_stage(1, 0, 0, 0);
            for _ in 0..200 {
                let mut bad = packed.clone();
                let at = random.next_u32() as usize % bad.len();
                bad[at] ^= (1 + random.next_u32() % 255) as u8;
                // A flag or a time in the header may be another one.
                if let Ok(unpacked) = packing.unpack(name, &bad, 1 << 22) {
                    assert!(unpacked == whole, "{name}: byte {at}");
                }
            }
        }
        assert_eq!(Packing::of("a.jsonl", b"{}"), None);
    }
}
