//! `MFCC` and `LFCC`: cepstral coefficients, the cosine transform of a spectrum's logarithm.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use wellfed_audio::{AmplitudeToDb, Cosine, FilterBank, Scale};

use super::{
    AudioKernel, AudioOperation, MelSpectrogram, Sound, SoundShape, Spectrogram, mel_spectrogram::Filtered,
    refused,
};
use crate::{
    Error, Result,
    rng::Rng,
    transform::param::{Repr, python_bool},
};

/// How the cosine transform is scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Norm {
    Ortho,
}

/// Decibels below a sample's greatest value at which others are cut off: torchaudio's, which no parameter changes.
const TOP_DB: f32 = 80.0;

/// What is added before a logarithm.
const LOG_OFFSET: f32 = 1e-6;

fn check_dct_type(dct_type: u32) -> Result<()> {
    if dct_type == 2 {
        return Ok(());
    }
    Err(Error::config(format!("dct_type is {dct_type}; only type 2 is there, in torchaudio too")))
}

/// Coefficients of a mel spectrum: `[channels, n_mfcc, frames]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MFCC {
    /// Rate of what comes in, Hz; another one is an error. Default: 16,000.
    sample_rate: u32,
    /// Coefficients. Default: 40.
    n_mfcc: usize,
    /// 2.
    dct_type: u32,
    norm: Option<Norm>,
    /// Whether the natural logarithm is taken, and not decibels. Default: false.
    log_mels: bool,
    /// The spectrum. Its rate is that above.
    melkwargs: MelSpectrogram,
}

impl Default for MFCC {
    fn default() -> Self {
        Self {
            sample_rate: 16_000,
            n_mfcc: 40,
            dct_type: 2,
            norm: Some(Norm::Ortho),
            log_mels: false,
            melkwargs: MelSpectrogram::default(),
        }
    }
}

impl fmt::Display for MFCC {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "MFCC")
            .field("sample_rate", self.sample_rate)
            .field("n_mfcc", self.n_mfcc)
            .field("log_mels", python_bool(self.log_mels))
            .field("n_mels", self.melkwargs.n_mels)
            .finish()
    }
}

impl AudioOperation for MFCC {
    fn kernel(&self, _rate: u32) -> Result<Arc<dyn AudioKernel>> {
        check_dct_type(self.dct_type)?;
        let mut spectrum = self.melkwargs;
        spectrum.sample_rate = self.sample_rate;
        cepstra(spectrum.make()?, self.n_mfcc, self.norm, self.log_mels)
    }
}

/// Coefficients of a spectrum by filters of equal width: `[channels, n_lfcc, frames]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LFCC {
    /// Rate of what comes in, Hz; another one is an error. Default: 16,000.
    sample_rate: u32,
    /// Filters. Default: 128.
    n_filter: usize,
    /// Lowest frequency, Hz. Default: 0.
    f_min: f64,
    /// Highest frequency, Hz. Default: half of the rate.
    f_max: Option<f64>,
    /// Coefficients. Default: 40.
    n_lfcc: usize,
    /// 2.
    dct_type: u32,
    norm: Option<Norm>,
    /// Whether the natural logarithm is taken, and not decibels. Default: false.
    log_lf: bool,
    /// The spectrum.
    speckwargs: Spectrogram,
}

impl Default for LFCC {
    fn default() -> Self {
        Self {
            sample_rate: 16_000,
            n_filter: 128,
            f_min: 0.0,
            f_max: None,
            n_lfcc: 40,
            dct_type: 2,
            norm: Some(Norm::Ortho),
            log_lf: false,
            speckwargs: Spectrogram::default(),
        }
    }
}

impl fmt::Display for LFCC {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "LFCC")
            .field("sample_rate", self.sample_rate)
            .field("n_filter", self.n_filter)
            .field("n_lfcc", self.n_lfcc)
            .field("log_lf", python_bool(self.log_lf))
            .finish()
    }
}

impl AudioOperation for LFCC {
    fn kernel(&self, _rate: u32) -> Result<Arc<dyn AudioKernel>> {
        check_dct_type(self.dct_type)?;
        let spectrogram = self.speckwargs.stft().make()?;
        let f_max = self.f_max.unwrap_or(f64::from(self.sample_rate / 2));
        let bank = FilterBank::linear(spectrogram.bins(), self.f_min, f_max, self.n_filter, self.sample_rate);
        let filtered = Filtered::new(self.sample_rate, spectrogram, bank.map_err(refused)?)?;
        cepstra(filtered, self.n_lfcc, self.norm, self.log_lf)
    }
}

fn cepstra(filtered: Filtered, count: usize, norm: Option<Norm>, log: bool) -> Result<Arc<dyn AudioKernel>> {
    let cosine = Cosine::new(count, filtered.filters(), norm.is_some()).map_err(refused)?;
    Ok(Arc::new(Cepstra { filtered, cosine, count, log }))
}

#[derive(Debug)]
struct Cepstra {
    filtered: Filtered,
    cosine: Cosine,
    count: usize,
    log: bool,
}

impl AudioKernel for Cepstra {
    fn becomes(&self, shape: SoundShape) -> Result<SoundShape> {
        Ok(SoundShape { bins: Some(self.count), ..self.filtered.becomes(shape)? })
    }

    fn run(&self, sound: &mut Sound, rng: &mut Rng) -> Result<()> {
        let shape = self.becomes(sound.shape)?;
        self.filtered.run(sound, rng)?;
        if self.log {
            sound.values.iter_mut().for_each(|value| *value = (*value + LOG_OFFSET).ln());
        } else {
            // The greatest value is that of all channels.
            AmplitudeToDb { stype: Scale::Power, top_db: Some(TOP_DB) }.apply(&mut sound.values);
        }
        let (bins, frames) = (self.filtered.filters(), shape.frames.unwrap_or(0));
        let mut column = vec![0.0; bins];
        sound.replace(shape, |spectrum, _, out| {
            let start = out.len();
            out.resize(start + self.count * frames, 0.0);
            for frame in 0..frames {
                for (value, row) in column.iter_mut().zip(spectrum.chunks_exact(frames)) {
                    *value = row[frame];
                }
                for (number, value) in self.cosine.apply(&column).enumerate() {
                    out[start + number * frames + frame] = value;
                }
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn coefficients_come_of_a_spectrums_logarithm() {
        let noise: Vec<f32> = (0..1600).map(|i| ((i * 7919) % 101) as f32 / 101.0 - 0.5).collect();
        for (operation, count) in [
            (&MFCC { n_mfcc: 13, ..MFCC::default() } as &dyn AudioOperation, 13),
            (&MFCC { log_mels: true, ..MFCC::default() }, 40),
            (&LFCC { norm: None, ..LFCC::default() }, 40),
        ] {
            let made = run(operation, sound(&[&noise, &noise], 16_000)).unwrap();
            assert_eq!(made.shape.sides(), [Some(2), Some(count), Some(9)]);
            assert!(made.values.iter().all(|value| value.is_finite()));
            assert_eq!(made.values[..count * 9], made.values[count * 9..]);
        }
    }

    #[test]
    fn parameters_that_make_no_sense_are_refused() {
        let check = |mfcc: MFCC| AudioOperation::check(&mfcc).unwrap_err().to_string();
        assert!(check(MFCC { n_mfcc: 200, ..MFCC::default() }).contains("200"));
        assert!(check(MFCC { dct_type: 3, ..MFCC::default() }).contains("dct_type is 3"));
        let read: MFCC =
            serde_json::from_str(r#"{"n_mfcc":13,"melkwargs":{"n_mels":23},"norm":null}"#).unwrap();
        assert_eq!((read.melkwargs.n_mels, read.norm), (23, None));
        assert_eq!(read.to_string(), "MFCC(sample_rate=16000, n_mfcc=13, log_mels=False, n_mels=23)");
    }
}
