//! The transforms that `--pipeline` names.

use clap::ValueEnum;
use serde::Serialize;
use wellfed::{
    sample::{FieldKind, Schema},
    transform::{
        AmplitudeToDB, CenterCrop, ImageDtype, MelSpectrogram, Normalize, RandomCrop, RandomHorizontalFlip,
        RandomResizedCrop, Resample, Resize, ToDtype, ToMono, Transform,
    },
};

/// Sides of training images: those of torchvision's classification recipes.
const CROP: usize = 224;
/// Shorter side before the crop of the evaluation.
const RESIZE: usize = 256;

/// A usual list of transforms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Pipeline {
    /// RandomResizedCrop 224, horizontal flip, float32, normalize
    ImagenetTrain,
    /// Resize 256, CenterCrop 224, float32, normalize
    ImagenetEval,
    /// RandomCrop with padding 4 (32 pixels, or the size of the images), horizontal flip, float32, normalize
    Cifar,
    /// Of sounds: one channel, 16 kHz, mel spectrogram of 128 bins, decibels
    Speech,
}

impl Pipeline {
    /// The one that suits `schema`: small arrays are trained on as CIFAR is. `None` without images and sounds.
    pub(crate) fn for_schema(schema: &Schema) -> Option<Self> {
        let has = |wanted: &FieldKind| schema.fields.iter().any(|field| field.kind == *wanted);
        match () {
            () if pixels(schema).is_some() => Some(Self::Cifar),
            () if has(&FieldKind::Image) => Some(Self::ImagenetTrain),
            () => has(&FieldKind::Audio).then_some(Self::Speech),
        }
    }

    /// Whether it is one for sounds.
    pub(crate) fn is_of_sounds(self) -> bool {
        self == Self::Speech
    }

    /// Its name on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Its transforms for samples of `schema`.
    pub(crate) fn transforms(self, schema: &Schema) -> Vec<Transform> {
        let (side, channels) = pixels(schema).unwrap_or((32, 3));
        let cast = ToDtype::new(ImageDtype::Float32).scale(true).into();
        // Statistics of ImageNet, CIFAR-10 and MNIST, as published with torchvision's and PyTorch's examples.
        let normalize = match (self, channels) {
            (_, 1) => Normalize::new(0.1307, 0.3081),
            (Self::Cifar, _) => Normalize::new([0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]),
            _ => Normalize::new([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        }
        .into();
        let flip = || RandomHorizontalFlip::default().into();
        match self {
            Self::ImagenetTrain => vec![RandomResizedCrop::new(CROP).into(), flip(), cast, normalize],
            Self::ImagenetEval => {
                vec![Resize::new(RESIZE).into(), CenterCrop::new(CROP).into(), cast, normalize]
            }
            Self::Speech => vec![
                ToMono::default().into(),
                Resample::new(16_000).into(),
                MelSpectrogram::default().into(),
                AmplitudeToDB::default().into(),
            ],
            Self::Cifar => vec![RandomCrop::new(side).padding(4).into(), flip(), cast, normalize],
        }
    }
}

/// Shorter side and channels of images that are arrays already.
fn pixels(schema: &Schema) -> Option<(usize, usize)> {
    schema.fields.iter().find_map(|field| match field.kind {
        FieldKind::Pixels { height, width, channels, .. } => Some((height.min(width), channels)),
        _ => None,
    })
}
