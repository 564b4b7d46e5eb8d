//! What is in a group: names and what they lead to. Old groups have a tree of symbols (sections "III.B" to "III.D"), new ones
//! messages in their header, or in a heap where there are many (section "IV.A.2.c, g").

use wellfed::{Error, ErrorKind, Result};

use crate::{
    btree1, btree2,
    cursor::Cursor,
    file::File,
    fractal_heap::Heap,
    object_header::{Header, kind},
};

/// Names in one group, at most.
const MOST: usize = 1 << 20;

/// What a name leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The header of an object.
    Object(u64),
    /// Another path in the file.
    Soft(String),
    /// Another file, or something else that is not followed.
    Elsewhere,
}

/// Everything in a group, by name.
///
/// # Errors
/// [`ErrorKind::Corrupt`] for damage; [`ErrorKind::Config`] if it is no group.
pub(crate) fn list(file: &File<'_>, header: &Header) -> Result<Vec<(String, Target)>> {
    let mut found = if let Some(message) = header.get(file, kind::SYMBOL_TABLE)? {
        let mut cursor = message.cursor(file.sizes(), "a group");
        let (tree, heap) = (cursor.defined()?, cursor.defined()?);
        symbols(file, tree, heap)?
    } else if let Some(message) = header.get(file, kind::LINK_INFO)? {
        let mut found = Vec::new();
        for message in header.all(kind::LINK) {
            found.push(link(message.cursor(file.sizes(), "a link"))?);
        }
        let mut cursor = message.cursor(file.sizes(), "a group");
        cursor.skip(1)?;
        let flags = cursor.u8()?;
        cursor.skip(if flags & 1 == 0 { 0 } else { 8 })?;
        if let (Some(heap), Some(names)) = (cursor.address()?, cursor.address()?) {
            dense(file, heap, names, &mut found)?;
        }
        found
    } else {
        return Err(Error::config("it is no group"));
    };
    found.sort_by(|a, b| a.0.cmp(&b.0));
    if let Some(pair) = found.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(Error::corrupt(format!("a group has two things called {}", pair[0].0)));
    }
    Ok(found)
}

fn too_many() -> Error {
    Error::new(ErrorKind::Limit, format!("a group has more than {MOST} names"))
}

/// Groups as they were from the beginning.
fn symbols(file: &File<'_>, tree: u64, heap: u64) -> Result<Vec<(String, Target)>> {
    let sizes = file.sizes();
    let bytes = file.pages.read(heap, (8 + 2 * sizes.lengths + sizes.offsets) as u64)?;
    let mut cursor = Cursor::new(&bytes, sizes, "a group's heap of names", heap);
    cursor.begins(b"HEAP", 0)?;
    cursor.skip(3)?;
    let size = cursor.length()?;
    cursor.length()?;
    let at = cursor.defined()?;
    let names = file.pages.read(at, size)?;
    let text = |offset: u64| {
        let from = usize::try_from(offset).ok().and_then(|offset| names.get(offset..)).unwrap_or_default();
        let mut cursor = Cursor::new(from, sizes, "a group's heap of names", at);
        Ok::<_, Error>(String::from_utf8_lossy(cursor.text()?).into_owned())
    };
    let nodes = btree1::leaves(file, tree, btree1::Kind::Group)?;
    let entry = 2 * sizes.offsets + 24;
    let heads: Vec<(u64, u64)> = nodes.iter().map(|node| (node.child, 8)).collect();
    file.pages.prepare(&heads)?;
    let mut found = Vec::new();
    for node in nodes {
        let bytes = file.pages.read(node.child, 8)?;
        let mut cursor = Cursor::new(&bytes, sizes, "names of a group", node.child);
        cursor.begins(b"SNOD", 1)?;
        cursor.skip(1)?;
        let count = usize::from(cursor.u16()?);
        let bytes = file.pages.read(node.child.saturating_add(8), (count * entry) as u64)?;
        let mut cursor = Cursor::new(&bytes, sizes, "names of a group", node.child);
        for _ in 0..count {
            let (name, header) = (cursor.uint(sizes.offsets)?, cursor.address()?);
            let cached = cursor.u32()?;
            cursor.skip(4)?;
            // Of a soft link, the scratch pad says where its path is.
            let path = u64::from(cursor.u32()?);
            cursor.skip(12)?;
            let target = match (cached, header) {
                (2, _) => Target::Soft(text(path)?),
                (_, Some(header)) => Target::Object(header),
                (_, None) => return Err(cursor.damaged("a name leads nowhere")),
            };
            found.push((text(name)?, target));
            if found.len() > MOST {
                return Err(too_many());
            }
        }
    }
    Ok(found)
}

/// Names in a heap, by an index.
fn dense(file: &File<'_>, heap: u64, names: u64, found: &mut Vec<(String, Target)>) -> Result<()> {
    let heap = Heap::open(file, heap)?;
    let records = btree2::records(file, names)?;
    if records.kind != btree2::kind::LINK_NAMES || records.size < 5 {
        return Err(Error::corrupt("the index of a group's names is of another kind").with_offset(names));
    }
    for record in records.bytes.chunks_exact(records.size) {
        // A hash of the name comes first.
        let message = heap.get(&record[4..])?;
        found.push(link(Cursor::new(&message, file.sizes(), "a link", names))?);
        if found.len() > MOST {
            return Err(too_many());
        }
    }
    Ok(())
}

/// A link message.
fn link(mut cursor: Cursor<'_>) -> Result<(String, Target)> {
    let version = cursor.u8()?;
    if version != 1 {
        return Err(cursor.damaged(&format!("its version is {version}")));
    }
    let flags = cursor.u8()?;
    let kind = if flags & 8 == 0 { 0 } else { cursor.u8()? };
    cursor.skip(if flags & 4 == 0 { 0 } else { 8 })?;
    cursor.skip(usize::from(flags & 16 != 0))?;
    let len = cursor.uint(1 << (flags & 3))?;
    let name = cursor.take(usize::try_from(len).unwrap_or(usize::MAX))?;
    let name = String::from_utf8_lossy(name).into_owned();
    let target = match kind {
        0 => Target::Object(cursor.defined()?),
        1 => {
            let len = usize::from(cursor.u16()?);
            Target::Soft(String::from_utf8_lossy(cursor.take(len)?).into_owned())
        }
        _ => Target::Elsewhere,
    };
    Ok((name, target))
}
