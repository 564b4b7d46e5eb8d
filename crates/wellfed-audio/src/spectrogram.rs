//! Short-time Fourier transform: `torchaudio.transforms.Spectrogram`.

use crate::{
    Error, Result, Window,
    fft::{Signals, Transform},
    lanes::{self, Kernel, Lanes, Places, Work},
    tile::Tile,
};

/// How the signal goes on beyond its ends, where frames are centred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PadMode {
    /// Mirrored, without the last sample again.
    #[default]
    Reflect,
    /// Zeros.
    Constant,
    /// The last sample again and again.
    Replicate,
    /// Begins anew.
    Circular,
}

/// What a spectrum is divided by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Normalized {
    /// Nothing.
    #[default]
    No,
    /// The root of the window's sum of squares.
    Window,
    /// The root of the transform's length, `n_fft`, whatever the window's length is: as `torch.stft` does it.
    FrameLength,
}

/// Parameters, as torchaudio's.
#[derive(Clone, Debug, PartialEq)]
pub struct SpectrogramOptions {
    /// Samples of a transform. Default: 400.
    pub n_fft: usize,
    /// Samples of a window, at most `n_fft`; it lies in the middle. Default: `n_fft`.
    pub win_length: Option<usize>,
    /// Samples from one frame to the next. Default: half of a window.
    pub hop_length: Option<usize>,
    /// Zeros on either side of the signal. Default: 0.
    pub pad: usize,
    /// Default: [`Window::Hann`], periodic.
    pub window: Window,
    /// Exponent of the magnitude: 1 for magnitudes, 2 for energies. Default: 2.
    pub power: f32,
    /// Default: [`Normalized::No`].
    pub normalized: Normalized,
    /// Whether frame `t` has sample `t * hop_length` in its middle. Default: true.
    pub center: bool,
    /// Default: [`PadMode::Reflect`].
    pub pad_mode: PadMode,
    /// Whether there are `n_fft / 2 + 1` bins, and not `n_fft`. Default: true.
    pub onesided: bool,
}

impl Default for SpectrogramOptions {
    fn default() -> Self {
        Self {
            n_fft: 400,
            win_length: None,
            hop_length: None,
            pad: 0,
            window: Window::Hann,
            power: 2.0,
            normalized: Normalized::No,
            center: true,
            pad_mode: PadMode::Reflect,
            onesided: true,
        }
    }
}

/// Samples that a transform may have.
const MOST: usize = 1 << 20;

/// A spectrogram of one channel, to be made once and used for all signals.
#[derive(Clone)]
pub struct Spectrogram {
    options: SpectrogramOptions,
    hop: usize,
    /// Half of the window, with zeros on either side, divided by what is normalized by.
    window: Vec<f32>,
    transform: Transform,
}

impl std::fmt::Debug for Spectrogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spectrogram").field("options", &self.options).finish_non_exhaustive()
    }
}

/// Places to work in, which are used again.
#[derive(Debug, Default)]
pub struct Scratch {
    /// Samples of frames that reach beyond an end of the signal.
    edge: Vec<f32>,
    work: Work,
    rows: Vec<f32>,
}

/// Takes the powers of frames, as many at a time as there are lanes.
pub(crate) trait Sink {
    /// `powers` are those of each bin: of frame `first` in the first lane, and so on; only `count` lanes are meant. `values` is a place to
    /// work in.
    fn take<L: Lanes>(&mut self, first: usize, count: usize, powers: &[L], values: &mut Vec<L>);
}

/// Gives frame by frame on.
struct Frames<'a, E> {
    rows: &'a mut Vec<f32>,
    each: E,
}

impl<E: FnMut(usize, &[f32])> Sink for Frames<'_, E> {
    #[inline(always)]
    fn take<L: Lanes>(&mut self, first: usize, count: usize, powers: &[L], _values: &mut Vec<L>) {
        self.rows.resize(L::N * powers.len(), 0.0);
        lanes::to_rows(powers, self.rows);
        for (lane, row) in self.rows.chunks_exact(powers.len()).take(count).enumerate() {
            (self.each)(first + lane, row);
        }
    }
}

/// Writes bin by bin, of so many frames.
pub(crate) struct Bins<'a> {
    pub(crate) out: &'a mut [f32],
    pub(crate) frames: usize,
}

impl Bins<'_> {
    /// Writes the values of `count` frames.
    #[inline(always)]
    pub(crate) fn put<L: Lanes>(&mut self, first: usize, count: usize, values: &[L]) {
        let count = count.min(self.frames.saturating_sub(first));
        if count == 0 {
            return;
        }
        let rows = values.iter().zip(self.out.chunks_exact_mut(self.frames));
        if count == L::N {
            rows.for_each(|(values, row)| values.write(&mut row[first..]));
        } else {
            rows.for_each(|(values, row)| row[first..][..count].copy_from_slice(&values.values()[..count]));
        }
    }
}

impl Sink for Bins<'_> {
    #[inline(always)]
    fn take<L: Lanes>(&mut self, first: usize, count: usize, powers: &[L], _values: &mut Vec<L>) {
        self.put(first, count, powers);
    }
}

/// Frames times their window.
struct Weighted<'a> {
    tile: &'a Tile,
    window: &'a [f32],
}

impl<L: Lanes> Signals<L> for Weighted<'_> {
    #[inline(always)]
    fn at(&self, i: usize) -> L {
        self.tile.at::<L>(i) * self.window[i]
    }
}

struct Groups<'a, S> {
    spectrogram: &'a Spectrogram,
    samples: &'a [f32],
    edge: &'a mut Vec<f32>,
    frames: usize,
    work: &'a mut Work,
    sink: S,
}

impl<S: Sink> Kernel for Groups<'_, S> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        let Spectrogram { ref window, ref transform, hop, .. } = *self.spectrogram;
        let SpectrogramOptions { n_fft, power, onesided, .. } = self.spectrogram.options;
        let Places { tile, transform: work, powers, values } = L::places(self.work);
        powers.resize(self.spectrogram.bins(), L::ZERO);
        let before = self.spectrogram.before();
        // With a hop beyond the signal's end there is one frame.
        let hop = hop.min(self.samples.len().saturating_add(2 * before).max(1));
        let span = tile.shape::<L>(n_fft, hop);
        for first in (0..self.frames).step_by(L::N) {
            let begin = first * hop;
            let within = begin.checked_sub(before).and_then(|begin| self.samples.get(begin..)?.get(..span));
            if let Some(samples) = within {
                tile.fill(samples);
            } else {
                self.spectrogram.cut(self.samples, begin, span, self.edge);
                tile.fill(self.edge);
            }
            transform.energies(work, &Weighted { tile, window }, powers);
            match power {
                2.0 => {}
                1.0 => powers.iter_mut().for_each(|power| *power = power.sqrt()),
                exponent => {
                    let raised = |energy: f32| energy.sqrt().powf(exponent);
                    powers.iter_mut().for_each(|power| *power = power.map(raised));
                }
            }
            if !onesided {
                // The other half of a real signal's spectrum mirrors the first.
                for bin in n_fft / 2 + 1..n_fft {
                    powers[bin] = powers[n_fft - bin];
                }
            }
            self.sink.take(first, L::N.min(self.frames - first), powers, values);
        }
    }
}

impl Spectrogram {
    /// From its parameters.
    ///
    /// # Errors
    ///
    /// For a transform of 0 or more than 2^20 samples, a window that is longer, a hop of 0, and more than 2^20 zeros on a side.
    pub fn new(options: SpectrogramOptions) -> Result<Self> {
        let n_fft = options.n_fft;
        if n_fft == 0 || n_fft > MOST {
            return Err(Error::argument(format!(
                "a spectrogram's n_fft is from 1 to {MOST}, and {n_fft} was given"
            )));
        }
        if options.pad > MOST {
            let text = format!("a spectrogram's pad is at most {MOST}, and {} was given", options.pad);
            return Err(Error::argument(text));
        }
        let win_length = options.win_length.unwrap_or(n_fft);
        if win_length == 0 || win_length > n_fft {
            return Err(Error::argument(format!(
                "a spectrogram's win_length is from 1 to n_fft ({n_fft}), and {win_length} was given"
            )));
        }
        let hop = options.hop_length.unwrap_or(win_length / 2);
        if hop == 0 {
            return Err(Error::argument("a spectrogram's hop_length is above 0"));
        }
        let values = options.window.values(win_length, true);
        let scale = match options.normalized {
            Normalized::No => 1.0,
            Normalized::Window => {
                1.0 / values.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt()
            }
            Normalized::FrameLength => 1.0 / (n_fft as f64).sqrt(),
        };
        let mut window = vec![0.0; n_fft];
        let begin = (n_fft - win_length) / 2;
        for (place, value) in window[begin..].iter_mut().zip(values) {
            // The transform gives twice the spectrum.
            *place = (f64::from(value) * scale) as f32 * 0.5;
        }
        Ok(Self { options, hop, window, transform: Transform::new(n_fft) })
    }

    /// Bins of a frame.
    pub fn bins(&self) -> usize {
        if self.options.onesided { self.options.n_fft / 2 + 1 } else { self.options.n_fft }
    }

    /// Frames of a signal; 0 for one that is too short.
    pub fn frames(&self, samples: usize) -> usize {
        let n_fft = self.options.n_fft;
        let centred = if self.options.center { n_fft / 2 * 2 } else { 0 };
        let whole = samples + 2 * self.options.pad + centred;
        if whole < n_fft { 0 } else { (whole - n_fft) / self.hop + 1 }
    }

    /// Calls `each` with the powers of each frame: its number, and [`Spectrogram::bins`] values.
    ///
    /// # Errors
    ///
    /// For a signal that is too short: of no frame, or where it would have to be mirrored more than once.
    pub fn each(
        &self,
        samples: &[f32],
        scratch: &mut Scratch,
        each: impl FnMut(usize, &[f32]),
    ) -> Result<()> {
        let mut rows = std::mem::take(&mut scratch.rows);
        let done = self.groups(samples, scratch, Frames { rows: &mut rows, each });
        scratch.rows = rows;
        done
    }

    /// Fills `out` with the powers: bin by bin, [`Spectrogram::frames`] each, as torchaudio's tensors have them.
    ///
    /// # Errors
    ///
    /// As [`Spectrogram::each`].
    pub fn apply(&self, samples: &[f32], scratch: &mut Scratch, out: &mut Vec<f32>) -> Result<()> {
        out.resize(self.bins() * self.frames(samples.len()), 0.0);
        self.fill(samples, scratch, out)
    }

    /// The same into a slice of that many values, all of which are written.
    ///
    /// # Errors
    ///
    /// As [`Spectrogram::each`].
    pub fn fill(&self, samples: &[f32], scratch: &mut Scratch, out: &mut [f32]) -> Result<()> {
        self.groups(samples, scratch, Bins { out, frames: self.frames(samples.len()) })
    }

    /// Gives the powers of each group of frames to `sink`.
    pub(crate) fn groups(&self, samples: &[f32], scratch: &mut Scratch, sink: impl Sink) -> Result<()> {
        self.check(samples.len())?;
        let Scratch { edge, work, .. } = scratch;
        let frames = self.frames(samples.len());
        lanes::run(Groups { spectrogram: self, samples, edge, frames, work, sink });
        Ok(())
    }

    /// Samples of the first frame before the signal's first.
    fn before(&self) -> usize {
        self.options.pad + if self.options.center { self.options.n_fft / 2 } else { 0 }
    }

    fn check(&self, samples: usize) -> Result<()> {
        let SpectrogramOptions { n_fft, pad, center, pad_mode, .. } = self.options;
        let beyond = if center { n_fft / 2 } else { 0 };
        let len = samples + 2 * pad;
        let too_short = match pad_mode {
            _ if !center => len < n_fft,
            PadMode::Reflect => len <= beyond,
            PadMode::Circular => len < beyond,
            PadMode::Constant | PadMode::Replicate => len == 0,
        };
        if too_short {
            return Err(Error::argument(format!(
                "a spectrogram of {len} samples: too few for n_fft={n_fft} with center={center} and pad_mode={pad_mode:?}"
            )));
        }
        Ok(())
    }

    /// Samples `begin..begin + span` of the signal with what lies beyond its ends, or those that there are.
    fn cut(&self, samples: &[f32], begin: usize, span: usize, edge: &mut Vec<f32>) {
        let SpectrogramOptions { pad, pad_mode, .. } = self.options;
        let before = self.before();
        let (beyond, len) = ((before - pad) as isize, (samples.len() + 2 * pad) as isize);
        let end = begin.saturating_add(span).min(samples.len() + 2 * before);
        let outside = |place: usize| {
            let i = place as isize - beyond;
            let i = match pad_mode {
                _ if (0..len).contains(&i) => i,
                PadMode::Reflect if i < 0 => -i,
                PadMode::Reflect => 2 * (len - 1) - i,
                PadMode::Replicate => i.clamp(0, len - 1),
                PadMode::Circular => i.rem_euclid(len),
                PadMode::Constant => return 0.0,
            };
            usize::try_from(i - pad as isize).ok().and_then(|i| samples.get(i)).copied().unwrap_or(0.0)
        };
        edge.clear();
        edge.extend((begin..end.min(before)).map(outside));
        let (from, to) = (begin.max(before), end.min(before + samples.len()));
        edge.extend_from_slice(samples.get(from - before..to.saturating_sub(before)).unwrap_or_default());
        edge.extend((begin.max(before + samples.len())..end).map(outside));
        // Whole rounds are turned around quickly; of long ones there is one at most.
        if span <= SHORT {
            edge.resize(span, 0.0);
        }
    }
}

/// Samples up to which what lies beyond a signal's end is filled up.
const SHORT: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use std::f64::consts::PI;

    use proptest::prelude::*;

    use super::*;

    /// The definition, bin by bin, in double precision.
    fn oracle(spectrogram: &Spectrogram, samples: &[f32]) -> Vec<Vec<f64>> {
        let options = &spectrogram.options;
        let (n_fft, len) = (options.n_fft, samples.len() as i64);
        let beyond = if options.center { n_fft as i64 / 2 } else { 0 };
        let at = |i: i64| {
            let i = i - beyond;
            let i = match options.pad_mode {
                _ if (0..len).contains(&i) => i,
                PadMode::Reflect if i < 0 => -i,
                PadMode::Reflect => 2 * (len - 1) - i,
                PadMode::Replicate => i.clamp(0, len - 1),
                PadMode::Circular => i.rem_euclid(len),
                PadMode::Constant => return 0.0,
            };
            f64::from(samples[i as usize])
        };
        let frame = |frame: usize| {
            let bin = |bin: usize| {
                let (mut re, mut im) = (0.0, 0.0);
                for n in 0..n_fft {
                    let value =
                        at((frame * spectrogram.hop + n) as i64) * 2.0 * f64::from(spectrogram.window[n]);
                    let turn = -2.0 * PI * (bin * n % n_fft) as f64 / n_fft as f64;
                    (re, im) = (re + value * turn.cos(), im + value * turn.sin());
                }
                (re * re + im * im).sqrt().powf(f64::from(options.power))
            };
            (0..spectrogram.bins()).map(bin).collect()
        };
        (0..spectrogram.frames(samples.len())).map(frame).collect()
    }

    fn pad_modes() -> impl Strategy<Value = PadMode> {
        prop::sample::select(vec![PadMode::Reflect, PadMode::Constant, PadMode::Replicate, PadMode::Circular])
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn spectra_are_those_of_the_definition(
            samples in prop::collection::vec(-1.0f32..1.0, 40..120),
            n_fft in 2usize..40,
            shorter in 0usize..20,
            hop in 1usize..20,
            (power, normalized) in (prop::sample::select(vec![1.0f32, 2.0, 0.5]), 0usize..3),
            (center, onesided) in (any::<bool>(), any::<bool>()),
            pad_mode in pad_modes(),
        ) {
            let options = SpectrogramOptions {
                n_fft,
                win_length: Some(n_fft.saturating_sub(shorter).max(1)),
                hop_length: Some(hop),
                power,
                normalized: [Normalized::No, Normalized::Window, Normalized::FrameLength][normalized],
                center,
                onesided,
                pad_mode,
                ..SpectrogramOptions::default()
            };
            let spectrogram = Spectrogram::new(options).unwrap();
            let wanted = oracle(&spectrogram, &samples);
            let most = wanted.iter().flatten().copied().fold(1e-9, f64::max);
            let mut found = 0;
            spectrogram
                .each(&samples, &mut Scratch::default(), |frame, powers| {
                    for (bin, power) in powers.iter().enumerate() {
                        let off = (f64::from(*power) - wanted[frame][bin]).abs();
                        // The root of a rounding error is larger than that.
                        let allowed = if spectrogram.options.power < 1.0 { 1e-3 } else { 1e-5 };
                        assert!(off <= allowed * most, "frame {frame} bin {bin}: {power} for {}", wanted[frame][bin]);
                    }
                    found += 1;
                })
                .unwrap();
            prop_assert_eq!(found, wanted.len());
        }
    }

    #[test]
    fn signals_that_are_too_short_are_told() {
        let spectrogram = Spectrogram::new(SpectrogramOptions::default()).unwrap();
        let error = spectrogram.each(&[0.0; 200], &mut Scratch::default(), |_, _| {}).unwrap_err();
        assert!(error.message().contains("200 samples: too few for n_fft=400"), "{error}");
        assert!(spectrogram.each(&[0.0; 201], &mut Scratch::default(), |_, _| {}).is_ok());
    }
}
