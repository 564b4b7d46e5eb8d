//! LMDB's file format, as far as reading takes it: two meta pages, and a walk over all entries of one tree.
//!
//! ```text
//! file      pages of one size; pages 0 and 1 are meta pages, of which that with the greater transaction counts
//! page      number u64 | u16 | flags u16 | lower u16 | upper u16 | places of nodes u16 ... free ... nodes
//! node      size u32 | flags u16 | bytes of key u16 | key | value, or the number of the first page that holds it
//! overflow  number u64 | u16 | flags u16 | pages u32 | value                              numbers little-endian
//! ```
//!
//! Format: `mdb.c` of <https://www.openldap.org/lmdb/>, data version 1, as 64-bit machines write it. Pages have no checksum. A page
//! states its own number, places within it and keys in their order, and the tree states how many entries it has: all of that is
//! checked, so that what does not hold together is an error and never another entry. Nothing is written, and no lock is taken:
//! [`Snapshot::check`] says whether a writer may have taken pages of the snapshot for something else.

use std::ops::Range;

use crate::{Error, ErrorKind, Result, store::Store, store::listing};

const PAGE_HEAD: usize = 16;
const NODE_HEAD: usize = 8;

const MAGIC: u32 = 0xBEEF_C0DE;
const DATA_VERSION: u32 = 1;

const BRANCH: u16 = 0x01;
const LEAF: u16 = 0x02;
const OVERFLOW: u16 = 0x04;
const META: u16 = 0x08;
/// Flags that say what a page is. The others are a writer's notes.
const PAGE_KIND: u16 = 0x6F;

const BIG: u16 = 0x01;
const NAMED: u16 = 0x02;
const SEVERAL: u16 = 0x04;

const REVERSED_KEYS: u16 = 0x02;
const INTEGER_KEYS: u16 = 0x08;

/// The deepest tree that LMDB makes.
const MOST_DEPTH: u16 = 32;

/// Leaf pages that one thread reads at a time: a megabyte of the usual size.
const TOGETHER: usize = 256;

/// Root of no entries.
const NO_PAGE: u64 = u64::MAX;

/// Where a tree begins, and what it states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tree {
    flags: u16,
    depth: u16,
    pub(super) entries: u64,
    root: u64,
}

impl Tree {
    fn of(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            flags: u16_at(bytes, 4)?,
            depth: u16_at(bytes, 6)?,
            entries: u64_at(bytes, 32)?,
            root: u64_at(bytes, 40)?,
        })
    }

    /// A key as the order of this tree compares it.
    fn ordered<'a>(&self, key: &'a [u8]) -> std::borrow::Cow<'a, [u8]> {
        if self.flags & (REVERSED_KEYS | INTEGER_KEYS) == 0 {
            return key.into();
        }
        // Integers lie in the order of the machine: the last byte counts most.
        key.iter().rev().copied().collect::<Vec<u8>>().into()
    }

    /// Whether keys are numbers of the machine.
    pub(super) fn has_integer_keys(&self) -> bool {
        self.flags & INTEGER_KEYS != 0
    }
}

/// The state of a file after one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Snapshot {
    pub(super) page_size: u64,
    transaction: u64,
    /// Pages of the file that hold something, whatever its size.
    pages: u64,
    pub(super) main: Tree,
}

impl Snapshot {
    /// The newest one.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] for what is no LMDB file; [`ErrorKind::Unsupported`] for another version, or one that machines of
    /// another kind wrote; those of the store.
    pub(super) fn newest(store: &dyn Store, path: &str) -> Result<Self> {
        for _ in 0..100 {
            let found = Self::read(store, path)?;
            // A meta page that is written at this moment may be read in parts.
            if Self::read(store, path)? == found {
                return Ok(found);
            }
        }
        Err(changing(path))
    }

    fn read(store: &dyn Store, path: &str) -> Result<Self> {
        let size = store.size(path)?;
        if size < META_BYTES as u64 {
            return Err(no_file(path, &format!("it has {size} bytes")));
        }
        let first = Self::meta(store, path, 0, None)?;
        let second = Self::meta(store, path, 1, Some(first.page_size))?;
        Ok(if second.transaction > first.transaction { second } else { first })
    }

    fn meta(store: &dyn Store, path: &str, number: u64, page_size: Option<u64>) -> Result<Self> {
        let offset = number * page_size.unwrap_or(0);
        let mut bytes = Vec::new();
        store.read_range(path, offset, META_BYTES, &mut bytes)?;
        let unsupported = |what: &str| Err(Error::new(ErrorKind::Unsupported, format!("{path} {what}")));
        let magic = u32_at(&bytes, PAGE_HEAD);
        if number == 0 && magic == Some(MAGIC.swap_bytes()) {
            return unsupported("was written by a machine of the other byte order");
        }
        if number == 0 && u32_at(&bytes, 12) == Some(MAGIC) {
            return unsupported("was written by a 32-bit machine");
        }
        let head = (u64_at(&bytes, 0), u16_at(&bytes, 10).map(|flags| flags & PAGE_KIND), magic);
        if head != (Some(number), Some(META), Some(MAGIC)) {
            return Err(no_file(path, &format!("meta page {number} is damaged")).with_offset(offset));
        }
        let version = u32_at(&bytes, PAGE_HEAD + 4).unwrap_or(0);
        if version != DATA_VERSION {
            return unsupported(&format!("has LMDB's format of data {version}; {DATA_VERSION} is read"));
        }
        let size = u64::from(u32_at(&bytes, PAGE_HEAD + 24).unwrap_or(0));
        let known = page_size.is_none_or(|page_size| page_size == size);
        if !size.is_power_of_two() || !(512..=1 << 15).contains(&size) || !known {
            return Err(no_file(path, &format!("meta page {number} states pages of {size} bytes")));
        }
        let tree = bytes.get(PAGE_HEAD + 24 + 48..).and_then(Tree::of);
        let last = u64_at(&bytes, PAGE_HEAD + 24 + 96);
        let (Some(main), Some(last), Some(transaction)) = (tree, last, u64_at(&bytes, TRANSACTION)) else {
            return Err(no_file(path, "a meta page is cut"));
        };
        // No file is larger than positions in files.
        if last.checked_add(1).and_then(|pages| pages.checked_mul(size)).is_none_or(|end| end >> 62 != 0) {
            return Err(no_file(path, &format!("meta page {number} states a last page {last}")));
        }
        Ok(Self { page_size: size, transaction, pages: last + 1, main })
    }

    /// Whether all pages of this snapshot are still what they were. Ask after reading from them.
    ///
    /// Pages that transaction n + 1 no longer needs are free for transaction n + 3 at the earliest, which begins when n + 2 is
    /// written: so nothing of snapshot n is touched as long as the newest transaction is n + 1.
    ///
    /// # Errors
    /// [`ErrorKind::Changed`] if they may not be; those of the store.
    pub(super) fn check(&self, store: &dyn Store, path: &str) -> Result<()> {
        let mut newest = 0;
        let mut bytes = Vec::with_capacity(8);
        for number in 0..2 {
            bytes.clear();
            store.read_range(path, number * self.page_size + TRANSACTION as u64, 8, &mut bytes)?;
            newest = newest.max(u64_at(&bytes, 0).unwrap_or(u64::MAX));
        }
        if newest > self.transaction + 1 {
            let since = newest - self.transaction;
            return Err(Error::new(
                ErrorKind::Changed,
                format!("{path} was written to {since} times since it was opened: its pages may have other content by now"),
            )
            .with_hint("open it again after the writer is done, or read a copy of it (mdb_copy)"));
        }
        Ok(())
    }

    /// Where the value of an entry lies, if it lies in the file.
    fn inside(&self, offset: u64, bytes: u64) -> bool {
        offset.checked_add(bytes).is_some_and(|end| end <= self.pages * self.page_size)
    }
}

/// Place of the number of the transaction in a meta page.
const TRANSACTION: usize = PAGE_HEAD + 24 + 96 + 8;
/// Bytes of a meta page that are used.
const META_BYTES: usize = TRANSACTION + 8;

/// Bytes in front of a value that has pages of its own.
pub(super) const OVERFLOW_HEAD: u64 = PAGE_HEAD as u64;

/// Whether `head` begins the pages of the value at `offset`.
pub(super) fn is_overflow(head: &[u8], page: u64, bytes: u64, page_size: u64) -> bool {
    let pages = (OVERFLOW_HEAD + bytes).div_ceil(page_size);
    u64_at(head, 0) == Some(page)
        && u16_at(head, 10).is_some_and(|flags| flags & PAGE_KIND == OVERFLOW)
        // A value that got smaller keeps its pages.
        && u32_at(head, 12).is_some_and(|stated| u64::from(stated) >= pages)
}

/// Where a value lies: in a leaf page, or in pages of its own, behind a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The highest bit says that the value has pages of its own.
    at: u64,
    pub(super) bytes: u32,
}

impl Place {
    const OWN_PAGES: u64 = 1 << 63;

    /// Of the value itself.
    pub(super) fn offset(self) -> u64 {
        self.at & !Self::OWN_PAGES
    }

    pub(super) fn has_own_pages(self) -> bool {
        self.at & Self::OWN_PAGES != 0
    }
}

/// All entries of a tree, in its order.
#[derive(Clone, Debug, Default)]
pub(super) struct Entries {
    keys: Vec<u8>,
    /// Where each key ends in `keys`.
    ends: Vec<u64>,
    places: Vec<Place>,
    /// Databases that are entries of this tree.
    pub(super) named: Vec<(Vec<u8>, Tree)>,
    /// How many entries were in pages that are damaged.
    pub(super) lost: u64,
    /// What is wrong with the first of these pages.
    pub(super) damage: Option<Error>,
}

impl Entries {
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn key(&self, number: usize) -> &[u8] {
        let start =
            number.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |end| *end as usize);
        let end = self.ends.get(number).map_or(start, |end| *end as usize);
        self.keys.get(start..end).unwrap_or_default()
    }

    pub(super) fn place(&self, number: usize) -> Option<Place> {
        self.places.get(number).copied()
    }

    fn push(&mut self, key: &[u8], place: Place) {
        self.keys.extend_from_slice(key);
        self.ends.push(self.keys.len() as u64);
        self.places.push(place);
    }

    /// Those that are wanted.
    pub(super) fn filtered(self, wanted: impl Fn(&[u8]) -> bool) -> Self {
        let numbers: Vec<usize> = (0..self.len()).filter(|number| wanted(self.key(*number))).collect();
        if numbers.len() == self.len() { self } else { self.chosen(numbers) }
    }

    /// Those with these numbers, in that order.
    pub(super) fn chosen(mut self, numbers: Vec<usize>) -> Self {
        let mut chosen = Self::default();
        for number in numbers {
            if let Some(place) = self.place(number) {
                chosen.push(self.key(number), place);
            }
        }
        chosen.keys.shrink_to_fit();
        (chosen.lost, chosen.damage) = (self.lost, self.damage.take());
        chosen.named = std::mem::take(&mut self.named);
        chosen
    }
}

/// Page numbers of one level of a tree, each with the least key that may be in it.
type Level = Vec<(u64, Vec<u8>)>;

/// Lists all entries of `tree`.
///
/// # Errors
/// [`ErrorKind::Corrupt`] for a tree whose branches are damaged, or that has other entries than it states;
/// [`ErrorKind::Unsupported`] for keys with several values; those of the store.
pub(super) fn entries(store: &dyn Store, path: &str, snapshot: &Snapshot, tree: &Tree) -> Result<Entries> {
    let mut found = Entries::default();
    if tree.root == NO_PAGE && tree.entries == 0 {
        return Ok(found);
    }
    let walk = Walk { store, path, snapshot, tree };
    if tree.depth == 0 || tree.depth > MOST_DEPTH {
        return Err(walk.damaged(tree.root, &format!("it is the root of a tree of depth {}", tree.depth)));
    }
    let mut level: Level = vec![(tree.root, Vec::new())];
    let mut seen = 1;
    for _ in 1..tree.depth {
        let mut below = Level::new();
        for number in 0..level.len() {
            walk.branch(&level, number, &mut below)?;
            // A page that is named twice would make a small file large.
            if seen + below.len() as u64 > snapshot.pages {
                return Err(walk.damaged(level[number].0, "its tree has more pages than the file"));
            }
        }
        seen += below.len() as u64;
        level = below;
    }
    let tasks: Vec<Range<usize>> = (0..level.len().div_ceil(TOGETHER))
        .map(|task| task * TOGETHER..level.len().min((task + 1) * TOGETHER))
        .collect();
    let mut damaged = 0;
    for part in listing::parallel(&tasks, |pages| walk.leaves(&level, pages.clone()))? {
        let (part, bad) = part;
        let start = found.keys.len() as u64;
        found.keys.extend_from_slice(&part.keys);
        found.ends.extend(part.ends.iter().map(|end| start + end));
        found.places.extend_from_slice(&part.places);
        found.named.extend(part.named);
        found.damage = found.damage.or(part.damage);
        damaged += bad;
    }
    let (stated, has) = (tree.entries, (found.len() + found.named.len()) as u64);
    // The smallest node has a key of one byte and no value.
    let most = damaged * (snapshot.page_size / (NODE_HEAD as u64 + 2 + 2));
    match stated.checked_sub(has) {
        Some(lost) if (damaged..=most).contains(&lost) => found.lost = lost,
        _ => {
            let message = format!("{path} states {stated} entries, but its pages hold {has}");
            return Err(Error::corrupt(message).with_hint(
                "it was cut or changed, perhaps by a copy while somebody wrote: make one with mdb_copy",
            ));
        }
    }
    Ok(found)
}

/// A tree that is read.
struct Walk<'a> {
    store: &'a dyn Store,
    path: &'a str,
    snapshot: &'a Snapshot,
    tree: &'a Tree,
}

/// An entry of a page.
struct Node<'a> {
    /// Of a branch: the page below. Of a leaf: bytes of the value.
    number: u64,
    flags: u16,
    key: &'a [u8],
    /// What follows the key, and where it is in the page.
    value: &'a [u8],
    at: usize,
}

impl Walk<'_> {
    fn damaged(&self, page: u64, what: &str) -> Error {
        let offset = page.saturating_mul(self.snapshot.page_size);
        Error::corrupt(format!("page {page} of {} is damaged: {what}", self.path)).with_offset(offset)
    }

    /// Reads pages that follow each other.
    fn read(&self, first: u64, count: usize) -> Result<Vec<u8>> {
        let size = self.snapshot.page_size;
        if first < 2 || first.checked_add(count as u64).is_none_or(|end| end > self.snapshot.pages) {
            return Err(self.damaged(first, &format!("it is none of the {} pages", self.snapshot.pages)));
        }
        let mut bytes = Vec::new();
        self.store.read_range(self.path, first * size, count * size as usize, &mut bytes)?;
        Ok(bytes)
    }

    /// The nodes of a page, in the order of their keys. They must lie in the page, beside each other.
    fn nodes<'a>(&self, page: &'a [u8], number: u64, kind: u16) -> Result<Vec<Node<'a>>> {
        let damaged = |what: &str| Err(self.damaged(number, what));
        let head = (u64_at(page, 0), u16_at(page, 10).map(|flags| flags & PAGE_KIND));
        if head != (Some(number), Some(kind)) {
            return damaged("it does not begin as that page of a tree does");
        }
        let ends = (u16_at(page, 12).map(usize::from), u16_at(page, 14).map(usize::from));
        let (Some(lower), Some(upper)) = ends else { return damaged("it is cut") };
        if lower < PAGE_HEAD + 2 || lower % 2 != 0 || lower > upper || upper > page.len() {
            return damaged(&format!("its nodes lie from byte {upper}, and their places end at {lower}"));
        }
        let mut nodes = Vec::with_capacity((lower - PAGE_HEAD) / 2);
        let mut taken: Vec<(usize, usize)> = Vec::with_capacity(nodes.capacity());
        for place in (PAGE_HEAD..lower).step_by(2) {
            let start = u16_at(page, place).map_or(0, usize::from);
            let node = page.get(start..).filter(|_| start >= upper);
            let head = node.and_then(|node| {
                Some((
                    u32_at(node, 0)?,
                    u16_at(node, 4)?,
                    usize::from(u16_at(node, 6)?),
                    node.get(NODE_HEAD..)?,
                ))
            });
            let Some((low, flags, key_bytes, rest)) = head else {
                return damaged(&format!("a node lies at byte {start}"));
            };
            let (size, number) = match kind {
                BRANCH => (0, u64::from(low) | u64::from(flags) << 32),
                _ if flags & BIG != 0 => (8, u64::from(low)),
                _ => (low as usize, u64::from(low)),
            };
            let parts =
                rest.split_at_checked(key_bytes).and_then(|(key, value)| Some((key, value.get(..size)?)));
            let Some((key, value)) = parts else {
                return damaged(&format!("the node at byte {start} ends beyond it"));
            };
            let at = start + NODE_HEAD + key_bytes;
            taken.push((start, at + size));
            let flags = if kind == BRANCH { 0 } else { flags };
            nodes.push(Node { number, flags, key, value, at });
        }
        taken.sort_unstable();
        if taken.windows(2).any(|pair| pair[0].1 > pair[1].0) {
            return damaged("two of its nodes overlap");
        }
        Ok(nodes)
    }

    /// Checks that keys rise from `least` on, and stay below `most`.
    fn check_order(&self, number: u64, nodes: &[Node<'_>], least: &[u8], most: Option<&[u8]>) -> Result<()> {
        let tree = self.tree;
        let in_order = |a: &[u8], b: &[u8]| tree.ordered(a) < tree.ordered(b);
        let rises = nodes.windows(2).all(|pair| in_order(pair[0].key, pair[1].key));
        // The first page has no least key.
        let begins = nodes.first().is_none_or(|node| least.is_empty() || !in_order(node.key, least));
        let ends = nodes.last().is_none_or(|node| most.is_none_or(|most| in_order(node.key, most)));
        if rises && begins && ends {
            Ok(())
        } else {
            Err(self.damaged(number, "its keys are not in their order"))
        }
    }

    /// Appends the pages below a branch page.
    fn branch(&self, level: &Level, at: usize, below: &mut Level) -> Result<()> {
        let (number, least) = &level[at];
        let page = self.read(*number, 1)?;
        let nodes = self.nodes(&page, *number, BRANCH)?;
        let most = level.get(at + 1).map(|(_, key)| key.as_slice());
        // The first node of a branch has no key of its own.
        self.check_order(*number, nodes.get(1..).unwrap_or_default(), least, most)?;
        for (place, node) in nodes.iter().enumerate() {
            let key = if place == 0 { least.clone() } else { node.key.to_vec() };
            below.push((node.number, key));
        }
        Ok(())
    }

    /// The entries of some leaf pages, and how many of the pages are damaged.
    fn leaves(&self, level: &Level, pages: Range<usize>) -> Result<(Entries, u64)> {
        let (mut found, mut damaged) = (Entries::default(), 0);
        let size = self.snapshot.page_size as usize;
        let mut at = pages.start;
        while at < pages.end {
            let first = level[at].0;
            let mut count = 1;
            while at + count < pages.end && first.checked_add(count as u64) == Some(level[at + count].0) {
                count += 1;
            }
            let together = self.read(first, count);
            for place in 0..count {
                let number = level[at + place].0;
                let alone;
                let page = match &together {
                    Ok(bytes) => bytes.get(place * size..(place + 1) * size).unwrap_or_default(),
                    Err(e) if e.kind() != ErrorKind::Corrupt => return Err(e.clone()),
                    // Of pages beyond the end of the file, those in front of it are still good.
                    Err(_) => {
                        alone = match self.read(number, 1) {
                            Err(e) if e.kind() != ErrorKind::Corrupt => return Err(e),
                            read => read.unwrap_or_default(),
                        };
                        alone.as_slice()
                    }
                };
                match self.leaf(level, at + place, page, &mut found) {
                    Ok(()) => {}
                    Err(e) if e.kind() == ErrorKind::Corrupt => {
                        damaged += 1;
                        found.damage.get_or_insert(e);
                    }
                    Err(e) => return Err(e),
                }
            }
            at += count;
        }
        Ok((found, damaged))
    }

    /// Takes the entries of a leaf page, or none of them.
    fn leaf(&self, level: &Level, at: usize, page: &[u8], found: &mut Entries) -> Result<()> {
        let (number, least) = &level[at];
        if page.is_empty() {
            return Err(self.damaged(*number, "the file ends in front of it"));
        }
        let nodes = self.nodes(page, *number, LEAF)?;
        let most = level.get(at + 1).map(|(_, key)| key.as_slice());
        self.check_order(*number, &nodes, least, most)?;
        if nodes.iter().any(|node| node.key.is_empty() || node.flags & !(BIG | NAMED | SEVERAL) != 0) {
            return Err(self.damaged(*number, "it has a node without a key, or of a kind that there is not"));
        }
        for node in &nodes {
            if node.flags & SEVERAL != 0 {
                let key = node.key.escape_ascii();
                let message = format!("{} has several values for the key {key} (DUPSORT)", self.path);
                return Err(Error::new(ErrorKind::Unsupported, message)
                    .with_hint("write a database with one value for each key"));
            }
        }
        for node in nodes {
            if node.flags & NAMED != 0 {
                let tree = Tree::of(node.value).filter(|_| node.value.len() == 48);
                let tree = tree.ok_or_else(|| self.damaged(*number, "a database in it has no root"))?;
                found.named.push((node.key.to_vec(), tree));
                continue;
            }
            let (at, bytes) = if node.flags & BIG == 0 {
                (number * self.snapshot.page_size + node.at as u64, node.number)
            } else {
                let first = u64_at(node.value, 0).unwrap_or(0);
                let at =
                    first.checked_mul(self.snapshot.page_size).and_then(|at| at.checked_add(OVERFLOW_HEAD));
                // One outside of the file is a bad sample, which is known by its key: it is found when it is read.
                let at = at.filter(|at| first >= 2 && self.snapshot.inside(*at, node.number));
                (at.unwrap_or(NOWHERE) | Place::OWN_PAGES, node.number)
            };
            found.push(node.key, Place { at, bytes: u32::try_from(bytes).unwrap_or(u32::MAX) });
        }
        Ok(())
    }
}

/// Where values lie that their node puts outside of the file.
pub(super) const NOWHERE: u64 = (1 << 63) - 1;

fn no_file(path: &str, why: &str) -> Error {
    Error::corrupt(format!("{path} is no LMDB file that can be read: {why}"))
        .with_hint("it was cut or changed, perhaps by a copy while somebody wrote: make one with mdb_copy")
}

/// The error of a file that changes faster than it can be listed.
pub(super) fn changing(path: &str) -> Error {
    Error::new(ErrorKind::Changed, format!("{path} changed again and again while it was opened"))
        .with_hint("open it after the writer is done, or read a copy of it (mdb_copy)")
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at.checked_add(2)?)?.try_into().ok().map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at.checked_add(8)?)?.try_into().ok().map(u64::from_le_bytes)
}
