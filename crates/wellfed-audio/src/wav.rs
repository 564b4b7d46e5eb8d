//! WAV files of plain PCM, in one or two channels: their head takes microseconds to read by a general library, and their samples a pass
//! that is not needed. Whatever is unusual in a file is left to that library.

use std::ops::Range;

use crate::Head;

/// What the samples are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    U8,
    S16,
    S24,
    S32,
    F32,
}

impl Kind {
    fn new(tag: u16, bits: u16) -> Option<Self> {
        Some(match (tag, bits) {
            (1, 8) => Self::U8,
            (1, 16) => Self::S16,
            (1, 24) => Self::S24,
            (1, 32) => Self::S32,
            (3, 32) => Self::F32,
            _ => return None,
        })
    }

    fn codec(self) -> &'static str {
        match self {
            Self::U8 => "pcm_u8",
            Self::S16 => "pcm_s16le",
            Self::S24 => "pcm_s24le",
            Self::S32 => "pcm_s32le",
            Self::F32 => "pcm_f32le",
        }
    }

    fn bytes(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::S16 => 2,
            Self::S24 => 3,
            Self::S32 | Self::F32 => 4,
        }
    }
}

/// Such a file.
#[derive(Debug)]
pub(crate) struct Wav<'b> {
    kind: Kind,
    channels: usize,
    /// Whole frames.
    data: &'b [u8],
}

impl<'b> Wav<'b> {
    /// `None` for all files but plain ones that are complete.
    pub(crate) fn open(bytes: &'b [u8]) -> Option<(Head, Self)> {
        let u16_at = |at: usize| Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let u32_at = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        if bytes.get(..4)? != b"RIFF" || bytes.get(8..16)? != b"WAVEfmt " {
            return None;
        }
        let fmt = u32_at(16)? as usize;
        if fmt != 16 && fmt != 18 {
            return None;
        }
        let (tag, channels, sample_rate) = (u16_at(20)?, u16_at(22)?, u32_at(24)?);
        let (block, bits) = (u16_at(32)?, u16_at(34)?);
        let kind = Kind::new(tag, bits)?;
        let frame = usize::from(channels) * kind.bytes();
        if !matches!(channels, 1 | 2) || sample_rate == 0 || usize::from(block) != frame {
            return None;
        }
        let at = 20 + fmt;
        let len = u32_at(at + 4)? as usize;
        if bytes.get(at..at + 4)? != b"data" || len == 0 || !len.is_multiple_of(frame) {
            return None;
        }
        let data = bytes.get(at + 8..)?.get(..len)?;
        let head = Head {
            container: "wave",
            codec: kind.codec(),
            sample_rate,
            channels: u32::from(channels),
            frames: Some((len / frame) as u64),
            // As the library has it, which knows no bits of numbers with a fraction.
            bits_per_sample: (kind != Kind::F32).then(|| u32::from(bits)),
        };
        Some((head, Self { kind, channels: usize::from(channels), data }))
    }

    /// Appends the samples of these frames, which there are, to each channel.
    pub(crate) fn decode(&self, frames: Range<usize>, channels: &mut [Vec<f32>]) {
        let frame = self.channels * self.kind.bytes();
        let data = self.data.get(frames.start * frame..frames.end * frame).unwrap_or_default();
        for (number, out) in channels.iter_mut().enumerate() {
            match self.kind {
                Kind::U8 => put(data, self.channels, number, out, |[byte]| (f32::from(byte) - 128.0) / 128.0),
                Kind::S16 => put(data, self.channels, number, out, |bytes| {
                    f32::from(i16::from_le_bytes(bytes)) / 32_768.0
                }),
                Kind::S24 => put(data, self.channels, number, out, |[low, middle, high]| {
                    // As the upper bits of 32, for its sign.
                    (i32::from_le_bytes([0, low, middle, high]) >> 8) as f32 / 8_388_608.0
                }),
                Kind::S32 => put(data, self.channels, number, out, |bytes| {
                    i32::from_le_bytes(bytes) as f32 / 2_147_483_648.0
                }),
                Kind::F32 => put(data, self.channels, number, out, f32::from_le_bytes),
            }
        }
    }
}

/// Appends what `sample` makes of every value of a channel.
fn put<const N: usize>(
    data: &[u8],
    channels: usize,
    number: usize,
    out: &mut Vec<f32>,
    sample: impl Fn([u8; N]) -> f32,
) {
    let (values, _) = data.as_chunks::<N>();
    if channels == 1 {
        out.extend(values.iter().map(|value| sample(*value)));
    } else {
        out.extend(values.as_chunks::<2>().0.iter().map(|both| sample(both[number])));
    }
}
