//! The filter LZ4 (32004) of The HDF Group: a head that says how many bytes there are and in blocks of how many, then blocks,
//! each behind its size. A block that did not become smaller is stored as it is. All numbers are big-endian.

use wellfed::{Error, Result};

use crate::filters::{Blocks, sized};

/// The size of all, and of a block.
const HEAD: usize = 12;

fn damaged(why: &str) -> Error {
    Error::corrupt(format!("it cannot be unpacked (lz4): {why}"))
}

/// Unpacks one LZ4 block that must fill `to`.
///
/// # Errors
/// [`wellfed::ErrorKind::Corrupt`] if it does not.
pub(crate) fn block(packed: &[u8], to: &mut [u8]) -> Result<()> {
    let wanted = to.len();
    match lz4_flex::block::decompress_into(packed, to) {
        Ok(made) if made == wanted => Ok(()),
        Ok(made) => Err(damaged(&format!("a block has {made} bytes, not {wanted}"))),
        Err(e) => Err(damaged(&format!("a block of {} bytes for {wanted}: {e}", packed.len()))),
    }
}

/// Unpacks a chunk of at most `most` bytes to `into`, in place of what is there.
///
/// # Errors
/// [`wellfed::ErrorKind::Corrupt`] for damage; [`wellfed::ErrorKind::Limit`] without memory.
pub(crate) fn unpack(packed: &[u8], most: usize, into: &mut Vec<u8>) -> Result<()> {
    let Some((head, rest)) = packed.split_first_chunk::<HEAD>() else {
        return Err(damaged(&format!("{} bytes have no head", packed.len())));
    };
    let (all, size) = head_of(head);
    let all = usize::try_from(all).ok().filter(|all| *all <= most);
    let all =
        all.ok_or_else(|| damaged(&format!("it states {} bytes, of at most {most}", head_of(head).0)))?;
    if size == 0 && all > 0 {
        return Err(damaged("it states blocks of no bytes"));
    }
    let mut blocks = Blocks::new(rest);
    let mut to = sized(into, all)?;
    while !to.is_empty() {
        let (this, after) = to.split_at_mut(to.len().min(size));
        let packed = blocks.next().map_err(|why| damaged(&why))?;
        if packed.len() == this.len() {
            this.copy_from_slice(packed);
        } else {
            block(packed, this)?;
        }
        to = after;
    }
    Ok(())
}

/// The bytes of all, and those of a block.
pub(crate) fn head_of(head: &[u8; HEAD]) -> (u64, usize) {
    let [a, b, c, d, e, f, g, h, size @ ..] = *head;
    (u64::from_be_bytes([a, b, c, d, e, f, g, h]), u32::from_be_bytes(size) as usize)
}

#[cfg(test)]
mod tests {
    use wellfed::ErrorKind;

    use super::*;

    fn head(all: u64, size: u32) -> Vec<u8> {
        [&all.to_be_bytes()[..], &size.to_be_bytes()].concat()
    }

    fn with(mut packed: Vec<u8>, blocks: &[&[u8]]) -> Vec<u8> {
        for block in blocks {
            packed.extend((block.len() as u32).to_be_bytes());
            packed.extend_from_slice(block);
        }
        packed
    }

    #[test]
    fn blocks_that_are_packed_and_that_are_not() {
        let zeros = lz4_flex::block::compress(&[0; 64]);
        let mut into = vec![7; 3];
        unpack(&with(head(67, 64), &[&zeros, b"abc"]), 67, &mut into).unwrap();
        assert_eq!(into, [&[0; 64][..], b"abc"].concat());
        // A stated block that is larger than all.
        unpack(&with(head(3, 1 << 30), &[b"abc"]), 100, &mut into).unwrap();
        assert_eq!(into, b"abc");
        unpack(&head(0, 0), 100, &mut into).unwrap();
        assert_eq!(into, b"");
    }

    #[test]
    fn what_is_stated_must_fit() {
        let zeros = lz4_flex::block::compress(&[0; 64]);
        for (bad, part) in [
            (vec![0; 11], "11 bytes have no head"),
            (head(101, 64), "it states 101 bytes, of at most 100"),
            (head(u64::MAX, 64), "18446744073709551615"),
            (head(3, 0), "blocks of no bytes"),
            (head(3, 3), "4 bytes, but 0 are left"),
            (with(head(64, 32), &[&zeros]), "for 32"),
            (with(head(65, 65), &[&zeros]), "64 bytes, not 65"),
            ([head(3, 3), vec![0, 0, 0, 9, 1]].concat(), "9 bytes, but 1 are left"),
        ] {
            let e = unpack(&bad, 100, &mut Vec::new()).unwrap_err();
            assert!(e.kind() == ErrorKind::Corrupt && e.message().contains(part), "{e}");
        }
    }
}
