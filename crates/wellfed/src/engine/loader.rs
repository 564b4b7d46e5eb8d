//! The consumer's end: starts the threads, hands out batches in order, knows where it stands.

use std::{
    collections::VecDeque,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use super::{
    batch::{Batch, ColumnData},
    cache::KeptCaches,
    epochs::Epochs,
    exec::Executor,
    foresight,
    governor::{self, Bounds, Observation, Settings},
    job::Failure,
    mix::Images,
    open::with_caches,
    pace::{LINGER, Pace},
    ring::Pool,
    schedule::{MOST_CLAIMED, MOST_GATHERED, Pieces, Schedule},
    shared::Shared,
    shares::{MAX_PREFETCH, Shares},
    stack::Columns,
    threads::{PATIENCE, Threads, in_storage},
};
use crate::{
    Error, ErrorKind, Result,
    budget::Budget,
    column::{ColumnShape, ColumnSpec},
    io::{cache::READERS, layer::Mailbox},
    lock,
    memory::allocator::Allocator,
    meter::{Meter, Phase, Stats, publish},
    order::{self, Batches, Order, Position, State},
    plan::{OnError, Options, Outline, lower::LeafCache},
    transform::Blend,
};

/// Bad samples kept in the list; later ones are only counted.
const MAX_LISTED: usize = 10_000;

/// Sizes of buffers that are kept for a column whose batches differ in size: about those of eight buckets.
const KEPT_SIZES: usize = 8;

/// Batches made ahead at first: enough to ride out a slow sample, small enough to stay in cache where it can.
const START_PREFETCH: usize = 4;

/// What [`Loader::next`] found.
#[derive(Debug)]
pub enum Next {
    /// The next batch.
    Batch(Batch),
    /// The epoch is over; [`Loader::start_epoch`] begins the next one.
    EpochEnd,
    /// No batch was finished within the time given, or all samples of one were bad and skipped.
    Pending,
}

/// A sample that could not be made.
#[derive(Clone, Debug)]
pub struct BadSample {
    /// Epoch it was met in. Under a given order: the one in which [`crate::Dataset::sample`] draws the same.
    pub epoch: u64,
    /// Batch of that epoch.
    pub batch: u64,
    /// Its place in the pass, if the caller gave the order.
    pub position: Option<u64>,
    /// Why, with source, key, index, offset and stage.
    pub error: Error,
    /// Whether another sample took its place.
    pub replaced: bool,
}

/// Delivers the batches of a data set, epoch by epoch.
///
/// Threads start with the first epoch. Dropping the loader stops them and frees everything but the batches the
/// consumer still holds.
#[derive(Debug)]
pub struct Loader {
    shared: Arc<Shared>,
    options: Options,
    bounds: Bounds,
    /// What is left of the memory budget without caches.
    ring_budget: u64,
    plan: Outline,
    process: u32,
    /// Whether samples come as batches, and not one by one.
    batched: bool,
    /// Bad samples in a row after which an epoch without an end is given up: as many as there are, or as many as are listed.
    patience: u64,
    consumer: Mutex<Consumer>,
}

#[derive(Debug)]
struct Consumer {
    course: Course,
    threads: Threads,
    errors: VecDeque<BadSample>,
    tick: Tick,
    pace: Pace,
    /// Writes caches to files.
    saver: Threads,
    /// Those of the cache of remote bytes.
    keepers: Threads,
}

/// Where the consumer stands.
#[derive(Debug)]
enum Course {
    /// In the epochs of the plan.
    Epochs(Epochs),
    /// In a pass whose batches the caller gives: the schedule knows what is left of it.
    Pass,
}

impl Course {
    /// The epochs of the plan.
    ///
    /// # Errors
    /// [`ErrorKind::State`] if the caller gives the order.
    fn epochs(&mut self) -> Result<&mut Epochs> {
        match self {
            Self::Epochs(epochs) => Ok(epochs),
            Self::Pass => Err(order::no_epochs()),
        }
    }
}

/// What there is for the consumer to take.
enum Left {
    /// Batches are under way or still to be made.
    Batches,
    /// No epoch was started.
    Nothing,
    /// The last batch was delivered just now. If all samples since the start were bad and `skipped`, how many.
    End { skipped: Option<u64> },
}

/// Counters at the last look of the governor.
#[derive(Debug)]
struct Tick {
    at: Instant,
    wait_nanos: u64,
    nanos: [u64; Phase::ALL.len()],
    batches: u64,
    ready_sum: u64,
}

impl Loader {
    pub(crate) fn new(
        executor: Executor,
        order: Arc<Order>,
        batches: Batches,
        plan: Outline,
        options: Options,
        (caches, kept): (&[Option<LeafCache>], &KeptCaches),
        allocator: Arc<Allocator>,
    ) -> Result<Self> {
        let samples: u64 =
            executor.leaves().iter().map(|leaf| leaf.shared_source().len()).fold(0, u64::saturating_add);
        let counted = Budget::new();
        let columns = Columns::new(executor.columns(), &counted)
            .mixed_by(executor.mixer().cloned())
            .mixed_as_given(Images::of(executor.columns(), 0, options.layout));
        let batch_bytes = bytes_of(&columns, order.batch_size());
        let mailbox = Arc::<Mailbox>::default();
        let (executor, budget, total) = with_caches(executor, &options, (caches, kept), &counted, &mailbox)?;
        let planned = batches.bounded();
        let (keeper, budget) = foresight::open(&options, &executor, &order, planned, budget)?;
        check_budget(batch_bytes, order.batch_size(), budget)?;
        let shares = Shares::new(&columns, batch_bytes, batches.bounded(), &executor, budget);
        shares.set(&counted);
        let bounds = bounds(&options, &executor, batch_bytes, shares.batches)?;
        let settings = Settings {
            workers: bounds.workers.1,
            prefetch: START_PREFETCH.clamp(bounds.prefetch.0, bounds.prefetch.1),
            readers: bounds.readers.0,
        };
        let pool = Pool::with_budget(0, counted, allocator);
        // What is under way and what is kept for the next batches, whatever their sizes.
        pool.set_limit(shares.batches);
        // Samples in memory take microseconds, unless they are to be decoded: claim several at once so that the lock
        // stays out of the way. Those that are only copied take so few that it pays to leave a batch to fewer workers.
        let pieces = executor.in_pieces().then(|| {
            let most = if executor.gathers_all() { MOST_GATHERED } else { MOST_CLAIMED };
            let least = if executor.only_copies() { copied_at_once(bytes_of(&columns, 1), most) } else { 1 };
            Pieces { count: 4 * bounds.workers.1, least, most }
        });
        let meter = Meter::new(options.trace);
        let batched = batches.batched();
        let course = if batches.bounded() { Course::Epochs(Epochs::new()) } else { Course::Pass };
        let schedule = Schedule::new(batches, columns.clone(), pool.clone(), pieces, settings, shares);
        let mut shared = Shared::new(
            schedule,
            executor,
            order,
            meter,
            options.on_error,
            (bounds.workers.1, bounds.readers.1),
            (pool, columns.clone(), total, mailbox),
        );
        shared.keeper = keeper;
        let shared = Arc::new(shared);
        let consumer = Consumer {
            course,
            threads: Threads::default(),
            errors: VecDeque::new(),
            tick: Tick {
                at: Instant::now(),
                wait_nanos: 0,
                nanos: [0; Phase::ALL.len()],
                batches: 0,
                ready_sum: 0,
            },
            pace: Pace::default(),
            saver: Threads::default(),
            keepers: Threads::default(),
        };
        let this = Self {
            shared,
            options,
            bounds,
            ring_budget: budget,
            plan,
            process: std::process::id(),
            batched,
            patience: samples.min(MAX_LISTED as u64).max(1),
            consumer: Mutex::new(consumer),
        };
        this.keep_buffers(&columns, settings.prefetch);
        Ok(this)
    }

    /// Ring memory is kept for all batches under way and one on its way back; where their sizes differ, of several
    /// sizes.
    fn keep_buffers(&self, columns: &[ColumnSpec], prefetch: usize) {
        let kept =
            columns.iter().map(|column| if column.is_stacked() { KEPT_SIZES } else { 1 }).sum::<usize>();
        self.shared.pool.set_keep(kept * (prefetch + 1));
    }

    /// Batches of an epoch (samples, without `batch`), of the present one where epochs differ; `None` is without end, or
    /// as many as the caller gives. Where batches are cut by length, the order of the epoch is walked through.
    pub fn len(&self) -> Option<u64> {
        let epoch = match &lock(&self.consumer).course {
            Course::Epochs(epochs) => epochs.next().epoch,
            Course::Pass => return None,
        };
        self.shared.order.len_of(epoch)
    }

    /// True if an epoch has no batch.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// Begins an epoch: the first one, the one set by [`Loader::set_epoch`], the rest of the one restored by
    /// [`Loader::load_state_dict`], or else the one after the last. A half-read epoch is abandoned.
    ///
    /// # Errors
    /// [`ErrorKind::State`] in a forked child.
    pub fn start_epoch(&self) -> Result<()> {
        let mut consumer = self.consumer()?;
        let position = consumer.course.epochs()?.start();
        let abandoned = self.shared.lock().go_to(position)?;
        drop(abandoned);
        self.start_threads(&mut consumer)?;
        self.shared.wake();
        Ok(())
    }

    /// Iterates over one epoch. Begins it as [`Loader::start_epoch`] does.
    ///
    /// # Errors
    /// As [`Loader::start_epoch`].
    pub fn epoch(&self) -> Result<Epoch<'_>> {
        self.start_epoch()?;
        Ok(Epoch { loader: self })
    }

    /// The next batch of the epoch, waiting at most `timeout` for it.
    ///
    /// # Errors
    /// That of a bad sample, under `on_error="raise"`; the next call goes on with the batch after it.
    pub fn next(&self, timeout: Duration) -> Result<Next> {
        let mut consumer = self.consumer()?;
        let consumer = &mut *consumer;
        match self.left(&mut consumer.course)? {
            Left::Batches => {}
            Left::Nothing => return Ok(Next::EpochEnd),
            Left::End { skipped } => {
                self.shared.publish(0, publish::LAST_INTERVAL);
                self.save_caches(consumer);
                return skipped
                    .map_or(Ok(Next::EpochEnd), |count| Err(no_good_sample(count, &consumer.errors)));
            }
        }
        self.govern(consumer);
        let mut schedule = self.shared.lock();
        let ready = schedule.ready();
        let mut job = schedule.deliver();
        if job.is_none() {
            let since = Instant::now();
            // Who waits for a shorter time gets what is there then.
            let linger = LINGER.min(timeout);
            let mut wanted = consumer.pace.batches(schedule.settings.prefetch);
            while job.is_none() {
                let waited = since.elapsed();
                if waited >= timeout {
                    break;
                }
                if waited >= linger {
                    wanted = 1;
                }
                schedule.wait_for(wanted);
                let most = if wanted > 1 { linger - waited } else { timeout - waited };
                schedule = self.shared.wait_ready(schedule, most);
                if wanted == 1 || !schedule.is_awaited() || since.elapsed() >= linger {
                    job = schedule.deliver();
                }
            }
            self.shared.meter.waited(since);
            if job.is_some() {
                consumer.pace.waited(Instant::now());
                self.deepen(&mut schedule, &consumer.pace);
            }
        } else {
            consumer.pace.delivered();
        }
        drop(schedule);
        let Some(job) = job else {
            self.shared.publish(0, publish::INTERVAL);
            return Ok(Next::Pending);
        };
        self.shared.wake();
        self.shared.meter.ready_sum.fetch_add(ready as u64, Relaxed);
        let failures = job.failures();
        let outage = failures.iter().any(|failure| failure.error.kind() == ErrorKind::Transient);
        let nothing_left =
            self.options.on_error == OnError::Skip && failures.len() == job.span.len && !outage;
        for Failure { offset, error, replaced } in failures {
            self.shared.meter.errors.fetch_add(1, Relaxed);
            if consumer.errors.len() < MAX_LISTED {
                let position = job.span.position(offset);
                let epoch = position.map_or(job.epoch, |_| self.shared.order.draws_of(&job.span, offset));
                let batch = job.number;
                consumer.errors.push_back(BadSample { epoch, batch, position, error, replaced });
            }
        }
        // Batches that were asked for one by one are answered one by one.
        if let Course::Epochs(epochs) = &mut consumer.course {
            epochs.advance();
            // Whoever skips bad samples wants no batch of none: the next call goes on with the one after it.
            if nothing_left {
                self.skip(epochs, job.span.len, &consumer.errors)?;
                return Ok(Next::Pending);
            }
            epochs.delivered();
        }
        let job = Arc::into_inner(job)
            .ok_or_else(|| Error::new(ErrorKind::Internal, "a finished batch still has a writer"))?;
        let batch = job.into_batch(self.options.on_error, self.batched)?;
        self.shared.meter.batches.fetch_add(1, Relaxed);
        self.shared.meter.samples.fetch_add(batch.len as u64, Relaxed);
        let bytes: usize = batch.columns.iter().map(|column| column.data.bytes()).sum();
        self.shared.meter.bytes_out.fetch_add(bytes as u64, Relaxed);
        self.shared.publish(ready, publish::INTERVAL);
        Ok(Next::Batch(batch))
    }

    /// Chooses the epoch that [`Loader::start_epoch`] begins next.
    ///
    /// # Errors
    /// [`ErrorKind::State`] in a forked child.
    pub fn set_epoch(&self, epoch: u64) -> Result<()> {
        self.consumer()?.course.epochs()?.jump_to(Position::start_of(epoch));
        Ok(())
    }

    /// A number that tells this pipeline from others: sources by names and sizes, order and transforms.
    pub fn fingerprint(&self) -> u64 {
        self.plan.fingerprint
    }

    /// Where the loader stands: between the last batch delivered and the next one. As in torchdata, a state taken after
    /// the last batch of an epoch, but before its end was met, is of that epoch, of which nothing is left; once its end
    /// was met ([`Next::EpochEnd`]), it is the start of the next one.
    ///
    /// # Errors
    /// [`ErrorKind::State`] in a forked child.
    pub fn state_dict(&self) -> Result<State> {
        let at = self.consumer()?.course.epochs()?.next();
        Ok(State::new(&self.shared.order, &self.plan, at.epoch, at.base, at.number))
    }

    /// Makes [`Loader::start_epoch`] go on from `state`, in O(1).
    ///
    /// # Errors
    /// [`ErrorKind::State`] if the state belongs to another plan or cannot be carried over, [`ErrorKind::Config`] if it makes no
    /// sense.
    pub fn load_state_dict(&self, state: &State) -> Result<()> {
        let mut consumer = self.consumer()?;
        let epochs = consumer.course.epochs()?;
        let (base, number) = state.restore(&self.shared.order, &self.plan)?;
        epochs.restore(Position { epoch: state.epoch, base, number });
        Ok(())
    }

    /// Waits until what was downloaded is in the folder of `remote_cache`, as far as there is room for it. Returns at once
    /// without one.
    pub fn finish_remote_cache(&self) {
        if let Some(keeper) = &self.shared.keeper {
            keeper.settle();
        }
    }

    /// A snapshot of all counters.
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// Bad samples met so far, in the order of delivery. The first 10,000 are kept; [`Stats::errors`] counts all.
    ///
    /// # Errors
    /// [`ErrorKind::State`] in a forked child.
    pub fn errors(&self) -> Result<Vec<BadSample>> {
        Ok(self.consumer()?.errors.iter().cloned().collect())
    }

    /// Writes what every thread did when, as Chrome trace-event JSON (open it in Perfetto).
    ///
    /// # Errors
    /// [`ErrorKind::State`] without the option `trace`; an I/O error naming `path`.
    pub fn write_trace(&self, path: &Path) -> Result<()> {
        if !self.options.trace {
            return Err(Error::new(ErrorKind::State, "this loader keeps no trace")
                .with_hint("make it with with_options(trace=True)"));
        }
        self.shared.meter.write_trace(path)
    }

    /// Begins a pass whose samples the caller chooses, of which `position` samples came before. What was submitted
    /// before is abandoned. Random draws are keyed by `seed`, the place of a sample in the pass, and its index.
    ///
    /// # Errors
    /// [`ErrorKind::State`] unless made by [`crate::Dataset::loader_given`], and in a forked child.
    pub fn begin(&self, seed: u64, position: u64) -> Result<()> {
        let mut consumer = self.consumer()?;
        let abandoned = self.shared.lock().begin(seed, position)?;
        drop(abandoned);
        self.start_threads(&mut consumer)
    }

    /// Adds a batch of samples, by their indices in the source, to the pass. Never waits: [`Loader::depth`] batches
    /// are made ahead, others stay queued.
    ///
    /// # Errors
    /// [`ErrorKind::Index`] for a sample that does not exist, [`ErrorKind::Config`] for a batch of none,
    /// [`ErrorKind::Limit`] for one too large for the memory budget, [`ErrorKind::State`] without a pass that goes on.
    pub fn submit(&self, indices: &[u64]) -> Result<()> {
        self.submit_mixed(indices, None)
    }

    /// As [`Loader::submit`]; the images of the finished batch, its first column, are mixed with themselves as `blend` says.
    /// Labels are left to the caller.
    ///
    /// # Errors
    /// As [`Loader::submit`]; [`ErrorKind::Config`] for images that cannot be mixed so.
    pub fn submit_mixed(&self, indices: &[u64], blend: Option<Blend>) -> Result<()> {
        self.check_process()?;
        if let Some(blend) = blend {
            let one_size = || Error::config("images that differ in size are not mixed");
            self.images().ok_or_else(one_size)?.check(blend)?;
        }
        let indices = order::checked(indices, self.samples())?;
        check_budget(
            bytes_of(self.shared.executor.columns(), indices.len()),
            indices.len(),
            self.ring_budget,
        )?;
        self.shared.lock().given()?.submit(indices, blend)?;
        self.shared.wake();
        Ok(())
    }

    /// What the columns of every batch look like.
    pub fn columns(&self) -> Vec<ColumnShape> {
        self.shared.executor.columns().iter().map(ColumnShape::from).collect()
    }

    /// What is left of images to the device that batches are for, column by column.
    pub fn left_images(&self) -> Vec<Option<super::LeftImage>> {
        self.shared.executor.left()
    }

    /// Leaves `share` (0 to 1) of the samples to the device, where the plan says `auto`. Batches are the same.
    pub fn set_device_share(&self, share: f64) {
        self.shared.executor.set_device_share((share.clamp(0.0, 1.0) * 256.0) as u32);
    }

    /// Channels, height and width of the images of finished batches, if they can be mixed: the first column's, where all have
    /// one size.
    pub fn image_size(&self) -> Option<[usize; 3]> {
        self.images().map(|images| images.size)
    }

    fn images(&self) -> Option<Images> {
        Images::of(self.shared.executor.columns(), 0, self.options.layout)
    }

    /// Says that the pass is complete: after the last batch [`Loader::next`] finds [`Next::EpochEnd`].
    ///
    /// # Errors
    /// [`ErrorKind::State`] if there is no pass, or the loader has an order of its own.
    pub fn finish(&self) -> Result<()> {
        self.check_process()?;
        self.shared.lock().given()?.finish()
    }

    /// Batches that are made ahead at present, and so should be submitted ahead.
    pub fn depth(&self) -> usize {
        self.shared.lock().settings.prefetch
    }

    /// Whether [`Loader::next`] would find a batch without waiting for it. Never waits itself.
    ///
    /// # Errors
    /// [`ErrorKind::State`] in a forked child.
    pub fn ready(&self) -> Result<bool> {
        self.check_process()?;
        Ok(self.shared.lock().ready() > 0)
    }

    /// Samples of the source; of the first one, if there are several.
    pub fn samples(&self) -> u64 {
        self.shared.executor.leaves().first().map_or(0, |leaf| leaf.shared_source().len())
    }

    /// What is left to deliver. Ends an epoch of which nothing is.
    fn left(&self, course: &mut Course) -> Result<Left> {
        let Course::Epochs(epochs) = course else {
            let over = self.shared.lock().pass_is_over()?;
            return Ok(if over { Left::End { skipped: None } } else { Left::Batches });
        };
        let Some(position) = epochs.under_way() else { return Ok(Left::Nothing) };
        let Position { epoch, base, number } = position;
        // Where batches are cut by length, the order is asked only for what no worker has come by.
        let known = self.shared.order.is_cut() && self.shared.lock().is_next(position);
        let over = !known && self.shared.order.is_over(epoch, base, number);
        Ok(if over { Left::End { skipped: epochs.end() } } else { Left::Batches })
    }

    /// Goes on without a batch of so many `samples`, all of them bad.
    fn skip(&self, epochs: &mut Epochs, samples: usize, errors: &VecDeque<BadSample>) -> Result<()> {
        if self.shared.order.sharded() {
            // A rank with fewer batches than the others would leave them waiting for it without end.
            return Err(Error::new(ErrorKind::Corrupt, format!("all {samples} samples of a batch are bad"))
                .with_hint("ranks must get as many batches: use on_error=\"replace\" with shard()"));
        }
        let skipped = epochs.skipped(samples);
        // Without an end nobody else would ever say so.
        if self.shared.order.len().is_none() && skipped >= self.patience {
            epochs.forget_skipped();
            return Err(no_good_sample(skipped, errors));
        }
        Ok(())
    }

    /// The consumer's state, after a check that this is still the process that made the loader.
    fn consumer(&self) -> Result<MutexGuard<'_, Consumer>> {
        self.check_process()?;
        Ok(lock(&self.consumer))
    }

    /// Refuses in a forked child, where locks may be held by threads that are not there.
    ///
    /// # Errors
    /// [`ErrorKind::State`] in a forked child.
    pub fn check_process(&self) -> Result<()> {
        let process = std::process::id();
        if process != self.process {
            return Err(Error::new(
                ErrorKind::State,
                format!(
                    "this loader belongs to process {}; threads do not survive fork() into {process}",
                    self.process
                ),
            )
            .with_hint("make the loader after the fork; data sets may be made before it"));
        }
        Ok(())
    }

    /// Starts threads up to the present settings. Those above a later, lower setting stay parked.
    fn start_threads(&self, consumer: &mut Consumer) -> Result<()> {
        self.shared.begin_publishing();
        let settings = self.shared.lock().settings;
        let running = consumer.threads.len();
        // Workers come first, so that a thread's number tells what it is: all workers the bounds allow, at once
        // (parked ones cost a stack), those that read groups ahead, then readers as they are wanted.
        let workers = self.bounds.workers.1;
        let ahead = self.shared.ahead_threads();
        let layer = usize::from(self.shared.mailbox.is_some());
        let wanted = workers + ahead + layer + settings.readers;
        for number in running..wanted {
            let shared = self.shared.clone();
            let mailbox = shared.mailbox.clone().filter(|_| number == workers + ahead);
            let (name, run): (String, Box<dyn FnOnce() + Send>) = if number < workers {
                (format!("wellfed-work-{number}"), Box::new(move || shared.run_worker(number)))
            } else if number < workers + ahead {
                (format!("wellfed-ahead-{}", number - workers), Box::new(move || shared.run_ahead()))
            } else if let Some(mailbox) = mailbox {
                ("wellfed-io".to_owned(), Box::new(move || shared.run_io(&mailbox)))
            } else {
                let id = number - workers - ahead - layer;
                (format!("wellfed-read-{id}"), Box::new(move || shared.run_reader(id)))
            };
            consumer.threads.start(name, run)?;
        }
        self.start_keepers(&mut consumer.keepers)
    }

    /// Starts the threads of the cache of remote bytes.
    fn start_keepers(&self, threads: &mut Threads) -> Result<()> {
        let (Some(keeper), Some(mailbox)) = (&self.shared.keeper, &self.shared.mailbox) else {
            return Ok(());
        };
        for number in threads.len()..=READERS {
            let (keeper, mailbox) = (keeper.clone(), mailbox.clone());
            if number == READERS {
                threads.start("wellfed-keep".to_owned(), move || in_storage(|| keeper.run_writer()))?;
                continue;
            }
            let run = move || in_storage(|| keeper.run_reader(|replies| mailbox.reply(replies)));
            threads.start(format!("wellfed-kept-{number}"), run)?;
        }
        Ok(())
    }

    /// Writes what caches keep in files, on a thread of its own. Training does not wait for it.
    fn save_caches(&self, consumer: &mut Consumer) {
        if !self.shared.executor.unsaved() {
            return;
        }
        if !consumer.saver.idle() {
            return;
        }
        let shared = self.shared.clone();
        let run = move || in_storage(|| shared.executor.save());
        // Without a thread it is written when the loader is dropped.
        drop(consumer.saver.start("wellfed-save".to_owned(), run));
    }

    /// Lets more batches be under way, if they come so fast that the consumer waits for several at once.
    fn deepen(&self, schedule: &mut Schedule, pace: &Pace) {
        let (low, high) = self.bounds.prefetch;
        let prefetch = pace.prefetch().clamp(low, high.max(low));
        if prefetch > schedule.settings.prefetch {
            schedule.settings.prefetch = prefetch;
            self.keep_buffers(self.shared.executor.columns(), prefetch);
        }
    }

    /// Lets the governor look at the last interval, if one has passed.
    fn govern(&self, consumer: &mut Consumer) {
        let elapsed = consumer.tick.at.elapsed();
        if elapsed < governor::INTERVAL {
            return;
        }
        let meter = &self.shared.meter;
        let tick = Tick {
            at: Instant::now(),
            wait_nanos: meter.wait_nanos.load(Relaxed),
            nanos: meter.nanos("worker"),
            batches: meter.batches.load(Relaxed),
            ready_sum: meter.ready_sum.load(Relaxed),
        };
        let last = std::mem::replace(&mut consumer.tick, tick);
        let tick = &consumer.tick;
        let delta = |phase: Phase| (tick.nanos[phase as usize] - last.nanos[phase as usize]) as f64;
        let idle = delta(Phase::Idle);
        let busy: f64 = Phase::ALL.into_iter().map(delta).sum::<f64>() - idle;
        let mut schedule = self.shared.lock();
        let now = schedule.settings;
        let taken = (tick.batches - last.batches).max(1) as f64 * now.prefetch as f64;
        let seen = Observation {
            waiting: (tick.wait_nanos - last.wait_nanos) as f64 / elapsed.as_nanos() as f64,
            reading: delta(Phase::Read) / busy.max(1.0),
            idle: idle / (elapsed.as_nanos() as f64 * now.workers as f64),
            ready: (tick.ready_sum - last.ready_sum) as f64 / taken,
        };
        let settings = governor::decide(now, seen, &self.bounds);
        if settings == now {
            return;
        }
        schedule.settings = settings;
        drop(schedule);
        self.keep_buffers(self.shared.executor.columns(), settings.prefetch);
        // Without new threads the loader is only slower.
        drop(self.start_threads(consumer));
        self.shared.wake_parked();
    }
}

/// The error of an epoch in which everything was skipped.
fn no_good_sample(count: u64, errors: &VecDeque<BadSample>) -> Error {
    let last = errors.back().map_or(String::new(), |bad| {
        let key = bad.error.key().map_or(String::new(), |key| format!(" ({key})"));
        format!("; the last one{key}: {}", bad.error.message())
    });
    Error::new(ErrorKind::Corrupt, format!("all {count} samples in a row were bad and skipped{last}"))
        .with_hint("errors() lists them")
}

/// Bytes of the arrays of `samples` samples.
fn bytes_of(columns: &[ColumnSpec], samples: usize) -> u64 {
    let sample = columns.iter().map(|column| column.sample_bytes() as u64).fold(0, u64::saturating_add);
    sample.saturating_mul(samples as u64)
}

/// Samples of so many bytes of fixed size that a worker copies at once: about 64 KiB of them.
fn copied_at_once(bytes: u64, most: usize) -> usize {
    ((64 << 10) / bytes.max(1)).clamp(16, most as u64) as usize
}

/// Two batches must fit: one under way and one kept for reuse are the least a ring can be.
fn check_budget(batch_bytes: u64, samples: usize, budget: u64) -> Result<()> {
    let two = batch_bytes.saturating_mul(2);
    if two <= budget {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Limit,
        format!("two batches of {samples} samples take {two} bytes, above the memory budget of {budget}"),
    )
    .with_hint("use a smaller batch_size, or raise it with with_options(memory_budget=...)"))
}

/// What the governor may choose from, given the user's fixed numbers and the budget.
fn bounds(options: &Options, executor: &Executor, batch_bytes: u64, ring: u64) -> Result<Bounds> {
    let zero = |name: &str| Err(Error::config(format!("{name} is 0; it must be at least 1, or \"auto\"")));
    let workers = match options.num_workers.fixed() {
        Some(0) => return zero("num_workers"),
        Some(n) => (n, n),
        None => (1, governor::available_cpus()),
    };
    // One buffer is on its way back.
    let fit = (ring / batch_bytes.max(1)).saturating_sub(1).clamp(1, MAX_PREFETCH as u64) as usize;
    let prefetch = match options.prefetch.fixed() {
        Some(0) => return zero("prefetch"),
        Some(n) => (n.min(fit), n.min(fit)),
        None => (2.min(fit), fit),
    };
    let readers = match options.read_ahead.fixed() {
        _ if executor.is_remote() => (0, 0),
        Some(n) => (n, n),
        None if executor.in_memory() || executor.in_pieces() => (0, 0),
        None => (0, governor::MAX_READERS),
    };
    Ok(Bounds { workers, prefetch, readers })
}

impl Drop for Loader {
    fn drop(&mut self) {
        if std::process::id() != self.process {
            // A forked child has none of the threads, and a lock may be held by one of them.
            return;
        }
        self.shared.shut_down();
        if let Some(keeper) = &self.shared.keeper {
            keeper.close();
        }
        let mut consumer = lock(&self.consumer);
        let all = consumer.threads.end(PATIENCE) & consumer.saver.end(PATIENCE);
        // Whatever is still written goes on by itself.
        consumer.keepers.end(PATIENCE);
        if all {
            // Else storage hangs, and would hang here, too.
            self.shared.executor.save();
        }
        // The pool lives as long as the consumer holds a batch; what it keeps for the next ones need not.
        self.shared.pool.set_keep(0);
        self.shared.pool.clear();
    }
}

/// Iterator over the batches of one epoch.
#[derive(Debug)]
pub struct Epoch<'a> {
    loader: &'a Loader,
}

impl Iterator for Epoch<'_> {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.loader.next(Duration::from_secs(3600)) {
                Ok(Next::Batch(batch)) => return Some(Ok(batch)),
                Ok(Next::EpochEnd) => return None,
                Ok(Next::Pending) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl ColumnData {
    /// The elements of an int64 array.
    pub fn as_i64(&self) -> Option<Vec<i64>> {
        match self {
            ColumnData::Array { dtype: crate::sample::DType::Int64, .. } => Some(
                self.as_bytes()?
                    .chunks_exact(8)
                    .map(|b| i64::from_ne_bytes(b.try_into().expect("8 bytes")))
                    .collect(),
            ),
            _ => None,
        }
    }

    /// The elements of a float32 array.
    pub fn as_f32(&self) -> Option<Vec<f32>> {
        match self {
            ColumnData::Array { dtype: crate::sample::DType::Float32, .. } => Some(
                self.as_bytes()?
                    .chunks_exact(4)
                    .map(|b| f32::from_ne_bytes(b.try_into().expect("4 bytes")))
                    .collect(),
            ),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Dataset,
        sample::{DType, Structure},
        source::{ArrayData, Pixels, TensorSlices},
    };

    #[test]
    fn wake_ups_never_end_with_parked_threads() {
        let array = ArrayData::from_vec((0..255).collect(), DType::UInt8, vec![255]).unwrap();
        let source =
            TensorSlices::new(vec![("x".to_owned(), array, Pixels::Never)], Structure::Field(0)).unwrap();
        let fixed = crate::plan::Auto::Fixed;
        let options = Options {
            num_workers: fixed(16),
            prefetch: fixed(1),
            read_ahead: fixed(1),
            ..Options::default()
        };
        let dataset = Dataset::new(Arc::new(source)).batch(1, false).repeat(Some(2)).with_options(options);
        let loader = dataset.loader().unwrap();
        // As the governor does where the consumer is the slow side: all but one are parked.
        loader.shared.lock().settings.workers = 1;
        loader.start_epoch().unwrap();
        for batch in 0..510 {
            match loader.next(Duration::from_secs(60)).unwrap() {
                Next::Batch(found) => assert_eq!(found.number, batch),
                other => panic!("batch {batch} never came: {other:?}"),
            }
        }
    }

    #[test]
    fn a_loader_dropped_in_an_epoch_leaves_nothing_locked_and_the_batches_are_the_same() {
        use crate::{memory::allocator::counting::Counting, plan::Device};
        let cuda = || Some(Device::new("cuda"));
        let array = ArrayData::from_vec((0..240).collect(), DType::UInt8, vec![240]).unwrap();
        let source =
            TensorSlices::new(vec![("x".to_owned(), array, Pixels::Never)], Structure::Field(0)).unwrap();
        let dataset = Dataset::new(Arc::new(source)).shuffle(3).batch(7, false);
        let bytes = |batch: &Batch| batch.columns[0].data.as_bytes().unwrap().to_vec();
        let all = |loader: &Loader| -> Vec<Vec<u8>> {
            (0..2).flat_map(|_| loader.epoch().unwrap()).map(|batch| bytes(&batch.unwrap())).collect()
        };
        let plain = dataset.loader().unwrap();
        let wanted = all(&plain);
        assert_eq!(plain.stats().page_locked, None);
        // Nobody reads such memory, so none is asked for.
        for device in [None, Some(Device::new("mps"))] {
            let page_lock = Counting::up_to(usize::MAX);
            let loader = dataset.loader_for(device, Some(page_lock.clone())).unwrap();
            assert_eq!(all(&loader), wanted);
            assert_eq!(
                (page_lock.calls.load(std::sync::atomic::Ordering::Relaxed), page_lock.held()),
                (0, 0)
            );
        }
        for most in [0, usize::MAX] {
            let page_lock = Counting::up_to(most);
            let loader = dataset.loader_for(cuda(), Some(page_lock.clone())).unwrap();
            assert_eq!(loader.fingerprint(), plain.fingerprint());
            assert_eq!(all(&loader), wanted);
            let locked = loader.stats().page_locked.unwrap();
            assert_eq!((locked.buffers > 0, locked.refused > 0), (most > 0, most == 0), "{locked:?}");
            assert_eq!(locked.problem.is_some(), most == 0);
            let held = loader.epoch().unwrap().next().unwrap().unwrap();
            // A state taken with such memory goes on without it.
            let state = loader.state_dict().unwrap();
            drop(loader);
            assert_eq!(page_lock.held(), usize::from(most > 0), "only the consumer's batch stays");
            drop(held);
            assert_eq!(page_lock.held(), 0);
            let (with, without) =
                (dataset.loader_for(cuda(), Some(page_lock.clone())).unwrap(), dataset.loader().unwrap());
            with.load_state_dict(&state).unwrap();
            without.load_state_dict(&state).unwrap();
            assert_eq!(all(&with), all(&without));
        }
    }
}
