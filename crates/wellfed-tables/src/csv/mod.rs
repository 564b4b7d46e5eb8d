//! CSV files (RFC 4180), with the arguments and the meaning of `tf.data.experimental.make_csv_dataset`.
//!
//! When files are opened, one pass over them finds where groups of rows begin (`index.rs` over `scan.rs`), and the first rows say
//! what types columns have (`infer.rs`). Then a group is read and parsed as a whole: where its fields lie (`split.rs`), and column
//! by column what they are (`column.rs`). A row with which something is wrong is an error by itself.

mod column;
mod index;
mod infer;
mod number;
mod scan;
mod split;
#[cfg(test)]
mod tests;
mod text;

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use wellfed::{
    Error, ErrorKind, Result,
    groups::Growth,
    source::{
        CsvSpec,
        tables::{CsvColumn, CsvDType, CsvType, CsvTypes},
        unpacked, unpacked_into, whole_files,
    },
    store::{EntryKind, Store, listing},
};

use self::{
    column::{Bad, Kind, Problem, shown},
    index::{Group, Wanted},
    scan::{Dialect, Scanner, State},
    split::{Fields, Flaw, unquoted},
    text::Text,
};
use crate::{
    container::{Container, Decoded, GroupInfo, Input, Opened},
    kinds::Column,
};

/// Bytes that are read at first of a file, to see its header and how long rows are; and at most.
const HEAD: u64 = 256 << 10;
const MOST_HEAD: u64 = 16 << 20;

/// Bytes of text and rows that a group should have.
const GROUP_BYTES: u64 = 1 << 20;
const GROUP_ROWS: u64 = 16384;

/// What is the same of all files.
#[derive(Debug)]
struct Common {
    dialect: Dialect,
    missing: Vec<u8>,
    schema: SchemaRef,
    kinds: Vec<Kind>,
}

/// An open file.
#[derive(Debug)]
struct CsvFile {
    text: Text,
    common: Arc<Common>,
    groups: Vec<Group>,
    infos: Vec<GroupInfo>,
}

/// Opens the files, and says which columns are taken. `others` are columns whose types are needed though they are not taken.
///
/// # Errors
/// Those of the store; [`ErrorKind::Config`] for headers that differ and columns that there are not. What is wrong with a file
/// itself is its inner error.
pub(crate) fn open(
    store: &dyn Store,
    paths: &[String],
    spec: &CsvSpec,
    others: &[String],
) -> Result<(Vec<Opened>, Option<Vec<String>>)> {
    let mut dialect = dialect(spec)?;
    let mut texts = texts(store, paths, spec)?;
    if let Some(names) = &spec.names {
        dialect.single = names.len() == 1;
    }
    let heads = listing::parallel(&texts, |text| match text {
        Ok(text) => head(store, text, dialect, spec).map(Some),
        Err(_) => Ok(None),
    })?;
    for (text, head) in texts.iter_mut().zip(&heads) {
        match (text.as_mut(), head) {
            (Ok(open), Some(Ok(head))) => open.start = head.start,
            (_, Some(Err(error))) => *text = Err(error.clone()),
            _ => {}
        }
    }
    let heads: Vec<(&Head, &str)> = heads
        .iter()
        .zip(paths)
        .filter_map(|(head, path)| Some((head.as_ref()?.as_ref().ok()?, path.as_str())))
        .collect();
    let Some((first, _)) = heads.first() else {
        // Nothing can be read of any.
        return Ok((texts.into_iter().map(|text| Err(unreadable(text))).collect(), None));
    };
    let names = names(&heads, spec)?;
    dialect.single = names.len() == 1;
    let selected = selected(&names, spec.select.as_deref())?;
    let wanted = Wanted { dialect, header: spec.header, rows: first.rows };
    let good: Vec<&Text> = texts.iter().filter_map(|text| text.as_ref().ok()).collect();
    let found = index::find(store, &good, wanted)?;
    let opened: Vec<(&Text, &[Group])> = good.iter().copied().zip(found.iter().map(Vec::as_slice)).collect();
    let kinds = kinds(store, spec, &names, &selected, others, dialect, &opened)?;
    let fields = names.iter().zip(&kinds).map(|(name, kind)| Field::new(name, data_type(kind), false));
    let common = Arc::new(Common {
        dialect,
        missing: spec.missing.clone().into_bytes(),
        schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
        kinds,
    });
    let mut found = found.into_iter();
    let open = texts.into_iter().map(|text| -> Opened {
        let text = text?;
        let groups = found.next().unwrap_or_default();
        let infos = groups.iter().map(|group| GroupInfo { rows: group.rows, offset: group.offset }).collect();
        Ok(Arc::new(CsvFile { text, common: common.clone(), groups, infos }))
    });
    let opened = open.collect();
    let taken = spec.select.is_some().then(|| selected.into_iter().map(|at| names[at].clone()).collect());
    Ok((opened, taken))
}

fn unreadable(text: Result<Text>) -> Error {
    text.err().unwrap_or_else(|| Error::new(ErrorKind::Internal, "a file has no header"))
}

fn dialect(spec: &CsvSpec) -> Result<Dialect> {
    let delimiter = u8::try_from(spec.delimiter).ok().filter(|byte| byte.is_ascii());
    match delimiter {
        Some(delimiter) if !matches!(delimiter, b'"' | b'\n' | b'\r' | 0) => {
            Ok(Dialect { delimiter, quotes: spec.quotes, single: false })
        }
        _ => Err(Error::config(format!(
            "fields are separated by {:?}; that must be one ASCII character, and no quote or end of a line",
            spec.delimiter
        ))),
    }
}

/// The bytes of each file, or what is wrong with it.
fn texts(store: &dyn Store, paths: &[String], spec: &CsvSpec) -> Result<Vec<Result<Text>>> {
    let sizes = listing::parallel(paths, |path| {
        let stat = store.stat(path)?;
        if stat.kind == EntryKind::Folder {
            return Err(Error::config(format!("{path} is a folder, not a file of rows"))
                .with_hint(format!("{path}/*.csv names the files in it")));
        }
        Ok(stat.size)
    })?;
    if let Some(folder) = &spec.unpack_to {
        let sized: Vec<(&String, u64)> = paths.iter().zip(sizes).collect();
        return listing::parallel(&sized, |(path, size)| {
            let found = unpacked_into(store, path, spec.compression, folder, "csv");
            damaged(found.map(|found| match found {
                Some((file, size)) => Text::file(path, &file, size),
                None => Text::stored(path, *size),
            }))
        });
    }
    let mut left = whole_files();
    let mut texts = Vec::with_capacity(paths.len());
    for (path, size) in paths.iter().zip(sizes) {
        let found = unpacked(store, path, spec.compression, &mut left);
        texts.push(damaged(found.map(|found| match found {
            Some(bytes) => Text::memory(path, bytes),
            None => Text::stored(path, size),
        }))?);
    }
    Ok(texts)
}

/// What is wrong with a file itself is an error of its own, and leaves the others.
fn damaged(text: Result<Text>) -> Result<Result<Text>> {
    match text {
        Err(e) if e.kind() != ErrorKind::Corrupt => Err(e),
        text => Ok(text),
    }
}

/// What the beginning of a file says.
#[derive(Debug)]
struct Head {
    /// Where its text begins.
    start: u64,
    names: Vec<String>,
    /// Rows that a group should have, by how long the first ones are.
    rows: u64,
}

fn head(store: &dyn Store, text: &Text, dialect: Dialect, spec: &CsvSpec) -> Result<Result<Head>> {
    // Names of a single column may be blank: no line is skipped before they are known.
    let mut len = HEAD.min(text.size);
    loop {
        let bytes = text.read(store, 0, len)?;
        let start = if bytes.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        let (mut scanner, mut rows) = (Scanner::new(dialect, start as u64), Vec::new());
        scanner.feed(&bytes[start..], start as u64, &mut rows);
        let open = if len == text.size { scanner.finish(len, &mut rows) } else { false };
        if rows.is_empty() && len < text.size && len < MOST_HEAD {
            len = (len * 8).min(text.size).min(MOST_HEAD);
            continue;
        }
        let wrong = |what: &str| Ok(Err(Error::corrupt(format!("{} {what}", text.path))));
        let mut names = Vec::new();
        if spec.header {
            let Some(row) = rows.first() else {
                return wrong(if text.size == start as u64 {
                    "is empty: it has no header"
                } else {
                    "has no row that could be its header"
                });
            };
            if open && rows.len() == 1 {
                return wrong("has a header whose quotes are not closed");
            }
            let line = &bytes[row.start as usize..row.end as usize];
            let Some(found) = names_in(line, dialect) else {
                return wrong(&format!("has a header with quotes in the wrong places: {}", shown(line)));
            };
            names = found;
        }
        let mean = rows.last().map_or(1, |last| (last.end - start as u64) / rows.len() as u64).max(1);
        let rows = (GROUP_BYTES / mean).max(1);
        // Round numbers, so that blocks of a shuffle are easily chosen.
        let rows = (1 << rows.ilog2()).min(GROUP_ROWS);
        return Ok(Ok(Head { start: start as u64, names, rows }));
    }
}

fn names_in(line: &[u8], dialect: Dialect) -> Option<Vec<String>> {
    // As many fields as there may be; a row of that many has no other flaw.
    let most = memchr::memchr_iter(dialect.delimiter, line).count() + 1;
    (1..=most).rev().find_map(|width| {
        let fields = Fields::split(line, width, Dialect { single: true, ..dialect }, 1);
        if !fields.flawed.is_empty() {
            return None;
        }
        let name =
            |column| String::from_utf8(unquoted(fields.raw(line, 0, column), dialect.quotes).into_owned());
        (0..width).map(name).collect::<std::result::Result<Vec<_>, _>>().ok()
    })
}

/// Names of all columns.
fn names(heads: &[(&Head, &str)], spec: &CsvSpec) -> Result<Vec<String>> {
    let names = match (&spec.names, heads) {
        (Some(names), _) => names.clone(),
        (None, _) if !spec.header => {
            return Err(Error::config("files without a header have no names of columns")
                .with_hint("give them with column_names=[...]"));
        }
        (None, [(first, path), rest @ ..]) => {
            if let Some((other, at)) = rest.iter().find(|(head, _)| head.names != first.names) {
                let shown = |head: &Head| shown(head.names.join(", ").as_bytes());
                return Err(Error::config(format!(
                    "the header of {at} is {}, and that of {path} {}",
                    shown(other),
                    shown(first)
                ))
                .with_hint("column_names=[...] names the columns, whatever headers say"));
            }
            first.names.clone()
        }
        (None, []) => Vec::new(),
    };
    if names.is_empty() {
        return Err(Error::config("there is no column"));
    }
    let mut sorted: Vec<&String> = names.iter().collect();
    sorted.sort_unstable();
    if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(Error::config(format!("two columns are called {:?}", twice[0]))
            .with_hint("column_names=[...] names them otherwise"));
    }
    Ok(names)
}

/// The columns that are taken, in the order of the file.
fn selected(names: &[String], select: Option<&[CsvColumn]>) -> Result<Vec<usize>> {
    let Some(select) = select else { return Ok((0..names.len()).collect()) };
    let find = |column: &CsvColumn| match column {
        CsvColumn::Index(at) => usize::try_from(*at).ok().filter(|at| *at < names.len()).ok_or_else(|| {
            Error::config(format!("select_columns has {at}, and there are {} columns", names.len()))
        }),
        CsvColumn::Name(name) => names.iter().position(|other| other == name).ok_or_else(|| {
            let there = names.iter().take(20).cloned().collect::<Vec<_>>().join(", ");
            Error::config(format!("there is no column {name:?}: there are {there}"))
        }),
    };
    let mut found = select.iter().map(find).collect::<Result<Vec<usize>>>()?;
    found.sort_unstable();
    if let Some(twice) = found.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(Error::config(format!("column {:?} is asked for twice", names[twice[0]])));
    }
    if found.is_empty() {
        return Err(Error::config("no column is asked for"));
    }
    Ok(found)
}

/// What each column is.
fn kinds(
    store: &dyn Store,
    spec: &CsvSpec,
    names: &[String],
    selected: &[usize],
    others: &[String],
    dialect: Dialect,
    opened: &[(&Text, &[Group])],
) -> Result<Vec<Kind>> {
    let mut given: Vec<Option<&CsvType>> = vec![None; names.len()];
    match &spec.types {
        Some(CsvTypes::All(types)) if types.len() != selected.len() => {
            return Err(Error::config(format!(
                "column_defaults has {} entries for {} columns",
                types.len(),
                selected.len()
            )));
        }
        Some(CsvTypes::All(types)) => selected.iter().zip(types).for_each(|(at, one)| given[*at] = Some(one)),
        Some(CsvTypes::Some(types)) => {
            for (name, one) in types {
                let at = names.iter().position(|other| other == name).ok_or_else(|| {
                    Error::config(format!("column_defaults names {name:?}, and there is no such column"))
                })?;
                given[at] = Some(one);
            }
        }
        None => {}
    }
    let unknown: Vec<usize> = (0..names.len())
        .filter(|at| given[*at].is_none() && (selected.contains(at) || others.contains(&names[*at])))
        .collect();
    let seen = look(store, spec, names.len(), &unknown, dialect, opened)?;
    let mut kinds = Vec::with_capacity(names.len());
    for (at, name) in names.iter().enumerate() {
        let (dtype, default) = match given[at] {
            Some(one) => (one.dtype, one.default.as_deref()),
            None => {
                let dtype = unknown.iter().position(|other| *other == at).and_then(|at| seen[at]);
                let dtype = dtype.unwrap_or(CsvDType::String);
                (dtype, Some(if dtype == CsvDType::String { "" } else { "0" }))
            }
        };
        kinds.push(Kind::new(dtype, default).ok_or_else(|| {
            let default = default.unwrap_or_default();
            Error::config(format!("the default of column {name:?} is {default:?}, which is no {dtype:?}"))
        })?);
    }
    Ok(kinds)
}

/// The least permissive types of columns that fit the first rows.
fn look(
    store: &dyn Store,
    spec: &CsvSpec,
    width: usize,
    columns: &[usize],
    dialect: Dialect,
    opened: &[(&Text, &[Group])],
) -> Result<Vec<Option<CsvDType>>> {
    let mut groups: Vec<(&Text, Group)> = Vec::new();
    let mut rows = 0;
    for (text, group) in opened.iter().flat_map(|(text, all)| all.iter().map(move |group| (*text, *group))) {
        if columns.is_empty() || spec.look_at.is_some_and(|most| rows >= most) {
            break;
        }
        let most = spec.look_at.map_or(group.rows, |most| group.rows.min(most - rows));
        rows += most;
        groups.push((text, Group { rows: most, ..group }));
    }
    let seen = listing::parallel(&groups, |(text, group)| {
        let bytes = text.read(store, group.offset, group.len)?;
        let fields = Fields::split(&bytes, width, dialect, 0);
        let mut seen = vec![None; columns.len()];
        let flawed: Vec<u32> = fields.flawed.iter().map(|(row, _)| *row).collect();
        for row in 0..fields.rows().min(usize::try_from(group.rows).unwrap_or(usize::MAX)) {
            if flawed.binary_search(&(row as u32)).is_ok() {
                continue;
            }
            for (seen, column) in seen.iter_mut().zip(columns) {
                let value = unquoted(fields.raw(&bytes, row, *column), dialect.quotes);
                // More permissive than text is nothing.
                if *seen != Some(CsvDType::String) && !value.is_empty() && *value != *spec.missing.as_bytes()
                {
                    *seen = Some(infer::of(&value)).max(*seen);
                }
            }
        }
        Ok(seen)
    })?;
    let mut all = vec![None; columns.len()];
    for seen in seen {
        all.iter_mut().zip(seen).for_each(|(all, seen)| *all = seen.max(*all));
    }
    Ok(all)
}

fn data_type(kind: &Kind) -> DataType {
    match kind {
        Kind::Int32(_) => DataType::Int32,
        Kind::Int64(_) => DataType::Int64,
        Kind::Float32(_) => DataType::Float32,
        Kind::Float64(_) => DataType::Float64,
        Kind::Text(_) => DataType::Utf8,
    }
}

impl CsvFile {
    fn parse(&self, bytes: &[u8], group: &Group, columns: &[&Column]) -> Result<Vec<Decoded>> {
        let Common { dialect, missing, schema, kinds } = &*self.common;
        let rows = usize::try_from(group.rows).unwrap_or(usize::MAX);
        let fields = Fields::split(bytes, kinds.len(), *dialect, rows);
        if fields.rows() != rows {
            return Err(Error::corrupt(format!(
                "{} was changed: there are {} rows where {rows} were found before",
                self.text.path,
                fields.rows()
            ))
            .with_offset(group.offset));
        }
        let mut bad: Bad = Bad::new();
        for (row, flaw) in &fields.flawed {
            bad.insert(*row, flawed(*flaw, kinds.len()));
        }
        let utf8 = std::str::from_utf8(bytes).is_ok();
        let parsed = column::Group { text: bytes, fields: &fields, quotes: dialect.quotes, missing, utf8 };
        let mut made = Vec::with_capacity(columns.len());
        for column in columns {
            let kind = kinds
                .get(column.root)
                .ok_or_else(|| Error::new(ErrorKind::Internal, "a column has no kind"))?;
            let cells = parsed.column(column.root, kind, &mut bad);
            made.push(Decoded { batch: rows, chunks: vec![cells], bad: Vec::new() });
        }
        if let (false, Some(first)) = (bad.is_empty(), made.first_mut()) {
            first.bad = self.errors(bytes, group, &bad, schema);
            first.chunks.iter_mut().for_each(|cells| cells.leave_out(bad.keys().copied()));
        }
        Ok(made)
    }

    /// What is wrong with each bad row, with where it stands.
    fn errors(&self, bytes: &[u8], group: &Group, bad: &Bad, schema: &Schema) -> Vec<(u32, Error)> {
        let (mut scanner, mut rows) = (Scanner::new(self.common.dialect, 0), Vec::new());
        scanner.feed(bytes, 0, &mut rows);
        let open = matches!(scanner.state, State::Row | State::Return);
        if !open || self.common.dialect.single {
            scanner.finish(bytes.len() as u64, &mut rows);
        }
        let one = |(row, Problem { column, what, hint }): (&u32, &Problem)| {
            let place = rows.get(*row as usize);
            let line = place.map_or(0, |row| row.line) + group.line + 1;
            let text =
                place.and_then(|row| bytes.get(row.start as usize..row.end as usize)).unwrap_or_default();
            let of = column.map_or_else(String::new, |at| match schema.fields().get(at) {
                Some(field) => format!("column {:?} is ", field.name()),
                None => format!("field {} is ", at + 1),
            });
            let message = format!("line {line} of {}: {of}{what}: {}", self.text.path, shown(text));
            let offset = group.offset + place.map_or(0, |row| row.start);
            let error = Error::corrupt(message).with_offset(offset);
            (*row, if let Some(hint) = hint { error.with_hint(*hint) } else { error })
        };
        bad.iter().map(one).collect()
    }
}

fn flawed(flaw: Flaw, width: usize) -> Problem {
    let quote =
        "within quotes a quote is written twice; use_quote_delim=False takes quotes for characters as others";
    let (column, what, hint) = match flaw {
        Flaw::Count(count) => {
            let fields = if count == 1 { "field" } else { "fields" };
            (None, format!("the row has {count} {fields}, and not {width}"), None)
        }
        Flaw::QuoteInside(column) => {
            (Some(column), "text with a quote in the wrong place".to_owned(), Some(quote))
        }
        Flaw::BehindQuote(column) => {
            (Some(column), "text that goes on behind its closing quote".to_owned(), Some(quote))
        }
        Flaw::Open(column) => (
            Some(column),
            "text whose quotes are not closed: all that follows in the file is within them".to_owned(),
            Some(quote),
        ),
    };
    Problem { column: column.map(|column| column as usize), what, hint }
}

impl Container for CsvFile {
    fn schema(&self) -> &SchemaRef {
        &self.common.schema
    }

    fn groups(&self) -> &[GroupInfo] {
        &self.infos
    }

    fn parts(&self, _columns: usize) -> usize {
        1
    }

    fn bytes(&self, group: usize, columns: &[&Column]) -> u64 {
        let Group { len, rows, .. } = self.groups[group];
        let kinds = || columns.iter().filter_map(|column| self.common.kinds.get(column.root));
        let texts = kinds().filter(|kind| matches!(kind, Kind::Text(_))).count() as u64;
        let values: u64 = kinds().map(|kind| kind.size().saturating_mul(rows)).sum();
        let places = Fields::bytes(rows, self.common.kinds.len());
        values.saturating_add(places).saturating_add(len * if texts > 0 { 2 } else { 1 })
    }

    fn ranges(&self, group: usize, _columns: &[&Column]) -> Vec<(u64, u64)> {
        let Group { offset, len, .. } = self.groups[group];
        if self.text.is_unpacked() { Vec::new() } else { vec![(offset, len)] }
    }

    fn decode(
        &self,
        input: Input<'_>,
        group: usize,
        columns: &[&Column],
        growth: &Growth<'_>,
    ) -> Result<(Vec<Decoded>, u64)> {
        let wanted = self.bytes(group, columns);
        let group = &self.groups[group];
        // Only a group of one row is large. Places in it are counted in 31 bits.
        let most = i32::MAX as u64;
        if group.len > most {
            let row = format!("the row in line {} of {}", group.line + 1, self.text.path);
            return Err(Error::limit(&row, group.len, most, "bytes").with_offset(group.offset));
        }
        // The text is a part of it, which is taken when it is read.
        growth.take(wanted - group.len)?;
        let made = match input {
            Input::Store(store) if self.text.is_unpacked() => {
                growth.take(group.len)?;
                self.parse(&self.text.read(store, group.offset, group.len)?, group, columns)?
            }
            _ => {
                let bytes = input.read(&self.text.path, (group.offset, group.len), growth)?;
                self.parse(&bytes, group, columns)?
            }
        };
        let held: u64 = made.iter().map(Decoded::bytes).sum();
        growth.take(held.saturating_sub(wanted))?;
        growth.give(wanted.saturating_sub(held));
        Ok((made, held))
    }
}
