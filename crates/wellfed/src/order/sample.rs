//! Each element from an input that is chosen at random by weight.
//!
//! How often each input was chosen in the first `n` elements is a *quota*: of what the inputs before it left, input `i`
//! gets `floor(rest * share + phase)`, where the phase is drawn by the seed. Quotas rise with `n` by one for exactly one
//! input, need no table, and stay within a few elements of `n * weight` for ever. The order inside of each block of
//! [`BLOCK`] elements is random: the block's elements are dealt one by one, each input as likely as it has elements left in
//! it, with numbers keyed by (seed, epoch, block). So any element is found in O(1): quotas at the start of its block,
//! and a part of one deal.
//!
//! This is stratified sampling (one stratum a block) with systematic rounding; see W. G. Cochran, "Sampling
//! Techniques" (1977), chapters 5 and 8. Compared with independent draws, counts vary less, and the choice is as
//! unpredictable inside of a block.
//!
//! When an input has ended and the others go on, a new *stretch* begins with the weights that are left.

use crate::rng::{Rng, philox4x32, stage};

/// Elements that are dealt together. More look more random, and take longer.
pub(super) const BLOCK: u64 = 64;

/// Distinguishes deals from other uses of Philox.
const DEAL: u32 = 0x6465_616C;

/// Elements during which the same inputs take part.
#[derive(Clone, Debug)]
struct Stretch {
    start: u64,
    /// Elements each input had given before.
    given: Vec<u64>,
    /// What an input gets of what those before it left, in units of 2^-64; the last one that takes part gets the rest.
    shares: Vec<Share>,
    /// Elements; `u64::MAX` is without end.
    len: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Share {
    Nothing,
    Part { share: u64, phase: u64 },
    Rest,
}

/// A choice among inputs of known length.
#[derive(Clone, Debug)]
pub(super) struct SampleFrom {
    seed: u64,
    stage: u32,
    stretches: Vec<Stretch>,
}

impl SampleFrom {
    /// `weights` must have an entry for each of `lens`, be finite and not negative, and have a positive sum.
    pub(super) fn new(weights: &[f64], lens: &[Option<u64>], seed: u64, stage: u32, stop: bool) -> Self {
        let lens: Vec<u64> = lens.iter().map(|len| len.unwrap_or(u64::MAX)).collect();
        let mut this = Self { seed, stage, stretches: Vec::new() };
        let (mut start, mut given) = (0u64, vec![0u64; lens.len()]);
        loop {
            let takes_part = |i: usize| weights[i] > 0.0 && (given[i] < lens[i] || (stop && lens[i] == 0));
            let left: Vec<f64> =
                (0..lens.len()).map(|i| if takes_part(i) { weights[i] } else { 0.0 }).collect();
            if left.iter().all(|weight| *weight == 0.0) {
                break;
            }
            let shares = shares(&left, seed, this.stretches.len() as u64);
            let stretch = Stretch { start, given: given.clone(), shares, len: 0 };
            let fits = |n: u64| (0..lens.len()).all(|i| stretch.quota(i, n) <= lens[i] - given[i]);
            let room = u64::MAX - start;
            let len = if (0..lens.len()).all(|i| left[i] == 0.0 || lens[i] == u64::MAX) {
                room
            } else {
                // The most elements of which every input has enough.
                let (mut low, mut high) = (0, room);
                while low < high {
                    let middle = low + (high - low).div_ceil(2);
                    if fits(middle) { low = middle } else { high = middle - 1 }
                }
                low
            };
            for (i, given) in given.iter_mut().enumerate() {
                *given = given.saturating_add(stretch.quota(i, len));
            }
            if len > 0 {
                this.stretches.push(Stretch { len, ..stretch });
            }
            start = start.saturating_add(len);
            if stop || start == u64::MAX || len == 0 {
                break;
            }
        }
        this
    }

    /// Elements; `None` is without end.
    pub(super) fn len(&self) -> Option<u64> {
        let last = self.stretches.last();
        last.map_or(Some(0), |last| Some(last.start + last.len).filter(|end| *end != u64::MAX))
    }

    /// The input at `position`, and the position in it.
    pub(super) fn at(&self, epoch: u64, position: u64) -> (usize, u64) {
        let at = self.stretches.partition_point(|stretch| stretch.start <= position).saturating_sub(1);
        let stretch = &self.stretches[at];
        let place = position - stretch.start;
        let block = place / BLOCK;
        let (first, end) = (block * BLOCK, (block * BLOCK).saturating_add(BLOCK).min(stretch.len));
        let mut deal = Deal::new(self.seed, epoch, at as u64, block, self.stage);
        // Elements before this one in its block, and which of them are of the same input.
        let inputs = stretch.shares.len();
        let mut dealt = [0u8; SMALL];
        let mut more = Vec::new();
        let dealt: &mut [u8] = if inputs <= SMALL {
            &mut dealt[..inputs]
        } else {
            more.resize(inputs, 0);
            &mut more
        };
        let mut quotas = [0u8; SMALL];
        let mut more_quotas = Vec::new();
        let quotas: &mut [u8] = if inputs <= SMALL {
            &mut quotas[..inputs]
        } else {
            more_quotas.resize(inputs, 0);
            &mut more_quotas
        };
        stretch.quotas(first, end, quotas);
        for place_in_block in first..=place {
            let mut lot = deal.below((end - place_in_block) as u32);
            let mut input = 0;
            while lot >= u32::from(quotas[input] - dealt[input]) {
                lot -= u32::from(quotas[input] - dealt[input]);
                input += 1;
            }
            if place_in_block == place {
                return (input, stretch.given[input] + stretch.quota(input, first) + u64::from(dealt[input]));
            }
            dealt[input] += 1;
        }
        unreachable!("the last element of the loop is the one that is asked for")
    }
}

/// Inputs up to which a pick needs no memory of its own.
const SMALL: usize = 32;

impl Stretch {
    /// How often input `i` was chosen in the first `n` elements.
    fn quota(&self, input: usize, n: u64) -> u64 {
        let mut rest = n;
        for share in &self.shares[..input] {
            rest -= share.of(rest);
        }
        self.shares[input].of(rest)
    }

    /// How often each input is chosen from element `first` to `end`.
    fn quotas(&self, first: u64, end: u64, out: &mut [u8]) {
        let (mut from, mut to) = (first, end);
        for (share, out) in self.shares.iter().zip(out) {
            let (a, b) = (share.of(from), share.of(to));
            *out = (b - a) as u8;
            from -= a;
            to -= b;
        }
    }
}

impl Share {
    /// What it gets of `rest` elements: never falls when there are more, and never rises by more than they do.
    fn of(self, rest: u64) -> u64 {
        match self {
            Share::Nothing => 0,
            Share::Rest => rest,
            Share::Part { share, phase } => {
                ((u128::from(rest) * u128::from(share) + u128::from(phase)) >> 64) as u64
            }
        }
    }
}

/// Shares of inputs one after the other: each is of what those before it left.
fn shares(weights: &[f64], seed: u64, stretch: u64) -> Vec<Share> {
    let last = weights.iter().rposition(|weight| *weight > 0.0);
    let mut shares = Vec::with_capacity(weights.len());
    for (i, &weight) in weights.iter().enumerate() {
        let rest: f64 = weights[i..].iter().sum();
        shares.push(if weight <= 0.0 {
            Share::Nothing
        } else if Some(i) == last {
            Share::Rest
        } else {
            // 2^64 as a float; the product is below it, since others are left.
            let share = (weight / rest * 18_446_744_073_709_551_616.0) as u64;
            let mut rng = Rng::for_stage(seed, stretch, i as u64, stage::PHASE);
            Share::Part { share, phase: rng.next_u64() }
        });
    }
    shares
}

/// The random numbers of one block.
struct Deal {
    key: [u32; 2],
    counter: [u32; 4],
    words: [u32; 4],
    used: usize,
}

impl Deal {
    fn new(seed: u64, epoch: u64, stretch: u64, block: u64, stage: u32) -> Self {
        let key = [seed as u32 ^ DEAL, (seed >> 32) as u32 ^ stage];
        let high = ((block >> 32) as u32) ^ (stretch as u32).rotate_left(16);
        Self {
            key,
            counter: [0, high ^ (epoch >> 32) as u32, epoch as u32, block as u32],
            words: [0; 4],
            used: 4,
        }
    }

    /// A number below `bound`, which is at most [`BLOCK`]: what is uneven in that is below 2^-26.
    fn below(&mut self, bound: u32) -> u32 {
        if self.used == 4 {
            self.words = philox4x32(self.counter, self.key);
            self.counter[0] += 1;
            self.used = 0;
        }
        self.used += 1;
        ((u64::from(self.words[self.used - 1]) * u64::from(bound)) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(sample: &SampleFrom, epoch: u64, count: u64) -> Vec<(usize, u64)> {
        (0..count).map(|position| sample.at(epoch, position)).collect()
    }

    #[test]
    fn inputs_are_taken_in_their_order_and_by_their_weights() {
        let weights = [0.5, 0.2, 0.3, 0.0, 0.001];
        let sample = SampleFrom::new(&weights, &[None; 5], 3, 0, false);
        assert_eq!(sample.len(), None);
        let total: f64 = weights.iter().sum();
        let mut counts = [0u64; 5];
        for (n, (input, place)) in run(&sample, 2, 20_000).into_iter().enumerate() {
            assert_eq!(place, counts[input], "element {n}");
            counts[input] += 1;
            for (count, weight) in counts.iter().zip(weights) {
                let expected = (n + 1) as f64 * weight / total;
                assert!((*count as f64 - expected).abs() < 20.0, "{counts:?} after {n}");
            }
        }
        assert_eq!(counts[3], 0);
    }

    #[test]
    fn what_comes_next_is_random() {
        let sample = SampleFrom::new(&[1.0, 1.0], &[None; 2], 3, 0, false);
        let first: Vec<usize> = run(&sample, 0, 10_000).into_iter().map(|(input, _)| input).collect();
        let second: Vec<usize> = run(&sample, 1, 10_000).into_iter().map(|(input, _)| input).collect();
        let other: Vec<usize> = run(&SampleFrom::new(&[1.0, 1.0], &[None; 2], 4, 0, false), 0, 10_000)
            .into_iter()
            .map(|(input, _)| input)
            .collect();
        let agree = |a: &[usize], b: &[usize]| {
            a.iter().zip(b).filter(|(a, b)| a == b).count() as f64 / a.len() as f64
        };
        assert!((agree(&first, &second) - 0.5).abs() < 0.03);
        assert!((agree(&first, &other) - 0.5).abs() < 0.03);
        // Neighbours: dealt without putting back, so the same again is a little less likely than one half.
        let again = agree(&first[1..], &first[..first.len() - 1]);
        assert!((again - 0.49).abs() < 0.03, "{again}");
    }

    #[test]
    fn it_ends_with_the_first_input_or_goes_on_with_the_others() {
        let lens = [Some(100), Some(1000), Some(0)];
        let stop = SampleFrom::new(&[0.5, 0.5, 0.0], &lens, 7, 0, true);
        let len = stop.len().unwrap();
        assert!((190..=210).contains(&len), "{len}");
        assert!(run(&stop, 0, len).iter().all(|&(input, place)| place < lens[input].unwrap()));
        let all = SampleFrom::new(&[0.5, 0.5, 0.3], &lens, 7, 0, false);
        assert_eq!(all.len(), Some(1100));
        for epoch in 0..3 {
            let mut found = run(&all, epoch, 1100);
            found.sort_unstable();
            let expected: Vec<_> = (0..100).map(|i| (0, i)).chain((0..1000).map(|i| (1, i))).collect();
            assert_eq!(found, expected);
        }
        assert_eq!(SampleFrom::new(&[0.5, 0.5, 0.3], &lens, 7, 0, true).len().unwrap() / 8, 0);
        let endless = SampleFrom::new(&[0.9, 0.1], &[Some(10), None], 1, 0, false);
        assert_eq!((endless.len(), endless.at(0, 1 << 50).0), (None, 1));
    }

    #[test]
    fn many_inputs_need_memory_but_work() {
        let weights: Vec<f64> = (1..=50).map(f64::from).collect();
        let sample = SampleFrom::new(&weights, &[Some(40); 50], 1, 0, false);
        assert_eq!(sample.len(), Some(2000));
        let mut found = run(&sample, 0, 2000);
        found.sort_unstable();
        assert!(found.into_iter().eq((0..50).flat_map(|input| (0..40).map(move |i| (input, i)))));
    }
}
