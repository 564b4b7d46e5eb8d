//! What a store remembers of its objects: which they were when they were listed or first read, and which paths are folders.
//!
//! An object takes about 60 bytes, since tags are nearly always 16 bytes in hexadecimal digits.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// An entity tag, without its quotes; a weak one begins with `W/`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Tag {
    /// 32 hexadecimal digits.
    Digest([u8; 16]),
    /// The same of an object that was written in so many parts.
    Parts([u8; 16], u32),
    Other(Box<str>),
}

impl Tag {
    fn of(text: &str) -> Self {
        let digest = |text: &str| {
            let lower = text.len() == 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
            lower.then(|| u128::from_str_radix(text, 16).ok()).flatten().map(u128::to_be_bytes)
        };
        if let Some(digest) = digest(text) {
            return Self::Digest(digest);
        }
        let parts = text.split_once('-').and_then(|(text, parts)| {
            let number = parts.parse().ok().filter(|number: &u32| number.to_string() == parts);
            Some((digest(text)?, number?))
        });
        parts.map_or_else(|| Self::Other(text.into()), |(digest, parts)| Self::Parts(digest, parts))
    }

    fn text(&self) -> String {
        let hex = |digest: &[u8; 16]| format!("{:032x}", u128::from_be_bytes(*digest));
        match self {
            Self::Digest(digest) => hex(digest),
            Self::Parts(digest, parts) => format!("{}-{parts}", hex(digest)),
            Self::Other(text) => text.to_string(),
        }
    }
}

/// A tag as servers write it, without its quotes.
fn bare(tag: &str) -> Cow<'_, str> {
    let tag = tag.trim();
    match tag.strip_prefix("W/") {
        Some(weak) => format!("W/{}", weak.trim_matches('"')).into(),
        None => tag.trim_matches('"').into(),
    }
}

/// What an answer is to what was seen before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Match {
    Same,
    /// Another object.
    Other,
    /// The same object, which has so many bytes, and not as many as the answer says.
    Length(u64),
}

#[derive(Debug)]
pub(crate) struct Seen {
    state: Mutex<State>,
    /// Whose threads may hold the lock: in a forked child nobody gives it back.
    process: u32,
}

#[derive(Debug, Default)]
struct State {
    /// By the hash of the path. Two paths of one hash are so unlikely that the error which comes of it does not matter.
    objects: HashMap<u64, (Tag, Option<u64>)>,
    folders: HashSet<u64>,
}

impl Default for Seen {
    fn default() -> Self {
        Self { state: Mutex::default(), process: std::process::id() }
    }
}

fn hash(path: &str) -> u64 {
    rapidhash::v3::rapidhash_v3(path.as_bytes())
}

impl Seen {
    fn lock(&self) -> Option<MutexGuard<'_, State>> {
        if self.process == std::process::id() {
            return Some(self.state.lock().unwrap_or_else(PoisonError::into_inner));
        }
        // The lock may have been held when this process was forked: then it stays so, and nothing is remembered.
        (0..1000).find_map(|_| {
            let guard = self.state.try_lock().ok();
            if guard.is_none() {
                std::thread::yield_now();
            }
            guard
        })
    }

    /// Remembers a listing: folders, and objects with their tags and sizes, in place of what was known of them.
    pub(crate) fn listed<'a>(
        &self,
        folders: impl Iterator<Item = &'a str>,
        objects: impl Iterator<Item = (&'a str, Option<&'a str>, u64)>,
    ) {
        let Some(mut state) = self.lock() else { return };
        state.folders.extend(folders.map(hash));
        for (path, tag, size) in objects {
            match tag {
                Some(tag) => drop(state.objects.insert(hash(path), (Tag::of(&bare(tag)), Some(size)))),
                None => drop(state.objects.remove(&hash(path))),
            }
        }
    }

    /// Whether `path` was listed as a folder.
    pub(crate) fn is_folder(&self, path: &str) -> bool {
        self.lock().is_some_and(|state| state.folders.contains(&hash(path)))
    }

    /// The tag that the next answer for `path` must have, to be sent with the request. Weak ones never match there.
    pub(crate) fn expected(&self, path: &str) -> Option<String> {
        let tag = self.lock()?.objects.get(&hash(path))?.0.text();
        (!tag.starts_with("W/")).then(|| format!("\"{tag}\""))
    }

    /// What tells which version of `path` all answers are of, if that is known. Weak tags do not: bytes may differ under them.
    pub(crate) fn version(&self, path: &str) -> Option<Vec<u8>> {
        let state = self.lock()?;
        let (tag, size) = state.objects.get(&hash(path))?;
        let tag = tag.text();
        // Without a size, an answer to a range did not say of how many bytes.
        let size = (*size)?;
        (!tag.starts_with("W/")).then(|| [&size.to_le_bytes(), tag.as_bytes()].concat())
    }

    /// What an answer with `tag` is to what was seen of `path`, which has `size` bytes by its own account. What has not been
    /// seen is remembered.
    pub(crate) fn compare(&self, path: &str, tag: Option<&str>, size: Option<u64>) -> Match {
        let (Some(tag), Some(mut state)) = (tag, self.lock()) else { return Match::Same };
        let tag = Tag::of(&bare(tag));
        match state.objects.get(&hash(path)) {
            Some((known, _)) if *known != tag => Match::Other,
            Some((_, Some(known))) if size.is_some_and(|size| size != *known) => Match::Length(*known),
            Some((_, Some(_))) => Match::Same,
            _ => {
                state.objects.insert(hash(path), (tag, size));
                Match::Same
            }
        }
    }

    /// Remembers that `path` was written.
    pub(crate) fn written(&self, path: &str, tag: Option<&str>, size: u64) {
        self.listed(std::iter::empty(), [(path, tag, size)].into_iter());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_come_back_as_they_were() {
        for tag in [
            "d41d8cd98f00b204e9800998ecf8427e",
            "d41d8cd98f00b204e9800998ecf8427e-12",
            "d41d8cd98f00b204e9800998ecf8427e-012",
            "D41D8CD98F00B204E9800998ECF8427E",
            "0x8DABCDEF",
            "5f-62a",
            "",
        ] {
            assert_eq!(Tag::of(tag).text(), tag);
        }
        assert!(size_of::<Tag>() <= 24);
    }

    #[test]
    fn another_tag_is_another_object() {
        let seen = Seen::default();
        let compare = |path, tag| seen.compare(path, Some(tag), Some(5));
        assert_eq!(seen.expected("a"), None);
        assert_eq!((compare("a", "\"1\""), compare("w", "W/\"1\"")), (Match::Same, Match::Same));
        assert_eq!((compare("w", "W/\"1\""), seen.expected("w")), (Match::Same, None));
        assert_eq!((compare("a", "\"2\""), compare("a", "\"1\"")), (Match::Other, Match::Same));
        assert_eq!(seen.expected("a").as_deref(), Some("\"1\""));
        assert_eq!(seen.compare("a", None, Some(6)), Match::Same, "a server without tags says nothing");
        assert_eq!(seen.compare("a", Some("\"1\""), Some(6)), Match::Length(5));
        assert_eq!(seen.compare("a", Some("\"1\""), None), Match::Same);
        assert_eq!((seen.version("w"), seen.version("c")), (None, None), "weak, and not seen");
        let (before, tagged) = (seen.version("a"), |tag: &str, size| {
            seen.listed(std::iter::empty(), [("d", Some(tag), size)].into_iter());
            seen.version("d")
        });
        assert_eq!(before, tagged("1", 5));
        assert!(before != tagged("1", 6) && before != tagged("2", 5));
        seen.listed(["f"].into_iter(), [("a", Some("2"), 7), ("b", None, 0)].into_iter());
        assert_eq!(seen.compare("a", Some("\"2\""), Some(7)), Match::Same);
        assert!(seen.is_folder("f") && !seen.is_folder("a"));
    }
}
