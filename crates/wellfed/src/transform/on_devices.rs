//! [`runs_on_devices`]: what may be left to a device after the first geometry of an image.

use super::Transform;

/// Whether recipes for devices have what the transform draws, or nearly all of it: what they do not have of a draw
/// (sharpness, OpenCV's resizes) is done by the host for that sample.
pub(crate) fn runs_on_devices(transform: &Transform) -> bool {
    match transform {
        Transform::RandomApply(of) => of.transforms.iter().all(runs_on_devices),
        Transform::RandomChoice(of) => of.transforms.iter().all(runs_on_devices),
        Transform::RandomOrder(of) => of.transforms.iter().all(runs_on_devices),
        Transform::Compose(of) => of.transforms.iter().all(runs_on_devices),
        Transform::ColorJitter(_)
        | Transform::Grayscale(_)
        | Transform::RandomGrayscale(_)
        | Transform::RandomPhotometricDistort(_)
        | Transform::RandomInvert(_)
        | Transform::RandomPosterize(_)
        | Transform::RandomSolarize(_)
        | Transform::RandomAutocontrast(_)
        | Transform::RandomEqualize(_)
        | Transform::RandomErasing(_)
        | Transform::CoarseDropout(_)
        | Transform::GaussianBlur(_)
        | Transform::RandomRotation(_)
        | Transform::RandomAffine(_)
        | Transform::RandAugment(_)
        | Transform::TrivialAugmentWide(_)
        | Transform::AutoAugment(_) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{GaussianBlur, RandomAdjustSharpness, RandomApply},
        *,
    };

    #[test]
    fn containers_run_where_all_of_theirs_do() {
        let blur = || Transform::from(GaussianBlur::new(3));
        let sharp = Transform::from(RandomAdjustSharpness { sharpness_factor: 2.0, p: 0.5 });
        assert!(runs_on_devices(&blur()) && !runs_on_devices(&sharp));
        assert!(runs_on_devices(&RandomApply::new([blur()], 0.5).into()));
        assert!(!runs_on_devices(&RandomApply::new([blur(), sharp], 0.5).into()));
    }
}
