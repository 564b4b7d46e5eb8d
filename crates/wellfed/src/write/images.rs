//! Images as they are written: bytes as they are, or made smaller, compressed anew, packed.
//!
//! Invariant: an image that nothing is to change keeps its bytes.

use wellfed_jpeg::{Ask, Options, encode_compact};
use wellfed_kernels::{
    image::{Image, View},
    resample::{Filter, Resize, Resizer},
};

use crate::{
    Error, ErrorKind, Limits, Result,
    codec::{self, Encoded, Mode, Request, is_jpeg, jpeg_error, kernel_error},
    source::PACKED,
};

/// Quality of JPEGs, where nothing else is said.
const QUALITY: u8 = 95;

/// What is done to images.
#[derive(Clone, Copy, Debug)]
pub(super) struct Images {
    pub(super) resize_shorter: Option<usize>,
    pub(super) quality: Option<u8>,
    pub(super) packed: bool,
    pub(super) limits: Limits,
}

/// Memory that is used again.
#[derive(Debug, Default)]
pub(super) struct ImageScratch {
    codec: codec::Scratch,
    decoded: Image,
    resized: Image,
    resizer: Resizer,
}

/// An image to write, and the extension for what it is.
pub(super) type File = (&'static str, Vec<u8>);

impl Images {
    /// An encoded image. Resized ones become JPEG if they were of a format that loses something, else PNG, unless a quality
    /// says JPEG; those with alpha are PNG.
    pub(super) fn stored(&self, bytes: Vec<u8>, scratch: &mut ImageScratch) -> Result<File> {
        let encoded = Encoded::open(&bytes)?;
        let request = Request { mode: Mode::Unchanged, apply_orientation: true, ..Request::default() };
        let (height, width) = encoded.size(&request);
        self.limits.check_pixels(height, width)?;
        let opaque = matches!(encoded.header().channels, 1 | 3);
        let again = self.quality.is_some() && self.resize_shorter.is_none() && opaque;
        if self.smaller(height, width).is_none() && !again {
            return self.packed(bytes, scratch);
        }
        let lossless = !matches!(encoded.codec().name(), "jpeg" | "packed jpeg" | "webp");
        let mut decoded = std::mem::take(&mut scratch.decoded);
        let result = codec::decode_image(&bytes, &request, &self.limits, &mut scratch.codec, &mut decoded)
            .and_then(|_| self.pixels(decoded.view(), lossless, scratch));
        scratch.decoded = decoded;
        result
    }

    /// Pixels, as PNG if nothing is to be lost.
    pub(super) fn pixels(&self, view: View<'_>, lossless: bool, scratch: &mut ImageScratch) -> Result<File> {
        let mut resized = std::mem::take(&mut scratch.resized);
        let result = self.resized(view, &mut resized, scratch).and_then(|shrunk| {
            let view = if shrunk { resized.view() } else { view };
            self.encoded(view, lossless, scratch)
        });
        scratch.resized = resized;
        result
    }

    fn resized(&self, view: View<'_>, into: &mut Image, scratch: &mut ImageScratch) -> Result<bool> {
        let Some([height, width]) = self.smaller(view.height(), view.width()) else { return Ok(false) };
        let resize = Resize::new(height, width, Filter::Bilinear);
        scratch.resizer.resize(view, &resize, into).map_err(kernel_error)?;
        Ok(true)
    }

    fn encoded(&self, view: View<'_>, lossless: bool, scratch: &mut ImageScratch) -> Result<File> {
        let size = (view.height(), view.width(), view.channels());
        let row = size.1 * size.2;
        let dense;
        let pixels = if view.stride() == row {
            &view.data()[..size.0 * row]
        } else {
            dense = (0..size.0).flat_map(|y| view.row(y)).copied().collect::<Vec<u8>>();
            &dense
        };
        if !matches!(size.2, 1 | 3) || (lossless && self.quality.is_none()) {
            return Ok(("png", png(pixels, size)?));
        }
        let mut file = Vec::new();
        encode_compact(pixels, size, self.quality.unwrap_or(QUALITY), &mut file).map_err(|e| {
            match e.kind() {
                // Too long a side is this image's fault.
                wellfed_jpeg::ErrorKind::Argument => Error::new(ErrorKind::Unsupported, e.message()),
                _ => jpeg_error(e),
            }
        })?;
        // It was made for its bytes, and may be as large as most of it that was asked for.
        file.shrink_to_fit();
        self.packed(file, scratch)
    }

    fn packed(&self, bytes: Vec<u8>, scratch: &mut ImageScratch) -> Result<File> {
        if self.packed && is_jpeg(&bytes) {
            let limits = wellfed_jpeg::Limits { max_pixels: self.limits.max_pixels, ..Default::default() };
            let allowed = |_| true;
            let options = Options { limits, ask: Ask::new(&allowed), ..Options::default() };
            let packed = scratch.codec.decoder().pack_with(&bytes, &options).map_err(jpeg_error)?;
            return Ok((PACKED, packed));
        }
        Ok((extension_of(&bytes)?, bytes))
    }

    /// Height and width, if the image is larger than it is to be: torchvision's `Resize` of the shorter edge.
    fn smaller(&self, height: usize, width: usize) -> Option<[usize; 2]> {
        let (short, long) = (height.min(width), height.max(width));
        let edge = self.resize_shorter.filter(|edge| *edge < short)?;
        let other = (edge as u64 * long as u64 / short as u64) as usize;
        Some(if height <= width { [edge, other] } else { [other, edge] })
    }
}

/// The extension for an encoded image that is kept as it is.
pub(super) fn extension_of(bytes: &[u8]) -> Result<&'static str> {
    Ok(match codec::require(bytes)?.name() {
        "jpeg" => "jpg",
        "packed jpeg" => PACKED,
        "pnm" => "ppm",
        "tiff" => "tif",
        // The others are called by their extension.
        name => name,
    })
}

/// An image of 1 to 4 channels as PNG.
fn png(pixels: &[u8], (height, width, channels): (usize, usize, usize)) -> Result<Vec<u8>> {
    let failed = |e: png::EncodingError| Error::new(ErrorKind::Internal, format!("cannot make a PNG: {e}"));
    let side = |side: usize| {
        u32::try_from(side).map_err(|_| Error::limit("image", side as u64, u32::MAX.into(), "pixels a side"))
    };
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, side(width)?, side(height)?);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_color(match channels {
        1 => png::ColorType::Grayscale,
        2 => png::ColorType::GrayscaleAlpha,
        3 => png::ColorType::Rgb,
        _ => png::ColorType::Rgba,
    });
    let mut writer = encoder.write_header().map_err(failed)?;
    writer.write_image_data(pixels).map_err(failed)?;
    writer.finish().map_err(failed)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(bytes: &[u8]) -> Image {
        let mut image = Image::new();
        let request = Request { mode: Mode::Unchanged, ..Request::default() };
        let scratch = &mut codec::Scratch::default();
        codec::decode_image(bytes, &request, &Limits::default(), scratch, &mut image).unwrap();
        image
    }

    fn image(height: usize, width: usize, channels: usize) -> Image {
        let mut image = Image::new();
        let slot = image.reshape(height, width, channels).unwrap();
        slot.iter_mut().enumerate().for_each(|(i, value)| *value = (i / 3 % 256) as u8);
        image
    }

    fn images(resize_shorter: Option<usize>, quality: Option<u8>, packed: bool) -> Images {
        Images { resize_shorter, quality, packed, limits: Limits::default() }
    }

    #[test]
    fn what_nothing_is_to_change_keeps_its_bytes() {
        let scratch = &mut ImageScratch::default();
        let png = png(image(40, 30, 3).pixels(), (40, 30, 3)).unwrap();
        let (extension, jpeg) = images(None, Some(80), false).stored(png.clone(), scratch).unwrap();
        assert_eq!(extension, "jpg");
        for made in
            [images(None, None, false), images(Some(30), None, false), images(Some(30), Some(5), false)]
        {
            assert_eq!(made.stored(jpeg.clone(), scratch).unwrap(), ("jpg", jpeg.clone()));
            assert_eq!(made.stored(png.clone(), scratch).unwrap(), ("png", png.clone()));
        }
        let (extension, packed) = images(None, None, true).stored(jpeg.clone(), scratch).unwrap();
        assert_eq!((extension, decoded(&packed).pixels()), ("wfpc", decoded(&jpeg).pixels()));
        assert_eq!(images(None, None, true).stored(png.clone(), scratch).unwrap().0, "png");
        // What was packed stays so.
        assert_eq!(images(None, None, false).stored(packed.clone(), scratch).unwrap(), ("wfpc", packed));
    }

    #[test]
    fn the_shorter_side_becomes_what_was_asked_for() {
        let scratch = &mut ImageScratch::default();
        for (height, width, expected) in
            [(40, 30, (21, 16)), (30, 41, (16, 21)), (16, 90, (16, 90)), (17, 17, (16, 16))]
        {
            for channels in 1..=4 {
                let source = image(height, width, channels);
                let png = png(source.pixels(), (height, width, channels)).unwrap();
                let (extension, file) = images(Some(16), None, false).stored(png.clone(), scratch).unwrap();
                let made = decoded(&file);
                assert_eq!(
                    (extension, made.height(), made.width(), made.channels()),
                    ("png", expected.0, expected.1, channels)
                );
                let (extension, file) = images(Some(16), Some(90), false).stored(png, scratch).unwrap();
                let jpeg = expected != (height, width) && matches!(channels, 1 | 3);
                assert_eq!(extension, if jpeg { "jpg" } else { "png" });
                assert_eq!((decoded(&file).height(), decoded(&file).width()), expected);
            }
        }
    }

    #[test]
    fn a_turned_image_is_upright_when_it_was_made_anew() {
        let bytes = include_bytes!("../../tests/images/orientation_6.jpg");
        let upright = {
            let mut image = Image::new();
            let request = Request { mode: Mode::Unchanged, apply_orientation: true, ..Request::default() };
            codec::decode_image(
                bytes,
                &request,
                &Limits::default(),
                &mut codec::Scratch::default(),
                &mut image,
            )
            .unwrap();
            image
        };
        let scratch = &mut ImageScratch::default();
        let (_, file) = images(None, Some(100), false).stored(bytes.to_vec(), scratch).unwrap();
        let made = decoded(&file);
        assert_eq!((made.height(), made.width()), (upright.height(), upright.width()));
        let apart =
            made.pixels().iter().zip(upright.pixels()).map(|(a, b)| u64::from(a.abs_diff(*b))).sum::<u64>();
        assert!(apart / made.pixels().len() as u64 <= 6, "{apart}");
        assert_eq!(codec::image_header(&file).unwrap().1.orientation, 1);
    }

    #[test]
    fn what_is_no_image_is_an_error_of_the_sample() {
        for bytes in [&b""[..], b"hello", b"\xFF\xD8\xFF", b"RIFF\x10\0\0\0WEBPVP8 "] {
            let e =
                images(None, None, false).stored(bytes.to_vec(), &mut ImageScratch::default()).unwrap_err();
            assert!(matches!(e.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported), "{e}");
        }
    }
}
