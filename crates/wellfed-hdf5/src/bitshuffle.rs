//! The filter Bitshuffle (32008), and the same order of bits in blocks of Blosc.
//!
//! Of a block of elements the first bit of all comes first, then the second bit of all, and so on: rows of bits, of which eight
//! make up one byte of all elements. Turning them back is a transposition of matrices of 8 by 8 bits. Blocks are packed one by one
//! behind a head that says how many bytes there are, or stand without any head. Elements beyond the last multiple of eight are
//! stored as they are. Numbers of heads are big-endian.

use wellfed::{Error, Result};

use crate::{
    filters::{Blocks, Tools, sized, unshuffle},
    lz4,
};

/// What shuffled blocks are packed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Codec {
    Lz4,
    Zstd,
}

/// What the filter's values say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bitshuffle {
    /// Bytes of an element, at least one.
    size: usize,
    /// Elements of a block, a multiple of eight; those that are packed say so themselves.
    block: usize,
    codec: Option<Codec>,
}

/// Elements that are shuffled together, at least.
const TOGETHER: usize = 8;

/// Bytes that stand before blocks that are packed.
const HEAD: usize = 12;

fn damaged(why: &str) -> Error {
    Error::corrupt(format!("it cannot be unpacked (bitshuffle): {why}"))
}

/// Elements of a block where nothing is stated: about 8 KiB, and at least 128 of them.
fn usual(size: usize) -> usize {
    (8192 / size / TOGETHER * TOGETHER).max(128)
}

impl Bitshuffle {
    /// Reads the filter's values: two versions, the size of elements, elements of a block (0: as usual), codec, its level.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(crate) fn read(values: &[u32]) -> Result<Self, String> {
        let size = match values.get(2) {
            Some(size) if *size > 0 => *size as usize,
            _ => return Err("bitshuffle states no size of elements".to_owned()),
        };
        let block = match values.get(3).map_or(0, |block| *block as usize) {
            0 => usual(size),
            block if block.is_multiple_of(TOGETHER) => block,
            block => return Err(format!("bitshuffle states blocks of {block} elements")),
        };
        let codec = match values.get(4).copied().unwrap_or(0) {
            0 => None,
            2 => Some(Codec::Lz4),
            3 => Some(Codec::Zstd),
            codec => return Err(format!("bitshuffle states the codec {codec}")),
        };
        Ok(Self { size, block, codec })
    }

    /// Unpacks a chunk of at most `most` bytes to `into`, in place of what is there.
    ///
    /// # Errors
    /// [`wellfed::ErrorKind::Corrupt`] for damage; [`wellfed::ErrorKind::Limit`] without memory.
    pub(crate) fn unpack(
        self,
        packed: &[u8],
        most: usize,
        tools: &mut Tools,
        into: &mut Vec<u8>,
    ) -> Result<()> {
        let Self { size, mut block, codec } = self;
        let (all, rest) = if codec.is_some() {
            let Some((head, rest)) = packed.split_first_chunk::<HEAD>() else {
                return Err(damaged(&format!("{} bytes have no head", packed.len())));
            };
            let (stated, bytes) = lz4::head_of(head);
            let all = usize::try_from(stated).ok().filter(|all| *all <= most);
            let all = all.ok_or_else(|| damaged(&format!("it states {stated} bytes, of at most {most}")))?;
            block = if bytes == 0 { usual(size) } else { bytes / size };
            if block == 0 || !block.is_multiple_of(TOGETHER) {
                return Err(damaged(&format!("it states blocks of {bytes} bytes of elements of {size}")));
            }
            (all, rest)
        } else if packed.len() > most {
            return Err(damaged(&format!("it has {} bytes, of at most {most}", packed.len())));
        } else {
            (packed.len(), packed)
        };
        if !all.is_multiple_of(size) {
            return Err(damaged(&format!("{all} bytes are no whole elements of {size}")));
        }
        let mut spare = std::mem::take(&mut tools.block);
        let result = (|| {
            let spare = sized(&mut spare, all.min(block.saturating_mul(size)))?;
            let mut blocks = Blocks::new(rest);
            let mut to = sized(into, all)?;
            loop {
                let count = block.min(to.len() / size / TOGETHER * TOGETHER);
                if count == 0 {
                    break;
                }
                let (this, after) = to.split_at_mut(count * size);
                let spare = &mut spare[..this.len()];
                let mut next = || blocks.next().map_err(|why| damaged(&why));
                match codec {
                    None => untranspose(blocks.take(this.len()).map_err(|why| damaged(&why))?, size, spare),
                    Some(Codec::Lz4) => {
                        lz4::block(next()?, this)?;
                        untranspose(this, size, spare);
                    }
                    Some(Codec::Zstd) => {
                        tools.zstd(next()?, this)?;
                        untranspose(this, size, spare);
                    }
                }
                unshuffle(spare, size, this);
                to = after;
            }
            to.copy_from_slice(blocks.take(to.len()).map_err(|why| damaged(&why))?);
            Ok(())
        })();
        tools.block = spare;
        result
    }
}

/// Puts the bits of elements of `size` bytes together to bytes: first bytes of all elements first, as [`unshuffle`] takes them.
/// `from` and `to` have the same length: elements in multiples of eight.
pub(crate) fn untranspose(from: &[u8], size: usize, to: &mut [u8]) {
    let count = from.len() / size;
    if count == 0 {
        return;
    }
    for (rows, bytes) in from.chunks_exact(count).zip(to.chunks_exact_mut(count)) {
        byte_of_all(rows, bytes);
    }
}

/// Words that are transposed side by side: what registers of 32 bytes hold.
const SIDE: usize = 4;

/// One row of bits of `SIDE` times 64 elements; eight of them are what [`exchange`] turns.
type Row = [u64; SIDE];

/// Eight rows of bits become one byte of each element.
fn byte_of_all(rows: &[u8], bytes: &mut [u8]) {
    let len = rows.len() / 8;
    let rows: [&[u8]; 8] = std::array::from_fn(|row| &rows[row * len..][..len]);
    let many = rows.map(|row| row.as_chunks::<{ 8 * SIDE }>().0);
    let (blocks, rest) = bytes.as_chunks_mut::<{ 64 * SIDE }>();
    for (i, block) in blocks.iter_mut().enumerate() {
        let mut words: [Row; 8] = std::array::from_fn(|row| {
            let words = many[row][i].as_chunks::<8>().0;
            std::array::from_fn(|side| u64::from_le_bytes(words[side]))
        });
        // Bit k of row r becomes bit r of row k, in all bytes at once; then byte k of row r becomes byte r of row k.
        exchange::<4>(&mut words, 4, 0x0F0F_0F0F_0F0F_0F0F);
        exchange::<2>(&mut words, 2, 0x3333_3333_3333_3333);
        exchange::<1>(&mut words, 1, 0x5555_5555_5555_5555);
        exchange::<4>(&mut words, 32, 0x0000_0000_FFFF_FFFF);
        exchange::<2>(&mut words, 16, 0x0000_FFFF_0000_FFFF);
        exchange::<1>(&mut words, 8, 0x00FF_00FF_00FF_00FF);
        for (side, elements) in block.as_chunks_mut::<64>().0.iter_mut().enumerate() {
            for (row, element) in elements.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                *element = words[row][side].to_le_bytes();
            }
        }
    }
    let first = len - rest.len() / 8;
    for (i, elements) in rest.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let bits = u64::from_le_bytes(std::array::from_fn(|row| rows[row][first + i]));
        *elements = transposed(bits).to_le_bytes();
    }
}

/// Of rows that are `APART`, exchanges the upper bits of the first with the lower ones of the second.
#[inline(always)]
fn exchange<const APART: usize>(rows: &mut [Row; 8], by: u32, lower: u64) {
    for row in (0..8).filter(|row| row & APART == 0) {
        let (first, second) = rows.split_at_mut(row + APART);
        for (a, b) in first[row].iter_mut().zip(&mut second[0]) {
            let changed = (*a >> by ^ *b) & lower;
            *a ^= changed << by;
            *b ^= changed;
        }
    }
}

/// The matrix of 8 by 8 bits whose rows are the bytes of `bits`, the other way round.
fn transposed(bits: u64) -> u64 {
    let exchange = |bits: u64, by: u32, lower: u64| {
        let changed = (bits >> by ^ bits) & lower;
        bits ^ changed ^ changed << by
    };
    let bits = exchange(bits, 7, 0x00AA_00AA_00AA_00AA);
    let bits = exchange(bits, 14, 0x0000_CCCC_0000_CCCC);
    exchange(bits, 28, 0x0000_0000_F0F0_F0F0)
}

#[cfg(test)]
mod tests {
    use wellfed::ErrorKind;

    use super::*;

    /// Bit by bit, as the format says.
    fn shuffled(data: &[u8], size: usize) -> Vec<u8> {
        let count = data.len() / size;
        let mut out = vec![0; data.len()];
        for element in 0..count {
            for bit in 0..8 * size {
                let set = data[element * size + bit / 8] >> (bit % 8) & 1;
                out[(bit * count + element) / 8] |= set << (element % 8);
            }
        }
        out
    }

    fn data(len: usize) -> Vec<u8> {
        (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
    }

    #[test]
    fn bits_come_together_again() {
        for size in [1, 2, 3, 4, 8, 12, 16] {
            for count in [8, 16, 64, 72, 248, 256, 264, 512, 1000] {
                let wanted = data(size * count);
                let (mut planes, mut found) = (vec![0; size * count], vec![0; size * count]);
                untranspose(&shuffled(&wanted, size), size, &mut planes);
                unshuffle(&planes, size, &mut found);
                assert_eq!(found, wanted, "{count} of {size} bytes");
            }
        }
    }

    #[test]
    fn blocks_and_what_is_left() {
        let (size, block) = (2, 16);
        // Two blocks, one of 8 elements, 3 left.
        let wanted = data(size * 43);
        let shuffled: Vec<Vec<u8>> = [0..32, 32..64, 64..80].map(|at| shuffled(&wanted[at], size)).to_vec();
        let plain = [&shuffled.concat()[..], &wanted[80..]].concat();
        let how = Bitshuffle::read(&[0, 4, 2, block]).unwrap();
        let mut into = vec![1; 7];
        how.unpack(&plain, 86, &mut Tools::default(), &mut into).unwrap();
        assert_eq!(into, wanted);
        for codec in [2, 3] {
            let how = Bitshuffle::read(&[0, 4, 2, 0, codec]).unwrap();
            let mut packed = [&86_u64.to_be_bytes()[..], &32_u32.to_be_bytes()].concat();
            for block in &shuffled {
                let block = if codec == 2 {
                    lz4_flex::block::compress(block)
                } else {
                    zstd::bulk::compress(block, 3).unwrap()
                };
                packed.extend((block.len() as u32).to_be_bytes());
                packed.extend(block);
            }
            packed.extend_from_slice(&wanted[80..]);
            how.unpack(&packed, 86, &mut Tools::default(), &mut into).unwrap();
            assert_eq!(into, wanted);
            for (at, value, part) in [
                (6, 1, "it states 342 bytes, of at most 86"),
                (7, 85, "85 bytes are no whole elements of 2"),
                (11, 1, "blocks of 1 bytes of elements of 2"),
                (11, 14, "blocks of 14 bytes of elements of 2"),
                (12, 1, "are left"),
            ] {
                let mut bad = packed.clone();
                bad[at] = value;
                let e = how.unpack(&bad, 86, &mut Tools::default(), &mut into).unwrap_err();
                assert!(e.kind() == ErrorKind::Corrupt && e.message().contains(part), "{e}");
            }
        }
    }

    #[test]
    fn values_are_checked() {
        assert_eq!(usual(1), 8192);
        assert_eq!(usual(3), 2728);
        assert_eq!(usual(1000), 128);
        for bad in [&[][..], &[0, 4], &[0, 4, 0], &[0, 4, 2, 7], &[0, 4, 2, 0, 1]] {
            assert!(Bitshuffle::read(bad).is_err(), "{bad:?}");
        }
    }
}
