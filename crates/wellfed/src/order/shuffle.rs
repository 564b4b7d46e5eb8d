//! Orders in which neighbours are permuted: all of them, or blocks and what is in a window of blocks.

use super::permutation::Permutation;

/// Distinguishes the permutation of blocks from those inside of windows.
const BLOCKS: u32 = 0x0001_0000;

/// One permutation of everything.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shuffle {
    pub(super) len: u64,
    pub(super) seed: u64,
    /// Shuffles below.
    pub(super) stage: u32,
}

impl Shuffle {
    pub(super) fn at(&self, epoch: u64, position: u64) -> u64 {
        Permutation::recent(self.len, self.seed, epoch, self.stage).at(position)
    }

    /// [`Shuffle::at`] of each of `positions`, in place.
    pub(super) fn at_all(&self, epoch: u64, positions: &mut [u64]) {
        Permutation::recent(self.len, self.seed, epoch, self.stage).at_all(positions);
    }
}

/// Blocks of neighbours in a permuted order, and inside of each window of blocks everything permuted.
///
/// A block is read from one place, and at most `window` of them are open at a time. Every sample is equally likely at
/// every position (but for what a smaller last block shifts), while samples of one block always come within one window
/// of each other: `window * block_size` positions. So neighbours in the source stay nearer than under a whole
/// permutation, the more so the fewer blocks a window holds; what is in a batch is as mixed as `window` blocks are.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockShuffle {
    pub(super) whole: Shuffle,
    pub(super) block_size: u64,
    pub(super) window: u64,
}

impl BlockShuffle {
    pub(super) fn at(&self, epoch: u64, position: u64) -> u64 {
        let Shuffle { len, seed, stage } = self.whole;
        let size = self.block_size;
        let count = len.div_ceil(size);
        let blocks = Permutation::new(count, seed, epoch, stage | BLOCKS);
        // The last block may be smaller: wherever it comes, what follows it moves up by what it lacks.
        let lacking = count * size - len;
        let short = blocks.place_of(count - 1);
        let start_of = |place: u64| place * size - if place > short { lacking } else { 0 };
        let place_of = |position: u64| {
            let place = position / size;
            if place < short || (place == short && position < start_of(short) + size - lacking) {
                place
            } else {
                (position + lacking) / size
            }
        };
        let window = place_of(position) / self.window;
        let start = start_of(window * self.window);
        let end = start_of((window + 1).saturating_mul(self.window).min(count)).min(len);
        let inside = Permutation::inside(end - start, seed, epoch, stage, window);
        let position = start + inside.at(position - start);
        let place = place_of(position);
        blocks.at(place) * size + (position - start_of(place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_permuted_whatever_the_length() {
        for len in [1, 2, 9, 10, 11, 99, 100, 101, 257] {
            for (block_size, window) in [(1, 1), (3, 2), (10, 1), (10, 3), (7, 100), (1000, 4)] {
                let shuffle = BlockShuffle { whole: Shuffle { len, seed: 4, stage: 0 }, block_size, window };
                let mut order: Vec<u64> = (0..len).map(|i| shuffle.at(1, i)).collect();
                // In every window there are at most so many blocks.
                let mut blocks_of_first: Vec<u64> = order
                    .iter()
                    .take((block_size.min(len) * window.min(len)) as usize)
                    .map(|i| i / block_size)
                    .collect();
                blocks_of_first.sort_unstable();
                blocks_of_first.dedup();
                assert!(blocks_of_first.len() as u64 <= window + 1, "{len} {block_size} {window}");
                order.sort_unstable();
                assert!(order.into_iter().eq(0..len), "{len} {block_size} {window}");
            }
        }
    }

    #[test]
    fn every_sample_comes_at_every_place_alike() {
        // 12 samples in blocks of 5, windows of 2: over many epochs each is at position 0 about as often.
        let shuffle =
            BlockShuffle { whole: Shuffle { len: 12, seed: 1, stage: 0 }, block_size: 5, window: 2 };
        let mut counts = [0u32; 12];
        let epochs = 12_000u32;
        for epoch in 0..u64::from(epochs) {
            counts[shuffle.at(epoch, 0) as usize] += 1;
        }
        assert!(counts.iter().all(|&n| n > epochs / 20 && n < epochs / 8), "{counts:?}");
    }
}
