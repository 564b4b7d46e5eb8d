//! Photographs to training tensors: `cargo run --release -p wellfed --example bench_photos FOLDER [workers]`
#![allow(clippy::print_stdout, reason = "a benchmark prints")]

use std::{sync::Arc, time::Instant};

use wellfed::{
    Dataset, Options,
    plan::Auto,
    source::{ImageFolder, ImageFolderSpec, Labels},
    store::LocalStore,
    transform::{
        CenterCrop, ImageDtype, Normalize, RandomHorizontalFlip, RandomResizedCrop, Resize, ToDtype,
        Transform,
    },
};

fn main() -> wellfed::Result<()> {
    let root = std::env::args().nth(1).unwrap_or_else(|| "data".to_owned());
    let workers = std::env::args().nth(2).and_then(|arg| arg.parse().ok()).map_or(Auto::Auto, Auto::Fixed);
    let spec = ImageFolderSpec { root, extensions: None, allow_empty: false, labels: Labels::Folders };
    let source = Arc::new(ImageFolder::open(Arc::new(LocalStore::new()), spec)?);
    let normalize = || Transform::from(Normalize::new([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]));
    let cast = || Transform::from(ToDtype::new(ImageDtype::Float32).scale(true));
    let train =
        vec![RandomResizedCrop::new(224).into(), RandomHorizontalFlip::default().into(), cast(), normalize()];
    let eval = vec![Resize::new(256).into(), CenterCrop::new(224).into(), cast(), normalize()];
    for (name, transforms) in [("train", train), ("eval", eval)] {
        for optimize in [true, false] {
            let options = Options { num_workers: workers, optimize, ..Options::default() };
            let data = Dataset::new(source.clone())
                .shuffle(0)
                .map(transforms.clone())
                .batch(64, false)
                .with_options(options);
            let loader = data.loader()?;
            let mut rates = Vec::new();
            for _ in 0..3 {
                let start = Instant::now();
                let mut samples = 0;
                for batch in loader.epoch()? {
                    samples += batch?.len;
                }
                rates.push(samples as f64 / start.elapsed().as_secs_f64());
            }
            rates.sort_by(f64::total_cmp);
            println!(
                "{name}, optimize={optimize}: {:.0} images/s (median of 3 epochs)\n{}\n",
                rates[1],
                loader.stats()
            );
        }
    }
    Ok(())
}
