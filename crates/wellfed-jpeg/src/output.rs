//! Where rows of pixels go: interleaved or planar memory of the caller, or the caller's function.

use crate::header::Colour;
use crate::kernels;
use crate::level::Level;
use crate::{Error, ErrorKind, Result};

/// Which channels a decode gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// What the file means: 1 channel of grey, 3 of RGB, or 4 of inks as they are stored (which Adobe and Pillow
    /// take for inverted).
    #[default]
    Native,
    /// 3 channels of RGB; grey is repeated. Not for inks.
    Rgb,
    /// 1 channel of brightness: the file's own where it has it, else computed from RGB as libjpeg does. Not for
    /// inks.
    Grey,
}

impl Format {
    /// Channels that come out of an image of these colours.
    ///
    /// # Errors
    /// `Unsupported` for inks, which only `Native` gives.
    pub fn channels(self, colour: Colour) -> Result<usize> {
        match (self, colour) {
            (Format::Native, Colour::Grey) => Ok(1),
            (Format::Native, Colour::Cmyk | Colour::Ycck) => Ok(4),
            (Format::Native, Colour::YCbCr | Colour::Rgb) => Ok(3),
            (_, Colour::Cmyk | Colour::Ycck) => Err(Error::new(
                ErrorKind::Unsupported,
                format!("JPEG of four inks is not converted to {self:?}; decode it as Native"),
            )),
            (Format::Rgb, _) => Ok(3),
            (Format::Grey, _) => Ok(1),
        }
    }
}

/// Rows of pixels, planar: all of the region's columns, from one row on.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    data: &'a [u8],
    /// The first row, counted from the region's top.
    pub top: usize,
    /// Rows.
    pub count: usize,
    /// Columns.
    pub width: usize,
    /// Bytes from one row to the next.
    pub stride: usize,
    /// Channels.
    pub channels: usize,
}

impl<'a> Rows<'a> {
    /// All rows of a channel, `stride` bytes apart; at least `width` bytes of the last.
    pub fn plane(&self, channel: usize) -> &'a [u8] {
        let plane = self.count * self.stride;
        &self.data[channel * plane..][..plane]
    }
}

/// The caller's memory or function.
pub(crate) enum Sink<'o, 'f> {
    /// Pixel after pixel, rows `stride` bytes apart.
    Interleaved { out: &'o mut [u8], stride: usize },
    /// One slice for each channel, rows `stride` bytes apart.
    Planar { planes: [&'o mut [u8]; 4], stride: usize },
    /// Called with bands of rows.
    Bands(&'f mut dyn FnMut(Rows<'_>)),
}

/// A sink, and what goes into it.
pub(crate) struct Target<'o, 'f> {
    pub(crate) sink: Sink<'o, 'f>,
    format: Format,
    channels: usize,
}

impl<'o, 'f> Target<'o, 'f> {
    /// Accepts a sink for `height` rows of `width` pixels.
    pub(crate) fn new(
        sink: Sink<'o, 'f>,
        format: Format,
        colour: Colour,
        height: usize,
        width: usize,
    ) -> Result<Self> {
        let channels = format.channels(colour)?;
        let fits = |length: usize, stride: usize, row: usize| {
            stride >= row && (height - 1).checked_mul(stride).is_some_and(|n| n + row <= length)
        };
        let (ok, length) = match &sink {
            Sink::Interleaved { out, stride } => (fits(out.len(), *stride, width * channels), out.len()),
            Sink::Planar { planes, stride } => {
                let shortest = planes[..channels].iter().map(|plane| plane.len()).min().unwrap_or(0);
                (fits(shortest, *stride, width), shortest)
            }
            Sink::Bands(_) => (true, 0),
        };
        if !ok {
            let what =
                format!("{width}x{height} pixels of {channels} channels do not fit into {length} bytes");
            return Err(Error::new(ErrorKind::Argument, what));
        }
        Ok(Target { sink, format, channels })
    }

    pub(crate) fn channels(&self) -> usize {
        self.channels
    }

    /// Writes one row: `y` of the region, and `i` of the `count` rows of a band of `stride` bytes each.
    #[allow(clippy::too_many_arguments, reason = "the one place where rows meet all kinds of sinks")]
    pub(crate) fn write_row(
        &mut self,
        level: Level,
        colour: Colour,
        y: usize,
        i: usize,
        count: usize,
        rows: &[&[u8]; 4],
        band: &mut [u8],
        stride: usize,
    ) {
        let width = rows[0].len();
        let channels = self.channels;
        match &mut self.sink {
            Sink::Interleaved { out, stride } => {
                let out = &mut out[y * *stride..][..width * channels];
                interleave(level, colour, self.format, rows, out);
            }
            Sink::Planar { planes, stride } => {
                let [a, b, c, d] = planes;
                let start = y * *stride;
                let row = |used: bool| if used { start..start + width } else { 0..0 };
                let outs = [
                    &mut a[row(true)],
                    &mut b[row(channels > 1)],
                    &mut c[row(channels > 2)],
                    &mut d[row(channels > 3)],
                ];
                planar(level, colour, self.format, rows, outs);
            }
            Sink::Bands(_) => {
                let plane = count * stride;
                let mut rest = &mut band[..channels * plane];
                let outs: [&mut [u8]; 4] = std::array::from_fn(|c| {
                    if c >= channels {
                        return &mut [] as &mut [u8];
                    }
                    let (now, later) = std::mem::take(&mut rest).split_at_mut(plane);
                    rest = later;
                    &mut now[i * stride..i * stride + width]
                });
                planar(level, colour, self.format, rows, outs);
            }
        }
    }

    /// Hands a band of rows to the caller's function, if that is the sink.
    pub(crate) fn end_band(&mut self, top: usize, count: usize, band: &[u8], stride: usize, width: usize) {
        if let Sink::Bands(function) = &mut self.sink {
            let channels = self.channels;
            function(Rows { data: &band[..channels * count * stride], top, count, width, stride, channels });
        }
    }
}

/// Colours of one row into planes.
fn planar(level: Level, colour: Colour, format: Format, rows: &[&[u8]; 4], outs: [&mut [u8]; 4]) {
    let [a, b, c, d] = outs;
    match (colour, format) {
        (Colour::Grey, Format::Rgb) => {
            a.copy_from_slice(rows[0]);
            b.copy_from_slice(rows[0]);
            c.copy_from_slice(rows[0]);
        }
        (Colour::Grey, _) | (Colour::YCbCr, Format::Grey) => a.copy_from_slice(rows[0]),
        (Colour::Rgb, Format::Grey) => grey(rows, a),
        (Colour::YCbCr, _) => kernels::ycc_to_planar(level, rows[0], rows[1], rows[2], [a, b, c]),
        (Colour::Rgb, _) => {
            a.copy_from_slice(rows[0]);
            b.copy_from_slice(rows[1]);
            c.copy_from_slice(rows[2]);
        }
        (Colour::Cmyk, _) => {
            a.copy_from_slice(rows[0]);
            b.copy_from_slice(rows[1]);
            c.copy_from_slice(rows[2]);
            d.copy_from_slice(rows[3]);
        }
        (Colour::Ycck, _) => {
            kernels::ycck_to_cmyk(level, rows[0], rows[1], rows[2], [a, b, c]);
            d.copy_from_slice(rows[3]);
        }
    }
}

/// Colours of one row, pixel after pixel.
fn interleave(level: Level, colour: Colour, format: Format, rows: &[&[u8]; 4], out: &mut [u8]) {
    match (colour, format) {
        (Colour::Grey, Format::Rgb) => kernels::interleave3(level, [rows[0], rows[0], rows[0]], out),
        (Colour::Grey, _) | (Colour::YCbCr, Format::Grey) => out.copy_from_slice(rows[0]),
        (Colour::Rgb, Format::Grey) => grey(rows, out),
        (Colour::YCbCr, _) => kernels::ycc_to_interleaved(level, rows[0], rows[1], rows[2], out),
        (Colour::Rgb, _) => kernels::interleave3(level, [rows[0], rows[1], rows[2]], out),
        (Colour::Cmyk, _) => kernels::interleave4(level, *rows, out),
        (Colour::Ycck, _) => {
            let width = rows[0].len();
            let mut inks = vec![0; 3 * width];
            let (c, rest) = inks.split_at_mut(width);
            let (m, y) = rest.split_at_mut(width);
            kernels::ycck_to_cmyk(level, rows[0], rows[1], rows[2], [&mut *c, &mut *m, &mut *y]);
            kernels::interleave4(level, [c, m, y, rows[3]], out);
        }
    }
}

/// Brightness of RGB as libjpeg computes it (`rgb_gray_convert`): ITU-R BT.601 in 16-bit fixed point.
fn grey(rows: &[&[u8]; 4], out: &mut [u8]) {
    for (((out, &r), &g), &b) in out.iter_mut().zip(rows[0]).zip(rows[1]).zip(rows[2]) {
        *out = ((19595 * u32::from(r) + 38470 * u32::from(g) + 7471 * u32::from(b) + 32768) >> 16) as u8;
    }
}
