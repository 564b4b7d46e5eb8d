//! Filters that chunks went through when they were written: section "IV.A.2.l". Undone in the opposite order.
//!
//! Ids beyond 256 are registered with The HDF Group.

use std::cell::RefCell;

use libdeflater::{DecompressionError, Decompressor};
use wellfed::{Error, ErrorKind, Result};

use crate::{
    bitshuffle::Bitshuffle, blosc, checksum::fletcher32, cursor::Cursor, lz4, lzf, scaleoffset::ScaleOffset,
};

/// Filters of one data set, at most: what the library allows.
const MOST: usize = 32;

/// Bytes that a thread keeps for the next chunk.
const KEPT: usize = 4 << 20;

/// What was done to chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    /// zlib (1).
    Deflate,
    /// First bytes of all elements of this size first (2).
    Shuffle(usize),
    /// A checksum behind the data (3).
    Fletcher32,
    /// Nothing: what nbit (5) and scale-offset (6) do to numbers that keep all of their bits.
    Untouched,
    /// Few bits of each number (6).
    ScaleOffset(ScaleOffset),
    /// h5py's LZF (32000).
    Lzf,
    /// Blosc (32001).
    Blosc,
    /// LZ4 (32004).
    Lz4,
    /// First bits of all elements first, packed or not (32008).
    Bitshuffle(Bitshuffle),
    /// Zstandard (32015).
    Zstd,
}

impl Filter {
    /// Bytes, at most, by which it makes `chunk` bytes more.
    fn growth(self, chunk: u64) -> u64 {
        match self {
            Self::Shuffle(_) | Self::Untouched => 0,
            Self::Fletcher32 => 4,
            // Heads, and what they say of each block: more than any of them writes if blocks have 32 bytes or more.
            _ => chunk / 8 + 64,
        }
    }

    fn packs(self) -> bool {
        !matches!(self, Self::Shuffle(_) | Self::Untouched | Self::Fletcher32)
    }
}

/// Bytes, at most, of a chunk that these filters have gone over.
fn most_after(filters: &[Filter], chunk: u64) -> u64 {
    filters.iter().fold(chunk, |most, filter| most.saturating_add(filter.growth(chunk)))
}

fn named(id: u16) -> &'static str {
    match id {
        4 => " (szip)",
        5 => " (nbit of numbers that do not use all of their bits)",
        307 => " (bzip2)",
        32013 => " (zfp)",
        32017 => " (sz)",
        32024 => " (sz3)",
        32026 => " (blosc2)",
        _ => "",
    }
}

/// Reads the message that names the filters, in the order in which they were applied.
///
/// # Errors
/// [`ErrorKind::Unsupported`] for a filter that is not known, with its id; [`ErrorKind::Corrupt`] for damage.
pub(crate) fn read(mut cursor: Cursor<'_>) -> Result<Vec<Filter>> {
    let version = cursor.u8()?;
    let count = usize::from(cursor.u8()?);
    match version {
        1 => cursor.skip(6)?,
        2 => {}
        _ => return Err(cursor.damaged(&format!("its version is {version}"))),
    }
    if count > MOST {
        return Err(cursor.damaged(&format!("it has {count} filters")));
    }
    let mut filters = Vec::with_capacity(count);
    for _ in 0..count {
        let id = cursor.u16()?;
        let name = if version == 1 || id >= 256 { usize::from(cursor.u16()?) } else { 0 };
        cursor.skip(2)?;
        let values = usize::from(cursor.u16()?);
        cursor.skip(if version == 1 { name.next_multiple_of(8) } else { name })?;
        let values: Vec<u32> = (0..values).map(|_| cursor.u32()).collect::<Result<_>>()?;
        cursor.skip(if version == 1 && values.len() % 2 == 1 { 4 } else { 0 })?;
        let stated = |result: std::result::Result<Filter, String>| result.map_err(|why| cursor.damaged(&why));
        filters.push(match id {
            1 => Filter::Deflate,
            2 => Filter::Shuffle(values.first().map_or(0, |size| *size as usize)),
            3 => Filter::Fletcher32,
            // Numbers that do not use all of their bits are no elements here.
            5 if values.get(1).is_some_and(|untouched| *untouched != 0) => Filter::Untouched,
            6 => stated(
                ScaleOffset::read(&values).map(|how| how.map_or(Filter::Untouched, Filter::ScaleOffset)),
            )?,
            32000 => Filter::Lzf,
            32001 => Filter::Blosc,
            32004 => Filter::Lz4,
            32008 => stated(Bitshuffle::read(&values).map(Filter::Bitshuffle))?,
            32015 => Filter::Zstd,
            id => {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    format!("its chunks went through filter {id}{}, which is not supported", named(id)),
                )
                .with_hint(
                    "known are gzip, shuffle, fletcher32, scaleoffset, lzf, lz4, zstd, bitshuffle and blosc \
                     (version 1): write it again with one of those",
                ));
            }
        });
    }
    Ok(filters)
}

/// What a thread unpacks with.
#[derive(Default)]
pub(crate) struct Tools {
    /// For one block of a chunk.
    pub(crate) block: Vec<u8>,
    inflate: Option<Decompressor>,
    zstd: Option<zstd::bulk::Decompressor<'static>>,
}

fn damaged(name: &str, from: usize, to: usize, why: impl std::fmt::Display) -> Error {
    Error::corrupt(format!("it cannot be unpacked ({name}): {from} bytes for up to {to}: {why}"))
}

fn full(name: &str, made: usize, to: &[u8]) -> Result<()> {
    if made == to.len() {
        return Ok(());
    }
    Err(Error::corrupt(format!("it cannot be unpacked ({name}): it has {made} bytes, not {}", to.len())))
}

impl Tools {
    /// Unpacks at most as much as `to` holds. Gives the bytes that were made.
    fn inflate(&mut self, packed: &[u8], to: &mut [u8]) -> Result<usize> {
        let most = to.len();
        // Its checksum is compared as well.
        self.inflate.get_or_insert_default().zlib_decompress(packed, to).map_err(|e| {
            Error::corrupt(match e {
                DecompressionError::BadData => {
                    let len = packed.len();
                    format!("it cannot be unpacked (gzip): it was cut, or one of its {len} bytes changed")
                }
                DecompressionError::InsufficientSpace => {
                    format!("it cannot be unpacked (gzip): it has more than {most} bytes")
                }
            })
        })
    }

    /// Unpacks at most as much as `to` holds. Gives the bytes that were made.
    fn unzstd(&mut self, packed: &[u8], to: &mut [u8]) -> Result<usize> {
        let tool = match &mut self.zstd {
            Some(tool) => tool,
            None => {
                let tool = zstd::bulk::Decompressor::new();
                let tool = tool.map_err(|e| Error::new(ErrorKind::Limit, format!("no memory for zstd: {e}")));
                self.zstd.insert(tool?)
            }
        };
        tool.decompress_to_buffer(packed, to).map_err(|e| damaged("zstd", packed.len(), to.len(), e))
    }

    /// Fills `to` with what was packed by zlib.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] for damage, and if it is less or more.
    pub(crate) fn zlib(&mut self, packed: &[u8], to: &mut [u8]) -> Result<()> {
        self.inflate(packed, to).and_then(|made| full("gzip", made, to))
    }

    /// The same of Zstandard.
    ///
    /// # Errors
    /// As of [`Tools::zlib`].
    pub(crate) fn zstd(&mut self, packed: &[u8], to: &mut [u8]) -> Result<()> {
        self.unzstd(packed, to).and_then(|made| full("zstd", made, to))
    }

    /// The same of Snappy, without a frame.
    ///
    /// # Errors
    /// As of [`Tools::zlib`].
    pub(crate) fn snappy(&mut self, packed: &[u8], to: &mut [u8]) -> Result<()> {
        let made = snap::raw::Decoder::new().decompress(packed, to);
        let made = made.map_err(|e| damaged("snappy", packed.len(), to.len(), e))?;
        full("snappy", made, to)
    }
}

/// Blocks one after the other, each behind its size (big-endian).
pub(crate) struct Blocks<'a> {
    left: &'a [u8],
}

impl<'a> Blocks<'a> {
    pub(crate) fn new(left: &'a [u8]) -> Self {
        Self { left }
    }

    /// So many bytes. An error is what is wrong.
    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], String> {
        let left = self.left.len();
        let (taken, rest) = (self.left.split_at_checked(len))
            .ok_or_else(|| format!("it goes on with {len} bytes, but {left} are left"))?;
        self.left = rest;
        Ok(taken)
    }

    /// The next block.
    pub(crate) fn next(&mut self) -> Result<&'a [u8], String> {
        let len = self.take(4)?;
        self.take(u32::from_be_bytes([len[0], len[1], len[2], len[3]]) as usize)
    }
}

/// Memory of a thread that unpacks chunks.
#[derive(Default)]
struct Scratch {
    packed: Vec<u8>,
    unpacked: Vec<u8>,
    tools: Tools,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Bytes that undoing filters takes beside the result.
pub(crate) fn scratch_bytes(filters: &[Filter], stored: u64, chunk: u64) -> u64 {
    // What the last one that packs was given is the most that anything is unpacked to.
    let last = filters.iter().rposition(|filter| filter.packs()).unwrap_or(0);
    let most = most_after(&filters[..last], chunk);
    // A block is no larger than all of them.
    let blocks = filters.iter().any(|filter| matches!(filter, Filter::Blosc | Filter::Bitshuffle(_)));
    stored.max(most).saturating_add(most).saturating_add(if blocks { most } else { 0 })
}

/// Undoes the filters of one chunk: `read` appends what is stored. Appends exactly `chunk` bytes to `into`. A bit in `mask` means
/// that the filter of its number was left out.
///
/// # Errors
/// [`ErrorKind::Corrupt`] for damage; those of `read`.
pub(crate) fn undo(
    filters: &[Filter],
    mask: u32,
    chunk: usize,
    read: impl FnOnce(&mut Vec<u8>) -> Result<()>,
    into: &mut Vec<u8>,
) -> Result<()> {
    SCRATCH.with_borrow_mut(|scratch| {
        scratch.packed.clear();
        let result = read(&mut scratch.packed).and_then(|()| scratch.undo(filters, mask, chunk, into));
        for buffer in [&mut scratch.packed, &mut scratch.unpacked, &mut scratch.tools.block] {
            if buffer.capacity() > KEPT {
                *buffer = Vec::new();
            }
        }
        result
    })
}

impl Scratch {
    fn undo(&mut self, filters: &[Filter], mask: u32, chunk: usize, into: &mut Vec<u8>) -> Result<()> {
        let applied = |number: usize| mask >> number & 1 == 0;
        for (number, filter) in filters.iter().enumerate().rev() {
            if !applied(number) {
                continue;
            }
            // What filters before it have added is part of what is unpacked.
            let most = usize::try_from(most_after(&filters[..number], chunk as u64)).unwrap_or(usize::MAX);
            let Self { packed, unpacked, tools } = self;
            match filter {
                Filter::Fletcher32 => {
                    let len = packed.len();
                    let short = || Error::corrupt(format!("its {len} bytes have no room for its checksum"));
                    let end = len.checked_sub(4).ok_or_else(short)?;
                    let (data, stated) = packed.split_at(end);
                    let stated = u32::from_le_bytes([stated[0], stated[1], stated[2], stated[3]]);
                    let found = fletcher32(data);
                    if found != stated {
                        return Err(Error::corrupt(format!("its checksum is {found:08x}, not {stated:08x}")));
                    }
                    packed.truncate(end);
                    continue;
                }
                Filter::Untouched => continue,
                Filter::Deflate => {
                    let made = tools.inflate(packed, sized(unpacked, most)?)?;
                    unpacked.truncate(made);
                }
                Filter::Zstd => {
                    let made = tools.unzstd(packed, sized(unpacked, most)?)?;
                    unpacked.truncate(made);
                }
                Filter::Lzf => {
                    sized(unpacked, 0)?;
                    room(unpacked, most)?;
                    lzf::unpack(packed, most, unpacked)
                        .ok_or_else(|| damaged("lzf", packed.len(), most, "it was cut, or a byte changed"))?;
                }
                Filter::Lz4 => lz4::unpack(packed, most, unpacked)?,
                Filter::Blosc => blosc::unpack(packed, most, tools, unpacked)?,
                Filter::Bitshuffle(how) => how.unpack(packed, most, tools, unpacked)?,
                Filter::ScaleOffset(how) => how.unpack(packed, most, unpacked)?,
                Filter::Shuffle(size) => {
                    if packed.len() > most {
                        return Err(Error::corrupt(format!("it has {} bytes, not {most}", packed.len())));
                    }
                    unshuffle(packed, *size, sized(unpacked, packed.len())?);
                }
            }
            std::mem::swap(&mut self.packed, &mut self.unpacked);
        }
        if self.packed.len() != chunk {
            return Err(Error::corrupt(format!("it has {} bytes, not {chunk}", self.packed.len())));
        }
        room(into, chunk)?;
        into.extend_from_slice(&self.packed);
        Ok(())
    }
}

fn room(into: &mut Vec<u8>, bytes: usize) -> Result<()> {
    into.try_reserve_exact(bytes)
        .map_err(|_| Error::new(ErrorKind::Limit, format!("no memory for {bytes} bytes of a chunk")))
}

/// Makes `into` have `len` bytes, whatever they are, and no more memory than it had or they take.
///
/// # Errors
/// [`ErrorKind::Limit`] without memory.
pub(crate) fn sized(into: &mut Vec<u8>, len: usize) -> Result<&mut [u8]> {
    if into.capacity() < len {
        // What it held is not to be copied.
        into.clear();
        room(into, len)?;
    }
    into.resize(len, 0);
    Ok(into)
}

/// Puts the bytes of elements of `size` bytes together again. What is no whole element stays as it is. `from` and `to` have the
/// same length.
pub(crate) fn unshuffle(from: &[u8], size: usize, to: &mut [u8]) {
    let count = from.len().checked_div(size).unwrap_or(0);
    if size <= 1 || count == 0 {
        to.copy_from_slice(from);
        return;
    }
    let (whole, rest) = to.split_at_mut(count * size);
    rest.copy_from_slice(&from[count * size..]);
    match size {
        2 => unshuffle_of::<2>(from, whole),
        4 => unshuffle_of::<4>(from, whole),
        8 => unshuffle_of::<8>(from, whole),
        _ => {
            for (byte, part) in from[..count * size].chunks_exact(count).enumerate() {
                for (element, value) in whole.chunks_exact_mut(size).zip(part) {
                    element[byte] = *value;
                }
            }
        }
    }
}

fn unshuffle_of<const SIZE: usize>(from: &[u8], to: &mut [u8]) {
    // Parts of one known length need no checks in the loop.
    let count = to.len() / SIZE;
    let parts: [&[u8]; SIZE] = std::array::from_fn(|byte| &from[byte * count..][..count]);
    for (i, element) in to.as_chunks_mut::<SIZE>().0.iter_mut().enumerate() {
        *element = std::array::from_fn(|byte| parts[byte][i]);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::tests::{Packed, of_plugins};

    fn shuffled(data: &[u8], size: usize) -> Vec<u8> {
        let count = data.len() / size;
        let mut out: Vec<u8> = (0..size).flat_map(|b| (0..count).map(move |i| data[i * size + b])).collect();
        out.extend_from_slice(&data[count * size..]);
        out
    }

    fn deflated(data: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    fn summed(mut data: Vec<u8>) -> Vec<u8> {
        let sum = fletcher32(&data);
        data.extend(sum.to_le_bytes());
        data
    }

    fn run(filters: &[Filter], mask: u32, chunk: usize, stored: &[u8]) -> Result<Vec<u8>> {
        let mut into = Vec::new();
        let read = |packed: &mut Vec<u8>| {
            packed.extend_from_slice(stored);
            Ok(())
        };
        undo(filters, mask, chunk, read, &mut into)?;
        Ok(into)
    }

    #[test]
    fn filters_are_undone_in_the_opposite_order() {
        let data: Vec<u8> = (0..1000_u32).map(|i| (i * i / 7 % 251) as u8).collect();
        for size in [1, 2, 3, 4, 7, 8, 16, 2000] {
            let all = [Filter::Shuffle(size), Filter::Deflate, Filter::Fletcher32];
            let stored = summed(deflated(&shuffled(&data, size)));
            assert_eq!(run(&all, 0, 1000, &stored).unwrap(), data, "{size}");
            // Left out: everything but shuffling.
            assert_eq!(run(&all, 0b110, 1000, &shuffled(&data, size)).unwrap(), data);
        }
        let before = [Filter::Fletcher32, Filter::Zstd];
        let stored = zstd::bulk::compress(&summed(data.clone()), 3).unwrap();
        assert_eq!(run(&before, 0, 1000, &stored).unwrap(), data);
        assert_eq!(run(&[], 0, 1000, &data).unwrap(), data);
    }

    #[test]
    fn no_more_memory_is_taken_than_is_said() {
        for (name, Packed { filters, bytes, chunks }) in of_plugins() {
            for (mask, stored) in chunks {
                let (mut scratch, mut into) =
                    (Scratch { packed: stored.clone(), ..Scratch::default() }, vec![]);
                scratch.undo(&filters, mask, bytes, &mut into).unwrap();
                let taken = [&scratch.packed, &scratch.unpacked, &scratch.tools.block];
                let taken: usize = taken.into_iter().map(Vec::capacity).sum();
                let said = scratch_bytes(&filters, stored.len() as u64, bytes as u64);
                assert!(taken as u64 <= said, "{name}: {taken} bytes, not {said}");
            }
        }
    }

    #[test]
    fn no_more_is_unpacked_than_a_chunk_has() {
        let zeros = vec![0; 1 << 20];
        for (filter, stored) in [
            (Filter::Deflate, deflated(&zeros)),
            (Filter::Zstd, zstd::bulk::compress(&zeros, 3).unwrap()),
            (Filter::Deflate, deflated(&zeros[..500])),
            (Filter::Lzf, vec![2, 1, 2, 3]),
            (Filter::Fletcher32, vec![1, 2]),
            (Filter::Shuffle(4), vec![0; 999]),
            (Filter::Shuffle(4), vec![0; 1001]),
            (Filter::Bitshuffle(Bitshuffle::read(&[0, 4, 1]).unwrap()), vec![0; 1001]),
        ] {
            let e = run(&[filter], 0, 1000, &stored).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Corrupt, "{filter:?}: {e}");
        }
    }

    #[test]
    fn a_byte_that_changed_is_found() {
        let data: Vec<u8> = (0..1000_u32).map(|i| (i % 7) as u8).collect();
        for (filter, stored) in
            [(Filter::Deflate, deflated(&data)), (Filter::Fletcher32, summed(data.clone()))]
        {
            for at in 0..stored.len() {
                let mut bad = stored.clone();
                bad[at] ^= 0x11;
                if let Ok(found) = run(&[filter], 0, 1000, &bad) {
                    // A bit of zlib's head that says how hard it tried.
                    assert!(found == data && at < 2, "{filter:?}: byte {at}");
                }
            }
            for cut in 0..stored.len() {
                assert!(run(&[filter], 0, 1000, &stored[..cut]).is_err(), "{filter:?}: cut at {cut}");
            }
        }
    }
}
