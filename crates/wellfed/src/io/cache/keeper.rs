//! [`Keeper`]: a loader's way to a [`Folder`], by threads of its own: those that read, and one that writes and plans.
//!
//! The I/O layer asks for ranges ([`Keeper::ask`]) and is told which are there, with their bytes, and which are to be
//! downloaded. What it has downloaded it hands over ([`Keeper::keep`]), and does not wait until it is written: what does not
//! fit in the queue is not kept. So no thread of the loader waits for the local disk.
//!
//! Invariant: each range that is asked for is answered exactly once, unless the keeper is closed. What cannot be read, for
//! whatever reason, is to be downloaded.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    fmt, io,
    ops::Range,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use super::{
    folder::{Claim, Folder, Guard, Look},
    future::{Future, moment},
    policy::{IN_USE, Moment, NEVER, SOMETIME, User},
};
use crate::{Error, ErrorKind, Result, io::Bytes, lock, meter::RemoteCacheStats, store::Version};

/// Threads that read entries.
pub(crate) const READERS: usize = 4;

/// Of more tasks than that, some are left out.
const TASKS: usize = 100_000;

/// How often it is looked whether another process has finished a download.
const LOOK: Duration = Duration::from_millis(10);

/// For so long the download of another process is waited for. It may have been stopped.
const PATIENCE: Duration = Duration::from_secs(5);

/// Which samples come in an epoch, as [`visit`](super::future::visit) has it. `None`, if that is not known or takes too much
/// memory.
pub(crate) type Walk = dyn Fn(u64) -> Option<Vec<u64>> + Send + Sync;

/// Which sample needs a range, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Need {
    /// Number among the samples of all sources of the loader.
    pub(crate) sample: u64,
    pub(crate) at: Moment,
}

/// A range of an object as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    /// Of the range, whatever the object holds.
    pub(crate) key: u64,
    /// Of what it holds.
    pub(crate) stamp: u64,
}

impl Name {
    /// The name of a range, or all, of an object of this version.
    pub(crate) fn of(version: Version, range: Option<&Range<u64>>) -> Self {
        let (start, end) = range.map_or((u64::MAX, 0), |range| (range.start, range.end));
        let hash = |parts: [u64; 4]| rapidhash::v3::rapidhash_v3(&parts.map(u64::to_le_bytes).concat());
        Self {
            key: hash([1, version.object, start, end]),
            stamp: hash([2, version.content, version.object.rotate_left(17) ^ start, end]),
        }
    }
}

/// A range that is wanted.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    /// Whose it is, for the one who asks.
    pub(crate) want: u64,
    pub(crate) piece: usize,
    pub(crate) name: Name,
    /// Its length, or the most that it may have.
    pub(crate) exactly: Option<u64>,
    pub(crate) most: u64,
    pub(crate) need: Need,
    /// Bytes that it is thought to be.
    pub(crate) cost: u64,
}

/// What has become of it.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) want: u64,
    pub(crate) piece: usize,
    pub(crate) found: Found,
    /// As it was asked.
    pub(crate) cost: u64,
}

impl Ask {
    /// Whether so many bytes are what is asked for.
    fn takes(&self, bytes: u64) -> bool {
        bytes <= self.most && self.exactly.is_none_or(|exactly| exactly == bytes)
    }

    fn reply(&self, found: Found) -> Reply {
        Reply { want: self.want, piece: self.piece, found, cost: self.cost }
    }
}

#[derive(Debug)]
pub(crate) enum Found {
    /// Its bytes, checked.
    Here(Vec<u8>),
    /// It is to be downloaded. Others wait for it as long as the guard lives.
    Missing(Option<Guard>),
}

/// An ask on its way.
#[derive(Debug)]
struct Waiting {
    ask: Ask,
    /// It was there when it was looked for.
    seen: bool,
    /// Another process downloads it: when to look again, and until when.
    others: Option<(Instant, Instant)>,
}

/// What the writing thread does.
enum Task {
    /// Training goes on in this epoch from this batch on.
    Plan {
        epoch: u64,
        batch: u64,
    },
    Used {
        key: u64,
        need: Need,
    },
    /// It is damaged, or of another version than this, unless one of this version has come since.
    RemoveOther(Name),
    Put {
        name: Name,
        need: Need,
        bytes: Bytes,
        guard: Option<Guard>,
    },
    /// Put, if it is not there.
    Offer {
        name: Name,
        need: Need,
        bytes: Bytes,
    },
}

#[derive(Default)]
struct Queue {
    asks: VecDeque<Vec<Waiting>>,
    /// For downloads of others.
    later: Vec<Waiting>,
    tasks: VecDeque<Task>,
    /// What waits to be written, by key, for who needs it meanwhile; and the bytes of it.
    unwritten: HashMap<u64, (u64, Bytes)>,
    bytes: u64,
    /// Something is being written.
    busy: bool,
    closed: bool,
}

/// What is counted.
#[derive(Debug, Default)]
struct Counts {
    hits: AtomicU64,
    hit_bytes: AtomicU64,
    misses: AtomicU64,
    missed_bytes: AtomicU64,
    written: AtomicU64,
    left_out: AtomicU64,
    dropped: AtomicU64,
}

/// How a loader uses a folder.
pub(crate) struct Keeper {
    path: String,
    folder: Folder,
    owner: u64,
    walk: Option<Box<Walk>>,
    future: Arc<Mutex<Future>>,
    future_bytes: AtomicU64,
    /// Bytes that may wait to be written.
    most: u64,
    queue: Mutex<Queue>,
    /// Readers wait here.
    read: Condvar,
    /// The writer waits here.
    write: Condvar,
    /// Whoever waits for the writer.
    done: Condvar,
    counts: Counts,
    /// Why nothing more is kept, or less.
    problem: Mutex<Option<String>>,
    /// Nothing is written any more.
    broken: AtomicBool,
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keeper({}, {:?})", self.path, self.folder)
    }
}

/// The error of a folder that cannot be used.
fn unusable(path: &str, e: io::Error) -> Error {
    let hint = match e.kind() {
        io::ErrorKind::AlreadyExists => "name an empty folder, or one that does not exist",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "name a folder that this user may write to, or remote_cache=\"off\""
        }
        _ => "name another folder, or remote_cache=\"off\"",
    };
    match e.kind() {
        io::ErrorKind::AlreadyExists => Error::config(format!("cannot use {path} as a remote cache: {e}")),
        _ => Error::io("use the remote cache", path, e),
    }
    .with_hint(hint)
}

/// Bytes that a cache in the folder `path` has without a limit of its own: half of what is free, and what it takes already.
#[cfg(unix)]
#[allow(clippy::unnecessary_cast, reason = "the types of these fields differ from system to system")]
fn free(path: &str) -> io::Result<u64> {
    let path = std::ffi::CString::new(path)?;
    // SAFETY: all zeros are a value of this plain struct.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends with a zero, and the struct is one that this call fills.
    if unsafe { libc::statvfs(path.as_ptr(), &raw mut found) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((found.f_bavail as u64).saturating_mul(found.f_frsize as u64))
}

#[cfg(not(unix))]
fn free(_: &str) -> io::Result<u64> {
    Err(io::ErrorKind::Unsupported.into())
}

impl Keeper {
    /// Opens the folder `path` for the data set `owner`, which `name` describes, with `limit` bytes, or half of what is free.
    /// `most` bytes may wait to be written.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a folder with something else in it, or no limit where free space is not known; an I/O error.
    pub(crate) fn open(
        path: &str,
        limit: Option<u64>,
        (owner, name): (u64, &str),
        walk: Option<Box<Walk>>,
        most: u64,
    ) -> Result<Self> {
        let folder = Folder::open(path, limit.unwrap_or(u64::MAX)).map_err(|e| unusable(path, e))?;
        if limit.is_none() {
            let free = free(path).map_err(|e| {
                Error::new(ErrorKind::Config, format!("free space of {path} is not known: {e}"))
                    .with_hint("give remote_cache_bytes")
            })?;
            folder.set_limit((free / 2).saturating_add(folder.held().0));
        }
        folder.enter(owner, name).map_err(|e| unusable(path, e))?;
        let this = Self {
            path: path.to_owned(),
            folder,
            owner,
            walk,
            future: Arc::default(),
            future_bytes: AtomicU64::new(0),
            most,
            queue: Mutex::default(),
            read: Condvar::new(),
            write: Condvar::new(),
            done: Condvar::new(),
            counts: Counts::default(),
            problem: Mutex::default(),
            broken: AtomicBool::new(false),
        };
        this.renew(0);
        Ok(this)
    }

    /// Bytes of memory that it takes: what waits to be written, and what is known of the order.
    pub(crate) fn bytes(&self) -> u64 {
        lock(&self.queue).bytes + self.future_bytes.load(Relaxed)
    }

    /// Its counters.
    pub(crate) fn stats(&self) -> RemoteCacheStats {
        let Counts { hits, hit_bytes, misses, missed_bytes, written, left_out, dropped } = &self.counts;
        let get = |count: &AtomicU64| count.load(Relaxed);
        let (bytes, limit) = self.folder.held();
        RemoteCacheStats {
            path: self.path.clone(),
            bytes,
            limit,
            hits: get(hits),
            hit_bytes: get(hit_bytes),
            misses: get(misses),
            missed_bytes: get(missed_bytes),
            written: get(written),
            left_out: get(left_out),
            dropped: get(dropped),
            problem: lock(&self.problem).clone(),
        }
    }

    /// Asks for ranges together. The answers come to whoever runs [`Keeper::run_reader`].
    pub(crate) fn ask(&self, asks: Vec<Ask>) {
        if asks.is_empty() {
            return;
        }
        let all = asks.into_iter().map(|ask| Waiting { ask, seen: false, others: None }).collect();
        lock(&self.queue).asks.push_back(all);
        self.read.notify_one();
    }

    /// Training goes on at this place.
    pub(crate) fn plan(&self, epoch: u64, batch: u64) {
        self.task(Task::Plan { epoch, batch });
    }

    /// Bytes that were downloaded. Kept, if that is worth it, later and by another thread.
    pub(crate) fn keep(&self, name: Name, need: Need, bytes: &Bytes, guard: Option<Guard>) {
        self.downloaded(bytes.len() as u64);
        self.hand_over(name, bytes, true, Task::Put { name, need, bytes: bytes.clone(), guard });
    }

    /// Bytes that lie in memory, and were downloaded with others: kept as those are, unless they are there.
    pub(crate) fn offer(&self, name: Name, need: Need, bytes: &Bytes) {
        self.hand_over(name, bytes, false, Task::Offer { name, need, bytes: bytes.clone() });
    }

    /// Gives the writing thread a task with bytes, if they fit into the queue. `new`: they are nowhere else.
    fn hand_over(&self, name: Name, bytes: &Bytes, new: bool, task: Task) {
        let size = bytes.len() as u64;
        if self.broken.load(Relaxed) {
            return;
        }
        let mut queue = lock(&self.queue);
        if queue.bytes.saturating_add(size) > self.most && queue.bytes > 0 {
            self.counts.dropped.fetch_add(u64::from(new), Relaxed);
            return;
        }
        queue.bytes += size;
        if new {
            queue.unwritten.insert(name.key, (name.stamp, bytes.clone()));
        }
        queue.tasks.push_back(task);
        drop(queue);
        self.write.notify_one();
    }

    /// A range was downloaded that cannot be kept, as nobody knows of which version it is.
    pub(crate) fn downloaded(&self, bytes: u64) {
        self.counts.misses.fetch_add(1, Relaxed);
        self.counts.missed_bytes.fetch_add(bytes, Relaxed);
    }

    fn task(&self, task: Task) {
        let mut queue = lock(&self.queue);
        // What is not known to be used is asked about anew in the next epoch.
        if queue.tasks.len() < TASKS || !matches!(task, Task::Used { .. }) {
            queue.tasks.push_back(task);
            drop(queue);
            self.write.notify_one();
        }
    }

    /// Lets all threads end. What waits to be written is written first.
    pub(crate) fn close(&self) {
        lock(&self.queue).closed = true;
        self.read.notify_all();
        self.write.notify_all();
        self.done.notify_all();
    }

    /// The loop of a thread that reads, until the keeper is closed.
    pub(crate) fn run_reader(&self, reply: impl Fn(Vec<Reply>)) {
        while let Some(asks) = self.next_asks() {
            let mut missing = Vec::new();
            let mut found = Vec::new();
            for waiting in asks {
                if !waiting.seen && !self.folder.has(waiting.ask.name.key) {
                    missing.extend(self.missing(waiting));
                } else {
                    found.push(waiting);
                }
            }
            // Downloads begin before anything is read.
            if !missing.is_empty() {
                reply(missing);
            }
            // What else is there is left to the other readers.
            let rest = found.split_off(found.len().min(1));
            if !rest.is_empty() {
                let alone = |mut waiting: Waiting| {
                    waiting.seen = true;
                    vec![waiting]
                };
                lock(&self.queue).asks.extend(rest.into_iter().map(alone));
                self.read.notify_all();
            }
            for waiting in found {
                let replies = match self.get(&waiting.ask) {
                    Some(bytes) => vec![waiting.ask.reply(Found::Here(bytes))],
                    None => self.missing(waiting).into_iter().collect(),
                };
                if !replies.is_empty() {
                    reply(replies);
                }
            }
        }
    }

    /// What a reader does next. `None`, when the keeper is closed.
    fn next_asks(&self) -> Option<Vec<Waiting>> {
        let mut queue = lock(&self.queue);
        loop {
            if queue.closed {
                return None;
            }
            if let Some(asks) = queue.asks.pop_front() {
                return Some(asks);
            }
            let now = Instant::now();
            let due = |waiting: &Waiting| waiting.others.is_none_or(|(at, _)| at <= now);
            if let Some(at) = queue.later.iter().position(due) {
                return Some(vec![queue.later.swap_remove(at)]);
            }
            queue = if queue.later.is_empty() {
                self.read.wait(queue).unwrap_or_else(|poisoned| poisoned.into_inner())
            } else {
                self.read.wait_timeout(queue, LOOK).unwrap_or_else(|poisoned| poisoned.into_inner()).0
            };
        }
    }

    /// What becomes of a range that is not there: it is downloaded, here or by the process that is about it.
    fn missing(&self, mut waiting: Waiting) -> Option<Reply> {
        let Name { key, stamp } = waiting.ask.name;
        let unwritten = lock(&self.queue).unwritten.get(&key).filter(|(of, _)| *of == stamp).cloned();
        if let Some((_, bytes)) = unwritten.filter(|(_, bytes)| waiting.ask.takes(bytes.len() as u64)) {
            self.hit(&waiting.ask, bytes.len() as u64);
            return Some(waiting.ask.reply(Found::Here(bytes.to_vec())));
        }
        let guard = match self.folder.claim(key) {
            // Between the look and the claim somebody else may have put it there.
            Claim::Mine(guard) if !waiting.seen && self.folder.has(key) => {
                drop(guard);
                waiting.seen = true;
                lock(&self.queue).asks.push_back(vec![waiting]);
                self.read.notify_one();
                return None;
            }
            // What was of another version when it was looked at may have been replaced since.
            Claim::Mine(guard) if waiting.seen => match self.get(&waiting.ask) {
                Some(bytes) => return Some(waiting.ask.reply(Found::Here(bytes))),
                None => Some(guard),
            },
            Claim::Mine(guard) => Some(guard),
            Claim::Others => {
                let now = Instant::now();
                let until = waiting.others.map_or(now + PATIENCE, |(_, until)| until);
                if now < until {
                    waiting.others = Some((now + LOOK, until));
                    waiting.seen = false;
                    lock(&self.queue).later.push(waiting);
                    self.read.notify_one();
                    return None;
                }
                None
            }
        };
        Some(waiting.ask.reply(Found::Missing(guard)))
    }

    /// The bytes of an entry, if it is there and as it should be.
    fn get(&self, ask: &Ask) -> Option<Vec<u8>> {
        let Name { key, stamp } = ask.name;
        let bytes = match self.folder.look(key, stamp) {
            Ok(Look::Bytes(bytes)) => bytes,
            Ok(Look::Nothing) => return None,
            Ok(Look::Other) => {
                self.task(Task::RemoveOther(ask.name));
                return None;
            }
            Err(e) => {
                self.trouble(format!("cannot read from {}: {e}", self.path));
                return None;
            }
        };
        if !ask.takes(bytes.len() as u64) {
            return None;
        }
        self.hit(ask, bytes.len() as u64);
        Some(bytes)
    }

    fn hit(&self, ask: &Ask, bytes: u64) {
        self.counts.hits.fetch_add(1, Relaxed);
        self.counts.hit_bytes.fetch_add(bytes, Relaxed);
        self.task(Task::Used { key: ask.name.key, need: ask.need });
    }

    /// The loop of the thread that writes and plans, until the keeper is closed and all is written.
    pub(crate) fn run_writer(&self) {
        if let Err(e) = self.folder.sweep() {
            self.trouble(format!("cannot tidy up {}: {e}", self.path));
        }
        loop {
            let task = {
                let mut queue = lock(&self.queue);
                queue.busy = false;
                loop {
                    if let Some(task) = queue.tasks.pop_front() {
                        queue.busy = true;
                        break task;
                    }
                    self.done.notify_all();
                    if queue.closed {
                        return;
                    }
                    queue = self.write.wait(queue).unwrap_or_else(|poisoned| poisoned.into_inner());
                }
            };
            match task {
                Task::Plan { epoch, batch } => self.look_ahead(epoch, batch),
                Task::RemoveOther(Name { key, stamp }) => {
                    if let Err(e) = self.folder.remove_other(key, stamp) {
                        self.trouble(format!("cannot remove from {}: {e}", self.path));
                    }
                }
                Task::Used { key, need } => self.folder.used(key, self.user(need), need.at),
                Task::Put { name, need, bytes, guard } => {
                    self.put(name, need, &bytes);
                    let mut queue = lock(&self.queue);
                    queue.bytes -= bytes.len() as u64;
                    queue.unwritten.remove(&name.key);
                    drop(queue);
                    drop(guard);
                }
                Task::Offer { name, need, bytes } => {
                    if !self.folder.has(name.key) {
                        self.downloaded(bytes.len() as u64);
                        self.put(name, need, &bytes);
                    }
                    lock(&self.queue).bytes -= bytes.len() as u64;
                }
            }
        }
    }

    /// Waits until all that was handed over is written. For tests, and for whoever fills a cache.
    pub(crate) fn settle(&self) {
        let mut queue = lock(&self.queue);
        while !queue.closed && (queue.busy || !queue.tasks.is_empty()) {
            queue = self.done.wait(queue).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    fn user(&self, need: Need) -> User {
        User { owner: self.owner, sample: need.sample }
    }

    fn put(&self, name: Name, need: Need, bytes: &Bytes) {
        if self.broken.load(Relaxed) {
            return;
        }
        match self.folder.put(name.key, name.stamp, bytes, self.user(need), need.at) {
            Ok(true) => drop(self.counts.written.fetch_add(1, Relaxed)),
            Ok(false) => drop(self.counts.left_out.fetch_add(1, Relaxed)),
            Err(e) if matches!(e.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => {
                self.folder.stop_growing();
                let (held, _) = self.folder.held();
                self.trouble(format!(
                    "{} grows no more, as the disk is full: it has {held} bytes",
                    self.path
                ));
            }
            Err(e) => {
                self.broken.store(true, Relaxed);
                self.trouble(format!("cannot write to {}: {e}", self.path));
            }
        }
    }

    /// Learns what comes in this epoch and in the next one.
    fn look_ahead(&self, epoch: u64, batch: u64) {
        if let Some(walk) = &self.walk {
            for known in [epoch, epoch.saturating_add(1)] {
                if lock(&self.future).knows(known) {
                    continue;
                }
                match walk(known) {
                    // What is left of the epoch before is still under way.
                    Some(visits) => lock(&self.future).know(known, epoch.saturating_sub(1), visits),
                    None => lock(&self.future).clear(),
                }
            }
            self.future_bytes.store(lock(&self.future).bytes(), Relaxed);
        }
        self.renew(moment(epoch, batch));
    }

    /// Tells the folder what is needed when, from now on.
    fn renew(&self, now: Moment) {
        // Who is not known to be at work may be, if that cannot be found out.
        let at_work: Option<HashSet<u64>> = self.folder.at_work().ok();
        let (own, future) = (self.owner, self.future.clone());
        self.folder.plan(now, move |user, from| match &at_work {
            _ if user.owner == own => lock(&future).next(user.sample, from),
            Some(at_work) if !at_work.contains(&user.owner) => NEVER,
            _ => IN_USE,
        });
    }

    /// Notes the first problem; later ones come of it, or are like it.
    fn trouble(&self, text: String) {
        lock(&self.problem).get_or_insert(text);
    }
}

/// Of all that is known, nothing comes later than that.
const _: () = assert!(SOMETIME < NEVER && IN_USE < SOMETIME);

#[cfg(test)]
mod tests {
    use std::{fs, sync::mpsc, thread};

    use super::*;
    use crate::testing::TempFolder;

    /// What the disk gives out for an entry of 100 bytes.
    const ONE: u64 = 4096;

    const LONG: Duration = Duration::from_secs(60);

    fn open(folder: &TempFolder, limit: u64, owner: u64) -> Keeper {
        Keeper::open(&folder.join("cache"), Some(limit), (owner, "numbers"), None, 1 << 20).unwrap()
    }

    fn name(key: u64) -> Name {
        Name { key, stamp: 5 }
    }

    fn ask(key: u64) -> Ask {
        let need = Need { sample: key, at: 1 };
        Ask { want: key, piece: 0, name: name(key), exactly: Some(100), most: 100, need, cost: 100 }
    }

    fn bytes(key: u64) -> Bytes {
        Bytes::from(vec![key as u8; 100])
    }

    fn keep(keeper: &Keeper, key: u64, guard: Option<Guard>) {
        keeper.keep(name(key), Need { sample: key, at: 1 }, &bytes(key), guard);
    }

    /// Runs `test` with a thread of the keeper that reads, and one that writes unless `write` is false.
    fn with_threads(keeper: &Keeper, write: bool, test: impl FnOnce(&mpsc::Receiver<Vec<Reply>>)) {
        let (sender, receiver) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(move || keeper.run_reader(|replies| drop(sender.send(replies))));
            if write {
                scope.spawn(|| keeper.run_writer());
            }
            let _closed = Closed(keeper);
            test(&receiver);
        });
    }

    /// Closes a keeper when the test is over, however it ends.
    struct Closed<'a>(&'a Keeper);

    impl Drop for Closed<'_> {
        fn drop(&mut self) {
            self.0.close();
        }
    }

    fn here(replies: Vec<Reply>) -> bool {
        let [Reply { want, found: Found::Here(found), .. }] = &replies[..] else { return false };
        assert_eq!(*found, vec![*want as u8; 100]);
        true
    }

    #[test]
    fn what_waits_to_be_written_is_there_already_and_later_on_disk() {
        let folder = TempFolder::new();
        let keeper = open(&folder, 10 * ONE, 1);
        keep(&keeper, 3, None);
        with_threads(&keeper, false, |replies| {
            keeper.ask(vec![ask(3)]);
            assert!(here(replies.recv_timeout(LONG).unwrap()));
            assert!(!keeper.folder.has(3));
        });
        drop(keeper);
        let keeper = open(&folder, 10 * ONE, 1);
        keep(&keeper, 4, None);
        with_threads(&keeper, true, |replies| {
            keeper.settle();
            assert!(keeper.folder.has(4));
            // What is missing is said at once, and what is there comes after it.
            keeper.ask(vec![ask(4), ask(9)]);
            let missing = replies.recv_timeout(LONG).unwrap();
            assert!(matches!(&missing[..], [Reply { want: 9, found: Found::Missing(Some(_)), .. }]));
            assert!(here(replies.recv_timeout(LONG).unwrap()));
        });
        let stats = keeper.stats();
        assert_eq!((stats.hits, stats.hit_bytes, stats.written), (1, 100, 1));
        assert_eq!((stats.bytes, stats.limit, stats.problem), (ONE, 10 * ONE, None));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_download_of_another_process_is_waited_for_and_made_up_for_if_it_fails() {
        let folder = TempFolder::new();
        let (one, other) = (open(&folder, 10 * ONE, 1), open(&folder, 10 * ONE, 1));
        let claimed = |key| match one.folder.claim(key) {
            Claim::Mine(guard) => guard,
            Claim::Others => panic!("nobody else is about it"),
        };
        with_threads(&other, true, |replies| {
            let guard = claimed(7);
            other.ask(vec![ask(7)]);
            assert!(replies.recv_timeout(Duration::from_millis(50)).is_err(), "it is not downloaded twice");
            one.folder.put(7, 5, &bytes(7), User { owner: 1, sample: 7 }, 1).unwrap();
            drop(guard);
            assert!(here(replies.recv_timeout(LONG).unwrap()));
            let guard = claimed(8);
            other.ask(vec![ask(8)]);
            assert!(replies.recv_timeout(Duration::from_millis(50)).is_err());
            drop(guard);
            let missing = replies.recv_timeout(LONG).unwrap();
            assert!(matches!(&missing[..], [Reply { want: 8, found: Found::Missing(Some(_)), .. }]));
        });
    }

    #[test]
    fn what_is_of_no_use_is_downloaded_and_removed() {
        let folder = TempFolder::new();
        let keeper = open(&folder, 10 * ONE, 1);
        let user = |sample| User { owner: 1, sample };
        keeper.folder.put(1, 6, &bytes(1), user(1), 1).unwrap();
        keeper.folder.put(2, 5, &[2; 99], user(2), 1).unwrap();
        let mut missing = 0;
        with_threads(&keeper, true, |replies| {
            keeper.ask(vec![ask(1), ask(2)]);
            while missing < 2 {
                for reply in replies.recv_timeout(LONG).unwrap() {
                    assert!(
                        matches!(reply.found, Found::Missing(Some(_))),
                        "another version, another length"
                    );
                    missing += 1;
                }
            }
            keeper.settle();
        });
        assert_eq!(keeper.folder.size().unwrap(), (1, ONE), "the other version is gone");
    }

    #[test]
    fn what_came_since_another_version_was_seen_stays() {
        let folder = TempFolder::new();
        let keeper = open(&folder, 10 * ONE, 1);
        let user = User { owner: 1, sample: 1 };
        keeper.folder.put(1, 5, &bytes(1), user, 1).unwrap();
        keeper.folder.put(2, 6, &bytes(2), user, 1).unwrap();
        with_threads(&keeper, true, |_| {
            keeper.task(Task::RemoveOther(name(1)));
            keeper.task(Task::RemoveOther(name(2)));
            keeper.settle();
        });
        assert!(keeper.folder.has(1) && !keeper.folder.has(2));
        // As when it comes between the look and the claim.
        let waiting = Waiting { ask: ask(1), seen: true, others: None };
        let reply = keeper.missing(waiting).unwrap();
        assert!(here(vec![reply]));
    }

    #[test]
    fn what_a_data_set_left_that_nobody_reads_goes_first_and_what_is_in_use_stays() {
        let folder = TempFolder::new();
        let fill = |keeper: &Keeper, keys: std::ops::Range<u64>| {
            with_threads(keeper, true, |_| {
                keys.for_each(|key| keep(keeper, key, None));
                keeper.settle();
            });
        };
        let before = open(&folder, 3 * ONE, 1);
        fill(&before, 0..3);
        let beside = open(&folder, 3 * ONE, 2);
        fill(&beside, 10..12);
        assert_eq!((beside.stats().written, beside.stats().left_out), (0, 2), "all of it is in use");
        drop((before, beside));
        let after = open(&folder, 3 * ONE, 2);
        fill(&after, 10..12);
        assert_eq!((after.stats().written, after.folder.size().unwrap()), (2, (3, 3 * ONE)));
    }

    #[test]
    fn what_cannot_be_written_ends_writing_and_is_told_once() {
        let folder = TempFolder::new();
        let keeper = open(&folder, 10 * ONE, 1);
        // Whoever runs this may be allowed everything: so there is a folder where a file is to be.
        fs::create_dir(folder.join("cache/objects/part")).unwrap();
        with_threads(&keeper, true, |_| {
            keep(&keeper, 1, None);
            keep(&keeper, 2, None);
            keeper.settle();
        });
        let problem = keeper.stats().problem.unwrap();
        assert!(problem.starts_with("cannot") && problem.contains(&folder.join("cache")), "{problem}");
        assert_eq!(keeper.stats().bytes, 0);
    }
}
