//! Eight float32 side by side: one of each of eight frames, which all go through the same operations.
//!
//! Frames do not depend on each other, so each lane has the same bits whatever the processor's registers are. Nothing is fused, for the
//! same reason: a product is rounded before it is added.

use std::ops::{Add, Mul, Neg, Sub};

/// How many there are.
pub(crate) const LANES: usize = 8;

/// A value of each lane.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(align(32))]
pub(crate) struct Lanes(pub(crate) [f32; LANES]);

impl Lanes {
    pub(crate) const ZERO: Self = Self([0.0; LANES]);

    #[inline(always)]
    pub(crate) fn splat(value: f32) -> Self {
        Self([value; LANES])
    }

    #[inline(always)]
    pub(crate) fn map(self, f: impl Fn(f32) -> f32) -> Self {
        let mut out = self;
        out.0.iter_mut().for_each(|value| *value = f(*value));
        out
    }

    #[inline(always)]
    pub(crate) fn max(self, other: Self) -> Self {
        Self(std::array::from_fn(
            |lane| {
                if self.0[lane] > other.0[lane] { self.0[lane] } else { other.0[lane] }
            },
        ))
    }

    #[inline(always)]
    pub(crate) fn sqrt(self) -> Self {
        self.map(f32::sqrt)
    }
}

impl Lanes {
    /// Writes all lanes, where there is room for them.
    #[inline(always)]
    pub(crate) fn write(self, out: &mut [f32]) {
        if let Some(out) = out.first_chunk_mut::<LANES>() {
            *out = self.0;
        }
    }
}

/// Signals as lanes: one value of each signal at every place of `out`.
#[inline(always)]
pub(crate) fn from_rows(signals: [&[f32]; LANES], out: &mut [Lanes]) {
    for (lane, signal) in signals.into_iter().enumerate() {
        out.iter_mut().zip(signal).for_each(|(place, sample)| place.0[lane] = *sample);
    }
}

/// The same, times a weight for each place.
#[inline(always)]
pub(crate) fn from_rows_weighted(signals: [&[f32]; LANES], weights: &[f32], out: &mut [Lanes]) {
    for (lane, signal) in signals.into_iter().enumerate() {
        let places = out.iter_mut().zip(signal).zip(weights);
        places.for_each(|((place, sample), weight)| place.0[lane] = sample * weight);
    }
}

/// The signals of lanes, one after the other.
#[inline(always)]
pub(crate) fn to_rows(values: &[Lanes], rows: &mut [f32]) {
    for (lane, row) in rows.chunks_exact_mut(values.len()).take(LANES).enumerate() {
        row.iter_mut().zip(values).for_each(|(place, values)| *place = values.0[lane]);
    }
}

macro_rules! operator {
    ($name:ident, $function:ident, $operator:tt) => {
        impl $name for Lanes {
            type Output = Self;

            #[inline(always)]
            fn $function(self, other: Self) -> Self {
                let mut out = self;
                for lane in 0..LANES {
                    out.0[lane] = self.0[lane] $operator other.0[lane];
                }
                out
            }
        }
    };
}

operator!(Add, add, +);
operator!(Sub, sub, -);
operator!(Mul, mul, *);

impl Mul<f32> for Lanes {
    type Output = Self;

    #[inline(always)]
    fn mul(self, factor: f32) -> Self {
        self * Self::splat(factor)
    }
}

impl Neg for Lanes {
    type Output = Self;

    #[inline(always)]
    fn neg(self) -> Self {
        self.map(|value| -value)
    }
}

/// A complex number of each lane.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Pair {
    pub(crate) re: Lanes,
    pub(crate) im: Lanes,
}

impl Pair {
    #[inline(always)]
    pub(crate) fn new(re: Lanes, im: Lanes) -> Self {
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
    pub(crate) fn energy(self) -> Lanes {
        self.re * self.re + self.im * self.im
    }
}

impl Add for Pair {
    type Output = Self;

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Self::new(self.re + other.re, self.im + other.im)
    }
}

impl Sub for Pair {
    type Output = Self;

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        Self::new(self.re - other.re, self.im - other.im)
    }
}

impl Mul<f32> for Pair {
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

    fn run(self) -> Self::Output;
}

/// Runs it with AVX2 where there is that. (With AVX-512 the compiler moves values between lanes, and it takes half as long again.)
pub(crate) fn run<K: Kernel>(kernel: K) -> K::Output {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { with_avx2(kernel) };
    }
    kernel.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn with_avx2<K: Kernel>(kernel: K) -> K::Output {
    kernel.run()
}

/// The sum of `f` of each place, four sums side by side.
#[inline(always)]
pub(crate) fn sum(values: &[Lanes], f: impl Fn(Lanes) -> Lanes) -> Lanes {
    let (groups, rest) = values.as_chunks::<4>();
    let mut sums = [Lanes::ZERO; 4];
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
        fn run(self) -> f32 {
            let (groups, rest) = self.0.as_chunks::<LANES>();
            let most = Lanes::splat(f32::NEG_INFINITY);
            let most = groups.iter().fold(most, |most, group| most.max(Lanes(*group)));
            rest.iter().chain(&most.0).copied().fold(f32::NEG_INFINITY, f32::max)
        }
    }

    run(Greatest(values))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_lanes_and_rows_again() {
        let rows: Vec<f32> = (0..LANES * 29).map(|i| i as f32).collect();
        let mut lanes = vec![Lanes::ZERO; 29];
        from_rows(std::array::from_fn(|lane| &rows[lane * 29..][..29]), &mut lanes);
        for (i, place) in lanes.iter().enumerate() {
            assert_eq!(*place, Lanes(std::array::from_fn(|lane| (lane * 29 + i) as f32)));
        }
        let mut back = vec![0.0; rows.len()];
        to_rows(&lanes, &mut back);
        assert_eq!(back, rows);
    }
}
