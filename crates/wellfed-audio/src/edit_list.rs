//! Where the sound of an MP4 or M4A file begins.
//!
//! An AAC encoder puts frames before the sound, which its window needs. The edit list of the track says how many (ISO/IEC 14496-12,
//! 8.6.6): its first entry begins that late in the media. ffmpeg drops them; symphonia reads the list and does not use it.

/// What is inside of a box.
#[derive(Clone, Copy)]
struct Content<'b>(&'b [u8]);

impl<'b> Content<'b> {
    /// Kinds and contents of the boxes in it, as far as they are whole.
    fn boxes(self) -> impl Iterator<Item = ([u8; 4], Content<'b>)> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let (size, kind) = (be32(left, 0)?, left.get(4..8)?.try_into().ok()?);
            let (head, size) = match size {
                // Up to the end of what it is in.
                0 => (8, left.len() as u64),
                1 => (16, u64::from(be32(left, 8)?) << 32 | u64::from(be32(left, 12)?)),
                size => (8, u64::from(size)),
            };
            let size = usize::try_from(size).ok().filter(|size| *size >= head)?;
            let content = left.get(head..size)?;
            left = &left[size..];
            Some((kind, Content(content)))
        })
    }

    fn find(self, kind: &[u8; 4]) -> Option<Content<'b>> {
        self.boxes().find(|(found, _)| found == kind).map(|(_, content)| content)
    }
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// Frames of `sample_rate` Hz before the first that is heard, of the file's first track of sound.
pub(crate) fn frames_before(bytes: &[u8], sample_rate: u32) -> Option<u64> {
    let is_sound = |track: &Content<'_>| {
        let handler = track.find(b"mdia").and_then(|media| media.find(b"hdlr"));
        handler.is_some_and(|handler| handler.0.get(8..12) == Some(b"soun"))
    };
    let tracks = Content(bytes).find(b"moov")?.boxes().filter(|(kind, _)| kind == b"trak");
    let track = tracks.map(|(_, track)| track).find(is_sound)?;
    let Content(list) = track.find(b"edts")?.find(b"elst")?;
    let long = *list.first()? == 1;
    let entry = if long { 20 } else { 12 };
    let entries = list.get(8..)?.chunks_exact(entry).take(be32(list, 4)? as usize);
    // An entry of -1 is an empty edit, before which nothing has been heard.
    let mut begins = entries.filter_map(|entry| {
        let begin = if long {
            i64::from_be_bytes(entry[8..16].try_into().ok()?)
        } else {
            i64::from(i32::from_be_bytes(entry[4..8].try_into().ok()?))
        };
        u64::try_from(begin).ok()
    });
    let begin = begins.next()?;
    let Content(media) = track.find(b"mdia")?.find(b"mdhd")?;
    let scale = be32(media, if *media.first()? == 1 { 20 } else { 12 })?;
    let frames =
        u128::from(begin) * u128::from(sample_rate) / u128::from(std::num::NonZero::new(scale)?.get());
    u64::try_from(frames).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(kind: &[u8; 4], content: &[u8]) -> Vec<u8> {
        let mut bytes = (content.len() as u32 + 8).to_be_bytes().to_vec();
        bytes.extend(kind);
        bytes.extend(content);
        bytes
    }

    fn track(handler: &[u8; 4], begins: &[i32], scale: u32) -> Vec<u8> {
        let mut list = vec![0; 4];
        list.extend((begins.len() as u32).to_be_bytes());
        for begin in begins {
            list.extend([0, 0, 0, 9]);
            list.extend(begin.to_be_bytes());
            list.extend([0, 1, 0, 0]);
        }
        let mut head = vec![0; 12];
        head.extend(scale.to_be_bytes());
        let kind = [&[0; 8], &handler[..]].concat();
        let media = [made(b"mdhd", &head), made(b"hdlr", &kind)].concat();
        made(b"trak", &[made(b"edts", &made(b"elst", &list)), made(b"mdia", &media)].concat())
    }

    #[test]
    fn the_first_track_of_sound_says_where_it_begins() {
        let tracks = [track(b"vide", &[77], 600), track(b"soun", &[-1, 1024, 5], 44_100)].concat();
        let file = [made(b"ftyp", b"M4A "), made(b"moov", &tracks)].concat();
        assert_eq!(frames_before(&file, 44_100), Some(1024));
        // Media may be counted in other units than frames.
        assert_eq!(frames_before(&file, 88_200), Some(2048));
        for end in 0..file.len() {
            assert!(frames_before(&file[..end], 44_100).is_none(), "{end}");
        }
    }

    #[test]
    fn files_without_a_list_begin_at_once() {
        let none = made(b"moov", &made(b"trak", &made(b"mdia", &made(b"hdlr", b"\0\0\0\0\0\0\0\0soun"))));
        assert_eq!(frames_before(&none, 8000), None);
        assert_eq!(frames_before(&made(b"moov", &track(b"soun", &[3], 0)), 8000), None);
        assert_eq!(frames_before(b"", 8000), None);
    }
}
