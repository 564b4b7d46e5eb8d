//! PBM, PGM and PPM, binary (`P4` to `P6`) and as text (`P1` to `P3`), as Pillow reads them.
//!
//! Layout: the manual pages of Netpbm. Read by ourselves, because the rows of binary files lie there as they are. Values below
//! another maximum than 255 are spread over 0 to 255, halves to the even neighbour; grey of 16 bits is refused, as Pillow
//! gives no 8-bit image of it.

use super::{Codec, Header, Part, Push, Rect, Scratch, at_least, region::push_columns};
use crate::{Error, ErrorKind, Limits, Result};

/// The PNM codec.
#[derive(Clone, Copy, Debug)]
pub struct Pnm;

/// Digits of a number, as Pillow bounds them.
const DIGITS: usize = 10;

#[derive(Clone, Copy, Debug)]
struct Layout {
    header: Header,
    /// As text.
    plain: bool,
    /// The largest value; 0 for single bits.
    most: u32,
    /// The first byte of the pixels.
    offset: usize,
}

impl Codec for Pnm {
    fn name(&self) -> &'static str {
        "pnm"
    }

    fn sniff(&self, bytes: &[u8]) -> bool {
        matches!(bytes, [b'P', b'1'..=b'6', space, ..] if is_space(*space))
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
        let Layout { header, plain, most, offset } = layout(bytes)?;
        let Header { height, width, channels, .. } = header;
        let Rect { top, height: rows, .. } = part.region;
        let stored = &bytes[offset..];
        let (row, numbers) = (width * channels, height.saturating_mul(width).saturating_mul(channels));
        let Scratch { pixels, converted, room, .. } = scratch;
        let room = room.as_deref();
        let bytes_of_row = match most {
            0 => width.div_ceil(8),
            1..256 => row,
            _ => 2 * row,
        };
        if !plain {
            let size = bytes_of_row.saturating_mul(height);
            if stored.len() < size {
                let what = format!("PNM has {} bytes of pixels in place of {size}", stored.len());
                return Err(Error::corrupt(what));
            }
        }
        if !plain && most == 255 {
            let rows = &stored[top * row..][..rows * row];
            return push_columns(rows, (width, channels), (part.mode, part.region), converted, room, push);
        }
        let pixels = at_least(pixels, rows.saturating_mul(row), room)?;
        if plain {
            let mut text = Text { bytes: stored, at: 0 };
            let wanted = top * row..top * row + pixels.len();
            // All numbers are read, so that a region accepts the files that the whole image accepts.
            for i in 0..numbers {
                let value = if most == 0 { text.bit() } else { text.number() };
                let value = value.ok_or_else(|| {
                    Error::corrupt(format!(
                        "PNM has {i} values in place of {numbers}, or one that is no number"
                    ))
                    .with_offset((offset + text.at) as u64)
                })?;
                if value > most.max(1) {
                    let what = format!("PNM has the value {value}, above its maximum of {}", most.max(1));
                    return Err(Error::corrupt(what).with_offset((offset + text.at) as u64));
                }
                if wanted.contains(&i) {
                    // A bit of 1 is black.
                    pixels[i - wanted.start] =
                        if most == 0 { 255 * u8::from(value == 0) } else { spread(value, most) };
                }
            }
        } else {
            for (y, out) in (top..).zip(pixels.chunks_exact_mut(row)) {
                let from = &stored[y * bytes_of_row..][..bytes_of_row];
                match most {
                    0 => out.iter_mut().enumerate().for_each(|(x, pixel)| {
                        *pixel = if from[x / 8] >> (7 - x % 8) & 1 == 1 { 0 } else { 255 };
                    }),
                    1..256 => {
                        out.iter_mut().zip(from).for_each(|(pixel, v)| *pixel = spread(u32::from(*v), most));
                    }
                    _ => out.iter_mut().zip(from.as_chunks::<2>().0).for_each(|(pixel, v)| {
                        *pixel = spread(u32::from(u16::from_be_bytes(*v)), most);
                    }),
                }
            }
        }
        push_columns(pixels, (width, channels), (part.mode, part.region), converted, room, push)
    }
}

fn layout(bytes: &[u8]) -> Result<Layout> {
    let kind = bytes.get(1).copied().unwrap_or_default();
    let mut text = Text { bytes, at: 2 };
    let mut number = |what: &str| {
        text.number().ok_or_else(|| {
            Error::corrupt(format!("PNM has no {what} in its header")).with_offset(text.at as u64)
        })
    };
    let (width, height) = (number("width")?, number("height")?);
    let most = if matches!(kind, b'1' | b'4') { 0 } else { number("maximum")? };
    let sides = 1..=(i32::MAX as u32);
    if !sides.contains(&width) || !sides.contains(&height) {
        return Err(Error::corrupt(format!("PNM is {width}x{height} pixels")));
    }
    if !matches!(kind, b'1' | b'4') && !(1..65_536).contains(&most) {
        return Err(Error::corrupt(format!("PNM has a maximum of {most}")));
    }
    let channels = if matches!(kind, b'3' | b'6') { 3 } else { 1 };
    if channels == 1 && most > 255 {
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!("a PGM with a maximum of {most} is not supported"),
        )
        .with_hint("store images with 8 bits a channel"));
    }
    // One byte of white space ends the header.
    let offset = (text.at + 1).min(bytes.len());
    let (height, width) = (height as usize, width as usize);
    let header = Header { height, width, channels, orientation: 1 };
    Ok(Layout { header, plain: kind <= b'3', most, offset })
}

/// `value` of `most` as one of 255, halves to the even neighbour.
fn spread(value: u32, most: u32) -> u8 {
    let (whole, rest) = (value * 255 / most, value * 255 % most);
    let up = 2 * rest > most || (2 * rest == most && whole % 2 == 1);
    (whole + u32::from(up)).min(255) as u8
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0B | 0x0C)
}

/// Numbers between white space and comments.
struct Text<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Text<'_> {
    fn skip(&mut self) {
        while let Some(byte) = self.bytes.get(self.at) {
            if *byte == b'#' {
                let line = &self.bytes[self.at..];
                self.at += line.iter().position(|b| matches!(b, b'\r' | b'\n')).unwrap_or(line.len());
            } else if is_space(*byte) {
                self.at += 1;
            } else {
                break;
            }
        }
    }

    /// The next number. Leaves off at the byte behind it.
    fn number(&mut self) -> Option<u32> {
        self.skip();
        let rest = &self.bytes[self.at.min(self.bytes.len())..];
        let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        let ends = rest.get(digits).is_none_or(|b| is_space(*b) || *b == b'#');
        if digits == 0 || digits > DIGITS || !ends {
            return None;
        }
        self.at += digits;
        std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()
    }

    /// The next digit of a bitmap, which needs no space around it.
    fn bit(&mut self) -> Option<u32> {
        self.skip();
        let bit = char::from(*self.bytes.get(self.at)?).to_digit(2)?;
        self.at += 1;
        Some(bit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_spread_as_python_rounds() {
        // [round(v / 10 * 255) for v in range(11)]
        let ten: Vec<u8> = (0..=10).map(|v| spread(v, 10)).collect();
        assert_eq!(ten, [0, 26, 51, 76, 102, 128, 153, 178, 204, 230, 255]);
        assert!((0..=255).all(|v| u32::from(spread(v, 255)) == v));
        assert_eq!(spread(65_535, 65_535), 255);
    }
}
