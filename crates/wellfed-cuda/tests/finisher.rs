//! [`Finisher`]: the engine's bits, on the host and against a driver that fakes a device, and memory that is used again only
//! when it may be.
#![cfg(unix)]

mod common;

use std::sync::Arc;

use common::Fake;
use jpeg_encoder::{ColorType, Encoder};
use wellfed::{
    Batch, ColumnData, Dataset, LeftImage, Options,
    plan::{Batching, OnDevice},
    source::{ImageFolder, ImageFolderSpec, Labels},
    store::LocalStore,
    transform::{GaussianBlur, ImageDtype, RandomResizedCrop, Resize, ToDtype, Transform},
};
use wellfed_cuda::{
    Error, Result,
    device::Device,
    finish::Decoded,
    finisher::{Finished, Finisher, Form},
    mix::Blend,
    place::Place,
    stream::Stream,
};
use wellfed_kernels::image::{Dtype, Layout};

/// A folder of JPEGs; deleted with the value.
struct Photos(std::path::PathBuf);

impl Photos {
    fn new(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("wellfed-finisher-{name}-{}", std::process::id()));
        let folder = root.join("class");
        std::fs::create_dir_all(&folder).unwrap();
        for (n, (width, height)) in
            [(97u16, 70u16), (60, 64), (33, 47), (50, 40), (64, 64)].iter().enumerate()
        {
            let bytes = usize::from(*width) * usize::from(*height) * 3;
            let pixels: Vec<u8> = (0..bytes).map(|i| (i / 5 + i * i % 31 + n * 40) as u8).collect();
            let encoder = Encoder::new_file(folder.join(format!("{n}.jpg")), 85).unwrap();
            encoder.encode(&pixels, *width, *height, ColorType::Rgb).unwrap();
        }
        Self(root)
    }

    fn dataset(&self, transforms: Vec<Transform>, layout: Batching) -> Dataset {
        let root = self.0.to_str().unwrap().to_owned();
        let spec = ImageFolderSpec { root, extensions: None, allow_empty: false, labels: Labels::Folders };
        let source = Arc::new(ImageFolder::open(Arc::new(LocalStore::new()), spec).unwrap());
        let options = Options { layout, seed: Some(3), ..Options::default() };
        Dataset::new(source).map(transforms).batch(2, false).with_options(options)
    }
}

impl Drop for Photos {
    fn drop(&mut self) {
        // Left behind at worst in the system's folder for temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The batches of an epoch, as the engine makes them.
fn plain(data: &Dataset) -> Vec<Vec<u8>> {
    let loader = data.loader().unwrap();
    loader.epoch().unwrap().map(|batch| batch.unwrap().columns[0].data.as_bytes().unwrap().to_vec()).collect()
}

/// The batches of an epoch, left to a device.
fn left(data: &Dataset) -> (Vec<Batch>, LeftImage) {
    let options = Options { on_device: OnDevice::Decode, ..data.options().clone() };
    let loader = data.with_options(options).loader().unwrap();
    let left = loader.left_images().swap_remove(0).unwrap();
    (loader.epoch().unwrap().map(|batch| batch.unwrap()).collect(), left)
}

fn finisher(place: Place, left: &LeftImage) -> Result<Finisher> {
    let dtype = match left.dtype {
        wellfed::sample::DType::UInt8 => Dtype::U8,
        wellfed::sample::DType::BFloat16 => Dtype::Bf16,
        _ => Dtype::F32,
    };
    let layout = if left.channels_first { Layout::Chw } else { Layout::Hwc };
    Finisher::new(place, Form { size: left.size, dtype, layout }, &left.table)
}

/// Records at a multiple of 16, and their offsets.
#[derive(Debug)]
struct Given {
    records: Vec<u128>,
    bytes: usize,
    offsets: Vec<i64>,
}

fn given(batch: &Batch) -> Given {
    let ColumnData::Ragged { offsets, .. } = &batch.columns[0].data else { panic!("no records") };
    let bytes = batch.columns[0].data.as_bytes().unwrap();
    let mut records = vec![0u128; bytes.len().div_ceil(16)];
    // SAFETY: any bits are numbers, and so many bytes are there.
    unsafe { std::slice::from_raw_parts_mut(records.as_mut_ptr().cast::<u8>(), bytes.len()) }
        .copy_from_slice(bytes);
    let eights = offsets[..8 * (batch.len + 1)].chunks_exact(8);
    let offsets = eights.map(|eight| i64::from_ne_bytes(eight.try_into().unwrap())).collect();
    Given { records, bytes: bytes.len(), offsets }
}

/// Finishes a batch, and says what is held until the device has read it.
fn finish(finisher: &Finisher, batch: &Batch, blends: &[Blend]) -> Result<(Finished, Decoded, Arc<Given>)> {
    let given = Arc::new(given(batch));
    // SAFETY: the memory is that of `given`, of which nobody looks at the records.
    unsafe {
        let records =
            std::slice::from_raw_parts_mut(given.records.as_ptr().cast_mut().cast::<u8>(), given.bytes);
        let source = Box::new(Arc::clone(&given));
        let (finished, decoded) = finisher.finish(records, &given.offsets, blends, source)?;
        Ok((finished, decoded, given))
    }
}

/// The bytes of finished images: device memory of the fake driver is the host's.
fn bytes_of(finished: &Finished, len: usize) -> Vec<u8> {
    // SAFETY: there are so many bytes, and nobody writes to them.
    unsafe { std::slice::from_raw_parts(finished.pointer() as *const u8, len) }.to_vec()
}

fn chains() -> Vec<Vec<Transform>> {
    vec![
        vec![Resize::new([20, 24]).into()],
        vec![RandomResizedCrop::new(21).into(), ToDtype::new(ImageDtype::BFloat16).scale(true).into()],
        vec![
            RandomResizedCrop::new(30).into(),
            GaussianBlur::new(5).into(),
            ToDtype::new(ImageDtype::Float32).scale(true).into(),
        ],
    ]
}

fn open(fake: &Fake) -> Arc<Device> {
    Device::open_with(fake.driver().unwrap(), 0).unwrap()
}

#[test]
fn the_host_and_a_device_make_the_engine_s_bits() {
    let photos = Photos::new("bits");
    let fake = Fake::new();
    fake.set("defer", 1);
    {
        let device = open(&fake);
        let consumer = Stream::legacy_default(&device);
        let places = [Place::Host, Place::on(&device).unwrap()];
        for (place, layout) in
            places.iter().flat_map(|place| [(place, Batching::Nchw), (place, Batching::Nhwc)])
        {
            for chain in chains() {
                let data = photos.dataset(chain, layout);
                let (batches, left) = left(&data);
                let finisher = finisher(place.clone(), &left).unwrap();
                for (wanted, batch) in plain(&data).iter().zip(&batches) {
                    let (finished, decoded, _) = finish(&finisher, batch, &[]).unwrap();
                    assert_eq!(decoded, Decoded { host: 0, device: batch.len, nvjpeg: 0 });
                    // Only the consumer's stream is waited for, which waits for the images.
                    finished.wait_in(&consumer).unwrap();
                    consumer.synchronize().unwrap();
                    assert!(bytes_of(&finished, wanted.len()) == *wanted);
                }
            }
        }
    }
    assert_eq!((fake.alive(), fake.bytes(), fake.waiting()), (0, 0, 0));
    assert_eq!(fake.calls("cuCtxSynchronize"), 0);
}

#[test]
fn memory_is_kept_while_it_is_read_and_used_again_after_that() {
    let photos = Photos::new("memory");
    let fake = Fake::new();
    fake.set("defer", 1);
    {
        let device = open(&fake);
        let data = photos.dataset(chains().remove(2), Batching::Nchw);
        let (batches, left) = left(&data);
        let wanted = plain(&data);
        let finisher = finisher(Place::on(&device).unwrap(), &left).unwrap();
        let (first, _, source) = finish(&finisher, &batches[0], &[]).unwrap();
        assert!(fake.waiting() > 0, "nothing has run");
        assert_eq!(Arc::strong_count(&source), 2, "the device has yet to read it");
        let (second, ..) = finish(&finisher, &batches[1], &[]).unwrap();
        assert_ne!(first.pointer(), second.pointer());
        first.synchronize().unwrap();
        assert!(bytes_of(&first, wanted[0].len()) == wanted[0]);
        // What was read is let go with the next batch.
        let place = first.pointer();
        drop(first);
        let (third, ..) = finish(&finisher, &batches[0], &[]).unwrap();
        assert_eq!(Arc::strong_count(&source), 1);
        third.synchronize().unwrap();
        second.synchronize().unwrap();
        assert!(bytes_of(&third, wanted[0].len()) == wanted[0]);
        assert!(bytes_of(&second, wanted[1].len()) == wanted[1]);
        drop((second, third));
        let mut taken = fake.bytes();
        let mut places = Vec::new();
        for round in 0..20 {
            let (finished, ..) = finish(&finisher, &batches[round % 2], &[]).unwrap();
            finished.synchronize().unwrap();
            places.push(finished.pointer());
            if round == 3 {
                taken = fake.bytes();
            }
        }
        assert_eq!(fake.bytes(), taken, "no more memory than for the first batches");
        assert!(places.contains(&place));
        // Whoever does not wait is held up when the device is too far behind.
        for _ in 0..40 {
            finish(&finisher, &batches[0], &[]).unwrap();
        }
        assert!(fake.bytes() < taken + (12 << 20), "{} bytes", fake.bytes());
        // Images may outlive what made them.
        let (last, _, source) = finish(&finisher, &batches[0], &[]).unwrap();
        drop(finisher);
        assert_eq!(Arc::strong_count(&source), 1, "it was waited for");
        assert!(bytes_of(&last, wanted[0].len()) == wanted[0]);
    }
    assert_eq!((fake.alive(), fake.bytes(), fake.waiting()), (0, 0, 0));
}

#[test]
fn what_fails_is_an_error_after_which_all_goes_on() {
    let photos = Photos::new("errors");
    let fake = Fake::new();
    {
        let device = open(&fake);
        let data = photos.dataset(chains().remove(2), Batching::Nchw);
        let (batches, left) = left(&data);
        let wanted = plain(&data);
        for call in
            ["cuMemAllocAsync", "cuMemHostAlloc", "cuMemcpyHtoDAsync_v2", "cuLaunchKernel", "cuEventRecord"]
        {
            let finisher = finisher(Place::on(&device).unwrap(), &left).unwrap();
            fake.fail(call, 1, 700);
            let failed = finish(&finisher, &batches[0], &[]);
            assert!(matches!(failed, Err(Error::Call { code: 700, .. })), "{call}: {failed:?}");
            let (finished, ..) = finish(&finisher, &batches[0], &[]).unwrap();
            finished.synchronize().unwrap();
            assert!(bytes_of(&finished, wanted[0].len()) == wanted[0], "{call}");
        }
        let finisher = finisher(Place::on(&device).unwrap(), &left).unwrap();
        // Nothing to finish, and a table of other images.
        // SAFETY: there is no memory to keep.
        let (none, _) = unsafe { finisher.finish(&mut [], &[0], &[], Box::new(())) }.unwrap();
        none.synchronize().unwrap();
        let other = Form { size: [1, 4, 4], dtype: Dtype::F32, layout: Layout::Chw };
        assert!(matches!(Finisher::new(Place::Host, other, &left.table), Err(Error::Argument(_))));
    }
    assert_eq!((fake.alive(), fake.bytes(), fake.waiting()), (0, 0, 0));
}
