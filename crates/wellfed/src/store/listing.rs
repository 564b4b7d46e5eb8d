//! Walking folder trees of a store, in parallel and in little memory.
//!
//! Names of one folder lie in one string with 4 bytes of offset each, sorted by code point: a million files of
//! 15 letters take 19 MB. A loop of symbolic links ends with an error that names it.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use super::{EntryKind, Store, join};
use crate::{Error, ErrorKind, Result};

/// Threads that list folders or read indices. More than the cores, because a slow disk answers several at once.
const THREADS: usize = 8;

/// The same where they wait for a store that answers later.
const FAR_THREADS: usize = 32;

/// Names in one arena.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    text: String,
    ends: Vec<u32>,
}

impl Names {
    /// Number of names.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True if there is no name.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Name `index`, or an empty one beyond the end.
    pub fn get(&self, index: usize) -> &str {
        let start = if index == 0 { 0 } else { self.ends.get(index - 1).copied().unwrap_or(0) };
        let end = self.ends.get(index).copied().unwrap_or(start);
        &self.text[start as usize..end as usize]
    }

    /// All names in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).map(|i| self.get(i))
    }

    /// Adds a name, unless there are 4 GiB of them already.
    pub fn push(&mut self, name: &str) -> Result<()> {
        let end = self.text.len() + name.len();
        let end = u32::try_from(end).map_err(|_| {
            Error::limit("one folder or shard", end as u64, u64::from(u32::MAX), "bytes of names")
        })?;
        self.text.push_str(name);
        self.ends.push(end);
        Ok(())
    }

    /// The text of all names, and where each ends in it.
    pub(crate) fn parts(&self) -> (&str, &[u32]) {
        (&self.text, &self.ends)
    }

    /// Names from their parts, if each is a valid piece of the text and nothing is left over.
    pub(crate) fn from_parts(text: String, ends: Vec<u32>) -> Option<Self> {
        let fits = ends.is_sorted()
            && ends.iter().all(|end| text.is_char_boundary(*end as usize))
            && ends.last().map_or(0, |end| *end as usize) == text.len();
        fits.then_some(Self { text, ends })
    }

    /// These names by code point (as Python sorts), each once, in no more memory than they need.
    pub fn sorted(&self) -> Self {
        let mut order: Vec<usize> = (0..self.len()).collect();
        order.sort_unstable_by(|&a, &b| self.get(a).cmp(self.get(b)));
        let mut sorted =
            Self { text: String::with_capacity(self.text.len()), ends: Vec::with_capacity(self.ends.len()) };
        for index in order {
            let name = self.get(index);
            if sorted.is_empty() || sorted.get(sorted.len() - 1) != name {
                sorted.text.push_str(name);
                // The text is no longer than that of `self`, which fits.
                sorted.ends.push(u32::try_from(sorted.text.len()).unwrap_or(u32::MAX));
            }
        }
        sorted
    }
}

/// The wanted files of one folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// Which of the roots it was found under.
    pub root: u32,
    /// Path of the folder.
    pub path: String,
    /// Sorted names of its files.
    pub files: Names,
}

/// A folder and those it was reached through, by identity.
#[derive(Clone, Debug, Default)]
pub(super) struct Ancestors(Option<Arc<(u64, u64, Ancestors)>>);

impl Ancestors {
    /// The chain with the folder `path` added, unless it is in it already.
    pub(super) fn enter(&self, store: &dyn Store, path: &str) -> Result<Self> {
        let Some((device, inode)) = store.stat(if path.is_empty() { "." } else { path })?.identity else {
            return Ok(self.clone());
        };
        let mut above = &self.0;
        while let Some(folder) = above {
            if (folder.0, folder.1) == (device, inode) {
                return Err(Error::new(
                    ErrorKind::Io,
                    format!("cannot list {path}: it is a symbolic link to a folder that contains it"),
                )
                .with_hint("remove the link, or name the folders to read one by one"));
            }
            above = &folder.2.0;
        }
        Ok(Self(Some(Arc::new((device, inode, self.clone())))))
    }
}

/// Lists all folders below `roots`, each with the files that `keep` wants, ordered by root and then by path as
/// `sorted(os.walk(root, followlinks=True))` orders them. Folders without wanted files are left out.
///
/// # Errors
/// What cannot be listed, a loop of links, and wanted files or folders whose name is not UTF-8.
pub fn walk(
    store: &dyn Store,
    roots: &[String],
    keep: &(dyn Fn(&[u8]) -> bool + Sync),
) -> Result<Vec<Listing>> {
    let mut level: Vec<(u32, String, Ancestors)> = Vec::with_capacity(roots.len());
    for (index, root) in roots.iter().enumerate() {
        let index = u32::try_from(index)
            .map_err(|_| Error::limit("folder", index as u64, u64::from(u32::MAX), "classes"))?;
        level.push((index, root.clone(), Ancestors::default()));
    }
    let mut listings = Vec::new();
    while !level.is_empty() {
        let found = parallel(&level, |(root, path, above)| {
            let chain = above.enter(store, path)?;
            let (files, folders) = list_folder(store, path, keep)?;
            let below: Vec<_> = folders.iter().map(|name| (*root, join(path, name), chain.clone())).collect();
            Ok((Listing { root: *root, path: path.clone(), files: files.sorted() }, below))
        })?;
        level = Vec::new();
        for (listing, below) in found {
            level.extend(below);
            if !listing.files.is_empty() {
                listings.push(listing);
            }
        }
    }
    listings.sort_unstable_by(|a, b| (a.root, &a.path).cmp(&(b.root, &b.path)));
    Ok(listings)
}

/// Names of the wanted files and of all folders in `path`, unsorted.
pub(super) fn list_folder(
    store: &dyn Store,
    path: &str,
    keep: &(dyn Fn(&[u8]) -> bool + Sync),
) -> Result<(Names, Names)> {
    let (mut files, mut folders) = (Names::default(), Names::default());
    store.list(path, &mut |entry| {
        if entry.kind == EntryKind::File && !keep(entry.name) {
            return Ok(());
        }
        let name = std::str::from_utf8(entry.name).map_err(|_| {
            Error::new(
                ErrorKind::Unsupported,
                format!(
                    "folder {path} contains a name that is not UTF-8: {}",
                    String::from_utf8_lossy(entry.name)
                ),
            )
            .with_hint("rename it, for example with convmv")
        })?;
        match entry.kind {
            EntryKind::File => files.push(name),
            EntryKind::Folder => folders.push(name),
        }
    })?;
    Ok((files, folders))
}

/// Names of the folders in `path`, sorted.
pub fn folders(store: &dyn Store, path: &str) -> Result<Vec<String>> {
    let (_, folders) = list_folder(store, path, &|_| false)?;
    Ok(folders.sorted().iter().map(str::to_owned).collect())
}

/// `run` of each item, on several threads, in order of the items.
///
/// # Errors
/// That of the first item that failed; it ends the work.
pub fn parallel<T: Sync, R: Send>(items: &[T], run: impl Fn(&T) -> Result<R> + Sync) -> Result<Vec<R>> {
    by_threads(THREADS, items, run)
}

/// As [`parallel`], where `run` reads from `store`.
///
/// # Errors
/// As [`parallel`].
pub fn parallel_at<T: Sync, R: Send>(
    store: &dyn Store,
    items: &[T],
    run: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    by_threads(if store.remote().is_some() { FAR_THREADS } else { THREADS }, items, run)
}

fn by_threads<T: Sync, R: Send>(
    most: usize,
    items: &[T],
    run: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let threads = most.min(items.len());
    if threads <= 1 {
        return items.iter().map(run).collect();
    }
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let done: Mutex<Vec<(usize, Result<R>)>> = Mutex::new(Vec::with_capacity(items.len()));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !failed.load(Ordering::Relaxed) {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(index) else { break };
                    let result = run(item);
                    failed.fetch_or(result.is_err(), Ordering::Relaxed);
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((index, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_unstable_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{store::LocalStore, testing::TempFolder};

    #[test]
    fn names_are_sorted_by_code_point_and_unique() {
        let mut names = Names::default();
        for name in ["b", "é", "a10", "a2", "", "b", "Z", "日本"] {
            names.push(name).unwrap();
        }
        let sorted = names.sorted();
        assert_eq!(sorted.iter().collect::<Vec<_>>(), ["", "Z", "a10", "a2", "b", "é", "日本"]);
        assert_eq!(sorted.get(99), "");
    }

    #[test]
    fn folders_come_in_the_order_of_os_walk() {
        let folder = TempFolder::new();
        for name in
            ["r/b/2.jpg", "r/a-b/1.jpg", "r/a/x.jpg", "r/a/c/y.jpg", "r/z.jpg", "r/b/1.txt", "r/e/n.txt"]
        {
            folder.write(name, b"");
        }
        let root = folder.join("r");
        let keep = |name: &[u8]| name.ends_with(b".jpg");
        let found = walk(&LocalStore::new(), std::slice::from_ref(&root), &keep).unwrap();
        let paths: Vec<_> = found.iter().map(|l| l.path.strip_prefix(&root).unwrap().to_owned()).collect();
        // '-' sorts before '/', as in sorted(os.walk(...)).
        assert_eq!(paths, ["", "/a", "/a-b", "/a/c", "/b"]);
        assert_eq!(found[4].files.iter().collect::<Vec<_>>(), ["2.jpg"]);
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed_and_their_loops_end() {
        let folder = TempFolder::new();
        folder.write("there/1.jpg", b"");
        folder.write("root/a/2.jpg", b"");
        let root = folder.join("root");
        std::os::unix::fs::symlink(folder.join("there"), folder.join("root/b")).unwrap();
        std::os::unix::fs::symlink("nowhere", folder.join("root/a/broken.jpg")).unwrap();
        let store = LocalStore::new();
        let found = walk(&store, std::slice::from_ref(&root), &|_| true).unwrap();
        assert_eq!(found.iter().map(|l| l.files.len()).collect::<Vec<_>>(), [2, 1]);
        std::os::unix::fs::symlink("..", folder.join("root/a/up")).unwrap();
        let e = walk(&store, std::slice::from_ref(&root), &|_| true).unwrap_err();
        assert!(e.message().contains("root/a/up"), "{e}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn names_that_are_not_utf8_name_their_folder() {
        use std::os::unix::ffi::OsStrExt;
        let folder = TempFolder::new();
        folder.write("root/a/1.jpg", b"");
        let bad = std::path::Path::new(&folder.join("root/a")).join(std::ffi::OsStr::from_bytes(b"\xff.jpg"));
        std::fs::write(bad, b"").unwrap();
        let root = folder.join("root");
        let store = LocalStore::new();
        let e = walk(&store, std::slice::from_ref(&root), &|_| true).unwrap_err();
        assert!(e.message().contains("root/a ") && e.message().contains("UTF-8"), "{e}");
        let wanted = |name: &[u8]| name == b"1.jpg";
        assert_eq!(walk(&store, &[root], &wanted).unwrap().len(), 1, "unwanted files may have any name");
    }

    #[test]
    fn parallel_keeps_order_and_gives_the_first_error() {
        let items: Vec<u64> = (0..1000).collect();
        assert_eq!(parallel(&items, |i| Ok(i * 2)).unwrap()[999], 1998);
        let e = parallel(&items, |&i| if i == 17 { Err(Error::config("17")) } else { Ok(()) }).unwrap_err();
        assert_eq!(e.message(), "17");
    }
}
