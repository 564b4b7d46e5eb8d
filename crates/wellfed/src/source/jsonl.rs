//! JSON lines: one object a line, one sample a line. Keys of the objects are fields.
//!
//! Where lines begin is found once, when the source is opened, in parallel; then a line is one read by position. Files that
//! are compressed (`.gz`, `.zst`) are unpacked into memory instead, as they have no middle. Lines without anything but
//! blanks are no samples. JSON has no checksum: a line that is damaged and still JSON of the same types is not found out.

use std::{borrow::Cow, sync::Arc};

use serde::{
    Deserialize, Serialize,
    de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;

use super::{
    Fingerprint, Source, SourceSpec, beyond_the_end, located, location, shards, stamp,
    unpack::{Packing, UNPACKED},
};
use crate::{
    Error, ErrorKind, Limits, Result,
    io::{Bytes, Extent},
    sample::{DType, FieldKind, FieldSpec, Record, Schema, Structure, Value},
    store::{EntryKind, Store, listing, secrets},
};

/// Bytes that are searched for ends of lines at once.
const CHUNK: u64 = 8 << 20;

/// Lines whose objects say what fields there are, and bytes of them at most.
const LOOKED_AT: usize = 100;
const MOST_LOOKED_AT: u64 = 16 << 20;

/// Characters of a bad line that its error shows.
const SHOWN: usize = 80;

/// What to open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JsonLinesSpec {
    /// Files: paths with braces or stars, `::` between several in one, plain or compressed.
    pub urls: Vec<String>,
    /// The fields, in order, handed out as a tuple. Default: a dict of the keys that the first lines have, which must be the
    /// same in all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fields: Option<Vec<JsonField>>,
}

impl JsonLinesSpec {
    /// The files `url` stands for, with all fields.
    pub fn new(url: impl Into<String>) -> Self {
        Self { urls: vec![url.into()], fields: None }
    }
}

/// One field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JsonField {
    /// Key in the objects.
    pub name: String,
    /// What it is: a number, an array with one side, text or JSON. Default: what it is in the first lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<FieldKind>,
    /// What stands for a value that is missing or null. Default: such lines are bad samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<serde_json::Value>,
}

/// One file.
#[derive(Debug)]
struct Shard {
    path: Arc<str>,
    /// Index of its first sample.
    start: u64,
    lines: Lines,
    size: u64,
    /// All of it, if it is compressed.
    unpacked: Option<Vec<u8>>,
    /// Why it has no lines, if it could not be unpacked: then it has one sample, which is this error.
    damage: Option<Error>,
}

/// Where the lines of a file lie.
#[derive(Debug, Default)]
struct Lines {
    /// Where each line that is not blank begins. It ends where the next one begins, with blank ones behind it.
    starts: Vec<u64>,
    /// How many lines that are not blank stand before each blank one.
    blank: Vec<u64>,
}

impl Shard {
    fn len(&self) -> u64 {
        self.lines.starts.len() as u64 + u64::from(self.damage.is_some())
    }

    /// Where line `index` lies, with its end.
    fn line(&self, index: usize) -> Option<(u64, u64)> {
        let start = *self.lines.starts.get(index)?;
        Some((start, self.lines.starts.get(index + 1).copied().unwrap_or(self.size)))
    }

    /// Number of a line as editors count them.
    fn number(&self, index: usize) -> u64 {
        let index = index as u64;
        1 + index + self.lines.blank.partition_point(|before| *before <= index) as u64
    }
}

/// Samples in lines of JSON.
#[derive(Debug)]
pub struct JsonLines {
    store: Arc<dyn Store>,
    spec: JsonLinesSpec,
    schema: Schema,
    /// Of each field what stands for a missing value, as JSON.
    defaults: Vec<Option<Box<RawValue>>>,
    shards: Vec<Shard>,
    len: u64,
}

impl JsonLines {
    /// Finds the files and where their lines begin.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] for a file that does not exist; [`ErrorKind::Config`] for fields that the first lines do not
    /// have or that cannot be what they are said to be, and, unless fields are named, for lines that differ in their keys.
    pub fn open(store: Arc<dyn Store>, spec: JsonLinesSpec) -> Result<Self> {
        let name = name_of(&spec);
        Self::build(store, spec).map_err(|e| e.with_source(name))
    }

    fn build(store: Arc<dyn Store>, spec: JsonLinesSpec) -> Result<Self> {
        let (store, paths) = shards::find(&store, &spec.urls)?;
        let mut shards = read(&*store, paths)?;
        let mut len = 0;
        for shard in &mut shards {
            shard.start = len;
            len += shard.len();
        }
        let schema = Schema { fields: Vec::new(), structure: Structure::Dict(Vec::new()) };
        let mut this = Self { store, spec, schema, defaults: Vec::new(), shards, len };
        let seen = if this.spec.fields.iter().flatten().all(|field| field.kind.is_some())
            && this.spec.fields.is_some()
        {
            Vec::new()
        } else {
            this.look()?
        };
        match this.spec.fields.clone() {
            Some(fields) => this.take_fields(fields, &seen)?,
            None => this.find_fields(&seen)?,
        }
        Ok(this)
    }

    /// The objects in the first lines that are such.
    fn look(&self) -> Result<Vec<Object>> {
        let (mut seen, mut failure) = (Vec::new(), None);
        for shard in &self.shards {
            if let Some(e) = &shard.damage {
                failure.get_or_insert_with(|| e.clone());
            }
            let count = shard.lines.starts.len().min(LOOKED_AT - seen.len());
            let near = |i: &usize| {
                shard.line(*i).is_some_and(|(_, end)| end - shard.lines.starts[0] <= MOST_LOOKED_AT)
            };
            let count = (0..count).take_while(near).count().max(count.min(1));
            let (Some((start, _)), Some((_, end))) =
                (shard.line(0), count.checked_sub(1).and_then(|i| shard.line(i)))
            else {
                continue;
            };
            let len = end - start;
            Limits::default().check_bytes(&shard.path, len)?;
            let bytes = match &shard.unpacked {
                Some(all) => Bytes::from(all.get(start as usize..end as usize).unwrap_or_default().to_vec()),
                None => Extent::range(shard.path.clone(), start, len).read(&*self.store)?,
            };
            for index in 0..count {
                let Some((from, to)) = shard.line(index) else { break };
                let line = bytes.get((from - start) as usize..(to - start) as usize).unwrap_or_default();
                match serde_json::from_slice(line) {
                    Ok(object) => seen.push(object),
                    Err(e) => {
                        failure.get_or_insert_with(|| bad_line(shard, index, line, &e.to_string()));
                    }
                }
            }
            if seen.len() >= LOOKED_AT {
                break;
            }
        }
        match failure {
            Some(e) if seen.is_empty() => Err(e),
            _ => Ok(seen),
        }
    }

    fn take_fields(&mut self, fields: Vec<JsonField>, seen: &[Object]) -> Result<()> {
        if fields.is_empty() {
            return Err(Error::config("fields is empty"));
        }
        for JsonField { name, kind, default } in fields {
            let kind = match kind {
                Some(kind) => kind,
                None => {
                    let values = seen.iter().filter_map(|object| object.get(&name));
                    let mut values = values.chain(&default).peekable();
                    if values.peek().is_none() && !seen.is_empty() {
                        let there = seen[0].keys().take(20).cloned().collect::<Vec<_>>().join(", ");
                        return Err(Error::config(format!(
                            "no line of the first {} has a field {name}: there are {there}",
                            seen.len()
                        )));
                    }
                    kind_of(values)
                }
            };
            self.push_field(name, kind, default)?;
        }
        let fields = (0..self.schema.fields.len()).map(Structure::Field);
        self.schema.structure = Structure::Tuple(fields.collect());
        Ok(())
    }

    /// Takes the fields that the first lines have. What only some of them have is for the user to decide.
    fn find_fields(&mut self, seen: &[Object]) -> Result<()> {
        let mut names: Vec<&String> = Vec::new();
        for name in seen.iter().flat_map(|object| object.keys()) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        if names.is_empty() {
            let message = "there is no line that says what fields there are";
            return Err(Error::config(message).with_hint("name them: fields=[\"text\", \"label\"]"));
        }
        let count = |name: &str| seen.iter().filter(|object| object.get(name).is_some()).count();
        if names.iter().any(|name| count(name) < seen.len()) {
            let counts = names.iter().take(20).map(|name| format!("{name} is in {}", count(name)));
            let counts = counts.collect::<Vec<_>>().join(", ");
            return Err(Error::config(format!("of the first {} lines {counts}", seen.len())).with_hint(
                "name the fields to take with fields=[...]; defaults={...} says what stands for those that are missing",
            ));
        }
        let kinds: Vec<_> = (names.iter())
            .map(|name| ((*name).clone(), kind_of(seen.iter().filter_map(|object| object.get(name)))))
            .collect();
        for (name, kind) in kinds {
            self.push_field(name, kind, None)?;
        }
        let fields = self.schema.fields.iter().enumerate();
        self.schema.structure =
            Structure::Dict(fields.map(|(i, field)| (field.name.clone(), Structure::Field(i))).collect());
        Ok(())
    }

    fn push_field(
        &mut self,
        name: String,
        kind: FieldKind,
        default: Option<serde_json::Value>,
    ) -> Result<()> {
        if self.schema.fields.iter().any(|field| field.name == name) {
            return Err(Error::config(format!("field {name} is asked for twice")));
        }
        let known = match &kind {
            FieldKind::Scalar { dtype } => is_readable(*dtype),
            FieldKind::Array { dtype, shape } => shape.len() == 1 && is_readable(*dtype),
            FieldKind::Text | FieldKind::Json => true,
            _ => false,
        };
        if !known {
            return Err(Error::config(format!("field {name} cannot be {kind:?}")).with_hint(
                "known are numbers, such as int64, lists of them, such as int64[*] and float32[768], text, and json",
            ));
        }
        let default = default.map(|value| serde_json::value::to_raw_value(&value)).transpose();
        let default = default.map_err(|e| Error::config(format!("defaults of {name}: {e}")))?;
        if let Some(value) = &default {
            convert(&kind, value.get(), &mut Value::Empty)
                .map_err(|what| Error::config(format!("the default of field {name} {what}")))?;
        }
        self.schema.fields.push(FieldSpec { name, kind });
        self.defaults.push(default);
        Ok(())
    }

    /// The line that sample `index` is.
    fn find(&self, index: u64) -> Result<(&Shard, usize)> {
        if index >= self.len {
            return Err(beyond_the_end(self, index));
        }
        let shard = self.shards.partition_point(|shard| shard.start <= index).saturating_sub(1);
        let shard = self.shards.get(shard).ok_or_else(|| beyond_the_end(self, index))?;
        match &shard.damage {
            Some(e) => Err(located(e.clone(), self, index)),
            None => Ok((shard, usize::try_from(index - shard.start).unwrap_or(usize::MAX))),
        }
    }

    /// Where a line lies, unless it is too long.
    fn line(&self, shard: &Shard, line: usize, limits: &Limits) -> Result<(u64, u64)> {
        let (start, end) =
            shard.line(line).ok_or_else(|| Error::new(ErrorKind::Internal, "a line is missing"))?;
        let what = || format!("line {} of {}", shard.number(line), shard.path);
        limits.check_bytes(&what(), end - start).map_err(|e| e.with_offset(start))?;
        Ok((start, end))
    }

    fn fill(&self, shard: &Shard, line: usize, bytes: &[u8], record: &mut Record) -> Result<()> {
        record.reset(self.schema.fields.len());
        let offset = shard.line(line).map_or(0, |(start, _)| start);
        record.offsets.fill(offset);
        let wrong = |what: &str| bad_line(shard, line, bytes, what).with_offset(offset);
        let text = std::str::from_utf8(bytes).map_err(|e| wrong(&e.to_string()))?;
        let mut json = serde_json::Deserializer::from_str(text.trim_start_matches('\u{feff}'));
        let found =
            Wanted(&self.schema.fields).deserialize(&mut json).and_then(|found| json.end().map(|()| found));
        let found = found.map_err(|e| wrong(&e.to_string()))?;
        for (i, FieldSpec { name, kind }) in self.schema.fields.iter().enumerate() {
            let given =
                found[i].map(RawValue::get).filter(|text| *text != "null" || *kind == FieldKind::Json);
            let given = given.or(self.defaults[i].as_ref().map(|value| value.get()));
            let Some(given) = given else {
                let what = if found[i].is_some() { "is null" } else { "is missing" };
                return Err(wrong(&format!("field {name} {what}")).with_hint(format!(
                    "a line that lacks a field is a bad sample; defaults={{{name:?}: ...}} says what stands for it"
                )));
            };
            convert(kind, given, &mut record.values[i])
                .map_err(|what| wrong(&format!("field {name} {what}")))?;
        }
        Ok(())
    }
}

/// The values of some keys of an object, by the fields' places: the last one, where a key stands twice, as in Python.
struct Wanted<'a>(&'a [FieldSpec]);

impl<'de> DeserializeSeed<'de> for Wanted<'_> {
    type Value = Vec<Option<&'de RawValue>>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> std::result::Result<Self::Value, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Wanted<'_> {
    type Value = Vec<Option<&'de RawValue>>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> std::result::Result<Self::Value, M::Error> {
        let mut found = vec![None; self.0.len()];
        while let Some(Key(key)) = map.next_key()? {
            match self.0.iter().position(|field| field.name == key) {
                Some(i) => found[i] = Some(map.next_value()?),
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(found)
    }
}

/// A key where it stands in the line, if it has no escapes.
#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

/// An object with its keys in the order in which they stand in the line.
struct Object(Vec<(String, serde_json::Value)>);

impl Object {
    fn get(&self, name: &str) -> Option<&serde_json::Value> {
        self.0.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    fn keys(&self) -> impl Iterator<Item = &String> {
        self.0.iter().map(|(key, _)| key)
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = Object;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> std::result::Result<Object, M::Error> {
                let mut all = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    all.push(entry);
                }
                Ok(Object(all))
            }
        }
        from.deserialize_map(Keys)
    }
}

/// Elements of arrays that JSON can be read as.
fn is_readable(dtype: DType) -> bool {
    !matches!(dtype, DType::Float16 | DType::BFloat16)
}

/// Reads `text` as `kind` into `value`. The error says what `text` is instead.
fn convert(kind: &FieldKind, text: &str, value: &mut Value) -> std::result::Result<(), String> {
    let instead = |what: &str, e: serde_json::Error| {
        // Where it stands in its own text tells nobody anything.
        let why = e.to_string();
        let why = why.split(" at line ").next().unwrap_or_default().to_owned();
        format!("is {}, and not {what} ({why})", short(text))
    };
    match kind {
        FieldKind::Text => {
            let text: String = serde_json::from_str(text).map_err(|e| instead("text", e))?;
            value.buffer().extend_from_slice(text.as_bytes());
        }
        FieldKind::Json => value.buffer().extend_from_slice(text.as_bytes()),
        &FieldKind::LABEL => {
            *value = Value::Int(serde_json::from_str(text).map_err(|e| instead("int64", e))?)
        }
        FieldKind::Scalar { dtype } => {
            numbers(*dtype, &format!("[{text}]"), value.buffer()).map_err(|e| instead(dtype.name(), e))?;
        }
        FieldKind::Array { dtype, shape } => {
            let name = dtype.name();
            let count = numbers(*dtype, text, value.buffer())
                .map_err(|e| instead(&format!("a list of {name}"), e))?;
            if let Some(Some(want)) = shape.first().filter(|want| **want != Some(count)) {
                return Err(format!("has {count} numbers, and not {want}"));
            }
        }
        _ => return Err(format!("cannot be {kind:?}")),
    }
    Ok(())
}

/// Appends the numbers of a JSON list, and gives how many they are.
fn numbers(dtype: DType, text: &str, into: &mut Vec<u8>) -> serde_json::Result<usize> {
    macro_rules! read {
        ($t:ty) => {{
            let all: Vec<$t> = serde_json::from_str(text)?;
            into.reserve_exact(size_of_val(all.as_slice()));
            all.iter().for_each(|one| into.extend_from_slice(&one.to_ne_bytes()));
            Ok(all.len())
        }};
    }
    match dtype {
        DType::Bool => {
            let all: Vec<bool> = serde_json::from_str(text)?;
            into.extend(all.iter().map(|one| u8::from(*one)));
            Ok(all.len())
        }
        DType::UInt8 => read!(u8),
        DType::Int8 => read!(i8),
        DType::UInt16 => read!(u16),
        DType::Int16 => read!(i16),
        DType::UInt32 => read!(u32),
        DType::Int32 => read!(i32),
        DType::UInt64 => read!(u64),
        DType::Int64 => read!(i64),
        DType::Float32 => read!(f32),
        // Fields of other types are refused when the source is opened.
        DType::Float64 | DType::Float16 | DType::BFloat16 => read!(f64),
    }
}

/// What all of these values are. Nulls are missing values, and say nothing.
fn kind_of<'a>(values: impl Iterator<Item = &'a serde_json::Value>) -> FieldKind {
    use serde_json::Value as Json;
    let number = |value: &Json| match value {
        Json::Bool(_) => Some(DType::Bool),
        Json::Number(n) if n.is_f64() => Some(DType::Float64),
        Json::Number(n) if n.as_i64().is_some() => Some(DType::Int64),
        _ => None,
    };
    let both = |a: Option<DType>, b: Option<DType>| match (a?, b?) {
        (a, b) if a == b => Some(a),
        (DType::Int64, DType::Float64) | (DType::Float64, DType::Int64) => Some(DType::Float64),
        _ => None,
    };
    let (mut kind, mut empty) = (None, false);
    for value in values.filter(|value| !value.is_null()) {
        let this = match value {
            Json::String(_) => FieldKind::Text,
            // It may be a list of anything.
            Json::Array(items) if items.is_empty() => {
                empty = true;
                continue;
            }
            Json::Array(items) => {
                let mut all = items.iter().map(number);
                let dtype = all.next().and_then(|first| all.fold(first, both));
                dtype.map_or(FieldKind::Json, |dtype| FieldKind::Array { dtype, shape: vec![None] })
            }
            value => number(value).map_or(FieldKind::Json, |dtype| FieldKind::Scalar { dtype }),
        };
        let promoted = |a, b| both(Some(a), Some(b));
        kind = Some(match (kind, this) {
            (None, this) => this,
            (Some(FieldKind::Scalar { dtype: a }), FieldKind::Scalar { dtype: b }) => {
                promoted(a, b).map_or(FieldKind::Json, |dtype| FieldKind::Scalar { dtype })
            }
            (Some(FieldKind::Array { dtype: a, shape }), FieldKind::Array { dtype: b, .. }) => {
                promoted(a, b).map_or(FieldKind::Json, |dtype| FieldKind::Array { dtype, shape })
            }
            (Some(kind), this) if kind == this => kind,
            _ => FieldKind::Json,
        });
    }
    match kind {
        Some(kind) if !empty || matches!(kind, FieldKind::Array { .. }) => kind,
        _ => FieldKind::Json,
    }
}

fn short(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

fn bad_line(shard: &Shard, line: usize, bytes: &[u8], what: &str) -> Error {
    let text = String::from_utf8_lossy(bytes.get(..SHOWN * 4).unwrap_or(bytes)).into_owned();
    // The parser counts lines of what it was given: there is only one.
    let what = what.replace(" at line 1 column", " at column");
    Error::corrupt(format!("line {} of {}: {what}: {}", shard.number(line), shard.path, short(text.trim())))
}

/// Finds the lines of all files.
fn read(store: &dyn Store, paths: Vec<String>) -> Result<Vec<Shard>> {
    let mut left = UNPACKED;
    let mut shards = Vec::with_capacity(paths.len());
    let mut chunks = Vec::new();
    let starts = listing::parallel(&paths, |path| {
        let stat = store.stat(path)?;
        if stat.kind == EntryKind::Folder {
            return Err(Error::config(format!("{path} is a folder, not a file of lines"))
                .with_hint(format!("{path}/*.jsonl names the files in it")));
        }
        let mut start = Vec::new();
        store.read_range(path, 0, stat.size.min(4) as usize, &mut start)?;
        Ok((stat.size, Packing::of(path, &start)))
    })?;
    for (path, (size, packing)) in paths.into_iter().zip(starts) {
        let path: Arc<str> = path.into();
        let mut shard = Shard {
            path: path.clone(),
            start: 0,
            lines: Lines::default(),
            size,
            unpacked: None,
            damage: None,
        };
        if let Some(packing) = packing {
            let mut packed = Vec::new();
            store.read(&path, left, &mut packed)?;
            match packing.unpack(&path, &packed, left) {
                Ok(bytes) => {
                    left -= bytes.len() as u64;
                    shard.size = bytes.len() as u64;
                    shard.lines = Lines::of([Found::search(&bytes, 0)], shard.size);
                    shard.unpacked = Some(bytes);
                }
                Err(e) if e.kind() == ErrorKind::Corrupt => shard.damage = Some(e),
                Err(e) => return Err(e),
            }
        } else {
            let number = shards.len();
            chunks.extend((0..size).step_by(CHUNK as usize).map(|start| (number, path.clone(), start..size)));
        }
        shards.push(shard);
    }
    let found = listing::parallel(&chunks, |(_, path, rest)| {
        let len = (rest.end - rest.start).min(CHUNK) as usize;
        let mut bytes = Vec::new();
        store.read_range(path, rest.start, len, &mut bytes)?;
        Ok(Found::search(&bytes, rest.start))
    })?;
    let mut of: Vec<Vec<Found>> = shards.iter().map(|_| Vec::new()).collect();
    for ((number, ..), found) in chunks.iter().zip(found) {
        of[*number].push(found);
    }
    for (shard, found) in shards.iter_mut().zip(of).filter(|(_, found)| !found.is_empty()) {
        shard.lines = Lines::of(found, shard.size);
    }
    Ok(shards)
}

/// What a piece of a file says about lines. Those that it cuts are put together by [`Lines::of`].
struct Found {
    /// Whether there is more than blanks before its first end of a line, or in all of it.
    head: bool,
    /// Lines that begin and end in it.
    lines: Lines,
    /// Where the line begins that its end cuts, and whether it is more than blanks so far. `None`: no line ends in it.
    tail: Option<(u64, bool)>,
}

impl Found {
    /// Looks at `bytes`, which lie at `start` in their file.
    fn search(bytes: &[u8], start: u64) -> Self {
        let is_text = |line: &[u8]| line.iter().any(|b| !matches!(b, b' ' | b'\t' | b'\r'));
        let mut ends = memchr::memchr_iter(b'\n', bytes);
        let Some(first) = ends.next() else {
            return Self { head: is_text(bytes), lines: Lines::default(), tail: None };
        };
        let (mut lines, mut begin) = (Lines::default(), first + 1);
        for end in ends {
            lines.push(start + begin as u64, is_text(&bytes[begin..end]));
            begin = end + 1;
        }
        let tail = Some((start + begin as u64, is_text(&bytes[begin..])));
        Self { head: is_text(&bytes[..first]), lines, tail }
    }
}

impl Lines {
    fn push(&mut self, start: u64, text: bool) {
        if text {
            self.starts.push(start);
        } else {
            self.blank.push(self.starts.len() as u64);
        }
    }

    /// The lines of a file of `size` bytes whose pieces were searched.
    fn of(pieces: impl IntoIterator<Item = Found>, size: u64) -> Self {
        let (mut all, mut open) = (Self::default(), (0, false));
        for Found { head, lines, tail } in pieces {
            open.1 |= head;
            let Some(tail) = tail else { continue };
            all.push(open.0, open.1);
            let before = all.starts.len() as u64;
            all.blank.extend(lines.blank.iter().map(|n| n + before));
            all.starts.extend(lines.starts);
            open = tail;
        }
        if open.0 < size && open.1 {
            all.starts.push(open.0);
        }
        all.starts.shrink_to_fit();
        all
    }
}

impl Source for JsonLines {
    fn name(&self) -> String {
        name_of(&self.spec)
    }

    fn spec(&self) -> SourceSpec {
        SourceSpec::Jsonl(self.spec.clone())
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    /// `file.jsonl:line`, as editors count lines.
    fn key(&self, index: u64) -> String {
        if index >= self.len {
            return String::new();
        }
        let shard = self.shards.partition_point(|shard| shard.start <= index).saturating_sub(1);
        self.shards.get(shard).map_or_else(String::new, |shard| match &shard.damage {
            Some(_) => format!("{}/__damaged__", shard.path),
            None => format!("{}:{}", shard.path, shard.number((index - shard.start) as usize)),
        })
    }

    fn fetch(&self, index: u64, record: &mut Record) -> Result<()> {
        let (shard, line) = self.find(index)?;
        let read = || {
            let (start, end) = self.line(shard, line, &record.limits)?;
            match &shard.unpacked {
                Some(all) => Ok(Cow::Borrowed(all.get(start as usize..end as usize).unwrap_or_default())),
                None => {
                    let mut bytes = Vec::new();
                    self.store.read_range(&shard.path, start, (end - start) as usize, &mut bytes)?;
                    Ok(Cow::Owned(bytes))
                }
            }
        };
        let filled = read().and_then(|bytes| self.fill(shard, line, &bytes, record));
        filled.map_err(|e| located(e, self, index))
    }

    fn store(&self) -> Option<&Arc<dyn Store>> {
        (!self.in_memory()).then_some(&self.store)
    }

    fn locate(&self, index: u64, limits: &Limits, extents: &mut Vec<Extent>) -> Result<()> {
        let (shard, line) = self.find(index)?;
        let (start, end) = self.line(shard, line, limits).map_err(|e| located(e, self, index))?;
        if shard.unpacked.is_none() {
            extents.push(Extent::range(shard.path.clone(), start, end - start));
        }
        Ok(())
    }

    fn assemble(&self, index: u64, pieces: &[Bytes], record: &mut Record) -> Result<()> {
        let (shard, line) = self.find(index)?;
        if shard.unpacked.is_some() {
            return self.fetch(index, record);
        }
        let piece = pieces.first().ok_or_else(|| Error::new(ErrorKind::Internal, "a piece is missing"))?;
        self.fill(shard, line, piece, record).map_err(|e| located(e, self, index))
    }

    fn in_memory(&self) -> bool {
        self.shards.iter().all(|shard| shard.unpacked.is_some() || shard.damage.is_some())
    }

    fn fingerprint(&self) -> u64 {
        let mut hash = Fingerprint::new(&self.schema, self.len);
        for shard in &self.shards {
            let path = secrets::identity(&shard.path);
            hash.add(path.rsplit('/').next().unwrap_or_default().as_bytes());
            hash.number(shard.len());
            hash.number(shard.size);
        }
        hash.finish()
    }

    fn stamp(&self, index: u64) -> Option<u64> {
        let (shard, line) = self.find(index).ok()?;
        let stat = self.store.stat(&shard.path).ok()?;
        Some(stamp(&format!("{}@{}", location(&shard.path), shard.line(line)?.0), &stat))
    }
}

fn name_of(spec: &JsonLinesSpec) -> String {
    match spec.urls.as_slice() {
        [url] => format!("jsonl({})", secrets::shown(url)),
        [url, ..] => format!("jsonl({} and {} more)", secrets::shown(url), spec.urls.len() - 1),
        [] => "jsonl()".to_owned(),
    }
}

#[cfg(test)]
mod tests;
