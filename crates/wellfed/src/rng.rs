//! Counter-based randomness: Philox4x32-10, keyed by what is drawn for, never by who draws.
//!
//! [`Rng::for_stage`] is a pure function of (seed, epoch, sample, stage): the draw is the same on any thread,
//! in any order, after any restart. Within a stage, numbers come from a running block counter. [`stage`] lists the stages
//! that are no transform's.
//!
//! Source of the generator and of the test vectors: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as
//! easy as 1, 2, 3" (SC 2011), and the known-answer file of its Random123 library.

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// Stage numbers. Those of transforms count up from 0; the last ones are reserved for draws that no transform makes.
pub mod stage {
    /// Transforms on the way from a source to the root are fewer: all numbers from here on are reserved.
    pub const RESERVED: u32 = 0xFF00;

    /// The transforms of whole batches, in their order.
    pub(crate) const BATCHES: std::ops::Range<u32> = 0xFF00..0xFF40;

    /// Where the turns of an input of `sample_from_datasets` begin.
    pub(crate) const PHASE: u32 = 0xFFFD;

    /// The epochs that key the samples of a pass whose order the caller gives.
    pub(crate) const GIVEN: u32 = 0xFFFE;

    /// The replacement of a bad sample.
    pub(crate) const REPLACEMENT: u32 = 0xFFFF;
}

/// One block of Philox4x32-10: four random words for a 128-bit counter and a 64-bit key.
pub fn philox4x32(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for round in 0..10 {
        if round > 0 {
            key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
        }
        let a = u64::from(counter[0]) * u64::from(MULTIPLIERS[0]);
        let b = u64::from(counter[2]) * u64::from(MULTIPLIERS[1]);
        counter = [
            (b >> 32) as u32 ^ counter[1] ^ key[0],
            b as u32,
            (a >> 32) as u32 ^ counter[3] ^ key[1],
            a as u32,
        ];
    }
    counter
}

/// The random numbers of one stage for one sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng {
    key: [u32; 2],
    counter: [u32; 4],
    block: [u32; 4],
    used: usize,
}

impl Rng {
    /// Numbers for `stage` (its place in the plan) of sample `index` in `epoch`, under the user's `seed`.
    ///
    /// Epochs are told apart modulo 2^32, stages modulo 2^16, and a stage may draw 2^18 numbers.
    pub fn for_stage(seed: u64, epoch: u64, index: u64, stage: u32) -> Self {
        debug_assert!(stage <= 0xFFFF, "stage {stage} would be taken for {}", stage & 0xFFFF);
        let counter = [(stage & 0xFFFF) << 16, epoch as u32, index as u32, (index >> 32) as u32];
        Self { key: [seed as u32, (seed >> 32) as u32], counter, block: [0; 4], used: 4 }
    }

    /// A uniform 32-bit word.
    pub fn next_u32(&mut self) -> u32 {
        if self.used == 4 {
            self.block = philox4x32(self.counter, self.key);
            self.counter[0] = (self.counter[0] & 0xFFFF_0000) | (self.counter[0].wrapping_add(1) & 0xFFFF);
            self.used = 0;
        }
        self.used += 1;
        self.block[self.used - 1]
    }

    /// A uniform 64-bit word.
    pub fn next_u64(&mut self) -> u64 {
        u64::from(self.next_u32()) << 32 | u64::from(self.next_u32())
    }

    /// Uniform in `[0, 1)`, with 53 random bits.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Uniform in `[low, high)`; `low` if the range is empty.
    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Uniform in `[0, 1)` in float32, with 24 random bits as torch has them.
    pub fn unit_single(&mut self) -> f32 {
        (self.next_u32() >> 8) as f32 * (1.0 / (1u32 << 24) as f32)
    }

    /// Uniform in `[low, high)` as torch computes it of a float32 tensor: `low + torch.rand(1) * (high - low)`.
    pub fn uniform_single(&mut self, [low, high]: [f64; 2]) -> f32 {
        low as f32 + self.unit_single() * (high - low) as f32
    }

    /// Uniform integer in `0..bound`; 0 if `bound` is 0. Unbiased: rejects the uneven tail.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound <= 1 {
            return 0;
        }
        // Lemire, "Fast random integer generation in an interval" (2019).
        loop {
            let product = u128::from(self.next_u64()) * u128::from(bound);
            if product as u64 >= bound.wrapping_neg() % bound {
                return (product >> 64) as u64;
            }
        }
    }

    /// True with probability `p`.
    pub fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }

    /// A place in `weights`, as often as its weight is of their sum; never one whose weight is 0, if there is another.
    pub(crate) fn weighted(&mut self, weights: &[f64]) -> usize {
        let mut rest = self.unit() * weights.iter().sum::<f64>();
        let mut last = 0;
        for (at, &weight) in weights.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
            last = at;
            if rest < weight {
                break;
            }
            rest -= weight;
        }
        last
    }

    /// Standard normal (Box and Muller's transform, one number of each pair).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Shuffles `items` uniformly (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_gives_the_known_answers_of_random123() {
        let ones = u32::MAX;
        for (counter, key, answer) in [
            ([0; 4], [0; 2], [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]),
            ([ones; 4], [ones; 2], [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]),
            (
                [0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344],
                [0xa4093822, 0x299f31d0],
                [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1],
            ),
        ] {
            assert_eq!(philox4x32(counter, key), answer);
        }
    }

    #[test]
    fn every_part_of_the_identity_changes_the_numbers() {
        let first = |s, e, i, t| Rng::for_stage(s, e, i, t).next_u64();
        let base = first(1, 2, 3, 4);
        for other in [first(9, 2, 3, 4), first(1, 9, 3, 4), first(1, 2, 9, 4), first(1, 2, 3 + (1 << 40), 4)]
        {
            assert_ne!(base, other);
        }
        assert_ne!(base, first(1, 2, 3, 5));
        assert_eq!(base, first(1, 2, 3, 4));
    }

    #[test]
    fn moments_are_those_of_the_distributions() {
        let mut rng = Rng::for_stage(7, 0, 0, 0);
        let n = 100_000;
        let (mut mean, mut normal, mut square, mut heads) = (0.0, 0.0, 0.0, 0);
        let mut bins = [0u32; 7];
        for _ in 0..n {
            mean += rng.unit();
            let z = rng.normal();
            normal += z;
            square += z * z;
            heads += u32::from(rng.chance(0.3));
            bins[rng.below(7) as usize] += 1;
        }
        let n = f64::from(n);
        assert!((mean / n - 0.5).abs() < 0.005);
        assert!((normal / n).abs() < 0.015 && (square / n - 1.0).abs() < 0.02);
        assert!((f64::from(heads) / n - 0.3).abs() < 0.007);
        let expected = n / 7.0;
        let chi2: f64 = bins.iter().map(|&b| (f64::from(b) - expected).powi(2) / expected).sum();
        assert!(chi2 < 22.5, "chi2 {chi2} with 6 degrees of freedom");
    }

    #[test]
    fn a_shuffle_keeps_all_items() {
        let mut items: Vec<u32> = (0..50).collect();
        Rng::for_stage(1, 1, 1, 1).shuffle(&mut items);
        assert_ne!(items, (0..50).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..50).collect::<Vec<_>>());
    }
}
