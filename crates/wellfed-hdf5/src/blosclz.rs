//! BloscLZ, a codec of Blosc's own: runs of literals, back references of up to 8 KiB, and far ones of up to 72 KiB.
//!
//! A control byte below 32 stands for that many literals and one. In others, the upper three bits are the length of a copy, less
//! two; seven of them means that bytes follow which add to it, up to the first that is not 255. The lower five bits and one
//! further byte are the distance, less one. All of those bits set mean that two more bytes, big-endian, are added to it. The
//! first control byte of all stands for literals, whatever its upper bits say.

/// Literals, at most, of one control byte; and the lowest one that is a copy.
const LITERALS: usize = 32;

/// The distance, less one, behind which two bytes follow.
const FAR: usize = 0x1FFF;

/// Unpacks into `to`, which it must fill. `None` if it is damaged.
pub(crate) fn unpack(packed: &[u8], to: &mut [u8]) -> Option<()> {
    let mut bytes = packed.iter();
    let mut made = 0;
    let mut control = usize::from(*bytes.next()?) % LITERALS;
    loop {
        if control < LITERALS {
            let (run, rest) = bytes.as_slice().split_at_checked(control + 1)?;
            to.get_mut(made..made + run.len())?.copy_from_slice(run);
            made += run.len();
            bytes = rest.iter();
        } else {
            let mut len = (control >> 5) + 2;
            if control >> 5 == 7 {
                loop {
                    let more = usize::from(*bytes.next()?);
                    len += more;
                    if more != 255 {
                        break;
                    }
                }
            }
            let mut back = (control & 0x1F) << 8 | usize::from(*bytes.next()?);
            if back == FAR {
                back += usize::from(*bytes.next()?) << 8;
                back += usize::from(*bytes.next()?);
            }
            let (from, end) = (made.checked_sub(back + 1)?, made + len);
            copy(to.get_mut(from..end)?, back + 1);
            made = end;
        }
        match bytes.next() {
            Some(next) => control = usize::from(*next),
            None => return (made == to.len()).then_some(()),
        }
    }
}

/// Repeats the first `back` bytes to the end. What is written is repeated as well, so each step copies twice as much.
fn copy(of: &mut [u8], back: usize) {
    let mut have = back;
    while have < of.len() {
        let more = have.min(of.len() - have);
        of.copy_within(..more, have);
        have += more;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(packed: &[u8], len: usize) -> Option<Vec<u8>> {
        let mut to = vec![0; len];
        unpack(packed, &mut to).map(|()| to)
    }

    #[test]
    fn literals_and_copies() {
        assert_eq!(of(b"\x02abc", 3).unwrap(), b"abc");
        // The upper bits of the first control byte mean nothing.
        assert_eq!(of(b"\xE2abc", 3).unwrap(), b"abc");
        // Three bytes from 2 back: an overlap. Then a literal.
        assert_eq!(of(b"\x01ab\x20\x01\x00x", 6).unwrap(), b"ababax");
        // A long one: 7 + 2 + 255 + 3 bytes from 1 back.
        assert_eq!(of(b"\x00x\xE0\xFF\x03\x00", 268).unwrap(), b"x".repeat(268));
        assert_eq!(of(b"\x03abcd\x20\x03\x00e", 8).unwrap(), b"abcdabce");
    }

    #[test]
    fn far_copies() {
        // Literals that differ, then 4 bytes from so far back.
        let literals: Vec<u8> = (0..80_000_u32).map(|i| (i.wrapping_mul(i) / 7 % 253) as u8).collect();
        for far in [1, 8191, 8192, 8193, 20_000, 73_727] {
            let mut packed = Vec::new();
            for run in literals.chunks(32) {
                packed.push(run.len() as u8 - 1);
                packed.extend_from_slice(run);
            }
            let back: usize = far - 1;
            if back < FAR {
                packed.extend([2 << 5 | (back >> 8) as u8, back as u8]);
            } else {
                packed.extend([2 << 5 | 31, 255]);
                packed.extend(((back - FAR) as u16).to_be_bytes());
            }
            packed.extend(b"\x00z");
            let mut wanted = literals.clone();
            for i in 0..4 {
                wanted.push(wanted[80_000 + i - far]);
            }
            wanted.push(b'z');
            assert_eq!(of(&packed, wanted.len()).unwrap(), wanted, "{far}");
        }
    }

    #[test]
    fn damage_is_no_panic() {
        for (bad, len) in [
            (&b""[..], 0),
            (b"\x02ab", 3),
            (b"\x02abc", 2),
            (b"\x02abc", 4),
            (b"\x01ab\x20", 5),
            (b"\x01ab\x20\x02", 5),
            (b"\x01ab\xE0\xFF", 1000),
            (b"\x01ab\x3F\xFF\x00", 5),
            (b"\x01ab\x3F\xFF\x00\x00", 5),
            (b"\x00x\xE0\xFF\x03\x00", 267),
        ] {
            assert_eq!(of(bad, len), None, "{bad:?}");
        }
    }
}
