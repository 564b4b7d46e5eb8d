//! Batches mixed with themselves, rolled by one: sample `i` with sample `i - 1`, and the first with the last.
//!
//! Both run in place. A batch is walked part by part, and in each part from the last sample to the first, so that all
//! that must be put aside is that part of the last sample. What is read as the sample before is still in a cache when
//! its own turn comes: memory is read once and written once.

#[cfg(target_arch = "x86_64")]
mod avx2;

use half::{bf16, f16};

use crate::{image::Dtype, level::Level};

/// Bytes of a sample that are mixed before the next sample: two such parts stay in the second level of cache, and each is
/// so many pages that memory is read ahead of them.
const PART: usize = 64 << 10;

/// `rolled * (1 - lam) + batch * lam`, element by element, with torch's roundings: every factor is rounded to float32,
/// every product and sum to `dtype`. `samples` is how many there are in `batch`, whose bytes they share equally.
///
/// # Panics
/// If `dtype` has no fractions, or the bytes of `batch` are no whole samples of whole elements.
pub fn blend(batch: &mut [u8], samples: usize, dtype: Dtype, lam: f64) {
    blend_at(Level::best(), batch, samples, dtype, lam);
}

/// As [`blend`], with the instructions of `level`, or those that the processor has.
///
/// # Panics
/// As [`blend`].
pub fn blend_at(level: Level, batch: &mut [u8], samples: usize, dtype: Dtype, lam: f64) {
    assert_ne!(dtype, Dtype::U8, "whole numbers are not blended");
    let size = sample_size(batch, samples);
    assert!(size.is_multiple_of(dtype.size()), "{size} bytes are no whole elements of {}", dtype.size());
    let level = level.supported();
    let weights = Weights { previous: (1.0 - lam) as f32, own: lam as f32 };
    let mut aside = Vec::with_capacity(PART.min(size));
    for start in (0..size).step_by(PART) {
        let end = size.min(start + PART);
        aside.clear();
        aside.extend_from_slice(&batch[(samples - 1) * size + start..(samples - 1) * size + end]);
        for sample in (0..samples).rev() {
            let (before, own) = batch.split_at_mut(sample * size);
            let previous = match sample {
                0 => &aside[..],
                _ => &before[(sample - 1) * size + start..(sample - 1) * size + end],
            };
            part(level, &mut own[start..end], previous, dtype, weights);
        }
    }
}

/// What elements are multiplied by.
#[derive(Clone, Copy, Debug)]
struct Weights {
    /// Those of the sample before.
    previous: f32,
    /// A sample's own.
    own: f32,
}

/// Mixes elements with as many of the sample before.
fn part(level: Level, own: &mut [u8], previous: &[u8], dtype: Dtype, weights: Weights) {
    debug_assert_eq!(own.len(), previous.len());
    #[cfg(target_arch = "x86_64")]
    if level >= Level::Avx2 {
        // SAFETY: the level is one that the processor has.
        let done = unsafe { avx2::part(own, previous, dtype, weights) };
        return scalar(&mut own[done..], &previous[done..], dtype, weights);
    }
    scalar(own, previous, dtype, weights);
}

fn scalar(own: &mut [u8], previous: &[u8], dtype: Dtype, weights: Weights) {
    match dtype {
        Dtype::F32 => each(own, previous, |previous: [u8; 4], own: [u8; 4]| {
            let (previous, own) = (f32::from_ne_bytes(previous), f32::from_ne_bytes(own));
            (previous * weights.previous + own * weights.own).to_ne_bytes()
        }),
        Dtype::F16 => each(own, previous, |previous: [u8; 2], own: [u8; 2]| {
            let product = |bytes, weight| f16::from_f32(f16::from_ne_bytes(bytes).to_f32() * weight).to_f32();
            f16::from_f32(product(previous, weights.previous) + product(own, weights.own)).to_ne_bytes()
        }),
        Dtype::Bf16 => each(own, previous, |previous: [u8; 2], own: [u8; 2]| {
            let product =
                |bytes, weight| bf16::from_f32(bf16::from_ne_bytes(bytes).to_f32() * weight).to_f32();
            bf16::from_f32(product(previous, weights.previous) + product(own, weights.own)).to_ne_bytes()
        }),
        Dtype::U8 => unreachable!("whole numbers are not blended"),
    }
}

fn each<const N: usize>(own: &mut [u8], previous: &[u8], f: impl Fn([u8; N], [u8; N]) -> [u8; N]) {
    let ((own, _), (previous, _)) = (own.as_chunks_mut::<N>(), previous.as_chunks::<N>());
    for (own, previous) in own.iter_mut().zip(previous) {
        *own = f(*previous, *own);
    }
}

/// Replaces parts of every sample by the same parts of the one before it: `count` runs of `run` bytes, of which the first
/// begins at `first`, and each later one `stride` bytes after the one before.
///
/// # Panics
/// If the runs do not lie in a sample, or the bytes of `batch` are no whole samples.
pub fn paste(batch: &mut [u8], samples: usize, runs: &Runs) {
    let size = sample_size(batch, samples);
    if runs.run == 0 || runs.count == 0 {
        return;
    }
    let place = |number: usize| runs.first + number * runs.stride;
    let end = place(runs.count - 1) + runs.run;
    assert!(end <= size, "bytes up to {end} of a sample of {size}");
    let together = (PART / runs.run).max(1);
    let mut aside = Vec::with_capacity(together.min(runs.count) * runs.run);
    for first in (0..runs.count).step_by(together) {
        let numbers = first..runs.count.min(first + together);
        aside.clear();
        for number in numbers.clone() {
            aside.extend_from_slice(&batch[(samples - 1) * size + place(number)..][..runs.run]);
        }
        for sample in (1..samples).rev() {
            let (before, own) = batch.split_at_mut(sample * size);
            for at in numbers.clone().map(place) {
                own[at..at + runs.run].copy_from_slice(&before[(sample - 1) * size + at..][..runs.run]);
            }
        }
        for (at, last) in numbers.map(place).zip(aside.chunks_exact(runs.run)) {
            batch[at..at + runs.run].copy_from_slice(last);
        }
    }
}

/// Parts of a sample: of the rows of a rectangle, say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runs {
    /// Where the first begins, in bytes.
    pub first: usize,
    /// Bytes of each.
    pub run: usize,
    /// Bytes from the beginning of one to that of the next.
    pub stride: usize,
    /// How many there are.
    pub count: usize,
}

fn sample_size(batch: &[u8], samples: usize) -> usize {
    assert!(
        samples > 0 && batch.len().is_multiple_of(samples),
        "{} bytes are no {samples} samples",
        batch.len()
    );
    batch.len() / samples
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_element_is_mixed_with_the_one_before(
            values in proptest::collection::vec(-3.0_f32..3.0, 1..200),
            samples in 1..6_usize,
            lam in 0.0..1.0_f64,
            copies in 1..80_usize,
        ) {
            let sample = values.repeat(copies);
            let element = |i: usize, at: usize| sample[at] + i as f32;
            let mut batch = Vec::new();
            for i in 0..samples {
                (0..sample.len()).for_each(|at| batch.extend(element(i, at).to_ne_bytes()));
            }
            blend(&mut batch, samples, Dtype::F32, lam);
            let mixed: Vec<f32> =
                batch.chunks_exact(4).map(|b| f32::from_ne_bytes(b.try_into().unwrap())).collect();
            for i in 0..samples {
                for at in 0..sample.len() {
                    let rolled = element((i + samples - 1) % samples, at) * (1.0 - lam) as f32;
                    prop_assert_eq!(mixed[i * sample.len() + at], rolled + element(i, at) * lam as f32);
                }
            }
        }

        #[test]
        fn every_level_makes_the_same_bits(
            values in proptest::collection::vec(any::<u32>(), 1..300),
            samples in 1..4_usize,
            lam in 0.0..=1.0_f64,
            kind in 0..3_usize,
        ) {
            let dtype = [Dtype::F32, Dtype::F16, Dtype::Bf16][kind];
            let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
            let batch = bytes.repeat(samples);
            let mixed = |level| {
                let mut batch = batch.clone();
                // What is no number has bits of its own, which nobody promises.
                batch.chunks_exact_mut(4).for_each(|four| four.iter_mut().skip(1).step_by(2).for_each(|b| *b &= 0xBF));
                blend_at(level, &mut batch, samples, dtype, lam);
                batch
            };
            for level in Level::available() {
                prop_assert_eq!(mixed(level), mixed(Level::Scalar));
            }
        }

        #[test]
        fn runs_come_from_the_sample_before(
            samples in 1..6_usize, first in 0..5_usize, run in 0..5_usize, more in 0..4_usize, count in 0..4_usize,
        ) {
            let runs = Runs { first, run, stride: run + more, count };
            let size = first + (run + more) * count + 1;
            let before: Vec<u8> = (0..samples * size).map(|at| at as u8).collect();
            let mut after = before.clone();
            paste(&mut after, samples, &runs);
            for i in 0..samples {
                for at in 0..size {
                    let inside = (0..count).any(|n| (first + n * runs.stride..first + n * runs.stride + run).contains(&at));
                    let from = if inside { (i + samples - 1) % samples } else { i };
                    prop_assert_eq!(after[i * size + at], before[from * size + at]);
                }
            }
        }
    }
}
