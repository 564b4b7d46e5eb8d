//! Recipes say the same as the engine does: the same draws, and the same pixels, over random chains of transforms.

use proptest::{collection::vec, prelude::*, sample::select};
use wellfed::{
    ErrorKind,
    engine::Recipes,
    transform::{
        CenterCrop, CenterCropOrPad, CoarseDropout, ColorJitter, ElasticTransform, Erasure, FiveCrop,
        Grayscale, Identity, ImageDtype, Interpolation, Normalize, Pad, PaddingMode, RandomApply,
        RandomAutocontrast, RandomCrop, RandomEqualize, RandomErasing, RandomGrayscale, RandomHorizontalFlip,
        RandomInvert, RandomPhotometricDistort, RandomPosterize, RandomResizedCrop, RandomSolarize,
        RandomVerticalFlip, Resize, Size, ToDtype, ToTensor, Transform,
    },
};
use wellfed_kernels::image::{Layout, View};

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
        Interpolation::OpenCvNearest,
        Interpolation::TorchBilinear,
        Interpolation::TorchBicubic,
    ])
}

fn padding_mode() -> impl Strategy<Value = PaddingMode> {
    select(vec![PaddingMode::Constant, PaddingMode::Edge, PaddingMode::Reflect, PaddingMode::Symmetric])
}

/// Transforms of 8-bit images.
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
        (side(), side(), padding_mode())
            .prop_map(|(h, w, mode)| CenterCropOrPad::new([h, w]).fill(5.0).padding_mode(mode).into()),
        Just(RandomHorizontalFlip::default().into()),
        Just(RandomVerticalFlip::new(0.5).into()),
        Just(Identity::new().into()),
        Just(ColorJitter::new().brightness(0.4).contrast(0.4).saturation(0.4).hue(0.1).into()),
        Just(RandomGrayscale::new(0.5).into()),
        Just(Grayscale::new(3).into()),
        Just(RandomPhotometricDistort::new().into()),
        Just(RandomEqualize::new().into()),
        Just(RandomAutocontrast::new().into()),
        Just(RandomPosterize::new(3).into()),
        Just(RandomSolarize::new(100.5).into()),
        Just(CoarseDropout::new([1, 3], [0.1, 0.5], [0.1, 0.5]).into()),
        Just(RandomApply::new([RandomInvert::new().into(), Grayscale::new(3).into()], 0.5).into()),
        Just(RandomErasing::new(0.7).value(200.0).into()),
    ]
}

/// What may follow a cast: flips and normalization, then erasing.
fn tail() -> impl Strategy<Value = Vec<Transform>> {
    let dtype = select(vec![ImageDtype::Float32, ImageDtype::Float16, ImageDtype::BFloat16]);
    let cast = prop_oneof![
        Just(ToTensor::new().into()),
        (dtype, any::<bool>()).prop_map(|(dtype, scale)| Transform::from(ToDtype::new(dtype).scale(scale))),
    ];
    let floats = prop_oneof![
        Just(Transform::from(Normalize::new(0.5, 0.25))),
        Just(RandomHorizontalFlip::default().into()),
        Just(RandomVerticalFlip::new(0.5).into()),
    ];
    let erase = prop_oneof![
        Just(Transform::from(RandomErasing::new(0.7))),
        Just(RandomErasing::new(0.7).random().into()),
        Just(RandomErasing::new(0.9).value(Erasure::RandomColor).count([1, 3]).into()),
    ];
    let all = (cast, vec(floats, 0..3), vec(erase, 0..2));
    prop_oneof![Just(Vec::new()), all.prop_map(|(cast, floats, erase)| [vec![cast], floats, erase].concat())]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn recipes_make_what_the_engine_makes(
        chain in vec(on_bytes(), 0..6),
        tail in tail(),
        (height, width, channels) in (side(), side(), select(vec![1usize, 3])),
        seed in any::<u64>(),
        hwc in any::<bool>(),
    ) {
        let layout = if hwc { Layout::Hwc } else { Layout::Chw };
        let transforms = [chain, tail].concat();
        let input = Size { height, width, channels };
        // Chains without a meaning, such as crops that are too large, are none here either.
        let Ok(recipes) = Recipes::new(transforms, input, layout, seed) else { return Ok(()) };
        let plane = height * width;
        let planar: Vec<u8> = (0..plane * channels)
            .map(|i| (i as u64).wrapping_mul(seed | 1).wrapping_add(seed >> 7).to_le_bytes()[3])
            .collect();
        let packed: Vec<u8> =
            (0..plane * channels).map(|i| planar[i % channels * plane + i / channels]).collect();
        let view = View::new(&packed, height, width, channels, width * channels).unwrap();
        let Size { height, width, channels } = recipes.output();
        for index in 0..3 {
            let bytes = height * width * channels * recipes.map().dtype().size();
            let (mut expected, mut found) = (vec![0; bytes], vec![1; bytes]);
            let drawn = recipes.draw(2, index);
            let made = recipes.run(&planar, 2, index, &mut expected);
            let (Ok(recipe), Ok(())) = (&drawn, &made) else {
                prop_assert!(drawn.is_err() && made.is_err(), "{:?} and {:?}", drawn, made);
                continue;
            };
            if recipe.size() != (height, width) || recipe.channels(input.channels) != channels {
                continue;
            }
            recipe.run(view, recipes.map(), layout, &mut found).unwrap();
            prop_assert_eq!(&expected, &found, "{:?}", recipe);
        }
    }
}

const INPUT: Size = Size { height: 40, width: 30, channels: 3 };

fn refused(transforms: impl IntoIterator<Item = Transform>) -> (Option<&'static str>, String) {
    let made = Recipes::new(transforms, INPUT, Layout::Chw, 0);
    let error = made.and_then(|recipes| recipes.draw(0, 0)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.hint().is_some(), "{error}");
    (error.stage(), error.message().to_owned())
}

#[test]
fn what_has_no_kernel_is_refused_by_name() {
    let elastic = refused([ElasticTransform::new().into()]);
    assert_eq!(
        elastic,
        (Some("ElasticTransform"), "ElasticTransform does not run on a device yet".to_owned())
    );
    assert_eq!(refused([FiveCrop::new(8).into()]).0, Some("FiveCrop"));
    let padded = refused([ToTensor::new().into(), Pad::new(2).into()]);
    assert_eq!(padded, (Some("Pad"), "Pad does not run on a device where it stands".to_owned()));
    let area = refused([Resize::new(8).interpolation(Interpolation::OpenCvArea).into()]);
    assert_eq!(area.1, "Resize does not run on a device with interpolation opencv-area");
    assert_eq!(refused([Normalize::new(0.5, 0.5).into()]).0, Some("Normalize"));
    let four = Size { channels: 4, ..INPUT };
    assert_eq!(
        Recipes::new([], four, Layout::Chw, 0).unwrap_err().message(),
        "images have 4 channels; must be 1 or 3"
    );
}

#[test]
fn flips_and_crops_join_what_comes_before_colours() {
    let chain: [Transform; 4] = [
        RandomResizedCrop::new(24).into(),
        ColorJitter::new().brightness(0.4).hue(0.1).into(),
        RandomHorizontalFlip::new(1.0).into(),
        CenterCrop::new(20).into(),
    ];
    let recipe = Recipes::new(chain, INPUT, Layout::Chw, 3).unwrap().draw(0, 5).unwrap();
    assert_eq!((recipe.stages.len(), recipe.size()), (1, (20, 20)));
    // A mean depends on what is cut off.
    let chain: [Transform; 2] = [ColorJitter::new().contrast(0.4).into(), CenterCrop::new(20).into()];
    let recipe = Recipes::new(chain, INPUT, Layout::Chw, 3).unwrap().draw(0, 5).unwrap();
    assert_eq!(recipe.stages.len(), 2);
}
