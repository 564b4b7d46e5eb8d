//! Which files a path stands for: itself, or of a folder its HDF5 files, those of one split.

use std::sync::Arc;

use wellfed::{
    Error, ErrorKind, Result,
    source::{hdf5::Hdf5Spec, shards},
    store::{EntryKind, Store, join},
};

/// What names of HDF5 files end with.
const ENDINGS: [&str; 4] = [".h5", ".hdf5", ".hdf", ".he5"];

/// The store that the files lie in, and their paths, in order.
///
/// # Errors
/// As of [`shards::find`]; [`ErrorKind::NotFound`] for folders without such files.
pub(crate) fn find(local: &Arc<dyn Store>, spec: &Hdf5Spec) -> Result<(Arc<dyn Store>, Vec<String>)> {
    let (store, paths) = shards::find(local, &spec.urls)?;
    let mut files = Vec::new();
    for path in paths {
        if store.is_folder(&path) {
            files.extend(folder(&*store, &path, spec.split.as_deref())?);
        } else {
            files.push(path);
        }
    }
    Ok((store, files))
}

fn folder(store: &dyn Store, path: &str, split: Option<&str>) -> Result<Vec<String>> {
    let mut names = Vec::new();
    let mut inner = false;
    store.list(path, &mut |entry| {
        let name = String::from_utf8_lossy(entry.name).into_owned();
        if entry.kind == EntryKind::Folder {
            inner |= Some(name.as_str()) == split;
        } else if !name.starts_with('.') && ENDINGS.iter().any(|ending| name.ends_with(ending)) {
            names.push(name);
        }
        Ok(())
    })?;
    if let Some(split) = split.filter(|_| inner) {
        return folder(store, &join(path, split), None);
    }
    if let Some(split) = split {
        names.retain(|name| name.strip_prefix(split).is_some_and(|rest| rest.starts_with(['-', '.', '_'])));
    }
    if names.is_empty() {
        let of = split.map_or_else(String::new, |split| format!(" of split {split}"));
        let endings = ENDINGS.join(", ");
        return Err(Error::new(ErrorKind::NotFound, format!("{path} holds no HDF5 files{of} ({endings})"))
            .with_hint("a split that is a group in the files is named with group=; a pattern finds files that lie deeper"));
    }
    names.sort_unstable();
    Ok(names.into_iter().map(|name| join(path, &name)).collect())
}
