//! TIFF of 8 bits a channel, on the `tiff` crate: grey, RGB and RGBA, in strips or tiles, as stored or compressed by LZW,
//! deflate or PackBits. The first image of a file.
//!
//! Pillow turns a TIFF as its orientation says whenever it loads one, and forgets the orientation: so does this codec. What
//! it would read otherwise than Pillow is refused: other depths, palettes, inks, fax and JPEG compression, premultiplied
//! alpha, separate planes.

use std::io::Cursor;

use tiff::{
    ColorType, TiffError,
    decoder::{Decoder, Limits as TiffLimits},
    tags::{CompressionMethod, Tag},
};
use wellfed_kernels::image::View;

use super::{
    Codec, Header, Part, Push, Scratch, apply_orientation, at_least, orientation::swaps_sides,
    region::push_part, reserve,
};
use crate::{Error, ErrorKind, Limits, Result};

/// The TIFF codec.
#[derive(Clone, Copy, Debug)]
pub struct Tiff;

impl Codec for Tiff {
    fn name(&self) -> &'static str {
        "tiff"
    }

    fn sniff(&self, bytes: &[u8]) -> bool {
        bytes.starts_with(b"II*\0") || bytes.starts_with(b"MM\0*")
    }

    fn header(&self, bytes: &[u8]) -> Result<Header> {
        let Opened { height, width, channels, orientation, .. } = open(bytes)?;
        let (height, width) = if swaps_sides(orientation) { (width, height) } else { (height, width) };
        Ok(Header { height, width, channels, orientation: 1 })
    }

    fn decode(
        &self,
        bytes: &[u8],
        part: &Part,
        _: &Limits,
        scratch: &mut Scratch,
        push: &mut Push<'_>,
    ) -> Result<()> {
        let Opened { decoder, height, width, channels, orientation } = open(bytes)?;
        let Scratch { pixels, converted, turned: [_, upright], room, .. } = scratch;
        let room = room.as_deref();
        let size = height.saturating_mul(width).saturating_mul(channels);
        let pixels = at_least(pixels, size, room)?;
        // The crate inflates a strip or a tile at a time beside the pixels, and takes its compressed bytes.
        let own = size.saturating_add(bytes.len()).saturating_add(1 << 16);
        reserve(room, own, 0)?;
        let mut limits = TiffLimits::default();
        limits.decoding_buffer_size = size;
        limits.intermediate_buffer_size = own;
        limits.ifd_value_size = bytes.len();
        decoder.with_limits(limits).read_image_bytes(pixels).map_err(error)?;
        let wanted = (part.mode, part.region);
        if orientation == 1 {
            return push_part(pixels, (width, channels), wanted, converted, room, push);
        }
        reserve(room, size, upright.capacity())?;
        let view = View::new(pixels, height, width, channels, width * channels);
        let view =
            view.ok_or_else(|| Error::new(ErrorKind::Internal, "a TIFF has fewer rows than expected"))?;
        apply_orientation(view, orientation, upright)?;
        push_part(upright.pixels(), (upright.width(), channels), wanted, converted, room, push)
    }
}

/// A file whose first image can be read.
struct Opened<'a> {
    decoder: Decoder<Cursor<&'a [u8]>>,
    /// As stored.
    height: usize,
    width: usize,
    channels: usize,
    orientation: u8,
}

fn open(bytes: &[u8]) -> Result<Opened<'_>> {
    let mut decoder = Decoder::new(Cursor::new(bytes)).map_err(error)?;
    let mut limits = TiffLimits::default();
    // What the file says of itself cannot exceed the file.
    limits.ifd_value_size = bytes.len();
    decoder = decoder.with_limits(limits);
    let (width, height) = decoder.dimensions().map_err(error)?;
    if width == 0 || height == 0 {
        return Err(Error::corrupt(format!("TIFF is {width}x{height} pixels")));
    }
    let colours = decoder.colortype().map_err(error)?;
    let mut number = |tag| decoder.find_tag_unsigned::<u16>(tag).map_err(error);
    let samples = number(Tag::SamplesPerPixel)?.unwrap_or(1);
    let planes = number(Tag::PlanarConfiguration)?.unwrap_or(1);
    let order = number(Tag::FillOrder)?.unwrap_or(1);
    let compression = number(Tag::Compression)?.unwrap_or(1);
    let orientation = number(Tag::Orientation)?.unwrap_or(1);
    let mut numbers = |tag| decoder.find_tag_unsigned_vec::<u16>(tag).map_err(error);
    let extra = numbers(Tag::ExtraSamples)?.unwrap_or_default();
    let formats = numbers(Tag::SampleFormat)?.unwrap_or_default();
    // ExtraSamples: 2 is alpha that colours are not multiplied by.
    let channels = match (colours, samples, extra.as_slice()) {
        (ColorType::Gray(8), 1, []) => 1,
        (ColorType::RGB(8), 3, []) => 3,
        (ColorType::RGBA(8), 4, [] | [2]) => 4,
        _ => {
            let extra = if extra.is_empty() { String::new() } else { format!(", extra samples {extra:?}") };
            return Err(unsupported(format!("TIFF of {colours:?} with {samples} channels{extra}")));
        }
    };
    let method = CompressionMethod::from_u16_exhaustive(compression);
    let known = [
        CompressionMethod::None,
        CompressionMethod::LZW,
        CompressionMethod::Deflate,
        CompressionMethod::OldDeflate,
        CompressionMethod::PackBits,
    ];
    if !known.contains(&method) {
        return Err(unsupported(format!("TIFF with compression {method:?} ({compression})")));
    }
    if planes != 1 || order != 1 || formats.iter().any(|format| *format != 1) {
        let what = format!("TIFF with planes {planes}, bit order {order} and sample formats {formats:?}");
        return Err(unsupported(what));
    }
    let orientation = u8::try_from(orientation).ok().filter(|o| (1..=8).contains(o)).unwrap_or(1);
    Ok(Opened { decoder, height: height as usize, width: width as usize, channels, orientation })
}

fn unsupported(what: String) -> Error {
    Error::new(ErrorKind::Unsupported, format!("a {what} is not supported"))
        .with_hint("store images as JPEG or PNG, or as TIFF in grey, RGB or RGBA of 8 bits a channel")
}

fn error(e: TiffError) -> Error {
    match e {
        TiffError::UnsupportedError(what) => unsupported(format!("TIFF with what the decoder calls: {what}")),
        TiffError::LimitsExceeded => {
            Error::new(ErrorKind::Limit, "TIFF needs more memory than its size allows")
        }
        e => Error::corrupt(format!("TIFF is damaged: {e}")),
    }
}
