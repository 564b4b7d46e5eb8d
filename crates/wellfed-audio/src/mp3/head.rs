//! Heads of frames: ISO/IEC 11172-3, 2.4.1.3, and for lower sample rates 13818-3.

/// Bytes of a head.
pub(super) const HEAD: usize = 4;

/// Which of the standards a frame follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    Mpeg1,
    Mpeg2,
    /// MPEG-2 at half of its rates, which no standard has.
    Mpeg25,
}

/// The head of a frame of layer III.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) version: Version,
    /// Frames a second, Hz.
    pub(super) rate: u32,
    /// The row of the tables of bands.
    pub(super) bands: usize,
    /// 1 or 2.
    pub(super) channels: usize,
    /// Whether what belongs to two channels may be coded as one: both have blocks of the same kind then.
    pub(super) joint: bool,
    /// Whether channels are their sum and difference.
    pub(super) mid_side: bool,
    /// Whether there is one channel and its place between left and right, from some band on.
    pub(super) intensity: bool,
    /// Whether a checksum of 2 bytes follows.
    pub(super) protected: bool,
    /// Bytes of the frame, its head among them.
    pub(super) size: usize,
}

impl Head {
    /// Of the frame that begins here. `None` if that is no frame of layer III whose size its head tells.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let word = u32::from_be_bytes(*bytes.first_chunk()?);
        if !could_be_head(word) || (word >> 17) & 3 != 1 {
            return None;
        }
        let (version, group) = match (word >> 19) & 3 {
            3 => (Version::Mpeg1, 0),
            2 => (Version::Mpeg2, 1),
            _ => (Version::Mpeg25, 2),
        };
        let index = (word >> 10) as usize & 3;
        let rate = [44_100, 48_000, 32_000].get(index)? >> group;
        let kilobits = match version {
            Version::Mpeg1 => [0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320],
            _ => [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160],
        };
        let kilobits: u32 = *kilobits.get((word >> 12) as usize & 15)?;
        if kilobits == 0 {
            return None;
        }
        let samples_per_byte = if version == Version::Mpeg1 { 144_000 } else { 72_000 };
        let joint = (word >> 6) & 3 == 1;
        Some(Self {
            version,
            rate,
            bands: 3 * group + index,
            channels: if (word >> 6) & 3 == 3 { 1 } else { 2 },
            joint,
            mid_side: joint && word & 0x20 != 0,
            intensity: joint && word & 0x10 != 0,
            protected: word & 0x1_0000 == 0,
            size: (samples_per_byte * kilobits / rate + (word >> 9 & 1)) as usize,
        })
    }

    /// As [`Self::parse`] of a frame that follows this one, whose sizes are `sizes`. Most heads differ in bit rate, padding and stereo only.
    #[inline(always)]
    pub(super) fn parse_next(&self, sizes: &Sizes, bytes: &[u8]) -> Option<Self> {
        let word = u32::from_be_bytes(*bytes.first_chunk()?);
        let size = sizes.bytes[(word >> 12) as usize & 15];
        if (word ^ sizes.word) & SAME != 0 || size == 0 || ((word >> 6) & 3 == 3) != (self.channels == 1) {
            return Self::parse(bytes);
        }
        let joint = (word >> 6) & 3 == 1;
        Some(Self {
            joint,
            mid_side: joint && word & 0x20 != 0,
            intensity: joint && word & 0x10 != 0,
            size: usize::from(size) + (word >> 9 & 1) as usize,
            ..*self
        })
    }

    /// Parts of 576 samples of each channel.
    pub(super) fn granules(&self) -> usize {
        if self.version == Version::Mpeg1 { 2 } else { 1 }
    }

    /// Where the side information begins.
    pub(super) fn side_begin(&self) -> usize {
        if self.protected { HEAD + 2 } else { HEAD }
    }

    /// Bytes of side information.
    pub(super) fn side_size(&self) -> usize {
        match (self.version, self.channels) {
            (Version::Mpeg1, 1) => 17,
            (Version::Mpeg1, _) => 32,
            (_, 1) => 9,
            _ => 17,
        }
    }

    /// Bytes for scale factors and values, of this frame and later ones. Of frames too small for their side information there are none.
    pub(super) fn main_size(&self) -> usize {
        self.size.saturating_sub(self.side_begin() + self.side_size())
    }

    /// The furthest that a frame may refer back, in bytes of main data.
    pub(super) fn furthest_back(&self) -> usize {
        if self.version == Version::Mpeg1 { 511 } else { 255 }
    }

    /// Whether frames of both heads may follow each other in one sound.
    pub(super) fn continues(&self, other: &Self) -> bool {
        (self.version, self.rate, self.channels) == (other.version, other.rate, other.channels)
    }
}

/// Bits of a head that are the same in all frames of most files: all but bit rate, padding, stereo and what decoding does not look at.
const SAME: u32 = 0xffff_0c00;

/// Sizes of frames by the number of their bit rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// The head that they are of.
    word: u32,
    /// Without padding; 0 where the number is none of a bit rate.
    bytes: [u16; 16],
}

impl Sizes {
    /// Of frames like the one that begins here.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        let word = u32::from_be_bytes(*bytes.first_chunk()?) & !0xf200;
        let size =
            |rate: u32| Head::parse(&(word | rate << 12).to_be_bytes()).map_or(0, |head| head.size as u16);
        let mut sizes = [0; 16];
        for (rate, place) in (0..).zip(&mut sizes) {
            *place = size(rate);
        }
        Some(Self { word, bytes: sizes })
    }
}

/// Whether these bits have what every head of a frame has, of any layer.
pub(super) fn could_be_head(word: u32) -> bool {
    let (version, layer, rate) = ((word >> 19) & 3, (word >> 17) & 3, (word >> 10) & 3);
    word >> 21 == 0x7ff && version != 1 && layer != 0 && (word >> 12) & 15 != 15 && rate != 3
}

/// Whether a frame carries a table of contents or other facts in place of sound: these come at the start of a file.
pub(super) fn is_tag(head: &Head, frame: &[u8]) -> bool {
    // The checksum is not counted in where the tag stands.
    let at = HEAD + head.side_size();
    let marked = |at: usize, marks: &[&[u8; 4]]| {
        frame.get(at..at + 4).is_some_and(|found| marks.iter().any(|mark| found == *mark))
    };
    marked(at, &[b"Xing", b"Info"]) || marked(HEAD + 32, &[b"VBRI"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_rates_are_the_standards() {
        // 128 kbit/s at 44.1 kHz: 417.96 bytes, so that a byte of padding comes now and then.
        let head = Head::parse(&[0xff, 0xfb, 0x90, 0x64]).unwrap();
        assert_eq!((head.version, head.rate, head.channels, head.size), (Version::Mpeg1, 44_100, 2, 417));
        assert!(head.mid_side && !head.intensity && !head.protected);
        assert_eq!(Head::parse(&[0xff, 0xfb, 0x92, 0x64]).unwrap().size, 418);
        let head = Head::parse(&[0xff, 0xe3, 0x18, 0xc4]).unwrap();
        assert_eq!((head.version, head.rate, head.channels, head.size), (Version::Mpeg25, 8_000, 1, 72));
    }

    #[test]
    fn heads_that_follow_are_what_they_are_alone() {
        let first = [0xff, 0xfb, 0x90, 0x64];
        let (head, sizes) = (Head::parse(&first).unwrap(), Sizes::of(&first).unwrap());
        for second in 0..=255 {
            for (third, fourth) in
                (0..=255).flat_map(|third| [0x00, 0x64, 0x54, 0xc4].map(|last| (third, last)))
            {
                let bytes = [0xff, second, third, fourth];
                assert_eq!(head.parse_next(&sizes, &bytes), Head::parse(&bytes), "{bytes:02x?}");
            }
        }
    }

    #[test]
    fn other_layers_free_rates_and_reserved_values_are_refused() {
        for bytes in [
            [0xff, 0xfd, 0x90, 0x64],
            [0xff, 0xff, 0x90, 0x64],
            [0xff, 0xfb, 0x00, 0x64],
            [0xff, 0xfb, 0xf0, 0x64],
            [0xff, 0xfb, 0x9c, 0x64],
            [0xff, 0xeb, 0x90, 0x64],
            [0xff, 0x1b, 0x90, 0x64],
        ] {
            assert_eq!(Head::parse(&bytes), None, "{bytes:02x?}");
        }
        assert_eq!(Head::parse(&[0xff, 0xfb, 0x90]), None);
    }
}
