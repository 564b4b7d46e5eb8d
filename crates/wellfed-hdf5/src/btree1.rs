//! B-trees of version 1: section "III.A.1". Names of groups and chunks of data sets lie in them.
//!
//! They are read level by level, each node once, all nodes of a level together.

use std::collections::HashSet;

use wellfed::Result;

use crate::{cursor::Cursor, file::File};

/// What the nodes of a tree are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Group,
    /// Chunks of a data set with so many dimensions.
    Chunks(usize),
}

/// A child of a leaf, and the key in front of it.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) key: Vec<u8>,
    pub(crate) child: u64,
}

/// Bytes of a node's head in front of its keys and children.
fn head(file: &File<'_>) -> u64 {
    8 + 2 * file.sizes().offsets as u64
}

/// Nodes that are asked for at a time.
const TOGETHER: usize = 512;

/// What a node is called, in messages.
const NODE: &str = "a node of an index (B-tree, version 1)";

/// Children of all leaves, in order: chunks, or nodes of symbols.
///
/// # Errors
/// [`wellfed::ErrorKind::Corrupt`] for damage, also if a node comes twice.
pub(crate) fn leaves(file: &File<'_>, root: u64, kind: Kind) -> Result<Vec<Entry>> {
    let sizes = file.sizes();
    let (number, key_len) = match kind {
        Kind::Group => (0, sizes.lengths),
        Kind::Chunks(rank) => (1, 8 + 8 * (rank + 1)),
    };
    let mut seen = HashSet::from([root]);
    let mut found = Vec::new();
    let (mut nodes, mut expected) = (vec![root], None);
    loop {
        let (mut next, mut level) = (Vec::new(), 0);
        for (number_of, node) in nodes.iter().enumerate() {
            if number_of % TOGETHER == 0 {
                // A node is a few KiB: with its head come most of its children.
                let ahead = nodes[number_of..].iter().take(TOGETHER);
                file.pages.prepare(&ahead.map(|node| (*node, head(file))).collect::<Vec<_>>())?;
            }
            let bytes = file.pages.read(*node, head(file))?;
            let mut cursor = Cursor::new(&bytes, sizes, NODE, *node);
            if cursor.take(4)? != b"TREE" {
                return Err(cursor.damaged("it does not begin as it should"));
            }
            if cursor.u8()? != number {
                return Err(cursor.damaged("it is of another kind"));
            }
            level = cursor.u8()?;
            if expected.is_some_and(|expected| expected != level) {
                return Err(cursor.damaged(&format!("its level is {level}")));
            }
            expected = Some(level);
            let used = u64::from(cursor.u16()?);
            let len = used * (key_len + sizes.offsets) as u64;
            let bytes = file.pages.read(node.saturating_add(head(file)), len)?;
            let mut cursor = Cursor::new(&bytes, sizes, NODE, *node);
            for _ in 0..used {
                let key = cursor.take(key_len)?.to_vec();
                let child = cursor.defined()?;
                if !seen.insert(child) {
                    return Err(cursor.damaged("it has a child that another one has, too"));
                }
                if level == 0 {
                    found.push(Entry { key, child });
                } else {
                    next.push(child);
                }
            }
        }
        if level == 0 || next.is_empty() {
            return Ok(found);
        }
        (nodes, expected) = (next, Some(level - 1));
    }
}
