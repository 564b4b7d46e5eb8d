//! Packed coefficients decode to the pixels of their JPEG, whatever it is like; and no record does harm.

mod support;

use std::sync::OnceLock;

use proptest::prelude::*;
use support::{Rng, ways};
use wellfed_jpeg::{
    Decoder, ErrorKind, Format, Image, Level, Limits, Options, Packed, Region, Result, Scale,
};

fn draw(image: &Image, rng: &mut Rng) -> Region {
    let mut span = |size: usize| {
        let extent = 1 + rng.below(size);
        (rng.below(size - extent + 1), extent)
    };
    let ((left, width), (top, height)) = (span(image.width), span(image.height));
    Region { left, top, width, height }
}

/// What differs between decoding a file and its record, with all levels, scales, formats, and regions at random.
fn compare(bytes: &[u8]) -> Option<String> {
    let mut rng = Rng::new(support::crc32(bytes).into());
    let mut decoder = Decoder::new();
    let full = decoder.decode(bytes, &ways::native());
    let record = match (decoder.pack(bytes, &Limits::default()), &full) {
        (Ok(record), Ok(_)) => record,
        (Err(a), Err(b)) if a == *b => return None,
        (packed, _) => return Some(format!("packing gives {:?}", packed.map(|record| record.len()))),
    };
    let packed = match Packed::open(&record) {
        Ok(packed) => packed,
        Err(reason) => return Some(format!("opening the record: {reason}")),
    };
    if !packed.matches(bytes) {
        return Some("a record does not match its own file".into());
    }
    let scales = [Scale::Full, Scale::Full, [Scale::Half, Scale::Quarter, Scale::Eighth][bytes.len() % 3]];
    for (i, scale) in scales.into_iter().enumerate() {
        let format = if i == 1 { Format::Grey } else { Format::Native };
        let options = Options { scale, format, ..Options::default() };
        let whole = decoder.decode(bytes, &options);
        for level in Level::available() {
            let mut decoder = Decoder::with_level(level);
            let what = format!("{level:?} {scale:?} {format:?}");
            if let Some(why) = ways::differ(&decoder.decode_packed(&packed, &options), &whole) {
                return Some(format!("{what}: {why}"));
            }
            let Ok(image) = &whole else { continue };
            for _ in 0..3 {
                let region = draw(image, &mut rng);
                let part = decoder.decode_packed(&packed, &Options { region: Some(region), ..options });
                if let Some(why) = ways::differ(&part, &Ok(ways::crop(image, region))) {
                    return Some(format!("{what} {region:?}: {why}"));
                }
            }
        }
    }
    None
}

#[test]
fn records_of_generated_files_decode_to_their_pixels() {
    let failures: Vec<String> = support::golden()
        .iter()
        .filter_map(|case| compare(&case.bytes()).map(|what| format!("{}: {what}", case.name)))
        .collect();
    let shown = failures[..failures.len().min(20)].join("\n    ");
    assert!(failures.is_empty(), "{} files:\n    {shown}", failures.len());
}

#[test]
fn records_of_photographs_decode_to_their_pixels() {
    let Some(folder) = std::env::var_os("WELLFED_TEST_DATA") else { return };
    let photos = std::fs::read_dir(std::path::Path::new(&folder).join("photos")).expect("a folder of photos");
    for photo in photos {
        let path = photo.expect("a file").path();
        let bytes = std::fs::read(&path).expect("a photograph");
        if let Some(what) = compare(&bytes) {
            panic!("{}: {what}", path.display());
        }
    }
}

/// A colour image with restarts, subsampling and wide values, and its record.
fn sample() -> (Vec<u8>, Vec<u8>) {
    static SAMPLE: OnceLock<(Vec<u8>, Vec<u8>)> = OnceLock::new();
    SAMPLE.get_or_init(make_sample).clone()
}

fn make_sample() -> (Vec<u8>, Vec<u8>) {
    let cases = support::golden();
    let case = cases.iter().find(|case| case.name.starts_with("size-420-67x71")).expect("such a case");
    let bytes = case.bytes();
    let record = Decoder::new().pack(&bytes, &Limits::default()).expect("a valid file");
    (bytes, record)
}

#[test]
fn outputs_of_all_kinds_agree() {
    let (_, record) = sample();
    let packed = Packed::open(&record).expect("a valid record");
    let mut decoder = Decoder::new();
    let image = decoder.decode_packed(&packed, &ways::native()).expect("a valid record");
    let Image { width, height, channels, ref pixels } = image;
    assert_eq!(channels, 3);
    let mut spaced = vec![7; (width * 3 + 5) * height];
    decoder.decode_packed_into(&packed, &ways::native(), &mut spaced, width * 3 + 5).expect("it fits");
    assert!(spaced.chunks(width * 3 + 5).zip(pixels.chunks(width * 3)).all(|(a, b)| a[..width * 3] == *b));
    let mut memory: [Vec<u8>; 4] = std::array::from_fn(|c| vec![0; if c < 3 { width * height } else { 0 }]);
    let planes = memory.each_mut().map(|plane| plane.as_mut_slice());
    decoder.decode_packed_planar(&packed, &ways::native(), planes, width).expect("it fits");
    let mut bands: [Vec<u8>; 3] = Default::default();
    let collect = |rows: wellfed_jpeg::Rows<'_>| {
        for (c, band) in bands.iter_mut().enumerate() {
            rows.plane(c).chunks(rows.stride).for_each(|row| band.extend(&row[..width]));
        }
    };
    decoder.decode_packed_rows(&packed, &ways::native(), collect).expect("a valid record");
    for c in 0..3 {
        assert!(pixels.iter().skip(c).step_by(3).eq(&memory[c]), "plane {c}");
        assert_eq!(bands[c], memory[c], "bands {c}");
    }
}

#[test]
fn headers_come_back() {
    for case in support::golden().iter().filter(|case| case.damage.is_none()).step_by(17) {
        let bytes = case.bytes();
        let Ok(record) = Decoder::new().pack(&bytes, &Limits::default()) else { continue };
        let packed = Packed::open(&record).expect("a valid record");
        let (got, expected) = (packed.header(), wellfed_jpeg::Header::parse(&bytes).expect("a valid file"));
        let parts = |h: &wellfed_jpeg::Header| {
            let components: Vec<_> =
                h.components().iter().map(|c| (c.id, c.horizontal, c.vertical)).collect();
            (h.width, h.height, h.colour, h.process, h.orientation, h.restart_interval, h.adobe, components)
        };
        assert_eq!(parts(got), parts(&expected), "{}", case.name);
    }
}

#[test]
fn cut_and_overwritten_records_are_refused() {
    let (_, record) = sample();
    for length in (0..record.len()).step_by(7) {
        let reason = Packed::open(&record[..length]).expect_err("a part of a record");
        assert!(matches!(reason.kind(), ErrorKind::Truncated | ErrorKind::Corrupt), "{reason}");
    }
    for at in 0..record.len() {
        let mut damaged = record.clone();
        damaged[at] ^= 1 << (at % 8);
        assert!(Packed::open(&damaged).is_err(), "byte {at}");
    }
    let mut later = record.clone();
    later[4] = 2;
    let reason = Packed::open(&later).expect_err("a later version");
    assert_eq!(reason.kind(), ErrorKind::Unsupported);
    let (mut longer, other) = (record.clone(), b"another file");
    longer.push(0);
    assert!(Packed::open(&longer).is_err());
    assert!(!Packed::open(&record).expect("a valid record").matches(other));
}

#[test]
fn limits_hold() {
    let (bytes, record) = sample();
    let packed = Packed::open(&record).expect("a valid record");
    let limits = Limits { max_pixels: 67 * 71 - 1, ..Limits::default() };
    let options = Options { limits, ..Options::default() };
    let reason = Decoder::new().decode_packed(&packed, &options).expect_err("too many pixels");
    assert_eq!(reason.kind(), ErrorKind::Limit);
    assert_eq!(Decoder::new().pack(&bytes, &limits).expect_err("too many pixels").kind(), ErrorKind::Limit);
    let limits = Limits { max_coefficient_bytes: 1000, ..Limits::default() };
    assert_eq!(Decoder::new().pack(&bytes, &limits).expect_err("too much memory").kind(), ErrorKind::Limit);
}

/// Decodes with every level whatever the record is like; all must agree.
fn survive(record: &[u8]) -> std::result::Result<(), TestCaseError> {
    let Ok(packed) = Packed::reopen(record) else { return Ok(()) };
    let limits = Limits { max_pixels: 1 << 20, ..Limits::default() };
    for scale in [Scale::Full, Scale::Quarter] {
        let options = Options { limits, scale, ..Options::default() };
        let decode = |level| -> Result<Image> { Decoder::with_level(level).decode_packed(&packed, &options) };
        let expected = decode(Level::Scalar);
        for level in Level::available() {
            prop_assert_eq!(ways::differ(&decode(level), &expected), None, "{:?}", level);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn records_that_lie_do_no_harm(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        near in any::<bool>(),
    ) {
        let (_, mut record) = sample();
        let length = if near { 1200.min(record.len()) } else { record.len() };
        for (at, value) in changes {
            record[at.index(length)] = value;
        }
        survive(&record)?;
        // The same, with a checksum that is right.
        let (content, checksum) = record.split_at_mut(length.max(8) - 8);
        if checksum.len() == 8 {
            checksum.copy_from_slice(&rapidhash::v3::rapidhash_v3(content).to_le_bytes());
            prop_assert_eq!(Packed::open(&record).is_ok(), Packed::reopen(&record).is_ok());
        }
    }
}
