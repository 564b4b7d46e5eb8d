//! Convolution of a sound with another, as with the response of a room: `torchaudio.transforms.Convolve` and `FFTConvolve`.

use std::sync::Arc;

use realfft::{ComplexToReal, RealFftPlanner, RealToComplex, num_complex::Complex32};

use crate::{Error, Result};

/// Which part of a convolution there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConvolveMode {
    /// All of it: the sum of both lengths, less one.
    #[default]
    Full,
    /// Where both overlap fully: the difference of their lengths, and one.
    Valid,
    /// The middle, as long as the first.
    Same,
}

impl ConvolveMode {
    /// Samples of the convolution of so many with so many.
    fn len(self, x: usize, y: usize) -> usize {
        match self {
            Self::Full => (x + y).saturating_sub(1),
            Self::Valid => x.max(y) - x.min(y) + 1,
            Self::Same => x,
        }
    }

    fn part(self, mut full: Vec<f32>, x: usize, y: usize) -> Vec<f32> {
        let len = self.len(x, y);
        let begin = (full.len() - len) / 2;
        full.truncate(begin + len);
        full.drain(..begin);
        full
    }
}

/// Lengths of both, and of their convolution.
fn length(x: &[f32], y: &[f32]) -> Result<usize> {
    if x.is_empty() || y.is_empty() {
        return Err(empty(x.len(), y.len()));
    }
    Ok(x.len() + y.len() - 1)
}

fn empty(x: usize, y: usize) -> Error {
    Error::argument(format!("a convolution of {x} samples with {y}: there is at least one of each"))
}

/// Weights whose products are added up by themselves before they come to the sum. One float32 sum of thousands of products has an error
/// of 4e-6 of the greatest value; of sums of sums it is a tenth of that.
const WEIGHTS: usize = 64;

/// By the definition: for short ones.
///
/// # Errors
///
/// If one of them has no samples.
pub fn convolve(x: &[f32], y: &[f32], mode: ConvolveMode) -> Result<Vec<f32>> {
    let mut full = vec![0.0; length(x, y)?];
    let (short, long) = if x.len() < y.len() { (x, y) } else { (y, x) };
    let mut part = Vec::new();
    for (number, weights) in short.chunks(WEIGHTS).enumerate() {
        part.clear();
        part.resize(weights.len() + long.len() - 1, 0.0);
        for (i, weight) in weights.iter().enumerate() {
            part[i..].iter_mut().zip(long).for_each(|(sum, sample)| *sum += weight * sample);
        }
        full[number * WEIGHTS..].iter_mut().zip(&part).for_each(|(sum, part)| *sum += part);
    }
    Ok(mode.part(full, x.len(), y.len()))
}

/// By Fourier transforms.
///
/// # Errors
///
/// If one of them has no samples.
pub fn fft_convolve(x: &[f32], y: &[f32], mode: ConvolveMode) -> Result<Vec<f32>> {
    length(x, y)?;
    let (short, long) = if x.len() < y.len() { (x, y) } else { (y, x) };
    let mut full = Vec::new();
    Response::by_transforms(short)?.full(long, &mut full)?;
    Ok(mode.part(full, x.len(), y.len()))
}

/// Samples up to which a response is taken by the definition, which is faster then.
const SHORT: usize = 128;

/// What sounds are convolved with, as the response of a room: made once, and used for all sounds.
///
/// A sound is cut into blocks about as long as the response, which are transformed one by one and overlap in what they become (A. Oppenheim
/// and R. Schafer, *Discrete-Time Signal Processing*, 8.7.3: overlap and add).
#[derive(Clone)]
pub struct Response {
    samples: usize,
    work: Way,
}

#[derive(Clone)]
enum Way {
    /// By the definition.
    Sums(Vec<f32>),
    /// With its spectrum, divided by the transform's length.
    Spectrum {
        forward: Arc<dyn RealToComplex<f32>>,
        back: Arc<dyn ComplexToReal<f32>>,
        spectrum: Vec<Complex32>,
    },
}

impl std::fmt::Debug for Response {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Response").field("samples", &self.samples).finish_non_exhaustive()
    }
}

impl Response {
    /// From its samples.
    ///
    /// # Errors
    ///
    /// If there are none, and if there is no memory for its spectrum.
    pub fn new(samples: &[f32]) -> Result<Self> {
        length(samples, samples)?;
        if samples.len() <= SHORT {
            return Ok(Self { samples: samples.len(), work: Way::Sums(samples.to_vec()) });
        }
        Self::by_transforms(samples)
    }

    fn by_transforms(samples: &[f32]) -> Result<Self> {
        let size = (2 * samples.len()).next_power_of_two();
        let mut planner = RealFftPlanner::<f32>::new();
        let (forward, back) = (planner.plan_fft_forward(size), planner.plan_fft_inverse(size));
        let mut filled: Vec<f32> = samples.iter().map(|sample| sample / size as f32).collect();
        filled.resize(size, 0.0);
        let mut spectrum = forward.make_output_vec();
        forward.process(&mut filled, &mut spectrum).map_err(|_| failed(size))?;
        Ok(Self { samples: samples.len(), work: Way::Spectrum { forward, back, spectrum } })
    }

    /// Samples of the response.
    pub fn samples(&self) -> usize {
        self.samples
    }

    /// Samples that so many become.
    pub fn len_of(&self, samples: usize, mode: ConvolveMode) -> usize {
        mode.len(samples, self.samples)
    }

    /// Values that [`Response::apply`] works in for a sound of so many samples.
    pub fn scratch(&self, samples: usize) -> usize {
        let blocks = match &self.work {
            Way::Sums(_) => samples + self.samples,
            // A block, its transform, and what they need.
            Way::Spectrum { forward, .. } => 6 * forward.len(),
        };
        blocks + samples + self.samples
    }

    /// The convolution of a sound with this response.
    ///
    /// # Errors
    ///
    /// For a sound without samples.
    pub fn apply(&self, samples: &[f32], mode: ConvolveMode) -> Result<Vec<f32>> {
        match &self.work {
            Way::Sums(response) => convolve(samples, response, mode),
            Way::Spectrum { .. } => {
                let mut full = Vec::new();
                self.full(samples, &mut full)?;
                Ok(mode.part(full, samples.len(), self.samples))
            }
        }
    }

    /// All of the convolution, by transforms.
    fn full(&self, samples: &[f32], full: &mut Vec<f32>) -> Result<()> {
        let Way::Spectrum { forward, back, spectrum } = &self.work else { return Ok(()) };
        if samples.is_empty() {
            return Err(empty(0, self.samples));
        }
        let size = forward.len();
        full.clear();
        full.resize(samples.len() + self.samples - 1, 0.0);
        let (mut block, mut product) = (forward.make_input_vec(), forward.make_output_vec());
        let mut work = forward.make_scratch_vec();
        let mut work_back = back.make_scratch_vec();
        let step = size - self.samples + 1;
        for (number, part) in samples.chunks(step).enumerate() {
            block[..part.len()].copy_from_slice(part);
            block[part.len()..].fill(0.0);
            forward.process_with_scratch(&mut block, &mut product, &mut work).map_err(|_| failed(size))?;
            product.iter_mut().zip(spectrum).for_each(|(one, other)| *one *= other);
            // Of a real signal the first bin is real, and so is the last one.
            for end in [0, size / 2] {
                product[end].im = 0.0;
            }
            back.process_with_scratch(&mut product, &mut block, &mut work_back).map_err(|_| failed(size))?;
            full[number * step..].iter_mut().zip(&block).for_each(|(sum, sample)| *sum += sample);
        }
        Ok(())
    }
}

fn failed(size: usize) -> Error {
    Error::argument(format!("a transform of {size} samples failed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_torchaudios() {
        let (x, y) = ([1.0, 2.0, 3.0, 4.0], [1.0, 0.0, -1.0]);
        assert_eq!(convolve(&x, &y, ConvolveMode::Full).unwrap(), [1.0, 2.0, 2.0, 2.0, -3.0, -4.0]);
        assert_eq!(convolve(&x, &y, ConvolveMode::Valid).unwrap(), [2.0, 2.0]);
        assert_eq!(convolve(&x, &y, ConvolveMode::Same).unwrap(), [2.0, 2.0, 2.0, -3.0]);
        assert_eq!(convolve(&y, &x, ConvolveMode::Same).unwrap(), [2.0, 2.0, 2.0]);
        assert!(convolve(&x, &[], ConvolveMode::Full).is_err());
        assert!(fft_convolve(&[], &y, ConvolveMode::Full).is_err());
    }

    #[test]
    fn transforms_give_what_the_definition_gives() {
        let noise = |samples: u32, from: u32| -> Vec<f32> {
            (from..from + samples).map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / 1e7 - 0.8).collect()
        };
        for (x, y) in [(1, 1), (100, 7), (7, 100), (333, 200)] {
            let (x, y) = (noise(x, 0), noise(y, 999));
            for mode in [ConvolveMode::Full, ConvolveMode::Valid, ConvolveMode::Same] {
                let (one, other) = (convolve(&x, &y, mode).unwrap(), fft_convolve(&x, &y, mode).unwrap());
                assert_eq!(one.len(), other.len());
                assert!(one.iter().zip(&other).all(|(one, other)| (one - other).abs() < 1e-4), "{mode:?}");
                let response = Response::new(&y).unwrap();
                let third = response.apply(&x, mode).unwrap();
                assert_eq!(third.len(), response.len_of(x.len(), mode));
                assert!(one.iter().zip(&third).all(|(one, third)| (one - third).abs() < 1e-4), "{mode:?}");
            }
        }
    }

    #[test]
    fn a_long_sound_goes_through_a_response_block_by_block() {
        // 300 samples make transforms of 1,024, and blocks of 725: there are seven of them, and a part of one.
        let values = |samples: u32, from: u32| -> Vec<f32> {
            (from..from + samples)
                .map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / 8.4e6 - 1.0)
                .collect()
        };
        let (x, y) = (values(5_500, 3), values(300, 77));
        let found = Response::new(&y).unwrap().apply(&x, ConvolveMode::Full).unwrap();
        let wanted = convolve(&x, &y, ConvolveMode::Full).unwrap();
        let most = wanted.iter().fold(0.0, |most: f32, value| most.max(value.abs()));
        for (i, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
            assert!((found - wanted).abs() < 2e-6 * most, "sample {i}: {found} {wanted}");
        }
        assert!(Response::new(&[]).is_err());
        assert!(Response::new(&y).unwrap().apply(&[], ConvolveMode::Full).is_err());
    }

    #[test]
    fn long_sums_stay_exact() {
        let values = |samples: u32, from: u32| -> Vec<f32> {
            (from..from + samples)
                .map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / 8.4e6 - 1.0)
                .collect()
        };
        let (x, y) = (values(4_000, 0), values(4_000, 9_000));
        let exact = |at: usize| -> f64 { (0..=at).map(|i| f64::from(x[i]) * f64::from(y[at - i])).sum() };
        let found = convolve(&x, &y, ConvolveMode::Full).unwrap();
        let most = found.iter().fold(0.0, |most: f32, value| most.max(value.abs()));
        for at in (3_000..4_000).step_by(37) {
            let off = (f64::from(found[at]) - exact(at)).abs() / f64::from(most);
            assert!(off < 1e-6, "sample {at}: off by {off}");
        }
    }
}
