//! Zip archives as folders: `photos.zip` is one, and `photos.zip!/train` a folder in it.
//!
//! The directory is read once, when the archive is opened; a member is then one read by position in the store that holds
//! the archive, whatever store that is. Paths keep the archive in front of the mark: `data/photos.zip!/train/1.jpg`.

mod directory;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, fmt, ops::Range, sync::Arc};

pub(crate) use directory::Directory;

use super::{
    Done, Entry, EntryKind, Pending, Remote, Request, Retry, RetryingStore, Stat, Store, Version,
    registry::{self, Located},
    secrets,
};
use crate::{Error, ErrorKind, Limits, Result};

/// What separates the path of an archive from a path in it, as in URLs of Java and many tools.
const MARK: &str = "!/";

/// What archives made on macOS have beside the files: attributes, under the names of the files.
const MACOS: &[u8] = b"__MACOSX";

/// What to do about a directory that is damaged.
pub(crate) const CUT: &str = "it was cut, perhaps during a copy, or is no zip archive; `zip -FF` rebuilds a directory from the members";

/// True if `path` names a zip archive, whatever options a URL has.
pub fn is_zip(path: &str) -> bool {
    let name = secrets::shown(path);
    let end = name.len().checked_sub(4).and_then(|at| name.get(at..));
    end.is_some_and(|end| end.eq_ignore_ascii_case(".zip"))
}

/// Path of the archive, and the path in it, of a path like `a.zip!/b`.
pub(super) fn split(path: &str) -> Option<(&str, &str)> {
    let rooted = path.strip_suffix('!').filter(|archive| is_zip(archive)).map(|archive| (archive, ""));
    let marks = path.match_indices(MARK).map(|(at, _)| (&path[..at], &path[at + MARK.len()..]));
    marks.into_iter().find(|(archive, _)| is_zip(archive)).or(rooted)
}

/// The store of `url` and the path in it, as [`registry::locate`] finds them; a zip archive, and a folder in one
/// (`a.zip!/b`), is a store of its own.
///
/// # Errors
/// As [`registry::locate`]; [`ErrorKind::Corrupt`] for an archive that is cut or whose directory is damaged.
pub fn locate(url: &str, local: &Arc<dyn Store>) -> Result<Located> {
    let located = registry::locate(url, local)?;
    let archive = match split(&located.path) {
        Some((archive, _)) => archive.to_owned(),
        None if is_zip(&located.path) && !located.store.is_folder(&located.path) => located.path.clone(),
        None => return Ok(located),
    };
    let store = ZipStore::open(RetryingStore::around(located.store), &archive)?;
    // One that is named itself is its root.
    let path = if located.path == archive { format!("{archive}!") } else { located.path };
    Ok(Located { store: Arc::new(store), address: format!("{}{MARK}{archive}", located.address), path })
}

/// The files of a zip archive in another store.
#[derive(Clone)]
pub struct ZipStore {
    inner: Arc<dyn Store>,
    contents: Arc<Contents>,
}

/// What is in an archive.
struct Contents {
    archive: Arc<str>,
    directory: Directory,
    /// Members sorted by name.
    sorted: Vec<usize>,
}

impl fmt::Debug for ZipStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "zip({}) in {:?}", self.contents.archive, self.inner)
    }
}

impl ZipStore {
    /// Reads the directory of `archive`, which lies in `inner`.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] for an archive that is cut or whose directory is damaged; those of `inner`.
    pub fn open(inner: Arc<dyn Store>, archive: &str) -> Result<Self> {
        let directory = Directory::read(&*inner, archive)?;
        if let Some(damage) = directory.damage() {
            return Err(Error::corrupt(format!("{archive} is damaged: {}", damage.message))
                .with_offset(damage.offset)
                .with_hint(CUT));
        }
        let mut sorted: Vec<usize> = (0..directory.len()).collect();
        sorted.retain(|&i| plain(directory.name(i)).split(|b| *b == b'/').next() != Some(MACOS));
        sorted.sort_by(|&a, &b| plain(directory.name(a)).cmp(plain(directory.name(b))));
        Ok(Self { inner, contents: Arc::new(Contents { archive: archive.into(), directory, sorted }) })
    }
}

/// A name without what only says that it is relative.
fn plain(mut name: &[u8]) -> &[u8] {
    while let Some(rest) = name.strip_prefix(b"./").or_else(|| name.strip_prefix(b"/")) {
        name = rest;
    }
    name
}

impl Contents {
    fn name(&self, index: usize) -> &[u8] {
        plain(self.directory.name(index))
    }

    /// What `path` is called in the archive.
    fn inside<'a>(&self, path: &'a str) -> Result<&'a str> {
        let rest = path.strip_prefix(&*self.archive).and_then(|rest| match rest {
            "" | "!" => Some(""),
            _ => rest.strip_prefix(MARK),
        });
        let rest = rest.ok_or_else(|| self.missing(path))?;
        Ok(rest.trim_matches('/'))
    }

    fn missing(&self, path: &str) -> Error {
        Error::new(ErrorKind::NotFound, format!("there is no {path}"))
    }

    /// Members whose name begins with `prefix`, in order of names.
    fn below(&self, prefix: &[u8]) -> &[usize] {
        let start = self.sorted.partition_point(|&i| self.name(i) < prefix);
        let rest = &self.sorted[start..];
        &rest[..rest.partition_point(|&i| self.name(i).starts_with(prefix))]
    }

    /// Folder `path` (with a slash at its end, unless it is the root), if there is one.
    fn folder(&self, inside: &str) -> Option<Cow<'static, [u8]>> {
        if inside.is_empty() {
            return Some(Cow::Borrowed(b""));
        }
        let prefix = format!("{inside}/").into_bytes();
        (!self.below(&prefix).is_empty()).then_some(Cow::Owned(prefix))
    }

    /// The member that the file `path` is.
    fn file(&self, path: &str) -> Result<usize> {
        let inside = self.inside(path)?;
        let start = self.sorted.partition_point(|&i| self.name(i) < inside.as_bytes());
        let same = |at: usize| self.sorted.get(at).copied().filter(|&i| self.name(i) == inside.as_bytes());
        match (same(start), same(start + 1)) {
            (Some(_), _) if inside.is_empty() => Err(self.missing(path)),
            (Some(file), None) => Ok(file),
            (Some(one), Some(other)) => {
                let (a, b) = (self.directory.offset(one), self.directory.offset(other));
                Err(Error::corrupt(format!("{path} is in its archive twice, at bytes {a} and {b}"))
                    .with_offset(b))
            }
            (None, _) if self.folder(inside).is_some() => {
                Err(Error::new(ErrorKind::Io, format!("cannot read {path}: it is a folder, not a file")))
            }
            (None, _) => Err(self.missing(path)),
        }
    }

    /// Where member `index` lies; errors are about `path`.
    fn extent(&self, path: &str, index: usize, max_bytes: u64) -> Result<Range<u64>> {
        Limits { max_bytes, ..Limits::default() }.check_bytes(path, self.directory.size(index))?;
        self.directory.extent(index, &Limits { max_bytes, ..Limits::default() })
    }
}

/// `range` of an object of `len` bytes, which it must lie in.
fn part(path: &str, len: usize, offset: u64, wanted: usize) -> Result<Range<usize>> {
    let start = usize::try_from(offset).ok();
    let range =
        start.and_then(|start| Some(start..start.checked_add(wanted)?)).filter(|range| range.end <= len);
    range.ok_or_else(|| {
        let got = len.saturating_sub(usize::try_from(offset).unwrap_or(usize::MAX));
        Error::corrupt(format!("{path} ends after {got} of the {wanted} bytes wanted from byte {offset}"))
            .with_offset(offset)
    })
}

impl Store for ZipStore {
    fn stat(&self, path: &str) -> Result<Stat> {
        let archive = self.inner.stat(&self.contents.archive)?;
        let inside = self.contents.inside(path)?;
        // A file may have the name of a folder, and then is what the path names.
        let size = match self.contents.file(path) {
            Ok(file) => Some(self.contents.directory.size(file)),
            Err(e) if e.kind() == ErrorKind::Corrupt => Some(0),
            Err(e) if self.contents.folder(inside).is_none() => return Err(e),
            Err(_) => None,
        };
        let kind = if size.is_some() { EntryKind::File } else { EntryKind::Folder };
        Ok(Stat { kind, size: size.unwrap_or(0), modified: archive.modified, identity: None })
    }

    fn is_folder(&self, path: &str) -> bool {
        let inside = self.contents.inside(path);
        inside.is_ok_and(|inside| self.contents.folder(inside).is_some()) && self.contents.file(path).is_err()
    }

    fn read(&self, path: &str, max_bytes: u64, into: &mut Vec<u8>) -> Result<()> {
        let contents = &*self.contents;
        let file = contents.file(path)?;
        contents.extent(path, file, max_bytes)?;
        let limits = Limits { max_bytes, ..Limits::default() };
        contents.directory.read_member(&*self.inner, file, &limits, into)
    }

    /// A member is unpacked and checked as a whole, whichever part of it is wanted.
    fn read_range(&self, path: &str, offset: u64, len: usize, into: &mut Vec<u8>) -> Result<()> {
        let mut whole = Vec::new();
        self.read(path, Limits::default().max_bytes, &mut whole)?;
        let range = part(path, whole.len(), offset, len)?;
        super::reserve(into, len, path)?;
        into.extend_from_slice(&whole[range]);
        Ok(())
    }

    fn list(&self, path: &str, entry: &mut dyn FnMut(Entry<'_>) -> Result<()>) -> Result<()> {
        let contents = &*self.contents;
        let folder = contents.folder(contents.inside(path)?).ok_or_else(|| contents.missing(path))?;
        let mut members = contents.below(&folder);
        while let Some(&first) = members.first() {
            let rest = &contents.name(first)[folder.len()..];
            let Some(slash) = rest.iter().position(|b| *b == b'/') else {
                // The folder itself may be a member.
                if !rest.is_empty() {
                    entry(Entry { name: rest, kind: EntryKind::File })?;
                }
                members = &members[1..];
                continue;
            };
            let inner = [&*folder, &rest[..=slash]].concat();
            members = &members[members.partition_point(|&i| contents.name(i).starts_with(&inner)).max(1)..];
            entry(Entry { name: &rest[..slash], kind: EntryKind::Folder })?;
        }
        Ok(())
    }

    /// The store that holds the archive has been wrapped already.
    fn retry(&self) -> Option<Retry> {
        None
    }

    fn remote(&self) -> Option<&dyn Remote> {
        self.inner.remote().map(|_| self as &dyn Remote)
    }
}

impl Remote for ZipStore {
    fn begin(&self, request: Request, done: Done) -> Pending {
        let contents = self.contents.clone();
        // A part is made of the whole.
        let most = if request.range.is_some() { Limits::default().max_bytes } else { request.max_bytes };
        let found = contents
            .file(&request.path)
            .and_then(|file| Ok((file, contents.extent(&request.path, file, most)?)));
        let (file, extent) = match found {
            Ok(found) => found,
            Err(e) => {
                done(Err(e));
                return Pending::new(|| {});
            }
        };
        let Some(remote) = self.inner.remote() else {
            done(Err(Error::new(ErrorKind::Internal, format!("{self:?} does not answer later"))));
            return Pending::new(|| {});
        };
        let len = extent.end - extent.start;
        let outer = Request { path: contents.archive.clone(), range: Some(extent), max_bytes: len };
        let unpack = move |answer: Result<Vec<u8>>| {
            let unpacked = answer.and_then(|bytes| {
                let mut whole = Vec::new();
                contents.directory.unpack(file, &bytes, &mut whole)?;
                let Some(range) = request.range else { return Ok(whole) };
                let wanted = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
                let range = part(&request.path, whole.len(), range.start, wanted)?;
                Ok(whole[range].to_vec())
            });
            done(unpacked);
        };
        remote.begin(outer, Box::new(unpack))
    }

    fn version(&self, path: &str) -> Option<Version> {
        let archive = self.inner.remote()?.version(&self.contents.archive)?;
        let (_, member) = split(path)?;
        let address = format!("zip {:016x}", archive.object);
        Some(Version::new(&address, member, &archive.content.to_le_bytes()))
    }

    fn retry(&self) -> Retry {
        self.inner.remote().map_or_else(Retry::default, Remote::retry)
    }
}
