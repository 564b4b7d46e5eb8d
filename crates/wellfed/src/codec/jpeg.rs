//! JPEG, on wellfed-jpeg: Pillow's pixels, of no more than the region that is wanted, band by band.
//!
//! Pillow's meaning of what libjpeg gives: inks (CMYK, YCCK) are taken as inverted, as Adobe writes them, and
//! become RGB in every mode, so that four channels always mean RGBA; brightness (`L`) is that of the RGB pixels,
//! as `Image.convert` computes it, not the file's own. TensorFlow's (`TensorFlowL`) is that.

use std::cell::RefCell;

use wellfed_jpeg::{Ask, Colour, Format, Region, Rows};
use wellfed_kernels::{gray::luma, image::Planes};

use super::{Codec, Dct, Header, Mode, Part, Push, Rect, RowHint, Scale, Scratch, at_least};
use crate::{Error, ErrorKind, Limits, Result, budget::Room};

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
        Ok(header_of(&wellfed_jpeg::Header::parse(bytes).map_err(error)?))
    }

    fn scales(&self) -> bool {
        true
    }

    fn decode(
        &self,
        bytes: &[u8],
        part: &Part,
        limits: &Limits,
        scratch: &mut Scratch,
        push: &mut Push<'_>,
    ) -> Result<()> {
        let Scratch { jpeg, row_hint, pixels, room, .. } = scratch;
        let (room, refusal) = (room.as_deref(), RefCell::new(None));
        let allowed = |bytes| allows(room, bytes, &refusal);
        let options = with_rows(of_part(part, format(part.mode), limits, Ask::new(&allowed)), row_hint);
        let mut pushed = Ok(());
        let decoded = jpeg.decode_rows(bytes, &options, |band| {
            if pushed.is_ok() {
                pushed = convert(band, part.mode, pixels, room, push);
            }
        });
        pushed?;
        decoded.map_err(|e| refusal.take().unwrap_or_else(|| error(e)))?;
        row_hint.found = jpeg.take_index();
        Ok(())
    }

    fn decode_into(
        &self,
        bytes: &[u8],
        part: &Part,
        limits: &Limits,
        scratch: &mut Scratch,
        out: &mut [u8],
    ) -> Result<bool> {
        let header = wellfed_jpeg::Header::parse(bytes).map_err(error)?;
        let Some(format) = interleaved(part.mode, header.colour) else { return Ok(false) };
        let Scratch { jpeg, row_hint, room, .. } = scratch;
        let (room, refusal) = (room.as_deref(), RefCell::new(None));
        let allowed = |bytes| allows(room, bytes, &refusal);
        let options = with_rows(of_part(part, format, limits, Ask::new(&allowed)), row_hint);
        let stride = part.region.width * part.mode.channels(header_of(&header).channels);
        let decoded = jpeg.decode_into(bytes, &options, out, stride);
        decoded.map_err(|e| refusal.take().unwrap_or_else(|| error(e)))?;
        row_hint.found = jpeg.take_index();
        Ok(true)
    }

    fn coefficients(
        &self,
        bytes: &[u8],
        part: &Part,
        limits: &Limits,
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<Option<wellfed_jpeg::Part>> {
        if has_inks(bytes)? {
            return Ok(None);
        }
        let Scratch { jpeg, row_hint, room, .. } = scratch;
        let (room, refusal) = (room.as_deref(), RefCell::new(None));
        let allowed = |bytes| allows(room, bytes, &refusal);
        let options = with_rows(of_coefficients(part, limits, Ask::new(&allowed)), row_hint);
        // Where a row index knows enough, the device reads the codes as well.
        let part = jpeg.indexed_part(bytes, &options, out).and_then(|part| match part {
            Some(part) => Ok(part),
            None => jpeg.part(bytes, &options, out),
        });
        let part = part.map_err(|e| refusal.take().unwrap_or_else(|| error(e)))?;
        row_hint.found = jpeg.take_index();
        Ok(Some(part))
    }
}

/// What a decoder is asked for that stops at coefficients.
pub(super) fn of_coefficients<'a>(part: &Part, limits: &Limits, ask: Ask<'a>) -> wellfed_jpeg::Options<'a> {
    of_part(&Part { scale: Scale::Full, dct: Dct::Accurate, ..*part }, Format::Rgb, limits, ask)
}

/// What a decoder is asked for.
pub(super) fn of_part<'a>(
    part: &Part,
    format: Format,
    limits: &Limits,
    ask: Ask<'a>,
) -> wellfed_jpeg::Options<'a> {
    let Rect { top, left, height, width } = part.region;
    wellfed_jpeg::Options {
        region: Some(Region { left, top, width, height }),
        scale: part.scale,
        dct: part.dct,
        format,
        limits: wellfed_jpeg::Limits { max_pixels: limits.max_pixels, ..Default::default() },
        ask,
        ..Default::default()
    }
}

/// The same with what is known of where rows begin, and is to be found out. It is noted for images of all channels.
fn with_rows<'a>(options: wellfed_jpeg::Options<'a>, hint: &'a RowHint) -> wellfed_jpeg::Options<'a> {
    let all = options.format != Format::Grey;
    wellfed_jpeg::Options {
        index: hint.known.as_ref().filter(|_| all),
        record: hint.record && all,
        ..options
    }
}

/// What the decoder is asked for to write interleaved pixels of `mode` by itself, if it can.
pub(super) fn interleaved(mode: Mode, colour: Colour) -> Option<Format> {
    match (mode, colour) {
        (_, Colour::Cmyk | Colour::Ycck) => None,
        (Mode::Rgb, _) => Some(Format::Rgb),
        (Mode::Unchanged, _) | (Mode::L | Mode::TensorFlowL, Colour::Grey) => Some(Format::Native),
        _ => None,
    }
}

/// Reserves what a decoder asks for; a refusal is kept, since the decoder's own error knows less.
pub(super) fn allows(room: Option<&Room>, bytes: usize, refusal: &RefCell<Option<Error>>) -> bool {
    let reserved = room.map_or(Ok(()), |room| room.take(bytes));
    reserved.map_err(|error| refusal.replace(Some(error))).is_ok()
}

/// The header in the engine's terms.
pub(super) fn header_of(header: &wellfed_jpeg::Header) -> Header {
    Header {
        height: header.height,
        width: header.width,
        channels: if header.colour == Colour::Grey { 1 } else { 3 },
        orientation: header.orientation,
    }
}

/// What the decoder is asked for.
pub(super) fn format(mode: Mode) -> Format {
    if mode == Mode::TensorFlowL { Format::Grey } else { Format::Native }
}

/// Whether a file has four channels of ink.
pub(super) fn has_inks(bytes: &[u8]) -> Result<bool> {
    let header = wellfed_jpeg::Header::parse(bytes).map_err(error)?;
    Ok(matches!(header.colour, Colour::Cmyk | Colour::Ycck))
}

/// Whether a file is baseline, of grey or YCbCr in one of the samplings that encoders use.
pub(super) fn is_common(bytes: &[u8]) -> Result<bool> {
    let header = wellfed_jpeg::Header::parse(bytes).map_err(error)?;
    let factors: Vec<(u8, u8)> = header.components().iter().map(|c| (c.horizontal, c.vertical)).collect();
    let known = match factors[..] {
        [_] => header.colour == Colour::Grey,
        [first, (1, 1), (1, 1)] => {
            header.colour == Colour::YCbCr && matches!(first, (1, 1) | (2, 1) | (1, 2) | (2, 2) | (4, 1))
        }
        _ => false,
    };
    Ok(known && header.process == wellfed_jpeg::Process::Baseline)
}

/// Whether a file has brightness by itself.
pub(super) fn has_luma(bytes: &[u8]) -> Result<bool> {
    let header = wellfed_jpeg::Header::parse(bytes).map_err(error)?;
    Ok(matches!(header.colour, Colour::Grey | Colour::YCbCr))
}

/// Brings a band to the channels of `mode`, in `memory` where they are not the decoder's own.
pub(super) fn convert(
    band: Rows<'_>,
    mode: Mode,
    memory: &mut Vec<u8>,
    room: Option<&Room>,
    push: &mut Push<'_>,
) -> Result<()> {
    let plane = band.count * band.stride;
    let stored: [&[u8]; 4] =
        std::array::from_fn(|c| if c < band.channels { band.plane(c) } else { &[] as &[u8] });
    let mut push = |planes: &[&[u8]]| match Planes::new(planes, band.count, band.width, band.stride) {
        Some(planes) => push(planes.into()),
        None => Err(Error::new(ErrorKind::Internal, "JPEG rows do not fill their band")),
    };
    let grey = band.channels == 1;
    if band.channels < 4 && matches!(mode, Mode::Rgb | Mode::OpenCv | Mode::Unchanged)
        || grey && matches!(mode, Mode::L | Mode::TensorFlowL)
    {
        return push(&stored[..band.channels]);
    }
    let (inks, more) = at_least(memory, 4 * plane, room)?.split_at_mut(3 * plane);
    let [r, g, b] = match stored {
        [grey, [], [], []] => [grey; 3],
        [r, g, b, []] => [r, g, b],
        [c, m, y, k] => {
            for (ink, to) in [c, m, y].into_iter().zip(inks.chunks_exact_mut(plane)) {
                colour_of_ink(ink, k, to);
            }
            let (r, rest) = inks.split_at(plane);
            let (g, b) = rest.split_at(plane);
            [r, g, b]
        }
    };
    match mode {
        Mode::Rgb
        | Mode::OpenCv
        | Mode::Unchanged
        | Mode::Mask(_)
        | Mode::TensorFlow
        | Mode::TensorFlowAccurate
        | Mode::TensorFlowUnchanged => push(&[r, g, b]),
        Mode::Rgba | Mode::TensorFlowRgba => {
            more.fill(255);
            push(&[r, g, b, more])
        }
        Mode::L | Mode::TensorFlowL => {
            for (((to, &r), &g), &b) in more.iter_mut().zip(r).zip(g).zip(b) {
                *to = luma(r, g, b);
            }
            push(&[more])
        }
    }
}

/// Pillow's `cmyk2rgb` (Convert.c), of a colour's ink and black that are stored as 255 minus their amounts.
fn colour_of_ink(ink: &[u8], black: &[u8], to: &mut [u8]) {
    for ((to, &ink), &black) in to.iter_mut().zip(ink).zip(black) {
        let white = u32::from(black);
        let product = u32::from(255 - ink) * white + 128;
        // A division by 255 that rounds to nearest.
        *to = (white - (((product >> 8) + product) >> 8)) as u8;
    }
}

/// The error in the engine's terms.
pub(crate) fn error(error: wellfed_jpeg::Error) -> Error {
    use wellfed_jpeg::ErrorKind as Kind;
    let kind = match error.kind() {
        Kind::Corrupt | Kind::Truncated => ErrorKind::Corrupt,
        Kind::Unsupported => ErrorKind::Unsupported,
        Kind::Limit | Kind::Memory => ErrorKind::Limit,
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
