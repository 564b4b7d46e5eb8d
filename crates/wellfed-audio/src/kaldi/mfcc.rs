//! Cepstral coefficients: the cosine transform of filter bank energies.

use std::f64::consts::PI;

use super::{
    KaldiFbank, KaldiOptions, Vtln,
    fbank::{Finish, log},
};
use crate::{Cosine, Result, lanes::Lanes};

/// Cepstral coefficients of one channel: the cosine transform of filter bank energies.
#[derive(Clone, Debug)]
pub struct KaldiMfcc {
    bank: KaldiFbank,
    cosine: Cosine,
    lifter: Vec<f32>,
}

impl KaldiMfcc {
    /// The first `num_ceps` coefficients, of which higher ones are raised as `cepstral_lifter` says (Kaldi: 13 and 22; 0 for none).
    ///
    /// # Errors
    ///
    /// As [`KaldiFbank::new`], and for more coefficients than filters.
    pub fn new(options: KaldiOptions, num_ceps: usize, cepstral_lifter: f64) -> Result<Self> {
        Self::warped(options, Vtln::default(), num_ceps, cepstral_lifter)
    }

    /// The same with filters that are moved for a speaker's vocal tract length.
    ///
    /// # Errors
    ///
    /// As [`KaldiFbank::warped`], and for more coefficients than filters.
    pub fn warped(options: KaldiOptions, vtln: Vtln, num_ceps: usize, cepstral_lifter: f64) -> Result<Self> {
        let bank = KaldiFbank::warped(options, vtln)?;
        let cosine = Cosine::new(num_ceps, bank.bank.filters(), true)?;
        let raise = |i: usize| match cepstral_lifter {
            0.0 => 1.0,
            lifter => 1.0 + 0.5 * lifter * (PI * i as f64 / lifter).sin(),
        };
        let lifter = (0..num_ceps).map(|i| raise(i) as f32).collect();
        Ok(Self { bank, cosine, lifter })
    }

    /// Frames of a signal.
    pub fn frames(&self, samples: usize) -> usize {
        self.bank.frames(samples)
    }

    /// Appends the coefficients of each frame.
    ///
    /// # Errors
    ///
    /// As [`KaldiFbank::apply`].
    pub fn apply(&self, samples: &[f32], out: &mut Vec<f32>) -> Result<()> {
        self.bank.groups(samples, None, out, Cepstra(self))
    }

    /// The same with noise, as [`KaldiFbank::apply_dithered`].
    ///
    /// # Errors
    ///
    /// As [`KaldiFbank::apply`].
    pub fn apply_dithered(
        &self,
        samples: &[f32],
        dither: &mut dyn FnMut(usize, &mut [f32]),
        out: &mut Vec<f32>,
    ) -> Result<()> {
        self.bank.groups(samples, Some(dither), out, Cepstra(self))
    }
}

struct Cepstra<'a>(&'a KaldiMfcc);

impl Finish for Cepstra<'_> {
    fn columns(&self, _fbank: &KaldiFbank) -> usize {
        self.0.lifter.len()
    }

    #[inline(always)]
    fn finish<L: Lanes>(&self, energy: L, values: &mut Vec<L>) {
        let KaldiMfcc { bank, cosine, lifter } = self.0;
        let filters = values.len();
        values.iter_mut().for_each(|value| *value = log(*value));
        for (coefficient, raise) in lifter.iter().enumerate() {
            values.push(cosine.coefficient_lanes(coefficient, &values[..filters]) * *raise);
        }
        values.drain(..filters);
        if bank.options.use_energy {
            values[0] = energy;
        }
        if bank.options.htk_compat {
            // HTK's first coefficient is larger, and comes last.
            if !bank.options.use_energy {
                values[0] = values[0] * std::f32::consts::SQRT_2;
            }
            values.rotate_left(1);
        }
    }
}
