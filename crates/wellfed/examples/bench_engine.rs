//! What the engine costs around the pixels: 50,000 images of 32x32 in memory, with and without work on them, and a
//! million rows of 16 floats.
//!
//! `cargo run --release -p wellfed --example bench_engine [workers [part of a case's name]]`
#![allow(clippy::print_stdout, reason = "a benchmark prints")]

use std::{sync::Arc, time::Instant};

use wellfed::{
    Dataset, Options,
    plan::Auto,
    sample::{DType, Structure},
    source::{ArrayData, Pixels, TensorSlices},
    transform::{ImageDtype, Normalize, RandomCrop, RandomHorizontalFlip, ToDtype, Transform},
};

const IMAGES: usize = 50_000;
const ROWS: usize = 1_000_000;

fn main() -> wellfed::Result<()> {
    let workers = std::env::args().nth(1).and_then(|arg| arg.parse().ok()).map_or(Auto::Auto, Auto::Fixed);
    let wanted = std::env::args().nth(2).unwrap_or_default();
    let pixels = (0..IMAGES * 32 * 32 * 3).map(|i| (i * 31 % 253) as u8).collect();
    let labels = (0..IMAGES as i64).flat_map(i64::to_ne_bytes).collect();
    let source = Arc::new(TensorSlices::new(
        vec![
            ("x".into(), ArrayData::from_vec(pixels, DType::UInt8, vec![IMAGES, 32, 32, 3])?, Pixels::Infer),
            ("y".into(), ArrayData::from_vec(labels, DType::Int64, vec![IMAGES])?, Pixels::Infer),
        ],
        Structure::Tuple(vec![Structure::Field(0), Structure::Field(1)]),
    )?);
    let train: Vec<Transform> = vec![
        RandomCrop::new(32).padding(4).into(),
        RandomHorizontalFlip::default().into(),
        ToDtype::new(ImageDtype::Float32).scale(true).into(),
        Normalize::new([0.49, 0.48, 0.45], [0.25, 0.24, 0.26]).into(),
    ];
    let numbers = (0..ROWS * 16).flat_map(|i| (i as f32).to_ne_bytes()).collect();
    let labels = (0..ROWS as i64).flat_map(i64::to_ne_bytes).collect();
    let rows = Arc::new(TensorSlices::new(
        vec![
            ("x".into(), ArrayData::from_vec(numbers, DType::Float32, vec![ROWS, 16])?, Pixels::Infer),
            ("y".into(), ArrayData::from_vec(labels, DType::Int64, vec![ROWS])?, Pixels::Infer),
        ],
        Structure::Tuple(vec![Structure::Field(0), Structure::Field(1)]),
    )?);
    for (name, source, transforms) in [
        ("copy", &source, Vec::new()),
        ("crop, flip, normalize", &source, train),
        ("rows of 16 floats", &rows, Vec::new()),
    ] {
        if !name.contains(&wanted) {
            continue;
        }
        let options = Options { num_workers: workers, ..Options::default() };
        let data = Dataset::new(source.clone()).shuffle(0);
        let data = if transforms.is_empty() { data } else { data.map(transforms) };
        let data = data.batch(256, false).with_options(options);
        let loader = data.loader()?;
        let mut rates = Vec::new();
        for _ in 0..5 {
            let start = Instant::now();
            let mut samples = 0;
            for batch in loader.epoch()? {
                samples += batch?.len;
            }
            rates.push(samples as f64 / start.elapsed().as_secs_f64());
        }
        rates.sort_by(f64::total_cmp);
        println!("{name}: {:.0} samples/s (median of 5 epochs)\n{}\n", rates[2], loader.stats());
    }
    Ok(())
}
