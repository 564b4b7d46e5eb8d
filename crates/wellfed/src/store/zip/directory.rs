//! What lies where in a zip archive, by its central directory: read by position, from the end.
//!
//! ```text
//! [local header, name, data]...  [central directory: one header and name a member]  [zip64 end, locator]  end, comment
//! ```
//!
//! Format: <https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT>. The central directory is believed about sizes,
//! checksums and places; a member is handed out only if the header in front of its data has the same name and method, and
//! the data have the size and the CRC-32 that the directory states. So bytes that changed anywhere in a member are an error
//! of it. The directory itself has no checksum: where it stops making sense is [`Damage`].

use std::ops::Range;

use flate2::{Decompress, FlushDecompress, Status};

use crate::{
    Error, ErrorKind, Limits, Result,
    store::{EntryKind, Store, reserve},
};

const END: &[u8] = b"PK\x05\x06";
const END_64: &[u8] = b"PK\x06\x06";
const LOCATOR_64: &[u8] = b"PK\x06\x07";
const CENTRAL: &[u8] = b"PK\x01\x02";
const LOCAL: &[u8] = b"PK\x03\x04";
const SIGNATURE: &[u8] = b"PK\x05\x05";

const END_BYTES: usize = 22;
const LOCATOR_BYTES: usize = 20;
const END_64_BYTES: usize = 56;
const CENTRAL_BYTES: usize = 46;
const LOCAL_BYTES: usize = 30;

/// Bytes around the data of a member at most: header, name and extra field in front, sizes and checksum behind.
const AROUND: u64 = LOCAL_BYTES as u64 + 2 * 0xFFFF + 24;

const STORED: u16 = 0;
const DEFLATED: u16 = 8;

/// Bit of a member's flags: it is encrypted.
const ENCRYPTED: u16 = 1;

/// What a link is among Unix file types.
const S_IFMT: u32 = 0o170_000;
const S_IFLNK: u32 = 0o120_000;

/// One member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    /// Where its name ends among all names.
    name_end: usize,
    /// Where its local header lies.
    offset: u64,
    /// Where the next member, or what follows them all, begins.
    end: u64,
    packed: u64,
    size: u64,
    crc: u32,
    method: u16,
    encrypted: bool,
    link: bool,
}

/// Where a directory stops making sense, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Damage {
    pub(crate) offset: u64,
    pub(crate) message: String,
}

/// The members of one archive, in the directory's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Directory {
    path: String,
    names: Vec<u8>,
    entries: Vec<Entry>,
    damage: Option<Damage>,
}

/// Little-endian numbers of a header.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn u16(&self, at: usize) -> u16 {
        self.0.get(at..at + 2).map_or(0, |b| u16::from_le_bytes([b[0], b[1]]))
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from(self.u16(at)) | u32::from(self.u16(at + 2)) << 16
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from(self.u32(at)) | u64::from(self.u32(at + 4)) << 32
    }
}

/// Where the central directory lies.
struct Place {
    start: u64,
    len: u64,
    /// Members that it has.
    count: u64,
    /// Bytes in front of the archive, as of one that unpacks itself: offsets do not count them.
    shift: u64,
}

impl Directory {
    /// Reads the directory of the archive `path`. An archive that is cut has none: it has no members, and is damaged.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for an archive in several files; those of the store.
    pub(crate) fn read(store: &dyn Store, path: &str) -> Result<Self> {
        let stat = store.stat(path)?;
        if stat.kind == EntryKind::Folder {
            return Err(Error::config(format!("{path} is a folder, not a zip archive")));
        }
        let place = match find(store, path, stat.size)? {
            Ok(place) => place,
            Err(what) => {
                let damage = Damage { offset: stat.size, message: what.to_owned() };
                let path = path.to_owned();
                return Ok(Self { path, names: Vec::new(), entries: Vec::new(), damage: Some(damage) });
            }
        };
        let too_large = || Error::limit(path, place.len, usize::MAX as u64, "bytes of directory");
        let mut bytes = Vec::new();
        store.read_range(
            path,
            place.start,
            usize::try_from(place.len).map_err(|_| too_large())?,
            &mut bytes,
        )?;
        Ok(Self::parse(path, &bytes, &place))
    }

    fn parse(path: &str, bytes: &[u8], place: &Place) -> Self {
        let mut this = Self { path: path.to_owned(), names: Vec::new(), entries: Vec::new(), damage: None };
        let mut at = 0;
        while (this.entries.len() as u64) < place.count {
            match this.push(bytes.get(at..).unwrap_or_default(), place.shift) {
                Some(next) => at += next,
                None => break,
            }
        }
        let rest = bytes.get(at..).unwrap_or_default();
        let (found, stated) = (this.entries.len(), place.count);
        if found as u64 != stated {
            let message = format!("its directory states {stated} members, but makes no sense after {found}");
            this.damage = Some(Damage { offset: place.start + at as u64, message });
        } else if !rest.is_empty() && !rest.starts_with(SIGNATURE) {
            let message =
                format!("its directory has {} bytes after the {stated} members that it states", rest.len());
            this.damage = Some(Damage { offset: place.start + at as u64, message });
        }
        let mut starts: Vec<u64> = this.entries.iter().map(|entry| entry.offset).collect();
        starts.sort_unstable();
        for entry in &mut this.entries {
            let next = starts.partition_point(|start| *start <= entry.offset);
            let next = starts.get(next).copied().unwrap_or(u64::MAX).min(place.start);
            entry.end = next.min(entry.offset.saturating_add(entry.packed).saturating_add(AROUND));
        }
        this
    }

    /// Adds the member whose header `bytes` begin with, and gives the length of all that belongs to it.
    fn push(&mut self, bytes: &[u8], shift: u64) -> Option<usize> {
        if !bytes.starts_with(CENTRAL) || bytes.len() < CENTRAL_BYTES {
            return None;
        }
        let fields = Fields(bytes);
        let lens = [fields.u16(28), fields.u16(30), fields.u16(32)].map(usize::from);
        let name = bytes.get(CENTRAL_BYTES..CENTRAL_BYTES + lens[0])?;
        let extra = bytes.get(CENTRAL_BYTES + lens[0]..CENTRAL_BYTES + lens[0] + lens[1])?;
        let len = CENTRAL_BYTES + lens[0] + lens[1] + lens[2];
        bytes.get(..len)?;
        let (packed, size, offset) = sizes(&fields, extra)?;
        self.names.extend_from_slice(name);
        self.entries.push(Entry {
            name_end: self.names.len(),
            offset: offset.checked_add(shift)?,
            end: 0,
            packed,
            size,
            crc: fields.u32(16),
            method: fields.u16(10),
            encrypted: fields.u16(8) & ENCRYPTED != 0,
            // The upper half are attributes of Unix if that made it, and zero otherwise.
            link: (fields.u32(38) >> 16) & S_IFMT == S_IFLNK,
        });
        Some(len)
    }

    /// Number of members, folders included.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Where the directory stops making sense, if it does. The members before are as it says.
    pub(crate) fn damage(&self) -> Option<&Damage> {
        self.damage.as_ref()
    }

    /// Name of member `index` as the archive has it: a path whose folders end with `/`.
    pub(crate) fn name(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).and_then(|i| self.entries.get(i)).map_or(0, |entry| entry.name_end);
        let end = self.entries.get(index).map_or(start, |entry| entry.name_end);
        self.names.get(start..end).unwrap_or_default()
    }

    /// Bytes of member `index`, unpacked.
    pub(crate) fn size(&self, index: usize) -> u64 {
        self.entries.get(index).map_or(0, |entry| entry.size)
    }

    /// Where the header of member `index` lies.
    pub(crate) fn offset(&self, index: usize) -> u64 {
        self.entries.get(index).map_or(0, |entry| entry.offset)
    }

    fn entry(&self, index: usize) -> Result<&Entry> {
        let missing = || Error::new(ErrorKind::Internal, format!("{} has no member {index}", self.path));
        self.entries.get(index).ok_or_else(missing)
    }

    fn shown(&self, index: usize) -> String {
        format!("{}!/{}", self.path, String::from_utf8_lossy(self.name(index)))
    }

    /// Which bytes of the archive member `index` is made of, its header included.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for what cannot be read (encrypted, a link, another method than stored and deflated);
    /// [`ErrorKind::Limit`] above `limits`; [`ErrorKind::Corrupt`] for a place that cannot be.
    pub(crate) fn extent(&self, index: usize, limits: &Limits) -> Result<Range<u64>> {
        let entry = self.entry(index)?;
        let unsupported = |what: String, hint: &str| {
            let message = format!("cannot read {}: {what}", self.shown(index));
            Err(Error::new(ErrorKind::Unsupported, message).with_offset(entry.offset).with_hint(hint))
        };
        if entry.encrypted {
            return unsupported("it is encrypted".to_owned(), "write the archive without a password");
        }
        if entry.method != STORED && entry.method != DEFLATED {
            let what = format!("its compression is {}, not stored or deflated", method_name(entry.method));
            return unsupported(what, "write the archive with `zip -0` or `zip -6`");
        }
        if entry.link {
            let hint = "write the archive with its links followed: zip without --symlinks";
            return unsupported("it is a symbolic link".to_owned(), hint);
        }
        let larger = entry.size.max(entry.packed);
        limits.check_bytes(&self.shown(index), larger).map_err(|e| e.with_offset(entry.offset))?;
        if entry.end < entry.offset.saturating_add(entry.packed).saturating_add(LOCAL_BYTES as u64) {
            let (packed, at, end) = (entry.packed, entry.offset, entry.end);
            return Err(
                self.corrupt(index, &format!("{packed} bytes at byte {at} would reach beyond byte {end}"))
            );
        }
        Ok(entry.offset..entry.end)
    }

    /// Appends member `index` to `into`, unpacked and checked. `bytes` are those of its [`Directory::extent`].
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] for another header, size or checksum; then `into` holds what it held before.
    pub(crate) fn unpack(&self, index: usize, bytes: &[u8], into: &mut Vec<u8>) -> Result<()> {
        let (entry, data) = (self.entry(index)?, self.data(index, bytes)?);
        let data = bytes.get(data).unwrap_or_default();
        let before = into.len();
        let size = usize::try_from(entry.size).map_err(|_| Error::memory(usize::MAX, self.shown(index)))?;
        if entry.method == STORED {
            reserve(into, size, &self.path)?;
            into.extend_from_slice(data);
        } else {
            // One byte more than there are, so that a member with more of them is told apart.
            reserve(into, size.saturating_add(1), &self.path)?;
            let mut inflate = Decompress::new(false);
            let status = inflate.decompress_vec(data, into, FlushDecompress::Finish);
            let whole = matches!(status, Ok(Status::StreamEnd)) && inflate.total_in() == data.len() as u64;
            if !whole || into.len() - before != size {
                into.truncate(before);
                return Err(self.corrupt(index, "its deflated data are damaged"));
            }
        }
        self.check(index, into.get(before..).unwrap_or_default()).inspect_err(|_| into.truncate(before))
    }

    /// Reads member `index` of `store`, appends it to `into`, unpacked and checked.
    ///
    /// # Errors
    /// As [`Directory::extent`] and [`Directory::unpack`], and those of the store.
    pub(crate) fn read_member(
        &self,
        store: &dyn Store,
        index: usize,
        limits: &Limits,
        into: &mut Vec<u8>,
    ) -> Result<()> {
        let extent = self.extent(index, limits)?;
        let len = usize::try_from(extent.end - extent.start).unwrap_or(usize::MAX);
        if self.entry(index)?.method == DEFLATED {
            let mut packed = Vec::new();
            store.read_range(&self.path, extent.start, len, &mut packed)?;
            return self.unpack(index, &packed, into);
        }
        // Straight to where it is wanted: only what surrounds the data is taken away again.
        let before = into.len();
        store.read_range(&self.path, extent.start, len, into)?;
        let result = self.data(index, into.get(before..).unwrap_or_default()).and_then(|data| {
            into.truncate(before + data.end);
            into.drain(before..before + data.start);
            self.check(index, into.get(before..).unwrap_or_default())
        });
        result.inspect_err(|_| into.truncate(before))
    }

    /// Where the data lie in the bytes of member `index`, whose header is checked.
    fn data(&self, index: usize, bytes: &[u8]) -> Result<Range<usize>> {
        let (entry, fields) = (self.entry(index)?, Fields(bytes));
        if !bytes.starts_with(LOCAL) || bytes.len() < LOCAL_BYTES {
            return Err(self.corrupt(index, &format!("it has no header at byte {}", entry.offset)));
        }
        let name_end = LOCAL_BYTES + usize::from(fields.u16(26));
        if bytes.get(LOCAL_BYTES..name_end) != Some(self.name(index)) || fields.u16(8) != entry.method {
            return Err(self.corrupt(index, "the header in front of its data is another member's"));
        }
        let start = name_end + usize::from(fields.u16(28));
        let packed = usize::try_from(entry.packed).unwrap_or(usize::MAX);
        let end = start.saturating_add(packed);
        if end > bytes.len() || (entry.method == STORED && entry.packed != entry.size) {
            return Err(self.corrupt(index, "its sizes do not fit where it lies"));
        }
        Ok(start..end)
    }

    fn check(&self, index: usize, data: &[u8]) -> Result<()> {
        let (stated, found) = (self.entry(index)?.crc, crc32fast::hash(data));
        if stated == found {
            return Ok(());
        }
        Err(self.corrupt(
            index,
            &format!("its CRC-32 is {found:08x}, and not {stated:08x} as the archive states"),
        ))
    }

    fn corrupt(&self, index: usize, what: &str) -> Error {
        Error::corrupt(format!("{} is damaged: {what}", self.shown(index))).with_offset(self.offset(index))
    }
}

/// Packed size, size and offset of a central header: 64-bit ones, where they do not fit, stand in the extra field.
fn sizes(fields: &Fields<'_>, mut extra: &[u8]) -> Option<(u64, u64, u64)> {
    let narrow = [fields.u32(24), fields.u32(20), fields.u32(42)];
    let mut wide = narrow.map(u64::from);
    if narrow.contains(&u32::MAX) {
        let mut found: &[u8] = &[];
        while extra.len() >= 4 {
            let len = usize::from(Fields(extra).u16(2));
            let data = extra.get(4..4 + len)?;
            if Fields(extra).u16(0) == 1 {
                found = data;
            }
            extra = &extra[4 + len..];
        }
        for (value, narrow) in wide.iter_mut().zip(narrow) {
            if narrow == u32::MAX && found.len() >= 8 {
                *value = Fields(found).u64(0);
                found = &found[8..];
            }
        }
    }
    Some((wide[1], wide[0], wide[2]))
}

/// Where the directory of an archive of `size` bytes lies, or what speaks against it.
fn find(store: &dyn Store, path: &str, size: u64) -> Result<Result<Place, &'static str>> {
    let most = (END_BYTES + 0xFFFF + LOCATOR_BYTES) as u64;
    let (start, len) = (size.saturating_sub(most), size.min(most) as usize);
    let mut tail = Vec::new();
    store.read_range(path, start, len, &mut tail)?;
    let is_end = |at: &usize| {
        let end = tail.get(*at..).unwrap_or_default();
        end.starts_with(END) && end.len() == END_BYTES + usize::from(Fields(end).u16(20))
    };
    let at = (0..(tail.len() + 1).saturating_sub(END_BYTES)).rev().find(is_end);
    let Some(at) = at else { return Ok(Err("it does not end with a directory, as zip archives do")) };
    let end = Fields(&tail[at..]);
    let mut disks = [u32::from(end.u16(4)), u32::from(end.u16(6))];
    let mut counts = [u64::from(end.u16(8)), u64::from(end.u16(10))];
    let (mut len, mut offset) = (u64::from(end.u32(12)), u64::from(end.u32(16)));
    // Where the directory ends, since nothing may lie between it and what follows.
    let mut behind = start + at as u64;
    let locator = at.checked_sub(LOCATOR_BYTES).and_then(|at| tail.get(at..at + LOCATOR_BYTES));
    if let Some(locator) = locator.filter(|bytes| bytes.starts_with(LOCATOR_64)) {
        let stated = Fields(locator).u64(8);
        let in_front = behind.checked_sub((LOCATOR_BYTES + END_64_BYTES) as u64);
        let mut found = None;
        for place in [Some(stated), in_front].into_iter().flatten() {
            let mut wide = Vec::new();
            if place.saturating_add(END_64_BYTES as u64) > size {
                continue;
            }
            store.read_range(path, place, END_64_BYTES, &mut wide)?;
            if wide.starts_with(END_64) {
                found = Some((place, wide));
                break;
            }
        }
        let Some((place, wide)) = found else {
            return Ok(Err("its zip64 directory is not where it should be"));
        };
        let wide = Fields(&wide);
        disks = [wide.u32(16), wide.u32(20)];
        counts = [wide.u64(24), wide.u64(32)];
        (len, offset, behind) = (wide.u64(40), wide.u64(48), place);
    }
    if disks != [0, 0] || counts[0] != counts[1] {
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!("{path} is one of several parts of a zip archive"),
        )
        .with_hint("join them: zip -s 0 parts.zip --out whole.zip"));
    }
    let Some(start) = behind.checked_sub(len) else {
        return Ok(Err("its directory is larger than the archive"));
    };
    let Some(shift) = start.checked_sub(offset) else { return Ok(Err("its directory lies beyond its end")) };
    Ok(Ok(Place { start, len, count: counts[0], shift }))
}

fn method_name(method: u16) -> String {
    match method {
        9 => "deflate64".to_owned(),
        12 => "bzip2".to_owned(),
        14 => "lzma".to_owned(),
        93 => "zstd".to_owned(),
        95 => "xz".to_owned(),
        99 => "AES".to_owned(),
        other => format!("method {other}"),
    }
}
