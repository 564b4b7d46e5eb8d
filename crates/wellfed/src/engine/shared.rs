//! What all threads of one loader share, and the loops that workers and readers run.
//!
//! Threads without work are parked on a condition variable: nothing spins.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use super::{
    batch::Columns,
    cache::Caches,
    exec::{Executor, Fetched, Scratch},
    job::{Claim, Job},
    remote::AHEAD,
    ring::Pool,
    schedule::{Schedule, Work},
    threads::in_storage,
};
use crate::{
    Error, ErrorKind, Result,
    io::layer::Mailbox,
    lock,
    meter::{
        CacheStats, Lane, Meter, Probe, RowIndexStats, Stage, Stats,
        publish::{Publisher, Snapshot},
    },
    order::{Order, Pick},
    plan::OnError,
    rng::Rng,
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
    /// Threads above the present settings wait here, so that a wake-up for one sample never ends with one of them.
    parked: Condvar,
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
    /// Buffers of batches.
    pub(crate) pool: Arc<Pool>,
    /// Bytes that the loader may hold.
    pub(crate) budget: u64,
    /// What batches are made of, and the bytes of values that are not in buffers.
    columns: Columns,
    /// Of the thread that drives the I/O layer, where that reads.
    pub(crate) mailbox: Option<Arc<Mailbox>>,
    /// Bytes that the I/O layer has under way or keeps.
    pub(crate) io_bytes: AtomicU64,
    /// Shows the counters to other processes, from the first epoch on. A loader that cannot is none the worse for it.
    publisher: OnceLock<Publisher>,
}

impl Shared {
    pub(crate) fn new(
        schedule: Schedule,
        executor: Executor,
        order: Arc<Order>,
        meter: Meter,
        on_error: OnError,
        scratch_budget: usize,
        (pool, columns, budget): (Arc<Pool>, Columns, u64),
    ) -> Self {
        let mailbox = executor.is_remote().then(Arc::default);
        let mut schedule = schedule;
        if mailbox.is_some() {
            schedule.read_by_layer(AHEAD);
        }
        Self {
            schedule: Mutex::new(schedule),
            work: Condvar::new(),
            read: Condvar::new(),
            parked: Condvar::new(),
            ready: Condvar::new(),
            executor,
            order,
            meter,
            on_error,
            scratch_bytes: AtomicU64::new(0),
            scratch_budget,
            pool,
            budget,
            columns,
            mailbox,
            io_bytes: AtomicU64::new(0),
            publisher: OnceLock::new(),
        }
    }

    /// A snapshot of all counters.
    pub(crate) fn stats(&self) -> Stats {
        let meter = &self.meter;
        let (settings, read_bytes) = {
            let schedule = self.lock();
            (schedule.settings, schedule.read_bytes)
        };
        let batches = meter.batches.load(Relaxed);
        let caches = || self.executor.leaves().iter().map(|leaf| leaf.caches());
        Stats {
            elapsed: meter.elapsed_nanos() as f64 * 1e-9,
            batches,
            samples: meter.samples.load(Relaxed),
            bytes: meter.bytes_out.load(Relaxed),
            consumer_wait: meter.wait_nanos.load(Relaxed) as f64 * 1e-9,
            mean_ready: meter.ready_sum.load(Relaxed) as f64 / batches.max(1) as f64,
            num_workers: settings.workers,
            prefetch: settings.prefetch,
            read_ahead: settings.readers,
            memory: self.pool.held()
                + self.columns.bytes()
                + read_bytes
                + self.io_bytes.load(Relaxed)
                + self.scratch_bytes.load(Relaxed)
                + caches().map(Caches::memory).sum::<u64>(),
            memory_budget: self.budget,
            errors: meter.errors.load(Relaxed),
            row_index: caches().filter_map(Caches::row_stats).reduce(RowIndexStats::and),
            cache: caches().filter_map(Caches::sample_stats).reduce(CacheStats::and),
            stages: meter.stages(),
        }
    }

    /// Begins to show the counters to other processes.
    pub(crate) fn begin_publishing(&self) {
        if self.publisher.get().is_none()
            && let Ok(publisher) = Publisher::new()
        {
            // Another thread that was first is as good.
            drop(self.publisher.set(publisher));
        }
    }

    /// Shows the counters, and that so many batches are `ready`, if it was last done before `gap`. Only the consumer does, who
    /// looks at the clock for its own sake: what workers do takes microseconds where samples lie in memory.
    pub(crate) fn publish(&self, ready: usize, gap: Duration) {
        let Some(publisher) = self.publisher.get() else { return };
        if publisher.due(self.meter.elapsed_nanos(), gap) {
            let snapshot = Snapshot::now(self.executor.name(), ready, self.stats());
            // It is a view of the loader; if it cannot be written, whoever looks sees that it stands still.
            drop(publisher.write(&snapshot));
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Schedule> {
        lock(&self.schedule)
    }

    /// Wakes everyone who may have something to do after the schedule was changed.
    pub(crate) fn wake(&self) {
        self.work.notify_all();
        self.read.notify_all();
        self.ring();
    }

    /// Tells the I/O layer that there may be room, or something to read.
    fn ring(&self) {
        if let Some(mailbox) = &self.mailbox {
            mailbox.ring();
        }
    }

    /// Wakes a worker for a sample that was read.
    pub(crate) fn wake_worker(&self) {
        self.work.notify_one();
    }

    /// Wakes everyone after the settings were changed.
    pub(crate) fn wake_parked(&self) {
        self.wake();
        self.parked.notify_all();
    }

    /// Waits for a complete batch, at most `timeout`.
    pub(crate) fn wait_ready<'a>(
        &self,
        schedule: MutexGuard<'a, Schedule>,
        timeout: Duration,
    ) -> MutexGuard<'a, Schedule> {
        self.ready.wait_timeout(schedule, timeout).unwrap_or_else(|poisoned| poisoned.into_inner()).0
    }

    /// Lets all threads end, and gives back what is under way.
    pub(crate) fn shut_down(&self) {
        let abandoned = {
            let mut schedule = self.lock();
            schedule.shutdown = true;
            schedule.abandon()
        };
        drop(abandoned);
        self.wake_parked();
        self.ready.notify_all();
    }

    /// The loop of worker `id`, until shutdown.
    pub(crate) fn run_worker(&self, id: usize) {
        let lane = self.meter.lane(&format!("worker {id}"));
        let mut scratch = self.executor.scratch();
        let mut fetched = Fetched::default();
        let mut picks = Vec::new();
        let mut scratch_bytes = 0;
        // Memory that nobody needs any more. It is freed when the schedule is not locked.
        let mut surplus = None;
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
                let place = if active { &self.work } else { &self.parked };
                schedule = place.wait(schedule).unwrap_or_else(|poisoned| poisoned.into_inner());
            };
            drop(schedule);
            drop(surplus.take());
            if let Some(mut probe) = idle {
                probe.lap(Stage::Idle, 0);
            }
            let used = self.run(&mut work, &lane, &mut scratch, (&mut fetched, &mut picks));
            let done = work.finish();
            if scratch.capacity() > self.scratch_budget {
                scratch = self.executor.scratch();
            }
            let bytes = (scratch.capacity() + fetched.capacity()) as u64;
            if bytes != scratch_bytes {
                self.scratch_bytes.fetch_add(bytes.wrapping_sub(scratch_bytes), Relaxed);
                scratch_bytes = bytes;
            }
            schedule = self.lock();
            if let Some(used) = used {
                surplus = schedule.recycle(used);
                // Readers stop at their budget; taking a record made room.
                self.read.notify_one();
                self.ring();
            }
            if schedule.done(&done) {
                self.ready.notify_one();
            }
        }
    }

    /// Makes all samples of a claim. Gives back memory that came from a reader.
    fn run(
        &self,
        work: &mut Work,
        lane: &Lane,
        scratch: &mut Scratch,
        (own, picks): (&mut Fetched, &mut Vec<Pick>),
    ) -> Option<Fetched> {
        let job = work.claim.job.clone();
        let samples = work.claim.samples.clone();
        let mut read = work.record.take();
        let mut used = None;
        for offset in samples.clone() {
            self.order.pick_in(&job.span, offset, picks);
            let mut probe =
                if offset == samples.start { Probe::start(lane, samples.len()) } else { Probe::off(lane) };
            let refused = job.span.refused().map(|error| self.executor.located(error.clone(), picks[0]));
            let result = match read.take().map(|result| *result) {
                _ if refused.is_some() => refused.map_or(Ok(()), Err),
                Some(Ok(mut fetched)) => {
                    let result = self.complete(picks, &mut fetched, &mut probe).and_then(|()| {
                        self.make(&mut work.claim, offset, picks, &mut fetched, scratch, &mut probe)
                    });
                    used = Some(fetched);
                    result
                }
                Some(Err(error)) => Err(error),
                None => self.read_and_make(&mut work.claim, offset, picks, own, scratch, &mut probe),
            };
            if let Err(mut error) = result {
                let (first, mut attempts, mut replaced) = (picks[0], 0..REPLACEMENTS, false);
                // An outage is no reason to take other samples.
                while self.on_error == OnError::Replace && !replaced && error.kind() != ErrorKind::Transient {
                    let Some(attempt) = attempts.next() else { break };
                    self.replacement(first, &job, attempt, picks);
                    if picks.is_empty() {
                        continue;
                    }
                    match self.read_and_make(&mut work.claim, offset, picks, own, scratch, &mut probe) {
                        Ok(()) => replaced = true,
                        Err(e) if e.kind() == ErrorKind::Transient => error = e,
                        Err(_) => {}
                    }
                }
                job.fail(offset, error, replaced);
            }
        }
        self.finish(&job, samples.len());
        used
    }

    /// Counts finished samples; after the last one of a batch, puts its columns together.
    fn finish(&self, job: &Job, samples: usize) {
        let finished = guard("batch", || {
            job.finish(samples, self.on_error, &|column, leaf, index| {
                self.executor.resident(column, leaf, index)
            });
            Ok(())
        });
        if let Err(error) = finished {
            job.fail(0, error, false);
        }
    }

    /// The sample that is tried in place of one that begins with `first`: a pure function of seed, epoch, sample and
    /// attempt.
    fn replacement(&self, first: Pick, job: &Job, attempt: u64, picks: &mut Vec<Pick>) {
        let leaf = (first.leaf as u64).rotate_right(16);
        let mut rng =
            Rng::for_stage(self.executor.seed() ^ leaf, first.epoch, first.index, REPLACEMENT_STAGE);
        // A number each is drawn, whatever their bounds: so attempts are told apart.
        for _ in 0..2 * attempt {
            rng.next_u64();
        }
        self.order.substitute(&job.span, (job.epoch, first.epoch), |bound| rng.below(bound), picks);
    }

    fn read_and_make(
        &self,
        claim: &mut Claim,
        offset: usize,
        picks: &[Pick],
        fetched: &mut Fetched,
        scratch: &mut Scratch,
        probe: &mut Probe<'_>,
    ) -> Result<()> {
        self.fetch(picks, fetched, probe)?;
        self.make(claim, offset, picks, fetched, scratch, probe)
    }

    /// Reads what a reader left to the worker.
    fn complete(&self, picks: &[Pick], fetched: &mut Fetched, probe: &mut Probe<'_>) -> Result<()> {
        if !fetched.is_partial() {
            return Ok(());
        }
        let result = guard("read", || in_storage(|| self.executor.complete(picks, fetched)));
        probe.lap(Stage::Read, fetched.len());
        result
    }

    fn fetch(&self, picks: &[Pick], fetched: &mut Fetched, probe: &mut Probe<'_>) -> Result<()> {
        let result = guard("read", || in_storage(|| self.executor.fetch(picks, fetched)));
        probe.lap(Stage::Read, fetched.len());
        result
    }

    fn make(
        &self,
        claim: &mut Claim,
        offset: usize,
        picks: &[Pick],
        fetched: &mut Fetched,
        scratch: &mut Scratch,
        probe: &mut Probe<'_>,
    ) -> Result<()> {
        let mut slot = claim.slot(offset);
        let result = guard("worker", || self.executor.make(picks, fetched, scratch, &mut slot, probe));
        if result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Internal) {
            // A panic may have left half-written scratch behind.
            *scratch = self.executor.scratch();
        }
        result
    }

    /// The loop of reader `id`, until shutdown.
    pub(crate) fn run_reader(&self, id: usize) {
        let lane = self.meter.lane(&format!("reader {id}"));
        let mut picks = Vec::new();
        let mut schedule = self.lock();
        loop {
            if schedule.shutdown {
                return;
            }
            let active = id < schedule.settings.readers;
            let Some((ticket, job, mut fetched)) = active.then(|| schedule.read()).flatten() else {
                let place = if active { &self.read } else { &self.parked };
                schedule = place.wait(schedule).unwrap_or_else(|poisoned| poisoned.into_inner());
                continue;
            };
            drop(schedule);
            let mut probe = Probe::start(&lane, 1);
            self.order.pick_in(&job.span, ticket.offset(), &mut picks);
            // The batch becomes the consumer's when nobody else has a part in it.
            drop(job);
            let result = self.fetch(&picks, &mut fetched, &mut probe);
            schedule = self.lock();
            let late = schedule.put_read(ticket, result.map(|()| fetched));
            self.work.notify_one();
            if late.is_some() {
                drop(schedule);
                drop(late);
                schedule = self.lock();
            }
        }
    }
}

/// Runs `f`; a panic in it becomes an error, so that one bad sample cannot take the process down.
pub(super) fn guard<T>(stage: &'static str, f: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(ToString::to_string);
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(Error::new(ErrorKind::Internal, format!("a worker panicked: {text}"))
            .with_stage(stage)
            .with_hint("this is a defect of wellfed; please report it together with the sample"))
    })
}
