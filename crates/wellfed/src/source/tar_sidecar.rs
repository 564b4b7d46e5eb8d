//! A shard index as a file beside its shard, so that opening a large data set reads no headers.
//!
//! The file is trusted no more than the shard: a version, the shard's size and time of change, and a checksum must
//! fit, and every offset is checked. Whatever does not fit means that the index is built anew.
//!
//! An upload gives a shard another time. In a store that answers later, where building an index means to download the shard, an
//! index that fits but for the time is taken, too. Each member's header is then read with its data and must be as the index has it
//! ([`fits_header`]): a shard that is another one in truth is an error of the samples that it concerns, and never other data.
//!
//! ```text
//! "wellfed-tar\n"  version u32  shard size u64  shard time i128  payload bytes u64  FNV-1a of payload u64  payload
//! payload: keys, extensions, broken, firsts, members, repeated, ignored u64     all numbers little-endian
//! ```

use super::{
    tar_header::{self, BLOCK, Kind},
    tar_index::{Member, ShardIndex},
};
use crate::{
    Error, ErrorKind, Result,
    store::{Stat, Store, listing::Names},
};

const MAGIC: &[u8; 12] = b"wellfed-tar\n";
const VERSION: u32 = 2;
const HEADER: usize = 12 + 4 + 8 + 16 + 8 + 8;

/// Where the index of `shard` is kept.
pub(super) fn path_of(shard: &str) -> String {
    format!("{shard}.wfidx")
}

/// Bytes after the last member that are looked at: tar fills up to 10 KiB.
const MOST_AFTER: u64 = 64 << 10;

/// An index that was kept.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) index: ShardIndex,
    /// It is of a copy of the shard, as far as is known: headers have to be checked.
    pub(super) copied: bool,
}

/// The kept index of `shard`, if there is one and it fits.
pub(super) fn load(store: &dyn Store, shard: &str, stat: &Stat) -> Option<Kept> {
    let path = path_of(shard);
    // No index is larger than its shard: 16 bytes of index stand for at least 512 of shard, and names are shorter
    // than the headers they come from.
    let most = stat.size.saturating_add(4096);
    let mut file = Vec::new();
    store.read(&path, most, &mut file).ok()?;
    let mut reader = Reader(&file);
    let fits = reader.take(12)? == MAGIC && reader.u32()? == VERSION && reader.u64()? == stat.size;
    let copied = fits && reader.take(16)? != stat.modified.to_le_bytes();
    let fits = fits
        && reader.u64()? == file.len().checked_sub(HEADER)? as u64
        && reader.u64()? == checksum(reader.0);
    let index = if fits { decode(reader, stat.size)? } else { return None };
    if copied && !(store.remote().is_some() && can_be_checked(&index) && ends(store, shard, stat, &index)) {
        return None;
    }
    Some(Kept { index, copied })
}

/// Whether headers of members have what the index says of them: their names, which other headers may replace, and sizes.
fn can_be_checked(index: &ShardIndex) -> bool {
    let plain = |text: &str| text.is_ascii() && !text.contains('\\');
    index.keys.iter().chain(index.extensions.iter()).all(plain)
        && index.members.iter().all(|member| {
            !member.is_link() && !member.is_sparse() && member.size() < 8 << 30 && member.block > 0
        })
}

/// Whether nothing but zeros follows the last member: there are no more members than the index has.
fn ends(store: &dyn Store, shard: &str, stat: &Stat, index: &ShardIndex) -> bool {
    let ends = index.members.iter().map(|member| member.offset() + member.size().next_multiple_of(BLOCK));
    let end = ends.max().unwrap_or(0);
    let Some(after) = stat.size.checked_sub(end).filter(|after| *after <= MOST_AFTER) else { return false };
    let mut bytes = Vec::new();
    store.read_range(shard, end, after as usize, &mut bytes).is_ok() && bytes.iter().all(|byte| *byte == 0)
}

/// Whether `header`, which lies before the data of `member` of the sample `key`, is the one that the index was made of.
///
/// # Errors
/// [`ErrorKind::Changed`] if not.
pub(super) fn fits_header(
    header: &[u8],
    (shard, key, extension): (&str, &str, &str),
    member: Member,
) -> Result<()> {
    let found = header.try_into().map_err(|_| "its header is cut".to_owned()).and_then(tar_header::parse);
    let name = format!("{key}.{extension}");
    let other = match found {
        Err(message) => message,
        Ok(found) if found.kind != Kind::File => "its header is of something else than a file".to_owned(),
        // A size in pax records stands for one that has no room here, which none of these has.
        Ok(found) if found.size != member.size() => format!("its header says {} bytes", found.size),
        Ok(found) => {
            let (have, want) = (found.name.to_ascii_lowercase(), name.to_ascii_lowercase().into_bytes());
            // A long name stands elsewhere, too: here is its beginning.
            let begins = have.len() >= 99 && want.len() > have.len() && want.starts_with(&have);
            if have == want || begins {
                return Ok(());
            }
            format!("its header names {}", String::from_utf8_lossy(&found.name))
        }
    };
    let size = member.size();
    let message = format!("{} says that {name} has {size} bytes there: {other}", path_of(shard));
    Err(Error::new(ErrorKind::Changed, message)
        .with_hint("the index is not of this shard: remove it, and index=\"sidecar\" makes it anew"))
}

/// Keeps the index of `shard`. A folder that cannot be written is no error: the next run builds the index again.
pub(super) fn save(store: &dyn Store, shard: &str, stat: &Stat, index: &ShardIndex) {
    // A damaged shard may still be being written.
    if index.damage.is_none() {
        let _ = store.write(&path_of(shard), &encode(stat, index));
    }
}

/// FNV-1a, 64 bits: <http://www.isthe.com/chongo/tech/comp/fnv/>. Against accidents, not against intent.
fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, b| (hash ^ u64::from(*b)).wrapping_mul(0x0000_0100_0000_01b3))
}

fn encode(stat: &Stat, index: &ShardIndex) -> Vec<u8> {
    let mut payload = Vec::new();
    let number = |payload: &mut Vec<u8>, n: usize| payload.extend_from_slice(&(n as u64).to_le_bytes());
    for names in [&index.keys, &index.extensions, &index.broken] {
        let (text, ends) = names.parts();
        number(&mut payload, text.len());
        payload.extend_from_slice(text.as_bytes());
        put_u32s(&mut payload, ends);
    }
    put_u32s(&mut payload, &index.firsts);
    number(&mut payload, index.members.len());
    for member in &index.members {
        payload.extend_from_slice(&member.block.to_le_bytes());
        payload.extend_from_slice(&member.extension.to_le_bytes());
        payload.extend_from_slice(&member.size.to_le_bytes());
    }
    put_u32s(&mut payload, &index.repeated);
    payload.extend_from_slice(&index.ignored.to_le_bytes());
    let mut file = Vec::with_capacity(HEADER + payload.len());
    file.extend_from_slice(MAGIC);
    file.extend_from_slice(&VERSION.to_le_bytes());
    file.extend_from_slice(&stat.size.to_le_bytes());
    file.extend_from_slice(&stat.modified.to_le_bytes());
    file.extend_from_slice(&(payload.len() as u64).to_le_bytes());
    file.extend_from_slice(&checksum(&payload).to_le_bytes());
    file.extend_from_slice(&payload);
    file
}

fn put_u32s(payload: &mut Vec<u8>, numbers: &[u32]) {
    payload.extend_from_slice(&(numbers.len() as u64).to_le_bytes());
    numbers.iter().for_each(|n| payload.extend_from_slice(&n.to_le_bytes()));
}

fn decode(mut reader: Reader<'_>, shard_size: u64) -> Option<ShardIndex> {
    let (keys, extensions, broken) = (reader.names()?, reader.names()?, reader.names()?);
    let firsts = reader.u32s()?;
    let count = reader.count(16)?;
    let mut members = Vec::with_capacity(count);
    for _ in 0..count {
        members.push(Member { block: reader.u32()?, extension: reader.u32()?, size: reader.u64()? });
    }
    let (repeated, ignored) = (reader.u32s()?, reader.u64()?);
    let fits = reader.0.is_empty()
        && firsts.len() == keys.len()
        && firsts.first().is_none_or(|first| *first == 0)
        && firsts.is_sorted_by(|a, b| a < b)
        && firsts.last().map_or(members.is_empty(), |last| (*last as usize) < members.len())
        && repeated.iter().all(|i| (*i as usize) < keys.len())
        && members.iter().all(|m| {
            let end = m.offset().checked_add(m.size());
            (m.extension as usize) < extensions.len()
                && end.is_some_and(|end| end <= shard_size)
                && m.broken().is_none_or(|number| number < broken.len())
        });
    fits.then_some(ShardIndex { keys, firsts, members, extensions, repeated, ignored, broken, damage: None })
}

/// What is left of the file.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    /// A number of things of `size` bytes that are really there.
    fn count(&mut self, size: usize) -> Option<usize> {
        let count = usize::try_from(self.u64()?).ok()?;
        (count.checked_mul(size)? <= self.0.len()).then_some(count)
    }

    fn u32s(&mut self) -> Option<Vec<u32>> {
        let count = self.count(4)?;
        let bytes = self.take(count * 4)?;
        Some(bytes.chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect())
    }

    fn names(&mut self) -> Option<Names> {
        let len = self.count(1)?;
        let text = String::from_utf8(self.take(len)?.to_vec()).ok()?;
        Names::from_parts(text, self.u32s()?)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tar_index::tests::tar, *};
    use crate::{store::LocalStore, testing::TempFolder};

    #[test]
    fn a_kept_index_is_used_until_it_no_longer_fits() {
        let folder = TempFolder::new();
        let store = LocalStore::new();
        let path = folder
            .write("x.tar", &tar(&[("a.jpg", &[1; 700]), ("a.cls", b"1"), ("ü.jpg", b""), ("a.jpg", b"")]));
        let stat = store.stat(&path).unwrap();
        assert!(load(&store, &path, &stat).is_none());
        let index = ShardIndex::scan(&store, &path).unwrap();
        save(&store, &path, &stat, &index);
        assert_eq!(load(&store, &path, &stat).unwrap(), Kept { index, copied: false });
        for other in [Stat { size: stat.size + 1, ..stat }, Stat { modified: stat.modified + 1, ..stat }] {
            assert!(load(&store, &path, &other).is_none());
        }
        let good = std::fs::read(path_of(&path)).unwrap();
        for cut in 0..good.len() {
            std::fs::write(path_of(&path), &good[..cut]).unwrap();
            assert!(load(&store, &path, &stat).is_none(), "cut at {cut}");
        }
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            std::fs::write(path_of(&path), &bad).unwrap();
            assert!(load(&store, &path, &stat).is_none(), "flipped at {at}");
            // The same with a checksum that fits: it may be believed, but must not break anything.
            let sum = checksum(&bad[HEADER.min(bad.len())..]);
            bad[HEADER - 8..HEADER].copy_from_slice(&sum.to_le_bytes());
            std::fs::write(path_of(&path), &bad).unwrap();
            if let Some(Kept { index, .. }) = load(&store, &path, &stat) {
                let members = (0..index.len()).map(|i| index.sample(i).len()).sum::<usize>();
                assert_eq!(members, index.members.len());
                index
                    .members
                    .iter()
                    .for_each(|m| assert!(!index.extension(*m).is_empty() || m.size() < 5000));
            }
        }
    }

    #[test]
    fn a_damaged_shard_keeps_no_index() {
        let folder = TempFolder::new();
        let store = LocalStore::new();
        let bytes = tar(&[("a.jpg", &[1; 700])]);
        let path = folder.write("x.tar", &bytes[..800]);
        let index = ShardIndex::scan(&store, &path).unwrap();
        save(&store, &path, &store.stat(&path).unwrap(), &index);
        assert!(!std::path::Path::new(&path_of(&path)).exists());
    }
}
