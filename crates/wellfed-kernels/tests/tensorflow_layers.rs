//! Affine maps and contrast equal TensorFlow bit for bit: hashes of its results, written by
//! `tools/tensorflow_layers_golden.py`.

mod shared;

use shared::{fnv, pixels};
use wellfed_kernels::tensorflow::{Fill, Shape, Warp, affine, contrast};

#[test]
fn every_hash_is_tensorflow_s() {
    let mut checked = [0, 0];
    for line in include_str!("golden/tensorflow_layers.txt").lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split(' ').collect();
        let number = |i: usize| fields[i].parse::<f32>().unwrap();
        let whole = |i: usize| fields[i].parse::<usize>().unwrap();
        let shape = Shape { channels: whole(4), height: whole(5), width: whole(6) };
        let image = pixels(shape.elements());
        if fields[0] == "contrast" {
            let mut floats: Vec<f32> = image.iter().map(|&x| f32::from(x) / 3.0).collect();
            contrast(number(1), [number(2), number(3)], &mut floats, shape);
            assert_eq!(fnv(&floats), fields[7], "{line}");
            checked[1] += 1;
            continue;
        }
        let fill = match fields[2] {
            "reflect" => Fill::Reflect,
            "wrap" => Fill::Wrap,
            "constant" => Fill::Constant,
            "nearest" => Fill::Nearest,
            other => panic!("{other} is not in the script"),
        };
        let matrix = std::array::from_fn(|i| number(7 + i));
        let warp = Warp { matrix, bilinear: fields[1] == "1", fill, value: number(3) };
        let floats: Vec<f32> = image.iter().map(|&x| f32::from(x)).collect();
        let mut found = vec![0.0; shape.elements()];
        affine(&image, shape, &warp, &mut found);
        assert_eq!(fnv(&found), fields[13], "{line}");
        affine(&floats, shape, &warp, &mut found);
        assert_eq!(fnv(&found), fields[13], "{line}");
        checked[0] += 1;
    }
    assert_eq!(checked, [288, 24]);
}
