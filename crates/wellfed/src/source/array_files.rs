//! Arrays in files, one sample a row: `.npy`, `.npz`, and raw elements without a header.
//!
//! Rows of `.npy` and raw files are read by position, from any store, and nothing else of the files. Their bytes have no
//! checksum. The members of an `.npz` are unpacked and checked when it is opened, and kept in memory; so are arrays in
//! Fortran order, whose rows do not lie together. Rows of several files follow each other.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    Fingerprint, Source, SourceSpec, beyond_the_end, located, location, npy, shards, stamp,
    tensor_slices::{ArraySpec, Pixels, kind_of},
    unpack::UNPACKED,
};
use crate::{
    Error, ErrorKind, Limits, Result,
    io::{Bytes, Extent},
    sample::{DType, FieldKind, FieldSpec, Record, Schema, Structure, Value},
    store::{EntryKind, Store, listing, reserve, secrets, zip::Directory},
};

/// Longest header of a `.npy` file that is read at once: NumPy's own are 128 bytes, those of version 1 at most these.
const HEADER: u64 = 10 + 0xFFFF;

/// What to open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArrayFilesSpec {
    /// Files: paths with braces or stars, `::` between several in one. All have the same fields.
    pub urls: Vec<String>,
    /// Of what format they are.
    pub format: ArrayFormat,
    /// Which uint8 arrays are images.
    #[serde(default)]
    pub pixels: Pixels,
}

/// A format of arrays in files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArrayFormat {
    /// One array with its header.
    Npy,
    /// Named arrays in a zip archive.
    Npz {
        /// Names of those to take, handed out as a tuple. Default: a dict of all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fields: Option<Vec<String>>,
    },
    /// Elements in native byte order without a header of their own.
    Raw {
        /// Element type.
        dtype: DType,
        /// Shape of one row.
        shape: Vec<usize>,
        /// Bytes in front of the first row.
        #[serde(default)]
        offset: u64,
    },
}

/// Where the rows of one field of a file are.
#[derive(Debug)]
enum Rows {
    /// In the file, from this byte on.
    Stored { offset: u64, swapped: bool },
    /// In memory.
    Held(Vec<u8>),
}

/// One array of a file.
#[derive(Debug)]
struct Array {
    name: String,
    dtype: DType,
    shape: Vec<usize>,
    rows: Rows,
}

#[derive(Debug)]
struct Shard {
    path: Arc<str>,
    /// Index of its first sample.
    start: u64,
    len: u64,
    /// By field.
    rows: Vec<Rows>,
}

/// Rows of arrays in files.
#[derive(Debug)]
pub struct ArrayFiles {
    store: Arc<dyn Store>,
    spec: ArrayFilesSpec,
    schema: Schema,
    /// Bytes of a row and of an element of each field.
    sizes: Vec<(usize, usize)>,
    shards: Vec<Shard>,
    len: u64,
}

impl ArrayFiles {
    /// Finds the files and reads their headers; all of those that are kept in memory.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] for a file that does not exist; [`ErrorKind::Corrupt`] for one that is damaged or has other
    /// bytes than its header needs; [`ErrorKind::Config`] for arrays that differ in length, or from file to file.
    pub fn open(store: Arc<dyn Store>, spec: ArrayFilesSpec) -> Result<Self> {
        let name = name_of(&spec);
        Self::build(store, spec).map_err(|e| e.with_source(name))
    }

    fn build(store: Arc<dyn Store>, spec: ArrayFilesSpec) -> Result<Self> {
        let (store, paths) = shards::find(&store, &spec.urls)?;
        let mut left = UNPACKED;
        let files: Vec<Vec<Array>> = match &spec.format {
            ArrayFormat::Npy => {
                let heads = listing::parallel_at(&*store, &paths, |path| read_npy(&*store, path))?;
                let held =
                    |(path, array): (&String, Array)| hold(&*store, path, array, &mut left).map(|a| vec![a]);
                paths.iter().zip(heads).map(held).collect::<Result<_>>()?
            }
            ArrayFormat::Npz { fields } => {
                // One after the other: what is left of the memory decides whether the next one fits.
                paths
                    .iter()
                    .map(|path| read_npz(&*store, path, fields.as_deref(), &mut left))
                    .collect::<Result<_>>()?
            }
            ArrayFormat::Raw { dtype, shape, offset } => listing::parallel_at(&*store, &paths, |path| {
                read_raw(&*store, path, *dtype, shape, *offset).map(|array| vec![array])
            })?,
        };
        let mut this = Self {
            store,
            schema: Schema { fields: Vec::new(), structure: Structure::Field(0) },
            sizes: Vec::new(),
            shards: Vec::new(),
            len: 0,
            spec,
        };
        for (path, arrays) in paths.into_iter().zip(files) {
            this.push(path, arrays)?;
        }
        this.schema.structure = match &this.spec.format {
            ArrayFormat::Npz { fields: None } => {
                let fields = this.schema.fields.iter().enumerate();
                Structure::Dict(fields.map(|(i, field)| (field.name.clone(), Structure::Field(i))).collect())
            }
            ArrayFormat::Npz { fields: Some(fields) } => {
                Structure::Tuple((0..fields.len()).map(Structure::Field).collect())
            }
            _ => Structure::Field(0),
        };
        Ok(this)
    }

    fn push(&mut self, path: String, arrays: Vec<Array>) -> Result<()> {
        let lengths: Vec<Option<usize>> = arrays.iter().map(|array| array.shape.first().copied()).collect();
        if let Some(array) = arrays.iter().find(|array| array.shape.is_empty()) {
            let message = format!("{} of {path} is a single number, which has no rows", array.name);
            return Err(Error::config(message).with_hint("name the arrays to take: fields=[...]"));
        }
        let len = lengths.first().copied().flatten().unwrap_or(0);
        if lengths.iter().any(|other| *other != Some(len)) {
            let all: Vec<String> = arrays.iter().map(|a| format!("{} has {}", a.name, a.shape[0])).collect();
            return Err(Error::config(format!("arrays of {path} differ in length: {}", all.join(", ")))
                .with_hint("name the arrays to take: fields=[...]"));
        }
        let mut fields = Vec::with_capacity(arrays.len());
        for array in &arrays {
            let shape = array.shape.iter().copied().map(Some).collect();
            // Only those that could be images are asked to be.
            let could_be = array.dtype == DType::UInt8 && matches!(array.shape.len(), 3 | 4);
            let pixels = if could_be { self.spec.pixels } else { Pixels::Never };
            let spec =
                ArraySpec { name: array.name.clone(), dtype: array.dtype, shape, pixels, values: None };
            fields.push(FieldSpec { name: array.name.clone(), kind: kind_of(&spec)? });
        }
        if self.shards.is_empty() {
            self.sizes = (arrays.iter())
                .map(|a| (a.dtype.size() * a.shape[1..].iter().product::<usize>(), a.dtype.size()))
                .collect();
            self.schema.fields = fields;
        } else if fields != self.schema.fields {
            let of = |fields: &[FieldSpec]| {
                let one = |field: &FieldSpec| format!("{}: {:?}", field.name, field.kind);
                fields.iter().map(one).collect::<Vec<_>>().join(", ")
            };
            let (first, have, want) = (&self.shards[0].path, of(&fields), of(&self.schema.fields));
            return Err(Error::config(format!("rows of {path} are {have}; those of {first} are {want}")));
        }
        let (start, len) = (self.len, len as u64);
        let rows = arrays.into_iter().map(|array| array.rows).collect();
        self.shards.push(Shard { path: path.into(), start, len, rows });
        self.len += len;
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

    /// Makes the record of a row; `read` gives the bytes of the fields that are not in memory.
    fn fill(
        &self,
        shard: &Shard,
        row: u64,
        record: &mut Record,
        mut read: impl FnMut(u64, usize, &mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        record.reset(self.schema.fields.len());
        for (field, rows) in shard.rows.iter().enumerate() {
            let (row_bytes, size) = self.sizes[field];
            let value = &mut record.values[field];
            let label = self.schema.fields[field].kind == FieldKind::LABEL;
            match rows {
                Rows::Held(_) if !label => *value = Value::Resident,
                Rows::Held(all) => *value = Value::Int(number(part(all, row, row_bytes))?),
                Rows::Stored { offset, swapped } => {
                    let at = offset + row * row_bytes as u64;
                    record.offsets[field] = at;
                    let buffer = value.buffer();
                    read(at, row_bytes, buffer)?;
                    if *swapped {
                        buffer.chunks_exact_mut(size).for_each(<[u8]>::reverse);
                    }
                    if label {
                        *value = Value::Int(number(Some(buffer))?);
                    }
                }
            }
        }
        Ok(())
    }
}

/// The bytes of a row.
fn part(all: &[u8], row: u64, row_bytes: usize) -> Option<&[u8]> {
    let start = usize::try_from(row).ok()?.checked_mul(row_bytes)?;
    all.get(start..start.checked_add(row_bytes)?)
}

fn number(bytes: Option<&[u8]>) -> Result<i64> {
    let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
    bytes.map(i64::from_ne_bytes).ok_or_else(|| Error::new(ErrorKind::Internal, "a row has no whole number"))
}

fn size_of(store: &dyn Store, path: &str) -> Result<u64> {
    let stat = store.stat(path)?;
    if stat.kind == EntryKind::Folder {
        return Err(Error::config(format!("{path} is a folder, not a file of arrays")));
    }
    Ok(stat.size)
}

/// The header of a `.npy` file, and where its rows are.
fn read_npy(store: &dyn Store, path: &str) -> Result<Array> {
    let size = size_of(store, path)?;
    let mut start = Vec::new();
    store.read_range(path, 0, size.min(HEADER) as usize, &mut start)?;
    let header = npy::Header::parse_start(&start, size).map_err(|e| in_file(&e, path))?;
    let (offset, swapped) = (header.data() as u64, header.is_swapped());
    // Those without are read by `hold`.
    let rows = if header.has_rows() { Rows::Stored { offset, swapped } } else { Rows::Held(Vec::new()) };
    Ok(Array { name: "array".to_owned(), dtype: header.dtype, shape: header.shape, rows })
}

/// Reads an array whose rows do not lie together into memory.
fn hold(store: &dyn Store, path: &str, array: Array, left: &mut u64) -> Result<Array> {
    if matches!(array.rows, Rows::Stored { .. }) {
        return Ok(array);
    }
    let mut file = Vec::new();
    store.read(path, *left, &mut file).map_err(|e| {
        if e.kind() == ErrorKind::Limit {
            e.with_hint("its rows do not lie together (Fortran order): write it with numpy.ascontiguousarray")
        } else {
            e
        }
    })?;
    *left -= file.len() as u64;
    let header = npy::Header::parse(&file).map_err(|e| in_file(&e, path))?;
    if (header.dtype, &header.shape) != (array.dtype, &array.shape) {
        return Err(Error::corrupt(format!("{path} has changed while it was opened")));
    }
    header.into_elements(&mut file);
    Ok(Array { rows: Rows::Held(file), ..array })
}

/// The arrays of an `.npz` file.
fn read_npz(store: &dyn Store, path: &str, fields: Option<&[String]>, left: &mut u64) -> Result<Vec<Array>> {
    let directory = Directory::read(store, path)?;
    if let Some(damage) = directory.damage() {
        return Err(Error::corrupt(format!("{path} is damaged: {}", damage.message))
            .with_offset(damage.offset)
            .with_hint("it was cut, perhaps during a copy, or is no .npz file"));
    }
    let mut names = Vec::with_capacity(directory.len());
    for number in 0..directory.len() {
        let name = String::from_utf8_lossy(directory.name(number)).into_owned();
        let name = name.strip_suffix(".npy").map_or(name.clone(), str::to_owned);
        if names.contains(&name) {
            return Err(Error::corrupt(format!("{path} has two arrays called {name}")));
        }
        names.push(name);
    }
    let wanted: Vec<usize> = match fields {
        None => (0..names.len()).collect(),
        Some(fields) => (fields.iter())
            .map(|field| {
                names.iter().position(|name| name == field).ok_or_else(|| {
                    Error::config(format!("{path} has no array {field}: there are {}", names.join(", ")))
                })
            })
            .collect::<Result<_>>()?,
    };
    if wanted.is_empty() {
        return Err(Error::config(format!("{path} has no arrays to take")));
    }
    let mut arrays = Vec::with_capacity(wanted.len());
    for number in wanted {
        let limits = Limits { max_bytes: *left, ..Limits::default() };
        let mut file = Vec::new();
        directory.read_member(store, number, &limits, &mut file).map_err(|e| {
            if e.kind() == ErrorKind::Limit {
                let name = &names[number];
                Error::limit(&format!("array {name} of {path}"), directory.size(number), *left, "bytes")
                    .with_hint("arrays of .npz files are kept in memory; .npy files are read by position: numpy.save")
            } else {
                e
            }
        })?;
        *left -= file.len() as u64;
        let name = names[number].clone();
        let header = npy::Header::parse(&file).map_err(|e| in_file(&e, &format!("{name} of {path}")))?;
        let (dtype, shape) = (header.dtype, header.shape.clone());
        header.into_elements(&mut file);
        arrays.push(Array { name, dtype, shape, rows: Rows::Held(file) });
    }
    Ok(arrays)
}

fn read_raw(store: &dyn Store, path: &str, dtype: DType, shape: &[usize], offset: u64) -> Result<Array> {
    let size = size_of(store, path)?;
    let row = shape.iter().try_fold(dtype.size(), |size, n| size.checked_mul(*n)).filter(|row| *row > 0);
    let row =
        row.ok_or_else(|| Error::config(format!("rows of {} {shape:?} have no bytes", dtype.name())))? as u64;
    let whole = size.checked_sub(offset).filter(|bytes| bytes.is_multiple_of(row));
    let count = whole.map(|bytes| bytes / row).ok_or_else(|| {
        let name = dtype.name();
        Error::corrupt(format!(
            "{path} has {size} bytes, which are not {offset} and whole rows of {row} ({name} {shape:?})"
        ))
        .with_hint("it was cut, or dtype, shape or offset are others")
    })?;
    let rows = usize::try_from(count).map_err(|_| Error::limit(path, count, usize::MAX as u64, "rows"))?;
    let shape = [&[rows], shape].concat();
    Ok(Array { name: "array".to_owned(), dtype, shape, rows: Rows::Stored { offset, swapped: false } })
}

fn in_file(e: &Error, path: &str) -> Error {
    Error::new(e.kind(), format!("{path}: {}", e.message()))
}

impl Source for ArrayFiles {
    fn name(&self) -> String {
        name_of(&self.spec)
    }

    fn spec(&self) -> SourceSpec {
        SourceSpec::ArrayFiles(self.spec.clone())
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    /// `file.npy[row]`.
    fn key(&self, index: u64) -> String {
        self.find(index).map_or_else(String::new, |(shard, row)| format!("{}[{row}]", shard.path))
    }

    fn fetch(&self, index: u64, record: &mut Record) -> Result<()> {
        let (shard, row) = self.find(index).ok_or_else(|| beyond_the_end(self, index))?;
        let limits = record.limits;
        let read = |at: u64, len: usize, into: &mut Vec<u8>| {
            limits.check_bytes("row", len as u64)?;
            self.store.read_range(&shard.path, at, len, into).map_err(|e| e.with_offset(at))
        };
        self.fill(shard, row, record, read).map_err(|e| located(e, self, index))
    }

    fn store(&self) -> Option<&Arc<dyn Store>> {
        (!self.in_memory()).then_some(&self.store)
    }

    fn locate(&self, index: u64, limits: &Limits, extents: &mut Vec<Extent>) -> Result<()> {
        let (shard, row) = self.find(index).ok_or_else(|| beyond_the_end(self, index))?;
        for (rows, (len, _)) in shard.rows.iter().zip(&self.sizes) {
            let Rows::Stored { offset, .. } = rows else { continue };
            let len = *len as u64;
            limits.check_bytes("row", len).map_err(|e| located(e, self, index))?;
            extents.push(Extent::range(shard.path.clone(), offset + row * len, len));
        }
        Ok(())
    }

    fn assemble(&self, index: u64, pieces: &[Bytes], record: &mut Record) -> Result<()> {
        let (shard, row) = self.find(index).ok_or_else(|| beyond_the_end(self, index))?;
        let mut pieces = pieces.iter();
        let read = |_, _, into: &mut Vec<u8>| {
            let piece = pieces.next().ok_or_else(|| Error::new(ErrorKind::Internal, "a piece is missing"))?;
            reserve(into, piece.len(), &shard.path)?;
            into.extend_from_slice(piece);
            Ok(())
        };
        self.fill(shard, row, record, read).map_err(|e| located(e, self, index))
    }

    fn resident(&self, index: u64, field: usize) -> Option<&[u8]> {
        let (shard, row) = self.find(index)?;
        match shard.rows.get(field)? {
            Rows::Held(all) => part(all, row, self.sizes[field].0),
            Rows::Stored { .. } => None,
        }
    }

    fn in_memory(&self) -> bool {
        self.shards.iter().all(|shard| shard.rows.iter().all(|rows| matches!(rows, Rows::Held(_))))
    }

    fn number(&self, index: u64, field: usize) -> Option<i64> {
        let label = self.schema.fields.get(field)?.kind == FieldKind::LABEL;
        let bytes = label.then(|| self.resident(index, field)).flatten()?;
        number(Some(bytes)).ok()
    }

    fn fingerprint(&self) -> u64 {
        let mut hash = Fingerprint::new(&self.schema, self.len);
        for shard in &self.shards {
            let path = secrets::identity(&shard.path);
            hash.add(path.rsplit('/').next().unwrap_or_default().as_bytes());
            hash.number(shard.len);
        }
        hash.finish()
    }

    fn stamp(&self, index: u64) -> Option<u64> {
        let (shard, row) = self.find(index)?;
        let stat = self.store.stat(&shard.path).ok()?;
        Some(stamp(&format!("{}[{row}]", location(&shard.path)), &stat))
    }
}

fn name_of(spec: &ArrayFilesSpec) -> String {
    let verb = match spec.format {
        ArrayFormat::Npy => "npy",
        ArrayFormat::Npz { .. } => "npz",
        ArrayFormat::Raw { .. } => "raw",
    };
    match spec.urls.as_slice() {
        [url] => format!("{verb}({})", secrets::shown(url)),
        [url, ..] => format!("{verb}({} and {} more)", secrets::shown(url), spec.urls.len() - 1),
        [] => format!("{verb}()"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        source::{conformance, npy::tests::npy},
        store::{
            LocalStore,
            zip::testing::{DEFLATED, STORED, zip},
        },
        testing::TempFolder,
    };

    fn open(url: &str, format: ArrayFormat) -> Result<ArrayFiles> {
        let spec = ArrayFilesSpec { urls: vec![url.to_owned()], format, pixels: Pixels::Infer };
        ArrayFiles::open(Arc::new(LocalStore::new()), spec)
    }

    /// The bytes of all rows of a field.
    fn all(source: &ArrayFiles, field: usize) -> Vec<u8> {
        let mut record = Record::default();
        let mut found = Vec::new();
        for index in 0..source.len() {
            source.fetch(index, &mut record).unwrap();
            match &record.values[field] {
                Value::Bytes(bytes) => found.extend_from_slice(bytes),
                Value::Int(number) => found.extend(number.to_ne_bytes()),
                _ => found.extend_from_slice(source.resident(index, field).unwrap()),
            }
        }
        found
    }

    #[test]
    fn rows_of_npy_files_are_read_where_they_lie() {
        let folder = TempFolder::new();
        let data: Vec<u8> = (0..24).collect();
        folder.write("a-0.npy", &npy("<u2", false, "(2, 3)", &data[..12]));
        folder.write("a-1.npy", &npy("<u2", false, "(0, 3)", &[]));
        let swapped: Vec<u8> = data[12..].chunks(2).flat_map(|pair| [pair[1], pair[0]]).collect();
        folder.write("a-2.npy", &npy(">u2", false, "(2, 3)", &swapped));
        let url = folder.join("a-{0..2}.npy");
        for url in [url.clone(), format!("delayed+file://{url}")] {
            let source = open(&url, ArrayFormat::Npy).unwrap();
            assert_eq!(*source.schema(), Schema::single("array", FieldKind::array(DType::UInt16, &[3])));
            assert_eq!((source.len(), source.in_memory(), all(&source, 0)), (4, false, data.clone()));
            assert!(source.key(3).ends_with("a-2.npy[1]"), "{}", source.key(3));
            conformance::check(&source);
        }
        // Rows of which do not lie together.
        let fortran =
            open(&folder.write("f.npy", &npy("|u1", true, "(3, 4)", &data[..12])), ArrayFormat::Npy).unwrap();
        assert_eq!(all(&fortran, 0), [0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11]);
        conformance::check(&fortran);
        let labels: Vec<u8> = [7_i64, -1].iter().flat_map(|n| n.to_be_bytes()).collect();
        let labels =
            open(&folder.write("l.npy", &npy(">i8", false, "(2,)", &labels)), ArrayFormat::Npy).unwrap();
        assert_eq!(all(&labels, 0), [7_i64, -1].map(i64::to_ne_bytes).concat());
        assert_eq!(labels.schema().fields[0].kind, FieldKind::LABEL);
        conformance::check(&labels);
        folder.write("b-0.npy", &npy("<u2", false, "(2, 3)", &data[..12]));
        folder.write("b-1.npy", &npy("<u2", false, "(3, 2)", &data[..12]));
        let e = open(&folder.join("b-*.npy"), ArrayFormat::Npy).unwrap_err();
        assert!(e.kind() == ErrorKind::Config && e.message().contains("b-1.npy"), "{e}");
        let e =
            open(&folder.write("n.npy", &npy("<u2", false, "()", &[1, 2])), ArrayFormat::Npy).unwrap_err();
        assert!(e.message().contains("no rows"), "{e}");
    }

    #[test]
    fn arrays_of_npz_files_are_fields() {
        let folder = TempFolder::new();
        let pixels: Vec<u8> = (0..48).collect();
        let labels: Vec<u8> = [3_i64, 4].iter().flat_map(|n| n.to_le_bytes()).collect();
        let whole = zip(&[
            ("x.npy", &npy("|u1", false, "(2, 4, 6)", &pixels), DEFLATED),
            ("y.npy", &npy("<i8", false, "(2,)", &labels), STORED),
        ]);
        let path = folder.write("a.npz", &whole);
        let dict = open(&path, ArrayFormat::Npz { fields: None }).unwrap();
        assert!(matches!(&dict.schema().structure, Structure::Dict(items) if items.len() == 2));
        assert!(matches!(
            dict.schema().fields[0].kind,
            FieldKind::Pixels { height: 4, width: 6, channels: 1, .. }
        ));
        assert_eq!((all(&dict, 0), all(&dict, 1), dict.number(1, 1)), (pixels, labels, Some(4)));
        assert!(dict.in_memory());
        conformance::check(&dict);
        let only = ArrayFormat::Npz { fields: Some(vec!["y".to_owned()]) };
        let source = open(&format!("delayed+file://{path}"), only.clone()).unwrap();
        assert_eq!(source.schema().structure, Structure::Tuple(vec![Structure::Field(0)]));
        conformance::check(&source);
        let e = open(&path, ArrayFormat::Npz { fields: Some(vec!["z".to_owned()]) }).unwrap_err();
        assert!(e.message().contains("no array z: there are x, y"), "{e}");

        for cut in 0..whole.len() {
            let path = folder.write("cut.npz", &whole[..cut]);
            assert_eq!(
                open(&path, ArrayFormat::Npz { fields: None }).unwrap_err().kind(),
                ErrorKind::Corrupt
            );
        }
        let mut random = crate::rng::Rng::for_stage(1, 0, 0, 0);
        let (mut refused, fields) = (0, Some(vec!["x".to_owned(), "y".to_owned()]));
        for _ in 0..1000 {
            let mut bytes = whole.clone();
            let at = random.next_u32() as usize % bytes.len();
            bytes[at] ^= (1 + random.next_u32() % 255) as u8;
            match open(&folder.write("flip.npz", &bytes), ArrayFormat::Npz { fields: fields.clone() }) {
                Ok(source) => assert_eq!(
                    (all(&source, 0), all(&source, 1)),
                    (all(&dict, 0), all(&dict, 1)),
                    "byte {at}"
                ),
                Err(_) => refused += 1,
            }
        }
        assert!(refused > 500, "{refused} of 1000 were refused");
    }

    #[test]
    fn raw_elements_have_the_rows_that_they_are_said_to_have() {
        let folder = TempFolder::new();
        let data: Vec<u8> = (0..28).collect();
        let path = folder.write("a.bin", &data);
        let raw = |shape: &[usize], offset| ArrayFormat::Raw {
            dtype: DType::Float32,
            shape: shape.to_vec(),
            offset,
        };
        let source = open(&path, raw(&[3], 4)).unwrap();
        assert_eq!((source.len(), all(&source, 0)), (2, data[4..].to_vec()));
        conformance::check(&source);
        assert_eq!(
            open(&path, raw(&[], 0)).unwrap().schema().fields[0].kind,
            FieldKind::Scalar { dtype: DType::Float32 }
        );
        for (shape, offset) in [(&[3][..], 0), (&[3], 5), (&[2], 29), (&[0], 0), (&[usize::MAX, 9], 0)] {
            let e = open(&path, raw(shape, offset)).unwrap_err();
            assert!(matches!(e.kind(), ErrorKind::Corrupt | ErrorKind::Config), "{e}");
        }
        for cut in 0..28 {
            let source = open(&folder.write("cut.bin", &data[..cut]), raw(&[3], 4));
            assert!(source.map_or(true, |source| source.len() < 2), "what is cut at a row cannot be known");
        }
        let spec = source.spec();
        let json = serde_json::to_string(&spec).unwrap();
        let again: SourceSpec = serde_json::from_str(&json).unwrap();
        assert_eq!(again.open(Arc::new(LocalStore::new())).unwrap().fingerprint(), source.fingerprint());
    }
}
