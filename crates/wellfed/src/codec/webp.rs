//! WebP: lossy, lossless, with alpha, and the first frame of animations, on the `image-webp` crate, whose pixels are those
//! of libwebp.
//!
//! The chunks are walked first, as a file may say more bytes than it has: the decoder itself fills up what is missing. An
//! image is decoded whole, whatever part of it is wanted: each of its rows depends on those above, and the crate gives
//! nothing before the end.

use std::io::Cursor;

use image_webp::{DecodingError, WebPDecoder};

use super::{Codec, Header, Part, Push, Scratch, at_least, region::push_part};
use crate::{Error, ErrorKind, Limits, Result};

/// The WebP codec.
#[derive(Clone, Copy, Debug)]
pub struct WebP;

impl Codec for WebP {
    fn name(&self) -> &'static str {
        "webp"
    }

    fn sniff(&self, bytes: &[u8]) -> bool {
        bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP")
    }

    fn header(&self, bytes: &[u8]) -> Result<Header> {
        Ok(open(bytes)?.1)
    }

    fn decode(
        &self,
        bytes: &[u8],
        part: &Part,
        _: &Limits,
        scratch: &mut Scratch,
        push: &mut Push<'_>,
    ) -> Result<()> {
        let (mut decoder, Header { height, width, channels, .. }) = open(bytes)?;
        let count = height.saturating_mul(width);
        // The crate takes its memory by itself: planes of brightness and colour, or pixels of 4 bytes and their tables;
        // of animations a canvas, too.
        let own = count.saturating_mul(if decoder.is_animated() { 12 } else { 5 }).saturating_add(1 << 20);
        scratch.reserve(own, 0)?;
        Vec::<u8>::new().try_reserve_exact(own).map_err(|_| Error::memory(own, "planes of a WebP"))?;
        let Scratch { pixels, converted, room, .. } = scratch;
        let room = room.as_deref();
        let pixels = at_least(pixels, count.saturating_mul(channels), room)?;
        if decoder.is_animated() {
            decoder.read_frame(pixels).map_err(error)?;
        } else {
            decoder.read_image(pixels).map_err(error)?;
        }
        push_part(pixels, (width, channels), (part.mode, part.region), converted, room, push)
    }
}

fn open(bytes: &[u8]) -> Result<(WebPDecoder<Cursor<&[u8]>>, Header)> {
    walk(bytes)?;
    let mut decoder = WebPDecoder::new(Cursor::new(bytes)).map_err(error)?;
    // What the file says of its metadata cannot exceed the file.
    decoder.set_memory_limit(bytes.len());
    let exif = decoder.exif_metadata().map_err(error)?;
    let exif = exif.as_deref().map(|exif| exif.strip_prefix(b"Exif\0\0").unwrap_or(exif));
    let (width, height) = decoder.dimensions();
    let header = Header {
        height: height as usize,
        width: width as usize,
        channels: if decoder.has_alpha() { 4 } else { 3 },
        orientation: exif.and_then(wellfed_jpeg::exif_orientation).unwrap_or(1),
    };
    if header.height == 0 || header.width == 0 {
        return Err(Error::corrupt(format!("WebP is {width}x{height} pixels")));
    }
    Ok((decoder, header))
}

/// Every chunk must be there as long as it says.
fn walk(bytes: &[u8]) -> Result<()> {
    let length = |at: usize| bytes.get(at..)?.first_chunk::<4>().map(|b| u32::from_le_bytes(*b) as usize);
    let cut = |needed: usize| {
        Error::corrupt(format!("WebP ends after {} bytes of {needed}", bytes.len()))
            .with_hint("the file is truncated, as by an interrupted copy or download")
    };
    let end = length(4).ok_or_else(|| cut(12))?.saturating_add(8);
    if bytes.len() < end {
        return Err(cut(end));
    }
    let mut at = 12;
    while at + 8 <= end {
        let chunk = length(at + 4).ok_or_else(|| cut(at + 8))?;
        at = at.saturating_add(8).saturating_add(chunk);
        if at > end {
            return Err(Error::corrupt(format!(
                "WebP has a chunk that ends at {at}, behind its end at {end}"
            ))
            .with_offset(at as u64));
        }
        at += chunk % 2;
    }
    Ok(())
}

fn error(e: DecodingError) -> Error {
    match e {
        DecodingError::MemoryLimitExceeded => {
            Error::new(ErrorKind::Limit, "WebP needs more memory than its size allows")
        }
        e => Error::corrupt(format!("WebP is damaged: {e}")),
    }
}
