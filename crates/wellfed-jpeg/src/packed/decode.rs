//! From a record to pixels.

use super::{Layout, Packed, damaged};
use crate::decoder::{Decoder, Image, prepare};
use crate::frame::{Frame, Window};
use crate::options::{Info, Options};
use crate::output::{Rows, Sink, Target};
use crate::reconstruct::{Job, Reconstructor};
use crate::{Region, Result};

/// Decoding of packed coefficients: the pixels that the JPEG gives. Of the options `tolerant`, `index` and `record`
/// mean nothing here.
impl Decoder {
    /// As [`Decoder::decode`], from a record.
    ///
    /// # Errors
    /// `Corrupt` for a damaged record; else those of [`Decoder::decode`] for regions, formats and pixels.
    pub fn decode_packed(&mut self, packed: &Packed<'_>, options: &Options<'_>) -> Result<Image> {
        let (frame, region, channels) = prepare(&packed.header, options)?;
        let Region { width, height, .. } = region;
        let mut pixels = Vec::new();
        options.ask.at_least(&mut pixels, width * height * channels)?;
        let sink = Sink::Interleaved { out: &mut pixels, stride: width * channels };
        self.run_packed(packed, &frame, region, options, sink)?;
        Ok(Image { width, height, channels, pixels })
    }

    /// As [`Decoder::decode_into`], from a record.
    ///
    /// # Errors
    /// Those of [`Decoder::decode_packed`], and `Argument` if `out` is too short.
    pub fn decode_packed_into(
        &mut self,
        packed: &Packed<'_>,
        options: &Options<'_>,
        out: &mut [u8],
        stride: usize,
    ) -> Result<Info> {
        let (frame, region, _) = prepare(&packed.header, options)?;
        self.run_packed(packed, &frame, region, options, Sink::Interleaved { out, stride })
    }

    /// As [`Decoder::decode_planar`], from a record.
    ///
    /// # Errors
    /// Those of [`Decoder::decode_packed`], and `Argument` if a plane is too short.
    pub fn decode_packed_planar(
        &mut self,
        packed: &Packed<'_>,
        options: &Options<'_>,
        planes: [&mut [u8]; 4],
        stride: usize,
    ) -> Result<Info> {
        let (frame, region, _) = prepare(&packed.header, options)?;
        self.run_packed(packed, &frame, region, options, Sink::Planar { planes, stride })
    }

    /// As [`Decoder::decode_rows`], from a record.
    ///
    /// # Errors
    /// Those of [`Decoder::decode_packed`]. Damage that is found late comes after bands were given out.
    pub fn decode_packed_rows(
        &mut self,
        packed: &Packed<'_>,
        options: &Options<'_>,
        mut function: impl FnMut(Rows<'_>),
    ) -> Result<Info> {
        let (frame, region, _) = prepare(&packed.header, options)?;
        self.run_packed(packed, &frame, region, options, Sink::Bands(&mut function))
    }

    fn run_packed(
        &mut self,
        packed: &Packed<'_>,
        frame: &Frame,
        region: Region,
        options: &Options<'_>,
        sink: Sink<'_, '_>,
    ) -> Result<Info> {
        let colour = packed.header.colour;
        let mut target = Target::new(sink, options.format, colour, region.height, region.width)?;
        let window = frame.window(region);
        // Whole groups of all components, which may begin left of the window.
        let left = window.left & !3;
        let window = Window { left, ..window };
        let quant = &options.dct.tables(&packed.quant);
        let job = Job { level: self.level, frame, colour, region, window, quant, dct: options.dct };
        self.reconstructor.start(&job, (window.right - left).next_multiple_of(4), options.ask)?;
        let mut done = region.top;
        for mcu in window.top..window.bottom {
            for (c, plane) in frame.planes().iter().enumerate() {
                let Layout { rows, groups, table } = packed.layouts[c];
                let to = (window.right * plane.h).div_ceil(4).min(groups);
                // Padding is not in the record, and is never looked at.
                for row in (mcu * plane.v..(mcu + 1) * plane.v).take_while(|&row| row < rows) {
                    let run = packed.run(c, row, left * plane.h / 4, to)?;
                    if !self.reconstructor.transform_packed(&job, c, row, run) {
                        return Err(damaged(table + 4 * row));
                    }
                }
            }
            let ready = Reconstructor::ready(&job, mcu);
            self.reconstructor.emit(&job, done, ready, &mut target, options.ask)?;
            done = done.max(ready);
        }
        Ok(Info { width: region.width, height: region.height, channels: target.channels() })
    }
}
