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
    ahead::Ahead,
    cache::Caches,
    exec::{Executor, Fetched, Scratch},
    job::{Claim, Job},
    mix::Key,
    ring::{Buffer, Pool},
    schedule::{AHEAD, Evicted, Schedule, Work},
    shares::Shares,
    stack::Columns,
    threads::in_storage,
};
use crate::{
    Error, ErrorKind, Limits, Result,
    budget::{Budget, Holder, Room, too_large},
    column::ColumnSpec,
    io::{cache::Keeper, layer::Mailbox},
    lock,
    meter::{
        CacheStats, Lane, Meter, Phase, Probe, RequestStats, RowIndexStats, Stats,
        publish::{Publisher, Snapshot},
    },
    order::{Order, Pick, Picks},
    plan::OnError,
    source::Wanted,
};

/// Other samples tried in place of a bad one before its batch is an error.
const REPLACEMENTS: u64 = 16;

/// How often threads look whether all memory was given back.
const LOOK: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(crate) struct Shared {
    schedule: Mutex<Schedule>,
    /// Workers wait here for samples.
    work: Condvar,
    /// Readers wait here for samples to read.
    read: Condvar,
    /// Threads that read groups ahead wait here.
    idle_ahead: Condvar,
    /// What they know of the order.
    pub(crate) ahead: Mutex<Ahead>,
    /// Threads above the present settings wait here, so that a wake-up for one sample never ends with one of them.
    parked: Condvar,
    /// The consumer waits here for a batch.
    ready: Condvar,
    pub(crate) executor: Executor,
    pub(crate) order: Arc<Order>,
    pub(crate) meter: Meter,
    pub(crate) on_error: OnError,
    /// Buffers of batches.
    pub(crate) pool: Arc<Pool>,
    /// What the loader holds.
    budget: Arc<Budget>,
    /// Bytes that it may hold.
    most: u64,
    /// Who may hold how much of that.
    shares: Shares,
    /// What batches are made of.
    columns: Columns,
    /// Workers and readers at most.
    threads: (usize, usize),
    /// Held by the one worker that waits for room.
    alone: Mutex<()>,
    /// All samples lie in memory, decoded.
    resident: bool,
    /// Samples of some sources are copied many at a time.
    gathers: bool,
    /// Some columns are put together after the last sample of their batch.
    stacked: bool,
    /// Of the thread that drives the I/O layer, where that reads.
    pub(crate) mailbox: Option<Arc<Mailbox>>,
    /// The cache of remote bytes, where there is one.
    pub(crate) keeper: Option<Arc<Keeper>>,
    /// Bytes that the I/O layer has under way or keeps.
    pub(crate) io_bytes: AtomicU64,
    /// What the I/O layer has asked for, as of its last look.
    pub(crate) requests: Mutex<RequestStats>,
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
        threads: (usize, usize),
        (pool, columns, most, mailbox): (Arc<Pool>, Columns, u64, Arc<Mailbox>),
    ) -> Self {
        let mailbox = (executor.is_remote() || executor.has_far_groups()).then_some(mailbox);
        let mut schedule = schedule;
        let shares = schedule.shares;
        if executor.is_remote() {
            schedule.read_by_layer(AHEAD);
        }
        let resident = executor.in_memory() && !executor.encoded();
        let gathers = executor.gathers_some();
        let ahead = Ahead::new(&executor, pool.budget());
        let stacked = columns.iter().any(ColumnSpec::is_stacked);
        Self {
            schedule: Mutex::new(schedule),
            work: Condvar::new(),
            read: Condvar::new(),
            idle_ahead: Condvar::new(),
            ahead: Mutex::new(ahead),
            parked: Condvar::new(),
            ready: Condvar::new(),
            executor,
            order,
            meter,
            on_error,
            budget: pool.budget().clone(),
            pool,
            most,
            shares,
            columns,
            threads,
            alone: Mutex::default(),
            resident,
            gathers,
            stacked,
            mailbox,
            keeper: None,
            io_bytes: AtomicU64::new(0),
            requests: Mutex::default(),
            publisher: OnceLock::new(),
        }
    }

    /// A snapshot of all counters.
    pub(crate) fn stats(&self) -> Stats {
        let meter = &self.meter;
        let settings = self.lock().settings;
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
            memory: self.budget.total() + self.io_bytes.load(Relaxed),
            memory_budget: self.most,
            errors: meter.errors.load(Relaxed),
            row_index: caches().filter_map(Caches::row_index_stats).reduce(RowIndexStats::and),
            cache: caches().filter_map(Caches::sample_stats).reduce(CacheStats::and),
            page_locked: self.pool.allocator().stats(),
            requests: self.mailbox.as_ref().map(|_| lock(&self.requests).clone()),
            remote_cache: self.keeper.as_ref().map(|keeper| keeper.stats()),
            phases: meter.phases(),
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
        self.idle_ahead.notify_all();
    }

    /// Tells those that decode groups ahead that bytes have come.
    pub(crate) fn wake_ahead(&self) {
        self.idle_ahead.notify_all();
    }

    /// Waits until there may be something to read ahead, at most `timeout`.
    pub(crate) fn wait_ahead<'a>(
        &self,
        schedule: MutexGuard<'a, Schedule>,
        timeout: Duration,
    ) -> MutexGuard<'a, Schedule> {
        self.idle_ahead.wait_timeout(schedule, timeout).unwrap_or_else(|poisoned| poisoned.into_inner()).0
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
        self.budget.close();
        drop(abandoned);
        self.wake_parked();
        self.ready.notify_all();
    }

    /// The loop of worker `id`, until shutdown.
    pub(crate) fn run_worker(&self, id: usize) {
        let lane = self.meter.lane(&format!("worker {id}"));
        let room = Room::new(&self.budget, Holder::Samples, self.threads.0);
        let mut desk = Desk::new(room);
        // Memory that nobody needs any more. It is freed when the schedule is not locked.
        let mut surplus = None;
        let mut schedule = self.lock();
        loop {
            let (mut idle, mut gave_back) = (None, false);
            let mut work = loop {
                if schedule.shutdown {
                    return;
                }
                let active = id < schedule.settings.workers;
                if let Some(work) = active.then(|| schedule.work()).flatten() {
                    break work;
                }
                if schedule.serves(1) {
                    // There is nothing to do that would bring more.
                    self.ready.notify_one();
                }
                idle.get_or_insert_with(|| Probe::start(&lane, 1));
                let gives_back = schedule.is_solo() && !gave_back;
                if gives_back || surplus.is_some() {
                    drop(schedule);
                    surplus = None;
                    if gives_back {
                        gave_back = true;
                        desk.clear();
                        self.clear_kept();
                        self.ring();
                    }
                    schedule = self.lock();
                    continue;
                }
                let place = if active { &self.work } else { &self.parked };
                schedule = if schedule.waits_for_memory() {
                    // Memory is given back by many, who do not all wake those that wait for it.
                    gave_back = false;
                    place.wait_timeout(schedule, LOOK).unwrap_or_else(|poisoned| poisoned.into_inner()).0
                } else {
                    place.wait(schedule).unwrap_or_else(|poisoned| poisoned.into_inner())
                };
            };
            drop(schedule);
            drop(surplus.take());
            if let Some(mut probe) = idle {
                probe.lap(Phase::Idle, 0);
            }
            let used = self.run(&mut work, &lane, &mut desk);
            let done = work.finish();
            desk.tidy();
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
    fn run(&self, work: &mut Work, lane: &Lane, desk: &mut Desk) -> Option<Fetched> {
        let job = work.claim.job.clone();
        let samples = work.claim.samples.clone();
        let mut read = work.record.take();
        let mut used = None;
        let mut claimed = std::mem::take(&mut desk.picks);
        self.order.picks_in(&job.span, samples.clone(), &mut claimed);
        if self.resident && samples.len() > 1 {
            let mut probe = Probe::start(lane, samples.len());
            // What it cannot have, reading the sample will say.
            drop(guard("read", || {
                self.executor.touch(claimed.all());
                Ok(())
            }));
            probe.lap_together(Phase::Read);
        }
        let mut copied = std::mem::take(&mut desk.copied);
        copied.clear();
        copied.resize(samples.len(), false);
        if read.is_none() && !job.solo && job.span.refused().is_none() {
            self.gather(&mut work.claim, claimed.all(), &mut copied, desk, lane);
        }
        for offset in samples.clone() {
            if copied[offset - samples.start] {
                continue;
            }
            if job.solo {
                // What fits does not depend on what earlier samples left.
                desk.clear();
            }
            let picks = claimed.of(offset);
            let mut probe =
                if offset == samples.start { Probe::start(lane, samples.len()) } else { Probe::off(lane) };
            let refused = job.span.refused().map(|error| self.executor.located(error.clone(), picks[0]));
            let result = match read.take().map(|result| *result) {
                _ if refused.is_some() => refused.map_or(Ok(()), Err),
                Some(Ok(mut fetched)) => {
                    desk.room.settle(desk.capacity() + fetched.capacity());
                    let result = self.complete(picks, &mut fetched, &mut probe).and_then(|()| {
                        self.make(&mut work.claim, offset, picks, &mut fetched, &mut desk.scratch, &mut probe)
                    });
                    used = Some(fetched);
                    result
                }
                Some(Err(error)) => Err(error),
                None => self.read_and_make(&mut work.claim, offset, picks, desk, &mut probe),
            };
            let result = result.or_else(|error| {
                // It is read again, or not wanted.
                used = None;
                self.make_with_room(&mut work.claim, offset, picks, desk, &mut probe, error)
            });
            if let Err(mut error) = result {
                if job.is_impossible() {
                    break;
                }
                let (first, mut attempts, mut replaced) = (picks[0], 0..REPLACEMENTS, false);
                let mut picks = Vec::new();
                // An outage is no reason to take other samples.
                while self.on_error == OnError::Replace && !replaced && error.kind() != ErrorKind::Transient {
                    let Some(attempt) = attempts.next() else { break };
                    let seed = self.executor.leaves()[first.leaf].seed();
                    self.order.replacement(&job.span, (job.epoch, seed), first, attempt, &mut picks);
                    if picks.is_empty() {
                        continue;
                    }
                    if job.solo {
                        desk.clear();
                    }
                    let made = self.read_and_make(&mut work.claim, offset, &picks, desk, &mut probe);
                    let made = made.or_else(|error| {
                        self.make_with_room(&mut work.claim, offset, &picks, desk, &mut probe, error)
                    });
                    match made {
                        Ok(()) => replaced = true,
                        Err(e) if e.kind() == ErrorKind::Transient => error = e,
                        Err(_) => {}
                    }
                }
                job.fail(offset, error, replaced);
            }
        }
        desk.picks = claimed;
        desk.copied = copied;
        if self.stacked {
            // Whoever finishes a batch may wait for room, and holds little meanwhile.
            desk.tidy();
            used = used.filter(|record| record.capacity() as u64 <= desk.room.keeps() / 2);
        }
        let mixed = job.is_mixed();
        let mut probe = if self.stacked || mixed { Probe::start(lane, 1) } else { Probe::off(lane) };
        self.finish(&job, samples.len());
        // Most of what is written in such a batch is written here, unless it is mixed.
        probe.lap_together(if mixed { Phase::Transform } else { Phase::Write });
        used
    }

    /// Copies those samples of a claim that their sources have together in memory: no more than copying is to be done to them.
    /// The others are made one by one.
    fn gather(&self, claim: &mut Claim, picks: &[Pick], copied: &mut [bool], desk: &mut Desk, lane: &Lane) {
        if picks.len() != copied.len() || copied.len() < 2 || !self.gathers {
            return;
        }
        let mut probe = Probe::start(lane, copied.len());
        let Desk { own, wanted, .. } = desk;
        let done = guard("read", || {
            let record = own.record(0, Limits::default());
            in_storage(|| self.executor.gather(claim, picks, record, wanted, copied))
        });
        // What was wrong, reading the samples one by one will say. What a panic left is not believed.
        if done.is_err() {
            copied.fill(false);
        }
        probe.lap_together(Phase::Read);
    }

    /// Counts finished samples; after the last one of a batch, puts its columns together.
    fn finish(&self, job: &Arc<Job>, samples: usize) {
        let finished = guard("batch", || {
            let resident = |column, leaf, index| self.executor.resident(column, leaf, index);
            let key = || {
                let mut picks = Vec::new();
                self.order.pick_in(&job.span, 0, &mut picks);
                let Pick { leaf, index, epoch } = picks[0];
                Key { seed: self.executor.leaves()[leaf].seed(), epoch, index }
            };
            job.finish(samples, self.on_error, &resident, &|len| self.take(job, len), &key);
            Ok(())
        });
        if let Err(error) = finished {
            job.fail(0, error, false);
        }
    }

    fn read_and_make(
        &self,
        claim: &mut Claim,
        offset: usize,
        picks: &[Pick],
        desk: &mut Desk,
        probe: &mut Probe<'_>,
    ) -> Result<()> {
        let Desk { scratch, own, room, .. } = desk;
        // Where nothing is read, what is held was settled after the last claim.
        let settle = |own: &Fetched, scratch: &Scratch| {
            if !self.resident {
                room.settle(scratch.capacity() + own.capacity());
            }
        };
        settle(own, scratch);
        self.fetch(picks, own, room, probe)?;
        settle(own, scratch);
        self.make(claim, offset, picks, own, scratch, probe)
    }

    /// Reads what a reader left to the worker.
    fn complete(&self, picks: &[Pick], fetched: &mut Fetched, probe: &mut Probe<'_>) -> Result<()> {
        if !fetched.is_partial() {
            return Ok(());
        }
        let result = guard("read", || in_storage(|| self.executor.complete(picks, fetched)));
        probe.lap(Phase::Read, fetched.len());
        result
    }

    /// Makes a sample again for which there was no room: where lists were in the way, after batches opened later were
    /// taken back; where others' samples were, after them. A sample that does not fit beside other batches is left to be
    /// made with its batch, which is taken back and made solo. An `error` of another kind stays.
    fn make_with_room(
        &self,
        claim: &mut Claim,
        offset: usize,
        picks: &[Pick],
        desk: &mut Desk,
        probe: &mut Probe<'_>,
        mut error: Error,
    ) -> Result<()> {
        let job = claim.job.clone();
        loop {
            let alone = if let Some(bytes) = job.take_wanted() {
                desk.tidy();
                if !self.make_room(&job, bytes, Holder::Lists) {
                    return Err(error.saying(too_large(bytes, self.most(&job, Holder::Lists))));
                }
                None
            } else if let Some(bytes) = desk.room.take_excess() {
                desk.clear();
                let most = self.most(&job, Holder::Samples);
                if bytes > most {
                    return Err(error.saying(too_large(bytes, most)));
                }
                self.make_solo(&job);
                return Err(error);
            } else if desk.room.was_refused() {
                desk.clear();
                Some(lock(&self.alone))
            } else {
                return Err(error);
            };
            desk.room.set_alone(alone.is_some());
            let made = self.read_and_make(claim, offset, picks, desk, probe);
            desk.room.set_alone(false);
            drop(alone);
            match made {
                Ok(()) => return Ok(()),
                Err(_) if job.is_impossible() || self.lock().shutdown => return made,
                Err(again) => error = again,
            }
        }
    }

    /// A buffer for a finished column of `job`, as soon as there is room for it.
    fn take(&self, job: &Arc<Job>, len: usize) -> Result<Buffer> {
        loop {
            if let Some(buffer) = self.pool.take_within(len)? {
                return Ok(buffer);
            }
            if !self.make_room(job, len as u64, Holder::Batches) {
                return Err(self.no_room(job, len as u64, Holder::Batches));
            }
        }
    }

    fn no_room(&self, job: &Job, bytes: u64, who: Holder) -> Error {
        let (needed, most) = (needed_by(job, bytes, who), self.most(job, who));
        let what = if who == Holder::Batches { "columns" } else { "lists" };
        let what = format!(
            "the {what} of one batch take at least {needed} bytes, above the {most} that the memory budget has for them"
        );
        Error::new(ErrorKind::Limit, what)
            .with_hint("use a smaller batch_size, or raise it with with_options(memory_budget=...)")
    }

    /// What `who` may hold for `job`, at most: when it is made solo.
    fn most(&self, job: &Job, who: Holder) -> u64 {
        self.shares.solo(job.array_bytes()).of(who)
    }

    /// Takes `job` back, to be made as the only batch under way.
    fn make_solo(&self, job: &Arc<Job>) {
        let abandoned = self.lock().make_solo(job);
        drop(abandoned);
        self.clear_kept();
        job.give_up(taken_back());
        // Everyone gives back what he keeps.
        self.wake_parked();
    }

    /// Frees what is kept for the next batches.
    fn clear_kept(&self) {
        self.pool.clear();
        self.columns.shelf.clear();
    }

    /// Waits until `job` can have `bytes` more, or it is worth another try; false if it never will, or was taken back to
    /// be made solo.
    fn make_room(&self, job: &Arc<Job>, bytes: u64, who: Holder) -> bool {
        let most = self.budget.cap(who);
        if bytes > most {
            // Buffers are no larger than they must be only where a batch is made solo.
            if !job.solo && (who == Holder::Batches || bytes <= self.most(job, who)) {
                self.make_solo(job);
            }
            return false;
        }
        loop {
            if job.is_impossible() {
                return false;
            }
            if self.budget.used(who).saturating_add(bytes) <= most {
                return true;
            }
            // What is only kept for the next batches goes first.
            if who == Holder::Lists && self.columns.shelf.clear() > 0 {
                continue;
            }
            let mut schedule = self.lock();
            if schedule.shutdown {
                return false;
            }
            let evicted = schedule.make_room(job);
            drop(schedule);
            match evicted {
                Evicted::Another(abandoned) => drop(abandoned),
                Evicted::Itself(abandoned) => {
                    drop(abandoned);
                    job.give_up(taken_back());
                    return false;
                }
                Evicted::None if needed_by(job, bytes, who) > most && !job.solo => {
                    self.make_solo(job);
                    return false;
                }
                Evicted::None if needed_by(job, bytes, who) > most => {
                    job.give_up(self.no_room(job, bytes, who));
                    return false;
                }
                // What was taken back is freed when whoever works on it notices.
                Evicted::None => self.budget.wait(),
            }
            if who == Holder::Batches {
                // The consumer may have given a buffer back meanwhile, which is kept, and so counts: the pool uses it.
                return true;
            }
        }
    }

    fn fetch(&self, picks: &[Pick], fetched: &mut Fetched, room: &Room, probe: &mut Probe<'_>) -> Result<()> {
        let result = guard("read", || {
            if self.resident {
                return self.executor.fetch(picks, fetched, room);
            }
            in_storage(|| self.executor.fetch(picks, fetched, room))
        });
        if probe.is_on() {
            probe.lap(Phase::Read, fetched.len());
        }
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
        let mut slot = claim.slot(offset)?;
        let result = guard("worker", || self.executor.make(picks, fetched, scratch, &mut slot, probe));
        if result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Internal) {
            // A panic may have left half-written scratch behind.
            scratch.clear();
        }
        result
    }

    /// The loop of reader `id`, until shutdown.
    pub(crate) fn run_reader(&self, id: usize) {
        let lane = self.meter.lane(&format!("reader {id}"));
        let room = Room::new(&self.budget, Holder::Records, self.threads.1);
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
            room.settle(fetched.capacity());
            let result = self.fetch(&picks, &mut fetched, &room, &mut probe);
            // Workers have more room: what is too large to be read ahead is read by them.
            let refused = room.was_refused();
            let left = refused || result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Limit);
            let read = (!left).then(|| result.map(|()| fetched));
            schedule = self.lock();
            let late = schedule.put_read(ticket, read);
            room.settle(0);
            self.work.notify_one();
            if late.is_some() {
                drop(schedule);
                drop(late);
                schedule = self.lock();
            }
        }
    }
}

/// What a batch is that was taken back: nobody ever gets it.
fn taken_back() -> Error {
    Error::new(ErrorKind::Internal, "a batch that was taken back was delivered")
}

/// Bytes that `job` takes by itself, with `bytes` that it found no room for.
fn needed_by(job: &Job, bytes: u64, who: Holder) -> u64 {
    let varying = job.varying();
    match who {
        // What waits for room is counted already.
        Holder::Batches => varying.columns.saturating_add(job.array_bytes()),
        _ => varying.lists.saturating_add(bytes),
    }
}

/// What a worker works with.
struct Desk {
    scratch: Scratch,
    /// For samples that it reads itself.
    own: Fetched,
    /// What the samples of its claim are made of.
    picks: Picks,
    /// Which of them were copied together.
    copied: Vec<bool>,
    /// Those that a source is asked to copy.
    wanted: Vec<Wanted>,
    /// What scratch and own take.
    room: Arc<Room>,
}

impl Desk {
    fn new(room: Arc<Room>) -> Self {
        Self {
            scratch: Scratch::within(Some(room.clone())),
            own: Fetched::default(),
            picks: Picks::default(),
            copied: Vec::new(),
            wanted: Vec::new(),
            room,
        }
    }

    fn capacity(&self) -> usize {
        self.scratch.capacity() + self.own.capacity()
    }

    /// After a sample: keeps no more than its share.
    fn tidy(&mut self) {
        let keeps = self.room.keeps();
        if self.scratch.capacity() as u64 > keeps / 2 {
            self.scratch.clear();
        }
        if self.own.capacity() as u64 > keeps / 2 {
            self.own = Fetched::default();
        }
        self.room.settle(self.capacity());
    }

    /// Gives everything back.
    fn clear(&mut self) {
        self.scratch.clear();
        self.own = Fetched::default();
        self.room.settle(0);
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
