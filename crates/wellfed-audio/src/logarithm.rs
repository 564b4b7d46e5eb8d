//! Logarithms of float32 within three units in the last place, without a branch, so that the compiler does several at once.
//!
//! With `x = m 2^e` and `m` between the roots of 1/2 and 2, `ln m = 2 artanh s`, `s = (m - 1) / (m + 1)`, of which four terms of the power
//! series do: what is left out is below 3e-9 of the sum.

use crate::lanes::{self, Kernel, Lanes};

/// Bits of the root of 1/2.
const LEAST: u32 = 0x3f35_04f3;

/// The exponent, `s`, and what `artanh s / s` exceeds 1 by.
#[inline(always)]
fn parts(x: f32) -> (f32, f32, f32) {
    let exponent = (x.to_bits().wrapping_sub(LEAST) as i32) >> 23;
    let m = f32::from_bits(x.to_bits().wrapping_sub((exponent << 23) as u32));
    let s = (m - 1.0) / (m + 1.0);
    let square = s * s;
    let rest = square * (1.0 / 3.0 + square * (1.0 / 5.0 + square * (1.0 / 7.0 + square * (1.0 / 9.0))));
    (exponent as f32, s, rest)
}

/// The natural logarithm of a number that is not below the least normal one.
#[inline(always)]
pub(crate) fn ln(x: f32) -> f32 {
    // Of ln 2 the part that is exact when multiplied by an exponent, and the rest of it.
    const TWO: f32 = 0.693_359_4;
    const REST: f32 = -2.121_944_4e-4;
    let (exponent, s, rest) = parts(x);
    let value = exponent * TWO + (2.0 * s + (2.0 * s * rest + exponent * REST));
    if x < f32::INFINITY { value } else { x }
}

/// The decimal logarithm of such a number.
#[inline(always)]
pub(crate) fn log10(x: f32) -> f32 {
    // The same of log10 2, and log10 e times two.
    const TWO: f32 = 0.300_781_25;
    const REST: f32 = 2.487_456_6e-4;
    const E: f32 = 0.867_187_5;
    const REST_OF_E: f32 = 1.401_463_8e-3;
    let (exponent, s, rest) = parts(x);
    let value = exponent * TWO + (s * E + (s * rest * (E + REST_OF_E) + (s * REST_OF_E + exponent * REST)));
    if x < f32::INFINITY { value } else { x }
}

/// Replaces each value by `f` of it.
pub(crate) fn each(values: &mut [f32], f: impl Fn(f32) -> f32) {
    lanes::run(Each { values, f });
}

struct Each<'a, F> {
    values: &'a mut [f32],
    f: F,
}

impl<F: Fn(f32) -> f32> Kernel for Each<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let mut groups = self.values.chunks_exact_mut(L::N);
        groups.by_ref().for_each(|group| L::read(group).map(&self.f).write(group));
        groups.into_remainder().iter_mut().for_each(|value| *value = (self.f)(*value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_are_right_to_three_units() {
        let mut worst = [0.0f64; 2];
        for bits in (f32::MIN_POSITIVE.to_bits()..f32::INFINITY.to_bits()).step_by(997) {
            let x = f32::from_bits(bits);
            for (worst, (found, wanted)) in
                worst.iter_mut().zip([(ln(x), f64::from(x).ln()), (log10(x), f64::from(x).log10())])
            {
                let unit = f64::from((wanted as f32).abs().next_up()) - f64::from((wanted as f32).abs());
                *worst = worst.max((f64::from(found) - wanted).abs() / unit);
            }
        }
        assert!(worst.iter().all(|worst| *worst <= 3.0), "{worst:?} units in the last place");
        assert_eq!((ln(1.0), log10(1.0)), (0.0, 0.0));
        assert_eq!((ln(f32::INFINITY), log10(f32::INFINITY)), (f32::INFINITY, f32::INFINITY));
        assert!(ln(f32::NAN).is_nan() && log10(f32::NAN).is_nan());
    }
}
