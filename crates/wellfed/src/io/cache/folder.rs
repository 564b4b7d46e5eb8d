//! [`Folder`]: bytes by key in a folder of the local disk, shared by the processes of a machine.
//!
//! Each entry is a file, which appears whole, under its name, and is checked whenever it is read. A log says which there
//! are, and how large, so that all processes count the same bytes and none exceeds the budget. Whoever changes anything holds
//! the lock of the folder and first reads what others have added to the log. A process may die at any moment: the system gives
//! its locks back, the end of a torn log is cut off, and files that no log names are removed when the folder is next opened.
//! Nothing is flushed to the disk, as what a power cut damages has a wrong checksum and is downloaded again.
//!
//! Entries have an *owner*, the data set whose samples they are. Who has the folder open for an owner holds a lock of the owner's
//! file in `users`, so that others can tell what is in use from what is left over.
//!
//! ```text
//! log:            "WFBYTES\1"  records: key u64  bytes u64 (0: it is gone)  owner u64  sample u64  rapidhash of these 32 bytes u64
//! objects/XX/KEY: key u64  stamp u64  bytes u64  rapidhash of the bytes u64  the bytes       numbers little-endian
//! users/OWNER:    what the owner is, as text
//! ```

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::SystemTime,
};

use super::policy::{Moment, NEVER, Policy, User};

const MAGIC: &[u8; 8] = b"WFBYTES\x01";
const RECORD: usize = 40;
const HEAD: usize = 32;

/// What disks give out at a time.
const BLOCK: u64 = 4096;

/// Processes that share an epoch are no further apart than so many moments: what was needed before that is taken to be used.
const LATE: Moment = 64;

/// A log is written anew when it has so many times the records that it needs.
const SLACK: u64 = 4;

/// Bytes by key.
#[derive(Debug)]
pub struct Folder {
    root: PathBuf,
    lock: File,
    claims: Arc<Claims>,
    state: Mutex<State>,
    /// Bytes of all entries, as of the last look.
    held: AtomicU64,
    limit: AtomicU64,
    /// Held locked, so that others know that the owner is at work.
    using: Mutex<Option<File>>,
}

/// Says when who needs an entry does so next, from a moment on.
type Next = Box<dyn Fn(User, Moment) -> Moment + Send>;

/// What this process knows of the folder.
struct State {
    policy: Policy,
    limit: u64,
    next: Next,
    /// The last moment that was heard of.
    now: Moment,
    log: File,
    /// Which file the log was, and how much of it was read.
    identity: u64,
    read: u64,
    records: u64,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} entries, {} of {} bytes", self.policy.len(), self.policy.bytes(), self.limit)
    }
}

/// Who downloads an entry that is not there.
#[derive(Debug)]
pub enum Claim {
    /// This process, until the guard is dropped.
    Mine(Guard),
    /// Somebody is about it already: another process, or this one.
    Others,
}

/// Holds the claim to one entry.
#[derive(Debug)]
pub struct Guard {
    claims: Arc<Claims>,
    key: u64,
}

/// The claims of this process, and the file that shows them to others.
#[derive(Debug)]
struct Claims {
    file: File,
    own: Mutex<HashSet<u64>>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut own = self.claims.own.lock().unwrap_or_else(PoisonError::into_inner);
        own.remove(&self.key);
        claim(&self.claims.file, self.key, false);
    }
}

/// What an entry holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// These bytes.
    Bytes(Vec<u8>),
    /// There is none.
    Nothing,
    /// It is of another stamp, or damaged.
    Other,
}

/// What the folder has of one owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    /// What it is, as it said itself; empty if that is not known.
    pub name: String,
    /// Entries, and their bytes.
    pub entries: u64,
    /// Their bytes, what the file of each begins with included.
    pub bytes: u64,
    /// Whether it is at work now.
    pub in_use: bool,
    /// When it last was.
    pub used: Option<SystemTime>,
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[8 * at..8 * at + 8]);
    u64::from_le_bytes(word)
}

fn sum(bytes: &[u8]) -> u64 {
    rapidhash::v3::rapidhash_v3(bytes)
}

/// What an entry of so many bytes takes on the disk.
fn on_disk(len: usize) -> u64 {
    ((HEAD + len) as u64).next_multiple_of(BLOCK)
}

fn record(key: u64, bytes: u64, user: User) -> [u8; RECORD] {
    let mut record = [0; RECORD];
    for (at, number) in [key, bytes, user.owner, user.sample].into_iter().enumerate() {
        record[8 * at..8 * at + 8].copy_from_slice(&number.to_le_bytes());
    }
    let check = sum(&record[..RECORD - 8]);
    record[RECORD - 8..].copy_from_slice(&check.to_le_bytes());
    record
}

/// Makes a folder that nobody else may read, as what it will hold may not be for everybody.
fn make_folder(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Which file this is: another one in its place has another number as long as this one is open.
#[cfg(unix)]
fn identity(of: &fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(of)
}

#[cfg(not(unix))]
fn identity(of: &fs::Metadata) -> u64 {
    let made = of.created().ok().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
    made.map_or(0, |made| made.as_nanos() as u64)
}

/// Takes or gives back the claim to `key`: a lock of one byte of a file, which nobody keeps who has died. False, if somebody
/// else has it.
#[cfg(target_os = "linux")]
fn claim(claims: &File, key: u64, take: bool) -> bool {
    use std::os::fd::AsRawFd;
    let kind = if take { libc::F_WRLCK } else { libc::F_UNLCK };
    // SAFETY: all zeros are a value of this plain struct.
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    range.l_type = kind as libc::c_short;
    range.l_whence = libc::SEEK_SET as libc::c_short;
    range.l_start = (key >> 2) as libc::off_t;
    range.l_len = 1;
    // SAFETY: the descriptor is open as long as `claims` lives, and `range` is a lock as this call takes it.
    let done = unsafe { libc::fcntl(claims.as_raw_fd(), libc::F_OFD_SETLK, &raw const range) };
    // Where a file system has no such locks, everybody downloads.
    done == 0 || !matches!(io::Error::last_os_error().raw_os_error(), Some(libc::EAGAIN | libc::EACCES))
}

#[cfg(not(target_os = "linux"))]
fn claim(_: &File, _: u64, _: bool) -> bool {
    true
}

fn open_to_write(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

impl Folder {
    /// Opens the folder `root`, or makes it, for `limit` bytes.
    ///
    /// # Errors
    /// `AlreadyExists`, if something else lies there; those of the file system.
    pub fn open(root: impl Into<PathBuf>, limit: u64) -> io::Result<Self> {
        let root = root.into();
        make_folder(&root)?;
        let log = root.join("log");
        if !log.exists() && fs::read_dir(&root)?.next().is_some() && !root.join("lock").exists() {
            let text = format!("{} holds something else than a cache", root.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        let lock = open_to_write(&root.join("lock"))?;
        let claims = Claims { file: open_to_write(&root.join("claims"))?, own: Mutex::default() };
        let claims = Arc::new(claims);
        fs::create_dir_all(root.join("objects"))?;
        fs::create_dir_all(root.join("users"))?;
        lock.lock()?;
        let opened = Self::open_log(&log);
        let result = opened.and_then(|log| {
            let identity = identity(&log.metadata()?);
            let next: Next = Box::new(|_, _| NEVER);
            let state =
                State { policy: Policy::new(limit), limit, next, now: 0, log, identity, read: 0, records: 0 };
            let mut this = Self {
                root,
                lock: lock.try_clone()?,
                claims,
                state: Mutex::new(state),
                held: AtomicU64::new(0),
                limit: AtomicU64::new(limit),
                using: Mutex::default(),
            };
            let state = this.state.get_mut().unwrap_or_else(PoisonError::into_inner);
            state.catch_up(&this.root)?;
            this.held.store(state.policy.bytes(), Relaxed);
            Ok(this)
        });
        lock.unlock()?;
        result
    }

    /// The log, made if there is none. The caller holds the lock.
    fn open_log(path: &Path) -> io::Result<File> {
        let mut log = open_to_write(path)?;
        let length = log.metadata()?.len();
        let mut magic = [0; 8];
        if length >= 8 {
            log.read_exact(&mut magic)?;
        }
        if length >= 8 && magic != *MAGIC {
            let text = format!("{} is no log of a cache, or of another version", path.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        if length < 8 {
            log.set_len(0)?;
            log.seek(SeekFrom::Start(0))?;
            log.write_all(MAGIC)?;
        }
        Ok(log)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the folder locked, and all that others did known.
    fn locked<T>(&self, what: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.state();
        self.lock.lock()?;
        let result = state.catch_up(&self.root).and_then(|()| what(&mut state));
        self.held.store(state.policy.bytes(), Relaxed);
        self.limit.store(state.limit, Relaxed);
        self.lock.unlock()?;
        result
    }

    /// Removes what a process left that died between the log and a file. Goes through all files.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn sweep(&self) -> io::Result<()> {
        self.locked(|state| sweep(&self.root, &state.policy))
    }

    /// Says that the data set `owner`, which `name` describes, is at work in this process from now on.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn enter(&self, owner: u64, name: &str) -> io::Result<()> {
        let mut file = open_to_write(&self.root.join("users").join(format!("{owner:016x}")))?;
        file.lock_shared()?;
        if file.metadata()?.len() == 0 {
            file.write_all(name.as_bytes())?;
        }
        // Only `list` shows it.
        drop(file.set_modified(SystemTime::now()));
        *self.using.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
        Ok(())
    }

    /// The owners that are at work in any process.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn at_work(&self) -> io::Result<HashSet<u64>> {
        let mut found = HashSet::new();
        for entry in fs::read_dir(self.root.join("users"))? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(owner) = name.to_str().and_then(|name| u64::from_str_radix(name, 16).ok()) else {
                continue;
            };
            // Whoever has just come waits for a moment.
            if matches!(File::open(entry.path())?.try_lock(), Err(TryLockError::WouldBlock)) {
                found.insert(owner);
            }
        }
        Ok(found)
    }

    /// What the folder has, by owner.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn list(&self) -> io::Result<Vec<Owned>> {
        let at_work = self.at_work()?;
        let mut owners: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        self.locked(|state| {
            for (_, bytes, user) in state.policy.entries() {
                let of = owners.entry(user.owner).or_default();
                *of = (of.0 + 1, of.1 + bytes);
            }
            Ok(())
        })?;
        let of = |(owner, (entries, bytes)): (u64, (u64, u64))| {
            let path = self.root.join("users").join(format!("{owner:016x}"));
            let used = fs::metadata(&path).and_then(|file| file.modified()).ok();
            let name = fs::read_to_string(&path).unwrap_or_default();
            Owned { name, entries, bytes, in_use: at_work.contains(&owner), used }
        };
        Ok(owners.into_iter().map(of).collect())
    }

    /// Bytes of all entries, and how many they may be, as of the last change.
    pub fn held(&self) -> (u64, u64) {
        (self.held.load(Relaxed), self.limit.load(Relaxed))
    }

    /// Whether there is an entry of this key. It may be damaged, or of another stamp.
    pub fn has(&self, key: u64) -> bool {
        object(&self.root, key).exists()
    }

    /// May have so many bytes from now on. What is too much goes with the next one that is put.
    pub fn set_limit(&self, limit: u64) {
        let mut state = self.state();
        state.limit = limit;
        state.policy.set_limit(limit);
        self.limit.store(limit, Relaxed);
    }

    /// Grows no further than it is now.
    pub fn stop_growing(&self) {
        let mut state = self.state();
        state.limit = state.policy.bytes().min(state.limit);
        let limit = state.limit;
        state.policy.set_limit(limit);
        self.limit.store(limit, Relaxed);
    }

    /// The bytes that were put under this key and stamp. Waits for nobody who changes the folder.
    ///
    /// # Errors
    /// Those of the file system, other than that there is no such file.
    pub fn look(&self, key: u64, stamp: u64) -> io::Result<Look> {
        let path = object(&self.root, key);
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Look::Nothing),
            Err(e) => return Err(e),
        };
        let length = file.metadata()?.len();
        let mut head = [0; HEAD];
        // The length is that of the file before any of it is believed.
        let whole = length >= HEAD as u64 && file.read_exact(&mut head).is_ok();
        if whole && [word(&head, 0), word(&head, 1), word(&head, 2)] == [key, stamp, length - HEAD as u64] {
            let mut bytes = Vec::new();
            let size = usize::try_from(length - HEAD as u64).unwrap_or(usize::MAX);
            bytes.try_reserve_exact(size).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
            file.read_to_end(&mut bytes)?;
            if sum(&bytes) == word(&head, 3) && bytes.len() == size {
                return Ok(Look::Bytes(bytes));
            }
        }
        Ok(Look::Other)
    }

    /// Claims an entry that is not there, so that others wait for this process's download and do not make their own.
    pub fn claim(&self, key: u64) -> Claim {
        let mut own = self.claims.own.lock().unwrap_or_else(PoisonError::into_inner);
        // To the system, whoever has the file open is one, however often he asks.
        if own.contains(&key) || !claim(&self.claims.file, key, true) {
            return Claim::Others;
        }
        own.insert(key);
        Claim::Mine(Guard { claims: self.claims.clone(), key })
    }

    /// Keeps bytes that `user` has just used, at `now`, if that is worth it, as what was last [planned](Self::plan) has it. Gives
    /// whether they were kept.
    ///
    /// # Errors
    /// Those of the file system. What was kept before is still there, or gone as a whole.
    pub fn put(&self, key: u64, stamp: u64, bytes: &[u8], user: User, now: Moment) -> io::Result<bool> {
        self.locked(|state| {
            let size = on_disk(bytes.len());
            state.go_to(now);
            let next = (state.next)(user, now.saturating_add(1));
            let Some(gone) = state.policy.put(key, size, user, next) else { return Ok(false) };
            let written = state.gone(&self.root, &gone).and_then(|()| write(&self.root, key, stamp, bytes));
            if written.is_err() {
                state.policy.remove(key);
            }
            written?;
            state.append(&record(key, size, user))?;
            state.compact(&self.root)?;
            Ok(true)
        })
    }

    /// What is known of the order has changed: `next` says from now on when who needs an entry does so, from a moment on. Before
    /// the first call nothing is known, and only free places are taken.
    pub fn plan(&self, now: Moment, next: impl Fn(User, Moment) -> Moment + Send + 'static) {
        let mut state = self.state();
        state.policy.renew_all(|user| next(user, now));
        (state.next, state.now) = (Box::new(next), now);
    }

    /// `user` has used an entry at `now`: asks again when it is needed.
    pub fn used(&self, key: u64, user: User, now: Moment) {
        let mut state = self.state();
        let from = now.saturating_add(1);
        let next = (state.next)(user, from);
        // What several samples need is needed by the first of them.
        let other = state
            .policy
            .user(key)
            .filter(|other| *other != user)
            .map(|other| (other, (state.next)(other, from)));
        let (user, next) = other.filter(|(_, at)| *at < next).unwrap_or((user, next));
        state.policy.renew(key, user, next);
    }

    /// Forgets an entry of another stamp than this, or a damaged one. An entry of this stamp that came since somebody
    /// looked stays.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn remove_other(&self, key: u64, stamp: u64) -> io::Result<()> {
        self.locked(|state| {
            if let Look::Bytes(_) = self.look(key, stamp)? {
                return Ok(());
            }
            state.policy.remove(key);
            state.gone(&self.root, &[key])
        })
    }

    /// Number and bytes of all entries, whoever put them.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn size(&self) -> io::Result<(usize, u64)> {
        self.locked(|state| Ok((state.policy.len(), state.policy.bytes())))
    }

    /// Removes all entries.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn clear(&self) -> io::Result<()> {
        self.locked(|state| {
            let limit = state.limit;
            state.policy = Policy::new(limit);
            state.rewrite(&self.root)?;
            sweep(&self.root, &state.policy)
        })
    }
}

/// Where an entry lies. A folder of 256 keeps lists short.
fn object(root: &Path, key: u64) -> PathBuf {
    root.join("objects").join(format!("{:02x}", key & 0xFF)).join(format!("{key:016x}"))
}

/// Writes an entry, which appears under its name when it is whole.
fn write(root: &Path, key: u64, stamp: u64, bytes: &[u8]) -> io::Result<()> {
    let path = object(root, key);
    let part = root.join("objects").join("part");
    let mut head = [0; HEAD];
    for (place, number) in
        head.as_chunks_mut::<8>().0.iter_mut().zip([key, stamp, bytes.len() as u64, sum(bytes)])
    {
        *place = number.to_le_bytes();
    }
    let written = File::create(&part).and_then(|mut file| {
        file.write_all(&head)?;
        file.write_all(bytes)
    });
    if written.is_err() {
        // Of a full disk every byte counts.
        drop(fs::remove_file(&part));
    }
    written?;
    match fs::rename(&part, &path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            fs::create_dir_all(path.parent().unwrap_or(root))?;
            fs::rename(&part, &path)
        }
        done => done,
    }
}

/// Removes files that are not kept: what a process left that died between the log and the file.
fn sweep(root: &Path, policy: &Policy) -> io::Result<()> {
    for entry in fs::read_dir(root.join("objects"))? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            fs::remove_file(entry.path())?;
            continue;
        }
        for file in fs::read_dir(entry.path())? {
            let file = file?;
            let key = file.file_name().to_str().and_then(|name| u64::from_str_radix(name, 16).ok());
            if !key.is_some_and(|key| policy.contains(key)) {
                fs::remove_file(file.path())?;
            }
        }
    }
    Ok(())
}

impl State {
    /// Reads what was added to the log. The caller holds the lock.
    fn catch_up(&mut self, root: &Path) -> io::Result<()> {
        let path = root.join("log");
        let now = fs::metadata(&path);
        if !now.is_ok_and(|now| identity(&now) == self.identity && now.len() >= self.read) {
            // It was written anew, or is gone.
            self.log = Folder::open_log(&path)?;
            self.identity = identity(&self.log.metadata()?);
            (self.read, self.records, self.policy) = (0, 0, Policy::new(self.limit));
        }
        let from = self.read.max(MAGIC.len() as u64);
        let mut bytes = Vec::new();
        self.log.seek(SeekFrom::Start(from))?;
        self.log.read_to_end(&mut bytes)?;
        let mut whole = 0;
        for record in bytes.chunks_exact(RECORD) {
            let (key, size) = (word(record, 0), word(record, 1));
            if sum(&record[..RECORD - 8]) != word(record, 4) {
                break;
            }
            whole += RECORD;
            let user = User { owner: word(record, 2), sample: word(record, 3) };
            match size {
                0 => drop(self.policy.remove(key)),
                _ => self.policy.insert(key, size, user, (self.next)(user, self.now)),
            }
        }
        self.records += (whole / RECORD) as u64;
        self.read = from + whole as u64;
        if whole < bytes.len() {
            // Whoever wrote it died meanwhile, as nobody else writes now.
            self.log.set_len(self.read)?;
        }
        Ok(())
    }

    /// Time has gone on: what is past is asked about anew.
    fn go_to(&mut self, now: Moment) {
        self.now = self.now.max(now);
        let now = self.now;
        self.policy.renew_past(now.saturating_sub(LATE), |user| (self.next)(user, now));
    }

    /// Adds records, which are known already.
    fn append(&mut self, records: &[u8]) -> io::Result<()> {
        self.log.seek(SeekFrom::Start(self.read))?;
        self.log.write_all(records)?;
        self.read += records.len() as u64;
        self.records += (records.len() / RECORD) as u64;
        Ok(())
    }

    /// Removes files that the policy has given up. First from the log: a file that it does not name is swept away.
    fn gone(&mut self, root: &Path, keys: &[u64]) -> io::Result<()> {
        let records: Vec<u8> = keys.iter().flat_map(|key| record(*key, 0, User::default())).collect();
        self.append(&records)?;
        for key in keys {
            match fs::remove_file(object(root, *key)) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes the log anew when most of it is of the past.
    fn compact(&mut self, root: &Path) -> io::Result<()> {
        if self.records > 1000 && self.records > SLACK * self.policy.len() as u64 {
            self.rewrite(root)?;
        }
        Ok(())
    }

    fn rewrite(&mut self, root: &Path) -> io::Result<()> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(self.policy.entries().flat_map(|(key, size, user)| record(key, size, user)));
        let (new, path) = (root.join("log.new"), root.join("log"));
        fs::write(&new, &bytes)?;
        let log = open_to_write(&new)?;
        fs::rename(&new, &path)?;
        self.identity = identity(&log.metadata()?);
        (self.log, self.read, self.records) = (log, bytes.len() as u64, self.policy.len() as u64);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use proptest::prelude::*;

    use super::*;

    /// A folder that is removed in the end.
    struct Place(PathBuf);

    impl Place {
        fn new() -> Self {
            static NUMBER: AtomicU32 = AtomicU32::new(0);
            let name = format!("wellfed-bytes-{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
            Self(std::env::temp_dir().join(name))
        }

        /// Keys are needed in their order.
        fn open(&self, limit: u64) -> Folder {
            let folder = Folder::open(&self.0, limit).unwrap();
            folder.sweep().unwrap();
            folder.plan(0, |user, _| user.sample);
            folder
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    impl Folder {
        /// What is there; what is of no use is removed.
        fn get(&self, key: u64, stamp: u64) -> io::Result<Option<Vec<u8>>> {
            Ok(match self.look(key, stamp)? {
                Look::Bytes(bytes) => Some(bytes),
                Look::Nothing => None,
                Look::Other => {
                    self.remove_other(key, stamp)?;
                    None
                }
            })
        }
    }

    /// What an entry of 100 bytes takes.
    const ONE: u64 = BLOCK;

    /// Who needs the entry of a key: the sample of that number.
    fn of(key: u64) -> User {
        User { owner: 7, sample: key }
    }

    fn bytes(key: u64) -> Vec<u8> {
        vec![key as u8; 100]
    }

    #[test]
    fn processes_share_entries_and_the_budget() {
        let place = Place::new();
        let (a, b) = (place.open(3 * ONE), place.open(3 * ONE));
        for key in 1..=3 {
            assert!(a.put(key, 7, &bytes(key), of(key), 0).unwrap());
        }
        assert_eq!(b.get(2, 7).unwrap(), Some(bytes(2)));
        assert_eq!(b.size().unwrap(), (3, 3 * ONE));
        assert!(!b.put(9, 7, &bytes(9), of(9), 0).unwrap(), "it is needed last");
        assert!(b.put(0, 7, &bytes(0), of(0), 0).unwrap());
        assert_eq!((a.get(3, 7).unwrap(), a.get(0, 7).unwrap()), (None, Some(bytes(0))));
        b.plan(0, |user, _| 10 - user.sample);
        assert!(b.put(5, 7, &bytes(5), of(5), 0).unwrap());
        assert_eq!((a.get(0, 7).unwrap(), a.size().unwrap()), (None, (3, 3 * ONE)));
        assert_eq!(a.get(1, 8).unwrap(), None, "of another stamp");
        assert_eq!((b.get(1, 7).unwrap(), b.size().unwrap()), (None, (2, 2 * ONE)), "and so gone");
        drop((a, b));
        let again = place.open(ONE);
        assert_eq!(
            again.size().unwrap(),
            (2, 2 * ONE),
            "a smaller budget is kept with the next one that is put"
        );
        assert!(again.put(1, 7, &bytes(1), of(1), 0).unwrap());
        assert_eq!(again.size().unwrap(), (1, ONE));
        again.clear().unwrap();
        assert_eq!((again.get(1, 7).unwrap(), again.size().unwrap()), (None, (0, 0)));
    }

    #[test]
    fn what_a_crash_leaves_behind_is_no_entry() {
        let place = Place::new();
        let folder = place.open(100 * ONE);
        for key in 1..=4 {
            folder.put(key, 0, &bytes(key), of(key), 0).unwrap();
        }
        // A record that was not finished, files that no record names, and damage of every kind.
        let log = place.0.join("log");
        OpenOptions::new().append(true).open(&log).unwrap().write_all(&record(9, ONE, of(9))[..20]).unwrap();
        fs::write(place.0.join("objects/part"), b"half").unwrap();
        write(&place.0, 300, 0, &bytes(44)).unwrap();
        let flip = |key: u64, at: usize| {
            let mut content = fs::read(object(&place.0, key)).unwrap();
            content[at] ^= 1;
            fs::write(object(&place.0, key), content).unwrap();
        };
        flip(1, 50);
        flip(2, 3);
        File::options().write(true).open(object(&place.0, 3)).unwrap().set_len(60).unwrap();
        let other = place.open(100 * ONE);
        assert!(!place.0.join("objects/part").exists() && !object(&place.0, 300).exists());
        for reader in [&folder, &other] {
            assert_eq!([1, 2, 3, 9].map(|key| reader.get(key, 0).unwrap()), [const { None }; 4]);
            assert_eq!(reader.get(4, 0).unwrap(), Some(bytes(4)));
            assert_eq!(reader.size().unwrap(), (1, ONE));
            assert!(reader.put(5, 0, &bytes(5), of(5), 0).unwrap());
            reader.remove_other(5, 1).unwrap();
        }
        // A file that is gone, and a log that is.
        fs::remove_file(object(&place.0, 4)).unwrap();
        assert_eq!(folder.get(4, 0).unwrap(), None);
        fs::remove_file(&log).unwrap();
        assert!(folder.put(6, 0, &bytes(6), of(6), 0).unwrap());
        assert_eq!(other.get(6, 0).unwrap(), Some(bytes(6)));
        assert_eq!(other.size().unwrap(), (1, ONE));
    }

    #[test]
    fn a_folder_of_something_else_is_refused() {
        let place = Place::new();
        fs::create_dir_all(&place.0).unwrap();
        fs::write(place.0.join("log"), b"12:00 something else").unwrap();
        assert_eq!(Folder::open(&place.0, 1).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        fs::remove_file(place.0.join("log")).unwrap();
        for name in ["objects", "users"] {
            fs::remove_dir_all(place.0.join(name)).unwrap();
        }
        for name in ["lock", "claims"] {
            fs::remove_file(place.0.join(name)).unwrap();
        }
        fs::write(place.0.join("photo.jpg"), b"x").unwrap();
        assert_eq!(Folder::open(&place.0, 1).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert!(place.0.join("photo.jpg").exists());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn one_process_claims_an_entry_and_nobody_keeps_a_claim_who_died() {
        let place = Place::new();
        let (a, b) = (place.open(1000), place.open(1000));
        let keys = [0, 1 << 40, u64::MAX];
        for key in keys {
            let mine = a.claim(key);
            assert!(matches!(mine, Claim::Mine(_)));
            assert!(matches!(b.claim(key), Claim::Others) && matches!(a.claim(key), Claim::Others));
            drop(mine);
            assert!(matches!(b.claim(key), Claim::Mine(_)), "given back");
        }
        for key in keys {
            assert!(claim(&a.claims.file, key, true));
        }
        assert!(matches!(b.claim(0), Claim::Others));
        // Nobody gives them back, as of a process that is killed.
        drop(a);
        assert!(keys.iter().all(|key| matches!(b.claim(*key), Claim::Mine(_))));
    }

    #[test]
    fn owners_are_told_apart_and_who_is_at_work_is_known() {
        let place = Place::new();
        let (a, b) = (place.open(10 * ONE), place.open(10 * ONE));
        a.enter(7, "the first one").unwrap();
        b.enter(8, "the second one").unwrap();
        a.put(1, 0, &bytes(1), of(1), 0).unwrap();
        a.put(2, 0, &bytes(2), of(2), 0).unwrap();
        b.put(3, 0, &bytes(3), User { owner: 8, sample: 1 }, 0).unwrap();
        assert_eq!(a.at_work().unwrap(), HashSet::from([7, 8]));
        drop(b);
        let mut found = a.list().unwrap();
        assert!(found.iter_mut().all(|owned| owned.used.take().is_some()));
        let owned = |name: &str, entries, in_use| Owned {
            name: name.to_owned(),
            entries,
            bytes: entries * ONE,
            in_use,
            used: None,
        };
        assert_eq!(found, [owned("the first one", 2, true), owned("the second one", 1, false)]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn of_a_full_disk_nothing_is_left_behind() {
        let place = Place::new();
        let folder = place.open(10 * ONE);
        assert!(folder.put(1, 0, &bytes(1), of(1), 0).unwrap());
        std::os::unix::fs::symlink("/dev/full", place.0.join("objects/part")).unwrap();
        let e = folder.put(2, 0, &bytes(2), of(2), 0).unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::StorageFull);
        folder.stop_growing();
        assert!(!place.0.join("objects/part").exists() && Path::new("/dev/full").exists());
        assert_eq!((folder.size().unwrap(), folder.get(1, 0).unwrap()), ((1, ONE), Some(bytes(1))));
        assert!(!folder.put(2, 0, &bytes(2), of(2), 0).unwrap(), "there is no more room than for one");
    }

    #[test]
    fn what_does_not_grow_any_more_still_changes() {
        let place = Place::new();
        let folder = place.open(10 * ONE);
        for key in 5..8 {
            assert!(folder.put(key, 0, &bytes(key), of(key), 0).unwrap());
        }
        folder.stop_growing();
        assert!(!folder.put(9, 0, &bytes(9), of(9), 0).unwrap());
        assert!(folder.put(1, 0, &bytes(1), of(1), 0).unwrap());
        assert_eq!((folder.size().unwrap(), folder.held()), ((3, 3 * ONE), (3 * ONE, 3 * ONE)));
    }

    #[test]
    fn a_log_does_not_grow_without_end() {
        let place = Place::new();
        let (a, b) = (place.open(ONE), place.open(ONE));
        for key in (0..2500).rev() {
            assert!(a.put(key, 0, &bytes(key), of(key), 0).unwrap());
        }
        assert!(fs::metadata(place.0.join("log")).unwrap().len() < 40_000);
        assert_eq!((b.size().unwrap(), b.get(0, 0).unwrap()), ((1, ONE), Some(bytes(0))));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 20, ..ProptestConfig::default() })]
        #[test]
        fn what_is_read_is_what_was_put_and_the_budget_holds(
            steps in prop::collection::vec((0..3_usize, 0..6_u8, 0..20_u64, 0..9000_usize, 0..50_u64), 1..60)
        ) {
            let place = Place::new();
            let mut folders: Vec<Folder> = (0..3).map(|_| place.open(6 * BLOCK)).collect();
            for (who, what, key, size, next) in steps {
                match what {
                    0..=2 => {
                        let content = vec![key as u8 ^ size as u8; size];
                        folders[who].plan(0, move |user, _| if user.sample == key { next } else { user.sample });
                        folders[who].put(key, size as u64, &content, of(key), 0).unwrap();
                        folders[who].used(key, of(key), 0);
                        let on_disk: u64 = (0..20).filter_map(|key| fs::metadata(object(&place.0, key)).ok()).map(|file| file.len().next_multiple_of(BLOCK)).sum();
                        let (_, counted) = folders[(who + 1) % 3].size().unwrap();
                        prop_assert_eq!(on_disk, counted);
                        prop_assert!(counted <= 6 * BLOCK);
                    }
                    3 => {
                        let head = fs::read(object(&place.0, key)).ok();
                        if let Some(stamp) = head.map(|head| word(&head, 1)) {
                            let found = folders[who].get(key, stamp).unwrap();
                            prop_assert_eq!(found, Some(vec![key as u8 ^ stamp as u8; stamp as usize]));
                        }
                    }
                    4 => {
                        let stamp = size as u64;
                        folders[who].remove_other(key, stamp).unwrap();
                        let left = fs::read(object(&place.0, key)).ok().map(|head| word(&head, 1));
                        prop_assert!(left.is_none_or(|left| left == stamp));
                    }
                    _ => folders[who] = place.open(6 * BLOCK),
                }
            }
        }
    }
}
