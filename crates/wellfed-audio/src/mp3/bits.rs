//! Bits of a frame's main data, the most significant first.
//!
//! Beyond the end there are zeros; [`Bits::position`] tells who reads them.

/// A reader of bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bits<'a> {
    bytes: &'a [u8],
    /// The byte that comes into the window next.
    next: usize,
    /// The bits that come next, from the highest on. Those below `held` are none yet, or right.
    window: u64,
    /// How many bits of the window have been counted.
    held: u32,
}

impl<'a> Bits<'a> {
    /// From bit number `at` on.
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Self {
        let mut bits = Self { bytes, next: at / 8, window: 0, held: 0 };
        bits.refill();
        bits.skip((at % 8) as u32);
        bits
    }

    /// The number of the bit that comes next.
    pub(super) fn position(&self) -> usize {
        self.next * 8 - self.held as usize
    }

    /// At least 56 bits are in the window afterwards.
    #[inline(always)]
    pub(super) fn refill(&mut self) {
        if let Some(bytes) = self.bytes.get(self.next..).and_then(<[u8]>::first_chunk) {
            self.window |= u64::from_be_bytes(*bytes) >> self.held;
            let whole = (63 - self.held) / 8;
            self.next += whole as usize;
            self.held += 8 * whole;
        } else {
            *self = self.refilled_at_the_end();
        }
    }

    /// Takes a copy, so that a reader in a loop stays in registers: one that a call may change does not.
    #[cold]
    fn refilled_at_the_end(mut self) -> Self {
        while self.held < 56 {
            let byte = self.bytes.get(self.next).copied().unwrap_or(0);
            self.window |= u64::from(byte) << (56 - self.held);
            self.next += 1;
            self.held += 8;
        }
        self
    }

    /// The next `count` bits, of those in the window: from 1 to 63.
    #[inline(always)]
    pub(super) fn ahead(&self, count: u32) -> usize {
        (self.window >> (64 - count)) as usize
    }

    /// Goes on by `count` bits, of those in the window: at most 56.
    #[inline(always)]
    pub(super) fn skip(&mut self, count: u32) {
        self.window <<= count;
        self.held -= count;
    }

    /// The next bits, of those in the window, as a number: at most 32.
    #[inline(always)]
    pub(super) fn held(&mut self, count: u32) -> u32 {
        // In two steps, as no bits are a shift by 64.
        let value = (self.window >> 1) >> (63 - count);
        self.skip(count);
        value as u32
    }

    /// The next bits as a number: at most 32.
    pub(super) fn take(&mut self, count: u32) -> u32 {
        self.refill();
        self.held(count)
    }

    /// The next bit.
    pub(super) fn flag(&mut self) -> bool {
        self.take(1) == 1
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bits_come_in_order_and_zeros_after_them(
            bytes in prop::collection::vec(any::<u8>(), 0..40),
            start in 0usize..100,
            counts in prop::collection::vec(0u32..33, 0..30),
        ) {
            let mut bits = Bits::new(&bytes, start);
            let mut at = start;
            for count in counts {
                let bit = |i: usize| bytes.get(i / 8).map_or(0, |byte| u64::from(byte >> (7 - i % 8) & 1));
                let expected = (at..at + count as usize).fold(0u64, |value, i| (value << 1) | bit(i));
                prop_assert_eq!(bits.position(), at);
                prop_assert_eq!(u64::from(bits.take(count)), expected);
                at += count as usize;
            }
        }
    }
}
