//! `Vad`: silence before speech is cut off.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use wellfed_audio::VadOptions;

use super::{AudioKernel, AudioOperation, Sound, SoundShape, impossible, refused};
use crate::{Result, rng::Rng, transform::param::Repr};

/// Cuts off what comes before the first activity of a voice in any channel, as SoX and torchaudio do. A sound without any is empty
/// afterwards, or has its first `pre_trigger_time` seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "they are those of `wellfed_audio::VadOptions`")]
pub struct Vad {
    /// Rate of the waveform, Hz; another one is an error.
    sample_rate: u32,
    #[serde(default = "of::trigger_level")]
    trigger_level: f64,
    #[serde(default = "of::trigger_time")]
    trigger_time: f64,
    #[serde(default = "of::search_time")]
    search_time: f64,
    #[serde(default = "of::allowed_gap")]
    allowed_gap: f64,
    #[serde(default = "of::pre_trigger_time")]
    pre_trigger_time: f64,
    #[serde(default = "of::boot_time")]
    boot_time: f64,
    #[serde(default = "of::noise_up_time")]
    noise_up_time: f64,
    #[serde(default = "of::noise_down_time")]
    noise_down_time: f64,
    #[serde(default = "of::noise_reduction_amount")]
    noise_reduction_amount: f64,
    #[serde(default = "of::measure_freq")]
    measure_freq: f64,
    #[serde(default)]
    measure_duration: Option<f64>,
    #[serde(default = "of::measure_smooth_time")]
    measure_smooth_time: f64,
    #[serde(default = "of::hp_filter_freq")]
    hp_filter_freq: f64,
    #[serde(default = "of::lp_filter_freq")]
    lp_filter_freq: f64,
    #[serde(default = "of::hp_lifter_freq")]
    hp_lifter_freq: f64,
    #[serde(default = "of::lp_lifter_freq")]
    lp_lifter_freq: f64,
}

/// Defaults.
mod of {
    use wellfed_audio::VadOptions;

    macro_rules! defaults {
        ($($name:ident)*) => {$(
            pub(super) fn $name() -> f64 {
                VadOptions::default().$name
            }
        )*};
    }

    defaults! {
        trigger_level trigger_time search_time allowed_gap pre_trigger_time boot_time noise_up_time noise_down_time
        noise_reduction_amount measure_freq measure_smooth_time hp_filter_freq lp_filter_freq hp_lifter_freq
        lp_lifter_freq
    }
}

impl fmt::Display for Vad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "Vad")
            .field("sample_rate", self.sample_rate)
            .field("trigger_level", self.trigger_level)
            .field("pre_trigger_time", self.pre_trigger_time)
            .finish()
    }
}

impl AudioOperation for Vad {
    fn kernel(&self, _rate: u32) -> Result<Arc<dyn AudioKernel>> {
        let options = VadOptions {
            trigger_level: self.trigger_level,
            trigger_time: self.trigger_time,
            search_time: self.search_time,
            allowed_gap: self.allowed_gap,
            pre_trigger_time: self.pre_trigger_time,
            boot_time: self.boot_time,
            noise_up_time: self.noise_up_time,
            noise_down_time: self.noise_down_time,
            noise_reduction_amount: self.noise_reduction_amount,
            measure_freq: self.measure_freq,
            measure_duration: self.measure_duration,
            measure_smooth_time: self.measure_smooth_time,
            hp_filter_freq: self.hp_filter_freq,
            lp_filter_freq: self.lp_filter_freq,
            hp_lifter_freq: self.hp_lifter_freq,
            lp_lifter_freq: self.lp_lifter_freq,
        };
        let vad = wellfed_audio::Vad::new(self.sample_rate, options).map_err(refused)?;
        Ok(Arc::new(Detector { sample_rate: self.sample_rate, vad }))
    }
}

#[derive(Debug)]
struct Detector {
    sample_rate: u32,
    vad: wellfed_audio::Vad,
}

impl AudioKernel for Detector {
    fn becomes(&self, shape: SoundShape) -> Result<SoundShape> {
        Ok(SoundShape { frames: None, ..shape.waveform()?.at_rate(self.sample_rate)? })
    }

    fn drawn(&self, shape: SoundShape, _rng: &mut Rng) -> Result<SoundShape> {
        // How many frames are left depends on values: no more than there are.
        shape.waveform()?.at_rate(self.sample_rate)
    }

    fn scratch(&self, shape: SoundShape) -> usize {
        self.vad.scratch(shape.channels.unwrap_or(1))
    }

    fn run(&self, sound: &mut Sound, _rng: &mut Rng) -> Result<()> {
        let frames = sound.frames();
        if frames == 0 {
            return Ok(());
        }
        let channels: Vec<&[f32]> = sound.values.chunks_exact(frames).collect();
        let kept = self.vad.kept(&channels).map_err(impossible)?;
        sound.cut(kept.start, kept.len());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    fn vad() -> Vad {
        serde_json::from_str(r#"{"sample_rate":16000}"#).unwrap()
    }

    #[test]
    fn silence_before_a_voice_is_cut_off_in_all_channels() {
        let voice = |i: usize| {
            let time = i as f32 / 16_000.0;
            let hum: f32 =
                (1..=16).map(|h| (2.0 * std::f32::consts::PI * 220.0 * h as f32 * time).sin()).sum();
            if i < 20_000 { 0.0 } else { 0.03 * hum }
        };
        // No pattern that could pass for a voice.
        let hiss = |i: usize| ((i as u32).wrapping_mul(2_654_435_761) >> 8) as f32 / 8_388_608.0 - 1.0;
        let one: Vec<f32> = (0..40_000).map(|i| voice(i) + 0.001 * hiss(i)).collect();
        let other: Vec<f32> = (77..40_077).map(|i| 0.001 * hiss(i)).collect();
        let kernel = vad().kernel(16_000).unwrap();
        let mut made = sound(&[&other, &one], 16_000);
        kernel.run(&mut made, &mut Rng::for_stage(0, 0, 0, 0)).unwrap();
        let start = 40_000 - made.frames();
        assert!((16_000..21_000).contains(&start), "{start}");
        assert_eq!(made.values, [&other[start..], &one[start..]].concat());
        let mut silence = sound(&[&[0.0; 40_000]], 16_000);
        kernel.run(&mut silence, &mut Rng::for_stage(0, 0, 0, 0)).unwrap();
        assert_eq!((silence.frames(), silence.values.len()), (0, 0));
    }

    #[test]
    fn parameters_are_torchaudios() {
        let shape = SoundShape { frames: Some(9), rate: Some(16_000), ..SoundShape::file() };
        assert_eq!(vad().follow(shape).unwrap().frames, None);
        let other = vad().follow(SoundShape { rate: Some(8_000), ..shape }).unwrap_err();
        assert_eq!(other.message(), "a sound of 8000 Hz, and sample_rate is 16000");
        let slow = Vad { measure_freq: -1.0, ..vad() };
        assert_eq!(
            AudioOperation::check(&slow).unwrap_err().message(),
            "measure_freq is -1; must be above 0"
        );
        assert_eq!(vad().to_string(), "Vad(sample_rate=16000, trigger_level=7, pre_trigger_time=0)");
        assert!(serde_json::from_str::<Vad>("{}").is_err());
    }
}
