//! [`HubStore`]: data sets and models on a Hugging Face hub, or a mirror of one, as files in folders.
//!
//! `hf://datasets/user/name@revision/folder`, as `huggingface_hub` writes it; without `datasets/` or `spaces/` it is a
//! model. Folders are listed by the hub's interface (`/api/datasets/…/tree/…`), files are read by ranges from where
//! `/resolve/` leads. Token, cache folder and address are found as `huggingface_hub` finds them: `HF_TOKEN`,
//! `HF_TOKEN_PATH`, `HF_HOME`, `HF_ENDPOINT`.

use std::{env, fmt, fs, path::PathBuf, sync::Arc};

use serde_json::Value;
use wellfed::{
    Error, ErrorKind, Result,
    store::{
        Done, Entry, EntryKind, Pending, Remote, Request, Retry, Stat, Store, Version, registry::Located,
        secrets,
    },
};

use crate::{
    cloud,
    options::{Common, Options},
    web::WebStore,
};

/// Where a hub is unless somebody says otherwise.
const HUB: &str = "https://huggingface.co";

/// Bytes of one page of a listing.
const PAGE: u64 = 64 << 20;

/// Opens `hf://rest`.
pub(crate) fn open(rest: &str) -> Result<Located> {
    let (base, text) = secrets::split_rest(false, rest).unwrap_or((rest, ""));
    let mut options = Options::parse(text)?;
    let mut values = options.values();
    let endpoint =
        options.take(&["endpoint_url", "endpoint"])?.or_else(|| crate::options::env("HF_ENDPOINT"));
    let endpoint = endpoint.unwrap_or_else(|| HUB.to_owned());
    let endpoint = endpoint.trim_end_matches('/').to_owned();
    let named = options.take(&["revision"])?;
    let anonymous = options.flag(&["anon"])?.unwrap_or(false);
    let token = options.take(&["token"])?.or_else(|| token().filter(|_| !anonymous));
    let common = Common::take(&mut options, endpoint.starts_with("http://"))?;
    options.finish("hf")?;
    let repository = Repository::parse(base, named)?;
    values.extend(token.clone());
    let files = WebStore::of_hub(&endpoint, common, token.as_deref(), Arc::new(values))?;
    let root = repository.root.clone();
    let address = format!("hf://{root}?{text}");
    let store = HubStore { inner: Arc::new(Inner { endpoint, repository }), files };
    Ok(Located { store: Arc::new(store), path: format!("hf://{base}"), address })
}

/// The token that the hub's own tools have stored.
fn token() -> Option<String> {
    let home = || {
        let named = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        named("HF_HOME").or_else(|| Some(named("HOME")?.join(".cache/huggingface")))
    };
    let file = || {
        let path =
            crate::options::env("HF_TOKEN_PATH").map(PathBuf::from).or_else(|| Some(home()?.join("token")));
        fs::read_to_string(path?).ok()
    };
    let token = crate::options::env("HF_TOKEN").or_else(file)?.trim().to_owned();
    (!token.is_empty()).then_some(token)
}

/// What a URL names before its path.
#[derive(Debug, PartialEq, Eq)]
struct Repository {
    /// As it stands in URLs of this store: `datasets/user/name@main`.
    root: String,
    /// `datasets`, `spaces` or `models`.
    kind: &'static str,
    /// `user/name`.
    name: String,
    revision: String,
}

impl Repository {
    fn parse(base: &str, named: Option<String>) -> Result<Self> {
        let bad = |what: &str| {
            Error::config(format!("hf://{base} {what}"))
                .with_hint("write hf://datasets/user/name/folder, hf://datasets/user/name@revision/folder or hf://user/name/…")
        };
        let (kind, prefix, below) = match base.split_once('/') {
            Some(("datasets", below)) => ("datasets", "datasets/", below),
            Some(("spaces", below)) => ("spaces", "spaces/", below),
            _ => ("models", "", base),
        };
        let mut parts = below.splitn(3, '/');
        let (Some(user), Some(repo)) = (parts.next(), parts.next()) else {
            return Err(bad("does not name a user and a repository"));
        };
        let (repo, revision) = match repo.split_once('@') {
            Some((repo, revision)) => (repo, Some(revision.to_owned())),
            None => (repo, None),
        };
        let valid = |text: &str| {
            !text.is_empty()
                && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'))
        };
        if !valid(user) || !valid(repo) {
            return Err(bad("does not name a user and a repository"));
        }
        if revision.is_some() && named.is_some() && revision != named {
            return Err(bad("names a revision, and the option revision another one"));
        }
        // What huggingface_hub knows as a short form: the Parquet files that the hub makes of a data set.
        let spelled = match revision.as_deref() {
            Some("~parquet") => Some("refs/convert/parquet".to_owned()),
            Some(text) => Some(text.replace("%2F", "/").replace("%2f", "/")),
            None => None,
        };
        let root = format!("{prefix}{user}/{repo}{}", revision.map(|r| format!("@{r}")).unwrap_or_default());
        let revision = spelled.or(named).unwrap_or_else(|| "main".to_owned());
        Ok(Self { root, kind, name: format!("{user}/{repo}"), revision })
    }
}

struct Inner {
    endpoint: String,
    repository: Repository,
}

/// Files of a repository.
#[derive(Clone)]
struct HubStore {
    inner: Arc<Inner>,
    files: WebStore,
}

impl fmt::Debug for HubStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HubStore(hf://{})", self.inner.repository.root)
    }
}

impl HubStore {
    /// What `path` is called in its repository; empty for the root.
    fn name<'a>(&self, path: &'a str) -> Result<&'a str> {
        let root = &self.inner.repository.root;
        let below = path.strip_prefix("hf://").and_then(|path| path.strip_prefix(root.as_str()));
        match below {
            Some("") => Ok(""),
            Some(below) if below.starts_with('/') => Ok(below.trim_matches('/')),
            _ => Err(Error::config(format!("{path} does not lie in hf://{root}"))),
        }
    }

    /// Where the bytes of `path` are.
    fn file(&self, path: &str) -> Result<String> {
        let Inner { endpoint, repository } = &*self.inner;
        let kind = if repository.kind == "models" { String::new() } else { format!("{}/", repository.kind) };
        let (name, revision) = (&repository.name, encoded(&repository.revision, true));
        Ok(format!("{endpoint}/{kind}{name}/resolve/{revision}/{}", encoded(self.name(path)?, false)))
    }

    /// Folders and files of a folder, with the sizes of files.
    fn children(&self, path: &str) -> Result<Vec<(String, EntryKind, u64)>> {
        let Inner { endpoint, repository } = &*self.inner;
        let folder = self.name(path)?;
        let (kind, name, revision) = (repository.kind, &repository.name, encoded(&repository.revision, true));
        let mut next =
            Some(format!("{endpoint}/api/{kind}/{name}/tree/{revision}/{}", encoded(folder, false)));
        let mut found = Vec::new();
        while let Some(url) = next.take() {
            let url = url.trim_end_matches('/').to_owned();
            let files = self.files.clone();
            let (page, more) = cloud::wait(async move { files.page(&url, PAGE).await }).map_err(|e| {
                // A hub says the same of what is not there and of what is not to be seen.
                if e.kind() != ErrorKind::NotFound {
                    return e;
                }
                Error::new(ErrorKind::NotFound, format!("cannot list {path}: it does not exist"))
            })?;
            let strange = || {
                Error::new(
                    ErrorKind::Io,
                    format!("cannot list {path}: {endpoint} does not answer as a hub does"),
                )
            };
            let page: Vec<Value> = serde_json::from_slice(&page).map_err(|_| strange())?;
            for entry in &page {
                let full = entry["path"].as_str().ok_or_else(strange)?;
                let below = if folder.is_empty() {
                    Some(full)
                } else {
                    full.strip_prefix(folder).and_then(|below| below.strip_prefix('/'))
                };
                let Some(name) = below.filter(|name| !name.is_empty() && !name.contains('/')) else {
                    continue;
                };
                let kind = match entry["type"].as_str() {
                    Some("directory") => EntryKind::Folder,
                    _ => EntryKind::File,
                };
                found.push((name.to_owned(), kind, entry["size"].as_u64().unwrap_or(0)));
            }
            next = more;
        }
        Ok(found)
    }
}

/// `text` with what may not stand in the path of a URL as codes, slashes too where it is one part of it.
fn encoded(text: &str, slashes: bool) -> String {
    let parts: Vec<String> = text.split('/').map(secrets::encode).collect();
    parts.join(if slashes { "%2F" } else { "/" })
}

impl Store for HubStore {
    fn stat(&self, path: &str) -> Result<Stat> {
        let folder = Stat { kind: EntryKind::Folder, size: 0, modified: 0, identity: None };
        // What leads to the repository are folders, too: patterns are walked along them.
        let above = format!("{}/", path.trim_end_matches('/'));
        if format!("hf://{}/", self.inner.repository.root).starts_with(&above) {
            return Ok(folder);
        }
        if !path.ends_with('/') {
            match self.files.stat(&self.file(path)?) {
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                other => return other,
            }
        }
        match self.children(path) {
            Ok(found) if !found.is_empty() => Ok(folder),
            Ok(_) => {
                Err(Error::new(ErrorKind::NotFound, format!("cannot look at {path}: it does not exist")))
            }
            Err(e) => Err(e),
        }
    }

    fn read(&self, path: &str, max_bytes: u64, into: &mut Vec<u8>) -> Result<()> {
        self.files.read(&self.file(path)?, max_bytes, into)
    }

    fn read_range(&self, path: &str, offset: u64, len: usize, into: &mut Vec<u8>) -> Result<()> {
        self.files.read_range(&self.file(path)?, offset, len, into)
    }

    fn list(&self, path: &str, entry: &mut dyn FnMut(Entry<'_>) -> Result<()>) -> Result<()> {
        let found = self.children(path)?;
        found.iter().try_for_each(|(name, kind, _)| entry(Entry { name: name.as_bytes(), kind: *kind }))
    }

    fn retry(&self) -> Option<Retry> {
        Store::retry(&self.files)
    }

    fn remote(&self) -> Option<&dyn Remote> {
        Some(self)
    }
}

impl Remote for HubStore {
    fn begin(&self, request: Request, done: Done) -> Pending {
        match self.file(&request.path) {
            Ok(path) => self.files.begin(Request { path: path.into(), ..request }, done),
            Err(e) => {
                done(Err(e));
                Pending::new(|| {})
            }
        }
    }

    fn retry(&self) -> Retry {
        Remote::retry(&self.files)
    }

    fn connections(&self) -> usize {
        self.files.connections()
    }

    fn version(&self, path: &str) -> Option<Version> {
        self.files.version(&self.file(path).ok()?)
    }

    fn throttled(&self) -> u64 {
        self.files.throttled()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_kind_repository_and_revision() {
        let of = |base: &str, named: Option<&str>| {
            let r = Repository::parse(base, named.map(str::to_owned)).unwrap();
            (r.root, r.kind, r.name, r.revision)
        };
        let expect = |root: &str, kind, name: &str, revision: &str| {
            (root.to_owned(), kind, name.to_owned(), revision.to_owned())
        };
        assert_eq!(of("datasets/u/n/a/b.tar", None), expect("datasets/u/n", "datasets", "u/n", "main"));
        assert_eq!(of("u/n@v1/x", None), expect("u/n@v1", "models", "u/n", "v1"));
        assert_eq!(of("datasets/u/n@~parquet/x", None).3, "refs/convert/parquet");
        assert_eq!(of("datasets/u/n@refs%2Fpr%2F1/x", None).3, "refs/pr/1");
        assert_eq!(of("spaces/u/n", Some("dev")), expect("spaces/u/n", "spaces", "u/n", "dev"));
        for (base, named) in
            [("datasets/n", None), ("", None), ("u//x", None), ("u/n@a/x", Some("b".to_owned()))]
        {
            assert_eq!(Repository::parse(base, named).unwrap_err().kind(), ErrorKind::Config, "{base}");
        }
        assert_eq!(encoded("a b/ü#.tar", false), "a%20b/%C3%BC%23.tar");
        assert_eq!(encoded("refs/convert/parquet", true), "refs%2Fconvert%2Fparquet");
    }
}
