//! An explicit list of audio files, or of parts of them, with or without labels and texts: what manifests of speech have.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    ArrayData, Fingerprint, KeptDurations, Source, SourceSpec, beyond_the_end, copy_image, durations,
    file_list::FileList, files::check_labels, located, mp3_part::Mp3Parts, wav_part,
};
use crate::{
    Error, Limits, Result,
    io::{Bytes, Extent},
    sample::{DType, FieldKind, Record, Schema, Span, Value},
    store::{self, Store},
};

/// A list of files as data. Paths, numbers and texts are no part of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AudioFilesSpec {
    /// Number of samples.
    pub count: u64,
    /// Whether samples have a label.
    #[serde(default)]
    pub labels: bool,
    /// Whether it is said where samples begin.
    #[serde(default)]
    pub offsets: bool,
    /// Whether it is said how long samples are.
    #[serde(default)]
    pub durations: bool,
    /// Whether samples have a text.
    #[serde(default)]
    pub texts: bool,
    /// Names of classes by label; if there are any, labels are below their number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<String>,
    /// Options of the store that paths with a scheme lie in: any URL of that scheme which has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<String>,
}

/// Audio files by their paths. Fields: `audio`, and `label` and `text` if there are any.
#[derive(Debug)]
pub struct AudioFiles {
    spec: AudioFilesSpec,
    schema: Schema,
    files: FileList,
    labels: Option<ArrayData>,
    offsets: Option<Seconds>,
    durations: Option<Seconds>,
    texts: Option<Texts>,
    found: KeptDurations,
    mp3_parts: Mp3Parts,
}

/// A number of seconds for each sample.
#[derive(Debug)]
struct Seconds(ArrayData);

impl Seconds {
    fn new(array: ArrayData, name: &str, count: u64) -> Result<Self> {
        if array.dtype() != DType::Float64 || array.shape() != [count as usize] {
            return Err(Error::config(format!("{name} are {array:?} instead of float64 [{count}]")));
        }
        let this = Self(array);
        for index in 0..count {
            let seconds = this.get(index).unwrap_or_default();
            if seconds < 0.0 || seconds.is_infinite() || (name == "offsets" && seconds.is_nan()) {
                return Err(Error::config(format!(
                    "{name}[{index}] is {seconds}; must be seconds, at least 0"
                )));
            }
        }
        Ok(this)
    }

    fn get(&self, index: u64) -> Option<f64> {
        let row = self.0.row(usize::try_from(index).ok()?)?;
        Some(f64::from_ne_bytes(row.try_into().ok()?))
    }
}

/// A text for each sample: one after the other, and where each ends.
#[derive(Debug)]
struct Texts {
    text: ArrayData,
    ends: ArrayData,
}

impl Texts {
    fn new(text: ArrayData, ends: ArrayData, count: u64) -> Result<Self> {
        let fits =
            text.dtype() == DType::UInt8 && ends.dtype() == DType::Int64 && ends.shape() == [count as usize];
        if !fits {
            return Err(Error::config(format!("texts are {text:?} and {ends:?} for {count} samples")));
        }
        let whole = std::str::from_utf8(text.bytes());
        let whole =
            whole.map_err(|e| Error::config(format!("texts are not UTF-8: byte {}", e.valid_up_to())))?;
        let mut before = 0;
        for index in 0..count as usize {
            let end = usize::try_from(ends.whole(index)?).ok().filter(|end| whole.is_char_boundary(*end));
            let Some(end) = end.filter(|end| *end >= before) else {
                return Err(Error::config(format!("text {index} does not end in the texts")));
            };
            before = end;
        }
        Ok(Self { text, ends })
    }

    fn get(&self, index: u64) -> Option<&[u8]> {
        let index = usize::try_from(index).ok()?;
        let end = |index: usize| usize::try_from(self.ends.whole(index).ok()?).ok();
        let start = if index == 0 { 0 } else { end(index - 1)? };
        self.text.bytes().get(start..end(index)?)
    }
}

/// Fails for a label that is no class.
fn check_classes(labels: Option<&ArrayData>, spec: &AudioFilesSpec) -> Result<()> {
    let known = spec.classes.len();
    if known == 0 {
        return Ok(());
    }
    let labels = labels.ok_or_else(|| Error::config(format!("there are {known} classes, and no labels")))?;
    for index in 0..spec.count as usize {
        let label = labels.whole(index)?;
        if !usize::try_from(label).is_ok_and(|label| label < known) {
            return Err(Error::config(format!("labels[{index}] is {label}; there are {known} classes")));
        }
    }
    Ok(())
}

impl AudioFiles {
    /// The files of a text (uint8: paths in UTF-8, with a zero byte between each two) in `store`, or in the one store that all
    /// of them name by URL. Then, as far as `spec` says that they are there: labels (int64), offsets and durations (float64,
    /// seconds; a duration that is no number is up to the end), texts (uint8: one after the other) and where each ends (int64).
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] if they are not what `spec` says, or a path is empty or no UTF-8; what
    /// [`crate::store::registry::locate_listed`] says.
    pub fn open(store: &Arc<dyn Store>, spec: AudioFilesSpec, arrays: Vec<ArrayData>) -> Result<Self> {
        Self::build(store, spec, arrays).map_err(|e| e.with_source("audio_files"))
    }

    fn build(store: &Arc<dyn Store>, spec: AudioFilesSpec, arrays: Vec<ArrayData>) -> Result<Self> {
        let count = spec.count;
        let mut arrays = arrays.into_iter();
        let mut next =
            |name: &str| arrays.next().ok_or_else(|| Error::config(format!("there are no {name}")));
        let text = next("paths")?;
        if text.dtype() != DType::UInt8 {
            return Err(Error::config("needs the paths as one array of uint8"));
        }
        let labels = spec.labels.then(|| next("labels")).transpose()?;
        let offsets = spec.offsets.then(|| Seconds::new(next("offsets")?, "offsets", count)).transpose()?;
        let durations =
            spec.durations.then(|| Seconds::new(next("durations")?, "durations", count)).transpose()?;
        let texts = spec.texts.then(|| Texts::new(next("texts")?, next("texts")?, count)).transpose()?;
        if arrays.next().is_some() {
            return Err(Error::config("there are more arrays than the description says"));
        }
        check_labels(labels.as_ref(), spec.labels, count)?;
        check_classes(labels.as_ref(), &spec)?;
        let files = FileList::open(store, spec.storage.as_deref(), text, count)?;
        let label = spec.labels.then_some(("label", FieldKind::LABEL));
        let text = spec.texts.then_some(("text", FieldKind::Text));
        let beside: Vec<_> = label.into_iter().chain(text).collect();
        let schema = if beside.is_empty() {
            Schema::single("audio", FieldKind::Audio)
        } else {
            Schema::tuple([("audio", FieldKind::Audio)].into_iter().chain(beside))
        };
        Ok(Self {
            spec,
            schema,
            files,
            labels,
            offsets,
            durations,
            texts,
            found: KeptDurations::default(),
            mp3_parts: Mp3Parts::default(),
        })
    }

    /// The part of its file that sample `index` is; `None` is all of it.
    pub fn span(&self, index: u64) -> Option<Span> {
        if self.offsets.is_none() && self.durations.is_none() {
            return None;
        }
        let get = |seconds: &Option<Seconds>| seconds.as_ref().and_then(|seconds| seconds.get(index));
        let duration = get(&self.durations).filter(|seconds| !seconds.is_nan());
        Some(Span { offset: get(&self.offsets).unwrap_or(0.0), duration })
    }

    /// Reads the file at `path`, or no more of it than the part `span` takes: the part of what was read that the sample is.
    fn read(&self, path: &str, span: Option<Span>, record: &mut Record) -> Result<Option<Span>> {
        let (store, max_bytes) = (&**self.files.store(), record.limits.max_bytes);
        let sound = record.values[0].buffer();
        let Some(span) = span else {
            return store.read(path, max_bytes, sound).map(|()| None);
        };
        let stat = store.stat(path)?;
        if let Some(within) = self.mp3_parts.read(store, path, &stat, span, max_bytes, sound)? {
            return Ok(Some(within));
        }
        if wav_part::read(store, path, stat.size, span, max_bytes, sound)? {
            return Ok(None);
        }
        store.read(path, max_bytes, sound)?;
        self.mp3_parts.keep(path, &stat, sound);
        Ok(Some(span))
    }

    /// Sets all fields but the sound, of which the sample is the part `span`.
    fn set_others(&self, index: u64, span: Option<Span>, record: &mut Record) -> Result<()> {
        let mut field = 1;
        if let Some(labels) = &self.labels {
            let label = labels.whole(index as usize).map_err(|e| located(e, self, index))?;
            record.values[field] = Value::Int(label);
            field += 1;
        }
        if let Some(texts) = &self.texts {
            let text = texts.get(index).unwrap_or_default();
            let value = record.values[field].buffer();
            store::reserve(value, text.len(), "a text")?;
            value.extend_from_slice(text);
        }
        record.spans.push(span);
        Ok(())
    }
}

impl Source for AudioFiles {
    fn name(&self) -> String {
        format!("audio_files({} paths)", self.spec.count)
    }

    fn spec(&self) -> SourceSpec {
        SourceSpec::AudioFiles(self.spec.clone())
    }

    fn len(&self) -> u64 {
        self.spec.count
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn key(&self, index: u64) -> String {
        self.files.key(index)
    }

    fn own_name(&self, index: u64) -> String {
        self.files.own_name(index)
    }

    fn fetch(&self, index: u64, record: &mut Record) -> Result<()> {
        let Some(path) = self.files.path(index) else { return Err(beyond_the_end(self, index)) };
        record.reset(self.schema.fields.len());
        let span = self.read(path, self.span(index), record).map_err(|e| located(e, self, index))?;
        self.set_others(index, span, record)
    }

    fn store(&self) -> Option<&Arc<dyn Store>> {
        Some(self.files.store())
    }

    fn locate(&self, index: u64, limits: &Limits, extents: &mut Vec<Extent>) -> Result<()> {
        let Some(path) = self.files.path(index) else { return Err(beyond_the_end(self, index)) };
        extents.push(Extent::whole(path, limits.max_bytes));
        Ok(())
    }

    fn assemble(&self, index: u64, pieces: &[Bytes], record: &mut Record) -> Result<()> {
        if index >= self.len() {
            return Err(beyond_the_end(self, index));
        }
        record.reset(self.schema.fields.len());
        copy_image(pieces, record).map_err(|e| located(e, self, index))?;
        self.set_others(index, self.span(index), record)
    }

    fn number(&self, index: u64, field: usize) -> Option<i64> {
        let labels = self.labels.as_ref().filter(|_| field == 1)?;
        labels.whole(usize::try_from(index).ok()?).ok()
    }

    fn classes(&self) -> Option<&[String]> {
        (!self.spec.classes.is_empty()).then_some(&self.spec.classes)
    }

    fn kept_durations(&self) -> Option<&KeptDurations> {
        Some(&self.found)
    }

    fn duration(&self, index: u64, _field: usize, record: &mut Record) -> Result<f64> {
        let Some(path) = self.files.path(index) else { return Err(beyond_the_end(self, index)) };
        record.reset(1);
        let buffer = record.values[0].buffer();
        durations::of_file(&**self.files.store(), path, self.span(index), buffer)
            .map_err(|e| located(e, self, index))
    }

    fn fingerprint(&self) -> u64 {
        let mut hash = Fingerprint::new(&self.schema, self.spec.count);
        self.files.identify(&mut hash);
        for seconds in [&self.offsets, &self.durations].into_iter().flatten() {
            hash.add(seconds.0.bytes());
        }
        hash.finish()
    }

    fn stamp(&self, index: u64) -> Option<u64> {
        let label = self.labels.as_ref().and_then(|labels| labels.whole(index as usize).ok());
        let text = self.texts.as_ref().and_then(|texts| texts.get(index));
        self.files.stamp(index, &format!("{label:?}{:?}{text:?}", self.span(index)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{sample::Structure, source::conformance, store::LocalStore, testing::TempFolder};

    fn numbers(values: &[f64]) -> ArrayData {
        let bytes = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
        ArrayData::from_vec(bytes, DType::Float64, vec![values.len()]).unwrap()
    }

    fn whole(values: &[i64]) -> ArrayData {
        let bytes = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
        ArrayData::from_vec(bytes, DType::Int64, vec![values.len()]).unwrap()
    }

    fn text(text: &str) -> ArrayData {
        ArrayData::from_vec(text.as_bytes().to_vec(), DType::UInt8, vec![text.len()]).unwrap()
    }

    fn open(spec: AudioFilesSpec, arrays: Vec<ArrayData>) -> Result<AudioFiles> {
        let store: Arc<dyn Store> = Arc::new(LocalStore::new());
        AudioFiles::open(&store, spec, arrays)
    }

    #[test]
    fn parts_of_files_come_with_labels_and_texts() {
        let folder = TempFolder::new();
        folder.write("a.wav", b"sound");
        let paths = [folder.join("a.wav"), folder.join("a.wav"), folder.join("none.wav")].join("\0");
        let spec = AudioFilesSpec {
            count: 3,
            labels: true,
            offsets: true,
            durations: true,
            texts: true,
            classes: ["a", "b", "c", "d", "e", "f", "g"].map(String::from).to_vec(),
            storage: None,
        };
        let arrays = vec![
            text(&paths),
            whole(&[4, 5, 6]),
            numbers(&[0.0, 1.5, 0.0]),
            numbers(&[1.5, f64::NAN, 1.0]),
            text("héllo"),
            whole(&[3, 3, 6]),
        ];
        let source = open(spec, arrays).unwrap();
        conformance::check(&source);
        assert_eq!(source.classes().unwrap()[6], "g");
        let mut record = Record::default();
        source.fetch(0, &mut record).unwrap();
        let sound = Value::Bytes(b"sound".to_vec());
        assert_eq!(record.values, [sound, Value::Int(4), Value::Bytes("hé".as_bytes().to_vec())]);
        assert_eq!(record.spans, [Some(Span { offset: 0.0, duration: Some(1.5) })]);
        assert_eq!(source.span(1), Some(Span { offset: 1.5, duration: None }));
        assert_eq!(Span { offset: 0.29, duration: Some(0.5) }.frames(100), (28, Some(50)));
        assert_ne!(source.stamp(0), source.stamp(1));

        let bare =
            open(AudioFilesSpec { count: 1, ..AudioFilesSpec::default() }, vec![text("x.wav")]).unwrap();
        assert_eq!((&bare.schema().structure, bare.span(0)), (&Structure::Field(0), None));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let message = |spec: AudioFilesSpec, arrays| open(spec, arrays).unwrap_err().to_string();
        let one = || AudioFilesSpec { count: 1, ..AudioFilesSpec::default() };
        let with = |seconds: f64| {
            message(AudioFilesSpec { durations: true, ..one() }, vec![text("a"), numbers(&[seconds])])
        };
        assert!(with(-1.0).contains("durations[0] is -1; must be seconds"));
        assert!(with(f64::INFINITY).contains("durations[0] is inf"));
        let nowhere = vec![text("a"), numbers(&[f64::NAN])];
        assert!(message(AudioFilesSpec { offsets: true, ..one() }, nowhere).contains("offsets[0] is NaN"));
        let split = vec![text("a"), text("é"), whole(&[1])];
        assert!(message(AudioFilesSpec { texts: true, ..one() }, split).contains("text 0 does not end"));
        let named = |labels| AudioFilesSpec { labels, classes: vec!["a".into(), "b".into()], ..one() };
        for label in [-1, 2] {
            let said = message(named(true), vec![text("a"), whole(&[label])]);
            assert!(said.contains(&format!("labels[0] is {label}; there are 2 classes")), "{said}");
        }
        assert!(message(named(false), vec![text("a")]).contains("2 classes, and no labels"));
        assert!(message(one(), vec![]).contains("there are no paths"));
        assert!(message(one(), vec![text("a"), text("b")]).contains("more arrays"));
    }
}
