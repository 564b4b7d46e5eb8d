//! What all threads of one loader share, and the loops that workers and readers run.
//!
//! Threads without work are parked on a condition variable: nothing spins.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use super::{
    exec::{Executor, Scratch},
    job::Claim,
    schedule::{Schedule, Work},
};
use crate::{
    Error, ErrorKind, Result, lock,
    meter::{Lane, Meter, Probe, Stage},
    order::{Order, Pick, Span},
    plan::OnError,
    rng::Rng,
    sample::Record,
};

/// Other samples tried in place of a bad one before its batch is an error.
const REPLACEMENTS: u64 = 16;

/// Stage number that keys the choice of a replacement; transforms count up from 0.
const REPLACEMENT_STAGE: u32 = 0xFFFF;

#[derive(Debug)]
pub(crate) struct Shared {
    schedule: Mutex<Schedule>,
    /// Workers wait here for samples.
    work: Condvar,
    /// Readers wait here for samples to read.
    read: Condvar,
    /// The consumer waits here for a batch.
    ready: Condvar,
    pub(crate) executor: Executor,
    pub(crate) order: Arc<Order>,
    pub(crate) meter: Meter,
    pub(crate) on_error: OnError,
    /// Bytes of all workers' scratch memory.
    pub(crate) scratch_bytes: AtomicU64,
    /// A worker's scratch memory above this is given back after the sample.
    pub(crate) scratch_budget: usize,
}

impl Shared {
    pub(crate) fn new(
        schedule: Schedule,
        executor: Executor,
        order: Arc<Order>,
        meter: Meter,
        on_error: OnError,
        scratch_budget: usize,
    ) -> Self {
        Self {
            schedule: Mutex::new(schedule),
            work: Condvar::new(),
            read: Condvar::new(),
            ready: Condvar::new(),
            executor,
            order,
            meter,
            on_error,
            scratch_bytes: AtomicU64::new(0),
            scratch_budget,
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Schedule> {
        lock(&self.schedule)
    }

    /// Wakes everyone who may have something to do after the schedule was changed.
    pub(crate) fn wake(&self) {
        self.work.notify_all();
        self.read.notify_all();
    }

    /// Waits for a complete batch, at most `timeout`.
    pub(crate) fn wait_ready<'a>(
        &self,
        schedule: MutexGuard<'a, Schedule>,
        timeout: std::time::Duration,
    ) -> MutexGuard<'a, Schedule> {
        self.ready.wait_timeout(schedule, timeout).unwrap_or_else(|poisoned| poisoned.into_inner()).0
    }

    pub(crate) fn shut_down(&self) {
        self.lock().shutdown = true;
        self.wake();
        self.ready.notify_all();
    }

    /// The loop of worker `id`, until shutdown.
    pub(crate) fn run_worker(&self, id: usize) {
        let lane = self.meter.lane(&format!("worker {id}"));
        let mut scratch = self.executor.scratch();
        let mut record = Record::default();
        let mut scratch_bytes = 0;
        let mut schedule = self.lock();
        loop {
            let mut idle = None;
            let mut work = loop {
                if schedule.shutdown {
                    return;
                }
                let active = id < schedule.settings.workers;
                if let Some(work) = active.then(|| schedule.work()).flatten() {
                    break work;
                }
                idle.get_or_insert_with(|| Probe::start(&lane, 1));
                schedule = self.work.wait(schedule).unwrap_or_else(|poisoned| poisoned.into_inner());
            };
            drop(schedule);
            if let Some(mut probe) = idle {
                probe.lap(Stage::Idle, 0);
            }
            let used = self.run(&mut work, &lane, &mut scratch, &mut record);
            let done = work.finish();
            if scratch.capacity() > self.scratch_budget {
                scratch = self.executor.scratch();
            }
            let bytes = (scratch.capacity() + record.capacity()) as u64;
            if bytes != scratch_bytes {
                self.scratch_bytes.fetch_add(bytes.wrapping_sub(scratch_bytes), Relaxed);
                scratch_bytes = bytes;
            }
            schedule = self.lock();
            if let Some(used) = used {
                schedule.recycle(used);
                // Readers stop at their budget; taking a record made room.
                self.read.notify_one();
            }
            if schedule.done(&done) {
                self.ready.notify_one();
            }
        }
    }

    /// Makes all samples of a claim. Gives back a record that came from a reader.
    fn run(&self, work: &mut Work, lane: &Lane, scratch: &mut Scratch, own: &mut Record) -> Option<Record> {
        let job = work.claim.job.clone();
        let samples = work.claim.samples.clone();
        let mut read = work.record.take();
        let mut used = None;
        for offset in samples.clone() {
            let pick = self.order.pick_in(&job.span, offset);
            let mut probe =
                if offset == samples.start { Probe::start(lane, samples.len()) } else { Probe::off(lane) };
            let result = match read.take().map(|result| *result) {
                Some(Ok(mut record)) => {
                    let result = self.make(&mut work.claim, offset, pick, &mut record, scratch, &mut probe);
                    used = Some(record);
                    result
                }
                Some(Err(error)) => Err(error),
                None => self.read_and_make(&mut work.claim, offset, pick, own, scratch, &mut probe),
            };
            if let Err(error) = result {
                let replaced = self.on_error == OnError::Replace
                    && (0..REPLACEMENTS).any(|attempt| {
                        let pick = self.replacement(pick, &job.span, attempt);
                        self.read_and_make(&mut work.claim, offset, pick, own, scratch, &mut probe).is_ok()
                    });
                job.fail(offset, error, replaced);
            }
        }
        used
    }

    /// The sample that is tried in place of `pick`: a pure function of seed, epoch, sample and attempt. Where the caller
    /// gave the order it is one of the same batch, since nobody else knows which samples may be seen at all.
    fn replacement(&self, pick: Pick, span: &Span, attempt: u64) -> Pick {
        let mut rng = Rng::for_stage(self.executor.seed(), pick.epoch, pick.index, REPLACEMENT_STAGE);
        let len = span.given().map_or(self.executor.len(), |given| given.len() as u64);
        let index = (0..=attempt).map(|_| rng.below(len)).last().unwrap_or(0);
        let index = span.given().map_or(index, |given| given[index as usize]);
        Pick { index, ..pick }
    }

    fn read_and_make(
        &self,
        claim: &mut Claim,
        offset: usize,
        pick: Pick,
        record: &mut Record,
        scratch: &mut Scratch,
        probe: &mut Probe<'_>,
    ) -> Result<()> {
        self.fetch(pick, record, probe)?;
        self.make(claim, offset, pick, record, scratch, probe)
    }

    fn fetch(&self, pick: Pick, record: &mut Record, probe: &mut Probe<'_>) -> Result<()> {
        let result = guard("read", || self.executor.fetch(pick, record));
        probe.lap(Stage::Read, record.len());
        result
    }

    fn make(
        &self,
        claim: &mut Claim,
        offset: usize,
        pick: Pick,
        record: &mut Record,
        scratch: &mut Scratch,
        probe: &mut Probe<'_>,
    ) -> Result<()> {
        let mut slot = claim.slot(offset);
        let result = guard("worker", || self.executor.make(pick, record, scratch, &mut slot, probe));
        if result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Internal) {
            // A panic may have left half-written scratch behind.
            *scratch = self.executor.scratch();
        }
        result
    }

    /// The loop of reader `id`, until shutdown.
    pub(crate) fn run_reader(&self, id: usize) {
        let lane = self.meter.lane(&format!("reader {id}"));
        let mut schedule = self.lock();
        loop {
            if schedule.shutdown {
                return;
            }
            let active = id < schedule.settings.readers;
            let Some((ticket, pick, mut record)) = active.then(|| schedule.read()).flatten() else {
                schedule = self.read.wait(schedule).unwrap_or_else(|poisoned| poisoned.into_inner());
                continue;
            };
            drop(schedule);
            let mut probe = Probe::start(&lane, 1);
            let result = self.fetch(pick, &mut record, &mut probe);
            schedule = self.lock();
            schedule.put_read(ticket, result.map(|()| record));
            self.work.notify_one();
        }
    }
}

/// Runs `f`; a panic in it becomes an error, so that one bad sample cannot take the process down.
fn guard(stage: &'static str, f: impl FnOnce() -> Result<()>) -> Result<()> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(ToString::to_string);
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(Error::new(ErrorKind::Internal, format!("a worker panicked: {text}"))
            .with_stage(stage)
            .with_hint("this is a defect of wellfed; please report it together with the sample"))
    })
}
