//! [`Hdf5`]: rows of data sets as samples, those of several files one after the other.
//!
//! Rows that lie in one piece in a file are read by position. Rows of chunks that went through filters are reached by their
//! block: the chunks side by side that hold the same rows, unpacked together and kept by the engine as long as it has room.
//! Where a block is one row, it is unpacked straight into the sample.

use std::sync::Arc;

use wellfed::{
    Error, ErrorKind, Limits, Result,
    groups::{self, Decode, GroupSizes, Growth, Owner, Part},
    io::{Bytes, Extent},
    sample::{DType, FieldKind, FieldSpec, Record, Schema, Value},
    source::{
        ArraySpec, Fingerprint, Part as Stored, Pixels, Source, SourceSpec, beyond_the_end, hdf5::Hdf5Spec,
        located, location, stamp,
    },
    store::{EntryKind, Store, listing, secrets},
};

use crate::{
    chunks::{Chunk, Chunks},
    cursor::Sizes,
    dataset::{self, Dataset, Storage},
    datatype::Element,
    file::{self, File},
    filters, find,
    gather::{Cut, repeat},
    global_heap::{self, Heaps},
    links::Target,
};

/// Names in a group that are looked at where no fields are named.
const LOOKED_AT: usize = 4096;

/// Opens the source that `spec` describes.
pub(crate) fn open(store: Arc<dyn Store>, spec: Hdf5Spec) -> Result<Arc<dyn Source>> {
    let name = name_of(&spec);
    Hdf5::build(&store, spec)
        .map(|source| Arc::new(source) as Arc<dyn Source>)
        .map_err(|e| e.with_source(name))
}

fn name_of(spec: &Hdf5Spec) -> String {
    match spec.urls.as_slice() {
        [url] => format!("hdf5({})", secrets::shown(url)),
        [url, ..] => format!("hdf5({} and {} more)", secrets::shown(url), spec.urls.len() - 1),
        [] => "hdf5()".to_owned(),
    }
}

/// A data set of a file as a field.
#[derive(Debug)]
struct Array {
    /// Its path in the file, for messages.
    path: String,
    dataset: Dataset,
    /// How rows are put together, if they lie in chunks.
    cut: Option<Cut>,
    /// The number of its first block among those of the source.
    first_block: u64,
}

/// Where a row is.
enum Place<'a> {
    /// In memory.
    Held(&'a [u8]),
    /// In the file from here on.
    At(u64),
    /// Nowhere: it was not written.
    Missing,
    /// In chunks.
    Block(Block<'a>),
}

/// Chunks side by side that hold the same rows.
#[derive(Clone, Copy)]
struct Block<'a> {
    array: &'a Array,
    chunks: &'a Chunks,
    cut: &'a Cut,
    /// Its number in the data set.
    number: u64,
    /// Of the row that is wanted.
    row: u64,
}

impl Array {
    fn new(path: String, dataset: Dataset) -> Result<Self> {
        let cut = match &dataset.storage {
            Storage::Chunked(chunks) => Some(Cut::new(&dataset, chunks)?),
            _ => None,
        };
        Ok(Self { path, dataset, cut, first_block: 0 })
    }

    fn place(&self, row: u64) -> Place<'_> {
        let bytes = self.dataset.row;
        if bytes == 0 {
            return Place::Held(&[]);
        }
        match (&self.dataset.storage, &self.cut) {
            (Storage::Compact(all), _) => {
                let start = usize::try_from(row).ok().and_then(|row| row.checked_mul(bytes));
                Place::Held(start.and_then(|start| all.get(start..)?.get(..bytes)).unwrap_or_default())
            }
            (Storage::Contiguous(None), _) => Place::Missing,
            // Inside of the file, as was checked when it was opened.
            (Storage::Contiguous(Some(offset)), _) => Place::At(offset + row * bytes as u64),
            (Storage::Chunked(chunks), Some(cut)) => {
                let (number, within) = (row / cut.rows, row % cut.rows);
                if cut.is_whole() && self.dataset.filters.is_empty() {
                    return match chunks.get(number) {
                        Some(chunk) => Place::At(chunk.offset.saturating_add(within * bytes as u64)),
                        None => Place::Missing,
                    };
                }
                Place::Block(Block { array: self, chunks, cut, number, row: within })
            }
            (Storage::Chunked(_), None) => Place::Missing,
        }
    }

    /// Refuses rows that are larger than they may be.
    fn check(&self, limits: &Limits) -> Result<()> {
        let bytes = self.dataset.row as u64;
        if bytes > limits.max_bytes {
            limits.check_bytes(&format!("a row of {}", self.path), bytes)?;
        }
        Ok(())
    }

    /// Rows of blocks that are kept for others, if there are such.
    fn block_rows(&self) -> Option<u64> {
        let cut = self.cut.as_ref().filter(|cut| cut.rows > 1 && self.dataset.row > 0)?;
        (!cut.is_whole() || !self.dataset.filters.is_empty())
            .then_some(cut.rows.min(self.dataset.rows().max(1)))
    }
}

impl<'a> Block<'a> {
    /// Chunk `part` of it, if it was written.
    fn chunk(&self, part: usize) -> Option<Chunk> {
        self.chunks.get(self.number.checked_mul(self.cut.parts as u64)?.checked_add(part as u64)?)
    }

    /// All of them that were written, with their numbers.
    fn written(self) -> impl Iterator<Item = (usize, Chunk)> + use<'a> {
        (0..self.cut.parts).filter_map(move |part| Some((part, self.chunk(part)?)))
    }

    /// Unpacks a chunk into `into`.
    fn unpack(&self, chunk: &Chunk, input: Input<'_>, part: usize, into: &mut Vec<u8>) -> Result<()> {
        let Dataset { filters, shape, element, .. } = &self.array.dataset;
        let mask = self.chunks.mask(chunk, shape);
        let start = into.len();
        let mut of_store = None;
        let read = |packed: &mut Vec<u8>| {
            let read = input.read(*self, chunk, part, packed);
            of_store = read.as_ref().err().cloned();
            read
        };
        filters::undo(filters, mask, self.cut.bytes, read, into).map_err(|e| match of_store {
            Some(error) => error.with_offset(chunk.offset),
            None => {
                let message =
                    format!("chunk {} of {} is damaged: {}", chunk.number, self.array.path, e.message());
                Error::new(e.kind(), message).with_offset(chunk.offset)
            }
        })?;
        if !element.is_native() {
            element.to_native(&mut into[start..]);
        }
        Ok(())
    }
}

/// Where the bytes of chunks come from.
#[derive(Clone, Copy)]
enum Input<'a> {
    Store {
        store: &'a dyn Store,
        path: &'a str,
    },
    /// Pieces for the chunks of one block that were written, in order.
    Pieces(&'a [Bytes]),
}

impl Input<'_> {
    fn read(self, block: Block<'_>, chunk: &Chunk, part: usize, into: &mut Vec<u8>) -> Result<()> {
        match self {
            // Inside of the file, as was checked when it was opened.
            Self::Store { store, path } => store.read_range(path, chunk.offset, chunk.size as usize, into),
            Self::Pieces(pieces) => {
                let place = block.written().take_while(|(before, _)| *before < part).count();
                let piece = pieces.get(place).ok_or_else(missing_piece)?;
                into.try_reserve(piece.len()).map_err(|_| {
                    Error::new(ErrorKind::Limit, format!("no memory for {} bytes", piece.len()))
                })?;
                into.extend_from_slice(piece);
                Ok(())
            }
        }
    }
}

fn missing_piece() -> Error {
    Error::new(ErrorKind::Internal, "a piece is missing")
}

/// A chunk that was unpacked, or was never written.
type Unpacked = Option<Vec<u8>>;

/// Unpacks a block.
struct Decoder<'a> {
    block: Block<'a>,
    input: Input<'a>,
}

impl Decode for Decoder<'_> {
    fn parts(&self) -> usize {
        self.block.cut.parts
    }

    fn bytes(&self) -> u64 {
        let Block { cut, array, .. } = self.block;
        let chunk = cut.bytes as u64;
        let largest = self.block.written().map(|(_, chunk)| chunk.size).max().unwrap_or(0);
        chunk.saturating_mul(cut.parts as u64).saturating_add(filters::scratch_bytes(
            &array.dataset.filters,
            largest,
            chunk,
        ))
    }

    fn decode(&self, part: usize, _: Option<&[Bytes]>, growth: &Growth<'_>) -> Result<(Part, u64)> {
        let Some(chunk) = self.block.chunk(part) else { return Ok((Arc::new(Unpacked::None), 0)) };
        let Block { cut, array, .. } = self.block;
        let bytes = cut.bytes;
        let beside = filters::scratch_bytes(&array.dataset.filters, chunk.size, bytes as u64);
        growth.take(beside.saturating_add(bytes as u64))?;
        let mut unpacked = Vec::new();
        unpacked
            .try_reserve_exact(bytes)
            .map_err(|_| Error::new(ErrorKind::Limit, format!("no memory for {bytes} bytes of a chunk")))?;
        self.block.unpack(&chunk, self.input, part, &mut unpacked)?;
        growth.give(beside);
        Ok((Arc::new(Some(unpacked)), bytes as u64))
    }
}

/// The chunks of a block that nobody keeps.
fn alone(block: Block<'_>, input: Input<'_>) -> Result<Arc<[Part]>> {
    let decoder = Decoder { block, input };
    (0..block.cut.parts).map(|part| Ok(decoder.decode(part, None, &Growth::unbounded())?.0)).collect()
}

fn unpacked(parts: &[Part], part: usize) -> Option<&[u8]> {
    parts.get(part)?.downcast_ref::<Unpacked>()?.as_deref()
}

#[derive(Debug)]
struct Shard {
    path: Arc<str>,
    /// Bytes of the file, those of its numbers, and what addresses count from.
    size: u64,
    sizes: Sizes,
    base: u64,
    /// Index of its first sample.
    start: u64,
    len: u64,
    /// By field.
    arrays: Vec<Array>,
}

/// Rows of data sets in HDF5 files.
#[derive(Debug)]
struct Hdf5 {
    store: Arc<dyn Store>,
    spec: Hdf5Spec,
    schema: Schema,
    shards: Vec<Shard>,
    len: u64,
    sizes: GroupSizes,
    owner: Owner,
    notes: Vec<String>,
    /// Whether some elements only say where their values are, so that bytes are not known before they are read.
    varying: bool,
}

/// A file that was opened: its size, and data sets by field.
struct Opened {
    size: u64,
    sizes: Sizes,
    base: u64,
    arrays: Vec<(String, Array)>,
}

/// `e`, of what is called `prefix`.
fn inside(e: &Error, prefix: &str) -> Error {
    let mut error = Error::new(e.kind(), format!("{prefix}: {}", e.message()));
    if let Some(offset) = e.offset() {
        error = error.with_offset(offset);
    }
    match e.hint() {
        Some(hint) => error.with_hint(hint),
        None => error,
    }
}

fn size_of(store: &dyn Store, path: &str) -> Result<u64> {
    let stat = store.stat(path)?;
    if stat.kind == EntryKind::Folder {
        return Err(Error::config(format!("{path} is a folder, not an HDF5 file")));
    }
    Ok(stat.size)
}

/// `name` in the group that is asked for.
fn in_group(group: Option<&str>, name: &str) -> String {
    match group.map(|group| group.trim_matches('/')).filter(|group| !group.is_empty()) {
        Some(group) if !name.starts_with('/') => format!("{group}/{name}"),
        _ => name.trim_start_matches('/').to_owned(),
    }
}

/// Names of fields, and the paths of their data sets.
type Fields = Vec<(String, String)>;

/// The data sets of a group that most rows are in: names with paths, and what else there is.
fn choose(file: &File<'_>, group: Option<&str>) -> Result<(Fields, Option<String>)> {
    let within = in_group(group, "");
    let within = within.trim_end_matches('/');
    let shown = if within.is_empty() { "its root" } else { within };
    let header = file.find(within)?;
    if !file::is_group(&header) {
        return Err(Error::config(format!("{shown} is no group")));
    }
    let names = file.names(&header)?;
    if names.len() > LOOKED_AT {
        return Err(Error::config(format!("{shown} has {} data sets and groups", names.len()))
            .with_hint("name those to take: fields=[...]"));
    }
    let (mut sets, mut groups) = (Vec::new(), Vec::new());
    for (name, target) in names.iter() {
        // What lies elsewhere is not looked for.
        if *target == Target::Elsewhere {
            sets.push((name.clone(), Vec::new()));
            continue;
        }
        let header = file.find(&in_group(group, name));
        match header {
            Ok(header) if file::is_dataset(&header) => {
                let space = dataset::space(file, &header).map_err(|e| inside(&e, name))?;
                sets.push((name.clone(), space.shape));
            }
            Ok(header) if file::is_group(&header) => groups.push(name.as_str()),
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::Config => sets.push((name.clone(), Vec::new())),
            Err(e) => return Err(inside(&e, name)),
        }
    }
    let count = |len: u64| sets.iter().filter(|(_, shape)| shape.first() == Some(&len)).count();
    // Most data sets decide; of equally many, the longer ones.
    let len =
        sets.iter().filter_map(|(_, shape)| shape.first().copied()).max_by_key(|len| (count(*len), *len));
    let Some(len) = len else {
        let error = Error::config(format!("{shown} has no data sets with rows"));
        return Err(match groups.as_slice() {
            [] => error,
            groups => error.with_hint(format!("its groups are {}: name one with group=", groups.join(", "))),
        });
    };
    let (taken, others): (Vec<_>, Vec<_>) =
        sets.into_iter().partition(|(_, shape)| shape.first() == Some(&len));
    let note = (!others.is_empty()).then(|| {
        let others: Vec<String> = others.iter().map(|(name, shape)| format!("{name} {shape:?}")).collect();
        format!("without {}, which do not have {len} rows: fields= takes what it names", others.join(", "))
    });
    Ok((taken.into_iter().map(|(name, _)| (name.clone(), name)).collect(), note))
}

/// Opens data sets of a file: those named, or those that `choose` finds, with what it leaves out.
fn open_file(
    store: &dyn Store,
    path: &str,
    group: Option<&str>,
    fields: Option<&[(String, String)]>,
) -> Result<(Opened, Option<String>)> {
    let size = size_of(store, path)?;
    let opened = || {
        let file = File::open(store, path, size)?;
        let (chosen, note) = match fields {
            Some(fields) => (fields.to_vec(), None),
            None => choose(&file, group)?,
        };
        let mut arrays = Vec::with_capacity(chosen.len());
        for (name, inner) in chosen {
            let inner = in_group(group, &inner);
            let header = file.find(&inner)?;
            if !file::is_dataset(&header) {
                return Err(Error::config(format!("{inner} is no data set"))
                    .with_hint("of a group, the data sets are named with group= or as \"group/name\""));
            }
            let opened = Dataset::open(&file, &header).and_then(|dataset| Array::new(inner.clone(), dataset));
            arrays.push((
                name,
                opened
                    .map_err(|e| inside(&e, &inner).with_hint("fields=[...] takes other data sets only"))?,
            ));
        }
        Ok((Opened { size, sizes: file.sizes(), base: file.base(), arrays }, note))
    };
    opened().map_err(|e: Error| inside(&e, path))
}

/// What a data set becomes.
fn kind_of(name: &str, dataset: &Dataset, spec: &Hdf5Spec) -> Result<FieldKind> {
    let image = spec.images.as_ref().is_some_and(|images| images.iter().any(|image| image == name));
    let flat = |kind| {
        if dataset.shape.len() == 1 {
            return Ok(kind);
        }
        let message = format!("{name} has {:?} texts or bytes a row", &dataset.shape[1..]);
        Err(Error::new(ErrorKind::Unsupported, message)
            .with_hint("known is one a row; fields=[...] takes others only"))
    };
    let dtype = match dataset.element {
        Element::Number { dtype, .. } => dtype,
        Element::Varying { of: Some((DType::UInt8 | DType::Int8, _)), .. } | Element::Opaque { .. }
            if image =>
        {
            return flat(FieldKind::Image);
        }
        _ if image => {
            return Err(Error::config(format!("{name} cannot be encoded images")).with_hint(
                "those are bytes of variable length (h5py.vlen_dtype(\"uint8\")) or opaque ones",
            ));
        }
        Element::Text { .. } | Element::Varying { of: None, .. } => return flat(FieldKind::Text),
        Element::Opaque { .. } => return flat(FieldKind::Bytes),
        Element::Varying { of: Some((dtype, _)), .. } => {
            return flat(FieldKind::Array { dtype, shape: vec![None] });
        }
    };
    let pixels = spec.pixels;
    let shape: Option<Vec<Option<usize>>> =
        dataset.shape.iter().map(|side| usize::try_from(*side).ok().map(Some)).collect();
    let shape = shape.ok_or_else(|| Error::new(ErrorKind::Unsupported, format!("{name} is too large")))?;
    // Only those that could be images are asked to be.
    let could_be = dtype == DType::UInt8 && matches!(shape.len(), 3 | 4);
    let pixels = if could_be { pixels } else { Pixels::Never };
    ArraySpec { name: name.to_owned(), dtype, shape, values: None, pixels }.kind()
}

impl Hdf5 {
    fn build(local: &Arc<dyn Store>, spec: Hdf5Spec) -> Result<Self> {
        let (store, paths) = find::find(local, &spec)?;
        let Some(first) = paths.first() else { return Err(Error::config("there is no file")) };
        if let Some(fields) = &spec.fields {
            if fields.is_empty() {
                return Err(Error::config("no fields are named"));
            }
            let names = || fields.iter().map(|(name, _)| name);
            if let Some(name) =
                names().enumerate().find_map(|(i, name)| names().take(i).find(|other| *other == name))
            {
                return Err(Error::config(format!("field {name} is asked for twice")));
            }
        }
        let group = spec.group.as_deref();
        // The first file decides which fields there are.
        let (opened, note) = open_file(&*store, first, group, spec.fields.as_deref())?;
        let fields: Fields = match &spec.fields {
            Some(fields) => fields.clone(),
            None => opened.arrays.iter().map(|(name, _)| (name.clone(), name.clone())).collect(),
        };
        let rest = listing::parallel_at(&*store, &paths[1..], |path| {
            open_file(&*store, path, group, Some(&fields))
        })?;
        let notes = note.map(|note| format!("{first}: {note}")).into_iter().collect();
        let sizes = GroupSizes { count: 0, samples: 0, largest: 0, all: 0 };
        let mut this = Self {
            store,
            schema: Schema::tuple([]),
            shards: Vec::with_capacity(paths.len()),
            len: 0,
            sizes,
            owner: Owner::default(),
            notes,
            varying: false,
            spec,
        };
        let all = std::iter::once(opened).chain(rest.into_iter().map(|(opened, _)| opened));
        for (path, opened) in paths.iter().zip(all) {
            this.push(path, opened)?;
        }
        Ok(this)
    }

    fn push(&mut self, path: &str, opened: Opened) -> Result<()> {
        let lengths: Vec<u64> = opened.arrays.iter().map(|(_, array)| array.dataset.rows()).collect();
        let len = lengths.first().copied().unwrap_or(0);
        if lengths.iter().any(|other| *other != len) {
            let all =
                opened.arrays.iter().map(|(name, array)| format!("{name} has {}", array.dataset.rows()));
            let all: Vec<String> = all.collect();
            return Err(Error::config(format!("data sets of {path} differ in length: {}", all.join(", "))));
        }
        let mut fields = Vec::with_capacity(opened.arrays.len());
        for (name, array) in &opened.arrays {
            let kind = kind_of(name, &array.dataset, &self.spec).map_err(|e| inside(&e, path))?;
            fields.push(FieldSpec { name: name.clone(), kind });
        }
        if let Some(first) = self.shards.first() {
            if fields != self.schema.fields {
                let of = |fields: &[FieldSpec]| {
                    let one = |field: &FieldSpec| format!("{}: {:?}", field.name, field.kind);
                    fields.iter().map(one).collect::<Vec<_>>().join(", ")
                };
                let (first, have, want) = (&first.path, of(&fields), of(&self.schema.fields));
                return Err(Error::config(format!("rows of {path} are {have}; those of {first} are {want}")));
            }
        } else {
            let named = fields.iter().map(|field| (field.name.as_str(), field.kind.clone()));
            self.schema = if self.spec.tuple { Schema::tuple(named) } else { Schema::dict(named) };
        }
        let mut arrays = Vec::with_capacity(opened.arrays.len());
        for (_, mut array) in opened.arrays {
            array.first_block = self.sizes.count;
            self.varying |= matches!(array.dataset.element, Element::Varying { .. });
            if let (Some(rows), Some(cut)) = (array.block_rows(), &array.cut) {
                let blocks = array.dataset.rows().div_ceil(cut.rows);
                let bytes = (cut.bytes as u64).saturating_mul(cut.parts as u64);
                self.sizes.count = self.sizes.count.saturating_add(blocks);
                self.sizes.samples = self.sizes.samples.max(rows);
                // What unpacking takes beside them counts once: as the largest one.
                let beside = filters::scratch_bytes(&array.dataset.filters, 0, cut.bytes as u64);
                self.sizes.largest = self.sizes.largest.max(bytes.saturating_add(beside));
                self.sizes.all =
                    self.sizes.all.saturating_add(bytes.saturating_mul(blocks)).max(self.sizes.largest);
            }
            arrays.push(array);
        }
        let all = self.len.checked_add(len);
        let all = all.ok_or_else(|| Error::limit(path, len, u64::MAX - self.len, "rows"))?;
        let Opened { size, sizes, base, .. } = opened;
        self.shards.push(Shard { path: path.into(), size, sizes, base, start: self.len, len, arrays });
        self.len = all;
        Ok(())
    }

    fn find(&self, index: u64) -> Option<(&Shard, u64)> {
        if index >= self.len {
            return None;
        }
        let shard = self.shards.partition_point(|shard| shard.start <= index).checked_sub(1)?;
        let shard = self.shards.get(shard)?;
        Some((shard, index - shard.start))
    }

    fn input<'a>(&'a self, shard: &'a Shard) -> Input<'a> {
        Input::Store { store: &*self.store, path: &shard.path }
    }

    /// The unpacked chunks of a block.
    fn block(
        &self,
        block: Block<'_>,
        groups: Option<&groups::Groups>,
        input: Input<'_>,
    ) -> Result<Arc<[Part]>> {
        let number = block.array.first_block.saturating_add(block.number);
        groups::group(groups, &self.owner, number, &Decoder { block, input })
    }

    /// Makes the record of a row. `pieces` are the bytes that were located; without them they are read.
    fn fill(&self, shard: &Shard, row: u64, record: &mut Record, pieces: Option<&[Bytes]>) -> Result<()> {
        record.reset(self.schema.fields.len());
        let Record { limits, groups, values, offsets, .. } = record;
        let mut left = pieces.unwrap_or_default();
        // The next pieces, if bytes come in pieces.
        let mut next = |count: usize| -> Result<Option<&[Bytes]>> {
            if pieces.is_none() {
                return Ok(None);
            }
            let (own, others) = left.split_at_checked(count).ok_or_else(missing_piece)?;
            left = others;
            Ok(Some(own))
        };
        for (field, array) in shard.arrays.iter().enumerate() {
            let Dataset { element, row: bytes, fill, .. } = &array.dataset;
            array.check(limits)?;
            let buffer = values[field].buffer();
            buffer.try_reserve(*bytes).map_err(|_| {
                Error::new(ErrorKind::Limit, format!("no memory for {bytes} bytes of {}", array.path))
            })?;
            let mut native = false;
            match array.place(row) {
                Place::Held(held) => buffer.extend_from_slice(held),
                Place::At(at) => {
                    offsets[field] = at;
                    match next(1)? {
                        Some([piece]) => buffer.extend_from_slice(piece),
                        Some(_) => return Err(missing_piece()),
                        None => {
                            self.store
                                .read_range(&shard.path, at, *bytes, buffer)
                                .map_err(|e| e.with_offset(at))?;
                        }
                    }
                }
                Place::Missing => {
                    buffer.resize(*bytes, 0);
                    repeat(fill, buffer);
                    native = true;
                }
                Place::Block(block) => {
                    native = true;
                    let first = block.written().next();
                    offsets[field] = first.map_or(0, |(_, chunk)| chunk.offset);
                    let count = if pieces.is_some() { block.written().count() } else { 0 };
                    let input = next(count)?.map_or_else(|| self.input(shard), Input::Pieces);
                    match first {
                        // The chunk is the row.
                        Some((part, chunk)) if block.cut.rows == 1 && block.cut.is_whole() => {
                            block.unpack(&chunk, input, part, buffer)?;
                        }
                        Some(_) => {
                            // What is of one row is of no use to others.
                            let parts = match block.cut.rows {
                                1 => alone(block, input)?,
                                _ => self.block(block, groups.as_deref(), input)?,
                            };
                            buffer.resize(*bytes, 0);
                            block.cut.gather(block.row, |part| unpacked(&parts, part), fill, buffer)?;
                        }
                        None => {
                            buffer.resize(*bytes, 0);
                            repeat(fill, buffer);
                        }
                    }
                }
            }
            if !native && !element.is_native() {
                element.to_native(buffer);
            }
            if let Element::Varying { of, .. } = element {
                offsets[field] = self.follow(shard, array, *of, limits, buffer)?;
            }
            self.finish(field, array, &mut values[field])?;
        }
        Ok(())
    }

    /// Reads the values that an element only refers to, in its place; gives where they lie.
    fn follow(
        &self,
        shard: &Shard,
        array: &Array,
        of: Option<(DType, bool)>,
        limits: &Limits,
        buffer: &mut Vec<u8>,
    ) -> Result<u64> {
        let reference = global_heap::reference(buffer, shard.sizes)?;
        buffer.clear();
        let Some((address, index)) = reference.object else { return Ok(0) };
        let Shard { path, size, sizes, base, .. } = shard;
        let heaps = Heaps { store: &*self.store, path, size: *size, base: *base, sizes: *sizes };
        let object = heaps.find(address, index).map_err(|e| match e.kind() {
            ErrorKind::Corrupt => inside(&e, &array.path),
            _ => e,
        })?;
        let (dtype, swapped) = of.unwrap_or((DType::UInt8, false));
        let len = reference.count.saturating_mul(dtype.size() as u64);
        if len > object.len {
            let message = format!("{}: {len} bytes are wanted of an object of {}", array.path, object.len);
            return Err(Error::corrupt(message).with_offset(object.offset));
        }
        limits.check_bytes(&format!("a row of {}", array.path), len)?;
        self.store
            .read_range(path, object.offset, len as usize, buffer)
            .map_err(|e| e.with_offset(object.offset))?;
        if of.is_some() {
            Element::Number { dtype, swapped }.to_native(buffer);
        } else {
            // Some writers count the zero at its end.
            let end = buffer.iter().position(|byte| *byte == 0).unwrap_or(buffer.len());
            buffer.truncate(end);
        }
        Ok(object.offset)
    }

    /// Turns the bytes of an element into the value of its field.
    fn finish(&self, field: usize, array: &Array, value: &mut Value) -> Result<()> {
        let kind = &self.schema.fields[field].kind;
        let Value::Bytes(bytes) = value else { return Ok(()) };
        match kind {
            FieldKind::Text => {
                let len = array.dataset.element.text(bytes).len();
                bytes.truncate(len);
                if std::str::from_utf8(bytes).is_err() {
                    return Err(Error::corrupt(format!("the text of {} is not UTF-8", array.path)));
                }
            }
            &FieldKind::LABEL => {
                let number = <[u8; 8]>::try_from(bytes.as_slice());
                let number =
                    number.map_err(|_| Error::new(ErrorKind::Internal, "a row has no whole number"))?;
                *value = Value::Int(i64::from_ne_bytes(number));
            }
            _ => {}
        }
        Ok(())
    }

    /// Copies rows from `row` on of one file, as far as they are together; gives how many.
    fn copy_from(&self, shard: &Shard, field: usize, row: u64, record: &Record, into: &mut [u8]) -> u64 {
        let array = &shard.arrays[field];
        let Dataset { row: bytes, element, fill, .. } = &array.dataset;
        let wanted = (into.len() / bytes) as u64;
        let wanted = wanted.min(shard.len - row);
        match array.place(row) {
            Place::Block(block) if block.cut.rows > 1 => {
                let count = wanted.min(block.cut.rows - block.row);
                let Ok(parts) = self.block(block, record.groups.as_deref(), self.input(shard)) else {
                    return 0;
                };
                if block.cut.is_whole()
                    && let Some(chunk) = unpacked(&parts, 0)
                {
                    let from = block.cut.rows_of(chunk, block.row);
                    let len = count as usize * bytes;
                    let Some(from) = from.get(..len) else { return 0 };
                    into[..len].copy_from_slice(from);
                    return count;
                }
                for (number, one) in (0..count).zip(into.chunks_exact_mut(*bytes)) {
                    let part = |part| unpacked(&parts, part);
                    if block.cut.gather(block.row + number, part, fill, one).is_err() {
                        return number;
                    }
                }
                count
            }
            Place::Held(_) => {
                let Storage::Compact(all) = &array.dataset.storage else { return 0 };
                let (from, len) = (row as usize * bytes, wanted as usize * bytes);
                let Some(from) = all.get(from..from + len) else { return 0 };
                into[..len].copy_from_slice(from);
                element.to_native(&mut into[..len]);
                wanted
            }
            Place::At(at) if matches!(array.dataset.storage, Storage::Contiguous(_)) => {
                // Far away, the I/O layer asks for many things at once.
                if self.store.remote().is_some() {
                    return 0;
                }
                let len = (wanted as usize * bytes).min(TOGETHER.max(*bytes)) / bytes * bytes;
                let mut read = Vec::new();
                if self.store.read_range(&shard.path, at, len, &mut read).is_err() {
                    return 0;
                }
                into[..len].copy_from_slice(&read);
                element.to_native(&mut into[..len]);
                (len / bytes) as u64
            }
            _ => 0,
        }
    }
}

/// Bytes that are read at once of rows that follow each other.
const TOGETHER: usize = 1 << 20;

impl Source for Hdf5 {
    fn name(&self) -> String {
        name_of(&self.spec)
    }

    fn spec(&self) -> SourceSpec {
        SourceSpec::Hdf5(self.spec.clone())
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    /// `file.h5[row]`.
    fn key(&self, index: u64) -> String {
        self.find(index).map_or_else(String::new, |(shard, row)| format!("{}[{row}]", shard.path))
    }

    fn fetch(&self, index: u64, record: &mut Record) -> Result<()> {
        let (shard, row) = self.find(index).ok_or_else(|| beyond_the_end(self, index))?;
        self.fill(shard, row, record, None).map_err(|e| located(e, self, index))
    }

    /// Of elements that only say where their values are nobody knows which bytes a sample needs: they are read one after the other.
    fn store(&self) -> Option<&Arc<dyn Store>> {
        (!self.varying).then_some(&self.store)
    }

    fn locate(&self, index: u64, limits: &Limits, extents: &mut Vec<Extent>) -> Result<()> {
        let (shard, row) = self.find(index).ok_or_else(|| beyond_the_end(self, index))?;
        if self.varying {
            let error = Error::new(
                ErrorKind::Internal,
                "where elements of variable length lie is known when they are read",
            );
            return Err(located(error, self, index));
        }
        let mut add = || {
            for array in &shard.arrays {
                array.check(limits)?;
                let bytes = array.dataset.row as u64;
                match array.place(row) {
                    Place::Held(_) | Place::Missing => {}
                    Place::At(at) => extents.push(Extent::range(shard.path.clone(), at, bytes)),
                    Place::Block(block) => {
                        for (_, chunk) in block.written() {
                            extents.push(Extent::range(shard.path.clone(), chunk.offset, chunk.size));
                        }
                    }
                }
            }
            Ok(())
        };
        add().map_err(|e| located(e, self, index))
    }

    fn assemble(&self, index: u64, pieces: &[Bytes], record: &mut Record) -> Result<()> {
        let (shard, row) = self.find(index).ok_or_else(|| beyond_the_end(self, index))?;
        self.fill(shard, row, record, Some(pieces)).map_err(|e| located(e, self, index))
    }

    fn groups(&self) -> Option<GroupSizes> {
        (self.sizes.count > 0).then_some(self.sizes)
    }

    fn copy_rows(&self, index: u64, field: usize, record: &Record, into: &mut [u8]) -> u64 {
        let Some(spec) = self.schema.fields.get(field) else { return 0 };
        if !matches!(spec.kind, FieldKind::Scalar { .. } | FieldKind::Array { .. }) || spec.kind.varies() {
            return 0;
        }
        let (mut at, mut copied) = (index, 0);
        while let Some((shard, row)) = self.find(at) {
            let bytes = shard.arrays[field].dataset.row;
            let Some(left) = into.get_mut(copied as usize * bytes..) else { break };
            if bytes == 0 || left.len() < bytes {
                break;
            }
            let count = self.copy_from(shard, field, row, record, left);
            if count == 0 {
                break;
            }
            (at, copied) = (at + count, copied + count);
        }
        copied
    }

    fn parts(&self) -> Vec<Stored> {
        if !self.schema.fields.iter().any(|field| field.kind == FieldKind::Image) {
            return Vec::new();
        }
        let part = |shard: &Shard| Stored {
            name: shard.path.to_string(),
            beside: Some(shard.path.to_string()),
            store: self.store.clone(),
            samples: shard.start..shard.start + shard.len,
        };
        self.shards.iter().map(part).collect()
    }

    fn stamp(&self, index: u64) -> Option<u64> {
        let (shard, row) = self.find(index)?;
        let stat = self.store.stat(&shard.path).ok()?;
        Some(stamp(&format!("{}[{row}]", location(&shard.path)), &stat))
    }

    fn fingerprint(&self) -> u64 {
        let mut hash = Fingerprint::new(&self.schema, self.len);
        for shard in &self.shards {
            let path = secrets::identity(&shard.path);
            hash.add(path.rsplit('/').next().unwrap_or_default().as_bytes());
            hash.number(shard.len);
            shard.arrays.iter().for_each(|array| hash.add(array.path.as_bytes()));
        }
        hash.finish()
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }
}
