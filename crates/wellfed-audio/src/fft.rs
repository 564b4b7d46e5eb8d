//! Fourier transforms of eight real signals of one length at a time.
//!
//! After T. Stockham's self-sorting form (C. Van Loan, *Computational Frameworks for the Fast Fourier Transform*, 1992, 1.7) with radices 4, 2, 3,
//! 5 and other primes: each stage reads one buffer and writes the other, in the order in which the next one reads. Signals of an even
//! length `n` are taken as `n / 2` complex numbers, whose transform is taken apart at the end (the same, 4.2.3).

use std::sync::Arc;

use realfft::{RealFftPlanner, RealToComplex, num_complex::Complex32};

use crate::lanes::{LANES, Lanes, Pair, Turn};

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
pub(crate) struct Work {
    buffers: [Vec<Pair>; 2],
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

    /// Transforms eight signals, and calls `each` with each bin from 0 to half of the length, in no order, of the transform **times
    /// two**.
    #[inline(always)]
    pub(crate) fn run(
        &self,
        work: &mut Work,
        load: impl FnMut(usize) -> Lanes,
        mut each: impl FnMut(usize, Pair),
    ) {
        match self {
            Self::Lanes(fft) => fft.run(&mut work.buffers, load, each),
            Self::Single(plan) => {
                work.run_singly(&**plan, load);
                let bins = plan.len() / 2 + 1;
                for bin in 0..bins {
                    let at = |lane: usize| work.spectra[lane * bins + bin] * 2.0;
                    let re = Lanes(std::array::from_fn(|lane| at(lane).re));
                    each(bin, Pair::new(re, Lanes(std::array::from_fn(|lane| at(lane).im))));
                }
            }
        }
    }
}

impl Work {
    fn run_singly(&mut self, plan: &dyn RealToComplex<f32>, mut load: impl FnMut(usize) -> Lanes) {
        let (length, bins) = (plan.len(), plan.len() / 2 + 1);
        self.signals.resize(LANES * length, 0.0);
        self.spectra.resize(LANES * bins, Complex32::default());
        self.rest.resize(plan.get_scratch_len(), Complex32::default());
        for i in 0..length {
            for (lane, sample) in load(i).0.into_iter().enumerate() {
                self.signals[lane * length + i] = sample;
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
    /// Where the radix is not 2, 3, 4 or 5: those of the butterfly itself.
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
                [4, 2].into_iter().chain(3..=GREATEST_PRIME).find(|radix| rest.is_multiple_of(*radix))?;
            let count = rest / radix;
            let turns = (0..count).flat_map(|p| (1..radix).map(move |j| Turn::back(p * j, rest))).collect();
            let own = if radix > 5 { (0..radix).map(|k| Turn::back(k, radix)).collect() } else { Vec::new() };
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
    fn run(
        &self,
        buffers: &mut [Vec<Pair>; 2],
        mut load: impl FnMut(usize) -> Lanes,
        mut each: impl FnMut(usize, Pair),
    ) {
        let points = self.points();
        let [from, to] = buffers;
        from.resize(points, Pair::default());
        to.resize(points, Pair::default());
        let (mut from, mut to) = (&mut from[..points], &mut to[..points]);
        if self.halves.is_empty() {
            for (i, pair) in from.iter_mut().enumerate() {
                *pair = Pair::new(load(i), Lanes::ZERO);
            }
        } else {
            for (i, pair) in from.iter_mut().enumerate() {
                *pair = Pair::new(load(2 * i), load(2 * i + 1));
            }
        }
        for stage in &self.stages {
            match stage.radix {
                2 => stage.run_2(from, to),
                3 => stage.run_3(from, to),
                4 => stage.run_4(from, to),
                5 => stage.run_5(from, to),
                _ => stage.run_any(from, to),
            }
            (from, to) = (to, from);
        }
        if self.halves.is_empty() {
            for (bin, pair) in from[..points / 2 + 1].iter().enumerate() {
                each(bin, *pair * 2.0);
            }
            return;
        }
        // The first point is its own mirror image, and has bin 0 and the last one.
        let first = from[0];
        each(0, Pair::new((first.re + first.im) * 2.0, Lanes::ZERO));
        each(points, Pair::new((first.re - first.im) * 2.0, Lanes::ZERO));
        for (k, turn) in self.halves.iter().enumerate().skip(1) {
            let (one, other) = (from[k], from[points - k]);
            let mirrored = Pair::new(other.re, -other.im);
            let even = one + mirrored;
            let odd = (one - mirrored).quarter_back().turned(*turn);
            each(k, even + odd);
            if 2 * k != points {
                let last = even - odd;
                each(points - k, Pair::new(last.re, -last.im));
            }
        }
    }
}

/// A stage of butterflies, written out: of loops over the points of one, the compiler would keep the points in memory.
macro_rules! stage {
    ($name:ident, $radix:literal, $butterfly:ident, [$($number:literal $point:ident),*]) => {
        #[inline(always)]
        fn $name(&self, from: &[Pair], to: &mut [Pair]) {
            let (stride, apart) = (self.stride, self.count * self.stride);
            let rounds = to.chunks_exact_mut($radix * stride).zip(self.turns.chunks_exact($radix - 1));
            for (p, (to, turns)) in rounds.enumerate() {
                let from = &from[p * stride..];
                let turns: &[Turn; $radix - 1] = turns.try_into().unwrap_or(&[Turn { cos: 1.0, sin: 0.0 }; $radix - 1]);
                let to = &mut to[..$radix * stride];
                for q in 0..stride {
                    let first = from[q];
                    $(let $point = from[$number * apart + q];)*
                    let (first, $($point),*) = $butterfly(first, $($point),*);
                    to[q] = first;
                    $(to[$number * stride + q] = $point.turned(turns[$number - 1]);)*
                }
            }
        }
    };
}

impl Stage {
    stage!(run_2, 2, two, [1 b]);
    stage!(run_3, 3, three, [1 b, 2 c]);
    stage!(run_4, 4, four, [1 b, 2 c, 3 d]);
    stage!(run_5, 5, five, [1 b, 2 c, 3 d, 4 e]);

    /// By the definition.
    fn run_any(&self, from: &[Pair], to: &mut [Pair]) {
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
fn two(a: Pair, b: Pair) -> (Pair, Pair) {
    (a + b, a - b)
}

#[inline(always)]
fn four(a: Pair, b: Pair, c: Pair, d: Pair) -> (Pair, Pair, Pair, Pair) {
    let (sum, difference) = (a + c, a - c);
    let (other, turned) = (b + d, (b - d).quarter_back());
    (sum + other, difference + turned, sum - other, difference - turned)
}

/// The sine of a third of a turn.
const SIN_3: f32 = 0.866_025_4;

#[inline(always)]
fn three(a: Pair, b: Pair, c: Pair) -> (Pair, Pair, Pair) {
    let sum = b + c;
    let (middle, turned) = (a - sum * 0.5, (b - c).quarter_back() * SIN_3);
    (a + sum, middle + turned, middle - turned)
}

/// Cosines and sines of one and two fifths of a turn.
const COS_5: [f32; 2] = [0.309_017, -0.809_017];
const SIN_5: [f32; 2] = [0.951_056_5, 0.587_785_25];

#[inline(always)]
fn five(a: Pair, b: Pair, c: Pair, d: Pair, e: Pair) -> (Pair, Pair, Pair, Pair, Pair) {
    let (outer, inner) = (b + e, c + d);
    let (apart, within) = ((b - e).quarter_back(), (c - d).quarter_back());
    let (one, two) = (a + outer * COS_5[0] + inner * COS_5[1], a + outer * COS_5[1] + inner * COS_5[0]);
    let (turned_one, turned_two) =
        (apart * SIN_5[0] + within * SIN_5[1], apart * SIN_5[1] - within * SIN_5[0]);
    (a + outer + inner, one + turned_one, two + turned_two, two - turned_two, one - turned_one)
}

#[cfg(test)]
mod tests {
    use std::f64::consts::PI;

    use super::*;

    #[test]
    fn transforms_are_those_of_the_definition() {
        for length in (1..140).chain([320, 400, 441, 480, 512, 882, 1024]) {
            let fft = Transform::new(length);
            let sample =
                |lane: usize, i: usize| (((i + 13 * lane) * 2_654_435_761) as u32 >> 8) as f32 / 8e6 - 1.0;
            let mut found = vec![Pair::default(); length / 2 + 1];
            fft.run(
                &mut Default::default(),
                |i| Lanes(std::array::from_fn(|lane| sample(lane, i))),
                |bin, pair| found[bin] = pair * 0.5,
            );
            for lane in 0..LANES {
                for (bin, pair) in found.iter().enumerate() {
                    let turn = |i: usize| -2.0 * PI * (bin * i % length) as f64 / length as f64;
                    let parts = (0..length).map(|i| (f64::from(sample(lane, i)), turn(i)));
                    let re: f64 = parts.clone().map(|(sample, turn)| sample * turn.cos()).sum();
                    let im: f64 = parts.map(|(sample, turn)| sample * turn.sin()).sum();
                    let off =
                        (f64::from(pair.re.0[lane]) - re).abs() + (f64::from(pair.im.0[lane]) - im).abs();
                    assert!(off < 1e-6 * length as f64 + 1e-6, "{length} points, bin {bin}: off by {off}");
                }
            }
        }
    }
}
