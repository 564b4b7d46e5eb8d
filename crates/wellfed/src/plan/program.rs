//! The plan after lowering: for every field of a batch, the steps one worker runs for one sample.
//!
//! `Program::new` lowers a plan to the plainest steps (each transform by itself) and then, unless that is
//! switched off, runs the passes of [`super::optimizer`] over them. Both programs give the same bits.

use std::fmt;

use wellfed_kernels::image::{Dtype, Layout};

use super::{
    Assembly, Batching, Decoding, OnDevice, Options,
    audio::AudioProgram,
    field::{FieldProgram, ImageProgram, Input, Planned, check_types},
    lower::{LeafMap, works_on},
    optimizer,
};
use crate::{
    Error, Result,
    codec::{MaskDepth, Mode},
    column::{ColumnKind, ColumnSpec, Stacking},
    rng::stage,
    sample::{DType, FieldKind, FieldSpec, Schema},
    transform::{Shape, Size, Transform},
};

/// A field of which a first sample must settle something.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unsettled<'a> {
    /// The size of its finished images.
    Image(&'a ImageProgram),
    /// How many channels its sounds have.
    Sound,
}

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

impl Program {
    /// Lowers and optimizes what happens to samples of a source with `schema`, whose fields become the columns from
    /// `first_column` on, put together by `assembly`.
    ///
    /// `probe` gives the finished size of a first sample of the field with the given place in the schema (of sounds, its
    /// channels); it is only asked where the plan does not settle it.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] for transforms that make no sense where they stand.
    pub(crate) fn new(
        maps: &[LeafMap],
        options: &Options,
        schema: &Schema,
        (assembly, first_column): (Assembly<'_>, usize),
        probe: &mut dyn FnMut(usize, Unsettled<'_>) -> Result<Size>,
    ) -> Result<Self> {
        let operations = operations_by_field(maps, schema)?;
        let mut notes = Vec::new();
        let mut fields = Vec::new();
        let mut columns = Vec::new();
        for (index, (field, operations)) in schema.fields.iter().zip(operations).enumerate() {
            let (program, kind) = match &field.kind {
                FieldKind::Image => {
                    let input = Input::Encoded { mode: options.mode, orientation: options.exif_orientation };
                    image(
                        &mut notes,
                        (index, assembly, first_column + index),
                        &field.name,
                        input,
                        operations,
                        options,
                        probe,
                    )?
                }
                &FieldKind::Mask { dtype, grey } => {
                    let input = Input::Encoded {
                        mode: Mode::Mask(mask_depth(dtype, grey)?),
                        orientation: options.exif_orientation,
                    };
                    image(
                        &mut notes,
                        (index, assembly, first_column + index),
                        &field.name,
                        input,
                        operations,
                        options,
                        probe,
                    )?
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
                    image(
                        &mut notes,
                        (index, assembly, first_column + index),
                        &field.name,
                        input,
                        operations,
                        options,
                        probe,
                    )?
                }
                FieldKind::Audio => audio(
                    &mut notes,
                    (index, assembly, first_column + index),
                    &field.name,
                    operations,
                    options,
                    probe,
                )?,
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

    /// Whether finished images or sounds of some field differ in size.
    pub(crate) fn varies(&self) -> bool {
        self.fields.iter().any(|field| match field {
            FieldProgram::Image(image) => image.varies,
            FieldProgram::Audio(audio) => audio.shape.values().is_none(),
            _ => false,
        })
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
    let assembly = if assembly == Assembly::Stacked { Assembly::List { images: true } } else { assembly };
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
    let beside: Vec<(usize, Vec<u32>)> = fields
        .iter()
        .enumerate()
        .filter_map(|(at, field)| match field {
            FieldProgram::Boxes { operations, .. } => {
                Some((at, operations.iter().map(|planned| planned.place).collect()))
            }
            _ => None,
        })
        .collect();
    for field in fields {
        if let FieldProgram::Image(image) = field {
            image.shared = shared;
            image.boxes = looked_at(image, &beside)?;
        }
    }
    Ok((order, shared))
}

/// The field of boxes that draws of `image` look at, if some do. `beside` are all of them, with the places of what is done
/// to them.
fn looked_at(image: &ImageProgram, beside: &[(usize, Vec<u32>)]) -> Result<Option<usize>> {
    let mut found = None;
    for planned in image.operations.iter().filter(|planned| planned.transform.as_operation().sees_boxes()) {
        let mut moved = beside.iter().filter(|(_, places)| places.contains(&planned.place));
        match (moved.next(), moved.next()) {
            (Some((field, _)), None) => found = Some(*field),
            (None, _) => {
                return Err(Error::config("it looks at boxes, and there are none beside the image")
                    .with_stage(planned.transform.name())
                    .with_hint("use it on samples with boxes, by map() without field="));
            }
            _ => {
                return Err(Error::config("there is more than one field of boxes to look at")
                    .with_stage(planned.transform.name()));
            }
        }
    }
    Ok(found)
}

/// Whether images that end so differ in size on purpose: a transform leaves the size open, and none behind it settles it.
fn left_open(operations: &[Planned]) -> bool {
    // Any size will do that each transform can make something of.
    let mut shape = Shape { height: Some(512), width: Some(512), channels: 3 };
    let mut open = false;
    for planned in operations {
        let operation = planned.transform.as_operation();
        shape = operation.fixed_size(shape);
        open |= operation.leaves_size_open();
    }
    open && (shape.height.is_none() || shape.width.is_none())
}

fn mask_depth(dtype: DType, grey: bool) -> Result<MaskDepth> {
    match dtype {
        DType::UInt8 if grey => Ok(MaskDepth::Grey),
        other if grey => {
            Err(Error::config(format!("a mask of {} in grey; such masks are uint8", other.name())))
        }
        DType::Bool => Ok(MaskDepth::Bit),
        DType::UInt8 => Ok(MaskDepth::Byte),
        DType::UInt16 => Ok(MaskDepth::Word),
        other => Err(Error::config(format!("a mask of {}; masks are bool, uint8 or uint16", other.name()))),
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
            if place == stage::RESERVED {
                return Err(Error::config(format!("map(): a sample has more than {place} transforms")));
            }
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
    (index, assembly, number): (usize, Assembly<'_>, usize),
    name: &str,
    input: Input,
    operations: Vec<Planned>,
    options: &Options,
    probe: &mut dyn FnMut(usize, Unsettled<'_>) -> Result<Size>,
) -> Result<(FieldProgram, ColumnKind)> {
    let shape = match input {
        Input::Encoded { mode, .. } => {
            let channels = match mode {
                Mode::L | Mode::TensorFlowL => 1,
                Mode::Rgb
                | Mode::OpenCv
                | Mode::Unchanged
                | Mode::TensorFlow
                | Mode::TensorFlowAccurate
                | Mode::TensorFlowUnchanged => 3,
                Mode::Rgba | Mode::TensorFlowRgba => 4,
                Mode::Mask(MaskDepth::Bit | MaskDepth::Byte | MaskDepth::Grey) => 1,
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
        varies: false,
        boxes: None,
        dtype: Dtype::U8,
        layout,
        device_share: std::sync::Arc::default(),
    };
    let unknown = shape.height.is_none() || shape.width.is_none();
    let unchanged = matches!(input, Input::Encoded { mode: Mode::Unchanged | Mode::TensorFlowUnchanged, .. });
    // A list as such takes any images; what is done to channels must be known beforehand.
    program.varies = unknown
        && !unchanged
        && match assembly {
            Assembly::List { images } => images,
            _ => left_open(&program.operations),
        };
    if program.varies {
        (program.shape.height, program.shape.width) = (None, None);
    } else if unknown || unchanged {
        let Size { height, width, channels } = probe(index, Unsettled::Image(&program))?;
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
    if options.on_device != OnDevice::Copy {
        if matches!(assembly, Assembly::Stacked | Assembly::List { images: false }) {
            optimizer::leave(&mut program, options.on_device, name, notes);
        } else {
            let change = "not possible: only batch() makes batches that a device finishes".to_owned();
            notes.push(optimizer::Note { field: name.to_owned(), pass: "leave to the device", change });
        }
    }
    let kind = if program.varies {
        let mut kind =
            rows(assembly, number, name, program.element(), &program.sides::<Option<usize>>(None, None))?;
        if let ColumnKind::Varying { stacking: Stacking::Padded(padding), .. } = &mut kind {
            // Lengths are those of sequences.
            (padding.lengths, padding.mask) = (None, None);
        }
        kind
    } else {
        program.column()?
    };
    Ok((FieldProgram::Image(Box::new(program)), kind))
}

fn audio(
    notes: &mut Vec<optimizer::Note>,
    (index, assembly, number): (usize, Assembly<'_>, usize),
    name: &str,
    operations: Vec<Planned>,
    options: &Options,
    probe: &mut dyn FnMut(usize, Unsettled<'_>) -> Result<Size>,
) -> Result<(FieldProgram, ColumnKind)> {
    let steps = operations.into_iter().map(|planned| (planned.transform, planned.place));
    let mut program = AudioProgram::new(steps, options.optimize)?;
    program.lossless = options.lossless;
    if let Some(note) = program.note() {
        notes.push(optimizer::Note { field: name.to_owned(), pass: "decode a part", change: note });
    }
    // A single sound has the channels it has. In a batch all have as many, or the missing ones would be filled up.
    if program.shape.channels.is_none() && assembly != Assembly::Alone {
        let Size { channels, .. } = probe(index, Unsettled::Sound)?;
        program.shape.channels = Some(channels);
        notes.push(optimizer::Note {
            field: name.to_owned(),
            pass: "probe",
            change: format!("the transforms do not settle the channels; the first sample does: {channels}"),
        });
    }
    let shape = program.shape.sides();
    if assembly == Assembly::Stacked && shape.contains(&None) {
        return Err(Error::config(format!("batch(): {name} differs in length from sample to sample")).with_hint(
            "use padded_batch() or ragged_batch(), or PadOrTrim or RandomSegment(pad_if_needed=True) before batch()",
        ));
    }
    let field = FieldSpec { name: name.to_owned(), kind: FieldKind::Array { dtype: program.dtype, shape } };
    let mut kind = assembly.column(number, &field)?.1;
    if let (ColumnKind::Varying { stacking: Stacking::Padded(padding), .. }, Assembly::Padded(pad)) =
        (&mut kind, assembly)
    {
        // Lengths are those of time, which is not the first side.
        let side = program.shape.frames.is_none().then(|| program.shape.time_side());
        padding.lengths = side.filter(|_| pad.lengths);
        padding.mask = side.filter(|_| pad.mask);
    }
    Ok((FieldProgram::Audio(Box::new(program)), kind))
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
                FieldProgram::Audio(audio) => {
                    writeln!(f, "  {}:", column.name)?;
                    for (i, line) in audio.describe().into_iter().enumerate() {
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
                FieldProgram::Index => writeln!(f, "  {}: int64, until the batch is mixed", column.name)?,
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
