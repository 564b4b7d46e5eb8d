//! The two checksums of the format: lookup3 (of metadata) and Fletcher-32 (a filter of chunks).

/// Bob Jenkins' `hashlittle` of 2006 with an initial value of 0: "Appendix: … lookup3".
pub(crate) fn lookup3(bytes: &[u8]) -> u32 {
    let start = 0xDEAD_BEEF_u32.wrapping_add(bytes.len() as u32);
    let (mut a, mut b, mut c) = (start, start, start);
    if bytes.is_empty() {
        return c;
    }
    // The last block, of up to 12 bytes, is mixed in another way.
    let whole = (bytes.len() - 1) / 12 * 12;
    let (blocks, last) = bytes.split_at(whole);
    let add = |block: &[u8], (a, b, c): (&mut u32, &mut u32, &mut u32)| {
        let mut words = [0_u8; 12];
        words[..block.len()].copy_from_slice(block);
        let word = |i: usize| u32::from_le_bytes([words[i], words[i + 1], words[i + 2], words[i + 3]]);
        *a = a.wrapping_add(word(0));
        *b = b.wrapping_add(word(4));
        *c = c.wrapping_add(word(8));
    };
    for block in blocks.chunks_exact(12) {
        add(block, (&mut a, &mut b, &mut c));
        a = a.wrapping_sub(c) ^ c.rotate_left(4);
        c = c.wrapping_add(b);
        b = b.wrapping_sub(a) ^ a.rotate_left(6);
        a = a.wrapping_add(c);
        c = c.wrapping_sub(b) ^ b.rotate_left(8);
        b = b.wrapping_add(a);
        a = a.wrapping_sub(c) ^ c.rotate_left(16);
        c = c.wrapping_add(b);
        b = b.wrapping_sub(a) ^ a.rotate_left(19);
        a = a.wrapping_add(c);
        c = c.wrapping_sub(b) ^ b.rotate_left(4);
        b = b.wrapping_add(a);
    }
    add(last, (&mut a, &mut b, &mut c));
    c = (c ^ b).wrapping_sub(b.rotate_left(14));
    a = (a ^ c).wrapping_sub(c.rotate_left(11));
    b = (b ^ a).wrapping_sub(a.rotate_left(25));
    c = (c ^ b).wrapping_sub(b.rotate_left(16));
    a = (a ^ c).wrapping_sub(c.rotate_left(4));
    b = (b ^ a).wrapping_sub(a.rotate_left(14));
    (c ^ b).wrapping_sub(b.rotate_left(24))
}

/// Fletcher's checksum over big-endian words of 16 bits; an odd last byte is the high half of one.
pub(crate) fn fletcher32(bytes: &[u8]) -> u32 {
    let (mut first, mut second) = (0_u32, 0_u32);
    let fold = |sum: u32| (sum & 0xFFFF) + (sum >> 16);
    // Sums of 360 words fit 32 bits.
    for block in bytes.chunks(720) {
        let words = block.chunks_exact(2);
        let odd = words.remainder().first().map(|high| u32::from(*high) << 8);
        for word in words.map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).chain(odd) {
            first += word;
            second += first;
        }
        (first, second) = (fold(first), fold(second));
    }
    fold(second) << 16 | fold(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_their_descriptions() {
        // The values that the comments of lookup3.c give.
        assert_eq!(lookup3(b""), 0xDEAD_BEEF);
        assert_eq!(lookup3(b"Four score and seven years ago"), 0x1777_0551);
        // Words 0x6162, 0x6364, 0x6500: sums by hand.
        let (a, b, c) = (0x6162_u32, 0x6364_u32, 0x6500_u32);
        let fold = |sum: u32| (sum & 0xFFFF) + (sum >> 16);
        assert_eq!(fletcher32(b"abcde"), fold(3 * a + 2 * b + c) << 16 | fold(a + b + c));
        assert_eq!(fletcher32(b""), 0);
        // Nothing overflows.
        assert_ne!(fletcher32(&vec![0xFF; 100_001]), 0);
    }
}
