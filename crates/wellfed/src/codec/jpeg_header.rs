//! What the markers of a JPEG say, read without decoding.
//!
//! [`JpegHeader::parse`] walks the segments up to the first scan (under a microsecond).
//! [`JpegHeader::check_scans`] walks the entropy-coded data from marker to marker and answers whether the file
//! is complete. It reads the whole file whatever part of the image is wanted, so that a decode of a region and
//! a decode of everything agree on which files are damaged. It detects
//!
//! - a file that ends before its `EOI` marker, wherever it was cut;
//! - restart markers that are missing, doubled or out of order;
//! - markers where none may be, as a second image header inside a scan;
//! - scans with too few bytes for the blocks they claim (each takes at least two bits).
//!
//! It cannot detect damage that leaves the marker structure whole: bits flipped inside entropy-coded data, or
//! data that ends early but was closed with an `EOI`. Pillow decodes those without complaint, too.
//!
//! Marker codes and segment layouts are those of ITU-T T.81, annex B; colour rules are libjpeg's
//! (`default_decompress_parms` in jdapimin.c).

use memchr::memchr;

use super::orientation::orientation_of_exif;
use crate::{Error, ErrorKind, Result};

/// One colour component of the frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Component {
    /// Identifier that scans refer to.
    pub(crate) id: u8,
    /// Horizontal sampling factor, 1 to 4.
    pub(crate) h: u8,
    /// Vertical sampling factor, 1 to 4.
    pub(crate) v: u8,
}

/// The colours that components mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colour {
    /// One component.
    Grey,
    /// Luma and two colour differences.
    Ycc,
    /// Red, green and blue as they are.
    Rgb,
    /// Four inks; stored inverted, as Adobe does and Pillow assumes.
    Cmyk,
    /// CMYK whose first three inks are coded as YCbCr.
    Ycck,
}

/// The header of a JPEG file up to its first scan.
#[derive(Clone, Debug)]
pub(crate) struct JpegHeader {
    pub(crate) height: usize,
    pub(crate) width: usize,
    components: [Component; 4],
    count: usize,
    pub(crate) progressive: bool,
    /// EXIF orientation, 1 if there is none.
    pub(crate) orientation: u8,
    /// A JFIF marker was seen.
    jfif: bool,
    /// Transform of the Adobe marker, if there is one.
    pub(crate) adobe: Option<u8>,
    /// MCUs between restart markers, 0 for none.
    pub(crate) restart_interval: usize,
    /// Where the frame header's length field lies.
    pub(crate) frame_at: usize,
    /// Components in the first scan.
    scan_components: usize,
    /// Where the first scan's entropy-coded data begin.
    pub(crate) entropy_at: usize,
}

/// What a walk over the scans found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scans {
    /// Where the entropy-coded data of the first scan end.
    pub(crate) first_end: usize,
    /// Where the end marker lies.
    pub(crate) end: usize,
}

fn cut(bytes: &[u8]) -> Error {
    Error::corrupt(format!("JPEG ends after {} bytes, before its end marker", bytes.len()))
        .with_hint("the file is truncated, as by an interrupted copy or download")
}

impl JpegHeader {
    /// Reads the segments before the first scan.
    ///
    /// # Errors
    /// `Corrupt` if the segments are damaged or cut short; `Unsupported` for arithmetic, lossless, hierarchical
    /// and 12-bit JPEGs and for fractional sampling ratios.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self> {
        if !bytes.starts_with(&[0xFF, 0xD8]) {
            return Err(Error::corrupt("JPEG does not begin with its start marker"));
        }
        let mut header = JpegHeader {
            height: 0,
            width: 0,
            components: [Component::default(); 4],
            count: 0,
            progressive: false,
            orientation: 1,
            jfif: false,
            adobe: None,
            restart_interval: 0,
            frame_at: 0,
            scan_components: 0,
            entropy_at: 0,
        };
        let mut at = 2;
        loop {
            let (marker, start) = next_marker(bytes, at)?;
            match marker {
                0x01 | 0xD0..=0xD7 => {
                    at = start; // Parameterless markers; they mean nothing here.
                    continue;
                }
                0xD8 => {
                    return Err(Error::corrupt("JPEG has a second start marker").with_offset(start as u64));
                }
                0xD9 => return Err(Error::corrupt("JPEG ends without an image").with_offset(start as u64)),
                _ => {}
            }
            let body = segment(bytes, start)?;
            match marker {
                0xC0..=0xC2 => header.frame(marker, start, body)?,
                0xC3 | 0xC5..=0xC7 | 0xC9..=0xCB | 0xCD..=0xCF => return Err(unsupported_frame(marker)),
                0xDD => header.restart_interval = restart_interval(body, start)?,
                0xE0 if body.starts_with(b"JFIF\0") => header.jfif = true,
                0xE1 if body.starts_with(b"Exif\0\0") => {
                    if let Some(orientation) = orientation_of_exif(&body[6..]) {
                        header.orientation = orientation;
                    }
                }
                0xEE if body.starts_with(b"Adobe") && body.len() >= 12 => header.adobe = Some(body[11]),
                0xDA => {
                    if header.count == 0 {
                        return Err(Error::corrupt("JPEG has a scan before its frame header")
                            .with_offset(start as u64));
                    }
                    header.scan_components = header.scan(body, start)?;
                    header.entropy_at = start + 2 + body.len();
                    return Ok(header);
                }
                _ => {}
            }
            at = start + 2 + body.len();
        }
    }

    fn frame(&mut self, marker: u8, start: usize, body: &[u8]) -> Result<()> {
        let bad = |what: String| Err(Error::corrupt(what).with_offset(start as u64));
        if self.count != 0 {
            return bad("JPEG has two frame headers".into());
        }
        let &[precision, h1, h0, w1, w0, count, ref rest @ ..] = body else {
            return bad(format!("JPEG frame header has only {} bytes", body.len()));
        };
        if precision != 8 {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("JPEG has {precision} bits a sample; 8 are supported"),
            ));
        }
        self.height = usize::from(u16::from_be_bytes([h1, h0]));
        self.width = usize::from(u16::from_be_bytes([w1, w0]));
        if self.height == 0 || self.width == 0 {
            return bad(format!("JPEG is {}x{} pixels", self.width, self.height));
        }
        let n = usize::from(count);
        if rest.len() != 3 * n {
            return bad(format!("JPEG frame header of {n} components has {} bytes", body.len()));
        }
        if !matches!(n, 1 | 3 | 4) {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("JPEG has {n} components; 1, 3 or 4 are supported"),
            ));
        }
        for (component, c) in self.components.iter_mut().zip(rest.chunks_exact(3)) {
            *component = Component { id: c[0], h: c[1] >> 4, v: c[1] & 15 };
            if !(1..=4).contains(&component.h) || !(1..=4).contains(&component.v) {
                return bad(format!("JPEG has sampling factors {}x{}", component.h, component.v));
            }
        }
        (self.count, self.frame_at, self.progressive) = (n, start, marker == 0xC2);
        let (h_max, v_max) = self.sampling();
        if self.components().iter().any(|c| h_max % c.h != 0 || v_max % c.v != 0) {
            return Err(Error::new(ErrorKind::Unsupported, "JPEG has fractional sampling ratios"));
        }
        Ok(())
    }

    /// Checks a scan header; returns the number of components.
    fn scan(&self, body: &[u8], start: usize) -> Result<usize> {
        let n = usize::from(*body.first().unwrap_or(&0));
        if n == 0 || n > self.count || body.len() != 4 + 2 * n {
            return Err(Error::corrupt(format!(
                "JPEG scan header of {} bytes names {n} of {} components",
                body.len(),
                self.count
            ))
            .with_offset(start as u64));
        }
        Ok(n)
    }

    /// The colour components.
    pub(crate) fn components(&self) -> &[Component] {
        &self.components[..self.count]
    }

    /// The largest horizontal and vertical sampling factors.
    pub(crate) fn sampling(&self) -> (u8, u8) {
        self.components().iter().fold((1, 1), |(h, v), c| (h.max(c.h), v.max(c.v)))
    }

    /// Columns and rows of one MCU of a scan with all components.
    pub(crate) fn mcu(&self) -> (usize, usize) {
        if self.count == 1 {
            return (8, 8); // T.81 A.2.2: a scan of one component is coded block by block.
        }
        let (h, v) = self.sampling();
        (8 * usize::from(h), 8 * usize::from(v))
    }

    /// True if one scan holds the whole image, MCU row after MCU row.
    pub(crate) fn is_sequential(&self) -> bool {
        !self.progressive && self.scan_components == self.count
    }

    /// What the components mean, by libjpeg's rules.
    pub(crate) fn colour(&self) -> Colour {
        let ids = self.components().iter().map(|c| c.id);
        match (self.count, self.adobe) {
            (1, _) => Colour::Grey,
            (3, _) if self.jfif => Colour::Ycc,
            (3, Some(0)) => Colour::Rgb,
            (3, Some(_)) => Colour::Ycc,
            (3, None) if ids.eq(*b"RGB") => Colour::Rgb,
            (3, None) => Colour::Ycc,
            (_, None | Some(0)) => Colour::Cmyk,
            (_, Some(_)) => Colour::Ycck,
        }
    }

    /// Walks all scans to the end marker; see the module's text for what this detects.
    pub(crate) fn check_scans(&self, bytes: &[u8]) -> Result<Scans> {
        let (mcu_width, mcu_height) = self.mcu();
        let mcus = self.width.div_ceil(mcu_width) * self.height.div_ceil(mcu_height);
        let blocks_per_mcu: usize = match self.count {
            1 => 1,
            _ => self.components().iter().map(|c| usize::from(c.h) * usize::from(c.v)).sum(),
        };
        let (first_end, restarts) = entropy_end(bytes, self.entropy_at)?;
        let coded = (first_end - self.entropy_at) as u64 * 8;
        if self.is_sequential() {
            let needed = 2 * (mcus * blocks_per_mcu) as u64;
            if coded < needed {
                return Err(Error::corrupt(format!(
                    "JPEG scan has {} bytes, too few for {mcus} MCUs of {blocks_per_mcu} blocks",
                    coded / 8
                ))
                .with_offset(first_end as u64));
            }
            let expected = match self.restart_interval {
                0 => 0,
                interval => (mcus - 1) / interval,
            };
            // Some encoders close the last interval with a marker, too.
            let closed = self.restart_interval != 0 && mcus % self.restart_interval == 0;
            if restarts != expected && !(closed && restarts == expected + 1) {
                return Err(Error::corrupt(format!(
                    "JPEG has {restarts} restart markers where {expected} are expected"
                ))
                .with_offset(first_end as u64));
            }
        }
        let mut at = first_end;
        loop {
            let (marker, start) = next_marker(bytes, at)?;
            match marker {
                0xD9 => return Ok(Scans { first_end, end: start - 2 }),
                0x01 | 0xD0..=0xD7 => {
                    at = start;
                    continue;
                }
                0xD8 | 0xC0..=0xC3 | 0xC5..=0xC7 | 0xC9..=0xCB | 0xCD..=0xCF => {
                    return Err(Error::corrupt("JPEG has a second image header inside its image")
                        .with_offset(start as u64));
                }
                _ => {}
            }
            let body = segment(bytes, start)?;
            at = start + 2 + body.len();
            if marker == 0xDA {
                if self.is_sequential() {
                    return Err(
                        Error::corrupt("JPEG has a scan after its last one").with_offset(start as u64)
                    );
                }
                self.scan(body, start)?;
                (at, _) = entropy_end(bytes, at)?;
            }
        }
    }
}

fn unsupported_frame(marker: u8) -> Error {
    let what = match marker {
        0xC3 => "lossless",
        0xC9 | 0xCA => "arithmetic-coded",
        0xCB => "lossless arithmetic-coded",
        _ => "hierarchical",
    };
    Error::new(ErrorKind::Unsupported, format!("{what} JPEG is not supported"))
}

fn restart_interval(body: &[u8], start: usize) -> Result<usize> {
    match body {
        &[a, b] => Ok(usize::from(u16::from_be_bytes([a, b]))),
        _ => Err(Error::corrupt(format!("JPEG restart interval has {} bytes", body.len()))
            .with_offset(start as u64)),
    }
}

/// The next marker at or after `at` and where its segment begins. Skips stray bytes, as libjpeg does.
fn next_marker(bytes: &[u8], mut at: usize) -> Result<(u8, usize)> {
    loop {
        let ff = at + memchr(0xFF, bytes.get(at..).unwrap_or_default()).ok_or_else(|| cut(bytes))?;
        at = ff + 1;
        while bytes.get(at) == Some(&0xFF) {
            at += 1; // Any number of fill bytes may precede a marker.
        }
        match bytes.get(at) {
            None => return Err(cut(bytes)),
            Some(0) => at += 1,
            Some(&marker) => return Ok((marker, at + 1)),
        }
    }
}

/// The segment whose length field lies at `start`, without that field.
fn segment(bytes: &[u8], start: usize) -> Result<&[u8]> {
    let length = bytes.get(start..start + 2).ok_or_else(|| cut(bytes))?;
    let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
    if length < 2 {
        return Err(Error::corrupt(format!("JPEG segment claims {length} bytes")).with_offset(start as u64));
    }
    bytes.get(start + 2..start + length).ok_or_else(|| cut(bytes))
}

/// Where the entropy-coded data that begin at `at` end, and how many restart markers lie in them.
fn entropy_end(bytes: &[u8], mut at: usize) -> Result<(usize, usize)> {
    let mut restarts = 0;
    loop {
        let ff = at + memchr(0xFF, bytes.get(at..).unwrap_or_default()).ok_or_else(|| cut(bytes))?;
        match bytes.get(ff + 1) {
            None => return Err(cut(bytes)),
            Some(0) => at = ff + 2,
            Some(0xFF) => at = ff + 1,
            Some(&rst @ 0xD0..=0xD7) => {
                if usize::from(rst & 7) != restarts % 8 {
                    return Err(Error::corrupt(format!(
                        "JPEG has restart marker {} where {} is expected",
                        rst & 7,
                        restarts % 8
                    ))
                    .with_offset(ff as u64));
                }
                restarts += 1;
                at = ff + 2;
            }
            Some(_) => return Ok((ff, restarts)),
        }
    }
}

impl JpegHeader {
    /// Writes into `head` what a decoder must read before the first scan's data: tables and frame header, the
    /// latter with `rows` rows. Returns the rest, to be read after it.
    ///
    /// Together they are a file with the same image and nothing else: no metadata, no stray bytes, nothing
    /// after the image. A decoder that reads it cannot stumble over a segment it need not know, and of a
    /// sequential file with fewer `rows` it reads only up to the MCU row that holds the last of them.
    pub(crate) fn split_clean<'a>(
        &self,
        bytes: &'a [u8],
        scans: Scans,
        rows: usize,
        head: &'a mut Vec<u8>,
    ) -> Result<(&'a [u8], &'a [u8])> {
        let out = head;
        out.clear();
        out.extend_from_slice(&[0xFF, 0xD8]);
        if self.colour() == Colour::Ycck {
            out.extend_from_slice(b"\xFF\xEE\x00\x0EAdobe\x00\x64\x00\x00\x00\x00\x02");
        }
        let mut at = 2;
        while at < self.entropy_at {
            let (marker, start) = next_marker(bytes, at)?;
            at = start;
            if matches!(marker, 0x01 | 0xD0..=0xD7) {
                continue;
            }
            let body = segment(bytes, start)?;
            at += 2 + body.len();
            let keep = match marker {
                0xC0..=0xC2 | 0xC4 | 0xDA | 0xDB | 0xDD => true,
                0xE0 => body.starts_with(b"AVI1\0"), // Motion JPEG: the decoder supplies the Huffman tables.
                _ => false,
            };
            if keep {
                out.extend_from_slice(&[0xFF, marker]);
                let copy = out.len();
                out.extend_from_slice(&bytes[start..at]);
                if start == self.frame_at {
                    // Length, precision, then the height; `rows` is at most the height, which has 16 bits.
                    out[copy + 3..copy + 5].copy_from_slice(&(rows as u16).to_be_bytes());
                }
            }
        }
        if self.is_sequential() && scans.first_end != scans.end {
            // Other segments lie between the only scan and the end marker.
            let tail = out.len();
            out.extend_from_slice(&bytes[self.entropy_at..scans.first_end]);
            out.extend_from_slice(&[0xFF, 0xD9]);
            return Ok(out.split_at(tail));
        }
        Ok((out, &bytes[self.entropy_at..scans.end + 2]))
    }
}

#[cfg(test)]
mod tests {
    use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

    use super::*;

    fn encode(restart: u16) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = Encoder::new(&mut bytes, 90);
        encoder.set_sampling_factor(SamplingFactor::F_2_1);
        encoder.set_restart_interval(restart);
        let pixels: Vec<u8> = (0..50 * 30 * 3).map(|i| (i * 37 % 251) as u8).collect();
        encoder.encode(&pixels, 50, 30, ColorType::Rgb).unwrap();
        bytes
    }

    fn check(bytes: &[u8]) -> Result<Scans> {
        JpegHeader::parse(bytes)?.check_scans(bytes)
    }

    fn find(bytes: &[u8], marker: u8) -> usize {
        bytes.windows(2).position(|w| w == [0xFF, marker]).unwrap()
    }

    #[test]
    fn the_header_says_size_sampling_and_colour() {
        let header = JpegHeader::parse(&encode(3)).unwrap();
        assert_eq!((header.height, header.width, header.restart_interval), (30, 50, 3));
        assert_eq!((header.mcu(), header.sampling()), ((16, 8), (2, 1)));
        assert_eq!((header.colour(), header.orientation), (Colour::Ycc, 1));
        assert!(header.is_sequential() && !header.progressive);
    }

    #[test]
    fn restart_markers_must_be_all_there_and_in_order() {
        let bytes = encode(3); // 16 MCUs: markers 0 to 4.
        assert!(check(&bytes).is_ok());
        for (from, to) in [(0xD1, 0xD2), (0xD4, 0xD0)] {
            let mut wrong = bytes.clone();
            let at = find(&bytes, from);
            wrong[at + 1] = to;
            assert!(check(&wrong).unwrap_err().message().contains("restart marker"));
        }
        let mut missing = bytes.clone();
        let at = find(&bytes, 0xD4);
        missing.drain(at..at + 2);
        let e = check(&missing).unwrap_err();
        assert_eq!(e.message(), "JPEG has 4 restart markers where 5 are expected");
        let mut unexpected = encode(0);
        let at = find(&unexpected, 0xD9);
        unexpected.splice(at..at, [0xFF, 0xD0]);
        assert!(check(&unexpected).is_err());
    }

    #[test]
    fn segments_after_the_only_scan_are_left_out_and_scans_refused() {
        let mut bytes = encode(0);
        let plain = check(&bytes).unwrap();
        assert_eq!(plain.first_end, plain.end);
        let end = plain.end;
        bytes.splice(end..end, *b"\xFF\xFE\x00\x04hi");
        let scans = check(&bytes).unwrap();
        assert_eq!((scans.first_end, scans.end), (end, end + 6));
        let (header, mut head) = (JpegHeader::parse(&bytes).unwrap(), Vec::new());
        let (_, tail) = header.split_clean(&bytes, scans, 8, &mut head).unwrap();
        assert!(tail.len() == end + 2 - header.entropy_at && tail.ends_with(&[0xFF, 0xD9]));
        bytes[end + 1] = 0xDA;
        assert!(check(&bytes).unwrap_err().message().contains("scan after its last"));
        bytes[end + 1] = 0xD8;
        assert!(check(&bytes).unwrap_err().message().contains("second image header"));
    }

    #[test]
    fn the_rewritten_header_has_the_rows_asked_for_and_no_metadata() {
        let mut bytes = encode(0);
        bytes.splice(2..2, *b"\xFF\xE1\x00\x08Exif\0\0");
        let (header, mut head) = (JpegHeader::parse(&bytes).unwrap(), Vec::new());
        let scans = header.check_scans(&bytes).unwrap();
        let (head, tail) = header.split_clean(&bytes, scans, 9, &mut head).unwrap();
        let clean = [head, tail].concat();
        assert!(!clean.windows(4).any(|w| w == b"Exif" || w == b"JFIF"));
        let again = JpegHeader::parse(&clean).unwrap();
        assert_eq!((again.height, again.width), (9, 50));
        assert_eq!(clean[again.entropy_at..], bytes[header.entropy_at..]);
    }
}
