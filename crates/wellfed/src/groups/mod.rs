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
mod tests;
