//! Data sets that lie in several files ("shards"): which ones a list of paths and patterns stands for.

use std::sync::Arc;

use crate::{
    Error, ErrorKind, Result,
    store::{
        RetryingStore, Store, brace, glob, join,
        registry::{self, Located},
        secrets,
    },
};

/// The store that the shards lie in, and their paths: those that `urls` stand for, in their order. Plain paths lie in `local`.
///
/// # Errors
/// [`ErrorKind::Config`] for no shard at all, commands, and shards in several stores; [`ErrorKind::NotFound`] for a pattern that
/// nothing matches; those of the store.
pub fn find(local: &Arc<dyn Store>, urls: &[String]) -> Result<(Arc<dyn Store>, Vec<String>)> {
    let mut paths = Vec::new();
    let mut first: Option<Located> = None;
    for url in urls.iter().flat_map(|url| url.split("::")) {
        if let Some(command) = url.strip_prefix("pipe:") {
            return Err(Error::config(format!("cannot read pipe:{command}: commands are not run"))
                .with_hint("copy the shards to a local or mounted folder"));
        }
        // WebDataset takes `file:path`, too.
        let plain = url.strip_prefix("file:").filter(|rest| !rest.starts_with("//")).unwrap_or(url);
        let located = registry::locate(plain, local)?;
        let first = first.get_or_insert_with(|| Located {
            store: RetryingStore::around(located.store.clone()),
            ..located.clone()
        });
        if first.address != located.address {
            return Err(Error::config(format!(
                "{} lies in another store than the first shards",
                secrets::shown(url)
            ))
            .with_hint("open the data sets one by one, and put them together with concatenate"));
        }
        let store = &*first.store;
        for path in brace::expand(&located.path)? {
            if !glob::has_magic(&path) || store.stat(&path).is_ok() {
                paths.push(path);
                continue;
            }
            let found = glob::files(store, &path)?;
            if found.is_empty() {
                return Err(Error::new(ErrorKind::NotFound, format!("no shard matches {path}")));
            }
            paths.extend(found.iter().flat_map(|l| l.files.iter().map(|name| join(&l.path, name))));
        }
    }
    match first {
        Some(first) if !paths.is_empty() => Ok((first.store, paths)),
        _ => Err(Error::config("there is no shard")),
    }
}
