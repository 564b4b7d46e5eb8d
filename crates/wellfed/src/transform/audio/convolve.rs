//! `Convolve`: sounds as they are heard in rooms, or through devices.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use wellfed_audio::{ConvolveMode, Response};

use super::{AudioKernel, AudioOperation, Sound, SoundShape, impossible, recordings::Recordings};
use crate::{
    Result,
    rng::Rng,
    transform::param::{Repr, check_probability},
};

/// Which part of a convolution there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    #[default]
    Full,
    Valid,
    Same,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Mode::Full => "'full'",
            Mode::Valid => "'valid'",
            Mode::Same => "'same'",
        }
    }
}

/// Convolves each channel with one of several impulse responses, drawn for each sample.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Convolve {
    /// The responses: paths of files, or samples at the rate of the waveform.
    responses: Recordings<Response>,
    #[serde(default)]
    mode: Mode,
    /// How likely it is that there is a response. Default: 1.
    #[serde(default = "one")]
    p: f64,
}

fn one() -> f64 {
    1.0
}

impl fmt::Display for Convolve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "Convolve")
            .field("responses", &self.responses)
            .field("mode", self.mode.name())
            .field_if(self.p < 1.0, "p", self.p)
            .finish()
    }
}

impl AudioOperation for Convolve {
    fn check(&self) -> Result<()> {
        self.responses.check("responses")?;
        check_probability(self.p)
    }

    fn follow(&self, shape: SoundShape) -> Result<SoundShape> {
        AudioOperation::check(self)?;
        self.responses.look()?;
        becomes(self.mode, shape)
    }

    fn kernel(&self, rate: u32) -> Result<Arc<dyn AudioKernel>> {
        AudioOperation::check(self)?;
        let mode = match self.mode {
            Mode::Full => ConvolveMode::Full,
            Mode::Valid => ConvolveMode::Valid,
            Mode::Same => ConvolveMode::Same,
        };
        Ok(Arc::new(Room { convolve: self.clone(), mode, rate }))
    }
}

/// Lengths depend on the response, which is drawn, unless they stay.
fn becomes(mode: Mode, shape: SoundShape) -> Result<SoundShape> {
    let frames = if mode == Mode::Same { shape.frames } else { None };
    Ok(SoundShape { frames, ..shape.waveform()? })
}

/// For sounds of one rate, Hz.
#[derive(Debug)]
struct Room {
    convolve: Convolve,
    mode: ConvolveMode,
    rate: u32,
}

impl Room {
    fn all(&self) -> Result<Arc<Vec<Response>>> {
        self.convolve.responses.at(self.rate, |samples| Response::new(&samples).map_err(impossible))
    }

    /// The place of the response that is drawn, if there is one.
    fn drawn(&self, rng: &mut Rng) -> Option<usize> {
        let draws = rng.chance(self.convolve.p);
        draws.then(|| rng.below(self.convolve.responses.count() as u64) as usize)
    }
}

impl AudioKernel for Room {
    fn becomes(&self, shape: SoundShape) -> Result<SoundShape> {
        becomes(self.convolve.mode, shape)
    }

    fn drawn(&self, shape: SoundShape, rng: &mut Rng) -> Result<SoundShape> {
        let shape = shape.waveform()?;
        let (Some(number), Some(samples @ 1..)) = (Room::drawn(self, rng), shape.frames) else {
            return Ok(shape);
        };
        let all = self.all()?;
        let response = all.get(number).map(|response| response.len_of(samples, self.mode));
        Ok(SoundShape { frames: response.or(shape.frames), ..shape })
    }

    fn scratch(&self, shape: SoundShape) -> usize {
        // Of the response that takes most, as none was drawn.
        let all = self.all().unwrap_or_default();
        all.iter().map(|response| response.scratch(shape.frames.unwrap_or(0))).max().unwrap_or(0)
    }

    fn run(&self, sound: &mut Sound, rng: &mut Rng) -> Result<()> {
        let frames = sound.frames();
        let Some(number) = Room::drawn(self, rng).filter(|_| frames > 0) else { return Ok(()) };
        let all = self.all()?;
        let Some(response) = all.get(number) else { return Ok(()) };
        let shape = SoundShape { frames: Some(response.len_of(frames, self.mode)), ..sound.shape };
        sound.replace(shape, |samples, _, out| {
            out.extend_from_slice(&response.apply(samples, self.mode)?);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    fn convolve(responses: &[&[f32]], mode: Mode) -> Convolve {
        Convolve { responses: Recordings::of(responses), mode, p: 1.0 }
    }

    #[test]
    fn each_channel_is_convolved() {
        let two = || sound(&[&[1.0, 2.0, 3.0, 4.0], &[0.0, 0.0, 1.0, 0.0]], 8_000);
        let echo: &[f32] = &[1.0, 0.0, -1.0];
        let full = run(&convolve(&[echo], Mode::Full), two()).unwrap();
        let expected = [1.0, 2.0, 2.0, 2.0, -3.0, -4.0, 0.0, 0.0, 1.0, 0.0, -1.0, 0.0];
        assert_eq!((full.values.as_slice(), full.frames()), (&expected[..], 6));
        let same = run(&convolve(&[echo], Mode::Same), two()).unwrap();
        assert_eq!(same.values, [2.0, 2.0, 2.0, -3.0, 0.0, 1.0, 0.0, -1.0]);
        let valid = run(&convolve(&[echo], Mode::Valid), two()).unwrap();
        assert_eq!((valid.values, valid.shape.frames), (vec![2.0, 2.0, 1.0, 0.0], Some(2)));
        assert_eq!(run(&convolve(&[echo], Mode::Full), sound(&[&[]], 8_000)).unwrap().frames(), 0);
    }

    #[test]
    fn a_response_is_drawn_for_each_sample() {
        let kernel =
            Convolve { p: 0.5, ..convolve(&[&[2.0], &[3.0, 0.0]], Mode::Full) }.kernel(8_000).unwrap();
        let mut seen = std::collections::BTreeMap::new();
        for index in 0..400 {
            let mut made = sound(&[&[1.0, 1.0]], 8_000);
            let rng = || Rng::for_stage(0, 0, index, 0);
            let expected = kernel.drawn(made.shape, &mut rng()).unwrap();
            kernel.run(&mut made, &mut rng()).unwrap();
            assert_eq!((made.shape, made.values.len()), (expected, expected.frames.unwrap()));
            *seen.entry((made.values[0] as i32, made.frames())).or_insert(0) += 1;
        }
        assert_eq!(seen.keys().copied().collect::<Vec<_>>(), [(1, 2), (2, 2), (3, 3)]);
        assert!((150..250).contains(&seen[&(1, 2)]) && seen[&(2, 2)] > 60 && seen[&(3, 3)] > 60, "{seen:?}");
    }

    #[test]
    fn parameters_are_read_and_refused() {
        let read: Convolve =
            serde_json::from_str(r#"{"responses":[{"float32":"AACAPw=="}],"mode":"same"}"#).unwrap();
        assert_eq!(read, convolve(&[&[1.0]], Mode::Same));
        assert_eq!(read.to_string(), "Convolve(responses=[1 sound], mode='same')");
        assert!(AudioOperation::check(&convolve(&[], Mode::Full)).is_err());
        assert!(AudioOperation::check(&Convolve { p: -0.5, ..read }).is_err());
        let all = SoundShape { frames: Some(5), ..SoundShape::file() };
        assert_eq!(convolve(&[&[1.0]], Mode::Full).follow(all).unwrap().frames, None);
        assert_eq!(convolve(&[&[1.0]], Mode::Same).follow(all).unwrap().frames, Some(5));
    }
}
