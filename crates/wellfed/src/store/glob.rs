//! Patterns of paths, with the meaning of Python's `glob.glob(pattern, recursive=True)`.
//!
//! `*` and `?` stay within one name, `[a-z]` and `[!a-z]` match one character, and `**` as a whole name matches any
//! number of folders. Names that start with a dot are matched only by patterns that do. Found paths are sorted.

use std::collections::{BTreeMap, HashSet};

use super::{
    EntryKind, Store, join,
    listing::{Ancestors, Listing, Names, list_folder, parallel},
};
use crate::{Error, ErrorKind, Result};

/// True if `path` has a character that makes it a pattern.
pub fn has_magic(path: &str) -> bool {
    path.contains(['*', '?', '['])
}

/// True if `name` matches the one-name `pattern`.
pub fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    if name.first() == Some(&'.') && pattern.first() != Some(&'.') {
        return false;
    }
    // One star to go back to is enough: an earlier one could only match more of what this one can match.
    let (mut p, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        let step = match pattern.get(p) {
            Some('*') => {
                star = Some((p + 1, n));
                p += 1;
                continue;
            }
            Some('?') => Some(p + 1),
            Some('[') => match class(&pattern[p..], name[n]) {
                Some((true, length)) => Some(p + length),
                Some((false, _)) => None,
                None => (name[n] == '[').then_some(p + 1),
            },
            Some(c) => (*c == name[n]).then_some(p + 1),
            None => None,
        };
        match (step, star) {
            (Some(next), _) => (p, n) = (next, n + 1),
            (None, Some((after, from))) => {
                star = Some((after, from + 1));
                (p, n) = (after, from + 1);
            }
            (None, None) => return false,
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

/// Whether the bracket expression at the start of `pattern` matches `c`, and its length. `None` if the bracket is
/// never closed, so that it stands for itself.
fn class(pattern: &[char], c: char) -> Option<(bool, usize)> {
    let negated = pattern.get(1) == Some(&'!');
    let start = if negated { 2 } else { 1 };
    // A closing bracket in first place stands for itself.
    let end = start + 1 + pattern.get(start + 1..)?.iter().position(|c| *c == ']')?;
    let (mut i, mut found) = (start, false);
    while i < end {
        if i + 2 < end && pattern[i + 1] == '-' {
            found |= (pattern[i]..=pattern[i + 2]).contains(&c);
            i += 3;
        } else {
            found |= pattern[i] == c;
            i += 1;
        }
    }
    Some((found != negated, end + 1))
}

/// A folder to look into, how many names of the pattern have led there, and the folders above it.
type Place = (String, usize, Ancestors);

/// The files that match `pattern`, by folder, sorted by path. None is no error.
///
/// # Errors
/// What cannot be listed; a loop of links; wanted names that are not UTF-8.
pub fn files(store: &dyn Store, pattern: &str) -> Result<Vec<Listing>> {
    // Of a URL, scheme and host or bucket are no names of folders.
    let archive = super::zip::split(pattern).filter(|(_, inside)| !inside.is_empty());
    let root = match pattern.split_once("://") {
        // Of an archive neither are those that lead to it.
        _ if archive.is_some() => archive.map_or("", |(_, inside)| &pattern[..pattern.len() - inside.len()]),
        Some((scheme, rest)) if !scheme.contains('/') => {
            &pattern[..scheme.len() + 3 + rest.find('/').map_or(rest.len(), |at| at + 1)]
        }
        _ if pattern.starts_with('/') => "/",
        _ => "",
    };
    let names = pattern[root.len()..].split('/').filter(|name| !name.is_empty() && *name != ".");
    let names: Vec<&str> = names.collect();
    if names.is_empty() {
        return Err(Error::config(format!("the pattern {pattern:?} names nothing")));
    }
    let mut level: Vec<Place> = vec![(root.to_owned(), 0, Ancestors::default())];
    let mut seen: HashSet<(String, usize)> = HashSet::new();
    let mut found: BTreeMap<String, Names> = BTreeMap::new();
    while !level.is_empty() {
        let results = parallel(&level, |(path, at, above)| step(store, &names, path, *at, above))?;
        let mut below = Vec::new();
        for ((path, ..), (files, places)) in level.iter().zip(results) {
            if !files.is_empty() {
                let names = found.entry(path.clone()).or_default();
                files.iter().try_for_each(|name| names.push(name))?;
            }
            // Several `**` lead to the same folder in several ways.
            below.extend(places.into_iter().filter(|(path, at, _)| seen.insert((path.clone(), *at))));
        }
        level = below;
    }
    Ok(found.into_iter().map(|(path, files)| Listing { root: 0, path, files: files.sorted() }).collect())
}

/// Matches name `at` of the pattern in the folder `path`: the files that end it, and where to go on.
fn step(
    store: &dyn Store,
    names: &[&str],
    path: &str,
    at: usize,
    above: &Ancestors,
) -> Result<(Names, Vec<Place>)> {
    let (name, last) = (names[at], at + 1 == names.len());
    let (mut files, mut below) = (Names::default(), Vec::new());
    if name == "**" {
        if !store.is_folder(if path.is_empty() { "." } else { path }) {
            return Ok((files, below));
        }
        let chain = above.enter(store, path)?;
        let (all, folders) = list_folder(store, path, &|name| last && !name.starts_with(b"."))?;
        files = all;
        below.extend(
            folders.iter().filter(|n| !n.starts_with('.')).map(|n| (join(path, n), at, chain.clone())),
        );
        if !last {
            below.push((path.to_owned(), at + 1, above.clone()));
        }
    } else if has_magic(name) {
        let keep = |entry: &[u8]| last && std::str::from_utf8(entry).map_or(true, |n| matches(name, n));
        let (all, folders) = list_folder(store, path, &keep)?;
        files = all;
        if !last {
            let wanted = folders.iter().filter(|n| matches(name, n));
            below.extend(wanted.map(|n| (join(path, n), at + 1, above.clone())));
        }
    } else if last {
        match store.stat(&join(path, name)) {
            Ok(stat) if stat.kind == EntryKind::File => files.push(name)?,
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
    } else {
        let next = join(path, name);
        if store.is_folder(&next) {
            below.push((next, at + 1, above.clone()));
        }
    }
    Ok((files, below))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{store::LocalStore, testing::TempFolder};

    #[test]
    fn patterns_of_one_name() {
        for (pattern, name, expected) in [
            ("*.jpg", "a.jpg", true),
            ("*.jpg", ".jpg", false),
            (".*", ".jpg", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*a*b*c", "xxaxxbxxc", true),
            ("*a*b*c", "xxaxxcxxb", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]x]", "]", true),
            ("[ab", "[ab", true),
            ("[!]", "[!]", true),
            ("é*", "étage", true),
            ("", "", true),
            ("*", "", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        let (pattern, name) = ("*a".repeat(50), "a".repeat(49));
        assert!(!matches(&pattern, &name));
    }

    #[test]
    fn stars_stay_in_one_folder_and_double_stars_do_not() {
        let folder = TempFolder::new();
        for name in ["r/1.jpg", "r/a/2.jpg", "r/a/b/3.jpg", "r/.h/4.jpg", "r/a/n.txt", "r/b/.5.jpg"] {
            folder.write(name, b"");
        }
        let found = |pattern: &str| -> Vec<String> {
            let listings = files(&LocalStore::new(), &folder.join(pattern)).unwrap();
            let root = folder.join("r");
            let full = listings.iter().flat_map(|l| l.files.iter().map(|n| join(&l.path, n)));
            full.map(|p| p.strip_prefix(&root).unwrap().to_owned()).collect()
        };
        assert_eq!(found("r/*.jpg"), ["/1.jpg"]);
        assert_eq!(found("r/*/*.jpg"), ["/a/2.jpg"]);
        assert_eq!(found("r/**/*.jpg"), ["/1.jpg", "/a/2.jpg", "/a/b/3.jpg"]);
        assert_eq!(found("r/**/**/*.jpg"), ["/1.jpg", "/a/2.jpg", "/a/b/3.jpg"]);
        assert_eq!(found("r/**"), ["/1.jpg", "/a/2.jpg", "/a/n.txt", "/a/b/3.jpg"]);
        assert_eq!(found("r/.h/*"), ["/.h/4.jpg"]);
        assert_eq!(found("r/[a-b]/2.jpg"), ["/a/2.jpg"]);
        assert_eq!(found("r/x/*.jpg"), [""; 0]);
        assert!(files(&LocalStore::new(), "").is_err());
    }
}
