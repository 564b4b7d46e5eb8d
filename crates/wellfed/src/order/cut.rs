//! Batches whose size depends on the lengths of their samples: buckets, and batches by number of tokens.
//!
//! [`Cutter`] walks an epoch in its order and puts each sample into the bucket of its length, as tf.data's
//! `bucket_by_sequence_length` does; a bucket that is full is a batch. What is in batch `n` of an epoch follows from
//! the order and the lengths alone, so a batch is found by walking there. [`Cuts`] remembers where earlier walks came
//! by, so that the next batch costs its own samples, and a jump back no more than the way from the last mark.

use std::{
    ops::Range,
    sync::{Arc, Mutex},
};

use crate::{Error, ErrorKind, Result, lock, source::durations::nanoseconds};

/// Marks kept of one epoch. When there are more, every second one goes.
const MARKS: usize = 64;

/// Epochs that are remembered: the one that is consumed, and the next one, which is begun early.
const EPOCHS: usize = 2;

/// When a bucket is full.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Full {
    /// At so many samples, for each bucket.
    Samples(Vec<u64>),
    /// Before the padded size would be above so many tokens; lengths are rounded up to a multiple.
    Tokens { max: u64, multiple_of: u64 },
    /// Before the padded size would be above so many nanoseconds, or at so many samples, for each bucket.
    Durations { max: u64, samples: Vec<u64> },
}

/// What a sound counts at least, in nanoseconds: not even those without samples are free, or there would be no end to them.
const LEAST_DURATION: u64 = 1_000_000;

/// The rule by which an epoch is cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cutter {
    /// Bucket `i` has lengths below boundary `i`, and not below the one before; the last bucket has all others.
    boundaries: Vec<u64>,
    full: Full,
    drop_remainder: bool,
    /// Whether batches are padded to one less than the boundary of their bucket.
    to_boundary: bool,
}

/// A batch: its samples, by their positions in the epoch.
#[derive(Clone, Debug)]
pub(crate) struct Cut {
    pub(crate) positions: Arc<[u64]>,
    /// What its arrays are padded to, if the plan says so.
    pub(crate) pad_to: Option<usize>,
    /// Why its only sample cannot be in any batch.
    pub(crate) refused: Option<Error>,
}

/// Samples of a bucket that is not full yet.
#[derive(Clone, Debug, Default)]
struct Bucket {
    positions: Vec<u64>,
    longest: u64,
}

/// A place in the walk through an epoch.
#[derive(Clone, Debug)]
struct Walk {
    /// Number of the next batch.
    number: u64,
    /// The next sample.
    position: u64,
    buckets: Vec<Bucket>,
    /// Once all samples are seen: the next bucket to be given out unfilled.
    flushed: usize,
}

/// Appends the lengths of the samples at some positions of an epoch.
pub(crate) type Lengths<'a> = &'a dyn Fn(Range<u64>, &mut Vec<Result<u64>>);

/// Samples whose lengths are asked for together: far cheaper than one by one (see [`super::Order::picks_in`]).
const AHEAD: u64 = 128;

/// Lengths of the samples that come next in a walk.
#[derive(Debug, Default)]
struct Ahead {
    /// Position of the first one.
    start: u64,
    lengths: Vec<Result<u64>>,
}

impl Ahead {
    /// The length of the sample at `position`, which is one of `len` (`None`: without end).
    fn get(&mut self, position: u64, len: Option<u64>, lengths: Lengths<'_>) -> Result<u64> {
        if position < self.start || position - self.start >= self.lengths.len() as u64 {
            self.start = position;
            self.lengths.clear();
            lengths(position..position.saturating_add(AHEAD).min(len.unwrap_or(u64::MAX)), &mut self.lengths);
        }
        self.lengths[(position - self.start) as usize].clone()
    }
}

impl Cutter {
    /// Buckets of so many samples.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] for boundaries that do not rise, or another number of sizes than of buckets.
    pub(crate) fn buckets(
        boundaries: &[u64],
        sizes: &[u64],
        drop_remainder: bool,
        to_boundary: bool,
    ) -> Result<Self> {
        if sizes.len() != boundaries.len() + 1 {
            return Err(Error::config(format!(
                "{} bucket_batch_sizes for {} bucket_boundaries: there must be one more size than boundaries",
                sizes.len(),
                boundaries.len()
            )));
        }
        if sizes.contains(&0) {
            return Err(Error::config("a bucket_batch_size is 0; it must be at least 1"));
        }
        Self {
            boundaries: boundaries.to_vec(),
            full: Full::Samples(sizes.to_vec()),
            drop_remainder,
            to_boundary,
        }
        .checked()
    }

    /// Batches of at most `max` tokens, padding included.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] for a limit of 0, or boundaries that do not rise.
    pub(crate) fn tokens(
        max: u64,
        multiple_of: u64,
        boundaries: &[u64],
        drop_remainder: bool,
    ) -> Result<Self> {
        if max == 0 {
            return Err(Error::config("max_tokens is 0; it must be at least 1"));
        }
        let full = Full::Tokens { max, multiple_of: multiple_of.max(1) };
        Self { boundaries: boundaries.to_vec(), full, drop_remainder, to_boundary: false }.checked()
    }

    /// Batches of sounds whose longest times their number is at most `max` seconds, and of at most so many `samples`: any number, one
    /// for all buckets, or one for each of those between `boundaries`, which are seconds.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] if nothing limits a batch, for limits of 0 or below, boundaries that do not rise, or another number
    /// of limits than of buckets.
    pub(crate) fn durations(
        max: Option<f64>,
        samples: &[u64],
        boundaries: &[f64],
        drop_remainder: bool,
    ) -> Result<Self> {
        let is_duration = |seconds: f64| seconds.is_finite() && seconds * 1e9 >= 1.0;
        if let Some(max) = max.filter(|max| !is_duration(*max)) {
            return Err(Error::config(format!("max_duration is {max}; it must be seconds, above 0")));
        }
        let rise = boundaries.windows(2).all(|pair| pair[0] < pair[1]);
        if !rise || !boundaries.iter().all(|boundary| is_duration(*boundary)) {
            return Err(Error::config(format!(
                "bucket_boundaries are {boundaries:?}; they must be seconds, above 0, and rise"
            )));
        }
        let buckets = boundaries.len() + 1;
        let samples = match *samples {
            [] if max.is_none() => {
                return Err(Error::config("neither max_duration nor max_samples says when a batch is full"));
            }
            [] => vec![u64::MAX; buckets],
            [one] => vec![one; buckets],
            _ if samples.len() == buckets => samples.to_vec(),
            _ => {
                return Err(Error::config(format!(
                    "{} max_samples for {} bucket_boundaries: there must be one for all, or one more than boundaries",
                    samples.len(),
                    boundaries.len()
                )));
            }
        };
        if samples.contains(&0) {
            return Err(Error::config("a max_samples is 0; it must be at least 1"));
        }
        let full = Full::Durations { max: max.map_or(u64::MAX, nanoseconds), samples };
        let boundaries = boundaries.iter().map(|boundary| nanoseconds(*boundary)).collect();
        Self { boundaries, full, drop_remainder, to_boundary: false }.checked()
    }

    fn checked(self) -> Result<Self> {
        if self.boundaries.first() == Some(&0) || self.boundaries.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err(Error::config(format!(
                "bucket_boundaries are {:?}; they must be above 0 and rise",
                self.boundaries
            )));
        }
        Ok(self)
    }

    fn begin(&self) -> Walk {
        let buckets = vec![Bucket::default(); self.boundaries.len() + 1];
        Walk { number: 0, position: 0, buckets, flushed: 0 }
    }

    /// The next batch of a walk through `len` samples (`None`: without end). `None` at the end.
    fn step(
        &self,
        walk: &mut Walk,
        len: Option<u64>,
        mut length_at: impl FnMut(u64) -> Result<u64>,
    ) -> Option<Cut> {
        while len.is_none_or(|len| walk.position < len) {
            let position = walk.position;
            walk.position += 1;
            let length = match length_at(position).and_then(|length| self.accept(length)) {
                Ok(length) => length,
                Err(error) => {
                    walk.number += 1;
                    return Some(Cut { positions: [position].into(), pad_to: None, refused: Some(error) });
                }
            };
            let number = self.boundaries.partition_point(|boundary| *boundary <= length);
            let bucket = &mut walk.buckets[number];
            let longest = bucket.longest.max(length);
            let count = bucket.positions.len() as u64 + 1;
            let (cost, max, samples) = match &self.full {
                Full::Samples(sizes) => (0, u64::MAX, sizes[number]),
                // Not even samples without tokens are free, or there would be no end to them.
                Full::Tokens { max, multiple_of } => {
                    (padded(longest.max(1), *multiple_of).saturating_mul(count), *max, u64::MAX)
                }
                Full::Durations { max, samples } => {
                    (longest.max(LEAST_DURATION).saturating_mul(count), *max, samples[number])
                }
            };
            let over = cost > max && count > 1;
            let before = over.then(|| std::mem::take(bucket).positions);
            bucket.positions.push(position);
            bucket.longest = bucket.longest.max(length);
            let full = match before {
                Some(before) => Some(before),
                None => (count >= samples).then(|| std::mem::take(bucket).positions),
            };
            if let Some(positions) = full {
                walk.number += 1;
                return Some(self.cut(positions, number));
            }
        }
        while walk.flushed < walk.buckets.len() {
            let number = walk.flushed;
            walk.flushed += 1;
            let positions = std::mem::take(&mut walk.buckets[number]).positions;
            if !positions.is_empty() && !self.drop_remainder {
                walk.number += 1;
                return Some(self.cut(positions, number));
            }
        }
        None
    }

    fn cut(&self, positions: Vec<u64>, bucket: usize) -> Cut {
        let pad_to =
            self.to_boundary.then(|| self.boundaries.get(bucket).map(|end| (end - 1) as usize)).flatten();
        Cut { positions: positions.into(), pad_to, refused: None }
    }

    /// Whether a sample of this length can be in a batch.
    fn accept(&self, length: u64) -> Result<u64> {
        if let Full::Tokens { max, multiple_of } = self.full
            && padded(length, multiple_of) > max
        {
            return Err(Error::limit("a sample", padded(length, multiple_of), max, "tokens")
                .with_stage("batch")
                .with_hint("raise max_tokens, or leave such samples out with on_error=\"skip\""));
        }
        if let Full::Durations { max, .. } = self.full
            && length > max
        {
            let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
            let what =
                format!("a sample has {} seconds, above the limit of {}", seconds(length), seconds(max));
            return Err(Error::new(ErrorKind::Limit, what)
                .with_stage("batch")
                .with_hint("raise max_duration, or leave such samples out with on_error=\"skip\""));
        }
        if let (true, Some(last)) = (self.to_boundary, self.boundaries.last())
            && length >= *last
        {
            return Err(Error::limit("a sample", length, last - 1, "tokens")
                .with_stage("batch")
                .with_hint("add a bucket boundary above it, or do not pad to bucket boundaries"));
        }
        Ok(length)
    }
}

fn padded(length: u64, multiple_of: u64) -> u64 {
    length.checked_next_multiple_of(multiple_of).unwrap_or(u64::MAX)
}

/// Cuts of several epochs, with marks to go on from.
#[derive(Debug)]
pub(crate) struct Cuts {
    cutter: Cutter,
    epochs: Mutex<Vec<Epoch>>,
}

/// What is known of one epoch.
#[derive(Debug)]
struct Epoch {
    /// Tells the epoch (and the part of it that a rank walks) from others.
    key: u64,
    /// Where the last walk stopped.
    at: Walk,
    ahead: Ahead,
    /// The batch before it.
    last: Option<Cut>,
    /// Places on the way, `every` batches apart, from the beginning on.
    marks: Vec<Walk>,
    every: u64,
    /// Number of batches, once a walk came to the end.
    len: Option<u64>,
}

impl Cuts {
    pub(crate) fn new(cutter: Cutter) -> Self {
        Self { cutter, epochs: Mutex::default() }
    }

    /// Batch `number` of the epoch `key` of `len` samples; `None` beyond its end.
    pub(crate) fn get(&self, key: u64, number: u64, len: Option<u64>, lengths: Lengths<'_>) -> Option<Cut> {
        self.visit(key, |cutter, epoch| epoch.get(cutter, number, len, lengths))
    }

    /// Whether the epoch `key` of `len` samples has batch `number`. Goes back for no batch that a walk came by: the consumer
    /// asks so of batches that were opened long ago.
    pub(crate) fn has(&self, key: u64, number: u64, len: Option<u64>, lengths: Lengths<'_>) -> bool {
        self.visit(key, |cutter, epoch| {
            number < epoch.at.number || epoch.get(cutter, number, len, lengths).is_some()
        })
    }

    /// Batches of the epoch `key` of `len` samples. Walks to its end, once.
    pub(crate) fn len(&self, key: u64, len: u64, lengths: Lengths<'_>) -> u64 {
        self.visit(key, |cutter, epoch| {
            if let Some(len) = epoch.len {
                return len;
            }
            epoch.get(cutter, u64::MAX, Some(len), lengths);
            epoch.len.unwrap_or(0)
        })
    }

    fn visit<T>(&self, key: u64, f: impl FnOnce(&Cutter, &mut Epoch) -> T) -> T {
        let mut epochs = lock(&self.epochs);
        let place = epochs.iter().position(|epoch| epoch.key == key);
        let epoch = match place {
            Some(place) => epochs.remove(place),
            None => {
                epochs.truncate(EPOCHS - 1);
                let at = self.cutter.begin();
                Epoch {
                    key,
                    marks: vec![at.clone()],
                    at,
                    ahead: Ahead::default(),
                    last: None,
                    every: 1,
                    len: None,
                }
            }
        };
        // The last one that was asked for comes first.
        epochs.insert(0, epoch);
        f(&self.cutter, &mut epochs[0])
    }
}

impl Epoch {
    fn get(&mut self, cutter: &Cutter, number: u64, len: Option<u64>, lengths: Lengths<'_>) -> Option<Cut> {
        if self.len.is_some_and(|len| number >= len) {
            return None;
        }
        if number.checked_add(1) == Some(self.at.number) && self.last.is_some() {
            return self.last.clone();
        }
        if number < self.at.number {
            // The first mark is the beginning.
            let mark = self.marks.partition_point(|mark| mark.number <= number).saturating_sub(1);
            self.last = None;
            self.at = self.marks[mark].clone();
        }
        loop {
            let place = self.at.number;
            let last = self.marks.last().map_or(0, |mark| mark.number);
            if place >= last + self.every {
                self.marks.push(self.at.clone());
                if self.marks.len() > MARKS {
                    let mut keep = false;
                    self.marks.retain(|_| {
                        keep = !keep;
                        keep
                    });
                    self.every *= 2;
                }
            }
            let ahead = &mut self.ahead;
            let Some(cut) = cutter.step(&mut self.at, len, |position| ahead.get(position, len, lengths))
            else {
                self.len = Some(self.at.number);
                return None;
            };
            if place == number {
                self.last = Some(cut.clone());
                return Some(cut);
            }
            self.last = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Lengths that are known one by one.
    fn each(length: impl Fn(u64) -> u64) -> impl Fn(Range<u64>, &mut Vec<Result<u64>>) {
        move |positions, found| found.extend(positions.map(|position| Ok(length(position))))
    }

    fn all(cutter: &Cutter, lengths: &[u64]) -> Vec<Cut> {
        let cuts = Cuts::new(cutter.clone());
        let length = each(|position| lengths[position as usize]);
        (0..).map_while(|n| cuts.get(0, n, Some(lengths.len() as u64), &length)).collect()
    }

    fn positions(cuts: &[Cut]) -> Vec<Vec<u64>> {
        cuts.iter().map(|cut| cut.positions.to_vec()).collect()
    }

    #[test]
    fn buckets_are_filled_and_flushed_as_in_tf_data() {
        let lengths = [1, 5, 2, 9, 5, 3, 12, 0];
        let cutter = Cutter::buckets(&[3, 8], &[2, 3, 2], false, false).unwrap();
        let expected: [&[u64]; 4] = [&[0, 2], &[1, 4, 5], &[3, 6], &[7]];
        assert_eq!(positions(&all(&cutter, &lengths)), expected);
        let cutter = Cutter::buckets(&[3, 8], &[2, 3, 2], true, false).unwrap();
        assert_eq!(positions(&all(&cutter, &lengths)), expected[..3]);
    }

    #[test]
    fn whether_there_is_a_batch_costs_no_walk_to_where_one_came_by() {
        let cuts = Cuts::new(Cutter::buckets(&[3, 8], &[2, 3, 2], false, false).unwrap());
        let asked = std::cell::Cell::new(0);
        let length = each(|position| {
            asked.set(asked.get() + 1);
            position % 11
        });
        let total = cuts.len(0, 1000, &length);
        let walked = asked.get();
        for number in [0, total / 2, total - 1] {
            assert!(cuts.has(0, number, Some(1000), &length));
        }
        assert!(!cuts.has(0, total, Some(1000), &length));
        assert_eq!(asked.get(), walked);
        cuts.get(1, 40, Some(1000), &length);
        let walked = asked.get();
        assert!((0..=40).all(|number| cuts.has(1, number, Some(1000), &length)));
        assert_eq!(asked.get(), walked);
        assert!(cuts.has(1, 41, Some(1000), &length));
    }

    #[test]
    fn a_batch_ends_before_it_has_too_many_tokens() {
        let lengths = [3, 4, 2, 10, 1, 1, 1, 11];
        let cutter = Cutter::tokens(10, 1, &[], false).unwrap();
        let cuts = all(&cutter, &lengths);
        let expected: [&[u64]; 4] = [&[0, 1], &[2], &[3], &[7]];
        assert_eq!(positions(&cuts)[..2], expected[..2]);
        assert!(cuts.iter().all(|cut| cut.refused.is_some() == (cut.positions[..] == [7])), "{cuts:?}");
        let mut seen: Vec<u64> = positions(&cuts).concat();
        seen.sort_unstable();
        assert_eq!(seen, (0..8).collect::<Vec<_>>());
        assert_eq!(positions(&cuts)[2..], [vec![3], vec![7], vec![4, 5, 6]]);
    }

    #[test]
    fn a_sample_beyond_the_last_boundary_is_refused_if_padding_goes_to_boundaries() {
        let cutter = Cutter::buckets(&[4, 8], &[2, 2, 2], false, true).unwrap();
        let cuts = all(&cutter, &[3, 5, 8, 0]);
        let ends: Vec<_> = cuts.iter().map(|cut| (cut.pad_to, cut.refused.is_some())).collect();
        assert_eq!(ends, [(None, true), (Some(3), false), (Some(7), false)]);
    }

    #[test]
    fn rules_that_make_no_sense_are_refused() {
        for (boundaries, sizes) in
            [(&[3, 3][..], &[1, 1, 1][..]), (&[0], &[1, 1]), (&[3], &[1]), (&[3], &[1, 0])]
        {
            assert!(Cutter::buckets(boundaries, sizes, false, false).is_err(), "{boundaries:?} {sizes:?}");
        }
        assert!(Cutter::tokens(0, 1, &[], false).is_err());
        assert!(Cutter::tokens(5, 1, &[4, 2], false).is_err());
    }

    proptest! {
        #[test]
        fn a_batch_is_the_same_wherever_the_walk_comes_from(
            lengths in proptest::collection::vec(0..30_u64, 0..600),
            jumps in proptest::collection::vec(0..500_u64, 1..30),
            max in 5..90_u64,
            by_tokens: bool,
        ) {
            let cutter = if by_tokens {
                Cutter::tokens(max, 1 + max % 4, &[7, 15], max % 2 == 0).unwrap()
            } else {
                Cutter::buckets(&[7, 15], &[1 + max % 5, 2, 3], max % 2 == 0, false).unwrap()
            };
            let expected = all(&cutter, &lengths);
            let (cuts, len) = (Cuts::new(cutter), lengths.len() as u64);
            let length = each(|position| lengths[position as usize]);
            for jump in jumps {
                let found = cuts.get(jump % 3, jump, Some(len), &length);
                let facts = |cut: &Cut| (cut.positions.clone(), cut.pad_to);
                prop_assert_eq!(found.as_ref().map(facts), expected.get(jump as usize).map(facts));
            }
            prop_assert_eq!(cuts.len(1, len, &length), expected.len() as u64);
            if by_tokens {
                for cut in expected.iter().filter(|cut| cut.refused.is_none()) {
                    let longest = cut.positions.iter().map(|p| lengths[*p as usize]).max().unwrap();
                    prop_assert!(longest.next_multiple_of(1 + max % 4) * cut.positions.len() as u64 <= max);
                }
            }
        }
    }
}
