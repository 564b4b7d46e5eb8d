//! What every codec of whole images must do: regions equal the full image, what is cut is an error, no bytes crash it.

use super::*;

/// An image of which every format below makes a file: 23 x 17 pixels.
const WIDTH: usize = 23;
const HEIGHT: usize = 17;

fn pixel(x: usize, y: usize, c: usize) -> u8 {
    ((x * 11 + y * 7 * (c + 1) + x * y) % 251) as u8
}

fn pixels(channels: usize) -> Vec<u8> {
    let at = |i: usize| pixel(i / channels % WIDTH, i / channels / WIDTH, i % channels);
    (0..WIDTH * HEIGHT * channels).map(at).collect()
}

/// By libwebp: lossless, or of some quality.
fn webp(channels: usize, quality: Option<f32>) -> Vec<u8> {
    use libwebp_sys as sys;

    let (pixels, mut file) = (pixels(channels), std::ptr::null_mut());
    let (source, width, height) = (pixels.as_ptr(), WIDTH as i32, HEIGHT as i32);
    let stride = (WIDTH * channels) as i32;
    // SAFETY: the encoder reads rows of the image, and its result is copied before it is freed.
    unsafe {
        let length = match (quality, channels) {
            (None, 4) => sys::WebPEncodeLosslessRGBA(source, width, height, stride, &raw mut file),
            (None, _) => sys::WebPEncodeLosslessRGB(source, width, height, stride, &raw mut file),
            (Some(quality), 4) => sys::WebPEncodeRGBA(source, width, height, stride, quality, &raw mut file),
            (Some(quality), _) => sys::WebPEncodeRGB(source, width, height, stride, quality, &raw mut file),
        };
        let bytes = std::slice::from_raw_parts(file, length).to_vec();
        sys::WebPFree(file.cast());
        bytes
    }
}

/// A frame that is smaller than the screen, with a transparent colour or without.
fn gif(transparent: Option<u8>) -> Vec<u8> {
    let palette: Vec<u8> = (0..16 * 3).map(|i| (i * 5 % 251) as u8).collect();
    let mut file = Vec::new();
    let mut encoder = ::gif::Encoder::new(&mut file, WIDTH as u16, HEIGHT as u16, &palette).unwrap();
    let indices: Vec<u8> = (0..(WIDTH - 3) * (HEIGHT - 5)).map(|i| (i * i % 16) as u8).collect();
    let mut frame =
        ::gif::Frame::from_indexed_pixels(WIDTH as u16 - 3, HEIGHT as u16 - 5, indices, transparent);
    (frame.left, frame.top) = (2, 4);
    encoder.write_frame(&frame).unwrap();
    drop(encoder);
    file
}

fn tiff(orientation: u16) -> Vec<u8> {
    let mut file = std::io::Cursor::new(Vec::new());
    let mut encoder = ::tiff::encoder::TiffEncoder::new(&mut file)
        .unwrap()
        .with_compression(::tiff::encoder::Compression::Lzw);
    let mut image =
        encoder.new_image::<::tiff::encoder::colortype::RGB8>(WIDTH as u32, HEIGHT as u32).unwrap();
    image.encoder().write_tag(::tiff::tags::Tag::Orientation, orientation).unwrap();
    image.write_data(&pixels(3)).unwrap();
    file.into_inner()
}

/// Rows from the bottom, blue first, padded to 4 bytes.
fn bmp() -> Vec<u8> {
    let row = (WIDTH * 3).next_multiple_of(4);
    let mut file = b"BM\0\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0".to_vec();
    file.extend([WIDTH as u32, HEIGHT as u32].map(u32::to_le_bytes).as_flattened());
    file.extend(b"\x01\0\x18\0");
    file.resize(54, 0);
    for y in (0..HEIGHT).rev() {
        let start = file.len();
        file.extend((0..WIDTH).flat_map(|x| [2, 1, 0].map(|c| pixel(x, y, c))));
        file.resize(start + row, 0);
    }
    file
}

fn pnm(kind: &str, channels: usize) -> Vec<u8> {
    let mut file = format!("{kind} # {WIDTH}\n{WIDTH} {HEIGHT}\n255\n").into_bytes();
    if kind < "P4" {
        let text: Vec<String> = pixels(channels).iter().map(u8::to_string).collect();
        file.extend(text.join("\n").into_bytes());
    } else {
        file.extend(pixels(channels));
    }
    file
}

fn files() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("webp", webp(3, None)),
        ("webp", webp(4, None)),
        ("webp", webp(3, Some(80.0))),
        ("webp", webp(3, Some(5.0))),
        ("webp", webp(4, Some(50.0))),
        ("gif", gif(None)),
        ("gif", gif(Some(3))),
        ("tiff", tiff(1)),
        ("tiff", tiff(6)),
        ("bmp", bmp()),
        ("pnm", pnm("P2", 1)),
        ("pnm", pnm("P3", 3)),
        ("pnm", pnm("P5", 1)),
        ("pnm", pnm("P6", 3)),
    ]
}

fn decode(bytes: &[u8], mode: Mode, region: Option<Rect>) -> Result<Image> {
    let (mut out, mut scratch) = (Image::new(), Scratch::default());
    let request = Request { mode, region, ..Request::default() };
    decode_image(bytes, &request, &Limits::default(), &mut scratch, &mut out)?;
    Ok(out)
}

#[test]
fn lossless_formats_give_the_pixels_that_were_stored() {
    for file in [webp(3, None), tiff(1), bmp(), pnm("P3", 3), pnm("P6", 3)] {
        assert_eq!(decode(&file, Mode::Rgb, None).unwrap().pixels(), pixels(3));
    }
    // Whoever writes a WebP may change the colours of what nobody sees.
    let (whole, stored) = (decode(&webp(4, None), Mode::Rgba, None).unwrap(), pixels(4));
    let seen = |pixel: &[u8; 4]| if pixel[3] == 0 { [0; 4] } else { *pixel };
    assert!(
        whole.pixels().as_chunks().0.iter().map(seen).eq(stored.as_chunks().0.iter().map(seen)),
        "{whole:?}"
    );
    for file in [pnm("P2", 1), pnm("P5", 1)] {
        assert_eq!(decode(&file, Mode::Unchanged, None).unwrap().pixels(), pixels(1));
    }
    let mut turned = Image::new();
    let (stored, sides) = (pixels(3), (HEIGHT, WIDTH));
    let view = wellfed_kernels::image::View::new(&stored, sides.0, sides.1, 3, 3 * sides.1).unwrap();
    apply_orientation(view, 6, &mut turned).unwrap();
    let upright = decode(&tiff(6), Mode::Rgb, None).unwrap();
    assert_eq!((upright.height(), upright.width()), (WIDTH, HEIGHT));
    assert_eq!(upright.pixels(), turned.pixels());
}

#[test]
fn a_region_is_that_part_of_the_whole_in_every_mode() {
    for (name, file) in files() {
        for mode in [Mode::Rgb, Mode::L, Mode::Rgba, Mode::Unchanged] {
            let whole = decode(&file, mode, None).unwrap();
            assert_eq!(image_header(&file).unwrap().0.name(), name);
            for (top, left, height, width) in [(0, 0, 1, 1), (3, 5, 9, 4), (16, 2, 1, 15), (2, 16, 15, 1)] {
                let region = Rect { top, left, height, width };
                let part = decode(&file, mode, Some(region)).unwrap();
                let expected = whole.view().crop(top, left, height, width).unwrap();
                assert!(
                    (0..height).all(|y| part.view().row(y) == expected.row(y)),
                    "{name} {mode:?} {region:?}"
                );
            }
        }
    }
}

#[test]
fn a_cut_file_is_an_error_and_flipped_bytes_are_no_crash() {
    for (name, file) in files() {
        let whole = decode(&file, Mode::Rgb, None).unwrap();
        for end in 0..file.len() {
            // The end of a GIF and the padding of the last row of a BMP are not pixels; and a number that lost its last
            // digits is a number.
            let text = file.starts_with(b"P2") || file.starts_with(b"P3");
            if let Ok(cut) = decode(&file[..end], Mode::Rgb, None) {
                assert!(
                    (text || cut.pixels() == whole.pixels()) && end + 3 >= file.len(),
                    "{name} cut at {end} of {}",
                    file.len()
                );
            }
        }
        let mut random = 1_u64;
        for _ in 0..1000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let mut damaged = file.clone();
            let at = (random >> 33) as usize % damaged.len();
            damaged[at] ^= 1 << (random >> 60 & 7);
            if let Ok(image) = decode(&damaged, Mode::Rgb, None) {
                assert!(image.height() * image.width() > 0, "{name}");
            }
        }
    }
}

fn png(color: ::png::ColorType, channels: usize) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = ::png::Encoder::new(&mut file, WIDTH as u32, HEIGHT as u32);
    encoder.set_color(color);
    encoder.write_header().unwrap().write_image_data(&pixels(channels)).unwrap();
    file
}

#[test]
fn tensorflow_s_grey_is_the_brightness_of_jpegs_and_its_rgba_is_of_pngs() {
    let mut jpeg = Vec::new();
    wellfed_jpeg::encode(&pixels(3), (HEIGHT, WIDTH, 3), 90, &mut jpeg).unwrap();
    let options = wellfed_jpeg::Options {
        format: wellfed_jpeg::Format::Grey,
        dct: wellfed_jpeg::Dct::Fast,
        ..Default::default()
    };
    let stored = wellfed_jpeg::Decoder::new().decode(&jpeg, &options).unwrap();
    let whole = decode(&jpeg, Mode::TensorFlowL, None).unwrap();
    assert_eq!((whole.channels(), whole.pixels()), (1, &stored.pixels[..]));
    assert_ne!(whole.pixels(), decode(&jpeg, Mode::L, None).unwrap().pixels());
    let region = Rect { top: 3, left: 5, height: 9, width: 4 };
    let part = decode(&jpeg, Mode::TensorFlowL, Some(region)).unwrap();
    let expected = whole.view().crop(3, 5, 9, 4).unwrap();
    assert!((0..9).all(|y| part.view().row(y) == expected.row(y)));

    let grey = png(::png::ColorType::Grayscale, 1);
    assert_eq!(decode(&grey, Mode::TensorFlowL, None).unwrap().pixels(), pixels(1));
    let colours = png(::png::ColorType::Rgb, 3);
    let refused = |file: &[u8], mode| decode(file, mode, None).unwrap_err().message().to_owned();
    assert!(refused(&colours, Mode::TensorFlowL).contains("(3 channels), as grey, is not known"));
    assert!(refused(&jpeg, Mode::TensorFlowRgba).contains("as RGBA, is not known"));
    let opaque = decode(&colours, Mode::TensorFlowRgba, None).unwrap();
    assert_eq!(opaque.pixels(), decode(&colours, Mode::Rgba, None).unwrap().pixels());
    assert_eq!(opaque.channels(), 4);
}

/// Of all modes that a codec writes to where they belong, and those that it refuses.
#[test]
fn pixels_written_in_place_are_those_of_the_bands() {
    let jpeg = |channels: usize| {
        let mut file = Vec::new();
        wellfed_jpeg::encode(&pixels(channels), (HEIGHT, WIDTH, channels), 90, &mut file).unwrap();
        file
    };
    let packed = |jpeg: &[u8]| wellfed_jpeg::Decoder::new().pack(jpeg, &Default::default()).unwrap();
    let modes = [
        (Mode::Rgb, true, true),
        (Mode::Unchanged, true, true),
        (Mode::L, true, false),
        (Mode::Rgba, false, false),
        (Mode::TensorFlow, true, true),
        (Mode::TensorFlowAccurate, true, true),
        (Mode::TensorFlowUnchanged, true, true),
        (Mode::TensorFlowL, true, false),
    ];
    for (file, grey) in [(jpeg(1), true), (jpeg(3), false)] {
        for file in [packed(&file), file] {
            for (mode, of_grey, of_colours) in modes {
                for region in [None, Some(Rect { top: 3, left: 5, height: 9, width: 14 })] {
                    let request = Request { mode, region, ..Request::default() };
                    let (encoded, mut scratch) = (Encoded::open(&file).unwrap(), Scratch::default());
                    let region = encoded.region(&request, &Limits::default()).unwrap();
                    let channels = encoded.channels(mode);
                    let mut expected = Image::new();
                    collect(region, channels, &mut expected, |push| {
                        encoded.decode(&request, &Limits::default(), &mut scratch, push)
                    })
                    .unwrap();
                    let mut found = vec![7; region.height * region.width * channels.1];
                    let wrote =
                        encoded.decode_into(&request, &Limits::default(), &mut scratch, &mut found).unwrap();
                    assert_eq!(wrote, if grey { of_grey } else { of_colours }, "{mode:?}");
                    assert!(!wrote || found == expected.pixels(), "{mode:?} {region:?}");
                }
            }
        }
    }
}
