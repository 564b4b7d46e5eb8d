//! Which kind of JPEG a file is, from its frame header: what decides how fast it decodes.

/// Kind of a JPEG as the first frame header tells it (ITU-T T.81, B.2.2): coding process and number of components.
/// `None` if there is no frame header before the first scan.
pub(crate) fn jpeg_kind(bytes: &[u8]) -> Option<&'static str> {
    let mut at = 2;
    loop {
        // Any number of 0xFF may come before a marker.
        while *bytes.get(at)? == 0xFF && *bytes.get(at + 1)? == 0xFF {
            at += 1;
        }
        let (prefix, marker) = (*bytes.get(at)?, *bytes.get(at + 1)?);
        let length = usize::from(u16::from_be_bytes([*bytes.get(at + 2)?, *bytes.get(at + 3)?]));
        match (prefix, marker) {
            // SOF0 to SOF15, but for DHT, JPG and DAC.
            (0xFF, 0xC0..=0xCF) if ![0xC4, 0xC8, 0xCC].contains(&marker) => {
                let components = *bytes.get(at + 9)?;
                let progressive = [0xC2, 0xC6, 0xCA, 0xCE].contains(&marker);
                return Some(match (progressive, components) {
                    (false, 1) => "JPEG sequential grey",
                    (true, 1) => "JPEG progressive grey",
                    (false, 4) => "JPEG sequential CMYK",
                    (true, 4) => "JPEG progressive CMYK",
                    (false, _) => "JPEG sequential",
                    (true, _) => "JPEG progressive",
                });
            }
            (0xFF, 0xDA) => return None,
            (0xFF, _) if length >= 2 => at += 2 + length,
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(marker: u8, components: u8) -> Vec<u8> {
        let mut bytes = vec![0xFF, 0xD8, 0xFF, 0xE0, 0, 4, 1, 2, 0xFF, 0xFF, marker, 0, 8, 8, 0, 1, 0, 1];
        bytes.push(components);
        bytes
    }

    #[test]
    fn the_frame_header_tells() {
        assert_eq!(jpeg_kind(&frame(0xC0, 3)), Some("JPEG sequential"));
        assert_eq!(jpeg_kind(&frame(0xC2, 3)), Some("JPEG progressive"));
        assert_eq!(jpeg_kind(&frame(0xC1, 1)), Some("JPEG sequential grey"));
        assert_eq!(jpeg_kind(&frame(0xC2, 4)), Some("JPEG progressive CMYK"));
        assert_eq!(jpeg_kind(&frame(0xDA, 1)), None);
    }

    #[test]
    fn a_cut_file_has_none() {
        let whole = frame(0xC0, 3);
        for end in 0..whole.len() {
            assert_eq!(jpeg_kind(&whole[..end]), None);
        }
    }
}
