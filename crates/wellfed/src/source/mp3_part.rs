//! A part of an MP3 file without the rest of it. Where its frames lie is known once the file was read whole: that is kept, so that
//! samples of seconds out of recordings of minutes read the recording once.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use wellfed_audio::{Mp3Frames, Opened, Segment};

use super::wav_part::WORTH;
use crate::{
    Limits, Result,
    sample::Span,
    store::{Stat, Store},
};

/// Memory for what is kept: a recording of an hour takes 19 kB. Of further files parts are read with all of the file.
const MOST: usize = 64 << 20;

/// Where frames lie in the files that were read.
#[derive(Debug, Default)]
pub(super) struct Mp3Parts(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    files: HashMap<Box<str>, Known>,
    size: usize,
}

#[derive(Clone, Debug)]
struct Known {
    /// Of a file that has another size or time of change since then, nothing is known.
    size: u64,
    modified: i128,
    /// `None` if the file is not frames from the first to the last.
    frames: Option<Arc<Mp3Frames>>,
}

impl Mp3Parts {
    /// Reads what of a file there has to be for `span` into `into`, if it is a file that was read before: where the span is in that. `None`
    /// if not; then `into` is empty.
    ///
    /// # Errors
    /// What the store says; [`crate::ErrorKind::Limit`] for a part of more than `max_bytes`.
    pub(super) fn read(
        &self,
        store: &dyn Store,
        path: &str,
        stat: &Stat,
        span: Span,
        max_bytes: u64,
        into: &mut Vec<u8>,
    ) -> Result<Option<Span>> {
        into.clear();
        let Some(frames) = self.known(path, stat).and_then(|known| known.frames) else { return Ok(None) };
        let (offset, count) = span.frames(frames.sample_rate());
        let Some(part) = frames.part(Segment { offset, frames: count }) else { return Ok(None) };
        let len = part.bytes.end - part.bytes.start;
        (Limits { max_bytes, ..Limits::default() }).check_bytes(path, len)?;
        store.read_range(path, part.bytes.start, len as usize, into)?;
        // In the middle of a frame: parts of one do not count, and rounding does not make it another.
        let seconds = |place: u64| (place as f64 + 0.5) / f64::from(frames.sample_rate());
        let Segment { offset, frames: count } = part.segment;
        Ok(Some(Span { offset: seconds(offset), duration: count.map(seconds) }))
    }

    /// Keeps where the frames of a file lie that was read, `bytes`, if it is one of MP3 of which parts are worth it.
    pub(super) fn keep(&self, path: &str, stat: &Stat, bytes: &[u8]) {
        // What the file was when it was read is not known if it has another size.
        let is_worth_it = stat.size >= WORTH && stat.size == bytes.len() as u64;
        if !is_worth_it || !could_be_mp3(bytes) || self.known(path, stat).is_some() {
            return;
        }
        let limits = wellfed_audio::Limits::default();
        let frames = Opened::open(bytes, &limits).ok().and_then(Opened::mp3_frames).map(Arc::new);
        let known = Known { size: stat.size, modified: stat.modified, frames };
        let size = |known: &Known| {
            path.len() + size_of::<Known>() + known.frames.as_ref().map_or(0, |frames| frames.size())
        };
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(old) = kept.files.remove(path) {
            kept.size -= size(&old);
        }
        let new = size(&known);
        if kept.size + new <= MOST {
            kept.size += new;
            kept.files.insert(path.into(), known);
        }
    }

    /// What is kept of the file, if it is still as it was.
    fn known(&self, path: &str, stat: &Stat) -> Option<Known> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.files
            .get(path)
            .filter(|known| (known.size, known.modified) == (stat.size, stat.modified))
            .cloned()
    }
}

/// Whether a file may begin with a tag or a frame of MP3. Of others nothing needs to be kept to know that they are none.
fn could_be_mp3(bytes: &[u8]) -> bool {
    bytes.starts_with(b"ID3")
        || (bytes.first() == Some(&0xff) && bytes.get(1).is_some_and(|byte| byte & 0xe0 == 0xe0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{store::LocalStore, testing::TempFolder};

    /// A sound of 44.1 kHz, its table of contents left out, again and again.
    fn song() -> Vec<u8> {
        let file = include_bytes!("../../../wellfed-audio/tests/sounds/cbr-44k.mp3");
        // Its second frame is a byte longer.
        let table = file.windows(4).position(|bytes| bytes == [0xff, 0xfb, 0x42, 0x44]).unwrap();
        file[table..].repeat(30)
    }

    #[test]
    fn a_part_is_what_decoding_the_whole_gives_once_it_was_read() {
        let folder = TempFolder::new();
        let whole = song();
        folder.write("a.mp3", &whole);
        let (store, path) = (LocalStore::new(), folder.join("a.mp3"));
        let (parts, limits) = (Mp3Parts::default(), wellfed_audio::Limits::default());
        let stat = store.stat(&path).unwrap();
        let mut part = vec![1];
        let spans =
            [(0.0, Some(0.5)), (10.0, Some(0.1)), (20.5, Some(5.0)), (7.000_13, Some(1.0)), (28.0, None)];
        let spans = spans.map(|(offset, duration)| Span { offset, duration });
        assert_eq!(parts.read(&store, &path, &stat, spans[0], 1 << 30, &mut part).unwrap(), None);
        assert!(part.is_empty());
        parts.keep(&path, &stat, &whole);
        let decode = |bytes: &[u8], span: Span| {
            let (offset, frames) = span.frames(44_100);
            wellfed_audio::decode(bytes, Segment { offset, frames }, &limits).unwrap()
        };
        for span in spans {
            let within = parts.read(&store, &path, &stat, span, 1 << 30, &mut part).unwrap().unwrap();
            assert!(part.len() < whole.len() / 3, "{} of {}", part.len(), whole.len());
            let expected = decode(&whole, span);
            assert!(expected.frames() > 4_000);
            assert_eq!(decode(&part, within), expected, "{span:?}");
        }
        let beyond = Span { offset: 1e4, duration: None };
        assert_eq!(parts.read(&store, &path, &stat, beyond, 1 << 30, &mut part).unwrap(), None);
        let error = parts.read(&store, &path, &stat, spans[2], 1_000, &mut part).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::Limit);
        // Another file of the same name.
        let later = Stat { modified: stat.modified + 1, ..stat };
        assert_eq!(parts.read(&store, &path, &later, spans[1], 1 << 30, &mut part).unwrap(), None);
    }

    #[test]
    fn of_other_files_it_is_kept_that_they_have_no_parts() {
        let parts = Mp3Parts::default();
        let folder = TempFolder::new();
        let mut broken = song();
        let middle = broken.len() / 2;
        broken.splice(middle..middle, [0; 700]);
        let flac = [&b"fLaC"[..], &broken].concat();
        for (bytes, known) in [(&broken, true), (&flac, false), (&broken[..1_000].to_vec(), false)] {
            folder.write("a", bytes);
            let stat = LocalStore::new().stat(&folder.join("a")).unwrap();
            parts.keep("a", &stat, bytes);
            assert_eq!(parts.known("a", &stat).map(|known| known.frames), known.then_some(None));
        }
    }
}
