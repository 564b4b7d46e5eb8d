//! `tf.train.Example` and `tf.train.SequenceExample`: a record's features become the values of a sample.
//!
//! ```text
//! Example          { Features features = 1 }
//! SequenceExample  { Features context = 1; FeatureLists feature_lists = 2 }
//! Features         { map<string, Feature> feature = 1 }         FeatureLists { map<string, FeatureList> feature_list = 1 }
//! Feature          { oneof { BytesList = 1; FloatList = 2; Int64List = 3 } }       FeatureList { repeated Feature = 1 }
//! BytesList, FloatList, Int64List { repeated value = 1, packed or not }
//! ```
//!
//! Messages: <https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/example/>. They are gone through once, where
//! they lie; features that nobody asked for are passed over. Of a feature that is there twice the last one counts, as of all
//! of protobuf's maps. One without a list of values is missing, as for `tf.io.parse_example`.

use std::ops::Range;

use super::{
    features::{FeatureDefault, FeatureForm, FeatureSpec, FeatureType},
    proto_wire::{Part, Wire},
};
use crate::{
    Error, ErrorKind, Limits, Result,
    sample::{Record, Value},
    store::reserve,
};

/// Features that are found without memory of their own.
const FEW: usize = 64;

/// What is to be read of records: made once, used for all of them.
#[derive(Debug)]
pub(super) struct Features {
    /// In the order of fields; `true` are those of feature lists.
    wanted: Vec<(FeatureSpec, bool)>,
    /// For each of them the number of its key.
    slots: Vec<usize>,
    keys: [Keys; 2],
    /// The first one that is one byte string: its bytes stay where the record was read.
    large: Option<usize>,
}

impl Features {
    /// `context` are those of `Example` or of the context of a `SequenceExample`, `steps` those of feature lists.
    pub(super) fn new(wanted: Vec<(FeatureSpec, bool)>) -> Self {
        let mut keys = [Keys::default(), Keys::default()];
        for steps in [false, true] {
            let of = wanted.iter().filter(|(_, s)| *s == steps).map(|(spec, _)| spec.key());
            keys[usize::from(steps)] = Keys::new(of);
        }
        let first = keys[0].len();
        let slot = |(spec, steps): &(FeatureSpec, bool)| {
            let slot = keys[usize::from(*steps)].find(spec.key().as_bytes()).unwrap_or_default();
            slot + if *steps { first } else { 0 }
        };
        let slots = wanted.iter().map(slot).collect();
        // Of several the image is the largest one.
        let is_image = |(spec, _): &(FeatureSpec, bool)| {
            spec.is_one_string() && matches!(spec.dtype, FeatureType::Image | FeatureType::Mask)
        };
        let large = wanted.iter().position(is_image);
        let large = large.or_else(|| wanted.iter().position(|(spec, _)| spec.is_one_string()));
        Self { wanted, slots, keys, large }
    }

    /// Number of the feature whose bytes [`Features::read`] does not copy.
    pub(super) fn large(&self) -> Option<usize> {
        self.large
    }

    /// What stands for the value of [`Features::large`] in records that lack it.
    pub(super) fn large_default(&self) -> &[u8] {
        match self.large.and_then(|large| self.wanted.get(large)).and_then(|(spec, _)| spec.default.as_ref())
        {
            Some(FeatureDefault::Bytes(bytes)) => bytes,
            _ => &[],
        }
    }

    /// Reads the features of the message `bytes` into `values` of `record`, one after the other from the first on. With
    /// `in_place` the value of [`Features::large`] is not copied: where it lies in `bytes` is given instead.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] for bytes that are no such message, and for features that are missing, of another type or of
    /// another number of values than asked for.
    pub(super) fn read(
        &self,
        bytes: &[u8],
        record: &mut Record,
        in_place: bool,
    ) -> Result<Option<Range<usize>>> {
        let (mut few, mut many) = ([None; FEW], Vec::new());
        let count = self.keys[0].len() + self.keys[1].len();
        let found: &mut [Option<Part<'_>>] = if count <= FEW {
            &mut few[..count]
        } else {
            many.resize(count, None);
            &mut many
        };
        self.find(bytes, found)?;
        let mut place = None;
        let limits = record.limits;
        for (field, ((spec, steps), slot)) in self.wanted.iter().zip(&self.slots).enumerate() {
            let (Some(value), Some(offset)) = (record.values.get_mut(field), record.offsets.get_mut(field))
            else {
                return Err(Error::new(ErrorKind::Internal, "a record has fewer fields than features"));
            };
            let part = found[*slot];
            *offset = part.map_or(0, |part| part.at as u64);
            let read = if spec.is_one_string() {
                let into = if in_place && self.large == Some(field) {
                    Sink::Place(&mut place)
                } else {
                    Sink::Value(value)
                };
                // What is decoded says where it fails, counted from its first byte.
                one_string(spec, part, into, &limits).map(|at| *offset = at.map_or(*offset, |at| at as u64))
            } else if *steps {
                read_steps(spec, part, value, &limits)
            } else {
                read_one(spec, part, value, &limits)
            };
            read.map_err(|e| about(e, spec))?;
        }
        Ok(place)
    }

    /// Where the features lie that are asked for.
    fn find<'a>(&self, bytes: &'a [u8], found: &mut [Option<Part<'a>>]) -> Result<()> {
        let (context, steps) = found.split_at_mut(self.keys[0].len());
        let mut message = Part::whole(bytes);
        while let Some((number, value)) = message.field()? {
            match (number, value) {
                (1, Wire::Bytes(map)) => entries(map, &self.keys[0], context)?,
                (2, Wire::Bytes(map)) if self.keys[1].len() > 0 => entries(map, &self.keys[1], steps)?,
                (1, _) => return Err(no_example()),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Names of features, to find their numbers by: a table of hashes.
#[derive(Debug, Default)]
struct Keys {
    names: Vec<Box<[u8]>>,
    /// Numbers of names plus one, by hash; 0 is free. A power of two, less than half of it taken.
    table: Vec<u32>,
}

impl Keys {
    fn new<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let mut this = Self::default();
        for name in names {
            if !this.names.iter().any(|known| **known == *name.as_bytes()) {
                this.names.push(name.as_bytes().into());
            }
        }
        this.table = vec![0; (4 * this.names.len()).next_power_of_two()];
        for (number, name) in (1..).zip(&this.names) {
            let mut at = hash(name) & (this.table.len() - 1);
            while this.table[at] != 0 {
                at = (at + 1) & (this.table.len() - 1);
            }
            this.table[at] = number;
        }
        this
    }

    fn len(&self) -> usize {
        self.names.len()
    }

    #[inline]
    fn find(&self, name: &[u8]) -> Option<usize> {
        let mut at = hash(name) & self.table.len().checked_sub(1)?;
        loop {
            let number = (*self.table.get(at)?).checked_sub(1)? as usize;
            if self.names.get(number).is_some_and(|known| **known == *name) {
                return Some(number);
            }
            at = (at + 1) & (self.table.len() - 1);
        }
    }
}

fn hash(name: &[u8]) -> usize {
    rapidhash::v3::rapidhash_v3(name) as usize
}

/// Notes where the values of the map `map` lie whose keys are asked for.
fn entries<'a>(mut map: Part<'a>, keys: &Keys, found: &mut [Option<Part<'a>>]) -> Result<()> {
    while let Some((number, value)) = map.field()? {
        let (1, Wire::Bytes(mut entry)) = (number, value) else {
            if number == 1 {
                return Err(no_example());
            }
            continue;
        };
        let (mut key, mut feature) = (&[][..], Part { bytes: &[], at: entry.at });
        while let Some((number, value)) = entry.field()? {
            match (number, value) {
                (1, Wire::Bytes(name)) => key = name.bytes,
                (2, Wire::Bytes(value)) => feature = value,
                (1 | 2, _) => return Err(no_example()),
                _ => {}
            }
        }
        if let Some(slot) = keys.find(key)
            && let Some(place) = found.get_mut(slot)
        {
            *place = Some(feature);
        }
    }
    Ok(())
}

/// A feature that a record has, for people and for those who guess.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundFeature {
    /// Its name.
    pub name: String,
    /// What it has, such as `1 of int64`.
    pub values: String,
    /// What its value seems to be, if it has one.
    pub single: Option<FeatureType>,
}

/// The features of an `Example`, or of the context of a `SequenceExample`, by name.
pub(super) fn describe(bytes: &[u8]) -> Result<Vec<FoundFeature>> {
    let mut found = Vec::new();
    let mut message = Part::whole(bytes);
    while let Some((number, value)) = message.field()? {
        let (1, Wire::Bytes(mut map)) = (number, value) else { continue };
        while let Some((_, Wire::Bytes(mut entry))) = map.field()? {
            let (mut key, mut lists) = (&[][..], None);
            while let Some((number, value)) = entry.field()? {
                match (number, value) {
                    (1, Wire::Bytes(name)) => key = name.bytes,
                    (2, Wire::Bytes(feature)) => lists = Lists::of(feature)?,
                    _ => {}
                }
            }
            let (mut count, mut first) = (0, Part::default());
            if let Some(lists) = &lists {
                lists.count(&mut count)?;
                if lists.kind == Kind::Bytes {
                    lists.strings(|one| {
                        first = one;
                        Ok(())
                    })?;
                }
            }
            let kind = lists.as_ref().map(|lists| lists.kind);
            let single = kind.filter(|_| count == 1).map(|kind| match kind {
                Kind::Ints => FeatureType::Int64,
                Kind::Floats => FeatureType::Float32,
                Kind::Bytes if first.bytes.starts_with(b"\xff\xd8\xff") => FeatureType::Image,
                Kind::Bytes if first.bytes.starts_with(b"\x89PNG\r\n") => FeatureType::Image,
                Kind::Bytes => FeatureType::String,
            });
            let name = String::from_utf8_lossy(key).into_owned();
            let values = kind.map_or("no values".to_owned(), |kind| format!("{count} of {}", kind.name()));
            found.push(FoundFeature { name, values, single });
        }
    }
    found.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

fn no_example() -> Error {
    Error::corrupt("the record is no tf.train.Example").with_hint("without features= records are bytes")
}

fn about(e: Error, spec: &FeatureSpec) -> Error {
    let hint = e.hint().map(str::to_owned);
    let mut named = Error::new(e.kind(), format!("feature {}: {}", spec.key(), e.message()));
    if let Some(size) = e.size() {
        named = named.with_size(size);
    }
    match hint {
        Some(hint) => named.with_hint(hint),
        None => named,
    }
}

/// What a feature has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Bytes,
    Floats,
    Ints,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Bytes => "bytes",
            Kind::Floats => "float32",
            Kind::Ints => "int64",
        }
    }

    fn of(dtype: FeatureType) -> Self {
        match dtype {
            FeatureType::Int64 => Kind::Ints,
            FeatureType::Float32 => Kind::Floats,
            _ => Kind::Bytes,
        }
    }
}

/// The lists of one feature, nearly always one.
struct Lists<'a> {
    kind: Kind,
    first: Part<'a>,
    more: Vec<Part<'a>>,
}

impl<'a> Lists<'a> {
    /// Those of `feature`; `None` if it has none. Lists of one kind are one, and of several kinds the last one counts, as
    /// protobuf has it.
    #[inline]
    fn of(mut feature: Part<'a>) -> Result<Option<Self>> {
        let mut this: Option<Self> = None;
        while let Some((number, value)) = feature.field()? {
            let kind = match number {
                1 => Kind::Bytes,
                2 => Kind::Floats,
                3 => Kind::Ints,
                _ => continue,
            };
            let Wire::Bytes(list) = value else { return Err(no_example()) };
            match &mut this {
                Some(this) if this.kind == kind => this.more.push(list),
                _ => this = Some(Self { kind, first: list, more: Vec::new() }),
            }
        }
        Ok(this)
    }

    /// Those of `feature`, if they are of `dtype`.
    #[inline]
    fn of_type(feature: Option<Part<'a>>, dtype: FeatureType) -> Result<Option<Self>> {
        let Some(lists) = feature.map(Self::of).transpose()?.flatten() else { return Ok(None) };
        if lists.kind != Kind::of(dtype) {
            return Err(Error::corrupt(format!(
                "it has values of {}, but {} is asked for",
                lists.kind.name(),
                dtype.name()
            )));
        }
        Ok(Some(lists))
    }

    fn lists(&self) -> impl Iterator<Item = Part<'a>> {
        std::iter::once(self.first).chain(self.more.iter().copied())
    }

    /// Shows all whole numbers to `each`.
    #[inline]
    fn ints(&self, mut each: impl FnMut(i64)) -> Result<()> {
        for mut list in self.lists() {
            while let Some((number, value)) = list.field()? {
                match (number, value) {
                    (1, Wire::Bytes(mut packed)) => {
                        while !packed.bytes.is_empty() {
                            each(packed.varint()? as i64);
                        }
                    }
                    (1, Wire::Varint(one)) => each(one as i64),
                    (1, _) => return Err(no_example()),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// How many whole numbers there are, by their last bytes: each has one without the high bit.
    fn count_ints(&self, count: &mut u64) -> Result<()> {
        for mut list in self.lists() {
            while let Some((number, value)) = list.field()? {
                match (number, value) {
                    (1, Wire::Bytes(packed)) => {
                        *count += packed.bytes.iter().filter(|byte| **byte < 0x80).count() as u64;
                    }
                    (1, Wire::Varint(_)) => *count += 1,
                    (1, _) => return Err(no_example()),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Shows all float32s to `each`, many at a time: little-endian bytes.
    #[inline]
    fn floats(&self, mut each: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        for mut list in self.lists() {
            while let Some((number, value)) = list.field()? {
                match (number, value) {
                    (1, Wire::Bytes(packed)) if packed.bytes.len().is_multiple_of(4) => each(packed.bytes)?,
                    (1, Wire::Fixed32(one)) => each(&one)?,
                    (1, _) => return Err(no_example()),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Shows all byte strings to `each`.
    #[inline]
    fn strings(&self, mut each: impl FnMut(Part<'a>) -> Result<()>) -> Result<()> {
        for mut list in self.lists() {
            while let Some((number, value)) = list.field()? {
                match (number, value) {
                    (1, Wire::Bytes(one)) => each(one)?,
                    (1, _) => return Err(no_example()),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn count(&self, count: &mut u64) -> Result<()> {
        match self.kind {
            Kind::Ints => self.count_ints(count),
            Kind::Floats => self.floats(|bytes| {
                *count += bytes.len() as u64 / 4;
                Ok(())
            }),
            Kind::Bytes => self.strings(|_| {
                *count += 1;
                Ok(())
            }),
        }
    }

    /// Appends the numbers as elements of an array; gives how many there are.
    fn numbers(&self, into: &mut Vec<u8>, limits: &Limits) -> Result<usize> {
        let mut count = 0;
        self.count(&mut count)?;
        let size = count.saturating_mul(if self.kind == Kind::Ints { 8 } else { 4 });
        let all = size.saturating_add(into.len() as u64);
        limits.check_bytes("the feature", all)?;
        let extra =
            usize::try_from(size).map_err(|_| Error::limit("the feature", size, u64::MAX, "bytes"))?;
        reserve(into, extra, "the feature")?;
        match self.kind {
            Kind::Ints => self.ints(|number| into.extend_from_slice(&number.to_ne_bytes()))?,
            _ => self.floats(|bytes| {
                append_floats(into, bytes);
                Ok(())
            })?,
        }
        Ok(count as usize)
    }
}

/// Appends little-endian float32s in the machine's order.
fn append_floats(into: &mut Vec<u8>, bytes: &[u8]) {
    if cfg!(target_endian = "little") {
        into.extend_from_slice(bytes);
    } else {
        bytes.chunks_exact(4).for_each(|four| into.extend(four.iter().rev()));
    }
}

/// Where a value goes.
enum Sink<'a> {
    Value(&'a mut Value),
    /// Only where it lies is noted.
    Place(&'a mut Option<Range<usize>>),
}

fn wrong_count(found: usize, spec: &FeatureSpec) -> Error {
    let wanted = spec.row();
    Error::corrupt(format!("it has {found} values, but shape {:?} takes {wanted}", spec.inner()))
        .with_hint("VarLenFeature is for features of any number of values")
}

fn missing() -> Error {
    Error::corrupt("the record lacks it").with_hint("default_value= stands for it in records that lack it")
}

/// Reads a feature of an `Example` or a context.
fn read_one(spec: &FeatureSpec, part: Option<Part<'_>>, value: &mut Value, limits: &Limits) -> Result<()> {
    let lists = Lists::of_type(part, spec.dtype)?;
    if spec.dtype.is_bytes() {
        let mut texts = Texts::new(value.buffer());
        let count = lists.as_ref().map_or(Ok(0), |lists| texts.add(lists, limits))?;
        texts.end();
        return match lists {
            None if spec.is_fixed() => Err(missing()),
            _ if spec.is_fixed() && count != spec.row() => Err(wrong_count(count, spec)),
            _ => Ok(()),
        };
    }
    let scalar = matches!(&spec.form, FeatureForm::FixedLen(shape) if shape.is_empty());
    match lists {
        Some(lists) if scalar && spec.dtype == FeatureType::Int64 => {
            let (mut number, mut count) = (0, 0);
            lists.ints(|one| (number, count) = (one, count + 1))?;
            *value = Value::Int(number);
            if count == 1 { Ok(()) } else { Err(wrong_count(count, spec)) }
        }
        Some(lists) => {
            let count = lists.numbers(value.buffer(), limits)?;
            let row = spec.row();
            if spec.is_fixed() {
                return if count == row { Ok(()) } else { Err(wrong_count(count, spec)) };
            }
            if count.is_multiple_of(row) { Ok(()) } else { Err(uneven(count, spec)) }
        }
        None if spec.is_fixed() => match &spec.default {
            Some(FeatureDefault::Int64(numbers)) if scalar => {
                *value = Value::Int(numbers.first().copied().unwrap_or_default());
                Ok(())
            }
            Some(FeatureDefault::Int64(numbers)) => {
                let buffer = value.buffer();
                numbers.iter().for_each(|number| buffer.extend_from_slice(&number.to_ne_bytes()));
                Ok(())
            }
            Some(FeatureDefault::Float32Bits(bits)) => {
                let buffer = value.buffer();
                bits.iter().for_each(|bits| buffer.extend_from_slice(&bits.to_ne_bytes()));
                Ok(())
            }
            _ => Err(missing()),
        },
        None => {
            value.buffer();
            Ok(())
        }
    }
}

fn uneven(count: usize, spec: &FeatureSpec) -> Error {
    let (shape, row) = (spec.inner(), spec.row());
    Error::corrupt(format!(
        "it has {count} values, which are no whole rows of shape {shape:?} ({row} values)"
    ))
}

/// Reads a feature that is one byte string; gives where that begins.
fn one_string(
    spec: &FeatureSpec,
    part: Option<Part<'_>>,
    into: Sink<'_>,
    limits: &Limits,
) -> Result<Option<usize>> {
    let Some(lists) = Lists::of_type(part, spec.dtype)? else {
        let Some(FeatureDefault::Bytes(default)) = &spec.default else { return Err(missing()) };
        // Without a place the caller takes the default.
        if let Sink::Value(value) = into {
            value.buffer().extend_from_slice(default);
        }
        return Ok(None);
    };
    let (mut found, mut count) = (Part::default(), 0);
    lists.strings(|one| {
        (found, count) = (one, count + 1);
        Ok(())
    })?;
    if count != 1 {
        return Err(wrong_count(count, spec));
    }
    if matches!(spec.dtype, FeatureType::Text | FeatureType::Json) {
        let text = utf8(found.bytes)?;
        // Python writes and reads NaN and Infinity, which are not JSON: those texts are left to the reader.
        let lenient = text.contains("NaN") || text.contains("Infinity");
        if spec.dtype == FeatureType::Json && !lenient {
            serde_json::from_str::<serde::de::IgnoredAny>(text)
                .map_err(|e| Error::corrupt(format!("text is not JSON: {e}")))?;
        }
    }
    match into {
        Sink::Value(value) => {
            limits.check_bytes("the feature", found.bytes.len() as u64)?;
            let buffer = value.buffer();
            reserve(buffer, found.bytes.len(), "the feature")?;
            buffer.extend_from_slice(found.bytes);
        }
        Sink::Place(place) => *place = Some(found.at..found.at + found.bytes.len()),
    }
    Ok(Some(found.at))
}

fn utf8(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes)
        .map_err(|e| Error::corrupt(format!("text is not UTF-8 from byte {} on", e.valid_up_to())))
}

/// A list of texts as JSON.
struct Texts<'a> {
    json: &'a mut Vec<u8>,
    count: usize,
}

impl<'a> Texts<'a> {
    fn new(json: &'a mut Vec<u8>) -> Self {
        json.push(b'[');
        Self { json, count: 0 }
    }

    /// Adds all of `lists`, and gives how many those are.
    fn add(&mut self, lists: &Lists<'_>, limits: &Limits) -> Result<usize> {
        let before = self.count;
        lists.strings(|text| {
            let text = utf8(text.bytes)?;
            // A character of one byte takes up to six as an escape.
            let most = (text.len() as u64).saturating_mul(6).saturating_add(self.json.len() as u64 + 4);
            if most > limits.max_bytes {
                limits.check_bytes("the feature", most)?;
            }
            if self.count > 0 {
                self.json.push(b',');
            }
            self.count += 1;
            serde_json::to_writer(&mut *self.json, text).map_err(|e| {
                Error::new(ErrorKind::Internal, format!("a text cannot be written as JSON: {e}"))
            })
        })?;
        Ok(self.count - before)
    }

    fn end(self) {
        self.json.push(b']');
    }
}

/// Reads a feature of feature lists: one step after the other.
fn read_steps(spec: &FeatureSpec, part: Option<Part<'_>>, value: &mut Value, limits: &Limits) -> Result<()> {
    let buffer = value.buffer();
    let mut list = match (part, &spec.form) {
        (Some(part), _) => part,
        (None, FeatureForm::Sequence { allow_missing: true, .. }) => Part::default(),
        (None, _) => {
            return Err(
                Error::corrupt("the record lacks it").with_hint("allow_missing=True takes it for no steps")
            );
        }
    };
    if spec.dtype.is_bytes() {
        let mut texts = Texts::new(buffer);
        each_step(spec, &mut list, |lists| texts.add(lists, limits))?;
        texts.end();
        return Ok(());
    }
    each_step(spec, &mut list, |lists| lists.numbers(buffer, limits))
}

/// Has all steps read, and checks that each has as many values as it should.
fn each_step(
    spec: &FeatureSpec,
    list: &mut Part<'_>,
    mut read: impl FnMut(&Lists<'_>) -> Result<usize>,
) -> Result<()> {
    let mut step = 0_u64;
    while let Some((number, value)) = list.field()? {
        if number != 1 {
            continue;
        }
        let Wire::Bytes(feature) = value else { return Err(no_example()) };
        let lists = Lists::of_type(Some(feature), spec.dtype)?;
        let count = lists.as_ref().map_or(Ok(0), &mut read)?;
        if count != spec.row() {
            let e = wrong_count(count, spec);
            return Err(Error::corrupt(format!("step {step}: {}", e.message())));
        }
        step += 1;
    }
    Ok(())
}

#[cfg(test)]
pub(in crate::source) mod tests;
