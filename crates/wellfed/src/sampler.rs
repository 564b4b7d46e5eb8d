//! [`Sampler`]: samples made one by one, in the calling thread.
//!
//! Invariant: a sample has the bits that a loader gives it, whatever was made before. Nothing here starts a thread or
//! waits for one, so a sampler works after a fork, whatever the other threads were about.

use std::{
    fmt,
    fs::File,
    sync::{Arc, Mutex, OnceLock, TryLockError},
};

use crate::{
    Dataset, Error, ErrorKind, Result,
    budget::Budget,
    column::ColumnKind,
    engine::{
        Batch, RowIndexes,
        cache::Caches,
        exec::{Executor, Fetched, LeafExecutor, Scratch},
        governor,
        image::Maker,
        job::{Claim, Job},
        mix::Key,
        ring::Pool,
        stack::Columns,
    },
    meter::{Lane, Meter, Probe},
    order::{Order, Pick},
    plan::{Assembly, OnError, Program, field::ImageProgram, lower::Lowered, program::Unsettled},
    sample::{DType, Record, Value},
    transform::Size,
};

/// Finished samples that come back are kept for the next ones, up to so many bytes and pieces: a batch of them, which
/// a collate function holds at once.
const KEPT_BYTES: u64 = 32 << 20;
const KEPT: usize = 256;

/// Row indexes take one part in so many of the budget, as those of a loader do.
const ROW_INDEXES: u64 = 8;

/// Scratch memory above this is given back after the sample.
const SCRATCH: usize = 64 << 20;

/// Makes samples by themselves, without a loader: [`Dataset::sample`], with everything kept that the next one needs.
///
/// Callers in several threads do not wait for each other.
#[derive(Debug)]
pub struct Sampler {
    dataset: Dataset,
    rows: Option<Arc<RowIndexes>>,
    plan: OnceLock<Planned>,
    desks: Mutex<Desks>,
}

/// Where a column of a sample is to lie.
#[derive(Debug)]
pub struct Place<'a> {
    /// The number of the column.
    pub column: usize,
    /// What its values are.
    pub dtype: DType,
    /// Shape of one sample.
    pub shape: &'a [usize],
    /// As many bytes as that takes.
    pub memory: &'a mut [u8],
}

#[derive(Debug, Default)]
struct Desks {
    process: u32,
    idle: Vec<Desk>,
}

/// What one caller works with.
#[derive(Debug, Default)]
struct Desk {
    /// Made with the first sample, whose size it may need.
    ready: Option<Ready>,
    fetched: Fetched,
    scratch: Scratch,
}

#[derive(Debug)]
struct Ready {
    executor: Executor,
    /// Of one leaf, or of all.
    columns: Columns,
    whose: Option<usize>,
    pool: Arc<Pool>,
    /// Of buffers that are callers' memory.
    lent: Arc<Pool>,
    /// Counters that nobody looks at.
    lane: Arc<Lane>,
}

impl Dataset {
    /// Makes one sample by itself, as it comes in `epoch`: for a look at it, or to replay a bad one. See
    /// [`Sampler::sample`].
    ///
    /// # Errors
    /// Whatever is wrong with this sample.
    pub fn sample(&self, index: u64, epoch: u64) -> Result<Batch> {
        self.sampler().sample(0, index, epoch)
    }

    /// Makes samples one by one, in the calling thread, and keeps what the next one needs too.
    pub fn sampler(&self) -> Sampler {
        Sampler::new(self.clone())
    }

    /// As [`Dataset::sampler`], with row indexes that are used and recorded on the way.
    pub fn sampler_with(&self, rows: Option<Arc<RowIndexes>>) -> Sampler {
        Sampler { rows, ..self.sampler() }
    }
}

impl Dataset {
    /// Row indexes for so many processes that make samples of this data set, within their part of the memory budget;
    /// `None` where none are wanted or of use.
    ///
    /// # Errors
    /// As of a loader, where row indexes are to be kept in files.
    pub fn row_indexes(&self, processes: u64) -> Result<Option<RowIndexes>> {
        let options = self.options();
        options.row_index.check()?;
        let budget = options.memory_budget.unwrap_or_else(governor::default_budget);
        RowIndexes::new(self.sources(), &options.row_index, budget / ROW_INDEXES, processes)
    }

    /// Those of a process that is not this one's parent, given their file and limit.
    ///
    /// # Errors
    /// Those of the system, and as of [`Dataset::row_indexes`].
    pub fn attach_row_indexes(&self, file: File, limit: u64, processes: u64) -> Result<RowIndexes> {
        RowIndexes::attach(&file, self.sources(), &self.options().row_index, limit, processes)
    }
}

impl Sampler {
    pub(crate) fn new(dataset: Dataset) -> Self {
        Self { dataset, rows: None, plan: OnceLock::new(), desks: Mutex::default() }
    }

    /// Makes one sample by itself, as it comes in `epoch`: that of `index` of the plan's `leaf`-th source, depth first. Its
    /// columns are those that the source has.
    ///
    /// # Errors
    /// Whatever is wrong with this sample; [`ErrorKind::Index`] for a source that there is none of.
    pub fn sample(&self, leaf: usize, index: u64, epoch: u64) -> Result<Batch> {
        Ok(self.sample_into(leaf, index, epoch, &mut [])?.0)
    }

    /// As [`Sampler::sample`], with columns of fixed size in memory of the caller's. Those that fit their places exactly
    /// are not among the columns of the batch; their numbers are given beside it.
    ///
    /// # Errors
    /// As of [`Sampler::sample`]. What lies in the places is then unspecified.
    pub fn sample_into(
        &self,
        leaf: usize,
        index: u64,
        epoch: u64,
        places: &mut [Place<'_>],
    ) -> Result<(Batch, Vec<usize>)> {
        let planned = self.planned()?;
        // Sources that count for `enumerate` are leaves, too, but none that the caller knows of.
        let known = planned.known.get(leaf).copied().ok_or_else(|| {
            let count = planned.known.len();
            Error::new(ErrorKind::Index, format!("there is no source {leaf}: the plan has {count}"))
        })?;
        self.make(planned, Some(known), &[Pick { leaf: known, index, epoch }], places)
    }

    /// Makes the sample at `position` of `epoch`, in the order of the plan: with all of its columns.
    ///
    /// # Errors
    /// Whatever is wrong with this sample; [`ErrorKind::Index`] beyond the end.
    pub fn element(&self, position: u64, epoch: u64) -> Result<Batch> {
        let planned = self.planned()?;
        let mut picks = Vec::new();
        planned.order.sample_at(position, epoch, &mut picks)?;
        Ok(self.make(planned, None, &picks, &mut [])?.0)
    }

    /// The order and what happens to samples, found out with the first one.
    fn planned(&self) -> Result<&Planned> {
        if let Some(planned) = self.plan.get() {
            return Ok(planned);
        }
        let lowered = self.dataset.identified()?;
        let order = self.dataset.order(&lowered)?;
        let sources = self.dataset.sources();
        let known = (0..lowered.sources.len())
            .filter(|leaf| sources.iter().any(|source| Arc::ptr_eq(source, &lowered.sources[*leaf])))
            .collect();
        Ok(self.plan.get_or_init(|| Planned { lowered, order, known }))
    }

    /// A desk that nobody uses. Never waits: a lock that was held when this process was forked stays locked for ever.
    fn take(&self) -> Desk {
        self.idle(Vec::pop).flatten().unwrap_or_default()
    }

    fn put(&self, desk: Desk) {
        // Where the lock is taken the desk is dropped, and the next caller makes another one.
        self.idle(|idle| idle.push(desk));
    }

    fn idle<T>(&self, f: impl FnOnce(&mut Vec<Desk>) -> T) -> Option<T> {
        let mut desks = match self.desks.try_lock() {
            Ok(desks) => desks,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let process = std::process::id();
        if desks.process != process {
            // Pools have locks, too, and those of another process may be held.
            *desks = Desks { process, idle: Vec::new() };
        }
        Some(f(&mut desks.idle))
    }

    /// Makes the sample of `picks`, with the columns of leaf `whose` or of all.
    fn make(
        &self,
        planned: &Planned,
        whose: Option<usize>,
        picks: &[Pick],
        places: &mut [Place<'_>],
    ) -> Result<(Batch, Vec<usize>)> {
        let mut desk = self.take();
        let batch = self.make_at(&mut desk, planned, whose, picks, places);
        if desk.scratch.capacity() > SCRATCH {
            desk.scratch = Scratch::default();
        }
        self.put(desk);
        batch
    }

    fn make_at(
        &self,
        desk: &mut Desk,
        planned: &Planned,
        whose: Option<usize>,
        picks: &[Pick],
        places: &mut [Place<'_>],
    ) -> Result<(Batch, Vec<usize>)> {
        let Desk { ready, fetched, scratch } = desk;
        let limits = self.dataset.options().limits;
        for (number, pick) in picks.iter().enumerate() {
            let source = &planned.lowered.sources[pick.leaf];
            let record = fetched.record(number, limits);
            source.fetch(pick.index, record).map_err(|e| planned.located(e, *pick).with_stage("read"))?;
        }
        let fits = match ready {
            Some(ready) if ready.whose == whose => self.settle(ready, planned, picks, fetched, scratch)?,
            _ => false,
        };
        let ready = match ready {
            Some(ready) if fits => ready,
            stale => stale.insert(self.prepare(planned, whose, picks, fetched, scratch)?),
        };
        let Ready { executor, columns, pool, lent, lane, .. } = ready;
        let epoch = picks.first().map_or(0, |pick| pick.epoch);
        let mut buffers = Vec::new();
        for Place { column, dtype, shape, memory } in places {
            let fits = columns.get(*column).is_some_and(|spec| match &spec.kind {
                ColumnKind::Array { dtype: found, shape: sides } => (found, &**sides) == (&*dtype, *shape),
                _ => false,
            });
            if fits && columns[*column].sample_bytes() == memory.len() {
                // SAFETY: the memory is borrowed exclusively until this method returns, and all of its buffers are gone
                // before: with the job, or with the batch's columns below.
                buffers.push((*column, unsafe { lent.lent(memory) }));
            }
        }
        let placed: Vec<usize> = buffers.iter().map(|(column, _)| *column).collect();
        let job = Job::new(epoch, 0, planned.order.single(), 1, columns, pool).in_places(buffers);
        let job = Arc::new(job);
        let mut claim = Claim { job, samples: 0..1 };
        let probe = &mut Probe::off(lane);
        let mut slot = claim.slot(0)?;
        match whose {
            Some(_) => executor.make_alone(picks, fetched, scratch, &mut slot, probe),
            None => executor.make(picks, fetched, scratch, &mut slot, probe),
        }?;
        // The columns of one leaf begin where it does.
        let first = whose.and_then(|leaf| executor.leaves().get(leaf)).map_or(0, LeafExecutor::first_column);
        let resident = |column, leaf, index| executor.resident(first + column, leaf, index);
        claim.job.finish(1, OnError::Raise, &resident, &|len| pool.take(len), &|| {
            // One sample by itself is in no batch, and is not mixed.
            Key { seed: 0, epoch, index: 0 }
        });
        let job = Arc::into_inner(claim.job).expect("the claim was the only other owner");
        let mut batch = job.into_batch(OnError::Raise, false)?;
        let mut number = 0..;
        batch.columns.retain(|_| number.next().is_some_and(|number| !placed.contains(&number)));
        Ok((batch, placed))
    }

    /// Programs for the sizes of these samples. Leaves that have no part in it have none.
    fn prepare(
        &self,
        planned: &Planned,
        whose: Option<usize>,
        picks: &[Pick],
        fetched: &Fetched,
        scratch: &mut Scratch,
    ) -> Result<Ready> {
        let mut leaves = Vec::new();
        let options = self.dataset.options();
        let mut settled = true;
        for (leaf, plan) in planned.lowered.leaves.iter().enumerate() {
            let source = &planned.lowered.sources[leaf];
            let seed = self.dataset.leaf_seed(&planned.lowered, leaf);
            let part = picks.iter().position(|pick| pick.leaf == leaf);
            let program = match part {
                Some(number) => Program::new(
                    &plan.maps,
                    options,
                    source.schema(),
                    (Assembly::Alone, plan.first_column),
                    &mut |field, unsettled| {
                        let Unsettled::Image(image) = unsettled else {
                            // A sound by itself has the channels it has.
                            return Err(Error::new(
                                ErrorKind::Internal,
                                "a sound by itself was to be settled",
                            ));
                        };
                        self.final_size(planned, image, field, picks[number], fetched.get(number), scratch)
                    },
                )?,
                None => Program::empty(),
            };
            settled &= program.is_settled() && !program.varies();
            let mut made =
                LeafExecutor::new(source.clone(), program, seed, options.limits, plan.first_column);
            let known = planned.known.iter().position(|known| *known == leaf);
            let row_indexes = known.and_then(|known| self.rows.as_ref()?.of(known).cloned());
            made.set_caches(Caches { row_indexes, ..Caches::default() });
            leaves.push(made);
        }
        // Samples of different sizes would fill a pool with memory that fits none of the others.
        let pool = Pool::new(if settled { KEPT } else { 0 });
        pool.set_limit(KEPT_BYTES);
        let executor = Executor::new(leaves, &planned.lowered.output.names)?;
        let columns = columns(&executor, whose);
        let lent = Pool::new(0);
        Ok(Ready { columns, whose, pool, lent, executor, lane: Meter::new(false).lane("sample") })
    }

    /// Adapts programs to the sizes of these samples, where transforms do not fix them. False if that takes new ones.
    fn settle(
        &self,
        ready: &mut Ready,
        planned: &Planned,
        picks: &[Pick],
        fetched: &Fetched,
        scratch: &mut Scratch,
    ) -> Result<bool> {
        let mut changed = false;
        for (number, pick) in picks.iter().enumerate() {
            let program = ready.executor.leaves_mut()[pick.leaf].program_mut();
            if program.fields.is_empty() {
                // Of several sources, one of each of which a sample is: this one comes for the first time.
                return Ok(false);
            }
            if program.is_settled() {
                continue;
            }
            for field in 0..program.fields.len() {
                let Some(image) = program.unsettled(field) else { continue };
                let size = self.final_size(planned, image, field, *pick, fetched.get(number), scratch)?;
                if !program.settle(field, size)? {
                    return Ok(false);
                }
                changed = true;
            }
        }
        if changed {
            ready.executor.renew_columns(picks);
            ready.columns = columns(&ready.executor, ready.whose);
        }
        Ok(true)
    }

    fn final_size(
        &self,
        planned: &Planned,
        program: &ImageProgram,
        field: usize,
        pick: Pick,
        record: &Record,
        scratch: &mut Scratch,
    ) -> Result<Size> {
        let bytes = match record.values.get(field) {
            Some(Value::Bytes(bytes)) => bytes.as_slice(),
            _ => planned.lowered.sources[pick.leaf].resident(pick.index, field).unwrap_or_default(),
        };
        let seed = self.dataset.leaf_seed(&planned.lowered, pick.leaf);
        let limits = &self.dataset.options().limits;
        Maker { program, seed, pick, limits, beside: None }.final_size(bytes, scratch.image()).map_err(|e| {
            let offset = record.offsets.get(field).copied().unwrap_or(0);
            planned.located(e, pick).within(offset)
        })
    }
}

/// The columns of one leaf, or of all.
fn columns(executor: &Executor, whose: Option<usize>) -> Columns {
    let specs = match whose {
        Some(leaf) => executor.leaves()[leaf].columns(),
        None => executor.columns(),
    };
    Columns::new(specs, &Budget::new())
}

/// What does not change from sample to sample.
struct Planned {
    lowered: Lowered,
    order: Order,
    /// Leaves that are sources of the plan.
    known: Vec<usize>,
}

impl fmt::Debug for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Planned").field("known", &self.known).finish_non_exhaustive()
    }
}

impl Planned {
    fn located(&self, error: Error, pick: Pick) -> Error {
        let source = &self.lowered.sources[pick.leaf];
        error.with_sample(source.key(pick.index), pick.index).with_source(source.name())
    }
}
