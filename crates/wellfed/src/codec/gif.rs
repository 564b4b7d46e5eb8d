//! GIF: the first frame, on the `gif` crate, as Pillow shows it.
//!
//! The frame lies on a screen of its transparent colour, or of colour 0 where it has none. A palette that is a ramp of grey
//! is taken as one of 256 steps. Alpha is that of the transparent colour.

use std::io::Cursor;

use gif::{ColorOutput, DecodeOptions, Decoder, DecodingError};

use super::{Codec, Header, Part, Push, Scratch, at_least, region::push_columns};
use crate::{Error, ErrorKind, Limits, Result};

/// The GIF codec.
#[derive(Clone, Copy, Debug)]
pub struct Gif;

impl Codec for Gif {
    fn name(&self) -> &'static str {
        "gif"
    }

    fn sniff(&self, bytes: &[u8]) -> bool {
        bytes.starts_with(b"GIF87a") || bytes.starts_with(b"GIF89a")
    }

    fn header(&self, bytes: &[u8]) -> Result<Header> {
        let Opened { height, width, transparent, .. } = open(bytes)?;
        Ok(Header { height, width, channels: if transparent.is_some() { 4 } else { 3 }, orientation: 1 })
    }

    fn decode(
        &self,
        bytes: &[u8],
        part: &Part,
        _: &Limits,
        scratch: &mut Scratch,
        push: &mut Push<'_>,
    ) -> Result<()> {
        let Opened { mut decoder, width, left, top, frame: (rows, columns), transparent, .. } = open(bytes)?;
        let Scratch { pixels, converted, room, .. } = scratch;
        let room = room.as_deref();
        let region = part.region;
        let channels = if transparent.is_some() { 4 } else { 3 };
        let colours = region.height.saturating_mul(width).saturating_mul(channels);
        let memory = at_least(pixels, rows.saturating_mul(columns).saturating_add(colours), room)?;
        let (indices, colours) = memory.split_at_mut(rows * columns);
        decoder.read_into_buffer(indices).map_err(error)?;

        let palette = palette(decoder.palette().map_err(error)?, transparent);
        let screen = palette[usize::from(transparent.unwrap_or(0))];
        for (y, out) in (region.top..).zip(colours.chunks_exact_mut(width * channels)) {
            out.chunks_exact_mut(channels).for_each(|pixel| pixel.copy_from_slice(&screen[..channels]));
            let Some(row) = y.checked_sub(top).filter(|row| *row < rows) else { continue };
            let row = &indices[row * columns..][..columns];
            for (pixel, index) in out[left * channels..].chunks_exact_mut(channels).zip(row) {
                pixel.copy_from_slice(&palette[usize::from(*index)][..channels]);
            }
        }
        push_columns(colours, (width, channels), (part.mode, region), converted, room, push)
    }
}

/// A file whose first frame comes next.
struct Opened<'a> {
    decoder: Decoder<Cursor<&'a [u8]>>,
    height: usize,
    width: usize,
    left: usize,
    top: usize,
    /// Height and width of the frame.
    frame: (usize, usize),
    transparent: Option<u8>,
}

fn open(bytes: &[u8]) -> Result<Opened<'_>> {
    let mut options = DecodeOptions::new();
    options.set_color_output(ColorOutput::Indexed);
    let mut decoder = options.read_info(Cursor::new(bytes)).map_err(error)?;
    let screen = (usize::from(decoder.width()), usize::from(decoder.height()));
    let Some(frame) = decoder.next_frame_info().map_err(error)? else {
        return Err(Error::corrupt("GIF has no frame"));
    };
    let [left, top, columns, rows] = [frame.left, frame.top, frame.width, frame.height].map(usize::from);
    let transparent = frame.transparent;
    // A frame that goes over the edges makes the screen larger.
    let (width, height) = (screen.0.max(left + columns), screen.1.max(top + rows));
    if width == 0 || height == 0 || columns == 0 || rows == 0 {
        return Err(Error::corrupt(format!(
            "GIF is {width}x{height} pixels, its first frame {columns}x{rows}"
        )));
    }
    Ok(Opened { decoder, height, width, left, top, frame: (rows, columns), transparent })
}

/// Red, green, blue and alpha of every index.
fn palette(stored: &[u8], transparent: Option<u8>) -> [[u8; 4]; 256] {
    let stored = stored.as_chunks::<3>().0;
    let ramp = stored.iter().zip(0..=255u8).all(|(colour, i)| *colour == [i; 3]);
    let mut colours = [[0, 0, 0, 255]; 256];
    for (colour, i) in colours.iter_mut().zip(0..=255u8) {
        let [r, g, b] = if ramp { [i; 3] } else { stored.get(usize::from(i)).copied().unwrap_or_default() };
        *colour = [r, g, b, if transparent == Some(i) { 0 } else { 255 }];
    }
    colours
}

fn error(e: DecodingError) -> Error {
    match e {
        DecodingError::OutOfMemory => Error::new(ErrorKind::Limit, "GIF needs more memory than there is"),
        e => Error::corrupt(format!("GIF is damaged: {e}")),
    }
}
