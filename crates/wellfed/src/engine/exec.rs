//! Makes one sample: fetches its record, runs the program, writes to its slot of the batch.

use std::sync::Arc;

use super::{
    ColumnKind, ColumnSpec,
    cache::Caches,
    image::{ImageScratch, Maker},
    job::SampleSlot,
    stack::{Stacking, check_fits},
};
use crate::{
    Error, ErrorKind, Limits, Result,
    codec::{Rows, is_jpeg},
    meter::{Probe, Stage},
    order::Pick,
    plan::{Program, program::FieldProgram},
    sample::{Record, Value},
    source::Source,
};

/// Memory of one worker, reused from sample to sample.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    image: ImageScratch,
}

impl Scratch {
    /// What is known of where a JPEG's rows begin.
    pub(crate) fn rows(&mut self) -> &mut Rows {
        self.image.rows()
    }

    pub(crate) fn image(&mut self) -> &mut ImageScratch {
        &mut self.image
    }

    /// Bytes kept allocated.
    pub(crate) fn capacity(&self) -> usize {
        self.image.capacity()
    }
}

/// A program bound to its source. Shared by all workers.
#[derive(Debug)]
pub(crate) struct Executor {
    source: Arc<dyn Source>,
    program: Program,
    seed: u64,
    limits: Limits,
    caches: Caches,
}

impl Executor {
    pub(crate) fn new(source: Arc<dyn Source>, program: Program, seed: u64, limits: Limits) -> Self {
        Self { source, program, seed, limits, caches: Caches::default() }
    }

    /// Adds what is kept from epoch to epoch.
    pub(crate) fn with_caches(self, caches: Caches) -> Self {
        Self { caches, ..self }
    }

    pub(crate) fn caches(&self) -> &Caches {
        &self.caches
    }

    pub(crate) fn program(&self) -> &Program {
        &self.program
    }

    pub(crate) fn program_mut(&mut self) -> &mut Program {
        &mut self.program
    }

    pub(crate) fn shared_source(&self) -> &Arc<dyn Source> {
        &self.source
    }

    pub(crate) fn source(&self) -> &dyn Source {
        &*self.source
    }

    pub(crate) fn len(&self) -> u64 {
        self.source.len()
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    pub(crate) fn columns(&self) -> &[ColumnSpec] {
        &self.program.columns
    }

    pub(crate) fn scratch(&self) -> Scratch {
        Scratch::default()
    }

    /// Reads the sample's record.
    pub(crate) fn fetch(&self, pick: Pick, record: &mut Record) -> Result<()> {
        record.limits = self.limits;
        if self.caches.coefficients.as_ref().is_some_and(|cache| cache.restore(pick.index, record)) {
            return Ok(());
        }
        self.source.fetch(pick.index, record).map_err(|e| self.located(e, pick, None).with_stage("read"))
    }

    /// Runs the program for a fetched record.
    pub(crate) fn make(
        &self,
        pick: Pick,
        record: &mut Record,
        scratch: &mut Scratch,
        slot: &mut SampleSlot<'_>,
        probe: &mut Probe<'_>,
    ) -> Result<()> {
        if let Some(cache) = &self.caches.coefficients
            && !record.cached
        {
            cache.admit(pick.index, record, scratch.image.decoder());
            probe.lap(Stage::Decode, 0);
        }
        scratch.image.trust(record.cached);
        for field in 0..self.program.fields.len() {
            self.field(field, pick, record, scratch, slot, probe)
                .map_err(|e| self.located(e, pick, record.offsets.get(field).copied()))?;
        }
        Ok(())
    }

    fn field(
        &self,
        field: usize,
        pick: Pick,
        record: &mut Record,
        scratch: &mut Scratch,
        slot: &mut SampleSlot<'_>,
        probe: &mut Probe<'_>,
    ) -> Result<()> {
        let Record { values, shapes, .. } = record;
        let Some(value) = values.get_mut(field) else { return Err(self.missing(field)) };
        match &self.program.fields[field] {
            FieldProgram::Image(program) => {
                let bytes = self.bytes(value, field, pick)?;
                let maker = Maker { program, seed: self.seed, pick, limits: &self.limits };
                let rows = self.caches.rows.as_ref().filter(|_| program.decode_region && is_jpeg(bytes));
                let Some(rows) = rows else {
                    return maker.make(bytes, &mut scratch.image, slot.array(field), probe);
                };
                rows.decode(pick.index, field, scratch, |scratch| {
                    maker.make(bytes, &mut scratch.image, slot.array(field), probe)
                })
            }
            FieldProgram::Copy => {
                let bytes = self.bytes(value, field, pick)?;
                let out = slot.array(field);
                if bytes.len() != out.len() {
                    return Err(Error::new(
                        ErrorKind::Shape,
                        format!(
                            "{} has {} bytes, other samples have {}",
                            self.name(field),
                            bytes.len(),
                            out.len()
                        ),
                    )
                    .with_stage("batch"));
                }
                out.copy_from_slice(bytes);
                probe.lap(Stage::Write, bytes.len());
                Ok(())
            }
            FieldProgram::Varying => {
                let given = shapes.get_mut(field).map(std::mem::take).unwrap_or_default();
                let shape = self.shape(field, given, self.bytes(value, field, pick)?.len())?;
                let place = slot.pieces(field);
                let bytes = match &mut *value {
                    Value::Resident => {
                        place.refer(&shape, 0, pick.index);
                        0
                    }
                    Value::Bytes(bytes) => {
                        place.swap(&shape, bytes);
                        shape.iter().product()
                    }
                    other => {
                        place.copy(&shape, self.bytes(other, field, pick)?);
                        shape.iter().product()
                    }
                };
                if let Some(kept) = shapes.get_mut(field) {
                    *kept = shape;
                }
                probe.lap(Stage::Write, bytes);
                Ok(())
            }
            FieldProgram::Int => {
                let Value::Int(value) = value else { return Err(self.missing(field)) };
                slot.array(field).copy_from_slice(&value.to_ne_bytes());
                Ok(())
            }
            FieldProgram::List { utf8 } => {
                let bytes = self.bytes(value, field, pick)?;
                if *utf8 && let Err(e) = std::str::from_utf8(bytes) {
                    let what =
                        format!("{} is not UTF-8: byte {} is invalid", self.name(field), e.valid_up_to());
                    return Err(Error::corrupt(what).with_stage("batch"));
                }
                slot.pieces(field).copy(&[], bytes);
                Ok(())
            }
        }
    }

    fn bytes<'a>(&'a self, value: &'a Value, field: usize, pick: Pick) -> Result<&'a [u8]> {
        match value {
            Value::Bytes(bytes) => Ok(bytes),
            Value::Shared(bytes) => Ok(bytes),
            Value::Resident => self.source.resident(pick.index, field).ok_or_else(|| self.missing(field)),
            _ => Err(self.missing(field)),
        }
    }

    /// The shape of a value of `len` bytes, worked out from them where `given` is empty.
    fn shape(&self, field: usize, mut given: Vec<usize>, len: usize) -> Result<Vec<usize>> {
        let column = &self.program.columns[field];
        let ColumnKind::Varying { dtype, shape, stacking } = &column.kind else {
            return Err(Error::new(ErrorKind::Internal, format!("column {} does not vary", column.name)));
        };
        if given.is_empty() && !shape.is_empty() {
            let fixed = shape.iter().flatten().product::<usize>().saturating_mul(dtype.size());
            let open = if fixed == 0 { 0 } else { len / fixed };
            given.extend(shape.iter().map(|side| side.unwrap_or(open)));
        }
        let size = given.iter().try_fold(dtype.size(), |n, side| n.checked_mul(*side));
        let fits = given.len() == shape.len()
            && given.iter().zip(shape).all(|(have, want)| want.is_none_or(|want| want == *have));
        if size != Some(len) || !fits {
            let sides: Vec<String> =
                shape.iter().map(|side| side.map_or("*".to_owned(), |side| side.to_string())).collect();
            let (sides, dtype) = (sides.join(", "), dtype.name());
            return Err(Error::new(
                ErrorKind::Shape,
                format!("{len} bytes of shape {given:?} are no {} of {dtype} [{sides}]", column.name),
            )
            .with_stage("batch"));
        }
        if let Stacking::Padded(padding) = stacking {
            // A sample that fits into no batch is a bad sample.
            let too_large =
                padding.shape.iter().zip(&given).any(|(want, have)| want.is_some_and(|w| w < *have));
            if too_large {
                let want: Vec<usize> =
                    padding.shape.iter().zip(&given).map(|(want, have)| want.unwrap_or(*have)).collect();
                check_fits(&column.name, &given, &want)?;
            }
        }
        Ok(given)
    }

    /// The value of a field that lies in the source's memory.
    pub(crate) fn resident(&self, index: u64, field: usize) -> Option<&[u8]> {
        self.source.resident(index, field)
    }

    fn missing(&self, field: usize) -> Error {
        Error::corrupt(format!("the source gave no {}", self.name(field))).with_stage("read")
    }

    fn name(&self, field: usize) -> &str {
        &self.program.columns[field].name
    }

    fn located(&self, error: Error, pick: Pick, offset: Option<u64>) -> Error {
        let error =
            error.with_sample(self.source.key(pick.index), pick.index).with_source(self.source.name());
        error.within(offset.unwrap_or(0))
    }
}
