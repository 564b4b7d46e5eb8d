//! The ways of decoding that must agree: levels, outputs, regions, row indexes, packed coefficients, a decoder that
//! was used before.
//!
//! Each function returns what differs, `None` if nothing does. They hold for every input, damaged ones too.

use wellfed_jpeg::{
    Decoder, ErrorKind, Format, Image, Level, Options, Packed, Region, Result, RowIndex, Scale,
};

use super::{Rng, crc32};

/// All of them, with regions drawn from the file's bytes.
pub(crate) fn ways(bytes: &[u8], options: &Options<'_>) -> Option<String> {
    let mut rng = Rng::new(crc32(bytes).into());
    let full = Decoder::new().decode(bytes, options);
    levels(bytes, options)
        .or_else(|| outputs(bytes, options, &full))
        .or_else(|| (0..3).find_map(|_| region(bytes, options, &full, &mut rng)))
        .or_else(|| index(bytes, options, &full, &mut rng))
        .or_else(|| packed(bytes, options, &full, &mut rng))
}

/// Every instruction set gives the same, at every scale, errors included.
pub(crate) fn levels(bytes: &[u8], options: &Options<'_>) -> Option<String> {
    let scales = [options.scale, Scale::Full, Scale::Half, Scale::Quarter, Scale::Eighth];
    // The wanted scale, and one more that depends on the file.
    let other = scales[1 + bytes.len() % 4];
    for scale in [options.scale, other] {
        let options = Options { scale, ..*options };
        let expected = Decoder::with_level(Level::Scalar).decode(bytes, &options);
        for level in Level::available().skip(1) {
            let got = Decoder::with_level(level).decode(bytes, &options);
            if let Some(what) = differ(&got, &expected) {
                return Some(format!("{level:?} at {scale:?} differs from scalar: {what}"));
            }
        }
    }
    None
}

/// Planar memory, rows of bands, strides with gaps and a second decode give the same.
pub(crate) fn outputs(bytes: &[u8], options: &Options<'_>, full: &Result<Image>) -> Option<String> {
    let mut decoder = Decoder::new();
    let again = decoder.decode(bytes, options);
    let Ok(image) = full else {
        return differ(&again, full).map(|what| format!("a second decode differs: {what}"));
    };
    let Image { width, height, channels, .. } = *image;
    let mut spaced = vec![0xa5; (width * channels + 5) * height];
    if let Err(reason) = decoder.decode_into(bytes, options, &mut spaced, width * channels + 5) {
        return Some(format!("with gaps: {reason}"));
    }
    let rows = spaced.chunks(width * channels + 5);
    if rows.clone().any(|row| row[width * channels..] != [0xa5; 5]) {
        return Some("gaps between rows were written".into());
    }
    let pixels = rows.flat_map(|row| &row[..width * channels]).copied().collect();
    if let Some(what) = differ(&Ok(Image { pixels, ..*image }), full) {
        return Some(format!("with gaps: {what}"));
    }

    let stride = width + 3;
    let mut memory: [Vec<u8>; 4] =
        std::array::from_fn(|c| vec![0; if c < channels { stride * height } else { 0 }]);
    let planes = memory.each_mut().map(|plane| plane.as_mut_slice());
    if let Err(reason) = decoder.decode_planar(bytes, options, planes, stride) {
        return Some(format!("planar: {reason}"));
    }
    let at = |i: usize| memory[i % channels][i / channels / width * stride + i / channels % width];
    let pixels = (0..image.pixels.len()).map(at).collect();
    if let Some(what) = differ(&Ok(Image { pixels, ..*image }), full) {
        return Some(format!("planar: {what}"));
    }

    let (mut pixels, mut next) = (Vec::new(), Some(0));
    let done = decoder.decode_rows(bytes, options, |rows| {
        next = next.filter(|&top| top == rows.top && rows.width == width && rows.channels == channels);
        next = next.map(|top| top + rows.count);
        for y in 0..rows.count {
            for x in 0..rows.width {
                pixels.extend((0..rows.channels).map(|c| rows.plane(c)[y * rows.stride + x]));
            }
        }
    });
    if done.is_err() || next != Some(height) {
        return Some(format!("bands: {done:?}, rows up to {next:?} of {height}"));
    }
    differ(&Ok(Image { pixels, ..*image }), full).map(|what| format!("bands: {what}"))
}

/// A region drawn at random is that part of the whole.
pub(crate) fn region(
    bytes: &[u8],
    options: &Options<'_>,
    full: &Result<Image>,
    rng: &mut Rng,
) -> Option<String> {
    // What lies outside a region may be broken, so an error of the whole says nothing about a region.
    let full = full.as_ref().ok()?;
    let region = draw(full, rng);
    let part = Decoder::new().decode(bytes, &Options { region: Some(region), ..*options });
    differ(&part, &Ok(crop(full, region))).map(|what| format!("{region:?}: {what}"))
}

/// Recording changes nothing, and what was recorded leads to the same pixels; likewise half an index made longer.
pub(crate) fn index(
    bytes: &[u8],
    options: &Options<'_>,
    full: &Result<Image>,
    rng: &mut Rng,
) -> Option<String> {
    let mut decoder = Decoder::new();
    let recorded = decoder.decode(bytes, &Options { record: true, ..*options });
    if let Some(what) = differ(&recorded, full) {
        return Some(format!("recording: {what}"));
    }
    let image = full.as_ref().ok()?;
    let whole = decoder.take_index();
    let part = Options { region: Some(draw(image, rng)), record: true, ..*options };
    let _ = decoder.decode(bytes, &part);
    let short = decoder.take_index();
    // As bytes an index may have fewer points.
    let kept = whole.as_ref().map(|index| RowIndex::from_bytes(&index.to_bytes()));
    let kept = match kept.transpose() {
        Ok(kept) => kept,
        Err(reason) => return Some(format!("an index was not read as it was written: {reason}")),
    };
    for index in whole.iter().chain(&short).chain(&kept) {
        if !index.matches(bytes) {
            return Some("an index does not match its own file".into());
        }
        for level in Level::available() {
            let region = draw(image, rng);
            let options = Options { region: Some(region), index: Some(index), ..*options };
            let got = Decoder::with_level(level).decode(bytes, &options);
            if let Some(what) = differ(&got, &Ok(crop(image, region))) {
                return Some(format!(
                    "{region:?} at {level:?} with an index of {} rows: {what}",
                    index.rows()
                ));
            }
        }
        for record in [false, true] {
            let options = Options { index: Some(index), record, ..*options };
            if let Some(what) = differ(&decoder.decode(bytes, &options), full) {
                return Some(format!("with an index of {} rows: {what}", index.rows()));
            }
            let region = draw(image, rng);
            let got = decoder.decode(bytes, &Options { region: Some(region), ..options });
            if let Some(what) = differ(&got, &Ok(crop(image, region))) {
                return Some(format!(
                    "{region:?} with an index of {} rows, record {record}: {what}",
                    index.rows()
                ));
            }
            if let (Some(whole), Some(longer)) = (&whole, decoder.take_index())
                && (longer.extends(whole) || !begins(whole, &longer, bytes, options, full))
            {
                return Some("an index that was made longer is not the whole one".into());
            }
        }
    }
    None
}

/// True if an index that was recorded later is the whole one, or leads to the same pixels where it ends before.
fn begins(
    whole: &RowIndex,
    other: &RowIndex,
    bytes: &[u8],
    options: Options<'_>,
    full: &Result<Image>,
) -> bool {
    if !whole.extends(other) {
        return whole == other;
    }
    let options = Options { index: Some(other), record: false, ..options };
    differ(&Decoder::new().decode(bytes, &options), full).is_none()
}

/// Packed coefficients decode to the same pixels, whole and in part, on every level; a record that was damaged is
/// refused, or at least decodes without harm.
pub(crate) fn packed(
    bytes: &[u8],
    options: &Options<'_>,
    full: &Result<Image>,
    rng: &mut Rng,
) -> Option<String> {
    if options.tolerant {
        return None;
    }
    let mut decoder = Decoder::new();
    let record = match (decoder.pack(bytes, &options.limits), full) {
        (Ok(record), _) => record,
        (Err(_), Err(_)) => return None,
        (Err(reason), Ok(_)) if reason.kind() == ErrorKind::Limit => return None,
        (Err(reason), Ok(_)) => return Some(format!("packing: {reason}")),
    };
    let packed = match Packed::open(&record) {
        Ok(packed) if packed.matches(bytes) => packed,
        other => return Some(format!("a record does not open: {:?}", other.err())),
    };
    for level in Level::available() {
        let mut decoder = Decoder::with_level(level);
        if decoder.pack(bytes, &options.limits).as_ref() != Ok(&record) {
            return Some(format!("{level:?} packs otherwise"));
        }
        if let Some(what) = differ(&decoder.decode_packed(&packed, options), full) {
            return Some(format!("packed at {level:?}: {what}"));
        }
        if let Ok(full) = full {
            let region = draw(full, rng);
            let part = decoder.decode_packed(&packed, &Options { region: Some(region), ..*options });
            if let Some(what) = differ(&part, &Ok(crop(full, region))) {
                return Some(format!("packed {region:?} at {level:?}: {what}"));
            }
        }
    }
    let mut damaged = record.clone();
    let at = rng.below(damaged.len());
    damaged[at] ^= 1 << rng.below(8);
    if Packed::open(&damaged).is_ok() {
        return Some(format!("a record with byte {at} changed opens"));
    }
    damage(&damaged, options)
}

/// A record that is not verified decodes alike on every level, or is refused, whatever is in it.
pub(crate) fn damage(record: &[u8], options: &Options<'_>) -> Option<String> {
    let packed = Packed::reopen(record).ok()?;
    let expected = Decoder::with_level(Level::Scalar).decode_packed(&packed, options);
    Level::available().skip(1).find_map(|level| {
        let got = Decoder::with_level(level).decode_packed(&packed, options);
        differ(&got, &expected).map(|what| format!("a damaged record at {level:?}: {what}"))
    })
}

fn draw(image: &Image, rng: &mut Rng) -> Region {
    let mut span = |size: usize| {
        let extent = 1 + rng.below(size);
        (rng.below(size - extent + 1), extent)
    };
    let ((left, width), (top, height)) = (span(image.width), span(image.height));
    Region { left, top, width, height }
}

/// That part of an image.
pub(crate) fn crop(image: &Image, region: Region) -> Image {
    let Region { left, top, width, height } = region;
    let row = image.width * image.channels;
    let pixels = image.pixels[top * row..][..height * row]
        .chunks(row)
        .flat_map(|row| &row[left * image.channels..][..width * image.channels])
        .copied()
        .collect();
    Image { width, height, channels: image.channels, pixels }
}

/// Where two results differ.
pub(crate) fn differ(got: &Result<Image>, expected: &Result<Image>) -> Option<String> {
    match (got, expected) {
        (Ok(a), Ok(b)) if (a.width, a.height, a.channels) != (b.width, b.height, b.channels) => {
            Some(format!(
                "{}x{}x{} instead of {}x{}x{}",
                a.width, a.height, a.channels, b.width, b.height, b.channels
            ))
        }
        (Ok(a), Ok(b)) => {
            let mut wrong = (0..b.pixels.len()).filter(|&i| a.pixels.get(i) != b.pixels.get(i));
            let first =
                wrong.next().map(|i| (i / b.channels % b.width, i / b.channels / b.width, i % b.channels));
            first.map(|(x, y, c)| {
                format!("{} values, first at column {x} row {y} channel {c}", wrong.count() + 1)
            })
        }
        (Err(a), Err(b)) => (a != b).then(|| format!("error {a} instead of {b}")),
        (Ok(_), Err(b)) => Some(format!("decodes instead of {b}")),
        (Err(a), Ok(_)) => Some(format!("error {a}")),
    }
}

/// `WIDTHxHEIGHTxCHANNELS CRC` or `error`, as in `golden.txt`.
pub(crate) fn verdict(result: &Result<Image>) -> String {
    match result {
        Ok(image) => {
            format!("{}x{}x{} {:08x}", image.width, image.height, image.channels, crc32(&image.pixels))
        }
        Err(reason) => format!("error: {reason}").replace(['\n', '\t'], " "),
    }
}

/// Options of the comparisons: all channels as stored.
pub(crate) fn native<'a>() -> Options<'a> {
    Options { format: Format::Native, ..Options::default() }
}
