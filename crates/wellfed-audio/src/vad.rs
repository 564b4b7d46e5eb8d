//! Where speech begins: the voice activity detector of SoX, as `torchaudio.functional.vad` has it.
//!
//! The power of the cepstrum, where voices have their pitch, is measured some times a second, of a spectrum from which noise that was heard
//! before has been taken away. Once its mean is above a level, the measures of the last second are looked at backwards, and the sound
//! begins with the first of them that belongs to the burst. Values are float32 where torchaudio's are, so that both trigger at the same
//! measure.

use std::{collections::VecDeque, sync::Arc};

use realfft::{RealFftPlanner, RealToComplex, num_complex::Complex32};

use crate::{Error, Result, Window};

/// Parameters, with torchaudio's names and defaults. Times are seconds, frequencies Hz.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VadOptions {
    /// The mean measure from which on there is activity. Default: 7.
    pub trigger_level: f64,
    /// Time constant of that mean, which short bursts do not move far. Default: 0.25.
    pub trigger_time: f64,
    /// How far back quieter and shorter bursts are looked for. Default: 1.
    pub search_time: f64,
    /// Silence that may lie between such bursts. Default: 0.25.
    pub allowed_gap: f64,
    /// What is kept before the first burst. Default: 0.
    pub pre_trigger_time: f64,
    /// Time of the first estimate of noise. Default: 0.35.
    pub boot_time: f64,
    /// Time constant of the noise where it grows. Default: 0.1.
    pub noise_up_time: f64,
    /// Time constant of the noise where it falls. Default: 0.01.
    pub noise_down_time: f64,
    /// How much of the noise is taken away. Default: 1.35.
    pub noise_reduction_amount: f64,
    /// Measures a second. Default: 20.
    pub measure_freq: f64,
    /// How long a measure is. Default: twice the time between two.
    pub measure_duration: Option<f64>,
    /// Time constant of spectra. Default: 0.4.
    pub measure_smooth_time: f64,
    /// Frequencies below are not looked at. Default: 50.
    pub hp_filter_freq: f64,
    /// Frequencies above are not looked at. Default: 6,000.
    pub lp_filter_freq: f64,
    /// Pitches below are not looked at. Default: 150.
    pub hp_lifter_freq: f64,
    /// Pitches above are not looked at. Default: 2,000.
    pub lp_lifter_freq: f64,
}

impl Default for VadOptions {
    fn default() -> Self {
        Self {
            trigger_level: 7.0,
            trigger_time: 0.25,
            search_time: 1.0,
            allowed_gap: 0.25,
            pre_trigger_time: 0.0,
            boot_time: 0.35,
            noise_up_time: 0.1,
            noise_down_time: 0.01,
            noise_reduction_amount: 1.35,
            measure_freq: 20.0,
            measure_duration: None,
            measure_smooth_time: 0.4,
            hp_filter_freq: 50.0,
            lp_filter_freq: 6_000.0,
            hp_lifter_freq: 150.0,
            lp_lifter_freq: 2_000.0,
        }
    }
}

/// Samples of a measure, and measures that are looked back at, that there may be.
const MOST: f64 = (1 << 20) as f64;

/// The detector for sounds of one rate.
#[derive(Clone)]
pub struct Vad {
    options: VadOptions,
    /// Samples of a measure, and from one to the next.
    length: usize,
    period: usize,
    /// Measures that are looked back at, and those of a gap.
    measures: usize,
    gap: usize,
    /// Samples that are kept before.
    before: usize,
    window: Vec<f32>,
    /// Bins that are looked at, and their window.
    bins: std::ops::Range<usize>,
    bins_window: Vec<f32>,
    cepstrum: std::ops::Range<usize>,
    /// Measures of the first estimate, less one.
    boot: u64,
    of_samples: Arc<dyn RealToComplex<f32>>,
    of_bins: Arc<dyn RealToComplex<f32>>,
}

impl std::fmt::Debug for Vad {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vad").field("options", &self.options).finish_non_exhaustive()
    }
}

/// What is known of a channel.
struct Channel {
    spectrum: Vec<f32>,
    noise: Vec<f32>,
    /// The newest first.
    measures: VecDeque<f32>,
    mean: f32,
}

/// Places to work in.
struct Work {
    samples: Vec<f32>,
    spectrum: Vec<Complex32>,
    bins: Vec<f32>,
    cepstrum: Vec<Complex32>,
}

impl Vad {
    /// For sounds of so many Hz.
    ///
    /// # Errors
    ///
    /// For a rate of 0, times and frequencies that are negative or no numbers, constants of 0, measures of no or too many samples, and
    /// frequencies between which there is no bin.
    pub fn new(sample_rate: u32, options: VadOptions) -> Result<Self> {
        let rate = f64::from(sample_rate);
        if sample_rate == 0 {
            return Err(Error::argument("sample_rate is 0; must be at least 1"));
        }
        let VadOptions { measure_freq, search_time, .. } = options;
        let measure_duration = options.measure_duration.unwrap_or(2.0 / measure_freq);
        for (name, value) in [
            ("trigger_time", options.trigger_time),
            ("search_time", search_time),
            ("noise_up_time", options.noise_up_time),
            ("noise_down_time", options.noise_down_time),
            ("measure_freq", measure_freq),
            ("measure_duration", measure_duration),
            ("measure_smooth_time", options.measure_smooth_time),
            ("hp_lifter_freq", options.hp_lifter_freq),
            ("lp_lifter_freq", options.lp_lifter_freq),
        ] {
            if !(value > 0.0 && value.is_finite()) {
                return Err(Error::argument(format!("{name} is {value}; must be above 0")));
            }
        }
        for (name, value) in [
            ("allowed_gap", options.allowed_gap),
            ("pre_trigger_time", options.pre_trigger_time),
            ("boot_time", options.boot_time),
            ("noise_reduction_amount", options.noise_reduction_amount),
            ("hp_filter_freq", options.hp_filter_freq),
            ("lp_filter_freq", options.lp_filter_freq),
        ] {
            if !(value >= 0.0 && value.is_finite()) {
                return Err(Error::argument(format!("{name} is {value}; must be at least 0")));
            }
        }
        if !options.trigger_level.is_finite() {
            let text = format!("trigger_level is {}; must be finite", options.trigger_level);
            return Err(Error::argument(text));
        }
        // Rounded as C does it.
        let (length, period) = ((rate * measure_duration + 0.5).floor(), (rate / measure_freq + 0.5).floor());
        let measures = (search_time * measure_freq).ceil();
        for (what, count) in [
            ("measure_duration makes measures of", length),
            ("measure_freq makes measures apart by", period),
            ("search_time looks back at", measures),
        ] {
            if !(1.0..=MOST).contains(&count) {
                let unit = if what.starts_with("search") { "measures" } else { "samples" };
                return Err(Error::argument(format!("{what} {count} {unit}; must be 1 to {MOST}")));
            }
        }
        let before = (options.pre_trigger_time * rate + 0.5).floor();
        let size = (length as usize).next_power_of_two().max(16);
        let bin = |frequency: f64| (frequency / rate * size as f64 + 0.5).floor();
        let bins = bin(options.hp_filter_freq).max(1.0)..bin(options.lp_filter_freq).min((size / 2) as f64);
        if bins.is_empty() {
            return Err(Error::argument(format!(
                "no bin of {size} samples at {sample_rate} Hz lies between hp_filter_freq={} and lp_filter_freq={} Hz",
                options.hp_filter_freq, options.lp_filter_freq
            )));
        }
        let bins = bins.start as usize..bins.end as usize;
        let first = (rate * 0.5 / options.lp_lifter_freq).ceil();
        let last = (rate * 0.5 / options.hp_lifter_freq).floor().min((size / 4) as f64);
        if last <= first {
            return Err(Error::argument(format!(
                "no pitch of {size} samples at {sample_rate} Hz lies between hp_lifter_freq={} and lp_lifter_freq={} Hz",
                options.hp_lifter_freq, options.lp_lifter_freq
            )));
        }
        let hann = |length: usize| {
            let scale = (2.0 / (length as f64).sqrt()) as f32;
            Window::Hann.values(length, true).into_iter().map(|value| value * scale).collect::<Vec<f32>>()
        };
        let mut planner = RealFftPlanner::new();
        Ok(Self {
            options,
            length: length as usize,
            period: period as usize,
            measures: measures as usize,
            gap: (options.allowed_gap * measure_freq + 0.5) as usize,
            before: before as usize,
            window: hann(length as usize),
            bins_window: hann(bins.len()),
            bins,
            cepstrum: first as usize..last as usize,
            boot: (options.boot_time * measure_freq - 0.5) as u64,
            of_samples: planner.plan_fft_forward(size),
            of_bins: planner.plan_fft_forward(size / 2),
        })
    }

    /// Values that [`Vad::kept`] works in for a sound of so many channels.
    pub fn scratch(&self, channels: usize) -> usize {
        let size = self.of_samples.len();
        5 * size + channels.saturating_mul(2 * size + self.measures)
    }

    /// Samples of each channel, which are equally long, that are kept: those from where one of them has activity on; of a sound without
    /// any, the first `pre_trigger_time` seconds.
    ///
    /// # Errors
    ///
    /// If a transform fails.
    pub fn kept(&self, channels: &[&[f32]]) -> Result<std::ops::Range<usize>> {
        let len = channels.iter().map(|samples| samples.len()).min().unwrap_or(0);
        let fresh = || Channel {
            spectrum: vec![0.0; self.bins.len()],
            noise: vec![0.0; self.bins.len()],
            measures: std::iter::repeat_n(0.0, self.measures).collect(),
            mean: 0.0,
        };
        let mut known: Vec<Channel> = channels.iter().map(|_| fresh()).collect();
        let mut work = Work {
            samples: self.of_samples.make_input_vec(),
            spectrum: self.of_samples.make_output_vec(),
            bins: self.of_bins.make_input_vec(),
            cepstrum: self.of_bins.make_output_vec(),
        };
        let decay = (-1.0 / (self.options.trigger_time * self.options.measure_freq)).exp();
        let (mut is_triggered, mut back) = (false, 0);
        for (number, end) in (self.length..len).step_by(self.period).enumerate() {
            // While the first estimate lasts, how many measures it has.
            let boot = Some(number as u64).filter(|number| *number <= self.boot);
            for (samples, channel) in channels.iter().zip(&mut known) {
                let measure = self.measure(&samples[end - self.length..end], boot, channel, &mut work)?;
                channel.measures.pop_back();
                channel.measures.push_front(measure as f32);
                channel.mean = channel.mean * decay as f32 + (measure * (1.0 - decay)) as f32;
                is_triggered |= channel.mean >= self.options.trigger_level as f32;
                if is_triggered {
                    back = self.back(channel).max(back).min(self.measures);
                }
            }
            if is_triggered {
                let skipped = (self.measures - back) * self.period;
                let looked_at = self.before + self.measures * self.period + self.length;
                return Ok((end + skipped).saturating_sub(looked_at)..len);
            }
        }
        Ok(if len >= self.before { 0..self.before } else { 0..len })
    }

    /// Measures that belong to the burst that the newest one is in, and to those close before it.
    fn back(&self, channel: &Channel) -> usize {
        let mut burst = self.measures;
        let mut silence = self.measures;
        for (age, measure) in channel.measures.iter().enumerate() {
            if *measure >= self.options.trigger_level as f32 && age <= burst + self.gap {
                burst = age;
                silence = age;
            } else if *measure == 0.0 && burst >= silence {
                silence = age;
            }
        }
        silence.min(self.measures - 1)
    }

    /// How much voice there is in these samples: 0 for none.
    fn measure(
        &self,
        samples: &[f32],
        boot: Option<u64>,
        channel: &mut Channel,
        work: &mut Work,
    ) -> Result<f64> {
        let failed = |_| Error::argument("a transform of a voice activity detector failed");
        work.samples.fill(0.0);
        for ((place, sample), weight) in work.samples.iter_mut().zip(samples).zip(&self.window) {
            *place = sample * weight;
        }
        self.of_samples.process(&mut work.samples, &mut work.spectrum).map_err(failed)?;
        let VadOptions { measure_freq, noise_reduction_amount, .. } = self.options;
        let decay = |time: f64| (-1.0 / (time * measure_freq)).exp();
        let smooth =
            boot.map_or(decay(self.options.measure_smooth_time), |count| count as f64 / (1.0 + count as f64));
        let (up, down) =
            (decay(self.options.noise_up_time) as f32, decay(self.options.noise_down_time) as f32);
        work.bins.fill(0.0);
        for (i, bin) in self.bins.clone().enumerate() {
            let magnitude = work.spectrum[bin].re.hypot(work.spectrum[bin].im);
            let (spectrum, noise) = (&mut channel.spectrum[i], &mut channel.noise[i]);
            *spectrum = *spectrum * smooth as f32 + magnitude * (1.0 - smooth) as f32;
            let power = *spectrum * *spectrum;
            let keep = match boot {
                Some(_) => 0.0,
                None if power > *noise => up,
                None => down,
            };
            *noise = *noise * keep + power * (1.0 - keep);
            let voice = (power - noise_reduction_amount as f32 * *noise).max(0.0).sqrt();
            work.bins[bin] = voice * self.bins_window[i];
        }
        self.of_bins.process(&mut work.bins, &mut work.cepstrum).map_err(failed)?;
        let sum: f32 = work.cepstrum[self.cepstrum.clone()].iter().map(Complex32::norm_sqr).sum();
        if sum > 0.0 {
            // The level of SoX's scale of samples.
            Ok((21.0 + (f64::from(sum) / self.cepstrum.len() as f64).ln()).max(0.0))
        } else {
            Ok(0.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::f64::consts::PI;

    use super::*;

    /// Quiet noise, and from a sample on a voice: 16 harmonics of 220 Hz.
    fn voice_from(begin: usize, len: usize, rate: f64) -> Vec<f32> {
        (0..len)
            .map(|i| {
                let noise = ((i as u32).wrapping_mul(2_654_435_761) >> 8) as f64 / 8_388_608.0 - 1.0;
                let time = i as f64 / rate;
                let voice: f64 = (1..=16).map(|h| (2.0 * PI * 220.0 * f64::from(h) * time).sin()).sum();
                (0.001 * noise + if i >= begin { 0.03 * voice } else { 0.0 }) as f32
            })
            .collect()
    }

    #[test]
    fn a_sound_begins_near_its_voice() {
        let vad = Vad::new(16_000, VadOptions::default()).unwrap();
        let noise = voice_from(usize::MAX, 48_000, 16_000.0);
        for begin in [16_000, 24_000, 30_000] {
            let sound = voice_from(begin, 48_000, 16_000.0);
            let kept = vad.kept(&[&sound]).unwrap();
            assert_eq!(kept.end, 48_000);
            assert!((begin - 3_200..begin + 800).contains(&kept.start), "{begin}: {kept:?}");
            // The channel that is first counts, whichever it is.
            assert_eq!(vad.kept(&[&noise, &sound]).unwrap(), kept);
            let early = VadOptions { pre_trigger_time: 0.1, ..VadOptions::default() };
            let early = Vad::new(16_000, early).unwrap().kept(&[&sound]).unwrap();
            assert_eq!(early.start, kept.start - 1_600);
        }
    }

    #[test]
    fn without_a_voice_nothing_is_kept_but_what_is_before_it() {
        let noise = voice_from(usize::MAX, 48_000, 16_000.0);
        assert_eq!(Vad::new(16_000, VadOptions::default()).unwrap().kept(&[&noise]).unwrap(), 0..0);
        let vad = Vad::new(16_000, VadOptions { pre_trigger_time: 0.5, ..VadOptions::default() }).unwrap();
        assert_eq!(vad.kept(&[&noise]).unwrap(), 0..8_000);
        assert_eq!(vad.kept(&[&noise[..100]]).unwrap(), 0..100);
        assert_eq!(vad.kept(&[&[]]).unwrap(), 0..0);
    }

    #[test]
    fn parameters_without_sense_are_refused() {
        let message = |rate, change: fn(&mut VadOptions)| {
            let mut options = VadOptions::default();
            change(&mut options);
            Vad::new(rate, options).unwrap_err().message().to_owned()
        };
        assert!(message(0, |_| {}).starts_with("sample_rate is 0"));
        assert!(message(8_000, |o| o.measure_freq = 0.0).starts_with("measure_freq is 0;"));
        assert!(message(8_000, |o| o.allowed_gap = f64::NAN).starts_with("allowed_gap is NaN;"));
        assert!(message(8_000, |o| o.search_time = 1e9).contains("looks back at 20000000000 measures"));
        assert!(message(8_000, |o| o.measure_duration = Some(1e-9)).contains("measures of 0 samples"));
        assert!(message(8_000, |o| o.hp_filter_freq = 7_000.0).contains("hp_filter_freq=7000"));
        assert!(message(8_000, |o| o.hp_lifter_freq = 3_000.0).contains("hp_lifter_freq=3000"));
        assert!(message(8_000, |o| o.trigger_level = f64::INFINITY).starts_with("trigger_level is inf"));
    }
}
