//! [`Mixing`]: what is done to finished batches of images and labels, with torchvision v2's names, parameters and formulas.
//!
//! Sample `i` is mixed with the one before it, and the first with the last, as torchvision does. One draw is for the batch.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::param::{Tuple, check_probability};
use crate::{Error, Result, rng::Rng};

/// Classes that labels can have at most: each takes four bytes a sample.
const MOST_CLASSES: usize = 1 << 24;

/// One step on whole batches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", deny_unknown_fields)]
pub enum Mixing {
    /// Weighted sums of images, and of their labels.
    MixUp(Mix),
    /// A rectangle of another image, and labels weighted by its area.
    CutMix(Mix),
    /// One of several, drawn with the weights `p`.
    RandomChoice {
        /// What to choose from.
        transforms: Vec<Mixing>,
        /// A weight for each; `None`: all are equally likely.
        #[serde(default)]
        p: Option<Vec<f64>>,
    },
    /// All of them in order with probability `p`, or none.
    RandomApply {
        /// What to apply.
        transforms: Vec<Mixing>,
        /// Probability, 0 to 1.
        p: f64,
    },
    /// All of them in order.
    Compose {
        /// What to apply.
        transforms: Vec<Mixing>,
    },
}

/// Parameters of `MixUp` and `CutMix`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mix {
    /// Both parameters of the Beta distribution.
    pub alpha: f64,
    /// Classes, where labels are indices.
    #[serde(default)]
    pub num_classes: Option<usize>,
    /// The field of the labels; `"default"`: the one that torchvision's rule finds.
    #[serde(default = "default_labels")]
    pub labels_getter: String,
}

fn default_labels() -> String {
    DEFAULT_LABELS.to_owned()
}

/// Labels are found by torchvision's rule.
pub const DEFAULT_LABELS: &str = "default";

/// What was drawn for a batch. `lam` is the weight of a sample's own label; the one before it has the rest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Blend {
    /// Weighted sums of all values.
    Sum {
        /// Weight of the sample itself.
        lam: f64,
    },
    /// Columns `x1..x2` of rows `y1..y2` come from the sample before.
    Box {
        /// `x1, y1, x2, y2`.
        corners: [usize; 4],
        /// What is left of the sample itself, as a part of its area.
        lam: f64,
    },
}

impl Mixing {
    /// Its name, as in torchvision.
    pub fn name(&self) -> &'static str {
        match self {
            Self::MixUp(_) => "MixUp",
            Self::CutMix(_) => "CutMix",
            Self::RandomChoice { .. } => "RandomChoice",
            Self::RandomApply { .. } => "RandomApply",
            Self::Compose { .. } => "Compose",
        }
    }

    fn inner(&self) -> &[Mixing] {
        match self {
            Self::MixUp(_) | Self::CutMix(_) => &[],
            Self::RandomChoice { transforms, .. }
            | Self::RandomApply { transforms, .. }
            | Self::Compose { transforms } => transforms,
        }
    }

    /// All `MixUp` and `CutMix` in it; whether each is a `MixUp`.
    pub fn mixes(&self) -> Vec<(&Mix, bool)> {
        match self {
            Self::MixUp(mix) => vec![(mix, true)],
            Self::CutMix(mix) => vec![(mix, false)],
            _ => self.inner().iter().flat_map(Self::mixes).collect(),
        }
    }

    /// Checks parameters.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`], naming the parameter, its value and what is allowed.
    pub fn check(&self) -> Result<()> {
        let wrong = |what: String| Err(Error::config(what).with_stage(self.name()));
        if let Self::MixUp(mix) | Self::CutMix(mix) = self {
            if !(mix.alpha > 0.0 && mix.alpha.is_finite()) {
                return wrong(format!("alpha is {}; it must be greater than 0", mix.alpha));
            }
            if let Some(classes) = mix.num_classes.filter(|n| !(1..=MOST_CLASSES).contains(n)) {
                return wrong(format!("num_classes is {classes}; it must be 1 to {MOST_CLASSES}"));
            }
            return Ok(());
        }
        if self.inner().is_empty() {
            return wrong("transforms is empty; there must be at least one".to_owned());
        }
        if let Self::RandomApply { p, .. } = self {
            check_probability(*p)?;
        }
        if let Self::RandomChoice { transforms, p: Some(p) } = self {
            let sum: f64 = p.iter().sum();
            if p.len() != transforms.len() {
                return wrong(format!("p has {} numbers for {} transforms", p.len(), transforms.len()));
            }
            if !(p.iter().all(|&weight| weight >= 0.0) && sum > 0.0 && sum.is_finite()) {
                return wrong(format!("p is {}; no number may be negative, and not all 0", Tuple(p)));
            }
        }
        self.inner().iter().try_for_each(Self::check)
    }

    /// Settles every number for a batch of images of `height` and `width`, and adds what is done to `into`.
    pub fn draw(&self, (height, width): (usize, usize), rng: &mut Rng, into: &mut Vec<Blend>) {
        match self {
            Self::MixUp(mix) => into.push(Blend::Sum { lam: beta(mix.alpha, rng) }),
            Self::CutMix(mix) => into.push(cut(beta(mix.alpha, rng), (height, width), rng)),
            Self::RandomChoice { transforms, p } => {
                let chosen = match p {
                    None => rng.below(transforms.len() as u64) as usize,
                    Some(p) => rng.weighted(p),
                };
                transforms[chosen].draw((height, width), rng, into);
            }
            Self::RandomApply { transforms, p } => {
                if rng.chance(*p) {
                    transforms.iter().for_each(|inner| inner.draw((height, width), rng, into));
                }
            }
            Self::Compose { transforms } => {
                transforms.iter().for_each(|inner| inner.draw((height, width), rng, into));
            }
        }
    }
}

/// The rectangle of torchvision's `CutMix`.
fn cut(lam: f64, (height, width): (usize, usize), rng: &mut Rng) -> Blend {
    let (x, y) = (rng.below(width as u64) as usize, rng.below(height as u64) as usize);
    let radius = 0.5 * (1.0 - lam).sqrt();
    let (half_width, half_height) = ((radius * width as f64) as usize, (radius * height as f64) as usize);
    let (x1, x2) = (x.saturating_sub(half_width), (x + half_width).min(width));
    let (y1, y2) = (y.saturating_sub(half_height), (y + half_height).min(height));
    let area = ((x2 - x1) * (y2 - y1)) as f64;
    Blend::Box { corners: [x1, y1, x2, y2], lam: 1.0 - area / (width * height) as f64 }
}

/// Of the Beta distribution with `alpha` twice, in float32 as in torch.
fn beta(alpha: f64, rng: &mut Rng) -> f64 {
    if alpha == 1.0 {
        return f64::from(rng.unit() as f32);
    }
    // By logarithms, since both numbers may be too small for a float where alpha is.
    let (one, other) = (log_gamma(alpha, rng), log_gamma(alpha, rng));
    f64::from((1.0 / (1.0 + (other - one).exp())) as f32)
}

/// Logarithm of a number of the Gamma distribution: Marsaglia and Tsang, "A simple method for generating gamma variables"
/// (2000), for shapes below 1 by their remark on a number of the next higher shape.
pub(super) fn log_gamma(shape: f64, rng: &mut Rng) -> f64 {
    if shape < 1.0 {
        // Not the logarithm of 0.
        let unit = 1.0 - rng.unit();
        return log_gamma(shape + 1.0, rng) + unit.ln() / shape;
    }
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = rng.normal();
        let v = (1.0 + c * x).powi(3);
        let unit = 1.0 - rng.unit();
        if v > 0.0 && unit.ln() < 0.5 * x * x + d - d * v + d * v.ln() {
            return (d * v).ln();
        }
    }
}

impl fmt::Display for Mixing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MixUp(mix) | Self::CutMix(mix) => {
                write!(f, "{}(alpha={}", self.name(), mix.alpha)?;
                if let Some(classes) = mix.num_classes {
                    write!(f, ", num_classes={classes}")?;
                }
                if mix.labels_getter != DEFAULT_LABELS {
                    write!(f, ", labels_getter={:?}", mix.labels_getter)?;
                }
                f.write_str(")")
            }
            _ => {
                let inner: Vec<String> = self.inner().iter().map(ToString::to_string).collect();
                write!(f, "{}([{}]", self.name(), inner.join(", "))?;
                match self {
                    Self::RandomApply { p, .. } => write!(f, ", p={p})"),
                    Self::RandomChoice { p: Some(p), .. } => write!(f, ", p={})", Tuple(p)),
                    _ => f.write_str(")"),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mix(alpha: f64) -> Mix {
        Mix { alpha, num_classes: Some(3), labels_getter: default_labels() }
    }

    fn drawn(mixing: &Mixing, index: u64) -> Vec<Blend> {
        let mut blends = Vec::new();
        mixing.draw((20, 30), &mut Rng::for_stage(1, 0, index, 0), &mut blends);
        blends
    }

    #[test]
    fn moments_are_those_of_the_beta_distribution() {
        for alpha in [0.05, 0.2, 0.8, 1.0, 2.0, 9.0] {
            let n = 20_000;
            let values: Vec<f64> =
                (0..n).map(|index| beta(alpha, &mut Rng::for_stage(3, 0, index, 0))).collect();
            assert!(values.iter().all(|v| (0.0..=1.0).contains(v)));
            let mean = values.iter().sum::<f64>() / n as f64;
            let variance = values.iter().map(|v| (v - 0.5).powi(2)).sum::<f64>() / n as f64;
            let expected = 1.0 / (4.0 * (2.0 * alpha + 1.0));
            assert!((mean - 0.5).abs() < 0.015, "alpha {alpha}: mean {mean}");
            assert!((variance / expected - 1.0).abs() < 0.05, "alpha {alpha}: {variance}, not {expected}");
        }
    }

    #[test]
    fn rectangles_lie_in_the_image_and_have_the_area_that_is_missing() {
        let cutmix = Mixing::CutMix(mix(1.0));
        let mut centres = [0_u32; 2];
        for index in 0..2000 {
            let [Blend::Box { corners: [x1, y1, x2, y2], lam }] = drawn(&cutmix, index)[..] else {
                panic!("a box")
            };
            assert!(x1 <= x2 && x2 <= 30 && y1 <= y2 && y2 <= 20);
            assert_eq!(lam, 1.0 - ((x2 - x1) * (y2 - y1)) as f64 / 600.0);
            centres[usize::from(x1 + x2 > 30)] += 1;
        }
        assert!(centres.iter().all(|n| *n > 850), "{centres:?}");
    }

    #[test]
    fn one_of_several_and_sometimes() {
        let both = vec![Mixing::CutMix(mix(1.0)), Mixing::MixUp(mix(1.0))];
        let count = |mixing: &Mixing| {
            (0..2000).filter(|i| matches!(drawn(mixing, *i)[..], [Blend::Sum { .. }])).count()
        };
        let choice = Mixing::RandomChoice { transforms: both.clone(), p: None };
        assert!((900..1100).contains(&count(&choice)));
        let weighted = Mixing::RandomChoice { transforms: both.clone(), p: Some(vec![3.0, 1.0]) };
        assert!((430..570).contains(&count(&weighted)));
        let apply = Mixing::RandomApply { transforms: both.clone(), p: 0.25 };
        let applied = (0..2000).filter(|i| drawn(&apply, *i).len() == 2).count();
        assert!((430..570).contains(&applied));
        assert_eq!(drawn(&Mixing::Compose { transforms: both }, 0).len(), 2);
    }

    #[test]
    fn parameters_are_checked() {
        let says = |mixing: Mixing| mixing.check().unwrap_err().message().to_owned();
        for alpha in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(says(Mixing::MixUp(mix(alpha))).starts_with("alpha is"));
        }
        assert!(
            says(Mixing::CutMix(Mix { num_classes: Some(0), ..mix(1.0) })).starts_with("num_classes is 0")
        );
        assert!(says(Mixing::Compose { transforms: vec![] }).starts_with("transforms is empty"));
        let one = || vec![Mixing::MixUp(mix(1.0))];
        assert!(says(Mixing::RandomApply { transforms: one(), p: 2.0 }).starts_with("p is 2"));
        assert!(says(Mixing::RandomChoice { transforms: one(), p: Some(vec![]) }).starts_with("p has 0"));
        assert!(says(Mixing::RandomChoice { transforms: one(), p: Some(vec![0.0]) }).starts_with("p is"));
        let json = r#"{"type":"MixUp","alpha":1.0,"beta":2}"#;
        assert!(serde_json::from_str::<Mixing>(json).is_err());
    }
}
