//! Random access to samples of 110 KB in a store that delays each request by 20 ms and passes 200 MB/s in all: how much
//! of its bandwidth arrives as batches.
//!
//! `cargo run --release -p wellfed --example bench_io -- [samples] [latency_ms] [MB/s]`
//!
//! The samples lie in tar shards in a temporary folder (in the page cache, if that has room), and are read in a shuffled
//! order through `delayed+file://`, by the I/O layer and, for comparison, by 16 threads that read one sample at a time.

#![allow(clippy::print_stdout, reason = "a benchmark")]

use std::{
    fs::{self, File},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use wellfed::{
    Dataset, Next, Result,
    sample::Record,
    source::{Source, WebDataset, WebDatasetSpec},
    store::LocalStore,
};

const SIZE: usize = 110_000;
const SHARDS: u64 = 4;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1).map(|a| a.parse::<u64>().expect("a whole number"));
    let samples = arguments.next().unwrap_or(4000);
    let latency = arguments.next().unwrap_or(20);
    let bandwidth = arguments.next().unwrap_or(200);
    let folder = std::env::temp_dir().join(format!("wellfed-bench-io-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a temporary folder");
    for shard in 0..SHARDS {
        let file = File::create(folder.join(format!("{shard}.tar"))).expect("a file");
        let mut builder = tar::Builder::new(file);
        for i in (shard..samples).step_by(SHARDS as usize) {
            let mut header = tar::Header::new_gnu();
            header.set_size(SIZE as u64);
            let data: Vec<u8> = (0..SIZE).map(|at| (at as u64 * 31 + i) as u8).collect();
            builder.append_data(&mut header, format!("{i:08}.bin"), &data[..]).expect("a member");
        }
        builder.finish().expect("a shard");
    }
    let path = folder.join(format!("{{0..{}}}.tar", SHARDS - 1));
    let path = path.to_str().expect("UTF-8");
    // Indexed before the clock starts: that is another matter.
    let url = format!("delayed+file://{path}?latency_ms={latency}&bandwidth={bandwidth}MB");
    let spec = WebDatasetSpec { fields: Some(vec!["bin".to_owned()]), ..WebDatasetSpec::new(url) };
    let source: Arc<dyn Source> = Arc::new(WebDataset::open(Arc::new(LocalStore::new()), spec)?);
    let most = bandwidth as f64 * 1e6 / SIZE as f64;
    println!(
        "{samples} samples of {SIZE} bytes, {latency} ms, {bandwidth} MB/s: at most {most:.0} samples/s"
    );

    let loader = Dataset::new(source.clone()).shuffle(0).batch(64, false).loader()?;
    for epoch in 0..3 {
        loader.start_epoch()?;
        let (begun, mut count) = (Instant::now(), 0);
        loop {
            match loader.next(Duration::from_secs(60))? {
                Next::Batch(batch) => count += batch.len,
                Next::EpochEnd => break,
                Next::Pending => {}
            }
        }
        let rate = count as f64 / begun.elapsed().as_secs_f64();
        println!("I/O layer, epoch {epoch}: {rate:.0} samples/s, {:.3} of the bandwidth", rate / most);
    }
    drop(loader);

    let (next, begun) = (AtomicU64::new(0), Instant::now());
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                let mut record = Record::default();
                loop {
                    let index = next.fetch_add(1, Relaxed);
                    if index >= samples.min(2000) {
                        break;
                    }
                    source.fetch(index * 7919 % samples, &mut record).expect("a sample");
                }
            });
        }
    });
    let rate = samples.min(2000) as f64 / begun.elapsed().as_secs_f64();
    println!("16 threads that block: {rate:.0} samples/s, {:.3} of the bandwidth", rate / most);
    fs::remove_dir_all(&folder).expect("the temporary folder");
    Ok(())
}
