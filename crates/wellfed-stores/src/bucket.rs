//! A bucket or container: what all stores of one URL share. Connections, and how fast they may be used.

use std::{
    collections::HashMap,
    env, fmt,
    sync::{Arc, LazyLock, Mutex, PoisonError, Weak},
};

use object_store::ObjectStore;
use tokio::sync::Semaphore;
use wellfed::Result;

use crate::{client::Pace, options::Common, process::PerProcess};

/// Makes a client whose requests go at this pace.
pub(crate) type Make = Box<dyn Fn(Arc<Pace>) -> Result<Arc<dyn ObjectStore>> + Send + Sync>;

pub(crate) struct Bucket {
    /// What all paths begin with: `s3://bucket/`.
    pub(crate) root: String,
    pub(crate) common: Common,
    make: Make,
    client: PerProcess<Client>,
}

/// What one process has of a bucket.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) store: Arc<dyn ObjectStore>,
    /// How fast its requests may go.
    pub(crate) pace: Arc<Pace>,
    /// So many requests may be under way.
    pub(crate) turns: Semaphore,
}

/// Options may be secret.
impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.root)
    }
}

impl Bucket {
    pub(crate) fn new(root: String, common: Common, make: Make) -> Self {
        Self { root, common, make, client: PerProcess::new() }
    }

    /// This process's client.
    pub(crate) fn client(&self) -> Result<&Client> {
        self.client.get(|| {
            // TLS needs its provider before a client is made.
            crate::process::runtime()?;
            let pace = Arc::<Pace>::default();
            let store = (self.make)(pace.clone())?;
            Ok(Client { store, pace, turns: Semaphore::new(self.common.connections) })
        })
    }
}

/// The bucket at `address` (its URL with sealed options), if one is open, else a new one.
pub(crate) fn shared(address: &str, open: impl FnOnce() -> Result<Bucket>) -> Result<Arc<Bucket>> {
    type Open = HashMap<(String, u64), Weak<Bucket>>;
    static OPEN: LazyLock<Mutex<Open>> = LazyLock::new(Mutex::default);
    let key = (address.to_owned(), environment());
    let mut buckets = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(bucket) = buckets.get(&key).and_then(Weak::upgrade) {
        return Ok(bucket);
    }
    let bucket = Arc::new(open()?);
    buckets.retain(|_, bucket| bucket.strong_count() > 0);
    buckets.insert(key, Arc::downgrade(&bucket));
    Ok(bucket)
}

/// A hash of the variables that stores look at: after a change of them a bucket is another one.
fn environment() -> u64 {
    let mut wanted: Vec<_> = env::vars_os()
        .filter(|(name, _)| {
            let name = name.to_string_lossy().to_ascii_uppercase();
            ["AWS_", "GOOGLE_", "AZURE_", "STORAGE_", "HOME", "SSL_", "NO_PROXY"]
                .iter()
                .any(|p| name.starts_with(p))
                || name.ends_with("_PROXY")
                || name.ends_with("_CA_BUNDLE")
        })
        .collect();
    wanted.sort_unstable();
    let mut text = Vec::new();
    for (name, value) in wanted {
        text.extend_from_slice(name.as_encoded_bytes());
        text.push(0);
        text.extend_from_slice(value.as_encoded_bytes());
        text.push(0);
    }
    rapidhash::v3::rapidhash_v3(&text)
}
