//! `TensorFlowOps`: a chain of TensorFlow's image operations, with the bits of its CPU kernels.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use wellfed_kernels::tensorflow::{Arithmetic, Kernel};

use super::{
    Action, Class, ImageDtype, Operation, Shape, Size,
    param::{MAX_SIDE, Tuple, check_pixels, check_sides, impossible},
    tensorflow_layers::{
        TfSampling, centre, centre_crop, check_span, drawn, random_crop, rotation, translation, zoom,
    },
};
use crate::{Error, Result, rng::Rng};

/// How [`TfOp::Resize`] resamples, named as `tf.image.ResizeMethod`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the names are TensorFlow's")]
pub enum TfResize {
    Bilinear,
    Nearest,
    Bicubic,
    Area,
    Lanczos3,
    Lanczos5,
    Gaussian,
    MitchellCubic,
}

impl TfResize {
    /// The kernel that `ScaleAndTranslate` runs, where TensorFlow runs that.
    pub(crate) fn kernel(self, antialias: bool) -> Option<Kernel> {
        match self {
            TfResize::Bilinear => antialias.then_some(Kernel::Triangle),
            TfResize::Bicubic => antialias.then_some(Kernel::KeysCubic),
            TfResize::Nearest | TfResize::Area => None,
            TfResize::Lanczos3 => Some(Kernel::Lanczos3),
            TfResize::Lanczos5 => Some(Kernel::Lanczos5),
            TfResize::Gaussian => Some(Kernel::Gaussian),
            TfResize::MitchellCubic => Some(Kernel::MitchellCubic),
        }
    }
}

/// Element-wise operations with a constant, named as TensorFlow's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the names are TensorFlow's")]
pub enum TfArithmetic {
    Mul,
    Div,
    Add,
    Sub,
    SubFrom,
    Minimum,
    Maximum,
}

impl From<TfArithmetic> for Arithmetic {
    fn from(this: TfArithmetic) -> Self {
        match this {
            TfArithmetic::Mul => Arithmetic::Mul,
            TfArithmetic::Div => Arithmetic::Div,
            TfArithmetic::Add => Arithmetic::Add,
            TfArithmetic::Sub => Arithmetic::Sub,
            TfArithmetic::SubFrom => Arithmetic::SubFrom,
            TfArithmetic::Minimum => Arithmetic::Minimum,
            TfArithmetic::Maximum => Arithmetic::Maximum,
        }
    }
}

/// One operation on an image of uint8 or float32.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum TfOp {
    /// `tf.image.resize` with half-pixel centres. The result is float32, except by `nearest`.
    Resize {
        /// How.
        method: TfResize,
        /// Height and width.
        size: [usize; 2],
        /// Make the kernel wider where the image is shrunk.
        #[serde(default)]
        antialias: bool,
    },
    /// `tf.cast` to float32, or from float32 to uint8.
    Cast {
        /// uint8 or float32.
        dtype: ImageDtype,
    },
    /// An element-wise operation on float32.
    Arithmetic {
        /// Which one.
        operator: TfArithmetic,
        /// One number, or one for each channel.
        constants: Vec<f32>,
    },
    /// Mirror.
    Flip {
        /// Left and right change places.
        #[serde(default)]
        horizontal: bool,
        /// Top and bottom change places.
        #[serde(default)]
        vertical: bool,
    },
    /// Mirror half of all images: each of the two by a draw of its own.
    RandomFlip {
        /// Left and right change places.
        #[serde(default)]
        horizontal: bool,
        /// Top and bottom change places.
        #[serde(default)]
        vertical: bool,
    },
    /// Mirror half of all images both ways: `keras.layers.RandomFlip("horizontal_and_vertical")`.
    RandomFlipBoth,
    /// Keep a rectangle, which must lie inside the image.
    Crop {
        /// First row.
        top: usize,
        /// First column.
        left: usize,
        /// Rows.
        height: usize,
        /// Columns.
        width: usize,
    },
    /// Put zeros around an image: `tf.image.pad_to_bounding_box`.
    Pad {
        /// Rows above the image.
        top: usize,
        /// Columns left of it.
        left: usize,
        /// Rows of the result.
        height: usize,
        /// Columns of the result.
        width: usize,
    },
    /// `tf.image.central_crop`.
    CentralCrop {
        /// Of each side, above 0 and at most 1.
        fraction: f64,
    },
    /// `tf.image.resize_with_crop_or_pad`.
    CropOrPad {
        /// Height and width.
        size: [usize; 2],
    },
    /// `tf.image.resize_with_pad`.
    ResizeWithPad {
        /// How.
        method: TfResize,
        /// Height and width.
        size: [usize; 2],
        /// Make the kernel wider where the image is shrunk.
        #[serde(default)]
        antialias: bool,
    },
    /// A rectangle anywhere inside the image: `tf.image.random_crop`, by a draw of wellfed's.
    RandomCrop {
        /// Height and width.
        size: [usize; 2],
    },
    /// `tf.image.adjust_contrast` of float32.
    AdjustContrast {
        /// What distances from the mean are multiplied by.
        factor: f32,
    },
    /// `tf.image.adjust_saturation` of three channels of float32.
    AdjustSaturation {
        /// What saturations are multiplied by.
        factor: f32,
    },
    /// `tf.image.adjust_hue` of three channels of float32.
    AdjustHue {
        /// Turns of the colour wheel, -1 to 1.
        delta: f32,
    },
    /// A draw of wellfed's of at least `-max_delta` and less than `max_delta`, added to float32.
    RandomBrightness {
        /// At least 0.
        max_delta: f32,
    },
    /// [`TfOp::AdjustContrast`] by a draw of wellfed's.
    RandomContrast {
        /// The least factor.
        lower: f32,
        /// What the factor stays below.
        upper: f32,
    },
    /// [`TfOp::AdjustSaturation`] by a draw of wellfed's.
    RandomSaturation {
        /// The least factor.
        lower: f32,
        /// What the factor stays below.
        upper: f32,
    },
    /// [`TfOp::AdjustHue`] by a draw of wellfed's.
    RandomHue {
        /// 0 to 0.5.
        max_delta: f32,
    },
    /// `tf.image.rgb_to_grayscale` of float32: three channels become one.
    Grayscale,
    /// `tf.image.grayscale_to_rgb`: one channel becomes three.
    ToRgb,
    /// `tf.image.per_image_standardization` of float32.
    Standardize,
    /// Crop the centre to the aspect of `size`, and resize it: `crop_to_aspect_ratio` of Keras.
    ResizeCropped {
        /// How.
        method: TfResize,
        /// Height and width.
        size: [usize; 2],
        /// Make the kernel wider where the image is shrunk.
        #[serde(default)]
        antialias: bool,
    },
    /// `keras.layers.CenterCrop`, in float32.
    CropOrResize {
        /// Height and width.
        size: [usize; 2],
    },
    /// `keras.layers.RandomCrop`, in float32.
    RandomCropOrResize {
        /// Height and width.
        size: [usize; 2],
    },
    /// `keras.ops.image.affine_transform`, in float32.
    Affine {
        /// A pixel at (x, y) is that at (`m[0] x + m[1] y + m[2]`, `m[3] x + m[4] y + m[5]`).
        matrix: [f32; 6],
        /// How pixels are read.
        sampling: TfSampling,
    },
    /// `keras.layers.RandomRotation`.
    RandomRotation {
        /// From, to.
        degrees: [f32; 2],
        /// How pixels are read.
        sampling: TfSampling,
    },
    /// `keras.layers.RandomZoom`.
    RandomZoom {
        /// Of rows, from, to: above 1 shows more than the image.
        height: [f32; 2],
        /// Of columns. Without it, as rows.
        #[serde(default)]
        width: Option<[f32; 2]>,
        /// How pixels are read.
        sampling: TfSampling,
    },
    /// `keras.layers.RandomTranslation`.
    RandomTranslation {
        /// Parts of the height, from, to: above 0 is down.
        height: [f32; 2],
        /// Parts of the width: above 0 is to the right.
        width: [f32; 2],
        /// How pixels are read.
        sampling: TfSampling,
    },
    /// Spread about the mean of each channel, in float32.
    Contrast {
        /// Of what values are away from it.
        factor: f32,
        /// Results are kept within it.
        range: [f32; 2],
    },
    /// `keras.layers.RandomContrast`.
    RandomContrastLayer {
        /// From, to.
        factor: [f32; 2],
        /// Results are kept within it.
        range: [f32; 2],
    },
    /// Add to every value, in float32.
    Brightness {
        /// How much.
        delta: f32,
        /// Results are kept within it.
        range: [f32; 2],
    },
    /// `keras.layers.RandomBrightness`.
    RandomBrightnessLayer {
        /// Parts of the range, from, to.
        factor: [f32; 2],
        /// Results are kept within it.
        range: [f32; 2],
    },
}

impl TfOp {
    /// Whether its form depends on the image, or on a draw.
    fn is_open(&self) -> bool {
        matches!(
            self,
            TfOp::RandomFlip { .. }
                | TfOp::RandomFlipBoth
                | TfOp::CentralCrop { .. }
                | TfOp::CropOrPad { .. }
                | TfOp::ResizeWithPad { .. }
                | TfOp::RandomCrop { .. }
                | TfOp::RandomBrightness { .. }
                | TfOp::RandomContrast { .. }
                | TfOp::RandomSaturation { .. }
                | TfOp::RandomHue { .. }
                | TfOp::ResizeCropped { .. }
                | TfOp::CropOrResize { .. }
                | TfOp::RandomCropOrResize { .. }
                | TfOp::RandomRotation { .. }
                | TfOp::RandomZoom { .. }
                | TfOp::RandomTranslation { .. }
                | TfOp::RandomContrastLayer { .. }
                | TfOp::RandomBrightnessLayer { .. }
        )
    }

    /// Its name, if it takes float32 only.
    fn of_floats(&self) -> Option<String> {
        let name = match self {
            TfOp::Arithmetic { operator, .. } => return Some(format!("{operator:?}")),
            TfOp::AdjustContrast { .. } => "AdjustContrast",
            TfOp::AdjustSaturation { .. } => "AdjustSaturation",
            TfOp::AdjustHue { .. } => "AdjustHue",
            TfOp::RandomBrightness { .. } => "RandomBrightness",
            TfOp::RandomContrast { .. } => "RandomContrast",
            TfOp::RandomSaturation { .. } => "RandomSaturation",
            TfOp::RandomHue { .. } => "RandomHue",
            TfOp::Grayscale => "Grayscale",
            TfOp::Standardize => "Standardize",
            _ => return None,
        };
        Some(name.to_owned())
    }

    /// Channels that it takes, if there must be so many.
    fn channels(&self) -> Option<usize> {
        match self {
            TfOp::Arithmetic { constants, .. } if constants.len() > 1 => Some(constants.len()),
            TfOp::AdjustSaturation { .. }
            | TfOp::AdjustHue { .. }
            | TfOp::RandomSaturation { .. }
            | TfOp::RandomHue { .. }
            | TfOp::Grayscale => Some(3),
            TfOp::ToRgb => Some(1),
            _ => None,
        }
    }

    /// Adds what it is for an image of `size` to `settled`.
    fn settle(&self, size: Size, rng: &mut Rng, settled: &mut Vec<TfOp>) -> Result<()> {
        match *self {
            TfOp::RandomFlip { horizontal, vertical } => {
                let mut flips = |wanted: bool| wanted && rng.chance(0.5);
                settled.push(TfOp::Flip { horizontal: flips(horizontal), vertical: flips(vertical) });
            }
            TfOp::CentralCrop { fraction } => {
                let (top, left) = (margin(size.height, fraction), margin(size.width, fraction));
                let (height, width) = (size.height - 2 * top, size.width - 2 * left);
                settled.push(TfOp::Crop { top, left, height, width });
            }
            TfOp::CropOrPad { size: [height, width] } => {
                let kept = [height.min(size.height), width.min(size.width)];
                settled.push(TfOp::Crop {
                    top: (size.height - kept[0]) / 2,
                    left: (size.width - kept[1]) / 2,
                    height: kept[0],
                    width: kept[1],
                });
                let (top, left) = ((height - kept[0]) / 2, (width - kept[1]) / 2);
                settled.push(TfOp::Pad { top, left, height, width });
            }
            TfOp::ResizeWithPad { method, size: [height, width], antialias } => {
                let sides = |input: usize, target: usize| (input as f32, target as f32);
                let ((h, target_h), (w, target_w)) = (sides(size.height, height), sides(size.width, width));
                let ratio = (w / target_w).max(h / target_h);
                let inner = |side: f32, target: f32| {
                    let float = side / ratio;
                    (float.floor() as usize, ((target - float) / 2.0).floor().max(0.0) as usize)
                };
                let ((rows, top), (columns, left)) = (inner(h, target_h), inner(w, target_w));
                if rows == 0 || columns == 0 || top + rows > height || left + columns > width {
                    return Err(impossible(format!(
                        "an image of {} does not fit into {} with zeros around it",
                        Tuple(&[size.height, size.width]),
                        Tuple(&[height, width])
                    )));
                }
                settled.push(TfOp::Resize { method, size: [rows, columns], antialias });
                settled.push(TfOp::Pad { top, left, height, width });
            }
            TfOp::RandomCrop { size: [height, width] } => {
                if height > size.height || width > size.width {
                    return Err(impossible(format!(
                        "a random crop of {} is larger than the image, which has {} pixels there",
                        Tuple(&[height, width]),
                        Tuple(&[size.height, size.width])
                    )));
                }
                let mut place = |room: usize| rng.below(room as u64 + 1) as usize;
                let (top, left) = (place(size.height - height), place(size.width - width));
                settled.push(TfOp::Crop { top, left, height, width });
            }
            TfOp::RandomBrightness { max_delta } => {
                let constants = vec![between(-max_delta, max_delta, rng)];
                settled.push(TfOp::Arithmetic { operator: TfArithmetic::Add, constants });
            }
            TfOp::RandomContrast { lower, upper } => {
                settled.push(TfOp::AdjustContrast { factor: between(lower, upper, rng) });
            }
            TfOp::RandomSaturation { lower, upper } => {
                settled.push(TfOp::AdjustSaturation { factor: between(lower, upper, rng) });
            }
            TfOp::RandomHue { max_delta } => {
                settled.push(TfOp::AdjustHue { delta: between(-max_delta, max_delta, rng) });
            }
            TfOp::RandomFlipBoth => {
                let both = rng.chance(0.5);
                settled.push(TfOp::Flip { horizontal: both, vertical: both });
            }
            TfOp::ResizeCropped { method, size: target, antialias } => {
                let [top, left, height, width] = centre(size, target, true);
                settled.push(TfOp::Crop { top, left, height, width });
                settled.push(TfOp::Resize { method, size: target, antialias });
            }
            TfOp::CropOrResize { size: target } => centre_crop(size, target, settled),
            TfOp::RandomCropOrResize { size: target } => random_crop(size, target, rng, settled),
            TfOp::RandomRotation { degrees, sampling } => {
                settled.push(TfOp::Affine { matrix: rotation(drawn(rng, degrees), size), sampling });
            }
            TfOp::RandomZoom { height, width, sampling } => {
                let rows = drawn(rng, height);
                let columns = width.map_or(rows, |width| drawn(rng, width));
                settled.push(TfOp::Affine { matrix: zoom([rows, columns], size), sampling });
            }
            TfOp::RandomTranslation { height, width, sampling } => {
                let parts = [drawn(rng, height), drawn(rng, width)];
                settled.push(TfOp::Affine { matrix: translation(parts, size), sampling });
            }
            TfOp::RandomContrastLayer { factor, range } => {
                settled.push(TfOp::Contrast { factor: drawn(rng, factor), range });
            }
            TfOp::RandomBrightnessLayer { factor, range } => {
                let delta = drawn(rng, factor) * (range[1] - range[0]);
                settled.push(TfOp::Brightness { delta, range });
            }
            ref other => settled.push(other.clone()),
        }
        Ok(())
    }
}

fn between(low: f32, high: f32, rng: &mut Rng) -> f32 {
    rng.uniform_single([low.into(), high.into()])
}

/// Where `tf.image.central_crop` begins along a side.
fn margin(side: usize, fraction: f64) -> usize {
    let whole = side as f64;
    ((whole - whole * fraction) / 2.0) as usize
}

/// TensorFlow's image operations, one after the other, on the decoded uint8 image: what `tf.data` pipelines are lowered to.
/// Comes last, in images with rows of pixels (`NHWC`) or planes alike. Results have the bits of TensorFlow's CPU kernels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TensorFlowOps {
    /// The operations.
    #[serde(serialize_with = "slice", deserialize_with = "shared")]
    pub ops: Arc<[TfOp]>,
}

fn slice<S: Serializer>(ops: &Arc<[TfOp]>, serializer: S) -> Result<S::Ok, S::Error> {
    ops.as_ref().serialize(serializer)
}

fn shared<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<[TfOp]>, D::Error> {
    Vec::deserialize(deserializer).map(Into::into)
}

impl TensorFlowOps {
    /// These operations.
    pub fn new(ops: Vec<TfOp>) -> Self {
        Self { ops: ops.into() }
    }

    /// Element type of the result.
    ///
    /// # Errors
    /// `Config` for an operation that does not take its input's type.
    pub(crate) fn dtype(&self) -> Result<ImageDtype> {
        let mut dtype = ImageDtype::UInt8;
        for op in &*self.ops {
            match op {
                TfOp::Resize { method: TfResize::Nearest, .. }
                | TfOp::ResizeCropped { method: TfResize::Nearest, .. }
                | TfOp::ResizeWithPad { method: TfResize::Nearest, .. } => {}
                TfOp::Resize { .. }
                | TfOp::ResizeCropped { .. }
                | TfOp::ResizeWithPad { .. }
                | TfOp::CropOrResize { .. }
                | TfOp::RandomCropOrResize { .. }
                | TfOp::Affine { .. }
                | TfOp::RandomRotation { .. }
                | TfOp::RandomZoom { .. }
                | TfOp::RandomTranslation { .. }
                | TfOp::Contrast { .. }
                | TfOp::RandomContrastLayer { .. }
                | TfOp::Brightness { .. }
                | TfOp::RandomBrightnessLayer { .. } => dtype = ImageDtype::Float32,
                TfOp::Cast { dtype: to } => dtype = *to,
                other => {
                    if let Some(name) = other.of_floats().filter(|_| dtype == ImageDtype::UInt8) {
                        let what = format!("{name} takes float32, and the image is uint8");
                        return Err(Error::config(what).with_hint("put a cast to float32 before it"));
                    }
                }
            }
        }
        Ok(dtype)
    }
}

impl fmt::Display for TensorFlowOps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TensorFlowOps(")?;
        for (i, op) in self.ops.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { ", " })?;
            match op {
                TfOp::Resize { method, size, antialias } => {
                    write!(f, "resize {method:?} to {}x{}", size[0], size[1])?;
                    f.write_str(if *antialias { " antialiased" } else { "" })?;
                }
                TfOp::Cast { dtype } => write!(f, "cast to {dtype}")?,
                TfOp::Arithmetic { operator, constants } => write!(f, "{operator:?} {constants:?}")?,
                TfOp::Flip { horizontal, vertical } => write!(f, "flip {}", sides(*horizontal, *vertical))?,
                TfOp::RandomFlip { horizontal, vertical } => {
                    write!(f, "random flip {}", sides(*horizontal, *vertical))?;
                }
                TfOp::Crop { top, left, height, width } => {
                    write!(f, "crop {height}x{width} at ({top}, {left})")?;
                }
                TfOp::Pad { top, left, height, width } => {
                    write!(f, "zeros around ({top}, {left}) to {height}x{width}")?;
                }
                TfOp::CentralCrop { fraction } => write!(f, "central crop of {fraction}")?,
                TfOp::CropOrPad { size } => write!(f, "crop or pad to {}x{}", size[0], size[1])?,
                TfOp::ResizeWithPad { method, size, antialias } => {
                    write!(f, "resize {method:?} and pad to {}x{}", size[0], size[1])?;
                    f.write_str(if *antialias { " antialiased" } else { "" })?;
                }
                TfOp::RandomCrop { size } => write!(f, "random crop {}x{}", size[0], size[1])?,
                TfOp::AdjustContrast { factor } => write!(f, "contrast {factor:?}")?,
                TfOp::AdjustSaturation { factor } => write!(f, "saturation {factor:?}")?,
                TfOp::AdjustHue { delta } => write!(f, "hue {delta:?}")?,
                TfOp::RandomBrightness { max_delta } => write!(f, "random brightness {max_delta:?}")?,
                TfOp::RandomContrast { lower, upper } => write!(f, "random contrast {lower:?} to {upper:?}")?,
                TfOp::RandomSaturation { lower, upper } => {
                    write!(f, "random saturation {lower:?} to {upper:?}")?;
                }
                TfOp::RandomHue { max_delta } => write!(f, "random hue {max_delta:?}")?,
                TfOp::Grayscale => f.write_str("grayscale")?,
                TfOp::ToRgb => f.write_str("grey to RGB")?,
                TfOp::Standardize => f.write_str("standardize")?,
                TfOp::RandomFlipBoth => f.write_str("random flip both ways at once")?,
                TfOp::ResizeCropped { method, size, antialias } => {
                    write!(f, "crop to the aspect of, and resize {method:?} to {}x{}", size[0], size[1])?;
                    f.write_str(if *antialias { " antialiased" } else { "" })?;
                }
                TfOp::CropOrResize { size } => {
                    write!(f, "central crop {}x{}, of smaller images resized", size[0], size[1])?;
                }
                TfOp::RandomCropOrResize { size } => {
                    write!(f, "random crop {}x{}, of smaller images resized", size[0], size[1])?;
                }
                TfOp::Affine { matrix, sampling } => write!(f, "affine {matrix:?} {sampling}")?,
                TfOp::RandomRotation { degrees: [low, high], sampling } => {
                    write!(f, "random rotation by {low} to {high} degrees {sampling}")?;
                }
                TfOp::RandomZoom { height, width, sampling } => {
                    let [low, high] = height;
                    write!(f, "random zoom {low} to {high}")?;
                    if let Some([low, high]) = width {
                        write!(f, ", of columns {low} to {high}")?;
                    }
                    write!(f, " {sampling}")?;
                }
                TfOp::RandomTranslation { height, width, sampling } => {
                    let ([top, bottom], [left, right]) = (height, width);
                    write!(f, "random shift down {top} to {bottom}, right {left} to {right} {sampling}")?;
                }
                TfOp::Contrast { factor, .. } => write!(f, "contrast {factor}")?,
                TfOp::RandomContrastLayer { factor: [low, high], .. } => {
                    write!(f, "random contrast {low} to {high}")?;
                }
                TfOp::Brightness { delta, .. } => write!(f, "brightness {delta}")?,
                TfOp::RandomBrightnessLayer { factor: [low, high], .. } => {
                    write!(f, "random brightness {low} to {high}")?;
                }
            }
        }
        f.write_str(")")
    }
}

fn sides(horizontal: bool, vertical: bool) -> &'static str {
    match (horizontal, vertical) {
        (true, true) => "both ways",
        (true, false) => "left and right",
        (false, true) => "top and bottom",
        (false, false) => "nothing",
    }
}

impl Operation for TensorFlowOps {
    fn check(&self) -> Result<()> {
        for op in &*self.ops {
            match op {
                TfOp::Resize { method, size, antialias }
                | TfOp::ResizeCropped { method, size, antialias }
                | TfOp::ResizeWithPad { method, size, antialias } => {
                    check_sides("size", *size)?;
                    check_pixels(Size { height: size[0], width: size[1], channels: 1 })?;
                    if *antialias && method.kernel(true).is_none() {
                        return Err(Error::config(format!("{method:?} has no antialias")));
                    }
                }
                TfOp::Cast { dtype } => {
                    if !matches!(dtype, ImageDtype::UInt8 | ImageDtype::Float32) {
                        return Err(Error::config(format!(
                            "dtype of a cast is {dtype}; it must be uint8 or float32"
                        )));
                    }
                }
                TfOp::Arithmetic { operator, constants } => {
                    if constants.is_empty() || constants.len() > 4 {
                        return Err(Error::config(format!(
                            "{operator:?} has {} constants; there must be one, or one a channel",
                            constants.len()
                        )));
                    }
                }
                TfOp::CentralCrop { fraction } => {
                    if !(*fraction > 0.0 && *fraction <= 1.0) {
                        return Err(Error::config(format!(
                            "fraction of a central crop is {fraction}; it must be above 0 and at most 1"
                        )));
                    }
                }
                TfOp::CropOrPad { size }
                | TfOp::RandomCrop { size }
                | TfOp::CropOrResize { size }
                | TfOp::RandomCropOrResize { size } => {
                    check_sides("size", *size)?;
                    check_pixels(Size { height: size[0], width: size[1], channels: 1 })?;
                }
                TfOp::Crop { top, left, height, width } | TfOp::Pad { top, left, height, width } => {
                    check_sides("size", [*height, *width])?;
                    check_pixels(Size { height: *height, width: *width, channels: 1 })?;
                    if top.max(left) > &MAX_SIDE {
                        return Err(Error::config(format!(
                            "a rectangle begins at {}; each must be 0 to {MAX_SIDE}",
                            Tuple(&[*top, *left])
                        )));
                    }
                }
                TfOp::AdjustContrast { factor } | TfOp::AdjustSaturation { factor } => {
                    check_range("factor", *factor, f32::MIN..=f32::MAX)?;
                }
                TfOp::AdjustHue { delta } => check_range("delta", *delta, -1.0..=1.0)?,
                TfOp::RandomBrightness { max_delta } => check_range("max_delta", *max_delta, 0.0..=f32::MAX)?,
                TfOp::RandomContrast { lower, upper } | TfOp::RandomSaturation { lower, upper } => {
                    check_range("lower", *lower, 0.0..=f32::MAX)?;
                    check_range("upper", *upper, *lower..=f32::MAX)?;
                }
                TfOp::RandomHue { max_delta } => check_range("max_delta", *max_delta, 0.0..=0.5)?,
                TfOp::Flip { .. }
                | TfOp::RandomFlip { .. }
                | TfOp::RandomFlipBoth
                | TfOp::Grayscale
                | TfOp::ToRgb
                | TfOp::Standardize => {}
                TfOp::Affine { matrix, sampling } => {
                    matrix.iter().try_for_each(|&x| check_span("matrix", [x, x]))?;
                    sampling.check()?;
                }
                TfOp::RandomRotation { degrees, sampling } => {
                    check_span("degrees", *degrees)?;
                    sampling.check()?;
                }
                TfOp::RandomZoom { height, width, sampling } => {
                    check_span("height of a zoom", *height)?;
                    check_span("width of a zoom", width.unwrap_or(*height))?;
                    sampling.check()?;
                }
                TfOp::RandomTranslation { height, width, sampling } => {
                    check_span("height of a shift", *height)?;
                    check_span("width of a shift", *width)?;
                    sampling.check()?;
                }
                TfOp::Contrast { factor, range } => {
                    check_span("factor", [*factor, *factor])?;
                    check_span("range", *range)?;
                }
                TfOp::Brightness { delta, range } => {
                    check_span("delta", [*delta, *delta])?;
                    check_span("range", *range)?;
                }
                TfOp::RandomContrastLayer { factor, range }
                | TfOp::RandomBrightnessLayer { factor, range } => {
                    check_span("factor", *factor)?;
                    check_span("range", *range)?;
                }
            }
        }
        self.dtype().map(|_| ())
    }

    fn class(&self) -> Class {
        Class::TensorFlow
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        self.ops.iter().fold(input, |shape, op| match *op {
            TfOp::Resize { size: [height, width], .. }
            | TfOp::ResizeWithPad { size: [height, width], .. }
            | TfOp::ResizeCropped { size: [height, width], .. }
            | TfOp::CropOrPad { size: [height, width] }
            | TfOp::CropOrResize { size: [height, width] }
            | TfOp::RandomCrop { size: [height, width] }
            | TfOp::RandomCropOrResize { size: [height, width] }
            | TfOp::Pad { height, width, .. }
            | TfOp::Crop { height, width, .. } => Shape { height: Some(height), width: Some(width), ..shape },
            TfOp::CentralCrop { fraction } => {
                let inner = |side: usize| side - 2 * margin(side, fraction);
                Shape { height: shape.height.map(inner), width: shape.width.map(inner), ..shape }
            }
            TfOp::Grayscale => Shape { channels: 1, ..shape },
            TfOp::ToRgb => Shape { channels: 3, ..shape },
            _ => shape,
        })
    }

    fn draw(&self, size: Size, rng: &mut Rng) -> Result<Action> {
        let open = self.ops.iter().any(TfOp::is_open);
        let mut settled = Vec::with_capacity(self.ops.len());
        let mut now = size;
        for op in &*self.ops {
            let begin = settled.len();
            op.settle(now, rng, &mut settled)?;
            for op in &settled[begin..] {
                now = after(op, now)?;
            }
        }
        Ok(Action::TensorFlow(if open { settled.into() } else { self.ops.clone() }))
    }
}

/// Size of what `op`, which is settled, makes of an image of size `now`.
fn after(op: &TfOp, now: Size) -> Result<Size> {
    match *op {
        TfOp::Crop { top, left, height, width } => {
            if top + height > now.height || left + width > now.width {
                return Err(impossible(format!(
                    "a crop of {} at {} lies outside of the image, which has {} pixels there",
                    Tuple(&[height, width]),
                    Tuple(&[top, left]),
                    Tuple(&[now.height, now.width])
                )));
            }
            Ok(Size { height, width, ..now })
        }
        TfOp::Pad { top, left, height, width } => {
            if top + now.height > height || left + now.width > width {
                return Err(impossible(format!(
                    "an image of {} at {} does not fit into {}",
                    Tuple(&[now.height, now.width]),
                    Tuple(&[top, left]),
                    Tuple(&[height, width])
                )));
            }
            Ok(Size { height, width, ..now })
        }
        _ if op.channels().is_some_and(|channels| channels != now.channels) => Err(Error::config(format!(
            "{} is for {} channels, and the image has {}",
            TensorFlowOps::new(vec![op.clone()]),
            op.channels().unwrap_or_default(),
            now.channels
        ))),
        _ => Ok(step(now, op)),
    }
}

fn check_range(name: &str, value: f32, range: std::ops::RangeInclusive<f32>) -> Result<()> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(Error::config(format!("{name} is {value}; it must be {} to {}", range.start(), range.end())))
}

/// Size of what operations make of an image of size `input`.
pub(super) fn size_after(ops: &[TfOp], input: Size) -> Size {
    ops.iter().fold(input, step)
}

/// Size of what `op`, which is settled, makes of an image of size `size`.
pub(crate) fn step(size: Size, op: &TfOp) -> Size {
    match *op {
        TfOp::Resize { size: [height, width], .. }
        | TfOp::Pad { height, width, .. }
        | TfOp::Crop { height, width, .. } => Size { height, width, ..size },
        TfOp::Grayscale => Size { channels: 1, ..size },
        TfOp::ToRgb => Size { channels: 3, ..size },
        _ => size,
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn operations_are_read_and_written() {
        let text = r#"{"type":"TensorFlowOps","ops":[{"op":"crop","top":1,"left":2,"height":30,"width":40},
            {"op":"resize","method":"bilinear","size":[8,9]},{"op":"arithmetic","operator":"div","constants":[255]},
            {"op":"flip","horizontal":true}]}"#;
        let read = read(text);
        assert_eq!(
            read.to_string(),
            "TensorFlowOps(crop 30x40 at (1, 2), resize Bilinear to 8x9, Div [255.0], flip left and right)"
        );
        let again = serde_json::to_string(&read).unwrap();
        assert_eq!(super::super::testing::read(&again), read);
    }

    #[test]
    fn sizes_and_types_follow() {
        let ops = vec![
            TfOp::Crop { top: 1, left: 2, height: 30, width: 40 },
            TfOp::Resize { method: TfResize::Nearest, size: [8, 9], antialias: false },
        ];
        let transform = TensorFlowOps::new(ops.clone());
        assert_eq!(transform.dtype().unwrap(), ImageDtype::UInt8);
        let action = transform.draw(size(31, 42), &mut rng(0)).unwrap();
        assert_eq!(action.size(size(31, 42)), size(8, 9));
        let outside = transform.draw(size(30, 42), &mut rng(0)).unwrap_err();
        assert!(outside.message().contains("(30, 42)"), "{outside}");
        let mul = TfOp::Arithmetic { operator: TfArithmetic::Mul, constants: vec![2.0] };
        let wrong = TensorFlowOps::new(ops.into_iter().chain([mul]).collect());
        assert!(check_error(wrong).contains("Mul takes float32"));
    }

    #[test]
    fn what_depends_on_the_image_is_settled() {
        let settled = |op: TfOp, height, width| match TensorFlowOps::new(vec![op])
            .draw(size(height, width), &mut rng(0))
        {
            Ok(Action::TensorFlow(ops)) => Ok(ops.to_vec()),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error),
        };
        let central = settled(TfOp::CentralCrop { fraction: 0.5 }, 7, 10).unwrap();
        assert_eq!(central, [TfOp::Crop { top: 1, left: 2, height: 5, width: 6 }]);
        let both = settled(TfOp::CropOrPad { size: [4, 9] }, 7, 6).unwrap();
        let crop = TfOp::Crop { top: 1, left: 0, height: 4, width: 6 };
        assert_eq!(both, [crop, TfOp::Pad { top: 0, left: 1, height: 4, width: 9 }]);
        let method = TfResize::Bilinear;
        let padded = TfOp::ResizeWithPad { method, size: [8, 8], antialias: false };
        let resize = TfOp::Resize { method, size: [4, 8], antialias: false };
        let pad = TfOp::Pad { top: 2, left: 0, height: 8, width: 8 };
        assert_eq!(settled(padded.clone(), 20, 40).unwrap(), [resize, pad]);
        assert!(settled(padded, 1, 4000).unwrap_err().message().contains("does not fit"));
        assert!(settled(TfOp::RandomCrop { size: [8, 2] }, 7, 9).unwrap_err().message().contains("(8, 2)"));
        let outside = settled(TfOp::Pad { top: 3, left: 0, height: 9, width: 9 }, 7, 9).unwrap_err();
        assert!(outside.message().contains("does not fit"), "{outside}");
    }

    #[test]
    fn random_crops_reach_every_place() {
        let crop = TensorFlowOps::new(vec![TfOp::RandomCrop { size: [3, 4] }]);
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..300 {
            let Action::TensorFlow(ops) = crop.draw(size(5, 5), &mut rng(seed)).unwrap() else { panic!() };
            let [TfOp::Crop { top, left, height: 3, width: 4 }] = ops[..] else { panic!("{ops:?}") };
            seen.insert((top, left));
        }
        assert_eq!(seen.len(), 6);
    }

    #[test]
    fn random_colours_are_drawn_from_their_ranges() {
        let settled = |op: TfOp, seed| match TensorFlowOps::new(vec![op]).draw(size(4, 4), &mut rng(seed)) {
            Ok(Action::TensorFlow(ops)) => ops.to_vec(),
            other => panic!("{other:?}"),
        };
        let drawn = |op: &TfOp| -> Vec<f32> {
            let one = |seed| match settled(op.clone(), seed)[..] {
                [TfOp::AdjustContrast { factor } | TfOp::AdjustSaturation { factor }] => factor,
                [TfOp::AdjustHue { delta }] => delta,
                [TfOp::Arithmetic { operator: TfArithmetic::Add, ref constants }] => constants[0],
                ref other => panic!("{other:?}"),
            };
            (0..400).map(one).collect()
        };
        for (op, low, high) in [
            (TfOp::RandomBrightness { max_delta: 0.25 }, -0.25, 0.25),
            (TfOp::RandomContrast { lower: 0.5, upper: 1.5 }, 0.5, 1.5),
            (TfOp::RandomSaturation { lower: 0.0, upper: 4.0 }, 0.0, 4.0),
            (TfOp::RandomHue { max_delta: 0.5 }, -0.5, 0.5),
        ] {
            let found = drawn(&op);
            assert!(found.iter().all(|&x| low <= x && x < high), "{op:?}");
            let below = found.iter().filter(|&&x| x < (low + high) / 2.0).count();
            assert!((150..250).contains(&below), "{op:?}: {below}");
        }
    }

    #[test]
    fn channels_follow_and_are_checked() {
        let float = TfOp::Cast { dtype: ImageDtype::Float32 };
        let there = TensorFlowOps::new(vec![float.clone(), TfOp::Grayscale, TfOp::Standardize, TfOp::ToRgb]);
        assert_eq!(there.dtype().unwrap(), ImageDtype::Float32);
        assert_eq!(there.draw(size(4, 5), &mut rng(0)).unwrap().size(size(4, 5)), size(4, 5));
        let wrong = TensorFlowOps::new(vec![float.clone(), TfOp::ToRgb]);
        let error = wrong.draw(size(4, 5), &mut rng(0)).unwrap_err();
        assert!(error.message().contains("for 1 channels, and the image has 3"), "{error}");
        let hue = TfOp::AdjustHue { delta: 0.1 };
        let grey = TensorFlowOps::new(vec![float.clone(), TfOp::Grayscale, hue.clone()]);
        assert!(grey.draw(size(4, 5), &mut rng(0)).unwrap_err().message().contains("hue 0.1"));
        assert!(check_error(TensorFlowOps::new(vec![hue])).contains("AdjustHue takes float32"));
        for (op, what) in [
            (TfOp::AdjustHue { delta: 1.5 }, "delta is 1.5"),
            (TfOp::AdjustContrast { factor: f32::NAN }, "factor is NaN"),
            (TfOp::RandomContrast { lower: 2.0, upper: 1.0 }, "upper is 1"),
            (TfOp::RandomHue { max_delta: 0.75 }, "max_delta is 0.75; it must be 0 to 0.5"),
        ] {
            let error = check_error(TensorFlowOps::new(vec![float.clone(), op]));
            assert!(error.contains(what), "{error}");
        }
    }

    #[test]
    fn half_of_random_flips_flip() {
        let flip = TensorFlowOps::new(vec![TfOp::RandomFlip { horizontal: true, vertical: false }]);
        let flipped = (0..400).filter(|&i| {
            let action = flip.draw(size(4, 4), &mut rng(i)).unwrap();
            action == Action::TensorFlow([TfOp::Flip { horizontal: true, vertical: false }].into())
        });
        assert!((150..250).contains(&flipped.count()));
    }
}
