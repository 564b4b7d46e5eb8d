//! From marker to marker: where segments begin and end, and which markers a decoder may meet.
//!
//! Stray bytes between segments are skipped and reserved markers are errors, as in libjpeg (`read_markers` in
//! jdmarker.c). Codes are those of T.81 table B.1.

use std::borrow::Cow;

use crate::{Error, ErrorKind, Result};

/// What a tolerant walk finds behind the end of the bytes, again and again.
pub(crate) const INVENTED: [u8; 2] = [0xFF, code::EOI];

/// Marker codes.
pub(crate) mod code {
    pub(crate) const TEM: u8 = 0x01;
    pub(crate) const SOF0: u8 = 0xC0;
    pub(crate) const SOF1: u8 = 0xC1;
    pub(crate) const SOF2: u8 = 0xC2;
    pub(crate) const DHT: u8 = 0xC4;
    pub(crate) const DAC: u8 = 0xCC;
    pub(crate) const RST0: u8 = 0xD0;
    pub(crate) const RST7: u8 = 0xD7;
    pub(crate) const SOI: u8 = 0xD8;
    pub(crate) const EOI: u8 = 0xD9;
    pub(crate) const SOS: u8 = 0xDA;
    pub(crate) const DQT: u8 = 0xDB;
    pub(crate) const DNL: u8 = 0xDC;
    pub(crate) const DRI: u8 = 0xDD;
    pub(crate) const APP0: u8 = 0xE0;
    pub(crate) const APP1: u8 = 0xE1;
    pub(crate) const APP14: u8 = 0xEE;
    pub(crate) const APP15: u8 = 0xEF;
    pub(crate) const COM: u8 = 0xFE;
}

/// A marker and what belongs to it.
#[derive(Clone, Debug)]
pub(crate) struct Segment<'a> {
    pub(crate) code: u8,
    /// Where the segment's length field lies, or would lie.
    pub(crate) offset: usize,
    /// The bytes after the length field; none for markers that stand alone.
    pub(crate) body: Cow<'a, [u8]>,
}

/// A walk over the markers of a file.
#[derive(Clone, Debug)]
pub(crate) struct Markers<'a> {
    bytes: &'a [u8],
    at: usize,
    tolerant: bool,
}

impl<'a> Markers<'a> {
    /// Starts after the start marker. A tolerant walk meets an end marker where the bytes end.
    pub(crate) fn new(bytes: &'a [u8], tolerant: bool) -> Result<Self> {
        if !bytes.starts_with(&[0xFF, code::SOI]) {
            return Err(match bytes {
                [] | [0xFF] => truncated(bytes),
                _ => Error::corrupt("JPEG does not begin with its start marker").at(0),
            });
        }
        Ok(Markers { bytes, at: 2, tolerant })
    }

    /// Where the next marker is looked for.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Goes on from there.
    pub(crate) fn seek(&mut self, at: usize) {
        self.at = at;
    }

    /// The next marker that matters, with its segment.
    pub(crate) fn next(&mut self) -> Result<Segment<'a>> {
        loop {
            let Some((code, offset)) = find(self.bytes, self.at) else {
                self.at = self.bytes.len();
                if self.tolerant {
                    return Ok(Segment { code: code::EOI, offset: self.at, body: Cow::Borrowed(&[]) });
                }
                return Err(truncated(self.bytes));
            };
            self.at = offset;
            match code {
                code::TEM | code::RST0..=code::RST7 => continue,
                code::SOI => return Err(Error::corrupt("JPEG has a second start marker").at(offset)),
                code::EOI => return Ok(Segment { code, offset, body: Cow::Borrowed(&[]) }),
                code::SOF0..=0xCF | code::SOS..=code::DRI | code::APP0..=code::APP15 | code::COM => {}
                _ => {
                    return Err(
                        Error::corrupt(format!("JPEG has the reserved marker {code:#04x}")).at(offset)
                    );
                }
            }
            let rest = &self.bytes[offset..];
            let length = match rest {
                &[high, low, ..] => usize::from(u16::from_be_bytes([high, low])),
                _ if self.tolerant => {
                    let read =
                        |i: usize| rest.get(i).copied().unwrap_or_else(|| INVENTED[(i - rest.len()) % 2]);
                    usize::from(u16::from_be_bytes([read(0), read(1)]))
                }
                _ => return Err(truncated(self.bytes)),
            };
            if length < 2 {
                // What is only passed over may be as short as it likes.
                if matches!(code, code::DNL | code::APP0..=code::APP15 | code::COM) {
                    self.at = (offset + 2).min(self.bytes.len());
                    return Ok(Segment { code, offset, body: Cow::Borrowed(&[]) });
                }
                return Err(Error::corrupt(format!("JPEG segment has a length of {length}")).at(offset));
            }
            let body = match rest.get(2..length) {
                Some(body) => Cow::Borrowed(body),
                None if self.tolerant => {
                    let all = rest.iter().chain(INVENTED.iter().cycle());
                    Cow::Owned(all.copied().take(length).skip(2).collect())
                }
                None => return Err(truncated(self.bytes)),
            };
            self.at = offset + length;
            return Ok(Segment { code, offset, body });
        }
    }
}

/// The first marker at or after `at`, and where it ends.
pub(crate) fn find(bytes: &[u8], mut at: usize) -> Option<(u8, usize)> {
    loop {
        at += bytes.get(at..)?.iter().position(|&byte| byte == 0xFF)?;
        at += bytes[at..].iter().position(|&byte| byte != 0xFF)?;
        if bytes[at] != 0 {
            return Some((bytes[at], at + 1));
        }
    }
}

pub(crate) fn truncated(bytes: &[u8]) -> Error {
    let what = format!("JPEG ends after {} bytes, before its end marker", bytes.len());
    Error::new(ErrorKind::Truncated, what).at(bytes.len())
}
