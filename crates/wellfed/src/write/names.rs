//! Names: of the shards and what lies beside them ([`Place`]), and of samples in them ([`Keys`]).

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

use super::Format;
use crate::{Error, Result, source::IMG_EXTENSIONS};

/// Digits of a shard's number, where nothing else is said.
const DIGITS: usize = 6;

/// Where shards are written, and what they are called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) folder: PathBuf,
    /// What stands before the number.
    prefix: String,
    digits: usize,
    /// What stands behind it, the format's ending last.
    suffix: String,
}

impl Place {
    /// Reads `out/train-{:06d}.tar` (also `{}` and `%06d`), or a folder, in which shards are called as it is; and the format: the
    /// one `wanted`, or what the name ends with, or tar.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] for a name of one shard, for one of another format, and for what does not lie in a local
    /// folder.
    pub(super) fn parse(given: &str, wanted: Option<Format>) -> Result<(Self, Format)> {
        let path = given.strip_prefix("file://").unwrap_or(given);
        if path.is_empty() || path.contains("://") {
            let shown = crate::store::secrets::shown(given);
            return Err(Error::config(format!("shards cannot be written to {shown:?}"))
                .with_hint("write them to a local or mounted folder, and copy them from there"));
        }
        let name = Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some(format) = Format::of_name(name) else {
            let format = wanted.unwrap_or_default();
            let suffix = format.ending().to_owned();
            if format == Format::Mds {
                // As Streaming calls them.
                let prefix = "shard.".to_owned();
                return Ok((Self { folder: path.into(), prefix, digits: 5, suffix }, format));
            }
            let known = name.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.'));
            let prefix = if known && !name.is_empty() && !name.starts_with('.') { name } else { "shard" };
            let prefix = format!("{prefix}-");
            return Ok((Self { folder: path.into(), prefix, digits: DIGITS, suffix }, format));
        };
        if let Some(wanted) = wanted.filter(|wanted| *wanted != format) {
            let ending = wanted.ending();
            return Err(Error::config(format!("{path} does not name shards that end with {ending}"))
                .with_hint(format!("call them ...{ending}, or give a folder")));
        }
        if format == Format::Mds {
            return Err(Error::config(format!("{path} names MDS shards, which all have one index"))
                .with_hint("give a folder of their own, and format=\"mds\""));
        }
        let folder = Path::new(path).parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.map_or_else(|| PathBuf::from("."), Path::to_owned);
        let wrong = |what: &str| {
            Err(Error::config(format!("{path} {what}"))
                .with_hint("write one number, as in train-{:06d}.tar, or give a folder"))
        };
        let Some(((start, number), end)) = number(name) else {
            return wrong("names one shard: its name has no place for a number");
        };
        let (prefix, suffix) = (&name[..start], &name[end..]);
        if number > 18
            || prefix.starts_with('.')
            || [prefix, suffix].iter().any(|p| p.contains(['{', '}', '%']))
        {
            return wrong("names no shards that can be told apart and found again");
        }
        let place = Self { folder, prefix: prefix.to_owned(), digits: number, suffix: suffix.to_owned() };
        Ok((place, format))
    }

    /// Name of shard `number`.
    pub(super) fn shard(&self, number: u64) -> String {
        format!("{}{number:0width$}{}", self.prefix, self.suffix, width = self.digits)
    }

    /// Names of the shards from 0 to `last`, with braces.
    pub(super) fn range(&self, last: u64) -> String {
        match last {
            0 => self.shard(0),
            _ => {
                let width = self.digits;
                format!("{}{{{:0width$}..{last:0width$}}}{}", self.prefix, 0, self.suffix)
            }
        }
    }

    /// True for a name that [`Place::shard`] gives.
    pub(super) fn is_shard(&self, name: &str) -> bool {
        let number = name.strip_prefix(&*self.prefix).and_then(|rest| rest.strip_suffix(&*self.suffix));
        number.and_then(|number| number.parse().ok()).is_some_and(|number| self.shard(number) == name)
    }

    /// What a file is called until it is whole.
    pub(super) fn part(name: &str) -> String {
        format!(".{name}.part")
    }

    /// The name that a [`Place::part`] is for.
    pub(super) fn whole(part: &str) -> Option<&str> {
        part.strip_prefix('.')?.strip_suffix(".part")
    }

    /// The list of all shards.
    pub(super) fn manifest(&self) -> String {
        match self.prefix.trim_end_matches(['-', '_', '.']) {
            "" => MANIFEST.to_owned(),
            stem => format!("{stem}.{MANIFEST}"),
        }
    }

    /// What is locked while shards are written.
    pub(super) fn lock(&self) -> String {
        format!(".{}.lock", self.manifest())
    }
}

/// What names of lists of shards end with.
pub(super) const MANIFEST: &str = "manifest.json";

/// The first place of a number in a name, as `((start, digits), end)`.
fn number(name: &str) -> Option<((usize, usize), usize)> {
    let width = |text: &str| if text.is_empty() { Some(1) } else { text.parse().ok().filter(|n| *n > 0) };
    let braces = name.find('{').and_then(|start| {
        let end = start + name[start..].find('}')?;
        let inner = &name[start + 1..end];
        let inner = inner.strip_prefix(':').unwrap_or(inner);
        let digits =
            if inner.is_empty() { Some(DIGITS) } else { width(inner.strip_suffix('d').unwrap_or(inner)) };
        Some(((start, digits?), end + 1))
    });
    braces.or_else(|| {
        let start = name.find('%')?;
        let end = start + name[start..].find('d')?;
        Some(((start, width(&name[start + 1..end])?), end + 1))
    })
}

/// Keys of the samples of one shard: no two are the same.
#[derive(Debug, Default)]
pub(super) struct Keys(HashSet<String>);

impl Keys {
    /// The key for a sample that is called `own`. One that is taken gets a number: `a`, `a~1`, `a~2`.
    pub(super) fn unique(&self, own: &str) -> String {
        let key = key_of(own);
        let mut free = key.clone();
        let mut number = 0;
        while self.0.contains(&free) {
            number += 1;
            free = format!("{key}~{number}");
        }
        free
    }

    /// The key belongs to a sample.
    pub(super) fn take(&mut self, key: String) {
        self.0.insert(key);
    }
}

/// A name as a key: without the extension of an image and what leads out of a folder; and with `_` for dots in the last
/// part, at the first of which a key would end, and for what readers take for something else than a sample.
fn key_of(own: &str) -> String {
    let own = own.split_once("://").map_or(own, |(_, rest)| rest);
    let lower = own.to_ascii_lowercase();
    let end = IMG_EXTENSIONS.iter().find(|extension| lower.ends_with(*extension)).map_or(0, |e| e.len());
    let own = &own[..own.len() - end];
    let parts = own.split('/').filter(|part| !matches!(*part, "" | "." | ".."));
    let mut parts: Vec<String> = parts.map(|part| part.replace(|c: char| c.is_control(), "_")).collect();
    if let Some(top) = parts.first_mut().filter(|top| top.starts_with("__") && top.ends_with("__")) {
        top.insert(0, '_');
        top.push('-');
    }
    match parts.last_mut() {
        Some(last) => *last = last.replace('.', "_"),
        None => parts.push("_".to_owned()),
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_and_folders_name_shards() {
        for (given, folder, third, manifest) in [
            ("out/train", "out/train", "train-000003.tar", "train.manifest.json"),
            ("out/train/", "out/train/", "train-000003.tar", "train.manifest.json"),
            ("file:///o/a b", "/o/a b", "shard-000003.tar", "shard.manifest.json"),
            (".", ".", "shard-000003.tar", "shard.manifest.json"),
            ("out/t-{:04d}.tar", "out", "t-0003.tar", "t.manifest.json"),
            ("out/t-{}.tar", "out", "t-000003.tar", "t.manifest.json"),
            ("{:d}.tar", ".", "3.tar", "manifest.json"),
            ("t%05d-x.tar", ".", "t00003-x.tar", "t.manifest.json"),
        ] {
            let (place, format) = Place::parse(given, None).unwrap();
            assert_eq!(format, Format::Tar);
            assert_eq!((place.folder.to_str().unwrap(), &*place.shard(3)), (folder, third), "{given}");
            assert_eq!(place.manifest(), manifest);
            assert!(
                place.is_shard(third) && !place.is_shard("x.tar") && place.is_shard(&place.shard(12_345_678))
            );
        }
        for given in
            ["", "s3://b/x", "out/train.tar", "t-{:06d}-{}.tar", "t-{a}.tar", "t-{:99d}.tar", "t-%x.tar"]
        {
            let e = Place::parse(given, None).unwrap_err();
            assert!(e.kind() == crate::ErrorKind::Config && e.hint().is_some(), "{given}: {e}");
        }
        for (given, wanted, first, format) in [
            ("out/t-{:03d}.parquet", None, "t-000.parquet", Format::Parquet),
            ("out/t-{}.tfrecord", Some(Format::Tfrecord), "t-000000.tfrecord", Format::Tfrecord),
            ("out", Some(Format::Parquet), "out-000000.parquet", Format::Parquet),
            ("out", Some(Format::Mds), "shard.00000.mds", Format::Mds),
        ] {
            let (place, found) = Place::parse(given, wanted).unwrap();
            assert_eq!((&*place.shard(0), found), (first, format));
        }
        for (given, wanted) in [("t-{}.tar", Format::Parquet), ("t-{}.mds", Format::Mds)] {
            assert!(Place::parse(given, Some(wanted)).unwrap_err().hint().is_some(), "{given}");
        }
        assert_eq!(Place::whole(&Place::part("a.tar")), Some("a.tar"));
    }

    #[test]
    fn keys_are_what_readers_take_for_samples() {
        for (own, key) in [
            ("cat/1.jpg", "cat/1"),
            ("cat/1.JPEG", "cat/1"),
            ("d.e/a.b.png", "d.e/a_b"),
            ("/abs/../x.jpg", "abs/x"),
            ("s3://bucket/a.webp", "bucket/a"),
            (".hidden", "_hidden"),
            ("__meta__/a.jpg", "___meta__-/a"),
            ("__a__", "___a__-"),
            ("17", "17"),
            (".jpg", "_"),
            ("a\nb", "a_b"),
            ("ü/日本.png", "ü/日本"),
        ] {
            assert_eq!(key_of(own), key, "{own}");
        }
    }

    #[test]
    fn no_two_samples_of_a_shard_have_one_key() {
        let mut keys = Keys::default();
        let made: Vec<String> = ["a.jpg", "a.png", "a~1", "a.b", "a_b", "a"]
            .iter()
            .map(|own| {
                let key = keys.unique(own);
                keys.take(key.clone());
                key
            })
            .collect();
        assert_eq!(made, ["a", "a~1", "a~1~1", "a_b", "a_b~1", "a~2"]);
    }
}
