//! `RandomChoice`: one of several transforms.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Action, Class, Operation, Shape, Size, Takes, Transform, nested, param::Tuple};
use crate::{Error, Result, rng::Rng};

/// Applies one of `transforms`, drawn with the weights `p`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomChoice {
    /// What to choose from: transforms of colour, blur, rotation and the like; see the module `nested`.
    pub transforms: Vec<Transform>,
    /// A weight for each transform, at least 0, not all of them 0. Default: all are equally likely.
    #[serde(default)]
    pub p: Option<Vec<f64>>,
}

impl RandomChoice {
    /// Applies one of `transforms`, each as likely as the others.
    pub fn new(transforms: impl IntoIterator<Item = Transform>) -> Self {
        Self { transforms: transforms.into_iter().collect(), p: None }
    }

    /// Sets the weights.
    #[must_use]
    pub fn p(mut self, p: impl IntoIterator<Item = f64>) -> Self {
        self.p = Some(p.into_iter().collect());
        self
    }

    fn choose(&self, rng: &mut Rng) -> usize {
        match &self.p {
            None => rng.below(self.transforms.len() as u64) as usize,
            Some(p) => rng.weighted(p),
        }
    }
}

impl fmt::Display for RandomChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let p = self.p.as_ref().map(|p| Tuple(p).to_string());
        nested::show(f, "RandomChoice", p.as_ref().map(|p| p as &dyn fmt::Display), &self.transforms)
    }
}

impl Operation for RandomChoice {
    fn check(&self) -> Result<()> {
        nested::check("RandomChoice", &self.transforms)?;
        let Some(p) = &self.p else { return Ok(()) };
        if p.len() != self.transforms.len() {
            let (weights, transforms) = (p.len(), self.transforms.len());
            return Err(Error::config(format!("p has {weights} numbers for {transforms} transforms")));
        }
        let sum: f64 = p.iter().sum();
        if p.iter().all(|&weight| weight >= 0.0) && sum > 0.0 && sum.is_finite() {
            return Ok(());
        }
        Err(Error::config(format!("p is {}; no number may be negative, and not all 0", Tuple(p))))
    }

    fn class(&self) -> Class {
        Class::Image
    }

    fn takes(&self) -> Takes {
        nested::takes(&self.transforms)
    }

    fn draws_by_size(&self) -> bool {
        nested::draws_by_size(&self.transforms)
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        nested::fixed_size(&self.transforms, input)
    }

    fn draw(&self, size: Size, rng: &mut Rng) -> Result<Action> {
        let chosen = self.choose(rng);
        nested::draw([&self.transforms[chosen]], size, rng)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Identity, RandomInvert, testing::*},
        *,
    };

    fn among(n: usize) -> RandomChoice {
        RandomChoice::new((0..n).map(|_| Identity::new().into()))
    }

    #[test]
    fn choices_follow_their_weights() {
        let counts = |choice: RandomChoice| {
            let mut counts = vec![0u64; choice.transforms.len()];
            (0..20_000).for_each(|index| counts[choice.choose(&mut rng(index))] += 1);
            counts
        };
        assert_uniform_counts(&counts(among(7)));
        let weighted = counts(among(4).p([1.0, 0.0, 3.0, 0.0]));
        assert_eq!((weighted[1], weighted[3]), (0, 0));
        assert_probability(weighted[2] as usize, 20_000, 0.75);
    }

    #[test]
    fn parameters_are_checked() {
        assert_eq!(check_error(among(2).p([1.0])), "p has 1 numbers for 2 transforms");
        for p in [[0.0, 0.0], [1.0, -1.0], [f64::NAN, 1.0], [f64::INFINITY, 1.0]] {
            assert!(check_error(among(2).p(p)).contains("no number may be negative, and not all 0"));
        }
        assert!(check_error(among(0)).starts_with("transforms is empty"));
    }

    #[test]
    fn it_reads_and_shows_as_in_torchvision() {
        let json = r#"{"type":"RandomChoice","transforms":[{"type":"RandomInvert","p":1}],"p":[2]}"#;
        assert_eq!(read(json), RandomChoice::new([RandomInvert::new().p(1.0).into()]).p([2.0]).into());
        assert_eq!(read(json).to_string(), "RandomChoice(\n    p=(2.0)\n    RandomInvert(p=1)\n)");
    }
}
