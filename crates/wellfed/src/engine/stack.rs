//! Columns of values whose size differs from sample to sample: kept piece by piece while a batch is under way, and
//! put together (padded, concatenated, or as a list) by whoever finishes its last sample.
//!
//! Invariant: a piece is written by the worker that holds the claim on its sample, and read after all claims on the
//! batch are back. All bytes that pieces and finished lists hold are counted by their [`Shelf`].

use std::{
    ops::Deref,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use super::{
    batch::ColumnData,
    mix::{Images, Mixer},
    ring::Buffer,
};
use crate::{
    Error, ErrorKind, Result,
    budget::{Budget, Holder},
    column::{ColumnKind, ColumnSpec, Padding, Stacking},
    lock,
    sample::DType,
};

/// A piece that grew larger gives its memory back after the batch.
const KEPT_PIECE: usize = 1 << 20;
/// Bytes of one column's pieces that are kept for the next batch.
const KEPT_BYTES: usize = 4 << 20;
/// Columns of pieces that are kept.
const KEPT_COLUMNS: usize = 16;

/// The columns of every batch of a loader, and memory that batches under way share.
#[derive(Clone, Debug)]
pub(crate) struct Columns {
    specs: Arc<[ColumnSpec]>,
    pub(crate) shelf: Arc<Shelf>,
    /// What is done to finished batches.
    pub(crate) mixer: Option<Arc<Mixer>>,
    /// What is mixed as a caller says who gives batches.
    pub(crate) images: Option<Images>,
}

impl Columns {
    /// Values that are not in buffers of the pool (texts, byte strings, arrays that vary) are counted in `budget`.
    pub(crate) fn new(specs: &[ColumnSpec], budget: &Arc<Budget>) -> Self {
        Self { specs: specs.into(), shelf: Shelf::new(budget), mixer: None, images: None }
    }

    /// Finished batches are mixed by `mixer`.
    pub(crate) fn mixed_by(self, mixer: Option<Arc<Mixer>>) -> Self {
        Self { mixer, ..self }
    }

    /// Finished batches are mixed as their caller says, if these images can be.
    pub(crate) fn mixed_as_given(self, images: Option<Images>) -> Self {
        Self { images, ..self }
    }
}

impl Deref for Columns {
    type Target = [ColumnSpec];

    fn deref(&self) -> &[ColumnSpec] {
        &self.specs
    }
}

/// What a worker leaves of one sample.
#[derive(Debug, Default)]
struct Piece {
    shape: Vec<usize>,
    bytes: Vec<u8>,
    /// The bytes lie in a source's memory: its number, and the index there.
    resident: Option<(usize, u64)>,
}

/// Finds the bytes of a resident value: of a column, by the number of the source and the index there.
pub(crate) type Resident<'a, 'b> = &'b dyn Fn(usize, usize, u64) -> Option<&'a [u8]>;

/// Takes a buffer of so many bytes for a finished column, once there is room for it.
pub(crate) type Take<'a> = &'a dyn Fn(usize) -> Result<Buffer>;

/// Where finished columns get their buffers.
#[derive(Clone, Copy)]
pub(crate) struct Buffers<'a> {
    pub(crate) take: Take<'a>,
    /// Buffers are as large as they must be, and no larger.
    pub(crate) exact: bool,
}

impl Buffers<'_> {
    /// A buffer of `len` bytes.
    fn of(self, len: usize) -> Result<Buffer> {
        (self.take)(len)
    }

    /// A buffer of at least `len` bytes. Sizes come in steps of at most a quarter, so that buffers of batches that
    /// differ in size can be used again.
    fn roomy(self, len: usize) -> Result<Buffer> {
        let step = if self.exact { 1 } else { (len.max(1).next_power_of_two() / 8).max(64) };
        self.of(len.next_multiple_of(step))
    }
}

/// Memory of pieces for the next batches, and the count of all bytes that pieces and finished lists hold.
#[derive(Debug)]
pub(crate) struct Shelf {
    free: Mutex<Vec<Vec<Mutex<Piece>>>>,
    budget: Arc<Budget>,
}

impl Shelf {
    /// Counts what it holds in `budget`.
    pub(crate) fn new(budget: &Arc<Budget>) -> Arc<Self> {
        Arc::new(Self { free: Mutex::default(), budget: budget.clone() })
    }

    /// Room for a column of `len` samples.
    pub(crate) fn take(self: &Arc<Self>, len: usize) -> Pieces {
        let mut pieces = lock(&self.free).pop().unwrap_or_default();
        if pieces.len() < len {
            pieces.resize_with(len, Mutex::default);
        }
        let held = pieces.iter().map(|piece| lock(piece).bytes.capacity() as u64).sum();
        Pieces {
            pieces,
            held: AtomicU64::new(held),
            wanted: AtomicU64::new(0),
            released: AtomicBool::new(false),
            shelf: self.clone(),
        }
    }

    /// Frees the memory that is kept for the next batches; says how many bytes it was.
    pub(crate) fn clear(&self) -> usize {
        let free = std::mem::take(&mut *lock(&self.free));
        let bytes: usize = free.iter().flatten().map(|piece| lock(piece).bytes.capacity()).sum();
        drop(free);
        self.count(bytes, 0);
        bytes
    }

    fn count(&self, before: usize, after: usize) {
        match after.checked_sub(before) {
            Some(more) => self.budget.force(more as u64, Holder::Lists),
            None => self.budget.give((before - after) as u64, Holder::Lists),
        }
    }

    /// Counts `bytes` of a finished list until the answer is dropped.
    pub(crate) fn hold(self: &Arc<Self>, bytes: usize) -> Held {
        self.count(0, bytes);
        Held { shelf: self.clone(), bytes }
    }
}

/// Counted bytes of a finished list that was not delivered yet.
#[derive(Debug)]
pub(crate) struct Held {
    shelf: Arc<Shelf>,
    bytes: usize,
}

impl Held {
    /// How many.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes as u64
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shelf.count(self.bytes, 0);
    }
}

/// One column's values of all samples of a batch under way.
#[derive(Debug)]
pub(crate) struct Pieces {
    pieces: Vec<Mutex<Piece>>,
    /// Bytes of all values.
    held: AtomicU64,
    /// Most bytes that a value found no room for.
    wanted: AtomicU64,
    /// Their memory was given back.
    released: AtomicBool,
    shelf: Arc<Shelf>,
}

impl Pieces {
    /// Copies the value of sample `offset`.
    ///
    /// # Errors
    /// [`ErrorKind::Limit`] if there is no room for it in the budget, or no memory.
    pub(crate) fn copy(&self, offset: usize, shape: &[usize], bytes: &[u8]) -> Result<()> {
        let mut piece = self.named(offset, shape);
        piece.bytes.clear();
        let before = piece.bytes.capacity();
        if before < bytes.len() {
            let more = bytes.len() - before;
            self.claim(more)?;
            let made = piece.bytes.try_reserve_exact(bytes.len());
            // The allocator may have given more than was asked for, or nothing.
            self.shelf.count(before + more, piece.bytes.capacity());
            self.held.fetch_add((piece.bytes.capacity() - before) as u64, Relaxed);
            made.map_err(|_| Error::memory(bytes.len(), "a value of a batch"))?;
        }
        piece.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Takes over the value of sample `offset`, and leaves memory of an earlier one in its place.
    ///
    /// # Errors
    /// [`ErrorKind::Limit`] if there is no room for it in the budget; then `bytes` are as they were.
    pub(crate) fn swap(&self, offset: usize, shape: &[usize], bytes: &mut Vec<u8>) -> Result<()> {
        let mut piece = self.named(offset, shape);
        let (before, after) = (piece.bytes.capacity(), bytes.capacity());
        match after.checked_sub(before) {
            Some(more) => self.claim(more)?,
            None => self.shelf.count(before, after),
        }
        self.held.fetch_add((after as u64).wrapping_sub(before as u64), Relaxed);
        std::mem::swap(&mut piece.bytes, bytes);
        Ok(())
    }

    /// Notes that the value of sample `offset` lies in the memory of source `leaf`.
    pub(crate) fn refer(&self, offset: usize, shape: &[usize], leaf: usize, index: u64) {
        self.named(offset, shape).resident = Some((leaf, index));
    }

    fn named(&self, offset: usize, shape: &[usize]) -> MutexGuard<'_, Piece> {
        let mut piece = lock(&self.pieces[offset]);
        piece.resident = None;
        piece.shape.clear();
        piece.shape.extend_from_slice(shape);
        piece
    }

    /// Reserves `more` bytes, before they are taken.
    fn claim(&self, more: usize) -> Result<()> {
        let budget = &self.shelf.budget;
        budget.reserve(more as u64, Holder::Lists).inspect_err(|_| {
            self.wanted.fetch_max(more as u64, Relaxed);
        })
    }

    /// Bytes of all values, with those that found no room.
    pub(crate) fn bytes(&self) -> u64 {
        self.held.load(Relaxed) + self.wanted.load(Relaxed)
    }

    /// Most bytes that a value found no room for, since this was last asked.
    pub(crate) fn take_wanted(&self) -> Option<u64> {
        Some(self.wanted.swap(0, Relaxed)).filter(|bytes| *bytes > 0)
    }

    /// The bytes of the samples `offsets`, which are their own from now on. They are counted together, as each time those who
    /// wait for room hear of it.
    pub(crate) fn own(&self, offsets: &[usize]) -> Vec<Vec<u8>> {
        let mut bytes = 0;
        let one = |offset: &usize| {
            let own = std::mem::take(&mut lock(&self.pieces[*offset]).bytes);
            bytes += own.capacity();
            own
        };
        let all = offsets.iter().map(one).collect();
        self.shelf.count(bytes, 0);
        self.held.fetch_sub(bytes as u64, Relaxed);
        all
    }

    /// Gives the memory of all values back: they were put together.
    pub(crate) fn release(&self) {
        self.held.store(0, Relaxed);
        self.released.store(true, Relaxed);
        self.shelve(self.pieces.iter().map(|piece| Mutex::new(std::mem::take(&mut *lock(piece)))).collect());
    }

    /// Keeps the memory of `pieces` for the next batches, as far as it is not too much.
    fn shelve(&self, mut pieces: Vec<Mutex<Piece>>) {
        let (mut kept, mut freed) = (0, 0);
        for piece in &mut pieces {
            let piece = piece.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
            let size = piece.bytes.capacity();
            if size > KEPT_PIECE || kept + size > KEPT_BYTES {
                piece.bytes = Vec::new();
                freed += size;
            } else {
                kept += size;
            }
        }
        let mut free = lock(&self.shelf.free);
        let surplus = if free.len() < KEPT_COLUMNS {
            free.push(pieces);
            None
        } else {
            freed += kept;
            Some(pieces)
        };
        drop(free);
        // Freeing may take long: not under the lock.
        drop(surplus);
        self.shelf.count(freed, 0);
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        if !self.released.load(Relaxed) {
            let pieces = std::mem::take(&mut self.pieces);
            self.shelve(pieces);
        }
    }
}

/// A value while it is put into its column.
struct Value<'a> {
    piece: MutexGuard<'a, Piece>,
    resident: Option<&'a [u8]>,
}

impl Value<'_> {
    fn bytes(&self) -> &[u8] {
        self.resident.unwrap_or(&self.piece.bytes)
    }

    fn shape(&self) -> &[usize] {
        &self.piece.shape
    }
}

/// A finished column, with the lengths of its values before they were padded and the mask of what is not padding, if the plan asks for
/// them.
#[derive(Debug)]
pub(crate) struct Stacked {
    pub(crate) data: ColumnData,
    pub(crate) lengths: Option<Buffer>,
    pub(crate) mask: Option<Buffer>,
}

impl From<ColumnData> for Stacked {
    fn from(data: ColumnData) -> Self {
        Self { data, lengths: None, mask: None }
    }
}

/// Puts the values of the samples `keep` together. `pad_to` is what sides are filled up to that the padding leaves
/// open, if the batch says so.
///
/// # Errors
/// [`ErrorKind::Shape`] for values that do not fit, [`ErrorKind::Limit`] for a column that no memory can hold.
pub(crate) fn stack<'a>(
    (number, spec): (usize, &ColumnSpec),
    pieces: &'a Pieces,
    keep: &[usize],
    pad_to: Option<usize>,
    buffers: Buffers<'_>,
    resident: Resident<'a, '_>,
) -> Result<Stacked> {
    let ColumnKind::Varying { dtype, stacking, .. } = &spec.kind else {
        return Err(Error::new(ErrorKind::Internal, format!("column {} does not vary", spec.name)));
    };
    let values: Vec<Value<'_>> = keep
        .iter()
        .map(|&offset| {
            let piece = lock(&pieces.pieces[offset]);
            let resident = match piece.resident {
                Some((leaf, index)) => Some(resident(number, leaf, index).ok_or_else(|| shrunk(spec))?),
                None => None,
            };
            let value = Value { piece, resident };
            let size = elements(value.shape()).and_then(|n| n.checked_mul(dtype.size()));
            if size == Some(value.bytes().len()) { Ok(value) } else { Err(shrunk(spec)) }
        })
        .collect::<Result<_>>()?;
    let (mut lengths, mut mask) = (None, None);
    let data = match stacking {
        Stacking::Alone => {
            let Some(value) = values.first() else {
                return Err(Error::new(ErrorKind::Internal, format!("column {} has no sample", spec.name)));
            };
            let mut bytes = buffers.of(value.bytes().len())?;
            bytes.copy_from_slice(value.bytes());
            ColumnData::Array { dtype: *dtype, shape: value.shape().to_vec(), bytes }
        }
        Stacking::Padded(padding) => {
            if let Some(side) = padding.lengths {
                lengths = Some(lengths_of(&values, side, buffers)?);
            }
            let data = pad(&spec.name, *dtype, padding, &values, pad_to, buffers)?;
            if let (Some(side), ColumnData::Array { shape, .. }) = (padding.mask, &data) {
                let places = shape.get(1 + side).copied().unwrap_or(1);
                mask = Some(mask_of(&spec.name, &values, (side, places), buffers)?);
            }
            data
        }
        Stacking::Ragged => ragged(&spec.name, *dtype, spec.inner(), &values, buffers)?,
        Stacking::List => {
            let (bytes, shapes) = concatenate(&spec.name, &values, buffers)?;
            ColumnData::List { dtype: *dtype, shapes, bytes }
        }
    };
    Ok(Stacked { data, lengths, mask })
}

fn shrunk(spec: &ColumnSpec) -> Error {
    Error::new(ErrorKind::State, format!("the memory of {} changed while it was read", spec.name))
        .with_hint("arrays that a data set was made of must stay as they are")
}

fn elements(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1_usize, |n, side| n.checked_mul(*side))
}

fn too_large(name: &str) -> Error {
    Error::new(ErrorKind::Limit, format!("{name} of a batch does not fit in memory"))
        .with_hint("use a smaller batch, or bucket_by_sequence_length()")
}

fn lengths_of(values: &[Value<'_>], side: usize, buffers: Buffers<'_>) -> Result<Buffer> {
    let mut lengths = buffers.of(8 * values.len())?;
    for (to, value) in lengths.chunks_exact_mut(8).zip(values) {
        let length = value.shape().get(side).copied().unwrap_or(1) as i64;
        to.copy_from_slice(&length.to_ne_bytes());
    }
    Ok(lengths)
}

/// For each value a byte a place of its padded side: 1 where it has something.
fn mask_of(
    name: &str,
    values: &[Value<'_>],
    (side, places): (usize, usize),
    buffers: Buffers<'_>,
) -> Result<Buffer> {
    let len = values.len().checked_mul(places).ok_or_else(|| too_large(name))?;
    let mut mask = buffers.of(len)?;
    if places > 0 {
        for (to, value) in mask.chunks_exact_mut(places).zip(values) {
            let length = value.shape().get(side).copied().unwrap_or(1).min(places);
            to[..length].fill(1);
            to[length..].fill(0);
        }
    }
    Ok(mask)
}

fn pad(
    name: &str,
    dtype: DType,
    padding: &Padding,
    values: &[Value<'_>],
    pad_to: Option<usize>,
    buffers: Buffers<'_>,
) -> Result<ColumnData> {
    let mut shape = vec![values.len()];
    for (d, side) in padding.shape.iter().enumerate() {
        let largest = || values.iter().filter_map(|v| v.shape().get(d).copied()).max().unwrap_or(0);
        let side = match (*side, pad_to) {
            (Some(side), _) | (None, Some(side)) => side,
            (None, None) => {
                largest().checked_next_multiple_of(padding.multiple_of).ok_or_else(|| too_large(name))?
            }
        };
        shape.push(side);
    }
    let row = elements(&shape[1..]).and_then(|n| n.checked_mul(dtype.size()));
    let (Some(row), Some(len)) = (row, row.and_then(|row| row.checked_mul(values.len()))) else {
        return Err(too_large(name));
    };
    if len > isize::MAX as usize / 2 {
        return Err(too_large(name));
    }
    for value in values {
        check_fits(name, value.shape(), &shape[1..])?;
    }
    let mut bytes = buffers.roomy(len)?;
    if row > 0 {
        for (to, value) in bytes[..len].chunks_exact_mut(row).zip(values) {
            place(to, &shape[1..], value.bytes(), value.shape(), &padding.value);
        }
    }
    Ok(ColumnData::Array { dtype, shape, bytes })
}

/// Whether an array of shape `have` can be padded to `want`.
///
/// # Errors
/// [`ErrorKind::Shape`], with both.
pub(crate) fn check_fits(name: &str, have: &[usize], want: &[usize]) -> Result<()> {
    if have.len() == want.len() && have.iter().zip(want).all(|(have, want)| have <= want) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Shape,
        format!("{name} of shape {have:?} is larger than {want:?}, the size it is to be padded to"),
    )
    .with_stage("batch")
    .with_hint("choose larger padded_shapes or buckets, or leave the size open"))
}

/// Writes the array `from` of shape `have` to the corner of `to`, of shape `want`, and `fill` to the rest.
fn place(to: &mut [u8], want: &[usize], from: &[u8], have: &[usize], fill: &[u8]) {
    let same_rest = want.get(1..) == have.get(1..);
    if want.is_empty() || same_rest {
        let (data, rest) = to.split_at_mut(from.len());
        data.copy_from_slice(from);
        return fill_with(rest, fill);
    }
    let (rows, row) = (have[0], to.len() / want[0].max(1));
    let size = from.len().checked_div(rows).unwrap_or(0);
    let (data, rest) = to.split_at_mut(rows * row);
    for i in 0..rows {
        place(
            &mut data[i * row..(i + 1) * row],
            &want[1..],
            &from[i * size..(i + 1) * size],
            &have[1..],
            fill,
        );
    }
    fill_with(rest, fill);
}

/// Repeats the element `fill` all over `to`.
fn fill_with(to: &mut [u8], fill: &[u8]) {
    if to.is_empty() {
        return;
    }
    if fill.iter().all(|byte| *byte == fill[0]) {
        return to.fill(fill[0]);
    }
    let mut done = fill.len().min(to.len());
    to[..done].copy_from_slice(&fill[..done]);
    while done < to.len() {
        let more = done.min(to.len() - done);
        to.copy_within(..more, done);
        done += more;
    }
}

fn ragged(
    name: &str,
    dtype: DType,
    inner: &[Option<usize>],
    values: &[Value<'_>],
    buffers: Buffers<'_>,
) -> Result<ColumnData> {
    let (bytes, shapes) = concatenate(name, values, buffers)?;
    let mut offsets = buffers.of(8 * (values.len() + 1))?;
    let mut end = 0_usize;
    offsets[..8].fill(0);
    for (to, shape) in offsets[8..].chunks_exact_mut(8).zip(&shapes) {
        end += shape.first().copied().unwrap_or(1);
        to.copy_from_slice(&(end as i64).to_ne_bytes());
    }
    let shape = std::iter::once(end).chain(inner.iter().map(|side| side.unwrap_or(0))).collect();
    Ok(ColumnData::Ragged { dtype, shape, bytes, offsets })
}

/// All values, one after the other, and their shapes.
fn concatenate(name: &str, values: &[Value<'_>], buffers: Buffers<'_>) -> Result<(Buffer, Vec<Vec<usize>>)> {
    let len = values.iter().try_fold(0_usize, |len, value| len.checked_add(value.bytes().len()));
    let len = len.filter(|len| *len <= isize::MAX as usize / 2).ok_or_else(|| too_large(name))?;
    let mut bytes = buffers.roomy(len)?;
    let mut at = 0;
    for value in values {
        let end = at + value.bytes().len();
        bytes[at..end].copy_from_slice(value.bytes());
        at = end;
    }
    Ok((bytes, values.iter().map(|value| value.shape().to_vec()).collect()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::engine::ring::Pool;

    fn padded(
        shapes: &[Vec<usize>],
        padding: Padding,
        pad_to: Option<usize>,
    ) -> Result<(Vec<usize>, Vec<u8>)> {
        let shelf = Shelf::new(&Budget::new());
        let pieces = shelf.take(shapes.len());
        for (i, shape) in shapes.iter().enumerate() {
            let n: usize = shape.iter().product();
            pieces.copy(i, shape, &vec![i as u8 + 1; n]).unwrap();
        }
        let spec = ColumnSpec {
            name: "x".into(),
            kind: ColumnKind::Varying {
                dtype: DType::UInt8,
                shape: vec![None; padding.shape.len()],
                stacking: Stacking::Padded(padding),
            },
        };
        let keep: Vec<usize> = (0..shapes.len()).collect();
        let pool = Pool::new(4);
        let buffers = Buffers { take: &|len| pool.take(len), exact: false };
        let stacked = stack((0, &spec), &pieces, &keep, pad_to, buffers, &|_, _, _| None)?;
        let ColumnData::Array { shape, .. } = &stacked.data else { panic!("an array") };
        Ok((shape.clone(), stacked.data.as_bytes().unwrap_or_default().to_vec()))
    }

    fn open(sides: usize, value: u8, multiple_of: usize) -> Padding {
        Padding { shape: vec![None; sides], value: vec![value], multiple_of, lengths: None, mask: None }
    }

    #[test]
    fn arrays_are_padded_at_their_ends() {
        let (shape, bytes) = padded(&[vec![2], vec![0], vec![3]], open(1, 9, 1), None).unwrap();
        assert_eq!((shape, bytes), (vec![3, 3], vec![1, 1, 9, 9, 9, 9, 3, 3, 3]));
        let (shape, _) = padded(&[vec![5]], open(1, 0, 4), None).unwrap();
        assert_eq!(shape, [1, 8]);
        assert_eq!(padded(&[vec![5]], open(1, 0, 4), Some(7)).unwrap().0, [1, 7]);
        let e = padded(&[vec![5]], open(1, 0, 4), Some(4)).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Shape);
        assert_eq!(padded(&[vec![0], vec![0]], open(1, 0, 1), None).unwrap().0, [2, 0]);
        assert_eq!(padded(&[], open(1, 0, 1), None).unwrap().0, [0, 0]);
    }

    proptest! {
        #[test]
        fn any_shape_is_padded_element_by_element(
            shapes in proptest::collection::vec((0..4_usize, 0..4_usize, 0..3_usize), 1..5),
            multiple_of in 1..4_usize,
        ) {
            let shapes: Vec<Vec<usize>> = shapes.into_iter().map(|(a, b, c)| vec![a, b, c]).collect();
            let (shape, bytes) = padded(&shapes, open(3, 77, multiple_of), None).unwrap();
            let side = |d: usize| {
                shapes.iter().map(|s| s[d]).max().unwrap().next_multiple_of(multiple_of)
            };
            prop_assert_eq!(&shape, &vec![shapes.len(), side(0), side(1), side(2)]);
            let mut at = 0;
            for (i, have) in shapes.iter().enumerate() {
                for a in 0..side(0) { for b in 0..side(1) { for c in 0..side(2) {
                    let inside = a < have[0] && b < have[1] && c < have[2];
                    prop_assert_eq!(bytes[at], if inside { i as u8 + 1 } else { 77 });
                    at += 1;
                } } }
            }
        }
    }

    #[test]
    fn an_element_of_several_bytes_is_repeated() {
        for len in 0..9 {
            let mut to = vec![0; 4 * len];
            fill_with(&mut to, &[1, 2, 3, 4]);
            assert_eq!(to, [1, 2, 3, 4].repeat(len));
        }
    }

    #[test]
    fn every_byte_is_counted_and_large_pieces_are_not_kept() {
        let shelf = Shelf::new(&Budget::new());
        let pieces = shelf.take(2);
        pieces.copy(0, &[3], &[1, 2, 3]).unwrap();
        pieces.copy(1, &[KEPT_PIECE + 1], &vec![0; KEPT_PIECE + 1]).unwrap();
        let both = shelf.budget.used(Holder::Lists);
        assert!(both >= KEPT_PIECE as u64 + 4, "{both}");
        pieces.release();
        assert_eq!(pieces.bytes(), 0);
        assert!((3..100).contains(&shelf.budget.used(Holder::Lists)), "{}", shelf.budget.used(Holder::Lists));
        drop(pieces);
        assert_eq!(lock(&shelf.free).len(), 1, "they are kept once");
        let pieces = shelf.take(1);
        let held = shelf.hold(pieces.own(&[0])[0].capacity());
        assert!(shelf.budget.used(Holder::Lists) >= 3);
        drop((pieces, held));
        assert_eq!(shelf.budget.used(Holder::Lists), 0);
    }
}
