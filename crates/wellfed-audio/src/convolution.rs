//! Convolution of a sound with another, as with the response of a room: `torchaudio.transforms.Convolve` and `FFTConvolve`.

use realfft::{RealFftPlanner, num_complex::Complex32};

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
    fn part(self, mut full: Vec<f32>, x: usize, y: usize) -> Vec<f32> {
        let len = match self {
            Self::Full => full.len(),
            Self::Valid => x.max(y) - x.min(y) + 1,
            Self::Same => x,
        };
        let begin = (full.len() - len) / 2;
        full.truncate(begin + len);
        full.drain(..begin);
        full
    }
}

/// Lengths of both, and of their convolution.
fn length(x: &[f32], y: &[f32]) -> Result<usize> {
    if x.is_empty() || y.is_empty() {
        let text =
            format!("a convolution of {} samples with {}: there is at least one of each", x.len(), y.len());
        return Err(Error::argument(text));
    }
    Ok(x.len() + y.len() - 1)
}

/// By the definition: for short ones.
///
/// # Errors
///
/// If one of them has no samples.
pub fn convolve(x: &[f32], y: &[f32], mode: ConvolveMode) -> Result<Vec<f32>> {
    let mut full = vec![0.0; length(x, y)?];
    let (short, long) = if x.len() < y.len() { (x, y) } else { (y, x) };
    for (i, weight) in short.iter().enumerate() {
        full[i..].iter_mut().zip(long).for_each(|(sum, sample)| *sum += weight * sample);
    }
    Ok(mode.part(full, x.len(), y.len()))
}

/// By Fourier transforms, filled with zeros to a length that is quickly transformed.
///
/// # Errors
///
/// If one of them has no samples.
pub fn fft_convolve(x: &[f32], y: &[f32], mode: ConvolveMode) -> Result<Vec<f32>> {
    let len = length(x, y)?;
    let padded = len.next_power_of_two();
    let mut planner = RealFftPlanner::<f32>::new();
    let (forward, back) = (planner.plan_fft_forward(padded), planner.plan_fft_inverse(padded));
    let failed = |_| Error::argument(format!("a transform of {padded} samples failed"));
    let spectrum = |signal: &[f32]| {
        let mut filled = signal.to_vec();
        filled.resize(padded, 0.0);
        let mut spectrum = vec![Complex32::default(); padded / 2 + 1];
        forward.process(&mut filled, &mut spectrum).map_err(failed)?;
        Ok::<_, Error>(spectrum)
    };
    let mut product = spectrum(x)?;
    product.iter_mut().zip(spectrum(y)?).for_each(|(one, other)| *one *= other);
    // Of a real signal the first bin is real, and so is the last one.
    product[0].im = 0.0;
    product[padded / 2].im = 0.0;
    let mut full = vec![0.0; padded];
    back.process(&mut product, &mut full).map_err(failed)?;
    full.truncate(len);
    full.iter_mut().for_each(|sample| *sample /= padded as f32);
    Ok(mode.part(full, x.len(), y.len()))
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
            }
        }
    }
}
