//! The plan after lowering: for every field of a batch, the steps one worker runs for one sample.
//!
//! `Program::new` lowers a plan to the plainest steps (each transform by itself) and then, unless that is
//! switched off, runs the passes of [`super::optimizer`] over them. Both programs give the same bits.

use std::{fmt, ops::Range};

use wellfed_kernels::{
    image::{Dtype, Layout},
    points::{PointMap, PointOp},
};

use super::{
    Batching, Decoding, Options,
    lower::{LeafMap, is_image},
    optimizer,
};
use crate::{
    Error, Result,
    codec::Mode,
    engine::{ColumnKind, ColumnSpec},
    sample::{DType, FieldKind, PixelLayout, Schema},
    transform::{Action, Class, ImageDtype, Shape, Size, Transform},
};

/// What workers run for one sample: one entry per field of the source.
#[derive(Clone, Debug)]
pub struct Program {
    pub(crate) fields: Vec<FieldProgram>,
    pub(crate) columns: Vec<ColumnSpec>,
    /// What each optimizer pass did, for `explain()`.
    pub(crate) notes: Vec<optimizer::Note>,
}

/// How one field gets into its column.
#[derive(Clone, Debug)]
pub(crate) enum FieldProgram {
    Image(Box<ImageProgram>),
    /// Elements are copied as they are.
    Copy,
    /// A whole number becomes one int64.
    Int,
    /// Text, JSON or bytes.
    List {
        utf8: bool,
    },
}

/// Where an image comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    Encoded { mode: Mode, orientation: bool },
    Pixels { height: usize, width: usize, channels: usize, layout: PixelLayout },
}

/// A transform with the stage number that keys its random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) transform: Transform,
    pub(crate) class: Class,
    pub(crate) stage: u32,
}

/// One step of an image program. Ranges are places in [`ImageProgram::stages`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// The whole image is decoded before anything else. Without this step the first one decodes what it needs.
    Decode,
    /// Geometry, folded into one kernel that makes an 8-bit image.
    Geometry(Range<usize>),
    /// One transform that needs a whole 8-bit image (colour, blur, rotation, erasing).
    Whole(usize),
    /// Geometry, casts and normalization, folded into one kernel that writes to the batch.
    Write { stages: Range<usize>, map: PointMap },
    /// One `RandomErasing` on the finished image, in the batch.
    Erase(usize),
    /// Transforms on floating point pixels one by one, then a copy to the batch.
    Float(Range<usize>),
}

/// What happens to one image field.
#[derive(Clone, Debug)]
pub(crate) struct ImageProgram {
    pub(crate) input: Input,
    pub(crate) stages: Vec<Planned>,
    pub(crate) steps: Vec<Step>,
    /// Whether only what later stages need is decoded.
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
    /// Lowers and optimizes what happens to samples of a source with `schema`.
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
        probe: &mut dyn FnMut(usize, &ImageProgram) -> Result<Size>,
    ) -> Result<Self> {
        let stages = stages_by_field(maps, schema)?;
        let mut notes = Vec::new();
        let mut fields = Vec::new();
        let mut columns = Vec::new();
        for (index, (field, stages)) in schema.fields.iter().zip(stages).enumerate() {
            let (program, kind) = match &field.kind {
                FieldKind::Image => {
                    let input = Input::Encoded { mode: options.mode, orientation: options.exif_orientation };
                    image(&mut notes, index, &field.name, input, stages, options, probe)?
                }
                &FieldKind::Pixels { height, width, channels, layout } => {
                    let input = Input::Pixels { height, width, channels, layout };
                    image(&mut notes, index, &field.name, input, stages, options, probe)?
                }
                FieldKind::Array { dtype, shape } => {
                    (FieldProgram::Copy, ColumnKind::Array { dtype: *dtype, shape: shape.clone() })
                }
                FieldKind::Int => {
                    (FieldProgram::Int, ColumnKind::Array { dtype: DType::Int64, shape: Vec::new() })
                }
                FieldKind::Text => (FieldProgram::List { utf8: true }, ColumnKind::Text),
                FieldKind::Json => (FieldProgram::List { utf8: true }, ColumnKind::Json),
                FieldKind::Bytes => (FieldProgram::List { utf8: false }, ColumnKind::Bytes),
            };
            fields.push(program);
            columns.push(ColumnSpec { name: field.name.clone(), kind });
        }
        Ok(Self { fields, columns, notes })
    }

    /// Of a source that has no part in what is made.
    pub(crate) fn empty() -> Self {
        Self { fields: Vec::new(), columns: Vec::new(), notes: Vec::new() }
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

/// The transforms of each field, in order, with their stage numbers. A stage number is the transform's place among all
/// on the way from the source to the root, so that adding a field does not change another one's draws.
fn stages_by_field(maps: &[LeafMap], schema: &Schema) -> Result<Vec<Vec<Planned>>> {
    let mut stages: Vec<Vec<Planned>> = vec![Vec::new(); schema.fields.len()];
    let mut stage = 0;
    for map in maps {
        for transform in Transform::flatten(&map.transforms) {
            transform.as_stage().check().map_err(|e| e.with_stage(transform.name()))?;
            let class = transform.as_stage().class();
            for &index in map.fields.iter().filter(|index| is_image(&schema.fields[**index].kind)) {
                stages[index].push(Planned { transform: transform.clone(), class, stage });
            }
            stage += 1;
        }
    }
    Ok(stages)
}

fn image(
    notes: &mut Vec<optimizer::Note>,
    index: usize,
    name: &str,
    input: Input,
    stages: Vec<Planned>,
    options: &Options,
    probe: &mut dyn FnMut(usize, &ImageProgram) -> Result<Size>,
) -> Result<(FieldProgram, ColumnKind)> {
    let shape = match input {
        Input::Encoded { mode, .. } => {
            let channels = match mode {
                Mode::L => 1,
                Mode::Rgb | Mode::Unchanged => 3,
                Mode::Rgba => 4,
            };
            Shape { height: None, width: None, channels }
        }
        Input::Pixels { height, width, channels, .. } => {
            Shape { height: Some(height), width: Some(width), channels }
        }
    };
    let layout = match options.layout {
        Batching::Nchw => Layout::Chw,
        Batching::Nhwc => Layout::Hwc,
    };
    let shape = stages.iter().fold(shape, |shape, planned| planned.transform.as_stage().fixed_size(shape));
    let mut program = ImageProgram {
        input,
        stages,
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

/// Follows the element type through the stages.
fn check_types(program: &ImageProgram) -> Result<Dtype> {
    let mut dtype = Dtype::U8;
    let mut cast = None;
    for planned in &program.stages {
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
            Class::Resize | Class::Rotate | Class::Color | Class::Gray | Class::Blur if cast.is_some() => {
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
        let action = self.transform.as_stage().draw(size, &mut crate::rng::Rng::for_stage(0, 0, 0, 0));
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
            Layout::Chw => vec![channels, height, width],
            Layout::Hwc => vec![height, width, channels],
        };
        let bytes = shape.iter().try_fold(self.dtype.size(), |n, &side| n.checked_mul(side));
        if bytes.is_none_or(|n| n > isize::MAX as usize) {
            return Err(Error::config(format!("an image of shape {shape:?} does not fit in memory")));
        }
        let dtype = match self.dtype {
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
        let single = (0..cast).map(|i| match self.stages[i].class {
            Class::Identity | Class::Crop | Class::Resize | Class::Flip => Step::Geometry(i..i + 1),
            _ => Step::Whole(i),
        });
        self.steps = decode.into_iter().chain(single).collect();
        let end = self.stages.len();
        self.steps.push(if cast == end {
            Step::Write { stages: end..end, map: self.map(end..end)? }
        } else {
            // Checks the parameters against the channels, as the fused program would.
            self.map(cast..end)?;
            Step::Float(cast..end)
        });
        Ok(())
    }

    /// Place of the first cast: from there on pixels may be floating point.
    pub(crate) fn first_cast(&self) -> usize {
        self.stages.iter().position(|p| p.class == Class::Cast).unwrap_or(self.stages.len())
    }

    /// All value-by-value operations in `stages` as one map.
    pub(crate) fn map(&self, stages: Range<usize>) -> Result<PointMap> {
        let point = |planned: &Planned| planned.point(self.shape.channels).transpose();
        let ops: Vec<PointOp> = self.stages[stages].iter().filter_map(point).collect::<Result<_>>()?;
        PointMap::new(self.shape.channels, &ops).map_err(|e| Error::config(e.to_string()))
    }

    /// Names of the stages in a range, for people.
    pub(crate) fn names(&self, stages: Range<usize>) -> String {
        let names: Vec<&str> = self.stages[stages].iter().map(|p| p.transform.name()).collect();
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
                Step::Geometry(stages) => format!("{} -> uint8 image", self.names(stages.clone())),
                Step::Whole(stage) => format!("{} on the uint8 image", self.names(*stage..stage + 1)),
                Step::Write { stages, .. } if stages.is_empty() => "write to the batch".to_owned(),
                Step::Write { stages, .. } => format!("{} -> batch, in one pass", self.names(stages.clone())),
                Step::Erase(stage) => format!("{} in the batch", self.names(*stage..stage + 1)),
                Step::Float(stages) => {
                    format!(
                        "{} on float32 pixels, one by one, then write to the batch",
                        self.names(stages.clone())
                    )
                }
            });
        }
        let last = lines.len() - 1;
        lines[last] += &match self.layout {
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
                FieldProgram::Int => writeln!(f, "  {}: int64", column.name)?,
                FieldProgram::Copy => writeln!(f, "  {}: copied as it is", column.name)?,
                FieldProgram::List { .. } => writeln!(f, "  {}: a list", column.name)?,
            }
        }
        Ok(())
    }
}
