//! `GaussianNoise`: adds normal noise to every value.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Action, Class, Operation, Shape, Size,
    param::{Repr, python_bool},
};
use crate::{
    Error, Result,
    rng::{Rng, philox4x32},
};

/// Adds to every value a number of its own, drawn from a normal distribution. Works on 8-bit and on floating point images;
/// parameters are on the scale 0 to 1 for both.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GaussianNoise {
    /// Mean. Default: 0.
    pub mean: f64,
    /// Standard deviation, at least 0. Default: 0.1.
    pub sigma: f64,
    /// Whether results are cut off at 0 and 1 (255). Without it, 8-bit values go round. Default: true.
    pub clip: bool,
}

impl Default for GaussianNoise {
    fn default() -> Self {
        Self { mean: 0.0, sigma: 0.1, clip: true }
    }
}

impl GaussianNoise {
    /// Of this mean and standard deviation.
    pub fn new(mean: f64, sigma: f64) -> Self {
        Self { mean, sigma, ..Self::default() }
    }

    /// Sets whether results are cut off.
    #[must_use]
    pub fn clip(mut self, clip: bool) -> Self {
        self.clip = clip;
        self
    }
}

impl fmt::Display for GaussianNoise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "GaussianNoise")
            .field("mean", self.mean)
            .field("sigma", self.sigma)
            .field("clip", python_bool(self.clip))
            .finish()
    }
}

impl Operation for GaussianNoise {
    fn check(&self) -> Result<()> {
        if !self.mean.is_finite() {
            return Err(Error::config(format!("mean is {}; must be finite", self.mean)));
        }
        if !(self.sigma >= 0.0 && self.sigma.is_finite()) {
            return Err(Error::config(format!("sigma is {}; must be at least 0", self.sigma)));
        }
        Ok(())
    }

    fn class(&self) -> Class {
        Class::Noise
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        input
    }

    fn draw(&self, _size: Size, rng: &mut Rng) -> Result<Action> {
        Ok(Action::AddNoise(AddedNoise { noise: *self, seed: rng.next_u64() }))
    }
}

/// Drawn noise: the numbers that belong to a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AddedNoise {
    noise: GaussianNoise,
    seed: u64,
}

impl AddedNoise {
    /// Standard normal numbers without end, four from each block of random words.
    fn normals(&self) -> impl Iterator<Item = f32> + use<> {
        let key = [self.seed as u32, (self.seed >> 32) as u32];
        (0u64..).flat_map(move |block| {
            let [a, b, c, d] = philox4x32([block as u32, (block >> 32) as u32, 0, 0], key);
            let [[a, b], [c, d]] = [pair(a, b), pair(c, d)];
            [a, b, c, d]
        })
    }

    /// What 8-bit values become, one after the other: the noise is added as whole numbers, as torchvision does.
    pub(crate) fn on_bytes(&self) -> impl FnMut(u8) -> u8 + use<> {
        let GaussianNoise { mean, sigma, clip } = self.noise;
        let [mean, sigma] = [mean * 255.0, sigma * 255.0].map(|x| x as f32);
        let mut normals = self.normals();
        move |value| {
            let normal = normals.next().unwrap_or_default();
            let sum = i16::from(value).wrapping_add((mean + normal * sigma) as i16);
            if clip { sum.clamp(0, 255) as u8 } else { sum as u8 }
        }
    }

    /// What floating point values become, one after the other.
    pub(crate) fn on_floats(&self) -> impl FnMut(f32) -> f32 + use<> {
        let GaussianNoise { mean, sigma, clip } = self.noise;
        let [mean, sigma] = [mean, sigma].map(|x| x as f32);
        let mut normals = self.normals();
        move |value| {
            let sum = value + (mean + normals.next().unwrap_or_default() * sigma);
            if clip { sum.clamp(0.0, 1.0) } else { sum }
        }
    }
}

/// Two normal numbers (Box and Muller's transform) of two random words, of which 24 bits count, as in torch.
fn pair(one: u32, other: u32) -> [f32; 2] {
    const UNIT: f32 = 1.0 / (1 << 24) as f32;
    // Not the logarithm of 0.
    let radius = (-2.0 * (((one >> 8) + 1) as f32 * UNIT).ln()).sqrt();
    let (sin, cos) = (std::f32::consts::TAU * ((other >> 8) as f32 * UNIT)).sin_cos();
    [radius * cos, radius * sin]
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    fn drawn(noise: GaussianNoise, index: u64) -> AddedNoise {
        match noise.draw(size(2, 2), &mut rng(index)).unwrap() {
            Action::AddNoise(added) => added,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn numbers_are_standard_normal_and_independent() {
        let n = 200_000;
        let numbers: Vec<f64> = drawn(GaussianNoise::default(), 0).normals().take(n).map(f64::from).collect();
        let moment = |k: i32| numbers.iter().map(|x| x.powi(k)).sum::<f64>() / n as f64;
        // Of a standard normal distribution: 0, 1, 0, 3.
        for (k, want, most) in [(1, 0.0, 0.01), (2, 1.0, 0.015), (3, 0.0, 0.04), (4, 3.0, 0.12)] {
            assert!((moment(k) - want).abs() < most, "moment {k} is {}", moment(k));
        }
        for lag in 1..6 {
            let products: f64 = numbers.iter().zip(&numbers[lag..]).map(|(a, b)| a * b).sum();
            assert!((products / n as f64).abs() < 0.01, "{lag}");
        }
        assert!(numbers.iter().all(|x| x.is_finite() && x.abs() < 6.0));
        assert_ne!(
            drawn(GaussianNoise::default(), 0).normals().next(),
            drawn(GaussianNoise::default(), 1).normals().next()
        );
    }

    #[test]
    fn noise_is_added_and_cut_off_or_goes_round() {
        let bytes = |noise: GaussianNoise, value: u8| {
            let mut become_ = drawn(noise, 5).on_bytes();
            (0..1000).map(|_| become_(value)).collect::<Vec<u8>>()
        };
        let floats = |noise: GaussianNoise| {
            let mut become_ = drawn(noise, 5).on_floats();
            (0..1000).map(|_| become_(0.5)).collect::<Vec<f32>>()
        };
        assert_eq!(bytes(GaussianNoise::new(0.5, 0.0), 100), [227; 1000]);
        assert_eq!(bytes(GaussianNoise::new(0.7, 0.0), 100), [255; 1000]);
        assert_eq!(bytes(GaussianNoise::new(0.7, 0.0).clip(false), 100), [(100 + 178 - 256) as u8; 1000]);
        assert_eq!(bytes(GaussianNoise::new(-0.5, 0.0), 100), [0; 1000]);
        let noisy = bytes(GaussianNoise::new(0.0, 0.1), 128);
        let normals = drawn(GaussianNoise::default(), 5).normals();
        for (value, normal) in noisy.iter().zip(normals) {
            assert_eq!(i32::from(*value), 128 + (normal * 25.5) as i32);
        }
        let cut = floats(GaussianNoise::new(0.25, 0.5));
        assert!(cut.contains(&0.0) && cut.contains(&1.0));
        assert!(cut.iter().all(|x| (0.0..=1.0).contains(x)));
        let free = floats(GaussianNoise::new(0.25, 0.5).clip(false));
        assert!(free.iter().zip(&cut).all(|(free, cut)| free.clamp(0.0, 1.0) == *cut));
        assert!(free.iter().any(|x| *x > 1.5));
    }

    #[test]
    fn parameters_are_checked() {
        assert_eq!(check_error(GaussianNoise::new(0.0, -0.1)), "sigma is -0.1; must be at least 0");
        assert_eq!(check_error(GaussianNoise::new(f64::NAN, 0.1)), "mean is NaN; must be finite");
        assert_eq!(
            read(r#"{"type":"GaussianNoise","sigma":0.25}"#).to_string(),
            "GaussianNoise(mean=0, sigma=0.25, clip=True)"
        );
    }
}
