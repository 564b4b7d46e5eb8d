//! `wellfed convert`: a data set as shards of one format.

use std::{
    io::Write,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use clap::{Args, ValueEnum};
use indicatif::{HumanBytes, HumanDuration, ProgressBar, ProgressStyle};
use serde::Serialize;
use wellfed::{
    Dataset, Error, ErrorKind,
    engine::index_rows,
    plan::{Auto, OnError, RowIndexing},
    source::{SourceSpec, WebDatasetSpec},
    store::LocalStore,
    write::{Format, Progress, Skipped, Snapshot, WriteOptions, Written, write},
};

use crate::{
    detect,
    output::{self, Failure, printable},
};

/// Samples that were left out and are printed; JSON has all.
const MAX_LISTED: usize = 20;

/// How often the progress is shown anew.
const REDRAW: Duration = Duration::from_millis(200);

/// Write a data set as tar shards in the form of WebDataset, or as TFRecord, Parquet or MDS
///
/// Run again after it was ended, it goes on behind the finished shards.
#[derive(Debug, Args)]
pub(crate) struct Convert {
    /// Class folders, a flat folder, a pattern in quotes, tar shards, or a folder of CIFAR or MNIST
    #[arg(value_name = "SRC", value_parser = detect::argument)]
    source: String,
    /// A folder, or names of shards such as out/train-{:06d}.tar
    #[arg(value_name = "DST", value_parser = detect::argument)]
    destination: String,
    /// Format of the shards [default: what their names end with, or tar]
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<ShardFormat>,
    /// Most bytes of a shard, with k, M or G for powers of 1000; of Parquet before compression [default: 1G, of MDS 64 MiB]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    max_bytes: Option<u64>,
    /// Most samples of a shard
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_samples: Option<u64>,
    /// Shuffle once, by this seed
    #[arg(long, value_name = "SEED", num_args = 0..=1, default_missing_value = "0")]
    shuffle: Option<u64>,
    /// Make images smaller whose shorter side is longer than this, and compress them anew
    #[arg(long, value_name = "PIXELS", value_parser = clap::value_parser!(u32).range(1..))]
    resize_shorter: Option<u32>,
    /// Quality of JPEGs that are made [default: 95]; without --resize-shorter all images are made anew
    #[arg(long, value_name = "1-100", value_parser = clap::value_parser!(u8).range(1..=100))]
    quality: Option<u8>,
    /// Write JPEGs as packed coefficients: the same pixels, decoded several times faster, by wellfed alone
    #[arg(long)]
    packed: bool,
    /// Rows of a row group of Parquet [default: 65536, or as many as have 64 MiB]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    row_group_size: Option<u32>,
    /// Leave out samples that cannot be read, and list them [default: end at the first one]
    #[arg(long)]
    skip_bad: bool,
    /// Unpack compressed tar shards and TFRecords into this folder, once, to read them
    #[arg(long, value_name = "DIR")]
    unpack_to: Option<PathBuf>,
    /// Also note where the rows of JPEGs begin, beside the shards
    #[arg(long)]
    row_index: bool,
    /// Threads [default: as many as the process may use]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    workers: Option<u16>,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

/// Formats by name.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum ShardFormat {
    Tar,
    Tfrecord,
    Parquet,
    Mds,
}

impl From<ShardFormat> for Format {
    fn from(format: ShardFormat) -> Self {
        match format {
            ShardFormat::Tar => Self::Tar,
            ShardFormat::Tfrecord => Self::Tfrecord,
            ShardFormat::Parquet => Self::Parquet,
            ShardFormat::Mds => Self::Mds,
        }
    }
}

/// What was done. Names and meaning of the fields are kept from release to release.
#[derive(Debug, Serialize)]
struct Report {
    version: &'static str,
    path: String,
    format: &'static str,
    seconds: f64,
    #[serde(flatten)]
    written: Written,
}

/// A number of bytes.
fn size(text: &str) -> Result<u64, String> {
    let (number, unit) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1_000.0),
        Some((at, 'm' | 'M')) => (&text[..at], 1e6),
        Some((at, 'g' | 'G')) => (&text[..at], 1e9),
        _ => (text, 1.0),
    };
    match number.parse::<f64>() {
        Ok(number) if number > 0.0 && number * unit >= 1.0 && number * unit < 1e15 => {
            Ok((number * unit) as u64)
        }
        _ => Err("must be a number of bytes, such as 500M".to_owned()),
    }
}

impl Convert {
    /// Writes and reports.
    pub(crate) fn run(self) -> Result<(), Failure> {
        let format = self.format.map(Format::from).or_else(|| Format::of_name(&self.destination));
        if self.row_index && !matches!(format, None | Some(Format::Tar)) {
            return Err(Error::config("row indexes are written beside tar shards only").into());
        }
        let detected = detect::open_with(&self.source, self.unpack_to.clone())?;
        output::note(detect::describe(&self.source, &detected));
        let mut data = Dataset::new(detected.source.clone());
        if let Some(seed) = self.shuffle {
            data = data.shuffle(seed);
        }
        let options = WriteOptions {
            format,
            max_bytes: self.max_bytes,
            max_samples: self.max_samples,
            resize_shorter: self.resize_shorter.map(|side| side as usize),
            quality: self.quality,
            packed: self.packed,
            row_group_size: self.row_group_size.map(|rows| rows as usize),
            on_error: if self.skip_bad { OnError::Skip } else { OnError::Raise },
            num_workers: self.workers.map_or(Auto::Auto, |workers| Auto::Fixed(workers.into())),
        };
        let start = Instant::now();
        let progress = Progress::new();
        let written =
            shown("converting", &progress, || write(&data, &self.destination, &options, &progress))?;
        let mut bad = 0;
        if self.row_index {
            let spec = SourceSpec::Webdataset(WebDatasetSpec::new(written.urls.clone()));
            let source = spec.open(std::sync::Arc::new(LocalStore::new()))?;
            let workers = thread::available_parallelism().map_or(1, usize::from);
            let workers = self.workers.map_or(workers, usize::from);
            let done = index_rows(source, &RowIndexing::Beside, workers, &|_| {})?;
            if let Some(problem) = done.problem {
                return Err(Error::new(ErrorKind::Io, problem).into());
            }
            bad = done.bad.len();
        }
        let report = Report {
            version: env!("CARGO_PKG_VERSION"),
            path: wellfed::store::secrets::shown(&self.source).to_string(),
            format: detected.format,
            seconds: start.elapsed().as_secs_f64(),
            written,
        };
        if bad > 0 {
            output::note(format!(
                "{bad} images have no row index, as they cannot be decoded: see wellfed verify --full"
            ));
        }
        if self.json { output::json(&report) } else { Ok(report.print()?) }
    }
}

/// Runs `work` with a bar of its progress.
pub(crate) fn shown<T: Send>(
    name: &'static str,
    progress: &Progress,
    work: impl FnOnce() -> wellfed::Result<T> + Send,
) -> wellfed::Result<T> {
    let style = ProgressStyle::with_template("{prefix} {wide_bar} {human_pos}/{human_len}  {msg}");
    let bar = ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_prefix(name);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let ticking = scope.spawn(|| {
            let start = Instant::now();
            while !done.load(Relaxed) {
                let now = progress.now();
                if now.total > 0 {
                    bar.set_length(now.total);
                    bar.set_position(now.before + now.samples);
                    bar.set_message(message(&now, start.elapsed()));
                }
                thread::park_timeout(REDRAW);
            }
        });
        let result = work();
        done.store(true, Relaxed);
        ticking.thread().unpark();
        result
    })
    .inspect(|_| bar.finish_and_clear())
    .inspect_err(|_| bar.finish_and_clear())
}

/// Rate, time left, and what it waits for.
fn message(now: &Snapshot, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64().max(1e-3);
    let rate = now.samples as f64 / seconds;
    let mut text = format!("{rate:.0}/s");
    if now.bytes > 0 {
        text += &format!(" {}/s", HumanBytes((now.bytes as f64 / seconds) as u64));
    }
    let left = now.total.saturating_sub(now.before + now.samples);
    if rate > 0.0 && left > 0 {
        text += &format!("  {} left", HumanDuration(Duration::from_secs_f64(left as f64 / rate)));
    }
    if now.bytes > 0 {
        text += &format!("  {} holds it back", now.held_back_by);
    }
    if now.skipped > 0 {
        text += &format!("  {} left out", now.skipped);
    }
    text
}

impl Report {
    fn print(&self) -> std::io::Result<()> {
        let mut out = output::results();
        let Written { shards, shards_before, samples, bytes, skipped, urls, manifest } = &self.written;
        let before =
            if *shards_before > 0 { format!(", {shards_before} of them before") } else { String::new() };
        writeln!(out, "{samples} samples in {shards} shards{before}, {}", HumanBytes(*bytes))?;
        writeln!(out, "{}", printable(urls))?;
        writeln!(out, "{}", printable(manifest))?;
        writeln!(out, "{:.1} s", self.seconds)?;
        if !skipped.is_empty() {
            writeln!(out, "\nbad samples, left out: {}", skipped.len())?;
            for Skipped { key, message, .. } in skipped.iter().take(MAX_LISTED) {
                writeln!(out, "  {}: {}", printable(key), printable(message))?;
            }
            if let Some(more @ 1..) = skipped.len().checked_sub(MAX_LISTED) {
                writeln!(out, "  and {more} more")?;
            }
        }
        out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        for (text, bytes) in [("500", 500), ("1k", 1000), ("2.5M", 2_500_000), ("1G", 1_000_000_000)] {
            assert_eq!(size(text).unwrap(), bytes);
        }
        for wrong in ["", "k", "-1", "0", "1T", "nan", "1e30"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_message_says_what_holds_it_back() {
        let now = Snapshot {
            total: 300,
            before: 100,
            samples: 50,
            bytes: 1 << 20,
            held_back_by: "reading",
            ..Snapshot::default()
        };
        let text = message(&now, Duration::from_secs(10));
        assert!(text.starts_with("5/s 102.40 KiB/s  30 seconds left  reading holds it back"), "{text}");
        assert_eq!(message(&Snapshot { total: 3, ..Snapshot::default() }, Duration::ZERO), "0/s");
    }
}
