//! `wellfed doctor probe`: what this machine can do with a data set at best, so that it is known who is at fault.
//!
//! Every figure is a rate of the same samples: how fast batches are handed over that lie in memory already, how fast
//! images are decoded, how fast the disk reads them, and what comes out when all this works together.

mod disk;
mod files;
mod memory;

use std::{
    io::Write,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use clap::Args;
use serde::Serialize;
use wellfed::{
    Dataset, Error, Loader, Options,
    plan::OnError,
    sample::{FieldKind, Schema},
    source::Source,
};

use self::{disk::DiskReport, files::Files};
use crate::{
    detect,
    output::{self, Failure, printable},
    pipeline::Pipeline,
    progress::Progress,
};

/// Samples the figures are of, at most: more do not make them more exact in the time there is.
const MAX_SAMPLES: u64 = 4096;
const MIN_SAMPLES: u64 = 64;

/// Measure what this machine can do with a data set at best: reading, decoding, handing over
#[derive(Debug, Args)]
pub(crate) struct Probe {
    /// Class folders, a flat folder, a pattern in quotes, tar shards, or a folder of CIFAR or MNIST
    #[arg(value_parser = crate::detect::argument)]
    path: String,
    /// Transforms [default: cifar for CIFAR and MNIST, else imagenet-train]
    #[arg(long, value_enum)]
    pipeline: Option<Pipeline>,
    /// Samples in a batch
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    batch_size: u32,
    /// Seconds it may take, about
    #[arg(long, value_name = "S", default_value_t = 20.0, value_parser = time)]
    time: f64,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

fn time(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if (1.0..=3600.0).contains(&number) => Ok(number),
        Ok(_) => Err("must be from 1 to 3600".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// What was measured. Names and meaning of the fields are kept from release to release.
#[derive(Debug, Serialize)]
struct Report {
    version: &'static str,
    path: String,
    format: &'static str,
    pipeline: Pipeline,
    batch_size: u32,
    /// Samples the figures are of.
    samples: u64,
    /// Stored bytes of a sample, mean.
    sample_bytes: f64,
    threads: usize,
    /// Images a second if finished batches lie in memory: the ideal loader.
    replay: Option<f64>,
    /// Images a second through the whole pipeline, files in memory.
    warm: f64,
    /// The same with files that had to come from the disk.
    cold: Option<f64>,
    /// Whether the file system let go of the files when it was asked to. If not, `cold` is no colder than `warm`.
    cold_is_cold: Option<bool>,
    /// Images decoded whole a second, on one core and on all.
    decode_one: Option<f64>,
    decode_all: Option<f64>,
    disk: Option<DiskReport>,
    /// Images a second that the disk can give, by the best of its figures.
    disk_images: Option<f64>,
    /// Who limits a run that reads every file for the first time: `disk`, `decode` or `hand-over`.
    limit: &'static str,
    /// What all this means.
    summary: String,
}

/// Shares of the time that the parts may take.
const REPLAY: f64 = 0.08;
const WARM: f64 = 0.22;
const DECODE: f64 = 0.12;
const DISK: f64 = 0.26;

impl Probe {
    /// Measures and reports.
    pub(crate) fn run(self) -> Result<(), Failure> {
        let detected = detect::open(&self.path)?;
        output::note(detect::describe(&self.path, &detected));
        let schema = detected.source.schema();
        if !schema.fields.iter().any(|f| matches!(f.kind, FieldKind::Image | FieldKind::Pixels { .. })) {
            return Err(Error::config(format!("{} has no field of images", self.path)).into());
        }
        let pipeline =
            self.pipeline.or_else(|| Pipeline::for_schema(schema)).unwrap_or(Pipeline::ImagenetTrain);
        let part = |share: f64| Duration::from_secs_f64(self.time * share);
        let mut progress = Progress::new(0);
        let files = Files::of(&self.path)?;

        progress.start("first samples".to_owned());
        let source = &detected.source;
        let few = self.loader(source, pipeline, MIN_SAMPLES)?;
        let begin = Instant::now();
        let first = drain(&few, begin + part(0.2), &mut progress)?;
        if first.samples == 0 {
            let error = few.errors()?.into_iter().next().map(|bad| bad.error);
            return Err(error
                .unwrap_or_else(|| Error::config(format!("{} has no samples", self.path)))
                .into());
        }
        let samples =
            ((first.rate() * self.time * 0.1) as u64).clamp(MIN_SAMPLES, MAX_SAMPLES).min(source.len());
        drop(few);

        progress.start("files in memory".to_owned());
        let loader = self.loader(source, pipeline, samples)?;
        drain(&loader, Instant::now() + part(WARM), &mut progress)?;
        let warm = repeat(&loader, Instant::now() + part(WARM / 2.0), &mut progress)?;
        progress.start("batches in memory".to_owned());
        let replay = memory::replay(&loader, self.batch_size as usize, part(REPLAY), &mut progress)?;

        progress.start("decoding".to_owned());
        let encoded = memory::Encoded::read(&**source, samples, part(DECODE / 2.0))?;
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let decode_one = encoded.decode(1, part(DECODE));
        let decode_all = encoded.decode(threads, part(DECODE));

        progress.start("files from the disk".to_owned());
        let cold = files.forget().then(|| -> Result<_, Error> {
            let before = files::from_storage();
            let cold =
                drain(&self.loader(source, pipeline, samples)?, Instant::now() + part(0.15), &mut progress)?;
            let read = files::from_storage().zip(before).map(|(now, before)| now.saturating_sub(before));
            let expected = cold.samples as f64 * encoded.mean_bytes();
            Ok((cold.rate(), read.map(|read| read as f64 > expected / 2.0)))
        });
        let cold = cold.transpose()?;
        progress.start("the disk alone".to_owned());
        let disk = disk::measure(&files, part(DISK));
        drop(progress);

        let mut report = Report {
            version: env!("CARGO_PKG_VERSION"),
            path: self.path.clone(),
            format: detected.format,
            pipeline,
            batch_size: self.batch_size,
            samples,
            sample_bytes: encoded.mean_bytes(),
            threads,
            replay,
            warm: warm.rate(),
            cold: cold.map(|(rate, _)| rate),
            cold_is_cold: cold.and_then(|(_, known)| known),
            decode_one,
            decode_all,
            disk_images: None,
            disk,
            limit: "",
            summary: String::new(),
        };
        report.judge();
        if self.json { output::json(&report) } else { Ok(report.print()?) }
    }

    fn loader(&self, source: &Arc<dyn Source>, pipeline: Pipeline, samples: u64) -> Result<Loader, Error> {
        let schema: &Schema = source.schema();
        let options = Options { on_error: OnError::Skip, ..Options::default() };
        // The same samples in every epoch, so that they can be in memory or not.
        Dataset::new(source.clone())
            .take(samples)
            .shuffle(0)
            .map(pipeline.transforms(schema))
            .batch(self.batch_size as usize, false)
            .with_options(options)
            .loader()
    }
}

/// Samples delivered, and the time it took.
#[derive(Clone, Copy, Debug, Default)]
struct Delivered {
    samples: u64,
    time: Duration,
}

impl Delivered {
    fn rate(self) -> f64 {
        self.samples as f64 / self.time.as_secs_f64().max(1e-9)
    }
}

/// One epoch, left early at `deadline`.
fn drain(loader: &Loader, deadline: Instant, progress: &mut Progress) -> Result<Delivered, Error> {
    let begin = Instant::now();
    let mut samples = 0;
    for batch in loader.epoch()? {
        let len = batch?.len as u64;
        samples += len;
        progress.add(len);
        if Instant::now() >= deadline {
            break;
        }
    }
    Ok(Delivered { samples, time: begin.elapsed() })
}

/// Epochs until `deadline`.
fn repeat(loader: &Loader, deadline: Instant, progress: &mut Progress) -> Result<Delivered, Error> {
    let mut all = Delivered::default();
    loop {
        let epoch = drain(loader, deadline, progress)?;
        all = Delivered { samples: all.samples + epoch.samples, time: all.time + epoch.time };
        if epoch.samples == 0 || Instant::now() >= deadline {
            return Ok(all);
        }
    }
}

impl Report {
    fn judge(&mut self) {
        // Figures of memory say nothing about the disk.
        let disk = self.disk.as_ref().filter(|disk| !disk.is_memory());
        let best = disk.and_then(DiskReport::best);
        self.disk_images = best.filter(|_| self.sample_bytes > 0.0).map(|bytes| bytes / self.sample_bytes);
        let limits = [("disk", self.disk_images), ("decode", self.decode_all), ("hand-over", self.replay)];
        let known = limits.into_iter().filter_map(|(name, rate)| Some((name, rate?)));
        let Some((limit, rate)) = known.min_by(|a, b| a.1.total_cmp(&b.1)) else {
            self.limit = "unknown";
            return;
        };
        self.limit = limit;
        let what = match limit {
            "disk" => {
                "the disk limits what is read for the first time: files that fit into memory are faster after"
            }
            "decode" => {
                "decoding limits: smaller images, more cores, or images kept decoded help; a faster disk does not"
            }
            _ => "handing over batches limits: neither disk nor decoding is at fault",
        };
        self.summary = format!("{what} ({rate:.0} images/s)");
    }

    fn print(&self) -> std::io::Result<()> {
        let mut out = output::results();
        let mut line = |name: &str, rate: Option<f64>, note: &str| match rate {
            Some(rate) => writeln!(out, "{name:<28}{rate:>10.0} images/s  {}", printable(note)),
            None => Ok(()),
        };
        line("batches in memory", self.replay, "the ideal loader")?;
        line("decoding, one core", self.decode_one, "")?;
        line("decoding, all cores", self.decode_all, &format!("{} threads", self.threads))?;
        let disk = format!("{:.0} kB an image", self.sample_bytes / 1e3);
        line("disk", self.disk_images, &disk)?;
        line("pipeline, files in memory", Some(self.warm), "read, decode, transform, batch")?;
        let cold = match self.cold_is_cold {
            Some(true) => "",
            Some(false) => "the file system kept the files in memory: this is not what a first epoch sees",
            None => "it is not known whether they came from the disk",
        };
        line("pipeline, files on disk", self.cold, cold)?;
        if let Some(disk) = &self.disk {
            writeln!(out)?;
            disk.print(&mut out)?;
        }
        writeln!(out, "\n{}", self.summary)?;
        out.flush()
    }
}

/// Files to measure with.
type Paths = Vec<(PathBuf, u64)>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_part_is_named() {
        let mut report = Report {
            version: "0",
            path: String::new(),
            format: "glob",
            pipeline: Pipeline::ImagenetTrain,
            batch_size: 1,
            samples: 1,
            sample_bytes: 1e5,
            threads: 2,
            replay: Some(9000.0),
            warm: 800.0,
            cold: None,
            cold_is_cold: None,
            decode_one: Some(500.0),
            decode_all: Some(950.0),
            disk: Some(DiskReport::of(1e6, &[(1, 2e7), (8, 5e7)])),
            disk_images: None,
            limit: "",
            summary: String::new(),
        };
        report.judge();
        assert_eq!((report.limit, report.disk_images), ("disk", Some(500.0)));
        report.disk = Some(DiskReport::of(1e9, &[(1, 5e8)]));
        report.judge();
        assert_eq!((report.limit, report.disk_images), ("decode", Some(5000.0)));
    }
}
