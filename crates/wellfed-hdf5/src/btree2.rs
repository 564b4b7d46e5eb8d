//! B-trees of version 2: section "III.A.2". They hold records, in inner nodes as well. Every node has a checksum.

use std::collections::HashSet;

use wellfed::Result;

use crate::{
    cursor::{Cursor, bytes_of},
    file::File,
};

/// Kinds of records that are read here.
pub(crate) mod kind {
    pub(crate) const LINK_NAMES: u8 = 5;
    pub(crate) const CHUNKS: u8 = 10;
    pub(crate) const FILTERED_CHUNKS: u8 = 11;
}

/// All records of a tree, each of `size` bytes. Their order is that of nodes, not of records.
#[derive(Debug)]
pub(crate) struct Records {
    pub(crate) kind: u8,
    pub(crate) size: usize,
    pub(crate) bytes: Vec<u8>,
}

/// Nodes that are asked for at a time.
const TOGETHER: usize = 512;

/// What a node is called, in messages.
const NODE: &str = "a node of an index (B-tree, version 2)";

/// How many records nodes of a level may have, which says how their numbers are written.
#[derive(Clone, Copy)]
struct Level {
    /// In one node.
    most: u64,
    /// In a node and all below it.
    all: u64,
}

/// Reads all records of the tree whose header is at `address`.
///
/// # Errors
/// [`wellfed::ErrorKind::Corrupt`] for damage, and for another number of records than the header states.
pub(crate) fn records(file: &File<'_>, address: u64) -> Result<Records> {
    let sizes = file.sizes();
    let len = 22 + sizes.offsets + sizes.lengths;
    let bytes = file.pages.checked(address, len as u64, "an index (B-tree, version 2)")?;
    let mut cursor = Cursor::new(&bytes, sizes, "an index (B-tree, version 2)", address);
    cursor.begins(b"BTHD", 0)?;
    let kind = cursor.u8()?;
    let node_size = u64::from(cursor.u32()?);
    let size = u64::from(cursor.u16()?);
    let depth = usize::from(cursor.u16()?);
    cursor.skip(2)?;
    let root = cursor.address()?;
    let in_root = u64::from(cursor.u16()?);
    let total = cursor.length()?;
    let mut all = Records { kind, size: size as usize, bytes: Vec::new() };
    let Some(root) = root.filter(|_| total > 0) else { return Ok(all) };
    // Signature, version, kind and checksum.
    let room = node_size.saturating_sub(10);
    if size == 0 || room < size || depth > 32 {
        return Err(cursor.damaged(&format!("nodes of {node_size} bytes, records of {size}, depth {depth}")));
    }
    let leaf = Level { most: room / size, all: room / size };
    let count_size = bytes_of(leaf.most);
    let mut levels = vec![leaf];
    for level in 1..=depth {
        let below = levels[level - 1];
        let pointer = sizes.offsets + count_size + if level > 1 { bytes_of(below.all) } else { 0 };
        let most = room.saturating_sub(pointer as u64) / (size + pointer as u64);
        if most == 0 {
            return Err(cursor.damaged(&format!("nodes of {node_size} bytes have no room")));
        }
        let all = (most + 1).saturating_mul(below.all).saturating_add(most);
        levels.push(Level { most, all });
    }
    if in_root > levels[depth].most {
        return Err(cursor.damaged(&format!("its root has {in_root} records")));
    }
    let mut seen = HashSet::from([root]);
    let mut nodes = vec![(root, in_root)];
    for level in (0..=depth).rev() {
        let pointer = match level {
            0 => 0,
            1 => sizes.offsets + count_size,
            _ => sizes.offsets + count_size + bytes_of(levels[level - 1].all),
        } as u64;
        // Nodes are written whole, but what is behind their checksum means nothing.
        let len = |count: u64| 10 + count * size + if level == 0 { 0 } else { (count + 1) * pointer };
        let mut next = Vec::new();
        for (number, &(node, count)) in nodes.iter().enumerate() {
            if number % TOGETHER == 0 {
                let ahead = nodes[number..].iter().take(TOGETHER);
                file.pages.prepare(&ahead.map(|(node, count)| (*node, len(*count))).collect::<Vec<_>>())?;
            }
            let bytes = file.pages.checked(node, len(count), NODE)?;
            let mut cursor = Cursor::new(&bytes, sizes, NODE, node);
            cursor.begins(if level == 0 { b"BTLF" } else { b"BTIN" }, 0)?;
            if cursor.u8()? != kind {
                return Err(cursor.damaged("it is of another kind"));
            }
            all.bytes.extend_from_slice(cursor.take((count * size) as usize)?);
            if level == 0 {
                continue;
            }
            for _ in 0..=count {
                let child = cursor.defined()?;
                let records = cursor.uint(count_size)?;
                if level > 1 {
                    cursor.skip(bytes_of(levels[level - 1].all))?;
                }
                if records > levels[level - 1].most {
                    return Err(cursor.damaged(&format!("a child of it has {records} records")));
                }
                if !seen.insert(child) {
                    return Err(cursor.damaged("it has a child that another one has, too"));
                }
                next.push((child, records));
            }
        }
        nodes = next;
    }
    if all.bytes.len() as u64 != total.saturating_mul(size) {
        let found = all.bytes.len() as u64 / size;
        return Err(cursor.damaged(&format!("it has {found} of {total} records")));
    }
    Ok(all)
}
