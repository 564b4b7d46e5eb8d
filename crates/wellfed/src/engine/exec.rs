//! Makes one sample: fetches its records, runs the programs of their sources, writes to its slot of the batch.

use std::sync::Arc;

use super::{
    audio::{self, SoundMaker},
    cache::Caches,
    image::{Beside, ImageScratch, Maker, Target},
    job::{Claim, SampleSlot},
    mix::Mixer,
    stack::check_fits,
};
use crate::{
    Error, ErrorKind, Limits, Result,
    budget::Room,
    codec::is_jpeg,
    column::{ColumnKind, ColumnSpec, Stacking},
    groups::{Groups, Want, Warmed},
    io::{Bytes, Located, Need},
    meter::{Phase, Probe},
    order::Pick,
    plan::{
        Batching, Mixed, Program,
        audio::AudioProgram,
        field::{FieldProgram, ImageProgram},
    },
    sample::{FieldKind, Record, Value},
    source::{Gather, Lists, Source, Wanted},
    store::{Retry, Store},
    transform::{
        audio::Sound,
        boxes::{Boxes, Points},
    },
};

/// Bytes of a field that are reserved before its size is known.
const FIRST: u64 = 64 << 10;

/// Bytes of a value from which on it goes into the batch with its memory, and not as a copy.
const LARGE: usize = 1 << 20;

/// Memory of one worker, reused from sample to sample.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    image: ImageScratch,
    sound: Sound,
    boxes: Boxes,
    points: Points,
    bytes: Vec<u8>,
}

impl Scratch {
    /// Memory that is reserved in `room` before it is taken.
    pub(crate) fn within(room: Option<Arc<Room>>) -> Self {
        Self { image: ImageScratch::within(room), ..Self::default() }
    }

    /// Begins anew: what was allocated is freed.
    pub(crate) fn clear(&mut self) {
        *self = Self::within(self.image.room().cloned());
    }

    pub(crate) fn image(&mut self) -> &mut ImageScratch {
        &mut self.image
    }

    /// Bytes kept allocated.
    pub(crate) fn capacity(&self) -> usize {
        self.image.capacity()
            + self.sound.capacity()
            + self.boxes.capacity()
            + self.points.capacity()
            + self.bytes.capacity()
    }
}

/// What was fetched for one sample: a record for each of its picks. Reused from sample to sample.
#[derive(Debug, Default)]
pub(crate) struct Fetched {
    records: Vec<Record>,
    /// Records of the present sample; the others keep their memory.
    used: usize,
    /// Records whose bytes are on their way, and in how many pieces.
    arriving: Vec<(usize, usize)>,
    /// Records that are left to the worker, since their bytes lie near.
    near: Vec<usize>,
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
        self.arriving.clear();
        self.near.clear();
        &mut self.records[..count]
    }

    /// Whether some records are left to the worker.
    pub(crate) fn is_partial(&self) -> bool {
        !self.near.is_empty()
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
        Self { records: vec![record], used: 1, ..Self::default() }
    }
}

/// The programs of all sources. Shared by all workers.
#[derive(Debug)]
pub(crate) struct Executor {
    leaves: Vec<LeafExecutor>,
    columns: Arc<[ColumnSpec]>,
    mixer: Option<Arc<Mixer>>,
}

impl Executor {
    /// `names` are those of the columns of a batch.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if two leaves would write different things to one column.
    pub(crate) fn new(leaves: Vec<LeafExecutor>, names: &[String]) -> Result<Self> {
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
        Ok(Self { leaves, columns, mixer: None })
    }

    /// Makes room for what becomes of batches that are mixed.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for columns that cannot be mixed.
    pub(crate) fn mix(&mut self, mixed: &[Mixed], layout: Batching) -> Result<()> {
        let Some(mixer) = Mixer::new(mixed, &self.columns, &self.left(), layout)? else { return Ok(()) };
        if let Some(kind) = mixer.label_column() {
            let mut columns = self.columns.to_vec();
            columns[mixer.label].kind = kind.clone();
            self.columns = columns.into();
            for leaf in &mut self.leaves {
                let Some(field) = mixer.label.checked_sub(leaf.first_column) else { continue };
                let Program { fields, columns, .. } = &mut leaf.program;
                if let (Some(program), Some(column)) = (fields.get_mut(field), columns.get_mut(field)) {
                    *program = FieldProgram::Index;
                    column.kind = kind.clone();
                }
            }
        }
        self.mixer = Some(Arc::new(mixer));
        Ok(())
    }

    /// What is done to finished batches.
    pub(crate) fn mixer(&self) -> Option<&Arc<Mixer>> {
        self.mixer.as_ref()
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

    /// Names of all sources.
    pub(crate) fn name(&self) -> String {
        let names: Vec<String> = self.leaves.iter().map(|leaf| leaf.source.name()).collect();
        names.join(", ")
    }

    /// Whether fetching needs no input or output.
    pub(crate) fn in_memory(&self) -> bool {
        self.leaves.iter().all(|leaf| leaf.source.in_memory())
    }

    /// Whether a sample takes microseconds: it is copied from memory, from a group that was decoded for many, or with others
    /// from a file.
    pub(crate) fn in_pieces(&self) -> bool {
        let near = |leaf: &LeafExecutor| leaf.source.in_memory() || leaf.source.gathers();
        !self.encoded() && self.leaves.iter().all(near)
    }

    /// Copies samples of a claim, one pick each, that their sources have together in memory: no more than copying is to be
    /// done to them. Notes in `copied` which those are.
    pub(crate) fn gather(
        &self,
        claim: &mut Claim,
        picks: &[Pick],
        record: &mut Record,
        wanted: &mut Vec<Wanted>,
        copied: &mut [bool],
    ) -> Result<()> {
        let mut next = picks.iter().map(|pick| pick.leaf).min();
        while let Some(number) = next {
            next = picks.iter().map(|pick| pick.leaf).filter(|other| *other > number).min();
            if !self.gathers(number) {
                continue;
            }
            let leaf = &self.leaves[number];
            wanted.clear();
            let mine = picks.iter().enumerate().filter(|(_, pick)| pick.leaf == number);
            wanted.extend(mine.map(|(row, pick)| Wanted { index: pick.index, row }));
            record.groups.clone_from(&leaf.groups);
            record.limits = leaf.limits;
            let (columns, lists) = claim.columns(leaf.first_column, leaf.program.fields.len())?;
            let lists = lists.as_ref().map(|lists| lists as &dyn Lists);
            leaf.source.gather(wanted, record, &mut Gather { columns, copied: &mut *copied, lists });
        }
        Ok(())
    }

    /// Whether [`Executor::gather`] may copy samples of some source.
    pub(crate) fn gathers_some(&self) -> bool {
        (0..self.leaves.len()).any(|leaf| self.gathers(leaf))
    }

    /// Whether all samples are such.
    pub(crate) fn gathers_all(&self) -> bool {
        (0..self.leaves.len()).all(|leaf| self.gathers(leaf))
    }

    /// Whether samples of this leaf may be copied by [`Executor::gather`].
    fn gathers(&self, leaf: usize) -> bool {
        let leaf = &self.leaves[leaf];
        let lists = leaf.source.gathers_lists();
        let plain = |field: &FieldProgram| match field {
            FieldProgram::Copy | FieldProgram::Int => true,
            FieldProgram::List { .. } => lists,
            _ => false,
        };
        let kept = leaf.groups.is_some() || leaf.source.groups().is_none();
        kept && leaf.source.gathers()
            && leaf.caches.coefficients.is_none()
            && leaf.program.fields.iter().all(plain)
    }

    /// The group that the sample lies in, if that is read from a store that answers later.
    pub(crate) fn group_of(&self, pick: Pick) -> Option<u64> {
        let leaf = &self.leaves[pick.leaf];
        if leaf.has_far_groups() { leaf.source.group_of(pick.index) } else { None }
    }

    /// Bytes of the largest group that is read from such a store; 0 if there is none.
    pub(crate) fn largest_far_group(&self) -> u64 {
        let far = self.leaves.iter().filter(|leaf| leaf.has_far_groups());
        far.filter_map(|leaf| leaf.source.groups()).map(|sizes| sizes.largest).max().unwrap_or(0)
    }

    /// Decodes a group before it is wanted.
    pub(crate) fn warm(&self, leaf: usize, group: u64, record: &mut Record) -> Warmed {
        let leaf = &self.leaves[leaf];
        record.groups.clone_from(&leaf.groups);
        record.limits = leaf.limits;
        leaf.source.warm(group, record)
    }

    /// What was decoded ahead is no longer expected to be wanted.
    pub(crate) fn forget_ahead(&self) {
        if let Some(groups) = self.kept_groups() {
            groups.forget_coming();
        }
    }

    /// The groups that are kept for all leaves, if there are any.
    pub(crate) fn kept_groups(&self) -> Option<&Arc<Groups>> {
        self.leaves.iter().find_map(|leaf| leaf.groups.as_ref())
    }

    /// Whether some images or sounds are to be decoded.
    pub(crate) fn encoded(&self) -> bool {
        let encoded = |kind: &FieldKind| matches!(kind, FieldKind::Image | FieldKind::Audio);
        self.leaves.iter().any(|leaf| leaf.source.schema().fields.iter().any(|f| encoded(&f.kind)))
    }

    /// Whether samples are put into batches as they are: no image or sound is transformed or converted.
    pub(crate) fn only_copies(&self) -> bool {
        let image = |field: &FieldProgram| matches!(field, FieldProgram::Image(_) | FieldProgram::Audio(_));
        !self.leaves.iter().any(|leaf| leaf.program.fields.iter().any(image))
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

    /// Touches what lies in the memory of sources. A shuffled row is almost never in the processor's cache; asked for one
    /// after the other in a loop that does nothing else, many are on their way at a time.
    pub(crate) fn touch(&self, picks: &[Pick]) {
        let mut ends = 0;
        for pick in picks {
            let leaf = &self.leaves[pick.leaf];
            for field in 0..leaf.columns().len() {
                if let Some([first, .., last]) = leaf.source.resident(pick.index, field) {
                    ends ^= first ^ last;
                }
            }
        }
        std::hint::black_box(ends);
    }

    /// The stores of sources that answer later, and how each is tried again: of those whose samples are located, then of those
    /// whose groups are.
    pub(crate) fn remote_stores(&self) -> Vec<(Arc<dyn Store>, Retry)> {
        let samples = self.leaves.iter().filter(|leaf| leaf.is_remote()).map(|leaf| leaf.source.store());
        let groups = self.leaves.iter().filter(|leaf| leaf.has_far_groups());
        let all = samples.chain(groups.map(|leaf| leaf.source.groups_store()));
        all.flatten().filter_map(|store| Some((store.clone(), store.remote()?.retry()))).collect()
    }

    /// Whether the I/O layer reads samples for this loader.
    pub(crate) fn is_remote(&self) -> bool {
        self.leaves.iter().any(LeafExecutor::is_remote)
    }

    /// Whether the I/O layer reads groups for this loader.
    pub(crate) fn has_far_groups(&self) -> bool {
        self.leaves.iter().any(LeafExecutor::has_far_groups)
    }

    /// What the group of a leaf needs, at a moment.
    pub(crate) fn locate_group(&self, want: Want, at: u64) -> Vec<Located> {
        let Want { key: (_, group), leaf, extents } = want;
        let samples = self.leaves.iter().filter(|leaf| leaf.is_remote()).count();
        let store = samples + self.leaves[..leaf].iter().filter(|leaf| leaf.has_far_groups()).count();
        let need = Need { sample: self.first_sample(leaf).saturating_add(group), at };
        extents.into_iter().map(|extent| Located { store, extent, need }).collect()
    }

    /// The number of the first sample of a leaf, as `foresight.rs` numbers them. A source may say that it has no end.
    fn first_sample(&self, leaf: usize) -> u64 {
        self.leaves[..leaf].iter().map(|leaf| leaf.source.len()).fold(0, u64::saturating_add)
    }

    /// The bytes that a sample needs of stores that answer later. What its other records need is left to the worker.
    pub(crate) fn locate(&self, picks: &[Pick], fetched: &mut Fetched) -> Result<Vec<Located>> {
        fetched.reset(picks.len());
        let mut wanted = Vec::new();
        for (number, &pick) in picks.iter().enumerate() {
            let leaf = &self.leaves[pick.leaf];
            if !leaf.is_remote() {
                fetched.near.push(number);
                continue;
            }
            let record = &mut fetched.records[number];
            record.limits = leaf.limits;
            if leaf.restore(pick, record) {
                continue;
            }
            let mut extents = Vec::new();
            leaf.source
                .locate(pick.index, &leaf.limits, &mut extents)
                .map_err(|e| leaf.located(e, pick, None).with_stage("read"))?;
            fetched.arriving.push((number, extents.len()));
            let store = self.leaves[..pick.leaf].iter().filter(|leaf| leaf.is_remote()).count();
            let need = Need { sample: self.first_sample(pick.leaf).saturating_add(pick.index), at: 0 };
            wanted.extend(extents.into_iter().map(|extent| Located { store, extent, need }));
        }
        Ok(wanted)
    }

    /// Makes the records of the bytes that [`Executor::locate`] named.
    pub(crate) fn assemble(&self, picks: &[Pick], pieces: &[Bytes], fetched: &mut Fetched) -> Result<()> {
        let mut pieces = pieces;
        for (number, count) in std::mem::take(&mut fetched.arriving) {
            let (own, others) = pieces
                .split_at_checked(count)
                .ok_or_else(|| Error::new(ErrorKind::Internal, "pieces of a sample are missing"))?;
            pieces = others;
            let (leaf, pick) = (&self.leaves[picks[number].leaf], picks[number]);
            fetched.records[number].groups.clone_from(&leaf.groups);
            leaf.source
                .assemble(pick.index, own, &mut fetched.records[number])
                .map_err(|e| leaf.located(e, pick, None).with_stage("read"))?;
        }
        Ok(())
    }

    /// Reads the records that were left to the worker.
    pub(crate) fn complete(&self, picks: &[Pick], fetched: &mut Fetched) -> Result<()> {
        for number in std::mem::take(&mut fetched.near) {
            let pick = picks[number];
            let leaf = &self.leaves[pick.leaf];
            leaf.fetch(pick, &mut fetched.records[number], leaf.limits.max_bytes)?;
        }
        Ok(())
    }

    /// Names the sample whose bytes did not arrive.
    pub(crate) fn not_arrived(&self, error: Error, picks: &[Pick]) -> Error {
        match picks.iter().find(|pick| self.leaves[pick.leaf].is_remote()) {
            Some(&pick) => self.leaves[pick.leaf].located(error, pick, None).with_stage("read"),
            None => error,
        }
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

    /// `error` with the sample that it happened to.
    pub(crate) fn located(&self, error: Error, pick: Pick) -> Error {
        match self.leaves.get(pick.leaf) {
            Some(leaf) => leaf.located(error, pick, None),
            None => error,
        }
    }

    /// The value of a column that lies in the memory of source `leaf`.
    pub(crate) fn resident(&self, column: usize, leaf: usize, index: u64) -> Option<&[u8]> {
        let leaf = self.leaves.get(leaf)?;
        leaf.source.resident(index, column.checked_sub(leaf.first_column)?)
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
    pub(super) program: Program,
    seed: u64,
    limits: Limits,
    caches: Caches,
    /// Where its source keeps what it decodes for many samples at once, if it does.
    groups: Option<Arc<Groups>>,
    /// The column that its first field is written to.
    pub(super) first_column: usize,
}

impl LeafExecutor {
    /// The column that its first field is written to.
    pub(crate) fn first_column(&self) -> usize {
        self.first_column
    }

    /// Seed of its random numbers.
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    pub(crate) fn new(
        source: Arc<dyn Source>,
        program: Program,
        seed: u64,
        limits: Limits,
        first_column: usize,
    ) -> Self {
        Self { source, program, seed, limits, caches: Caches::default(), groups: None, first_column }
    }

    /// Sets what is kept from epoch to epoch.
    pub(crate) fn set_caches(&mut self, caches: Caches) {
        self.caches = caches;
    }

    /// Sets where the source keeps what it decodes for many samples at once.
    pub(crate) fn set_groups(&mut self, groups: Groups) {
        self.groups = Some(Arc::new(groups));
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

    /// Whether its bytes lie in a store that answers later.
    fn is_remote(&self) -> bool {
        self.source.store().is_some_and(|store| store.remote().is_some())
    }

    /// Whether its groups are read from a store that answers later.
    pub(crate) fn has_far_groups(&self) -> bool {
        self.groups.is_some() && self.source.groups_store().is_some()
    }

    /// Takes the record from a cache, if it is there.
    fn restore(&self, pick: Pick, record: &mut Record) -> bool {
        self.caches.coefficients.as_ref().is_some_and(|cache| cache.restore(pick.index, record))
    }

    /// Reads the sample's record, whose memory is reserved in `room` before it is taken: as much as the record has
    /// already, then what the source says that the sample has, or, where it cannot say, more as long as a field is larger.
    fn fetch_within(&self, pick: Pick, record: &mut Record, room: &Room) -> Result<()> {
        let most = self.limits.max_bytes;
        if self.source.in_memory() {
            return self.fetch(pick, record, most);
        }
        let read = self.source.schema().fields.iter().filter(|f| !matches!(f.kind, FieldKind::Scalar { .. }));
        let fields = read.count().max(1) as u64;
        let held = record.capacity() as u64;
        let mut allowed = (held / fields).max(FIRST).min(most);
        room.take((allowed * fields).saturating_sub(held) as usize)?;
        loop {
            match self.fetch(pick, record, allowed) {
                Err(error) if error.kind() == ErrorKind::Limit && allowed < most => {
                    let size = error.size().filter(|size| *size > allowed);
                    if size.is_some_and(|size| size > most) {
                        // It says so itself, before it reads.
                        return self.fetch(pick, record, most);
                    }
                    let take = |more: u64| {
                        room.take(usize::try_from(more).unwrap_or(usize::MAX))
                            .map_err(|e| self.located(e, pick, None).with_stage("read"))
                    };
                    if let Some(all) = self.stored_bytes(pick.index) {
                        // Without what earlier samples left it takes no more than that.
                        *record = Record::default();
                        take(all.saturating_sub(held.max(allowed * fields)))?;
                        return self.fetch(pick, record, most);
                    }
                    let next = size.unwrap_or(allowed.saturating_mul(4)).min(most);
                    take((next - allowed).saturating_mul(fields))?;
                    allowed = next;
                }
                result => return result,
            }
        }
    }

    /// Bytes that the record of sample `index` has, if the source knows that without reading: all that is stored of it, and
    /// room for names.
    fn stored_bytes(&self, index: u64) -> Option<u64> {
        let mut extents = Vec::new();
        self.source.locate(index, &self.limits, &mut extents).ok()?;
        let sizes = extents.iter().map(|extent| extent.range.as_ref().map(|range| range.end - range.start));
        sizes.sum::<Option<u64>>().map(|all| all.saturating_add(FIRST))
    }

    /// Reads the sample's record, of up to `max_bytes` a field.
    fn fetch(&self, pick: Pick, record: &mut Record, max_bytes: u64) -> Result<()> {
        record.limits = Limits { max_bytes: max_bytes.min(self.limits.max_bytes), ..self.limits };
        if self.restore(pick, record) {
            return Ok(());
        }
        record.groups.clone_from(&self.groups);
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
            probe.lap(Phase::Decode, 0);
        }
        scratch.image.trust(record.cached);
        if self.program.shared {
            scratch.image.group().clear();
        }
        for &field in &self.program.order {
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
            FieldProgram::Image(program) => self.image(field, program, pick, record, scratch, slot, probe),
            FieldProgram::Audio(program) => self.sound(field, program, pick, record, scratch, slot, probe),
            FieldProgram::Boxes { operations, format, whole } => {
                let bytes = self.bytes(value, field, pick)?;
                let Scratch { image, boxes, bytes: out, .. } = scratch;
                if !boxes.load(bytes, *format, *whole) {
                    return Err(self.no_rows(field, bytes.len(), if *whole { 32 } else { 16 }));
                }
                if !operations.is_empty() {
                    image.group().follow(operations, |action, canvas| boxes.run(action, canvas))?;
                }
                out.clear();
                boxes.store(out);
                slot.pieces(field).copy(&[boxes.rows.len(), 4], out)?;
                probe.lap(Phase::Transform, out.len());
                Ok(())
            }
            FieldProgram::Points(operations) => {
                let bytes = self.bytes(value, field, pick)?;
                let Scratch { image, points, bytes: out, .. } = scratch;
                if !points.load(bytes) {
                    return Err(self.no_rows(field, bytes.len(), 8));
                }
                if !operations.is_empty() {
                    image.group().follow(operations, |action, canvas| points.run(action, canvas))?;
                }
                out.clear();
                out.extend(points.rows.as_flattened().iter().flat_map(|v| v.to_ne_bytes()));
                slot.pieces(field).copy(&[points.rows.len(), 2], out)?;
                probe.lap(Phase::Transform, out.len());
                Ok(())
            }
            FieldProgram::Labels(size) => {
                let bytes = self.bytes(value, field, pick)?;
                let Scratch { boxes, bytes: out, .. } = scratch;
                if bytes.len() != size * boxes.given {
                    let what = format!(
                        "{} has {} entries, and there are {} boxes",
                        self.name(field),
                        bytes.len() / size,
                        boxes.given
                    );
                    return Err(Error::new(ErrorKind::Shape, what).with_stage("batch"));
                }
                out.clear();
                for entry in &boxes.labels {
                    let start = *entry as usize * size;
                    out.extend_from_slice(&bytes[start..start + size]);
                }
                slot.pieces(field).copy(&[boxes.labels.len()], out)?;
                Ok(())
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
                probe.lap(Phase::Write, bytes.len());
                Ok(())
            }
            FieldProgram::Varying => {
                let given = shapes.get_mut(field).map(std::mem::take).unwrap_or_default();
                let shape = self.shape(field, given, self.bytes(value, field, pick)?.len())?;
                let place = slot.pieces(field);
                let bytes = match &mut *value {
                    Value::Resident => {
                        place.refer(&shape, pick.leaf, pick.index);
                        0
                    }
                    Value::Bytes(bytes) => {
                        place.swap(&shape, bytes)?;
                        shape.iter().product()
                    }
                    other => {
                        place.copy(&shape, self.bytes(other, field, pick)?)?;
                        shape.iter().product()
                    }
                };
                if let Some(kept) = shapes.get_mut(field) {
                    *kept = shape;
                }
                probe.lap(Phase::Write, bytes);
                Ok(())
            }
            FieldProgram::Int => {
                let Value::Int(value) = value else { return Err(self.missing(field)) };
                slot.array(field).copy_from_slice(&value.to_ne_bytes());
                Ok(())
            }
            FieldProgram::Index => {
                let index = match value {
                    Value::Int(value) => value.to_ne_bytes(),
                    other => self.bytes(other, field, pick)?.try_into().map_err(|_| self.missing(field))?,
                };
                slot.array(field)[..index.len()].copy_from_slice(&index);
                Ok(())
            }
            FieldProgram::List { utf8 } => {
                let bytes = self.bytes(value, field, pick)?;
                if *utf8 && let Err(e) = std::str::from_utf8(bytes) {
                    let what =
                        format!("{} is not UTF-8: byte {} is invalid", self.name(field), e.valid_up_to());
                    return Err(Error::corrupt(what).with_stage("batch"));
                }
                match value {
                    // A large one is never there twice.
                    Value::Bytes(bytes) if bytes.len() > LARGE.max(bytes.capacity() / 2) => {
                        slot.pieces(field).swap(&[], bytes)
                    }
                    other => slot.pieces(field).copy(&[], self.bytes(other, field, pick)?),
                }
            }
        }
    }

    #[allow(clippy::too_many_arguments, reason = "those of `field`, and its program")]
    fn image(
        &self,
        field: usize,
        program: &ImageProgram,
        pick: Pick,
        record: &Record,
        scratch: &mut Scratch,
        slot: &mut SampleSlot<'_>,
        probe: &mut Probe<'_>,
    ) -> Result<()> {
        let given = |field: usize| match record.values.get(field) {
            Some(value) => self.bytes(value, field, pick),
            None => Err(self.missing(field)),
        };
        let bytes = given(field)?;
        let beside = match program.boxes.map(|at| (at, &self.program.fields[at])) {
            Some((at, FieldProgram::Boxes { operations, format, whole })) => {
                Some(Beside { bytes: given(at)?, format: *format, whole: *whole, operations })
            }
            _ => None,
        };
        let maker = Maker { program, seed: self.seed, pick, limits: &self.limits, beside };
        let Scratch { image, bytes: memory, .. } = scratch;
        let mut size = None;
        let mut make = |image: &mut ImageScratch| -> Result<()> {
            let target = if program.varies || program.left().is_some() {
                Target::Open(&mut *memory)
            } else {
                Target::Slot(slot.array(field))
            };
            size = Some(maker.make(bytes, image, target, probe)?);
            Ok(())
        };
        match self.caches.row_indexes.as_ref().filter(|_| program.decode_region && is_jpeg(bytes)) {
            None => make(image),
            Some(cache) => cache.decode(pick.index, field, |hint| {
                *image.row_hint() = hint;
                let made = make(image);
                (made, std::mem::take(image.row_hint()).found)
            }),
        }?;
        match size {
            Some(_) if program.left().is_some() => {
                let shape = [memory.len()];
                slot.pieces(field).swap(&shape, memory)
            }
            Some(size) if program.varies => {
                let shape = program.sides(size.height, size.width);
                slot.pieces(field).swap(&shape, memory)
            }
            _ => Ok(()),
        }
    }

    #[allow(clippy::too_many_arguments, reason = "those of `field`, and its program")]
    fn sound(
        &self,
        field: usize,
        program: &AudioProgram,
        pick: Pick,
        record: &Record,
        scratch: &mut Scratch,
        slot: &mut SampleSlot<'_>,
        probe: &mut Probe<'_>,
    ) -> Result<()> {
        let value = record.values.get(field).ok_or_else(|| self.missing(field))?;
        let bytes = self.bytes(value, field, pick)?;
        let Scratch { image, sound, bytes: memory, .. } = scratch;
        let maker = SoundMaker {
            program,
            seed: self.seed,
            pick,
            limits: &self.limits,
            room: image.room().map(|r| &**r),
        };
        let span = record.spans.get(field).copied().flatten();
        maker.make(bytes, span, sound, probe)?;
        audio::store(&sound.values, program.dtype, image.room().map(|r| &**r), memory)?;
        let sides: Vec<usize> = sound.shape.sides().into_iter().map(|side| side.unwrap_or(0)).collect();
        if let ColumnKind::Varying { .. } = &self.program.columns[field].kind {
            let shape = self.shape(field, sides, memory.len())?;
            let written = memory.len();
            // Without a copy: the memory of an earlier piece takes its place.
            slot.pieces(field).swap(&shape, memory)?;
            probe.lap(Phase::Write, written);
            return Ok(());
        } else {
            let out = slot.array(field);
            if memory.len() != out.len() {
                return Err(Error::new(
                    ErrorKind::Shape,
                    format!("{} has the shape {sides:?}, others have another one", self.name(field)),
                )
                .with_stage("batch"));
            }
            out.copy_from_slice(memory);
        }
        probe.lap(Phase::Write, memory.len());
        Ok(())
    }

    fn bytes<'a>(&'a self, value: &'a Value, field: usize, pick: Pick) -> Result<&'a [u8]> {
        match value {
            Value::Bytes(bytes) => Ok(bytes),
            Value::Shared(bytes) => Ok(bytes),
            Value::Resident => self.source.resident(pick.index, field).ok_or_else(|| self.missing(field)),
            _ => Err(self.missing(field)),
        }
    }

    fn no_rows(&self, field: usize, found: usize, row: usize) -> Error {
        let what = format!("{} are {found} bytes: rows have {row}, of numbers up to 2^24", self.name(field));
        Error::new(ErrorKind::Shape, what).with_stage("read")
    }

    /// The shape of a value of `len` bytes, worked out from them where `given` is empty.
    fn shape(&self, field: usize, mut given: Vec<usize>, len: usize) -> Result<Vec<usize>> {
        let column = &self.program.columns[field];
        let ColumnKind::Varying { dtype, shape, stacking } = &column.kind else {
            return Err(Error::new(ErrorKind::Internal, format!("column {} does not vary", column.name)));
        };
        if given.is_empty() && !shape.is_empty() {
            let fixed = shape.iter().flatten().product::<usize>().saturating_mul(dtype.size());
            let open = len.checked_div(fixed).unwrap_or(0);
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
