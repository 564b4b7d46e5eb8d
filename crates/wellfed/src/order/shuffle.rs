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
    /// Whether each epoch has an order of its own; otherwise all have that of epoch 0.
    pub(super) anew: bool,
}

impl Shuffle {
    /// The epoch whose order `epoch` has.
    fn epoch(&self, epoch: u64) -> u64 {
        if self.anew { epoch } else { 0 }
    }

    pub(super) fn at(&self, epoch: u64, position: u64) -> u64 {
        Permutation::recent(self.len, self.seed, self.epoch(epoch), self.stage).at(position)
    }

    /// [`Shuffle::at`] of each of `positions`, in place.
    pub(super) fn at_all(&self, epoch: u64, positions: &mut [u64]) {
        Permutation::recent(self.len, self.seed, self.epoch(epoch), self.stage).at_all(positions);
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
        let blocks = Blocks::of(self, epoch);
        let window = blocks.window_of(position);
        let (start, inside) = blocks.inside(window);
        blocks.item(start + inside.at(position - start))
    }

    /// [`BlockShuffle::at`] of each of `positions`, in place: what is drawn for a window is drawn once for neighbours in it.
    pub(super) fn at_all(&self, epoch: u64, positions: &mut [u64]) {
        if positions.is_empty() {
            return;
        }
        let blocks = Blocks::of(self, epoch);
        let mut known = Vec::new();
        for positions in positions.chunk_by_mut(|one, next| blocks.window_of(*one) == blocks.window_of(*next))
        {
            let Some(window) = positions.first().map(|first| blocks.window_of(*first)) else { continue };
            let (start, inside) = blocks.inside(window);
            positions.iter_mut().for_each(|position| *position -= start);
            inside.at_all(positions);
            known.clear();
            for position in positions {
                *position = blocks.item_of(start + *position, window, &mut known);
            }
        }
    }
}

/// Most blocks of a window whose numbers are kept while its positions are looked up.
const KEPT: u64 = 1024;

/// The blocks of an epoch.
struct Blocks {
    shuffle: BlockShuffle,
    epoch: u64,
    /// Number of blocks, and the order in which they come.
    count: u64,
    order: Permutation,
    /// The place of the last block, which may be smaller than others: wherever it comes, what follows it moves up by what it
    /// lacks.
    short: u64,
    lacking: u64,
}

impl Blocks {
    fn of(shuffle: &BlockShuffle, epoch: u64) -> Self {
        let Shuffle { len, seed, stage, .. } = shuffle.whole;
        let epoch = shuffle.whole.epoch(epoch);
        let count = len.div_ceil(shuffle.block_size);
        let order = Permutation::recent(count, seed, epoch, stage | BLOCKS);
        let lacking = count * shuffle.block_size - len;
        Self { shuffle: *shuffle, epoch, count, order, short: order.place_of(count - 1), lacking }
    }

    /// The first position of the block at `place`.
    fn start_of(&self, place: u64) -> u64 {
        place * self.shuffle.block_size - if place > self.short { self.lacking } else { 0 }
    }

    /// The place of the block that `position` lies in.
    fn place_of(&self, position: u64) -> u64 {
        let size = self.shuffle.block_size;
        let place = position / size;
        let before = place == self.short && position < self.start_of(self.short) + size - self.lacking;
        if place < self.short || before { place } else { (position + self.lacking) / size }
    }

    fn window_of(&self, position: u64) -> u64 {
        self.place_of(position) / self.shuffle.window
    }

    /// The first position of a window, and how what is in it is permuted.
    fn inside(&self, window: u64) -> (u64, Permutation) {
        let Shuffle { len, seed, stage, .. } = self.shuffle.whole;
        let start = self.start_of(window * self.shuffle.window);
        let end = self.start_of((window + 1).saturating_mul(self.shuffle.window).min(self.count)).min(len);
        (start, Permutation::inside(end - start, seed, self.epoch, stage, window))
    }

    fn item(&self, position: u64) -> u64 {
        let place = self.place_of(position);
        self.order.at(place) * self.shuffle.block_size + (position - self.start_of(place))
    }

    /// [`Blocks::item`] of a position in `window`, of which `known` has the numbers of blocks that were looked up, plus 1.
    fn item_of(&self, position: u64, window: u64, known: &mut Vec<u64>) -> u64 {
        let place = self.place_of(position);
        let number = place - window * self.shuffle.window;
        if number >= KEPT {
            return self.item(position);
        }
        let number = number as usize;
        if known.len() <= number {
            known.resize(number + 1, 0);
        }
        if known[number] == 0 {
            known[number] = self.order.at(place) + 1;
        }
        (known[number] - 1) * self.shuffle.block_size + (position - self.start_of(place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_permuted_whatever_the_length() {
        for len in [1, 2, 9, 10, 11, 99, 100, 101, 257] {
            for (block_size, window) in [(1, 1), (3, 2), (10, 1), (10, 3), (7, 100), (1000, 4)] {
                let whole = Shuffle { len, seed: 4, stage: 0, anew: true };
                let shuffle = BlockShuffle { whole, block_size, window };
                let mut order: Vec<u64> = (0..len).map(|i| shuffle.at(1, i)).collect();
                // Together, wherever the first one is, and in whatever order.
                for first in [0, len / 3, len - 1] {
                    let mut all: Vec<u64> = (first..len).chain((0..first).rev()).collect();
                    let expected: Vec<u64> = all.iter().map(|position| order[*position as usize]).collect();
                    shuffle.at_all(1, &mut all);
                    assert_eq!(all, expected, "{len} {block_size} {window} from {first}");
                }
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
        let whole = Shuffle { len: 12, seed: 1, stage: 0, anew: true };
        let shuffle = BlockShuffle { whole, block_size: 5, window: 2 };
        let mut counts = [0u32; 12];
        let epochs = 12_000u32;
        for epoch in 0..u64::from(epochs) {
            counts[shuffle.at(epoch, 0) as usize] += 1;
        }
        assert!(counts.iter().all(|&n| n > epochs / 20 && n < epochs / 8), "{counts:?}");
    }
}
