//! Parquet files. What writes them is a crate of its own, which makes itself known by [`register`], as what reads them does.

use std::{
    path::Path,
    sync::{Arc, OnceLock},
};

use serde_json::json;

use super::{Form, OpenShard, Put, refuse_packed, samples_of};
use crate::{
    Error, ErrorKind, Result,
    source::{Source, SourceSpec, TableFormat, TableSpec},
    store::LocalStore,
    write::{
        WriteOptions,
        cell::{Cell, Column},
        make::{Body, Made},
        manifest::Listed,
    },
};

/// Bytes of the rows that are written together, where nothing else is said: what has to be in memory at once.
const GROUP_BYTES: u64 = 64 << 20;

/// Most rows that are written together, where nothing else is said.
const GROUP_ROWS: usize = 64 << 10;

/// A table that is being written. Its bytes depend on the rows and on where groups end alone.
pub trait TableWriter: Send {
    /// Appends a row: its name, and a value for each column.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] for values that are not those of the columns.
    fn add(&mut self, name: &str, cells: Vec<Cell>) -> Result<()>;

    /// Ends a group of rows, and hands over the bytes that are finished.
    ///
    /// # Errors
    /// Those of `put` and of the library.
    fn end_group(&mut self, put: &mut Put<'_>) -> Result<()>;

    /// Ends the file.
    ///
    /// # Errors
    /// As of [`TableWriter::end_group`].
    fn end(self: Box<Self>, put: &mut Put<'_>) -> Result<()>;
}

/// Begins a table with these columns.
pub type MakeTable = fn(&[Column]) -> Result<Box<dyn TableWriter>>;

static MAKER: OnceLock<MakeTable> = OnceLock::new();

/// Makes the writer of tables known. Further calls do nothing.
pub fn register(make: MakeTable) {
    MAKER.get_or_init(|| make);
}

fn make(columns: &[Column]) -> Result<Box<dyn TableWriter>> {
    let make = MAKER
        .get()
        .ok_or_else(|| Error::config("Parquet files cannot be written: this program writes no tables"))?;
    make(columns)
}

/// Parquet files with these columns.
pub(in crate::write) struct TableForm {
    columns: Vec<Column>,
    rows: usize,
    bytes: u64,
}

impl TableForm {
    /// # Errors
    /// [`ErrorKind::Config`] for columns that a table cannot have.
    pub(super) fn new(columns: Vec<Column>, options: &WriteOptions) -> Result<Self> {
        // What cannot be is known before anything is written.
        drop(make(&columns)?);
        let rows = options.row_group_size;
        Ok(Self {
            columns,
            rows: rows.unwrap_or(GROUP_ROWS),
            // A number of rows is what was asked for, whatever they take.
            bytes: if rows.is_some() { u64::MAX } else { GROUP_BYTES },
        })
    }
}

impl Form for TableForm {
    fn prepare(&self, cells: Vec<Cell>) -> Result<Body> {
        for (column, cell) in self.columns.iter().zip(&cells) {
            column.check(cell)?;
            if let Cell::Image(what, _) = cell {
                refuse_packed(&column.name, what)?;
            }
        }
        Ok(Body::Cells(cells))
    }

    fn begin(&self) -> Result<Box<dyn OpenShard>> {
        let table = make(&self.columns)?;
        Ok(Box::new(TableShard { table, most: (self.rows, self.bytes), group: (0, 0), bytes: 0 }))
    }

    fn fields(&self) -> serde_json::Value {
        json!(self.columns)
    }

    fn look(&self, path: &Path, _listed: &Listed) -> Result<u64> {
        let store = Arc::new(LocalStore::with_open_files(1));
        samples_of(&*reader(store, &path.to_string_lossy())?)
    }
}

/// Reads a file again.
pub(super) fn reader(store: Arc<LocalStore>, path: &str) -> Result<Arc<dyn Source>> {
    SourceSpec::Table(Box::new(TableSpec::new(TableFormat::Parquet, path))).open(store)
}

/// A file that is being written.
struct TableShard {
    table: Box<dyn TableWriter>,
    /// Rows and bytes of a group.
    most: (usize, u64),
    /// Those of the group that is open.
    group: (usize, u64),
    /// Of all rows.
    bytes: u64,
}

fn cells(sample: &Made) -> Result<&[Cell]> {
    match &sample.body {
        Body::Cells(cells) => Ok(cells),
        _ => Err(Error::new(ErrorKind::Internal, "a row has no values")),
    }
}

fn size(sample: &Made) -> Result<u64> {
    // Lengths take some room, too.
    Ok(cells(sample)?.iter().map(|cell| cell.len() as u64 + 4).sum())
}

impl OpenShard for TableShard {
    fn size_with(&mut self, sample: &Made) -> Result<u64> {
        Ok(self.bytes + size(sample)?)
    }

    fn add(&mut self, sample: Made, put: &mut Put<'_>) -> Result<u64> {
        let size = size(&sample)?;
        if self.group.0 > 0 && (self.group.0 >= self.most.0 || self.group.1 + size > self.most.1) {
            self.table.end_group(put)?;
            self.group = (0, 0);
        }
        let Made { name, body } = sample;
        let Body::Cells(cells) = body else {
            return Err(Error::new(ErrorKind::Internal, "a row has no values"));
        };
        self.table.add(&name, cells)?;
        self.group = (self.group.0 + 1, self.group.1 + size);
        self.bytes += size;
        Ok(size)
    }

    fn end(mut self: Box<Self>, put: &mut Put<'_>) -> Result<Option<serde_json::Value>> {
        self.table.end_group(put)?;
        self.table.end(put)?;
        Ok(None)
    }
}
