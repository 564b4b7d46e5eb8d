//! `AddNoise`: other sounds in the background.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use wellfed_audio::effects;

use super::{AudioKernel, AudioOperation, Sound, SoundShape, impossible, recordings::Recordings};
use crate::{
    Error, Result,
    rng::Rng,
    transform::param::{Repr, Tuple, check_probability},
};

/// Adds one of several sounds, drawn for each sample, so loud that the waveform is a drawn number of decibels above it.
///
/// The sound is as long as the waveform: of a longer one a piece is cut out at random, a shorter one begins at a random place and is
/// repeated. Each channel gets the same noise, as loud as the channel asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddNoise {
    /// The sounds: paths of files, or samples at the rate of the waveform.
    noise: Recordings<Vec<f32>>,
    /// Least and greatest ratio of signal and noise, dB.
    snr: [f64; 2],
    /// How likely it is that there is noise. Default: 1.
    #[serde(default = "one")]
    p: f64,
}

fn one() -> f64 {
    1.0
}

/// Decibels beyond which float32 has no sum of a signal and noise.
const MOST: f64 = 200.0;

impl fmt::Display for AddNoise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "AddNoise")
            .field("noise", &self.noise)
            .field("snr", Tuple(&self.snr))
            .field_if(self.p < 1.0, "p", self.p)
            .finish()
    }
}

impl AudioOperation for AddNoise {
    fn check(&self) -> Result<()> {
        self.noise.check("noise")?;
        check_probability(self.p)?;
        let [low, high] = self.snr;
        if !(-MOST <= low && low <= high && high <= MOST) {
            return Err(Error::config(format!(
                "snr is {}; must be (low, high) with low <= high, both -{MOST} to {MOST} dB",
                Tuple(&self.snr)
            )));
        }
        Ok(())
    }

    fn follow(&self, shape: SoundShape) -> Result<SoundShape> {
        AudioOperation::check(self)?;
        self.noise.look()?;
        shape.waveform()
    }

    fn kernel(&self, rate: u32) -> Result<Arc<dyn AudioKernel>> {
        AudioOperation::check(self)?;
        Ok(Arc::new(Adder { noise: self.clone(), rate }))
    }
}

/// For sounds of one rate, Hz.
#[derive(Debug)]
struct Adder {
    noise: AddNoise,
    rate: u32,
}

/// Fills `out` with a piece of `noise`, which has samples.
fn piece(noise: &[f32], frames: usize, rng: &mut Rng, out: &mut Vec<f32>) {
    out.clear();
    match noise.len().checked_sub(frames) {
        Some(room) => out.extend_from_slice(&noise[rng.below(room as u64 + 1) as usize..][..frames]),
        None => {
            let start = rng.below(noise.len() as u64) as usize;
            out.extend(noise.iter().cycle().skip(start).take(frames));
        }
    }
}

impl AudioKernel for Adder {
    fn becomes(&self, shape: SoundShape) -> Result<SoundShape> {
        shape.waveform()
    }

    fn scratch(&self, shape: SoundShape) -> usize {
        shape.frames.unwrap_or(0)
    }

    fn run(&self, sound: &mut Sound, rng: &mut Rng) -> Result<()> {
        let frames = sound.frames();
        if !rng.chance(self.noise.p) || frames == 0 {
            return Ok(());
        }
        let all = self.noise.noise.at(self.rate, Ok)?;
        let Some(noise) = all.get(rng.below(all.len() as u64) as usize) else { return Ok(()) };
        let [low, high] = self.noise.snr;
        let snr = rng.uniform(low, high) as f32;
        sound.spare.clear();
        sound.spare.try_reserve(frames).map_err(|_| Error::memory(4 * frames, "noise"))?;
        piece(noise, frames, rng, &mut sound.spare);
        for channel in sound.values.chunks_exact_mut(frames) {
            effects::add_noise(channel, &sound.spare, snr).map_err(impossible)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    fn add(noise: &[&[f32]], snr: [f64; 2]) -> AddNoise {
        AddNoise { noise: Recordings::of(noise), snr, p: 1.0 }
    }

    /// Decibels of the first over the second.
    fn ratio(signal: &[f32], noise: &[f32]) -> f64 {
        let energy = |values: &[f32]| values.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>();
        10.0 * (energy(signal) / energy(noise)).log10()
    }

    #[test]
    fn noise_is_as_loud_in_each_channel_as_drawn() {
        let wave: Vec<f32> = (0..500).map(|i| (i as f32 * 0.1).sin()).collect();
        let quiet: Vec<f32> = wave.iter().map(|sample| sample * 0.01).collect();
        let hiss: Vec<f32> = (0..700).map(|i| ((i * 7919) % 101) as f32 / 101.0 - 0.5).collect();
        let kernel = add(&[&hiss], [3.0, 12.0]).kernel(8_000).unwrap();
        let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
        for index in 0..200 {
            let mut made = sound(&[&wave, &quiet], 8_000);
            kernel.run(&mut made, &mut Rng::for_stage(0, 0, index, 0)).unwrap();
            let off = |channel: &[f32], from: &[f32]| -> Vec<f32> {
                channel.iter().zip(from).map(|(made, was)| made - was).collect()
            };
            let (loud, soft) = (off(&made.values[..500], &wave), off(&made.values[500..], &quiet));
            let (one, other) = (ratio(&wave, &loud), ratio(&quiet, &soft));
            assert!((one - other).abs() < 0.01, "{one} {other}");
            assert!((2.99..12.01).contains(&one), "{one}");
            (least, most) = (least.min(one), most.max(one));
        }
        assert!(least < 3.5 && most > 11.5, "{least} {most}");
    }

    #[test]
    fn pieces_are_cut_or_repeated_and_every_sound_is_drawn() {
        let mut places = std::collections::BTreeSet::new();
        for index in 0..200 {
            let mut out = Vec::new();
            let rng = &mut Rng::for_stage(0, 0, index, 0);
            piece(&[0.0, 1.0, 2.0, 3.0, 4.0], 3, rng, &mut out);
            assert_eq!(out[1..], [out[0] + 1.0, out[0] + 2.0]);
            places.insert(out[0] as usize);
            piece(&[0.0, 1.0, 2.0], 7, rng, &mut out);
            assert_eq!(out.len(), 7);
            assert!(out.windows(2).all(|pair| pair[1] == (pair[0] + 1.0) % 3.0), "{out:?}");
            piece(&[5.0], 1, rng, &mut out);
            assert_eq!(out, [5.0]);
        }
        assert_eq!(places.into_iter().collect::<Vec<_>>(), [0, 1, 2]);
        let kernel = add(&[&[1.0], &[-1.0], &[0.0]], [0.0, 0.0]).kernel(8_000).unwrap();
        let seen: std::collections::BTreeSet<i32> = (0..100)
            .map(|index| {
                let mut made = sound(&[&[1.0, 1.0]], 8_000);
                kernel.run(&mut made, &mut Rng::for_stage(0, 0, index, 0)).unwrap();
                made.values[0].round() as i32
            })
            .collect();
        // Silence as noise changes nothing.
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [0, 1, 2]);
    }

    #[test]
    fn some_samples_stay_as_they_are() {
        let half = AddNoise { p: 0.5, ..add(&[&[1.0]], [0.0, 0.0]) };
        let kernel = half.kernel(8_000).unwrap();
        let kept = (0..400).filter(|index| {
            let mut made = sound(&[&[0.5, -0.25]], 8_000);
            kernel.run(&mut made, &mut Rng::for_stage(0, 0, *index, 0)).unwrap();
            made.values == [0.5, -0.25]
        });
        assert!((150..250).contains(&kept.count()));
        assert_eq!(run(&half, sound(&[&[]], 8_000)).unwrap().values, [0.0; 0]);
    }

    #[test]
    fn parameters_without_sense_are_refused() {
        let message = |noise: AddNoise| AudioOperation::check(&noise).unwrap_err().message().to_owned();
        assert!(message(add(&[], [0.0, 1.0])).starts_with("noise is empty"));
        assert!(message(add(&[&[1.0]], [1.0, 0.0])).starts_with("snr is (1.0, 0.0);"));
        assert!(message(add(&[&[1.0]], [f64::NAN, 0.0])).starts_with("snr is (NaN, 0.0);"));
        let read =
            serde_json::from_str::<AddNoise>(r#"{"noise":[{"float32":"AAAAPw=="}],"snr":[5,20]}"#).unwrap();
        assert_eq!(read.to_string(), "AddNoise(noise=[1 sound], snr=(5.0, 20.0))");
        let gone = AddNoise { noise: Recordings::of_files(&["none/at/all.wav"]), ..read };
        assert!(gone.follow(SoundShape::file()).unwrap_err().message().contains("none/at/all.wav"));
    }
}
