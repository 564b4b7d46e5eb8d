//! Links in a tar shard: which member's data each one has.
//!
//! The rules are those of Python's `tarfile` (`_find_link_target`): a hard link names a member before it, a symbolic
//! one a path from the folder that it lies in, and of several members of a name the last one counts. Links may lead to
//! links. Nothing outside of the shard is ever looked at.

use std::collections::HashMap;

use super::{
    tar_header::Kind,
    tar_index::{Found, shown},
};

/// The data of a regular file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct File {
    pub(super) offset: u64,
    pub(super) size: u64,
    pub(super) sparse: bool,
}

/// All links of a shard, and what is known of the names that they lead to.
#[derive(Debug, Default)]
pub(super) struct Links {
    /// By the place of their headers.
    links: HashMap<u64, Link>,
    /// What has each of the names that links lead to, in order.
    targets: HashMap<Vec<u8>, Vec<Target>>,
}

#[derive(Debug)]
struct Link {
    kind: Kind,
    name: Vec<u8>,
    /// As written, for messages.
    written: Vec<u8>,
    /// The name that it leads to. `None`: outside of the shard.
    target: Option<Vec<u8>>,
}

#[derive(Debug)]
struct Target {
    at: u64,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    File(File),
    Link,
    Other,
}

impl Links {
    pub(super) fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// Notes a link.
    pub(super) fn add(&mut self, found: Found<'_>) {
        let target = match found.kind {
            Kind::SymbolicLink if found.link.starts_with(b"/") => None,
            Kind::SymbolicLink => {
                let folder = found.name.iter().rposition(|b| *b == b'/').map_or(0, |slash| slash + 1);
                normal(&[&found.name[..folder], found.link].concat())
            }
            _ => normal(found.link),
        };
        if let Some(target) = &target {
            self.targets.entry(target.clone()).or_default();
        }
        let link = Link { kind: found.kind, name: found.name.to_vec(), written: found.link.to_vec(), target };
        self.links.insert(found.at, link);
    }

    /// Notes a member if some link leads to its name. Members come in the order of the shard.
    pub(super) fn look_at(&mut self, found: Found<'_>) {
        let Some(name) = normal(found.name) else { return };
        let Some(targets) = self.targets.get_mut(&name) else { return };
        let Found { at, offset, size, sparse, .. } = found;
        let what = match found.kind {
            Kind::File | Kind::Sparse => What::File(File { offset, size, sparse }),
            Kind::HardLink | Kind::SymbolicLink => What::Link,
            _ => What::Other,
        };
        targets.push(Target { at, what });
    }

    /// The data of the link whose header lies at `at`.
    ///
    /// # Errors
    /// Where it leads to instead of a file.
    pub(super) fn resolve(&self, at: u64) -> Result<File, String> {
        let (mut here, mut steps) = (at, 0);
        loop {
            let Some(link) = self.links.get(&here) else { return Err("no link is there".to_owned()) };
            let (name, written) = (shown(&link.name), shown(&link.written));
            let which = if link.kind == Kind::HardLink { "hard" } else { "symbolic" };
            let fact = |what: &str| Err(format!("{name} is a {which} link to {written}, {what}"));
            let Some(target) = &link.target else {
                return fact("which lies outside of the shard");
            };
            let hard = link.kind == Kind::HardLink;
            let members = self.targets.get(target).map_or(&[][..], Vec::as_slice);
            let Some(found) = members.iter().rev().find(|member| !hard || member.at < here) else {
                return fact(if hard {
                    "which is not in the shard before it"
                } else {
                    "which is not in the shard"
                });
            };
            match found.what {
                What::File(file) => return Ok(file),
                What::Other => return fact("which is no file"),
                What::Link => here = found.at,
            }
            steps += 1;
            if steps > self.links.len() {
                return fact("and leads back to itself");
            }
        }
    }
}

/// A path without `.`, `..`, doubled and trailing separators. `None` if it leaves the folder that it starts from.
fn normal(path: &[u8]) -> Option<Vec<u8>> {
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|b| *b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join(&b'/'))
}

#[cfg(test)]
mod tests {
    use super::super::tar_index::{Member, ShardIndex};
    use crate::{store::LocalStore, testing::TempFolder};

    enum Item<'a> {
        File(&'a str, &'a [u8]),
        Hard(&'a str, &'a str),
        Soft(&'a str, &'a str),
        Folder(&'a str),
    }
    use Item::{File as F, Folder, Hard, Soft};

    fn tar(items: &[Item<'_>]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for item in items {
            let mut header = tar::Header::new_gnu();
            header.set_mode(0o644);
            header.set_size(0);
            match item {
                F(name, data) => {
                    header.set_size(data.len() as u64);
                    builder.append_data(&mut header, name, *data).unwrap();
                }
                Hard(name, target) => {
                    header.set_entry_type(tar::EntryType::Link);
                    builder.append_link(&mut header, name, target).unwrap();
                }
                Soft(name, target) => {
                    header.set_entry_type(tar::EntryType::Symlink);
                    builder.append_link(&mut header, name, target).unwrap();
                }
                Folder(name) => {
                    header.set_entry_type(tar::EntryType::Directory);
                    builder.append_data(&mut header, name, &[][..]).unwrap();
                }
            }
        }
        builder.into_inner().unwrap()
    }

    /// A key, and what its members hold.
    type Sample = (String, Vec<Result<Vec<u8>, String>>);

    /// Keys with the content of their members, or what is wrong with them.
    fn samples(items: &[Item<'_>]) -> Vec<Sample> {
        let bytes = tar(items);
        let folder = TempFolder::new();
        let index = ShardIndex::scan(&LocalStore::new(), &folder.write("x.tar", &bytes)).unwrap();
        assert_eq!(index.damage, None);
        let content = |i: usize| {
            let member = |m: &Member| match m.broken() {
                Some(number) => Err(index.broken.get(number).to_owned()),
                None => Ok(bytes[m.offset() as usize..][..m.size() as usize].to_vec()),
            };
            (index.keys.get(i).to_owned(), index.sample(i).iter().map(member).collect())
        };
        (0..index.len()).map(content).collect()
    }

    #[test]
    fn links_have_the_data_of_what_they_lead_to() {
        let long = format!("d/{}.jpg", "n".repeat(150));
        let found = samples(&[
            F("pool/1", b"one"),
            F("./d/x.jpg", b"first"),
            F("d/x.jpg", b"second"),
            Hard("a.jpg", "d/x.jpg"),
            Soft("a.cls", "pool/later"),
            Soft("d/b.jpg", "../pool/./1"),
            Soft("c.jpg", "d//b.jpg"),
            Hard("e.jpg", "c.jpg"),
            F(&long, b"long"),
            Soft("f.jpg", &long),
            F("pool/later", b"7"),
            F("d/x.jpg", b"third"),
        ]);
        let of = |key: &str| {
            let found = found.iter().rfind(|(k, _)| k == key);
            found
                .unwrap()
                .1
                .iter()
                .map(|m| String::from_utf8(m.clone().unwrap()).unwrap())
                .collect::<Vec<_>>()
        };
        // A hard link has the last file of its name before it. Checked against Python's tarfile.
        assert_eq!(of("a"), ["second", "7"]);
        assert_eq!(
            (of("d/b"), of("c"), of("e")),
            (vec!["one".into()], vec!["one".into()], vec!["one".into()])
        );
        assert_eq!(of("f"), ["long"]);
        assert_eq!(of("d/x"), ["third"]);
    }

    #[test]
    fn links_that_lead_nowhere_are_named() {
        let found = samples(&[
            Folder("d"),
            Soft("a.jpg", "b.jpg"),
            Soft("b.jpg", "c.jpg"),
            Soft("c.jpg", "a.jpg"),
            Hard("d1.jpg", "later.jpg"),
            Soft("e.jpg", "/etc/passwd"),
            Soft("f.jpg", "../../etc/passwd"),
            Soft("g.jpg", "d"),
            Soft("h.jpg", "h.jpg"),
            F("later.jpg", b"x"),
        ]);
        let message = |key: &str| {
            let (_, members) = found.iter().find(|(k, _)| k == key).unwrap();
            members[0].clone().unwrap_err()
        };
        assert!(message("a").contains("leads back to itself"), "{}", message("a"));
        assert!(
            message("d1").contains("d1.jpg is a hard link to later.jpg, which is not in the shard before it")
        );
        assert!(message("e").contains("symbolic link to /etc/passwd, which lies outside"));
        assert!(message("f").contains("outside"));
        assert!(message("g").contains("no file"));
        assert!(message("h").contains("leads back to itself"));
    }
}
