//! [`Maker`]: one sample as it is written. A pure function of the plan and the place in its order.

use std::time::{Duration, Instant};

use wellfed_kernels::image::View;

use super::{
    cell::Cell,
    fields::Field,
    form::Form,
    images::{ImageScratch, Images, extension_of},
};
use crate::{
    Error, ErrorKind, Result, Sampler,
    engine::{Batch, ColumnData},
    order::{Order, Pick},
    plan::{Batching, lower::Lowered},
    sample::{DType, FieldKind, PixelLayout, Record, Value},
    source::Source,
};

/// Makes samples; shared by all threads.
pub(super) struct Maker<'a> {
    pub(super) lowered: &'a Lowered,
    pub(super) order: &'a Order,
    pub(super) sampler: &'a Sampler,
    /// For each leaf its number among the sources of the plan; `None` for those that only count.
    pub(super) known: Vec<Option<usize>>,
    pub(super) fields: &'a [Field],
    pub(super) images: Images,
    pub(super) layout: Batching,
}

/// A sample to write.
#[derive(Debug, Default)]
pub(super) struct Made {
    /// What it is called where it comes from.
    pub(super) name: String,
    /// What is written.
    pub(super) body: Body,
}

/// What a sample is written as.
#[derive(Debug)]
pub(super) enum Body {
    /// Files: extensions and bytes, in the order of the fields.
    Files(Vec<(String, Vec<u8>)>),
    /// A record.
    Record(Vec<u8>),
    /// The values, of a table.
    Cells(Vec<Cell>),
}

impl Default for Body {
    fn default() -> Self {
        Self::Cells(Vec::new())
    }
}

impl Made {
    /// Bytes that it keeps allocated.
    pub(super) fn capacity(&self) -> u64 {
        let all: usize = match &self.body {
            Body::Files(files) => files.iter().map(|(_, bytes)| bytes.capacity()).sum(),
            Body::Record(bytes) => bytes.capacity(),
            Body::Cells(cells) => cells.iter().map(Cell::capacity).sum(),
        };
        all as u64
    }
}

/// What one thread works with.
#[derive(Debug, Default)]
pub(super) struct MakeScratch {
    picks: Vec<Pick>,
    record: Record,
    image: ImageScratch,
    /// Time that went to reading and to making, since it was last asked for.
    pub(super) reading: Duration,
    pub(super) making: Duration,
}

/// Where the value of a field is.
enum Given<'a> {
    Value(Value, Option<&'a [u8]>, Vec<usize>),
    Column(&'a ColumnData),
}

impl Maker<'_> {
    /// Makes the sample at `position` of the first epoch.
    ///
    /// # Errors
    /// What is wrong with this sample, with its name.
    pub(super) fn make(&self, position: u64, form: &dyn Form, scratch: &mut MakeScratch) -> Result<Made> {
        let (name, cells) = self.cells(position, scratch)?;
        let start = Instant::now();
        let body = form.prepare(cells).map_err(|e| {
            let e = if e.stage().is_none() { e.with_stage("write") } else { e };
            match scratch.picks.first() {
                Some(pick) => self.located(e, *pick),
                None => e,
            }
        });
        lap(start, &mut scratch.making);
        Ok(Made { name, body: body? })
    }

    /// The name of the sample at `position` of the first epoch, and its values in the order of the fields.
    ///
    /// # Errors
    /// What is wrong with this sample, with its name.
    pub(super) fn cells(&self, position: u64, scratch: &mut MakeScratch) -> Result<(String, Vec<Cell>)> {
        let mut picks = std::mem::take(&mut scratch.picks);
        let made =
            self.order.sample_at(position, 0, &mut picks).and_then(|()| self.cells_of(&picks, scratch));
        scratch.picks = picks;
        made
    }

    /// Adds to an error which sample it happened to.
    fn located(&self, e: Error, pick: Pick) -> Error {
        let source = &*self.lowered.sources[pick.leaf];
        let e = if e.key().is_none() { e.with_sample(source.key(pick.index), pick.index) } else { e };
        if e.source_name().is_none() { e.with_source(source.name()) } else { e }
    }

    fn cells_of(&self, picks: &[Pick], scratch: &mut MakeScratch) -> Result<(String, Vec<Cell>)> {
        let mut name = String::new();
        let mut cells: Vec<(usize, Cell)> = Vec::new();
        for (nth, pick) in picks.iter().enumerate() {
            let source = &*self.lowered.sources[pick.leaf];
            let known = self.known[pick.leaf];
            if nth == 0 || name.is_empty() {
                name = known.map_or_else(String::new, |_| source.own_name(pick.index));
            }
            self.leaf(*pick, source, known, scratch, &mut cells).map_err(|e| self.located(e, *pick))?;
        }
        cells.sort_by_key(|(field, _)| *field);
        Ok((name, cells.into_iter().map(|(_, cell)| cell).collect()))
    }

    /// The values of one leaf.
    fn leaf(
        &self,
        pick: Pick,
        source: &dyn Source,
        known: Option<usize>,
        scratch: &mut MakeScratch,
        cells: &mut Vec<(usize, Cell)>,
    ) -> Result<()> {
        let plan = &self.lowered.leaves[pick.leaf];
        let columns = plan.first_column..plan.first_column + source.schema().fields.len();
        let transformed = |column: usize| {
            let maps = plan.maps.iter().filter(|map| !map.transforms.is_empty());
            maps.flat_map(|map| &map.fields).any(|field| plan.first_column + field == column)
        };
        let mine = || self.fields.iter().enumerate().filter(|(_, field)| columns.contains(&field.column));
        let start = Instant::now();
        let batch: Option<Batch> = match known {
            Some(known) if mine().any(|(_, field)| transformed(field.column)) => {
                Some(self.sampler.sample(known, pick.index, pick.epoch)?)
            }
            _ => None,
        };
        let start = lap(start, &mut scratch.making);
        // What the pipeline has changed comes from it, and all else as it is stored.
        let stored = mine().any(|(_, field)| !transformed(field.column));
        if stored {
            source.fetch(pick.index, &mut scratch.record)?;
        }
        let start = lap(start, &mut scratch.reading);
        for (number, field) in mine() {
            let at = field.column - columns.start;
            let column = batch.as_ref().and_then(|batch| batch.columns.get(at));
            let given = match column {
                Some(column) if transformed(field.column) => Given::Column(&column.data),
                _ => {
                    let value = scratch.record.values.get_mut(at).map(std::mem::take).unwrap_or_default();
                    let resident = source.resident(pick.index, at).filter(|_| value == Value::Resident);
                    let shape = scratch.record.shapes.get(at).cloned().unwrap_or_default();
                    Given::Value(value, resident, shape)
                }
            };
            let cell = self
                .cell(field, given, &mut scratch.image)
                .map_err(|e| if e.stage().is_none() { e.with_stage("write") } else { e })?;
            cells.push((number, cell));
        }
        lap(start, &mut scratch.making);
        Ok(())
    }

    fn cell(&self, field: &Field, given: Given<'_>, scratch: &mut ImageScratch) -> Result<Cell> {
        match given {
            Given::Column(column) => {
                let (dtype, shape, bytes) = array(field, column)?;
                let image = matches!(field.kind, FieldKind::Image | FieldKind::Pixels { .. });
                match (image && dtype == DType::UInt8, shape) {
                    (true, [a, b, c]) => {
                        let chw = self.layout == Batching::Nchw;
                        let size = if chw { (*b, *c, *a) } else { (*a, *b, *c) };
                        let lossless = matches!(field.kind, FieldKind::Pixels { .. });
                        self.pixels(bytes, size, chw, lossless, scratch)
                    }
                    _ => Ok(Cell::Array(dtype, shape.to_vec(), bytes.to_vec())),
                }
            }
            Given::Value(value, resident, shape) => {
                if let Value::Int(number) = value {
                    return Ok(Cell::Int(number));
                }
                let bytes = |value: Value| match (value, resident) {
                    (Value::Bytes(bytes), _) => bytes,
                    (Value::Shared(bytes), _) => bytes.to_vec(),
                    (_, resident) => resident.unwrap_or_default().to_vec(),
                };
                Ok(match &field.kind {
                    FieldKind::Image => {
                        let (what, bytes) = self.images.stored(bytes(value), scratch)?;
                        Cell::Image(what, bytes)
                    }
                    FieldKind::Pixels { height, width, channels, layout } => {
                        let size = (*height, *width, *channels);
                        let chw = *layout == PixelLayout::Chw;
                        self.pixels(&bytes(value), size, chw, true, scratch)?
                    }
                    FieldKind::Mask { .. } => {
                        let bytes = bytes(value);
                        Cell::Image(extension_of(&bytes)?, bytes)
                    }
                    FieldKind::Text | FieldKind::Json | FieldKind::Bytes | FieldKind::Audio => {
                        Cell::Bytes(bytes(value))
                    }
                    FieldKind::Scalar { dtype } => Cell::Array(*dtype, Vec::new(), bytes(value)),
                    FieldKind::Array { dtype, shape: sides } => {
                        let bytes = bytes(value);
                        let shape = settled(*dtype, sides, shape, bytes.len())?;
                        Cell::Array(*dtype, shape, bytes)
                    }
                    FieldKind::Boxes { dtype, .. } => rows(*dtype, &[4], bytes(value)),
                    FieldKind::BoxLabels { dtype } => rows(*dtype, &[], bytes(value)),
                    FieldKind::Keypoints => rows(DType::Float32, &[2], bytes(value)),
                })
            }
        }
    }

    fn pixels(
        &self,
        bytes: &[u8],
        (height, width, channels): (usize, usize, usize),
        chw: bool,
        lossless: bool,
        scratch: &mut ImageScratch,
    ) -> Result<Cell> {
        let turned;
        let bytes = if chw && channels > 1 {
            let plane = height * width;
            turned = (0..plane * channels)
                .map(|i| bytes[i % channels * plane + i / channels])
                .collect::<Vec<u8>>();
            &turned[..]
        } else {
            bytes
        };
        let view = View::new(bytes, height, width, channels, width * channels).ok_or_else(|| {
            let what = format!("an image of {height}x{width} with {channels} channels cannot be written");
            Error::new(ErrorKind::Unsupported, what)
        })?;
        let (what, bytes) = self.images.pixels(view, lossless, scratch)?;
        Ok(Cell::Image(what, bytes))
    }
}

/// Adds the time since `start`; gives the time it is now.
fn lap(start: Instant, to: &mut Duration) -> Instant {
    let now = Instant::now();
    *to += now - start;
    now
}

/// The one array of a column of one sample.
fn array<'a>(field: &Field, column: &'a ColumnData) -> Result<(DType, &'a [usize], &'a [u8])> {
    let wrong = || {
        Error::config(format!("field {} cannot be written: its values are several arrays each", field.name))
            .with_hint("leave out the transform that makes several images of one")
    };
    match column {
        ColumnData::Array { dtype, shape, .. } => Ok((*dtype, shape, column.as_bytes().ok_or_else(wrong)?)),
        ColumnData::List { dtype, shapes, bytes } => match shapes.as_slice() {
            [shape] => {
                let size = dtype.size() * shape.iter().product::<usize>();
                Ok((*dtype, shape, &bytes[..size]))
            }
            _ => Err(wrong()),
        },
        _ => Err(wrong()),
    }
}

/// Rows of so many numbers, as many as there are bytes for.
fn rows(dtype: DType, inner: &[usize], bytes: Vec<u8>) -> Cell {
    let row = dtype.size() * inner.iter().product::<usize>();
    Cell::Array(dtype, [&[bytes.len() / row.max(1)], inner].concat(), bytes)
}

/// The shape of an array that has so many bytes: one side that varies follows from them, and of several the record has the
/// shape.
fn settled(dtype: DType, sides: &[Option<usize>], known: Vec<usize>, bytes: usize) -> Result<Vec<usize>> {
    if known.len() == sides.len() && !known.is_empty() {
        return Ok(known);
    }
    let fixed: usize = sides.iter().flatten().product::<usize>() * dtype.size();
    let varying = sides.iter().filter(|side| side.is_none()).count();
    if varying > 1 {
        return Err(Error::new(
            ErrorKind::Internal,
            "an array of several varying sides came without its shape",
        ));
    }
    // Without elements a side may be anything; none is what it is.
    let other = bytes.checked_div(fixed).unwrap_or(0);
    Ok(sides.iter().map(|side| side.unwrap_or(other)).collect())
}
