//! `Speed` and `SpeedPerturbation`: faster and higher, or slower and lower, at the same rate.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use wellfed_audio::Resample;

use super::{AudioKernel, AudioOperation, Sound, SoundShape, refused};
use crate::{
    Error, ErrorKind, Result,
    rng::Rng,
    transform::param::{Repr, Tuple},
};

/// Makes a waveform so many times as fast, as a tape that runs faster.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Speed {
    /// Rate of the waveform, Hz; another one is an error. Default: each sound's own.
    orig_freq: Option<u32>,
    /// How many times as fast it becomes.
    factor: f64,
}

/// Makes a waveform as many times as fast as one of several factors says, drawn for each sample.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpeedPerturbation {
    /// Rate of the waveform, Hz; another one is an error. Default: each sound's own.
    orig_freq: Option<u32>,
    /// How many times as fast it becomes, each as likely.
    factors: Vec<f64>,
}

/// Factors that a list may have.
const MOST: usize = 1_000;

fn check_factor(name: &str, factor: f64) -> Result<()> {
    // A factor multiplies the length of a sound, and filters are as wide as it is.
    if (0.01..=100.0).contains(&factor) {
        return Ok(());
    }
    Err(Error::config(format!("{name} is {factor}; must be 0.01 to 100")))
}

fn filter(orig_freq: Option<u32>, rate: u32, factor: f64) -> Result<Resample> {
    if let Some(orig_freq) = orig_freq.filter(|orig_freq| *orig_freq != rate) {
        let what = format!("a sound of {rate} Hz, and orig_freq is {orig_freq}");
        return Err(Error::new(ErrorKind::Shape, what)
            .with_hint(format!("put Resample(new_freq={orig_freq}) before it, or set orig_freq={rate}")));
    }
    Resample::speed(rate, factor).map_err(refused)
}

fn text(orig_freq: Option<u32>) -> String {
    orig_freq.map_or("None".to_owned(), |rate| rate.to_string())
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "Speed").field("orig_freq", text(self.orig_freq)).field("factor", self.factor).finish()
    }
}

impl fmt::Display for SpeedPerturbation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "SpeedPerturbation")
            .field("orig_freq", text(self.orig_freq))
            .field("factors", Tuple(&self.factors))
            .finish()
    }
}

/// Fails for a rate of 0, which filters cannot be made of.
fn check_rate(orig_freq: Option<u32>) -> Result<u32> {
    match orig_freq {
        Some(0) => Err(Error::config("orig_freq is 0; must be at least 1")),
        rate => Ok(rate.unwrap_or(super::ANY_RATE)),
    }
}

impl AudioOperation for Speed {
    fn check(&self) -> Result<()> {
        self.kernel(check_rate(self.orig_freq)?).map(drop)
    }

    fn follow(&self, shape: SoundShape) -> Result<SoundShape> {
        follow(self, shape, self.orig_freq)
    }

    fn kernel(&self, rate: u32) -> Result<Arc<dyn AudioKernel>> {
        check_factor("factor", self.factor)?;
        Ok(Arc::new(Speeders(vec![filter(self.orig_freq, rate, self.factor)?])))
    }
}

impl AudioOperation for SpeedPerturbation {
    fn check(&self) -> Result<()> {
        self.kernel(check_rate(self.orig_freq)?).map(drop)
    }

    fn follow(&self, shape: SoundShape) -> Result<SoundShape> {
        follow(self, shape, self.orig_freq)
    }

    fn kernel(&self, rate: u32) -> Result<Arc<dyn AudioKernel>> {
        if self.factors.is_empty() || self.factors.len() > MOST {
            let count = self.factors.len();
            return Err(Error::config(format!("factors has {count} numbers; must have 1 to {MOST}")));
        }
        let speeders = self.factors.iter().map(|factor| {
            check_factor("one of factors", *factor)?;
            filter(self.orig_freq, rate, *factor)
        });
        Ok(Arc::new(Speeders(speeders.collect::<Result<_>>()?)))
    }
}

/// Where the rate of sounds is not known, it is `orig_freq`: others are errors of their samples.
fn follow(operation: &dyn AudioOperation, shape: SoundShape, orig_freq: Option<u32>) -> Result<SoundShape> {
    let rate = shape.rate.or(orig_freq);
    let kernel = operation.kernel(rate.unwrap_or(super::ANY_RATE))?;
    let frames = if rate.is_some() { shape.frames } else { None };
    Ok(SoundShape { rate, ..kernel.becomes(SoundShape { frames, ..shape })? })
}

/// With a filter for each factor.
#[derive(Debug)]
struct Speeders(Vec<Resample>);

impl Speeders {
    fn drawn(&self, rng: &mut Rng) -> Option<&Resample> {
        self.0.get(rng.below(self.0.len() as u64) as usize)
    }
}

impl AudioKernel for Speeders {
    fn becomes(&self, shape: SoundShape) -> Result<SoundShape> {
        let shape = shape.waveform()?;
        let frames = shape.frames.and_then(|frames| {
            let mut lengths = self.0.iter().map(|filter| filter.len_of(frames));
            let first = lengths.next()?;
            lengths.all(|length| length == first).then_some(first)
        });
        Ok(SoundShape { frames, ..shape })
    }

    fn drawn(&self, shape: SoundShape, rng: &mut Rng) -> Result<SoundShape> {
        let shape = shape.waveform()?;
        let filter = Speeders::drawn(self, rng);
        let frames = shape.frames.zip(filter).map(|(frames, filter)| filter.len_of(frames));
        Ok(SoundShape { frames, ..shape })
    }

    fn run(&self, sound: &mut Sound, rng: &mut Rng) -> Result<()> {
        let Some(filter) = Speeders::drawn(self, rng) else { return Ok(()) };
        let shape = SoundShape { frames: Some(filter.len_of(sound.frames())), ..sound.shape };
        sound.replace(shape, |samples, places, out| {
            filter.apply(samples, places.padded, out);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn a_factor_is_drawn_for_each_sample() {
        let wave: Vec<f32> = (0..900).map(|i| (i as f32 * 0.1).sin()).collect();
        let speeds = SpeedPerturbation { orig_freq: Some(16_000), factors: vec![0.9, 1.0, 1.1] };
        let kernel = speeds.kernel(16_000).unwrap();
        let mut seen = [0; 3];
        for index in 0..300 {
            let mut made = sound(&[&wave, &wave], 16_000);
            let rng = || Rng::for_stage(7, 0, index, 0);
            let expected = kernel.drawn(made.shape, &mut rng()).unwrap();
            kernel.run(&mut made, &mut rng()).unwrap();
            assert_eq!((made.shape, made.values.len()), (expected, 2 * made.frames()));
            let which = [1_000, 900, 819].iter().position(|frames| *frames == made.frames()).unwrap();
            seen[which] += 1;
            let factor = speeds.factors[which];
            let one = run(&Speed { orig_freq: None, factor }, sound(&[&wave], 16_000)).unwrap();
            assert_eq!(made.values[..made.frames()], one.values);
        }
        assert!(seen.iter().all(|count| *count > 60), "{seen:?}");
    }

    #[test]
    fn lengths_are_known_where_they_do_not_depend_on_draws() {
        let shape = SoundShape { frames: Some(900), rate: Some(16_000), ..SoundShape::file() };
        let one = Speed { orig_freq: None, factor: 0.9 };
        assert_eq!(one.follow(shape).unwrap().frames, Some(1_000));
        assert_eq!(one.follow(SoundShape { rate: None, ..shape }).unwrap().frames, None);
        let several = SpeedPerturbation { orig_freq: None, factors: vec![0.9, 1.1] };
        assert_eq!(several.follow(shape).unwrap().frames, None);
    }

    #[test]
    fn parameters_without_sense_are_refused() {
        let message = |operation: &dyn AudioOperation| operation.check().unwrap_err().message().to_owned();
        assert_eq!(message(&Speed { orig_freq: None, factor: 0.0 }), "factor is 0; must be 0.01 to 100");
        assert_eq!(message(&Speed { orig_freq: Some(0), factor: 1.0 }), "orig_freq is 0; must be at least 1");
        let none = SpeedPerturbation { orig_freq: None, factors: vec![] };
        assert_eq!(message(&none), "factors has 0 numbers; must have 1 to 1000");
        let nan = SpeedPerturbation { orig_freq: None, factors: vec![1.0, f64::NAN] };
        assert_eq!(message(&nan), "one of factors is NaN; must be 0.01 to 100");
        let error = run(&Speed { orig_freq: Some(8_000), factor: 1.1 }, sound(&[&[0.0; 9]], 16_000));
        assert_eq!(error.unwrap_err().message(), "a sound of 16000 Hz, and orig_freq is 8000");
        let several = SpeedPerturbation { orig_freq: Some(8_000), factors: vec![0.9, 1.1] };
        assert_eq!(several.to_string(), "SpeedPerturbation(orig_freq=8000, factors=(0.9, 1.1))");
    }
}
