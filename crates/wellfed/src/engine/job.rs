//! One batch under way: its buffers, which workers fill sample by sample, and what went wrong in it.
//!
//! Arrays of fixed size are written straight into their buffers. What has no fixed size is kept piece by piece, and put
//! together by whoever finishes the last sample, outside of all locks.
//!
//! Invariant: every sample of a job is claimed exactly once (by the [`super::schedule`]), and a job is turned
//! into a batch only after every claim was returned. So no two threads ever hold the same part of a buffer.

use std::{
    ops::Range,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{
            AtomicBool, AtomicU64, AtomicUsize,
            Ordering::{AcqRel, Acquire, Relaxed, Release},
        },
    },
};

use super::{
    batch::{Batch, Column, ColumnData},
    mix::{Key, Labels},
    ring::{Buffer, Pool},
    stack::{self, Buffers, Columns, Held, Pieces, Resident, Stacked, Take},
};
use crate::{
    Error, ErrorKind, Result,
    column::{ColumnKind, ColumnSpec},
    lock,
    order::Span,
    plan::OnError,
    source::Lists,
};

#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) epoch: u64,
    pub(crate) number: u64,
    pub(crate) span: Span,
    /// It has nearly the whole memory budget: no other batch is under way.
    pub(crate) solo: bool,
    columns: Columns,
    /// Samples that there is room for.
    room: usize,
    pool: Arc<Pool>,
    /// Where columns of fixed size are to lie, in place of buffers of the pool, by their number.
    places: Mutex<Vec<(usize, Buffer)>>,
    /// Made by the first worker that writes, since the schedule is locked where jobs are made.
    storage: OnceLock<Result<Vec<Storage>>>,
    failed: Mutex<Vec<Failure>>,
    /// Samples that are not finished.
    left: AtomicUsize,
    /// Columns that were put together after the last sample, by number.
    stacked: Mutex<Result<Vec<(usize, Stacked, Held)>>>,
    /// Bytes that those columns take in buffers, with those that still wait for room.
    columns_bytes: AtomicU64,
    /// Most bytes that lists took.
    most_listed: AtomicU64,
    /// All columns were put together.
    finished: AtomicBool,
    /// It was mixed, and that made these labels; `None` where there are none, or the batch is an error.
    mixed: OnceLock<Result<Option<Labels>>>,
    /// The whole batch cannot be made.
    impossible: OnceLock<Error>,
}

/// A bad sample of a job.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// Its place in the batch.
    pub(crate) offset: usize,
    /// Why.
    pub(crate) error: Error,
    /// Whether another sample took its place.
    pub(crate) replaced: bool,
}

/// Bytes that values of a batch take which differ in size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Varying {
    /// Values by themselves, and finished lists.
    pub(crate) lists: u64,
    /// Finished columns in buffers of the pool.
    pub(crate) columns: u64,
}

impl Varying {
    /// The larger of both, each by itself.
    pub(crate) fn max(self, other: Self) -> Self {
        Self { lists: self.lists.max(other.lists), columns: self.columns.max(other.columns) }
    }

    /// Both together.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            lists: self.lists.saturating_add(other.lists),
            columns: self.columns.saturating_add(other.columns),
        }
    }
}

#[derive(Debug)]
enum Storage {
    Array(Buffer),
    Pieces(Pieces),
}

impl Job {
    pub(crate) fn new(
        epoch: u64,
        number: u64,
        span: Span,
        batch_size: usize,
        columns: &Columns,
        pool: &Arc<Pool>,
    ) -> Self {
        Self {
            epoch,
            number,
            left: AtomicUsize::new(span.len),
            span,
            solo: false,
            columns: columns.clone(),
            room: batch_size,
            pool: pool.clone(),
            places: Mutex::default(),
            storage: OnceLock::new(),
            failed: Mutex::default(),
            stacked: Mutex::new(Ok(Vec::new())),
            columns_bytes: AtomicU64::new(0),
            most_listed: AtomicU64::new(0),
            finished: AtomicBool::new(false),
            mixed: OnceLock::new(),
            impossible: OnceLock::new(),
        }
    }

    /// Has columns of fixed size, by their number, in these buffers, which are as large as the columns are.
    pub(crate) fn in_places(self, places: Vec<(usize, Buffer)>) -> Self {
        Self { places: Mutex::new(places), ..self }
    }

    /// # Errors
    /// [`ErrorKind::Limit`] if the system has no memory for the batch: then that is what the batch is.
    fn storage(&self) -> Result<&[Storage]> {
        let made = self.storage.get_or_init(|| {
            let mut places = std::mem::take(&mut *lock(&self.places));
            let mut of = |(number, column): (usize, &ColumnSpec)| match column.kind {
                ColumnKind::Array { .. } => {
                    let size = column.sample_bytes().saturating_mul(self.room);
                    let place =
                        places.iter().position(|(whose, place)| *whose == number && place.len() == size);
                    let buffer = match place {
                        Some(place) => Ok(places.swap_remove(place).1),
                        None => self.pool.take(size),
                    };
                    buffer.map(Storage::Array)
                }
                _ => Ok(Storage::Pieces(self.columns.shelf.take(self.span.len))),
            };
            self.columns.iter().enumerate().map(&mut of).collect()
        });
        made.as_deref().map_err(|error| {
            self.give_up(error.clone());
            error.clone()
        })
    }

    fn pieces(&self) -> impl Iterator<Item = &Pieces> {
        let made = self.storage.get().and_then(|made| made.as_ref().ok());
        made.into_iter().flatten().filter_map(|storage| match storage {
            Storage::Pieces(pieces) => Some(pieces),
            Storage::Array(_) => None,
        })
    }

    /// What values that differ in size take now, with what there was no room for.
    pub(crate) fn varying(&self) -> Varying {
        let lists = lock(&self.stacked).iter().flatten().map(|(.., held)| held.bytes()).sum::<u64>();
        let lists = lists + self.pieces().map(Pieces::bytes).sum::<u64>();
        Varying { lists, columns: self.columns_bytes.load(Relaxed) }
    }

    /// Most that they took so far.
    pub(crate) fn most_varying(&self) -> Varying {
        self.varying().max(Varying { lists: self.most_listed.load(Relaxed), columns: 0 })
    }

    /// Whether all columns were put together, so that the batch takes no more than it does.
    pub(crate) fn is_finished(&self) -> bool {
        self.finished.load(Acquire)
    }

    /// Bytes of its arrays of fixed size.
    pub(crate) fn array_bytes(&self) -> u64 {
        let sample = self.columns.iter().map(|column| column.sample_bytes() as u64).sum::<u64>();
        sample.saturating_mul(self.room as u64)
    }

    /// Bytes that a sample found no room for, since this was last asked.
    pub(crate) fn take_wanted(&self) -> Option<u64> {
        self.pieces().filter_map(Pieces::take_wanted).max()
    }

    /// Gives the whole batch up: its samples are no worse than others, but there is no room for all of them.
    pub(crate) fn give_up(&self, error: Error) {
        // The first reason is as good as another.
        drop(self.impossible.set(error));
    }

    /// Whether the batch was given up.
    pub(crate) fn is_impossible(&self) -> bool {
        self.impossible.get().is_some()
    }

    /// Notes that a sample could not be made, and whether another one stands in for it.
    pub(crate) fn fail(&self, offset: usize, error: Error, replaced: bool) {
        lock(&self.failed).push(Failure { offset, error, replaced });
    }

    /// All bad samples, in the order of the batch.
    pub(crate) fn failures(&self) -> Vec<Failure> {
        let mut failures = lock(&self.failed).clone();
        failures.sort_by_key(|failure| failure.offset);
        failures
    }

    /// Counts finished samples. Whoever finishes the last one puts columns together that are not arrays of fixed size.
    ///
    /// The caller must hold no lock, as this may take as long as the samples are large. `resident` finds the value of a
    /// column that lies in the memory of a source, by the number of the source and the index there; `take` makes a buffer
    /// for a column, and may wait for room.
    pub(crate) fn finish<'a>(
        &'a self,
        samples: usize,
        on_error: OnError,
        resident: Resident<'a, '_>,
        take: Take<'_>,
        key: &dyn Fn() -> Key,
    ) {
        // Orders the pieces and failures of other workers before what follows.
        if self.left.fetch_sub(samples, AcqRel) != samples {
            return;
        }
        if self.is_mixed() && !self.is_impossible() {
            // Nobody else sets it.
            drop(self.mixed.set(self.mix(on_error, key)));
        }
        if !self.columns.iter().any(|spec| spec.is_stacked()) {
            return;
        }
        self.most_listed.store(self.varying().lists, Relaxed);
        let made = self.stack(on_error, resident, take);
        *lock(&self.stacked) = made;
        self.finished.store(true, Release);
    }

    /// Whether its samples are mixed after the last one.
    pub(crate) fn is_mixed(&self) -> bool {
        self.columns.mixer.is_some() || self.span.blend().is_some()
    }

    /// Mixes the samples that go into the batch, which then stand at the beginning of their columns.
    fn mix(&self, on_error: OnError, key: &dyn Fn() -> Key) -> Result<Option<Labels>> {
        let Some(keep) = self.keep(on_error) else { return Ok(None) };
        let storage = self.storage()?;
        let column = |number: usize| match &storage[number] {
            Storage::Array(buffer) => {
                let size = self.columns[number].sample_bytes();
                // SAFETY: this is called after the last sample was counted as finished, once, and for columns that
                // differ. Whoever wrote to a column counted its samples after that, which orders those writes before this,
                // and the job becomes a batch only when the caller has given its claim back.
                let all = unsafe { buffer.part(0, size * self.span.len) };
                close_up(all, size, &keep);
                Ok(all)
            }
            Storage::Pieces(_) => {
                Err(Error::new(ErrorKind::Internal, format!("column {number} has no fixed size")))
            }
        };
        if let Some(mixer) = &self.columns.mixer {
            let images = if mixer.leaves_images() { &mut [] } else { column(mixer.images.column)? };
            let labels = column(mixer.label)?;
            return mixer.run(keep.len(), images, labels, key()).map(Some);
        }
        if let (Some(images), Some(blend)) = (&self.columns.images, self.span.blend()) {
            images.mix(keep.len(), column(images.column)?, blend)?;
        }
        Ok(None)
    }

    fn stack<'a>(
        &'a self,
        on_error: OnError,
        resident: Resident<'a, '_>,
        take: Take<'_>,
    ) -> Result<Vec<(usize, Stacked, Held)>> {
        let Some(keep) = self.keep(on_error) else { return Ok(Vec::new()) };
        let mut made = Vec::new();
        for (number, (spec, storage)) in self.columns.iter().zip(self.storage()?).enumerate() {
            let Storage::Pieces(pieces) = storage else { continue };
            let text = || -> Result<Vec<String>> {
                let texts: std::result::Result<_, _> =
                    pieces.own(&keep).into_iter().map(String::from_utf8).collect();
                texts.map_err(|e| Error::corrupt(format!("text is not UTF-8: {e}")))
            };
            let list = |data| Ok(Stacked::from(data));
            let stacked = match &spec.kind {
                ColumnKind::Text => list(ColumnData::Text(text()?)),
                ColumnKind::Json => list(ColumnData::Json(text()?)),
                ColumnKind::Bytes => list(ColumnData::Bytes(pieces.own(&keep))),
                _ => {
                    let take = |len: usize| {
                        self.columns_bytes.fetch_add(len as u64, Relaxed);
                        take(len)
                    };
                    let buffers = Buffers { take: &take, exact: self.solo };
                    let made =
                        stack::stack((number, spec), pieces, &keep, self.span.pad_to(), buffers, resident);
                    pieces.release();
                    made
                }
            }?;
            let listed = if spec.is_list() { stacked.data.bytes() } else { 0 };
            made.push((number, stacked, self.columns.shelf.hold(listed)));
        }
        Ok(made)
    }

    /// Samples that go into the batch; `None` if it is an error.
    fn keep(&self, on_error: OnError) -> Option<Vec<usize>> {
        let mut failed = self.failures();
        failed.retain(|failure| !failure.replaced);
        if self.fatal(&failed, on_error).is_some() {
            return None;
        }
        let good = |i: &usize| failed.binary_search_by_key(i, |failure| failure.offset).is_err();
        Some((0..self.span.len).filter(good).collect())
    }

    /// The error that the batch is, of samples that have no replacement: that of storage which failed for a while, whatever
    /// `on_error` says; else the first one, unless bad samples are skipped and others are left, or none are, but the
    /// caller gave the order and so expects an answer to every batch: then that is an empty one.
    fn fatal(&self, failed: &[Failure], on_error: OnError) -> Option<Error> {
        let outage = failed.iter().find(|failure| failure.error.kind() == ErrorKind::Transient);
        let skipped = on_error == OnError::Skip && (failed.len() < self.span.len || self.span.is_answered());
        let first = outage.or_else(|| failed.first().filter(|_| !skipped))?;
        Some(first.error.clone())
    }

    /// Turns the finished job into what the consumer gets.
    ///
    /// # Errors
    /// That of [`Job::fatal`].
    pub(crate) fn into_batch(self, on_error: OnError, batched: bool) -> Result<Batch> {
        if let Some(error) = self.impossible.get() {
            return Err(error.clone());
        }
        // A batch of bad samples only has none yet.
        self.storage()?;
        let Some(keep) = self.keep(on_error) else {
            let mut failed = self.failures();
            failed.retain(|failure| !failure.replaced);
            return Err(self
                .fatal(&failed, on_error)
                .unwrap_or_else(|| Error::new(ErrorKind::Internal, "a batch without a bad sample failed")));
        };
        let is_mixed = self.is_mixed();
        let stacked = self.stacked.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner())?;
        let mut stacked = stacked.into_iter();
        let mut columns = Vec::with_capacity(self.columns.len());
        // Columns that were mixed, the labels that came of it, and what is left to be mixed.
        let (mut image, mut labels, mut blends) = (None, None, Vec::new());
        let unmixed = || Error::new(ErrorKind::Internal, "a batch was not mixed");
        if is_mixed {
            let made = self.mixed.into_inner().ok_or_else(unmixed)??;
            if let Some(mixer) = &self.columns.mixer {
                image = Some(mixer.images.column);
                let mut made = made.ok_or_else(unmixed)?;
                blends = std::mem::take(&mut made.blends);
                labels = Some((mixer.label, made));
            } else {
                image = self.columns.images.map(|images| images.column);
            }
        }
        let closed_up: Vec<usize> = (0..keep.len()).collect();
        let made = self.storage.into_inner().transpose()?.unwrap_or_default();
        for (number, (spec, storage)) in self.columns.iter().zip(made).enumerate() {
            let Stacked { mut data, mut lengths, mut mask } = match storage {
                Storage::Array(bytes) if labels.as_ref().is_some_and(|(column, _)| *column == number) => {
                    let (_, Labels { dtype, shape, .. }) = labels.take().ok_or_else(unmixed)?;
                    ColumnData::Array { dtype, shape, bytes }.into()
                }
                Storage::Array(bytes) if image == Some(number) => {
                    dense(spec, bytes, &closed_up, batched)?.into()
                }
                Storage::Array(bytes) => dense(spec, bytes, &keep, batched)?.into(),
                Storage::Pieces(_) => {
                    let (_, made, _) = stacked.next().ok_or_else(|| {
                        Error::new(ErrorKind::Internal, format!("column {} was not put together", spec.name))
                    })?;
                    made
                }
            };
            data.lend();
            lengths.iter_mut().chain(&mut mask).for_each(Buffer::lend);
            let blends = if image == Some(number) { std::mem::take(&mut blends) } else { Vec::new() };
            columns.push(Column { name: spec.name.clone(), data, lengths, mask, blends });
        }
        Ok(Batch { columns, len: keep.len(), epoch: self.epoch, number: self.number })
    }
}

/// An array of fixed size per sample, without the samples that are not in `keep`.
fn dense(spec: &ColumnSpec, mut bytes: Buffer, keep: &[usize], batched: bool) -> Result<ColumnData> {
    let ColumnKind::Array { dtype, shape } = &spec.kind else {
        return Err(Error::new(ErrorKind::Internal, format!("column {} has no array shape", spec.name)));
    };
    close_up(&mut bytes, spec.sample_bytes(), keep);
    let mut full = Vec::with_capacity(shape.len() + 1);
    full.extend(batched.then_some(keep.len()));
    full.extend(shape);
    Ok(ColumnData::Array { dtype: *dtype, shape: full, bytes })
}

/// Puts the samples `keep`, of `size` bytes each, at the beginning.
fn close_up(bytes: &mut [u8], size: usize, keep: &[usize]) {
    for (to, &from) in keep.iter().enumerate() {
        if to != from {
            bytes.copy_within(from * size..(from + 1) * size, to * size);
        }
    }
}

/// The right to write some samples of a job. Handed out by the schedule, once per sample.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) job: Arc<Job>,
    pub(crate) samples: Range<usize>,
}

impl Claim {
    /// Where sample `offset` goes.
    ///
    /// # Errors
    /// [`ErrorKind::Limit`] if the system has no memory for the batch.
    pub(crate) fn slot(&mut self, offset: usize) -> Result<SampleSlot<'_>> {
        assert!(self.samples.contains(&offset), "sample {offset} was not claimed");
        let storage = self.job.storage()?;
        Ok(SampleSlot { job: &self.job, storage, offset, first: 0 })
    }

    /// Bytes of `count` array columns from `first` on, for all samples of the claim; and where the values of columns go that are
    /// texts or byte strings, if there are some: their bytes are none.
    ///
    /// # Errors
    /// [`ErrorKind::Limit`] if the system has no memory for the batch; [`ErrorKind::Internal`] if a column is neither.
    pub(crate) fn columns(
        &mut self,
        first: usize,
        count: usize,
    ) -> Result<(Vec<&mut [u8]>, Option<ClaimedLists<'_>>)> {
        let storage = self.job.storage()?;
        let mut lists = None;
        let mut column = |number: usize| match storage.get(number) {
            Some(Storage::Pieces(_)) if self.job.columns[number].is_list() => {
                lists = Some(ClaimedLists { job: &self.job, storage, first, samples: self.samples.clone() });
                Ok(&mut [][..])
            }
            Some(Storage::Array(buffer)) => {
                let size = self.job.columns[number].sample_bytes();
                // SAFETY: as of `SampleSlot::array`: each sample is handed out once, and a claim gives the bytes of its
                // samples one at a time (`&mut`), those of each column once.
                Ok(unsafe { buffer.parts(self.samples.clone(), size) })
            }
            _ => Err(Error::new(ErrorKind::Internal, format!("column {number} has no rows of one size"))),
        };
        let columns = (first..first + count).map(&mut column).collect::<Result<_>>()?;
        Ok((columns, lists))
    }
}

/// The places of the samples of a claim in columns of texts and byte strings.
#[derive(Debug)]
pub(crate) struct ClaimedLists<'a> {
    job: &'a Job,
    storage: &'a [Storage],
    /// The column that counts as 0.
    first: usize,
    samples: Range<usize>,
}

impl Lists for ClaimedLists<'_> {
    fn set(&self, field: usize, row: usize, bytes: &[u8]) -> bool {
        let column = self.first + field;
        let Some(Storage::Pieces(pieces)) = self.storage.get(column) else { return false };
        let offset = self.samples.start + row;
        let is_text = matches!(self.job.columns[column].kind, ColumnKind::Text | ColumnKind::Json);
        offset < self.samples.end
            && (!is_text || std::str::from_utf8(bytes).is_ok())
            && pieces.copy(offset, &[], bytes).is_ok()
    }
}

/// The place of one sample in the columns of its batch.
#[derive(Debug)]
pub(crate) struct SampleSlot<'a> {
    job: &'a Job,
    storage: &'a [Storage],
    offset: usize,
    /// The column that counts as 0.
    first: usize,
}

impl SampleSlot<'_> {
    /// The columns from `first` on: those of one of the sources of a sample.
    pub(crate) fn of_leaf(&mut self, first: usize) -> SampleSlot<'_> {
        SampleSlot { first: self.first + first, ..*self }
    }

    /// Bytes of an array column.
    ///
    /// # Panics
    /// If the column is a list: the executor follows the same column specifications.
    pub(crate) fn array(&mut self, column: usize) -> &mut [u8] {
        let column = self.first + column;
        match &self.storage[column] {
            Storage::Array(buffer) => {
                // SAFETY: the schedule hands out each sample once, a claim gives one slot at a time (`&mut`), and
                // a slot one column at a time (`&mut`); the job becomes a batch after all claims are back.
                // Splitting into `&mut [u8]` per sample up front would need a self-referential job.
                unsafe { buffer.part(self.offset, self.job.columns[column].sample_bytes()) }
            }
            Storage::Pieces(_) => unreachable!("column {column} has no fixed size"),
        }
    }

    /// Sets the value of a column without a fixed size.
    ///
    /// # Panics
    /// If the column is an array: the executor follows the same column specifications.
    pub(crate) fn pieces(&mut self, column: usize) -> Place<'_> {
        let column = self.first + column;
        match &self.storage[column] {
            Storage::Pieces(pieces) => Place { pieces, offset: self.offset },
            Storage::Array(_) => unreachable!("column {column} is an array"),
        }
    }
}

/// The place of one sample in a column without a fixed size.
pub(crate) struct Place<'a> {
    pieces: &'a Pieces,
    offset: usize,
}

impl Place<'_> {
    /// A copy of the value.
    ///
    /// # Errors
    /// [`ErrorKind::Limit`] if there is no room for it.
    pub(crate) fn copy(&self, shape: &[usize], bytes: &[u8]) -> Result<()> {
        self.pieces.copy(self.offset, shape, bytes)
    }

    /// The value itself, in exchange for memory that was used before.
    ///
    /// # Errors
    /// [`ErrorKind::Limit`] if there is no room for it; then `bytes` are as they were.
    pub(crate) fn swap(&self, shape: &[usize], bytes: &mut Vec<u8>) -> Result<()> {
        self.pieces.swap(self.offset, shape, bytes)
    }

    /// A value that stays in the memory of its source.
    pub(crate) fn refer(&self, shape: &[usize], leaf: usize, index: u64) {
        self.pieces.refer(self.offset, shape, leaf, index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        budget::Holder,
        column::{Padding, Stacking},
        order::Order,
        plan::Node,
        sample::DType,
        source::SourceSpec,
    };

    fn job(n: u64) -> Arc<Job> {
        let ragged =
            ColumnKind::Varying { dtype: DType::UInt8, shape: vec![None], stacking: Stacking::Ragged };
        let padding =
            Padding { shape: vec![None], value: vec![7], multiple_of: 2, lengths: Some(0), mask: Some(0) };
        let padded = Stacking::Padded(padding);
        let padded = ColumnKind::Varying { dtype: DType::UInt8, shape: vec![None], stacking: padded };
        let specs = [
            ColumnSpec { name: "x".into(), kind: ColumnKind::Array { dtype: DType::UInt8, shape: vec![2] } },
            ColumnSpec { name: "t".into(), kind: ColumnKind::Text },
            ColumnSpec { name: "r".into(), kind: ragged },
            ColumnSpec { name: "p".into(), kind: padded },
        ];
        let pool = Pool::new(4);
        let columns = Columns::new(&specs, pool.budget());
        let leaf = Node::source(SourceSpec::Custom { name: String::new() });
        let order = Order::new(&leaf.batch(4, false), &[n]).unwrap();
        Arc::new(Job::new(0, 0, order.batch(0, 0, 0), 4, &columns, &pool))
    }

    fn fill(job: &Arc<Job>) {
        let mut claim = Claim { job: job.clone(), samples: 0..job.span.len };
        for i in 0..job.span.len {
            let mut slot = claim.slot(i).unwrap();
            slot.array(0).fill(i as u8);
            slot.pieces(1).copy(&[], format!("s{i}").as_bytes()).unwrap();
            slot.pieces(2).copy(&[i], &vec![i as u8; i]).unwrap();
            slot.pieces(3).swap(&[i], &mut vec![i as u8; i]).unwrap();
        }
    }

    fn finish(job: &Job, on_error: OnError) {
        job.finish(job.span.len, on_error, &|_, _, _| None, &|len| job.pool.take(len), &|| Key {
            seed: 0,
            epoch: 0,
            index: 0,
        });
    }

    #[test]
    fn skipped_samples_leave_no_hole() {
        let job = job(4);
        fill(&job);
        job.fail(2, Error::corrupt("late"), false);
        job.fail(0, Error::corrupt("early"), false);
        finish(&job, OnError::Skip);
        let batch = Arc::into_inner(job).unwrap().into_batch(OnError::Skip, true).unwrap();
        assert_eq!(batch.len, 2);
        assert_eq!(batch.columns[0].data.as_bytes().unwrap(), [1, 1, 3, 3]);
        let ColumnData::Text(text) = &batch.columns[1].data else { panic!("text") };
        assert_eq!(text, &["s1", "s3"]);
        let ColumnData::Ragged { shape, offsets, .. } = &batch.columns[2].data else { panic!("ragged") };
        assert_eq!(
            (shape.as_slice(), batch.columns[2].data.as_bytes().unwrap()),
            (&[4][..], &[1, 3, 3, 3][..])
        );
        let ends: Vec<i64> =
            offsets.chunks_exact(8).map(|b| i64::from_ne_bytes(b.try_into().unwrap())).collect();
        assert_eq!(ends, [0, 1, 4]);
        assert_eq!(batch.columns[3].data.as_bytes().unwrap(), [1, 7, 7, 7, 3, 3, 3, 7]);
        let lengths = batch.columns[3].lengths.as_ref().unwrap();
        assert_eq!(lengths[..], [1_i64, 3].map(i64::to_ne_bytes).concat());
        assert_eq!(batch.columns[3].mask.as_ref().unwrap()[..], [1, 0, 0, 0, 1, 1, 1, 0]);
    }

    #[test]
    fn what_is_under_way_is_counted_until_it_is_delivered() {
        let job = job(4);
        let budget = job.pool.budget().clone();
        fill(&job);
        assert!(budget.used(Holder::Lists) >= 8 + 6 + 6);
        assert!(job.varying().lists >= 8 + 6 + 6 && job.varying().columns == 0);
        let batches = budget.used(Holder::Batches);
        finish(&job, OnError::Raise);
        assert!(budget.used(Holder::Lists) >= 8, "the texts are still there");
        assert!((8..20).contains(&job.varying().lists), "the arrays were put together, and freed");
        assert_eq!(job.varying().columns, budget.used(Holder::Batches) - batches);
        assert!(job.is_finished() && job.most_varying().lists >= 8 + 6 + 6);
        let batch = Arc::into_inner(job).unwrap().into_batch(OnError::Raise, true).unwrap();
        let kept = budget.used(Holder::Lists);
        drop(batch);
        assert_eq!(budget.used(Holder::Lists), kept, "the consumer's bytes are its own");
    }

    #[test]
    fn values_without_room_say_how_much_they_want_and_kept_memory_makes_room() {
        let first = job(4);
        let budget = first.pool.budget().clone();
        fill(&first);
        finish(&first, OnError::Raise);
        let shelf = first.columns.shelf.clone();
        drop(Arc::into_inner(first).unwrap().into_batch(OnError::Raise, true).unwrap());
        assert!(budget.used(Holder::Lists) > 0, "memory is kept for the next batch");
        shelf.clear();
        assert_eq!(budget.used(Holder::Lists), 0);

        let second = job(4);
        second.pool.budget().set_cap(Holder::Lists, 10);
        let mut claim = Claim { job: second.clone(), samples: 0..4 };
        let error = claim.slot(0).unwrap().pieces(1).copy(&[], &[b'x'; 11]).unwrap_err();
        assert_eq!((error.kind(), second.take_wanted()), (ErrorKind::Limit, Some(11)));
        assert_eq!(second.take_wanted(), None, "asked once");
        let mut bytes = vec![1; 16];
        assert!(claim.slot(0).unwrap().pieces(2).swap(&[16], &mut bytes).is_err());
        assert_eq!(bytes, [1; 16], "what found no room stays where it was");
        claim.slot(0).unwrap().pieces(1).copy(&[], &[b'x'; 10]).unwrap();
        assert_eq!(second.pool.budget().used(Holder::Lists), 10);
    }

    #[test]
    fn the_first_bad_sample_is_raised_and_an_empty_batch_is_an_error() {
        let raise = job(4);
        fill(&raise);
        raise.fail(2, Error::corrupt("late"), false);
        raise.fail(1, Error::corrupt("early"), false);
        finish(&raise, OnError::Raise);
        let error = Arc::into_inner(raise).unwrap().into_batch(OnError::Raise, true).unwrap_err();
        assert_eq!(error.message(), "early");
        for on_error in [OnError::Skip, OnError::Replace] {
            let outage = job(4);
            fill(&outage);
            outage.fail(1, Error::corrupt("bad"), on_error == OnError::Replace);
            outage.fail(2, Error::transient("no answer"), false);
            let error = Arc::into_inner(outage).unwrap().into_batch(on_error, true).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Transient, "an outage is not a bad sample");
        }
        let empty = job(1);
        empty.fail(0, Error::corrupt("only"), false);
        assert!(Arc::into_inner(empty).unwrap().into_batch(OnError::Skip, true).is_err());
    }
}
