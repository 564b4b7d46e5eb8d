//! A block of each input in turn. What has ended drops out.

/// Rounds between two of which no input ends: each takes as many elements from each input as the others.
#[derive(Clone, Debug)]
struct Stretch {
    /// The first position.
    start: u64,
    /// The first round: inputs stand at so many blocks.
    round: u64,
    /// Elements of one round.
    elements: u64,
}

/// Lengths of the inputs; `u64::MAX` stands for one without end.
#[derive(Clone, Debug)]
pub(super) struct Interleave {
    block_length: u64,
    lens: Vec<u64>,
    stretches: Vec<Stretch>,
}

impl Interleave {
    pub(super) fn new(block_length: u64, lens: &[Option<u64>]) -> Self {
        let lens: Vec<u64> = lens.iter().map(|len| len.unwrap_or(u64::MAX)).collect();
        // An input ends in the round of its last block, which may be smaller: stretches begin there and after it.
        let mut rounds: Vec<u64> = lens
            .iter()
            .filter(|len| **len != u64::MAX)
            .flat_map(|len| [len / block_length, len / block_length + 1])
            .chain([0])
            .collect();
        rounds.sort_unstable();
        rounds.dedup();
        let mut this = Self { block_length, lens, stretches: Vec::new() };
        let (mut start, mut last): (u64, Option<(u64, u64)>) = (0, None);
        for round in rounds {
            if let Some((before, elements)) = last {
                start = start.saturating_add(elements.saturating_mul(round - before));
            }
            let elements =
                (0..this.lens.len()).map(|input| this.block(input, round)).fold(0, u64::saturating_add);
            last = Some((round, elements));
            if elements > 0 {
                this.stretches.push(Stretch { start, round, elements });
            }
        }
        this
    }

    /// Elements that `input` gives in `round`.
    fn block(&self, input: usize, round: u64) -> u64 {
        self.lens[input].saturating_sub(round.saturating_mul(self.block_length)).min(self.block_length)
    }

    /// The input at `position`, and the position in it.
    pub(super) fn at(&self, position: u64) -> (usize, u64) {
        let at = self.stretches.partition_point(|stretch| stretch.start <= position).saturating_sub(1);
        let Stretch { start, round, elements } = self.stretches[at];
        let round = round + (position - start) / elements;
        let mut left = (position - start) % elements;
        for input in 0..self.lens.len() {
            let block = self.block(input, round);
            if left < block {
                return (input, round * self.block_length + left);
            }
            left -= block;
        }
        unreachable!("a round has as many elements as its blocks")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_what_taking_turns_gives() {
        for lens in [vec![5, 0, 3], vec![1], vec![4, 4], vec![0, 0], vec![7, 1, 12, 3]] {
            for block_length in [1, 2, 3, 100] {
                let mut expected = Vec::new();
                let mut taken = vec![0u64; lens.len()];
                while taken != lens {
                    for input in 0..lens.len() {
                        for _ in 0..block_length {
                            if taken[input] < lens[input] {
                                expected.push((input, taken[input]));
                                taken[input] += 1;
                            }
                        }
                    }
                }
                let given: Vec<Option<u64>> = lens.iter().copied().map(Some).collect();
                let interleave = Interleave::new(block_length, &given);
                let found: Vec<_> = (0..lens.iter().sum()).map(|i| interleave.at(i)).collect();
                assert_eq!(found, expected, "{lens:?} by {block_length}");
            }
        }
    }

    #[test]
    fn one_without_end_goes_on_alone() {
        let interleave = Interleave::new(2, &[Some(3), None]);
        let found: Vec<_> = (0..9).map(|i| interleave.at(i)).collect();
        assert_eq!(found, [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (1, 2), (1, 3), (1, 4), (1, 5)]);
        assert_eq!(interleave.at(1 << 60), (1, (1 << 60) - 3));
    }
}
