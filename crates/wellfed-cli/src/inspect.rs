//! `wellfed inspect`: what a data set consists of, and which of its samples are damaged.

use std::{
    collections::BTreeMap,
    io::Write,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use clap::Args;
use serde::Serialize;
use wellfed::{
    Error, ErrorKind, Limits,
    codec::{Request, Scratch, decode_image, image_header},
    sample::{FieldKind, FieldSpec, Record, Value},
    source::Source,
};
use wellfed_kernels::image::Image;

use crate::{
    advice::{Facts, advice},
    detect,
    jpeg_kind::jpeg_kind,
    output::{self, Failure, printable},
    progress::Progress,
    sounds::{self, Sounds},
};

/// Classes that are printed by name.
const MAX_CLASSES: usize = 20;

/// Bad samples that are printed; JSON has all.
const MAX_LISTED: usize = 20;

/// Samples a thread takes at once, unless they are decoded in larger groups.
const CHUNK: u64 = 16;

/// Show classes, sizes, formats and damaged samples of a data set
#[derive(Debug, Args)]
pub(crate) struct Inspect {
    /// Class folders, a flat folder, a pattern in quotes, tar shards, TFRecords, tables, zip archives, lines of JSON, arrays,
    /// an LMDB database, a file of FFCV, or a folder of MDS shards, LitData chunks, CIFAR or MNIST
    #[arg(value_parser = detect::argument)]
    path: String,
    /// Decode every image and sound, to find damage that headers do not show
    #[arg(long)]
    full: bool,
    /// Unpack compressed tar shards and TFRecords into this folder, once, to read them
    #[arg(long, value_name = "DIR")]
    unpack_to: Option<PathBuf>,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

/// What was found. Names and meaning of the fields are kept from release to release.
#[derive(Debug, Serialize)]
struct Report {
    version: &'static str,
    path: String,
    format: &'static str,
    samples: u64,
    /// Whether all images and sounds were decoded, or only their headers read.
    full: bool,
    /// What a sample has, in order.
    fields: Vec<FieldSpec>,
    /// By label; `None` for data without labels.
    classes: Option<Vec<Class>>,
    /// Images by format and kind, the most frequent first.
    codecs: Vec<Codec>,
    /// Of TFRecords of `tf.train.Example`: the features of the first record. Records themselves are checked, not decoded.
    features: Vec<Feature>,
    width: Option<Spread>,
    height: Option<Spread>,
    /// Encoded size of an image.
    bytes: Option<Spread>,
    /// Images that their EXIF orientation turns or mirrors.
    turned: u64,
    /// Of data with sounds.
    sounds: Option<Sounds>,
    bad_samples: Vec<Bad>,
    /// What the user may want to do, for people.
    suggestions: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Class {
    label: i64,
    name: String,
    /// Damaged images included.
    samples: u64,
}

#[derive(Debug, Serialize)]
struct Feature {
    name: String,
    /// Such as `1 of int64`.
    values: String,
}

#[derive(Debug, Serialize)]
struct Codec {
    name: &'static str,
    images: u64,
}

/// Least, greatest and percentiles (nearest rank).
#[derive(Debug, PartialEq, Serialize)]
struct Spread {
    min: u64,
    p5: u64,
    p50: u64,
    p95: u64,
    max: u64,
    mean: f64,
}

#[derive(Debug, Serialize)]
struct Bad {
    index: u64,
    key: String,
    kind: &'static str,
    stage: Option<&'static str>,
    /// Where its bytes begin in the file or shard.
    offset: Option<u64>,
    message: String,
    hint: Option<String>,
}

/// What one thread found.
#[derive(Debug, Default)]
struct Findings {
    labels: BTreeMap<i64, u64>,
    codecs: BTreeMap<&'static str, u64>,
    widths: Vec<u64>,
    heights: Vec<u64>,
    bytes: Vec<u64>,
    turned: u64,
    sounds: sounds::Findings,
    bad: Vec<(u64, Error)>,
}

impl Findings {
    fn add(&mut self, other: Self) {
        for (label, count) in other.labels {
            *self.labels.entry(label).or_default() += count;
        }
        for (name, count) in other.codecs {
            *self.codecs.entry(name).or_default() += count;
        }
        self.widths.extend(other.widths);
        self.heights.extend(other.heights);
        self.bytes.extend(other.bytes);
        self.turned += other.turned;
        self.sounds.add(other.sounds);
        self.bad.extend(other.bad);
    }
}

impl Inspect {
    /// Examines and reports.
    pub(crate) fn run(self) -> Result<(), Failure> {
        let detected = detect::open_with(&self.path, self.unpack_to.clone())?;
        output::note(detect::describe(&self.path, &detected));
        let source = &*detected.source;
        source.notes().iter().for_each(output::note);
        let mut found = examine(source, self.full);
        found.bad.sort_by_key(|(index, _)| *index);
        let mut codecs: Vec<Codec> =
            found.codecs.into_iter().map(|(name, images)| Codec { name, images }).collect();
        codecs.sort_by_key(|codec| std::cmp::Reverse(codec.images));
        let bad_samples = found.bad.into_iter().map(|(index, error)| Bad {
            index,
            key: source.key(index),
            kind: error.kind().name(),
            stage: error.stage(),
            offset: error.offset(),
            message: error.message().to_owned(),
            hint: error.hint().map(str::to_owned),
        });
        let mut report = Report {
            version: env!("CARGO_PKG_VERSION"),
            path: self.path,
            format: detected.format,
            samples: source.len(),
            full: self.full,
            fields: source.schema().fields.clone(),
            classes: classes(source, &found.labels),
            codecs,
            features: (detected.features.iter())
                .map(|found| Feature { name: found.name.clone(), values: found.values.clone() })
                .collect(),
            width: Spread::of(found.widths),
            height: Spread::of(found.heights),
            bytes: Spread::of(found.bytes),
            turned: found.turned,
            sounds: found.sounds.report(),
            bad_samples: bad_samples.collect(),
            suggestions: Vec::new(),
        };
        report.suggestions = advice(&report.facts());
        if self.json {
            output::json(&report)?
        } else {
            report.print()?
        }
        if report.bad_samples.is_empty() { Ok(()) } else { Err(Failure::Found) }
    }
}

/// What a field holds, for people.
fn kind_name(kind: &FieldKind) -> String {
    match kind {
        FieldKind::Image => "image".to_owned(),
        FieldKind::Audio => "audio".to_owned(),
        FieldKind::Scalar { dtype } => dtype.name().to_owned(),
        FieldKind::Array { dtype, shape } => {
            let sides = shape.iter().map(|side| side.map_or("*".to_owned(), |side| side.to_string()));
            format!("{} [{}]", dtype.name(), sides.collect::<Vec<_>>().join(", "))
        }
        FieldKind::Text => "text".to_owned(),
        FieldKind::Bytes => "bytes".to_owned(),
        other => format!("{other:?}"),
    }
}

/// Names of labels with their counts, those without a sample included.
fn classes(source: &dyn Source, labels: &BTreeMap<i64, u64>) -> Option<Vec<Class>> {
    let names = source.classes().unwrap_or_default();
    let mut counts = labels.clone();
    for label in 0..names.len() {
        counts.entry(label as i64).or_default();
    }
    let name = |label: i64| usize::try_from(label).ok().and_then(|i| names.get(i).cloned());
    let class = |(label, samples)| Class { label, name: name(label).unwrap_or(label.to_string()), samples };
    (!counts.is_empty()).then(|| counts.into_iter().map(class).collect())
}

/// Looks at all samples, on as many threads as the process may use.
fn examine(source: &dyn Source, full: bool) -> Findings {
    let (next, all) = (AtomicU64::new(0), Mutex::new(Findings::default()));
    let chunk = source.groups().map_or(0, |groups| groups.samples).max(CHUNK);
    let mut bar = Progress::new(source.len());
    bar.start(if full { "decoding" } else { "headers" }.to_owned());
    let bar = Mutex::new(bar);
    let work = || {
        let mut examiner = Examiner::new(source, full);
        loop {
            let start = next.fetch_add(chunk, Ordering::Relaxed);
            let end = start.saturating_add(chunk).min(source.len());
            if start >= end {
                break;
            }
            (start..end).for_each(|index| examiner.sample(index));
            bar.lock().unwrap_or_else(PoisonError::into_inner).add(end - start);
        }
        all.lock().unwrap_or_else(PoisonError::into_inner).add(examiner.found);
    };
    thread::scope(|scope| {
        for _ in 1..thread::available_parallelism().map_or(1, usize::from) {
            // Without more threads it only takes longer.
            drop(thread::Builder::new().spawn_scoped(scope, work));
        }
        work();
    });
    all.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Looks at samples one by one, with memory of its own.
struct Examiner<'a> {
    source: &'a dyn Source,
    full: bool,
    record: Record,
    scratch: Scratch,
    image: Image,
    found: Findings,
}

impl<'a> Examiner<'a> {
    fn new(source: &'a dyn Source, full: bool) -> Self {
        let (record, scratch, image, found) = Default::default();
        Self { source, full, record, scratch, image, found }
    }

    fn sample(&mut self, index: u64) {
        // Damaged files are what this is for: not even a defect of a decoder may end it.
        let looked = catch_unwind(AssertUnwindSafe(|| self.look(index)));
        let looked = looked.unwrap_or_else(|_| {
            // Memory that a panic may have left half-done is not used again.
            (self.record, self.scratch, self.image) = Default::default();
            Err(Error::new(ErrorKind::Internal, "the decoder panicked").with_stage("decode"))
        });
        if let Err(error) = looked {
            self.found.bad.push((index, error));
        }
    }

    fn look(&mut self, index: u64) -> wellfed::Result<()> {
        self.source.fetch(index, &mut self.record)?;
        // Damage of an image is kept until the label, which may come after it, is counted.
        let (label, mut result) = (self.source.label(), Ok(()));
        for (field, spec) in self.source.schema().fields.iter().enumerate() {
            let value = self.record.values.get(field);
            match (&spec.kind, value) {
                (&FieldKind::LABEL, Some(Value::Int(number))) if label == Some(field) => {
                    *self.found.labels.entry(*number).or_default() += 1;
                }
                (FieldKind::Pixels { height, width, channels, .. }, _) => {
                    *self.found.codecs.entry("raw pixels").or_default() += 1;
                    self.found.size(*width, *height, width * height * channels);
                }
                (FieldKind::Image | FieldKind::Audio, value) => {
                    let bytes = match value {
                        Some(Value::Bytes(bytes)) => bytes.as_slice(),
                        _ => self.source.resident(index, field).unwrap_or_default(),
                    };
                    let limits = &self.record.limits;
                    let (scratch, image) = (&mut self.scratch, &mut self.image);
                    let looked = match spec.kind {
                        FieldKind::Audio => self.found.sounds.look(bytes, self.full, limits),
                        _ => self.found.image(bytes, self.full.then_some((scratch, image)), limits),
                    };
                    result = result.and(looked.map_err(|e| {
                        let e = e.with_stage("decode");
                        match self.record.offsets.get(field) {
                            Some(offset) if *offset > 0 => e.with_offset(*offset),
                            _ => e,
                        }
                    }));
                }
                _ => {}
            }
        }
        result
    }
}

impl Findings {
    fn size(&mut self, width: usize, height: usize, bytes: usize) {
        self.widths.push(width as u64);
        self.heights.push(height as u64);
        self.bytes.push(bytes as u64);
    }

    /// Looks at the header, and with memory to decode into at all of the image.
    fn image(
        &mut self,
        bytes: &[u8],
        decode: Option<(&mut Scratch, &mut Image)>,
        limits: &Limits,
    ) -> wellfed::Result<()> {
        let (codec, header) = image_header(bytes)?;
        limits.check_pixels(header.height, header.width)?;
        if let Some((scratch, image)) = decode {
            decode_image(bytes, &Request::default(), limits, scratch, image)?;
        }
        let name = match codec.name() {
            "jpeg" => jpeg_kind(bytes).unwrap_or("JPEG"),
            "png" => "PNG",
            "webp" => "WebP",
            "gif" => "GIF",
            "tiff" => "TIFF",
            "bmp" => "BMP",
            "pnm" => "PNM",
            other => other,
        };
        *self.codecs.entry(name).or_default() += 1;
        self.turned += u64::from(header.orientation != 1);
        self.size(header.width, header.height, bytes.len());
        Ok(())
    }
}

impl Spread {
    fn of(mut values: Vec<u64>) -> Option<Self> {
        values.sort_unstable();
        let (min, max) = (*values.first()?, *values.last()?);
        let rank = |percent: usize| values[(values.len() * percent).div_ceil(100).max(1) - 1];
        let mean = values.iter().map(|v| *v as f64).sum::<f64>() / values.len() as f64;
        Some(Self { min, p5: rank(5), p50: rank(50), p95: rank(95), max, mean })
    }
}

impl Report {
    fn facts(&self) -> Facts {
        let progressive = self.codecs.iter().filter(|codec| codec.name.contains("progressive"));
        let classes = self.classes.iter().flatten();
        Facts {
            images: self.codecs.iter().map(|codec| codec.images).sum(),
            progressive: progressive.map(|codec| codec.images).sum(),
            turned: self.turned,
            // Of the typical image: the median of sides is good enough for advice.
            shorter_side: self.width.iter().chain(&self.height).map(|side| side.p50).min().unwrap_or(0),
            bad: self.bad_samples.len() as u64,
            unsupported: self
                .bad_samples
                .iter()
                .filter(|bad| bad.kind == ErrorKind::Unsupported.name())
                .count() as u64,
            empty_classes: classes.filter(|class| class.samples == 0).count() as u64,
            rates: self.sounds.as_ref().map_or_else(Vec::new, Sounds::rates),
            channels: self.sounds.as_ref().map_or_else(Vec::new, Sounds::channels),
        }
    }

    fn print(&self) -> std::io::Result<()> {
        let mut out = output::results();
        writeln!(out, "{} samples, {}", self.samples, self.format)?;
        if matches!(self.format, "parquet" | "arrow" | "csv" | "hdf5") {
            writeln!(out, "\nfields")?;
            for FieldSpec { name, kind } in &self.fields {
                writeln!(out, "  {}: {}", printable(name), kind_name(kind))?;
            }
        }
        if let Some(classes) = &self.classes {
            let mut classes: Vec<&Class> = classes.iter().collect();
            // Stable: equally frequent ones stay in the order of their labels.
            classes.sort_by_key(|class| std::cmp::Reverse(class.samples));
            // Names come last: they may be of any length and script.
            writeln!(out, "\n{:>9}  of {} classes", "samples", classes.len())?;
            for class in classes.iter().take(MAX_CLASSES) {
                writeln!(out, "{:>9}  {}", class.samples, printable(&class.name))?;
            }
            if let Some(rest) = classes.get(MAX_CLASSES..).filter(|rest| !rest.is_empty()) {
                let sum: u64 = rest.iter().map(|class| class.samples).sum();
                writeln!(out, "{sum:>9}  in {} more", rest.len())?;
            }
        }
        if !self.features.is_empty() {
            writeln!(out, "\nfeatures of the first record")?;
            for Feature { name, values } in &self.features {
                writeln!(out, "  {values:<20}  {}", printable(name))?;
            }
        }
        if !self.codecs.is_empty() {
            let images: u64 = self.codecs.iter().map(|codec| codec.images).sum();
            writeln!(out, "\n{:<22} {:>9} {:>7}", "format", "images", "share")?;
            for Codec { name, images: count } in &self.codecs {
                let share = 100.0 * *count as f64 / images as f64;
                writeln!(out, "  {name:<20} {count:>9} {share:>6.1}%")?;
            }
            writeln!(
                out,
                "\n{:<10} {:>9} {:>9} {:>9} {:>9} {:>9}",
                "size", "min", "5%", "median", "95%", "max"
            )?;
            for (name, spread) in [("width", &self.width), ("height", &self.height), ("bytes", &self.bytes)] {
                if let Some(Spread { min, p5, p50, p95, max, .. }) = spread {
                    writeln!(out, "  {name:<8} {min:>9} {p5:>9} {p50:>9} {p95:>9} {max:>9}")?;
                }
            }
        }
        if let Some(sounds) = &self.sounds {
            sounds.print(&mut out)?;
        }
        let checked = match &self.sounds {
            _ if !self.full => "headers read; --full decodes all",
            Some(_) => "all sounds decoded",
            None => "all images decoded",
        };
        writeln!(out, "\nbad samples: {} ({checked})", self.bad_samples.len())?;
        for bad in self.bad_samples.iter().take(MAX_LISTED) {
            writeln!(out, "  {}: {}", printable(&bad.key), printable(&bad.message))?;
        }
        if self.bad_samples.len() > MAX_LISTED {
            writeln!(out, "  and {} more (--json lists all)", self.bad_samples.len() - MAX_LISTED)?;
        }
        if !self.suggestions.is_empty() {
            writeln!(out, "\nsuggestions")?;
        }
        for suggestion in &self.suggestions {
            writeln!(out, "  {suggestion}")?;
        }
        out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        assert_eq!(Spread::of(vec![]), None);
        let one = Spread { min: 7, p5: 7, p50: 7, p95: 7, max: 7, mean: 7.0 };
        assert_eq!(Spread::of(vec![7]), Some(one));
        let spread = Spread::of((1..=200).rev().collect()).unwrap();
        assert_eq!((spread.p5, spread.p50, spread.p95, spread.mean), (10, 100, 190, 100.5));
    }
}
