//! BMP without compression: palettes of 1, 4 and 8 bits, colours of 16, 24 and 32 bits, as Pillow reads them.
//!
//! Layout: "Bitmap Storage" of the Windows documentation. Read by ourselves, because a region then takes its own rows and no
//! others. Headers are taken as Pillow's `BmpImagePlugin` takes them: 32 bits have alpha only where their masks say so, a
//! palette that is a ramp of grey counts as one of 256 steps. Compressed files (RLE4, RLE8) are refused.

use super::{Codec, Header, Part, Push, Rect, Scratch, at_least, region::push_columns};
use crate::{Error, ErrorKind, Limits, Result};

/// Bytes before the second header.
const FILE_HEADER: usize = 14;

/// The BMP codec.
#[derive(Clone, Copy, Debug)]
pub struct Bmp;

/// Where the numbers of a pixel are.
#[derive(Clone, Debug)]
enum Kind {
    /// Indices of so many bits, into colours.
    Palette(usize, Box<[[u8; 3]; 256]>),
    /// 5 bits a colour, or 6 of green.
    Packed { green: u32 },
    /// Bytes of a pixel, and which of them are red, green, blue and alpha.
    Bytes { size: usize, rgb: [usize; 3], alpha: Option<usize> },
}

#[derive(Debug)]
struct Layout {
    header: Header,
    kind: Kind,
    bits: usize,
    /// The first byte of pixels, and those of a row.
    offset: usize,
    stride: usize,
    bottom_up: bool,
}

impl Codec for Bmp {
    fn name(&self) -> &'static str {
        "bmp"
    }

    fn sniff(&self, bytes: &[u8]) -> bool {
        let size = bytes.get(FILE_HEADER..).and_then(<[u8]>::first_chunk).map(|b| u32::from_le_bytes(*b));
        bytes.starts_with(b"BM") && matches!(size, Some(12 | 40 | 52 | 56 | 64 | 108 | 124))
    }

    fn header(&self, bytes: &[u8]) -> Result<Header> {
        Ok(layout(bytes)?.header)
    }

    fn decode(
        &self,
        bytes: &[u8],
        part: &Part,
        _: &Limits,
        scratch: &mut Scratch,
        push: &mut Push<'_>,
    ) -> Result<()> {
        let Layout { header, kind, bits, offset, stride, bottom_up } = layout(bytes)?;
        let Header { height, width, channels, .. } = header;
        let Rect { top, height: rows, .. } = part.region;
        // Pillow accepts a last row without its padding.
        let (used, all) = ((width * bits).div_ceil(8), stride.saturating_mul(height - 1));
        let end = offset.saturating_add(all).saturating_add(used);
        if bytes.len() < end {
            let what =
                format!("BMP ends after {} bytes, before the last of its pixels at {end}", bytes.len());
            return Err(Error::corrupt(what));
        }
        let Scratch { pixels, converted, room, .. } = scratch;
        let room = room.as_deref();
        let pixels = at_least(pixels, rows.saturating_mul(width).saturating_mul(channels), room)?;
        for (y, out) in (top..).zip(pixels.chunks_exact_mut(width * channels)) {
            let row = if bottom_up { height - 1 - y } else { y };
            let row = &bytes[offset + row * stride..][..used];
            match &kind {
                Kind::Palette(bits, colours) => {
                    for (x, pixel) in out.as_chunks_mut::<3>().0.iter_mut().enumerate() {
                        let shift = 8 - bits - (x * bits) % 8;
                        let index = (usize::from(row[x * bits / 8]) >> shift) & ((1 << bits) - 1);
                        *pixel = colours[index];
                    }
                }
                Kind::Packed { green } => {
                    for (pixel, packed) in out.as_chunks_mut::<3>().0.iter_mut().zip(row.as_chunks::<2>().0) {
                        let packed = u32::from(u16::from_le_bytes(*packed));
                        let spread = |bits: u32, shift: u32| {
                            let most = (1 << bits) - 1;
                            (((packed >> shift) & most) * 255 / most) as u8
                        };
                        *pixel = [spread(5, 5 + green), spread(*green, 5), spread(5, 0)];
                    }
                }
                Kind::Bytes { size, rgb: [r, g, b], alpha } => {
                    for (pixel, from) in out.chunks_exact_mut(channels).zip(row.chunks_exact(*size)) {
                        pixel[..3].copy_from_slice(&[from[*r], from[*g], from[*b]]);
                        if let Some(alpha) = alpha {
                            pixel[3] = from[*alpha];
                        }
                    }
                }
            }
        }
        push_columns(pixels, (width, channels), (part.mode, part.region), converted, room, push)
    }
}

fn layout(bytes: &[u8]) -> Result<Layout> {
    let cut = || Error::corrupt(format!("BMP ends after {} bytes, within its header", bytes.len()));
    let long = |at: usize| {
        bytes.get(at..).and_then(<[u8]>::first_chunk).map(|b| u32::from_le_bytes(*b)).ok_or_else(cut)
    };
    let short = |at: usize| {
        bytes.get(at..).and_then(<[u8]>::first_chunk).map(|b| u16::from_le_bytes(*b)).ok_or_else(cut)
    };
    let size = long(FILE_HEADER)? as usize;
    let (width, height, bits, compression, mut colours, bottom_up, padded);
    if size == 12 {
        (width, height) = (u32::from(short(18)?), u32::from(short(20)?));
        (bits, compression, colours, bottom_up, padded) = (short(24)?, 0, 0, true, 3);
    } else {
        let stored = long(22)?;
        bottom_up = stored >> 24 != 0xFF;
        (width, height) = (long(18)?, if bottom_up { stored } else { stored.wrapping_neg() });
        (bits, compression, colours, padded) = (short(28)?, long(30)?, long(46)?, 4);
    }
    let sides = 1..=(i32::MAX as u32);
    if !sides.contains(&width) || !sides.contains(&height) {
        return Err(Error::corrupt(format!("BMP is {width}x{height} pixels")));
    }
    if colours == 0 && bits <= 8 {
        colours = 1 << bits;
    }
    let masks = FILE_HEADER + 40;
    let mut after = FILE_HEADER + size;
    let bgr = |size| Kind::Bytes { size, rgb: [2, 1, 0], alpha: None };
    let kind = match (bits, compression) {
        (1 | 4 | 8, 0) => {
            let count = (colours as usize).min(65_536);
            let stored = bytes.get(after..).and_then(|b| b.get(..count * padded)).ok_or_else(cut)?;
            after += count * padded;
            Kind::Palette(usize::from(bits), Box::new(palette(stored, padded)))
        }
        (16, 0) => Kind::Packed { green: 5 },
        (24, 0) => bgr(3),
        (32, 0) => bgr(4),
        (16 | 24 | 32, 3) => {
            let mut mask = [0; 4];
            // Headers of 40 bytes have three masks behind them, longer ones have them inside; alpha from 56 bytes on.
            let count = if size >= 56 { 4 } else { 3 };
            for (i, mask) in mask[..count].iter_mut().enumerate() {
                *mask = long(masks + 4 * i)?;
            }
            if size < 52 {
                after += 12;
            }
            masked(bits, mask).ok_or_else(|| {
                let [r, g, b, a] = mask;
                unsupported(format!(
                    "BMP of {bits} bits with the masks {r:08x}, {g:08x}, {b:08x} and {a:08x}"
                ))
            })?
        }
        _ => {
            let name = match compression {
                0 => String::new(),
                1 | 2 => " compressed as RLE".to_owned(),
                other => format!(" of compression {other}"),
            };
            return Err(unsupported(format!("BMP of {bits} bits{name}")));
        }
    };
    let mut offset = long(10)? as usize;
    // Some writers count no palette. Pillow skips it then, whatever follows.
    if bits <= 8 && offset == FILE_HEADER + size {
        offset = offset.saturating_add(padded.saturating_mul(colours as usize));
    }
    let channels = if matches!(kind, Kind::Bytes { alpha: Some(_), .. }) { 4 } else { 3 };
    let (width, height, bits) = (width as usize, height as usize, usize::from(bits));
    Ok(Layout {
        header: Header { height, width, channels, orientation: 1 },
        kind,
        bits,
        offset: if offset == 0 { after } else { offset },
        stride: (width * bits).div_ceil(32) * 4,
        bottom_up,
    })
}

/// The layouts that Pillow knows.
fn masked(bits: u16, mask: [u32; 4]) -> Option<Kind> {
    let [r, g, b, a] = mask;
    let bytes = |size, rgb, alpha| Some(Kind::Bytes { size, rgb, alpha });
    match (bits, r, g, b, a) {
        (32, 0x00FF_0000, 0xFF00, 0xFF, 0) => bytes(4, [2, 1, 0], None),
        (32, 0xFF00_0000, 0x00FF_0000, 0xFF00, 0) => bytes(4, [3, 2, 1], None),
        (32, 0xFF00_0000, 0xFF00, 0xFF, 0) => bytes(4, [3, 1, 0], None),
        (32, 0xFF00_0000, 0x00FF_0000, 0xFF00, 0xFF) => bytes(4, [3, 2, 1], Some(0)),
        (32, 0xFF, 0xFF00, 0x00FF_0000, 0xFF00_0000) => bytes(4, [0, 1, 2], Some(3)),
        (32, 0x00FF_0000, 0xFF00, 0xFF, 0xFF00_0000) | (32, 0, 0, 0, 0) => bytes(4, [2, 1, 0], Some(3)),
        (32, 0xFF00_0000, 0xFF00, 0xFF, 0x00FF_0000) => bytes(4, [3, 1, 0], Some(2)),
        (24, 0x00FF_0000, 0xFF00, 0xFF, _) => bytes(3, [2, 1, 0], None),
        (16, 0xF800, 0x07E0, 0x1F, _) => Some(Kind::Packed { green: 6 }),
        (16, 0x7C00, 0x03E0, 0x1F, _) => Some(Kind::Packed { green: 5 }),
        _ => None,
    }
}

/// Red, green and blue of every index.
fn palette(stored: &[u8], padded: usize) -> [[u8; 3]; 256] {
    let count = stored.len() / padded;
    let entry = |i: usize| stored.get(i * padded..i * padded + 3).map(|bgr| [bgr[2], bgr[1], bgr[0]]);
    let ramp =
        count != 2 && (0..count).all(|i| u8::try_from(i).is_ok_and(|grey| entry(i) == Some([grey; 3])));
    let mut colours = [[0; 3]; 256];
    for (colour, i) in colours.iter_mut().zip(0..=255u8) {
        *colour = if ramp { [i; 3] } else { entry(usize::from(i)).unwrap_or_default() };
    }
    colours
}

fn unsupported(what: String) -> Error {
    Error::new(ErrorKind::Unsupported, format!("a {what} is not supported"))
        .with_hint("store images as JPEG or PNG, or as BMP without compression")
}
