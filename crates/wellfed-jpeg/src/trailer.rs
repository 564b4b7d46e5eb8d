//! What comes after the last row of an image in one scan: Pillow lets libjpeg read on to the end marker. What makes
//! no sense on the way is an error then; that there is nothing more to read is none, wherever that happens.

use crate::header::{Header, Scan};
use crate::markers::{INVENTED, Segment, code, find};
use crate::{Error, Result};

/// Bytes that Pillow reads at a time (`ImageFile.MAXBLOCK`); it looks no further than to the end of the block in
/// which it has all rows.
pub(crate) const BLOCK: usize = 1 << 16;

/// The bytes that are looked at; behind them come end markers if decoding is tolerant.
#[derive(Clone, Copy)]
struct Tail<'a> {
    bytes: &'a [u8],
    tolerant: bool,
}

impl Tail<'_> {
    fn byte(self, at: usize) -> Option<usize> {
        let invented = || self.tolerant.then(|| INVENTED[(at - self.bytes.len()) % 2]);
        self.bytes.get(at).copied().or_else(invented).map(usize::from)
    }
}

/// Looks at everything from the marker at `at` on.
pub(crate) fn check(bytes: &[u8], mut at: usize, header: &Header, tolerant: bool) -> Result<()> {
    let end = (at + 2).next_multiple_of(BLOCK);
    let tail = match bytes.get(..end) {
        Some(block) if end < bytes.len() => Tail { bytes: block, tolerant: false },
        _ => Tail { bytes, tolerant },
    };
    while let Some((marker, offset)) = find(tail.bytes, at) {
        let bad = |what: String| Err(Error::corrupt(what).at(offset));
        let next = match marker {
            code::EOI => return Ok(()),
            code::TEM | code::RST0..=code::RST7 => Some(offset),
            code::DNL | code::APP0..=code::APP15 | code::COM => skip(tail, offset),
            code::DHT | code::DQT | code::DRI | code::DAC => match table(tail, marker, offset) {
                Some(None) => return bad("JPEG has damaged tables after its last scan".into()),
                Some(next) => next,
                None => None,
            },
            code::SOS if is_cut_scan(tail, offset, header) => None,
            code::SOS => return bad("JPEG has a scan after its last one".into()),
            code::SOF0..=0xCF => return bad("JPEG has two frame headers".into()),
            code::SOI => return bad("JPEG has a second start marker".into()),
            _ => return bad(format!("JPEG has the reserved marker {marker:#04x}")),
        };
        match next {
            Some(next) => at = next,
            None => return Ok(()),
        }
    }
    Ok(())
}

fn length(tail: Tail<'_>, at: usize) -> Option<usize> {
    Some(tail.byte(at)? << 8 | tail.byte(at + 1)?)
}

/// Where a segment ends whose content does not matter.
fn skip(tail: Tail<'_>, at: usize) -> Option<usize> {
    Some(at + length(tail, at)?.max(2))
}

/// Where a segment of tables ends, in the order in which libjpeg reads it: `Some(None)` where it finds an error,
/// `None` where the bytes end first.
#[allow(clippy::option_option)]
fn table(tail: Tail<'_>, marker: u8, mut at: usize) -> Option<Option<usize>> {
    let Some(mut left) = length(tail, at)?.checked_sub(2) else { return Some(None) };
    at += 2;
    match marker {
        code::DRI => {
            if left != 2 {
                return Some(None);
            }
            tail.byte(at + 1)?;
            return Some(Some(at + 2));
        }
        code::DHT => {
            while left > 16 {
                tail.byte(at + 16)?;
                let count: usize = (1..=16).filter_map(|i| tail.byte(at + i)).sum();
                left -= 17;
                if count > 256 || count > left {
                    return Some(None);
                }
                tail.byte(at + 16 + count)?;
                if !matches!(tail.byte(at)?, 0..=3 | 0x10..=0x13) {
                    return Some(None);
                }
                left -= count;
                at += 17 + count;
            }
        }
        code::DQT => {
            while left > 0 {
                let id = tail.byte(at)?;
                if id & 15 > 3 {
                    return Some(None);
                }
                let size = if id > 15 { 129 } else { 65 };
                tail.byte(at + size - 1)?;
                at += size;
                let Some(rest) = left.checked_sub(size) else { return Some(None) };
                left = rest;
            }
        }
        _ => {
            while left > 0 {
                let (index, value) = (tail.byte(at)?, tail.byte(at + 1)?);
                let good = if index < 16 { value & 15 <= value >> 4 } else { index < 32 };
                let rest = left.checked_sub(2).filter(|_| good);
                let Some(rest) = rest else { return Some(None) };
                (left, at) = (rest, at + 2);
            }
        }
    }
    Some((left == 0).then_some(at))
}

/// True if the bytes end within a scan header, and before anything is wrong with it.
fn is_cut_scan(tail: Tail<'_>, at: usize, header: &Header) -> bool {
    let (Some(length), Some(count)) = (length(tail, at), tail.byte(at + 2)) else { return true };
    if !(1..=4).contains(&count) || length != 6 + 2 * count {
        return false;
    }
    let content: Vec<u8> = (at + 3..at + length).map_while(|i| tail.byte(i)).map(|byte| byte as u8).collect();
    let pairs = (content.len() / 2).min(count);
    let mut body = vec![pairs as u8];
    body.extend_from_slice(&content[..2 * pairs]);
    body.extend_from_slice(&[0, 63, 0]);
    let named = Segment { code: code::SOS, offset: at, body: body.into() };
    content.len() + 3 < length && (pairs == 0 || Scan::read(&named, header).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::File;

    fn verdict(tail: &[u8], tolerant: bool) -> bool {
        let mut bytes = include_bytes!("../tests/images/grey.jpg").to_vec();
        let header = File::open(&bytes, false).expect("a JPEG").header;
        let at = bytes.len();
        bytes.extend_from_slice(tail);
        check(&bytes, at, &header, tolerant).is_ok()
    }

    #[test]
    fn what_is_missing_is_no_error_and_what_is_wrong_is_one() {
        let cases: [(&[u8], bool); 14] = [
            (b"", true),
            (b"junk", true),
            (b"\xff\xd9", true),
            (b"\xff\xd9\xff\xc0", true),
            (b"\xff\xc0", false),
            (b"\xff\xc4", true),
            (b"\xff\xc4\x00\x05", false),
            (b"\xff\xdb\x00\x43\x09", false),
            (b"\xff\xdb\x00\x43\x00\x01", true),
            (b"\xff\xdd\x00\x05", false),
            (b"\xff\xe5\x00\x00\xff\x02", false),
            (b"\xff\xe5\x00\x90\xff\x02", true),
            (b"\xff\xda\x00\x08\x01", true),
            (b"\xff\xda\x00\x08\x01\xee\x00", false),
        ];
        for (tail, expected) in cases {
            assert_eq!(verdict(tail, false), expected, "{tail:02x?}");
        }
        // Filled up with end markers, the tables are complete, and have one code too many.
        assert!(!verdict(b"\xff\xc4\x00\x13\x00", true));
        assert!(verdict(b"\xff\xdb\x00\x43\x00\x01", true));
    }

    #[test]
    fn what_lies_in_a_block_that_pillow_does_not_read_is_no_error() {
        let mut tail = vec![0; BLOCK];
        tail.extend([0xFF, code::SOI]);
        assert!(verdict(&tail, false));
        assert!(!verdict(&tail[BLOCK - 2000..], false));
    }
}
