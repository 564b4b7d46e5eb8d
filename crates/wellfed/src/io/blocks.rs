//! Blocks of bytes that have arrived, kept for whoever wants them again.
//!
//! What is there stays, and new blocks are taken in while there is room: an epoch visits every sample once, so that the
//! block used last is no likelier to be wanted next than any other, and taking turns would only lose them all. The room
//! is what requests and records leave of the read-ahead's bytes; when those need it, blocks go.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    sync::Arc,
};

use super::{Bytes, Located};

#[derive(Debug, Default)]
pub(super) struct Blocks {
    /// By store and path.
    objects: HashMap<(usize, Arc<str>), Object>,
    bytes: u64,
}

#[derive(Debug, Default)]
struct Object {
    whole: Option<Arc<Vec<u8>>>,
    /// Parts by the offset at which they begin.
    parts: BTreeMap<u64, Arc<Vec<u8>>>,
}

impl Blocks {
    /// Bytes of all blocks.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The bytes of an extent, if one block has them all.
    pub(super) fn get(&self, Located { store, extent, .. }: &Located) -> Option<Bytes> {
        let object = self.objects.get(&(*store, extent.path.clone()))?;
        let Some(range) = &extent.range else {
            let whole = object.whole.as_ref()?;
            return if whole.len() as u64 <= extent.max_bytes {
                Bytes::of(whole, 0..whole.len())
            } else {
                None
            };
        };
        let (start, block) = object.parts.range(..=range.start).next_back()?;
        let from = usize::try_from(range.start - start).ok()?;
        let len = usize::try_from(range.end.checked_sub(range.start)?).ok()?;
        Bytes::of(block, from..from.checked_add(len)?)
    }

    /// Keeps a block if all of them then have at most `limit` bytes.
    pub(super) fn put(
        &mut self,
        object: (usize, &Arc<str>),
        range: Option<&Range<u64>>,
        block: &Arc<Vec<u8>>,
        limit: u64,
    ) {
        let size = block.capacity() as u64;
        if self.bytes.saturating_add(size) > limit {
            return;
        }
        let object = self.objects.entry((object.0, object.1.clone())).or_default();
        let there = match range {
            None => object.whole.as_ref(),
            Some(range) => object.parts.get(&range.start),
        };
        if there.is_some_and(|there| there.len() >= block.len()) {
            return;
        }
        let before = match range {
            None => object.whole.replace(block.clone()),
            Some(range) => object.parts.insert(range.start, block.clone()),
        };
        self.bytes += size;
        self.bytes -= before.map_or(0, |before| before.capacity() as u64);
    }

    /// Gives up blocks until they have at most `limit` bytes.
    pub(super) fn shrink(&mut self, limit: u64) {
        while self.bytes > limit {
            let Some(path) = self.objects.keys().next().cloned() else { break };
            let Some(object) = self.objects.remove(&path) else { break };
            let gone = object.whole.iter().chain(object.parts.values()).map(|block| block.capacity() as u64);
            self.bytes -= gone.sum::<u64>();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Extent, Need},
        *,
    };

    #[test]
    fn blocks_answer_for_what_lies_inside_of_them_and_go_when_room_is_needed() {
        let mut blocks = Blocks::default();
        let block = |len: usize| Arc::new((0..len).map(|i| i as u8).collect::<Vec<u8>>());
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let get = |blocks: &Blocks, extent| blocks.get(&Located { store: 0, extent, need: Need::default() });
        blocks.put((0, &a), Some(&(100..150)), &block(50), 200);
        blocks.put((0, &a), None, &block(60), 200);
        blocks.put((0, &b), None, &block(100), 200);
        assert_eq!(blocks.bytes(), 110, "what does not fit is not kept");
        assert_eq!(&*get(&blocks, Extent::range("a", 110, 3)).unwrap(), [10, 11, 12]);
        assert!(get(&blocks, Extent::range("a", 149, 2)).is_none());
        assert!(get(&blocks, Extent::range("a", 99, 2)).is_none());
        assert_eq!(get(&blocks, Extent::whole("a", 60)).unwrap().len(), 60);
        let other = Located { store: 1, extent: Extent::whole("a", 60), need: Need::default() };
        assert!(blocks.get(&other).is_none());
        assert!(get(&blocks, Extent::whole("a", 59)).is_none(), "limits hold for kept bytes, too");
        blocks.put((0, &a), Some(&(100..120)), &block(20), 200);
        assert_eq!(blocks.bytes(), 110, "a longer block stays");
        blocks.shrink(109);
        assert_eq!((blocks.bytes(), blocks.objects.len()), (0, 0));
    }
}
