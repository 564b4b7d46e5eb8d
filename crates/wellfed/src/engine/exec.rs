//! Makes one sample: fetches its record, runs the program, writes to its slot of the batch.

use std::sync::Arc;

use super::{
    ColumnSpec,
    cache::Caches,
    image::{ImageScratch, Maker},
    job::SampleSlot,
};
use crate::{
    Error, ErrorKind, Limits, Result,
    budget::Room,
    codec::{Rows, is_jpeg},
    meter::{Probe, Stage},
    order::Pick,
    plan::{Program, program::FieldProgram},
    sample::{Record, Value},
    source::Source,
};

/// Bytes of a field that are reserved before its size is known.
const FIRST: u64 = 64 << 10;

/// Memory of one worker, reused from sample to sample.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    image: ImageScratch,
}

impl Scratch {
    /// Memory that is reserved in `room` before it is taken.
    pub(crate) fn within(room: Option<Arc<Room>>) -> Self {
        Self { image: ImageScratch::within(room) }
    }

    /// Begins anew: what was allocated is freed.
    pub(crate) fn clear(&mut self) {
        *self = Self::within(self.image.room().cloned());
    }

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

    /// Reads the sample's record, whose memory is reserved in `room` before it is taken: as much as the record has
    /// already, then more, as long as the source says that a field is larger.
    pub(crate) fn fetch_within(&self, pick: Pick, record: &mut Record, room: &Room) -> Result<()> {
        let most = self.limits.max_bytes;
        if self.source.in_memory() {
            return self.fetch(pick, record, most);
        }
        let fields = self.source.schema().fields.len().max(1) as u64;
        let mut allowed = (record.capacity() as u64 / fields).max(FIRST).min(most);
        room.take((allowed * fields).saturating_sub(record.capacity() as u64) as usize)?;
        loop {
            match self.fetch(pick, record, allowed) {
                Err(error) if error.kind() == ErrorKind::Limit && allowed < most => {
                    let next = allowed.saturating_mul(4).min(most);
                    room.take(usize::try_from((next - allowed).saturating_mul(fields)).unwrap_or(usize::MAX))
                        .map_err(|e| self.located(e, pick, None).with_stage("read"))?;
                    allowed = next;
                }
                result => return result,
            }
        }
    }

    /// Reads the sample's record, of up to `max_bytes` a field.
    pub(crate) fn fetch(&self, pick: Pick, record: &mut Record, max_bytes: u64) -> Result<()> {
        record.limits = Limits { max_bytes: max_bytes.min(self.limits.max_bytes), ..self.limits };
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
            cache.admit(pick.index, record, scratch.image.codec());
            probe.lap(Stage::Decode, 0);
        }
        scratch.image.trust(record.cached);
        let record = &*record;
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
        record: &Record,
        scratch: &mut Scratch,
        slot: &mut SampleSlot<'_>,
        probe: &mut Probe<'_>,
    ) -> Result<()> {
        let value = record.values.get(field).unwrap_or(&Value::Empty);
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
                slot.set(field, bytes)?;
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
