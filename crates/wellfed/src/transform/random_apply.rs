//! `RandomApply`: several transforms, sometimes.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Action, Class, Operation, Shape, Size, Takes, Transform, nested, param::check_probability};
use crate::{Result, rng::Rng};

/// Applies all of `transforms` in order with probability `p`, or none of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomApply {
    /// What to apply: transforms of colour, blur, rotation and the like; see the module `nested`.
    pub transforms: Vec<Transform>,
    /// Probability, 0 to 1; 0.5 by default.
    #[serde(default = "half")]
    pub p: f64,
}

fn half() -> f64 {
    0.5
}

impl RandomApply {
    /// Applies `transforms` with probability `p`.
    pub fn new(transforms: impl IntoIterator<Item = Transform>, p: f64) -> Self {
        Self { transforms: transforms.into_iter().collect(), p }
    }
}

impl fmt::Display for RandomApply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        nested::show(f, "RandomApply", Some(&self.p), &self.transforms)
    }
}

impl Operation for RandomApply {
    fn check(&self) -> Result<()> {
        check_probability(self.p)?;
        nested::check("RandomApply", &self.transforms)
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
        let chosen = if rng.chance(self.p) { &self.transforms[..] } else { &[] };
        nested::draw(chosen, size, rng)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            ColorJitter, Compose, GaussianBlur, Grayscale, Identity, RandAugment, RandomAffine, RandomInvert,
            RandomResizedCrop, RandomRotation, testing::*,
        },
        *,
    };

    #[test]
    fn they_are_applied_with_probability_p() {
        for p in [0.0, 0.8, 1.0] {
            let apply = RandomApply::new([ColorJitter::new().brightness(0.4).into()], p);
            let hits = draws(apply, size(4, 4), 20_000).filter(|action| *action != Action::Keep).count();
            assert_probability(hits, 20_000, p);
        }
    }

    #[test]
    fn all_of_them_are_applied_in_order() {
        let blur = || Transform::from(GaussianBlur::new(3).sigma([1.0, 1.0]));
        let invert = || RandomInvert::new().p(1.0).into();
        let inner = Compose::default().then(blur()).then(Identity::new());
        let apply = RandomApply::new([inner.into(), invert()], 1.0);
        let drawn = apply.draw(size(9, 9), &mut rng(0)).unwrap();
        let same = RandomApply::new([blur(), invert()], 1.0).draw(size(9, 9), &mut rng(0)).unwrap();
        let other = RandomApply::new([invert(), blur()], 1.0).draw(size(9, 9), &mut rng(0)).unwrap();
        assert_eq!(drawn, same);
        assert_ne!(drawn, other);
    }

    #[test]
    fn what_is_no_action_on_images_is_refused() {
        let e = check_error(RandomApply::new([RandomResizedCrop::new(8).into()], 0.5));
        assert_eq!(e, "RandomResizedCrop cannot stand in RandomApply");
        assert!(check_error(RandomApply::new([], 0.5)).starts_with("transforms is empty"));
        assert_eq!(check_error(RandomApply::new([Identity::new().into()], 2.0)), "p is 2; must be 0 to 1");
        assert!(
            check_error(RandomApply::new([RandomInvert::new().p(3.0).into()], 0.5)).starts_with("p is 3")
        );
        let gray = RandomApply::new([Grayscale::new(1).into()], 1.0);
        let e = gray.draw(size(3, 3), &mut rng(0)).unwrap_err();
        assert_eq!(e.message(), "the image would have 1 channels instead of 3, but only sometimes");
    }

    #[test]
    fn it_works_on_what_they_work_on() {
        let takes = |transform: Transform| RandomApply::new([Identity::new().into(), transform], 0.5).takes();
        assert_eq!(takes(RandomInvert::new().into()), Takes::Images);
        assert_eq!(takes(RandomAffine::new(3.0).into()), Takes::Geometry);
        assert_eq!(takes(RandAugment::new().into()), Takes::ImagesAlone);
        let shape = Shape { height: Some(10), width: Some(20), channels: 3 };
        let rotation = RandomRotation::new(30.0).expand(true);
        let apply = RandomApply::new([rotation.into()], 0.5);
        assert_eq!(apply.fixed_size(shape), Shape { height: None, width: None, ..shape });
    }

    #[test]
    fn it_reads_and_shows_as_in_torchvision() {
        let json = r#"{"type":"RandomApply","transforms":[{"type":"RandomInvert"}]}"#;
        assert_eq!(read(json).to_string(), "RandomApply(\n    p=0.5\n    RandomInvert(p=0.5)\n)");
    }
}
