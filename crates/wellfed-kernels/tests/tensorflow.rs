//! Resizing equals TensorFlow bit for bit: hashes of its results, written by `tools/tensorflow_golden.py`.

use wellfed_kernels::tensorflow::{
    Kernel, Sample, Shape, resize_area, resize_bicubic, resize_bilinear, resize_kernel, resize_nearest,
};

/// The same pixels as the script's.
fn pixels(count: usize) -> Vec<u8> {
    let mut state = 1u32;
    let mut next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..count).map(&mut next).collect()
}

fn fnv(values: &[f32]) -> u64 {
    let bytes = values.iter().flat_map(|x| x.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |h, byte| (h ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn resized<T: Sample>(
    method: &str,
    antialias: bool,
    image: &[T],
    shape: Shape,
    size: (usize, usize),
) -> Vec<f32> {
    let mut out = vec![0.0; size.0 * size.1 * shape.channels];
    let kernel = match method {
        "bilinear" if antialias => Kernel::Triangle,
        "bicubic" if antialias => Kernel::KeysCubic,
        "bilinear" => {
            resize_bilinear(image, shape, &mut out, size);
            return out;
        }
        "bicubic" => {
            resize_bicubic(image, shape, &mut out, size);
            return out;
        }
        "area" => {
            resize_area(image, shape, &mut out, size);
            return out;
        }
        "nearest" => {
            let floats: Vec<f32> = image.iter().map(|x| x.float()).collect();
            resize_nearest(&floats, shape, &mut out, size);
            return out;
        }
        "lanczos3" => Kernel::Lanczos3,
        "lanczos5" => Kernel::Lanczos5,
        "gaussian" => Kernel::Gaussian,
        "mitchellcubic" => Kernel::MitchellCubic,
        _ => panic!("{method} is not in the script"),
    };
    resize_kernel(kernel, antialias, image, shape, &mut out, size, &mut Vec::new());
    out
}

#[test]
fn every_hash_is_tensorflow_s() {
    let mut checked = 0;
    for line in include_str!("golden/tensorflow.txt").lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split(' ').collect();
        let [channels, height, width, rows, columns] =
            [2, 3, 4, 5, 6].map(|i: usize| fields[i].parse::<usize>().unwrap());
        let shape = Shape { height, width, channels };
        let image = pixels(shape.elements());
        let floats: Vec<f32> = image.iter().map(|&x| f32::from(x)).collect();
        let (antialias, size) = (fields[1] == "1", (rows, columns));
        let found = resized(fields[0], antialias, &image, shape, size);
        assert_eq!(format!("{:016x}", fnv(&found)), fields[7], "{line}");
        assert_eq!(found, resized(fields[0], antialias, &floats, shape, size), "{line}");
        checked += 1;
    }
    assert_eq!(checked, 112);
}
