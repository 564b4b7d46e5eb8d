//! Row indexes from outside: they make later epochs faster and change no bit, whatever becomes of their files.

use std::{
    env, fs,
    path::PathBuf,
    process,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use wellfed::{
    Dataset, ErrorKind, Loader, Options,
    meter::RowIndexStats,
    plan::{Auto, RowIndexing},
    source::{ImageFolder, ImageFolderSpec, Labels, WebDataset, WebDatasetSpec},
    store::LocalStore,
    transform::{RandomResizedCrop, Transform},
};

/// A folder that vanishes with this value.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("wellfed-rows-{}-{number}", process::id()));
        fs::create_dir_all(path.join("data")).unwrap();
        Self(path)
    }

    /// Twenty photographs of all kinds, one of them no JPEG and one cut short.
    fn photos() -> Self {
        let this = Self::new();
        for number in 0..20 {
            fs::write(this.0.join(format!("data/{number:02}.jpg")), jpeg(number)).unwrap();
        }
        this
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    fn source(&self) -> Arc<ImageFolder> {
        let spec = ImageFolderSpec { labels: Labels::None, ..ImageFolderSpec::new(self.path("data")) };
        Arc::new(ImageFolder::open(Arc::new(LocalStore::new()), spec).unwrap())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// A photograph of noise, so that rows have different lengths: baseline in three samplings, with and without
/// restarts, and some progressive ones.
fn jpeg(number: u64) -> Vec<u8> {
    let (width, height) = (90 + 7 * number as u16, 260 - 5 * number as u16);
    let mut state = number;
    let pixels: Vec<u8> = (0..usize::from(width) * usize::from(height) * 3)
        .map(|i| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((i / 700 * 13) as u8).wrapping_add((state >> 60) as u8)
        })
        .collect();
    let mut bytes = Vec::new();
    let mut encoder = jpeg_encoder::Encoder::new(&mut bytes, 85);
    encoder.set_sampling_factor(match number % 3 {
        0 => jpeg_encoder::SamplingFactor::F_1_1,
        1 => jpeg_encoder::SamplingFactor::F_2_1,
        _ => jpeg_encoder::SamplingFactor::F_2_2,
    });
    if number % 4 == 1 {
        encoder.set_restart_interval(5);
    }
    encoder.set_progressive(number % 5 == 4);
    encoder.encode(&pixels, width, height, jpeg_encoder::ColorType::Rgb).unwrap();
    bytes
}

fn pipeline(source: Arc<ImageFolder>, row_index: RowIndexing) -> Dataset {
    let crop: Transform = RandomResizedCrop::new(32).into();
    let options = Options { num_workers: Auto::Fixed(2), row_index, ..Options::default() };
    Dataset::new(source).shuffle(3).map([crop]).batch(6, false).with_options(options)
}

fn epochs(loader: &Loader, count: usize) -> Vec<Vec<u8>> {
    let epoch = |_| loader.epoch().unwrap().map(|b| b.unwrap().columns[0].data.as_bytes().unwrap().to_vec());
    (0..count).flat_map(epoch).collect()
}

fn rows(loader: &Loader) -> RowIndexStats {
    loader.stats().row_index.unwrap()
}

fn plain(folder: &Folder, count: usize) -> Vec<Vec<u8>> {
    let loader = pipeline(folder.source(), RowIndexing::Off).loader().unwrap();
    let all = epochs(&loader, count);
    assert_eq!(loader.stats().row_index, None);
    all
}

#[test]
fn later_epochs_use_what_the_first_found_and_give_the_same_bits() {
    let folder = Folder::photos();
    let expected = plain(&folder, 6);
    for workers in 1..4 {
        let data = pipeline(folder.source(), RowIndexing::Memory);
        let options = Options { num_workers: Auto::Fixed(workers), ..data.options().clone() };
        let loader = data.with_options(options).loader().unwrap();
        assert!(epochs(&loader, 6) == expected, "{workers} workers");
        let rows = rows(&loader);
        // Four of the twenty are progressive.
        assert_eq!((rows.images, rows.refused), (16, 0));
        assert!(rows.used >= 70 && rows.bytes > 16 * 60 && rows.bytes < 16 * 600, "{rows:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn what_one_process_found_another_one_uses_and_both_give_the_same_bits() {
    let folder = Folder::photos();
    let data = pipeline(folder.source(), RowIndexing::Memory);
    let plain = data.sampler();
    let ours = Arc::new(data.row_indexes(2).unwrap().unwrap());
    let file = ours.file().unwrap().try_clone().unwrap();
    let theirs = pipeline(folder.source(), RowIndexing::Memory);
    let attached = Arc::new(theirs.attach_row_indexes(file, ours.limit(), 2).unwrap());
    assert!(attached.file().is_none());
    let samplers = [data.sampler_with(Some(ours.clone())), theirs.sampler_with(Some(attached.clone()))];
    for (epoch, sampler) in samplers.iter().enumerate() {
        for index in 0..20 {
            let bytes = |sampler: &wellfed::Sampler| {
                let batch = sampler.sample(0, index, epoch as u64).unwrap();
                batch.columns[0].data.as_bytes().unwrap().to_vec()
            };
            assert_eq!(bytes(sampler), bytes(&plain), "{index}");
        }
        // Four of the twenty are progressive.
        let counted = |rows: RowIndexStats| (rows.images, rows.used, rows.refused);
        let expected = (16, 16 * epoch as u64, 0);
        assert_eq!([&ours, &attached].map(|rows| counted(rows.stats().unwrap())), [expected; 2]);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn shared_row_indexes_keep_to_their_part_of_the_budget_and_are_none_where_none_are_of_use() {
    let folder = Folder::photos();
    let data = pipeline(folder.source(), RowIndexing::Memory);
    let small = Options { memory_budget: Some(8 * 2000), ..data.options().clone() };
    let data = data.with_options(small);
    let rows = Arc::new(data.row_indexes(3).unwrap().unwrap());
    let sampler = data.sampler_with(Some(rows.clone()));
    (0..20).for_each(|index| drop(sampler.sample(0, index, 0).unwrap()));
    let stats = rows.stats().unwrap();
    assert!(stats.images > 2 && stats.images < 16 && stats.refused > 0, "{stats:?}");
    assert!(stats.bytes <= stats.limit && stats.limit <= 2000, "{stats:?}");
    assert!(pipeline(folder.source(), RowIndexing::Off).row_indexes(1).unwrap().is_none());
    let numbers =
        wellfed::source::ArrayData::from_vec(vec![0; 8], wellfed::sample::DType::UInt8, vec![8]).unwrap();
    let structure = wellfed::sample::Structure::Field(0);
    let pixels = wellfed::source::Pixels::Never;
    let slices = wellfed::source::TensorSlices::new(vec![("x".into(), numbers, pixels)], structure).unwrap();
    assert!(Dataset::new(Arc::new(slices)).row_indexes(1).unwrap().is_none());
}

#[test]
fn files_are_used_by_the_next_loader_and_damage_costs_nothing_but_time() {
    let folder = Folder::photos();
    let expected = plain(&folder, 2);
    let other = folder.path("kept/here");
    for (mode, place) in
        [(RowIndexing::Beside, folder.path("data")), (RowIndexing::Folder(other.clone()), other.clone())]
    {
        let open = || pipeline(folder.source(), mode.clone()).loader().unwrap();
        let first = open();
        assert!(epochs(&first, 2) == expected);
        drop(first);
        let file = fs::read_dir(&place)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .find(|path| path.to_str().unwrap().ends_with(".wfrows"))
            .unwrap();
        let second = open();
        assert_eq!((rows(&second).images, rows(&second).used), (16, 0));
        assert!(epochs(&second, 1) == expected[..4]);
        assert_eq!(rows(&second).images, 16);
        assert!(rows(&second).used >= 16);
        drop(second);

        let good = fs::read(&file).unwrap();
        for at in (0..good.len()).step_by(97).chain([8, 15]) {
            let mut bad = good.clone();
            bad[at] ^= 0x41;
            fs::write(&file, &bad).unwrap();
            assert!(epochs(&open(), 1) == expected[..4], "byte {at}");
        }
        fs::write(&file, &good[..good.len() / 2]).unwrap();
        let cut = open();
        assert_eq!(rows(&cut).images, 0);
        assert!(epochs(&cut, 1) == expected[..4]);
        drop(cut);
        assert_eq!(rows(&open()).images, 16);
    }
}

/// Puts another image in the place of one, at once: a loader that reads ahead never sees half of it.
fn replace(folder: &Folder, number: u64, bytes: &[u8]) {
    let (beside, path) = (folder.path("new"), folder.path(&format!("data/{number:02}.jpg")));
    fs::write(&beside, bytes).unwrap();
    fs::rename(beside, path).unwrap();
}

#[test]
fn images_that_change_are_indexed_anew() {
    let folder = Folder::photos();
    let loader = pipeline(folder.source(), RowIndexing::Beside).loader().unwrap();
    drop(epochs(&loader, 1));
    // While the loader lives, and between two loaders.
    for number in 0..20 {
        replace(&folder, number, &jpeg(19 - number));
    }
    let expected = plain(&folder, 3);
    drop(epochs(&loader, 1)); // May hold images that were decoded ahead.
    assert!(epochs(&loader, 1) == expected[8..]);
    drop(loader);
    for number in 0..20 {
        replace(&folder, number, &jpeg(number));
    }
    let again = pipeline(folder.source(), RowIndexing::Beside).loader().unwrap();
    assert!(epochs(&again, 3) == plain(&folder, 3));
}

#[test]
fn memory_is_bounded_and_what_found_no_room_is_counted() {
    let folder = Folder::photos();
    let crop: Transform = RandomResizedCrop::new(32).into();
    let open =
        |options| Dataset::new(folder.source()).map([crop.clone()]).with_options(options).loader().unwrap();
    let expected = epochs(&open(Options { row_index: RowIndexing::Off, ..Options::default() }), 3);
    // An eighth of it holds a few indexes.
    let loader = open(Options { memory_budget: Some(16_000), ..Options::default() });
    assert!(epochs(&loader, 3) == expected);
    let rows = rows(&loader);
    assert!(rows.bytes <= rows.limit && rows.limit == 2000, "{rows:?}");
    assert!(rows.images > 3 && rows.images < 16 && rows.refused > 10 && rows.used > 0, "{rows:?}");
    assert!(loader.stats().to_string().contains("raise memory_budget"));
}

#[test]
fn shards_have_files_of_their_own() {
    let folder = Folder::new();
    for shard in 0..2u64 {
        let mut tar = tar::Builder::new(Vec::new());
        for number in 0..5 {
            let bytes = jpeg(shard * 5 + number);
            let mut header = tar::Header::new_ustar();
            header.set_size(bytes.len() as u64);
            tar.append_data(&mut header, format!("{number}.jpg"), bytes.as_slice()).unwrap();
        }
        fs::write(folder.path(&format!("data/{shard}.tar")), tar.into_inner().unwrap()).unwrap();
    }
    let open = |row_index| {
        let spec = WebDatasetSpec {
            fields: Some(vec!["jpg".to_owned()]),
            ..WebDatasetSpec::new(folder.path("data/{0..1}.tar"))
        };
        let source = WebDataset::open(Arc::new(LocalStore::new()), spec).unwrap();
        let crop: Transform = RandomResizedCrop::new(32).into();
        let options = Options { row_index, ..Options::default() };
        Dataset::new(Arc::new(source)).map([crop]).batch(4, false).with_options(options).loader().unwrap()
    };
    let expected = epochs(&open(RowIndexing::Off), 2);
    assert!(epochs(&open(RowIndexing::Beside), 2) == expected);
    assert!(fs::exists(folder.path("data/0.tar.wfrows")).unwrap());
    assert!(fs::exists(folder.path("data/1.tar.wfrows")).unwrap());
    let again = open(RowIndexing::Beside);
    assert_eq!(rows(&again).images, 8);
    assert!(epochs(&again, 2) == expected);
    assert!(rows(&again).used >= 16);
}

#[test]
fn beside_a_pattern_there_is_no_place() {
    let folder = Folder::photos();
    let spec = ImageFolderSpec::new(folder.path("data/*.jpg"));
    let source = Arc::new(ImageFolder::open(Arc::new(LocalStore::new()), spec).unwrap());
    let error = pipeline(source.clone(), RowIndexing::Beside).loader().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    let typo = RowIndexing::from("memroy".to_owned());
    assert_eq!(pipeline(source.clone(), typo).loader().unwrap_err().kind(), ErrorKind::Config);
    let text = pipeline(source.clone(), RowIndexing::Memory).explain().unwrap();
    assert!(text.contains("row indexes: "), "{text}");
    let kept = RowIndexing::Folder(folder.path("kept"));
    drop(epochs(&pipeline(source.clone(), kept.clone()).loader().unwrap(), 1));
    assert_eq!(rows(&pipeline(source, kept).loader().unwrap()).images, 16);
}
