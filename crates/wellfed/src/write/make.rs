//! [`Maker`]: one sample as the files that it is written as. A pure function of the plan and the place in its order.

use std::time::{Duration, Instant};

use wellfed_kernels::image::View;

use super::{
    fields::{Extension, Field},
    images::{ImageScratch, Images, extension_of},
};
use crate::{
    Error, ErrorKind, Result, Sampler,
    engine::{Batch, ColumnData},
    order::{Order, Pick},
    plan::{Batching, lower::Lowered},
    sample::{DType, FieldKind, PixelLayout, Record, Value},
    source::{Source, npy_file},
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
    /// Extensions and bytes, in the order of the fields.
    pub(super) files: Vec<(String, Vec<u8>)>,
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
    pub(super) fn make(&self, position: u64, scratch: &mut MakeScratch) -> Result<Made> {
        let mut picks = std::mem::take(&mut scratch.picks);
        let made = self.order.sample_at(position, 0, &mut picks).and_then(|()| self.make_of(&picks, scratch));
        scratch.picks = picks;
        made
    }

    fn make_of(&self, picks: &[Pick], scratch: &mut MakeScratch) -> Result<Made> {
        let mut made = Made::default();
        let mut files: Vec<(usize, String, Vec<u8>)> = Vec::new();
        for (nth, pick) in picks.iter().enumerate() {
            let source = &*self.lowered.sources[pick.leaf];
            let located = |e: Error| {
                let e = if e.key().is_none() { e.with_sample(source.key(pick.index), pick.index) } else { e };
                if e.source_name().is_none() { e.with_source(source.name()) } else { e }
            };
            let known = self.known[pick.leaf];
            if nth == 0 || made.name.is_empty() {
                made.name = known.map_or_else(String::new, |_| source.own_name(pick.index));
            }
            self.leaf(*pick, source, known, scratch, &mut files).map_err(located)?;
        }
        files.sort_by_key(|(field, ..)| *field);
        made.files = files.into_iter().map(|(_, extension, bytes)| (extension, bytes)).collect();
        Ok(made)
    }

    /// The files of one leaf.
    fn leaf(
        &self,
        pick: Pick,
        source: &dyn Source,
        known: Option<usize>,
        scratch: &mut MakeScratch,
        files: &mut Vec<(usize, String, Vec<u8>)>,
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
            let (extension, bytes) = self
                .file(field, given, &mut scratch.image)
                .map_err(|e| if e.stage().is_none() { e.with_stage("write") } else { e })?;
            files.push((number, extension, bytes));
        }
        lap(start, &mut scratch.making);
        Ok(())
    }

    fn file(&self, field: &Field, given: Given<'_>, scratch: &mut ImageScratch) -> Result<(String, Vec<u8>)> {
        let named = |own: &str| match &field.extension {
            Extension::Image(prefix) => format!("{prefix}{own}"),
            Extension::Is(extension) => extension.clone(),
        };
        match given {
            Given::Column(column) => {
                let (dtype, shape, bytes) = array(field, column)?;
                let image = matches!(field.kind, FieldKind::Image | FieldKind::Pixels { .. });
                let (extension, bytes) = match (image && dtype == DType::UInt8, shape) {
                    (true, [a, b, c]) => {
                        let chw = self.layout == Batching::Nchw;
                        let size = if chw { (*b, *c, *a) } else { (*a, *b, *c) };
                        let lossless = matches!(field.kind, FieldKind::Pixels { .. });
                        self.pixels(bytes, size, chw, lossless, scratch)?
                    }
                    _ => ("npy", npy_file(dtype, shape, bytes)?),
                };
                Ok((named(extension), bytes))
            }
            Given::Value(value, resident, shape) => {
                if let Value::Int(number) = value {
                    return Ok((named("cls"), number.to_string().into_bytes()));
                }
                let bytes = |value: Value| match (value, resident) {
                    (Value::Bytes(bytes), _) => bytes,
                    (Value::Shared(bytes), _) => bytes.to_vec(),
                    (_, resident) => resident.unwrap_or_default().to_vec(),
                };
                match &field.kind {
                    FieldKind::Image => {
                        let (extension, bytes) = self.images.stored(bytes(value), scratch)?;
                        Ok((named(extension), bytes))
                    }
                    FieldKind::Pixels { height, width, channels, layout } => {
                        let size = (*height, *width, *channels);
                        let chw = *layout == PixelLayout::Chw;
                        let (extension, bytes) = self.pixels(&bytes(value), size, chw, true, scratch)?;
                        Ok((named(extension), bytes))
                    }
                    FieldKind::Mask { .. } => {
                        let bytes = bytes(value);
                        Ok((named(extension_of(&bytes)?), bytes))
                    }
                    FieldKind::Text | FieldKind::Json | FieldKind::Bytes => Ok((named(""), bytes(value))),
                    FieldKind::Scalar { dtype } => Ok((named(""), npy_file(*dtype, &[], &bytes(value))?)),
                    FieldKind::Array { dtype, shape: sides } => {
                        let bytes = bytes(value);
                        let shape = settled(*dtype, sides, shape, bytes.len())?;
                        Ok((named(""), npy_file(*dtype, &shape, &bytes)?))
                    }
                    FieldKind::Boxes { dtype, .. } => rows(named(""), *dtype, &[4], &bytes(value)),
                    FieldKind::BoxLabels { dtype } => rows(named(""), *dtype, &[], &bytes(value)),
                    FieldKind::Keypoints => rows(named(""), DType::Float32, &[2], &bytes(value)),
                }
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
    ) -> Result<(&'static str, Vec<u8>)> {
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
        self.images.pixels(view, lossless, scratch)
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
fn rows(extension: String, dtype: DType, inner: &[usize], bytes: &[u8]) -> Result<(String, Vec<u8>)> {
    let row = dtype.size() * inner.iter().product::<usize>();
    let shape = [&[bytes.len() / row.max(1)], inner].concat();
    Ok((extension, npy_file(dtype, &shape, bytes)?))
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
