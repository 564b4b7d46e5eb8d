//! JPEG: sequential and progressive Huffman-coded files of 1, 3 or 4 components, on zune-jpeg.
//!
//! Every file is checked for completeness first ([`JpegHeader::check_scans`]) and then handed to the decoder
//! without metadata, so that full decodes and decodes of a region accept the same files. A region spares the
//! rows below it: the decoder is told that the image is only as tall as needed. Colours follow libjpeg's rules
//! and Pillow's conversions; inks (CMYK, YCCK) are taken as inverted, as Adobe writes and Pillow reads them,
//! and become RGB in every mode, so that four channels always mean RGBA.

use wellfed_kernels::image::Image;
use zune_core::{bytestream::ZCursor, colorspace::ColorSpace, options::DecoderOptions};
use zune_jpeg::{JpegDecoder, errors::DecodeErrors};

use super::{
    Codec, Header, Origin, Rect, Request, Scratch, color,
    jpeg_header::{Colour, JpegHeader},
};
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
        let header = JpegHeader::parse(bytes)?;
        Ok(Header {
            height: header.height,
            width: header.width,
            channels: channels(&header),
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
        let header = JpegHeader::parse(bytes)?;
        limits.check_pixels(header.height, header.width)?;
        let rows = match request.region {
            Some(region) => {
                region.check_inside(header.height, header.width)?;
                rows_to_decode(&header, region)
            }
            None => header.height,
        };
        let scans = header.check_scans(bytes)?;
        let mut clean = std::mem::take(&mut scratch.bytes);
        header.write_clean(bytes, scans, rows, &mut clean)?;

        let native = channels(&header);
        let wanted = request.mode.channels(native);
        let size = rows * header.width * native;
        let pixels =
            if wanted == native { out.reshape(rows, header.width, native) } else { scratch.pixels(size) };
        if !is_usual(&header) {
            pixels.fill(0); // A rare layout that the decoder might not fill must not show an earlier image.
        }
        let decoded = decode_clean(&clean, &header, rows, pixels);
        scratch.bytes = clean;
        decoded?;
        if wanted != native {
            color::convert(&scratch.pixels[..size], native, out.reshape(rows, header.width, wanted), wanted);
        }
        Ok(Origin { top: 0, left: 0 })
    }
}

/// Channels that the decoder is asked for.
fn channels(header: &JpegHeader) -> usize {
    if header.colour() == Colour::Grey { 1 } else { 3 }
}

/// True for the layouts that nearly all files have: one scan; grey or full chroma, or chroma at half
/// resolution in one or both directions.
fn is_usual(header: &JpegHeader) -> bool {
    let full = |c: &super::jpeg_header::Component| (c.h, c.v) == (1, 1);
    header.is_sequential()
        && match header.components() {
            [_] => true,
            [luma, chroma @ ..] => luma.h <= 2 && luma.v <= 2 && chroma.iter().all(full),
            [] => false,
        }
}

/// How many rows the decoder must be told that the image has, so that those of `region` are as in a full
/// decode.
fn rows_to_decode(header: &JpegHeader, region: Rect) -> usize {
    if !is_usual(header) {
        return header.height;
    }
    let (_, mcu_rows) = header.mcu();
    let bottom = region.top + region.height;
    // Where chroma has half the rows, its upsampling looks one row into the MCUs below.
    let context = usize::from(mcu_rows > 8);
    let mcus = (bottom + context).div_ceil(mcu_rows);
    bottom.max((mcus - 1) * mcu_rows + 1).min(header.height)
}

fn decode_clean(bytes: &[u8], header: &JpegHeader, rows: usize, pixels: &mut [u8]) -> Result<()> {
    let named_rgb = header.components().iter().map(|c| c.id).eq(*b"RGB");
    let space = match header.colour() {
        Colour::Grey => ColorSpace::Luma,
        // zune-jpeg takes three components for YCbCr unless they are named RGB; asked for YCbCr, it converts
        // nothing.
        Colour::Rgb if !named_rgb => ColorSpace::YCbCr,
        Colour::Ycc if named_rgb => {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "JPEG names its components RGB but declares YCbCr",
            ));
        }
        _ => ColorSpace::RGB,
    };
    let options = DecoderOptions::default()
        .set_strict_mode(true)
        .set_max_width(usize::from(u16::MAX))
        .set_max_height(usize::from(u16::MAX))
        .jpeg_set_out_colorspace(space);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers().map_err(error)?;
    let expected = (header.width, rows);
    if decoder.dimensions() != Some(expected) || decoder.output_buffer_size() != Some(pixels.len()) {
        return Err(Error::new(
            ErrorKind::Internal,
            format!("JPEG of {expected:?} pixels was read as {:?}", decoder.dimensions()),
        ));
    }
    decoder.decode_into(pixels).map_err(error)
}

fn error(e: DecodeErrors) -> Error {
    match e {
        DecodeErrors::Unsupported(scheme) => {
            Error::new(ErrorKind::Unsupported, format!("JPEG is of an unsupported kind: {scheme:?}"))
        }
        e => Error::corrupt(format!("JPEG is damaged: {e}")),
    }
}
