//! `Compose`: several transforms, one after the other.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Action, Class, Operation, Shape, Size, Transform};
use crate::{Error, ErrorKind, Result, rng::Rng};

/// Applies transforms in order. May be nested; [`Transform::flatten`] takes it apart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compose {
    /// What to apply.
    pub transforms: Vec<Transform>,
}

impl Compose {
    /// Applies `transforms` in order.
    pub fn new(transforms: impl IntoIterator<Item = Transform>) -> Self {
        Self { transforms: transforms.into_iter().collect() }
    }

    /// Adds a transform at the end.
    #[must_use]
    pub fn then(mut self, transform: impl Into<Transform>) -> Self {
        self.transforms.push(transform.into());
        self
    }
}

/// One transform a line, as torchvision prints it.
impl fmt::Display for Compose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Compose(\n")?;
        for transform in &self.transforms {
            writeln!(f, "      {transform}")?;
        }
        f.write_str(")")
    }
}

impl Operation for Compose {
    fn check(&self) -> Result<()> {
        for transform in &self.transforms {
            let checked = transform.as_operation().check();
            match transform {
                Transform::Compose(_) => checked?,
                _ => checked.map_err(|e| e.with_stage(transform.name()))?,
            }
        }
        Ok(())
    }

    fn class(&self) -> Class {
        Class::Compose
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        self.transforms.iter().fold(input, |shape, transform| transform.as_operation().fixed_size(shape))
    }

    /// Always fails: several transforms are not one action.
    fn draw(&self, _size: Size, _rng: &mut Rng) -> Result<Action> {
        Err(Error::new(ErrorKind::Internal, "a Compose cannot be drawn as one; it must be flattened first"))
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{CenterCrop, RandomCrop, RandomHorizontalFlip, Resize, ToImage, testing::*},
        *,
    };

    fn nested() -> Compose {
        let inner = Compose::default().then(CenterCrop::new(3)).then(Compose::default());
        Compose::new([ToImage::new().into()]).then(inner).then(RandomHorizontalFlip::default())
    }

    #[test]
    fn flattening_keeps_the_order_and_drops_the_nesting() {
        let names: Vec<_> = Transform::flatten(&[nested().into()]).iter().map(|t| t.name()).collect();
        assert_eq!(names, ["ToImage", "CenterCrop", "RandomHorizontalFlip"]);
        assert_eq!(Compose::default().draw(size(1, 1), &mut rng(0)).unwrap_err().kind(), ErrorKind::Internal);
    }

    #[test]
    fn a_failed_check_names_the_transform_inside() {
        let bad = Compose::default().then(Compose::default().then(RandomHorizontalFlip::new(7.0)));
        assert_eq!(
            bad.check().unwrap_err().to_string(),
            "p is 7; must be 0 to 1 (stage RandomHorizontalFlip)"
        );
        assert!(nested().check().is_ok());
    }

    #[test]
    fn the_size_goes_through_all_of_it() {
        let input = Shape { height: None, width: None, channels: 3 };
        let compose = Compose::default().then(Resize::new(256)).then(RandomCrop::new(224));
        assert_eq!(compose.fixed_size(input), Shape { height: Some(224), width: Some(224), channels: 3 });
    }

    #[test]
    fn it_reads_and_shows_as_in_torchvision() {
        let json = r#"{"type":"Compose","transforms":[{"type":"CenterCrop","size":3},{"type":"ToImage"}]}"#;
        assert_eq!(read(json).to_string(), "Compose(\n      CenterCrop(size=(3, 3))\n      ToImage()\n)");
        let e = refuse(r#"{"type":"Compose","transforms":[{"type":"CenterCrop","size":"big","extra":0}]}"#);
        assert!(e.contains("Compose: transforms: CenterCrop: "), "{e}");
        assert!(refuse(r#"{"type":"Blur"}"#).contains("unknown variant `Blur`, expected one of `AugMix`"));
        assert!(refuse("{}").contains("missing field `type`"));
    }
}
