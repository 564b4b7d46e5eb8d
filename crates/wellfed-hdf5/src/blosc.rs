//! The filter Blosc (32001), as version 1 of that library writes it: a head, where each block begins, and blocks that were shuffled
//! by bytes or bits and packed each by itself, whole or, as they are split, the n-th bytes of all elements as one stream each. All
//! numbers are little-endian.
//!
//! Head: version, that of the codec, flags, bytes of an element, and in four bytes each those of all, of a block, and of what is
//! stored with this head.

use wellfed::{Error, ErrorKind, Result};

use crate::{
    bitshuffle::untranspose,
    blosclz,
    filters::{Tools, sized, unshuffle},
    lz4,
};

/// The only version that was ever written by releases since 2010.
const VERSION: u8 = 2;

const HEAD: usize = 16;

/// Flags.
const SHUFFLED: u8 = 1;
const PLAIN: u8 = 2;
const SHUFFLED_BITS: u8 = 4;
const WHOLE: u8 = 16;

/// Streams of a block, at most, and bytes of each, at least: others are not split.
const STREAMS: usize = 16;
const STREAM_BYTES: usize = 128;

fn damaged(why: &str) -> Error {
    Error::corrupt(format!("it cannot be unpacked (blosc): {why}"))
}

fn number(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..)?.first_chunk::<4>()?;
    // They are signed; what is negative fits nowhere.
    usize::try_from(i32::from_le_bytes(*bytes)).ok()
}

/// What a head says.
struct Head {
    codec: u8,
    flags: u8,
    /// Bytes of an element.
    size: usize,
    /// Bytes of all.
    all: usize,
    /// Bytes of a block.
    block: usize,
}

impl Head {
    /// Reads it, and cuts `packed` to what it says is stored.
    fn read(packed: &mut &[u8], most: usize) -> Result<Self> {
        let Some(head) = packed.first_chunk::<HEAD>() else {
            return Err(damaged(&format!("{} bytes have no head", packed.len())));
        };
        let [version, _, flags, size, ..] = *head;
        if version != VERSION {
            return Err(damaged(&format!("its version is {version}, not {VERSION}")));
        }
        let field = |at: usize, what: &str| {
            number(head, at).ok_or_else(|| damaged(&format!("its number of {what} bytes is negative")))
        };
        let (all, block, stored) = (field(4, "all")?, field(8, "block")?, field(12, "stored")?);
        if all > most {
            return Err(damaged(&format!("it states {all} bytes, of at most {most}")));
        }
        if stored < HEAD || stored > packed.len() {
            return Err(damaged(&format!("it states {stored} stored bytes, but {} are", packed.len())));
        }
        if size == 0 || block == 0 {
            return Err(damaged(&format!("it states elements of {size} bytes in blocks of {block}")));
        }
        if flags & SHUFFLED != 0 && flags & SHUFFLED_BITS != 0 {
            return Err(damaged("it states that both bytes and bits were shuffled"));
        }
        *packed = &packed[..stored];
        Ok(Self { codec: flags >> 5, flags, size: usize::from(size), all, block })
    }

    /// Streams of a block of so many bytes.
    fn streams(&self, block: usize) -> usize {
        // The last one, if it is smaller, is whole.
        let split = self.flags & WHOLE == 0
            && block == self.block
            && self.size <= STREAMS
            && block / self.size >= STREAM_BYTES;
        if split { self.size } else { 1 }
    }
}

/// Unpacks a chunk of at most `most` bytes to `into`, in place of what is there.
///
/// # Errors
/// [`ErrorKind::Corrupt`] for damage; [`ErrorKind::Limit`] without memory.
pub(crate) fn unpack(mut packed: &[u8], most: usize, tools: &mut Tools, into: &mut Vec<u8>) -> Result<()> {
    let head = Head::read(&mut packed, most)?;
    if head.flags & PLAIN != 0 {
        let found = packed.len() - HEAD;
        if found != head.all {
            return Err(damaged(&format!("it states {} bytes, but {found} are stored", head.all)));
        }
        sized(into, found)?.copy_from_slice(&packed[HEAD..]);
        return Ok(());
    }
    let count = head.all.div_ceil(head.block);
    // So many blocks can only be stated where there are bytes that say where they begin.
    if count > (packed.len() - HEAD) / 4 {
        return Err(damaged(&format!("{} bytes cannot hold {count} blocks", packed.len())));
    }
    let mut spare = std::mem::take(&mut tools.block);
    let result = (|| {
        let spare = sized(&mut spare, head.all.min(head.block))?;
        // No byte belongs to two blocks: none is gone through again and again.
        let mut left = packed.len();
        for (i, to) in sized(into, head.all)?.chunks_mut(head.block).enumerate() {
            let at = number(packed, HEAD + 4 * i).and_then(|at| packed.get(at..));
            let from = at.ok_or_else(|| damaged(&format!("block {i} of {count} begins outside of it")))?;
            let spare = &mut spare[..to.len()];
            let whole = to.len() / head.size * head.size;
            let shuffled = head.flags & SHUFFLED != 0 && head.size > 1;
            let bits = head.flags & SHUFFLED_BITS != 0 && (whole / head.size).is_multiple_of(8);
            let target = if shuffled { &mut *spare } else { &mut *to };
            let used = streams(&head, from, target, tools).map_err(|e| {
                Error::new(e.kind(), format!("{} (block {i} of {count} of blosc)", e.message()))
            })?;
            left =
                left.checked_sub(used).ok_or_else(|| damaged(&format!("block {i} of {count} overlaps")))?;
            if shuffled {
                unshuffle(spare, head.size, to);
            } else if bits {
                untranspose(&to[..whole], head.size, &mut spare[..whole]);
                unshuffle(&spare[..whole], head.size, &mut to[..whole]);
            }
        }
        Ok(())
    })();
    tools.block = spare;
    result
}

/// Unpacks a block that begins with `from`. Gives the bytes that it took.
fn streams(head: &Head, from: &[u8], to: &mut [u8], tools: &mut Tools) -> Result<usize> {
    let count = head.streams(to.len());
    if !to.len().is_multiple_of(count) {
        return Err(damaged(&format!("{} bytes are no {count} streams", to.len())));
    }
    let mut at = 0;
    for to in to.chunks_exact_mut(to.len() / count) {
        let found = number(from, at).and_then(|len| from.get(at + 4..)?.get(..len));
        let packed = found.ok_or_else(|| {
            damaged(&format!("a stream of {} bytes is cut", number(from, at).unwrap_or_default()))
        })?;
        at += 4 + packed.len();
        if packed.len() == to.len() {
            to.copy_from_slice(packed);
            continue;
        }
        match head.codec {
            0 => blosclz::unpack(packed, to)
                .ok_or_else(|| damaged(&format!("blosclz: {} bytes for {}", packed.len(), to.len())))?,
            1 => lz4::block(packed, to)?,
            2 => tools.snappy(packed, to)?,
            3 => tools.zlib(packed, to)?,
            4 => tools.zstd(packed, to)?,
            codec => {
                let message = format!("it was packed with codec {codec} of blosc, which is not known");
                return Err(Error::new(ErrorKind::Corrupt, message));
            }
        }
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A head of elements of two bytes.
    fn head(flags: u8, all: i32, block: i32, stored: i32) -> Vec<u8> {
        [&[VERSION, 1, flags, 2][..], &all.to_le_bytes(), &block.to_le_bytes(), &stored.to_le_bytes()]
            .concat()
    }

    /// Blocks of streams, with all in front of them.
    fn packed(flags: u8, all: i32, block: i32, blocks: &[&[&[u8]]]) -> Vec<u8> {
        let (mut starts, mut streams) = (Vec::new(), Vec::new());
        for block in blocks {
            starts.extend(((HEAD + 4 * blocks.len() + streams.len()) as i32).to_le_bytes());
            for stream in *block {
                streams.extend((stream.len() as i32).to_le_bytes());
                streams.extend_from_slice(stream);
            }
        }
        let stored = HEAD + starts.len() + streams.len();
        [head(flags, all, block, stored as i32), starts, streams].concat()
    }

    fn run(packed: &[u8]) -> Result<Vec<u8>> {
        let mut into = vec![5; 9];
        unpack(packed, 1000, &mut Tools::default(), &mut into)?;
        Ok(into)
    }

    #[test]
    fn what_was_not_packed() {
        for flags in [PLAIN, PLAIN | SHUFFLED, PLAIN | SHUFFLED_BITS | WHOLE | 1 << 5] {
            let plain = [&head(flags, 3, 1, 19)[..], b"abc"].concat();
            assert_eq!(run(&plain).unwrap(), b"abc");
            // What lies behind it is none of it.
            assert_eq!(run(&[&plain[..], b"d"].concat()).unwrap(), b"abc");
            assert!(run(&plain[..18]).is_err());
        }
        assert_eq!(run(&head(0, 0, 1, 16)).unwrap(), b"");
    }

    #[test]
    fn streams_are_those_of_split_blocks() {
        // 128 elements of two bytes are two streams, 4 of them one.
        let (zeros, ones, last) = ([0; 128], lz4_flex::block::compress(&[1; 128]), b"abcdefgh");
        let blocks: [&[&[u8]]; 2] = [&[&zeros, &ones], &[last]];
        let found = run(&packed(SHUFFLED | 1 << 5, 264, 256, &blocks)).unwrap();
        assert_eq!(found, [&[0, 1].repeat(128)[..], b"aebfcgdh"].concat());
        let found = run(&packed(1 << 5, 264, 256, &blocks)).unwrap();
        assert_eq!(found, [&zeros[..], &[1; 128], last].concat());
        // Unless it says that they are not split.
        let whole = lz4_flex::block::compress(&[[0; 128], [1; 128]].concat());
        let found = run(&packed(SHUFFLED | WHOLE | 1 << 5, 264, 256, &[&[&whole], &[last]])).unwrap();
        assert_eq!(found, [&[0, 1].repeat(128)[..], b"aebfcgdh"].concat());
        // Bits of a number of elements that is no multiple of eight stay as they are.
        let found = run(&packed(SHUFFLED_BITS | WHOLE, 8, 8, &[&[last]])).unwrap();
        assert_eq!(found, last);
    }

    #[test]
    fn what_is_stated_must_fit() {
        let good = packed(WHOLE | 1 << 5, 8, 4, &[&[b"abcd"], &[b"efgh"]]);
        assert_eq!(run(&good).unwrap(), b"abcdefgh");
        let with = |at: usize, value: u8| {
            let mut bad = good.clone();
            bad[at] = value;
            bad
        };
        for (bad, part) in [
            (good[..15].to_vec(), "15 bytes have no head"),
            (good[..39].to_vec(), "it states 40 stored bytes, but 39 are"),
            (with(0, 5), "its version is 5, not 2"),
            (with(2, SHUFFLED | SHUFFLED_BITS), "both bytes and bits"),
            (with(3, 0), "elements of 0 bytes"),
            (with(5, 4), "it states 1032 bytes, of at most 1000"),
            (with(7, 0x80), "negative"),
            (with(4, 40), "40 bytes cannot hold 10 blocks"),
            (with(8, 0), "in blocks of 0"),
            (with(12, 15), "it states 15 stored bytes"),
            (with(16, 41), "block 0 of 2 begins outside"),
            (with(20, 37), "a stream of"),
            (with(24, 5), "a block of 5 bytes for 4"),
        ] {
            let e = run(&bad).unwrap_err();
            assert!(e.kind() == ErrorKind::Corrupt && e.message().contains(part), "{e}");
        }
        let e = run(&packed(WHOLE | 7 << 5, 8, 4, &[&[b"abc"], &[b"efgh"]])).unwrap_err();
        assert!(e.kind() == ErrorKind::Corrupt && e.message().contains("codec 7 of blosc"), "{e}");
        // Blocks that share their bytes: of eight in eight bytes each, there is room for seven.
        let blocks = [&48_i32.to_le_bytes()[..]; 8].concat();
        let shared = |all| [&head(WHOLE, all, 4, 56)[..], &blocks, &[4, 0, 0, 0], b"abcd"].concat();
        assert_eq!(run(&shared(28)).unwrap(), b"abcd".repeat(7));
        let e = run(&shared(32)).unwrap_err();
        assert!(e.message().contains("block 7 of 8 overlaps"), "{e}");
    }
}
