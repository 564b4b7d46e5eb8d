//! [`Table`]: the rows of some files as samples, in the order of files and rows.
//!
//! Rows are reached by their group, which is decoded as a whole and kept by the engine as long as it has room. A file that
//! cannot be opened, or whose end is lost, keeps what can be read and gets one more, last sample whose fetch says what is wrong.

use std::{cell::RefCell, sync::Arc};

use arrow_schema::Schema as ArrowSchema;
use wellfed::{
    Error, ErrorKind, Result,
    groups::{self, Decode, GroupSizes, Growth, Owner, Part, Warmed},
    io::{Bytes, Extent},
    sample::{FieldKind, Record, Schema, Structure, Value},
    source::{
        Fingerprint, Gather, Part as Place, Source, SourceSpec, TableFormat, TableSpec, Wanted,
        beyond_the_end, located, location, stamp,
        tables::{Condition, Stack},
    },
    store::{Store, listing, secrets},
};

use crate::{
    cells::Missing,
    container::{Container, Decoded, Input, Opened},
    csv,
    filter::Test,
    gather::{self, Picked},
    ipc,
    kinds::{self, Column, Features},
    parquet, paths,
    stack::Layout,
};

/// Opens the source that `spec` describes.
pub(crate) fn open(store: Arc<dyn Store>, spec: TableSpec) -> Result<Arc<dyn Source>> {
    let name = name_of(&spec);
    Table::build(&store, spec)
        .map(|table| Arc::new(table) as Arc<dyn Source>)
        .map_err(|e| e.with_source(name))
}

fn name_of(spec: &TableSpec) -> String {
    let format = spec.format.name();
    match spec.urls.as_slice() {
        [url] => format!("{format}({})", secrets::shown(url)),
        [url, ..] => format!("{format}({} and {} more)", secrets::shown(url), spec.urls.len() - 1),
        [] => format!("{format}()"),
    }
}

#[derive(Clone, Debug)]
struct File {
    path: Arc<str>,
    opened: Opened,
    /// Its columns that are decoded, in order.
    columns: Vec<Column>,
    /// What they become: the fields, in order.
    fields: Vec<Column>,
    /// Number of rows, whichever are taken.
    rows: u64,
}

/// Some rows that are decoded together, or the one sample that stands for damage.
#[derive(Clone, Debug)]
struct Group {
    file: usize,
    /// Its number in the file; `None` for damage.
    number: Option<usize>,
    /// The number of its first row in the file.
    first: u64,
    /// Samples.
    len: u64,
    /// The rows that are taken, if not all.
    kept: Option<Vec<u32>>,
}

/// What gathering works with.
#[derive(Default)]
struct Scratch {
    picked: Vec<Picked>,
    numbers: Vec<u64>,
    ready: Vec<Option<Arc<[Part]>>>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Rows of tables.
#[derive(Debug)]
struct Table {
    store: Arc<dyn Store>,
    spec: TableSpec,
    schema: Schema,
    layout: Layout,
    files: Vec<File>,
    groups: Vec<Group>,
    /// Where each group begins.
    starts: Vec<u64>,
    len: u64,
    /// The field that is a class, and names of classes.
    classes: Option<(usize, Vec<String>)>,
    sizes: GroupSizes,
    owner: Owner,
}

impl Table {
    fn build(local: &Arc<dyn Store>, spec: TableSpec) -> Result<Self> {
        let (store, paths) = paths::find(local, &spec)?;
        let mut chosen = spec.columns.clone();
        let opened = match (spec.format, &spec.csv) {
            (TableFormat::Parquet, None) => {
                listing::parallel_at(&*store, &paths, |path| parquet::open(&*store, path))?
            }
            (TableFormat::Arrow, None) => {
                listing::parallel_at(&*store, &paths, |path| ipc::open(&*store, path))?
            }
            (TableFormat::Csv, given) => {
                let mut others: Vec<String> = spec.columns.iter().flatten().cloned().collect();
                others.extend(spec.filters.iter().flatten().map(|condition| condition.0.clone()));
                let (opened, selected) =
                    csv::open(&*store, &paths, &given.clone().unwrap_or_default(), &others)?;
                chosen = chosen.or(selected);
                opened
            }
            (format, Some(_)) => {
                return Err(Error::config(format!("{} is not read as CSV is", format.name())));
            }
        };
        let mut files: Vec<File> = Vec::with_capacity(paths.len());
        let first = match (
            opened.iter().zip(&paths).find_map(|(file, path)| Some((file.as_ref().ok()?, path))),
            opened.first(),
        ) {
            (Some((first, path)), _) => Some((first.clone(), path.clone())),
            (None, Some(Err(error))) => return Err(error.clone()),
            (None, _) => return Err(Error::config("there is no file")),
        };
        let Some((first, first_path)) = first else { return Err(Error::config("there is no file")) };
        let columns =
            kinds::columns(first.schema(), chosen.as_deref(), spec.images.as_deref(), spec.audio.as_deref())?;
        let layout = Layout::new(&columns, &spec.stacks)?;
        let classes = classes_of(first.schema(), &columns, &layout);
        let names: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
        for (path, opened) in paths.iter().zip(opened) {
            let (mut own, mut rows) = (Vec::new(), 0);
            if let Ok(file) = &opened {
                own = kinds::columns(
                    file.schema(),
                    Some(&names),
                    spec.images.as_deref(),
                    spec.audio.as_deref(),
                )
                .map_err(|e| Error::new(e.kind(), format!("{path}: {}", e.message())))?;
                // What an image is may be said by the first file only.
                for (have, want) in own.iter_mut().zip(&columns) {
                    if have.data_type != want.data_type {
                        return Err(Error::config(format!(
                            "column {:?} is {} in {path}, and {} in {first_path}",
                            want.name, have.data_type, want.data_type
                        )));
                    }
                    have.kind = want.kind.clone();
                }
                rows = file.groups().iter().map(|group| group.rows).sum();
            }
            let fields = if own.is_empty() { Vec::new() } else { layout.fields(&own) };
            files.push(File { path: path.as_str().into(), opened, columns: own, fields, rows });
        }
        let schema = schema_of(&spec, &layout.fields(&columns))?;
        let sizes = GroupSizes { count: 0, samples: 0, largest: 0, all: 0 };
        let mut this = Self {
            store,
            spec,
            schema,
            layout,
            files,
            groups: Vec::new(),
            starts: Vec::new(),
            len: 0,
            classes,
            sizes,
            owner: Owner::default(),
        };
        this.find_groups()?;
        Ok(this)
    }

    /// The same files with one more stack. They are not opened again.
    fn with_stack(&self, stack: &Stack) -> Result<Self> {
        let mut spec = self.spec.clone();
        spec.stacks.push(stack.clone());
        let mut files = self.files.clone();
        let first =
            files.iter().find_map(|file| Some((file.opened.as_ref().ok()?.clone(), file.columns.clone())));
        let (first, columns) = first.ok_or_else(|| Error::config("there is no file"))?;
        let layout = Layout::new(&columns, &spec.stacks)?;
        for file in files.iter_mut().filter(|file| file.opened.is_ok()) {
            file.fields = layout.fields(&file.columns);
        }
        let schema = schema_of(&spec, &layout.fields(&columns))?;
        let classes = classes_of(first.schema(), &columns, &layout);
        let mut sizes = self.sizes;
        let widest = self.groups.iter().map(|group| group.len).max().unwrap_or(0);
        sizes.largest = sizes.largest.saturating_add(layout.bytes(widest));
        sizes.all = sizes.all.saturating_add(layout.bytes(self.len));
        Ok(Self {
            store: self.store.clone(),
            spec,
            schema,
            layout,
            files,
            groups: self.groups.clone(),
            starts: self.starts.clone(),
            len: self.len,
            classes,
            sizes,
            owner: Owner::default(),
        })
    }

    fn find_groups(&mut self) -> Result<()> {
        let mut all = Vec::new();
        for (number, file) in self.files.iter().enumerate() {
            let container = match &file.opened {
                Ok(container) => container,
                Err(_) => {
                    all.push(Group { file: number, number: None, first: 0, len: 1, kept: None });
                    continue;
                }
            };
            let mut first = 0;
            for (group, info) in container.groups().iter().enumerate() {
                all.push(Group { file: number, number: Some(group), first, len: info.rows, kept: None });
                first += info.rows;
            }
            if container.damage().is_some() {
                all.push(Group { file: number, number: None, first, len: 1, kept: None });
            }
        }
        if !self.spec.filters.is_empty() {
            all = self.filtered(all)?;
        }
        for group in all.into_iter().filter(|group| group.len > 0) {
            self.starts.push(self.len);
            self.len += group.len;
            if let Some((container, file, number)) = self.decodable(&group) {
                let columns: Vec<&Column> = file.columns.iter().collect();
                let rows = container.groups().get(number).map_or(0, |group| group.rows);
                let bytes = container.bytes(number, &columns).saturating_add(self.layout.bytes(rows));
                self.sizes.count += 1;
                self.sizes.samples = self.sizes.samples.max(group.len);
                self.sizes.largest = self.sizes.largest.max(bytes);
                self.sizes.all = self.sizes.all.saturating_add(bytes);
            }
            self.groups.push(group);
        }
        Ok(())
    }

    /// The file and the number of what can be decoded.
    fn decodable(&self, group: &Group) -> Option<(&Arc<dyn Container>, &File, usize)> {
        let file = &self.files[group.file];
        Some((file.opened.as_ref().ok()?, file, group.number?))
    }

    /// Leaves out rows for which the filters do not hold: groups as a whole by what files say of them, the others row by row.
    fn filtered(&self, all: Vec<Group>) -> Result<Vec<Group>> {
        let conditions: Vec<&Condition> = self.spec.filters.iter().flatten().collect();
        let mut names: Vec<String> = conditions.iter().map(|condition| condition.0.clone()).collect();
        names.sort_unstable();
        names.dedup();
        // What is filtered by need not be a field.
        let mut by_file: Vec<Vec<Column>> = Vec::with_capacity(self.files.len());
        for file in &self.files {
            by_file.push(match &file.opened {
                Ok(container) => kinds::columns(container.schema(), Some(&names), None, None)
                    .map_err(|e| Error::new(e.kind(), format!("filters: {}: {}", file.path, e.message())))?,
                Err(_) => Vec::new(),
            });
        }
        let find =
            |columns: &[Column], condition: &Condition| columns.iter().position(|c| c.name == condition.0);
        for columns in &by_file {
            for condition in conditions.iter().filter(|_| !columns.is_empty()) {
                let column =
                    find(columns, condition).ok_or_else(|| Error::config("a filter has no column"))?;
                Test::new(condition, &columns[column])?;
            }
        }
        listing::parallel(&all, |group| {
            let same =
                |kept, len| Group { kept, len, file: group.file, number: group.number, first: group.first };
            let Some((container, file, number)) = self.decodable(group) else {
                return Ok(same(None, group.len));
            };
            let columns = &by_file[group.file];
            let excluded = self.spec.filters.iter().all(|all_of| {
                all_of.iter().any(|condition| {
                    let column = find(columns, condition).map(|at| &columns[at]);
                    column.is_some_and(|column| container.excludes(number, column, condition))
                })
            });
            if excluded || group.len == 0 {
                return Ok(same(None, 0));
            }
            let wanted: Vec<&Column> = columns.iter().collect();
            let (decoded, _) =
                container.decode(Input::Store(&*self.store), number, &wanted, &Growth::unbounded())?;
            let mut kept = Vec::new();
            let tests = self.spec.filters.iter().map(|all_of| {
                let test = |condition: &Condition| {
                    let at =
                        find(columns, condition).ok_or_else(|| Error::config("a filter has no column"))?;
                    Ok((at, Test::new(condition, &columns[at])?))
                };
                all_of.iter().map(test).collect::<Result<Vec<(usize, Test)>>>()
            });
            let tests = tests.collect::<Result<Vec<_>>>()?;
            for row in 0..group.len {
                let holds = |(at, test): &(usize, Test)| {
                    decoded[*at].at(row as usize).is_some_and(|(cells, row)| test.holds(cells, row))
                };
                // A row that cannot be compared is not left out in silence.
                let bad = decoded.first().is_some_and(|first| first.error(row).is_some());
                if bad || tests.iter().any(|all_of| all_of.iter().all(holds)) {
                    kept.push(u32::try_from(row).map_err(|_| lost_row(&file.path, row))?);
                }
            }
            let len = kept.len() as u64;
            Ok(same((len < group.len).then_some(kept), len))
        })
    }

    /// The group of sample `index`, and which of its samples that is.
    fn find(&self, index: u64) -> Option<(usize, u64)> {
        if index >= self.len {
            return None;
        }
        let number = self.starts.partition_point(|start| *start <= index) - 1;
        Some((number, index - self.starts[number]))
    }

    /// The row in its group.
    fn row(group: &Group, sample: u64) -> u64 {
        match &group.kept {
            Some(kept) => {
                usize::try_from(sample).ok().and_then(|at| kept.get(at)).map_or(0, |row| u64::from(*row))
            }
            None => sample,
        }
    }

    /// The rows that are wanted, those of one group together.
    fn pick(&self, wanted: &[Wanted], picked: &mut Vec<Picked>) {
        picked.clear();
        // Neighbours often lie in one group.
        let mut last = 0..0;
        let (mut number, mut start) = (0, 0);
        for Wanted { index, row: place } in wanted {
            if !last.contains(index) {
                let Some((found, sample)) = self.find(*index) else { continue };
                (number, start) = (found, index - sample);
                last = start..start + self.groups[number].len;
            }
            let row = Self::row(&self.groups[number], index - start);
            if let (Ok(group), Ok(row)) = (u32::try_from(number), u32::try_from(row)) {
                picked.push(Picked { group, row, place: *place });
            }
        }
        if !picked.is_sorted_by_key(|picked| picked.group) {
            picked.sort_unstable_by_key(|picked| picked.group);
        }
    }

    fn decoder<'a>(
        &'a self,
        container: &'a Arc<dyn Container>,
        file: &'a File,
        number: usize,
    ) -> Decoder<'a> {
        Decoder {
            store: &*self.store,
            path: &file.path,
            container: &**container,
            number,
            columns: &file.columns,
            layout: &self.layout,
        }
    }

    fn decoded(&self, number: usize, record: &Record) -> Result<Rows> {
        let group = &self.groups[number];
        let file = &self.files[group.file];
        let error = match (&file.opened, group.number) {
            (Err(error), _) => error.clone(),
            (Ok(container), None) => container.damage().cloned().unwrap_or_else(|| Error::corrupt("damage")),
            (Ok(container), Some(inner)) => {
                let decoder = self.decoder(container, file, inner);
                let parts = groups::group(record.groups.as_deref(), &self.owner, number as u64, &decoder)?;
                return Ok(Rows { parts });
            }
        };
        Err(error)
    }

    fn fill(&self, number: usize, sample: u64, record: &mut Record) -> Result<()> {
        let rows = self.decoded(number, record)?;
        let group = &self.groups[number];
        let file = &self.files[group.file];
        let row = Self::row(group, sample);
        if let Some(error) = rows.error(row) {
            return Err(error.clone());
        }
        record.reset(self.schema.fields.len());
        let limits = record.limits;
        for (field, column) in file.fields.iter().enumerate() {
            let found = rows.column(field).and_then(|decoded| decoded.at(row as usize));
            let (cells, at) = found.ok_or_else(|| lost_row(&file.path, row))?;
            let bytes = cells.len(at) as u64;
            if bytes > limits.max_bytes {
                limits.check_bytes(&format!("column {:?}", column.name), bytes)?;
            }
            let missing = |what| missing(what, &column.name, &column.kind, group.first + row, &file.path);
            if column.kind == FieldKind::LABEL {
                let bytes = cells.slice(at).map_err(missing)?;
                let number = bytes.try_into().map_err(|_| missing(Missing::Lost))?;
                record.values[field] = Value::Int(i64::from_ne_bytes(number));
                continue;
            }
            let mut shape = std::mem::take(&mut record.shapes[field]);
            shape.clear();
            let buffer = record.values[field].buffer();
            cells.copy(at, column.size, buffer, &mut shape).map_err(missing)?;
            match &column.kind {
                // Lists of fixed size in lists come as what they lie in: one number of elements, or several sides.
                FieldKind::Array { shape: sides, .. } => {
                    let open = sides.iter().filter(|side| side.is_none()).count();
                    if open > 1 {
                        complete(&mut shape, sides).ok_or_else(|| missing(Missing::Uneven))?;
                        record.shapes[field] = shape;
                    }
                }
                FieldKind::Text if std::str::from_utf8(buffer).is_err() => {
                    return Err(Error::corrupt(format!("column {:?} is not UTF-8", column.name)));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// The field that is a class, and names of classes.
fn classes_of(schema: &ArrowSchema, columns: &[Column], layout: &Layout) -> Option<(usize, Vec<String>)> {
    let (column, names) = Features::of(schema).classes(columns)?;
    Some((layout.field_of(column)?, names))
}

fn schema_of(spec: &TableSpec, fields: &[Column]) -> Result<Schema> {
    let fields = fields.iter().map(|column| (column.name.as_str(), column.kind.clone()));
    let mut schema = if spec.tuple { Schema::tuple(fields) } else { Schema::dict(fields) };
    if let Some(label) = &spec.label {
        if spec.stacks.iter().flat_map(|stack| &stack.columns).any(|stacked| stacked.column == *label) {
            return Err(Error::config(format!("column {label:?} is the label, and cannot be stacked")));
        }
        set_apart(&mut schema, label)?;
    }
    Ok(schema)
}

/// Makes pairs of the dict of all fields but `label`, and that field.
fn set_apart(schema: &mut Schema, label: &str) -> Result<()> {
    let Structure::Dict(mut features) = schema.structure.clone() else {
        return Err(Error::config("a label is set apart from a dict, and not from a tuple"));
    };
    let at = features.iter().position(|(name, _)| name == label).ok_or_else(|| {
        let there: Vec<&str> = features.iter().take(20).map(|(name, _)| name.as_str()).collect();
        Error::config(format!(
            "there is no column {label:?} that could be the label: there are {}",
            there.join(", ")
        ))
    })?;
    let (_, label) = features.remove(at);
    schema.structure = Structure::Tuple(vec![Structure::Dict(features), label]);
    Ok(())
}

/// Turns the sides of a value as its cells have them into those of its kind: what lies in one piece counts elements, of which
/// inner sides of fixed size are a part.
fn complete(shape: &mut Vec<usize>, sides: &[Option<usize>]) -> Option<()> {
    // An empty list has no inner lists to take sides from.
    let at = shape.len() - 1;
    if shape.len() < sides.len() {
        let inner: usize = sides[shape.len()..].iter().map(|side| side.unwrap_or(0)).product();
        let elements = shape[at];
        shape[at] = elements.checked_div(inner).unwrap_or(elements);
        let rest = shape.len();
        shape.extend(sides[rest..].iter().map(|side| side.unwrap_or(0)));
    }
    let fits = |(have, want): (&usize, &Option<usize>)| want.is_none_or(|want| want == *have);
    (shape.len() == sides.len() && shape.iter().zip(sides).all(fits)).then_some(())
}

fn lost_row(path: &str, row: u64) -> Error {
    Error::new(ErrorKind::Internal, format!("{path} has no row {row}"))
}

fn missing(what: Missing, column: &str, kind: &FieldKind, row: u64, path: &str) -> Error {
    match what {
        Missing::Null if matches!(kind, FieldKind::Image | FieldKind::Audio) => {
            Error::corrupt(format!("column {column:?} has no bytes in row {row} of {path}"))
                .with_hint("where there is only a path, the bytes lie elsewhere: embed them when the file is written")
        }
        Missing::Null => Error::corrupt(format!("column {column:?} is null in row {row} of {path}")).with_hint(
            "leave such rows out with filters, the column with columns, or use with_options(on_error=\"skip\")",
        ),
        Missing::Uneven => Error::new(
            ErrorKind::Shape,
            format!("the lists in column {column:?} differ in length within row {row} of {path}"),
        ),
        Missing::Lost => lost_row(path, row),
    }
}

/// A decoded group.
struct Rows {
    parts: Arc<[Part]>,
}

impl Rows {
    /// Why row `row` cannot be had, if that was noted when it was decoded.
    fn error(&self, row: u64) -> Option<&Error> {
        let mut parts = self.parts.iter().filter_map(|part| part.downcast_ref::<Vec<Decoded>>());
        parts.find_map(|part| part.first()?.error(row))
    }

    /// Column `field`: a part of its own, or one of those of the only part.
    fn column(&self, field: usize) -> Option<&Decoded> {
        let all = |part: usize| self.parts.get(part).and_then(|part| part.downcast_ref::<Vec<Decoded>>());
        if self.parts.len() == 1 { all(0)?.get(field) } else { all(field)?.first() }
    }
}

/// Decodes one group.
struct Decoder<'a> {
    store: &'a dyn Store,
    path: &'a Arc<str>,
    container: &'a dyn Container,
    number: usize,
    columns: &'a [Column],
    layout: &'a Layout,
}

impl Decode for Decoder<'_> {
    fn parts(&self) -> usize {
        // What is stacked has to be there together.
        if self.layout.is_plain() { self.container.parts(self.columns.len()) } else { 1 }
    }

    fn bytes(&self) -> u64 {
        let rows = self.container.groups().get(self.number).map_or(0, |group| group.rows);
        let columns = self.columns.iter().collect::<Vec<_>>();
        self.container.bytes(self.number, &columns).saturating_add(self.layout.bytes(rows))
    }

    fn extents(&self) -> Vec<Extent> {
        if self.store.remote().is_none() {
            return Vec::new();
        }
        let ranges = self.container.ranges(self.number, &self.columns.iter().collect::<Vec<_>>());
        ranges.into_iter().map(|(offset, len)| Extent::range(self.path.clone(), offset, len)).collect()
    }

    fn decode(&self, part: usize, pieces: Option<&[Bytes]>, growth: &Growth<'_>) -> Result<(Part, u64)> {
        let all: Vec<&Column> = self.columns.iter().collect();
        let wanted = if self.parts() == 1 { &all[..] } else { &all[part..=part] };
        let here: Option<Vec<(u64, Bytes)>> = pieces.map(|pieces| {
            let offsets = self.container.ranges(self.number, &all).into_iter().map(|(offset, _)| offset);
            offsets.zip(pieces.iter().cloned()).collect()
        });
        let input = here.as_deref().map_or(Input::Store(self.store), Input::Pieces);
        let (mut decoded, mut held) = self.container.decode(input, self.number, wanted, growth)?;
        if !self.layout.is_plain() {
            (decoded, held) = self.layout.apply(decoded, self.columns, growth)?;
        }
        Ok((Arc::new(decoded), held))
    }
}

impl Source for Table {
    fn name(&self) -> String {
        name_of(&self.spec)
    }

    fn spec(&self) -> SourceSpec {
        SourceSpec::Table(Box::new(self.spec.clone()))
    }

    fn stacked(&self, stack: &Stack) -> Option<Result<Arc<dyn Source>>> {
        let made = self.with_stack(stack).map(|table| Arc::new(table) as Arc<dyn Source>);
        Some(made.map_err(|e| e.with_source(self.name())))
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    /// `file#row`, with the number of the row in the file. Unique unless a file is named twice.
    fn key(&self, index: u64) -> String {
        let Some((number, sample)) = self.find(index) else { return String::new() };
        let group = &self.groups[number];
        let path = &self.files[group.file].path;
        match group.number {
            Some(_) => format!("{path}#{}", group.first + Self::row(group, sample)),
            None => format!("{path}#__damaged__"),
        }
    }

    fn fetch(&self, index: u64, record: &mut Record) -> Result<()> {
        let Some((number, sample)) = self.find(index) else { return Err(beyond_the_end(self, index)) };
        self.fill(number, sample, record).map_err(|e| located(e, self, index))
    }

    fn groups(&self) -> Option<GroupSizes> {
        Some(self.sizes)
    }

    fn gathers_lists(&self) -> bool {
        true
    }

    fn group_of(&self, index: u64) -> Option<u64> {
        let (number, _) = self.find(index)?;
        self.groups[number].number.map(|_| number as u64)
    }

    fn groups_store(&self) -> Option<&Arc<dyn Store>> {
        self.store.remote().is_some().then_some(&self.store)
    }

    fn warm(&self, group: u64, record: &Record) -> Warmed {
        let number = usize::try_from(group).unwrap_or(usize::MAX);
        let found = self.groups.get(number).and_then(|group| self.decodable(group));
        match (found, record.groups.as_deref()) {
            (Some((container, file, number)), Some(kept)) => {
                let decoder = self.decoder(container, file, number);
                groups::warm(kept, &self.owner, group, &decoder)
            }
            _ => Warmed::Done,
        }
    }

    fn gather(&self, wanted: &[Wanted], record: &Record, into: &mut Gather<'_>) {
        if into.columns.len() != self.schema.fields.len() {
            return;
        }
        SCRATCH.with_borrow_mut(|Scratch { picked, numbers, ready }| {
            self.pick(wanted, picked);
            numbers.clear();
            numbers.extend(picked.chunk_by(|a, b| a.group == b.group).map(|rows| u64::from(rows[0].group)));
            // Groups that are there come first, all of them before one is asked for that takes room. They are held only as
            // long as it takes to copy.
            groups::ready(record.groups.as_deref(), &self.owner, numbers, ready);
            let mut copy = |rows: &[Picked], parts: Arc<[Part]>| {
                let group = Rows { parts };
                gather::gather(rows, |field| group.column(field), record.limits.max_bytes, into);
            };
            let runs = || picked.chunk_by(|a, b| a.group == b.group);
            let mut missing = Vec::new();
            for (rows, parts) in runs().zip(ready.drain(..)) {
                match parts {
                    Some(parts) => copy(rows, parts),
                    None => missing.push(rows),
                }
            }
            for rows in missing {
                // What is wrong with a group, reading its rows one by one will say.
                if let Ok(Rows { parts }) = self.decoded(rows[0].group as usize, record) {
                    copy(rows, parts);
                }
            }
        });
    }

    fn parts(&self) -> Vec<Place> {
        if !self.schema.fields.iter().any(|field| field.kind == FieldKind::Image) {
            return Vec::new();
        }
        let mut places: Vec<Place> = Vec::with_capacity(self.files.len());
        let mut last = None;
        for (group, start) in self.groups.iter().zip(&self.starts) {
            let end = start + group.len;
            match places.last_mut().filter(|_| last == Some(group.file)) {
                Some(place) => place.samples.end = end,
                None => {
                    let path = self.files[group.file].path.to_string();
                    let beside = Some(path.clone());
                    places.push(Place {
                        name: path,
                        beside,
                        store: self.store.clone(),
                        samples: *start..end,
                    });
                    last = Some(group.file);
                }
            }
        }
        places
    }

    fn stamp(&self, index: u64) -> Option<u64> {
        let (number, _) = self.find(index)?;
        let file = &self.files[self.groups[number].file];
        let stat = self.store.stat(&file.path).ok()?;
        Some(stamp(&location(&self.key(index)), &stat))
    }

    fn fingerprint(&self) -> u64 {
        let mut hash = Fingerprint::new(&self.schema, self.len);
        for file in &self.files {
            let path = secrets::identity(&file.path);
            hash.add(path.rsplit('/').next().unwrap_or_default().as_bytes());
            hash.number(file.rows);
        }
        for group in &self.groups {
            hash.number(group.len);
            for row in group.kept.iter().flatten() {
                hash.number(u64::from(*row));
            }
        }
        hash.finish()
    }

    fn label(&self) -> Option<usize> {
        self.classes.as_ref().map(|(field, _)| *field)
    }

    fn classes(&self) -> Option<&[String]> {
        self.classes.as_ref().map(|(_, names)| &names[..])
    }
}
