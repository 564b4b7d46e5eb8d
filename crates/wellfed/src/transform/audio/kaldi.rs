//! `KaldiFbank` and `KaldiMFCC`: `torchaudio.compliance.kaldi`'s `fbank` and `mfcc`.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use wellfed_audio::{KaldiOptions, Window};

use super::{AudioKernel, AudioOperation, Sound, SoundShape, impossible, refused};
use crate::{Error, ErrorKind, Result, rng::Rng, transform::param::Repr};

/// Windows by Kaldi's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WindowType {
    #[default]
    Povey,
    Hanning,
    Hamming,
    Blackman,
    Rectangular,
}

/// Makes the struct of one transform: parameters that both have, those of its own, and what they become.
macro_rules! kaldi {
    (
        $(#[$doc:meta])* $name:ident, num_mel_bins: $bins:literal,
        { $($(#[$own_doc:meta])* $own:ident: $type:ty = $default:expr,)* }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            /// What samples are multiplied by: 32,768 gives Kaldi's own values. Default: 1.
            scale: f32,
            /// The channel that is taken. Default: -1, the first.
            channel: i64,
            /// Rate of what comes in, Hz; another one is an error. Default: 16,000.
            sample_frequency: f64,
            /// Milliseconds of a frame. Default: 25.
            frame_length: f64,
            /// Milliseconds from one frame to the next. Default: 10.
            frame_shift: f64,
            snip_edges: bool,
            remove_dc_offset: bool,
            preemphasis_coefficient: f32,
            window_type: WindowType,
            round_to_power_of_two: bool,
            num_mel_bins: usize,
            low_freq: f64,
            high_freq: f64,
            use_energy: bool,
            raw_energy: bool,
            energy_floor: f32,
            htk_compat: bool,
            subtract_mean: bool,
            $($(#[$own_doc])* $own: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                let KaldiOptions { sample_frequency, frame_length, frame_shift, .. } = KaldiOptions::default();
                let options = KaldiOptions::default();
                Self {
                    scale: 1.0,
                    channel: -1,
                    sample_frequency,
                    frame_length,
                    frame_shift,
                    snip_edges: options.snip_edges,
                    remove_dc_offset: options.remove_dc_offset,
                    preemphasis_coefficient: options.preemphasis_coefficient,
                    window_type: WindowType::default(),
                    round_to_power_of_two: options.round_to_power_of_two,
                    num_mel_bins: $bins,
                    low_freq: options.low_freq,
                    high_freq: options.high_freq,
                    use_energy: options.use_energy,
                    raw_energy: options.raw_energy,
                    energy_floor: options.energy_floor,
                    htk_compat: options.htk_compat,
                    subtract_mean: options.subtract_mean,
                    $($own: $default,)*
                }
            }
        }

        impl $name {
            fn options(&self) -> KaldiOptions {
                KaldiOptions {
                    sample_frequency: self.sample_frequency,
                    frame_length: self.frame_length,
                    frame_shift: self.frame_shift,
                    snip_edges: self.snip_edges,
                    remove_dc_offset: self.remove_dc_offset,
                    preemphasis_coefficient: self.preemphasis_coefficient,
                    window_type: match self.window_type {
                        WindowType::Povey => Window::Povey,
                        WindowType::Hanning => Window::Hann,
                        WindowType::Hamming => Window::Hamming,
                        WindowType::Blackman => Window::Blackman,
                        WindowType::Rectangular => Window::Rectangular,
                    },
                    round_to_power_of_two: self.round_to_power_of_two,
                    num_mel_bins: self.num_mel_bins,
                    low_freq: self.low_freq,
                    high_freq: self.high_freq,
                    use_energy: self.use_energy,
                    raw_energy: self.raw_energy,
                    energy_floor: self.energy_floor,
                    htk_compat: self.htk_compat,
                    subtract_mean: self.subtract_mean,
                    ..KaldiOptions::default()
                }
            }

            /// The rate that it is for.
            fn rate(&self) -> Result<u32> {
                let rate = self.sample_frequency;
                if !(rate >= 1.0 && rate <= f64::from(u32::MAX) && rate.fract() == 0.0) {
                    return Err(Error::config(format!("sample_frequency is {rate}; must be a whole number of Hz")));
                }
                if !self.scale.is_finite() {
                    return Err(Error::config(format!("scale is {}; must be finite", self.scale)));
                }
                Ok(rate as u32)
            }

            fn frames_of(&self, sample_rate: u32, features: Features) -> Arc<dyn AudioKernel> {
                let channel = usize::try_from(self.channel.max(0)).unwrap_or(usize::MAX);
                Arc::new(Frames { features, scale: self.scale, channel, sample_rate })
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                Repr::new(f, stringify!($name))
                    .field_if(self.scale != 1.0, "scale", self.scale)
                    .field("sample_frequency", self.sample_frequency)
                    .field("frame_length", self.frame_length)
                    .field("frame_shift", self.frame_shift)
                    .field("num_mel_bins", self.num_mel_bins)
                    .finish()
            }
        }
    };
}

kaldi! {
    /// Filter bank energies of one channel: `[frames, num_mel_bins]`, one more where `use_energy`. No dither, no warping.
    KaldiFbank, num_mel_bins: 23,
    {
        /// Whether the logarithm is taken. Default: true.
        use_log_fbank: bool = true,
        /// Whether energies are squares of magnitudes. Default: true.
        use_power: bool = true,
    }
}

kaldi! {
    /// Cepstral coefficients of one channel: `[frames, num_ceps]`. No dither, no warping.
    KaldiMFCC, num_mel_bins: 23,
    {
        /// Coefficients. Default: 13.
        num_ceps: usize = 13,
        /// How much higher coefficients are raised. Default: 22.
        cepstral_lifter: f64 = 22.0,
    }
}

impl AudioOperation for KaldiFbank {
    fn kernel(&self, _rate: u32) -> Result<Arc<dyn AudioKernel>> {
        let rate = self.rate()?;
        let options =
            KaldiOptions { use_log_fbank: self.use_log_fbank, use_power: self.use_power, ..self.options() };
        let fbank = wellfed_audio::KaldiFbank::new(options).map_err(refused)?;
        Ok(self.frames_of(rate, Features::Fbank(fbank)))
    }
}

impl AudioOperation for KaldiMFCC {
    fn kernel(&self, _rate: u32) -> Result<Arc<dyn AudioKernel>> {
        let rate = self.rate()?;
        let mfcc = wellfed_audio::KaldiMfcc::new(self.options(), self.num_ceps, self.cepstral_lifter);
        Ok(self.frames_of(rate, Features::Mfcc(mfcc.map_err(refused)?, self.num_ceps)))
    }
}

/// What is made of each frame.
#[derive(Debug)]
enum Features {
    Fbank(wellfed_audio::KaldiFbank),
    Mfcc(wellfed_audio::KaldiMfcc, usize),
}

#[derive(Debug)]
struct Frames {
    features: Features,
    scale: f32,
    channel: usize,
    sample_rate: u32,
}

impl AudioKernel for Frames {
    fn becomes(&self, shape: SoundShape) -> Result<SoundShape> {
        let shape = shape.waveform()?.at_rate(self.sample_rate)?;
        if let Some(channels) = shape.channels.filter(|channels| *channels <= self.channel) {
            let what = format!("a sound of {channels} channels, and channel is {}", self.channel);
            return Err(Error::new(ErrorKind::Shape, what));
        }
        let (columns, frames) = match &self.features {
            Features::Fbank(fbank) => (fbank.columns(), shape.frames.map(|samples| fbank.frames(samples))),
            Features::Mfcc(mfcc, columns) => (*columns, shape.frames.map(|samples| mfcc.frames(samples))),
        };
        let (channels, bins) = (Some(1), Some(columns));
        Ok(SoundShape { channels, has_channels: false, bins, frames, time_first: true, ..shape })
    }

    fn run(&self, sound: &mut Sound, _rng: &mut Rng) -> Result<()> {
        let shape = self.becomes(sound.shape)?;
        let samples = sound.frames();
        if self.channel > 0 {
            sound.values.copy_within(self.channel * samples..(self.channel + 1) * samples, 0);
        }
        sound.values.truncate(samples);
        if self.scale != 1.0 {
            sound.values.iter_mut().for_each(|sample| *sample *= self.scale);
        }
        sound.spare.clear();
        match &self.features {
            Features::Fbank(fbank) => fbank.apply(&sound.values, &mut sound.spare),
            Features::Mfcc(mfcc, _) => mfcc.apply(&sound.values, &mut sound.spare),
        }
        .map_err(impossible)?;
        std::mem::swap(&mut sound.values, &mut sound.spare);
        sound.shape = shape;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn frames_of_one_channel_come_one_after_the_other() {
        let noise: Vec<f32> = (0..1600).map(|i| ((i * 7919) % 101) as f32 / 101.0 - 0.5).collect();
        let silence = [0.0; 1600];
        let fbank = run(&KaldiFbank::default(), sound(&[&noise, &silence], 16_000)).unwrap();
        assert_eq!(fbank.shape.sides(), [Some(8), Some(23)]);
        assert_eq!(fbank.shape.time_side(), 0);
        let second = KaldiFbank { channel: 1, ..KaldiFbank::default() };
        let other = run(&second, sound(&[&silence, &noise], 16_000)).unwrap();
        assert_eq!(fbank.values, other.values);
        let mfcc = run(&KaldiMFCC::default(), sound(&[&noise], 16_000)).unwrap();
        assert_eq!(mfcc.shape.sides(), [Some(8), Some(13)]);
        let energy = KaldiFbank { use_energy: true, scale: 32768.0, ..KaldiFbank::default() };
        assert_eq!(run(&energy, sound(&[&noise], 16_000)).unwrap().shape.bins, Some(24));
    }

    #[test]
    fn what_does_not_fit_is_said() {
        let message = |operation: &dyn AudioOperation, rate| {
            run(operation, sound(&[&[0.0; 100]], rate)).unwrap_err().to_string()
        };
        assert!(
            message(&KaldiFbank { channel: 2, ..KaldiFbank::default() }, 16_000).contains("channel is 2")
        );
        assert!(message(&KaldiFbank::default(), 8_000).contains("8000 Hz"));
        let half = KaldiMFCC { sample_frequency: 0.5, ..KaldiMFCC::default() };
        assert!(AudioOperation::check(&half).unwrap_err().message().contains("sample_frequency is 0.5"));
    }
}
