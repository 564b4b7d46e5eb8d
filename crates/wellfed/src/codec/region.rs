//! What codecs share that have whole rows, and give a part of them.

use wellfed_kernels::image::View;

use super::{Mode, Push, Rect, at_least, color};
use crate::{Error, ErrorKind, Result, budget::Room};

/// Hands the columns of `region` to `push`, in the channels of `mode`. `rows` are those of the region alone, each `width`
/// pixels of `channels`; `converted` is memory for another colour mode.
pub(super) fn push_columns(
    rows: &[u8],
    (width, channels): (usize, usize),
    (mode, region): (Mode, Rect),
    converted: &mut Vec<u8>,
    room: Option<&Room>,
    push: &mut Push<'_>,
) -> Result<()> {
    let wanted = mode.band_channels(channels);
    let rows = if wanted == channels {
        rows
    } else {
        let converted = at_least(converted, region.height * width * wanted, room)?;
        color::convert(rows, channels, converted, wanted);
        converted
    };
    let view = View::new(rows, region.height, width, wanted, width * wanted);
    let view = view.and_then(|view| view.crop(0, region.left, region.height, region.width));
    push(view.ok_or_else(|| Error::new(ErrorKind::Internal, "decoded rows lack the region"))?.into())
}

/// As [`push_columns`], of all rows of an image.
pub(super) fn push_part(
    pixels: &[u8],
    (width, channels): (usize, usize),
    (mode, region): (Mode, Rect),
    converted: &mut Vec<u8>,
    room: Option<&Room>,
    push: &mut Push<'_>,
) -> Result<()> {
    let row = width * channels;
    let rows = &pixels[region.top * row..][..region.height * row];
    push_columns(rows, (width, channels), (mode, region), converted, room, push)
}
