//! EXIF orientation: how a stored image must be flipped and turned to be seen as the camera saw it.

/// Tag of the orientation in the first image file directory.
const TAG: u16 = 0x0112;

/// The orientation, 1 to 8, in EXIF data that begin with a TIFF header; `None` if there is none.
///
/// The meaning of the values is that of TIFF 6.0 and of `PIL.ImageOps.exif_transpose`.
pub fn exif_orientation(tiff: &[u8]) -> Option<u8> {
    let little = match tiff.get(..4)? {
        b"II*\0" => true,
        b"MM\0*" => false,
        _ => return None,
    };
    let u16_at = |at: usize| -> Option<u16> {
        let b: [u8; 2] = tiff.get(at..at.checked_add(2)?)?.try_into().ok()?;
        Some(if little { u16::from_le_bytes(b) } else { u16::from_be_bytes(b) })
    };
    let u32_at = |at: usize| -> Option<u32> {
        let b: [u8; 4] = tiff.get(at..at.checked_add(4)?)?.try_into().ok()?;
        Some(if little { u32::from_le_bytes(b) } else { u32::from_be_bytes(b) })
    };
    let directory = u32_at(4)? as usize;
    let entries = usize::from(u16_at(directory)?);
    for entry in 0..entries {
        let at = directory.checked_add(2 + 12 * entry)?;
        if u16_at(at)? != TAG {
            continue;
        }
        let value = match u16_at(at + 2)? {
            1 => u32::from(*tiff.get(at + 8)?),
            3 => u32::from(u16_at(at + 8)?),
            4 => u32_at(at + 8)?,
            _ => return None,
        };
        return u8::try_from(value).ok().filter(|o| (1..=8).contains(o));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exif(little: bool, kind: u16, value: u32) -> Vec<u8> {
        let mut data = Vec::new();
        let u16b = |v: u16| if little { v.to_le_bytes() } else { v.to_be_bytes() };
        let u32b = |v: u32| if little { v.to_le_bytes() } else { v.to_be_bytes() };
        data.extend_from_slice(if little { b"II*\0" } else { b"MM\0*" });
        data.extend_from_slice(&u32b(8));
        data.extend_from_slice(&u16b(2));
        data.extend_from_slice(&[0; 12]);
        data.extend_from_slice(&u16b(TAG));
        data.extend_from_slice(&u16b(kind));
        data.extend_from_slice(&u32b(1));
        if kind == 3 {
            data.extend_from_slice(&u16b(value as u16));
            data.extend_from_slice(&[0; 2]);
        } else {
            data.extend_from_slice(&u32b(value));
        }
        data
    }

    #[test]
    fn the_tag_is_found_in_both_byte_orders_and_never_beyond_the_data() {
        for little in [false, true] {
            for value in 0..10 {
                let expected = (1..=8).contains(&value).then_some(value as u8);
                assert_eq!(exif_orientation(&exif(little, 3, value)), expected);
                assert_eq!(exif_orientation(&exif(little, 4, value)), expected);
            }
            let data = exif(little, 3, 6);
            for end in 0..data.len() {
                exif_orientation(&data[..end]);
            }
        }
        assert_eq!(exif_orientation(b"II*\0\xff\xff\xff\xff"), None);
    }
}
