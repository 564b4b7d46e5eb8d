//! [`Layer`]: gets the bytes of many samples from a store that answers later, many requests at once.
//!
//! A *want* is what one sample needs; a *call* is one request of the store, which may serve several wants. The layer is
//! plain data owned by one thread, which asks it what has come ([`Layer::poll`]) and sleeps in [`Mailbox::wait`]. The
//! store's threads only put answers into the mailbox.
//!
//! Invariants: every want that was submitted and not cancelled is given back exactly once; a call without a want is
//! cancelled at once; at most `concurrency` calls are under way.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    ops::Range,
    sync::{Arc, Condvar, Mutex},
    time::{Duration, Instant},
};

use super::{
    Bytes, Located,
    blocks::Blocks,
    coalesce::{self, Merged, Taker},
};
use crate::{
    Error, ErrorKind, Result, lock,
    store::{Pending, Request, Retry, Store},
};

/// Requests under way at most. Stores in the cloud take far more; what is above shows no gain at 10 Gbit/s and 100 ms.
pub(crate) const CONCURRENCY: usize = 512;

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
    rung: bool,
}

#[derive(Debug)]
struct Answer {
    call: u64,
    attempt: u32,
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
        while state.answers.is_empty() && !state.rung {
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

    fn take(&self) -> Vec<Answer> {
        std::mem::take(&mut lock(&self.state).answers)
    }
}

#[derive(Debug)]
struct Want<T> {
    tag: T,
    extents: Vec<Located>,
    pieces: Vec<Option<Bytes>>,
    missing: usize,
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
    /// The request under way, and when it is given up.
    pending: Option<(Pending, Instant)>,
}

/// A want that is settled: whose it is, and its bytes in the order of its extents.
pub(crate) type Arrived<T> = (T, Result<Vec<Bytes>>);

#[derive(Debug)]
pub(crate) struct Layer<T> {
    stores: Vec<(Arc<dyn Store>, Retry)>,
    concurrency: usize,
    mailbox: Arc<Mailbox>,
    wants: HashMap<u64, Want<T>>,
    calls: HashMap<u64, Call>,
    number: u64,
    /// Calls that have not begun, in order.
    queue: VecDeque<u64>,
    /// When calls that failed begin again.
    again: BTreeSet<(Instant, u64)>,
    /// When requests under way are given up.
    deadlines: BTreeSet<(Instant, u64)>,
    /// Bytes that calls are thought to bring.
    flying: u64,
    /// Mean size of objects that were read as a whole.
    mean: f64,
    blocks: Blocks,
    settled: Vec<Arrived<T>>,
}

impl<T> Layer<T> {
    /// A layer over stores that answer later, with at most `concurrency` requests under way.
    pub(crate) fn new(
        stores: Vec<(Arc<dyn Store>, Retry)>,
        concurrency: usize,
        mailbox: Arc<Mailbox>,
    ) -> Self {
        Self {
            stores,
            concurrency,
            mailbox,
            wants: HashMap::new(),
            calls: HashMap::new(),
            number: 0,
            queue: VecDeque::new(),
            again: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            flying: 0,
            mean: GUESS,
            blocks: Blocks::default(),
            settled: Vec::new(),
        }
    }

    /// Wants that are not settled.
    pub(crate) fn wanted(&self) -> usize {
        self.wants.len()
    }

    /// Bytes that are under way, as far as that is known, and those of kept blocks.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.flying, self.blocks.bytes())
    }

    /// Keeps blocks in at most so many bytes.
    pub(crate) fn keep(&mut self, limit: u64) {
        self.blocks.shrink(limit);
    }

    /// Asks for the bytes of several samples together: what lies side by side becomes one request.
    pub(crate) fn submit(&mut self, wants: impl IntoIterator<Item = (T, Vec<Located>)>, now: Instant) {
        let mut extents = Vec::new();
        for (tag, wanted) in wants {
            let number = self.next_number();
            let mut pieces = Vec::with_capacity(wanted.len());
            let mut missing = 0;
            for (piece, extent) in wanted.iter().enumerate() {
                let kept = self.blocks.get(extent);
                if kept.is_none() {
                    missing += 1;
                    extents.push((number, piece, extent.clone()));
                }
                pieces.push(kept);
            }
            self.wants.insert(number, Want { tag, extents: wanted, pieces, missing });
            if missing == 0 {
                self.settle(number, Ok(()));
            }
        }
        for merged in coalesce::merge(extents) {
            self.enqueue(merged);
        }
        self.begin(now);
    }

    /// What was settled since the last call. `room`: bytes that kept blocks may have.
    pub(crate) fn poll(&mut self, now: Instant, room: u64) -> Vec<Arrived<T>> {
        loop {
            let answers = self.mailbox.take();
            if answers.is_empty() {
                break;
            }
            for answer in answers {
                self.answer(answer, now, room);
            }
            self.begin(now);
        }
        while let Some((at, call)) = self.deadlines.first().copied().filter(|(at, _)| *at <= now) {
            self.deadlines.remove(&(at, call));
            let Some(late) = self.calls.get_mut(&call) else { continue };
            // Dropping the request cancels it; what it may still bring is of an old attempt.
            late.pending = None;
            let (path, time) = (late.path.clone(), self.stores[late.store].1.deadline.as_secs_f64());
            let hint = "storage is down or overloaded";
            let error =
                Error::transient(format!("cannot read {path}: no answer in {time:.1} s")).with_hint(hint);
            self.failed(call, error, now, room);
        }
        while let Some((at, call)) = self.again.first().copied().filter(|(at, _)| *at <= now) {
            self.again.remove(&(at, call));
            self.queue.push_front(call);
        }
        self.begin(now);
        std::mem::take(&mut self.settled)
    }

    /// When [`Layer::poll`] has something to do even if no answer comes.
    pub(crate) fn next(&self) -> Option<Instant> {
        let first = |set: &BTreeSet<(Instant, u64)>| set.first().map(|(at, _)| *at);
        first(&self.deadlines).into_iter().chain(first(&self.again)).min()
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
        let call =
            Call { store, path, range, max_bytes, takers, cost, failed: 0, since: None, pending: None };
        self.calls.insert(number, call);
        self.queue.push_back(number);
    }

    /// Begins calls as long as there is room for them.
    fn begin(&mut self, now: Instant) {
        while self.deadlines.len() < self.concurrency {
            let Some(number) = self.queue.pop_front() else { break };
            let Some(call) = self.calls.get_mut(&number) else { continue };
            call.since.get_or_insert(now);
            let request =
                Request { path: call.path.clone(), range: call.range.clone(), max_bytes: call.max_bytes };
            let (mailbox, attempt) = (self.mailbox.clone(), call.failed);
            let done = Box::new(move |result| mailbox.put(Answer { call: number, attempt, result }));
            let (store, retry) = &self.stores[call.store];
            let Some(remote) = store.remote() else {
                // Only a store that answers later has a layer.
                done(Err(Error::new(ErrorKind::Internal, "the store takes no requests")));
                continue;
            };
            let deadline = now + retry.deadline;
            call.pending = Some((remote.begin(request, done), deadline));
            self.deadlines.insert((deadline, number));
        }
    }

    fn answer(&mut self, answer: Answer, now: Instant, room: u64) {
        let Answer { call: number, attempt, result } = answer;
        let Some(call) = self.calls.get_mut(&number).filter(|call| call.failed == attempt) else { return };
        if let Some((_, deadline)) = call.pending.take() {
            self.deadlines.remove(&(deadline, number));
        }
        let checked = result.and_then(|bytes| check(call, bytes));
        match checked {
            Ok(bytes) => self.arrived(number, Arc::new(bytes), room),
            Err(error) => self.failed(number, error, now, room),
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
            want.pieces[piece] = Bytes::of(&block, part);
            want.missing -= 1;
            if want.missing == 0 {
                self.settle(number, Ok(()));
            }
        }
    }

    /// A call failed: it is tried again, or asked for piece by piece, or given up.
    fn failed(&mut self, number: u64, error: Error, now: Instant, room: u64) {
        let Some(call) = self.calls.get_mut(&number) else { return };
        call.failed += 1;
        let elapsed = call.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        let error = if error.kind() == ErrorKind::Transient {
            let retry = &self.stores[call.store].1;
            if let Some(pause) = retry.pause(&call.path, call.failed, elapsed) {
                self.again.insert((now + pause, number));
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
        let Self { calls, wants, deadlines, again, flying, .. } = self;
        calls.retain(|number, call| {
            call.takers.retain(|taker| wants.contains_key(&taker.want));
            let needed = !call.takers.is_empty();
            if !needed {
                *flying -= call.cost;
                if let Some((_, deadline)) = call.pending {
                    deadlines.remove(&(deadline, *number));
                }
            }
            needed
        });
        again.retain(|(_, number)| calls.contains_key(number));
        self.queue.retain(|number| self.calls.contains_key(number));
    }
}

/// Refuses an answer that has another length than was asked for.
fn check(call: &Call, bytes: Vec<u8>) -> Result<Vec<u8>> {
    let got = bytes.len() as u64;
    match &call.range {
        Some(range) if got != range.end - range.start => {
            let (start, wanted) = (range.start, range.end - range.start);
            Err(Error::corrupt(format!(
                "{} gave {got} of the {wanted} bytes wanted from byte {start}",
                call.path
            ))
            .with_offset(start))
        }
        None if got > call.max_bytes => Err(Error::limit(&call.path, got, call.max_bytes, "bytes")),
        _ => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Extent, testing::ManualStore},
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
        fn new(concurrency: usize) -> Self {
            let store = Arc::new(ManualStore::default());
            let layer = Layer::new(vec![(store.clone(), NO_PAUSE)], concurrency, Arc::default());
            Self { store, layer, now: Instant::now() }
        }

        fn submit(&mut self, wants: impl IntoIterator<Item = (u32, Vec<Extent>)>) {
            let of = |extent| Located { store: 0, extent };
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
    fn hundreds_of_requests_are_under_way_and_no_more_than_allowed() {
        let mut bench = Bench::new(300);
        bench.submit((0..1000).map(|i| (i, far(i))));
        assert_eq!(bench.store.open().len(), 300);
        assert_eq!(bench.layer.bytes().0, 3000);
        bench.answer(content);
        assert_eq!(bench.poll().len(), 300);
        assert_eq!(bench.store.open().len(), 300, "the next ones follow");
        let mut settled = 300;
        while bench.layer.wanted() > 0 {
            bench.answer(content);
            let some = bench.poll();
            assert!(some.iter().all(|(_, pieces)| *pieces.as_ref().unwrap() == [[5, 6, 7]]));
            settled += some.len();
        }
        assert_eq!((settled, bench.layer.bytes().0, bench.store.begun()), (1000, 0, 1000));
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
}
