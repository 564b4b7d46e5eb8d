//! What a JPEG is, by its markers: whether nvJPEG may have it.

use std::fmt;

/// Why an image is not decoded by nvJPEG. The CPU's decoder says what is wrong with it, if anything is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// It does not begin as a JPEG does, or ends within its headers.
    Damaged,
    /// It is not sequential with Huffman codes: progressive, lossless or arithmetic. The number is its SOF marker.
    Process(u8),
    /// Its samples have not 8 bits.
    Precision(u8),
    /// It has neither one component nor three, as CMYK has four.
    Components(u8),
    /// Its components are red, green and blue, or may be.
    NotYcc,
    /// Its components are sampled in a way that engines differ in.
    Sampling,
    /// Its height is not in its header.
    NoHeight,
    /// nvJPEG reads another size from it than its header says.
    Size,
    /// The engine does not take it.
    Engine,
    /// nvJPEG failed to decode it, with this status.
    Status(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Damaged => f.write_str("damaged header"),
            Refusal::Process(0xC2) => f.write_str("progressive"),
            Refusal::Process(marker) => write!(f, "coding process of SOF{}", marker & 15),
            Refusal::Precision(bits) => write!(f, "{bits} bits a sample"),
            Refusal::Components(count) => write!(f, "{count} components"),
            Refusal::NotYcc => f.write_str("perhaps RGB components"),
            Refusal::Sampling => f.write_str("unusual sampling"),
            Refusal::NoHeight => f.write_str("no height in the header"),
            Refusal::Size => f.write_str("two sizes"),
            Refusal::Engine => f.write_str("not taken by the engine"),
            Refusal::Status(name) => write!(f, "nvJPEG says {name}"),
        }
    }
}

/// A JPEG that nvJPEG may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Pixels in a row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// 1 (grey) or 3.
    pub components: u8,
}

impl Head {
    /// Reads the headers of a JPEG up to its first scan.
    ///
    /// # Errors
    /// Why nvJPEG is not to have it.
    ///
    /// # Examples
    /// ```
    /// use wellfed_cuda::nvjpeg::{Head, Refusal};
    /// assert_eq!(Head::read(b"not a JPEG"), Err(Refusal::Damaged));
    /// ```
    pub fn read(jpeg: &[u8]) -> Result<Self, Refusal> {
        let mut rest = jpeg.strip_prefix(&[0xFF, 0xD8]).ok_or(Refusal::Damaged)?;
        let mut frame = None;
        let mut transform = None;
        loop {
            let (marker, segment, after) = segment(rest).ok_or(Refusal::Damaged)?;
            rest = after;
            match marker {
                // Of several frames, decoders could take different ones.
                0xC0..=0xCF if !matches!(marker, 0xC4 | 0xC8 | 0xCC) && frame.is_some() => {
                    return Err(Refusal::Damaged);
                }
                0xC0..=0xCF if !matches!(marker, 0xC4 | 0xC8 | 0xCC) => {
                    frame = Some(Frame::read(marker, segment)?)
                }
                0xEE if segment.starts_with(b"Adobe") => transform = segment.get(11).copied(),
                0xDA => break,
                _ => {}
            }
        }
        frame.ok_or(Refusal::Damaged)?.check(transform)
    }
}

struct Frame {
    head: Head,
    /// Identifier and sampling factors (horizontal, vertical) of each component.
    components: Vec<(u8, u8, u8)>,
}

impl Frame {
    /// Reads an SOF segment.
    fn read(marker: u8, segment: &[u8]) -> Result<Self, Refusal> {
        if !matches!(marker, 0xC0 | 0xC1) {
            return Err(Refusal::Process(marker));
        }
        let &[precision, h1, h0, w1, w0, count, ref components @ ..] = segment else {
            return Err(Refusal::Damaged);
        };
        if precision != 8 {
            return Err(Refusal::Precision(precision));
        }
        if !matches!(count, 1 | 3) {
            return Err(Refusal::Components(count));
        }
        let (chunks, rest) = components.as_chunks::<3>();
        let (width, height) = (u16::from_be_bytes([w1, w0]), u16::from_be_bytes([h1, h0]));
        if chunks.len() != usize::from(count) || !rest.is_empty() || width == 0 {
            return Err(Refusal::Damaged);
        }
        if height == 0 {
            return Err(Refusal::NoHeight);
        }
        Ok(Self {
            head: Head { width: width.into(), height: height.into(), components: count },
            components: chunks.iter().map(|&[id, sampling, _]| (id, sampling >> 4, sampling & 15)).collect(),
        })
    }

    /// Whether it is grey, or luma and chroma of a usual sampling: 4:4:4, 4:2:2, 4:2:0 or 4:4:0.
    fn check(self, transform: Option<u8>) -> Result<Head, Refusal> {
        if let [luma, blue, red] = self.components[..] {
            // Adobe's marker or the names of components say so. With JFIF's marker beside them libjpeg does not believe it,
            // and what nvJPEG believes is not documented.
            if transform == Some(0) || (luma.0, blue.0, red.0) == (b'R', b'G', b'B') {
                return Err(Refusal::NotYcc);
            }
            let chroma = (blue.1, blue.2) == (1, 1) && (red.1, red.2) == (1, 1);
            if !chroma || !matches!((luma.1, luma.2), (1 | 2, 1 | 2)) {
                return Err(Refusal::Sampling);
            }
        }
        Ok(self.head)
    }
}

/// The next segment: its marker, its content, and what comes after it.
fn segment(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let start = bytes.iter().position(|&byte| byte != 0xFF)?;
    let (marker, rest) = (bytes[start], &bytes[start + 1..]);
    // Only markers with a length can stand here, after at least one 0xFF.
    if start == 0 || matches!(marker, 0x00 | 0x01 | 0xD0..=0xD9) {
        return None;
    }
    let length = usize::from(u16::from_be_bytes(*rest.first_chunk()?));
    Some((marker, rest.get(2..length)?, &rest[length..]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn jpeg(marker: u8, frame: &[u8], others: &[(u8, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0xFF, 0xD8];
        for &(marker, segment) in others.iter().chain([&(marker, frame), &(0xDA, &[1, 1, 0, 0, 63, 0][..])]) {
            bytes.extend([0xFF, marker]);
            bytes.extend((segment.len() as u16 + 2).to_be_bytes());
            bytes.extend(segment);
        }
        bytes
    }

    fn frame(luma: u8) -> Vec<u8> {
        vec![8, 1, 2, 3, 4, 3, 1, luma, 0, 2, 0x11, 1, 3, 0x11, 1]
    }

    #[test]
    fn usual_jpegs_are_taken() {
        let head = Head { width: 0x304, height: 0x102, components: 3 };
        for sampling in [0x11, 0x21, 0x22, 0x12] {
            assert_eq!(Head::read(&jpeg(0xC0, &frame(sampling), &[(0xE0, b"JFIF\0")])), Ok(head));
        }
        assert_eq!(
            Head::read(&jpeg(0xC1, &[8, 0, 1, 0, 1, 1, 1, 0x33, 0], &[(0xFE, b"a comment")])),
            Ok(Head { width: 1, height: 1, components: 1 })
        );
    }

    #[test]
    fn others_are_refused_with_the_reason() {
        let refusal = |bytes: &[u8]| Head::read(bytes).unwrap_err();
        assert_eq!(refusal(&jpeg(0xC2, &frame(0x22), &[])), Refusal::Process(0xC2));
        assert_eq!(refusal(&jpeg(0xC9, &frame(0x22), &[])).to_string(), "coding process of SOF9");
        let with = |at: usize, value: u8| {
            let mut frame = frame(0x22);
            frame[at] = value;
            jpeg(0xC0, &frame, &[])
        };
        assert_eq!(refusal(&with(0, 12)), Refusal::Precision(12));
        assert_eq!(refusal(&with(5, 4)), Refusal::Components(4));
        assert_eq!(refusal(&with(5, 1)), Refusal::Damaged);
        assert_eq!(refusal(&with(7, 0x41)), Refusal::Sampling);
        assert_eq!(refusal(&with(10, 0x12)), Refusal::Sampling);
        let mut flat = frame(0x11);
        flat[1..3].fill(0);
        assert_eq!(refusal(&jpeg(0xC0, &flat, &[])), Refusal::NoHeight);
        // RGB by Adobe's marker or by the names of components.
        let adobe = |transform| [b"Adobe\0\x64\0\0\0\0".as_slice(), &[transform]].concat();
        assert_eq!(refusal(&jpeg(0xC0, &frame(0x11), &[(0xEE, &adobe(0))])), Refusal::NotYcc);
        assert!(Head::read(&jpeg(0xC0, &frame(0x11), &[(0xEE, &adobe(1))])).is_ok());
        assert_eq!(
            refusal(&jpeg(0xC0, &frame(0x11), &[(0xE0, b"JFIF\0"), (0xEE, &adobe(0))])),
            Refusal::NotYcc
        );
        let named = [8, 1, 2, 3, 4, 3, b'R', 0x11, 0, b'G', 0x11, 1, b'B', 0x11, 1];
        assert_eq!(refusal(&jpeg(0xC0, &named, &[])), Refusal::NotYcc);
        let twice = jpeg(0xC0, &frame(0x11), &[(0xC0, &frame(0x11))]);
        assert_eq!(refusal(&twice), Refusal::Damaged);
    }

    #[test]
    fn each_end_within_the_headers_is_damage() {
        let whole = jpeg(0xC0, &frame(0x22), &[(0xE0, b"JFIF\0")]);
        for end in 0..whole.len() {
            assert_eq!(Head::read(&whole[..end]), Err(Refusal::Damaged), "{end}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..80), changes in any::<[(u8, u8); 3]>()) {
            let _ = Head::read(&bytes);
            bytes = jpeg(0xC0, &frame(0x22), &[(0xE0, &bytes)]);
            for (at, value) in changes {
                let at = usize::from(at) % bytes.len();
                bytes[at] = value;
            }
            let _ = Head::read(&bytes);
        }
    }
}
