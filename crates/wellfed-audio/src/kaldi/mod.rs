//! Kaldi's filter bank energies and cepstral coefficients: `torchaudio.compliance.kaldi.fbank` and `mfcc`.

mod fbank;
mod mfcc;
mod warp;

pub use fbank::KaldiFbank;
pub use mfcc::KaldiMfcc;
pub use warp::Vtln;

use crate::Window;

/// Parameters of both, as torchaudio's. Dither is an argument of its own ([`KaldiFbank::apply_dithered`]),
/// and so is the warp of vocal tract lengths ([`KaldiFbank::warped`]).
#[derive(Clone, Debug, PartialEq)]
pub struct KaldiOptions {
    /// Hz. Default: 16,000.
    pub sample_frequency: f64,
    /// Milliseconds of a frame. Default: 25.
    pub frame_length: f64,
    /// Milliseconds from one frame to the next. Default: 10.
    pub frame_shift: f64,
    /// Whether only frames that lie in the signal count; else it is mirrored beyond its ends. Default: true.
    pub snip_edges: bool,
    /// Whether a frame's mean is taken from it. Default: true.
    pub remove_dc_offset: bool,
    /// Share of the sample before that is taken from each. Default: 0.97.
    pub preemphasis_coefficient: f32,
    /// Default: [`Window::Povey`].
    pub window_type: Window,
    /// Whether frames are filled with zeros to a power of two. Default: true.
    pub round_to_power_of_two: bool,
    /// Default: 23.
    pub num_mel_bins: usize,
    /// Hz. Default: 20.
    pub low_freq: f64,
    /// Hz; at most 0 for so much below the Nyquist frequency. Default: 0.
    pub high_freq: f64,
    /// Whether energies are squares of magnitudes. Default: true.
    pub use_power: bool,
    /// Whether the logarithm is taken. Default: true; cepstral coefficients always take it.
    pub use_log_fbank: bool,
    /// Whether a frame's energy comes with it: before the filters, or after them where `htk_compat`; of cepstral coefficients it is the
    /// first. Default: false.
    pub use_energy: bool,
    /// Whether that is the energy before pre-emphasis and window. Default: true.
    pub raw_energy: bool,
    /// Energies below this are taken as this; 0 for none. Default: 1.
    pub energy_floor: f32,
    /// Whether the energy comes last. Default: false.
    pub htk_compat: bool,
    /// Whether each column's mean is taken from it. Default: false.
    pub subtract_mean: bool,
}

impl Default for KaldiOptions {
    fn default() -> Self {
        Self {
            sample_frequency: 16_000.0,
            frame_length: 25.0,
            frame_shift: 10.0,
            snip_edges: true,
            remove_dc_offset: true,
            preemphasis_coefficient: 0.97,
            window_type: Window::Povey,
            round_to_power_of_two: true,
            num_mel_bins: 23,
            low_freq: 20.0,
            high_freq: 0.0,
            use_power: true,
            use_log_fbank: true,
            use_energy: false,
            raw_energy: true,
            energy_floor: 1.0,
            htk_compat: false,
            subtract_mean: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(samples: usize) -> Vec<f32> {
        (0..samples as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 16) as f32 - 32_768.0).collect()
    }

    #[test]
    fn frames_are_counted_as_kaldi_does() {
        let snipped = KaldiFbank::new(KaldiOptions::default()).unwrap();
        assert_eq!([snipped.frames(399), snipped.frames(400), snipped.frames(560)], [0, 1, 2]);
        let mirrored =
            KaldiFbank::new(KaldiOptions { snip_edges: false, ..KaldiOptions::default() }).unwrap();
        assert_eq!([mirrored.frames(400), mirrored.frames(16_000)], [3, 100]);
        for bank in [snipped, mirrored] {
            let mut out = Vec::new();
            bank.apply(&noise(1_000), &mut out).unwrap();
            assert_eq!(out.len(), bank.frames(1_000) * bank.columns());
            assert!(out.iter().all(|value| value.is_finite()));
        }
    }

    #[test]
    fn energy_comes_first_or_last() {
        let columns = |htk_compat: bool| {
            let options = KaldiOptions { use_energy: true, htk_compat, ..KaldiOptions::default() };
            let mut out = Vec::new();
            KaldiFbank::new(options).unwrap().apply(&noise(400), &mut out).unwrap();
            out
        };
        let (first, last) = (columns(false), columns(true));
        assert_eq!(first[1..], last[..23]);
        assert_eq!(first[0], last[23]);
    }

    #[test]
    fn means_are_taken_away() {
        let options = KaldiOptions { subtract_mean: true, ..KaldiOptions::default() };
        let mfcc = KaldiMfcc::new(options, 13, 22.0).unwrap();
        let mut out = Vec::new();
        mfcc.apply(&noise(4_000), &mut out).unwrap();
        let rows = mfcc.frames(4_000);
        assert_eq!(out.len(), rows * 13);
        for column in 0..13 {
            let sum: f32 = out.iter().skip(column).step_by(13).sum();
            assert!(sum.abs() < 1e-2, "{column}: {sum}");
        }
    }

    #[test]
    fn filters_beyond_the_nyquist_frequency_are_refused() {
        let options =
            KaldiOptions { sample_frequency: 8_000.0, high_freq: 7_000.0, ..KaldiOptions::default() };
        let error = KaldiFbank::new(options).unwrap_err();
        assert!(error.message().contains("from 20 to 7000 Hz"), "{error}");
        let short = KaldiFbank::new(KaldiOptions::default()).unwrap().apply(&[0.0; 10], &mut Vec::new());
        assert!(short.unwrap_err().message().contains("10 samples; a frame has 400"));
    }
}
