//! Image transforms with torchvision v2's names, parameters, defaults and meaning.
//!
//! A transform is one file: its parameters (data, serde), its check, its draw and its tests. Drawing is apart
//! from doing: [`Stage::draw`] looks only at the size of the image and at counter-based random numbers, and
//! gives an [`Action`] whose every number is settled. Since sizes come from the header, a whole chain can be
//! drawn before a single pixel is decoded; [`crate::plan`] uses that to decode and resample only what is needed.

use serde::{Deserialize, Serialize};

pub use crate::codec::Rect;
use crate::{Result, rng::Rng};

mod random_resized_crop;

pub use random_resized_crop::RandomResizedCrop;

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

/// One number for all channels, or one per channel, in the value range of the image (u8: 0 to 255).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fill(pub Vec<f64>);

impl Default for Fill {
    fn default() -> Self {
        Self(vec![0.0])
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

/// One colour adjustment with its drawn factor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ColorStep {
    /// Blend with black.
    Brightness(f64),
    /// Blend with the mean luma.
    Contrast(f64),
    /// Blend with the grey image.
    Saturation(f64),
    /// Shift of hue, as a fraction of the circle in -0.5 to 0.5.
    Hue(f64),
}

/// What [`RandomErasing`] writes.
#[derive(Clone, Debug, PartialEq)]
pub enum EraseValue {
    /// These values, one for all channels or one per channel.
    Constant(Vec<f64>),
    /// Standard normal noise per element, from this generator.
    Noise(Rng),
}

/// What to do to one image, with every random number settled.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Nothing.
    Keep,
    /// Keep a rectangle that lies inside the image.
    Crop(Rect),
    /// Keep a window that may reach outside the image; what lies outside is filled.
    PadCrop {
        /// First row; negative is above the image.
        top: i64,
        /// First column; negative is left of the image.
        left: i64,
        /// Rows of the result.
        height: usize,
        /// Columns of the result.
        width: usize,
        /// How the outside is filled.
        mode: PaddingMode,
        /// With what, under [`PaddingMode::Constant`].
        fill: Fill,
    },
    /// Resample a rectangle of the image to a new size.
    Resize {
        /// What is resampled; pixels outside it do not influence the result.
        crop: Rect,
        /// Rows of the result.
        height: usize,
        /// Columns of the result.
        width: usize,
        /// Filter.
        interpolation: Interpolation,
    },
    /// Mirror.
    Flip {
        /// Left and right change places.
        horizontal: bool,
        /// Top and bottom change places.
        vertical: bool,
    },
    /// Rotate counter-clockwise.
    Rotate {
        /// Degrees.
        angle: f64,
        /// Filter: nearest, bilinear or bicubic.
        interpolation: Interpolation,
        /// Enlarge the image so that all of it stays visible.
        expand: bool,
        /// Centre (x, y) in pixels from the upper left corner; `None` is the middle.
        center: Option<[f64; 2]>,
        /// Value of what comes in from outside.
        fill: Fill,
    },
    /// Colour adjustments in this order.
    Color(Vec<ColorStep>),
    /// Luma, on one or three equal channels.
    Gray {
        /// 1 or 3.
        channels: usize,
    },
    /// Gaussian blur.
    Blur {
        /// Kernel size (x, y), odd.
        kernel: [usize; 2],
        /// Standard deviation (x, y) in pixels.
        sigma: [f64; 2],
    },
    /// Overwrite a rectangle.
    Erase {
        /// Where.
        rect: Rect,
        /// With what.
        value: EraseValue,
    },
    /// Change the element type.
    Cast {
        /// New type.
        dtype: ImageDtype,
        /// Map the value range of the old type to that of the new one (0..255 and 0..1).
        scale: bool,
        /// Divide by 255 instead of multiplying by its reciprocal: what `ToTensor` does.
        divide: bool,
    },
    /// `(x - mean) / std` per channel, on floating point images.
    Normalize {
        /// One value, or one per channel.
        mean: Vec<f64>,
        /// One value, or one per channel; not 0.
        std: Vec<f64>,
    },
}

/// What a transform does to an image, without its numbers: what the optimizer looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// [`Action::Keep`] always.
    Identity,
    /// [`Action::Crop`] or [`Action::PadCrop`].
    Crop,
    /// [`Action::Resize`].
    Resize,
    /// [`Action::Flip`].
    Flip,
    /// [`Action::Rotate`].
    Rotate,
    /// [`Action::Color`]: each pixel from itself and flip-invariant statistics.
    Color,
    /// [`Action::Gray`]
    Gray,
    /// [`Action::Blur`].
    Blur,
    /// [`Action::Erase`].
    Erase,
    /// [`Action::Cast`].
    Cast,
    /// [`Action::Normalize`].
    Normalize,
}

/// What every transform can do. All classes may also give [`Action::Keep`].
pub trait Stage {
    /// Checks parameters. Called once when a plan is made, so that draws need not fail for them.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`], naming the parameter, its value and what is allowed.
    fn check(&self) -> Result<()>;

    /// What it does, without numbers.
    fn class(&self) -> Class;

    /// Size of the result, if it is the same for every draw. In `input` a side is `None` if it differs from
    /// sample to sample.
    fn fixed_size(&self, input: Shape) -> Shape;

    /// Settles every number for an image of `size`.
    ///
    /// # Errors
    /// If the image cannot be transformed, as when a crop is larger than the image: with sizes, stage not set.
    fn draw(&self, size: Size, rng: &mut Rng) -> Result<Action>;
}

/// Any transform, as data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", deny_unknown_fields)]
#[allow(missing_docs, reason = "each variant is documented at the type it holds")]
pub enum Transform {
    RandomResizedCrop(RandomResizedCrop),
}
