//! Times decoding from packed coefficients beside decoding the JPEGs, on one thread:
//! `cargo run --release -p wellfed-jpeg --example packed -- FOLDER [LEVEL]`, LEVEL being `avx512`, `avx2`, `neon` or
//! `scalar`.
//!
//! Each of the folder's JPEGs is decoded whole and in one window of a seeded RandomResizedCrop (scale 0.08 to 1,
//! ratio 3/4 to 4/3) to planes, JPEG and record in turns.
#![allow(clippy::print_stdout, reason = "what it is for")]

use std::hint::black_box;
use std::time::Instant;

use wellfed_jpeg::{Decoder, Format, Level, Limits, Options, Packed, Region};

const ROUNDS: usize = 25;

/// SplitMix64, as a number in 0..1.
fn uniform(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

/// The first draw of ten that fits, else the whole image.
fn window(width: usize, height: usize, state: &mut u64) -> Region {
    for _ in 0..10 {
        let area = (width * height) as f64 * (0.08 + 0.92 * uniform(state));
        let ratio = (2.0 * (4.0f64 / 3.0).ln() * (uniform(state) - 0.5)).exp();
        let (w, h) = ((area * ratio).sqrt().round() as usize, (area / ratio).sqrt().round() as usize);
        if (1..=width).contains(&w) && (1..=height).contains(&h) {
            let left = (uniform(state) * (width - w + 1) as f64) as usize;
            let top = (uniform(state) * (height - h + 1) as f64) as usize;
            return Region { left, top, width: w, height: h };
        }
    }
    Region { left: 0, top: 0, width, height }
}

/// Seconds that this thread has run, where the system tells; else those of a clock.
fn seconds(start: Instant) -> f64 {
    let run = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let run = run.and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    run.map_or_else(|| start.elapsed().as_secs_f64(), |nanoseconds| 1e-9 * nanoseconds)
}

struct Photo {
    jpeg: Vec<u8>,
    record: Vec<u8>,
    size: (usize, usize),
    window: Region,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("a folder of JPEGs is expected")?;
    let level = match arguments.next().as_deref() {
        None => Level::best(),
        Some("avx512") => Level::Avx512,
        Some("avx2") => Level::Avx2,
        Some("neon") => Level::Neon,
        Some("scalar") => Level::Scalar,
        Some(other) => return Err(format!("there is no level {other}").into()),
    };
    let mut decoder = Decoder::with_level(level);
    let mut state = 2024;
    let mut photos = Vec::new();
    let mut paths: Vec<_> =
        std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    paths.sort();
    let clock = Instant::now();
    let start = seconds(clock);
    for path in paths {
        let jpeg = std::fs::read(path)?;
        let record = decoder.pack(&jpeg, &Limits::default())?;
        let header = *Packed::open(&record)?.header();
        let window = window(header.width, header.height, &mut state);
        photos.push(Photo { jpeg, record, size: (header.width, header.height), window });
    }
    let n = photos.len() as f64;
    let packing = (seconds(clock) - start) / n;
    let sum = |f: fn(&Photo) -> usize| photos.iter().map(f).sum::<usize>() as f64;
    println!("{n} photographs, {level:?}, packed in {:.0} us each", 1e6 * packing);
    println!("bytes of records / of JPEGs: {:.3}", sum(|p| p.record.len()) / sum(|p| p.jpeg.len()));

    let room = photos.iter().map(|p| p.size.0 * p.size.1).max().unwrap_or(0);
    let mut memory = [vec![0; room], vec![0; room], vec![0; room], Vec::new()];
    let names = ["JPEG, whole", "record, whole", "JPEG, window", "record, window", "record opened"];
    let mut times = [0.0; 5];
    for _ in 0..ROUNDS {
        for (kind, time) in times.iter_mut().enumerate() {
            let start = seconds(clock);
            for photo in &photos {
                let (region, width) = match kind {
                    0 | 1 => (None, photo.size.0),
                    _ => (Some(photo.window), photo.window.width),
                };
                let options = Options { region, format: Format::Rgb, ..Options::default() };
                let planes = memory.each_mut().map(|plane| plane.as_mut_slice());
                match kind {
                    0 | 2 => {
                        decoder.decode_planar(&photo.jpeg, &options, planes, width)?;
                    }
                    4 => {
                        black_box(Packed::open(&photo.record)?);
                    }
                    _ => {
                        let packed = Packed::reopen(&photo.record)?;
                        decoder.decode_packed_planar(&packed, &options, planes, width)?;
                    }
                }
                black_box(&mut memory);
            }
            *time += 1e6 * (seconds(clock) - start) / n / ROUNDS as f64;
        }
    }
    for (name, time) in names.iter().zip(times) {
        println!("{name}: {time:.1} us");
    }
    Ok(())
}
