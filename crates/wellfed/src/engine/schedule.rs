//! Who does what next: the batches under way and the samples of each that are free, being read, read, or taken.
//!
//! [`Schedule`] is plain data under one mutex (see [`super::shared`]); nothing here blocks or does I/O. Batches
//! are opened in order (that of the plan, or that of submission) and delivered in order; samples are claimed roughly in order by whoever is free, so the
//! number of threads decides only when a batch is finished, never what is in it.
//!
//! A batch that does not fit beside others is made solo ([`Solo`]): between it and those before and after it there is a
//! moment at which nobody works and nothing is held.

use std::{collections::VecDeque, sync::Arc};

use super::{
    exec::Fetched,
    governor::Settings,
    job::{Claim, Job, Varying},
    ring::Pool,
    shares::Shares,
    stack::Columns,
};
use crate::{
    Result,
    budget::Holder,
    column::ColumnSpec,
    io::line::MOST,
    order::{Batches, Given, Position, Upcoming},
};

/// Samples that the I/O layer has under way or has brought, at most.
pub(crate) const AHEAD: usize = 2 * MOST;

/// Records that are kept for what the I/O layer reads.
const SPARE: usize = 16;

/// Most samples that a worker claims at once.
pub(crate) const MOST_CLAIMED: usize = 64;

/// The same of samples that are copied together: the more there are, the more of them lie in one group of their source.
pub(crate) const MOST_GATHERED: usize = 1024;

/// How a batch is divided among workers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pieces {
    /// A batch is claimed in about so many pieces,
    pub(crate) count: usize,
    /// of at least so many samples each,
    pub(crate) least: usize,
    /// and at most so many.
    pub(crate) most: usize,
}

impl Pieces {
    /// Samples of a piece of a batch of so many `samples`.
    fn samples(self, samples: usize) -> usize {
        (samples / self.count).clamp(self.least, self.most)
    }
}

/// What happened to one sample of a batch so far.
#[derive(Debug)]
enum Slot {
    Free,
    /// Too large to be read ahead: whoever makes it reads it.
    Direct,
    Reading,
    Read(Box<Result<Fetched>>),
    Taken,
}

#[derive(Debug)]
struct Entry {
    position: Position,
    job: Arc<Job>,
    slots: Vec<Slot>,
    /// All slots before this one are taken.
    first: usize,
    done: usize,
    /// Bytes of its buffers.
    bytes: u64,
    /// Tells it from others of its place: a batch that was taken back is opened again.
    serial: u64,
}

/// Whether a batch has nearly the whole memory budget. Until `Wanted` and `Leaving` are over, idle threads give back what
/// they keep and look again every few milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Solo {
    No,
    /// The next batch to be opened is to have it, as soon as nothing else is held.
    Wanted,
    /// The only batch under way has it.
    Open,
    /// It was delivered or given up, and some of its memory may still be held.
    Leaving,
}

/// How [`Schedule::make_room`] made room for a batch.
#[must_use]
#[derive(Debug)]
pub(crate) enum Evicted {
    /// The batch opened last was taken back.
    Another(Abandoned),
    /// That was the batch itself, or it was dropped before.
    Itself(Abandoned),
    /// There is no other batch under way.
    None,
}

/// Identifies a sample under way, also after its batch was abandoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    generation: u64,
    entry: u64,
    serial: u64,
    offset: usize,
}

/// Samples for one worker.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) claim: Claim,
    /// What a reader fetched for the (then only) sample.
    pub(crate) record: Option<Box<Result<Fetched>>>,
    ticket: Ticket,
}

impl Ticket {
    /// Its place in its batch.
    pub(crate) fn offset(&self) -> usize {
        self.offset
    }

    /// Whether its batch is of this [`Schedule::generation`].
    pub(crate) fn is_of(&self, generation: u64) -> bool {
        self.generation == generation
    }
}

impl Work {
    /// Gives up the claim; what is left says which samples are done.
    pub(crate) fn finish(self) -> Done {
        let count = self.claim.samples.len();
        Done { ticket: self.ticket, count }
    }
}

/// Samples that were made (or failed), whose claim is gone.
#[derive(Debug)]
pub(crate) struct Done {
    ticket: Ticket,
    count: usize,
}

/// Batches that were given up, and records that nobody needs. Freeing their memory may take long: drop it after the
/// schedule is unlocked.
#[must_use]
#[derive(Debug, Default)]
#[expect(dead_code, reason = "only to be dropped")]
pub(crate) struct Abandoned(VecDeque<Entry>, Vec<Fetched>);

#[derive(Debug)]
pub(crate) struct Schedule {
    /// Those that are still to be opened.
    batches: Batches,
    columns: Columns,
    pool: Arc<Pool>,
    /// Without, a batch is claimed sample by sample.
    pieces: Option<Pieces>,
    /// What is under way at most, but for one batch.
    pub(super) shares: Shares,
    solo: Solo,
    open_bytes: u64,
    pub(crate) settings: Settings,
    pub(crate) shutdown: bool,
    /// Samples that are asked for ahead of the batches that workers fill, at most. Not 0: the I/O layer reads, and
    /// workers take only what it has fetched.
    ahead: usize,
    /// Samples of the entries.
    open_samples: usize,
    entries: VecDeque<Entry>,
    /// Number of the first entry since the schedule was made.
    first_entry: u64,
    /// Entries that were made.
    serial: u64,
    /// Most that one batch took so far.
    largest: Varying,
    generation: u64,
    /// Claims that workers have not come back with.
    claims: usize,
    /// The consumer waits until so many batches are complete.
    awaited: Option<usize>,
    /// Records that were read but not taken yet, and their bytes.
    read_count: usize,
    pub(crate) read_bytes: u64,
    pub(crate) read_budget: u64,
    spare: Vec<Fetched>,
}

impl Schedule {
    pub(crate) fn new(
        batches: Batches,
        columns: Columns,
        pool: Arc<Pool>,
        pieces: Option<Pieces>,
        settings: Settings,
        shares: Shares,
    ) -> Self {
        Self {
            batches,
            columns,
            pool,
            pieces,
            shares,
            solo: Solo::No,
            open_bytes: 0,
            settings,
            shutdown: false,
            ahead: 0,
            open_samples: 0,
            entries: VecDeque::new(),
            first_entry: 0,
            serial: 0,
            largest: Varying::default(),
            generation: 0,
            claims: 0,
            awaited: None,
            read_count: 0,
            read_bytes: 0,
            read_budget: shares.records,
            spare: Vec::new(),
        }
    }

    /// Lets the I/O layer read, so many samples ahead.
    pub(crate) fn read_by_layer(&mut self, ahead: usize) {
        self.ahead = ahead;
    }

    /// Counts up whenever what is under way is abandoned.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// The next batch of the plan to be opened, and the present [`Schedule::generation`]. `None` if the caller gives the order.
    pub(crate) fn next_place(&mut self) -> Option<(Position, u64)> {
        Some((self.batches.of_plan().ok()?.cursor(), self.generation))
    }

    /// Makes `position` the next batch of the plan to be delivered. Keeps what is under way if it already leads there.
    ///
    /// # Errors
    /// [`crate::ErrorKind::State`] if the caller gives the order.
    pub(crate) fn go_to(&mut self, position: Position) -> Result<Abandoned> {
        let planned = self.batches.of_plan()?;
        if position == self.entries.front().map_or(planned.cursor(), |entry| entry.position) {
            return Ok(Abandoned::default());
        }
        planned.go_to(position);
        Ok(self.abandon())
    }

    /// Whether the batch to be delivered next is under way, and is that at `position`.
    pub(crate) fn is_next(&self, position: Position) -> bool {
        self.entries.front().is_some_and(|entry| entry.position == position)
    }

    /// Gives up what is under way. Threads that work on it notice when they come back.
    pub(crate) fn abandon(&mut self) -> Abandoned {
        self.generation += 1;
        self.first_entry += self.entries.len() as u64;
        self.uncount(self.read_bytes);
        (self.read_count, self.open_bytes, self.open_samples) = (0, 0, 0);
        self.solo = match self.solo {
            Solo::Open | Solo::Leaving => Solo::Leaving,
            Solo::No | Solo::Wanted => Solo::No,
        };
        if self.solo == Solo::No {
            self.pool.set_limit(self.shares.batches);
        }
        Abandoned(std::mem::take(&mut self.entries), Vec::new())
    }

    /// Takes back `job` and all batches after it: `job` is opened again as the only one, with nearly the whole budget.
    pub(crate) fn make_solo(&mut self, job: &Arc<Job>) -> Abandoned {
        let Some(at) = self.place(job) else { return Abandoned::default() };
        let mut taken = VecDeque::new();
        while self.entries.len() > at {
            taken.extend(self.take_back());
        }
        self.solo = Solo::Wanted;
        // What the consumer gives back from now on is not kept.
        self.pool.set_limit(0);
        Abandoned(taken, std::mem::take(&mut self.spare))
    }

    /// Whether threads are to keep nothing.
    pub(crate) fn is_solo(&self) -> bool {
        self.solo != Solo::No
    }

    /// Whether nothing is opened until all memory has been given back.
    pub(crate) fn waits_for_memory(&self) -> bool {
        self.entries.is_empty() && matches!(self.solo, Solo::Wanted | Solo::Leaving)
    }

    /// Whether another batch may be opened as far as that depends on one that is made solo.
    fn may_open(&mut self) -> bool {
        match self.solo {
            Solo::No => return true,
            Solo::Open => return false,
            Solo::Wanted | Solo::Leaving => {}
        }
        if !self.entries.is_empty() || self.claims > 0 || self.pool.budget().under_way() > 0 {
            return false;
        }
        if self.solo == Solo::Leaving {
            self.solo = Solo::No;
            self.shares.set(self.pool.budget());
            self.pool.budget().set_solo(false);
            self.pool.set_limit(self.shares.batches);
        }
        true
    }

    /// Begins a pass whose order the caller gives. What was submitted before is given up.
    ///
    /// # Errors
    /// [`crate::ErrorKind::State`] for a loader that has the order of its plan.
    pub(crate) fn begin(&mut self, seed: u64, position: u64) -> Result<Abandoned> {
        self.batches.of_caller()?.begin(seed, position);
        Ok(self.abandon())
    }

    /// The pass whose order the caller gives.
    ///
    /// # Errors
    /// [`crate::ErrorKind::State`] for a loader that has the order of its plan.
    pub(crate) fn given(&mut self) -> Result<&mut Given> {
        self.batches.of_caller()
    }

    /// Whether all batches of the pass were delivered.
    ///
    /// # Errors
    /// [`crate::ErrorKind::State`] if all were that there are so far, and the pass is not finished.
    pub(crate) fn pass_is_over(&mut self) -> Result<bool> {
        self.batches.of_caller()?.is_over(!self.entries.is_empty())
    }

    /// Opens the next batch if there is one, and room for it.
    fn open(&mut self) -> bool {
        if !self.may_open() {
            return false;
        }
        // Batches that are only read for have no buffers yet.
        if self.entries.len() >= self.settings.prefetch && self.open_samples >= self.ahead {
            return false;
        }
        let has_room = self.has_room();
        let sample_bytes: usize = self.columns.iter().map(ColumnSpec::sample_bytes).sum();
        let bytes = |samples: usize| (sample_bytes as u64).saturating_mul(samples as u64);
        let (first, open_bytes, most) = (self.entries.is_empty(), self.open_bytes, self.shares.batches);
        let next = self
            .batches
            .take_if(|samples| has_room && (first || open_bytes.saturating_add(bytes(samples)) <= most));
        let Some(Upcoming { position, span, room, counted }) = next else { return false };
        let mut job = Job::new(position.epoch, position.number, span, room, &self.columns, &self.pool);
        if self.solo == Solo::Wanted {
            job.solo = true;
            self.solo = Solo::Open;
            self.shares.solo(job.array_bytes()).set(self.pool.budget());
            self.pool.budget().set_solo(true);
        }
        self.push(position, job, bytes(counted));
        true
    }

    /// Whether the values of one more batch will fit that differ in size, if they take as much as the most so far.
    fn has_room(&self) -> bool {
        if self.entries.is_empty() || !self.columns.iter().any(ColumnSpec::is_stacked) {
            return true;
        }
        let (mut all, mut arrays) = (self.largest, 0_u64);
        for Entry { job, .. } in &self.entries {
            let takes = if job.is_finished() { job.varying() } else { job.varying().max(self.largest) };
            all = all.plus(takes);
            arrays = arrays.saturating_add(job.array_bytes());
        }
        let budget = self.pool.budget();
        let buffers = if all.columns == 0 { 0 } else { all.columns.saturating_add(arrays) };
        all.lists <= budget.cap(Holder::Lists) && buffers <= budget.cap(Holder::Batches)
    }

    /// Takes back the batch opened last, so that what it holds makes room for `job`. It is opened again when there is room;
    /// what comes out stays the same.
    pub(crate) fn make_room(&mut self, job: &Arc<Job>) -> Evicted {
        let Some(at) = self.place(job) else { return Evicted::Itself(Abandoned::default()) };
        self.note_size(job);
        if self.entries.len() == 1 {
            return Evicted::None;
        }
        let last = self.entries.len() - 1;
        let Some(entry) = self.take_back() else { return Evicted::None };
        self.note_size(&entry.job);
        let abandoned = Abandoned(VecDeque::from([entry]), Vec::new());
        if at == last { Evicted::Itself(abandoned) } else { Evicted::Another(abandoned) }
    }

    /// The place of `job` among those under way.
    fn place(&self, job: &Arc<Job>) -> Option<usize> {
        self.entries.iter().position(|entry| Arc::ptr_eq(&entry.job, job))
    }

    /// Remembers what `job` takes, unless it is so much that others like it are made solo.
    fn note_size(&mut self, job: &Job) {
        let takes = job.most_varying();
        if !job.solo && takes.lists <= self.shares.lists && takes.columns <= self.shares.batches {
            self.largest = self.largest.max(takes);
        }
    }

    /// Takes back the batch opened last.
    fn take_back(&mut self) -> Option<Entry> {
        let entry = self.entries.pop_back()?;
        self.open_bytes -= entry.bytes;
        self.open_samples -= entry.slots.len();
        for slot in &entry.slots {
            if let Slot::Read(read) = slot {
                self.read_count -= 1;
                self.uncount(size(read));
            }
        }
        self.batches.put_back(entry.position, entry.job.span.clone());
        Some(entry)
    }

    fn uncount(&mut self, bytes: u64) {
        self.read_bytes -= bytes;
        self.pool.budget().give(bytes, Holder::Records);
    }

    /// The batch that a ticket is of, if it is still under way, and its place among those that are.
    fn entry(&mut self, ticket: Ticket) -> Option<(usize, &mut Entry)> {
        let at = usize::try_from(ticket.entry.checked_sub(self.first_entry)?).ok()?;
        let same = ticket.generation == self.generation;
        let entry = self.entries.get_mut(at).filter(|entry| same && entry.serial == ticket.serial)?;
        Some((at, entry))
    }

    fn push(&mut self, position: Position, job: Job, bytes: u64) {
        let slots = (0..job.span.len).map(|_| Slot::Free).collect();
        self.open_bytes += bytes;
        self.open_samples += job.span.len;
        self.serial += 1;
        let serial = self.serial;
        let job = Arc::new(job);
        self.entries.push_back(Entry { position, job, slots, first: 0, done: 0, bytes, serial });
    }

    /// Samples for a worker: one that was read ahead, or else free ones that it reads itself. Opens a batch when
    /// nothing is left in those under way.
    pub(crate) fn work(&mut self) -> Option<Work> {
        loop {
            let read =
                (self.read_count > 0).then(|| self.find(|slot| matches!(slot, Slot::Read(_)))).flatten();
            if self.ahead > 0 {
                let (at, offset) = read.filter(|(at, _)| *at < self.settings.prefetch)?;
                return Some(self.take(at, offset));
            }
            let found = read.or_else(|| self.find(|slot| matches!(slot, Slot::Free | Slot::Direct)));
            if let Some((at, offset)) = found {
                return Some(self.take(at, offset));
            }
            if !self.open() {
                return None;
            }
        }
    }

    fn find(&self, wanted: impl Fn(&Slot) -> bool) -> Option<(usize, usize)> {
        self.entries.iter().enumerate().find_map(|(at, entry)| {
            let offset = entry.slots[entry.first..].iter().position(&wanted)?;
            Some((at, entry.first + offset))
        })
    }

    fn take(&mut self, at: usize, offset: usize) -> Work {
        let ticket = self.ticket(at, offset);
        self.claims += 1;
        let entry = &mut self.entries[at];
        let mut record = None;
        let mut end = offset + 1;
        match std::mem::replace(&mut entry.slots[offset], Slot::Taken) {
            Slot::Read(read) => {
                self.read_count -= 1;
                self.read_bytes -= size(&read);
                self.pool.budget().give(size(&read), Holder::Records);
                record = Some(read);
            }
            _ => {
                let chunk = self.pieces.map_or(1, |pieces| pieces.samples(entry.slots.len()));
                while end < offset + chunk && matches!(entry.slots.get(end), Some(Slot::Free | Slot::Direct))
                {
                    entry.slots[end] = Slot::Taken;
                    end += 1;
                }
            }
        }
        while matches!(entry.slots.get(entry.first), Some(Slot::Taken)) {
            entry.first += 1;
        }
        Work { claim: Claim { job: entry.job.clone(), samples: offset..end }, record, ticket }
    }

    fn ticket(&self, at: usize, offset: usize) -> Ticket {
        let serial = self.entries[at].serial;
        Ticket { generation: self.generation, entry: self.first_entry + at as u64, serial, offset }
    }

    /// A sample for a reader, with memory to read into. Opens a batch when all under way are read.
    pub(crate) fn read(&mut self) -> Option<(Ticket, Arc<Job>, Fetched)> {
        // For a batch that is made solo, only the I/O layer reads ahead of the workers.
        if self.read_bytes >= self.read_budget || (self.solo == Solo::Open && self.ahead == 0) {
            return None;
        }
        loop {
            if let Some((at, offset)) = self.find(|slot| matches!(slot, Slot::Free)) {
                let ticket = self.ticket(at, offset);
                let entry = &mut self.entries[at];
                entry.slots[offset] = Slot::Reading;
                return Some((ticket, entry.job.clone(), self.spare.pop().unwrap_or_default()));
            }
            if !self.open() {
                return None;
            }
        }
    }

    /// A reader is done with a sample; `None` if there was no room for it. Given back if its batch was abandoned
    /// meanwhile, to be freed elsewhere.
    pub(crate) fn put_read(
        &mut self,
        ticket: Ticket,
        read: Option<Result<Fetched>>,
    ) -> Option<Result<Fetched>> {
        let Some((_, entry)) = self.entry(ticket) else { return read };
        let Some(read) = read.map(Box::new) else {
            entry.slots[ticket.offset] = Slot::Direct;
            return None;
        };
        let bytes = size(&read);
        entry.slots[ticket.offset] = Slot::Read(read);
        self.read_count += 1;
        self.read_bytes += bytes;
        self.pool.budget().force(bytes, Holder::Records);
        None
    }

    /// Memory of a record that is no longer needed. Given back if there is enough, to be freed elsewhere.
    pub(crate) fn recycle(&mut self, record: Fetched) -> Option<Fetched> {
        let most = if self.ahead > 0 { SPARE } else { 2 * self.settings.readers };
        // A large one would keep its size for ever.
        let large = record.capacity() as u64 > self.read_budget / (2 * most.max(1)) as u64;
        if large || self.spare.len() >= most || self.is_solo() {
            return Some(record);
        }
        self.spare.push(record);
        None
    }

    /// Counts finished samples. True if the consumer waits for what is complete now.
    pub(crate) fn done(&mut self, done: &Done) -> bool {
        self.claims -= 1;
        let Some((_, entry)) = self.entry(done.ticket) else { return false };
        entry.done += done.count;
        entry.done == entry.slots.len() && self.serves(self.awaited.unwrap_or(usize::MAX))
    }

    /// The consumer waits until so many batches are complete, or fewer where workers have nothing to do.
    pub(crate) fn wait_for(&mut self, batches: usize) {
        self.awaited = Some(batches);
    }

    /// Whether the consumer still waits.
    pub(crate) fn is_awaited(&self) -> bool {
        self.awaited.is_some()
    }

    /// Whether the consumer waits and at least so many batches are complete: then it waits no longer.
    pub(crate) fn serves(&mut self, least: usize) -> bool {
        let serves = self.awaited.is_some() && self.ready() >= least;
        if serves {
            self.awaited = None;
        }
        serves
    }

    /// The next batch in order, if it is complete.
    pub(crate) fn deliver(&mut self) -> Option<Arc<Job>> {
        let complete = self.entries.front().is_some_and(|entry| entry.done == entry.slots.len());
        let entry = complete.then(|| self.entries.pop_front()).flatten()?;
        self.awaited = None;
        self.first_entry += 1;
        self.open_bytes -= entry.bytes;
        self.open_samples -= entry.slots.len();
        self.note_size(&entry.job);
        if self.solo == Solo::Open {
            self.solo = Solo::Leaving;
        }
        Some(entry.job)
    }

    /// Batches that are complete, from the next one to be delivered on.
    pub(crate) fn ready(&self) -> usize {
        self.entries.iter().take_while(|entry| entry.done == entry.slots.len()).count()
    }
}

fn size(read: &Result<Fetched>) -> u64 {
    read.as_ref().map_or(0, |record| record.capacity() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        budget::Budget,
        column::ColumnKind,
        order::Order,
        plan::Node,
        sample::{DType, Record},
        source::SourceSpec,
    };

    fn leaf() -> Node {
        Node::source(SourceSpec::Custom { name: String::new() })
    }

    fn schedule(samples: u64, batch_size: usize, prefetch: usize) -> Schedule {
        let order = Order::new(&leaf().batch(batch_size, false), &[samples]).unwrap();
        let settings = Settings { workers: 1, prefetch, readers: 0 };
        Schedule::new(
            Batches::planned(Arc::new(order)),
            Columns::new(&[], &Budget::new()),
            Pool::new(4),
            None,
            settings,
            Shares::each(1 << 20),
        )
    }

    #[test]
    fn batches_are_opened_up_to_the_prefetch_and_across_epochs() {
        let mut s = schedule(3, 2, 3);
        let works: Vec<Work> = std::iter::from_fn(|| s.work()).collect();
        let places: Vec<_> =
            works.iter().map(|w| (w.claim.job.epoch, w.claim.job.number, w.claim.samples.start)).collect();
        assert_eq!(places, [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0), (1, 0, 1)]);
        assert!(s.deliver().is_none());
        s.wait_for(1);
        let ready: Vec<bool> = works.into_iter().rev().map(|w| s.done(&w.finish())).collect();
        assert_eq!(ready, [false, false, false, false, true]);
        assert_eq!(s.ready(), 3);
        assert_eq!(s.deliver().map(|job| job.number), Some(0));
        assert_eq!(s.work().unwrap().claim.job.number, 1);
    }

    #[test]
    fn a_consumer_that_waits_for_several_gets_fewer_where_nothing_is_left_to_do() {
        let mut s = schedule(9, 1, 4);
        let mut works = std::iter::from_fn(|| s.work()).collect::<Vec<_>>().into_iter();
        let mut done = |s: &mut Schedule| s.done(&works.next().unwrap().finish());
        assert!(!done(&mut s) && !s.serves(0), "nobody waits");
        s.wait_for(3);
        assert!(!done(&mut s) && s.is_awaited());
        assert!(done(&mut s) && !s.is_awaited());
        assert!(!done(&mut s), "it was told already");
        assert!(s.deliver().is_some());
        s.wait_for(4);
        assert!(s.serves(1) && !s.serves(1), "a worker without work tells it, once");
        while s.deliver().is_some() {}
        s.wait_for(1);
        assert!(!s.serves(1) && s.is_awaited(), "there is none");
        drop(s.abandon());
    }

    #[test]
    fn what_readers_fetched_is_taken_first_and_counted() {
        let mut s = schedule(4, 4, 1);
        let (first, _, _) = s.read().unwrap();
        assert_eq!(first.offset(), 0);
        let mut record = Record::default();
        record.reset(1);
        record.values[0].buffer().extend([1; 100]);
        assert_eq!(s.work().unwrap().claim.samples, 1..2);
        assert!(s.put_read(first, Some(Ok(Fetched::of(record)))).is_none());
        assert!(s.read_bytes >= 100);
        let work = s.work().unwrap();
        assert_eq!((work.claim.samples.clone(), work.record.is_some()), (0..1, true));
        assert_eq!(s.read_bytes, 0);
    }

    #[test]
    fn a_jump_abandons_what_is_under_way_but_a_known_place_does_not() {
        let mut s = schedule(8, 2, 2);
        let old = s.work().unwrap();
        let reading = s.read().unwrap();
        drop(s.go_to(Position::start_of(0)).unwrap());
        assert_eq!(s.work().unwrap().claim.job.number, 1, "the same place keeps the work");
        drop(s.go_to(Position { epoch: 5, base: 0, number: 1 }).unwrap());
        assert!(!s.done(&old.finish()));
        assert!(s.put_read(reading.0, Some(Ok(Fetched::default()))).is_some(), "nobody wants it any more");
        let new = s.work().unwrap();
        assert_eq!((new.claim.job.epoch, new.claim.job.number, new.claim.samples.start), (5, 1, 0));
    }

    #[test]
    fn the_layer_reads_ahead_of_the_ring_and_workers_take_only_what_it_brought() {
        let mut s = schedule(100, 2, 2);
        s.read_by_layer(9);
        assert!(s.work().is_none(), "workers read nothing");
        let tickets: Vec<Ticket> = std::iter::from_fn(|| s.read()).map(|(ticket, ..)| ticket).collect();
        assert_eq!(tickets.len(), 10, "whole batches, until nine samples are open");
        let put = |s: &mut Schedule, number: usize| {
            assert!(s.put_read(tickets[number], Some(Ok(Fetched::default()))).is_none())
        };
        put(&mut s, 5);
        assert!(s.work().is_none(), "the third batch has no buffers yet");
        put(&mut s, 1);
        let work = s.work().unwrap();
        assert_eq!(
            (work.claim.job.number, work.claim.samples.clone(), work.record.is_some()),
            (0, 1..2, true)
        );
        s.done(&work.finish());
        put(&mut s, 0);
        let work = s.work().unwrap();
        s.wait_for(1);
        assert!(s.done(&work.finish()));
        assert!(s.deliver().is_some());
        assert_eq!(s.work().unwrap().claim.job.number, 2);
        assert!(s.read().is_some(), "another batch is opened");
    }

    #[test]
    fn buffers_are_neither_made_nor_freed_while_the_schedule_is_locked() {
        let order = Order::new(&leaf().batch(2, false), &[4]).unwrap();
        let kind = ColumnKind::Array { dtype: DType::UInt8, shape: vec![1000] };
        let columns = Columns::new(&[ColumnSpec { name: "x".into(), kind }], &Budget::new());
        let (settings, pool) = (Settings { workers: 1, prefetch: 2, readers: 0 }, Pool::new(4));
        let budgets = Shares::each(1 << 20);
        let batches = Batches::planned(Arc::new(order));
        let mut s = Schedule::new(batches, columns, pool.clone(), None, settings, budgets);
        // Whatever is called here is called under the lock.
        let mut work = s.work().unwrap();
        assert_eq!(pool.held(), 0, "opening a batch takes no memory");
        work.claim.slot(0).unwrap().array(0).fill(1);
        assert_eq!(pool.held(), 2000, "the first worker that writes does");
        drop(work);
        let first = pool.take(2000).unwrap();
        let before = first.as_ptr();
        drop(first);
        let abandoned = s.go_to(Position::start_of(3)).unwrap();
        let other = pool.take(2000).unwrap();
        assert_eq!((pool.held(), other.as_ptr()), (4000, before), "the buffer is not back yet");
        drop(abandoned);
        drop(pool.take(2000));
        assert_eq!(pool.held(), 4000, "now it is");
    }

    #[test]
    fn given_batches_are_opened_in_turn_and_a_new_pass_drops_them() {
        let settings = Settings { workers: 1, prefetch: 2, readers: 0 };
        let mut s = Schedule::new(
            Batches::given(),
            Columns::new(&[], &Budget::new()),
            Pool::new(4),
            None,
            settings,
            Shares::each(1 << 20),
        );
        assert!(s.go_to(Position::start_of(1)).is_err(), "it has no epochs");
        assert!(s.pass_is_over().is_err(), "no pass has begun");
        drop(s.begin(1, 0).unwrap());
        assert!(s.pass_is_over().is_err() && s.work().is_none(), "nothing was submitted");
        for batch in [vec![7, 7], vec![2], vec![3]] {
            s.given().unwrap().submit(batch.into(), None).unwrap();
        }
        let works: Vec<Work> = std::iter::from_fn(|| s.work()).collect();
        let places: Vec<_> = works.iter().map(|w| (w.claim.job.number, w.claim.samples.start)).collect();
        assert_eq!(places, [(0, 0), (0, 1), (1, 0)], "two are open, one waits");
        for work in works {
            s.done(&work.finish());
        }
        assert_eq!(s.deliver().unwrap().span.len, 2);
        let old = s.work().unwrap();
        drop(s.begin(1, 3).unwrap());
        s.wait_for(1);
        assert!(!s.done(&old.finish()) && s.deliver().is_none());
        s.given().unwrap().submit([5].into(), None).unwrap();
        s.given().unwrap().finish().unwrap();
        let work = s.work().unwrap();
        assert_eq!((work.claim.job.number, work.claim.job.span.position(0)), (0, Some(3)));
        assert!(s.done(&work.finish()) && !s.pass_is_over().unwrap());
        assert!(s.deliver().is_some() && s.pass_is_over().unwrap());
    }

    #[test]
    fn the_batch_opened_last_makes_room_and_is_opened_again() {
        let mut s = schedule(8, 1, 3);
        let works: Vec<Work> = std::iter::from_fn(|| s.work()).collect();
        let [first, second, third] = &works[..] else { panic!("three batches are open") };
        let (first, second, third) =
            (&first.claim.job.clone(), &second.claim.job.clone(), &third.claim.job.clone());
        assert!(matches!(s.make_room(first), Evicted::Another(_)));
        assert!(matches!(s.make_room(third), Evicted::Itself(_)), "it is not under way any more");
        assert!(matches!(s.make_room(second), Evicted::Itself(_)), "it was opened last");
        assert!(matches!(s.make_room(first), Evicted::None));
        let again = s.work().unwrap();
        assert_eq!(again.claim.job.number, 1);
        s.wait_for(1);
        let done: Vec<bool> = works.into_iter().map(|work| s.done(&work.finish())).collect();
        assert_eq!(
            (done, s.ready()),
            (vec![true, false, false], 1),
            "what was taken back counts for nothing"
        );
        assert!(s.done(&again.finish()) || s.ready() == 2);
    }

    #[test]
    fn a_batch_is_opened_solo_once_nothing_is_held_and_others_once_it_is_gone() {
        let mut s = schedule(8, 1, 3);
        let (budget, shares) = (s.pool.budget().clone(), s.shares);
        shares.set(&budget);
        let works: Vec<Work> = std::iter::from_fn(|| s.work()).collect();
        let Ok([first, second, third]) = <[Work; 3]>::try_from(works) else {
            panic!("three batches are open")
        };
        drop(s.make_solo(&second.claim.job.clone()));
        assert!(s.is_solo() && !s.waits_for_memory() && s.work().is_none());
        s.wait_for(1);
        assert!(s.done(&first.finish()), "batches before it are completed");
        assert_eq!(s.deliver().map(|job| job.number), Some(0));
        assert!(!s.done(&second.finish()) && s.waits_for_memory());
        assert!(s.work().is_none(), "the last worker is not back");
        s.done(&third.finish());
        budget.force(5, Holder::Samples);
        assert!(s.work().is_none(), "memory is held");
        budget.give(5, Holder::Samples);
        let solo = s.work().unwrap();
        assert_eq!((solo.claim.job.number, solo.claim.job.solo), (1, true));
        assert_eq!(budget.cap(Holder::Samples), shares.solo(0).samples);
        assert!(s.work().is_none() && s.read().is_none(), "nothing is made or read beside it");
        s.done(&solo.finish());
        budget.force(7, Holder::Lists);
        assert_eq!(s.deliver().map(|job| job.number), Some(1));
        assert!(s.work().is_none(), "its memory is not back");
        budget.give(7, Holder::Lists);
        let next = s.work().unwrap();
        assert_eq!((next.claim.job.number, next.claim.job.solo, s.is_solo()), (2, false, false));
        assert_eq!(budget.cap(Holder::Samples), shares.samples);
        // A jump forgets one that was not begun, and waits for the memory of one that was.
        drop(s.make_solo(&next.claim.job.clone()));
        drop(s.go_to(Position::start_of(3)).unwrap());
        s.done(&next.finish());
        let other = s.work().unwrap();
        assert!(!s.is_solo() && !other.claim.job.solo);
        drop(s.make_solo(&other.claim.job.clone()));
        s.done(&other.finish());
        let solo = s.work().unwrap();
        drop(s.go_to(Position::start_of(4)).unwrap());
        assert!(s.work().is_none(), "a worker is still at it");
        s.done(&solo.finish());
        assert!(s.work().is_some() && !s.is_solo());
    }

    #[test]
    fn what_is_too_large_to_be_read_ahead_is_left_to_workers() {
        let mut s = schedule(2, 2, 1);
        let (ticket, ..) = s.read().unwrap();
        s.put_read(ticket, None);
        assert_eq!(s.read().map(|(ticket, ..)| ticket.offset), Some(1), "it is not read again");
        assert_eq!(s.work().unwrap().claim.samples, 0..1);
        let large =
            Record { values: vec![crate::sample::Value::Bytes(vec![0; 1 << 20])], ..Record::default() };
        s.settings.readers = 1;
        s.recycle(Fetched::of(large));
        assert!(s.spare.is_empty());
    }

    #[test]
    fn an_empty_data_set_has_no_work() {
        assert!(schedule(0, 2, 2).work().is_none());
    }
}
