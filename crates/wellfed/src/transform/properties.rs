//! What must hold for any transform and any size of image.

use proptest::prelude::*;

use super::{testing::read, *};
use crate::rng::Rng;

fn side() -> impl Strategy<Value = usize> {
    prop_oneof![3 => 1usize..40, 2 => 1usize..5000, 1 => Just(0)]
}

fn sizes() -> impl Strategy<Value = Size> {
    (side(), side(), 1usize..=4).prop_map(|(height, width, channels)| Size { height, width, channels })
}

fn range(least: f64, most: f64) -> impl Strategy<Value = [f64; 2]> {
    (least..most, least..most).prop_map(|(a, b)| [a.min(b), a.max(b)])
}

fn fill() -> impl Strategy<Value = PerChannel> {
    prop_oneof![
        (0.0..255.0).prop_map(PerChannel::from),
        any::<[u8; 3]>().prop_map(|rgb| PerChannel::from(rgb.map(f64::from))),
        any::<[u8; 4]>().prop_map(|rgba| PerChannel::from(rgba.map(f64::from))),
    ]
}

fn mode() -> impl Strategy<Value = PaddingMode> {
    prop::sample::select(&[
        PaddingMode::Constant,
        PaddingMode::Edge,
        PaddingMode::Reflect,
        PaddingMode::Symmetric,
    ])
}

fn interpolation() -> impl Strategy<Value = Interpolation> {
    prop::sample::select(&[Interpolation::Nearest, Interpolation::Bilinear, Interpolation::Bicubic])
}

fn opencv() -> impl Strategy<Value = Interpolation> {
    prop::sample::select(&[
        Interpolation::OpenCvNearest,
        Interpolation::OpenCvLinear,
        Interpolation::OpenCvArea,
        Interpolation::OpenCvLinearArea,
    ])
}

fn padding() -> impl Strategy<Value = Padding> {
    prop_oneof![Just(Padding::default()), prop::array::uniform4(0usize..60).prop_map(Padding::from)]
}

fn crops() -> impl Strategy<Value = Transform> {
    let sides = || [1usize..100, 1..100];
    prop_oneof![
        sides().prop_map(|size| CenterCrop::new(size).into()),
        (padding(), fill(), mode())
            .prop_map(|(p, fill, mode)| Pad::new(p).fill(fill).padding_mode(mode).into()),
        (sides(), padding(), any::<bool>(), fill(), mode()).prop_map(|(size, padding, pad, fill, mode)| {
            RandomCrop { size, padding, pad_if_needed: pad, fill, mask_fill: None, padding_mode: mode }.into()
        }),
        (sides(), range(0.0, 1.5), range(0.1, 10.0), interpolation()).prop_map(
            |(size, scale, ratio, filter)| {
                RandomResizedCrop::new(size).scale(scale).ratio(ratio).interpolation(filter).into()
            }
        ),
        (1usize..100, prop::option::of(1usize..100)).prop_map(|(edge, more)| {
            Resize { max_size: more.map(|more| edge + more), ..Resize::new(edge) }.into()
        }),
        (1usize..100).prop_map(|max| Resize::new(ResizeTo::MaxSize).max_size(max).into()),
        sides().prop_map(|size| RandomResizedCrop::new(size)
            .interpolation([Interpolation::Bilinear, Interpolation::Bicubic])
            .into()),
        sides().prop_map(|size| Resize::new(size).into()),
        (sides(), opencv()).prop_map(|(size, filter)| Resize::new(size).interpolation(filter).into()),
        (1usize..100, any::<bool>(), opencv()).prop_map(|(size, longest, interpolation)| MaxSize {
            size,
            longest,
            interpolation
        }
        .into()),
        sides().prop_map(|size| FloorCenterCrop::new(size).into()),
        (sides(), fill(), mode())
            .prop_map(|(size, fill, mode)| CenterCropOrPad::new(size).fill(fill).padding_mode(mode).into()),
        (sides(), fill(), mode())
            .prop_map(|(size, fill, mode)| RandomCropOrPad::new(size).fill(fill).padding_mode(mode).into()),
        (0usize..60).prop_map(|border| TrimBorder::new(border).into()),
        sides().prop_map(|size| FiveCrop::new(size).into()),
        (sides(), any::<bool>()).prop_map(|(size, flip)| TenCrop::new(size).vertical_flip(flip).into()),
        (1usize..100, 1usize..100).prop_map(|(least, more)| RandomResize::new(least, least + more).into()),
        (prop::collection::vec(1usize..100, 1..4), prop::option::of(1usize..200)).prop_map(|(edges, max)| {
            RandomShortestSize { max_size: max, ..RandomShortestSize::new(edges) }.into()
        }),
        (sides(), range(0.1, 3.0)).prop_map(|(size, range)| ScaleJitter::new(size).scale_range(range).into()),
        (range(1.0, 5.0), fill(), 0.0..=1.0).prop_map(|(range, fill, p)| RandomZoomOut::new()
            .side_range(range)
            .fill(fill)
            .p(p)
            .into()),
        (range(0.0, 1.0), range(0.1, 9.0), prop::collection::vec(0.0..1.2, 1..4), 1usize..50).prop_map(
            |([min_scale, max_scale], ratio, sampler_options, trials)| {
                let [min_aspect_ratio, max_aspect_ratio] = ratio;
                let scale = RandomIoUCrop { min_scale, max_scale, ..RandomIoUCrop::new() };
                RandomIoUCrop { min_aspect_ratio, max_aspect_ratio, sampler_options, trials, ..scale }.into()
            }
        ),
    ]
}

/// Those of timm that keep the aspect ratio, and those that look at patches.
fn kept_ratios() -> impl Strategy<Value = Transform> {
    let p = || prop_oneof![Just(0.0), 0.0..=1.0, Just(1.0)];
    let jitter = || (p(), range(0.1, 3.0), any::<bool>(), p(), range(0.1, 9.0));
    let patches = || ([1usize..40, 1..40], 1usize..2000, any::<bool>());
    let keep = ([1usize..100, 1..100], 0.0..=1.0, interpolation(), jitter()).prop_map(
        |(size, longest, filter, (p, scale, area, other, aspect))| ResizeKeepRatio {
            longest,
            interpolation: [filter, Interpolation::Bicubic].into(),
            random_scale_prob: p,
            random_scale_range: scale,
            random_scale_area: area,
            random_aspect_prob: other,
            random_aspect_range: aspect,
            ..ResizeKeepRatio::new(size)
        },
    );
    let sequence = (patches(), 0.0..=1.0, jitter(), prop::option::of(0.1..9.0)).prop_map(
        |((patch, most, divisible_by_patch), longest, (p, scale, area, other, aspect), max_ratio)| {
            ResizeKeepRatioToSequence {
                divisible_by_patch,
                max_ratio,
                longest,
                random_scale_prob: p,
                random_scale_range: scale,
                random_scale_area: area,
                random_aspect_prob: other,
                random_aspect_range: aspect,
                ..ResizeKeepRatioToSequence::new(patch, most)
            }
        },
    );
    let crop = (patches(), range(0.0, 1.5), range(0.1, 9.0), prop::option::of(range(0.0, 1.2)), 0usize..12)
        .prop_map(|((patch, most, divisible_by_patch), scale, ratio, final_scale_range, attempts)| {
            RandomResizedCropToSequence {
                divisible_by_patch,
                scale,
                ratio,
                final_scale_range,
                attempts,
                ..RandomResizedCropToSequence::new(patch, most)
            }
        });
    prop_oneof![
        keep.prop_map(Transform::from),
        sequence.prop_map(Transform::from),
        crop.prop_map(Transform::from),
        (patches(), prop::option::of(0.1..9.0)).prop_map(|((patch, most, divisible_by_patch), max_ratio)| {
            ResizeToSequence { divisible_by_patch, max_ratio, ..ResizeToSequence::new(patch, most) }.into()
        }),
        (patches(), fill(), mode()).prop_map(|((patch, most, divisible_by_patch), fill, padding_mode)| {
            let plain = CenterCropToSequence::new(patch, most);
            CenterCropToSequence { divisible_by_patch, fill, padding_mode, ..plain }.into()
        }),
        (patches(), fill(), mode()).prop_map(|((patch, most, divisible_by_patch), fill, padding_mode)| {
            let plain = RandomCropToSequence::new(patch, most);
            RandomCropToSequence { divisible_by_patch, fill, padding_mode, ..plain }.into()
        }),
    ]
}

fn others() -> impl Strategy<Value = Transform> {
    let p = || 0.0..=1.0;
    let center = prop::option::of([-500.0..5000.0, -500.0..5000.0]);
    prop_oneof![
        p().prop_map(|p| RandomHorizontalFlip::new(p).into()),
        p().prop_map(|p| RandomVerticalFlip::new(p).into()),
        p().prop_map(|p| RandomGrayscale::new(p).into()),
        Just(Grayscale::new(3).into()),
        (range(-720.0, 720.0), interpolation(), any::<bool>(), center, fill()).prop_map(
            |(degrees, interpolation, expand, center, fill)| {
                RandomRotation { degrees, interpolation, expand, center, fill }.into()
            }
        ),
        (prop::option::of(range(0.0, 3.0)), prop::option::of(range(-0.5, 0.5))).prop_map(|(factor, hue)| {
            ColorJitter { brightness: factor, contrast: factor, saturation: None, hue }.into()
        }),
        ([0usize..20, 0..20], range(0.01, 9.0)).prop_map(|(half, sigma)| GaussianBlur::new(
            half.map(|h| 2 * h + 1)
        )
        .sigma(sigma)
        .into()),
        (p(), range(0.0, 1.0), range(0.1, 10.0), fill()).prop_map(|(p, scale, ratio, v)| RandomErasing::new(
            p
        )
        .scale(scale)
        .ratio(ratio)
        .value(v)
        .into()),
        (p(), 0usize..4, 0usize..3).prop_map(|(p, least, more)| RandomErasing::new(p)
            .value(Erasure::RandomColor)
            .count([least.max(1), least.max(1) + more])
            .into()),
        (fill(), 0.001..9.0).prop_map(|(mean, std)| Normalize::new(mean, std).into()),
        (fill(), 0.001..9.0).prop_map(|(mean, std)| NormalizeByReciprocal::new(mean, std).into()),
        (-1.0..1.0, 0.0..2.0, any::<bool>())
            .prop_map(|(mean, sigma, clip)| GaussianNoise::new(mean, sigma).clip(clip).into()),
        (range(0.1, 4.0), opencv(), p()).prop_map(|(scale, interpolation, p)| RandomScale {
            scale,
            interpolation,
            p
        }
        .into()),
        Just(ToDtype::new(ImageDtype::Float16).scale(true).into()),
        Just(ToTensor::new().into()),
        Just(Identity::new().into()),
    ]
}

fn augmentations() -> impl Strategy<Value = Transform> {
    let p = || 0.0..=1.0;
    let share = || prop::option::of([0.0..=1.0, 0.0..=1.0]);
    let shear = prop::option::of((range(-80.0, 80.0), prop::option::of(range(-80.0, 80.0))));
    let center = prop::option::of([-500.0..5000.0, -500.0..5000.0]);
    let policy = prop::sample::select(&[
        AutoAugmentPolicy::ImageNet,
        AutoAugmentPolicy::Cifar10,
        AutoAugmentPolicy::Svhn,
    ]);
    let thresholds = || prop::sample::select(&[Thresholds::V1, Thresholds::V2]);
    prop_oneof![
        (range(-90.0, 90.0), 0.1..9.0, any::<bool>(), prop::option::of(fill())).prop_map(
            |(alpha, sigma, nearest, fill)| {
                let interpolation = if nearest { Interpolation::Nearest } else { Interpolation::Bilinear };
                ElasticTransform { alpha, sigma: [sigma, 1.0], interpolation, fill }.into()
            }
        ),
        (1u8..=100, 0u8..20).prop_map(|(q, more)| JPEG::new([q, (q + more).min(100)]).into()),
        p().prop_map(|p| RandomInvert::new().p(p).into()),
        (range(-1.0, 1.0), range(-1.0, 1.0), any::<bool>()).prop_map(|(brightness, contrast, by_max)| {
            RandomBrightnessContrast::new(brightness, contrast).brightness_by_max(by_max).into()
        }),
        (range(-90.0, 90.0), range(-90.0, 90.0), range(-90.0, 90.0))
            .prop_map(|(hue, saturation, value)| HueSaturationValue::new(hue, saturation, value).into()),
        (range(0.0, 3.0), range(0.0, 3.0), range(-0.5, 0.5))
            .prop_map(|(factor, other, hue)| OpenCvColorJitter::new(factor, other, factor, hue).into()),
        (
            [range(0.1, 4.0), range(0.1, 4.0)],
            prop::option::of([range(-1.0, 1.0), range(-1.0, 1.0)]),
            [range(-80.0, 80.0), range(-80.0, 80.0)],
            (range(-720.0, 720.0), any::<[bool; 4]>(), -9i64..9),
            fill(),
        )
            .prop_map(|(scale, translate_percent, shear, (rotate, flags, way), fill)| {
                let affine = OpenCvAffine {
                    scale,
                    translate_percent,
                    shear,
                    keep_ratio: flags[0],
                    balanced_scale: flags[1],
                    fit: flags[2],
                    translate_px: flags[3].then_some([[-way.abs(), way.abs()], [way, way + 1]]),
                    fill,
                    ..OpenCvAffine::new(rotate)
                };
                affine.into()
            }),
        (1usize..5, 0usize..5, range(0.0, 0.99), range(0.0, 0.99), fill()).prop_map(
            |(least, more, height, width, fill)| {
                CoarseDropout::new([least, least + more], height, width).fill(fill).into()
            }
        ),
        (range(0.0, 60.0), range(0.0, 60.0)).prop_map(|(height, width)| CoarseDropout::new(
            [1, 3],
            [height[0], height[1] + 1.0],
            width
        )
        .into()),
        (1u32..=8, p()).prop_map(|(bits, p)| RandomPosterize::new(bits).p(p).into()),
        (-1.0..300.0, p()).prop_map(|(threshold, p)| RandomSolarize::new(threshold).p(p).into()),
        (0.0..9.0, p()).prop_map(|(factor, p)| RandomAdjustSharpness::new(factor).p(p).into()),
        p().prop_map(|p| RandomAutocontrast::new().p(p).into()),
        p().prop_map(|p| RandomEqualize::new().p(p).into()),
        (
            range(-720.0, 720.0),
            share(),
            prop::option::of(range(0.1, 4.0)),
            shear,
            interpolation(),
            fill(),
            center
        )
            .prop_map(|(degrees, translate, scale, shear, interpolation, fill, center)| {
                let shear = shear.map(|(x, y)| Shear { x, y });
                RandomAffine { degrees, translate, scale, shear, interpolation, fill, center }.into()
            }),
        (0usize..5, 0usize..40, 40usize..99, interpolation(), fill(), thresholds()).prop_map(
            |(num_ops, magnitude, num_magnitude_bins, interpolation, fill, thresholds)| {
                RandAugment { num_ops, magnitude, num_magnitude_bins, interpolation, fill, thresholds }.into()
            }
        ),
        (2usize..99, interpolation(), fill(), thresholds()).prop_map(
            |(num_magnitude_bins, interpolation, fill, thresholds)| {
                TrivialAugmentWide { num_magnitude_bins, interpolation, fill, thresholds }.into()
            }
        ),
        (0.0..=1.0, p(), interpolation(), fill()).prop_map(|(distortion_scale, p, interpolation, fill)| {
            RandomPerspective { distortion_scale, p, interpolation, fill }.into()
        }),
        (range(0.0, 3.0), range(0.0, 3.0), range(-0.5, 0.5), p()).prop_map(
            |(brightness, contrast, hue, p)| {
                RandomPhotometricDistort { brightness, contrast, saturation: contrast, hue, p }.into()
            }
        ),
        (
            (1usize..=10, 1usize..5, -1i64..5, 0.01..9.0, any::<bool>(), any::<bool>()),
            prop::option::of(fill()),
            prop::sample::select(&[Version::V1, Version::V2]),
        )
            .prop_map(
                |((severity, mixture_width, chain_depth, alpha, all_ops, smooth), fill, version)| {
                    let interpolation = if smooth { Interpolation::Bilinear } else { Interpolation::Nearest };
                    AugMix {
                        severity,
                        mixture_width,
                        chain_depth,
                        alpha,
                        all_ops,
                        interpolation,
                        fill,
                        version,
                    }
                    .into()
                }
            ),
        (0i64..5, interpolation(), fill(), prop::option::of((0.01..9.0, 1usize..5, any::<bool>()))).prop_map(
            |(num_layers, filter, fill, mix)| {
                let kinds = [TimmKind::Rotate, TimmKind::TranslateXRel, TimmKind::GaussianBlurRand];
                let policies =
                    kinds.map(|kind| vec![TimmOp(kind, 0.5, 9.0), TimmOp(TimmKind::Color, 1.0, 3.0)]);
                let mix = mix.map(|(alpha, width, blended)| TimmMix { alpha, width, blended });
                let interpolation = [filter, Interpolation::Bicubic].into();
                TimmAugment { num_layers, interpolation, fill, mix, ..TimmAugment::new(policies) }.into()
            }
        ),
        (policy, interpolation(), fill(), thresholds()).prop_map(
            |(policy, interpolation, fill, thresholds)| {
                AutoAugment { policy, interpolation, fill, thresholds }.into()
            }
        ),
    ]
}

/// Transforms that hold others.
fn nests() -> impl Strategy<Value = Transform> {
    let inner = prop_oneof![
        augmentations(),
        Just(Transform::from(Identity::new())),
        Just(Grayscale::new(3).into()),
        (range(-720.0, 720.0), any::<bool>())
            .prop_map(|(degrees, expand)| RandomRotation::new(degrees).expand(expand).into()),
    ];
    prop::collection::vec(inner, 1..4).prop_flat_map(|inner| {
        let weights = prop::option::of(prop::collection::vec(0.1..9.0, inner.len()));
        (Just(inner), 0.0..=1.0, weights, 0..3).prop_map(|(transforms, p, weights, kind)| match kind {
            0 => RandomApply::new(transforms, p).into(),
            1 => RandomOrder::new(transforms).into(),
            _ => RandomChoice { transforms, p: weights }.into(),
        })
    })
}

fn transforms() -> impl Strategy<Value = Transform> {
    prop_oneof![crops(), kept_ratios(), others(), augmentations(), nests()]
}

fn inside(rect: Rect, size: Size) -> bool {
    rect.height >= 1
        && rect.width >= 1
        && rect.top + rect.height <= size.height
        && rect.left + rect.width <= size.width
}

/// Whether an action is one of those that a class stands for.
fn belongs(action: &Action, class: Class) -> bool {
    match action {
        Action::Keep => true,
        Action::Crop(_) | Action::CropAround(_) | Action::PadCrop { .. } => class == Class::Crop,
        Action::Crops(crops) => class == Class::Crops(crops.count()),
        Action::Resize { .. } => class == Class::Resize,
        Action::Flip { .. } => class == Class::Flip,
        Action::Image(_) => class == Class::Image,
        Action::TensorFlow(_) => class == Class::TensorFlow,
        Action::Erase(_) => class == Class::Erase,
        Action::AddNoise(_) => class == Class::Noise,
        Action::Cast { .. } => class == Class::Cast,
        Action::Normalize { .. } => class == Class::Normalize,
        Action::ClampBoxes | Action::ConvertBoxes(_) | Action::SanitizeBoxes { .. } => class == Class::Boxes,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn draws_keep_their_promises(transform in transforms(), size in sizes(), sample: u64) {
        let operation = transform.as_operation();
        operation.check().unwrap();
        let mut rng = Rng::for_stage(1, 2, sample, 3);
        // Of the right and lower part of the image, and one that is larger than it.
        let (w, h) = (size.width as f32, size.height as f32);
        let boxes = [[w / 2.0, h / 2.0, w, h], [-9.0, -9.0, w + 9.0, h + 9.0]];
        let Ok(action) = operation.draw_around(size, &boxes, &mut rng) else { return Ok(()) };
        prop_assert!(belongs(&action, operation.class()), "{action:?}");
        match action {
            Action::Crop(rect) | Action::CropAround(rect) | Action::Resize { crop: rect, .. } => {
                prop_assert!(inside(rect, size), "{action:?}");
            }
            Action::Crops(crops) => {
                let parts: Vec<Rect> = crops.parts(size.height, size.width).map(|(_, rect)| rect).collect();
                prop_assert_eq!(parts.len(), crops.count());
                prop_assert!(parts.into_iter().all(|rect| inside(rect, size)), "{crops:?}");
            }
            Action::Erase(ref patches) => {
                prop_assert!(!patches.is_empty() && patches.iter().all(|p| inside(p.rect, size)), "{action:?}");
            }
            Action::PadCrop { height, width, .. } => prop_assert!(height >= 1 && width >= 1),
            _ => {}
        }
        let (result, shape) = (action.size(size), Shape {
            height: Some(size.height),
            width: Some(size.width),
            channels: size.channels,
        });
        let fixed = operation.fixed_size(shape);
        prop_assert!(fixed.height.is_none_or(|h| h == result.height), "{fixed:?} {action:?}");
        prop_assert!(fixed.width.is_none_or(|w| w == result.width), "{fixed:?} {action:?}");
        prop_assert_eq!(fixed.channels, result.channels);
        // What is promised without knowing the size holds for every size.
        let blind = operation.fixed_size(Shape { height: None, width: None, ..shape });
        prop_assert!(blind.height.is_none_or(|h| h == result.height), "{blind:?} {action:?}");
        prop_assert!(blind.width.is_none_or(|w| w == result.width), "{blind:?} {action:?}");
    }

    #[test]
    fn draws_depend_on_the_sample_alone(transform in transforms(), size in sizes(), sample: u64) {
        let boxes = [[1.0, 2.0, 30.0, 40.0]];
        let draw =
            || transform.as_operation().draw_around(size, &boxes, &mut Rng::for_stage(1, 2, sample, 3)).ok();
        prop_assert_eq!(draw(), draw());
    }

    #[test]
    fn json_keeps_every_bit(transform in transforms()) {
        prop_assert_eq!(&read(&serde_json::to_string(&transform).unwrap()), &transform);
        prop_assert!(transform.to_string().starts_with(transform.name()));
    }

    #[test]
    fn bad_numbers_never_panic(numbers: [f64; 4], ints: [usize; 4], size in sizes()) {
        let (range, sides) = ([numbers[0], numbers[1]], [ints[0], ints[1]]);
        let transforms: [Transform; 26] = [
            ElasticTransform::new().alpha(range).sigma([numbers[2], numbers[3]]).into(),
            GaussianNoise::new(numbers[0], numbers[1]).into(),
            AugMix { severity: ints[0], mixture_width: ints[1], alpha: numbers[0], ..AugMix::new() }.into(),
            RandomPerspective::new(numbers[0]).p(numbers[1]).fill(numbers).into(),
            RandomPhotometricDistort { hue: range, p: numbers[3], ..Default::default() }.into(),
            RandomAffine::new(range).translate(range).scale(range).shear(range, Some(range)).center(range).into(),
            RandAugment::new().num_ops(ints[0]).magnitude(ints[1], ints[2]).into(),
            TrivialAugmentWide::new().num_magnitude_bins(ints[3]).into(),
            RandomSolarize::new(numbers[0]).p(numbers[1]).into(),
            RandomResizedCrop::new(sides).scale(range).ratio([numbers[2], numbers[3]]).into(),
            RandomCrop::new(sides).padding(ints).pad_if_needed(true).into(),
            Pad::new(ints).fill(numbers).into(),
            Resize { max_size: Some(ints[2]), ..Resize::new(ints[0]) }.into(),
            RandomErasing::new(numbers[2]).scale(range).ratio(range).value(numbers).into(),
            RandomRotation::new(range).center([numbers[2], numbers[3]]).expand(true).into(),
            ColorJitter::new().brightness(range).hue(numbers[2]).into(),
            GaussianBlur::new(sides).sigma(range).into(),
            RandomResize::new(ints[0], ints[1]).into(),
            RandomShortestSize { max_size: Some(ints[0]), ..RandomShortestSize::new(ints) }.into(),
            ScaleJitter::new(sides).scale_range(range).into(),
            RandomZoomOut::new().side_range(range).p(numbers[2]).into(),
            TrimBorder::new(ints[0]).into(),
            CenterCropOrPad::new(sides).fill(numbers).into(),
            ResizeToSequence { max_ratio: Some(numbers[0]), ..ResizeToSequence::new(sides, ints[2]) }.into(),
            ResizeKeepRatio {
                longest: numbers[2],
                random_scale_prob: numbers[3],
                random_scale_range: range,
                ..ResizeKeepRatio::new(sides)
            }
            .into(),
            RandomResizedCropToSequence {
                scale: range,
                final_scale_range: Some([numbers[2], numbers[3]]),
                attempts: ints[3],
                ..RandomResizedCropToSequence::new(sides, ints[2])
            }
            .into(),
        ];
        for transform in transforms {
            let operation = transform.as_operation();
            if operation.check().is_ok() && let Ok(action) = operation.draw(size, &mut Rng::for_stage(0, 0, 0, 0)) {
                action.size(size);
            }
        }
    }
}
