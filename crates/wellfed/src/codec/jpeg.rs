//! JPEG, on wellfed-jpeg: Pillow's pixels, of no more than the region that is wanted.
//!
//! Pillow's meaning of what libjpeg gives: inks (CMYK, YCCK) are taken as inverted, as Adobe writes them, and
//! become RGB in every mode, so that four channels always mean RGBA; brightness (`L`) is that of the RGB pixels,
//! as `Image.convert` computes it, not the file's own.

use wellfed_jpeg::{Colour, Format, Region};
use wellfed_kernels::image::Image;

use super::{Codec, Header, Origin, Rect, Request, Scratch, at_least, color};
use crate::{Error, ErrorKind, Limits, Result};

/// The JPEG codec.
#[derive(Clone, Copy, Debug)]
pub struct Jpeg;

impl Codec for Jpeg {
    fn name(&self) -> &'static str {
        "jpeg"
    }

    fn sniff(&self, bytes: &[u8]) -> bool {
        bytes.starts_with(&[0xFF, 0xD8, 0xFF])
    }

    fn header(&self, bytes: &[u8]) -> Result<Header> {
        let header = wellfed_jpeg::Header::parse(bytes).map_err(error)?;
        Ok(Header {
            height: header.height,
            width: header.width,
            channels: if header.colour == Colour::Grey { 1 } else { 3 },
            orientation: header.orientation,
        })
    }

    fn decode(
        &self,
        bytes: &[u8],
        request: &Request,
        limits: &Limits,
        scratch: &mut Scratch,
        out: &mut Image,
    ) -> Result<Origin> {
        let header = wellfed_jpeg::Header::parse(bytes).map_err(error)?;
        limits.check_pixels(header.height, header.width)?;
        let whole = Rect { top: 0, left: 0, height: header.height, width: header.width };
        let region = request.region.unwrap_or(whole);
        region.check_inside(header.height, header.width)?;
        let Rect { top, left, height, width } = region;

        let colour = header.colour;
        let native = match colour {
            Colour::Grey => 1,
            Colour::YCbCr | Colour::Rgb => 3,
            Colour::Cmyk | Colour::Ycck => 4,
        };
        let wanted = request.mode.channels(native.min(3));
        let format = if wanted == 3 && native == 1 { Format::Rgb } else { Format::Native };
        let direct = native == wanted && native != 4 || format == Format::Rgb;
        let options = wellfed_jpeg::Options {
            region: Some(Region { left, top, width, height }),
            format,
            limits: wellfed_jpeg::Limits { max_pixels: limits.max_pixels, ..Default::default() },
            index: scratch.rows.known.as_ref(),
            record: scratch.rows.record,
            ..Default::default()
        };
        if direct {
            let pixels = out.reshape(height, width, wanted);
            scratch.jpeg.decode_into(bytes, &options, pixels, width * wanted).map_err(error)?;
            scratch.rows.found = scratch.jpeg.take_index();
            return Ok(Origin { top, left });
        }
        let mut pixels = std::mem::take(&mut scratch.pixels);
        let stored = at_least(&mut pixels, height * width * native);
        let decoded = scratch.jpeg.decode_into(bytes, &options, stored, width * native).map_err(error);
        if decoded.is_ok() {
            scratch.rows.found = scratch.jpeg.take_index();
            let out = out.reshape(height, width, wanted);
            match native {
                4 => color::convert_inks(stored, out, wanted),
                _ => color::convert(stored, native, out, wanted),
            }
        }
        scratch.pixels = pixels;
        decoded.map(|_| Origin { top, left })
    }
}

/// The error in the engine's terms.
pub(crate) fn error(error: wellfed_jpeg::Error) -> Error {
    use wellfed_jpeg::ErrorKind as Kind;
    let kind = match error.kind() {
        Kind::Corrupt | Kind::Truncated => ErrorKind::Corrupt,
        Kind::Unsupported => ErrorKind::Unsupported,
        Kind::Limit => ErrorKind::Limit,
        _ => ErrorKind::Internal,
    };
    let mut this = Error::new(kind, error.message());
    if let Some(offset) = error.offset() {
        this = this.with_offset(offset as u64);
    }
    match error.kind() {
        Kind::Truncated => this.with_hint("the file is truncated, as by an interrupted copy or download"),
        _ => this,
    }
}
