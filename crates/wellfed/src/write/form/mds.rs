//! MDS shards, as MosaicML's Streaming writes them, and the index beside them.
//!
//! ```text
//! shard     samples u32 | offsets u32 [samples + 1] | configuration | samples          numbers little-endian
//! sample    u32 for each column without a fixed size | the columns' bytes
//! ```
//!
//! Offsets stand before the samples, so that a shard is kept in memory until it is whole.

use std::{path::Path, sync::Arc};

use serde_json::{Value as Json, json};

use super::{Form, OpenShard, Put, refuse_packed, samples_of, tfrecord::record};
use crate::{
    Error, ErrorKind, Result,
    sample::DType,
    source::{Mds, Source, hash_of},
    store::LocalStore,
    write::{
        WriteOptions,
        cell::{Cell, CellKind, Column},
        make::{Body, Made},
        manifest::Listed,
    },
};

/// The file that lists the shards of a folder.
pub(in crate::write) const INDEX: &str = "index.json";

/// Hashes of each shard.
const HASHES: [&str; 2] = ["sha1", "xxh64"];

/// Most bytes of a shard, where nothing else is said: Streaming's own.
pub(in crate::write) const SHARD: u64 = 1 << 26;

/// A column, and how its values are written.
struct Encoded {
    column: Column,
    encoding: String,
    /// Bytes of each value, if all have as many.
    size: Option<u32>,
    /// Whether the sides stand in front of the elements.
    shaped: bool,
}

/// MDS shards with these columns.
pub(in crate::write) struct MdsForm {
    columns: Vec<Encoded>,
    most: u64,
    /// In each shard.
    configuration: Vec<u8>,
}

impl MdsForm {
    /// # Errors
    /// [`ErrorKind::Config`] for dtypes that there are not, and shards that are too large.
    pub(super) fn new(columns: Vec<Column>, first: &[Cell], options: &WriteOptions) -> Result<Self> {
        let most = options.max_bytes.unwrap_or(SHARD);
        if most > u64::from(u32::MAX) {
            return Err(Error::config(format!("max_bytes is {most}; MDS shards have at most {}", u32::MAX)));
        }
        let columns = columns.into_iter().zip(first).map(|(column, cell)| Encoded::new(column, cell));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let names = columns.iter().map(|encoded| &*encoded.column.name).collect::<Vec<_>>();
        if let Some(twice) = names.iter().enumerate().find(|(i, name)| names[..*i].contains(name)) {
            return Err(Error::config(format!("two columns would be called {}", twice.1)));
        }
        let mut this = Self { columns, most, configuration: Vec::new() };
        let about = this.about();
        this.configuration = serde_json::to_vec(&about).map_err(|e| no_json(&e))?;
        Ok(this)
    }

    /// What the index says of every shard, and a shard of itself.
    fn about(&self) -> Json {
        json!({
            "version": 2,
            "format": "mds",
            "compression": null,
            "hashes": HASHES,
            "size_limit": self.most,
            "column_names": self.columns.iter().map(|encoded| &encoded.column.name).collect::<Vec<_>>(),
            "column_encodings": self.columns.iter().map(|encoded| &encoded.encoding).collect::<Vec<_>>(),
            "column_sizes": self.columns.iter().map(|encoded| encoded.size).collect::<Vec<_>>(),
        })
    }
}

fn no_json(e: &serde_json::Error) -> Error {
    Error::new(ErrorKind::Internal, format!("an index has no JSON form: {e}"))
}

impl Encoded {
    fn new(column: Column, first: &Cell) -> Result<Self> {
        let dtype = |dtype: DType| match dtype {
            // Booleans are numbers here.
            DType::Bool => Ok(DType::UInt8.name()),
            DType::BFloat16 => {
                Err(Error::config(format!("column {} cannot be written: MDS knows no bfloat16", column.name))
                    .with_hint("convert it to float32"))
            }
            dtype => Ok(dtype.name()),
        };
        let mut fixed = None;
        let mut shaped = false;
        let encoding = match &column.kind {
            CellKind::Image if matches!(first, Cell::Image("png", _)) => "png".to_owned(),
            CellKind::Image => "jpeg".to_owned(),
            CellKind::Text => "str".to_owned(),
            CellKind::Json => "json".to_owned(),
            CellKind::Bytes => "bytes".to_owned(),
            CellKind::Scalar(DType::Int64) => {
                fixed = Some(8);
                "int".to_owned()
            }
            CellKind::Scalar(of) => {
                fixed = Some(of.size());
                dtype(*of)?.to_owned()
            }
            CellKind::Array(of, sides) => {
                let known: Option<Vec<usize>> =
                    sides.iter().map(|side| side.filter(|side| *side > 0)).collect();
                match known {
                    Some(sides) => {
                        fixed = sides.iter().try_fold(of.size(), |size, side| size.checked_mul(*side));
                        let sides: Vec<String> = sides.iter().map(usize::to_string).collect();
                        format!("ndarray:{}:{}", dtype(*of)?, sides.join(","))
                    }
                    None => {
                        shaped = true;
                        format!("ndarray:{}", dtype(*of)?)
                    }
                }
            }
        };
        let size = fixed.map(u32::try_from).transpose().map_err(|_| {
            Error::config(format!("column {} cannot be written: its values are too large", column.name))
        })?;
        Ok(Self { column, encoding, size, shaped })
    }

    /// Appends a value.
    fn append(&self, cell: &Cell, into: &mut Vec<u8>) -> Result<()> {
        match cell {
            Cell::Image(what, bytes) => {
                refuse_packed(&self.column.name, what)?;
                into.extend_from_slice(bytes);
            }
            Cell::Int(number) => into.extend_from_slice(&number.to_le_bytes()),
            Cell::Bytes(bytes) => into.extend_from_slice(bytes),
            Cell::Array(dtype, shape, bytes) => {
                if self.shaped {
                    sides(shape, into)?;
                }
                let start = into.len();
                into.extend_from_slice(bytes);
                if cfg!(target_endian = "big") {
                    into[start..].chunks_exact_mut(dtype.size()).for_each(<[u8]>::reverse);
                }
            }
        }
        Ok(())
    }
}

/// Appends the sides of an array: how many there are, and of how many bytes each, then the sides.
fn sides(shape: &[usize], into: &mut Vec<u8>) -> Result<()> {
    let largest = shape.iter().copied().max().unwrap_or(0) as u64;
    let width =
        (0_u32..4).find(|width| largest < 1_u64.checked_shl(8 << width).unwrap_or(u64::MAX)).unwrap_or(3);
    let count = u8::try_from(shape.len()).ok().filter(|count| *count < 64);
    let count = count.ok_or_else(|| {
        Error::new(ErrorKind::Unsupported, format!("an array has {} sides; MDS has up to 63", shape.len()))
    })?;
    into.push(count << 2 | width as u8);
    for side in shape {
        into.extend_from_slice(&(*side as u64).to_le_bytes()[..1 << width]);
    }
    Ok(())
}

impl Form for MdsForm {
    fn prepare(&self, cells: Vec<Cell>) -> Result<Body> {
        let mut sizes = Vec::with_capacity(4 * self.columns.len());
        let mut data = Vec::with_capacity(cells.iter().map(|cell| cell.len() + 16).sum());
        for (encoded, cell) in self.columns.iter().zip(&cells) {
            encoded.column.check(cell)?;
            let start = data.len();
            encoded.append(cell, &mut data)?;
            let size = u32::try_from(data.len() - start).map_err(|_| {
                let what = format!("column {}", encoded.column.name);
                Error::limit(&what, (data.len() - start) as u64, u32::MAX.into(), "bytes")
            })?;
            if encoded.size.is_none() {
                sizes.extend_from_slice(&size.to_le_bytes());
            }
        }
        sizes.append(&mut data);
        Ok(Body::Record(sizes))
    }

    fn begin(&self) -> Result<Box<dyn OpenShard>> {
        Ok(Box::new(MdsShard {
            configuration: self.configuration.clone(),
            about: self.about(),
            ends: Vec::new(),
            data: Vec::new(),
        }))
    }

    fn fields(&self) -> Json {
        let described =
            |encoded: &Encoded| json!({ "name": encoded.column.name, "encoding": encoded.encoding });
        self.columns.iter().map(described).collect()
    }

    fn look(&self, path: &Path, listed: &Listed) -> Result<u64> {
        let store = Arc::new(LocalStore::with_open_files(1));
        samples_of(&*reader(store, &path.to_string_lossy(), listed)?)
    }

    fn beside(&self, shards: &[Listed]) -> Result<Option<(&'static str, Vec<u8>)>> {
        Ok(Some((INDEX, index(shards)?)))
    }
}

/// The index of shards.
///
/// # Errors
/// [`ErrorKind::Internal`] for what has no JSON form.
pub(in crate::write) fn index(shards: &[Listed]) -> Result<Vec<u8>> {
    let index = json!({ "version": 2, "shards": shards.iter().map(entry).collect::<Vec<_>>() });
    let mut text = serde_json::to_vec(&index).map_err(|e| no_json(&e))?;
    text.push(b'\n');
    Ok(text)
}

/// What the index says of a shard: what was noted when it was closed, and its name.
fn entry(listed: &Listed) -> Json {
    let mut entry = listed.about.clone().unwrap_or_default();
    if let Some(raw) = entry.get_mut("raw_data").and_then(Json::as_object_mut) {
        raw.insert("basename".to_owned(), listed.name.clone().into());
    }
    entry
}

/// Reads a shard again.
pub(super) fn reader(store: Arc<LocalStore>, path: &str, listed: &Listed) -> Result<Arc<dyn Source>> {
    let folder = Path::new(path).parent().unwrap_or(Path::new("")).to_string_lossy().into_owned();
    Ok(Arc::new(Mds::open_shard(store, &folder, &entry(listed))?))
}

/// A shard that is being made.
struct MdsShard {
    configuration: Vec<u8>,
    about: Json,
    /// Where each sample ends in `data`.
    ends: Vec<u32>,
    data: Vec<u8>,
}

impl MdsShard {
    /// Bytes before the samples, of which there are so many.
    fn head(&self, samples: usize) -> u64 {
        4 * (samples as u64 + 2) + self.configuration.len() as u64
    }

    fn size(&self, record: &[u8]) -> u64 {
        self.head(self.ends.len() + 1) + (self.data.len() + record.len()) as u64
    }
}

impl OpenShard for MdsShard {
    fn size_with(&mut self, sample: &Made) -> Result<u64> {
        Ok(self.size(record(sample)?))
    }

    fn add(&mut self, sample: Made, _put: &mut Put<'_>) -> Result<u64> {
        let record = record(&sample)?;
        let size = self.size(record);
        if size > u64::from(u32::MAX) {
            return Err(Error::limit("a sample of an MDS shard", size, u32::MAX.into(), "bytes"));
        }
        self.data
            .try_reserve(record.len())
            .map_err(|_| Error::memory(self.data.len() + record.len(), "an MDS shard"))?;
        self.data.extend_from_slice(record);
        // It is less than the size, which was just looked at.
        self.ends.push(self.data.len() as u32);
        Ok(record.len() as u64)
    }

    fn end(self: Box<Self>, put: &mut Put<'_>) -> Result<Option<Json>> {
        let Self { ends, data, configuration, .. } = &*self;
        let start = self.head(ends.len()) as u32;
        let mut head = Vec::with_capacity(start as usize);
        head.extend_from_slice(&(ends.len() as u32).to_le_bytes());
        for end in std::iter::once(&0).chain(ends) {
            head.extend_from_slice(&(start + end).to_le_bytes());
        }
        head.extend_from_slice(configuration);
        // Hashes are of the whole file.
        head.extend_from_slice(data);
        let hashes: serde_json::Map<String, Json> = HASHES
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), hash_of(name, &head)?.into())))
            .collect();
        let mut about = self.about;
        if let Some(about) = about.as_object_mut() {
            about.insert("samples".to_owned(), self.ends.len().into());
            about.insert("zip_data".to_owned(), Json::Null);
            about.insert("raw_data".to_owned(), json!({ "bytes": head.len(), "hashes": hashes }));
        }
        put(&head)?;
        Ok(Some(about))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_are_as_wide_as_the_largest_needs() {
        for (shape, expected) in [
            (&[][..], vec![0]),
            (&[0, 255], vec![2 << 2, 0, 255]),
            (&[256], vec![1 << 2 | 1, 0, 1]),
            (&[1, 65_536], vec![2 << 2 | 2, 1, 0, 0, 0, 0, 0, 1, 0]),
        ] {
            let mut bytes = Vec::new();
            sides(shape, &mut bytes).unwrap();
            assert_eq!(bytes, expected, "{shape:?}");
        }
        assert!(sides(&[1; 64], &mut Vec::new()).is_err());
    }
}
