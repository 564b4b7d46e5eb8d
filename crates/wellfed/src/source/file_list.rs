//! Paths that somebody else has listed, where they lie, and what they are called: what sources of listed files have in common.
//!
//! Paths lie in one text, which the caller keeps; a million of them take 8 MB beside it. Nothing is looked at before a
//! file is read.

use std::sync::Arc;

use super::{ArrayData, Fingerprint, location, stamp};
use crate::{
    Error, Result,
    store::{RetryingStore, Store, registry, secrets},
};

/// The files.
#[derive(Debug)]
pub(super) struct FileList {
    store: Arc<dyn Store>,
    /// Paths, each but the last followed by a zero byte.
    text: ArrayData,
    /// Where each path ends in the text.
    ends: Vec<u64>,
    /// Samples whose path occurred before, so that keys stay unique.
    again: Vec<u64>,
    /// Length of the folder that all files have in common, up to and with its `/`.
    common: usize,
}

impl FileList {
    /// The `count` files of `text` (uint8: paths in UTF-8, with a zero byte between each two) in `store`, or in the one store that
    /// all of them name by URL, whose options are on the URL `storage`.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] for another number of paths, or one that is empty or no UTF-8; what
    /// [`registry::locate_listed`] says.
    pub(super) fn open(
        store: &Arc<dyn Store>,
        storage: Option<&str>,
        text: ArrayData,
        count: u64,
    ) -> Result<Self> {
        let bytes = text.bytes();
        std::str::from_utf8(bytes).map_err(|e| {
            let index = bytes[..e.valid_up_to()].iter().filter(|byte| **byte == 0).count();
            Error::config(format!("path {index} is not UTF-8"))
                .with_hint("rename it, for example with convmv")
        })?;
        let paths = || bytes.split(|byte| *byte == 0).take(if count == 0 { 0 } else { usize::MAX });
        let mut ends = Vec::with_capacity(usize::try_from(count).unwrap_or(0).min(bytes.len() + 1));
        let mut end = 0;
        for path in paths() {
            if path.is_empty() {
                return Err(Error::config(format!("path {} is empty", ends.len())));
            }
            end += path.len() as u64;
            ends.push(end);
            end += 1;
        }
        if ends.len() as u64 != count || (count == 0 && !bytes.is_empty()) {
            let found = ends.len();
            return Err(Error::config(format!("{found} paths were given for {count} samples"))
                .with_hint("a path cannot contain a zero byte"));
        }
        let again = repeated(paths());
        let common = common_folder(paths());
        let listed = paths().map(|path| std::str::from_utf8(path).unwrap_or_default());
        let store = registry::locate_listed(listed, storage, store)?;
        Ok(Self { store: RetryingStore::around(store), text, ends, again, common })
    }

    /// Where they lie.
    pub(super) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Path of file `index`, as given.
    pub(super) fn path(&self, index: u64) -> Option<&str> {
        let index = usize::try_from(index).ok()?;
        let end = *self.ends.get(index)?;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before] + 1);
        // Both lie in the text, which was UTF-8 when it was opened.
        std::str::from_utf8(self.text.bytes().get(start as usize..end as usize)?).ok()
    }

    /// [`super::Source::key`] of it.
    pub(super) fn key(&self, index: u64) -> String {
        // Keys are shown and kept.
        let path = secrets::masked(self.path(index).unwrap_or_default());
        if self.again.binary_search(&index).is_ok() { format!("{path}#{index}") } else { path }
    }

    /// [`super::Source::own_name`] of it.
    pub(super) fn own_name(&self, index: u64) -> String {
        secrets::masked(self.path(index).unwrap_or_default()).to_string()
    }

    /// The folder that all files lie in, with its `/`; empty if there is none.
    pub(super) fn folder(&self) -> &str {
        self.path(0).and_then(|path| path.get(..self.common)).unwrap_or_default()
    }

    /// Adds names, not where they lie.
    pub(super) fn identify(&self, hash: &mut Fingerprint) {
        let far = self.path(0).is_some_and(|path| path.contains("://"));
        for path in self.text.bytes().split(|byte| *byte == 0) {
            let path = path.get(self.common..).unwrap_or_default();
            if far {
                // The part that is common says that it is a URL, and of which kind.
                let name = secrets::identity(&format!("{}{}", self.folder(), String::from_utf8_lossy(path)));
                hash.add(name.get(self.common..).unwrap_or_default().as_bytes());
            } else {
                hash.add(path);
            }
        }
    }

    /// [`super::Source::stamp`] of it, with what else its sample is made of.
    pub(super) fn stamp(&self, index: u64, with: &str) -> Option<u64> {
        let path = self.path(index)?;
        Some(stamp(&format!("{}\0{with}", location(path)), &self.store.stat(path).ok()?))
    }
}

/// Indices, in order, of paths that occurred before.
fn repeated<'a>(paths: impl Iterator<Item = &'a [u8]>) -> Vec<u64> {
    // Two paths of one hash are so unlikely that a needless mark on a key does not matter.
    let mut hashes: Vec<(u64, u64)> = paths.map(rapidhash::v3::rapidhash_v3).zip(0..).collect();
    hashes.sort_unstable();
    let mut again: Vec<u64> =
        hashes.windows(2).filter(|pair| pair[0].0 == pair[1].0).map(|pair| pair[1].1).collect();
    again.sort_unstable();
    again
}

/// Length of the longest folder, with its `/`, that all paths begin with.
fn common_folder<'a>(mut paths: impl Iterator<Item = &'a [u8]>) -> usize {
    let Some(first) = paths.next() else { return 0 };
    let folder = |path: &[u8]| path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    paths.fold(folder(first), |common, path| {
        let same = first[..common].iter().zip(path).take_while(|(a, b)| a == b).count();
        if same == common { common } else { folder(&first[..same]) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_common_folder_ends_with_a_separator() {
        let common = |paths: &[&str]| common_folder(paths.iter().map(|path| path.as_bytes()));
        assert_eq!(common(&["d/train/a/1", "d/train/b/1"]), "d/train/".len());
        assert_eq!(common(&["d/train/ab", "d/train/abc"]), "d/train/".len());
        assert_eq!(common(&["d/ab/1", "d/a/1", "d/ab/1"]), "d/".len());
        assert_eq!(common(&["a", "b"]), 0);
        assert_eq!(common(&["/a/1", "/b/1"]), 1);
        assert_eq!(common(&[]), 0);
    }
}
