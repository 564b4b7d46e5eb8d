//! JPEG: sequential and progressive Huffman-coded files of 1, 3 or 4 components, on zune-jpeg.
//!
//! Every file is checked for completeness first ([`JpegHeader::check_scans`]) and then handed to the decoder
//! without metadata, so that full decodes and decodes of a region accept the same files. A region spares the
//! rows below it: the decoder is told that the image is only as tall as needed. Colours follow libjpeg's rules
//! and Pillow's conversions; inks (CMYK, YCCK) are taken as inverted, as Adobe writes and Pillow reads them,
//! and become RGB in every mode, so that four channels always mean RGBA.
//!
//! Stricter than Pillow: entropy-coded data that break Huffman's rules are an error, where libjpeg warns, guesses
//! and goes on. A decode of a region does not see such data below it.
//!
//! Measured with zune-jpeg 0.5.15 against Pillow 13.0.0 (libjpeg-turbo 3.2.0) on 250 ImageNet photographs:
//!
//! | sampling | files | equal bytes | off by more than 1 | most |
//! |---|---|---|---|---|
//! | 4:4:4 | 191 | 99.1 % | 0.1 % | 3 |
//! | 4:2:2 | 5 | 92.8 % | 2.6 % | 3 |
//! | 4:2:0 | 51 | 86.9 % | 5.0 % | 6 |
//! | grey | 3 | 99.4 % | 0 % | 1 |
//!
//! Where chroma is subsampled and the width is no multiple of the MCU, the last columns can differ by more (by up
//! to 67 in noise): zune-jpeg upsamples the padding, libjpeg repeats the last sample. One decode takes 1226 µs a
//! photograph on one core (zune-jpeg with its own reader: 1418 µs), of which 1047 µs remain for a region that
//! ends at 84 % of the height.

use wellfed_kernels::image::Image;
use zune_core::{colorspace::ColorSpace, options::DecoderOptions};
use zune_jpeg::{JpegDecoder, errors::DecodeErrors};

use super::{
    Codec, Header, Origin, Rect, Request, Scratch, color,
    jpeg_header::{Colour, JpegHeader},
    jpeg_reader::JpegReader,
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
        let header = parse(bytes)?;
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
        let header = parse(bytes)?;
        limits.check_pixels(header.height, header.width)?;
        let rows = match request.region {
            Some(region) => {
                region.check_inside(header.height, header.width)?;
                rows_to_decode(&header, region)
            }
            None => header.height,
        };
        let scans = header.check_scans(bytes)?;
        let mut rewritten = std::mem::take(&mut scratch.bytes);
        let (head, tail) = header.split_clean(bytes, scans, rows, &mut rewritten)?;
        let reader = JpegReader::new(head, tail, header.is_sequential());

        let native = channels(&header);
        let wanted = request.mode.channels(native);
        let size = rows * header.width * native;
        let pixels =
            if wanted == native { out.reshape(rows, header.width, native) } else { scratch.pixels(size) };
        if !is_usual(&header) {
            pixels.fill(0); // A rare layout that the decoder might not fill must not show an earlier image.
        }
        let decoded = decode_clean(reader, &header, rows, pixels);
        scratch.bytes = rewritten;
        decoded?;
        if wanted != native {
            color::convert(&scratch.pixels[..size], native, out.reshape(rows, header.width, wanted), wanted);
        }
        Ok(Origin { top: 0, left: 0 })
    }
}

/// Reads the header, and refuses layouts that zune-jpeg 0.5.15 gets wrong without saying so (garbled pixels or a
/// panic; found by comparing every combination of sampling factors with Pillow).
fn parse(bytes: &[u8]) -> Result<JpegHeader> {
    let header = JpegHeader::parse(bytes)?;
    let components = header.components();
    let (h, v) = header.sampling();
    let unsupported = |what: &str| {
        let factors: Vec<String> = components.iter().map(|c| format!("{}x{}", c.h, c.v)).collect();
        Err(Error::new(
            ErrorKind::Unsupported,
            format!("JPEG with sampling factors {}{what} is not supported", factors.join(",")),
        ))
    };
    if let [luma, chroma @ ..] = components
        && !chroma.is_empty()
    {
        // T.81 B.2.3 allows 10 blocks an MCU.
        let blocks: u8 = components.iter().map(|c| c.h * c.v).sum();
        let plain = (luma.h, luma.v) == (h, v)
            && chroma.iter().all(|c| (c.h, c.v) == (1, 1) || (c.h, c.v) == (luma.h, luma.v));
        if luma.h < h || h == 3 || !plain && (h > 2 || v > 2) || blocks > 10 {
            return unsupported("");
        }
        if !header.progressive && !header.is_sequential() && v > 1 {
            return unsupported(" in several scans");
        }
    }
    Ok(header)
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

fn decode_clean(reader: JpegReader<'_>, header: &JpegHeader, rows: usize, pixels: &mut [u8]) -> Result<()> {
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
    let mut decoder = JpegDecoder::new_with_options(reader, options);
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
