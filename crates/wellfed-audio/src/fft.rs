//! Fourier transforms of several real signals of one length at a time, one in each lane.
//!
//! After T. Stockham's self-sorting form (C. Van Loan, *Computational Frameworks for the Fast Fourier Transform*, 1992, 1.7) with radices 8, 4, 2, 3,
//! 5 and other primes: each stage reads one buffer and writes the other, in the order in which the next one reads. Signals of an even
//! length `n` are taken as `n / 2` complex numbers, whose transform is taken apart at the end (the same, 4.2.3).

use std::sync::Arc;

use realfft::{RealFftPlanner, RealToComplex, num_complex::Complex32};

use crate::lanes::{self, Lanes, Pair, Part, Turn};

/// Signals, one in each lane. (Not a function: the compiler leaves those that are called this often in a place of their own, where it
/// may not use the processor's larger registers.)
pub(crate) trait Signals<L> {
    /// Sample `i` of each.
    fn at(&self, i: usize) -> L;
}

impl<L: Lanes> Signals<L> for [L] {
    #[inline(always)]
    fn at(&self, i: usize) -> L {
        self[i]
    }
}

/// The complex numbers that signals are taken as.
struct Points<'a, S: ?Sized> {
    signals: &'a S,
    is_even: bool,
}

impl<S: ?Sized> Points<'_, S> {
    #[inline(always)]
    fn at<L: Lanes>(&self, i: usize) -> Pair<L>
    where
        S: Signals<L>,
    {
        if self.is_even {
            Pair::new(self.signals.at(2 * i), self.signals.at(2 * i + 1))
        } else {
            Pair::new(self.signals.at(i), L::ZERO)
        }
    }
}

/// The greatest prime for which there is a butterfly: work for a prime grows with its square.
const GREATEST_PRIME: usize = 31;

/// A transform of any length.
#[derive(Clone)]
pub(crate) enum Transform {
    /// Of a length without great primes.
    Lanes(Fft),
    /// Of another, one signal after the other.
    Single(Arc<dyn RealToComplex<f32>>),
}

/// Places to work in, which are used again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Work<L> {
    buffers: [Vec<Pair<L>>; 2],
    signals: Vec<f32>,
    spectra: Vec<Complex32>,
    rest: Vec<Complex32>,
}

impl Transform {
    pub(crate) fn new(length: usize) -> Self {
        match Fft::new(length) {
            Some(fft) => Self::Lanes(fft),
            None => Self::Single(RealFftPlanner::new().plan_fft_forward(length)),
        }
    }

    /// Transforms as many signals as there are lanes, and gives the energies of the bins from 0 to half of the length of the transform
    /// **times two**.
    pub(crate) fn energies<L: Lanes, S: Signals<L> + ?Sized>(
        &self,
        work: &mut Work<L>,
        signals: &S,
        energies: &mut [L],
    ) {
        lanes::run_part::<L>(Energies { transform: self, work, signals, energies });
    }

    /// Transforms as many signals as there are lanes, and gives `bins` the bins from 0 to half of the length, in no order, of the
    /// transform **times two**.
    #[inline(always)]
    fn run<L: Lanes>(
        &self,
        work: &mut Work<L>,
        signals: &(impl Signals<L> + ?Sized),
        bins: &mut (impl Bins<L> + ?Sized),
    ) {
        match self {
            Self::Lanes(fft) => fft.run(&mut work.buffers, signals, bins),
            Self::Single(plan) => {
                work.run_singly(&**plan, signals);
                let count = plan.len() / 2 + 1;
                for bin in 0..count {
                    let at = |lane: usize| work.spectra[lane * count + bin] * 2.0;
                    bins.set(bin, Pair::new(L::of(|lane| at(lane).re), L::of(|lane| at(lane).im)));
                }
            }
        }
    }
}

/// What takes the bins of a transform. It is no closure, since one that is called at several places is a function of its own, compiled for
/// the least of processors.
trait Bins<L> {
    /// `pair` is twice the transform's.
    fn set(&mut self, bin: usize, pair: Pair<L>);
}

/// The energies of bins.
impl<L: Lanes> Bins<L> for [L] {
    #[inline(always)]
    fn set(&mut self, bin: usize, pair: Pair<L>) {
        self[bin] = pair.energy();
    }
}

/// The work of [`Transform::energies`].
struct Energies<'a, L, S: ?Sized> {
    transform: &'a Transform,
    work: &'a mut Work<L>,
    signals: &'a S,
    energies: &'a mut [L],
}

impl<L: Lanes, S: Signals<L> + ?Sized> Part for Energies<'_, L, S> {
    #[inline(always)]
    fn run(self) {
        self.transform.run(self.work, self.signals, self.energies);
    }
}

impl<L: Lanes> Work<L> {
    fn run_singly(&mut self, plan: &dyn RealToComplex<f32>, signals: &(impl Signals<L> + ?Sized)) {
        let (length, bins) = (plan.len(), plan.len() / 2 + 1);
        self.signals.resize(L::N * length, 0.0);
        self.spectra.resize(L::N * bins, Complex32::default());
        self.rest.resize(plan.get_scratch_len(), Complex32::default());
        for i in 0..length {
            for (lane, sample) in signals.at(i).values().iter().enumerate() {
                self.signals[lane * length + i] = *sample;
            }
        }
        for (signal, spectrum) in
            self.signals.chunks_exact_mut(length).zip(self.spectra.chunks_exact_mut(bins))
        {
            // Only lengths can be wrong, and they are the plan's.
            if plan.process_with_scratch(signal, spectrum, &mut self.rest).is_err() {
                spectrum.fill(Complex32::new(f32::NAN, f32::NAN));
            }
        }
    }
}

/// A transform of a length whose primes are all small.
#[derive(Clone, Debug)]
pub(crate) struct Fft {
    /// Samples of a signal.
    length: usize,
    stages: Vec<Stage>,
    /// Turns by which the two halves of an even length's transform are put together.
    halves: Vec<Turn>,
}

#[derive(Clone, Debug)]
struct Stage {
    radix: usize,
    /// Butterflies with turns of their own.
    count: usize,
    /// Neighbours with the same turns.
    stride: usize,
    /// Of each butterfly, those of its outputs but the first.
    turns: Vec<Turn>,
    /// Where the radix is none of those written out: those of the butterfly itself.
    own: Vec<Turn>,
}

impl Fft {
    /// `None` for lengths with greater primes.
    fn new(length: usize) -> Option<Self> {
        let is_even = length.is_multiple_of(2);
        let points = if is_even { length / 2 } else { length };
        let (mut rest, mut stride, mut stages) = (points, 1, Vec::new());
        while rest > 1 {
            let radix =
                [8, 4, 2].into_iter().chain(3..=GREATEST_PRIME).find(|radix| rest.is_multiple_of(*radix))?;
            let count = rest / radix;
            let turns = (0..count).flat_map(|p| (1..radix).map(move |j| Turn::back(p * j, rest))).collect();
            let own = if radix > 5 && radix != 8 {
                (0..radix).map(|k| Turn::back(k, radix)).collect()
            } else {
                Vec::new()
            };
            stages.push(Stage { radix, count, stride, turns, own });
            (rest, stride) = (count, stride * radix);
        }
        let halves =
            if is_even { (0..=points / 2).map(|k| Turn::back(k, length)).collect() } else { Vec::new() };
        Some(Self { length, stages, halves })
    }

    /// Complex numbers of each of the two buffers.
    fn points(&self) -> usize {
        if self.halves.is_empty() { self.length } else { self.length / 2 }
    }

    #[inline(always)]
    fn run<L: Lanes>(
        &self,
        buffers: &mut [Vec<Pair<L>>; 2],
        signals: &(impl Signals<L> + ?Sized),
        bins: &mut (impl Bins<L> + ?Sized),
    ) {
        let points = self.points();
        let [from, to] = buffers;
        from.resize(points, Pair::default());
        to.resize(points, Pair::default());
        let (mut from, mut to) = (&mut from[..points], &mut to[..points]);
        let is_even = !self.halves.is_empty();
        let given = Points { signals, is_even };
        // The first stage reads the signals themselves, without a copy of them.
        match self.stages.first() {
            Some(stage) if stage.radix == 8 => stage.first_8(&given, from),
            Some(stage) if stage.radix == 4 => stage.first_4(&given, from),
            Some(stage) if stage.radix == 5 => stage.first_5(&given, from),
            first => {
                for (i, pair) in from.iter_mut().enumerate() {
                    *pair = given.at(i);
                }
                if let Some(stage) = first {
                    stage.run(from, to);
                    (from, to) = (to, from);
                }
            }
        }
        for stage in self.stages.iter().skip(1) {
            stage.run(from, to);
            (from, to) = (to, from);
        }
        if !is_even {
            for (bin, pair) in from[..points / 2 + 1].iter().enumerate() {
                bins.set(bin, *pair * 2.0);
            }
            return;
        }
        // The first point is its own mirror image, and has bin 0 and the last one.
        let first = from[0];
        bins.set(0, Pair::new((first.re + first.im) * 2.0, L::ZERO));
        bins.set(points, Pair::new((first.re - first.im) * 2.0, L::ZERO));
        for (k, turn) in self.halves.iter().enumerate().skip(1) {
            let (one, other) = (from[k], from[points - k]);
            let mirrored = Pair::new(other.re, -other.im);
            let even = one + mirrored;
            let odd = (one - mirrored).quarter_back().turned(*turn);
            bins.set(k, even + odd);
            if 2 * k != points {
                let last = even - odd;
                bins.set(points - k, Pair::new(last.re, -last.im));
            }
        }
    }
}

/// A stage of butterflies, written out: of loops over the points of one, the compiler would keep the points in memory.
macro_rules! stage {
    ($name:ident, $radix:literal, $butterfly:ident, [$($number:literal $point:ident $out:ident),*]) => {
        #[inline(always)]
        fn $name<L: Lanes>(&self, from: &[Pair<L>], to: &mut [Pair<L>]) {
            let (stride, apart) = (self.stride, self.count * self.stride);
            let rounds = to.chunks_exact_mut($radix * stride).zip(self.turns.chunks_exact($radix - 1));
            for (p, (to, turns)) in rounds.enumerate() {
                let turns: &[Turn; $radix - 1] = turns.try_into().unwrap_or(&[Turn::NONE; $radix - 1]);
                let from = &from[p * stride..];
                let (out, to) = to.split_at_mut(stride);
                $(let ($out, to) = to.split_at_mut(stride);)*
                let _ = to;
                $(let $point = &from[$number * apart..][..stride];)*
                let from = &from[..stride];
                // Of the last stage there is one butterfly, whose turns are none.
                if self.count == 1 {
                    for q in 0..stride {
                        let (first, $($point),*) = $butterfly(from[q], $($point[q]),*);
                        out[q] = first;
                        $($out[q] = $point;)*
                    }
                } else {
                    for q in 0..stride {
                        let (first, $($point),*) = $butterfly(from[q], $($point[q]),*);
                        out[q] = first;
                        $($out[q] = $point.turned(turns[$number - 1]);)*
                    }
                }
            }
        }
    };
}

/// The first stage: from signals.
macro_rules! first_stage {
    ($name:ident, $radix:literal, $butterfly:ident, [$($number:literal $point:ident),*]) => {
        #[inline(always)]
        fn $name<L: Lanes>(&self, from: &Points<'_, impl Signals<L> + ?Sized>, to: &mut [Pair<L>]) {
            let rounds = to.as_chunks_mut::<$radix>().0.iter_mut().zip(self.turns.as_chunks::<{ $radix - 1 }>().0);
            for (p, (to, turns)) in rounds.enumerate() {
                let (first, $($point),*) = $butterfly(from.at(p), $(from.at(p + $number * self.count)),*);
                to[0] = first;
                $(to[$number] = $point.turned(turns[$number - 1]);)*
            }
        }
    };
}

impl Stage {
    #[inline(always)]
    fn run<L: Lanes>(&self, from: &[Pair<L>], to: &mut [Pair<L>]) {
        match self.radix {
            2 => self.run_2(from, to),
            3 => self.run_3(from, to),
            4 => self.run_4(from, to),
            5 => self.run_5(from, to),
            8 => self.run_8(from, to),
            _ => self.run_any(from, to),
        }
    }

    stage!(run_2, 2, two, [1 b ob]);
    stage!(run_3, 3, three, [1 b ob, 2 c oc]);
    stage!(run_4, 4, four, [1 b ob, 2 c oc, 3 d od]);
    stage!(run_5, 5, five, [1 b ob, 2 c oc, 3 d od, 4 e oe]);
    stage!(run_8, 8, eight, [1 b ob, 2 c oc, 3 d od, 4 e oe, 5 f of, 6 g og, 7 h oh]);
    first_stage!(first_4, 4, four, [1 b, 2 c, 3 d]);
    first_stage!(first_5, 5, five, [1 b, 2 c, 3 d, 4 e]);
    first_stage!(first_8, 8, eight, [1 b, 2 c, 3 d, 4 e, 5 f, 6 g, 7 h]);

    /// By the definition.
    #[inline(always)]
    fn run_any<L: Lanes>(&self, from: &[Pair<L>], to: &mut [Pair<L>]) {
        let Self { radix, count, stride, .. } = *self;
        for p in 0..count {
            for q in 0..stride {
                for j in 0..radix {
                    let mut sum = from[p * stride + q];
                    for k in 1..radix {
                        sum = sum + from[(p + k * count) * stride + q].turned(self.own[j * k % radix]);
                    }
                    let turned = if j == 0 { sum } else { sum.turned(self.turns[p * (radix - 1) + j - 1]) };
                    to[(radix * p + j) * stride + q] = turned;
                }
            }
        }
    }
}

#[inline(always)]
fn two<L: Lanes>(a: Pair<L>, b: Pair<L>) -> (Pair<L>, Pair<L>) {
    (a + b, a - b)
}

#[inline(always)]
fn four<L: Lanes>(a: Pair<L>, b: Pair<L>, c: Pair<L>, d: Pair<L>) -> (Pair<L>, Pair<L>, Pair<L>, Pair<L>) {
    let (sum, difference) = (a + c, a - c);
    let (other, turned) = (b + d, (b - d).quarter_back());
    (sum + other, difference + turned, sum - other, difference - turned)
}

/// The sine of a third of a turn.
const SIN_3: f32 = 0.866_025_4;

#[inline(always)]
fn three<L: Lanes>(a: Pair<L>, b: Pair<L>, c: Pair<L>) -> (Pair<L>, Pair<L>, Pair<L>) {
    let sum = b + c;
    let (middle, turned) = (a - sum * 0.5, (b - c).quarter_back() * SIN_3);
    (a + sum, middle + turned, middle - turned)
}

/// Cosines and sines of one and two fifths of a turn.
const COS_5: [f32; 2] = [0.309_017, -0.809_017];
const SIN_5: [f32; 2] = [0.951_056_5, 0.587_785_25];

#[inline(always)]
#[allow(clippy::type_complexity, reason = "the points, as they were given")]
fn five<L: Lanes>(
    a: Pair<L>,
    b: Pair<L>,
    c: Pair<L>,
    d: Pair<L>,
    e: Pair<L>,
) -> (Pair<L>, Pair<L>, Pair<L>, Pair<L>, Pair<L>) {
    let (outer, inner) = (b + e, c + d);
    let (apart, within) = ((b - e).quarter_back(), (c - d).quarter_back());
    let (one, two) = (a + outer * COS_5[0] + inner * COS_5[1], a + outer * COS_5[1] + inner * COS_5[0]);
    let (turned_one, turned_two) =
        (apart * SIN_5[0] + within * SIN_5[1], apart * SIN_5[1] - within * SIN_5[0]);
    (a + outer + inner, one + turned_one, two + turned_two, two - turned_two, one - turned_one)
}

#[inline(always)]
#[allow(
    clippy::too_many_arguments,
    clippy::type_complexity,
    reason = "the points of a butterfly, one by one"
)]
fn eight<L: Lanes>(
    a: Pair<L>,
    b: Pair<L>,
    c: Pair<L>,
    d: Pair<L>,
    e: Pair<L>,
    f: Pair<L>,
    g: Pair<L>,
    h: Pair<L>,
) -> (Pair<L>, Pair<L>, Pair<L>, Pair<L>, Pair<L>, Pair<L>, Pair<L>, Pair<L>) {
    const HALF: f32 = std::f32::consts::FRAC_1_SQRT_2;
    let (a, c, e, g) = four(a, c, e, g);
    let (b, d, f, h) = four(b, d, f, h);
    // By an eighth of a turn back, two and three.
    let d = Pair::new(d.re + d.im, d.im - d.re) * HALF;
    let f = f.quarter_back();
    let h = Pair::new(h.im - h.re, -(h.re + h.im)) * HALF;
    (a + b, c + d, e + f, g + h, a - b, c - d, e - f, g - h)
}

#[cfg(test)]
mod tests {
    use std::f64::consts::PI;

    use super::*;
    use crate::lanes::{Eight, Kernel, run};

    #[test]
    fn transforms_are_those_of_the_definition() {
        Compare.run::<Eight>();
        run(Compare);
    }

    struct Compare;

    impl Kernel for Compare {
        type Output = ();

        fn run<L: Lanes>(self) {
            compare::<L>();
        }
    }

    impl<L: Lanes> Bins<L> for [Pair<L>] {
        fn set(&mut self, bin: usize, pair: Pair<L>) {
            self[bin] = pair * 0.5;
        }
    }

    fn compare<L: Lanes>() {
        for length in (1..140).chain([256, 320, 400, 441, 480, 512, 800, 882, 1024]) {
            let fft = Transform::new(length);
            let sample =
                |lane: usize, i: usize| (((i + 13 * lane) * 2_654_435_761) as u32 >> 8) as f32 / 8e6 - 1.0;
            let mut found = vec![Pair::<L>::default(); length / 2 + 1];
            let signals: Vec<L> = (0..length).map(|i| L::of(|lane| sample(lane, i))).collect();
            fft.run(&mut Work::default(), &signals[..], &mut found[..]);
            for lane in 0..L::N {
                for (bin, pair) in found.iter().enumerate() {
                    let turn = |i: usize| -2.0 * PI * (bin * i % length) as f64 / length as f64;
                    let parts = (0..length).map(|i| (f64::from(sample(lane, i)), turn(i)));
                    let re: f64 = parts.clone().map(|(sample, turn)| sample * turn.cos()).sum();
                    let im: f64 = parts.map(|(sample, turn)| sample * turn.sin()).sum();
                    let off = (f64::from(pair.re.values()[lane]) - re).abs()
                        + (f64::from(pair.im.values()[lane]) - im).abs();
                    assert!(off < 1e-6 * length as f64 + 1e-6, "{length} points, bin {bin}: off by {off}");
                }
            }
        }
    }
}
