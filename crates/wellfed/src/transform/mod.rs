//! Image transforms with torchvision v2's names, parameters, defaults and meaning, and some with Albumentations' and timm's;
//! transforms of sounds with torchaudio's ([`audio`]).
//!
//! A transform is one file: its parameters (data, serde), its check, its draw and its tests. Drawing is apart
//! from doing: [`Operation::draw`] looks only at the size of the image and at counter-based random numbers, and
//! gives an [`Action`] whose every number is settled. Since sizes come from the header, a whole chain can be
//! drawn before a single pixel is decoded; [`crate::plan`] uses that to decode and resample only what is needed.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::{Map, Value};

pub use crate::codec::Rect;
use crate::{Result, rng::Rng};

mod action;
mod adjustment;
pub mod audio;
mod aug_mix;
mod augment;
mod auto_augment;
mod bounding_boxes;
pub(crate) mod boxes;
mod center_crop;
mod center_crop_or_pad;
mod center_crop_to_sequence;
mod coarse_dropout;
mod color_jitter;
mod compose;
mod crop_or_pad;
mod crops;
mod elastic_transform;
mod filters;
mod five_crop;
mod floor_center_crop;
mod gaussian_blur;
mod gaussian_noise;
mod grayscale;
mod hue_saturation_value;
mod identity;
mod image_action;
mod jpeg;
mod max_size;
mod mixing;
mod named;
mod nested;
mod normalize;
mod normalize_by_reciprocal;
mod on_devices;
mod opencv_affine;
mod opencv_color_jitter;
mod pad;
mod param;
mod patches;
mod per_channel;
mod pil_to_tensor;
#[cfg(test)]
mod properties;
mod rand_augment;
mod random_adjust_sharpness;
mod random_affine;
mod random_apply;
mod random_autocontrast;
mod random_brightness_contrast;
mod random_choice;
mod random_crop;
mod random_crop_or_pad;
mod random_crop_to_sequence;
mod random_equalize;
mod random_erasing;
mod random_grayscale;
mod random_horizontal_flip;
mod random_invert;
mod random_iou_crop;
mod random_order;
mod random_perspective;
mod random_photometric_distort;
mod random_posterize;
mod random_resize;
mod random_resized_crop;
mod random_resized_crop_to_sequence;
mod random_rotation;
mod random_scale;
mod random_shortest_size;
mod random_solarize;
mod random_vertical_flip;
mod random_zoom_out;
mod ratio_jitter;
mod resize;
mod resize_keep_ratio;
mod resize_keep_ratio_to_sequence;
mod resize_to_sequence;
mod scale_jitter;
mod sequence;
mod ten_crop;
mod tensorflow_layers;
mod tensorflow_ops;
#[cfg(test)]
mod testing;
mod timm_augment;
mod timm_op;
mod to_dtype;
mod to_image;
mod to_tensor;
mod trim_border;
mod trivial_augment_wide;

pub use action::{Action, EraseValue, Noise, Patch};
pub use audio::{
    AddNoise, AmplitudeToDB, Convolve, Fade, FrequencyMasking, KaldiFbank, KaldiMFCC, LFCC, MFCC, MelScale,
    MelSpectrogram, MuLawDecoding, MuLawEncoding, PadOrTrim, PitchShift, RandomSegment, Resample,
    SpecAugment, Spectrogram, Speed, SpeedPerturbation, Standardize, TimeFirst, TimeMasking, TimeStretch,
    ToMono, Vad, Vol, WhisperLogMel,
};
pub use aug_mix::{AugMix, Version};
pub use augment::Thresholds;
pub use auto_augment::{AutoAugment, AutoAugmentPolicy};
pub use bounding_boxes::{ClampBoundingBoxes, ConvertBoundingBoxFormat, Labels, SanitizeBoundingBoxes};
pub use center_crop::CenterCrop;
pub use center_crop_or_pad::CenterCropOrPad;
pub use center_crop_to_sequence::CenterCropToSequence;
pub use coarse_dropout::CoarseDropout;
pub use color_jitter::{ColorJitter, ColorStep, ColorSteps};
pub use compose::Compose;
pub use crops::{Crops, Mirror};
pub use elastic_transform::ElasticTransform;
pub use filters::Filters;
pub use five_crop::FiveCrop;
pub use floor_center_crop::FloorCenterCrop;
pub use gaussian_blur::GaussianBlur;
pub use gaussian_noise::{AddedNoise, GaussianNoise};
pub use grayscale::Grayscale;
pub use hue_saturation_value::HueSaturationValue;
pub use identity::Identity;
pub use image_action::{ImageAction, ImageMemory, PointMove};
pub use jpeg::JPEG;
pub use max_size::MaxSize;
pub use mixing::{Blend, DEFAULT_LABELS, Mix, Mixing};
pub use normalize::Normalize;
pub use normalize_by_reciprocal::NormalizeByReciprocal;
pub(crate) use on_devices::runs_on_devices;
pub use opencv_affine::OpenCvAffine;
pub use opencv_color_jitter::OpenCvColorJitter;
pub use pad::Pad;
pub use param::{Padding, Sides, Spread};
pub use per_channel::PerChannel;
pub use pil_to_tensor::PILToTensor;
pub use rand_augment::RandAugment;
pub use random_adjust_sharpness::RandomAdjustSharpness;
pub use random_affine::{RandomAffine, Shear};
pub use random_apply::RandomApply;
pub use random_autocontrast::RandomAutocontrast;
pub use random_brightness_contrast::RandomBrightnessContrast;
pub use random_choice::RandomChoice;
pub use random_crop::RandomCrop;
pub use random_crop_or_pad::RandomCropOrPad;
pub use random_crop_to_sequence::RandomCropToSequence;
pub use random_equalize::RandomEqualize;
pub use random_erasing::{Erasure, RandomErasing};
pub use random_grayscale::RandomGrayscale;
pub use random_horizontal_flip::RandomHorizontalFlip;
pub use random_invert::RandomInvert;
pub use random_iou_crop::RandomIoUCrop;
pub use random_order::RandomOrder;
pub use random_perspective::RandomPerspective;
pub use random_photometric_distort::RandomPhotometricDistort;
pub use random_posterize::RandomPosterize;
pub use random_resize::RandomResize;
pub use random_resized_crop::RandomResizedCrop;
pub use random_resized_crop_to_sequence::RandomResizedCropToSequence;
pub use random_rotation::RandomRotation;
pub use random_scale::RandomScale;
pub use random_shortest_size::RandomShortestSize;
pub use random_solarize::RandomSolarize;
pub use random_vertical_flip::RandomVerticalFlip;
pub use random_zoom_out::RandomZoomOut;
pub use resize::{Resize, ResizeTo};
pub use resize_keep_ratio::ResizeKeepRatio;
pub use resize_keep_ratio_to_sequence::ResizeKeepRatioToSequence;
pub use resize_to_sequence::ResizeToSequence;
pub use scale_jitter::ScaleJitter;
pub use ten_crop::TenCrop;
pub use tensorflow_layers::{TfFillMode, TfSampling};
pub(crate) use tensorflow_ops::step;
pub use tensorflow_ops::{TensorFlowOps, TfArithmetic, TfOp, TfResize};
pub use timm_augment::{TimmAugment, TimmMix};
pub use timm_op::{TimmKind, TimmOp};
pub use to_dtype::ToDtype;
pub use to_image::ToImage;
pub use to_tensor::ToTensor;
pub use trim_border::TrimBorder;
pub use trivial_augment_wide::TrivialAugmentWide;

/// Size of an image: what a draw may look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
    /// Channels, 1 to 4.
    pub channels: usize,
}

/// What is known of an image's size for all samples: a side is `None` where it differs from sample to sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Rows.
    pub height: Option<usize>,
    /// Columns.
    pub width: Option<usize>,
    /// Channels.
    pub channels: usize,
}

/// How pixels between pixels are found, named as torchvision's `InterpolationMode` values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Interpolation {
    /// Pillow's NEAREST.
    #[serde(rename = "nearest")]
    Nearest,
    /// Nearest with the exact pixel centre (torch's `nearest-exact`).
    #[serde(rename = "nearest-exact")]
    NearestExact,
    /// Pillow's NEAREST, of masks as well, which other filters resize as torchvision does.
    #[serde(rename = "pillow-nearest")]
    PillowNearest,
    /// torch's `nearest`, which torchvision resizes masks with. No transform can ask for it.
    #[serde(skip)]
    NearestCorner,
    /// Triangle filter, antialiased when shrinking.
    #[default]
    #[serde(rename = "bilinear")]
    Bilinear,
    /// Cubic filter with a = -0.5, antialiased when shrinking.
    #[serde(rename = "bicubic")]
    Bicubic,
    /// Lanczos with three lobes, antialiased when shrinking.
    #[serde(rename = "lanczos")]
    Lanczos,
    /// `cv2.INTER_NEAREST`. Transforms that resize take it and the next three, no others.
    #[serde(rename = "opencv-nearest")]
    OpenCvNearest,
    /// `cv2.INTER_LINEAR`: never antialiased.
    #[serde(rename = "opencv-linear")]
    OpenCvLinear,
    /// `cv2.INTER_AREA`.
    #[serde(rename = "opencv-area")]
    OpenCvArea,
    /// Bilinear with the pixels that torchvision v2 makes of 8-bit tensors, antialiased. Transforms that resize take it and
    /// the next one, no others.
    #[serde(rename = "torch-bilinear")]
    TorchBilinear,
    /// Bicubic with the pixels that torchvision v2 makes of 8-bit tensors, antialiased.
    #[serde(rename = "torch-bicubic")]
    TorchBicubic,
    /// `cv2.INTER_AREA` where a side becomes shorter, else `cv2.INTER_LINEAR`: Albumentations' `area_for_downscale`.
    #[serde(rename = "opencv-linear-area")]
    OpenCvLinearArea,
}

impl Interpolation {
    /// Whether pixels are torch's, and not Pillow's.
    pub(crate) fn is_torch(self) -> bool {
        matches!(self, Interpolation::TorchBilinear | Interpolation::TorchBicubic)
    }

    /// Whether pixels are OpenCV's, and not Pillow's.
    pub(crate) fn is_opencv(self) -> bool {
        matches!(
            self,
            Interpolation::OpenCvNearest
                | Interpolation::OpenCvLinear
                | Interpolation::OpenCvArea
                | Interpolation::OpenCvLinearArea
        )
    }
}

impl fmt::Display for Interpolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Interpolation::Nearest | Interpolation::NearestCorner => "nearest",
            Interpolation::PillowNearest => "pillow-nearest",
            Interpolation::NearestExact => "nearest-exact",
            Interpolation::Bilinear => "bilinear",
            Interpolation::Bicubic => "bicubic",
            Interpolation::Lanczos => "lanczos",
            Interpolation::OpenCvNearest => "opencv-nearest",
            Interpolation::OpenCvLinear => "opencv-linear",
            Interpolation::OpenCvArea => "opencv-area",
            Interpolation::TorchBilinear => "torch-bilinear",
            Interpolation::TorchBicubic => "torch-bicubic",
            Interpolation::OpenCvLinearArea => "opencv-linear-area",
        })
    }
}

/// How the area outside an image is filled, named as torchvision's `padding_mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PaddingMode {
    /// With `fill`.
    #[default]
    Constant,
    /// With the nearest border pixel.
    Edge,
    /// Mirrored without repeating the border pixel.
    Reflect,
    /// Mirrored, repeating the border pixel.
    Symmetric,
}

impl fmt::Display for PaddingMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PaddingMode::Constant => "constant",
            PaddingMode::Edge => "edge",
            PaddingMode::Reflect => "reflect",
            PaddingMode::Symmetric => "symmetric",
        })
    }
}

/// Element type that [`ToDtype`] can make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the names are torch's")]
pub enum ImageDtype {
    UInt8,
    Float16,
    BFloat16,
    Float32,
}

impl fmt::Display for ImageDtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ImageDtype::UInt8 => "uint8",
            ImageDtype::Float16 => "float16",
            ImageDtype::BFloat16 => "bfloat16",
            ImageDtype::Float32 => "float32",
        })
    }
}

/// What a transform does to an image, without its numbers: what the optimizer looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// [`Action::Keep`] always.
    Identity,
    /// [`Action::Crop`], [`Action::CropAround`] or [`Action::PadCrop`].
    Crop,
    /// [`Action::Crops`]: so many images of one.
    Crops(usize),
    /// [`Action::Resize`].
    Resize,
    /// [`Action::Flip`].
    Flip,
    /// [`Action::Image`].
    Image,
    /// [`Action::Erase`].
    Erase,
    /// [`Action::Cast`].
    Cast,
    /// [`Action::AddNoise`].
    Noise,
    /// [`Action::Normalize`].
    Normalize,
    /// [`Action::TensorFlow`].
    TensorFlow,
    /// [`Operation::as_audio`]: what is done to sounds.
    Audio,
    /// [`Action::ClampBoxes`], [`Action::ConvertBoxes`], [`Action::SanitizeBoxes`]: what is done to boxes alone.
    Boxes,
    /// Several transforms. Only [`Compose`], which [`Transform::flatten`] takes apart before a plan is made.
    Compose,
}

/// Kinds of fields that an operation changes. Draws belong to the sample: all of its fields follow the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// Images only: colour, types, values.
    Images,
    /// Images, and only where there is nothing that would have to move with them: automatic augmentations, which
    /// torchvision does not define for masks, boxes and points either.
    ImagesAlone,
    /// Images, masks, boxes and points: geometry.
    Geometry,
    /// Boxes, and what belongs to them.
    Boxes,
    /// Sounds.
    Sounds,
    /// Images and sounds: types.
    Types,
}

/// One step on fields of a sample: what it takes, what it makes, and what it draws. What it draws says how it runs: an
/// [`Action`] that is plain data is folded with its neighbours by [`crate::engine`], an [`ImageAction`] brings its own
/// code.
///
/// All operations may also give [`Action::Keep`].
pub trait Operation {
    /// Checks parameters. Called once when a plan is made, so that draws need not fail for them.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`], naming the parameter, its value and what is allowed.
    fn check(&self) -> Result<()>;

    /// What it does, without numbers.
    fn class(&self) -> Class;

    /// The fields that it changes.
    fn takes(&self) -> Takes {
        match self.class() {
            Class::Identity | Class::Crop | Class::Resize | Class::Flip | Class::Compose => Takes::Geometry,
            Class::TensorFlow => Takes::ImagesAlone,
            Class::Image | Class::Erase | Class::Cast | Class::Noise | Class::Normalize | Class::Crops(_) => {
                Takes::Images
            }
            Class::Boxes => Takes::Boxes,
            Class::Audio => Takes::Sounds,
        }
    }

    /// What it does to sounds, if they are what it is for.
    fn as_audio(&self) -> Option<&dyn audio::AudioOperation> {
        None
    }

    /// Whether random numbers depend on the size of the image, so that fields of other sizes cannot follow its draw.
    fn draws_by_size(&self) -> bool {
        false
    }

    /// Whether its draws are meant to differ in size. Images that end so come as a list where others are stacked.
    fn leaves_size_open(&self) -> bool {
        false
    }

    /// Whether it looks at the boxes of the sample: then it is drawn by [`Operation::draw_around`].
    fn sees_boxes(&self) -> bool {
        false
    }

    /// Size of the result, if it is the same for every draw. In `input` a side is `None` if it differs from
    /// sample to sample.
    fn fixed_size(&self, input: Shape) -> Shape;

    /// Settles every number for an image of `size`.
    ///
    /// # Errors
    /// If the image cannot be transformed, as when a crop is larger than the image: with sizes, stage not set.
    fn draw(&self, size: Size, rng: &mut Rng) -> Result<Action>;

    /// As [`Operation::draw`], for an image with these boxes: left, top, right and bottom in its pixels.
    ///
    /// # Errors
    /// As [`Operation::draw`].
    fn draw_around(&self, size: Size, boxes: &[[f32; 4]], rng: &mut Rng) -> Result<Action> {
        let _ = boxes;
        self.draw(size, rng)
    }
}

/// Makes the enum of all transforms and everything that goes over all of them.
macro_rules! transforms {
    ($($name:ident),* $(,)?) => {
        /// Any transform, as data. In JSON its name is the field `type`, beside its parameters.
        #[derive(Clone, Debug, PartialEq, Serialize)]
        #[serde(tag = "type")]
        #[allow(missing_docs, reason = "each variant is documented at the type it holds")]
        pub enum Transform {
            $($name($name),)*
        }

        $(impl From<$name> for Transform {
            fn from(transform: $name) -> Self {
                Transform::$name(transform)
            }
        })*

        impl Transform {
            /// Names of all transforms.
            pub const NAMES: &[&str] = &[$(stringify!($name)),*];

            /// Its name, as in torchvision, torchaudio, Albumentations or timm.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Transform::$name(_) => stringify!($name),)*
                }
            }

            /// What it does.
            pub fn as_operation(&self) -> &dyn Operation {
                match self {
                    $(Transform::$name(transform) => transform,)*
                }
            }

            /// Reads the transform called `name` from its parameters, or `None` if there is none of this name.
            fn read(name: &str, parameters: &Map<String, Value>) -> Option<Result<Self, serde_json::Error>> {
                match name {
                    $(stringify!($name) => Some($name::deserialize(named::Fields::new(parameters)).map(Into::into)),)*
                    _ => None,
                }
            }
        }

        /// As torchvision's `repr`.
        impl fmt::Display for Transform {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Transform::$name(transform) => transform.fmt(f),)*
                }
            }
        }
    };
}

transforms! {
    AugMix,
    AutoAugment,
    CenterCrop,
    CenterCropOrPad,
    CenterCropToSequence,
    ClampBoundingBoxes,
    CoarseDropout,
    ColorJitter,
    Compose,
    ConvertBoundingBoxFormat,
    FiveCrop,
    FloorCenterCrop,
    ElasticTransform,
    GaussianBlur,
    GaussianNoise,
    Grayscale,
    HueSaturationValue,
    Identity,
    MaxSize,
    JPEG,
    Normalize,
    NormalizeByReciprocal,
    OpenCvAffine,
    OpenCvColorJitter,
    PILToTensor,
    Pad,
    RandAugment,
    RandomAdjustSharpness,
    RandomAffine,
    RandomApply,
    RandomAutocontrast,
    RandomBrightnessContrast,
    RandomChoice,
    RandomCrop,
    RandomCropOrPad,
    RandomCropToSequence,
    RandomEqualize,
    RandomErasing,
    RandomGrayscale,
    RandomHorizontalFlip,
    RandomInvert,
    RandomIoUCrop,
    RandomOrder,
    RandomPerspective,
    RandomPhotometricDistort,
    RandomPosterize,
    RandomResize,
    RandomResizedCrop,
    RandomResizedCropToSequence,
    RandomRotation,
    RandomScale,
    RandomShortestSize,
    RandomSolarize,
    RandomVerticalFlip,
    RandomZoomOut,
    Resize,
    ResizeKeepRatio,
    ResizeKeepRatioToSequence,
    ResizeToSequence,
    SanitizeBoundingBoxes,
    ScaleJitter,
    TenCrop,
    TensorFlowOps,
    TimmAugment,
    ToDtype,
    ToImage,
    ToTensor,
    TrimBorder,
    TrivialAugmentWide,
    AddNoise,
    AmplitudeToDB,
    Convolve,
    Fade,
    FrequencyMasking,
    KaldiFbank,
    KaldiMFCC,
    LFCC,
    MFCC,
    MelScale,
    MelSpectrogram,
    MuLawDecoding,
    MuLawEncoding,
    PadOrTrim,
    PitchShift,
    RandomSegment,
    Resample,
    SpecAugment,
    Spectrogram,
    Speed,
    SpeedPerturbation,
    Standardize,
    TimeFirst,
    TimeMasking,
    TimeStretch,
    ToMono,
    Vad,
    Vol,
    WhisperLogMel,
}

impl Transform {
    /// All transforms in order, with every [`Compose`] replaced by what it holds.
    pub fn flatten(transforms: &[Transform]) -> Vec<&Transform> {
        let mut flat = Vec::with_capacity(transforms.len());
        for transform in transforms {
            match transform {
                Transform::Compose(compose) => flat.extend(Self::flatten(&compose.transforms)),
                other => flat.push(other),
            }
        }
        flat
    }
}

impl<'de> Deserialize<'de> for Transform {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut parameters = Map::deserialize(deserializer)?;
        let Some(Value::String(name)) = parameters.remove("type") else {
            return Err(D::Error::missing_field("type"));
        };
        match Self::read(&name, &parameters) {
            Some(read) => read.map_err(|e| D::Error::custom(format_args!("{name}: {e}"))),
            None => Err(D::Error::unknown_variant(&name, Self::NAMES)),
        }
    }
}
