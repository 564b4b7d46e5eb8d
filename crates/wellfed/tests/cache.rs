//! `cache` from outside: later epochs come from it, and no bit differs, whatever becomes of it.

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
    meter::CacheStats,
    plan::{Auto, OnError},
    source::{ArrayData, ImageFolder, ImageFolderSpec, Pixels, TensorSlices, WebDataset, WebDatasetSpec},
    store::LocalStore,
    transform::{RandomHorizontalFlip, RandomResizedCrop, Transform},
};

/// A folder that vanishes with this value.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("wellfed-cache-{}-{number}", process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Two classes of photographs; three are PNG, whatever their name.
    fn photos() -> Self {
        let this = Self::new();
        for number in 0..20 {
            this.write(number, number);
        }
        this
    }

    fn write(&self, number: u64, seed: u64) {
        let class = self.0.join(format!("data/{}", number % 2));
        fs::create_dir_all(&class).unwrap();
        fs::write(class.join(format!("{number:02}.jpg")), photo(seed)).unwrap();
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    fn source(&self) -> Arc<ImageFolder> {
        let spec = ImageFolderSpec::new(self.path("data"));
        Arc::new(ImageFolder::open(Arc::new(LocalStore::new()), spec).unwrap())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn photo(seed: u64) -> Vec<u8> {
    let (width, height) = (90 + 7 * seed as u16, 160 - 5 * seed as u16);
    let mut state = seed;
    let pixels: Vec<u8> = (0..usize::from(width) * usize::from(height) * 3)
        .map(|i| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((i / 700 * 13) as u8).wrapping_add((state >> 60) as u8)
        })
        .collect();
    let mut bytes = Vec::new();
    if seed % 7 == 3 {
        let mut encoder = png::Encoder::new(&mut bytes, width.into(), height.into());
        encoder.set_color(png::ColorType::Rgb);
        encoder.write_header().unwrap().write_image_data(&pixels).unwrap();
        return bytes;
    }
    let mut encoder = jpeg_encoder::Encoder::new(&mut bytes, 85);
    encoder.set_sampling_factor(jpeg_encoder::SamplingFactor::F_2_2);
    encoder.set_progressive(seed % 5 == 4);
    encoder.encode(&pixels, width, height, jpeg_encoder::ColorType::Rgb).unwrap();
    bytes
}

fn transforms() -> Vec<Transform> {
    vec![RandomResizedCrop::new(32).into(), RandomHorizontalFlip::default().into()]
}

fn pipeline(data: Dataset) -> Dataset {
    data.shuffle(3).map(transforms()).batch(6, false)
}

fn workers(data: &Dataset, n: usize) -> Dataset {
    data.with_options(Options { num_workers: Auto::Fixed(n), ..data.options().clone() })
}

type Epochs = Vec<(Vec<u8>, Vec<i64>)>;

fn epochs(loader: &Loader, count: usize) -> Epochs {
    let one = |_| {
        loader.epoch().unwrap().map(|batch| {
            let batch = batch.unwrap();
            let labels = batch.columns[1].data.as_i64().unwrap();
            (batch.columns[0].data.as_bytes().unwrap().to_vec(), labels)
        })
    };
    (0..count).flat_map(one).collect()
}

fn plain(folder: &Folder, count: usize) -> Epochs {
    epochs(&pipeline(Dataset::new(folder.source())).loader().unwrap(), count)
}

fn stats(loader: &Loader) -> CacheStats {
    loader.stats().cache.unwrap()
}

#[test]
fn the_same_bits_with_and_without_in_memory_and_on_disk() {
    let folder = Folder::photos();
    let expected = plain(&folder, 4);
    for n in 1..4 {
        for path in [None, Some(folder.path(&format!("cache{n}")))] {
            let data = pipeline(Dataset::new(folder.source()).cache(path.as_deref(), None));
            let loader = workers(&data, n).loader().unwrap();
            assert!(epochs(&loader, 4) == expected, "{n} workers, {path:?}");
            let stats = stats(&loader);
            assert_eq!((stats.samples, stats.passed, stats.left_out), (17, 3, 0), "{stats:?}");
            // The second epoch is begun ahead of time and may ask for a sample that the first is still making.
            assert!(stats.hits >= 34 && stats.bytes > 20_000 && stats.problem.is_none(), "{stats:?}");
        }
    }
}

#[test]
fn the_files_are_needed_only_once_in_memory() {
    let folder = Folder::photos();
    let data = pipeline(Dataset::new(folder.source()).cache(None, None));
    let options = Options { on_error: OnError::Skip, ..data.options().clone() };
    let loader = data.with_options(options).loader().unwrap();
    drop(epochs(&loader, 1));
    fs::remove_dir_all(folder.path("data")).unwrap();
    drop(epochs(&loader, 2));
    let count: usize = epochs(&loader, 1).iter().map(|(_, labels)| labels.len()).sum();
    assert_eq!(count, 17);
}

#[test]
fn what_is_on_disk_serves_later_loaders_as_long_as_it_is_sound_and_files_are_the_same() {
    let folder = Folder::photos();
    let path = folder.path("cache");
    let open = || pipeline(Dataset::new(folder.source()).cache(Some(&path), None)).loader().unwrap();
    let expected = plain(&folder, 2);
    assert!(epochs(&open(), 2) == expected);
    let second = open();
    assert!(epochs(&second, 2) == expected);
    assert!(stats(&second).hits >= 34, "{:?}", stats(&second));
    drop(second);

    // A file that changed.
    folder.write(4, 5);
    let changed = plain(&folder, 2);
    assert!(changed != expected);
    assert!(epochs(&open(), 2) == changed);
    let again = open();
    assert!(epochs(&again, 1)[..] == changed[..4]);
    assert!(stats(&again).hits >= 17);
    drop(again);

    // Damage, of both files, at many places; and files cut short, as after a crash.
    for name in ["000.data", "000.list"] {
        let file = format!("{path}/{name}");
        let good = fs::read(&file).unwrap();
        for at in (0..good.len()).step_by(good.len() / 25) {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            fs::write(&file, &bad).unwrap();
            assert!(epochs(&open(), 2) == changed, "{name} {at}");
        }
        for part in 0..4 {
            let now = fs::read(&file).unwrap();
            fs::write(&file, &now[..now.len() * part / 4]).unwrap();
            assert!(epochs(&open(), 2) == changed, "{name} {part}");
        }
    }
    let last = open();
    assert!(epochs(&last, 1)[..] == changed[..4]);
    assert!(stats(&last).hits >= 17, "{:?}", stats(&last));
}

#[test]
fn several_loaders_share_a_folder() {
    let folder = Folder::photos();
    let path = folder.path("cache");
    let expected = plain(&folder, 3);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let data = pipeline(Dataset::new(folder.source()).cache(Some(&path), None));
                assert!(epochs(&data.loader().unwrap(), 3) == expected);
            });
        }
    });
    let data = pipeline(Dataset::new(folder.source()).cache(Some(&path), None));
    let last = data.loader().unwrap();
    assert!(epochs(&last, 1)[..] == expected[..4]);
    assert!(stats(&last).hits >= 17);
}

#[test]
fn what_does_not_fit_is_said_and_decoded_from_files() {
    let folder = Folder::photos();
    let expected = plain(&folder, 3);
    for path in [None, Some(folder.path("cache"))] {
        let data = pipeline(Dataset::new(folder.source()).cache(path.as_deref(), Some(60_000)));
        let loader = data.loader().unwrap();
        assert!(epochs(&loader, 3) == expected);
        let stats = stats(&loader);
        assert!(stats.bytes <= 60_000 && stats.samples > 1 && stats.hits > 1, "{stats:?}");
        assert!(stats.left_out > 3 && stats.samples + stats.passed + stats.left_out == 20, "{stats:?}");
        assert!(loader.stats().to_string().contains("do not fit"));
        assert!(loader.stats().memory <= loader.stats().memory_budget);
    }
}

#[test]
fn order_and_resume_do_not_know_of_it() {
    let folder = Folder::photos();
    let source = folder.source();
    let plain = pipeline(Dataset::new(source.clone())).loader().unwrap();
    let cached = pipeline(Dataset::new(source).cache(None, None)).loader().unwrap();
    let expected = epochs(&plain, 2);
    drop(epochs(&cached, 1));
    let mut batches = cached.epoch().unwrap();
    drop(batches.next());
    let state = cached.state_dict().unwrap();
    plain.load_state_dict(&state).unwrap();
    assert!(epochs(&plain, 1)[..] == expected[5..]);
    cached.load_state_dict(&state).unwrap();
    assert!(epochs(&cached, 1)[..] == expected[5..]);
}

#[test]
fn fields_of_shards_come_from_it_too() {
    let folder = Folder::new();
    let mut tar = tar::Builder::new(Vec::new());
    for number in 0..8u64 {
        for (name, bytes) in [("jpg", photo(number)), ("cls", number.to_string().into_bytes())] {
            let mut header = tar::Header::new_ustar();
            header.set_size(bytes.len() as u64);
            tar.append_data(&mut header, format!("{number}.{name}"), bytes.as_slice()).unwrap();
        }
    }
    fs::write(folder.path("x.tar"), tar.into_inner().unwrap()).unwrap();
    let open = |cached: bool| {
        let fields = Some(vec!["jpg".to_owned(), "cls".to_owned()]);
        let spec = WebDatasetSpec { fields, ..WebDatasetSpec::new(folder.path("x.tar")) };
        let data = Dataset::new(Arc::new(WebDataset::open(Arc::new(LocalStore::new()), spec).unwrap()));
        let path = folder.path("cache");
        let data = if cached { data.cache(Some(&path), None) } else { data };
        pipeline(data).loader().unwrap()
    };
    let expected = epochs(&open(false), 2);
    assert!(epochs(&open(true), 2) == expected);
    let again = open(true);
    assert!(epochs(&again, 2) == expected && stats(&again).hits >= 14);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let folder = Folder::photos();
    let source = folder.source();
    let refused = |data: Dataset| data.loader().unwrap_err().kind() == ErrorKind::Config;
    assert!(refused(pipeline(Dataset::new(source.clone())).cache(None, None)));
    assert!(refused(Dataset::new(source.clone()).cache(None, None).cache(None, None).map(transforms())));
    // A folder of something else is not written to.
    assert!(refused(pipeline(Dataset::new(source.clone()).cache(Some(&folder.path("data/0")), None))));
    let array = ArrayData::from_vec(vec![0; 48], wellfed::sample::DType::UInt8, vec![1, 4, 4, 3]).unwrap();
    let slices = vec![("image".to_owned(), array, Pixels::Hwc)];
    let slices = TensorSlices::new(slices, wellfed::sample::Structure::Field(0)).unwrap();
    assert!(refused(Dataset::new(Arc::new(slices)).cache(None, None)));
    let text = pipeline(Dataset::new(source).cache(None, Some(7))).explain().unwrap();
    assert!(text.contains(".cache(decoded=\"coefficients\", max_bytes=7)") && text.contains("cache: JPEGs"));
}

#[test]
fn folders_of_the_same_form_share_a_cache_on_disk_without_a_mix_up() {
    let folder = Folder::new();
    let cache = folder.path("cache");
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    // Names, sizes and times are the same, as in an archive with normalized times; contents are not.
    let longest = [photo(1), photo(2)].iter().map(Vec::len).max().unwrap();
    for (set, seed) in [("train", 1), ("validation", 2)] {
        let class = folder.0.join(set).join("a");
        fs::create_dir_all(&class).unwrap();
        let mut bytes = photo(seed);
        // What follows the end of a JPEG is not looked at.
        bytes.resize(longest, 0);
        fs::write(class.join("0.jpg"), bytes).unwrap();
        fs::File::options().write(true).open(class.join("0.jpg")).unwrap().set_modified(time).unwrap();
    }
    let pixels = |set: &str, cached: bool| {
        let spec = ImageFolderSpec::new(folder.path(set));
        let source = Arc::new(ImageFolder::open(Arc::new(LocalStore::new()), spec).unwrap());
        let dataset = Dataset::new(source);
        let dataset = if cached { dataset.cache(Some(&cache), None) } else { dataset };
        let loader = dataset.map([RandomResizedCrop::new(16).into()]).batch(1, false).loader().unwrap();
        let batch = loader.epoch().unwrap().next().unwrap().unwrap();
        batch.columns[0].data.as_bytes().unwrap().to_vec()
    };
    for _ in 0..2 {
        for set in ["train", "validation"] {
            assert!(pixels(set, true) == pixels(set, false), "{set}");
        }
    }
}

#[test]
fn another_class_changes_labels_that_were_cached() {
    let folder = Folder::photos();
    let cache = folder.path("cache");
    let labels = || {
        let dataset = Dataset::new(folder.source()).cache(Some(&cache), None);
        let loader = dataset.map([RandomResizedCrop::new(16).into()]).batch(100, false).loader().unwrap();
        let batch = loader.epoch().unwrap().next().unwrap().unwrap();
        batch.columns[1].data.as_i64().unwrap()
    };
    assert_eq!(labels().iter().sum::<i64>(), 10);
    let first = folder.0.join("data/-first");
    fs::create_dir_all(&first).unwrap();
    fs::write(first.join("x.jpg"), photo(3)).unwrap();
    assert_eq!(labels().iter().sum::<i64>(), 10 + 20);
}
