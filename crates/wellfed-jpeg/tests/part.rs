//! Decodes that stop before the inverse DCT: what they note, and what they refuse. Their pixels are compared where they
//! are made, in wellfed-cuda.

use wellfed_jpeg::{Dct, Decoder, ErrorKind, Form, Format, Options, Region, RowIndex, Scale};

/// A photograph of noise, in the sampling 4:2:0.
fn jpeg(restart: u16) -> Vec<u8> {
    let (width, height) = (200u16, 160u16);
    let pixels: Vec<u8> = (0..usize::from(width) * usize::from(height) * 3)
        .map(|i| ((i / 7) * (i / 601) % 251) as u8)
        .collect();
    let mut bytes = Vec::new();
    let mut encoder = jpeg_encoder::Encoder::new(&mut bytes, 80);
    encoder.set_sampling_factor(jpeg_encoder::SamplingFactor::F_2_2);
    if restart > 0 {
        encoder.set_restart_interval(restart);
    }
    encoder.encode(&pixels, width, height, jpeg_encoder::ColorType::Rgb).unwrap();
    bytes
}

fn options(index: Option<&RowIndex>) -> Options<'_> {
    let region = Some(Region { left: 40, top: 30, width: 50, height: 20 });
    Options { region, format: Format::Rgb, record: true, index, ..Options::default() }
}

#[test]
fn rows_are_noted_to_the_end_and_then_codes_do() {
    let (bytes, mut decoder, mut out) = (jpeg(0), Decoder::new(), vec![1, 2, 3]);
    assert_eq!(decoder.indexed_part(&bytes, &options(None), &mut out).unwrap(), None);
    assert_eq!(out, [1, 2, 3]);
    let part = decoder.part(&bytes, &options(None), &mut out).unwrap();
    assert_eq!((part.form, out[..3].to_vec()), (Form::Plain, vec![1, 2, 3]));
    let index = decoder.take_index().unwrap();
    assert_eq!(index.rows(), 10);
    // The same as an index of a whole decode.
    decoder.decode(&bytes, &Options { record: true, ..Options::default() }).unwrap();
    assert_eq!(decoder.take_index().unwrap(), index);
    out.clear();
    let part = decoder.indexed_part(&bytes, &options(Some(&index)), &mut out).unwrap().unwrap();
    assert_eq!((part.form, part.scan.codes % 4), (Form::Huffman, 0));
    assert_eq!(part.scan.codes_at + part.scan.codes, out.len());
    assert!(out.len() < bytes.len());
}

#[test]
fn codes_are_not_handed_out_of_other_files_or_with_restart_markers() {
    let (bytes, mut decoder, mut out) = (jpeg(0), Decoder::new(), Vec::new());
    decoder.part(&bytes, &options(None), &mut out).unwrap();
    let index = decoder.take_index().unwrap();
    out.clear();
    let mut other = bytes.clone();
    let last = other.len() - 10;
    other[last] ^= 1;
    assert_eq!(decoder.indexed_part(&other, &options(Some(&index)), &mut out).unwrap(), None);
    let restarts = jpeg(4);
    decoder.part(&restarts, &options(None), &mut out).unwrap();
    let index = decoder.take_index().unwrap();
    out.clear();
    assert_eq!(decoder.indexed_part(&restarts, &options(Some(&index)), &mut out).unwrap(), None);
    assert!(out.is_empty());
}

#[test]
fn what_parts_are_not_made_for_is_refused() {
    let (bytes, mut decoder, mut out) = (jpeg(0), Decoder::new(), Vec::new());
    for wrong in [
        Options { scale: Scale::Half, format: Format::Rgb, ..Options::default() },
        Options { dct: Dct::Fast, format: Format::Rgb, ..Options::default() },
        Options::default(),
    ] {
        assert_eq!(decoder.part(&bytes, &wrong, &mut out).unwrap_err().kind(), ErrorKind::Argument);
    }
    let cut = &bytes[..bytes.len() / 2];
    assert_eq!(decoder.part(cut, &options(None), &mut out).unwrap_err().kind(), ErrorKind::Truncated);
    assert!(out.is_empty());
}
