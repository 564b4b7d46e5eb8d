//! [`Layer`]: gets the bytes of many samples from a store that answers later, many requests at once.
//!
//! A *want* is what one sample needs; a *call* is one request of the store, which may serve several wants. The layer is
//! plain data owned by one thread, which asks it what has come ([`Layer::poll`]) and sleeps in [`Mailbox::wait`]. The
//! store's threads only put answers into the mailbox.
//!
//! What the [`Keeper`] of a cache on local disk may have, it is asked for first; what it has not becomes calls.
//!
//! How many calls of a store are under way its [`Line`] decides. A call that takes longer than nearly all others of its
//! size is made a second time, and whichever answer comes first is taken.
//!
//! Invariants: every want that was submitted and not cancelled is given back exactly once; a call without a want is
//! cancelled at once, and so is the slower one of two; of each store as many calls are under way as its line allows, and
//! second ones, of which there is one in a hundred calls at most.

use std::{
    collections::{BTreeSet, HashMap},
    ops::Range,
    sync::{Arc, Condvar, Mutex},
    time::{Duration, Instant},
};

use super::{
    Bytes, Located,
    blocks::Blocks,
    cache::{Ask, Found, Guard, Keeper, Name, Reply},
    coalesce::{self, Merged, Taker},
    line::Line,
    times::Times,
};
use crate::{
    Error, ErrorKind, Result, lock,
    meter::RequestStats,
    store::{Pending, Request, Retry, Store},
};

/// What an object that is read as a whole is thought to have before one has come, in bytes.
const GUESS: f64 = 256.0 * 1024.0;

/// Answers on their way to the layer, and a bell for its thread.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    state: Mutex<Mail>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Mail {
    answers: Vec<Answer>,
    replies: Vec<Reply>,
    rung: bool,
}

#[derive(Debug)]
struct Answer {
    call: u64,
    attempt: u32,
    /// Of the second request of this attempt.
    second: bool,
    result: Result<Vec<u8>>,
}

impl Mailbox {
    /// Ends the present or next [`Mailbox::wait`].
    pub(crate) fn ring(&self) {
        lock(&self.state).rung = true;
        self.changed.notify_one();
    }

    /// Waits for an answer or the bell, at most until `until`.
    pub(crate) fn wait(&self, until: Option<Instant>) {
        let mut state = lock(&self.state);
        while state.answers.is_empty() && state.replies.is_empty() && !state.rung {
            state = match until.map(|until| until.saturating_duration_since(Instant::now())) {
                Some(Duration::ZERO) => break,
                Some(left) => {
                    self.changed.wait_timeout(state, left).unwrap_or_else(|poisoned| poisoned.into_inner()).0
                }
                None => self.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner()),
            };
        }
        state.rung = false;
    }

    fn put(&self, answer: Answer) {
        lock(&self.state).answers.push(answer);
        self.changed.notify_one();
    }

    /// What a cache on local disk has, or has not.
    pub(crate) fn reply(&self, replies: Vec<Reply>) {
        lock(&self.state).replies.extend(replies);
        self.changed.notify_one();
    }

    fn take(&self) -> (Vec<Answer>, Vec<Reply>) {
        let mut state = lock(&self.state);
        (std::mem::take(&mut state.answers), std::mem::take(&mut state.replies))
    }
}

#[derive(Debug)]
struct Want<T> {
    tag: T,
    extents: Vec<Located>,
    pieces: Vec<Option<Bytes>>,
    missing: usize,
    /// What is known of a piece to the cache, and the claim to download it.
    notes: Vec<Option<(Name, Option<Guard>)>>,
}

#[derive(Debug)]
struct Call {
    store: usize,
    path: Arc<str>,
    range: Option<Range<u64>>,
    max_bytes: u64,
    takers: Vec<Taker>,
    /// Bytes that it is thought to bring.
    cost: u64,
    /// Times that it failed.
    failed: u32,
    /// When it first began.
    since: Option<Instant>,
    /// What is under way.
    flight: Option<Flight>,
}

/// A call under way.
#[derive(Debug)]
struct Flight {
    begun: Instant,
    /// When it is given up.
    deadline: Instant,
    /// When it will be among the slowest percent, and is made a second time.
    slow: Option<Instant>,
    /// The request, and the second one. What failed is gone.
    first: Option<Pending>,
    second: Option<Pending>,
}

/// A want that is settled: whose it is, and its bytes in the order of its extents.
pub(crate) type Arrived<T> = (T, Result<Vec<Bytes>>);

#[derive(Debug)]
pub(crate) struct Layer<T> {
    lines: Vec<Line>,
    mailbox: Arc<Mailbox>,
    wants: HashMap<u64, Want<T>>,
    calls: HashMap<u64, Call>,
    number: u64,
    /// When calls that failed begin again.
    again: BTreeSet<(Instant, u64)>,
    /// When calls under way are given up.
    deadlines: BTreeSet<(Instant, u64)>,
    /// When calls under way will be slow.
    slow: BTreeSet<(Instant, u64)>,
    /// Bytes that calls are thought to bring.
    flying: u64,
    /// Mean size of objects that were read as a whole.
    mean: f64,
    blocks: Blocks,
    keeper: Option<Arc<Keeper>>,
    /// Bytes that the keeper is thought to bring.
    reading: u64,
    settled: Vec<Arrived<T>>,
    /// What is counted; the rest of the numbers is made when they are asked for.
    counts: RequestStats,
}

impl<T> Layer<T> {
    /// A layer over stores that answer later, with at most `most` requests under way at each.
    pub(crate) fn new(stores: Vec<(Arc<dyn Store>, Retry)>, most: usize, mailbox: Arc<Mailbox>) -> Self {
        let line = |(store, retry)| Line::new(store, retry, most);
        Self {
            lines: stores.into_iter().map(line).collect(),
            mailbox,
            wants: HashMap::new(),
            calls: HashMap::new(),
            number: 0,
            again: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            slow: BTreeSet::new(),
            flying: 0,
            mean: GUESS,
            blocks: Blocks::default(),
            keeper: None,
            reading: 0,
            settled: Vec::new(),
            counts: RequestStats::default(),
        }
    }

    /// Asks this cache before the stores, and gives it what has come.
    pub(crate) fn with_keeper(mut self, keeper: Option<Arc<Keeper>>) -> Self {
        self.keeper = keeper;
        self
    }

    /// What has been asked for so far, and how long it took.
    pub(crate) fn stats(&self) -> RequestStats {
        let times: Vec<&Times> = self.lines.iter().map(|line| &line.times).collect();
        RequestStats {
            in_flight: self.lines.iter().map(|line| line.under_way).sum(),
            limit: self.lines.iter().map(|line| line.window.limit()).sum(),
            connections: self.lines.iter().map(|line| line.window.most()).sum(),
            throttled: self.lines.iter().map(Line::slowed).sum(),
            p50: Times::percentile(&times, 0.5),
            p95: Times::percentile(&times, 0.95),
            p99: Times::percentile(&times, 0.99),
            ..self.counts.clone()
        }
    }

    /// Wants that are not settled.
    pub(crate) fn wanted(&self) -> usize {
        self.wants.len()
    }

    /// Bytes that are under way, as far as that is known, and those of kept blocks.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.flying + self.reading, self.blocks.bytes())
    }

    /// Keeps blocks in at most so many bytes.
    pub(crate) fn keep(&mut self, limit: u64) {
        self.blocks.shrink(limit);
    }

    /// Asks for the bytes of several samples together: what lies side by side becomes one request.
    pub(crate) fn submit(&mut self, wants: impl IntoIterator<Item = (T, Vec<Located>)>, now: Instant) {
        let (mut extents, mut asks) = (Vec::new(), Vec::new());
        for (tag, wanted) in wants {
            let number = self.next_number();
            let mut pieces = Vec::with_capacity(wanted.len());
            let mut notes = Vec::new();
            let mut missing = 0;
            for (piece, located) in wanted.iter().enumerate() {
                let kept = self.blocks.get(located);
                if let (Some(keeper), Some(bytes)) = (&self.keeper, &kept) {
                    // It may have come between others that were wanted, and was kept for none of them.
                    if let Some(name) = self.name(located) {
                        keeper.offer(name, located.need, bytes);
                    }
                }
                if kept.is_none() {
                    missing += 1;
                    match self.name(located) {
                        Some(name) => {
                            notes.resize_with(wanted.len(), || None);
                            notes[piece] = Some((name, None));
                            asks.push(self.ask(number, piece, name, located));
                        }
                        None => extents.push((number, piece, located.clone())),
                    }
                }
                pieces.push(kept);
            }
            self.wants.insert(number, Want { tag, extents: wanted, pieces, missing, notes });
            if missing == 0 {
                self.settle(number, Ok(()));
            }
        }
        if let Some(keeper) = &self.keeper {
            keeper.ask(asks);
        }
        for merged in coalesce::merge(extents) {
            self.enqueue(merged);
        }
        self.begin(now);
    }

    /// What was settled since the last call. `room`: bytes that kept blocks may have.
    pub(crate) fn poll(&mut self, now: Instant, room: u64) -> Vec<Arrived<T>> {
        for line in &mut self.lines {
            line.look(now);
        }
        loop {
            let (answers, replies) = self.mailbox.take();
            if answers.is_empty() && replies.is_empty() {
                break;
            }
            self.replied(replies, room);
            // As it was while they came: what has been answered makes room, which is no want of requests.
            let full: Vec<bool> = self.lines.iter().map(Line::is_full).collect();
            for answer in answers {
                self.answer(answer, &full, now, room);
            }
            self.begin(now);
        }
        while let Some((at, call)) = self.deadlines.first().copied().filter(|(at, _)| *at <= now) {
            self.deadlines.remove(&(at, call));
            let Some(late) = self.calls.get(&call) else { continue };
            let line = &mut self.lines[late.store];
            line.window.failed(now);
            let (path, time) = (late.path.clone(), line.retry.deadline.as_secs_f64());
            let hint = "storage is down or overloaded";
            let error =
                Error::transient(format!("cannot read {path}: no answer in {time:.1} s")).with_hint(hint);
            // Dropping the requests cancels them; what they may still bring is of an old attempt.
            self.land(call);
            self.failed(call, error, now, room);
        }
        while let Some((at, call)) = self.slow.first().copied().filter(|(at, _)| *at <= now) {
            self.slow.remove(&(at, call));
            self.ask_twice(call);
        }
        while let Some((at, call)) = self.again.first().copied().filter(|(at, _)| *at <= now) {
            self.again.remove(&(at, call));
            if let Some(store) = self.calls.get(&call).map(|call| call.store) {
                self.lines[store].queue.push_front(call);
            }
        }
        self.begin(now);
        std::mem::take(&mut self.settled)
    }

    /// When [`Layer::poll`] has something to do even if no answer comes.
    pub(crate) fn next(&self) -> Option<Instant> {
        let first = |set: &BTreeSet<(Instant, u64)>| set.first().map(|(at, _)| *at);
        [&self.deadlines, &self.slow, &self.again].into_iter().filter_map(first).min()
    }

    /// Drops the wants that are not to be kept, and cancels the requests that nobody else waits for.
    pub(crate) fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        let gone: Vec<u64> =
            self.wants.iter().filter(|(_, want)| !keep(&want.tag)).map(|(number, _)| *number).collect();
        for want in gone {
            self.wants.remove(&want);
        }
        self.prune();
        self.settled.retain(|(tag, _)| keep(tag));
    }

    /// Whose wants are not settled.
    pub(crate) fn flights(&self) -> impl Iterator<Item = &T> {
        self.wants.values().map(|want| &want.tag)
    }

    /// What the cache calls a range, if it is known of which version of its object it is.
    fn name(&self, located: &Located) -> Option<Name> {
        self.keeper.as_ref()?;
        let remote = self.lines[located.store].store.remote()?;
        Some(Name::of(remote.version(&located.extent.path)?, located.extent.range.as_ref()))
    }

    fn ask(&mut self, want: u64, piece: usize, name: Name, located: &Located) -> Ask {
        let cost = self.cost(located);
        self.reading += cost;
        let Located { extent, need, .. } = located;
        let exactly = extent.range.as_ref().map(|range| range.end - range.start);
        Ask { want, piece, name, exactly, most: extent.max_bytes, need: *need, cost }
    }

    /// Bytes that are thought to come.
    fn cost(&self, Located { extent, .. }: &Located) -> u64 {
        match &extent.range {
            Some(range) => range.end - range.start,
            None => (self.mean as u64).min(extent.max_bytes),
        }
    }

    /// The cache has answered: what it has not becomes calls, neighbours together.
    fn replied(&mut self, replies: Vec<Reply>, room: u64) {
        let mut extents = Vec::new();
        for Reply { want: number, piece, found, cost } in replies {
            self.reading -= cost;
            let Some(want) = self.wants.get_mut(&number) else { continue };
            match found {
                Found::Here(bytes) => {
                    let (block, located) = (Arc::new(bytes), &want.extents[piece]);
                    let (store, extent) = (located.store, &located.extent);
                    self.blocks.put((store, &extent.path), extent.range.as_ref(), &block, room);
                    want.notes[piece] = None;
                    self.give(number, piece, Bytes::of(&block, 0..block.len()));
                }
                Found::Missing(guard) => {
                    if let Some((_, claimed)) = want.notes.get_mut(piece).and_then(Option::as_mut) {
                        *claimed = guard;
                    }
                    extents.push((number, piece, want.extents[piece].clone()));
                }
            }
        }
        for merged in coalesce::merge(extents) {
            self.enqueue(merged);
        }
    }

    /// A piece of a want has come.
    fn give(&mut self, number: u64, piece: usize, bytes: Option<Bytes>) {
        let Some(want) = self.wants.get_mut(&number) else { return };
        want.pieces[piece] = bytes;
        want.missing -= 1;
        if want.missing == 0 {
            self.settle(number, Ok(()));
        }
    }

    fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    fn enqueue(&mut self, merged: Merged) {
        let Merged { store, path, range, max_bytes, takers } = merged;
        let cost = match &range {
            Some(range) => range.end - range.start,
            None => (self.mean as u64).min(max_bytes),
        };
        let number = self.next_number();
        self.flying += cost;
        let call = Call { store, path, range, max_bytes, takers, cost, failed: 0, since: None, flight: None };
        self.calls.insert(number, call);
        self.lines[store].queue.push_back(number);
    }

    /// Begins calls as long as there is room for them.
    fn begin(&mut self, now: Instant) {
        for line in &mut self.lines {
            while !line.is_full() {
                let Some(number) = line.queue.pop_front() else { break };
                let Some(call) = self.calls.get_mut(&number) else { continue };
                call.since.get_or_insert(now);
                let deadline = now + line.retry.deadline;
                let slow = line.begins(call.cost, now).filter(|slow| *slow < deadline);
                self.deadlines.insert((deadline, number));
                self.slow.extend(slow.map(|slow| (slow, number)));
                self.counts.requests += 1;
                let first = Some(call.ask(number, false, line, &self.mailbox));
                call.flight = Some(Flight { begun: now, deadline, slow, first, second: None });
            }
        }
    }

    /// Makes the second request of a call that is slow, if there may be one.
    fn ask_twice(&mut self, number: u64) {
        let Some(call) = self.calls.get_mut(&number) else { return };
        let line = &mut self.lines[call.store];
        // Once the server has asked for less, it is not asked for more.
        if line.slowed_since(call.flight.as_ref().map(|flight| flight.begun)) || !line.ask_twice() {
            return;
        }
        let second = call.ask(number, true, line, &self.mailbox);
        let Some(flight) = &mut call.flight else { return };
        flight.second = Some(second);
        self.flying += call.cost;
        self.counts.requests += 1;
        self.counts.hedged += 1;
    }

    /// Ends what is under way of a call: requests that were not answered are cancelled.
    fn land(&mut self, number: u64) -> Option<Flight> {
        let call = self.calls.get_mut(&number)?;
        let flight = call.flight.take()?;
        self.lines[call.store].under_way -= 1;
        self.deadlines.remove(&(flight.deadline, number));
        if let Some(slow) = flight.slow {
            self.slow.remove(&(slow, number));
        }
        if flight.second.is_some() {
            self.flying -= call.cost;
        }
        Some(flight)
    }

    fn answer(&mut self, answer: Answer, full: &[bool], now: Instant, room: u64) {
        let Answer { call: number, attempt, second, result } = answer;
        let Some(call) = self.calls.get_mut(&number).filter(|call| call.failed == attempt) else { return };
        let Some(flight) = &mut call.flight else { return };
        let checked = result.and_then(|bytes| check(&call.path, call.range.as_ref(), call.max_bytes, bytes));
        let may_pass = checked.as_ref().is_err_and(|error| error.kind() == ErrorKind::Transient);
        if may_pass && flight.first.is_some() && flight.second.is_some() {
            // The other one may still do.
            self.lines[call.store].window.failed(now);
            if second {
                flight.second = None;
            } else {
                flight.first = flight.second.take();
            }
            self.flying -= call.cost;
            return;
        }
        let (store, took) = (call.store, now.saturating_duration_since(flight.begun));
        self.land(number);
        let line = &mut self.lines[store];
        self.counts.seconds += took.as_secs_f64();
        match checked {
            Ok(bytes) => {
                let size = bytes.len() as u64;
                line.times.add(size, took);
                line.window.answered(now, size, took, full[store]);
                self.counts.bytes += size;
                self.arrived(number, Arc::new(bytes), room);
            }
            Err(error) => {
                if may_pass {
                    line.window.failed(now);
                } else {
                    line.window.answered(now, 0, took, full[store]);
                }
                self.failed(number, error, now, room);
            }
        }
    }

    fn arrived(&mut self, number: u64, block: Arc<Vec<u8>>, room: u64) {
        let Some(call) = self.calls.remove(&number) else { return };
        self.flying -= call.cost;
        if call.range.is_none() {
            self.mean += (block.len() as f64 - self.mean) / 16.0;
        }
        self.blocks.put((call.store, &call.path), call.range.as_ref(), &block, room);
        for Taker { want: number, piece, part } in call.takers {
            let Some(want) = self.wants.get_mut(&number) else { continue };
            let most = want.extents.get(piece).map_or(0, |located| located.extent.max_bytes);
            let part = part.unwrap_or(0..block.len());
            if part.len() as u64 > most {
                let error = Error::limit(&call.path, part.len() as u64, most, "bytes");
                self.settle(number, Err(error));
                continue;
            }
            let bytes = Bytes::of(&block, part);
            if let (Some(keeper), Some(bytes)) = (&self.keeper, &bytes) {
                let located = &want.extents[piece];
                let known = want.notes.get_mut(piece).and_then(Option::take);
                // What was not known before may be known by the answer.
                let known = known.or_else(|| {
                    let remote = self.lines[located.store].store.remote()?;
                    let version = remote.version(&located.extent.path)?;
                    Some((Name::of(version, located.extent.range.as_ref()), None))
                });
                match known {
                    Some((name, guard)) => keeper.keep(name, located.need, bytes, guard),
                    None => keeper.downloaded(bytes.len() as u64),
                }
            }
            self.give(number, piece, bytes);
        }
    }

    /// A call failed: it is tried again, or asked for piece by piece, or given up.
    fn failed(&mut self, number: u64, error: Error, now: Instant, room: u64) {
        let Some(call) = self.calls.get_mut(&number) else { return };
        call.failed += 1;
        let elapsed = call.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        let error = if error.kind() == ErrorKind::Transient {
            let retry = &self.lines[call.store].retry;
            if let Some(pause) = retry.pause(&call.path, call.failed, elapsed) {
                self.again.insert((now + pause, number));
                self.counts.retried += 1;
                return;
            }
            retry.exhausted(error, call.failed, elapsed)
        } else {
            error
        };
        let Some(call) = self.calls.remove(&number) else { return };
        self.flying -= call.cost;
        if call.takers.len() > 1 && error.kind() != ErrorKind::Transient {
            // What is wrong with one sample must not fail its neighbours: each is asked for by itself.
            for Taker { want: number, piece, .. } in call.takers {
                let extent = self.wants.get(&number).and_then(|want| want.extents.get(piece)).cloned();
                if let Some(extent) = extent {
                    self.enqueue(coalesce::alone(number, piece, extent));
                }
            }
            return;
        }
        for taker in call.takers {
            self.settle(taker.want, Err(error.clone()));
        }
        self.blocks.shrink(room);
        self.prune();
    }

    fn settle(&mut self, number: u64, result: Result<()>) {
        // A want that failed at one of its extents is gone when the next one comes.
        let Some(want) = self.wants.remove(&number) else { return };
        let pieces = || want.pieces.into_iter().collect::<Option<Vec<Bytes>>>();
        let result = result.and_then(|()| {
            pieces().ok_or_else(|| {
                Error::new(ErrorKind::Internal, "an answer is shorter than what was asked for")
            })
        });
        self.settled.push((want.tag, result));
    }

    /// Cancels calls that no want waits for.
    fn prune(&mut self) {
        let wants = &self.wants;
        let mut gone = Vec::new();
        for (number, call) in &mut self.calls {
            call.takers.retain(|taker| wants.contains_key(&taker.want));
            if call.takers.is_empty() {
                gone.push(*number);
            }
        }
        for number in gone {
            self.land(number);
            self.flying -= self.calls.remove(&number).map_or(0, |call| call.cost);
        }
        let calls = &self.calls;
        self.again.retain(|(_, number)| calls.contains_key(number));
        for line in &mut self.lines {
            line.queue.retain(|number| calls.contains_key(number));
        }
    }
}

impl Call {
    /// Begins a request.
    fn ask(&self, number: u64, second: bool, line: &Line, mailbox: &Arc<Mailbox>) -> Pending {
        let request =
            Request { path: self.path.clone(), range: self.range.clone(), max_bytes: self.max_bytes };
        let (mailbox, attempt) = (mailbox.clone(), self.failed);
        let done = Box::new(move |result| mailbox.put(Answer { call: number, attempt, second, result }));
        if let Some(remote) = line.store.remote() {
            return remote.begin(request, done);
        }
        // Only a store that answers later has a layer.
        done(Err(Error::new(ErrorKind::Internal, "the store takes no requests")));
        Pending::new(|| {})
    }
}

/// Refuses an answer that has another length than was asked for.
fn check(path: &str, range: Option<&Range<u64>>, max_bytes: u64, bytes: Vec<u8>) -> Result<Vec<u8>> {
    let got = bytes.len() as u64;
    match range {
        Some(range) if got != range.end - range.start => {
            let (start, wanted) = (range.start, range.end - range.start);
            Err(Error::corrupt(format!("{path} gave {got} of the {wanted} bytes wanted from byte {start}"))
                .with_offset(start))
        }
        None if got > max_bytes => Err(Error::limit(path, got, max_bytes, "bytes")),
        _ => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Extent, Need, testing::ManualStore, window::FIRST},
        *,
    };

    const NO_PAUSE: Retry = Retry {
        attempts: 3,
        first: Duration::ZERO,
        most: Duration::ZERO,
        total: Duration::from_secs(1000),
        deadline: Duration::from_secs(10),
    };

    struct Bench {
        store: Arc<ManualStore>,
        layer: Layer<u32>,
        now: Instant,
    }

    impl Bench {
        fn new(most: usize) -> Self {
            let store = Arc::new(ManualStore::default());
            let layer = Layer::new(vec![(store.clone(), NO_PAUSE)], most, Arc::default());
            Self { store, layer, now: Instant::now() }
        }

        fn submit(&mut self, wants: impl IntoIterator<Item = (u32, Vec<Extent>)>) {
            let of = |extent| Located { store: 0, extent, need: Need::default() };
            let located = |(tag, extents): (u32, Vec<Extent>)| (tag, extents.into_iter().map(of).collect());
            self.layer.submit(wants.into_iter().map(located), self.now);
        }

        fn poll(&mut self) -> Vec<(u32, Result<Vec<Vec<u8>>>)> {
            let settled = self.layer.poll(self.now, 1 << 20);
            let copied = |(tag, pieces): Arrived<u32>| {
                (tag, pieces.map(|pieces| pieces.iter().map(|piece| piece.to_vec()).collect()))
            };
            let mut settled: Vec<_> = settled.into_iter().map(copied).collect();
            settled.sort_by_key(|(tag, _)| *tag);
            settled
        }

        /// Answers all requests under way.
        fn answer(&mut self, result: impl Fn(&Request) -> Result<Vec<u8>>) {
            for number in self.store.open() {
                self.store.answer(number, &result);
            }
        }
    }

    /// The bytes that an object at each offset has.
    fn content(request: &Request) -> Result<Vec<u8>> {
        let range = request.range.clone().unwrap_or(0..100);
        Ok(range.map(|at| at as u8).collect())
    }

    fn far(number: u32) -> Vec<Extent> {
        vec![Extent::range(format!("{number}"), 5, 3)]
    }

    #[test]
    fn more_requests_are_under_way_as_more_bring_more_and_no_more_than_allowed() {
        let mut bench = Bench::new(300);
        bench.submit((0..5000).map(|i| (i, far(i))));
        assert_eq!(bench.store.open().len(), FIRST);
        assert_eq!(bench.layer.bytes().0, 15_000);
        let (mut settled, mut most) = (0, 0);
        while bench.layer.wanted() > 0 {
            // However many there are, all come after 20 ms.
            bench.now += Duration::from_millis(20);
            bench.answer(content);
            let some = bench.poll();
            assert!(some.iter().all(|(_, pieces)| *pieces.as_ref().unwrap() == [[5, 6, 7]]));
            settled += some.len();
            most = most.max(bench.store.open().len());
        }
        assert_eq!((settled, bench.layer.bytes().0, bench.store.begun()), (5000, 0, 5000));
        assert_eq!(most, 300);
        let stats = bench.layer.stats();
        assert_eq!((stats.requests, stats.bytes, stats.in_flight, stats.limit), (5000, 15_000, 0, 300));
        // Each took 20 ms.
        assert!(stats.connections == 300 && (stats.seconds - 100.0).abs() < 0.1, "{stats:?}");
        assert_eq!((stats.retried, stats.hedged, stats.throttled), (0, 0, 0));
        assert!((0.019..0.021).contains(&stats.p50) && stats.p50 == stats.p99, "{stats:?}");
    }

    /// A bench that knows what is usual: 20 ms.
    fn experienced() -> Bench {
        let mut bench = Bench::new(FIRST);
        bench.submit((0..500).map(|i| (i, far(i))));
        while bench.layer.wanted() > 0 {
            bench.now += Duration::from_millis(20);
            bench.answer(content);
            bench.poll();
        }
        bench
    }

    #[test]
    fn what_is_slow_is_asked_for_a_second_time_and_the_slower_one_is_cancelled() {
        for second_is_faster in [true, false] {
            let mut bench = experienced();
            bench.submit([(7000, far(7000)), (7001, far(7001))]);
            let [slow, usual] = bench.store.open()[..] else { panic!() };
            bench.now += Duration::from_millis(20);
            bench.store.answer(usual, content);
            assert_eq!(bench.poll().len(), 1);
            assert_eq!(bench.layer.next(), Some(bench.now + Duration::from_millis(20)));
            bench.now += Duration::from_millis(20);
            assert!(bench.poll().is_empty());
            let open = bench.store.open();
            assert_eq!((open.len(), bench.layer.stats().hedged, bench.layer.bytes().0), (2, 1, 6));
            bench.store.answer(if second_is_faster { open[1] } else { slow }, content);
            assert_eq!(*bench.poll()[0].1.as_ref().unwrap(), [[5, 6, 7]]);
            assert_eq!((bench.store.cancelled(), bench.store.open().len()), (1, 0));
            assert_eq!((bench.layer.bytes().0, bench.layer.next()), (0, None));
        }
    }

    #[test]
    fn of_two_requests_both_must_fail_and_both_are_given_up_together() {
        let down = |_: &Request| Err(Error::transient("503"));
        for first_fails in [true, false] {
            let mut bench = experienced();
            bench.submit([(7000, far(7000))]);
            bench.now += Duration::from_millis(40);
            bench.poll();
            let [first, second] = bench.store.open()[..] else { panic!() };
            let (fails, does) = if first_fails { (first, second) } else { (second, first) };
            bench.store.answer(fails, down);
            assert!(bench.poll().is_empty());
            assert_eq!((bench.store.open(), bench.layer.bytes().0), (vec![does], 3));
            bench.store.answer(does, content);
            assert!(bench.poll()[0].1.is_ok());
            assert_eq!(bench.layer.stats().retried, 0);

            bench.submit([(7001, far(7001))]);
            bench.now += Duration::from_millis(40);
            bench.poll();
            for number in bench.store.open() {
                bench.store.answer(number, down);
            }
            assert!(bench.poll().is_empty());
            assert_eq!((bench.layer.stats().retried, bench.layer.bytes().0), (1, 3));
            bench.poll();
            bench.now += NO_PAUSE.deadline;
            bench.poll();
            assert_eq!(bench.store.open().len(), 1, "of the next attempt");
            bench.answer(content);
            assert!(bench.poll()[0].1.is_ok());
            assert_eq!((bench.layer.bytes().0, bench.layer.next()), (0, None));
        }
        let mut bench = experienced();
        bench.submit([(7000, far(7000))]);
        bench.now += Duration::from_millis(40);
        bench.poll();
        assert_eq!(bench.store.open().len(), 2);
        bench.layer.retain(|_| false);
        assert_eq!((bench.store.open().len(), bench.store.cancelled(), bench.layer.bytes().0), (0, 2, 0));
    }

    #[test]
    fn second_requests_are_few_and_none_are_made_where_the_server_has_too_much_to_do() {
        // Everything is slow all at once: no second request helps that.
        let mut bench = experienced();
        bench.submit((1000..1030).map(|i| (i, far(i))));
        bench.now += Duration::from_millis(50);
        bench.poll();
        assert!((1..=5).contains(&bench.layer.stats().hedged), "{:?}", bench.layer.stats());
        let mut bench = experienced();
        bench.submit([(7000, far(7000))]);
        bench.store.slow_down();
        bench.now += Duration::from_millis(50);
        bench.poll();
        let stats = bench.layer.stats();
        assert_eq!((stats.hedged, stats.throttled, stats.limit), (0, 1, FIRST / 2));
    }

    #[test]
    fn neighbours_share_a_request_and_each_gets_its_own_bytes() {
        let mut bench = Bench::new(8);
        bench.submit([
            (0, vec![Extent::range("a", 10, 2), Extent::range("a", 40, 1)]),
            (1, vec![Extent::range("a", 30, 3)]),
            (2, vec![]),
            (3, vec![Extent::whole("b", 100)]),
        ]);
        assert_eq!(bench.store.begun(), 2);
        assert_eq!(bench.poll()[0].0, 2, "who wants nothing waits for nothing");
        bench.answer(content);
        let settled = bench.poll();
        assert_eq!(*settled[0].1.as_ref().unwrap(), [vec![10, 11], vec![40]]);
        assert_eq!(*settled[1].1.as_ref().unwrap(), [[30, 31, 32]]);
        assert_eq!(settled[2].1.as_ref().unwrap()[0].len(), 100);
        bench.submit([(4, vec![Extent::range("a", 12, 5)]), (5, vec![Extent::whole("b", 99)])]);
        assert_eq!(*bench.poll()[0].1.as_ref().unwrap(), [[12, 13, 14, 15, 16]], "what came lies in a block");
        assert_eq!(bench.store.begun(), 3, "a limit asks again");
        bench.answer(content);
        assert_eq!(bench.poll()[0].1.as_ref().unwrap_err().kind(), ErrorKind::Limit);
        bench.layer.keep(0);
        assert_eq!(bench.layer.bytes(), (0, 0));
    }

    #[test]
    fn what_nobody_waits_for_is_cancelled() {
        let mut bench = Bench::new(4);
        bench.submit((0..10).map(|i| (i, far(i))));
        bench.submit([(10, vec![Extent::range("0", 9, 1)])]);
        bench.layer.retain(|tag| *tag > 1);
        assert_eq!((bench.store.cancelled(), bench.store.open().len()), (2, 2));
        bench.poll();
        assert_eq!(bench.store.open().len(), 4, "others begin in their place");
        drop(bench.layer);
        assert_eq!(bench.store.cancelled(), 6);
    }

    #[test]
    fn what_may_pass_is_tried_again_and_then_raised() {
        let mut bench = Bench::new(8);
        bench.submit([(0, far(0)), (1, far(1))]);
        let down = |request: &Request| match &*request.path {
            "0" => Err(Error::transient("503")),
            _ => content(request),
        };
        for attempt in 1..3 {
            bench.answer(down);
            let settled = bench.poll();
            assert_eq!(settled.len(), usize::from(attempt == 1), "only the other one");
            assert_eq!(bench.store.open().len(), 1);
        }
        bench.answer(down);
        let settled = bench.poll();
        let error = settled[0].1.as_ref().unwrap_err();
        assert_eq!((error.kind(), bench.store.begun()), (ErrorKind::Transient, 4));
        assert!(error.hint().unwrap().contains("failed 3 times"), "{error}");
    }

    #[test]
    fn requests_without_an_answer_are_given_up_and_hold_up_no_others() {
        let mut bench = Bench::new(8);
        bench.submit([(0, far(0)), (1, far(1))]);
        let hung = bench.store.open()[0];
        bench.store.answer(bench.store.open()[1], content);
        assert_eq!(bench.poll()[0].0, 1);
        for attempt in 1..=3 {
            assert_eq!(bench.layer.next(), Some(bench.now + NO_PAUSE.deadline));
            bench.now += NO_PAUSE.deadline;
            let settled = bench.poll();
            assert_eq!(bench.store.cancelled(), attempt);
            if attempt == 3 {
                let error = settled[0].1.as_ref().unwrap_err();
                assert!(
                    error.kind() == ErrorKind::Transient && error.message().contains("no answer"),
                    "{error}"
                );
            } else {
                assert!(settled.is_empty());
            }
        }
        bench.store.answer(hung, content);
        assert!(bench.poll().is_empty() && bench.layer.next().is_none());
    }

    #[test]
    fn a_bad_neighbour_fails_alone() {
        let mut bench = Bench::new(8);
        bench.submit([(0, vec![Extent::range("a", 0, 5)]), (1, vec![Extent::range("a", 90, 20)])]);
        assert_eq!(bench.store.begun(), 1);
        let short = |request: &Request| match request.range.clone() {
            Some(range) if range.end > 100 => Err(Error::corrupt("the object ends at byte 100")),
            _ => content(request),
        };
        bench.answer(short);
        assert!(bench.poll().is_empty());
        bench.answer(short);
        let settled = bench.poll();
        assert_eq!(*settled[0].1.as_ref().unwrap(), [[0, 1, 2, 3, 4]]);
        assert_eq!(settled[1].1.as_ref().unwrap_err().kind(), ErrorKind::Corrupt);
        let silent = |_: &Request| Ok(vec![1]);
        bench.submit([(2, vec![Extent::range("b", 0, 5)])]);
        bench.answer(silent);
        let settled = bench.poll();
        assert!(settled[0].1.as_ref().unwrap_err().message().contains("gave 1 of the 5 bytes"));
    }
    #[test]
    fn the_cache_takes_what_came_between_others_once_it_is_wanted() {
        let folder = crate::testing::TempFolder::new();
        let keeper =
            Keeper::open(&folder.join("cache"), Some(1 << 20), (1, "numbers"), None, 1 << 20).unwrap();
        let mut bench = Bench::new(8);
        let keeper = Arc::new(keeper);
        bench.layer = bench.layer.with_keeper(Some(keeper.clone()));
        let mailbox = bench.layer.mailbox.clone();
        std::thread::scope(|scope| {
            scope.spawn(|| keeper.run_reader(|replies| mailbox.reply(replies)));
            scope.spawn(|| keeper.run_writer());
            let wants = |numbers: std::ops::Range<u32>| {
                numbers.map(|i| (i, vec![Extent::range("a", 5 * u64::from(i), 5)])).collect::<Vec<_>>()
            };
            let come = |bench: &mut Bench, count: usize| {
                let mut settled = Vec::new();
                while settled.len() < count {
                    bench.answer(content);
                    settled.extend(bench.poll());
                    mailbox.wait(Some(Instant::now() + Duration::from_millis(1)));
                }
                assert!(settled.iter().all(|(_, pieces)| pieces.as_ref().unwrap()[0].len() == 5));
            };
            // Two, and what lies between them.
            bench.submit(wants(0..1).into_iter().chain(wants(4..5)));
            come(&mut bench, 2);
            keeper.settle();
            assert_eq!(keeper.stats().written, 2);
            bench.submit(wants(0..5));
            assert_eq!(bench.poll().len(), 5);
            keeper.settle();
            assert_eq!((keeper.stats().written, keeper.stats().misses), (5, 5));
            // Not from the block in memory.
            bench.layer.keep(0);
            bench.submit(wants(0..5));
            come(&mut bench, 5);
            keeper.close();
        });
        assert_eq!((keeper.stats().hits, bench.store.begun()), (5, 1));
    }
}
