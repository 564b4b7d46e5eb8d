//! What the tests of transforms share. All draws come from fixed seeds, so that every test is deterministic;
//! thresholds are those that a right distribution passes with probability 0.9999.

use super::{Action, Operation, Size, Transform};
use crate::rng::Rng;

pub(super) fn size(height: usize, width: usize) -> Size {
    Size { height, width, channels: 3 }
}

pub(super) fn rng(index: u64) -> Rng {
    Rng::for_stage(0x5EED, 3, index, 1)
}

/// One draw for each of `n` samples.
pub(super) fn draws(operation: impl Operation, size: Size, n: u64) -> impl Iterator<Item = Action> {
    operation.check().unwrap();
    (0..n).map(move |index| operation.draw(size, &mut rng(index)).unwrap())
}

/// Parses a transform and checks that it passes through JSON unchanged.
pub(super) fn read(json: &str) -> Transform {
    let transform: Transform = serde_json::from_str(json).unwrap();
    let again = serde_json::from_str(&serde_json::to_string(&transform).unwrap()).unwrap();
    assert_eq!(transform, again);
    transform
}

/// The error for a transform that cannot be parsed.
pub(super) fn refuse(json: &str) -> String {
    serde_json::from_str::<Transform>(json).unwrap_err().to_string()
}

/// Message of the configuration error of a stage that fails its check.
pub(super) fn check_error(operation: impl Operation) -> String {
    let e = operation.check().unwrap_err();
    assert_eq!(e.kind(), crate::ErrorKind::Config);
    e.message().to_owned()
}

/// 0.9999 quantile of the chi-square distribution (approximation of Wilson and Hilferty).
fn chi2_limit(freedom: f64) -> f64 {
    let v = 2.0 / (9.0 * freedom);
    freedom * (1.0 - v + 3.719 * v.sqrt()).powi(3)
}

/// Checks counts against equal probabilities.
pub(super) fn assert_uniform_counts(counts: &[u64]) {
    let n: u64 = counts.iter().sum();
    let expected = n as f64 / counts.len() as f64;
    assert!(expected >= 5.0, "too few draws for a chi-square test");
    let chi2: f64 = counts.iter().map(|&c| (c as f64 - expected).powi(2) / expected).sum();
    let limit = chi2_limit(counts.len() as f64 - 1.0);
    assert!(chi2 < limit, "chi-square {chi2} above {limit}: {counts:?}");
}

/// Checks that values are uniform in `low..high`, by 20 bins.
pub(super) fn assert_uniform(values: impl IntoIterator<Item = f64>, low: f64, high: f64) {
    let mut counts = [0; 20];
    for value in values {
        assert!((low..=high).contains(&value), "{value} is outside {low} to {high}");
        counts[(((value - low) / (high - low) * 20.0) as usize).min(19)] += 1;
    }
    assert_uniform_counts(&counts);
}

/// Checks that `hits` of `n` has probability `p`.
pub(super) fn assert_probability(hits: usize, n: u64, p: f64) {
    let n = n as f64;
    let deviation = (hits as f64 - n * p).abs();
    assert!(deviation <= 3.9 * (n * p * (1.0 - p)).sqrt(), "{hits} of {n} is not a probability of {p}");
}
