//! Makes one sample: fetches its records, runs the programs of their sources, writes to its slot of the batch.

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
    sample::{FieldKind, Record, Value},
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

/// What was fetched for one sample: a record for each of its picks. Reused from sample to sample.
#[derive(Debug, Default)]
pub(crate) struct Fetched {
    records: Vec<Record>,
    /// Records of the present sample; the others keep their memory.
    used: usize,
}

impl Fetched {
    /// Bytes that it keeps allocated.
    pub(crate) fn capacity(&self) -> usize {
        self.records.iter().map(Record::capacity).sum()
    }

    /// Bytes of all values.
    pub(crate) fn len(&self) -> usize {
        self.records[..self.used].iter().map(Record::len).sum()
    }

    /// Makes room for so many records.
    fn reset(&mut self, count: usize) -> &mut [Record] {
        if self.records.len() < count {
            self.records.resize_with(count, Record::default);
        }
        self.used = count;
        &mut self.records[..count]
    }

    /// The record of pick `number`, to be read into.
    pub(crate) fn record(&mut self, number: usize, limits: Limits) -> &mut Record {
        self.used = self.used.max(number + 1);
        if self.records.len() <= number {
            self.records.resize_with(number + 1, Record::default);
        }
        let record = &mut self.records[number];
        record.limits = limits;
        record
    }

    /// What was fetched for pick `number`.
    pub(crate) fn get(&self, number: usize) -> &Record {
        &self.records[number]
    }

    #[cfg(test)]
    pub(crate) fn of(record: Record) -> Self {
        Self { records: vec![record], used: 1 }
    }
}

/// The programs of all sources. Shared by all workers.
#[derive(Debug)]
pub(crate) struct Executor {
    leaves: Vec<LeafExecutor>,
    columns: Arc<[ColumnSpec]>,
    /// Of the choice of replacements.
    seed: u64,
}

impl Executor {
    /// `names` are those of the columns of a batch.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if two leaves would write different things to one column.
    pub(crate) fn new(leaves: Vec<LeafExecutor>, names: &[String], seed: u64) -> Result<Self> {
        let mut columns: Vec<Option<(usize, ColumnSpec)>> = vec![None; names.len()];
        for (number, leaf) in leaves.iter().enumerate() {
            for (field, spec) in leaf.columns().iter().enumerate() {
                let column = leaf.first_column + field;
                let spec = ColumnSpec { name: names[column].clone(), kind: spec.kind.clone() };
                match &columns[column] {
                    None => columns[column] = Some((number, spec)),
                    Some((other, first)) if first.kind != spec.kind => {
                        return Err(different_columns(&leaves, (*other, first), (number, &spec)));
                    }
                    Some(_) => {}
                }
            }
        }
        let columns = columns.into_iter().flatten().map(|(_, spec)| spec).collect();
        Ok(Self { leaves, columns, seed })
    }

    pub(crate) fn leaves(&self) -> &[LeafExecutor] {
        &self.leaves
    }

    pub(crate) fn leaves_mut(&mut self) -> &mut [LeafExecutor] {
        &mut self.leaves
    }

    pub(crate) fn columns(&self) -> &Arc<[ColumnSpec]> {
        &self.columns
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// Names of all sources.
    pub(crate) fn name(&self) -> String {
        let names: Vec<String> = self.leaves.iter().map(|leaf| leaf.source.name()).collect();
        names.join(", ")
    }

    /// Whether fetching needs no input or output.
    pub(crate) fn in_memory(&self) -> bool {
        self.leaves.iter().all(|leaf| leaf.source.in_memory())
    }

    /// Whether some images are to be decoded.
    pub(crate) fn encoded(&self) -> bool {
        self.leaves.iter().any(|leaf| leaf.source.schema().fields.iter().any(|f| f.kind == FieldKind::Image))
    }

    /// Whether some cache has something to write to files.
    pub(crate) fn unsaved(&self) -> bool {
        self.leaves.iter().any(|leaf| leaf.caches.unsaved())
    }

    /// Writes what belongs into files and is not there yet.
    pub(crate) fn save(&self) {
        self.leaves.iter().for_each(|leaf| leaf.caches.save());
    }

    /// Reads the records of a sample, whose memory is reserved in `room` before it is taken.
    pub(crate) fn fetch(&self, picks: &[Pick], fetched: &mut Fetched, room: &Room) -> Result<()> {
        let records = fetched.reset(picks.len());
        picks
            .iter()
            .zip(records)
            .try_for_each(|(&pick, record)| self.leaves[pick.leaf].fetch_within(pick, record, room))
    }

    /// As [`Executor::make`], into a slot that has the columns of one leaf only.
    pub(crate) fn make_alone(
        &self,
        picks: &[Pick],
        fetched: &mut Fetched,
        scratch: &mut Scratch,
        slot: &mut SampleSlot<'_>,
        probe: &mut Probe<'_>,
    ) -> Result<()> {
        picks
            .iter()
            .zip(&mut fetched.records)
            .try_for_each(|(&pick, record)| self.leaves[pick.leaf].make(pick, record, scratch, slot, probe))
    }

    /// Takes columns anew from the leaves of `picks`, whose sizes were changed.
    pub(crate) fn renew_columns(&mut self, picks: &[Pick]) {
        let mut columns = self.columns.to_vec();
        for pick in picks {
            let leaf = &self.leaves[pick.leaf];
            for (spec, column) in leaf.columns().iter().zip(&mut columns[leaf.first_column..]) {
                column.kind = spec.kind.clone();
            }
        }
        self.columns = columns.into();
    }

    /// Runs the programs for what was fetched.
    pub(crate) fn make(
        &self,
        picks: &[Pick],
        fetched: &mut Fetched,
        scratch: &mut Scratch,
        slot: &mut SampleSlot<'_>,
        probe: &mut Probe<'_>,
    ) -> Result<()> {
        for (&pick, record) in picks.iter().zip(&mut fetched.records) {
            let leaf = &self.leaves[pick.leaf];
            leaf.make(pick, record, scratch, &mut slot.of_leaf(leaf.first_column), probe)?;
        }
        Ok(())
    }
}

fn different_columns(
    leaves: &[LeafExecutor],
    (a, first): (usize, &ColumnSpec),
    (b, second): (usize, &ColumnSpec),
) -> Error {
    let (a, b) = (leaves[a].source.name(), leaves[b].source.name());
    Error::config(format!(
        "field {:?} is {:?} in {a} and {:?} in {b}, and both go into one batch",
        first.name, first.kind, second.kind
    ))
    .with_hint(
        "let all data sets end with the same size and dtype, for example with Resize((h, w)) and ToDtype",
    )
}

/// A program bound to its source.
#[derive(Debug)]
pub(crate) struct LeafExecutor {
    source: Arc<dyn Source>,
    program: Program,
    seed: u64,
    limits: Limits,
    caches: Caches,
    /// The column that its first field is written to.
    first_column: usize,
}

impl LeafExecutor {
    pub(crate) fn new(
        source: Arc<dyn Source>,
        program: Program,
        seed: u64,
        limits: Limits,
        first_column: usize,
    ) -> Self {
        Self { source, program, seed, limits, caches: Caches::default(), first_column }
    }

    /// Sets what is kept from epoch to epoch.
    pub(crate) fn set_caches(&mut self, caches: Caches) {
        self.caches = caches;
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

    /// What its fields become, by their names in the source.
    pub(crate) fn columns(&self) -> &[ColumnSpec] {
        &self.program.columns
    }

    /// Reads the sample's record, whose memory is reserved in `room` before it is taken: as much as the record has
    /// already, then more, as long as the source says that a field is larger.
    fn fetch_within(&self, pick: Pick, record: &mut Record, room: &Room) -> Result<()> {
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
    fn fetch(&self, pick: Pick, record: &mut Record, max_bytes: u64) -> Result<()> {
        record.limits = Limits { max_bytes: max_bytes.min(self.limits.max_bytes), ..self.limits };
        if self.caches.coefficients.as_ref().is_some_and(|cache| cache.restore(pick.index, record)) {
            return Ok(());
        }
        self.source.fetch(pick.index, record).map_err(|e| self.located(e, pick, None).with_stage("read"))
    }

    /// Runs the program for a fetched record.
    fn make(
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
