//! LZF (Marc Lehmann's liblzf), as h5py's filter 32000 writes it: runs of literals and back references of up to 8 KiB.

/// Appends what `packed` stands for to `into`, which may grow by at most `most` bytes. `None` if it is damaged.
pub(crate) fn unpack(packed: &[u8], most: usize, into: &mut Vec<u8>) -> Option<()> {
    let start = into.len();
    let mut at = 0;
    while let Some(control) = packed.get(at) {
        let control = usize::from(*control);
        at += 1;
        let made = into.len() - start;
        if control < 32 {
            let run = packed.get(at..at + control + 1)?;
            if made + run.len() > most {
                return None;
            }
            into.extend_from_slice(run);
            at += run.len();
            continue;
        }
        let mut len = control >> 5;
        if len == 7 {
            len += usize::from(*packed.get(at)?);
            at += 1;
        }
        len += 2;
        let back = ((control & 0x1F) << 8 | usize::from(*packed.get(at)?)) + 1;
        at += 1;
        if back > made || made + len > most {
            return None;
        }
        let from = into.len() - back;
        if back >= len {
            into.extend_from_within(from..from + len);
        } else {
            // It repeats what it has just written.
            for i in from..from + len {
                into.push(into[i]);
            }
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(packed: &[u8], most: usize) -> Option<Vec<u8>> {
        let mut into = vec![9];
        unpack(packed, most, &mut into)?;
        assert_eq!(into.remove(0), 9);
        Some(into)
    }

    #[test]
    fn literals_references_and_repetition() {
        assert_eq!(of(&[2, b'a', b'b', b'c'], 3).unwrap(), b"abc");
        // "ab", then 4 bytes from 2 back: an overlap.
        assert_eq!(of(&[1, b'a', b'b', 2 << 5, 1], 6).unwrap(), b"ababab");
        // A long one: 7 + 3 + 2 bytes from 1 back.
        assert_eq!(of(&[0, b'x', 7 << 5, 3, 0], 13).unwrap(), b"x".repeat(13));
        // Not overlapping.
        assert_eq!(of(&[3, b'a', b'b', b'c', b'd', 1 << 5, 3], 7).unwrap(), b"abcdabc");
    }

    #[test]
    fn damage_is_no_panic() {
        for bad in
            [&[2, b'a'][..], &[1 << 5, 0], &[0, b'a', 7 << 5], &[0, b'a', 1 << 5], &[0, b'a', 1 << 5, 1]]
        {
            assert_eq!(of(bad, 100), None, "{bad:?}");
        }
        assert_eq!(of(&[2, b'a', b'b', b'c'], 2), None);
        assert_eq!(of(&[0, b'x', 7 << 5, 3, 0], 12), None);
    }
}
