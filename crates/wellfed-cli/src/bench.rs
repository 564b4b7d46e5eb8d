//! `wellfed bench`: how fast a data set feeds training on this machine.

use std::{collections::BTreeMap, io::Write, time::Instant};

use clap::{Args, ValueEnum};
use serde::Serialize;
use wellfed::{
    BadSample, Dataset, Error, Options,
    meter::Stats,
    plan::{Auto, Decoding, Node, OnError, Pad},
};

use crate::{
    detect,
    output::{self, Failure},
    pipeline::Pipeline,
    process::cpu_seconds,
    progress::Progress,
};

/// Bad samples that are listed.
const MAX_LISTED: usize = 20;

/// Measure images, or other samples, per second from a data set to finished batches
#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// Class folders, a flat folder, a pattern in quotes, tar shards, tables, arrays, or a folder of CIFAR or MNIST
    #[arg(value_parser = detect::argument)]
    path: String,
    /// Transforms of images or sounds [default: speech for sounds, cifar for CIFAR and MNIST, else imagenet-train]
    #[arg(long, value_enum)]
    pipeline: Option<Pipeline>,
    /// Worker threads [default: as many as the process may use]
    #[arg(long, value_name = "N", value_parser = positive)]
    workers: Option<usize>,
    /// Samples in a batch
    #[arg(long, value_name = "N", default_value = "64", value_parser = positive)]
    batch_size: usize,
    /// Epochs to measure; the median counts
    #[arg(long, value_name = "N", default_value = "3", value_parser = positive)]
    epochs: usize,
    /// Samples of an epoch [default: all]
    #[arg(long, value_name = "N", value_parser = positive)]
    samples: Option<usize>,
    /// Seed of order and transforms
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// How exactly JPEG is decoded; fast takes a smaller scale where images are shrunk as much
    #[arg(long, value_enum, default_value_t)]
    decode: Decode,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

/// `Decoding`, on the command line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Decode {
    #[default]
    Exact,
    Fast,
}

fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("must be 1 or more".to_owned()),
        Ok(number) => Ok(number),
        Err(error) => Err(error.to_string()),
    }
}

/// What was measured. Names and meaning of the fields are kept from release to release.
#[derive(Debug, Serialize)]
struct Report {
    version: &'static str,
    path: String,
    format: &'static str,
    /// None without images and sounds.
    pipeline: Option<Pipeline>,
    batch_size: usize,
    seed: u64,
    decode: Decoding,
    /// Samples of an epoch, bad ones included.
    samples: u64,
    /// Median of the epochs.
    samples_per_second: f64,
    /// The same, if samples are images.
    images_per_second: Option<f64>,
    cpu_seconds_per_1000_samples: f64,
    cpu_seconds_per_1000_images: Option<f64>,
    /// Seconds the consumer waited for batches, over all epochs.
    consumer_wait: f64,
    epochs: Vec<Epoch>,
    stats: Stats,
    bad_samples: BadSamples,
}

#[derive(Debug, Serialize)]
struct Epoch {
    seconds: f64,
    /// Samples delivered.
    samples: u64,
    samples_per_second: f64,
    images_per_second: Option<f64>,
}

#[derive(Debug, Serialize)]
struct BadSamples {
    /// Different samples, not how often they were met (that is `stats.errors`).
    count: usize,
    /// The first of them, by index.
    listed: Vec<Bad>,
}

#[derive(Debug, Serialize)]
struct Bad {
    index: u64,
    key: String,
    kind: &'static str,
    stage: Option<&'static str>,
    message: String,
}

impl Bench {
    /// Measures and reports.
    pub(crate) fn run(self) -> Result<(), Failure> {
        let detected = detect::open(&self.path)?;
        output::note(detect::describe(&self.path, &detected));
        let schema = detected.source.schema();
        let usual = Pipeline::for_schema(schema);
        let sounds = usual.is_some_and(Pipeline::is_of_sounds);
        if let Some(given) = self.pipeline.filter(|given| usual.is_none() || given.is_of_sounds() != sounds) {
            let what = if given.is_of_sounds() { "sounds" } else { "images" };
            return Err(Error::config(format!("{} has no field of {what}", self.path))
                .with_hint("leave --pipeline out")
                .into());
        }
        let pipeline = self.pipeline.or(usual);
        let images = pipeline.filter(|_| !sounds);
        let decode = match self.decode {
            Decode::Exact => Decoding::Exact,
            Decode::Fast => Decoding::Fast,
        };
        let options = Options {
            num_workers: self.workers.map_or(Auto::Auto, Auto::Fixed),
            on_error: OnError::Skip,
            decode,
            ..Options::default()
        };
        let mut data = Dataset::new(detected.source.clone()).shuffle(self.seed);
        if let Some(samples) = self.samples {
            data = data.take(samples as u64);
        }
        let samples = data.len()?.unwrap_or(0);
        let data = match pipeline {
            Some(pipeline) => data.map(pipeline.transforms(schema)),
            None => data,
        };
        let data = if sounds {
            let (batch_size, pad) = (self.batch_size, Pad::default());
            let input = Box::new(data.plan().root.clone());
            data.verb(Node::PaddedBatch { batch_size, drop_last: false, pad, input })?
        } else {
            data.batch(self.batch_size, false)
        };
        let data = data.with_options(options);
        let loader = data.loader()?;

        let mut progress = Progress::new(samples);
        let mut epochs = Vec::new();
        let cpu = cpu_seconds();
        for number in 1..=self.epochs {
            progress.start(format!("epoch {number}/{}", self.epochs));
            let start = Instant::now();
            let mut delivered = 0;
            for batch in loader.epoch()? {
                let len = batch?.len as u64;
                delivered += len;
                progress.add(len);
            }
            let seconds = start.elapsed().as_secs_f64();
            let samples_per_second = delivered as f64 / seconds.max(1e-9);
            let images_per_second = images.map(|_| samples_per_second);
            epochs.push(Epoch { seconds, samples: delivered, samples_per_second, images_per_second });
        }
        let cpu = cpu_seconds() - cpu;
        drop(progress);

        let stats = loader.stats();
        let errors = loader.errors()?;
        if stats.samples == 0 {
            let first = errors.into_iter().next().map(|bad| bad.error);
            return Err(first
                .unwrap_or_else(|| Error::config(format!("{} has no samples", self.path)))
                .into());
        }
        let samples_per_second = median(epochs.iter().map(|e| e.samples_per_second).collect());
        let cpu_seconds_per_1000_samples = cpu * 1e3 / stats.samples as f64;
        let report = Report {
            version: env!("CARGO_PKG_VERSION"),
            path: self.path,
            format: detected.format,
            pipeline,
            batch_size: self.batch_size,
            seed: self.seed,
            decode,
            samples,
            samples_per_second,
            images_per_second: images.map(|_| samples_per_second),
            cpu_seconds_per_1000_samples,
            cpu_seconds_per_1000_images: images.map(|_| cpu_seconds_per_1000_samples),
            consumer_wait: stats.consumer_wait,
            epochs,
            stats,
            bad_samples: bad_samples(&errors),
        };
        if self.json { output::json(&report) } else { Ok(report.print()?) }
    }
}

/// The middle one; the mean of the middle two if their number is even. 0 for none.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.get(half) {
        None => 0.0,
        Some(upper) if values.len() % 2 == 1 => *upper,
        Some(upper) => (values[half - 1] + upper) / 2.0,
    }
}

/// Every bad sample once, though each epoch met it anew.
fn bad_samples(errors: &[BadSample]) -> BadSamples {
    let by_index: BTreeMap<u64, &Error> =
        errors.iter().filter_map(|bad| Some((bad.error.index()?, &bad.error))).collect();
    let listed = by_index.iter().take(MAX_LISTED).map(|(index, error)| Bad {
        index: *index,
        key: error.key().unwrap_or_default().to_owned(),
        kind: error.kind().name(),
        stage: error.stage(),
        message: error.message().to_owned(),
    });
    BadSamples { count: by_index.len(), listed: listed.collect() }
}

impl Report {
    fn print(&self) -> std::io::Result<()> {
        let mut out = output::results();
        let rates: Vec<String> = self.epochs.iter().map(|e| format!("{:.0}", e.samples_per_second)).collect();
        let (unit, units) =
            if self.images_per_second.is_some() { ("img/s", "images") } else { ("samples/s", "samples") };
        writeln!(out, "{:.0} {unit} (median epoch; {})", self.samples_per_second, rates.join(", "))?;
        let pipeline = self.pipeline.map(|pipeline| format!("pipeline {}, ", pipeline.name()));
        let (batch, samples) = (self.batch_size, self.samples);
        writeln!(out, "{}batches of {batch}, {samples} samples an epoch", pipeline.unwrap_or_default())?;
        // Rows of tables take microseconds.
        let digits = if self.pipeline.is_some() { 2 } else { 5 };
        writeln!(out, "{:.digits$} CPU-seconds per 1,000 {units}", self.cpu_seconds_per_1000_samples)?;
        writeln!(out, "\n{}", self.stats)?;
        let BadSamples { count, listed } = &self.bad_samples;
        if *count > 0 {
            writeln!(out, "\nbad samples, left out: {count}")?;
            for bad in listed {
                writeln!(out, "  {}: {}", output::printable(&bad.key), output::printable(&bad.message))?;
            }
            if *count > listed.len() {
                writeln!(out, "  and {} more", count - listed.len())?;
            }
        }
        out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(vec![]), 0.0);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0]), 2.5);
    }

    #[test]
    fn a_bad_sample_counts_once() {
        let bad = |epoch, index: u64| BadSample {
            epoch,
            batch: 0,
            position: None,
            error: Error::corrupt("cut").with_sample(format!("{index}.jpg"), index),
            replaced: false,
        };
        let errors: Vec<_> = (0..3).flat_map(|epoch| (0..30).map(move |index| bad(epoch, index))).collect();
        let found = bad_samples(&errors);
        assert_eq!((found.count, found.listed.len()), (30, MAX_LISTED));
        assert_eq!(found.listed[19].key, "19.jpg");
    }
}
