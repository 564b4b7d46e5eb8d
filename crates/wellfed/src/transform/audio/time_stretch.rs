//! `TimeStretch`: faster or slower at the same pitch.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use wellfed_audio::Window;

use super::{AudioKernel, AudioOperation, Sound, SoundShape, refused};
use crate::{
    Error, Result,
    rng::Rng,
    transform::param::{Repr, Tuple, numbers},
};

/// Makes a waveform as many times as fast as a rate says, which may be drawn for each sample; its pitch stays.
///
/// torchaudio's of this name works on complex spectra. This one makes such a spectrum of the waveform, stretches it, and makes a waveform
/// of it again.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimeStretch {
    /// Samples from one frame to the next. Default: half of a transform.
    #[serde(default)]
    hop_length: Option<usize>,
    /// Bins of a spectrum, which is one of `2 (n_freq - 1)` samples. Default: 201.
    #[serde(default = "bins")]
    n_freq: usize,
    /// Least and greatest rate.
    #[serde(deserialize_with = "range")]
    fixed_rate: [f64; 2],
}

fn bins() -> usize {
    201
}

fn range<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[f64; 2], D::Error> {
    let allowed = "must be one number, or (low, high)";
    match numbers::<f64, D>(deserializer, &[1, 2], allowed)?[..] {
        [one] => Ok([one, one]),
        [low, high] => Ok([low, high]),
        _ => Err(D::Error::custom(allowed)),
    }
}

impl fmt::Display for TimeStretch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "TimeStretch")
            .field("n_freq", self.n_freq)
            .field("fixed_rate", Tuple(&self.fixed_rate))
            .finish()
    }
}

impl AudioOperation for TimeStretch {
    fn kernel(&self, _rate: u32) -> Result<Arc<dyn AudioKernel>> {
        let [low, high] = self.fixed_rate;
        if !(0.01 <= low && low <= high && high <= 100.0) {
            return Err(Error::config(format!(
                "fixed_rate is {}; must be a number, or (low, high) with low <= high, 0.01 to 100",
                Tuple(&self.fixed_rate)
            )));
        }
        if !(2..=1 << 20).contains(&self.n_freq) {
            return Err(Error::config(format!("n_freq is {}; must be 2 to 1048576", self.n_freq)));
        }
        let n_fft = 2 * (self.n_freq - 1);
        let hop_length = self.hop_length.unwrap_or(n_fft / 2);
        let stretch = wellfed_audio::TimeStretch::new(n_fft, n_fft, hop_length, &Window::Hann);
        Ok(Arc::new(Stretcher { rates: self.fixed_rate, stretch: stretch.map_err(refused)? }))
    }
}

#[derive(Debug)]
struct Stretcher {
    rates: [f64; 2],
    stretch: wellfed_audio::TimeStretch,
}

impl Stretcher {
    fn rate(&self, rng: &mut Rng) -> f64 {
        rng.uniform(self.rates[0], self.rates[1])
    }
}

impl AudioKernel for Stretcher {
    fn becomes(&self, shape: SoundShape) -> Result<SoundShape> {
        let shape = shape.waveform()?;
        let [low, high] = self.rates;
        let frames = shape.frames.filter(|_| low == high).map(|samples| self.stretch.len_of(samples, low));
        Ok(SoundShape { frames, ..shape })
    }

    fn drawn(&self, shape: SoundShape, rng: &mut Rng) -> Result<SoundShape> {
        let (shape, rate) = (shape.waveform()?, self.rate(rng));
        let frames = shape.frames.map(|samples| self.stretch.len_of(samples, rate));
        Ok(SoundShape { frames, ..shape })
    }

    fn scratch(&self, shape: SoundShape) -> usize {
        self.stretch.scratch(shape.frames.unwrap_or(0), self.rates[0])
    }

    fn run(&self, sound: &mut Sound, rng: &mut Rng) -> Result<()> {
        let rate = self.rate(rng);
        let shape = SoundShape { frames: Some(self.stretch.len_of(sound.frames(), rate)), ..sound.shape };
        sound.replace(shape, |samples, _, out| {
            out.extend_from_slice(&self.stretch.apply(samples, rate)?);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn rates_are_given_or_drawn() {
        let wave: Vec<f32> = (0..4_000).map(|i| (i as f32 * 0.2).sin()).collect();
        let fixed: TimeStretch = serde_json::from_str(r#"{"hop_length":100,"fixed_rate":1.25}"#).unwrap();
        let made = run(&fixed, sound(&[&wave, &wave], 8_000)).unwrap();
        assert_eq!((made.frames(), made.values.len()), (3_200, 6_400));
        let drawn = TimeStretch { fixed_rate: [0.8, 1.25], ..fixed };
        let kernel = drawn.kernel(8_000).unwrap();
        let (mut least, mut most) = (usize::MAX, 0);
        for index in 0..60 {
            let mut made = sound(&[&wave], 8_000);
            let rng = || Rng::for_stage(0, 0, index, 0);
            let expected = kernel.drawn(made.shape, &mut rng()).unwrap();
            kernel.run(&mut made, &mut rng()).unwrap();
            assert_eq!((made.shape, made.values.len()), (expected, made.frames()));
            (least, most) = (least.min(made.frames()), most.max(made.frames()));
        }
        assert!((3_200..3_350).contains(&least) && (4_750..=5_000).contains(&most), "{least} {most}");
    }

    #[test]
    fn parameters_without_sense_are_refused() {
        let message = |json: &str| {
            let stretch: TimeStretch = serde_json::from_str(json).unwrap();
            AudioOperation::check(&stretch).unwrap_err().message().to_owned()
        };
        assert!(message(r#"{"fixed_rate":0}"#).starts_with("fixed_rate is (0.0, 0.0);"));
        assert!(message(r#"{"fixed_rate":[2,1]}"#).starts_with("fixed_rate is (2.0, 1.0);"));
        assert!(message(r#"{"fixed_rate":1,"n_freq":1}"#).starts_with("n_freq is 1;"));
        assert!(message(r#"{"fixed_rate":1,"hop_length":500}"#).starts_with("hop_length is 500"));
        assert!(serde_json::from_str::<TimeStretch>("{}").is_err());
    }
}
