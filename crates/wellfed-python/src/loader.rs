//! `_native.Loader`: batches out, as lists of columns.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::{
    prelude::*,
    types::{PyBytes, PyList, PyString, PyTuple},
};
use wellfed::{
    Batch, Column, ColumnData, ColumnForm, ColumnShape, Error, ErrorKind, Next, order::State, sample::DType,
    transform::Blend,
};

use crate::{
    array::{Array, RaggedColumn},
    enter,
    error::to_python,
    memory,
};

/// A column: its name, what it is, and where it has them dtype, sides of a sample (`None` differs from batch to batch), and
/// whether lengths come with it, and the side whose mask does.
type Shape = (String, &'static str, Option<&'static str>, Vec<Option<usize>>, bool, Option<usize>);

/// What is left of a column's images: see [`Loader::left_images`].
type Left = ([usize; 3], &'static str, bool, Py<PyBytes>);

/// A bad sample: its epoch, its batch, whether it was replaced, the exception, and its place in a given order.
type Bad = (u64, u64, bool, Py<PyAny>, Option<u64>);

/// Delivers the batches of a data set.
#[pyclass(frozen, module = "wellfed._native")]
pub(crate) struct Loader {
    /// Empty once closed.
    inner: Mutex<Option<Arc<wellfed::Loader>>>,
}

impl Loader {
    pub(crate) fn new(inner: wellfed::Loader) -> Self {
        Self { inner: Mutex::new(Some(Arc::new(inner))) }
    }

    fn slot(&self) -> MutexGuard<'_, Option<Arc<wellfed::Loader>>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, py: Python<'_>) -> PyResult<Arc<wellfed::Loader>> {
        let inner = self.slot().clone();
        inner.ok_or_else(|| to_python(py, &Error::new(ErrorKind::State, "the loader is closed")))
    }
}

#[pymethods]
impl Loader {
    /// The columns of the next batch, or None at the end of the epoch.
    fn next(&self, py: Python<'_>) -> PyResult<Option<Vec<Py<PyAny>>>> {
        let inner = self.get(py)?;
        let batch = enter::poll(py, |timeout| {
            Ok(match inner.next(timeout)? {
                Next::Batch(batch) => Some(Some(batch)),
                Next::EpochEnd => Some(None),
                Next::Pending => None,
            })
        })?;
        batch.map(|batch| columns(py, batch)).transpose()
    }

    /// Whether `next` would return a batch at once.
    fn ready(&self, py: Python<'_>) -> PyResult<bool> {
        let inner = self.get(py)?;
        enter::quick(py, || inner.ready())
    }

    fn start_epoch(&self, py: Python<'_>) -> PyResult<()> {
        let inner = self.get(py)?;
        enter::quick(py, || inner.start_epoch())
    }

    /// Begins a pass whose samples the caller chooses.
    #[pyo3(signature = (seed, position=0))]
    fn begin(&self, py: Python<'_>, seed: u64, position: u64) -> PyResult<()> {
        let inner = self.get(py)?;
        enter::quick(py, || inner.begin(seed, position))
    }

    /// Adds a batch: a list of whole numbers, or a one-dimensional int64 array. Its images are mixed in the end: in
    /// weighted sums, of which `lam` is their own weight, or by a rectangle of corners `x1, y1, x2, y2` of the image before.
    #[pyo3(signature = (indices, lam=None, corners=None))]
    fn submit(
        &self,
        py: Python<'_>,
        indices: &Bound<'_, PyAny>,
        lam: Option<f64>,
        corners: Option<[usize; 4]>,
    ) -> PyResult<()> {
        let inner = self.get(py)?;
        let indices = memory::indices(py, indices, inner.samples())?;
        let blend = match (lam, corners) {
            // Of a rectangle, the weight is for labels only.
            (_, Some(corners)) => Some(Blend::Box { corners, lam: lam.unwrap_or(1.0) }),
            (Some(lam), None) => Some(Blend::Sum { lam }),
            (None, None) => None,
        };
        enter::quick(py, || inner.submit_mixed(&indices, blend))
    }

    /// What the columns of every batch look like.
    fn columns(&self, py: Python<'_>) -> PyResult<Vec<Shape>> {
        let shape = |column: ColumnShape| match column.form {
            ColumnForm::Array { dtype, sides, lengths, mask } => {
                (column.name, "array", Some(dtype.name()), sides, lengths, mask)
            }
            ColumnForm::Ragged { dtype, inner } => {
                (column.name, "ragged", Some(dtype.name()), inner, false, None)
            }
            ColumnForm::List { dtype } => (column.name, "list", Some(dtype.name()), Vec::new(), false, None),
            ColumnForm::Text => (column.name, "text", None, Vec::new(), false, None),
            ColumnForm::Json => (column.name, "json", None, Vec::new(), false, None),
            ColumnForm::Bytes => (column.name, "bytes", None, Vec::new(), false, None),
        };
        Ok(self.get(py)?.columns().into_iter().map(shape).collect())
    }

    /// What is left of images to the device, column by column: channels, height and width, dtype, whether channels come
    /// first, and the table from 8-bit values to elements.
    fn left_images(&self, py: Python<'_>) -> PyResult<Vec<Option<Left>>> {
        let left = |image: wellfed::LeftImage| {
            let table: Vec<u8> = image.table.iter().flat_map(|word| word.to_ne_bytes()).collect();
            let table = PyBytes::new(py, &table).unbind();
            (image.size, image.dtype.name(), image.channels_first, table)
        };
        Ok(self.get(py)?.left_images().into_iter().map(|image| image.map(left)).collect())
    }

    /// Leaves a share of the samples to the device, where the plan says so.
    fn set_device_share(&self, py: Python<'_>, share: f64) -> PyResult<()> {
        self.get(py)?.set_device_share(share);
        Ok(())
    }

    /// Channels, height and width of images that can be mixed.
    #[getter]
    fn image_size(&self, py: Python<'_>) -> PyResult<Option<[usize; 3]>> {
        Ok(self.get(py)?.image_size())
    }

    /// Says that no batch will follow in this pass.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        let inner = self.get(py)?;
        enter::quick(py, || inner.finish())
    }

    /// Batches made ahead at present.
    #[getter]
    fn depth(&self, py: Python<'_>) -> PyResult<usize> {
        let inner = self.get(py)?;
        enter::quick(py, || inner.check_process().map(|()| inner.depth()))
    }

    fn set_epoch(&self, py: Python<'_>, epoch: u64) -> PyResult<()> {
        let inner = self.get(py)?;
        enter::quick(py, || inner.set_epoch(epoch))
    }

    /// The fingerprint of the pipeline.
    #[getter]
    fn fingerprint(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.get(py)?.fingerprint())
    }

    /// The epoch that is under way, or comes next.
    #[getter]
    fn epoch(&self, py: Python<'_>) -> PyResult<u64> {
        let inner = self.get(py)?;
        enter::quick(py, || Ok(inner.state_dict()?.epoch))
    }

    fn length(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        // Whoever holds the lock that this takes may be waiting for the interpreter, to unlock pages.
        let inner = self.get(py)?;
        enter::quick(py, || Ok(inner.len()))
    }

    /// The position as JSON.
    fn state_dict(&self, py: Python<'_>) -> PyResult<String> {
        let inner = self.get(py)?;
        let state = enter::quick(py, || inner.state_dict())?;
        text(py, &state)
    }

    fn load_state_dict(&self, py: Python<'_>, state: &str) -> PyResult<()> {
        let state: State = serde_json::from_str(state)
            .map_err(|e| to_python(py, &Error::config(format!("this is no state of a loader: {e}"))))?;
        let inner = self.get(py)?;
        enter::quick(py, || inner.load_state_dict(&state))
    }

    /// Counters as JSON, and as a table for people.
    fn stats(&self, py: Python<'_>) -> PyResult<(String, String)> {
        let inner = self.get(py)?;
        let stats = enter::quick(py, || inner.check_process().map(|()| inner.stats()))?;
        Ok((text(py, &stats)?, stats.to_string()))
    }

    /// Bad samples as (epoch, batch, replaced, exception, position).
    fn errors(&self, py: Python<'_>) -> PyResult<Vec<Bad>> {
        let inner = self.get(py)?;
        let bad = enter::quick(py, || inner.errors())?;
        let one = |bad: wellfed::BadSample| {
            let exception = to_python(py, &bad.error).into_value(py).into_any();
            (bad.epoch, bad.batch, bad.replaced, exception, bad.position)
        };
        Ok(bad.into_iter().map(one).collect())
    }

    fn write_trace(&self, py: Python<'_>, path: std::path::PathBuf) -> PyResult<()> {
        let inner = self.get(py)?;
        enter::slow(py, move || inner.write_trace(&path))
    }

    /// Ends all threads. Later calls raise an exception.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        enter::quick(py, || {
            let inner = self.slot().take();
            drop(inner);
            Ok(())
        })
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        let inner = self.slot().take();
        // Waiting for workers to finish their sample must not stop other Python threads. Without an interpreter
        // (at exit) there are none.
        let mut inner = Some(inner);
        Python::try_attach(|py| py.detach(|| drop(inner.take())));
        drop(inner);
    }
}

/// A batch as Python objects, one per column.
pub(crate) fn columns(py: Python<'_>, batch: Batch) -> PyResult<Vec<Py<PyAny>>> {
    batch.columns.into_iter().map(|column| convert(py, column)).collect()
}

/// A sample as Python objects, one per column: `batch` holds no other, and what would be a list is its one value.
pub(crate) fn columns_of_one(py: Python<'_>, batch: Batch) -> PyResult<Vec<Py<PyAny>>> {
    let one = |values: Py<PyAny>| match values.bind(py).cast::<PyList>() {
        Ok(list) if list.len() == 1 => list.get_item(0).map(Bound::unbind),
        _ => Ok(values),
    };
    columns(py, batch)?.into_iter().map(one).collect()
}

/// A column; one that was padded with its lengths and its mask, if the plan asks for them, as a tuple.
fn convert(py: Python<'_>, column: Column) -> PyResult<Py<PyAny>> {
    let samples = match &column.data {
        ColumnData::Array { shape, .. } => shape.first().copied().unwrap_or(0),
        _ => 0,
    };
    let blends = column.blends.iter().map(|blend| match *blend {
        Blend::Sum { lam } => (lam, None),
        Blend::Box { corners, lam } => (lam, Some(corners)),
    });
    let mut parts = vec![values(py, column.data, blends.collect())?];
    if let Some(lengths) = column.lengths {
        let lengths = Array::new(DType::Int64, vec![lengths.len() / 8], lengths);
        parts.push(Py::new(py, lengths)?.into_any());
    }
    if let Some(mask) = column.mask {
        let places = mask.len().checked_div(samples).unwrap_or(0);
        let mask = Array::new(DType::Bool, vec![samples, places], mask);
        parts.push(Py::new(py, mask)?.into_any());
    }
    match <[Py<PyAny>; 1]>::try_from(parts) {
        Ok([values]) => Ok(values),
        Err(parts) => Ok(PyTuple::new(py, parts)?.into_any().unbind()),
    }
}

fn values(py: Python<'_>, data: ColumnData, blends: Vec<(f64, Option<[usize; 4]>)>) -> PyResult<Py<PyAny>> {
    Ok(match data {
        ColumnData::Array { dtype, shape, bytes } => Py::new(py, Array::new(dtype, shape, bytes))?.into_any(),
        ColumnData::Ragged { dtype, shape, bytes, offsets } => {
            let values = Py::new(py, Array::new(dtype, shape, bytes))?;
            let offsets = Py::new(py, Array::new(DType::Int64, vec![offsets.len() / 8], offsets))?;
            Py::new(py, RaggedColumn { values, offsets, blends })?.into_any()
        }
        ColumnData::List { dtype, shapes, bytes } => {
            let list = PyList::empty(py);
            for array in Array::several(dtype, shapes, bytes) {
                list.append(Py::new(py, array)?)?;
            }
            list.into_any().unbind()
        }
        // One by one, so that a large value is not there twice for longer than it takes to copy it.
        ColumnData::Text(texts) => {
            let list = PyList::empty(py);
            for text in texts {
                list.append(PyString::from_bytes(py, text.as_bytes())?)?;
            }
            list.into_any().unbind()
        }
        ColumnData::Json(texts) => {
            let loads = py.import("json")?.getattr("loads")?;
            let list = PyList::empty(py);
            for text in texts {
                list.append(loads.call1((text,))?)?;
            }
            list.into_any().unbind()
        }
        ColumnData::Bytes(all) => {
            let list = PyList::empty(py);
            for bytes in all {
                let copy = |to: &mut [u8]| {
                    to.copy_from_slice(&bytes);
                    Ok(())
                };
                list.append(PyBytes::new_with(py, bytes.len(), copy)?)?;
            }
            list.into_any().unbind()
        }
    })
}

/// `value` as JSON.
pub(crate) fn text(py: Python<'_>, value: &impl serde::Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(|e| {
        to_python(py, &Error::new(ErrorKind::Internal, format!("cannot be written as JSON: {e}")))
    })
}
