//! Stores by URL: `scheme://…` names one, a plain path or `file://…` the store that the caller has.
//!
//! Schemes come with this crate or are registered by others. What stands after `://` belongs to the scheme: it says
//! which store is meant, and which path in it.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock, RwLock},
};

use super::{DelayedStore, Store, secrets};
use crate::{Error, Result};

/// What a URL leads to.
#[derive(Clone, Debug)]
pub struct Located {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The path in it.
    pub path: String,
    /// Identity of the store: URLs of one address lie in one store. Empty for the caller's own.
    pub address: String,
}

/// Finds the store and the path in it of what follows `scheme://`.
pub type Opener = dyn Fn(&str) -> Result<Located> + Send + Sync;

/// Openers by scheme.
static OPENERS: LazyLock<RwLock<BTreeMap<String, Arc<Opener>>>> = LazyLock::new(|| {
    let delayed: Arc<Opener> = Arc::new(DelayedStore::from_url);
    RwLock::new(BTreeMap::from([("delayed+file".to_owned(), delayed)]))
});

/// Makes `scheme://…` known, in place of an earlier opener of that scheme.
///
/// # Errors
/// [`crate::ErrorKind::Config`] for what is no scheme (RFC 3986, lower case), and for `file`.
pub fn register(scheme: &str, open: impl Fn(&str) -> Result<Located> + Send + Sync + 'static) -> Result<()> {
    if !is_scheme(scheme) || scheme == "file" {
        return Err(Error::config(format!("{scheme:?} cannot be registered as the scheme of a store"))
            .with_hint(
                "a scheme is lower-case letters, digits, + - and ., and file is always the local store",
            ));
    }
    let mut openers = OPENERS.write().unwrap_or_else(|poisoned| poisoned.into_inner());
    openers.insert(scheme.to_owned(), Arc::new(open));
    Ok(())
}

/// Schemes that have a store, in order.
pub fn schemes() -> Vec<String> {
    let openers = OPENERS.read().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut all: Vec<String> = openers.keys().cloned().chain(["file".to_owned()]).collect();
    all.sort_unstable();
    all
}

/// The store of `url` and the path in it. Plain paths and `file://` lie in `local`.
///
/// # Errors
/// [`crate::ErrorKind::Config`] for a scheme without a store; what the store's opener says.
pub fn locate(url: &str, local: &Arc<dyn Store>) -> Result<Located> {
    let own = |path: &str| Located { store: local.clone(), path: path.to_owned(), address: String::new() };
    let Some((scheme, rest)) = split(url) else { return Ok(own(url)) };
    if scheme == "file" {
        return Ok(own(rest));
    }
    let opener = {
        let openers = OPENERS.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        openers.get(scheme).cloned()
    };
    match opener {
        Some(open) => open(rest),
        None => Err(Error::config(format!(
            "cannot read {}: there is no store for {scheme}://, only for {}",
            secrets::shown(url),
            schemes().join(", ")
        ))
        .with_hint("copy the data to a local or mounted folder")),
    }
}

/// The store of a list of `paths`, which must all lie in one; those in a store that is named by URL are its paths as they
/// stand. `storage` is any URL of that scheme with the store's options.
///
/// # Errors
/// As [`locate`]; [`crate::ErrorKind::Config`] if the paths lie in several stores, or options are given for local files.
pub fn locate_listed<'a>(
    mut paths: impl Iterator<Item = &'a str>,
    storage: Option<&str>,
    local: &Arc<dyn Store>,
) -> Result<Arc<dyn Store>> {
    let first = paths.next().unwrap_or_default();
    let Some((scheme, rest)) = split(first) else {
        return match storage {
            Some(_) if !first.is_empty() => {
                Err(Error::config(format!("storage_options are given for {first}, which is a local file")))
            }
            _ => Ok(local.clone()),
        };
    };
    let given = secrets::with_options(first, storage.map_or("", |storage| secrets::split(storage).1));
    let located = locate(&secrets::seal(&given), local)?;
    let host = &first[..scheme.len() + 3 + rest.find('/').map_or(rest.len(), |at| at + 1)];
    let store = format!("{scheme}://");
    if !located.path.starts_with(&store) {
        return Err(Error::config(format!("a list of files takes no paths of {store}")));
    }
    match paths.zip(1..).find(|(path, _)| !path.starts_with(host)) {
        Some((path, index)) => Err(Error::config(format!(
            "path {index}, {}, lies in another store than path 0, {}",
            secrets::shown(path),
            secrets::shown(first)
        ))
        .with_hint("open the lists one by one, and put them together with concatenate")),
        None => Ok(located.store),
    }
}

/// Scheme and rest of what is a URL.
pub(super) fn split(url: &str) -> Option<(&str, &str)> {
    url.split_once("://").filter(|(scheme, _)| is_scheme(scheme))
}

fn is_scheme(text: &str) -> bool {
    let more = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'+' | b'-' | b'.');
    // One letter is a drive of Windows.
    text.len() > 1 && text.as_bytes()[0].is_ascii_lowercase() && text.bytes().all(more)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ErrorKind, store::LocalStore};

    #[test]
    fn urls_lead_to_their_stores() {
        let local: Arc<dyn Store> = Arc::new(LocalStore::new());
        for (url, path) in [
            ("data/train", "data/train"),
            ("/a b/ü?.jpg", "/a b/ü?.jpg"),
            ("file:///data/x", "/data/x"),
            ("c:/x", "c:/x"),
            ("a/b://c", "a/b://c"),
        ] {
            let found = locate(url, &local).unwrap();
            assert!(Arc::ptr_eq(&found.store, &local) && found.path == path, "{url}");
            assert_eq!(found.address, "");
        }
        let found = locate("delayed+file:///data?latency_ms=1", &local).unwrap();
        assert!(found.store.remote().is_some() && found.path == "/data");
        let other = locate("delayed+file:///data?latency_ms=2", &local).unwrap();
        assert!(!found.address.is_empty() && found.address != other.address);
        let e = locate("s9://bucket/x", &local).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Config);
        assert!(e.message().contains("s9://") && e.message().contains("delayed+file, file"), "{e}");
        let other = local.clone();
        let open = move |rest: &str| {
            Ok(Located { store: other.clone(), path: rest.to_uppercase(), address: "test".to_owned() })
        };
        register("test-store", open).unwrap();
        assert_eq!(locate("test-store://abc", &local).unwrap().path, "ABC");
        for bad in ["", "s", "file", "S3", "3s", "a_b"] {
            assert!(register(bad, |_| Err(Error::config(""))).is_err(), "{bad}");
        }
    }
}
