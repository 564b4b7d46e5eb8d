//! Resizing and colours equal TensorFlow bit for bit: hashes of its results, written by `tools/tensorflow_golden.py` and
//! `tools/tensorflow_colours_golden.py`.

mod shared;

use shared::{fnv, pixels};
use wellfed_kernels::tensorflow::{
    Arithmetic, Kernel, Sample, Shape, adjust_contrast, adjust_hue, adjust_saturation, arithmetic, grayscale,
    resize_area, resize_bicubic, resize_bilinear, resize_kernel, resize_nearest, standardize,
};

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
            resize_bilinear(image, shape, &mut out, size, &[]);
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
        assert_eq!(fnv(&found), fields[7], "{line}");
        assert_eq!(found, resized(fields[0], antialias, &floats, shape, size), "{line}");
        checked += 1;
    }
    assert_eq!(checked, 112);
}

#[test]
fn every_hash_of_colours_is_tensorflow_s() {
    let mut checked = 0;
    for line in include_str!("golden/tensorflow_colours.txt").lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split(' ').collect();
        let parameter: f32 = fields[1].parse().unwrap();
        let [height, width] = [2, 3].map(|i: usize| fields[i].parse::<usize>().unwrap());
        let mut values: Vec<f32> = pixels(3 * height * width).into_iter().map(f32::from).collect();
        arithmetic(Arithmetic::Div, &[7.0], &mut values);
        arithmetic(Arithmetic::Sub, &[11.0], &mut values);
        match fields[0] {
            "contrast" => adjust_contrast(parameter, 3, &mut values, &mut Vec::new()),
            "saturation" => adjust_saturation(parameter, &mut values),
            "hue" => adjust_hue(parameter, &mut values),
            "standardize" => standardize(&mut values),
            "grey" => {
                let mut grey = vec![0.0; height * width];
                grayscale(&values, &mut grey);
                values = grey;
            }
            other => panic!("{other} is not in the script"),
        }
        assert_eq!(fnv(&values), fields[4], "{line}");
        checked += 1;
    }
    assert_eq!(checked, 56);
}

#[test]
fn values_that_are_no_colours_end() {
    let tiny = f32::from_bits(1);
    for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN, tiny, 0.0] {
        for other in [odd, 0.0, 1.0, -tiny] {
            for mut pixel in [[odd, other, 1.0], [other, odd, 0.5], [1.0, other, odd]] {
                adjust_saturation(2.0, &mut pixel);
                adjust_hue(-0.5, &mut pixel);
                adjust_hue(1.0, &mut pixel);
            }
        }
    }
}
