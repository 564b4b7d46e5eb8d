//! A random permutation of `0..n` in O(1) memory: any position is answered on its own.
//!
//! A balanced Feistel network over the smallest even-bit domain that holds `n`, walked until the value falls
//! inside `0..n` (at most four steps on average, but for a handful of items). The round function is a multiply-xorshift hash under keys from
//! Philox. Feistel networks give permutations for any round function (Luby and Rackoff, 1988); cycle walking
//! keeps that on a subset (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002).

use std::cell::Cell;

use crate::rng::philox4x32;

/// Four rounds are pseudorandom for an ideal round function; small domains need more to look uniform.
const ROUNDS: usize = 8;

/// Least bits of a half. Domains of 16 values or less are visibly uneven (the tests below fail with 2 bits).
const MIN_HALF_BITS: u32 = 4;

/// Positions that are looked up together: a round of one takes so long that others fit beside it, and eight make
/// vectors.
const LANES: usize = 8;

/// Positions whose walks are sorted out together, as their places are counted in bytes.
const BLOCK: usize = 128;

/// Distinguishes the order's use of Philox from the transforms', which put a stage number there.
const DOMAIN: u32 = 0x6F72_6465;

/// A permutation of `0..len`, drawn by (seed, epoch, stage).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Permutation {
    len: u64,
    half_bits: u32,
    keys: [u64; ROUNDS],
}

/// What a permutation is drawn from: (len, seed, epoch, stage).
type Drawn = (u64, u64, u64, u32);

thread_local! {
    /// The permutation that this thread asked for last: the samples of a batch ask for the same one, whose keys take
    /// longer to draw than a position to look up.
    static LAST: Cell<Option<(Drawn, Permutation)>> = const { Cell::new(None) };
}

impl Permutation {
    /// [`Permutation::new`], drawn anew only if this thread asked for another one last.
    pub(crate) fn recent(len: u64, seed: u64, epoch: u64, stage: u32) -> Self {
        let drawn = (len, seed, epoch, stage);
        match LAST.get() {
            Some((last, permutation)) if last == drawn => permutation,
            _ => {
                let permutation = Self::new(len, seed, epoch, stage);
                LAST.set(Some((drawn, permutation)));
                permutation
            }
        }
    }

    pub(crate) fn new(len: u64, seed: u64, epoch: u64, stage: u32) -> Self {
        Self::inside(len, seed, epoch, stage, 0)
    }

    /// As [`Permutation::new`], for one of many parts that are permuted each by itself.
    pub(crate) fn inside(len: u64, seed: u64, epoch: u64, stage: u32, part: u64) -> Self {
        let bits = u64::BITS - len.saturating_sub(1).leading_zeros();
        let mut keys = [0; ROUNDS];
        // Parts are told apart by 62 bits, in the word of the block and in that of the epoch's upper half.
        let (low, high) = ((part as u32) << 2, (part >> 30) as u32);
        for (block, pair) in keys.chunks_exact_mut(2).enumerate() {
            let counter = [block as u32 | low, stage ^ DOMAIN, epoch as u32, (epoch >> 32) as u32 ^ high];
            let words = philox4x32(counter, [seed as u32, (seed >> 32) as u32]);
            pair[0] = u64::from(words[0]) << 32 | u64::from(words[1]);
            pair[1] = u64::from(words[2]) << 32 | u64::from(words[3]);
        }
        Self { len, half_bits: bits.div_ceil(2).max(MIN_HALF_BITS), keys }
    }

    /// The item at `position`, which must be below `len`.
    pub(crate) fn at(&self, position: u64) -> u64 {
        debug_assert!(position < self.len);
        let mut value = position;
        loop {
            value = self.encrypt(value);
            if value < self.len {
                return value;
            }
        }
    }

    /// Puts the item at each of `positions`, which must be below `len`, in its place. Several rounds are under way at
    /// once, where [`Permutation::at`] waits for one after the other. So are walks: all values go one step, and
    /// then those that are not inside, together.
    pub(crate) fn at_all(&self, positions: &mut [u64]) {
        debug_assert!(positions.iter().all(|position| *position < self.len));
        for block in positions.chunks_mut(BLOCK) {
            // The first ones are the places of values that are not inside yet.
            let mut outside: [u8; BLOCK] = std::array::from_fn(|place| place as u8);
            let mut count = block.len();
            while count > 0 {
                count = self.step_all(block, &mut outside, count);
            }
        }
    }

    /// One step of the walks of the values at the first `count` places in `outside`; puts those places first that are
    /// outside after it, and says how many they are.
    fn step_all(&self, values: &mut [u64], outside: &mut [u8; BLOCK], count: usize) -> usize {
        let mut kept = 0;
        for first in (0..count).step_by(LANES) {
            // Lanes that are left over do what the last one does, and nobody looks.
            let places: [u8; LANES] = std::array::from_fn(|lane| outside[(first + lane).min(count - 1)]);
            let made = self.encrypt_all(places.map(|place| values[usize::from(place)]));
            for (place, value) in places.into_iter().zip(made).take(count - first) {
                values[usize::from(place)] = value;
                outside[kept] = place;
                kept += usize::from(value >= self.len);
            }
        }
        kept
    }

    /// The position of `item`, which must be below `len`: undoes [`Permutation::at`].
    pub(crate) fn place_of(&self, item: u64) -> u64 {
        debug_assert!(item < self.len);
        let mut value = item;
        loop {
            value = self.decrypt(value);
            if value < self.len {
                return value;
            }
        }
    }

    fn decrypt(&self, value: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for key in self.keys.into_iter().rev() {
            (left, right) = (right ^ (mix(left ^ key) & mask), left);
        }
        left << self.half_bits | right
    }

    fn encrypt(&self, value: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for key in self.keys {
            (left, right) = (right, left ^ (mix(right ^ key) & mask));
        }
        left << self.half_bits | right
    }

    fn encrypt_all(&self, values: [u64; LANES]) -> [u64; LANES] {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) =
            (values.map(|value| value >> self.half_bits), values.map(|value| value & mask));
        for key in self.keys {
            let mut next = left;
            for lane in 0..LANES {
                next[lane] ^= mix(right[lane] ^ key) & mask;
            }
            (left, right) = (right, next);
        }
        for lane in 0..LANES {
            right[lane] |= left[lane] << self.half_bits;
        }
        right
    }
}

/// The finalizer of SplitMix64 (Steele, Lea, Flood, 2014), folded so that low bits depend on all.
fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_looked_up_together_are_those_looked_up_one_by_one() {
        for len in [1, 3, 4, 17, 127, 128, 129, 256, 257, 1000, 1 << 20] {
            let permutation = Permutation::new(len, 5, 2, 1);
            let mut positions: Vec<u64> = (0..len.min(1003)).rev().collect();
            let expected: Vec<u64> = positions.iter().map(|position| permutation.at(*position)).collect();
            permutation.at_all(&mut positions);
            assert_eq!(positions, expected, "{len}");
        }
    }

    #[test]
    fn a_permutation_that_is_kept_is_the_one_that_was_asked_for() {
        let kinds = [
            (100, 1, 0, 0),
            (100, 1, 0, 0),
            (100, 1, 1, 0),
            (100, 1, 0, 0),
            (100, 2, 0, 0),
            (90, 2, 0, 0),
            (90, 2, 0, 1),
        ];
        for (len, seed, epoch, stage) in kinds {
            let new = Permutation::new(len, seed, epoch, stage);
            let recent = Permutation::recent(len, seed, epoch, stage);
            assert!((0..len).all(|at| new.at(at) == recent.at(at)));
        }
    }

    #[test]
    fn every_length_is_permuted() {
        for len in (1..200).chain([255, 256, 257, 1000, 4095, 4096, 4097]) {
            let permutation = Permutation::new(len, 3, 5, 0);
            let mut seen = vec![false; len as usize];
            for i in 0..len {
                let j = permutation.at(i) as usize;
                assert_eq!(permutation.place_of(j as u64), i);
                assert!(!seen[j], "{j} twice in {len}");
                seen[j] = true;
            }
        }
    }

    #[test]
    fn huge_lengths_work() {
        let permutation = Permutation::new(u64::MAX / 3, 1, 1, 1);
        assert!((0..1000).all(|i| permutation.at(i) < u64::MAX / 3));
    }

    /// All 120 permutations of five items, over 60,000 keys: chi-square with 119 degrees of freedom.
    #[test]
    fn small_permutations_are_close_to_uniform() {
        let mut counts = std::collections::HashMap::new();
        let trials = 60_000;
        for epoch in 0..trials {
            let p = Permutation::new(5, 11, epoch, 0);
            *counts.entry([p.at(0), p.at(1), p.at(2), p.at(3), p.at(4)]).or_insert(0u32) += 1;
        }
        assert_eq!(counts.len(), 120);
        let expected = trials as f64 / 120.0;
        let chi2: f64 = counts.values().map(|&c| (f64::from(c) - expected).powi(2) / expected).sum();
        assert!(chi2 < 200.0, "chi2 {chi2}");
    }

    /// Where a given item lands is uniform, and neighbours do not stay neighbours.
    #[test]
    fn positions_and_gaps_look_random() {
        let (len, epochs) = (1000u64, 200u64);
        let (mut bins, mut neighbours) = ([0u32; 10], 0u32);
        for epoch in 0..epochs {
            let p = Permutation::new(len, 42, epoch, 0);
            for i in 0..len {
                if i < 50 {
                    bins[(p.at(i) * 10 / len) as usize] += 1;
                }
                neighbours += u32::from(i + 1 < len && p.at(i) + 1 == p.at(i + 1));
            }
        }
        let expected = (50 * epochs / 10) as f64;
        let chi2: f64 = bins.iter().map(|&b| (f64::from(b) - expected).powi(2) / expected).sum();
        assert!(chi2 < 27.9, "chi2 {chi2} with 9 degrees of freedom");
        // A uniform permutation keeps one adjacent pair on average.
        let mean = f64::from(neighbours) / epochs as f64;
        assert!((0.7..1.3).contains(&mean), "{mean} adjacent pairs kept");
    }
}
