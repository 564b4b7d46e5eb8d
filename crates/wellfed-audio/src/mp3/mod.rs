//! MPEG audio layer III: segments of MP3 files.
//!
//! The library that opens files decodes MP3 no faster than others; here granules are decoded side by side, and frames before a segment
//! are stepped over by their heads. What a file is like from its first frame to the last that is looked at must be plain: frames of one
//! rate and number of channels, one after the other, that keep the rules, without intensity stereo, mixed blocks or free bit rates. Of
//! anything else [`decode`] says that it does not decode it, and the library has its own way with it, or its error.

mod bands;
mod bits;
mod frames;
mod head;
mod huffman;
mod huffman_tables;
mod hybrid;
mod side;
mod spectrum;
mod synthesis;
#[cfg(test)]
mod tests;

use crate::{
    Limits, Segment,
    lanes::{Kernel, Lanes, run},
};
use bands::LONG;
use head::{Head, Sizes, could_be_head, is_tag};
use hybrid::{Hybrid, SLOTS};
use spectrum::{LINES, Row, Spectra};
use synthesis::{BANDS, Synthesis};

pub(crate) use frames::{Length, length};
pub use frames::{Mp3Frames, Mp3Part};

/// A file's first frame with sound, and what its samples count as.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start<'p> {
    /// The frame's bytes.
    pub(crate) frame: &'p [u8],
    /// The number of its first sample: below 0 of what an encoder put before the sound.
    pub(crate) at: i64,
    /// Samples of each channel, where the file tells: what comes later is not part of the sound.
    pub(crate) frames: Option<u64>,
}

/// Frames that are looked back on, to find one from which on decoding gives what decoding from the start gives.
const HISTORY: usize = 32;

/// Frames that change a later frame's samples though that refers to none of their bits: transforms of two granules overlap, and samples
/// are made of 16 slots of 18 that a granule has. A frame of lower sample rates is one granule.
const OVERLAP: usize = 2;

/// Decodes a segment into `channels`, which are empty and as many as the sound has, or one: that of their mean, which is taken before
/// samples are made of subbands, as it is the same up to rounding and most of the work.
///
/// Whether that was done: a file that is not plain is left to others, and what there is in `channels` then has no meaning.
pub(crate) fn decode(
    bytes: &[u8],
    start: Start<'_>,
    segment: Segment,
    limits: &Limits,
    channels: &mut [Vec<f32>],
) -> bool {
    Walk::open(bytes, start.frame).is_some_and(|walk| {
        let end = segment.frames.map_or(u64::MAX, |frames| segment.offset.saturating_add(frames));
        walk.decode(start, segment.offset..end, limits, channels).is_some()
    })
}

/// Where what is before the frames ends. ID3v2: ten bytes with the size of the rest, of 7 bits in each, without a footer of ten more.
fn after_tags(bytes: &[u8]) -> usize {
    let mut at = 0usize;
    while let Some([b'I', b'D', b'3', _, _, flags, size @ ..]) =
        bytes.get(at..).and_then(<[u8]>::first_chunk::<10>)
    {
        let size = size.iter().fold(0, |size, byte| size << 7 | usize::from(byte & 0x7f));
        at += 10 + size + if flags & 0x10 != 0 { 10 } else { 0 };
    }
    at
}

/// The frames of a file.
#[derive(Clone, Copy, Debug)]
struct Walk<'b> {
    bytes: &'b [u8],
    /// That of the first frame.
    head: Head,
    sizes: Sizes,
    /// Where the next frame is.
    at: usize,
}

/// What comes next in a file.
enum Next<'b> {
    Frame(Head, &'b [u8]),
    End,
    /// Bytes that are no frame, or one unlike those before it.
    Other,
}

impl<'b> Walk<'b> {
    /// From the first frame of `bytes` on that has sound, which is `first`.
    fn open(bytes: &'b [u8], first: &[u8]) -> Option<Self> {
        let mut at = after_tags(bytes);
        let head = Head::parse(first)?;
        if !bytes.get(at..)?.starts_with(first) {
            // A frame with a table of contents and the like.
            at += Head::parse(&bytes[at..])?.size;
        }
        let is_first = bytes.get(at..)?.starts_with(first) && first.len() == head.size;
        is_first.then_some(Self { bytes, head, sizes: Sizes::of(first)?, at })
    }

    /// Looks at the next frame, and goes on to the one after it.
    fn next(&mut self) -> Next<'b> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let Some(head) = self.head.parse_next(&self.sizes, rest) else {
            // Other bytes are often at the end: those of a tag.
            let is_head = |bytes: &[u8]| {
                bytes.first_chunk().is_some_and(|word| could_be_head(u32::from_be_bytes(*word)))
            };
            return if rest.windows(head::HEAD).any(is_head) { Next::Other } else { Next::End };
        };
        if !head.continues(&self.head) {
            return Next::Other;
        }
        match rest.get(..head.size) {
            None => Next::End,
            Some(frame) if is_tag(&head, frame) => Next::Other,
            Some(frame) => {
                self.at += head.size;
                Next::Frame(head, frame)
            }
        }
    }

    /// Samples of a frame.
    fn samples(&self) -> u64 {
        (LINES * self.head.granules()) as u64
    }

    /// Goes to a frame from which on decoding gives frame number `number` as decoding from the start does, or to the end: the frame's
    /// number.
    fn seek(&mut self, number: u64) -> Option<u64> {
        // Where the last frames begin, and what main data they have.
        let mut history = [(self.at, 0); HISTORY];
        for passed in 0..number {
            let at = self.at;
            match self.next() {
                Next::Frame(head, _) => history[passed as usize % HISTORY] = (at, head.main_size()),
                Next::End => return Some(number),
                Next::Other => return None,
            }
        }
        let (mut first, mut behind, mut main) = (number, 0, 0);
        while first > 0 && main < self.head.furthest_back() {
            if behind == HISTORY {
                return None;
            }
            first -= 1;
            behind += 1;
            let (at, size) = history[first as usize % HISTORY];
            self.at = at;
            if behind > OVERLAP {
                main += size;
            }
        }
        Some(first)
    }

    fn decode(
        mut self,
        start: Start<'_>,
        wanted: std::ops::Range<u64>,
        limits: &Limits,
        channels: &mut [Vec<f32>],
    ) -> Option<()> {
        if ![1, self.head.channels].contains(&channels.len()) {
            return None;
        }
        let samples = i64::try_from(self.samples()).ok()?;
        let offset = i64::try_from(wanted.start).ok()?.checked_sub(start.at)?;
        let number = self.seek(u64::try_from(offset / samples).ok()?)?;
        let at = start.at.checked_add(samples.checked_mul(i64::try_from(number).ok()?)?)?;
        run(Decode { walk: self, at, whole: start.frames.unwrap_or(u64::MAX), wanted, limits, channels })
    }
}

/// Decodes frames and keeps what is wanted.
struct Decode<'b, 'c> {
    walk: Walk<'b>,
    /// The number of the next frame's first sample.
    at: i64,
    /// Samples that the sound has.
    whole: u64,
    wanted: std::ops::Range<u64>,
    limits: &'c Limits,
    channels: &'c mut [Vec<f32>],
}

impl Kernel for Decode<'_, '_> {
    type Output = Option<()>;

    #[inline(always)]
    fn run<L: Lanes>(mut self) -> Option<()> {
        let mut spectra = Spectra::default();
        let mut group = vec![[Row::EMPTY; 2]; L::N];
        let mut hybrids: Vec<Hybrid<L>> = (0..self.walk.head.channels).map(|_| Hybrid::new()).collect();
        let mut syntheses: Vec<Synthesis<L>> = self.channels.iter().map(|_| Synthesis::new()).collect();
        let is_mean = syntheses.len() < hybrids.len();
        let mut bands = [[L::ZERO; BANDS]; SLOTS];
        let mut others = [[L::ZERO; BANDS]; SLOTS];
        let mut places = [[L::ZERO; BANDS]; SLOTS];
        let mut samples = vec![0.0; L::N * LINES];
        loop {
            let count = self.read_group(&mut spectra, &mut group)?;
            if count == 0 {
                return Some(());
            }
            // Of all that is wanted, what is in these granules.
            let position = |at: u64| {
                usize::try_from(i64::try_from(at).unwrap_or(i64::MAX).saturating_sub(self.at))
                    .unwrap_or(0)
                    .min(count * LINES)
            };
            let (begin, end) = (position(self.wanted.start), position(self.wanted.end.min(self.whole)));
            let had = self.channels.first().map_or(0, Vec::len);
            if begin < end {
                let frames = had as u64 + (end - begin) as u64;
                self.limits.check_samples(frames, self.channels.len() as u32).ok()?;
            }
            for (number, hybrid) in hybrids.iter_mut().enumerate() {
                hybrid.load(group[..count].iter().map(|rows| &rows[number]), &LONG[self.walk.head.bands]);
            }
            if let [left, right] = &mut hybrids[..] {
                left.undo_mid_side(right, |lane| group[lane][0].mid_side);
            }
            if is_mean && let [one, other] = &mut hybrids[..] {
                one.mix(other);
            }
            for (number, synthesis) in syntheses.iter_mut().enumerate() {
                hybrids[number].apply(&mut bands);
                if is_mean && let Some(other) = hybrids.get_mut(1).filter(|other| !other.is_empty()) {
                    other.apply(&mut others);
                    for (band, other) in bands.as_flattened_mut().iter_mut().zip(others.as_flattened()) {
                        *band = *band + *other;
                    }
                }
                synthesis.apply(&bands, count, &mut places);
                if begin < end {
                    to_rows(places.as_flattened(), &mut samples[..count * LINES]);
                    self.channels[number].extend_from_slice(&samples[begin..end]);
                }
            }
            self.at += (count * LINES) as i64;
        }
    }
}

impl Decode<'_, '_> {
    /// Decodes the next frames to spectra: how many granules. There are fewer than have room only at the end.
    fn read_group(&mut self, spectra: &mut Spectra, group: &mut [[Row; 2]]) -> Option<usize> {
        let granules = self.walk.head.granules();
        let mut count = 0;
        while count + granules <= group.len() {
            // The place in the sound, which what comes after its end does not move.
            let at = self.at + (count * LINES) as i64;
            if u64::try_from(at).unwrap_or(0).min(self.whole) >= self.wanted.end {
                break;
            }
            match self.walk.next() {
                Next::Frame(head, frame) => {
                    spectra.read(&head, frame, &mut group[count..count + granules])?
                }
                Next::End => break,
                Next::Other => return None,
            }
            count += granules;
        }
        Some(count)
    }
}

/// The values of each lane, one after the other, of as many lanes as there are rows.
#[inline(always)]
fn to_rows<L: Lanes>(values: &[L], rows: &mut [f32]) {
    // Four by four, which the compiler does in registers.
    for (number, values) in values.as_chunks::<4>().0.iter().enumerate() {
        for lane in 0..L::N {
            let begin = lane * LINES + 4 * number;
            if let Some(places) = rows.get_mut(begin..begin + 4) {
                places.copy_from_slice(&values.each_ref().map(|values| values.values()[lane]));
            }
        }
    }
}
