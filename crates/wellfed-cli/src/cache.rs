//! `wellfed cache`: what the folder of a remote cache holds, emptying it, and filling it ahead of training.

use std::{
    io::Write,
    path::Path,
    time::{Duration, SystemTime},
};

use clap::{Args, Subcommand};
use serde::Serialize;
use wellfed::{
    Dataset, Error, ErrorKind, Options, Result,
    io::cache::Folder,
    meter::RemoteCacheStats,
    plan::{Auto, OnError, bytes_of},
    sample::FieldKind,
    transform::CenterCrop,
};

use crate::{
    detect,
    output::{self, Failure, printable},
    progress::Progress,
};

/// Ranges that were left out for want of room before a cache counts as full.
const FULL: u64 = 64;

/// Times that samples are gone through, at most.
const ROUNDS: usize = 5;

/// Show, empty or fill the folder in which training keeps what it read of remote stores
#[derive(Debug, Args)]
pub(crate) struct Cache {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Ls(Ls),
    Clear(Clear),
    Warm(Warm),
}

/// List the data sets in the folder, and what they take
#[derive(Debug, Args)]
struct Ls {
    /// The folder
    #[arg(long, value_name = "FOLDER", env = "WELLFED_CACHE")]
    path: Option<String>,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

/// Remove everything from the folder; training that uses it goes on, and downloads again
#[derive(Debug, Args)]
struct Clear {
    /// The folder
    #[arg(long, value_name = "FOLDER", env = "WELLFED_CACHE")]
    path: Option<String>,
}

/// Download a data set into the folder, as far as there is room
#[derive(Debug, Args)]
struct Warm {
    /// The data set: a URL of class folders, a flat folder, a pattern in quotes, or shards
    #[arg(value_parser = detect::argument)]
    data: String,
    /// The folder
    #[arg(long, value_name = "FOLDER", env = "WELLFED_CACHE")]
    path: Option<String>,
    /// Bytes that the folder may take: 500000000, 500MB [default: half of what is free on its disk, and what it has]
    #[arg(long, value_name = "SIZE", env = "WELLFED_CACHE_BYTES", value_parser = size)]
    bytes: Option<u64>,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

fn size(text: &str) -> std::result::Result<u64, String> {
    bytes_of(text).ok_or_else(|| "is no number of bytes: write 500000000 or 500MB".to_owned())
}

/// What a folder has. Names and meaning of the fields are kept from release to release.
#[derive(Debug, Serialize)]
struct Listing {
    version: &'static str,
    path: String,
    ranges: u64,
    bytes: u64,
    data_sets: Vec<DataSet>,
}

#[derive(Debug, Serialize)]
struct DataSet {
    name: String,
    ranges: u64,
    bytes: u64,
    /// Whether a process uses it now.
    in_use: bool,
    /// Seconds since a loader of it was last opened.
    seconds_ago: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Warmed {
    version: &'static str,
    data: String,
    samples: u64,
    /// Whether there was room for all of it.
    complete: bool,
    cache: RemoteCacheStats,
}

impl Cache {
    pub(crate) fn run(self) -> std::result::Result<(), Failure> {
        match self.command {
            Command::Ls(ls) => ls.run(),
            Command::Clear(clear) => clear.run(),
            Command::Warm(warm) => warm.run(),
        }
    }
}

/// The folder that was named.
fn named(path: Option<String>) -> Result<String> {
    path.filter(|path| !path.is_empty() && path != "off").ok_or_else(|| {
        Error::config("no folder of a cache is named")
            .with_hint("give --path FOLDER, or set WELLFED_CACHE as training has it")
    })
}

/// A cache that is there.
fn open(path: &str) -> Result<Folder> {
    if !Path::new(path).join("log").exists() {
        return Err(Error::new(ErrorKind::NotFound, format!("there is no cache in {path}")).with_hint(
            "training makes one with remote_cache or WELLFED_CACHE, and wellfed cache warm does",
        ));
    }
    Folder::open(path, u64::MAX).map_err(|e| Error::io("open the cache in", path, e))
}

impl Ls {
    fn run(self) -> std::result::Result<(), Failure> {
        let path = named(self.path)?;
        let owners = open(&path)?.list().map_err(|e| Error::io("list the cache in", &path, e))?;
        let ago = |at: SystemTime| at.elapsed().unwrap_or(Duration::ZERO).as_secs();
        let data_sets: Vec<DataSet> = owners
            .into_iter()
            .map(|owned| DataSet {
                name: owned.name,
                ranges: owned.entries,
                bytes: owned.bytes,
                in_use: owned.in_use,
                seconds_ago: owned.used.map(ago),
            })
            .collect();
        let listing = Listing {
            version: env!("CARGO_PKG_VERSION"),
            path,
            ranges: data_sets.iter().map(|set| set.ranges).sum(),
            bytes: data_sets.iter().map(|set| set.bytes).sum(),
            data_sets,
        };
        if self.json { output::json(&listing) } else { Ok(listing.print()?) }
    }
}

impl Listing {
    fn print(&self) -> std::io::Result<()> {
        let mut out = output::results();
        for set in &self.data_sets {
            let name = if set.name.is_empty() { "unknown" } else { &set.name };
            let used = match set.seconds_ago {
                _ if set.in_use => "in use".to_owned(),
                Some(seconds) => format!("used {} ago", time(seconds)),
                None => "not used lately".to_owned(),
            };
            writeln!(out, "{}: {} ranges, {:.1} MB, {used}", printable(name), set.ranges, mb(set.bytes))?;
        }
        writeln!(out, "{}: {} ranges, {:.1} MB", printable(&self.path), self.ranges, mb(self.bytes))?;
        out.flush()
    }
}

fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// A time as people say it.
fn time(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

impl Clear {
    fn run(self) -> std::result::Result<(), Failure> {
        let path = named(self.path)?;
        let folder = open(&path)?;
        let (bytes, _) = folder.held();
        folder.clear().map_err(|e| Error::io("clear the cache in", &path, e))?;
        let mut out = output::results();
        writeln!(out, "removed {:.1} MB from {}", mb(bytes), printable(&path))?;
        Ok(out.flush()?)
    }
}

impl Warm {
    fn run(self) -> std::result::Result<(), Failure> {
        let path = named(self.path)?;
        let detected = detect::open(&self.data)?;
        output::note(detect::describe(&self.data, &detected));
        let options = Options {
            num_workers: Auto::Auto,
            on_error: OnError::Skip,
            remote_cache: Some(path),
            remote_cache_bytes: self.bytes,
            ..Options::default()
        };
        let mut data = Dataset::new(detected.source.clone());
        if detected.source.schema().fields.iter().any(|field| field.kind == FieldKind::Image) {
            // What is done to samples does not matter: as little as can be.
            data = data.map([CenterCrop::new(1).into()]);
        }
        let loader = data.with_options(options).loader()?;
        let near = || {
            Error::config(format!("{} is read from near by, or all at once: there is nothing to keep", self.data))
                .with_hint("a cache is for what lies in S3, Google Cloud, Azure or on web servers, and is read sample by sample")
        };
        let stats = || loader.stats().remote_cache;
        stats().ok_or_else(near)?;
        let mut progress = Progress::new(detected.source.len());
        progress.start("downloading".to_owned());
        let mut full = false;
        for _ in 0..ROUNDS {
            let dropped = stats().map_or(0, |cache| cache.dropped);
            for sample in loader.epoch()? {
                progress.add(sample?.len as u64);
                full = stats().is_some_and(|cache| cache.left_out >= FULL);
                if full {
                    break;
                }
            }
            loader.finish_remote_cache();
            // What came faster than the disk takes it comes once more.
            if full || stats().is_none_or(|cache| cache.dropped == dropped) {
                break;
            }
            progress.start("once more".to_owned());
        }
        drop(progress);
        let cache = stats().ok_or_else(near)?;
        if let Some(problem) = &cache.problem {
            return Err(Error::new(ErrorKind::Io, problem.clone()).into());
        }
        let complete = !full && cache.left_out == 0;
        let samples = detected.source.len();
        let report = Warmed { version: env!("CARGO_PKG_VERSION"), data: self.data, samples, complete, cache };
        if self.json { output::json(&report) } else { Ok(report.print()?) }
    }
}

impl Warmed {
    fn print(&self) -> std::io::Result<()> {
        let Self { cache, samples, .. } = self;
        let mut out = output::results();
        writeln!(out, "downloaded: {} ranges, {:.1} MB", cache.misses, mb(cache.missed_bytes))?;
        let all = if self.complete {
            format!("all {samples} samples")
        } else {
            "as much as there is room for".to_owned()
        };
        writeln!(
            out,
            "{}: {all}, {:.1} of {:.1} MB",
            printable(&cache.path),
            mb(cache.bytes),
            mb(cache.limit)
        )?;
        out.flush()
    }
}
