//! [`Chunks`]: where all chunks of a data set lie: section "IV.A.2.i" (data layout) and the indices that it names.
//!
//! Chunks are numbered in C order of the grid that they form.

use wellfed::{Error, ErrorKind, Result};

use crate::{btree1, btree2, cursor::Cursor, extensible_array, file::File, fixed_array};

/// One chunk that is in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) number: u64,
    /// Where it lies in the file as a store has it, and its bytes there.
    pub(crate) offset: u64,
    pub(crate) size: u64,
    /// Filters that were left out, by bits.
    pub(crate) mask: u32,
}

/// Which chunks there are.
#[derive(Debug)]
enum Index {
    /// Those listed, by number.
    Listed(Vec<Chunk>),
    /// All, one after the other from here on, as if the grid had these sides.
    Implicit { offset: u64, sides: Vec<u64> },
}

/// How a data set is cut.
#[derive(Debug)]
pub(crate) struct Chunks {
    /// Sides of a chunk.
    pub(crate) sides: Vec<u64>,
    /// Chunks along each axis.
    pub(crate) grid: Vec<u64>,
    /// Bytes of a chunk, unpacked.
    pub(crate) bytes: u64,
    /// Whether filters were left out for chunks that reach over an edge.
    plain_edges: bool,
    index: Index,
}

/// What the index is, as the layout message says.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    BTree1,
    Single { filtered: Option<(u64, u32)> },
    Implicit,
    FixedArray,
    ExtensibleArray,
    BTree2,
}

/// What is needed to read an index.
#[derive(Debug)]
pub(crate) struct Layout<'a> {
    pub(crate) kind: Kind,
    pub(crate) address: Option<u64>,
    pub(crate) plain_edges: bool,
    pub(crate) sides: Vec<u64>,
    pub(crate) shape: &'a [u64],
    /// `None`: an axis that can grow without end.
    pub(crate) largest: &'a [Option<u64>],
    pub(crate) element: u64,
    pub(crate) filtered: bool,
}

impl Chunks {
    /// Reads the whole index.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] for damage, such as a chunk outside of the data set.
    pub(crate) fn read(file: &File<'_>, layout: Layout<'_>) -> Result<Self> {
        let Layout { kind, address, plain_edges, sides, shape, element, filtered, .. } = &layout;
        let damaged = |why: String| Error::corrupt(format!("its chunks are damaged: {why}"));
        if sides.len() != shape.len() || sides.is_empty() || sides.contains(&0) {
            return Err(damaged(format!("chunks of {sides:?} in a data set of {shape:?}")));
        }
        let bytes = sides.iter().try_fold(*element, |bytes, side| bytes.checked_mul(*side));
        let bytes = bytes.filter(|bytes| usize::try_from(*bytes).is_ok());
        let bytes =
            bytes.ok_or_else(|| damaged(format!("chunks of {sides:?} elements of {element} bytes")))?;
        let grid: Vec<u64> = shape.iter().zip(sides).map(|(all, side)| all.div_ceil(*side)).collect();
        let count = grid.iter().try_fold(1_u64, |count, side| count.checked_mul(*side));
        let count =
            count.ok_or_else(|| damaged(format!("there are more than can be counted in {shape:?}")))?;
        let mut this = Self {
            sides: sides.clone(),
            grid,
            bytes,
            plain_edges: *plain_edges,
            index: Index::Listed(Vec::new()),
        };
        let Some(address) = *address else { return Ok(this) };
        let mut listed = match kind {
            Kind::Implicit if !filtered => {
                let sides = layout.largest_grid();
                if sides.iter().any(Option::is_none) {
                    return Err(damaged(
                        "they lie one after the other in a data set that can grow".to_owned(),
                    ));
                }
                let sides: Vec<u64> = sides.into_iter().flatten().collect();
                let offset = file.absolute(address);
                let whole = sides.iter().try_fold(bytes, |all, side| all.checked_mul(*side));
                if whole.and_then(|whole| file.pages.absolute(address, whole)).is_none() {
                    return Err(damaged(format!("they lie outside of the file, at {offset}")));
                }
                this.index = Index::Implicit { offset, sides };
                return Ok(this);
            }
            Kind::Implicit => return Err(damaged("they have filters, but no sizes".to_owned())),
            Kind::Single { filtered: stored } => {
                let (size, mask) = stored.unwrap_or((bytes, 0));
                if count > 1 || stored.is_some() != *filtered {
                    return Err(damaged(format!("there is one, but there should be {count}")));
                }
                vec![Chunk { number: 0, offset: file.absolute(address), size, mask }]
            }
            Kind::BTree1 => this.of_btree1(file, address)?,
            Kind::BTree2 => this.of_btree2(file, address, *filtered)?,
            Kind::FixedArray => {
                let found = fixed_array::elements(file, address, *filtered)?;
                this.numbered(file, found, &layout, None)?
            }
            Kind::ExtensibleArray => {
                let found = extensible_array::elements(file, address, *filtered)?;
                let grows = layout.largest.iter().position(Option::is_none);
                let grows = grows
                    .ok_or_else(|| damaged("the index is one of a data set that can grow".to_owned()))?;
                this.numbered(file, found, &layout, Some(grows))?
            }
        };
        listed.sort_unstable_by_key(|chunk| chunk.number);
        if let Some(pair) = listed.windows(2).find(|pair| pair[0].number == pair[1].number) {
            return Err(damaged(format!("chunk {} is there twice", pair[0].number)));
        }
        if !filtered && let Some(chunk) = listed.iter().find(|chunk| chunk.size != bytes) {
            let Chunk { number, size, .. } = chunk;
            return Err(damaged(format!("chunk {number} has {size} bytes, not {bytes}")));
        }
        let inside =
            |chunk: &Chunk| chunk.offset.checked_add(chunk.size).is_some_and(|end| end <= file.pages.size());
        if let Some(chunk) = listed.iter().find(|chunk| !inside(chunk)) {
            let Chunk { number, offset, size, .. } = chunk;
            let file = file.pages.size();
            return Err(damaged(format!(
                "chunk {number} has {size} bytes at {offset}, beyond the file's {file}"
            )));
        }
        this.index = Index::Listed(listed);
        Ok(this)
    }

    /// The number of the chunk at this place of the grid.
    fn number(&self, place: impl IntoIterator<Item = u64>) -> Option<u64> {
        let mut number = 0;
        for (at, side) in place.into_iter().zip(&self.grid) {
            if at >= *side {
                return None;
            }
            number = number * side + at;
        }
        Some(number)
    }

    fn outside(&self, place: &[u64]) -> Error {
        Error::corrupt(format!(
            "its chunks are damaged: there is one at {place:?}, outside of {:?}",
            self.grid
        ))
    }

    fn of_btree1(&self, file: &File<'_>, root: u64) -> Result<Vec<Chunk>> {
        let rank = self.sides.len();
        let found = btree1::leaves(file, root, btree1::Kind::Chunks(rank))?;
        let chunk = |entry: btree1::Entry| {
            let mut cursor = Cursor::new(&entry.key, file.sizes(), "a chunk", entry.child);
            let (size, mask) = (u64::from(cursor.u32()?), cursor.u32()?);
            let offsets = (0..rank).map(|_| cursor.uint(8)).collect::<Result<Vec<_>>>()?;
            let whole = offsets.iter().zip(&self.sides).all(|(offset, side)| offset % side == 0);
            let place = offsets.iter().zip(&self.sides).map(|(offset, side)| offset / side);
            let number = self.number(place).filter(|_| whole).ok_or_else(|| self.outside(&offsets))?;
            Ok(Chunk { number, offset: file.absolute(entry.child), size, mask })
        };
        found.into_iter().map(chunk).collect()
    }

    fn of_btree2(&self, file: &File<'_>, root: u64, filtered: bool) -> Result<Vec<Chunk>> {
        let (rank, sizes) = (self.sides.len(), file.sizes());
        let found = btree2::records(file, root)?;
        let kind = if filtered { btree2::kind::FILTERED_CHUNKS } else { btree2::kind::CHUNKS };
        let plain = sizes.offsets + 8 * rank;
        let size_len = if filtered { found.size.checked_sub(plain + 4) } else { Some(0) };
        let right = found.kind == kind && (filtered || found.size == plain);
        let size_len = size_len.filter(|len| right && *len <= 8 && (*len > 0 || !filtered));
        let size_len = size_len
            .ok_or_else(|| Error::corrupt("the index of chunks is of another kind").with_offset(root))?;
        let chunk = |record: &[u8]| {
            let mut cursor = Cursor::new(record, sizes, "a chunk", root);
            let (address, size, mask) = self.stored(&mut cursor, size_len)?;
            let place = (0..rank).map(|_| cursor.uint(8)).collect::<Result<Vec<_>>>()?;
            let number = self.number(place.iter().copied()).ok_or_else(|| self.outside(&place))?;
            Ok(address.map(|address| Chunk { number, offset: file.absolute(address), size, mask }))
        };
        found.bytes.chunks_exact(found.size).filter_map(|record| chunk(record).transpose()).collect()
    }

    /// Address, size and mask of a chunk; a size of no bytes and no mask stand for a chunk without filters.
    fn stored(&self, cursor: &mut Cursor<'_>, size_len: usize) -> Result<(Option<u64>, u64, u32)> {
        let address = cursor.address()?;
        if size_len == 0 {
            return Ok((address, self.bytes, 0));
        }
        Ok((address, cursor.uint(size_len)?, cursor.u32()?))
    }

    /// Chunks by their number in a grid as large as it can become; of a data set that `grows` along an axis, that axis comes
    /// first there.
    fn numbered(
        &self,
        file: &File<'_>,
        found: fixed_array::Found,
        layout: &Layout<'_>,
        grows: Option<usize>,
    ) -> Result<Vec<Chunk>> {
        let sizes = file.sizes();
        let largest = layout.largest_grid();
        // Axes from the slowest to the fastest.
        let mut axes: Vec<usize> = (0..largest.len()).collect();
        if let Some(grows) = grows {
            axes.remove(grows);
            axes.insert(0, grows);
        }
        let mut all = Vec::with_capacity(found.len());
        for (number, element) in found {
            let mut cursor = Cursor::new(&element, sizes, "a chunk", 0);
            let size_len = if layout.filtered { element.len().saturating_sub(sizes.offsets + 4) } else { 0 };
            if layout.filtered != (size_len > 0) || size_len > 8 {
                return Err(cursor.damaged(&format!("an entry of {} bytes", element.len())));
            }
            let (Some(address), size, mask) = self.stored(&mut cursor, size_len)? else { continue };
            let (mut place, mut left) = (vec![0; axes.len()], number);
            for axis in axes.iter().rev() {
                match largest[*axis] {
                    Some(side) if Some(*axis) != grows => {
                        place[*axis] = left.checked_rem(side).unwrap_or(0);
                        left = left.checked_div(side).unwrap_or(0);
                    }
                    // It takes what is left.
                    _ => (place[*axis], left) = (left, 0),
                }
            }
            let number = self.number(place.iter().copied()).filter(|_| left == 0);
            let number = number.ok_or_else(|| self.outside(&place))?;
            all.push(Chunk { number, offset: file.absolute(address), size, mask });
        }
        Ok(all)
    }

    /// Chunk `number`, if it was written.
    pub(crate) fn get(&self, number: u64) -> Option<Chunk> {
        match &self.index {
            Index::Listed(all) => {
                // Where all are there, it stands at its number.
                let place = usize::try_from(number).ok()?;
                if let Some(chunk) = all.get(place).filter(|chunk| chunk.number == number) {
                    return Some(*chunk);
                }
                let at = all.binary_search_by_key(&number, |chunk| chunk.number).ok()?;
                all.get(at).copied()
            }
            Index::Implicit { offset, sides } => {
                let (mut place, mut left) = (vec![0; sides.len()], number);
                for (axis, side) in self.grid.iter().enumerate().rev() {
                    place[axis] = left.checked_rem(*side)?;
                    left /= side;
                }
                let at = place.iter().zip(sides).fold(0, |at, (place, side)| at * side + place);
                (left == 0).then(|| Chunk {
                    number,
                    offset: offset + at * self.bytes,
                    size: self.bytes,
                    mask: 0,
                })
            }
        }
    }

    /// Filters that were left out for this chunk, by bits.
    pub(crate) fn mask(&self, chunk: &Chunk, shape: &[u64]) -> u32 {
        if !self.plain_edges {
            return chunk.mask;
        }
        let mut left = chunk.number;
        let mut over = false;
        for axis in (0..self.grid.len()).rev() {
            let at = left % self.grid[axis].max(1);
            left /= self.grid[axis].max(1);
            over |= (at + 1) * self.sides[axis] > shape[axis];
        }
        if over { u32::MAX } else { chunk.mask }
    }
}

impl Layout<'_> {
    /// Chunks along each axis when it has grown as far as it can.
    fn largest_grid(&self) -> Vec<Option<u64>> {
        self.largest
            .iter()
            .zip(&self.sides)
            .map(|(most, side)| most.map(|most| most.div_ceil(*side)))
            .collect()
    }
}

/// How the chunks of a layout of version 4 or 5 are found: the rest of its message.
///
/// # Errors
/// [`ErrorKind::Unsupported`] for an index that is not known.
pub(crate) fn kind(cursor: &mut Cursor<'_>, flags: u8) -> Result<Kind> {
    Ok(match cursor.u8()? {
        1 if flags & 2 != 0 => Kind::Single { filtered: Some((cursor.length()?, cursor.u32()?)) },
        1 => Kind::Single { filtered: None },
        2 => Kind::Implicit,
        3 => {
            cursor.skip(1)?;
            Kind::FixedArray
        }
        4 => {
            cursor.skip(5)?;
            Kind::ExtensibleArray
        }
        5 => {
            cursor.skip(6)?;
            Kind::BTree2
        }
        other => {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("its chunks are found by an index of an unknown kind ({other})"),
            ));
        }
    })
}
