//! Several float32 side by side: one of each of several frames, which all go through the same operations.
//!
//! There are [`Eight`], or [`Sixteen`] where the processor has registers for them. Frames do not depend on each other, so each lane has
//! the same bits whatever the registers are. Nothing is fused, for the same reason: a product is rounded before it is added.

use std::{
    fmt::Debug,
    ops::{Add, Mul, Neg, Sub},
};

use crate::{fft, tile::Tile};

#[cfg(target_arch = "x86_64")]
mod sixteen;

/// A value of each lane.
pub(crate) trait Lanes:
    Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Mul<f32, Output = Self>
    + Neg<Output = Self>
    + Copy
    + Debug
    + Default
    + PartialEq
{
    /// How many there are.
    const N: usize;
    const ZERO: Self;

    fn splat(value: f32) -> Self;

    /// By the number of the lane.
    fn of(f: impl FnMut(usize) -> f32) -> Self;

    fn values(&self) -> &[f32];

    fn values_mut(&mut self) -> &mut [f32];

    fn map(self, f: impl Fn(f32) -> f32) -> Self;

    fn max(self, other: Self) -> Self;

    fn sqrt(self) -> Self;

    /// Each lane's value in the next lane, and `first` in the first.
    fn after(self, first: f32) -> Self;

    /// The first values; zeros if there are too few.
    fn read(values: &[f32]) -> Self;

    /// Writes all lanes, where there is room for them.
    fn write(self, out: &mut [f32]);

    /// What there is to work in of this width.
    fn places(work: &mut Work) -> &mut Places<Self>;
}

/// Places to work in, which are used again.
#[derive(Debug, Default)]
pub(crate) struct Work {
    eight: Places<Eight>,
    #[cfg(target_arch = "x86_64")]
    sixteen: Places<Sixteen>,
}

/// Those of one width.
#[derive(Debug, Default)]
pub(crate) struct Places<L> {
    pub(crate) tile: Tile,
    pub(crate) transform: fft::Work<L>,
    pub(crate) powers: Vec<L>,
    pub(crate) values: Vec<L>,
}

/// What is the same for both.
macro_rules! lanes {
    ($name:ident, $lanes:literal, $align:literal, $place:ident) => {
        #[doc = concat!("A value of each of ", $lanes, " lanes.")]
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        #[repr(align($align))]
        pub(crate) struct $name([f32; $lanes]);

        impl Lanes for $name {
            const N: usize = $lanes;
            const ZERO: Self = Self([0.0; $lanes]);

            #[inline(always)]
            fn splat(value: f32) -> Self {
                Self([value; $lanes])
            }

            #[inline(always)]
            fn of(f: impl FnMut(usize) -> f32) -> Self {
                Self(std::array::from_fn(f))
            }

            #[inline(always)]
            fn values(&self) -> &[f32] {
                &self.0
            }

            #[inline(always)]
            fn values_mut(&mut self) -> &mut [f32] {
                &mut self.0
            }

            #[inline(always)]
            fn map(self, f: impl Fn(f32) -> f32) -> Self {
                let mut out = self;
                out.0.iter_mut().for_each(|value| *value = f(*value));
                out
            }

            #[inline(always)]
            fn max(self, other: Self) -> Self {
                self.greater(other)
            }

            #[inline(always)]
            fn sqrt(self) -> Self {
                self.root()
            }

            #[inline(always)]
            fn after(self, first: f32) -> Self {
                self.behind(first)
            }

            #[inline(always)]
            fn read(values: &[f32]) -> Self {
                values.first_chunk().map_or(Self::ZERO, |values| Self(*values))
            }

            #[inline(always)]
            fn write(self, out: &mut [f32]) {
                if let Some(out) = out.first_chunk_mut::<$lanes>() {
                    *out = self.0;
                }
            }

            #[inline(always)]
            fn places(work: &mut Work) -> &mut Places<Self> {
                &mut work.$place
            }
        }

        impl Mul<f32> for $name {
            type Output = Self;

            #[inline(always)]
            fn mul(self, factor: f32) -> Self {
                self * Self::splat(factor)
            }
        }
    };
}

lanes!(Eight, 8, 32, eight);
#[cfg(target_arch = "x86_64")]
lanes!(Sixteen, 16, 64, sixteen);

macro_rules! operator_of_eight {
    ($trait:ident, $function:ident, $operator:tt) => {
        impl $trait for Eight {
            type Output = Self;

            #[inline(always)]
            fn $function(self, other: Self) -> Self {
                let mut out = self;
                for lane in 0..Self::N {
                    out.0[lane] = self.0[lane] $operator other.0[lane];
                }
                out
            }
        }
    };
}

operator_of_eight!(Add, add, +);
operator_of_eight!(Sub, sub, -);
operator_of_eight!(Mul, mul, *);

impl Neg for Eight {
    type Output = Self;

    #[inline(always)]
    fn neg(self) -> Self {
        self.map(|value| -value)
    }
}

impl Eight {
    #[inline(always)]
    fn behind(self, first: f32) -> Self {
        Self::of(|lane| if lane == 0 { first } else { self.0[lane - 1] })
    }

    #[inline(always)]
    fn greater(self, other: Self) -> Self {
        Self(std::array::from_fn(
            |lane| {
                if self.0[lane] > other.0[lane] { self.0[lane] } else { other.0[lane] }
            },
        ))
    }

    #[inline(always)]
    fn root(self) -> Self {
        self.map(f32::sqrt)
    }
}

/// Signals as lanes: one value of each signal at every place of `out`. Lanes without a signal are left as they are.
#[inline(always)]
pub(crate) fn from_rows<'a, L: Lanes>(signals: impl Iterator<Item = &'a [f32]>, out: &mut [L]) {
    for (lane, signal) in signals.take(L::N).enumerate() {
        out.iter_mut().zip(signal).for_each(|(place, sample)| place.values_mut()[lane] = *sample);
    }
}

/// The signals of lanes, one after the other.
#[inline(always)]
pub(crate) fn to_rows<L: Lanes>(values: &[L], rows: &mut [f32]) {
    for (lane, row) in rows.chunks_exact_mut(values.len()).take(L::N).enumerate() {
        row.iter_mut().zip(values).for_each(|(place, values)| *place = values.values()[lane]);
    }
}

/// A complex number of each lane.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Pair<L> {
    pub(crate) re: L,
    pub(crate) im: L,
}

impl<L: Lanes> Pair<L> {
    #[inline(always)]
    pub(crate) fn new(re: L, im: L) -> Self {
        Self { re, im }
    }

    /// Times `cos + i sin`.
    #[inline(always)]
    pub(crate) fn turned(self, by: Turn) -> Self {
        Self::new(self.re * by.cos - self.im * by.sin, self.re * by.sin + self.im * by.cos)
    }

    /// Times `-i`.
    #[inline(always)]
    pub(crate) fn quarter_back(self) -> Self {
        Self::new(self.im, -self.re)
    }

    #[inline(always)]
    pub(crate) fn energy(self) -> L {
        self.re * self.re + self.im * self.im
    }
}

impl<L: Lanes> Add for Pair<L> {
    type Output = Self;

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Self::new(self.re + other.re, self.im + other.im)
    }
}

impl<L: Lanes> Sub for Pair<L> {
    type Output = Self;

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        Self::new(self.re - other.re, self.im - other.im)
    }
}

impl<L: Lanes> Mul<f32> for Pair<L> {
    type Output = Self;

    #[inline(always)]
    fn mul(self, factor: f32) -> Self {
        Self::new(self.re * factor, self.im * factor)
    }
}

/// A complex number of magnitude 1, the same for all lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Turn {
    pub(crate) cos: f32,
    pub(crate) sin: f32,
}

impl Turn {
    pub(crate) const NONE: Self = Self { cos: 1.0, sin: 0.0 };

    /// By `-2π part / whole`.
    pub(crate) fn back(part: usize, whole: usize) -> Self {
        let angle = -2.0 * std::f64::consts::PI * (part % whole) as f64 / whole as f64;
        Self { cos: angle.cos() as f32, sin: angle.sin() as f32 }
    }
}

/// Work that the compiler may write for several kinds of processors. `run` and all that it calls in inner loops are `inline(always)`: what
/// is not inlined is compiled for the least of them.
pub(crate) trait Kernel {
    type Output;

    fn run<L: Lanes>(self) -> Self::Output;
}

/// Runs it with AVX-512 and sixteen lanes or AVX2 and eight, where there is that. (Of eight lanes with AVX-512 the compiler moves values
/// between registers of both sizes, and it takes half as long again.)
pub(crate) fn run<K: Kernel>(kernel: K) -> K::Output {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl") {
        // SAFETY: the processor has AVX-512 of these parts, and with them AVX2.
        return unsafe { with_avx512(kernel) };
    }
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { with_avx2(kernel) };
    }
    kernel.run::<Eight>()
}

/// A part of a kernel that is compiled once, and not anew within each kernel that has it.
pub(crate) trait Part {
    fn run(self);
}

/// Runs it on lanes `L` as [`run`] runs kernels.
pub(crate) fn run_part<L: Lanes>(part: impl Part) {
    #[cfg(target_arch = "x86_64")]
    {
        if L::N == Sixteen::N && is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl") {
            // SAFETY: the processor has AVX-512 of these parts.
            return unsafe { part_with_avx512(part) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2.
            return unsafe { part_with_avx2(part) };
        }
    }
    part.run();
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl")]
#[inline(never)]
fn part_with_avx512(part: impl Part) {
    part.run();
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline(never)]
fn part_with_avx2(part: impl Part) {
    part.run();
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl")]
fn with_avx512<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<Sixteen>()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn with_avx2<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<Eight>()
}

/// The sum of `f` of each place, four sums side by side.
#[inline(always)]
pub(crate) fn sum<L: Lanes>(values: &[L], f: impl Fn(L) -> L) -> L {
    let (groups, rest) = values.as_chunks::<4>();
    let mut sums = [L::ZERO; 4];
    for group in groups {
        for i in 0..4 {
            sums[i] = sums[i] + f(group[i]);
        }
    }
    for (i, value) in rest.iter().enumerate() {
        sums[i] = sums[i] + f(*value);
    }
    (sums[0] + sums[1]) + (sums[2] + sums[3])
}

/// The greatest value; minus infinity if there is none.
pub(crate) fn greatest(values: &[f32]) -> f32 {
    struct Greatest<'a>(&'a [f32]);

    impl Kernel for Greatest<'_> {
        type Output = f32;

        #[inline(always)]
        fn run<L: Lanes>(self) -> f32 {
            let groups = self.0.chunks_exact(L::N);
            let rest = groups.remainder();
            let most = groups.fold(L::splat(f32::NEG_INFINITY), |most, group| most.max(L::read(group)));
            rest.iter().chain(most.values()).copied().fold(f32::NEG_INFINITY, f32::max)
        }
    }

    run(Greatest(values))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back<L: Lanes>() {
        let rows: Vec<f32> = (0..L::N * 29).map(|i| i as f32).collect();
        let mut lanes = vec![L::ZERO; 29];
        from_rows(rows.chunks_exact(29), &mut lanes);
        for (i, place) in lanes.iter().enumerate() {
            assert_eq!(*place, L::of(|lane| (lane * 29 + i) as f32));
        }
        let mut back = vec![0.0; rows.len()];
        to_rows(&lanes, &mut back);
        assert_eq!(back, rows);
    }

    struct ThereAndBack;

    impl Kernel for ThereAndBack {
        type Output = ();

        fn run<L: Lanes>(self) {
            there_and_back::<L>();
        }
    }

    struct After;

    impl Kernel for After {
        type Output = ();

        fn run<L: Lanes>(self) {
            let moved = L::of(|lane| lane as f32 + 1.0).after(0.0);
            assert_eq!(moved, L::of(|lane| lane as f32));
        }
    }

    #[test]
    fn values_move_by_a_lane() {
        After.run::<Eight>();
        run(After);
    }

    #[test]
    fn rows_become_lanes_and_rows_again() {
        ThereAndBack.run::<Eight>();
        run(ThereAndBack);
    }

    /// What each operation makes of some numbers.
    #[derive(Clone, Copy)]
    struct Operations;

    impl Kernel for Operations {
        type Output = Vec<f32>;

        fn run<L: Lanes>(self) -> Vec<f32> {
            let numbers = [1.5, -0.0, 0.0, 3e38, f32::INFINITY, f32::NAN, -7.25, 1e-40];
            let mut out = Vec::new();
            for one in numbers {
                for other in numbers {
                    let (a, b) = (L::splat(one), L::splat(other));
                    for made in [a + b, a - b, a * b, a * other, a.max(b), a.sqrt(), -a] {
                        assert!(made.values().iter().all(|v| v.to_bits() == made.values()[0].to_bits()));
                        out.push(made.values()[0]);
                    }
                }
            }
            out
        }
    }

    #[test]
    fn operations_are_the_same_at_every_width() {
        for (eight, widest) in Operations.run::<Eight>().into_iter().zip(run(Operations)) {
            assert!(
                eight.to_bits() == widest.to_bits() || (eight.is_nan() && widest.is_nan()),
                "{eight} {widest}"
            );
        }
    }
}
