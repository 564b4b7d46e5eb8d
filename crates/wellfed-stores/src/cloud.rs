//! [`CloudStore`]: objects in a bucket, as files in folders.
//!
//! Paths are whole URLs without options, `s3://bucket/train/a.jpg`. Folders are what keys have before a `/`; a name that is
//! both an object and a folder is an object. Each store remembers the tags of the objects that it listed or read, and
//! refuses others later; the connections behind it are shared by all stores of that bucket.

use std::{
    collections::HashMap,
    fmt,
    ops::Range,
    sync::{Arc, LazyLock, Mutex, PoisonError, mpsc},
};

use futures_util::StreamExt;
use object_store::{
    GetOptions, GetRange, GetResultPayload, ObjectMeta, ObjectStore, ObjectStoreExt, memory::InMemory,
    path::Path,
};
use wellfed::{
    Error, ErrorKind, Result,
    store::{
        Done, Entry, EntryKind, Pending, Remote, Request, Retry, Stat, Store, Version, join,
        registry::Located, secrets,
    },
};

use crate::{
    azure,
    bucket::{self, Bucket, Client, Make},
    gcs,
    options::{Common, Options},
    process::runtime,
    s3,
    seen::{Match, Seen},
    transfer,
    trouble::{self, classify},
};

/// Opens what `scheme://rest` names.
pub(crate) fn open(scheme: &str, rest: &str) -> Result<Located> {
    let (base, options) = secrets::split_rest(false, rest).unwrap_or((rest, ""));
    let (host, _) = base.split_once('/').unwrap_or((base, ""));
    let valid = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b'@' | b'$' | b':');
    if host.is_empty() || !host.bytes().all(valid) {
        let name = if scheme.starts_with('a') { "container" } else { "bucket" };
        return Err(Error::config(format!("{scheme}://{host}/ names no {name}"))
            .with_hint(format!("write {scheme}://{name}/folder")));
    }
    let address = format!("{scheme}://{host}?{options}");
    let bucket = bucket::shared(&address, || {
        let mut given = Options::parse(options)?;
        let secrets = Arc::new(given.values());
        let (common, make) = match scheme {
            "s3" | "s3a" => s3::open(host, &mut given, secrets)?,
            "gs" | "gcs" => gcs::open(host, &mut given, secrets)?,
            "memory" => memory(host, &mut given)?,
            _ => azure::open(host, &mut given, secrets)?,
        };
        given.finish(scheme)?;
        Ok(Bucket::new(format!("{scheme}://{host}/"), common, make))
    })?;
    let store = CloudStore { bucket, seen: Arc::default() };
    Ok(Located { store: Arc::new(store), path: format!("{scheme}://{base}"), address })
}

/// Objects in the memory of this process, by the name of their store. For tests.
fn memory(host: &str, options: &mut Options) -> Result<(Common, Make)> {
    static STORES: LazyLock<Mutex<HashMap<String, Arc<InMemory>>>> = LazyLock::new(Mutex::default);
    let mut stores = STORES.lock().unwrap_or_else(PoisonError::into_inner);
    let store = stores.entry(host.to_owned()).or_default().clone();
    Ok((Common::take(options, false)?, Box::new(move |_| Ok(store.clone()))))
}

/// Objects in a bucket.
#[derive(Clone)]
pub(crate) struct CloudStore {
    bucket: Arc<Bucket>,
    seen: Arc<Seen>,
}

impl fmt::Debug for CloudStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CloudStore({:?})", self.bucket)
    }
}

/// What an answer says of its object.
fn stat_of(meta: &ObjectMeta) -> Stat {
    let modified = i128::from(meta.last_modified.timestamp()) * 1_000_000_000
        + i128::from(meta.last_modified.timestamp_subsec_nanos());
    Stat { kind: EntryKind::File, size: meta.size, modified, identity: None }
}

const FOLDER: Stat = Stat { kind: EntryKind::Folder, size: 0, modified: 0, identity: None };

/// Waits for what runs on the threads of stores.
pub(crate) fn wait<T: Send + 'static>(task: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let task = runtime()?.spawn(async move { drop(sender.send(task.await)) });
    let result = receiver.recv();
    drop(task);
    result.unwrap_or_else(|_| {
        Err(Error::new(ErrorKind::Internal, "a request of a store ended without an answer"))
    })
}

impl CloudStore {
    /// The key of `path` in the bucket.
    fn key(&self, path: &str) -> Result<Path> {
        let root = &*self.bucket.root;
        let key = match path.strip_prefix(root) {
            Some(key) => key,
            None if path.len() + 1 == root.len() && root.starts_with(path) => "",
            None => return Err(Error::config(format!("{path} does not lie in {root}"))),
        };
        let bad = |_| {
            let text =
                "names with empty parts, . or .. between slashes are not supported in stores of objects";
            Error::new(ErrorKind::Unsupported, format!("cannot use {path}: {text}"))
        };
        if key.starts_with('/') {
            return Err(bad(()));
        }
        Path::parse(key.trim_end_matches('/')).map_err(|_| bad(()))
    }

    fn client(&self) -> Result<&Client> {
        self.bucket.client()
    }

    /// Waits for a request. Its client is made in the calling thread: that may itself wait for the threads of stores.
    fn wait<T: Send + 'static>(&self, task: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
        self.client()?;
        wait(task)
    }

    /// The bytes of an object, or of a range of it.
    async fn get(&self, path: &str, range: Option<Range<u64>>, max_bytes: u64) -> Result<Vec<u8>> {
        let key = self.key(path)?;
        if range.as_ref().is_some_and(Range::is_empty) {
            return Ok(Vec::new());
        }
        let client = self.client()?;
        let _turn = client.turns.acquire().await;
        let options = GetOptions {
            range: range.clone().map(GetRange::Bounded),
            if_match: self.seen.expected(path),
            ..GetOptions::default()
        };
        let (result, seen) = trouble::watch(client.store.get_opts(&key, options)).await;
        let start = range.as_ref().map_or(0, |range| range.start);
        let result = result.map_err(|e| {
            // Memory makes no requests, and has no other reason to refuse a range.
            let beyond = range.is_some() && seen.status.is_none() && seen.connection.is_none();
            let e = classify("read", path, Some(&e), &seen);
            match (&range, e.kind()) {
                (Some(_), ErrorKind::Io) if beyond && self.bucket.root.starts_with("memory:") => {
                    ends(path, start)
                }
                (Some(_), ErrorKind::Corrupt) => e.with_offset(start),
                _ => e,
            }
        })?;
        same(path, self.seen.compare(path, result.meta.e_tag.as_deref(), Some(result.meta.size)))?;
        if range.as_ref().is_some_and(|range| result.range != *range) {
            return Err(ends(path, start));
        }
        let expected = result.range.end - result.range.start;
        let GetResultPayload::Stream(stream) = result.payload;
        let lost = |_| Error::transient(format!("cannot read {path}: the connection was lost on the way"));
        transfer::collect(path, stream, Some(expected), max_bytes, self.bucket.common.silence, lost).await
    }

    async fn look(&self, path: &str) -> Result<Stat> {
        let (key, client) = (self.key(path)?, self.client()?);
        let _turn = client.turns.acquire().await;
        let is_root = key.as_ref().is_empty();
        if !is_root && !path.ends_with('/') {
            let (result, seen) = trouble::watch(client.store.head(&key)).await;
            match result.map_err(|e| classify("look at", path, Some(&e), &seen)) {
                Ok(meta) => return Ok(stat_of(&meta)),
                Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
                Err(_) => {}
            }
        }
        // A folder is there if anything is in it.
        let (first, seen) = trouble::watch(client.store.list(Some(&key)).next()).await;
        match first {
            Some(Ok(_)) => Ok(FOLDER),
            None if is_root => Ok(FOLDER),
            None => Err(missing("look at", path)),
            Some(Err(e)) => Err(classify("look at", path, Some(&e), &seen)),
        }
    }

    /// Folders and files in a folder.
    async fn children(&self, path: &str) -> Result<(Vec<String>, Vec<String>)> {
        let (key, client) = (self.key(path)?, self.client()?);
        let _turn = client.turns.acquire().await;
        let (result, seen) = trouble::watch(client.store.list_with_delimiter(Some(&key))).await;
        let found = result.map_err(|e| classify("list", path, Some(&e), &seen))?;
        // What marks an empty folder is an object of its name. It is not listed in the folder itself, but above it.
        let empty = found.common_prefixes.is_empty() && found.objects.is_empty();
        if empty && !key.as_ref().is_empty() && !self.seen.is_folder(path.trim_end_matches('/')) {
            return Err(missing("list", path));
        }
        let name = |location: &Path| {
            let below = location.as_ref().strip_prefix(key.as_ref())?;
            let name = if key.as_ref().is_empty() { below } else { below.strip_prefix('/')? };
            (!name.is_empty()).then(|| name.to_owned())
        };
        let folders: Vec<String> = found.common_prefixes.iter().filter_map(name).collect();
        let object = |meta: ObjectMeta| Some((name(&meta.location)?, meta.e_tag, meta.size));
        let objects: Vec<(String, Option<String>, u64)> =
            found.objects.into_iter().filter_map(object).collect();
        let folder_paths: Vec<String> = folders.iter().map(|name| join(path, name)).collect();
        let object_paths: Vec<String> = objects.iter().map(|(name, ..)| join(path, name)).collect();
        let tags = objects.iter().map(|(_, tag, size)| (tag.as_deref(), *size));
        let seen = object_paths.iter().zip(tags).map(|(path, (tag, size))| (path.as_str(), tag, size));
        self.seen.listed(folder_paths.iter().map(String::as_str), seen);
        Ok((folders, objects.into_iter().map(|(name, ..)| name).collect()))
    }
}

/// Refuses an answer that is not of the object that was seen before.
pub(crate) fn same(place: &str, found: Match) -> Result<()> {
    match found {
        Match::Same => Ok(()),
        Match::Other => Err(trouble::changed("read", place)),
        Match::Length(size) => Err(Error::transient(format!(
            "cannot read {place}: it has {size} bytes, but the answer says another number"
        ))),
    }
}

fn missing(what: &str, path: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("cannot {what} {path}: it does not exist"))
}

/// The error of a range that is not there.
pub(crate) fn ends(path: &str, start: u64) -> Error {
    Error::corrupt(format!("{path} ends before the bytes that are wanted from byte {start}"))
        .with_offset(start)
}

impl Store for CloudStore {
    fn stat(&self, path: &str) -> Result<Stat> {
        if self.seen.is_folder(path.trim_end_matches('/')) {
            return Ok(FOLDER);
        }
        let (this, path) = (self.clone(), path.to_owned());
        self.wait(async move { this.look(&path).await })
    }

    fn read(&self, path: &str, max_bytes: u64, into: &mut Vec<u8>) -> Result<()> {
        let (this, path) = (self.clone(), path.to_owned());
        append(self.wait(async move { this.get(&path, None, max_bytes).await })?, into)
    }

    fn read_range(&self, path: &str, offset: u64, len: usize, into: &mut Vec<u8>) -> Result<()> {
        let (this, path) = (self.clone(), path.to_owned());
        let range = offset..offset.saturating_add(len as u64);
        append(self.wait(async move { this.get(&path, Some(range), u64::MAX).await })?, into)
    }

    fn list(&self, path: &str, entry: &mut dyn FnMut(Entry<'_>) -> Result<()>) -> Result<()> {
        let (this, path) = (self.clone(), path.to_owned());
        let (folders, files) = self.wait(async move { this.children(path.trim_end_matches('/')).await })?;
        let folders = folders.iter().map(|name| (name, EntryKind::Folder));
        let files = files.iter().map(|name| (name, EntryKind::File));
        folders.chain(files).try_for_each(|(name, kind)| entry(Entry { name: name.as_bytes(), kind }))
    }

    fn write(&self, path: &str, bytes: &[u8]) -> Result<()> {
        let (this, path, payload) = (self.clone(), path.to_owned(), bytes.to_vec());
        let size = bytes.len() as u64;
        self.wait(async move {
            let (key, client) = (this.key(&path)?, this.client()?);
            let _turn = client.turns.acquire().await;
            let (result, seen) = trouble::watch(client.store.put(&key, payload.into())).await;
            let result = result.map_err(|e| classify("write", &path, Some(&e), &seen))?;
            this.seen.written(&path, result.e_tag.as_deref(), size);
            Ok(())
        })
    }

    fn retry(&self) -> Option<Retry> {
        Some(self.bucket.common.retry)
    }

    fn remote(&self) -> Option<&dyn Remote> {
        Some(self)
    }
}

/// Adds an answer to a buffer, or makes it the buffer.
pub(crate) fn append(bytes: Vec<u8>, into: &mut Vec<u8>) -> Result<()> {
    if into.is_empty() && into.capacity() < bytes.len() {
        *into = bytes;
        return Ok(());
    }
    into.try_reserve_exact(bytes.len()).map_err(|_| Error::memory(bytes.len(), "an answer"))?;
    into.extend_from_slice(&bytes);
    Ok(())
}

/// Runs `task` on the threads of stores; dropping what is given back ends it.
pub(crate) fn begin(task: impl Future<Output = Result<Vec<u8>>> + Send + 'static, done: Done) -> Pending {
    match runtime() {
        Ok(runtime) => {
            let task = runtime.spawn(async move { done(task.await) });
            Pending::new(move || task.abort())
        }
        Err(e) => {
            done(Err(e));
            Pending::new(|| {})
        }
    }
}

impl Remote for CloudStore {
    fn begin(&self, request: Request, done: Done) -> Pending {
        let this = self.clone();
        let Request { path, range, max_bytes } = request;
        // Where clients are made, the region of a bucket may be asked for: here that may block.
        if let Err(e) = self.client() {
            done(Err(e));
            return Pending::new(|| {});
        }
        begin(async move { this.get(&path, range, max_bytes).await }, done)
    }

    fn retry(&self) -> Retry {
        self.bucket.common.retry
    }

    fn connections(&self) -> usize {
        self.bucket.common.connections
    }

    fn version(&self, path: &str) -> Option<Version> {
        // Tags of objects in memory are numbers, in each process the same ones.
        if self.bucket.root.starts_with("memory:") {
            return None;
        }
        let tag = self.seen.version(path)?;
        Some(Version::new(&self.bucket.common.endpoint, path, &tag))
    }

    fn throttled(&self) -> u64 {
        self.client().map_or(0, |client| client.pace.count())
    }
}
