//! The plan after lowering: for every field of a batch, the steps one worker runs for one sample.
//!
//! `Program::new` lowers a plan to the plainest steps (each transform by itself) and then, unless that is
//! switched off, runs the passes of [`super::optimizer`] over them. Both programs give the same bits.

use std::{fmt, ops::Range};

use wellfed_kernels::{
    image::{Dtype, Layout},
    points::{PointMap, PointOp},
};

use super::{Assembly, Batching, Decoding, Options, lower::LeafMap, optimizer};
use crate::{
    Error, Result,
    codec::{MaskDepth, Mode},
    engine::{ColumnKind, ColumnSpec, stack::Stacking},
    sample::{DType, FieldKind, FieldSpec, PixelLayout, Schema},
    transform::{Action, BoxFormat, Class, ImageDtype, Shape, Size, Takes, Transform},
};

/// What workers run for one sample: one entry per field of the source.
#[derive(Clone, Debug)]
pub struct Program {
    pub(crate) fields: Vec<FieldProgram>,
    pub(crate) columns: Vec<ColumnSpec>,
    /// The fields in the order in which they are made: images, since the first of them settles the draws of the sample,
    /// then masks, boxes and points, which follow these, then what belongs to boxes, then the rest.
    pub(crate) order: Vec<usize>,
    /// Whether fields share draws.
    pub(crate) shared: bool,
    /// What each optimizer pass did, for `explain()`.
    pub(crate) notes: Vec<optimizer::Note>,
}

/// How one field gets into its column.
#[derive(Clone, Debug)]
pub(crate) enum FieldProgram {
    /// An image or a mask.
    Image(Box<ImageProgram>),
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
    /// One transform that needs a whole 8-bit image (colour, blur, rotation, erasing).
    Whole(usize),
    /// Geometry, casts and normalization, folded into one kernel that writes to the batch.
    Write { operations: Range<usize>, map: PointMap },
    /// One `RandomErasing` on the finished image, in the batch.
    Erase(usize),
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
    /// Size of the finished image. A side is `None` until a sample has settled it.
    pub(crate) shape: Shape,
    /// Whether a sample did, since transforms do not.
    pub(crate) probed: bool,
    pub(crate) dtype: Dtype,
    pub(crate) layout: Layout,
}

impl Program {
    /// Lowers and optimizes what happens to samples of a source with `schema`, whose fields become the columns from
    /// `first_column` on, put together by `assembly`.
    ///
    /// `probe` gives the finished size of a first sample of the field with the given place in the schema; it is
    /// only asked where the plan does not settle the size.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] for transforms that make no sense where they stand.
    pub(crate) fn new(
        maps: &[LeafMap],
        options: &Options,
        schema: &Schema,
        (assembly, first_column): (Assembly<'_>, usize),
        probe: &mut dyn FnMut(usize, &ImageProgram) -> Result<Size>,
    ) -> Result<Self> {
        let operations = operations_by_field(maps, schema)?;
        let mut notes = Vec::new();
        let mut fields = Vec::new();
        let mut columns = Vec::new();
        for (index, (field, operations)) in schema.fields.iter().zip(operations).enumerate() {
            let (program, kind) = match &field.kind {
                FieldKind::Image => {
                    let input = Input::Encoded { mode: options.mode, orientation: options.exif_orientation };
                    image(&mut notes, index, &field.name, input, operations, options, probe)?
                }
                FieldKind::Mask { dtype } => {
                    let input = Input::Encoded {
                        mode: Mode::Mask(mask_depth(*dtype)?),
                        orientation: options.exif_orientation,
                    };
                    image(&mut notes, index, &field.name, input, operations, options, probe)?
                }
                &FieldKind::Boxes { format, dtype } => {
                    if !matches!(dtype, DType::Float32 | DType::Int64) {
                        let what = format!("boxes of {}; boxes are float32 or int64", dtype.name());
                        return Err(Error::config(what));
                    }
                    (
                        FieldProgram::Boxes { operations, format, whole: dtype == DType::Int64 },
                        rows(assembly, first_column + index, &field.name, dtype, &[None, Some(4)])?,
                    )
                }
                FieldKind::Keypoints => (
                    FieldProgram::Points(operations),
                    rows(assembly, first_column + index, &field.name, DType::Float32, &[None, Some(2)])?,
                ),
                FieldKind::BoxLabels { dtype } => (
                    FieldProgram::Labels(dtype.size()),
                    rows(assembly, first_column + index, &field.name, *dtype, &[None])?,
                ),
                &FieldKind::Pixels { height, width, channels, layout } => {
                    let input = Input::Pixels { height, width, channels, layout };
                    image(&mut notes, index, &field.name, input, operations, options, probe)?
                }
                _ => assembly.column(first_column + index, field)?,
            };
            fields.push(program);
            columns.push(ColumnSpec { name: field.name.clone(), kind });
        }
        let (order, shared) = sharing(&mut fields)?;
        Ok(Self { fields, columns, order, shared, notes })
    }

    /// Of a source that has no part in what is made.
    pub(crate) fn empty() -> Self {
        Self { fields: Vec::new(), columns: Vec::new(), order: Vec::new(), shared: false, notes: Vec::new() }
    }

    /// Whether the plan fixes the size of every image.
    pub(crate) fn is_settled(&self) -> bool {
        (0..self.fields.len()).all(|field| self.unsettled(field).is_none())
    }

    /// The program of an image whose size was that of a sample.
    pub(crate) fn unsettled(&self, field: usize) -> Option<&ImageProgram> {
        match &self.fields[field] {
            FieldProgram::Image(image) if image.probed => Some(image),
            _ => None,
        }
    }

    /// Makes `size` that of the finished image of `field`. False for other channels: maps of values are made for so
    /// many, while nothing else in a program looks at sizes.
    pub(crate) fn settle(&mut self, field: usize, size: Size) -> Result<bool> {
        let FieldProgram::Image(image) = &mut self.fields[field] else { return Ok(false) };
        let Size { height, width, channels } = size;
        if channels != image.shape.channels {
            return Ok(false);
        }
        if image.chw() != [channels, height, width] {
            image.shape = Shape { height: Some(height), width: Some(width), channels };
            self.columns[field].kind = image.column()?;
        }
        Ok(true)
    }

    /// True if some image is decoded in part.
    pub(crate) fn decodes_regions(&self) -> bool {
        let regions = |field: &FieldProgram| matches!(field, FieldProgram::Image(i) if i.decode_region);
        self.fields.iter().any(regions)
    }
}

/// The column of rows that differ in number from sample to sample: as the batch puts such arrays together, and by
/// `batch()` a list.
fn rows(
    assembly: Assembly<'_>,
    number: usize,
    name: &str,
    dtype: DType,
    shape: &[Option<usize>],
) -> Result<ColumnKind> {
    let assembly = if assembly == Assembly::Stacked { Assembly::List } else { assembly };
    let field = FieldSpec { name: name.to_owned(), kind: FieldKind::Array { dtype, shape: shape.to_vec() } };
    Ok(assembly.column(number, &field)?.1)
}

/// In which order fields are made, and whether they share draws, which the images among them are told.
fn sharing(fields: &mut [FieldProgram]) -> Result<(Vec<usize>, bool)> {
    let rank = |field: &FieldProgram| match field {
        FieldProgram::Image(image) if image.mask.is_none() => 0,
        FieldProgram::Image(_) => 1,
        FieldProgram::Boxes { .. } => 2,
        FieldProgram::Points(_) => 3,
        FieldProgram::Labels(_) => 4,
        _ => 5,
    };
    let mut order: Vec<usize> = (0..fields.len()).collect();
    order.sort_by_key(|&field| rank(&fields[field]));
    let moved = fields.iter().filter(|field| rank(field) < 4).count();
    let boxes = fields.iter().filter(|field| rank(field) == 2).count();
    if boxes != 1 && fields.iter().any(|field| rank(field) == 4) {
        return Err(Error::config(format!("there are labels of boxes, and {boxes} fields of boxes"))
            .with_hint("labels belong to exactly one field of boxes"));
    }
    let shared = moved > 1;
    for field in fields {
        if let FieldProgram::Image(image) = field {
            image.shared = shared;
        }
    }
    Ok((order, shared))
}

fn mask_depth(dtype: DType) -> Result<MaskDepth> {
    match dtype {
        DType::Bool => Ok(MaskDepth::Bit),
        DType::UInt8 => Ok(MaskDepth::Byte),
        DType::UInt16 => Ok(MaskDepth::Word),
        other => Err(Error::config(format!("a mask of {}; masks are bool, uint8 or uint16", other.name()))),
    }
}

/// Whether an operation works on a field.
pub(crate) fn works_on(takes: Takes, kind: &FieldKind) -> bool {
    match kind {
        FieldKind::Image | FieldKind::Pixels { .. } => takes != Takes::Boxes,
        FieldKind::Mask { .. } | FieldKind::Keypoints => takes == Takes::Geometry,
        FieldKind::Boxes { .. } => takes != Takes::Images,
        _ => false,
    }
}

/// The transforms of each field, in order, with their places. A place is counted among all transforms on the way from the
/// source to the root, so that adding a field does not change another one's draws.
fn operations_by_field(maps: &[LeafMap], schema: &Schema) -> Result<Vec<Vec<Planned>>> {
    let mut operations: Vec<Vec<Planned>> = vec![Vec::new(); schema.fields.len()];
    let mut place = 0;
    for map in maps {
        for transform in Transform::flatten(&map.transforms) {
            let operation = transform.as_operation();
            operation.check().map_err(|e| e.with_stage(transform.name()))?;
            let (class, takes) = (operation.class(), operation.takes());
            for &index in map.fields.iter().filter(|index| works_on(takes, &schema.fields[**index].kind)) {
                operations[index].push(Planned { transform: transform.clone(), class, place });
            }
            place += 1;
        }
    }
    Ok(operations)
}

fn image(
    notes: &mut Vec<optimizer::Note>,
    index: usize,
    name: &str,
    input: Input,
    operations: Vec<Planned>,
    options: &Options,
    probe: &mut dyn FnMut(usize, &ImageProgram) -> Result<Size>,
) -> Result<(FieldProgram, ColumnKind)> {
    let shape = match input {
        Input::Encoded { mode, .. } => {
            let channels = match mode {
                Mode::L => 1,
                Mode::Rgb | Mode::Unchanged => 3,
                Mode::Rgba => 4,
                Mode::Mask(MaskDepth::Bit | MaskDepth::Byte) => 1,
                Mode::Mask(MaskDepth::Word) => 2,
            };
            Shape { height: None, width: None, channels }
        }
        Input::Pixels { height, width, channels, .. } => {
            Shape { height: Some(height), width: Some(width), channels }
        }
    };
    let mask = match input {
        Input::Encoded { mode: Mode::Mask(depth), .. } => Some(depth),
        _ => None,
    };
    let layout = match options.layout {
        // The bytes of one pixel of a mask stay together.
        Batching::Nchw if mask.is_none() => Layout::Chw,
        _ => Layout::Hwc,
    };
    let shape =
        operations.iter().fold(shape, |shape, planned| planned.transform.as_operation().fixed_size(shape));
    let mut program = ImageProgram {
        input,
        mask,
        shared: false,
        operations,
        steps: Vec::new(),
        decode_region: false,
        decode_fast: options.decode == Decoding::Fast,
        shape,
        probed: false,
        dtype: Dtype::U8,
        layout,
    };
    let unknown = shape.height.is_none() || shape.width.is_none();
    if unknown || matches!(input, Input::Encoded { mode: Mode::Unchanged, .. }) {
        let Size { height, width, channels } = probe(index, &program)?;
        program.shape = Shape { height: Some(height), width: Some(width), channels };
        program.probed = true;
        notes.push(optimizer::Note {
            field: name.to_owned(),
            pass: "probe",
            change: format!("the transforms do not settle the size; the first sample does: {height}x{width}"),
        });
    }
    program.dtype = check_types(&program)?;
    program.lower()?;
    if options.optimize {
        optimizer::optimize(&mut program, name, notes)?;
    }
    let kind = program.column()?;
    Ok((FieldProgram::Image(Box::new(program)), kind))
}

/// Follows the element type through the operations.
fn check_types(program: &ImageProgram) -> Result<Dtype> {
    let mut dtype = Dtype::U8;
    let mut cast = None;
    for planned in &program.operations {
        let name = planned.transform.name();
        match planned.class {
            Class::Cast => {
                if let Some(PointOp::ToDtype { dtype: to, .. }) = planned.point(program.shape.channels)? {
                    dtype = to;
                } else {
                    dtype = Dtype::F32;
                }
                cast.get_or_insert(name);
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
        Action::Normalize { mean, std } => Some(PointOp::Normalize { mean: single(mean), std: single(std) }),
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
    /// What its column is.
    fn column(&self) -> Result<ColumnKind> {
        let [channels, height, width] = self.chw();
        let shape = match self.layout {
            _ if self.mask.is_some() => vec![1, height, width],
            Layout::Chw => vec![channels, height, width],
            Layout::Hwc => vec![height, width, channels],
        };
        let element = if self.mask == Some(MaskDepth::Word) { 2 } else { self.dtype.size() };
        let bytes = shape.iter().try_fold(element, |n, &side| n.checked_mul(side));
        if bytes.is_none_or(|n| n > isize::MAX as usize) {
            return Err(Error::config(format!("an image of shape {shape:?} does not fit in memory")));
        }
        let dtype = match self.dtype {
            _ if self.mask == Some(MaskDepth::Word) => DType::UInt16,
            _ if self.mask == Some(MaskDepth::Bit) => DType::Bool,
            Dtype::U8 => DType::UInt8,
            Dtype::F16 => DType::Float16,
            Dtype::Bf16 => DType::BFloat16,
            Dtype::F32 => DType::Float32,
        };
        Ok(ColumnKind::Array { dtype, shape })
    }

    /// Channels, height and width of the finished image.
    pub(crate) fn chw(&self) -> [usize; 3] {
        [self.shape.channels, self.shape.height.unwrap_or(0), self.shape.width.unwrap_or(0)]
    }

    /// The plainest program: every stage by itself, whole images decoded.
    fn lower(&mut self) -> Result<()> {
        let cast = self.first_cast();
        let decode = matches!(self.input, Input::Encoded { .. }).then_some(Step::Decode);
        let single = (0..cast).map(|i| match self.operations[i].class {
            Class::Identity | Class::Crop | Class::Resize | Class::Flip => Step::Geometry(i..i + 1),
            _ => Step::Whole(i),
        });
        self.steps = decode.into_iter().chain(single).collect();
        let end = self.operations.len();
        self.steps.push(if cast == end {
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

    /// Names of the operations in a range, for people.
    pub(crate) fn names(&self, operations: Range<usize>) -> String {
        let names: Vec<&str> = self.operations[operations].iter().map(|p| p.transform.name()).collect();
        names.join(" + ")
    }

    /// The program in words, one line a step.
    pub(crate) fn describe(&self) -> Vec<String> {
        let [channels, height, width] = self.chw();
        let mut lines = vec![match self.input {
            Input::Encoded { mode, orientation } => {
                let what = if self.decode_region {
                    "only what the next step needs of it"
                } else {
                    "the whole image"
                };
                let fast = if self.decode_fast && self.decode_region {
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
        lines[last] += &match self.layout {
            _ if self.mask.is_some() => format!(": a mask [1, {height}, {width}]"),
            Layout::Chw => format!(": {:?} [{channels}, {height}, {width}]", self.dtype),
            Layout::Hwc => format!(": {:?} [{height}, {width}, {channels}]", self.dtype),
        };
        lines
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (column, field) in self.columns.iter().zip(&self.fields) {
            match field {
                FieldProgram::Image(image) => {
                    writeln!(f, "  {}:", column.name)?;
                    for (i, line) in image.describe().into_iter().enumerate() {
                        writeln!(f, "    {}. {line}", i + 1)?;
                    }
                }
                FieldProgram::Boxes { operations, .. } | FieldProgram::Points(operations) => {
                    let names: Vec<&str> =
                        operations.iter().map(|planned| planned.transform.name()).collect();
                    let what = if names.is_empty() { "as they are".to_owned() } else { names.join(" + ") };
                    writeln!(f, "  {}: {what}, drawn with the image", column.name)?;
                }
                FieldProgram::Labels(_) => {
                    writeln!(f, "  {}: one entry a box", column.name)?;
                }
                FieldProgram::Int => writeln!(f, "  {}: int64", column.name)?,
                FieldProgram::Copy => writeln!(f, "  {}: copied as it is", column.name)?,
                FieldProgram::Varying => {
                    let ColumnKind::Varying { stacking, .. } = &column.kind else { continue };
                    let how = match stacking {
                        Stacking::Alone => "copied as it is".to_owned(),
                        Stacking::Padded(padding) => {
                            let side =
                                |side: &Option<usize>| side.map_or("longest".to_owned(), |s| s.to_string());
                            let sides: Vec<String> = padding.shape.iter().map(side).collect();
                            format!("padded to [{}] when the batch is complete", sides.join(", "))
                        }
                        Stacking::Ragged => {
                            "values and offsets, put together when the batch is complete".to_owned()
                        }
                        Stacking::List => "a list".to_owned(),
                    };
                    writeln!(f, "  {}: {how}", column.name)?;
                }
                FieldProgram::List { .. } => writeln!(f, "  {}: a list", column.name)?,
            }
        }
        Ok(())
    }
}
