//! [`jpeg_head`]: the heads of JPEGs that Pillow takes without a word.
//!
//! Whoever stands in for Pillow's image of a file needs its size and mode at once, and all else it says (densities, colour
//! profiles, tables) hardly ever. That may wait only where it is known beforehand that Pillow's parser neither raises nor
//! warns, so whatever is unusual is none of these.

/// What the head of a JPEG says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JpegHead {
    /// Columns, at least 1.
    pub width: usize,
    /// Rows, at least 1.
    pub height: usize,
    /// Components: 1, 3 or 4.
    pub components: usize,
    /// Bytes up to the end of the header of the first scan.
    pub len: usize,
}

/// The head of the JPEG that begins with `bytes`; `None` if it is not all there, or not a plain one.
///
/// Plain are 8-bit baseline, extended and progressive files whose markers follow each other without anything between them, and
/// whose application segments are as long as Pillow expects. Not plain are those with several pictures, and those whose
/// resolution Pillow looks for in their EXIF data.
pub fn jpeg_head(bytes: &[u8]) -> Option<JpegHead> {
    if !bytes.starts_with(&[0xFF, 0xD8]) {
        return None;
    }
    let (mut at, mut frame, mut has_exif, mut has_dpi) = (2, None, false, false);
    loop {
        let &[0xFF, marker, high, low] = bytes.get(at..)?.first_chunk::<4>()? else { return None };
        let end = at + 2 + usize::from(u16::from_be_bytes([high, low]));
        let data = bytes.get(at + 4..end)?;
        at = end;
        match marker {
            0xC0..=0xC2 if frame.is_none() => frame = Some(of_frame(data)?),
            // Huffman tables, restart interval, comment.
            0xC4 | 0xDD | 0xFE => {}
            0xDB => tables_are_whole(data)?,
            0xDA => break,
            0xE0 if data.starts_with(b"JFIF") => {
                let unit = *data.get(7).filter(|_| data.len() >= 12)?;
                has_dpi |= matches!(unit, 1 | 2);
            }
            0xE1 => has_exif |= data.starts_with(b"Exif\0\0"),
            // A colour profile; others are of several pictures.
            0xE2 if data.starts_with(b"ICC_PROFILE\0") && data.len() >= 14 => {}
            0xED if data.starts_with(b"Photoshop 3.0\0") => resources_are_whole(data)?,
            0xEE if data.starts_with(b"Adobe") && data.len() < 12 => return None,
            0xE0 | 0xE3..=0xEF => {}
            _ => return None,
        }
    }
    let (width, height, components) = frame?;
    // Pillow would read the resolution from there, and may warn.
    (!has_exif || has_dpi).then_some(JpegHead { width, height, components, len: at })
}

/// Width, height, components.
fn of_frame(data: &[u8]) -> Option<(usize, usize, usize)> {
    let &[8, h1, h0, w1, w0, components @ (1 | 3 | 4), ref rest @ ..] = data else { return None };
    let (height, width) = (u16::from_be_bytes([h1, h0]), u16::from_be_bytes([w1, w0]));
    let whole = rest.len() == 3 * usize::from(components) && height > 0 && width > 0;
    whole.then_some((usize::from(width), usize::from(height), usize::from(components)))
}

/// Quantization tables follow each other up to the end.
fn tables_are_whole(mut data: &[u8]) -> Option<()> {
    while let Some(&first) = data.first() {
        data = data.get(if first >> 4 == 0 { 65 } else { 129 }..)?;
    }
    Some(())
}

/// Photoshop's resources, as far as Pillow follows them: it does not expect one without the length of its name.
fn resources_are_whole(data: &[u8]) -> Option<()> {
    let mut at = 14;
    while data.get(at..)?.starts_with(b"8BIM") {
        // Four bytes of signature, two that say what it is; then lengths at even places.
        if data.len() < at + 6 {
            return Some(());
        }
        let name = usize::from(*data.get(at + 6)?);
        let size_at = (at + 7 + name).next_multiple_of(2);
        let Some(size) = data.get(size_at..).and_then(|rest| rest.first_chunk::<4>()) else {
            return Some(());
        };
        // Numbers beyond the end are as good as the end.
        let size = u32::from_be_bytes(*size) as usize;
        at = size_at.saturating_add(4).saturating_add(size).min(data.len()).next_multiple_of(2);
        if at > data.len() {
            return Some(());
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(marker: u8, data: &[u8]) -> Vec<u8> {
        [&[0xFF, marker][..], &(data.len() as u16 + 2).to_be_bytes(), data].concat()
    }

    fn jfif(unit: u8) -> Vec<u8> {
        segment(0xE0, &[b"JFIF\0\x01\x01", &[unit, 0, 72, 0, 72, 0, 0][..]].concat())
    }

    fn frame(components: u8) -> Vec<u8> {
        let mut data = vec![8, 0, 45, 1, 4, components];
        (1..=components).for_each(|id| data.extend([id, 0x11, 0]));
        segment(0xC0, &data)
    }

    fn head(segments: &[Vec<u8>]) -> Vec<u8> {
        let scan = segment(0xDA, &[1, 1, 0, 0, 63, 0]);
        [vec![0xFF, 0xD8], segments.concat(), scan].concat()
    }

    #[test]
    fn plain_heads_are_read_and_no_byte_of_them_may_be_missing() {
        let tables = segment(0xDB, &[&[0][..], &[1; 64], &[0x11], &[1; 128]].concat());
        let exif = segment(0xE1, b"Exif\0\0MM");
        let profile = segment(0xE2, b"ICC_PROFILE\0\x01\x01data");
        let resources =
            segment(0xED, b"Photoshop 3.0\08BIM\x04\x04\0\0\0\0\0\x01x\08BIM\x03\xED\0\0\0\0\0\x7F");
        let bytes = head(&[jfif(1), resources, exif, profile, segment(0xFE, b"a comment"), tables, frame(3)]);
        let read = jpeg_head(&[&bytes[..], b"pixels"].concat()).unwrap();
        assert_eq!(read, JpegHead { width: 260, height: 45, components: 3, len: bytes.len() });
        assert!((0..bytes.len()).all(|end| jpeg_head(&bytes[..end]).is_none()));
        assert_eq!(jpeg_head(&head(&[frame(1)])).unwrap().components, 1);
    }

    #[test]
    fn what_is_unusual_is_not_plain() {
        let exif = segment(0xE1, b"Exif\0\0MM");
        let wide = segment(0xC0, &[8, 0, 45, 0, 0, 1, 1, 0x11, 0]);
        let lossless = segment(0xC3, &frame(1)[4..]);
        let padded = [vec![0xFF], frame(1)].concat();
        for other in [
            vec![],
            vec![frame(1), frame(1)],
            vec![frame(2)],
            vec![wide],
            vec![lossless],
            vec![padded],
            vec![jfif(0), exif.clone(), frame(1)],
            vec![exif, frame(1)],
            vec![segment(0xE0, b"JFIF\0\x01"), frame(1)],
            vec![segment(0xE2, b"MPF\0"), frame(1)],
            vec![segment(0xE2, b"ICC_PROFILE\0"), frame(1)],
            vec![segment(0xEE, b"Adobe\0d"), frame(1)],
            vec![segment(0xED, b"Photoshop 3.0\08BIM\x04\x04"), frame(1)],
            vec![segment(0xDB, &[0; 64]), frame(1)],
            vec![vec![0xFF, 0xDB, 0, 1], frame(1)],
            vec![vec![0xFF, 0xD9], frame(1)],
            vec![vec![0], frame(1)],
        ] {
            assert_eq!(jpeg_head(&head(&other)), None, "{other:x?}");
        }
        assert_eq!(jpeg_head(b"\x89PNG"), None);
    }
}
