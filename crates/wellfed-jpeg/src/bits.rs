//! Reading bits from entropy-coded data whose byte stuffing has been removed.

/// The last bits that were read are the highest of `buffer`. Past the end of the data there are zeros, without
/// end, so that damaged data cannot lead a reader anywhere.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bits<'a> {
    data: &'a [u8],
    /// Where a whole word can still be loaded: 8 bytes before the end.
    last: usize,
    /// The next byte to load.
    at: usize,
    /// Unread bits, from the highest on.
    buffer: u64,
    /// How many of them count as loaded. What lies below is right as well or zero, never wrong.
    count: u32,
}

impl<'a> Bits<'a> {
    /// A reader that starts at a bit of `data`. The last 8 bytes of `data` should be padding: what is not
    /// followed by 7 more bytes reads as zeros.
    pub(crate) fn new(data: &'a [u8], bit: usize) -> Self {
        // Too short for a word: nothing is ever loaded.
        let data = if data.len() < 8 { &[0; 8] } else { data };
        let mut bits = Bits { data, last: data.len() - 8, at: bit / 8, buffer: 0, count: 0 };
        bits.refill();
        bits.skip((bit % 8) as u32);
        bits
    }

    /// Bits read so far, counted from the start of the data.
    pub(crate) fn position(&self) -> usize {
        self.at * 8 - self.count as usize
    }

    /// Loads at least 56 bits.
    #[inline(always)]
    pub(crate) fn refill(&mut self) {
        let mut word = 0;
        if self.at <= self.last {
            // SAFETY: `new`, which alone sets `data` and `last`, leaves 8 bytes after `last`.
            word = u64::from_be(unsafe { self.data.as_ptr().add(self.at).cast::<u64>().read_unaligned() });
        }
        self.buffer |= word >> self.count;
        self.at += ((63 - self.count) >> 3) as usize;
        self.count |= 56;
    }

    /// The next `n` bits, 1 to 32, which stay.
    #[inline(always)]
    pub(crate) fn peek(&self, n: u32) -> u32 {
        (self.buffer >> (64 - n)) as u32
    }

    /// The next `64 - shift` bits in the lowest bits, with what fits of those before above.
    #[inline(always)]
    pub(crate) fn shifted(&self, shift: u8) -> u32 {
        self.buffer.wrapping_shr(u32::from(shift)) as u32
    }

    /// Reads `n` bits, 1 to 64, loading as many as that takes.
    #[inline(always)]
    pub(crate) fn take_long(&mut self, n: u32) -> u64 {
        self.refill();
        let first = n.min(32);
        let high = self.buffer >> (64 - first);
        self.skip(first);
        if n <= 32 {
            return high;
        }
        self.refill();
        let low = self.buffer >> (96 - n);
        self.skip(n - 32);
        high << (n - 32) | low
    }

    /// Drops `n` loaded bits, up to 63.
    #[inline(always)]
    pub(crate) fn skip(&mut self, n: u32) {
        self.buffer <<= n;
        self.count -= n;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_come_in_order_from_any_start_and_zeros_after_the_end() {
        let data: Vec<u8> = (0..40u8).map(|i| i.wrapping_mul(37) ^ 0x5a).chain([0; 8]).collect();
        let bit = |i: usize| data.get(i / 8).map_or(0, |byte| u32::from(byte >> (7 - i % 8)) & 1);
        for start in [0, 1, 7, 8, 63, 64, 200] {
            let mut bits = Bits::new(&data, start);
            let mut at = start;
            for n in (1..=16).cycle().take(60) {
                bits.refill();
                let expected = (0..n).fold(0, |value, i| value << 1 | bit(at + i as usize));
                assert_eq!(bits.peek(n), expected, "{n} bits at {at}");
                assert_eq!(bits.position(), at);
                bits.skip(n);
                at += n as usize;
            }
        }
    }
}
