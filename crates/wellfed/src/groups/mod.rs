//! [`Groups`]: what sources decode for many samples at once, such as the row groups of tables, kept within a budget.
//!
//! A group is decoded part by part (a part is a column, say), by whoever wants a sample of it: threads that come while it is
//! being decoded take parts that nobody has begun, and wait only when there are none left. Its bytes are reserved before it is
//! begun, by a thread that holds nothing meanwhile, so nobody waits for memory that only somebody waiting for him could give
//! back. A group that turns out larger than reserved takes more only if that is there; otherwise it is given up, and begun
//! again with more. Groups that nobody uses go when room is wanted, the one used longest ago first.
//!
//! Where a group lies in a store that answers later, its bytes are asked for when it is begun, by the thread of the I/O layer
//! (`far.rs`), and it is decoded when they are there. Nobody who decodes waits for a store.
//!
//! Without a loader there is no budget (`alone.rs`).

mod alone;
mod far;

use std::{
    any::Any,
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

pub(crate) use far::Want;
use far::Wants;

use crate::{
    Error, ErrorKind, Result,
    budget::{Budget, Holder},
    io::{Bytes, Extent},
    lock,
};

/// One part of a group, as its source made it.
pub type Part = Arc<dyn Any + Send + Sync>;

/// Which group: its owner, and its number there.
pub(crate) type Key = (u64, u64);

/// How long to wait before looking again whether somebody stopped using a group, which is not announced.
const LOOK: Duration = Duration::from_millis(2);

/// What a source has in groups, for those who make room for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupSizes {
    /// Groups.
    pub count: u64,
    /// Samples of the largest one.
    pub samples: u64,
    /// Bytes of the largest one when decoded, as far as that is known before.
    pub largest: u64,
    /// Bytes of all of them.
    pub all: u64,
}

/// How a group is decoded.
pub trait Decode {
    /// Number of parts.
    fn parts(&self) -> usize;

    /// Bytes that decoding all of it takes, as far as that is known before.
    fn bytes(&self) -> u64;

    /// The bytes that it is decoded of, if they lie in a store that answers later: they are then asked for together.
    fn extents(&self) -> Vec<Extent> {
        Vec::new()
    }

    /// Decodes one part, and says how many bytes it holds. What it allocates is taken from `growth` before. `pieces`: the bytes of
    /// [`Decode::extents`], in their order, which were taken already. Without them it reads what it needs.
    ///
    /// # Errors
    /// What is wrong with the group; an error of `growth` as it is.
    fn decode(&self, part: usize, pieces: Option<&[Bytes]>, growth: &Growth<'_>) -> Result<(Part, u64)>;
}

/// Tells the groups of one source from those of others, as long as it lives.
#[derive(Debug)]
pub struct Owner {
    id: u64,
    alive: Arc<()>,
}

impl Default for Owner {
    fn default() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { id: NEXT.fetch_add(1, Relaxed), alive: Arc::default() }
    }
}

/// What [`warm`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warmed {
    /// The group is there, or others are at it, or it cannot be had.
    Done,
    /// There is no room for it at present.
    NoRoom,
    /// Its bytes have been asked for, and are not there yet.
    Coming,
}

/// Added to the time of a group that was decoded ahead and not used yet: it is the last to make room.
const COMING: u64 = 1 << 63;

/// Bytes that were reserved for a group, and those taken of them.
#[derive(Debug, Default)]
struct Counts {
    reserved: AtomicU64,
    taken: AtomicU64,
    /// What was taken when there was no room for more. Other parts may give back some of it before the group is closed, so
    /// this is noted at that moment.
    missed: AtomicU64,
}

/// What a group being decoded may take.
#[derive(Debug)]
pub struct Growth<'a> {
    /// `None` without a budget.
    of: Option<(&'a All, &'a Counts)>,
}

impl Growth<'_> {
    /// No bound at all.
    pub fn unbounded() -> Self {
        Self { of: None }
    }

    /// Takes `bytes`, before they are allocated.
    ///
    /// # Errors
    /// [`ErrorKind::Limit`] if there is no room: the group is then begun again later.
    pub fn take(&self, bytes: u64) -> Result<()> {
        let Some((groups, counts)) = self.of else { return Ok(()) };
        let taken = counts.taken.fetch_add(bytes, Relaxed).saturating_add(bytes);
        let mut state = lock(&groups.state);
        let reserved = counts.reserved.load(Relaxed);
        let Some(more) = taken.checked_sub(reserved).filter(|more| *more > 0) else { return Ok(()) };
        if groups.make_room(&mut state, more, false) {
            counts.reserved.fetch_add(more, Relaxed);
            return Ok(());
        }
        counts.missed.fetch_max(taken, Relaxed);
        Err(Error::new(ErrorKind::Limit, format!("no room for {taken} bytes of a group of samples")))
    }

    /// Gives back `bytes` that were taken and freed.
    pub fn give(&self, bytes: u64) {
        if let Some((_, counts)) = self.of {
            counts.taken.fetch_sub(bytes, Relaxed);
        }
    }
}

/// A group that is being decoded.
#[derive(Debug)]
struct Open {
    parts: Vec<Option<(Part, u64)>>,
    /// The first part that nobody has begun.
    next: usize,
    running: usize,
    error: Option<Error>,
    counts: Arc<Counts>,
    /// Nobody wants it yet.
    ahead: bool,
    input: Input,
    /// Tells it from others of its key that were begun before or later.
    serial: u64,
    /// Threads that wait for it.
    waiting: usize,
}

/// What a group is decoded of.
#[derive(Clone, Debug)]
enum Input {
    /// Whoever decodes reads it.
    Near,
    /// It was asked for.
    Coming(Arc<[Extent]>),
    Here(Arc<[Bytes]>),
}

impl Open {
    /// Whether there is a part that nobody has begun and that can be decoded.
    fn has_more(&self) -> bool {
        self.error.is_none() && self.next < self.parts.len() && !self.is_coming()
    }

    fn is_coming(&self) -> bool {
        matches!(self.input, Input::Coming(_))
    }

    /// Whether its bytes are there, and nobody has begun to decode it or waits for it.
    fn is_idle(&self) -> bool {
        self.next == 0 && self.waiting == 0 && matches!(self.input, Input::Here(_))
    }
}

enum Entry {
    Open(Open),
    Ready {
        parts: Arc<[Part]>,
        bytes: u64,
        used: u64,
    },
    Failed(Error),
    /// It failed in a way that may pass. So many threads waited for it and have to hear of it; then it is forgotten.
    Missed {
        error: Error,
        serial: u64,
        waiting: usize,
    },
}

#[derive(Default)]
struct State {
    entries: HashMap<Key, Entry>,
    /// Groups that are ready by when they were used last, the one used longest ago first: there may be many small ones.
    used: BTreeMap<u64, Key>,
    /// Bytes that groups were found to need which did not fit what was reserved.
    needs: HashMap<Key, u64>,
    clock: u64,
    /// Of the group that was begun last.
    serial: u64,
}

impl State {
    /// A group that is there, used now.
    fn take_up(&mut self, key: Key) -> Option<Arc<[Part]>> {
        let Self { entries, used: order, clock, .. } = self;
        let Some(Entry::Ready { parts, used, .. }) = entries.get_mut(&key) else { return None };
        // Mostly it is the one that was used last, too.
        if *used != *clock {
            order.remove(used);
            *clock += 1;
            *used = *clock;
            order.insert(*used, key);
        }
        Some(parts.clone())
    }

    /// One thread less waits for the group that was begun with this serial. Gives why it failed, if it did.
    fn waited(&mut self, key: Key, of: u64) -> Option<Error> {
        match self.entries.get_mut(&key) {
            Some(Entry::Open(open)) if open.serial == of => {
                open.waiting -= 1;
                None
            }
            Some(Entry::Missed { error, serial, waiting }) if *serial == of => {
                let error = error.clone();
                *waiting -= 1;
                if *waiting == 0 {
                    self.entries.remove(&key);
                }
                Some(error)
            }
            _ => None,
        }
    }
}

/// The groups that a loader keeps, as one of its leaves has them.
#[derive(Debug)]
pub struct Groups {
    all: Arc<All>,
    leaf: usize,
}

/// The groups of all leaves.
struct All {
    budget: Arc<Budget>,
    state: Mutex<State>,
    changed: Condvar,
    /// What is to be read by others; `None` where nobody would.
    wants: Option<Wants>,
}

impl fmt::Debug for All {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.budget.used(Holder::Groups))
    }
}

impl Drop for All {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let held = |entry: &Entry| match entry {
            Entry::Ready { bytes, .. } => *bytes,
            Entry::Open(open) => open.counts.reserved.load(Relaxed),
            Entry::Failed(_) | Entry::Missed { .. } => 0,
        };
        self.budget.give(state.entries.values().map(held).sum(), Holder::Groups);
    }
}

/// Group `number` of `owner`, from `kept`, or decoded now.
///
/// # Errors
/// Those of `decode`, the same for all samples of the group; [`ErrorKind::Limit`] if it does not fit into the budget.
pub fn group(kept: Option<&Groups>, owner: &Owner, number: u64, decode: &dyn Decode) -> Result<Arc<[Part]>> {
    match kept {
        Some(groups) => groups.all.get((owner.id, number), groups.leaf, decode),
        None => alone::group(owner, number, decode),
    }
}

/// Those of the groups `numbers` of `owner` that are decoded already, in their order: looked up at once, and without waiting,
/// which would let nobody wait for memory that whoever holds several groups could give back. Without a loader none.
pub fn ready(kept: Option<&Groups>, owner: &Owner, numbers: &[u64], found: &mut Vec<Option<Arc<[Part]>>>) {
    found.clear();
    let Some(groups) = kept else { return found.resize(numbers.len(), None) };
    let mut state = lock(&groups.all.state);
    for number in numbers {
        found.push(state.take_up((owner.id, *number)));
    }
}

/// Decodes group `number` of `owner` before it is wanted, or a part of it, if there is room without taking it from groups that
/// are in use or were decoded ahead themselves. Waits for nobody.
pub fn warm(kept: &Groups, owner: &Owner, number: u64, decode: &dyn Decode) -> Warmed {
    kept.all.warm((owner.id, number), kept.leaf, decode)
}

impl Groups {
    /// Keeps as much as `budget` has for groups.
    pub(crate) fn new(budget: Arc<Budget>) -> Self {
        Self::with(budget, None)
    }

    /// As [`Groups::new`]; what lies in stores that answer later is asked for by whoever `ring` wakes, with [`Groups::wanted`].
    pub(crate) fn far(budget: Arc<Budget>, ring: impl Fn() + Send + Sync + 'static) -> Self {
        Self::with(budget, Some(Wants::new(ring)))
    }

    fn with(budget: Arc<Budget>, wants: Option<Wants>) -> Self {
        let all = All { budget, state: Mutex::default(), changed: Condvar::new(), wants };
        Self { all: Arc::new(all), leaf: 0 }
    }

    /// The same groups, for this leaf.
    pub(crate) fn of_leaf(&self, leaf: usize) -> Self {
        Self { all: self.all.clone(), leaf }
    }

    /// What has to be asked for since the last call, and before that, what was asked for in vain.
    pub(crate) fn wanted(&self) -> (Vec<Want>, HashSet<Key>) {
        self.all.wants.as_ref().map(Wants::take).unwrap_or_default()
    }

    /// The bytes of a group have come, or cannot be had.
    pub(crate) fn arrived(&self, key: Key, came: Result<Vec<Bytes>>) {
        self.all.arrived(key, came);
    }

    /// What was decoded ahead is no longer expected to be wanted soon, and what is on its way for nobody is given up.
    pub(crate) fn forget_coming(&self) {
        self.all.forget_coming();
    }
}

impl All {
    fn get(&self, key: Key, leaf: usize, decode: &dyn Decode) -> Result<Arc<[Part]>> {
        let mut state = lock(&self.state);
        loop {
            if let Some(parts) = state.take_up(key) {
                return Ok(parts);
            }
            match state.entries.get_mut(&key) {
                Some(Entry::Ready { parts, .. }) => return Ok(parts.clone()),
                Some(Entry::Failed(error) | Entry::Missed { error, .. }) => return Err(error.clone()),
                Some(Entry::Open(open)) if open.has_more() => {
                    open.ahead = false;
                    state = self.decode_part(state, key, decode)?;
                }
                Some(Entry::Open(open)) => {
                    if open.is_coming() && self.budget.is_closed() {
                        return Err(ended());
                    }
                    open.ahead = false;
                    open.waiting += 1;
                    let serial = open.serial;
                    state = self.wait(state);
                    if let Some(error) = state.waited(key, serial) {
                        return Err(error);
                    }
                }
                None => {
                    let wanted = state.needs.get(&key).copied().unwrap_or(0).max(decode.bytes());
                    let most = self.budget.cap(Holder::Groups);
                    if wanted > most {
                        return Err(too_large(wanted, most));
                    }
                    if !self.make_room(&mut state, wanted, false) {
                        if self.budget.is_closed() {
                            return Err(ended());
                        }
                        state = self.wait(state);
                        continue;
                    }
                    self.open(&mut state, (key, leaf), decode, wanted, false);
                }
            }
        }
    }

    fn warm(&self, key: Key, leaf: usize, decode: &dyn Decode) -> Warmed {
        let mut state = lock(&self.state);
        loop {
            match state.entries.get(&key) {
                Some(Entry::Open(open)) if open.has_more() => match self.decode_part(state, key, decode) {
                    Ok(next) => state = next,
                    Err(_) => return Warmed::Done,
                },
                Some(Entry::Open(open)) if open.is_coming() => return Warmed::Coming,
                Some(_) => return Warmed::Done,
                None => {
                    let wanted = state.needs.get(&key).copied().unwrap_or(0).max(decode.bytes());
                    if wanted > self.budget.cap(Holder::Groups) || self.budget.is_closed() {
                        return Warmed::Done;
                    }
                    if !self.make_room(&mut state, wanted, true) {
                        return Warmed::NoRoom;
                    }
                    self.open(&mut state, (key, leaf), decode, wanted, true);
                }
            }
        }
    }

    fn forget_coming(&self) {
        let mut state = lock(&self.state);
        let State { entries, used: order, .. } = &mut *state;
        let mut gone = Vec::new();
        for (key, entry) in entries.iter_mut() {
            match entry {
                Entry::Ready { used, .. } if *used >= COMING => {
                    order.remove(used);
                    *used -= COMING;
                    order.insert(*used, *key);
                }
                Entry::Open(open) if open.is_coming() && open.waiting == 0 => gone.push(*key),
                Entry::Open(open) => open.ahead = false,
                _ => {}
            }
        }
        for key in &gone {
            self.give_up(&mut state, *key);
        }
        if let Some(wants) = &self.wants {
            wants.forget(&gone);
        }
    }

    /// Forgets a group that was begun and that nobody is about.
    fn give_up(&self, state: &mut State, key: Key) {
        if let Some(Entry::Open(open)) = state.entries.remove(&key) {
            self.budget.give(open.counts.reserved.load(Relaxed), Holder::Groups);
        }
    }

    /// Begins a group, for which there is room.
    fn open(
        &self,
        state: &mut State,
        (key, leaf): (Key, usize),
        decode: &dyn Decode,
        reserved: u64,
        ahead: bool,
    ) {
        state.serial += 1;
        let extents = self.wants.as_ref().map(|_| decode.extents()).unwrap_or_default();
        let counts = Counts { reserved: AtomicU64::new(reserved), ..Counts::default() };
        let parts = (0..decode.parts()).map(|_| None).collect();
        let mut open = Open {
            parts,
            next: 0,
            running: 0,
            error: None,
            counts: Arc::new(counts),
            ahead,
            input: Input::Near,
            serial: state.serial,
            waiting: 0,
        };
        if let Some(wants) = self.wants.as_ref().filter(|_| !extents.is_empty()) {
            let len = |extent: &Extent| extent.range.as_ref().map_or(extent.max_bytes, |r| r.end - r.start);
            open.counts.taken.store(extents.iter().map(len).sum(), Relaxed);
            wants.put(Want { key, leaf, extents: far::cut(&extents) });
            open.input = Input::Coming(extents.into());
        }
        state.entries.insert(key, Entry::Open(open));
        if decode.parts() == 0 {
            self.close(state, key);
        }
    }

    fn arrived(&self, key: Key, came: Result<Vec<Bytes>>) {
        let mut state = lock(&self.state);
        let Some(Entry::Open(open)) = state.entries.get_mut(&key) else { return };
        let Input::Coming(extents) = &open.input else { return };
        match came.and_then(|came| far::join(extents, came)) {
            Ok(pieces) => open.input = Input::Here(pieces.into()),
            Err(error) => {
                open.error = Some(error);
                self.close(&mut state, key);
            }
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Decodes a part that nobody has begun of a group that is open.
    ///
    /// # Errors
    /// Those of the decoder, unless room was what was missing.
    fn decode_part<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        key: Key,
        decode: &dyn Decode,
    ) -> Result<MutexGuard<'a, State>> {
        let Some(Entry::Open(open)) = state.entries.get_mut(&key) else { return Ok(state) };
        let part = open.next;
        open.next += 1;
        open.running += 1;
        let counts = open.counts.clone();
        let pieces = match &open.input {
            Input::Here(pieces) => Some(pieces.clone()),
            Input::Near | Input::Coming(_) => None,
        };
        drop(state);
        let mut running = Running { groups: self, key, part, made: None };
        let made = decode.decode(part, pieces.as_deref(), &Growth { of: Some((self, &counts)) });
        drop(pieces);
        let failed = made.as_ref().err().cloned();
        running.made = Some(made);
        drop(running);
        let outgrown = counts.missed.load(Relaxed) > 0;
        if let Some(error) = failed.filter(|e| e.kind() != ErrorKind::Limit || !outgrown) {
            return Err(error);
        }
        Ok(lock(&self.state))
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Reserves `bytes`, if need be in place of groups that nobody uses; if `gentle`, not in place of those that were decoded
    /// ahead.
    fn make_room(&self, state: &mut State, bytes: u64, gentle: bool) -> bool {
        while !self.budget.take(bytes, Holder::Groups) {
            let State { entries, used, .. } = &*state;
            let idle = |key: &Key| match entries.get(key) {
                Some(Entry::Ready { parts, .. }) => Arc::strong_count(parts) == 1,
                _ => false,
            };
            let mut oldest = used.iter().take_while(|(used, _)| !gentle || **used < COMING);
            let oldest = oldest.find(|(_, key)| idle(key)).map(|(used, key)| (*used, *key));
            let Some((used, oldest)) = oldest else {
                // Bytes that nobody has begun to decode are read again when they are wanted.
                let idle = |entry: &Entry| match entry {
                    Entry::Open(open) => open.is_idle() && !(gentle && open.ahead),
                    _ => false,
                };
                let idle = state.entries.iter().find(|(_, entry)| idle(entry)).map(|(key, _)| *key);
                let Some(idle) = idle else { return false };
                self.give_up(state, idle);
                continue;
            };
            state.used.remove(&used);
            if let Some(Entry::Ready { bytes, .. }) = state.entries.remove(&oldest) {
                self.budget.give(bytes, Holder::Groups);
            }
        }
        true
    }

    /// Notes what became of one part; the last one closes the group.
    fn done(&self, key: Key, part: usize, made: Result<(Part, u64)>) {
        let mut state = lock(&self.state);
        if let Some(Entry::Open(open)) = state.entries.get_mut(&key) {
            open.running -= 1;
            match made {
                Ok(made) => open.parts[part] = Some(made),
                // The error of the first part is everybody's, whoever was faster, unless room is what is missing.
                Err(error) => {
                    open.error.get_or_insert(error);
                }
            }
            let all = open.error.is_some() || open.next == open.parts.len();
            if open.running == 0 && all {
                self.close(&mut state, key);
            }
        }
        drop(state);
        self.changed.notify_all();
    }

    fn close(&self, state: &mut State, key: Key) {
        let Some(Entry::Open(open)) = state.entries.remove(&key) else { return };
        let (reserved, missed) = (open.counts.reserved.load(Relaxed), open.counts.missed.load(Relaxed));
        let Some(error) = open.error else {
            let (parts, sizes): (Vec<Part>, Vec<u64>) = open.parts.into_iter().flatten().unzip();
            let bytes: u64 = sizes.iter().sum();
            match reserved.checked_sub(bytes) {
                Some(surplus) => self.budget.give(surplus, Holder::Groups),
                None => self.budget.force(bytes - reserved, Holder::Groups),
            }
            state.clock += 1;
            let used = if open.ahead { COMING + state.clock } else { state.clock };
            state.used.insert(used, key);
            state.entries.insert(key, Entry::Ready { parts: parts.into(), bytes, used });
            return;
        };
        drop(open.parts);
        self.budget.give(reserved, Holder::Groups);
        let most = self.budget.cap(Holder::Groups);
        if missed > 0 {
            // It did not fit beside others. Next time as much is reserved as it was found to take, and some more.
            let wanted = missed.saturating_add(missed / 2);
            if missed <= most {
                state.needs.insert(key, wanted.min(most));
            } else {
                state.entries.insert(key, Entry::Failed(too_large(missed, most)));
            }
        } else if !matches!(error.kind(), ErrorKind::Transient | ErrorKind::Io | ErrorKind::State) {
            // What is damaged stays so: it is not decoded again for each of its samples.
            state.entries.insert(key, Entry::Failed(error));
        } else {
            // Those who wait for it now share the answer; whoever comes later asks again.
            state.needs.remove(&key);
            if open.waiting > 0 {
                let (serial, waiting) = (open.serial, open.waiting);
                state.entries.insert(key, Entry::Missed { error, serial, waiting });
            }
        }
    }
}

/// A part being decoded. Whatever happens, a panic included, the group hears of it.
struct Running<'a> {
    groups: &'a All,
    key: Key,
    part: usize,
    made: Option<Result<(Part, u64)>>,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let panicked = || Err(Error::new(ErrorKind::Internal, "decoding a group of samples panicked"));
        let made = self.made.take().unwrap_or_else(panicked);
        self.groups.done(self.key, self.part, made);
    }
}

fn ended() -> Error {
    Error::new(ErrorKind::State, "the loader has ended")
}

fn too_large(bytes: u64, most: u64) -> Error {
    Error::new(
        ErrorKind::Limit,
        format!(
            "a group of samples that is decoded at once takes at least {bytes} bytes, above the {most} that the memory \
             budget has for such"
        ),
    )
    .with_hint("raise it with with_options(memory_budget=...), take fewer columns, or write smaller row groups")
}

#[cfg(test)]
mod tests {
    use std::{sync::atomic::AtomicUsize, thread};

    use super::*;

    /// Groups of three parts of 100 bytes each, whose decoder counts its calls.
    #[derive(Default)]
    struct Counting {
        calls: AtomicUsize,
        says: Option<u64>,
        more: u64,
        fails: Option<ErrorKind>,
    }

    impl Decode for Counting {
        fn parts(&self) -> usize {
            3
        }

        fn bytes(&self) -> u64 {
            self.says.unwrap_or(300)
        }

        fn decode(&self, part: usize, _: Option<&[Bytes]>, growth: &Growth<'_>) -> Result<(Part, u64)> {
            self.calls.fetch_add(1, Relaxed);
            growth.take(100 + self.more)?;
            if let Some(kind) = self.fails.filter(|_| part == 1) {
                return Err(Error::new(kind, "part 1"));
            }
            growth.give(self.more);
            Ok((Arc::new(part), 100))
        }
    }

    fn groups(cap: u64) -> (Arc<Budget>, Groups) {
        let budget = Budget::new();
        budget.set_cap(Holder::Groups, cap);
        (budget.clone(), Groups::new(budget))
    }

    #[test]
    fn a_group_is_decoded_once_and_the_one_used_longest_ago_goes_first() {
        let (budget, groups) = groups(650);
        let (owner, decode) = (Owner::default(), Counting::default());
        let get = |number| group(Some(&groups), &owner, number, &decode).unwrap();
        for number in [0, 1, 0, 2, 0] {
            let parts = get(number);
            assert!(parts.iter().zip(0_usize..).all(|(part, i)| *part.downcast_ref::<usize>().unwrap() == i));
        }
        assert_eq!((decode.calls.load(Relaxed), budget.used(Holder::Groups)), (9, 600));
        drop(get(1));
        assert_eq!(decode.calls.load(Relaxed), 12, "it had made room for another");
        drop(groups);
        assert_eq!(budget.used(Holder::Groups), 0);
    }

    #[test]
    fn groups_that_are_there_are_given_at_once_and_none_is_decoded_for_it() {
        let (_, groups) = groups(650);
        let (owner, decode) = (Owner::default(), Counting::default());
        let mut found = Vec::new();
        for number in [0, 1] {
            drop(group(Some(&groups), &owner, number, &decode));
        }
        ready(Some(&groups), &owner, &[1, 2, 0], &mut found);
        assert_eq!(found.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, true]);
        ready(Some(&groups), &Owner::default(), &[0], &mut found);
        assert!(found[0].is_none(), "those of another source are others");
        // Group 0 was looked at last, so that group 1 makes room.
        drop(group(Some(&groups), &owner, 2, &decode));
        ready(Some(&groups), &owner, &[0, 1, 2], &mut found);
        assert_eq!(found.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, true]);
        // What somebody holds does not go.
        assert!(!groups.all.make_room(&mut lock(&groups.all.state), 600, false));
        found.clear();
        assert!(groups.all.make_room(&mut lock(&groups.all.state), 600, false));
        ready(None, &owner, &[0, 1], &mut found);
        assert_eq!((found.len(), decode.calls.load(Relaxed)), (2, 9));
    }

    #[test]
    fn what_is_decoded_ahead_takes_room_only_from_what_was_used_before() {
        let (budget, groups) = groups(950);
        let (owner, decode) = (Owner::default(), Counting::default());
        let get = |number| drop(group(Some(&groups), &owner, number, &decode).unwrap());
        let warm = |number| warm(&groups, &owner, number, &decode);
        let calls = || decode.calls.load(Relaxed) / 3;
        get(0);
        assert_eq!((warm(1), warm(2), calls()), (Warmed::Done, Warmed::Done, 3));
        assert_eq!((warm(1), calls()), (Warmed::Done, 3), "it is there");
        assert_eq!((warm(3), calls()), (Warmed::Done, 4), "group 0 made room");
        assert_eq!((warm(4), calls()), (Warmed::NoRoom, 4), "all that is there is still to come");
        get(1);
        assert_eq!(calls(), 4, "it was decoded ahead");
        get(0);
        assert_eq!(calls(), 5, "group 1, which was used, made room");
        get(2);
        get(3);
        assert_eq!(calls(), 5);
        // After a jump nothing of it is expected any more.
        assert_eq!(warm(5), Warmed::Done);
        groups.forget_coming();
        get(3);
        assert_eq!(warm(6), Warmed::Done);
        get(3);
        assert_eq!(calls(), 7);
        assert!(budget.used(Holder::Groups) <= 950);
    }

    #[test]
    fn damage_is_remembered_and_an_outage_is_not() {
        let (budget, groups) = groups(650);
        let owner = Owner::default();
        for (kind, calls) in [(ErrorKind::Corrupt, 2), (ErrorKind::Transient, 4)] {
            let decode = Counting { fails: Some(kind), ..Counting::default() };
            for _ in 0..2 {
                let e = group(Some(&groups), &owner, calls, &decode).unwrap_err();
                assert_eq!(e.kind(), kind);
                assert_eq!(budget.used(Holder::Groups), 0);
            }
            assert_eq!(decode.calls.load(Relaxed), calls as usize);
        }
    }

    #[test]
    fn what_never_fits_is_an_error_with_numbers_and_what_grows_is_begun_again() {
        let (budget, small) = groups(299);
        let owner = Owner::default();
        let e = group(Some(&small), &owner, 0, &Counting::default()).unwrap_err();
        assert!(
            e.kind() == ErrorKind::Limit && e.message().contains("300") && e.message().contains("299"),
            "{e}"
        );
        let lying = Counting { says: Some(10), ..Counting::default() };
        let e = group(Some(&small), &owner, 1, &lying).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Limit, "{e}");
        assert_eq!(budget.used(Holder::Groups), 0);
        let (budget, large) = groups(1000);
        let growing = Counting { says: Some(10), more: 50, ..Counting::default() };
        group(Some(&large), &owner, 1, &growing).unwrap();
        assert_eq!(budget.used(Holder::Groups), 300, "what was taken in between was given back");
    }

    #[test]
    fn many_threads_in_little_room_all_get_their_groups() {
        let (budget, groups) = groups(650);
        let owner = Owner::default();
        let decode = Counting { says: Some(120), more: 30, ..Counting::default() };
        thread::scope(|scope| {
            for t in 0..8 {
                let (groups, owner, decode) = (&groups, &owner, &decode);
                scope.spawn(move || {
                    for i in 0..200 {
                        let parts = group(Some(groups), owner, (i * (t + 1)) % 7, decode).unwrap();
                        assert_eq!(parts.len(), 3);
                    }
                });
            }
        });
        assert!(budget.used(Holder::Groups) <= 650);
        drop(groups);
        assert_eq!(budget.used(Holder::Groups), 0);
    }

    /// A group of one part, whose bytes lie in a store that answers later.
    struct Distant {
        bytes: u64,
        extents: Vec<Extent>,
    }

    impl Distant {
        fn new(bytes: u64) -> Self {
            Self { bytes, extents: vec![Extent::range("x", 7, 60), Extent::range("x", 100, 40)] }
        }
    }

    impl Decode for Distant {
        fn parts(&self) -> usize {
            1
        }

        fn bytes(&self) -> u64 {
            self.bytes
        }

        fn extents(&self) -> Vec<Extent> {
            self.extents.clone()
        }

        fn decode(&self, _: usize, pieces: Option<&[Bytes]>, growth: &Growth<'_>) -> Result<(Part, u64)> {
            let lens: Vec<usize> = pieces.unwrap().iter().map(|piece| piece.len()).collect();
            growth.take(self.bytes - 100)?;
            Ok((Arc::new(lens), self.bytes - 100))
        }
    }

    fn far_groups(cap: u64) -> (Arc<Budget>, Groups) {
        let budget = Budget::new();
        budget.set_cap(Holder::Groups, cap);
        (budget.clone(), Groups::far(budget, || {}))
    }

    fn came() -> Result<Vec<Bytes>> {
        Ok(vec![Bytes::from(vec![0; 60]), Bytes::from(vec![0; 40])])
    }

    /// Waits until so many groups were asked for.
    fn asked(groups: &Groups, count: usize) -> Vec<Want> {
        let mut all = Vec::new();
        while all.len() < count {
            all.extend(groups.wanted().0);
            thread::yield_now();
        }
        all
    }

    #[test]
    fn a_distant_group_is_decoded_when_its_bytes_have_come_and_an_outage_is_heard_by_all_who_wait() {
        let (budget, groups) = far_groups(1000);
        let groups = groups.of_leaf(3);
        let (owner, decode) = (Owner::default(), Distant::new(300));
        let get = |number| group(Some(&groups), &owner, number, &decode);
        thread::scope(|scope| {
            let waiting: Vec<_> = (0..4).map(|_| scope.spawn(|| get(5))).collect();
            let want = asked(&groups, 1).remove(0);
            assert_eq!((want.leaf, want.key.1, want.extents.len()), (3, 5, 2));
            groups.arrived(want.key, came());
            for thread in waiting {
                let parts = thread.join().unwrap().unwrap();
                assert_eq!(parts[0].downcast_ref::<Vec<usize>>().unwrap(), &[60, 40]);
            }
            assert_eq!(budget.used(Holder::Groups), 200, "the bytes are gone");

            let waiting: Vec<_> = (0..3).map(|_| scope.spawn(|| get(6))).collect();
            let want = asked(&groups, 1).remove(0);
            while !matches!(lock(&groups.all.state).entries.get(&want.key), Some(Entry::Open(open)) if open.waiting == 3)
            {
                thread::yield_now();
            }
            groups.arrived(want.key, Err(Error::transient("gone")));
            for thread in waiting {
                assert_eq!(thread.join().unwrap().unwrap_err().kind(), ErrorKind::Transient);
            }
            assert_eq!(budget.used(Holder::Groups), 200);
            // Whoever comes later asks again.
            let later = scope.spawn(|| get(6));
            groups.arrived(asked(&groups, 1)[0].key, came());
            later.join().unwrap().unwrap();

            let damaged = scope.spawn(|| get(7));
            groups.arrived(asked(&groups, 1)[0].key, Err(Error::corrupt("another object")));
            assert_eq!(damaged.join().unwrap().unwrap_err().kind(), ErrorKind::Corrupt);
            assert_eq!(get(7).unwrap_err().kind(), ErrorKind::Corrupt, "it stays so");

            let last = scope.spawn(|| get(8));
            asked(&groups, 1);
            budget.close();
            assert_eq!(last.join().unwrap().unwrap_err().kind(), ErrorKind::State);
        });
        drop(groups);
    }

    #[test]
    fn what_was_asked_for_ahead_is_given_up_after_a_jump_and_bytes_that_lie_there_make_room() {
        let (budget, groups) = far_groups(700);
        let (owner, decode) = (Owner::default(), Distant::new(300));
        let warm = |number| warm(&groups, &owner, number, &decode);
        let key = |number| (owner.id, number);
        assert_eq!((warm(0), warm(1), warm(2)), (Warmed::Coming, Warmed::Coming, Warmed::NoRoom));
        assert_eq!(warm(0), Warmed::Coming);
        let (wants, given_up) = groups.wanted();
        assert_eq!((wants.len(), given_up.len()), (2, 0));
        groups.arrived(key(0), came());
        groups.forget_coming();
        assert_eq!(budget.used(Holder::Groups), 300);
        let (wants, given_up) = groups.wanted();
        assert_eq!((wants.len(), given_up), (0, [key(1)].into()));
        groups.arrived(key(1), came());
        assert_eq!(budget.used(Holder::Groups), 300, "what comes late is of no use");
        // Nobody has begun to decode group 0, which is expected no longer.
        assert_eq!((warm(2), warm(3)), (Warmed::Coming, Warmed::Coming));
        assert_eq!(budget.used(Holder::Groups), 600);
        assert_eq!(groups.wanted().0.len(), 2);
        // One that is wanted now takes the place of bytes that came ahead.
        groups.arrived(key(2), came());
        thread::scope(|scope| {
            let wanted = scope.spawn(|| group(Some(&groups), &owner, 4, &decode).map(|parts| parts.len()));
            assert_eq!(asked(&groups, 1)[0].key, key(4));
            groups.arrived(key(4), came());
            assert_eq!(wanted.join().unwrap().unwrap(), 1);
        });
        groups.arrived(key(3), came());
        assert_eq!((warm(3), budget.used(Holder::Groups)), (Warmed::Done, 400));
        // What was given up before anybody asked for it is not asked for.
        assert_eq!(warm(9), Warmed::Coming);
        groups.forget_coming();
        assert!(groups.wanted().0.is_empty());
        drop(groups);
        assert_eq!(budget.used(Holder::Groups), 0);
    }

    #[test]
    fn many_threads_in_little_room_all_get_distant_groups() {
        let (budget, groups) = far_groups(700);
        let owner = Owner::default();
        let decode = Distant::new(300);
        let left = AtomicUsize::new(6);
        thread::scope(|scope| {
            for t in 0..6 {
                let (groups, owner, decode, left) = (&groups, &owner, &decode, &left);
                scope.spawn(move || {
                    for i in 0..100 {
                        if i % 7 == 3 {
                            warm(groups, owner, i % 5, decode);
                        }
                        if i % 31 == 30 {
                            groups.forget_coming();
                        }
                        let parts = group(Some(groups), owner, (i * (t + 1)) % 7, decode).unwrap();
                        assert_eq!(parts.len(), 1);
                    }
                    left.fetch_sub(1, Relaxed);
                });
            }
            while left.load(Relaxed) > 0 {
                for want in groups.wanted().0 {
                    groups.arrived(want.key, came());
                }
                thread::yield_now();
            }
        });
        assert!(budget.used(Holder::Groups) <= 700);
        drop(groups);
        assert_eq!(budget.used(Holder::Groups), 0);
    }

    #[test]
    fn a_panic_is_an_error_for_all_who_wait() {
        struct Panics;
        impl Decode for Panics {
            fn parts(&self) -> usize {
                1
            }
            fn bytes(&self) -> u64 {
                1
            }
            fn decode(&self, _: usize, _: Option<&[Bytes]>, _: &Growth<'_>) -> Result<(Part, u64)> {
                panic!("planted")
            }
        }
        let (_, groups) = groups(10);
        let owner = Owner::default();
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            drop(group(Some(&groups), &owner, 0, &Panics));
        }));
        assert!(caught.is_err());
        assert_eq!(group(Some(&groups), &owner, 0, &Panics).unwrap_err().kind(), ErrorKind::Internal);
    }

    #[test]
    fn without_a_loader_a_thread_keeps_groups_as_long_as_their_source_lives() {
        let (owner, decode) = (Owner::default(), Counting::default());
        for number in [0, 1, 0, 1] {
            assert_eq!(group(None, &owner, number, &decode).unwrap().len(), 3);
        }
        assert_eq!(decode.calls.load(Relaxed), 6);
        drop(owner);
        let other = Owner::default();
        drop(group(None, &other, 0, &decode));
        assert_eq!(alone::ALONE.with_borrow(Vec::len), 1, "those of the source that is gone are gone");
    }
}
