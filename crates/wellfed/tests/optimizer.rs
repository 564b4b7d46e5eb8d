//! Optimized and unoptimized programs give the same bits, over random plans and images.

use std::sync::Arc;

use proptest::{collection::vec, prelude::*, sample::select};
use wellfed::{
    Dataset, Options,
    codec::Mode,
    plan::{Batching, Decoding},
    sample::{DType, Structure},
    source::{ArrayData, ImageFolder, ImageFolderSpec, Labels, Pixels, TensorSlices},
    store::LocalStore,
    transform::{
        AugMix, AutoAugment, CenterCrop, CenterCropOrPad, ColorJitter, ElasticTransform, Erasure, FiveCrop,
        GaussianBlur, GaussianNoise, Grayscale, Identity, ImageDtype, Interpolation, JPEG, Normalize, Pad,
        PaddingMode, RandAugment, RandomAffine, RandomApply, RandomCrop, RandomCropOrPad, RandomEqualize,
        RandomErasing, RandomGrayscale, RandomHorizontalFlip, RandomInvert, RandomPerspective,
        RandomPhotometricDistort, RandomResize, RandomResizedCrop, RandomResizedCropToSequence,
        RandomRotation, RandomShortestSize, RandomVerticalFlip, RandomZoomOut, Resize, ResizeKeepRatio,
        ScaleJitter, TenCrop, TimmAugment, TimmKind, TimmMix, TimmOp, ToDtype, ToTensor, Transform,
        TrimBorder, TrivialAugmentWide,
    },
};

const SAMPLES: usize = 3;

fn side() -> std::ops::Range<usize> {
    1..40
}

fn interpolation() -> impl Strategy<Value = Interpolation> {
    select(vec![
        Interpolation::Nearest,
        Interpolation::NearestExact,
        Interpolation::Bilinear,
        Interpolation::Bicubic,
        Interpolation::Lanczos,
    ])
}

fn padding_mode() -> impl Strategy<Value = PaddingMode> {
    select(vec![PaddingMode::Constant, PaddingMode::Edge, PaddingMode::Reflect, PaddingMode::Symmetric])
}

/// Transforms that work on uint8 images.
fn on_bytes() -> impl Strategy<Value = Transform> {
    prop_oneof![
        (side(), side()).prop_map(|(h, w)| CenterCrop::new([h, w]).into()),
        (side(), side(), 0..5usize, padding_mode()).prop_map(|(h, w, p, mode)| {
            RandomCrop::new([h, w]).padding(p).pad_if_needed(true).fill(7.0).padding_mode(mode).into()
        }),
        (0..5usize, padding_mode()).prop_map(|(p, mode)| Pad::new(p).padding_mode(mode).into()),
        (side(), side(), interpolation()).prop_map(|(h, w, i)| Resize::new([h, w]).interpolation(i).into()),
        (side(), interpolation()).prop_map(|(s, i)| Resize::new(s).interpolation(i).into()),
        (side(), interpolation()).prop_map(|(s, i)| RandomResizedCrop::new(s).interpolation(i).into()),
        (side(), side(), interpolation())
            .prop_map(|(s, more, i)| RandomResize::new(s, s + more).interpolation(i).into()),
        (side(), side()).prop_map(|(a, b)| RandomShortestSize::new([a, b]).max_size(60).into()),
        (side(), interpolation())
            .prop_map(|(s, i)| { ScaleJitter::new(s).scale_range([0.5, 1.5]).interpolation(i).into() }),
        Just(RandomZoomOut::new().side_range([1.0, 2.0]).fill(9.0).into()),
        (side(), side(), 0.0..=1.0).prop_map(|(h, w, longest)| {
            ResizeKeepRatio {
                longest,
                random_scale_prob: 0.5,
                random_aspect_prob: 0.5,
                random_aspect_range: [0.5, 2.0],
                ..ResizeKeepRatio::new([h, w])
            }
            .into()
        }),
        (side(), side(), padding_mode())
            .prop_map(|(h, w, mode)| CenterCropOrPad::new([h, w]).fill(5.0).padding_mode(mode).into()),
        (side(), side(), padding_mode())
            .prop_map(|(h, w, mode)| RandomCropOrPad::new([h, w]).fill(5.0).padding_mode(mode).into()),
        (1..6usize, 1..60usize)
            .prop_map(|(patch, most)| RandomResizedCropToSequence::new(patch, most).into()),
        (0..3usize).prop_map(|border| TrimBorder::new(border).into()),
        Just(RandomHorizontalFlip::default().into()),
        Just(RandomVerticalFlip::new(0.5).into()),
        Just(Identity::new().into()),
        Just(ColorJitter::new().brightness(0.4).contrast(0.4).saturation(0.4).hue(0.1).into()),
        Just(RandomGrayscale::new(0.5).into()),
        Just(Grayscale::new(3).into()),
        Just(RandomRotation::new(30.0).into()),
        Just(RandomAffine::new(30.0).translate([0.2, 0.3]).shear([-9.0, 9.0], None).into()),
        Just(RandomPerspective::new(0.5).p(0.8).into()),
        Just(RandomPhotometricDistort::new().into()),
        Just(RandomEqualize::new().into()),
        Just(RandAugment::new().into()),
        Just(TrivialAugmentWide::new().interpolation(Interpolation::Bilinear).into()),
        Just(AutoAugment::default().into()),
        Just(AugMix::new().into()),
        (any::<bool>(), any::<bool>()).prop_map(|(mixed, blended)| {
            let kinds =
                [TimmKind::Rotate, TimmKind::TranslateYRel, TimmKind::GaussianBlurRand, TimmKind::Color];
            let ops = kinds.map(|kind| vec![TimmOp(kind, 0.7, 9.0)]);
            let mix = mixed.then_some(TimmMix { alpha: 1.0, width: 2, blended });
            TimmAugment { num_layers: 2, magnitude_std: 0.5, mix, ..TimmAugment::new(ops) }.into()
        }),
        side().prop_map(|s| {
            RandomResizedCrop::new(s).interpolation([Interpolation::Bilinear, Interpolation::Bicubic]).into()
        }),
        Just(JPEG::new([10, 90]).into()),
        Just(ElasticTransform::new().sigma([0.3, 0.5]).alpha([9.0, 5.0]).into()),
        Just(GaussianNoise::default().into()),
        Just(RandomApply::new([GaussianBlur::new(3).into(), RandomInvert::new().into()], 0.5).into()),
        Just(GaussianBlur::new(3).into()),
        Just(RandomErasing::new(0.7).into()),
    ]
}

/// Transforms that work on floating point images.
fn on_floats() -> impl Strategy<Value = Transform> {
    prop_oneof![
        Just(Normalize::new(0.5, 0.25).into()),
        Just(GaussianNoise::new(0.1, 0.2).clip(false).into()),
        Just(RandomHorizontalFlip::default().into()),
        Just(RandomVerticalFlip::new(0.5).into()),
        Just(RandomErasing::new(0.7).into()),
        Just(RandomErasing::new(0.7).random().into()),
        Just(RandomErasing::new(0.9).value(Erasure::RandomColor).count([1, 3]).into()),
        (1..9usize, padding_mode()).prop_map(|(s, mode)| RandomCrop::new(s)
            .padding(2)
            .pad_if_needed(true)
            .padding_mode(mode)
            .into()),
        (1..9usize).prop_map(|s| CenterCrop::new(s).into()),
        dtype().prop_map(|dtype| ToDtype::new(dtype).scale(true).into()),
    ]
}

fn dtype() -> impl Strategy<Value = ImageDtype> {
    select(vec![ImageDtype::Float32, ImageDtype::Float16, ImageDtype::BFloat16])
}

fn cast() -> impl Strategy<Value = Transform> {
    prop_oneof![
        Just(ToTensor::new().into()),
        dtype().prop_map(|dtype| ToDtype::new(dtype).scale(true).into()),
        dtype().prop_map(|dtype| ToDtype::new(dtype).into()),
    ]
}

/// Several images of one, with a cast and a normalization on any side of what makes them.
fn several() -> impl Strategy<Value = Vec<Transform>> {
    let crops = prop_oneof![
        (side(), side()).prop_map(|(h, w)| Transform::from(FiveCrop::new([h, w]))),
        (side(), any::<bool>()).prop_map(|(s, flip)| TenCrop::new(s).vertical_flip(flip).into()),
    ];
    let values = proptest::option::of(cast());
    (vec(on_bytes(), 0..3), crops, values, 0..4usize).prop_map(|(mut all, crops, cast, place)| {
        let flip = (place > 1).then(|| RandomHorizontalFlip::default().into());
        let normalize = || Normalize::new(0.5, 0.25).into();
        let mut values: Vec<Transform> =
            cast.map_or(Vec::new(), |cast| [cast].into_iter().chain(flip).chain([normalize()]).collect());
        // Flips come before the crops.
        values.insert(if place > 1 { values.len().saturating_sub(place - 2) } else { 0 }, crops);
        all.append(&mut values);
        all
    })
}

fn transforms() -> impl Strategy<Value = Vec<Transform>> {
    prop_oneof![4 => single(), 1 => several()]
}

fn single() -> impl Strategy<Value = Vec<Transform>> {
    let floats = proptest::option::of((cast(), vec(on_floats(), 0..4)));
    (vec(on_bytes(), 0..5), floats).prop_map(|(mut transforms, floats)| {
        if let Some((cast, floats)) = floats {
            transforms.push(cast);
            transforms.extend(floats);
        }
        transforms
    })
}

fn source(height: usize, width: usize, channels: usize, pixels: Pixels) -> Arc<TensorSlices> {
    let bytes = (0..SAMPLES * height * width * channels).map(|i| (i * i / 7 + i * 3) as u8).collect();
    let shape = match pixels {
        Pixels::Chw => vec![SAMPLES, channels, height, width],
        _ => vec![SAMPLES, height, width, channels],
    };
    let array = ArrayData::from_vec(bytes, DType::UInt8, shape).unwrap();
    Arc::new(TensorSlices::new(vec![("image".into(), array, pixels)], Structure::Field(0)).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn optimizing_changes_no_bit(
        transforms in transforms(),
        (height, width) in (side(), side()),
        channels in select(vec![1usize, 3, 4]),
        pixels in select(vec![Pixels::Hwc, Pixels::Chw]),
        layout in select(vec![Batching::Nchw, Batching::Nhwc]),
        seed in any::<u64>(),
    ) {
        let data = Dataset::new(source(height, width, channels, pixels)).map(transforms);
        let run = |optimize: bool, index: usize| {
            let options = Options { optimize, layout, seed: Some(seed), ..Options::default() };
            data.with_options(options).sample(index as u64, 1)
        };
        for index in 0..SAMPLES {
            match (run(true, index), run(false, index)) {
                (Ok(fast), Ok(plain)) => {
                    prop_assert_eq!(fast.columns[0].data.as_bytes(), plain.columns[0].data.as_bytes());
                }
                (Err(fast), Err(plain)) => prop_assert_eq!(fast.to_string(), plain.to_string()),
                (fast, plain) => prop_assert!(false, "optimized {fast:?}, plain {plain:?}"),
            }
        }
    }
}

#[test]
fn crops_lie_one_behind_the_other() {
    let (height, width, size) = (7usize, 9usize, [4usize, 5usize]);
    let pixels = |index: usize, y: usize, x: usize, c: usize| {
        let i = ((index * height + y) * width + x) * 3 + c;
        (i * i / 7 + i * 3) as u8
    };
    for (layout, vertical) in [(Batching::Nchw, false), (Batching::Nhwc, true)] {
        let ten: Transform = TenCrop::new(size).vertical_flip(vertical).into();
        let options = Options { layout, ..Options::default() };
        let data = Dataset::new(source(height, width, 3, Pixels::Hwc)).map([ten]).with_options(options);
        for index in 0..SAMPLES {
            let batch = data.sample(index as u64, 0).unwrap();
            let found = batch.columns[0].data.as_bytes().unwrap();
            let mut expected = Vec::new();
            for mirrored in [false, true] {
                for (top, left) in [(0, 0), (0, 4), (3, 0), (3, 4), (2, 2)] {
                    let at = |y: usize, x: usize, c: usize| {
                        let (y, x) = (top + y, left + x);
                        match (mirrored, vertical) {
                            (true, false) => pixels(index, y, width - 1 - x, c),
                            (true, true) => pixels(index, height - 1 - y, x, c),
                            _ => pixels(index, y, x, c),
                        }
                    };
                    for i in 0..4 * 5 * 3 {
                        expected.push(match layout {
                            Batching::Nchw => at(i / 5 % 4, i % 5, i / 20),
                            Batching::Nhwc => at(i / 15, i / 3 % 5, i % 3),
                        });
                    }
                }
            }
            assert_eq!(found, expected);
        }
    }
}

#[test]
fn only_values_are_changed_behind_crops() {
    let error = |transforms: Vec<Transform>| {
        let data = Dataset::new(source(9, 9, 3, Pixels::Hwc)).map(transforms);
        data.sample(0, 0).unwrap_err().to_string()
    };
    let five = || Transform::from(FiveCrop::new(4));
    let behind = error(vec![five(), RandomHorizontalFlip::default().into()]);
    assert!(behind.contains("RandomHorizontalFlip comes after FiveCrop, which makes several"), "{behind}");
    assert!(error(vec![five(), TenCrop::new(2).into()]).contains("TenCrop comes after FiveCrop"));
    let between = error(vec![ToTensor::new().into(), CenterCrop::new(8).into(), five()]);
    assert!(between.contains("CenterCrop stands between a cast and FiveCrop"), "{between}");
    assert!(error(vec![RandomApply::new([five()], 0.5).into()]).contains("FiveCrop cannot stand in"));
}

/// A folder of JPEG files of all common chroma samplings, deleted with the value.
struct Photos(std::path::PathBuf);

impl Photos {
    fn source(&self) -> Arc<ImageFolder> {
        let root = self.0.to_str().unwrap().to_owned();
        let spec = ImageFolderSpec { root, extensions: None, allow_empty: false, labels: Labels::Folders };
        Arc::new(ImageFolder::open(Arc::new(LocalStore::new()), spec).unwrap())
    }

    fn new(name: &str) -> Self {
        use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
        let root = std::env::temp_dir().join(format!("wellfed-optimizer-{name}-{}", std::process::id()));
        let folder = root.join("class");
        std::fs::create_dir_all(&folder).unwrap();
        for (i, sampling) in [
            SamplingFactor::R_4_4_4,
            SamplingFactor::R_4_2_0,
            SamplingFactor::R_4_2_2,
            SamplingFactor::R_4_4_0,
        ]
        .into_iter()
        .enumerate()
        {
            for (width, height) in [(97u16, 130u16), (160, 64), (33, 47)] {
                let pixels: Vec<u8> = (0..usize::from(height) * usize::from(width) * 3)
                    .map(|i| {
                        ((i / 3 % usize::from(width)) * 2 + i / (3 * usize::from(width)) + i % 3 * 40) as u8
                    })
                    .collect();
                let mut encoder = Encoder::new_file(folder.join(format!("{i}-{width}.jpg")), 90).unwrap();
                encoder.set_sampling_factor(sampling);
                if i % 2 == 1 {
                    encoder.set_restart_interval(3);
                }
                encoder.set_progressive(i == 2 && width == 97);
                // An orientation that exchanges rows and columns.
                if width == 160 {
                    encoder
                        .add_exif_metadata(b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0")
                        .unwrap();
                }
                encoder.encode(&pixels, width, height, ColorType::Rgb).unwrap();
            }
        }
        let pixels: Vec<u8> = (0..60 * 44 * 4).map(|i| (i / 7 % 256) as u8).collect();
        for (name, color, bytes) in
            [("grey", ColorType::Luma, 60 * 44), ("inks", ColorType::CmykAsYcck, 60 * 44 * 4)]
        {
            let encoder = Encoder::new_file(folder.join(format!("{name}.jpg")), 90).unwrap();
            encoder.encode(&pixels[..bytes], 60, 44, color).unwrap();
        }
        Self(root)
    }
}

impl Drop for Photos {
    fn drop(&mut self) {
        // Left behind at worst in the system's folder for temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn decoding_a_region_changes_no_bit() {
    let photos = Photos::new("region");
    let source = photos.source();
    let cast = || Transform::from(ToDtype::new(ImageDtype::Float32).scale(true));
    for transforms in [
        vec![RandomResizedCrop::new(24).into(), RandomHorizontalFlip::default().into(), cast()],
        vec![Resize::new(40).into(), CenterCrop::new(24).into(), cast(), Normalize::new(0.5, 0.2).into()],
        vec![RandomCrop::new(24).into(), RandomVerticalFlip::new(0.5).into()],
        vec![RandomCrop::new(30).into(), RandomGrayscale::new(0.5).into(), Resize::new([20, 20]).into()],
    ] {
        for (mode, exif_orientation) in
            [(Mode::Rgb, false), (Mode::Rgb, true), (Mode::L, false), (Mode::Rgba, true)]
        {
            let options = Options { mode, exif_orientation, ..Options::default() };
            let data = Dataset::new(source.clone()).map(transforms.clone()).with_options(options.clone());
            // Unoptimized, sizes and colours are the same, but nothing is fused and all of an image is decoded.
            let plain = data.with_options(Options { optimize: false, ..options });
            for index in 0..14 {
                for epoch in 0..4 {
                    let image = |data: &Dataset| match data.sample(index, epoch) {
                        Ok(batch) => Ok(batch.columns[0].data.as_bytes().map(<[u8]>::to_vec)),
                        Err(error) => Err(error.to_string()),
                    };
                    assert!(image(&data) == image(&plain), "{index} {epoch} {mode:?} {exif_orientation}");
                }
            }
        }
    }
}

#[test]
fn fast_decoding_is_asked_for_and_not_far_off() {
    let photos = Photos::new("fast");
    let source = photos.source();
    for transforms in [
        vec![Resize::new([14, 15]).into()],
        vec![RandomResizedCrop::new(5).scale([0.3, 1.0]).into(), RandomHorizontalFlip::default().into()],
        vec![Resize::new(16).into(), CenterCrop::new(11).into(), RandomGrayscale::new(0.5).into()],
    ] {
        for exif_orientation in [false, true] {
            let data = |decode, optimize| {
                let options = Options { decode, optimize, exif_orientation, ..Options::default() };
                Dataset::new(source.clone()).map(transforms.clone()).with_options(options)
            };
            let plain = Options { exif_orientation, ..Options::default() };
            let default = Dataset::new(source.clone()).map(transforms.clone()).with_options(plain);
            let (exact, fast) = (data(Decoding::Exact, true), data(Decoding::Fast, true));
            let unoptimized = data(Decoding::Fast, false);
            let (mut differences, mut count) = (0, 0);
            for (index, epoch) in (0..14).flat_map(|index| [(index, 0), (index, 1)]) {
                let image = |data: &Dataset| {
                    data.sample(index, epoch).unwrap().columns[0].data.as_bytes().unwrap().to_vec()
                };
                let (exact, fast) = (image(&exact), image(&fast));
                assert!(exact == image(&default) && exact == image(&unoptimized));
                assert_eq!(exact.len(), fast.len());
                count += exact.len();
                differences +=
                    exact.iter().zip(&fast).map(|(a, b)| usize::from(a.abs_diff(*b))).sum::<usize>();
            }
            let mean = differences as f64 / count as f64;
            // Small images of steep gradients, and crops that move by up to four of their pixels.
            assert!(mean > 0.0 && mean < 10.0, "{mean}");
        }
    }
}
