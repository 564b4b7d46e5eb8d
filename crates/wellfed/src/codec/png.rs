//! PNG: every colour type and bit depth, interlaced or not, on the `png` crate.
//!
//! All chunks are walked first: a file that ends before its `IEND` chunk or holds a chunk whose checksum is
//! wrong is an error whatever part of the image is wanted, so that full decodes and decodes of a region accept
//! the same files (Pillow is more lenient: it takes a file whose last chunk is cut). For the same reason rows below a
//! region are inflated too: the checksum of all pixels comes last, and Pillow refuses a wrong one. A region spares the
//! memory of the other rows. Of an animation the default image is decoded, as Pillow shows it first.
//!
//! Values are those of Pillow's `convert`: samples of 1, 2 and 4 bits are spread over 0 to 255, a palette
//! becomes RGB, 16-bit colours and grey with alpha keep their high byte. 16-bit grey without alpha, Pillow's
//! `I;16`, is clipped at 255 instead. Where a file marks a colour as transparent (`tRNS`), alpha follows the PNG
//! specification; Pillow 13 does not apply it to 16-bit RGB and to grey of 2 or 4 bits.

use std::io::Cursor;

use png::{BitDepth, ColorType, DecodeOptions, Decoder, DecodingError, Reader, Transformations};
use wellfed_kernels::image::View;

use super::{Codec, Header, MaskDepth, Mode, Part, Push, Rect, Scratch, at_least, region::push_columns};
use crate::{Error, ErrorKind, Limits, Result, sample::DType};

const SIGNATURE: &[u8; 8] = b"\x89PNG\r\n\x1A\n";

/// Rows that the `png` crate holds at most, of 8 bytes a pixel: those it has inflated, while it makes room for more.
const ROWS: usize = 12;

/// The PNG codec.
#[derive(Clone, Copy, Debug)]
pub struct Png;

impl Codec for Png {
    fn name(&self) -> &'static str {
        "png"
    }

    fn sniff(&self, bytes: &[u8]) -> bool {
        bytes.starts_with(SIGNATURE)
    }

    fn header(&self, bytes: &[u8]) -> Result<Header> {
        walk(bytes, false)
    }

    fn decode(
        &self,
        bytes: &[u8],
        part: &Part,
        _: &Limits,
        scratch: &mut Scratch,
        push: &mut Push<'_>,
    ) -> Result<()> {
        let Header { height, width, channels, .. } = walk(bytes, false)?;
        let region = part.region;
        walk(bytes, true)?;

        // The crate takes its memory by itself: what it will take is reserved, and known to be there, before.
        let own = bytes.len().saturating_add(ROWS.saturating_mul(8 * width)).saturating_add(1 << 18);
        scratch.reserve(own, 0)?;
        Vec::<u8>::new().try_reserve_exact(own).map_err(|_| Error::memory(own, "rows of a PNG"))?;
        // `walk` has verified the chunks' checksums.
        let mut options = DecodeOptions::default();
        options.set_ignore_crc(true);
        options.set_ignore_adler32(false);
        options.set_ignore_text_chunk(true);
        options.set_ignore_iccp_chunk(true);
        let mut decoder = Decoder::new_with_options(Cursor::new(bytes), options);
        // Ancillary data cannot exceed the file; rows can, by at most 4 samples of 2 bytes a pixel.
        decoder.set_limits(png::Limits { bytes: bytes.len() + 64 * width + (1 << 20) });
        let mask = matches!(part.mode, Mode::Mask(_));
        decoder.set_transformations(if mask { Transformations::IDENTITY } else { Transformations::EXPAND });
        let mut reader = decoder.read_info().map_err(error)?;
        let info = reader.info();
        let (interlaced, clips) = (info.interlaced, info.color_type == ColorType::Grayscale);
        let (color, depth) = reader.output_color_type();
        let stored = (info.color_type, info.bit_depth);
        let frame = info.frame_control().map_or((width, height), |f| (f.width as usize, f.height as usize));
        if let Mode::Mask(wanted) = part.mode {
            if frame != (width, height) {
                return Err(Error::corrupt("PNG has animation data that contradict its header"));
            }
            return numbers(&mut reader, interlaced, stored, wanted, (height, width), region, scratch, push);
        }
        if frame != (width, height) || color.samples() != channels {
            return Err(Error::corrupt("PNG has animation or transparency data that contradict its header"));
        }
        let sample = match depth {
            BitDepth::Eight => 1,
            BitDepth::Sixteen => 2,
            _ => return Err(Error::new(ErrorKind::Internal, "PNG samples were not expanded to bytes")),
        };

        let Scratch { pixels, converted, room, .. } = scratch;
        let room = room.as_deref();
        let row = width * channels * sample;
        // Of rows above and below the region only one is kept at a time.
        let (top, rows) = if interlaced { (region.top, height) } else { (0, region.height + 1) };
        let pixels = at_least(pixels, rows.saturating_mul(row), room)?;
        if interlaced {
            reader.next_frame(pixels).map_err(error)?;
        } else {
            let (wanted, other) = pixels.split_at_mut(region.height * row);
            let mut read = |to: &mut [u8]| match reader.read_row(to).map_err(error)? {
                Some(_) => Ok(()),
                None => Err(Error::corrupt("PNG has fewer rows than its header says")),
            };
            (0..region.top).try_for_each(|_| read(other))?;
            wanted.chunks_exact_mut(row).try_for_each(&mut read)?;
            // The checksum of the pixels is behind the last row.
            (region.top + region.height..height).try_for_each(|_| read(other))?;
        }
        // Goes on to the end of the compressed data.
        if reader.read_row(&mut []).map_err(error)?.is_some() {
            return Err(Error::corrupt("PNG has more rows than its header says"));
        }
        if sample == 2 {
            narrow(pixels, channels, clips);
        }
        let rows = &pixels[top * width * channels..][..region.height * width * channels];
        push_columns(rows, (width, channels), (part.mode, region), converted, room, push)
    }
}

/// What the mask of `bytes` is, by its header.
pub(super) fn mask_dtype(bytes: &[u8]) -> Result<DType> {
    let Chunk { data, .. } = chunk(bytes, SIGNATURE.len(), true)?;
    match data.get(8..10) {
        Some([16, 0]) => Ok(DType::UInt16),
        Some([1, 0]) => Ok(DType::Bool),
        Some([_, 0 | 3]) => Ok(DType::UInt8),
        _ => Err(Error::new(ErrorKind::Unsupported, "a mask is a PNG of several channels")
            .with_hint("store masks as PNG with a palette or in grey")),
    }
}

/// Decodes a mask: its numbers as they are stored, those of 16 bits in native byte order.
#[allow(clippy::too_many_arguments, reason = "what a mask has in common with an image")]
fn numbers(
    reader: &mut Reader<Cursor<&[u8]>>,
    interlaced: bool,
    (color, depth): (ColorType, BitDepth),
    wanted: MaskDepth,
    (height, width): (usize, usize),
    region: Rect,
    scratch: &mut Scratch,
    push: &mut Push<'_>,
) -> Result<()> {
    let bits = depth as usize;
    let found = match (color, depth) {
        (ColorType::Indexed, _) => Some(MaskDepth::Byte),
        (ColorType::Grayscale, BitDepth::One) => Some(MaskDepth::Bit),
        (ColorType::Grayscale, BitDepth::Sixteen) => Some(MaskDepth::Word),
        (ColorType::Grayscale, _) => Some(MaskDepth::Byte),
        _ => None,
    };
    if found != Some(wanted) {
        let what =
            format!("mask is a PNG of {color:?} with {bits} bits, but {wanted:?} is expected of its field");
        return Err(Error::new(ErrorKind::Shape, what).with_hint(
            "all masks of a data set must be stored alike: with a palette, or in grey of as many bits",
        ));
    }
    let packed = (width * bits).div_ceil(8);
    let Scratch { pixels, converted, room, .. } = scratch;
    let room = room.as_deref();
    // Of rows below the region only one is kept at a time.
    let rows = if interlaced { height } else { region.top + region.height };
    let bytes = at_least(pixels, (rows + 1).saturating_mul(packed), room)?;
    let (bytes, other) = bytes.split_at_mut(rows * packed);
    if interlaced {
        reader.next_frame(bytes).map_err(error)?;
    } else {
        let mut read = |to: &mut [u8]| match reader.read_row(to).map_err(error)? {
            Some(_) => Ok(()),
            None => Err(Error::corrupt("PNG has fewer rows than its header says")),
        };
        bytes.chunks_exact_mut(packed).try_for_each(&mut read)?;
        // The checksum of the pixels is behind the last row.
        (rows..height).try_for_each(|_| read(&mut other[..packed]))?;
    }
    // Goes on to the end of the compressed data.
    if reader.read_row(&mut []).map_err(error)?.is_some() {
        return Err(Error::corrupt("PNG has more rows than its header says"));
    }
    let bytes = &mut bytes[region.top * packed..];
    let channels = if bits == 16 { 2 } else { 1 };
    let view = if bits < 8 {
        // Pillow spreads grey of 2 and 4 bits over 0 to 255, and leaves indices and single bits alone.
        let spread = if color == ColorType::Grayscale && bits > 1 { 255 / ((1 << bits) - 1) } else { 1 };
        let values = at_least(converted, region.height * width, room)?;
        for (row, out) in bytes.chunks_exact(packed).zip(values.chunks_exact_mut(width)) {
            for (x, value) in out.iter_mut().enumerate() {
                let shift = 8 - bits - (x * bits) % 8;
                *value = ((row[x * bits / 8] >> shift) & ((1u8 << bits) - 1)) * spread;
            }
        }
        View::new(values, region.height, width, 1, width)
    } else {
        if bits == 16 {
            for number in bytes[..region.height * packed].as_chunks_mut::<2>().0 {
                *number = u16::from_be_bytes(*number).to_ne_bytes();
            }
        }
        View::new(&bytes[..region.height * packed], region.height, width, channels, width * channels)
    };
    let view = view.and_then(|view| view.crop(0, region.left, region.height, region.width));
    push(view.ok_or_else(|| Error::new(ErrorKind::Internal, "PNG rows lack the region"))?.into())
}

/// Turns big-endian 16-bit samples into bytes, in place: the high byte, or, for grey that `clips`, the value
/// clipped at 255 (and the high byte of an alpha that follows it).
fn narrow(samples: &mut [u8], channels: usize, clips: bool) {
    for i in 0..samples.len() / 2 {
        let (high, low) = (samples[2 * i], samples[2 * i + 1]);
        let clipped = if high == 0 { low } else { 255 };
        samples[i] = if clips && i % channels == 0 { clipped } else { high };
    }
}

/// Walks the chunks to the last one. With `verify`, their checksums must be right.
fn walk(bytes: &[u8], verify: bool) -> Result<Header> {
    let mut header: Option<(Header, u8)> = None;
    let (mut image, mut transparency, mut orientation) = (false, false, 1);
    let mut at = SIGNATURE.len();
    loop {
        let Chunk { kind, data, end } = chunk(bytes, at, verify)?;
        match (&kind, &header) {
            (b"IHDR", None) => header = Some(image_header(data)?),
            (b"IHDR", Some(_)) => return Err(bad("PNG has two headers", at)),
            (_, None) => return Err(bad("PNG does not begin with its header", at)),
            (b"IDAT", _) => image = true,
            (b"tRNS", _) if !image => transparency = true,
            (b"eXIf", _) => orientation = wellfed_jpeg::exif_orientation(data).unwrap_or(orientation),
            (b"IEND", _) => break,
            _ => {}
        }
        at = end;
    }
    let (mut header, color) = header.ok_or_else(|| bad("PNG has no header", at))?;
    if !image {
        return Err(bad("PNG has no image data", at));
    }
    if transparency && matches!(color, 0 | 2 | 3) {
        header.channels += 1;
    }
    header.orientation = orientation;
    Ok(header)
}

/// True for one image without frames that nothing but `IEND` follows: Pillow reads the chunks behind the pixels with
/// them.
///
/// # Errors
/// `Corrupt` if a chunk is cut, or its checksum is wrong.
pub(crate) fn is_plain(bytes: &[u8]) -> Result<bool> {
    let (mut at, mut pixels, mut plain) = (SIGNATURE.len(), false, true);
    loop {
        let Chunk { kind, end, .. } = chunk(bytes, at, true)?;
        match &kind {
            b"IDAT" => pixels = true,
            b"IEND" => return Ok(plain),
            _ if pixels || kind == *b"acTL" => plain = false,
            _ => {}
        }
        at = end;
    }
}

/// True for 8 bits in grey, RGB or a palette without a transparent colour, and for RGBA.
pub(super) fn is_common(bytes: &[u8]) -> Result<bool> {
    let Chunk { data, .. } = chunk(bytes, SIGNATURE.len(), false)?;
    let channels = match data.get(8..10) {
        Some([8, 0]) => 1,
        Some([8, 2 | 3]) => 3,
        Some([8, 6]) => 4,
        _ => return Ok(false),
    };
    Ok(walk(bytes, false)?.channels == channels)
}

struct Chunk<'a> {
    kind: [u8; 4],
    data: &'a [u8],
    end: usize,
}

fn chunk(bytes: &[u8], at: usize, verify: bool) -> Result<Chunk<'_>> {
    let cut = || {
        Error::corrupt(format!("PNG ends after {} bytes, before its IEND chunk", bytes.len()))
            .with_hint("the file is truncated, as by an interrupted copy or download")
    };
    let rest = bytes.get(at..).ok_or_else(cut)?;
    let (length, rest) = rest.split_first_chunk::<4>().ok_or_else(cut)?;
    let length = u32::from_be_bytes(*length) as usize;
    let kind = *rest.first_chunk::<4>().ok_or_else(cut)?;
    let checked = rest.get(..4 + length).ok_or_else(cut)?;
    let stored = *rest[4 + length..].first_chunk::<4>().ok_or_else(cut)?;
    // The header's own checksum is verified always: a decision may rest on nothing else.
    if (verify || kind == *b"IHDR") && crc32fast::hash(checked) != u32::from_be_bytes(stored) {
        return Err(bad(format!("PNG chunk {} has a wrong checksum", kind.escape_ascii()), at));
    }
    Ok(Chunk { kind, data: &checked[4..], end: at + 12 + length })
}

/// Size, channels without transparency, and colour type.
fn image_header(data: &[u8]) -> Result<(Header, u8)> {
    let &[w3, w2, w1, w0, h3, h2, h1, h0, depth, color, _, _, _] = data else {
        return Err(Error::corrupt(format!("PNG header has {} bytes instead of 13", data.len())));
    };
    let width = u32::from_be_bytes([w3, w2, w1, w0]) as usize;
    let height = u32::from_be_bytes([h3, h2, h1, h0]) as usize;
    let sides = 1..=(i32::MAX as usize);
    if !sides.contains(&width) || !sides.contains(&height) {
        return Err(Error::corrupt(format!("PNG is {width}x{height} pixels")));
    }
    let channels = match (color, depth) {
        (0, 1 | 2 | 4 | 8 | 16) => 1,
        (2, 8 | 16) | (3, 1 | 2 | 4 | 8) => 3,
        (4, 8 | 16) => 2,
        (6, 8 | 16) => 4,
        _ => return Err(Error::corrupt(format!("PNG has colour type {color} with {depth} bits"))),
    };
    Ok((Header { height, width, channels, orientation: 1 }, color))
}

fn bad(what: impl Into<String>, at: usize) -> Error {
    Error::corrupt(what).with_offset(at as u64)
}

fn error(e: DecodingError) -> Error {
    match e {
        DecodingError::LimitsExceeded => {
            Error::new(ErrorKind::Limit, "PNG needs more memory than its size allows")
        }
        e => Error::corrupt(format!("PNG is damaged: {e}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_bits_become_eight_as_in_pillow() {
        let samples = [0u16, 255, 256, 0x80FF, 0xFFFF].map(u16::to_be_bytes).concat();
        let narrowed = |channels, clips| {
            let mut samples = samples.clone();
            narrow(&mut samples, channels, clips);
            samples[..5].to_vec()
        };
        assert_eq!(narrowed(1, true), [0, 255, 255, 255, 255]);
        assert_eq!(narrowed(3, false), [0, 0, 1, 128, 255]);
        assert_eq!(narrowed(2, true), [0, 0, 255, 128, 255]);
    }
}
