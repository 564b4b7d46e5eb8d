//! Object headers, versions 1 and 2: section "IV.A". An object is a list of messages, which may go on in other blocks.

use std::collections::HashSet;

use wellfed::{Error, ErrorKind, Result};

use crate::{
    cursor::{Cursor, Sizes},
    file::File,
};

/// Bytes of all blocks of one header, at most: attributes of data sets may be large, and lie there too.
const MOST: u64 = 64 << 20;

/// Kinds of messages: section "IV.A.2".
pub(crate) mod kind {
    pub(crate) const DATASPACE: u16 = 0x01;
    pub(crate) const LINK_INFO: u16 = 0x02;
    pub(crate) const DATATYPE: u16 = 0x03;
    pub(crate) const FILL_VALUE_OLD: u16 = 0x04;
    pub(crate) const FILL_VALUE: u16 = 0x05;
    pub(crate) const LINK: u16 = 0x06;
    pub(crate) const EXTERNAL_FILES: u16 = 0x07;
    pub(crate) const LAYOUT: u16 = 0x08;
    pub(crate) const FILTERS: u16 = 0x0B;
    pub(super) const CONTINUATION: u16 = 0x10;
    pub(crate) const SYMBOL_TABLE: u16 = 0x11;
}

/// One message.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) kind: u16,
    pub(crate) data: Vec<u8>,
    /// Whether the data only says where the message lies.
    shared: bool,
    /// Of the header.
    pub(crate) address: u64,
}

impl Message {
    pub(crate) fn cursor(&self, sizes: Sizes, what: &'static str) -> Cursor<'_> {
        Cursor::new(&self.data, sizes, what, self.address)
    }
}

/// All messages of an object.
#[derive(Debug)]
pub(crate) struct Header {
    pub(crate) address: u64,
    messages: Vec<Message>,
}

impl Header {
    /// The first message of a kind, if there is one, from where it lies.
    pub(crate) fn get(&self, file: &File<'_>, kind: u16) -> Result<Option<Message>> {
        match self.messages.iter().find(|message| message.kind == kind) {
            Some(message) if message.shared => shared(file, message).map(Some),
            found => Ok(found.cloned()),
        }
    }

    pub(crate) fn has(&self, kind: u16) -> bool {
        self.messages.iter().any(|message| message.kind == kind)
    }

    /// All messages of a kind that is never shared.
    pub(crate) fn all(&self, kind: u16) -> impl Iterator<Item = &Message> {
        self.messages.iter().filter(move |message| message.kind == kind)
    }
}

/// The message that a shared one stands for: section "IV.A.1.c … Shared Message". Types of data are shared when they have a name.
fn shared(file: &File<'_>, message: &Message) -> Result<Message> {
    let mut cursor = message.cursor(file.sizes(), "a shared message");
    let (version, kind) = (cursor.u8()?, cursor.u8()?);
    let address = match (version, kind) {
        (1, _) => {
            cursor.skip(6)?;
            cursor.defined()?
        }
        (2, _) | (3, 2) => cursor.defined()?,
        _ => {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("a message (0x{:x}) is in the file's heap of shared messages", message.kind),
            )
            .with_hint("write the file again with `h5repack`"));
        }
    };
    let header = read(file, address)?;
    let found = header.messages.into_iter().find(|other| other.kind == message.kind && !other.shared);
    found.ok_or_else(|| {
        Error::corrupt(format!("a shared message (0x{:x}) is not where it should be", message.kind))
            .with_offset(address)
    })
}

/// Reads the header at `address`.
///
/// # Errors
/// [`ErrorKind::Corrupt`] for damage, [`ErrorKind::Unsupported`] for other versions.
pub(crate) fn read(file: &File<'_>, address: u64) -> Result<Header> {
    let start = file.pages.read(address, 16).map_err(|e| e.with_offset(address))?;
    if start.starts_with(b"OHDR") { read_v2(file, address) } else { read_v1(file, address, &start) }
}

/// Blocks of a header that are still to be read.
struct Blocks {
    left: Vec<(u64, u64)>,
    seen: HashSet<u64>,
    bytes: u64,
}

impl Blocks {
    fn new(address: u64, len: u64) -> Self {
        Self { left: vec![(address, len)], seen: HashSet::from([address]), bytes: 0 }
    }

    /// Notes where a header goes on.
    fn push(&mut self, message: &Message, sizes: Sizes) -> Result<()> {
        let mut cursor = message.cursor(sizes, "an object header");
        let (address, len) = (cursor.defined()?, cursor.length()?);
        self.bytes = self.bytes.saturating_add(len);
        if !self.seen.insert(address) || self.bytes > MOST {
            return Err(cursor.damaged("its parts go round in circles"));
        }
        self.left.push((address, len));
        Ok(())
    }

    fn next(&mut self) -> Option<(u64, u64)> {
        (!self.left.is_empty()).then(|| self.left.remove(0))
    }
}

fn read_v1(file: &File<'_>, address: u64, start: &[u8]) -> Result<Header> {
    let sizes = file.sizes();
    let mut cursor = Cursor::new(start, sizes, "an object header", address);
    let version = cursor.u8()?;
    if version != 1 {
        return Err(cursor.damaged(&format!("its version is {version}")));
    }
    cursor.skip(1)?;
    let count = usize::from(cursor.u16()?);
    cursor.skip(4)?;
    let size = u64::from(cursor.u32()?);
    let mut messages = Vec::new();
    let mut blocks = Blocks::new(address.saturating_add(16), size);
    while let Some((at, len)) = blocks.next() {
        let bytes = file.pages.read(at, len)?;
        let mut cursor = Cursor::new(&bytes, sizes, "an object header", address);
        while cursor.left() >= 8 && messages.len() < count {
            let (kind, size, flags) = (cursor.u16()?, usize::from(cursor.u16()?), cursor.u8()?);
            cursor.skip(3)?;
            let data = cursor.take(size)?.to_vec();
            let message = Message { kind, data, shared: flags & 2 != 0, address };
            if kind == kind::CONTINUATION {
                blocks.push(&message, sizes)?;
            }
            messages.push(message);
        }
    }
    if messages.len() < count {
        let found = messages.len();
        let message = format!("an object header is damaged: it has {found} of {count} messages");
        return Err(Error::corrupt(message).with_offset(address));
    }
    Ok(Header { address, messages })
}

fn read_v2(file: &File<'_>, address: u64) -> Result<Header> {
    let sizes = file.sizes();
    // As long as its first part can be.
    let longest = (file.pages.size() - file.pages.absolute(address, 0).unwrap_or(0)).min(34);
    let bytes = file.pages.read(address, longest)?;
    let mut cursor = Cursor::new(&bytes, sizes, "an object header", address);
    cursor.begins(b"OHDR", 2)?;
    let flags = cursor.u8()?;
    cursor.skip(if flags & 0x20 == 0 { 0 } else { 16 })?;
    cursor.skip(if flags & 0x10 == 0 { 0 } else { 4 })?;
    let size = cursor.uint(1 << (flags & 3))?;
    let prefix = cursor.position() as u64;
    let ordered = flags & 4 != 0;
    let mut messages = Vec::new();
    let whole = prefix.checked_add(size).and_then(|len| len.checked_add(4)).filter(|_| size <= MOST);
    let whole = whole.ok_or_else(|| cursor.damaged(&format!("it states {size} bytes")))?;
    let mut blocks = Blocks::new(address, whole);
    let mut skip = prefix as usize;
    while let Some((at, len)) = blocks.next() {
        let bytes = file.pages.checked(at, len, "an object header")?;
        let mut cursor = Cursor::new(&bytes, sizes, "an object header", address);
        if at != address && cursor.take(4)? != b"OCHK" {
            return Err(cursor.damaged("it does not go on where it should"));
        }
        cursor.skip(std::mem::replace(&mut skip, 0))?;
        let head = if ordered { 6 } else { 4 };
        // What is shorter than the head of a message is a gap.
        while cursor.left() >= head {
            let (kind, size, flags) = (u16::from(cursor.u8()?), usize::from(cursor.u16()?), cursor.u8()?);
            cursor.skip(head - 4)?;
            let data = cursor.take(size)?.to_vec();
            let message = Message { kind, data, shared: flags & 2 != 0, address };
            if kind == kind::CONTINUATION {
                blocks.push(&message, sizes)?;
            }
            messages.push(message);
        }
    }
    Ok(Header { address, messages })
}
