//! Resizing equals Pillow 13 bit for bit: hashes of Pillow's results, written by `tools/pillow_golden.py`.

use wellfed_kernels::image::{Image, View};
use wellfed_kernels::level::Level;
use wellfed_kernels::resample::{Filter, Resize, Resizer};

/// The same pixels as the script's.
fn pixels(count: usize) -> Vec<u8> {
    let mut state = 1u32;
    let mut next = |i: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let value = (state >> 24) as u8;
        if i.is_multiple_of(3) { (value >> 7) * 255 } else { value }
    };
    (0..count).map(&mut next).collect()
}

fn fnv(data: &[u8]) -> u64 {
    data.iter().fold(0xcbf2_9ce4_8422_2325, |h, byte| (h ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

fn filter(name: &str) -> Filter {
    match name {
        "Nearest" => Filter::Nearest,
        "Box" => Filter::Box,
        "Bilinear" => Filter::Bilinear,
        "Hamming" => Filter::Hamming,
        "Bicubic" => Filter::Bicubic,
        "Lanczos" => Filter::Lanczos,
        _ => panic!("{name} is not in the script"),
    }
}

#[test]
fn every_hash_is_pillow_s() {
    let mut image = Image::new();
    let mut checked = 0;
    for line in include_str!("pillow_golden.txt").lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split(' ').collect();
        let [c, h, w, oh, ow] = [1, 2, 3, 4, 5].map(|i: usize| fields[i].parse::<usize>().unwrap());
        let data = pixels(h * w * c);
        let view = View::new(&data, h, w, c, w * c).unwrap();
        for level in Level::available() {
            let mut resizer = Resizer::with_level(level, 0);
            resizer.resize(view, &Resize::new(oh, ow, filter(fields[0])), &mut image).unwrap();
            assert_eq!(format!("{:016x}", fnv(image.pixels())), fields[6], "{line} at {level:?}");
        }
        checked += 1;
    }
    assert!(checked > 100);
}
