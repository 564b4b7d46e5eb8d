//! Reads a folder of class folders, with the transforms of ImageNet training, for two epochs.
//!
//! `cargo run --release -p wellfed --example image_folder -- data/train`
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::sync::Arc;

use wellfed::{
    ColumnData, Dataset, Error, Options,
    plan::OnError,
    source::{ImageFolder, ImageFolderSpec},
    store::LocalStore,
    transform::{ImageDtype, Normalize, RandomHorizontalFlip, RandomResizedCrop, ToDtype, Transform},
};

fn main() -> wellfed::Result<()> {
    let Some(root) = std::env::args().nth(1) else {
        return Err(Error::config("no folder was given"));
    };
    let source = ImageFolder::open(Arc::new(LocalStore::new()), ImageFolderSpec::new(root))?;
    let transforms: Vec<Transform> = vec![
        RandomResizedCrop::new(224).into(),
        RandomHorizontalFlip::default().into(),
        ToDtype::new(ImageDtype::Float32).scale(true).into(),
        Normalize::new([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]).into(),
    ];
    let data = Dataset::new(Arc::new(source))
        .shuffle(0)
        .map(transforms)
        .batch(64, false)
        .with_options(Options { on_error: OnError::Skip, ..Options::default() });
    println!("{}", data.explain()?);

    let loader = data.loader()?;
    for epoch in 0..2 {
        for batch in loader.epoch()? {
            let batch = batch?;
            let image = batch.column("image").map(|column| &column.data);
            // Where a network would be trained: float32 [samples, channels, height, width].
            if let Some(ColumnData::Array { dtype, shape, .. }) = image {
                println!("epoch {epoch}, batch {}: {} {shape:?}", batch.number, dtype.name());
            }
        }
    }
    for bad in loader.errors()? {
        println!("left out: {}", bad.error);
    }
    println!("{}", loader.stats());
    Ok(())
}
