//! `TensorFlowOps`: a chain of TensorFlow's image operations, with the bits of its CPU kernels.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use wellfed_kernels::tensorflow::{Arithmetic, Kernel};

use super::{
    Action, Class, ImageDtype, Operation, Shape, Size,
    param::{MAX_SIDE, Tuple, check_pixels, check_sides, impossible},
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
                TfOp::Resize { method: TfResize::Nearest, .. } => {}
                TfOp::Resize { .. } => dtype = ImageDtype::Float32,
                TfOp::Cast { dtype: to } => dtype = *to,
                TfOp::Arithmetic { operator, .. } if dtype == ImageDtype::UInt8 => {
                    return Err(Error::config(format!("{operator:?} takes float32, and the image is uint8"))
                        .with_hint("put a cast to float32 before it"));
                }
                _ => {}
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
                TfOp::Resize { method, size, antialias } => {
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
                TfOp::Crop { top, left, height, width } => {
                    check_sides("size", [*height, *width])?;
                    if top.max(left) > &MAX_SIDE {
                        return Err(Error::config(format!(
                            "crop begins at {}; each must be 0 to {MAX_SIDE}",
                            Tuple(&[*top, *left])
                        )));
                    }
                }
                TfOp::Flip { .. } | TfOp::RandomFlip { .. } => {}
            }
        }
        self.dtype().map(|_| ())
    }

    fn class(&self) -> Class {
        Class::TensorFlow
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        self.ops.iter().fold(input, |shape, op| match *op {
            TfOp::Resize { size: [height, width], .. } | TfOp::Crop { height, width, .. } => {
                Shape { height: Some(height), width: Some(width), ..shape }
            }
            _ => shape,
        })
    }

    fn draw(&self, size: Size, rng: &mut Rng) -> Result<Action> {
        let mut now = size;
        for op in &*self.ops {
            match op {
                &TfOp::Crop { top, left, height, width } => {
                    if top + height > now.height || left + width > now.width {
                        return Err(impossible(format!(
                            "a crop of {} at {} lies outside of the image, which has {} pixels there",
                            Tuple(&[height, width]),
                            Tuple(&[top, left]),
                            Tuple(&[now.height, now.width])
                        )));
                    }
                    (now.height, now.width) = (height, width);
                }
                &TfOp::Resize { size: [height, width], .. } => (now.height, now.width) = (height, width),
                TfOp::Arithmetic { operator, constants }
                    if constants.len() != 1 && constants.len() != now.channels =>
                {
                    return Err(Error::config(format!(
                        "{operator:?} has {} constants, and the image {} channels",
                        constants.len(),
                        now.channels
                    )));
                }
                _ => {}
            }
        }
        if !self.ops.iter().any(|op| matches!(op, TfOp::RandomFlip { .. })) {
            return Ok(Action::TensorFlow(self.ops.clone()));
        }
        let mut flips = |wanted: bool| wanted && rng.chance(0.5);
        let settled = self.ops.iter().map(|op| match op {
            &TfOp::RandomFlip { horizontal, vertical } => {
                TfOp::Flip { horizontal: flips(horizontal), vertical: flips(vertical) }
            }
            other => other.clone(),
        });
        Ok(Action::TensorFlow(settled.collect()))
    }
}

/// Size of what operations make of an image of size `input`.
pub(super) fn size_after(ops: &[TfOp], input: Size) -> Size {
    ops.iter().fold(input, |size, op| match *op {
        TfOp::Resize { size: [height, width], .. } | TfOp::Crop { height, width, .. } => {
            Size { height, width, ..size }
        }
        _ => size,
    })
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
    fn half_of_random_flips_flip() {
        let flip = TensorFlowOps::new(vec![TfOp::RandomFlip { horizontal: true, vertical: false }]);
        let flipped = (0..400).filter(|&i| {
            let action = flip.draw(size(4, 4), &mut rng(i)).unwrap();
            action == Action::TensorFlow([TfOp::Flip { horizontal: true, vertical: false }].into())
        });
        assert!((150..250).contains(&flipped.count()));
    }
}
