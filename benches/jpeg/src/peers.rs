//! The decoders that are compared, each used as its documentation recommends for speed with exact pixels.

use turbo::{Format, Turbo};
use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;

use crate::{Contender, File};

pub(crate) const NAMES: &[&str] = &["turbo", "turbo-region", "zune"];

pub(crate) fn contender(name: &str) -> Option<Box<dyn Contender>> {
    Some(match name {
        "turbo" => Box::new(TurboFull(Turbo::new(), vec![])),
        "turbo-region" => Box::new(TurboRegion(Turbo::new(), vec![])),
        "zune" => Box::new(Zune(vec![])),
        _ => return None,
    })
}

/// Memory for an RGB image, kept between images.
pub(crate) fn room(buffer: &mut Vec<u8>, width: u32, height: u32) -> &mut [u8] {
    let size = width as usize * height as usize * 3;
    if buffer.len() < size {
        buffer.resize(size, 0);
    }
    &mut buffer[..size]
}

struct TurboFull(Turbo, Vec<u8>);

impl Contender for TurboFull {
    fn run(&mut self, _: usize, file: &File) -> Result<usize, String> {
        let out = room(&mut self.1, file.width, file.height);
        self.0.decode_into(&file.bytes, Format::Rgb, None, 1, out, file.width as usize * 3)?;
        Ok(1)
    }
}

/// Columns cropped to whole MCUs around the window, rows above it skipped, none below it read.
struct TurboRegion(Turbo, Vec<u8>);

impl Contender for TurboRegion {
    fn run(&mut self, _: usize, file: &File) -> Result<usize, String> {
        for &window in &file.windows {
            // Cropping widens a window by less than an MCU a side.
            let width = file.width.min(window[2] + 64);
            let out = room(&mut self.1, width, window[3]);
            self.0.decode_into(&file.bytes, Format::Rgb, Some(window), 1, out, width as usize * 3)?;
        }
        Ok(file.windows.len())
    }
}

struct Zune(Vec<u8>);

impl Contender for Zune {
    fn run(&mut self, _: usize, file: &File) -> Result<usize, String> {
        let options = DecoderOptions::new_fast().jpeg_set_out_colorspace(ColorSpace::RGB);
        let mut decoder = zune_jpeg::JpegDecoder::new_with_options(ZCursor::new(&file.bytes), options);
        decoder.decode_into(room(&mut self.0, file.width, file.height)).map_err(|e| e.to_string())?;
        Ok(1)
    }
}
