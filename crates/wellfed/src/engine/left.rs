//! What images that a device finishes are until then: records, which `leave.rs` writes.

use wellfed_kernels::{
    recipe::Recipe,
    unfinished::{ALIGNMENT, Unfinished},
};

use crate::{Error, Result, codec::Scratch, sample::DType};

/// What the device makes of a column's records.
#[derive(Clone, Debug, PartialEq)]
pub struct LeftImage {
    /// Channels, height and width of each finished image.
    pub size: [usize; 3],
    /// Type of its elements.
    pub dtype: DType,
    /// Whether channels come first.
    pub channels_first: bool,
    /// From 8-bit values to elements: for each channel 256 numbers of 32 bits, of which an element's bytes count.
    pub table: Vec<u32>,
}

/// Appends what follows to a record, for an image that has so many channels before it.
pub(super) fn follow(recipe: &Recipe, channels: usize, codec: &Scratch, record: &mut Vec<u8>) -> Result<()> {
    let mut head = Unfinished::read(record)
        .ok_or_else(|| Error::new(crate::ErrorKind::Internal, "a record without a beginning"))?;
    let mut bytes = Vec::new();
    recipe.encode(&mut bytes);
    reserve(record, bytes.len() + ALIGNMENT, codec)?;
    head.recipe_at = number(record.len())?;
    (head.recipe_bytes, head.recipe_channels) = (number(bytes.len())?, number(channels)?);
    record.extend_from_slice(&bytes);
    finish(head, record)
}

/// Makes room for `more` bytes, reserved first.
pub(super) fn reserve(record: &mut Vec<u8>, more: usize, codec: &Scratch) -> Result<()> {
    let bytes = record.len() + more;
    if bytes > record.capacity() {
        codec.reserve(bytes, record.capacity())?;
        record
            .try_reserve_exact(more)
            .map_err(|_| Error::memory(bytes, "an image that a device finishes"))?;
    }
    Ok(())
}

/// Ends a record.
pub(super) fn finish(mut head: Unfinished, record: &mut Vec<u8>) -> Result<()> {
    record.resize(record.len().next_multiple_of(ALIGNMENT), 0);
    head.bytes = number(record.len())?;
    head.write(record);
    Ok(())
}

pub(super) fn number(value: usize) -> Result<u32> {
    u32::try_from(value).map_err(|_| {
        Error::limit("an image that a device finishes", value as u64, u64::from(u32::MAX), "bytes")
    })
}
