//! Discrete cosine transform of a bank's values: `torchaudio.functional.create_dct`, the last step of cepstral coefficients.

use std::f64::consts::PI;

use crate::{Error, Result, lanes::Lanes};

/// The first coefficients of the transform of type 2.
#[derive(Clone, Debug, PartialEq)]
pub struct Cosine {
    /// Values that go in.
    values: usize,
    /// A row of weights for each coefficient.
    rows: Vec<f32>,
}

impl Cosine {
    /// So many coefficients of so many values; `is_ortho` is `norm="ortho"`.
    ///
    /// # Errors
    ///
    /// For more coefficients than values, or none.
    pub fn new(coefficients: usize, values: usize, is_ortho: bool) -> Result<Self> {
        if coefficients == 0 || coefficients > values {
            return Err(Error::argument(format!(
                "{coefficients} cepstral coefficients of {values} filters: there are from 1 to as many as filters"
            )));
        }
        let weight = |k: usize, n: usize| {
            let cosine = (PI / values as f64 * (n as f64 + 0.5) * k as f64).cos();
            match (is_ortho, k) {
                (false, _) => 2.0 * cosine,
                (true, 0) => cosine / (values as f64).sqrt(),
                (true, _) => cosine * (2.0 / values as f64).sqrt(),
            }
        };
        let rows = (0..coefficients).flat_map(|k| (0..values).map(move |n| weight(k, n) as f32)).collect();
        Ok(Self { values, rows })
    }

    /// Coefficients of a frame's values.
    pub fn apply(&self, values: &[f32]) -> impl Iterator<Item = f32> {
        self.rows
            .chunks_exact(self.values)
            .map(move |row| row.iter().zip(values).map(|(weight, value)| weight * value).sum())
    }
}

impl Cosine {
    /// One coefficient of several frames' values.
    #[inline(always)]
    pub(crate) fn coefficient_lanes<L: Lanes>(&self, coefficient: usize, values: &[L]) -> L {
        let row = &self.rows[coefficient * self.values..][..self.values];
        let mut sums = [L::ZERO; 2];
        for (i, (weight, value)) in row.iter().zip(values).enumerate() {
            sums[i % 2] = sums[i % 2] + *value * *weight;
        }
        sums[0] + sums[1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_orthonormal_transform_keeps_lengths() {
        let values = [0.5f32, -1.0, 2.0, 0.25, 3.0];
        let cosine = Cosine::new(5, 5, true).unwrap();
        let energy = |values: &mut dyn Iterator<Item = f32>| values.map(|value| value * value).sum::<f32>();
        let (before, after) = (energy(&mut values.into_iter()), energy(&mut cosine.apply(&values)));
        assert!((before - after).abs() < 1e-4, "{before} {after}");
        let plain: Vec<f32> = Cosine::new(1, 5, false).unwrap().apply(&values).collect();
        assert!((plain[0] - 2.0 * values.iter().sum::<f32>()).abs() < 1e-5);
        assert!(Cosine::new(6, 5, true).is_err());
    }
}
