//! Where the sound of an MP4 or M4A file begins.
//!
//! An AAC encoder puts frames before the sound, which its window needs. The edit list of the track says how many (ISO/IEC 14496-12,
//! 8.6.6): its first entry begins that late in the media. ffmpeg drops them; symphonia reads the list and does not use it. Files that
//! iTunes wrote may have no list, but a text of the name `iTunSMPB` with hexadecimal numbers, of which the second is that of frames.

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
    in_list(track, sample_rate).or_else(|| in_text(Content(bytes)))
}

/// What the edit list of a track says.
fn in_list(track: Content<'_>, sample_rate: u32) -> Option<u64> {
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

/// Frames that an encoder may have put before the sound, and a few more: larger numbers are not believed, as by ffmpeg.
const MOST_IN_TEXT: u64 = 1 << 14;

/// What `iTunSMPB` says.
fn in_text(file: Content<'_>) -> Option<u64> {
    let Content(meta) = file.find(b"moov")?.find(b"udta")?.find(b"meta")?;
    // `meta` and what is in an entry begin with a version and flags.
    let entries = Content(meta.get(4..)?).find(b"ilst")?;
    let named = |entry: &Content<'_>| entry.find(b"name").is_some_and(|n| n.0.get(4..) == Some(b"iTunSMPB"));
    let mut own = entries.boxes().filter(|(kind, _)| kind == b"----").map(|(_, entry)| entry);
    let Content(data) = own.find(named)?.find(b"data")?;
    let text = std::str::from_utf8(data.get(8..)?).ok()?;
    let frames = u64::from_str_radix(text.split_ascii_whitespace().nth(1)?, 16).ok()?;
    (1..MOST_IN_TEXT).contains(&frames).then_some(frames)
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

    /// A file of a track, with what iTunes says of it.
    fn with_text(track: &[u8], name: &[u8], text: &str) -> Vec<u8> {
        let own = |kind, content: &[u8]| made(kind, &[&[0; 4], content].concat());
        let mean = own(b"mean", b"com.apple.iTunes");
        let entry = [mean, own(b"name", name), own(b"data", &[&[0; 4], text.as_bytes()].concat())].concat();
        let list = made(b"ilst", &[made(b"\xa9too", b"x"), made(b"----", &entry)].concat());
        let user = made(b"udta", &made(b"meta", &[&[0; 4], &list[..]].concat()));
        made(b"moov", &[track, &user].concat())
    }

    #[test]
    fn without_a_list_the_text_of_itunes_says_it() {
        let bare = made(b"trak", &made(b"mdia", &made(b"hdlr", b"\0\0\0\0\0\0\0\0soun")));
        let text = " 00000000 00000840 000001CA 00000000003F31F6";
        let file = with_text(&bare, b"iTunSMPB", text);
        assert_eq!(frames_before(&file, 44_100), Some(0x840));
        for end in 0..file.len() {
            assert!(frames_before(&file[..end], 44_100).is_none(), "{end}");
        }
        assert_eq!(frames_before(&with_text(&bare, b"iTunNORM", text), 44_100), None);
        for other in ["", " 0", " 0 x", " 0 0 1", " 0 4000 1", " 0 FFFFFFFFFFFFFFFFF 1"] {
            assert_eq!(frames_before(&with_text(&bare, b"iTunSMPB", other), 44_100), None, "{other}");
        }
        // The list is what is played by.
        let both = with_text(&track(b"soun", &[1024], 44_100), b"iTunSMPB", text);
        assert_eq!(frames_before(&both, 44_100), Some(1024));
    }

    #[test]
    fn files_without_a_list_begin_at_once() {
        let none = made(b"moov", &made(b"trak", &made(b"mdia", &made(b"hdlr", b"\0\0\0\0\0\0\0\0soun"))));
        assert_eq!(frames_before(&none, 8000), None);
        assert_eq!(frames_before(&made(b"moov", &track(b"soun", &[3], 0)), 8000), None);
        assert_eq!(frames_before(b"", 8000), None);
    }
}
