//! The program of one field of sounds: what is decoded of them, and what is done to it.

use std::sync::{Arc, Mutex};

use crate::{
    Error, Result, lock,
    rng::Rng,
    sample::DType,
    transform::{
        Class, ImageDtype, Transform,
        audio::{AudioKernel, SoundShape},
    },
};

/// Rates whose kernels a step keeps. Files say what their rate is, so there may be any number of them.
const RATES: usize = 8;

/// A length to ask about windows with.
const ANY_LENGTH: u64 = 1 << 20;

/// A kernel and the rate that it is for, Hz.
type OfRate = (u32, Arc<dyn AudioKernel>);

/// One transform with its place among those of the plan, which keys its random numbers.
#[derive(Clone, Debug)]
pub(crate) struct AudioStep {
    pub(crate) transform: Transform,
    pub(crate) place: u32,
    /// What it is at each rate that sounds had.
    kernels: Arc<Mutex<Vec<OfRate>>>,
}

impl AudioStep {
    /// The transform as it works on sounds of this rate, Hz.
    ///
    /// # Errors
    /// If it cannot.
    pub(crate) fn kernel(&self, rate: u32) -> Result<Arc<dyn AudioKernel>> {
        let known = lock(&self.kernels).iter().find(|(of, _)| *of == rate).map(|(_, kernel)| kernel.clone());
        if let Some(kernel) = known {
            return Ok(kernel);
        }
        // Not under the lock: filters take milliseconds. Two threads that make the same one lose no more than that.
        let kernel = self.made(rate)?;
        let mut kernels = lock(&self.kernels);
        if kernels.len() >= RATES {
            kernels.remove(0);
        }
        kernels.push((rate, kernel.clone()));
        Ok(kernel)
    }

    fn made(&self, rate: u32) -> Result<Arc<dyn AudioKernel>> {
        let name = self.transform.name();
        match self.transform.as_operation().as_audio() {
            Some(audio) => audio.kernel(rate).map_err(|e| e.with_stage(name)),
            None => Err(Error::config("it does not work on sounds").with_stage(name)),
        }
    }

    /// Its random numbers for a sample.
    pub(crate) fn rng(&self, seed: u64, epoch: u64, index: u64) -> Rng {
        Rng::for_stage(seed, epoch, index, self.place)
    }
}

/// What happens to one field of sounds.
#[derive(Clone, Debug)]
pub(crate) struct AudioProgram {
    pub(crate) steps: Vec<AudioStep>,
    /// The step that takes only a part of the waveform: then no more than that is decoded.
    pub(crate) window: Option<usize>,
    /// What is known of finished sounds.
    pub(crate) shape: SoundShape,
    /// Element type of finished sounds.
    pub(crate) dtype: DType,
    /// Whether the first step takes the mean of all channels: the decoder may do so.
    pub(crate) is_mean: bool,
    /// Whether only sounds are taken that every decoder decodes alike.
    pub(crate) lossless: bool,
}

impl AudioProgram {
    /// Of transforms with their places.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] for transforms that make no sense where they stand.
    pub(crate) fn new(transforms: impl Iterator<Item = (Transform, u32)>, optimize: bool) -> Result<Self> {
        let mut this = Self {
            steps: Vec::new(),
            window: None,
            shape: SoundShape::file(),
            dtype: DType::Float32,
            is_mean: false,
            lossless: false,
        };
        let mut cast = None;
        for (transform, place) in transforms {
            let name = transform.name();
            if let Some(cast) = cast {
                return Err(Error::config(format!("{name} comes after {cast}, which must come last"))
                    .with_stage(name)
                    .with_hint(format!("put {name} before it: sounds are float32 until then")));
            }
            if let (Class::Cast, Transform::ToDtype(to)) = (transform.as_operation().class(), &transform) {
                this.dtype = match to.dtype {
                    ImageDtype::Float32 => DType::Float32,
                    ImageDtype::Float16 => DType::Float16,
                    ImageDtype::BFloat16 => DType::BFloat16,
                    ImageDtype::UInt8 => {
                        return Err(
                            Error::config("dtype is uint8; sounds are floating point").with_stage(name)
                        );
                    }
                };
                cast = Some(name);
                continue;
            }
            let Some(audio) = transform.as_operation().as_audio() else {
                return Err(Error::config("it does not work on sounds").with_stage(name));
            };
            this.shape = audio.follow(this.shape).map_err(|e| e.with_stage(name))?;
            this.steps.push(AudioStep { transform, place, kernels: Arc::default() });
        }
        // As torchaudio's tensors have them. float32 holds them all; types of 16 bits do not.
        if let Some(codes) = this.shape.codes {
            match (cast, this.dtype) {
                (None, _) => this.dtype = DType::Int64,
                (Some(_), DType::Float32) => {}
                (Some(cast), dtype) => {
                    return Err(Error::config(format!(
                        "dtype is {}, which does not hold numbers of {codes} quantization channels",
                        dtype.name()
                    ))
                    .with_stage(cast)
                    .with_hint("leave it out: batches have int64"));
                }
            }
        }
        // Also where nothing is to be optimized, so that the bits are the same.
        this.is_mean = this.steps.first().is_some_and(|step| matches!(step.transform, Transform::ToMono(_)));
        if optimize {
            this.window = this.first_window()?;
        }
        Ok(this)
    }

    /// The step that takes a part of the waveform, if nothing before it needs all of it.
    fn first_window(&self) -> Result<Option<usize>> {
        for (number, step) in self.steps.iter().enumerate() {
            if matches!(step.transform, Transform::ToMono(_)) {
                continue;
            }
            // Of what works on files, the rate does not matter here.
            let rng = &mut Rng::for_stage(0, 0, 0, 0);
            let rate = 16_000;
            let takes_part = match self.steps[number].made(rate) {
                Ok(kernel) => kernel.window(ANY_LENGTH, rng).is_some(),
                // Made for one rate only.
                Err(_) => false,
            };
            return Ok(takes_part.then_some(number));
        }
        Ok(None)
    }

    /// What was done to the program so that it takes less.
    pub(crate) fn note(&self) -> Option<String> {
        let step = &self.steps[self.window?];
        Some(format!("only what {} takes is decoded", step.transform.name()))
    }

    /// The program in words, one line a step.
    pub(crate) fn describe(&self) -> Vec<String> {
        let mut lines = vec![match self.window {
            Some(step) => {
                format!("decode to float32: only what {} takes", self.steps[step].transform.name())
            }
            None => "decode to float32: the whole sound, or the part that the sample is".to_owned(),
        }];
        lines.extend(self.steps.iter().map(|step| step.transform.to_string()));
        let sides: Vec<String> = self
            .shape
            .sides()
            .into_iter()
            .map(|side| side.map_or("*".to_owned(), |side| side.to_string()))
            .collect();
        lines.push(format!("write to the batch: {} [{}]", self.dtype.name(), sides.join(", ")));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(json: &str) -> Result<AudioProgram> {
        let transforms: Vec<Transform> = serde_json::from_str(json).unwrap();
        AudioProgram::new(transforms.into_iter().zip(0..), true)
    }

    #[test]
    fn shapes_are_followed_and_windows_found() {
        let mel = program(
            r#"[{"type":"Resample","new_freq":16000},{"type":"MelSpectrogram","n_mels":80},
                {"type":"AmplitudeToDB"},{"type":"ToDtype","dtype":"float16"}]"#,
        )
        .unwrap();
        assert_eq!((mel.shape.sides(), mel.window), (vec![None, Some(80), None], None));
        assert_eq!(mel.describe().last().unwrap(), "write to the batch: float16 [*, 80, *]");
        let cut = program(
            r#"[{"type":"ToMono"},{"type":"RandomSegment","num_frames":16000,"pad_if_needed":true},
                {"type":"Spectrogram"}]"#,
        )
        .unwrap();
        assert_eq!((cut.shape.sides(), cut.window), (vec![Some(1), Some(201), Some(81)], Some(1)));
        assert_eq!(cut.describe()[0], "decode to float32: only what RandomSegment takes");
        let numbers = program(r#"[{"type":"PadOrTrim","length":5},{"type":"MuLawEncoding"}]"#).unwrap();
        assert_eq!((numbers.dtype, numbers.shape.sides()), (DType::Int64, vec![None, Some(5)]));
        let after = program(r#"[{"type":"Vol","gain":2},{"type":"PadOrTrim","length":5}]"#).unwrap();
        assert_eq!(after.window, None);
    }

    #[test]
    fn what_stands_in_the_wrong_place_is_named() {
        let message = |json: &str| program(json).unwrap_err().to_string();
        let rates = message(r#"[{"type":"Resample","new_freq":8000},{"type":"MelSpectrogram"}]"#);
        assert!(rates.contains("a sound of 8000 Hz, and sample_rate is 16000"), "{rates}");
        assert!(message(r#"[{"type":"TimeFirst"}]"#).contains("works on spectra"));
        let twice = message(r#"[{"type":"Spectrogram"},{"type":"Resample"}]"#);
        assert!(twice.contains("works on waveforms") && twice.contains("Resample"), "{twice}");
        let numbers = message(r#"[{"type":"MuLawEncoding"},{"type":"Vol","gain":2}]"#);
        assert!(numbers.contains("works on samples") && numbers.contains("MuLawEncoding after"), "{numbers}");
        let half = message(r#"[{"type":"MuLawEncoding"},{"type":"ToDtype","dtype":"float16"}]"#);
        assert!(half.contains("dtype is float16") && half.contains("256 quantization channels"), "{half}");
        let cast = r#"{"type":"ToDtype","dtype":"float16"}"#;
        assert!(message(&format!(r#"[{cast},{{"type":"ToMono"}}]"#)).contains("must come last"));
        assert!(message(r#"[{"type":"ToDtype","dtype":"uint8"}]"#).contains("sounds are floating point"));
    }
}
