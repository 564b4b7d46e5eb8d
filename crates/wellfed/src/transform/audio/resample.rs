//! `Resample`: another sample rate.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use wellfed_audio::{KAISER_BETA, ResampleOptions, ResamplingMethod};

use super::{ANY_RATE, AudioKernel, AudioOperation, Sound, SoundShape, refused};
use crate::{Error, ErrorKind, Result, rng::Rng, transform::param::Repr};

/// The window over the sinc.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Method {
    #[default]
    SincInterpHann,
    SincInterpKaiser,
}

/// What coefficients are computed in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Precision {
    /// As `torchaudio.functional.resample` does.
    #[serde(rename = "float32")]
    Single,
    /// As `torchaudio.transforms.Resample` does by default; rounded to float32 then.
    #[default]
    #[serde(rename = "float64")]
    Double,
}

/// Changes a waveform's sample rate, with torchaudio's filter.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Resample {
    /// Rate of what comes in, Hz; another one is an error. Default: each sound's own.
    orig_freq: Option<u32>,
    /// Rate of what goes out, Hz. Default: 16,000.
    new_freq: u32,
    /// Default: a squared cosine.
    resampling_method: Method,
    /// Zero crossings of the sinc on either side. Default: 6.
    lowpass_filter_width: u32,
    /// Share of the Nyquist frequency at which the filter ends. Default: 0.99.
    rolloff: f64,
    /// Of Kaiser's window.
    beta: Option<f64>,
    /// What coefficients are computed in. Default: float64.
    dtype: Precision,
}

impl Default for Resample {
    fn default() -> Self {
        Self {
            orig_freq: None,
            new_freq: 16_000,
            resampling_method: Method::default(),
            lowpass_filter_width: 6,
            rolloff: 0.99,
            beta: None,
            dtype: Precision::default(),
        }
    }
}

impl Resample {
    /// To `new_freq` from whatever rate a sound has.
    pub fn new(new_freq: u32) -> Self {
        Self { new_freq, ..Self::default() }
    }

    fn filter(&self, rate: u32) -> Result<wellfed_audio::Resample> {
        let method = match self.resampling_method {
            Method::SincInterpHann => ResamplingMethod::SincInterpHann,
            Method::SincInterpKaiser => ResamplingMethod::SincInterpKaiser(self.beta.unwrap_or(KAISER_BETA)),
        };
        let (lowpass_filter_width, rolloff) = (self.lowpass_filter_width, self.rolloff);
        let single = self.dtype == Precision::Single;
        let options = ResampleOptions { lowpass_filter_width, rolloff, method, single };
        wellfed_audio::Resample::new(rate, self.new_freq, options).map_err(refused)
    }
}

impl fmt::Display for Resample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let orig = self.orig_freq.map_or("None".to_owned(), |rate| rate.to_string());
        Repr::new(f, "Resample").field("orig_freq", orig).field("new_freq", self.new_freq).finish()
    }
}

impl AudioOperation for Resample {
    fn check(&self) -> Result<()> {
        for (name, rate) in [("orig_freq", self.orig_freq), ("new_freq", Some(self.new_freq))] {
            if rate == Some(0) {
                return Err(Error::config(format!("{name} is 0; must be at least 1")));
            }
        }
        // Of equal rates no filter is made, and its parameters go unseen.
        self.filter(self.orig_freq.unwrap_or(if self.new_freq == ANY_RATE { 8_000 } else { ANY_RATE }))
            .map(drop)
    }

    fn follow(&self, shape: SoundShape) -> Result<SoundShape> {
        match shape.rate.or(self.orig_freq) {
            Some(rate) => self.kernel(rate)?.becomes(shape),
            None => Ok(SoundShape { frames: None, rate: Some(self.new_freq), ..shape.waveform()? }),
        }
    }

    fn kernel(&self, rate: u32) -> Result<Arc<dyn AudioKernel>> {
        if let Some(orig_freq) = self.orig_freq.filter(|orig_freq| *orig_freq != rate) {
            return Err(Error::new(
                ErrorKind::Shape,
                format!("a sound of {rate} Hz, and orig_freq is {orig_freq}"),
            )
            .with_hint("without orig_freq each sound's own rate is taken"));
        }
        let filter = if rate == self.new_freq { None } else { Some(self.filter(rate)?) };
        Ok(Arc::new(Resampler { new_freq: self.new_freq, filter }))
    }
}

/// With the filter of one rate.
#[derive(Debug)]
struct Resampler {
    new_freq: u32,
    /// `None` where nothing is to be done.
    filter: Option<wellfed_audio::Resample>,
}

impl AudioKernel for Resampler {
    fn becomes(&self, shape: SoundShape) -> Result<SoundShape> {
        let shape = shape.waveform()?;
        let len = |frames| self.filter.as_ref().map_or(frames, |filter| filter.len_of(frames));
        Ok(SoundShape { frames: shape.frames.map(len), rate: Some(self.new_freq), ..shape })
    }

    fn run(&self, sound: &mut Sound, _rng: &mut Rng) -> Result<()> {
        let shape = self.becomes(sound.shape)?;
        match &self.filter {
            None => Ok(()),
            Some(filter) => sound.replace(shape, |samples, places, out| {
                filter.apply(samples, places.padded, out);
                Ok(())
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn every_channel_is_resampled_from_its_own_rate() {
        let ones = [1.0; 80];
        let twice = run(&Resample::new(16_000), sound(&[&ones, &[0.0; 80]], 8_000)).unwrap();
        assert_eq!((twice.frames(), twice.channels(), twice.shape.rate), (160, 2, Some(16_000)));
        assert!((twice.values[80] - 1.0).abs() < 0.01 && twice.values[160..] == [0.0; 160]);
        let same = run(&Resample::new(8_000), sound(&[&ones], 8_000)).unwrap();
        assert_eq!(same.values, ones);
    }

    #[test]
    fn rates_that_are_not_as_said_are_refused() {
        let given = Resample { orig_freq: Some(44_100), ..Resample::default() };
        let error = run(&given, sound(&[&[0.0; 9]], 8_000)).unwrap_err();
        assert_eq!(error.message(), "a sound of 8000 Hz, and orig_freq is 44100");
        let zero = Resample::new(0);
        assert_eq!(AudioOperation::check(&zero).unwrap_err().message(), "new_freq is 0; must be at least 1");
        let wide = Resample { rolloff: 1.5, ..Resample::default() };
        assert!(AudioOperation::check(&wide).is_err());
        assert_eq!(given.to_string(), "Resample(orig_freq=44100, new_freq=16000)");
    }
}
