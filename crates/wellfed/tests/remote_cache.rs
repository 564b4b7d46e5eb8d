//! `remote_cache` from outside: no bit differs, whatever becomes of the folder, the objects and the processes that share it, and
//! what is kept is not downloaded again.

use std::{
    collections::HashMap,
    env, fs,
    path::PathBuf,
    process::{self, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use wellfed::{
    Dataset, Error, ErrorKind, Limits, Loader, Next, Options, Result,
    io::{Bytes, Extent},
    plan::{Auto, OnError},
    sample::{FieldKind, Record, Schema, Value},
    source::Source,
    store::{Done, Entry, EntryKind, Pending, Remote, Request, Stat, Store, Version},
};

struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Relaxed);
        Self(env::temp_dir().join(format!("wellfed-remote-cache-{}-{number}", process::id())))
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    /// All entries.
    fn objects(&self) -> Vec<PathBuf> {
        let folders = fs::read_dir(self.0.join("objects")).unwrap().map(|entry| entry.unwrap().path());
        let files = |folder: PathBuf| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let mut all: Vec<PathBuf> = folders.filter(|path| path.is_dir()).flat_map(files).collect();
        all.sort();
        all
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn hash(parts: &[u64]) -> u64 {
    let mut hash = 0xCBF2_9CE4_8422_2325_u64;
    for byte in parts.iter().flat_map(|part| part.to_le_bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
    }
    hash ^ hash >> 29
}

fn hash_of(bytes: &[u8]) -> u64 {
    bytes.iter().fold(7, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3))
}

/// A store that answers later, of objects whose bytes are drawn by a hash of their number and version.
#[derive(Debug, Default)]
struct Far {
    /// Versions of objects, where that is not 0.
    versions: Mutex<HashMap<u64, u64>>,
    /// How often the range of an object that begins there was asked for.
    asked: Mutex<HashMap<(u64, u64), u64>>,
    /// Versions are not known before they are asked for.
    nameless: bool,
    /// An answer takes so many microseconds.
    micros: u64,
}

fn number(path: &str) -> u64 {
    path.strip_prefix("object-").unwrap().parse().unwrap()
}

impl Far {
    fn version_of(&self, object: u64) -> u64 {
        self.versions.lock().unwrap().get(&object).copied().unwrap_or(0)
    }

    fn read(&self, path: &str, range: Option<std::ops::Range<u64>>) -> Vec<u8> {
        let object = number(path);
        let version = self.version_of(object);
        let range = range.unwrap_or(0..Numbers::size(object));
        range.map(|at| hash(&[object, version, at / 64]).rotate_left(at as u32) as u8).collect()
    }

    /// Requests so far.
    fn requests(&self) -> u64 {
        self.asked.lock().unwrap().values().sum()
    }
}

fn refused<T>() -> Result<T> {
    Err(Error::new(ErrorKind::Internal, "this store is only for the I/O layer"))
}

impl Store for Far {
    fn stat(&self, path: &str) -> Result<Stat> {
        Ok(Stat { kind: EntryKind::File, size: Numbers::size(number(path)), modified: 0, identity: None })
    }

    fn read(&self, _: &str, _: u64, _: &mut Vec<u8>) -> Result<()> {
        refused()
    }

    fn read_range(&self, _: &str, _: u64, _: usize, _: &mut Vec<u8>) -> Result<()> {
        refused()
    }

    fn list(&self, _: &str, _: &mut dyn FnMut(Entry<'_>) -> Result<()>) -> Result<()> {
        refused()
    }

    fn remote(&self) -> Option<&dyn Remote> {
        Some(self)
    }
}

impl Remote for Far {
    fn begin(&self, request: Request, done: Done) -> Pending {
        let start = request.range.as_ref().map_or(u64::MAX, |range| range.start);
        *self.asked.lock().unwrap().entry((number(&request.path), start)).or_default() += 1;
        let bytes = self.read(&request.path, request.range);
        if self.micros == 0 {
            done(Ok(bytes));
        } else {
            let pause = Duration::from_micros(self.micros);
            thread::spawn(move || {
                thread::sleep(pause);
                done(Ok(bytes));
            });
        }
        Pending::new(|| {})
    }

    fn version(&self, path: &str) -> Option<Version> {
        let version = self.version_of(number(path));
        (!self.nameless).then(|| Version::new("far", path, &version.to_le_bytes()))
    }
}

/// Numbers that are hashes of bytes in a store: sample `i` of all of object `i`, or of a range of it, or of both.
#[derive(Debug)]
struct Numbers {
    store: Arc<dyn Store>,
    schema: Schema,
    len: u64,
}

impl Numbers {
    fn open(far: &Arc<Far>, len: u64) -> Dataset {
        let store: Arc<dyn Store> = far.clone();
        let schema = Schema::single("x", FieldKind::LABEL);
        Dataset::new(Arc::new(Self { store, schema, len }))
    }

    /// Bytes of an object: such that most entries take two blocks of a disk.
    fn size(object: u64) -> u64 {
        5000 + hash(&[object]) % 3000
    }
}

impl Source for Numbers {
    fn name(&self) -> String {
        "numbers".to_owned()
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn key(&self, index: u64) -> String {
        index.to_string()
    }

    fn fetch(&self, _: u64, _: &mut Record) -> Result<()> {
        refused()
    }

    fn store(&self) -> Option<&Arc<dyn Store>> {
        Some(&self.store)
    }

    fn locate(&self, index: u64, _: &Limits, extents: &mut Vec<Extent>) -> Result<()> {
        if index % 3 != 1 {
            extents.push(Extent::whole(format!("object-{index}"), 1 << 20));
        }
        if !index.is_multiple_of(3) {
            extents.push(Extent::range(format!("object-{index}"), 100, 4200));
        }
        Ok(())
    }

    fn assemble(&self, _: u64, pieces: &[Bytes], record: &mut Record) -> Result<()> {
        record.reset(1);
        let all: Vec<u64> = pieces.iter().map(|piece| hash_of(piece)).collect();
        record.values[0] = Value::Int((hash(&all) >> 1) as i64);
        Ok(())
    }
}

/// Drawn numbers, the same in every run.
struct Draws(u64);

impl Draws {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 += 1;
        hash(&[self.0, 77]) % bound
    }
}

fn options(cache: &str, bytes: u64, workers: usize) -> Options {
    Options {
        num_workers: Auto::Fixed(workers),
        remote_cache: Some(cache.to_owned()),
        remote_cache_bytes: Some(bytes),
        on_error: OnError::Raise,
        ..Options::default()
    }
}

/// The batches of an epoch from where the loader stands, `most` of them at most.
fn batches(loader: &Loader, most: usize) -> Vec<Vec<i64>> {
    loader.start_epoch().unwrap();
    let mut all = Vec::new();
    while all.len() < most {
        match loader.next(Duration::from_secs(60)).unwrap() {
            Next::Batch(batch) => all.push(batch.columns[0].data.as_i64().unwrap()),
            Next::EpochEnd => break,
            Next::Pending => panic!("no batch came"),
        }
    }
    all
}

#[test]
fn no_bit_differs_under_any_order_budget_and_change() {
    let folder = Folder::new();
    let mut hits = 0;
    for case in 0..12 {
        let mut draws = Draws(1000 * case);
        let len = 1 + draws.below(60);
        let far =
            Arc::new(Far { nameless: draws.below(8) == 0, micros: draws.below(2) * 200, ..Far::default() });
        let mut plan = Numbers::open(&far, len);
        if draws.below(4) > 0 {
            plan = plan.shuffle(case);
        }
        if draws.below(3) == 0 {
            plan = plan.take(1 + draws.below(len));
        }
        if draws.below(3) == 0 {
            plan = plan.repeat(Some(2));
        }
        if draws.below(3) == 0 {
            plan = plan.shard(draws.below(2), 2);
        }
        plan = plan.batch(1 + draws.below(9) as usize, draws.below(2) == 0);
        // One case goes on with what the last one has left.
        let bytes = [0, 20_000, 200_000, 10_000_000][draws.below(4) as usize];
        let workers = [1, 2, 8][draws.below(3) as usize];
        for part in 0..3 {
            let (with, without) = (
                plan.with_options(options(folder.path(), bytes, workers)).loader().unwrap(),
                plan.with_options(options("off", 0, workers)).loader().unwrap(),
            );
            if part == 1 {
                // Go on somewhere in an epoch.
                let epoch = draws.below(3);
                let most = draws.below(5) as usize;
                with.set_epoch(epoch).unwrap();
                let before = batches(&with, most);
                let state = with.state_dict().unwrap();
                without.set_epoch(epoch).unwrap();
                assert_eq!(before, batches(&without, most), "case {case}");
                drop(with);
                let with = plan.with_options(options(folder.path(), bytes, workers)).loader().unwrap();
                for loader in [&with, &without] {
                    loader.load_state_dict(&state).unwrap();
                }
                assert_eq!(batches(&with, usize::MAX), batches(&without, usize::MAX), "case {case}");
                continue;
            }
            for epoch in 0..3 {
                let (found, wanted) = (batches(&with, usize::MAX), batches(&without, usize::MAX));
                assert_eq!(found, wanted, "case {case}, part {part}, epoch {epoch}");
            }
            hits += with.stats().remote_cache.unwrap().hits;
            assert_eq!(without.stats().remote_cache, None);
            drop((with, without));
            // Objects are changed while nobody reads them.
            for _ in 0..draws.below(20) {
                *far.versions.lock().unwrap().entry(draws.below(len)).or_default() += 1;
            }
        }
    }
    assert!(hits > 500, "{hits} hits");
}

#[test]
fn half_of_the_data_in_the_cache_spares_half_of_the_second_epoch() {
    let folder = Folder::new();
    let far = Arc::new(Far::default());
    let one = |epoch| {
        // Two of three samples have one entry of two blocks, the third has two of them: 16 KiB for three at least.
        let opts = options(folder.path(), 200 * 8192 * 4 / 3 / 2, 2);
        let loader =
            Numbers::open(&far, 200).shuffle(5).batch(10, false).with_options(opts).loader().unwrap();
        loader.set_epoch(epoch).unwrap();
        assert_eq!(batches(&loader, usize::MAX).len(), 20);
        let stats = loader.stats().remote_cache.unwrap();
        assert!(stats.bytes <= stats.limit && stats.problem.is_none(), "{stats:?}");
        stats
    };
    let first = one(0);
    assert!(first.misses >= 266, "all ranges come from the store: {first:?}");
    for epoch in 1..4 {
        // Read-ahead goes on through the next epochs: a range that is downloaded may serve several of them.
        let later = one(epoch);
        let part = later.misses as f64 / (later.hits + later.misses) as f64;
        assert!(part <= 0.6, "epoch {epoch}: {part} of all ranges were downloaded: {later:?}");
    }
}

#[test]
fn loaders_that_share_a_folder_download_each_range_once() {
    for sharded in [true, false] {
        let folder = Folder::new();
        let far = Arc::new(Far { micros: 300, ..Far::default() });
        // So few that none of them is asked for a second time because it is slow.
        let plan = Numbers::open(&far, 60).shuffle(2);
        let loaders: Vec<Loader> = (0..2)
            .map(|rank| {
                let plan = if sharded { plan.shard(rank, 2) } else { plan.clone() };
                plan.batch(6, false).with_options(options(folder.path(), 1 << 24, 2)).loader().unwrap()
            })
            .collect();
        for _ in 0..2 {
            thread::scope(|scope| {
                for loader in &loaders {
                    scope.spawn(move || batches(loader, usize::MAX));
                }
            });
        }
        let asked = far.asked.lock().unwrap();
        assert_eq!(asked.len(), 80, "two of three samples have one range, and the third has two");
        assert!(asked.values().all(|count| *count == 1), "sharded {sharded}: {asked:?}");
    }
}

#[test]
fn damage_is_downloaded_again() {
    let folder = Folder::new();
    let far = Arc::new(Far::default());
    let plan = Numbers::open(&far, 40).batch(8, false);
    let epoch = |cache: &str| {
        let loader = plan.with_options(options(cache, 1 << 24, 2)).loader().unwrap();
        batches(&loader, usize::MAX)
    };
    let wanted = epoch("off");
    assert_eq!(epoch(folder.path()), wanted);
    let mut draws = Draws(5);
    for round in 0..4 {
        for path in folder.objects() {
            let mut bytes = fs::read(&path).unwrap();
            match draws.below(4) {
                0 => bytes.truncate(draws.below(bytes.len() as u64) as usize),
                1 => bytes.push(1),
                2 => {
                    let at = draws.below(bytes.len() as u64) as usize;
                    bytes[at] ^= 1 << draws.below(8);
                }
                _ => continue,
            }
            fs::write(path, bytes).unwrap();
        }
        let log = folder.0.join("log");
        let mut bytes = fs::read(&log).unwrap();
        match round {
            1 => bytes.truncate(bytes.len() - 13),
            2 => {
                let at = bytes.len() / 2;
                bytes[at] ^= 64;
            }
            _ => {}
        }
        fs::write(&log, bytes).unwrap();
        assert_eq!(epoch(folder.path()), wanted, "round {round}");
    }
    // And after all that, everything is there again.
    epoch(folder.path());
    let before = far.requests();
    assert_eq!(epoch(folder.path()), wanted);
    assert_eq!(far.requests(), before);
}

#[test]
fn a_folder_that_cannot_be_used_says_why() {
    let folder = Folder::new();
    let far = Arc::new(Far::default());
    let open = |path: &str| {
        Numbers::open(&far, 4).batch(2, false).with_options(options(path, 1 << 20, 1)).loader().unwrap_err()
    };
    fs::create_dir_all(&folder.0).unwrap();
    fs::write(folder.0.join("photo.jpg"), b"x").unwrap();
    let e = open(folder.path());
    assert_eq!(e.kind(), ErrorKind::Config);
    assert!(
        e.message().contains("something else than a cache") && e.message().contains(folder.path()),
        "{e}"
    );
    let e = open(&format!("{}/photo.jpg/cache", folder.path()));
    assert!(e.message().contains("photo.jpg/cache") && e.hint().unwrap().contains("remote_cache"), "{e:?}");
    assert!(folder.0.join("photo.jpg").exists());
}

/// The folder that a child process is to use.
const CHILD: &str = "WELLFED_TEST_REMOTE_CACHE";

/// What the processes of the next test do, until they are killed.
#[test]
fn a_process_that_uses_a_cache() {
    let Ok(path) = env::var(CHILD) else { return };
    let far = Arc::new(Far { micros: 100, ..Far::default() });
    let plan = Numbers::open(&far, 300).shuffle(u64::from(process::id())).batch(10, false);
    let loader = plan.with_options(options(&path, 200_000, 2)).loader().unwrap();
    loop {
        batches(&loader, usize::MAX);
    }
}

#[test]
fn processes_that_are_killed_leave_a_folder_that_can_be_used() {
    let folder = Folder::new();
    let far = Arc::new(Far::default());
    let plan = Numbers::open(&far, 300).shuffle(1).batch(10, false);
    let wanted = batches(&plan.with_options(options("off", 0, 2)).loader().unwrap(), usize::MAX);
    let mut draws = Draws(9);
    for _ in 0..4 {
        let mut children: Vec<_> = (0..2)
            .map(|_| {
                Command::new(env::current_exe().unwrap())
                    .args(["--exact", "a_process_that_uses_a_cache"])
                    .env(CHILD, folder.path())
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .spawn()
                    .unwrap()
            })
            .collect();
        thread::sleep(Duration::from_millis(60 + draws.below(300)));
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let loader = plan.with_options(options(folder.path(), 200_000, 2)).loader().unwrap();
        assert_eq!(batches(&loader, usize::MAX), wanted);
        let stats = loader.stats().remote_cache.unwrap();
        assert!(stats.bytes <= 200_000 && stats.problem.is_none(), "{stats:?}");
        drop(loader);
        let on_disk: u64 = folder.objects().iter().map(|path| fs::metadata(path).unwrap().len()).sum();
        assert!(on_disk <= 200_000, "{on_disk}");
        assert!(!folder.0.join("objects/part").exists(), "what was half written is gone");
    }
    assert!(!folder.objects().is_empty());
}
