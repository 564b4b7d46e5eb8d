//! Storage that fails for a while, or hangs: an outage is never taken for bad samples, and a loader can always be dropped.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use wellfed::{
    Batch, Dataset, Error, ErrorKind, Next, Options, Result,
    plan::{Auto, OnError},
    source::{WebDataset, WebDatasetSpec},
    store::{Call, Fault, FaultyStore, LocalStore, Operation, Retry},
};

struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Relaxed);
        let path = std::env::temp_dir().join(format!("wellfed-storage-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A shard of 12 samples, whose number 5 is no number.
fn shard(folder: &Path) -> String {
    let path = folder.join("x.tar");
    let mut builder = tar::Builder::new(fs::File::create(&path).unwrap());
    for i in 0..12 {
        let data = if i == 5 { "five".to_owned() } else { i.to_string() };
        let mut header = tar::Header::new_gnu();
        header.set_size(data.len() as u64);
        builder.append_data(&mut header, format!("{i:02}.cls"), data.as_bytes()).unwrap();
    }
    builder.finish().unwrap();
    path.to_str().unwrap().to_owned()
}

const QUICK: Retry = Retry {
    attempts: 3,
    first: Duration::ZERO,
    most: Duration::ZERO,
    total: Duration::from_secs(3600),
    deadline: Duration::from_secs(3600),
};

fn dataset(
    path: &str,
    on_error: OnError,
    read_ahead: usize,
    decide: impl Fn(&Call<'_>) -> Fault + Send + Sync + 'static,
) -> Dataset {
    let store = FaultyStore::new(Arc::new(LocalStore::new()), decide).with_retry(QUICK);
    let spec = WebDatasetSpec { fields: Some(vec!["cls".to_owned()]), ..WebDatasetSpec::new(path) };
    let source = WebDataset::open(Arc::new(store), spec).unwrap();
    let options = Options {
        on_error,
        num_workers: Auto::Fixed(2),
        read_ahead: Auto::Fixed(read_ahead),
        ..Options::default()
    };
    Dataset::new(Arc::new(source)).batch(4, false).with_options(options)
}

fn labels(batch: Result<Batch>) -> Result<Vec<i64>, Error> {
    batch.map(|batch| batch.columns[0].data.as_i64().unwrap())
}

/// Whether a call reads the data of sample `i`, and not headers.
fn reads(call: &Call<'_>, i: u64) -> bool {
    call.operation == Operation::ReadRange && call.offset == i * 1024 + 512 && call.len < 512
}

#[test]
fn an_outage_is_raised_whatever_on_error_says() {
    let folder = Folder::new();
    let path = shard(&folder.0);
    for on_error in [OnError::Raise, OnError::Skip, OnError::Replace] {
        for read_ahead in [0, 2] {
            let down = |call: &Call<'_>| {
                if reads(call, 7) { Fault::Error(io::ErrorKind::TimedOut) } else { Fault::None }
            };
            let loader = dataset(&path, on_error, read_ahead, down).loader().unwrap();
            let batches: Vec<_> = loader.epoch().unwrap().map(labels).collect();
            let error = batches[1].as_ref().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Transient, "{on_error:?}: {error}");
            assert!(error.hint().unwrap().contains("failed 3 times"), "{error}");
            assert_eq!(*batches[0].as_ref().unwrap(), [0, 1, 2, 3]);
            assert_eq!(*batches[2].as_ref().unwrap(), [8, 9, 10, 11]);
        }
    }
}

#[test]
fn no_other_sample_comes_in_because_storage_fails() {
    let folder = Folder::new();
    let path = shard(&folder.0);
    // Sample 5 is bad, and every replacement that might be drawn cannot be read: each sample of the batch can be read once.
    let read = AtomicU64::new(0);
    let down = move |call: &Call<'_>| {
        let own = (4..8).find(|i| reads(call, *i));
        let first = own.is_some_and(|i| read.fetch_or(1 << i, Relaxed) >> i & 1 == 0);
        let data = call.operation == Operation::ReadRange && call.len < 512;
        if data && !first { Fault::Error(io::ErrorKind::ConnectionReset) } else { Fault::None }
    };
    let loader = dataset(&path, OnError::Replace, 0, down).skip_first();
    let Err(error) = loader else { panic!("the replacement cannot be read") };
    assert_eq!(error.kind(), ErrorKind::Transient, "{error}");
}

/// The second batch alone.
trait SkipFirst {
    fn skip_first(self) -> Result<Vec<i64>, Error>;
}

impl SkipFirst for Dataset {
    fn skip_first(self) -> Result<Vec<i64>, Error> {
        let loader = self.loader()?;
        labels(loader.epoch()?.nth(1).expect("three batches"))
    }
}

#[test]
fn what_passes_leaves_no_trace() {
    let folder = Folder::new();
    let path = shard(&folder.0);
    for on_error in [OnError::Skip, OnError::Replace] {
        let calls = AtomicU64::new(0);
        // Two calls fail, the third goes through, over and over.
        let flaky = move |call: &Call<'_>| {
            let data = call.operation == Operation::ReadRange && call.len < 512;
            if data && calls.fetch_add(1, Relaxed) % 3 < 2 {
                Fault::Error(io::ErrorKind::ConnectionReset)
            } else {
                Fault::None
            }
        };
        let options = Options { num_workers: Auto::Fixed(1), on_error, ..Options::default() };
        let loader = dataset(&path, on_error, 0, flaky).with_options(options).loader().unwrap();
        let batches: Vec<Vec<i64>> = loader.epoch().unwrap().map(|b| labels(b).unwrap()).collect();
        let bad: Vec<_> = loader.errors().unwrap().iter().map(|bad| bad.error.index()).collect();
        assert_eq!(bad, [Some(5)], "only the sample that is bad");
        assert_eq!(batches[0], [0, 1, 2, 3]);
        assert_eq!(batches[1].len(), if on_error == OnError::Skip { 3 } else { 4 });
    }
}

#[test]
fn a_loader_whose_storage_hangs_can_be_dropped() {
    #[derive(Default)]
    struct Mount {
        /// Calls that hang, and whether the mount answers again.
        state: Mutex<(usize, bool)>,
        changed: Condvar,
    }
    let folder = Folder::new();
    let path = shard(&folder.0);
    for read_ahead in [0, 2] {
        let mount = Arc::new(Mount::default());
        let dead = mount.clone();
        let hang = move |call: &Call<'_>| {
            if reads(call, 9) {
                let mut state = dead.state.lock().unwrap();
                state.0 += 1;
                dead.changed.notify_all();
                while !state.1 {
                    state = dead.changed.wait(state).unwrap();
                }
            }
            Fault::None
        };
        let loader = dataset(&path, OnError::Raise, read_ahead, hang).loader().unwrap();
        loader.start_epoch().unwrap();
        let mut state = mount.state.lock().unwrap();
        while state.0 == 0 {
            state = mount.changed.wait(state).unwrap();
        }
        drop(state);
        for _ in 0..2 {
            let next = loader.next(Duration::from_secs(60)).unwrap_or(Next::EpochEnd);
            assert!(!matches!(next, Next::Pending), "batches before the hung sample come");
        }
        drop(loader);
        mount.state.lock().unwrap().1 = true;
        mount.changed.notify_all();
    }
}
