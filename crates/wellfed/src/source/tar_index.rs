//! Where each sample of one tar shard lies: built by reading headers only, then used for random access.
//!
//! Members are grouped into samples as WebDataset groups them (`webdataset/tariterators.py`): the key is the path up
//! to the first dot of the file name, the extension is the rest in lower case, and consecutive members of one key are
//! one sample. Members without extension, hidden files (macOS writes `._name` beside each file), and everything in a
//! top folder like `__meta__` belong to no sample. Members are the same sample if their keys have the same bytes: those
//! that are not UTF-8 are shown as `\xff`. Links are the files that they lead to (`tar_links.rs`).
//!
//! The invariant: every sample in the index lies wholly inside the shard, and what could not be read, because the
//! shard is cut or damaged, is recorded as [`Damage`]. Nothing is lost silently.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
};

use super::{
    tar_header::{self, BLOCK, Kind, Pax},
    tar_links::Links,
    unpack::Packing,
    unpack_to,
};
use crate::{
    Error, ErrorKind, Result,
    store::{EntryKind, Store, listing::Names},
};

/// Bytes read at once while hopping from header to header: a header and the small members that follow it.
const WINDOW: u64 = 8192;

/// The same of a store that answers later, to begin with, and at most.
const FAR: u64 = 512 << 10;
const MOST_AT_ONCE: u64 = 8 << 20;

/// Longest name or pax record that is believed.
const MAX_META: u64 = 1 << 20;

/// One file in a shard. 16 bytes, because there are millions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Member {
    /// Data offset in blocks.
    pub(super) block: u32,
    /// Index of the extension in [`ShardIndex::extensions`].
    pub(super) extension: u32,
    /// Bytes of data, with [`SPARSE`] and [`LINK`]. For a link that leads nowhere: [`BROKEN`], and its number in
    /// [`ShardIndex::broken`].
    pub(super) size: u64,
}

/// Bit of [`Member::size`]: a file with holes, which cannot be read.
pub(super) const SPARSE: u64 = 1 << 63;
/// Bit of [`Member::size`]: a link that leads nowhere.
pub(super) const BROKEN: u64 = 1 << 62;
/// Bit of [`Member::size`]: a link. The data are another member's.
pub(super) const LINK: u64 = 1 << 61;

impl Member {
    pub(super) fn offset(self) -> u64 {
        u64::from(self.block) * BLOCK
    }

    pub(super) fn size(self) -> u64 {
        if self.broken().is_some() { 0 } else { self.size & !(SPARSE | LINK) }
    }

    pub(super) fn is_sparse(self) -> bool {
        self.size & SPARSE != 0
    }

    pub(super) fn is_link(self) -> bool {
        self.size & (LINK | BROKEN) != 0
    }

    /// Number of the link in [`ShardIndex::broken`], if this is one that leads nowhere.
    pub(super) fn broken(self) -> Option<usize> {
        (self.size & BROKEN != 0).then_some((self.size & !(SPARSE | BROKEN | LINK)) as usize)
    }
}

/// Where a shard stops making sense, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Damage {
    pub(super) offset: u64,
    pub(super) message: String,
    pub(super) hint: &'static str,
}

const CUT: &str = "the shard was cut, perhaps during a copy: everything before this byte is intact";
const UNFINISHED: &str =
    "the shard was cut, or its writer was never closed: samples may be missing at its end";
const DAMAGED: &str =
    "everything before this byte is intact; what follows cannot be found without this header";
const TRAILING: &str =
    "archives put one behind the other need `tar --concatenate`; else part of the shard was overwritten";

/// The samples of one shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ShardIndex {
    /// Key of each sample.
    pub(super) keys: Names,
    /// Index of the first member of each sample.
    pub(super) firsts: Vec<u32>,
    /// All members of samples, in order.
    pub(super) members: Vec<Member>,
    /// Extensions in order of appearance.
    pub(super) extensions: Names,
    /// Samples whose key an earlier sample of this shard has too, in order.
    pub(super) repeated: Vec<u32>,
    /// Regular files and links that belong to no sample.
    pub(super) ignored: u64,
    /// What is wrong with each link that leads nowhere.
    pub(super) broken: Names,
    pub(super) damage: Option<Damage>,
}

impl ShardIndex {
    /// Number of samples, without the damage.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Members of sample `index`.
    pub(super) fn sample(&self, index: usize) -> &[Member] {
        let start = self.firsts.get(index).map_or(self.members.len(), |i| *i as usize);
        let end = self.firsts.get(index + 1).map_or(self.members.len(), |i| *i as usize);
        &self.members[start..end]
    }

    /// Extension of `member`.
    pub(super) fn extension(&self, member: Member) -> &str {
        self.extensions.get(member.extension as usize)
    }

    /// What is in the shard that the webdataset library reads by other rules: it passes over links, takes hidden files for
    /// samples or parts of them, and stops, with or without an error, where a shard is damaged. It is also strict about
    /// what a sample has twice.
    pub(super) fn unlike_a_stream(&self) -> Option<&'static str> {
        let twice = |sample: usize| {
            let members = self.sample(sample);
            members
                .iter()
                .enumerate()
                .any(|(i, one)| members[..i].iter().any(|other| other.extension == one.extension))
        };
        if self.damage.is_some() {
            Some("damage")
        } else if self.ignored > 0 {
            Some("files that belong to no sample")
        } else if self.members.iter().any(|member| member.is_link() || member.is_sparse()) {
            Some("links or files with holes")
        } else if self.keys.iter().any(|key| key.contains('\n')) || (0..self.len()).any(twice) {
            Some("names that are not told apart")
        } else {
            None
        }
    }

    /// Reads the headers of the shard `path`.
    ///
    /// # Errors
    /// Only what keeps the whole shard from being read: it is missing, compressed, or storage fails. A cut or damaged
    /// shard is no error.
    pub(super) fn scan(store: &dyn Store, path: &str) -> Result<Self> {
        let stat = store.stat(path)?;
        if stat.kind == EntryKind::Folder {
            return Err(Error::config(format!("{path} is a folder, not a shard"))
                .with_hint(format!("{path}/*.tar names the shards in it")));
        }
        let reach = if store.remote().is_some() { FAR } else { WINDOW };
        let mut scan = Scan { store, path, size: stat.size, start: 0, window: Vec::new(), reach };
        let (mut builder, mut links) = (Builder::default(), Links::default());
        let damage = scan.run(&mut |found| {
            if matches!(found.kind, Kind::HardLink | Kind::SymbolicLink) {
                links.add(found);
            }
            builder.add(found)
        })?;
        if !links.is_empty() {
            // What links lead to is known after the whole shard was seen, and looked for only then: few shards have any.
            scan.run(&mut |found| {
                links.look_at(found);
                Ok(())
            })?;
            builder.resolve(&links)?;
        }
        let mut index = builder.index;
        index.damage = damage;
        index.members.shrink_to_fit();
        index.firsts.shrink_to_fit();
        let mut seen = HashSet::with_capacity(index.keys.len());
        let repeated = index.keys.iter().zip(0_u32..).filter(|(key, _)| !seen.insert(*key)).map(|(_, i)| i);
        index.repeated = repeated.collect();
        Ok(index)
    }
}

/// A member as its headers describe it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found<'a> {
    pub(super) kind: Kind,
    pub(super) name: &'a [u8],
    /// What a link leads to.
    pub(super) link: &'a [u8],
    /// Where its header lies: its place in the order of members.
    pub(super) at: u64,
    /// Where its data lie.
    pub(super) offset: u64,
    pub(super) size: u64,
    pub(super) sparse: bool,
}

/// Key and extension of a path by WebDataset's rule, or `None` if it belongs to no sample.
pub(super) fn split_key(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let top = path.split(|b| *b == b'/').next().unwrap_or_default();
    if top.len() >= 4 && top.starts_with(b"__") && top.ends_with(b"__") {
        return None;
    }
    let name = path.iter().rposition(|b| *b == b'/').map_or(0, |slash| slash + 1);
    let dot = path[name..].iter().position(|b| *b == b'.').filter(|dot| *dot > 0)?;
    Some((&path[..name + dot], &path[name + dot + 1..]))
}

/// `name` as text. Bytes that are no UTF-8 become `\xff`, and then a backslash two, so that other bytes give other text.
pub(super) fn shown(name: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(name) {
        return text.into();
    }
    let mut text = String::new();
    for chunk in name.utf8_chunks() {
        text.push_str(&chunk.valid().replace('\\', "\\\\"));
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
    }
    text.into()
}

/// Puts members together into samples.
#[derive(Default)]
struct Builder {
    index: ShardIndex,
    extensions: HashMap<String, u32>,
    /// Key of the last sample.
    key: Vec<u8>,
    /// Members that are links, and where their headers lie.
    links: Vec<(u32, u64)>,
}

impl Builder {
    fn add(&mut self, found: Found<'_>) -> Result<()> {
        let link = match found.kind {
            Kind::File | Kind::Sparse => false,
            Kind::HardLink | Kind::SymbolicLink => true,
            _ => return Ok(()),
        };
        let Some((key, extension)) = split_key(found.name) else {
            self.index.ignored += 1;
            return Ok(());
        };
        let first = u32::try_from(self.index.members.len()).map_err(|_| {
            Error::limit("shard", self.index.members.len() as u64, u64::from(u32::MAX), "members")
        })?;
        let lower = shown(extension).to_lowercase();
        let extension = match self.extensions.get(&lower) {
            Some(id) => *id,
            None => {
                // There are no more extensions than members.
                let id = self.index.extensions.len() as u32;
                self.index.extensions.push(&lower)?;
                self.extensions.insert(lower, id);
                id
            }
        };
        if self.index.keys.is_empty() || self.key != key {
            self.index.keys.push(&shown(key))?;
            self.index.firsts.push(first);
            self.key.clear();
            self.key.extend_from_slice(key);
        }
        if link {
            self.links.push((first, found.at));
        }
        let size = found.size | if found.sparse { SPARSE } else { 0 };
        self.index.members.push(Member { block: block_of(found.offset)?, extension, size });
        Ok(())
    }

    /// Gives links the data of what they lead to.
    fn resolve(&mut self, links: &Links) -> Result<()> {
        for (number, at) in std::mem::take(&mut self.links) {
            let member = &mut self.index.members[number as usize];
            match links.resolve(at) {
                Ok(file) => {
                    member.block = block_of(file.offset)?;
                    member.size = file.size | LINK | if file.sparse { SPARSE } else { 0 };
                }
                Err(message) => {
                    member.size = BROKEN | self.index.broken.len() as u64;
                    self.index.broken.push(&message)?;
                }
            }
        }
        Ok(())
    }
}

fn block_of(offset: u64) -> Result<u32> {
    u32::try_from(offset / BLOCK)
        .map_err(|_| Error::limit("shard", offset, u64::from(u32::MAX) * BLOCK, "bytes"))
}

/// A walk over the headers of one shard.
struct Scan<'a> {
    store: &'a dyn Store,
    path: &'a str,
    size: u64,
    start: u64,
    window: Vec<u8>,
    /// Bytes that are read at once.
    reach: u64,
}

impl Scan<'_> {
    /// `len` bytes from `at`, which must lie inside the shard. `None` if it has become shorter since.
    fn bytes(&mut self, at: u64, len: u64) -> Result<Option<&[u8]>> {
        let end = self.start + self.window.len() as u64;
        if at < self.start || at + len > end {
            // Of a store that answers later, many short reads take longer than all the bytes between headers. Where
            // those are far apart, they are read by themselves.
            if self.store.remote().is_some() {
                let near = at.saturating_sub(end) <= self.reach;
                self.reach =
                    if near { (self.reach * 2).min(MOST_AT_ONCE) } else { (self.reach / 2).max(WINDOW) };
            }
            self.window.clear();
            self.start = at;
            let want = self.reach.max(len).min(self.size - at);
            let want =
                usize::try_from(want).map_err(|_| Error::limit(self.path, want, self.reach, "bytes"))?;
            match self.store.read_range(self.path, at, want, &mut self.window) {
                Ok(()) => {}
                Err(e) if e.kind() == ErrorKind::Corrupt => return Ok(None),
                Err(e) => return Err(e),
            }
        }
        // The window starts at or before `at` and, having been filled above if need be, holds `len` bytes from there.
        let from = (at - self.start) as usize;
        Ok(self.window.get(from..from + len as usize))
    }

    /// Shows all members to `visit`, in order; gives the damage that ended the walk early.
    fn run(&mut self, visit: &mut dyn FnMut(Found<'_>) -> Result<()>) -> Result<Option<Damage>> {
        let path = self.path;
        let damage = |offset, message: String, hint| Ok(Some(Damage { offset, message, hint }));
        let (mut at, mut long_name, mut pax) = (0_u64, None::<Vec<u8>>, None::<Pax>);
        let mut long_link = None::<Vec<u8>>;
        let mut pending = None;
        if let Some(first) = self.bytes(0, self.size.min(BLOCK))? {
            refuse_compressed(first, path)?;
        }
        loop {
            // A long name or pax records without their member are damage from where they start.
            let from = pending.unwrap_or(at).min(self.size);
            if at >= self.size {
                let message = match (self.size, at > self.size, pending) {
                    (0, ..) => "it is empty".to_owned(),
                    (_, true, _) => format!("it ends at byte {}, inside the padding of a member", self.size),
                    (_, _, Some(_)) => {
                        format!("it ends at byte {} before the member that a header announces", at)
                    }
                    _ => format!("it ends at byte {at} without the end-of-archive marker"),
                };
                return damage(from, message, UNFINISHED);
            }
            let rest = self.size - at;
            if rest < BLOCK {
                let zeros = self.bytes(at, rest)?.is_some_and(|bytes| bytes.iter().all(|b| *b == 0));
                let what = if zeros { "the end-of-archive marker" } else { "a header" };
                return damage(from, format!("it ends at byte {}, inside {what}", self.size), CUT);
            }
            let Some(block) = self.bytes(at, BLOCK)?.and_then(|bytes| <&[u8; 512]>::try_from(bytes).ok())
            else {
                return damage(
                    from,
                    format!("it became shorter than {} bytes while it was read", self.size),
                    CUT,
                );
            };
            if block.iter().all(|b| *b == 0) {
                if pending.is_some() {
                    return damage(
                        from,
                        "the archive ends before the member that a header announces".into(),
                        DAMAGED,
                    );
                }
                return Ok(self.trailing(at + BLOCK)?.map(|offset| Damage {
                    offset,
                    message: format!("after the end-of-archive marker at byte {at} there is more"),
                    hint: TRAILING,
                }));
            }
            let header = match tar_header::parse(block) {
                Ok(header) => header,
                Err(message) => return damage(from, format!("member at byte {at}: {message}"), DAMAGED),
            };
            let mut data = at + BLOCK;
            let mut extended = header.extended;
            while extended {
                let map = if self.size - data < BLOCK { None } else { self.bytes(data, BLOCK)? };
                let Some(map) = map else {
                    return damage(from, format!("it ends at byte {}, inside a header", self.size), CUT);
                };
                extended = map[504] != 0;
                data += BLOCK;
            }
            let name = || {
                let name = pax.as_ref().and_then(|p| p.path.as_ref()).or(long_name.as_ref());
                name.unwrap_or(&header.name).clone()
            };
            let about_next =
                matches!(header.kind, Kind::LongName | Kind::LongLink | Kind::Pax | Kind::PaxGlobal);
            let pax_size = pax.as_ref().and_then(|p| p.size).filter(|_| !about_next && header.carries_data);
            let size = pax_size.unwrap_or(header.size);
            if size > self.size - data {
                let (name, end) = (name(), self.size);
                let name = shown(&name);
                let message = format!(
                    "member {name} has {size} bytes from byte {data}, but the shard ends at byte {end}"
                );
                return damage(from, message, CUT);
            }
            if about_next {
                if size > MAX_META {
                    let message =
                        format!("member at byte {at}: a name or record of {size} bytes is no such thing");
                    return damage(from, message, DAMAGED);
                }
                let Some(meta) = self.bytes(data, size)?.map(<[u8]>::to_vec) else {
                    return damage(
                        from,
                        format!("it became shorter than {} bytes while it was read", self.size),
                        CUT,
                    );
                };
                match header.kind {
                    Kind::LongName => long_name = meta.split(|b| *b == 0).next().map(<[u8]>::to_vec),
                    Kind::LongLink => long_link = meta.split(|b| *b == 0).next().map(<[u8]>::to_vec),
                    kind => match tar_header::parse_pax(&meta) {
                        Ok(records) if kind == Kind::Pax => pax = Some(records),
                        Ok(global) if global == Pax::default() => {}
                        Ok(_) => {
                            let message =
                                format!("member at byte {at}: a name or size for all members makes no sense");
                            return damage(from, message, DAMAGED);
                        }
                        Err(message) => {
                            return damage(from, format!("member at byte {at}: {message}"), DAMAGED);
                        }
                    },
                }
                if header.kind != Kind::PaxGlobal {
                    pending.get_or_insert(at);
                }
            } else {
                let sparse = header.kind == Kind::Sparse || pax.as_ref().is_some_and(|p| p.sparse);
                let link = pax.as_ref().and_then(|p| p.link.as_ref()).or(long_link.as_ref());
                let link = link.unwrap_or(&header.link);
                let (kind, name) = (header.kind, name());
                visit(Found { kind, name: &name, link, at, offset: data, size, sparse })?;
                (long_name, long_link, pax, pending) = (None, None, None, None);
            }
            // No overflow: the data end inside the shard, and no file is within 512 bytes of 2^64.
            at = (data + size).next_multiple_of(BLOCK);
        }
    }

    /// Offset of the first byte from `at` on that is not zero.
    fn trailing(&mut self, mut at: u64) -> Result<Option<u64>> {
        while at < self.size {
            let len = WINDOW.min(self.size - at);
            let Some(bytes) = self.bytes(at, len)? else { return Ok(None) };
            if let Some(found) = bytes.iter().position(|b| *b != 0) {
                return Ok(Some(at + found as u64));
            }
            at += len;
        }
        Ok(None)
    }
}

fn refuse_compressed(first: &[u8], path: &str) -> Result<()> {
    let format = match first {
        [b'B', b'Z', b'h', ..] => "bzip2",
        [0xfd, b'7', b'z', b'X', b'Z', ..] => "xz",
        _ => return Packing::of("", first).map_or(Ok(()), |packing| Err(unpack_to::refused(path, packing))),
    };
    Err(Error::new(ErrorKind::Unsupported, format!("shard {path} is compressed with {format}"))
        .with_hint("samples of a compressed shard cannot be reached directly: unpack it to a plain .tar"))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::{store::LocalStore, testing::TempFolder};

    /// A GNU tar of these files, with long names as extra members.
    pub(in crate::source) fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, data) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(data.len() as u64);
            header.set_mode(0o644);
            builder.append_data(&mut header, name, *data).unwrap();
        }
        builder.into_inner().unwrap()
    }

    fn scan(bytes: &[u8]) -> ShardIndex {
        let folder = TempFolder::new();
        let path = folder.write("x.tar", bytes);
        ShardIndex::scan(&LocalStore::new(), &path).unwrap()
    }

    /// A key and its (extension, content).
    type Sample = (String, Vec<(String, Vec<u8>)>);

    fn content(bytes: &[u8]) -> Vec<Sample> {
        let index = scan(bytes);
        let samples = (0..index.len()).map(|i| {
            let members = index.sample(i).iter().map(|m| {
                let from = m.offset() as usize;
                (index.extension(*m).to_owned(), bytes[from..from + m.size() as usize].to_vec())
            });
            (index.keys.get(i).to_owned(), members.collect())
        });
        samples.collect()
    }

    #[test]
    fn keys_are_split_as_webdataset_splits_them() {
        for (path, expected) in [
            ("a.jpg", Some(("a", "jpg"))),
            ("d/a.seg.PNG", Some(("d/a", "seg.PNG"))),
            ("./a.jpg", Some(("./a", "jpg"))),
            ("d.e/a.jpg", Some(("d.e/a", "jpg"))),
            ("a.", Some(("a", ""))),
            ("a", None),
            ("d.e/a", None),
            (".a.jpg", None),
            ("d/._a.jpg", None),
            ("__meta__/a.jpg", None),
            ("__meta__", None),
            ("__meta__.json", Some(("__meta__", "json"))),
            ("d/__meta__/a.jpg", Some(("d/__meta__/a", "jpg"))),
            ("", None),
        ] {
            let expected =
                expected.map(|(key, extension): (&str, &str)| (key.as_bytes(), extension.as_bytes()));
            assert_eq!(split_key(path.as_bytes()), expected, "{path}");
        }
    }

    #[test]
    fn consecutive_members_of_a_key_are_a_sample() {
        let long = format!("{}/{}.jpg", "folder".repeat(12), "x".repeat(120));
        let files: [(&str, &[u8]); 9] = [
            ("a.jpg", b"A"),
            ("a.cls", b"1"),
            ("._a.txt", b"hidden"),
            ("a.txt", b""),
            ("b.JPG", &[7; 1025]),
            ("README", b"no extension"),
            (&long, b"long"),
            ("ü/日本.png", b"unicode"),
            ("a.jpg", b"again"),
        ];
        let bytes = tar(&files);
        let found = content(&bytes);
        let keys: Vec<&str> = found.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["a", "b", long.strip_suffix(".jpg").unwrap(), "ü/日本", "a"]);
        let first = [("jpg", b"A".to_vec()), ("cls", b"1".to_vec()), ("txt", vec![])];
        assert_eq!(found[0].1, first.map(|(e, b)| (e.to_owned(), b)));
        assert_eq!(found[1].1, [("jpg".to_owned(), vec![7; 1025])]);
        assert_eq!(found[2].1[0].1, b"long");
        let index = scan(&bytes);
        assert_eq!(
            (index.ignored, index.repeated.as_slice(), index.damage.as_ref()),
            (2, &[4_u32][..], None)
        );
    }

    #[test]
    fn pax_names_and_sizes_count_and_folders_are_skipped() {
        let mut builder = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(tar::EntryType::Directory);
        header.set_size(0);
        builder.append_data(&mut header, "d/", &[][..]).unwrap();
        let path = "p/long name é.jpg";
        let record = |key: &str, value: &str| -> String {
            let mut length = key.len() + value.len() + 3;
            while format!("{length} {key}={value}\n").len() != length {
                length += 1;
            }
            format!("{length} {key}={value}\n")
        };
        let pax = record("path", path) + &record("size", "700") + &record("mtime", "1.5");
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(tar::EntryType::XHeader);
        header.set_size(pax.len() as u64);
        builder.append_data(&mut header, "pax", pax.as_bytes()).unwrap();
        let mut header = tar::Header::new_ustar();
        header.set_path("short").unwrap();
        // The pax size replaces this one, which says too little, as for files of more than 8 GiB.
        header.set_size(0);
        header.set_cksum();
        builder.append(&header, &[][..]).unwrap();
        let mut bytes = builder.into_inner().unwrap();
        bytes.truncate(bytes.len() - 1024);
        bytes.extend_from_slice(&[9; 700]);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
        let rest = tar(&[("q.cls", b"5")]);
        bytes.extend_from_slice(&rest);
        let found = content(&bytes);
        assert_eq!(found[0], ("p/long name é".to_owned(), vec![("jpg".to_owned(), vec![9; 700])]));
        assert_eq!(found[1].0, "q");
        assert_eq!(scan(&bytes).damage, None);
    }

    #[test]
    fn names_that_are_not_utf8_stay_apart() {
        // The writer of the crate `tar` takes paths, which are bytes on Unix only.
        let mut bytes = tar(&[("a?.jpg", b"A"), ("a?.cls", b"1"), ("a!.jpg", b"B"), ("a!.j?g", b"C")]);
        for at in (0..bytes.len() - 1024).step_by(1024) {
            for byte in &mut bytes[at..at + 100] {
                *byte = match *byte {
                    b'?' => 0xff,
                    b'!' => 0xfe,
                    other => other,
                };
            }
            let header: &mut [u8] = &mut bytes[at..at + 512];
            header[148..156].fill(b' ');
            let sum: u64 = header.iter().map(|b| u64::from(*b)).sum();
            header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
        let found = content(&bytes);
        let keys: Vec<&str> = found.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, [r"a\xff", r"a\xfe"]);
        let extensions: Vec<_> =
            found.iter().flat_map(|(_, fields)| fields.iter().map(|(e, _)| e.as_str())).collect();
        assert_eq!(extensions, ["jpg", "cls", "jpg", r"j\xffg"]);
        assert_eq!(shown(br"a\xff"), r"a\xff");
        assert_eq!(shown(b"a\\\xff"), r"a\\\xff");
    }

    #[test]
    fn what_follows_the_end_is_not_lost_silently() {
        let mut two = tar(&[("a.jpg", b"A")]);
        let end = two.len();
        two.extend(tar(&[("b.jpg", b"B")]));
        let index = scan(&two);
        assert_eq!(index.len(), 1);
        assert_eq!(index.damage.unwrap().offset, end as u64);
        let mut padded = tar(&[("a.jpg", b"A")]);
        padded.resize(20 * 512, 0);
        assert_eq!(scan(&padded).damage, None);
    }

    #[test]
    fn compressed_shards_are_refused_with_advice() {
        let folder = TempFolder::new();
        let mut bytes = vec![0x1f, 0x8b];
        bytes.resize(600, 1);
        let e = ShardIndex::scan(&LocalStore::new(), &folder.write("x.tar.gz", &bytes)).unwrap_err();
        assert!(e.message().contains("gzip") && e.hint().unwrap().contains("unpack_to"), "{e}");
        bytes[..3].copy_from_slice(b"BZh");
        let e = ShardIndex::scan(&LocalStore::new(), &folder.write("x.tar.bz2", &bytes)).unwrap_err();
        assert!(e.message().contains("bzip2") && e.hint().unwrap().contains("plain .tar"), "{e}");
    }

    #[test]
    fn a_cut_at_any_byte_keeps_what_is_whole_and_reports_the_rest() {
        let long = "n".repeat(130);
        let files: [(&str, &[u8]); 5] = [
            ("a.jpg", &[1; 600]),
            ("a.cls", b"1"),
            (&format!("{long}.jpg"), &[2; 512]),
            ("c.jpg", &[3; 10]),
            ("c.txt", b""),
        ];
        let bytes = tar(&files);
        let whole = scan(&bytes);
        let folder = TempFolder::new();
        let store = LocalStore::new();
        for cut in 0..bytes.len() {
            let path = folder.write(&format!("{cut}.tar"), &bytes[..cut]);
            let index = ShardIndex::scan(&store, &path).unwrap();
            std::fs::remove_file(path).unwrap();
            let intact = whole.members.iter().filter(|m| m.offset() + m.size() <= cut as u64).count();
            assert_eq!(index.members, whole.members[..intact], "cut at {cut}");
            let keys = whole.firsts.iter().filter(|first| (**first as usize) < intact).count();
            assert_eq!(index.len(), keys, "cut at {cut}");
            let complete = cut >= bytes.len() - 512;
            assert_eq!(index.damage.is_none(), complete, "cut at {cut}");
            if let Some(damage) = index.damage {
                assert!(damage.offset <= cut as u64);
                let end = index.members.last().map_or(0, |m| m.offset() + m.size());
                assert!(damage.offset >= end, "damage starts behind what is whole");
            }
        }
    }

    #[test]
    fn a_flipped_bit_anywhere_never_panics_and_never_hides_a_member() {
        let long = format!("{}.jpg", "n".repeat(130));
        let bytes = tar(&[("a.jpg", &[1; 100]), ("a.cls", b"1"), (&long, &[2; 100])]);
        let whole = scan(&bytes);
        let folder = TempFolder::new();
        // Headers and data alternate, one block each.
        for at in (0..bytes.len()).filter(|at| at % 1024 < 512) {
            for bit in [0, 3, 7] {
                let mut bad = bytes.clone();
                bad[at] ^= 1 << bit;
                let path = folder.write(&format!("{at}-{bit}.tar"), &bad);
                let index = ShardIndex::scan(&LocalStore::new(), &path).unwrap();
                std::fs::remove_file(path).unwrap();
                assert!(index.damage.is_some() || index.members == whole.members, "bit {bit} of byte {at}");
            }
        }
    }
}
