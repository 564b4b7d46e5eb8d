//! What can be done to sounds, with torchaudio's names, parameters, defaults and values.
//!
//! A transform of sounds is data as those of images are, and an [`AudioOperation`] besides: it says what becomes of a sound's
//! shape, and makes an [`AudioKernel`] (filters, windows, plans of transforms) once for all sounds of one rate. Values are
//! computed by `wellfed_audio`.
//!
//! A sound is `[channels, frames]` in float32, a spectrum `[channels, bins, frames]`, as in torchaudio.

use std::{fmt, ops::Range, sync::Arc};

mod add_noise;
mod cepstrum;
mod channels;
mod convolve;
mod decibels;
mod kaldi;
mod length;
mod loudness;
mod masking;
mod mel_scale;
mod mel_spectrogram;
mod mu_law;
mod pitch_shift;
mod recordings;
mod resample;
mod spec_augment;
mod spectrogram;
mod speed;
mod time_first;
mod time_stretch;
mod vad;
mod whisper;

pub use add_noise::AddNoise;
pub use cepstrum::{LFCC, MFCC};
pub use channels::ToMono;
pub use convolve::Convolve;
pub use decibels::AmplitudeToDB;
pub use kaldi::{KaldiFbank, KaldiMFCC};
pub use length::{PadOrTrim, RandomSegment};
pub use loudness::{Fade, Standardize, Vol};
pub use masking::{FrequencyMasking, TimeMasking};
pub use mel_scale::MelScale;
pub use mel_spectrogram::MelSpectrogram;
pub use mu_law::{MuLawDecoding, MuLawEncoding};
pub use pitch_shift::PitchShift;
pub use resample::Resample;
pub use spec_augment::SpecAugment;
pub use spectrogram::Spectrogram;
pub use speed::{Speed, SpeedPerturbation};
pub use time_first::TimeFirst;
pub use time_stretch::TimeStretch;
pub use vad::Vad;
pub use whisper::WhisperLogMel;

use crate::{Error, ErrorKind, Result, rng::Rng};

/// A rate to check parameters with where no sound is at hand.
const ANY_RATE: u32 = 16_000;

/// What is known of a sound: for all samples of a field, or of one, of which all is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoundShape {
    /// Channels.
    pub channels: Option<usize>,
    /// Whether they are a side of the array. If not, there is one.
    pub has_channels: bool,
    /// Bins of a spectrum; `None` is a waveform.
    pub bins: Option<usize>,
    /// Samples of a channel, or frames of a spectrum.
    pub frames: Option<usize>,
    /// Whether a spectrum is `[frames, bins]` and not `[bins, frames]`.
    pub time_first: bool,
    /// Samples of the waveform a second, Hz.
    pub rate: Option<u32>,
    /// How many numbers there are, where values are whole numbers of a scale (µ-law) and no samples.
    pub codes: Option<u32>,
}

impl SoundShape {
    /// A file of which nothing is known.
    pub fn file() -> Self {
        Self {
            channels: None,
            has_channels: true,
            bins: None,
            frames: None,
            time_first: false,
            rate: None,
            codes: None,
        }
    }

    /// Sides of the array.
    pub fn sides(&self) -> Vec<Option<usize>> {
        let channels = self.has_channels.then_some(self.channels);
        let (first, last) = match self.bins {
            Some(bins) if self.time_first => (Some(self.frames), Some(bins)),
            Some(bins) => (Some(Some(bins)), self.frames),
            None => (None, self.frames),
        };
        channels.into_iter().chain(first).chain([last]).collect()
    }

    /// Which of the sides is time.
    pub fn time_side(&self) -> usize {
        let last = self.sides().len() - 1;
        if self.time_first && self.bins.is_some() { last - 1 } else { last }
    }

    /// Values of all sides, if they are known and can be counted.
    pub fn values(&self) -> Option<usize> {
        self.sides().into_iter().try_fold(1_usize, |n, side| n.checked_mul(side?))
    }

    /// Fails for numbers that are no samples.
    fn samples(self) -> Result<Self> {
        match self.codes {
            None => Ok(self),
            Some(codes) => Err(Error::config(format!(
                "it works on samples, and what comes to it are numbers of {codes} quantization channels"
            ))
            .with_hint("put MuLawEncoding after it")),
        }
    }

    /// Fails for a spectrum.
    fn waveform(self) -> Result<Self> {
        match self.bins {
            None => self.samples(),
            Some(bins) => Err(Error::config(format!(
                "it works on waveforms, and what comes to it is a spectrum of {bins} bins"
            ))
            .with_hint("put it before what makes the spectrum")),
        }
    }

    /// The number of bins; fails for a waveform.
    fn spectrum(self) -> Result<usize> {
        self.bins.ok_or_else(|| {
            Error::config("it works on spectra, and what comes to it is a waveform")
                .with_hint("put it after Spectrogram or MelSpectrogram")
        })
    }

    /// Fails for another rate than `sample_rate`, which filters were made for.
    fn at_rate(self, sample_rate: u32) -> Result<Self> {
        match self.rate {
            Some(rate) if rate != sample_rate => Err(Error::new(
                ErrorKind::Shape,
                format!("a sound of {rate} Hz, and sample_rate is {sample_rate}"),
            )
            .with_hint(format!("put Resample(new_freq={sample_rate}) before it, or set sample_rate={rate}"))),
            _ => Ok(self),
        }
    }
}

/// A sound under way: its values, and places to work in that are used again.
#[derive(Debug)]
pub struct Sound {
    /// In the order of the sides.
    pub values: Vec<f32>,
    /// Of which all is known.
    pub shape: SoundShape,
    spare: Vec<f32>,
    padded: Vec<f32>,
    scratch: wellfed_audio::Scratch,
}

impl Default for Sound {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            shape: SoundShape::file(),
            spare: Vec::new(),
            padded: Vec::new(),
            scratch: wellfed_audio::Scratch::default(),
        }
    }
}

impl Sound {
    /// Samples of a channel, or frames of a spectrum.
    pub fn frames(&self) -> usize {
        self.shape.frames.unwrap_or(0)
    }

    /// Channels.
    pub fn channels(&self) -> usize {
        self.shape.channels.unwrap_or(0)
    }

    /// Bytes kept allocated.
    pub fn capacity(&self) -> usize {
        // Of what a spectrum works in, the padded signal is most.
        4 * (self.values.capacity() + self.spare.capacity() + 2 * self.padded.capacity())
    }

    /// Makes every channel anew: `each` appends what becomes of one to the values of `shape`.
    fn replace(
        &mut self,
        shape: SoundShape,
        mut each: impl FnMut(&[f32], &mut Places<'_>, &mut Vec<f32>) -> wellfed_audio::Result<()>,
    ) -> Result<()> {
        let len = self.values.len().checked_div(self.channels()).unwrap_or(0);
        self.spare.clear();
        let wanted = shape.values().unwrap_or(0);
        self.spare.try_reserve(wanted).map_err(|_| Error::memory(4 * wanted, "a sound"))?;
        let mut places = Places { padded: &mut self.padded };
        for channel in 0..self.shape.channels.unwrap_or(0) {
            each(&self.values[channel * len..][..len], &mut places, &mut self.spare).map_err(impossible)?;
        }
        if Some(self.spare.len()) != shape.values() {
            let what = format!("a sound of {:?} became {} values", shape.sides(), self.spare.len());
            return Err(Error::new(ErrorKind::Internal, what));
        }
        std::mem::swap(&mut self.values, &mut self.spare);
        self.shape = shape;
        Ok(())
    }

    /// Makes every channel anew: `each` writes all of what becomes of one, of the values of `shape`.
    fn rewrite(
        &mut self,
        shape: SoundShape,
        mut each: impl FnMut(&[f32], &mut wellfed_audio::Scratch, &mut [f32]) -> wellfed_audio::Result<()>,
    ) -> Result<()> {
        let channels = self.channels();
        let (len, wanted) =
            (self.values.len().checked_div(channels).unwrap_or(0), shape.values().unwrap_or(0));
        let more = wanted.saturating_sub(self.spare.len());
        self.spare.try_reserve(more).map_err(|_| Error::memory(4 * wanted, "a sound"))?;
        // What is left of an earlier sound is written over: it need not be zeroed.
        self.spare.resize(wanted, 0.0);
        let row = wanted.checked_div(channels).unwrap_or(0);
        for channel in 0..channels {
            let out = &mut self.spare[channel * row..][..row];
            each(&self.values[channel * len..][..len], &mut self.scratch, out).map_err(impossible)?;
        }
        std::mem::swap(&mut self.values, &mut self.spare);
        self.shape = shape;
        Ok(())
    }

    /// Keeps the frames from `start` on, and fills up with zeros: `frames` in all.
    fn cut(&mut self, start: usize, frames: usize) {
        let had = self.frames();
        if start == 0 && frames == had {
            return;
        }
        // Along time: so many values of one frame lie together.
        let inner = if self.shape.time_first { self.shape.bins.unwrap_or(1) } else { 1 };
        let (row, to) = (had * inner, frames * inner);
        let kept = had.saturating_sub(start).min(frames) * inner;
        if row == to.max(row) && self.values.len() == row {
            // One row that becomes shorter or stays: in place.
            self.values.copy_within(start * inner..start * inner + kept, 0);
            self.values.truncate(kept);
            self.values.resize(to, 0.0);
        } else {
            self.spare.clear();
            for values in self.values.chunks_exact(row.max(1)) {
                self.spare.extend_from_slice(&values[start * inner..][..kept]);
                self.spare.resize(self.spare.len() + to - kept, 0.0);
            }
            if row == 0 {
                let rows = self.channels() * self.shape.bins.filter(|_| inner == 1).unwrap_or(1);
                self.spare.resize(rows * to, 0.0);
            }
            std::mem::swap(&mut self.values, &mut self.spare);
        }
        self.shape.frames = Some(frames);
    }
}

/// Places that a kernel works in.
struct Places<'a> {
    padded: &'a mut Vec<f32>,
}

/// What a transform of sounds can say besides being an [`super::Operation`].
pub trait AudioOperation: fmt::Debug {
    /// Checks parameters.
    ///
    /// # Errors
    /// [`ErrorKind::Config`], naming the parameter, its value and what is allowed.
    fn check(&self) -> Result<()> {
        self.kernel(ANY_RATE).map(drop)
    }

    /// What becomes of sounds of `shape`, as far as that is the same for all.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] where it cannot stand; [`ErrorKind::Shape`] where it cannot work on such sounds.
    fn follow(&self, shape: SoundShape) -> Result<SoundShape> {
        self.kernel(shape.rate.unwrap_or(ANY_RATE))?.becomes(shape)
    }

    /// What works on sounds of this rate, Hz.
    ///
    /// # Errors
    /// As [`AudioOperation::check`]; [`ErrorKind::Shape`] if it cannot work on this rate.
    fn kernel(&self, rate: u32) -> Result<Arc<dyn AudioKernel>>;
}

/// A transform that is ready for sounds of one rate. Shared by all threads.
pub trait AudioKernel: fmt::Debug + Send + Sync {
    /// What becomes of a sound's shape: of one of which all is known, all is known but what depends on draws.
    ///
    /// # Errors
    /// As [`AudioOperation::follow`].
    fn becomes(&self, shape: SoundShape) -> Result<SoundShape>;

    /// The same with the draws of a sample: of a sound of which all is known, all is known. `rng` is as [`AudioKernel::run`] gets it.
    /// What depends on values is the greatest that it can be.
    ///
    /// # Errors
    /// As [`AudioKernel::becomes`].
    fn drawn(&self, shape: SoundShape, rng: &mut Rng) -> Result<SoundShape> {
        let _ = rng;
        self.becomes(shape)
    }

    /// Values that it works in for a sound of `shape`, besides what is there and what it makes.
    fn scratch(&self, shape: SoundShape) -> usize {
        let _ = shape;
        0
    }

    /// Changes a sound. What [`AudioKernel::drawn`] says of its size was checked before.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`] for a sound that cannot be changed so, as one that is too short.
    fn run(&self, sound: &mut Sound, rng: &mut Rng) -> Result<()>;

    /// Of a waveform of so many frames, those that count: [`AudioKernel::run`] on them alone gives what it gives on all of them.
    fn window(&self, _frames: u64, _rng: &mut Rng) -> Option<Range<u64>> {
        None
    }
}

/// What `wellfed_audio` refuses of parameters.
fn refused(error: wellfed_audio::Error) -> Error {
    Error::config(error.message())
}

/// What it cannot make of a sound.
fn impossible(error: wellfed_audio::Error) -> Error {
    Error::new(ErrorKind::Shape, error.message())
}

/// What the decoder says of a file.
pub(crate) fn undecodable(error: wellfed_audio::Error) -> Error {
    use wellfed_audio::ErrorKind as Kind;
    let kind = match error.kind() {
        Kind::Unsupported => ErrorKind::Unsupported,
        Kind::Limit => ErrorKind::Limit,
        Kind::Argument => ErrorKind::Shape,
        _ => ErrorKind::Corrupt,
    };
    Error::new(kind, error.message())
}

/// Makes transforms of sounds operations, as those of images are.
macro_rules! operations {
    ($($name:ident),* $(,)?) => {$(
        impl super::Operation for $name {
            fn check(&self) -> Result<()> {
                AudioOperation::check(self)
            }

            fn class(&self) -> super::Class {
                super::Class::Audio
            }

            fn fixed_size(&self, input: super::Shape) -> super::Shape {
                input
            }

            fn draw(&self, _size: super::Size, _rng: &mut Rng) -> Result<super::Action> {
                Err(Error::config("it works on sounds, not on images"))
            }

            fn as_audio(&self) -> Option<&dyn AudioOperation> {
                Some(self)
            }
        }
    )*};
}

operations! {
    AddNoise,
    AmplitudeToDB,
    Convolve,
    Fade,
    FrequencyMasking,
    KaldiFbank,
    KaldiMFCC,
    LFCC,
    MFCC,
    MelScale,
    MelSpectrogram,
    MuLawDecoding,
    MuLawEncoding,
    PadOrTrim,
    PitchShift,
    RandomSegment,
    Resample,
    SpecAugment,
    Spectrogram,
    Speed,
    SpeedPerturbation,
    Standardize,
    TimeFirst,
    TimeMasking,
    TimeStretch,
    ToMono,
    Vad,
    Vol,
    WhisperLogMel,
}

/// Sounds for tests, and what becomes of them.
#[cfg(test)]
mod testing {
    use super::*;

    /// A sound of these channels.
    pub(super) fn sound(channels: &[&[f32]], rate: u32) -> Sound {
        let shape = SoundShape {
            channels: Some(channels.len()),
            frames: Some(channels[0].len()),
            rate: Some(rate),
            ..SoundShape::file()
        };
        Sound { values: channels.concat(), shape, ..Sound::default() }
    }

    /// Runs an operation, and checks that it makes what it says.
    pub(super) fn run(operation: &dyn AudioOperation, mut sound: Sound) -> Result<Sound> {
        let before = sound.shape;
        let kernel = operation.kernel(before.rate.unwrap())?;
        let (known, expected) =
            (kernel.becomes(before)?, kernel.drawn(before, &mut Rng::for_stage(1, 2, 3, 4))?);
        assert!(known.frames.is_none_or(|frames| Some(frames) == expected.frames), "{known:?} {expected:?}");
        assert_eq!(known, SoundShape { frames: known.frames, ..expected });
        let settled = operation.follow(SoundShape { channels: None, frames: None, rate: None, ..before })?;
        kernel.run(&mut sound, &mut Rng::for_stage(1, 2, 3, 4))?;
        assert_eq!(sound.shape, expected);
        assert_eq!(Some(sound.values.len()), expected.values());
        for (all, one) in settled.sides().iter().zip(expected.sides()) {
            assert!(all.is_none_or(|side| Some(side) == one), "{settled:?} {expected:?}");
        }
        assert_eq!(settled.sides().len(), expected.sides().len());
        Ok(sound)
    }
}

#[cfg(test)]
mod tests {
    use super::{testing::*, *};

    #[test]
    fn shapes_have_their_sides_in_torchaudios_order() {
        let file = SoundShape::file();
        assert_eq!((file.sides(), file.time_side()), (vec![None, None], 1));
        let mono = SoundShape { channels: Some(1), has_channels: false, frames: Some(5), ..file };
        assert_eq!((mono.sides(), mono.time_side(), mono.values()), (vec![Some(5)], 0, Some(5)));
        let mel = SoundShape { channels: Some(2), bins: Some(3), ..file };
        assert_eq!((mel.sides(), mel.time_side()), (vec![Some(2), Some(3), None], 2));
        let turned = SoundShape { time_first: true, ..mel };
        assert_eq!(
            (turned.sides(), turned.time_side(), turned.values()),
            (vec![Some(2), None, Some(3)], 1, None)
        );
    }

    #[test]
    fn a_cut_keeps_what_there_is_and_fills_up() {
        let two = || sound(&[&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]], 8);
        for (start, frames, expected) in [
            (0, 3, vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
            (1, 2, vec![2.0, 3.0, 5.0, 6.0]),
            (2, 2, vec![3.0, 0.0, 6.0, 0.0]),
            (0, 4, vec![1.0, 2.0, 3.0, 0.0, 4.0, 5.0, 6.0, 0.0]),
            (3, 1, vec![0.0, 0.0]),
            (0, 0, vec![]),
        ] {
            let mut sound = two();
            sound.cut(start, frames);
            assert_eq!((sound.values, sound.shape.frames), (expected, Some(frames)), "{start} {frames}");
        }
        let mut one = sound(&[&[1.0, 2.0, 3.0]], 8);
        one.cut(1, 2);
        assert_eq!(one.values, [2.0, 3.0]);
        one.cut(1, 3);
        assert_eq!(one.values, [3.0, 0.0, 0.0]);
        let mut empty = sound(&[&[], &[]], 8);
        empty.cut(0, 2);
        assert_eq!(empty.values, [0.0; 4]);
        let mut turned = sound(&[&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]], 8);
        turned.shape = SoundShape { bins: Some(2), frames: Some(3), time_first: true, ..turned.shape };
        turned.cut(1, 3);
        assert_eq!(turned.values, [3.0, 4.0, 5.0, 6.0, 0.0, 0.0]);
    }
}
