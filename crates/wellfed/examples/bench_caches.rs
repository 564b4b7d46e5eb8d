//! What row indexes and cached coefficients gain, epoch by epoch, in CPU time per image:
//! `cargo run --release -p wellfed --example bench_caches FOLDER [workers] [folder for a cache]`
#![allow(clippy::print_stdout, reason = "a benchmark prints")]

use std::sync::Arc;

use wellfed::{
    Dataset, Options,
    plan::{Auto, RowIndexing},
    source::{ImageFolder, ImageFolderSpec, Labels},
    store::LocalStore,
    transform::{ImageDtype, Normalize, RandomHorizontalFlip, RandomResizedCrop, ToDtype, Transform},
};

const EPOCHS: usize = 5;

fn main() -> wellfed::Result<()> {
    let mut args = std::env::args().skip(1);
    let root = args.next().unwrap_or_else(|| "data".to_owned());
    let workers = args.next().and_then(|arg| arg.parse().ok()).map_or(Auto::Auto, Auto::Fixed);
    let folder = args.next();
    let spec = ImageFolderSpec { root, extensions: None, allow_empty: false, labels: Labels::Folders };
    let source = Arc::new(ImageFolder::open(Arc::new(LocalStore::new()), spec)?);
    let transforms: Vec<Transform> = vec![
        RandomResizedCrop::new(224).into(),
        RandomHorizontalFlip::default().into(),
        ToDtype::new(ImageDtype::Float32).scale(true).into(),
        Normalize::new([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]).into(),
    ];
    let plain = Dataset::new(source);
    let mut kinds = vec![
        ("plain files", plain.clone(), RowIndexing::Off),
        ("row index", plain.clone(), RowIndexing::Memory),
        ("cache in memory", plain.cache(None, None), RowIndexing::Off),
    ];
    if let Some(folder) = &folder {
        kinds.push(("cache on disk", plain.cache(Some(folder), None), RowIndexing::Off));
    }
    let mut loaders = Vec::new();
    for (name, data, row_index) in kinds {
        let options =
            Options { num_workers: workers, prefetch: Auto::Fixed(2), row_index, ..Options::default() };
        let data = data.shuffle(0).map(transforms.clone()).batch(64, false).with_options(options);
        loaders.push((name, data.loader()?, Vec::new()));
    }
    // Taking turns, so that whatever else the machine does meets all of them.
    for _ in 0..EPOCHS {
        for (_, loader, rates) in &mut loaders {
            let (start, mut samples) = (cpu_seconds(), 0);
            for batch in loader.epoch()? {
                samples += batch?.len;
            }
            rates.push(1e6 * (cpu_seconds() - start) / samples as f64);
        }
    }
    for (name, loader, rates) in loaders {
        let rates: Vec<String> = rates.iter().map(|rate| format!("{rate:.0}")).collect();
        println!(
            "{name}: {} us of CPU time an image, epoch by epoch\n{}\n",
            rates.join(", "),
            loader.stats()
        );
    }
    Ok(())
}

/// CPU time of this process (Linux; zero elsewhere): in hundredths of a second, as `proc_pid_stat(5)` has it.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |i: usize| fields.get(i).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}
