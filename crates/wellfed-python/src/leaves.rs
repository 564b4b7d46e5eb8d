//! `_native.Leaves`: samples of sources, many at a time and in memory of the caller's, for those who run Python on them;
//! and `_native.RowIndexes`, which processes that make such samples share.

use std::{fs::File, ptr::NonNull, sync::Arc};

use pyo3::{exceptions::PyValueError, prelude::*};
use wellfed::{Batch, Place, Result, Sampler, sample::DType};

use crate::{enter, error::to_python, loader, memory};

/// Row of a batch, index, epoch.
type Pick = (usize, u64, u64);

/// Row indexes of a data set, in memory that processes share.
#[pyclass(frozen, module = "wellfed._native")]
pub(crate) struct RowIndexes {
    inner: Arc<wellfed::RowIndexes>,
}

impl RowIndexes {
    pub(crate) fn new(inner: wellfed::RowIndexes) -> Self {
        Self { inner: Arc::new(inner) }
    }
}

#[pymethods]
impl RowIndexes {
    /// The descriptor of the memory, which stays this object's; None in processes that attached to it.
    #[cfg(unix)]
    fn fileno(&self) -> Option<i32> {
        self.inner.file().map(std::os::fd::AsRawFd::as_raw_fd)
    }

    /// Bytes that they may take.
    #[getter]
    fn limit(&self) -> u64 {
        self.inner.limit()
    }

    /// What all processes recorded and used together, as JSON.
    fn stats(&self, py: Python<'_>) -> PyResult<String> {
        loader::text(py, &self.inner.stats())
    }

    /// Writes what belongs into files and is not there yet.
    fn save(&self, py: Python<'_>) -> PyResult<()> {
        let inner = self.inner.clone();
        enter::slow(py, move || {
            inner.save();
            Ok(())
        })
    }
}

/// Makes samples of the sources of a data set, in the thread that calls.
#[pyclass(frozen, module = "wellfed._native")]
pub(crate) struct Leaves {
    /// One for each source: each keeps what the next sample of this source needs.
    samplers: Vec<Sampler>,
}

impl Leaves {
    pub(crate) fn new(dataset: &wellfed::Dataset, rows: Option<&RowIndexes>) -> Self {
        let one = |_| dataset.sampler_with(rows.map(|rows| rows.inner.clone()));
        Self { samplers: dataset.sources().iter().map(one).collect() }
    }
}

#[pymethods]
impl Leaves {
    /// The samples `picks` of a source: of each its columns, or the exception that it ended with.
    ///
    /// `places` are arrays `[rows, ...]` by the number of their column. Where a sample's column has the shape and dtype of
    /// such a row it is written there, and None stands in its place. Until this returns nobody else may look at them.
    /// Once the others take `most` bytes together no more are made: then these are the first ones only.
    fn many<'py>(
        &self,
        py: Python<'py>,
        source: usize,
        picks: Vec<Pick>,
        places: Vec<(usize, Bound<'py, PyAny>)>,
        most: usize,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let sampler = self.samplers.get(source);
        let sampler = sampler.ok_or_else(|| PyValueError::new_err(format!("there is no source {source}")))?;
        let places = places
            .iter()
            .map(|(column, array)| Rows::of(py, *column, array))
            .collect::<PyResult<Vec<_>>>()?;
        let make = |&(row, index, epoch): &Pick| {
            let mut here: Vec<Place<'_>> = places.iter().filter_map(|rows| rows.place(row)).collect();
            sampler.sample_into(source, index, epoch, &mut here)
        };
        let made = enter::quick(py, || {
            let (mut made, mut bytes) = (Vec::with_capacity(picks.len()), 0);
            for pick in &picks {
                if bytes >= most && !made.is_empty() {
                    break;
                }
                let one = enter::guarded(|| make(pick));
                let columns = one.iter().flat_map(|(batch, _)| &batch.columns);
                bytes += columns.map(|column| column.data.bytes()).sum::<usize>();
                made.push(one);
            }
            Ok(made)
        })?;
        made.into_iter().map(|made| columns(py, made)).collect()
    }
}

fn columns<'py>(py: Python<'py>, made: Result<(Batch, Vec<usize>)>) -> PyResult<Bound<'py, PyAny>> {
    let (batch, placed) = match made {
        Ok(made) => made,
        Err(error) => return Ok(to_python(py, &error).into_value(py).into_bound(py).into_any()),
    };
    let count = batch.columns.len() + placed.len();
    let mut others = loader::columns_of_one(py, batch)?.into_iter();
    let one = |number| if placed.contains(&number) { Some(py.None()) } else { others.next() };
    (0..count).filter_map(one).collect::<Vec<_>>().into_pyobject(py)
}

/// Rows of a caller's array, into which samples go.
struct Rows {
    column: usize,
    dtype: DType,
    shape: Vec<usize>,
    start: NonNull<u8>,
    /// Bytes of a row.
    size: usize,
    rows: usize,
}

// SAFETY: the memory is plain bytes that no thread but the one of the call looks at while it lasts.
unsafe impl Send for Rows {}
// SAFETY: as above.
unsafe impl Sync for Rows {}

impl Rows {
    fn of(py: Python<'_>, column: usize, array: &Bound<'_, PyAny>) -> PyResult<Self> {
        let name: String = array.getattr("dtype")?.getattr("name")?.extract()?;
        let dtype: DType = serde_json::from_value(name.into())
            .map_err(|e| PyValueError::new_err(format!("rows of samples: {e}")))?;
        let (start, mut shape) = memory::writable(py, array, dtype)?;
        if shape.is_empty() {
            return Err(PyValueError::new_err("rows of samples need a first dimension"));
        }
        let rows = shape.remove(0);
        let size = dtype.size() * shape.iter().product::<usize>();
        Ok(Self { column, dtype, shape, start, size, rows })
    }

    fn place(&self, row: usize) -> Option<Place<'_>> {
        if row >= self.rows {
            return None;
        }
        // SAFETY: inside of the array, whose rows these are (`memory::writable` checked its size), and which outlives the
        // call. One sample is made at a time, and nobody else looks at the array meanwhile.
        let memory =
            unsafe { std::slice::from_raw_parts_mut(self.start.add(row * self.size).as_ptr(), self.size) };
        Some(Place { column: self.column, dtype: self.dtype, shape: &self.shape, memory })
    }
}

/// A descriptor that this process owns, as a file.
#[cfg(unix)]
pub(crate) fn file(descriptor: i32) -> File {
    use std::os::fd::FromRawFd;
    // SAFETY: the caller gives the descriptor away.
    unsafe { File::from_raw_fd(descriptor) }
}
