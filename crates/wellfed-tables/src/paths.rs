//! Which files a path stands for: itself, or of a folder those of one split, in the layouts that Hugging Face writes and reads.

use std::{collections::BTreeSet, sync::Arc};

use wellfed::{
    Error, ErrorKind, Result,
    source::{TableFormat, TableSpec, shards},
    store::{EntryKind, Store, join},
};

/// Bytes of the descriptions that `save_to_disk` writes, at most.
const MAX_DESCRIPTION: u64 = 64 << 20;

/// The store that the files lie in, and their paths, in order.
///
/// # Errors
/// As of [`shards::find`]; [`ErrorKind::NotFound`] for folders without such files; [`ErrorKind::Config`] for several splits.
pub(crate) fn find(local: &Arc<dyn Store>, spec: &TableSpec) -> Result<(Arc<dyn Store>, Vec<String>)> {
    let (store, paths) = shards::find(local, &spec.urls)?;
    let mut files = Vec::new();
    for path in paths {
        if store.is_folder(&path) {
            files.extend(folder(&*store, &path, spec.format, spec.split.as_deref())?);
        } else {
            files.push(path);
        }
    }
    Ok((store, files))
}

fn folder(store: &dyn Store, path: &str, format: TableFormat, split: Option<&str>) -> Result<Vec<String>> {
    let names = Names::of(store, path)?;
    if format == TableFormat::Arrow {
        if names.files.contains("dataset_dict.json") {
            let splits = strings(&description(store, &join(path, "dataset_dict.json"))?, "splits");
            let splits: Vec<&str> = splits.iter().map(String::as_str).collect();
            return match split.or(if let [one] = splits[..] { Some(one) } else { None }) {
                Some(split) if splits.contains(&split) => saved(store, &join(path, split)),
                _ => Err(several(path, &splits, split)),
            };
        }
        if names.files.contains("state.json") {
            return saved(store, path);
        }
    }
    let endings: &[&str] = match format {
        TableFormat::Parquet => &[".parquet"],
        TableFormat::Arrow => &[".arrow", ".feather"],
        TableFormat::Csv => &[".csv", ".csv.gz", ".csv.zst"],
    };
    // Data sets of Hugging Face have their files in `data`, or in a folder for each split.
    let data = join(path, "data");
    let mut folders = vec![(path.to_owned(), names)];
    if folders[0].1.folders.contains("data") {
        let names = Names::of(store, &data)?;
        folders.push((data, names));
    }
    for (path, names) in folders {
        let files: Vec<&String> =
            names.files.iter().filter(|name| endings.iter().any(|ending| name.ends_with(ending))).collect();
        let splits: BTreeSet<&str> = files.iter().filter_map(|name| split_of(name)).collect();
        let wanted: Vec<String> = match split {
            None if splits.len() > 1 => {
                return Err(several(&path, &splits.into_iter().collect::<Vec<_>>(), None));
            }
            None => files.iter().map(|name| join(&path, name)).collect(),
            Some(split) if names.folders.contains(split) => {
                let inner = join(&path, split);
                return folder(store, &inner, format, None);
            }
            Some(split) => {
                let of = |name: &&&String| {
                    name.strip_prefix(split).is_some_and(|rest| rest.starts_with(['-', '.', '_']))
                };
                files.iter().filter(of).map(|name| join(&path, name)).collect()
            }
        };
        if !wanted.is_empty() {
            return Ok(wanted);
        }
    }
    let of = split.map_or_else(String::new, |split| format!(" of split {split}"));
    Err(Error::new(ErrorKind::NotFound, format!("{path} holds no files {}{of}", endings.join(" or ")))
        .with_hint("give a pattern, such as folder/**/*.parquet, for files that lie deeper"))
}

/// `train` of `train-00000-of-00002.parquet`.
fn split_of(name: &str) -> Option<&str> {
    let (before, _) = name.split_once("-of-")?;
    let (split, number) = before.rsplit_once('-')?;
    (!number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())).then_some(split)
}

fn several(path: &str, splits: &[&str], wanted: Option<&str>) -> Error {
    let splits = splits.join(", ");
    match wanted {
        Some(wanted) => {
            Error::new(ErrorKind::NotFound, format!("{path} has no split {wanted}: it has {splits}"))
        }
        None => {
            Error::config(format!("{path} has several splits: {splits}")).with_hint("name one with split=...")
        }
    }
}

/// The files of a folder that `save_to_disk` wrote.
fn saved(store: &dyn Store, path: &str) -> Result<Vec<String>> {
    let state = description(store, &join(path, "state.json"))?;
    for key in ["_indices_files", "_indices_data_files"] {
        if state.get(key).and_then(serde_json::Value::as_array).is_some_and(|files| !files.is_empty()) {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("{path} selects rows by a list of its own"),
            )
            .with_hint("write it again after flatten_indices()"));
        }
    }
    let files = state.get("_data_files").and_then(serde_json::Value::as_array);
    let names =
        files.into_iter().flatten().map(|file| file.get("filename").and_then(serde_json::Value::as_str));
    let names: Option<Vec<String>> = names.map(|name| name.map(|name| join(path, name))).collect();
    match names {
        Some(names) if !names.is_empty() => Ok(names),
        _ => Err(Error::corrupt(format!("{path}/state.json names no files"))),
    }
}

fn description(store: &dyn Store, path: &str) -> Result<serde_json::Value> {
    let mut text = Vec::new();
    store.read(path, MAX_DESCRIPTION, &mut text)?;
    serde_json::from_slice(&text).map_err(|e| Error::corrupt(format!("{path} is not JSON: {e}")))
}

fn strings(value: &serde_json::Value, key: &str) -> Vec<String> {
    let all = value.get(key).and_then(serde_json::Value::as_array);
    all.into_iter().flatten().filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

/// What lies in a folder, hidden names left out, in order.
struct Names {
    files: BTreeSet<String>,
    folders: BTreeSet<String>,
}

impl Names {
    fn of(store: &dyn Store, path: &str) -> Result<Self> {
        let mut this = Self { files: BTreeSet::new(), folders: BTreeSet::new() };
        store.list(path, &mut |entry| {
            // As Spark and pyarrow do: what begins so is no data.
            if entry.name.starts_with(b".") || entry.name.starts_with(b"_") {
                return Ok(());
            }
            let name = String::from_utf8_lossy(entry.name).into_owned();
            let names = if entry.kind == EntryKind::Folder { &mut this.folders } else { &mut this.files };
            names.insert(name);
            Ok(())
        })?;
        Ok(this)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_hugging_face_say_their_split() {
        assert_eq!(split_of("train-00000-of-00002.parquet"), Some("train"));
        assert_eq!(split_of("my-test-00000-of-00002-abc.parquet"), Some("my-test"));
        assert_eq!(split_of("part-00000-abc.snappy.parquet"), None);
        assert_eq!(split_of("one-of-many.parquet"), None);
    }
}
