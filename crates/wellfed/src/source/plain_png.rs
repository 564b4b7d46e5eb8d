//! Pixels as a PNG without compression, so that images that are stored decoded take the way of all others.

/// A PNG of interleaved 8-bit pixels: grey, grey with alpha, RGB or RGBA. The error says what is wrong with them.
pub(super) fn of_pixels(width: u32, height: u32, channels: u64, pixels: &[u8]) -> Result<Vec<u8>, String> {
    let color = match channels {
        1 => png::ColorType::Grayscale,
        2 => png::ColorType::GrayscaleAlpha,
        3 => png::ColorType::Rgb,
        4 => png::ColorType::Rgba,
        _ => return Err(format!("is an image of {channels} channels, not 1 to 4")),
    };
    let needed = u64::from(width).checked_mul(u64::from(height)).and_then(|n| n.checked_mul(channels));
    if needed != Some(pixels.len() as u64) || pixels.is_empty() {
        let given = pixels.len();
        return Err(format!("is an image of {width}x{height}x{channels}, which does not have {given} bytes"));
    }
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(color);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::NoCompression);
    encoder.set_filter(png::Filter::NoFilter);
    let written = encoder.write_header().and_then(|mut writer| writer.write_image_data(pixels));
    written.map_err(|e| format!("is an image that cannot be kept: {e}"))?;
    Ok(file)
}

/// A PNG of a Pillow image as Streaming and LitData write it: width, height and length of the mode (u32), mode, pixels.
pub(super) fn of_pillow(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let number = |at: usize| bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes);
    let (Some(width), Some(height), Some(mode)) = (number(0), number(4), number(8)) else {
        return Err("ends within its size".to_owned());
    };
    let (mode, pixels) = bytes[12..].split_at_checked(mode as usize).ok_or("ends within its mode")?;
    let channels = match mode {
        b"L" => 1,
        b"LA" => 2,
        b"RGB" => 3,
        b"RGBA" => 4,
        other => {
            let other = String::from_utf8_lossy(other.get(..20).unwrap_or(other)).into_owned();
            return Err(format!("is a Pillow image of mode {other:?}; known are L, LA, RGB and RGBA"));
        }
    };
    of_pixels(width, height, channels, pixels)
}
