//! The suite that every codec passes, and Pillow's pixels for the files in `images/` (made by `make.py` there).

use std::{collections::BTreeMap, fs, path::Path};

use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use proptest::prelude::*;
use wellfed::{
    ErrorKind, Limits, Result,
    codec::{Header, Mode, Rect, Request, Scratch, decode_image, detect, image_header},
};
use wellfed_kernels::image::Image;

const MODES: [Mode; 4] = [Mode::Rgb, Mode::L, Mode::Rgba, Mode::Unchanged];

fn images() -> BTreeMap<String, Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/images");
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name.ends_with(".jpg") || name.ends_with(".png") {
            found.insert(name, fs::read(path).unwrap());
        }
    }
    found
}

fn request(mode: Mode, region: Option<Rect>, apply_orientation: bool) -> Request {
    Request { mode, region, apply_orientation, ..Request::default() }
}

fn decode(bytes: &[u8], mode: Mode, region: Option<Rect>, orient: bool) -> Result<(Header, Image)> {
    let mut out = Image::new();
    let request = request(mode, region, orient);
    let header = decode_image(bytes, &request, &Limits::default(), &mut Scratch::default(), &mut out)?;
    Ok((header, out))
}

fn full(bytes: &[u8], mode: Mode) -> Image {
    decode(bytes, mode, None, false).unwrap().1
}

/// A photo-like image: gradients with some noise.
fn encode(
    width: u16,
    height: u16,
    color: ColorType,
    sampling: SamplingFactor,
    restart: u16,
    progressive: bool,
) -> Vec<u8> {
    let channels = match color {
        ColorType::Luma => 1,
        ColorType::Rgb => 3,
        _ => 4,
    };
    let (mut pixels, mut state) = (Vec::new(), 1u32);
    for y in 0..u32::from(height) {
        for x in 0..u32::from(width) {
            for c in 0..channels {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                pixels.push((x * (5 + c) + y * (7 - c) + (state >> 28) * 3) as u8);
            }
        }
    }
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, 85);
    encoder.set_sampling_factor(sampling);
    encoder.set_restart_interval(restart);
    encoder.set_progressive(progressive);
    encoder.encode(&pixels, width, height, color).unwrap();
    bytes
}

const SAMPLINGS: [SamplingFactor; 8] = [
    SamplingFactor::F_1_1,
    SamplingFactor::F_2_1,
    SamplingFactor::F_1_2,
    SamplingFactor::F_2_2,
    SamplingFactor::F_4_1,
    SamplingFactor::F_4_2,
    SamplingFactor::F_1_4,
    SamplingFactor::F_2_4,
];

#[test]
fn pngs_are_pillows_to_the_bit() {
    let images = images();
    let expected = include_str!("images/expected.txt");
    assert!(expected.lines().count() >= 100);
    for line in expected.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let [name, mode, height, width, crc] = fields[..] else { panic!("{line}") };
        let mode = match mode {
            "RGB" => Mode::Rgb,
            "L" => Mode::L,
            _ => Mode::Rgba,
        };
        let image = full(&images[name], mode);
        assert_eq!((image.height().to_string(), image.width().to_string()), (height.into(), width.into()));
        assert_eq!(format!("{:08x}", crc32fast::hash(image.pixels())), crc, "{line}");
    }
}

#[test]
fn jpegs_are_pillows_to_the_bit() {
    let images = images();
    let mut seen = 0;
    for (name, bytes) in images.iter().filter(|(name, _)| name.ends_with(".jpg")) {
        let expected = &images[&format!("{name}.png")];
        for mode in [Mode::Rgb, Mode::L, Mode::Rgba] {
            assert!(full(bytes, mode) == full(expected, mode), "{name} in {mode:?}");
        }
        seen += 1;
    }
    assert!(seen >= 18, "{seen} JPEGs");
}

#[test]
fn the_header_agrees_with_the_decode() {
    for (name, bytes) in images() {
        let (codec, header) = image_header(&bytes).unwrap();
        assert_eq!(codec.name() == "jpeg", name.ends_with(".jpg"), "{name}");
        for mode in MODES {
            for orient in [false, true] {
                let (again, image) = decode(&bytes, mode, None, orient).unwrap();
                assert_eq!(again, header);
                assert_eq!((image.height(), image.width()), header.size(orient), "{name}");
                assert_eq!(image.channels(), mode.channels(header.channels), "{name} {mode:?}");
            }
        }
    }
}

fn check_region(bytes: &[u8], mode: Mode, orient: bool, whole: &Image, rect: Rect) {
    let (_, part) = decode(bytes, mode, Some(rect), orient).unwrap();
    let mut expected = Image::new();
    expected.copy_from(whole.view().crop(rect.top, rect.left, rect.height, rect.width).unwrap()).unwrap();
    assert!(part == expected, "{rect:?}");
}

#[test]
fn a_region_is_a_crop_of_the_whole_in_every_file() {
    for (name, bytes) in images() {
        for (mode, orient) in
            [(Mode::Rgb, false), (Mode::Rgb, true), (Mode::L, false), (Mode::Unchanged, true)]
        {
            let whole = decode(&bytes, mode, None, orient).unwrap().1;
            for top in (0..whole.height()).step_by(3) {
                for height in 1..=whole.height() - top {
                    let left = (top * 5 + height) % whole.width();
                    let width = (whole.width() - left).div_ceil(1 + height % 3);
                    let rect = Rect { top, left, height, width };
                    check_region(&bytes, mode, orient, &whole, rect);
                }
            }
        }
        for (top, height) in [(0, 0), (0, 1000), (1000, 1), (usize::MAX, 2)] {
            let rect = Rect { top, left: 0, height, width: 1 };
            let e = decode(&bytes, Mode::Rgb, Some(rect), false).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Config, "{name}: {e}");
        }
    }
}

#[test]
fn every_row_count_of_every_sampling_is_a_crop_of_the_whole() {
    for sampling in SAMPLINGS {
        for (width, height) in [(1, 1), (17, 49), (48, 64), (50, 33), (70, 81)] {
            for restart in [0, 1, 3] {
                for color in [ColorType::Rgb, ColorType::Luma, ColorType::Cmyk, ColorType::CmykAsYcck] {
                    let bytes = encode(width, height, color, sampling, restart, false);
                    let whole = full(&bytes, Mode::Rgb);
                    for height in 1..=usize::from(height) {
                        let rect = Rect { top: 0, left: 0, height, width: usize::from(width) };
                        check_region(&bytes, Mode::Rgb, false, &whole, rect);
                    }
                }
            }
        }
    }
}

#[test]
fn a_cut_file_is_an_error_wherever_it_was_cut_and_whatever_is_wanted() {
    for (name, bytes) in images() {
        let (_, header) = image_header(&bytes).unwrap();
        let first = Rect { top: 0, left: 0, height: 1, width: header.width };
        for end in 0..bytes.len() {
            for region in [None, Some(first)] {
                let e = match decode(&bytes[..end], Mode::Rgb, region, false) {
                    Err(e) => e,
                    Ok(_) => panic!("{name} cut at {end} of {} was accepted", bytes.len()),
                };
                assert!(matches!(e.kind(), ErrorKind::Corrupt), "{name} cut at {end}: {e}");
            }
        }
        let longer = [&bytes[..], b"\0trailing bytes\xFF\xD8"].concat();
        assert_eq!(full(&longer, Mode::Rgb), full(&bytes, Mode::Rgb), "{name}");
    }
}

/// Decodes damaged bytes with memory that held another image: an error, or pixels that depend on the bytes only.
fn survive(bytes: &[u8], scratch: &mut Scratch, out: &mut Image) {
    let limits = Limits { max_pixels: 1 << 16, ..Limits::default() };
    for mode in [Mode::Rgb, Mode::L] {
        let all = request(mode, None, false);
        let Ok(header) = decode_image(bytes, &all, &limits, scratch, out) else { continue };
        assert!(header.height * header.width <= 1 << 16);
        let mut fresh = Image::new();
        decode_image(bytes, &all, &limits, &mut Scratch::default(), &mut fresh).unwrap();
        assert_eq!(*out, fresh, "memory of an earlier image shows");
        let rect = Rect { top: 0, left: 0, height: header.height.div_ceil(2), width: header.width };
        if decode_image(bytes, &request(mode, Some(rect), false), &limits, scratch, out).is_ok() {
            let found = out.view().crop(0, 0, rect.height, rect.width).unwrap();
            for y in 0..rect.height {
                assert_eq!(found.row(y), fresh.view().row(y), "row {y} of a region of a damaged file");
            }
        }
    }
}

#[test]
fn a_flipped_byte_anywhere_is_survived() {
    let (mut scratch, mut out) = (Scratch::default(), Image::new());
    for (name, bytes) in images().iter().filter(|(name, _)| !name.contains(".jpg.png")) {
        let step = if name.ends_with(".png") { 3 } else { 1 };
        for at in (0..bytes.len()).step_by(step) {
            for value in [bytes[at] ^ 1, bytes[at] ^ 0x80, 0xFF, 0] {
                let mut damaged = bytes.clone();
                damaged[at] = value;
                survive(&damaged, &mut scratch, &mut out);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn random_damage_is_survived(
        choice in any::<prop::sample::Index>(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        cut in prop::option::of(any::<prop::sample::Index>()),
        doubled in prop::option::of((any::<prop::sample::Index>(), any::<prop::sample::Index>())),
        close in any::<bool>(),
    ) {
        let images = images();
        let mut bytes = choice.get(&images.values().collect::<Vec<_>>()).to_vec();
        for (at, value) in edits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some((from, to)) = doubled {
            let (from, to) = (from.index(bytes.len()), to.index(bytes.len()));
            let piece = bytes[from.min(to)..from.max(to)].to_vec();
            bytes.splice(from..from, piece);
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if close {
            bytes.extend_from_slice(&[0xFF, 0xD9]);
        }
        survive(&bytes, &mut Scratch::default(), &mut Image::new());
    }
}

#[test]
fn memory_that_is_reused_shows_nothing_of_earlier_images() {
    let (mut scratch, mut out) = (Scratch::default(), Image::new());
    let images = images();
    for (name, bytes) in images.iter().chain(images.iter().rev()) {
        for mode in MODES {
            let limits = Limits::default();
            decode_image(bytes, &request(mode, None, true), &limits, &mut scratch, &mut out).unwrap();
            assert_eq!(out, decode(bytes, mode, None, true).unwrap().1, "{name}");
        }
    }
    assert!(scratch.capacity() < 1 << 20);
}

#[test]
fn too_many_pixels_are_refused_before_memory_is_taken() {
    let limits = Limits::default();
    let mut jpeg = encode(8, 8, ColorType::Rgb, SamplingFactor::F_1_1, 0, false);
    let frame = jpeg.windows(2).position(|w| w == [0xFF, 0xC0]).unwrap();
    jpeg[frame + 5..frame + 9].copy_from_slice(&[0xFF, 0, 0xFF, 0]);
    let mut png = images()["rgb8.png"].clone();
    png[16..24].copy_from_slice(&[0, 1, 0, 0, 0, 1, 0, 0]);
    let crc = crc32fast::hash(&png[12..29]).to_be_bytes();
    png[29..33].copy_from_slice(&crc);
    for bytes in [&jpeg, &png] {
        let (mut scratch, mut out) = (Scratch::default(), Image::new());
        let before = scratch.capacity();
        let region = Some(Rect { top: 0, left: 0, height: 1, width: 1 });
        for region in [None, region] {
            let request = request(Mode::Rgb, region, false);
            let e = decode_image(bytes, &request, &limits, &mut scratch, &mut out).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Limit, "{e}");
            assert_eq!((scratch.capacity(), out.capacity()), (before, 0));
        }
    }
}

#[test]
fn the_content_decides_and_the_unknown_is_named() {
    let images = images();
    assert_eq!(detect(&images["rgb8.png"]).unwrap().name(), "png");
    assert_eq!(detect(&images["444.jpg"]).unwrap().name(), "jpeg");
    let e = image_header(b"RIFF\x24\0\0\0WEBPVP8 ").unwrap_err();
    assert_eq!((e.kind(), e.message().contains("WebP ends")), (ErrorKind::Corrupt, true));
    let e = image_header(b"\0\0\0\x1cftypavif").unwrap_err();
    assert_eq!((e.kind(), e.message().contains("AVIF")), (ErrorKind::Unsupported, true));
    assert!(image_header(b"").unwrap_err().message().contains("empty"));
}

#[test]
fn orientation_turns_pixels_and_header() {
    let images = images();
    let upright = full(&images["444.jpg"], Mode::Rgb);
    let (header, turned) = decode(&images["orientation_6.jpg"], Mode::Rgb, None, true).unwrap();
    assert_eq!((header.orientation, header.size(true)), (6, (upright.width(), upright.height())));
    assert_eq!((turned.height(), turned.width()), (upright.width(), upright.height()));
    assert_eq!(image_header(&images["orientation_3.jpg"]).unwrap().1.orientation, 3);
    assert_eq!(image_header(&images["exif.png"]).unwrap().1.orientation, 6);
}
