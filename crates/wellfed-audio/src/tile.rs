//! A signal cut into rounds of one length, turned around: samples at the same place of neighbouring rounds lie side by side.
//!
//! Frames begin a hop apart. With a hop as the length of a round, sample `i` of frame `t` is at place `i % hop` of round `t + i / hop`;
//! so those of neighbouring frames lie side by side, and are read as lanes as they are. Frames overlap, and each sample is moved once
//! however many frames it is in.

use crate::lanes::Lanes;

/// Rounds, or places, that are turned around together: as many as float32 have room in the least of registers.
pub(crate) const SIDE: usize = 4;

/// Rounds of a group of frames.
#[derive(Debug, Default)]
pub(crate) struct Tile {
    values: Vec<f32>,
    /// Where each sample of a frame lies in the group's first frame.
    offsets: Vec<usize>,
    /// Samples from one round to the next.
    hop: usize,
    /// Places of a round that frames look at.
    places: usize,
    /// Rounds that have room.
    row: usize,
}

impl Tile {
    /// For groups of frames of `length` samples (at least 1), `hop` (at least 1) from each other: the number of samples that
    /// [`Tile::fill`] looks at.
    #[inline(always)]
    pub(crate) fn shape<L: Lanes>(&mut self, length: usize, hop: usize) -> usize {
        let places = hop.min(length);
        let row = (L::N + (length - 1) / hop).next_multiple_of(SIDE);
        self.values.resize(places * row, 0.0);
        if (self.offsets.len(), self.hop, self.row) != (length, hop, row) {
            self.offsets.clear();
            self.offsets.extend((0..length).map(|i| i % hop * row + i / hop));
        }
        (self.hop, self.places, self.row) = (hop, places, row);
        (row - 1).saturating_mul(hop).saturating_add(places)
    }

    /// Takes the frames that begin at the start of `samples`; beyond its end are zeros.
    #[inline(always)]
    pub(crate) fn fill(&mut self, samples: &[f32]) {
        let Self { ref mut values, hop, places, row, .. } = *self;
        let round = |round: usize| samples.get(round.saturating_mul(hop)..).unwrap_or_default();
        let whole = |number: usize| round(number).get(..places);
        for first in (0..row).step_by(SIDE) {
            let rounds = (whole(first), whole(first + 1), whole(first + 2), whole(first + 3));
            let (Some(a), Some(b), Some(c), Some(d)) = rounds else {
                for number in first..first + SIDE {
                    let samples = round(number);
                    for place in 0..places {
                        values[place * row + number] = samples.get(place).copied().unwrap_or(0.0);
                    }
                }
                continue;
            };
            turn([a, b, c, d], values, row, first);
        }
    }

    /// Sample `i` of each frame of the group.
    #[inline(always)]
    pub(crate) fn at<L: Lanes>(&self, i: usize) -> L {
        L::read(&self.values[self.offsets[i]..])
    }
}

/// Four rounds become four neighbouring columns of `rows`, which are `row` apart: from column `first` on.
#[inline(always)]
pub(crate) fn turn(rounds: [&[f32]; SIDE], rows: &mut [f32], row: usize, first: usize) {
    let [a, b, c, d] = rounds;
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<SIDE>(), b.as_chunks::<SIDE>());
    let ((c, c_rest), (d, d_rest)) = (c.as_chunks::<SIDE>(), d.as_chunks::<SIDE>());
    let mut rows = rows.chunks_exact_mut(row);
    let mut put = |turned: [f32; SIDE]| {
        if let Some(room) = rows.next().and_then(|row| row[first..].first_chunk_mut()) {
            *room = turned;
        }
    };
    for (((a, b), c), d) in a.iter().zip(b).zip(c).zip(d) {
        put([a[0], b[0], c[0], d[0]]);
        put([a[1], b[1], c[1], d[1]]);
        put([a[2], b[2], c[2], d[2]]);
        put([a[3], b[3], c[3], d[3]]);
    }
    for (((a, b), c), d) in a_rest.iter().zip(b_rest).zip(c_rest).zip(d_rest) {
        put([*a, *b, *c, *d]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::{Eight, Kernel, run};

    fn check<L: Lanes>(length: usize, hop: usize) {
        let samples: Vec<f32> = (1..=300).map(|i| i as f32).collect();
        let mut tile = Tile::default();
        for begin in [0, 7, 299] {
            tile.shape::<L>(length, hop);
            tile.fill(&samples[begin..]);
            for i in 0..length {
                let at = |lane: usize| samples.get(begin + lane * hop + i).copied().unwrap_or(0.0);
                assert_eq!(tile.at::<L>(i), L::of(at), "sample {i} of {length}, {hop} apart, from {begin}");
            }
        }
    }

    struct Check;

    impl Kernel for Check {
        type Output = ();

        fn run<L: Lanes>(self) {
            for (length, hop) in [(1, 1), (10, 4), (12, 4), (25, 7), (40, 1), (5, 11), (64, 64), (3, 1_000)] {
                check::<L>(length, hop);
            }
        }
    }

    #[test]
    fn frames_are_those_of_the_signal() {
        Check.run::<Eight>();
        run(Check);
    }
}
