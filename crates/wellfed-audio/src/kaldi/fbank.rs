//! Filter bank energies. Several frames go through all steps at a time, one in each lane.

use super::{
    KaldiOptions,
    warp::{Vtln, Warp},
};
use crate::{
    Error, FilterBank, Result,
    fft::{Transform, Work},
    lanes::{self, Kernel, Lanes},
    logarithm,
};

/// Frames that are longer are refused: a second at 1 MHz.
const MOST: f64 = 1e6;

/// Energies below are taken as this before a logarithm: float32's step at 1.
pub(super) const EPSILON: f32 = f32::EPSILON;

/// What changes the samples of a frame, by its number.
pub(super) type Dither<'a> = &'a mut dyn FnMut(usize, &mut [f32]);

/// Filter bank energies of one channel, to be made once and used for all signals.
#[derive(Clone)]
pub struct KaldiFbank {
    pub(super) options: KaldiOptions,
    shift: usize,
    window: Vec<f32>,
    /// Samples of a transform.
    padded: usize,
    pub(super) bank: FilterBank,
    transform: Transform,
}

impl std::fmt::Debug for KaldiFbank {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KaldiFbank").field("options", &self.options).finish_non_exhaustive()
    }
}

/// Kaldi's mels of Hz: the logarithm to float32's nearest.
pub(super) fn mels(hz: f32) -> f32 {
    1127.0 * f64::from(1.0 + hz / 700.0).ln() as f32
}

impl KaldiFbank {
    /// From its parameters.
    ///
    /// # Errors
    ///
    /// For frames of less than two samples, of more than a million or of an odd number that is not filled up, and for filters that do not
    /// lie below the Nyquist frequency.
    pub fn new(options: KaldiOptions) -> Result<Self> {
        Self::warped(options, Vtln::default())
    }

    /// The same with filters that are moved for a speaker's vocal tract length.
    ///
    /// # Errors
    ///
    /// As [`KaldiFbank::new`], and for a warp that does not lie within the filters' range.
    pub fn warped(options: KaldiOptions, vtln: Vtln) -> Result<Self> {
        let rate = options.sample_frequency;
        let samples = |name: &str, milliseconds: f64, least: f64| {
            let samples = (rate * milliseconds * 0.001).trunc();
            if (least..=MOST).contains(&samples) {
                return Ok(samples as usize);
            }
            Err(Error::argument(format!(
                "fbank: {name}={milliseconds} ms at {rate} Hz are {samples} samples; they are at least {least}"
            )))
        };
        let size = samples("frame_length", options.frame_length, 2.0)?;
        let shift = samples("frame_shift", options.frame_shift, 1.0)?;
        let padded = if options.round_to_power_of_two { size.next_power_of_two() } else { size };
        if !padded.is_multiple_of(2) {
            let text = format!(
                "fbank: frames of {size} samples, and it takes an even number or round_to_power_of_two"
            );
            return Err(Error::argument(text));
        }
        let bank = Self::filters(&options, vtln, padded)?;
        let window = options.window_type.values(size, false);
        Ok(Self { options, shift, window, padded, bank, transform: Transform::new(padded) })
    }

    fn filters(options: &KaldiOptions, vtln: Vtln, padded: usize) -> Result<FilterBank> {
        let (rate, low, filters) = (options.sample_frequency, options.low_freq, options.num_mel_bins);
        let nyquist = 0.5 * rate;
        let high = if options.high_freq <= 0.0 { options.high_freq + nyquist } else { options.high_freq };
        if !(low >= 0.0 && low < high && high <= nyquist) {
            return Err(Error::argument(format!(
                "fbank: filters from {low} to {high} Hz; they lie between 0 and {nyquist} Hz"
            )));
        }
        if filters < 4 || filters.saturating_mul(padded) > 1 << 26 {
            return Err(Error::argument(format!(
                "fbank: num_mel_bins is at least 4, and {filters} was given"
            )));
        }
        let warp = Warp::new(vtln, (low, high), nyquist)?;
        // As torchaudio: the range in double precision, each corner and bin in float32.
        let of_hz = |hz: f64| 1127.0 * (1.0 + hz / 700.0).ln();
        let (begin, step) = (of_hz(low), (of_hz(high) - of_hz(low)) / (filters + 1) as f64);
        let corner = |i: usize| {
            let corner = begin as f32 + i as f32 * step as f32;
            warp.map_or(corner, |warp| warp.mels(corner))
        };
        let width = (rate / padded as f64) as f32;
        let bins: Vec<f32> = (0..padded / 2).map(|bin| mels(width * bin as f32)).collect();
        let corners: Vec<f32> = (0..filters + 2).map(corner).collect();
        Ok(FilterBank::of(filters, padded / 2, |filter, bin| {
            let (left, center, right) = (corners[filter], corners[filter + 1], corners[filter + 2]);
            let (up, down) = ((bins[bin] - left) / (center - left), (right - bins[bin]) / (right - center));
            up.min(down).max(0.0)
        }))
    }

    /// Values of a frame.
    pub fn columns(&self) -> usize {
        self.bank.filters() + usize::from(self.options.use_energy)
    }

    /// Frames of a signal.
    pub fn frames(&self, samples: usize) -> usize {
        let size = self.window.len();
        match self.options.snip_edges {
            true if samples < size => 0,
            true => 1 + (samples - size) / self.shift,
            false => (samples + self.shift / 2) / self.shift,
        }
    }

    /// Appends the values of each frame, one frame after the other; `samples` are in the range of 16-bit integers where Kaldi's own
    /// values are wanted.
    ///
    /// # Errors
    ///
    /// For a signal of fewer samples than a frame.
    pub fn apply(&self, samples: &[f32], out: &mut Vec<f32>) -> Result<()> {
        self.groups(samples, None, out, LogOrNot(&self.options))
    }

    /// The same with noise: `dither` is called with each frame's number and its samples, before anything else is done with them, and
    /// changes them. torchaudio adds normally distributed noise, times its parameter `dither`. Frames overlap, and each has noise of
    /// its own; noise that depends on the number of the frame only gives the same values each time.
    ///
    /// # Errors
    ///
    /// As [`KaldiFbank::apply`].
    pub fn apply_dithered(
        &self,
        samples: &[f32],
        dither: &mut dyn FnMut(usize, &mut [f32]),
        out: &mut Vec<f32>,
    ) -> Result<()> {
        self.groups(samples, Some(dither), out, LogOrNot(&self.options))
    }

    /// Appends what `finish` makes of each frame.
    pub(super) fn groups(
        &self,
        samples: &[f32],
        dither: Option<Dither<'_>>,
        out: &mut Vec<f32>,
        finish: impl Finish,
    ) -> Result<()> {
        let size = self.window.len();
        if samples.len() < size {
            return Err(Error::argument(format!("fbank of {} samples; a frame has {size}", samples.len())));
        }
        let (begin, columns) = (out.len(), finish.columns(self));
        out.resize(begin + self.frames(samples.len()) * columns, 0.0);
        lanes::run(Groups { fbank: self, samples, dither, out: &mut out[begin..], finish });
        self.subtract_mean(&mut out[begin..], columns);
        Ok(())
    }

    fn subtract_mean(&self, values: &mut [f32], columns: usize) {
        if !self.options.subtract_mean || values.is_empty() {
            return;
        }
        let rows = (values.len() / columns) as f64;
        let mut means = vec![0.0f64; columns];
        for row in values.chunks_exact(columns) {
            means.iter_mut().zip(row).for_each(|(sum, value)| *sum += f64::from(*value));
        }
        for row in values.chunks_exact_mut(columns) {
            row.iter_mut().zip(&means).for_each(|(value, sum)| *value -= (sum / rows) as f32);
        }
    }

    /// The samples of a frame; those beyond the signal's ends are its mirror image.
    fn cut(&self, samples: &[f32], number: usize, frame: &mut [f32]) {
        let size = frame.len();
        if self.options.snip_edges {
            frame.copy_from_slice(&samples[number * self.shift..][..size]);
            return;
        }
        let (len, before) = (samples.len() as isize, size as isize / 2 - self.shift as isize / 2);
        let start = (number * self.shift) as isize - before;
        if let Some(within) = usize::try_from(start).ok().and_then(|start| samples.get(start..start + size)) {
            frame.copy_from_slice(within);
            return;
        }
        for (i, place) in frame.iter_mut().enumerate() {
            let at = start + i as isize;
            let at = if at < 0 {
                -1 - at
            } else if at >= len {
                2 * len - 1 - at
            } else {
                at
            };
            *place = usize::try_from(at).ok().and_then(|at| samples.get(at)).copied().unwrap_or(0.0);
        }
    }
}

/// What is made of several frames' filters.
pub(super) trait Finish {
    /// Values of a frame.
    fn columns(&self, fbank: &KaldiFbank) -> usize;

    /// Replaces what the filters let through by the frames' values. `energy` is the logarithm of the frames' energies.
    fn finish<L: Lanes>(&self, energy: L, values: &mut Vec<L>);
}

struct LogOrNot<'a>(&'a KaldiOptions);

impl Finish for LogOrNot<'_> {
    fn columns(&self, fbank: &KaldiFbank) -> usize {
        fbank.columns()
    }

    #[inline(always)]
    fn finish<L: Lanes>(&self, energy: L, values: &mut Vec<L>) {
        if self.0.use_log_fbank {
            values.iter_mut().for_each(|value| *value = log(*value));
        }
        match (self.0.use_energy, self.0.htk_compat) {
            (true, true) => values.push(energy),
            (true, false) => values.insert(0, energy),
            (false, _) => {}
        }
    }
}

/// The logarithm, cut off below.
#[inline(always)]
pub(super) fn log<L: Lanes>(energy: L) -> L {
    energy.max(L::splat(EPSILON)).map(logarithm::ln)
}

struct Groups<'a, 'd, F> {
    fbank: &'a KaldiFbank,
    samples: &'a [f32],
    dither: Option<Dither<'d>>,
    out: &'a mut [f32],
    finish: F,
}

impl<F: Finish> Kernel for Groups<'_, '_, F> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        let KaldiFbank { ref options, shift, ref window, padded, ref bank, ref transform } = *self.fbank;
        let (size, columns) = (window.len(), self.finish.columns(self.fbank));
        let frames = self.out.len() / columns;
        let floor = if options.energy_floor == 0.0 { f32::NEG_INFINITY } else { options.energy_floor.ln() };
        let mut cut = vec![0.0; L::N * size];
        let mut frame = vec![L::ZERO; size];
        let mut weighted = vec![L::ZERO; padded];
        let mut powers = vec![L::ZERO; padded / 2 + 1];
        let mut values = Vec::with_capacity(columns + 1);
        let mut rows = vec![0.0; L::N * columns];
        let mut work = Work::default();
        let is_cut = !options.snip_edges || self.dither.is_some();
        for first in (0..frames).step_by(L::N) {
            let count = L::N.min(frames - first);
            // Lanes beyond the last frame have that one again.
            if is_cut {
                for (lane, row) in cut.chunks_exact_mut(size).take(count).enumerate() {
                    self.fbank.cut(self.samples, first + lane, row);
                    if let Some(dither) = &mut self.dither {
                        dither(first + lane, row);
                    }
                }
                let row = |lane: usize| &cut[lane.min(count - 1) * size..][..size];
                lanes::from_rows((0..L::N).map(row), &mut frame);
            } else {
                let row = |lane: usize| &self.samples[(first + lane.min(count - 1)) * shift..][..size];
                lanes::from_rows((0..L::N).map(row), &mut frame);
            }
            if options.remove_dc_offset {
                let mean = lanes::sum(&frame, |sample| sample).map(|sum| sum / size as f32);
                frame.iter_mut().for_each(|sample| *sample = *sample - mean);
            }
            let raw =
                if options.use_energy && options.raw_energy { log_energy(&frame, floor) } else { L::ZERO };
            let share = options.preemphasis_coefficient;
            let mut before = frame[0];
            for ((place, sample), weight) in weighted.iter_mut().zip(&frame).zip(window) {
                *place = (*sample - before * share) * *weight;
                before = *sample;
            }
            let energy = if options.use_energy && !options.raw_energy {
                log_energy(&weighted[..size], floor)
            } else {
                raw
            };
            transform.energies(&mut work, &weighted[..], &mut powers);
            // The transform gives twice the spectrum.
            if options.use_power {
                powers.iter_mut().for_each(|power| *power = *power * 0.25);
            } else {
                powers.iter_mut().for_each(|power| *power = power.sqrt() * 0.5);
            }
            values.clear();
            values.resize(bank.filters(), L::ZERO);
            bank.apply_lanes(&powers, &mut values);
            self.finish.finish(energy, &mut values);
            lanes::to_rows(&values, &mut rows);
            self.out[first * columns..][..count * columns].copy_from_slice(&rows[..count * columns]);
        }
    }
}

/// The logarithm of a frame's energy, `floor` at least. No closure: one that is called twice is compiled for the least of processors.
#[inline(always)]
fn log_energy<L: Lanes>(frame: &[L], floor: f32) -> L {
    log(lanes::sum(frame, |sample| sample * sample)).max(L::splat(floor))
}
