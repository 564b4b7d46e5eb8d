//! Where the frames of an MP3 file are and how many there are, which most files do not say.

use std::ops::Range;

use super::{HISTORY, Next, Start, Walk, after_tags, head};
use crate::Segment;

/// Frames from one whose place is kept to the next: 0.8 seconds of 44.1 kHz.
const APART: u64 = 32;

/// Bytes in which the first frame is looked for.
const SEARCHED: usize = 1 << 16;

/// How long a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// As its table of contents has it.
    Told,
    /// Without a table: samples of each channel in all frames.
    Counted(u64),
    /// There is no table, and not all bytes are frames.
    Unknown,
}

/// Looks for a table at the first frame, and if there is none counts frames.
pub(crate) fn length(bytes: &[u8]) -> Length {
    let Some(mut walk) = first_frame(bytes) else { return Length::Unknown };
    if walk.bytes.get(walk.at..walk.at + walk.head.size).is_some_and(|frame| head::is_tag(&walk.head, frame))
    {
        return Length::Told;
    }
    let mut count = 0;
    loop {
        match walk.next() {
            Next::Frame(..) => count += 1,
            Next::End => return Length::Counted(count * walk.samples()),
            Next::Other => return Length::Unknown,
        }
    }
}

/// The first frame that is followed by another, or by nothing.
fn first_frame(bytes: &[u8]) -> Option<Walk<'_>> {
    let begin = after_tags(bytes);
    (begin..bytes.len().min(begin.saturating_add(SEARCHED))).find_map(|at| {
        let head = head::Head::parse(&bytes[at..])?;
        let after = bytes.get(at + head.size..)?;
        let is_followed =
            after.is_empty() || head::Head::parse(after).is_some_and(|next| next.continues(&head));
        let sizes = head::Sizes::of(&bytes[at..])?;
        is_followed.then_some(Walk { bytes, head, sizes, at })
    })
}

/// Where the frames of an MP3 file are, so that a segment can be decoded without the rest of the file: see [`crate::Opened::mp3_frames`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mp3Frames {
    sample_rate: u32,
    /// Samples of each channel in a frame.
    samples: u64,
    /// The number of the first frame's first sample.
    at: i64,
    /// Samples of each channel that the sound has.
    whole: u64,
    /// Where every [`APART`]th frame begins, and where the last one ends.
    places: Vec<u32>,
}

/// What is to be read of an MP3 file for a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mp3Part {
    /// Bytes of the file, which are whole frames.
    pub bytes: Range<u64>,
    /// The segment, in the sound that they are by themselves.
    pub segment: Segment,
}

impl Mp3Frames {
    /// `None` of files that are not frames from the first to the last, and of those beyond 4 GiB.
    pub(crate) fn of(bytes: &[u8], start: Start<'_>, sample_rate: u32) -> Option<Self> {
        let mut walk = Walk::open(bytes, start.frame)?;
        let samples = walk.samples();
        let (mut places, mut count) = (Vec::new(), 0);
        loop {
            let at = u32::try_from(walk.at).ok()?;
            match walk.next() {
                Next::Frame(..) if count % APART == 0 => places.push(at),
                Next::Frame(..) => {}
                Next::End => {
                    places.push(at);
                    let end = i64::try_from(count * samples).ok()?.checked_add(start.at)?;
                    let whole = u64::try_from(end).ok()?.min(start.frames.unwrap_or(u64::MAX));
                    return Some(Self { sample_rate, samples, at: start.at, whole, places });
                }
                Next::Other => return None,
            }
            count += 1;
        }
    }

    /// Frames a second, Hz.
    pub fn sample_rate(&self) -> u32 {
        self.sample_rate
    }

    /// Bytes of memory that this takes.
    pub fn size(&self) -> usize {
        size_of::<Self>() + size_of_val(&self.places[..])
    }

    /// What is to be read for a segment, so that decoding it gives what decoding the file gives; `None` where nothing of it is in the
    /// sound.
    pub fn part(&self, segment: Segment) -> Option<Mp3Part> {
        let end =
            segment.frames.map_or(self.whole, |frames| segment.offset.saturating_add(frames)).min(self.whole);
        if segment.offset >= end {
            return None;
        }
        // From the first sample of the first frame on.
        let place =
            |at: u64| i64::try_from(at).ok()?.checked_sub(self.at).and_then(|at| u64::try_from(at).ok());
        let (first, last) = (place(segment.offset)? / self.samples, (place(end)? - 1) / self.samples);
        // What is decoded before the segment, so that it is what it is in the whole.
        let first = first.saturating_sub(HISTORY as u64 + 1) / APART;
        let last = usize::try_from(last / APART + 1).ok()?.min(self.places.len() - 1);
        let [begin, end_byte] =
            [*self.places.get(usize::try_from(first).ok()?)?, self.places[last]].map(u64::from);
        let offset = place(segment.offset)? - first * APART * self.samples;
        Some(Mp3Part {
            bytes: begin..end_byte,
            segment: Segment { offset, frames: Some(end - segment.offset) },
        })
    }
}
