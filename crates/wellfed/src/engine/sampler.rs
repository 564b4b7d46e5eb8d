//! [`Sampler`]: samples made one by one, in the calling thread.
//!
//! Invariant: a sample has the bits that a loader gives it, whatever was made before. Nothing here starts a thread or
//! waits for one, so a sampler works after a fork, whatever the other threads were about.

use std::sync::{Arc, Mutex, TryLockError};

use super::{
    batch::{Batch, ColumnSpec},
    exec::{Executor, Scratch},
    image::Maker,
    job::{Claim, Job},
    ring::Pool,
};
use crate::{
    Dataset, Error, Result,
    meter::{Lane, Meter, Probe},
    order::{Order, Pick},
    plan::{OnError, Program, program::ImageProgram},
    sample::{Record, Value},
    transform::Size,
};

/// Finished samples that come back are kept for the next ones, up to so many bytes and pieces: a batch of them, which
/// a collate function holds at once.
const KEPT_BYTES: u64 = 32 << 20;
const KEPT: usize = 256;

/// Scratch memory above this is given back after the sample.
const SCRATCH: usize = 64 << 20;

/// Makes samples by themselves, without a loader: [`Dataset::sample`], with everything kept that the next one needs.
///
/// Callers in several threads do not wait for each other.
#[derive(Debug)]
pub struct Sampler {
    dataset: Dataset,
    desks: Mutex<Desks>,
}

#[derive(Debug, Default)]
struct Desks {
    process: u32,
    idle: Vec<Desk>,
}

/// What one caller works with.
#[derive(Debug)]
struct Desk {
    /// Made with the first sample, whose size it may need.
    ready: Option<Ready>,
    record: Record,
    scratch: Scratch,
}

#[derive(Debug)]
struct Ready {
    executor: Executor,
    columns: Arc<[ColumnSpec]>,
    order: Order,
    pool: Arc<Pool>,
    /// Counters that nobody looks at.
    lane: Arc<Lane>,
}

impl Sampler {
    pub(crate) fn new(dataset: Dataset) -> Self {
        Self { dataset, desks: Mutex::default() }
    }

    /// Makes one sample by itself, as it comes in `epoch`.
    ///
    /// # Errors
    /// Those of [`Dataset::sample`].
    pub fn sample(&self, index: u64, epoch: u64) -> Result<Batch> {
        let mut desk = self.take();
        let batch = self.make(&mut desk, Pick { index, epoch });
        if desk.scratch.capacity() > SCRATCH {
            desk.scratch = Scratch::default();
        }
        self.put(desk);
        batch
    }

    /// A desk that nobody uses. Never waits: a lock that was held when this process was forked stays locked for ever.
    fn take(&self) -> Desk {
        let idle = self.idle(|idle| idle.pop()).flatten();
        idle.unwrap_or_else(|| Desk { ready: None, record: Record::default(), scratch: Scratch::default() })
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

    fn make(&self, desk: &mut Desk, pick: Pick) -> Result<Batch> {
        let source = &**self.dataset.source();
        desk.record.limits = self.dataset.options().limits;
        source.fetch(pick.index, &mut desk.record).map_err(|e| self.located(e, pick).with_stage("read"))?;
        let Desk { ready, record, scratch } = desk;
        let fits = match ready {
            Some(ready) => self.settle(ready, pick, record, scratch)?,
            None => false,
        };
        let ready = match ready {
            Some(ready) if fits => ready,
            stale => stale.insert(self.prepare(pick, record, scratch)?),
        };
        let Ready { executor, columns, order, pool, lane } = ready;
        let span = order.batch(pick.epoch, 0, pick.index);
        let job = Arc::new(Job::new(pick.epoch, pick.index, span, 1, columns, pool)?);
        let mut claim = Claim { job, samples: 0..1 };
        let made = executor.make(pick, record, scratch, &mut claim.slot(0), &mut Probe::off(lane));
        let job = Arc::into_inner(claim.job).expect("the claim was the only other owner");
        made?;
        job.into_batch(OnError::Raise, false)
    }

    fn prepare(&self, pick: Pick, record: &Record, scratch: &mut Scratch) -> Result<Ready> {
        let (dataset, source) = (&self.dataset, self.dataset.source());
        let program = Program::new(dataset.plan(), source.schema(), &mut |field, image| {
            self.final_size(image, field, pick, record, scratch)
        })?;
        // Samples of different sizes would fill a pool with memory that fits none of the others.
        let pool = Pool::new(if program.is_settled() { KEPT } else { 0 });
        pool.set_limit(KEPT_BYTES);
        let columns = program.columns.as_slice().into();
        let seed = dataset.plan().seed();
        let executor = Executor::new(source.clone(), program, seed, dataset.options().limits);
        Ok(Ready {
            columns,
            order: Order::new(source.len(), &[])?,
            pool,
            executor,
            lane: Meter::new(false).lane("sample"),
        })
    }

    /// Adapts the program to the size of this sample, where transforms do not fix it. False if that takes a new one.
    fn settle(&self, ready: &mut Ready, pick: Pick, record: &Record, scratch: &mut Scratch) -> Result<bool> {
        let program = ready.executor.program_mut();
        if program.is_settled() {
            return Ok(true);
        }
        for field in 0..program.fields.len() {
            let Some(image) = program.unsettled(field) else { continue };
            let size = self.final_size(image, field, pick, record, scratch)?;
            if !program.settle(field, size)? {
                return Ok(false);
            }
        }
        ready.columns = program.columns.as_slice().into();
        Ok(true)
    }

    fn final_size(
        &self,
        program: &ImageProgram,
        field: usize,
        pick: Pick,
        record: &Record,
        scratch: &mut Scratch,
    ) -> Result<Size> {
        let bytes = match record.values.get(field) {
            Some(Value::Bytes(bytes)) => bytes.as_slice(),
            _ => self.dataset.source().resident(pick.index, field).unwrap_or_default(),
        };
        let (seed, limits) = (self.dataset.plan().seed(), &self.dataset.options().limits);
        Maker { program, seed, pick, limits }.final_size(bytes, scratch.image()).map_err(|e| {
            let offset = record.offsets.get(field).copied().unwrap_or(0);
            self.located(e, pick).within(offset)
        })
    }

    fn located(&self, error: Error, pick: Pick) -> Error {
        let source = self.dataset.source();
        error.with_sample(source.key(pick.index), pick.index).with_source(source.name())
    }
}
