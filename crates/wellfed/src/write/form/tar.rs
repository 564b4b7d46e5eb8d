//! Tar shards in the form of WebDataset: a file for each field, called by the key of its sample and an extension.

use std::path::Path;

use serde_json::json;

use super::{Form, OpenShard, Put};
use crate::{
    Error, ErrorKind, Result,
    source::{Shard, npy_file},
    store::LocalStore,
    write::{
        cell::Cell,
        fields::{Extension, Field, extensions},
        make::{Body, Made},
        manifest::Listed,
        names::Keys,
        tar,
    },
};

/// Tar shards with these fields.
pub(in crate::write) struct TarForm {
    fields: Vec<(Field, Extension)>,
}

impl TarForm {
    /// # Errors
    /// [`ErrorKind::Config`] for names that are no extensions.
    pub(super) fn new(fields: &[Field]) -> Result<Self> {
        Ok(Self { fields: fields.iter().cloned().zip(extensions(fields)?).collect() })
    }
}

impl Form for TarForm {
    fn prepare(&self, cells: Vec<Cell>) -> Result<Body> {
        let file = |((_, extension), cell): (&(Field, Extension), Cell)| {
            let named = |own: &str| match extension {
                Extension::Image(prefix) => format!("{prefix}{own}"),
                Extension::Is(extension) => extension.clone(),
            };
            Ok(match cell {
                Cell::Image(what, bytes) => (named(what), bytes),
                Cell::Int(number) => (named("cls"), number.to_string().into_bytes()),
                Cell::Bytes(bytes) => (named(""), bytes),
                Cell::Array(dtype, shape, bytes) => (named("npy"), npy_file(dtype, &shape, &bytes)?),
            })
        };
        Ok(Body::Files(self.fields.iter().zip(cells).map(file).collect::<Result<_>>()?))
    }

    fn begin(&self) -> Result<Box<dyn OpenShard>> {
        Ok(Box::<TarShard>::default())
    }

    fn fields(&self) -> serde_json::Value {
        let described = |(field, extension): &(Field, Extension)| json!({ "name": field.name, "kind": field.kind, "extension": extension });
        self.fields.iter().map(described).collect()
    }

    fn look(&self, path: &Path, _listed: &Listed) -> Result<u64> {
        let store = LocalStore::with_open_files(1);
        let shard = Shard::open(&store, &path.to_string_lossy())?;
        shard.keep_index(&store);
        Ok(shard.len())
    }
}

/// A tar file that is being written.
#[derive(Default)]
struct TarShard {
    bytes: u64,
    keys: Keys,
    /// Key and headers of the sample that was asked for last.
    next: Option<(String, Vec<Vec<u8>>)>,
}

impl TarShard {
    /// The key of a sample in this shard, and a header for each of its files.
    fn headers(&self, sample: &Made) -> Result<(String, Vec<Vec<u8>>)> {
        let key = self.keys.unique(&sample.name);
        let headers = files(sample)?.iter().map(|(extension, bytes)| {
            let mut header = Vec::with_capacity(tar::BLOCK);
            tar::header(&format!("{key}.{extension}"), bytes.len() as u64, &mut header)?;
            Ok(header)
        });
        let headers = headers.collect::<Result<_>>()?;
        Ok((key, headers))
    }
}

fn files(sample: &Made) -> Result<&[(String, Vec<u8>)]> {
    match &sample.body {
        Body::Files(files) => Ok(files),
        _ => Err(Error::new(ErrorKind::Internal, "a sample of a tar shard has no files")),
    }
}

fn size(headers: &[Vec<u8>], files: &[(String, Vec<u8>)]) -> u64 {
    let whole = |size: usize| (size + tar::padding(size as u64)) as u64;
    let data: u64 = files.iter().map(|(_, bytes)| whole(bytes.len())).sum();
    data + headers.iter().map(|header| header.len() as u64).sum::<u64>()
}

impl OpenShard for TarShard {
    fn size_with(&mut self, sample: &Made) -> Result<u64> {
        let (key, headers) = self.headers(sample)?;
        let all = self.bytes + size(&headers, files(sample)?) + tar::END as u64;
        self.next = Some((key, headers));
        Ok(all)
    }

    fn add(&mut self, sample: Made, put: &mut Put<'_>) -> Result<u64> {
        let (key, headers) = match self.next.take() {
            Some(next) => next,
            None => self.headers(&sample)?,
        };
        let files = files(&sample)?;
        for (header, (_, bytes)) in headers.iter().zip(files) {
            put(header)?;
            put(bytes)?;
            put(&[0; tar::BLOCK][..tar::padding(bytes.len() as u64)])?;
        }
        let size = size(&headers, files);
        self.bytes += size;
        self.keys.take(key);
        Ok(size)
    }

    fn end(self: Box<Self>, put: &mut Put<'_>) -> Result<Option<serde_json::Value>> {
        put(&[0; tar::END])?;
        Ok(None)
    }
}
