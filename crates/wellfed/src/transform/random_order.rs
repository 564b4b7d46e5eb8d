//! `RandomOrder`: several transforms in random order.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Action, Class, Operation, Shape, Size, Takes, Transform, nested};
use crate::{Result, rng::Rng};

/// Applies all of `transforms`, in an order drawn uniformly.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomOrder {
    /// What to apply: transforms of colour, blur, rotation and the like; see the module `nested`.
    pub transforms: Vec<Transform>,
}

impl RandomOrder {
    /// Applies `transforms`.
    pub fn new(transforms: impl IntoIterator<Item = Transform>) -> Self {
        Self { transforms: transforms.into_iter().collect() }
    }
}

impl fmt::Display for RandomOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        nested::show(f, "RandomOrder", None, &self.transforms)
    }
}

impl Operation for RandomOrder {
    fn check(&self) -> Result<()> {
        nested::check("RandomOrder", &self.transforms)
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
        let mut order: Vec<&Transform> = self.transforms.iter().collect();
        rng.shuffle(&mut order);
        nested::draw(order, size, rng)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{RandomEqualize, RandomInvert, RandomPosterize, testing::*},
        *,
    };

    #[test]
    fn all_orders_are_equally_likely() {
        let order = RandomOrder::new([
            RandomInvert::new().p(1.0).into(),
            RandomPosterize::new(3).p(1.0).into(),
            RandomEqualize::new().p(1.0).into(),
        ]);
        let mut counts = std::collections::HashMap::new();
        for action in draws(order, size(4, 4), 12_000) {
            *counts.entry(format!("{action:?}")).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 6);
        assert_uniform_counts(&counts.into_values().collect::<Vec<_>>());
    }

    #[test]
    fn it_reads_and_shows_as_in_torchvision() {
        let json = r#"{"type":"RandomOrder","transforms":[{"type":"RandomInvert"}]}"#;
        assert_eq!(read(json).to_string(), "RandomOrder(\n    RandomInvert(p=0.5)\n)");
        assert!(check_error(RandomOrder::new([])).starts_with("transforms is empty"));
    }
}
