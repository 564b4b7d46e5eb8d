//! Batches mixed with themselves, rolled by one: sample `i` with sample `i - 1`, and the first with the last.
//!
//! Both run in place. A batch is walked block by block, and in each block from the last sample to the first, so that all
//! that must be put aside is one block of the last sample.

use half::{bf16, f16};

use crate::image::Dtype;

/// Bytes of a sample that are mixed at a time: a block of a sample and of its neighbour stay in the first level of cache.
const BLOCK: usize = 8 << 10;

/// `rolled * (1 - lam) + batch * lam`, element by element, with torch's roundings: every factor is rounded to float32,
/// every product and sum to `dtype`. `samples` is how many there are in `batch`, whose bytes they share equally.
///
/// # Panics
/// If `dtype` has no fractions, or the bytes of `batch` are no whole samples.
pub fn blend(batch: &mut [u8], samples: usize, dtype: Dtype, lam: f64) {
    let (rolled, own) = ((1.0 - lam) as f32, lam as f32);
    match dtype {
        Dtype::F32 => blend_as(batch, samples, |previous: [u8; 4], value: [u8; 4]| {
            let (previous, value) = (f32::from_ne_bytes(previous), f32::from_ne_bytes(value));
            (previous * rolled + value * own).to_ne_bytes()
        }),
        Dtype::F16 => blend_as(batch, samples, |previous: [u8; 2], value: [u8; 2]| {
            let part = |bytes, factor| {
                let product = f16::from_f32(f16::from_ne_bytes(bytes).to_f32() * factor);
                product.to_f32()
            };
            f16::from_f32(part(previous, rolled) + part(value, own)).to_ne_bytes()
        }),
        Dtype::Bf16 => blend_as(batch, samples, |previous: [u8; 2], value: [u8; 2]| {
            let part = |bytes, factor| {
                let product = bf16::from_f32(bf16::from_ne_bytes(bytes).to_f32() * factor);
                product.to_f32()
            };
            bf16::from_f32(part(previous, rolled) + part(value, own)).to_ne_bytes()
        }),
        Dtype::U8 => panic!("whole numbers are not blended"),
    }
}

fn blend_as<const N: usize>(batch: &mut [u8], samples: usize, f: impl Fn([u8; N], [u8; N]) -> [u8; N]) {
    let size = sample_size(batch, samples);
    assert_eq!(size % N, 0, "{size} bytes are no whole elements of {N}");
    let mut last = [0; BLOCK];
    for start in (0..size).step_by(BLOCK) {
        let end = size.min(start + BLOCK);
        let last = &mut last[..end - start];
        last.copy_from_slice(&batch[(samples - 1) * size + start..(samples - 1) * size + end]);
        for sample in (0..samples).rev() {
            let (before, own) = batch.split_at_mut(sample * size);
            let previous: &[u8] = match sample {
                0 => last,
                _ => &before[(sample - 1) * size + start..(sample - 1) * size + end],
            };
            let (previous, _) = previous.as_chunks::<N>();
            let (own, _) = own[start..end].as_chunks_mut::<N>();
            for (value, previous) in own.iter_mut().zip(previous) {
                *value = f(*previous, *value);
            }
        }
    }
}

/// Replaces parts of every sample by the same parts of the one before it: `count` runs of `run` bytes, of which the first
/// begins at `first`, and each later one `stride` bytes after the one before.
///
/// # Panics
/// If the runs do not lie in a sample, or the bytes of `batch` are no whole samples.
pub fn paste(batch: &mut [u8], samples: usize, runs: &Runs) {
    let size = sample_size(batch, samples);
    let mut last = Vec::with_capacity(runs.run.min(size));
    for number in 0..runs.count {
        let (start, end) = (runs.first + number * runs.stride, runs.first + number * runs.stride + runs.run);
        assert!(end <= size, "bytes {start} to {end} of a sample of {size}");
        last.clear();
        last.extend_from_slice(&batch[(samples - 1) * size + start..(samples - 1) * size + end]);
        for sample in (1..samples).rev() {
            batch.copy_within((sample - 1) * size + start..(sample - 1) * size + end, sample * size + start);
        }
        batch[start..end].copy_from_slice(&last);
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
            // Samples of more than a block, too.
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
