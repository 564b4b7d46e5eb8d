//! [`Folder`]: bytes by key in a folder of the local disk, shared by the processes of a machine.
//!
//! Each entry is a file, which appears whole, under its name, and is checked whenever it is read. A log says which there
//! are, and how large, so that all processes count the same bytes and none exceeds the budget. Whoever changes anything holds
//! the lock of the folder and first reads what others have added to the log. A process may die at any moment: the system gives
//! its locks back, the end of a torn log is cut off, and files that no log names are removed when the folder is next opened.
//! Nothing is flushed to the disk, as what a power cut damages has a wrong checksum and is downloaded again.
//!
//! ```text
//! log:            "WFBYTES\1"  records: key u64  bytes u64 (0: it is gone)  rapidhash of these 16 bytes u64
//! objects/XX/KEY: key u64  stamp u64  bytes u64  rapidhash of the bytes u64  the bytes       numbers little-endian
//! ```

use std::{
    fmt,
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::policy::{Moment, NEVER, Policy};

const MAGIC: &[u8; 8] = b"WFBYTES\x01";
const RECORD: usize = 24;
const HEAD: usize = 32;

/// A log is written anew when it has so many times the records that it needs.
const SLACK: u64 = 4;

/// Bytes by key.
#[derive(Debug)]
pub struct Folder {
    root: PathBuf,
    lock: File,
    claims: File,
    state: Mutex<State>,
}

/// Says when each entry is needed.
type Next = Box<dyn Fn(u64) -> Moment + Send>;

/// What this process knows of the folder.
struct State {
    policy: Policy,
    limit: u64,
    next: Next,
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
pub enum Claim<'a> {
    /// This process, until the guard is dropped.
    Mine(Guard<'a>),
    /// Another process is about it.
    Others,
}

/// Holds the claim to one entry.
#[derive(Debug)]
pub struct Guard<'a> {
    claims: &'a File,
    key: u64,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        claim(self.claims, self.key, false);
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[8 * at..8 * at + 8]);
    u64::from_le_bytes(word)
}

fn sum(bytes: &[u8]) -> u64 {
    rapidhash::v3::rapidhash_v3(bytes)
}

fn record(key: u64, bytes: u64) -> [u8; RECORD] {
    let mut record = [0; RECORD];
    record[..8].copy_from_slice(&key.to_le_bytes());
    record[8..16].copy_from_slice(&bytes.to_le_bytes());
    let check = sum(&record[..16]);
    record[16..].copy_from_slice(&check.to_le_bytes());
    record
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
        fs::create_dir_all(&root)?;
        let log = root.join("log");
        if !log.exists() && fs::read_dir(&root)?.next().is_some() && !root.join("lock").exists() {
            let text = format!("{} holds something else than a cache", root.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        let lock = open_to_write(&root.join("lock"))?;
        let claims = open_to_write(&root.join("claims"))?;
        fs::create_dir_all(root.join("objects"))?;
        lock.lock()?;
        let opened = Self::open_log(&log);
        let result = opened.and_then(|log| {
            let identity = identity(&log.metadata()?);
            let next: Next = Box::new(|_| NEVER);
            let state = State { policy: Policy::new(limit), limit, next, log, identity, read: 0, records: 0 };
            let mut this = Self { root, lock: lock.try_clone()?, claims, state: Mutex::new(state) };
            let state = this.state.get_mut().unwrap_or_else(PoisonError::into_inner);
            state.catch_up(&this.root)?;
            sweep(&this.root, &state.policy)?;
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
        self.lock.unlock()?;
        result
    }

    /// The bytes that were put under this key and stamp. None, if they are not there, of another stamp, or damaged.
    ///
    /// # Errors
    /// Those of the file system, other than that there is no such file.
    pub fn get(&self, key: u64, stamp: u64) -> io::Result<Option<Vec<u8>>> {
        let path = object(&self.root, key);
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
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
                return Ok(Some(bytes));
            }
        }
        drop(file);
        self.remove(key)?;
        Ok(None)
    }

    /// Claims an entry that is not there, so that others wait for this process's download and do not make their own.
    pub fn claim(&self, key: u64) -> Claim<'_> {
        match claim(&self.claims, key, true) {
            true => Claim::Mine(Guard { claims: &self.claims, key }),
            false => Claim::Others,
        }
    }

    /// Keeps bytes, if that is worth it, as what was last [planned](Self::plan) has it. Gives whether they were kept.
    ///
    /// # Errors
    /// Those of the file system. What was kept before is still there, or gone as a whole.
    pub fn put(&self, key: u64, stamp: u64, bytes: &[u8]) -> io::Result<bool> {
        self.locked(|state| {
            let size = (HEAD + bytes.len()) as u64;
            let next = (state.next)(key);
            let Some(gone) = state.policy.put(key, size, next) else { return Ok(false) };
            state.gone(&self.root, &gone)?;
            let written = write(&self.root, key, stamp, bytes);
            if written.is_err() {
                state.policy.remove(key);
            }
            written?;
            state.append(&[record(key, size)].concat())?;
            state.compact(&self.root)?;
            Ok(true)
        })
    }

    /// What is known of the order has changed: `next` says from now on when each entry is needed. Before the first call nothing
    /// is known, and only free places are taken.
    pub fn plan(&self, next: impl Fn(u64) -> Moment + Send + 'static) {
        let mut state = self.state();
        state.policy.renew_all(&next);
        state.next = Box::new(next);
    }

    /// An entry was used: asks again when it is needed.
    pub fn used(&self, key: u64) {
        let mut state = self.state();
        let next = (state.next)(key);
        state.policy.renew(key, next);
    }

    /// Forgets an entry.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn remove(&self, key: u64) -> io::Result<()> {
        self.locked(|state| {
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
    let mut file = File::create(&part)?;
    file.write_all(&head)?;
    file.write_all(bytes)?;
    drop(file);
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
            if sum(&record[..16]) != word(record, 2) {
                break;
            }
            whole += RECORD;
            match size {
                0 => drop(self.policy.remove(key)),
                _ => self.policy.insert(key, size, (self.next)(key)),
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
        let records: Vec<u8> = keys.iter().flat_map(|key| record(*key, 0)).collect();
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
        bytes.extend(self.policy.entries().flat_map(|(key, size)| record(key, size)));
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
            folder.plan(|key| key);
            folder
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const ONE: u64 = 100 + HEAD as u64;

    fn bytes(key: u64) -> Vec<u8> {
        vec![key as u8; 100]
    }

    #[test]
    fn processes_share_entries_and_the_budget() {
        let place = Place::new();
        let (a, b) = (place.open(3 * ONE), place.open(3 * ONE));
        for key in 1..=3 {
            assert!(a.put(key, 7, &bytes(key)).unwrap());
        }
        assert_eq!(b.get(2, 7).unwrap(), Some(bytes(2)));
        assert_eq!(b.size().unwrap(), (3, 3 * ONE));
        assert!(!b.put(9, 7, &bytes(9)).unwrap(), "it is needed last");
        assert!(b.put(0, 7, &bytes(0)).unwrap());
        assert_eq!((a.get(3, 7).unwrap(), a.get(0, 7).unwrap()), (None, Some(bytes(0))));
        b.plan(|key| 10 - key);
        assert!(b.put(5, 7, &bytes(5)).unwrap());
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
        assert!(again.put(1, 7, &bytes(1)).unwrap());
        assert_eq!(again.size().unwrap(), (1, ONE));
        again.clear().unwrap();
        assert_eq!((again.get(1, 7).unwrap(), again.size().unwrap()), (None, (0, 0)));
    }

    #[test]
    fn what_a_crash_leaves_behind_is_no_entry() {
        let place = Place::new();
        let folder = place.open(100 * ONE);
        for key in 1..=4 {
            folder.put(key, 0, &bytes(key)).unwrap();
        }
        // A record that was not finished, files that no record names, and damage of every kind.
        let log = place.0.join("log");
        OpenOptions::new().append(true).open(&log).unwrap().write_all(&record(9, ONE)[..20]).unwrap();
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
            assert!(reader.put(5, 0, &bytes(5)).unwrap());
            reader.remove(5).unwrap();
        }
        // A file that is gone, and a log that is.
        fs::remove_file(object(&place.0, 4)).unwrap();
        assert_eq!(folder.get(4, 0).unwrap(), None);
        fs::remove_file(&log).unwrap();
        assert!(folder.put(6, 0, &bytes(6)).unwrap());
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
        fs::remove_dir_all(place.0.join("objects")).unwrap();
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
            assert!(matches!(b.claim(key), Claim::Others));
            drop(mine);
            assert!(matches!(b.claim(key), Claim::Mine(_)), "given back");
        }
        for key in keys {
            // The guard never runs, as of a process that is killed.
            std::mem::forget(a.claim(key));
        }
        assert!(matches!(b.claim(0), Claim::Others));
        drop(a);
        assert!(keys.iter().all(|key| matches!(b.claim(*key), Claim::Mine(_))));
    }

    #[test]
    fn a_log_does_not_grow_without_end() {
        let place = Place::new();
        let (a, b) = (place.open(ONE), place.open(ONE));
        for key in (0..2500).rev() {
            assert!(a.put(key, 0, &bytes(key)).unwrap());
        }
        assert!(fs::metadata(place.0.join("log")).unwrap().len() < 40_000);
        assert_eq!((b.size().unwrap(), b.get(0, 0).unwrap()), ((1, ONE), Some(bytes(0))));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 20, ..ProptestConfig::default() })]
        #[test]
        fn what_is_read_is_what_was_put_and_the_budget_holds(
            steps in prop::collection::vec((0..3_usize, 0..6_u8, 0..20_u64, 0..300_usize, 0..50_u64), 1..60)
        ) {
            let place = Place::new();
            let mut folders: Vec<Folder> = (0..3).map(|_| place.open(1000)).collect();
            for (who, what, key, size, next) in steps {
                match what {
                    0..=2 => {
                        let content = vec![key as u8 ^ size as u8; size];
                        folders[who].plan(move |other| if other == key { next } else { other });
                        folders[who].put(key, size as u64, &content).unwrap();
                        folders[who].used(key);
                        let on_disk: u64 = (0..20).filter_map(|key| fs::metadata(object(&place.0, key)).ok()).map(|file| file.len()).sum();
                        let (_, counted) = folders[(who + 1) % 3].size().unwrap();
                        prop_assert_eq!(on_disk, counted);
                        prop_assert!(counted <= 1000);
                    }
                    3 => {
                        let head = fs::read(object(&place.0, key)).ok();
                        if let Some(stamp) = head.map(|head| word(&head, 1)) {
                            let found = folders[who].get(key, stamp).unwrap();
                            prop_assert_eq!(found, Some(vec![key as u8 ^ stamp as u8; stamp as usize]));
                        }
                    }
                    4 => folders[who].remove(key).unwrap(),
                    _ => folders[who] = place.open(1000),
                }
            }
        }
    }
}
