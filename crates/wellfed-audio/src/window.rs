//! Windows over the samples of a spectrum.

use std::f64::consts::PI;

/// A window, with the values of torch's functions of the same names.
#[derive(Clone, Debug, PartialEq)]
pub enum Window {
    /// `torch.hann_window`.
    Hann,
    /// `torch.hamming_window`.
    Hamming,
    /// `torch.blackman_window`.
    Blackman,
    /// Kaldi's generalized one, with its `blackman_coeff` in place of 0.42.
    GeneralBlackman(f64),
    /// `torch.bartlett_window`.
    Bartlett,
    /// Ones.
    Rectangular,
    /// `torch.hann_window(periodic=False)` to the power of 0.85: Kaldi's own, nearly Hamming, but 0 at its ends.
    Povey,
}

impl Window {
    /// So many values; `periodic` as torch's argument: of one more, without the last.
    pub fn values(&self, length: usize, periodic: bool) -> Vec<f32> {
        if length == 1 {
            return vec![1.0];
        }
        let whole = if periodic { length } else { length.saturating_sub(1) } as f64;
        let value = |i: usize| {
            let turn = 2.0 * PI * i as f64 / whole;
            let hann = 0.5 - 0.5 * turn.cos();
            match self {
                Self::Hann => hann,
                Self::Hamming => 0.54 - 0.46 * turn.cos(),
                Self::Blackman => 0.42 - 0.5 * turn.cos() + 0.08 * (2.0 * turn).cos(),
                Self::GeneralBlackman(coefficient) => {
                    coefficient - 0.5 * turn.cos() + (0.5 - coefficient) * (2.0 * turn).cos()
                }
                Self::Bartlett => 1.0 - (2.0 * i as f64 / whole - 1.0).abs(),
                Self::Rectangular => 1.0,
                Self::Povey => hann.powf(0.85),
            }
        };
        (0..length).map(|i| value(i) as f32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_have_torchs_values() {
        assert_eq!(Window::Hann.values(4, true), [0.0, 0.5, 1.0, 0.5]);
        assert_eq!(Window::Bartlett.values(5, false), [0.0, 0.5, 1.0, 0.5, 0.0]);
        let hamming = Window::Hamming.values(4, true);
        assert!((hamming[0] - 0.08).abs() < 1e-6 && (hamming[2] - 1.0).abs() < 1e-6);
        assert_eq!(Window::Blackman.values(1, true), [1.0]);
        assert!(Window::Povey.values(400, false)[0] == 0.0);
    }
}
