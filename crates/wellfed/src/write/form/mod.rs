//! [`Form`]: what lies in shards of one format, and how samples become that.
//!
//! `prepare` runs on the threads that make samples, so that most of the work is done there, and what is wrong with a sample
//! is its own error; an [`OpenShard`] gets samples in order. The bytes of a shard depend on its samples and on options alone.

pub(super) mod mds;
pub(super) mod table;
pub(super) mod tar;
pub(super) mod tfrecord;

use std::{path::Path, sync::Arc};

use super::{
    Format, WriteOptions,
    cell::{Cell, columns},
    fields::Field,
    make::{Body, Made},
    manifest::Listed,
    names::Place,
};
use crate::{
    Error, ErrorKind, Result,
    source::Source,
    store::{EntryKind, LocalStore, Store as _},
};

/// Where the bytes of a shard go.
pub type Put<'a> = dyn FnMut(&[u8]) -> Result<()> + 'a;

/// The form of shards.
pub(super) trait Form: Send + Sync {
    /// What the values of a sample are written as.
    ///
    /// # Errors
    /// What cannot be written of this sample.
    fn prepare(&self, cells: Vec<Cell>) -> Result<Body>;

    /// A new shard, without samples.
    ///
    /// # Errors
    /// Those of a library.
    fn begin(&self) -> Result<Box<dyn OpenShard>>;

    /// What the manifest says of fields. With that and a [`Listed`], [`reader`] reads a shard again.
    fn fields(&self) -> serde_json::Value;

    /// Reads a finished shard again, as far as it takes to know how many samples it has; makes an index beside it, if there is
    /// one.
    ///
    /// # Errors
    /// What its reader says of it.
    fn look(&self, path: &Path, listed: &Listed) -> Result<u64>;

    /// The file beside the shards that says what they are, when all are there: its name and bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] for what has no JSON form.
    fn beside(&self, _shards: &[Listed]) -> Result<Option<(&'static str, Vec<u8>)>> {
        Ok(None)
    }
}

/// A shard that is being written.
pub(super) trait OpenShard: Send {
    /// Bytes that the shard would have if `sample` were its last one. Of what is compressed: before that.
    ///
    /// # Errors
    /// [`ErrorKind::Limit`] for what does not fit into any shard.
    fn size_with(&mut self, sample: &Made) -> Result<u64>;

    /// Appends a sample; gives its bytes.
    ///
    /// # Errors
    /// Those of `put`.
    fn add(&mut self, sample: Made, put: &mut Put<'_>) -> Result<u64>;

    /// Ends the shard; gives what the manifest is to note of it.
    ///
    /// # Errors
    /// Those of `put`.
    fn end(self: Box<Self>, put: &mut Put<'_>) -> Result<Option<serde_json::Value>>;
}

/// The form of `format` for samples like `first`.
///
/// # Errors
/// [`ErrorKind::Config`] for fields that the format cannot hold.
pub(super) fn of(
    format: Format,
    fields: &[Field],
    first: &[Cell],
    classes: Option<&[String]>,
    options: &WriteOptions,
) -> Result<Box<dyn Form>> {
    let mut columns = columns(fields, first);
    // Classes are those of the first whole number, as of any source.
    if let (Some(classes), Some(label)) =
        (classes, fields.iter().position(|field| field.kind == crate::sample::FieldKind::LABEL))
    {
        columns[label].classes = Some(classes.to_vec());
    }
    Ok(match format {
        Format::Tar => Box::new(tar::TarForm::new(fields)?),
        Format::Tfrecord => Box::new(tfrecord::TfRecordForm::new(columns)?),
        Format::Mds => Box::new(mds::MdsForm::new(columns, first, options)?),
        Format::Parquet => Box::new(table::TableForm::new(columns, options)?),
    })
}

/// What reads a shard at `path` that is not a tar shard, by what a manifest says of it.
pub(super) fn reader(
    format: Format,
    fields: &serde_json::Value,
    path: &Path,
    listed: &Listed,
) -> Result<Arc<dyn Source>> {
    let store = Arc::new(LocalStore::with_open_files(1));
    let path = path.to_string_lossy();
    if store.stat(&path)?.kind == EntryKind::Folder {
        return Err(Error::corrupt(format!("{path} is a folder")));
    }
    match format {
        Format::Tar => Err(Error::new(ErrorKind::Internal, "tar shards have a reader of their own")),
        Format::Tfrecord => tfrecord::reader(store, fields, &path),
        Format::Mds => mds::reader(store, &path, listed),
        Format::Parquet => table::reader(store, &path),
    }
}

/// Number of samples of a shard that `source` is, whose last one can be read.
fn samples_of(source: &dyn Source) -> Result<u64> {
    // Damage at the end of a shard is its last sample.
    if let Some(last) = source.len().checked_sub(1) {
        source.fetch(last, &mut crate::sample::Record::default())?;
    }
    Ok(source.len())
}

/// A column of values that no reader but wellfed knows.
fn refuse_packed(name: &str, what: &str) -> Result<()> {
    if what == crate::source::PACKED {
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!("field {name} is an image of packed coefficients, which only tar shards hold"),
        )
        .with_hint("write tar shards, or the images that it was made of"));
    }
    Ok(())
}

impl Place {
    /// Refuses to write where something of others lies that would be written over.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if there is such a file.
    pub(super) fn check_beside(&self, format: Format, there: &[String]) -> Result<()> {
        if format == Format::Mds && there.iter().any(|name| name == mds::INDEX) {
            let path = self.folder.join(mds::INDEX);
            return Err(Error::config(format!("{} is there already", path.display()))
                .with_hint("write to another folder: MDS shards of one folder have one index"));
        }
        Ok(())
    }
}
