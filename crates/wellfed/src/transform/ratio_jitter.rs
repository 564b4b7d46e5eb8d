//! [`RatioJitter`]: how timm's transforms that keep the aspect ratio vary it, and the scale.

use super::param::{Repr, Tuple, check_positive_range, python_bool};
use crate::{Error, Result, rng::Rng};

/// Factors of height and width, drawn: of both alike, and against each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct RatioJitter {
    /// Probability that the scale is drawn.
    pub scale_prob: f64,
    /// What it is drawn from.
    pub scale_range: [f64; 2],
    /// Whether it is a share of the area that is kept, below 1 for a larger picture, and not a factor of the sides.
    pub scale_area: bool,
    /// Probability that the aspect ratio is drawn.
    pub aspect_prob: f64,
    /// What it is drawn from; its logarithm is uniform.
    pub aspect_range: [f64; 2],
}

impl RatioJitter {
    /// Whether anything is drawn.
    pub(super) fn is_random(self) -> bool {
        self.scale_prob > 0.0 || self.aspect_prob > 0.0
    }

    pub(super) fn check(self) -> Result<()> {
        for (name, p) in [("random_scale_prob", self.scale_prob), ("random_aspect_prob", self.aspect_prob)] {
            if !(0.0..=1.0).contains(&p) {
                return Err(Error::config(format!("{name} is {p}; must be 0 to 1")));
            }
        }
        check_positive_range("random_scale_range", self.scale_range)?;
        check_positive_range("random_aspect_range", self.aspect_range)
    }

    /// Adds the parameters to what a transform shows, if they mean anything.
    pub(super) fn show<'a, 'f>(self, repr: Repr<'a, 'f>) -> Repr<'a, 'f> {
        let random = self.is_random();
        repr.field_if(random, "random_scale_prob", self.scale_prob)
            .field_if(random, "random_scale_range", Tuple(&self.scale_range))
            .field_if(random, "random_scale_area", python_bool(self.scale_area))
            .field_if(random, "random_aspect_prob", self.aspect_prob)
            .field_if(random, "random_aspect_range", Tuple(&self.aspect_range))
    }

    /// Factors of height and width.
    pub(super) fn draw(self, rng: &mut Rng) -> [f64; 2] {
        let mut scale = 1.0;
        if self.scale_prob > 0.0 && rng.chance(self.scale_prob) {
            scale = rng.uniform(self.scale_range[0], self.scale_range[1]);
            if self.scale_area {
                scale = 1.0 / scale.sqrt();
            }
        }
        if self.aspect_prob > 0.0 && rng.chance(self.aspect_prob) {
            let [low, high] = self.aspect_range.map(f64::ln);
            let aspect = rng.uniform(low, high).exp().sqrt();
            return [scale / aspect, scale * aspect];
        }
        [scale, scale]
    }
}

/// The sides of an image by a factor of each, to the nearest whole number; half ones to the even one, as Python rounds.
pub(super) fn rounded(sides: [f64; 2]) -> [usize; 2] {
    sides.map(|side| side.round_ties_even() as usize)
}

/// Fails unless `longest` is a number.
pub(super) fn check_longest(longest: f64) -> Result<()> {
    if longest.is_finite() {
        return Ok(());
    }
    Err(Error::config(format!(
        "longest is {longest}; must be a number, 0 for the smaller side and 1 for the longer"
    )))
}

/// What an image is scaled by, of the factors that would bring each side to its aim.
pub(super) fn between([one, other]: [f64; 2], longest: f64) -> f64 {
    one.max(other) * longest + one.min(other) * (1.0 - longest)
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    const BOTH: RatioJitter = RatioJitter {
        scale_prob: 0.3,
        scale_range: [0.5, 2.0],
        scale_area: false,
        aspect_prob: 0.6,
        aspect_range: [0.25, 4.0],
    };

    #[test]
    fn factors_have_timms_distribution() {
        let n = 20_000;
        let drawn: Vec<[f64; 2]> = (0..n).map(|i| BOTH.draw(&mut rng(i))).collect();
        // The product of both is the square of the scale, and their quotient the aspect ratio.
        let scales: Vec<f64> =
            drawn.iter().map(|[h, w]| (h * w).sqrt()).filter(|s| (s - 1.0).abs() > 1e-9).collect();
        let ratios: Vec<f64> = drawn.iter().map(|[h, w]| w / h).filter(|r| (r - 1.0).abs() > 1e-9).collect();
        assert_probability(scales.len(), n, 0.3);
        assert_probability(ratios.len(), n, 0.6);
        assert_uniform(scales.iter().map(|s| s.clamp(0.5, 2.0)), 0.5, 2.0);
        let log = 4f64.ln();
        assert_uniform(ratios.iter().map(|r| r.ln().clamp(-log, log)), -log, log);
        let area = RatioJitter { scale_prob: 1.0, scale_area: true, aspect_prob: 0.0, ..BOTH };
        assert_uniform((0..n).map(|i| area.draw(&mut rng(i))[0].powi(-2).clamp(0.5, 2.0)), 0.5, 2.0);
    }

    #[test]
    fn nothing_is_drawn_without_probability() {
        let none = RatioJitter { scale_prob: 0.0, aspect_prob: 0.0, ..BOTH };
        let mut one = rng(0);
        assert_eq!(none.draw(&mut one), [1.0, 1.0]);
        assert_eq!(one, rng(0));
        assert!(!none.is_random() && BOTH.is_random());
    }

    #[test]
    fn parameters_are_checked() {
        let message = |jitter: RatioJitter| jitter.check().unwrap_err().message().to_owned();
        assert!(message(RatioJitter { scale_prob: 1.5, ..BOTH }).starts_with("random_scale_prob is 1.5"));
        assert!(
            message(RatioJitter { aspect_prob: f64::NAN, ..BOTH }).starts_with("random_aspect_prob is NaN")
        );
        assert!(
            message(RatioJitter { scale_range: [0.0, 1.0], ..BOTH }).starts_with("random_scale_range is")
        );
        assert!(
            message(RatioJitter { aspect_range: [2.0, 1.0], ..BOTH }).starts_with("random_aspect_range is")
        );
        assert!(check_longest(f64::INFINITY).is_err() && check_longest(0.3).is_ok());
    }
}
