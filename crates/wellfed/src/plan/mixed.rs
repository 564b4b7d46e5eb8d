//! Which fields of a batch are mixed: images and their labels.

use crate::{
    Error, Result,
    sample::{DType, FieldKind, Structure},
    transform::{DEFAULT_LABELS, Mixing},
};

/// One `map` of batches.
#[derive(Clone, Debug, PartialEq)]
pub struct Mixed {
    pub(crate) transforms: Vec<Mixing>,
    /// The field of the images, by its place in the batch.
    pub(crate) image: usize,
    /// That of the labels.
    pub(crate) label: usize,
}

impl Mixed {
    /// Finds the fields in batches with fields of these names and kinds, which are handed out in `structure`.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] where there are none, or more than what is mixed would have to be.
    pub(crate) fn new(
        transforms: &[Mixing],
        (names, kinds): (&[String], &[FieldKind]),
        structure: &Structure,
    ) -> Result<Self> {
        let Some(first) = transforms.first() else { return Err(Error::config("map() needs a transform")) };
        transforms.iter().try_for_each(Mixing::check)?;
        let name = first.name();
        let follows = |kind: &FieldKind| {
            matches!(
                kind,
                FieldKind::Mask { .. }
                    | FieldKind::Boxes { .. }
                    | FieldKind::BoxLabels { .. }
                    | FieldKind::Keypoints
            )
        };
        if let Some(at) = kinds.iter().position(follows) {
            return Err(Error::config(format!(
                "{name} does not support bounding boxes, keypoints and masks, and there is {:?}",
                names[at]
            )));
        }
        let mut label = None;
        for (mix, _) in transforms.iter().flat_map(Mixing::mixes) {
            let found = labels(&mix.labels_getter, names, structure).map_err(|e| e.with_stage(name))?;
            if *label.get_or_insert(found) != found {
                return Err(Error::config(format!("{name}: labels_getter names several fields")));
            }
        }
        let label = label.ok_or_else(|| Error::config(format!("{name} has nothing to do")))?;
        let places = |wanted: &dyn Fn(&FieldKind) -> bool| -> Vec<usize> {
            (0..kinds.len()).filter(|at| *at != label && wanted(&kinds[*at])).collect()
        };
        let mut images = places(&|kind| matches!(kind, FieldKind::Image | FieldKind::Pixels { .. }));
        if images.is_empty() {
            images = places(&|kind| matches!(kind, FieldKind::Array { shape, .. } if shape.len() == 3));
        }
        match images[..] {
            [image] => Ok(Self { transforms: transforms.to_vec(), image, label }),
            [] => Err(Error::config(format!("{name}: there is no field of images; fields are {:?}", names))),
            _ => Err(Error::config(format!(
                "{name}: there are {} fields of images, and mixing one would leave the others",
                images.len()
            ))),
        }
    }
}

/// The field of the labels. By torchvision's rule: the second part of a pair; or in a dict, which may be that part, the first
/// key that is "labels", else the first that has "label" in it, whatever their case.
fn labels(getter: &str, names: &[String], structure: &Structure) -> Result<usize> {
    if getter != DEFAULT_LABELS {
        return names.iter().position(|name| name == getter).ok_or_else(|| {
            Error::config(format!("labels_getter: there is no field {getter:?}; fields are {:?}", names))
        });
    }
    let dict = |items: &[(String, Structure)]| {
        let exact = items.iter().find(|(key, _)| key.eq_ignore_ascii_case("labels"));
        let found = exact.or_else(|| items.iter().find(|(key, _)| key.to_lowercase().contains("label")));
        match found {
            Some((_, Structure::Field(at))) => Some(*at),
            _ => None,
        }
    };
    let found = match structure {
        Structure::Tuple(parts) | Structure::List(parts) => match &parts[..] {
            [_, Structure::Field(at)] => Some(*at),
            [_, Structure::Dict(items)] => dict(items),
            _ => None,
        },
        Structure::Dict(items) => dict(items),
        Structure::Field(_) => None,
    };
    found.ok_or_else(|| {
        Error::config("it could not be inferred which field has the labels")
            .with_hint("labels_getter=\"...\" names the field")
    })
}

/// Whether labels of this kind are indices of classes.
pub(crate) fn are_indices(dtype: DType, shape: &[usize]) -> bool {
    dtype == DType::Int64 && shape.is_empty()
}
