//! The program of one field: how its values get into their column. Most of it is about images; sounds are in `audio.rs`.

use std::{
    ops::Range,
    sync::{Arc, atomic::AtomicU32},
};

use wellfed_kernels::{
    image::{Dtype, Layout},
    points::{PointMap, PointOp},
};

use super::{audio::AudioProgram, options::OnDevice};
use crate::{
    Error, Result,
    codec::{MaskDepth, Mode},
    column::{ColumnKind, Stacking},
    sample::{BoxFormat, DType, PixelLayout},
    transform::{Action, Class, ImageDtype, Shape, Size, Transform},
};

/// How one field gets into its column.
#[derive(Clone, Debug)]
pub(crate) enum FieldProgram {
    /// An image or a mask.
    Image(Box<ImageProgram>),
    /// A sound.
    Audio(Box<AudioProgram>),
    /// Boxes that follow the image.
    Boxes {
        operations: Vec<Planned>,
        format: BoxFormat,
        /// Whether they are int64.
        whole: bool,
    },
    /// Points that follow the image.
    Points(Vec<Planned>),
    /// What belongs to boxes: entries of so many bytes.
    Labels(usize),
    /// Elements are copied as they are.
    Copy,
    /// Values differ in size, or are padded.
    Varying,
    /// A whole number becomes one int64.
    Int,
    /// A whole number that becomes numbers of its class when the batch is mixed: at the start of its place.
    Index,
    /// Text, JSON or bytes.
    List { utf8: bool },
}

/// Where an image comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    Encoded { mode: Mode, orientation: bool },
    Pixels { height: usize, width: usize, channels: usize, layout: PixelLayout },
}

/// A transform with its place among those of the plan, which keys its random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) transform: Transform,
    pub(crate) class: Class,
    pub(crate) place: u32,
}

/// One step of an image program. Ranges are places in [`ImageProgram::operations`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// The whole image is decoded before anything else. Without this step the first one decodes what it needs.
    Decode,
    /// Geometry, folded into one kernel that makes an 8-bit image.
    Geometry(Range<usize>),
    /// One transform that needs a whole 8-bit image (colour, blur, rotation, noise, erasing).
    Whole(usize),
    /// Geometry, casts and normalization, folded into one kernel that writes to the batch.
    Write { operations: Range<usize>, map: PointMap },
    /// As `Write`, but what is left is written down for a device, `from` the earliest step that it runs: geometry, which
    /// may be none, and what follows it, of which there is no cast to more than bytes but in `map`. The last one.
    Leave { operations: Range<usize>, rest: Vec<Step>, map: PointMap, from: OnDevice },
    /// One `RandomErasing` on the finished image, in the batch.
    Erase(usize),
    /// As `Write`, once for each crop of an image of which several are made.
    Crops { operations: Range<usize>, map: PointMap },
    /// TensorFlow's operations on a whole 8-bit image, into the batch. The last one.
    TensorFlow(usize),
    /// Transforms on floating point pixels one by one, then a copy to the batch.
    Float(Range<usize>),
}

/// What happens to one image field.
#[derive(Clone, Debug)]
pub(crate) struct ImageProgram {
    pub(crate) input: Input,
    /// What its pixels are, if it is a mask.
    pub(crate) mask: Option<MaskDepth>,
    /// Whether other fields share its draws.
    pub(crate) shared: bool,
    pub(crate) operations: Vec<Planned>,
    pub(crate) steps: Vec<Step>,
    /// Whether only what later operations need is decoded.
    pub(crate) decode_region: bool,
    /// Whether images that are shrunk may be decoded at a smaller scale.
    pub(crate) decode_fast: bool,
    /// Size of the finished image, or of each, if several are made of one. A side is `None` until a sample has settled it.
    pub(crate) shape: Shape,
    /// Whether a sample did, since transforms do not.
    pub(crate) probed: bool,
    /// Whether finished images differ in size, and `shape` stays open.
    pub(crate) varies: bool,
    /// The field of boxes that draws look at.
    pub(crate) boxes: Option<usize>,
    pub(crate) dtype: Dtype,
    pub(crate) layout: Layout,
    /// With [`OnDevice::Auto`]: of every 256 samples, so many are left to the device as early as may be.
    pub(crate) device_share: Arc<AtomicU32>,
}

/// Follows the element type through the operations.
pub(super) fn check_types(program: &ImageProgram) -> Result<Dtype> {
    let mut dtype = Dtype::U8;
    let (mut cast, mut several) = (None, None);
    check_before(program)?;
    let mut ended = None;
    for planned in &program.operations {
        let name = planned.transform.name();
        if let Some(last) = ended.filter(|_| planned.class != Class::Identity) {
            return Err(Error::config(format!("{name} comes after {last}, which must come last"))
                .with_stage(name)
                .with_hint(format!("put {name} before it, or make it one of its operations")));
        }
        if let Some(several) = several {
            check_after(several, planned)?;
        }
        match planned.class {
            Class::Crops(_) => several = Some(name),
            Class::Cast => {
                if let Some(PointOp::ToDtype { dtype: to, .. }) = planned.point(program.shape.channels)? {
                    dtype = to;
                } else {
                    dtype = Dtype::F32;
                }
                cast.get_or_insert(name);
            }
            Class::TensorFlow if cast.is_some() || several.is_some() => {
                let before = cast.or(several).unwrap_or_default();
                return Err(Error::config(format!("{name} comes after {before}, but works on uint8 images"))
                    .with_stage(name)
                    .with_hint("make casts operations of it"));
            }
            Class::TensorFlow => {
                if let Transform::TensorFlowOps(ops) = &planned.transform {
                    dtype = kernel_dtype(ops.dtype().map_err(|e| e.with_stage(name))?);
                }
                ended = Some(name);
            }
            Class::Normalize if dtype == Dtype::U8 => {
                return Err(Error::config("Normalize works on floating point images, and this one is uint8")
                    .with_stage(name)
                    .with_hint("put ToDtype(float32, scale=True) or ToTensor() before it"));
            }
            Class::Resize | Class::Image if cast.is_some() => {
                return Err(Error::config(format!(
                    "{name} comes after {}, but works on uint8 images",
                    cast.unwrap_or_default()
                ))
                .with_stage(name)
                .with_hint(format!("put {name} before it: the result is the same or better, and faster")));
            }
            _ => {}
        }
    }
    Ok(dtype)
}

/// Fails unless `planned` may follow what makes several images of one: where it changes each of their values by itself.
fn check_after(several: &str, planned: &Planned) -> Result<()> {
    if matches!(planned.class, Class::Identity | Class::Cast | Class::Normalize) {
        return Ok(());
    }
    let name = planned.transform.name();
    Err(Error::config(format!("{name} comes after {several}, which makes several images of one"))
        .with_stage(name)
        .with_hint(format!("put {name} before it; casts and Normalize may follow {several}")))
}

/// Fails where crops of finished values would be needed: between the cast and what makes several images of one.
fn check_before(program: &ImageProgram) -> Result<()> {
    let Some((place, _)) = program.several() else { return Ok(()) };
    let between = program.first_cast()..place;
    for planned in program.operations.get(between).unwrap_or_default() {
        if !matches!(planned.class, Class::Identity | Class::Cast | Class::Normalize | Class::Flip) {
            let (name, several) = (planned.transform.name(), program.operations[place].transform.name());
            return Err(Error::config(format!("{name} stands between a cast and {several}"))
                .with_stage(name)
                .with_hint(format!("put {name} before the cast")));
        }
    }
    Ok(())
}

impl Planned {
    /// The value-by-value operation of a cast or normalization of an image of so many channels.
    ///
    /// # Errors
    /// If its parameters do not fit the channels.
    pub(crate) fn point(&self, channels: usize) -> Result<Option<PointOp>> {
        if !matches!(self.class, Class::Cast | Class::Normalize) {
            return Ok(None);
        }
        // Neither of them draws, nor depends on more of the size than the channels.
        let size = Size { height: 1, width: 1, channels };
        let action = self.transform.as_operation().draw(size, &mut crate::rng::Rng::for_stage(0, 0, 0, 0));
        Ok(point(&action.map_err(|e| e.with_stage(self.transform.name()))?))
    }
}

/// The value-by-value operation of an action.
pub(crate) fn point(action: &Action) -> Option<PointOp> {
    let single = |values: &[f64]| values.iter().map(|&v| v as f32).collect();
    match action {
        Action::Cast { divide: true, .. } => Some(PointOp::ToTensorDiv),
        Action::Cast { dtype, scale, .. } => {
            Some(PointOp::ToDtype { dtype: kernel_dtype(*dtype), scale: *scale })
        }
        Action::Normalize { mean, std, by_reciprocal: false } => {
            Some(PointOp::Normalize { mean: single(mean), std: single(std) })
        }
        Action::Normalize { mean, std, by_reciprocal: true } => {
            Some(PointOp::NormalizeByReciprocal { mean: single(mean), std: single(std) })
        }
        _ => None,
    }
}

fn kernel_dtype(dtype: ImageDtype) -> Dtype {
    match dtype {
        ImageDtype::UInt8 => Dtype::U8,
        ImageDtype::Float16 => Dtype::F16,
        ImageDtype::BFloat16 => Dtype::Bf16,
        ImageDtype::Float32 => Dtype::F32,
    }
}

impl ImageProgram {
    /// The map of values that is left to a device, if the image is.
    pub(crate) fn left(&self) -> Option<&PointMap> {
        match self.steps.last() {
            Some(Step::Leave { map, .. }) => Some(map),
            _ => None,
        }
    }

    /// What its column is, where all images have one size.
    pub(super) fn column(&self) -> Result<ColumnKind> {
        if self.left().is_some() {
            return Ok(ColumnKind::Varying {
                dtype: DType::UInt8,
                shape: vec![None],
                stacking: Stacking::Ragged,
            });
        }
        let [_, height, width] = self.chw();
        let shape = self.sides(height, width);
        self.bytes(height, width)?;
        Ok(ColumnKind::Array { dtype: self.element(), shape })
    }

    /// Sides of a finished image of `height` x `width`, in their order; before them the number of images, if several are
    /// made of one.
    pub(crate) fn sides<T: From<usize>>(&self, height: T, width: T) -> Vec<T> {
        let one = match self.layout {
            _ if self.mask.is_some() => [T::from(1), height, width],
            Layout::Chw => [T::from(self.shape.channels), height, width],
            Layout::Hwc => [height, width, T::from(self.shape.channels)],
        };
        self.several().map(|(_, count)| T::from(count)).into_iter().chain(one).collect()
    }

    /// The place of the transform that makes several images of one, and how many.
    pub(crate) fn several(&self) -> Option<(usize, usize)> {
        self.operations.iter().enumerate().find_map(|(place, planned)| match planned.class {
            Class::Crops(count) => Some((place, count)),
            _ => None,
        })
    }

    /// Bytes of a finished image of `height` x `width`.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] for more than there can be.
    pub(crate) fn bytes(&self, height: usize, width: usize) -> Result<usize> {
        let shape = self.sides(height, width);
        let bytes = shape.iter().try_fold(self.element().size(), |n, &side| n.checked_mul(side));
        bytes
            .filter(|n| *n <= isize::MAX as usize)
            .ok_or_else(|| Error::config(format!("an image of shape {shape:?} does not fit in memory")))
    }

    /// Element type of a finished image.
    pub(crate) fn element(&self) -> DType {
        match self.dtype {
            _ if self.mask == Some(MaskDepth::Word) => DType::UInt16,
            _ if self.mask == Some(MaskDepth::Bit) => DType::Bool,
            Dtype::U8 => DType::UInt8,
            Dtype::F16 => DType::Float16,
            Dtype::Bf16 => DType::BFloat16,
            Dtype::F32 => DType::Float32,
        }
    }

    /// Channels, height and width of the finished image, or of each.
    pub(crate) fn chw(&self) -> [usize; 3] {
        [self.shape.channels, self.shape.height.unwrap_or(0), self.shape.width.unwrap_or(0)]
    }

    /// The plainest program: every stage by itself, whole images decoded.
    pub(super) fn lower(&mut self) -> Result<()> {
        let several = self.several().map(|(place, _)| place);
        let tensorflow = self.operations.iter().position(|p| p.class == Class::TensorFlow);
        let cast = several.map_or(self.first_cast(), |place| place.min(self.first_cast()));
        let decode = matches!(self.input, Input::Encoded { .. }).then_some(Step::Decode);
        let single = (0..cast).map(|i| match self.operations[i].class {
            Class::Identity | Class::Crop | Class::Resize | Class::Flip => Step::Geometry(i..i + 1),
            _ => Step::Whole(i),
        });
        self.steps = decode.into_iter().chain(single).collect();
        let end = self.operations.len();
        if let Some(at) = tensorflow {
            // What follows does nothing.
            self.steps.truncate(self.steps.len() - (cast - at));
            self.steps.push(Step::TensorFlow(at));
            return Ok(());
        }
        self.steps.push(if several.is_some() {
            Step::Crops { operations: cast..end, map: self.map(cast..end)? }
        } else if cast == end {
            Step::Write { operations: end..end, map: self.map(end..end)? }
        } else {
            // Checks the parameters against the channels, as the fused program would.
            self.map(cast..end)?;
            Step::Float(cast..end)
        });
        Ok(())
    }

    /// Place of the first cast: from there on pixels may be floating point.
    pub(crate) fn first_cast(&self) -> usize {
        self.operations.iter().position(|p| p.class == Class::Cast).unwrap_or(self.operations.len())
    }

    /// All value-by-value operations in `operations` as one map.
    pub(crate) fn map(&self, operations: Range<usize>) -> Result<PointMap> {
        let point = |planned: &Planned| planned.point(self.shape.channels).transpose();
        let ops: Vec<PointOp> =
            self.operations[operations].iter().filter_map(point).collect::<Result<_>>()?;
        PointMap::new(self.shape.channels, &ops).map_err(|e| Error::config(e.to_string()))
    }

    /// Whether images that are shrunk are decoded at a smaller scale. TensorFlow's pixels are those of scale 1.
    pub(crate) fn scales(&self) -> bool {
        let exact = [
            Mode::TensorFlow,
            Mode::TensorFlowAccurate,
            Mode::TensorFlowUnchanged,
            Mode::TensorFlowL,
            Mode::TensorFlowRgba,
        ];
        self.decode_fast && !matches!(self.input, Input::Encoded { mode, .. } if exact.contains(&mode))
    }

    /// Names of the operations in a range, for people.
    pub(crate) fn names(&self, operations: Range<usize>) -> String {
        let names: Vec<&str> = self.operations[operations].iter().map(|p| p.transform.name()).collect();
        names.join(" + ")
    }

    /// Names of the operations of a [`Step::Leave`], for people.
    pub(crate) fn names_left(&self, operations: &Range<usize>, rest: &[Step]) -> String {
        let of = |step: &Step| match step {
            Step::Geometry(range) | Step::Write { operations: range, .. } => range.clone(),
            Step::Whole(at) | Step::Erase(at) => *at..at + 1,
            _ => 0..0,
        };
        let ranges = std::iter::once(operations.clone()).chain(rest.iter().map(of));
        let names: Vec<String> = ranges.filter(|range| !range.is_empty()).map(|r| self.names(r)).collect();
        names.join(" + ")
    }

    /// The program in words, one line a step.
    pub(crate) fn describe(&self) -> Vec<String> {
        let channels = self.shape.channels;
        let side = |side: Option<usize>| side.map_or_else(|| "*".to_owned(), |side| side.to_string());
        let (height, width) = (side(self.shape.height), side(self.shape.width));
        let mut lines = vec![match self.input {
            Input::Encoded { mode, orientation } => {
                let what = if self.decode_region {
                    "only what the next step needs of it"
                } else {
                    "the whole image"
                };
                let fast = if self.scales() && self.decode_region {
                    ", at 1/2, 1/4 or 1/8 where it is shrunk as much (not exact)"
                } else {
                    ""
                };
                let upright = if orientation { ", turned upright by EXIF" } else { "" };
                format!("decode to {mode:?}: {what}{fast}{upright}")
            }
            Input::Pixels { height, width, channels, layout } => {
                format!("take {height}x{width}x{channels} pixels ({layout:?}) in place")
            }
        }];
        for step in &self.steps {
            lines.push(match step {
                Step::Decode => continue,
                Step::Geometry(operations) => format!("{} -> uint8 image", self.names(operations.clone())),
                Step::Whole(at) => format!("{} on the uint8 image", self.names(*at..at + 1)),
                Step::Write { operations, .. } if operations.is_empty() => "write to the batch".to_owned(),
                Step::Write { operations, .. } => {
                    format!("{} -> batch, in one pass", self.names(operations.clone()))
                }
                Step::Leave { operations, rest, from, .. } => {
                    let first = match from {
                        OnDevice::Decode => "decode (all but Huffman codes) + ",
                        OnDevice::Auto => "a share chosen while it runs: decode (all but Huffman codes) + ",
                        OnDevice::Nvjpeg => "decode (by nvJPEG; not exact) + ",
                        _ => "",
                    };
                    let names = self.names_left(operations, rest);
                    format!("{first}{names} -> batch, on the device")
                }
                Step::Crops { operations, .. } => {
                    format!("{} -> batch, crop by crop", self.names(operations.clone()))
                }
                Step::TensorFlow(at) => {
                    let transform = &self.operations[*at].transform;
                    format!("{transform} on the uint8 image, as TensorFlow has it, into the batch")
                }
                Step::Erase(at) => format!("{} in the batch", self.names(*at..at + 1)),
                Step::Float(operations) => {
                    format!(
                        "{} on float32 pixels, one by one, then write to the batch",
                        self.names(operations.clone())
                    )
                }
            });
        }
        let last = lines.len() - 1;
        let count = self.several().map_or_else(String::new, |(_, count)| format!("{count}, "));
        lines[last] += &match self.layout {
            _ if self.mask.is_some() => format!(": a mask [1, {height}, {width}]"),
            Layout::Chw => format!(": {:?} [{count}{channels}, {height}, {width}]", self.dtype),
            Layout::Hwc => format!(": {:?} [{count}{height}, {width}, {channels}]", self.dtype),
        };
        lines
    }
}
