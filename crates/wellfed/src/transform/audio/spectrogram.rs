//! `Spectrogram`: short-time Fourier transforms, and the parameters that all spectra share.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use wellfed_audio::{Normalized, PadMode, SpectrogramOptions, Window};

use super::{AudioKernel, AudioOperation, Sound, SoundShape, refused};
use crate::{
    Error, Result,
    rng::Rng,
    transform::param::{Repr, python_bool},
};

/// A window by the name of torch's function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::enum_variant_names, reason = "the names are torch's")]
pub(super) enum WindowFn {
    #[default]
    #[serde(rename = "hann_window")]
    Hann,
    #[serde(rename = "hamming_window")]
    Hamming,
    #[serde(rename = "blackman_window")]
    Blackman,
    #[serde(rename = "bartlett_window")]
    Bartlett,
    #[serde(rename = "ones")]
    Ones,
}

impl From<WindowFn> for Window {
    fn from(window: WindowFn) -> Self {
        match window {
            WindowFn::Hann => Window::Hann,
            WindowFn::Hamming => Window::Hamming,
            WindowFn::Blackman => Window::Blackman,
            WindowFn::Bartlett => Window::Bartlett,
            WindowFn::Ones => Window::Rectangular,
        }
    }
}

/// How the signal goes on beyond its ends, by torch's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Beyond {
    #[default]
    Reflect,
    Constant,
    Replicate,
    Circular,
}

impl From<Beyond> for PadMode {
    fn from(mode: Beyond) -> Self {
        match mode {
            Beyond::Reflect => PadMode::Reflect,
            Beyond::Constant => PadMode::Constant,
            Beyond::Replicate => PadMode::Replicate,
            Beyond::Circular => PadMode::Circular,
        }
    }
}

/// What a spectrum is divided by: torchaudio's `False`, `True` or `"window"`, and `"frame_length"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Normalization(pub(super) Normalized);

impl Serialize for Normalization {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Normalized::No => false.serialize(serializer),
            Normalized::Window => "window".serialize(serializer),
            Normalized::FrameLength => "frame_length".serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Normalization {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let given = serde_json::Value::deserialize(deserializer)?;
        match given.as_str() {
            None if given == false => Ok(Self(Normalized::No)),
            None if given == true => Ok(Self(Normalized::Window)),
            Some("window") => Ok(Self(Normalized::Window)),
            Some("frame_length") => Ok(Self(Normalized::FrameLength)),
            _ => Err(D::Error::custom("must be true, false, \"window\" or \"frame_length\"")),
        }
    }
}

/// Parameters of a spectrum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stft {
    pub(super) n_fft: usize,
    pub(super) win_length: Option<usize>,
    pub(super) hop_length: Option<usize>,
    pub(super) pad: usize,
    pub(super) window_fn: WindowFn,
    pub(super) power: f32,
    pub(super) normalized: Normalization,
    pub(super) center: bool,
    pub(super) pad_mode: Beyond,
    pub(super) onesided: bool,
}

impl Stft {
    /// Makes windows and plans.
    pub(super) fn make(&self) -> Result<wellfed_audio::Spectrogram> {
        if !(self.power > 0.0 && self.power.is_finite()) {
            return Err(Error::config(format!("power is {}; must be above 0", self.power)));
        }
        wellfed_audio::Spectrogram::new(SpectrogramOptions {
            n_fft: self.n_fft,
            win_length: self.win_length,
            hop_length: self.hop_length,
            pad: self.pad,
            window: self.window_fn.into(),
            power: self.power,
            normalized: self.normalized.0,
            center: self.center,
            pad_mode: self.pad_mode.into(),
            onesided: self.onesided,
        })
        .map_err(refused)
    }
}

/// A spectrum of the waveform of each channel: `[channels, n_fft / 2 + 1, frames]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Spectrogram {
    /// Samples of a transform. Default: 400.
    n_fft: usize,
    /// Samples of a window. Default: `n_fft`.
    win_length: Option<usize>,
    /// Samples from one frame to the next. Default: half of a window.
    hop_length: Option<usize>,
    /// Zeros on either side of the signal. Default: 0.
    pad: usize,
    window_fn: WindowFn,
    /// Exponent of the magnitude. Default: 2.
    power: f32,
    normalized: Normalization,
    /// Whether frame `t` has sample `t * hop_length` in its middle. Default: true.
    center: bool,
    pad_mode: Beyond,
    /// Whether there are `n_fft / 2 + 1` bins, and not `n_fft`. Default: true.
    onesided: bool,
}

impl Default for Spectrogram {
    fn default() -> Self {
        Self {
            n_fft: 400,
            win_length: None,
            hop_length: None,
            pad: 0,
            window_fn: WindowFn::default(),
            power: 2.0,
            normalized: Normalization::default(),
            center: true,
            pad_mode: Beyond::default(),
            onesided: true,
        }
    }
}

impl Spectrogram {
    pub(super) fn stft(&self) -> Stft {
        Stft {
            n_fft: self.n_fft,
            win_length: self.win_length,
            hop_length: self.hop_length,
            pad: self.pad,
            window_fn: self.window_fn,
            power: self.power,
            normalized: self.normalized,
            center: self.center,
            pad_mode: self.pad_mode,
            onesided: self.onesided,
        }
    }
}

impl fmt::Display for Spectrogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { win_length, hop_length, .. } = self;
        let win_length = win_length.unwrap_or(self.n_fft);
        Repr::new(f, "Spectrogram")
            .field("n_fft", self.n_fft)
            .field("win_length", win_length)
            .field("hop_length", hop_length.unwrap_or(win_length / 2))
            .field("power", self.power)
            .field_if(!self.center, "center", python_bool(self.center))
            .finish()
    }
}

impl AudioOperation for Spectrogram {
    fn kernel(&self, _rate: u32) -> Result<Arc<dyn AudioKernel>> {
        Ok(Arc::new(Spectra(self.stft().make()?)))
    }
}

#[derive(Debug)]
struct Spectra(wellfed_audio::Spectrogram);

impl AudioKernel for Spectra {
    fn becomes(&self, shape: SoundShape) -> Result<SoundShape> {
        let shape = shape.waveform()?;
        let frames = shape.frames.map(|samples| self.0.frames(samples));
        Ok(SoundShape { bins: Some(self.0.bins()), frames, ..shape })
    }

    fn run(&self, sound: &mut Sound, _rng: &mut Rng) -> Result<()> {
        let shape = self.becomes(sound.shape)?;
        sound.rewrite(shape, |samples, scratch, out| self.0.fill(samples, scratch, out))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn a_tone_is_a_bin() {
        let tone: Vec<f32> =
            (0..1600).map(|i| (2.0 * std::f32::consts::PI * 1000.0 * i as f32 / 16_000.0).sin()).collect();
        let spectrum = run(&Spectrogram::default(), sound(&[&tone, &[0.0; 1600]], 16_000)).unwrap();
        assert_eq!(spectrum.shape.sides(), [Some(2), Some(201), Some(9)]);
        let middle = |bin: usize| spectrum.values[bin * 9 + 4];
        // 1,000 Hz are bin 25 of 400 samples at 16 kHz.
        assert!(middle(25) > 1e3 && middle(30) < 1e-3, "{} {}", middle(25), middle(30));
        assert!(spectrum.values[201 * 9..].iter().all(|value| *value == 0.0));
    }

    #[test]
    fn parameters_are_read_as_torchaudio_has_them_and_senseless_ones_refused() {
        let read: Spectrogram = serde_json::from_str(
            r#"{"n_fft":512,"normalized":true,"window_fn":"hamming_window","pad_mode":"constant"}"#,
        )
        .unwrap();
        assert_eq!(read.normalized.0, Normalized::Window);
        assert_eq!(serde_json::from_value::<Spectrogram>(serde_json::to_value(read).unwrap()).unwrap(), read);
        assert_eq!(read.to_string(), "Spectrogram(n_fft=512, win_length=512, hop_length=256, power=2)");
        let check = |json: &str| {
            AudioOperation::check(&serde_json::from_str::<Spectrogram>(json).unwrap())
                .unwrap_err()
                .to_string()
        };
        assert!(check(r#"{"win_length":401}"#).contains("401"));
        assert!(check(r#"{"power":0}"#).contains("power is 0"));
        assert!(check(r#"{"hop_length":0}"#).contains("hop_length"));
        let short = run(&Spectrogram::default(), sound(&[&[0.0; 200]], 16_000)).unwrap_err();
        assert!(short.message().contains("too few for n_fft=400"), "{short}");
        let again = Spectrogram::default().follow(SoundShape { bins: Some(5), ..SoundShape::file() });
        assert!(again.unwrap_err().message().contains("works on waveforms"));
    }
}
