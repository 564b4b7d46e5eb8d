//! A part of a WAV file without the rest of it: samples of PCM have one size, so where a part lies follows from the head. Recordings of
//! hours, of which a sample is a few seconds, would otherwise be read whole for each.

use crate::{Limits, Result, sample::Span, store::Store};

/// Bytes at the start of a file that the head is looked for in.
const HEAD: u64 = 4096;

/// A file that is not this much larger than its part is read whole: one read, and nothing to work out.
pub(super) const WORTH: u64 = 256 << 10;

/// What a head says.
#[derive(Debug, PartialEq, Eq)]
struct Pcm {
    sample_rate: u32,
    /// Bytes of a frame.
    frame: u64,
    /// Where samples begin, and how many bytes they have.
    start: u64,
    len: u64,
}

/// Reads a WAV file of PCM that has the frames of `span` only into `into`, if `path`, a file of `size` bytes, is such a file and that is
/// worth it. False if not: then `into` is empty, and nothing is known of the file.
///
/// # Errors
/// What the store says; [`crate::ErrorKind::Limit`] for a part of more than `max_bytes`.
pub(super) fn read(
    store: &dyn Store,
    path: &str,
    size: u64,
    span: Span,
    max_bytes: u64,
    into: &mut Vec<u8>,
) -> Result<bool> {
    into.clear();
    if size < WORTH {
        return Ok(false);
    }
    store.read_range(path, 0, HEAD as usize, into)?;
    let part = pcm(into, size).and_then(|pcm| {
        let (offset, frames) = span.frames(pcm.sample_rate);
        let left = (pcm.len / pcm.frame).checked_sub(offset).filter(|left| *left > 0)?;
        let len = frames.unwrap_or(left).min(left).checked_mul(pcm.frame)?;
        let begin = pcm.start + offset * pcm.frame;
        // Most of the file is read as any other file.
        (len + pcm.start <= size - WORTH).then_some((pcm.start, begin, len))
    });
    let Some((head, begin, len)) = part else {
        into.clear();
        return Ok(false);
    };
    if let Err(error) = (Limits { max_bytes, ..Limits::default() }).check_bytes(path, head + len) {
        into.clear();
        return Err(error);
    }
    into.truncate(head as usize);
    // It is below 4 GiB, as the size of the whole was.
    into[4..8].copy_from_slice(&((head + len - 8) as u32).to_le_bytes());
    into[head as usize - 4..].copy_from_slice(&(len as u32).to_le_bytes());
    store.read_range(path, begin, len as usize, into)?;
    Ok(true)
}

/// Seconds of a file of `size` bytes that begins with `head`, if it is a WAV file of PCM whose sizes are what they should be.
pub(super) fn seconds(head: &[u8], size: u64) -> Option<f64> {
    pcm(head, size).map(|pcm| (pcm.len / pcm.frame) as f64 / f64::from(pcm.sample_rate))
}

/// What the head in `bytes` says of a file of `size` bytes; `None` for others than PCM, and where sizes are not what they should be.
fn pcm(bytes: &[u8], size: u64) -> Option<Pcm> {
    let u16_at = |at: usize| Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    let u32_at = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    if bytes.get(..4)? != b"RIFF" || bytes.get(8..12)? != b"WAVE" {
        return None;
    }
    let (mut at, mut format) = (12, None);
    loop {
        let (name, len) = (bytes.get(at..at + 4)?, u32_at(at + 4)?);
        let body = at + 8;
        match name {
            b"fmt " => {
                let mut tag = u16_at(body)?;
                if tag == 0xFFFE {
                    // The kind is in the first two bytes of a longer one.
                    tag = u16_at(body + 24)?;
                }
                // Integers and floating point numbers.
                let frame = u64::from(u16_at(body + 12)?);
                format = matches!(tag, 1 | 3).then_some((u32_at(body + 4)?, frame));
            }
            b"data" => {
                let ((sample_rate, frame), start) = (format?, body as u64);
                let len = u64::from(len);
                let whole = frame > 0 && sample_rate > 0 && len > 0 && start + len <= size;
                return whole.then_some(Pcm { sample_rate, frame, start, len });
            }
            _ => {}
        }
        at = body.checked_add(len as usize)?.checked_add(len as usize & 1)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{store::LocalStore, testing::TempFolder};

    /// A WAV file of 16-bit samples of two channels at 8 kHz, with a chunk before them that nobody knows.
    fn wav(frames: u32) -> Vec<u8> {
        let data: Vec<u8> = (0..2 * frames).flat_map(|i| ((i * 7919) as i16).to_le_bytes()).collect();
        let mut chunks = b"WAVEjunk\x03\0\0\0abc\0fmt \x10\0\0\0\x01\0\x02\0".to_vec();
        chunks.extend([8_000_u32, 32_000].map(u32::to_le_bytes).concat());
        chunks.extend(b"\x04\0\x10\0data");
        chunks.extend((data.len() as u32).to_le_bytes());
        chunks.extend(data);
        [b"RIFF", &(chunks.len() as u32).to_le_bytes()[..], &chunks].concat()
    }

    #[test]
    fn a_part_is_what_decoding_the_whole_gives() {
        let folder = TempFolder::new();
        let whole = wav(200_000);
        folder.write("a.wav", &whole);
        folder.write("b.wav", &whole[..WORTH as usize + 100]);
        folder.write("short.wav", &wav(100));
        let store = LocalStore::new();
        let limits = wellfed_audio::Limits::default();
        let mut part = Vec::new();
        let read = |store: &LocalStore, path: &str, span, most, part: &mut Vec<u8>| {
            read(store, path, store.stat(path).unwrap().size, span, most, part)
        };
        for (offset, duration) in [(0.0, 0.5), (1.0, 0.1), (24.5, 9.0), (3.00013, 1.0)] {
            let span = Span { offset, duration: Some(duration) };
            assert!(read(&store, &folder.join("a.wav"), span, 1 << 30, &mut part).unwrap());
            assert!(part.len() < 64 << 10);
            let (offset, frames) = span.frames(8_000);
            let expected =
                wellfed_audio::decode(&whole, wellfed_audio::Segment { offset, frames }, &limits).unwrap();
            let found = wellfed_audio::decode(&part, wellfed_audio::Segment::default(), &limits).unwrap();
            assert_eq!(found, expected);
            assert!(found.frames() > 0);
        }
        let half = Span { offset: 1.0, duration: Some(0.5) };
        for (name, span) in [
            // Beyond the end; most of it; less than its head says; not worth it.
            ("a.wav", Span { offset: 25.0, duration: None }),
            ("a.wav", Span { offset: 0.1, duration: None }),
            ("b.wav", half),
            ("short.wav", half),
        ] {
            assert!(!read(&store, &folder.join(name), span, 1 << 30, &mut part).unwrap(), "{name} {span:?}");
            assert!(part.is_empty());
        }
        let error = read(&store, &folder.join("a.wav"), half, 1_000, &mut part).unwrap_err();
        assert_eq!((error.kind(), error.size()), (crate::ErrorKind::Limit, Some(16_056)));
    }

    #[test]
    fn heads_of_other_kinds_are_left_alone() {
        let whole = wav(10);
        assert_eq!(pcm(&whole, whole.len() as u64).map(|pcm| (pcm.frame, pcm.len)), Some((4, 40)));
        for cut in 0..whole.len() - 40 {
            assert_eq!(pcm(&whole[..cut], whole.len() as u64), None);
        }
        let mut other = whole.clone();
        let tag = other.windows(4).position(|name| name == b"fmt ").unwrap() + 8;
        other[tag] = 2;
        assert_eq!(pcm(&other, other.len() as u64), None);
        assert_eq!(pcm(b"fLaC and more", 1 << 20), None);
    }
}
