//! What a device finishes equals, bit for bit, what the engine makes by itself: the kernels run on the host.

use std::sync::Arc;

use proptest::{collection::vec, prelude::*, sample::select};
use wellfed::{
    ColumnData, Dataset, LeftImage, Options,
    codec::Mode,
    plan::{Batching, Decoding, OnDevice},
    sample::DType,
    source::{ImageFolder, ImageFolderSpec, Labels},
    store::LocalStore,
    transform::{
        CenterCrop, ColorJitter, ImageDtype, Interpolation, Normalize, Pad, RandomCrop, RandomHorizontalFlip,
        RandomResizedCrop, RandomVerticalFlip, Resize, ToDtype, ToTensor, Transform,
    },
};
use wellfed_cuda::{
    augment::Output,
    finish::{Places, Plan, Shape},
    host::Kernel,
};
use wellfed_kernels::{
    image::{Dtype, Layout},
    points::PointMap,
    unfinished::{Unfinished, kind},
};

/// A folder of images of all kinds that JPEG has, and a PNG; deleted with the value.
struct Photos(std::path::PathBuf);

impl Photos {
    fn new(name: &str) -> Self {
        use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
        let root = std::env::temp_dir().join(format!("wellfed-finish-{name}-{}", std::process::id()));
        let folder = root.join("class");
        std::fs::create_dir_all(&folder).unwrap();
        let samplings = [
            SamplingFactor::R_4_4_4,
            SamplingFactor::R_4_2_0,
            SamplingFactor::R_4_2_2,
            SamplingFactor::R_4_4_0,
            SamplingFactor::R_4_1_1,
        ];
        for (i, sampling) in samplings.into_iter().enumerate() {
            for (width, height) in [(97u16, 130u16), (160, 64), (33, 47), (5, 40)] {
                let wide = usize::from(width);
                // Black and white without losses has the largest coefficients that there are.
                let pixels: Vec<u8> = (0..usize::from(height) * wide * 3)
                    .map(|n| match width {
                        5 => (n.wrapping_mul(0x9E37_79B1) >> 13 & 1) as u8 * 255,
                        _ => ((n / 3 % wide) * 2 + n / (3 * wide) + n % 3 * 40 + n * n % 31) as u8,
                    })
                    .collect();
                let quality = match width {
                    5 => 100,
                    33 => 30,
                    _ => 90,
                };
                let path = folder.join(format!("{i}-{width}.jpg"));
                let mut encoder = Encoder::new_file(path, quality).unwrap();
                encoder.set_sampling_factor(sampling);
                if i % 2 == 1 {
                    encoder.set_restart_interval(3);
                }
                encoder.set_progressive(i == 2 && width == 97);
                // An orientation that exchanges rows and columns.
                if width == 160 {
                    let exif = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0";
                    encoder.add_exif_metadata(exif).unwrap();
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
        let png = std::fs::File::create(folder.join("image.png")).unwrap();
        let mut png = png::Encoder::new(png, 60, 44);
        png.set_color(png::ColorType::Rgb);
        png.write_header().unwrap().write_image_data(&pixels[..60 * 44 * 3]).unwrap();
        Self(root)
    }

    fn dataset(&self) -> Dataset {
        let root = self.0.to_str().unwrap().to_owned();
        let spec = ImageFolderSpec { root, extensions: None, allow_empty: false, labels: Labels::Folders };
        Dataset::new(Arc::new(ImageFolder::open(Arc::new(LocalStore::new()), spec).unwrap()))
    }
}

impl Drop for Photos {
    fn drop(&mut self) {
        // Left behind at worst in the system's folder for temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Finishes a batch of records by the kernels on the host, in `limit` bytes of scratch memory.
fn finish(records: &[u8], offsets: &[i64], left: &LeftImage, limit: u64) -> Vec<u8> {
    // Records begin at multiples of 16, as device memory does.
    let mut memory = vec![0u128; records.len().div_ceil(16)];
    // SAFETY: any bits are numbers, and so many bytes are there.
    let memory = unsafe { std::slice::from_raw_parts_mut(memory.as_mut_ptr().cast::<u8>(), records.len()) };
    memory.copy_from_slice(records);
    let plan = Plan::new(memory, offsets, limit).unwrap();
    let mut scratch = vec![0xAAu8; plan.scratch() as usize + 16];
    let [channels, height, width] = left.size.map(|side| side as i64);
    let element = left.dtype.size();
    let count = offsets.len() - 1;
    let bytes = count * (channels * height * width) as usize * element;
    // Places that are no multiple of what is stored at once, but of an element.
    let shift = records.len() / 16 % 5 * element;
    let mut out = vec![0xEEu8; bytes + 32 + shift];
    let begin = out.as_ptr().align_offset(16) + shift;
    let step = if left.channels_first {
        [channels * height * width, height * width, width, 1]
    } else {
        [channels * height * width, 1, width * channels, channels]
    };
    // Where more follows, bytes come first.
    let between = plan.between(channels as usize);
    let identity: Vec<u32> = (0..4).flat_map(|_| 0..256).collect();
    let mut bytes_between =
        vec![0x77u8; between.map_or(0, |size| count * size.iter().product::<usize>()) + 16];
    let between_at = (bytes_between.as_mut_ptr() as u64).next_multiple_of(16);
    let finished = out[begin..].as_mut_ptr() as u64;
    let places = Places {
        records: memory.as_ptr() as u64,
        offsets: offsets.as_ptr() as u64,
        scratch: (scratch.as_mut_ptr() as u64).next_multiple_of(16),
        table: if between.is_some() { identity.as_ptr() as u64 } else { left.table.as_ptr() as u64 },
        out: if between.is_some() { between_at } else { finished },
    };
    let shape = match between {
        Some([channels, rows, columns]) => {
            let [plane, row] = [rows * columns, columns].map(|n| n as i64);
            Shape { channels: channels as u32, element: 1, step: [channels as i64 * plane, plane, row, 1] }
        }
        None => Shape { channels: channels as u32, element: element as u32, step },
    };
    plan.run(
        places,
        shape,
        |_| unreachable!("nothing is left to nvJPEG"),
        |name, grid, _, args| {
            // SAFETY: everything that the arguments point to is there until the launch is over.
            unsafe { Kernel::find(name).unwrap().launch(args, grid) };
            Ok(())
        },
    )
    .unwrap();
    if between.is_some() {
        let dtype = match left.dtype {
            DType::UInt8 => Dtype::U8,
            DType::Float16 => Dtype::F16,
            DType::BFloat16 => Dtype::Bf16,
            _ => Dtype::F32,
        };
        let map = PointMap::of_bits(dtype, &left.table).unwrap();
        let layout = if left.channels_first { Layout::Chw } else { Layout::Hwc };
        let (height, width) = (height as usize, width as usize);
        let output = Output { address: finished, map: &map, layout, height, width };
        let after = plan.after(between_at, output).unwrap();
        let mut parameters = vec![0u8; after.memory() + 64];
        let at = parameters.as_ptr().align_offset(64);
        parameters[at..at + after.parameters().len()].copy_from_slice(after.parameters());
        let mut scratch = vec![0x55u8; after.scratch() + 64];
        let places =
            (parameters[at..].as_mut_ptr() as u64, (scratch.as_mut_ptr() as u64).next_multiple_of(64));
        for launch in after.launches(places.0, places.1) {
            // SAFETY: as above.
            unsafe { Kernel::find(launch.name).unwrap().launch(&launch.args, launch.grid) };
        }
    }
    assert!(out[..begin].iter().chain(&out[begin + bytes..]).all(|&byte| byte == 0xEE), "beside the images");
    out.drain(begin..begin + bytes).collect()
}

/// Kinds of the records of a batch.
fn kinds(records: &[u8], offsets: &[i64]) -> Vec<u32> {
    let kind = |at: &i64| Unfinished::read(&records[*at as usize..]).unwrap().kind;
    offsets[..offsets.len() - 1].iter().map(kind).collect()
}

/// Offsets of a column.
fn offsets_of(bytes: &[u8], count: usize) -> Vec<i64> {
    let eights = bytes[..8 * (count + 1)].chunks_exact(8);
    eights.map(|eight| i64::from_ne_bytes(eight.try_into().unwrap())).collect()
}

/// All batches of an epoch, finished.
fn batches(data: &Dataset, epochs: usize, limit: u64, share: f64) -> (Vec<Vec<u8>>, bool) {
    let loader = data.loader().unwrap();
    loader.set_device_share(share);
    let left = loader.left_images().swap_remove(0);
    let mut all = Vec::new();
    for _ in 0..epochs {
        for batch in loader.epoch().unwrap() {
            let batch = batch.unwrap();
            let data = &batch.columns[0].data;
            let bytes = data.as_bytes().unwrap();
            all.push(match (data, &left) {
                (ColumnData::Ragged { offsets, .. }, Some(left)) => {
                    finish(bytes, &offsets_of(offsets, batch.len), left, limit)
                }
                _ => bytes.to_vec(),
            });
        }
    }
    (all, left.is_some())
}

fn interpolation() -> impl Strategy<Value = Interpolation> {
    select(vec![
        Interpolation::Nearest,
        Interpolation::Bilinear,
        Interpolation::Bicubic,
        Interpolation::Lanczos,
        Interpolation::TorchBilinear,
        Interpolation::OpenCvLinear,
    ])
}

/// Transforms that end with images of one size.
fn geometry() -> impl Strategy<Value = Vec<Transform>> {
    let side = || 1..60usize;
    prop_oneof![
        (side(), interpolation()).prop_map(|(s, i)| vec![RandomResizedCrop::new(s).interpolation(i).into()]),
        (side(), side(), interpolation())
            .prop_map(|(h, w, i)| vec![Resize::new([h, w]).interpolation(i).into()]),
        (side(), interpolation()).prop_map(|(s, i)| {
            vec![Resize::new(s).interpolation(i).into(), CenterCrop::new([s, s.div_ceil(2)]).into()]
        }),
        side().prop_map(|s| vec![RandomCrop::new([s, s]).pad_if_needed(true).into()]),
        side().prop_map(|s| vec![Pad::new(3).into(), CenterCrop::new(s).into()]),
        (side(), side()).prop_map(|(a, b)| vec![CenterCrop::new(a).into(), Resize::new([b, a]).into()]),
    ]
}

fn transforms() -> impl Strategy<Value = Vec<Transform>> {
    let flips = vec(
        prop_oneof![
            Just(Transform::from(RandomHorizontalFlip::default())),
            Just(Transform::from(RandomVerticalFlip::new(0.5))),
        ],
        0..3,
    );
    let end = prop_oneof![
        Just(vec![]),
        Just(vec![Transform::from(ToTensor::new()), Normalize::new([0.4, 0.5, 0.6], [0.2, 0.3, 0.4]).into()]),
        Just(vec![ToDtype::new(ImageDtype::Float16).scale(true).into()]),
        Just(vec![
            Transform::from(ToDtype::new(ImageDtype::BFloat16).scale(true)),
            Normalize::new(0.5, 0.2).into()
        ]),
    ];
    (geometry(), flips, end, any::<bool>()).prop_map(|(mut all, flips, end, jitter)| {
        if jitter {
            all.push(ColorJitter::new().brightness(0.4).contrast(0.3).into());
        }
        all.extend(flips);
        all.extend(end);
        all
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn devices_finish_what_the_engine_would_have_made(
        transforms in transforms(),
        on_device in select(vec![OnDevice::Resize, OnDevice::Decode, OnDevice::Auto]),
        share in 0.0..1.0,
        layout in select(vec![Batching::Nchw, Batching::Nhwc]),
        decode in select(vec![Decoding::Exact, Decoding::Exact, Decoding::Fast]),
        exif_orientation in any::<bool>(),
        mode in select(vec![Mode::Rgb, Mode::Rgb, Mode::Rgb, Mode::L, Mode::Rgba]),
        cached in any::<bool>(),
        seed in any::<u64>(),
        limit in select(vec![0u64, 100_000, u64::MAX]),
    ) {
        // Colours are jittered of three channels, or of one.
        let jittered = transforms.iter().any(|transform| transform.name() == "ColorJitter");
        prop_assume!(!jittered || mode != Mode::Rgba);
        let photos = Photos::new(&format!("{seed:x}"));
        let data = if cached { photos.dataset().cache(None, None) } else { photos.dataset() };
        let data = data.map(transforms).shuffle(3).batch(5, false);
        let options = Options { layout, decode, exif_orientation, mode, seed: Some(seed), ..Options::default() };
        let plain = match data.with_options(options.clone()).loader() {
            // Three values of Normalize on one channel, say.
            Err(_) => return Ok(()),
            Ok(_) => batches(&data.with_options(options.clone()), 3, limit, 0.0).0,
        };
        let (finished, left) = batches(&data.with_options(Options { on_device, ..options }), 3, limit, share);
        prop_assert!(left);
        prop_assert_eq!(plain.len(), finished.len());
        for (n, (plain, finished)) in plain.iter().zip(&finished).enumerate() {
            prop_assert!(plain == finished, "batch {} differs", n);
        }
    }
}

#[test]
fn once_rows_are_known_the_device_reads_huffman_codes() {
    let photos = Photos::new("kinds");
    let options = Options { on_device: OnDevice::Decode, ..Options::default() };
    let data = photos.dataset().map([Transform::from(RandomResizedCrop::new(20))]).batch(4, false);
    let loader = data.with_options(options).loader().unwrap();
    let mut found = Vec::new();
    for _ in 0..6 {
        let mut epoch = Vec::new();
        for batch in loader.epoch().unwrap() {
            let batch = batch.unwrap();
            let ColumnData::Ragged { offsets, .. } = &batch.columns[0].data else { panic!("no records") };
            epoch.extend(kinds(batch.columns[0].data.as_bytes().unwrap(), &offsets_of(offsets, batch.len)));
        }
        found.push(epoch);
    }
    let count = |epoch: &[u32], kind| epoch.iter().filter(|&&found| found == kind).count();
    assert_eq!(count(&found[0], kind::HUFFMAN), 0);
    // Of 20 photographs 8 have restart markers and one is progressive; pixels are of a PNG and of inks.
    assert!(count(&found[5], kind::HUFFMAN) > 5, "{found:?}");
    assert!(count(&found[5], kind::COEFFICIENTS) >= 9, "{found:?}");
    assert_eq!(count(&found[5], kind::PIXELS), 2, "{found:?}");
}
